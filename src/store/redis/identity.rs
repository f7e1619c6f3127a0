//! A small file that notes which register this server keeps in Redis, so that an emptied Redis is not taken for a new
//! one. It also notes whether Redis went back behind what was acknowledged: the missing changes may be in use, and a
//! supervisor that restarts the server must not cause the same addresses to be granted again. Before the first start with
//! Redis, the notice that a move left beside the files of the register says which register to expect. And after an
//! orderly stop the file notes how far the register was acknowledged: if somebody brings an older copy back before the
//! next start, no running node may notice.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::journal::Point;
use crate::store::embedded::nameplate;
use crate::store::moving::{MOVED_FILE, REDIS_FILE, is_of_node};
use crate::store::{Digest, Epoch, Seq, ShardId, StoreError, Token, whole};

/// First line of a note that ends with a checksum of everything before it. A note damaged in either is not read at all, not
/// even as one of an earlier release that had no checksum.
const TITLE: &str = "allod: the register that this server keeps in Redis, with a checksum";
/// First line of a note from that earlier release. That release recognises lines by their first words, and ignores the checksum.
const TITLE_BEFORE: &str = "allod: the register that this server keeps in Redis";
const CHECKSUM: &str = "checksum ";

/// A shard that stood further back than what was acknowledged last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Behind {
    pub(super) shard: ShardId,
    /// What was acknowledged last. An earlier release noted only its number; then the rest is zero.
    pub(super) told: Point,
    /// The epoch of that. In a note of the earlier release: a node that takes the shard in a later epoch has gone on.
    pub(super) epoch: Epoch,
    /// The token under which the shard stood when nobody owned it: a node that takes it from there has gone on. Token 0:
    /// somebody owned it. None: not noted.
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

/// How far a shard had been acknowledged at an orderly stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stood {
    pub(super) shard: ShardId,
    pub(super) told: Point,
    /// Its epoch.
    pub(super) epoch: Epoch,
    /// The token of `told`, and earlier tokens of the line as far as they are remembered. If the shard stands under one of
    /// them and lacks what was told, it is an older copy.
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

/// The lines of a note, if it is undamaged.
fn lines_of(bytes: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "is no text")?;
    match text.lines().next() {
        Some(TITLE_BEFORE) => Ok(text),
        Some(TITLE) => {
            let last = text.trim_end_matches('\n').rfind('\n').map_or(0, |end| end + 1);
            let (lines, sum) = text.split_at(last);
            let fits = sum == format!("{CHECKSUM}{:08x}\n", crc32fast::hash(lines.as_bytes()));
            if fits { Ok(lines) } else { Err("does not fit its checksum") }
        }
        Some(_) | None => Err("does not begin as one does"),
    }
}

/// A note that cannot be trusted. Nobody else on this machine knows what it should say.
fn unreadable(path: &Path, problem: &str) -> StoreError {
    let text = format!(
        "{} {problem}: it notes which register this server keeps in Redis, and how far that was acknowledged, by which an emptied Redis, \
         or an older copy, is not taken for it. Bring the file back from a backup; or, once you know that Redis has that register \
         and all that was acknowledged of it, move the file away and start again, which writes it anew",
        path.display()
    );
    StoreError::Damaged(text.into())
}

#[derive(Debug)]
pub(super) struct IdentityFile {
    path: PathBuf,
    /// The register that it names.
    pub(super) known: Option<u128>,
    /// If the file does not exist: the register to which the one in the files of this directory was moved, and where it
    /// is. Then no server with this directory has been started with Redis since.
    became: Option<(u128, String)>,
    /// Redis went back, and what was missing has not been seen there since.
    pub(super) behind: Option<Behind>,
    /// How far the register had been acknowledged, if the previous process was stopped in order.
    pub(super) stood: Vec<Stood>,
}

