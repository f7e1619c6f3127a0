//! Batches and heads, as bytes.
//!
//! ```text
//! batch = version (1)  shard epoch token seq time generation  count  act…
//! act   = flags  [network]  wall (difference to the act before, zigzag)  [by]  [reason]  [transaction]  count  step…
//! step  = key  expect (0: nothing, else mark + 1)  state (sized; empty: nothing)  event (0: none)  [before (sized)]
//! key   = 0  |  1 subnet id  |  4 bits  |  6 bits
//! ```
//!
//! `network` and `by` are left out if they are the same as in the act before. Each state is a record with its length before
//! it, so that a merge can pass it on without decoding it.

use compact_str::CompactString;
use std::sync::Arc;

use super::bytes::{CodecError, MARK_MAX, Reader, Result, Write, capacity, put_nested};
use super::format::{Format, RecordHeader, header, put_header};
use super::{config, decode_state, encode_state, entry};
use crate::core::address::{Address, Cidr};
use crate::core::state::{Event, EventKind, Key, Reservation, State, Step};
use crate::core::types::{Generation, NetworkId, ShardTime, SubnetId, WallTime};
use crate::store::{Act, Batch, Digest, Epoch, Head, Seq, ShardId, Token, TransactionId};

const SAME_NETWORK: u8 = 1;
const SAME_BY: u8 = 2;
const REASON: u8 = 4;
const TRANSACTION: u8 = 8;

/// Set in the byte of an event whose record also has the holding as it was before.
const BEFORE: u8 = 0x80;

const KEY_CONFIG: u8 = 0;
const KEY_SUBNET: u8 = 1;
const KEY_DEPLOYMENT: u8 = 2;
const KEY_V4: u8 = 4;
const KEY_V6: u8 = 6;

/// Writes a key: 1, 17, 5 or 17 bytes.
pub(crate) fn put_key(out: &mut Vec<u8>, key: Key) {
    match key {
        Key::Config => out.put_u8(KEY_CONFIG),
        Key::Subnet(id) => {
            out.put_u8(KEY_SUBNET);
            out.put_u128(id.0);
        }
        Key::Deployment => out.put_u8(KEY_DEPLOYMENT),
        Key::Address(address) => config::put_address(out, address),
    }
}

pub(crate) fn key(reader: &mut Reader<'_>) -> Result<Key> {
    match reader.u8("key")? {
        KEY_CONFIG => Ok(Key::Config),
        KEY_SUBNET => Ok(Key::Subnet(SubnetId(reader.u128("key")?))),
        KEY_DEPLOYMENT => Ok(Key::Deployment),
        KEY_V4 => Ok(Key::Address(Address::V4(reader.u32("key")?))),
        KEY_V6 => Ok(Key::Address(Address::V6(reader.u128("key")?))),
        tag => Err(CodecError::Tag { what: "key", tag }),
    }
}

/// Checks that a key can have this state: it must be of the right kind, have the id of the key, and be a block only where a
/// block can begin.
pub(crate) fn check_pair(network: NetworkId, key: Key, state: &State) -> Result<()> {
    let fits = match (key, state) {
        (Key::Config, State::Config(config)) => config.id == network,
        (Key::Subnet(id), State::Subnet(subnet)) => subnet.id == id,
        (Key::Address(address), State::Entry(entry)) => Cidr::new(address, entry.prefix_length()).is_some(),
        // Its id is derived from its name; the store does not know how.
        (Key::Deployment, State::Deployment(_)) => true,
        (Key::Config | Key::Subnet(_) | Key::Deployment | Key::Address(_), _) => false,
    };
    if fits { Ok(()) } else { Err(CodecError::Range("state of a key")) }
}

macro_rules! event_tags {
    ($($kind:ident = $tag:literal),* $(,)?) => {
        fn event_tag(kind: EventKind) -> u8 {
            match kind { $(EventKind::$kind => $tag),* }
        }
        fn event_kind(tag: u8) -> Result<EventKind> {
            match tag {
                $($tag => Ok(EventKind::$kind),)*
                tag => Err(CodecError::Tag { what: "event", tag }),
            }
        }
    };
}
event_tags! {
    Granted = 1, Renewed = 2, Bound = 3, Unbound = 4, Updated = 5, Transferred = 6, Obsolete = 7, Released = 8,
    Expired = 9, Swept = 10, Reverted = 11, Declined = 12, Healed = 13, Conflict = 14, NetworkCreated = 15,
    NetworkChanged = 16, NetworkDeleted = 17, NetworkRestored = 18,
}

