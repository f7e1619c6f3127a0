//! The streams of shards as history.
//!
//! The only order between streams is the time of their entries, by the clock of Redis, in seconds. Some entries of each
//! stretch are asked for at once, and taken in the order of that time until one stream runs out and may have more. Entries
//! of the other streams that were read too far are read again later. How many are asked for at once depends on how long they
//! turn out to be.
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

/// How many entries of one stream are asked for at once: at first, and at most.
const AT_ONCE: (usize, usize) = (8, 256);
/// Bytes that the entries asked for at once should have.
const PIECE_BYTES: usize = 1 << 20;

/// A stretch, and the entries of it that were read and not yet taken.
struct Stream {
    stretch: Stretch,
    read: VecDeque<(u64, RecordedBatch)>,
    /// The last entry that was read, and its digest.
    last: Option<(u64, Digest)>,
    ended: bool,
}

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
            streams.push(Stream { stretch, read: VecDeque::new(), last: None, ended: false });
        }
    }
    let (mut recorded, mut read_bytes, mut count) = (Vec::new(), 0, AT_ONCE.0);
    while !streams.is_empty() {
        ask(shared, link, &mut streams, count).await?;
        while !is_full(&recorded, read_bytes, bytes) {
            streams.retain(|stream| !stream.ended || !stream.read.is_empty());
            let first = |stream: &Stream| stream.read.front().map(|(at, _)| *at);
            // A stream that may have earlier entries must be read first.
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

/// Reads the next entries of the streams that have run out.
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
        for (at_once, entry) in entries.into_iter().enumerate() {
            let LogEntry { seq, digest, at, bytes } =
                entry_of(entry).ok_or_else(|| damaged(shared, &key, "has an entry that is not a batch"))?;
            let recorded = RecordedBatch { shard, seq: Seq(seq), digest: Some(digest), bytes: bytes.into() };
            // Between two answers the log may be trimmed. Then the next entry is not the next number, and cannot be checked
            // against the last one; the caller sees the gap. A single answer is of one moment, and must have no gap.
            let follows = |(last, parent): (u64, Digest)| match seq == last + 1 {
                true => recorded.follows(parent).is_some(),
                false => at_once == 0 && seq > last,
            };
            if !stream.last.is_none_or(follows) {
                return Err(damaged(
                    shared,
                    &key,
                    format!("has at {seq}-0 a batch that does not follow the one before"),
                ));
            }
            stream.last = Some((seq, digest));
            stream.read.push_back((at, recorded));
        }
    }
    Ok(())
}

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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, BufReader};
    use tokio::net::TcpListener;

    use super::super::scripts;
    use super::super::tests::{answer, bulk, command, head_at, link_to, shared};
    use super::*;
    use crate::store::{ShardId, fence};

    /// The entries of a log with these numbers, as an answer of Redis.
    fn entries(seqs: impl IntoIterator<Item = u64>) -> String {
        let text = |seq: u64| format!("batch {seq}");
        let entry = |seq: u64| {
            let digest = (1..=seq).fold(Digest::default(), |parent, seq| fence::digest(parent, text(seq).as_bytes()));
            let fields =
                ["digest".to_owned(), scripts::hex(digest.0), "batch".to_owned(), text(seq)].map(|it| bulk(&it));
            format!("*2\r\n{}*4\r\n{}", bulk(&format!("{seq}-0")), fields.concat())
        };
        let entries: Vec<String> = seqs.into_iter().map(entry).collect();
        format!("*{}\r\n{}", entries.len(), entries.concat())
    }

    /// What is read from a log if the server gives these answers, one after another.
    async fn read_of_log(answers: Vec<String>) -> Result<Vec<u64>, StoreError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let (mut socket, mut answers) = (BufReader::new(socket), answers.into_iter());
            while let Ok(Some(words)) = command(&mut socket).await {
                let entries = (words[0] == "XRANGE").then(|| answers.next()).flatten();
                let answer = entries.unwrap_or_else(|| answer(&words, &head_at(5)));
                if socket.get_mut().write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        let stretch = Stretch { shard: ShardId(0), after: Seq(0), until: Seq(40) };
        let recorded = read(&shared(None), &mut link_to(address), vec![stretch], usize::MAX).await?;
        Ok(recorded.iter().map(|batch| batch.seq.0).collect())
    }

    /// Between two answers retention may remove the beginning of the log; within one answer nothing disappears.
    #[tokio::test]
    async fn a_log_that_is_trimmed_while_it_is_read_is_not_damaged_and_one_with_a_hole_is() {
        let read = read_of_log(vec![entries(1..9), entries(30..41)]).await.unwrap();
        assert_eq!(read, (1..9).chain(30..41).collect::<Vec<u64>>());
        let hole = read_of_log(vec![entries((1..9).filter(|seq| *seq != 5))]).await.unwrap_err();
        assert!(matches!(&hole, StoreError::Damaged(text) if text.contains("has at 6-0 a batch")), "{hole:?}");
        let other = read_of_log(vec![entries(1..9), entries(9..12).replace("batch 9", "other 9")]).await.unwrap_err();
        assert!(matches!(&other, StoreError::Damaged(text) if text.contains("has at 9-0 a batch")), "{other:?}");
    }
}
