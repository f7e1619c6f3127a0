//! What is stored for an address, as bytes: reservation, released, declined.
//!
//! ```text
//! record   = version (1)  kind  mark  body          mark: generation, so that a merge compares without decoding
//! held     = prefix  flags  scope owner [slot]  created_at  [lease: ends ttl]  [claimant]  [obsolete: since plan]  [details]
//! details  = flags  [owner_uid]  [labels]  [note]  [hostname]  [mac]  [granted_by]  [planned]
//! released = prefix  flags  scope owner [slot]  released_at  [owner_uid]
//! declined = prefix  flags  scope owner [slot]  until  seen  [promise]
//! ```
//!
//! A reservation with an owner of 24 bytes and a scope of 12 takes 56 bytes. Owner and scope stay readable text.

use std::num::NonZeroU64;
use std::sync::Arc;

use compact_str::CompactString;

use super::bytes::{CodecError, MARK_MAX, Reader, Result, Write, capacity};
use super::format::{Format, RecordHeader};
use crate::core::state::{
    Declined, Details, Entry, Lease, Obsolete, Planned, Promise, Released, Reservation, ReservationKind,
};
use crate::core::types::{
    Claimant, Generation, Labels, Mac, Owner, OwnerUid, Scope, ShardTime, Slot, SlotKey, WallTime,
};
use crate::limits;

pub(super) const HELD: u8 = 1;
pub(super) const RELEASED: u8 = 2;
pub(super) const DECLINED: u8 = 3;

const STATIC: u8 = 1;
const LEASE: u8 = 2;
const TRANSIENT: u8 = 4;
const WITH_CLAIMANT: u8 = 8;
const CLAIMANT: u8 = 16;
const OBSOLETE: u8 = 32;
const DETAILS: u8 = 64;
/// The slot is `0`, and is not written.
const SLOT_DEFAULT: u8 = 128;

/// In a released entry: an owner_uid follows. Records from before this flag have none.
const RELEASED_OWNER_UID: u8 = 1;

/// In a declined entry: the promise of the address follows. Records from before this flag have none.
const DECLINED_PROMISE: u8 = 1;

const OWNER_UID: u8 = 1;
const LABELS: u8 = 2;
const NOTE: u8 = 4;
const HOSTNAME: u8 = 8;
const MAC: u8 = 16;
const GRANTED_BY: u8 = 32;
const PLANNED: u8 = 64;
/// The flags that mean that there are details in memory, too.
const OWN_DETAILS: u8 = OWNER_UID | LABELS | NOTE | HOSTNAME | MAC;

const LEAVING: u8 = 1;
const PROMISE: u8 = 2;
const UNLISTED: u8 = 4;
const SETTLED: u8 = 8;
const REVIVED: u8 = 16;
const BACK: u8 = 32;
const KEPT: u8 = 64;
const WAS_CHOSEN: u8 = 128;

fn flag(condition: bool, bit: u8) -> u8 {
    if condition { bit } else { 0 }
}

fn slot_flag(holder: &SlotKey) -> u8 {
    flag(holder.slot.is_default(), SLOT_DEFAULT)
}

fn put_holder(out: &mut Vec<u8>, format: Format, holder: &SlotKey) {
    let (scope, owner) = (holder.scope.as_str(), holder.owner.as_str());
    let (first, second) = if format.has_owner_first() { (owner, scope) } else { (scope, owner) };
    out.put_text(first);
    out.put_text(second);
    if slot_flag(holder) == 0 {
        out.put_text(holder.slot.as_str());
    }
}

fn holder(reader: &mut Reader<'_>, format: Format, flags: u8) -> Result<SlotKey> {
    let (scope, owner) = if format.has_owner_first() {
        let owner = reader.checked("owner", Owner::new)?;
        (reader.checked("scope", Scope::new)?, owner)
    } else {
        (reader.checked("scope", Scope::new)?, reader.checked("owner", Owner::new)?)
    };
    let slot = if flags & SLOT_DEFAULT != 0 {
        Slot::default()
    } else {
        let slot = reader.checked("slot", Slot::new)?;
        if slot.is_default() {
            return Err(CodecError::Range("slot"));
        }
        slot
    };
    Ok(SlotKey { scope, owner, slot })
}

pub(super) fn put_labels(out: &mut Vec<u8>, labels: &Labels) -> Result<()> {
    if labels.len() > limits::LABEL_ENTRIES_MAX {
        return Err(CodecError::Range("labels"));
    }
    out.put_varint(labels.len() as u64);
    for (key, value) in labels {
        out.put_text(key);
        out.put_text(value);
    }
    Ok(())
}

