//! A run: the store of a register (one Redis, one with sentinels, or a cluster), nodes over it, and clients that work until
//! the run ends.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::checker::{Verdict, check};
use super::client::{Answer, Client};
use super::clustered::RedisCluster;
use super::load::{Load, make_networks};
use super::nodes::Cluster;
pub use super::nodes::STANDSTILL_MAX;
use super::record::{Asked, Call, Told};
use super::redis::Redis;
use super::seed::seed;
use super::wire::Wire;

/// Waits until the condition holds.
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + STANDSTILL_MAX;
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Repeats a call until its answer is something other than "not now".
pub async fn settled(client: &mut Client, method: &str, params: &Value) -> Answer {
    for _ in 0..400 {
        match client.call(method, params.clone()).await {
            Answer::Refused(kind, _) if ["not_ready", "unavailable"].contains(&kind.as_str()) => {}
            answer => return answer,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{method} {params}: never answered");
}

/// Repeats a call until its answer is something other than "not now"; that must be a result.
pub async fn insist(client: &mut Client, method: &str, params: &Value) -> Value {
    settled(client, method, params).await.ok()
}

/// The store that keeps the register of a run.
pub trait Keeper {
    fn url(&self) -> String;

    /// The port at which nodes reach the store, if it has one address, so that wires can stand in between.
    fn port(&self) -> Option<u16> {
        None
    }
}

impl Keeper for Redis {
    fn url(&self) -> String {
        self.url()
    }

    fn port(&self) -> Option<u16> {
        Some(self.port())
    }
}

impl Keeper for RedisCluster {
    fn url(&self) -> String {
        self.url()
    }
}

/// How nodes and their Redis are set up.
pub struct Setting<'a> {
    pub redis: &'a [&'a str],
    pub nodes: usize,
    /// One node only, without a secret.
    pub alone: bool,
    /// Lines of the section `[store]`.
    pub store: &'a str,
    /// Is there a wire between each node and Redis (if Redis has one address), one to each node from the others, and one
    /// from clients to each node?
    pub wired: bool,
    /// The extra environment of each node; if empty, nodes have the environment of the test.
    pub environments: Vec<Vec<(String, String)>>,
}

impl Default for Setting<'_> {
    fn default() -> Self {
        Self {
            redis: &["--appendonly", "yes", "--appendfsync", "always"],
            nodes: 2,
            alone: false,
            store: "",
            wired: false,
            environments: Vec::new(),
        }
    }
}

/// Nodes and their store. The fields are dropped in this order.
pub struct Nodes<R = Redis> {
    pub cluster: Cluster,
    pub redis: R,
    /// Between clients and each node, if there are wires.
    to_clients: Vec<Wire>,
    pub directory: TempDir,
}

impl Nodes {
    /// Starts this many nodes. None if there is no `redis-server`.
    pub fn start(count: usize, settings: &[&str]) -> Option<Self> {
        Self::set(Setting { redis: settings, nodes: count, ..Setting::default() })
    }

    /// Starts Redis and nodes as the setting says.
    pub fn set(setting: Setting<'_>) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let redis = Redis::start(directory.path(), setting.redis)?;
        Some(Self::over(directory, redis, setting))
    }
}

impl<R: Keeper> Nodes<R> {
    /// Starts nodes as the setting says, over a store that runs already.
    pub fn over(directory: TempDir, redis: R, setting: Setting<'_>) -> Self {
        let file = configuration(directory.path(), setting.store).display().to_string();
        let (place, arguments) = (directory.path(), ["--config", &file]);
        let (url, count, environments) = (redis.url(), setting.nodes, setting.environments);
        if setting.alone {
            let cluster = Cluster::alone(place, &url, &arguments, Vec::new());
            return Self { cluster, redis, to_clients: Vec::new(), directory };
        }
        if !setting.wired {
            let cluster = Cluster::with_environments(place, &url, count, &arguments, environments);
            return Self { cluster, redis, to_clients: Vec::new(), directory };
        }
        let cluster = Cluster::wired(place, (&url, redis.port()), count, &arguments, environments);
        let to_clients = cluster.addresses().into_iter().map(Wire::to).collect();
        Self { cluster, redis, to_clients, directory }
    }
}

impl<R> Nodes<R> {
    /// A client of a node.
    pub async fn client(&self, node: usize) -> Client {
        Client::connect(self.cluster.address(node)).await.unwrap()
    }

    /// What all nodes logged.
    pub fn logs(&self) -> String {
        (0..self.cluster.count()).map(|node| format!("--- node {node}\n{}", self.cluster.log(node))).collect()
    }

    /// The sum of a metric over all nodes that run.
    pub fn figure(&self, name: &str) -> f64 {
        let of = |node| self.cluster.figure(node, name);
        (0..self.cluster.count()).filter(|node| self.cluster.runs(*node)).map(of).sum()
    }

    /// The sum of a metric over all nodes, including processes that were ended.
    pub fn total(&self, name: &str) -> f64 {
        self.figure(name) + self.cluster.figure_of_ended(name)
    }

    /// The number of batches that Redis had lost and was given back.
    pub fn healed(&self) -> f64 {
        self.total("allod_store_healed_batches_total")
    }

    /// The wire between clients and a node.
    pub fn to_clients(&self, node: usize) -> &Wire {
        &self.to_clients[node]
    }

    /// Makes a node reach this Redis from now on; its present connections are cut.
    pub fn lead(&self, node: usize, redis: &Redis) {
        let wire = self.to_redis(node);
        wire.lead_to(([127, 0, 0, 1], redis.port()).into());
        wire.cut();
    }

