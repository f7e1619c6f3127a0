//! State out of snapshot and log: the net effect of the log, merged with the snapshot below it.
//!
//! Records are states and not deltas, so the net effect of the log at a key is its last state; its first expectation must
//! fit the snapshot, and each later one the state before it. Steps are gathered and sorted; a table of keys would cost
//! more than the sort. What does not fit is damage: it is never passed on.
//!
//! Neighbours: `reader` makes images of what comes out, `compactor` the next snapshot.

use std::sync::Arc;

use hashbrown::HashMap;

use super::frame::{self, Frame, FrameEntry};
use super::problem;
use super::segment::{self, Segment};
use super::snapshot::Snapshot;
use crate::core::state::Key;
use crate::core::types::NetworkId;
use crate::store::codec::{self, CodecError};
use crate::store::fence::{BatchFit, FenceLine};
use crate::store::{ShardId, StoreError};

/// A snapshot and the segments behind it, each up to where it is durable.
#[derive(Debug, Clone)]
pub(super) struct LogView {
    pub snapshot: Option<Arc<Snapshot>>,
    pub segments: Vec<(Arc<Segment>, u64)>,
}

/// What the log did to one shard: its steps by network, in their order.
#[derive(Debug)]
pub(super) struct Overlay {
    /// Its line at the end of the log.
    pub line: FenceLine,
    records: Pieces,
    changes: HashMap<NetworkId, Vec<Change>>,
}

/// Bytes of one piece of [`Pieces`]; a longer record gets a piece of its own.
const PIECE_BYTES: usize = 1 << 20;

/// Records one after the other, in pieces that never move: one growing buffer would copy a long log again and again.
#[derive(Debug, Default)]
struct Pieces(Vec<Vec<u8>>);

/// Where a record lies in [`Pieces`].
#[derive(Debug, Clone, Copy)]
struct Spot {
    piece: u32,
    at: u32,
    length: u32,
}

impl Pieces {
    fn put(&mut self, record: &[u8]) -> Spot {
        if self.0.last().is_none_or(|piece| piece.capacity() - piece.len() < record.len()) {
            self.0.push(Vec::with_capacity(PIECE_BYTES.max(record.len())));
        }
        let piece = self.0.len() - 1;
        let last = &mut self.0[piece];
        let at = last.len();
        last.extend_from_slice(record);
        Spot { piece: piece as u32, at: at as u32, length: record.len() as u32 }
    }

    fn get(&self, spot: Spot) -> &[u8] {
        &self.0[spot.piece as usize][spot.at as usize..][..spot.length as usize]
    }
}

/// A step, or the net effect of several at one key.
#[derive(Debug, Clone, Copy)]
struct Change {
    key: Key,
    /// What must be there before.
    expect: Option<u64>,
    /// What is there after, and its record.
    mark: Option<u64>,
    record: Spot,
}

/// Why an entry does not fit: told with its place by who knows it.
pub(super) enum Misfit {
    Codec(CodecError),
    Other(String),
}

impl From<CodecError> for Misfit {
    fn from(error: CodecError) -> Self {
        Misfit::Codec(error)
    }
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Misfit::Codec(error) => write!(f, "a record {error}"),
            Misfit::Other(text) => f.write_str(text),
        }
    }
}

impl LogView {
    /// Shows every frame behind the snapshot, in order.
    pub(super) fn frames(&self, mut each: impl FnMut(&Frame<'_>) -> Result<(), Misfit>) -> Result<(), StoreError> {
        let covered = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.place.covered);
        let mut buffer = Vec::new();
        for (segment, end) in &self.segments {
            segment_frames(
                segment,
                *end,
                &mut buffer,
                |frame| {
                    if frame.group > covered { each(frame) } else { Ok(()) }
                },
            )?;
        }
        Ok(())
    }

    /// What the log did to one shard.
    pub(super) fn overlay(&self, shard: ShardId) -> Result<Overlay, StoreError> {
        let overlay = self.overlays(&[shard])?.remove(&shard);
        overlay.ok_or_else(|| StoreError::Invalid(format!("shard {} was not read", shard.0).into()))
    }

    /// What the log did to some shards.
    pub(super) fn overlays(&self, shards: &[ShardId]) -> Result<HashMap<ShardId, Overlay>, StoreError> {
        let line = |shard: ShardId| match &self.snapshot {
            Some(snapshot) => FenceLine::at(shard, snapshot.heads[usize::from(shard.0)]),
            None => FenceLine::new(shard),
        };
        let empty =
            |&shard| (shard, Overlay { line: line(shard), records: Pieces::default(), changes: HashMap::new() });
        let mut overlays: HashMap<ShardId, Overlay> = shards.iter().map(empty).collect();
        self.frames(|frame| {
            frame::entries(frame.payload, |entry| match entry {
                FrameEntry::Batch(_, bytes) => {
                    let header = codec::batch_header(&mut codec::Reader::new(bytes))?;
                    overlays.get_mut(&header.shard).map_or(Ok(()), |overlay| overlay.batch(bytes))
                }
                FrameEntry::Take(shard, head) => {
                    if let Some(overlay) = overlays.get_mut(&shard) {
                        overlay.line.take(head);
                    }
                    Ok(())
                }
                FrameEntry::Seal => Ok(()),
            })
        })?;
        Ok(overlays)
    }
}

