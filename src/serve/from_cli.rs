//! The server as the command line uses it, configured by the keys that its flags set.
//!
//! `allod serve` runs it as this process, `allod try` in threads of this process; `allod check-config` only reads its
//! configuration, `allod backup` copies its data, `allod migrate` moves it. Neighbours: `cli` parses arguments and network
//! files, and prints the results; [`super`] does the work.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use super::Ended;
pub use super::doctor::{Check, CheckState, clocks, now_ms};
use super::migrate::{self, CannotMove, MovedRegister, Tell};
pub use super::sizing::{Bytes, RegisterSize, Sizing};
use super::{Options, Running, doctor};
pub use super::{ServeArgs, Unserved};
use crate::actors::clock::SystemClock;
use crate::config::{Config, Sources};
pub use crate::config::{Once, StoreKind};
use crate::core::plural::counted;
use crate::server::input;
use crate::store::embedded::{self, CannotCopy, EmbeddedStore};
pub use crate::store::moving::Copier;
use crate::store::moving::{Movable, MoveNotice, Opening, REDIS_FILE};
use crate::store::redis::{RedisOptions, RedisStore, examine, is_noted};
pub use crate::store::redis::{TlsFiles, is_over_tls};
use crate::store::{StoreError, chain};
use crate::wire::params::NetworkCreate;

/// Runs a server until it is told to stop; `networks` exist by the time it is ready.
///
/// # Errors
/// Why it does not start, or cannot go on.
pub fn run(args: ServeArgs, networks: Vec<NetworkCreate>) -> Result<(), Unserved> {
    let networks = networks.into_iter().map(input::network).collect();
    super::run(ServeArgs { networks, ..args })
}

/// Reads a configuration file as the server would, with the environment of this process. Returns a warning about a valid
/// file, if there is one.
///
/// # Errors
/// What is wrong, each line naming a key, what was given and what is allowed.
pub fn check_config(file: &Path) -> Result<Option<String>, String> {
    let sources = Sources::gather(Some(file.to_owned()), Vec::new())?;
    let loaded = Config::load(&sources).map(|_| sources)?;
    Ok(doctor::open_password(&loaded).map(|(seen, hint)| format!("{seen}; {hint}")))
}

/// Reads the configuration file of a running server, process `pid` of this machine, as that server would read it again: at
/// the path as that process sees it, with its `environ` (a NUL after each variable) and the keys that its arguments set.
///
/// # Errors
/// As for [`check_config`].
pub fn check_again(pid: i32, file: &Path, environ: &[u8], flags: Vec<(String, String)>) -> Result<(), String> {
    let process = Some(Path::new("/proc").join(pid.to_string()));
    let sources = Sources { process, flags, ..Sources::default() };
    let text = Sources::text(file, &sources.seen(file))?;
    let variables = environ.split(|byte| *byte == 0).filter_map(|variable| {
        let (name, value) = variable.split_at(variable.iter().position(|byte| *byte == b'=')?);
        Some((OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(&value[1..]).to_owned()))
    });
    let environment = variables.collect();
    Config::load(&Sources { file: Some((file.to_owned(), text)), environment, ..sources }).map(drop)
}

/// What a server with this file, and these keys that override it, would find here. It blocks, and changes nothing.
pub fn examine(config: Option<PathBuf>, flags: Vec<(String, String)>) -> doctor::Examined {
    doctor::examine(Sources::gather(config, flags))
}

/// Starts a server in threads of this process on a data directory.
///
/// # Errors
/// A sentence that says what stands in the way.
pub fn start_here(data: &Path, listen: SocketAddr, http: SocketAddr) -> Result<Running, String> {
    let flags = [
        ("server.listen", listen.to_string()),
        ("server.http_listen", http.to_string()),
        ("store.directory", data.display().to_string()),
        ("store.kind", "embedded".to_owned()),
    ];
    let flags = flags.map(|(key, value)| (key.to_owned(), value)).into();
    let config = Config::load(&Sources::gather(None, flags)?)?;
    let store = super::open_store(&config)?;
    Ok(super::start(Options::new(config, store))?)
}

