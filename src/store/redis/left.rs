//! A node that takes a shard remembers the last batches of the previous owner, as the log has them.
//!
//! *A batch is under way when its owner is cut off: Redis applies it, the next owner finds it and goes on from it, and then
//! Redis goes back to before it. The first owner does not know that it was applied, and the line of the next owner begins
//! after it. So nobody gave it back, and nothing that followed it could be given back.* So the next owner replays it as
//! well, on condition of exactly the head before it, as for all else. This also covers a previous owner that has ended, and
//! its memory with it. If it left that memory to this process (`redo`), the memory has what it was told of, but not what was
//! under way when it ended.
//!
//! Little more is remembered than may be under way at once: that owner has whatever was acknowledged earlier, and gives it
//! back first. The batches are replayed in all shards or in none, because that owner has them in calls that change several
//! shards at once.
//!
//! Neighbours: `take` sends [`command`] and calls [`read`]; `journal` remembers; `playing` calls [`together`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use redis::{Cmd, Value};

use super::history::{LogEntry, entry_of};
use super::journal::{Author, Deed, Forgotten, LoneBatch, Move, Point};
use super::scripts::{LoadedScript, ScriptCall};
use super::shared::RedisShared;
use super::written;
use crate::limits::BATCH_BYTES_MAX;
use crate::store::{Seq, ShardId, StoreError, TransactionId, codec};

/// How many batches of a shard: several times what a committer has under way.
const BATCHES_MAX: usize = 8;
/// How many of them however long they are: as many as a committer has under way.
const BATCHES_SURE: usize = 2;
/// If there are more of them, how many bytes in total. More would delay the take-overs of the other shards if Redis is far
/// away, and those are awaited.
const BYTES_MAX: usize = BATCH_BYTES_MAX;

/// Asks for the last batches of a shard. The command is sent right after the take-over, because a node that takes shards
/// from a distant or slow Redis cannot wait twice. But the take-over does not wait for the answer: it stands, whatever
/// becomes of this. For the first shard several nodes compete, most of them in vain and again and again; so there the
/// command is sent after the take-over, together with the question which run of Redis it was. The caller owns the shard and
/// commits nothing before the answer.
pub(super) fn command(shared: &RedisShared, shard: ShardId) -> Cmd {
    let mut call = ScriptCall::new(&shared.shas, LoadedScript::Left, &[shared.keys.log(shard)]);
    call.number(BATCHES_MAX as u64).number(BATCHES_SURE as u64).number(BYTES_MAX as u64);
    call.command
}

/// The last batches before a point, under the token of that point, in order, from the answer to [`command`], with their
/// author. None if the command was refused: the take-over stands without them.
pub(super) fn read(
    shard: ShardId,
    (until, author): (Point, Author),
    answer: Result<Value, impl std::fmt::Display>,
) -> Vec<(Move, LoneBatch)> {
    let entries = match answer {
        Ok(Value::Array(entries)) => entries,
        Ok(_) => Vec::new(),
        Err(error) => {
            tracing::debug!(shard = shard.0, %error, "what the owner before left cannot be read");
            Vec::new()
        }
    };
    let entries = entries.into_iter().map_while(entry_of);
    // An entry after the head is left of a call that broke off (see `surplus`).
    let mut entries = entries.skip_while(|entry| entry.seq > until.seq.0).peekable();
    let mut stands = until;
    let mut left = VecDeque::new();
    while let Some(LogEntry { seq, digest, bytes, .. }) = entries.next() {
        let (last, its_digest) = match entries.peek() {
            Some(earlier) => (earlier.seq, earlier.digest),
            // The first batch of the shard follows the empty line.
            None if seq == 1 => (0, Point::NOWHERE.digest),
            None => break,
        };
        let Ok(batch) = codec::decode_batch(&bytes) else { break };
        let before = Point { seq: Seq(last), digest: its_digest, ..until };
        let is_next = (Seq(seq), digest) == (stands.seq, stands.digest) && last + 1 == seq;
        if !is_next || batch.token != until.token {
            break;
        }
        let lone = LoneBatch { bytes, epoch: batch.epoch, author };
        left.push_front((Move { shard, before, after: stands }, lone));
        stands = before;
    }
    left.into()
}

