//! Loads a shard in bounded pieces, while commits go on. A load by the owner must not wait for other reads: a client that
//! asks a network which is being loaded waits for two seconds at most, and reading a shard of a million records takes three.
//! So one task loads, and another one reads whatever no client's request waits for, including `history`, each on a
//! connection of its own.
//!
//! While one piece is decoded here, Redis sends the next one, and `indexer` brings the one before into the form in which a
//! network keeps it: of a million records nothing is kept but what will be served. If commits come meanwhile, what they
//! changed is indexed again.
//!
//! The pieces are read at different instants. Records are states, so the batches committed meanwhile are applied from the
//! log over what was read; the image is exact as of the head that is read last. If an IPv6 hash is split meanwhile, its
//! upper addresses go into a hash that is not read yet, because hashes are read in ascending order, or into a new one, and
//! new ones are looked for at the end.

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
use super::{heal, history, plate, surplus};
use crate::core::address::Address;
use crate::core::deployment::Deployment;
use crate::core::network::Entries;
use crate::core::state::{Entry, Key, NetworkConfig, State, SubnetConfig};
use crate::core::types::NetworkId;
use crate::store::codec::CodecError;
use crate::store::error::PERHAPS_NEWER;
use crate::store::history::{RecordedBatch, Stretch};
use crate::store::image::RecordImage;
use crate::store::{Followed, Head, ShardId, ShardImage, StoreError, Token, codec};

pub(super) const PIECE_WITHIN: Duration = Duration::from_secs(10);
/// How many networks are asked for their configuration and first addresses at once.
const NETWORKS_AT_ONCE: usize = 256;
/// Hashes in one piece, which are some four thousand records.
const HASHES_AT_ONCE: usize = 64;
/// How many pieces Redis may send before the first one is processed.
const PIECES_UNDER_WAY: usize = 3;
/// How many names of hashes are asked for at once.
const LOWS_AT_ONCE: usize = 4_096;
/// How often a load begins again if the shard's server changes meanwhile.
const TRIES: usize = 3;

/// How many bytes of batches that were committed meanwhile are read at once.
const PLAYED_AT_ONCE_BYTES: usize = 16 << 20;
/// A shard that changes faster than it can be followed is loaded anew: what is followed is in memory all at once, decoded.
const FOLLOWED: FollowedMax = FollowedMax { batches: 100_000, bytes: 128 << 20 };

#[derive(Debug, Clone, Copy)]
struct FollowedMax {
    batches: u64,
    bytes: usize,
}

/// A call of `load`, `beside`, `follow`, `recorded` or `reread`.
pub(super) enum LoadJob {
    Load(ShardId, Token, oneshot::Sender<Result<ShardImage, StoreError>>),
    Beside(ShardId, oneshot::Sender<Result<ShardImage, StoreError>>),
    Follow(ShardId, Head, oneshot::Sender<Result<Option<Followed>, StoreError>>),
    Recorded(Vec<Stretch>, usize, oneshot::Sender<Result<Vec<RecordedBatch>, StoreError>>),
    Plate(oneshot::Sender<Result<(), StoreError>>),
}

/// Reads, and once more from the beginning if the connection turned out to be closed: it may have been idle for hours.
macro_rules! reread {
    ($link:ident, $read:expr) => {
        match $read.await {
            Err(_) if $link.was_closed() => $read.await,
            ended => ended,
        }
    };
}

impl LoadJob {
    /// Is nobody waiting for the answer any more?
    fn is_over(&self) -> bool {
        match self {
            Self::Load(.., reply) | Self::Beside(_, reply) => reply.is_closed(),
            Self::Follow(.., reply) => reply.is_closed(),
            Self::Recorded(.., reply) => reply.is_closed(),
            Self::Plate(reply) => reply.is_closed(),
        }
    }
}

