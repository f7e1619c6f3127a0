//! Several nodes on one register in Redis, each a process of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use super::redis::{Redis, process, send_signal};
use super::server::{Server, Starting, allod, http_get};
use super::wire::Wire;

/// The longest that nodes and their clients may stand still: a failover, a lease, a take-over, and a debug build on a busy
/// machine.
pub const STANDSTILL_MAX: Duration = Duration::from_secs(120);

/// A secret that the nodes of a cluster do not have.
pub const OTHER_SECRET: &str = "a secret that no other node has";

/// The longest wait for the figures of a node that is about to be ended.
const SCRAPE_MAX: Duration = Duration::from_secs(1);

/// A set of nodes, and what each of them is started with.
pub struct Cluster {
    directory: PathBuf,
    url: String,
    settings: Vec<String>,
    nodes: Vec<Option<Server>>,
    /// The wire between each node and Redis; empty if nodes are not wired.
    pub to_redis: Vec<Wire>,
    /// The wire to each node from the others.
    pub to_node: Vec<Wire>,
    /// The port on which each node listens for the others, if it is wired.
    peer_ports: Vec<u16>,
    /// The extra environment of each node.
    environments: Vec<Vec<(String, String)>>,
    /// Do the nodes have a secret, without which they cannot share a register?
    has_secret: bool,
    /// The program that is started.
    program: PathBuf,
    /// The last metrics of processes that were ended.
    ended: Vec<String>,
}

impl Cluster {
    /// Starts this many nodes, one after the other: the first one owns the register.
    pub fn start(directory: &Path, redis: &Redis, count: usize) -> Self {
        Self::start_with(directory, &redis.url(), count, &[])
    }

    /// Starts this many nodes, one after the other, with the store at this URL and with more arguments.
    pub fn start_with(directory: &Path, url: &str, count: usize, settings: &[&str]) -> Self {
        Self::with_environments(directory, url, count, settings, Vec::new())
    }

    /// Starts this many nodes, one after the other, each with its extra environment.
    pub fn with_environments(
        directory: &Path,
        url: &str,
        count: usize,
        settings: &[&str],
        environments: Vec<Vec<(String, String)>>,
    ) -> Self {
        let mut cluster = Self { environments, ..Self::new(directory, url, settings) };
        cluster.add(count);
        cluster
    }

    /// Starts a node that has no secret, and so shares its register with nobody, with this extra environment.
    pub fn alone(directory: &Path, url: &str, settings: &[&str], environment: Vec<(String, String)>) -> Self {
        let environments = vec![environment];
        let mut cluster = Self { has_secret: false, environments, ..Self::new(directory, url, settings) };
        cluster.add(1);
        cluster
    }

    /// Starts this many nodes, with a wire to each from the others, and one between each node and the store if the store has
    /// one port.
    pub fn wired(
        directory: &Path,
        (url, redis): (&str, Option<u16>),
        count: usize,
        settings: &[&str],
        environments: Vec<Vec<(String, String)>>,
    ) -> Self {
        let mut cluster = Self { environments, ..Self::new(directory, url, settings) };
        for _ in 0..count {
            let port = process::ports::free_port();
            cluster.peer_ports.push(port);
            cluster.to_node.push(Wire::to(([127, 0, 0, 1], port).into()));
            cluster.to_redis.extend(redis.map(|redis| Wire::to(([127, 0, 0, 1], redis).into())));
        }
        cluster.add(count);
        cluster
    }

    fn add(&mut self, count: usize) {
        for at in 0..count {
            let node = self.started(at);
            self.nodes.push(Some(node));
        }
    }

    fn new(directory: &Path, url: &str, settings: &[&str]) -> Self {
        let secret = directory.join("secret");
        std::fs::write(&secret, "a secret that only a test has").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        Self {
            directory: directory.to_owned(),
            url: url.to_owned(),
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            nodes: Vec::new(),
            to_redis: Vec::new(),
            to_node: Vec::new(),
            peer_ports: Vec::new(),
            environments: Vec::new(),
            has_secret: true,
            program: allod(),
            ended: Vec::new(),
        }
    }

    /// From now on starts this program, with this extra environment.
    pub fn starts(&mut self, program: &Path, environment: &[(&str, &str)]) {
        self.program = program.to_owned();
        let own = environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        self.environments = vec![own.collect(); self.nodes.len()];
    }

