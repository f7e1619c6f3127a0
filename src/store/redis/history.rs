//! The streams of shards as history.
//!
//! Streams have no order among each other but the time of their entries, by the clock of Redis, in seconds. Some entries
//! of each stretch are asked for at once, and taken in the order of that time until a stream has none left and may have
//! more: what was read too far of the others is asked for again. How many at once follows from how long they turn out to be.
//!
//! Neighbours: `load` has the connection, and calls.

use std::collections::VecDeque;

use redis::{Pipeline, Value};

use super::failed;
use super::link::Link;
use super::load::{PIECE_WITHIN, damaged, list};
use super::shared::RedisShared;
use crate::store::history::{RecordedBatch, Stretch, is_full};
use crate::store::{Digest, Seq, StoreError};

/// Entries of one stream that are asked for at once: the first time, and at most.
const AT_ONCE: (usize, usize) = (8, 256);
/// Bytes that the entries asked for at once shall have.
const PIECE_BYTES: usize = 1 << 20;

/// A stretch and what was read of it and not taken yet.
struct Stream {
    stretch: Stretch,
    read: VecDeque<(u64, RecordedBatch)>,
    /// Digest of the last one that was read.
    parent: Option<Digest>,
    /// Nothing more of it is there.
    ended: bool,
}

/// Batches of the stretches.
pub(super) async fn read(
    shared: &RedisShared,
    link: &mut Link,
    stretches: Vec<Stretch>,
    bytes: usize,
) -> Result<Vec<RecordedBatch>, StoreError> {
    shared.sound()?;
    let mut streams = Vec::with_capacity(stretches.len());
    for stretch in stretches {
        shared.line(stretch.shard, |_| ())?;
        if stretch.after < stretch.until {
            streams.push(Stream { stretch, read: VecDeque::new(), parent: None, ended: false });
        }
    }
    let (mut recorded, mut read_bytes, mut count) = (Vec::new(), 0, AT_ONCE.0);
    while !streams.is_empty() {
        ask(shared, link, &mut streams, count).await?;
        while !is_full(&recorded, read_bytes, bytes) {
            streams.retain(|stream| !stream.ended || !stream.read.is_empty());
            let first = |stream: &Stream| stream.read.front().map(|(at, _)| *at);
            // One that may have earlier entries is asked first.
            if streams.iter().any(|stream| stream.read.is_empty()) {
                break;
            }
            let Some(next) = streams.iter_mut().min_by_key(|stream| first(stream)) else { break };
            let Some((_, batch)) = next.read.pop_front() else { break };
            next.stretch.after = batch.seq;
            next.ended |= batch.seq >= next.stretch.until;
            read_bytes += batch.bytes.len();
            recorded.push(batch);
        }
        if is_full(&recorded, read_bytes, bytes) {
            break;
        }
        let mean = read_bytes / recorded.len().max(1) + 1;
        count = (PIECE_BYTES / mean / streams.len().max(1)).clamp(AT_ONCE.0, AT_ONCE.1);
    }
    Ok(recorded)
}

/// Asks for the next entries of the streams of which nothing is left.
async fn ask(shared: &RedisShared, link: &mut Link, streams: &mut [Stream], count: usize) -> Result<(), StoreError> {
    let mut pipeline = Pipeline::new();
    for stream in streams.iter().filter(|stream| stream.read.is_empty()) {
        let Stretch { shard, after, until } = stream.stretch;
        pipeline.cmd("XRANGE").arg(shared.keys.log(shard)).arg(format!("({}-0", after.0)).arg(format!("{}-0", until.0));
        pipeline.arg("COUNT").arg(count);
    }
    let mut answers = link.read(&pipeline, PIECE_WITHIN).await?.into_iter();
    for stream in streams.iter_mut().filter(|stream| stream.read.is_empty()) {
        let answer = answers.next().ok_or_else(|| failed::strange(&shared.place, "an answer is missing"))?;
        let entries = list(shared, answer)?;
        stream.ended = entries.len() < count;
        let (shard, key) = (stream.stretch.shard, shared.keys.log(stream.stretch.shard));
        for entry in entries {
            let LogEntry { seq, digest, at, bytes } =
                entry_of(entry).ok_or_else(|| damaged(shared, &key, "has an entry that is no batch"))?;
            let recorded = RecordedBatch { shard, seq: Seq(seq), digest: Some(digest), bytes: bytes.into() };
            if stream.parent.is_some_and(|parent| recorded.follows(parent).is_none()) {
                return Err(damaged(
                    shared,
                    &key,
                    format!("has at {seq}-0 a batch that does not follow the one before"),
                ));
            }
            stream.parent = Some(digest);
            stream.read.push_back((at, recorded));
        }
    }
    Ok(())
}

/// An entry of a log.
pub(super) struct LogEntry {
    pub(super) seq: u64,
    pub(super) digest: Digest,
    at: u64,
    pub(super) bytes: Vec<u8>,
}

pub(super) fn entry_of(entry: Value) -> Option<LogEntry> {
    let Value::Array(parts) = entry else { return None };
    let [Value::BulkString(id), Value::Array(fields)] = <[Value; 2]>::try_from(parts).ok()? else { return None };
    let seq = std::str::from_utf8(&id).ok()?.strip_suffix("-0")?.parse().ok()?;
    let mut fields = fields.into_iter();
    let (mut digest, mut at, mut batch) = (None, 0, None);
    while let (Some(Value::BulkString(name)), Some(Value::BulkString(value))) = (fields.next(), fields.next()) {
        let text = || std::str::from_utf8(&value).ok();
        match &name[..] {
            b"digest" => digest = text().and_then(|text| u128::from_str_radix(text, 16).ok()).map(Digest),
            b"at" => at = text().and_then(|text| text.parse().ok()).unwrap_or(0),
            b"batch" => batch = Some(value),
            _ => {}
        }
    }
    Some(LogEntry { seq, digest: digest?, at, bytes: batch? })
}
