//! Requests that wait for capacity: how long, for whom, and how many of them there may be.
//!
//! A request waits in the queue of its network (`network::queue`), or, if it concerns several, in the coordinator
//! (`coordinator::waiting`). It ends with an answer in every case: granted, refused, its time is over, or nobody waits for
//! it any more ([`Caller::leave`]: the client hung up, its link to this node broke, or the server that it talks to stops).
//!
//! Bounded for each connection, for each network and in all (see [`crate::limits`], `WAITING_`): a [`Place`] is taken
//! before a request begins to wait, and given back when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

use super::Fault;
use crate::limits::{CONNECTION_WAITING_REQUESTS_MAX, WAITING_REQUESTS_MAX};

/// When to come again where no more requests can wait.
const RETRY_AFTER_MS: u64 = 1_000;

/// The connection of a client, as far as its waiting requests are concerned.
#[derive(Debug, Default)]
pub struct Caller {
    left: CancellationToken,
    waiting: AtomicUsize,
}

impl Caller {
    /// Nobody waits there any more: whatever waits for it ends. Nothing of it begins to wait from now on.
    pub fn leave(&self) {
        self.left.cancel();
    }

    /// Did it leave?
    pub fn has_left(&self) -> bool {
        self.left.is_cancelled()
    }

    /// Until it leaves.
    pub async fn left(&self) {
        self.left.cancelled().await;
    }
}

/// That a request may wait.
#[derive(Debug, Clone)]
pub struct Wait {
    /// How long, from when it finds no capacity.
    pub ms: u64,
    /// For whom.
    pub caller: Arc<Caller>,
}

/// What this node's requests that wait share.
#[derive(Debug, Default)]
pub struct Waits {
    arrivals: AtomicU64,
    waiting: AtomicUsize,
}

impl Waits {
    /// A place for one more.
    ///
    /// # Errors
    /// `overloaded`, and of what there is too much.
    pub fn place(self: &Arc<Self>, caller: &Arc<Caller>) -> Result<Place, Box<Fault>> {
        let one_more = |count: &AtomicUsize, max: usize| {
            let more = |waiting: usize| (waiting < max).then_some(waiting + 1);
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
        };
        if !one_more(&caller.waiting, CONNECTION_WAITING_REQUESTS_MAX) {
            return Err(full(&format!("{CONNECTION_WAITING_REQUESTS_MAX} requests of this connection wait already")));
        }
        if !one_more(&self.waiting, WAITING_REQUESTS_MAX) {
            caller.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(full(&format!("{WAITING_REQUESTS_MAX} requests wait already")));
        }
        // Who comes later has the higher number, whichever network it waits for.
        let arrival = self.arrivals.fetch_add(1, Ordering::Relaxed);
        Ok(Place { arrival, caller: Arc::clone(caller), waits: Arc::clone(self) })
    }
}

/// `overloaded`, because so many wait.
pub(super) fn full(problem: &str) -> Box<Fault> {
    let problem = format!("it found no capacity and could not wait: {problem}");
    Box::new(Fault::Overloaded { problem, retry_after_ms: RETRY_AFTER_MS })
}

/// The place of a request that waits; given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    /// In the order of all that wait on this node.
    pub arrival: u64,
    /// For whom.
    pub caller: Arc<Caller>,
    waits: Arc<Waits>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.caller.waiting.fetch_sub(1, Ordering::Relaxed);
        self.waits.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_for_each_connection_and_in_all_and_come_back() {
        let (waits, caller) = (Arc::<Waits>::default(), Arc::<Caller>::default());
        let places: Vec<Place> = (0..CONNECTION_WAITING_REQUESTS_MAX).map(|_| waits.place(&caller).unwrap()).collect();
        assert!(places.windows(2).all(|pair| pair[0].arrival < pair[1].arrival));
        assert!(matches!(*waits.place(&caller).unwrap_err(), Fault::Overloaded { .. }));
        let others: Vec<Place> = (places.len()..WAITING_REQUESTS_MAX)
            .map(|_| waits.place(&Arc::default()).expect("another connection has places of its own"))
            .collect();
        let late = Arc::<Caller>::default();
        assert!(waits.place(&late).is_err());
        drop(others);
        assert!(waits.place(&late).is_ok());
        drop(places);
        assert_eq!((caller.waiting.load(Ordering::Relaxed), waits.waiting.load(Ordering::Relaxed)), (0, 0));
    }
}
