//! Moving a register from one store to another: what a store says of itself meanwhile, and afterwards.
//!
//! ```text
//!  source   serves ─────────────────────────────▶ moved, for ever
//!  target            nothing ▶ unfinished ▶ ……… ▶ unfinished ▶ serves
//! ```
//!
//! The source is marked before the target is finished, so at no instant do both serve; a crash between the two leaves
//! two notices that name each other, by which the move is finished later. What is unfinished is served by nobody, and a
//! move that begins again makes it anew. A copy of files says the same of itself until it is whole.
//!
//! Neighbours: `embedded` keeps the notice in a file, `redis` beside the register's identity and in every head; the copy
//! itself is in `serve::migrate`, over the contract of all stores.

use std::path::PathBuf;

use super::codec::Format;
use super::{Digest, Epoch, Head, Later, Seq, ShardId, Store, StoreError, Token, late};

/// In the directory of a node whose register is in Redis: the file in which it notes which one that is.
pub const REDIS_FILE: &str = "REDIS";
/// In a directory of files: what these say of their move.
pub(super) const MOVED_FILE: &str = "MOVED";
/// And how the file begins in which it keeps what Redis is not known to have.
pub(super) const REDO_PREFIX: &str = "REDO-";
/// How that file begins: see [`redo_keeps`].
pub(super) const REDO_TITLE: &str = "allod: changes that were acknowledged while too few replicas of Redis had them\n";

/// Is something kept in such a file that is so long?
pub(super) fn redo_keeps(length: u64) -> bool {
    length > REDO_TITLE.len() as u64
}

/// Does a node whose register is in Redis keep something of it in a file of this name?
pub(super) fn is_of_node(name: &str) -> bool {
    name == REDIS_FILE || [late::PREFIX, REDO_PREFIX].iter().any(|prefix| name.starts_with(prefix))
}

/// In which epoch the batches of a copy are: whoever fills a new register is the first who takes its shards. What is of a later one
/// was written by who served it.
pub const EPOCH_OF_FILLING: Epoch = Epoch(1);

/// Which register is moved, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Its identity; none where a program wrote it down that did not note that.
    pub register: Option<u128>,
    /// Where it is, for people: one place may be written in several ways, and be another's by now.
    pub place: String,
}

impl Origin {
    /// Of this register.
    pub fn of(register: u128, place: impl Into<String>) -> Self {
        Self { register: Some(register), place: place.into() }
    }

