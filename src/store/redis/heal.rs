//! Redis went back: what this process sent and Redis forgot is replayed before anything else is asked of Redis.
//!
//! After a failover to a replica that lacked the last changes, or a restart from an older file, the heads of shards stand
//! further back. Whenever a connection is new, or an answer does not fit, the store is *in doubt*: every task reads the
//! heads before it goes on, and the first one to do so heals.
//!
//! **Which server.** During a failover two connections may lead to two servers, and what one of them has says nothing about
//! the other. So a connection that is new, or that got an unfitting answer, is examined over itself, even if another one was
//! examined meanwhile: replicas counted at its other end allow this node to delete what it keeps on its disk (see `redo`).
//! The other connections go on once any of them was examined, because each was examined when it was made. A server that
//! comes back with older data ends its connections, and one that takes over another one's data gives unfitting answers,
//! because scripts compare.
//!
//! This only happens on this process's own line: the head is one that the journal remembers, by token, seq and digest, or
//! exactly the head that a take-over of this process replaced. Then the missing calls are sent once more, byte for byte, and
//! take-overs are repeated on condition of exactly that head (see `playing`). The script refuses each of them if another
//! node came in between. The head of another owner is left alone; the fence takes care of it.
//!
//! **Past a hand-over** other nodes have their parts to replay, too, and are waited for before anything is given up (see
//! `awaited`).
//!
//! **A fork.** A failover is reverted within seconds: the old primary has a batch that nobody knew of, and on the other
//! server the shard was taken over from before that batch. The two do not fit after one another. If everything that clients
//! were told of is on the present line, nothing is lost but the tenure: this process's line is cut, everything under its
//! tokens is fenced from then on, and the shard is taken over again from where it stands. If not, the tenure is over as
//! well, and what clients were told is put aside and given back (see `late`), as when another owner went on. If this process
//! no longer remembers it, the store stops.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};

use super::awaited;
use super::failed::{self, Failed};
use super::finished;
use super::journal::{Point, ToReplay};
use super::late;
use super::link::Link;
use super::playing;
use super::reach;
use super::redo;
use super::scripts;
use super::server::ServerFacts;
use super::shared::{KnownLine, RedisShared};
use super::whole;
use crate::store::moving::MoveNotice;
use crate::store::{Epoch, Head, Seq, ShardId, StoreError};

const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// A connection on which nothing is missing. It is the very connection that was examined: another one may take its place
/// meanwhile, as in a failover, and the earlier one leads to the earlier primary.
pub(super) async fn ready(shared: &RedisShared, link: &mut Link) -> Result<(MultiplexedConnection, u64), Failed> {
    for _ in 0..TRIES {
        let (_, before) = link.connected().await?;
        if link.is_new() {
            shared.doubt();
        }
        let looks = link.is_unseen();
        settle(shared, link, looks).await.map_err(Failed::NotApplied)?;
        let (connection, number) = link.connected().await?;
        if number == before {
            return Ok((connection, number));
        }
    }
    let source = std::io::Error::other("its primary is replaced again and again");
    let context = format!("connecting to Redis at {}", shared.place).into();
    Err(Failed::NotApplied(StoreError::Io { context, source: Arc::new(source) }))
}

/// An answer does not fit: is something missing? Returns whether something was, and is back now.
pub(super) async fn again(shared: &RedisShared, link: &mut Link) -> Result<bool, StoreError> {
    let before = shared.healed();
    shared.doubt();
    settle(shared, link, true).await?;
    Ok(shared.healed() > before)
}

