//! The data directory: whether it exists, its owner, its free space, the process that has it open, and the register in it.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FsWord, access, statfs, statvfs};
use rustix::io::Errno;

use super::{Check, other_shards};
use crate::config::{Config, StoreKind};
use crate::core::plural::counted;
use crate::serve::cannot::READ_ONLY_HINT;
use crate::serve::opening::{self, hint_of_node};
use crate::store::embedded::{self, nameplate};
use crate::store::{StoreError, chain};

const CHECK: &str = "directory";
/// The least free space that is not alarming: room for a segment of the log, and one that is made ahead.
const ROOM_BYTES_MIN: u64 = 256 << 20;
/// Besides its history a register needs room for a snapshot, the next one, and the segments since.
const ROOM_BYTES_BESIDE: u64 = 2 << 30;
const MB: u64 = 1_000_000;
const BTRFS: FsWord = 0x9123_683e;
const ZFS: FsWord = 0x2fc1_2fc1;
const BCACHEFS: FsWord = 0xca45_1a4e;

/// The nearest directory that exists: this one, or the one in which it would be created.
pub(super) fn nearest(directory: &Path) -> PathBuf {
    let mut at = directory;
    while !at.exists() {
        match at.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => at = parent,
            None => return PathBuf::from("."),
        }
    }
    at.to_owned()
}

/// The checks, and the process that has the directory open.
pub(super) fn checks(config: &Config) -> (Vec<Check>, Option<String>) {
    let directory = &config.store.directory;
    let mut checks = vec![place(directory)];
    checks.extend(opening::left_by_others(directory).map(|(seen, hint)| Check::wrong("files", seen, hint)));
    // Over Redis only a note of the node is there, or should be.
    if config.store.kind == StoreKind::Redis {
        checks.extend(left_behind(config));
        return (checks, None);
    }
    checks.push(room(config));
    let holder = nameplate::in_use_by(directory);
    checks.push(match &holder {
        Some(holder) => Check::ok("lock", format!("a server has it open ({holder})")),
        None => Check::ok("lock", "no server has it open"),
    });
    checks.push(register(config));
    if holder.is_none() {
        checks.extend(log(directory));
    }
    (checks, holder)
}

/// A register in files that a start over Redis would leave behind, or left behind long ago.
fn left_behind(config: &Config) -> Option<Check> {
    let (seen, hint) = opening::left_behind(config)?;
    if nameplate::is_of_node(&config.store.directory) {
        let hint = "see to it that what it granted is claimed in the register in Redis (`allod ip claim`), then move its files \
                    (`META`, `MARK`, `HISTORY`, `log`, `snap`) elsewhere";
        return Some(Check::warning("register", seen, hint));
    }
    Some(Check::wrong("register", seen, hint))
}

/// Whether everything that a start reads is intact. Reads as much as a start does.
fn log(directory: &Path) -> Option<Check> {
    // Other checks already report a register that does not exist or cannot be opened.
    nameplate::read(directory).ok().flatten().filter(|plate| plate.moved.is_none())?;
    let (problem, hint) = match embedded::look(directory) {
        Ok(report) => {
            let whole = format!("{}, all of them whole", counted(report.groups, "commit"));
            let aside = |what: &str, files: u64, folder: &str| {
                let place = directory.join(folder);
                let files = (files > 0).then(|| counted(files, "file"))?;
                Some(format!("{what}: {files} of it in {}, `*.given-up`, until somebody removes them", place.display()))
            };
            let history = aside(", except for history that was given up", report.given_up_segments, "log");
            let snapshots = aside("; a damaged snapshot was put aside", report.given_up_snapshots, "snap");
            let seen = whole + &history.unwrap_or_default() + &snapshots.unwrap_or_default();
            if report.half_marked {
                let seen =
                    format!("{seen}; one of the two copies in {} is unreadable", directory.join("MARK").display());
                let hint = "a start uses the other one, and both are written again with the next change; unless the power has \
                 just failed, check the disk (`journalctl -k`)";
                return Some(Check::warning("log", seen, hint));
            }
            return Some(Check::ok("log", seen));
        }
        // A server opened it meanwhile, and writes to it.
        Err(_) if nameplate::in_use_by(directory).is_some() => return None,
        Err(error) => (chain(&error), hint_of_log(&error, directory)),
    };
    Some(Check::wrong("log", problem, hint))
}

