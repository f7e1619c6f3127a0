//! What can be asked of one network: the input of `decide`, in the words of the protocol.
//!
//! A command is complete: it carries no clock and no randomness (see [`Context`]), and only the network's state is needed to
//! decide it. A method over several networks becomes one command for each.
//!
//! This file has [`Command`] itself and the types that several methods share; `grant`, `holding`, `sweep` and `configure`
//! have those of their methods.

mod configure;
mod grant;
mod holding;
mod sweep;

use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

pub use self::configure::{
    Configure, DnsPatch, L2Patch, LimitsPatch, NetworkInput, NetworkPatch, PoolInput, PoolPatch, PoolRemoval,
    ReservedInput, SubnetEntry, SubnetInput, SubnetPatch,
};
pub use self::grant::{Acquire, AcquireItem, Allocate, Claim, GrantOptions, MacWish, Wish};
pub use self::holding::{Decline, Filter, ListRest, ListSlice, Release, ReservationPatch, Target, Transfer};
pub use self::sweep::{Binding, MissNumber, SweepLook};
use super::address::{Address, Cidr, Range};
use super::compact;
use super::deployment::{Deploy, Settle};
use super::state::{Entry, SubnetConfig};
use super::types::{Claimant, Generation, Mac, Name, Owner, Scope, ShardTime, SubnetId, Version, WallTime};
use crate::limits::MAP_CELLS_FITTING_MAX;

/// Everything that can be asked of one network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// `ip.allocate`.
    Allocate(Box<Allocate>),
    /// `ip.claim`.
    Claim(Box<Claim>),
    /// The part of `ip.acquire` that concerns this network.
    Acquire(Box<Acquire>),
    /// `ip.release`.
    Release(Box<Release>),
    /// `ip.renew` with the new TTL; none makes the reservation permanent.
    Renew(Box<Target>, Option<u64>),
    /// `ip.bind`.
    Bind(Box<Target>, Claimant),
    /// `ip.unbind`, with the claimant if one was named.
    Unbind(Box<Target>, Option<Claimant>),
    /// `ip.update`.
    Update(Box<Target>, Box<ReservationPatch>),
    /// `ip.transfer`.
    Transfer(Box<Transfer>),
    /// `ip.decline`.
    Decline(Box<Decline>),
    /// `ip.get`, `ip.find`.
    Get(Address),
    /// A slice of `ip.list`.
    List(Box<ListSlice>),
    /// A slice of `owner.release`: at most `limit`.
    ReleaseOwner {
        /// Scope of the owner.
        scope: Scope,
        /// The owner.
        owner: Owner,
        /// How many at most.
        limit: usize,
    },
    /// A slice of `scope.release`: at most `limit`.
    ReleaseScope {
        /// The scope.
        scope: Scope,
        /// How many at most.
        limit: usize,
    },
    /// A slice of the look of a `claimant.sweep`.
    SweepLook(Box<SweepLook>),
    /// A slice of the act of a `claimant.sweep`: lets go of those bindings that are still as they were judged.
    Sweep(Vec<Binding>),
    /// A slice of emptying a network that is being purged: at most `limit` entries.
    Purge {
        /// How many at most.
        limit: usize,
    },
    /// `network.get`.
    Show,
    /// `network.usage`.
    Usage,
    /// `network.map`.
    Map {
        /// One subnet only; one pool or all pools of a name only.
        part: Box<(Option<SubnetRef>, Option<PoolRef>)>,
        /// How to draw it.
        format: MapFormat,
        /// Where a map in cells goes on.
        from: Option<Box<MapPlace>>,
    },
    /// A slice of `scope.list`: at most `limit` scopes after this one, and at most as many as one turn may look at.
    Scopes {
        /// The scope after which the slice begins.
        after: Option<Scope>,
        /// How many at most.
        limit: usize,
    },
    /// A change of configuration.
    Configure {
        /// The change.
        change: Box<Configure>,
        /// Refuses the change if the network has another version.
        if_version: Option<Version>,
    },
    /// Takes a subnet out for `subnet.move`. The outcome is what [`Command::MoveIn`] needs.
    MoveOut {
        /// The subnet.
        subnet: SubnetRef,
        /// Refuses the move if the network has another version.
        if_version: Option<Version>,
        /// The bytes that may move at once. None only judges the subnet, and leaves out what lies in it.
        bytes_max: Option<usize>,
    },
    /// Takes in what another network gave up, with its generations.
    MoveIn(Box<Moved>),
    /// The part of `deployment.plan` or `deployment.apply` that concerns this network.
    Deploy(Box<Deploy>),
    /// The part of `deployment.commit` or `deployment.revert` that concerns this network.
    Settle(Box<Settle>),
    /// Brings what was acknowledged on a line that a failover cut off.
    Heal(Box<Heal>),
    /// `cluster.conflicts`.
    Conflicts,
    /// `cluster.accept`: of the conflict at this address, or of all.
    Accept(Option<Address>),
    /// Ends leases, cooldowns and probations that are due, at most [`crate::limits::EXPIRE_STEPS_MAX`] at a time.
    Expire,
    /// Asks what ties instances of a deployment to zones, before the addresses of a group are dealt.
    ZoneTies(Box<Deploy>),
    /// Asks why `deployment.commit` would be refused here.
    Hindered(Box<Settle>),
}

