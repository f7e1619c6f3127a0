//! What refusals tell beside what was asked: who holds it, why there is no room, what does not exist.

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

/// A network that is deleted, and keeps its space for what it holds still. Its name may be that of another one by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// Its id.
    pub id: NetworkId,
    /// What it holds is being released, and with the last of it the network ends.
    pub purged: bool,
}

/// Why there is no room: enough to see it pool by pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoCapacity {
    /// The network.
    pub network: Name,
    /// Addresses of the pools that were asked for.
    pub size: u128,
    /// Held.
    pub held: u128,
    /// Held by what an uncommitted deployment lets go.
    pub obsolete: u128,
    /// Reserved, unusable or draining.
    pub reserved: u128,
    /// Cooling.
    pub cooling: u128,
    /// Declined.
    pub declined: u128,
    /// When the next cooling or declined address, or lease, ends.
    pub next_free_at: Option<(WallTime, ShardTime)>,
    /// Pool by pool.
    pub pools: Vec<PoolUsage>,
    /// In a word, what narrows the choice: `zone z1`, `family 6`, …. Where there is no pool at all, why.
    pub narrowed_by: Option<String>,
    /// A block was asked for.
    pub is_of_blocks: bool,
    /// How long the request waited, if it did.
    pub waited_ms: Option<u64>,
    /// Its wait was ended: all that its owner has was let go of.
    pub is_ended: bool,
}

impl NoCapacity {
    /// Of a network, without anything that would have to be counted.
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
            waited_ms: None,
            is_ended: false,
        }
    }

    /// What there is none of.
    pub(super) fn sought(&self) -> &'static str {
        if self.is_of_blocks { "block of that size" } else { "address" }
    }

    /// What narrows the choice, and how long it was waited for.
    pub(super) fn where_sought(&self) -> String {
        let narrowed = self.narrowed_by.as_ref().filter(|_| !self.pools.is_empty());
        let narrowed = narrowed.map_or_else(String::new, |by| format!(" ({by})"));
        format!("{narrowed}{}", waited(self.waited_ms))
    }

    /// What takes the space, and what to do; or why there is none.
    pub(super) fn why(&self) -> String {
        match &self.narrowed_by {
            _ if self.is_ended => ": then all that its owner has was let go of (owner.release, scope.release or \
                 deployment.delete), which ends what it waits for, too; ask again if it is to have one after all"
                .to_owned(),
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

    /// That something is free nevertheless, where a block is not.
    fn in_pieces(&self) -> String {
        let taken = [self.held, self.reserved, self.cooling, self.declined].into_iter().fold(0, u128::saturating_add);
        match self.size.saturating_sub(taken) {
            free if free > 0 && self.is_of_blocks => format!(", and the {free} free ones lie in pieces"),
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
    /// Nobody was marked alive under this name.
    Sweep,
    /// No node of that name was seen.
    Node,
    /// Nobody claims it twice.
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

    /// What shows the things of this sort that there are.
    pub(super) fn where_to_look(self) -> &'static str {
        match self {
            Missing::Network => "network.list shows those that there are",
            Missing::Subnet | Missing::Pool | Missing::ReservedRange => "network.get shows those that there are",
            Missing::Reservation => "ip.list shows what is held",
            Missing::Deployment => "deployment.list shows those that there are",
            Missing::Sweep => "claimant.mark makes one",
            Missing::Node => "cluster.nodes shows those that there are",
            Missing::Conflict => "cluster.conflicts shows those that there are",
        }
    }
}

fn waited(ms: Option<u64>) -> String {
    ms.map_or_else(String::new, |ms| {
        format!(", and in {}.{} s of waiting none came free", ms / 1_000, ms % 1_000 / 100)
    })
}

/// Why the latest plan of a deployment cannot end as it is asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlanHindrance {
    /// It ended already, otherwise.
    Ended(Stage),
    /// Something that it promised cannot come, or must.
    Promise,
}
