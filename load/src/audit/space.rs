//! Who holds what in one network.
//!
//! Single IPv4 addresses, the bulk of any run, lie in pages with one word for each address. A page is removed when nothing
//! in it is held. So a dense network takes eight bytes per address, and a sparse one a page for each. All other spans lie in
//! a tree of ranges, which detects overlapping blocks. From the first IPv4 block on, single IPv4 addresses lie in the tree
//! as well, because overlaps with blocks have to be detected.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use super::address;
use super::ground::Span;
use crate::names::Who;

/// Addresses of one page.
const PAGE_ADDRESSES: usize = 256;

/// The words of 256 addresses, and how many of these are held.
struct Page {
    words: [u64; PAGE_ADDRESSES],
    held: usize,
}
/// Flag of a word: the server's listing contains it.
const LISTED: u64 = 1 << 63;
/// The word of an address that was held before the run.
const STRANGER: u64 = 1 << 62;

/// Who holds an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Ours(Who),
    /// An owner that held the address before the run, and that this run does not name.
    Stranger,
}

impl Holder {
    /// The word of this holder; zero means that the address is free.
    fn word(self) -> u64 {
        match self {
            Holder::Ours(who) => who.number() + 1,
            Holder::Stranger => STRANGER,
        }
    }

    fn of_word(word: u64) -> Option<Self> {
        match word & !LISTED {
            0 => None,
            STRANGER => Some(Holder::Stranger),
            number => Some(Holder::Ours(Who::from_number(number - 1))),
        }
    }
}

/// A hash function for page numbers. They are not chosen by an attacker, so one multiplication is enough.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

/// Everything that is held in one network.
#[derive(Default)]
pub struct Space {
    /// By the upper 24 bits of an IPv4 address.
    pages: HashMap<u32, Box<Page>, BuildHasherDefault<Spread>>,
    /// The last address and the holder's word of each range, by its first address.
    ranges: BTreeMap<u128, (u128, u64)>,
    /// Whether single addresses have to be in the tree too, because blocks may be there.
    only_ranges: bool,
}

impl Space {
    /// A space in which blocks and single addresses meet.
    pub fn of_blocks() -> Self {
        Self { only_ranges: true, ..Self::default() }
    }

    /// Takes the span for this holder, or returns who holds it or a part of it.
    pub fn take(&mut self, span: Span, holder: Holder) -> Result<(), Holder> {
        if !self.only_ranges && span.0 != span.1 && address::is_v4(span.0) {
            self.leave_pages();
        }
        if let Some((page, offset)) = self.place(span) {
            let page = self.pages.entry(page).or_insert_with(|| Box::new(Page { words: [0; PAGE_ADDRESSES], held: 0 }));
            return match Holder::of_word(page.words[offset]) {
                Some(other) => Err(other),
                None => {
                    page.words[offset] = holder.word();
                    page.held += 1;
                    Ok(())
                }
            };
        }
        let overlapping = self.ranges.range(..=span.1).next_back().filter(|(_, (last, _))| *last >= span.0);
        match overlapping.and_then(|(_, (_, word))| Holder::of_word(*word)) {
            Some(other) => Err(other),
            None => {
                self.ranges.insert(span.0, (span.1, holder.word()));
                Ok(())
            }
        }
    }

    /// The holder of exactly this span.
    pub fn holder(&self, span: Span) -> Option<Holder> {
        let word = match self.place(span) {
            Some((page, offset)) => self.pages.get(&page)?.words.get(offset)?,
            None => &self.ranges.get(&span.0).filter(|(last, _)| *last == span.1)?.1,
        };
        Holder::of_word(*word)
    }

    /// Frees exactly this span, and returns its holder.
    pub fn free(&mut self, span: Span) -> Option<Holder> {
        if let Some((number, offset)) = self.place(span) {
            let page = self.pages.get_mut(&number)?;
            let holder = Holder::of_word(std::mem::take(&mut page.words[offset]))?;
            page.held -= 1;
            if page.held == 0 {
                self.pages.remove(&number);
            }
            return Some(holder);
        }
        let exact = self.ranges.get(&span.0).is_some_and(|(last, _)| *last == span.1);
        let (_, word) = exact.then(|| self.ranges.remove(&span.0))??;
        Holder::of_word(word)
    }

    /// Notes that the server lists this span. Returns its holder according to the answers, and whether it was listed before.
    pub fn list(&mut self, span: Span) -> Option<(Holder, bool)> {
        let word = match self.place(span) {
            Some((page, offset)) => self.pages.get_mut(&page)?.words.get_mut(offset)?,
            None => &mut self.ranges.get_mut(&span.0).filter(|(last, _)| *last == span.1)?.1,
        };
        let (holder, again) = (Holder::of_word(*word)?, *word & LISTED != 0);
        *word |= LISTED;
        Some((holder, again))
    }

