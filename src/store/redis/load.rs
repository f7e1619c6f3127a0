//! Loading a shard: in bounded pieces, on a connection of its own, beside commits. `history` reads on the same one.
//!
//! While one piece is decoded here, Redis sends the next, and `indexer` indexes the one before as a network keeps it: nothing
//! is kept of a million records but what is served afterwards. Where commits come meanwhile, what they changed is indexed anew.
//!
//! The pieces are read at different instants. Records are states, so whatever was committed meanwhile is played over what
//! was read, from the log; the image is exact as of the head that is read last. A hash of IPv6 that is cut meanwhile gives
//! its upper addresses to hashes that are not read yet, because they are read in ascending order, or are new, and are
//! looked for at the end.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::astray::{self, Astray, Span};
use super::failed::{self, Failed};
use super::indexer::Indexer;
use super::keys::{HashKind, HashName};
use super::link::Link;
use super::scripts;
use super::shared::RedisShared;
use super::whole::Empty;
use super::{heal, history, surplus};
use crate::core::address::Address;
use crate::core::deployment::Deployment;
use crate::core::network::Entries;
use crate::core::state::{Entry, Key, NetworkConfig, State, SubnetConfig};
use crate::core::types::NetworkId;
use crate::store::history::{RecordedBatch, Stretch};
use crate::store::image::RecordImage;
use crate::store::{Batch, Followed, Head, Seq, ShardId, ShardImage, StoreError, Token, codec};

/// How long one piece may take.
pub(super) const PIECE_WITHIN: Duration = Duration::from_secs(10);
/// Networks whose configuration and first addresses are asked for at once.
const NETWORKS_AT_ONCE: usize = 256;
/// Hashes of one piece: some four thousand records.
const HASHES_AT_ONCE: usize = 64;
/// Pieces that Redis may send before the first is taken in.
const PIECES_UNDER_WAY: usize = 3;
/// Names of hashes that are asked for at once.
const LOWS_AT_ONCE: usize = 4_096;
/// A shard that changes its server while it is loaded is loaded again, so often.
const TRIES: usize = 3;

/// A shard that goes on faster than it can be followed is loaded anew.
const FOLLOWED_BATCHES_MAX: u64 = 100_000;

/// A call of `load`, `beside`, `follow` or `recorded`.
pub(super) enum LoadJob {
    Load(ShardId, Token, oneshot::Sender<Result<ShardImage, StoreError>>),
    Beside(ShardId, oneshot::Sender<Result<ShardImage, StoreError>>),
    Follow(ShardId, Head, oneshot::Sender<Result<Option<Followed>, StoreError>>),
    Recorded(Vec<Stretch>, usize, oneshot::Sender<Result<Vec<RecordedBatch>, StoreError>>),
}

/// Reads, and once more from the beginning where the connection turned out to be closed: nobody may have used it for hours.
macro_rules! reread {
    ($link:ident, $read:expr) => {
        match $read.await {
            Err(_) if $link.was_closed() => $read.await,
            ended => ended,
        }
    };
}

/// Runs until every sender is gone.
pub(super) async fn run(shared: Arc<RedisShared>, mut link: Link, mut jobs: mpsc::Receiver<LoadJob>) {
    let link = &mut link;
    while let Some(job) = jobs.recv().await {
        // Nobody may wait any more: then what was read is nobody's.
        match job {
            LoadJob::Load(shard, token, reply) => {
                drop(reply.send(reread!(link, load(&shared, link, shard, Some(token)))));
            }
            LoadJob::Beside(shard, reply) => drop(reply.send(reread!(link, load(&shared, link, shard, None)))),
            LoadJob::Follow(shard, from, reply) => drop(reply.send(reread!(link, follow(&shared, link, shard, &from)))),
            LoadJob::Recorded(stretches, bytes, reply) => {
                drop(reply.send(reread!(link, history::read(&shared, link, stretches.clone(), bytes))));
            }
        }
    }
}

