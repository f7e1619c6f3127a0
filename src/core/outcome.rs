//! The results of decisions: facts, which the server turns into JSON.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::address::{Address, Cidr, Range};
use super::command::{Binding, Command, ListRest, MapPlace, Moved};
use super::compact;
use super::deployment::Deployed;
use super::refusal::Refusal;
use super::state::{
    Conflict, Entry, EventKind, NetworkConfig, PoolKind, Reservation, ReservationKind, State, Step, SubnetConfig,
};
use super::types::{Claimant, Mac, Name, NetworkId, Owner, Place, Scope, Version, WallTime};
use super::zones::ZoneFacts;

/// What `decide` returns unless it refuses.
#[derive(Debug, PartialEq, Eq)]
pub struct Decision {
    /// The changes, in order. Empty for reads, and if everything was so already.
    pub steps: Vec<Step>,
    /// The answer that is sent once the steps are durable.
    pub outcome: Outcome,
}

impl Decision {
    /// Does anybody get something that they did not have? What is given back does not count.
    pub fn grants(&self) -> bool {
        self.granted().next().is_some()
    }

    /// The steps by which somebody gets something that they did not have.
    pub fn granted(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.event.as_ref().is_some_and(|event| event.kind == EventKind::Granted))
    }

    /// Does anybody get an address that the server chose? A bind does not count: it records what the infrastructure chose.
    pub fn chooses(&self, command: &Command) -> bool {
        if matches!(command, Command::Bind(..)) {
            return false;
        }
        let chosen =
            |state: &State| matches!(state, State::Entry(Entry::Held(held)) if held.kind == ReservationKind::Dynamic);
        self.granted().any(|step| step.state.as_ref().is_some_and(chosen))
            || matches!(self.outcome, Outcome::Deployed { dealt: true, .. })
    }
}

/// A reservation with everything that the protocol shows of it. Network and subnet are shown as they are now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The network.
    #[serde(with = "compact::shared_network")]
    pub network: Arc<NetworkConfig>,
    /// The subnet in which it lies, if that still exists.
    #[serde(with = "compact::shared_subnet")]
    pub subnet: Option<Arc<SubnetConfig>>,
    /// Index of its pool in the subnet, if it lies in a pool.
    pub pool: Option<usize>,
    /// The address, or the first of the block.
    pub address: Address,
    /// What is held.
    pub reservation: Arc<Reservation>,
    /// When its lease ends by the wall clock, and the whole seconds until then.
    pub expires: Option<(WallTime, u64)>,
}

/// A grant: the reservation and how it came about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// What is held now.
    pub view: View,
    /// False if it existed already.
    pub created: bool,
    /// Who used it before this request bound another claimant.
    pub previous_claimant: Option<Claimant>,
    /// The address that the slot held before, released by `replace`.
    pub replaced: Option<Address>,
}

/// State of an address, as `ip.get` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressState {
    /// Somebody holds it, or the block that it lies in.
    Held,
    /// Nobody holds it.
    Free,
    /// Withheld from automatic grants.
    Reserved,
    /// Let go a short time ago.
    Cooling,
    /// Out of circulation, because somebody else answers there.
    Declined,
    /// Network, broadcast, anycast or gateway address.
    Unusable,
    /// It lies in no subnet.
    Unknown,
}

/// Answer of `ip.get` in one network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// The network.
    #[serde(with = "compact::shared_network")]
    pub network: Arc<NetworkConfig>,
    /// State of the address.
    pub state: AddressState,
    /// The holding, if it is held.
    pub reservation: Option<View>,
}

/// Counts of addresses. `size = held + reserved + cooling + declined + free`. Each address counts once, as the first of
/// held, reserved, declined and cooling that applies. `dynamic`, `static` and `obsolete` are parts of `held`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// All addresses.
    pub size: u128,
    /// Held ones.
    pub held: u128,
    /// Held, chosen by the register.
    pub held_dynamic: u128,
    /// Held, named by the owner.
    pub held_static: u128,
    /// Held, but let go by an uncommitted deployment.
    pub obsolete: u128,
    /// Reserved ranges, unusable addresses, and what is draining.
    pub reserved: u128,
    /// Cooling.
    pub cooling: u128,
    /// Declined.
    pub declined: u128,
    /// Free.
    pub free: u128,
    /// Number of reservations, not of addresses.
    pub reservations: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        // The two halves of IPv6 together have one address more than the number can represent.
        let add = |sum: &mut u128, more: u128| *sum = sum.saturating_add(more);
        let is_more = self.size.checked_add(other.size).is_none();
        add(&mut self.size, other.size);
        add(&mut self.held, other.held);
        add(&mut self.held_dynamic, other.held_dynamic);
        add(&mut self.held_static, other.held_static);
        add(&mut self.obsolete, other.obsolete);
        add(&mut self.reserved, other.reserved);
        add(&mut self.cooling, other.cooling);
        add(&mut self.declined, other.declined);
        add(&mut self.free, other.free);
        self.reservations += other.reservations;
        if is_more {
            // The parts must still add up to the size: what the size cannot represent is cut off, from the free ones first.
            let mut left = self.size;
            for part in [&mut self.held, &mut self.reserved, &mut self.declined, &mut self.cooling, &mut self.free] {
                *part = (*part).min(left);
                left -= *part;
            }
        }
    }
}

