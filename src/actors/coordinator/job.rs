//! The vocabulary of jobs: what the coordinator is asked, and what it answers. Jobs cross between nodes unchanged.

use std::time::Instant;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::{DeployOrder, DeployedAll, sweep};
use crate::actors::events::held::{HeldPage, HeldPlace};
use crate::actors::events::history::Past;
use crate::actors::events::{self, Cursor, EventsPage};
use crate::actors::nodes::{NodeJob, NodeStanding};
use crate::actors::waits::Wait;
use crate::core::address::{Address, Range};
use crate::core::catalog::Naming;
use crate::core::command::{
    Acquire, CellSize, Command, Configure, Filter, LateRenewal, NetworkInput, PoolRef, SubnetRef, Target,
};
use crate::core::compact;
use crate::core::deployment::Deployment;
use crate::core::outcome::{Contested, Grant, Lookup, NetworkView, Outcome, ScopeUsage, UsageReport, View};
use crate::core::state::{Entry, NetworkConfig};
use crate::core::types::{Claimant, Name, NetworkId, Owner, Scope, Version, WallTime};
use crate::store::ShardId;

/// Where a page of a list over networks continues: after this address of this network, or after the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPlace {
    /// The name by which the network is listed.
    pub name: Name,
    /// Its id.
    pub id: NetworkId,
    /// The last address shown.
    pub address: Option<Address>,
    /// The moment whose names the list uses; none: it uses none.
    pub naming: Option<Naming>,
}

/// The names by which a page is sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListOrder {
    /// The moment of the names; none: there is only one network.
    pub naming: Option<Naming>,
    /// Entries of the page that are listed elsewhere than their network is now.
    pub elsewhere: Vec<Elsewhere>,
}

/// Something that is listed elsewhere than its network is now: the network had another name then, or something moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// The network in which it now is.
    pub network: NetworkId,
    /// The range of it; none: everything not named before.
    pub range: Option<Range>,
    /// Where it is listed.
    pub place: (Name, NetworkId),
}

impl ListOrder {
    /// The place after this network, or after this address of it.
    pub fn behind(&self, network: &NetworkConfig, address: Option<Address>) -> ListPlace {
        let is_it = |range: &Range| address.is_some_and(|address| range.contains(address));
        let mut all = self.elsewhere.iter().filter(|then| then.network == network.id);
        let then = all.find(|then| then.range.as_ref().is_none_or(is_it)).map(|then| then.place.clone());
        let (name, id) = then.unwrap_or_else(|| (network.name.clone(), network.id));
        ListPlace { name, id, address, naming: self.naming }
    }
}

/// What an `ip.acquire` asks of a network under one of its names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquirePart {
    /// As the client named it.
    pub network: CompactString,
    /// The request to it.
    pub ask: Acquire,
    /// Places in the request of items that name no slot, and so use their position within the network.
    pub by_position: Vec<usize>,
}

