//! Why a commit failed, and what went wrong below it.
//!
//! Before: every store. After: `actors::committer`, which does what each case asks for; `serve`, if a store cannot be opened.

use std::sync::Arc;

use rustix::io::Errno;

use super::{Epoch, Seq, ShardId};
use crate::core::state::Key;
use crate::core::types::NetworkId;

/// Why a commit failed, by what the caller must do. `Display` leaves the cause to the chain.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// Certainly nothing was written. The same batches may be sent again. After the deadline, memory goes back to the last
    /// durable seq and answers say `applied: false`.
    #[error("the batch was not applied")]
    NotApplied {
        /// What stands in the way.
        #[source]
        cause: StoreError,
    },
    /// Nobody knows whether it was written. Send the same bytes again, or take the shard again; answers say `applied: "unknown"`.
    #[error("the outcome of the batch is unknown")]
    Unknown {
        /// What happened.
        #[source]
        cause: StoreError,
    },
    /// Another node has taken the shard. Stop serving it.
    #[error("shard {} was taken over in epoch {}", .shard.0, .current.0)]
    Fenced {
        /// The shard.
        shard: ShardId,
        /// The epoch of the present owner.
        current: Epoch,
    },
    /// A step expects something else than is stored. So memory was wrong, and nothing was written. Nothing that was decided
    /// on that memory is sent again, whichever network it concerns: all of it is given up and loaded anew (R-4 in
    /// [`consistency`](crate::consistency)).
    #[error("shard {} holds something else than batch {} expects at {key:?} of network {network}", .shard.0, .seq.0)]
    Mismatch {
        /// The shard.
        shard: ShardId,
        /// The batch.
        seq: Seq,
        /// The network.
        network: NetworkId,
        /// The key in that network.
        key: Key,
        /// The mark that the step expects.
        expected: Option<u64>,
        /// The mark that is there.
        found: Option<u64>,
    },
}

/// What went wrong in the store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// There is no room: changes that take more space are refused until there is.
    /// [`StoreInfo::full`](super::StoreInfo::full) says where.
    #[error("the store has no room for more")]
    Full,
    /// The store refuses everything because of an earlier failure; only a restart helps.
    #[error("the store stopped after an earlier failure: {0}")]
    Poisoned(Arc<str>),
    /// Reading or writing failed. The message includes the cause, so that it is not lost if somebody logs it without its chain.
    #[error("{context}: {source}")]
    Io {
        /// What was being done: verb and thing.
        context: Arc<str>,
        /// The cause.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// The stored data cannot be trusted. Says where, and what to do.
    #[error("{0}")]
    Damaged(Arc<str>),
    /// Part of the history cannot be trusted, but a snapshot has all that it led to: no state is lost. Says where, what
    /// would be given up, and what to do.
    #[error("{0}")]
    HistoryDamaged(Arc<str>),
    /// A snapshot cannot be trusted, but the log has all that led to it: no state is lost. Says where and what to do.
    #[error("{0}")]
    SnapshotDamaged(Arc<str>),
    /// The data belongs to something else, or to a newer version. Says what it is, and what to do.
    #[error("{0}")]
    Foreign(Arc<str>),
    /// The data is as it was written, or nothing shows that it is not, and this version cannot read it: perhaps a newer one
    /// wrote it. That is no damage: whoever was told so would restore a backup, and lose what was granted since. Says what it
    /// is, where, and what to do.
    #[error("{0}")]
    Newer(Arc<str>),
    /// Another process has it open.
    #[error("{0}")]
    Locked(Arc<str>),
    /// The given token is not the one of the shard's last take-over.
    #[error("shard {} was taken over in epoch {}", .shard.0, .current.0)]
    Fenced {
        /// The shard.
        shard: ShardId,
        /// The epoch of the present owner.
        current: Epoch,
    },
    /// Another node owns the shard, and its lease has not run out.
    #[error("shard {} is owned by node {owner} for another {left_ms} ms", .shard.0)]
    Held {
        /// The shard.
        shard: ShardId,
        /// Name of the node.
        owner: Arc<str>,
        /// Where the other nodes reach it.
        address: Arc<str>,
        /// What is left of its lease by the store's time, if it is not renewed.
        left_ms: u64,
    },
    /// Batches are missing between the head and the given one, because they were refused.
    #[error("shard {} ends at batch {}, so a later one than the next cannot follow", .shard.0, .last.0)]
    Gap {
        /// The shard.
        shard: ShardId,
        /// Its last batch.
        last: Seq,
    },
    /// The store cannot keep what it was given: a fault of the caller, not of the store.
    #[error("{0}")]
    Invalid(Arc<str>),
}

/// What to do about something that is as it was written and that this version cannot read.
pub(crate) const PERHAPS_NEWER: &str = "it is perhaps of a newer version of allod: start that one";

/// Why another owner goes first. The store can be reached, and will accept later what it refuses now.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct AnotherFirst(String);

impl StoreError {
    /// Another node may have more right to the register, and goes first for a while; `why` says so.
    pub(crate) fn another_first(context: Arc<str>, why: &str) -> Self {
        Self::Io { context, source: Arc::new(std::io::Error::other(AnotherFirst(why.to_owned()))) }
    }

    /// Was it made by [`StoreError::another_first`]?
    pub(crate) fn is_another_first(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        source.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<AnotherFirst>)
    }

    /// Something is as it was written, and this version cannot read it; `what` says where it is, and how it looks.
    pub(crate) fn newer(what: impl std::fmt::Display) -> Self {
        Self::Newer(format!("{what}; {PERHAPS_NEWER}").into())
    }

    /// Will the next start of this version not be able to read it either?
    pub(crate) fn stays_unread(&self) -> bool {
        self.is_unreadable() || matches!(self, Self::Newer(_))
    }

    /// Is the content wrong or gone? A disk that cannot read a sector now will not read it later either; other errors of the
    /// disk or the machine may pass.
    pub(crate) fn is_unreadable(&self) -> bool {
        match self {
            StoreError::Damaged(_) => true,
            StoreError::Io { source, .. } => source.raw_os_error() == Some(Errno::IO.raw_os_error()),
            _ => false,
        }
    }
}

/// An error and everything below it, in one line. A cause that an error already states itself is not repeated.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(cause) = below {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        below = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_a_newer_version_reads_stays_unread_and_nothing_of_it_is_to_be_given_up() {
        let newer = StoreError::newer("log/1 has something");
        assert_eq!((newer.stays_unread(), newer.is_unreadable()), (true, false));
        let damaged = StoreError::Damaged("log/1 is damaged".into());
        assert_eq!((damaged.stays_unread(), damaged.is_unreadable()), (true, true));
        assert!(!StoreError::Full.stays_unread());
    }

    #[test]
    fn what_failed_says_its_cause_and_says_it_once() {
        let source = Arc::new(std::io::Error::other("2 replicas follow, and 1 has everything"));
        let cause = StoreError::Io { context: "asking Redis".into(), source };
        assert_eq!(cause.to_string(), "asking Redis: 2 replicas follow, and 1 has everything");
        assert_eq!(chain(&cause), cause.to_string());
        let commit = CommitError::NotApplied { cause: cause.clone() };
        assert_eq!(chain(&commit), format!("the batch was not applied: {cause}"));
    }
}
