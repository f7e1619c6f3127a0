//! How much space there is, and how it is used: by realm, network, subnet and pool.
//!
//! Every address counts in exactly one of `held`, `reserved`, `cooling`, `declined` and `free`; together they are `size`.
//! The rows of networks, subnets and pools are bounded: networks with a problem are kept, and those with the fewest
//! addresses left to grant. Realms sum up all networks.
//!
//! A free address cannot always be granted: it may lie in no pool, in a static pool, or in a draining one. So `grantable`
//! and its size show how full a network is.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::families::{Families, MetricSpec, counter, gauge};
use crate::actors::published::{Figures, NO_POOL_FITS, SubnetFigures};
use crate::actors::routes::Route;
use crate::core::address::Family;
use crate::core::outcome::{Counts, Grantable, PoolUsage};
use crate::core::state::PoolKind;

/// The most networks that are shown beyond the limit because they have, or had, a problem.
const WRONG_MAX: usize = 1_000;
/// The most rows of subnets and pools in one scrape.
pub const ROWS_MAX: usize = 50_000;
/// The most realms in one scrape; the others are summed up in one row.
const REALMS_MAX: usize = 1_000;
/// The label of that row: no realm can have this name.
const OTHERS: &str = "(others)";

const REALM: &[&str] = &["family", "realm"];
const NETWORK: &[&str] = &["family", "network", "realm"];
const ONE: &[&str] = &["network", "realm"];
const SUBNET: &[&str] = &["family", "network", "realm", "subnet"];
const POOL: &[&str] = &["family", "kind", "network", "pool", "realm", "subnet"];

