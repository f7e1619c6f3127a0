//! Requests that wait for capacity: how long, for whom, and how many of them there may be.
//!
//! A request waits in the queue of its network (`network::queue`), or, if it concerns several, in the coordinator
//! (`coordinator::waiting`). It ends with an answer in every case: granted, refused, its time is over, or nobody waits for it
//! any more ([`Caller::leave`]: the client hung up, its link to this node broke, or the server that it talks to stops). If
//! this node gives the register away the request is answered here, and its session asks the next owner for the time that is
//! left.
//!
//! **Ended when its owner is released.** A job that releases all of an owner or scope first ends the requests that wait for it
//! ([`Waits::end`]), and only then looks where it holds something. A request that is about to be granted first publishes its
//! scope, and only then asks whether its wait was ended. So either the job finds the grant, or there is none. A request that
//! begins to wait later is unaffected; one that is on its way to the next owner at that moment begins there later.
//!
//! Bounded for each connection, for each network and in all (see [`crate::limits`], `WAITING_`): a [`WaitingPlace`] is taken
//! before a request begins to wait, and given back when it ends.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Fault;
use crate::core::types::{NetworkId, Owner, Scope};
use crate::limits::{CONNECTION_WAITING_REQUESTS_MAX, WAITING_REQUESTS_MAX};

/// When to come again if no more requests can wait.
const RETRY_AFTER_MS: u64 = 1_000;

/// The connection of a client, as far as its waiting requests are concerned.
#[derive(Debug, Default)]
pub struct Caller {
    left: CancellationToken,
    waiting: AtomicUsize,
}

impl Caller {
    /// Ends everything that waits for this client, because nobody waits there any more. Nothing of it begins to wait from now
    /// on.
    pub fn leave(&self) {
        self.left.cancel();
    }

    /// Has the client left?
    pub fn has_left(&self) -> bool {
        self.left.is_cancelled()
    }

    /// Waits until the client leaves.
    pub async fn left(&self) {
        self.left.cancelled().await;
    }
}

/// Place in the order of all requests that wait on a node: one that began earlier is before one that began later, on whatever
/// node.
pub type Arrival = u128;

/// Added to boot time, because a request that began to wait elsewhere may have done so before this machine was started.
const BEFORE_BOOT_MS: u64 = 1 << 40;

/// When the request with this place began to wait, here or at an earlier owner: the argument of [`waited_ms`]. Never 0.
pub fn began_ms(arrival: Arrival) -> u64 {
    (arrival >> 64) as u64
}

/// How long a request that began at this time has waited, in all.
pub fn waited_ms(began_ms: u64, boot_ms: u64) -> u64 {
    (boot_ms + BEFORE_BOOT_MS).saturating_sub(began_ms)
}

/// How long a request had waited at the owners before this one.
#[derive(Debug, Clone, Copy)]
pub struct WaitedBefore {
    /// Milliseconds; 0: it begins here.
    pub ms: u64,
    /// Up to this moment, by the clock of the runtime. The time since then, on its way here, counts too.
    pub until: Instant,
}

/// The permission of a request to wait.
#[derive(Debug, Clone)]
pub struct Wait {
    /// How long, from the moment at which it finds no capacity.
    pub ms: u64,
    /// What it had waited before it came here.
    pub before: WaitedBefore,
    /// The client it waits for.
    pub caller: Arc<Caller>,
}

impl Wait {
    /// Permission to wait for `ms` from now on.
    pub fn begins(ms: u64, caller: Arc<Caller>) -> Self {
        Self { ms, before: WaitedBefore { ms: 0, until: Instant::now() }, caller }
    }

    /// How long it has waited so far at earlier owners, including the time on its way here.
    pub fn waited_ms(&self) -> u64 {
        match self.before {
            WaitedBefore { ms: 0, .. } => 0,
            WaitedBefore { ms, until } => ms + until.elapsed().as_millis() as u64,
        }
    }
}