pub(super) fn labels(reader: &mut Reader<'_>) -> Result<Labels> {
    let count = reader.count("labels")?;
    if count > limits::LABEL_ENTRIES_MAX {
        return Err(CodecError::Range("labels"));
    }
    let mut pairs = Vec::with_capacity(capacity(count));
    for _ in 0..count {
        let pair = (reader.text("label")?, reader.text("label")?);
        if pairs.last().is_some_and(|(last, _)| *last >= pair.0) {
            return Err(CodecError::Range("order of labels"));
        }
        pairs.push(pair);
    }
    Ok(pairs.into_iter().collect())
}

fn put_prefix(out: &mut Vec<u8>, prefix_length: u8) -> Result<()> {
    if prefix_length > 128 {
        return Err(CodecError::Range("prefix length"));
    }
    out.put_u8(prefix_length);
    Ok(())
}

fn prefix(reader: &mut Reader<'_>) -> Result<u8> {
    let length = reader.u8("prefix length")?;
    if length > 128 { Err(CodecError::Range("prefix length")) } else { Ok(length) }
}

pub(super) fn kind_of(entry: &Entry) -> u8 {
    match entry {
        Entry::Held(_) => HELD,
        Entry::Released(_) => RELEASED,
        Entry::Declined(_) => DECLINED,
    }
}

pub(super) fn put_entry(out: &mut Vec<u8>, format: Format, entry: &Entry) -> Result<()> {
    match entry {
        Entry::Held(reservation) => put_reservation(out, format, reservation),
        Entry::Released(released) => {
            put_prefix(out, released.prefix_length)?;
            out.put_u8(slot_flag(&released.last) | flag(released.owner_uid.is_some(), RELEASED_OWNER_UID));
            put_holder(out, format, &released.last);
            out.put_varint(released.released_at.0);
            if let Some(uid) = &released.owner_uid {
                out.put_text(uid.as_str());
            }
            Ok(())
        }
        Entry::Declined(declined) => {
            put_prefix(out, declined.prefix_length)?;
            out.put_u8(slot_flag(&declined.by) | flag(declined.promise.is_some(), DECLINED_PROMISE));
            put_holder(out, format, &declined.by);
            out.put_varint(declined.until.0);
            out.put_text(&declined.seen);
            if let Some(promise) = &declined.promise {
                put_promise(out, promise);
            }
            Ok(())
        }
    }
}

pub(super) fn put_reservation(out: &mut Vec<u8>, format: Format, reservation: &Reservation) -> Result<()> {
    let Reservation {
        prefix_length,
        holder,
        generation: _,
        kind,
        created_at,
        lease,
        transient,
        release_with_claimant,
        claimant,
        obsolete,
        granted_by,
        planned,
        details,
    } = reservation;
    let has_details = details.is_some() || granted_by.is_some() || planned.is_some();
    put_prefix(out, *prefix_length)?;
    out.put_u8(
        flag(*kind == ReservationKind::Static, STATIC)
            | flag(lease.is_some(), LEASE)
            | flag(*transient, TRANSIENT)
            | flag(*release_with_claimant, WITH_CLAIMANT)
            | flag(claimant.is_some(), CLAIMANT)
            | flag(obsolete.is_some(), OBSOLETE)
            | flag(has_details, DETAILS)
            | slot_flag(holder),
    );
    put_holder(out, format, holder);
    out.put_varint(created_at.0);
    if let Some(lease) = lease {
        out.put_varint(lease.ends.0);
        out.put_varint(lease.ttl_seconds.get());
    }
    if let Some(claimant) = claimant {
        out.put_text(claimant.as_str());
    }
    if let Some(obsolete) = obsolete {
        out.put_varint(obsolete.since.0);
        out.put_varint(obsolete.plan);
    }
    if has_details {
        put_details(out, reservation)?;
    }
    Ok(())
}

/// Writes the six bytes of a MAC.
pub(super) fn put_mac(out: &mut Vec<u8>, mac: Mac) -> Result<()> {
    if mac.0 >> 48 != 0 {
        return Err(CodecError::Range("mac"));
    }
    out.put_bytes(&mac.0.to_be_bytes()[2..]);
    Ok(())
}

pub(super) fn mac(reader: &mut Reader<'_>) -> Result<Mac> {
    let bytes = reader.bytes(6, "mac")?;
    Ok(Mac(bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))))
}

