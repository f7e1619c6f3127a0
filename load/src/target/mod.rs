//! The servers to be driven: running ones, or servers that are started for the run and end with it.

mod cluster;
mod process;
mod redis;
mod server;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use clap::Args;
use tempfile::TempDir;

pub use cluster::RedisCluster;
pub use process::processor_time;
pub use redis::{Flush, Redis, RedisControl, free_port, push_word};
pub use server::{Program, Server, Store};

/// The setting of a server's log level.
const LOG_LEVEL: &str = "ALLOD_LOG__LEVEL";

/// Where the server is.
#[derive(Args, Debug, Clone)]
pub struct TargetArguments {
    /// Where the server listens; of several nodes all: A,B,C.
    #[arg(long, default_value = "127.0.0.1:7400", value_name = "HOST:PORT", value_delimiter = ',')]
    pub server: Vec<String>,
    /// Start a server for this run, with this store, in a directory that is removed afterwards.
    #[arg(long, conflicts_with = "server", value_name = "STORE")]
    pub start: Option<Store>,
    /// With --start redis: so many nodes over the same Redis.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=9), requires = "start")]
    pub nodes: u16,
    /// With --start redis: when Redis flushes its file; everysec by default.
    #[arg(long, requires = "start", value_name = "WHEN")]
    pub appendfsync: Option<Flush>,
}

/// How much history a server keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// The server's default.
    Usual,
    /// The minimum: only the batches that are needed to recognise a repeated one.
    Trimmed,
}

impl History {
    /// Environment settings for the server.
    fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            History::Usual => &[],
            // No setting: the default for the store.
            History::Trimmed => &[("ALLOD_HISTORY__KEEP_SECONDS", "0"), ("ALLOD_HISTORY__KEEP_BYTES", "1")],
        }
    }
}

/// The store and nodes of a server to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backend {
    pub store: Store,
    /// Applies to Redis only, as do the following fields.
    pub flush: Flush,
    /// A change is acknowledged when this many replicas have it.
    pub replicas: usize,
    pub nodes: usize,
    pub history: History,
}

impl Backend {
    /// One node over a Redis with this flush setting, without replicas.
    pub const fn redis(flush: Flush) -> Self {
        Self { flush, ..Self::of(Store::Redis) }
    }

    /// One server with this store; Redis flushes every second.
    pub const fn of(store: Store) -> Self {
        Self { store, flush: Flush::Everysec, replicas: 0, nodes: 1, history: History::Usual }
    }

    /// The name in reports.
    pub fn name(self) -> String {
        let Self { store, flush, replicas, nodes, history } = self;
        if store != Store::Redis {
            return format!("allod, {}", store.name());
        }
        let replicas = match replicas {
            0 => String::new(),
            1 => ", 1 replica".to_owned(),
            many => format!(", {many} replicas"),
        };
        let nodes = if nodes == 1 { String::new() } else { format!(", {nodes} nodes") };
        let history = if history == History::Trimmed { ", history trimmed" } else { "" };
        format!("allod, redis ({}){replicas}{nodes}{history}", flush.name())
    }
}

/// The servers of a run. Dropping this ends those that were started.
pub struct Target {
    pub servers: Vec<SocketAddr>,
    /// The name in reports.
    pub name: String,
    started: Vec<Server>,
    // Declared, and so dropped, after the servers that use it.
    pub redis: Option<Redis>,
    _secret: Option<TempDir>,
}

