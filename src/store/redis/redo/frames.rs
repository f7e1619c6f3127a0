//! The form of the redo journal: a line for people, then frames, each with its offset, its length and its checksum. Each
//! write to the disk is one frame with all its deeds, and is durable before the next begins. So an unreadable frame is the torn
//! end of the last write, of which no client was told, only if no frame follows it.
//!
//! Pure.

use crate::store::redis::journal::{Move, Point};
use crate::store::redis::written::Digests;
use crate::store::{Digest, Epoch, Seq, ShardId, Token};

pub(super) use crate::store::moving::REDO_TITLE as TITLE;
/// The offset of a frame, the length of its content, and the checksum over both and the content.
const FRAME_HEAD_BYTES: usize = 8 + 4 + 4;
/// When a frame is full: a process that ends may leave more than a length can state.
pub(super) const FRAME_BYTES_FULL: usize = 64 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redone {
    /// A call that commits: its batches, and their digests.
    Commit { applied: bool, batches: Vec<(Vec<u8>, Digests)> },
    /// A take-over, and its epoch.
    Take(Move, Epoch),
    /// The changes of a shard that come before this frame were put aside, durably, or no client was told of them. Those
    /// that lead to the point are excepted, if there is one.
    Aside(ShardId, Option<Point>),
}

/// The frame of the first of these deeds, which begins at offset `at`, and how many it has: none is added to one that is
/// `full`, which is this many bytes.
pub(super) fn encode(deeds: &[Redone], at: u64, full: usize) -> (Vec<u8>, usize) {
    let mut frame = vec![0; FRAME_HEAD_BYTES];
    let mut count = 0;
    while let Some(deed) = deeds.get(count).filter(|_| count == 0 || frame.len() < full) {
        put_deed(deed, &mut frame);
        count += 1;
    }
    let (head, content) = frame.split_at_mut(FRAME_HEAD_BYTES);
    let (at, length) = (at.to_be_bytes(), (content.len() as u32).to_be_bytes());
    let sum = checksum(&at, &length, content).to_be_bytes();
    head.copy_from_slice(&[&at[..], &length, &sum].concat());
    (frame, count)
}

fn put_deed(deed: &Redone, content: &mut Vec<u8>) {
    let put_point = |out: &mut Vec<u8>, point: Point| {
        out.extend(point.token.0.to_be_bytes());
        out.extend(point.seq.0.to_be_bytes());
        out.extend(point.digest.0.to_be_bytes());
    };
    match deed {
        Redone::Commit { applied, batches } => {
            content.extend([b'C', u8::from(*applied)]);
            content.extend((batches.len() as u32).to_be_bytes());
            for (bytes, (parent, digest)) in batches {
                content.extend(parent.0.to_be_bytes());
                content.extend(digest.0.to_be_bytes());
                content.extend((bytes.len() as u32).to_be_bytes());
                content.extend(bytes);
            }
        }
        Redone::Take(Move { shard, before, after }, epoch) => {
            content.push(b'T');
            content.extend(shard.0.to_be_bytes());
            put_point(content, *before);
            put_point(content, *after);
            content.extend(epoch.0.to_be_bytes());
        }
        Redone::Aside(shard, stays) => {
            content.push(if stays.is_some() { b'P' } else { b'A' });
            content.extend(shard.0.to_be_bytes());
            stays.iter().for_each(|point| put_point(content, *point));
        }
    }
}

fn checksum(at: &[u8], length: &[u8], content: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    [at, length, content].into_iter().for_each(|part| sum.update(part));
    sum.finalize()
}

/// Why a file is not read. Each is the end of a sentence about it.
#[derive(Debug)]
pub(super) enum Unread {
    Damaged(String),
    /// It is as it was written, and this version cannot read it.
    Newer(String),
}

/// All deeds of a file, and where the last whole frame ends.
pub(super) fn decode(bytes: &[u8]) -> Result<(Vec<Redone>, u64), Unread> {
    if !bytes.starts_with(TITLE.as_bytes()) {
        return Err(Unread::Damaged("begins with something else".to_owned()));
    }
    let (mut deeds, mut at) = (Vec::new(), TITLE.len());
    while at < bytes.len() {
        let Some(content) = frame(bytes, at) else {
            if (at + 1..bytes.len()).any(|later| frame(bytes, later).is_some()) {
                return Err(Unread::Damaged(format!("is damaged at byte {at}")));
            }
            break;
        };
        let mut rest = content;
        while !rest.is_empty() {
            let unknown = || Unread::Newer(format!("has something at byte {at} that this version does not know"));
            deeds.push(deed(&mut rest).ok_or_else(unknown)?);
        }
        at += FRAME_HEAD_BYTES + content.len();
    }
    Ok((deeds, at as u64))
}

/// The content of the frame that begins there, if one does.
fn frame(bytes: &[u8], begin: usize) -> Option<&[u8]> {
    let (at, rest) = bytes.get(begin..)?.split_first_chunk::<8>()?;
    if u64::from_be_bytes(*at) != begin as u64 {
        return None;
    }
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let content = rest.get(..u32::from_be_bytes(*length) as usize)?;
    (checksum(at, length, content) == u32::from_be_bytes(*sum)).then_some(content)
}

fn deed(rest: &mut &[u8]) -> Option<Redone> {
    fn front<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
        let (front, behind) = rest.split_first_chunk()?;
        *rest = behind;
        Some(*front)
    }
    fn point(rest: &mut &[u8]) -> Option<Point> {
        let token = Token(u128::from_be_bytes(front(rest)?));
        let seq = Seq(u64::from_be_bytes(front(rest)?));
        Some(Point { token, seq, digest: Digest(u128::from_be_bytes(front(rest)?)) })
    }
    fn shard(rest: &mut &[u8]) -> Option<ShardId> {
        Some(ShardId(u16::from_be_bytes(front(rest)?)))
    }
    match front::<1>(rest)? {
        [b'C'] => {
            let [applied] = front::<1>(rest)?;
            let mut batches = Vec::new();
            for _ in 0..u32::from_be_bytes(front(rest)?) {
                let digest = |rest: &mut &[u8]| Some(Digest(u128::from_be_bytes(front(rest)?)));
                let digests = (digest(rest)?, digest(rest)?);
                let length = u32::from_be_bytes(front(rest)?) as usize;
                let (bytes, behind) = rest.split_at_checked(length)?;
                *rest = behind;
                batches.push((bytes.to_vec(), digests));
            }
            Some(Redone::Commit { applied: applied == 1, batches })
        }
        [b'T'] => {
            let (shard, before, after) = (shard(rest)?, point(rest)?, point(rest)?);
            Some(Redone::Take(Move { shard, before, after }, Epoch(u64::from_be_bytes(front(rest)?))))
        }
        [b'A'] => Some(Redone::Aside(shard(rest)?, None)),
        [b'P'] => Some(Redone::Aside(shard(rest)?, Some(point(rest)?))),
        _ => None,
    }
}
