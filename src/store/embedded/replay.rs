//! State from snapshot and log: the net effect of the log, merged with the snapshot.
//!
//! Records are states, not deltas, so the net effect of the log at a key is its last state there. The first expectation of
//! the log at a key must fit the snapshot, and each later one the state before it. Steps are gathered and then sorted,
//! because a table of keys would cost more than the sort. Whatever does not fit is damage, and is never passed on.
//!
//! Neighbours: `reader` makes images from the result, `compactor` the next snapshot.

use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;

use super::frame::{self, Frame, FrameEntry};
use super::problem;
use super::segment;
use super::shared::KeptSegment;
use super::snapshot::Snapshot;
use super::steps::{Change, Records, Steps};
use super::window::Window;
use crate::core::state::Key;
use crate::core::types::NetworkId;
use crate::store::codec::{self, BatchHeader, CodecError};
use crate::store::fence::{BatchFit, FenceLine};
use crate::store::{ShardId, StoreError};

/// A snapshot and the segments after it, each up to where it is durable.
#[derive(Debug, Clone)]
pub(super) struct LogView {
    pub snapshot: Option<Arc<Snapshot>>,
    pub segments: Vec<KeptSegment>,
}

/// What the log did to one shard.
#[derive(Debug)]
pub(super) struct Overlay {
    /// Its line at the end of the log.
    pub line: FenceLine,
    pub gathered: Gathered,
}

/// Steps of one shard by network, in their order.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    records: Records,
    steps: HashMap<NetworkId, Steps>,
}

/// What an earlier pass gathered from the log: for all shards, up to a place in it.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// The overlays that nobody has taken yet.
    pub overlays: HashMap<ShardId, Overlay>,
    /// The last group that the snapshot below covers.
    pub covered: u64,
    /// The number of a segment, and how far it was read.
    pub until: (u64, u64),
}

impl Prepared {
    /// The overlays of these shards, if there is one for each and they belong on the snapshot of this view.
    fn take(&mut self, view: &LogView, shards: &[ShardId]) -> Option<HashMap<ShardId, Overlay>> {
        let fits = self.covered == view.covered() && shards.iter().all(|shard| self.overlays.contains_key(shard));
        let taken = shards.iter().filter_map(|shard| self.overlays.remove_entry(shard)).collect();
        fits.then_some(taken)
    }
}

