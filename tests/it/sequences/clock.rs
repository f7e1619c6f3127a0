//! A clock whose hands a test moves, while the leases of nodes run by the time of the Redis server, which it cannot move.

use std::sync::Arc;

use allod::actors::clock::{Clock, ManualClock, SystemClock};
use allod::core::types::WallTime;

/// The hands are the inner clock's.
#[derive(Debug)]
pub struct RealLeases(pub Arc<ManualClock>);

impl Clock for RealLeases {
    fn boot_ms(&self) -> u64 {
        self.0.boot_ms()
    }

    fn lease_ms(&self) -> u64 {
        SystemClock.boot_ms()
    }

    fn cut_off_ms(&self) -> u64 {
        self.0.cut_off_ms()
    }

    fn wall(&self) -> WallTime {
        self.0.wall()
    }

    fn entropy(&self) -> u128 {
        self.0.entropy()
    }
}
