//! Whether a line goes through a batch, and so, at a start, how far Redis reaches after an earlier process noted that Redis
//! had gone back behind what was acknowledged.
//!
//! The line decides, not the numbers: another owner may have gone on to the same number, in an epoch of the same number.
//!
//! Called by `heal` and `begin`; `examine` shows it.

use std::time::Duration;

use redis::{Cmd, Pipeline, Value};
use tokio::time::Instant;

use super::failed::strange;
use super::history::entry_of;
use super::identity::{Behind, IdentityFile, Stood};
use super::journal::Point;
use super::keys::Keys;
use super::link::Link;
use super::redo;
use super::scripts::{self, HEAD_FIELDS};
use super::takes::Takes;
use crate::limits::NODE_LEASE_MS;
use crate::store::{Digest, Epoch, Head, Seq, ShardId, StoreError};

/// How long an answer may take at a start.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long a start waits for another node to give back what Redis lost: the time of two leases.
const GIVEN_BACK_WITHIN: Duration = Duration::from_millis(2 * NODE_LEASE_MS);
const LOOKED_AT_EVERY: Duration = Duration::from_millis(500);

/// How far Redis reaches, after it had gone back behind what was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RedisReach {
    /// What was missing is back.
    There,
    /// Another node went on from where Redis stood, so it is too late for this server to refuse anything.
    WentOn,
    /// Redis still stands at this batch.
    Behind(u64),
}

/// How far Redis reaches, according to the head of the noted shard.
pub(super) async fn reach(link: &mut Link, keys: &Keys, noted: &Behind) -> Result<RedisReach, StoreError> {
    let Behind { shard, told, epoch, found } = *noted;
    let [head] = heads(link, keys, [shard]).await?[..] else { return Err(strange(link.name(), "a head is none")) };
    Ok(match found {
        // Written by a release that noted only numbers.
        None if head.epoch > epoch => RedisReach::WentOn,
        None if head.seq >= told.seq => RedisReach::There,
        None => RedisReach::Behind(head.seq.0),
        // If this is not known, the batch is assumed to be there, as in a running server (see `heal`).
        Some(_) if goes_through(link, keys, (shard, told, epoch), &head, ANSWER_WITHIN).await?.unwrap_or(true) => {
            RedisReach::There
        }
        Some(found) if found == head.token => RedisReach::Behind(head.seq.0),
        Some(_) => RedisReach::WentOn,
    })
}

async fn heads(
    link: &mut Link,
    keys: &Keys,
    shards: impl IntoIterator<Item = ShardId>,
) -> Result<Vec<Head>, StoreError> {
    let mut pipeline = Pipeline::new();
    for shard in shards {
        pipeline.cmd("HMGET").arg(keys.head(shard)).arg(&HEAD_FIELDS[..]);
    }
    let values = link.read(&pipeline, ANSWER_WITHIN).await?.into_iter();
    let head = |value| scripts::head(value).flatten().ok_or_else(|| strange(link.name(), "a head is none"));
    values.map(head).collect()
}

/// Does the line of this head go through a batch, which was written in this epoch? The log tells, or the take-overs that the
/// head remembers; none if neither does. Each answer may take `within`.
pub(super) async fn goes_through(
    link: &mut Link,
    keys: &Keys,
    (shard, batch, epoch): (ShardId, Point, Epoch),
    head: &Head,
    within: Duration,
) -> Result<Option<bool>, StoreError> {
    let is_behind = head.seq <= batch.seq;
    let logged = if is_behind { None } else { logged(link, keys, (shard, batch.seq), within).await? };
    let takes = if is_behind || logged.is_some() { Takes::default() } else { takes(link, keys, shard, within).await? };
    Ok(has(head, &takes, logged, (batch, epoch)))
}

/// The same for the present head of the shard.
pub(super) async fn has_batch(
    link: &mut Link,
    keys: &Keys,
    batch: (ShardId, Point, Epoch),
) -> Result<Option<bool>, StoreError> {
    let [head] = heads(link, keys, [batch.0]).await?[..] else { return Err(strange(link.name(), "a head is none")) };
    goes_through(link, keys, batch, &head, ANSWER_WITHIN).await
}