    /// Is it the same register? Where that is not known of both, what is written of the place decides.
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

/// What a register says of its own move. Without one it is a register like any other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveNotice {
    /// It is being filled.
    Unfinished {
        /// Where from.
        from: Origin,
    },
    /// It is being copied, to be another register.
    Copying {
        /// Of what, for people.
        from: String,
    },
    /// It was emptied, and is being written by the node that has it in memory.
    Anew {
        /// Name of that node, for people.
        by: String,
    },
    /// It is somewhere else.
    Moved {
        /// Identity of the register that it became.
        register: u128,
        /// [`fingerprint`] of that register when it was whole.
        fingerprint: u128,
        /// When, milliseconds since 1970.
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
            Self::Copying { from } => format!("copying {from}"),
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
            return Some(Self::Copying { from: from.to_owned() });
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

    /// Why nobody serves it: how a sentence about it goes on.
    pub fn refusal(&self) -> String {
        match self {
            Self::Unfinished { from } => format!(
                "is the unfinished copy of a register that is moved here from {from}; say the move again with `allod migrate`, \
                 which finishes it or begins anew; where that says that the register was moved elsewhere since, remove the copy"
            ),
            Self::Copying { from } => format!(
                "is the unfinished copy of {from}, and nothing is granted from it; say the copy again into the same directory, which \
                 begins anew"
            ),
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
    /// Is it written anew by a node of this name?
    pub(super) fn is_by(&self, node: &str) -> bool {
        matches!(self, Self::Anew { by } if by == node)
    }

    /// The same of one that a process of this node was writing anew, which ended meanwhile: waiting for it would be waiting for itself.
    pub(super) fn refusal_of_own(prefix: &str) -> String {
        format!(
            "was emptied, and a process of this node before this one, which had it in memory, ended while it wrote it anew: what is \
             there is not all of it, and nobody has the rest. {}",
            remove_own(prefix)
        )
    }

    /// What to do about one in Redis, under this prefix: as [`MoveNotice::hint`], and how what is of no use any more is removed.
    pub fn hint_in(&self, prefix: &str) -> String {
        match self {
            // Whoever looks may do so while it is written, from beside it.
            Self::Anew { .. } => format!("{}. If it ended: {}", self.hint(), remove_own(prefix)),
            Self::Unfinished { .. } => format!("{} ({})", self.hint(), removal(prefix)),
            notice => notice.hint(),
        }
    }

    /// What to do about it: a sentence without full stop that names a command.
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
            Self::Copying { from } => {
                let (Whereabouts::Directory(from) | Whereabouts::Redis(from, _)) = Whereabouts::of(from);
                format!(
                    "say the copy again, `allod restore {} --data DIR`, into the same directory: it begins anew",
                    quoted(from)
                )
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

/// How what is left of a register is removed that nobody writes on, and what comes then.
fn remove_own(prefix: &str) -> String {
    format!(
        "Remove that from Redis ({}), then bring a copy of its data back, or begin an empty register with `--accept-new-store`, once \
         (deploy/README.md, under \"Redis was emptied\")",
        removal(prefix)
    )
}

/// By what all keys of a prefix are removed.
pub(super) fn removal(prefix: &str) -> String {
    format!("`redis-cli --scan --pattern '{{{prefix}}}:*' | xargs redis-cli del`, both with its port and database")
}

/// Why nothing is moved from here into a place where a move from elsewhere was broken off: how a sentence about that place goes on.
/// The old place may be closed already, and then the register is nowhere else.
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

/// A place, read out of the words of [`Movable::place`]: without user and password, which it does not have.
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

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@+=,%".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// What a store is opened for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Opening {
    /// To be served. Whatever has a notice is refused.
    #[default]
    Serve,
    /// To be moved away. It must be there, and its number of shards is what it says; one that was moved already is opened
    /// too, and says so.
    Source,
    /// To be filled. It must be empty; what an unfinished move left there is removed first.
    Target {
        /// Where from.
        from: Origin,
    },
    /// To be finished: it must be this register, unfinished or begun anew.
    Unfinished(u128),
}

/// A register that is begun anew, and where its shards stand.
pub struct Begun {
    /// To be written and posted; each shard is owned under the token of its head.
    pub store: Box<dyn Movable>,
    /// The heads, from shard 0.
    pub heads: Vec<Head>,
}

/// A shard's last batch, and the token under which it is owned.
pub type LastOf = (ShardId, Token, Seq, Digest);

/// A store that a register can be moved from and to.
pub trait Movable: Store {
    /// Where it is, for people who look for it.
    fn place(&self) -> String;

    /// What it says of its move.
    fn notice(&self) -> Option<MoveNotice>;

    /// In which format it writes its records, where nobody wrote any yet, else that in which it goes on: what is moved keeps its own. A later
    /// one is raised by whoever runs the register, and by no move.
    fn write_in(&self, format: Format);

    /// Says something else, durably, provided that every shard named is where it is expected and owned under that token.
    /// A register that was moved has no owner any more, and gives its shards to nobody. It may be said again, where it is not known
    /// that it was said durably.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if a shard is not as expected: nothing was changed.
    fn post(&self, notice: Option<MoveNotice>, shards: Vec<LastOf>) -> Later<Result<(), StoreError>>;

    /// Puts aside what nodes left of it on their disks, where it has all of that: nobody is to bring it any more, wherever the register
    /// is. Answers which files that were.
    ///
    /// # Errors
    /// One is in use, or cannot be renamed.
    fn put_left_aside(&self) -> Result<Vec<PathBuf>, StoreError> {
        Ok(Vec::new())
    }
}

/// Tells one state of a register from any other: from the ends of all lines.
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

    #[test]
    fn a_notice_is_read_as_it_was_written() {
        let to = "redis://127.0.0.1:6379/0, keys `allod:…`".to_owned();
        for notice in [
            MoveNotice::Unfinished { from: Origin::of(7, "the directory /a b/c") },
            MoveNotice::Unfinished { from: Origin { register: None, place: "the directory /a b/c".to_owned() } },
            MoveNotice::Copying { from: "the directory /a b/c".to_owned() },
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
