//! A look at Redis that changes nothing but its cache of scripts, and leaves nothing behind: for a doctor, not for a server.

use std::time::{Duration, Instant};

use redis::{Cmd, Pipeline, Value};

use super::failed::{Failed, strange};
use super::identity::IdentityFile;
use super::keys::{FORMAT, Keys};
use super::link::Link;
use super::place::RedisPlace;
use super::reach::{self, RedisReach};
use super::server::{self, ServerFacts};
pub use super::server::{Finding, Memory};
use super::{NearEnd, RedisOptions, begin, checks, moving, runtime};
use crate::limits::{NODE_LEASE_MS, SHARDS_MAX};
use crate::store::codec::Format;
use crate::store::moving::{MoveNotice, Origin};
use crate::store::{NodeCard, ShardId, StoreError, chain};

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Calls whose time is taken.
const ROUND_TRIPS: usize = 100;

/// Numbers of batches of a shard that Redis has less of than it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WentBack {
    /// Up to this one it was acknowledged by this server.
    pub acknowledged: u64,
    /// It stands here.
    pub stands_at: u64,
}

/// The register that Redis holds under the prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRegister {
    /// Its identity, 32 hex digits.
    pub register: String,
    /// Version of its keys, as it says.
    pub format: String,
    /// In which format the records of its first shard are written.
    pub records: u64,
    /// Its shards.
    pub shards: u64,
    /// What it says of itself, where nobody is to serve it: it is moved, or not whole yet.
    pub notice: Option<MoveNotice>,
}

/// What was seen.
#[derive(Debug)]
pub struct ExaminedServer {
    /// Where it was asked.
    pub place: String,
    /// Whether all that was said there is encrypted.
    pub is_over_tls: bool,
    /// When its certificate ends, if that is soon.
    pub certificate_ends: Option<NearEnd>,
    /// What it is, with its version: `Valkey 8.0.1`.
    pub engine: String,
    /// Whether INFO is permitted; else nothing is known but what follows it.
    pub is_known: bool,
    /// What is wrong with it.
    pub findings: Vec<Finding>,
    /// Why the scripts cannot do what they do, if so: a right that is missing, for one.
    pub refusal: Option<StoreError>,
    /// What an acknowledged change survives.
    pub durability: String,
    /// Its memory.
    pub memory: Option<Memory>,
    /// Its clock, milliseconds since 1970.
    pub time_ms: u64,
    /// How long calls took, the shortest first.
    pub round_trips: Vec<Duration>,
    /// The register under the prefix, if there is one.
    pub held: Option<HeldRegister>,
    /// What is missing of it though the rest is there, or lies where nobody looks for it: a start is refused for that, or what was
    /// started ends.
    pub lost: Option<StoreError>,
    /// The register that this node is to find there, by its directory; 32 hex digits.
    pub known: Option<String>,
    /// The shard that went back, if one did and stays there.
    pub behind: Option<WentBack>,
    /// Nodes that were seen lately, with how long ago in milliseconds.
    pub nodes: Vec<(NodeCard, u64)>,
}

/// The version of keys that this program knows.
pub const KNOWN_FORMAT: &str = FORMAT;

/// Looks at the Redis of these options. Blocks; call it where blocking is allowed.
///
/// # Errors
/// It is not reached, is no primary, or does not answer.
pub fn examine(options: &RedisOptions) -> Result<ExaminedServer, StoreError> {
    let identity = options.directory.as_deref().map(IdentityFile::read).transpose()?;
    let wanted = (options.replicas, options.degrade);
    on_a_link(options, move |link, keys| async move { look(link, &keys, wanted, identity.as_ref()).await })
}

/// Whether a register can be moved from there into the Redis of these options. Blocks, as [`examine`] does. Tells whether an earlier
/// move from there was broken off in it.
///
/// # Errors
/// It is not reached, cannot keep a register, or has one under that prefix.
pub fn look_at_target(options: &RedisOptions, from: Origin) -> Result<bool, StoreError> {
    let replicas = options.replicas;
    on_a_link(options, move |mut link, keys| async move {
        let place = link.name().clone();
        ServerFacts::facts(&mut link).await.check(&place, replicas, link.place().is_in_cluster())?;
        moving::look_at_target(&mut link, &keys, &from).await
    })
}

