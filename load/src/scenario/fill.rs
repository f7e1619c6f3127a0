//! Fill: every lane allocates addresses and keeps them. With `hold` it also releases.

use super::steady::Steady;
use super::{NetworkPlan, Settings};

/// /8 networks in turn; one by default.
pub fn fill(settings: &Settings) -> Steady {
    Steady::new(settings, NetworkPlan::several(settings, 1, "10.0.0.0/8", "lowest"), settings.hold)
}
