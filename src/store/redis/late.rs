//! The register goes on from further back than this node acknowledged, under another node or on a fork of this node's own
//! line. What the register lacks is put aside, complete and durable, before anything else is asked of it. It is never
//! replayed, because its addresses may have been granted to others meanwhile.
//!
//! The last point that both lines share is found in the register's log, by digest, or, if the log was trimmed, by the
//! take-overs that the head remembers. What was sent after that point is in the journal. If the journal does not reach back
//! that far, nobody knows what is missing, and the store stops. There is one exception: the journal reaches back to the
//! take-over of this process, and the state on which that take-over was built is missing as well. Then all that this process
//! did is missing, and is put aside. Earlier changes are for others to bring, except those of earlier tenures of this
//! process. If nobody has gone on since, perhaps no node has them any more, and the store stops.
//!
//! Neighbours: `checks` calls this before a shard is taken, and when a tenure has ended; `heal` if it finds a fork;
//! `store::late` keeps the result.

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
use super::whole;
use super::written;
use crate::store::{Epoch, Head, Seq, ShardId, StoreError, codec};

const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// Checks whether everything that clients were told of is on the lines of the present owners of the shards, and puts aside
/// what is not.
///
/// # Errors
/// Redis does not answer; it is not known what is missing; or it cannot be put aside.
pub(super) async fn review(shared: &RedisShared, link: &mut Link) -> Result<(), StoreError> {
    let doubtful = |line: &KnownLine| !line.owned && line.told.seq > Seq(0);
    let lines: Vec<KnownLine> = shared.lines().into_iter().filter(doubtful).collect();
    if lines.is_empty() {
        shared.lates.lacks_only(&[]);
        return Ok(());
    }
    let heads = heal::read_heads(shared, link, lines.iter().map(|line| line.shard).collect()).await?;
    if link.is_new() {
        // It is not known yet what other nodes must give back there.
        return Err(heal::behind(shared));
    }
    let (mut parted, mut own) = (Vec::new(), Vec::new());
    for (line, (shard, head)) in lines.iter().zip(heads) {
        let Some(head) = head else { return Err(whole::missing(shared, link, shard).await) };
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
    // A call that changed several shards is missing in all of them if it is missing in one, and nobody gives it back. This
    // is only looked for if there are shards of both kinds: the way may be as long as the journal, and nothing else of the
    // store runs meanwhile.
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
    shared.lates.lacks_only(&parted.iter().map(|(line, _)| line.shard).collect::<Vec<_>>());
    put_all_aside(shared, link, &parted).await
}

/// Calls were under way when this process was cut off. If other nodes went on from them, they count as applied from here on,
/// and are given back like everything else.
async fn learn(shared: &RedisShared, link: &mut Link, shard: ShardId) -> Result<(), StoreError> {
    if !shared.journal().doubts(shard) {
        return Ok(());
    }
    let takes = reach::takes(link, &shared.keys, shard, ANSWER_WITHIN).await?;
    let unproved = shared.journal().unproved(shard, &takes);
    let proved = reach::in_log(link, &shared.keys, (shard, unproved), ANSWER_WITHIN).await?;
    let found = shared.journal().found(shard, &takes, &proved);
    // A call was applied in all its shards, and nobody will ask about it again after this.
    found.into_iter().try_for_each(|(shard, point, epoch)| shared.line(shard, |line| line.learns(point, epoch)))
}

/// Puts aside what forks of this process's own line lack, in shards whose tenure was ended for it.
///
/// # Errors
/// As for [`review`].
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
        let Some(head) = head else { return Err(whole::missing(shared, link, shard).await) };
        forked.push((line, head));
    }
    put_all_aside(shared, link, &forked).await
}

