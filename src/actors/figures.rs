//! Figures of networks and of the store for `/metrics`, read from what the actors publish whenever somebody scrapes.
//!
//! Made anew for each scrape, so that no label outlives its network. Beside `metrics`, which counts what happens.

use std::collections::HashMap;
use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntCounter, Opts};

use super::service::Shared;
use crate::core::outcome::Counts;
use crate::metrics::Metrics;
use crate::store::StoreHealth;

/// Networks whose figures `/metrics` shows; the fullest are kept.
pub const NETWORKS_MAX: usize = 10_000;

/// Tells which actors' figures are shown now, if any.
pub type Present = Box<dyn Fn() -> Option<Arc<Shared>> + Send + Sync>;

/// Adds the figures of whatever actors there are at a scrape to a server's metrics.
pub fn watch(metrics: &Metrics, present: Present) {
    let collector = NetworkCollector::new(present);
    metrics.registry.register(Box::new(collector)).expect("registered once per server");
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
    present: Present,
    descs: Vec<Desc>,
}

fn gauges(name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    GaugeVec::new(Opts::new(name, help), labels).expect("names are constants")
}

impl NetworkCollector {
    fn new(present: Present) -> Self {
        let families = Families::new();
        let descs = families.all().iter().flat_map(|family| family.desc().into_iter().cloned()).collect();
        Self { present, descs }
    }
}

/// Made anew for each scrape, so that no label outlives its network.
struct Families {
    network: Vec<GaugeVec>,
    subnet: Vec<GaugeVec>,
    others: HashMap<&'static str, GaugeVec>,
    counters: HashMap<&'static str, IntCounter>,
}

/// What the store counts since its start: these only rise.
fn counters() -> HashMap<&'static str, IntCounter> {
    let counter = |name, help| IntCounter::new(name, help).expect("names are constants");
    [
        ("flushes", counter("allod_store_flushes_total", "Groups flushed by the store.")),
        ("log", counter("allod_store_log_bytes_total", "Bytes written to the store's log.")),
        ("compactions", counter("allod_store_compactions_total", "Compactions finished.")),
        (
            "healed",
            counter(
                "allod_store_healed_batches_total",
                "Batches that Redis had lost and was given again. Any rise means that Redis went back: look at its failover.",
            ),
        ),
        (
            "compaction_failures",
            counter(
                "allod_store_compaction_failures_total",
                "Compactions that failed. A rise means a full or failing disk.",
            ),
        ),
    ]
    .into()
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
                "conflicts",
                gauges(
                    "allod_network_conflicts",
                    "Addresses that two claim since a failover. Above 0 nothing new is granted: allod cluster conflicts.",
                    &["realm", "network"],
                ),
            ),
            (
                "queue",
                gauges(
                    "allod_network_queue_requests",
                    "Requests that wait for the network. Near 8192 it refuses: overloaded.",
                    &["realm", "network"],
                ),
            ),
            (
                "waiting",
                gauges(
                    "allod_network_waiting_requests",
                    "Requests that wait for capacity of the network. A rise means it is full: add a pool, or look at who holds.",
                    &["realm", "network"],
                ),
            ),
            (
                "waiting_seconds",
                gauges(
                    "allod_network_waiting_oldest_seconds",
                    "How long the oldest of them waits. A rise means that nothing comes free that fits it.",
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
                    "1 while the store takes changes, 0 when it is full, hindered or failed: act at once, /readyz says why.",
                    &[],
                ),
            ),
            (
                "replicas_wanted",
                gauges(
                    "allod_store_replicas_wanted",
                    "Replicas of Redis that must have a change before it is acknowledged.",
                    &[],
                ),
            ),
            (
                "replicas_answering",
                gauges(
                    "allod_store_replicas_answering",
                    "How many of them answered last. Below the wanted ones nothing is acknowledged: act at once.",
                    &[],
                ),
            ),
            (
                "disk",
                gauges(
                    "allod_store_disk_bytes",
                    "Bytes that the store takes on disk. A steady rise means compaction does not keep up.",
                    &[],
                ),
            ),
        ];
        Self { network: network.into(), subnet: subnet.into(), others: others.into(), counters: counters() }
    }

    fn all(&self) -> Vec<&dyn Collector> {
        let gauges = self.network.iter().chain(&self.subnet).chain(self.others.values());
        let counters = self.counters.values().map(|counter| counter as &dyn Collector);
        gauges.map(|gauge| gauge as &dyn Collector).chain(counters).collect()
    }

    fn set(&self, which: &str, value: f64) {
        if let Some(vec) = self.others.get(which) {
            vec.with_label_values(&[] as &[&str]).set(value);
        }
    }

    fn count(&self, which: &str, total: u64) {
        // The counter was made for this scrape: it stands at 0.
        if let Some(counter) = self.counters.get(which) {
            counter.inc_by(total);
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
            let (waiting, since_ms) = route.published.waiting();
            if let Some(vec) = self.others.get("waiting") {
                vec.with_label_values(&labels).set(waiting as f64);
            }
            if let (Some(vec), Some(since_ms)) = (self.others.get("waiting_seconds"), since_ms) {
                let waited_ms = shared.clock.boot_ms().saturating_sub(since_ms);
                vec.with_label_values(&labels).set(waited_ms as f64 / 1_000.0);
            }
            let Some(figures) = route.published.figures.load_full() else { continue };
            if let Some(vec) = self.others.get("conflicts") {
                vec.with_label_values(&labels).set(figures.conflicts as f64);
            }
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
        self.set("disk", figures.disk_bytes as f64);
        self.set("replicas_wanted", figures.replicas_wanted as f64);
        self.set("replicas_answering", figures.replicas_answering as f64);
        self.count("flushes", figures.flushes);
        self.count("log", figures.log_bytes);
        self.count("healed", figures.healed_batches);
        self.count("compactions", figures.compactions);
        self.count("compaction_failures", figures.compaction_failures);
    }
}

impl Collector for NetworkCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let families = Families::new();
        if let Some(shared) = (self.present)() {
            families.fill(&shared);
        }
        families.all().iter().flat_map(|family| family.collect()).collect()
    }
}
