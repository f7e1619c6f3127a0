//! Moving a register from one store to another: the notice by which a store says where the move stands.
//!
//! ```text
//!  source   serves ─────────────────────────────▶ moved, for ever
//!  target            nothing ▶ unfinished ▶ ……… ▶ unfinished ▶ serves
//! ```
//!
//! The source is marked before the target is finished, so the two never serve at the same time. A crash between the two
//! steps leaves two notices that name each other, and by them the move can be finished later. Nobody serves an unfinished
//! register, and a move that begins again makes it anew. A copy of files is marked in the same way until it is complete.
//!
//! Neighbours: `embedded` keeps the notice in a file, `redis` beside the register's identity and in every head; the copy
//! itself is in `serve::migrate`, over the contract of all stores.

use std::path::PathBuf;

use super::codec::Format;
use super::{Digest, Epoch, Head, Later, Seq, ShardId, Store, StoreError, Token, late};

/// The file in the directory of a node over Redis that notes which register is there.
pub const REDIS_FILE: &str = "REDIS";
/// The file that has the notice, in a directory of files.
pub(super) const MOVED_FILE: &str = "MOVED";
/// The prefix of the file in which a node keeps changes that Redis is not known to have.
pub(super) const REDO_PREFIX: &str = "REDO-";
/// The first line of that file: see [`redo_keeps`].
pub(super) const REDO_TITLE: &str = "allod: changes that were acknowledged while too few replicas of Redis had them\n";

/// Does such a file of this length hold any changes?
pub(super) fn redo_keeps(length: u64) -> bool {
    length > REDO_TITLE.len() as u64
}

/// Is this the name of a file in which a node over Redis keeps something of its register?
pub(super) fn is_of_node(name: &str) -> bool {
    name == REDIS_FILE || [late::PREFIX, REDO_PREFIX].iter().any(|prefix| name.starts_with(prefix))
}

/// The epoch of the batches in a copy: the process that fills a new register is the first to take its shards. Batches of a
/// later epoch were written by a server.
pub const EPOCH_OF_FILLING: Epoch = Epoch(1);

/// Which register is moved, and where it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Its identity; none if the notice was written by a version that did not note it.
    pub register: Option<u128>,
    /// Its place, for people: one place may be written in several ways, and may hold another register by now.
    pub place: String,
}

impl Origin {
    /// Of this register.
    pub fn of(register: u128, place: impl Into<String>) -> Self {
        Self { register: Some(register), place: place.into() }
    }

    /// Is it the same register? If one of the identities is unknown, the text of the place decides.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self.register, other.register) {
            (Some(one), Some(other)) => one == other,
            (Some(_) | None, _) => self.place == other.place,
        }
    }

    fn text(&self) -> String {
        self.register.map_or_else(String::new, |register| format!("{register:032x} ")) + &self.place
    }

    fn parse(text: &str) -> Self {
        let register = |word: &str| if word.len() == 32 { u128::from_str_radix(word, 16).ok() } else { None };
        match text.split_once(' ').and_then(|(word, place)| Some((register(word)?, place))) {
            Some((register, place)) => Self::of(register, place),
            None => Self { register: None, place: text.to_owned() },
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.place)
    }
}

/// A command that copies a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copier {
    /// `allod backup`.
    Backup,
    /// `allod restore`.
    Restore,
}

/// Precedes the source of a backup. Earlier releases, which make no difference, read it as part of the source.
const BACKUP_OF: &str = "backup of ";

/// The notice by which a register tells of its own move. A register without one is in normal use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveNotice {
    /// The register is being filled.
    Unfinished {
        /// Where from.
        from: Origin,
    },
    /// The register is being copied, and will be another one.
    Copying {
        /// The command that copies it.
        by: Copier,
        /// What it is a copy of, for people.
        from: String,
        /// All of it is there, and only this notice was not removed. That is found from the files, not written in the notice.
        is_whole: bool,
    },
    /// A copy or a move into this place broke off before its notice was written. No notice contains this itself.
    Begun,
    /// The register was emptied, and is being rewritten by the node that has it in memory.
    Anew {
        /// Name of that node, for people.
        by: String,
    },
    /// The register is elsewhere now.
    Moved {
        /// Identity of the register in the new place.
        register: u128,
        /// [`fingerprint`] of that register when it was complete.
        fingerprint: u128,
        /// When, in milliseconds since 1970.
        at_ms: u64,
        /// Where to, for people.
        to: String,
    },
}