pub(super) const METRICS: &[MetricSpec] = &[
    gauge(
        "allod_realm_networks",
        &["realm"],
        "Networks of the realm. A rise means that networks were made or restored. Of those that are deleted and remembered no figure tells: allod ip list has what they hold.",
    ),
    gauge(
        "allod_realm_addresses_size",
        REALM,
        "Per realm and family. All addresses of its subnets. A rise means that subnets or pools were added or grew.",
    ),
    gauge(
        "allod_realm_addresses_held",
        REALM,
        "Per realm and family. Held addresses. Compare with size: where all are held it refuses.",
    ),
    gauge(
        "allod_realm_addresses_reserved",
        REALM,
        "Per realm and family. Addresses kept from automatic grants. A rise means that somebody reserved or drains a part.",
    ),
    gauge(
        "allod_realm_addresses_cooling",
        REALM,
        "Per realm and family. Addresses let go a short time ago. A rise means churn: they are free again after the cooldown.",
    ),
    gauge(
        "allod_realm_addresses_declined",
        REALM,
        "Per realm and family. Addresses at which somebody else answered. Any rise means machines that use addresses they do not hold.",
    ),
    gauge(
        "allod_realm_addresses_free",
        REALM,
        "Per realm and family. Free addresses. A fall towards 0 means not_enough_capacity soon.",
    ),
    gauge(
        "allod_network_addresses_size",
        NETWORK,
        "Per network and family. All addresses of the subnets. A rise means subnets were added.",
    ),
    gauge(
        "allod_network_addresses_held",
        NETWORK,
        "Per network and family. Held addresses. Compare with size: full networks refuse.",
    ),
    gauge(
        "allod_network_addresses_held_static",
        NETWORK,
        "Per network and family. Of the held ones those that were claimed by address. A rise means clients that choose their addresses themselves.",
    ),
    gauge(
        "allod_network_addresses_obsolete",
        NETWORK,
        "Per network and family. Of the held ones those that a deployment lets go once it is committed. A steady value means a deployment that nobody commits.",
    ),
    gauge(
        "allod_network_addresses_reserved",
        NETWORK,
        "Per network and family. Addresses kept from automatic grants: reserved ranges, unusable ones, draining ones. A rise means that somebody reserved or drains a part.",
    ),
    gauge(
        "allod_network_addresses_cooling",
        NETWORK,
        "Per network and family. Addresses let go a short time ago. A rise means churn.",
    ),
    gauge(
        "allod_network_addresses_declined",
        NETWORK,
        "Per network and family. Addresses at which somebody else answered. Any rise means machines that use addresses they do not hold.",
    ),
    gauge(
        "allod_network_addresses_free",
        NETWORK,
        "Per network and family. Free addresses, also those that no automatic grant draws from: outside pools, in static and in draining ones. A fall means demand, or that less is let go.",
    ),
    gauge(
        "allod_network_addresses_grantable",
        NETWORK,
        "Per network and family. Addresses that an automatic grant could take now: free ones of dynamic pools that do not drain, and cooling ones where these yield. A fall towards 0 means not_enough_capacity soon.",
    ),
    gauge(
        "allod_network_addresses_grantable_size",
        NETWORK,
        "Per network and family. Addresses of the dynamic pools that do not drain, but for reserved and unusable ones: what grantable is a part of. A rise means that pools were added or grew; 0, that nothing is granted automatically.",
    ),
    gauge(
        "allod_network_largest_free_block_addresses",
        NETWORK,
        "Per network and family. Addresses of the largest block that could be granted. Small beside the free ones means that these are scattered.",
    ),
    gauge(
        "allod_network_exhausted_in_seconds",
        NETWORK,
        "Per network and family. When nothing is left to grant if it goes on as in the last ten minutes; absent if it does not fill, or not within a year, was watched for less than a minute, or is full.",
    ),
    gauge(
        "allod_network_reservations",
        ONE,
        "Reservations held; a block is one. A rise without more machines means owners that never let go.",
    ),
    gauge(
        "allod_network_conflicts",
        ONE,
        "Addresses that two claim since a failover. Above 0 nothing new is granted: allod cluster conflicts.",
    ),
    gauge(
        "allod_network_stopped",
        ONE,
        "1 while the network answers network_stopped: to everything where it panicked three times in a minute or what the store has of it cannot be loaded, to every change where the self-check found that the store has something else. The log says which.",
    ),
    counter(
        "allod_network_grants_total",
        ONE,
        "Reservations granted since this node serves the network under this name. A rise is demand; as steep as that of releases it is churn.",
    ),
    counter(
        "allod_network_releases_total",
        &["network", "realm", "reason"],
        "Reservations ended since this node serves the network under this name, by reason. A rise of declined means addresses in use by strangers.",
    ),
    counter(
        "allod_network_refusals_total",
        &["kind", "network", "realm"],
        "Requests that the network refused since this node serves it under this name, by kind; not what overlaps another network, or takes its name, which only allod_requests_total has. A rise of not_enough_capacity means that it is full for what is asked; one of no_pool_fits, which is answered so as well, that no pool of it is of the family, zone, subnet or size that is asked for.",
    ),
    gauge("allod_network_queue_requests", ONE, "Requests that wait for the network. Near 8192 it refuses: overloaded."),
    gauge(
        "allod_network_waiting_requests",
        ONE,
        "Requests that wait for capacity of the network; one that waits for several counts in each, and once in allod_waiting_requests. A rise means it is full: add a pool, or look at who holds.",
    ),
    gauge(
        "allod_network_waiting_oldest_seconds",
        ONE,
        "How long the oldest of them waits. A rise means that nothing comes free that fits it.",
    ),
    gauge(
        "allod_subnet_addresses_size",
        SUBNET,
        "Per subnet. All its addresses. A rise means that subnets or pools were added or grew.",
    ),
    gauge(
        "allod_subnet_addresses_held",
        SUBNET,
        "Per subnet. Held addresses. Compare with size: where all are held it refuses.",
    ),
    gauge(
        "allod_subnet_addresses_reserved",
        SUBNET,
        "Per subnet. Addresses kept from automatic grants. A rise means that somebody reserved or drains a part.",
    ),
    gauge(
        "allod_subnet_addresses_cooling",
        SUBNET,
        "Per subnet. Addresses let go a short time ago. A rise means churn: they are free again after the cooldown.",
    ),
    gauge(
        "allod_subnet_addresses_declined",
        SUBNET,
        "Per subnet. Addresses at which somebody else answered. Any rise means machines that use addresses they do not hold.",
    ),
    gauge(
        "allod_subnet_addresses_free",
        SUBNET,
        "Per subnet. Free addresses. A fall towards 0 means not_enough_capacity soon.",
    ),
    gauge(
        "allod_pool_addresses_size",
        POOL,
        "Per pool, by its range. All its addresses. A rise means that subnets or pools were added or grew.",
    ),
    gauge(
        "allod_pool_addresses_held",
        POOL,
        "Per pool. Held addresses. Compare with size: where all are held it refuses.",
    ),
    gauge(
        "allod_pool_addresses_reserved",
        POOL,
        "Per pool. Addresses kept from automatic grants. A rise means that somebody reserved or drains a part.",
    ),
    gauge(
        "allod_pool_addresses_cooling",
        POOL,
        "Per pool. Addresses let go a short time ago. A rise means churn: they are free again after the cooldown.",
    ),
    gauge(
        "allod_pool_addresses_declined",
        POOL,
        "Per pool. Addresses at which somebody else answered. Any rise means machines that use addresses they do not hold.",
    ),
    gauge("allod_pool_addresses_free", POOL, "Per pool. Free addresses. At 0 the next pool or subnet is drawn from."),
    gauge(
        "allod_pool_largest_free_block_addresses",
        POOL,
        "Per pool. Addresses of the largest block that could be granted from it. Small beside the free ones means that these are scattered.",
    ),
    gauge(
        "allod_metrics_networks_dropped",
        &[],
        "Networks left out of this scrape because there are too many and nothing is wrong with them; the realms count them.",
    ),
    gauge(
        "allod_metrics_rows_dropped",
        &[],
        "Subnets and pools left out of this scrape because there are too many; their networks count them.",
    ),
];

