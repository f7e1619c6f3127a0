//! The task that takes shards, renews their leases and keeps track of the other nodes. It has a connection of its own, so
//! that none of this waits for a batch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::sync::{mpsc, oneshot};

use super::QUEUE_CALLS_MAX;
use super::confirms;
use super::failed::{self, Failed};
use super::farewell;
use super::heal;
use super::late;
use super::link::Link;
use super::moving;
use super::redo;
use super::replicas::ReplicaWait;
use super::scripts::{self, LoadedScript, Met, ScriptCall, ToldNode, Verdict};
use super::shared::RedisShared;
use super::take;
use super::whole;
use crate::limits::NODE_LEASE_MS;
use crate::store::codec::Format;
use crate::store::moving::{LastOf, MoveNotice};
use crate::store::{Apart, CommitError, Head, Holder, NodeCard, SeenNode, ShardId, StoreError, Token};

const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// What happens to the leases of all shards that this process owns.
#[derive(Debug, Clone, Copy)]
pub(super) enum LeaseChange {
    Renewed,
    Ended,
}

/// A call of `take`, `renew`, `release`, `post`, `holder`, `review` or `meet`.
pub(super) enum CheckJob {
    Take(ShardId, Token, oneshot::Sender<Result<Head, StoreError>>),
    /// Applies to the shards that are owned when its turn comes: a take-over before it may have drawn new tokens.
    Lease(LeaseChange, oneshot::Sender<Result<(), StoreError>>),
    /// Sets the notice of the register, if the shards end where expected.
    Post(Option<MoveNotice>, Vec<LastOf>, oneshot::Sender<Result<(), StoreError>>),
    /// Who owns the register?
    Holder(oneshot::Sender<Result<Option<Holder>, StoreError>>),
    /// Is everything that clients were told of in the register that others own now?
    Review(oneshot::Sender<Result<(), StoreError>>),
    /// This node is here, or is leaving.
    Meet(bool, oneshot::Sender<Result<Vec<SeenNode>, StoreError>>),
}

/// Runs until every sender is gone, and then takes a last look.
pub(super) async fn run(
    shared: Arc<RedisShared>,
    mut link: Link,
    mut jobs: mpsc::Receiver<CheckJob>,
    confirms: mpsc::Sender<confirms::ConfirmJob>,
) {
    let (mut waiting, mut unread) = (VecDeque::new(), Vec::new());
    while let Some(job) = next(&mut jobs, &mut waiting).await {
        // If nobody waits for the answer any more, it is dropped.
        match job {
            CheckJob::Take(shard, token, reply) => {
                let taken = take::take(&shared, &mut link, shard, token).await;
                let (shared, confirms) = (Arc::clone(&shared), shared.waits().then(|| confirms.clone()));
                // In a task beside the next take-over, so that their proofs are done together.
                tokio::spawn(async move { drop(reply.send(proved(&shared, taken, shard, confirms).await)) });
            }
            // A replay has renewed the lease meanwhile (see `playing`).
            CheckJob::Lease(LeaseChange::Renewed, reply) if reply.is_closed() => {}
            CheckJob::Lease(what, reply) => drop(reply.send(noted(&shared, lease(&shared, &mut link, what).await))),
            CheckJob::Post(notice, shards, reply) => {
                drop(reply.send(moving::post(&shared, &mut link, notice.as_ref(), &shards).await));
            }
            CheckJob::Holder(reply) => drop(reply.send(noted(&shared, holder(&shared, &mut link).await))),
            CheckJob::Review(reply) => {
                let reviewed = match heal::ready(&shared, &mut link).await {
                    Ok(_) => late::review(&shared, &mut link).await,
                    Err(failed) => Err(failed.into_error()),
                };
                drop(reply.send(reviewed));
            }
            CheckJob::Meet(here, reply) => {
                let met = meet(&shared, &mut link, here).await.map(|nodes| seen(nodes, &mut unread));
                drop(reply.send(noted(&shared, met)));
            }
        }
    }
    farewell::say(&shared, &mut link).await;
}

