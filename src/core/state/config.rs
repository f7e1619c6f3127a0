//! What is configured: a network, its subnets, their pools and reserved ranges; and the conflicts that are open after a
//! failover.
//!
//! `network` decides which configurations are valid (`configure`).

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::{Details, Reservation};
use crate::core::address::{Address, Cidr, Range};
use crate::core::compact;
use crate::core::types::{
    Generation, Labels, Mac, Name, NetworkId, Owner, Scope, Slot, SlotKey, SubnetId, Version, WallTime,
};

/// What a network is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NetworkKind {
    /// The register picks and keeps the addresses.
    Manual,
    /// The infrastructure picks the addresses; the register records them.
    Dynamic,
    /// Addresses that move between owners.
    Vip,
}

/// Which free address of a pool is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// The lowest free one.
    Lowest,
    /// Any free one, all with the same chance.
    Random,
    /// The one that has been free for the longest time; addresses that were never used come first.
    Oldest,
}

/// The link layer of a network. Mode and link are recorded only; no decision depends on them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct L2 {
    /// How interfaces are attached: `bridged`, `routed`, ….
    pub mode: Option<CompactString>,
    /// What they are attached to: `br0`.
    pub link: Option<CompactString>,
    /// First three bytes of the MACs that the network makes, such as `aa:00:00`.
    pub mac_prefix: Option<CompactString>,
}

/// How many current reservations one owner or scope may hold in a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Of one owner in one scope.
    pub per_owner: Option<u64>,
    /// Of one scope.
    pub per_scope: Option<u64>,
}

/// Configuration of a network without its subnets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkConfig {
    /// Random identity.
    pub id: NetworkId,
    /// Unique over all realms while the network is not closed.
    pub name: Name,
    /// Inside one realm no address belongs to two networks.
    pub realm: Name,
    /// What it is for.
    pub kind: NetworkKind,
    /// Link layer.
    pub l2: L2,
    /// Which free address is given.
    pub policy: Policy,
    /// For how long a released address is withheld from other owners.
    pub cooldown_seconds: u64,
    /// Cooling addresses are handed out when no other is free.
    pub cooldown_yields: bool,
    /// Claims are allowed only inside static pools.
    pub static_only: bool,
    /// The network cannot be deleted.
    pub protected: bool,
    /// Limits per owner and scope.
    pub limits: Limits,
    /// Tags.
    #[serde(deserialize_with = "compact::labels")]
    pub tags: Labels,
    /// Text for people.
    pub description: CompactString,
    /// Rises by one with each change of the configuration, subnets included.
    pub version: Version,
    /// When it was created.
    pub created_at: WallTime,
    /// Deleted but not gone: it grants nothing, and its space stays taken until nothing is held in it.
    pub closed: bool,
    /// Closed for good: whichever node owns the register lets go of what is held, step by step, and the network ends with
    /// the last.
    pub purged: bool,
    /// Claims that a failover cut off and that could not be given back. Nothing new is granted until an operator has decided
    /// them. At most [`crate::limits::CONFLICTS_MAX`].
    pub conflicts: Vec<Conflict>,
}

/// A claim that was acknowledged, then cut off by a failover, and that could not be given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The address that was held, or the first one of a block.
    pub address: Address,
    /// 32 or 128 for one address.
    pub prefix_length: u8,
    /// Who was told that they hold it.
    pub holder: SlotKey,
    /// The generation of that holding.
    pub generation: Generation,
    /// When they were granted it.
    pub granted_at: WallTime,
    /// When the conflict was found.
    pub found_at: WallTime,
    /// The MAC that the holding had: a conflict may be over nothing else. A conflict that an earlier version noted has none.
    pub mac: Option<Mac>,
}

impl Conflict {
    /// The conflict over this late claim, found now.
    pub fn of(address: Address, late: &Reservation, now: WallTime) -> Self {
        let &Reservation { prefix_length, ref holder, generation, created_at: granted_at, .. } = late;
        let (holder, mac) = (holder.clone(), late.details.as_ref().and_then(|details| details.mac));
        Self { address, prefix_length, holder, generation, granted_at, found_at: now, mac }
    }

