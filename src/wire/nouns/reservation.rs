//! The reservation, and a grant of it.

use serde::{Deserialize, Serialize};

use super::network::{Dns, L2};
use crate::core::address::{Address, Cidr, Range};
use crate::core::types::{Claimant, Generation, Mac, Name, NetworkId, Owner, OwnerUid, Scope, Slot, SubnetId};
use crate::wire::object::{object, words};
use crate::wire::params::query::ReservationKind;
use crate::wire::values::{Hostname, LabelMap, Note, PrefixLength, Time};

words! {
    /// What an address is just now.
    AddressState {
        /// Held by an owner.
        Held = "held",
        /// Free to be granted.
        Free = "free",
        /// In a reserved range, a draining subnet or pool, or a network, broadcast, anycast or gateway address.
        Reserved = "reserved",
        /// Released a short time ago.
        Cooling = "cooling",
        /// Somebody else answers at it.
        Declined = "declined",
        /// In a subnet, and never handed out.
        Unusable = "unusable",
        /// In no subnet.
        Unknown = "unknown",
    }
}

object! { open
    /// Since when, and by which plan, a reservation is let go by a deployment that is not committed.
    Obsolete {
        /// Since when.
        since: Time,
        /// The plan.
        plan: u64,
    }
}

/// Defines a struct with the members of a reservation and a few more behind them.
macro_rules! reservation {
    ($(#[$meta:meta])* $name:ident { $($more:tt)* }) => {
        object! { open
            $(#[$meta])*
            $name {
                /// Name of the network.
                network: Name,
                /// Id of the network.
                network_id: NetworkId,
                /// The address; of a block the first.
                address: Address,
                /// Length of what is held: 32 or 128 for one address.
                prefix_length: PrefixLength,
                /// Address and prefix length of the subnet, ready for an interface: `10.0.0.5/24`.
                interface: String,
                /// Its subnet; a dynamic network has none.
                subnet?: Cidr,
                /// Id of the subnet.
                subnet_id?: SubnetId,
                /// Range of its pool.
                pool?: Range,
                /// Name of its pool.
                pool_name?: Name,
                /// Gateway of the subnet.
                gateway?: Address,
                /// The subnet is served by DHCP.
                dhcp: bool,
                /// DNS of the subnet.
                dns?: Dns,
                /// Layer 2 of the network.
                l2?: L2,
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
                /// Who uses it now.
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
                /// When it was granted; what is only promised was not.
                created_at?: Time,
                /// When the lease ends; permanent if left out.
                expires_at?: Time,
                /// In how many seconds the lease ends.
                expires_in_seconds?: u64,
                /// Number of this holding; what is only promised has none.
                generation?: Generation,
                /// Let go by a deployment that is not committed.
                obsolete?: Obsolete,
                $($more)*
            }
        }
    };
}

/// Conversions between a reservation and a struct that has its members and more.
macro_rules! reservation_and {
    ($name:ident) => {
        impl $name {
            /// The reservation in it.
            pub fn into_reservation(self) -> Reservation {
                reservation_and!(@fields Reservation, self, {})
            }
        }
    };
    (@fields $name:ident, $from:expr, { $($more:tt)* }) => {{
        let from = $from;
        $name {
            network: from.network,
            network_id: from.network_id,
            address: from.address,
            prefix_length: from.prefix_length,
            interface: from.interface,
            subnet: from.subnet,
            subnet_id: from.subnet_id,
            pool: from.pool,
            pool_name: from.pool_name,
            gateway: from.gateway,
            dhcp: from.dhcp,
            dns: from.dns,
            l2: from.l2,
            scope: from.scope,
            owner: from.owner,
            slot: from.slot,
            owner_uid: from.owner_uid,
            kind: from.kind,
            claimant: from.claimant,
            release_with_claimant: from.release_with_claimant,
            transient: from.transient,
            labels: from.labels,
            note: from.note,
            hostname: from.hostname,
            mac: from.mac,
            created_at: from.created_at,
            expires_at: from.expires_at,
            expires_in_seconds: from.expires_in_seconds,
            generation: from.generation,
            obsolete: from.obsolete,
            $($more)*
        }
    }};
}

reservation! {
    /// Who holds which address.
    Reservation {}
}

reservation! {
    /// A reservation that was granted, or that was there already.
    Granted {
        /// Granted now; false if it was there already.
        created: bool,
        /// Who used it before this request bound another claimant.
        previous_claimant?: Claimant,
        /// The address that was released for it.
        replaced?: Address,
    }
}

reservation! {
    /// A reservation that was unbound: as it is, or, where it was released with its claimant, as it was.
    Unbound {
        /// It was released with its claimant.
        released?: bool,
    }
}

reservation_and!(Granted);
reservation_and!(Unbound);

impl Granted {
    /// An answer of a grant: the reservation, and whether it was made now.
    pub fn of(reservation: Reservation, created: bool) -> Self {
        reservation_and!(@fields Granted, reservation, { created, previous_claimant: None, replaced: None })
    }
}

impl Unbound {
    /// An answer of `ip.unbind`.
    pub fn of(reservation: Reservation, released: bool) -> Self {
        reservation_and!(@fields Unbound, reservation, { released: released.then_some(true) })
    }
}

object! { open
    /// A grant with `brief: true`.
    BriefGrant {
        /// The address; of a block the first.
        address: Address,
        /// Length of what is held: 32 or 128 for one address.
        prefix_length: PrefixLength,
        /// Number of this holding.
        generation: Generation,
        /// Granted now; false if it was there already.
        created: bool,
    }
}

/// What a grant answers: all, or with `brief: true` little.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum GrantResult {
    /// The whole reservation.
    Full(Box<Granted>),
    /// What a busy client needs.
    Brief(BriefGrant),
}

impl GrantResult {
    /// The address granted.
    pub fn address(&self) -> Address {
        match self {
            GrantResult::Full(granted) => granted.address,
            GrantResult::Brief(granted) => granted.address,
        }
    }

    /// Was it granted now?
    pub fn created(&self) -> bool {
        match self {
            GrantResult::Full(granted) => granted.created,
            GrantResult::Brief(granted) => granted.created,
        }
    }

    /// Number of the holding.
    pub fn generation(&self) -> Generation {
        match self {
            GrantResult::Full(granted) => granted.generation.unwrap_or_default(),
            GrantResult::Brief(granted) => granted.generation,
        }
    }
}
