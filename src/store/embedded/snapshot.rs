//! Snapshots: the whole state at one group, sorted, in one file that never changes.
//!
//! ```text
//! 0    magic (8)  format (4)  register (16)  covered group (8)  its digest (16)
//! 52   oldest segment kept (8)  crc32 (4)
//! 64   chunks
//!
//! chunk  = magic (4)  payload bytes (4)  crc32 of all but magic and itself (4)  ordinal (8)  kind (1)  payload
//! 1      = shard  item…         item = 0 network id  |  1 key, record (sized)       ascending by shard, network, key
//! 2, end = records  heads of all shards
//! ```
//!
//! A chunk is checked each time it is read; the check covers its file, place and order. The file is named after the covered
//! group.
//!
//! Neighbours: `compactor` writes snapshots, `replay` merges them with the log after them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, DiskFile, read_exact};
use super::meta::{self, u32_at, u64_at, u128_at};
use super::problem;
use crate::core::state::Key;
use crate::core::types::NetworkId;
use crate::store::codec::{self, CodecError, Reader, Write};
use crate::store::{Head, ShardId, StoreError};

pub(super) const SNAP: &str = "snap";
const MAGIC: &[u8; 8] = b"ALLODSNP";
const HEADER_BYTES: usize = 64;
const CHUNK_MAGIC: [u8; 4] = [0xf5, b'A', b'C', 0xff];
const CHUNK_HEADER_BYTES: usize = 21;
/// A chunk is closed once it is longer than this.
const CHUNK_BYTES: usize = 256 << 10;
/// A chunk has at most the bytes of a full one and one more record.
const CHUNK_BYTES_MAX: usize = 64 << 20;
/// The file is flushed after this many chunks, so that no single flush holds up the commits meanwhile.
const SYNC_CHUNKS: u64 = 2;
const RECORDS: u8 = 1;
const END: u8 = 2;
const NETWORK: u8 = 0;
const RECORD: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SnapshotPlace {
    pub register: u128,
    /// The last group whose effect it contains.
    pub covered: u64,
    /// Digest of that group's frame.
    pub digest: u128,
    /// The first segment that is kept beside it. In an opened snapshot this includes what `retention` has removed since.
    pub oldest: u64,
}

impl SnapshotPlace {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&meta::FORMAT.to_be_bytes());
        bytes.extend_from_slice(&self.register.to_be_bytes());
        bytes.extend_from_slice(&self.covered.to_be_bytes());
        bytes.extend_from_slice(&self.digest.to_be_bytes());
        bytes.extend_from_slice(&self.oldest.to_be_bytes());
        meta::seal(bytes)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let valid = bytes[..8] == *MAGIC && u32_at(bytes, 8) == meta::FORMAT && meta::is_sealed(bytes);
        valid.then(|| Self {
            register: u128_at(bytes, 12),
            covered: u64_at(bytes, 28),
            digest: u128_at(bytes, 36),
            oldest: u64_at(bytes, 52),
        })
    }
}

pub(super) fn name(covered: u64) -> String {
    format!("{covered:016x}.snap")
}

pub(super) fn covered_of(file_name: &str) -> Option<u64> {
    let covered = u64::from_str_radix(file_name.strip_suffix(".snap")?, 16).ok()?;
    (name(covered) == file_name).then_some(covered)
}

/// A snapshot that was read completely and found good.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub place: SnapshotPlace,
    pub path: PathBuf,
    pub length: u64,
    pub heads: Vec<Head>,
    file: Arc<dyn DiskFile>,
    /// The first chunk of each shard that has one: its ordinal and offset.
    chunks: BTreeMap<u16, (u64, u64)>,
}

struct Chunk<'a> {
    kind: u8,
    payload: &'a [u8],
}

/// Reads a chunk into a buffer that is shared by all chunks.
fn read_chunk<'a>(
    path: &Path,
    file: &dyn DiskFile,
    (at, ordinal): (u64, u64),
    buffer: &'a mut Vec<u8>,
) -> Result<Chunk<'a>, StoreError> {
    let unread = |what: &'static str| {
        move |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => problem::damaged_at(path, at, format_args!("{what} ({error})")),
            _ => problem::io("reading", path)(error),
        }
    };
    let mut header = [0; CHUNK_HEADER_BYTES];
    read_exact(file, &mut header, at).map_err(unread("no chunk can be read"))?;
    let length = u32_at(&header, 4) as usize;
    if header[..4] != CHUNK_MAGIC || length > CHUNK_BYTES_MAX {
        return Err(problem::damaged_at(path, at, "a chunk should begin there"));
    }
    buffer.resize(length.max(buffer.len()), 0);
    let payload = &mut buffer[..length];
    read_exact(file, payload, at + CHUNK_HEADER_BYTES as u64).map_err(unread("a chunk cannot be read"))?;
    if chunk_checksum(&header, payload) != u32_at(&header, 8) || u64_at(&header, 12) != ordinal {
        return Err(problem::damaged_at(path, at, "a chunk does not fit its checksum"));
    }
    Ok(Chunk { kind: header[20], payload })
}

