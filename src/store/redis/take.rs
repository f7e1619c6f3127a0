//! Takes a shard over: for the first time, from another owner, or once more because Redis forgot the take-over.
//!
//! Called by `checks`, and by `heal` for replays.

use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::checks::{self, RegisterOwner, newer};
use super::failed::{self, Failed};
use super::heal;
use super::journal::{Move, Point};
use super::late;
use super::left;
use super::link::{Link, PendingReads};
use super::reach;
use super::scripts::{self, LoadedScript, ScriptCall, TakeAnswer};
use super::shared::{KnownLine, RedisShared};
use super::takes::Takes;
use super::whole;
use crate::limits::NODE_LEASE_MS;
use crate::store::codec::Format;
use crate::store::{Digest, Epoch, Head, Holder, Seq, ShardId, StoreError, Token};

const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// For this long after it connected to Redis, a node leaves the register to the last owner: Redis may have been away.
const QUIET: Duration = Duration::from_millis(NODE_LEASE_MS);

/// The arguments of `take`.
pub(super) struct TakeOver {
    pub(super) shard: ShardId,
    pub(super) token: Token,
    /// The token under which this process owns the shard; none if it does not own it.
    pub(super) mine: Option<Token>,
    /// The last token of this process, whether or not it still owns the shard.
    pub(super) last: Option<Token>,
    /// The batch that is known to be there under `last`.
    pub(super) seq: Seq,
    /// Its digest, if the shard must stand at exactly that batch.
    pub(super) digest: Option<Digest>,
    /// The format in which to write; none: the present one, or the newest if the shard was never taken.
    pub(super) wanted: Option<Format>,
}

impl TakeOver {
    pub(super) fn call(&self, shared: &RedisShared) -> ScriptCall {
        debug_assert!(self.digest.is_none() || self.mine.is_some(), "only an owner gives back what Redis lost");
        let card = shared.card();
        let hex_or_none = |bits: Option<u128>| bits.map_or_else(String::new, scripts::hex);
        let keys = [shared.keys.head(self.shard), shared.keys.nodes(), shared.keys.register()];
        let mut call = ScriptCall::new(&shared.shas, LoadedScript::Take, &keys);
        call.arg(scripts::hex(self.token.0)).arg(&card.name).arg(scripts::hex(card.process)).arg(&card.peer_address);
        call.number(NODE_LEASE_MS).arg(hex_or_none(self.mine.map(|token| token.0)));
        call.arg(hex_or_none(self.last.map(|token| token.0))).number(self.seq.0);
        call.arg(hex_or_none(self.digest.map(|digest| digest.0)));
        call.number(Format::NEWEST.number().into()).number(self.wanted.map_or(0, Format::number).into());
        call.arg(scripts::hex(shared.info.register)).arg(if shared.serves() { "1" } else { "" });
        call
    }
}

pub(super) async fn take(
    shared: &RedisShared,
    link: &mut Link,
    shard: ShardId,
    token: Token,
) -> Result<Head, StoreError> {
    shared.sound()?;
    heal::ready(shared, link).await.map_err(Failed::into_error)?;
    if shard == ShardId(0) {
        leave_to_owner(shared, link).await?;
    }
    if let Err(error) = late::review(shared, link).await {
        return Err(owned_meanwhile(shared, link, shard).await.unwrap_or(error));
    }
    match take_once(shared, link, shard, token).await? {
        Some(head) => Ok(head),
        None if heal::again(shared, link).await? => {
            take_once(shared, link, shard, token).await?.ok_or_else(|| heal::behind(shared))
        }
        None => Err(heal::behind(shared)),
    }
}

/// The answer that another node owns the register, if it does and what stands in the way of a review is the disk of this
/// node: that node serves, and can be followed.
async fn owned_meanwhile(shared: &RedisShared, link: &mut Link, shard: ShardId) -> Option<StoreError> {
    if shared.lates.unwritten() == 0 {
        return None;
    }
    let Holder { name, process, address } = checks::holder(shared, link).await.ok()??;
    let is_another = process != shared.card().process;
    is_another.then_some(StoreError::Held { shard, owner: name, address, left_ms: 0 })
}