fn hint_of_log(error: &StoreError, directory: &Path) -> &'static str {
    match error {
        StoreError::HistoryDamaged(_) => {
            "`allod serve --give-up-history`, once, starts it without that history: no state is lost, whereas a copy would lose \
             some"
        }
        StoreError::SnapshotDamaged(_) => {
            "`allod serve --give-up-snapshot`, once, starts it from the log: no state is lost, whereas a copy would lose some"
        }
        StoreError::Damaged(_) => "`allod restore SOURCE --data DIR` brings a copy back",
        StoreError::Foreign(_) | StoreError::Newer(_) => {
            "start the allod version that wrote it, or a newer one: nothing is lost, whereas a copy would lose something"
        }
        StoreError::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            if opening::left_by_others(directory).is_some() {
                return "do what is said of its `files`";
            }
            "run it as a user who can read it: `runuser -u allod -- allod doctor`"
        }
        _ => {
            "see what the kernel's log says about that disk (`journalctl -k`), and `ulimit -n`; a copy, which `allod restore` \
             brings back, lacks everything granted since"
        }
    }
}

/// Whether the server may write there, and who else may.
fn place(directory: &Path) -> Check {
    let (near, shown) = (nearest(directory), directory.display());
    let facts = match std::fs::metadata(&near) {
        Ok(facts) => facts,
        Err(error) => return Check::wrong(CHECK, format!("{shown}: {error}"), "name another one with `--data DIR`"),
    };
    if !facts.is_dir() {
        return Check::wrong(
            CHECK,
            format!("{} is not a directory", near.display()),
            "name another one with `--data DIR`",
        );
    }
    let (mode, user) = (facts.mode() & 0o7777, rustix::process::geteuid().as_raw());
    let may = access(&near, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK);
    if may == Err(Errno::ROFS) {
        return Check::wrong(CHECK, format!("{} is read-only", near.display()), READ_ONLY_HINT);
    }
    if may.is_err() {
        let seen = format!(
            "{} (mode {mode:o}) belongs to user {}; user {user} cannot write there",
            near.display(),
            facts.uid()
        );
        let hint =
            "ask as the user of the server: `runuser -u allod -- allod doctor …`; or give it the directory by `chown`";
        return Check::wrong(CHECK, seen, hint);
    }
    if near != directory {
        return Check::ok(CHECK, format!("{shown} does not exist; the first start creates it in {}", near.display()));
    }
    if facts.uid() != user {
        let seen = format!("{shown} belongs to user {}, and this is user {user}", facts.uid());
        let hint = "ask as the user of the server, `runuser -u allod -- allod doctor …`: the server cannot write to files that \
         another user creates there";
        return Check::warning(CHECK, seen, hint);
    }
    if mode & 0o002 != 0 {
        return Check::wrong(
            CHECK,
            format!("anybody can write to {shown} (mode {mode:o})"),
            format!("chmod 750 {shown}"),
        );
    }
    Check::ok(CHECK, format!("{shown}, mode {mode:o}, of user {user}"))
}

/// The name of a file system, and why a register should not lie on it, if it should not.
fn file_system(kind: FsWord) -> (String, Option<&'static str>) {
    let network = "whether a flush there reaches a disk depends on the file server; a local disk is safer and faster";
    let (name, why) = match kind {
        0xef53 => ("ext4", None),
        0x5846_5342 => ("xfs", None),
        BTRFS => ("btrfs", None),
        ZFS => ("zfs", None),
        BCACHEFS => ("bcachefs", None),
        0xf2f5_2010 => ("f2fs", None),
        0x0102_1994 | 0x8584_58f6 => {
            ("memory (tmpfs)", Some("its contents are lost when the machine restarts; name a directory on a disk"))
        }
        0x794c_7630 => (
            "overlay",
            Some("its contents are lost with the container, unless the layer is kept; mount a volume there"),
        ),
        0x6969 => ("nfs", Some(network)),
        0xff53_4d42 | 0xfe53_4d42 => ("smb", Some(network)),
        0x0102_1997 => ("9p", Some(network)),
        0x6573_5546 => ("fuse", Some(network)),
        other => return (format!("a file system of type {other:x}"), None),
    };
    (name.to_owned(), why)
}

