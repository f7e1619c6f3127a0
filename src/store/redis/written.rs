//! The call of a commit: how it is made from batches, and how these are read back from it. Of a commit only the batches
//! and their digests need to be kept: the arguments of the call follow from these.
//!
//! Neighbours: `commits` sends it; `late` and `redo` read it; `redo` and `left` make it again.

use super::net::Net;
use super::scripts::{self, LoadedScript, ScriptCall};
use super::shared::RedisShared;
use crate::store::{Batch, Digest, StoreError, codec};

/// Digests of a line before and after a batch.
pub(super) type Digests = (Digest, Digest);

/// Words of a batch before those of its groups, and about how many bytes these take without the batch itself.
const BATCH_WORDS: usize = 11;
const BATCH_TEXT_BYTES: usize = 256;

/// The call that commits these batches. Takes for each its bytes, its net operations, and its digests; these are none for a
/// batch that follows nothing that was sent.
pub(super) fn call(
    shared: &RedisShared,
    script: LoadedScript,
    batches: &[(&Batch, &[u8], Net<'_>, Option<Digests>)],
) -> ScriptCall {
    let of_shards = batches.iter().flat_map(|(batch, ..)| {
        [shared.keys.head(batch.shard), shared.keys.log(batch.shard), shared.keys.networks(batch.shard)]
    });
    let keys: Vec<String> = std::iter::once(shared.keys.guard()).chain(of_shards).collect();
    // Buffers that grow by doubling are copied again and again. A record appears in the batch, and once more as the new
    // state of its key.
    let arguments: usize = batches.iter().map(|(.., net, _)| BATCH_WORDS + net.words()).sum();
    let room: usize = batches.iter().map(|(_, bytes, ..)| BATCH_TEXT_BYTES + 2 * bytes.len()).sum();
    let mut call = ScriptCall::with_room(&shared.shas, script, &keys, 3 + arguments, room);
    let (keep_seconds, keep_bytes) = shared.keeps();
    call.number(batches.len() as u64).number(keep_seconds).number(keep_bytes);
    for (batch, bytes, net, digests) in batches {
        let hex = |digest: Option<Digest>| digest.map_or_else(String::new, |digest| scripts::hex(digest.0));
        call.number(batch.epoch.0).arg(scripts::hex(batch.token.0)).number(batch.seq.0);
        call.arg(hex(digests.map(|(parent, _)| parent))).arg(hex(digests.map(|(_, digest)| digest)));
        call.number(batch.time.0).number(batch.generation.0);
        call.arg(bytes).arg(if net.has_blocks() { "1" } else { "0" });
        net.put(&mut call);
    }
    call
}

/// The call that commits what was written before, made from the bytes of the batches.
///
/// # Errors
/// A batch cannot be read.
pub(super) fn again<B: AsRef<[u8]>>(
    shared: &RedisShared,
    script: LoadedScript,
    written: &[(B, Digests)],
) -> Result<ScriptCall, StoreError> {
    let decoded = written.iter().map(|(bytes, _)| codec::decode_batch(bytes.as_ref()));
    let decoded = decoded.collect::<Result<Vec<Batch>, _>>().map_err(|error| unreadable(format_args!("it {error}")))?;
    let mut parts = Vec::with_capacity(decoded.len());
    for (batch, (bytes, digests)) in decoded.iter().zip(written) {
        let net = Net::of(batch.shard, batch.seq, bytes.as_ref()).map_err(unreadable)?;
        parts.push((batch, bytes.as_ref(), net, Some(*digests)));
    }
    Ok(call(shared, script, &parts))
}

/// The error for bytes that were valid when they were written.
pub(super) fn unreadable(problem: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged(format!("a batch that was written cannot be read: {problem}").into())
}

/// The batches of a call, each with its digests; none if it is not the call of a commit.
pub(super) fn read(call: &ScriptCall) -> Option<Vec<(&[u8], Option<Digests>)>> {
    let words: Vec<&[u8]> = call.texts().collect();
    let text = |at: usize| std::str::from_utf8(words.get(at)?).ok();
    let number = |at: usize| text(at)?.parse::<usize>().ok();
    // EVALSHA, the hash, the number of keys, and the keys; the number of batches, and two bounds of the log.
    let first = 3 + number(2)?;
    let (count, mut at) = (number(first)?, first + 3);
    let mut written = Vec::with_capacity(count);
    for _ in 0..count {
        // In the order of `commit.lua`: seven words, the batch, whether there are blocks, and how many words of groups follow.
        let digest = |at: usize| u128::from_str_radix(text(at)?, 16).ok().map(Digest);
        written.push((*words.get(at + 7)?, digest(at + 3).zip(digest(at + 4))));
        at += BATCH_WORDS + number(at + 9)?;
    }
    Some(written)
}
