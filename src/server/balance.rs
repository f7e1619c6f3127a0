//! Which reactor thread a connection lives on: dealt out in turn at first, and moved when one thread is overloaded and another
//! one is not.
//!
//! Each network lives on one thread, and so does the committer. If one network gets most requests, everybody waits for its
//! thread; what connections do on that thread (reading JSON, writing answers) another thread could do at the same time. Which
//! network a client will ask is not known when it connects, so the balance measures while the threads work: for how much of its
//! time each was busy. At each look a few connections move, until the loads are alike.
//!
//! A quiet connection, which asks now and then, moves the other way: to the thread of the network that it asks, if that thread
//! has time. Then its request and the answer wake no second thread (`connection` counts them).
//!
//! There is no timer: a connection that reads something looks at the loads if nobody did for 20 ms. An idle server does nothing.
//!
//! Review notes: does a connection move with everything that it has under way, and with nothing of its thread (`turns`)?

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeMetrics};

use crate::actors::places::{Placed, Places};
use crate::actors::reactor::Reactor;

/// Shortest time between two looks at the loads.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// After a longer gap the previous times say nothing about the present load.
const STALE: Duration = Duration::from_millis(200);
/// A thread that is busy for this share of its time can do no more.
const FULL: f64 = 0.9;
/// A thread that is busy for less than this share has time for more.
const IDLE: f64 = 0.5;
/// Threads whose loads differ by less count as alike.
const ALIKE: f64 = 0.2;

/// Quiet connections that may move to a thread between two looks; the load that they bring shows at the next one.
const FOLLOWERS_MAX: usize = 8;
/// Mask of the half of [`Thread::leaving`] that is a count.
const COUNT: u64 = u32::MAX as u64;

/// The reactor threads and their loads.
#[derive(Debug, Default)]
pub struct Balance {
    threads: Arc<[Thread]>,
    connections: Places,
    /// When the loads were looked at last, in nanoseconds since `begun`.
    looked: AtomicU64,
    begun: OnceLock<Instant>,
}

#[derive(Debug, Default)]
struct Thread {
    /// The counters of its runtime; none until it runs.
    runtime: OnceLock<RuntimeMetrics>,
    /// For how many nanoseconds it had been busy at the last look.
    busy: AtomicU64,
    /// How often it had begun or ended waiting by then.
    waits: AtomicU64,
    /// The share of its time for which it was busy at the last look, in thousandths.
    load: AtomicU32,
    /// How many connections are to leave it (the lower half), and for which thread (the upper half).
    leaving: AtomicU64,
    /// Quiet connections that came to it since the last look.
    followers: AtomicUsize,
}

/// Connections that are to move from one thread to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shift {
    from: usize,
    to: usize,
    connections: usize,
}

impl Balance {
    /// The balance of these threads.
    pub fn of(reactors: &[Reactor]) -> Self {
        let threads: Arc<[Thread]> = reactors.iter().map(|_| Thread::default()).collect();
        for (at, reactor) in reactors.iter().enumerate() {
            let threads = Arc::clone(&threads);
            reactor.spawn(async move {
                // Cannot fail: this runs once on each thread.
                let _ = threads[at].runtime.set(Handle::current().metrics());
            });
        }
        Self { threads, connections: Places::new(reactors.len()), ..Self::default() }
    }

    /// A connection begins on this thread.
    pub fn place(&self, on: usize) -> Placed {
        self.connections.take_on(on)
    }

