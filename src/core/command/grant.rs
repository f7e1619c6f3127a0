//! Commands that grant: `ip.allocate`, `ip.claim`, and the part of an `ip.acquire` that concerns one network.

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::{PoolRef, SubnetRef};
use crate::core::address::{Address, Family};
use crate::core::compact;
use crate::core::types::{Claimant, Labels, Mac, Owner, OwnerUid, Scope, Slot, SlotKey};

/// Where an automatic grant may come from, and how large it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Wish {
    /// One family only.
    pub family: Option<Family>,
    /// One subnet only.
    pub subnet: Option<SubnetRef>,
    /// One pool, or all pools of a name, only.
    pub pool: Option<PoolRef>,
    /// Only subnets that serve this zone.
    pub zone: Option<CompactString>,
    /// A block instead of one address.
    #[serde(deserialize_with = "compact::some_prefix_length")]
    pub prefix_length: Option<u8>,
}

/// The MAC that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MacWish {
    /// Make one under the network's prefix.
    Auto,
    /// This one.
    Given(Mac),
}

/// Options of every grant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GrantOptions {
    /// Tells two owners of the same name apart.
    pub owner_uid: Option<OwnerUid>,
    /// Refuse with `already_exists` if the reservation exists.
    pub must_create: bool,
    /// If the slot holds another address, release that one in the same commit.
    pub replace: bool,
    /// Made for a machine that will soon be gone.
    pub transient: bool,
    /// Lease; none makes it permanent.
    pub ttl_seconds: Option<u64>,
    /// Who uses it.
    pub claimant: Option<Claimant>,
    /// Release it when the claimant is unbound.
    pub release_with_claimant: bool,
    /// Labels; if given, they replace those of an existing reservation.
    #[serde(deserialize_with = "compact::some_labels")]
    pub labels: Option<Labels>,
    /// Text for people.
    pub note: Option<CompactString>,
    /// Host name.
    pub hostname: Option<CompactString>,
    /// Hardware address.
    pub mac: Option<MacWish>,
    /// MACs that other networks of the realm were found to use: none of these is made. Known only where it is decided.
    #[serde(skip)]
    pub macs_elsewhere: Vec<Mac>,
}

/// `ip.allocate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocate {
    /// The owner and slot that ask.
    pub holder: SlotKey,
    /// Where the address may come from.
    pub wish: Wish,
    /// Further options.
    pub options: GrantOptions,
}

/// `ip.claim`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The owner and slot that ask.
    pub holder: SlotKey,
    /// The address, or the first of the block.
    pub address: Address,
    /// A block instead of one address.
    #[serde(deserialize_with = "compact::some_prefix_length")]
    pub prefix_length: Option<u8>,
    /// Allow addresses inside reserved ranges.
    pub force: bool,
    /// Further options.
    pub options: GrantOptions,
}

/// One of the addresses that an `ip.acquire` asks for in this network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquireItem {
    /// Its index in the request, counted over all networks.
    pub index: usize,
    /// The slot that it is for.
    pub slot: Slot,
    /// The address, if one is named; none asks for an automatic one.
    pub address: Option<Address>,
    /// Where it may come from. With a named address, only the prefix length counts; subnet, zone and family are checked
    /// against it.
    pub wish: Wish,
    /// Leave it out if there is no capacity.
    pub optional: bool,
}

/// The part of an `ip.acquire` that concerns this network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    /// Scope of the owner.
    pub scope: Scope,
    /// The owner.
    pub owner: Owner,
    /// The addresses that it asks for here, in the order of the request.
    pub items: Vec<AcquireItem>,
    /// Release everything else that the owner holds here.
    pub exact: bool,
    /// Further options; `exact` implies `replace`.
    pub options: GrantOptions,
}

impl Acquire {
    /// The slot that an item is for.
    pub fn slot(&self, item: &AcquireItem) -> SlotKey {
        SlotKey { scope: self.scope.clone(), owner: self.owner.clone(), slot: item.slot.clone() }
    }
}
