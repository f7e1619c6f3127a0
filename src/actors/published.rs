//! What a network's actor tells the world without being asked: whoever wants it reads it here, and sends no message.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use arc_swap::ArcSwapOption;

use super::trend::Trend;
use super::waits::{self, Arrival};
use super::{Fault, StopReason};
use crate::core::address::Family;
use crate::core::network::Network;
use crate::core::outcome::{Counts, Grantable, PoolUsage};
use crate::core::refusal::KINDS;
use crate::core::state::{Entry, EventKind, State, Step, SubnetConfig};
use crate::core::types::Scope;

/// Pools of a network up to which their figures are published: they are copied with every tick in which it is busy.
pub const POOLS_MAX: usize = 1_024;

/// Figures of one subnet.
#[derive(Debug, Clone)]
pub struct SubnetFigures {
    /// The subnet.
    pub subnet: Arc<SubnetConfig>,
    /// Its counts.
    pub counts: Counts,
    /// Its pools, in order; none where the network has more than [`POOLS_MAX`].
    pub pools: Vec<PoolUsage>,
}

/// Figures of a network for `/metrics`.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Per subnet, in order.
    pub subnets: Vec<SubnetFigures>,
    /// Pools that were left out.
    pub pools_left_out: usize,
    /// What automatic grants draw from, of IPv4 and of IPv6, in whatever pools it lies.
    grantable: [Grantable; 2],
    /// Reservations, whatever subnet they lie in, or none.
    pub reservations: u64,
    /// Addresses that two claim.
    pub conflicts: usize,
}

impl Figures {
    fn of(network: &Network) -> Self {
        let pools: usize = network.subnets().iter().map(|subnet| subnet.pools.len()).sum();
        let with_pools = pools <= POOLS_MAX;
        let usage = network.usage_of_subnets(with_pools);
        let figures = network.subnets().iter().zip(usage).map(|(subnet, usage)| SubnetFigures {
            subnet: Arc::clone(subnet),
            counts: usage.counts,
            pools: usage.pools,
        });
        let conflicts = network.config().conflicts.len();
        let pools_left_out = if with_pools { 0 } else { pools };
        let grantable = Family::ALL.map(|family| network.grantable(family));
        let reservations = network.reservations();
        Self { subnets: figures.collect(), pools_left_out, grantable, reservations, conflicts }
    }

    /// What automatic grants of a family draw from.
    pub fn grantable(&self, family: Family) -> Grantable {
        self.grantable[usize::from(family == Family::V6)]
    }

    /// Counts of one family.
    pub fn counts(&self, family: Family) -> Counts {
        let mut sum = Counts::default();
        for subnet in self.subnets.iter().filter(|subnet| subnet.subnet.cidr.family() == family) {
            sum += subnet.counts;
        }
        sum
    }
}

/// Why an address is not held any more, as `/metrics` tells it.
pub const ENDS: [(&str, EventKind); 5] = [
    ("released", EventKind::Released),
    ("expired", EventKind::Expired),
    ("swept", EventKind::Swept),
    ("reverted", EventKind::Reverted),
    ("declined", EventKind::Declined),
];

/// What steps come to for who counts: grants, and ends by reason.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    grants: u32,
    ends: [u32; ENDS.len()],
}

impl Tally {
    /// Adds these steps.
    pub fn note(&mut self, steps: &[Step]) {
        for (step, event) in steps.iter().filter_map(|step| Some((step, step.event.as_ref()?))) {
            let stays = matches!(step.state, Some(State::Entry(Entry::Held(_))));
            if event.kind == EventKind::Granted {
                self.grants += 1;
            } else if let Some(at) = ENDS.iter().position(|(_, kind)| *kind == event.kind)
                // What a revert makes current again did not end.
                && !stays
            {
                self.ends[at] += 1;
            }
        }
    }
}

/// What became durable of a network since this node serves it under its name. Beside its durable line, as only the committer knows: what a
/// network decided may be given up.
#[derive(Debug, Default)]
pub struct Deeds {
    grants: AtomicU64,
    ends: [AtomicU64; ENDS.len()],
}

impl Deeds {
    /// This is durable.
    pub fn add(&self, tally: Tally) {
        if tally == Tally::default() {
            return;
        }
        self.grants.fetch_add(u64::from(tally.grants), Ordering::Relaxed);
        for (count, more) in self.ends.iter().zip(tally.ends).filter(|(_, more)| *more > 0) {
            count.fetch_add(u64::from(more), Ordering::Relaxed);
        }
    }