    /// The thread that the calling connection of this one is to move to, if any; it is then counted as moved.
    pub fn take_leave(&self, on: usize) -> Option<usize> {
        let leaving = &self.threads[on].leaving;
        let one = |left: u64| (left & COUNT != 0).then(|| left - 1);
        if leaving.load(Ordering::Relaxed) & COUNT == 0 {
            return None;
        }
        let left = leaving.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one).ok()?;
        Some((left >> 32) as usize)
    }

    /// Looks at the loads, unless that was done just now. Cost: reading one number.
    pub fn look(&self, now: Instant) {
        if self.threads.len() < 2 {
            return;
        }
        let begun = *self.begun.get_or_init(|| now);
        let at = now.saturating_duration_since(begun).as_nanos() as u64;
        let before = self.looked.load(Ordering::Relaxed);
        let passed = at.saturating_sub(before);
        if passed < LOOK_EVERY.as_nanos() as u64
            || self.looked.compare_exchange(before, at, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let load = |(on, thread): (usize, &Thread)| (thread.look(passed), self.connections.count(on));
        let loads: Vec<(f64, usize)> = self.threads.iter().enumerate().map(load).collect();
        // The first look has no time to compare with.
        let known = before > 0 && passed <= STALE.as_nanos() as u64;
        self.begin(shift(&loads).filter(|_| known));
    }

    /// From now on these connections are to move and no others, even if some of an earlier shift have not moved yet.
    fn begin(&self, shift: Option<Shift>) {
        for (at, thread) in self.threads.iter().enumerate() {
            let leaving = shift.filter(|shift| shift.from == at);
            let leaving = leaving.map_or(0, |shift| (shift.to as u64) << 32 | shift.connections as u64 & COUNT);
            thread.leaving.store(leaving, Ordering::Relaxed);
        }
    }

    /// Makes the loads decide nothing, because a look would undo what a test sets.
    #[cfg(test)]
    pub(super) fn looks_never(&self) {
        let _ = self.begun.set(Instant::now() + Duration::from_secs(86_400));
    }

    /// Makes one connection move, whatever the loads.
    #[cfg(test)]
    pub(super) fn one_moves(&self, from: usize, to: usize) {
        self.begin(Some(Shift { from, to, connections: 1 }));
    }

    /// How many connections each thread has.
    #[cfg(test)]
    pub(super) fn connections(&self) -> Vec<usize> {
        (0..self.threads.len()).map(|on| self.connections.count(on)).collect()
    }

    /// May a quiet connection move to this thread? A few may, if it has been idle for most of its time.
    pub fn admits(&self, on: usize) -> bool {
        self.threads.get(on).is_some_and(|thread| {
            f64::from(thread.load.load(Ordering::Relaxed)) < IDLE * 1_000.0
                && thread.followers.fetch_add(1, Ordering::Relaxed) < FOLLOWERS_MAX
        })
    }
}

impl Thread {
    /// The share of the `passed` nanoseconds since the last look for which it was busy.
    fn look(&self, passed: u64) -> f64 {
        let (busy, waits) = self.runtime.get().map_or((0, 0), |runtime| {
            (runtime.worker_total_busy_duration(0).as_nanos() as u64, runtime.worker_park_unpark_count(0))
        });
        let before = self.busy.swap(busy, Ordering::Relaxed);
        let waited = self.waits.swap(waits, Ordering::Relaxed) != waits;
        let load = busy.saturating_sub(before) as f64 / passed as f64;
        // The runtime counts a poll when it ends. A thread that has counted nothing and does not wait is in the middle of a long
        // poll: it looks idle, but can do nothing for anybody.
        let is_stuck = busy == before && !waited && waits.is_multiple_of(2);
        let load = if is_stuck { 1.0 } else { load };
        self.load.store((load * 1_000.0) as u32, Ordering::Relaxed);
        self.followers.store(0, Ordering::Relaxed);
        load
    }
}

