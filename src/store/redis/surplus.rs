//! A log that goes further than its head. The script moves the head last, so an entry after the head is a change that broke
//! off in the middle: no client was told of it, and nothing can be appended after it.
//!
//! If it broke off before it changed anything, it is cut off: its caller was told that it may or may not have been applied.
//! Anything else is refused: half of a change can be neither kept nor taken back from here.
//!
//! Called by `load` for the owner of a shard, whose token is compared when the log is written; `cut.lua` writes.

use std::collections::HashMap;

use redis::{Cmd, Value};

use super::failed::{self, Failed};
use super::history::{LogEntry, entry_of};
use super::link::Link;
use super::load::{PIECE_WITHIN, damaged, list};
use super::scripts::{self, LoadedScript, ScriptCall, Verdict};
use super::shared::RedisShared;
use crate::core::state::Key;
use crate::core::types::NetworkId;
use crate::store::history::RecordedBatch;
use crate::store::{Head, Seq, ShardId, StoreError};

/// What lies after a head: the first batch, and whether there are more.
pub(super) struct Surplus {
    recorded: RecordedBatch,
    is_alone: bool,
}

/// Looks after the head, unless a commit has moved it since.
pub(super) async fn behind(
    shared: &RedisShared,
    link: &mut Link,
    shard: ShardId,
    head: &Head,
) -> Result<Option<Surplus>, StoreError> {
    let mut command = Cmd::new();
    let after = format!("({}-0", head.seq.0);
    command.arg("XRANGE").arg(shared.keys.log(shard)).arg(after).arg("+").arg("COUNT").arg(2);
    let mut entries = list(shared, link.ask(command, PIECE_WITHIN).await?)?.into_iter();
    let Some(first) = entries.next() else { return Ok(None) };
    // A commit moves head and log at one instant: if the head has not moved, there was no commit.
    let mut command = Cmd::new();
    command.arg("HGET").arg(shared.keys.head(shard)).arg("seq");
    if link.ask(command, PIECE_WITHIN).await? != Value::BulkString(head.seq.0.to_string().into()) {
        return Ok(None);
    }
    let not_ours = || damaged(shared, &shared.keys.log(shard), "ends with an entry that is not a batch");
    let LogEntry { seq, digest, bytes, .. } = entry_of(first).ok_or_else(not_ours)?;
    let recorded = RecordedBatch { shard, seq: Seq(seq), digest: Some(digest), bytes: bytes.into() };
    Ok(Some(Surplus { recorded, is_alone: entries.next().is_none() }))
}

/// Cuts the entry off, if it changed nothing: `marks` are those of the present records.
pub(super) async fn cut(
    shared: &RedisShared,
    link: &mut Link,
    head: &Head,
    surplus: &Surplus,
    marks: &HashMap<(NetworkId, Key), u64>,
) -> Result<(), StoreError> {
    let Surplus { recorded, is_alone } = surplus;
    let shard = recorded.shard;
    let refused = |why: &str| {
        let problem = format!(
            "has batch {} behind the head of shard {}, which stands at {}: {why}. Bring the data of Redis back",
            recorded.seq.0, shard.0, head.seq.0
        );
        damaged(shared, &shared.keys.log(shard), problem)
    };
    if !is_alone || recorded.seq.0 != head.seq.0 + 1 || recorded.follows(head.digest) != recorded.digest {
        return Err(refused("they are not a change that broke off, so the head was changed, or the log"));
    }
    let batch = recorded.decode()?;
    let mut expected: HashMap<(NetworkId, Key), Option<u64>> = HashMap::new();
    for act in &batch.acts {
        for step in &act.steps {
            // A later step expects what an earlier step of the same key left.
            expected.entry((act.network, step.key)).or_insert(step.expect);
        }
    }
    if let Some(((network, key), _)) = expected.iter().find(|(key, expect)| marks.get(*key).copied() != **expect) {
        return Err(refused(&format!(
            "a change that broke off in its middle, after it changed {key:?} of network {network}"
        )));
    }
    let keys = [shared.keys.head(shard), shared.keys.log(shard), shared.keys.spare(shard)];
    let mut copied = "-".to_owned();
    let answer = loop {
        let mut call = ScriptCall::new(&shared.shas, LoadedScript::Cut, &keys);
        call.arg(scripts::hex(head.token.0)).number(head.seq.0).arg(scripts::hex(head.digest.0));
        call.arg(scripts::hex(recorded.digest.unwrap_or_default().0)).arg(&copied);
        let answer = link.call(&call, PIECE_WITHIN).await.map_err(Failed::into_error)?;
        match scripts::copied(&answer) {
            Some(end) => copied = end,
            None => break answer,
        }
    };
    match scripts::verdict(answer) {
        Some(Verdict::Done) => {}
        Some(Verdict::Absent(_)) => return Err(shared.absent(shard)),
        Some(Verdict::Fenced(_, current)) => return Err(StoreError::Fenced { shard, current }),
        _ => return Err(failed::strange_script(&shared.place)),
    }
    shared.heals(0);
    tracing::error!(
        redis = %shared.place,
        shard = shard.0,
        batch = recorded.seq.0,
        "a change broke off in Redis after it was noted and before anything was changed; the note is taken out of the log \
         again. Nobody was told that it was made"
    );
    Ok(())
}