impl Target {
    /// Finds the servers, or starts them.
    ///
    /// # Errors
    /// A name has no address, or something cannot be started.
    pub fn find(arguments: &TargetArguments) -> io::Result<Self> {
        if arguments.appendfsync.is_some() && arguments.start != Some(Store::Redis) {
            let text = "--appendfsync has no effect without --start redis";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if let Some(store) = arguments.start {
            let nodes = usize::from(arguments.nodes);
            return Self::start(Backend {
                flush: arguments.appendfsync.unwrap_or(Flush::Everysec),
                nodes,
                ..Backend::of(store)
            });
        }
        let resolve = |name: &String| {
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("--server {name}: {error}; it takes HOST:PORT"))
            };
            let address = name.to_socket_addrs().map_err(named)?.next();
            address.ok_or_else(|| io::Error::other(format!("`{name}` has no address")))
        };
        let servers = arguments.server.iter().map(resolve).collect::<io::Result<Vec<_>>>()?;
        let name = format!("allod at {}", arguments.server.join(","));
        Ok(Self { servers, name, started: Vec::new(), redis: None, _secret: None })
    }

    /// Starts the servers for a backend.
    ///
    /// # Errors
    /// There is no such program, or it ended before it was ready.
    pub fn start(backend: Backend) -> io::Result<Self> {
        Self::start_as(backend, &Program::default(), &[])
    }

    /// Starts the servers for a backend with this program and additional environment settings.
    ///
    /// # Errors
    /// As of [`Target::start`].
    pub fn start_as(backend: Backend, program: &Program, beside: &[(&str, &str)]) -> io::Result<Self> {
        let Backend { store, flush, replicas, nodes, history } = backend;
        let replicas_wanted = replicas.to_string();
        let mut settings = settings(history.settings());
        settings.extend(owned(&[("ALLOD_STORE__REDIS_REPLICAS", &replicas_wanted)]).chain(owned(beside)));
        if store != Store::Redis {
            if nodes > 1 {
                let text = "--nodes takes several nodes of one register, and those need --start redis";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let flags = vec!["--store".to_owned(), store.name().to_owned()];
            let server = Server::start_with(flags, settings, program)?;
            let name = backend.name();
            let servers = vec![server.address];
            return Ok(Self { servers, name, started: vec![server], redis: None, _secret: None });
        }
        let mut redis = Redis::start(flush)?;
        (0..replicas).try_for_each(|_| redis.add_replica())?;
        let secret = tempfile::tempdir()?;
        let path = secret.path().join("secret");
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        writeln!(file, "a secret of one run of allod-load on the loopback address: {}", redis.port)?;
        drop(file);
        let mut started = Vec::new();
        for node in 0..nodes {
            let (url, name, cluster) = (redis.url(), format!("node-{node}"), format!("127.0.0.1:{}", free_port()?));
            let mut flags = vec!["--redis".to_owned(), url, "--node".to_owned(), name];
            if nodes > 1 {
                let secret = path.display().to_string();
                flags.extend(["--cluster-listen".to_owned(), cluster, "--cluster-secret-file".to_owned(), secret]);
            }
            started.push(Server::start_with(flags, settings.clone(), program)?);
        }
        Ok(Self {
            servers: started.iter().map(|server| server.address).collect(),
            name: backend.name(),
            started,
            redis: Some(redis),
            _secret: Some(secret),
        })
    }

    /// Starts a node for the register on this primary. The cluster must outlive it.
    ///
    /// # Errors
    /// As of [`Target::start`].
    pub fn on_primary(cluster: &RedisCluster, primary: usize) -> io::Result<Self> {
        let (url, prefix, node) = (cluster.url(), cluster.prefix(primary)?, format!("node-{primary}"));
        let flags = ["--redis", &url, "--node", &node].map(str::to_owned).to_vec();
        let server = Server::start_with(flags, settings(&[("ALLOD_STORE__PREFIX", prefix)]), &Program::default())?;
        let name = format!("allod, redis cluster, {prefix}");
        Ok(Self { servers: vec![server.address], name, started: vec![server], redis: None, _secret: None })
    }

    /// Were the servers started for this run? Then no other client knows of them.
    pub fn is_own(&self) -> bool {
        !self.started.is_empty()
    }

    /// The same servers, for a second thread that drives them; they end with the original target.
    pub fn same(&self) -> Self {
        Self { servers: self.servers.clone(), name: self.name.clone(), started: Vec::new(), redis: None, _secret: None }
    }

    /// The process ids of the servers that were started.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.started.iter().map(Server::process)
    }

    /// Kills the servers and starts them again on their files. Returns how long they took to become ready.
    ///
    /// # Errors
    /// They were not started by this run, or do not come back.
    pub fn kill_and_restart(&mut self) -> io::Result<Duration> {
        if self.started.is_empty() {
            return Err(io::Error::other("only servers that this run started are killed"));
        }
        self.started.iter_mut().for_each(Server::kill);
        self.start_again()
    }

    /// Stops the servers in order and starts them again on their files. Returns how long they took to become ready.
    ///
    /// # Errors
    /// They do not come back.
    pub fn stop_and_restart(&mut self) -> io::Result<Duration> {
        self.started.iter_mut().for_each(Server::stop);
        self.start_again()
    }

    fn start_again(&mut self) -> io::Result<Duration> {
        let begun = Instant::now();
        self.started.iter_mut().try_for_each(Server::restart)?;
        let took = begun.elapsed();
        self.servers = self.started.iter().map(|server| server.address).collect();
        Ok(took)
    }
}

fn owned<'a>(settings: &'a [(&str, &str)]) -> impl Iterator<Item = (String, String)> + 'a {
    settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()))
}

/// These environment settings, and a low log level: the log of a server that was started for a run is of no interest to its
/// user.
fn settings(these: &[(&str, &str)]) -> Vec<(String, String)> {
    let level = if std::env::var_os(LOG_LEVEL).is_none() { &[(LOG_LEVEL, "error")][..] } else { &[] };
    owned(these).chain(owned(level)).collect()
}
