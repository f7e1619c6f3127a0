//! Commands that change the configuration of a network: its own members, subnets, pools and reserved ranges.
//!
//! An input describes a thing that is asked for; a patch describes what changes of an existing one.

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::{LabelsPatch, Patch, PoolRef, SubnetRef};
use crate::core::address::{Address, Cidr, Range};
use crate::core::compact;
use crate::core::state::{Dns, L2, Limits, NetworkKind, Policy, PoolKind, ReservedFor};
use crate::core::types::{Labels, Name, SubnetId};

/// A pool as asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolInput {
    /// Its addresses; none means the whole subnet.
    pub range: Option<Range>,
    /// Name.
    pub name: Option<Name>,
    /// Kind; dynamic by default.
    pub kind: Option<PoolKind>,
    /// Draining; false by default.
    pub draining: Option<bool>,
}

/// A reserved range as asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedInput {
    /// The addresses.
    pub range: Range,
    /// Text for people.
    pub note: CompactString,
    /// For whom it is set aside.
    pub reserved_for: Option<ReservedFor>,
}

/// A subnet as asked for. `None` means "not said", and `if_absent` does not compare such a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetInput {
    /// Its addresses.
    pub cidr: Cidr,
    /// Name.
    pub name: Option<Name>,
    /// Gateway.
    pub gateway: Option<Address>,
    /// Whether DHCP serves it.
    pub dhcp: Option<bool>,
    /// DNS settings.
    pub dns: Option<Dns>,
    /// Zones.
    pub zones: Option<Vec<CompactString>>,
    /// Tags.
    #[serde(deserialize_with = "compact::some_labels")]
    pub tags: Option<Labels>,
    /// Draining.
    pub draining: Option<bool>,
    /// Pools; none means one that spans the subnet.
    pub pools: Option<Vec<PoolInput>>,
    /// Reserved ranges.
    pub reserved: Option<Vec<ReservedInput>>,
}

/// `network.create`. `None` means "not said", and `if_absent` does not compare such a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkInput {
    /// Name.
    pub name: Name,
    /// Realm; `default` if not said.
    pub realm: Option<Name>,
    /// Kind; manual if not said.
    pub kind: Option<NetworkKind>,
    /// Link layer.
    pub l2: Option<L2>,
    /// Policy; lowest if not said.
    pub policy: Option<Policy>,
    /// Cooldown; 0 if not said.
    pub cooldown_seconds: Option<u64>,
    /// Cooling addresses are handed out when no other is free.
    pub cooldown_yields: Option<bool>,
    /// Claims are allowed only in static pools.
    pub static_only: Option<bool>,
    /// The network cannot be deleted.
    pub protected: Option<bool>,
    /// Limits per owner and scope.
    pub limits: Option<Limits>,
    /// Tags.
    #[serde(deserialize_with = "compact::some_labels")]
    pub tags: Option<Labels>,
    /// Text for people.
    pub description: Option<CompactString>,
    /// Subnets.
    pub subnets: Option<Vec<SubnetInput>>,
}

/// `l2` inside a `set`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct L2Patch {
    /// Mode.
    pub mode: Patch<CompactString>,
    /// Link.
    pub link: Patch<CompactString>,
    /// MAC prefix.
    pub mac_prefix: Patch<CompactString>,
}

/// `limits` inside a `set`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitsPatch {
    /// Per owner.
    pub per_owner: Patch<u64>,
    /// Per scope.
    pub per_scope: Patch<u64>,
}

/// `network.update`'s `set`. `Clear` restores the default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NetworkPatch {
    /// New name. The catalog checks that it is unique.
    pub name: Option<Name>,
    /// Link layer, merged.
    pub l2: Patch<L2Patch>,
    /// Policy.
    pub policy: Patch<Policy>,
    /// Cooldown.
    pub cooldown_seconds: Patch<u64>,
    /// Cooling addresses are handed out when no other is free.
    pub cooldown_yields: Patch<bool>,
    /// Claims are allowed only in static pools.
    pub static_only: Patch<bool>,
    /// The network cannot be deleted.
    pub protected: Patch<bool>,
    /// Limits, merged.
    pub limits: Patch<LimitsPatch>,
    /// Tags, merged.
    pub tags: Patch<LabelsPatch>,
    /// Text for people.
    pub description: Patch<CompactString>,
    /// All subnets that the network shall have; they replace the present ones.
    pub subnets: Option<Vec<SubnetEntry>>,
}

/// A subnet that a network shall have: an existing one with its changes, or a new one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SubnetEntry {
    /// The id of an existing subnet.
    pub id: Option<SubnetId>,
    /// The changes of an existing subnet, or the members of a new one that are not at their defaults.
    pub set: SubnetPatch,
    /// Reserved ranges; they replace the present ones.
    pub reserved: Option<Vec<ReservedInput>>,
}