impl MoveNotice {
    /// As it is written down: one line.
    pub fn text(&self) -> String {
        match self {
            Self::Unfinished { from } => format!("unfinished {}", from.text()),
            Self::Copying { by: Copier::Backup, from, .. } => format!("copying {BACKUP_OF}{from}"),
            Self::Copying { by: Copier::Restore, from, .. } => format!("copying {from}"),
            Self::Begun => "begun".to_owned(),
            Self::Anew { by } => format!("anew {by}"),
            Self::Moved { register, fingerprint, at_ms, to } => {
                format!("moved {register:032x} {fingerprint:032x} {at_ms} {to}")
            }
        }
    }

    /// Reads what [`MoveNotice::text`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_end_matches('\n');
        if let Some(from) = text.strip_prefix("unfinished ") {
            return Some(Self::Unfinished { from: Origin::parse(from) });
        }
        if let Some(from) = text.strip_prefix("copying ") {
            let (by, from) = match from.strip_prefix(BACKUP_OF) {
                Some(from) => (Copier::Backup, from),
                None => (Copier::Restore, from),
            };
            return Some(Self::Copying { by, from: from.to_owned(), is_whole: false });
        }
        if let Some(by) = text.strip_prefix("anew ") {
            return Some(Self::Anew { by: by.to_owned() });
        }
        let mut words = text.strip_prefix("moved ")?.splitn(4, ' ');
        let mut hex = || u128::from_str_radix(words.next()?, 16).ok();
        let (register, fingerprint) = (hex()?, hex()?);
        let at_ms = words.next()?.parse().ok()?;
        Some(Self::Moved { register, fingerprint, at_ms, to: words.next()?.to_owned() })
    }

    /// Why nobody serves it, as the rest of a sentence about it.
    pub fn refusal(&self) -> String {
        match self {
            Self::Unfinished { from } => format!(
                "is the unfinished copy of a register that is moved here from {from}; say the move again with `allod migrate`, \
                 which finishes it or begins anew; where that says that the register was moved elsewhere since, remove the copy"
            ),
            Self::Copying { by: Copier::Restore, from, is_whole: false } => format!(
                "is the unfinished copy of {from}: the restore broke off, and nothing is granted from a part of a register; restore \
                 again into the same directory, which begins anew"
            ),
            Self::Copying { by: Copier::Backup, from, is_whole: false } => format!(
                "is an unfinished backup of {from}: the backup broke off, and nothing is granted from a part of a register; serve \
                 that directory, and back it up again into this one, which begins anew"
            ),
            Self::Copying { by: Copier::Restore, from, is_whole: true } => format!(
                "was restored from {from}, and the restore broke off when all of it had been written, before its last step, which is \
                 to remove the file `MOVED`: remove that file, or restore again into the same directory, which begins anew"
            ),
            Self::Copying { by: Copier::Backup, from, is_whole: true } => format!(
                "is a backup of {from} that broke off when all of it had been written, before its last step, which is to remove the \
                 file `MOVED`: remove that file and restore from it, or back that directory up again into this one, which begins anew"
            ),
            Self::Begun => "has the beginning of a backup, a restore or a move that broke off in its first moments (the file \
                            `MOVED.tmp`), and nothing of a register; say that command again into the same directory, which begins \
                            anew"
                .to_owned(),
            Self::Anew { by } => format!(
                "was emptied, and node {by}, which has it in memory, writes it anew; it is served when all of it is there. If that \
                 node ended meanwhile it stays unfinished: bring a copy of its data back"
            ),
            Self::Moved { register, at_ms, to, .. } => {
                let second = i64::try_from(at_ms / 1_000).unwrap_or(i64::MAX);
                let at = jiff::Timestamp::from_second(second).unwrap_or_default();
                format!(
                    "held a register that was moved to {to} at {at} (register {register:032x}); start the server on that \
                     one: what is here is old, and would be given twice"
                )
            }
        }
    }
}

