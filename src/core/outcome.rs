//! What a decision answers: facts, which the server turns into JSON.

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
use super::types::{Claimant, Name, NetworkId, Owner, Place, Scope, Version, WallTime};
use super::zones::ZoneFacts;

/// What `decide` returns where it does not refuse.
#[derive(Debug, PartialEq, Eq)]
pub struct Decision {
    /// What changes, in order. Empty for reads and for what was so already.
    pub steps: Vec<Step>,
    /// What is answered once the steps are durable.
    pub outcome: Outcome,
}

impl Decision {
    /// Is anything given to somebody who had it not? What is given back does not count.
    pub fn grants(&self) -> bool {
        self.granted().next().is_some()
    }

    /// What is given to somebody who had it not.
    pub fn granted(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.event.as_ref().is_some_and(|event| event.kind == EventKind::Granted))
    }

    /// Does it give anybody an address that the server chose? What a bind writes down the infrastructure chose.
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

/// A reservation with all that its noun shows. Values of network and subnet are those of now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The network.
    #[serde(with = "compact::shared_network")]
    pub network: Arc<NetworkConfig>,
    /// The subnet in which it lies, if there is one still.
    #[serde(with = "compact::shared_subnet")]
    pub subnet: Option<Arc<SubnetConfig>>,
    /// Index of its pool in the subnet, if it lies in one.
    pub pool: Option<usize>,
    /// The address, or the first of the block.
    pub address: Address,
    /// What is held.
    pub reservation: Arc<Reservation>,
    /// When its lease ends by the wall clock, and in how many whole seconds.
    pub expires: Option<(WallTime, u64)>,
}

/// A grant: the reservation and how it came about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// What is held now.
    pub view: View,
    /// False where it was there already.
    pub created: bool,
    /// Who used it until this request bound another.
    pub previous_claimant: Option<Claimant>,
    /// The address that the slot held before, released by `replace`.
    pub replaced: Option<Address>,
}

/// State of an address, as `ip.get` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressState {
    /// Somebody holds it, or the block that it lies in.
    Held,
    /// Nobody does.
    Free,
    /// Kept from automatic grants.
    Reserved,
    /// Let go a short time ago.
    Cooling,
    /// Somebody else answers there.
    Declined,
    /// Network, broadcast, anycast or gateway address.
    Unusable,
    /// In no subnet.
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
    /// The holding, where it is held.
    pub reservation: Option<View>,
}

/// Counts of addresses. `size = held + reserved + cooling + declined + free`; each address counts once, held before
/// reserved before declined before cooling. `dynamic`, `static` and `obsolete` are parts of `held`.
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
    /// Held, let go by an uncommitted deployment.
    pub obsolete: u128,
    /// Reserved ranges, unusable addresses, and what is draining.
    pub reserved: u128,
    /// Cooling.
    pub cooling: u128,
    /// Declined.
    pub declined: u128,
    /// Free.
    pub free: u128,
    /// How many reservations, not addresses.
    pub reservations: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        // Two halves of IPv6 are one more than a number can carry.
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
            // They add up all the same: what the size cannot carry is left out, of what is free first.
            let mut left = self.size;
            for part in [&mut self.held, &mut self.reserved, &mut self.declined, &mut self.cooling, &mut self.free] {
                *part = (*part).min(left);
                left -= *part;
            }
        }
    }
}

/// What automatic grants draw from: dynamic pools that do not drain, of a network that is not closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Grantable {
    /// Addresses of these pools, but for reserved and unusable ones.
    pub size: u128,
    /// How many of them could be granted now: free ones, and those that cool, where the cooldown yields.
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
    /// Prefix length of the largest block that an automatic grant could take from it; none where it could take nothing.
    pub largest_free_block: Option<u8>,
}

/// Counts of one subnet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetUsage {
    /// Its addresses.
    pub cidr: Cidr,
    /// Name.
    pub name: Option<Name>,
    /// Counts, of addresses outside its pools too.
    pub counts: Counts,
    /// Its pools, in order.
    pub pools: Vec<PoolUsage>,
}

