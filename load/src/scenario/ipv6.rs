//! IPv6: addresses from a /64, whose free addresses no list could hold.

use super::steady::Steady;
use super::{NetworkPlan, Settings};

/// Addresses that a lane keeps by default.
const HOLD_DEFAULT: usize = 16;

/// One network with random policy by default: its addresses lie far apart.
pub fn ipv6(settings: &Settings) -> Steady {
    let networks = NetworkPlan::several(settings, 1, "2001:db8::/64", "random");
    Steady::new(settings, networks, Some(settings.hold.unwrap_or(HOLD_DEFAULT)))
}
