//! Redis went back: what this process sent and Redis forgot is played again before anything else is asked of it.
//!
//! After a failover to a replica that lacked the last changes, or a restart from an older file, the heads of shards stand
//! further back. Whenever a connection was made anew, or an answer does not fit, the store is *in doubt*: every task reads
//! the heads before it goes on, and the first one to do so heals.
//!
//! **Whose server.** In the midst of a failover two connections may lead to two servers, and what one of them has says nothing of
//! the other. So a connection that is new, or got the answer that does not fit, is looked at over itself, whoever else has
//! looked meanwhile: what was counted at the other end of it lets go of what this machine's disk keeps (see `redo`). The other
//! connections go on when any was looked at. Each of them was when it was made; a server that comes back with older data ends
//! them, and one that takes another one's data over answers what does not fit: scripts compare.
//!
//! Only on one's own line: a head that the journal remembers, by token, seq and digest, or the very head
//! that a take-over of this process replaced. Then the missing calls are sent once more, byte for byte, and take-overs
//! again on condition of exactly that head (see `playing`). The script refuses each of them if somebody else came in between. A
//! head of another owner is left alone, for the fence speaks for itself.
//!
//! **Past a hand-over** others have their parts to play, too, and are waited for before anything is given up (see `awaited`).
//!
//! **A fork.** A failover that is taken back within seconds: the primary before has a batch of which nobody knew, and the shard
//! was taken anew on the other one from before it. The two do not fit behind one another. If whatever somebody was told
//! of lies on the line that is there, nothing is lost but the tenure: this process's line is cut, everything under its tokens is
//! fenced from then on, and the shard is taken anew from where it stands. If not, the tenure is over, too, and what was told is
//! put aside and given back (see `late`), as where another owner went on; where it is forgotten here, the store stops.

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
use crate::store::moving::MoveNotice;
use crate::store::{Epoch, Head, Seq, ShardId, StoreError};

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// A connection on which nothing is missing. It is the one that was looked over: another may have taken its place meanwhile, as
/// in a failover, and the one of before leads to the primary of before.
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

/// An answer does not fit: is something missing? Tells whether something was, and is there again.
pub(super) async fn again(shared: &RedisShared, link: &mut Link) -> Result<bool, StoreError> {
    let before = shared.healed();
    shared.doubt();
    settle(shared, link, true).await?;
    Ok(shared.healed() > before)
}

/// Ends the doubt, if there is any; and looks over this connection also where others have ended it, if it `looks`.
async fn settle(shared: &RedisShared, link: &mut Link, looks: bool) -> Result<(), StoreError> {
    if !looks && !shared.in_doubt() {
        return Ok(());
    }
    // Held over all that is asked of Redis here: whatever would be sent meanwhile may not be sent before the doubt is over, and
    // two that healed would send the same twice. It ends: each answer is waited for so long and no longer, and calls that are
    // played are those that the journal keeps (`store.redis_heal_bytes`). Beside it, what was under way before is answered,
    // whoever asks gives up at a deadline of its own, and whoever plays keeps the leases.
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
                // One that was made in its midst has a server of its own.
                if link.number() == number {
                    link.saw(number);
                }
                shared.settled(raised);
                shared.awaits_nobody();
                return Ok(());
            }
            Err(Unplayed::Later(error)) => return Err(error),
            // What was under way on an old connection may have come in between.
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

/// Whether the server may throw records away is known before anything is granted there: it may be a replica that was promoted
/// just now, and is set otherwise. While it is the same one, `watch` looks.
async fn keeps_records(shared: &RedisShared, link: &mut Link) {
    let server = ServerFacts::of_memory(link).await;
    if server.policy().is_some() {
        shared.evicts(server.evicting());
    }
}

/// How often it is looked where the shards stand, when what is missing does not fit there, or the connection was replaced.
const TRIES: u32 = 3;

fn gone_back(shared: &RedisShared, shard: ShardId, head: Option<Head>, why: &str) -> StoreError {
    let at = head.map_or_else(String::new, |head| format!("at batch {} in epoch {}", head.seq.0, head.epoch.0));
    shared.went_back(shard, head.map(|head| head.token), &format!("{at}, {why}"))
}

/// Looks where the shards stand, and mends what does not stand where it should.
async fn mend(shared: &RedisShared, link: &mut Link) -> Result<(), Unplayed> {
    // Before the heads are read: what Redis acknowledges meanwhile may be missing in them. And in this order: what somebody
    // is told of a line was applied in the journal before.
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
            // It was changed together with one that is another owner's now, so that is what becomes of it, too.
            part(shared, shard, &head).map_err(Unplayed::Later)?;
            parted.push(shard);
            continue;
        }
        let is_cut = match given {
            Some(_) => false,
            // Of another owner's line the fence speaks wherever it matters.
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
                // What it lacks is put aside: of a fork of the own line at once, as only this process has it; where the owner
                // before goes on, when the tenure is over.
                false => {
                    part(shared, shard, &head).map_err(Unplayed::Later)?;
                    parted.push(shard);
                    forked.extend(own.then_some(shard));
                }
            }
        }
    }
    // Before anything else may end this process. What was changed together with it goes with it.
    if !forked.is_empty() {
        forked.extend(held_up.iter().copied());
        late::put_aside_forks(shared, link, &forked).await.map_err(Unplayed::Later)?;
    }
    if cut.is_empty() {
        playing::play(shared, link, &heads, &missing).await?;
        return finished::say(shared, link, notice).await.map_err(Unplayed::Later);
    }
    // Of the other shards, too, only what somebody was told of is given back: what was sent for several goes with those.
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

