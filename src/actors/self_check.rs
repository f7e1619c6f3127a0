//! The self-check: is what is served what the next start would load? Asked every so often, shard after shard, beside all else.
//!
//! A memory that went wrong, a record that somebody changed in Redis by hand, a byte that a disk changed: each is silent until a
//! restart or another node goes by the store, and gives away what somebody holds. So the shard is read as a start reads it, made
//! networks of, and each network in memory is compared with its own (`core::network::compare`).
//!
//! ```text
//! read the shard ──▶ compare, slice by slice ──▶ what is odd ──▶ wait until all of it is durable ──▶ what was decided meanwhile
//!  (as of a head)     (as of later moments)                                                        is not odd: read the log from
//!                                                                                                  that head on
//! ```
//!
//! What is odd twice, over two readings, is so: the network is stopped, the others go on, and the log says where and what. Nothing
//! is mended by itself: nobody knows which of both is right. What only reads is answered from memory still (`network::working`): it is
//! gone with the next start, and who decides must have seen it.
//!
//! A thread of its own with a low priority. A shard takes its memory twice while it is looked at. Where more is decided than can
//! be told apart, a network is left for the next time.
//!
//! Neighbours: `shard` looks at one of them. `network::comparing` is the part of the actors.
//!
//! Review notes: does a network that is made, deleted or loaded meanwhile count as odd? Does everything end with its tenure?

mod shard;

use std::sync::{Arc, Weak};
use std::time::Duration;

use self::shard::{Look, OddNetwork};
use super::background;
use super::service::Shared;
use crate::store::{ShardId, Store, StoreError, StoreHealth, chain};

/// So much nicer than the others.
const NICE: i32 = 15;
/// The first is made so soon after the tenure began, if it is not to be sooner anyhow.
const FIRST_AFTER: Duration = Duration::from_secs(3_600);
/// What cannot be read is looked at again so soon: it may be brought back.
const UNREADABLE_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Between two readings of a shard, of which the first found something odd.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// So often a network is asked to stop: it may be held just then.
const STOP_TRIES: u32 = 50;
const STOP_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Starts it for a tenure, which it does not keep alive; of no interval it is never made.
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
    // Whoever owns the register next finds it, too.
    metrics.unreadable_shards.set(0);
}

/// Looks at every shard, and at what the next start reads beside them. How much of it cannot be read.
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
        unreadable += i64::from(is_unreadable(shared, &error, format_args!("a file of the register")));
    }
    unreadable
}

/// What no shard is made of, and a start reads.
async fn reread(store: &dyn Store) -> Result<(), StoreError> {
    let mut from = Some(0);
    while let Some(at) = from {
        from = store.reread(at).await?;
    }
    Ok(())
}

/// Is it damaged or gone, for good? Then the log says so. A store that failed of it, as one that was emptied, says itself what becomes
/// of that.
fn is_unreadable(shared: &Shared, error: &StoreError, what: std::fmt::Arguments<'_>) -> bool {
    if !error.is_unreadable() || shared.store.health() == StoreHealth::Failed {
        tracing::debug!(error = chain(error), "self-check: {what} is left for the next time");
        return false;
    }
    // What a start would say to do is not what to do now.
    let error = shared.store.damage().map_or_else(|| chain(error), |damage| damage.to_string());
    tracing::error!(
        error,
        "self-check: {what} cannot be read: export the register before anything else. What is served is whole, in memory; the next \
         start, and the next owner, will refuse it, and over Redis a change at that place ends the server"
    );
    true
}

/// How it ended, as `/metrics` has it.
async fn check_shard(shared: &Arc<Shared>, shard: ShardId) -> Result<&'static str, StoreError> {
    let first = shard::look(shared, shard).await?;
    if first.odd.is_empty() {
        return Ok(if first.skipped == 0 { "same" } else { "put_off" });
    }
    tokio::time::sleep(AGAIN_AFTER).await;
    let Look { odd, skipped } = shard::look(shared, shard).await?;
    let twice: Vec<OddNetwork> = odd.into_iter().filter_map(|again| again.also_in(&first.odd)).collect();
    for network in &twice {
        stop(network).await;
    }
    Ok(match (twice.is_empty(), skipped) {
        (false, _) => "differs",
        (true, 0) => "same",
        (true, _) => "put_off",
    })
}

async fn stop(odd: &OddNetwork) {
    for _ in 0..STOP_TRIES {
        if odd.is_stopped().await {
            return;
        }
        tokio::time::sleep(STOP_AGAIN_AFTER).await;
    }
    tracing::warn!(network = %odd.id, "self-check: loaded again, or no more, before it could be stopped");
}