/// Starts a server in threads of this process to try something out: it stores nothing, is known to nobody, and uses free
/// ports. It behaves as documented, whatever the environment sets for other servers.
///
/// # Errors
/// A sentence that says what stands in the way.
pub fn start_for_a_trial() -> Result<Running, String> {
    let mut config = Config::default();
    config.store.kind = StoreKind::Memory;
    // Whether a line is too long is for the server to say that the trial is made for.
    config.server.max_line_bytes = crate::limits::BODY_BYTES_MAX as u64;
    config.server.listen = "127.0.0.1:0".to_owned();
    config.server.http_listen = "127.0.0.1:0".to_owned();
    let store = super::open_store(&config)?;
    Ok(super::start(Options::new(config, store))?)
}

/// Why this process must not write to a directory, and what to do: the process is root, and the register there belongs to
/// another user.
pub fn as_root(directory: &Path) -> Option<(String, String)> {
    super::opening::as_root(directory)
}

/// What stands in the way of a copy; the caller knows what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// There is no register to copy.
    NoSource,
    /// The source is the directory of a node whose register is in Redis.
    InRedis,
    /// A server has the source open.
    InUse,
    /// This program cannot read the source: a newer one wrote it, or it contains a file of another register.
    Foreign,
    /// The source is damaged.
    Damaged,
    /// This user may not read the source.
    Unreadable,
    /// The disk, or the machine, fails to read all of it.
    Refused,
    /// The target directory is not empty, or lies inside the source.
    Occupied,
    /// The target cannot be written.
    Unwritable,
    /// The target has too little room; nothing was written.
    NoRoom,
}

/// Copies and verifies a data directory that no server has open, and describes the copy. `heard` is called meanwhile with
/// the number of bytes read from the source, and the approximate total.
///
/// # Errors
/// A sentence that says what stands in the way, with its cause, and the kind of obstacle.
pub fn copy_register(
    from: &Path,
    to: &Path,
    by: Copier,
    heard: impl Fn(u64, u64) + Send + Sync + 'static,
) -> Result<String, (String, Obstacle)> {
    let report = embedded::copy_heard(from, to, by, Arc::new(heard)).map_err(|error| {
        let obstacle = match &error {
            CannotCopy::Source(StoreError::Io { source, .. }) => match source.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Obstacle::NoSource,
                ErrorKind::PermissionDenied => Obstacle::Unreadable,
                _ => Obstacle::Refused,
            },
            CannotCopy::Source(StoreError::Foreign(_)) if from.join(REDIS_FILE).is_file() => Obstacle::InRedis,
            CannotCopy::Source(StoreError::Newer(_)) => Obstacle::Foreign,
            CannotCopy::Source(StoreError::Foreign(_)) if is_plain(from) => Obstacle::Foreign,
            CannotCopy::Source(StoreError::Foreign(_)) => Obstacle::NoSource,
            CannotCopy::Source(StoreError::Locked(_)) => Obstacle::InUse,
            CannotCopy::Source(_) => Obstacle::Damaged,
            CannotCopy::Target(StoreError::Foreign(_) | StoreError::Locked(_)) => Obstacle::Occupied,
            CannotCopy::Target(_) => Obstacle::Unwritable,
            CannotCopy::NoRoom { .. } => Obstacle::NoRoom,
        };
        (chain(&error), obstacle)
    })?;
    let snapshot =
        report.snapshot_bytes.map_or_else(String::new, |bytes| format!(", a snapshot of {}", counted(bytes, "byte")));
    let (shards, commits) = (counted(report.heads.len(), "shard"), counted(report.groups, "commit"));
    let segments = counted(report.segments, "segment");
    Ok(format!("copied and verified: {shards}, {commits}, {segments} of the log{snapshot}"))
}

/// Whether a register, or part of one, is there without a notice that it is being moved or copied.
fn is_plain(directory: &Path) -> bool {
    embedded::nameplate::may_be_there(directory) && embedded::nameplate::notice(directory).is_none()
}