/// Notes whether the result shows that Redis was reached.
fn noted<T>(shared: &RedisShared, ended: Result<T, StoreError>) -> Result<T, StoreError> {
    shared.was_asked(ended.as_ref().err());
    ended
}

/// The next job: in the order of the calls, except that a renewal goes first. All shards of a register are taken at once,
/// and taking them may last longer than the lease of the first one, so it is renewed between two of them. But a renewal
/// never overtakes a call that ends the lease: a renewal after that belongs to another tenure.
async fn next(jobs: &mut mpsc::Receiver<CheckJob>, waiting: &mut VecDeque<CheckJob>) -> Option<CheckJob> {
    if waiting.is_empty() {
        waiting.push_back(jobs.recv().await?);
    }
    while waiting.len() < QUEUE_CALLS_MAX
        && let Ok(job) = jobs.try_recv()
    {
        waiting.push_back(job);
    }
    let of_lease = |job: &CheckJob| matches!(job, CheckJob::Lease(..));
    let is_renewal = |at: &usize| matches!(waiting[*at], CheckJob::Lease(LeaseChange::Renewed, _));
    match waiting.iter().position(of_lease).filter(is_renewal) {
        Some(renewal) => waiting.remove(renewal),
        None => waiting.pop_front(),
    }
}

/// A take-over counts once as many replicas have it as are wanted. The shard is not loaded before.
async fn proved(
    shared: &RedisShared,
    taken: Result<Head, StoreError>,
    shard: ShardId,
    confirms: Option<mpsc::Sender<confirms::ConfirmJob>>,
) -> Result<Head, StoreError> {
    let head = taken?;
    if let Some(confirms) = confirms {
        let name = (shard, head.token, head.seq, head.digest);
        confirms::ask(&confirms, vec![name], None).await.map_err(|error| match error {
            CommitError::NotApplied { cause } | CommitError::Unknown { cause } => cause,
            CommitError::Fenced { shard, current } => StoreError::Fenced { shard, current },
            error @ CommitError::Mismatch { .. } => StoreError::Invalid(error.to_string().into()),
        })?;
    }
    shared.line(shard, |line| line.counts(head.token))?;
    Ok(head)
}

async fn lease(shared: &RedisShared, link: &mut Link, what: LeaseChange) -> Result<(), StoreError> {
    shared.sound()?;
    let (shards, ms) = match what {
        LeaseChange::Renewed => (shared.owned(), NODE_LEASE_MS),
        LeaseChange::Ended => (shared.let_go(), 0),
    };
    if shards.is_empty() {
        return Ok(());
    }
    if let LeaseChange::Ended = what {
        // As long as it is not known that the lease was ended, it may run out and another node may take over.
        shared.may_yield();
    }
    let number = link.number();
    let mut ended = lease_or_heal(shared, link, &shards, ms).await;
    if let (LeaseChange::Ended, Err(StoreError::Io { .. })) = (what, &ended)
        && link.number() == number
    {
        // The connection had broken, perhaps while it was idle, for example because Redis went back. Over a new connection
        // Redis is given what it lacks. This process is ending, so nobody would do that later.
        ended = lease_or_heal(shared, link, &shards, ms).await;
    }
    match (what, &ended) {
        (LeaseChange::Renewed, Ok(())) => shared.sees_owner_on(link.number()),
        // If Redis goes back to this tenure later, it names this process as the owner. Another node may have been the
        // owner since.
        (LeaseChange::Ended, Ok(())) => shared.yields(true),
        (LeaseChange::Renewed | LeaseChange::Ended, Err(_)) => {}
    }
    ended
}

async fn lease_or_heal(
    shared: &RedisShared,
    link: &mut Link,
    shards: &[(ShardId, Token)],
    ms: u64,
) -> Result<(), StoreError> {
    heal::ready(shared, link).await.map_err(Failed::into_error)?;
    match lease_once(shared, link, shards, ms).await {
        // Is it fenced by another owner, or did Redis go back to before the take-over?
        Err(StoreError::Fenced { .. }) if heal::again(shared, link).await? => {
            lease_once(shared, link, shards, ms).await
        }
        ended => ended,
    }
}

