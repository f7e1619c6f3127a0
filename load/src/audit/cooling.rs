//! What was let go and cools: spans that do not overlap, each with whose it was and when its release was sent.
//!
//! What is granted need not be what was let go: a block may lie around an address that cools, or inside a block that does.
//! So each part is found by where it lies, and what of it is not granted goes on cooling.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ground::Span;
use crate::names::Who;

/// Whose it was, and when that was sent.
type Past = (Who, Duration);

/// What cools in one network.
#[derive(Debug, Default)]
pub struct Cooling {
    /// By its first address: the last.
    spans: BTreeMap<u128, (u128, Past)>,
}

impl Cooling {
    /// This is let go.
    pub fn begin(&mut self, span: Span, who: Who, at: Duration) {
        self.end(span);
        self.spans.insert(span.0, (span.1, (who, at)));
    }

    /// This cools no more: whose its parts were, and since when, the highest first.
    pub fn end(&mut self, (first, last): Span) -> Vec<Past> {
        let mut ended = Vec::new();
        while let Some((&from, &(to, past))) = self.spans.range(..=last).next_back().filter(|(_, (to, _))| *to >= first)
        {
            self.spans.remove(&from);
            if to > last {
                self.spans.insert(last + 1, (to, past));
            }
            if from < first {
                self.spans.insert(from, (first - 1, past));
            }
            ended.push(past);
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_found_and_the_rest_goes_on_cooling() {
        let past = |count| (Who::new(1, count, 0), Duration::from_secs(u64::from(count)));
        let mut cooling = Cooling::default();
        for (span, count) in [((16, 31), 1), ((40, 40), 2), ((48, 63), 3)] {
            let (who, at) = past(count);
            cooling.begin(span, who, at);
        }
        assert_eq!(cooling.end((32, 39)), [], "between them");
        assert_eq!(cooling.end((20, 23)), [past(1)], "inside a block");
        assert_eq!(cooling.end((20, 23)), [], "once");
        assert_eq!(cooling.end((16, 47)), [past(2), past(1), past(1)], "around an address and both ends of a block");
        assert_eq!(cooling.end((0, u128::MAX)), [past(3)]);
        assert_eq!(cooling.end((0, u128::MAX)), []);
    }

    #[test]
    fn what_is_let_go_again_cools_from_then_on() {
        let who = Who::new(1, 7, 0);
        let mut cooling = Cooling::default();
        cooling.begin((16, 31), who, Duration::from_secs(1));
        cooling.begin((16, 31), who, Duration::from_secs(5));
        assert_eq!(cooling.end((31, 31)), [(who, Duration::from_secs(5))]);
    }
}
