//! The task that proves: that a batch lies on its shard's line under a token that is still its owner's, and that as many
//! replicas have it as are wanted. On a connection of its own, so that the next batch is committed meanwhile.
//!
//! One round at a time: whatever was asked before it begins goes into it, as one call of the script and one WAIT behind it
//! on the same connection. A WAIT that stood between batches would hold up each of them, and one on a connection that wrote
//! nothing says yes to nothing; so the script writes a mark.
//!
//! Where `store.redis_degrade` says so, what too few replicas have is acknowledged when it is on this machine's disk (`redo`);
//! then only those are waited for that answered last.
//!
//! What was committed before this task's connection was replaced is unknown: the same bytes are sent again, recognised, and
//! confirmed where they are.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::{mpsc, oneshot};

use super::failed::{self, Failed};
use super::heal;
use super::journal::Point;
use super::link::Link;
use super::redo;
use super::scripts::{self, LoadedScript, ScriptCall, Verdict};
use super::server::ReplicaWait;
use super::shared::RedisShared;
use crate::store::{CommitError, Digest, Seq, ShardId, StoreError, Token};

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);
/// How long Redis waits for its replicas. Shorter than the deadline of the committer, so that it is tried again within it.
const REPLICAS_WITHIN: Duration = Duration::from_millis(500);
/// Calls that one round answers.
const ROUND_CALLS_MAX: usize = 256;

/// What is to be proved: a batch on a shard's line, and the token under which it is asked.
pub(super) type ProofName = (ShardId, Token, Seq, Digest);

/// A call of `confirm`; or the end of a commit or of a take-over.
pub(super) struct ConfirmJob {
    pub(super) names: Vec<ProofName>,
    /// The connection of this task that stood before what is named was written; none: it may be any.
    pub(super) since: Option<u64>,
    /// Answers leave under it: what it names is told.
    pub(super) tells: bool,
    pub(super) reply: oneshot::Sender<Result<(), CommitError>>,
}

/// Asks for a proof in the next round, and waits for it.
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
                let error = error_of(failed);
                next.drain(..).for_each(|job| drop(job.reply.send(Err(error.clone()))));
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

/// Proves what all of these ask for; each alone if that cannot be proved together.
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
        // By another owner, or because Redis went back behind it?
        proved = match heal::again(shared, link).await {
            Ok(true) => confirm(shared, link, &names).await,
            Ok(false) => proved,
            Err(cause) => Err(CommitError::NotApplied { cause }),
        };
    }
    let alone = matches!(proved, Err(CommitError::Fenced { .. })) && round.len() > 1;
    for job in round {
        let mut proved = if alone { confirm(shared, link, &job.names).await } else { proved.clone() };
        if job.tells && proved.is_ok() {
            let told = |&(shard, token, seq, digest): &ProofName| shared.tells(shard, Point { token, seq, digest });
            proved = job.names.iter().try_for_each(told);
        }
        // Nobody may wait any more.
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
    let wait = waiting.map(|waiting| wait_of(waiting, shared.waited_for()));
    let applied = shared.journal().applied_last();
    let (answer, counted) = link.call_then(&call, wait, ANSWER_WITHIN).await.map_err(error_of)?;
    let strange =
        || CommitError::Unknown { cause: failed::strange(&shared.place, "the script answered something else") };
    let of = |at: usize| names.get(at).map(|name| name.0).ok_or_else(strange);
    match scripts::verdict(answer).ok_or_else(strange)? {
        Verdict::Done => {}
        Verdict::Absent(at) => return Err(refused(shared.absent(of(at)?))),
        Verdict::Fenced(at, current) => return Err(CommitError::Fenced { shard: of(at)?, current }),
        Verdict::Gap(..) | Verdict::Back(_) | Verdict::Lost(_) | Verdict::Mismatch { .. } => return Err(strange()),
    }
    let Some(counted) = counted else { return Ok(()) };
    let answering = answering(&counted).ok_or_else(strange)?;
    match shared.replicas_answer(answering) {
        Ok(()) => {
            shared.journal().is_safe(applied);
            Ok(())
        }
        Err(too_few) => redo::keep(shared, too_few).await.map_err(|cause| CommitError::Unknown { cause }),
    }
}

fn error_of(failed: Failed) -> CommitError {
    match failed {
        Failed::NotApplied(cause) => CommitError::NotApplied { cause },
        Failed::Unknown(cause) => CommitError::Unknown { cause },
    }
}

/// The command that waits for so many replicas.
pub(super) fn wait_of(waiting: ReplicaWait, replicas: u32) -> Cmd {
    let mut command = Cmd::new();
    match waiting {
        ReplicaWait::Memory => command.arg("WAIT"),
        ReplicaWait::Disk => command.arg("WAITAOF").arg(1),
    };
    command.arg(replicas).arg(REPLICAS_WITHIN.as_millis() as u64);
    command
}

/// How many replicas have it: the answer of WAIT, or that of WAITAOF, which counts nobody while it is not on Redis's own disk.
pub(super) fn answering(counted: &Value) -> Option<u32> {
    match counted {
        Value::Int(replicas) => u32::try_from(*replicas).ok(),
        Value::Array(values) => match values[..] {
            [Value::Int(0), Value::Int(_)] => Some(0),
            [Value::Int(_), Value::Int(replicas)] => u32::try_from(replicas).ok(),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_counted_only_where_redis_itself_has_it() {
        assert_eq!(answering(&Value::Int(2)), Some(2));
        assert_eq!(answering(&Value::Array(vec![Value::Int(1), Value::Int(2)])), Some(2));
        assert_eq!(answering(&Value::Array(vec![Value::Int(0), Value::Int(2)])), Some(0));
        assert_eq!(answering(&Value::Okay), None);
        assert_eq!(
            wait_of(ReplicaWait::Memory, 2).get_packed_command(),
            b"*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$3\r\n500\r\n"
        );
        let disk = wait_of(ReplicaWait::Disk, 2).get_packed_command();
        assert_eq!(disk, b"*4\r\n$7\r\nWAITAOF\r\n$1\r\n1\r\n$1\r\n2\r\n$3\r\n500\r\n");
    }
}
