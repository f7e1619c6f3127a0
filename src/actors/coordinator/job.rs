//! What the coordinator is asked and what it answers: the vocabulary of jobs. It crosses between nodes as it is.

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
    Acquire, Command, Configure, Filter, LateRenewal, NetworkInput, PoolRef, SubnetRef, Target,
};
use crate::core::compact;
use crate::core::deployment::Deployment;
use crate::core::outcome::{Contested, Grant, Lookup, NetworkView, Outcome, ScopeUsage, UsageReport, View};
use crate::core::state::{Entry, NetworkConfig};
use crate::core::types::{Claimant, Name, NetworkId, Owner, Scope, Version, WallTime};
use crate::store::ShardId;

/// Where a page of a list over networks goes on: behind this address of this network, or behind the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPlace {
    /// The name by which the network is listed.
    pub name: Name,
    /// Its id.
    pub id: NetworkId,
    /// The last address shown.
    pub address: Option<Address>,
    /// The moment whose names the list goes by; none: it goes by none.
    pub naming: Option<Naming>,
}

/// By which names a page goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListOrder {
    /// The moment of the names; none: there is one network only.
    pub naming: Option<Naming>,
    /// What of the page is listed elsewhere than its network is now.
    pub elsewhere: Vec<Elsewhere>,
}

/// What is listed elsewhere than its network is now: that was called otherwise then, or something moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// The network in which it is now.
    pub network: NetworkId,
    /// What of it; none: all, but what is said of before.
    pub range: Option<Range>,
    /// Where it is listed.
    pub place: (Name, NetworkId),
}

impl ListOrder {
    /// Behind this network, or this address of it.
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
    /// What is asked.
    pub ask: Acquire,
    /// Places in the request of what names no slot, and has its position within the network for one.
    pub by_position: Vec<usize>,
}

/// What is to be done. Networks are named as the client named them.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Job {
    /// `network.create`.
    Create {
        /// What.
        input: Box<NetworkInput>,
        /// What is there already and equal is answered.
        if_absent: bool,
    },
    /// A change of one network that concerns names or space.
    Configure {
        /// Which.
        network: CompactString,
        /// What.
        change: Configure,
        /// Refused where the network has moved on.
        if_version: Option<Version>,
    },
    /// `subnet.move`.
    Move {
        /// From where.
        from: CompactString,
        /// What.
        subnet: SubnetRef,
        /// Where to.
        to: CompactString,
        /// Refused where the network that has it has moved on.
        if_version: Option<Version>,
    },
    /// `ip.bind` of an address to an owner: in a dynamic network it may be the first that is heard of it.
    Bind {
        /// Where.
        network: CompactString,
        /// What, and who uses it.
        target: Box<(Target, Claimant)>,
    },
    /// `ip.acquire`.
    Acquire {
        /// The part of each network, as it was named.
        parts: Vec<AcquirePart>,
        /// Slots that are not named are this and their position.
        slot_prefix: CompactString,
    },
    /// `owner.release`.
    ReleaseOwner {
        /// Scope of the owner.
        scope: Scope,
        /// The owner.
        owner: Owner,
        /// Only here.
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
        /// These instances only.
        instances: Option<Vec<Owner>>,
        /// Take it back.
        revert: bool,
    },
    /// `deployment.get`.
    Deployment(Scope),
    /// `deployment.list`.
    Deployments {
        /// Behind this one.
        after: Option<Scope>,
        /// How many at most.
        limit: usize,
    },
    /// `deployment.delete`.
    DeleteDeployment(Scope),
    /// `claimant.mark`.
    Mark {
        /// Of these reservations.
        scope: Scope,
        /// Name of the sweep.
        sweep: CompactString,
        /// Who is alive.
        claimants: Vec<Claimant>,
    },
    /// `claimant.sweep`.
    Sweep(Box<sweep::Sweep>),
    /// `ip.list`.
    List {
        /// Only here.
        network: Option<CompactString>,
        /// Only in this realm.
        realm: Option<Name>,
        /// What to show.
        filter: Box<Filter>,
        /// Where to go on.
        after: Option<ListPlace>,
        /// How many at most.
        limit: usize,
        /// Only how many there are.
        count_only: bool,
    },
    /// `ip.get` in a realm, `ip.find` in all.
    Find {
        /// The realm; none: all.
        realm: Option<Name>,
        /// The address.
        address: Address,
    },
    /// A command for the network in which an address lies, whose holder lives in a scope.
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
        /// Each with its usage.
        usage: bool,
        /// Closed ones and no others.
        deleted: bool,
        /// Where to go on.
        after: Option<ListPlace>,
        /// How many at most.
        limit: usize,
    },
    /// `network.map` in cells.
    Map {
        /// The network.
        network: CompactString,
        /// One subnet only; some pools only.
        part: Box<(Option<SubnetRef>, Option<PoolRef>)>,
        /// Prefix length of a cell.
        #[serde(deserialize_with = "compact::prefix_length")]
        prefix_length: u8,
    },
    /// `realm.list`.
    Realms,
    /// `scope.list`.
    Scopes {
        /// Only in this network.
        network: Option<CompactString>,
        /// Behind this one.
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
        /// Behind this; none: from now on.
        since: Option<Cursor>,
    },
    /// The next events of a subscription.
    Events {
        /// Which.
        filter: events::Filter,
        /// Behind this.
        cursor: Cursor,
        /// How long to wait for one.
        wait_ms: u64,
    },
    /// `events.history`.
    History {
        /// Only of this network, or of those that had the name.
        network: Option<CompactString>,
        /// What is wanted.
        filter: events::Filter,
        /// Behind this.
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
        /// When.
        at: WallTime,
        /// Where to go on.
        after: Option<HeldPlace>,
        /// How many at most.
        limit: usize,
    },
    /// What is asked of a node, on its way there. Not for actors: see `server::steward`.
    Node(NodeJob),
    /// What a failover cut off is given back, where it can be.
    Heal {
        /// Where.
        network: NetworkId,
        /// What; see [`crate::core::command::Heal`].
        #[serde(deserialize_with = "compact::entries")]
        claims: Vec<(Address, Entry)>,
        /// Those of them that are renewals.
        renewed: Vec<LateRenewal>,
    },
}

