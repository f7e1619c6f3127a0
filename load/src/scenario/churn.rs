//! Churn: pools at a fill level, in which every lane exchanges an address. Does a full pool cost more than an empty one? And
//! does a network cost more if it is one of many?

use super::steady::Steady;
use super::{NetworkPlan, Settings};

/// The share of the pool that is held by default.
const LEVEL_DEFAULT: f64 = 0.9;
/// The default number of networks of `many_networks`.
const NETWORKS_DEFAULT: usize = 1_000;

/// This share of a number of addresses.
pub fn share(capacity: u64, level: f64) -> u64 {
    (capacity as f64 * level) as u64
}

/// By default one /16 network with random policy, so that free addresses are scattered.
pub fn churn(settings: &Settings) -> Steady {
    churn_of(settings, 1, "10.0.0.0/16", LEVEL_DEFAULT)
}

/// Lanes cycle through a thousand small networks, each half full.
pub fn many_networks(settings: &Settings) -> Steady {
    churn_of(settings, NETWORKS_DEFAULT, "10.0.0.0/24", 0.5)
}

/// Lanes that allocate and release, with these defaults for missing settings.
pub fn churn_of(settings: &Settings, networks: usize, cidr: &str, level: f64) -> Steady {
    let networks = NetworkPlan::several(settings, networks, cidr, "random");
    let (level, hold) = (settings.fill_level.unwrap_or(level), settings.hold.unwrap_or(1));
    // The lanes' own addresses are part of the level. They come and go, so half of them is counted.
    let own = settings.lanes as u64 * hold as u64 / 2;
    let prefill = move |capacity: u64, held: u64| share(capacity, level).saturating_sub(held.saturating_add(own));
    Steady::new(settings, networks, Some(hold)).filled(settings, prefill)
}
