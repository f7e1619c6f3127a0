//! Figures of networks and of the store for `/metrics`, read from what the actors publish at each scrape.
//!
//! Only the node that owns the register exports its figures, so that each network is exported once. What a process did with
//! its store is always exported by that process. `metrics`, beside this module, counts events.
//!
//! | file | does |
//! | --- | --- |
//! | `capacity` | space: realms, networks, subnets, pools |
//! | `node` | the shards, deployments, whether the store takes changes |
//! | `process` | what this process did with its store |
//! | `families` | how values become the metrics of a scrape |

mod capacity;
mod families;
mod node;
mod process;

use std::sync::{Arc, Weak};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use self::families::{Families, MetricSpec, descs};
use super::service::Shared;
use crate::metrics::Metrics;
use crate::store::Store;

/// Returns the actors whose figures are exported at the moment, if any.
pub type Present = Box<dyn Fn() -> Option<Arc<Shared>> + Send + Sync>;

/// Adds the figures of the actors that are present at a scrape to a server's metrics. At most `networks_max` networks, those
/// with the least left to grant, get rows of their own, besides those with a problem.
pub fn watch(metrics: &Metrics, present: Present, networks_max: usize) {
    let collector = ActorFigures { present, networks_max, descs: descs(of_register()) };
    metrics.registry.register(Box::new(collector)).expect("registered once per server");
}

/// Adds what this process did with its store, whoever owns the register at a scrape. `healed_before` is the number of
/// batches that were given back to the previous store, if that was emptied.
pub fn watch_store(metrics: &Metrics, store: &Arc<dyn Store>, healed_before: u64) {
    let collector = StoreCollector { store: Arc::downgrade(store), healed_before, descs: descs(process::METRICS) };
    metrics.registry.register(Box::new(collector)).expect("registered once per server");
}

fn of_register() -> impl Iterator<Item = &'static MetricSpec> {
    capacity::METRICS.iter().chain(node::METRICS)
}

/// Reads what the actors published, at each scrape.
struct ActorFigures {
    present: Present,
    networks_max: usize,
    descs: Vec<Desc>,
}

impl Collector for ActorFigures {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(shared) = (self.present)() else { return Vec::new() };
        let mut families = Families::of(of_register());
        capacity::fill(&mut families, shared.routes.all(), shared.clock.boot_ms(), self.networks_max);
        node::fill(&mut families, &shared);
        families.finish()
    }
}

/// Asks the store at each scrape. The reference is weak, so that the metrics do not keep the store alive.
struct StoreCollector {
    store: Weak<dyn Store>,
    healed_before: u64,
    descs: Vec<Desc>,
}

impl Collector for StoreCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(store) = self.store.upgrade() else { return Vec::new() };
        let mut families = Families::of(process::METRICS);
        let mut figures = store.figures();
        figures.healed_batches += self.healed_before;
        process::fill(&mut families, &figures);
        families.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_there_once_with_their_labels_in_order_and_a_help_that_says_what_a_change_means() {
        let mut names = HashSet::new();
        for MetricSpec { name, help, labels, counts } in of_register().chain(process::METRICS) {
            assert!(names.insert(name), "{name} is there twice");
            assert!(labels.is_sorted(), "{name}: {labels:?}");
            assert!(help.ends_with('.'), "{name}: {help}");
            // First what it is, and then what it tells someone who is woken by it.
            let what = help.split_once(". ").filter(|(of, _)| of.starts_with("Per ")).map_or(*help, |(_, what)| what);
            assert!(what[..what.len() - 1].contains(['.', ':', ';']), "{name}: {help}");
            assert_eq!(name.ends_with("_total"), *counts, "{name}");
        }
    }
}
