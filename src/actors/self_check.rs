//! The self-check: is what this node serves what the next start would load? Done at intervals, shard after shard, alongside
//! everything else.
//!
//! Memory that became wrong, a record that somebody changed in Redis by hand, a byte that a disk changed: each goes unnoticed
//! until a restart or another node relies on the store, and gives away what somebody holds. So the shard is read as a start
//! reads it, networks are built from it, and each network in memory is compared with its own (`core::network::compare`).
//!
//! ```text
//! read the shard ──▶ compare, slice by slice ──▶ differences ──▶ wait until all of it is durable ──▶ leave out what was decided
//!  (as of a head)     (as of later moments)                                                        meanwhile: read the log from
//!                                                                                                  that head on
//! ```
//!
//! A difference that two readings confirm is real: the network is stopped, the others go on, and the log says where and what.
//! Nothing is repaired automatically: nobody knows which of the two is right. Requests that only read are still answered from
//! memory (`network::working`): that memory is gone with the next start, and the operator who decides must have seen it.
//!
//! Records of deployments are compared, too (`deployments`), and the head of the shard: no network is stopped for these. What stands beside
//! the shards the store compares itself ([`Store::reread`]).
//!
//! A thread of its own with a low priority. A shard takes its memory twice while it is looked at. Where more is decided than can
//! be told apart, a network is left for the next time.
//!
//! Neighbours: `shard` compares one shard. `network::comparing` is the actors' part.
//!
//! Review notes: does a network that is created, deleted or loaded meanwhile count as different? Does everything end with its
//! tenure?

mod deployments;
mod shard;

use std::sync::{Arc, Weak};
use std::time::Duration;

use self::shard::{Look, OddNetwork};
use super::background;
use super::service::Shared;
use crate::store::{ShardId, Store, StoreError, StoreHealth, chain};

/// Niceness of its thread relative to the others.
const NICE: i32 = 15;
/// How soon after the beginning of a tenure the first check is made, if the interval is not shorter anyway.
const FIRST_AFTER: Duration = Duration::from_secs(3_600);
/// How soon something unreadable is looked at again: it may be brought back.
const UNREADABLE_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Time between two readings of a shard, if the first found a difference.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often a network is asked to stop: it may be held at that moment.
const STOP_TRIES: u32 = 50;
const STOP_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Starts the self-check of a tenure, which it does not keep alive; without an interval it is never made.
pub fn start(shared: &Arc<Shared>, every: Option<Duration>) {
    let Some(every) = every else { return };
    let shared = Arc::downgrade(shared);
    if let Err(error) = background::start("self-check", NICE, async move || run(&shared, every).await) {
        tracing::warn!(%error, "no self-check is made");
    }
}

async fn run(shared: &Weak<Shared>, every: Duration) {
    let Some((closing, metrics)) = shared.upgrade().map(|shared| (shared.feed.closing(), Arc::clone(&shared.metrics)))
    else {
        return;
    };
    let rounds = async {
        let mut wait = every.min(FIRST_AFTER);
        loop {
            tokio::time::sleep(wait).await;
            let Some(shared) = shared.upgrade() else { return };
            let unreadable = check(&shared).await;
            metrics.unreadable_shards.set(unreadable);
            wait = if unreadable > 0 { every.min(UNREADABLE_AGAIN_AFTER) } else { every };
        }
    };
    closing.run_until_cancelled(rounds).await;
    // The next owner of the register will find it too.
    metrics.unreadable_shards.set(0);
}

/// Checks every shard, and what else the next start reads. Returns how many of these cannot be read.
async fn check(shared: &Arc<Shared>) -> i64 {
    let mut unreadable = 0;
    for shard in (0..shared.info.shards).map(ShardId) {
        let outcome = match check_shard(shared, shard).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let is_unreadable = is_unreadable(shared, &error, format_args!("shard {}", shard.0));
                unreadable += i64::from(is_unreadable);
                if is_unreadable { "unreadable" } else { "put_off" }
            }
        };
        shared.metrics.self_checks.with_label_values(&[outcome]).inc();
    }
    if let Err(error) = reread(&*shared.store).await {
        unreadable += i64::from(is_unreadable(shared, &error, format_args!("what stands beside the shards")));
    }
    unreadable
}

/// Reads what a start reads besides the shards.
async fn reread(store: &dyn Store) -> Result<(), StoreError> {
    let mut from = Some(0);
    while let Some(at) = from {
        from = store.reread(at).await?;
    }
    Ok(())
}

/// Is it damaged or gone, for good? Then the log says so. A store that failed because of it, for example one that was emptied,
/// reports itself what happens next.
fn is_unreadable(shared: &Shared, error: &StoreError, what: std::fmt::Arguments<'_>) -> bool {
    if !error.stays_unread() || shared.store.health() == StoreHealth::Failed {
        tracing::debug!(error = chain(error), "self-check: {what} is left for the next time");
        return false;
    }
    // The advice for a start is not the advice for now.
    let error = shared.store.damage().map_or_else(|| chain(error), |damage| damage.to_string());
    tracing::error!(
        error,
        "self-check: {what} cannot be read, or is not what this server knows: export the register before anything else. What is \
         served is whole, in memory; the next start, and the next owner, will refuse what is stored or go by it, and over Redis a \
         change at that place ends the server"
    );
    true
}

/// Checks one shard. Returns how that ended, as `/metrics` names it.
async fn check_shard(shared: &Arc<Shared>, shard: ShardId) -> Result<&'static str, StoreError> {
    let first = shard::look(shared, shard).await?;
    if first.is_even() {
        return Ok(if first.skipped == 0 { "same" } else { "put_off" });
    }
    tokio::time::sleep(AGAIN_AFTER).await;
    let Look { odd, skipped, deployments, head } = shard::look(shared, shard).await?;
    let twice: Vec<OddNetwork> = odd.into_iter().filter_map(|again| again.also_in(&first.odd)).collect();
    for network in &twice {
        stop(network).await;
    }
    let mut differs = !twice.is_empty();
    for deployment in deployments.iter().filter(|again| first.deployments.contains(again)) {
        differs |= deployment.differs(shared).await;
    }
    if let Some(problem) = head.filter(|again| first.head.as_ref() == Some(again)) {
        // Nothing of it can be stopped: whoever takes the shard next goes on from there.
        return Err(StoreError::Damaged(problem.into()));
    }
    Ok(match (differs, skipped) {
        (true, _) => "differs",
        (false, 0) => "same",
        (false, _) => "put_off",
    })
}

async fn stop(odd: &OddNetwork) {
    for _ in 0..STOP_TRIES {
        if odd.is_stopped().await {
            return;
        }
        tokio::time::sleep(STOP_AGAIN_AFTER).await;
    }
    tracing::warn!(
        network = %odd.id,
        "self-check: it was not stopped: it was loaded again, or is no more, or had too much to do; in the last case it serves on, and \
         the next check looks at it again"
    );
}