/// A network, or the record of a deployment, as far as it was read.
#[derive(Default)]
struct Partial {
    config: Option<Arc<NetworkConfig>>,
    subnets: Vec<Arc<SubnetConfig>>,
    entries: Entries,
    deployment: Option<Arc<Deployment>>,
    /// Hashes of IPv6 that were read.
    read: HashSet<Vec<u8>>,
}

impl Partial {
    fn add(&mut self, key: Key, state: State) {
        match (key, state) {
            (_, State::Config(config)) => self.config = Some(config),
            (_, State::Subnet(subnet)) => self.subnets.push(subnet),
            (_, State::Deployment(deployment)) => self.deployment = Some(deployment),
            (Key::Address(address), State::Entry(entry)) => self.entries.push(address, entry),
            // `check_pair` refused it.
            (Key::Config | Key::Subnet(_) | Key::Deployment, State::Entry(_)) => {}
        }
    }

    fn add_all(&mut self, records: Vec<(Key, State)>) {
        records.into_iter().for_each(|(key, state)| self.add(key, state));
    }

    /// Puts these states in place of what was read at their keys.
    fn change(&mut self, changed: HashMap<Key, Option<State>>) {
        self.subnets.retain(|subnet| !changed.contains_key(&Key::Subnet(subnet.id)));
        if changed.contains_key(&Key::Config) {
            self.config = None;
        }
        if changed.contains_key(&Key::Deployment) {
            self.deployment = None;
        }
        let mut entries = None;
        if changed.keys().any(|key| matches!(key, Key::Address(_))) {
            let mut stays: Vec<(Address, Entry)> = std::mem::take(&mut self.entries).into_iter().collect();
            stays.retain(|(address, _)| !changed.contains_key(&Key::Address(*address)));
            entries = Some(stays);
        }
        for (key, state) in changed {
            match (key, state, &mut entries) {
                (Key::Address(address), Some(State::Entry(entry)), Some(entries)) => entries.push((address, entry)),
                (key, Some(state), _) => self.add(key, state),
                (_, None, _) => {}
            }
        }
        if let Some(entries) = entries {
            self.entries = Entries::of_any_order(entries);
        }
    }

    /// Takes in what was read of a network beside this one.
    fn add_entries(&mut self, entries: Entries) {
        if self.entries.is_empty() {
            self.entries = entries;
        } else {
            entries.into_iter().for_each(|(address, entry)| self.entries.push(address, entry));
        }
    }
}

/// The head, which must be the owner's of this token; or whoever's.
async fn head(shared: &RedisShared, link: &mut Link, shard: ShardId, token: Option<Token>) -> Result<Head, StoreError> {
    // Before it is asked: what is acknowledged meanwhile may be missing in the answer.
    let known = shared.line(shard, |line| line.known(shard))?;
    let mut command = Cmd::new();
    command.arg("HMGET").arg(shared.keys.head(shard)).arg(&scripts::HEAD_FIELDS[..]);
    let value = link.ask(command, PIECE_WITHIN).await?;
    let head = scripts::head(value).ok_or_else(|| damaged(shared, &shared.keys.head(shard), "is no head"))?;
    let Some(head) = head else { return Err(shared.absent(shard)) };
    let Some(token) = token else { return Ok(head) };
    if known.token == token && (head.epoch < known.epoch || (head.token == token && head.seq < known.told.seq)) {
        return Err(heal::behind(shared));
    }
    if head.token != token || head.epoch.0 == 0 {
        return Err(StoreError::Fenced { shard, current: head.epoch });
    }
    Ok(head)
}

