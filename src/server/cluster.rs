//! What this node knows about the nodes that share its register: for `cluster.nodes` and `cluster.locate`, and to redirect
//! clients that asked for it.
//!
//! Written by `serve` about once a second, read by sessions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::Server;
use super::role::Role;
use crate::actors::Stopped;
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
    /// Identifies the run of its process.
    pub process: u128,
    /// The version of allod that it runs.
    pub version: String,
    /// Where clients reach it; empty if it has not said so yet.
    pub address: String,
    /// Where other nodes reach it; empty if they cannot.
    pub peer_address: String,
    /// Is it out of service? Then it owns nothing while another node can.
    pub draining: bool,
    /// Set if it has not reached the owner for long.
    pub apart: Option<Apart>,
    /// How long ago it was seen.
    pub age_ms: u64,
}

impl Node {
    /// Is this a node other than `own` that others can reach? Nodes without a secret cannot be reached.
    pub fn is_reachable_beside(&self, own: &str) -> bool {
        self.name != own && !self.peer_address.is_empty()
    }
}

/// The nodes that were seen last, and this node's own trouble with the store.
#[derive(Debug, Default)]
pub struct Nodes {
    seen: ArcSwap<Vec<Node>>,
    /// When they were seen.
    at: ArcSwapOption<Instant>,
    trouble: ArcSwapOption<Trouble>,
    /// Whether another node was seen since this one started.
    company: AtomicBool,
}

#[derive(Debug)]
struct Trouble {
    why: Arc<str>,
    /// Whether the trouble lasts even if this node sees the others in the store again.
    outlasts_meeting: bool,
    until: Instant,
}

impl Nodes {
    /// Notes the nodes that were seen just now.
    pub fn seen(&self, nodes: Vec<Node>) {
        if nodes.len() > 1 {
            self.has_company();
        }
        self.seen.store(Arc::new(nodes));
        // The nodes are read from the store, so the store can be reached again.
        if self.trouble.load().as_deref().is_some_and(|trouble| !trouble.outlasts_meeting) {
            self.trouble.store(None);
        }
        self.at.store(Some(Arc::new(Instant::now())));
    }

    /// Notes that another node exists: it connected, or was seen in the store.
    pub fn has_company(&self) {
        self.company.store(true, Ordering::Release);
    }

    /// Has this node seen no other one since it started? It may have missed some while it could not reach the store.
    pub fn is_alone(&self) -> bool {
        !self.company.load(Ordering::Acquire)
    }

    /// The nodes that were seen last.
    pub fn all(&self) -> Arc<Vec<Node>> {
        self.seen.load_full()
    }

    /// How long ago they were seen.
    pub fn age(&self) -> Duration {
        self.at.load().as_deref().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// Notes that this node could not own the register because of the store, and will try again `within` this time.
    pub fn in_trouble(&self, why: impl Into<Arc<str>>, within: Duration) {
        self.note(Trouble { why: why.into(), outlasts_meeting: true, until: Instant::now() + within });
    }

    /// Notes that this node could not reach the store, and will try again `within` this time.
    pub fn cut_off(&self, why: impl Into<Arc<str>>, within: Duration) {
        self.note(Trouble { why: why.into(), outlasts_meeting: false, until: Instant::now() + within });
    }

    fn note(&self, trouble: Trouble) {
        self.trouble.store(Some(Arc::new(trouble)));
    }

    /// Notes that this node owns the register, or knows from the store who does.
    pub fn out_of_trouble(&self) {
        self.trouble.store(None);
    }

    /// Did this node lately try to own the register and fail because of the store?
    pub fn tried_in_vain(&self) -> bool {
        self.trouble.load().as_deref().is_some_and(|trouble| trouble.outlasts_meeting && Instant::now() < trouble.until)
    }

    /// Why this node could not use the store, if it tried lately.
    pub fn trouble(&self) -> Option<Arc<str>> {
        let trouble = self.trouble.load();
        trouble.as_deref().filter(|trouble| Instant::now() < trouble.until).map(|trouble| Arc::clone(&trouble.why))
    }
}

/// The state of an owner's shard in words: what keeps it from granting, its conflicts and in how many networks they are, which
/// networks are stopped, what Redis had lost, and what this node still has to bring.
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
    /// Name of the node that owns the register, if it is known. A node that says that it owns nothing is left out: the store
    /// also names as owner a node that took the register and cannot begin, for want of replicas.
    pub fn owner(&self) -> Option<Arc<str>> {
        match &*self.seat.role() {
            Role::Owner(_) => Some(self.node.as_str().into()),
            role => role.owner_elsewhere().map(Arc::clone),
        }
    }

    /// Where clients reach a node.
    fn address_of(&self, node: &str) -> Option<String> {
        self.nodes.seen.load().iter().find(|seen| seen.name == node).and_then(|seen| some(&seen.address))
    }

    /// The result of `cluster.nodes`.
    pub(super) fn cluster_nodes(&self) -> ClusterNodesResult {
        let owner = self.owner();
        // If the store cannot be reached, only this node itself is still seen.
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

    /// The shards that this node owns, each in words. Empty if no other node could own them.
    fn cluster_shards(&self) -> Vec<ClusterShard> {
        let role = self.seat.role();
        let Some(shared) = role.actors().filter(|shared| !shared.info.ownership_is_standing) else { return Vec::new() };
        let late = u64::try_from(self.metrics.late_batches.get()).unwrap_or(0);
        let (obstacle, healed) = (shared.unwilling(), shared.store.figures().healed_batches);
        let mut contested: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut stopped: BTreeMap<u64, Vec<Name>> = BTreeMap::new();
        for Stopped { network, shard, .. } in shared.stopped() {
            stopped.entry(shard.0.into()).or_default().push(network);
        }
        for route in shared.routes.all() {
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

    /// The redirection for a client that asked for it, if another node serves.
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