    /// The late claim, as far as it is kept.
    pub fn late(&self) -> Reservation {
        let &Self { prefix_length, ref holder, generation, granted_at, mac, .. } = self;
        let details = mac.map(|mac| Box::new(Details { mac: Some(mac), ..Details::default() }));
        Reservation { details, ..Reservation::plain(holder.clone(), generation, prefix_length, granted_at) }
    }

    /// Is this the conflict over that claim?
    pub fn is_of(&self, address: Address, late: &Reservation) -> bool {
        (self.address, self.generation) == (address, late.generation) && self.holder == late.holder
    }
}

/// DNS settings of a subnet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Dns {
    /// Addresses of servers, in order.
    pub servers: Vec<Address>,
    /// Search domains, in order.
    pub search: Vec<CompactString>,
}

/// What a pool is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolKind {
    /// Automatic allocation draws from it.
    Dynamic,
    /// Only claims take addresses from it.
    Static,
}

/// A range of a subnet from which addresses are given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolConfig {
    /// Its addresses.
    pub range: Range,
    /// Several pools may share a name.
    pub name: Option<Name>,
    /// Dynamic or static.
    pub kind: PoolKind,
    /// Nothing new is granted from it.
    pub draining: bool,
    /// Reservations from this generation on were made while the pool was as it is now.
    pub since: Generation,
}

/// A former state of a pool, kept so that a repeated request still matches what was granted in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastPool {
    /// Its addresses then.
    pub range: Range,
    /// Its name then.
    pub name: Option<Name>,
    /// First generation that was granted while it was so.
    pub since: Generation,
    /// First generation that was granted after it changed.
    pub until: Generation,
}

/// For whom a reserved range is set aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedFor {
    /// Scope of the owner; `default` if none was given.
    pub scope: Scope,
    /// The owner.
    pub owner: Owner,
    /// One slot only; none means any slot of the owner.
    pub slot: Option<Slot>,
}

/// An external reservation: addresses that are never handed out automatically.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedRange {
    /// The addresses.
    pub range: Range,
    /// Text for people.
    pub note: CompactString,
    /// Who may claim in it without force.
    pub reserved_for: Option<ReservedFor>,
}

/// Configuration of a subnet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetConfig {
    /// Random identity.
    pub id: SubnetId,
    /// Unique within the network.
    pub name: Option<Name>,
    /// Its addresses.
    pub cidr: Cidr,
    /// The gateway; never handed out.
    pub gateway: Option<Address>,
    /// Whether DHCP serves it; at most one subnet per family in a network.
    pub dhcp: bool,
    /// DNS settings.
    pub dns: Dns,
    /// The zones that it serves, sorted and distinct; an empty list means every zone.
    pub zones: Vec<CompactString>,
    /// Tags.
    #[serde(deserialize_with = "compact::labels")]
    pub tags: Labels,
    /// Nothing new is granted in it.
    pub draining: bool,
    /// In the order in which they were added; the parts of a split pool stand where the pool stood. They never overlap.
    pub pools: Vec<PoolConfig>,
    /// Reserved ranges, ascending; they never overlap.
    pub reserved: Vec<ReservedRange>,
    /// Former states of pools; at most [`crate::limits::PAST_POOLS_MAX`].
    pub past_pools: Vec<PastPool>,
    /// Its place among the subnets of the network, which are drawn from in ascending order.
    pub position: u64,
    /// Version of the network when the subnet last changed.
    pub version: Version,
}

impl SubnetConfig {
    /// Generations that are granted from now on are at least this: the pools already refer to it.
    pub fn first_generation(&self) -> Generation {
        let pools = self.pools.iter().map(|pool| pool.since);
        pools.chain(self.past_pools.iter().map(|past| past.until)).max().unwrap_or_default()
    }
}
