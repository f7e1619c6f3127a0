//! Fairness between connections: a busy one has fewer requests under way at once while quiet ones ask, too.
//!
//! A client with a thousand requests under way keeps every processor busy, and a quiet client then waits for a processor each
//! time a thread is woken for its request. The busy client loses little: while some of its requests are left unread, the others
//! still keep it busy. A client that asks alone is not held up, and neither are several busy ones, because none of those waits
//! for single answers.
//!
//! Neighbour: `session`, which reports when it has read something.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A session that asked within this many milliseconds counts as asking now.
const BESIDE_MS: u64 = 100;
/// A session that had much under way counts as busy for this many milliseconds, so that it does between its waves, too.
const MUCH_MS: u64 = 1_000;
/// A session that gets no answer for this long is no longer held up: whatever it waits for, its requests do not keep the
/// processors busy.
const UNANSWERED_MAX: Duration = Duration::from_millis(20);
/// How often a session notes that it asks: less often than it reads, because all of them write to the same place.
const SAID_EVERY_MS: u64 = 10;

/// Which quiet session asked last, and when it and the last other one did. Each of the three is a hint that is read and written
/// separately: if two threads write at once, it is wrong for some milliseconds.
#[derive(Debug)]
pub struct Fairness {
    begun: Instant,
    last: AtomicU64,
    last_ms: AtomicU64,
    other_ms: AtomicU64,
}

/// What a session remembers about itself and the others. Its milliseconds count from the beginning of [`Fairness`].
#[derive(Debug)]
pub struct Share {
    /// Another quiet session was asking when this one asked last.
    is_held_up: bool,
    /// When this session was answered last, or began to ask.
    answered: Instant,
    said_ms: u64,
    /// Until when it counts as busy.
    much_until_ms: u64,
}

impl Default for Fairness {
    /// No session has asked yet.
    fn default() -> Self {
        let never = || AtomicU64::new(0);
        Self { begun: Instant::now(), last: AtomicU64::new(u64::MAX), last_ms: never(), other_ms: never() }
    }
}

impl Fairness {
    /// Session number `who` asks now, and notes that if it `says` so. Returns whether another one asked lately.
    fn asks(&self, who: u64, says: bool, now_ms: u64) -> bool {
        let (last, last_ms) = (self.last.load(Ordering::Relaxed), self.last_ms.load(Ordering::Relaxed));
        let other_ms = if last == who { self.other_ms.load(Ordering::Relaxed) } else { last_ms };
        if says {
            if last != who {
                self.other_ms.store(last_ms, Ordering::Relaxed);
                self.last.store(who, Ordering::Relaxed);
            }
            self.last_ms.store(now_ms, Ordering::Relaxed);
        }
        now_ms <= other_ms + BESIDE_MS
    }

    /// Milliseconds since the beginning, always later than "never".
    fn ms(&self, now: Instant) -> u64 {
        1 + BESIDE_MS + now.saturating_duration_since(self.begun).as_millis() as u64
    }
}

impl Default for Share {
    /// Nothing has been asked yet.
    fn default() -> Self {
        Self { is_held_up: false, answered: Instant::now(), said_ms: 0, much_until_ms: 0 }
    }
}

impl Share {
    /// Session number `who` asks now; `is_under_way` says whether it already has requests under way. Cost: reading three numbers.
    pub fn asks(&mut self, fairness: &Fairness, who: u64, is_under_way: bool, now: Instant) {
        if !is_under_way {
            self.answered = now;
        }
        let now_ms = fairness.ms(now);
        let says = now_ms >= self.much_until_ms && now_ms >= self.said_ms + SAID_EVERY_MS;
        if says {
            self.said_ms = now_ms;
        }
        self.is_held_up = fairness.asks(who, says, now_ms) && now < self.answered + UNANSWERED_MAX;
    }

    /// Notes that this session has much under way now.
    pub fn has_much(&mut self, fairness: &Fairness, now: Instant) {
        self.much_until_ms = fairness.ms(now) + MUCH_MS;
    }

    /// Notes that one of its requests was answered.
    pub fn was_answered(&mut self, now: Instant) {
        self.answered = now;
    }

    /// Should it have little under way, for the sake of the others?
    pub fn is_held_up(&self) -> bool {
        self.is_held_up
    }

    /// Until when it is held up at most if it gets no answer.
    pub fn goes_on_at(&self) -> Instant {
        self.answered + UNANSWERED_MAX
    }

    /// Ends the holding up at the time of [`goes_on_at`](Self::goes_on_at).
    pub fn go_on(&mut self, now: Instant) {
        self.is_held_up &= now < self.goes_on_at();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Several sessions, at milliseconds from the beginning.
    struct Sessions<const N: usize>(Fairness, [Share; N]);

    impl<const N: usize> Sessions<N> {
        fn new() -> Self {
            Self(Fairness::default(), std::array::from_fn(|_| Share::default()))
        }

        /// Is this session held up if it asks at this time?
        fn asks(&mut self, who: usize, ms: u64) -> bool {
            self.1[who].asks(&self.0, who as u64, false, self.0.begun + Duration::from_millis(ms));
            self.1[who].is_held_up()
        }
    }

    #[test]
    fn who_asks_alone_has_no_company_and_who_asks_beside_another_has_it_for_a_while() {
        let mut of = Sessions::<2>::new();
        assert!(!of.asks(0, 0));
        assert!(!of.asks(0, 50));
        assert!(of.asks(1, 60), "the first one asked just now");
        for ms in 61..=160 {
            assert!(of.asks(0, ms), "at {ms}");
        }
        assert!(!of.asks(0, 161));
        assert!(of.asks(1, 170));
        assert!(!of.asks(1, 300));
    }

    #[test]
    fn two_that_ask_again_and_again_have_company_all_the_time() {
        let mut of = Sessions::<2>::new();
        assert!((0..1_000).map(|ms| of.asks(ms as usize % 2, ms)).skip(1).all(|beside| beside));
    }

    #[test]
    fn those_with_much_under_way_are_no_company_to_one_another_and_one_with_little_is_to_all() {
        let mut of = Sessions::<4>::new();
        for share in &mut of.1[..3] {
            share.has_much(&of.0, of.0.begun);
        }
        let beside_at = |of: &mut Sessions<4>, ms| [0, 1, 2].map(|who| of.asks(who, ms));
        assert_eq!(beside_at(&mut of, 600), [false; 3]);
        assert!(!of.asks(3, 700));
        assert_eq!(beside_at(&mut of, 750), [true; 3]);
        assert_eq!(beside_at(&mut of, 900), [false; 3]);
        // It is long ago that they had: each counts again.
        beside_at(&mut of, 1_200);
        assert_eq!(beside_at(&mut of, 1_201), [true; 3]);
    }

    #[test]
    fn who_gets_no_answer_is_held_up_no_longer_for_others_until_the_next_one_comes() {
        let mut of = Sessions::<2>::new();
        let begun = of.0.begun;
        let at = |ms| begun + Duration::from_millis(ms);
        of.asks(0, 0);
        assert!(of.asks(1, 1));
        let one = &mut of.1[1];
        one.go_on(at(20));
        assert!(one.is_held_up());
        assert_eq!(one.goes_on_at(), at(1) + UNANSWERED_MAX);
        one.go_on(at(21));
        assert!(!one.is_held_up());
        one.asks(&of.0, 1, true, at(22));
        assert!(!one.is_held_up());
        one.was_answered(at(23));
        one.asks(&of.0, 1, true, at(23));
        assert!(one.is_held_up());
    }
}
