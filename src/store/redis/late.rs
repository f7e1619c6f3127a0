//! The register goes on from further back than this node acknowledged, by another node or on a fork of this one's own line: what
//! it lacks is put aside, whole and durable, before anything else is asked. It is never played: between the two, others
//! may have been granted what is in it.
//!
//! How far both lines are one is found in the register's log, by digest, or where that was trimmed by the take-overs that the
//! head remembers; what was sent behind it, in the journal. Where the journal does not reach back that far, nobody knows what is
//! missing, and the store stops. But where it reaches back to the take-over of this process, and what that was built on is
//! missing itself, all of what this process did is: it is put aside, too, and what was before is for others to bring, but for what
//! this process itself did when it owned the shard before. Where nobody has gone on since, it may be nobody's any more, and the
//! store stops then.
//!
//! Neighbours: `checks` asks for it before a shard is taken, and when a tenure has ended; `heal` where a fork is found;
//! `store::late` keeps it.

use std::sync::Arc;
use std::time::Duration;

use super::checks;
use super::heal;
use super::journal::{Deed, Forgotten, Move, Point};
use super::line::Found;
use super::link::Link;
use super::reach;
use super::redo;
use super::scripts::ScriptCall;
use super::shared::{KnownLine, RedisShared};
use super::written;
use crate::store::{Epoch, Head, Seq, ShardId, StoreError, codec};

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// Looks whether everything that somebody was told of is on the lines of those who own the shards now; puts aside what is
/// not.
///
/// # Errors
/// Redis does not answer; it is not known what is missing; or it cannot be put aside.
pub(super) async fn review(shared: &RedisShared, link: &mut Link) -> Result<(), StoreError> {
    let doubtful = |line: &KnownLine| !line.owned && line.told.seq > Seq(0);
    let lines: Vec<KnownLine> = shared.lines().into_iter().filter(doubtful).collect();
    if lines.is_empty() {
        return Ok(());
    }
    let heads = heal::read_heads(shared, link, lines.iter().map(|line| line.shard).collect()).await?;
    if link.is_new() {
        // It is not known yet what others have to give back there.
        return Err(heal::behind(shared));
    }
    let (mut parted, mut own) = (Vec::new(), Vec::new());
    for (line, (shard, head)) in lines.iter().zip(heads) {
        let head = head.ok_or_else(|| shared.absent(shard))?;
        if is_on_own_way(shared, line, &head)? {
            own.push((shard, head));
        } else if line.reviewed == Some(head.token) {
            // Nothing is missing there.
        } else if heal::is_on_line(shared, link, shard, (line.told, line.told_epoch), &head).await? {
            learn(shared, link, shard).await?;
            shared.line(shard, |line| line.review(head.token))?;
        } else {
            parted.push((*line, head));
        }
    }
    // What was changed together with something of those is missing with it, and nobody gives it back. Looked for only where there
    // is something of both: the way is as long as the journal, and nothing else of the store's runs meanwhile.
    while !parted.is_empty() {
        let held_up = |line: &KnownLine| {
            let head = own.iter().find(|(shard, _)| *shard == line.shard)?.1;
            let way = shared.journal().way_to(line.shard, line.told);
            let apart = |shard: ShardId| parted.iter().any(|(other, _): &(KnownLine, Head)| other.shard == shard);
            let before = |sent: &Forgotten| of_shard(sent, line.shard).map(|one| one.before);
            let behind = way.iter().skip_while(|sent| before(sent) != Some(Point::of(&head)));
            let together = behind.flat_map(|sent| &sent.moves).any(|one| apart(one.shard));
            (together && !apart(line.shard)).then_some((*line, head))
        };
        let more: Vec<_> = lines.iter().filter_map(held_up).collect();
        if more.is_empty() {
            break;
        }
        parted.extend(more);
    }
    put_all_aside(shared, link, &parted).await
}

