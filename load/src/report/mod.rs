//! The findings of a run: one object with stable member names, which is shown to people as lines (`text`) or as a page
//! (`page`).

pub mod document;
pub mod page;
mod plot;
mod scale;
mod telling;
mod text;

pub use telling::Telling;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::audit::{Rule, told};
use crate::audited::Audited;
use crate::driver::{Measured, Shape};
use crate::meter::{Kind, OfKind, Window, milliseconds};
use crate::refusal::not_for_room;

/// At most one in this many answers may be a refusal for another reason than a full pool.
const REFUSED_OF: u64 = 10;

/// At most one in this many arrivals of an open loop may remain unsent.
const NEVER_SENT_OF: u64 = 100;

/// One point of a latency distribution: this share of the answers took at most this long.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Quantile {
    pub quantile: f64,
    pub ms: f64,
}

/// The requests of one kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KindReport {
    pub kind: String,
    pub answers: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// An example of a broken rule, in words.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FaultExample {
    pub rule: String,
    pub what: String,
}

/// The figures of one run. Member names are stable: scripts read `--json`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    pub scenario: String,
    /// The name of the run for people; shown on a page.
    #[serde(default)]
    pub label: String,
    /// The target, such as `allod, embedded`.
    #[serde(default)]
    pub target: String,
    /// A remark for readers; shown on a page.
    #[serde(default)]
    pub note: String,
    pub connections: usize,
    pub depth: usize,
    pub networks: usize,
    /// In an open loop: the rate of arrivals.
    #[serde(default)]
    pub arrivals_per_second: Option<f64>,
    pub elapsed_seconds: f64,
    /// Answers during the measured time, including refusals.
    pub answers: u64,
    /// In a closed loop that stops after a time: answers after its end. They are not in the rate.
    #[serde(default)]
    pub late: u64,
    pub per_second: f64,
    pub p50_ms: f64,
    #[serde(default)]
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    pub bytes_per_request: f64,
    pub bytes_per_answer: f64,
    /// Processor time per answer of a Redis that was started for the run.
    #[serde(default)]
    pub redis_micros: Option<f64>,
    /// The settings of the run, so that it can be repeated.
    #[serde(default)]
    pub settings: Option<Value>,
    /// Why this is not a measurement, if so: it was cut off, was refused almost everything, or could not be compared.
    #[serde(default)]
    pub not_made: Option<String>,
    /// Another client used the networks, so that nothing matches this run alone; `not_made` says more.
    #[serde(skip)]
    pub is_shared: bool,
    /// Answers which said that the owner had its address before.
    pub existed: u64,
    /// Refusals by kind, the first message of each kind, and the refusals before measuring.
    pub refused: BTreeMap<String, u64>,
    #[serde(default)]
    pub refusal_examples: BTreeMap<String, String>,
    #[serde(default)]
    pub refused_before: BTreeMap<String, u64>,
    /// Owners whose last request has an unknown outcome.
    #[serde(default)]
    pub unknown: u64,
    /// Answers that do not fit their request, or fit none; and requests without an answer.
    pub wrong: u64,
    pub lost: u64,
    /// In an open loop: requests that arrived and were never sent, because the server was too far behind.
    #[serde(default)]
    pub never_sent: u64,
    /// Addresses that the client holds at the end, and the server's own count if it was read; for IPv6 blocks, at most what
    /// fits the type.
    pub held: u64,
    pub held_by_server: Option<u64>,
    pub duplicates: u64,
    pub duplicate_examples: Vec<String>,
    /// How often each rule of the audit was broken, with examples.
    #[serde(default)]
    pub faults: BTreeMap<String, u64>,
    #[serde(default)]
    pub fault_examples: Vec<FaultExample>,
    /// Rules that were not audited, because the run has too many lanes and networks.
    #[serde(default)]
    pub not_audited: Vec<String>,
    /// Grants that the audit checked, and reservations of the server's listing that it compared.
    #[serde(default)]
    pub checked: u64,
    #[serde(default)]
    pub listed: Option<u64>,
    /// How many of these were there before the run.
    #[serde(default)]
    pub listed_before: u64,
    /// Addresses that all pools together can hold, the average share of them that was held during the measured time, and the
    /// share that was asked for.
    #[serde(default)]
    pub capacity: u64,
    #[serde(default)]
    pub fill_level: f64,
    #[serde(default)]
    pub fill_level_asked: Option<f64>,
    #[serde(default)]
    pub kinds: Vec<KindReport>,
    #[serde(default)]
    pub windows: Vec<Window>,
    #[serde(default)]
    pub distribution: Vec<Quantile>,
}

