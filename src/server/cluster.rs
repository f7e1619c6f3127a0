//! What this node knows of the nodes that share its register: for `cluster.nodes`, `cluster.locate`, and to send clients on
//! that wish to be sent.
//!
//! Written by `serve` about once a second, read by sessions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::Server;
use super::role::Role;
use crate::actors::coordinator::Located;
use crate::actors::nodes::{Apart, NodeStanding};
use crate::core::plural::counted;
use crate::core::types::Name;
use crate::limits::NODE_LEASE_MS;
use crate::wire::nouns::{ClusterDrainResult, ClusterLocateResult, ClusterNode, ClusterNodesResult, ClusterShard};
use crate::wire::{ErrorKind, RpcError};

/// A node that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Which run of it.
    pub process: u128,
    /// What it runs.
    pub version: String,
    /// Where clients reach it; empty where it has not said so yet.
    pub address: String,
    /// Where other nodes reach it; empty where they cannot.
    pub peer_address: String,
    /// It is out of service: it owns nothing while another node can.
    pub draining: bool,
    /// It has had no way to the owner for long.
    pub apart: Option<Apart>,
    /// How long ago it was seen.
    pub age_ms: u64,
}

impl Node {
    /// Is it another node than `own`, and one that others can reach, as whoever has no secret cannot be?
    pub fn is_reachable_beside(&self, own: &str) -> bool {
        self.name != own && !self.peer_address.is_empty()
    }
}

/// The nodes that were seen last, and what this node found when it tried the store.
#[derive(Debug, Default)]
pub struct Nodes {
    seen: ArcSwap<Vec<Node>>,
    /// When that was.
    at: ArcSwapOption<Instant>,
    trouble: ArcSwapOption<Trouble>,
    /// Another node was here at some time since this one began.
    company: AtomicBool,
}

#[derive(Debug)]
struct Trouble {
    why: Arc<str>,
    /// It is no better where this node sees the others in the store again.
    outlasts_meeting: bool,
    until: Instant,
}

impl Nodes {
    /// These were seen just now.
    pub fn seen(&self, nodes: Vec<Node>) {
        if nodes.len() > 1 {
            self.has_company();
        }
        self.seen.store(Arc::new(nodes));
        // They are seen in the store, so it is reached again.
        if self.trouble.load().as_deref().is_some_and(|trouble| !trouble.outlasts_meeting) {
            self.trouble.store(None);
        }
        self.at.store(Some(Arc::new(Instant::now())));
    }

    /// Another node is here: it connected, or was seen beside this one.
    pub fn has_company(&self) {
        self.company.store(true, Ordering::Release);
    }

    /// Was no other node here since this one began, as far as it saw? Of what it could not see while it did not reach the store
    /// that says nothing.
    pub fn is_alone(&self) -> bool {
        !self.company.load(Ordering::Acquire)
    }

    /// Those that were seen last.
    pub fn all(&self) -> Arc<Vec<Node>> {
        self.seen.load_full()
    }

    /// How long ago that was.
    pub fn age(&self) -> Duration {
        self.at.load().as_deref().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// This node could not own the register because of the store, and will have tried again by then.
    pub fn in_trouble(&self, why: impl Into<Arc<str>>, within: Duration) {
        self.note(Trouble { why: why.into(), outlasts_meeting: true, until: Instant::now() + within });
    }

    /// This node did not reach the store, and will have tried again by then.
    pub fn cut_off(&self, why: impl Into<Arc<str>>, within: Duration) {
        self.note(Trouble { why: why.into(), outlasts_meeting: false, until: Instant::now() + within });
    }

    fn note(&self, trouble: Trouble) {
        self.trouble.store(Some(Arc::new(trouble)));
    }

    /// It owns the register, or knows from the store who does.
    pub fn out_of_trouble(&self) {
        self.trouble.store(None);
    }

    /// Did this node try to own the register of late, and could not for the store?
    pub fn tried_in_vain(&self) -> bool {
        self.trouble.load().as_deref().is_some_and(|trouble| trouble.outlasts_meeting && Instant::now() < trouble.until)
    }

    /// Why this node could not use the store, if it tried of late.
    pub fn trouble(&self) -> Option<Arc<str>> {
        let trouble = self.trouble.load();
        trouble.as_deref().filter(|trouble| Instant::now() < trouble.until).map(|trouble| Arc::clone(&trouble.why))
    }
}

/// How a shard of an owner stands: what stands in the way, in how many of its networks how many conflicts do, which are stopped, what
/// Redis had lost, and what this node has to bring still.
fn state(
    obstacle: Option<&str>,
    (contested, conflicts): (u64, u64),
    stopped: &[Name],
    healed: u64,
    late: u64,
) -> String {
    let mut state = obstacle.map_or_else(|| "served".to_owned(), |why| format!("nothing is granted: {why}"));
    if let Some((first, more)) = stopped.split_first() {
        let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        state += &format!("; stopped: network `{first}`{more} (`/readyz` says why)");
    }
    if conflicts > 0 {
        state += &format!(
            "; nothing new in {} with {} (`allod cluster conflicts`)",
            counted(contested, "network"),
            counted(conflicts, "conflict")
        );
    }
    if healed > 0 {
        state += &format!("; healed: {} that Redis had lost played again", counted(healed, "batch"));
    }
    if late > 0 {
        state += &format!("; {} of this node to bring", counted(late, "batch"));
    }
    state
}

fn some(address: &str) -> Option<String> {
    (!address.is_empty()).then(|| address.to_owned())
}

impl Server {
    /// Name of the node that owns the register, if one is known. Not one that says that it does not: the store names as its
    /// owner also who took the register and may not begin, for want of replicas.
    pub fn owner(&self) -> Option<Arc<str>> {
        match &*self.seat.role() {
            Role::Owner(_) => Some(self.node.as_str().into()),
            Role::Follower { owner, link, .. } => (!link.is_of_no_owner()).then(|| Arc::clone(owner)),
            Role::Between | Role::Waiting { .. } => None,
        }
    }

