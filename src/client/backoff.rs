//! How long to wait before the next try: longer each time, bounded, and random, so that clients do not come all at once.

use std::time::Duration;

use rand::Rng;

/// The first wait, and the longest one.
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);
/// If a server asks for a longer wait than this, the client waits only this long.
const ASKED_MAX: Duration = Duration::from_secs(5);

/// The wait before try `number`, counted from 0: a random time between half of the doubled wait and all of it.
pub(super) fn wait(number: u32) -> Duration {
    let whole = FIRST.saturating_mul(1 << number.min(16)).min(LONGEST);
    rand::rng().random_range(whole / 2..=whole)
}

/// The wait before the next try. If the server said after how many milliseconds to retry, the wait is never shorter than
/// that, and at most half as long again.
pub(super) fn wait_asked(number: u32, retry_after_ms: Option<u64>) -> Duration {
    match retry_after_ms {
        None => wait(number),
        Some(asked) => {
            let asked = Duration::from_millis(asked).min(ASKED_MAX);
            asked + rand::rng().random_range(Duration::ZERO..=asked / 2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_differ_and_are_bounded() {
        for number in 0..100 {
            let waits: Vec<Duration> = (0..50).map(|_| wait(number)).collect();
            assert!(waits.iter().all(|&wait| wait >= FIRST / 2 && wait <= LONGEST), "{number}");
            assert!(waits.iter().any(|&wait| wait != waits[0]), "{number}: all clients would come at once");
        }
        assert!(wait(20) >= LONGEST / 2);
        for _ in 0..50 {
            let asked = wait_asked(3, Some(200));
            assert!(asked >= Duration::from_millis(200) && asked <= Duration::from_millis(300));
        }
        assert!(wait_asked(0, Some(u64::MAX)) <= ASKED_MAX + ASKED_MAX / 2);
    }
}