/// Leaves the register to its last owner if Redis may just have come back, in an earlier state and with a lease that has
/// run out since. The last owner may be alive and give back what is missing, so it gets the time of a lease before any
/// other node takes the register. Others hold back as well:
///
/// - A node that released the register and is still its owner as far as Redis remembers: another node may have taken it
///   after that, and has to give back its part first.
/// - A node that is the owner as far as Redis remembers and whose release failed, if Redis was restarted since or is
///   another server: it may not remember later owners.
/// - Any node, if Redis remembers that the register was released: another node may have taken it after that.
async fn leave_to_owner(shared: &RedisShared, link: &mut Link) -> Result<(), StoreError> {
    let left = |since: Instant| QUIET.checked_sub(since.elapsed());
    let yielded = shared.has_yielded();
    let after_playing = shared.played_at().filter(|_| yielded).and_then(left);
    let Some(left) = left(link.since()).max(after_playing) else { return Ok(()) };
    let RegisterOwner { holder, lease, .. } = checks::owner(shared, link).await?;
    let Some(Holder { name, process, address }) = holder.filter(|_| lease != 0) else {
        // The owner released it: since this connection was made, or before Redis went back.
        if !link.is_again() || shared.saw_owner_on() == link.number() {
            return Ok(());
        }
        return Err(leaves(shared, "it knows of no owner: whoever took the register since then goes first"));
    };
    shared.sees_owner_on(link.number());
    if process != shared.card().process {
        return Err(StoreError::Held { shard: ShardId(0), owner: name, address, left_ms: left.as_millis() as u64 });
    }
    // The run of Redis is only asked for if it decides.
    let leaves_it = yielded || shared.may_have_yielded() && !shared.is_taken_from(run_of(link).await.as_deref());
    if !leaves_it {
        return Ok(());
    }
    Err(leaves(shared, "it knows of this server as the owner, which has let go since"))
}

/// Which run of Redis is at the other end: another one may have come back with older data. None if Redis does not say.
async fn run_of(link: &mut Link) -> Option<String> {
    run_and_left(link, None).await.0
}

/// The answer to [`left::command`], or why there is none.
type AnsweredLeft = Option<Result<Value, String>>;

/// The same, and what the previous owner left, if that is asked for: both at once, because Redis may be far away.
async fn run_and_left(link: &mut Link, left: Option<Cmd>) -> (Option<String>, AnsweredLeft) {
    let mut info = Cmd::new();
    info.arg("INFO").arg("server");
    // Sent separately, because Redis may refuse one of them.
    let mut asked = Vec::with_capacity(2);
    for command in std::iter::once(info).chain(left) {
        asked.push(link.begin_ask(command).await);
    }
    let mut answers = Vec::with_capacity(2);
    for reading in asked {
        answers.push(match reading {
            Ok(reading) => only(link, reading).await,
            Err(error) => Err(error.to_string()),
        });
    }
    let mut answers = answers.into_iter();
    let run = match answers.next() {
        Some(Ok(Value::BulkString(text))) => {
            let text = String::from_utf8_lossy(&text);
            text.lines().find_map(|line| Some(line.strip_prefix("run_id:")?.trim().to_owned()))
        }
        _ => None,
    };
    (run, answers.next())
}

/// The answer to one command, or in words why there is none.
async fn only(link: &mut Link, reading: PendingReads) -> Result<Value, String> {
    link.finish_ask(reading, ANSWER_WITHIN).await.map_err(|error| error.to_string())
}

fn leaves(shared: &RedisShared, why: &str) -> StoreError {
    StoreError::another_first(format!("asking Redis at {}", shared.place).into(), why)
}