/// The call that sets the leases of shards that stand under these tokens.
pub(super) fn lease_call(shared: &RedisShared, shards: &[(ShardId, Token)], ms: u64) -> ScriptCall {
    let keys: Vec<String> = shards.iter().map(|(shard, _)| shared.keys.head(*shard)).collect();
    let mut call = ScriptCall::new(&shared.shas, LoadedScript::Lease, &keys);
    call.number(ms);
    for (_, token) in shards {
        call.arg(scripts::hex(token.0));
    }
    call
}

async fn lease_once(
    shared: &RedisShared,
    link: &mut Link,
    shards: &[(ShardId, Token)],
    ms: u64,
) -> Result<(), StoreError> {
    let answer = link.call(&lease_call(shared, shards, ms), ANSWER_WITHIN).await.map_err(Failed::into_error)?;
    let strange = || failed::strange_script(&shared.place);
    let of = |at: usize| shards.get(at).map(|(shard, _)| *shard).ok_or_else(strange);
    match scripts::verdict(answer).ok_or_else(strange)? {
        Verdict::Done => Ok(()),
        Verdict::Absent(at) => Err(shared.absent(of(at)?)),
        Verdict::Fenced(at, current) => Err(StoreError::Fenced { shard: of(at)?, current }),
        Verdict::Foreign(found) => Err(shared.foreign(found)),
        Verdict::Gap(..) | Verdict::Back(_) | Verdict::Lost(_) | Verdict::Mismatch { .. } => Err(strange()),
    }
}

/// Reads the head of the first shard: its owner takes the other shards as well (see `actors::service`).
pub(super) async fn holder(shared: &RedisShared, link: &mut Link) -> Result<Option<Holder>, StoreError> {
    shared.sound()?;
    let RegisterOwner { holder, lease, now } = owner(shared, link).await?;
    // The same rule as in `take.lua`: a lease with more than twice its length left was given before the clock went back.
    Ok(holder.filter(|_| lease > now && lease - now <= 2 * NODE_LEASE_MS))
}

/// What the head of the first shard says about its owner.
pub(super) struct RegisterOwner {
    /// None: nobody has taken it yet.
    pub(super) holder: Option<Holder>,
    /// When the lease ends, by the clock of Redis, in milliseconds; 0 if it was released.
    pub(super) lease: u64,
    now: u64,
}

pub(super) async fn owner(shared: &RedisShared, link: &mut Link) -> Result<RegisterOwner, StoreError> {
    let mut pipeline = Pipeline::with_capacity(3);
    pipeline.cmd("TIME").cmd("HMGET").arg(shared.keys.head(ShardId(0))).arg(&["owner", "node", "address", "lease"]);
    pipeline.cmd("HMGET").arg(shared.keys.register()).arg(&["register"]);
    let answer = link.read(&pipeline, ANSWER_WITHIN).await?;
    let strange = || failed::strange(&shared.place, "a head is none");
    let [time, head, register] = <[Value; 3]>::try_from(answer).map_err(|_| strange())?;
    shared.is_own_register(&register)?;
    let (seconds, micros): (u64, u64) = redis::from_redis_value(time).map_err(|_| strange())?;
    let head: (Option<String>, Option<String>, Option<String>, Option<u64>) =
        redis::from_redis_value(head).map_err(|_| strange())?;
    let (Some(name), Some(process), address, Some(lease)) = head else {
        return Err(whole::missing(shared, link, ShardId(0)).await);
    };
    let holder = match process.as_str() {
        "" => None,
        process => {
            let process = u128::from_str_radix(process, 16).map_err(|_| strange())?;
            Some(Holder { name: name.into(), process, address: address.unwrap_or_default().into() })
        }
    };
    Ok(RegisterOwner { holder, lease, now: seconds * 1_000 + micros / 1_000 })
}

