//! How long an act may become when it is written: an upper bound, found without writing it.
//!
//! The committer closes its groups by this bound, so that acts that are legal one by one never add up to more than a store
//! can write at once. A subnet whose move no store could write is refused by it. For this reason the records at addresses
//! are counted exactly as `codec` writes them, byte for byte. Of configuration there is little, so everything but its texts
//! counts at its longest.
//!
//! Review notes: does a new member of a record count here? (The tests of the codec compare the two on every record.)

use super::Act;
use crate::core::address::Address;
use crate::core::state::{
    Conflict, Entry, Event, Key, NetworkConfig, PastPool, PoolConfig, Promise, Reservation, ReservedRange, State, Step,
    SubnetConfig,
};
use crate::core::types::{Labels, SlotKey};
use crate::limits;

/// A number, or the length before a text, at its longest.
const NUMBER: usize = 10;
/// Everything in an act but its texts and steps.
const ACT: usize = 96;
/// The most that a batch and the frame it is written in take in addition to its acts.
pub const BESIDE_ACTS: u64 = 256;
/// Everything in an act but its steps, at its longest.
const ACT_ALONE: usize = ACT + 2 * (NUMBER + limits::REASON_BYTES_MAX);
/// Everything in a step but its two records, at its longest: key, mark, event, and the lengths of the records.
const STEP: usize = 17 + NUMBER + 1 + 2 * NUMBER;
/// Everything in a reservation but its texts, at its longest.
const ENTRY: usize = 192;
/// Everything in a configuration but its texts and lists.
const CONFIG: usize = 256;
/// Everything in a conflict but its texts: address, prefix length, three numbers, MAC.
const CONFLICT: usize = 17 + 1 + 3 * NUMBER + 7;
/// Two addresses, two generations, flags.
const RANGE: usize = 2 * 17 + 2 * NUMBER + 8;

impl Act {
    /// The most bytes that it takes in a batch. Cost: one look at each text.
    pub fn bytes_max(&self) -> usize {
        let reason = self.reason.as_ref().map_or(0, |reason| text(reason));
        ACT + text(&self.by) + reason + self.steps.iter().map(step).sum::<usize>()
    }
}

/// The most bytes that the changes of one request take if they are alone in their batch.
pub(crate) fn alone(steps: &[Step]) -> u64 {
    BESIDE_ACTS + (ACT_ALONE + steps.iter().map(step).sum::<usize>()) as u64
}