impl MoveNotice {
    /// Is it being written anew by the node of this name?
    pub(super) fn is_by(&self, node: &str) -> bool {
        matches!(self, Self::Anew { by } if by == node)
    }

    /// The same for a register that an earlier process of this node was rewriting when it ended. Waiting would be pointless:
    /// the node would wait for itself.
    pub(super) fn refusal_of_own(prefix: &str) -> String {
        format!(
            "was emptied, and a process of this node before this one, which had it in memory, ended while it wrote it anew: what is \
             there is not all of it, and nobody has the rest. {}",
            remove_own(prefix)
        )
    }

    /// What to do about a notice in Redis, under this prefix: [`MoveNotice::hint`], and how to remove a register that is of
    /// no use any more.
    pub fn hint_in(&self, prefix: &str) -> String {
        match self {
            // An operator may see this notice while another node is still writing.
            Self::Anew { .. } => format!("{}. If it ended: {}", self.hint(), remove_own(prefix)),
            Self::Unfinished { .. } => format!("{} ({})", self.hint(), removal(prefix)),
            notice => notice.hint(),
        }
    }

    /// What to do about it: a sentence without its full stop that names a command.
    pub fn hint(&self) -> String {
        match self {
            Self::Unfinished { from } => {
                let (Whereabouts::Directory(from) | Whereabouts::Redis(from, _)) = Whereabouts::of(&from.place);
                format!(
                    "say the move again, `allod migrate {} TO`, which finishes it or begins anew; where that says that the register was \
                     moved elsewhere since, remove the copy",
                    quoted(from)
                )
            }
            Self::Copying { by, from, is_whole } => {
                let (Whereabouts::Directory(from) | Whereabouts::Redis(from, _)) = Whereabouts::of(from);
                let from = quoted(from);
                match (by, is_whole) {
                    (Copier::Restore, false) => {
                        format!("restore again, `allod restore {from} --data DIR`, into the same directory: it begins anew")
                    }
                    (Copier::Restore, true) => format!(
                        "remove the file `MOVED` there, and it is whole; or restore again, `allod restore {from} --data DIR`, into \
                         the same directory"
                    ),
                    (Copier::Backup, false) => format!(
                        "start the server with `--data {from}`; the backup is made anew by `allod backup DIR --data {from}`, into the \
                         same directory"
                    ),
                    (Copier::Backup, true) => format!(
                        "start the server with `--data {from}`; to use the backup, remove the file `MOVED` there, then `allod \
                         restore` it"
                    ),
                }
            }
            Self::Begun => {
                "say that command again: `allod backup`, `allod restore` or `allod migrate`, into the same directory; if none was \
                 meant, remove the file `MOVED.tmp` there, and the directory is empty"
                    .to_owned()
            }
            Self::Anew { by } => {
                format!("see whether node {by} lives, and leave it running: the register is served when it is done")
            }
            Self::Moved { to, .. } => match Whereabouts::of(to) {
                Whereabouts::Directory(path) => {
                    format!("start the server there: `allod serve --data {}`", quoted(path))
                }
                Whereabouts::Redis(url, "allod") => {
                    format!("start the server there: `allod serve --redis {}`", quoted(url))
                }
                Whereabouts::Redis(url, prefix) => {
                    format!(
                        "start the server there: `ALLOD_STORE__PREFIX={prefix} allod serve --redis {}`",
                        quoted(url)
                    )
                }
            },
        }
    }
}

/// How to remove what is left of a register that nobody is writing any more, and what to do then.
fn remove_own(prefix: &str) -> String {
    format!(
        "Remove that from Redis ({}), then bring a copy of its data back, or begin an empty register with `--accept-new-store`, once \
         (deploy/README.md, under \"Redis was emptied\")",
        removal(prefix)
    )
}

