//! What a data directory says about itself. This can be read without opening it, even while another process has it open.

use std::io::ErrorKind;
use std::path::Path;

use super::directory::{self, initialised};
use super::meta::{FORMAT, MARK, META, Mark, Meta};
use super::moving;
use super::segment::LOG;
use super::snapshot::SNAP;
use super::source::SourceDisk;
use crate::store::moving::{MoveNotice, Opening, is_of_node as is_node_file};
use crate::store::{StoreError, chapters, lock};

/// The version of files that this program writes and reads.
pub const KNOWN_FORMAT: u32 = FORMAT;

/// Whose data a directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nameplate {
    /// Identity of the register.
    pub register: u128,
    /// Its shards.
    pub shards: u16,
    /// It was restored from a copy, and the copy has not been accepted yet.
    pub restored: bool,
    /// Why no server opens it: the register was moved, or is being filled.
    pub moved: Option<MoveNotice>,
}

/// Reads the nameplate; none if there is no register yet.
///
/// # Errors
/// [`StoreError`] says why no server opens the directory.
pub fn read(dir: &Path) -> Result<Option<Nameplate>, StoreError> {
    if !dir.exists() || !initialised(&SourceDisk, dir)? {
        return Ok(None);
    }
    let meta = Meta::read(&SourceDisk, dir)?;
    let moved = moving::read(&SourceDisk, dir)?;
    Ok(Some(Nameplate { register: meta.register, shards: meta.shards, restored: meta.restored_from != 0, moved }))
}

/// Is there a register or part of one, or is this unknown? False only if the disk says that nothing is there.
pub fn may_be_there(dir: &Path) -> bool {
    [META, MARK, LOG, SNAP, chapters::FILE].into_iter().any(|name| match dir.join(name).try_exists() {
        Ok(there) => there,
        Err(error) => error.kind() != ErrorKind::NotADirectory,
    })
}

/// The register that the one in these files became, and where it is, for people; none if it was not moved away.
///
/// # Errors
/// [`StoreError`]: the notice of the directory cannot be read.
pub fn became(dir: &Path) -> Result<Option<(u128, String)>, StoreError> {
    let notice = if dir.exists() { moving::read(&SourceDisk, dir)? } else { None };
    Ok(match notice {
        Some(MoveNotice::Moved { register, to, .. }) => Some((register, to)),
        Some(
            MoveNotice::Unfinished { .. } | MoveNotice::Copying { .. } | MoveNotice::Anew { .. } | MoveNotice::Begun,
        )
        | None => None,
    })
}

/// The notice of a move, if there is one and it can be read, even if the move broke off in its first moments.
pub fn notice(dir: &Path) -> Option<MoveNotice> {
    moving::read_or_begun(&SourceDisk, dir).ok().flatten()
}

/// Is there a register here that a server whose register is in Redis, and which uses this directory, has left behind? This
/// does not say what it holds: [`left_behind`](super::left_behind) does. It answers even for a damaged register, and reads
/// little.
pub fn stands_beside(dir: &Path) -> bool {
    let is_there = |name: &str| dir.join(name).exists();
    // A package made it before anybody had said where the register should be, and it was never changed.
    let is_unused = || Mark::open(&SourceDisk, dir).is_ok_and(|(_, marked)| marked.last.0 == 0);
    is_there(META) && !is_there(moving::MOVED) && !is_unused()
}

/// Is this the directory of a node whose register is in Redis, by the files that the node keeps there?
pub fn is_of_node(dir: &Path) -> bool {
    !files_of_node(dir).is_empty()
}

/// The names of the files in which such a node keeps something, sorted.
pub fn files_of_node(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| is_node_file(name)).collect();
    names.sort();
    names
}

/// Checks that there is a register in files, and that nothing beside it says that the register is in Redis.
///
/// # Errors
/// [`StoreError`]: why no server opens it.
pub fn check_alone(dir: &Path) -> Result<(), StoreError> {
    moving::check_beside_redis(&SourceDisk, dir, &Opening::Serve)
}

/// Who has the directory open, as `process 7`.
pub fn in_use_by(dir: &Path) -> Option<String> {
    lock::holder_of(dir)
}

/// The refusal if another process has the directory open, in the words of an attempt to open it.
pub fn held(dir: &Path) -> Option<StoreError> {
    directory::held(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::embedded::{EmbeddedOptions, EmbeddedStore, left_behind};
    use crate::store::moving::REDIS_FILE;

    #[test]
    fn a_directory_tells_whose_it_is_and_who_has_it_open() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path().join("data");
        assert_eq!((read(&dir).unwrap(), in_use_by(&dir)), (None, None));
        assert!(!dir.exists(), "a look makes nothing");
        let store = EmbeddedStore::open(&dir, 3, EmbeddedOptions::default()).unwrap();
        let plate = read(&dir).unwrap().unwrap();
        assert_eq!((plate.shards, plate.restored, plate.moved), (3, false, None));
        assert_eq!(in_use_by(&dir), Some(format!("process {}", std::process::id())));
        drop(store);
        assert_eq!(in_use_by(&dir), None);
        EmbeddedStore::open(&dir, 3, EmbeddedOptions::default()).unwrap();
    }

    /// Proves nothing for a user who may write everywhere.
    #[test]
    fn a_register_that_may_only_be_read_is_told_all_the_same() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        drop(EmbeddedStore::open(dir, 3, EmbeddedOptions::default()).unwrap());
        for name in [META, MARK] {
            std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(0o444)).unwrap();
        }
        assert_eq!(read(dir).unwrap().map(|plate| plate.shards), Some(3));
        assert_eq!(left_behind(dir).unwrap(), None);
    }

    #[test]
    fn the_directory_of_a_node_whose_register_is_in_redis_is_never_said_to_be_in_want_of_an_empty_one() {
        let directory = tempfile::tempdir().unwrap();
        for name in [REDIS_FILE, "LATE-3-0f", "REDO-0f"] {
            let dir = directory.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            std::fs::File::create(dir.join(name)).unwrap();
            let refused = EmbeddedStore::open(&dir, 3, EmbeddedOptions::default()).unwrap_err();
            let said = refused.to_string();
            assert!(matches!(refused, StoreError::Foreign(_)) && said.contains("`--redis URL`"), "{said}");
            assert!(!said.contains("give an empty directory"), "{said}");
        }
        // A package had created an empty register there earlier: every address would be free in it.
        let dir = directory.path().join("packaged");
        drop(EmbeddedStore::open(&dir, 3, EmbeddedOptions::default()).unwrap());
        std::fs::File::create(dir.join(REDIS_FILE)).unwrap();
        let refused = EmbeddedStore::open(&dir, 3, EmbeddedOptions::default()).unwrap_err();
        assert!(matches!(&refused, StoreError::Foreign(said) if said.contains("`--redis URL`")), "{refused}");
        assert_eq!(
            (left_behind(&dir).unwrap(), stands_beside(&dir)),
            (None, false),
            "nobody ever changed anything in it"
        );
    }
}
