//! The files of late journals, and of what was answered of them, byte by byte.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::super::{Digest, ShardId, codec};
use super::Late;
use super::journal::ClaimName;
use crate::core::types::Generation;

pub(super) const TITLE: &str = "allod: changes that were acknowledged and that the register lacks";
const ANSWERED_TITLE: &str = "allod: what was answered of the changes that the register lacks";

/// A line for people; register, shard and digest; the number of batches; each batch after its length and checksum.
pub(super) fn encode(register: u128, shard: ShardId, digest: Digest, batches: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("{TITLE}\n").into_bytes();
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

pub(super) fn decode(bytes: &[u8]) -> Result<(u128, Late), String> {
    fn front<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], String> {
        let (front, behind) = rest.split_first_chunk().ok_or("ends early")?;
        *rest = behind;
        Ok(front)
    }
    let rest = &mut bytes.strip_prefix(TITLE.as_bytes()).ok_or("begins with something else")?;
    front::<1>(rest)?;
    let register = u128::from_be_bytes(*front(rest)?);
    let shard = ShardId(u16::from_be_bytes(*front(rest)?));
    let digest = Digest(u128::from_be_bytes(*front(rest)?));
    let count = u32::from_be_bytes(*front(rest)?);
    let mut batches = Vec::new();
    for number in 0..count {
        let length = u32::from_be_bytes(*front(rest)?) as usize;
        let sum = u32::from_be_bytes(*front(rest)?);
        let (batch, behind) = rest.split_at_checked(length).ok_or("ends early")?;
        *rest = behind;
        if crc32fast::hash(batch) != sum {
            return Err(format!("has another checksum at batch {number} than was written"));
        }
        batches
            .push(codec::decode_batch(batch).map_err(|error| format!("cannot be read at batch {number}: it {error}"))?);
    }
    if !rest.is_empty() {
        return Err("goes on behind its end".to_owned());
    }
    Ok((register, Late::new(shard, digest, batches)))
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