impl Job {
    /// Does it look for what it is about in one network after the other? What moves from one that was not looked at yet into one
    /// that was would be passed over.
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
            // What is asked of one network, or of several by their names; or of the catalog, the records or the history.
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
            // It locks dynamic networks, and whoever moves a subnet waits with such a lock until nothing goes through networks: it looks
            // for the others by itself.
            Job::Heal { .. } => false,
        }
    }

    /// Does it only read?
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

/// A job and what goes with every request.
#[derive(Debug)]
pub struct Order {
    /// What.
    pub job: Job,
    /// Who asks.
    pub by: CompactString,
    /// Why.
    pub reason: Option<CompactString>,
    /// Not begun by then, it is refused.
    pub deadline: Option<Instant>,
    /// Change nothing.
    pub dry_run: bool,
    /// Where it finds no capacity, it may wait for some.
    pub wait: Option<Wait>,
}

/// What a job answers.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Done {
    /// What one network answered.
    Outcome(Outcome),
    /// `network.create`; with `if_absent`, whether it was made.
    Network(Box<NetworkView>, Option<bool>),
    /// `ip.acquire`.
    Acquired {
        /// By place in the request.
        grants: Vec<(usize, Grant)>,
        /// Let go by `exact`; none where it was not asked.
        released: Option<Vec<(Name, Address)>>,
    },
    /// `owner.release`, `scope.release`.
    Released {
        /// What was let go.
        released: Vec<(Name, Address)>,
        /// More is held.
        more: bool,
    },
    /// `deployment.plan`, `deployment.apply`.
    Deployed(Box<DeployedAll>),
    /// `deployment.commit`, `deployment.revert`: what was let go.
    Settled(Vec<(Name, Address)>),
    /// `deployment.get`: the record, what is held, obsolete ones too, and why a commit would be refused.
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
        /// By which names it goes, should the page be cut.
        order: ListOrder,
        /// Who watches from there misses nothing that is not shown.
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
        /// By which names it goes, should the page be cut.
        order: ListOrder,
    },
    /// `realm.list`.
    Realms(Vec<(Name, u64)>),
    /// `scope.list`.
    Scopes {
        /// The page, by name.
        page: Vec<ScopeUsage>,
        /// There are more behind the last one.
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
        /// Behind which cursor.
        cursor: Cursor,
    },
    /// Events of a subscription.
    Events(Box<EventsPage>),
    /// `events.history`.
    Past(Past),
    /// `events.history` with `at`.
    HeldAt(HeldPage),
    /// What a node answers.
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
    /// How often that was taken over.
    pub epoch: u64,
}
