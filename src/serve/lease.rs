//! The lease of a tenure: renewed while it is loaded, and as long as it lasts.
//!
//! It is counted on the boot clock, from before the renewal was sent, so that it is over here before it is over in the store.
//! Neighbour: `keeper`, which ends the tenure.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use crate::actors::committer::chain;
use crate::limits::{NODE_LEASE_LAPSES_MS, NODE_LEASE_MS, NODE_LEASE_RENEWED_EVERY_MS};
use crate::server::Server;
use crate::store::{Store, StoreError};

/// Why a tenure ended.
pub(super) struct Lost {
    /// As a sentence.
    pub(super) problem: String,
    /// Why the store was not reached, if it is that: then nobody else has taken the register either.
    pub(super) store_away: Option<String>,
}

impl Lost {
    /// Somebody else has it, or may have.
    pub(super) fn to_others(problem: String) -> Self {
        Self { problem, store_away: None }
    }
}

/// Keeps what was taken so far while the rest is taken and loaded, for ever.
pub(super) async fn renew_while_loading(server: &Server, store: &dyn Store, renewed_ms: &Cell<u64>) -> Infallible {
    loop {
        tokio::time::sleep(Duration::from_millis(NODE_LEASE_RENEWED_EVERY_MS)).await;
        let before = server.clock.lease_ms();
        if store.renew().await.is_ok() {
            renewed_ms.set(before);
        }
    }
}

/// Ends the lease, so that the next owner need not wait until it is over. Not for longer than that: then it is over anyway.
pub(super) async fn let_go(store: &dyn Store) {
    match tokio::time::timeout(Duration::from_millis(NODE_LEASE_MS), store.release()).await {
        Ok(Ok(())) => {}
        Ok(Err(error @ (StoreError::Fenced { .. } | StoreError::Held { .. }))) => {
            tracing::debug!(error = chain(&error), "what was owned is somebody else's already");
        }
        Ok(Err(error)) => tracing::warn!(error = chain(&error), "the next owner waits for the end of the lease"),
        Err(_) => tracing::warn!("the store does not answer: the next owner waits for the end of the lease"),
    }
}

/// A start is broken off: neither what it took over nor its name is left to run out.
pub(super) async fn leave(store: &dyn Store) {
    if store.info().ownership_is_standing {
        return;
    }
    let_go(store).await;
    match tokio::time::timeout(Duration::from_millis(NODE_LEASE_MS), store.meet(false)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(error = chain(&error), "the other nodes learn of its end a little later"),
        Err(_) => tracing::warn!("the store does not answer: the other nodes learn of its end later"),
    }
}

/// Renews the lease for as long as that works. Answers why it does not any more.
pub(super) async fn keep_lease(server: &Server, store: &dyn Store, renewed_ms: &Cell<u64>) -> Lost {
    if store.info().ownership_is_standing {
        return std::future::pending().await;
    }
    let mut store_away = None;
    loop {
        let before = server.clock.lease_ms();
        let left = NODE_LEASE_LAPSES_MS.saturating_sub(before.saturating_sub(renewed_ms.get()));
        match tokio::time::timeout(Duration::from_millis(left), store.renew()).await {
            Ok(Ok(())) => {
                renewed_ms.set(before);
                store_away = None;
            }
            Ok(Err(error @ (StoreError::Fenced { .. } | StoreError::Held { .. }))) => {
                return Lost::to_others(chain(&error));
            }
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), "the lease is not renewed yet");
                store_away = Some(chain(&error));
            }
            // A process that slept through its lease has not tried, and knows nothing of the store.
            Err(_) if left > 0 => store_away = Some("it does not answer".to_owned()),
            Err(_) => {}
        }
        if server.clock.lease_ms().saturating_sub(renewed_ms.get()) >= NODE_LEASE_LAPSES_MS {
            let problem = "the lease could not be renewed in time, so another node may have taken over".to_owned();
            return Lost { problem, store_away };
        }
        tokio::time::sleep(Duration::from_millis(NODE_LEASE_RENEWED_EVERY_MS)).await;
    }
}
