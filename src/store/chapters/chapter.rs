//! One chapter: what it notes, how it is made from batches, and its bytes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use hashbrown::HashSet;

use super::filter::{Sort, address_key, make, network_key, text_key};
use crate::core::address::{Address, Family};
use crate::core::state::{Key, State};
use crate::core::types::{Name, NetworkId, WallTime};
use crate::store::codec::{self, CodecError, RawStep, Reader, Write};
use crate::store::history::RecordedBatch;
use crate::store::{Digest, Epoch, Seq, ShardId, StoreError};

/// A chapter is closed after this many steps.
pub const CHAPTER_STEPS: u32 = 4_096;
/// A chapter with fewer steps is closed after this many bytes of batches.
pub const CHAPTER_BYTES: usize = 1 << 20;

const CHAPTER: u8 = 1;
const NAME: u8 = 2;

/// The batches of one shard in a chapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRange {
    /// The shard.
    pub shard: ShardId,
    /// The first batch.
    pub first: Seq,
    /// The last batch.
    pub last: Seq,
    /// Epoch in which the last batch was written.
    pub epoch: Epoch,
    /// Digest of the line up to the last batch.
    pub digest: Digest,
}

/// What a network was called from a certain batch on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameNote {
    /// The network.
    pub network: NetworkId,
    /// The batch of its shard, and the step in that batch, since when it has this name.
    pub since: (u64, u32),
    /// Its name.
    pub name: Name,
    /// Its realm.
    pub realm: Name,
}

/// Where a filter lies in a file, and its own checksum: the checksum of the whole record is only compared when the file is
/// opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FilterSpot {
    at: u64,
    length: u32,
    crc: u32,
}

impl FilterSpot {
    /// The same spot, counted from the beginning of the file instead of from `begin`.
    pub(super) fn from(self, begin: u64) -> Self {
        Self { at: begin + self.at, ..self }
    }

    fn new(at: u64, filter: &[u8]) -> Self {
        Self { at, length: filter.len() as u32, crc: crc32fast::hash(filter) }
    }
}

/// Filters in a file. A chapter keeps its file open, so it reads the right file even if another one has the name by now.
#[derive(Debug, Clone)]
pub(super) struct WrittenFilters {
    pub(super) file: Arc<File>,
    pub(super) spots: [FilterSpot; 4],
}

impl WrittenFilters {
    /// One of the filters, if it can be read and has the bytes that were written.
    pub(super) fn read(&self, sort: Sort) -> Option<Vec<u8>> {
        let FilterSpot { at, length, crc } = self.spots[sort as usize];
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes).filter(|bytes| crc32fast::hash(bytes) == crc)
    }
}

impl PartialEq for WrittenFilters {
    fn eq(&self, other: &Self) -> bool {
        self.spots == other.spots
    }
}

impl Eq for WrittenFilters {}

/// The filters of a chapter, by [`Sort`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Filters {
    Kept([Vec<u8>; 4]),
    Written(WrittenFilters),
}

/// A chapter. See [`super`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chapter {
    /// Its batches, by shard.
    pub ranges: Vec<BatchRange>,
    /// When the first and the last of its acts were made, by the wall clock.
    pub wall: (WallTime, WallTime),
    /// How many steps it has.
    pub steps: u32,
    /// Prefix lengths of what is held, one bit each: IPv4, IPv6.
    lengths: (u64, [u64; 3]),
    pub(super) filters: Filters,
}

impl Chapter {
    /// Its batches in one shard.
    pub fn range(&self, shard: ShardId) -> Option<&BatchRange> {
        self.ranges.iter().find(|range| range.shard == shard)
    }

    /// Prefix lengths of what is held in it.
    pub(super) fn lengths_of(&self, family: Family) -> impl Iterator<Item = u8> {
        let (v4, v6) = self.lengths;
        (0..=family.width()).filter(move |&length| match family {
            Family::V4 => v4 & 1 << length != 0,
            Family::V6 => v6[usize::from(length / 64)] & 1 << (length % 64) != 0,
        })
    }

    pub(super) fn keep(&mut self, filters: [Vec<u8>; 4]) {
        self.filters = Filters::Kept(filters);
    }

