//! Events, and the notifications that bring them.

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
        /// Its claimant let go.
        Unbound = "unbound",
        /// Labels, note, host name, MAC or owner_uid changed.
        Updated = "updated",
        /// It went to another owner.
        Transferred = "transferred",
        /// A deployment let it go, and is not committed.
        Obsolete = "obsolete",
        /// Its owner, or somebody with force, let it go.
        Released = "released",
        /// Its lease ended.
        Expired = "expired",
        /// A sweep let it go.
        Swept = "swept",
        /// A deployment was taken back.
        Reverted = "reverted",
        /// Somebody else answers there.
        Declined = "declined",
        /// Restored after a store went back.
        Healed = "healed",
        /// Claimed twice after a failover.
        Conflict = "conflict",
        /// The network came to be.
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
    /// What an event tells of a holding, as it was or as it became.
    HoldingState {
        /// Scope of the owner.
        scope: Scope,
        /// Who keeps it.
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
        /// Let go by a deployment that is not committed.
        obsolete?: Obsolete,
    }
}

object! { open
    /// What an event tells of a network, as it became.
    NetworkState {
        /// Its name.
        name: Name,
        /// Its realm.
        realm: Name,
        /// How its addresses come about.
        kind: NetworkKind,
        /// What carries it on layer 2.
        l2?: L2,
        /// In what order addresses are drawn.
        policy: Policy,
        /// How long a released address is kept from other owners.
        cooldown_seconds: CooldownSeconds,
        /// Cooling addresses are handed out when nothing else is free.
        cooldown_yields: bool,
        /// Claims only in static pools.
        static_only: bool,
        /// May not be deleted.
        protected: bool,
        /// How many reservations one owner or scope may hold.
        limits?: Limits,
        /// Tags.
        tags | empty: LabelMap,
        /// For people.
        description?: Note,
        /// Number of its configuration.
        version: Version,
        /// It is deleted and remembered.
        deleted: bool,
        /// The subnets that came or changed. One that moved here brought its holdings along.
        subnets | empty: Vec<Subnet>,
        /// Ids of the subnets that went. One that moved away took its holdings along.
        removed | empty: Vec<SubnetId>,
    }
}

/// What an event tells of what it is about.
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
        /// Behind it: `since` of an `events.watch` that goes on from there.
        cursor: Cursor,
        /// When.
        time: Time,
        /// What.
        r#type: EventType,
        /// Name of the network then.
        network: Name,
        /// Its id.
        network_id: NetworkId,
        /// The address; of a block the first.
        address?: Address,
        /// Length of what is or was held.
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
        /// Who asked for it; `lease` where a lease ended by itself.
        by: String,
        /// Why, in the words of who asked.
        reason?: Reason,
        /// As it was before.
        before?: EventState,
        /// As it is from then on.
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
        /// In order of time, and in each network in the order in which they happened; with `at` by network and address.
        events: Vec<Event>,
        /// `after` of the next page; left out on the last. The page may be shorter than asked, and empty.
        next?: Cursor,
    }
}

object! { open
    /// Params of the notification `event`.
    EventNotification {
        /// Of which subscription.
        subscription: u64,
        /// What happened.
        event: Event,
    }
}

object! { open
    /// Params of the notification `bookmark`: nothing else happened up to there.
    BookmarkNotification {
        /// Of which subscription.
        subscription: u64,
        /// `since` of an `events.watch` that goes on from there.
        cursor: Cursor,
    }
}

object! { open
    /// Params of the notification `lagged`: the client takes events more slowly than they happen. The subscription has ended. Where
    /// what comes next is not kept any more, an `events.watch` from its cursor is `cursor_lost`.
    LaggedNotification {
        /// Of which subscription.
        subscription: u64,
        /// `since` of an `events.watch` that goes on from there.
        cursor: Cursor,
    }
}

object! { open
    /// Params of the notification `cursor_lost`: the line of history that was followed was cut off, by a failover or a restore, or
    /// what comes next is damaged and cannot be read. The subscription has ended.
    CursorLostNotification {
        /// Of which subscription.
        subscription: u64,
        /// Why.
        problem: String,
        /// The last cursor that is certainly still good. What is told behind it may have been told before, up to all that the owner
        /// told whose line was cut off.
        last_common: Cursor,
    }
}