    /// Starts a node until it is ready. Like a supervisor, it tries again if the node cannot start now: a replica may be
    /// slow to answer.
    fn started(&self, at: usize) -> Server {
        let end = Instant::now() + STANDSTILL_MAX;
        loop {
            match self.begin(at).ready_or_ended() {
                Ok(node) => return node,
                Err((reason, _)) if reason == "code 75" && Instant::now() < end => {}
                Err((reason, log)) => panic!("node {at} is not ready ({reason}): {log}"),
            }
        }
    }

    fn begin(&self, at: usize) -> Starting {
        self.begin_as(&format!("node-{at}"), &format!("node-{at}"), at)
    }

    /// Starts a process under this name. Its files are apart from those of another process of this name.
    pub fn begin_as(&self, name: &str, place: &str, at: usize) -> Starting {
        let data = self.directory.join(place);
        let (data_text, secret) = (data.display().to_string(), self.directory.join("secret").display().to_string());
        let url = self.to_redis.get(at).map_or(self.url.clone(), |wire| format!("redis://{}/0", wire.address));
        let listen = format!("127.0.0.1:{}", self.peer_ports.get(at).copied().unwrap_or_default());
        let advertised = self.to_node.get(at).map(|wire| wire.address.to_string());
        let arguments = ["serve", "--redis", &url, "--node", name, "--data", &data_text];
        let shared = ["--cluster-listen", &listen, "--cluster-secret-file", &secret];
        let cluster: &[&str] = if self.has_secret { &shared } else { &[] };
        let advertise: Vec<&str> = advertised.iter().flat_map(|address| ["--advertise", address]).collect();
        let settings: Vec<&str> = self.settings.iter().map(String::as_str).collect();
        let environment = self.environments.get(at).cloned().unwrap_or_default();
        let all = [&arguments[..], cluster, &advertise[..], &settings[..]].concat();
        Starting::of(&self.program, &data, &all, environment)
    }

    /// Starts one more node, with this network file.
    pub fn begin_with_networks(&self, name: &str, file: &Path) -> Starting {
        let data = self.directory.join(name);
        let [data_text, secret, file] =
            [&data, &self.directory.join("secret"), file].map(|path| path.display().to_string());
        let arguments = ["serve", "--redis", &self.url, "--node", name, "--data", &data_text, "--networks", &file];
        let shared = ["--cluster-listen", "127.0.0.1:0", "--cluster-secret-file", &secret];
        let settings: Vec<&str> = self.settings.iter().map(String::as_str).collect();
        Starting::with_arguments(&data, &[&arguments[..], &shared, &settings[..]].concat())
    }

    /// Starts a process without the secret of the cluster, on the same register.
    pub fn begin_without_secret(&self, name: &str) -> Starting {
        let data = self.directory.join(name);
        let data_text = data.display().to_string();
        Starting::with_arguments(&data, &["serve", "--redis", &self.url, "--node", name, "--data", &data_text])
    }

