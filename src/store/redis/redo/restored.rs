//! What an earlier process kept and did not put aside is restored as if this process had sent it.
//!
//! Neighbours: `frames` reads the file; `journal` and `line` get the result.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Found;
use super::frames::Redone;
use crate::store::redis::journal::{Author, Deed, LoneBatch, Move, Point};
use crate::store::redis::scripts::LoadedScript;
use crate::store::redis::shared::RedisShared;
use crate::store::redis::written::{self, Digests};
use crate::store::{Batch, Digest, Epoch, Seq, ShardId, StoreError, codec};

/// Restores what an earlier process kept. `given_up`: until a shard is taken, it may go on even if it is not known what
/// of this is missing.
///
/// # Errors
/// An entry cannot be read.
pub(in crate::store::redis) fn restore(shared: &RedisShared, found: Found, given_up: bool) -> Result<(), StoreError> {
    let entries = remaining(found.0)?;
    if entries.is_empty() {
        return Ok(());
    }
    tracing::warn!(
        redis = %shared.place,
        changes = entries.len(),
        "the process before this one left changes that it acknowledged and that Redis may lack: what is missing of them is given \
         back"
    );
    for (redone, moves) in entries {
        let applied = !matches!(redone, Redone::Commit { applied: false, .. });
        for (one, epoch) in moves.iter().filter(|_| applied) {
            shared.line(one.shard, |line| line.restore(one.after, *epoch, given_up))?;
        }
        for (deed, moves) in deeds(shared, redone, moves)? {
            shared.journal().restore(deed, moves, applied);
        }
    }
    Ok(())
}

/// What can be replayed. If a call was put aside in some of its shards, the rest becomes lone batches, as in the journal in
/// memory.
fn deeds(shared: &RedisShared, redone: Redone, moves: Moves) -> Result<Vec<(Deed, Vec<Move>)>, StoreError> {
    let all = |moves: Moves| moves.into_iter().map(|(one, _)| one).collect();
    Ok(match redone {
        Redone::Commit { batches, .. } if batches.len() == moves.len() => {
            let call = written::again(shared, LoadedScript::Commit, &batches)?;
            vec![(Deed::Commit(Arc::new(call.fitted())), all(moves))]
        }
        Redone::Commit { batches, .. } => {
            let shards: Vec<ShardId> = decoded(&batches)?.iter().map(|batch| batch.shard).collect();
            let alone = |(shard, (bytes, _)): (ShardId, (Vec<u8>, Digests))| {
                let &(one, epoch) = moves.iter().find(|(one, _)| one.shard == shard)?;
                Some((Deed::Batch(Arc::new(LoneBatch { bytes, epoch, author: Author::Own })), vec![one]))
            };
            shards.into_iter().zip(batches).filter_map(alone).collect()
        }
        Redone::Take(_, epoch) => vec![(Deed::Take(epoch), all(moves))],
        Redone::Aside(..) => Vec::new(),
    })
}

/// What was not put aside since: each entry once, in the order of the lines.
pub(super) fn remaining(found: Vec<Redone>) -> Result<Vec<(Redone, Moves)>, StoreError> {
    let mut entries: Vec<(Redone, Moves)> = Vec::new();
    let mut places: HashMap<(ShardId, Point), usize> = HashMap::new();
    let first = |moves: &Moves| moves.first().map(|(one, _)| (one.shard, one.after));
    for (redone, moves) in without_refused(found)? {
        if let Redone::Aside(shard, stays) = redone {
            entries = in_order(entries);
            put_aside_of(&mut entries, shard, stays);
            places = (0..).zip(&entries).filter_map(|(at, (_, moves))| Some((first(moves)?, at))).collect();
            continue;
        }
        // An entry that Redis confirmed only later stays where it was written first, because its followers may lie in between.
        let before = first(&moves).and_then(|first| entries.get_mut(*places.get(&first)?));
        if let Some((before, _)) = before.filter(|entry| entry.1 == moves) {
            if !matches!(before, Redone::Commit { applied: true, .. }) {
                *before = redone;
            }
            continue;
        }
        places.extend(first(&moves).map(|first| (first, entries.len())));
        entries.push((redone, moves));
    }
    entries.retain(|(_, moves)| !moves.is_empty());
    Ok(in_order(entries))
}