fn put_details(out: &mut Vec<u8>, reservation: &Reservation) -> Result<()> {
    let none = Details::default();
    let Details { owner_uid, labels, note, hostname, mac } = reservation.details.as_deref().unwrap_or(&none);
    out.put_u8(
        flag(owner_uid.is_some(), OWNER_UID)
            | flag(!labels.is_empty(), LABELS)
            | flag(!note.is_empty(), NOTE)
            | flag(!hostname.is_empty(), HOSTNAME)
            | flag(mac.is_some(), MAC)
            | flag(reservation.granted_by.is_some(), GRANTED_BY)
            | flag(reservation.planned.is_some(), PLANNED),
    );
    if let Some(uid) = owner_uid {
        out.put_text(uid.as_str());
    }
    if !labels.is_empty() {
        put_labels(out, labels)?;
    }
    if !note.is_empty() {
        out.put_text(note);
    }
    if !hostname.is_empty() {
        out.put_text(hostname);
    }
    if let Some(mac) = mac {
        put_mac(out, *mac)?;
    }
    if let Some(plan) = reservation.granted_by {
        out.put_varint(plan.get());
    }
    if let Some(planned) = &reservation.planned {
        put_planned(out, planned);
    }
    Ok(())
}

fn put_planned(out: &mut Vec<u8>, planned: &Planned) {
    let Planned { leaving, promise, back, unlisted, settled, revived, kept, was_chosen } = planned;
    out.put_u8(
        flag(leaving.is_some(), LEAVING)
            | flag(promise.is_some(), PROMISE)
            | flag(unlisted.is_some(), UNLISTED)
            | flag(settled.is_some(), SETTLED)
            | flag(revived.is_some(), REVIVED)
            | flag(back.is_some(), BACK)
            | flag(kept.is_some(), KEPT)
            | flag(was_chosen.is_some(), WAS_CHOSEN),
    );
    if let Some(plan) = leaving {
        out.put_varint(*plan);
    }
    if let Some(promise) = promise {
        put_promise(out, promise);
    }
    for plan in [unlisted, settled].into_iter().flatten() {
        out.put_varint(*plan);
    }
    if let Some((plan, was)) = revived {
        out.put_varint(*plan);
        out.put_varint(was.since.0);
        out.put_varint(was.plan);
    }
    if let Some(back) = back {
        put_promise(out, back);
    }
    for plan in [kept, was_chosen].into_iter().flatten() {
        out.put_varint(*plan);
    }
}

fn put_promise(out: &mut Vec<u8>, Promise { plan, owner, slot }: &Promise) {
    out.put_varint(*plan);
    out.put_text(owner.as_str());
    out.put_text(slot.as_str());
}

fn promise(reader: &mut Reader<'_>) -> Result<Promise> {
    let plan = reader.varint("plan")?;
    let owner = reader.checked("owner", Owner::new)?;
    Ok(Promise { plan, owner, slot: reader.checked("slot", Slot::new)? })
}

fn planned(reader: &mut Reader<'_>) -> Result<Planned> {
    let flags = reader.u8("planned")?;
    let mut planned = Planned::default();
    if flags & LEAVING != 0 {
        planned.leaving = Some(reader.varint("plan")?);
    }
    if flags & PROMISE != 0 {
        planned.promise = Some(promise(reader)?);
    }
    if flags & UNLISTED != 0 {
        planned.unlisted = Some(reader.varint("plan")?);
    }
    if flags & SETTLED != 0 {
        planned.settled = Some(reader.varint("plan")?);
    }
    if flags & REVIVED != 0 {
        let plan = reader.varint("plan")?;
        let since = WallTime(reader.varint("since")?);
        planned.revived = Some((plan, Obsolete { since, plan: reader.varint("plan")? }));
    }
    if flags & BACK != 0 {
        planned.back = Some(promise(reader)?);
    }
    if flags & KEPT != 0 {
        planned.kept = Some(reader.varint("plan")?);
    }
    if flags & WAS_CHOSEN != 0 {
        planned.was_chosen = Some(reader.varint("plan")?);
    }
    Ok(planned)
}

/// A text that is only written if it is not empty.
fn written(reader: &mut Reader<'_>, what: &'static str) -> Result<CompactString> {
    Some(reader.text(what)?).filter(|text| !text.is_empty()).ok_or(CodecError::Range(what))
}

type Noted = (Option<Box<Details>>, Option<NonZeroU64>, Option<Box<Planned>>);

