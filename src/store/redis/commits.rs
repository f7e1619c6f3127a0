//! The task that sends batches: on one connection, in the order of the calls, with several under way.
//!
//! A batch is encoded, netted, and linked to the digest before it. One call of the script sends it together with the batches
//! of the other shards. Its answer is awaited while the next call is sent. Either all batches of a call are applied or none:
//! Redis runs a script whole, and the script compares before it writes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::confirms;
use super::failed::{self, Failed};
use super::heal;
use super::journal::{Move, Point};
use super::keys::{HashKind, HashName};
use super::line;
use super::link::{self, Link};
use super::net::Net;
use super::scripts::{self, LoadedScript, ScriptCall, Verdict};
use super::shared::RedisShared;
use super::written;
use crate::core::state::Key;
use crate::core::types::NetworkId;
use crate::limits::BATCH_BYTES_MAX;
use crate::store::{Batch, CommitError, Committed, Seq, StoreError, codec, fence};

/// How long an answer may take before the outcome is unknown and the connection is replaced. Shorter than the deadline of
/// the committer, so that the same bytes can be sent once more within it.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// How much longer an answer may take for each MiB of a call beyond the usual size, because the script looks at every record
/// twice.
const LONGER_FOR_A_MIB: Duration = Duration::from_millis(200);
/// Bytes of the longest call that does not consist of a single act. A record appears in a call twice.
const USUAL_CALL_BYTES: usize = 2 * BATCH_BYTES_MAX;

/// A call of `commit`.
pub(super) struct CommitJob {
    pub(super) batches: Arc<[Batch]>,
    pub(super) reply: oneshot::Sender<Result<Vec<Committed>, CommitError>>,
}

/// Runs until every sender is gone, then waits for the calls under way.
pub(super) async fn run(
    shared: Arc<RedisShared>,
    mut link: Link,
    mut jobs: mpsc::Receiver<CommitJob>,
    confirms: mpsc::Sender<confirms::ConfirmJob>,
) {
    let under_way = TaskTracker::new();
    // Numbers of connections on which an answer did not come, reported by the tasks that wait for answers.
    let (broken, mut breaks) = mpsc::channel(64);
    // When the answer to the last call is due. A call after a long one is not answered before it, so deadlines only move forward.
    let mut until = Instant::now();
    while let Some(CommitJob { batches, reply }) = jobs.recv().await {
        while let Ok(number) = breaks.try_recv() {
            link.broken(number);
        }
        if reply.is_closed() {
            // The caller gave up before it was sent.
            continue;
        }
        // First Redis is given back what it may have forgotten.
        let (connection, number) = match heal::ready(&shared, &mut link).await {
            Ok(connected) => connected,
            Err(failed) => {
                let refused = Err(failed.into());
                shared.was_asked_to_commit(&refused);
                // Perhaps nobody waits any more.
                let _ = reply.send(refused);
                continue;
            }
        };
        // The batch may have been decided before it was known that Redis may evict records.
        if shared.may_evict() && !batches.iter().all(Batch::lets_go) {
            let _ = reply.send(Err(CommitError::NotApplied { cause: StoreError::Full }));
            continue;
        }
        let (call, links) = match call_of(&shared, &batches) {
            Ok((call, links)) => (Arc::new(call.fitted()), links),
            Err(error) => {
                let _ = reply.send(Err(error));
                continue;
            }
        };
        let moves = moves_of(&batches, &links);
        shared.journal().sends(&call, moves.clone());
        let since = shared.confirms_on();
        let now = Instant::now();
        until = until.max(now + answer_within(call.bytes()));
        let within = until - now;
        let answer = link::begin(connection, call).await;
        let (shared, broken, confirms) = (Arc::clone(&shared), broken.clone(), confirms.clone());
        under_way.spawn(async move {
            let (answer, over) = link::finish(answer, within, &shared.place).await;
            if over {
                // If the queue is full, it already has reports about the same connection.
                let _ = broken.try_send(number);
            }
            let ended = match judge(&shared, &batches, &links, answer) {
                Ok(committed) => {
                    tracing::trace!(shards = committed.len(), "carried out by Redis");
                    shared.journal().applied(&moves);
                    confirmed(&shared, &batches, committed, since, &confirms).await
                }
                Err(error) => {
                    if matches!(error, CommitError::NotApplied { .. } | CommitError::Mismatch { .. }) {
                        shared.journal().refused(&moves);
                    }
                    Err(error)
                }
            };
            shared.was_asked_to_commit(&ended);
            let _ = reply.send(ended);
        });
    }
    under_way.close();
    under_way.wait().await;
}

fn answer_within(bytes: usize) -> Duration {
    let beyond = bytes.saturating_sub(USUAL_CALL_BYTES) as f64 / f64::from(1 << 20);
    ANSWER_WITHIN + LONGER_FOR_A_MIB.mul_f64(beyond)
}

