//! Requests that wait for capacity: how long, for whom, and how many of them there may be.
//!
//! A request waits in the queue of its network (`network::queue`), or, if it concerns several, in the coordinator
//! (`coordinator::waiting`). It ends with an answer in every case: granted, refused, its time is over, or nobody waits for
//! it any more ([`Caller::leave`]: the client hung up, its link to this node broke, or the server that it talks to stops). Where
//! this node gives the register away it is answered here, and its session asks the next owner for the time that is left.
//!
//! Bounded for each connection, for each network and in all (see [`crate::limits`], `WAITING_`): a [`WaitingPlace`] is taken
//! before a request begins to wait, and given back when it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::time::Instant;
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

/// Place in the order of all that wait on a node: who began earlier is before who began later, wherever that was.
pub type Arrival = u128;

/// Added to boot time: who began to wait elsewhere did so before this machine was started, perhaps.
const BEFORE_BOOT_MS: u64 = 1 << 40;

/// For how long a request had waited at the owners before this one.
#[derive(Debug, Clone, Copy)]
pub struct WaitedBefore {
    /// So many milliseconds; 0: it begins here.
    pub ms: u64,
    /// Up to this moment, by the clock of the runtime. What it took to come here since then counts too.
    pub until: Instant,
}

/// That a request may wait.
#[derive(Debug, Clone)]
pub struct Wait {
    /// How long, from when it finds no capacity.
    pub ms: u64,
    /// What it had waited before it came here.
    pub before: WaitedBefore,
    /// For whom.
    pub caller: Arc<Caller>,
}

impl Wait {
    /// That it may wait so long from now on.
    pub fn begins(ms: u64, caller: Arc<Caller>) -> Self {
        Self { ms, before: WaitedBefore { ms: 0, until: Instant::now() }, caller }
    }

    /// For how long it has waited so far, at an owner before this one: also while it was on its way here.
    pub fn waited_ms(&self) -> u64 {
        match self.before {
            WaitedBefore { ms: 0, .. } => 0,
            WaitedBefore { ms, until } => ms + until.elapsed().as_millis() as u64,
        }
    }
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
    pub fn place(self: &Arc<Self>, wait: &Wait, boot_ms: u64) -> Result<WaitingPlace, Box<Fault>> {
        let caller = &wait.caller;
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
        let number = self.arrivals.fetch_add(1, Ordering::Relaxed);
        let began_ms = (boot_ms + BEFORE_BOOT_MS).saturating_sub(wait.waited_ms());
        let arrival = Arrival::from(began_ms) << 64 | Arrival::from(number);
        Ok(WaitingPlace { arrival, began_ms, caller: Arc::clone(caller), waits: Arc::clone(self) })
    }
}

/// `overloaded`, because so many wait.
pub(super) fn full(problem: &str) -> Box<Fault> {
    let problem = format!("it found no capacity and could not wait: {problem}");
    Box::new(Fault::Overloaded { problem, retry_after_ms: RETRY_AFTER_MS })
}

/// The place of a request that waits; given back when it is dropped.
#[derive(Debug)]
pub struct WaitingPlace {
    /// In the order of all that wait on this node.
    pub arrival: Arrival,
    /// When it began to wait, here or at an owner before.
    began_ms: u64,
    /// For whom.
    pub caller: Arc<Caller>,
    waits: Arc<Waits>,
}

impl WaitingPlace {
    /// For how long it has waited, in all.
    pub fn waited_ms(&self, boot_ms: u64) -> u64 {
        (boot_ms + BEFORE_BOOT_MS).saturating_sub(self.began_ms)
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.caller.waiting.fetch_sub(1, Ordering::Relaxed);
        self.waits.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(waited_ms: u64, caller: &Arc<Caller>) -> Wait {
        // A moment that is not over yet: nothing is added while the test runs.
        let then = Instant::now() + std::time::Duration::from_secs(3_600);
        Wait { ms: 60_000, before: WaitedBefore { ms: waited_ms, until: then }, caller: Arc::clone(caller) }
    }

    #[test]
    fn who_waited_elsewhere_comes_before_who_began_after_it_and_its_time_counts_from_there() {
        let (waits, caller) = (Arc::<Waits>::default(), Arc::<Caller>::default());
        let here = waits.place(&wait(0, &caller), 1_000).unwrap();
        let elsewhere = waits.place(&wait(7_000, &caller), 2_000).unwrap();
        let before_it = waits.place(&wait(9_000, &caller), 3_000).unwrap();
        let after_all = waits.place(&wait(500, &caller), 3_000).unwrap();
        assert!(before_it.arrival < elsewhere.arrival && elsewhere.arrival < here.arrival);
        assert!(here.arrival < after_all.arrival);
        assert_eq!((here.waited_ms(3_000), elsewhere.waited_ms(3_000)), (2_000, 8_000), "also before this boot");
    }

    #[test]
    fn places_are_bounded_for_each_connection_and_in_all_and_come_back() {
        let (waits, caller) = (Arc::<Waits>::default(), Arc::<Caller>::default());
        let place = |caller: &Arc<Caller>| waits.place(&wait(0, caller), 5);
        let places: Vec<WaitingPlace> = (0..CONNECTION_WAITING_REQUESTS_MAX).map(|_| place(&caller).unwrap()).collect();
        assert!(places.windows(2).all(|pair| pair[0].arrival < pair[1].arrival));
        assert!(matches!(*place(&caller).unwrap_err(), Fault::Overloaded { .. }));
        let others: Vec<WaitingPlace> = (places.len()..WAITING_REQUESTS_MAX)
            .map(|_| place(&Arc::default()).expect("another connection has places of its own"))
            .collect();
        let late = Arc::<Caller>::default();
        assert!(place(&late).is_err());
        drop(others);
        assert!(place(&late).is_ok());
        drop(places);
        assert_eq!((caller.waiting.load(Ordering::Relaxed), waits.waiting.load(Ordering::Relaxed)), (0, 0));
    }
}
