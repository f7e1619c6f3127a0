//! What a network is made of, as it is kept in memory and in the store: configuration, and what lies at an address.
//!
//! Everything that changes is a [`Step`]: *this key is in this state now*, with the state that it replaces. Steps are
//! states, not deltas, so playing one twice does no harm, and loading a network is applying what was stored.
//!
//! Neighbours: `network` decides and applies steps, `store::codec` writes them down.

use std::num::NonZeroU64;
use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::address::{Address, Cidr, Range};
use super::compact;
use super::deployment::Deployment;
use super::types::{
    Claimant, Generation, Labels, Mac, Name, NetworkId, Owner, OwnerUid, ShardTime, Slot, SlotKey, SubnetId, Version,
    WallTime,
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
    /// Claims that a failover cut off and that could not be given back; nothing new is granted before an operator has decided.
    /// Bounded by [`crate::limits::CONFLICTS_MAX`].
    pub conflicts: Vec<Conflict>,
}

/// A claim that was acknowledged, that a failover cut off, and that could not be given back (CONSISTENCY 9).
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
    pub scope: super::types::Scope,
    /// The owner.
    pub owner: super::types::Owner,
    /// One slot only; none for any slot of the owner.
    pub slot: Option<super::types::Slot>,
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

/// How a reservation came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReservationKind {
    /// The register chose the address.
    Dynamic,
    /// The owner named it.
    Static,
}

/// The end of a reservation that is not renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// When it ends.
    pub ends: ShardTime,
    /// How long it was asked for last, in seconds. Never none, so that a reservation without a lease is the smaller.
    pub ttl_seconds: NonZeroU64,
}

/// Let go by a deployment that has not been committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obsolete {
    /// Since when.
    pub since: WallTime,
    /// By which plan.
    pub plan: u64,
}

/// For whom an address is kept until who holds it lets it go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// By which plan.
    pub plan: u64,
    /// The instance that gets it, of the same scope.
    pub owner: Owner,
    /// For which of its slots.
    pub slot: Slot,
}

/// What a deployment has in mind with a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Planned {
    /// Its holder waits for an address that is promised to it, and lets this one go then: by which plan. Current until then.
    pub leaving: Option<u64>,
    /// Who gets the address when it is let go.
    pub promise: Option<Promise>,
    /// Who let it go for an address that has not come, and gets it back where that plan is reverted.
    pub back: Option<Promise>,
    /// A transient one that a plan did not list for the first time: by which plan.
    pub unlisted: Option<u64>,
    /// Granted by this plan, which was committed for its holder alone: a revert for others does not take it back.
    pub settled: Option<u64>,
    /// Obsolete until this plan made it current again, and what it was then: a revert makes it that again.
    pub revived: Option<(u64, Obsolete)>,
}

/// What few reservations carry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Details {
    /// Tells two owners of one name apart.
    pub owner_uid: Option<OwnerUid>,
    /// Labels.
    #[serde(deserialize_with = "compact::labels")]
    pub labels: Labels,
    /// Text for people; empty where there is none.
    pub note: CompactString,
    /// Host name; empty where there is none.
    pub hostname: CompactString,
    /// Hardware address, unique in its realm.
    pub mac: Option<Mac>,
}

/// An address, or an aligned block named by its first address, in the hands of an owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// 32 or 128 for one address.
    #[serde(deserialize_with = "compact::prefix_length")]
    pub prefix_length: u8,
    /// Who holds it.
    pub holder: SlotKey,
    /// Tells this holding from any other of the same address.
    pub generation: Generation,
    /// Chosen or named.
    pub kind: ReservationKind,
    /// When this holding began.
    pub created_at: WallTime,
    /// When it ends if not renewed; none is permanent.
    pub lease: Option<Lease>,
    /// Made for a machine that is soon gone.
    pub transient: bool,
    /// Released when its claimant is unbound.
    pub release_with_claimant: bool,
    /// Who uses it now.
    pub claimant: Option<Claimant>,
    /// Let go by an uncommitted deployment. Few are: boxed, so that all others are the smaller.
    pub obsolete: Option<Box<Obsolete>>,
    /// The plan of its deployment that granted it.
    pub granted_by: Option<NonZeroU64>,
    /// What its deployment has in mind with it.
    pub planned: Option<Box<Planned>>,
    /// What few reservations carry.
    pub details: Option<Box<Details>>,
}

impl Reservation {
    /// A dynamic one for good, about which nothing more was said.
    pub fn plain(holder: SlotKey, generation: Generation, prefix_length: u8, created_at: WallTime) -> Self {
        Self {
            prefix_length,
            holder,
            generation,
            kind: ReservationKind::Dynamic,
            created_at,
            lease: None,
            transient: false,
            release_with_claimant: false,
            claimant: None,
            obsolete: None,
            granted_by: None,
            planned: None,
            details: None,
        }
    }
}

/// An address that was let go and cools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// Length of what was held.
    #[serde(deserialize_with = "compact::prefix_length")]
    pub prefix_length: u8,
    /// Who held it last; gets it back while it cools.
    pub last: SlotKey,
    /// Which of all owners of that name it was, if that was known.
    pub owner_uid: Option<OwnerUid>,
    /// Generation of that holding.
    pub generation: Generation,
    /// When it was let go; cools for as long as the network's configuration says now.
    pub released_at: ShardTime,
}

