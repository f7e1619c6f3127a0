//! The server as the command line starts it: flags become keys of the configuration.
//!
//! `allod serve` runs it as this process, `allod try` in threads of it, `allod check-config` reads its configuration
//! only, `allod backup` copies its data, `allod migrate` moves it. Neighbours: `cli` parses arguments and network files, [`super`] does the work.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

pub use super::Ended;
pub use super::doctor::{Check, CheckState, clocks, now_ms};
use super::migrate::{self, CannotMove, MovedRegister, Tell};
pub use super::sizing::{Bytes, RegisterSize, Sizing};
use super::{Options, Running, ServeArgs, doctor};
use crate::actors::clock::SystemClock;
use crate::cli::failure::Failure;
use crate::cli::serve_args::{self, StoreKind};
use crate::config::{Config, Sources};
use crate::core::plural::counted;
use crate::server::input;
use crate::store::embedded::{self, CannotCopy, EmbeddedStore};
use crate::store::moving::{Movable, Opening, REDIS_FILE};
use crate::store::redis::{RedisOptions, RedisStore, is_noted};
pub use crate::store::redis::{TlsFiles, is_over_tls};
use crate::store::{StoreError, chain};
use crate::wire::params::NetworkCreate;

/// Runs a server until it is told to stop; `networks` exist once it is ready.
pub fn run(args: serve_args::ServeArgs, networks: Vec<NetworkCreate>) -> ExitCode {
    let networks = networks.into_iter().map(input::network).collect();
    ExitCode::from(super::run(ServeArgs {
        flags: flags(&args),
        accept_restored: args.accept_restored,
        accept_new_store: args.accept_new_store,
        accept_rollback: args.accept_rollback,
        give_up_history: args.give_up_history,
        give_up_snapshot: args.give_up_snapshot,
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

/// Reads a configuration file as the server would, with the environment of this process. Answers what it should be told although
/// a server starts with it.
///
/// # Errors
/// What is wrong, each line naming a key, what was given and what is allowed.
pub fn check_config(file: &Path) -> Result<Option<String>, Failure> {
    let sources = Sources::gather(Some(file.to_owned()), Vec::new());
    let loaded = checked(file, sources)?;
    Ok(doctor::open_password(&loaded).map(|(seen, hint)| format!("{seen}; {hint}")))
}

/// Reads the configuration file of a server that runs, as process `pid` of this machine, as it would read it again: where
/// that process sees it, with its `environ` (NUL behind each variable) and its arguments, of which `file` is one.
///
/// # Errors
/// As of [`check_config`].
pub fn check_again(pid: i32, file: &Path, environ: &[u8], args: &serve_args::ServeArgs) -> Result<(), Failure> {
    let process = Some(Path::new("/proc").join(pid.to_string()));
    let sources = Sources { process, flags: flags(args), ..Sources::default() };
    let text = Sources::text(file, &sources.seen(file));
    let variables = environ.split(|byte| *byte == 0).filter_map(|variable| {
        let (name, value) = variable.split_at(variable.iter().position(|byte| *byte == b'=')?);
        Some((OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(&value[1..]).to_owned()))
    });
    let environment = variables.collect();
    checked(file, text.map(|text| Sources { file: Some((file.to_owned(), text)), environment, ..sources })).map(drop)
}

/// Where it comes from, of a configuration that is right.
fn checked(file: &Path, sources: Result<Sources, String>) -> Result<Sources, Failure> {
    let loaded = sources.and_then(|sources| Config::load(&sources).map(|_| sources));
    loaded.map_err(|problem| {
        Failure::new(
            format!("use the configuration `{}`", file.display()),
            problem.replace('\n', "\n  "),
            "config/server.toml explains every key; then `allod check-config FILE`",
        )
    })
}

/// As the configuration calls it.
pub fn store_of(store: StoreKind) -> crate::config::StoreKind {
    match store {
        StoreKind::Embedded => crate::config::StoreKind::Embedded,
        StoreKind::Redis => crate::config::StoreKind::Redis,
        StoreKind::Memory => crate::config::StoreKind::Memory,
    }
}

/// What a server with these arguments would find here. It blocks; nothing is changed.
pub fn examine(args: &serve_args::ServeArgs) -> doctor::Examined {
    doctor::examine(Sources::gather(args.config.clone(), flags(args)))
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

/// Starts a server in threads of this process that keeps nothing and that nobody knows of, on ports that are free: to try
/// something out. It is as its documentation says, whatever the environment sets for others.
///
/// # Errors
/// A sentence that says what stands in the way.
pub fn start_for_a_trial() -> Result<Running, String> {
    let mut config = Config::default();
    config.store.kind = store_of(StoreKind::Memory);
    // What is too long is for the server to say for which it is tried out.
    config.server.max_line_bytes = crate::limits::BODY_BYTES_MAX as u64;
    config.server.listen = "127.0.0.1:0".to_owned();
    config.server.http_listen = "127.0.0.1:0".to_owned();
    let store = super::open_store(&config)?;
    Ok(super::start(Options::new(config, store))?)
}

/// Why nothing is to be written to a directory: this process is root, and the register there another user's. What to do about
/// it, too.
pub fn as_root(directory: &Path) -> Option<(String, String)> {
    super::opening::as_root(directory)
}

/// What stands in the way of a copy, for whoever knows what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// There is no register to copy.
    NoSource,
    /// It is the directory of a node whose register is in Redis.
    InRedis,
    /// A server has it open.
    InUse,
    /// It is not for this program: a newer one wrote it, or a file of another register lies in it.
    Foreign,
    /// It is damaged.
    Damaged,
    /// Whoever asks may not read it.
    Unreadable,
    /// The disk, or the machine, does not give all of it.
    Refused,
    /// The directory to copy into is not empty, or is in the other one.
    Occupied,
    /// It cannot be written.
    Unwritable,
}

/// Copies a data directory that no server has open, all of it verified; says what was copied. `heard` is told meanwhile how
/// many bytes of the source were read, of how many about.
///
/// # Errors
/// A sentence that says what stands in the way, with the cause, and of which sort it is.
pub fn copy_register(
    from: &Path,
    to: &Path,
    heard: impl Fn(u64, u64) + Send + Sync + 'static,
) -> Result<String, (String, Obstacle)> {
    let report = embedded::copy_heard(from, to, Arc::new(heard)).map_err(|error| {
        let obstacle = match &error {
            CannotCopy::Source(StoreError::Io { source, .. }) => match source.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Obstacle::NoSource,
                ErrorKind::PermissionDenied => Obstacle::Unreadable,
                _ => Obstacle::Refused,
            },
            CannotCopy::Source(StoreError::Foreign(_)) if from.join(REDIS_FILE).is_file() => Obstacle::InRedis,
            CannotCopy::Source(StoreError::Foreign(_)) if is_plain(from) => Obstacle::Foreign,
            CannotCopy::Source(StoreError::Foreign(_)) => Obstacle::NoSource,
            CannotCopy::Source(StoreError::Locked(_)) => Obstacle::InUse,
            CannotCopy::Source(_) => Obstacle::Damaged,
            CannotCopy::Target(StoreError::Foreign(_) | StoreError::Locked(_)) => Obstacle::Occupied,
            CannotCopy::Target(_) => Obstacle::Unwritable,
        };
        (chain(&error), obstacle)
    })?;
    let snapshot =
        report.snapshot_bytes.map_or_else(String::new, |bytes| format!(", a snapshot of {}", counted(bytes, "byte")));
    let (shards, commits) = (counted(report.heads.len(), "shard"), counted(report.groups, "commit"));
    let segments = counted(report.segments, "segment");
    Ok(format!("copied and verified: {shards}, {commits}, {segments} of the log{snapshot}"))
}

/// Is there a register, or something of one, and nothing that says of it that it is moved or copied?
fn is_plain(directory: &Path) -> bool {
    embedded::nameplate::may_be_there(directory) && embedded::nameplate::notice(directory).is_none()
}

/// That the register of a directory was moved elsewhere, and where.
pub fn moved(from: &Path) -> Option<String> {
    let plate = embedded::nameplate::read(from).ok().flatten()?;
    plate.moved.map(|notice| format!("`{}` {}", from.display(), notice.refusal()))
}

/// One end of a move.
#[derive(Debug, Clone)]
pub enum MoveEnd {
    /// Files.
    Directory(PathBuf),
    /// Keys of a Redis server.
    Redis {
        /// Where it is.
        url: String,
        /// What the keys begin with.
        prefix: String,
        /// What a URL over TLS needs.
        tls: TlsFiles,
        /// How many replicas have what is written before it counts; none: all that follow it.
        replicas: Option<u32>,
    },
}

impl MoveEnd {
    /// For people: without a password.
    pub fn shown(&self) -> String {
        match self {
            Self::Directory(path) => format!("`{}`", path.display()),
            Self::Redis { url, prefix, .. } => {
                format!("`{}`, keys `{{{prefix}}}:…`", crate::store::redis::without_secret(url))
            }
        }
    }
}

/// Settings of a register in Redis, whose keys begin so and which needs this for TLS, that a server does not have by itself:
/// variables of its environment, and their values. Its shards are not among them: a server takes as many as there are.
pub fn not_by_default(prefix: &str, tls: &TlsFiles) -> Vec<(&'static str, String)> {
    let shown = |path: &PathBuf| path.display().to_string();
    let prefix = if prefix == Config::default().store.prefix { "" } else { prefix };
    let settings = [
        ("ALLOD_STORE__PREFIX", prefix.to_owned()),
        ("ALLOD_STORE__REDIS_CA", shown(&tls.ca)),
        ("ALLOD_STORE__REDIS_CERTIFICATE", shown(&tls.certificate)),
        ("ALLOD_STORE__REDIS_KEY", shown(&tls.key)),
    ];
    settings.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// A move that is asked for.
#[derive(Debug, Clone)]
pub struct MoveRoute {
    /// From here.
    pub from: MoveEnd,
    /// To there.
    pub to: MoveEnd,
    /// How many shards there are then, if not as many as now.
    pub shards: Option<u16>,
    /// Directories of the nodes that kept it in Redis. The one that it goes into is one, if it was a node's.
    pub nodes: Vec<PathBuf>,
    /// What Redis lacks of what they acknowledged is given up.
    pub accept_rollback: bool,
}

impl MoveRoute {
    /// Directories of which a note says how far the source had been acknowledged.
    fn witnesses(&self) -> Vec<PathBuf> {
        let target = match &self.to {
            MoveEnd::Directory(path) => Some(path),
            MoveEnd::Redis { .. } => None,
        };
        self.nodes.iter().chain(target).cloned().collect()
    }
}

/// Why a register was not moved, and what to do.
#[derive(Debug, Clone)]
pub struct Unmoved {
    /// A sentence.
    pub problem: String,
    /// A sentence without its full stop.
    pub hint: &'static str,
    /// It is where it was to go, or elsewhere, since before.
    pub is_gone: bool,
}

impl From<CannotMove> for Unmoved {
    fn from(cannot: CannotMove) -> Self {
        let is_gone = matches!(cannot, CannotMove::Gone(_));
        let hint = match cannot {
            CannotMove::Served(_) => "stop every server that has it open, then say it again: `allod migrate FROM TO`",
            CannotMove::Target(_) => {
                "name an empty directory, or a Redis without keys of that prefix (`--redis-prefix`)"
            }
            CannotMove::Away(_) => {
                "see that the new place can be reached and written to, then say it again: `allod migrate FROM TO`; nothing was changed"
            }
            CannotMove::Gone(_) => {
                "`allod restore` makes a register of an old data directory, with all that this asks for"
            }
            CannotMove::Store(_) | CannotMove::Differs(_) => {
                "the source is as it was unless it says that it was moved; `allod migrate FROM TO` finishes it, or begins anew"
            }
            CannotMove::WentOn(_) => {
                "bring a newer copy of the data of the new place back, or its newest replica, then say it again: `allod migrate \
                 FROM TO`"
            }
        };
        Self { problem: cannot.to_string(), hint, is_gone }
    }
}

/// A register that is to be moved, open.
pub struct MoveSource(Box<dyn Movable>);

impl MoveSource {
    /// Where it is.
    pub fn place(&self) -> String {
        self.0.place()
    }

    /// How many shards it has.
    pub fn shards(&self) -> u16 {
        self.0.info().shards
    }
}

fn open(route: &MoveRoute, shards: Option<u16>, opening: Opening) -> Result<Box<dyn Movable>, StoreError> {
    let is_source = opening == Opening::Source;
    Ok(match if is_source { &route.from } else { &route.to } {
        MoveEnd::Directory(path) => {
            let options = embedded::EmbeddedOptions { opening, ..embedded::EmbeddedOptions::default() };
            Box::new(EmbeddedStore::open(path, shards, options)?)
        }
        MoveEnd::Redis { url, prefix, tls, replicas } => {
            let (prefix, tls) = (prefix.clone(), tls.clone());
            let (replicas, replicas_that_follow) = (replicas.unwrap_or_default(), replicas.is_none());
            let options = RedisOptions::new(url.clone(), shards);
            let options = RedisOptions { prefix, tls, opening, replicas, replicas_that_follow, ..options };
            let witnesses = if is_source { route.witnesses() } else { Vec::new() };
            let options = RedisOptions { witnesses, accept_rollback: route.accept_rollback, ..options };
            Box::new(RedisStore::open(options)?)
        }
    })
}

/// Opens a register that is to be moved; nothing is changed there.
///
/// # Errors
/// What stands in the way.
pub fn open_source(route: &MoveRoute) -> Result<MoveSource, Unmoved> {
    if let Some(path) = route.nodes.iter().find(|path| !is_noted(path)) {
        return Err(Unmoved {
            problem: format!(
                "`{}` has no file `{REDIS_FILE}`: no node notes there what it keeps in Redis",
                path.display()
            ),
            hint: "name the data directory of a node (its `store.directory`) by `--node-data DIR`, or leave that out",
            is_gone: false,
        });
    }
    open(route, None, Opening::Source).map(MoveSource).map_err(|error| Unmoved {
        problem: chain(&error),
        hint: match error {
            StoreError::Damaged(_) if matches!(route.from, MoveEnd::Redis { .. }) => {
                "nothing was changed: bring the data of Redis back, then say it again: `allod migrate FROM TO`"
            }
            StoreError::Locked(_) => "stop the server that has it open, then say it again: `allod migrate FROM TO`",
            StoreError::HistoryDamaged(_) => {
                "`allod serve --give-up-history`, once, makes it whole without that history; stop it, then say this again"
            }
            StoreError::SnapshotDamaged(_) => {
                "`allod serve --give-up-snapshot`, once, makes it whole from its log; stop it, then say this again"
            }
            _ => "name the data directory of a server that is stopped, or the URL of its Redis",
        },
        is_gone: false,
    })
}

/// Looks whether it could be moved there; nothing is changed. Over Redis it is seen meanwhile, as a node of its own.
///
/// # Errors
/// What stands in the way.
pub fn look(source: &MoveSource, route: &MoveRoute) -> Result<(), Unmoved> {
    let from = migrate::origin(&*source.0);
    let looked = match &route.to {
        MoveEnd::Directory(path) => embedded::look_at_target(path, &from),
        MoveEnd::Redis { url, prefix, tls, .. } => {
            let (prefix, tls) = (prefix.clone(), tls.clone());
            let options = RedisOptions { prefix, tls, ..RedisOptions::new(url.clone(), source.shards()) };
            crate::store::redis::examine::look_at_target(&options, from)
        }
    };
    if let Some(notice) = source.0.notice() {
        // All that can be left to do is to finish it where it went.
        let gone = || CannotMove::Gone(format!("{} {}", source.place(), notice.refusal()));
        return if looked.unwrap_or(false) { Ok(()) } else { Err(gone().into()) };
    }
    looked.map_err(migrate::untaken)?;
    Ok(runtime()?.block_on(migrate::look(&*source.0))?)
}

fn runtime() -> Result<tokio::runtime::Runtime, Unmoved> {
    let machine =
        |error: std::io::Error| Unmoved { problem: error.to_string(), hint: "see `ulimit -a`", is_gone: false };
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(machine)
}

/// Puts aside what its nodes left on their disks and it has all of, now that it was moved. Answers which files these are now.
///
/// # Errors
/// What stands in the way; the register was moved all the same.
pub fn put_left_aside(source: &MoveSource) -> Result<Vec<PathBuf>, Unmoved> {
    source.0.put_left_aside().map_err(|error| Unmoved {
        problem: format!("the register was moved, and what a node left is not put aside: {}", chain(&error)),
        hint: "stop that node, then say it again: `allod migrate FROM TO --node-data DIR`",
        is_gone: false,
    })
}

/// Moves it.
///
/// # Errors
/// What stands in the way.
pub fn migrate(source: &MoveSource, route: &MoveRoute, tell: Tell<'_>) -> Result<MovedRegister, Unmoved> {
    let runtime = runtime()?;
    let shards = route.shards.unwrap_or(source.shards());
    runtime.block_on(async {
        let moved = migrate::run(&*source.0, &|opening| open(route, Some(shards), opening), &SystemClock, tell).await;
        source.0.close().await;
        Ok(moved?)
    })
}
