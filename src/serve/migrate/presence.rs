//! Finds other processes that have a store open, and keeps the mover's own lease on it.
//!
//! A live server makes the move fail. The lease of a server that died is waited for, because nobody is there to end it.
//!
//! Called by `migrate`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use super::CannotMove;
use crate::actors::clock::Clock;
use crate::limits;
use crate::store::moving::Movable;
use crate::store::{Head, NodeCard, ShardId, StoreError, Token, chain};

/// Name of the mover as servers that wait for a shard see it.
const NAME: &str = "allod-migrate";
/// How often to look whether another process is gone.
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// By then the lease of a node that died is over, and so is the time for which the register is left to it.
const LEASE_WAITED_FOR: Duration = Duration::from_millis(3 * limits::NODE_LEASE_MS);

/// Fails if another process has the store open; then this one is no longer visible there either.
pub(super) async fn alone(store: &dyn Movable) -> Result<(), CannotMove> {
    let process: u128 = rand::random();
    // Unique, because an interrupted move may still be visible, too.
    let name = format!("{NAME}-{:08x}", process as u32);
    store.introduce(NodeCard { name, process, ..NodeCard::default() });
    let found = look_for_others(store, process).await;
    if found.is_err() {
        leave(store).await;
    }
    found
}

/// A process that died remains visible for a while: that it did shows in its card not being renewed.
async fn look_for_others(store: &dyn Movable, process: u128) -> Result<(), CannotMove> {
    let mut ages: BTreeMap<u128, u64> = BTreeMap::new();
    let end = tokio::time::Instant::now() + LEASE_WAITED_FOR;
    loop {
        let seen = store.meet(true).await?;
        let others: Vec<_> = seen.iter().filter(|seen| seen.card.process != process).collect();
        if others.is_empty() {
            return Ok(());
        }
        for other in others {
            let is_late = tokio::time::Instant::now() > end;
            if ages.insert(other.card.process, other.age_ms).is_some_and(|before| other.age_ms < before) || is_late {
                let name = if other.card.name.is_empty() { "without a name" } else { &other.card.name };
                return Err(CannotMove::Served(format!("node {name} has {} open, and lives", store.place())));
            }
        }
        tokio::time::sleep(LOOKS_EVERY).await;
    }
}

/// Releases everything, so that nobody need wait for the end of a lease.
pub(super) async fn leave(store: &dyn Movable) {
    for left in [store.release().await, store.meet(false).await.map(drop)] {
        if let Err(error) = left {
            tracing::debug!(error = chain(&error), "the next owner waits for the end of the lease");
        }
    }
}

/// Returns only if a lease could not be kept before the move `ends`. After that the source is closed and refuses renewals,
/// which must not interrupt the finishing of the target.
pub(super) async fn keep_leases(store: &dyn Movable, ends: &Cell<bool>) -> CannotMove {
    loop {
        tokio::time::sleep(Duration::from_millis(limits::NODE_LEASE_RENEWED_EVERY_MS)).await;
        if ends.get() {
            return std::future::pending().await;
        }
        let kept = async {
            store.renew().await?;
            store.meet(true).await
        };
        match kept.await {
            // If somebody takes a shard meanwhile, that is noticed before anything is closed.
            Ok(_) | Err(StoreError::Io { .. }) => {}
            Err(_) if ends.get() => {}
            Err(error) => return error.into(),
        }
    }
}

/// Takes all shards. The first one alone decides against others.
pub(super) async fn take_all(store: &dyn Movable, clock: &dyn Clock) -> Result<Vec<(ShardId, Head)>, CannotMove> {
    let mut heads = Vec::new();
    for shard in (0..store.info().shards).map(ShardId) {
        heads.push((shard, take(store, shard, clock).await?));
    }
    Ok(heads)
}

/// Takes a shard. Waits for the lease of a node that died: nobody renews it.
async fn take(store: &dyn Movable, shard: ShardId, clock: &dyn Clock) -> Result<Head, CannotMove> {
    let end = tokio::time::Instant::now() + LEASE_WAITED_FOR;
    loop {
        match store.take(shard, Token(clock.entropy())).await {
            Err(StoreError::Held { .. }) if tokio::time::Instant::now() < end => {
                tokio::time::sleep(LOOKS_EVERY).await;
                // Stays visible however long this takes.
                store.meet(true).await?;
            }
            taken => return Ok(taken?),
        }
    }
}
