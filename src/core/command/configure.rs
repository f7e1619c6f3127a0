//! What changes the configuration of a network: its own members, subnets, pools and reserved ranges.
//!
//! An input is a thing as it is asked for, a patch what is to change of one that is there.

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::{LabelsPatch, Patch, PoolRef, SubnetRef};
use crate::core::address::{Address, Cidr, Range};
use crate::core::compact;
use crate::core::state::{Dns, L2, Limits, NetworkKind, Policy, PoolKind, ReservedFor};
use crate::core::types::{Labels, Name, SubnetId};

/// A pool as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolInput {
    /// Its addresses; none: the whole subnet.
    pub range: Option<Range>,
    /// Name.
    pub name: Option<Name>,
    /// Dynamic where not said.
    pub kind: Option<PoolKind>,
    /// Draining where said.
    pub draining: Option<bool>,
}

/// A reserved range as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedInput {
    /// The addresses.
    pub range: Range,
    /// Text for people.
    pub note: CompactString,
    /// For whom.
    pub reserved_for: Option<ReservedFor>,
}

/// A subnet as it is asked for. `None` is "not said", which `if_absent` does not compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetInput {
    /// Its addresses.
    pub cidr: Cidr,
    /// Name.
    pub name: Option<Name>,
    /// Gateway.
    pub gateway: Option<Address>,
    /// Flag.
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
    /// Pools; none: one that spans the subnet.
    pub pools: Option<Vec<PoolInput>>,
    /// Reserved ranges.
    pub reserved: Option<Vec<ReservedInput>>,
}

/// `network.create`. `None` is "not said", which `if_absent` does not compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkInput {
    /// Name.
    pub name: Name,
    /// Realm; `default` where not said.
    pub realm: Option<Name>,
    /// Kind; manual where not said.
    pub kind: Option<NetworkKind>,
    /// Link layer.
    pub l2: Option<L2>,
    /// Policy; lowest where not said.
    pub policy: Option<Policy>,
    /// Cooldown; 0 where not said.
    pub cooldown_seconds: Option<u64>,
    /// Cooling addresses yield.
    pub cooldown_yields: Option<bool>,
    /// Claims only in static pools.
    pub static_only: Option<bool>,
    /// Cannot be deleted.
    pub protected: Option<bool>,
    /// Bounds.
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

/// `network.update`'s `set`. `Clear` puts back the default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NetworkPatch {
    /// Rename. Uniqueness is the catalog's.
    pub name: Option<Name>,
    /// Link layer, merged.
    pub l2: Patch<L2Patch>,
    /// Policy.
    pub policy: Patch<Policy>,
    /// Cooldown.
    pub cooldown_seconds: Patch<u64>,
    /// Cooling addresses yield.
    pub cooldown_yields: Patch<bool>,
    /// Claims only in static pools.
    pub static_only: Patch<bool>,
    /// Cannot be deleted.
    pub protected: Patch<bool>,
    /// Bounds, merged.
    pub limits: Patch<LimitsPatch>,
    /// Tags, merged.
    pub tags: Patch<LabelsPatch>,
    /// Text for people.
    pub description: Patch<CompactString>,
    /// The subnets that it shall have, replaced.
    pub subnets: Option<Vec<SubnetEntry>>,
}

/// A subnet that a network shall have: one that it has, with what changes of it, or a new one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SubnetEntry {
    /// The one of this id.
    pub id: Option<SubnetId>,
    /// What changes, or what is not the default of a new one.
    pub set: SubnetPatch,
    /// Reserved ranges, replaced.
    pub reserved: Option<Vec<ReservedInput>>,
}

impl SubnetEntry {
    /// The whole subnet that it is, if it says of which addresses, or they are those that it has: what is removed or not
    /// mentioned is as in a new one.
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
    /// Servers, replaced.
    pub servers: Patch<Vec<Address>>,
    /// Search domains, replaced.
    pub search: Patch<Vec<CompactString>>,
}

/// `subnet.modify`'s `set`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SubnetPatch {
    /// Grow or shrink.
    pub cidr: Option<Cidr>,
    /// Name.
    pub name: Patch<Name>,
    /// Gateway.
    pub gateway: Patch<Address>,
    /// Flag.
    pub dhcp: Patch<bool>,
    /// DNS settings, merged.
    pub dns: Patch<DnsPatch>,
    /// Zones, replaced.
    pub zones: Patch<Vec<CompactString>>,
    /// Tags, merged.
    pub tags: Patch<LabelsPatch>,
    /// Draining.
    pub draining: Patch<bool>,
    /// Pools, replaced; `Clear` leaves none.
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
    /// These addresses, out of whichever pools; the middle of a pool splits it.
    Range(Range),
    /// All pools of the name, or the pool of that range.
    Pool(PoolRef),
    /// All pools of a subnet.
    Subnet(SubnetRef),
}

/// A change of configuration that concerns one network alone. Overlaps with other networks of the realm and names of
/// networks are checked by the catalog before it is decided here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Configure {
    /// `network.update`.
    Update(Box<NetworkPatch>),
    /// `network.delete`: refused while something is held, remembered with `force`, emptied with `purge`.
    Delete {
        /// Close it although something is held.
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
        /// What is there already and equal is answered.
        if_absent: bool,
    },
    /// `subnet.modify`.
    SubnetModify {
        /// Which.
        subnet: SubnetRef,
        /// What changes.
        set: Box<SubnetPatch>,
    },
    /// `subnet.remove`.
    SubnetRemove {
        /// Which.
        subnet: SubnetRef,
    },
    /// `pool.add`.
    PoolAdd {
        /// The pool; its range, or the whole of `subnet`.
        input: PoolInput,
        /// In place of a range.
        subnet: Option<SubnetRef>,
        /// What is there already and equal is answered.
        if_absent: bool,
    },
    /// `pool.modify`.
    PoolModify {
        /// Which; a name that several pools share is `invalid_argument`.
        pool: PoolRef,
        /// What changes.
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
        /// Only what is kept for this owner.
        reserved_for: Option<ReservedFor>,
    },
}