impl Report {
    /// The figures of a measurement, without an audit.
    pub fn measured(scenario: &str, target: &str, shape: &Shape, networks: usize, measured: &Measured) -> Self {
        let latency = &measured.meter.latency;
        let at = |quantile| milliseconds(latency.value_at_quantile(quantile));
        let seconds = measured.elapsed.as_secs_f64();
        let each = |bytes: u64| bytes as f64 / measured.answers.max(1) as f64;
        Self {
            scenario: scenario.to_owned(),
            label: scenario.to_owned(),
            target: target.to_owned(),
            connections: shape.connections,
            depth: shape.depth,
            networks,
            arrivals_per_second: shape.rate.map(|rate| rate.per_second),
            elapsed_seconds: seconds,
            answers: measured.answers,
            late: measured.late,
            per_second: measured.per_second(),
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: milliseconds(latency.max()),
            bytes_per_request: each(measured.bytes_sent),
            bytes_per_answer: each(measured.bytes_received),
            not_made: measured.cut_off.clone(),
            wrong: measured.unexpected,
            lost: measured.lost,
            never_sent: measured.never_sent,
            fill_level: fill_level(&measured.meter.windows),
            kinds: kinds(measured),
            windows: measured.meter.windows.clone(),
            distribution: distribution(latency),
            ..Self::default()
        }
    }

    /// Adds the findings of the audit.
    pub fn audited(mut self, audited: &Audited) -> Self {
        let audit = &audited.audit;
        let faults = &audit.faults;
        self.existed = audited.existed;
        self.refused.clone_from(&audited.refused.counts);
        self.refusal_examples.clone_from(&audited.refused.examples);
        self.refused_before.clone_from(&audited.refused_before.counts);
        (self.unknown, self.lost) = (audit.unknown() as u64, audited.lost);
        self.held = told(audit.held());
        self.duplicates = faults.count(Rule::NoAddressTwice);
        let about_answers = faults.total() - self.duplicates - faults.count(Rule::CountAgrees);
        self.wrong = about_answers.saturating_sub(self.lost);
        self.faults = faults.counts();
        self.not_audited = audit.not_audited().iter().map(|rule| rule.name().to_owned()).collect();
        self.checked = audit.checked;
        self.capacity = told(audited.capacity);
        for (rule, text) in faults.examples() {
            if rule == Rule::NoAddressTwice {
                self.duplicate_examples.push(text.to_owned());
            }
            self.fault_examples.push(FaultExample { rule: rule.name().to_owned(), what: text.to_owned() });
        }
        self
    }

    /// The report of a run that ended with an error, if the server had broken a rule before: that remains the outcome,
    /// whatever failed afterwards.
    ///
    /// # Errors
    /// No rule was broken; then it is the given error.
    pub fn ended_by(self, audited: &mut Audited, error: io::Error) -> io::Result<Self> {
        let others = audited.audit.settle();
        if audited.audit.faults.total() == 0 {
            return Err(error);
        }
        let mut report = self.audited(audited);
        // If the run was cut off, the report says so already.
        if report.not_made.is_none() {
            report.not_made(&error.to_string());
        }
        report.shared_with(others);
        Ok(report)
    }

    /// Notes that another client used the networks, if so: then the run is not a measurement.
    pub fn shared_with(&mut self, others: Option<String>) {
        if let Some(others) = others {
            self.is_shared = true;
            self.not_made(&others);
        }
    }

    /// Notes the processor time that Redis used during the measurement.
    pub fn redis_took(&mut self, time: Duration) {
        self.redis_micros = Some(time.as_secs_f64() * 1e6 / self.answers.max(1) as f64);
    }

    /// Notes why this is not a measurement; several reasons are joined.
    pub fn not_made(&mut self, why: &str) {
        self.not_made = Some(match self.not_made.take() {
            Some(before) => format!("{before}; {why}"),
            None => why.to_owned(),
        });
    }

    /// Decides whether this is a measurement. It is not if the server refused almost everything, or did not keep up with the
    /// arrivals.
    pub fn judge(&mut self) {
        self.judge_refusals();
        let arrived = self.answers + self.lost + self.never_sent;
        if self.never_sent > arrived / NEVER_SENT_OF {
            let text =
                format!("{} of {arrived} requests arrived and were never sent: the server was behind", self.never_sent);
            self.not_made(&text);
        }
    }

    /// Did the server take part? A refusal from a full pool is an answer like any other, as in `contended`, as long as
    /// someone is granted something. But a server that refuses everything, or more than one request in ten for another
    /// reason, shows nothing of its speed.
    fn judge_refusals(&mut self) {
        let refused: u64 = self.refused.values().sum();
        let otherwise = not_for_room(&self.refused);
        let all = self.answers;
        match self.answers {
            0 if self.lost == 0 => self.not_made("nothing was answered"),
            0 => {}
            _ if refused == all => self.not_made(&format!("all {all} requests were refused")),
            _ if otherwise > all / REFUSED_OF => {
                self.not_made(&format!("{otherwise} of {all} requests were refused, and not for want of room"));
            }
            _ => {}
        }
    }

