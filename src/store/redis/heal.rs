//! Redis went back: what this process sent and Redis forgot is played again before anything else is asked of it.
//!
//! After a failover to a replica that lacked the last changes, or a restart from an older file, the heads of shards stand
//! further back. Whenever a connection was made anew, or an answer does not fit, the store is *in doubt*: every task reads
//! the heads before it goes on, and the first one to do so heals.
//!
//! Only on one's own line (CONSISTENCY 9): a head that the journal remembers, by token, seq and digest, or the very head
//! that a take-over of this process replaced. Then the missing calls are sent once more, byte for byte, and take-overs
//! again on condition of exactly that head. The script refuses each of them if somebody else came in between. A head of
//! another owner is left alone, for the fence speaks for itself; whatever else does not fit stops the store.

use std::sync::Arc;
use std::time::Duration;

use redis::Pipeline;
use redis::aio::MultiplexedConnection;

use super::journal::{Deed, Missing, Move, Point};
use super::link::{self, Failed, Link};
use super::scripts::{self, Call, Loaded, Taken, Verdict};
use super::shared::Shared;
use crate::limits::NODE_LEASE_MS;
use crate::store::{Epoch, Head, ShardId, StoreError};

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// A connection on which nothing is missing.
pub(super) async fn ready(shared: &Shared, link: &mut Link) -> Result<(MultiplexedConnection, u64), Failed> {
    let (connection, number) = link.connected().await?;
    if link.is_new() {
        shared.doubt();
    }
    settle(shared, link).await.map_err(Failed::NotApplied)?;
    Ok((connection, number))
}

/// An answer does not fit: is something missing? Tells whether something was, and is there again.
pub(super) async fn again(shared: &Shared, link: &mut Link) -> Result<bool, StoreError> {
    let before = shared.healed();
    shared.doubt();
    settle(shared, link).await?;
    Ok(shared.healed() > before)
}

/// Ends the doubt, if there is any.
async fn settle(shared: &Shared, link: &mut Link) -> Result<(), StoreError> {
    if !shared.in_doubt() {
        return Ok(());
    }
    let _one = shared.healing.lock().await;
    let raised = shared.doubts();
    if !shared.in_doubt() {
        return Ok(());
    }
    shared.sound()?;
    // Before the heads are read: what Redis acknowledges meanwhile may be missing in them. And in this order: what is
    // acknowledged in a line was applied in the journal before.
    let lines = shared.lines();
    let standing = shared.journal().standing();
    let mut heads = Vec::with_capacity(lines.len());
    for (shard, head) in read_heads(shared, link, lines.iter().map(|line| line.shard).collect()).await? {
        heads.push((shard, head.ok_or_else(|| shared.absent(shard))?));
    }
    let points: Vec<(ShardId, Point)> = heads.iter().map(|(shard, head)| (*shard, Point::of(head))).collect();
    let found = shared.journal().missing(&points, &standing);
    let gone_back = |shard: ShardId, why: &str| {
        let head = heads.iter().find(|(other, _)| *other == shard).map(|(_, head)| head);
        let acknowledged = lines.iter().find(|line| line.shard == shard).map_or(0, |line| line.acknowledged.0);
        let at = head.map_or_else(String::new, |head| format!("at batch {} in epoch {}", head.seq.0, head.epoch.0));
        shared.went_back(shard, acknowledged, &format!("{at}, {why}"))
    };
    let missing =
        found.map_err(|shard| gone_back(shard, "which is further back than this server remembers what it changed"))?;
    let moves = || missing.iter().flat_map(|missing| &missing.moves);
    for (line, (shard, head)) in lines.iter().zip(&heads) {
        let behind = head.token == line.token && head.seq < line.acknowledged;
        let healed = || moves().rfind(|one| one.shard == *shard).is_some_and(|one| one.after.seq >= line.acknowledged);
        if (behind || head.epoch < line.epoch) && line.owned && !healed() {
            return Err(gone_back(*shard, "and what is missing is not known here"));
        }
    }
    if !missing.is_empty() {
        play(shared, link, &missing).await.map_err(|error| match error {
            Unplayed::Later(error) => error,
            Unplayed::Never(shard) => gone_back(shard, "where what is missing does not fit any more"),
        })?;
    }
    shared.settled(raised);
    Ok(())
}