/// What automatic grants draw from: the dynamic pools that do not drain, of a network that is not closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Grantable {
    /// The addresses of these pools without reserved and unusable ones.
    pub size: u128,
    /// How many of them could be granted now: the free ones, and the cooling ones if the cooldown yields.
    pub left: u128,
}

impl std::ops::AddAssign for Grantable {
    fn add_assign(&mut self, other: Self) {
        self.size = self.size.saturating_add(other.size);
        self.left = self.left.saturating_add(other.left);
    }
}

/// Counts of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolUsage {
    /// Its addresses.
    pub range: Range,
    /// Name.
    pub name: Option<Name>,
    /// Kind.
    pub kind: PoolKind,
    /// Counts.
    pub counts: Counts,
    /// Prefix length of the largest block that an automatic grant could take from it; none if it could take nothing.
    pub largest_free_block: Option<u8>,
}

/// Counts of one subnet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetUsage {
    /// Its addresses.
    pub cidr: Cidr,
    /// Name.
    pub name: Option<Name>,
    /// Counts, including addresses outside its pools.
    pub counts: Counts,
    /// Its pools, in order.
    pub pools: Vec<PoolUsage>,
}

/// Counts of a network: the sum over its subnets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReport {
    /// The sum.
    pub counts: Counts,
    /// Subnets, in order.
    pub subnets: Vec<SubnetUsage>,
    /// The last change that the report includes: see [`Outcome::place`].
    pub at: Option<Box<Place>>,
}

/// The drawing of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolMap {
    /// Its addresses.
    pub range: Range,
    /// Name.
    pub name: Option<Name>,
    /// The drawing.
    pub drawing: Drawing,
}

/// The three ways to draw a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Drawing {
    /// One character per address: `X` taken, `.` free.
    Text(String),
    /// First address, last address, and whether they are taken.
    Runs(Vec<(Address, Address, bool)>),
    /// Non-empty cells: first address, then the counts of held, reserved (including cooling and declined) and free addresses.
    Cells {
        /// Prefix length of a cell.
        prefix_length: u8,
        /// The cells.
        cells: Vec<(Address, u128, u128, u128)>,
    },
}

impl PoolMap {
    /// The refusal of maps that do not fit into one answer.
    pub fn too_long() -> Refusal {
        let problem = "is needed: the maps of all pools do not fit into one answer; name one pool, or a subnet";
        Refusal::invalid("pool", problem)
    }
}

impl Drawing {
    /// Appends a drawing in cells of what follows this one. A cell that the slices cut in the middle is put together again.
    pub fn go_on(&mut self, behind: Drawing) {
        let (Drawing::Cells { cells, .. }, Drawing::Cells { cells: more, .. }) = (self, behind) else { return };
        let mut more = more.into_iter().peekable();
        if let Some(last) = cells.last_mut()
            && let Some(rest) = more.next_if(|rest| rest.0 == last.0)
        {
            *last = (last.0, last.1 + rest.1, last.2 + rest.2, last.3 + rest.3);
        }
        cells.extend(more);
    }

    /// The least number of bytes that it takes in an answer.
    pub fn bytes_at_least(&self) -> usize {
        match self {
            Drawing::Text(text) => text.len(),
            // The shortest items: ["0.0.0.0","0.0.0.0","X"], and ["0.0.0.0","0","0","0"],
            Drawing::Runs(runs) => 26 * runs.len(),
            Drawing::Cells { cells, .. } => 24 * cells.len(),
        }
    }
}

/// A network with its subnets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkView {
    /// Configuration.
    pub config: Arc<NetworkConfig>,
    /// Subnets, in order.
    pub subnets: Vec<Arc<SubnetConfig>>,
    /// The last change that the view includes: see [`Outcome::place`].
    pub at: Option<Box<Place>>,
}