/// Of what was under way when this process was cut off: did others go on from it? Then that is known from here on, and given back
/// as all else.
async fn learn(shared: &RedisShared, link: &mut Link, shard: ShardId) -> Result<(), StoreError> {
    if !shared.journal().doubts(shard) {
        return Ok(());
    }
    let takes = reach::takes(link, &shared.keys, shard, ANSWER_WITHIN).await?;
    let found = shared.journal().found(shard, &takes);
    // A call was done in all its shards, and after this one nobody asks for it again.
    found.into_iter().try_for_each(|(shard, point, epoch)| shared.line(shard, |line| line.learns(point, epoch)))
}

/// Puts aside what forks of the own line lack, in shards whose tenure was ended for it.
///
/// # Errors
/// As [`review`].
pub(super) async fn put_aside_forks(
    shared: &RedisShared,
    link: &mut Link,
    shards: &[ShardId],
) -> Result<(), StoreError> {
    let is_meant = |line: &KnownLine| shards.contains(&line.shard) && line.told.seq > Seq(0);
    let lines: Vec<KnownLine> = shared.lines().into_iter().filter(is_meant).collect();
    let heads = heal::read_heads(shared, link, lines.iter().map(|line| line.shard).collect()).await?;
    let mut forked = Vec::with_capacity(lines.len());
    for (line, (shard, head)) in lines.into_iter().zip(heads) {
        forked.push((line, head.ok_or_else(|| shared.absent(shard))?));
    }
    put_all_aside(shared, link, &forked).await
}

async fn put_all_aside(shared: &RedisShared, link: &mut Link, parted: &[(KnownLine, Head)]) -> Result<(), StoreError> {
    let mut late: Vec<Option<Missing>> = Vec::with_capacity(parted.len());
    for (line, head) in parted {
        late.push(missing(shared, link, line, head).await?);
    }
    // Durable before anything ends this process; also where of one shard nobody knows what it lacks.
    let mut several = Vec::with_capacity(parted.len());
    for (at, missing) in parted.iter().zip(&mut late) {
        let batches = missing.as_mut().map(|missing| std::mem::take(&mut missing.batches)).unwrap_or_default();
        several.push((at, batches));
    }
    put_aside(shared, several).await?;
    let refusal = refusal(shared, link, parted, &late).await?;
    let mut stand = Vec::with_capacity(parted.len());
    for ((line, head), missing) in parted.iter().zip(&late) {
        let missing = match missing {
            Some(missing) => missing,
            None if line.given_up => {
                given_up(shared, line, head);
                &Missing::default()
            }
            None => continue,
        };
        // What is there on a line of this process's own may be taken for told: nobody else says so when it goes back again.
        let (point, own) = (Point::of(head), heal::is_own(shared, line, head));
        let common = missing.common.unwrap_or((Point::NOWHERE, Epoch(0)));
        let told = if own { (point, head.epoch) } else { common };
        let stays = if own && shared.journal().knows(line.shard, point) { point } else { common.0 };
        // Before it is forgotten: the next process would put it aside once more, after others dealt with it. What both lines have
        // is not: few servers may have it, and this one gives it back as long as it lies on the line that goes on.
        redo::put_aside(shared, line.shard, stays).await?;
        stand.push((line.shard, head, told, stays));
    }
    // Only now, when all of it is written: else one of them would be forgotten here, and looked for on its own way.
    for &(shard, head, told, _) in &stand {
        shared.line(shard, |line| line.forget(head, told))?;
    }
    // And only now: a call that changed several shards is in the journal once. All at once, as all of it is gone through.
    if !stand.is_empty() {
        let stays: Vec<(ShardId, Point)> = stand.iter().map(|&(shard, .., stays)| (shard, stays)).collect();
        shared.journal().cut(&stays);
    }
    refusal.map_or(Ok(()), Err)
}

/// An operator gives up what nobody knows, or who went on without it did. Of what is remembered it is not known whether the line
/// that goes on had it once and let go of it since, so none of it is claimed again.
fn given_up(shared: &RedisShared, line: &KnownLine, head: &Head) {
    tracing::error!(
        redis = %shared.place,
        shard = line.shard.0,
        acknowledged = line.told.seq.0,
        goes_on_at = head.seq.0,
        "it is not known here since when the register lacks what this node acknowledged before it was started, so nothing of this \
         shard is given back: `allod ip claim` for whoever has what is not listed any more"
    );
}

