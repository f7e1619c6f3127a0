//! Why a server cannot start, and what to do about it.

use std::io;
use std::path::Path;

use super::company::Unrelated;
use super::opening::left_by_others;
use super::{EXIT_CANNOT_START, EXIT_CANNOT_START_NOW};
use crate::cli::failure::Failure;
use crate::config::StoreKind;
use crate::store::StoreError;
use crate::store::redis::{WayRefusal, may_know};

/// What stands in the way of a start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct CannotStart {
    /// A sentence.
    pub problem: String,
    /// What to do: a sentence without full stop that names a command, a flag or a setting.
    pub hint: String,
    /// It may pass without anybody doing anything here: what is not reached now may be in a moment.
    pub may_pass: bool,
}

/// Why the keeper of a register cannot begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CannotBegin {
    /// The store, or the node that owns the register, is not reached now.
    Now(String),
    /// The store has no room for the record that this node begins.
    NoRoom(String),
    /// The store takes no more for another reason than room: its disk, or the machine, refuses it.
    NotContinued(String),
    /// Another node of this one's name is there.
    NameTaken(String),
    /// Somebody must look.
    AsItIs(String),
    /// A node that is there cannot be asked by this one, or not this one by it.
    Unrelated(Unrelated),
}

/// Is it over, perhaps, without anybody doing anything here? A server may come, and a disk that failed, which the kernel mounts
/// read-only then, is mounted again; a right that is missing nobody gives by himself.
fn may_pass(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { source, .. } if source.kind() != io::ErrorKind::PermissionDenied)
}

/// What to do about a file system that takes nothing.
///
/// A supervisor starts the server again every few seconds: one that comes between the unmount and the mount finds an empty directory.
pub(super) const READ_ONLY_HINT: &str = "its file system is mounted read-only (`mount`), perhaps by the kernel, because the disk \
                                         failed (`dmesg`): stop the server first (`systemctl stop allod`), or a start while the \
                                         disk is not mounted begins an empty register in its place; then see to the disk, mount \
                                         it again with its files as they are, and start the server; or it is read-only for a unit \
                                         alone that does not name it in `ReadWritePaths=`";

impl From<StoreError> for CannotBegin {
    fn from(error: StoreError) -> Self {
        let problem = super::chain(&error);
        if may_pass(&error) { Self::Now(problem) } else { Self::AsItIs(problem) }
    }
}

impl CannotStart {
    pub(super) fn new(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { problem: problem.into(), hint: hint.into(), may_pass: false }
    }

    /// The machine gave no thread, socket or the like.
    pub(super) fn of_machine(problem: String) -> Self {
        Self::new(problem, "the machine has too little of something; see `ulimit -a`, and the setting `server.threads`")
    }

    /// A file of settings that is not there or cannot be read.
    pub(super) fn no_configuration(problem: String) -> Self {
        Self::new(problem, "name a file that is there by `--config FILE`, or none: every key has a default")
    }

    /// Settings that are wrong, one a line.
    pub(super) fn configuration(problem: &str) -> Self {
        let hint = "config/server.toml explains every key; `allod check-config FILE` checks a file";
        Self::new(problem.replace('\n', "\n  "), hint)
    }

    /// The ports: which setting, and how to choose another.
    pub(super) fn port(problem: String, key: &str, error: Option<&io::Error>) -> Self {
        let flag = match key {
            "server.listen" => "--listen",
            "cluster.listen" => "--cluster-listen",
            _ => "--http",
        };
        let who = match error.map(io::Error::kind) {
            Some(io::ErrorKind::AddrInUse) => "another process listens there, perhaps another server; ",
            _ => "",
        };
        Self::new(
            problem,
            format!("{who}choose another port with `{flag} ADDR`; `{flag} 127.0.0.1:0` takes a free one"),
        )
    }

    /// The store does not open.
    pub(super) fn store(problem: String, error: &StoreError, store: StoreKind) -> Self {
        if let StoreError::Io { source, .. } = error
            && let Some(refusal) = of_way(source)
        {
            return Self { may_pass: may_pass(error), ..Self::new(problem, refusal.hint()) };
        }
        let hint = match error {
            // What is refused there says itself what to do.
            StoreError::Foreign(_) | StoreError::Damaged(_) | StoreError::Invalid(_) if store == StoreKind::Redis => {
                "nothing was changed there; `store.redis` (`--redis URL`) and `store.prefix` (in config/server.toml, or as \
                 ALLOD_STORE__PREFIX) say which register it is"
            }
            StoreError::Locked(_) => {
                "stop the server that has it open, then start this one; a server beside it has a directory, and a register or a \
                 node's part of one, of its own (`--data DIR`, `store.directory`)"
            }
            StoreError::Io { source, .. } if store == StoreKind::Redis && is_of_place(source) => {
                "see who may write in `store.directory`, or choose another one with `--data DIR`: each node keeps there what it knows \
                 of its register"
            }
            StoreError::Io { .. } if store == StoreKind::Redis && !may_pass(error) => {
                "name the right user, password and database by `--redis URL` (`store.redis`), and give that user his rights \
                 (deploy/README.md has the whole line, under \"Redis\")"
            }
            StoreError::Io { source, .. }
                if store == StoreKind::Redis && source.kind() == io::ErrorKind::ResourceBusy =>
            {
                "nothing is amiss here: it goes on by itself when the slot has come to rest (deploy/README.md, under \"On a Redis Cluster\")"
            }
            _ if store == StoreKind::Redis => {
                "see that Redis runs and lets this server in, or name another by `--redis URL` (`store.redis`)"
            }
            StoreError::Foreign(_) => {
                "nothing was changed there; `store.directory` (`--data DIR`) says which register it is"
            }
            StoreError::HistoryDamaged(_) => {
                "`allod serve --give-up-history`, once, starts it without that history: no state is lost, as it would be with a backup"
            }
            StoreError::SnapshotDamaged(_) => {
                "`allod serve --give-up-snapshot`, once, starts it from the log: no state is lost, as it would be with a backup"
            }
            StoreError::Damaged(_) => "`allod restore` makes a register from a backup; nothing was changed here",
            StoreError::Full => "make room on that disk, then start it again",
            _ => {
                "choose another directory with `--data DIR` (`store.directory`), or see who may write to this one (a unit: where \
                 `ReadWritePaths=` says)"
            }
        };
        Self { may_pass: store == StoreKind::Redis && may_pass(error), ..Self::new(problem, hint) }
    }