/// Counts of a network: the sum of its subnets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReport {
    /// Sum.
    pub counts: Counts,
    /// Subnets, in order.
    pub subnets: Vec<SubnetUsage>,
    /// The last change that it shows: see [`Outcome::place`].
    pub at: Option<Box<Place>>,
}

/// A pool drawn.
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
    /// `X` taken, `.` free, one an address.
    Text(String),
    /// First, last, taken.
    Runs(Vec<(Address, Address, bool)>),
    /// Non-empty cells: first address, held, reserved (cooling and declined too), free.
    Cells {
        /// Prefix length of a cell.
        prefix_length: u8,
        /// The cells.
        cells: Vec<(Address, u128, u128, u128)>,
    },
}

impl PoolMap {
    /// The refusal of maps that are more than one answer holds.
    pub fn too_long() -> Refusal {
        let problem = "is needed: the maps of all pools are more than one answer holds; name one, or a subnet";
        Refusal::invalid("pool", problem)
    }
}

impl Drawing {
    /// Adds a drawing in cells of what is behind this one. A cell that ended in the middle becomes whole.
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

    /// Bytes that it takes in an answer, at least.
    pub fn bytes_at_least(&self) -> usize {
        match self {
            Drawing::Text(text) => text.len(),
            // ["0.0.0.0","0.0.0.0","X"], and ["0.0.0.0","0","0","0"],
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
    /// The last change that it shows: see [`Outcome::place`].
    pub at: Option<Box<Place>>,
}

/// One scope of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeUsage {
    /// The scope.
    pub scope: Scope,
    /// Reservations, current and obsolete.
    pub reservations: u64,
    /// Addresses of them.
    pub addresses: u128,
    /// Those of the reservations that are obsolete.
    pub obsolete: u64,
    /// Reservations without a claimant.
    pub unbound: u64,
}

/// A binding, as a sweep judges it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedAddress {
    /// Who uses what; of what is due, with the miss that makes it so, which the network's actor knows.
    pub binding: Binding,
    /// Letting go releases it.
    pub released: bool,
    /// The claimant is not among those alive.
    pub missing: bool,
}

/// A slice of `ip.list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Slice {
    /// What matched; nothing where only the count was asked for.
    pub views: Vec<View>,
    /// How many matched.
    pub count: u64,
    /// Behind which address the next slice begins; none: this was the last.
    pub next: Option<Address>,
}

