//! The threads that read. One loads what an owner is to serve, so that these loads wait for no other reads; the other one
//! reads history, and shards for everybody else.
//!
//! Loads that wait together are read together, in one pass over the log for each core. The first loads after a start reuse
//! what was read of the log while it was judged. A large shard is decoded on one thread and put together on another.
//!
//! Neighbours: `replay` merges snapshot and log; the result is decoded here, and every record is checked. `history` reads
//! the log without merging.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use hashbrown::HashMap;
use tokio::sync::oneshot;

use super::history;
use super::replay::{LogView, Overlay};
use super::shared::EmbeddedShared;
use crate::core::state::{Key, State};
use crate::core::types::NetworkId;
use crate::store::codec;
use crate::store::history::{RecordedBatch, Stretch};
use crate::store::image::RecordImage;
use crate::store::{Head, ShardId, ShardImage, StoreError, Token};

const LOAD_THREADS_MAX: usize = 4;

/// From this many records on, a shard is put together on another thread while it is still being read.
const APART_RECORDS_MIN: usize = 16_384;
/// A part of a snapshot with about as many records has this length.
const APART_SNAPSHOT_BYTES_MIN: u64 = 1 << 20;
/// Records that are passed to that thread at once.
const PIECE_RECORDS: usize = 1_024;
/// Pieces that may wait for it.
const PIECES_WAITING: usize = 4;

pub(super) enum ReadJob {
    /// A load: by the owner if there is a token, else by anybody.
    Load(ShardId, Option<Token>, oneshot::Sender<Result<ShardImage, StoreError>>),
    Recorded(Vec<Stretch>, usize, oneshot::Sender<Result<Vec<RecordedBatch>, StoreError>>),
    Reread(u64, oneshot::Sender<Result<Option<u64>, StoreError>>),
}

impl ReadJob {
    /// Is nobody waiting for the answer any more?
    fn is_over(&self) -> bool {
        match self {
            Self::Load(.., reply) => reply.is_closed(),
            Self::Recorded(.., reply) => reply.is_closed(),
            Self::Reread(_, reply) => reply.is_closed(),
        }
    }
}

type Load = (ShardId, Head, oneshot::Sender<Result<ShardImage, StoreError>>);

pub(super) fn run(shared: &EmbeddedShared, jobs: &Receiver<ReadJob>) {
    while let Ok(first) = jobs.recv() {
        let waiting: Vec<ReadJob> = std::iter::once(first).chain(std::iter::from_fn(|| jobs.try_recv().ok())).collect();
        // Only now: the view must contain every take-over that was answered before one of these jobs was queued.
        let (view, heads) = view(shared);
        let mut loads: Vec<Load> = Vec::new();
        for job in waiting {
            match job {
                // It may be a whole chapter of the history, while somebody waits for the job behind it.
                job if job.is_over() => {}
                ReadJob::Load(shard, token, reply) => match check_owner(&heads, shard, token) {
                    Ok(head) => loads.push((shard, head, reply)),
                    Err(error) => drop(reply.send(Err(error))),
                },
                ReadJob::Recorded(stretches, bytes, reply) => {
                    drop(reply.send(history::read(shared, stretches, bytes)));
                }
                ReadJob::Reread(from, reply) => drop(reply.send(history::reread(shared, from))),
            }
        }
        load_all(shared, &view, loads);
    }
}

/// The files and heads of one moment.
fn view(shared: &EmbeddedShared) -> (LogView, Vec<Head>) {
    let catalog = shared.catalog();
    let view = LogView { snapshot: catalog.snapshot.clone(), segments: catalog.segments.clone() };
    (view, catalog.heads.clone())
}

fn check_owner(heads: &[Head], shard: ShardId, token: Option<Token>) -> Result<Head, StoreError> {
    match heads.get(usize::from(shard.0)) {
        None => Err(super::unknown_shard(shard, heads.len())),
        Some(head) if token.is_none_or(|token| head.token == token && head.epoch.0 > 0) => Ok(*head),
        Some(head) => Err(StoreError::Fenced { shard, current: head.epoch }),
    }
}

fn load_all(shared: &EmbeddedShared, view: &LogView, mut loads: Vec<Load>) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(LOAD_THREADS_MAX);
    let share = loads.len().div_ceil(threads).max(1);
    let mut parts = Vec::with_capacity(threads);
    while !loads.is_empty() {
        parts.push(loads.split_off(loads.len().saturating_sub(share)));
    }
    let others = parts.len().saturating_sub(1);
    let parts = Mutex::new(parts);
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let work = || {
        while let Some(part) = next() {
            load_some(shared, view, part);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..others {
            // If no more threads can be started, this one does all the work.
            if let Err(error) = std::thread::Builder::new().name("store-loader".into()).spawn_scoped(scope, work) {
                tracing::warn!(%error, "a shard is loaded by one thread less");
            }
        }
        work();
    });
}

fn load_some(shared: &EmbeddedShared, view: &LogView, loads: Vec<Load>) {
    let shards: Vec<ShardId> = loads.iter().map(|(shard, ..)| *shard).collect();
    let mut overlays = HashMap::new();
    let read = view.overlays_after(&shared.prepared, &shards).map(|read| overlays = read);
    for (shard, head, reply) in loads {
        let image = read.clone().and_then(|()| {
            // If the shard was asked for twice at once, it is read again.
            let overlay = match overlays.remove(&shard) {
                Some(overlay) => overlay,
                None => view.overlay(shard)?,
            };
            if overlay.line.head() != head {
                let text = format!(
                    "the log of shard {} does not lead to its head; restart, and restore if it stays so",
                    shard.0
                );
                return Err(StoreError::Damaged(text.into()));
            }
            image(view, (shard, head), overlay, &|| reply.is_closed())
        });
        // A running server has the shard in memory and goes on; the next start would not.
        let image = image.inspect_err(|error| shared.note_damage(error, None));
        drop(reply.send(image));
    }
}