/// Replaces lone batches by the calls that commit them, with each line in its order. Changes of one act go into one call, as
/// before: if batches found in the logs are replayed in one shard, they are in all of them (see `Journal::missing`). All of
/// them come where the first one does: they are older than what this process did in its shards, and newer than what it has
/// from a process before it.
///
/// # Errors
/// A batch cannot be read.
pub(super) fn together(shared: &RedisShared, missing: &[Forgotten]) -> Result<Vec<Forgotten>, StoreError> {
    let mut lines: Vec<VecDeque<Bound>> = Vec::new();
    let (mut calls, mut rest) = (Vec::new(), Vec::new());
    for part in missing {
        if lines.is_empty() {
            calls.append(&mut rest);
        }
        match (&part.deed, part.moves.first()) {
            (Deed::Batch(batch), Some(&one)) if part.deed.is_found() => {
                let bound = Bound::new(one, batch)?;
                match lines.iter_mut().find(|line| line.front().is_some_and(|first| first.one.shard == one.shard)) {
                    Some(line) => line.push_back(bound),
                    None => lines.push(VecDeque::from([bound])),
                }
            }
            (Deed::Batch(batch), Some(&one)) => rest.push(committed(shared, &[Bound::new(one, batch)?])?),
            (Deed::Batch(_) | Deed::Commit(_) | Deed::Take(_), _) => rest.push(part.clone()),
        }
    }
    for bound in grouped(lines) {
        calls.push(committed(shared, &bound)?);
    }
    calls.extend(rest);
    Ok(calls)
}

/// The call that commits these batches. It also runs while the memory is full: there was room for them before.
fn committed(shared: &RedisShared, bound: &[Bound]) -> Result<Forgotten, StoreError> {
    let written: Vec<_> = bound.iter().map(|bound| (&bound.batch.bytes, bound.digests())).collect();
    let call = written::again(shared, LoadedScript::CommitLettingGo, &written)?;
    Ok(Forgotten { deed: Deed::Commit(Arc::new(call)), moves: bound.iter().map(|bound| bound.one).collect() })
}

/// A batch, and the acts over several shards that it is part of.
#[derive(Debug)]
struct Bound {
    one: Move,
    batch: Arc<LoneBatch>,
    acts: HashSet<TransactionId>,
}

impl Bound {
    fn new(one: Move, batch: &Arc<LoneBatch>) -> Result<Self, StoreError> {
        let decoded = codec::decode_batch(&batch.bytes);
        let decoded = decoded.map_err(|error| written::unreadable(format_args!("it {error}")))?;
        let acts = decoded.acts.iter().filter_map(|act| act.transaction).collect();
        Ok(Self { one, batch: Arc::clone(batch), acts })
    }

    fn digests(&self) -> written::Digests {
        (self.one.before.digest, self.one.after.digest)
    }
}

/// Groups the batches of several lines: those of one act together, each line in its order.
fn grouped(mut lines: Vec<VecDeque<Bound>>) -> Vec<Vec<Bound>> {
    let mut groups = Vec::new();
    while !lines.is_empty() {
        let whole = (0..lines.len()).find_map(|line| with_its_acts(&lines, line));
        // The parts of an act were never separate, so such a group is found. If one is incomplete all the same, go on in order.
        let group = whole.unwrap_or_else(|| vec![0]);
        groups.push(group.into_iter().filter_map(|line| lines[line].pop_front()).collect());
        lines.retain(|line| !line.is_empty());
    }
    groups
}

