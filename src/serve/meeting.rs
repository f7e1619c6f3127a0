//! Nodes tell each other through the store that they are here, and note which others are.
//!
//! Neighbour: `keeper`, which runs this beside everything else for as long as the process lives.

use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::limits::NODE_LEASE_MS;
use crate::seldom::Seldom;
use crate::server::Server;
use crate::server::cluster::Node;
use crate::store::{NodeCard, Store, StoreError, chain};

const LEASE: Duration = Duration::from_millis(NODE_LEASE_MS);
/// How often a node tells the others that it is here.
pub(super) const MEETS_EVERY: Duration = Duration::from_secs(1);
/// Interval between log lines that say that the store fails to do this: it grows from the first to the second.
const SAID_EVERY: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(60);

/// A node as others see it; its card was written `age_ms` ago.
pub(super) fn node(card: &NodeCard, age_ms: u64) -> Node {
    Node {
        name: card.name.clone(),
        process: card.process,
        version: card.version.clone(),
        address: card.address.clone(),
        peer_address: card.peer_address.clone(),
        draining: card.draining,
        apart: card.apart.clone(),
        age_ms,
    }
}

/// Tells the others that this node is here, and notes who else is. A store that belongs to one server alone knows nobody,
/// not even that server, which exists all the same.
pub(super) async fn meet(server: &Server, store: &dyn Store) -> Result<(), StoreError> {
    if store.info().ownership_is_standing {
        return Ok(());
    }
    let seen = store.meet(true).await?;
    server.nodes.seen(seen.iter().map(|seen| node(&seen.card, seen.age_ms)).collect());
    Ok(())
}

/// Does so again and again, for ever.
pub(super) async fn meet_others(server: &Server, store: &dyn Store) -> Infallible {
    if store.info().ownership_is_standing {
        return std::future::pending().await;
    }
    let failures = Seldom::new(SAID_EVERY);
    loop {
        if let Err(error) = meet(server, store).await {
            // An outage that is shorter than a lease need not stop the owner.
            if server.nodes.age() >= LEASE {
                let why =
                    if store.was_emptied() { "the store was emptied" } else { "this node does not reach the store" };
                server.nodes.cut_off(format!("{why}: {}", chain(&error)), LEASE);
            }
            if let Some(unsaid) = failures.turn() {
                tracing::warn!(error = chain(&error), unsaid, "the other nodes do not learn that this one is here");
            }
        }
        tokio::time::sleep(MEETS_EVERY).await;
    }
}
