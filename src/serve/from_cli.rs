//! The server as the command line starts it: flags become keys of the configuration.
//!
//! `allod serve` runs it as this process, `allod try` in threads of it, `allod check-config` reads its configuration
//! only, `allod backup` copies its data. Neighbours: `cli` parses arguments and network files, [`super`] does the work.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

pub use super::Ended;
use super::{Options, Running, ServeArgs};
use crate::cli::failure::Failure;
use crate::cli::serve_args::{self, StoreKind};
use crate::config::{Config, Sources};
use crate::core::plural::counted;
use crate::server::input;
use crate::store::embedded;
use crate::wire::params::NetworkCreate;

/// Runs a server until it is told to stop; `networks` exist once it is ready.
pub fn run(args: serve_args::ServeArgs, networks: Vec<NetworkCreate>) -> ExitCode {
    let networks = networks.into_iter().map(input::network).collect();
    ExitCode::from(super::run(ServeArgs {
        flags: flags(&args),
        accept_restored: args.accept_restored,
        accept_new_store: args.accept_new_store,
        config: args.config,
        networks,
    }))
}

/// Flags as keys of the configuration.
fn flags(args: &serve_args::ServeArgs) -> Vec<(String, String)> {
    let mut flags = Vec::new();
    let mut set = |key: &str, value: String| flags.push((key.to_owned(), value));
    if let Some(listen) = &args.listen {
        set("server.listen", listen.clone());
    }
    if let Some(http) = &args.http {
        set("server.http_listen", http.clone());
    }
    if let Some(node) = &args.node {
        set("server.node", node.clone());
    }
    if let Some(listen) = &args.cluster_listen {
        set("cluster.listen", listen.clone());
    }
    if let Some(address) = &args.advertise {
        set("cluster.advertise", address.clone());
    }
    if let Some(file) = &args.cluster_secret_file {
        set("cluster.secret_file", file.display().to_string());
    }
    if let Some(data) = &args.data {
        set("store.directory", data.display().to_string());
    }
    if let Some(store) = args.store {
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
    if let Some(url) = &args.redis {
        set("store.redis", url.clone());
        if args.store.is_none() {
            set("store.kind", "redis".to_owned());
        }
    }
    if args.insecure_listen {
        set("server.insecure_listen", "true".to_owned());
    }
    flags
}

/// Reads a configuration file as the server would, with the environment of this process.
///
/// # Errors
/// What is wrong, each line naming a key, what was given and what is allowed.
pub fn check_config(file: &Path) -> Result<(), Failure> {
    let asked = format!("use the configuration `{}`", file.display());
    let checked = Sources::gather(Some(file.to_owned()), Vec::new()).and_then(|sources| Config::load(&sources));
    checked.map(drop).map_err(|problem| {
        Failure::new(
            asked,
            problem.replace('\n', "\n  "),
            "config/server.toml explains every key; then `allod check-config FILE`",
        )
    })
}

/// Starts a server in threads of this process on a data directory.
///
/// # Errors
/// A sentence that says what stands in the way.
pub fn start_here(data: &Path, listen: SocketAddr, http: SocketAddr) -> Result<Running, String> {
    let args = serve_args::ServeArgs {
        listen: Some(listen.to_string()),
        http: Some(http.to_string()),
        data: Some(data.to_owned()),
        store: Some(StoreKind::Embedded),
        ..serve_args::ServeArgs::default()
    };
    let config = Config::load(&Sources::gather(None, flags(&args))?)?;
    let store = super::open_store(&config)?;
    Ok(super::start(Options::new(config, store))?)
}

/// Copies a data directory that no server has open, all of it verified; says what was copied.
///
/// # Errors
/// A sentence that says what stands in the way.
pub fn copy_register(from: &Path, to: &Path) -> Result<String, String> {
    let report = embedded::copy(from, to).map_err(|error| error.to_string())?;
    let snapshot =
        report.snapshot_bytes.map_or_else(String::new, |bytes| format!(", a snapshot of {}", counted(bytes, "byte")));
    let (shards, commits) = (counted(report.heads.len(), "shard"), counted(report.groups, "commit"));
    let segments = counted(report.segments, "segment");
    Ok(format!("copied and verified: {shards}, {commits}, {segments} of the log{snapshot}"))
}