/// Leaves out what was kept while it was under way and was refused after that: another batch got the number of one of its
/// batches. A number is only used again after a definite refusal.
fn without_refused(found: Vec<Redone>) -> Result<Vec<(Redone, Moves)>, StoreError> {
    let with_moves = |redone: Redone| moves_of(&redone).map(|moves| (redone, moves));
    let mut found = found.into_iter().map(with_moves).collect::<Result<Vec<_>, _>>()?;
    let number = |one: &Move| (one.shard, one.after.token, one.after.seq);
    let moved = found.iter().flat_map(|(_, moves)| moves);
    let last: HashMap<_, Digest> = moved.map(|(one, _)| (number(one), one.after.digest)).collect();
    let stands = |(one, _): &(Move, Epoch)| last.get(&number(one)) == Some(&one.after.digest);
    let is_sure = |redone: &Redone| !matches!(redone, Redone::Commit { applied: false, .. });
    found.retain(|(redone, moves)| is_sure(redone) || moves.iter().all(stands));
    Ok(found)
}

/// Puts each entry after the one that it follows in each of its shards, and otherwise keeps the order of writing. An entry
/// that replicas had and Redis forgot is written only when it is replayed, which may be after the entries that follow it.
fn in_order(entries: Vec<(Redone, Moves)>) -> Vec<(Redone, Moves)> {
    let mut begins: HashMap<(ShardId, Point), Vec<usize>> = HashMap::new();
    for (at, (_, moves)) in entries.iter().enumerate() {
        moves.iter().for_each(|(one, _)| begins.entry((one.shard, one.before)).or_default().push(at));
    }
    let followers = |moves: &Moves| -> Vec<usize> {
        moves.iter().filter_map(|(one, _)| begins.get(&(one.shard, one.after))).flatten().copied().collect()
    };
    let mut waits_for = vec![0_usize; entries.len()];
    entries.iter().for_each(|(_, moves)| followers(moves).into_iter().for_each(|at| waits_for[at] += 1));
    let mut free: BTreeSet<usize> = (0..entries.len()).filter(|at| waits_for[*at] == 0).collect();
    let mut entries: Vec<Option<(Redone, Moves)>> = entries.into_iter().map(Some).collect();
    let mut ordered = Vec::with_capacity(entries.len());
    while let Some(at) = free.pop_first() {
        let Some(entry) = entries[at].take() else { continue };
        for follower in followers(&entry.1) {
            waits_for[follower] -= 1;
            free.extend((waits_for[follower] == 0).then_some(follower));
        }
        ordered.push(entry);
    }
    // A line never leads back to an earlier point, so nothing is left.
    ordered.extend(entries.into_iter().flatten());
    ordered
}

/// Removes what moved a shard, except what leads to the point that stays.
fn put_aside_of(entries: &mut [(Redone, Moves)], shard: ShardId, stays: Option<Point>) {
    let mut stands = stays;
    for (_, moves) in entries.iter_mut().rev() {
        moves.retain(|(one, _)| {
            let leads = one.shard == shard && Some(one.after) == stands;
            if leads {
                stands = Some(one.before);
            }
            leads || one.shard != shard
        });
    }
}

/// The moves of a deed, each with its epoch.
pub(super) type Moves = Vec<(Move, Epoch)>;

fn moves_of(redone: &Redone) -> Result<Moves, StoreError> {
    Ok(match redone {
        Redone::Commit { batches, .. } => {
            let decoded = decoded(batches)?;
            let with_digests = decoded.iter().zip(batches);
            let moved = |(batch, (_, digests)): (&Batch, &(Vec<u8>, Digests))| {
                let &Batch { shard, epoch, token, seq, .. } = batch;
                let before = Point { token, seq: Seq(seq.0.saturating_sub(1)), digest: digests.0 };
                (Move { shard, before, after: Point { token, seq, digest: digests.1 } }, epoch)
            };
            with_digests.map(moved).collect()
        }
        Redone::Take(taken, epoch) => vec![(*taken, *epoch)],
        Redone::Aside(..) => Vec::new(),
    })
}

pub(super) fn decoded(written: &[(Vec<u8>, Digests)]) -> Result<Vec<Batch>, StoreError> {
    written.iter().map(|(bytes, _)| codec::decode_batch(bytes).map_err(|error| newer(&error))).collect()
}

/// The checksum of its frame was right.
fn newer(error: &codec::CodecError) -> StoreError {
    StoreError::newer(format_args!("the redo journal has a batch that {error}"))
}
