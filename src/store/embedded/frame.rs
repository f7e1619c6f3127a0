//! A frame: what one group commit appends to the log, in whole or not at all.
//!
//! ```text
//! 0   magic (4)       begins with a byte that no UTF-8 text has, so that no text of a user looks like a frame
//! 4   payload bytes (4)
//! 8   crc32 of all but magic and itself (4)
//! 12  group number (8)           dense from 1 over the whole log
//! 20  digest of the frame before (16)
//! 36  groups durable when this one was written (8)
//! 44  payload: entries
//!
//! entry = 4 digest of its shard's line before it (16), batch (sized)  |  2 shard, head after a take-over
//!       | 3: the segment ends here  |  1 batch (sized), as the first versions wrote it
//! ```
//!
//! A frame is written only after the one before it is durable. So a valid frame after an unreadable place proves that the
//! place was durable once: this is damage, never a torn tail.
//!
//! Neighbours: `writer` builds them, `recovery` and `replay` read them.

use xxhash_rust::xxh3::xxh3_128;

use super::meta::{u32_at, u64_at, u128_at};
use crate::store::codec::{self, CodecError, Reader, Write};
use crate::store::{Digest, Head, ShardId};

const MAGIC: [u8; 4] = [0xf5, b'A', b'F', 0xff];
pub(super) const HEADER_BYTES: usize = 44;
/// Bytes of the frame that ends a segment.
pub(super) const SEAL_BYTES: usize = HEADER_BYTES + 1;

const BARE_BATCH: u8 = 1;
const TAKE: u8 = 2;
const SEAL: u8 = 3;
const BATCH: u8 = 4;

/// A frame that was read and whose checksum is right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub group: u64,
    pub parent: u128,
    pub durable: u64,
    pub payload: &'a [u8],
    pub length: usize,
    bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame at the front of `bytes`, if a valid one is there.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.get(..HEADER_BYTES)?;
        if header[..4] != MAGIC {
            return None;
        }
        let length = HEADER_BYTES.checked_add(u32_at(header, 4) as usize)?;
        let bytes = bytes.get(..length)?;
        if checksum(bytes) != u32_at(header, 8) {
            return None;
        }
        Some(Self {
            group: u64_at(header, 12),
            parent: u128_at(header, 20),
            durable: u64_at(header, 36),
            payload: &bytes[HEADER_BYTES..],
            length,
            bytes,
        })
    }

    /// How long the frame at the front of `bytes` claims to be, if it looks like a frame at all.
    pub(super) fn announced(bytes: &[u8]) -> Option<usize> {
        let header = bytes.get(..HEADER_BYTES).filter(|header| header[..4] == MAGIC)?;
        HEADER_BYTES.checked_add(u32_at(header, 4) as usize)
    }

    /// The digest that the next frame names as its parent.
    pub(super) fn digest(&self) -> u128 {
        xxh3_128(self.bytes)
    }
}

fn checksum(frame: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&frame[4..8]);
    crc.update(&frame[12..]);
    crc.finalize()
}

/// Fills in the header of a frame whose payload follows the room for the header. Returns the digest of the frame.
pub(super) fn finish(frame: &mut [u8], group: u64, parent: u128) -> u128 {
    let payload = (frame.len() - HEADER_BYTES) as u32;
    frame[..4].copy_from_slice(&MAGIC);
    frame[4..8].copy_from_slice(&payload.to_be_bytes());
    frame[12..20].copy_from_slice(&group.to_be_bytes());
    frame[20..36].copy_from_slice(&parent.to_be_bytes());
    frame[36..44].copy_from_slice(&(group - 1).to_be_bytes());
    let crc = checksum(frame);
    frame[8..12].copy_from_slice(&crc.to_be_bytes());
    xxh3_128(frame)
}

/// Place of the first valid frame in `bytes`, at any offset.
pub(super) fn find(bytes: &[u8]) -> Option<usize> {
    // Unwritten space is zeros, tens of megabytes of them at each start, so this search must be fast.
    memchr::memchr_iter(MAGIC[0], bytes).find(|&at| Frame::parse(&bytes[at..]).is_some())
}

#[derive(Debug)]
pub(super) enum FrameEntry<'a> {
    /// With the digest of its shard's line before it, unless an early version wrote it.
    Batch(Option<Digest>, &'a [u8]),
    Take(ShardId, Head),
    Seal,
}

pub(super) fn put_take(out: &mut Vec<u8>, shard: ShardId, head: &Head) -> Result<(), CodecError> {
    out.put_u8(TAKE);
    out.put_varint(shard.0.into());
    codec::encode_head(head, out)
}

pub(super) fn put_batch(out: &mut Vec<u8>, parent: Digest, bytes: &[u8]) {
    out.put_u8(BATCH);
    out.put_u128(parent.0);
    out.put_sized(bytes);
}

pub(super) fn put_seal(out: &mut Vec<u8>) {
    out.put_u8(SEAL);
}

/// Passes the entries of a payload to `each`, in order.
pub(super) fn entries<'a, E: From<CodecError>>(
    payload: &'a [u8],
    mut each: impl FnMut(FrameEntry<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let mut reader = Reader::new(payload);
    while !reader.is_empty() {
        let entry = match reader.u8("entry")? {
            BATCH => {
                let parent = Digest(reader.u128("digest")?);
                FrameEntry::Batch(Some(parent), reader.sized("batch")?)
            }
            BARE_BATCH => FrameEntry::Batch(None, reader.sized("batch")?),
            TAKE => {
                let shard = ShardId(reader.varint_to(u16::MAX.into(), "shard")? as u16);
                FrameEntry::Take(shard, codec::head(&mut reader)?)
            }
            SEAL => FrameEntry::Seal,
            tag => return Err(CodecError::Tag { what: "entry", tag }.into()),
        };
        each(entry)?;
    }
    Ok(())
}
