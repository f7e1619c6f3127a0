//! Why a server cannot start, and what to do about it.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::company::Unrelated;
use super::occupant::Occupant;
use super::opening::left_by_others;
use super::{EXIT_CANNOT_START, EXIT_CANNOT_START_NOW, Unserved};
use crate::actors::service::Unloadable;
use crate::config::StoreKind;
use crate::store::StoreError;
use crate::store::redis::{WayRefusal, may_know};

/// Why a start failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct CannotStart {
    /// A sentence.
    pub problem: String,
    /// What to do: a sentence without full stop that names a command, a flag or a setting.
    pub hint: String,
    /// Whether it may pass without anybody acting here: what cannot be reached now may be reachable in a moment.
    pub may_pass: bool,
}

/// Why the keeper of a register cannot begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CannotBegin {
    /// The store, or the node that owns the register, cannot be reached now.
    Now(String),
    /// The store has no room for the first record that this node writes.
    NoRoom(String),
    /// The store refuses writes for a reason other than room: the disk or the machine refuses them.
    NotContinued(String),
    /// Another node uses the name of this one.
    NameTaken(String),
    /// Somebody must look.
    AsItIs(Unloadable),
    /// This node cannot talk to a node that is there, for lack of a common secret.
    Unrelated(Unrelated),
}

/// Whether it may pass without anybody acting here. A server may come back, and a failed disk, which the kernel mounts
/// read-only, may be mounted again; a missing permission does not appear by itself.
fn may_pass(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { source, .. } if source.kind() != io::ErrorKind::PermissionDenied)
}

/// What to do about a read-only file system.
///
/// A supervisor starts the server again every few seconds: a start between the unmount and the mount would find an empty
/// directory.
pub(super) const READ_ONLY_HINT: &str = "its file system is mounted read-only (`mount`), perhaps by the kernel, because the disk \
                                         failed (`dmesg`): stop the server first (`systemctl stop allod`), or a start while the \
                                         disk is not mounted begins an empty register in its place; then see to the disk, mount \
                                         it again with its files as they are, and start the server; or it is read-only for a unit \
                                         alone that does not name it in `ReadWritePaths=`";

/// What to do about a register in files that is as it was written, and that this version cannot read.
const NEWER_HINT: &str = "start the version of allod that wrote it, or a newer one: nothing is lost, whereas a backup lacks what was \
                          granted since; nothing was changed";

impl From<StoreError> for CannotBegin {
    fn from(error: StoreError) -> Self {
        let problem = super::chain(&error);
        if may_pass(&error) { Self::Now(problem) } else { Self::AsItIs(Unloadable::because(&error, problem)) }
    }
}

impl CannotStart {
    pub(super) fn new(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { problem: problem.into(), hint: hint.into(), may_pass: false }
    }

    /// The machine has no thread, socket or the like to give.
    pub(super) fn of_machine(problem: String) -> Self {
        Self::new(problem, "the machine has too little of something; see `ulimit -a`, and the setting `server.threads`")
    }

    /// The configuration file does not exist or cannot be read.
    pub(super) fn no_configuration(problem: String) -> Self {
        Self::new(problem, "name an existing file with `--config FILE`, or none: every key has a default")
    }

    /// Settings are wrong, one a line.
    pub(super) fn configuration(problem: &str) -> Self {
        let hint = "config/server.toml explains every key; `allod check-config FILE` checks a file";
        Self::new(problem.replace('\n', "\n  "), hint)
    }

    /// A port cannot be used: names the setting, who has the port, and how to choose another one.
    pub(super) fn port(problem: String, key: &str, taken: Option<SocketAddr>) -> Self {
        let flag = match key {
            "server.listen" => "--listen",
            "cluster.listen" => "--cluster-listen",
            _ => "--http",
        };
        let other = format!("choose another port with `{flag} ADDR`; `{flag} 127.0.0.1:0` takes a free one");
        let Some(address) = taken else { return Self::new(problem, other) };
        let problem = match Occupant::of(address) {
            Some(occupant) => format!("{problem}: {}", occupant.words()),
            None => format!("{problem}: another process has that port"),
        };
        let asks = match key {
            "server.listen" => format!("allod --server {address} server info"),
            "server.http_listen" => format!("curl http://{address}/readyz"),
            _ => {
                return Self::new(
                    problem,
                    format!("where that is another node, this one needs a port of its own: {other}"),
                );
            }
        };
        let hint = format!(
            "if that is the server that you mean, it runs already (`{asks}` asks it); for a second one name a directory of its own, \
             too (`--data DIR`), and {other}"
        );
        Self::new(problem, hint)
    }