/// A job. Networks are named as the client named them.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Job {
    /// `network.create`.
    Create {
        /// The new network.
        input: Box<NetworkInput>,
        /// If it exists already and is equal, that is the answer.
        if_absent: bool,
    },
    /// A change of one network that concerns names or space.
    Configure {
        /// The network.
        network: CompactString,
        /// The change.
        change: Configure,
        /// Refuse if the network has another version.
        if_version: Option<Version>,
    },
    /// `subnet.move`.
    Move {
        /// The network that has the subnet.
        from: CompactString,
        /// The subnet.
        subnet: SubnetRef,
        /// The network that gets it.
        to: CompactString,
        /// Refuse if the network that has the subnet has another version.
        if_version: Option<Version>,
    },
    /// `ip.bind` of an address to an owner: in a dynamic network it may be the first that is heard of the address.
    Bind {
        /// The network.
        network: CompactString,
        /// The target, and who uses it.
        target: Box<(Target, Claimant)>,
    },
    /// `ip.acquire`.
    Acquire {
        /// The part of each network, under the name that was used for it.
        parts: Vec<AcquirePart>,
        /// Slots that are not named are called this, followed by their position.
        slot_prefix: CompactString,
    },
    /// `owner.release`.
    ReleaseOwner {
        /// Scope of the owner.
        scope: Scope,
        /// The owner.
        owner: Owner,
        /// Only in this network.
        network: Option<CompactString>,
    },
    /// `scope.release`.
    ReleaseScope(Scope),
    /// `deployment.plan`, `deployment.apply`.
    Deploy(Box<DeployOrder>),
    /// `deployment.commit`, `deployment.revert`.
    Settle {
        /// The deployment.
        deployment: Scope,
        /// Its latest plan.
        plan: u64,
        /// Only these instances.
        instances: Option<Vec<Owner>>,
        /// Revert instead of committing.
        revert: bool,
    },
    /// `deployment.get`.
    Deployment(Scope),
    /// `deployment.list`.
    Deployments {
        /// After this one.
        after: Option<Scope>,
        /// How many at most.
        limit: usize,
    },
    /// `deployment.delete`.
    DeleteDeployment(Scope),
    /// `claimant.mark`.
    Mark {
        /// The scope of the reservations.
        scope: Scope,
        /// Name of the sweep.
        sweep: CompactString,
        /// The claimants that are alive.
        claimants: Vec<Claimant>,
    },
    /// `claimant.sweep`.
    Sweep(Box<sweep::Sweep>),
    /// `ip.list`.
    List {
        /// Only in this network.
        network: Option<CompactString>,
        /// Only in this realm.
        realm: Option<Name>,
        /// What to show.
        filter: Box<Filter>,
        /// Where to continue.
        after: Option<ListPlace>,
        /// How many at most.
        limit: usize,
        /// Only count.
        count_only: bool,
    },
    /// `ip.get` in a realm, `ip.find` in all.
    Find {
        /// The realm; none: all.
        realm: Option<Name>,
        /// The address.
        address: Address,
    },
    /// A command for the network in which a given scope holds an address.
    Located {
        /// The address.
        address: Address,
        /// Scope of the holder.
        scope: Scope,
        /// The command.
        command: Command,
    },
    /// `network.list`.
    Networks {
        /// Only in this realm.
        realm: Option<Name>,
        /// Only with this tag.
        tag: Option<(CompactString, Option<CompactString>)>,
        /// Each network with its usage.
        usage: bool,
        /// Only closed networks.
        deleted: bool,
        /// Where to continue.
        after: Option<ListPlace>,
        /// How many at most.
        limit: usize,
    },
    /// `network.map` in cells.
    Map {
        /// The network.
        network: CompactString,
        /// Only this subnet; only these pools.
        part: Box<(Option<SubnetRef>, Option<PoolRef>)>,
        /// The size of a cell.
        size: CellSize,
    },
    /// `realm.list`.
    Realms,
    /// `scope.list`.
    Scopes {
        /// Only in this network.
        network: Option<CompactString>,
        /// After this one.
        after: Option<Scope>,
        /// How many at most.
        limit: usize,
    },
    /// `cluster.conflicts` over all networks.
    Conflicts,
    /// `cluster.locate`.
    Locate(CompactString),
    /// `events.watch`: where it begins.
    Watch {
        /// Only of this network.
        network: Option<CompactString>,
        /// Only of networks in this realm.
        realm: Option<Name>,
        /// Only of holdings in this scope.
        scope: Option<Scope>,
        /// After this cursor; none: from now on.
        since: Option<Cursor>,
    },
    /// The next events of a subscription.
    Events {
        /// Which events are wanted.
        filter: events::Filter,
        /// After this cursor.
        cursor: Cursor,
        /// How long to wait for an event.
        wait_ms: u64,
    },
    /// `events.history`.
    History {
        /// Only of this network, or of those that had the name.
        network: Option<CompactString>,
        /// What is wanted.
        filter: events::Filter,
        /// After this cursor.
        after: Option<Cursor>,
        /// How many at most.
        limit: usize,
    },
    /// `events.history` with `at`.
    HeldAt {
        /// Only of this network, or of those that had the name.
        network: Option<CompactString>,
        /// What is wanted.
        filter: events::Filter,
        /// The time asked about.
        at: WallTime,
        /// Where to continue.
        after: Option<HeldPlace>,
        /// How many at most.
        limit: usize,
    },
    /// A request to a node, on its way there. Not for actors: see `server::steward`.
    Node(NodeJob),
    /// Gives back what a failover cut off, where that is possible.
    Heal {
        /// The network.
        network: NetworkId,
        /// The claims; see [`crate::core::command::Heal`].
        #[serde(deserialize_with = "compact::entries")]
        claims: Vec<(Address, Entry)>,
        /// Which of them are renewals.
        renewed: Vec<LateRenewal>,
    },
}

impl Job {
    /// Does the job look for its object in one network after the other? What moves from a network that was not looked at yet
    /// into one that was would be missed.
    pub(super) fn goes_through_networks(&self) -> bool {
        match self {
            Job::ReleaseOwner { network, .. } | Job::List { network, .. } | Job::Scopes { network, .. } => {
                network.is_none()
            }
            Job::ReleaseScope(_)
            | Job::Deploy(_)
            | Job::Settle { .. }
            | Job::Deployment(_)
            | Job::DeleteDeployment(_)
            | Job::Sweep(_)
            | Job::Find { .. }
            | Job::Located { .. }
            | Job::Networks { .. }
            | Job::Conflicts => true,
            // Jobs about one network, or several by name; or about the catalog, the records or the history.
            Job::Create { .. }
            | Job::Configure { .. }
            | Job::Move { .. }
            | Job::Bind { .. }
            | Job::Acquire { .. }
            | Job::Deployments { .. }
            | Job::Mark { .. }
            | Job::Map { .. }
            | Job::Realms
            | Job::Locate(_)
            | Job::Watch { .. }
            | Job::Events { .. }
            | Job::History { .. }
            | Job::HeldAt { .. }
            | Job::Node(_) => false,
            // Healing locks dynamic networks, and a move of a subnet waits with such a lock until no job goes through
            // networks: healing sees to it by itself that nothing moves.
            Job::Heal { .. } => false,
        }
    }