/// For whom a request waits, and where.
#[derive(Debug, Clone)]
pub struct WaitsFor {
    /// Scope of the owner.
    pub scope: Scope,
    /// The owner.
    pub owner: Owner,
    /// The networks from which it wants something.
    pub networks: Vec<NetworkId>,
}

/// A request that waits, as a release of its owner finds it.
#[derive(Debug)]
struct Known {
    owner: Owner,
    networks: Vec<NetworkId>,
    ended: CancellationToken,
}

/// State shared by all requests that wait on this node.
#[derive(Debug, Default)]
pub struct Waits {
    arrivals: AtomicU64,
    waiting: AtomicUsize,
    by_scope: Mutex<HashMap<Scope, BTreeMap<Arrival, Known>>>,
}

impl Waits {
    /// Takes a place for one more request.
    ///
    /// # Errors
    /// `overloaded`, saying of what there is too much.
    pub fn place(self: &Arc<Self>, wait: &Wait, boot_ms: u64, of: WaitsFor) -> Result<WaitingPlace, Box<Fault>> {
        let caller = &wait.caller;
        let one_more = |count: &AtomicUsize, max: usize| {
            let more = |waiting: usize| (waiting < max).then_some(waiting + 1);
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
        };
        if !one_more(&caller.waiting, CONNECTION_WAITING_REQUESTS_MAX) {
            return Err(full(&format!("{CONNECTION_WAITING_REQUESTS_MAX} requests of this connection already wait")));
        }
        if !one_more(&self.waiting, WAITING_REQUESTS_MAX) {
            caller.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(full(&format!("{WAITING_REQUESTS_MAX} requests already wait")));
        }
        // A request that comes later has the higher number, whichever network it waits for.
        let number = self.arrivals.fetch_add(1, Ordering::Relaxed);
        let began_ms = (boot_ms + BEFORE_BOOT_MS).saturating_sub(wait.waited_ms()).max(1);
        let arrival = Arrival::from(began_ms) << 64 | Arrival::from(number);
        let (WaitsFor { scope, owner, networks }, ended) = (of, CancellationToken::new());
        let known = Known { owner, networks, ended: ended.clone() };
        self.by_scope().entry(scope.clone()).or_default().insert(arrival, known);
        Ok(WaitingPlace { arrival, caller: Arc::clone(caller), ended, scope, waits: Arc::clone(self) })
    }