/// Runs until every sender is gone.
pub(super) async fn run(shared: Arc<RedisShared>, mut link: Link, mut jobs: mpsc::Receiver<LoadJob>) {
    let link = &mut link;
    while let Some(job) = jobs.recv().await {
        match job {
            // A job may be long, such as a read of much history, and others wait behind it.
            job if job.is_over() => {}
            LoadJob::Load(shard, token, reply) => {
                drop(reply.send(reread!(link, load(&shared, link, shard, Some(token)))));
            }
            LoadJob::Beside(shard, reply) => drop(reply.send(reread!(link, load(&shared, link, shard, None)))),
            LoadJob::Follow(shard, from, reply) => {
                drop(reply.send(reread!(link, follow(&shared, link, shard, &from, FOLLOWED))))
            }
            LoadJob::Recorded(stretches, bytes, reply) => {
                drop(reply.send(reread!(link, history::read(&shared, link, stretches.clone(), bytes))));
            }
            LoadJob::Plate(reply) => drop(reply.send(reread!(link, plate::check(&shared, link)))),
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
    /// The IPv6 hashes that were read.
    read: HashSet<Vec<u8>>,
}

impl Partial {
    fn add(&mut self, key: Key, state: State) {
        match (key, state) {
            (_, State::Config(config)) => self.config = Some(config),
            (_, State::Subnet(subnet)) => self.subnets.push(subnet),
            (_, State::Deployment(deployment)) => self.deployment = Some(deployment),
            (Key::Address(address), State::Entry(entry)) => self.entries.push(address, entry),
            // `check_pair` refuses such pairs of key and state.
            (Key::Config | Key::Subnet(_) | Key::Deployment, State::Entry(_)) => {}
        }
    }

    fn add_all(&mut self, records: Vec<(Key, State)>) {
        records.into_iter().for_each(|(key, state)| self.add(key, state));
    }

    /// Replaces what was read at these keys by these states.
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

    /// Adds the addresses of a network that the indexer has put together.
    fn add_entries(&mut self, entries: Entries) {
        if self.entries.is_empty() {
            self.entries = entries;
        } else {
            entries.into_iter().for_each(|(address, entry)| self.entries.push(address, entry));
        }
    }
}

/// Reads the head, which must have this token, if one is given.
async fn head(shared: &RedisShared, link: &mut Link, shard: ShardId, token: Option<Token>) -> Result<Head, StoreError> {
    // Read before Redis is asked: the answer may lack what is acknowledged meanwhile.
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
    // A process that owns the register has the shard in memory.
    let is_served = token.is_none() && !shared.owned().is_empty();
    let mut is_trimmed = false;
    for _ in 0..TRIES {
        let connection = heal::ready(shared, link).await.map_err(Failed::into_error)?.1;
        let before = head(shared, link, shard, token).await?;
        let surplus = match token {
            Some(_) => surplus::behind(shared, link, shard, &before).await?,
            // Only the owner repairs the log.
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
            Ordering::Greater => play(shared, link, shard, (&before, &after), &mut networks).await?,
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

/// The error if batches that were committed while the shard was read are no longer in its log.
fn unplayed(shared: &RedisShared, shard: ShardId) -> StoreError {
    let text = "what was committed meanwhile is not in its log any more, which is cut too soon for it: raise \
     `history.keep_bytes` (and \
                `history.keep_seconds`) of the node that owns the register, or hand it over while less is asked of it";
    let context = format!("loading shard {} from Redis at {}", shard.0, shared.place).into();
    StoreError::Io { context, source: Arc::new(std::io::Error::other(text)) }
}

/// The mark that a change of each key must expect.
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
        let named =
            |_| damaged(shared, &shared.keys.networks(shard), format!("names `{text}`, which is not a network"));
        ids.push((text.parse::<NetworkId>().map_err(named)?, bytes(shared, kinds)?));
    }
    let mut networks: BTreeMap<NetworkId, Partial> = BTreeMap::new();
    // Hashes of many networks are read together, so that small networks do not each cost round trips.
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

fn lows(pipeline: &mut Pipeline, index: &str, after: Option<&[u8]>) {
    let from = after.map_or_else(|| b"-".to_vec(), |after| [b"(", after].concat());
    pipeline.cmd("ZRANGEBYLEX").arg(index).arg(from).arg("+").arg("LIMIT").arg(0).arg(LOWS_AT_ONCE);
}

/// All names in an index whose first page is known, ascending.
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

/// Reads hashes in the given order, and returns the span of each. While one piece is decoded, Redis sends the next one, and
/// the one before is indexed.
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
            // Redis returns them in the order of insertion.
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

/// Reads IPv6 hashes that were split off others after those were read, until there are no new ones.
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

/// Decodes the records of one hash, and checks every one.
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
        // Unlike a batch, a record in Redis has nothing that shows whether somebody changed it.
        let at = |error: CodecError| {
            let (place, key, field) = (&shared.place, name(), String::from_utf8_lossy(&field));
            let text = format!(
                "Redis at {place}: `{key}` has at `{field}` a record that {error}; {PERHAPS_NEWER}. If none was ever here, \
                 somebody changed the record"
            );
            StoreError::Newer(text.into())
        };
        let key = hash.key_of(&field).ok_or_else(|| {
            let field = String::from_utf8_lossy(&field);
            damaged(shared, &name(), format!("has at `{field}` a record that no version of allod puts there"))
        })?;
        let state = codec::decode_state(&record).map_err(at)?;
        codec::check_pair(network, key, &state).map_err(at)?;
        records.push((key, state));
    }
    Ok(records)
}

/// Applies what was committed while the networks were read. Returns whether the log had all of it.
async fn play(
    shared: &RedisShared,
    link: &mut Link,
    shard: ShardId,
    span: (&Head, &Head),
    networks: &mut BTreeMap<NetworkId, Partial>,
) -> Result<bool, StoreError> {
    let mut changed: BTreeMap<NetworkId, HashMap<Key, Option<State>>> = BTreeMap::new();
    let mut change = |recorded: &RecordedBatch| {
        for act in recorded.decode()?.acts {
            let of_network = changed.entry(act.network).or_default();
            of_network.extend(act.steps.into_iter().map(|step| (step.key, step.state)));
        }
        Ok(true)
    };
    if !between(shared, link, shard, span, &mut change).await? {
        return Ok(false);
    }
    for (id, changed) in changed {
        networks.entry(id).or_default().change(changed);
    }
    Ok(true)
}

/// Handles a batch; false means that no more are wanted.
type EachBatch<'a> = dyn FnMut(&RecordedBatch) -> Result<bool, StoreError> + Send + 'a;

/// Passes the batches between two heads to `each`, with only some in memory at once. Returns whether all were passed and
/// form one line: some may no longer be kept, or the line may have been cut off and written anew.
async fn between(
    shared: &RedisShared,
    link: &mut Link,
    shard: ShardId,
    (from, to): (&Head, &Head),
    each: &mut EachBatch<'_>,
) -> Result<bool, StoreError> {
    let (mut at, mut digest) = (from.seq, from.digest);
    while at < to.seq {
        let stretch = Stretch { shard, after: at, until: to.seq };
        let recorded = history::read(shared, link, vec![stretch], PLAYED_AT_ONCE_BYTES).await?;
        if recorded.is_empty() {
            return Ok(false);
        }
        for batch in &recorded {
            let Some(with_it) = batch.follows(digest).filter(|_| batch.seq.0 == at.0 + 1) else { return Ok(false) };
            if !each(batch)? {
                return Ok(false);
            }
            (at, digest) = (batch.seq, with_it);
        }
    }
    Ok(digest == to.digest)
}

/// The batches after a head, if the shard is still on the same line and there are not too many.
async fn follow(
    shared: &RedisShared,
    link: &mut Link,
    shard: ShardId,
    from: &Head,
    most: FollowedMax,
) -> Result<Option<Followed>, StoreError> {
    shared.sound()?;
    heal::ready(shared, link).await.map_err(Failed::into_error)?;
    let now = head(shared, link, shard, None).await?;
    if now.seq.0.checked_sub(from.seq.0).is_none_or(|behind| behind > most.batches) {
        return Ok(None);
    }
    let (mut batches, mut bytes) = (Vec::new(), 0);
    let mut take = |recorded: &RecordedBatch| {
        bytes += recorded.bytes.len();
        if bytes > most.bytes {
            return Ok(false);
        }
        batches.push(recorded.decode()?);
        Ok(true)
    };
    let whole = between(shared, link, shard, (from, &now), &mut take).await?;
    Ok(whole.then_some((batches, now)))
}

pub(super) fn list(shared: &RedisShared, value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(values) | Value::Set(values) => Ok(values),
        _ => Err(failed::strange(&shared.place, "an answer is not a list")),
    }
}

pub(super) fn bytes(shared: &RedisShared, value: Value) -> Result<Vec<u8>, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(failed::strange(&shared.place, "an answer is not text")),
    }
}

pub(super) fn damaged(shared: &RedisShared, key: &str, problem: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged(format!("Redis at {}: `{key}` {problem}", shared.place).into())
}

#[cfg(test)]
mod tests;