/// The length of a number as it is written: seven bits in each byte.
fn number(value: u64) -> usize {
    if value < 0x80 {
        return 1;
    }
    (64 - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// The length of a piece of `length` bytes with its length before it.
fn sized(length: usize) -> usize {
    number(length as u64) + length
}

fn text(text: &str) -> usize {
    sized(text.len())
}

fn optional<T>(value: Option<&T>, as_str: impl Fn(&T) -> &str) -> usize {
    value.map_or(1, |value| 1 + text(as_str(value)))
}

/// The most bytes that a step takes in a batch. Cost: one look at each text.
pub(crate) fn step(step: &Step) -> usize {
    let key = match step.key {
        Key::Config | Key::Deployment => 1,
        Key::Address(Address::V4(_)) => 5,
        Key::Subnet(_) | Key::Address(Address::V6(_)) => 17,
    };
    let before = match &step.event {
        Some(Event { before: Some(before), .. }) => sized(reservation(before)),
        Some(Event { before: None, .. }) | None => 0,
    };
    let expect = step.expect.map_or(1, |mark| number(mark.saturating_add(1)));
    key + expect + sized(step.state.as_ref().map_or(0, state)) + 1 + before
}

fn state(state: &State) -> usize {
    match state {
        State::Config(config) => network(config),
        State::Subnet(config) => subnet(config),
        State::Deployment(deployment) => CONFIG + text(deployment.name.as_str()) + 11 * deployment.settled.len(),
        State::Entry(Entry::Held(held)) => reservation(held),
        State::Entry(Entry::Released(released)) => {
            let uid = released.owner_uid.as_ref().map_or(0, |uid| text(uid.as_str()));
            head(released.generation.0) + slot(&released.last) + number(released.released_at.0) + uid
        }
        State::Entry(Entry::Declined(declined)) => {
            let promised = declined.promise.as_deref().map_or(0, promise);
            head(declined.generation.0)
                + slot(&declined.by)
                + number(declined.until.0)
                + text(&declined.seen)
                + promised
        }
    }
}

/// Version, kind and mark of the record of an entry, its prefix length and its flags.
fn head(mark: u64) -> usize {
    2 + number(mark) + 2
}

fn slot(holder: &SlotKey) -> usize {
    // The default slot is a flag.
    let slot = if holder.slot.is_default() { 0 } else { text(holder.slot.as_str()) };
    text(holder.scope.as_str()) + text(holder.owner.as_str()) + slot
}

fn labels(labels: &Labels) -> usize {
    number(labels.len() as u64) + labels.iter().map(|(key, value)| text(key) + text(value)).sum::<usize>()
}

/// A text that is left out if it is empty.
fn written(note: &str) -> usize {
    if note.is_empty() { 0 } else { text(note) }
}

fn promise(promise: &Promise) -> usize {
    number(promise.plan) + text(promise.owner.as_str()) + text(promise.slot.as_str())
}

fn reservation(held: &Reservation) -> usize {
    let details = held.details.as_ref().map_or(0, |details| {
        let uid = details.owner_uid.as_ref().map_or(0, |uid| text(uid.as_str()));
        let labels = if details.labels.is_empty() { 0 } else { labels(&details.labels) };
        let mac = if details.mac.is_some() { 6 } else { 0 };
        uid + labels + written(&details.note) + written(&details.hostname) + mac
    });
    let planned = held.planned.as_ref().map_or(0, |planned| {
        1 + planned.leaving.map_or(0, number)
            + planned.promise.as_ref().map_or(0, promise)
            + planned.back.as_ref().map_or(0, promise)
            + planned.unlisted.map_or(0, number)
            + planned.settled.map_or(0, number)
            + planned.revived.map_or(0, |(plan, was)| number(plan) + number(was.since.0) + number(was.plan))
            + planned.kept.map_or(0, number)
            + planned.was_chosen.map_or(0, number)
    });
    let noted = usize::from(held.details.is_some() || held.granted_by.is_some() || held.planned.is_some());
    head(held.generation.0)
        + slot(&held.holder)
        + number(held.created_at.0)
        + held.lease.map_or(0, |lease| number(lease.ends.0) + number(lease.ttl_seconds.get()))
        + held.claimant.as_ref().map_or(0, |claimant| text(claimant.as_str()))
        + held.obsolete.as_ref().map_or(0, |obsolete| number(obsolete.since.0) + number(obsolete.plan))
        + noted
        + details
        + held.granted_by.map_or(0, |plan| number(plan.get()))
        + planned
}

fn network(config: &NetworkConfig) -> usize {
    let conflict = |conflict: &Conflict| {
        let SlotKey { scope, owner, slot } = &conflict.holder;
        CONFLICT + text(scope.as_str()) + text(owner.as_str()) + text(slot.as_str())
    };
    let l2 = [&config.l2.mode, &config.l2.link, &config.l2.mac_prefix];
    CONFIG
        + text(config.name.as_str())
        + text(config.realm.as_str())
        + l2.into_iter().map(|member| optional(member.as_ref(), |member| member)).sum::<usize>()
        + labels(&config.tags)
        + text(&config.description)
        + config.conflicts.iter().map(conflict).sum::<usize>()
}

fn subnet(config: &SubnetConfig) -> usize {
    let pool = |pool: &PoolConfig| RANGE + optional(pool.name.as_ref(), |name| name.as_str());
    let past = |past: &PastPool| RANGE + optional(past.name.as_ref(), |name| name.as_str());
    let kept = |kept: &ReservedRange| {
        let whom = kept.reserved_for.as_ref().map_or(0, |whom| {
            let slot = optional(whom.slot.as_ref(), |slot| slot.as_str());
            text(whom.scope.as_str()) + text(whom.owner.as_str()) + slot
        });
        RANGE + text(&kept.note) + whom
    };
    CONFIG
        + optional(config.name.as_ref(), |name| name.as_str())
        + config.dns.servers.len() * 17
        + config.dns.search.iter().map(|domain| text(domain)).sum::<usize>()
        + config.zones.iter().map(|zone| text(zone)).sum::<usize>()
        + labels(&config.tags)
        + config.pools.iter().map(pool).sum::<usize>()
        + config.reserved.iter().map(kept).sum::<usize>()
        + config.past_pools.iter().map(past).sum::<usize>()
}

const LABELS_MAX: usize =
    NUMBER + limits::LABEL_ENTRIES_MAX * (2 * NUMBER + limits::LABEL_KEY_BYTES_MAX + limits::LABEL_VALUE_BYTES_MAX);

/// Bytes of the longest reservation that the limits allow: labels, note, host name; scope, owner, slot, claimant, owner_uid,
/// and owner and slot of the two promises in its plan.
pub const RESERVATION_BYTES_MAX: usize = ENTRY
    + LABELS_MAX
    + (NUMBER + limits::NOTE_BYTES_MAX)
    + (NUMBER + limits::HOSTNAME_BYTES_MAX)
    + 9 * (NUMBER + limits::IDENTITY_BYTES_MAX);

/// Bytes of the longest release of one address, as [`alone`] counts them: the reservation as it was, and what remains of it
/// while the address cools.
pub(crate) const RELEASE_BYTES_MAX: u64 = BESIDE_ACTS + (ACT_ALONE + STEP + 2 * RESERVATION_BYTES_MAX) as u64;

/// Bytes of the longest subnet: it has all the ranges that its network may have, with everything that can be said of each.
const SUBNET_BYTES_MAX: usize = CONFIG
    + LABELS_MAX
    + (NUMBER + limits::NAME_CHARACTERS_MAX)
    + limits::DNS_ENTRIES_MAX * (17 + NUMBER + limits::HOSTNAME_BYTES_MAX)
    + limits::ZONES_MAX * (NUMBER + limits::ZONE_BYTES_MAX)
    + (limits::POOLS_MAX + limits::PAST_POOLS_MAX) * (RANGE + 1 + NUMBER + limits::NAME_CHARACTERS_MAX)
    + limits::RESERVED_RANGES_MAX
        * (RANGE + NUMBER + limits::NOTE_BYTES_MAX + 1 + 3 * (NUMBER + limits::IDENTITY_BYTES_MAX));

// A thousand updates of the longest reservations come to some 31 MB, thirty times the size that a batch should have: this is
// why groups are closed by bytes, too. One act with as many changes as a batch may have, other than the move of a subnet and
// a list of subnets, fits into the bound of one act.
const _: () =
    assert!(ACT_ALONE + limits::BATCH_CHANGES_MAX * (STEP + 2 * RESERVATION_BYTES_MAX) <= limits::ACT_BYTES_MAX);
const _: () = assert!(2 * CONFIG + 2 * LABELS_MAX + SUBNET_BYTES_MAX <= limits::ACT_BYTES_MAX);