/// Shows every frame of a segment up to `end`, each compared with its checksum.
pub(super) fn segment_frames(
    segment: &Segment,
    end: u64,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(&Frame<'_>) -> Result<(), Misfit>,
) -> Result<(), StoreError> {
    segment::read(&segment.path, &*segment.file, end, buffer)?;
    let mut at = segment::HEADER_BYTES;
    while (at as u64) < end {
        let frame = Frame::parse(&buffer[at..])
            .ok_or_else(|| problem::damaged_at(&segment.path, at as u64, "a frame does not fit its checksum"))?;
        each(&frame).map_err(|misfit| problem::damaged_at(&segment.path, at as u64, misfit))?;
        at += frame.length;
    }
    Ok(())
}

impl Overlay {
    fn batch(&mut self, bytes: &[u8]) -> Result<(), Misfit> {
        let (records, changes) = (&mut self.records, &mut self.changes);
        let header = codec::walk_batch(bytes, |network, step| {
            let mark = step.state.map(codec::mark_of).transpose()?;
            let record = records.put(step.state.unwrap_or_default());
            let change = Change { key: step.key, expect: step.expect, mark, record };
            changes.entry(network).or_default().push(change);
            Ok::<(), Misfit>(())
        })?;
        match self.line.check(&header, bytes) {
            Ok(BatchFit::Next(digest)) => {
                self.line.follow(&header, digest);
                Ok(())
            }
            Ok(BatchFit::Applied(_)) | Err(_) => {
                Err(Misfit::Other(format!("batch {} of shard {} does not follow", header.seq.0, header.shard.0)))
            }
        }
    }

    /// Shows what is there after the log: the snapshot's records of the shard, and the log's in their place.
    pub(super) fn merge(
        self,
        shard: ShardId,
        snapshot: Option<&Snapshot>,
        mut each: impl FnMut(NetworkId, Key, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Overlay { line: _, records, changes } = self;
        let misfit = |misfit: Misfit| StoreError::Damaged(format!("the log of shard {}: {misfit}", shard.0).into());
        let mut networks = Vec::with_capacity(changes.len());
        for (network, changes) in changes {
            networks.push((network, net_effect(network, changes).map_err(misfit)?));
        }
        networks.sort_unstable_by_key(|&(network, _)| network);
        let changes =
            networks.into_iter().flat_map(|(network, changes)| changes.into_iter().map(move |c| (network, c)));
        let mut changes = changes.peekable();
        let emit = |network: NetworkId, change: Change, found: Option<u64>, each: &mut Each<'_>| {
            if change.expect != found {
                return Err(misfit(unexpected(network, change.key, change.expect, found)));
            }
            match change.mark {
                Some(_) => each(network, change.key, records.get(change.record)),
                None => Ok(()),
            }
        };
        if let Some(snapshot) = snapshot {
            snapshot.records(shard, |network, key, record| {
                while let Some((before, change)) =
                    changes.next_if(|(before, change)| (*before, change.key) < (network, key))
                {
                    emit(before, change, None, &mut each)?;
                }
                match changes.next_if(|(here, change)| (*here, change.key) == (network, key)) {
                    Some((_, change)) => {
                        let found = codec::mark_of(record).map_err(|error| {
                            problem::damaged(
                                &snapshot.path,
                                format_args!("has a record of network {network} that {error}"),
                            )
                        })?;
                        emit(network, change, Some(found), &mut each)
                    }
                    None => each(network, key, record),
                }
            })?;
        }
        changes.try_for_each(|(network, change)| emit(network, change, None, &mut each))
    }
}

/// Ascending by key, one change for each. Each step must expect what the one before it at its key left.
fn net_effect(network: NetworkId, mut changes: Vec<Change>) -> Result<Vec<Change>, Misfit> {
    // Stable, so that the steps of one key stay in their order; and quick for what was granted in ascending order.
    changes.sort_by_key(|change| change.key);
    let mut problem = None;
    changes.dedup_by(|next, kept| {
        if next.key != kept.key {
            return false;
        }
        if next.expect != kept.mark && problem.is_none() {
            problem = Some(unexpected(network, next.key, next.expect, kept.mark));
        }
        *kept = Change { expect: kept.expect, ..*next };
        true
    });
    problem.map_or(Ok(changes), Err)
}

type Each<'a> = dyn FnMut(NetworkId, Key, &[u8]) -> Result<(), StoreError> + 'a;

fn unexpected(network: NetworkId, key: Key, expect: Option<u64>, found: Option<u64>) -> Misfit {
    Misfit::Other(format!("a step at {key:?} of network {network} expects mark {expect:?} where {found:?} is"))
}
