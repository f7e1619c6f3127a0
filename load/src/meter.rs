//! The measurements of a run: latencies overall, by kind of request, and window by window.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::audit::told;

/// The longest latency that is recorded, in nanoseconds: an hour. A request may wait for capacity for a day; anything above
/// an hour is recorded as an hour.
const LATENCY_NANOS_MAX: u64 = 3_600_000_000_000;
/// About how many windows a run has; a plot has no room for more.
const WINDOWS: u32 = 200;
/// The shortest window: in a shorter one a percentile would come from a handful of answers.
const WINDOW_MIN: Duration = Duration::from_millis(100);

/// The kind of a request, as far as its cost differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Allocate,
    Release,
    /// An allocation that was granted before.
    Repeat,
    Claim,
    Renew,
    Get,
    Sweep,
    Apply,
    Commit,
    Revert,
}

/// All kinds.
pub const KINDS: [Kind; 10] = [
    Kind::Allocate,
    Kind::Release,
    Kind::Repeat,
    Kind::Claim,
    Kind::Renew,
    Kind::Get,
    Kind::Sweep,
    Kind::Apply,
    Kind::Commit,
    Kind::Revert,
];

impl Kind {
    /// The name in reports; stable.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Allocate => "allocate",
            Kind::Release => "release",
            Kind::Repeat => "repeat",
            Kind::Claim => "claim",
            Kind::Renew => "renew",
            Kind::Get => "get",
            Kind::Sweep => "sweep",
            Kind::Apply => "apply",
            Kind::Commit => "commit",
            Kind::Revert => "revert",
        }
    }
}

/// One window of a run. Member names are stable.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Window {
    /// The end of the window, counted from the beginning of the measurement.
    pub at_seconds: f64,
    pub seconds: f64,
    pub answers: u64,
    pub refused: u64,
    /// None if nothing was answered or given up.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
    /// Addresses held at the end of the window, including those whose release is under way, and their share of the capacity.
    pub held: u64,
    pub fill: f64,
}

/// What the display shows of the latest window.
#[derive(Debug, Clone)]
pub struct Glance {
    pub window: Window,
    pub answers: u64,
    pub refused: u64,
    pub faults: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    /// In an open loop: requests that arrived and could not be sent yet.
    pub waiting: u64,
}

/// A message to the display.
#[derive(Debug)]
pub enum Shown {
    /// The current step of the preparation; empty while measuring.
    Doing(String),
    /// A window ended.
    Window(Glance),
    /// Nothing more will come.
    Over,
}

/// The channel to the display.
pub type Display = SyncSender<Shown>;

/// Counts from outside the meter, at the end of a window.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outside {
    pub held: u128,
    pub capacity: u128,
    pub faults: u64,
    pub waiting: u64,
}

/// The latencies of one kind, including those of lost requests, and the number of its answers.
pub struct OfKind {
    pub latency: Histogram<u64>,
    pub answers: u64,
}

/// Latencies in nanoseconds, and windows.
pub struct Meter {
    /// Of all windows that have ended.
    pub latency: Histogram<u64>,
    kinds: [Option<OfKind>; KINDS.len()],
    /// Answers in windows that have ended.
    answers: u64,
    window: Histogram<u64>,
    window_answers: u64,
    window_refused: u64,
    window_began: Duration,
    window_length: Duration,
    pub windows: Vec<Window>,
    pub refused: u64,
    display: Option<Display>,
}

/// An empty histogram with three significant digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, 3).expect("the bounds are in order, and three digits are allowed")
}

