//! Addresses that were released and cool down: non-overlapping spans, each with its last owner and the time at which its
//! release was sent.
//!
//! A grant need not match a released span: a block may contain an address that cools, or lie inside a block that cools. So
//! each part is found by its position, and the part that is not granted goes on cooling.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ground::Span;
use crate::names::Who;

/// The last owner, and when the release was sent.
type Past = (Who, Duration);

/// The cooling spans of one network.
#[derive(Debug, Default)]
pub struct Cooling {
    /// The last address and the past of each span, by its first address.
    spans: BTreeMap<u128, (u128, Past)>,
}

impl Cooling {
    /// The span is released and starts to cool.
    pub fn begin(&mut self, span: Span, who: Who, at: Duration) {
        self.end(span);
        self.spans.insert(span.0, (span.1, (who, at)));
    }

    /// The span cools no more. Returns the past of its parts, the highest first.
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
