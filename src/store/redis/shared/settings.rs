//! What Redis was seen to be configured to, and what is being done to it. Both may change while a store runs: what this
//! means for grants, and what is reported.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{RedisShared, locked};

/// How much of a shard's log stays while another node reads the register in order to take it over: some thousands of
/// batches, because that node applies what is committed meanwhile to what it has read.
const BESIDE_BYTES: u64 = 16 << 20;
const BESIDE_SECONDS: u64 = 600;

impl RedisShared {
    /// Notes whether another node is reading the register in order to take it over.
    pub(in crate::store::redis) fn is_read_beside(&self, is_read: bool) {
        self.read_beside.store(is_read, Ordering::Release);
    }

    /// For how many seconds batches stay in the log of a shard, and how many bytes of them.
    pub(in crate::store::redis) fn keeps(&self) -> (u64, u64) {
        if self.read_beside.load(Ordering::Acquire) {
            return (self.keep_seconds.max(BESIDE_SECONDS), self.keep_bytes.max(BESIDE_BYTES));
        }
        (self.keep_seconds, self.keep_bytes)
    }

    /// Notes whether Redis has an append-only file. True if it had one before and has none now.
    pub(in crate::store::redis) fn sees_appends(&self, appends: bool) -> bool {
        locked(&self.appends).replace(appends) == Some(true) && !appends
    }

    /// Sets what an acknowledged change survives from now on.
    pub(in crate::store::redis) fn sees_durability(&self, durability: String) {
        *locked(&self.survives) = durability.into();
    }

    pub(in crate::store::redis) fn durability(&self) -> Arc<str> {
        Arc::clone(&locked(&self.survives))
    }

    pub(in crate::store::redis) fn appends(&self) -> Option<bool> {
        *locked(&self.appends)
    }

    pub(in crate::store::redis) fn moves(&self, moving: Option<Arc<str>>) {
        self.moving.set(moving);
    }

    pub(in crate::store::redis) fn may_evict(&self) -> bool {
        self.evicting.is_there()
    }

    /// Notes the policy by which Redis may evict records; none if it may not.
    pub(in crate::store::redis) fn evicts(&self, policy: Option<&str>) {
        self.evicting.change(|evicting| {
            if evicting.as_deref() == policy {
                return;
            }
            match policy {
                Some(policy) => tracing::error!(
                    redis = %self.place,
                    policy,
                    "Redis was set to throw records away when its memory is full, and an address would be given twice: \
                     nothing is granted until `maxmemory-policy` is `noeviction` again"
                ),
                None => tracing::info!(redis = %self.place, "Redis keeps every record again"),
            }
            *evicting = policy.map(Into::into);
        });
    }
}