/// An address at which somebody else answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declined {
    /// Length of what was held.
    #[serde(deserialize_with = "compact::prefix_length")]
    pub prefix_length: u8,
    /// Who held and declined it.
    pub by: SlotKey,
    /// Generation of that holding.
    pub generation: Generation,
    /// When it comes back into circulation.
    pub until: ShardTime,
    /// What was seen there, in the decliner's words.
    pub seen: CompactString,
}

/// What lies at an address. An address without one is free, or unusable by configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// Held.
    Held(Arc<Reservation>),
    /// Let go, cooling.
    Released(Arc<Released>),
    /// Out of circulation for its probation.
    Declined(Arc<Declined>),
}

impl Reservation {
    /// Who gets the address when it is let go.
    pub fn promise(&self) -> Option<&Promise> {
        self.planned.as_ref()?.promise.as_ref()
    }

    /// The plan by which its holder lets it go when what is promised to it comes.
    pub fn leaving(&self) -> Option<u64> {
        self.planned.as_ref()?.leaving
    }
}

impl Entry {
    /// Generation of the holding that it is or was: what a change of this address expects to find.
    pub fn generation(&self) -> Generation {
        match self {
            Entry::Held(reservation) => reservation.generation,
            Entry::Released(released) => released.generation,
            Entry::Declined(declined) => declined.generation,
        }
    }

    /// The same in a shard whose time is `there` when that of its own is `here`: what is left of a lease, a cooldown or a
    /// probation stays as long as it was.
    pub fn in_time_of(mut self, here: ShardTime, there: ShardTime) -> Self {
        if here == there {
            return self;
        }
        // What is further back than that shard's time reaches ends late, never early.
        let moved = |time: ShardTime| ShardTime(time.0.saturating_add(there.0).saturating_sub(here.0));
        match &mut self {
            Entry::Held(reservation) => {
                if let Some(lease) = reservation.lease {
                    Arc::make_mut(reservation).lease = Some(Lease { ends: moved(lease.ends), ..lease });
                }
            }
            Entry::Released(released) => {
                let released = Arc::make_mut(released);
                released.released_at = moved(released.released_at);
            }
            Entry::Declined(declined) => {
                let declined = Arc::make_mut(declined);
                declined.until = moved(declined.until);
            }
        }
        self
    }

    /// Prefix length of what it covers.
    pub fn prefix_length(&self) -> u8 {
        match self {
            Entry::Held(reservation) => reservation.prefix_length,
            Entry::Released(released) => released.prefix_length,
            Entry::Declined(declined) => declined.prefix_length,
        }
    }
}

/// What a change speaks of, inside one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The network's configuration.
    Config,
    /// One subnet's.
    Subnet(SubnetId),
    /// The record of a deployment, where a network has its configuration.
    Deployment,
    /// One address, or the block that begins there.
    Address(Address),
}

/// The state of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Of [`Key::Config`].
    Config(Arc<NetworkConfig>),
    /// Of [`Key::Subnet`].
    Subnet(Arc<SubnetConfig>),
    /// Of [`Key::Deployment`].
    Deployment(Arc<Deployment>),
    /// Of [`Key::Address`].
    Entry(Entry),
}

impl State {
    /// The number that a change of this key must expect: a generation for addresses, a version for configuration.
    pub fn mark(&self) -> u64 {
        match self {
            State::Config(config) => config.version.0,
            State::Subnet(subnet) => subnet.version.0,
            State::Deployment(deployment) => deployment.version.0,
            State::Entry(entry) => entry.generation().0,
        }
    }
}

/// Why a step happened, as the history tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventKind {
    /// An owner got the address.
    Granted,
    /// Its lease changed.
    Renewed,
    /// A claimant began to use it.
    Bound,
    /// Its claimant let go.
    Unbound,
    /// Labels, note, host name, MAC or owner_uid changed.
    Updated,
    /// It went to another owner.
    Transferred,
    /// A deployment lets it go, not committed.
    Obsolete,
    /// Its owner, or somebody with force, let it go.
    Released,
    /// Its lease ended.
    Expired,
    /// A sweep let it go.
    Swept,
    /// A deployment was taken back.
    Reverted,
    /// Somebody else answers there.
    Declined,
    /// Restored after a store went back.
    Healed,
    /// Claimed twice after a failover.
    Conflict,
    /// The network came to be.
    NetworkCreated,
    /// Its configuration changed.
    NetworkChanged,
    /// It was deleted.
    NetworkDeleted,
    /// It was brought back.
    NetworkRestored,
}

/// What the history notes beside a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The holding as it was before, where there was one.
    pub before: Option<Arc<Reservation>>,
}

/// One change: `key` is in `state` now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What changes.
    pub key: Key,
    /// [`State::mark`] of what it replaces; none where nothing was there.
    pub expect: Option<u64>,
    /// What is there now; none: nothing.
    pub state: Option<State>,
    /// What the history tells; none for the part of a change that another step tells.
    pub event: Option<Event>,
}