    /// Where clients reach a node.
    fn address_of(&self, node: &str) -> Option<String> {
        self.nodes.seen.load().iter().find(|seen| seen.name == node).and_then(|seen| some(&seen.address))
    }

    /// The result of `cluster.nodes`.
    pub(super) fn cluster_nodes(&self) -> ClusterNodesResult {
        let owner = self.owner();
        // Where the store is not reached nobody is seen any more but this node itself.
        let since = self.nodes.age().as_millis() as u64;
        let age_of = |node: &Node| if node.name == self.node { node.age_ms } else { node.age_ms + since };
        let mut nodes: Vec<ClusterNode> = (self.nodes.seen.load().iter())
            .filter(|node| age_of(node) <= NODE_LEASE_MS)
            .map(|node| ClusterNode {
                name: node.name.clone(),
                id: format!("{:032x}", node.process),
                version: node.version.clone(),
                address: some(&node.address),
                owner: owner.as_deref() == Some(node.name.as_str()),
                draining: node.draining,
                seen_ms: age_of(node),
            })
            .collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        ClusterNodesResult { nodes, shards: self.cluster_shards() }
    }

    /// The shards that this node owns, each in words. Where nobody else could own them there is nothing to tell.
    fn cluster_shards(&self) -> Vec<ClusterShard> {
        let role = self.seat.role();
        let Some(shared) = role.actors().filter(|shared| !shared.info.ownership_is_standing) else { return Vec::new() };
        let late = u64::try_from(self.metrics.late_batches.get()).unwrap_or(0);
        let (obstacle, healed) = (shared.unwilling(), shared.store.figures().healed_batches);
        let mut contested: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut stopped: BTreeMap<u64, Vec<Name>> = BTreeMap::new();
        for route in shared.routes.all() {
            if let Some(name) = route.name.clone().filter(|_| route.published.stopped().is_some()) {
                stopped.entry(route.lane.shard.0.into()).or_default().push(name);
            }
            let conflicts = route.published.figures.load().as_ref().map_or(0, |figures| figures.conflicts as u64);
            if conflicts > 0 {
                let of_shard = contested.entry(route.lane.shard.0.into()).or_default();
                *of_shard = (of_shard.0 + 1, of_shard.1 + conflicts);
            }
        }
        let shard = |(shard, epoch)| {
            let conflicts = contested.get(&shard).copied().unwrap_or_default();
            let stopped = stopped.get(&shard).map_or(&[][..], Vec::as_slice);
            ClusterShard { shard, epoch, state: state(obstacle.as_deref(), conflicts, stopped, healed, late) }
        };
        (0..).zip(shared.epochs()).map(shard).collect()
    }

    /// The result of `cluster.locate`.
    pub(super) fn located(&self, located: &Located) -> ClusterLocateResult {
        let node = self.owner().as_deref().unwrap_or_default().to_owned();
        ClusterLocateResult {
            network: located.network.clone(),
            network_id: located.id,
            shard: u64::from(located.shard.0),
            address: self.address_of(&node),
            node,
            epoch: located.epoch,
        }
    }

    /// The result of `cluster.drain`.
    pub(super) fn drained(&self, standing: &NodeStanding) -> ClusterDrainResult {
        let &NodeStanding { ref node, draining, ref owner } = standing;
        ClusterDrainResult { node: node.to_string(), draining, owner: owner.as_ref().map(ToString::to_string) }
    }

    /// What a client that wishes to be sent on is told, where another node serves.
    pub(super) fn moved_to(&self, owner: &str) -> RpcError {
        let address = self.address_of(owner);
        let place = address.as_ref().map_or_else(String::new, |address| format!(" at {address}"));
        let message = format!("node {owner}{place} serves this; ask there");
        RpcError::new(ErrorKind::Moved, message).with(|data| {
            data.node = Some(owner.to_owned());
            data.address = address;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_in_which_conflicts_keep_networks_from_granting_is_not_said_to_be_served_alone() {
        assert_eq!(state(None, (0, 0), &[], 0, 0), "served");
        assert_eq!(
            state(None, (1, 3), &[], 2, 0),
            "served; nothing new in 1 network with 3 conflicts (`allod cluster conflicts`); healed: 2 batches that Redis had \
             lost played again"
        );
        assert_eq!(
            state(Some("too full"), (2, 1), &[], 0, 1),
            "nothing is granted: too full; nothing new in 2 networks with 1 conflict (`allod cluster conflicts`); 1 batch of this \
             node to bring"
        );
        let names: Vec<Name> = ["lan", "dmz", "san"].map(|name| name.parse().unwrap()).into();
        assert_eq!(state(None, (0, 0), &names[..1], 0, 0), "served; stopped: network `lan` (`/readyz` says why)");
        let several = state(None, (0, 0), &names, 0, 0);
        assert_eq!(several, "served; stopped: network `lan` and 2 more (`/readyz` says why)");
    }
}
