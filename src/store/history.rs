//! What a store keeps of the past: the batches themselves, as they were written.
//!
//! A line of batches is read in *stretches*: after one seq, up to another. The reader proves that what it read belongs to
//! the line that it knows: [`RecordedBatch::follows`] hashes a batch onto the digest at which the reader stands. This
//! reveals a line that a failover cut off and that went on with other batches under the same numbers.
//!
//! Neighbours: each store implements [`super::Store::recorded`]; `actors::events` reads.

use std::sync::Arc;

use super::codec::{self, CodecError};
use super::{Batch, Digest, Seq, ShardId, StoreError, TransactionId, fence};
use crate::core::state::{EventKind, Key};
use crate::core::types::{NetworkId, Place, WallTime};

/// Part of a shard's line: the batches after `after`, up to and including `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The shard.
    pub shard: ShardId,
    /// The batch before the first one.
    pub after: Seq,
    /// The last one.
    pub until: Seq,
}

/// A batch as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedBatch {
    /// The shard.
    pub shard: ShardId,
    /// Its number.
    pub seq: Seq,
    /// Digest of the line up to it, if the store knows it. Every store knows it for whatever this version wrote.
    pub digest: Option<Digest>,
    /// Its bytes.
    pub bytes: Arc<[u8]>,
}

/// What can be seen of a step that has an event without decoding the step.
#[derive(Debug)]
pub struct Glance<'a> {
    /// The network.
    pub network: NetworkId,
    /// When.
    pub wall: WallTime,
    /// What changed.
    pub key: Key,
    /// What was held before and after the step: length of the prefix, scope, owner.
    pub held: [Option<(u8, &'a str, &'a str)>; 2],
}

/// Transactions that move holdings from one network to another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passing {
    /// Those with a holding that leaves a network here.
    pub leaves: Vec<TransactionId>,
    /// Those with a holding that arrives in a network here.
    pub arrives: Vec<TransactionId>,
    /// When the first act of the batch was decided, and the latest.
    pub walls: Option<(WallTime, WallTime)>,
}

impl RecordedBatch {
    /// Decodes the batch.
    ///
    /// # Errors
    /// [`StoreError::Newer`] if this version cannot read the bytes, [`StoreError::Damaged`] if they are another batch.
    pub fn decode(&self) -> Result<Batch, StoreError> {
        let batch = codec::decode_batch(&self.bytes).map_err(|error| self.newer(&error))?;
        if (batch.shard, batch.seq) == (self.shard, self.seq) {
            Ok(batch)
        } else {
            Err(StoreError::Damaged(format!("{} has the content of another one", self.named()).into()))
        }
    }

    /// The place after this batch, given the digest of the line up to and including it.
    ///
    /// # Errors
    /// As for [`RecordedBatch::decode`].
    pub fn place(&self, digest: Digest) -> Result<Place, StoreError> {
        let header = codec::batch_header(&mut codec::Reader::new(&self.bytes)).map_err(|error| self.newer(&error))?;
        let (shard, epoch, seq) = (self.shard.0, header.epoch.0, self.seq.0);
        Ok(Place { shard, epoch, seq, steps: None, digest: digest.0 })
    }

    /// Does any step with an event match? Looks at the bytes, and decodes no more than what a glance shows.
    ///
    /// # Errors
    /// As for [`RecordedBatch::decode`].
    pub fn any(&self, mut is: impl FnMut(&Glance<'_>) -> bool) -> Result<bool, StoreError> {
        let mut found = false;
        let walked = codec::walk_acts(&self.bytes, |act, step| {
            let (network, wall) = (act.network, act.wall);
            if let Some((_, before)) = step.event().filter(|_| !found) {
                found = match step.key {
                    Key::Address(_) => {
                        is(&Glance { network, wall, key: step.key, held: [held_of(before)?, held_of(step.state)?] })
                    }
                    Key::Config | Key::Subnet(_) | Key::Deployment => {
                        is(&Glance { network, wall, key: step.key, held: [None, None] })
                    }
                };
            }
            Ok::<(), CodecError>(())
        });
        walked.map_err(|error| self.newer(&error))?;
        Ok(found)
    }

    /// Which transactions in this batch move holdings from one network to another.
    ///
    /// # Errors
    /// As for [`RecordedBatch::decode`].
    pub fn passing(&self) -> Result<Passing, StoreError> {
        let mut passing = Passing::default();
        let walked = codec::walk_acts(&self.bytes, |act, step| {
            passing.walls =
                passing.walls.map_or(Some((act.wall, act.wall)), |(first, last)| Some((first, last.max(act.wall))));
            let is_holding = matches!(step.key, Key::Address(_));
            let (Some(transaction), Some((EventKind::Transferred, before)), true) =
                (act.transaction, step.event(), is_holding)
            else {
                return Ok::<(), CodecError>(());
            };
            let of = match (step.state, before) {
                (None, _) => &mut passing.leaves,
                (Some(_), None) => &mut passing.arrives,
                // From one owner to another, within a network.
                (Some(_), Some(_)) => return Ok(()),
            };
            if of.last() != Some(&transaction) {
                of.push(transaction);
            }
            Ok(())
        });
        walked.map_err(|error| self.newer(&error))?;
        Ok(passing)
    }

    fn named(&self) -> String {
        format!("batch {} in the history of shard {}", self.seq.0, self.shard.0)
    }

    /// The bytes have the checksum of their frame, or the digest of their line.
    fn newer(&self, error: &CodecError) -> StoreError {
        StoreError::newer(format_args!("{} {error}", self.named()))
    }

    /// The digest of the line including this batch, if the batch follows a line that stands at `parent`; none if it belongs
    /// to another line.
    pub fn follows(&self, parent: Digest) -> Option<Digest> {
        let digest = fence::digest(parent, &self.bytes);
        self.digest.is_none_or(|known| known == digest).then_some(digest)
    }
}

fn held_of(record: Option<&[u8]>) -> Result<Option<(u8, &str, &str)>, CodecError> {
    record.map_or(Ok(None), codec::held_of)
}

/// Is an answer long enough? It has at least one batch, if there is one.
pub(crate) fn is_full(recorded: &[RecordedBatch], read_bytes: usize, bytes: usize) -> bool {
    !recorded.is_empty() && read_bytes >= bytes
}

/// The stretch that asks for at most `limit` batches after `after`.
pub(crate) fn next(shard: ShardId, after: Seq, limit: usize) -> Stretch {
    Stretch { shard, after, until: Seq(after.0.saturating_add(limit as u64)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::codec::samples;

    #[test]
    fn a_batch_that_only_a_newer_version_reads_is_no_damage() {
        let batch = samples::full_batch();
        let mut bytes = Vec::new();
        fence::encode(&batch, codec::Format::FIRST, &mut bytes).unwrap();
        let recorded = |bytes: &[u8], shard| RecordedBatch { shard, seq: batch.seq, digest: None, bytes: bytes.into() };
        assert_eq!(recorded(&bytes, batch.shard).decode().unwrap(), batch);
        let other = recorded(&bytes, ShardId(batch.shard.0 + 1)).decode().unwrap_err();
        assert!(matches!(other, StoreError::Damaged(_)), "{other}");
        bytes.push(0);
        let longer = recorded(&bytes, batch.shard).decode().unwrap_err();
        assert!(!matches!(longer, StoreError::Damaged(_)), "{longer}");
        assert!(longer.to_string().contains("newer version of allod: start that one"), "{longer}");
    }
}
