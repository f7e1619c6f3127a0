//! What grants: `ip.allocate`, `ip.claim`, and the part of an `ip.acquire` that falls on one network.

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
    /// Some pools only.
    pub pool: Option<PoolRef>,
    /// Subnets that serve this zone only.
    pub zone: Option<CompactString>,
    /// A block instead of one address.
    #[serde(deserialize_with = "compact::some_prefix_length")]
    pub prefix_length: Option<u8>,
}

/// The MAC of a reservation, as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MacWish {
    /// Make one under the network's prefix.
    Auto,
    /// This one.
    Given(Mac),
}

/// What may be said with every grant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GrantOptions {
    /// Tells two owners of one name apart.
    pub owner_uid: Option<OwnerUid>,
    /// What exists already is `already_exists`.
    pub must_create: bool,
    /// Where the slot holds another address, it is released in the same commit.
    pub replace: bool,
    /// Made for a machine that is soon gone.
    pub transient: bool,
    /// Lease; none is permanent.
    pub ttl_seconds: Option<u64>,
    /// Who uses it.
    pub claimant: Option<Claimant>,
    /// Released when the claimant is unbound.
    pub release_with_claimant: bool,
    /// Labels; given, they replace those of an existing reservation.
    #[serde(deserialize_with = "compact::some_labels")]
    pub labels: Option<Labels>,
    /// Text for people.
    pub note: Option<CompactString>,
    /// Host name.
    pub hostname: Option<CompactString>,
    /// Hardware address.
    pub mac: Option<MacWish>,
}

/// `ip.allocate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocate {
    /// Who asks, for which slot.
    pub holder: SlotKey,
    /// Where from.
    pub wish: Wish,
    /// The rest.
    pub options: GrantOptions,
}

/// `ip.claim`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Who asks, for which slot.
    pub holder: SlotKey,
    /// The address, or the first of the block.
    pub address: Address,
    /// A block instead of one address.
    #[serde(deserialize_with = "compact::some_prefix_length")]
    pub prefix_length: Option<u8>,
    /// Also inside reserved ranges.
    pub force: bool,
    /// The rest.
    pub options: GrantOptions,
}

/// One of the addresses of an `ip.acquire` in this network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquireItem {
    /// Its place in the request, over all networks.
    pub index: usize,
    /// The slot.
    pub slot: Slot,
    /// Named, or none for an automatic one.
    pub address: Option<Address>,
    /// Where from; of a named one only the prefix length counts, and subnet, zone and family are checked.
    pub wish: Wish,
    /// Left out where there is no capacity.
    pub optional: bool,
}

/// The part of an `ip.acquire` that falls on this network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquire {
    /// Scope of the owner.
    pub scope: Scope,
    /// The owner.
    pub owner: Owner,
    /// What it wants here, in the order asked.
    pub items: Vec<AcquireItem>,
    /// Release what else the owner holds here.
    pub exact: bool,
    /// The rest; `replace` is implied by `exact`.
    pub options: GrantOptions,
}

impl Acquire {
    /// The slot that an item is for.
    pub fn slot(&self, item: &AcquireItem) -> SlotKey {
        SlotKey { scope: self.scope.clone(), owner: self.owner.clone(), slot: item.slot.clone() }
    }
}
