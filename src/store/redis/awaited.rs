//! Redis went back past a hand-over, and another node must give back its part first.
//!
//! A node remembers only what it changed itself. Between two of its own tenures there is what other nodes changed while
//! they owned the register. So a head may be older than everything that this node remembers, or stand at the end of one
//! of its earlier tenures, and yet nothing need be lost: the nodes that owned the shard in between may be alive. They
//! replay their parts one after another, each as soon as the head stands where its take-over found it. Until then this
//! node gives up nothing, and asks Redis for nothing else.
//!
//! The wait is bounded, because those nodes may be gone: by two leases in which no shard moves, and by a minute in any case.
//!
//! Called by `heal`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::heal::Unplayed;
use super::journal::{Forgotten, Journal, Point, ToReplay};
use super::link::Link;
use super::playing;
use super::shared::RedisShared;
use crate::limits::NODE_LEASE_MS;
use crate::store::{Epoch, Head, ShardId, StoreError};

/// How long to wait while no shard moves.
const STANDS_STILL: Duration = Duration::from_millis(2 * NODE_LEASE_MS);
const WAITS_MAX: Duration = Duration::from_secs(60);

/// A longer pause between two looks is time during which Redis was not reached.
const LOOKS_EVERY_MAX: Duration = Duration::from_secs(2);

pub(super) type Points = [(ShardId, Point)];

/// How long this node has waited, and where the shards stood at the last look.
#[derive(Debug)]
pub(super) struct Awaited {
    looked: Instant,
    waited: Duration,
    /// How long no shard has moved.
    still: Duration,
    stood: Vec<(ShardId, Point)>,
}

/// Notes another look. Is it still worth waiting for another node?
pub(super) fn looks(awaited: &mut Option<Awaited>, points: &Points, now: Instant) -> bool {
    let Awaited { looked, waited, still, stood } = awaited.get_or_insert_with(|| Awaited {
        looked: now,
        waited: Duration::ZERO,
        still: Duration::ZERO,
        stood: points.to_vec(),
    });
    // While Redis was out of reach no node could give back anything.
    let since = now.saturating_duration_since(*looked).min(LOOKS_EVERY_MAX);
    *looked = now;
    *waited += since;
    *still += since;
    if stood != points {
        (*still, *stood) = (Duration::ZERO, points.to_vec());
    }
    *still < STANDS_STILL && *waited < WAITS_MAX
}

/// Which of these shards another node may still bring to where this process took them over.
pub(super) fn may_come(
    journal: &Journal,
    elsewhere: &[ShardId],
    heads: &[(ShardId, Head)],
    standing: &Points,
) -> Vec<ShardId> {
    let may_come = |shard: &ShardId| {
        let head = heads.iter().find(|(other, _)| other == shard).map(|(_, head)| head)?;
        let goal = standing.iter().find(|(other, _)| other == shard).map(|(_, goal)| *goal)?;
        let (begins, epoch) = journal.begins(*shard, goal)?;
        may_lead(head, begins, epoch).then_some(())
    };
    elsewhere.iter().filter(|shard| may_come(shard).is_some()).copied().collect()
}

/// Can the line of this head still reach this point of this epoch? On one line epochs and numbers of batches only rise.
fn may_lead(head: &Head, point: Point, epoch: Epoch) -> bool {
    head.epoch < epoch || (head.epoch == epoch && head.token == point.token && head.seq < point.seq)
}

/// Replays the next part of this process, keeps the register for the node that has the part after it, and reports what is
/// awaited.
pub(super) async fn wait(
    shared: &RedisShared,
    link: &mut Link,
    heads: &[(ShardId, Head)],
    points: &Points,
    standing: &Points,
    awaited: &[ShardId],
) -> Result<(), Unplayed> {
    let ToReplay { mut missing, .. } = {
        let journal = shared.journal();
        let goal = |&(shard, goal): &(ShardId, Point)| match points.iter().find(|(other, _)| *other == shard) {
            Some((_, head)) if awaited.contains(&shard) => (shard, journal.onward(shard, *head)),
            Some(_) | None => (shard, goal),
        };
        let goals: Vec<(ShardId, Point)> = standing.iter().map(goal).collect();
        journal.missing(points, &goals)
    };
    // A change of several shards waits for the shard that other nodes must bring forward first, and everything after it
    // waits as well.
    let mut stand: HashMap<ShardId, Point> = points.iter().copied().collect();
    missing.retain(|Forgotten { moves, deed }| {
        let fits = !deed.is_found() && moves.iter().all(|one| stand.get(&one.shard) == Some(&one.before));
        if fits {
            stand.extend(moves.iter().map(|one| (one.shard, one.after)));
        }
        fits
    });
    if missing.is_empty() {
        playing::keep(shared, link, heads).await?;
    } else {
        playing::play(shared, link, heads, &missing).await?;
    }
    let at = awaited.first().and_then(|shard| heads.iter().find(|(other, _)| other == shard));
    let at = at.map_or_else(String::new, |(shard, head)| {
        format!(": shard {} stands at batch {} in epoch {}", shard.0, head.seq.0, head.epoch.0)
    });
    let text =
        format!("it went back past a hand-over{at}; the node that owned the register then gives back its part first");
    let context = format!("asking Redis at {}", shared.place).into();
    Err(Unplayed::Later(StoreError::Io { context, source: Arc::new(std::io::Error::other(text)) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Digest, Seq, Token};

    fn point(token: u128, seq: u64) -> Point {
        Point { token: Token(token), seq: Seq(seq), digest: Digest(u128::from(seq) * 7) }
    }

    #[test]
    fn only_a_head_before_the_take_over_may_come_to_where_that_found_it() {
        let head =
            |epoch, token, seq| Head { epoch: Epoch(epoch), token: Token(token), seq: Seq(seq), ..Head::default() };
        let found = (point(2, 9), Epoch(5));
        for (head, may) in [
            (head(5, 2, 8), true),
            (head(4, 1, 6), true),
            // The shard went further, under that token or another.
            (head(5, 2, 10), false),
            (head(5, 3, 8), false),
            (head(6, 3, 8), false),
        ] {
            assert_eq!(may_lead(&head, found.0, found.1), may, "{head:?}");
        }
    }

    #[test]
    fn what_stands_still_for_two_leases_or_moves_for_a_minute_is_not_waited_for() {
        let now = Instant::now();
        let at = |seconds, seq| (now + Duration::from_secs(seconds), [(ShardId(0), point(1, seq))]);
        // The last second of the wait, given at which batch the shard stands at each time.
        let until = |stands: fn(u64) -> u64, seconds: &[u64]| {
            let mut awaited = None;
            let waits = |&second: &u64| {
                let (now, points) = at(second, stands(second));
                looks(&mut awaited, &points, now)
            };
            seconds.iter().copied().zip(seconds.iter().map(waits)).find(|(_, waits)| !waits).map(|(second, _)| second)
        };
        let every: Vec<u64> = (0..100).collect();
        assert_eq!(until(|_| 5, &every), Some(10));
        assert_eq!(until(|second| second.min(9), &every), Some(19));
        assert_eq!(until(|second| second, &every), Some(60));
        // Redis was out of reach in between.
        let gone: Vec<u64> = (0..5).chain(200..300).collect();
        assert_eq!(until(|_| 5, &gone), Some(204));
    }
}