/// The command that removes all keys of a prefix.
pub(super) fn removal(prefix: &str) -> String {
    format!("`redis-cli --scan --pattern '{{{prefix}}}:*' | xargs redis-cli del`, both with its port and database")
}

/// Why no move from here can go into a place where a move from elsewhere was broken off, as the rest of a sentence about
/// that place. The other source may be closed already, and then that register is nowhere else.
pub(super) fn other_move(begun: &Origin, from: &Origin) -> String {
    let (Whereabouts::Directory(there) | Whereabouts::Redis(there, _)) = Whereabouts::of(&begun.place);
    let not = if begun.place == from.place {
        "which held another register then".to_owned()
    } else {
        format!("and not from {from}")
    };
    format!(
        "holds the unfinished copy of a register that is moved here from {begun}, {not}: finish that move first \
         (`allod migrate {} TO`), for it may be nowhere else by now; where it was given up, and the register is served there, remove \
         the copy",
        quoted(there)
    )
}

/// A place, parsed from the words of [`Movable::place`]. These have no user and no password.
enum Whereabouts<'a> {
    Directory(&'a str),
    /// The URL, and what the keys begin with.
    Redis(&'a str, &'a str),
}

impl<'a> Whereabouts<'a> {
    fn of(words: &'a str) -> Self {
        match words.split_once(", keys `{") {
            Some((url, keys)) => Self::Redis(url, keys.split_once('}').map_or(keys, |(prefix, _)| prefix)),
            None => Self::Directory(words.strip_prefix("the directory ").unwrap_or(words)),
        }
    }
}

/// Quoted so that a shell takes it for one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@+=,%".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// What a store is opened for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Opening {
    /// It will be served. A register with any notice is refused.
    #[default]
    Serve,
    /// It will be moved away. It must exist, and it determines the number of shards. One that was moved already is opened,
    /// too, and says so in its notice.
    Source,
    /// It will be filled. It must be empty; the remains of an unfinished move are removed first.
    Target {
        /// Where from.
        from: Origin,
    },
    /// Its move will be finished. It must be this register, unfinished or begun anew.
    Unfinished(u128),
}

/// A register that was begun anew, and where its shards stand.
pub struct Begun {
    /// The store to write and post; each shard is owned under the token of its head.
    pub store: Box<dyn Movable>,
    /// The heads, from shard 0.
    pub heads: Vec<Head>,
}

/// A shard's last batch, and the token under which it is owned.
pub type LastOf = (ShardId, Token, Seq, Digest);

/// A store that a register can be moved from and to.
pub trait Movable: Store {
    /// Where it is, in words for people.
    fn place(&self) -> String;

    /// Its notice, if it has one.
    fn notice(&self) -> Option<MoveNotice>;

    /// Sets the format of its records if nobody has written any yet, and otherwise the format in which it goes on: a move
    /// keeps the format of its source. Only an operator raises a register to a later format, never a move.
    fn write_in(&self, format: Format);

    /// Replaces the notice, durably, provided that every named shard is where it is expected and owned under that token.
    /// After a register is marked as moved it has no owner, and gives its shards to nobody. The call may be repeated if it
    /// is not known whether it took effect.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if a shard is not as expected: nothing was changed.
    fn post(&self, notice: Option<MoveNotice>, shards: Vec<LastOf>) -> Later<Result<(), StoreError>>;

    /// Puts aside the files that nodes have left on their disks and whose content is all in the register: nobody needs to
    /// bring it any more, wherever the register goes. Returns the files.
    ///
    /// # Errors
    /// A file is in use, or cannot be renamed.
    fn put_left_aside(&self) -> Result<Vec<PathBuf>, StoreError> {
        Ok(Vec::new())
    }
}

