//! How far Redis reaches at a start, where a process before this one noted that it had gone back behind what was acknowledged.
//!
//! By the line, not by numbers: another owner may have gone on to the same number, in an epoch of the same number.
//!
//! Called by `begin`; `examine` shows it.

use redis::{Pipeline, Value};

use super::failed::strange;
use super::history::entry_of;
use super::identity::{Behind, IdentityFile};
use super::journal::Point;
use super::keys::Keys;
use super::link::Link;
use super::scripts::{self, HEAD_FIELDS};
use super::takes::Takes;
use crate::store::{Epoch, Head, StoreError};

const ANSWER_WITHIN: std::time::Duration = std::time::Duration::from_secs(5);

/// How far Redis reaches now that it had gone back behind what was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RedisReach {
    /// What was missing is there again.
    There,
    /// Another node went on from where it stood: what is granted is no more this server's to decide.
    WentOn,
    /// It stands at this batch still.
    Behind(u64),
}

/// How far it reaches by the head of the shard that was noted.
pub(super) async fn reach(link: &mut Link, keys: &Keys, noted: &Behind) -> Result<RedisReach, StoreError> {
    let Behind { shard, told, epoch, found } = *noted;
    let (head, log) = (keys.head(shard), keys.log(shard));
    let mut pipeline = Pipeline::with_capacity(3);
    pipeline.cmd("HMGET").arg(&head).arg(&HEAD_FIELDS[..]);
    pipeline.cmd("HGET").arg(&head).arg("takes");
    let id = format!("{}-0", told.seq.0);
    pipeline.cmd("XRANGE").arg(&log).arg(&id).arg(&id);
    let answers = <[Value; 3]>::try_from(link.read(&pipeline, ANSWER_WITHIN).await?);
    let read = answers.ok().and_then(|[head, takes, entries]| {
        let takes = match takes {
            Value::BulkString(text) => Takes::parse(std::str::from_utf8(&text).ok()?)?,
            _ => Takes::default(),
        };
        let Value::Array(entries) = entries else { return None };
        Some((scripts::head(head)??, takes, entries.into_iter().next().and_then(entry_of)))
    });
    let (head, takes, entry) = read.ok_or_else(|| strange(link.name(), "a head is none"))?;
    Ok(match found {
        // Written by a release that noted numbers alone.
        None if head.epoch > epoch => RedisReach::WentOn,
        None if head.seq >= told.seq => RedisReach::There,
        None => RedisReach::Behind(head.seq.0),
        Some(_) if has(&head, &takes, entry.map(|entry| entry.digest.0), (told, epoch)) => RedisReach::There,
        Some(found) if found == head.token => RedisReach::Behind(head.seq.0),
        Some(_) => RedisReach::WentOn,
    })
}

/// Does the line of this head go through what was told, of which its log has this digest at that number?
fn has(head: &Head, takes: &Takes, logged: Option<u128>, (told, epoch): (Point, Epoch)) -> bool {
    if head.seq <= told.seq {
        return (head.seq, head.digest) == (told.seq, told.digest);
    }
    match logged {
        Some(digest) => digest == told.digest.0,
        // Trimmed since. Where that is not known it is taken to be there, as while a server runs (see `heal`).
        None => takes.have(told, epoch, head).unwrap_or(true),
    }
}

/// What a process before this one acknowledged must be there, unless it is `accepted` that it is not: it may be in use.
pub(super) async fn check(
    link: &mut Link,
    keys: &Keys,
    identity: &IdentityFile,
    accepted: bool,
) -> Result<(), StoreError> {
    let Some(noted) = &identity.behind else { return Ok(()) };
    let &Behind { shard, told, epoch, .. } = noted;
    match reach(link, keys, noted).await? {
        RedisReach::WentOn => tracing::error!(
            redis = %link.name(),
            shard = shard.0,
            batch = told.seq.0,
            epoch = epoch.0,
            "Redis went back behind what this server acknowledged, and another one went on: what was granted then may be \
             granted to others by now; compare with who uses it"
        ),
        RedisReach::There => tracing::warn!(
            redis = %link.name(),
            shard = shard.0,
            batch = told.seq.0,
            "what was missing in Redis is there again"
        ),
        RedisReach::Behind(there) if accepted => tracing::warn!(
            redis = %link.name(),
            shard = shard.0,
            batch = there,
            acknowledged = told.seq.0,
            "going on from what Redis has, as `--accept-rollback` says"
        ),
        RedisReach::Behind(there) => {
            let text = format!(
                "Redis at {} went back behind what this server acknowledged: shard {} was told of up to batch {} \
                 and stands at {there} ({} says so). What is missing may be in use, and would be granted once more. Bring the \
                 data of Redis back; or go on from what it has with `--accept-rollback`, once, and claim what is in use \
                 (`allod ip claim`) before others are granted",
                link.name(),
                shard.0,
                told.seq.0,
                identity.path().display()
            );
            return Err(StoreError::Damaged(text.into()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Digest, Seq, Token};

    #[test]
    fn a_number_that_another_line_has_too_is_not_what_was_told() {
        let point = |token, seq, digest| Point { token: Token(token), seq: Seq(seq), digest: Digest(digest) };
        let head = |epoch, token, seq, digest| Head {
            epoch: Epoch(epoch),
            token: Token(token),
            seq: Seq(seq),
            digest: Digest(digest),
            ..Head::default()
        };
        let told = (point(5, 110, 1), Epoch(5));
        let none = Takes::default();
        assert!(has(&head(5, 5, 110, 1), &none, Some(1), told));
        assert!(has(&head(6, 6, 200, 9), &none, Some(1), told));
        // Another owner's, in an epoch of the same number.
        assert!(!has(&head(5, 7, 110, 2), &none, Some(2), told));
        assert!(!has(&head(5, 7, 200, 9), &none, Some(2), told));
        assert!(!has(&head(5, 7, 200, 9), &none, None, told), "its log was trimmed");
        assert!(!has(&head(5, 5, 90, 3), &none, None, told));
    }
}
