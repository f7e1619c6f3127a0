//! The line of one shard: its head, and what may follow it. This is the one implementation of the rules of the fence, for
//! the stores that keep their heads in memory.
//!
//! Pure: it knows no files and no clock. Neighbours: `memory` and `embedded` ask it before they write.

use std::collections::VecDeque;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::codec::{self, BatchHeader, Format};
use super::{Batch, CommitError, Committed, Digest, Epoch, Head, Seq, ShardId, StoreError, Token};

/// How many batches of a shard are recognised if they are sent again.
const REMEMBERED_BATCHES_MAX: usize = 64;

/// Digest of a line after a batch.
pub(crate) fn digest(parent: Digest, bytes: &[u8]) -> Digest {
    let mut hash = Xxh3::new();
    hash.update(&parent.0.to_be_bytes());
    hash.update(bytes);
    Digest(hash.digest128())
}

/// A shard's head, and the last batches of its owner.
#[derive(Debug, Clone)]
pub(crate) struct FenceLine {
    shard: ShardId,
    head: Head,
    /// Name and digest of the last batches, oldest first, each with the digest of the line before it.
    recent: VecDeque<(Token, Seq, Digest, Digest)>,
}

/// How a batch relates to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchFit {
    /// It is the next one; the line will have this digest.
    Next(Digest),
    /// It was applied before; the line had this digest after it.
    Applied(Digest),
}

impl FenceLine {
    /// The line of a shard that nobody ever took.
    pub(crate) fn new(shard: ShardId) -> Self {
        Self::at(shard, Head::default())
    }

    /// The line of a shard that stands at a head.
    pub(crate) fn at(shard: ShardId, head: Head) -> Self {
        Self { shard, head, recent: VecDeque::new() }
    }

    pub(crate) fn head(&self) -> Head {
        self.head
    }

    pub(crate) fn shard(&self) -> ShardId {
        self.shard
    }

    /// Compares the name and the bytes of a batch with the line. Changes nothing.
    pub(crate) fn check(&self, batch: &BatchHeader, bytes: &[u8]) -> Result<BatchFit, CommitError> {
        let fenced = CommitError::Fenced { shard: self.shard, current: self.head.epoch };
        let owner = batch.token == self.head.token && batch.epoch == self.head.epoch && self.head.epoch > Epoch(0);
        if !owner {
            return Err(fenced);
        }
        if batch.seq.0 <= self.head.seq.0 {
            let known = self.recent.iter().find(|&&(token, seq, ..)| token == batch.token && seq == batch.seq);
            return match known {
                Some(&(_, _, parent, applied)) if digest(parent, bytes) == applied => Ok(BatchFit::Applied(applied)),
                _ => Err(fenced),
            };
        }
        if batch.seq.0 - 1 > self.head.seq.0 {
            let cause = StoreError::Gap { shard: self.shard, last: self.head.seq };
            return Err(CommitError::NotApplied { cause });
        }
        if batch.time < self.head.time || batch.generation < self.head.generation {
            let problem = "its time or its generation is lower than that of the batch before";
            return Err(invalid(batch.shard, batch.seq, problem));
        }
        Ok(BatchFit::Next(digest(self.head.digest, bytes)))
    }

    /// Appends a batch for which [`FenceLine::check`] answered [`BatchFit::Next`].
    pub(crate) fn follow(&mut self, batch: &BatchHeader, digest: Digest) {
        if self.recent.len() == REMEMBERED_BATCHES_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((batch.token, batch.seq, self.head.digest, digest));
        self.head = Head { seq: batch.seq, digest, time: batch.time, generation: batch.generation, ..self.head };
    }

    /// The head after a take-over. Records are written in the format that is wanted, unless those of the line are in a later
    /// one already. None if the token is the owner's already, so that nothing needs to be written.
    pub(crate) fn after_take(&self, token: Token, wanted: Option<Format>) -> Option<Head> {
        let Head { epoch, token: parent, format, .. } = self.head;
        let again = token == parent && epoch > Epoch(0);
        let format = match wanted {
            Some(wanted) => format.max(wanted),
            None if epoch == Epoch(0) => Format::NEWEST,
            None => format,
        };
        (!again).then(|| Head { epoch: Epoch(epoch.0 + 1), token, parent, format, ..self.head })
    }

    /// Moves the line to the head after a take-over.
    pub(crate) fn take(&mut self, head: Head) {
        self.head = head;
    }

    /// The head if this is the owner's token, otherwise the refusal.
    pub(crate) fn check_owner(&self, token: Token) -> Result<Head, StoreError> {
        if token == self.head.token && self.head.epoch > Epoch(0) {
            Ok(self.head)
        } else {
            Err(StoreError::Fenced { shard: self.shard, current: self.head.epoch })
        }
    }

    /// Is the batch of this name durable, and its token still the owner's?
    pub(crate) fn confirm(&self, token: Token, seq: Seq, digest: Digest) -> Result<(), CommitError> {
        let known = self.recent.iter().any(|&(_, known, _, applied)| (known, applied) == (seq, digest));
        let at_head = (self.head.seq, self.head.digest) == (seq, digest);
        if self.head.token == token && (known || at_head) {
            Ok(())
        } else {
            Err(CommitError::Fenced { shard: self.shard, current: self.head.epoch })
        }
    }
}

/// The refusal of a batch that its writer should not have made.
pub(crate) fn invalid(shard: ShardId, seq: Seq, problem: impl std::fmt::Display) -> CommitError {
    let text = format!("batch {} of shard {} cannot be kept: {problem}", seq.0, shard.0);
    CommitError::NotApplied { cause: StoreError::Invalid(Arc::from(text)) }
}

/// The name of a batch.
pub(crate) fn header_of(batch: &Batch) -> BatchHeader {
    let &Batch { shard, epoch, token, seq, time, generation, acts: _ } = batch;
    BatchHeader { shard, epoch, token, seq, time, generation }
}

pub(crate) fn encode(batch: &Batch, format: Format, out: &mut Vec<u8>) -> Result<(), CommitError> {
    codec::encode_batch(batch, format, out).map_err(|error| invalid(batch.shard, batch.seq, format_args!("it {error}")))
}

/// A call may have one batch for each shard: if the first of two were refused, the second could not be told from a gap.
pub(crate) fn check_once_each(batches: &[Batch]) -> Result<(), CommitError> {
    for (at, batch) in batches.iter().enumerate() {
        if batches[..at].iter().any(|before| before.shard == batch.shard) {
            return Err(invalid(batch.shard, batch.seq, "its shard has another batch in the same call"));
        }
    }
    Ok(())
}

pub(crate) fn committed(batch: &BatchHeader, verdict: BatchFit) -> Committed {
    let (BatchFit::Next(digest) | BatchFit::Applied(digest)) = verdict;
    Committed { shard: batch.shard, seq: batch.seq, digest }
}
