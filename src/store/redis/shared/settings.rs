//! What Redis was seen to be set to, and what is being done to it, which may change while a store runs: what it means for grants,
//! and what is said of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{RedisShared, locked};

/// So much of a shard's log stays while another node reads the register beside its owner: some thousands of batches, as it plays what
/// is committed meanwhile over what it has read.
const BESIDE_BYTES: u64 = 16 << 20;
const BESIDE_SECONDS: u64 = 600;

impl RedisShared {
    /// Another node reads the register beside this owner, or does not any more.
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

    /// Whether Redis has an append-only file was seen; tells whether it had one before and has none now.
    pub(in crate::store::redis) fn sees_appends(&self, appends: bool) -> bool {
        locked(&self.appends).replace(appends) == Some(true) && !appends
    }

    /// What an acknowledged change survives from now on, or does not any more.
    pub(in crate::store::redis) fn sees_durability(&self, durability: String) {
        *locked(&self.survives) = durability.into();
    }

    pub(in crate::store::redis) fn durability(&self) -> Arc<str> {
        Arc::clone(&locked(&self.survives))
    }

    pub(in crate::store::redis) fn appends(&self) -> Option<bool> {
        *locked(&self.appends)
    }

    /// The slot is moved, or is not.
    pub(in crate::store::redis) fn moves(&self, moving: Option<Arc<str>>) {
        self.moving.set(moving);
    }

    /// May it throw records away?
    pub(in crate::store::redis) fn may_evict(&self) -> bool {
        self.evicting.is_there()
    }

    /// Redis may throw records away, by this policy; or may not.
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