fn details(reader: &mut Reader<'_>) -> Result<Noted> {
    let flags = reader.flags(OWN_DETAILS | GRANTED_BY | PLANNED, "details")?;
    let mut details = Details::default();
    if flags & OWNER_UID != 0 {
        details.owner_uid = Some(reader.checked("owner_uid", OwnerUid::new)?);
    }
    if flags & LABELS != 0 {
        details.labels =
            Some(labels(reader)?).filter(|labels| !labels.is_empty()).ok_or(CodecError::Range("labels"))?;
    }
    if flags & NOTE != 0 {
        details.note = written(reader, "note")?;
    }
    if flags & HOSTNAME != 0 {
        details.hostname = written(reader, "hostname")?;
    }
    if flags & MAC != 0 {
        details.mac = Some(mac(reader)?);
    }
    let granted_by = if flags & GRANTED_BY != 0 {
        Some(NonZeroU64::new(reader.varint("granted_by")?).ok_or(CodecError::Range("granted_by"))?)
    } else {
        None
    };
    let planned = if flags & PLANNED != 0 { Some(Box::new(planned(reader)?)) } else { None };
    let own = flags & OWN_DETAILS != 0 || flags == 0;
    Ok((own.then(|| Box::new(details)), granted_by, planned))
}

pub(super) fn entry(header: &RecordHeader, reader: &mut Reader<'_>) -> Result<Entry> {
    let &RecordHeader { format, kind, mark } = header;
    if mark > MARK_MAX {
        return Err(CodecError::Range("generation"));
    }
    let generation = Generation(mark);
    match kind {
        HELD => Ok(Entry::Held(Arc::new(reservation(format, generation, reader)?))),
        RELEASED => {
            let prefix_length = prefix(reader)?;
            let flags = reader.flags(SLOT_DEFAULT | RELEASED_OWNER_UID, "released")?;
            let last = holder(reader, format, flags)?;
            let released_at = ShardTime(reader.varint("released_at")?);
            let known = flags & RELEASED_OWNER_UID != 0;
            let owner_uid = known.then(|| reader.checked("owner_uid", OwnerUid::new)).transpose()?;
            Ok(Entry::Released(Arc::new(Released { prefix_length, last, owner_uid, generation, released_at })))
        }
        DECLINED => {
            let prefix_length = prefix(reader)?;
            let flags = reader.flags(SLOT_DEFAULT | DECLINED_PROMISE, "declined")?;
            let by = holder(reader, format, flags)?;
            let until = ShardTime(reader.varint("until")?);
            let seen = reader.text("seen")?;
            let promised = flags & DECLINED_PROMISE != 0;
            let promise = promised.then(|| promise(reader).map(Box::new)).transpose()?;
            Ok(Entry::Declined(Arc::new(Declined { prefix_length, by, generation, until, seen, promise })))
        }
        tag => Err(CodecError::Tag { what: "kind of record", tag }),
    }
}

pub(super) fn reservation(format: Format, generation: Generation, reader: &mut Reader<'_>) -> Result<Reservation> {
    let prefix_length = prefix(reader)?;
    let flags = reader.u8("flags")?;
    let holder = holder(reader, format, flags)?;
    let created_at = WallTime(reader.varint("created_at")?);
    let lease = if flags & LEASE != 0 {
        let ends = ShardTime(reader.varint("lease")?);
        let ttl_seconds = NonZeroU64::new(reader.varint("ttl")?).ok_or(CodecError::Range("ttl"))?;
        Some(Lease { ends, ttl_seconds })
    } else {
        None
    };
    let claimant = if flags & CLAIMANT != 0 { Some(reader.checked("claimant", Claimant::new)?) } else { None };
    let obsolete = if flags & OBSOLETE != 0 {
        let since = WallTime(reader.varint("obsolete")?);
        Some(Box::new(Obsolete { since, plan: reader.varint("plan")? }))
    } else {
        None
    };
    let (details, granted_by, planned) = if flags & DETAILS != 0 { details(reader)? } else { (None, None, None) };
    Ok(Reservation {
        prefix_length,
        holder,
        generation,
        kind: if flags & STATIC != 0 { ReservationKind::Static } else { ReservationKind::Dynamic },
        created_at,
        lease,
        transient: flags & TRANSIENT != 0,
        release_with_claimant: flags & WITH_CLAIMANT != 0,
        claimant,
        obsolete,
        granted_by,
        planned,
        details,
    })
}
