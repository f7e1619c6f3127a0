//! Sends to Redis once more, in order, what it forgot, and keeps the leases of the register meanwhile.
//!
//! A replay may take longer than a lease lasts, and other nodes leave the register to its owner for no longer than that. So
//! the leases are renewed before the first call, and every second between calls, under the tokens under which the shards
//! stand then. Whoever waits for a renewal is told of these (see `RedisShared::leased`). Like all else, a renewal is
//! conditional on the token: it takes nothing from a node that took a shard meanwhile.
//!
//! The calls are sent in a form that runs even if the memory is full: there was room for all of them before, and a client
//! that lets something go must find it.
//!
//! Several calls are under way at once on one connection, so Redis runs them in the order of sending. A call that does not
//! fit changes nothing, and neither does any call after it on the same shard, because that one compares where the shard stands.
//!
//! Neighbours: `heal` knows what is missing; `journal` remembered it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use super::checks;
use super::failed::Failed;
use super::heal::Unplayed;
use super::journal::{Deed, Forgotten, Move, Point};
use super::left;
use super::link::{self, Link, PendingAnswer};
use super::scripts::{self, ScriptCall, TakeAnswer, Verdict};
use super::shared::RedisShared;
use super::take::TakeOver;
use crate::limits::{NODE_LEASE_MS, NODE_LEASE_RENEWED_EVERY_MS};
use crate::store::{Epoch, Head, ShardId, Token};

const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);
const RENEWED_EVERY: Duration = Duration::from_millis(NODE_LEASE_RENEWED_EVERY_MS);
/// How many calls are under way at once. Fewer than the queue of a connection holds, so that they are sent in the order of
/// the calls.
const UNDER_WAY_MAX: usize = 16;

/// Replays what is missing, given where the shards stand.
pub(super) async fn play(
    shared: &RedisShared,
    link: &mut Link,
    heads: &[(ShardId, Head)],
    missing: &[Forgotten],
) -> Result<(), Unplayed> {
    if missing.is_empty() {
        return Ok(());
    }
    let batches: usize =
        missing.iter().map(|missing| if matches!(missing.deed, Deed::Take(_)) { 0 } else { missing.moves.len() }).sum();
    if batches == 0 {
        let take_overs = missing.len();
        // This happens if the node tried to take the register on a primary that was cut off. No client's change is missing.
        tracing::info!(redis = %shared.place, take_overs, "take-overs that Redis lacks are played again, and no change");
    } else if let Some(unsaid) = shared.says_played.turn() {
        tracing::warn!(
            redis = %shared.place,
            batches,
            calls = missing.len(),
            unsaid,
            "Redis went back: what it lost of this server's changes is played again"
        );
    }
    let missing = &left::together(shared, missing).map_err(Unplayed::Later)?[..];
    let (connection, number) = link.connected().await.map_err(later)?;
    let mut playing =
        Playing { shared, connection, under_way: VecDeque::new(), stands: own(shared, heads), is_broken: false };
    let mut played = playing.all(missing).await;
    while played.is_err() && !playing.is_broken && !playing.under_way.is_empty() {
        // Calls still under way must not overtake the next look at where the shards stand. The first call that was not
        // applied says why it ended: without that one, nothing after it fits.
        let ended = playing.end_one().await;
        played = played.and(ended);
    }
    if playing.is_broken {
        link.broken(number);
    }
    shared.journal().played(missing, played.is_ok());
    played?;
    shared.played();
    if batches > 0 {
        tracing::warn!(redis = %shared.place, batches, "Redis has them again");
    }
    Ok(())
}

/// Renews the leases of the shards that stand under a token of this process. If another node took one meanwhile, the next
/// call will find out.
pub(super) async fn keep(shared: &RedisShared, link: &mut Link, heads: &[(ShardId, Head)]) -> Result<(), Unplayed> {
    let stands = own(shared, heads);
    if !stands.is_empty() {
        link.call(&checks::lease_call(shared, &stands, NODE_LEASE_MS), ANSWER_WITHIN).await.map_err(later)?;
    }
    Ok(())
}

fn later(failed: Failed) -> Unplayed {
    Unplayed::Later(failed.into_error())
}

/// The shards that stand under a token of this process.
fn own(shared: &RedisShared, heads: &[(ShardId, Head)]) -> Vec<(ShardId, Token)> {
    let (lines, journal) = (shared.lines(), shared.journal());
    let is_own = |&&(shard, head): &&(ShardId, Head)| {
        journal.is_own(shard, head.token) || lines.iter().any(|line| line.shard == shard && line.token == head.token)
    };
    heads.iter().filter(is_own).map(|&(shard, head)| (shard, head.token)).collect()
}

/// What a call that is under way is for.
enum Sent<'a> {
    Part(&'a Forgotten),
    /// Renews leases: when it was sent, and whether it covers all shards that are owned.
    Leases(Instant, bool),
}