/// Does this over a connection, on a runtime of its own.
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
        // Whoever asked waits.
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
    let server = ServerFacts::facts(&mut link).await;
    let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let begun = Instant::now();
        time(&mut link).await?;
        round_trips.push(begun.elapsed());
    }
    round_trips.sort();
    let in_cluster = link.place().is_in_cluster();
    let held = held(&mut link, keys).await?;
    let mut findings = server.findings(replicas, in_cluster);
    // Where the rest is says more than that it is missing.
    let lost = match halved(&link, keys, held.is_some()).await {
        Ok(Some(halved)) => Some(halved),
        Ok(None) => lost(&mut link, keys, held.as_ref()).await?,
        Err(finding) => {
            findings.push(finding);
            lost(&mut link, keys, held.as_ref()).await?
        }
    };
    let known = identity.and_then(IdentityFile::expected).map(|register| format!("{register:032x}"));
    // Of another register nothing was acknowledged.
    let is_known = held.as_ref().is_some_and(|held| known.as_ref() == Some(&held.register));
    let mut behind = None;
    if let Some(identity) = identity.filter(|_| is_known && lost.is_none()) {
        if let Some(noted) = &identity.behind
            && let RedisReach::Behind(stands_at) = reach::reach(&mut link, keys, noted).await?
        {
            behind = Some(WentBack { acknowledged: noted.told.seq.0, stands_at });
        } else {
            // Of what somebody went on without the next start tells, and is not refused.
            let lacking = reach::lacking_since_stop(&mut link, keys, identity).await?;
            let refused = lacking.into_iter().find(|lacking| !lacking.went_on);
            behind = refused.map(|lacking| WentBack { acknowledged: lacking.told.0, stands_at: lacking.there });
        }
    }
    // What is refused as it is need not be tried.
    let refusal = if findings.iter().any(|finding| finding.refuses) { None } else { refusal(&mut link, keys).await };
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
        nodes: nodes(&mut link, keys, time_ms).await?,
    })
}

/// What a start would be refused with, once it tries what the scripts do.
async fn refusal(link: &mut Link, keys: &Keys) -> Option<StoreError> {
    let tried = match link.shas().await {
        Ok(shas) => server::probe(link, &shas, keys).await.map(drop),
        Err(failed) => Err(failed),
    };
    match tried {
        // That it is full is found by what it tells of its memory, and a start goes on.
        Ok(()) | Err(Failed::NotApplied(StoreError::Full)) => None,
        Err(failed) => Some(failed.into_error()),
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

/// A part of a register without the rest, as a start looks for it.
async fn lost(link: &mut Link, keys: &Keys, held: Option<&HeldRegister>) -> Result<Option<StoreError>, StoreError> {
    let all = match held {
        // Another release knows what that is to have.
        Some(held) if held.format != FORMAT => return Ok(None),
        Some(held) => held.shards.min(SHARDS_MAX.into()),
        None => SHARDS_MAX.into(),
    };
    let shards = (0..).map(ShardId).take(usize::try_from(all).unwrap_or_default());
    let mut pipeline = Pipeline::new();
    // One key each: a command of several is put off while a cluster moves the slot.
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

/// A register of which another server of the cluster has something, although the slot is not its own: a move of it broke off. What
/// is here may look whole all the same, to whoever reads no more than its heads.
///
/// # Errors
/// A finding: whether it is so cannot be said, or is not the question, as the slot is moved just now.
async fn halved(link: &Link, keys: &Keys, is_held: bool) -> Result<Option<StoreError>, Finding> {
    let place = link.place();
    if let Some(moving) = place.moving() {
        let problem = format!("{moving}: nothing changes until that is over; it goes on by itself then");
        return Err(Finding { refuses: false, problem });
    }
    match place.stray().await {
        Ok(stray) => Ok(stray.map(|stray| begin::broken_move(link.name(), keys, &stray, is_held))),
        Err(error) => {
            let why = chain(&error);
            let problem = format!(
                "whether another server of the cluster has something of the register cannot be said: {why}; start that \
                 server, or take it out of the cluster, and look again"
            );
            Err(Finding { refuses: false, problem })
        }
    }
}

/// Those that count, as `nodes.lua` counts them.
async fn nodes(link: &mut Link, keys: &Keys, now_ms: u64) -> Result<Vec<(NodeCard, u64)>, StoreError> {
    let mut command = Cmd::new();
    command.arg("HGETALL").arg(keys.nodes());
    let answer: Value = link.ask(command, ANSWER_WITHIN).await?;
    let all: Vec<(String, String)> =
        redis::from_redis_value(answer).map_err(|_| strange(link.name(), "its nodes are none"))?;
    let card = |(name, value): (String, String)| {
        let (process, rest) = value.split_once(' ')?;
        let (seen, card) = rest.split_once(' ')?;
        // The card names the process too.
        let card = checks::card_of(name, card).filter(|card| super::scripts::hex(card.process) == process)?;
        Some((card, now_ms.saturating_sub(seen.parse().ok()?)))
    };
    Ok(all.into_iter().filter_map(card).filter(|(_, age_ms)| *age_ms < NODE_LEASE_MS).collect())
}