/// Why an entry does not fit. The caller adds its place.
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
    /// The last group that the snapshot covers.
    fn covered(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.place.covered)
    }

    /// Passes every frame after the snapshot to `each`, in order: all of them, or those after a place.
    fn frames(
        &self,
        behind: Option<(u64, u64)>,
        mut each: impl FnMut(&Frame<'_>) -> Result<(), Misfit>,
    ) -> Result<(), StoreError> {
        let covered = self.covered();
        let (number, offset) = behind.unwrap_or_default();
        let mut buffer = Vec::new();
        for kept in self.segments.iter().filter(|kept| kept.segment.header.number >= number) {
            let begin = if kept.segment.header.number == number { offset } else { segment::HEADER_BYTES as u64 };
            segment_frames(kept, begin, &mut buffer, |frame| if frame.group > covered { each(frame) } else { Ok(()) })?;
        }
        Ok(())
    }

    pub(super) fn overlay(&self, shard: ShardId) -> Result<Overlay, StoreError> {
        let overlay = self.overlays(&[shard])?.remove(&shard);
        overlay.ok_or_else(|| StoreError::Invalid(format!("shard {} was not read", shard.0).into()))
    }

    pub(super) fn overlays(&self, shards: &[ShardId]) -> Result<HashMap<ShardId, Overlay>, StoreError> {
        self.overlays_after(&Mutex::default(), shards)
    }

    /// As [`LogView::overlays`], but takes what is prepared instead of reading that part again.
    pub(super) fn overlays_after(
        &self,
        prepared: &Mutex<Prepared>,
        shards: &[ShardId],
    ) -> Result<HashMap<ShardId, Overlay>, StoreError> {
        let prepared = {
            let mut prepared = prepared.lock().unwrap_or_else(PoisonError::into_inner);
            prepared.take(self, shards).map(|overlays| (overlays, prepared.until))
        };
        let line = |shard: ShardId| match &self.snapshot {
            Some(snapshot) => FenceLine::at(shard, snapshot.heads[usize::from(shard.0)]),
            None => FenceLine::new(shard),
        };
        let empty = |&shard| (shard, Overlay { line: line(shard), gathered: Gathered::default() });
        let (mut overlays, behind): (HashMap<ShardId, Overlay>, _) = match prepared {
            Some((overlays, until)) => (overlays, Some(until)),
            None => (shards.iter().map(empty).collect(), None),
        };
        self.frames(behind, |frame| {
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

/// Passes every frame of a segment from a place on to `each`, after comparing it with its checksum.
pub(super) fn segment_frames(
    KeptSegment { segment, file, end }: &KeptSegment,
    begin: u64,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(&Frame<'_>) -> Result<(), Misfit>,
) -> Result<(), StoreError> {
    let mut window = Window::new(&segment.path, &**file, *end, buffer);
    let mut at = begin;
    while at < *end {
        let frame = window
            .frame(at)?
            .ok_or_else(|| problem::damaged_at(&segment.path, at, "a frame does not fit its checksum"))?;
        each(&frame).map_err(|misfit| problem::misfit_at(&segment.path, at, &misfit))?;
        at += frame.length as u64;
    }
    Ok(())
}

impl Gathered {
    pub(super) fn batch(&mut self, bytes: &[u8]) -> Result<BatchHeader, Misfit> {
        let Self { records, steps } = self;
        codec::walk_batch(bytes, |network, step| {
            // Checks here that the record has a mark, because here the place of a bad one is known.
            step.state.map(codec::mark_of).transpose()?;
            let record = step.state.map(|record| records.put(record));
            steps.entry(network).or_default().push(step.key, step.expect, record);
            Ok::<(), Misfit>(())
        })
    }
}

impl Overlay {
    fn batch(&mut self, bytes: &[u8]) -> Result<(), Misfit> {
        let header = self.gathered.batch(bytes)?;
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

    /// How many records there may be after the log, without those of the snapshot.
    pub(super) fn len(&self) -> usize {
        self.gathered.steps.values().map(Steps::len).sum()
    }

    /// Passes the state after the log to `each`: the snapshot's records of the shard, with those of the log in their place.
    pub(super) fn merge(
        self,
        shard: ShardId,
        snapshot: Option<&Snapshot>,
        mut each: impl FnMut(NetworkId, Key, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Overlay { line: _, gathered: Gathered { mut records, steps } } = self;
        let misfit = |misfit: Misfit| StoreError::Damaged(format!("the log of shard {}: {misfit}", shard.0).into());
        let in_order = steps.len() == 1 && steps.values().all(Steps::is_ascending);
        let mut networks = Vec::with_capacity(steps.len());
        for (network, steps) in steps {
            networks.push((network, steps.net_effect(network, &records).map_err(misfit)?));
        }
        networks.sort_unstable_by_key(|&(network, _)| network);
        let changes = networks.into_iter().flat_map(|(network, steps)| steps.into_iter().map(move |c| (network, c)));
        let mut changes = changes.peekable();
        let mut emit = |network: NetworkId, change: Change, found: Option<u64>, each: &mut Each<'_>| {
            if change.expect() != found {
                return Err(misfit(unexpected(network, change.key, change.expect(), found)));
            }
            let Some(record) = change.record else { return Ok(()) };
            if in_order {
                records.give_back_before(record);
            }
            each(network, change.key, records.get(record))
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
                            problem::undecoded(&snapshot.path, format_args!("a record of network {network}"), &error)
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

type Each<'a> = dyn FnMut(NetworkId, Key, &[u8]) -> Result<(), StoreError> + 'a;

pub(super) fn unexpected(network: NetworkId, key: Key, expect: Option<u64>, found: Option<u64>) -> Misfit {
    Misfit::Other(format!("a step at {key:?} of network {network} expects mark {expect:?} where {found:?} is"))
}
