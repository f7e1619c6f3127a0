//! The task that takes shards, keeps their leases and knows the other nodes, on a connection of its own: none of it waits
//! behind a batch.

use std::sync::Arc;
use std::time::Duration;

use redis::{Pipeline, Value};
use tokio::sync::{mpsc, oneshot};

use super::confirms;
use super::heal;
use super::journal::{Move, Point};
use super::late;
use super::link::{self, Failed, Link};
use super::moving;
use super::scripts::{self, Call, Loaded, Taken, Verdict};
use super::shared::Shared;
use crate::limits::NODE_LEASE_MS;
use crate::store::moving::{LastOf, Notice};
use crate::store::{CommitError, Epoch, Head, Holder, NodeCard, Seen, Seq, ShardId, StoreError, Token};

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// What becomes of the leases of all shards that are owned.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lease {
    Renewed,
    Ended,
}

/// A call of `take`, `renew`, `release`, `post`, `holder`, `review` or `meet`.
pub(super) enum Job {
    Take(ShardId, Token, oneshot::Sender<Result<Head, StoreError>>),
    /// What is owned when its turn comes: a take-over before it may have drawn new tokens.
    Lease(Lease, oneshot::Sender<Result<(), StoreError>>),
    /// The register says this of its move, if these are the ends of these shards.
    Post(Option<Notice>, Vec<LastOf>, oneshot::Sender<Result<(), StoreError>>),
    /// Who owns the register?
    Holder(oneshot::Sender<Result<Option<Holder>, StoreError>>),
    /// Is everything that somebody was told of where the shards are owned now?
    Review(oneshot::Sender<Result<(), StoreError>>),
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
                let (shared, confirms) = (Arc::clone(&shared), shared.waits().then(|| confirms.clone()));
                // Beside the next one: their proofs go together.
                tokio::spawn(async move { drop(reply.send(proved(&shared, taken, shard, confirms).await)) });
            }
            Job::Lease(what, reply) => drop(reply.send(lease(&shared, &mut link, what).await)),
            Job::Post(notice, shards, reply) => {
                drop(reply.send(moving::post(&shared, &mut link, notice.as_ref(), &shards).await));
            }
            Job::Holder(reply) => drop(reply.send(holder(&shared, &mut link).await)),
            Job::Review(reply) => {
                let reviewed = match heal::ready(&shared, &mut link).await {
                    Ok(_) => late::review(&shared, &mut link).await,
                    Err(failed) => Err(failed.into_error()),
                };
                drop(reply.send(reviewed));
            }
            Job::Meet(here, reply) => drop(reply.send(meet(&shared, &mut link, here).await)),
        }
    }
}

/// A take-over counts when as many replicas have it as are wanted: nothing is loaded before.
async fn proved(
    shared: &Shared,
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
    shared.line(shard, |line| line.counts(head.token))?;
    Ok(head)
}

async fn take(shared: &Shared, link: &mut Link, shard: ShardId, token: Token) -> Result<Head, StoreError> {
    shared.sound()?;
    heal::ready(shared, link).await.map_err(Failed::into_error)?;
    late::review(shared, link).await?;
    match take_once(shared, link, shard, token).await? {
        Some(head) => Ok(head),
        None if heal::again(shared, link).await? => {
            take_once(shared, link, shard, token).await?.ok_or_else(|| heal::behind(shared))
        }
        None => Err(heal::behind(shared)),
    }
}

/// None if the shard is further back than it was.
async fn take_once(shared: &Shared, link: &mut Link, shard: ShardId, token: Token) -> Result<Option<Head>, StoreError> {
    let (mine, known) = shared.line(shard, |line| (line.mine(), line.known(shard)))?;
    if known.cut == Some(token) {
        // It was taken, and went on from elsewhere.
        return Err(StoreError::Fenced { shard, current: known.epoch });
    }
    let hex_or_none = |token: Option<Token>| token.map_or_else(String::new, |token| scripts::hex(token.0));
    let last = Some(known.token).filter(|_| known.epoch > Epoch(0));
    let mut call = Call::new(&shared.shas, Loaded::Take, &[shared.keys.head(shard)]);
    let card = shared.card();
    call.arg(scripts::hex(token.0)).arg(&card.name).arg(scripts::hex(card.process)).arg(&card.peer_address);
    call.number(NODE_LEASE_MS).arg(hex_or_none(mine)).arg(hex_or_none(last)).number(known.told.seq.0).arg("");
    let value = link.call(&call, ANSWER_WITHIN).await.map_err(Failed::into_error)?;
    let strange = || link::strange(&shared.place, "the script answered something else");
    let head = match scripts::taken(value).ok_or_else(strange)? {
        Taken::Head(head) => head,
        Taken::Held { owner, address, left_ms } => {
            return Err(StoreError::Held { shard, owner: owner.into(), address: address.into(), left_ms });
        }
        Taken::Fenced(current) if current < known.epoch => return Ok(None),
        Taken::Fenced(current) => return Err(StoreError::Fenced { shard, current }),
        Taken::Behind => return Ok(None),
        Taken::Absent => return Err(shared.absent(shard)),
        Taken::Moved(notice) => return Err(moving::moved(&shared.place, shared.keys.prefix(), &notice)),
    };
    if let Err(told) = shared.line(shard, |line| line.take(&head))? {
        let found = format!("at batch {} in epoch {}, after epoch {}", head.seq.0, head.epoch.0, known.epoch.0);
        return Err(shared.went_back(shard, told.0, &found));
    }
    // Another owner was there in between: did it go on from what this one had, or from further back? Then its changes are
    // elsewhere than those that somebody was told of here, and no number tells.
    let other = known.epoch > Epoch(0) && head.parent != known.token && head.token != known.token;
    if other && known.told.seq > Seq(0) && !heal::is_on_line(shared, link, shard, known.told, &head).await? {
        return Err(shared.went_back(shard, known.told.seq.0, "another owner's, who went on from further back"));
    }
    if head.token != known.token {
        let after = Point::of(&head);
        let before = Point { token: head.parent, ..after };
        shared.journal().took(Move { shard, before, after }, head.epoch);
    }
    Ok(Some(head))
}

