//! Combines the rounds of one subject: its speed is that of the middle round, its faults are those of all rounds.

use std::collections::BTreeMap;

use crate::report::{Report, median};

/// The combined rounds of a subject.
pub struct Found {
    /// The middle round by rate, the slower of two; among the rounds that are measurements, if there are any.
    pub middle: Report,
    /// The medians over those rounds; for an even number, the mean of the two in the middle.
    pub per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// The number of rounds behind these figures.
    pub rounds: usize,
    pub least: f64,
    pub most: f64,
    /// Other rounds in which the subject was found to be wrong.
    pub wrong: Vec<Report>,
    pub is_faulty: bool,
    /// Over all rounds: addresses handed out twice, refusals by kind, and why some are not measurements.
    pub duplicates: u64,
    pub refused: BTreeMap<String, u64>,
    pub not_made: Vec<String>,
}

impl Found {
    /// Combines the rounds; none if there are no rounds.
    pub fn of(reports: Vec<Report>) -> Option<Self> {
        let (mut refused, mut duplicates) = (BTreeMap::new(), 0);
        for report in &reports {
            duplicates += report.duplicates;
            for (kind, count) in &report.refused {
                *refused.entry(kind.clone()).or_default() += count;
            }
        }
        let is_faulty = reports.iter().any(Report::is_faulty);
        let not_made: Vec<String> = reports.iter().filter_map(|report| report.not_made.clone()).collect();
        let (made, unmade): (Vec<_>, Vec<_>) = reports.into_iter().partition(|report| report.not_made.is_none());
        let (mut rounds, others) = if made.is_empty() { (unmade, made) } else { (made, unmade) };
        rounds.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
        let (least, most) = (rounds.first()?.per_second, rounds.last()?.per_second);
        let the = |value: fn(&Report) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            median(&values).unwrap_or(0.0)
        };
        let (per_second, p50_ms, p99_ms) = (the(|r| r.per_second), the(|r| r.p50_ms), the(|r| r.p99_ms));
        let made = rounds.len();
        let middle = rounds.swap_remove((made - 1) / 2);
        let wrong = rounds.into_iter().chain(others).filter(Report::is_faulty).collect();
        Some(Self {
            middle,
            per_second,
            p50_ms,
            p99_ms,
            rounds: made,
            least,
            most,
            wrong,
            is_faulty,
            duplicates,
            refused,
            not_made,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Plan;
    use super::*;
    use crate::driver::Measured;
    use crate::meter::Meter;
    use crate::target::Flush;

    fn round(per_second: f64) -> Report {
        let plan =
            Plan { seconds: 1.0, connections: 1, depth: 1, pool: 20, flush: Flush::Off, replicas: 0, fill_level: 0.0 };
        let measured = Measured::new(Meter::new(None, None));
        Report { per_second, ..Report::measured("fill", "", &plan.shape().unwrap(), 1, &measured) }
    }

    #[test]
    fn what_is_handed_out_twice_or_refused_in_any_round_is_told() {
        let slow = Report { duplicates: 2, refused: BTreeMap::from([("none left".to_owned(), 3)]), ..round(1.0) };
        let fast = Report {
            duplicates: 5,
            refused: BTreeMap::from([("none left".to_owned(), 4), ("overloaded".to_owned(), 1)]),
            ..round(9.0)
        };
        let found = Found::of(vec![slow, round(5.0), fast]).unwrap();
        assert_eq!((found.middle.per_second, found.least, found.most), (5.0, 1.0, 9.0));
        assert!(found.is_faulty && !found.middle.is_faulty());
        assert_eq!((found.duplicates, found.wrong.len()), (7, 2));
        assert_eq!(
            found.refused.into_iter().collect::<Vec<_>>(),
            [("none left".to_owned(), 7), ("overloaded".to_owned(), 1)]
        );
    }

    #[test]
    fn a_round_that_was_no_measurement_is_not_the_one_in_the_middle_and_is_told() {
        let cut = |per_second| Report { not_made: Some("nothing was answered".to_owned()), ..round(per_second) };
        let found = Found::of(vec![cut(0.0), round(5.0), cut(0.0)]).unwrap();
        assert_eq!((found.middle.per_second, found.least, found.not_made.len()), (5.0, 5.0, 2));
        let even = Found::of(vec![round(9.0), round(1.0), round(2.0), round(4.0)]).unwrap();
        assert_eq!((even.per_second, even.middle.per_second, even.rounds), (3.0, 2.0, 4), "of four it is between two");
        let none = Found::of(vec![cut(0.0)]).unwrap();
        assert_eq!((none.middle.per_second, none.not_made.len(), none.is_faulty), (0.0, 1, false));
        assert!(Found::of(Vec::new()).is_none());
    }
}
