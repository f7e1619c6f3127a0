//! Facts in refusals: who holds something, why there is no room, what does not exist.

use serde::{Deserialize, Serialize};

use crate::core::deployment::Stage;
use crate::core::outcome::PoolUsage;
use crate::core::state::Reservation;
use crate::core::types::{Claimant, Name, NetworkId, ShardTime, SlotKey, WallTime};

/// Who holds what somebody else wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBy {
    /// Scope, owner and slot.
    pub holder: SlotKey,
    /// Who uses it.
    pub claimant: Option<Claimant>,
    /// Since when.
    pub since: WallTime,
}

impl HeldBy {
    /// Who holds this.
    pub fn of(reservation: &Reservation) -> Self {
        let (holder, claimant) = (reservation.holder.clone(), reservation.claimant.clone());
        Self { holder, claimant, since: WallTime(reservation.created_at.0) }
    }
}

/// A deleted network that keeps its space as long as it holds anything. Another network may have its name by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// Its id.
    pub id: NetworkId,
    /// Everything that it holds is being released, and the network ends with the last of it.
    pub purged: bool,
}

/// Why there is no room, pool by pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoCapacity {
    /// The network.
    pub network: Name,
    /// Addresses in the pools that were asked for.
    pub size: u128,
    /// Held.
    pub held: u128,
    /// Held, but let go by an uncommitted deployment.
    pub obsolete: u128,
    /// Reserved, unusable or draining.
    pub reserved: u128,
    /// Cooling.
    pub cooling: u128,
    /// Declined.
    pub declined: u128,
    /// When the next cooldown, probation or lease ends.
    pub next_free_at: Option<(WallTime, ShardTime)>,
    /// Pool by pool.
    pub pools: Vec<PoolUsage>,
    /// What narrows the choice, in a word: `zone z1`, `family 6`, …. If there is no pool at all, the reason for that.
    pub narrowed_by: Option<String>,
    /// A block was asked for.
    pub is_of_blocks: bool,
    /// No dynamic pool is of the kind asked for, or could hold a block of that size, so no freed address helps. Used only
    /// where refusals are counted, which is where they are decided, so it never crosses between nodes.
    #[serde(skip)]
    pub no_pool_fits: bool,
    /// How long the request waited, if it did.
    pub waited_ms: Option<u64>,
    /// Its wait was ended, because everything that its owner holds was released.
    pub is_ended: bool,
}

impl NoCapacity {
    /// For a network, with nothing counted.
    pub fn plain(network: Name) -> Self {
        Self {
            network,
            size: 0,
            held: 0,
            obsolete: 0,
            reserved: 0,
            cooling: 0,
            declined: 0,
            next_free_at: None,
            pools: Vec::new(),
            narrowed_by: None,
            is_of_blocks: false,
            no_pool_fits: false,
            waited_ms: None,
            is_ended: false,
        }
    }

    /// What was looked for.
    pub(super) fn sought(&self) -> &'static str {
        if self.is_of_blocks { "block of that size" } else { "address" }
    }

    /// What narrows the choice, and how long the request waited.
    pub(super) fn where_sought(&self) -> String {
        let narrowed = self.narrowed_by.as_ref().filter(|_| !self.pools.is_empty());
        let narrowed = narrowed.map_or_else(String::new, |by| format!(" ({by})"));
        format!("{narrowed}{}", waited(self.waited_ms))
    }

    /// What takes the space and what to do, or why there is no space.
    pub(super) fn why(&self) -> String {
        match &self.narrowed_by {
            _ if self.is_ended => {
                ": meanwhile everything that its owner holds was released (owner.release, scope.release or \
             deployment.delete), which also ends its waiting requests; ask again if it still needs one"
                    .to_owned()
            }
            Some(why) if self.pools.is_empty() => format!(": {why}"),
            _ => format!(
                ": {} of {} held, {} reserved, {} cooling, {} declined{}; add a pool, or release something",
                self.held,
                self.size,
                self.reserved,
                self.cooling,
                self.declined,
                self.in_pieces()
            ),
        }
    }

    /// The note that single addresses are free although no block is.
    fn in_pieces(&self) -> String {
        let taken = [self.held, self.reserved, self.cooling, self.declined].into_iter().fold(0, u128::saturating_add);
        match self.size.saturating_sub(taken) {
            free if free > 0 && self.is_of_blocks => format!(", and the {free} free ones are scattered"),
            _ => String::new(),
        }
    }
}

/// What does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Missing {
    /// No such network.
    Network,
    /// No such subnet.
    Subnet,
    /// No such pool.
    Pool,
    /// No such reserved range.
    ReservedRange,
    /// Nothing is held there.
    Reservation,
    /// No such deployment.
    Deployment,
    /// Nobody was marked as alive under this name.
    Sweep,
    /// No node of that name is known.
    Node,
    /// No conflict is open there.
    Conflict,
}

impl Missing {
    /// The protocol's noun.
    pub fn noun(self) -> &'static str {
        match self {
            Missing::Network => "network",
            Missing::Subnet => "subnet",
            Missing::Pool => "pool",
            Missing::ReservedRange => "reserved range",
            Missing::Reservation => "reservation",
            Missing::Deployment => "deployment",
            Missing::Sweep => "sweep",
            Missing::Node => "node",
            Missing::Conflict => "conflict",
        }
    }

    /// Which method shows the existing things of this sort.
    pub(super) fn where_to_look(self) -> &'static str {
        match self {
            Missing::Network => "network.list shows the existing ones",
            Missing::Subnet | Missing::Pool | Missing::ReservedRange => "network.get shows the existing ones",
            Missing::Reservation => "ip.list shows what is held",
            Missing::Deployment => "deployment.list shows the existing ones",
            Missing::Sweep => "claimant.mark makes one",
            Missing::Node => "cluster.nodes shows the existing ones",
            Missing::Conflict => "cluster.conflicts shows the existing ones",
        }
    }
}

fn waited(ms: Option<u64>) -> String {
    ms.map_or_else(String::new, |ms| {
        format!(", and in {}.{} s of waiting none became free", ms / 1_000, ms % 1_000 / 100)
    })
}

/// Why the latest plan of a deployment cannot be ended as requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlanHindrance {
    /// It has already ended, in another way.
    Ended(Stage),
    /// A promise stands in the way: it cannot be kept, or has to be.
    Promise,
}