type Decoded = (NetworkId, Key, State);

/// Builds the image of a shard. The records are decoded here. If there are many, another thread puts them together meanwhile.
fn image(
    view: &LogView,
    (shard, head): (ShardId, Head),
    overlay: Overlay,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<ShardImage, StoreError> {
    let snapshot = view.snapshot.as_deref();
    let many = overlay.len() >= APART_RECORDS_MIN
        || snapshot.is_some_and(|snapshot| snapshot.bytes_of(shard) >= APART_SNAPSHOT_BYTES_MIN);
    let builder = move || Builder { shard, image: ShardImage::new(head), current: None };
    let here = |overlay: Overlay| {
        let mut builder = builder();
        overlay.merge(shard, snapshot, |network, key, record| builder.put(decode(shard, network, key, record)?))?;
        builder.finish()
    };
    // If nobody waits for the image any more, stop: somebody may be waiting for this thread to end.
    let unless_over = || if is_over() { Err(nobody_takes()) } else { Ok(()) };
    if !many {
        return here(overlay);
    }
    let (pieces, read) = sync_channel::<Vec<Decoded>>(PIECES_WAITING);
    std::thread::scope(|scope| {
        let build = move || {
            let mut builder = builder();
            read.iter().flatten().try_for_each(|decoded| builder.put(decoded))?;
            builder.finish()
        };
        let building = match std::thread::Builder::new().name("store-indexer".into()).spawn_scoped(scope, build) {
            Ok(building) => building,
            Err(error) => {
                tracing::warn!(%error, "a shard is loaded by one thread less");
                return here(overlay);
            }
        };
        let decoded = decode_into(&pieces, shard, unless_over, |each| overlay.merge(shard, snapshot, each));
        drop(pieces);
        let built = building.join().unwrap_or_else(|_| Err(nobody_takes()));
        match (decoded, built) {
            (Ok(()), built) => built,
            // The thread that stopped taking pieces knows what is wrong.
            (Err(StoreError::Poisoned(_)), Err(error)) | (Err(error), _) => Err(error),
        }
    })
}

type Each<'a> = dyn FnMut(NetworkId, Key, &[u8]) -> Result<(), StoreError> + 'a;

fn decode_into(
    pieces: &SyncSender<Vec<Decoded>>,
    shard: ShardId,
    unless_over: impl Fn() -> Result<(), StoreError>,
    show: impl FnOnce(&mut Each<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut piece = Vec::with_capacity(PIECE_RECORDS);
    show(&mut |network, key, record| {
        piece.push(decode(shard, network, key, record)?);
        if piece.len() < PIECE_RECORDS {
            return Ok(());
        }
        unless_over()?;
        let full = std::mem::replace(&mut piece, Vec::with_capacity(PIECE_RECORDS));
        pieces.send(full).map_err(|_| nobody_takes())
    })?;
    pieces.send(piece).map_err(|_| nobody_takes())
}

fn nobody_takes() -> StoreError {
    StoreError::Poisoned("the thread that puts a shard together ended".into())
}

fn damaged(shard: ShardId, network: NetworkId, problem: impl std::fmt::Display) -> StoreError {
    let text = format!("shard {}, network {network}: {problem}; restore the data directory from a backup", shard.0);
    StoreError::Damaged(text.into())
}

/// Decodes a record, and checks that its key may have it.
fn decode(shard: ShardId, network: NetworkId, key: Key, record: &[u8]) -> Result<Decoded, StoreError> {
    // Its checksum was right, or it would not have come here.
    let bad = |error: codec::CodecError| {
        let (shard, network) = (shard.0, network);
        StoreError::newer(format_args!("shard {shard}, network {network}: the record at {key:?} {error}"))
    };
    let state = codec::decode_state(record).map_err(bad)?;
    codec::check_pair(network, key, &state).map_err(bad)?;
    Ok((network, key, state))
}

/// Gathers the records of a shard, which come in ascending order, into its image.
struct Builder {
    shard: ShardId,
    image: ShardImage,
    current: Option<RecordImage>,
}

impl Builder {
    fn put(&mut self, (network, key, state): Decoded) -> Result<(), StoreError> {
        if self.current.as_ref().is_none_or(|current| current.id != network) {
            self.close()?;
        }
        let current = self.current.get_or_insert_with(|| RecordImage::new(network));
        current.add(key, state).map_err(|problem| damaged(self.shard, network, problem))
    }

    fn close(&mut self) -> Result<(), StoreError> {
        match self.current.take() {
            Some(current) => {
                let id = current.id;
                self.image.add(current).map_err(|problem| damaged(self.shard, id, problem))
            }
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<ShardImage, StoreError> {
        self.close()?;
        Ok(self.image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::state::Entry;
    use crate::store::codec::{Format, samples};

    /// A record is read only after the checksum of its frame or chunk was found right.
    #[test]
    fn a_record_that_only_a_newer_version_reads_is_no_damage() {
        let state = State::Entry(Entry::Held(samples::typical().into()));
        let mut record = Vec::new();
        codec::encode_state(&state, Format::FIRST, &mut record).unwrap();
        let key = Key::Address("10.0.0.1".parse().unwrap());
        let read = |record: &[u8]| decode(ShardId(3), NetworkId(7), key, record);
        read(&record).unwrap();
        record.push(0);
        let refused = read(&record).unwrap_err();
        let said = refused.to_string();
        assert!(!matches!(refused, StoreError::Damaged(_)) && said.contains("shard 3"), "{said}");
        assert!(said.contains("newer version of allod: start that one") && !said.contains("backup"), "{said}");
    }
}