async fn put_all_aside(shared: &RedisShared, link: &mut Link, parted: &[(KnownLine, Head)]) -> Result<(), StoreError> {
    let mut late: Vec<Option<Missing>> = Vec::with_capacity(parted.len());
    for (line, head) in parted {
        late.push(missing(shared, link, line, head).await?);
    }
    // This must be durable before anything ends this process, even if for one shard nobody knows what it lacks.
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
        // If the line is this process's own, what is on it counts as told: nobody else will say so when Redis goes back again.
        let (point, own) = (Point::of(head), heal::is_own(shared, line, head));
        let common = missing.common.unwrap_or((Point::NOWHERE, Epoch(0)));
        let told = if own { (point, head.epoch) } else { common };
        let stays = if own && shared.journal().knows(line.shard, point) { point } else { common.0 };
        // This comes before it is forgotten, because otherwise the next process would put it aside once more, after others
        // dealt with it. What both lines have is not noted as put aside: few servers may have it, and this process can give
        // it back as long as it lies on the present line.
        redo::put_aside(shared, line.shard, stays).await?;
        stand.push((line.shard, head, told, stays));
    }
    // Only now, after everything is written: otherwise one shard would be forgotten here while it is still looked for on its
    // own way.
    for &(shard, head, told, _) in &stand {
        shared.line(shard, |line| line.forget(head, told))?;
    }
    // And this comes last, for all shards at once: an entry of the journal may have changed several of them.
    if !stand.is_empty() {
        let stays: Vec<(ShardId, Point)> = stand.iter().map(|&(shard, .., stays)| (shard, stays)).collect();
        shared.journal().cut(&stays);
    }
    refusal.map_or(Ok(()), Err)
}

/// Logs that nothing of a shard is given back: it is not known what is missing, and an operator, or a node that went on,
/// has given it up. The present line may once have had the remembered changes and have let go of them since, so none of
/// them is claimed again.
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

/// Why nothing more may be granted here before an operator, or a node that goes on, has decided. The store is stopped then.
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
            // Everything that this process acknowledged is put aside, so any node that takes the shard from there settles
            // the matter.
            return Ok(Some(shared.went_back(line.shard, Some(head.token), &found)));
        }
    }
    Ok(None)
}

/// Has another node taken the shard since Redis went back? Then the register has an owner now, and the epoch of this head
/// belonged to another token on the line of this process. Without an owner, this may be the line of an earlier primary,
/// with which nobody goes on.
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

/// Does the shard stand on this process's own way, before or after what clients were told of? Then nothing is missing, or it
/// will be replayed. The result is remembered, because shards are taken one after another, and each time all the remaining
/// ones are checked.
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
        // Not remembered: what is missing may be replayed or put aside, and then the shard stands elsewhere.
        (true, false) => None,
    };
    found.map_or(Ok(()), |found| shared.line(line.shard, |line| line.finds(found)))?;
    Ok(is_on_way)
}

/// Does this process know what the line of this head lacks of what clients were told of?
pub(super) async fn knows(
    shared: &RedisShared,
    link: &mut Link,
    line: &KnownLine,
    head: &Head,
) -> Result<bool, StoreError> {
    Ok(missing(shared, link, line, head).await?.is_some())
}

/// What clients were told of and another line lacks.
#[derive(Default)]
struct Missing {
    /// The last point that both lines have, and its epoch; none if they do not even share the first point that was taken over.
    common: Option<(Point, Epoch)>,
    /// The line also lacks the state on which this process's last tenure was built, which other nodes may have made.
    lacks_others: bool,
    batches: Vec<Vec<u8>>,
}

/// What clients were told of and the line of this head lacks. None if that is forgotten.
async fn missing(
    shared: &RedisShared,
    link: &mut Link,
    line: &KnownLine,
    head: &Head,
) -> Result<Option<Missing>, StoreError> {
    let (way, is_whole) = shared.journal().stretches_to(line.shard, line.told);
    // The points where each tenure begins, and the point after each entry, each with its epoch and how many entries lead to it.
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
    // Common points come before the others, so a binary search finds the last one.
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

/// The batch of a shard in a call of a commit; the inner none if the call has none for it.
fn batch_in(call: &ScriptCall, shard: ShardId) -> Option<Option<Vec<u8>>> {
    for (bytes, _) in written::read(call)? {
        if codec::decode_batch(bytes).ok()?.shard == shard {
            return Some(Some(bytes.to_vec()));
        }
    }
    Some(None)
}

/// In order, each as it would be in the history.
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
    if let Err(error) = shared.blocking.run(move || lates.add_together(&together)).await {
        if let Some(unsaid) = shared.says_unwritten.turn() {
            let batches = shared.lates.unwritten();
            tracing::error!(
                redis = %shared.place, batches, %error, unsaid,
                "what this node acknowledged and the register lacks cannot be written down, so it is not given back yet, and others are \
                 granted it meanwhile: make room"
            );
        }
        return Err(error);
    }
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