    /// Appends the record, filters last. Returns where the filters are, counted from the beginning of what was appended.
    pub(super) fn write(&self, filters: &[Vec<u8>; 4], out: &mut Vec<u8>) -> [FilterSpot; 4] {
        let begin = out.len();
        out.put_u8(CHAPTER);
        out.put_varint(self.ranges.len() as u64);
        for range in &self.ranges {
            out.put_varint(range.shard.0.into());
            out.put_varint(range.first.0);
            out.put_varint(range.last.0);
            out.put_varint(range.epoch.0);
            out.put_u128(range.digest.0);
        }
        out.put_varint(self.wall.0.0);
        out.put_varint(self.wall.1.0);
        out.put_varint(self.steps.into());
        out.put_varint(self.lengths.0);
        self.lengths.1.iter().for_each(|bits| out.put_varint(*bits));
        let mut spots = [FilterSpot::default(); 4];
        for (spot, filter) in spots.iter_mut().zip(filters) {
            out.put_varint(filter.len() as u64);
            *spot = FilterSpot::new((out.len() - begin) as u64, filter);
            out.put_bytes(filter);
        }
        spots
    }
}

#[derive(Debug)]
pub(super) enum ShelfRecord {
    Chapter(Chapter),
    Name(NameNote),
}

/// Reads the record that begins at an offset of a file.
pub(super) fn read(bytes: &[u8], file: &Arc<File>, at: u64) -> Result<ShelfRecord, CodecError> {
    let mut reader = Reader::new(bytes);
    let record = match reader.u8("record")? {
        CHAPTER => ShelfRecord::Chapter(chapter(bytes.len(), &mut reader, (file, at))?),
        NAME => {
            let network = NetworkId(reader.u128("network")?);
            let since = (reader.varint("batch")?, reader.varint_to(u32::MAX.into(), "step")? as u32);
            let (name, realm) = (reader.checked("name", Name::new)?, reader.checked("realm", Name::new)?);
            ShelfRecord::Name(NameNote { network, since, name, realm })
        }
        tag => return Err(CodecError::Tag { what: "record", tag }),
    };
    reader.finish()?;
    Ok(record)
}

fn chapter(length: usize, reader: &mut Reader<'_>, (file, at): (&Arc<File>, u64)) -> Result<Chapter, CodecError> {
    let mut ranges = Vec::new();
    for _ in 0..reader.count("ranges")? {
        ranges.push(BatchRange {
            shard: ShardId(reader.varint_to(u16::MAX.into(), "shard")? as u16),
            first: Seq(reader.varint("first")?),
            last: Seq(reader.varint("last")?),
            epoch: Epoch(reader.varint("epoch")?),
            digest: Digest(reader.u128("digest")?),
        });
    }
    let wall = (WallTime(reader.varint("time")?), WallTime(reader.varint("time")?));
    let steps = reader.varint_to(u32::MAX.into(), "steps")? as u32;
    let mut lengths = (reader.varint("lengths")?, [0; 3]);
    for bits in &mut lengths.1 {
        *bits = reader.varint("lengths")?;
    }
    let mut spots = [FilterSpot::default(); 4];
    for spot in &mut spots {
        let filter = reader.sized("filter")?;
        let behind = length - reader.left();
        *spot = FilterSpot::new(at + (behind - filter.len()) as u64, filter);
    }
    let filters = Filters::Written(WrittenFilters { file: Arc::clone(file), spots });
    Ok(Chapter { ranges, wall, steps, lengths, filters })
}

impl NameNote {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.put_u8(NAME);
        out.put_u128(self.network.0);
        out.put_varint(self.since.0);
        out.put_varint(self.since.1.into());
        out.put_text(self.name.as_str());
        out.put_text(self.realm.as_str());
    }
}

/// A chapter in the making.
#[derive(Debug, Default)]
pub struct ChapterDraft {
    ranges: Vec<BatchRange>,
    wall: Option<(WallTime, WallTime)>,
    steps: u32,
    bytes: usize,
    lengths: (u64, [u64; 3]),
    /// Each key once, added as it comes: sorting all of them at the end takes half as long again.
    keys: [HashSet<u64>; 4],
    /// The last network and scope, because most steps come in runs of the same ones.
    network: Option<NetworkId>,
    scope: Option<u64>,
    names: Vec<NameNote>,
}

