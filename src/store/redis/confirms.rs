//! The task that proves two things: that a batch lies on its shard's line under a token that is still its owner's, and that
//! as many replicas have it as are wanted. Its connection is its own, so that the next batch is committed meanwhile.
//!
//! One round runs at a time. All that was asked before it begins goes into it, as one call of the script and one WAIT after
//! it on the same connection. A WAIT between batches would hold up each of them, and one on a connection that wrote nothing
//! proves nothing, so the script writes a mark.
//!
//! If `store.redis_degrade` permits it, a change that too few replicas have is acknowledged once it is on this machine's
//! disk (`redo`). From then on a round waits only for as many replicas as answered last.
//!
//! **On disk.** If replicas must have a change on their disks, a WAITAOF follows the WAIT. With WAITAOF alone each round
//! would take a second: a replica answers that question as soon as it reads it, before it flushes what it read together
//! with it, and otherwise reports only once a second. If a replica flushes each change, it answers the WAIT after the
//! flush, and then answers the WAITAOF at once.
//!
//! If this task's connection was replaced after a batch was written, the outcome is unknown: the same bytes are sent again,
//! recognised, and confirmed where they are.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError, Value};
use tokio::sync::{mpsc, oneshot};

use super::failed::{self, Failed};
use super::heal;
use super::journal::Point;
use super::link::Link;
use super::redo;
use super::replicas::{Counted, OnDisk, ReplicaWait};
use super::scripts::{self, LoadedScript, ScriptCall, Verdict};
use super::shared::RedisShared;
use crate::store::{CommitError, Digest, Seq, ShardId, StoreError, Token};

const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);
/// How long Redis waits for its replicas, and then as long again for their disks. Shorter than the deadline of the
/// committer, so that it can be tried again within it.
const REPLICAS_WITHIN: Duration = Duration::from_millis(500);
const ROUND_CALLS_MAX: usize = 256;

/// What is to be proved: a batch on a shard's line, and the token under which the caller asks.
pub(super) type ProofName = (ShardId, Token, Seq, Digest);

/// A call of `confirm`, or the last part of a commit or a take-over.
pub(super) struct ConfirmJob {
    pub(super) names: Vec<ProofName>,
    /// This task's connection at the time before the batches were written; none if any connection will do.
    pub(super) since: Option<u64>,
    /// Answers will leave on the strength of this proof, so clients are told of what it names.
    pub(super) tells: bool,
    pub(super) reply: oneshot::Sender<Result<(), CommitError>>,
}

pub(super) async fn ask(
    jobs: &mpsc::Sender<ConfirmJob>,
    names: Vec<ProofName>,
    since: Option<u64>,
) -> Result<(), CommitError> {
    let (reply, answer) = oneshot::channel();
    let ended = || CommitError::Unknown { cause: super::ended() };
    jobs.send(ConfirmJob { names, since, tells: false, reply }).await.map_err(|_| ended())?;
    answer.await.unwrap_or_else(|_| Err(ended()))
}

/// Runs until every sender is gone.
pub(super) async fn run(shared: Arc<RedisShared>, mut link: Link, mut jobs: mpsc::Receiver<ConfirmJob>) {
    let mut next = Vec::new();
    while jobs.recv_many(&mut next, ROUND_CALLS_MAX).await > 0 {
        let number = match heal::ready(&shared, &mut link).await {
            Ok((_, number)) => number,
            Err(failed) => {
                let refused = Err(failed.into());
                shared.was_asked_to_commit(&refused);
                next.drain(..).for_each(|job| drop(job.reply.send(refused.clone())));
                continue;
            }
        };
        shared.confirming(number);
        let mut round = Vec::with_capacity(next.len());
        for job in next.drain(..).filter(|job| !job.reply.is_closed()) {
            if job.since.is_some_and(|since| since != number) {
                let source = std::io::Error::other("the connection was replaced in between");
                let context = format!("confirming a batch at Redis at {}", shared.place).into();
                let cause = StoreError::Io { context, source: Arc::new(source) };
                drop(job.reply.send(Err(CommitError::Unknown { cause })));
            } else {
                round.push(job);
            }
        }
        prove(&shared, &mut link, round).await;
    }
}

/// Proves what all these jobs ask for, or each job by itself if the proof of all together fails.
async fn prove(shared: &Arc<RedisShared>, link: &mut Link, round: Vec<ConfirmJob>) {
    if round.is_empty() {
        return;
    }
    let mut names: Vec<ProofName> = Vec::with_capacity(round.len());
    for name in round.iter().flat_map(|job| &job.names) {
        if !names.contains(name) {
            names.push(*name);
        }
    }
    let mut proved = confirm(shared, link, &names).await;
    if matches!(proved, Err(CommitError::Fenced { .. })) {
        // Is it fenced by another owner, or did Redis go back to before the batch?
        proved = match heal::again(shared, link).await {
            Ok(true) => confirm(shared, link, &names).await,
            Ok(false) => proved,
            Err(cause) => Err(CommitError::NotApplied { cause }),
        };
    }
    shared.was_asked_to_commit(&proved);
    let alone = matches!(proved, Err(CommitError::Fenced { .. })) && round.len() > 1;
    for job in round {
        let mut proved = if alone { confirm(shared, link, &job.names).await } else { proved.clone() };
        if job.tells && proved.is_ok() {
            let told = |&(shard, token, seq, digest): &ProofName| shared.tells(shard, Point { token, seq, digest });
            proved = job.names.iter().try_for_each(told);
        }
        // Perhaps nobody waits any more.
        drop(job.reply.send(proved));
    }
}