/// What is answered.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// `ip.allocate`, `ip.claim`.
    Granted(Box<Grant>),
    /// `ip.acquire`: by place in the request; what was optional and found no room is left out.
    Acquired {
        /// Place and grant.
        grants: Vec<(usize, Grant)>,
        /// Let go by `exact`.
        released: Vec<Address>,
    },
    /// `ip.release`.
    Released(Vec<Address>),
    /// `ip.renew`, `ip.bind`, `ip.update`.
    Reservation(Box<View>),
    /// `ip.unbind`: as it is, or as it was and released.
    Unbound {
        /// The reservation.
        view: Box<View>,
        /// It was released.
        released: bool,
    },
    /// `ip.transfer`: the address handed over first, then the one received in exchange.
    Transferred(Vec<View>),
    /// `ip.decline`.
    Declined {
        /// The address.
        address: Address,
        /// What was granted in its place.
        granted: Option<Box<Grant>>,
    },
    /// `ip.get`.
    Lookup(Box<Lookup>),
    /// The first slice of `ip.list`.
    Listed {
        /// What it shows.
        slice: Slice,
        /// The last change that it shows: see [`Outcome::place`].
        at: Option<Box<Place>>,
        /// With what the list goes on if this is not the last slice. It stays on the node that has the network: lists are
        /// walked there.
        #[serde(skip)]
        rest: Option<Arc<ListRest>>,
    },
    /// A slice of `owner.release` or `scope.release`.
    LetGo {
        /// Addresses.
        released: Vec<Address>,
        /// More are held.
        more: bool,
    },
    /// A slice of the look of a sweep.
    SweepLooked {
        /// What is bound, ascending.
        used: Vec<UsedAddress>,
        /// Reservations of the scope that were looked at.
        reservations: u64,
        /// Where the next slice begins; none: this was the last.
        next: Option<Address>,
    },
    /// A slice of the act of a sweep.
    Swept {
        /// Left with their owners.
        unbound: Vec<Binding>,
        /// Released with their claimants.
        released: Vec<Binding>,
    },
    /// `network.create`, `network.get`, `network.update`, `network.restore`.
    Network(Box<NetworkView>),
    /// `network.delete`.
    Deleted {
        /// The network.
        id: NetworkId,
        /// Reservations that it still holds.
        holding: u64,
    },
    /// `network.usage`.
    Usage(Box<UsageReport>),
    /// `network.map`.
    Map {
        /// Pools, in order.
        pools: Vec<PoolMap>,
        /// Version of the network whose pools these are.
        version: Version,
        /// Where the next slice begins, of cells.
        next: Option<Box<MapPlace>>,
    },
    /// A slice of `scope.list`.
    Scopes {
        /// Scopes, by name.
        page: Vec<ScopeUsage>,
        /// There are more behind the last one.
        more: bool,
    },
    /// `subnet.add`, `subnet.modify`, `subnet.move`; with `if_absent`, whether it was made.
    Subnet {
        /// The subnet.
        subnet: Arc<SubnetConfig>,
        /// Whether it was made now.
        created: bool,
    },
    /// `pool.add`, `pool.modify`.
    Pool {
        /// The subnet.
        subnet: Arc<SubnetConfig>,
        /// Index of the pool in it.
        index: usize,
        /// Whether it was made now.
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
        /// What of the deployment is obsolete then.
        obsolete: Vec<View>,
        /// Is anything granted, promised, made obsolete or current again now?
        changed: bool,
        /// Was an address chosen out of the list of a group?
        dealt: bool,
    },
    /// The part of `deployment.commit` or `deployment.revert`.
    Settled {
        /// What was let go.
        released: Vec<Address>,
        /// How much of the deployment still waits for a commit or revert of the plan.
        left: u64,
        /// Behind what was reverted, all of it or some: is something obsolete still, or granted, by earlier plans that did not end?
        earlier: bool,
        /// Where only some instances were meant: do others hold something, that were not reverted before?
        others_keep: bool,
        /// Where only some instances were meant: those of them that held anything here, or that anything was promised to.
        instances: BTreeSet<Owner>,
    },
    /// What became of late claims.
    Healed(Healing),
    /// `cluster.conflicts`.
    Conflicts(Vec<Contested>),
    /// `cluster.accept`: what was decided.
    Accepted(Vec<Contested>),
    /// How many leases, cooldowns and probations ended, and whether more are due.
    Expired {
        /// Leases that ended.
        leases: usize,
        /// More are due now.
        more: bool,
    },
    /// What ties instances to zones.
    ZoneTies(ZoneFacts),
    /// Why a commit would be refused, if it would be.
    Hindered(Option<String>),
}

impl Outcome {
    /// Where what is shown stands in the network's history, in the answers that tell it: who watches from there misses
    /// nothing and is told nothing twice. The network notes the steps of the same commit that come before its answer; the
    /// rest is known when that is durable.
    pub fn place(&mut self) -> Option<&mut Option<Box<Place>>> {
        match self {
            Outcome::Network(view) => Some(&mut view.at),
            Outcome::Usage(report) => Some(&mut report.at),
            Outcome::Listed { at, .. } => Some(at),
            _ => None, // A change is told by its own event, and other reads are of one address or of several networks.
        }
    }
}

/// What became of late claims, each counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Healing {
    /// Held again, or for as long again as its holder was told.
    pub healed: u64,
    /// Held by whom they name, let go by him since, or at the end of a lease that was renewed.
    pub standing: u64,
    /// Kept as conflicts.
    pub conflicts: u64,
    /// Conflicts for which there is no room: they are to be brought again.
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

/// A conflict, and who has what stands in its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contested {
    /// Name of the network.
    pub network: Name,
    /// Its id.
    pub network_id: NetworkId,
    /// The late claim.
    pub conflict: Conflict,
    /// The present holding; none where nobody holds anything there.
    pub present: Option<(Address, Arc<Reservation>)>,
}