    /// The store in Redis does not open, of a node that keeps what it knows of the register in this directory. What a disk refuses
    /// there is no reason to take another one: a node that starts without that takes an older copy for the register, and
    /// gives back nothing of what it acknowledged.
    pub(super) fn of_node(problem: String, error: &StoreError, directory: &Path) -> Self {
        match error {
            StoreError::Io { source, .. } if is_of_machine(source) && (!is_of_place(source) || may_know(directory)) => {
                Self::files(problem, error, directory)
            }
            _ => Self::store(problem, error, StoreKind::Redis),
        }
    }

    /// The disk, or the machine, refuses something of a register that is there, or may be. Another directory would be a register
    /// without anything in it, in which every address is free: none is named.
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
            "see who may read and write there, `ls -la` as the user of the server; then start it again"
        };
        Self { may_pass, ..Self::new(problem, hint) }
    }

    /// Another process has the register that is there: a copy of it is made, which ends, or a server has it. No other directory is
    /// named: in another register every address is free.
    pub(super) fn in_use(problem: String) -> Self {
        let hint = "if that is a copy (`allod backup`, `allod restore`) or a server that is stopped, start this one again when it has \
                    ended, as its supervisor does; of two servers on one register stop one";
        Self { may_pass: true, ..Self::new(problem, hint) }
    }

    /// A shard that was opened but does not load.
    pub(super) fn register(cannot: CannotBegin, store: StoreKind) -> Self {
        let problem = match cannot {
            CannotBegin::AsItIs(problem) => problem,
            CannotBegin::NameTaken(problem) => {
                let hint = "`allod cluster nodes` shows where the other one is: start this one with `--node NAME` (by default each has the \
                            name of its machine), or stop one of the two; nothing was changed in Redis";
                return Self::new(problem, hint);
            }
            CannotBegin::Unrelated(Unrelated { problem, may_pass }) => {
                let hint = "give all nodes that share a register the same secret by `--cluster-secret-file FILE` \
                            (`cluster.secret_file`; `head -c 32 /dev/urandom | base64 > FILE` makes one) and restart those \
                            that have none or another, or keep this one's register elsewhere (`store.redis`, `store.prefix`)";
                return Self { may_pass, ..Self::new(problem, hint) };
            }
            CannotBegin::Now(problem) if store == StoreKind::Redis => {
                let hint = "see that Redis and the other nodes run and let this one in, and start it again";
                return Self { may_pass: true, ..Self::new(problem, hint) };
            }
            CannotBegin::Now(problem) => {
                let hint = "see what the kernel's log says of that disk, and who may read and write in `store.directory` \
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
            StoreKind::Embedded => "`allod restore` makes a register from a backup; nothing was changed here",
            StoreKind::Redis => {
                "nothing was changed in Redis but who owns the shards; deploy/README.md has what to do, under Redis"
            }
            StoreKind::Memory => "report this, with the output of `allod --version`",
        };
        Self::new(problem, hint)
    }

    /// Says so, as a command that fails. Answers the exit code, by which a supervisor knows whether to try again.
    pub(super) fn end(self) -> u8 {
        Failure::new("start the server", self.problem, self.hint).print();
        if self.may_pass { EXIT_CANNOT_START_NOW } else { EXIT_CANNOT_START }
    }
}

/// Did the machine refuse it? What Redis refuses is no error of the machine's, and a connection fails otherwise.
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

/// Would the same be taken elsewhere? What a disk cannot read, or a process not open, is no matter of the place.
fn is_of_place(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let of_place =
        matches!(error.kind(), NotADirectory | PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull);
    error.raw_os_error().is_some() && of_place
}

/// Why no connection comes up, where that is known: for TLS, or because the URL is another one than it should be.
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
        // So the store says that a slot is moved.
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
    fn whatever_a_disk_refuses_of_a_register_no_other_directory_is_named() {
        for (errno, names, may_pass) in [
            (Errno::NOSPC, "`df`", true),
            (Errno::IO, "the kernel's log", true),
            (Errno::MFILE, "`ulimit -n`", true),
            (Errno::ACCESS, "who may read and write", false),
            (Errno::ROFS, "`dmesg`", true),
            (Errno::ROFS, "`ReadWritePaths=`", true),
            // Between the unmount and the mount each start that is tried begins an empty register.
            (Errno::ROFS, "stop the server first (`systemctl stop allod`)", true),
        ] {
            let CannotStart { hint, may_pass: passes, .. } =
                CannotStart::files(String::new(), &io(errno.into()), Path::new("/no/such"));
            assert!(hint.contains(names) && !hint.contains("--data"), "{errno}: {hint}");
            assert_eq!(passes, may_pass, "{errno}");
        }
    }
}
