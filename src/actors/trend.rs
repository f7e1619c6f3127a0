//! How fast something grew recently: its growth in the last ten minutes, and nothing from before.
//!
//! A burst counts as a trend for ten minutes and no longer, so an alert that waits for longer than that
//! (`AllodNetworkFullSoon` does) does not fire on a burst. A change that comes from a change of the whole is not growth: a
//! pool was added, or a filled subnet moved here.

/// Minutes that are looked back, including the current one.
const MINUTES: usize = 10;
/// Something watched for less time than this has no trend: a burst of seconds would be taken for its continuation.
const WATCHED_SECONDS_MIN: f64 = 60.0;
/// Anything further away than this is not a forecast.
const FORECAST_SECONDS_MAX: f64 = 366.0 * 86_400.0;

/// The value at the last look.
#[derive(Debug, Clone, Copy)]
struct Look {
    at_ms: u64,
    value: f64,
    /// The size of the whole.
    size: f64,
}

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Trend {
    /// None: there was no look yet.
    last: Option<Look>,
    began_ms: u64,
    /// Growth in each of the last minutes up to the last look, each at its number modulo [`MINUTES`]. There is one of these
    /// for each family of each network, so it is small.
    grown: [f32; MINUTES],
}

impl Trend {
    /// Notes the present value, out of `size`. All times are of one clock, in milliseconds.
    pub(super) fn note(&mut self, value: f64, size: f64, now_ms: u64) {
        let Some(last) = self.last else {
            (self.last, self.began_ms) = (Some(Look { at_ms: now_ms, value, size }), now_ms);
            return;
        };
        let now_ms = now_ms.max(last.at_ms);
        // More minutes than are kept need not be cleared.
        for minute in (minute_of(last.at_ms) + 1..=minute_of(now_ms)).take(MINUTES) {
            self.grown[at(minute)] = 0.0;
        }
        if last.size == size {
            self.grown[at(minute_of(now_ms))] += (value - last.value) as f32;
        }
        self.last = Some(Look { at_ms: now_ms, value, size });
    }

    /// In how many seconds the value grows by `more`, if the trend continues; none if it does not grow, or very slowly, or was
    /// not watched for long.
    pub(super) fn reaches(&self, more: f64, now_ms: u64) -> Option<f64> {
        let last = self.last?;
        let now_ms = now_ms.max(last.at_ms);
        let first = (minute_of(now_ms) + 1).saturating_sub(MINUTES as u64);
        let grown: f64 = (first..=minute_of(last.at_ms)).map(|minute| f64::from(self.grown[at(minute)])).sum();
        let seconds = now_ms.saturating_sub(self.began_ms.max(first * MINUTE_MS)) as f64 / 1_000.0;
        if grown <= 0.0 || seconds < WATCHED_SECONDS_MIN {
            return None;
        }
        let reached = more * seconds / grown;
        (reached <= FORECAST_SECONDS_MAX).then_some(reached)
    }
}

const MINUTE_MS: u64 = 60_000;

fn minute_of(ms: u64) -> u64 {
    ms / MINUTE_MS
}

/// The index at which the growth of a minute is kept.
fn at(minute: u64) -> usize {
    (minute % MINUTES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the whole, unless stated otherwise.
    const SIZE: f64 = 1e6;

    /// Grows by `by` each second, for `seconds` seconds.
    fn grown(trend: &mut Trend, (mut value, mut now_ms): (f64, u64), by: f64, seconds: u64) -> (f64, u64) {
        for _ in 0..seconds {
            trend.note(value, SIZE, now_ms);
            (value, now_ms) = (value + by, now_ms + 1_000);
        }
        trend.note(value, SIZE, now_ms);
        (value, now_ms)
    }

    #[test]
    fn what_grows_evenly_reaches_its_end_when_it_should_once_it_was_watched_for_a_minute() {
        let mut new = Trend::default();
        let (_, now) = grown(&mut new, (1_000.0, 5_000), 2.0, 59);
        assert_eq!(new.reaches(100.0, now), None);
        for seconds in [61, 600, 3_600] {
            let mut trend = Trend::default();
            let (_, now) = grown(&mut trend, (1_000.0, 5_000), 2.0, seconds);
            let left = trend.reaches(100.0, now).unwrap();
            assert!((left - 50.0).abs() < 0.2, "after {seconds} s: {left}");
        }
    }

    #[test]
    fn what_stands_still_shrinks_or_was_never_looked_at_has_no_forecast() {
        let mut trend = Trend::default();
        assert_eq!(trend.reaches(1.0, 9_000), None);
        let at = grown(&mut trend, (500.0, 0), 0.0, 100);
        assert_eq!(trend.reaches(1.0, at.1), None);
        let at = grown(&mut trend, at, -1.0, 100);
        assert_eq!(trend.reaches(1.0, at.1), None);
    }

    #[test]
    fn a_burst_is_no_trend_any_more_after_ten_minutes_whether_it_was_looked_at_since_or_not() {
        let mut trend = Trend::default();
        let at = grown(&mut trend, (0.0, 0), 0.0, 1_200);
        let (value, now) = grown(&mut trend, at, 50_000.0, 1);
        assert!(trend.reaches(50_000.0, now).is_some());
        assert_eq!(trend.reaches(50_000.0, now + 600_000), None);
        for minute in 1..=1_000 {
            trend.note(value, SIZE, now + minute * 60_000);
            assert_eq!(trend.reaches(50_000.0, now + minute * 60_000).is_some(), minute < 10, "after {minute} min");
        }
        // A growth long after that counts by itself.
        let later = now + 2_000 * 60_000;
        trend.note(value + 10.0, SIZE, later);
        assert!(trend.reaches(10.0, later).is_some_and(|seconds| seconds <= 600.0));
    }

    #[test]
    fn what_came_with_a_change_of_the_size_is_no_growth() {
        let mut trend = Trend::default();
        let (value, now) = grown(&mut trend, (100.0, 0), 1.0, 300);
        let before = trend.reaches(1_000.0, now).unwrap();
        // A subnet that is nearly full comes from another network.
        trend.note(value + 250.0, SIZE + 254.0, now + 1_000);
        let after = trend.reaches(1_000.0, now + 1_000).unwrap();
        assert!((after - before).abs() < before / 50.0, "{before} {after}");
    }
}