/// Does a shard stand under a token of this process's, as far as is remembered?
pub(super) fn is_own(shared: &RedisShared, line: &KnownLine, head: &Head) -> bool {
    head.token == line.token || shared.journal().is_own(line.shard, head.token)
}

/// The tenure is over for a shard that goes on as another owner's.
fn part(shared: &RedisShared, shard: ShardId, head: &Head) -> Result<(), StoreError> {
    shared.line(shard, |line| line.part(head))?;
    shared.heals(0);
    Ok(())
}

/// The tenure is over for a shard, which goes on from its head.
async fn cut_off(shared: &RedisShared, line: &KnownLine, head: &Head) -> Result<(), Unplayed> {
    // What was on its way elsewhere may have been answered since it was looked whether all that was told is there.
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
    // Nobody was told of it, so the next process is not to think that somebody was. But of what it is built on somebody was.
    redo::put_aside(shared, line.shard, stays).await.map_err(Unplayed::Later)?;
    shared.journal().cut(&[(line.shard, stays)]);
    shared.heals(0);
    Ok(())
}

/// Is everything that somebody was told of on the line that is there?
async fn has_told(shared: &RedisShared, link: &mut Link, line: &KnownLine, head: &Head) -> Result<bool, Unplayed> {
    let (shard, told, point) = (line.shard, line.told, Point::of(head));
    if told.seq == Seq(0) {
        return Ok(true);
    }
    // Take-overs of one line rise. What was answered under a later one, or under another of the same number, is not on this.
    let before = head.epoch < line.told_epoch || (head.epoch == line.told_epoch && head.token != told.token);
    if before || shared.journal().leads(shard, told, point) {
        return Ok(!before);
    }
    is_on_line(shared, link, shard, (told, line.told_epoch), head).await.map_err(Unplayed::Later)
}

/// Does the line of a shard go through this batch, which was written in this epoch? The log tells, or what the head
/// remembers of take-overs. Where neither does, it is taken to be there: what is older than both was most likely kept by
/// all who came since, and nothing could be given back of it.
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
    /// What it says of its move.
    pub(super) notice: Option<MoveNotice>,
    /// The heads that were asked for, in that order.
    pub(super) heads: Vec<(ShardId, H)>,
}

/// The heads of shards that were taken, in the order of their lines.
async fn heads_of(shared: &RedisShared, link: &mut Link, lines: &[KnownLine]) -> Result<Found<Head>, Unplayed> {
    let shards = lines.iter().map(|line| line.shard).collect();
    let Found { notice, heads } = read(shared, link, shards).await.map_err(Unplayed::Later)?;
    let there = |(shard, head): (ShardId, Option<Head>)| Ok((shard, head.ok_or_else(|| shared.absent(shard))?));
    let heads = heads.into_iter().map(there).collect::<Result<Vec<_>, StoreError>>().map_err(Unplayed::Later)?;
    Ok(Found { notice, heads })
}

/// The heads of shards in the register that this process keeps.
pub(super) async fn read_heads(
    shared: &RedisShared,
    link: &mut Link,
    shards: Vec<ShardId>,
) -> Result<Vec<(ShardId, Option<Head>)>, StoreError> {
    Ok(read(shared, link, shards).await?.heads)
}

/// Heads that should be there, and what the register says of its move. Another one may have come into its place, with heads that look
/// like those of somebody who went on from further back; nothing is known of that one here.
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
        // It did not go back: it is somewhere else, and its heads are nobody's any more.
        return Err(shared.moved(&notice.text()));
    }
    let heads = values.map(|value| scripts::head(value).ok_or_else(strange));
    let heads = shards.into_iter().zip(heads).map(|(shard, head)| Ok((shard, head?)));
    Ok(Found { notice, heads: heads.collect::<Result<_, StoreError>>()? })
}

/// What the register says of its move, by the answer of an HMGET.
fn notice_of(register: &Value) -> Option<MoveNotice> {
    let Value::Array(fields) = register else { return None };
    let Some(Value::BulkString(notice)) = fields.get(1) else { return None };
    MoveNotice::parse(&String::from_utf8_lossy(notice))
}

/// Why something could not be played again.
pub(super) enum Unplayed {
    /// Redis did not answer, or not well: it is tried again.
    Later(StoreError),
    /// It does not fit what is there.
    Never(ShardId),
}

/// Redis is behind what this process knows: to be asked again when that is mended.
pub(super) fn behind(shared: &RedisShared) -> StoreError {
    shared.doubt();
    let source = std::io::Error::other("it went back; what is missing is played again first");
    StoreError::Io { context: format!("asking Redis at {}", shared.place).into(), source: Arc::new(source) }
}