/// Whether overwriting a file takes new room. If so, the zeros that the log is written over reserve none.
fn copies_on_write(kind: FsWord) -> bool {
    matches!(kind, BTRFS | ZFS | BCACHEFS)
}

/// Whether there is room for what the settings allow it to keep.
fn room(config: &Config) -> Check {
    let near = nearest(&config.store.directory);
    let (Ok(system), Ok(space)) = (statfs(&near), statvfs(&near)) else {
        let seen = format!("the free space of {} cannot be found out", near.display());
        return Check::warning("room", seen, "see `df` for that directory");
    };
    let (free, all) = (space.f_bavail.saturating_mul(space.f_frsize), space.f_blocks.saturating_mul(space.f_frsize));
    let history = config.history.bytes_in(StoreKind::Embedded);
    room_of(system.f_type, (free, all), embedded::taken(&config.store.directory), history)
}

/// As [`room`]: `free` bytes of `all`, of which the register takes `taken`; its history may grow to `history`.
fn room_of(kind: FsWord, (free, all): (u64, u64), taken: u64, history: u64) -> Check {
    let (name, why) = file_system(kind);
    let seen = format!("{name}, {} of {} MB free", free / MB, all / MB);
    if free < ROOM_BYTES_MIN {
        return Check::wrong(
            "room",
            seen,
            "make room, at least 300 MB: the log takes 64 MiB at a time and as much in advance, and a new snapshot is written \
             before the old one goes; without that room nothing more is granted",
        );
    }
    if let Some(why) = why {
        return Check::warning("room", seen, why);
    }
    if free + taken < history + ROOM_BYTES_BESIDE {
        let seen = format!("{seen}; history may grow to {} MB", history / MB);
        return Check::warning(
            "room",
            seen,
            "make room, or lower `history.keep_bytes` to what there is and restart; with a full disk nothing is granted",
        );
    }
    if copies_on_write(kind) {
        let seen = format!("{seen}; it copies on write, so no room can be reserved");
        let hint = "a full disk ends the server there, while on other file systems it goes on with releases: keep room free, or \
         move the register to ext4 or xfs";
        return Check::warning("room", seen, hint);
    }
    Check::ok("room", format!("{seen}, {} MB taken", taken / MB))
}