fn put_step(out: &mut Vec<u8>, format: Format, network: NetworkId, step: &Step) -> Result<()> {
    put_key(out, step.key);
    match step.expect {
        None => out.put_varint(0),
        Some(mark) if mark <= MARK_MAX => out.put_varint(mark + 1),
        Some(_) => return Err(CodecError::Range("expected mark")),
    }
    match &step.state {
        None => out.put_varint(0),
        Some(state) => {
            check_pair(network, step.key, state)?;
            put_nested(out, |out| encode_state(state, format, out))?;
        }
    }
    match &step.event {
        None => out.put_u8(0),
        Some(Event { kind, before: None }) => out.put_u8(event_tag(*kind)),
        Some(Event { kind, before: Some(before) }) => {
            out.put_u8(event_tag(*kind) | BEFORE);
            put_nested(out, |out| put_reservation(out, format, before))?;
        }
    }
    Ok(())
}

fn put_reservation(out: &mut Vec<u8>, format: Format, reservation: &Reservation) -> Result<()> {
    put_header(out, format, entry::HELD, reservation.generation.0)?;
    entry::put_reservation(out, format, reservation)
}

fn reservation(bytes: &[u8]) -> Result<Reservation> {
    let mut reader = Reader::new(bytes);
    let RecordHeader { format, kind, mark } = header(&mut reader)?;
    if kind != entry::HELD {
        return Err(CodecError::Tag { what: "kind of record", tag: kind });
    }
    let reservation = entry::reservation(format, Generation(mark), &mut reader)?;
    reader.finish()?;
    Ok(reservation)
}

/// A step whose state was not decoded.
#[derive(Debug, Clone)]
pub(crate) struct RawStep<'a> {
    /// What changes.
    pub key: Key,
    /// Mark that must be there before.
    pub expect: Option<u64>,
    /// Record that is there after.
    pub state: Option<&'a [u8]>,
    event: Option<(EventKind, Option<&'a [u8]>)>,
}

impl<'a> RawStep<'a> {
    /// The event for the history, and the record of the holding as it was before.
    pub(crate) fn event(&self) -> Option<(EventKind, Option<&'a [u8]>)> {
        self.event
    }
}

fn raw_step<'a>(reader: &mut Reader<'a>) -> Result<RawStep<'a>> {
    let key = key(reader)?;
    let expect = reader.varint_to(MARK_MAX + 1, "expected mark")?.checked_sub(1);
    let state = Some(reader.sized("state")?).filter(|bytes| !bytes.is_empty());
    let event = match reader.u8("event")? {
        0 => None,
        tag => {
            let kind = event_kind(tag & !BEFORE)?;
            let before = if tag & BEFORE != 0 { Some(reader.sized("before")?) } else { None };
            Some((kind, before))
        }
    };
    Ok(RawStep { key, expect, state, event })
}

