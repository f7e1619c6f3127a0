//! Which server is followed as the primary: the one that the latest failover made the primary. An earlier one is never
//! followed again.
//!
//! But the servers that are asked may have been set up anew, for example if everything was started again at other
//! addresses. Then they count failovers from the beginning, and the primary that is followed no longer exists. So if that
//! primary has been out of reach for some seconds, and more than half of those asked name another one, that one is
//! followed, whatever its epoch. From then on an answer that still names the old primary under its old epoch is ignored.
//! The token decides who may write; and whatever the new primary lacks is given back or stops the store, as after any
//! failover.
//!
//! Neighbours: `sentinels` and `cluster` ask who the primary is; `link` connects to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// For how long a primary must be out of reach before another one is followed under a lower epoch. Longer than it takes for
/// news of a failover to spread.
const OUT_OF_REACH_AFTER: Duration = Duration::from_secs(5);

/// A primary, and the epoch of the failover, or of the move of a slot, that made it one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedPrimary {
    pub(super) epoch: u64,
    pub(super) host: String,
    pub(super) port: u16,
}

impl NamedPrimary {
    pub(super) fn is_at(&self, host: &str, port: u16) -> bool {
        (self.host.as_str(), self.port) == (host, port)
    }
}

#[derive(Debug, Default)]
pub(super) struct Following {
    /// The primary that is followed.
    known: Mutex<Option<NamedPrimary>>,
    changes: watch::Sender<u64>,
    /// Did more than half of those asked last answer?
    hears_most: AtomicBool,
    doubt: Mutex<Doubt>,
}

/// The first and the last failure to reach a primary since it was reached.
#[derive(Debug, Clone, Copy)]
struct Unreached {
    first: Instant,
    last: Instant,
}

/// What speaks against the primary that is followed.
#[derive(Debug, Default)]
struct Doubt {
    unreached: Option<Unreached>,
    /// The one that more than half name instead, under a lower epoch.
    instead: Option<NamedPrimary>,
    /// The primary that was followed before more than half named another one, with its epoch.
    passed_over: Option<NamedPrimary>,
}

impl Following {
    fn known(&self) -> MutexGuard<'_, Option<NamedPrimary>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn last(&self) -> Option<NamedPrimary> {
        self.known().clone()
    }

    fn doubt(&self) -> MutexGuard<'_, Doubt> {
        self.doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an attempt to connect, and whether it succeeded.
    pub(super) fn was_reached(&self, host: &str, port: u16, reached: bool, now: Instant) {
        if !self.known().as_ref().is_some_and(|known| known.is_at(host, port)) {
            return;
        }
        let mut doubt = self.doubt();
        doubt.unreached = match doubt.unreached {
            _ if reached => None,
            Some(Unreached { first, last }) if now.saturating_duration_since(last) < OUT_OF_REACH_AFTER => {
                Some(Unreached { first, last: now })
            }
            Some(_) | None => Some(Unreached { first: now, last: now }),
        };
    }

    /// The primary according to the answers, out of `asked` requests. None if nobody names one that may be followed.
    pub(super) fn elect(&self, named: &[NamedPrimary], asked: usize, whose: &str) -> Option<NamedPrimary> {
        self.hears_most.store(named.len() * 2 > asked, Ordering::Release);
        let votes = |one: &NamedPrimary| named.iter().filter(|other| other.is_at(&one.host, one.port)).count();
        let by_most = named.iter().filter(|one| votes(one) * 2 > asked).max_by_key(|one| one.epoch);
        let (mut known, mut doubt) = (self.known(), self.doubt());
        if let Some(most) = by_most
            && doubt.passed_over.as_ref().is_some_and(|passed| passed.is_at(&most.host, most.port))
        {
            doubt.passed_over = None;
        }
        let passed = doubt.passed_over.as_ref();
        let is_passed =
            |one: &&NamedPrimary| passed.is_some_and(|it| it.is_at(&one.host, one.port) && one.epoch <= it.epoch);
        let latest = named.iter().filter(|one| !is_passed(one)).max_by_key(|one| one.epoch).cloned();
        let is_instead = |(most, last): &(&NamedPrimary, &NamedPrimary)| {
            let is_news = latest.as_ref().is_some_and(|latest| latest.epoch > last.epoch);
            !is_news && !last.is_at(&most.host, most.port) && most.epoch < last.epoch
        };
        let instead = by_most.zip(known.as_ref()).filter(is_instead);
        let Some((most, last)) = instead.map(|(most, last)| (most.clone(), last.clone())) else {
            doubt.instead = None;
            return latest.or_else(|| known.clone().filter(|_| !named.is_empty()));
        };
        let (primary, named) = (address(&last), address(&most));
        if doubt.instead.replace(most.clone()).is_none() {
            tracing::warn!(
                redis = whose,
                primary,
                epoch = last.epoch,
                named,
                "most of those asked name another primary of Redis, and none of them knows of the failover that made this one \
                 it: it is followed when this one was not reached for some seconds"
            );
        }
        let lasts =
            |unreached: Unreached| unreached.last.saturating_duration_since(unreached.first) >= OUT_OF_REACH_AFTER;
        if doubt.unreached.is_some_and(lasts) {
            tracing::warn!(redis = whose, primary, named, "the primary of Redis is out of reach, and passed over");
            *doubt = Doubt { passed_over: Some(last), ..Doubt::default() };
            if let Some(known) = &mut *known {
                known.epoch = 0;
            }
        }
        Some(most)
    }

    /// Did more than half of those asked last say who the primary is?
    pub(super) fn hears_most(&self) -> bool {
        self.hears_most.load(Ordering::Acquire)
    }

    /// The one that more than half name instead of the primary that is followed.
    pub(super) fn instead(&self) -> Option<String> {
        self.doubt().instead.as_ref().map(address)
    }

    /// The primary to connect to: the one named, unless a later one is known. `whose` is for people.
    pub(super) fn follow(&self, named: NamedPrimary, whose: &str) -> NamedPrimary {
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
        let primary = address(&named);
        self.doubt().unreached = None;
        if known.replace(named.clone()).is_some() {
            self.changes.send_modify(|changes| *changes += 1);
            tracing::warn!(redis = whose, primary, epoch = named.epoch, "Redis has another primary");
        } else {
            tracing::info!(redis = whose, primary, epoch = named.epoch, "the primary of Redis is named");
        }
        named
    }

    /// The primary that is followed says itself that it no longer is one: the next one named counts, whatever its epoch.
    pub(super) fn steps_down(&self, host: &str, port: u16) {
        if let Some(known) = &mut *self.known()
            && known.is_at(host, port)
        {
            known.epoch = 0;
        }
    }

    pub(super) fn changes(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Waits until the count of changes differs from this one.
    pub(super) async fn changed_from(&self, changes: u64) {
        // The sender lives as long as `self`.
        let _ = self.changes.subscribe().wait_for(|now| *now != changes).await;
    }
}

