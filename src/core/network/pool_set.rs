//! Sets of pools and of numbers: small, plain, and fast to intersect.

/// A set of pools, by their index in drawing order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PoolSet(pub(super) Vec<u64>);

impl PoolSet {
    pub(super) fn add(&mut self, index: usize) {
        let word = index / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (index % 64);
    }

    #[inline]
    pub(super) fn set(&mut self, index: usize, member: bool) {
        if member {
            self.add(index);
        } else if let Some(word) = self.0.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    pub(super) fn contains(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// The first result that `found_at` has for a member of all sets, in the order of [`Self::intersection`].
    #[inline]
    pub(super) fn find_in<T>(
        &self,
        others: [Option<&PoolSet>; 4],
        mut found_at: impl FnMut(usize) -> Option<T>,
    ) -> Option<T> {
        for (at, &word) in self.0.iter().enumerate() {
            let mut word = in_all(word, at, others);
            while word != 0 {
                let found = found_at(at * 64 + word.trailing_zeros() as usize);
                if found.is_some() {
                    return found;
                }
                word &= word - 1;
            }
        }
        None
    }

    /// The members of all sets, ascending. A set that is not given restricts nothing. Cost: one step per 64 pools and one
    /// per member.
    pub(super) fn intersection<'a>(&'a self, others: [Option<&'a PoolSet>; 4]) -> impl Iterator<Item = usize> + 'a {
        self.0.iter().enumerate().flat_map(move |(at, &word)| {
            let mut word = in_all(word, at, others);
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

/// The bits of a word that are also set in all other sets.
fn in_all(word: u64, at: usize, others: [Option<&PoolSet>; 4]) -> u64 {
    others.iter().flatten().fold(word, |word, other| word & other.0.get(at).copied().unwrap_or(0))
}

/// Ranges as plain numbers, ascending and disjoint.
pub(super) type Spans = Vec<(u128, u128)>;

/// Sorts the spans and joins those that overlap or touch.
pub(super) fn joined(mut spans: Spans) -> Spans {
    spans.sort_unstable();
    let mut joined: Spans = Vec::with_capacity(spans.len());
    for (first, last) in spans {
        match joined.last_mut() {
            Some(end) if first <= end.1.saturating_add(1) => end.1 = end.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

/// The spans that share numbers with `first..=last`. Cost: O(log).
pub(super) fn meeting(spans: &[(u128, u128)], first: u128, last: u128) -> &[(u128, u128)] {
    let behind = &spans[spans.partition_point(|span| span.1 < first)..];
    &behind[..behind.partition_point(|span| span.0 <= last)]
}

/// Does a number lie in one of the spans?
pub(super) fn is_in(spans: &[(u128, u128)], number: u128) -> bool {
    let at = spans.partition_point(|span| span.1 < number);
    spans.get(at).is_some_and(|span| span.0 <= number)
}

/// How much of `first..=last` the spans cover; calls `gap` for each gap between them.
pub(super) fn each_gap(spans: &[(u128, u128)], first: u128, last: u128, mut gap: impl FnMut(u128, u128)) -> u128 {
    let from = spans.partition_point(|span| span.1 < first);
    let (mut at, mut covered_count) = (Some(first), 0u128);
    for &(start, end) in spans[from..].iter().take_while(|span| span.0 <= last) {
        let (start, end) = (start.max(first), end.min(last));
        if let Some(position) = at
            && position < start
        {
            gap(position, start - 1);
        }
        covered_count = covered_count.saturating_add((end - start).saturating_add(1));
        at = end.checked_add(1).filter(|next| *next <= last);
    }
    if let Some(position) = at {
        gap(position, last);
    }
    covered_count
}