fn step(format: u8, network: NetworkId, reader: &mut Reader<'_>) -> Result<Step> {
    let RawStep { key, expect, state, event } = raw_step(reader)?;
    let before = event.as_ref().and_then(|(_, before)| *before);
    if state.iter().chain(&before).any(|record| record.first() != Some(&format)) {
        // The same batch in one format would have other bytes.
        return Err(CodecError::Range("format of a record in a batch"));
    }
    let state = state.map(decode_state).transpose()?;
    if let Some(state) = &state {
        check_pair(network, key, state)?;
    }
    let event = match event {
        None => None,
        Some((kind, before)) => {
            let before = before.map(reservation).transpose()?.map(Arc::new);
            Some(Event { kind, before })
        }
    };
    Ok(Step { key, expect, state, event })
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Appends a batch, all in one format.
///
/// # Errors
/// [`CodecError::Range`] if it has a value that could not be read back. The appended bytes are then worthless.
pub fn encode_batch(batch: &Batch, format: Format, out: &mut Vec<u8>) -> Result<()> {
    let Batch { shard, epoch, token, seq, time, generation, acts } = batch;
    out.put_u8(format.number());
    out.put_varint(shard.0.into());
    out.put_varint(epoch.0);
    out.put_u128(token.0);
    out.put_varint(seq.0);
    out.put_varint(time.0);
    if generation.0 > MARK_MAX {
        return Err(CodecError::Range("generation"));
    }
    out.put_varint(generation.0);
    out.put_varint(acts.len() as u64);
    let mut before: Option<&Act> = None;
    for act in acts {
        put_act(out, format, before, act)?;
        before = Some(act);
    }
    Ok(())
}

fn put_act(out: &mut Vec<u8>, format: Format, before: Option<&Act>, act: &Act) -> Result<()> {
    let Act { network, wall, by, reason, transaction, steps } = act;
    let mut flags = 0;
    if before.is_some_and(|before| before.network == *network) {
        flags |= SAME_NETWORK;
    }
    if before.is_some_and(|before| before.by == *by) {
        flags |= SAME_BY;
    }
    if reason.is_some() {
        flags |= REASON;
    }
    if transaction.is_some() {
        flags |= TRANSACTION;
    }
    out.put_u8(flags);
    if flags & SAME_NETWORK == 0 {
        out.put_u128(network.0);
    }
    let wall_before = before.map_or(0, |before| before.wall.0);
    out.put_varint(zigzag(wall.0.wrapping_sub(wall_before) as i64));
    if flags & SAME_BY == 0 {
        out.put_text(by);
    }
    if let Some(reason) = reason {
        out.put_text(reason);
    }
    if let Some(transaction) = transaction {
        out.put_u128(transaction.0);
    }
    out.put_varint(steps.len() as u64);
    steps.iter().try_for_each(|step| put_step(out, format, *network, step))
}

/// A batch without its acts: the part that the fence compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub shard: ShardId,
    pub epoch: Epoch,
    pub token: Token,
    pub seq: Seq,
    pub time: ShardTime,
    pub generation: Generation,
}

/// Reads the header of a batch; the acts follow.
pub(crate) fn batch_header(reader: &mut Reader<'_>) -> Result<BatchHeader> {
    Format::read(reader, "batch")?;
    Ok(BatchHeader {
        shard: ShardId(reader.varint_to(u16::MAX.into(), "shard")? as u16),
        epoch: Epoch(reader.varint("epoch")?),
        token: Token(reader.u128("token")?),
        seq: Seq(reader.varint("seq")?),
        time: ShardTime(reader.varint("time")?),
        generation: Generation(reader.varint_to(MARK_MAX, "generation")?),
    })
}

/// An act without its steps.
pub(crate) struct ActHeader {
    pub(crate) network: NetworkId,
    pub(crate) wall: WallTime,
    /// None: the same as in the act before.
    by: Option<CompactString>,
    reason: Option<CompactString>,
    /// The transaction that it belongs to.
    pub(crate) transaction: Option<TransactionId>,
    steps: usize,
}

fn act_header(reader: &mut Reader<'_>, before: Option<(NetworkId, WallTime)>) -> Result<ActHeader> {
    let flags = reader.flags(SAME_NETWORK | SAME_BY | REASON | TRANSACTION, "act")?;
    if before.is_none() && flags & (SAME_NETWORK | SAME_BY) != 0 {
        return Err(CodecError::Tag { what: "act", tag: flags });
    }
    let network = match before {
        Some((network, _)) if flags & SAME_NETWORK != 0 => network,
        _ => {
            let network = NetworkId(reader.u128("network")?);
            if before.is_some_and(|(before, _)| before == network) {
                return Err(CodecError::Range("network"));
            }
            network
        }
    };
    let difference = unzigzag(reader.varint("wall")?);
    let wall = WallTime(before.map_or(0, |(_, wall)| wall.0).wrapping_add(difference as u64));
    let by = if flags & SAME_BY == 0 { Some(reader.text("by")?) } else { None };
    let reason = if flags & REASON != 0 { Some(reader.text("reason")?) } else { None };
    let transaction = if flags & TRANSACTION != 0 { Some(TransactionId(reader.u128("transaction")?)) } else { None };
    let steps = reader.count("steps")?;
    Ok(ActHeader { network, wall, by, reason, transaction, steps })
}

