//! Every metric of the server: name with unit, and help that says what a rise means.
//!
//! Counters and histograms are counted where things happen. Figures of networks are not: actors publish their counts
//! beside their routes, and `actors::figures` reads them when somebody scrapes, so there is no message to an actor, no
//! stale label and no cost between scrapes. Labels come from enums and from the names of networks and subnets only.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Encoder, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};

/// From reading a request to handing its answer to the socket; the fastest bucket is below the fastest commit.
const SECONDS: &[f64] =
    &[50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1.0, 2.5];
/// From reading a request to its answer, where it waited for capacity in between: as long as `wait_seconds` allows.
const WAITED_SECONDS: &[f64] = &[0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
const CHANGES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];

/// All of them.
pub struct Metrics {
    /// Where they are gathered.
    pub registry: Registry,
    /// Requests answered, by method and outcome.
    pub requests: IntCounterVec,
    /// Time of a request that did not wait for capacity, by method.
    pub request_seconds: HistogramVec,
    /// Time of one that did, and was granted, by method.
    pub waited_seconds: HistogramVec,
    /// Time in a network's queue.
    pub queue_seconds: Histogram,
    /// Changes in one group commit.
    pub batch_changes: Histogram,
    /// Time of a group commit.
    pub commit_seconds: Histogram,
    /// Group commits.
    pub commits: IntCounter,
    /// Proofs of ownership without a change.
    pub proofs: IntCounter,
    /// Commits that did not end well.
    pub commit_failures: IntCounterVec,
    /// Networks loaded again.
    pub restarts: IntCounter,
    /// Shards that the self-check looked at, by what it found.
    pub self_checks: IntCounterVec,
    /// What the last self-check could not read again: shards, and the history.
    pub unreadable_shards: IntGauge,
    /// Panics caught.
    pub panics: IntCounter,
    /// Turns that a request over several networks did not take.
    pub turns_missed: IntCounter,
    /// Does this node own the register?
    pub owner: IntGauge,
    /// How often it came to own it.
    pub tenures: IntCounter,
    /// Batches that were acknowledged here, that the register lacks, and that are not given back yet.
    pub late_batches: IntGauge,
    /// What became of late claims that this node brought.
    pub late_claims: IntCounterVec,
    /// Of connections and streams.
    pub clients: ClientMetrics,
}

/// Those of connections, and of what is streamed on them.
pub struct ClientMetrics {
    /// Requests handed to the node that owns the register.
    pub forwarded: IntCounter,
    /// Open connections.
    pub connections: IntGauge,
    /// Connections accepted.
    pub connections_accepted: IntCounter,
    /// Connections closed by the server, by reason.
    pub connections_closed: IntCounterVec,
    /// Connections that went on on another reactor thread, by reason.
    pub connections_moved: IntCounterVec,
    /// Open connections to the HTTP port.
    pub http_connections: IntGauge,
    /// What was refused or cut off over HTTP, by reason.
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

/// Makes metrics and puts each into the registry. Names, labels and buckets are constants, and each name is there once.
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

    /// By method.
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

/// Counts in a gauge while it is there, also where what has it panics.
#[derive(Debug)]
pub struct Counted(IntGauge);

impl Counted {
    /// One more, in this gauge.
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
            "Connections that the server closed, by reason. A rise of slow or limit means clients that do not read, or too many; of line_too_long or http, clients that are set up wrongly.",
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
    /// A registry of its own: several servers may live in one process.
    pub fn new() -> Self {
        let registry = Registry::new();
        let make = Maker(&registry);
        let build = Opts::new("allod_build_info", "Always 1; the labels tell what runs.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        make.put(Gauge::with_opts(build)).set(1.0);
        let process = prometheus::process_collector::ProcessCollector::for_self();
        registry.register(Box::new(process)).expect("each name is registered once");
        let metrics = Self {
            requests: make.counters(
                "allod_requests_total",
                "Requests answered, by method and outcome (ok or the kind of error). A rise of overloaded or unavailable is felt by clients.",
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
                "Shards that the self-check compared with what the store has of them, by outcome. differs: a network is stopped; unreadable: the next start will be refused; put_off: looked at again next time, as too much was decided meanwhile, or the store was not reached.",
                &["outcome"],
            ),
            unreadable_shards: make.gauge(
                "allod_unreadable_shards",
                "Shards of which the last self-check found that what the store has cannot be read, and one more where that is so of the history. What is served goes on, from memory; the next start will be refused.",
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
                "Reservations that a failover of Redis cut off and this node brought back, by what became of them. Any conflict has an operator decide: allod cluster conflicts.",
                &["became"],
            ),
            clients: ClientMetrics::new(&make),
            registry,
        };
        metrics.begin_at_zero();
        metrics
    }

    /// Makes the rows of what should not happen. Who asks for a rise (`increase`) does not see the first of a row that comes
    /// with it.
    fn begin_at_zero(&self) {
        let rows: [(&IntCounterVec, &[&str]); 6] = [
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

    /// A group became durable, which took so long; or it was proved only that this node owns the register still.
    pub fn of_group(&self, is_commit: bool, took: Duration) {
        if is_commit {
            self.commit_seconds.observe(took.as_secs_f64());
            self.commits.inc();
        } else {
            self.proofs.inc();
        }
    }

    /// Groups that ended well so far, whether they changed anything or not.
    pub fn groups(&self) -> u64 {
        self.commits.get() + self.proofs.get()
    }

    /// Something was refused or cut off over HTTP.
    pub fn refuses_http(&self, reason: &str) {
        self.clients.http_refused.with_label_values(&[reason]).inc();
    }

    /// The text that a scrape gets.
    ///
    /// # Errors
    /// A metric that cannot be encoded.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8(text).unwrap_or_default())
    }
}
