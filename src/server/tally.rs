//! Counts a session's requests: handles of counters are kept, so that the hot path looks no label up; and answers of one
//! method in a row are gathered, so that those of a turn are added to the counts of all connections at once.

use std::sync::Arc;
use std::time::Instant;

use prometheus::IntCounter;
use prometheus::local::LocalHistogram;

use crate::metrics::Metrics;
use crate::wire::{ErrorKind, Method};

/// One session's handles.
pub(super) struct Tally {
    metrics: Arc<Metrics>,
    /// Of each method that was answered so far.
    done: Vec<MethodTally>,
    /// Which of them is being gathered.
    last: usize,
    /// The last one, from when to when, and that in seconds: of what came and is answered together it is the same.
    took: (Option<(Instant, Instant)>, f64),
}

struct MethodTally {
    method: Method,
    requests: IntCounter,
    /// Those that are not told yet.
    seconds: LocalHistogram,
}

impl Tally {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, done: Vec::new(), last: 0, took: (None, 0.0) }
    }

    /// A request that was read then is answered with a result now. Counts once it is told.
    pub(super) fn done(&mut self, method: Method, read: Instant, now: Instant) {
        if self.took.0 != Some((read, now)) {
            self.took = (Some((read, now)), (now - read).as_secs_f64());
        }
        if self.done.get(self.last).is_none_or(|done| done.method != method) {
            self.tell();
            self.last = self.place_of(method);
        }
        if let Some(done) = self.done.get(self.last) {
            done.seconds.observe(self.took.1);
        }
    }

    fn place_of(&mut self, method: Method) -> usize {
        self.done.iter().position(|done| done.method == method).unwrap_or_else(|| {
            let requests = self.metrics.requests.with_label_values(&[method.name(), "ok"]);
            let seconds = self.metrics.request_seconds.with_label_values(&[method.name()]).local();
            self.done.push(MethodTally { method, requests, seconds });
            self.done.len() - 1
        })
    }

    /// Adds what is gathered to the counts of all connections.
    pub(super) fn tell(&mut self) {
        let Some(done) = self.done.get(self.last) else { return };
        let count = done.seconds.get_sample_count();
        if count > 0 {
            done.requests.inc_by(count);
            done.seconds.flush();
        }
    }

    /// A request that was read then, and waited for capacity since, is answered with a result now. How long that took is no
    /// matter of how fast the server is, and is told apart.
    pub(super) fn waited(&mut self, method: Method, read: Instant, now: Instant) {
        self.metrics.requests.with_label_values(&[method.name(), "ok"]).inc();
        self.metrics.waited_seconds.with_label_values(&[method.name()]).observe((now - read).as_secs_f64());
    }

    /// A request was refused.
    pub(super) fn refused(&self, method: &'static str, kind: ErrorKind) {
        self.metrics.requests.with_label_values(&[method, kind.as_str()]).inc();
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.tell();
    }
}
