//! The lease of a tenure: renewed while the register is loaded, and for as long as the tenure lasts.
//!
//! It is counted on the boot clock, from before the renewal was sent, so that it ends here before it ends in the store.
//! Neighbour: `keeper`, which ends the tenure.
//!
//! Review notes: can a process sleep anywhere, and go on under a token whose lease lapsed meanwhile?

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use crate::actors::clock::Clock;
use crate::limits::{NODE_LEASE_LAPSES_MS, NODE_LEASE_MS, NODE_LEASE_RENEWED_EVERY_MS};
use crate::server::Server;
use crate::store::{Store, StoreError, chain};

/// The problem of a tenure whose lease lapsed.
pub(super) const LAPSED: &str = "the lease could not be renewed in time, so another node may have taken over";

/// Why a tenure ended.
pub(super) struct Lost {
    /// As a sentence.
    pub(super) problem: String,
    /// Why the store could not be reached, if that is the cause: then nobody else has taken the register either.
    pub(super) store_away: Option<String>,
}

impl Lost {
    /// Another node has the register, or may have.
    pub(super) fn to_others(problem: String) -> Self {
        Self { problem, store_away: None }
    }
}

/// How much longer this node may rely on its lease. Once nothing is left it stops acting under its token, whatever the store
/// says of the lease afterwards: the process may have slept in between for any length of time.
fn left_ms(clock: &dyn Clock, renewed_ms: &Cell<u64>) -> u64 {
    NODE_LEASE_LAPSES_MS.saturating_sub(clock.lease_ms().saturating_sub(renewed_ms.get()))
}

/// Whether the lease lapsed unnoticed.
pub(super) fn has_lapsed(server: &Server, store: &dyn Store, renewed_ms: &Cell<u64>) -> bool {
    !store.info().ownership_is_standing && left_ms(&*server.clock, renewed_ms) == 0
}

/// Renews what was taken so far while the rest is taken and loaded, for ever. A lapsed lease is not renewed: the caller sees
/// that at the end.
pub(super) async fn renew_while_loading(server: &Server, store: &dyn Store, renewed_ms: &Cell<u64>) -> Infallible {
    if store.info().ownership_is_standing {
        return std::future::pending().await;
    }
    renews_while_loading(&*server.clock, || store.renew(), renewed_ms).await
}

async fn renews_while_loading<R: Future<Output = Result<(), StoreError>>>(
    clock: &dyn Clock,
    renew: impl Fn() -> R,
    renewed_ms: &Cell<u64>,
) -> Infallible {
    loop {
        tokio::time::sleep(Duration::from_millis(NODE_LEASE_RENEWED_EVERY_MS)).await;
        let before = clock.lease_ms();
        if left_ms(clock, renewed_ms) == 0 {
            return std::future::pending().await;
        }
        if renew().await.is_ok() && left_ms(clock, renewed_ms) > 0 {
            renewed_ms.set(before);
        }
    }
}

/// Ends the lease, so that the next owner need not wait for its end. Tries no longer than the lease lasts.
pub(super) async fn let_go(store: &dyn Store) {
    match tokio::time::timeout(Duration::from_millis(NODE_LEASE_MS), store.release()).await {
        Ok(Ok(())) => {}
        Ok(Err(error @ (StoreError::Fenced { .. } | StoreError::Held { .. }))) => {
            tracing::debug!(error = chain(&error), "another node already owns the register");
        }
        Ok(Err(error)) => tracing::warn!(error = chain(&error), "the next owner waits for the end of the lease"),
        Err(_) => tracing::warn!("the store does not answer: the next owner waits for the end of the lease"),
    }
}

/// A start is cancelled: releases the lease, and the node's name, instead of letting them run out.
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

/// Renews the lease until that fails for good. Returns why.
pub(super) async fn keep_lease(server: &Server, store: &dyn Store, renewed_ms: &Cell<u64>) -> Lost {
    if store.info().ownership_is_standing {
        return std::future::pending().await;
    }
    keeps_lease(&*server.clock, || store.renew(), renewed_ms).await
}

