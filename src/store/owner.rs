//! Whose a directory is, and which files in it that user cannot write. What root makes there the server, which runs as another
//! user, cannot open to write when it starts next.
//!
//! Neighbours: `serve` refuses a start by it, and names what helps.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::geteuid;

use super::lock::LOCK;

/// Where a machine has its users.
const USERS: &str = "/etc/passwd";

/// A user of this machine. `Display` is his name, or the number of one without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    user: u32,
    group: u32,
    name: Option<String>,
}

impl Owner {
    fn of(facts: &Metadata) -> Self {
        Self::with(facts.uid(), facts.gid())
    }

    fn with(user: u32, group: u32) -> Self {
        let users = std::fs::read_to_string(USERS).unwrap_or_default();
        Self { user, group, name: name_of(user, &users) }
    }

    /// What is put before a command that is to run as this user.
    pub fn runs_by(&self) -> String {
        match &self.name {
            Some(name) => format!("runuser -u {name} --"),
            None => format!("setpriv --reuid {} --regid {} --clear-groups", self.user, self.group),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name),
            None => self.user.fmt(f),
        }
    }
}

fn name_of(user: u32, users: &str) -> Option<String> {
    let line = users.lines().find(|line| line.split(':').nth(2) == Some(&user.to_string()))?;
    line.split(':').next().map(str::to_owned)
}

/// Whom the register of a directory belongs to, where this process is root and he is not. Whoever served it first has the lock:
/// where that was root, as in a container that nobody gave a user, root goes on.
pub fn other_than_root(directory: &Path) -> Option<Owner> {
    if !geteuid().is_root() {
        return None;
    }
    let facts = std::fs::metadata(directory.join(LOCK)).or_else(|_| std::fs::metadata(directory)).ok()?;
    (facts.uid() != 0).then(|| Owner::of(&facts))
}

/// Files that a user cannot write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwritable {
    /// Who: this process, or whom the directory belongs to where this process is root.
    pub owner: Owner,
    /// One of them, from the directory on.
    pub file: PathBuf,
    /// How many there are.
    pub files: u64,
}

/// Files of a directory, and of `log` and `snap` in it, that the server cannot write.
pub fn unwritable(directory: &Path) -> Option<Unwritable> {
    let facts = std::fs::metadata(directory).ok()?;
    let own = geteuid();
    let owner =
        if own.is_root() { Owner::of(&facts) } else { Owner::with(own.as_raw(), rustix::process::getegid().as_raw()) };
    if owner.user == 0 {
        return None;
    }
    let is_refused = |path: &Path| match std::fs::metadata(path) {
        // What was given up nobody writes again, and what is no file is not the register's.
        Ok(facts) if !facts.is_file() || path.extension().is_some_and(|end| end == "given-up") => false,
        Ok(facts) if own.is_root() => facts.uid() != owner.user && !others_may_write(&facts, &owner),
        Ok(_) | Err(_) => access(path, Access::WRITE_OK).is_err(),
    };
    let folders = ["", "log", "snap"].map(|folder| directory.join(folder));
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let mut refused: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| is_refused(path)).collect();
    refused.sort();
    let file = refused.first()?.strip_prefix(directory).ok()?.to_owned();
    Some(Unwritable { owner, file, files: refused.len() as u64 })
}

fn others_may_write(facts: &Metadata, owner: &Owner) -> bool {
    facts.mode() & 0o002 != 0 || (facts.mode() & 0o020 != 0 && facts.gid() == owner.group)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn a_user_without_a_name_is_told_by_his_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nallod:x:997:997::/var/lib/allod:/usr/sbin/nologin\n";
        assert_eq!(name_of(997, users).as_deref(), Some("allod"));
        assert_eq!(name_of(99, users), None);
        let nameless = Owner { user: 12_345, group: 7, name: None };
        assert_eq!(nameless.runs_by(), "setpriv --reuid 12345 --regid 7 --clear-groups");
        assert_eq!(nameless.to_string(), "12345");
    }

    #[test]
    fn files_that_root_left_in_a_directory_of_another_user_are_told() {
        if !geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (dir, lock) = (directory.path(), directory.path().join(LOCK));
        assert_eq!(other_than_root(dir), None);
        std::fs::create_dir(dir.join("log")).unwrap();
        File::create(dir.join("log/00000002.seg")).unwrap();
        File::create(dir.join("log/00000001.seg.given-up")).unwrap();
        assert_eq!(unwritable(dir), None, "it is root's");
        chown(dir, Some(12_345), Some(7)).unwrap();
        assert_eq!(other_than_root(dir).map(|owner| owner.user), Some(12_345));
        let found = unwritable(dir).unwrap();
        assert_eq!((found.owner.user, found.files), (12_345, 1));
        assert_eq!(found.file, Path::new("log/00000002.seg"));
        // Root made the register, and goes on with it.
        File::create(&lock).unwrap();
        assert_eq!(other_than_root(dir), None);
        chown(&lock, Some(12_345), None).unwrap();
        assert!(other_than_root(dir).is_some());
        std::fs::set_permissions(dir.join("log/00000002.seg"), PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(unwritable(dir), None);
    }
}
