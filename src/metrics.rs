//! Every metric of the server: a name with its unit, and a help text that says what a rise means.
//!
//! Counters and histograms are updated where things happen. Figures of networks are not: actors publish their counts beside
//! their routes, and `actors::figures` reads them at a scrape, so a scrape costs no message to an actor, and there is no
//! stale label and no cost between scrapes. Labels come only from enums and from the names of networks and subnets.

use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::{Counter, MetricFamily};
use prometheus::{
    Encoder, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};
use rustix::time::{ClockId, clock_gettime};

/// From reading a request to handing its answer to the socket; the smallest bucket is below the fastest commit.
const SECONDS: &[f64] =
    &[50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1.0, 2.5];
/// From reading a request to its answer, for requests that waited for capacity in between: as long as `wait_seconds` allows.
const WAITED_SECONDS: &[f64] = &[0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
const CHANGES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];

/// The ways in which a commit can fail.
pub const COMMIT_FAILURES: [&str; 4] = ["not_applied", "unknown", "fenced", "mismatch"];

/// All metrics of a server.
pub struct Metrics {
    /// The registry that holds all of them.
    pub registry: Registry,
    /// Requests answered, by method and outcome.
    pub requests: IntCounterVec,
    /// Time of a request that did not wait for capacity, by method.
    pub request_seconds: HistogramVec,
    /// Time of a request that waited for capacity and was granted, by method.
    pub waited_seconds: HistogramVec,
    /// Time in a network's queue.
    pub queue_seconds: Histogram,
    /// Changes in one group commit.
    pub batch_changes: Histogram,
    /// Time of a group commit.
    pub commit_seconds: Histogram,
    /// Group commits that became durable.
    pub commits: IntCounter,
    /// Proofs of ownership without a change.
    pub proofs: IntCounter,
    /// Commits that failed, by class.
    pub commit_failures: IntCounterVec,
    /// Networks loaded again.
    pub restarts: IntCounter,
    /// Shards that the self-check compared, by result.
    pub self_checks: IntCounterVec,
    /// Shards that the last self-check found unreadable or not where memory stands; one more if the records beside the
    /// shards are.
    pub unreadable_shards: IntGauge,
    /// Panics caught.
    pub panics: IntCounter,
    /// Turns that a request over several networks had and did not take.
    pub turns_missed: IntCounter,
    /// Does this node own the register?
    pub owner: IntGauge,
    /// How often this node came to own the register.
    pub tenures: IntCounter,
    /// Batches that were acknowledged here, are missing in the register, and are not given back yet.
    pub late_batches: IntGauge,
    /// Late claims that this node brought, by what became of them.
    pub late_claims: IntCounterVec,
    /// Metrics of connections and streams.
    pub clients: ClientMetrics,
}

/// Metrics of connections, and of what is streamed on them.
pub struct ClientMetrics {
    /// Requests handed to the node that owns the register.
    pub forwarded: IntCounter,
    /// Open connections.
    pub connections: IntGauge,
    /// Connections accepted.
    pub connections_accepted: IntCounter,
    /// Connections that ended, by reason.
    pub connections_closed: IntCounterVec,
    /// Connections that moved to another reactor thread, by reason.
    pub connections_moved: IntCounterVec,
    /// Open connections to the HTTP port.
    pub http_connections: IntGauge,
    /// Requests and connections refused or cut off over HTTP, by reason.
    pub http_refused: IntCounterVec,
    /// Subscriptions to events.
    pub watches: IntGauge,
    /// Subscriptions that the server ended, by reason.
    pub watches_ended: IntCounterVec,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Makes metrics and registers each. Names, labels and buckets are constants, and each name is used once.
struct Maker<'a>(&'a Registry);

impl Maker<'_> {
    fn put<M: Collector + Clone + 'static>(&self, made: prometheus::Result<M>) -> M {
        let metric = made.expect("names, labels and buckets are constants");
        self.0.register(Box::new(metric.clone())).expect("each name is registered once");
        metric
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        self.put(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
    }

    /// A histogram for each method.
    fn histograms(&self, name: &str, help: &str, buckets: &[f64]) -> HistogramVec {
        self.put(HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), &["method"]))
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.put(IntGauge::new(name, help))
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.put(IntCounter::new(name, help))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.put(IntCounterVec::new(Opts::new(name, help), labels))
    }
}

/// Counts one in a gauge for as long as it exists, even if its owner panics.
#[derive(Debug)]
pub struct Counted(IntGauge);

