//! What is driven: servers that run already, or some that are started for the run and end with it.

mod cluster;
mod process;
mod redis;
mod server;

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use clap::Args;
use tempfile::TempDir;

pub use cluster::RedisCluster;
pub use process::processor_time;
pub use redis::{Flush, Redis, RedisControl, free_port, push_word};
pub use server::{Program, Server, Store};

/// The setting of how much a server tells.
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

/// How much is kept of what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum History {
    /// As without a setting.
    Usual,
    /// As little as there can be: the batches by which one that is sent again is recognised.
    Trimmed,
}

impl History {
    /// Settings of a server's environment.
    fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            History::Usual => &[],
            // None are what befits the store.
            History::Trimmed => &[("ALLOD_HISTORY__KEEP_SECONDS", "0"), ("ALLOD_HISTORY__KEEP_BYTES", "1")],
        }
    }
}

/// What a server is started over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backend {
    pub store: Store,
    /// Of Redis, as what follows.
    pub flush: Flush,
    /// A change is acknowledged when all of these have it.
    pub replicas: usize,
    pub nodes: usize,
    pub history: History,
}

impl Backend {
    /// A node over a Redis that flushes so, without replicas.
    pub const fn redis(flush: Flush) -> Self {
        Self { flush, ..Self::of(Store::Redis) }
    }

    /// A server with this store; Redis flushes each second.
    pub const fn of(store: Store) -> Self {
        Self { store, flush: Flush::Everysec, replicas: 0, nodes: 1, history: History::Usual }
    }

    /// As a report names it.
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

/// The servers of a run. Dropping it ends what was started.
pub struct Target {
    pub servers: Vec<SocketAddr>,
    /// As a report names it.
    pub name: String,
    started: Vec<Server>,
    // After the servers that use them.
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

    /// Starts what a store needs.
    ///
    /// # Errors
    /// There is no such program, or it ended before it was ready.
    pub fn start(backend: Backend) -> io::Result<Self> {
        Self::start_as(backend, &Program::default(), &[])
    }

    /// Starts what a store needs by this program, with these settings of its environment beside.
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
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
        writeln!(file, "a secret of one run of allod-load on the loopback address: {}", redis.port)?;
        drop(file);
        #[cfg(unix)]
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
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

    /// A node of its own for the register that lies on this primary. The cluster has to outlive it.
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

    /// The processes that were started as its servers.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.started.iter().map(Server::process)
    }

    /// Kills the server without a warning and starts it again on its files: how long that took until it was ready.
    ///
    /// # Errors
    /// It was not started by this run, or it does not come back.
    pub fn kill_and_restart(&mut self) -> io::Result<Duration> {
        if self.started.is_empty() {
            return Err(io::Error::other("--kill ends a server that this run started: use it with --start"));
        }
        self.started.iter_mut().for_each(Server::kill);
        self.start_again()
    }

    /// Ends the server in order and starts it again on its files: how long that took until it was ready.
    ///
    /// # Errors
    /// It does not come back.
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

/// These settings of a server's environment, and that it is quiet: what a server of a run's own tells of itself is nothing that
/// its reader asked for.
fn settings(these: &[(&str, &str)]) -> Vec<(String, String)> {
    let level = if std::env::var_os(LOG_LEVEL).is_none() { &[(LOG_LEVEL, "error")][..] } else { &[] };
    owned(these).chain(owned(level)).collect()
}
