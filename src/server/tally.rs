//! Counts a session's requests: handles of counters are kept, so that the hot path looks no label up.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::{Histogram, IntCounter};

use crate::metrics::Metrics;
use crate::wire::{ErrorKind, Method};

/// One session's handles.
pub(super) struct Tally {
    metrics: Arc<Metrics>,
    done: HashMap<Method, (IntCounter, Histogram)>,
    last: Option<(Method, IntCounter, Histogram)>,
}

impl Tally {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, done: HashMap::new(), last: None }
    }

    /// A request was answered with a result.
    pub(super) fn done(&mut self, method: Method, took: Duration) {
        if self.last.as_ref().is_none_or(|(last, ..)| *last != method) {
            let metrics = &self.metrics;
            let (counter, histogram) = self.done.entry(method).or_insert_with(|| {
                let counter = metrics.requests.with_label_values(&[method.name(), "ok"]);
                (counter, metrics.request_seconds.with_label_values(&[method.name()]))
            });
            self.last = Some((method, counter.clone(), histogram.clone()));
        }
        if let Some((_, counter, histogram)) = &self.last {
            counter.inc();
            histogram.observe(took.as_secs_f64());
        }
    }

    /// A request was refused.
    pub(super) fn refused(&self, method: &'static str, kind: ErrorKind) {
        self.metrics.requests.with_label_values(&[method, kind.as_str()]).inc();
    }
}