async fn load(
    shared: &RedisShared,
    link: &mut Link,
    shard: ShardId,
    token: Option<Token>,
) -> Result<ShardImage, StoreError> {
    shared.sound()?;
    shared.line(shard, |_| ())?;
    let begun = Instant::now();
    // Whoever owns it has it in memory.
    let is_served = token.is_none() && !shared.owned().is_empty();
    let mut is_trimmed = false;
    for _ in 0..TRIES {
        let connection = heal::ready(shared, link).await.map_err(Failed::into_error)?.1;
        let before = head(shared, link, shard, token).await?;
        let surplus = match token {
            Some(_) => surplus::behind(shared, link, shard, &before).await?,
            // Its owner sees to it.
            None => None,
        };
        let (mut networks, astray) = read_networks(shared, link, (shard, is_served)).await?;
        if let Some(token) = token.filter(|_| !astray.is_empty()) {
            astray::place(shared, link, (shard, token), &astray).await?;
        }
        if let Some(surplus) = surplus {
            surplus::cut(shared, link, &before, &surplus, &marks(&networks)).await?;
        }
        if head(shared, link, shard, token).await?.seq > before.seq {
            read_cuts(shared, link, (shard, is_served), &mut networks).await?;
        }
        let after = head(shared, link, shard, token).await?;
        let whole = match after.seq.cmp(&before.seq) {
            Ordering::Less => false,
            Ordering::Equal => after.digest == before.digest,
            Ordering::Greater => play(shared, link, shard, (before.seq, after.seq), &mut networks).await?,
        };
        is_trimmed = after.seq > before.seq && !whole;
        if !whole {
            continue;
        }
        if link.connected().await.map_err(Failed::into_error)?.1 == connection {
            let took_ms = begun.elapsed().as_millis() as u64;
            let records: usize = networks.values().map(|partial| partial.entries.len()).sum();
            tracing::debug!(shard = shard.0, records, took_ms, "loaded");
            return image(after, networks);
        }
    }
    Err(if is_trimmed {
        unplayed(shared, shard)
    } else {
        failed::strange(&shared.place, "the connection broke each time the shard was loaded")
    })
}

/// What was committed while a shard was read is to be played over it, and is not in its log any more.
fn unplayed(shared: &RedisShared, shard: ShardId) -> StoreError {
    let text = "what was committed meanwhile is not in its log any more, which is cut too soon for it: raise `history.keep_bytes` (and \
                `history.keep_seconds`) of the node that owns the register, or hand it over while less is asked of it";
    let context = format!("loading shard {} from Redis at {}", shard.0, shared.place).into();
    StoreError::Io { context, source: Arc::new(std::io::Error::other(text)) }
}

/// The number that a change of each key must expect.
fn marks(networks: &BTreeMap<NetworkId, Partial>) -> HashMap<(NetworkId, Key), u64> {
    let mut marks = HashMap::new();
    for (&id, partial) in networks {
        let Partial { config, subnets, entries, deployment, read: _ } = partial;
        marks.extend(config.iter().map(|config| ((id, Key::Config), config.version.0)));
        marks.extend(subnets.iter().map(|subnet| ((id, Key::Subnet(subnet.id)), subnet.version.0)));
        marks.extend(deployment.iter().map(|deployment| ((id, Key::Deployment), deployment.version.0)));
        marks.extend(entries.iter().map(|(address, entry)| ((id, Key::Address(address)), entry.generation().0)));
    }
    marks
}

fn image(head: Head, networks: BTreeMap<NetworkId, Partial>) -> Result<ShardImage, StoreError> {
    let mut image = ShardImage::new(head);
    for (id, partial) in networks {
        let Partial { config, subnets, entries, deployment, read: _ } = partial;
        image
            .add(RecordImage { id, config, subnets, entries: entries.in_order(), deployment })
            .map_err(StoreError::Damaged)?;
    }
    Ok(image)
}