async fn lease(shared: &Shared, link: &mut Link, what: Lease) -> Result<(), StoreError> {
    shared.sound()?;
    let (shards, ms) = match what {
        Lease::Renewed => (shared.owned(), NODE_LEASE_MS),
        Lease::Ended => (shared.let_go(), 0),
    };
    if shards.is_empty() {
        return Ok(());
    }
    heal::ready(shared, link).await.map_err(Failed::into_error)?;
    match lease_once(shared, link, &shards, ms).await {
        // By another owner, or because Redis went back behind the take-over?
        Err(StoreError::Fenced { .. }) if heal::again(shared, link).await? => {
            lease_once(shared, link, &shards, ms).await
        }
        ended => ended,
    }
}

async fn lease_once(shared: &Shared, link: &mut Link, shards: &[(ShardId, Token)], ms: u64) -> Result<(), StoreError> {
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
        Verdict::Gap(..) | Verdict::Back(_) | Verdict::Lost(_) | Verdict::Mismatch { .. } => Err(strange()),
    }
}

/// By the head of the first shard: whoever has that takes the others (see `actors::service`).
async fn holder(shared: &Shared, link: &mut Link) -> Result<Option<Holder>, StoreError> {
    shared.sound()?;
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.cmd("TIME").cmd("HMGET").arg(shared.keys.head(ShardId(0))).arg(&["owner", "node", "address", "lease"]);
    let answer = link.read(&pipeline, ANSWER_WITHIN).await?;
    let strange = || link::strange(&shared.place, "a head is none");
    let [time, head] = <[Value; 2]>::try_from(answer).map_err(|_| strange())?;
    let (seconds, micros): (u64, u64) = redis::from_redis_value(time).map_err(|_| strange())?;
    let head: (Option<String>, Option<String>, Option<String>, Option<u64>) =
        redis::from_redis_value(head).map_err(|_| strange())?;
    let (Some(name), Some(process), address, Some(lease)) = head else { return Err(shared.absent(ShardId(0))) };
    let now = seconds * 1_000 + micros / 1_000;
    // As the script that takes shards sees it: a lease that ends later than any given now is from a clock that went back.
    if lease <= now || lease - now > 2 * NODE_LEASE_MS {
        return Ok(None);
    }
    let process = u128::from_str_radix(&process, 16).map_err(|_| strange())?;
    Ok(Some(Holder { name: name.into(), process, address: address.unwrap_or_default().into() }))
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

/// `PROCESS VERSION PEERS CLIENTS STATE`; addresses may be missing.
fn card_text(card: &NodeCard) -> String {
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    format!(
        "{} {} {} {} {}",
        scripts::hex(card.process),
        or_dash(&card.version),
        or_dash(&card.peer_address),
        or_dash(&card.address),
        if card.draining { "draining" } else { "-" }
    )
}

pub(super) fn card_of(name: String, text: &str) -> Option<NodeCard> {
    let mut words = text.split(' ').map(|word| if word == "-" { "" } else { word });
    let process = u128::from_str_radix(words.next()?, 16).ok()?;
    let (version, peer_address, address) =
        (words.next()?.to_owned(), words.next()?.to_owned(), words.next()?.to_owned());
    // Not there in what an older node writes.
    let draining = words.next() == Some("draining");
    Some(NodeCard { name, process, version, peer_address, address, draining })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_read_as_it_was_written() {
        let mut card = NodeCard {
            name: "a b".to_owned(),
            process: 7,
            version: "0.1.0".to_owned(),
            peer_address: String::new(),
            address: "127.0.0.1:7400".to_owned(),
            draining: true,
        };
        assert_eq!(card_of(card.name.clone(), &card_text(&card)), Some(card.clone()));
        card.draining = false;
        let text = card_text(&card);
        assert_eq!(card_of(card.name.clone(), &text), Some(card.clone()));
        assert_eq!(card_of(card.name.clone(), text.rsplit_once(' ').unwrap().0), Some(card), "by an older node");
        assert_eq!(card_of("x".to_owned(), "zz"), None);
    }
}