    /// Did the run show that the server is wrong? Refusals are not faults: a full pool is full.
    pub fn is_faulty(&self) -> bool {
        self.duplicates > 0 || self.wrong > 0 || self.lost > 0 || self.faults.values().any(|count| *count > 0)
    }

    /// Prints the report.
    ///
    /// # Errors
    /// Standard output is closed.
    pub fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            return writeln!(out, "{}", serde_json::to_string(self)?);
        }
        out.write_all(self.text().as_bytes())
    }
}

/// The median of sorted values; of an even number, the mean of the two in the middle.
pub fn median(ordered: &[f64]) -> Option<f64> {
    let upper = *ordered.get(ordered.len() / 2)?;
    let lower = *ordered.get((ordered.len() - 1) / 2)?;
    Some((lower + upper) / 2.0)
}

/// The average share of addresses held, over the time of all windows.
fn fill_level(windows: &[Window]) -> f64 {
    let seconds: f64 = windows.iter().map(|window| window.seconds).sum();
    let filled: f64 = windows.iter().map(|window| window.fill * window.seconds).sum();
    if seconds > 0.0 { filled / seconds } else { windows.last().map_or(0.0, |window| window.fill) }
}

fn kinds(measured: &Measured) -> Vec<KindReport> {
    let report = |(kind, of): (Kind, &OfKind)| KindReport {
        kind: kind.name().to_owned(),
        answers: of.answers,
        p50_ms: milliseconds(of.latency.value_at_quantile(0.5)),
        p99_ms: milliseconds(of.latency.value_at_quantile(0.99)),
        max_ms: milliseconds(of.latency.max()),
    };
    measured.meter.kinds().map(report).collect()
}

/// Points at equal distances on a scale where each step leaves a tenth of the answers: 0, 90, 99, 99.9 %, with nine points
/// between each, as far as there are enough answers.
pub fn distribution(latency: &Histogram<u64>) -> Vec<Quantile> {
    if latency.is_empty() {
        return Vec::new();
    }
    let decades = (latency.len().max(1) as f64).log10().clamp(1.0, 7.0);
    let steps = (decades * 10.0).round() as u32;
    let mut points: Vec<Quantile> = (0..=steps)
        .map(|step| 1.0 - 10f64.powf(-f64::from(step) / 10.0))
        .map(|quantile| Quantile { quantile, ms: milliseconds(latency.value_at_quantile(quantile)) })
        .collect();
    points.push(Quantile { quantile: 1.0, ms: milliseconds(latency.max()) });
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Stop;

    #[test]
    fn an_open_loop_whose_arrivals_are_not_sent_is_no_measurement() {
        let shape = Shape::closed(1, 1, Stop::Requests(1));
        for (answers, never_sent, is_made) in [(1_000, 0, true), (1_000, 10, true), (1_000, 11, false), (20, 5, false)]
        {
            let mut measured = Measured::new(crate::meter::Meter::new(None, None));
            (measured.answers, measured.never_sent) = (answers, never_sent);
            let mut report = Report::measured("fill", "", &shape, 1, &measured);
            report.judge();
            assert_eq!(report.not_made.is_none(), is_made, "{answers} {never_sent}: {:?}", report.not_made);
        }
    }

    #[test]
    fn the_answers_that_are_told_in_the_measured_time_make_its_rate() {
        let shape = Shape::closed(64, 16, Stop::After(Duration::from_secs(1)));
        for (late, said) in
            [(1_024, "17200 answers/s (17200 in 1.00 s, 1024 later)\n"), (0, "17200 answers/s (17200 in 1.00 s)\n")]
        {
            let mut measured = Measured::new(crate::meter::Meter::new(None, None));
            (measured.answers, measured.late, measured.elapsed) = (17_200 + late, late, Duration::from_secs(1));
            let text = Report::measured("fill", "", &shape, 1, &measured).text();
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn a_distribution_ends_at_the_slowest_answer() {
        let mut latency = crate::meter::histogram();
        for nanos in 1..=1_000u64 {
            latency.saturating_record(nanos * 1_000_000);
        }
        let points = distribution(&latency);
        assert!(points.windows(2).all(|pair| pair[0].quantile < pair[1].quantile && pair[0].ms <= pair[1].ms));
        assert_eq!((points[0].quantile, points.last().unwrap().quantile), (0.0, 1.0));
        assert_eq!(points.last().unwrap().ms, milliseconds(latency.max()));
        assert!(distribution(&crate::meter::histogram()).is_empty(), "who measured none has none");
    }
}
