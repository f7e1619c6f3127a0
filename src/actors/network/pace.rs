//! How long a network works on its messages before the other networks and connections of its thread have their turn: the
//! measure alone, without actor or clock.
//!
//! One message may bring a thousand requests. As a rule they take a millisecond together, and are most efficient as one unit.
//! But a request that looks through thousands of pools, or asks for many addresses, takes as long as hundreds of others, and
//! nobody knows that in advance. So the clock decides when it is enough: it is read after anything that may take long, and
//! after many requests that do not. It is the clock of the runtime, so that it follows the time of a simulation.

use std::time::Duration;

use tokio::time::Instant;

use crate::core::command::{Command, Wish};
use crate::core::state::NetworkConfig;

/// Requests after which the other networks and connections of the thread have their turn: some 0.3 ms.
pub(super) const TURN_REQUESTS_MAX: usize = 64;
/// How long one message, or the waiters, are processed in one go: requests that take no longer than most stay together.
const AT_ONCE_MAX: Duration = Duration::from_millis(2);
/// After work of this weight the clock is read.
pub(super) const PERHAPS_LONG: usize = TURN_REQUESTS_MAX;

/// The weight of a request as asked. Reading the clock costs some hundredths of the cheapest request that may take long.
#[inline]
pub(super) fn weight(command: &Command, config: &NetworkConfig) -> usize {
    let is_short = match command {
        // A block is searched for in every pool that has something free. So is the address that has cooled longest.
        Command::Allocate(ask) => matches!(ask.wish, Wish { prefix_length: None, .. }) && !config.cooldown_yields,
        Command::Claim(_)
        | Command::Release(_)
        | Command::Renew(..)
        | Command::Bind(..)
        | Command::Unbind(..)
        | Command::Update(..)
        | Command::Transfer(_)
        | Command::Decline(_)
        | Command::Get(_) => true,
        _ => false, // Several addresses, records or pools, or all of them.
    };
    if is_short { 1 } else { PERHAPS_LONG }
}

/// The time spent on one message, or on the waiters.
#[derive(Debug)]
pub(super) struct Pace {
    begun: Instant,
    /// As of the last reading of the clock.
    spent: Duration,
    /// Weight of the work done since then.
    unlooked: usize,
}

impl Pace {
    /// Begins now.
    pub(super) fn new(begun: Instant) -> Self {
        Self { begun, spent: Duration::ZERO, unlooked: 0 }
    }

    /// Notes work of this weight. Is it enough for now, so that the others are to have their turn?
    #[inline]
    pub(super) fn is_enough_after(&mut self, weight: usize, now: impl FnOnce() -> Instant) -> bool {
        self.unlooked += weight;
        if self.unlooked < PERHAPS_LONG {
            return false;
        }
        self.unlooked = 0;
        self.spent = now().saturating_duration_since(self.begun);
        self.spent >= AT_ONCE_MAX
    }

    /// How many requests of a turn all of this counts as, `done` being their number: a whole turn if it was enough.
    pub(super) fn requests(&self, done: usize) -> usize {
        let spent = self.spent.min(AT_ONCE_MAX).as_micros() as usize;
        done.max(spent * TURN_REQUESTS_MAX / AT_ONCE_MAX.as_micros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> (Pace, impl Fn(u64) -> Instant) {
        let begun = Instant::now();
        (Pace::new(begun), move |us| begun + Duration::from_micros(us))
    }

    #[test]
    fn requests_that_are_short_are_followed_by_no_look_at_the_clock_before_there_are_many() {
        let (mut pace, at) = pace();
        for _ in 1..TURN_REQUESTS_MAX {
            assert!(!pace.is_enough_after(1, || panic!("the clock is looked at")));
        }
        assert!(!pace.is_enough_after(1, || at(1_999)), "they took long, but not too long");
        assert!(!pace.is_enough_after(1, || panic!("the clock was looked at just now")));
    }

    #[test]
    fn however_many_there_are_they_stay_together_until_they_took_long() {
        let (mut pace, at) = pace();
        assert!((0..1_000).all(|us| !pace.is_enough_after(1, || at(us))));
        assert_eq!(pace.requests(1_000), 1_000);
        let (mut pace, at) = self::pace();
        assert!(pace.is_enough_after(PERHAPS_LONG, || at(2_000)), "one is enough that took as long");
        assert_eq!(pace.requests(1), TURN_REQUESTS_MAX, "it counts for a whole turn");
    }

    #[test]
    fn messages_of_one_request_each_count_for_what_they_took() {
        let (mut pace, at) = pace();
        assert!(!pace.is_enough_after(PERHAPS_LONG, || at(1_000)));
        assert_eq!(pace.requests(1), TURN_REQUESTS_MAX / 2);
        let (mut pace, at) = self::pace();
        assert!(!pace.is_enough_after(PERHAPS_LONG, || at(10)));
        assert_eq!(pace.requests(1), 1);
    }
}