    /// How many requests wait, each counted once, however many networks it waits for.
    pub fn count(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Ends what waits for a scope, or an owner in it, in one network, or in any: from now on it is granted nothing, and the
    /// network or job that has it answers it so.
    pub fn end(&self, scope: &Scope, owner: Option<&Owner>, network: Option<NetworkId>) {
        let by_scope = self.by_scope();
        for known in by_scope.get(scope).into_iter().flat_map(BTreeMap::values) {
            let is_meant = owner.is_none_or(|owner| *owner == known.owner)
                && network.is_none_or(|network| known.networks.contains(&network));
            if is_meant {
                known.ended.cancel();
            }
        }
    }

    fn by_scope(&self) -> MutexGuard<'_, HashMap<Scope, BTreeMap<Arrival, Known>>> {
        self.by_scope.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `overloaded`, because too many wait.
pub(super) fn full(problem: &str) -> Box<Fault> {
    let problem = format!("it found no capacity and could not wait: {problem}");
    Box::new(Fault::Overloaded { problem, retry_after_ms: RETRY_AFTER_MS })
}

/// The place of a request that waits; given back when it is dropped.
#[derive(Debug)]
pub struct WaitingPlace {
    /// In the order of all that wait on this node.
    pub arrival: Arrival,
    /// For whom.
    pub caller: Arc<Caller>,
    ended: CancellationToken,
    scope: Scope,
    waits: Arc<Waits>,
}

impl WaitingPlace {
    /// Was everything of its owner released?
    pub fn is_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// A token that is cancelled when the wait is ended.
    pub fn end(&self) -> CancellationToken {
        self.ended.clone()
    }

    /// How long it has waited, in all.
    pub fn waited_ms(&self, boot_ms: u64) -> u64 {
        waited_ms(began_ms(self.arrival), boot_ms)
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.caller.waiting.fetch_sub(1, Ordering::Relaxed);
        self.waits.waiting.fetch_sub(1, Ordering::Relaxed);
        let mut by_scope = self.waits.by_scope();
        if let Some(of_scope) = by_scope.get_mut(&self.scope) {
            of_scope.remove(&self.arrival);
            if of_scope.is_empty() {
                by_scope.remove(&self.scope);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(waited_ms: u64, caller: &Arc<Caller>) -> Wait {
        // A moment in the future, so that nothing is added while the test runs.
        let then = Instant::now() + std::time::Duration::from_secs(3_600);
        Wait { ms: 60_000, before: WaitedBefore { ms: waited_ms, until: then }, caller: Arc::clone(caller) }
    }

    fn of(scope: &str, owner: &str, networks: &[u128]) -> WaitsFor {
        let networks = networks.iter().map(|id| NetworkId(*id)).collect();
        WaitsFor { scope: scope.parse().unwrap(), owner: owner.parse().unwrap(), networks }
    }

    fn anybodys() -> WaitsFor {
        of("shop", "web/0", &[1])
    }

    #[test]
    fn letting_go_of_an_owner_ends_what_waits_for_it_and_nothing_that_waits_for_others_or_later() {
        let (waits, caller) = (Arc::<Waits>::default(), Arc::<Caller>::default());
        let place = |of| waits.place(&wait(0, &caller), 5, of).unwrap();
        let of_owner = || [of("shop", "web/0", &[1]), of("shop", "web/0", &[1, 2])].map(place);
        let others = [of("shop", "web/1", &[1]), of("other", "web/0", &[1])].map(place);
        let ended = |places: &[WaitingPlace]| places.iter().map(WaitingPlace::is_ended).collect::<Vec<bool>>();
        let (scope, owner) = ("shop".parse().unwrap(), "web/0".parse().unwrap());

        let first = of_owner();
        waits.end(&scope, Some(&owner), Some(NetworkId(2)));
        assert_eq!(ended(&first), [false, true], "of a network only what wants something of it");
        waits.end(&scope, Some(&owner), None);
        assert_eq!((ended(&first), ended(&others)), (vec![true, true], vec![false, false]));
        let later = of_owner();
        assert_eq!(ended(&later), [false, false], "what came later stays");
        waits.end(&scope, None, None);
        assert_eq!((ended(&later), ended(&others)), (vec![true, true], vec![true, false]), "a scope has many owners");
        drop((first, later, others));
        assert!(waits.by_scope().is_empty(), "what waits no more is forgotten");
    }

    #[test]
    fn who_waited_elsewhere_comes_before_who_began_after_it_and_its_time_counts_from_there() {
        let (waits, caller) = (Arc::<Waits>::default(), Arc::<Caller>::default());
        let here = waits.place(&wait(0, &caller), 1_000, anybodys()).unwrap();
        let elsewhere = waits.place(&wait(7_000, &caller), 2_000, anybodys()).unwrap();
        let before_it = waits.place(&wait(9_000, &caller), 3_000, anybodys()).unwrap();
        let after_all = waits.place(&wait(500, &caller), 3_000, anybodys()).unwrap();
        assert!(before_it.arrival < elsewhere.arrival && elsewhere.arrival < here.arrival);
        assert!(here.arrival < after_all.arrival);
        assert_eq!((here.waited_ms(3_000), elsewhere.waited_ms(3_000)), (2_000, 8_000), "also before this boot");
    }

    #[test]
    fn places_are_bounded_for_each_connection_and_in_all_and_come_back() {
        let (waits, caller) = (Arc::<Waits>::default(), Arc::<Caller>::default());
        let place = |caller: &Arc<Caller>| waits.place(&wait(0, caller), 5, anybodys());
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
