//! When a node that does not own the register tries to: not in step with others, and after them where it was replaced.
//!
//! What made a node late once may do so again, so that one lets others go first for two leases and some more. It looks
//! (`draining`) who owns the register meanwhile, and takes it where nobody else does within a lease or is there at all.

use std::time::Duration;

use super::keeper::Keeper;
use crate::limits::NODE_LEASE_MS;

/// How often it tries, on average.
const CONTENDS_EVERY: Duration = Duration::from_millis(500);
/// Which part of that is drawn anew each time, half of it to either side.
const CONTENDS_SPREAD: f64 = 0.4;
/// For how long others go first, and how much more that may be.
const STAYS_OFF_MS: u64 = 2 * NODE_LEASE_MS;
const STAYS_OFF_MORE_MS: u64 = NODE_LEASE_MS / 2;

/// When a node tries again, by what it drew.
pub(super) fn contends_in(drawn: u64) -> Duration {
    CONTENDS_EVERY.mul_f64(1.0 + CONTENDS_SPREAD * ((drawn % 1_000) as f64 / 1_000.0 - 0.5))
}

impl Keeper {
    /// Something that differs from node to node and from time to time, and is the same in a schedule that is run again.
    pub(super) fn drawn(&self) -> u64 {
        let seen = (self.card.name.as_str(), self.server.clock.lease_ms());
        xxhash_rust::xxh3::xxh3_64(format!("{seen:?}").as_bytes())
    }

    /// From now on other nodes go first: this one was replaced, or they do not reach it.
    pub(super) fn stay_off(&mut self) {
        let more_ms = self.drawn() % (STAYS_OFF_MORE_MS + 1);
        self.stays_off_ms = self.server.clock.lease_ms() + STAYS_OFF_MS + more_ms;
        (self.was_fenced, self.ownerless_ms) = (false, None);
    }

    pub(super) fn stays_off(&self) -> bool {
        self.server.clock.lease_ms() < self.stays_off_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_nodes_do_not_contend_in_step() {
        let waits: Vec<Duration> = (0..64).map(|n| contends_in(n * 7_919)).collect();
        let (least, most) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
        assert!(*least >= Duration::from_millis(400) && *most <= Duration::from_millis(600), "{waits:?}");
        assert!(*most - *least > Duration::from_millis(50), "{waits:?}");
    }
}
