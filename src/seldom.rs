//! Limits how often a lasting condition is reported.
//!
//! Used wherever one sentence would otherwise fill the log.

use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How often an event that recurs is logged: at once the first time, then after pauses that double from the shortest to the
/// longest. If it did not occur for the longest pause, the next time counts as the first again.
#[derive(Debug)]
pub struct Seldom {
    pauses: RangeInclusive<Duration>,
    said: Mutex<Said>,
}

#[derive(Debug, Default)]
struct Said {
    /// When the event occurred last; and when it was logged last, with the pause that began then.
    happened: Option<Instant>,
    said: Option<(Instant, Duration)>,
    unsaid: u64,
}

impl Seldom {
    /// Logs with these pauses.
    pub const fn new(pauses: RangeInclusive<Duration>) -> Self {
        Self { pauses, said: Mutex::new(Said { happened: None, said: None, unsaid: 0 }) }
    }

    /// Notes that the event occurred. If it is to be logged now, returns how often it was not logged since the last time.
    pub fn turn(&self) -> Option<u64> {
        self.turn_at(Instant::now())
    }

    fn turn_at(&self, now: Instant) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = said.happened.replace(now).is_none_or(|before| now - before >= *self.pauses.end());
        let pause = match said.said {
            Some((at, pause)) if !quiet && now - at < pause => {
                said.unsaid += 1;
                return None;
            }
            Some((_, pause)) if !quiet => (2 * pause).min(*self.pauses.end()),
            Some(_) | None => *self.pauses.start(),
        };
        said.said = Some((now, pause));
        Some(std::mem::take(&mut said.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_is_said_at_growing_pauses_with_what_went_unsaid() {
        let seldom = Seldom::new(Duration::from_secs(1)..=Duration::from_secs(4));
        let begun = Instant::now();
        let mut told = Vec::new();
        // The event occurs every tenth of a second.
        for tenth in 0..200 {
            if let Some(unsaid) = seldom.turn_at(begun + Duration::from_millis(100 * tenth)) {
                told.push((tenth, unsaid));
            }
        }
        assert_eq!(told, [(0, 0), (10, 9), (30, 19), (70, 39), (110, 39), (150, 39), (190, 39)]);
        // It did not occur for a while.
        let again = begun + Duration::from_secs(24);
        assert_eq!(seldom.turn_at(again), Some(9));
        assert_eq!(seldom.turn_at(again + Duration::from_millis(900)), None);
        assert_eq!(seldom.turn_at(again + Duration::from_millis(1_100)), Some(1));
    }
}
