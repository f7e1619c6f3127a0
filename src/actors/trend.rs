//! How fast something grows, as of late: an average in which what happened counts the less the longer it is ago.

/// After so many seconds what happened counts a third of what happens now.
const FADES_SECONDS: f64 = 600.0;
/// What was watched for less time than this has no trend: a burst of seconds would be taken for how it goes on.
const WATCHED_SECONDS_MIN: f64 = 60.0;
/// What is further away than this is no forecast.
const FORECAST_SECONDS_MAX: f64 = 366.0 * 86_400.0;

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Trend {
    /// When it was noted last, in milliseconds of boot time, and how much there was; none: never.
    last: Option<(u64, f64)>,
    /// Growth for each second, weighted.
    weighted: f64,
    /// Sum of the weights: 1 after a long time. A trend that has just begun is no smaller for that.
    weight: f64,
}

impl Trend {
    /// There is so much now.
    pub(super) fn note(&mut self, value: f64, now_ms: u64) {
        let Some((then_ms, before)) = self.last else {
            self.last = Some((now_ms, value));
            return;
        };
        // What came within one millisecond counts with what comes next.
        if now_ms > then_ms {
            *self = self.at(value - before, now_ms);
            self.last = Some((now_ms, value));
        }
    }

    /// What the trend is at a later time, when there is so much more.
    fn at(&self, more: f64, now_ms: u64) -> Self {
        let seconds = self.last.map_or(0, |(then_ms, _)| now_ms.saturating_sub(then_ms)) as f64 / 1_000.0;
        if seconds <= 0.0 {
            return *self;
        }
        let fades = left_after(seconds);
        Self {
            weighted: self.weighted * fades + (1.0 - fades) * more / seconds,
            weight: self.weight * fades + (1.0 - fades),
            ..*self
        }
    }

    /// In how many seconds there is so much more, if it goes on so; none if it does not grow, or very slowly, or was not
    /// watched for long.
    pub(super) fn reaches(&self, more: f64, now_ms: u64) -> Option<f64> {
        let Self { weighted, weight, .. } = self.at(0.0, now_ms);
        // A weight says for how long: it has grown towards 1 ever since.
        if weighted <= 0.0 || weight < 1.0 - left_after(WATCHED_SECONDS_MIN) {
            return None;
        }
        let seconds = more / (weighted / weight);
        (seconds <= FORECAST_SECONDS_MAX).then_some(seconds)
    }
}

/// What is left of a weight after so many seconds.
fn left_after(seconds: f64) -> f64 {
    (-seconds / FADES_SECONDS).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grows by so much each second, for so many seconds.
    fn grown(trend: &mut Trend, (mut value, mut now_ms): (f64, u64), by: f64, seconds: u64) -> (f64, u64) {
        for _ in 0..seconds {
            trend.note(value, now_ms);
            (value, now_ms) = (value + by, now_ms + 1_000);
        }
        trend.note(value, now_ms);
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
            assert!((left - 50.0).abs() < 0.01, "after {seconds} s: {left}");
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
    fn a_trend_that_ended_is_forgotten_by_and_by() {
        let mut trend = Trend::default();
        let (_, now) = grown(&mut trend, (0.0, 0), 10.0, 1_200);
        let soon = trend.reaches(1_000.0, now).unwrap();
        let later = trend.reaches(1_000.0, now + 1_200_000).unwrap();
        assert!((soon - 100.0).abs() < 1.0 && later > 5.0 * soon, "{soon} {later}");
        assert_eq!(trend.reaches(1_000.0, now + 86_400_000), None);
    }
}