/// Ends the doubt, if there is any. If `looks`, examines this connection even if others have ended the doubt.
async fn settle(shared: &RedisShared, link: &mut Link, looks: bool) -> Result<(), StoreError> {
    if !looks && !shared.in_doubt() {
        return Ok(());
    }
    // This lock is held over everything that is asked of Redis here. Nothing else may be sent before the doubt is over, and
    // two tasks that healed would send the same twice. The lock is released in the end: every answer has a time limit, and
    // only calls that the journal keeps are replayed (`store.redis_heal_bytes`). Meanwhile calls already under way are
    // answered, callers give up at their own deadlines, and the replay renews the leases.
    let _one = shared.healing.lock().await;
    let raised = shared.doubts();
    if !looks && !shared.in_doubt() {
        return Ok(());
    }
    shared.sound()?;
    if link.is_unseen() {
        keeps_records(shared, link).await;
    }
    for left in (0..TRIES).rev() {
        let number = link.number();
        match mend(shared, link).await {
            Ok(()) => {
                // A connection that was made in the middle of this leads to a server of its own.
                if link.number() == number {
                    link.saw(number);
                }
                shared.settled(raised);
                shared.awaits_nobody();
                return Ok(());
            }
            Err(Unplayed::Later(error)) => return Err(error),
            // A call under way on an old connection may have come in between.
            Err(Unplayed::Never(shard)) if left > 0 => {
                tracing::warn!(shard = shard.0, "where it stands is looked at once more");
            }
            Err(Unplayed::Never(shard)) => {
                let head = read_heads(shared, link, vec![shard]).await?.pop().and_then(|(_, head)| head);
                let is_given_up = shared.line(shard, |line| line.known(shard).given_up)?;
                if let Some(head) = head.filter(|_| is_given_up) {
                    part(shared, shard, &head)?;
                    late::put_aside_forks(shared, link, &[shard]).await?;
                    return Err(behind(shared));
                }
                return Err(gone_back(shared, shard, head, "where what is missing does not fit any more"));
            }
        }
    }
    Ok(())
}

/// Finds out whether the server may evict records, before anything is granted there: it may be a replica that was promoted
/// just now and is configured differently. As long as it is the same server, `watch` looks.
async fn keeps_records(shared: &RedisShared, link: &mut Link) {
    let server = ServerFacts::of_memory(link).await.unwrap_or_default();
    if server.policy().is_some() {
        shared.evicts(server.evicting());
    }
}

/// How often the heads are read again if what is missing does not fit, or the connection was replaced.
const TRIES: u32 = 3;

fn gone_back(shared: &RedisShared, shard: ShardId, head: Option<Head>, why: &str) -> StoreError {
    let at = head.map_or_else(String::new, |head| format!("at batch {} in epoch {}", head.seq.0, head.epoch.0));
    shared.went_back(shard, head.map(|head| head.token), &format!("{at}, {why}"))
}

/// Looks where the shards stand, and repairs those that do not stand where they should.
async fn mend(shared: &RedisShared, link: &mut Link) -> Result<(), Unplayed> {
    // This comes before the heads are read, because they may lack what Redis acknowledges meanwhile. The order of the two
    // matters: a client is told of a batch only after the journal knows that the batch was applied.
    let lines = shared.lines();
    let standing = shared.journal().standing();
    let Found { notice, heads } = heads_of(shared, link, &lines).await?;
    let points: Vec<(ShardId, Point)> = heads.iter().map(|(shard, head)| (*shard, Point::of(head))).collect();
    let ToReplay { missing, elsewhere, held_up } = shared.journal().missing(&points, &standing);
    let awaited = awaited::may_come(&shared.journal(), &elsewhere, &heads, &standing);
    if !awaited.is_empty() && shared.awaits(&points) {
        return awaited::wait(shared, link, &heads, &points, &standing, &awaited).await;
    }
    let (mut cut, mut parted, mut forked) = (Vec::new(), Vec::new(), Vec::new());
    for (line, &(shard, head)) in lines.iter().zip(&heads) {
        let given = missing.iter().flat_map(|missing| &missing.moves).rfind(|one| one.shard == shard);
        let (own, behind) = (is_own(shared, line, &head), head.epoch < line.epoch);
        if held_up.contains(&shard) {
            // It lacks a call that also changed a shard which stands elsewhere, so the call is replayed in neither.
            part(shared, shard, &head).map_err(Unplayed::Later)?;
            parted.push(shard);
            continue;
        }
        let is_cut = match given {
            Some(_) => false,
            // If a later owner has the line, the fence refuses this process wherever that matters.
            None if !own => behind && line.owned,
            None => elsewhere.contains(&shard) || behind || (head.token == line.told.token && head.seq < line.told.seq),
        };
        if is_cut {
            match has_told(shared, link, line, &head).await? {
                true => cut.push(shard),
                false
                    if own
                        && !line.given_up
                        && !late::knows(shared, link, line, &head).await.map_err(Unplayed::Later)? =>
                {
                    let why = "which is further back than this server remembers what it changed";
                    return Err(Unplayed::Later(gone_back(shared, shard, Some(head), why)));
                }
                // What Redis lacks is put aside: for a fork of this process's own line at once, as no other process has it;
                // if the previous owner goes on, when the tenure is over.
                false => {
                    part(shared, shard, &head).map_err(Unplayed::Later)?;
                    parted.push(shard);
                    forked.extend(own.then_some(shard));
                }
            }
        }
    }
    // First of all, before anything else can end this process. Shards that were changed by the same calls are included.
    if !forked.is_empty() {
        forked.extend(held_up.iter().copied());
        late::put_aside_forks(shared, link, &forked).await.map_err(Unplayed::Later)?;
    }
    if cut.is_empty() {
        playing::play(shared, link, &heads, &missing).await?;
        return finished::say(shared, link, notice).await.map_err(Unplayed::Later);
    }
    // In the other shards, too, only what clients were told of is given back, because calls for several shards include the
    // cut ones.
    let told: Vec<(ShardId, Point)> = lines.iter().map(|line| (line.shard, line.told)).collect();
    let found = shared.journal().missing(&points, &told);
    playing::play(shared, link, &heads, &found.missing).await?;
    for (line, (shard, head)) in lines.iter().zip(heads_of(shared, link, &lines).await?.heads) {
        let own = shared.journal().is_own(shard, head.token);
        if cut.contains(&shard) || (own && head.token != line.token && !parted.contains(&shard)) {
            cut_off(shared, line, &head).await?;
        }
    }
    finished::say(shared, link, notice).await.map_err(Unplayed::Later)
}

