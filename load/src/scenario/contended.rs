//! Contended: more clients than a pool has room for. A client that is refused asks again at once, or waits for its turn.

use super::churn::share;
use super::steady::Steady;
use super::{NetworkPlan, Settings};

/// How many lanes compete for each free address, if no fill level is set.
const LANES_OF_AN_ADDRESS: u64 = 8;

/// One /20 network that is almost full; the remaining addresses pass from lane to lane.
pub fn contended(settings: &Settings) -> Steady {
    let networks = NetworkPlan::several(settings, 1, "10.0.0.0/20", "oldest");
    let (level, room) = (settings.fill_level, (settings.lanes as u64 / LANES_OF_AN_ADDRESS).max(1));
    let prefill = move |capacity: u64, held: u64| match level {
        Some(level) => share(capacity, level).saturating_sub(held),
        None => capacity.saturating_sub(room.saturating_add(held)),
    };
    let lanes = Steady::new(settings, networks, Some(settings.hold.unwrap_or(1))).filled(settings, prefill);
    match settings.wait_seconds {
        Some(seconds) => lanes.with_member(&format!(r#""wait_seconds":{seconds}"#)),
        None => lanes,
    }
}