/// Why nothing more may be granted here before an operator, or somebody who goes on, has decided; the store is stopped then.
async fn refusal(
    shared: &RedisShared,
    link: &mut Link,
    parted: &[(KnownLine, Head)],
    late: &[Option<Missing>],
) -> Result<Option<StoreError>, StoreError> {
    for ((line, head), missing) in parted.iter().zip(late).filter(|((line, _), _)| !line.given_up) {
        let Some(missing) = missing else {
            let found = "another owner's, who went on from further back than this server remembers what it changed";
            return Ok(Some(shared.went_back(line.shard, None, found)));
        };
        let may_be_nobodys = missing.lacks_others && head.epoch < line.told_epoch;
        if may_be_nobodys && !was_taken_since(shared, link, line, head).await? {
            let found = format!(
                "at batch {} in epoch {}, which is further back than what this server began with, and nobody has gone on since",
                head.seq.0, head.epoch.0
            );
            // All that this one acknowledged is put aside, so whoever takes the shard from there on settles it.
            return Ok(Some(shared.went_back(line.shard, Some(head.token), &found)));
        }
    }
    Ok(None)
}

/// Did somebody take it when Redis had gone back? It has an owner whom the line of this process does not lead through. Where it has
/// none that may be the line of a primary of before, which nobody goes on with.
async fn was_taken_since(
    shared: &RedisShared,
    link: &mut Link,
    line: &KnownLine,
    head: &Head,
) -> Result<bool, StoreError> {
    let takes = shared.line(line.shard, |line| line.past())?;
    let is_of_another_line = takes.token_in(head.epoch).is_some_and(|token| token != head.token);
    Ok(is_of_another_line && checks::holder(shared, link).await?.is_some())
}

/// Does it stand where this process brought it, before or behind what somebody was told of? Then nothing is missing, or it is
/// played again. The journal is asked once: shards are taken one after the other, and each time all that are left are looked at.
fn is_on_own_way(shared: &RedisShared, line: &KnownLine, head: &Head) -> Result<bool, StoreError> {
    let (stands, told) = (Point::of(head), line.told);
    if line.found == Some(Found::Others(head.token)) {
        return Ok(false);
    }
    let own_way = Found::OwnWay(stands, told);
    if line.found == Some(own_way) {
        return Ok(true);
    }
    let is_own = heal::is_own(shared, line, head);
    let leads = |from: Point, to: Point| shared.journal().leads(line.shard, from, to);
    let is_on_way = is_own && (leads(stands, told) || leads(told, stands));
    let found = match (is_own, is_on_way) {
        (_, true) => Some(own_way),
        (false, false) => Some(Found::Others(head.token)),
        // It may be played again, or is put aside, and stands elsewhere then.
        (true, false) => None,
    };
    found.map_or(Ok(()), |found| shared.line(line.shard, |line| line.finds(found)))?;
    Ok(is_on_way)
}

/// Is it known here what the line of this head lacks of what somebody was told of?
pub(super) async fn knows(
    shared: &RedisShared,
    link: &mut Link,
    line: &KnownLine,
    head: &Head,
) -> Result<bool, StoreError> {
    Ok(missing(shared, link, line, head).await?.is_some())
}

/// What somebody was told of and another line has not.
#[derive(Default)]
struct Missing {
    /// The last point that both lines have, and its epoch; none: not even the first that was taken over.
    common: Option<(Point, Epoch)>,
    /// It lacks what this process took over last, too: what others did.
    lacks_others: bool,
    /// In order.
    batches: Vec<Vec<u8>>,
}

