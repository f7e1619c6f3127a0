//! Events, and the notifications that carry them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::network::{L2, Limits, Subnet};
use super::reservation::Obsolete;
use crate::core::address::Address;
use crate::core::types::{Claimant, Generation, Mac, Name, NetworkId, Owner, OwnerUid, Scope, Slot, SubnetId, Version};
use crate::wire::object::{object, words};
use crate::wire::params::network::{NetworkKind, Policy};
use crate::wire::params::query::ReservationKind;
use crate::wire::values::{CooldownSeconds, Cursor, Hostname, LabelMap, Note, PrefixLength, Reason, Time};

words! {
    /// What happened.
    EventType {
        /// An owner got the address.
        Granted = "granted",
        /// Its lease changed.
        Renewed = "renewed",
        /// A claimant began to use it.
        Bound = "bound",
        /// Its claimant no longer uses it.
        Unbound = "unbound",
        /// Labels, note, host name, MAC or owner_uid changed.
        Updated = "updated",
        /// It went to another owner.
        Transferred = "transferred",
        /// A deployment released it, but is not committed.
        Obsolete = "obsolete",
        /// Its owner released it, or somebody did by force.
        Released = "released",
        /// Its lease ended.
        Expired = "expired",
        /// A sweep released it.
        Swept = "swept",
        /// A deployment was reverted.
        Reverted = "reverted",
        /// Somebody else answers at it.
        Declined = "declined",
        /// Restored after the store went back in time.
        Healed = "healed",
        /// Claimed twice after a failover.
        Conflict = "conflict",
        /// The network was created.
        NetworkCreated = "network_created",
        /// Its configuration changed.
        NetworkChanged = "network_changed",
        /// It was deleted.
        NetworkDeleted = "network_deleted",
        /// It was brought back.
        NetworkRestored = "network_restored",
    }
}

object! { open
    /// The state of a holding before or after an event.
    HoldingState {
        /// Scope of the owner.
        scope: Scope,
        /// The owner, who keeps it.
        owner: Owner,
        /// Which of the owner's addresses in this network.
        slot: Slot,
        /// Tells two owners of one name apart.
        owner_uid?: OwnerUid,
        /// Picked by the network, or named.
        kind: ReservationKind,
        /// Who uses it.
        claimant?: Claimant,
        /// Unbinding or sweeping the claimant releases it.
        release_with_claimant: bool,
        /// Made obsolete only by the second apply that does not list it.
        transient: bool,
        /// Labels.
        labels | empty: LabelMap,
        /// A note for people.
        note?: Note,
        /// Host name.
        hostname?: Hostname,
        /// Hardware address.
        mac?: Mac,
        /// When it was granted.
        created_at: Time,
        /// When the lease ends; permanent if left out.
        expires_at?: Time,
        /// Number of this holding.
        generation: Generation,
        /// Released by a deployment that is not committed.
        obsolete?: Obsolete,
    }
}

object! { open
    /// The state of a network after an event.
    NetworkState {
        /// Its name.
        name: Name,
        /// Its realm.
        realm: Name,
        /// How its addresses are assigned.
        kind: NetworkKind,
        /// What carries it on layer 2.
        l2?: L2,
        /// The order in which addresses are picked.
        policy: Policy,
        /// How long a released address is kept from other owners.
        cooldown_seconds: CooldownSeconds,
        /// Whether cooling addresses are granted when no other is free.
        cooldown_yields: bool,
        /// Whether claims are allowed only in static pools.
        static_only: bool,
        /// Whether it is protected from deletion.
        protected: bool,
        /// How many reservations one owner or scope may hold.
        limits?: Limits,
        /// Tags.
        tags | empty: LabelMap,
        /// A description for people.
        description?: Note,
        /// Version of its configuration.
        version: Version,
        /// Whether it is deleted and remembered.
        deleted: bool,
        /// The subnets that were added or changed. A subnet that moved here brought its holdings along.
        subnets | empty: Vec<Subnet>,
        /// Ids of the subnets that were removed. A subnet that moved away took its holdings along.
        removed | empty: Vec<SubnetId>,
    }
}

/// The state of what an event is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EventState {
    /// Of a holding.
    Holding(Box<HoldingState>),
    /// Of a network.
    Network(Box<NetworkState>),
}

impl JsonSchema for EventState {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("EventState")
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (holding, network) = (generator.subschema_for::<HoldingState>(), generator.subschema_for::<NetworkState>());
        schemars::json_schema!({ "anyOf": [holding, network] })
    }
}

object! { open
    /// Something that happened.
    Event {
        /// The cursor after this event: `since` of an `events.watch` that continues from here.
        cursor: Cursor,
        /// When it happened.
        time: Time,
        /// What happened.
        r#type: EventType,
        /// Name of the network at that time.
        network: Name,
        /// Its id.
        network_id: NetworkId,
        /// The address; of a block the first.
        address?: Address,
        /// Prefix length of what is or was held.
        prefix_length?: PrefixLength,
        /// Scope of the owner.
        scope?: Scope,
        /// Who holds it, or held it last.
        owner?: Owner,
        /// Which of the owner's addresses in the network.
        slot?: Slot,
        /// Who uses it, or used it last.
        claimant?: Claimant,
        /// Number of the holding.
        generation?: Generation,
        /// Picked by the network, or named.
        kind?: ReservationKind,
        /// Who asked for it; `lease` if a lease ended by itself.
        by: String,
        /// The reason that the caller gave.
        reason?: Reason,
        /// The state before.
        before?: EventState,
        /// The state after.
        after?: EventState,
    }
}

object! { open
    /// Answer of `events.watch` and `events.unwatch`.
    Subscription {
        /// Its number on this connection; every notification carries it.
        subscription: u64,
    }
}

object! { open
    /// Answer of `events.history`.
    HistoryResult {
        /// In order of time, and for each network in the order of its events; with `at`, by network and address.
        events: Vec<Event>,
        /// `after` of the next page; left out on the last. A page may be shorter than asked for, and even empty.
        next?: Cursor,
    }
}

object! { open
    /// Params of the notification `event`.
    EventNotification {
        /// Number of the subscription.
        subscription: u64,
        /// What happened.
        event: Event,
    }
}

object! { open
    /// Params of the notification `bookmark`: nothing else happened up to this cursor.
    BookmarkNotification {
        /// Number of the subscription.
        subscription: u64,
        /// `since` of an `events.watch` that continues from here.
        cursor: Cursor,
    }
}

object! { open
    /// Params of the notification `lagged`: the client takes events more slowly than they happen, and the subscription has
    /// ended. If the next events are no longer kept, an `events.watch` from this cursor is `cursor_lost`.
    LaggedNotification {
        /// Number of the subscription.
        subscription: u64,
        /// `since` of an `events.watch` that continues from here.
        cursor: Cursor,
    }
}

object! { open
    /// Params of the notification `cursor_lost`: the line of history that was followed was cut off by a failover or a
    /// restore, or its next part is damaged and cannot be read. The subscription has ended.
    CursorLostNotification {
        /// Number of the subscription.
        subscription: u64,
        /// Why.
        problem: String,
        /// The last cursor that is certainly still good. Events after it may have been sent before, up to everything that
        /// the owner of the line that was cut off had sent.
        last_common: Cursor,
    }
}
