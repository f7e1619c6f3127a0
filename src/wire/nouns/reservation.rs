//! The reservation, and a grant of it.

use serde::{Deserialize, Serialize};

use super::network::{Dns, L2};
use crate::core::address::{Address, Cidr, Range};
use crate::core::types::{Claimant, Generation, Mac, Name, NetworkId, Owner, OwnerUid, Scope, Slot, SubnetId};
use crate::wire::object::{object, words};
use crate::wire::params::query::ReservationKind;
use crate::wire::values::{Hostname, LabelMap, Note, PrefixLength, Time};

words! {
    /// The present state of an address.
    AddressState {
        /// Held by an owner.
        Held = "held",
        /// Free to be granted.
        Free = "free",
        /// In a reserved range, or in a draining subnet or pool.
        Reserved = "reserved",
        /// Released a short time ago.
        Cooling = "cooling",
        /// Somebody else answers at it.
        Declined = "declined",
        /// A network, broadcast, anycast or gateway address: never handed out.
        Unusable = "unusable",
        /// In no subnet.
        Unknown = "unknown",
    }
}

object! { open
    /// Since when a reservation is obsolete, and by which plan of a deployment that is not committed.
    Obsolete {
        /// Since when it is obsolete.
        since: Time,
        /// The plan.
        plan: u64,
    }
}

/// Defines a struct with the members of a reservation and a few more after them.
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
                /// Prefix length of what is held: 32 or 128 for one address.
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
                /// Whether DHCP serves the subnet.
                dhcp: bool,
                /// DNS of the subnet.
                dns?: Dns,
                /// Layer 2 of the network.
                l2?: L2,
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
                /// When it was granted; left out if it is only promised.
                created_at?: Time,
                /// When the lease ends; permanent if left out.
                expires_at?: Time,
                /// In how many seconds the lease ends.
                expires_in_seconds?: u64,
                /// Number of this holding; left out if it is only promised.
                generation?: Generation,
                /// Set if it was released by a deployment that is not committed.
                obsolete?: Obsolete,
                $($more)*
            }
        }
    };
}

reservation! {
    /// Who holds which address.
    Reservation {}
}

reservation! {
    /// A reservation that was granted, or that was there already.
    Granted {
        /// True if it was granted now, false if it existed already.
        created: bool,
        /// Who used it before this request bound another claimant.
        previous_claimant?: Claimant,
        /// The address that was released for it.
        replaced?: Address,
    }
}

reservation! {
    /// A reservation that was unbound: its present state, or, if it was released with its claimant, its last state.
    Unbound {
        /// Whether it was released with its claimant.
        released?: bool,
    }
}

object! { open
    /// A grant with `brief: true`.
    BriefGrant {
        /// The address; of a block the first.
        address: Address,
        /// Prefix length of what is held: 32 or 128 for one address.
        prefix_length: PrefixLength,
        /// Number of this holding.
        generation: Generation,
        /// True if it was granted now, false if it existed already.
        created: bool,
    }
}

/// The answer of a grant: the whole reservation, or with `brief: true` only a few members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum GrantResult {
    /// The whole reservation.
    Full(Box<Granted>),
    /// What a busy client needs.
    Brief(BriefGrant),
}
