//! Metrics that are built anew for each scrape, so that no label outlives the object that it names.

use std::collections::BTreeMap;

use prometheus::core::Desc;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

/// One metric: its name, its help text, which says what a change means, and its labels in alphabetical order.
pub(super) struct MetricSpec {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) labels: &'static [&'static str],
    /// A counter, which only rises while one node serves the object under one name; otherwise a gauge.
    pub(super) counts: bool,
}

pub(super) const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> MetricSpec {
    MetricSpec { name, help, labels, counts: false }
}

pub(super) const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> MetricSpec {
    MetricSpec { name, help, labels, counts: true }
}

/// The metrics of one scrape.
pub(super) struct Families {
    families: BTreeMap<&'static str, (&'static MetricSpec, MetricFamily)>,
}

impl Families {
    /// Families for these metrics, without values.
    pub(super) fn of(all: impl IntoIterator<Item = &'static MetricSpec>) -> Self {
        let families = all.into_iter().map(|named| {
            let mut family = MetricFamily::default();
            family.set_name(named.name.to_owned());
            family.set_help(named.help.to_owned());
            family.set_field_type(if named.counts { MetricType::COUNTER } else { MetricType::GAUGE });
            (named.name, (named, family))
        });
        Self { families: families.collect() }
    }

    /// Adds a value; `labels` are the values of its labels, in their order.
    pub(super) fn put(&mut self, name: &str, labels: &[&str], value: f64) {
        let Some((named, family)) = self.families.get_mut(name) else {
            debug_assert!(false, "{name} is in no table");
            return;
        };
        debug_assert_eq!(named.labels.len(), labels.len(), "{name}");
        let pairs = named.labels.iter().zip(labels).map(|(label, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*label).to_owned());
            pair.set_value((*value).to_owned());
            pair
        });
        let mut metric = Metric::from_label(pairs.collect());
        if named.counts {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        family.mut_metric().push(metric);
    }

    /// The families that have a value.
    pub(super) fn finish(self) -> Vec<MetricFamily> {
        let families = self.families.into_values().map(|(_, family)| family);
        families.filter(|family| !family.get_metric().is_empty()).collect()
    }
}

/// The descriptions that a registry needs.
pub(super) fn descs(all: impl IntoIterator<Item = &'static MetricSpec>) -> Vec<Desc> {
    let desc = |named: &MetricSpec| {
        let labels = named.labels.iter().map(|label| (*label).to_owned()).collect();
        Desc::new(named.name.to_owned(), named.help.to_owned(), labels, std::collections::HashMap::new())
            .expect("names and labels are constants")
    };
    all.into_iter().map(desc).collect()
}
