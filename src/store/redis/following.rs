//! Which server is followed as the primary: the one that the latest failover made one. Nothing goes back to an earlier one.
//!
//! Neighbours: `sentinels` and `cluster` ask who it is; `link` connects to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A primary, and the failover, or move of a slot, that made it one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) epoch: u64,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Named {
    pub(super) fn is_at(&self, host: &str, port: u16) -> bool {
        (self.host.as_str(), self.port) == (host, port)
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Following {
    /// Where it was last.
    known: Mutex<Option<Named>>,
    /// How often that changed.
    changes: AtomicU64,
}

impl Following {
    fn known(&self) -> MutexGuard<'_, Option<Named>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who it was last.
    pub(super) fn last(&self) -> Option<Named> {
        self.known().clone()
    }

    /// Whom to go to: the one named, unless a later one is known. `whose` is for people.
    pub(super) fn follow(&self, named: Named, whose: &str) -> Named {
        let mut known = self.known();
        if let Some(known) = &mut *known {
            if known.epoch > named.epoch {
                return known.clone();
            }
            if known.is_at(&named.host, named.port) {
                known.epoch = named.epoch;
                return named;
            }
        }
        let primary = format!("{}:{}", named.host, named.port);
        if known.replace(named.clone()).is_some() {
            self.changes.fetch_add(1, Ordering::AcqRel);
            tracing::warn!(redis = whose, primary, epoch = named.epoch, "Redis has another primary");
        } else {
            tracing::info!(redis = whose, primary, epoch = named.epoch, "the primary of Redis is named");
        }
        named
    }

    /// The one that was followed says itself that it is none: whoever is named next counts, whatever the epoch.
    pub(super) fn steps_down(&self, host: &str, port: u16) {
        if let Some(known) = &mut *self.known()
            && known.is_at(host, port)
        {
            known.epoch = 0;
        }
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_primary_is_a_change_and_an_earlier_one_is_none() {
        let following = Following::default();
        // Epoch, port, and which port is gone to; an earlier failover is no news.
        for (epoch, port, to, changes) in [(0, 1, 1, 0), (0, 1, 1, 0), (1, 2, 2, 1), (0, 1, 2, 1), (2, 1, 1, 2)] {
            let named = following.follow(Named { epoch, host: "10.0.0.9".to_owned(), port }, "register");
            assert_eq!((named.port, following.changes()), (to, changes));
        }
        following.steps_down("10.0.0.9", 1);
        let named = following.follow(Named { epoch: 1, host: "10.0.0.9".to_owned(), port: 2 }, "register");
        assert_eq!((named.port, following.changes()), (2, 3));
    }

    /// Sentinels that were made anew begin to count again; the one that was followed is a replica by now, or gone.
    #[test]
    fn where_sentinels_begin_to_count_anew_a_failover_is_followed_all_the_same() {
        let following = Following::default();
        let follow =
            |epoch, port| following.follow(Named { epoch, host: "10.0.0.9".to_owned(), port }, "register").port;
        assert_eq!([follow(7, 1), follow(0, 1), follow(1, 2)], [1, 1, 1]);
        // Another one is none, which says nothing of the one that is followed.
        following.steps_down("10.0.0.9", 2);
        assert_eq!(follow(1, 2), 1);
        following.steps_down("10.0.0.9", 1);
        assert_eq!([follow(1, 2), follow(0, 1)], [2, 2]);
    }
}