/// Which register the directory holds, as far as can be told without opening it.
fn register(config: &Config) -> Check {
    let directory = &config.store.directory;
    let read = nameplate::read(directory);
    // If a copy or a move broke off, there may be no register yet.
    if matches!(read, Ok(None) | Err(StoreError::Foreign(_)))
        && let Some(notice) = nameplate::notice(directory)
    {
        return Check::wrong("register", format!("{} {}", directory.display(), notice.refusal()), notice.hint());
    }
    let plate = match read {
        Err(error) => {
            let hint = match error {
                StoreError::Foreign(_) if nameplate::is_of_node(directory) => {
                    return Check::wrong("register", chain(&error), hint_of_node(directory));
                }
                StoreError::Foreign(_) if !nameplate::may_be_there(directory) => {
                    "name another directory by `--data DIR` (`store.directory`)"
                }
                // There may be a register, and another directory would be one in which every address is free.
                StoreError::Foreign(_) => {
                    "start the allod that wrote it, or a newer one; if it is damaged, `allod restore` brings a copy back, \
                     and in an empty directory every address is free"
                }
                _ => "see what the kernel's log says about that disk (`journalctl -k`), and who may read there",
            };
            return Check::wrong("register", chain(&error), hint);
        }
        Ok(None) => return Check::ok("register", "none yet; the first start creates one"),
        Ok(Some(plate)) => plate,
    };
    let seen = format!("{:032x}, {}", plate.register, counted(u64::from(plate.shards), "shard"));
    if let Some(moved) = plate.moved {
        return Check::wrong("register", format!("{} {}", directory.display(), moved.refusal()), moved.hint());
    }
    if let Err(error) = nameplate::check_alone(directory) {
        return Check::wrong("register", chain(&error), hint_of_node(directory));
    }
    if let Some(wrong) = other_shards(&seen, plate.shards.into(), config) {
        return wrong;
    }
    if plate.restored {
        let hint = "claim what is in use (`allod ip claim`), then start it once with `--accept-restored`";
        return Check::warning("register", format!("{seen}; restored from a copy, so it chooses no addresses"), hint);
    }
    Check::ok("register", seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::doctor::CheckState;

    #[test]
    fn a_directory_that_is_not_there_is_looked_for_where_it_would_be_made() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(nearest(&directory.path().join("a/b")), directory.path());
        assert_eq!(nearest(Path::new("no-such-directory")), Path::new("."));
        let check = place(&directory.path().join("a"));
        assert!(check.state == CheckState::Ok && check.seen.contains("the first start creates it"), "{check:?}");
        assert!(!directory.path().join("a").exists());
    }

    #[test]
    fn a_register_of_other_shards_is_wrong_before_a_server_says_so() {
        use crate::store::embedded::{EmbeddedOptions, EmbeddedStore};
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.store.directory = directory.path().join("data");
        drop(EmbeddedStore::open(&config.store.directory, 16, EmbeddedOptions::default()).unwrap());
        assert_eq!(register(&config).state, CheckState::Ok, "whoever sets nothing takes it as it is");
        config.store.shards = 4;
        let check = register(&config);
        assert!(
            check.state == CheckState::Wrong && check.seen.contains("16 shards; the configuration says 4"),
            "{check:?}"
        );
        assert!(check.hint.contains("leave `store.shards` out, or set it to 16"), "{check:?}");
        config.store.shards = 16;
        assert_eq!(register(&config).state, CheckState::Ok);
    }

    #[test]
    fn a_register_that_cannot_be_read_now_is_no_reason_to_name_another_directory() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.store.directory = directory.path().to_owned();
        // A directory cannot be opened as a file.
        std::fs::create_dir(directory.path().join("META")).unwrap();
        let check = register(&config);
        assert!(check.state == CheckState::Wrong && !check.hint.contains("--data"), "{check:?}");
        std::fs::remove_dir(directory.path().join("META")).unwrap();
        std::fs::create_dir(directory.path().join("notes")).unwrap();
        assert!(register(&config).hint.contains("--data DIR"));
    }

    #[test]
    fn a_register_whose_first_file_is_no_longer_one_is_no_reason_to_name_another_directory() {
        use crate::store::embedded::{EmbeddedOptions, EmbeddedStore};
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.store.directory = directory.path().join("data");
        drop(EmbeddedStore::open(&config.store.directory, 1, EmbeddedOptions::default()).unwrap());
        let meta = std::fs::OpenOptions::new().write(true).open(config.store.directory.join("META")).unwrap();
        let length = meta.metadata().unwrap().len();
        meta.set_len(0).and_then(|()| meta.set_len(length)).unwrap();
        let check = register(&config);
        assert!(check.state == CheckState::Wrong && check.seen.contains("META"), "{check:?}");
        assert!(!check.hint.contains("--data") && check.hint.contains("every address is free"), "{check:?}");
    }

    #[test]
    fn only_where_a_right_is_missing_another_user_is_named_to_look_at_the_log() {
        let hint = |errno: Errno| {
            let source = std::sync::Arc::new(std::io::Error::from(errno));
            hint_of_log(&StoreError::Io { context: "reading a segment".into(), source }, Path::new("/nowhere"))
        };
        assert!(hint(Errno::ACCESS).contains("runuser"));
        for errno in [Errno::IO, Errno::MFILE] {
            assert!(!hint(errno).contains("runuser") && hint(errno).contains("the kernel's log"), "{errno}");
        }
    }

    #[test]
    fn memory_and_networks_are_no_place_for_a_register() {
        assert_eq!(file_system(0xef53), ("ext4".to_owned(), None));
        assert!(file_system(0x0102_1994).1.is_some() && file_system(0x6969).1.is_some());
    }

    #[test]
    fn where_a_file_that_is_written_again_takes_new_room_a_full_disk_is_warned_of() {
        let seen = |kind, free| room_of(kind, (free, 100 << 30), 0, 10 << 30);
        for kind in [BTRFS, ZFS, BCACHEFS] {
            let check = seen(kind, 90 << 30);
            assert!(check.state == CheckState::Warning && check.hint.contains("ends the server"), "{check:?}");
            // A lack of room is reported first.
            assert!(seen(kind, 5 << 30).hint.starts_with("make room, or"));
            assert_eq!(seen(kind, 1 << 20).state, CheckState::Wrong);
        }
        assert_eq!(seen(0xef53, 90 << 30).state, CheckState::Ok);
    }
}
