//! Who owns a directory, and which files in it that user cannot write. A file that root creates there cannot be opened for
//! writing by the server, which runs as another user, at its next start.
//!
//! Neighbours: `serve` refuses a start because of this, and names the remedy.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::geteuid;

use super::lock::LOCK;

/// Where a machine lists its users.
const USERS: &str = "/etc/passwd";

/// A user of this machine. `Display` is the user's name, or the number if there is no name.
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

    /// The prefix that makes a command run as this user.
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

/// The owner of the register in a directory, if this process is root and the owner is not. The lock file belongs to the
/// first user that served the register: if that was root, as in a container without a configured user, root may go on.
pub fn other_than_root(directory: &Path) -> Option<Owner> {
    if !geteuid().is_root() {
        return None;
    }
    let facts = std::fs::metadata(directory.join(LOCK)).or_else(|_| std::fs::metadata(directory)).ok()?;
    (facts.uid() != 0).then(|| Owner::of(&facts))
}

/// Files, and the folders that hold them, that a user cannot write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwritable {
    /// The user: that of this process, or the owner of the directory if this process is root.
    pub owner: Owner,
    /// One of them, relative to the directory.
    pub file: PathBuf,
    /// How many there are.
    pub files: u64,
    /// The user owns that file; its mode is what stands in the way.
    pub is_own: bool,
}

/// What the server cannot write in a directory: the folders `log` and `snap`, and files in these and in the directory
/// itself. None if this process cannot write in the directory: then it does not run as the server's user.
pub fn unwritable(directory: &Path) -> Option<Unwritable> {
    let facts = std::fs::metadata(directory).ok()?;
    let own = geteuid();
    let owner =
        if own.is_root() { Owner::of(&facts) } else { Owner::with(own.as_raw(), rustix::process::getegid().as_raw()) };
    let is_barred = |path: &Path, rights: Access| access(path, rights).is_err();
    if owner.user == 0 || is_barred(directory, Access::WRITE_OK | Access::EXEC_OK) {
        return None;
    }
    let is_refused = |path: &Path| match std::fs::metadata(path) {
        // Nobody writes a given-up file again, and anything that is not a plain file is not part of the register.
        Ok(facts) if !facts.is_file() || path.extension().is_some_and(|end| end == "given-up") => false,
        Ok(facts) if own.is_root() => !may(&owner, &facts, 0o6),
        Ok(_) | Err(_) => is_barred(path, Access::READ_OK | Access::WRITE_OK),
    };
    let is_closed = |path: &Path| match std::fs::metadata(path) {
        Ok(facts) if own.is_root() => !may(&owner, &facts, 0o7),
        Ok(_) => is_barred(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK),
        // The folder does not exist yet, or the code that looks for it will report the error.
        Err(_) => false,
    };
    let folders = ["", "log", "snap"].map(|folder| directory.join(folder));
    let closed = folders.iter().skip(1).filter(|folder| is_closed(folder)).cloned();
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let entries = entries.map(|entry| entry.path());
    let mut refused: Vec<PathBuf> = closed.chain(entries.filter(|path| is_refused(path))).collect();
    refused.sort();
    let first = refused.first()?;
    let is_own = std::fs::metadata(first).is_ok_and(|facts| facts.uid() == owner.user);
    let file = first.strip_prefix(directory).ok()?.to_owned();
    Some(Unwritable { owner, file, files: refused.len() as u64, is_own })
}

/// Does the mode grant these rights (as the bits of one of its three classes) to the user?
fn may(user: &Owner, facts: &Metadata, rights: u32) -> bool {
    let of_him = match facts.mode() {
        mode if facts.uid() == user.user => mode >> 6,
        mode if facts.gid() == user.group => mode >> 3,
        mode => mode,
    };
    of_him & rights == rights
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
        // The folder, in which that user could create no file, and the file in it.
        assert_eq!((found.owner.user, found.files, found.is_own), (12_345, 2, false));
        assert_eq!(found.file, Path::new("log"));
        // Root made the register, and may go on with it.
        File::create(&lock).unwrap();
        assert_eq!(other_than_root(dir), None);
        chown(&lock, Some(12_345), None).unwrap();
        assert!(other_than_root(dir).is_some());
        std::fs::set_permissions(dir.join("log/00000002.seg"), PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(unwritable(dir).map(|found| (found.file, found.is_own)), Some(("log".into(), false)));
        // With this mode nobody may use it, not even its owner.
        chown(dir.join("log"), Some(12_345), None).unwrap();
        assert_eq!(unwritable(dir), None);
        std::fs::set_permissions(dir.join("log"), PermissionsExt::from_mode(0o000)).unwrap();
        assert_eq!(unwritable(dir).map(|found| (found.file, found.is_own)), Some(("log".into(), true)));
    }
}
