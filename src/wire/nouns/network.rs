//! Network, subnet, pool and reserved range as answered.

use super::usage::Usage;
use crate::core::address::{Address, Cidr, Range};
use crate::core::types::{Name, NetworkId, SubnetId, Version};
use crate::wire::object::{IsEmpty, object};
use crate::wire::params::input::{ForOwner, PoolKind};
use crate::wire::params::network::{NetworkKind, Policy};
use crate::wire::values::{CooldownSeconds, Cursor, Hostname, LabelMap, MacPrefix, Note, Word};

object! { open
    /// What carries a network on layer 2.
    L2 {
        /// Kind of the carrier.
        mode?: Word,
        /// The bridge, interface or VLAN.
        link?: Word,
        /// Beginning of the MACs that the network makes.
        mac_prefix?: MacPrefix,
    }
}

object! { open
    /// DNS of the machines of a subnet.
    Dns {
        /// Servers.
        servers | empty: Vec<Address>,
        /// Search domains.
        search | empty: Vec<Hostname>,
    }
}

object! { open
    /// How many current reservations one owner or scope may hold in a network. What a deployment made obsolete does not count; a
    /// revert makes it current again also past a limit.
    Limits {
        /// One owner.
        per_owner?: u64,
        /// One scope.
        per_scope?: u64,
    }
}

impl IsEmpty for L2 {
    fn is_empty(&self) -> bool {
        self.mode.is_none() && self.link.is_none() && self.mac_prefix.is_none()
    }
}

impl IsEmpty for Dns {
    fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.search.is_empty()
    }
}

impl IsEmpty for Limits {
    fn is_empty(&self) -> bool {
        self.per_owner.is_none() && self.per_scope.is_none()
    }
}

object! { open
    /// A network. One that was deleted and is remembered looks like any other: `network.list` with `deleted` tells them
    /// apart.
    Network {
        /// Its id.
        id: NetworkId,
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
        /// Its subnets, in the order they were added.
        subnets | empty: Vec<Subnet>,
        /// Number of its configuration.
        version: Version,
        /// With `usage: true` of `network.list`.
        usage?: Box<Usage>,
        /// Where `events.watch` goes on from this answer.
        cursor?: Cursor,
        /// With `if_absent`: made now, or there already.
        created?: bool,
    }
}

object! { open
    /// A subnet.
    Subnet {
        /// Its id.
        id: SubnetId,
        /// Its name.
        name?: Name,
        /// Its addresses.
        cidr: Cidr,
        /// The gateway.
        gateway?: Address,
        /// Served by DHCP.
        dhcp: bool,
        /// DNS of its machines.
        dns?: Dns,
        /// Zones it serves; every zone if there are none.
        zones | empty: Vec<Word>,
        /// Tags.
        tags | empty: LabelMap,
        /// Nothing new is granted in it.
        draining: bool,
        /// Its pools, in the order they were added.
        pools | empty: Vec<Pool>,
        /// Its reserved ranges.
        reserved | empty: Vec<Reserved>,
        /// With `if_absent`: made now, or there already.
        created?: bool,
    }
}

object! { open
    /// A pool.
    Pool {
        /// Its addresses.
        range: Range,
        /// Its name.
        name?: Name,
        /// What it is drawn for.
        kind: PoolKind,
        /// Nothing new is granted in it.
        draining: bool,
        /// With `if_absent`: made now, or there already.
        created?: bool,
    }
}

object! { open
    /// A reserved range.
    Reserved {
        /// Its addresses.
        range: Range,
        /// A note for people.
        note?: Note,
        /// For whom it is kept.
        r#for?: ForOwner,
    }
}