/// The nodes whose cards can be read. The others, `unread`, are logged when their cards change, not at each look.
fn seen(nodes: Vec<ToldNode>, unread: &mut Vec<(String, String)>) -> Vec<SeenNode> {
    let (mut seen, mut others) = (Vec::with_capacity(nodes.len()), Vec::new());
    for (name, age_ms, text) in nodes {
        match card_of(name.clone(), &text) {
            Some(card) => seen.push(SeenNode { card, age_ms }),
            None => others.push((name, text)),
        }
    }
    for (node, card) in others.iter().filter(|other| !unread.contains(other)) {
        tracing::warn!(node, card, "what a node says of itself in Redis cannot be read: it is not known to be there");
    }
    *unread = others;
    seen
}

async fn meet(shared: &RedisShared, link: &mut Link, here: bool) -> Result<Vec<ToldNode>, StoreError> {
    let own = shared.card();
    let keys = [shared.keys.nodes(), shared.keys.head(ShardId(0)), shared.keys.register()];
    let mut call = ScriptCall::new(&shared.shas, LoadedScript::Nodes, &keys);
    let text = if here { card_text(&own) } else { String::new() };
    call.arg(&own.name).arg(scripts::hex(own.process)).arg(text).number(NODE_LEASE_MS);
    call.number(Format::NEWEST.number().into()).arg(scripts::hex(shared.info.register));
    let answer = match probe_of(shared, link).await {
        Some(probe) => answered_behind(shared, link, &call, probe).await?,
        None => match shared.waiting().filter(|_| shared.counts_late()) {
            Some(waiting) => counted_behind(shared, link, &call, waiting).await?,
            None => link.call(&call, ANSWER_WITHIN).await.map_err(Failed::into_error)?,
        },
    };
    let strange = || failed::strange_script(&shared.place);
    match scripts::nodes(answer).ok_or_else(strange)? {
        Met::Nodes(nodes) => Ok(nodes),
        Met::Taken(age_ms) => {
            let text = format!(
                "another node of the name `{}` was seen at Redis at {} {age_ms} ms ago; give each node a name of its own \
                 by `--node NAME` (`server.node`), or wait until the other one is gone",
                own.name, shared.place
            );
            Err(StoreError::Locked(text.into()))
        }
        Met::Newer(format) => Err(newer(&shared.place, shared.keys.prefix(), format)),
        Met::Foreign(found) => Err(shared.foreign(found)),
    }
}

/// Makes a call that writes, and learns from a WAIT after it whether enough replicas are there. While nobody changes
/// anything, this would otherwise only come out with the next change.
async fn counted_behind(
    shared: &RedisShared,
    link: &mut Link,
    call: &ScriptCall,
    waiting: ReplicaWait,
) -> Result<Value, StoreError> {
    let waits = confirms::waits_of(waiting, shared.replicas);
    let (answer, waited) = link.call_then(call, &waits, ANSWER_WITHIN).await.map_err(Failed::into_error)?;
    if let Ok(counted) = confirms::counted(&waited, &shared.place) {
        shared.looks_at_replicas(&counted);
    }
    Ok(answer)
}

/// Where things stand before the replicas are asked whether they have everything up to here.
struct ReplicaProbe {
    /// None: it is enough that Redis has it.
    waiting: Option<ReplicaWait>,
    applied: u64,
    redo_bytes: u64,
    /// Number of the connection to which Redis was given back everything that it had lost.
    number: u64,
    /// The tokens under which the shards stand in Redis.
    stand: Vec<(ShardId, Token)>,
}

/// Is it worth asking whether missing replicas are back? While changes may be acknowledged without them, no round of
/// confirmations waits for them. Also asks whether Redis has what an earlier process of this node left on its disk, and
/// whether what the disk could not stand in for is over.
async fn probe_of(shared: &RedisShared, link: &mut Link) -> Option<ReplicaProbe> {
    let redo = shared.redo.as_ref()?;
    let waiting = shared.waiting();
    let lacks = shared.stand_in().is_some() && shared.lacks_replicas();
    if redo.bytes() == 0 && !lacks && !redo.awaits_replicas() {
        return None;
    }
    if lacks {
        redo::try_again(shared);
    }
    // Redis must be given back what it lost before it is asked who has it.
    let (_, number) = heal::ready(shared, link).await.ok()?;
    let shards = shared.lines().iter().map(|line| line.shard).collect();
    let heads = heal::read_heads(shared, link, shards).await.ok()?;
    let stand = heads.into_iter().filter_map(|(shard, head)| Some((shard, head?.token))).collect();
    let (applied, redo_bytes) = (shared.journal().applied_last(), redo.bytes());
    Some(ReplicaProbe { waiting, applied, redo_bytes, number, stand })
}