    /// The store cannot be opened.
    pub(super) fn store(problem: String, error: &StoreError, store: StoreKind) -> Self {
        if let StoreError::Io { source, .. } = error
            && let Some(refusal) = of_way(source)
        {
            return Self { may_pass: may_pass(error), ..Self::new(problem, refusal.hint()) };
        }
        let hint = match error {
            // These errors already say what to do.
            StoreError::Foreign(_) | StoreError::Newer(_) | StoreError::Damaged(_) | StoreError::Invalid(_)
                if store == StoreKind::Redis =>
            {
                "nothing was changed there; `store.redis` (`--redis URL`) and `store.prefix` (in config/server.toml, or as \
                 ALLOD_STORE__PREFIX) say which register it is"
            }
            StoreError::Locked(_) => {
                "stop the server that has it open, then start this one; to run a second server, give it a directory of its own \
                 (`--data DIR`, `store.directory`)"
            }
            StoreError::Io { source, .. } if store == StoreKind::Redis && is_of_place(source) => {
                "check who may write to `store.directory`, or choose another one with `--data DIR`: each node keeps there what it knows about its register"
            }
            StoreError::Io { .. } if store == StoreKind::Redis && !may_pass(error) => {
                "name the right user, password and database by `--redis URL` (`store.redis`), and give that user the rights it \
                 needs (deploy/README.md has the whole line, under \"Redis\")"
            }
            StoreError::Io { source, .. }
                if store == StoreKind::Redis && source.kind() == io::ErrorKind::ResourceBusy =>
            {
                "nothing is wrong here: it resumes by itself when the slot has come to rest (deploy/README.md, under \"On a \
                 Redis Cluster\")"
            }
            _ if store == StoreKind::Redis => {
                "make sure that Redis runs and lets this server in, or name another one with `--redis URL` (`store.redis`)"
            }
            StoreError::Foreign(_) => {
                "nothing was changed there; `store.directory` (`--data DIR`) says which register it is"
            }
            StoreError::Newer(_) => NEWER_HINT,
            StoreError::HistoryDamaged(_) => {
                "`allod serve --give-up-history`, once, starts it without that history: no state is lost, whereas a backup \
                 would lose some"
            }
            StoreError::SnapshotDamaged(_) => {
                "`allod serve --give-up-snapshot`, once, starts it from the log: no state is lost, whereas a backup would lose some"
            }
            StoreError::Damaged(_) => "`allod restore` makes a register from a backup; nothing was changed",
            StoreError::Full => "make room on that disk, then start it again",
            _ => {
                "choose another directory with `--data DIR` (`store.directory`), or check who may write to this one (for a \
                 unit, `ReadWritePaths=`)"
            }
        };
        Self { may_pass: store == StoreKind::Redis && may_pass(error), ..Self::new(problem, hint) }
    }

    /// The store in Redis cannot be opened; `directory` is where this node keeps what it knows of the register. If its disk
    /// refuses something, the hint does not name another directory: a node that starts without that knowledge takes an older
    /// copy for the register, and gives back nothing of what it acknowledged.
    pub(super) fn of_node(problem: String, error: &StoreError, directory: &Path) -> Self {
        match error {
            StoreError::Io { source, .. } if is_of_machine(source) && (!is_of_place(source) || may_know(directory)) => {
                Self::files(problem, error, directory)
            }
            _ => Self::store(problem, error, StoreKind::Redis),
        }
    }

    /// The disk or the machine refuses something of a register that exists, or may exist. The hint names no other directory:
    /// that would be an empty register, in which every address is free.
    pub(super) fn files(problem: String, error: &StoreError, directory: &Path) -> Self {
        let may_pass = may_pass(error);
        let left = if may_pass { None } else { left_by_others(directory) };
        if let Some((seen, hint)) = left {
            return Self { may_pass, ..Self::new(problem, format!("{seen}; {hint}")) };
        }
        let hint = if matches!(error, StoreError::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem)
        {
            READ_ONLY_HINT
        } else if may_pass {
            "look at `df` (room), the kernel's log (`journalctl -k`: the disk) and `ulimit -n` (open files), then start it again"
        } else {
            "check who may read and write there (`ls -la` as the user of the server), then start it again"
        };
        Self { may_pass, ..Self::new(problem, hint) }
    }