/// One scope of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeUsage {
    /// The scope.
    pub scope: Scope,
    /// Reservations, current and obsolete.
    pub reservations: u64,
    /// The addresses of these reservations.
    pub addresses: u128,
    /// Reservations that are obsolete.
    pub obsolete: u64,
    /// Reservations without a claimant.
    pub unbound: u64,
}

/// A binding, as a sweep judges it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedAddress {
    /// The use of the address. If a sweep may let go of it, with the miss that allows that, which the network's actor adds.
    pub binding: Binding,
    /// Letting go of it releases the address.
    pub released: bool,
    /// The claimant is not among those alive.
    pub missing: bool,
}

/// A slice of `ip.list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Slice {
    /// The records that match; empty if only the count was asked for.
    pub views: Vec<View>,
    /// The number of records that match.
    pub count: u64,
    /// The next slice begins after this address; none: this was the last slice.
    pub next: Option<Address>,
}

/// The answer to a command.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// `ip.allocate`, `ip.claim`.
    Granted(Box<Grant>),
    /// `ip.acquire`: the grants by index in the request. An optional one that found no room is left out.
    Acquired {
        /// Index and grant.
        grants: Vec<(usize, Grant)>,
        /// Addresses that `exact` let go.
        released: Vec<Address>,
    },
    /// `ip.release`.
    Released(Vec<Address>),
    /// `ip.renew`, `ip.bind`, `ip.update`.
    Reservation(Box<View>),
    /// `ip.unbind`: the reservation as it is now, or as it was before it was released.
    Unbound {
        /// The reservation.
        view: Box<View>,
        /// Whether it was released.
        released: bool,
    },
    /// `ip.transfer`: first the address that was handed over, then the one received in exchange.
    Transferred(Vec<View>),
    /// `ip.decline`.
    Declined {
        /// The address.
        address: Address,
        /// The grant in its place, if there is one.
        granted: Option<Box<Grant>>,
    },
    /// `ip.get`.
    Lookup(Box<Lookup>),
    /// The first slice of `ip.list`.
    Listed {
        /// The slice.
        slice: Slice,
        /// The last change that the slice includes: see [`Outcome::place`].
        at: Option<Box<Place>>,
        /// The state from which the list goes on, unless this is the last slice. It stays on the node that has the network,
        /// because lists are walked there.
        #[serde(skip)]
        rest: Option<Arc<ListRest>>,
    },
    /// A slice of `owner.release` or `scope.release`.
    LetGo {
        /// Addresses.
        released: Vec<Address>,
        /// Whether more is held.
        more: bool,
    },
    /// A slice of the look of a sweep.
    SweepLooked {
        /// The bindings, ascending.
        used: Vec<UsedAddress>,
        /// How many reservations of the scope were looked at.
        reservations: u64,
        /// The next slice begins after this address; none: this was the last slice.
        next: Option<Address>,
    },
    /// A slice of the act of a sweep.
    Swept {
        /// The addresses that stay with their owners.
        unbound: Vec<Binding>,
        /// The addresses that were released.
        released: Vec<Binding>,
    },
    /// `network.create`, `network.get`, `network.update`, `network.restore`.
    Network(Box<NetworkView>),
    /// `network.delete`.
    Deleted {
        /// The network.
        id: NetworkId,
        /// How many reservations it still holds.
        holding: u64,
    },
    /// `network.usage`.
    Usage(Box<UsageReport>),
    /// `network.map`.
    Map {
        /// Pools, in order.
        pools: Vec<PoolMap>,
        /// Version of the network when its pools were listed.
        version: Version,
        /// Where the next slice begins, for a map in cells.
        next: Option<Box<MapPlace>>,
    },
    /// A slice of `scope.list`.
    Scopes {
        /// Scopes, by name.
        page: Vec<ScopeUsage>,
        /// Whether there are more after the last one.
        more: bool,
    },
    /// `subnet.add`, `subnet.modify`, `subnet.move`.
    Subnet {
        /// The subnet.
        subnet: Arc<SubnetConfig>,
        /// Whether it was created now; with `if_absent` it may have existed.
        created: bool,
    },
    /// `pool.add`, `pool.modify`.
    Pool {
        /// The subnet.
        subnet: Arc<SubnetConfig>,
        /// Index of the pool in it.
        index: usize,
        /// Whether it was created now.
        created: bool,
    },
    /// `reserved.add`, `reserved.remove`: the reserved ranges of the subnets concerned.
    Reserved(Vec<Arc<SubnetConfig>>),
    /// `subnet.remove`, `pool.remove`.
    Done,
    /// What [`super::command::Command::MoveOut`] gave up.
    MovedOut(Box<Moved>),
    /// The part of `deployment.plan` or `deployment.apply`.
    Deployed {
        /// What became of each wish.
        slots: Vec<Deployed>,
        /// What is obsolete in the deployment after it.
        obsolete: Vec<View>,
        /// Was anything granted, promised, made obsolete or made current again?
        changed: bool,
        /// Was an address chosen from the list of a group?
        dealt: bool,
    },
    /// The part of `deployment.commit` or `deployment.revert`.
    Settled {
        /// What was let go.
        released: Vec<Address>,
        /// How much of the deployment still waits for a commit or revert of the plan.
        left: u64,
        /// After a revert, of all or some instances: is there still something that earlier plans, which were never ended,
        /// granted or made obsolete?
        earlier: bool,
        /// If only some instances were meant: do others still hold something that was not reverted?
        others_keep: bool,
        /// If only some instances were meant: those of them that held anything here, or to which anything was promised.
        instances: BTreeSet<Owner>,
    },
    /// What became of late claims.
    Healed(Healing),
    /// `cluster.conflicts`.
    Conflicts(Vec<Contested>),
    /// `cluster.accept`: what was decided.
    Accepted(Vec<Contested>),
    /// The end of leases, cooldowns and probations.
    Expired {
        /// How many leases ended.
        leases: usize,
        /// Whether more are due now.
        more: bool,
    },
    /// What ties instances to zones.
    ZoneTies(ZoneFacts),
    /// Why a commit would be refused; none if it would not.
    Hindered(Option<String>),
}