    /// Everything that is held and was not listed.
    pub fn unlisted(&self) -> impl Iterator<Item = (u128, Holder)> {
        let paged = self.pages.iter().flat_map(|(number, page)| {
            page.words.iter().zip(first_of(*number)..).map(|(word, number)| (number, *word))
        });
        let ranged = self.ranges.iter().map(|(first, (_, word))| (*first, *word));
        paged
            .chain(ranged)
            .filter(|(_, word)| word & LISTED == 0)
            .filter_map(|(n, word)| Some((n, Holder::of_word(word)?)))
    }

    /// Moves all single addresses from the pages into the tree, with their flags.
    fn leave_pages(&mut self) {
        self.only_ranges = true;
        for (number, page) in std::mem::take(&mut self.pages) {
            let held = page.words.iter().zip(first_of(number)..).filter(|(word, _)| **word != 0);
            self.ranges.extend(held.map(|(word, address)| (address, (address, *word))));
        }
    }

    /// Page and word of a single IPv4 address; none if the span does not belong in a page.
    fn place(&self, (first, last): Span) -> Option<(u32, usize)> {
        let paged = !self.only_ranges && first == last && address::is_v4(first);
        paged.then_some(((first as u32) >> 8, first as usize % PAGE_ADDRESSES))
    }
}

/// The first address of a page.
fn first_of(page: u32) -> u128 {
    address::of_v4(page << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(text: &str) -> Span {
        address::range(text).unwrap()
    }

    #[test]
    fn what_overlaps_is_refused_and_what_was_freed_is_not() {
        let who = |count| Holder::Ours(Who::new(3, count, 0));
        for mut space in [Space::default(), Space::of_blocks()] {
            for text in ["10.1.2.3", "2001:db8::5", "2001:db8:0:1::/64"] {
                assert_eq!(space.take(span(text), who(1)), Ok(()));
                assert_eq!(space.take(span(text), who(2)), Err(who(1)), "{text}");
                assert_eq!(space.free(span(text)), Some(who(1)));
                assert_eq!(space.free(span(text)), None);
                assert_eq!(space.take(span(text), who(2)), Ok(()));
            }
            assert_eq!(space.take(span("2001:db8:0:1::7"), who(3)), Err(who(2)), "inside a block");
            assert_eq!(space.take(span("2001:db8::/48"), who(3)), Err(who(2)), "around what is held");
        }
    }

    #[test]
    fn a_block_meets_single_addresses_of_before_it_and_those_behind_it() {
        let who = |count| Holder::Ours(Who::new(3, count, 0));
        let mut space = Space::default();
        for (count, text) in [(1, "10.1.2.3"), (2, "10.1.2.40"), (3, "10.9.0.0")] {
            space.take(span(text), who(count)).unwrap();
        }
        assert_eq!(space.list(span("10.1.2.3")), Some((who(1), false)));
        assert_eq!(space.take(span("10.1.2.32/28"), who(4)), Err(who(2)), "around an address");
        assert_eq!(space.take(span("10.1.2.16/28"), who(4)), Ok(()));
        assert_eq!(space.take(span("10.1.2.21"), who(5)), Err(who(4)), "inside a block");
        assert_eq!(space.list(span("10.1.2.3")), Some((who(1), true)), "what was noted of it is kept");
        assert_eq!((space.holder(span("10.9.0.0")), space.holder(span("10.1.2.18"))), (Some(who(3)), None));
        assert_eq!(space.free(span("10.9.0.0")), Some(who(3)));
        assert_eq!(space.take(span("10.9.0.0"), who(6)), Ok(()));
    }

    #[test]
    fn what_is_held_and_not_listed_is_found() {
        let mut space = Space::default();
        for text in ["10.1.2.3", "10.9.0.0", "2001:db8::5", "2001:db8::6"] {
            space.take(span(text), Holder::Stranger).unwrap();
        }
        for text in ["10.1.2.3", "2001:db8::6"] {
            assert_eq!(space.list(span(text)), Some((Holder::Stranger, false)), "{text}");
            assert_eq!(space.list(span(text)), Some((Holder::Stranger, true)), "{text}, again");
        }
        assert_eq!(space.list(span("10.1.2.4")), None);
        let mut left: Vec<String> = space.unlisted().map(|(number, _)| address::name(number).to_string()).collect();
        left.sort();
        assert_eq!(left, ["10.9.0.0", "2001:db8::5"]);
    }
}