/// None if the shard is further back than it was.
pub(super) async fn take_once(
    shared: &RedisShared,
    link: &mut Link,
    shard: ShardId,
    token: Token,
) -> Result<Option<Head>, StoreError> {
    let (mine, known) = shared.line(shard, |line| (line.mine(), line.known(shard)))?;
    if known.cut == Some(token) {
        // The shard had been taken under this token, and this line was cut off.
        return Err(StoreError::Fenced { shard, current: known.epoch });
    }
    let last = Some(known.token).filter(|_| known.epoch > Epoch(0));
    let takeover =
        TakeOver { shard, token, mine, last, seq: known.told.seq, digest: None, wanted: shared.record_format() };
    let call = takeover.call(shared);
    let is_first = shard == ShardId(0);
    let asks_left = || shared.journal().keeps().then(|| left::command(shared, shard));
    let beside = if is_first { None } else { asks_left() };
    let (value, left) = link.call_beside(&call, beside, ANSWER_WITHIN).await.map_err(Failed::into_error)?;
    let strange = || failed::strange_script(&shared.place);
    let (head, takes) = match scripts::taken(value).ok_or_else(strange)? {
        TakeAnswer::Taken(head, takes) => (head, takes),
        TakeAnswer::Held { owner, address, left_ms } => {
            shared.yields(true);
            return Err(StoreError::Held { shard, owner: owner.into(), address: address.into(), left_ms });
        }
        TakeAnswer::Fenced(current) if current < known.epoch => return Ok(None),
        TakeAnswer::Fenced(current) => {
            shared.yields(true);
            return Err(StoreError::Fenced { shard, current });
        }
        TakeAnswer::Behind => return Ok(None),
        // A process that does not own the shard has nothing of it in memory.
        TakeAnswer::Absent if mine.is_none() => return Err(whole::no_head(shared, link, shard).await),
        TakeAnswer::Absent => return Err(shared.absent(shard)),
        TakeAnswer::Foreign(found) => return Err(shared.foreign(found)),
        TakeAnswer::Moved(notice) => return Err(shared.moved(&notice)),
        TakeAnswer::Unfinished(notice) => return Err(shared.unfinished(&notice)),
        TakeAnswer::Newer(format) => return Err(newer(&shared.place, shared.keys.prefix(), format)),
    };
    if shared.record_format().is_some_and(|wanted| wanted > head.format) && is_first {
        tracing::warn!(
            format = %head.format,
            "records go on in this format until every node that is there reads the one of `store.record_format`: upgrade \
             them (`allod cluster nodes` shows their versions), then drain the owner"
        );
    }
    let past = Takes::parse(&takes).unwrap_or_default();
    let taken = shared.line(shard, |line| {
        line.remember(takes);
        line.take(&head)
    });
    if taken?.is_err() {
        let found = format!("at batch {} in epoch {}, after epoch {}", head.seq.0, head.epoch.0, known.epoch.0);
        return Err(shared.went_back(shard, Some(head.token), &found));
    }
    // Another owner was there in between. Did it go on from what this process had, or from further back? In the latter case
    // its changes replace those that clients were told of here, and no number shows this.
    let other = known.epoch > Epoch(0) && head.parent != known.token && head.token != known.token;
    if other && known.told.seq > Seq(0) && !has_told(shared, link, &known, &head).await? {
        return Err(shared.went_back(shard, None, "another owner's, who went on from further back"));
    }
    let mut found = match left {
        Some(reading) => Some(only(link, reading).await),
        None => None,
    };
    if is_first {
        shared.yields(false);
        let left = asks_left().filter(|_| head.token != known.token);
        let (run, its_left) = run_and_left(link, left).await;
        found = its_left;
        shared.took_from(run);
        shared.sees_owner_on(link.number());
    }
    if head.token != known.token {
        let unproved = shared.journal().unproved(shard, &past);
        // The take-over stands whatever becomes of this. What is not proved stays in doubt.
        let proved = reach::in_log(link, &shared.keys, (shard, unproved), ANSWER_WITHIN).await.unwrap_or_default();
        let one @ Move { before, after, .. } = taken_from(shard, &head);
        let mut journal = shared.journal();
        journal.found(shard, &past, &proved);
        // An earlier process may have left its memory, and Redis may have applied one more call of it.
        if let Some(found) = found
            && let Some(author) = journal.author_of(shard, before.token)
            && !journal.knows(shard, before)
            && !journal.knows(shard, after)
        {
            journal.left(left::read(shard, (before, author), found));
        }
        journal.took(one, head.epoch);
    }
    Ok(Some(head))
}

/// Is everything that clients were told of on the line that a take-over found, which is another owner's?
async fn has_told(shared: &RedisShared, link: &mut Link, known: &KnownLine, head: &Head) -> Result<bool, StoreError> {
    let is_there = heal::is_on_line(shared, link, known.shard, (known.told, known.told_epoch), head).await;
    if is_there.is_err() {
        // The attempt is over. The next one follows this take-over, and would not know on what it was built.
        shared.journal().took(taken_from(known.shard, head), head.epoch);
    }
    is_there
}

/// The take-over that made a head.
fn taken_from(shard: ShardId, head: &Head) -> Move {
    let after = Point::of(head);
    Move { shard, before: Point { token: head.parent, ..after }, after }
}
