//! The files of late journals, and of what was answered of them, byte by byte.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::super::{Digest, ShardId, codec};
use super::Late;
use super::journal::ClaimName;
use crate::core::types::Generation;

pub(super) const TITLE: &str = "allod: changes that were acknowledged and that the register lacks";
const ANSWERED_TITLE: &str = "allod: what was answered of the changes that the register lacks";

/// Why a file is not read. Each is the end of a sentence about it.
#[derive(Debug)]
pub(super) enum Unread {
    Damaged(String),
    /// It is as it was written, and this version cannot read it.
    Newer(String),
}

impl From<&str> for Unread {
    fn from(what: &str) -> Self {
        Self::Damaged(what.to_owned())
    }
}

/// A line for people, which ends with the number of the journal; register, shard and digest; the number of batches; each
/// batch after its length and checksum.
pub(super) fn encode(number: u64, register: u128, shard: ShardId, digest: Digest, batches: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("{TITLE}, {number}\n").into_bytes();
    bytes.extend(register.to_be_bytes());
    bytes.extend(shard.0.to_be_bytes());
    bytes.extend(digest.0.to_be_bytes());
    bytes.extend((batches.len() as u32).to_be_bytes());
    for batch in batches {
        bytes.extend((batch.len() as u32).to_be_bytes());
        bytes.extend(crc32fast::hash(batch).to_be_bytes());
        bytes.extend(batch);
    }
    bytes
}

/// The number of a journal, its register, and what it says.
pub(super) fn decode(bytes: &[u8]) -> Result<(u64, u128, Late), Unread> {
    fn front<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], Unread> {
        let (front, behind) = rest.split_first_chunk().ok_or("ends early")?;
        *rest = behind;
        Ok(front)
    }
    let rest = bytes.strip_prefix(TITLE.as_bytes()).ok_or("begins with something else")?;
    let (number, rest) = numbered(rest).ok_or("has something else than its number in its first line")?;
    let rest = &mut &*rest;
    let register = u128::from_be_bytes(*front(rest)?);
    let shard = ShardId(u16::from_be_bytes(*front(rest)?));
    let digest = Digest(u128::from_be_bytes(*front(rest)?));
    let count = u32::from_be_bytes(*front(rest)?);
    let mut batches = Vec::new();
    for at in 0..count {
        let length = u32::from_be_bytes(*front(rest)?) as usize;
        let sum = u32::from_be_bytes(*front(rest)?);
        let (batch, behind) = rest.split_at_checked(length).ok_or("ends early")?;
        *rest = behind;
        if crc32fast::hash(batch) != sum {
            return Err(Unread::Damaged(format!("has another checksum at batch {at} than was written")));
        }
        let batch = codec::decode_batch(batch);
        batches.push(batch.map_err(|error| Unread::Newer(format!("has as batch {at} one that {error}")))?);
    }
    if !rest.is_empty() {
        return Err("goes on behind its end".into());
    }
    Ok((number, register, Late::new(shard, digest, batches)))
}

/// Reads the rest of the first line. Without a number, as it was written before there were any, it is 0.
fn numbered(rest: &[u8]) -> Option<(u64, &[u8])> {
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    let number = match std::str::from_utf8(&rest[..end]).ok()? {
        "" => 0,
        text => text.strip_prefix(", ")?.parse().ok()?,
    };
    Some((number, &rest[end + 1..]))
}

fn answered_front(register: u128, late: &Late) -> String {
    format!("{ANSWERED_TITLE}\n{register:032x} {} {:032x}\n", late.shard.0, late.digest.0)
}

/// A line for people; register, shard and digest; a line for each claim: network, address and generation; the checksum of
/// all that.
pub(super) fn answered_text(register: u128, late: &Late, claims: &BTreeSet<ClaimName>) -> String {
    let mut text = answered_front(register, late);
    for (network, address, generation) in claims {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{network} {address} {}", generation.0);
    }
    let sum = crc32fast::hash(text.as_bytes());
    let _ = writeln!(text, "{sum:08x}");
    text
}

pub(super) fn decode_answered(text: &str, register: u128, late: &Late) -> Result<BTreeSet<ClaimName>, &'static str> {
    let (lines, sum) = text.strip_suffix('\n').and_then(|text| text.rsplit_once('\n')).ok_or("ends early")?;
    if format!("{:08x}", crc32fast::hash(&text.as_bytes()[..=lines.len()])) != sum {
        return Err("has another checksum than was written");
    }
    let lines = &text[..=lines.len()];
    let claims = lines.strip_prefix(&answered_front(register, late)).ok_or("is of another journal")?;
    let known = late.claims();
    let claim = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let (network, address) = (words.first()?.parse().ok()?, words.get(1)?.parse().ok()?);
        match words[2..] {
            [generation] => Some(vec![(network, address, Generation(generation.parse().ok()?))]),
            // From an earlier version that noted no generation: every claim at the address.
            [] => {
                let there = known.get(&network).into_iter().flatten().filter(|(at, _)| *at == address);
                Some(there.map(|(at, entry)| (network, *at, entry.generation())).collect())
            }
            _ => None,
        }
    };
    let claims = claims.lines().map(claim).collect::<Option<Vec<Vec<ClaimName>>>>();
    Ok(claims.ok_or("has a line that names no claim")?.into_iter().flatten().collect())
}
