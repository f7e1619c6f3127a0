//! A run: Redis, nodes over it, and clients that work until its end.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::checker::{Verdict, check};
use super::client::Client;
use super::load::{Load, make_networks};
use super::nodes::Cluster;
use super::redis::Redis;

/// Longest that clients may stand still: a lease, a take-over, and a debug build.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);

/// Nodes over a Redis of their own. Dropped in this order.
pub struct Nodes {
    pub cluster: Cluster,
    pub redis: Redis,
    pub directory: TempDir,
}

impl Nodes {
    /// So many. None where there is no `redis-server`.
    pub fn start(count: usize, settings: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let redis = Redis::start(directory.path(), settings)?;
        let cluster = Cluster::start(directory.path(), &redis, count);
        Some(Self { cluster, redis, directory })
    }

    /// A client of a node.
    pub async fn client(&self, node: usize) -> Client {
        Client::connect(self.cluster.addresses()[node]).await.unwrap()
    }
}

/// Clients at work.
pub struct Run {
    pub load: Arc<Load>,
    clients: Vec<JoinHandle<()>>,
    pub nodes: Nodes,
}

impl Run {
    /// So many clients of all of these nodes, in small networks that the last node was asked for.
    pub async fn begin(nodes: Nodes, clients: usize, seed: u64) -> Self {
        let addresses = nodes.cluster.addresses();
        let networks = make_networks(&mut nodes.client(addresses.len() - 1).await, 4).await;
        let load = Load::new(networks, addresses);
        let clients = load.start(clients, seed);
        Self { load, clients, nodes }
    }

    /// Waits until so many more grants were acknowledged.
    pub async fn gets_on(&self, grants: u64, why: &str) {
        assert!(self.load.more(grants, STANDSTILL_MAX).await, "nobody gets on: {why}");
    }

    /// Ends a node without notice, and starts it again.
    pub fn crash(&mut self, node: usize) {
        self.load.moved(node, self.nodes.cluster.crash(node));
    }

    /// Asks a node to stop, waits until it has, and starts it again.
    pub fn restart(&mut self, node: usize) {
        self.load.moved(node, self.nodes.cluster.restart(node));
    }

    /// Ends the clients and judges what they were told.
    pub async fn end(self) -> Verdict {
        self.load.end(self.clients).await;
        let verdict = check(&self.load.record.all());
        let first: Vec<_> = verdict.problems.iter().take(5).collect();
        assert!(first.is_empty(), "{} problems: {first:#?}", verdict.problems.len());
        verdict
    }
}
