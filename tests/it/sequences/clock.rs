//! A clock that a test moves. Only the leases of nodes run by real time, like the clock of the Redis server, which a test
//! cannot move.

use std::sync::Arc;

use allod::actors::clock::{Clock, ManualClock, SystemClock};
use allod::core::types::WallTime;

/// All other readings are those of the inner clock.
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