/// Nanoseconds as milliseconds.
pub fn milliseconds(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

impl Meter {
    /// A meter for a run of about this length, if a length is set.
    pub fn new(expected: Option<Duration>, display: Option<Display>) -> Self {
        let window_length = (expected.unwrap_or(Duration::from_secs(60)) / WINDOWS).max(WINDOW_MIN);
        Self {
            latency: histogram(),
            kinds: Default::default(),
            answers: 0,
            window: histogram(),
            window_answers: 0,
            window_refused: 0,
            window_began: Duration::ZERO,
            window_length,
            windows: Vec::new(),
            refused: 0,
            display,
        }
    }

    /// Records an answer.
    pub fn record(&mut self, kind: Kind, latency: Duration, refused: bool) {
        self.record_latency(kind, latency).answers += 1;
        self.window_answers += 1;
        self.refused += u64::from(refused);
        self.window_refused += u64::from(refused);
    }

    /// Records a request that was given up after `waited`: its latency would have been longer.
    pub fn record_lost(&mut self, kind: Kind, waited: Duration) {
        self.record_latency(kind, waited);
    }

    fn record_latency(&mut self, kind: Kind, latency: Duration) -> &mut OfKind {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.window.saturating_record(nanos);
        let of = self.kinds[kind as usize].get_or_insert_with(|| OfKind { latency: histogram(), answers: 0 });
        of.latency.saturating_record(nanos);
        of
    }

    /// Is the window over? `since` is the time since the measurement began.
    pub fn is_due(&self, since: Duration) -> bool {
        since.saturating_sub(self.window_began) >= self.window_length
    }

    /// Ends the window.
    pub fn end_window(&mut self, since: Duration, outside: Outside) {
        let seconds = since.saturating_sub(self.window_began).as_secs_f64();
        // Here and not with each answer, where the cost would be felt at a million answers a second. Both histograms have
        // the same bounds, so adding cannot fail.
        let _ = self.latency.add(&self.window);
        let some = |nanos| (!self.window.is_empty()).then(|| milliseconds(nanos));
        let at = |quantile| some(self.window.value_at_quantile(quantile));
        let window = Window {
            at_seconds: since.max(self.window_began).as_secs_f64(),
            seconds,
            answers: self.window_answers,
            refused: self.window_refused,
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: some(self.window.max()),
            held: told(outside.held),
            fill: outside.held as f64 / outside.capacity.max(1) as f64,
        };
        self.answers += self.window_answers;
        if let Some(display) = &self.display {
            let at = |quantile| milliseconds(self.latency.value_at_quantile(quantile));
            let glance = Glance {
                window: window.clone(),
                answers: self.answers,
                refused: self.refused,
                faults: outside.faults,
                p50_ms: at(0.5),
                p99_ms: at(0.99),
                p999_ms: at(0.999),
                max_ms: milliseconds(self.latency.max()),
                waiting: outside.waiting,
            };
            // A display that is behind misses a window; the measurement does not wait for a terminal.
            let _ = display.try_send(Shown::Window(glance));
        }
        // The last window may be very short, but all windows together cover the run.
        if self.windows.is_empty() || seconds > 0.0 || !self.window.is_empty() {
            self.windows.push(window);
        }
        self.window.reset();
        (self.window_answers, self.window_refused, self.window_began) = (0, 0, since);
    }

    /// The kinds that were requested, with their latencies.
    pub fn kinds(&self) -> impl Iterator<Item = (Kind, &OfKind)> {
        KINDS.into_iter().filter_map(|kind| Some((kind, self.kinds[kind as usize].as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_minutes_is_recorded_as_long_as_it_took() {
        let mut meter = Meter::new(None, None);
        meter.record(Kind::Allocate, Duration::from_secs(600), false);
        meter.end_window(Duration::from_secs(600), Outside::default());
        let told = milliseconds(meter.latency.max());
        assert!((told - 600_000.0).abs() < 1_000.0, "{told}");
    }

    #[test]
    fn windows_add_up_to_the_run_and_one_without_answers_has_no_latency() {
        let mut meter = Meter::new(Some(Duration::from_secs(40)), None);
        let outside = Outside { held: 3, capacity: 10, ..Outside::default() };
        let ms = Duration::from_millis;
        meter.record(Kind::Allocate, ms(1), false);
        meter.record(Kind::Release, ms(2), true);
        meter.end_window(ms(200), outside);
        meter.end_window(ms(400), outside);
        // A moment before the end: one answer, and one lost request.
        meter.record(Kind::Allocate, ms(3), false);
        meter.record_lost(Kind::Allocate, ms(9));
        meter.end_window(ms(401), outside);
        let told: Vec<(u64, u64, Option<f64>)> = meter
            .windows
            .iter()
            .map(|window| (window.answers, window.refused, window.max_ms.map(f64::round)))
            .collect();
        assert_eq!(told, [(2, 1, Some(2.0)), (0, 0, None), (1, 0, Some(9.0))]);
        assert!((meter.windows.iter().map(|window| window.seconds).sum::<f64>() - 0.401).abs() < 1e-9);
        let kinds: Vec<u64> = meter.kinds().map(|(_, of)| of.answers).collect();
        assert_eq!((kinds, meter.latency.len()), (vec![2, 1], 4));
    }
}