async fn read_networks(
    shared: &RedisShared,
    link: &mut Link,
    (shard, is_served): (ShardId, bool),
) -> Result<(BTreeMap<NetworkId, Partial>, Vec<Astray>), StoreError> {
    let mut command = Cmd::new();
    command.arg("HGETALL").arg(shared.keys.networks(shard));
    let mut pairs = list(shared, link.ask(command, PIECE_WITHIN).await?)?.into_iter();
    let mut empty = Empty::new(shard, is_served);
    if pairs.len() == 0 {
        empty.networks(shared.keys.networks(shard));
    }
    let mut ids = Vec::new();
    while let (Some(name), Some(kinds)) = (pairs.next(), pairs.next()) {
        let text = String::from_utf8(bytes(shared, name)?).unwrap_or_default();
        let named = |_| damaged(shared, &shared.keys.networks(shard), format!("names `{text}`, which is no network"));
        ids.push((text.parse::<NetworkId>().map_err(named)?, bytes(shared, kinds)?));
    }
    let mut networks: BTreeMap<NetworkId, Partial> = BTreeMap::new();
    // Hashes of many networks are read together, or each small network would cost round trips.
    let mut hashes = Vec::new();
    for some in ids.chunks(NETWORKS_AT_ONCE) {
        let mut pipeline = Pipeline::new();
        for &(id, _) in some {
            pipeline.cmd("HGETALL").arg(shared.keys.config(shard, id));
            for kind in [HashKind::V4, HashKind::V6] {
                lows(&mut pipeline, &shared.keys.index(shard, kind, id), None);
            }
        }
        let mut values = link.read(&pipeline, PIECE_WITHIN).await?.into_iter();
        for (id, kinds) in some {
            let id = *id;
            let mut next = || values.next().ok_or_else(|| failed::strange(&shared.place, "an answer is missing"));
            let key = || shared.keys.config(shard, id);
            let records = decode(shared, &key, (id, HashKind::Config, b""), next()?)?;
            if records.is_empty() {
                empty.of_network(id, HashKind::Config.letter(), kinds, key());
            }
            networks.entry(id).or_default().add_all(records);
            for kind in [HashKind::V4, HashKind::V6] {
                let page = list(shared, next()?)?;
                if page.is_empty() {
                    empty.of_network(id, kind.letter(), kinds, shared.keys.index(shard, kind, id));
                }
                let all = rest_of_index(shared, link, shard, (id, kind), page).await?;
                hashes.extend(all.into_iter().map(|low| (id, kind, low)));
            }
        }
    }
    let read = read_hashes(shared, link, &hashes, (&mut networks, &mut empty)).await?;
    empty.check(shared, link).await?;
    Ok((networks, astray::among(&hashes, &read)))
}

/// Asks for the names of the next hashes.
fn lows(pipeline: &mut Pipeline, index: &str, after: Option<&[u8]>) {
    let from = after.map_or_else(|| b"-".to_vec(), |after| [b"(", after].concat());
    pipeline.cmd("ZRANGEBYLEX").arg(index).arg(from).arg("+").arg("LIMIT").arg(0).arg(LOWS_AT_ONCE);
}

/// All names of an index of which the first page is known, ascending.
async fn rest_of_index(
    shared: &RedisShared,
    link: &mut Link,
    shard: ShardId,
    (id, kind): (NetworkId, HashKind),
    mut page: Vec<Value>,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut all = Vec::with_capacity(page.len());
    loop {
        let full = page.len() == LOWS_AT_ONCE;
        for low in page {
            all.push(bytes(shared, low)?);
        }
        if !full {
            return Ok(all);
        }
        let mut pipeline = Pipeline::new();
        lows(&mut pipeline, &shared.keys.index(shard, kind, id), all.last().map(Vec::as_slice));
        page = list(shared, link.read(&pipeline, PIECE_WITHIN).await?.pop().unwrap_or(Value::Nil))?;
    }
}

/// A hash of a network, by its kind and its LOW.
pub(super) type Hash = (NetworkId, HashKind, Vec<u8>);

