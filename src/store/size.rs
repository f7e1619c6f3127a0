//! How long an act may become when it is written: an upper bound, found without writing it.
//!
//! The committer closes its groups by it, so that what is legal one by one never adds up to more than a store can write at
//! once. It counts the texts and takes everything else at its longest; `codec` is what it must not fall short of.
//!
//! Review notes: does a new text of a record count here? (The tests of the codec compare the two on every record.)

use super::Act;
use crate::core::state::{
    Entry, Event, NetworkConfig, PastPool, PoolConfig, Reservation, ReservedRange, State, Step, SubnetConfig,
};
use crate::core::types::{Labels, SlotKey};
use crate::limits;

/// A number, or the length in front of a text.
const NUMBER: usize = 10;
/// Everything of an act but its texts and steps.
const ACT: usize = 96;
/// Key, mark, kind of event, and the lengths of two records.
const STEP: usize = 17 + NUMBER + 1 + 2 * NUMBER;
/// Everything of an entry but its texts.
const ENTRY: usize = 192;
/// Everything of a configuration but its texts and lists.
const CONFIG: usize = 256;
/// Two addresses, two generations, flags.
const RANGE: usize = 2 * 17 + 2 * NUMBER + 8;

impl Act {
    /// Bytes that it takes in a batch, at most. Cost: one look at each text.
    pub fn bytes_max(&self) -> usize {
        let reason = self.reason.as_ref().map_or(0, |reason| text(reason));
        ACT + text(&self.by) + reason + self.steps.iter().map(step).sum::<usize>()
    }
}

fn text(text: &str) -> usize {
    NUMBER + text.len()
}

fn optional<T>(value: Option<&T>, as_str: impl Fn(&T) -> &str) -> usize {
    value.map_or(1, |value| 1 + text(as_str(value)))
}

fn step(step: &Step) -> usize {
    let before = match &step.event {
        Some(Event { before: Some(before), .. }) => reservation(before),
        Some(Event { before: None, .. }) | None => 0,
    };
    STEP + before + step.state.as_ref().map_or(0, state)
}

fn state(state: &State) -> usize {
    match state {
        State::Config(config) => network(config),
        State::Subnet(config) => subnet(config),
        State::Entry(Entry::Held(held)) => reservation(held),
        State::Entry(Entry::Released(released)) => ENTRY + slot(&released.last),
        State::Entry(Entry::Declined(declined)) => ENTRY + slot(&declined.by) + text(&declined.seen),
    }
}

fn slot(holder: &SlotKey) -> usize {
    text(holder.scope.as_str()) + text(holder.owner.as_str()) + text(holder.slot.as_str())
}

fn labels(labels: &Labels) -> usize {
    NUMBER + labels.iter().map(|(key, value)| text(key) + text(value)).sum::<usize>()
}

/// Bytes of a reservation, at most.
fn reservation(held: &Reservation) -> usize {
    let details = held.details.as_ref().map_or(0, |details| {
        labels(&details.labels)
            + text(&details.note)
            + text(&details.hostname)
            + details.owner_uid.as_ref().map_or(0, |uid| text(uid.as_str()))
    });
    ENTRY + slot(&held.holder) + held.claimant.as_ref().map_or(0, |claimant| text(claimant.as_str())) + details
}

fn network(config: &NetworkConfig) -> usize {
    let l2 = [&config.l2.mode, &config.l2.link, &config.l2.mac_prefix];
    CONFIG
        + text(config.name.as_str())
        + text(config.realm.as_str())
        + l2.into_iter().map(|member| optional(member.as_ref(), |member| member)).sum::<usize>()
        + labels(&config.tags)
        + text(&config.description)
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

/// Bytes of the longest reservation that the limits allow: labels, note, host name; scope, owner, slot, claimant and
/// owner_uid.
pub const RESERVATION_BYTES_MAX: usize = ENTRY
    + LABELS_MAX
    + (NUMBER + limits::NOTE_BYTES_MAX)
    + (NUMBER + limits::HOSTNAME_BYTES_MAX)
    + 5 * (NUMBER + limits::IDENTITY_BYTES_MAX);

/// Bytes of the longest subnet: all ranges that its network may have are its own, with all that can be said of them.
const SUBNET_BYTES_MAX: usize = CONFIG
    + LABELS_MAX
    + (NUMBER + limits::NAME_CHARACTERS_MAX)
    + limits::DNS_ENTRIES_MAX * (17 + NUMBER + limits::HOSTNAME_BYTES_MAX)
    + limits::ZONES_MAX * (NUMBER + limits::ZONE_BYTES_MAX)
    + (limits::POOLS_MAX + limits::PAST_POOLS_MAX) * (RANGE + 1 + NUMBER + limits::NAME_CHARACTERS_MAX)
    + limits::RESERVED_RANGES_MAX
        * (RANGE + NUMBER + limits::NOTE_BYTES_MAX + 1 + 3 * (NUMBER + limits::IDENTITY_BYTES_MAX));

// A thousand updates of the longest reservations come to some 31 MB, thirty times what a batch shall have: groups are
// closed by bytes too. What one act may have, without being a move of a subnet, fits into the bound of one act.
const _: () = assert!(
    ACT + 2 * (NUMBER + limits::REASON_BYTES_MAX) + limits::BATCH_CHANGES_MAX * (STEP + 2 * RESERVATION_BYTES_MAX)
        <= limits::ACT_BYTES_MAX
);
const _: () = assert!(2 * CONFIG + 2 * LABELS_MAX + SUBNET_BYTES_MAX <= limits::ACT_BYTES_MAX);
