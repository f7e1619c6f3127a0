//! Several nodes on one register in Redis, each a process of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::redis::{Redis, process, send_signal};
use super::server::{Server, Starting, allod, http_get};
use super::wire::Wire;

/// For how long a node that cannot start just now is started again, and nobody may own the register: on a busy machine too.
const STANDSTILL_MAX: Duration = Duration::from_secs(120);

/// Longest wait for the figures of a node that is about to be ended.
const SCRAPE_MAX: Duration = Duration::from_secs(1);

/// What every node of a test is started with.
pub struct Cluster {
    directory: PathBuf,
    url: String,
    settings: Vec<String>,
    nodes: Vec<Option<Server>>,
    /// Between each node and Redis; none: they are not wired.
    pub to_redis: Vec<Wire>,
    /// To each node from the others.
    pub to_node: Vec<Wire>,
    /// Where each node listens for the others, if it is wired.
    peer_ports: Vec<u16>,
    /// What each finds in its environment.
    environments: Vec<Vec<(String, String)>>,
    /// Do its nodes have the secret with which they may share a register?
    has_secret: bool,
    /// What is started.
    program: PathBuf,
    /// The last scrapes of processes that were ended.
    ended: Vec<String>,
}

impl Cluster {
    /// Starts so many nodes, one after the other: the first one owns the register.
    pub fn start(directory: &Path, redis: &Redis, count: usize) -> Self {
        Self::start_with(directory, &redis.url(), count, &[])
    }

    /// Starts so many nodes, one after the other, with the store at this URL and more arguments.
    pub fn start_with(directory: &Path, url: &str, count: usize, settings: &[&str]) -> Self {
        Self::with_environments(directory, url, count, settings, Vec::new())
    }

    /// Starts so many nodes, one after the other, with this in the environment of each.
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

    /// Starts a node that has no secret, and so shares its register with nobody.
    pub fn alone(directory: &Path, url: &str, settings: &[&str]) -> Self {
        let mut cluster = Self { has_secret: false, ..Self::new(directory, url, settings) };
        cluster.add(1);
        cluster
    }

    /// Starts so many nodes with a wire to each from the others, and between each and the store, if that is at one port.
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

    /// What is started from now on, and what each finds in its environment then.
    pub fn starts(&mut self, program: &Path, environment: &[(&str, &str)]) {
        self.program = program.to_owned();
        let own = environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        self.environments = vec![own.collect(); self.nodes.len()];
    }

    /// Starts it until it is ready, as its supervisor does where it cannot start just now: a replica may be slow to answer.
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

    /// Starts a process under this name, its files elsewhere than those of another one of this name.
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

    /// Starts a process that has no secret of the cluster, on the same register.
    pub fn begin_without_secret(&self, name: &str) -> Starting {
        let data = self.directory.join(name);
        let data_text = data.display().to_string();
        Starting::with_arguments(&data, &["serve", "--redis", &self.url, "--node", name, "--data", &data_text])
    }

    /// Starts a process with a secret of its own, on the same register.
    pub fn begin_with_another_secret(&self, name: &str) -> Starting {
        use std::os::unix::fs::PermissionsExt;
        let (data, secret) = (self.directory.join(name), self.directory.join(format!("secret-of-{name}")));
        std::fs::write(&secret, "a secret that no other node has").unwrap();
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

    /// Does it own the register, by what it logged last of its role?
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

    /// A node does not end by itself.
    pub fn serves_still(&self, at: usize) {
        let ended = TcpStream::connect(self.node(at).address).is_err();
        assert!(!ended, "node {at} ended by itself\n{}", self.log(at));
    }

    /// Waits until another node than this one owns the register.
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

    /// Starts one more node, which is to fail. What it said.
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

    fn is_about_to_end(&mut self, at: usize) -> Server {
        self.ended.push(self.last_metrics(at).unwrap_or_default());
        self.nodes[at].take().unwrap()
    }

    /// What a scrape of its `/metrics` gets, if it answers: it may stand still.
    fn last_metrics(&self, at: usize) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.node(at).http)?;
        stream.set_read_timeout(Some(SCRAPE_MAX))?;
        write!(stream, "GET /metrics HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Did a signal stop it?
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

    /// A wire of its own from one node to another, which is by what they go from now on.
    pub fn between(&self, from: usize, to: usize) -> Wire {
        let apart = self.to_node[to].apart(self.node(from).pid());
        self.to_node[to].cut();
        apart
    }

    /// Wires of its own from a node to what is behind these, which is by what it goes from now on.
    pub fn apart(&self, at: usize, wires: &[Wire]) -> Vec<Wire> {
        let apart = wires.iter().map(|wire| wire.apart(self.node(at).pid())).collect();
        wires.iter().for_each(Wire::cut);
        apart
    }

    /// `-STOP`, `-CONT`.
    pub fn signal(&self, at: usize, signal: &str) {
        send_signal(self.node(at).pid(), signal);
    }

    /// Where it serves HTTP.
    pub fn http(&self, at: usize) -> SocketAddr {
        self.node(at).http
    }

    /// Does it say that it serves?
    pub fn is_ready(&self, at: usize) -> bool {
        http_get(self.node(at).http, "/readyz").starts_with("HTTP/1.1 200")
    }

    /// What a scrape of its `/metrics` gets.
    pub fn metrics(&self, at: usize) -> String {
        http_get(self.node(at).http, "/metrics")
    }

    /// One of them, named with its labels; 0 where it is not there.
    pub fn figure(&self, at: usize, name: &str) -> f64 {
        figure_in(&self.metrics(at), name)
    }

    /// One of them, of all processes that were ended.
    pub fn figure_of_ended(&self, name: &str) -> f64 {
        self.ended.iter().map(|metrics| figure_in(metrics, name)).sum()
    }

    /// A command that must succeed: what it prints.
    pub fn allod(&self, at: usize, arguments: &[&str]) -> String {
        self.node(at).allod_ok(arguments)
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
