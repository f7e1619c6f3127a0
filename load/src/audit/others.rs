//! Whether somebody else uses the networks meanwhile, and what would then be nobody's fault.
//!
//! The networks have to be the run's own while it lasts. Who else lets go, or is granted, what this run knows of makes a right
//! server look wrong; and a server that does so by itself is wrong. What may be either is disputed until the end: a reservation
//! of an owner that this run never named, and that was not there before it, shows that there is somebody else.

use super::faults::{Faults, Rule};
use crate::names::Who;

/// A request may name as many owners as this, and not one alone: the instances of a deployment.
const NAMED_AT_ONCE_MAX: u32 = 10_000;

/// See the module.
#[derive(Default)]
pub struct Others {
    /// Of the run's owners.
    seed: u32,
    /// Requests of each lane, each of which may have named an owner more.
    asked: Vec<u32>,
    disputed: Faults,
    /// Reservations of owners that nobody here named, and the first of them in words.
    seen: u64,
    example: Option<String>,
}

impl Others {
    /// Nobody yet.
    pub fn new(lanes: usize, seed: u32) -> Self {
        Self { seed, asked: vec![0; lanes], ..Self::default() }
    }

    /// The lane asks something.
    pub fn asked(&mut self, lane: usize) {
        if let Some(count) = self.asked.get_mut(lane) {
            *count = count.saturating_add(1);
        }
    }

    /// May this run have named the owner?
    pub fn is_named(&self, who: Who) -> bool {
        let (lane, count) = who.parts(self.seed);
        let asked = usize::try_from(lane).ok().and_then(|lane| self.asked.get(lane));
        asked.is_some_and(|asked| count < asked.saturating_add(NAMED_AT_ONCE_MAX))
    }

    /// A fault, unless there is somebody else.
    pub fn dispute(&mut self, rule: Rule, example: impl FnOnce() -> String) {
        self.disputed.add(rule, example);
    }

    /// Is something open that a listing would settle?
    pub fn has_disputes(&self) -> bool {
        self.disputed.total() > 0
    }

    /// There is a reservation that this run did not ask for.
    pub fn saw(&mut self, network: &str, text: &str) {
        self.seen += 1;
        self.example.get_or_insert_with(|| format!("{text} in {network}"));
    }

    /// Makes faults of what is disputed, or tells who else is there.
    pub fn settle(&mut self, faults: &mut Faults) -> Option<String> {
        let disputed = std::mem::take(&mut self.disputed);
        let Some(example) = &self.example else {
            faults.append(disputed);
            return None;
        };
        let count = self.seen;
        Some(format!(
            "somebody else uses these networks: {count} reservations came meanwhile that this run never asked for, first \
             {example}; --network-prefix gives a run networks of its own"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_somebody_elses_doing_is_a_fault_only_where_there_is_nobody_else() {
        for is_used in [false, true] {
            let (mut others, mut faults) = (Others::new(2, 7), Faults::default());
            others.dispute(Rule::CountAgrees, || "it counts otherwise".to_owned());
            if is_used {
                others.saw("load-00", "10.0.0.5 of `web/0`");
            }
            let told = others.settle(&mut faults);
            assert_eq!((told.is_some(), faults.count(Rule::CountAgrees)), (is_used, u64::from(!is_used)), "{told:?}");
            assert_eq!(told.is_some_and(|told| told.contains("10.0.0.5 of `web/0` in load-00")), is_used);
        }
    }

    #[test]
    fn the_owners_of_a_run_are_told_from_those_of_another() {
        let mut others = Others::new(2, 7);
        others.asked(1);
        for (lane, count, seed, is_named) in [
            (1, 0, 7, true),
            (1, NAMED_AT_ONCE_MAX, 7, true),
            (1, NAMED_AT_ONCE_MAX + 1, 7, false),
            (2, 0, 7, false),
            (1, 0, 8, false),
        ] {
            assert_eq!(others.is_named(Who::new(lane, count, seed)), is_named, "{lane} {count} {seed}");
        }
    }
}
