//! The task that takes shards, keeps their leases and knows the other nodes, on a connection of its own: none of it waits
//! behind a batch.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::confirms;
use super::link::{self, Failed, Link};
use super::scripts::{self, Call, Loaded, Taken, Verdict};
use super::shared::Shared;
use crate::limits::NODE_LEASE_MS;
use crate::store::{CommitError, Head, NodeCard, Seen, ShardId, StoreError, Token};

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// A call of `take`, `renew`, `release` or `meet`.
pub(super) enum Job {
    Take(ShardId, Token, oneshot::Sender<Result<Head, StoreError>>),
    /// These shards, under these tokens, for so many milliseconds more.
    Lease(Vec<(ShardId, Token)>, u64, oneshot::Sender<Result<(), StoreError>>),
    /// This node is here, or gone.
    Meet(bool, oneshot::Sender<Result<Vec<Seen>, StoreError>>),
}

/// Runs until every sender is gone.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut link: Link,
    mut jobs: mpsc::Receiver<Job>,
    confirms: mpsc::Sender<confirms::Job>,
) {
    while let Some(job) = jobs.recv().await {
        // Nobody may wait any more: then the outcome is nobody's.
        match job {
            Job::Take(shard, token, reply) => {
                let taken = take(&shared, &mut link, shard, token).await;
                let confirms = shared.waits().then(|| confirms.clone());
                // Beside the next one: their proofs go together.
                tokio::spawn(async move { drop(reply.send(proved(taken, shard, confirms).await)) });
            }
            Job::Lease(shards, ms, reply) => drop(reply.send(lease(&shared, &mut link, &shards, ms).await)),
            Job::Meet(here, reply) => drop(reply.send(meet(&shared, &mut link, here).await)),
        }
    }
}

/// A take-over counts when as many replicas have it as are wanted: nothing is loaded before.
async fn proved(
    taken: Result<Head, StoreError>,
    shard: ShardId,
    confirms: Option<mpsc::Sender<confirms::Job>>,
) -> Result<Head, StoreError> {
    let head = taken?;
    if let Some(confirms) = confirms {
        let name = (shard, head.token, head.seq, head.digest);
        confirms::ask(&confirms, vec![name], None).await.map_err(|error| match error {
            CommitError::NotApplied { cause } | CommitError::Unknown { cause } => cause,
            CommitError::Fenced { shard, current } => StoreError::Fenced { shard, current },
            error @ CommitError::Mismatch { .. } => StoreError::Invalid(error.to_string().into()),
        })?;
    }
    Ok(head)
}

async fn take(shared: &Shared, link: &mut Link, shard: ShardId, token: Token) -> Result<Head, StoreError> {
    shared.sound()?;
    let mine = shared.line(shard, |line| line.mine())?;
    let mut call = Call::new(&shared.shas, Loaded::Take, &[shared.keys.head(shard)]);
    let card = shared.card();
    call.arg(scripts::hex(token.0)).arg(&card.name).arg(scripts::hex(card.process)).arg(&card.peer_address);
    call.number(NODE_LEASE_MS).arg(mine.map_or_else(String::new, |token| scripts::hex(token.0)));
    let value = link.call(&call, ANSWER_WITHIN).await.map_err(Failed::into_error)?;
    let strange = || link::strange(&shared.place, "the script answered something else");
    let head = match scripts::taken(value).ok_or_else(strange)? {
        Taken::Head(head) => head,
        Taken::Held { owner, address, left_ms } => {
            return Err(StoreError::Held { shard, owner: owner.into(), address: address.into(), left_ms });
        }
        Taken::Fenced(current) => return Err(StoreError::Fenced { shard, current }),
        Taken::Absent => return Err(shared.absent(shard)),
    };
    let followed = shared.line(shard, |line| (line.take(&head), line.epoch()))?;
    if let (Err(acknowledged), epoch) = followed {
        let found = format!("at batch {} in epoch {}, after epoch {}", head.seq.0, head.epoch.0, epoch.0);
        return Err(shared.went_back(shard, acknowledged.0, &found));
    }
    Ok(head)
}

async fn lease(shared: &Shared, link: &mut Link, shards: &[(ShardId, Token)], ms: u64) -> Result<(), StoreError> {
    shared.sound()?;
    let keys: Vec<String> = shards.iter().map(|(shard, _)| shared.keys.head(*shard)).collect();
    let mut call = Call::new(&shared.shas, Loaded::Lease, &keys);
    call.number(ms);
    for (_, token) in shards {
        call.arg(scripts::hex(token.0));
    }
    let answer = link.call(&call, ANSWER_WITHIN).await.map_err(Failed::into_error)?;
    let strange = || link::strange(&shared.place, "the script answered something else");
    let of = |at: usize| shards.get(at).map(|(shard, _)| *shard).ok_or_else(strange);
    match scripts::verdict(answer).ok_or_else(strange)? {
        Verdict::Done => Ok(()),
        Verdict::Absent(at) => Err(shared.absent(of(at)?)),
        Verdict::Fenced(at, current) => Err(StoreError::Fenced { shard: of(at)?, current }),
        Verdict::Gap(..) | Verdict::Back(_) | Verdict::Mismatch { .. } => Err(strange()),
    }
}

async fn meet(shared: &Shared, link: &mut Link, here: bool) -> Result<Vec<Seen>, StoreError> {
    let own = shared.card();
    let mut call = Call::new(&shared.shas, Loaded::Nodes, &[shared.keys.nodes()]);
    let text = if here { card_text(&own) } else { String::new() };
    call.arg(&own.name).arg(scripts::hex(own.process)).arg(text).number(NODE_LEASE_MS);
    let answer = link.call(&call, ANSWER_WITHIN).await.map_err(Failed::into_error)?;
    let strange = || link::strange(&shared.place, "the script answered something else");
    let nodes = scripts::nodes(answer).ok_or_else(strange)?.map_err(|age_ms| {
        let text = format!(
            "another node of the name `{}` was seen at Redis at {} {age_ms} ms ago; give each node a name of its own by \
             `--node NAME` (`server.node`), or wait until the other one is gone",
            own.name, shared.place
        );
        StoreError::Locked(text.into())
    })?;
    Ok(nodes
        .into_iter()
        .filter_map(|(name, age_ms, text)| Some(Seen { card: card_of(name, &text)?, age_ms }))
        .collect())
}

/// `PROCESS VERSION PEERS CLIENTS`; addresses may be missing.
fn card_text(card: &NodeCard) -> String {
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    format!(
        "{} {} {} {}",
        scripts::hex(card.process),
        or_dash(&card.version),
        or_dash(&card.peer_address),
        or_dash(&card.address)
    )
}

fn card_of(name: String, text: &str) -> Option<NodeCard> {
    let mut words = text.split(' ').map(|word| if word == "-" { "" } else { word });
    let process = u128::from_str_radix(words.next()?, 16).ok()?;
    let (version, peer_address, address) =
        (words.next()?.to_owned(), words.next()?.to_owned(), words.next()?.to_owned());
    Some(NodeCard { name, process, version, peer_address, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_read_as_it_was_written() {
        let card = NodeCard {
            name: "a b".to_owned(),
            process: 7,
            version: "0.1.0".to_owned(),
            peer_address: String::new(),
            address: "127.0.0.1:7400".to_owned(),
        };
        assert_eq!(card_of(card.name.clone(), &card_text(&card)), Some(card));
        assert_eq!(card_of("x".to_owned(), "zz"), None);
    }
}