/// Says that the register of a directory was moved, and where.
pub fn moved(from: &Path) -> Option<String> {
    let notice = embedded::nameplate::notice(from)?;
    matches!(notice, MoveNotice::Moved { .. }).then(|| format!("`{}` {}", from.display(), notice.refusal()))
}

/// Says that a copy or a move into a directory broke off, so that it cannot be copied from; and what to do.
pub fn unfinished(from: &Path) -> Option<(String, String)> {
    let notice = embedded::nameplate::notice(from)?;
    match notice {
        MoveNotice::Moved { .. } => None,
        MoveNotice::Unfinished { .. } | MoveNotice::Copying { .. } | MoveNotice::Anew { .. } | MoveNotice::Begun => {
            Some((format!("`{}` {}", from.display(), notice.refusal()), notice.hint()))
        }
    }
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
        /// What its keys begin with.
        prefix: String,
        /// Certificates for a URL over TLS.
        tls: TlsFiles,
        /// How many replicas must have a write before it counts; none: all that follow it.
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

    /// Its location, worded as by [`MoveSource::place`].
    pub fn place(&self) -> String {
        match self {
            Self::Directory(path) => format!("the directory {}", resolved(path).display()),
            Self::Redis { url, prefix, .. } => {
                format!("{}, keys `{{{prefix}}}:…`", crate::store::redis::without_secret(url))
            }
        }
    }
}

/// The options of a register in Redis, to open it or to examine it.
fn redis_options(url: &str, prefix: &str, tls: &TlsFiles, shards: impl Into<Option<u16>>) -> RedisOptions {
    RedisOptions { prefix: prefix.to_owned(), tls: tls.clone(), ..RedisOptions::new(url.to_owned(), shards) }
}

/// The absolute path without symbolic links, also if its end does not exist.
pub fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for there in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (there.canonicalize(), path.strip_prefix(there)) {
            // Joined with an empty path it would end with a slash.
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path
}

/// Settings of a register in Redis, with this prefix and these TLS files, that differ from the defaults of a server:
/// variables of its environment, and their values. The number of shards is not among them: a server takes as many as there
/// are.
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

/// A move that was asked for.
#[derive(Debug, Clone)]
pub struct MoveRoute {
    /// The source.
    pub from: MoveEnd,
    /// The target.
    pub to: MoveEnd,
    /// The number of shards in the target, if it is to change.
    pub shards: Option<u16>,
    /// Data directories of the nodes that kept the register in Redis. The target directory is one of them if it was a
    /// node's.
    pub nodes: Vec<PathBuf>,
    /// Gives up what these nodes acknowledged and Redis lacks.
    pub accept_rollback: bool,
}

impl MoveRoute {
    /// Directories whose notes say how far the source was acknowledged.
    fn witnesses(&self) -> Vec<PathBuf> {
        let target = match &self.to {
            MoveEnd::Directory(path) => Some(path),
            MoveEnd::Redis { .. } => None,
        };
        self.nodes.iter().chain(target).cloned().collect()
    }
}

/// Why a register was not moved, and what to do about it.
#[derive(Debug, Clone)]
pub struct Unmoved {
    /// A sentence.
    pub problem: String,
    /// A sentence without its full stop.
    pub hint: &'static str,
    /// The register went to this target, or elsewhere, earlier.
    pub is_gone: bool,
}