    /// Another process uses the register: it is being copied, which ends, or a server has it. The hint names no other
    /// directory: in another register every address is free.
    pub(super) fn in_use(problem: String) -> Self {
        let hint = "if that is a copy (`allod backup`, `allod restore`) or a server that is stopping, start this one again when \
         it has ended, as a supervisor does; if two servers share one register, stop one of them";
        Self { may_pass: true, ..Self::new(problem, hint) }
    }

    /// A shard was opened but cannot be loaded.
    pub(super) fn register(cannot: CannotBegin, store: StoreKind) -> Self {
        let problem = match cannot {
            CannotBegin::AsItIs(Unloadable { problem, is_newer: true }) if store == StoreKind::Embedded => {
                return Self::new(problem, NEWER_HINT);
            }
            CannotBegin::AsItIs(Unloadable { problem, .. }) => problem,
            CannotBegin::NameTaken(problem) => {
                let hint = "`allod cluster nodes` shows where the other one is: start this one with another `--node NAME` (the \
                 default is the name of the machine), or stop one of the two; nothing was changed in Redis";
                return Self::new(problem, hint);
            }
            CannotBegin::Unrelated(Unrelated { problem, may_pass }) => {
                let hint = "give all nodes that share a register the same secret by `--cluster-secret-file FILE` \
                            (`cluster.secret_file`; `head -c 32 /dev/urandom | base64 > FILE` makes one) and restart those \
                            that have none or another, or keep this one's register elsewhere (`store.redis`, `store.prefix`)";
                return Self { may_pass, ..Self::new(problem, hint) };
            }
            CannotBegin::Now(problem) if store == StoreKind::Redis => {
                let hint = "make sure that Redis and the other nodes run and let this one in, then start it again";
                return Self { may_pass: true, ..Self::new(problem, hint) };
            }
            CannotBegin::Now(problem) => {
                let hint = "see what the kernel's log says about that disk, and who may read and write in `store.directory` \
                            (`--data DIR`)";
                return Self { may_pass: true, ..Self::new(problem, hint) };
            }
            CannotBegin::NotContinued(problem) if store != StoreKind::Redis => {
                let hint = "look at the kernel's log (`journalctl -k`: the disk) and `ulimit -n` (open files), then start it \
                            again: the register is there";
                return Self { may_pass: true, ..Self::new(problem, hint) };
            }
            CannotBegin::NoRoom(problem) | CannotBegin::NotContinued(problem) => {
                let hint = match store {
                    StoreKind::Redis => "make room in Redis (`maxmemory`), then start it again: the register is there",
                    StoreKind::Embedded | StoreKind::Memory => {
                        "make room on the disk of `store.directory` (`df`), then start it again: the register is there"
                    }
                };
                return Self { may_pass: true, ..Self::new(problem, hint) };
            }
        };
        let hint = match store {
            StoreKind::Embedded => "`allod restore` makes a register from a backup; nothing was changed",
            StoreKind::Redis => {
                "nothing was changed in Redis except the owner of the shards; deploy/README.md says what to do, under \"Redis\""
            }
            StoreKind::Memory => "report this, with the output of `allod --version`",
        };
        Self::new(problem, hint)
    }

    /// How the process ends: the exit code tells a supervisor whether to try again.
    pub(super) fn end(self) -> Unserved {
        let exit = if self.may_pass { EXIT_CANNOT_START_NOW } else { EXIT_CANNOT_START };
        Unserved { asked: "start the server", problem: self.problem, hint: self.hint, exit }
    }
}

/// Whether the machine refused it. A refusal by Redis carries no error of the operating system, and a failed connection has
/// other kinds.
fn is_of_machine(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    let of_connection = matches!(
        error.kind(),
        Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::NotConnected
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown
            | Kind::AddrNotAvailable
            | Kind::BrokenPipe
            | Kind::TimedOut
    );
    error.raw_os_error().is_some() && !of_connection
}

/// Whether another directory would help. A disk that cannot read, or a process out of descriptors, fails anywhere.
fn is_of_place(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let of_place =
        matches!(error.kind(), NotADirectory | PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull);
    error.raw_os_error().is_some() && of_place
}