/// Tells one state of a register from any other, by the ends of all its lines.
pub fn fingerprint(shards: &[LastOf]) -> u128 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    for (shard, _, seq, digest) in shards {
        hash.update(&shard.0.to_be_bytes());
        hash.update(&seq.0.to_be_bytes());
        hash.update(&digest.0.to_be_bytes());
    }
    hash.digest128()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copying(by: Copier, from: &str) -> MoveNotice {
        MoveNotice::Copying { by, from: from.to_owned(), is_whole: false }
    }

    #[test]
    fn what_an_unfinished_backup_says_never_tells_anybody_to_restore_into_it() {
        for (by, command) in [
            (Copier::Backup, "`allod backup DIR --data /srv/a`"),
            (Copier::Restore, "`allod restore /srv/a --data DIR`"),
        ] {
            let notice = copying(by, "the directory /srv/a");
            let said = format!("{} {}", notice.refusal(), notice.hint());
            assert!(said.contains(command), "{said}");
            assert!(by == Copier::Restore || !said.contains("restore"), "{said}");
        }
        // The form in which earlier releases wrote both.
        assert_eq!(MoveNotice::parse("copying the directory /a"), Some(copying(Copier::Restore, "the directory /a")));
    }

    #[test]
    fn a_notice_is_read_as_it_was_written() {
        let to = "redis://127.0.0.1:6379/0, keys `allod:…`".to_owned();
        for notice in [
            MoveNotice::Unfinished { from: Origin::of(7, "the directory /a b/c") },
            MoveNotice::Unfinished { from: Origin { register: None, place: "the directory /a b/c".to_owned() } },
            copying(Copier::Backup, "the directory /a b/c"),
            copying(Copier::Restore, "the directory /a b/c"),
            MoveNotice::Anew { by: "node 1".to_owned() },
            MoveNotice::Moved { register: 7, fingerprint: u128::MAX, at_ms: 1_772_356_364_031, to },
        ] {
            assert_eq!(MoveNotice::parse(&format!("{}\n", notice.text())), Some(notice));
        }
        for wrong in ["", "moved", "moved 1 2", "moved x 2 3 there", "elsewhere"] {
            assert_eq!(MoveNotice::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_hint_is_the_command_that_starts_the_server_where_the_register_went() {
        let hint = |to: &str| MoveNotice::Moved { register: 7, fingerprint: 8, at_ms: 0, to: to.to_owned() }.hint();
        for (to, command) in [
            ("redis://127.0.0.1:6379/0, keys `{allod}:…`", "`allod serve --redis redis://127.0.0.1:6379/0`"),
            ("redis://a/1, keys `{other}:…`", "`ALLOD_STORE__PREFIX=other allod serve --redis redis://a/1`"),
            ("the directory /var/lib/allod", "`allod serve --data /var/lib/allod`"),
            ("the directory /a b/c", "`allod serve --data '/a b/c'`"),
        ] {
            assert_eq!(hint(to), format!("start the server there: {command}"));
        }
        let unfinished = MoveNotice::Unfinished { from: Origin::of(7, "the directory /a") };
        assert!(unfinished.hint().contains("`allod migrate /a TO`"), "{}", unfinished.hint());
    }

    #[test]
    fn one_move_is_told_from_another_by_which_register_it_is_and_by_the_place_only_where_that_is_not_known() {
        let (here, there) = ("redis://localhost/0", "redis://127.0.0.1/0");
        let unknown = |place: &str| Origin { register: None, place: place.to_owned() };
        assert!(Origin::of(7, here).is(&Origin::of(7, there)), "it is written in another way");
        assert!(!Origin::of(7, here).is(&Origin::of(8, here)), "another register is there by now");
        assert!(unknown(here).is(&Origin::of(7, here)) && !unknown(here).is(&Origin::of(7, there)));
        let said = other_move(&Origin::of(7, here), &Origin::of(8, here));
        assert!(said.contains("from redis://localhost/0, which held another register then: finish"), "{said}");
    }

    #[test]
    fn the_refusal_says_where_the_register_went_and_when() {
        let moved = MoveNotice::Moved { register: 7, fingerprint: 8, at_ms: 0, to: "redis://a/0".to_owned() };
        assert!(moved.refusal().contains("moved to redis://a/0 at 1970-01-01T00:00:00Z"), "{}", moved.refusal());
    }
}