    /// The wire between a node and Redis.
    pub fn to_redis(&self, node: usize) -> &Wire {
        &self.cluster.to_redis[node]
    }

    /// The wire to a node from the others.
    pub fn to_node(&self, node: usize) -> &Wire {
        &self.cluster.to_node[node]
    }
}

/// Writes a configuration file with these settings of the store.
pub fn configuration(directory: &Path, store: &str) -> PathBuf {
    let file = directory.join("node.toml");
    std::fs::write(&file, format!("[store]\n{store}\n")).unwrap();
    file
}

/// Nodes, and clients at work.
pub struct Run<R = Redis> {
    pub load: Arc<Load>,
    clients: Vec<JoinHandle<()>>,
    pub nodes: Nodes<R>,
    pub seed: u64,
}

impl Run {
    /// Starts nodes with this setting and four clients, and waits until they make progress. None if there is no `redis-server`.
    pub async fn of(setting: Setting<'_>) -> Option<Self> {
        let seed = seed();
        let run = Self::begin(Nodes::set(setting)?, 4, seed).await;
        run.gets_on(200, "at the start").await;
        Some(run)
    }
}

impl<R> Run<R> {
    /// Starts nodes with this setting over this store, and four clients, and waits until they make progress.
    pub async fn over(redis: R, setting: Setting<'_>, seed: u64) -> Self
    where
        R: Keeper,
    {
        let run = Self::begin(Nodes::over(tempfile::tempdir().unwrap(), redis, setting), 4, seed).await;
        run.gets_on(200, "at the start").await;
        run
    }

    /// Starts this many clients of all of these nodes, in small networks that were created through the last node.
    pub async fn begin(nodes: Nodes<R>, clients: usize, seed: u64) -> Self {
        let mut addresses = nodes.cluster.addresses();
        let networks = make_networks(&mut nodes.client(addresses.len() - 1).await, 4).await;
        if !nodes.to_clients.is_empty() {
            addresses = nodes.to_clients.iter().map(|wire| wire.address).collect();
        }
        let load = Load::new(networks, addresses);
        let clients = load.start(clients, seed);
        Self { load, clients, nodes, seed }
    }

    /// Waits until this many more grants were acknowledged.
    pub async fn gets_on(&self, grants: u64, why: &str) {
        if !self.load.more(grants, STANDSTILL_MAX).await {
            panic!("ALLOD_SEED={}: nobody gets on: {why}\n{}", self.seed, self.nodes.logs());
        }
    }

    /// Does something that gives a node another address, and tells the clients.
    fn reaches(&mut self, node: usize, does: impl FnOnce(&mut Cluster) -> SocketAddr) {
        let address = does(&mut self.nodes.cluster);
        match self.nodes.to_clients.get(node) {
            Some(wire) => wire.lead_to(address),
            None => self.load.moved(node, address),
        }
    }

    /// Ends a node without notice, and starts it again.
    pub fn crash(&mut self, node: usize) {
        self.reaches(node, |cluster| cluster.crash(node));
    }

    /// Starts a node that was ended.
    pub fn again(&mut self, node: usize) {
        self.reaches(node, |cluster| cluster.again(node));
    }

    /// Asks a node to stop, waits until it has, and starts it again.
    pub fn restart(&mut self, node: usize) {
        self.reaches(node, |cluster| cluster.restart(node));
    }

    /// New grants that were asked for after this instant of the record.
    pub fn granted_since(&self, since_ns: u64) -> Vec<Call> {
        let is_new = |call: &Call| {
            let is_granted = matches!(call.told, Told::Held { created: true, .. });
            call.sent_ns > since_ns && call.asked == Asked::Grant && is_granted
        };
        self.load.record.all().into_iter().filter(is_new).collect()
    }

    /// How many answers so far said that nothing can be done at the moment.
    pub fn refusals(&self) -> u64 {
        self.load.put_off.load(Ordering::Relaxed)
    }

    /// Ends the clients, asks once more for everything that is certainly held and for pairs, and judges all answers.
    pub async fn end(mut self) -> Verdict {
        self.stop().await;
        let asked = self.load.ask_again(&check(&self.load.record.all())).await;
        assert!(asked > 0, "nobody holds anything");
        self.load.pairs_are_whole().await;
        self.judge()
    }

    /// Ends the clients and judges their answers, when no node can be asked any more.
    pub async fn end_in_silence(mut self) -> Verdict {
        self.stop().await;
        self.judge()
    }

    /// Ends the clients and checks their answers, whether or not these keep the promise.
    pub async fn unjudged(mut self) -> Verdict {
        self.stop().await;
        check(&self.load.record.all())
    }

    /// Ends the clients.
    pub async fn stop(&mut self) {
        self.load.end(std::mem::take(&mut self.clients)).await;
    }

    fn judge(&self) -> Verdict {
        let verdict = check(&self.load.record.all());
        let first: Vec<_> = verdict.problems.iter().take(5).collect();
        let (seed, problems) = (self.seed, verdict.problems.len());
        assert!(first.is_empty(), "ALLOD_SEED={seed}: {problems} problems: {first:#?}\n{}", self.nodes.logs());
        assert!(verdict.sure_holdings > 100, "ALLOD_SEED={seed}: {} sure holdings", verdict.sure_holdings);
        let (late, granted) = self.load.late_holdings(&verdict);
        assert!(
            late * 4 > granted,
            "ALLOD_SEED={seed}: of the last {granted} grants {late} are sure: the checker goes blind"
        );
        verdict
    }
}