    /// Starts a process with a secret of its own, on the same register.
    pub fn begin_with_another_secret(&self, name: &str) -> Starting {
        use std::os::unix::fs::PermissionsExt;
        let (data, secret) = (self.directory.join(name), self.directory.join(format!("secret-of-{name}")));
        std::fs::write(&secret, OTHER_SECRET).unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let (data_text, secret) = (data.display().to_string(), secret.display().to_string());
        let own = ["--cluster-listen", "127.0.0.1:0", "--cluster-secret-file", &secret];
        let arguments = ["serve", "--redis", &self.url, "--node", name, "--data", &data_text];
        Starting::with_arguments(&data, &[&arguments[..], &own[..]].concat())
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

    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    pub fn runs(&self, at: usize) -> bool {
        self.nodes[at].is_some()
    }

    /// Does the node own the register, according to the role that it logged last?
    fn owns(&self, at: usize) -> bool {
        let Some(node) = &self.nodes[at] else { return false };
        let log = node.log_text();
        let role = log.lines().rev().find_map(|line| line.split_once("this node's role role="));
        let owns = role.is_some_and(|(_, role)| role.trim() == "owner");
        if owns {
            self.serves_still(at);
        }
        owns
    }

    /// Checks that a node did not end by itself.
    pub fn serves_still(&self, at: usize) {
        let ended = TcpStream::connect(self.node(at).address).is_err();
        assert!(!ended, "node {at} ended by itself\n{}", self.log(at));
    }

    /// Waits until a node other than this one owns the register.
    pub async fn owner_but(&self, not: Option<usize>) -> usize {
        let end = Instant::now() + STANDSTILL_MAX;
        loop {
            let runs = |at: &usize| self.runs(*at);
            if let Some(owner) = (0..self.nodes.len()).filter(runs).find(|&at| Some(at) != not && self.owns(at)) {
                return owner;
            }
            if Instant::now() >= end {
                let logs = (0..self.nodes.len()).map(|node| format!("--- node {node}\n{}", self.log(node)));
                panic!("nobody owns the register\n{}", logs.collect::<String>());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Starts one more node, which has to fail. Returns what it said.
    pub fn fails(&self, at: usize) -> String {
        self.begin(at).failed()
    }

    /// Ends a node without notice.
    pub fn kill(&mut self, at: usize) {
        self.is_about_to_end(at).kill();
    }

    /// Ends a node without notice, and starts it again.
    pub fn crash(&mut self, at: usize) -> SocketAddr {
        self.kill(at);
        self.again(at)
    }

    /// Asks a node to stop, waits until it has, and starts it again.
    pub fn restart(&mut self, at: usize) -> SocketAddr {
        self.stop(at);
        self.again(at)
    }

    /// Asks a node to stop, and waits until it has.
    pub fn stop(&mut self, at: usize) {
        self.is_about_to_end(at).stop();
    }

    /// Waits until a node has ended by itself. Returns its exit code, and what it logged.
    #[allow(dead_code, reason = "for tests of nodes that cannot go on")]
    pub fn ends(&mut self, at: usize) -> (Option<i32>, String) {
        self.nodes[at].take().unwrap().ends()
    }

    fn is_about_to_end(&mut self, at: usize) -> Server {
        self.ended.push(self.last_metrics(at).unwrap_or_default());
        self.nodes[at].take().unwrap()
    }

    /// The node's `/metrics`, if it answers: it may stand still.
    fn last_metrics(&self, at: usize) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.node(at).http)?;
        stream.set_read_timeout(Some(SCRAPE_MAX))?;
        write!(stream, "GET /metrics HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Did a signal stop the node?
    pub fn stands_still(&self, at: usize) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.node(at).pid())).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
    }

    /// Starts a node that was ended.
    pub fn again(&mut self, at: usize) -> SocketAddr {
        let node = self.started(at);
        let address = node.address;
        self.nodes[at] = Some(node);
        address
    }

    /// A separate wire from one node to another, which their traffic takes from now on.
    pub fn between(&self, from: usize, to: usize) -> Wire {
        let apart = self.to_node[to].apart(self.node(from).pid());
        self.to_node[to].cut();
        apart
    }

    /// Separate wires from a node to what is behind these wires, which its traffic takes from now on.
    pub fn apart(&self, at: usize, wires: &[Wire]) -> Vec<Wire> {
        let apart = wires.iter().map(|wire| wire.apart(self.node(at).pid())).collect();
        wires.iter().for_each(Wire::cut);
        apart
    }

    /// Sends `-STOP` or `-CONT` to a node.
    pub fn signal(&self, at: usize, signal: &str) {
        send_signal(self.node(at).pid(), signal);
    }

    /// The node's HTTP address.
    pub fn http(&self, at: usize) -> SocketAddr {
        self.node(at).http
    }

    /// Does the node say that it is ready?
    pub fn is_ready(&self, at: usize) -> bool {
        http_get(self.node(at).http, "/readyz").starts_with("HTTP/1.1 200")
    }

    /// The node's `/metrics`.
    pub fn metrics(&self, at: usize) -> String {
        http_get(self.node(at).http, "/metrics")
    }

    /// A metric of a node, named with its labels; 0 if there is none.
    pub fn figure(&self, at: usize, name: &str) -> f64 {
        figure_in(&self.metrics(at), name)
    }

    /// The sum of a metric over all processes that were ended.
    pub fn figure_of_ended(&self, name: &str) -> f64 {
        self.ended.iter().map(|metrics| figure_in(metrics, name)).sum()
    }

    /// Runs a command that must succeed, and returns what it prints.
    pub fn allod(&self, at: usize, arguments: &[&str]) -> String {
        self.node(at).allod_ok(arguments)
    }

    /// Runs a command that may fail. Returns its output.
    #[allow(dead_code, reason = "for tests of commands that fail")]
    pub fn tries(&self, at: usize, arguments: &[&str]) -> Output {
        self.node(at).allod(arguments)
    }

    /// What all processes of this node logged.
    pub fn log(&self, at: usize) -> String {
        std::fs::read_to_string(self.directory.join(format!("node-{at}.log"))).unwrap_or_default()
    }
}

fn figure_in(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
    line.unwrap_or(0.0)
}
