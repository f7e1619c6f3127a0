//! Churn: pools at a fill level, and every lane exchanges an address. Does a full pool cost more than an empty one? And what
//! does a network cost that is one of many?

use super::steady::Steady;
use super::{NetworkPlan, Settings};

/// Share of the pool that is held, unless said otherwise.
const LEVEL_DEFAULT: f64 = 0.9;
/// So many are many networks, unless said otherwise.
const NETWORKS_DEFAULT: usize = 1_000;

/// Of so many addresses this share.
pub fn share(capacity: u64, level: f64) -> u64 {
    (capacity as f64 * level) as u64
}

/// One network of a /16 by default, drawn from at random, so that what is free lies scattered.
pub fn churn(settings: &Settings) -> Steady {
    churn_of(settings, 1, "10.0.0.0/16", LEVEL_DEFAULT)
}

/// Lanes go round a thousand small networks; each is half full.
pub fn many_networks(settings: &Settings) -> Steady {
    churn_of(settings, NETWORKS_DEFAULT, "10.0.0.0/24", 0.5)
}

/// Lanes that take and give back, with these defaults for what the settings do not say.
pub fn churn_of(settings: &Settings, networks: usize, cidr: &str, level: f64) -> Steady {
    let networks = NetworkPlan::several(settings, networks, cidr, "random");
    let (level, hold) = (settings.fill_level.unwrap_or(level), settings.hold.unwrap_or(1));
    // The lanes' own addresses are part of the level; they come and go, so half of them counts.
    let own = settings.lanes as u64 * hold as u64 / 2;
    let prefill = move |capacity: u64, held: u64| share(capacity, level).saturating_sub(held.saturating_add(own));
    Steady::new(settings, networks, Some(hold)).filled(settings, prefill)
}