impl Counted {
    /// Adds one to this gauge.
    pub fn in_gauge(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl ClientMetrics {
    fn new(make: &Maker<'_>) -> Self {
        Self {
            forwarded: make.counter(
                "allod_forwarded_requests_total",
                "Requests handed to the node that owns the register. Clients that ask that node itself save a hop.",
            ),
            connections: make.gauge(
                "allod_connections",
                "Open client connections. A rise without more requests means clients that keep what they do not use; at server.max_connections more are refused.",
            ),
            connections_accepted: make.counter(
                "allod_connections_accepted_total",
                "Connections accepted. A rise without more open ones means clients that reconnect.",
            ),
            connections_closed: make.counters(
                "allod_connections_closed_total",
                "Connections that ended, by reason: done and reset by their clients, the others by the server. A rise of slow or limit means clients that do not read, or too many; of line_too_long or http, clients that are set up wrongly; of idle or unfinished_line, some that keep what they do not use; any not_served, a thread that is gone.",
                &["reason"],
            ),
            connections_moved: make.counters(
                "allod_connections_moved_total",
                "Connections that went on on another reactor thread, by reason: full, because theirs was always busy and that one was not; follows, because the network that a quiet one asks is there. Some at the beginning of a load are normal; a steady rise of full means threads that are busy in turns.",
                &["reason"],
            ),
            http_connections: make.gauge(
                "allod_http_connections",
                "Open connections to the HTTP port. A rise means scrapes or streams that are not ended; beyond their bound more are refused.",
            ),
            http_refused: make.counters(
                "allod_http_refused_total",
                "What was refused or cut off over HTTP, by reason. A rise of connections, bodies, bytes or streams means too many at once; of unfinished or slow, clients that do not send what they began or do not read.",
                &["reason"],
            ),
            watches: make.gauge(
                "allod_watches",
                "Subscriptions to events, over TCP and HTTP. A rise means more listeners: each change is told to all of them.",
            ),
            watches_ended: make.counters(
                "allod_watches_ended_total",
                "Subscriptions that the server ended, by reason. A rise of lagged means clients that take events too slowly; any cursor_lost, a failover that lost changes, or a history that is damaged.",
                &["reason"],
            ),
        }
    }
}

impl Metrics {
    /// Metrics with a registry of their own: several servers may live in one process.
    pub fn new() -> Self {
        let registry = Registry::new();
        let make = Maker(&registry);
        let build = Opts::new("allod_build_info", "Always 1; the labels tell what runs.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        make.put(Gauge::with_opts(build)).set(1.0);
        registry.register(Box::new(Process(ProcessCollector::for_self()))).expect("each name is registered once");
        let metrics = Self {
            requests: make.counters(
                "allod_requests_total",
                "Requests answered, by method (none: what is no request, or of no method that there is) and outcome (ok or the kind of error). A rise of overloaded or unavailable is felt by clients.",
                &["method", "outcome"],
            ),
            request_seconds: make.histograms(
                "allod_request_duration_seconds",
                "From reading a request to its answer, of those that were done and did not wait for capacity. A rise is felt by clients; compare with commit and queue time.",
                SECONDS,
            ),
            waited_seconds: make.histograms(
                "allod_request_waited_duration_seconds",
                "From reading a request to its answer, of those that waited for capacity (wait_seconds) and were granted. A rise means that less comes free than is asked for, not that the server is slow.",
                WAITED_SECONDS,
            ),
            queue_seconds: make.histogram(
                "allod_queue_duration_seconds",
                "How long requests waited for their network's actor. A rise means one reactor thread is busy.",
                SECONDS,
            ),
            batch_changes: make.histogram(
                "allod_batch_changes",
                "Changes in one group commit. A rise means load; together with commit time it is the store's rate.",
                CHANGES,
            ),
            commit_seconds: make.histogram(
                "allod_commit_duration_seconds",
                "From handing a group to the store until it is durable. A rise means a slow disk or a busy store, felt by every client.",
                SECONDS,
            ),
            commits: make.counter(
                "allod_commits_total",
                "Group commits that became durable. A rise is load; none beside requests means that nothing is changed, or that the store stands still.",
            ),
            proofs: make.counter(
                "allod_proofs_total",
                "Checks that this node owns the register still, for answers that change nothing; over files none is needed. A rise is load by reads, repeats and refusals.",
            ),
            commit_failures: make.counters(
                "allod_commit_failures_total",
                "Commits that did not end well, by class. Any rise needs a look at the store and the log.",
                &["class"],
            ),
            restarts: make.counter(
                "allod_network_reloads_total",
                "Networks loaded again after a panic or a commit in doubt. Any rise needs a look at the log.",
            ),
            self_checks: make.counters(
                "allod_self_checks_total",
                "Shards that the self-check compared with what the store has of them, by outcome. differs: a network is stopped, or a deployment goes by the store; unreadable: the next start will be refused, or go by what memory does not know; put_off: looked at again next time, as too much was decided meanwhile, or the store was not reached.",
                &["outcome"],
            ),
            unreadable_shards: make.gauge(
                "allod_unreadable_shards",
                "Shards of which the last self-check found that what the store has cannot be read, or a head that is not where memory stands, and one more where that is so of what stands beside the shards. What is served goes on, from memory; the next start will be refused, or go by it.",
            ),
            turns_missed: make.counter(
                "allod_turns_missed_total",
                "Turns that a waiting request over several networks had and did not take in two seconds, in which its network decided nothing else. Any rise is a bug, or a server that stands still.",
            ),
            panics: make.counter("allod_panics_total", "Panics caught. Any rise is a bug: the log has its id."),
            owner: make.gauge(
                "allod_owner",
                "1 while this node owns the register, 0 while another one does or nobody. Over all nodes the sum is 1; 0 for long means that nobody serves.",
            ),
            tenures: make.counter(
                "allod_tenures_total",
                "How often this node came to own the register. Over all nodes a rise without restarts means that the store or a node stands still at times.",
            ),
            late_batches: make.gauge(
                "allod_late_batches",
                "Batches that this node acknowledged and that a failover of Redis cut off, not given back yet. Above 0 for long: the log says why.",
            ),
            late_claims: make.counters(
                "allod_late_claims_total",
                "Reservations that a failover of Redis cut off and this node brought back, by what became of them: healed, held again; standing, nothing was to be done; gone, their network is. Any conflict has an operator decide: allod cluster conflicts.",
                &["became"],
            ),
            clients: ClientMetrics::new(&make),
            registry,
        };
        metrics.begin_at_zero();
        metrics
    }

    /// Creates the rows whose rise alerts and dashboards query. `increase` and `rate` do not see the first event of a row
    /// that appears with it, and a burst may be all there is. The rows of requests are made by `server::tally`.
    fn begin_at_zero(&self) {
        let rows: [(&IntCounterVec, &[&str]); 7] = [
            (&self.commit_failures, &COMMIT_FAILURES),
            (
                &self.clients.connections_closed,
                &["done", "reset", "slow", "idle", "unfinished_line", "line_too_long", "http", "limit", "not_served"],
            ),
            (&self.clients.connections_moved, &["full", "follows"]),
            (&self.clients.http_refused, &["connections", "bodies", "bytes", "streams", "unfinished", "slow"]),
            (&self.clients.watches_ended, &["lagged", "cursor_lost"]),
            (&self.late_claims, &["healed", "standing", "conflict", "gone"]),
            (&self.self_checks, &["same", "differs", "unreadable", "put_off"]),
        ];
        for (counters, labels) in rows {
            for label in labels {
                counters.with_label_values(&[label]);
            }
        }
    }

    /// Counts a group that ended well: one that became durable after `took`, or a mere proof that this node still owns the
    /// register.
    pub fn of_group(&self, is_commit: bool, took: Duration) {
        if is_commit {
            self.commit_seconds.observe(took.as_secs_f64());
            self.commits.inc();
        } else {
            self.proofs.inc();
        }
    }

    /// How many groups have ended well so far, whether they changed anything or not.
    pub fn groups(&self) -> u64 {
        self.commits.get() + self.proofs.get()
    }

    /// Counts a refusal or cut-off over HTTP.
    pub fn refuses_http(&self, reason: &str) {
        self.clients.http_refused.with_label_values(&[reason]).inc();
    }

    /// The text of a scrape.
    ///
    /// # Errors
    /// If a metric cannot be encoded.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8(text).unwrap_or_default())
    }
}

/// What the system knows about this process. The crate's collector reports processor time in whole seconds: at low load
/// nothing for long, and then a jump. The clock has it to the nanosecond.
struct Process(ProcessCollector);

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.0.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = self.0.collect();
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let processor = families.iter_mut().filter(|family| family.name() == "process_cpu_seconds_total");
        for metric in processor.flat_map(|family| family.mut_metric().iter_mut()) {
            let mut seconds = Counter::default();
            seconds.set_value(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9);
            metric.set_counter(seconds);
        }
        families
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(metrics: &Metrics, row: &str) -> Option<f64> {
        let text = metrics.text().unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(row)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }

    #[test]
    fn processor_time_is_told_also_where_it_is_no_second() {
        let metrics = Metrics::new();
        let told = || value(&metrics, "process_cpu_seconds_total").unwrap();
        let first = told();
        assert!(first > 0.0 && first.fract() != 0.0, "{first}");
        // The time that a scrape takes is counted in the next one.
        assert!(told() > first);
        let text = metrics.text().unwrap();
        assert!(text.contains("# TYPE process_cpu_seconds_total counter\n"), "{text}");
    }
}