/// The lines whose next batches belong together with the next one of this line; none while one of those batches is not next.
fn with_its_acts(lines: &[VecDeque<Bound>], line: usize) -> Option<Vec<usize>> {
    let mut places: HashMap<TransactionId, Vec<(usize, usize)>> = HashMap::new();
    for (at, batches) in lines.iter().enumerate() {
        for (behind, bound) in batches.iter().enumerate() {
            bound.acts.iter().for_each(|act| places.entry(*act).or_default().push((at, behind)));
        }
    }
    let mut group = vec![line];
    let mut looked = 0;
    while let Some(&next) = group.get(looked) {
        looked += 1;
        for &(other, behind) in lines[next].front()?.acts.iter().flat_map(|act| &places[act]) {
            if behind > 0 {
                return None;
            }
            if !group.contains(&other) {
                group.push(other);
            }
        }
    }
    Some(group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::types::{Generation, ShardTime};
    use crate::store::{Batch, Digest, Epoch, Token};

    fn bound(shard: u16, seq: u64, acts: &[u128]) -> Bound {
        let point = |seq| Point { token: Token(1), seq: Seq(seq), digest: Digest(u128::from(seq)) };
        let one = Move { shard: ShardId(shard), before: point(seq - 1), after: point(seq) };
        let batch = LoneBatch { bytes: Vec::new(), epoch: Epoch(1), author: Author::Other };
        Bound { one, batch: Arc::new(batch), acts: acts.iter().map(|act| TransactionId(*act)).collect() }
    }

    fn names(groups: &[Vec<Bound>]) -> Vec<Vec<(u16, u64)>> {
        let name = |bound: &Bound| (bound.one.shard.0, bound.one.after.seq.0);
        groups.iter().map(|group| group.iter().map(name).collect()).collect()
    }

    /// In the order of Redis, the last first.
    fn logged(seqs: impl DoubleEndedIterator<Item = u64>) -> Value {
        let text = |text: String| Value::BulkString(text.into_bytes());
        let entry = |seq: u64| {
            let batch = Batch {
                shard: ShardId(3),
                epoch: Epoch(2),
                token: Token(7),
                seq: Seq(seq),
                time: ShardTime(1),
                generation: Generation(1),
                acts: Vec::new(),
            };
            let mut bytes = Vec::new();
            codec::encode_batch(&batch, codec::Format::NEWEST, &mut bytes).unwrap();
            let digest = [text("digest".to_owned()), text(format!("{seq:032x}"))];
            let batch = [text("batch".to_owned()), Value::BulkString(bytes)];
            Value::Array(vec![text(format!("{seq}-0")), Value::Array([digest, batch].concat())])
        };
        Value::Array(seqs.rev().map(entry).collect())
    }

    #[test]
    fn whatever_a_committer_has_under_way_is_left_however_long_it_is() {
        assert_eq!(BATCHES_SURE, crate::actors::committer::GROUPS_IN_FLIGHT_MAX);
    }

    #[test]
    fn the_first_batch_of_a_shard_is_left_too_and_one_behind_what_was_trimmed_is_not() {
        let until = |seq| Point { token: Token(7), seq: Seq(seq), digest: Digest(u128::from(seq)) };
        let left = |seqs: std::ops::RangeInclusive<u64>| {
            let end = *seqs.end();
            let left = read(ShardId(3), (until(end), Author::Other), Ok::<_, StoreError>(logged(seqs)));
            left.into_iter().map(|(one, _)| (one.before.seq.0, one.after.seq.0)).collect::<Vec<_>>()
        };
        assert_eq!(left(1..=3), [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(left(4..=6), [(4, 5), (5, 6)]);
    }

    #[test]
    fn what_one_act_changed_is_together_and_each_line_in_its_order() {
        let lines = vec![
            VecDeque::from([bound(0, 5, &[]), bound(0, 6, &[1]), bound(0, 7, &[2])]),
            VecDeque::from([bound(1, 9, &[1, 3])]),
            VecDeque::from([bound(2, 3, &[3]), bound(2, 4, &[2])]),
        ];
        assert_eq!(names(&grouped(lines)), [vec![(0, 5)], vec![(0, 6), (1, 9), (2, 3)], vec![(0, 7), (2, 4)]]);
    }

    #[test]
    fn what_cannot_be_together_goes_on_in_order() {
        let lines = vec![
            VecDeque::from([bound(0, 5, &[1]), bound(0, 6, &[2])]),
            VecDeque::from([bound(1, 9, &[2]), bound(1, 10, &[1])]),
        ];
        let groups = names(&grouped(lines));
        assert_eq!(groups.concat().len(), 4, "{groups:?}");
    }
}
