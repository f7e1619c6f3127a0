//! Every metric of the server: name with unit, and help that says what a rise means.
//!
//! Counters and histograms are counted where things happen. Figures of networks are not: actors publish their counts
//! beside their routes, and [`NetworkCollector`] reads them when somebody scrapes, so there is no message to an actor, no
//! stale label and no cost between scrapes. Labels come from enums and from the names of networks and subnets only.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};

use crate::actors::service::Shared;
use crate::core::outcome::Counts;
use crate::store::StoreHealth;

/// From reading a request to handing its answer to the socket; the fastest bucket is below the fastest commit.
const SECONDS: &[f64] =
    &[50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1.0, 2.5];
const CHANGES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];
/// Networks whose figures `/metrics` shows; the fullest are kept.
pub const NETWORKS_MAX: usize = 10_000;

/// All of them.
pub struct Metrics {
    /// Where they are gathered.
    pub registry: Registry,
    /// Requests answered, by method and outcome.
    pub requests: IntCounterVec,
    /// Time of a request, by method.
    pub request_seconds: HistogramVec,
    /// Time in a network's queue.
    pub queue_seconds: Histogram,
    /// Changes in one group commit.
    pub batch_changes: Histogram,
    /// Time of a group commit.
    pub commit_seconds: Histogram,
    /// Group commits.
    pub commits: IntCounter,
    /// Commits that did not end well.
    pub commit_failures: IntCounterVec,
    /// Networks loaded again.
    pub restarts: IntCounter,
    /// Panics caught.
    pub panics: IntCounter,
    /// Open connections.
    pub connections: IntGauge,
    /// Connections accepted.
    pub connections_accepted: IntCounter,
    /// Connections closed by the server, by reason.
    pub connections_closed: IntCounterVec,
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

fn histogram(name: &str, help: &str, buckets: &[f64]) -> Histogram {
    Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))
        .expect("names and buckets are constants")
}

fn counter(name: &str, help: &str) -> IntCounter {
    IntCounter::new(name, help).expect("names are constants")
}

fn counters(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), labels).expect("names are constants")
}

impl Metrics {
    /// A registry of its own: several servers may live in one process.
    pub fn new() -> Self {
        let metrics = Self {
            registry: Registry::new(),
            requests: counters(
                "allod_requests_total",
                "Requests answered, by method and outcome (ok or the kind of error). A rise of overloaded or unavailable is felt by clients.",
                &["method", "outcome"],
            ),
            request_seconds: HistogramVec::new(
                HistogramOpts::new(
                    "allod_request_duration_seconds",
                    "From reading a request to its answer. A rise is felt by clients; compare with commit and queue time.",
                )
                .buckets(SECONDS.to_vec()),
                &["method"],
            )
            .expect("names and buckets are constants"),
            queue_seconds: histogram(
                "allod_queue_duration_seconds",
                "How long requests waited for their network's actor. A rise means one reactor thread is busy.",
                SECONDS,
            ),
            batch_changes: histogram(
                "allod_batch_changes",
                "Changes in one group commit. A rise means load; together with commit time it is the store's rate.",
                CHANGES,
            ),
            commit_seconds: histogram(
                "allod_commit_duration_seconds",
                "From handing a group to the store until it is durable. A rise means a slow disk or a busy store, felt by every client.",
                SECONDS,
            ),
            commits: counter("allod_commits_total", "Group commits that became durable."),
            commit_failures: counters(
                "allod_commit_failures_total",
                "Commits that did not end well, by class. Any rise needs a look at the store and the log.",
                &["class"],
            ),
            restarts: counter(
                "allod_network_reloads_total",
                "Networks loaded again after a panic or a commit in doubt. Any rise needs a look at the log.",
            ),
            panics: counter("allod_panics_total", "Panics caught. Any rise is a bug: the log has its id."),
            connections: IntGauge::new("allod_connections", "Open client connections.").expect("names are constants"),
            connections_accepted: counter(
                "allod_connections_accepted_total",
                "Connections accepted. A rise without more open ones means clients that reconnect.",
            ),
            connections_closed: counters(
                "allod_connections_closed_total",
                "Connections that the server closed, by reason. A rise of slow or limit means clients that do not read, or too many.",
                &["reason"],
            ),
        };
        let build = Gauge::with_opts(
            Opts::new("allod_build_info", "Always 1; the labels tell what runs.")
                .const_label("version", env!("CARGO_PKG_VERSION")),
        )
        .expect("names are constants");
        build.set(1.0);
        let all: Vec<Box<dyn Collector>> = vec![
            Box::new(metrics.requests.clone()),
            Box::new(metrics.request_seconds.clone()),
            Box::new(metrics.queue_seconds.clone()),
            Box::new(metrics.batch_changes.clone()),
            Box::new(metrics.commit_seconds.clone()),
            Box::new(metrics.commits.clone()),
            Box::new(metrics.commit_failures.clone()),
            Box::new(metrics.restarts.clone()),
            Box::new(metrics.panics.clone()),
            Box::new(metrics.connections.clone()),
            Box::new(metrics.connections_accepted.clone()),
            Box::new(metrics.connections_closed.clone()),
            Box::new(build),
            Box::new(prometheus::process_collector::ProcessCollector::for_self()),
        ];
        for collector in all {
            metrics.registry.register(collector).expect("each name is registered once");
        }
        metrics
    }

