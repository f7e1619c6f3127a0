//! Examines Redis without changing anything but its cache of scripts, and leaves nothing behind. For the doctor, not for a
//! server.

use std::time::{Duration, Instant};

use redis::{Cmd, Pipeline, Value};

use super::failed::{Failed, strange};
use super::identity::IdentityFile;
use super::keys::{FORMAT, Keys};
use super::link::Link;
use super::place::RedisPlace;
use super::reach::{self, RedisReach};
use super::server::ServerFacts;
pub use super::server::{Finding, Memory};
use super::{NearEnd, RedisOptions, begin, checks, moving, probe, runtime};
use crate::limits::{NODE_LEASE_MS, SHARDS_MAX};
use crate::store::codec::Format;
use crate::store::moving::{MoveNotice, Origin};
use crate::store::{NodeCard, ShardId, StoreError, chain};

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How many calls are timed.
const ROUND_TRIPS: usize = 100;

/// Batches of a shard that Redis had and has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WentBack {
    /// This server acknowledged batches up to this one.
    pub acknowledged: u64,
    /// The last batch that Redis has.
    pub stands_at: u64,
}

/// The register under the prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRegister {
    /// Its identity, 32 hex digits.
    pub register: String,
    /// Version of its keys, as it states it.
    pub format: String,
    /// The format of the records of its first shard.
    pub records: u64,
    /// Its number of shards.
    pub shards: u64,
    /// Its notice, if nobody is to serve it: it was moved, or is not complete yet.
    pub notice: Option<MoveNotice>,
}

/// What the examination found.
#[derive(Debug)]
pub struct ExaminedServer {
    /// The server that was asked.
    pub place: String,
    /// Is the connection encrypted?
    pub is_over_tls: bool,
    /// When the server's certificate expires, if that is soon.
    pub certificate_ends: Option<NearEnd>,
    /// What it is, with its version: `Valkey 8.0.1`.
    pub engine: String,
    /// Is INFO permitted? If not, only the fields after `findings` are known.
    pub is_known: bool,
    /// What is wrong with it.
    pub findings: Vec<Finding>,
    /// Why the scripts would not work, if so: for example because a right is missing.
    pub refusal: Option<StoreError>,
    /// What an acknowledged change survives.
    pub durability: String,
    /// Its memory.
    pub memory: Option<Memory>,
    /// Its clock, in milliseconds since 1970.
    pub time_ms: u64,
    /// How long calls took, shortest first.
    pub round_trips: Vec<Duration>,
    /// The register under the prefix, if there is one.
    pub held: Option<HeldRegister>,
    /// A part of the register is missing though the rest exists, or lies where nobody looks for it. A start would be refused
    /// for this, and a running server would end.
    pub lost: Option<StoreError>,
    /// The register that this node should find there, according to its directory; 32 hex digits.
    pub known: Option<String>,
    /// A shard that went back and has not recovered, if there is one.
    pub behind: Option<WentBack>,
    /// Nodes that were seen lately, and how long ago, in milliseconds.
    pub nodes: Vec<(NodeCard, u64)>,
}

/// The version of keys that this program knows.
pub const KNOWN_FORMAT: &str = FORMAT;

/// Examines the Redis of these options. Blocks; call it where blocking is allowed.
///
/// # Errors
/// Redis is not reached, is not a primary, or does not answer.
pub fn examine(options: &RedisOptions) -> Result<ExaminedServer, StoreError> {
    let identity = options.directory.as_deref().map(IdentityFile::read).transpose()?;
    let wanted = (options.replicas, options.degrade);
    on_a_link(options, move |link, keys| async move { look(link, &keys, wanted, identity.as_ref()).await })
}