impl Command {
    /// Does the command only read?
    pub fn is_read(&self) -> bool {
        match self {
            Command::Get(_)
            | Command::List(_)
            | Command::SweepLook(_)
            | Command::Show
            | Command::Usage
            | Command::Map { .. }
            | Command::Conflicts
            | Command::ZoneTies(_)
            | Command::Hindered(_)
            | Command::Scopes { .. } => true,
            Command::Allocate(_)
            | Command::Claim(_)
            | Command::Acquire(_)
            | Command::Release(_)
            | Command::Renew(..)
            | Command::Bind(..)
            | Command::Unbind(..)
            | Command::Update(..)
            | Command::Transfer(_)
            | Command::Decline(_)
            | Command::ReleaseOwner { .. }
            | Command::ReleaseScope { .. }
            | Command::Sweep(_)
            | Command::Purge { .. }
            | Command::Configure { .. }
            | Command::MoveOut { .. }
            | Command::MoveIn(_)
            | Command::Deploy(_)
            | Command::Settle(_)
            | Command::Heal(_)
            | Command::Accept(_)
            | Command::Expire => false,
        }
    }

    /// Is the command asked for the sake of what it shows? The other reads are parts of a method that changes something.
    pub fn shows(&self) -> bool {
        self.is_read() && !matches!(self, Command::SweepLook(_) | Command::ZoneTies(_))
    }

    /// Does the command take nothing new, so that it may pass even when the disk is full?
    pub fn lets_go(&self) -> bool {
        match self {
            Command::Release(_)
            | Command::ReleaseOwner { .. }
            | Command::ReleaseScope { .. }
            | Command::Sweep(_)
            | Command::Purge { .. }
            | Command::Unbind(..)
            | Command::Expire
            | Command::Settle(_) => true,
            Command::Configure { change, .. } => matches!(**change, Configure::Delete { .. }),
            _ => self.is_read(), // Of all others, only reads count.
        }
    }
}

/// A subnet on its way from one network to another, with everything that lies in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The subnet.
    pub subnet: Arc<SubnetConfig>,
    /// What lies in it, ascending.
    #[serde(deserialize_with = "compact::entries")]
    pub entries: Vec<(Address, Entry)>,
    /// The time of the shard that it leaves; the times in its entries refer to it.
    pub now: ShardTime,
    /// The receiving network must give no generation below this one.
    pub next_generation: Generation,
}

impl Moved {
    /// How many reservations lie in it, and the first ten of them.
    pub fn held(&self) -> (u64, Vec<Address>) {
        let held = || self.entries.iter().filter(|(_, entry)| matches!(entry, Entry::Held(_))).map(|(at, _)| *at);
        (held().count() as u64, held().take(10).collect())
    }
}

/// Claims that were acknowledged but are missing from the register: see `core::network::heal`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heal {
    /// What is held, as its holder was told, by first address; at most [`crate::limits::LATE_CLAIMS_MAX`].
    #[serde(deserialize_with = "compact::entries")]
    pub claims: Vec<(Address, Entry)>,
    /// Those claims that are renewals, on the line that was cut off, of something held before.
    pub renewed: Vec<LateRenewal>,
    /// Another network of the realm has these addresses by now.
    pub elsewhere: bool,
}

/// A late claim that is a renewal: the line that goes on has, or had, what its holder had before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateRenewal {
    /// The address.
    pub address: Address,
    /// The generation of the holding.
    pub generation: Generation,
    /// When the lease would have ended before the renewal. If the address became free before that, it was let go.
    pub ended: ShardTime,
}