/// `host:port`
fn address(named: &NamedPrimary) -> String {
    format!("{}:{}", named.host, named.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The port that is followed, where each of three servers names a port under an epoch, or nothing.
    fn gone_to(following: &Following, said: [Option<(u64, u16)>; 3]) -> u16 {
        let named = |(epoch, port)| NamedPrimary { epoch, host: "10.0.0.9".to_owned(), port };
        let named: Vec<NamedPrimary> = said.into_iter().flatten().map(named).collect();
        let elected = following.elect(&named, said.len(), "register").unwrap();
        following.follow(elected, "register").port
    }

    /// Everything was started again at other addresses, and the servers that are asked lost what they knew.
    #[test]
    fn whom_most_name_under_a_lower_epoch_is_followed_once_the_one_of_before_is_out_of_reach() {
        let (following, now) = (Following::default(), Instant::now());
        let unreached = |seconds| following.was_reached("10.0.0.9", 1, false, now + Duration::from_secs(seconds));
        assert_eq!((gone_to(&following, [Some((7, 1)), None, None]), following.hears_most()), (1, false));
        let (most, few) = ([Some((7, 1)), Some((0, 2)), Some((0, 2))], [Some((7, 1)), Some((0, 2)), None]);
        assert_eq!((gone_to(&following, most), following.instead().as_deref()), (1, Some("10.0.0.9:2")));
        (0..5).for_each(unreached);
        assert_eq!(gone_to(&following, most), 1, "not for long enough");
        // In between the primary was reached, or nobody tried.
        following.was_reached("10.0.0.9", 1, true, now);
        (5..10).for_each(unreached);
        assert_eq!(gone_to(&following, most), 1);
        unreached(20);
        assert_eq!(gone_to(&following, most), 1);
        (21..=25).for_each(unreached);
        assert_eq!((gone_to(&following, few), following.hears_most()), (1, true), "not by more than half");
        assert_eq!((gone_to(&following, most), following.changes()), (2, 1));
        // A server that has not heard of it yet still names the old one.
        assert_eq!([gone_to(&following, most), gone_to(&following, few)], [2, 2]);
        assert_eq!((following.instead(), following.changes()), (None, 1));
        // The next failover counts, and may make that one the primary.
        assert_eq!(gone_to(&following, [Some((1, 3)), Some((0, 2)), Some((0, 2))]), 3);
        assert_eq!(gone_to(&following, [Some((8, 1)), Some((1, 3)), Some((1, 3))]), 1);
    }

    #[test]
    fn another_primary_is_a_change_and_an_earlier_one_is_none() {
        let following = Following::default();
        // Epoch, port, the port that is followed, and the count of changes. An earlier failover changes nothing.
        for (epoch, port, to, changes) in [(0, 1, 1, 0), (0, 1, 1, 0), (1, 2, 2, 1), (0, 1, 2, 1), (2, 1, 1, 2)] {
            let named = following.follow(NamedPrimary { epoch, host: "10.0.0.9".to_owned(), port }, "register");
            assert_eq!((named.port, following.changes()), (to, changes));
        }
        following.steps_down("10.0.0.9", 1);
        let named = following.follow(NamedPrimary { epoch: 1, host: "10.0.0.9".to_owned(), port: 2 }, "register");
        assert_eq!((named.port, following.changes()), (2, 3));
    }

    /// Sentinels that were set up anew count from the beginning; the primary that was followed is a replica by now, or gone.
    #[test]
    fn where_sentinels_begin_to_count_anew_a_failover_is_followed_all_the_same() {
        let following = Following::default();
        let follow =
            |epoch, port| following.follow(NamedPrimary { epoch, host: "10.0.0.9".to_owned(), port }, "register").port;
        assert_eq!([follow(7, 1), follow(0, 1), follow(1, 2)], [1, 1, 1]);
        // It was another server that said that it is not a primary, which says nothing about the one that is followed.
        following.steps_down("10.0.0.9", 2);
        assert_eq!(follow(1, 2), 1);
        following.steps_down("10.0.0.9", 1);
        assert_eq!([follow(1, 2), follow(0, 1)], [2, 2]);
    }
}