/// The same, given the digest that the log has at that number, if it still has one.
fn has(head: &Head, takes: &Takes, logged: Option<Digest>, (batch, epoch): (Point, Epoch)) -> Option<bool> {
    if head.seq <= batch.seq {
        return Some((head.seq, head.digest) == (batch.seq, batch.digest));
    }
    logged.map_or_else(|| takes.have(batch, epoch, head), |digest| Some(digest == batch.digest))
}

async fn logged(
    link: &mut Link,
    keys: &Keys,
    (shard, seq): (ShardId, Seq),
    within: Duration,
) -> Result<Option<Digest>, StoreError> {
    let mut command = Cmd::new();
    let id = format!("{}-0", seq.0);
    command.arg("XRANGE").arg(keys.log(shard)).arg(&id).arg(&id);
    let Value::Array(mut entries) = link.ask(command, within).await? else {
        return Err(strange(link.name(), "the log of a shard is none"));
    };
    let Some(entry) = entries.pop() else { return Ok(None) };
    let entry = entry_of(entry).ok_or_else(|| strange(link.name(), "the log of a shard is none"))?;
    Ok(Some(entry.digest))
}

/// Which of these points are in the log of a shard.
pub(super) async fn in_log(
    link: &mut Link,
    keys: &Keys,
    (shard, points): (ShardId, Vec<Point>),
    within: Duration,
) -> Result<Vec<Point>, StoreError> {
    let mut there = Vec::with_capacity(points.len());
    for point in points {
        if logged(link, keys, (shard, point.seq), within).await? == Some(point.digest) {
            there.push(point);
        }
    }
    Ok(there)
}

pub(super) async fn takes(link: &mut Link, keys: &Keys, shard: ShardId, within: Duration) -> Result<Takes, StoreError> {
    let mut command = Cmd::new();
    command.arg("HGET").arg(keys.head(shard)).arg("takes");
    let takes = match link.ask(command, within).await? {
        // Written by a release that did not note take-overs.
        Value::Nil => Some(Takes::default()),
        Value::BulkString(text) => std::str::from_utf8(&text).ok().and_then(Takes::parse),
        _ => None,
    };
    takes.ok_or_else(|| strange(link.name(), "the take-overs of a shard are none"))
}

/// What an earlier process acknowledged must be in Redis, unless the operator has `accepted` that it is not: it may be in
/// use. Returns whether another node went on without it.
pub(super) async fn check(
    link: &mut Link,
    keys: &Keys,
    identity: &IdentityFile,
    accepted: bool,
) -> Result<bool, StoreError> {
    let Some(noted) = &identity.behind else { return Ok(false) };
    let &Behind { shard, told, epoch, .. } = noted;
    let reach = reach(link, keys, noted).await?;
    match reach {
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
        RedisReach::Behind(there) => unless_accepted(link, identity, (shard, told.seq, there), accepted)?,
    }
    Ok(reach == RedisReach::WentOn)
}

/// What was acknowledged when this server was stopped in order must be in Redis, unless the operator has `accepted` that it
/// is not: an older copy of Redis may have been brought back since. Another running node gets time to give it back, because
/// it may have been a failover. If another node went on without it, this is logged, and the shards are returned: it is too
/// late to refuse anything.
pub(super) async fn check_stood(
    link: &mut Link,
    keys: &Keys,
    identity: &IdentityFile,
    accepted: bool,
) -> Result<Vec<ShardId>, StoreError> {
    let end = Instant::now() + GIVEN_BACK_WITHIN;
    let lacking = loop {
        let lacking = lacking_since_stop(link, keys, identity).await?;
        match lacking.iter().find(|lacking| !lacking.went_on) {
            Some(_) if !accepted && Instant::now() < end => tokio::time::sleep(LOOKED_AT_EVERY).await,
            Some(&Lacking { shard, told, there, .. }) => {
                unless_accepted(link, identity, (shard, told, there), accepted)?;
                break lacking;
            }
            None => break lacking,
        }
    };
    let lost = lacking.into_iter().filter(|lacking| lacking.went_on);
    let tell = |Lacking { shard, told, there, .. }: Lacking| {
        tracing::error!(
            redis = %link.name(),
            shard = shard.0,
            acknowledged = told.0,
            goes_on_at = there,
            "the register lacks what this node acknowledged before it was stopped in order: an older copy of Redis was brought back, or a \
             failover lost it, and another node went on from there. What was granted then may be granted to others by now: compare \
             with who uses it, and `allod ip claim` for whoever has what is not listed any more"
        );
        shard
    };
    Ok(lost.map(tell).collect())
}