impl Outcome {
    /// The conflicts that are answered.
    pub fn contested_mut(&mut self) -> Option<&mut Vec<Contested>> {
        match self {
            Outcome::Conflicts(contested) | Outcome::Accepted(contested) => Some(contested),
            _ => None, // No other answer has conflicts.
        }
    }

    /// Does the answer have a conflict whose MAC another network may use?
    pub fn has_mac_to_look_up(&self) -> bool {
        match self {
            Outcome::Conflicts(contested) | Outcome::Accepted(contested) => {
                contested.iter().any(|contested| contested.mac_to_look_up().is_some())
            }
            _ => false, // No other answer has conflicts.
        }
    }

    /// The place in the network's history up to which the answer shows it, for those answers that report one: who watches
    /// from there misses nothing and is told nothing twice. The network fills in the steps of its commit that come before
    /// the answer; the rest is known only when the commit is durable.
    pub fn place(&mut self) -> Option<&mut Option<Box<Place>>> {
        match self {
            Outcome::Network(view) => Some(&mut view.at),
            Outcome::Usage(report) => Some(&mut report.at),
            Outcome::Listed { at, .. } => Some(at),
            _ => None, // A change is reported by its own event; other reads concern one address, or several networks.
        }
    }
}

/// What became of late claims, each counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Healing {
    /// Held again, or extended again to the end that its holder was told.
    pub healed: u64,
    /// Nothing to do: still held by the claimed holder, let go by that holder since, or ended with a lease that had been
    /// renewed.
    pub standing: u64,
    /// Recorded as conflicts.
    pub conflicts: u64,
    /// Conflicts for which there was no room; they must be brought again.
    pub left: u64,
}

impl std::ops::AddAssign for Healing {
    fn add_assign(&mut self, other: Self) {
        let Self { healed, standing, conflicts, left } = other;
        self.healed += healed;
        self.standing += standing;
        self.conflicts += conflicts;
        self.left += left;
    }
}

/// A conflict, and who holds what stands in its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contested {
    /// Name of the network.
    pub network: Name,
    /// Its id.
    pub network_id: NetworkId,
    /// The late claim.
    pub conflict: Conflict,
    /// The present holding; none if nothing stands in the way any more, or if it is in another network and not looked up yet.
    pub present: Option<Present>,
}

/// The holding that stands in the way of a late claim: it has the address, the slot or the MAC of the claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Present {
    /// Name of its network.
    pub network: Name,
    /// The id of its network.
    pub network_id: NetworkId,
    /// The address, or the first of a block.
    pub address: Address,
    /// What is held.
    pub reservation: Arc<Reservation>,
}

impl Contested {
    /// The MAC of the late claim, if nothing in its own network stands in its way. Another network may use it.
    pub fn mac_to_look_up(&self) -> Option<Mac> {
        self.conflict.mac.filter(|_| self.present.is_none())
    }
}
