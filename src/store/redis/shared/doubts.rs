//! Whether Redis may have gone back, and what was replayed since the start (see `heal`).

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::{RedisShared, locked};
use crate::store::redis::awaited;

impl RedisShared {
    /// Redis may have gone back: nothing is asked of it until this is known.
    pub(in crate::store::redis) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::AcqRel);
    }

    pub(in crate::store::redis) fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Acquire)
    }

    pub(in crate::store::redis) fn in_doubt(&self) -> bool {
        self.settled.load(Ordering::Acquire) < self.doubts()
    }

    /// Resolves all doubts up to this one.
    pub(in crate::store::redis) fn settled(&self, doubt: u64) {
        self.settled.fetch_max(doubt, Ordering::AcqRel);
    }

    /// Something was replayed: this many batches, or a take-over.
    pub(in crate::store::redis) fn heals(&self, batches: u64) {
        self.healed.fetch_add(1, Ordering::AcqRel);
        self.healed_batches.fetch_add(batches, Ordering::AcqRel);
    }

    /// How often something was replayed.
    pub(in crate::store::redis) fn healed(&self) -> u64 {
        self.healed.load(Ordering::Acquire)
    }

    pub(in crate::store::redis) fn healed_batches(&self) -> u64 {
        self.healed_batches.load(Ordering::Acquire)
    }

    /// The leases of all that is owned were renewed, by a call that was sent at this instant.
    pub(in crate::store::redis) fn leased(&self, at: Instant) {
        self.leased.send_replace(Some(at));
    }

    /// Waits until they are renewed by a call that is sent after this instant.
    pub(in crate::store::redis) async fn leased_after(&self, instant: Instant) {
        let mut leased = self.leased.subscribe();
        if leased.wait_for(|at| at.is_some_and(|at| at > instant)).await.is_err() {
            // The sender is part of `self`.
            std::future::pending().await
        }
    }

    /// Notes where the shards stand while other nodes may have something to give back. Is it worth waiting any longer?
    pub(in crate::store::redis) fn awaits(&self, points: &awaited::Points) -> bool {
        self.awaited.change(|waits| {
            if waits.is_none() {
                tracing::warn!(
                    redis = %self.place,
                    "Redis went back past a hand-over: the node that owned the register then is waited for, to give back its \
                     part"
                );
            }
            awaited::looks(waits, points, Instant::now())
        })
    }

    pub(in crate::store::redis) fn awaits_nobody(&self) {
        self.awaited.clear();
    }

    /// What was missing is back, as far as this process has it.
    pub(in crate::store::redis) fn played(&self) {
        *locked(&self.played) = Some(Instant::now());
    }

    /// When that last happened.
    pub(in crate::store::redis) fn played_at(&self) -> Option<Instant> {
        *locked(&self.played)
    }
}