impl ChapterDraft {
    /// Is it long enough?
    pub fn is_full(&self) -> bool {
        self.steps >= CHAPTER_STEPS || self.bytes >= CHAPTER_BYTES
    }

    /// Has it no batch yet?
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Does any event in it concern this network?
    pub fn has(&self, network: NetworkId) -> bool {
        self.keys[Sort::Network as usize].contains(&network_key(network))
    }

    /// The names of networks that it tells, in order.
    pub fn names(&self) -> &[NameNote] {
        &self.names
    }

    /// Adds a batch that follows the earlier batches of its shard; `digest` is of the line up to and including the batch.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the batch cannot be read.
    pub fn add(&mut self, recorded: &RecordedBatch, digest: Digest) -> Result<(), StoreError> {
        let mut at = 0;
        let walked = codec::walk_acts(&recorded.bytes, |act, step| {
            at += 1;
            self.step(act.network, act.wall, &step, (recorded.seq.0, at))
        });
        let header = walked.map_err(|error: CodecError| {
            let (seq, shard) = (recorded.seq.0, recorded.shard.0);
            StoreError::Damaged(format!("batch {seq} in the history of shard {shard} {error}").into())
        })?;
        self.steps += at;
        self.bytes += recorded.bytes.len();
        match self.ranges.iter_mut().find(|range| range.shard == recorded.shard) {
            Some(range) => (range.last, range.epoch, range.digest) = (recorded.seq, header.epoch, digest),
            None => {
                let (shard, seq, epoch) = (recorded.shard, recorded.seq, header.epoch);
                self.ranges.push(BatchRange { shard, first: seq, last: seq, epoch, digest });
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        network: NetworkId,
        wall: WallTime,
        step: &RawStep<'_>,
        since: (u64, u32),
    ) -> Result<(), CodecError> {
        let (first, last) = self.wall.unwrap_or((wall, wall));
        self.wall = Some((first.min(wall), last.max(wall)));
        if let (Key::Config, Some(record)) = (step.key, step.state)
            && let State::Config(config) = codec::decode_state(record)?
        {
            let (name, realm) = (config.name.clone(), config.realm.clone());
            self.names.push(NameNote { network, since, name, realm });
        }
        let Some((_, before)) = step.event() else { return Ok(()) };
        if self.network.replace(network) != Some(network) {
            self.key(Sort::Network, network_key(network));
        }
        let Key::Address(address) = step.key else { return Ok(()) };
        for record in [before, step.state].into_iter().flatten() {
            let Some((length, scope, owner)) = codec::held_bytes_of(record)? else { continue };
            self.length(address, length);
            self.key(Sort::Address, address_key(address, length));
            self.key(Sort::Owner, text_key(owner));
            let scope = text_key(scope);
            if self.scope.replace(scope) != Some(scope) {
                self.key(Sort::Scope, scope);
            }
        }
        Ok(())
    }

    fn key(&mut self, sort: Sort, key: u64) {
        let keys = &mut self.keys[sort as usize];
        // There are nearly as many addresses and owners as steps, so room for them is reserved at once.
        if keys.is_empty() && matches!(sort, Sort::Address | Sort::Owner) {
            keys.reserve(CHAPTER_STEPS as usize);
        }
        keys.insert(key);
    }

    fn length(&mut self, address: Address, length: u8) {
        match address.family() {
            Family::V4 => self.lengths.0 |= 1 << length.min(32),
            Family::V6 => self.lengths.1[usize::from(length.min(128) / 64)] |= 1 << (length.min(128) % 64),
        }
    }

    pub(super) fn finish(self) -> (Chapter, [Vec<u8>; 4], Vec<NameNote>) {
        let Self { ranges, wall, steps, lengths, keys, names, .. } = self;
        let filters = Sort::ALL.map(|sort| make(&keys[sort as usize]));
        // A chapter without acts has no time, and nothing to look for.
        let wall = wall.unwrap_or((WallTime(u64::MAX), WallTime(0)));
        (Chapter { ranges, wall, steps, lengths, filters: Filters::Kept(Default::default()) }, filters, names)
    }
}
