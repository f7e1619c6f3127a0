//! The faults of a server, by the rule that it broke.

use std::collections::BTreeMap;

/// The number of examples that are kept in words for each rule: a million faults do not need a million examples.
const EXAMPLES_MAX: usize = 10;

/// The rules for a server. For each rule, a test shows that a server which breaks it is caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// No address is held by two owners at the same time, and no block overlaps a held address.
    NoAddressTwice,
    /// The same owner and slot is given the same address again.
    SameSlotSameAddress,
    /// A released address goes to no other owner before the network's cooldown is over.
    Cooldown,
    /// Only addresses of the network's pools are granted, and never a gateway, a reserved address, or an edge of a subnet.
    InsidePools,
    /// A claim grants the claimed address; a block has the requested size.
    AsAsked,
    /// A release frees everything that its owner held, and nothing else.
    ReleasesWhatWasHeld,
    /// Within one network, a later grant has a higher generation.
    GenerationsRise,
    /// A valid request is not refused as invalid, and the server has no internal error.
    RefusesNothingRight,
    /// Each request is answered once, and the answer can be read.
    AnswersOnce,
    /// The server's listing matches its answers, with the same owners.
    ListingAgrees,
    /// The server counts as many held addresses as its answers granted.
    CountAgrees,
}

impl Rule {
    /// The name in reports; stable.
    pub fn name(self) -> &'static str {
        match self {
            Rule::NoAddressTwice => "no_address_twice",
            Rule::SameSlotSameAddress => "same_slot_same_address",
            Rule::Cooldown => "cooldown",
            Rule::InsidePools => "inside_pools",
            Rule::AsAsked => "as_asked",
            Rule::ReleasesWhatWasHeld => "releases_what_was_held",
            Rule::GenerationsRise => "generations_rise",
            Rule::RefusesNothingRight => "refuses_nothing_right",
            Rule::AnswersOnce => "answers_once",
            Rule::ListingAgrees => "listing_agrees",
            Rule::CountAgrees => "count_agrees",
        }
    }
}

/// The faults under one rule.
#[derive(Debug, Default)]
struct Broken {
    count: u64,
    examples: Vec<String>,
}

/// All faults.
#[derive(Debug, Default)]
pub struct Faults(BTreeMap<Rule, Broken>);

impl Faults {
    /// Adds a fault; the words are made only while examples are still kept.
    pub fn add(&mut self, rule: Rule, example: impl FnOnce() -> String) {
        let broken = self.0.entry(rule).or_default();
        broken.count += 1;
        if broken.examples.len() < EXAMPLES_MAX {
            broken.examples.push(example());
        }
    }

    /// Adds the faults of another list.
    pub fn append(&mut self, other: Self) {
        for (rule, more) in other.0 {
            let broken = self.0.entry(rule).or_default();
            broken.count += more.count;
            let room = EXAMPLES_MAX.saturating_sub(broken.examples.len());
            broken.examples.extend(more.examples.into_iter().take(room));
        }
    }

    /// How often a rule was broken.
    pub fn count(&self, rule: Rule) -> u64 {
        self.0.get(&rule).map_or(0, |broken| broken.count)
    }

    /// All counts, by name.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.0.iter().map(|(rule, broken)| (rule.name().to_owned(), broken.count)).collect()
    }

    /// How often any rule was broken.
    pub fn total(&self) -> u64 {
        self.0.values().map(|broken| broken.count).sum()
    }

    /// The examples of each rule.
    pub fn examples(&self) -> impl Iterator<Item = (Rule, &str)> {
        self.0.iter().flat_map(|(rule, broken)| broken.examples.iter().map(|text| (*rule, text.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_is_broken_often_leaves_another_its_examples() {
        let mut faults = Faults::default();
        (0..1_000).for_each(|at| faults.add(Rule::ListingAgrees, || format!("{at}")));
        let mut others = Faults::default();
        others.add(Rule::NoAddressTwice, || "twice".to_owned());
        faults.append(others);
        assert_eq!((faults.total(), faults.count(Rule::ListingAgrees)), (1_001, 1_000));
        assert_eq!(faults.examples().filter(|(rule, _)| *rule == Rule::ListingAgrees).count(), EXAMPLES_MAX);
        assert!(faults.examples().any(|(rule, text)| rule == Rule::NoAddressTwice && text == "twice"));
    }
}