/// Puts six counts of one object.
fn put_counts(families: &mut Families, of: [&'static str; 6], labels: &[&str], counts: &Counts) {
    let Counts { size, held, reserved, cooling, declined, free, .. } = *counts;
    for (name, count) in of.into_iter().zip([size, held, reserved, cooling, declined, free]) {
        // Above 2^53 a gauge is no longer exact; network.usage is.
        families.put(name, labels, count as f64);
    }
}

macro_rules! six {
    ($of:literal) => {
        [
            concat!("allod_", $of, "_addresses_size"),
            concat!("allod_", $of, "_addresses_held"),
            concat!("allod_", $of, "_addresses_reserved"),
            concat!("allod_", $of, "_addresses_cooling"),
            concat!("allod_", $of, "_addresses_declined"),
            concat!("allod_", $of, "_addresses_free"),
        ]
    };
}

fn number(family: Family) -> &'static str {
    match family {
        Family::V4 => "4",
        Family::V6 => "6",
    }
}

/// Addresses of the largest free block in these pools.
fn largest<'a>(family: Family, pools: impl IntoIterator<Item = &'a PoolUsage>) -> f64 {
    let lengths = pools.into_iter().filter_map(|pool| pool.largest_free_block);
    lengths.min().map_or(0.0, |length| f64::from(family.width() - length).exp2())
}

/// A network that has a name, and its published figures.
struct Shown {
    route: Arc<Route>,
    figures: Arc<Figures>,
}

impl Shown {
    /// The addresses left to grant, in the family that has fewer of them. A network without automatic grants cannot run out.
    fn left(&self) -> u128 {
        let grantable = Family::ALL.map(|family| self.figures.grantable(family));
        grantable.iter().filter(|of| of.size > 0).map(|of| of.left).min().unwrap_or(u128::MAX)
    }

    /// How serious a problem the network has that the sums of its realm would not reveal; higher is worse.
    fn wrong(&self) -> u8 {
        let Self { route, figures } = self;
        let refused = || {
            let wants = |kind| ["not_enough_capacity", NO_POOL_FITS].contains(&kind);
            route.published.refusals.by_kind().any(|(kind, count)| count > 0 && wants(kind))
        };
        let declined = || route.lane.deeds.ends().any(|(reason, count)| reason == "declined" && count > 0);
        if figures.conflicts > 0 || route.published.stopped().is_some() {
            3
        } else if refused() {
            2
        } else {
            u8::from(declined())
        }
    }
}

/// Decides which networks have rows: up to `networks_max`, and a bounded number more that have a problem. Returns how many
/// have none.
fn keep(shown: &mut Vec<Shown>, networks_max: usize) -> usize {
    let all = shown.len();
    if all > networks_max {
        shown.sort_by_cached_key(|network| (std::cmp::Reverse(network.wrong()), network.left()));
        let wrong = shown.iter().take(WRONG_MAX).filter(|network| network.wrong() > 0).count();
        shown.truncate(networks_max + wrong);
    }
    all.saturating_sub(shown.len())
}