/// Checks whether a register can be moved from there into the Redis of these options. Blocks, as [`examine`] does. Returns
/// whether an earlier move from there was broken off in it.
///
/// # Errors
/// Redis is not reached, cannot keep a register, or has one under that prefix.
pub fn look_at_target(options: &RedisOptions, from: Origin) -> Result<bool, StoreError> {
    let wanted = options.clone();
    on_a_link(options, move |mut link, keys| async move {
        let place = link.name().clone();
        let server = ServerFacts::facts(&mut link).await?;
        server.check(&place, wanted.replicas, link.place().is_in_cluster())?;
        server.wanted_replicas(&place, &wanted)?;
        moving::look_at_target(&mut link, &keys, &from).await
    })
}

/// Whether the Redis of these options cannot keep a register at all, because of its settings or of what it is. False if it is
/// not reached. Blocks, as [`examine`] does.
pub fn is_unfit(options: &RedisOptions) -> bool {
    let replicas = options.replicas;
    let findings = on_a_link(options, move |mut link, _| async move {
        let in_cluster = link.place().is_in_cluster();
        Ok(ServerFacts::facts(&mut link).await?.findings(replicas, in_cluster))
    });
    findings.is_ok_and(|findings| findings.iter().any(|finding| finding.refuses))
}

/// The register in the Redis of these options, if there is one, and its notice of a move. Blocks, as [`examine`] does.
///
/// # Errors
/// Redis cannot be reached, or what is there is no register.
pub fn register_there(options: &RedisOptions) -> Result<Option<(u128, Option<MoveNotice>)>, StoreError> {
    on_a_link(options, move |mut link, keys| async move {
        let found = moving::look(&mut link, &keys).await?;
        Ok(found.map(|found| (found.register, found.notice)))
    })
}

/// Runs `work` with a connection, on a runtime of its own.
fn on_a_link<T, F>(options: &RedisOptions, work: impl FnOnce(Link, Keys) -> F + Send + 'static) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send,
{
    let keys = Keys::new(&options.prefix)?;
    let place = RedisPlace::new(&options.url, &options.tls, &keys)?;
    let runtime = runtime("store-redis-look", 1)?;
    let (told, asked) = std::sync::mpsc::sync_channel(1);
    runtime.spawn(async move {
        // The caller waits for it.
        let _ = told.send(work(Link::new(place, None), keys).await);
    });
    let crashed = |_| StoreError::Poisoned("its task crashed".into());
    let done = asked.recv().map_err(crashed).and_then(std::convert::identity);
    runtime.shutdown_background();
    done
}

async fn look(
    mut link: Link,
    keys: &Keys,
    (replicas, degrade): (u32, bool),
    identity: Option<&IdentityFile>,
) -> Result<ExaminedServer, StoreError> {
    let time_ms = time(&mut link).await?;
    let server = ServerFacts::facts(&mut link).await?;
    let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let begun = Instant::now();
        time(&mut link).await?;
        round_trips.push(begun.elapsed());
    }
    round_trips.sort();
    let in_cluster = link.place().is_in_cluster();
    let held = held(&mut link, keys).await?;
    let (nodes, unread) = nodes(&mut link, keys, time_ms).await?;
    let mut findings = server.findings(replicas, in_cluster);
    findings.extend(unread);
    findings.extend(link.place().silent_sentinels().await.map(|problem| Finding { refuses: false, problem }));
    // If another server has the rest, that explains more than the fact that it is missing here.
    let lost = match halved(&link, keys, held.is_some()).await {
        Ok(Some(halved)) => Some(halved),
        Ok(None) => lost(&mut link, keys, held.as_ref()).await?,
        Err(finding) => {
            findings.push(finding);
            lost(&mut link, keys, held.as_ref()).await?
        }
    };
    let known = identity.and_then(IdentityFile::expected).map(|register| format!("{register:032x}"));
    // The node acknowledged nothing in another register.
    let is_known = held.as_ref().is_some_and(|held| known.as_ref() == Some(&held.register));
    // Heads of a later format say something that only its version reads.
    let is_read = held.as_ref().is_none_or(|held| held.records <= Format::NEWEST.number().into());
    let mut behind = None;
    if let Some(identity) = identity.filter(|_| is_known && is_read && lost.is_none()) {
        if let Some(noted) = &identity.behind
            && let RedisReach::Behind(stands_at) = reach::reach(&mut link, keys, noted).await?
        {
            behind = Some(WentBack { acknowledged: noted.told.seq.0, stands_at });
        } else {
            // If another node went on without these changes, the next start reports this and is not refused.
            let lacking = reach::lacking_since_stop(&mut link, keys, identity).await?;
            let refused = lacking.into_iter().find(|lacking| !lacking.went_on);
            behind = refused.map(|lacking| WentBack { acknowledged: lacking.told.0, stands_at: lacking.there });
        }
    }
    // If the server is refused anyway, there is no need to try the scripts.
    let is_refused = findings.iter().any(|finding| finding.refuses);
    let refusal = match if is_refused { Ok(true) } else { tried(&mut link, keys).await } {
        Ok(is_compact) => {
            findings.extend((!is_compact).then(probe::is_not_compact));
            None
        }
        Err(refusal) => Some(refusal),
    };
    Ok(ExaminedServer {
        place: link.name().to_string(),
        is_over_tls: link.place().is_over_tls(),
        certificate_ends: link.place().tls().and_then(|tls| tls.others_end()),
        engine: server.engine(),
        is_known: server.is_known(),
        findings,
        refusal,
        durability: server.durability(replicas, degrade, in_cluster),
        memory: server.memory(),
        time_ms,
        round_trips,
        held,
        lost,
        known,
        behind,
        nodes,
    })
}