impl From<CannotMove> for Unmoved {
    fn from(cannot: CannotMove) -> Self {
        let is_gone = matches!(cannot, CannotMove::Gone(_));
        let hint = match cannot {
            CannotMove::Served(_) => "stop every server that has it open, then run `allod migrate FROM TO` again",
            CannotMove::Target(_) => {
                "name an empty directory, or a Redis without keys of that prefix (`--redis-prefix`)"
            }
            CannotMove::Away(_) => {
                "make sure that the new place can be reached and written to, then run `allod migrate FROM TO` again; nothing \
                 was changed"
            }
            CannotMove::Gone(_) => {
                "see that the new place is the one that you named before, and that it is mounted; else serve the register where it \
                 is now"
            }
            CannotMove::ClosedAndAway(_) => {
                "make sure that the new place can be reached, then run `allod migrate FROM TO` again, which finishes the move; \
                 remove nothing at either place, and restore nothing: the register would be there twice"
            }
            CannotMove::Store(_) | CannotMove::Differs(_) => {
                "the source is unchanged unless it says that it was moved; `allod migrate FROM TO` finishes the move, or begins \
                 again"
            }
            CannotMove::WentOn(_) => {
                "bring back a newer copy of the data of the new place, or its newest replica, then run `allod migrate FROM TO` \
                 again"
            }
        };
        Self { problem: cannot.to_string(), hint, is_gone }
    }
}

/// A register that is to be moved, opened.
pub struct MoveSource(Box<dyn Movable>);

impl MoveSource {
    /// Its location.
    pub fn place(&self) -> String {
        self.0.place()
    }

    /// How many shards it has.
    pub fn shards(&self) -> u16 {
        self.0.info().shards
    }
}

/// Options of a place where each step counts when this many replicas have it, or all that follow.
fn awaiting(replicas: Option<u32>, options: RedisOptions) -> RedisOptions {
    RedisOptions { replicas: replicas.unwrap_or_default(), replicas_that_follow: replicas.is_none(), ..options }
}

fn open(route: &MoveRoute, shards: Option<u16>, opening: Opening) -> Result<Box<dyn Movable>, StoreError> {
    let is_source = opening == Opening::Source;
    Ok(match if is_source { &route.from } else { &route.to } {
        MoveEnd::Directory(path) => {
            let options = embedded::EmbeddedOptions { opening, ..embedded::EmbeddedOptions::default() };
            Box::new(EmbeddedStore::open(path, shards, options)?)
        }
        MoveEnd::Redis { url, prefix, tls, replicas } => {
            let options = RedisOptions { opening, ..awaiting(*replicas, redis_options(url, prefix, tls, shards)) };
            let witnesses = if is_source { route.witnesses() } else { Vec::new() };
            let options = RedisOptions { witnesses, accept_rollback: route.accept_rollback, ..options };
            Box::new(RedisStore::open(options)?)
        }
    })
}

/// Opens a register that is to be moved, without changing anything there.
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
                "nothing was changed: bring the data of Redis back, then run `allod migrate FROM TO` again"
            }
            StoreError::Newer(_) => "nothing was changed: run `allod migrate FROM TO` of the version that wrote it, or of a newer one",
            StoreError::Locked(_) => "stop the server that has it open, then run `allod migrate FROM TO` again",
            StoreError::HistoryDamaged(_) => {
                "`allod serve --give-up-history`, once, makes it whole without that history; stop it, then run this again"
            }
            StoreError::SnapshotDamaged(_) => {
                "`allod serve --give-up-snapshot`, once, makes it whole from its log; stop it, then run this again"
            }
            _ => "name the data directory of a server that is stopped, or the URL of its Redis",
        },
        is_gone: false,
    })
}

/// Checks whether the register could be moved there, without changing anything. If it is in Redis, this process is visible
/// meanwhile as a node of its own.
///
/// # Errors
/// What stands in the way.
pub fn look(source: &MoveSource, route: &MoveRoute) -> Result<(), Unmoved> {
    let from = migrate::origin(&*source.0);
    let looked = match &route.to {
        MoveEnd::Directory(path) => embedded::look_at_target(path, &from),
        MoveEnd::Redis { url, prefix, tls, replicas } => {
            let options = redis_options(url, prefix, tls, source.shards());
            examine::look_at_target(&awaiting(*replicas, options), from)
        }
    };
    if let Some(notice) = source.0.notice() {
        // All that can be left to do is to finish the move where it went.
        let nothing = || StoreError::Foreign(format!("{} holds nothing of it", route.to.place()).into());
        let unfinished = looked.and_then(|is_begun| if is_begun { Ok(()) } else { Err(nothing()) });
        return unfinished.map_err(|error| migrate::not_finished(&*source.0, &notice, error).into());
    }
    looked.map_err(|error| unmoved(route, migrate::untaken(error)))?;
    Ok(runtime()?.block_on(migrate::look(&*source.0))?)
}