/// What somebody was told of and the line of this head has not. None where that is forgotten.
async fn missing(
    shared: &RedisShared,
    link: &mut Link,
    line: &KnownLine,
    head: &Head,
) -> Result<Option<Missing>, StoreError> {
    let (way, is_whole) = shared.journal().stretches_to(line.shard, line.told);
    // Where each stretch begins, and behind each that was sent: the point, its epoch, and how much was sent up to there.
    let mut points: Vec<(Point, Epoch, usize)> = Vec::with_capacity(way.len() + 1);
    let begun = way.iter().find_map(|sent| begins(sent).map(|begun| Epoch(begun.0.saturating_sub(1))));
    let (mut epoch, mut last_begin) = (begun.unwrap_or(line.told_epoch), 0);
    for (sent, at) in way.iter().zip(0..) {
        let Some(one) = of_shard(sent, line.shard) else { continue };
        if points.last().is_none_or(|(stands, ..)| *stands != one.before) {
            last_begin = points.len();
            points.push((one.before, begins(sent).map_or(epoch, |begun| Epoch(begun.0.saturating_sub(1))), at));
        }
        epoch = begins(sent).unwrap_or(epoch);
        points.push((one.after, epoch, at + 1));
    }
    // What is common comes before what is not.
    let (mut common, mut apart) = (0, points.len());
    while common < apart {
        let middle = common + (apart - common) / 2;
        let (point, epoch, _) = points[middle];
        if heal::is_on_line(shared, link, line.shard, (point, epoch), head).await? {
            common = middle + 1;
        } else {
            apart = middle;
        }
    }
    if common == 0 && !is_whole {
        return Ok(None);
    }
    let last = common.checked_sub(1).map(|last| points[last]);
    let mut batches = Vec::new();
    for sent in &way[last.map_or(0, |(.., sent)| sent)..] {
        match &sent.deed {
            Deed::Commit(call) => {
                let Some(of_shard) = batch_in(call, line.shard) else { return Ok(None) };
                batches.extend(of_shard);
            }
            Deed::Batch(batch) => batches.push(batch.bytes.clone()),
            Deed::Take(_) => {}
        }
    }
    let is_left = points.last().is_none_or(|(stands, ..)| *stands != line.told);
    let lacks_others = is_left || common <= last_begin;
    Ok(Some(Missing { common: last.map(|(point, epoch, _)| (point, epoch)), lacks_others, batches }))
}

/// The epoch that a take-over begins.
fn begins(sent: &Forgotten) -> Option<Epoch> {
    match sent.deed {
        Deed::Take(epoch) => Some(epoch),
        Deed::Commit(_) | Deed::Batch(_) => None,
    }
}

fn of_shard(sent: &Forgotten, shard: ShardId) -> Option<Move> {
    sent.moves.iter().find(|one| one.shard == shard).copied()
}

/// The batch of a shard in a call that commits; none where there is none.
fn batch_in(call: &ScriptCall, shard: ShardId) -> Option<Option<Vec<u8>>> {
    for (bytes, _) in written::read(call)? {
        if codec::decode_batch(bytes).ok()?.shard == shard {
            return Some(Some(bytes.to_vec()));
        }
    }
    Some(None)
}

/// In order, as each is to stand in the history.
type EncodedBatches = Vec<Vec<u8>>;

async fn put_aside(
    shared: &RedisShared,
    mut several: Vec<(&(KnownLine, Head), EncodedBatches)>,
) -> Result<(), StoreError> {
    several.retain(|(_, batches)| !batches.is_empty());
    if several.is_empty() {
        return Ok(());
    }
    let counts: Vec<usize> = several.iter().map(|(_, batches)| batches.len()).collect();
    let (lines, batches): (Vec<_>, Vec<_>) = several.into_iter().unzip();
    let named = lines.iter().zip(batches).map(|((line, _), batches)| (line.shard, line.told.digest, batches));
    let (together, lates): (Vec<_>, _) = (named.collect(), Arc::clone(&shared.lates));
    shared.blocking.run(move || lates.add_together(&together)).await?;
    for ((line, head), batches) in lines.into_iter().zip(counts) {
        tracing::error!(
            redis = %shared.place,
            shard = line.shard.0,
            batches,
            acknowledged = line.told.seq.0,
            went_on_at = head.seq.0,
            path = shared.lates.path(line.shard, line.told.digest).map(|path| path.display().to_string()),
            "a line goes on from further back than this node acknowledged: the register lacks changes, which are put aside"
        );
    }
    Ok(())
}
