//! What Redis forgot is sent to it once more, in order, and the register is kept meanwhile.
//!
//! That may take longer than a lease lasts, and the other nodes leave the register to its owner for no longer. So the leases
//! are renewed before the first call and every second between them, under the tokens under which the shards stand then;
//! whoever waits for a renewal is told of these (see `RedisShared::leased`). Like all else a renewal is on condition of the
//! token: from somebody who took a shard meanwhile it takes nothing.
//!
//! It is sent so that it is carried out while the memory is full, too: all of it had room there before, and who lets something
//! go must find it.
//!
//! Several calls are on their way at once, on one connection, so Redis runs them in the order in which they are sent. One
//! that does not fit changes nothing, and nor does what follows it on its shard, because that compares where it stands.
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

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);
/// How often the leases are renewed.
const RENEWED_EVERY: Duration = Duration::from_millis(NODE_LEASE_RENEWED_EVERY_MS);
/// Calls on their way at once. Less than a connection's queue takes, so that the order of sending is that of the calls.
const UNDER_WAY_MAX: usize = 16;

/// Plays what is missing where the shards stand so.
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
        // As where it was tried to take the register on a primary that was cut off. Nobody's change is missing.
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
        // Whoever looks again where the shards stand must not be overtaken by what is still on its way. Why it ended is told by
        // the first that was not played: without that nothing behind it fits.
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

/// Renews the leases of the shards that stand under a token of this process. Where somebody else took one meanwhile, whoever
/// asks next is told.
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

/// What a call that is on its way is about.
enum Sent<'a> {
    Part(&'a Forgotten),
    /// The leases, renewed then; and whether these are the leases of all shards that are owned.
    Leases(Instant, bool),
}

struct Playing<'a> {
    shared: &'a RedisShared,
    /// One for all of it: what follows on another would not be in order.
    connection: MultiplexedConnection,
    under_way: VecDeque<(PendingAnswer, Sent<'a>)>,
    /// The shards whose leases can be renewed, each with its token when all is done that was sent.
    stands: Vec<(ShardId, Token)>,
    /// The connection is to be replaced.
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
                // None is without a move; lone batches were put into calls before.
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
            // Under no token it was cut off: that must be heard.
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

    /// Waits for the answer of the first that was sent.
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
                // Of a shard that somebody else took the next call tells, or whoever renews next.
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