/// Makes a call that writes, and learns from a WAIT after it whether enough replicas have everything that was there before.
async fn answered_behind(
    shared: &RedisShared,
    link: &mut Link,
    call: &ScriptCall,
    probe: ReplicaProbe,
) -> Result<Value, StoreError> {
    let ReplicaProbe { waiting, applied, redo_bytes, number, stand } = probe;
    let waits = waiting.map(|waiting| confirms::waits_of(waiting, shared.replicas)).unwrap_or_default();
    let (answer, waited) = link.call_then(call, &waits, ANSWER_WITHIN).await.map_err(Failed::into_error)?;
    // If they are too few this is only noted; nothing waits for them.
    let is_enough = waiting.is_none()
        || confirms::counted(&waited, &shared.place).is_ok_and(|counted| shared.replicas_answer(&counted).is_ok());
    // A new connection may lead to another server, which may lack something.
    if is_enough && link.number() == number {
        if waiting.is_some() {
            shared.journal().is_safe(applied);
        }
        if shared.accounts(&stand) {
            redo::empty(shared, redo_bytes).await;
        }
    }
    Ok(answer)
}

/// The records of the register are in a later format than this program knows.
pub(super) fn newer(place: &Arc<str>, prefix: &str, format: u64) -> StoreError {
    let text = format!(
        "Redis at {place} has a register under `{prefix}` whose records are written in format {format}, and this version \
         of allod reads formats up to {}; start a newer one",
        Format::NEWEST
    );
    StoreError::Foreign(text.into())
}

/// The states of a node in its card.
const DRAINING: &str = "draining";
const APART: &str = "apart:";

/// `PROCESS VERSION PEERS CLIENTS STATE READS`; addresses may be missing. `STATE` is `draining`, or `apart:OWNER:REACHED,…`
/// for a node that has no way to the owner. `READS` is for the scripts: the latest format of records that the node reads.
fn card_text(card: &NodeCard) -> String {
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    format!(
        "{} {} {} {} {} {}",
        scripts::hex(card.process),
        or_dash(&card.version),
        or_dash(&card.peer_address),
        or_dash(&card.address),
        state_text(card),
        Format::NEWEST
    )
}

/// A node that is out of service is no successor, whichever nodes it reaches; and older nodes know only the word `draining`.
fn state_text(card: &NodeCard) -> String {
    match &card.apart {
        _ if card.draining => DRAINING.to_owned(),
        Some(Apart { owner, reaches }) => {
            let reaches: Vec<String> = reaches.iter().map(|&process| scripts::hex(process)).collect();
            format!("{APART}{}:{}", scripts::hex(*owner), reaches.join(","))
        }
        None => "-".to_owned(),
    }
}

fn apart_of(state: &str) -> Option<Apart> {
    let (owner, reaches) = state.strip_prefix(APART)?.split_once(':')?;
    let process = |text: &str| u128::from_str_radix(text, 16).ok();
    Some(Apart { owner: process(owner)?, reaches: reaches.split(',').filter_map(process).collect() })
}

