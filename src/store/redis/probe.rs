//! Does once what the scripts do, so that a missing right shows before the first change; and ensures that full hashes of long
//! records are in Redis's compact encoding, without which they take about twice the memory.
//!
//! **Compact hashes.** Two settings of Redis decide when a hash is written, or read from a file: one that was too large once
//! stays as it is. They are not replicated, and what CONFIG SET changes is gone when Redis is started again. So what is raised
//! here helps the server at the other end until then: `watch` raises it again, but hashes that a replica wrote with its own
//! settings, or that Redis read from its file, keep the room that they took. Only the file of each server, replicas too, saves
//! that; the log and `allod doctor` say so.
//!
//! Called by `begin`, `watch`, `farewell` and `examine`.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError, Value};

use super::failed::{Failed, strange};
use super::keys::Keys;
use super::link::Link;
use super::scripts::{LoadedScript, ScriptCall, Shas};
use super::server::{COMPACT_FIELDS, COMPACT_VALUE_BYTES, Finding, LEAST, ServerFacts};
use crate::store::StoreError;

const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Runs the script `probe`, with a key of its own that is removed at the end. Returns whether full hashes of long records are
/// in Redis's compact encoding.
pub(super) async fn probe(link: &mut Link, shas: &Shas, keys: &Keys) -> Result<bool, Failed> {
    let mut probe = ScriptCall::new(shas, LoadedScript::Probe, &[keys.probe()]);
    probe.arg("x".repeat(COMPACT_VALUE_BYTES)).number(COMPACT_FIELDS as u64);
    let encoding = link.call(&probe, ANSWER_WITHIN).await?;
    Ok(matches!(encoding, Value::BulkString(encoding) if encoding == b"listpack" || encoding == b"ziplist"))
}

/// The answer to a command that waits for earlier writes: the probe is written before it, on the same connection.
pub(super) async fn probe_then(
    link: &mut Link,
    shas: &Shas,
    keys: &Keys,
    waits: Cmd,
) -> Result<Result<Value, RedisError>, Failed> {
    let mut probe = ScriptCall::new(shas, LoadedScript::Probe, &[keys.probe()]);
    probe.arg("x").number(1);
    let (_, mut waited) = link.call_then(&probe, &[waits], ANSWER_WITHIN).await?;
    waited.pop().ok_or_else(|| Failed::Unknown(strange(link.name(), "an answer was empty")))
}

/// The same at a start, where a Redis without memory only deserves a warning: then nothing is known of the encoding.
async fn at_a_start(link: &mut Link, shas: &Shas, keys: &Keys) -> Result<Option<bool>, StoreError> {
    match probe(link, shas, keys).await {
        Ok(is_compact) => Ok(Some(is_compact)),
        Err(Failed::NotApplied(StoreError::Full)) => {
            tracing::warn!(redis = %link.name(), "Redis has no memory left (maxmemory): what takes more is refused");
            Ok(None)
        }
        Err(failed) => Err(failed.into_error()),
    }
}

/// Proves that the scripts have their rights, and ensures, as far as that is permitted, that full hashes of long records are
/// in Redis's compact encoding. Returns whether they are, as far as is known.
pub(super) async fn keep_compact(
    link: &mut Link,
    shas: &Shas,
    keys: &Keys,
    server: &ServerFacts,
) -> Result<bool, StoreError> {
    let found = at_a_start(link, shas, keys).await?.or(is_compact(server));
    if found != Some(false) {
        return Ok(true);
    }
    raise(link, server).await?;
    if at_a_start(link, shas, keys).await? != Some(false) {
        return Ok(true);
    }
    let [(value, value_least), (entries, entries_least)] = LEAST;
    tracing::warn!(
        redis = %link.name(),
        "long records take about twice the memory: set `{value} {value_least}` and `{entries} {entries_least}` in the file of each \
         server, replicas too"
    );
    Ok(false)
}

/// Are full hashes of long records compact by these settings? None if they are not known.
pub(super) fn is_compact(server: &ServerFacts) -> Option<bool> {
    let [(value, _), (entries, _)] = LEAST;
    Some(server.number(value)? >= COMPACT_VALUE_BYTES && server.number(entries)? >= COMPACT_FIELDS)
}

/// Raises the settings that are too low. One that is higher is left alone: others may have data in the same Redis. False: that
/// is not permitted, which is only said.
///
/// # Errors
/// There is no answer.
pub(super) async fn raise(link: &mut Link, server: &ServerFacts) -> Result<bool, StoreError> {
    let mut is_permitted = true;
    let place = Arc::clone(link.name());
    for (name, least) in LEAST {
        let Some(found) = server.number(name).filter(|&found| found < least) else { continue };
        let mut command = Cmd::new();
        command.arg("CONFIG").arg("SET").arg(name).arg(least);
        match link.ask_if_permitted(command, ANSWER_WITHIN).await? {
            Some(_) => tracing::info!(
                redis = %place, found, set = least,
                "`{name}` of Redis was raised, so that long records take half the memory. That lasts until Redis is started again, and \
                 is for this server alone: set it in the file of each server, replicas too"
            ),
            None => {
                is_permitted = false;
                tracing::warn!(redis = %place, "CONFIG SET {name} {least} is not permitted");
            }
        }
    }
    Ok(is_permitted)
}

/// What a doctor says where they are not compact.
pub(super) fn is_not_compact() -> Finding {
    let [(value, value_least), (entries, entries_least)] = LEAST;
    let problem = format!(
        "keeps long records in about twice the memory; set `{value} {value_least}` and `{entries} {entries_least}` or more in the file \
         of each server, replicas too: a start of `allod serve` raises both where it may, at the primary alone and until that is \
         started again"
    );
    Finding { refuses: false, problem }
}