/// Why no connection comes up, if that is known: for TLS, or because the URL is wrong.
fn of_way(error: &io::Error) -> Option<&WayRefusal> {
    error.get_ref()?.downcast_ref()
}

impl From<CannotStart> for String {
    fn from(cannot: CannotStart) -> Self {
        cannot.problem
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::io::Errno;

    use super::*;

    fn io(source: io::Error) -> StoreError {
        StoreError::Io { context: "locking a file".into(), source: Arc::new(source) }
    }

    #[test]
    fn what_a_directory_refuses_is_not_taken_for_something_that_redis_does() {
        let directory = tempfile::tempdir().unwrap();
        let hint = |error: &StoreError| CannotStart::of_node(String::new(), error, directory.path()).hint;
        let of_machine = |errno: Errno| io(errno.into());
        for error in [of_machine(Errno::ACCESS), StoreError::Locked("in use by process 7".into())] {
            assert!(hint(&error).contains("--data DIR"), "{error:?}: {}", hint(&error));
        }
        for error in [of_machine(Errno::IO), of_machine(Errno::MFILE)] {
            assert!(hint(&error).contains("the kernel's log"), "{error:?}: {}", hint(&error));
        }
        for error in [io(io::Error::other("NOPERM")), of_machine(Errno::CONNREFUSED), of_machine(Errno::TIMEDOUT)] {
            assert!(hint(&error).contains("--redis URL"), "{error:?}: {}", hint(&error));
        }
        // This is how the store reports that a slot is being moved.
        let moves = io(io::Error::new(io::ErrorKind::ResourceBusy, "slot 1 is being moved"));
        assert!(hint(&moves).contains("when the slot has come to rest"), "{}", hint(&moves));
    }

    #[test]
    fn where_a_node_keeps_what_it_knows_of_its_register_no_other_directory_is_named_and_no_other_redis() {
        for name in ["REDIS", "LATE-3-0f", "REDO-0f"] {
            let directory = tempfile::tempdir().unwrap();
            std::fs::File::create(directory.path().join(name)).unwrap();
            for errno in [Errno::ACCESS, Errno::ROFS, Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::MFILE] {
                let cannot = CannotStart::of_node(String::new(), &io(errno.into()), directory.path());
                let hint = cannot.hint;
                assert!(!hint.contains("--data") && !hint.contains("--redis"), "{name}, {errno}: {hint}");
            }
        }
    }

    #[test]
    fn a_node_whose_name_is_taken_is_told_how_it_gets_another() {
        let cannot =
            CannotStart::register(CannotBegin::NameTaken("another node of the name `a`".into()), StoreKind::Redis);
        assert!(cannot.hint.contains("`--node NAME`") && !cannot.hint.contains("deploy/README"), "{}", cannot.hint);
        assert!(!cannot.may_pass);
    }

    #[test]
    fn nobody_is_told_to_restore_what_only_a_newer_version_reads() {
        let hints = |error: StoreError| {
            let opened = CannotStart::store(String::new(), &error, StoreKind::Embedded);
            [opened.hint, CannotStart::register(error.into(), StoreKind::Embedded).hint]
        };
        for hint in hints(StoreError::newer("log/1 has at offset 7 something")) {
            assert!(hint.contains("or a newer one") && !hint.contains("restore"), "{hint}");
        }
        for hint in hints(StoreError::Damaged("log/1 is damaged at offset 7".into())) {
            assert!(hint.contains("`allod restore`"), "{hint}");
        }
    }

    #[test]
    fn whatever_a_disk_refuses_of_a_register_no_other_directory_is_named() {
        for (errno, names, may_pass) in [
            (Errno::NOSPC, "`df`", true),
            (Errno::IO, "the kernel's log", true),
            (Errno::MFILE, "`ulimit -n`", true),
            (Errno::ACCESS, "who may read and write", false),
            (Errno::ROFS, "`dmesg`", true),
            (Errno::ROFS, "`ReadWritePaths=`", true),
            // Each start between the unmount and the mount begins an empty register.
            (Errno::ROFS, "stop the server first (`systemctl stop allod`)", true),
        ] {
            let CannotStart { hint, may_pass: passes, .. } =
                CannotStart::files(String::new(), &io(errno.into()), Path::new("/no/such"));
            assert!(hint.contains(names) && !hint.contains("--data"), "{errno}: {hint}");
            assert_eq!(passes, may_pass, "{errno}");
        }
    }
}