fn runtime() -> Result<tokio::runtime::Runtime, Unmoved> {
    let machine =
        |error: std::io::Error| Unmoved { problem: error.to_string(), hint: "see `ulimit -a`", is_gone: false };
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(machine)
}

/// After a move, puts aside the files that its nodes left on their disks and that the moved register contains completely.
/// Returns their new paths.
///
/// # Errors
/// What stands in the way; the register was moved nevertheless.
pub fn put_left_aside(source: &MoveSource) -> Result<Vec<PathBuf>, Unmoved> {
    source.0.put_left_aside().map_err(|error| Unmoved {
        problem: format!("the register was moved, and what a node left is not put aside: {}", chain(&error)),
        hint: "stop that node, then run `allod migrate FROM TO --node-data DIR` again",
        is_gone: false,
    })
}

/// Moves the register.
///
/// # Errors
/// What stands in the way.
pub fn migrate(source: &MoveSource, route: &MoveRoute, tell: Tell<'_>) -> Result<MovedRegister, Unmoved> {
    let runtime = runtime()?;
    let shards = route.shards.unwrap_or(source.shards());
    runtime.block_on(async {
        let moved = migrate::run(&*source.0, &|opening| open(route, Some(shards), opening), &SystemClock, tell).await;
        source.0.close().await;
        moved.map_err(|cannot| unmoved(route, cannot))
    })
}

/// Why it was not moved, and what to do; the hint is another one if the Redis that it was to go to cannot keep any register.
fn unmoved(route: &MoveRoute, cannot: CannotMove) -> Unmoved {
    let refuses_all = match (&route.to, &cannot) {
        (MoveEnd::Redis { url, prefix, tls, .. }, CannotMove::Target(_)) => {
            examine::is_unfit(&redis_options(url, prefix, tls, 1))
        }
        _ => false,
    };
    let hint = "put that right in Redis, and in its file, or name another one, then run `allod migrate FROM TO` again; nothing was \
                changed";
    if refuses_all { Unmoved { hint, ..cannot.into() } } else { cannot.into() }
}

/// The register that this very move has already made: the source says that it became that one, and the target says that it
/// is whole. Changes nothing.
pub fn arrived(source: &MoveSource, route: &MoveRoute) -> Option<u128> {
    let (register, there) = (moved_as(source)?.0, there(source, route));
    Some(register).filter(|&register| there == Some((register, None)))
}

/// Whether nothing was left to do at the target for a register that was moved before: it went elsewhere, or has been there.
/// If it went to the target, and that holds nothing of it, the target is perhaps not mounted.
pub fn went(source: &MoveSource, route: &MoveRoute) -> bool {
    let Some((register, to)) = moved_as(source) else { return false };
    to != route.to.place() || there(source, route).is_some_and(|(there, _)| there == register)
}

/// What the register of the source became, and where.
fn moved_as(source: &MoveSource) -> Option<(u128, String)> {
    match source.0.notice() {
        Some(MoveNotice::Moved { register, to, .. }) => Some((register, to)),
        Some(_) | None => None,
    }
}

/// The register at the target, and what it says about a move.
fn there(source: &MoveSource, route: &MoveRoute) -> Option<(u128, Option<MoveNotice>)> {
    match &route.to {
        MoveEnd::Directory(path) => {
            let plate = embedded::nameplate::read(path).ok().flatten();
            plate.map(|plate| (plate.register, plate.moved))
        }
        MoveEnd::Redis { url, prefix, tls, .. } => {
            examine::register_there(&redis_options(url, prefix, tls, source.shards())).ok().flatten()
        }
    }
}