/// A shard that lacks something that was acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lacking {
    pub(super) shard: ShardId,
    /// It was acknowledged up to this batch.
    pub(super) told: Seq,
    /// The batch at which it stands.
    pub(super) there: u64,
    /// Another node owns it and went on without it.
    pub(super) went_on: bool,
}

/// Which shards certainly lack something that was acknowledged at the last orderly stop. If it was left on this machine's
/// disk and is still to be given back, it is not lost.
pub(super) async fn lacking_since_stop(
    link: &mut Link,
    keys: &Keys,
    identity: &IdentityFile,
) -> Result<Vec<Lacking>, StoreError> {
    let mut lacking = Vec::new();
    if identity.stood.is_empty() {
        return Ok(lacking);
    }
    let heads = heads(link, keys, identity.stood.iter().map(|stood| stood.shard)).await?;
    for (Stood { shard, told, epoch, tokens }, head) in identity.stood.iter().zip(heads) {
        if goes_through(link, keys, (*shard, *told, *epoch), &head, ANSWER_WITHIN).await? == Some(false) {
            let went_on = !tokens.contains(&head.token);
            lacking.push(Lacking { shard: *shard, told: told.seq, there: head.seq.0, went_on });
        }
    }
    if !lacking.is_empty() {
        let left = redo::shards_left(identity)?;
        lacking.retain(|lacking| !left.contains(&lacking.shard));
    }
    Ok(lacking)
}

/// Refuses a shard that stands at a batch although it was acknowledged up to a later one, unless that is `accepted`.
fn unless_accepted(
    link: &Link,
    identity: &IdentityFile,
    (shard, told, there): (ShardId, Seq, u64),
    accepted: bool,
) -> Result<(), StoreError> {
    if accepted {
        tracing::warn!(
            redis = %link.name(),
            shard = shard.0,
            batch = there,
            acknowledged = told.0,
            "going on from what Redis has, as `--accept-rollback` says"
        );
        return Ok(());
    }
    let text = format!(
        "Redis at {} went back behind what this server acknowledged: shard {} was told of up to batch {} \
         and stands at {there} ({} says so). What is missing may be in use, and would be granted once more. Bring the \
         data of Redis back; or go on from what it has with `--accept-rollback`, once, and claim what is in use \
         (`allod ip claim`): it grants from the first moment, so keep the clients' way closed until then",
        link.name(),
        shard.0,
        told.0,
        identity.path().display()
    );
    Err(StoreError::Damaged(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Token;

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
        assert_eq!(has(&head(5, 5, 110, 1), &none, Some(Digest(1)), told), Some(true));
        assert_eq!(has(&head(6, 6, 200, 9), &none, Some(Digest(1)), told), Some(true));
        // Another owner's batch, in an epoch of the same number.
        assert_eq!(has(&head(5, 7, 110, 2), &none, Some(Digest(2)), told), Some(false));
        assert_eq!(has(&head(5, 7, 200, 9), &none, Some(Digest(2)), told), Some(false));
        assert_eq!(has(&head(5, 7, 200, 9), &none, None, told), Some(false), "its log was trimmed");
        assert_eq!(has(&head(5, 5, 90, 3), &none, None, told), Some(false));
    }
}
