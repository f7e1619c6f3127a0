//! The `set` of a configuration: merge patches (RFC 7396). Objects merge, null removes, lists replace.
//!
//! Null is accepted only for a member that can be removed. A member that always has a value (`dhcp`, `draining`, `policy`,
//! …) does not accept null.

use crate::core::address::{Address, Cidr, Range};
use crate::core::types::{Name, SubnetId};
use crate::limits;
use crate::wire::object::object;
use crate::wire::params::input::{DnsSearch, DnsServers, Limit, PoolKind, Pools, ReservedRanges, Zones};
use crate::wire::params::network::Policy;
use crate::wire::values::{BoundedList, CooldownSeconds, LabelPatch, MacPrefix, Note, Word};

/// The subnets that a network is to have.
pub type SubnetEntries = BoundedList<SubnetEntry, 0, { limits::SUBNETS_MAX }>;

object! { strict
    /// Merge patch of a network.
    NetworkSet {
        /// New name.
        name?: Name,
        /// What carries it on layer 2.
        l2 | null: L2Patch,
        /// The order in which addresses are picked.
        policy?: Policy,
        /// How long a released address is kept from other owners.
        cooldown_seconds?: CooldownSeconds,
        /// Whether cooling addresses are granted when no other is free.
        cooldown_yields?: bool,
        /// Whether claims are allowed only in static pools.
        static_only?: bool,
        /// Whether it is protected from deletion.
        protected?: bool,
        /// How many reservations one owner or scope may hold.
        limits | null: LimitsPatch,
        /// Tags, merged key by key.
        tags | null: LabelPatch,
        /// A description for people.
        description | null: Note,
        /// All its subnets: those that are not listed are removed.
        subnets?: SubnetEntries,
    }
}

object! { strict
    /// A subnet that a network is to have. With an id: that subnet, changed by the members as by a merge patch. Without an
    /// id: a whole subnet, with defaults for what is left out; the present subnet with this cidr, or else this name, keeps
    /// its id and its holdings.
    SubnetEntry {
        /// Id of a present subnet of the network.
        id?: SubnetId,
        /// Its addresses; a present subnet is grown or shrunk to them.
        cidr?: Cidr,
        /// The gateway.
        gateway | null: Address,
        /// Name, unique in its network.
        name | null: Name,
        /// Whether DHCP serves it.
        dhcp?: bool,
        /// DNS for its machines; none if left out without an id.
        dns | null: DnsPatch,
        /// All zones it serves.
        zones | null: Zones,
        /// Tags, merged key by key; without an id, all of them.
        tags | null: LabelPatch,
        /// If set, nothing new is granted in it.
        draining?: bool,
        /// All its pools; if left out without an id, one dynamic pool that spans it.
        pools?: Pools,
        /// All its reserved ranges; none if left out without an id.
        reserved?: ReservedRanges,
    }
}

object! { strict
    /// Merge patch of a network's layer 2.
    L2Patch {
        /// Kind of the carrier.
        mode | null: Word,
        /// The bridge, interface or VLAN.
        link | null: Word,
        /// Beginning of the MACs that the network generates.
        mac_prefix | null: MacPrefix,
    }
}

object! { strict
    /// Merge patch of a network's limits.
    LimitsPatch {
        /// One owner.
        per_owner | null: Limit,
        /// One scope.
        per_scope | null: Limit,
    }
}

object! { strict
    /// Merge patch of a subnet.
    SubnetSet {
        /// New addresses: the subnet is grown or shrunk to them.
        cidr?: Cidr,
        /// The gateway.
        gateway | null: Address,
        /// New name.
        name | null: Name,
        /// Whether DHCP serves it.
        dhcp?: bool,
        /// DNS for its machines.
        dns | null: DnsPatch,
        /// All zones it serves.
        zones | null: Zones,
        /// Tags, merged key by key.
        tags | null: LabelPatch,
        /// If set, nothing new is granted in it.
        draining?: bool,
        /// All its pools.
        pools?: Pools,
    }
}

object! { strict
    /// Merge patch of a subnet's DNS.
    DnsPatch {
        /// All servers.
        servers | null: DnsServers,
        /// All search domains.
        search | null: DnsSearch,
    }
}

object! { strict
    /// Merge patch of a pool.
    PoolSet {
        /// New addresses.
        range?: Range,
        /// New name.
        name | null: Name,
        /// What its addresses are for.
        kind?: PoolKind,
        /// If set, nothing new is granted in it.
        draining?: bool,
    }
}