/// Reads hashes in the order given, and tells what each has. While one piece is decoded, Redis sends the next, and the one before
/// is indexed.
async fn read_hashes(
    shared: &RedisShared,
    link: &mut Link,
    hashes: &[Hash],
    (networks, empty): (&mut BTreeMap<NetworkId, Partial>, &mut Empty),
) -> Result<Vec<Span>, StoreError> {
    let shard = empty.shard();
    let mut spans = Vec::with_capacity(hashes.len());
    let ask = |piece: &[Hash]| {
        let mut pipeline = Pipeline::with_capacity(piece.len());
        for (id, kind, low) in piece {
            pipeline.cmd("HGETALL").arg(shared.keys.records(shard, *kind, *id, &String::from_utf8_lossy(low)));
        }
        pipeline
    };
    let indexer = (hashes.len() > HASHES_AT_ONCE).then(Indexer::start);
    let mut pieces = hashes.chunks(HASHES_AT_ONCE);
    let mut under_way = VecDeque::new();
    for piece in pieces.by_ref().take(PIECES_UNDER_WAY) {
        under_way.push_back((piece, link.begin_read(ask(piece)).await?));
    }
    while let Some((piece, reading)) = under_way.pop_front() {
        let values = link.finish_read(reading, PIECE_WITHIN).await?;
        if let Some(next) = pieces.next() {
            under_way.push_back((next, link.begin_read(ask(next)).await?));
        }
        let mut read = Vec::with_capacity(piece.len());
        for ((id, kind, low), value) in piece.iter().zip(values) {
            let key = || shared.keys.records(shard, *kind, *id, &String::from_utf8_lossy(low));
            let mut records = decode(shared, &key, (*id, *kind, low), value)?;
            if records.is_empty() {
                empty.hash(*id, *kind, low, key());
            }
            if *kind == HashKind::V6 {
                networks.entry(*id).or_default().read.insert(low.clone());
            }
            // Redis has them in the order in which they came.
            records.sort_unstable_by_key(|(key, _)| *key);
            spans.push(Span::of(&records));
            read.push((*id, records));
        }
        match &indexer {
            Some(indexer) => indexer.take(read).await?,
            None => read.into_iter().for_each(|(id, records)| networks.entry(id).or_default().add_all(records)),
        }
    }
    if let Some(indexer) = indexer {
        for (id, entries) in indexer.finish().await? {
            networks.entry(id).or_default().add_entries(entries);
        }
    }
    Ok(spans)
}

/// Reads the hashes of IPv6 that were cut off others since those were read, until there are no more.
async fn read_cuts(
    shared: &RedisShared,
    link: &mut Link,
    (shard, is_served): (ShardId, bool),
    networks: &mut BTreeMap<NetworkId, Partial>,
) -> Result<(), StoreError> {
    let mut ids: Vec<NetworkId> =
        networks.iter().filter(|(_, partial)| !partial.read.is_empty()).map(|(&id, _)| id).collect();
    let mut empty = Empty::new(shard, is_served);
    while !ids.is_empty() {
        let mut unread = Vec::new();
        for &id in &ids {
            let mut pipeline = Pipeline::new();
            lows(&mut pipeline, &shared.keys.index(shard, HashKind::V6, id), None);
            let page = list(shared, link.read(&pipeline, PIECE_WITHIN).await?.pop().unwrap_or(Value::Nil))?;
            let all = rest_of_index(shared, link, shard, (id, HashKind::V6), page).await?;
            let read = &networks.entry(id).or_default().read;
            unread.extend(all.into_iter().filter(|low| !read.contains(low)).map(|low| (id, HashKind::V6, low)));
        }
        drop(read_hashes(shared, link, &unread, (networks, &mut empty)).await?);
        ids = unread.into_iter().map(|(id, ..)| id).collect();
        ids.dedup();
    }
    empty.check(shared, link).await
}