async fn confirm(shared: &Arc<RedisShared>, link: &mut Link, names: &[ProofName]) -> Result<(), CommitError> {
    let refused = |cause| CommitError::NotApplied { cause };
    shared.sound().map_err(refused)?;
    let mut keys = Vec::with_capacity(2 * names.len());
    for &(shard, ..) in names {
        shared.line(shard, |_| ()).map_err(refused)?;
        keys.extend([shared.keys.head(shard), shared.keys.log(shard)]);
    }
    let waiting = shared.waiting();
    let mut call = ScriptCall::new(&shared.shas, LoadedScript::Confirm, &keys);
    call.arg(if waiting.is_some() { "1" } else { "0" });
    for &(_, token, seq, digest) in names {
        call.arg(scripts::hex(token.0)).number(seq.0).arg(scripts::hex(digest.0));
    }
    let waits = waiting.map_or_else(Vec::new, |waiting| waits_of(waiting, shared.waited_for()));
    let (applied, number) = (shared.journal().applied_last(), link.number());
    let (answer, waited) = link.call_then(&call, &waits, ANSWER_WITHIN).await.map_err(CommitError::from)?;
    let strange = || CommitError::Unknown { cause: failed::strange_script(&shared.place) };
    let of = |at: usize| names.get(at).map(|name| name.0).ok_or_else(strange);
    match scripts::verdict(answer).ok_or_else(strange)? {
        Verdict::Done => {}
        Verdict::Absent(at) => return Err(refused(shared.absent(of(at)?))),
        Verdict::Fenced(at, current) => return Err(CommitError::Fenced { shard: of(at)?, current }),
        Verdict::Foreign(found) => return Err(refused(shared.foreign(found))),
        Verdict::Gap(..) | Verdict::Back(_) | Verdict::Lost(_) | Verdict::Mismatch { .. } => return Err(strange()),
    }
    if waits.is_empty() {
        return Ok(());
    }
    let counted = counted(&waited, &shared.place).map_err(CommitError::from)?;
    match shared.replicas_answer(&counted) {
        Ok(()) => {
            // The server at the other end of a new connection may lack earlier entries, which this round does not name.
            if link.number() == number {
                shared.journal().is_safe(applied);
            }
            Ok(())
        }
        Err(too_few) => redo::keep(shared, too_few).await.map_err(|cause| CommitError::Unknown { cause }),
    }
}

/// The commands that wait for this many replicas.
pub(super) fn waits_of(waiting: ReplicaWait, replicas: u32) -> Vec<Cmd> {
    let within = REPLICAS_WITHIN.as_millis() as u64;
    let mut memory = Cmd::new();
    memory.arg("WAIT").arg(replicas).arg(within);
    match waiting {
        ReplicaWait::Memory => vec![memory],
        ReplicaWait::Disk => {
            let mut disk = Cmd::new();
            disk.arg("WAITAOF").arg(1).arg(replicas).arg(within);
            vec![memory, disk]
        }
    }
}

/// Reads the answers to the commands of [`waits_of`].
pub(super) fn counted(waited: &[Result<Value, RedisError>], place: &Arc<str>) -> Result<Counted, Failed> {
    let strange = || Failed::Unknown(failed::strange(place, "replicas are waited for, and not counted"));
    let count = |value: &Value| match value {
        Value::Int(count) => u32::try_from(*count).map_err(|_| strange()),
        _ => Err(strange()),
    };
    let in_memory = match waited.first().ok_or_else(strange)? {
        Ok(value) => count(value)?,
        Err(error) => return Err(failed::classify(error, place)),
    };
    let on_disk = match waited.get(1) {
        None => None,
        Some(Ok(Value::Array(values))) => match &values[..] {
            // While Redis itself does not have it on its disk, no replica counts.
            [Value::Int(0), _] => Some(OnDisk::NotYet),
            [Value::Int(_), replicas] => Some(OnDisk::Replicas(count(replicas)?)),
            _ => return Err(strange()),
        },
        Some(Ok(_)) => return Err(strange()),
        // Any obstacle that concerns more than WAITAOF would have stopped the script or the WAIT, too.
        Some(Err(error)) => Some(OnDisk::Refused(error.detail().unwrap_or_default().into())),
    };
    Ok(Counted { in_memory, on_disk })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(answers: &[&str]) -> Counted {
        let parse = |answer: &&str| redis::parse_redis_value(answer.as_bytes()).and_then(Value::extract_error);
        counted(&answers.iter().map(parse).collect::<Vec<_>>(), &"redis".into()).unwrap()
    }

    #[test]
    fn replicas_are_counted_on_disk_only_where_redis_itself_has_it_there() {
        assert_eq!(said(&[":2\r\n"]), Counted { in_memory: 2, on_disk: None });
        let disk = |answer| said(&[":2\r\n", answer]).on_disk;
        assert_eq!(disk("*2\r\n:1\r\n:2\r\n"), Some(OnDisk::Replicas(2)));
        assert_eq!(disk("*2\r\n:0\r\n:2\r\n"), Some(OnDisk::NotYet));
        let refused = "WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
        assert_eq!(disk(&format!("-ERR {refused}\r\n")), Some(OnDisk::Refused(refused.into())));
        assert!(counted(&[Ok(Value::Okay)], &"redis".into()).is_err());
    }

    #[test]
    fn disks_are_waited_for_behind_a_wait_for_memory() {
        let packed = |waiting| waits_of(waiting, 2).iter().map(Cmd::get_packed_command).collect::<Vec<_>>();
        let memory = b"*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$3\r\n500\r\n".to_vec();
        let disk = b"*4\r\n$7\r\nWAITAOF\r\n$1\r\n1\r\n$1\r\n2\r\n$3\r\n500\r\n".to_vec();
        assert_eq!(packed(ReplicaWait::Memory), std::slice::from_ref(&memory));
        assert_eq!(packed(ReplicaWait::Disk), [memory, disk]);
    }
}
