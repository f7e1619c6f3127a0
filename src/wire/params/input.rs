//! Subnets, pools and reserved ranges as they are in requests.

use crate::core::address::{Address, Cidr, Range};
use crate::core::types::{Name, Owner, Scope, Slot};
use crate::limits;
use crate::wire::object::{object, words};
use crate::wire::values::{BoundedList, Hostname, LabelMap, MacPrefix, Note, Number, Word};

words! {
    /// What the addresses of a pool are for.
    PoolKind {
        /// Automatic allocation draws from it.
        Dynamic = "dynamic",
        /// For claims only.
        Static = "static",
    }
}

/// Servers of a subnet's DNS.
pub type DnsServers = BoundedList<Address, 0, { limits::DNS_ENTRIES_MAX }>;
/// Search domains of a subnet's DNS.
pub type DnsSearch = BoundedList<Hostname, 0, { limits::DNS_ENTRIES_MAX }>;
/// Zones that a subnet serves.
pub type Zones = BoundedList<Word, 0, { limits::ZONES_MAX }>;
/// Pools of a subnet.
pub type Pools = BoundedList<PoolInput, 0, { limits::POOLS_MAX }>;
/// Reserved ranges of a subnet.
pub type ReservedRanges = BoundedList<ReservedInput, 0, { limits::RESERVED_RANGES_MAX }>;
/// Subnets of a network.
pub type Subnets = BoundedList<SubnetInput, 0, { limits::SUBNETS_MAX }>;
/// How many reservations one owner or scope may hold.
pub type Limit = Number<0, { limits::JSON_NUMBER_MAX }>;

object! { strict
    /// A subnet to create.
    SubnetInput {
        /// Name, unique in its network.
        name?: Name,
        /// Its addresses.
        cidr: Cidr,
        /// The gateway.
        gateway?: Address,
        /// Whether DHCP serves it.
        dhcp?: bool,
        /// DNS for its machines.
        dns?: DnsInput,
        /// Zones it serves; every zone if there are none.
        zones?: Zones,
        /// Tags.
        tags?: LabelMap,
        /// If set, nothing new is granted in it.
        draining?: bool,
        /// Its pools; one dynamic pool that spans it if left out.
        pools?: Pools,
        /// Its reserved ranges.
        reserved?: ReservedRanges,
    }
}

object! { strict
    /// A pool to create.
    PoolInput {
        /// Its addresses.
        range: Range,
        /// Name; several pools may share one.
        name?: Name,
        /// What its addresses are for; dynamic if left out.
        kind?: PoolKind,
        /// If set, nothing new is granted in it.
        draining?: bool,
    }
}

object! { strict
    /// A range to reserve.
    ReservedInput {
        /// Its addresses.
        range: Range,
        /// A note for people.
        note?: Note,
        /// For whom it is kept.
        r#for?: ForOwner,
    }
}

object! { strict
    /// The owner that a reserved range is kept for.
    ForOwner {
        /// Scope of the owner; `default` if left out.
        scope?: Scope,
        /// The owner.
        owner: Owner,
        /// Only this slot of the owner; all of its slots if left out.
        slot?: Slot,
    }
}

object! { strict
    /// DNS of the machines of a subnet.
    DnsInput {
        /// Servers.
        servers?: DnsServers,
        /// Search domains.
        search?: DnsSearch,
    }
}

object! { strict
    /// What carries a network on layer 2.
    L2Input {
        /// Kind of the carrier, in the infrastructure's own terms.
        mode?: Word,
        /// The bridge, interface or VLAN.
        link?: Word,
        /// Beginning of the MACs that the network generates.
        mac_prefix?: MacPrefix,
    }
}

object! { strict
    /// How many current reservations one owner or scope may hold in a network. Reservations that a deployment made obsolete
    /// do not count; a revert makes them current again even beyond a limit.
    LimitsInput {
        /// One owner.
        per_owner?: Limit,
        /// One scope.
        per_scope?: Limit,
    }
}