async fn keeps_lease<R: Future<Output = Result<(), StoreError>>>(
    clock: &dyn Clock,
    renew: impl Fn() -> R,
    renewed_ms: &Cell<u64>,
) -> Lost {
    let mut store_away = None;
    loop {
        let before = clock.lease_ms();
        let left = left_ms(clock, renewed_ms);
        // A process that slept through its lease does not try, and knows nothing of the store.
        if left > 0 {
            match tokio::time::timeout(Duration::from_millis(left), renew()).await {
                Ok(Ok(())) => {
                    store_away = None;
                    // Otherwise it was too late: the process slept before the request was sent, or before the answer was
                    // heard.
                    if left_ms(clock, renewed_ms) > 0 {
                        renewed_ms.set(before);
                    }
                }
                Ok(Err(error @ (StoreError::Fenced { .. } | StoreError::Held { .. }))) => {
                    return Lost::to_others(chain(&error));
                }
                // The store accepts nothing any more, so there is no point in waiting.
                Ok(Err(error @ (StoreError::Damaged(_) | StoreError::Poisoned(_)))) => {
                    return Lost::to_others(chain(&error));
                }
                Ok(Err(error)) => {
                    tracing::warn!(error = chain(&error), "the lease is not renewed yet");
                    store_away = Some(chain(&error));
                }
                Err(_) => store_away = Some("it does not answer".to_owned()),
            }
        }
        if left_ms(clock, renewed_ms) == 0 {
            return Lost { problem: LAPSED.to_owned(), store_away };
        }
        tokio::time::sleep(Duration::from_millis(NODE_LEASE_RENEWED_EVERY_MS)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::clock::ManualClock;
    use crate::core::types::WallTime;

    /// A node that renews its lease, and whose process sleeps now and then.
    struct Sleeper {
        clock: ManualClock,
        renewed_ms: Cell<u64>,
        sent: Cell<u32>,
    }

    /// Longer than a lease may be relied on, shorter than it lasts in the store.
    const SLEEP_MS: u64 = (NODE_LEASE_LAPSES_MS + NODE_LEASE_MS) / 2;

    impl Sleeper {
        fn new() -> Self {
            let clock = ManualClock::new(WallTime(1_000), 1);
            let renewed_ms = Cell::new(clock.lease_ms());
            Self { clock, renewed_ms, sent: Cell::new(0) }
        }

        /// The store renews the lease whenever it is asked; during renewal number `sleeps_at` the process sleeps for
        /// `sleep_ms`.
        async fn renew(&self, sleeps_at: u32, sleep_ms: u64) -> Result<(), StoreError> {
            self.sent.set(self.sent.get() + 1);
            if self.sent.get() == sleeps_at {
                self.clock.advance_ms(sleep_ms);
            }
            Ok(())
        }

        /// Both clocks advance while it renews, for at most `seconds`. Returns why it ended, if it did.
        async fn keeps(&self, sleeps_at: u32, sleep_ms: u64, seconds: u64) -> Option<Lost> {
            let keeping = keeps_lease(&self.clock, || self.renew(sleeps_at, sleep_ms), &self.renewed_ms);
            self.goes_on(keeping, seconds).await
        }

        async fn goes_on<T>(&self, act: impl Future<Output = T>, seconds: u64) -> Option<T> {
            let time = async {
                for _ in 0..seconds * 10 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    self.clock.advance_ms(100);
                }
            };
            tokio::select! {
                biased;
                ended = act => Some(ended),
                () = time => None,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_renewed_each_second_lasts_also_where_the_process_sleeps_for_less_than_it() {
        assert!(Sleeper::new().keeps(0, 0, 60).await.is_none());
        let sleeper = Sleeper::new();
        assert!(sleeper.keeps(5, NODE_LEASE_LAPSES_MS - 1_500, 60).await.is_none());
        assert!(sleeper.sent.get() > 50, "{}", sleeper.sent.get());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_lapsed_while_its_renewal_was_under_way_is_over_whatever_the_store_answers() {
        let sleeper = Sleeper::new();
        let lost = sleeper.keeps(5, SLEEP_MS, 60).await.unwrap();
        assert_eq!((lost.problem.as_str(), lost.store_away), (LAPSED, None));
        assert_eq!(sleeper.sent.get(), 5);
    }

    /// It lapsed by the previous renewal, although less than a lease has passed since this one was sent.
    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_was_sent_in_time_and_answered_when_the_one_before_had_lapsed_comes_too_late() {
        let sleeper = Sleeper::new();
        assert!(sleeper.keeps(5, NODE_LEASE_LAPSES_MS - 500, 60).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_slept_through_its_lease_between_two_renewals_sends_none_any_more() {
        let sleeper = Sleeper::new();
        sleeper.clock.advance_ms(SLEEP_MS);
        assert!(sleeper.keeps(0, 0, 60).await.is_some());
        assert_eq!(sleeper.sent.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_lapses_while_it_is_loaded_is_not_renewed_any_more() {
        for (sleep_ms, lasts) in [(NODE_LEASE_LAPSES_MS - 1_500, true), (SLEEP_MS, false)] {
            let sleeper = Sleeper::new();
            let loading = renews_while_loading(&sleeper.clock, || sleeper.renew(5, sleep_ms), &sleeper.renewed_ms);
            assert!(sleeper.goes_on(loading, 60).await.is_none());
            assert_eq!(left_ms(&sleeper.clock, &sleeper.renewed_ms) > 0, lasts, "{sleep_ms}");
            assert_eq!(sleeper.sent.get() > 5, lasts, "{sleep_ms}: {}", sleeper.sent.get());
        }
    }
}
