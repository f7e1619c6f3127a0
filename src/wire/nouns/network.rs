//! Network, subnet, pool and reserved range as they are answered.

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
        /// Beginning of the MACs that the network generates.
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
    /// How many current reservations one owner or scope may hold in a network. Reservations that a deployment made obsolete
    /// do not count; a revert makes them current again even beyond a limit.
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
        /// Its subnets, in the order they were added.
        subnets | empty: Vec<Subnet>,
        /// Version of its configuration.
        version: Version,
        /// Its usage, if `network.list` was called with `usage: true`.
        usage?: Box<Usage>,
        /// Where `events.watch` continues from this answer.
        cursor?: Cursor,
        /// With `if_absent`: true if it was created now, false if it existed already.
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
        /// Whether DHCP serves it.
        dhcp: bool,
        /// DNS for its machines.
        dns?: Dns,
        /// Zones it serves; every zone if there are none.
        zones | empty: Vec<Word>,
        /// Tags.
        tags | empty: LabelMap,
        /// If set, nothing new is granted in it.
        draining: bool,
        /// Its pools, in the order they were added.
        pools | empty: Vec<Pool>,
        /// Its reserved ranges.
        reserved | empty: Vec<Reserved>,
        /// With `if_absent`: true if it was created now, false if it existed already.
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
        /// What its addresses are for.
        kind: PoolKind,
        /// If set, nothing new is granted in it.
        draining: bool,
        /// With `if_absent`: true if it was created now, false if it existed already.
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