/// Reads a batch.
///
/// # Errors
/// [`CodecError`] for anything but the bytes that [`encode_batch`] writes.
pub fn decode_batch(bytes: &[u8]) -> Result<Batch> {
    let mut reader = Reader::new(bytes);
    let format = bytes.first().copied().unwrap_or_default();
    let BatchHeader { shard, epoch, token, seq, time, generation } = batch_header(&mut reader)?;
    let count = reader.count("acts")?;
    let mut acts: Vec<Act> = Vec::with_capacity(capacity(count));
    for _ in 0..count {
        let before = acts.last();
        let header = act_header(&mut reader, before.map(|act| (act.network, act.wall)))?;
        let by = match (header.by, before) {
            (Some(by), Some(before)) if by == before.by => return Err(CodecError::Range("by")),
            (Some(by), _) => by,
            (None, Some(before)) => before.by.clone(),
            (None, None) => return Err(CodecError::Range("by")),
        };
        let mut steps = Vec::with_capacity(capacity(header.steps));
        for _ in 0..header.steps {
            steps.push(step(format, header.network, &mut reader)?);
        }
        let ActHeader { network, wall, reason, transaction, .. } = header;
        acts.push(Act { network, wall, by, reason, transaction, steps });
    }
    reader.finish()?;
    Ok(Batch { shard, epoch, token, seq, time, generation, acts })
}

/// Passes every step of a batch to `each`, in order, without decoding the states.
pub(crate) fn walk_batch<'a, E: From<CodecError>>(
    bytes: &'a [u8],
    mut each: impl FnMut(NetworkId, RawStep<'a>) -> std::result::Result<(), E>,
) -> std::result::Result<BatchHeader, E> {
    walk_acts(bytes, |act, step| each(act.network, step))
}

/// Passes every step of a batch, with the header of its act, to `each`, in order, without decoding the states.
pub(crate) fn walk_acts<'a, E: From<CodecError>>(
    bytes: &'a [u8],
    mut each: impl FnMut(&ActHeader, RawStep<'a>) -> std::result::Result<(), E>,
) -> std::result::Result<BatchHeader, E> {
    let mut reader = Reader::new(bytes);
    let header = batch_header(&mut reader)?;
    let mut before = None;
    for _ in 0..reader.count("acts")? {
        let act = act_header(&mut reader, before)?;
        before = Some((act.network, act.wall));
        for _ in 0..act.steps {
            each(&act, raw_step(&mut reader)?)?;
        }
    }
    reader.finish()?;
    Ok(header)
}

/// Appends a head.
pub fn encode_head(head: &Head, out: &mut Vec<u8>) -> Result<()> {
    let Head { epoch, token, parent, seq, digest, time, generation, format } = head;
    if generation.0 > MARK_MAX {
        return Err(CodecError::Range("generation"));
    }
    out.put_u8(format.number());
    out.put_varint(epoch.0);
    out.put_u128(token.0);
    out.put_u128(parent.0);
    out.put_varint(seq.0);
    out.put_u128(digest.0);
    out.put_varint(time.0);
    out.put_varint(generation.0);
    Ok(())
}

/// Reads a head that other bytes may follow.
pub(crate) fn head(reader: &mut Reader<'_>) -> Result<Head> {
    let format = Format::read(reader, "head")?;
    Ok(Head {
        format,
        epoch: Epoch(reader.varint("epoch")?),
        token: Token(reader.u128("token")?),
        parent: Token(reader.u128("parent")?),
        seq: Seq(reader.varint("seq")?),
        digest: Digest(reader.u128("digest")?),
        time: ShardTime(reader.varint("time")?),
        generation: Generation(reader.varint_to(MARK_MAX, "generation")?),
    })
}

/// Reads a head.
///
/// # Errors
/// [`CodecError`] for anything but the bytes that [`encode_head`] writes.
pub fn decode_head(bytes: &[u8]) -> Result<Head> {
    let mut reader = Reader::new(bytes);
    let head = head(&mut reader)?;
    reader.finish()?;
    Ok(head)
}
