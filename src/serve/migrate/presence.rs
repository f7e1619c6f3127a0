//! Who else has a store open that is moved, and how the mover keeps it.
//!
//! A server that lives is refused; the lease of one that died is waited for, since nobody is there to end it.
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

/// Name under which the mover is seen by servers that wait for a shard.
const NAME: &str = "allod-migrate";
/// How often it is looked whether another one is gone.
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// The lease of a node that died is over by then, and so is the time for which the register is left to it.
const LEASE_WAITED_FOR: Duration = Duration::from_millis(3 * limits::NODE_LEASE_MS);

/// Refuses where another process has the store open, and is not seen there any more then.
pub(super) async fn alone(store: &dyn Movable) -> Result<(), CannotMove> {
    let process: u128 = rand::random();
    // A move that was broken off may be seen, too.
    let name = format!("{NAME}-{:08x}", process as u32);
    store.introduce(NodeCard { name, process, ..NodeCard::default() });
    let found = look_for_others(store, process).await;
    if found.is_err() {
        leave(store).await;
    }
    found
}

/// One that died is seen for a while: whether it did shows when it is not seen anew.
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

/// Nobody need wait for the end of a lease.
pub(super) async fn leave(store: &dyn Movable) {
    for left in [store.release().await, store.meet(false).await.map(drop)] {
        if let Err(error) = left {
            tracing::debug!(error = chain(&error), "the next owner waits for the end of the lease");
        }
    }
}

/// Ends only if a lease could not be kept before the move `ends`. Then the source is closed, and to renew it is refused; that must
/// not break off what finishes the target.
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
            // Whoever takes a shard meanwhile is noticed before anything is closed.
            Ok(_) | Err(StoreError::Io { .. }) => {}
            Err(_) if ends.get() => {}
            Err(error) => return error.into(),
        }
    }
}

/// Takes all shards; the first alone decides against others.
pub(super) async fn take_all(store: &dyn Movable, clock: &dyn Clock) -> Result<Vec<(ShardId, Head)>, CannotMove> {
    let mut heads = Vec::new();
    for shard in (0..store.info().shards).map(ShardId) {
        heads.push((shard, take(store, shard, clock).await?));
    }
    Ok(heads)
}

/// Takes a shard. The lease of a node that died is waited for: nobody renews it.
async fn take(store: &dyn Movable, shard: ShardId, clock: &dyn Clock) -> Result<Head, CannotMove> {
    let end = tokio::time::Instant::now() + LEASE_WAITED_FOR;
    loop {
        match store.take(shard, Token(clock.entropy())).await {
            Err(StoreError::Held { .. }) if tokio::time::Instant::now() < end => {
                tokio::time::sleep(LOOKS_EVERY).await;
                // As long as this takes, this process is there.
                store.meet(true).await?;
            }
            taken => return Ok(taken?),
        }
    }
}