/// How `network.map` draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MapFormat {
    /// One character per address.
    Text,
    /// Runs of equal state.
    Runs,
    /// Counts per cell.
    Cells(CellSize),
}

/// The size of the cells in which `network.map` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum CellSize {
    /// This prefix length.
    Prefix(u8),
    /// In each pool the smallest cells of which it has at most [`MAP_CELLS_FITTING_MAX`].
    Fitting,
}

impl CellSize {
    /// In one byte: no prefix length, so a version that knows none but these refuses it.
    const FITTING: u8 = u8::MAX;

    /// The prefix length of the cells of a pool.
    pub fn prefix_length(self, pool: Range) -> u8 {
        match self {
            Self::Prefix(length) => length,
            Self::Fitting => {
                let (first, last) = (pool.first().bits(), pool.last().bits());
                let width = pool.family().width();
                // A whole IPv6 address space has one cell.
                let cells = |host_bits: u8| match last.checked_shr(host_bits.into()) {
                    Some(last) => last - (first >> host_bits),
                    None => 0,
                };
                let fits = |host_bits: &u8| cells(*host_bits) < MAP_CELLS_FITTING_MAX;
                width - (0..width).find(fits).unwrap_or(width)
            }
        }
    }
}

impl From<CellSize> for u8 {
    fn from(size: CellSize) -> Self {
        match size {
            CellSize::Prefix(length) => length,
            CellSize::Fitting => CellSize::FITTING,
        }
    }
}

impl TryFrom<u8> for CellSize {
    type Error = String;

    fn try_from(length: u8) -> Result<Self, String> {
        match length {
            0..=128 => Ok(Self::Prefix(length)),
            Self::FITTING => Ok(Self::Fitting),
            _ => Err(format!("{length} is not a prefix length")),
        }
    }
}

/// Where the next slice of a `network.map` in cells begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapPlace {
    /// Version of the network when its pools were listed.
    pub version: Version,
    /// The pool.
    pub pool: Range,
    /// The first address that is not counted yet.
    pub at: Address,
}

/// What a decision depends on besides state and command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The shard's time.
    pub now: ShardTime,
    /// The wall clock, for what people read.
    pub wall: WallTime,
    /// Fresh random bits, the source of new ids and of the random policy.
    pub entropy: u128,
    /// A MAC that the command may ask for although another network of the realm uses it, and the address there.
    pub mac_elsewhere: Option<(Mac, Address)>,
    /// The first of a run of generations that are reserved for this decision, as many as it grants. No other network draws
    /// from this run, because a subnet that moves takes the generations of its reservations along.
    pub generations: Generation,
}

/// Draw number `index` from the entropy of one context. Every bit of it depends on all of the entropy.
pub fn mixed(entropy: u128, index: u64) -> u128 {
    // SplitMix64 over both halves.
    let mix = |mut z: u64| {
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let (high, low) = ((entropy >> 64) as u64, entropy as u64);
    u128::from(mix(high ^ mix(index))) << 64 | u128::from(mix(low.wrapping_add(index) ^ high.rotate_left(17)))
}

/// A new identity, for commands that make several things. Version and variant bits are those of a UUID v4.
pub fn derived_id(entropy: u128, index: u64) -> u128 {
    (mixed(entropy, index) & !(0xf << 76) & !(0b11 << 62)) | (0x4 << 76) | (0b10 << 62)
}

/// Identity of a new subnet.
pub fn subnet_id(entropy: u128, index: u64) -> SubnetId {
    SubnetId(derived_id(entropy, index))
}

/// A subnet as a client names it. A text that is not a prefix is looked up as a name first, then as an id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SubnetRef {
    /// By its prefix.
    Cidr(Cidr),
    /// By its name, or its id in text form.
    Named(CompactString),
}

/// Pools as a client names them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolRef {
    /// The one pool with exactly this range.
    Range(Range),
    /// All pools of this name.
    Named(Name),
}

/// A change of one member: it is kept, removed or set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Patch<T> {
    /// Not mentioned.
    #[default]
    Keep,
    /// `null`.
    Clear,
    /// A value.
    Set(T),
}

impl<T> Patch<T> {
    /// The new value, if there is one.
    pub fn given(&self) -> Option<&T> {
        match self {
            Patch::Set(value) => Some(value),
            Patch::Keep | Patch::Clear => None,
        }
    }
}

/// A merge patch of labels or tags: each key set or removed.
pub type LabelsPatch = Vec<(CompactString, Option<CompactString>)>;
