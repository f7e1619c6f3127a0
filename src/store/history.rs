//! What a store keeps of the past: the batches themselves, as they were written.
//!
//! A line of batches is read in *stretches*: behind one seq, up to another. What is read is proved to be of the line that
//! the reader knows: [`Recorded::follows`] hashes it behind the digest where the reader stands. So a line that was cut off
//! by a failover, and goes on with other batches under the same numbers, is noticed.
//!
//! Neighbours: each store implements [`super::Store::recorded`]; `actors::events` reads.

use std::sync::Arc;

use super::{Batch, Digest, Seq, ShardId, StoreError, codec, fence};

/// Part of a shard's line: the batches behind `after`, up to `until` and with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The shard.
    pub shard: ShardId,
    /// Not this one, nor any before it.
    pub after: Seq,
    /// The last one.
    pub until: Seq,
}

/// A batch as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The shard.
    pub shard: ShardId,
    /// Its number.
    pub seq: Seq,
    /// Digest of the line up to it, where the store knows it: all do, of what this version wrote.
    pub digest: Option<Digest>,
    /// Its bytes.
    pub bytes: Arc<[u8]>,
}

impl Recorded {
    /// The batch.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the bytes are none, or another's.
    pub fn decode(&self) -> Result<Batch, StoreError> {
        let damaged = |problem: &dyn std::fmt::Display| {
            let text = format!("batch {} in the history of shard {} {problem}", self.seq.0, self.shard.0);
            StoreError::Damaged(text.into())
        };
        let batch = codec::decode_batch(&self.bytes).map_err(|error| damaged(&error))?;
        if (batch.shard, batch.seq) == (self.shard, self.seq) {
            Ok(batch)
        } else {
            Err(damaged(&"has the content of another one"))
        }
    }

    /// Digest of the line with it, if it follows a line that stands there; none if it is of another line.
    pub fn follows(&self, parent: Digest) -> Option<Digest> {
        let digest = fence::digest(parent, &self.bytes);
        self.digest.is_none_or(|known| known == digest).then_some(digest)
    }
}

/// Is an answer long enough? One batch is in it at least, where there is one.
pub(crate) fn is_full(recorded: &[Recorded], read_bytes: usize, bytes: usize) -> bool {
    !recorded.is_empty() && read_bytes >= bytes
}

/// The stretch of a call that asks for so many batches behind one.
pub(crate) fn next(shard: ShardId, after: Seq, limit: usize) -> Stretch {
    Stretch { shard, after, until: Seq(after.0.saturating_add(limit as u64)) }
}