/// Whether long records would be compact, as far as is known.
///
/// # Errors
/// The refusal that a start would meet when it tries what the scripts do.
async fn tried(link: &mut Link, keys: &Keys) -> Result<bool, StoreError> {
    let tried = match link.shas().await {
        Ok(shas) => probe::probe(link, &shas, keys).await,
        Err(failed) => Err(failed),
    };
    match tried {
        Ok(is_compact) => Ok(is_compact),
        // A full Redis shows in the figures of its memory, and a start goes on.
        Err(Failed::NotApplied(StoreError::Full)) => Ok(true),
        Err(failed) => Err(failed.into_error()),
    }
}

async fn time(link: &mut Link) -> Result<u64, StoreError> {
    let mut command = Cmd::new();
    command.arg("TIME");
    let answer = link.ask(command, ANSWER_WITHIN).await?;
    let (seconds, micros): (u64, u64) =
        redis::from_redis_value(answer).map_err(|_| strange(link.name(), "TIME is none"))?;
    Ok(seconds * 1_000 + micros / 1_000)
}

async fn held(link: &mut Link, keys: &Keys) -> Result<Option<HeldRegister>, StoreError> {
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.cmd("HMGET").arg(keys.register()).arg(&["register", "format", "shards", "moved"]);
    pipeline.cmd("HGET").arg(keys.head(ShardId(0))).arg("format");
    let answer = link.read(&pipeline, ANSWER_WITHIN).await?;
    type Fields = ((Option<String>, Option<String>, Option<u64>, Option<String>), Option<u64>);
    let fields: Fields =
        redis::from_redis_value(Value::Array(answer)).map_err(|_| strange(link.name(), "its register is none"))?;
    let ((register, format, shards, moved), records) = fields;
    Ok(register.map(|register| HeldRegister {
        register,
        format: format.unwrap_or_default(),
        records: records.unwrap_or(Format::FIRST.number().into()),
        shards: shards.unwrap_or(0),
        notice: moved.and_then(|notice| MoveNotice::parse(&notice)),
    }))
}

