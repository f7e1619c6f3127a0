//! What is driven: servers that run already, or some that are started for the run and end with it.

mod redis;
mod server;

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::Args;
use tempfile::TempDir;

pub use redis::{Flush, Redis, free_port};
pub use server::{Server, Store};

/// Where the server is.
#[derive(Args, Debug, Clone)]
pub struct TargetArguments {
    /// Where the server listens; of several nodes all: A,B,C.
    #[arg(long, default_value = "127.0.0.1:7400", value_name = "HOST:PORT", value_delimiter = ',')]
    pub server: Vec<String>,
    /// File with the token that connections log in with.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Start a server for this run, with this store, in a directory that is removed afterwards.
    #[arg(long, conflicts_with = "server", value_name = "STORE")]
    pub start: Option<Store>,
    /// With --start redis: so many nodes over the same Redis.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=9), requires = "start")]
    pub nodes: u16,
    /// With --start redis: when Redis flushes its file.
    #[arg(long, default_value = "everysec", requires = "start", value_name = "WHEN")]
    pub appendfsync: Flush,
}

/// The servers of a run. Dropping it ends what was started.
pub struct Target {
    pub servers: Vec<SocketAddr>,
    /// As a report names it.
    pub name: String,
    pub token: Option<String>,
    started: Vec<Server>,
    // After the servers that use them.
    _redis: Option<Redis>,
    _secret: Option<TempDir>,
}

impl Target {
    /// Finds the servers, or starts them.
    ///
    /// # Errors
    /// A name has no address, or something cannot be started.
    pub fn find(arguments: &TargetArguments) -> io::Result<Self> {
        let token = match &arguments.token_file {
            Some(path) => Some(std::fs::read_to_string(path)?.trim().to_owned()),
            None => None,
        };
        if let Some(store) = arguments.start {
            return Self::start(store, usize::from(arguments.nodes), arguments.appendfsync);
        }
        let resolve = |name: &String| {
            let address = name.to_socket_addrs()?.next();
            address.ok_or_else(|| io::Error::other(format!("`{name}` has no address")))
        };
        let servers = arguments.server.iter().map(resolve).collect::<io::Result<Vec<_>>>()?;
        let name = format!("allod at {}", arguments.server.join(","));
        Ok(Self { servers, name, token, started: Vec::new(), _redis: None, _secret: None })
    }

    /// Starts what a store needs.
    ///
    /// # Errors
    /// There is no such program, or it ended before it was ready.
    pub fn start(store: Store, nodes: usize, flush: Flush) -> io::Result<Self> {
        if store != Store::Redis {
            if nodes > 1 {
                let text = "--nodes takes several nodes of one register, and those need --start redis";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let server = Server::start(store)?;
            let name = format!("allod, {}", store.name());
            let servers = vec![server.address];
            return Ok(Self { servers, name, token: None, started: vec![server], _redis: None, _secret: None });
        }
        let redis = Redis::start(flush)?;
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
            started.push(Server::start_with(flags)?);
        }
        let plural = if nodes == 1 { String::new() } else { format!(", {nodes} nodes") };
        Ok(Self {
            servers: started.iter().map(|server| server.address).collect(),
            name: format!("allod, redis ({}){plural}", flush.name()),
            token: None,
            started,
            _redis: Some(redis),
            _secret: Some(secret),
        })
    }

    /// Kills the server without a warning and starts it again on its files.
    ///
    /// # Errors
    /// It was not started by this run, or it does not come back.
    pub fn kill_and_restart(&mut self) -> io::Result<()> {
        if self.started.is_empty() {
            return Err(io::Error::other("--kill ends a server that this run started: use it with --start"));
        }
        for server in &mut self.started {
            server.kill();
        }
        for server in &mut self.started {
            server.restart()?;
        }
        self.servers = self.started.iter().map(|server| server.address).collect();
        Ok(())
    }
}
