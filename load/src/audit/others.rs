//! Detects other clients in the networks of the run, and defers judgements that depend on them.
//!
//! The networks should belong to the run alone. If another client releases or is granted addresses that the run knows of, a
//! correct server looks wrong; if there is no other client, the server is wrong. Such findings are disputed until the end. A
//! reservation of an owner that this run never named, and that was not there before it, proves that there is another client.
//! If nothing was listed, and others can reach the servers, nothing can be decided.

use super::faults::{Faults, Rule};
use crate::names::Who;

/// The most owners that one request may name: the instances of a deployment.
const NAMED_AT_ONCE_MAX: u32 = 10_000;

/// What is known of other clients, and the disputed findings.
#[derive(Default)]
pub struct Others {
    /// The seed of the run's own owners.
    seed: u32,
    /// The number of requests of each lane; each may have named one more owner.
    asked: Vec<u32>,
    disputed: Faults,
    /// Any other client would have been noticed: everything was listed, or no other client can be there.
    is_known: bool,
    /// The number of reservations of owners that this run never named, and the first of them in words.
    seen: u64,
    example: Option<String>,
    /// What to do about them, as the end of a message.
    pub advice: &'static str,
}

impl Others {
    /// No other client noticed yet.
    pub fn new(lanes: usize, seed: u32) -> Self {
        Self { seed, asked: vec![0; lanes], ..Self::default() }
    }

    /// Counts a request of this lane.
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

    /// Adds a finding that is a fault only if there is no other client.
    pub fn dispute(&mut self, rule: Rule, example: impl FnOnce() -> String) {
        self.disputed.add(rule, example);
    }

    /// Is something disputed?
    pub fn has_disputes(&self) -> bool {
        self.disputed.total() > 0
    }

    /// Is it known whether there are other clients?
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// From now on it is known: everything was listed, or no other client can reach the servers.
    pub fn known(&mut self) {
        self.is_known = true;
    }

    /// Notes a reservation that this run did not ask for.
    pub fn saw(&mut self, network: &str, text: &str) {
        self.seen += 1;
        self.example.get_or_insert_with(|| format!("{text} in {network}"));
    }

    /// Turns the disputed findings into faults, or says why that is impossible: there is another client, or nobody knows.
    pub fn settle(&mut self, faults: &mut Faults) -> Option<String> {
        let disputed = std::mem::take(&mut self.disputed);
        if let Some(example) = &self.example {
            let count = self.seen;
            return Some(format!(
                "somebody else uses these networks: {count} reservations came meanwhile that this run never asked for, first \
                 {example}{}",
                self.advice
            ));
        }
        if let (Some((rule, what)), false) = (disputed.examples().next(), self.is_known) {
            return Some(format!(
                "the server is wrong, or somebody else uses these networks, and nothing was listed that would tell: {}: {what}",
                rule.name()
            ));
        }
        faults.append(disputed);
        None
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
            others.known();
            if is_used {
                others.saw("load-00", "10.0.0.5 of `web/0`");
            }
            let told = others.settle(&mut faults);
            assert_eq!((told.is_some(), faults.count(Rule::CountAgrees)), (is_used, u64::from(!is_used)), "{told:?}");
            assert_eq!(told.is_some_and(|told| told.contains("10.0.0.5 of `web/0` in load-00")), is_used);
        }
    }

    #[test]
    fn what_is_disputed_is_nobodys_fault_while_nothing_was_listed() {
        let (mut others, mut faults) = (Others::new(2, 7), Faults::default());
        assert_eq!(others.settle(&mut faults), None, "nothing is disputed");
        others.dispute(Rule::CountAgrees, || "it counts otherwise".to_owned());
        let told = others.settle(&mut faults).unwrap();
        assert!(told.contains("count_agrees: it counts otherwise") && faults.total() == 0, "{told}");
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
