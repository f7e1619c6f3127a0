//! What a draft has granted. It is looked up for each grant of a request, of which there may be thousands.

use crate::core::address::{Address, Range};

/// Disjoint ranges.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// The only range. Most requests grant once and need no more room.
    only: Option<Range>,
    /// All ranges, ascending, once there are several.
    ranges: Vec<Range>,
    /// All ranges, ascending, with adjacent ones joined.
    runs: Vec<Range>,
}

impl Taken {
    /// Adds a range that overlaps none of those before.
    pub(super) fn add(&mut self, range: Range) {
        if self.ranges.is_empty() {
            let Some(first) = self.only.take() else {
                self.only = Some(range);
                return;
            };
            (self.ranges, self.runs) = (vec![first], vec![first]);
        }
        let at = self.ranges.partition_point(|taken| taken.first() < range.first());
        self.ranges.insert(at, range);
        let at = self.runs.partition_point(|run| run.first() < range.first());
        let mut joined = range;
        let mut replaced = at..at;
        if let Some(after) = self.runs.get(at).filter(|after| range.joins(**after)) {
            joined = Range::of_bits(range.family(), joined.first().bits(), after.last().bits());
            replaced.end += 1;
        }
        if let Some(before) = at.checked_sub(1).map(|before| self.runs[before]).filter(|before| before.joins(range)) {
            joined = Range::of_bits(range.family(), before.first().bits(), joined.last().bits());
            replaced.start -= 1;
        }
        self.runs.splice(replaced, [joined]);
    }

    /// All ranges.
    pub(super) fn iter(&self) -> impl Iterator<Item = Range> {
        self.only.iter().chain(&self.ranges).copied()
    }

    /// The first range that shares addresses with `range`. Cost: O(log) of how many there are.
    pub(super) fn meets(&self, range: Range) -> Option<Range> {
        self.only.filter(|only| only.overlaps(range)).or_else(|| first_overlap(&self.ranges, range))
    }

    /// The end of what was taken in `range` and adjacent to it, without a gap.
    pub(super) fn until(&self, range: Range) -> Option<Address> {
        let run = self.only.filter(|only| only.overlaps(range)).or_else(|| first_overlap(&self.runs, range));
        run.map(Range::last)
    }

    /// How many ranges there are.
    pub(super) fn count(&self) -> usize {
        self.ranges.len() + usize::from(self.only.is_some())
    }
}

/// The first of some ascending, disjoint ranges that shares addresses with another one.
fn first_overlap(ranges: &[Range], other: Range) -> Option<Range> {
    let at = ranges.partition_point(|range| range.last() < other.first());
    ranges.get(at).copied().filter(|range| range.first() <= other.last())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        text.parse().unwrap()
    }

    #[test]
    fn what_was_taken_is_met_and_its_runs_end_where_a_gap_begins() {
        let mut taken = Taken::default();
        let all = ["10.0.0.4", "10.0.0.6-10.0.0.7", "10.0.0.5", "10.0.0.1", "10.0.0.9"];
        for (count, text) in all.into_iter().enumerate() {
            assert_eq!((taken.count(), taken.meets(range(text)), taken.until(range(text))), (count, None, None));
            taken.add(range(text));
            for before in &all[..=count] {
                assert_eq!(taken.meets(range(before)), Some(range(before)));
            }
        }
        let until = |text| taken.until(range(text)).map(|address| address.to_string());
        assert_eq!(until("10.0.0.4").as_deref(), Some("10.0.0.7"));
        assert_eq!(until("10.0.0.2-10.0.0.6").as_deref(), Some("10.0.0.7"));
        assert_eq!(until("10.0.0.0-10.0.0.1").as_deref(), Some("10.0.0.1"));
        assert_eq!(until("10.0.0.8"), None);
        assert_eq!(taken.meets(range("10.0.0.5-10.0.0.9")), Some(range("10.0.0.5")));
    }

    #[test]
    fn the_only_one_is_its_own_run() {
        let mut taken = Taken::default();
        taken.add(range("10.0.0.4-10.0.0.7"));
        assert_eq!(taken.meets(range("10.0.0.7-10.0.0.8")), Some(range("10.0.0.4-10.0.0.7")));
        assert_eq!(taken.until(range("10.0.0.5")).map(|address| address.to_string()).as_deref(), Some("10.0.0.7"));
        assert_eq!((taken.meets(range("10.0.0.8")), taken.until(range("10.0.0.3")), taken.count()), (None, None, 1));
    }
}