/// Does a shard stand under a token of this process, as far as is remembered?
pub(super) fn is_own(shared: &RedisShared, line: &KnownLine, head: &Head) -> bool {
    head.token == line.token || shared.journal().is_own(line.shard, head.token)
}

/// Ends the tenure for a shard whose line goes on without part of what this process did.
fn part(shared: &RedisShared, shard: ShardId, head: &Head) -> Result<(), StoreError> {
    shared.line(shard, |line| line.part(head))?;
    shared.heals(0);
    Ok(())
}

/// Ends the tenure for a shard whose line goes on from this head and lacks nothing that clients were told of.
async fn cut_off(shared: &RedisShared, line: &KnownLine, head: &Head) -> Result<(), Unplayed> {
    // A call on another connection may have been answered after the check that everything told is there.
    let is_cut = shared.line(line.shard, |now| {
        let is_as_seen = now.known(line.shard).told == line.told;
        if is_as_seen {
            now.cut(head);
        }
        is_as_seen
    });
    if !is_cut.map_err(Unplayed::Later)? {
        return Err(Unplayed::Later(behind(shared)));
    }
    if line.owned && line.cut.is_none() {
        tracing::warn!(
            redis = %shared.place,
            shard = line.shard.0,
            batch = head.seq.0,
            told = line.told.seq.0,
            "Redis went on from elsewhere than this server; nobody was told of what is not there, so it is taken anew"
        );
    }
    let point = Point::of(head);
    let stays = if shared.journal().knows(line.shard, point) { point } else { line.told };
    // No client was told of what is cut off, so the next process must not believe that one was. But clients were told of
    // what it was built on.
    redo::put_aside(shared, line.shard, stays).await.map_err(Unplayed::Later)?;
    shared.journal().cut(&[(line.shard, stays)]);
    shared.heals(0);
    Ok(())
}

/// Is everything that clients were told of on the line that is there?
async fn has_told(shared: &RedisShared, link: &mut Link, line: &KnownLine, head: &Head) -> Result<bool, Unplayed> {
    let (shard, told, point) = (line.shard, line.told, Point::of(head));
    if told.seq == Seq(0) {
        return Ok(true);
    }
    // Epochs of one line rise. What was answered under a later epoch, or under another token of the same epoch, is not on
    // this line.
    let before = head.epoch < line.told_epoch || (head.epoch == line.told_epoch && head.token != told.token);
    if before || shared.journal().leads(shard, told, point) {
        return Ok(!before);
    }
    is_on_line(shared, link, shard, (told, line.told_epoch), head).await.map_err(Unplayed::Later)
}

