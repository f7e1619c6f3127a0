//! Whether the store can take changes, and what stands in the way if not: a full memory, an eviction policy, missing
//! replicas, a move.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::RedisShared;
use crate::store::redis::redo::Redo;
use crate::store::redis::replicas::ReplicaWait;
use crate::store::{CommitError, StoreError, StoreHealth};

/// For at least this long after Redis had no memory left, grants are refused without asking Redis. Longer while it says so
/// itself.
const FULL_RETRY: Duration = Duration::from_secs(1);

impl RedisShared {
    pub(in crate::store::redis) fn health(&self) -> StoreHealth {
        if self.open().is_err() {
            StoreHealth::Failed
        } else if self.is_full.load(Ordering::Acquire)
            || self.refused_at.get().is_some_and(|at| at.elapsed() < FULL_RETRY)
        {
            StoreHealth::Full
        } else if self.obstacle().is_some() {
            StoreHealth::Hindered
        } else {
            StoreHealth::Ready
        }
    }

    /// Why nothing may be granted although Redis takes changes.
    pub(in crate::store::redis) fn obstacle(&self) -> Option<Arc<str>> {
        if let Some(policy) = self.evicting.get() {
            return Some(
                format!(
                    "Redis may throw records away when its memory is full (maxmemory-policy {policy}), until \
                     `redis-cli config set maxmemory-policy noeviction`"
                )
                .into(),
            );
        }
        self.bars_taking()
    }

    /// Why no commit and no take-over can be confirmed now.
    pub(in crate::store::redis) fn bars_taking(&self) -> Option<Arc<str>> {
        if let Some(moving) = self.moving.get() {
            return Some(moving);
        }
        if self.emptied.is_there() {
            // This node does not know which of the two applies, and it may be the last owner itself.
            let waits = "a node that owns the register still has it in memory and writes it anew, and is waited for; where the \
             last \
                         owner's lease ran out before, nobody does, and every node ends after a minute";
            // The message about a missing key names both causes, too.
            let what = if self.in_cluster {
                "Redis was emptied, or the move of the register's slot broke off, and something of the register is on another \
                 server of \
                 the cluster (`redis-cli --cluster fix` ends one, and the nodes are started then). Where it was emptied"
            } else {
                "Redis was emptied:"
            };
            return Some(format!("{what} {waits}").into());
        }
        if self.awaited.is_there() {
            let text = "Redis went back past a hand-over, and the node that owned the register before gives back its part first";
            return Some(text.into());
        }
        let lacking = self.lacking.get()?;
        match self.stand_in() {
            None => Some(lacking),
            Some(redo) => redo.refuses().map(|why| format!("{lacking}, and {why}").into()),
        }
    }

    /// Notes the result of a request to Redis that concerns everything: a confirmation, an owner, the nodes. It shows
    /// whether Redis is reached, before the next request is made.
    pub(in crate::store::redis) fn was_asked(&self, failed: Option<&StoreError>) {
        match failed {
            Some(error @ StoreError::Io { .. }) => self.unreached.set(Some(error.to_string().into())),
            // A refusal is an answer.
            Some(_) | None => self.unreached.clear(),
        }
    }

    /// As [`RedisShared::was_asked`], for a commit or a proof.
    pub(in crate::store::redis) fn was_asked_to_commit<T>(&self, ended: &Result<T, CommitError>) {
        self.was_asked(match ended {
            Err(CommitError::NotApplied { cause } | CommitError::Unknown { cause }) => Some(cause),
            Ok(_) | Err(CommitError::Fenced { .. } | CommitError::Mismatch { .. }) => None,
        });
    }

    /// Why the last request got no answer, if so.
    pub(in crate::store::redis) fn unreached(&self) -> Option<Arc<str>> {
        self.unreached.get()
    }

    pub(in crate::store::redis) fn is_unreached(&self) -> bool {
        self.unreached.is_there()
    }

    /// The redo journal, if it may stand in for missing replicas.
    pub(in crate::store::redis) fn stand_in(&self) -> Option<&Arc<Redo>> {
        self.redo.as_ref().filter(|redo| redo.acknowledges())
    }

    /// Did fewer replicas than wanted answer last, or not in the wanted way?
    pub(in crate::store::redis) fn lacks_replicas(&self) -> bool {
        self.lacking.is_there()
    }

    /// Are changes acknowledged although too few replicas have them, because they are on this machine's disk?
    pub(in crate::store::redis) fn is_degraded(&self) -> bool {
        self.lacks_replicas() && self.obstacle().is_none()
    }

    pub(in crate::store::redis) fn waits(&self) -> bool {
        self.replicas > 0
    }

    /// How replicas are awaited, if they are.
    pub(in crate::store::redis) fn waiting(&self) -> Option<ReplicaWait> {
        self.waits().then_some(self.waiting)
    }

    /// How many replicas a round of confirmations waits for: only those that are there, if others may be missing.
    pub(in crate::store::redis) fn waited_for(&self) -> u32 {
        let answering = u32::try_from(self.answering()).unwrap_or(u32::MAX);
        if self.stand_in().is_some() { answering.min(self.replicas) } else { self.replicas }
    }

    pub(in crate::store::redis) fn answering(&self) -> u64 {
        self.answering.load(Ordering::Relaxed)
    }

    /// Redis had no memory left for something.
    pub(in crate::store::redis) fn full(&self) {
        self.refused_at.set(Some(Instant::now()));
        self.sees_memory(Some(true));
    }

    /// Redis accepted a change that does not only let go.
    pub(in crate::store::redis) fn has_room(&self) {
        self.refused_at.clear();
        self.sees_memory(Some(false));
    }

    /// Notes whether its memory is full, by its own word. If this is not known, changes are tried again a moment after each
    /// refusal.
    pub(in crate::store::redis) fn sees_memory(&self, full: Option<bool>) {
        let full = full.unwrap_or(false);
        // Read first, because this is called after each commit while others read it.
        if self.is_full.load(Ordering::Acquire) == full || self.is_full.swap(full, Ordering::AcqRel) == full {
            return;
        }
        if full {
            tracing::error!(redis = %self.place, "{}: releases and reads go on, nothing new is granted", self.info.full);
        } else {
            tracing::info!(redis = %self.place, "Redis has memory again, as far as it tells");
        }
    }

    /// Is it worth asking whether its memory is still full?
    pub(in crate::store::redis) fn may_be_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire) || self.refused_at.is_there()
    }
}