/// Decides what is to move, from the load and the number of connections of each thread.
fn shift(threads: &[(f64, usize)]) -> Option<Shift> {
    let by_load = |(_, a): &(usize, &(f64, usize)), (_, b): &(usize, &(f64, usize))| a.0.total_cmp(&b.0);
    let (from, &(most, connections)) = threads.iter().enumerate().max_by(by_load)?;
    let (to, &(least, _)) = threads.iter().enumerate().min_by(by_load)?;
    let difference = most.min(1.0) - least;
    if most < FULL || difference < ALIKE || connections == 0 {
        return None;
    }
    // Moving half of the difference would be right if connections were all that the thread does. Only half of that moves, because
    // the other thread gets more to do at the same time, and the next look comes soon.
    let share = (connections as f64 * difference / 4.0).ceil() as usize;
    Some(Shift { from, to, connections: share.clamp(1, connections) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_only_a_thread_that_can_do_no_more_for_one_that_can() {
        assert_eq!(shift(&[(0.5, 30), (0.0, 30)]), None, "it has time left");
        assert_eq!(shift(&[(1.0, 30), (0.85, 30)]), None, "the other one has none");
        assert_eq!(shift(&[(1.0, 0), (0.1, 60)]), None, "nobody is there who could go");
        assert_eq!(shift(&[(0.3, 30), (1.0, 32)]), Some(Shift { from: 1, to: 0, connections: 6 }));
        assert_eq!(shift(&[(0.0, 0), (1.0, 1)]), Some(Shift { from: 1, to: 0, connections: 1 }));
        assert_eq!(shift(&[(0.8, 9), (0.4, 9), (0.95, 9)]), Some(Shift { from: 2, to: 1, connections: 2 }));
        assert_eq!(shift(&[]), None);
    }

    /// In a model in which a thread has some work of its own, and the same for each connection.
    #[test]
    fn loads_come_to_be_alike_and_stay_so() {
        for (own, each) in [([0.9, 0.1], 0.01), ([0.5, 0.5], 0.02), ([0.0, 0.7], 0.015)] {
            let mut connections = [32usize, 32];
            let wants = |connections: [usize; 2]| [0, 1].map(|at| own[at] + each * connections[at] as f64);
            let mut shifts = 0;
            for look in 0..60 {
                let loads: Vec<_> = (0..2).map(|at| (wants(connections)[at].min(1.0), connections[at])).collect();
                if let Some(Shift { from, to, connections: count }) = shift(&loads) {
                    connections[from] -= count;
                    connections[to] += count;
                    shifts += usize::from(look >= 20);
                }
            }
            assert_eq!(shifts, 0, "{own:?} {each}: {connections:?}");
            let wants = wants(connections);
            let apart = wants[0].min(1.0) - wants[1].min(1.0);
            assert!(apart.abs() < ALIKE || wants[0].max(wants[1]) < FULL, "{own:?} {each}: {connections:?} {wants:?}");
        }
    }

    #[test]
    fn who_was_to_leave_need_not_any_more_once_nobody_is_to() {
        let threads: Arc<[Thread]> = (0..2).map(|_| Thread::default()).collect();
        let balance = Balance { threads, connections: Places::new(2), ..Balance::default() };
        let placed = balance.place(0);
        balance.begin(Some(Shift { from: 0, to: 1, connections: 2 }));
        assert_eq!(balance.take_leave(placed.on()), Some(1));
        balance.begin(None);
        assert_eq!(balance.take_leave(placed.on()), None);
        balance.begin(Some(Shift { from: 0, to: 1, connections: 2 }));
        balance.begin(Some(Shift { from: 1, to: 0, connections: 2 }));
        assert_eq!(balance.take_leave(placed.on()), None);
    }

    #[test]
    fn a_thread_in_the_midst_of_something_long_has_no_time() {
        let system = actix::System::new();
        let arbiters = [actix::Arbiter::new(), actix::Arbiter::new()];
        let balance = Balance::of(&arbiters.each_ref().map(|arbiter| arbiter.handle().into()));
        while balance.threads.iter().any(|thread| thread.runtime.get().is_none()) {
            std::thread::yield_now();
        }
        let (entered, begun) = std::sync::mpsc::sync_channel(1);
        let (end, ended) = std::sync::mpsc::sync_channel::<()>(1);
        arbiters[0].spawn(async move {
            entered.send(()).unwrap();
            let _ = ended.recv();
        });
        begun.recv().unwrap();
        // Thread 1 parks for good as soon as it has noticed that there is nothing to do.
        let parked = |thread: &Thread| !thread.runtime.get().unwrap().worker_park_unpark_count(0).is_multiple_of(2);
        while !parked(&balance.threads[1]) {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        for look in 0..4 {
            balance.look(begun + look * Duration::from_millis(25));
        }
        assert_eq!([balance.admits(0), balance.admits(1)], [false, true]);
        end.send(()).unwrap();
        for arbiter in arbiters {
            arbiter.stop();
            arbiter.join().unwrap();
        }
        drop(system);
    }

    #[test]
    fn a_few_follow_between_two_looks_and_no_more() {
        let threads: Arc<[Thread]> = (0..2).map(|_| Thread::default()).collect();
        let balance = Balance { threads, connections: Places::new(2), ..Balance::default() };
        assert_eq!((0..100).filter(|_| balance.admits(1)).count(), FOLLOWERS_MAX);
        balance.threads[1].look(1_000_000);
        assert_eq!((0..100).filter(|_| balance.admits(1)).count(), 0, "it never waited");
    }

    #[test]
    fn as_many_leave_as_shall_and_each_is_counted_where_it_is() {
        let threads: Arc<[Thread]> = (0..2).map(|_| Thread::default()).collect();
        let balance = Balance { threads, connections: Places::new(2), ..Balance::default() };
        let mut placed: Vec<_> = (0..3).map(|_| balance.place(0)).collect();
        assert_eq!(balance.take_leave(0), None);
        balance.begin(Some(Shift { from: 0, to: 1, connections: 2 }));
        for (at, place) in placed.iter_mut().enumerate() {
            let leaves = balance.take_leave(place.on());
            assert_eq!(leaves, (at < 2).then_some(1));
            if let Some(to) = leaves {
                place.moved(to);
            }
        }
        assert_eq!(balance.connections(), [1, 2]);
        drop(placed);
        assert_eq!(balance.connections(), [0, 0]);
    }
}
