//! Several nodes on one register in Redis, each a process of its own.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::redis::{Redis, send_signal};
use super::server::{Server, Starting, http_get};

/// What every node of a test is started with.
pub struct Cluster {
    directory: PathBuf,
    url: String,
    settings: Vec<String>,
    nodes: Vec<Option<Server>>,
}

impl Cluster {
    /// Starts so many nodes, one after the other: the first one owns the register.
    pub fn start(directory: &Path, redis: &Redis, count: usize) -> Self {
        Self::start_with(directory, &redis.url(), count, &[])
    }

    /// The same, with the store at this URL and more arguments.
    pub fn start_with(directory: &Path, url: &str, count: usize, settings: &[&str]) -> Self {
        let secret = directory.join("secret");
        std::fs::write(&secret, "a secret that only a test has").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut cluster =
            Self { directory: directory.to_owned(), url: url.to_owned(), settings: Vec::new(), nodes: Vec::new() };
        cluster.settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        for at in 0..count {
            let node = cluster.begin(at).ready();
            cluster.nodes.push(Some(node));
        }
        cluster
    }

    fn begin(&self, at: usize) -> Starting {
        let name = format!("node-{at}");
        let data = self.directory.join(&name);
        let (data_text, secret) = (data.display().to_string(), self.directory.join("secret").display().to_string());
        let arguments = ["serve", "--redis", &self.url, "--node", &name, "--data", &data_text];
        let cluster = ["--cluster-listen", "127.0.0.1:0", "--cluster-secret-file", &secret];
        let settings: Vec<&str> = self.settings.iter().map(String::as_str).collect();
        Starting::with_arguments(&data, &[&arguments[..], &cluster[..], &settings[..]].concat())
    }

    fn node(&self, at: usize) -> &Server {
        self.nodes[at].as_ref().expect("the node runs")
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        (0..self.nodes.len()).map(|at| self.address(at)).collect()
    }

    pub fn address(&self, at: usize) -> SocketAddr {
        self.node(at).address
    }

    /// Does it own the register, by what it logged last of its role?
    fn owns(&self, at: usize) -> bool {
        let Some(node) = &self.nodes[at] else { return false };
        let log = node.log_text();
        let role = log.lines().rev().find_map(|line| line.split_once("this node's role role="));
        role.is_some_and(|(_, role)| role.trim() == "owner")
    }

    /// Waits until another node than this one owns the register.
    pub async fn owner_but(&self, not: Option<usize>) -> usize {
        let end = Instant::now() + Duration::from_secs(40);
        loop {
            if let Some(owner) = (0..self.nodes.len()).find(|&at| Some(at) != not && self.owns(at)) {
                return owner;
            }
            assert!(Instant::now() < end, "nobody owns the register");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Starts one more node, which is to fail. What it said.
    pub fn fails(&self, at: usize) -> String {
        self.begin(at).failed()
    }

    /// Ends a node without notice.
    pub fn kill(&mut self, at: usize) {
        self.nodes[at].take().unwrap().kill();
    }

    /// Ends a node without notice, and starts it again.
    pub fn crash(&mut self, at: usize) -> SocketAddr {
        self.nodes[at].take().unwrap().kill();
        self.again(at)
    }

    /// Asks a node to stop, waits until it has, and starts it again.
    pub fn restart(&mut self, at: usize) -> SocketAddr {
        self.nodes[at].take().unwrap().stop();
        self.again(at)
    }

    fn again(&mut self, at: usize) -> SocketAddr {
        let node = self.begin(at).ready();
        let address = node.address;
        self.nodes[at] = Some(node);
        address
    }

    /// `-STOP`, `-CONT`.
    pub fn signal(&self, at: usize, signal: &str) {
        send_signal(self.node(at).pid(), signal);
    }

    /// What a scrape of its `/metrics` gets.
    pub fn metrics(&self, at: usize) -> String {
        http_get(self.node(at).http, "/metrics")
    }

    /// A command that must succeed: what it prints.
    pub fn allod(&self, at: usize, arguments: &[&str]) -> String {
        self.node(at).allod_ok(arguments)
    }

    pub fn log(&self, at: usize) -> String {
        self.node(at).log_text()
    }
}
