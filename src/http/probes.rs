//! Places for whoever monitors the server, when there is no room for others: a few, each for one request. A connection that
//! has a place and asks nothing gives way, the oldest first: so silent connections keep no probe out.
//!
//! Used by `accepting`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::limits::HTTP_PROBES_MAX;

/// The places.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// The places that are taken, in the order in which they were taken.
    taken: Mutex<Vec<Arc<Place>>>,
}

#[derive(Debug, Default)]
struct Place {
    asked: AtomicBool,
    gives_way: Notify,
}

/// A place that is taken.
#[derive(Debug)]
pub(super) struct Probe {
    probes: Arc<Probes>,
    place: Arc<Place>,
}

impl Probes {
    fn taken(&self) -> MutexGuard<'_, Vec<Arc<Place>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place. `None` if all connections with a place have asked, and are about to be answered.
    pub fn enter(self: &Arc<Self>) -> Option<Probe> {
        let mut taken = self.taken();
        if taken.len() >= HTTP_PROBES_MAX {
            let silent = taken.iter().position(|place| !place.asked.load(Ordering::Relaxed))?;
            taken.remove(silent).gives_way.notify_one();
        }
        let place = Arc::<Place>::default();
        taken.push(Arc::clone(&place));
        drop(taken);
        Some(Probe { probes: Arc::clone(self), place })
    }
}

impl Probe {
    /// Notes that it has asked, and so no longer gives way.
    pub fn asks(&self) {
        self.place.asked.store(true, Ordering::Relaxed);
    }

    /// Waits until its place is wanted.
    pub async fn gives_way(&self) {
        self.place.gives_way.notified().await;
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.probes.taken().retain(|place| !Arc::ptr_eq(place, &self.place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_is_silent_for_longest_gives_way_and_nobody_who_has_asked() {
        let probes = Arc::<Probes>::default();
        let mut all: Vec<Probe> = (0..HTTP_PROBES_MAX).map(|_| probes.enter().unwrap()).collect();
        all[0].asks();
        let more = probes.enter().unwrap();
        all[1].gives_way().await;
        drop(all.remove(1));
        assert_eq!(probes.taken().len(), HTTP_PROBES_MAX, "its place is taken already");
        all.iter().chain([&more]).for_each(Probe::asks);
        assert!(probes.enter().is_none());
        drop(more);
        assert!(probes.enter().is_some());
    }
}