/// The call that commits these batches, and the digests that it gives them.
fn call_of(shared: &RedisShared, batches: &[Batch]) -> Result<(ScriptCall, Vec<line::Lineage>), CommitError> {
    let refused = |cause| CommitError::NotApplied { cause };
    shared.sound().map_err(refused)?;
    fence::check_once_each(batches)?;
    let lets_go = batches.iter().all(Batch::lets_go);
    let script = if lets_go { LoadedScript::CommitLettingGo } else { LoadedScript::Commit };
    let mut encoded = Vec::with_capacity(batches.len());
    for batch in batches {
        let mut bytes = Vec::with_capacity(256 + batch.acts.len() * 128);
        let format = shared.line(batch.shard, |line| line.format()).map_err(refused)?;
        fence::encode(batch, format, &mut bytes)?;
        encoded.push(bytes);
    }
    let nets = batches.iter().zip(&encoded).map(|(batch, bytes)| Net::of(batch.shard, batch.seq, bytes));
    let nets = nets.collect::<Result<Vec<_>, _>>()?;
    let mut links = Vec::with_capacity(batches.len());
    let mut parts = Vec::with_capacity(batches.len());
    for ((batch, bytes), net) in batches.iter().zip(&encoded).zip(nets) {
        // Only after every check of this process, because whatever is linked must be sent.
        let link = shared.line(batch.shard, |line| line.link(batch, bytes)).map_err(refused)?;
        parts.push((batch, bytes.as_slice(), net, link.parent.map(|parent| (parent, link.digest))));
        links.push(link);
        shared.commit_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
    let call = written::call(shared, script, &parts);
    shared.commits.fetch_add(1, Ordering::Relaxed);
    Ok((call, links))
}

/// An applied batch is acknowledged once as many replicas have it as are wanted. Until then nobody knows whether it will stay.
async fn confirmed(
    shared: &RedisShared,
    batches: &[Batch],
    committed: Vec<Committed>,
    since: u64,
    confirms: &mpsc::Sender<confirms::ConfirmJob>,
) -> Result<Vec<Committed>, CommitError> {
    let with_tokens = || batches.iter().zip(&committed);
    if shared.waits() {
        let names = with_tokens().map(|(batch, done)| (batch.shard, batch.token, done.seq, done.digest)).collect();
        confirms::ask(confirms, names, Some(since)).await.map_err(|error| match error {
            CommitError::NotApplied { cause } => CommitError::Unknown { cause },
            error => error,
        })?;
    }
    for (batch, done) in with_tokens() {
        let stands = Point { token: batch.token, seq: done.seq, digest: done.digest };
        shared.tells(batch.shard, stands)?;
    }
    Ok(committed)
}

/// Where the shards stand before and after the call. A batch that follows nothing that was sent will be refused, and moves
/// no shard.
fn moves_of(batches: &[Batch], links: &[line::Lineage]) -> Vec<Move> {
    let moves = batches.iter().zip(links).filter_map(|(batch, link)| {
        let &Batch { shard, token, seq, .. } = batch;
        let before = Point { token, seq: Seq(seq.0.checked_sub(1)?), digest: link.parent? };
        Some(Move { shard, before, after: Point { token, seq, digest: link.digest } })
    });
    moves.collect()
}

/// What an answer means for the caller.
fn judge(
    shared: &RedisShared,
    batches: &[Batch],
    links: &[line::Lineage],
    answer: Result<redis::Value, Failed>,
) -> Result<Vec<Committed>, CommitError> {
    let value = answer.map_err(|failed| {
        if let Failed::NotApplied(StoreError::Full) = failed {
            shared.full();
        }
        CommitError::from(failed)
    })?;
    let strange = || CommitError::Unknown { cause: failed::strange_script(&shared.place) };
    let refused = |cause| CommitError::NotApplied { cause };
    let of = |at: usize| batches.get(at).zip(links.get(at)).ok_or_else(strange);
    match scripts::verdict(value).ok_or_else(strange)? {
        Verdict::Done => {
            if !batches.iter().all(Batch::lets_go) {
                shared.has_room();
            }
            let committed = |(batch, link): (&Batch, &line::Lineage)| {
                let &Batch { shard, seq, .. } = batch;
                Committed { shard, seq, digest: link.digest }
            };
            Ok(batches.iter().zip(links).map(committed).collect())
        }
        Verdict::Absent(at) => Err(refused(shared.absent(of(at)?.0.shard))),
        Verdict::Fenced(at, current) => {
            let (batch, link) = of(at)?;
            if current < link.epoch {
                return Err(refused(heal::behind(shared)));
            }
            Err(CommitError::Fenced { shard: batch.shard, current })
        }
        Verdict::Foreign(found) => Err(refused(shared.foreign(found))),
        Verdict::Gap(at, last) => {
            let (batch, link) = of(at)?;
            if last < link.told {
                return Err(refused(heal::behind(shared)));
            }
            Err(refused(StoreError::Gap { shard: batch.shard, last }))
        }
        Verdict::Back(at) => {
            let batch = of(at)?.0;
            let problem = "its time or its generation is lower than that of the batch before";
            Err(fence::invalid(batch.shard, batch.seq, problem))
        }
        Verdict::Lost(key) => Err(refused(shared.lost(&key))),
        Verdict::Mismatch { at, network, kind, low, field, found } => {
            let batch = of(at)?.0;
            mismatch(shared, batch, network, kind, (&low, &field), found.as_deref())
        }
    }
}

/// Says what a step expected and what is there instead.
fn mismatch(
    shared: &RedisShared,
    batch: &Batch,
    network: NetworkId,
    kind: HashKind,
    (low, field): (&[u8], &[u8]),
    found: Option<&[u8]>,
) -> Result<Vec<Committed>, CommitError> {
    let strange =
        || CommitError::NotApplied { cause: failed::strange(&shared.place, "the script named no key of ours") };
    let key: Key = HashName::of(kind, low).key_of(field).ok_or_else(strange)?;
    let steps = batch.acts.iter().filter(|act| act.network == network).flat_map(|act| &act.steps);
    let expected = steps.clone().find(|step| step.key == key).and_then(|step| step.expect);
    let unreadable = |error: codec::CodecError| {
        let text = format!("network {network} has an unreadable record at {key:?}: it {error}");
        CommitError::NotApplied { cause: StoreError::Damaged(text.into()) }
    };
    let found = found.map(codec::mark_of).transpose().map_err(unreadable)?;
    Err(CommitError::Mismatch { shard: batch.shard, seq: batch.seq, network, key, expected, found })
}