struct Playing<'a> {
    shared: &'a RedisShared,
    /// A single one for everything: calls on another connection would not be in order.
    connection: MultiplexedConnection,
    under_way: VecDeque<(PendingAnswer, Sent<'a>)>,
    /// The shards whose leases can be renewed, with the token that each has once everything sent so far is applied.
    stands: Vec<(ShardId, Token)>,
    /// The connection must be replaced.
    is_broken: bool,
}

impl<'a> Playing<'a> {
    async fn all(&mut self, missing: &'a [Forgotten]) -> Result<(), Unplayed> {
        let mut renewed: Option<Instant> = None;
        for part in missing {
            if renewed.is_none_or(|renewed| renewed.elapsed() >= RENEWED_EVERY) {
                renewed = Some(Instant::now());
                self.renew().await?;
            }
            let call = match (&part.deed, part.moves.first()) {
                (Deed::Commit(call), Some(_)) => call.letting_go(&self.shared.shas),
                (Deed::Take(_), Some(taken)) => Arc::new(self.take_over(taken)?),
                // Every entry has a move, and lone batches were put into calls before.
                (Deed::Commit(_) | Deed::Take(_), None) | (Deed::Batch(_), _) => continue,
            };
            self.send(call, Sent::Part(part)).await?;
        }
        while !self.under_way.is_empty() {
            self.end_one().await?;
        }
        Ok(())
    }

    async fn renew(&mut self) -> Result<(), Unplayed> {
        let of_all = |&(shard, token): &(ShardId, Token)| {
            // A shard under token 0 was cut off; whoever renews must hear of this.
            token != Token(0) && self.stands.iter().any(|(other, _)| *other == shard)
        };
        let is_of_all = self.shared.owned().iter().all(of_all);
        if self.stands.is_empty() {
            return Ok(());
        }
        let call = checks::lease_call(self.shared, &self.stands, NODE_LEASE_MS);
        self.send(Arc::new(call), Sent::Leases(Instant::now(), is_of_all)).await
    }

    /// Takes a shard over once more, under the same token, from exactly the head from which it was taken.
    fn take_over(&mut self, &Move { shard, before, after }: &Move) -> Result<ScriptCall, Unplayed> {
        let wanted = Some(self.shared.line(shard, |line| line.format()).map_err(Unplayed::Later)?);
        let Point { token, seq, digest } = before;
        let (mine, last, digest) = (Some(token), Some(token), Some(digest));
        self.stands.retain(|(other, _)| *other != shard);
        self.stands.push((shard, after.token));
        Ok(TakeOver { shard, token: after.token, mine, last, seq, digest, wanted }.call(self.shared))
    }

    async fn send(&mut self, call: Arc<ScriptCall>, sent: Sent<'a>) -> Result<(), Unplayed> {
        while self.under_way.len() >= UNDER_WAY_MAX {
            self.end_one().await?;
        }
        let answer = link::begin(self.connection.clone(), call).await;
        self.under_way.push_back((answer, sent));
        Ok(())
    }

    /// Waits for the answer to the call that was sent first.
    async fn end_one(&mut self) -> Result<(), Unplayed> {
        let Some((answer, sent)) = self.under_way.pop_front() else { return Ok(()) };
        let (answer, is_over) = link::finish(answer, ANSWER_WITHIN, &self.shared.place).await;
        self.is_broken |= is_over;
        let value = answer.map_err(later)?;
        match sent {
            Sent::Part(Forgotten { deed: Deed::Commit(_), moves }) => self.committed(value, moves),
            Sent::Part(Forgotten { deed: Deed::Take(epoch), moves }) => self.taken(value, moves, *epoch),
            Sent::Part(Forgotten { deed: Deed::Batch(_), .. }) => Ok(()),
            Sent::Leases(at, is_of_all) => {
                // If another node took a shard, the next call says so, or the next renewal.
                if is_of_all && scripts::verdict(value) == Some(Verdict::Done) {
                    self.shared.leased(at);
                }
                Ok(())
            }
        }
    }

    fn committed(&self, value: Value, moves: &[Move]) -> Result<(), Unplayed> {
        let Some(first) = moves.first() else { return Ok(()) };
        let verdict = scripts::verdict(value);
        if verdict != Some(Verdict::Done) {
            tracing::warn!(shard = first.shard.0, ?verdict, "Redis does not take what is missing there");
            return Err(Unplayed::Never(first.shard));
        }
        self.shared.heals(moves.len() as u64);
        Ok(())
    }

    fn taken(&self, value: Value, moves: &[Move], epoch: Epoch) -> Result<(), Unplayed> {
        let Some(&Move { shard, after, .. }) = moves.first() else { return Ok(()) };
        match scripts::taken(value) {
            Some(TakeAnswer::Taken(head, _)) if head.epoch == epoch && Point::of(&head) == after => {
                self.shared.heals(0);
                Ok(())
            }
            other => {
                tracing::warn!(shard = shard.0, ?other, "Redis does not take a take-over that is missing there");
                Err(Unplayed::Never(shard))
            }
        }
    }
}
