//! A report as lines for people.

use std::fmt::Write as _;

use super::Report;
use crate::audit::Rule;

/// A fill level within this distance of the requested one needs no remark.
const LEVEL_IS_KEPT: f64 = 0.02;

impl Report {
    /// The lines of the report, each with its line end.
    pub fn text(&self) -> String {
        let Self { scenario, target, connections, depth, networks, .. } = self;
        let mut lines = Vec::new();
        let target = if target.is_empty() { String::new() } else { format!(" of {target}") };
        lines.push(format!("{scenario}{target}: {connections} connections x {depth}, {networks} networks"));
        let arrivals = self.arrivals_per_second.map_or_else(String::new, |rate| format!(", {rate:.0}/s arrived"));
        // Only answers in time are in the rate.
        let in_time = self.answers.saturating_sub(self.late);
        let late = if self.late > 0 { format!(", {} later", self.late) } else { String::new() };
        lines.push(format!(
            "  {:>12.0} answers/s ({in_time} in {:.2} s{late}{arrivals})",
            self.per_second, self.elapsed_seconds
        ));
        lines.push(format!(
            "  p50 {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms, max {:.3} ms",
            self.p50_ms, self.p99_ms, self.p999_ms, self.max_ms
        ));
        if self.kinds.len() > 1 {
            for kind in &self.kinds {
                lines.push(format!(
                    "    {:<9} {:>10}  p50 {:.3} ms, p99 {:.3} ms, max {:.3} ms",
                    kind.kind, kind.answers, kind.p50_ms, kind.p99_ms, kind.max_ms
                ));
            }
        }
        let refused: u64 = self.refused.values().sum();
        // Without an audit it is not known what is held.
        if self.checked > 0 || refused > 0 {
            lines.push(format!("  held {}, existed before {}, refused {refused}", self.held, self.existed));
        }
        lines.extend(self.refused.iter().map(|(kind, count)| {
            let example = self.refusal_examples.get(kind).filter(|example| !example.is_empty());
            format!("    {kind} {count}{}", example.map_or_else(String::new, |example| format!(": {example}")))
        }));
        let before: Vec<String> = self.refused_before.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        if !before.is_empty() {
            lines.push(format!("  refused before measuring: {}", before.join(", ")));
        }
        // The capacity of an IPv6 prefix is too large to be counted.
        if self.checked > 0 && (1..u64::MAX).contains(&self.capacity) {
            let asked = self.fill_level_asked.filter(|asked| (asked - self.fill_level).abs() > LEVEL_IS_KEPT);
            let asked = asked.map_or_else(String::new, |asked| format!("{:.1} % full was asked for, ", asked * 100.0));
            let (kept, all) = (self.fill_level * 100.0, self.capacity);
            lines.push(format!("  {asked}{kept:.1} % of {all} addresses were held on average"));
        }
        if self.never_sent > 0 {
            lines.push(format!("  the server was behind: {} requests arrived and were never sent", self.never_sent));
        }
        lines.extend(self.judgement());
        lines.into_iter().fold(String::new(), |mut text, line| {
            // Writing into a string does not fail.
            let _ = writeln!(text, "{line}");
            text
        })
    }

    /// The findings of the audit.
    fn judgement(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(held) = self.held_by_server.filter(|&held| held != self.held) {
            let ours = self.held;
            lines.push(match self.unknown {
                // Only the audit can say whether this is a fault: another client may have caused it.
                0 if self.faults.contains_key(Rule::CountAgrees.name()) => {
                    format!("  WRONG: the server counts {held} held addresses")
                }
                0 => format!("  the server counts {held} held addresses, its answers {ours}"),
                unknown => format!(
                    "  the server counts {held} held addresses, its answers {ours}: requests of {unknown} owners may have \
                     taken effect or not"
                ),
            });
        }
        if self.wrong > 0 || self.lost > 0 {
            lines.push(format!("  WRONG: {} answers do not fit, {} requests were not answered", self.wrong, self.lost));
        }
        for (rule, count) in &self.faults {
            lines.push(format!("  WRONG: {rule}, {count} times"));
            let examples = self.fault_examples.iter().filter(|example| example.rule == *rule).take(3);
            lines.extend(examples.map(|example| format!("    {}", example.what)));
        }
        if self.duplicates > 0 {
            lines.push(format!("  WRONG: {} addresses were handed out twice", self.duplicates));
        } else if self.checked > 0 {
            let listed = if self.is_faulty() || self.is_shared { String::new() } else { self.listing() };
            lines.push(format!("  no address was handed out twice ({} grants checked{listed})", self.checked));
        }
        if !self.not_audited.is_empty() {
            let rules = self.not_audited.join(", ");
            lines.push(format!("  not audited: {rules}; it is too much to remember for so many lanes and networks"));
        }
        lines.extend(self.not_made.as_ref().map(|why| format!("  NOT MADE: {why}")));
        lines
    }

    /// Says that the listing agrees. It counts reservations, of which a block is one, while `held` counts addresses.
    fn listing(&self) -> String {
        let Some(listed) = self.listed else { return String::new() };
        let before = match self.listed_before {
            0 => String::new(),
            before => format!(", {before} of them of before the run"),
        };
        format!("; the server's listing agrees, {listed} reservations{before}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::driver::{Measured, Shape, Stop};

    #[test]
    fn a_count_is_called_wrong_only_where_the_audit_says_so() {
        let shape = Shape::closed(1, 1, Stop::Requests(1));
        let report = Report {
            held: 3,
            held_by_server: Some(4),
            listed: Some(4),
            checked: 3,
            ..Report::measured("fill", "", &shape, 1, &Measured::nothing())
        };
        let mut shared = report.clone();
        shared.shared_with(Some("somebody else uses these networks".to_owned()));
        let text = shared.text();
        assert!(text.contains("NOT MADE") && !text.contains("WRONG") && !text.contains("agrees"), "{text}");
        assert!(text.contains("the server counts 4 held addresses, its answers 3"), "{text}");
        let faults = BTreeMap::from([(Rule::CountAgrees.name().to_owned(), 1)]);
        let text = Report { faults, ..report }.text();
        assert!(text.contains("WRONG: the server counts 4 held addresses"), "{text}");
    }
}
