//! How long a network is at what it has before the other networks and connections of its thread have their turn: by
//! itself, without actor or clock.
//!
//! One message may bring a thousand requests. As a rule they take a millisecond together, and are worth most as one unit. But
//! one that looks through thousands of pools, or asks for many addresses, takes as long as hundreds of others, and nobody
//! knows before. So the clock says when it is enough: it is looked at behind whatever may take long, and behind many that
//! do not. It is that of the runtime: where its time is somebody else's (the simulation), so is this.

use std::time::Duration;

use tokio::time::Instant;

use crate::core::command::{Command, Wish};
use crate::core::state::NetworkConfig;

/// Requests after which the other networks and connections of the thread have their turn: some 0.3 ms.
pub(super) const TURN_REQUESTS_MAX: usize = 64;
/// For how long one message, or those who wait, are looked after at once: requests that take no longer than most stay together.
const AT_ONCE_MAX: Duration = Duration::from_millis(2);
/// What counts for so much is followed by a look at the clock.
pub(super) const PERHAPS_LONG: usize = TURN_REQUESTS_MAX;

/// What a request counts for as it is asked. A look costs some hundredths of what the cheapest of those takes that may take long.
#[inline]
pub(super) fn weight(command: &Command, config: &NetworkConfig) -> usize {
    let is_short = match command {
        // A block is looked for in every pool that has something. So is the address that cools longest.
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

/// What was spent on one message, or on those who wait.
#[derive(Debug)]
pub(super) struct Pace {
    begun: Instant,
    /// At the last look.
    spent: Duration,
    /// What was done since counts for so much.
    unlooked: usize,
}

impl Pace {
    /// It begins now.
    pub(super) fn new(begun: Instant) -> Self {
        Self { begun, spent: Duration::ZERO, unlooked: 0 }
    }

    /// Something was done that counts for so much. Is it enough, and are the others to have their turn?
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

    /// For how many requests of a turn all of it counts, which `done` are: for a whole turn where it was enough.
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
