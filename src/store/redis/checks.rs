//! The task that takes shards and proves ownership, on a connection of its own: neither waits behind a batch.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::link::{self, Failed, Link};
use super::scripts::{self, Call, Loaded, Verdict};
use super::shared::Shared;
use crate::store::{CommitError, Digest, Head, Seq, ShardId, StoreError, Token};

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// What a check names: a batch on a shard's line, and the token under which it is asked.
pub(super) type Name = (ShardId, Token, Seq, Digest);

/// A call of `take` or `confirm`.
pub(super) enum Job {
    Take(ShardId, Token, oneshot::Sender<Result<Head, StoreError>>),
    Confirm(Vec<Name>, oneshot::Sender<Result<(), CommitError>>),
}

/// Runs until every sender is gone.
pub(super) async fn run(shared: Arc<Shared>, mut link: Link, mut jobs: mpsc::Receiver<Job>) {
    while let Some(job) = jobs.recv().await {
        // Nobody may wait any more: then the outcome is nobody's.
        match job {
            Job::Take(shard, token, reply) => drop(reply.send(take(&shared, &mut link, shard, token).await)),
            Job::Confirm(names, reply) => drop(reply.send(confirm(&shared, &mut link, &names).await)),
        }
    }
}

async fn take(shared: &Shared, link: &mut Link, shard: ShardId, token: Token) -> Result<Head, StoreError> {
    shared.sound()?;
    shared.line(shard, |_| ())?;
    let mut call = Call::new(&shared.shas, Loaded::Take, &[shared.keys.head(shard)]);
    // The lease begins to count when several servers share a register.
    call.arg(scripts::hex(token.0)).arg(&shared.owner).number(0);
    let value = link.call(&call, ANSWER_WITHIN).await.map_err(Failed::into_error)?;
    let strange = || link::strange(&shared.place, "the script answered something else");
    let Some(head) = scripts::taken(value).ok_or_else(strange)? else { return Err(shared.absent(shard)) };
    let followed = shared.line(shard, |line| (line.take(&head), line.epoch()))?;
    if let (Err(acknowledged), epoch) = followed {
        let found = format!("at batch {} in epoch {}, after epoch {}", head.seq.0, head.epoch.0, epoch.0);
        return Err(shared.went_back(shard, acknowledged.0, &found));
    }
    Ok(head)
}

async fn confirm(shared: &Shared, link: &mut Link, names: &[Name]) -> Result<(), CommitError> {
    let refused = |cause| CommitError::NotApplied { cause };
    shared.sound().map_err(refused)?;
    let mut keys = Vec::with_capacity(2 * names.len());
    for &(shard, ..) in names {
        shared.line(shard, |_| ()).map_err(refused)?;
        keys.extend([shared.keys.head(shard), shared.keys.log(shard)]);
    }
    let mut call = Call::new(&shared.shas, Loaded::Confirm, &keys);
    for &(_, token, seq, digest) in names {
        call.arg(scripts::hex(token.0)).number(seq.0).arg(scripts::hex(digest.0));
    }
    let answer = link.call(&call, ANSWER_WITHIN).await.map_err(|failed| match failed {
        Failed::NotApplied(cause) => CommitError::NotApplied { cause },
        Failed::Unknown(cause) => CommitError::Unknown { cause },
    })?;
    let strange = || CommitError::Unknown { cause: link::strange(&shared.place, "the script answered something else") };
    let of = |at: usize| names.get(at).map(|name| name.0).ok_or_else(strange);
    match scripts::verdict(answer).ok_or_else(strange)? {
        Verdict::Done => Ok(()),
        Verdict::Absent(at) => Err(refused(shared.absent(of(at)?))),
        Verdict::Fenced(at, current) => Err(CommitError::Fenced { shard: of(at)?, current }),
        Verdict::Gap(..) | Verdict::Back(_) | Verdict::Mismatch { .. } => Err(strange()),
    }
}