impl IdentityFile {
    /// Reads the file; without one, nothing is known yet.
    pub(super) fn read(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(REDIS_FILE);
        let (mut behind, mut stood) = (None, Vec::new());
        let known = match std::fs::read(&path) {
            Ok(bytes) => {
                let text = lines_of(&bytes).map_err(|problem| unreadable(&path, problem))?;
                behind = text.lines().find_map(|line| Behind::parse(line.strip_prefix("behind ")?));
                stood = text.lines().filter_map(|line| Stood::parse(line.strip_prefix("stood ")?)).collect();
                let register = text.lines().find_map(|line| line.strip_prefix("register "));
                let known = register.and_then(|hex| u128::from_str_radix(hex, 16).ok());
                Some(known.ok_or_else(|| unreadable(&path, "names no register"))?)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(whole::io("reading", &path)(error)),
        };
        let became = if known.is_none() { nameplate::became(directory)? } else { None };
        Ok(Self { path, known, became, behind, stood })
    }

    /// The register that should be in Redis: the one that was kept there before, or the one to which the files of this
    /// directory were moved.
    pub(super) fn expected(&self) -> Option<u128> {
        self.known.or(self.became.as_ref().map(|(register, _)| *register))
    }

    /// Why this one is expected and who says so, as the rest of a sentence about it.
    pub(super) fn reason(&self) -> String {
        match &self.became {
            Some((_, to)) => {
                let notice = self.path.with_file_name(MOVED_FILE);
                format!("the register in the files of this node was moved to {to} ({} says so)", notice.display())
            }
            None => format!("this server kept one there ({} says so)", self.path.display()),
        }
    }

    /// Notes the register, durably. How far it was acknowledged stays in the note until the next orderly stop, unless the
    /// operator has `accepted` that it went back; and except for shards that are `lost`, which was reported.
    pub(super) fn remember(&self, register: u128, accepted: bool, lost: &[ShardId]) -> Result<(), StoreError> {
        let is_known = self.known == Some(register);
        let stays = |stood: &&Stood| is_known && !accepted && !lost.contains(&stood.shard);
        let stood: Vec<Stood> = self.stood.iter().filter(stays).cloned().collect();
        if is_known && self.behind.is_none() && stood.len() == self.stood.len() {
            return Ok(());
        }
        self.stood(register, &stood)
    }

    /// Notes that a shard was acknowledged up to this batch, and stood further back; and how far the others had been
    /// acknowledged, because a copy that has what this one lacks may lack something of them.
    pub(super) fn went_back(&self, register: u128, behind: &Behind, stood: &[Stood]) -> Result<(), StoreError> {
        let others = stood.iter().filter(|stood| stood.shard != behind.shard);
        self.write(register, &format!("behind {}\n{}", behind.text(), others.map(Stood::text).collect::<String>()))
    }

    /// Notes how far the register has been acknowledged, at an orderly stop.
    pub(super) fn stood(&self, register: u128, stood: &[Stood]) -> Result<(), StoreError> {
        self.write(register, &stood.iter().map(Stood::text).collect::<String>())
    }

    fn write(&self, register: u128, lines: &str) -> Result<(), StoreError> {
        let mut text = format!("{TITLE}\nregister {register:032x}\n{lines}");
        let sum = crc32fast::hash(text.as_bytes());
        text += &format!("{CHECKSUM}{sum:08x}\n");
        whole::write(&self.path, text.as_bytes()).map_err(whole::io("writing", &self.path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Has a node noted in this directory which register it keeps in Redis?
pub fn is_noted(directory: &Path) -> bool {
    directory.join(REDIS_FILE).is_file()
}

/// Does a node keep something of its register in this directory, or is this unknown? False only if the disk says so.
pub fn may_know(directory: &Path) -> bool {
    let is_kept = |name: &OsStr| is_of_node(&name.to_string_lossy());
    match std::fs::read_dir(directory) {
        Ok(mut entries) => entries.any(|entry| entry.map_or(true, |entry| is_kept(&entry.file_name()))),
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "files are damaged here")]

    use super::*;

    /// A note with everything that a note can have.
    fn noted(dir: &Path) -> Vec<u8> {
        let identity = IdentityFile::read(dir).unwrap();
        let told = Point { token: Token(5), seq: Seq(17), digest: Digest(5) };
        let stood = Stood { shard: ShardId(3), told, epoch: Epoch(2), tokens: vec![Token(5), Token(3)] };
        let behind = Behind { shard: ShardId(3), told, epoch: Epoch(2), found: Some(Token(9)) };
        identity.write(7, &format!("behind {}\n{}", behind.text(), stood.text())).unwrap();
        std::fs::read(identity.path()).unwrap()
    }

    /// A damaged note could be read as a different one: of another register, or of one that did not go back.
    #[test]
    fn a_note_of_which_any_byte_is_another_one_or_that_is_cut_off_is_damaged_and_no_matter_of_redis() {
        let directory = tempfile::tempdir().unwrap();
        let whole = noted(directory.path());
        let path = directory.path().join(REDIS_FILE);
        let is_refused = |bytes: &[u8], what: &str| {
            std::fs::write(&path, bytes).unwrap();
            match IdentityFile::read(directory.path()) {
                Err(StoreError::Damaged(said)) => {
                    assert!(said.contains("/REDIS ") && said.contains("from a backup"), "{said}");
                }
                read => panic!("{what}: {read:?}"),
            }
        };
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                is_refused(&bytes, &format!("bit {bit} of byte {at}"));
            }
            is_refused(&whole[..at], &format!("{at} bytes"));
        }
        is_refused(&[&whole[..], b"\n"].concat(), "a line more");
    }

    #[test]
    fn a_note_without_a_checksum_is_read_as_the_release_meant_it_that_wrote_it_and_that_one_reads_this_ones() {
        let directory = tempfile::tempdir().unwrap();
        let written = String::from_utf8(noted(directory.path())).unwrap();
        let read = |text: &str| {
            std::fs::write(directory.path().join(REDIS_FILE), text).unwrap();
            let IdentityFile { known, behind, stood, .. } = IdentityFile::read(directory.path()).unwrap();
            (known, behind, stood)
        };
        let before = written.replace(TITLE, TITLE_BEFORE);
        let (lines, _) = before.split_once(CHECKSUM).unwrap();
        assert_eq!(read(lines), read(&written));
        // By the first words of lines: no other line belongs to that release.
        let of_before = |line: &&str| ["register ", "behind ", "stood "].iter().any(|word| line.starts_with(word));
        let (mine, theirs): (Vec<&str>, Vec<&str>) =
            (written.lines().filter(of_before).collect(), lines.lines().filter(of_before).collect());
        assert_eq!((mine.len(), mine), (3, theirs));
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
        identity.went_back(8, &behind, &[]).unwrap();
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
        // As earlier releases wrote it.
        let told = Point { token: Token(0), digest: Digest(0), ..told };
        assert_eq!(Behind::parse("3 17 2"), Some(Behind { told, found: None, ..behind }));
    }
}