/// Does the line of a shard go through this batch, which was written in this epoch? The log tells, or the take-overs that
/// the head remembers. If neither reaches back that far, the batch is assumed to be there: later owners most likely kept
/// something so old, and it could not be given back anyway.
pub(super) async fn is_on_line(
    shared: &RedisShared,
    link: &mut Link,
    shard: ShardId,
    (batch, epoch): (Point, Epoch),
    head: &Head,
) -> Result<bool, StoreError> {
    let is_there = reach::goes_through(link, &shared.keys, (shard, batch, epoch), head, ANSWER_WITHIN).await?;
    Ok(is_there.unwrap_or_else(|| {
        tracing::error!(
            redis = %shared.place,
            shard = shard.0,
            batch = batch.seq.0,
            epoch = epoch.0,
            goes_on_at = head.seq.0,
            "it is not known whether the register has what was acknowledged up to this batch: its log does not reach back \
             there, and the take-overs since are not all remembered. It is taken to have it"
        );
        true
    }))
}

/// What was read of a register.
pub(super) struct Found<H> {
    /// Its notice of a move.
    pub(super) notice: Option<MoveNotice>,
    /// The heads that were asked for, in that order.
    pub(super) heads: Vec<(ShardId, H)>,
}

/// The heads of shards that were taken, in the order of their lines.
async fn heads_of(shared: &RedisShared, link: &mut Link, lines: &[KnownLine]) -> Result<Found<Head>, Unplayed> {
    let shards = lines.iter().map(|line| line.shard).collect();
    let Found { notice, heads } = read(shared, link, shards).await.map_err(Unplayed::Later)?;
    let mut there = Vec::with_capacity(heads.len());
    for (shard, head) in heads {
        let Some(head) = head else { return Err(Unplayed::Later(whole::missing(shared, link, shard).await)) };
        there.push((shard, head));
    }
    Ok(Found { notice, heads: there })
}

/// The heads of shards in the register that this process keeps.
pub(super) async fn read_heads(
    shared: &RedisShared,
    link: &mut Link,
    shards: Vec<ShardId>,
) -> Result<Vec<(ShardId, Option<Head>)>, StoreError> {
    Ok(read(shared, link, shards).await?.heads)
}

/// Reads the heads of these shards and the notice of the register. Checks that it is the right register: another one may
/// have taken its place, and its heads could look like those of an owner that went on from further back. Nothing is known
/// about that one here.
pub(super) async fn read(
    shared: &RedisShared,
    link: &mut Link,
    shards: Vec<ShardId>,
) -> Result<Found<Option<Head>>, StoreError> {
    let mut pipeline = Pipeline::with_capacity(1 + shards.len());
    pipeline.cmd("HMGET").arg(shared.keys.register()).arg(&["register", "moved"]);
    for shard in &shards {
        pipeline.cmd("HMGET").arg(shared.keys.head(*shard)).arg(&scripts::HEAD_FIELDS[..]);
    }
    let mut values = link.read(&pipeline, ANSWER_WITHIN).await?.into_iter();
    let strange = || failed::strange(&shared.place, "a head is none");
    let register = values.next().ok_or_else(strange)?;
    shared.is_own_register(&register)?;
    let notice = notice_of(&register);
    if let Some(notice @ MoveNotice::Moved { .. }) = notice.as_ref().filter(|_| !shared.lines().is_empty()) {
        // The register did not go back: it was moved, and its heads are nobody's any more.
        return Err(shared.moved(&notice.text()));
    }
    let heads = values.map(|value| scripts::head(value).ok_or_else(strange));
    let heads = shards.into_iter().zip(heads).map(|(shard, head)| Ok((shard, head?)));
    Ok(Found { notice, heads: heads.collect::<Result<_, StoreError>>()? })
}

/// The notice of a register, in the answer to an HMGET.
fn notice_of(register: &Value) -> Option<MoveNotice> {
    let Value::Array(fields) = register else { return None };
    let Some(Value::BulkString(notice)) = fields.get(1) else { return None };
    MoveNotice::parse(&String::from_utf8_lossy(notice))
}

pub(super) enum Unplayed {
    /// Redis did not answer, or failed: it may be tried again.
    Later(StoreError),
    /// What is missing in this shard does not fit what is there.
    Never(ShardId),
}

/// The error if Redis is behind what this process knows. The caller asks again after that is repaired.
pub(super) fn behind(shared: &RedisShared) -> StoreError {
    shared.doubt();
    let source = std::io::Error::other("it went back; what is missing is played again first");
    StoreError::Io { context: format!("asking Redis at {}", shared.place).into(), source: Arc::new(source) }
}