/// Puts the figures that all networks published. `now_ms` is boot time; `networks_max` networks get rows of their own.
pub(super) fn fill(families: &mut Families, routes: Vec<Arc<Route>>, now_ms: u64, networks_max: usize) {
    let shown = routes.into_iter().filter(|route| route.name.is_some()).map(|route| {
        let figures = route.published.figures.load_full().unwrap_or_default();
        Shown { route, figures }
    });
    let mut shown: Vec<Shown> = shown.collect();
    families.put("allod_networks", &[], shown.len() as f64);
    put_realms(families, &shown);
    let dropped = keep(&mut shown, networks_max);
    families.put("allod_metrics_networks_dropped", &[], dropped as f64);
    // Subnets and pools, too, are dropped from the networks with the most addresses left.
    shown.sort_by_cached_key(Shown::left);
    let mut rows = Rows { left: ROWS_MAX, dropped: 0 };
    for network in &shown {
        put_network(families, network, now_ms);
        let Shown { route, figures } = network;
        if let Some(name) = &route.name {
            let names = [name.as_str(), route.realm.as_str()];
            figures.subnets.iter().for_each(|subnet| rows.put_subnet(families, names, subnet));
        }
        rows.dropped += figures.pools_left_out;
    }
    families.put("allod_metrics_rows_dropped", &[], rows.dropped as f64);
}

fn put_realms(families: &mut Families, shown: &[Shown]) {
    let mut realms: BTreeMap<&str, (u64, [Counts; 2])> = BTreeMap::new();
    for Shown { route, figures } in shown {
        let (networks, counts) = realms.entry(route.realm.as_str()).or_default();
        *networks += 1;
        for subnet in &figures.subnets {
            counts[usize::from(subnet.subnet.cidr.family() == Family::V6)] += subnet.counts;
        }
    }
    let mut largest: Vec<(&str, u64, [Counts; 2])> =
        realms.into_iter().map(|(realm, (networks, counts))| (realm, networks, counts)).collect();
    if largest.len() > REALMS_MAX {
        largest.sort_by_key(|(_, networks, _)| std::cmp::Reverse(*networks));
        let mut others = (OTHERS, 0, [Counts::default(); 2]);
        for (_, networks, [v4, v6]) in largest.drain(REALMS_MAX..) {
            others.1 += networks;
            others.2[0] += v4;
            others.2[1] += v6;
        }
        largest.push(others);
    }
    for (realm, networks, counts) in largest {
        families.put("allod_realm_networks", &[realm], networks as f64);
        for (family, counts) in Family::ALL.into_iter().zip(counts) {
            if counts.size > 0 {
                put_counts(families, six!("realm"), &[number(family), realm], &counts);
            }
        }
    }
}

fn put_network(families: &mut Families, Shown { route, figures }: &Shown, now_ms: u64) {
    let (Some(name), realm) = (&route.name, route.realm.as_str()) else { return };
    let (name, published) = (name.as_str(), &route.published);
    families.put("allod_network_queue_requests", &[name, realm], route.permits.waiting() as f64);
    let (waiting, waited_ms) = published.waiting(now_ms);
    families.put("allod_network_waiting_requests", &[name, realm], waiting as f64);
    if let Some(waited_ms) = waited_ms {
        families.put("allod_network_waiting_oldest_seconds", &[name, realm], waited_ms as f64 / 1_000.0);
    }
    families.put("allod_network_grants_total", &[name, realm], route.lane.deeds.grants() as f64);
    // Each reason starts at 0, so that its first increase is visible: a single decline raises an alert, and a sweep may be
    // the only one for a long time, and large.
    for (reason, count) in route.lane.deeds.ends() {
        families.put("allod_network_releases_total", &[name, realm, reason], count as f64);
    }
    for (kind, count) in published.refusals.by_kind() {
        // Other kinds are shown only if they occur: otherwise they would make up half of each scrape.
        if count > 0 || kind == "not_enough_capacity" {
            families.put("allod_network_refusals_total", &[kind, name, realm], count as f64);
        }
    }
    for family in Family::ALL {
        let counts = figures.counts(family);
        let of_family = || figures.subnets.iter().filter(|subnet| subnet.subnet.cidr.family() == family);
        if of_family().next().is_none() {
            continue;
        }
        let labels = [number(family), name, realm];
        put_counts(families, six!("network"), &labels, &counts);
        families.put("allod_network_addresses_held_static", &labels, counts.held_static as f64);
        families.put("allod_network_addresses_obsolete", &labels, counts.obsolete as f64);
        if figures.pools_left_out == 0 {
            let largest = largest(family, of_family().flat_map(|subnet| &subnet.pools));
            families.put("allod_network_largest_free_block_addresses", &labels, largest);
        }
        let Grantable { size, left } = figures.grantable(family);
        families.put("allod_network_addresses_grantable", &labels, left as f64);
        families.put("allod_network_addresses_grantable_size", &labels, size as f64);
        if let Some(seconds) = published.exhausted_in_seconds(family, left, now_ms) {
            families.put("allod_network_exhausted_in_seconds", &labels, seconds);
        }
    }
    families.put("allod_network_reservations", &[name, realm], figures.reservations as f64);
    families.put("allod_network_conflicts", &[name, realm], figures.conflicts as f64);
    families.put("allod_network_stopped", &[name, realm], f64::from(u8::from(published.stopped().is_some())));
}