async fn read_heads(
    shared: &Shared,
    link: &mut Link,
    shards: Vec<ShardId>,
) -> Result<Vec<(ShardId, Option<Head>)>, StoreError> {
    let mut pipeline = Pipeline::with_capacity(shards.len());
    for shard in &shards {
        pipeline.cmd("HMGET").arg(shared.keys.head(*shard)).arg(&scripts::HEAD_FIELDS[..]);
    }
    if shards.is_empty() {
        return Ok(Vec::new());
    }
    let values = link.read(&pipeline, ANSWER_WITHIN).await?;
    let strange = || link::strange(&shared.place, "a head is none");
    let heads = values.into_iter().map(|value| scripts::head(value).ok_or_else(strange));
    shards.into_iter().zip(heads).map(|(shard, head)| Ok((shard, head?))).collect()
}

/// Why something could not be played again.
enum Unplayed {
    /// Redis did not answer, or not well: it is tried again.
    Later(StoreError),
    /// It does not fit what is there.
    Never(ShardId),
}

async fn play(shared: &Shared, link: &mut Link, missing: &[Missing]) -> Result<(), Unplayed> {
    let batches: usize = missing
        .iter()
        .map(|missing| if matches!(missing.deed, Deed::Commit(_)) { missing.moves.len() } else { 0 })
        .sum();
    tracing::warn!(
        redis = %shared.place,
        batches,
        calls = missing.len(),
        "Redis went back: what it lost of this server's changes is played again"
    );
    for Missing { deed, moves } in missing {
        let Some(first) = moves.first() else { continue };
        match deed {
            Deed::Commit(call) => {
                let value = link.call(call, ANSWER_WITHIN).await.map_err(later)?;
                let verdict = scripts::verdict(value);
                if verdict != Some(Verdict::Done) {
                    tracing::warn!(shard = first.shard.0, ?verdict, "Redis does not take what is missing there");
                    return Err(Unplayed::Never(first.shard));
                }
                shared.heals(moves.len() as u64);
            }
            Deed::Take(epoch) => take(shared, link, first, *epoch).await?,
        }
    }
    tracing::warn!(redis = %shared.place, batches, "Redis has them again");
    Ok(())
}

fn later(failed: Failed) -> Unplayed {
    Unplayed::Later(failed.into_error())
}

/// Takes a shard over once more, under the same token, from exactly the head from which it was taken.
async fn take(shared: &Shared, link: &mut Link, taken: &Move, epoch: Epoch) -> Result<(), Unplayed> {
    let Move { shard, before, after } = *taken;
    let card = shared.card();
    let mut call = Call::new(&shared.shas, Loaded::Take, &[shared.keys.head(shard)]);
    call.arg(scripts::hex(after.token.0)).arg(&card.name).arg(scripts::hex(card.process)).arg(&card.peer_address);
    call.number(NODE_LEASE_MS).arg(scripts::hex(before.token.0));
    call.arg(scripts::hex(before.token.0)).number(before.seq.0).arg(scripts::hex(before.digest.0));
    let value = link.call(&call, ANSWER_WITHIN).await.map_err(later)?;
    match scripts::taken(value) {
        Some(Taken::Head(head)) if head.epoch == epoch && Point::of(&head) == after => {
            shared.heals(0);
            Ok(())
        }
        other => {
            tracing::warn!(shard = shard.0, ?other, "Redis does not take a take-over that is missing there");
            Err(Unplayed::Never(shard))
        }
    }
}

/// Redis is behind what this process knows: to be asked again when that is mended.
pub(super) fn behind(shared: &Shared) -> StoreError {
    shared.doubt();
    let source = std::io::Error::other("it went back; what is missing is played again first");
    StoreError::Io { context: format!("asking Redis at {}", shared.place).into(), source: Arc::new(source) }
}
