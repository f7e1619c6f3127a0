//! A report as lines for people.

use std::fmt::Write as _;

use super::Report;

impl Report {
    /// Some lines, each with its end.
    pub fn text(&self) -> String {
        let Self { scenario, target, connections, depth, networks, .. } = self;
        let mut lines = Vec::new();
        let target = if target.is_empty() { String::new() } else { format!(" of {target}") };
        lines.push(format!("{scenario}{target}: {connections} connections x {depth}, {networks} networks"));
        let arrivals = self.arrivals_per_second.map_or_else(String::new, |rate| format!(", {rate:.0}/s arrived"));
        lines.push(format!(
            "  {:>12.0} answers/s ({} in {:.2} s{arrivals})",
            self.per_second, self.answers, self.elapsed_seconds
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
        lines.push(format!("  held {}, existed before {}, refused {refused}", self.held, self.existed));
        lines.extend(self.refused.iter().map(|(kind, count)| format!("    {kind} {count}")));
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

    /// What the audit says.
    fn judgement(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(held) = self.held_by_server.filter(|&held| held != self.held) {
            lines.push(format!("  WRONG: the server counts {held} held addresses"));
        }
        if self.wrong > 0 || self.lost > 0 {
            lines.push(format!("  WRONG: {} answers do not fit, {} requests were not answered", self.wrong, self.lost));
        }
        for (rule, count) in &self.faults {
            lines.push(format!("  WRONG: {rule}, {count} times"));
            let examples = self.fault_examples.iter().filter(|example| example.rule == *rule).take(3);
            lines.extend(examples.map(|example| format!("    {}", example.what)));
        }
        if self.duplicates == 0 {
            let listed = self.listed.map_or_else(String::new, |listed| format!("; the server lists the same {listed}"));
            let listed = if self.is_faulty() { String::new() } else { listed };
            lines.push(format!("  no address was handed out twice ({} grants checked{listed})", self.checked));
        } else {
            lines.push(format!("  WRONG: {} addresses were handed out twice", self.duplicates));
        }
        lines
    }
}
