//! Counts which methods were answered, and how, so that a test can prove that everything occurred.

use std::collections::BTreeMap;

use super::METHODS;
use super::adopt::Answer;
use super::errors::KINDS;

/// Methods that are never refused, or only for a wrong member.
const NEVER_REFUSED: [&str; 1] = ["realm.list"];

#[derive(Debug, Default, Clone)]
pub struct Coverage {
    counts: BTreeMap<(String, String), usize>,
}

impl Coverage {
    pub fn record(&mut self, method: &str, answer: &Answer) {
        let outcome = answer.as_ref().map_or_else(|(kind, _)| kind.clone(), |_| "ok".into());
        *self.counts.entry((method.to_string(), outcome)).or_default() += 1;
    }

    pub fn merge(&mut self, other: &Coverage) {
        for (what, count) in &other.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
    }

    pub fn count(&self, method: &str, outcome: &str) -> usize {
        self.counts.get(&(method.to_string(), outcome.to_string())).copied().unwrap_or(0)
    }

    /// What did not occur: a kind of error, a method's success, or a method's refusal.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for kind in KINDS.into_iter().chain(["brake"]) {
            if !self.counts.keys().any(|(_, outcome)| outcome == kind) {
                missing.push(format!("no refusal with {kind}"));
            }
        }
        for method in METHODS {
            let outcomes: Vec<&String> =
                self.counts.keys().filter(|(of, _)| of == method).map(|(_, outcome)| outcome).collect();
            if !outcomes.iter().any(|outcome| *outcome == "ok") {
                missing.push(format!("{method} never succeeded"));
            }
            if !NEVER_REFUSED.contains(&method) && !outcomes.iter().any(|outcome| *outcome != "ok") {
                missing.push(format!("{method} was never refused"));
            }
        }
        missing
    }

    /// One line per method: how often it had which outcome.
    pub fn table(&self) -> String {
        let mut table = String::new();
        for method in METHODS {
            let of = self.counts.iter().filter(|((m, _), _)| m == method);
            let outcomes: Vec<String> = of.map(|((_, outcome), count)| format!("{outcome} {count}")).collect();
            table.push_str(&format!("{method}: {}\n", outcomes.join(", ")));
        }
        table
    }
}