    /// It has another name: what follows is counted from nothing, as whatever had that name before did none of this.
    pub(super) fn begin_anew(&self) {
        std::iter::once(&self.grants).chain(&self.ends).for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// Reservations that were granted.
    pub fn grants(&self) -> u64 {
        self.grants.load(Ordering::Relaxed)
    }

    /// Reservations that ended, by reason.
    pub fn ends(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ENDS.iter().zip(&self.ends).map(|((reason, _), count)| (*reason, count.load(Ordering::Relaxed)))
    }
}

/// As what a want of room counts that no address which comes free ends: the network is not full, nothing of it is what was asked for.
pub const NO_POOL_FITS: &str = "no_pool_fits";

/// What a network refused since this node serves it under its name.
#[derive(Debug, Default)]
pub struct Refusals {
    by_kind: [AtomicU64; KINDS.len()],
    no_pool_fits: AtomicU64,
}

impl Refusals {
    /// A request is answered so: if that is a refusal, it counts. Not for what is decided and answered to nobody: a dry run,
    /// or a try of a request that goes on waiting.
    pub(super) fn note_answer(&self, fault: &Fault) {
        let Fault::Refused(refusal) = fault else { return };
        let of_kind = self.by_kind.get(usize::from(refusal.precedence()));
        if let Some(count) = if refusal.no_pool_fits() { Some(&self.no_pool_fits) } else { of_kind } {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// As [`Deeds::begin_anew`].
    pub(super) fn begin_anew(&self) {
        self.by_kind.iter().chain([&self.no_pool_fits]).for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// Requests that were refused, by kind; and [`NO_POOL_FITS`].
    pub fn by_kind(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = KINDS.iter().zip(&self.by_kind).chain([(&NO_POOL_FITS, &self.no_pool_fits)]);
        counts.map(|(kind, count)| (*kind, count.load(Ordering::Relaxed)))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Published {
    /// Counts: there before the route is, and anew after each tick.
    pub figures: ArcSwapOption<Figures>,
    /// Times that its memory was loaded again.
    pub reloads: AtomicU64,
    /// What it refused.
    pub refusals: Refusals,
    /// How fast its addresses of IPv4, and of IPv6, are used up.
    trends: Mutex<[Trend; 2]>,
    waiting: AtomicUsize,
    /// 0: nobody waits.
    waiting_began_ms: AtomicU64,
    /// 0: it is not; else which of all reasons.
    stopped: AtomicU8,
    /// It is being read from the store again.
    loading: AtomicBool,
    /// What an actor had in memory that died while it was stopped, and showed that.
    left: Mutex<Option<Box<Network>>>,
    scopes: RwLock<HashSet<Scope>>,
}

impl Published {
    /// May it hold something of this scope? A no is certain, whatever is under way: a scope is noted before the answer to
    /// its first grant leaves.
    pub fn may_hold_of(&self, scope: &Scope) -> bool {
        self.scopes.read().unwrap_or_else(PoisonError::into_inner).contains(scope)
    }

    /// So many requests wait for capacity, and this one came first.
    pub(super) fn note_waiting(&self, count: usize, first: Option<Arrival>) {
        self.waiting.store(count, Ordering::Relaxed);
        self.waiting_began_ms.store(first.map_or(0, waits::began_ms), Ordering::Relaxed);
    }

    /// How many requests wait for capacity, and for how long the oldest of them has. `now_ms` is boot time.
    pub fn waiting(&self, now_ms: u64) -> (usize, Option<u64>) {
        let began_ms = self.waiting_began_ms.load(Ordering::Relaxed);
        (self.waits(), (began_ms > 0).then(|| waits::waited_ms(began_ms, now_ms)))
    }

    /// How many requests wait for capacity.
    pub fn waits(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// What it holds now. `now_ms` is boot time.
    pub fn publish_figures(&self, network: &Network, now_ms: u64) {
        let figures = Figures::of(network);
        let mut trends = self.trends.lock().unwrap_or_else(PoisonError::into_inner);
        for (trend, family) in trends.iter_mut().zip(Family::ALL) {
            let Grantable { size, left } = figures.grantable(family);
            trend.note(size.saturating_sub(left) as f64, size as f64, now_ms);
        }
        drop(trends);
        self.figures.store(Some(Arc::new(figures)));
    }

    /// In how many seconds nothing is left to grant if it goes on as of late; none if it does not, or nothing is left now.
    pub fn exhausted_in_seconds(&self, family: Family, left: u128, now_ms: u64) -> Option<f64> {
        let trends = self.trends.lock().unwrap_or_else(PoisonError::into_inner);
        let trend = trends.iter().zip(Family::ALL).find(|(_, of)| *of == family)?.0;
        trend.reaches(left as f64, now_ms).filter(|_| left > 0)
    }

    /// It is being read from the store again, or is not any more.
    pub(super) fn note_loading(&self, is_loading: bool) {
        self.loading.store(is_loading, Ordering::Relaxed);
    }

    /// Is it being read from the store again?
    pub fn is_loading(&self) -> bool {
        self.loading.load(Ordering::Relaxed)
    }

    /// It is stopped, or is not any more.
    pub(super) fn note_stopped(&self, why: Option<StopReason>) {
        let at = why.and_then(|why| StopReason::ALL.iter().position(|of| *of == why));
        self.stopped.store(at.map_or(0, |at| at as u8 + 1), Ordering::Relaxed);
    }

    /// Why it is stopped, if it is.
    pub fn stopped(&self) -> Option<StopReason> {
        let at = usize::from(self.stopped.load(Ordering::Relaxed)).checked_sub(1)?;
        StopReason::ALL.get(at).copied()
    }

    /// Its actor dies, stopped, and whoever has to decide between its memory and the store must see that still.
    pub(super) fn leave(&self, memory: Network) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(memory));
    }

    /// What was left so.
    pub(super) fn take_left(&self) -> Option<Box<Network>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Something of this scope is granted.
    pub fn note_scope(&self, scope: &Scope) {
        self.scopes.write().unwrap_or_else(PoisonError::into_inner).insert(scope.clone());
    }

    /// Nothing of these scopes is here any more.
    pub fn forget_scopes(&self, gone: &hashbrown::HashSet<Scope>) {
        self.scopes.write().unwrap_or_else(PoisonError::into_inner).retain(|scope| !gone.contains(scope));
    }

    /// All scopes that hold something.
    pub fn set_scopes(&self, scopes: HashSet<Scope>) {
        *self.scopes.write().unwrap_or_else(PoisonError::into_inner) = scopes;
    }
}
