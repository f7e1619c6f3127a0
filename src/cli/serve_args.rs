//! The arguments of `allod serve` and `allod check-config`, and the keys of the configuration that they set.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::failure::Failure;
use crate::serve::from_cli::{self, Once};

/// Where the state is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// In files of the data directory; survives a power cut
    Embedded,
    /// In a Redis or Valkey server; survives what that is set to survive
    Redis,
    /// In memory only; gone when the server ends
    Memory,
}

impl StoreKind {
    /// The store kind of the configuration.
    pub fn set(self) -> from_cli::StoreKind {
        match self {
            Self::Embedded => from_cli::StoreKind::Embedded,
            Self::Redis => from_cli::StoreKind::Redis,
            Self::Memory => from_cli::StoreKind::Memory,
        }
    }
}

/// `allod serve`. What is given here wins over environment and file.
#[derive(Debug, Clone, Default, Args)]
pub struct ServeArgs {
    /// Configuration (TOML); every key has a default
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where to listen for JSON-RPC over TCP [default: 127.0.0.1:7400]
    #[arg(long, value_name = "ADDR", value_parser = listening)]
    pub listen: Option<String>,
    /// Where to listen for HTTP [default: 127.0.0.1:7401]
    #[arg(long, value_name = "ADDR", value_parser = listening)]
    pub http: Option<String>,
    /// Directory of the register's files; with Redis, of a note that says which register this is
    #[arg(long, value_name = "DIR", value_parser = text_path())]
    pub data: Option<PathBuf>,
    /// Which store keeps the register: embedded, redis or memory
    #[arg(long, value_enum, hide_possible_values = true)]
    pub store: Option<StoreKind>,
    /// URL of Redis, such as redis://127.0.0.1:6379/0 (or redis+sentinel://, redis+cluster://; with TLS rediss…); implies
    /// --store redis
    #[arg(long, value_name = "URL")]
    pub redis: Option<String>,
    /// Name of this node [default: the machine's]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Where to listen for other nodes [default: 127.0.0.1:7402]
    #[arg(long, value_name = "ADDR", value_parser = listening)]
    pub cluster_listen: Option<String>,
    /// Where other nodes reach this one [default: where it listens]
    #[arg(long, value_name = "ADDR")]
    pub advertise: Option<String>,
    /// The secret that all nodes of a register share
    #[arg(long, value_name = "FILE", value_parser = text_path())]
    pub cluster_secret_file: Option<PathBuf>,
    /// File of networks to create; networks that exist already are left as they are
    #[arg(long, value_name = "FILE")]
    pub networks: Option<PathBuf>,
    /// Allow listening beyond the loopback, without authentication
    #[arg(long)]
    pub insecure_listen: bool,
    /// What is said for this start alone.
    #[command(flatten)]
    pub once: Once,
}

/// A parser for paths that become settings, which are text: converting any other path to text could name another directory.
pub(super) fn text_path() -> impl TypedValueParser<Value = PathBuf> {
    let not_text = |_| "must be UTF-8, as all settings must be";
    OsStringValueParser::new().try_map(move |path| path.into_string().map(PathBuf::from).map_err(not_text))
}

/// Checks an address to listen on. The configuration makes the same check, but an error in a flag is an error of the command
/// line.
fn listening(text: &str) -> Result<String, String> {
    match text.parse::<SocketAddr>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("must be an address and a port, for example 127.0.0.1:7400".to_owned()),
    }
}

impl ServeArgs {
    /// The flags as keys of the configuration.
    pub fn flags(&self) -> Vec<(String, String)> {
        let mut flags = Vec::new();
        let mut set = |key: &str, value: String| flags.push((key.to_owned(), value));
        if let Some(listen) = &self.listen {
            set("server.listen", listen.clone());
        }
        if let Some(http) = &self.http {
            set("server.http_listen", http.clone());
        }
        if let Some(node) = &self.node {
            set("server.node", node.clone());
        }
        if let Some(listen) = &self.cluster_listen {
            set("cluster.listen", listen.clone());
        }
        if let Some(address) = &self.advertise {
            set("cluster.advertise", address.clone());
        }
        if let Some(file) = &self.cluster_secret_file {
            set("cluster.secret_file", file.display().to_string());
        }
        if let Some(data) = &self.data {
            set("store.directory", data.display().to_string());
        }
        if let Some(store) = self.store {
            set(
                "store.kind",
                match store {
                    StoreKind::Embedded => "embedded",
                    StoreKind::Redis => "redis",
                    StoreKind::Memory => "memory",
                }
                .to_owned(),
            );
        }
        if let Some(url) = &self.redis {
            set("store.redis", url.clone());
            if self.store.is_none() {
                set("store.kind", "redis".to_owned());
            }
        }
        if self.insecure_listen {
            set("server.insecure_listen", "true".to_owned());
        }
        flags
    }

    /// Refuses arguments that contradict each other: the register could be kept where nobody looks for it.
    ///
    /// # Errors
    /// The contradiction, and what to leave out.
    pub fn check(&self) -> Result<(), Failure> {
        let elsewhere = match self.store {
            Some(StoreKind::Embedded) => "embedded",
            Some(StoreKind::Memory) => "memory",
            Some(StoreKind::Redis) | None => return Ok(()),
        };
        match &self.redis {
            None => Ok(()),
            Some(_) => Err(Failure::usage(
                "use that store",
                format!("`--redis` says that the register is in Redis, and `--store {elsewhere}` that it is not"),
                "leave one of the two out",
            )),
        }
    }
}

/// `allod check-config`.
#[derive(Debug, Args)]
pub struct CheckConfig {
    /// The file
    #[arg(value_name = "FILE")]
    pub config: PathBuf,
}