    /// Does the job only read?
    pub fn is_read(&self) -> bool {
        match self {
            Job::List { .. }
            | Job::Find { .. }
            | Job::Networks { .. }
            | Job::Map { .. }
            | Job::Realms
            | Job::Scopes { .. }
            | Job::Conflicts
            | Job::Locate(_)
            | Job::Deployment(_)
            | Job::Deployments { .. }
            | Job::Watch { .. }
            | Job::Events { .. }
            | Job::History { .. }
            | Job::HeldAt { .. } => true,
            Job::Deploy(order) => !order.apply,
            Job::Located { command, .. } => command.is_read(),
            Job::Node(job) => job.is_read(),
            Job::Create { .. }
            | Job::Configure { .. }
            | Job::Move { .. }
            | Job::Bind { .. }
            | Job::Acquire { .. }
            | Job::ReleaseOwner { .. }
            | Job::Settle { .. }
            | Job::DeleteDeployment(_)
            | Job::ReleaseScope(_)
            | Job::Mark { .. }
            | Job::Heal { .. }
            | Job::Sweep(_) => false,
        }
    }
}

/// A job with what accompanies every request.
#[derive(Debug)]
pub struct Order {
    /// The job.
    pub job: Job,
    /// Who asks.
    pub by: CompactString,
    /// Why.
    pub reason: Option<CompactString>,
    /// A job that has not begun by then is refused.
    pub deadline: Option<Instant>,
    /// Change nothing.
    pub dry_run: bool,
    /// If it finds no capacity, it may wait for some.
    pub wait: Option<Wait>,
}

/// The answer of a job.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Done {
    /// The answer of one network.
    Outcome(Outcome),
    /// `network.create`; with `if_absent`, whether the network was created.
    Network(Box<NetworkView>, Option<bool>),
    /// `ip.acquire`.
    Acquired {
        /// The grants, by place in the request.
        grants: Vec<(usize, Grant)>,
        /// What `exact` released; none if it was not asked for.
        released: Option<Vec<(Name, Address)>>,
    },
    /// `owner.release`, `scope.release`.
    Released {
        /// What was released.
        released: Vec<(Name, Address)>,
        /// Whether more is held.
        more: bool,
    },
    /// `deployment.plan`, `deployment.apply`.
    Deployed(Box<DeployedAll>),
    /// `deployment.commit`, `deployment.revert`: what was released.
    Settled(Vec<(Name, Address)>),
    /// `deployment.get`: the record, what is held, including obsolete holdings, and why a commit would be refused.
    Deployment(Deployment, Vec<View>, Option<String>),
    /// `deployment.list`.
    Deployments {
        /// The page.
        page: Vec<Deployment>,
        /// Where the next page begins.
        next: Option<Scope>,
    },
    /// `claimant.mark`: how many are marked under this name now.
    Marked(u64),
    /// `claimant.sweep`.
    Swept(sweep::Swept),
    /// `ip.list`.
    Listed {
        /// The page.
        views: Vec<View>,
        /// How many matched.
        count: u64,
        /// Where the next page begins.
        next: Option<ListPlace>,
        /// The names by which it is sorted, in case the page is cut.
        order: ListOrder,
        /// A client that watches from this cursor misses nothing that the page does not show.
        cursor: Cursor,
    },
    /// `ip.find`, `ip.get`.
    Found(Vec<Lookup>),
    /// `network.list`.
    Networks {
        /// The page.
        networks: Vec<(NetworkView, Option<UsageReport>)>,
        /// Where the next page begins.
        next: Option<ListPlace>,
        /// The names by which it is sorted, in case the page is cut.
        order: ListOrder,
    },
    /// `realm.list`.
    Realms(Vec<(Name, u64)>),
    /// `scope.list`.
    Scopes {
        /// The page, by name.
        page: Vec<ScopeUsage>,
        /// Whether there are more after the last one.
        more: bool,
    },
    /// `cluster.conflicts`.
    Conflicts(Vec<Contested>),
    /// `cluster.locate`.
    Located(Located),
    /// `events.watch`.
    Watching {
        /// Which events are wanted.
        filter: events::Filter,
        /// The cursor after which they begin.
        cursor: Cursor,
    },
    /// Events of a subscription.
    Events(Box<EventsPage>),
    /// `events.history`.
    Past(Past),
    /// `events.history` with `at`.
    HeldAt(HeldPage),
    /// The answer of a node.
    Node(NodeStanding),
}

/// Where a network lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// Its name.
    pub network: Name,
    /// Its id.
    pub id: NetworkId,
    /// Its shard.
    pub shard: ShardId,
    /// How often the shard was taken over.
    pub epoch: u64,
}