/// Looks for a part of a register without the rest, as a start does.
async fn lost(link: &mut Link, keys: &Keys, held: Option<&HeldRegister>) -> Result<Option<StoreError>, StoreError> {
    let all = match held {
        // Only another release knows what such a register should have.
        Some(held) if held.format != FORMAT => return Ok(None),
        Some(held) => held.shards.min(SHARDS_MAX.into()),
        None => SHARDS_MAX.into(),
    };
    let shards = (0..).map(ShardId).take(usize::try_from(all).unwrap_or_default());
    let mut pipeline = Pipeline::new();
    // One key in each command: a command with several keys is put off while a cluster moves the slot.
    shards.clone().for_each(|shard| _ = pipeline.cmd("EXISTS").arg(keys.head(shard)));
    let answer = link.read(&pipeline, ANSWER_WITHIN).await?;
    let found: Vec<bool> =
        redis::from_redis_value(Value::Array(answer)).map_err(|_| strange(link.name(), "EXISTS is none"))?;
    let (place, in_cluster) = (link.name(), link.place().is_in_cluster());
    let there = found.iter().filter(|there| **there).count() as u64;
    Ok(match held {
        None => {
            let first = shards.zip(found).find(|(_, there)| *there);
            first.map(|(shard, _)| begin::lost_register(place, keys, shard, in_cluster))
        }
        Some(_) if there < all => Some(begin::lost_heads(place, keys, (all - there, all), in_cluster)),
        Some(_) => None,
    })
}

/// Does another server of the cluster have something of the register although the slot is not its own? Then a move of the
/// slot was broken off. The part that is here may still look complete to anybody who only reads its heads.
///
/// # Errors
/// A finding: this cannot be determined, or not while the slot is being moved.
async fn halved(link: &Link, keys: &Keys, is_held: bool) -> Result<Option<StoreError>, Finding> {
    let place = link.place();
    if let Some(moving) = place.moving() {
        let problem = format!("{moving}: nothing changes until that is over; it goes on by itself then");
        return Err(Finding { refuses: false, problem });
    }
    match place.stray(false).await {
        Ok(stray) => Ok(stray.map(|stray| begin::broken_move(link.name(), keys, &stray, is_held))),
        Err(error) => {
            let why = chain(&error);
            let problem =
                format!("whether another server of the cluster has something of the register cannot be said: {why}");
            Err(Finding { refuses: false, problem })
        }
    }
}

/// The nodes that count, by the rule of `nodes.lua`, and a finding for each of which nothing more than the name can be read.
async fn nodes(link: &mut Link, keys: &Keys, now_ms: u64) -> Result<(Vec<(NodeCard, u64)>, Vec<Finding>), StoreError> {
    let mut command = Cmd::new();
    command.arg("HGETALL").arg(keys.nodes());
    let answer: Value = link.ask(command, ANSWER_WITHIN).await?;
    let all: Vec<(String, String)> =
        redis::from_redis_value(answer).map_err(|_| strange(link.name(), "its nodes are none"))?;
    let (mut seen, mut unread) = (Vec::with_capacity(all.len()), Vec::new());
    for (name, value) in all {
        let said = said_of(&value);
        let age_ms = said.map_or(0, |(_, seen_ms, _)| now_ms.saturating_sub(seen_ms));
        if age_ms >= NODE_LEASE_MS {
            continue;
        }
        let card = said.and_then(|(process, _, card)| {
            // The card names the process as well.
            checks::card_of(name.clone(), card).filter(|card| super::scripts::hex(card.process) == process)
        });
        match card {
            Some(card) => seen.push((card, age_ms)),
            None => unread.push(unreadable(&name, &keys.nodes())),
        }
    }
    Ok((seen, unread))
}

/// The process of a node, when it was seen, and its card.
fn said_of(value: &str) -> Option<(&str, u64, &str)> {
    let (process, rest) = value.split_once(' ')?;
    let (seen, card) = rest.split_once(' ')?;
    Some((process, seen.parse().ok()?, card))
}

fn unreadable(node: &str, key: &str) -> Finding {
    let problem = format!(
        "has an entry of node `{node}` in `{key}` that this program cannot read, so other nodes do not see that node; if it runs a \
         newer allod, use the `doctor` of that one, otherwise restart it, or remove the entry of a node that is gone: `HDEL {key} \
         {node}`"
    );
    Finding { refuses: false, problem }
}
