//! Which register this server kept in Redis before: a small file, so that an emptied Redis is not taken for a new one.
//! And whether Redis went back behind what was acknowledged of it: what is missing may be in use, and a supervisor that
//! starts the server again must not have it granted once more. Before the first start over Redis the notice says which it is to be
//! that a move left beside the files that it took the register from. And how far it had been acknowledged when this server was stopped
//! in order: nobody who lives may notice when an older copy of it is brought back before the next start.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::journal::Point;
use crate::store::embedded::nameplate;
use crate::store::moving::{MOVED_FILE, REDIS_FILE, is_of_node};
use crate::store::{Digest, Epoch, Seq, ShardId, StoreError, Token, whole};

const TITLE: &str = "allod: the register that this server keeps in Redis";

/// A shard that stood further back than what was acknowledged last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Behind {
    pub(super) shard: ShardId,
    /// That. Of a release that noted its number alone the rest is nothing.
    pub(super) told: Point,
    /// Its epoch. Of that release: whoever takes the shard in a later one has gone on.
    pub(super) epoch: Epoch,
    /// Under which token it stood, as nobody's: whoever takes it from there has gone on. Token 0: somebody had. None: not noted.
    pub(super) found: Option<Token>,
}

impl Behind {
    /// `SHARD SEQ EPOCH TOKEN DIGEST FOUND`, the last three in hex.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (shard, seq, epoch) = place(&mut words)?;
        let mut hex = || words.next().and_then(|word| u128::from_str_radix(word, 16).ok());
        let (token, digest, found) = (hex(), hex(), hex());
        let told = Point { token: Token(token.unwrap_or(0)), seq, digest: Digest(digest.unwrap_or(0)) };
        Some(Self { shard, told, epoch, found: found.map(Token) })
    }

    fn text(&self) -> String {
        let Self { shard, told: Point { token, seq, digest }, epoch, found } = self;
        let line =
            found.map_or_else(String::new, |found| format!(" {:032x} {:032x} {:032x}", token.0, digest.0, found.0));
        format!("{} {} {}{line}", shard.0, seq.0, epoch.0)
    }
}

/// `SHARD SEQ EPOCH`, with which each line begins.
fn place<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<(ShardId, Seq, Epoch)> {
    let mut number = || words.next()?.parse::<u64>().ok();
    Some((ShardId(number()?.try_into().ok()?), Seq(number()?), Epoch(number()?)))
}

/// How far a shard had been acknowledged at a stop in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stood {
    pub(super) shard: ShardId,
    pub(super) told: Point,
    /// Its epoch.
    pub(super) epoch: Epoch,
    /// That of `told`, and those that the line had before, as far as they are remembered: where it stands under one of them and
    /// without what was told, it is an older copy.
    pub(super) tokens: Vec<Token>,
}

impl Stood {
    /// `SHARD SEQ EPOCH DIGEST TOKEN…`, from the digest on in hex.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (shard, seq, epoch) = place(&mut words)?;
        let hex: Option<Vec<u128>> = words.map(|word| u128::from_str_radix(word, 16).ok()).collect();
        let (digest, tokens) = hex?.split_first().map(|(digest, tokens)| (Digest(*digest), tokens.to_vec()))?;
        let tokens: Vec<Token> = tokens.into_iter().map(Token).collect();
        Some(Self { shard, told: Point { token: *tokens.first()?, seq, digest }, epoch, tokens })
    }

    fn text(&self) -> String {
        let Self { shard, told, epoch, tokens } = self;
        let tokens: String = tokens.iter().map(|token| format!(" {:032x}", token.0)).collect();
        format!("stood {} {} {} {:032x}{tokens}\n", shard.0, told.seq.0, epoch.0, told.digest.0)
    }
}

/// The file in a directory of this machine.
#[derive(Debug)]
pub(super) struct IdentityFile {
    path: PathBuf,
    /// What it says.
    pub(super) known: Option<u128>,
    /// The register that the one in the files of this directory became, and where that is, as long as it says nothing: nobody has
    /// started over Redis from here since.
    became: Option<(u128, String)>,
    /// Redis went back, and what was missing was not seen there again.
    pub(super) behind: Option<Behind>,
    /// How far it had been acknowledged, if the process before this one was stopped in order.
    pub(super) stood: Vec<Stood>,
}