impl SubnetEntry {
    /// This entry as a whole subnet: what it removes or does not mention gets the default of a new one. None if it does not
    /// give a prefix and the subnet has none so far (`has`).
    pub fn as_whole(&self, has: Option<Cidr>) -> Option<SubnetInput> {
        let SubnetPatch { cidr, name, gateway, dhcp, dns, zones, tags, draining, pools } = &self.set;
        Some(SubnetInput {
            cidr: cidr.or(has)?,
            name: name.given().cloned(),
            gateway: gateway.given().copied(),
            dhcp: dhcp.given().copied(),
            dns: dns.given().map(|dns| Dns {
                servers: dns.servers.given().cloned().unwrap_or_default(),
                search: dns.search.given().cloned().unwrap_or_default(),
            }),
            zones: zones.given().cloned(),
            tags: tags
                .given()
                .map(|tags| tags.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect()),
            draining: draining.given().copied(),
            pools: pools.given().cloned(),
            reserved: self.reserved.clone(),
        })
    }
}

/// `dns` inside a `set`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DnsPatch {
    /// Servers; they replace the present ones.
    pub servers: Patch<Vec<Address>>,
    /// Search domains; they replace the present ones.
    pub search: Patch<Vec<CompactString>>,
}

/// `subnet.modify`'s `set`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SubnetPatch {
    /// New prefix: the subnet grows or shrinks.
    pub cidr: Option<Cidr>,
    /// Name.
    pub name: Patch<Name>,
    /// Gateway.
    pub gateway: Patch<Address>,
    /// Whether DHCP serves it.
    pub dhcp: Patch<bool>,
    /// DNS settings, merged.
    pub dns: Patch<DnsPatch>,
    /// Zones; they replace the present ones.
    pub zones: Patch<Vec<CompactString>>,
    /// Tags, merged.
    pub tags: Patch<LabelsPatch>,
    /// Draining.
    pub draining: Patch<bool>,
    /// Pools; they replace the present ones, and `Clear` leaves none.
    pub pools: Patch<Vec<PoolInput>>,
}

/// `pool.modify`'s `set`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolPatch {
    /// New range, inside one subnet.
    pub range: Option<Range>,
    /// Name.
    pub name: Patch<Name>,
    /// Kind.
    pub kind: Patch<PoolKind>,
    /// Draining.
    pub draining: Patch<bool>,
}

/// What `pool.remove` takes away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolRemoval {
    /// These addresses, from whichever pools; removing the middle of a pool splits it.
    Range(Range),
    /// All pools of this name, or the pool with this range.
    Pool(PoolRef),
    /// All pools of a subnet.
    Subnet(SubnetRef),
}

/// A change of configuration that concerns one network alone. Before it is decided here, the catalog checks the network's
/// name and overlaps with other networks of the realm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Configure {
    /// `network.update`.
    Update(Box<NetworkPatch>),
    /// `network.delete`: refused while something is held; `force` closes the network but remembers it, `purge` empties it.
    Delete {
        /// Close the network even if something is held.
        force: bool,
        /// Release everything that is held.
        purge: bool,
    },
    /// `network.restore`.
    Restore,
    /// `subnet.add`.
    SubnetAdd {
        /// The subnet.
        input: Box<SubnetInput>,
        /// Answer an equal subnet that exists instead of refusing.
        if_absent: bool,
    },
    /// `subnet.modify`.
    SubnetModify {
        /// The subnet.
        subnet: SubnetRef,
        /// The changes.
        set: Box<SubnetPatch>,
    },
    /// `subnet.remove`.
    SubnetRemove {
        /// The subnet.
        subnet: SubnetRef,
    },
    /// `pool.add`.
    PoolAdd {
        /// The pool, with its range unless `subnet` is given.
        input: PoolInput,
        /// The subnet that the pool spans, in place of a range.
        subnet: Option<SubnetRef>,
        /// Answer an equal pool that exists instead of refusing.
        if_absent: bool,
    },
    /// `pool.modify`.
    PoolModify {
        /// The pool; a name that several pools share is refused with `invalid_argument`.
        pool: PoolRef,
        /// The changes.
        set: Box<PoolPatch>,
    },
    /// `pool.remove`.
    PoolRemove(PoolRemoval),
    /// `reserved.add`.
    ReservedAdd(Box<ReservedInput>),
    /// `reserved.remove`.
    ReservedRemove {
        /// The addresses.
        range: Range,
        /// Only ranges that are set aside for this owner.
        reserved_for: Option<ReservedFor>,
    },
}
