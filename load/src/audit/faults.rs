//! What a server was found to do wrong, by the rule that it broke.

use std::collections::BTreeMap;

/// Examples that are kept in words; a server that is wrong a million times is not told a million times.
const EXAMPLES_MAX: usize = 20;

/// What a server has to do. Each has a test that a server which does otherwise is caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// No address is held by two owners at one time, and no block overlaps what is held.
    NoAddressTwice,
    /// The same owner and slot is given the same address again.
    SameSlotSameAddress,
    /// What was released goes to nobody else before the network's cooldown is over.
    Cooldown,
    /// Only addresses of the network's pools are given, and none that is a gateway, reserved, or an edge of its subnet.
    InsidePools,
    /// What was claimed is what is granted; a block has the size that was asked for.
    AsAsked,
    /// A release lets go what its owner held, all of it and nothing else.
    ReleasesWhatWasHeld,
    /// Of one network, a later grant has a higher generation.
    GenerationsRise,
    /// What is asked rightly is not refused as wrong, and the server has no internal error.
    RefusesNothingRight,
    /// Each request is answered once, and readably.
    AnswersOnce,
    /// The server's listing has what the answers said, with the same owners.
    ListingAgrees,
    /// The server counts as many held addresses as the answers said.
    CountAgrees,
}

impl Rule {
    /// As the report names it; stable.
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

/// All that was found.
#[derive(Debug, Default)]
pub struct Faults {
    counts: BTreeMap<Rule, u64>,
    examples: Vec<(Rule, String)>,
}

impl Faults {
    /// Notes one; the words are made only while examples are still kept.
    pub fn add(&mut self, rule: Rule, example: impl FnOnce() -> String) {
        *self.counts.entry(rule).or_default() += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push((rule, example()));
        }
    }

    /// Adds what was found elsewhere.
    pub fn append(&mut self, other: Self) {
        for (rule, count) in other.counts {
            *self.counts.entry(rule).or_default() += count;
        }
        let room = EXAMPLES_MAX.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.into_iter().take(room));
    }

    /// How often a rule was broken.
    pub fn count(&self, rule: Rule) -> u64 {
        self.counts.get(&rule).copied().unwrap_or(0)
    }

    /// All counts, by name.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.iter().map(|(rule, count)| (rule.name().to_owned(), *count)).collect()
    }

    /// How often any rule was broken.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Some of them, in words.
    pub fn examples(&self) -> impl Iterator<Item = (Rule, &str)> {
        self.examples.iter().map(|(rule, text)| (*rule, text.as_str()))
    }
}