fn chunk_checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header[4..8]);
    crc.update(&header[12..]);
    crc.update(payload);
    crc.finalize()
}

impl Snapshot {
    /// Opens a snapshot and reads all of it.
    pub(super) fn open(disk: &dyn Disk, path: &Path, register: u128, shards: u16) -> Result<Self, StoreError> {
        let file = disk.open(path).map_err(problem::io("opening", path))?;
        let length = file.length().map_err(problem::io("reading", path))?;
        let mut header = [0; HEADER_BYTES];
        read_exact(&*file, &mut header, 0).map_err(problem::unread(path, "is cut off"))?;
        let place =
            SnapshotPlace::parse(&header).ok_or_else(|| problem::damaged_at(path, 0, "its header is unreadable"))?;
        if place.register != register {
            return Err(problem::foreign(path, "is of another register; put back the file that belongs here"));
        }
        let mut snapshot = Self { place, path: path.into(), length, heads: Vec::new(), file, chunks: BTreeMap::new() };
        snapshot.verify(shards)?;
        Ok(snapshot)
    }

    /// Its file, to copy the bytes.
    pub(super) fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    /// Does its header still say what it said when it was opened?
    pub(super) fn check_header(&self) -> Result<(), StoreError> {
        let mut header = [0; HEADER_BYTES];
        read_exact(&*self.file, &mut header, 0).map_err(problem::io("reading", &self.path))?;
        // What `retention` has removed since the snapshot was written is not in the file.
        let said = SnapshotPlace::parse(&header).filter(|said| said.oldest <= self.place.oldest);
        match said {
            Some(said) if SnapshotPlace { oldest: self.place.oldest, ..said } == self.place => Ok(()),
            Some(_) => Err(problem::unreadable_at(&self.path, 0, "its header is that of another one")),
            None => Err(problem::unreadable_at(&self.path, 0, "its header is unreadable")),
        }
    }

    fn verify(&mut self, shards: u16) -> Result<(), StoreError> {
        let mut at = HEADER_BYTES as u64;
        let mut last: Option<(u16, NetworkId, Key)> = None;
        let (mut records, mut buffer) = (0, Vec::new());
        for ordinal in 0.. {
            let chunk = read_chunk(&self.path, &*self.file, (at, ordinal), &mut buffer)?;
            let bad = |error: CodecError| problem::unread_at(&self.path, at, "a chunk", &error);
            match chunk.kind {
                RECORDS => {
                    let shard = each_record(chunk.payload, |shard, network, key, _| {
                        records += 1;
                        let here = Some((shard, network, key));
                        if last >= here || shard >= shards {
                            return Err(CodecError::Range("order of records"));
                        }
                        last = here;
                        Ok(())
                    })
                    .map_err(bad)?;
                    self.chunks.entry(shard).or_insert((ordinal, at));
                }
                END => {
                    self.heads = end(chunk.payload, records, shards).map_err(bad)?;
                    let end = at + (CHUNK_HEADER_BYTES + chunk.payload.len()) as u64;
                    if end != self.length {
                        return Err(problem::damaged_at(&self.path, end, "there are bytes behind its end"));
                    }
                    return Ok(());
                }
                kind => return Err(bad(CodecError::Tag { what: "chunk", tag: kind })),
            }
            at += (CHUNK_HEADER_BYTES + chunk.payload.len()) as u64;
        }
        Ok(())
    }

    pub(super) fn bytes_of(&self, shard: ShardId) -> u64 {
        let Some(&(_, begin)) = self.chunks.get(&shard.0) else { return 0 };
        let next = self.chunks.range(shard.0..).nth(1);
        next.map_or(self.length, |(_, &(_, end))| end).saturating_sub(begin)
    }

