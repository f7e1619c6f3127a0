//! The arguments of `allod serve` and `allod check-config`. What they do is the server's.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::failure::Failure;

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
    /// Where the files are; with Redis, only which register it keeps
    #[arg(long, value_name = "DIR", value_parser = text_path())]
    pub data: Option<PathBuf>,
    /// Where the state is kept: embedded, redis or memory
    #[arg(long, value_enum, hide_possible_values = true)]
    pub store: Option<StoreKind>,
    /// Where Redis is, as redis://127.0.0.1:6379/0 (or redis+sentinel://, redis+cluster://; over TLS rediss…); means --store redis
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
    /// Networks to create if they are not there; those that are there stay as they are
    #[arg(long, value_name = "FILE")]
    pub networks: Option<PathBuf>,
    /// Listen beyond the loopback without authentication
    #[arg(long)]
    pub insecure_listen: bool,
    /// Take a restored register for what it is, and choose addresses again
    #[arg(long)]
    pub accept_restored: bool,
    /// Take what Redis holds now, also if it is another register, or none
    #[arg(long)]
    pub accept_new_store: bool,
    /// Go on from what Redis holds, although changes that this server acknowledged are missing. It grants from the first moment: keep
    /// the clients' way closed until what is in use was claimed
    #[arg(long)]
    pub accept_rollback: bool,
    /// Go on without history that is damaged, if a snapshot has all that it led to; its files are kept beside the others. Nothing of
    /// the state is given up
    #[arg(long)]
    pub give_up_history: bool,
    /// Go on from the log without a snapshot that is damaged, if the log has all that led to it; the file is kept beside the others.
    /// Nothing is given up of the state
    #[arg(long)]
    pub give_up_snapshot: bool,
}

/// A path that becomes a setting, of which all are text: the name of another directory would come of what is not.
pub(super) fn text_path() -> impl TypedValueParser<Value = PathBuf> {
    let not_text = |_| "must be UTF-8, as all settings are";
    OsStringValueParser::new().try_map(move |path| path.into_string().map(PathBuf::from).map_err(not_text))
}

/// An address to listen on. The configuration says the same of its own, but a flag is of the command line.
fn listening(text: &str) -> Result<String, String> {
    match text.parse::<SocketAddr>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("must be an address and a port, as 127.0.0.1:7400".to_owned()),
    }
}

impl ServeArgs {
    /// Refuses arguments that contradict each other: a register would be kept where nobody looks for it.
    ///
    /// # Errors
    /// Which, and what to leave out.
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
