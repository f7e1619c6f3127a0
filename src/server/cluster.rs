//! What this node knows of the nodes that share its register: for `cluster.nodes`, `cluster.locate`, and to send clients on
//! that wish to be sent.
//!
//! Written by `serve` about once a second, read by sessions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::Server;
use super::role::Role;
use crate::actors::coordinator::Located;
use crate::actors::nodes::NodeStanding;
use crate::limits::NODE_LEASE_MS;
use crate::wire::nouns::{ClusterDrainResult, ClusterLocateResult, ClusterNode, ClusterNodesResult};
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
    /// How long ago it was seen.
    pub age_ms: u64,
}

/// The nodes that were seen last, and how the store was then.
#[derive(Debug, Default)]
pub struct Nodes {
    seen: ArcSwap<Vec<Node>>,
    /// When that was.
    at: ArcSwapOption<Instant>,
    /// Why the store serves nobody, whoever owns the register.
    trouble: ArcSwapOption<Arc<str>>,
}

impl Nodes {
    /// These were seen just now.
    pub fn seen(&self, nodes: Vec<Node>) {
        self.seen.store(Arc::new(nodes));
        self.at.store(Some(Arc::new(Instant::now())));
    }

    /// Those that were seen last.
    pub fn all(&self) -> Arc<Vec<Node>> {
        self.seen.load_full()
    }

    /// How long ago that was.
    pub fn age(&self) -> Duration {
        self.at.load().as_deref().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// From now on the store serves nobody for this reason, or serves.
    pub fn store_is(&self, trouble: Option<Arc<str>>) {
        self.trouble.store(trouble.map(Arc::new));
    }

    /// Why the store serves nobody, if this node knows that it does not.
    pub fn trouble(&self) -> Option<Arc<str>> {
        self.trouble.load().as_deref().cloned()
    }
}

fn some(address: &str) -> Option<String> {
    (!address.is_empty()).then(|| address.to_owned())
}

impl Server {
    /// Name of the node that owns the register, if one is known.
    pub fn owner(&self) -> Option<Arc<str>> {
        match &*self.seat.role() {
            Role::Owner(_) => Some(self.node.as_str().into()),
            Role::Follower { owner, .. } => Some(Arc::clone(owner)),
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
        // Where the store is not reached nobody is seen any more.
        let since = self.nodes.age().as_millis() as u64;
        let is_seen = |node: &&Node| node.name == self.node || node.age_ms + since <= NODE_LEASE_MS;
        let mut nodes: Vec<ClusterNode> = (self.nodes.seen.load().iter())
            .filter(is_seen)
            .map(|node| ClusterNode {
                name: node.name.clone(),
                id: format!("{:032x}", node.process),
                version: node.version.clone(),
                address: some(&node.address),
                owner: owner.as_deref() == Some(node.name.as_str()),
                draining: node.draining,
                seen_ms: node.age_ms + since,
            })
            .collect();
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        ClusterNodesResult { nodes }
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
