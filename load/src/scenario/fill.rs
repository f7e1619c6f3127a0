//! Fill: every lane asks for addresses and keeps them. With `hold` it releases too.

use super::steady::Steady;
use super::{NetworkPlan, Settings};

/// Networks of a /8 in turn; one by default.
pub fn fill(settings: &Settings) -> Steady {
    Steady::new(settings, NetworkPlan::several(settings, 1, "10.0.0.0/8", "lowest"), settings.hold)
}