    /// Passes the records of a shard to `each`, ascending by network and key.
    pub(super) fn records(
        &self,
        shard: ShardId,
        mut each: impl FnMut(NetworkId, Key, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(&(first, mut at)) = self.chunks.get(&shard.0) else { return Ok(()) };
        let mut buffer = Vec::new();
        for ordinal in first.. {
            let chunk = read_chunk(&self.path, &*self.file, (at, ordinal), &mut buffer)?;
            if chunk.kind != RECORDS {
                break;
            }
            // The order was verified when the snapshot was opened. An error inside a chunk whose checksum is right is a
            // fault of the program that wrote it, and stops the load as well.
            let mut failed = None;
            let found = each_record(chunk.payload, |found, network, key, record| {
                if found == shard.0 && failed.is_none() {
                    failed = each(network, key, record).err();
                }
                Ok(())
            })
            .map_err(|error| problem::unread_at(&self.path, at, "a chunk", &error))?;
            if let Some(error) = failed {
                return Err(error);
            }
            if found != shard.0 {
                break;
            }
            at += (CHUNK_HEADER_BYTES + chunk.payload.len()) as u64;
        }
        Ok(())
    }
}

fn each_record(
    payload: &[u8],
    mut each: impl FnMut(u16, NetworkId, Key, &[u8]) -> Result<(), CodecError>,
) -> Result<u16, CodecError> {
    let mut reader = Reader::new(payload);
    let shard = reader.varint_to(u16::MAX.into(), "shard")? as u16;
    let mut network = None;
    while !reader.is_empty() {
        match reader.u8("item")? {
            NETWORK => network = Some(NetworkId(reader.u128("network")?)),
            RECORD => {
                let key = codec::key(&mut reader)?;
                let record = reader.sized("record")?;
                each(shard, network.ok_or(CodecError::Range("network"))?, key, record)?;
            }
            tag => return Err(CodecError::Tag { what: "item", tag }),
        }
    }
    Ok(shard)
}

fn end(payload: &[u8], records: u64, shards: u16) -> Result<Vec<Head>, CodecError> {
    let mut reader = Reader::new(payload);
    if reader.varint("records")? != records {
        return Err(CodecError::Range("number of records"));
    }
    let heads = (0..shards).map(|_| codec::head(&mut reader)).collect::<Result<_, _>>()?;
    reader.finish()?;
    Ok(heads)
}

pub(super) struct SnapshotWriter {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    at: u64,
    ordinal: u64,
    records: u64,
    chunk: Vec<u8>,
    current: Option<(ShardId, Option<NetworkId>)>,
}

impl SnapshotWriter {
    pub(super) fn create(disk: &dyn Disk, dir: &Path, place: &SnapshotPlace) -> Result<Self, StoreError> {
        let path = dir.join(SNAP).join(format!("{}.tmp", name(place.covered)));
        let create = || {
            let file = disk.create(&path)?;
            file.write_at(&place.bytes(), 0)?;
            Ok(file)
        };
        let file = create().map_err(problem::io("writing", &path))?;
        let chunk = vec![0; CHUNK_HEADER_BYTES];
        Ok(Self { path, file, at: HEADER_BYTES as u64, ordinal: 0, records: 0, chunk, current: None })
    }

    /// Appends a record. Records must come ascending by shard, network and key.
    pub(super) fn put(
        &mut self,
        shard: ShardId,
        network: NetworkId,
        key: Key,
        record: &[u8],
    ) -> Result<(), StoreError> {
        let other_shard = self.current.is_some_and(|(current, _)| current != shard);
        if other_shard || self.chunk.len() > CHUNK_BYTES {
            self.flush(RECORDS)?;
        }
        let current = match self.current {
            Some((_, network)) => network,
            None => {
                self.chunk.put_varint(shard.0.into());
                None
            }
        };
        if current != Some(network) {
            self.chunk.put_u8(NETWORK);
            self.chunk.put_u128(network.0);
        }
        self.current = Some((shard, Some(network)));
        self.chunk.put_u8(RECORD);
        codec::put_key(&mut self.chunk, key);
        self.chunk.put_sized(record);
        self.records += 1;
        Ok(())
    }

    fn flush(&mut self, kind: u8) -> Result<(), StoreError> {
        let payload = (self.chunk.len() - CHUNK_HEADER_BYTES) as u32;
        self.chunk[..4].copy_from_slice(&CHUNK_MAGIC);
        self.chunk[4..8].copy_from_slice(&payload.to_be_bytes());
        self.chunk[12..20].copy_from_slice(&self.ordinal.to_be_bytes());
        self.chunk[20] = kind;
        let (header, body) = self.chunk.split_at(CHUNK_HEADER_BYTES);
        let crc = chunk_checksum(header, body);
        self.chunk[8..12].copy_from_slice(&crc.to_be_bytes());
        self.file.write_at(&self.chunk, self.at).map_err(problem::io("writing", &self.path))?;
        self.at += self.chunk.len() as u64;
        self.ordinal += 1;
        if self.ordinal.is_multiple_of(SYNC_CHUNKS) {
            self.file.sync().map_err(problem::io("writing", &self.path))?;
        }
        self.chunk.truncate(CHUNK_HEADER_BYTES);
        self.current = None;
        Ok(())
    }

    /// Ends the file, reads it back, and makes it durable under its name. Reading back matters, because the next start
    /// relies on it.
    pub(super) fn finish(
        mut self,
        disk: &dyn Disk,
        place: &SnapshotPlace,
        heads: &[Head],
    ) -> Result<Snapshot, StoreError> {
        if self.current.is_some() {
            self.flush(RECORDS)?;
        }
        self.chunk.put_varint(self.records);
        for head in heads {
            codec::encode_head(head, &mut self.chunk)
                .map_err(|error| problem::damaged(&self.path, format_args!("was to hold a head that {error}")))?;
        }
        self.flush(END)?;
        let snap = self.path.parent().unwrap_or(Path::new("."));
        let path = snap.join(name(place.covered));
        self.file.sync().map_err(problem::io("writing", &self.path))?;
        // This error does not mean that the register is damaged.
        let read_back = Snapshot::open(disk, &self.path, place.register, heads.len() as u16)
            .map_err(|error| problem::io("reading back", &self.path)(std::io::Error::other(error)))?;
        let publish = || {
            disk.rename(&self.path, &path)?;
            disk.sync_dir(snap)
        };
        publish().map_err(problem::io("writing", &path))?;
        Ok(Snapshot { path, ..read_back })
    }
}
