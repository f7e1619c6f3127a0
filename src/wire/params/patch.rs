//! The `set` of configuration: merge patches (RFC 7396). Objects merge, null removes, lists replace.
//!
//! Null is taken where there is something to remove. A member that always has a value (`dhcp`, `draining`, `policy`, …)
//! takes no null.

use crate::core::address::{Address, Cidr, Range};
use crate::core::types::{Name, SubnetId};
use crate::limits;
use crate::wire::object::object;
use crate::wire::params::input::{DnsSearch, DnsServers, Limit, PoolKind, Pools, ReservedRanges, Zones};
use crate::wire::params::network::Policy;
use crate::wire::values::{BoundedList, CooldownSeconds, LabelPatch, MacPrefix, Note, Word};

/// The subnets that a network shall have.
pub type SubnetEntries = BoundedList<SubnetEntry, 0, { limits::SUBNETS_MAX }>;

object! { strict
    /// Merge patch of a network.
    NetworkSet {
        /// New name.
        name?: Name,
        /// What carries it on layer 2.
        l2 | null: L2Patch,
        /// In what order addresses are drawn.
        policy?: Policy,
        /// How long a released address is kept from other owners.
        cooldown_seconds?: CooldownSeconds,
        /// Cooling addresses are handed out when nothing else is free.
        cooldown_yields?: bool,
        /// Claims only in static pools.
        static_only?: bool,
        /// May not be deleted.
        protected?: bool,
        /// How many reservations one owner or scope may hold.
        limits | null: LimitsPatch,
        /// Tags, merged key by key.
        tags | null: LabelPatch,
        /// For people.
        description | null: Note,
        /// Its subnets, as a whole: those that are not listed are removed.
        subnets?: SubnetEntries,
    }
}

object! { strict
    /// A subnet that a network shall have. With an id, that one, changed by the members as by a merge patch. Without, a whole
    /// subnet: what is not said is as in a new one; the one of this cidr, else of this name, keeps its id and what is held in it.
    SubnetEntry {
        /// Which one of the network's it is.
        id?: SubnetId,
        /// Its addresses; those of one that is there are grown or shrunk.
        cidr?: Cidr,
        /// The gateway.
        gateway | null: Address,
        /// Name, unique in its network.
        name | null: Name,
        /// Served by DHCP.
        dhcp?: bool,
        /// DNS of its machines; without an id none if left out.
        dns | null: DnsPatch,
        /// Zones it serves, as a whole.
        zones | null: Zones,
        /// Tags, merged key by key; without an id as a whole.
        tags | null: LabelPatch,
        /// Nothing new is granted in it.
        draining?: bool,
        /// Its pools, as a whole; without an id one dynamic pool that spans it if left out.
        pools?: Pools,
        /// Its reserved ranges, as a whole; without an id none if left out.
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
        /// Beginning of the MACs that the network makes.
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
        /// New addresses: grown or shrunk.
        cidr?: Cidr,
        /// The gateway.
        gateway | null: Address,
        /// New name.
        name | null: Name,
        /// Served by DHCP.
        dhcp?: bool,
        /// DNS of its machines.
        dns | null: DnsPatch,
        /// Zones it serves, as a whole.
        zones | null: Zones,
        /// Tags, merged key by key.
        tags | null: LabelPatch,
        /// Nothing new is granted in it.
        draining?: bool,
        /// Its pools, as a whole.
        pools?: Pools,
    }
}

object! { strict
    /// Merge patch of a subnet's DNS.
    DnsPatch {
        /// Servers, as a whole.
        servers | null: DnsServers,
        /// Search domains, as a whole.
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
        /// What it is drawn for.
        kind?: PoolKind,
        /// Nothing new is granted in it.
        draining?: bool,
    }
}
