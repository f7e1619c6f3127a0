//! Turns events of the core into the protocol's noun.

use super::nouns::{l2, network_kind, policy, subnet, text_of};
use crate::actors::events::{Cursor, Happened, What};
use crate::core::state::{EventKind, NetworkConfig, Reservation, ReservationKind};
use crate::core::types::{Place, WallTime};
use crate::server::cursor;
use crate::wire::nouns::{self, EventState, EventType, HoldingState, NetworkState};
use crate::wire::params::query::ReservationKind as WireKind;
use crate::wire::values::{Cursor as CursorText, LabelMap, Number, PrefixLength};

/// A cursor as clients see it.
pub fn cursor_text(at: &Cursor) -> CursorText {
    cursor::write(at).parse().expect("a cursor is within its bound and not empty")
}

/// The cursor of one network at this place.
pub fn place_text(place: &Place) -> CursorText {
    cursor_text(&Cursor::new(false, [*place]))
}

/// An event; `at` is the place after it.
pub fn event(happened: &Happened, at: &Cursor) -> nouns::Event {
    let (network, network_id) = (happened.name.clone(), happened.network);
    let by = happened.by.to_string();
    let mut event =
        nouns::Event::new(cursor_text(at), happened.wall, event_type(happened.kind), network, network_id, by);
    event.reason = happened.reason.as_ref().and_then(text_of);
    match &happened.what {
        What::Holding { address, before, after } => {
            event.address = Some(*address);
            let state = |held: &Reservation| EventState::Holding(Box::new(holding(held, happened)));
            event.before = before.as_deref().map(state);
            event.after = after.as_deref().map(state);
            if let Some(held) = happened.what.holding() {
                event.prefix_length = PrefixLength::new(held.prefix_length.into());
                event.scope = Some(held.holder.scope.clone());
                event.owner = Some(held.holder.owner.clone());
                event.slot = Some(held.holder.slot.clone());
                event.claimant = held.claimant.clone();
                event.generation = Some(held.generation);
                event.kind = Some(kind(held.kind));
            }
        }
        What::Network { config, subnets, gone } => {
            let state = config.as_deref().map(|config| {
                let mut state = network_state(config);
                state.subnets = subnets.iter().map(|config| subnet(config)).collect();
                state.removed = gone.clone();
                EventState::Network(Box::new(state))
            });
            event.after = state;
        }
    }
    event
}

fn kind(kind: ReservationKind) -> WireKind {
    match kind {
        ReservationKind::Dynamic => WireKind::Dynamic,
        ReservationKind::Static => WireKind::Static,
    }
}

/// The protocol's name for a kind of event.
pub(crate) fn event_type(kind: EventKind) -> EventType {
    match kind {
        EventKind::Granted => EventType::Granted,
        EventKind::Renewed => EventType::Renewed,
        EventKind::Bound => EventType::Bound,
        EventKind::Unbound => EventType::Unbound,
        EventKind::Updated => EventType::Updated,
        EventKind::Transferred => EventType::Transferred,
        EventKind::Obsolete => EventType::Obsolete,
        EventKind::Released => EventType::Released,
        EventKind::Expired => EventType::Expired,
        EventKind::Swept => EventType::Swept,
        EventKind::Reverted => EventType::Reverted,
        EventKind::Declined => EventType::Declined,
        EventKind::Healed => EventType::Healed,
        EventKind::Conflict => EventType::Conflict,
        EventKind::NetworkCreated => EventType::NetworkCreated,
        EventKind::NetworkChanged => EventType::NetworkChanged,
        EventKind::NetworkDeleted => EventType::NetworkDeleted,
        EventKind::NetworkRestored => EventType::NetworkRestored,
    }
}

fn holding(held: &Reservation, happened: &Happened) -> HoldingState {
    let holder = held.holder.clone();
    let mut state = HoldingState::new(
        holder.scope,
        holder.owner,
        holder.slot,
        kind(held.kind),
        held.release_with_claimant,
        held.transient,
        held.created_at,
        held.generation,
    );
    state.claimant = held.claimant.clone();
    state.obsolete = held.obsolete.as_ref().map(|obsolete| nouns::Obsolete::new(obsolete.since, obsolete.plan));
    // Leases are counted in the shard's time. The wall clock of the event, plus or minus the time then left or overdue,
    // gives the end.
    let left_ms = |lease: crate::core::state::Lease| lease.ends.0.wrapping_sub(happened.time.0) as i64;
    state.expires_at = held.lease.map(|lease| WallTime(happened.wall.0.saturating_add_signed(left_ms(lease))));
    if let Some(details) = held.details.as_deref() {
        state.owner_uid = details.owner_uid.clone();
        state.labels = LabelMap(details.labels.clone());
        state.note = Some(&details.note).filter(|note| !note.is_empty()).and_then(text_of);
        state.hostname = Some(&details.hostname).filter(|name| !name.is_empty()).and_then(|name| name.parse().ok());
        state.mac = details.mac;
    }
    state
}

fn network_state(config: &NetworkConfig) -> NetworkState {
    let limits = config.limits;
    let mut state = NetworkState::new(
        config.name.clone(),
        config.realm.clone(),
        network_kind(config.kind),
        policy(config.policy),
        Number::new(config.cooldown_seconds).unwrap_or_else(|| Number::new(0).expect("0 is in range")),
        config.cooldown_yields,
        config.static_only,
        config.protected,
        config.version,
        config.closed,
    );
    state.l2 = l2(&config.l2);
    state.limits = (limits.per_owner.is_some() || limits.per_scope.is_some())
        .then_some(nouns::Limits { per_owner: limits.per_owner, per_scope: limits.per_scope });
    state.tags = LabelMap(config.tags.clone());
    state.description = Some(&config.description).filter(|text| !text.is_empty()).and_then(text_of);
    state
}