/// Decodes the records of one hash; every one is checked.
fn decode(
    shared: &RedisShared,
    name: &dyn Fn() -> String,
    (network, kind, low): (NetworkId, HashKind, &[u8]),
    value: Value,
) -> Result<Vec<(Key, State)>, StoreError> {
    let mut values = list(shared, value)?.into_iter();
    let mut records = Vec::with_capacity(values.len() / 2);
    let hash = HashName::of(kind, low);
    while let (Some(field), Some(record)) = (values.next(), values.next()) {
        let (field, record) = (bytes(shared, field)?, bytes(shared, record)?);
        let at = |problem: &dyn std::fmt::Display| {
            damaged(shared, &name(), format!("has at `{}` a record that {problem}", String::from_utf8_lossy(&field)))
        };
        let key = hash.key_of(&field).ok_or_else(|| at(&"no version of allod puts there"))?;
        let state = codec::decode_state(&record).map_err(|error| at(&error))?;
        codec::check_pair(network, key, &state).map_err(|error| at(&error))?;
        records.push((key, state));
    }
    Ok(records)
}

/// Plays what was committed while the networks were read over them. Tells whether the log had all of it.
async fn play(
    shared: &RedisShared,
    link: &mut Link,
    shard: ShardId,
    (from, to): (Seq, Seq),
    networks: &mut BTreeMap<NetworkId, Partial>,
) -> Result<bool, StoreError> {
    let missed = usize::try_from(to.0 - from.0).unwrap_or(usize::MAX);
    let recorded = history::read(shared, link, vec![Stretch { shard, after: from, until: to }], usize::MAX).await?;
    let batches = recorded.iter().map(RecordedBatch::decode).collect::<Result<Vec<Batch>, StoreError>>()?;
    if batches.last().map(|batch| batch.seq) != Some(to) || batches.len() != missed {
        return Ok(false);
    }
    let mut changed: BTreeMap<NetworkId, HashMap<Key, Option<State>>> = BTreeMap::new();
    for act in batches.into_iter().flat_map(|batch| batch.acts) {
        let of_network = changed.entry(act.network).or_default();
        of_network.extend(act.steps.into_iter().map(|step| (step.key, step.state)));
    }
    for (id, changed) in changed {
        networks.entry(id).or_default().change(changed);
    }
    Ok(true)
}

/// What lies behind a head, if it is the same line.
async fn follow(
    shared: &RedisShared,
    link: &mut Link,
    shard: ShardId,
    from: &Head,
) -> Result<Option<Followed>, StoreError> {
    shared.sound()?;
    heal::ready(shared, link).await.map_err(Failed::into_error)?;
    let now = head(shared, link, shard, None).await?;
    let Some(behind) = now.seq.0.checked_sub(from.seq.0).filter(|&behind| behind <= FOLLOWED_BATCHES_MAX) else {
        return Ok(None);
    };
    let stretch = Stretch { shard, after: from.seq, until: now.seq };
    let recorded = history::read(shared, link, vec![stretch], usize::MAX).await?;
    let mut digest = from.digest;
    let mut batches = Vec::with_capacity(recorded.len());
    for recorded in &recorded {
        // None where it was cut off and written anew, or some of it is not kept.
        let Some(next) = recorded.follows(digest) else { return Ok(None) };
        digest = next;
        batches.push(recorded.decode()?);
    }
    let whole = batches.len() as u64 == behind && digest == now.digest;
    Ok(whole.then_some((batches, now)))
}

pub(super) fn list(shared: &RedisShared, value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(values) | Value::Set(values) => Ok(values),
        _ => Err(failed::strange(&shared.place, "an answer is no list")),
    }
}

pub(super) fn bytes(shared: &RedisShared, value: Value) -> Result<Vec<u8>, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(failed::strange(&shared.place, "an answer is no text")),
    }
}

pub(super) fn damaged(shared: &RedisShared, key: &str, problem: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged(format!("Redis at {}: `{key}` {problem}", shared.place).into())
}