/// The rows of subnets and pools: how many more are allowed, and how many were dropped.
struct Rows {
    left: usize,
    dropped: usize,
}

impl Rows {
    /// Reserves room for up to `wanted` rows, and returns how many fit.
    fn take(&mut self, wanted: usize) -> usize {
        let taken = wanted.min(self.left);
        self.left -= taken;
        self.dropped += wanted - taken;
        taken
    }

    /// Puts a subnet and its pools as far as there is room. The network is given by name and realm.
    fn put_subnet(&mut self, families: &mut Families, [network, realm]: [&str; 2], figures: &SubnetFigures) {
        let SubnetFigures { subnet, counts, pools } = figures;
        let (family, cidr) = (number(subnet.cidr.family()), subnet.cidr.to_string());
        if self.take(1) == 1 {
            put_counts(families, six!("subnet"), &[family, network, realm, &cidr], counts);
        }
        for pool in &pools[..self.take(pools.len())] {
            let kind = match pool.kind {
                PoolKind::Dynamic => "dynamic",
                PoolKind::Static => "static",
            };
            // Several pools may share a name, but no two have the same range.
            let range = pool.range.to_string();
            let labels = [family, kind, network, &range, realm, &cidr];
            put_counts(families, six!("pool"), &labels, &pool.counts);
            let largest = largest(subnet.cidr.family(), [pool]);
            families.put("allod_pool_largest_free_block_addresses", &labels, largest);
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::proto::MetricFamily;

    use super::*;
    use crate::core::state::{Dns, SubnetConfig};
    use crate::core::types::{Labels, SubnetId, Version};

    #[test]
    fn what_finds_no_room_is_counted_also_in_the_middle_of_a_subnet() {
        let subnet = SubnetConfig {
            id: SubnetId(1),
            name: None,
            cidr: "10.0.0.0/24".parse().unwrap(),
            gateway: None,
            dhcp: false,
            dns: Dns::default(),
            zones: Vec::new(),
            tags: Labels::default(),
            draining: false,
            pools: Vec::new(),
            reserved: Vec::new(),
            past_pools: Vec::new(),
            position: 0,
            version: Version(1),
        };
        let pool = |range: &str| PoolUsage {
            range: range.parse().unwrap(),
            name: None,
            kind: PoolKind::Dynamic,
            counts: Counts::default(),
            largest_free_block: None,
        };
        let pools = vec![pool("10.0.0.0/28"), pool("10.0.0.16/28"), pool("10.0.0.32/28")];
        let figures = SubnetFigures { subnet: Arc::new(subnet), counts: Counts::default(), pools };
        // Two subnets with three pools each are eight rows.
        for (room, dropped) in [(9, 0), (8, 0), (7, 1), (6, 2), (5, 3), (4, 4), (1, 7), (0, 8)] {
            let mut families = Families::of(METRICS);
            let mut rows = Rows { left: room, dropped: 0 };
            for name in ["a", "b"] {
                rows.put_subnet(&mut families, [name, "default"], &figures);
            }
            let named = |family: &MetricFamily| {
                ["allod_subnet_addresses_size", "allod_pool_addresses_size"].contains(&family.name())
            };
            let families = families.finish();
            let shown: usize = families.iter().filter(|one| named(one)).map(|one| one.get_metric().len()).sum();
            assert_eq!((shown, rows.dropped), (8 - dropped, dropped), "room for {room}");
        }
    }
}