    /// Adds the figures of the networks of a server.
    pub fn watch(&self, shared: &Arc<Shared>) {
        let collector = NetworkCollector::new(Arc::downgrade(shared));
        self.registry.register(Box::new(collector)).expect("registered once per server");
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

const STATES: [(&str, &str); 5] = [
    ("size", "All addresses of the subnets. A rise means subnets were added."),
    ("held", "Held addresses. Compare with size: full networks refuse."),
    ("reserved", "Addresses kept from automatic grants: reserved ranges, unusable ones, draining ones."),
    ("cooling", "Addresses let go a short time ago, and declined ones. A rise means churn or address conflicts."),
    ("free", "Free addresses. A fall towards 0 means not_enough_capacity soon."),
];

fn value_of(counts: &Counts, state: &str) -> f64 {
    // Above 2^53 a gauge is no longer exact; network.usage is.
    let count = match state {
        "size" => counts.size,
        "held" => counts.held,
        "reserved" => counts.reserved,
        "cooling" => counts.cooling + counts.declined,
        _ => counts.free,
    };
    count as f64
}

/// Reads what the actors published, at each scrape.
struct NetworkCollector {
    shared: Weak<Shared>,
    descs: Vec<Desc>,
}

fn gauges(name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    GaugeVec::new(Opts::new(name, help), labels).expect("names are constants")
}

impl NetworkCollector {
    fn new(shared: Weak<Shared>) -> Self {
        let families = Families::new();
        let descs = families.all().iter().flat_map(|vec| vec.desc().into_iter().cloned()).collect();
        Self { shared, descs }
    }
}

/// Made anew for each scrape, so that no label outlives its network.
struct Families {
    network: Vec<GaugeVec>,
    subnet: Vec<GaugeVec>,
    others: HashMap<&'static str, GaugeVec>,
}

impl Families {
    fn new() -> Self {
        let network = STATES.map(|(state, help)| {
            gauges(
                &format!("allod_network_addresses_{state}"),
                &format!("Per network and family. {help}"),
                &["realm", "network", "family"],
            )
        });
        let subnet = STATES.map(|(state, help)| {
            gauges(
                &format!("allod_subnet_addresses_{state}"),
                &format!("Per subnet. {help}"),
                &["realm", "network", "subnet", "family"],
            )
        });
        let others = [
            ("reservations", gauges("allod_network_reservations", "Reservations held.", &["realm", "network"])),
            (
                "queue",
                gauges(
                    "allod_network_queue_requests",
                    "Requests that wait for the network. Near 8192 it refuses: overloaded.",
                    &["realm", "network"],
                ),
            ),
            ("networks", gauges("allod_networks", "Networks served.", &[])),
            (
                "dropped",
                gauges(
                    "allod_metrics_networks_dropped",
                    "Networks left out of this scrape because there are too many.",
                    &[],
                ),
            ),
            (
                "store",
                gauges(
                    "allod_store_ready",
                    "1 while the store takes changes, 0 when it is full or failed: act at once.",
                    &[],
                ),
            ),
            ("flushes", gauges("allod_store_flushes", "Groups flushed by the store since start.", &[])),
            ("log", gauges("allod_store_log_bytes", "Bytes written to the store's log since start.", &[])),
            (
                "disk",
                gauges(
                    "allod_store_disk_bytes",
                    "Bytes that the store takes on disk. A steady rise means compaction does not keep up.",
                    &[],
                ),
            ),
            ("compactions", gauges("allod_store_compactions", "Compactions finished since start.", &[])),
            (
                "compaction_failures",
                gauges(
                    "allod_store_compaction_failures",
                    "Compactions that failed since start. A rise means a full or failing disk.",
                    &[],
                ),
            ),
        ];
        Self { network: network.into(), subnet: subnet.into(), others: others.into() }
    }

    fn all(&self) -> Vec<&GaugeVec> {
        self.network.iter().chain(&self.subnet).chain(self.others.values()).collect()
    }

    fn set(&self, which: &str, value: f64) {
        if let Some(vec) = self.others.get(which) {
            vec.with_label_values(&[] as &[&str]).set(value);
        }
    }

    fn fill(&self, shared: &Shared) {
        let mut routes: Vec<_> = shared.routes.all().into_iter().filter(|route| route.name.is_some()).collect();
        self.set("networks", routes.len() as f64);
        self.set("dropped", routes.len().saturating_sub(NETWORKS_MAX) as f64);
        if routes.len() > NETWORKS_MAX {
            let free = |route: &crate::actors::routes::Route| {
                let figures = route.published.figures.load();
                figures.as_ref().map_or(u128::MAX, |f| f.subnets.iter().map(|s| s.counts.free).sum())
            };
            routes.sort_by_cached_key(|route| free(route));
            routes.truncate(NETWORKS_MAX);
        }
        for route in &routes {
            let (Some(name), realm) = (&route.name, route.realm.as_str()) else { continue };
            let labels = [realm, name.as_str()];
            if let Some(queue) = self.others.get("queue") {
                queue.with_label_values(&labels).set(route.permits.waiting() as f64);
            }
            let Some(figures) = route.published.figures.load_full() else { continue };
            let mut reservations = 0;
            for subnet in &figures.subnets {
                let family = if subnet.subnet.cidr.family().number() == 4 { "4" } else { "6" };
                let cidr = subnet.subnet.cidr.to_string();
                reservations += subnet.counts.reservations;
                for (at, (state, _)) in STATES.iter().enumerate() {
                    let value = value_of(&subnet.counts, state);
                    self.network[at].with_label_values(&[realm, name.as_str(), family]).add(value);
                    self.subnet[at].with_label_values(&[realm, name.as_str(), &cidr, family]).set(value);
                }
            }
            if let Some(vec) = self.others.get("reservations") {
                vec.with_label_values(&labels).set(reservations as f64);
            }
        }
        let figures = shared.store.figures();
        self.set("store", if shared.store.health() == StoreHealth::Ready { 1.0 } else { 0.0 });
        self.set("flushes", figures.flushes as f64);
        self.set("log", figures.log_bytes as f64);
        self.set("disk", figures.disk_bytes as f64);
        self.set("compactions", figures.compactions as f64);
        self.set("compaction_failures", figures.compaction_failures as f64);
    }
}

impl Collector for NetworkCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let families = Families::new();
        if let Some(shared) = self.shared.upgrade() {
            families.fill(&shared);
        }
        families.all().iter().flat_map(|vec| vec.collect()).collect()
    }
}
