//! Whether a client asks alone, or others ask beside it: then it has fewer requests under way at once.
//!
//! Who has a thousand requests under way keeps every processor busy, and whoever asks beside it waits for one, each time a
//! thread is woken for its request. What is left unread of the one keeps it busy all the same: a client that asks alone
//! is held up by nothing.
//!
//! Neighbour: `session`, which tells when something was read for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Who asked within so many milliseconds asks beside the others.
const BESIDE_MS: u64 = 100;
/// How often a session says that it asks: less often than it reads, for all of them write to the same place.
const SAID_EVERY_MS: u64 = 10;

/// The session that asked last, and when it and the last other one did. Each of the three is a hint, read and written by itself:
/// what two threads do at once makes it wrong for some milliseconds.
#[derive(Debug)]
pub struct Company {
    begun: Instant,
    last: AtomicU64,
    last_ms: AtomicU64,
    other_ms: AtomicU64,
}

impl Default for Company {
    /// Nobody asked yet.
    fn default() -> Self {
        let never = || AtomicU64::new(0);
        Self { begun: Instant::now(), last: AtomicU64::new(u64::MAX), last_ms: never(), other_ms: never() }
    }
}

impl Company {
    /// The session of this number asks now, as it said at `said_ms`, which this notes. Did another one lately? Cost: a look at
    /// three numbers.
    pub fn asks(&self, who: u64, said_ms: &mut u64, now: Instant) -> bool {
        // Later than never, from the first on.
        let now_ms = 1 + BESIDE_MS + now.saturating_duration_since(self.begun).as_millis() as u64;
        let (last, last_ms) = (self.last.load(Ordering::Relaxed), self.last_ms.load(Ordering::Relaxed));
        let other_ms = if last == who { self.other_ms.load(Ordering::Relaxed) } else { last_ms };
        if now_ms >= *said_ms + SAID_EVERY_MS {
            *said_ms = now_ms;
            if last != who {
                self.other_ms.store(last_ms, Ordering::Relaxed);
                self.last.store(who, Ordering::Relaxed);
            }
            self.last_ms.store(now_ms, Ordering::Relaxed);
        }
        now_ms <= other_ms + BESIDE_MS
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_asks_alone_has_no_company_and_who_asks_beside_another_has_it_for_a_while() {
        let company = Company::default();
        let (mut one, mut other) = (0, 0);
        let at = |ms| company.begun + Duration::from_millis(ms);
        assert!(!company.asks(1, &mut one, at(0)));
        assert!(!company.asks(1, &mut one, at(50)));
        assert!(company.asks(2, &mut other, at(60)), "the first one asked just now");
        for ms in 61..=160 {
            assert!(company.asks(1, &mut one, at(ms)), "at {ms}");
        }
        assert!(!company.asks(1, &mut one, at(161)));
        assert!(company.asks(2, &mut other, at(170)));
        assert!(!company.asks(2, &mut other, at(300)));
    }

    #[test]
    fn two_that_ask_again_and_again_have_company_all_the_time() {
        let company = Company::default();
        let mut said = [0, 0];
        let asked = (0..1_000).map(|ms| {
            let who = ms as usize % 2;
            company.asks(who as u64, &mut said[who], company.begun + Duration::from_millis(ms))
        });
        assert!(asked.skip(1).all(|beside| beside));
    }
}
