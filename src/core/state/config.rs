//! What is configured: a network, its subnets, their pools and reserved ranges; and what stays open in it after a failover.
//!
//! Which configuration may be, `network` decides (`configure`).

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::Reservation;
use crate::core::address::{Address, Cidr, Range};
use crate::core::compact;
use crate::core::types::{
    Generation, Labels, Name, NetworkId, Owner, Scope, Slot, SlotKey, SubnetId, Version, WallTime,
};

/// What a network is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NetworkKind {
    /// The register picks and keeps the addresses.
    Manual,
    /// The infrastructure picks; the register notes.
    Dynamic,
    /// Addresses that move between owners.
    Vip,
}

/// Which free address of a pool is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// The lowest.
    Lowest,
    /// Any, evenly.
    Random,
    /// The one that was free for the longest time; never used ones first.
    Oldest,
}

/// The link layer of a network; nothing is decided by mode and link.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct L2 {
    /// How interfaces are attached: `bridged`, `routed`, ….
    pub mode: Option<CompactString>,
    /// What they are attached to: `br0`.
    pub link: Option<CompactString>,
    /// First three bytes of the MACs that are made here, `aa:00:00`.
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

/// Configuration of a network, its subnets apart.
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
    /// Which free address is taken.
    pub policy: Policy,
    /// For how long a released address is kept from other owners.
    pub cooldown_seconds: u64,
    /// Cooling addresses are handed out when nothing else is free.
    pub cooldown_yields: bool,
    /// Claims only inside static pools.
    pub static_only: bool,
    /// Cannot be deleted.
    pub protected: bool,
    /// Bounds per owner and scope.
    pub limits: Limits,
    /// Tags.
    #[serde(deserialize_with = "compact::labels")]
    pub tags: Labels,
    /// Text for people.
    pub description: CompactString,
    /// Rises by one with each change of configuration, subnets included.
    pub version: Version,
    /// When it was created.
    pub created_at: WallTime,
    /// Deleted but remembered: no grants, its space stays guarded until nothing is held any more.
    pub closed: bool,
    /// Closed for good: what is held is let go of step by step, by whoever owns the register then, and with it the network ends.
    pub purged: bool,
    /// Claims that a failover cut off and that could not be given back; nothing new is granted before an operator has decided.
    /// Bounded by [`crate::limits::CONFLICTS_MAX`].
    pub conflicts: Vec<Conflict>,
}

/// A claim that was acknowledged, that a failover cut off, and that could not be given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// What was held: the first address.
    pub address: Address,
    /// Of one address 32 or 128.
    pub prefix_length: u8,
    /// Who was told that it was his.
    pub holder: SlotKey,
    /// Under which generation.
    pub generation: Generation,
    /// When he was told so.
    pub granted_at: WallTime,
    /// When it was found.
    pub found_at: WallTime,
}

impl Conflict {
    /// A claim of this, found now.
    pub fn of(address: Address, late: &Reservation, now: WallTime) -> Self {
        let &Reservation { prefix_length, ref holder, generation, created_at, .. } = late;
        Self { address, prefix_length, holder: holder.clone(), generation, granted_at: created_at, found_at: now }
    }

    /// Is it the conflict over this claim?
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
    /// For claims.
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
    /// Nothing new is granted.
    pub draining: bool,
    /// Reservations from this generation on were made while the pool was as it is.
    pub since: Generation,
}

/// A pool as it was before it changed, so that what was granted in it still matches a repeated request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastPool {
    /// Its addresses then.
    pub range: Range,
    /// Its name then.
    pub name: Option<Name>,
    /// First generation granted while it was so.
    pub since: Generation,
    /// First generation granted after it changed.
    pub until: Generation,
}

/// For whom a reserved range is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedFor {
    /// Scope of the owner; `default` where none was given.
    pub scope: Scope,
    /// The owner.
    pub owner: Owner,
    /// One slot only; none for any slot of the owner.
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
    /// Never handed out.
    pub gateway: Option<Address>,
    /// At most one subnet per family in a network.
    pub dhcp: bool,
    /// DNS settings.
    pub dns: Dns,
    /// Zones that it serves; none serves every zone. Sorted, each once.
    pub zones: Vec<CompactString>,
    /// Tags.
    #[serde(deserialize_with = "compact::labels")]
    pub tags: Labels,
    /// Nothing new is granted.
    pub draining: bool,
    /// In the order they were added; the parts of a split pool stand where it stood. Never overlapping.
    pub pools: Vec<PoolConfig>,
    /// Ascending, never overlapping.
    pub reserved: Vec<ReservedRange>,
    /// Pools as they were; bounded by [`crate::limits::PAST_POOLS_MAX`].
    pub past_pools: Vec<PastPool>,
    /// Place among the subnets of the network: drawn in ascending order.
    pub position: u64,
    /// Version of the network at its last change.
    pub version: Version,
}

impl SubnetConfig {
    /// No generation below this one is given any more: its pools name it as one that was given.
    pub fn first_generation(&self) -> Generation {
        let pools = self.pools.iter().map(|pool| pool.since);
        pools.chain(self.past_pools.iter().map(|past| past.until)).max().unwrap_or_default()
    }
}
