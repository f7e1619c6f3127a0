//! Replicas that must have a change: how they are awaited, which ones have it, and why that is not enough, in words.
//!
//! `confirms` counts them, and `checks` while nobody changes anything; `shared` keeps the last count.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::server::ServerFacts;
use super::shared::{RedisShared, locked};
use crate::store::StoreError;

/// Replicas are counted again this long after the last count, even if nothing was changed meanwhile.
const COUNTS_EVERY: Duration = Duration::from_secs(2);

/// What a batch waits for at its replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplicaWait {
    /// The replicas have it in memory: WAIT.
    Memory,
    /// The replicas have it in their append-only files, and so has Redis itself: WAITAOF.
    Disk,
}

/// How many replicas have what was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// Replicas that have it in memory.
    pub(super) in_memory: u32,
    /// How far it is on disk, if disks are awaited.
    pub(super) on_disk: Option<OnDisk>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum OnDisk {
    /// This many replicas have it on disk, and Redis itself.
    Replicas(u32),
    /// Not even Redis itself has it on disk.
    NotYet,
    /// Redis does not tell, and says why.
    Refused(Arc<str>),
}

impl Counted {
    /// How many replicas have it where it must be.
    pub(super) fn answering(&self) -> u32 {
        match self.on_disk {
            None => self.in_memory,
            Some(OnDisk::Replicas(count)) => count,
            Some(OnDisk::NotYet | OnDisk::Refused(_)) => 0,
        }
    }

    /// Why that is not enough for this many replicas, if it is not.
    pub(super) fn lacks(&self, wanted: u32) -> Option<String> {
        if self.in_memory < wanted {
            return Some(format!("{wanted} replicas wanted, {} answer", self.in_memory));
        }
        match &self.on_disk {
            None => None,
            Some(OnDisk::Replicas(count)) => (*count < wanted).then(|| {
                format!(
                    "{wanted} replicas wanted that have it on disk, {count} do, {} have it in memory; set `appendonly yes` and \
                     `appendfsync always` at each",
                    self.in_memory
                )
            }),
            Some(OnDisk::NotYet) => Some(
                "Redis has not flushed it to its own disk; set `appendfsync always`, or wait until its append-only file is \
                 written"
                    .to_owned(),
            ),
            Some(OnDisk::Refused(why)) if why.contains("appendonly") => Some(
                "the append-only file of Redis is switched off, and changes were to be on its disk; set `appendonly yes`"
                    .to_owned(),
            ),
            Some(OnDisk::Refused(why)) => Some(format!("Redis does not tell who has it on disk: {why}")),
        }
    }
}

impl RedisShared {
    /// Redis has named its present followers.
    pub(super) fn sees_followers(&self, server: &ServerFacts) {
        if let Some(followers) = server.followers() {
            locked(&self.followers).sees(server.run(), followers, Instant::now());
        }
    }

    /// How many replicas follow according to the last answer of Redis, and how many there were more at most.
    pub(super) fn count_followers(&self) -> (usize, usize) {
        locked(&self.followers).count()
    }

    /// Which replicas are missing while too few answer, and how far the others are, as an addition to a message.
    pub(super) fn named_followers(&self) -> String {
        let told = locked(&self.followers).told(Instant::now());
        told.map_or_else(String::new, |told| format!("; of the replicas, {told}"))
    }

    /// Is the last count of the replicas old?
    pub(super) fn counts_late(&self) -> bool {
        locked(&self.counted_at).is_none_or(|at| at.elapsed() >= COUNTS_EVERY) || self.lacks_replicas()
    }

    /// Takes a count that was made without a change. A replica that is slow once must not stop anything, so too few only
    /// count if they are too few at the next look as well.
    pub(super) fn looks_at_replicas(&self, counted: &Counted) {
        let lacks = counted.lacks(self.replicas).is_some();
        let missed = self.missed.swap(lacks, Ordering::AcqRel);
        if !lacks || missed || self.lacks_replicas() {
            // This notes and reports it.
            let _ = self.replicas_answer(counted);
        }
    }

    /// Is this count of replicas enough?
    pub(super) fn replicas_answer(&self, counted: &Counted) -> Result<(), StoreError> {
        let (wanted, answering) = (self.replicas, counted.answering());
        *locked(&self.counted_at) = Some(Instant::now());
        self.answering.store(answering.into(), Ordering::Relaxed);
        let lacks: Option<Arc<str>> = counted.lacks(wanted).map(Into::into);
        self.missed.store(lacks.is_some(), Ordering::Release);
        let before = self.lacking.change(|lacking| std::mem::replace(lacking, lacks.clone()));
        let Some(lacks) = lacks else {
            self.says_degraded.store(false, Ordering::Relaxed);
            if before.is_some() {
                tracing::info!(redis = %self.place, wanted, answering, "enough replicas answer again");
            }
            return Ok(());
        };
        let acknowledges = self.stand_in().is_some();
        // Only the owner of the register acknowledges anything. A node that becomes the owner later reports it then.
        let is_degraded = acknowledges && !self.owned().is_empty();
        let was_degraded = self.says_degraded.swap(is_degraded, Ordering::Relaxed);
        if before.as_ref() != Some(&lacks) || (is_degraded && !was_degraded) {
            let why = &*lacks;
            if is_degraded {
                tracing::error!(
                    redis = %self.place,
                    wanted,
                    answering,
                    why,
                    "too few replicas answer: what is acknowledged is in Redis and on this machine's disk only, as \
                     `store.redis_degrade` says"
                );
            } else if acknowledges {
                tracing::info!(
                    redis = %self.place,
                    wanted,
                    answering,
                    why,
                    "too few replicas answer; this node owns nothing, and acknowledges nothing"
                );
            } else {
                tracing::warn!(
                    redis = %self.place,
                    wanted,
                    answering,
                    why,
                    "too few replicas answer: nothing is acknowledged"
                );
            }
        }
        let context = format!("waiting for the replicas of Redis at {}", self.place).into();
        Err(StoreError::Io { context, source: Arc::new(std::io::Error::other(lacks.to_string())) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_where_it_is_wanted_is_said_with_what_to_do() {
        let on_disk = |in_memory, on_disk| Counted { in_memory, on_disk: Some(on_disk) };
        for (counted, answering, said) in [
            (Counted { in_memory: 1, on_disk: None }, 1, "2 replicas wanted, 1 answer"),
            (on_disk(1, OnDisk::Replicas(1)), 1, "2 replicas wanted, 1 answer"),
            (on_disk(2, OnDisk::Replicas(1)), 1, "1 do, 2 have it in memory; set `appendonly yes`"),
            (on_disk(2, OnDisk::NotYet), 0, "its own disk; set `appendfsync always`"),
            (on_disk(2, OnDisk::Refused("appendonly is disabled.".into())), 0, "switched off"),
            (on_disk(2, OnDisk::Refused("unknown command".into())), 0, "on disk: unknown command"),
        ] {
            assert_eq!(counted.answering(), answering, "{counted:?}");
            assert!(counted.lacks(2).is_some_and(|lacks| lacks.contains(said)), "{counted:?}");
        }
        assert_eq!(Counted { in_memory: 2, on_disk: None }.lacks(2), None);
        assert_eq!(on_disk(2, OnDisk::Replicas(2)).lacks(2), None);
    }
}