pub(super) fn card_of(name: String, text: &str) -> Option<NodeCard> {
    let mut words = text.split(' ').map(|word| if word == "-" { "" } else { word });
    let process = u128::from_str_radix(words.next()?, 16).ok()?;
    let (version, peer_address, address) =
        (words.next()?.to_owned(), words.next()?.to_owned(), words.next()?.to_owned());
    // Cards of older nodes have no state.
    let state = words.next().unwrap_or_default();
    let (draining, apart) = (state == DRAINING, apart_of(state));
    Some(NodeCard { name, process, version, peer_address, address, draining, apart })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    /// The order in which these jobs are done: `t` takes a shard, `r` renews, `e` ends the lease, `h` asks who owns the register.
    async fn done(calls: &str) -> String {
        let (sender, mut jobs) = mpsc::channel(calls.len());
        for (at, call) in calls.chars().enumerate() {
            let job = match call {
                't' => CheckJob::Take(ShardId(at as u16), Token(1), oneshot::channel().0),
                'r' => CheckJob::Lease(LeaseChange::Renewed, oneshot::channel().0),
                'e' => CheckJob::Lease(LeaseChange::Ended, oneshot::channel().0),
                _ => CheckJob::Holder(oneshot::channel().0),
            };
            assert!(sender.try_send(job).is_ok());
        }
        drop(sender);
        let (mut waiting, mut done) = (VecDeque::new(), String::new());
        let mut taken = 0;
        while let Some(job) = next(&mut jobs, &mut waiting).await {
            done.push(match job {
                CheckJob::Take(shard, ..) => {
                    assert!(shard.0 >= taken, "in turn");
                    taken = shard.0;
                    't'
                }
                CheckJob::Lease(LeaseChange::Renewed, _) => 'r',
                CheckJob::Lease(LeaseChange::Ended, _) => 'e',
                _ => 'h',
            });
        }
        done
    }

    /// With many shards and a distant Redis, taking all of them lasts longer than the lease of the first.
    #[tokio::test]
    async fn a_lease_is_renewed_between_take_overs_and_not_behind_all_of_them() {
        for (calls, order) in [("ttttr", "rtttt"), ("thtrht", "rththt"), ("trtr", "rrtt"), ("th", "th")] {
            assert_eq!(done(calls).await, order, "{calls}");
        }
        assert_eq!(done("ttett").await, "ttett", "what is taken before is let go of, and what is taken then is not");
        assert_eq!(done("tettr").await, "tertt", "what is taken then is of another tenure");
        assert_eq!(done("trett").await, "rtett");
    }

    /// A node of a later version whose card has another form.
    #[test]
    fn a_node_whose_card_cannot_be_read_is_told_of_once_and_once_more_when_it_says_something_else() {
        let card = NodeCard { name: "a".to_owned(), process: 7, ..NodeCard::default() };
        let told = |strange: &str| vec![("a".to_owned(), 5, card_text(&card)), ("b".to_owned(), 6, strange.to_owned())];
        let (mut unread, said) = (Vec::new(), Arc::new(tempfile::tempfile().unwrap()));
        tracing::subscriber::with_default(tracing_subscriber::fmt().with_writer(Arc::clone(&said)).finish(), || {
            for strange in ["zz", "zz", "zz 1", "zz 1", "zz"] {
                let nodes = seen(told(strange), &mut unread);
                assert_eq!(nodes, [SeenNode { card: card.clone(), age_ms: 5 }]);
            }
        });
        let mut text = String::new();
        (&*said).rewind().unwrap();
        (&*said).read_to_string(&mut text).unwrap();
        assert_eq!(text.matches("cannot be read").count(), 3, "{text}");
    }

    #[test]
    fn a_card_is_read_as_it_was_written() {
        let mut card = NodeCard {
            name: "a b".to_owned(),
            process: 7,
            version: "0.1.0".to_owned(),
            peer_address: String::new(),
            address: "127.0.0.1:7400".to_owned(),
            draining: true,
            apart: None,
        };
        assert_eq!(card_of(card.name.clone(), &card_text(&card)), Some(card.clone()));
        card.draining = false;
        let text = card_text(&card);
        assert_eq!(card_of(card.name.clone(), &text), Some(card.clone()));
        let older = text.rsplitn(3, ' ').last().unwrap();
        assert_eq!(card_of(card.name.clone(), older), Some(card.clone()), "by an older node");
        for reaches in [vec![], vec![8, u128::MAX]] {
            card.apart = Some(Apart { owner: 7, reaches });
            let text = card_text(&card);
            assert_eq!(text.split(' ').count(), 6, "scripts read the last of six words: {text}");
            assert_eq!(card_of(card.name.clone(), &text), Some(card.clone()));
        }
        assert_eq!(card_of("x".to_owned(), "zz"), None);
    }
}