impl IdentityFile {
    /// Reads it; none where there is none yet.
    pub(super) fn read(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(REDIS_FILE);
        let (mut behind, mut stood) = (None, Vec::new());
        let known = match std::fs::read(&path) {
            Ok(bytes) => {
                let unreadable = || StoreError::Damaged(format!("{} names no register", path.display()).into());
                let text = String::from_utf8(bytes).map_err(|_| unreadable())?;
                behind = text.lines().find_map(|line| Behind::parse(line.strip_prefix("behind ")?));
                stood = text.lines().filter_map(|line| Stood::parse(line.strip_prefix("stood ")?)).collect();
                let register = text.lines().find_map(|line| line.strip_prefix("register "));
                let known = register.and_then(|hex| u128::from_str_radix(hex, 16).ok());
                Some(known.ok_or_else(unreadable)?)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(whole::io("reading", &path)(error)),
        };
        let became = if known.is_none() { nameplate::became(directory)? } else { None };
        Ok(Self { path, known, became, behind, stood })
    }

    /// Which register is to be in Redis: the one that was kept there before, or the one that the files of this directory became.
    pub(super) fn expected(&self) -> Option<u128> {
        self.known.or(self.became.as_ref().map(|(register, _)| *register))
    }

    /// Why that one, as a sentence about it goes on; and who says so.
    pub(super) fn reason(&self) -> String {
        match &self.became {
            Some((_, to)) => {
                let notice = self.path.with_file_name(MOVED_FILE);
                format!("the register in the files of this node was moved to {to} ({} says so)", notice.display())
            }
            None => format!("this server kept one there ({} says so)", self.path.display()),
        }
    }

    /// Writes down which register it is, durably. How far that had been acknowledged is known until the next stop in order, unless
    /// it is `accepted` that it went back; but not of what is `lost`, which was told.
    pub(super) fn remember(&self, register: u128, accepted: bool, lost: &[ShardId]) -> Result<(), StoreError> {
        let is_known = self.known == Some(register);
        let stays = |stood: &&Stood| is_known && !accepted && !lost.contains(&stood.shard);
        let stood: Vec<Stood> = self.stood.iter().filter(stays).cloned().collect();
        if is_known && self.behind.is_none() && stood.len() == self.stood.len() {
            return Ok(());
        }
        self.stood(register, &stood)
    }

    /// Writes down that a shard was acknowledged up to this batch, and stood further back.
    pub(super) fn went_back(&self, register: u128, behind: &Behind) -> Result<(), StoreError> {
        self.write(register, &format!("behind {}\n", behind.text()))
    }

    /// Writes down how far it has been acknowledged, at a stop in order.
    pub(super) fn stood(&self, register: u128, stood: &[Stood]) -> Result<(), StoreError> {
        self.write(register, &stood.iter().map(Stood::text).collect::<String>())
    }

    fn write(&self, register: u128, lines: &str) -> Result<(), StoreError> {
        let text = format!("{TITLE}\nregister {register:032x}\n{lines}");
        whole::write(&self.path, text.as_bytes()).map_err(whole::io("writing", &self.path))
    }

    /// Where it is, for people.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Has a node noted here which register it keeps in Redis?
pub fn is_noted(directory: &Path) -> bool {
    directory.join(REDIS_FILE).is_file()
}

/// Does a node keep something of its register in this directory, or is nothing known of that? It does not where a disk says so.
pub fn may_know(directory: &Path) -> bool {
    let is_kept = |name: &OsStr| is_of_node(&name.to_string_lossy());
    match std::fs::read_dir(directory) {
        Ok(mut entries) => entries.any(|entry| entry.map_or(true, |entry| is_kept(&entry.file_name()))),
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_as_text_is_damaged_and_no_matter_of_redis() {
        let directory = tempfile::tempdir().unwrap();
        IdentityFile::read(directory.path()).unwrap().remember(7, false, &[]).unwrap();
        let path = directory.path().join(REDIS_FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() |= 0x80;
        whole::write(&path, &bytes).unwrap();
        let read = IdentityFile::read(directory.path());
        assert!(matches!(&read, Err(StoreError::Damaged(text)) if text.contains("names no register")), "{read:?}");
    }

    #[test]
    fn what_is_remembered_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("new");
        let identity = IdentityFile::read(&inside).unwrap();
        assert_eq!(identity.known, None);
        identity.remember(7, false, &[]).unwrap();
        assert_eq!(IdentityFile::read(&inside).unwrap().known, Some(7));
        IdentityFile::read(&inside).unwrap().remember(8, false, &[]).unwrap();
        assert_eq!(IdentityFile::read(&inside).unwrap().known, Some(8));
        let told = Point { token: Token(u128::MAX), seq: Seq(17), digest: Digest(5) };
        let behind = Behind { shard: ShardId(3), told, epoch: Epoch(2), found: Some(Token(9)) };
        identity.went_back(8, &behind).unwrap();
        let read = IdentityFile::read(&inside).unwrap();
        assert_eq!((read.known, &read.behind), (Some(8), &Some(behind.clone())));
        read.remember(8, false, &[]).unwrap();
        assert_eq!(IdentityFile::read(&inside).unwrap().behind, None);
        let tokens = vec![Token(u128::MAX), Token(3)];
        let stood = [3, 4].map(|shard| Stood { shard: ShardId(shard), told, epoch: Epoch(2), tokens: tokens.clone() });
        identity.stood(8, &stood).unwrap();
        let read = IdentityFile::read(&inside).unwrap();
        assert_eq!((read.known, &read.behind, &read.stood[..]), (Some(8), &None, &stood[..]));
        let lost = &[ShardId(4)][..];
        for (register, accepted, lost, left) in
            [(8, false, &[][..], 2), (8, false, lost, 1), (8, true, &[], 0), (9, false, &[], 0)]
        {
            identity.stood(8, &stood).unwrap();
            IdentityFile::read(&inside).unwrap().remember(register, accepted, lost).unwrap();
            let read = IdentityFile::read(&inside).unwrap();
            assert_eq!((read.known, read.stood.len()), (Some(register), left));
        }
        // As releases before wrote it.
        let told = Point { token: Token(0), digest: Digest(0), ..told };
        assert_eq!(Behind::parse("3 17 2"), Some(Behind { told, found: None, ..behind }));
    }
}
