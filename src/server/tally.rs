//! Counts the requests of a session. It keeps handles of counters, so that the hot path looks up no labels, and gathers
//! consecutive answers of one method, so that those of a turn are added to the shared counters at once.

use std::sync::Arc;
use std::time::Instant;

use prometheus::IntCounter;
use prometheus::local::LocalHistogram;

use crate::metrics::Metrics;
use crate::server::faults::KINDS;
use crate::wire::{ErrorKind, Method};

/// One session's handles.
pub(super) struct Tally {
    metrics: Arc<Metrics>,
    /// One entry for each method that was answered so far.
    done: Vec<MethodTally>,
    /// Index of the entry that is being gathered.
    last: usize,
    /// Times of the last request and its duration in seconds, which is the same for requests that are read and answered together.
    took: (Option<(Instant, Instant)>, f64),
}

struct MethodTally {
    method: Method,
    requests: IntCounter,
    /// Durations that were not added to the shared histogram yet.
    seconds: LocalHistogram,
}

impl Tally {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, done: Vec::new(), last: 0, took: (None, 0.0) }
    }

    /// Counts a request that was read at `read` and is answered with a result `now`. Added to the shared counters by [`tell`](Self::tell).
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

    /// Adds what was gathered to the shared counters.
    pub(super) fn tell(&mut self) {
        let Some(done) = self.done.get(self.last) else { return };
        let count = done.seconds.get_sample_count();
        if count > 0 {
            done.requests.inc_by(count);
            done.seconds.flush();
        }
    }

    /// Counts a request that waited for capacity and is answered with a result now. Its duration has a histogram of its own, because it
    /// says nothing about the speed of the server.
    pub(super) fn waited(&mut self, method: Method, read: Instant, now: Instant) {
        self.metrics.requests.with_label_values(&[method.name(), "ok"]).inc();
        self.metrics.waited_seconds.with_label_values(&[method.name()]).observe((now - read).as_secs_f64());
    }

    /// Counts a refused request.
    pub(super) fn refused(&self, method: &'static str, kind: ErrorKind) {
        self.metrics.requests.with_label_values(&[method, kind.as_str()]).inc();
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.tell();
    }
}

/// Makes the rows of requests that a dashboard or an alert asks the rise of, for the reason that [`Metrics`] has. Of all methods
/// what clients feel; of other refusals there would be a thousand, so those of grants.
pub fn begin_at_zero(metrics: &Metrics) {
    for method in Method::ALL.iter().filter(|method| method.is_served()) {
        for outcome in ["ok"].into_iter().chain(ErrorKind::FAILURES.iter().map(|kind| kind.as_str())) {
            metrics.requests.with_label_values(&[method.name(), outcome]);
        }
    }
    for method in Method::GRANTING.map(Method::name) {
        metrics.request_seconds.with_label_values(&[method]);
        for kind in KINDS {
            metrics.requests.with_label_values(&[method, kind.as_str()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_feel_and_what_grants_are_refused_for_is_told_before_it_is_so_the_first_time() {
        let metrics = Metrics::new();
        begin_at_zero(&metrics);
        let text = metrics.text().unwrap();
        let is_zero = |row: &str| text.lines().any(|line| line == format!("{row} 0"));
        let requests = |method, outcome| format!("allod_requests_total{{method=\"{method}\",outcome=\"{outcome}\"}}");
        for (method, outcome) in [
            ("ip.allocate", "ok"),
            ("ip.release", "overloaded"),
            ("deployment.apply", "unavailable"),
            ("ip.get", "not_ready"),
            ("network.create", "internal"),
            ("ip.acquire", "not_enough_capacity"),
            ("ip.claim", "already_in_use"),
        ] {
            assert!(is_zero(&requests(method, outcome)), "{method}: {outcome}");
        }
        assert!(!text.contains("inventory.compare"), "it is not served");
        assert!(is_zero("allod_request_duration_seconds_count{method=\"ip.acquire\"}"));
    }
}
