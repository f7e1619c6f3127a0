//! Chooses the reactor thread of a network's actor: the thread with the fewest of them, and of equals the first.
//!
//! If the store commits all shards together, their one committer lives on the first thread. So if a register has one network,
//! both live on one thread, and no message between them wakes another thread; connections leave that thread when it has no
//! capacity left (`server::balance`, which counts them in the same way).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many networks, or connections, each thread has.
#[derive(Debug, Default)]
pub struct Places(Arc<[AtomicUsize]>);

/// A place on a thread, taken until this is dropped.
#[derive(Debug)]
pub struct Placed {
    counts: Arc<[AtomicUsize]>,
    on: usize,
}

impl Places {
    /// Places on this many threads.
    pub fn new(threads: usize) -> Self {
        Self((0..threads.max(1)).map(|_| AtomicUsize::new(0)).collect())
    }

    /// Takes a place on the thread that has the fewest. Cost: one look at each thread.
    pub fn take(&self) -> Placed {
        let fewest = (0..self.0.len()).min_by_key(|&on| self.count(on));
        self.take_on(fewest.unwrap_or(0))
    }

    /// Takes a place on this thread.
    pub fn take_on(&self, on: usize) -> Placed {
        self.0[on].fetch_add(1, Ordering::Relaxed);
        Placed { counts: Arc::clone(&self.0), on }
    }

    /// How many places of this thread are taken.
    pub fn count(&self, on: usize) -> usize {
        self.0[on].load(Ordering::Relaxed)
    }
}

impl Placed {
    /// The thread of the place.
    pub fn on(&self) -> usize {
        self.on
    }

    /// Moves the place to another thread.
    pub fn moved(&mut self, to: usize) {
        self.counts[to].fetch_add(1, Ordering::Relaxed);
        self.counts[self.on].fetch_sub(1, Ordering::Relaxed);
        self.on = to;
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        self.counts[self.on].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_dealt_evenly_and_the_first_of_few_is_beside_the_committer() {
        let places = Places::new(2);
        let mut placed: Vec<Placed> = (0..4).map(|_| places.take()).collect();
        assert_eq!(placed.iter().map(Placed::on).collect::<Vec<_>>(), [0, 1, 0, 1]);
        // A thread whose networks are gone has room.
        drop((placed.remove(3), placed.remove(1)));
        assert_eq!([places.take().on(), places.take().on()], [1, 1]);
        drop(placed);
        assert_eq!(places.take().on(), 0);
    }
}
