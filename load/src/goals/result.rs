//! The results of the goals: judged, and presented as a table for people and as an object with stable member names.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::probe::{Figure, Measurement, Size};
use super::table::{Formula, Goal, Take, Wanted};
use crate::report::document::{Machine, now};
use crate::report::median;

/// Incremented when a member changes its meaning.
const FORMAT: u32 = 1;

/// The settings of the run.
#[derive(Debug, Clone, Serialize)]
pub struct Setting {
    pub seconds: f64,
    pub rounds: u16,
    pub connections: u16,
    pub depth: u16,
    pub full_pool: u8,
    pub reservations: u64,
    pub networks: u32,
}

/// A figure of a measurement.
#[derive(Debug, Clone, Serialize)]
struct Source {
    measurement: String,
    figure: Figure,
}

/// One goal.
#[derive(Debug, Clone, Serialize)]
struct Row {
    goal: String,
    what: String,
    at_least: Option<f64>,
    at_most: Option<f64>,
    /// The median of its rounds (for an even number, the mean of the two in the middle), the least and the greatest value;
    /// none if it was not measured.
    measured: Option<f64>,
    least: Option<f64>,
    most: Option<f64>,
    /// None if it was not measured, or has no bound.
    met: Option<bool>,
    why_not: Option<String>,
    /// The value of each round is `of`, divided by the best of `over` if there is any.
    of: Option<Source>,
    over: Vec<Source>,
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
struct Line {
    measurement: String,
    /// The figures of each round; none for rounds in which it was not made.
    rounds: Vec<Option<BTreeMap<Figure, f64>>>,
    why_not: Option<String>,
    faulty: bool,
}

/// The whole result. Member names are stable: scripts read `--json`.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    format: u32,
    made_by: String,
    made_at: String,
    machine: Machine,
    #[serde(flatten)]
    setting: Setting,
    goals: Vec<Row>,
    measurements: Vec<Line>,
}

impl Outcome {
    /// Judges the goals.
    pub fn of(setting: Setting, goals: &[Goal], measurements: &[Measurement], size: &Size) -> Self {
        let line = |made: &Measurement| Line {
            measurement: made.name.clone(),
            rounds: made.rounds.iter().map(|round| round.as_ref().map(|reading| reading.figures.clone())).collect(),
            why_not: made.why_not.clone(),
            faulty: made.is_faulty(),
        };
        Self {
            format: FORMAT,
            made_by: concat!("allod-load ", env!("CARGO_PKG_VERSION")).to_owned(),
            made_at: now(),
            machine: Machine::here(),
            setting,
            goals: goals.iter().map(|goal| Row::of(goal, measurements, size)).collect(),
            measurements: measurements.iter().map(line).collect(),
        }
    }

    pub fn has_missed(&self) -> bool {
        self.goals.iter().any(|row| row.met == Some(false))
    }

    /// Prints the result.
    ///
    /// # Errors
    /// Standard output is closed.
    pub fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            return writeln!(out, "{}", serde_json::to_string(self)?);
        }
        self.write(&mut out)
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Setting { seconds, rounds, connections, depth, .. } = self.setting;
        writeln!(out, "{connections} connections x {depth}, {seconds} s each, median of {rounds} rounds in turns")?;
        writeln!(out, "\n| goal | wanted | measured | met |\n|---|---:|---:|---|")?;
        for row in &self.goals {
            let met = row.met.map_or("–", |met| if met { "yes" } else { "no" });
            writeln!(out, "| `{}` {} | {} | {} | {met} |", row.goal, row.what, row.wanted(), row.found())?;
        }
        writeln!(out, "\n| measurement | a second | p50 ms | p99 ms |\n|---|---:|---:|---:|")?;
        for line in self.measurements.iter().filter(|line| line.figure(Figure::PerSecond).is_some()) {
            let figure = |figure| line.figure(figure).filter(|value| *value > 0.0).map_or("–".to_owned(), digits);
            let (rate, p50, p99) = (figure(Figure::PerSecond), figure(Figure::P50Ms), figure(Figure::P99Ms));
            writeln!(out, "| {} | {rate} | {p50} | {p99} |", line.measurement)?;
        }
        for row in &self.goals {
            if let Some(why) = &row.why_not {
                writeln!(out, "not measured: {}: {why}", row.goal)?;
            }
        }
        // The figures of such a measurement, and of its goals, come from the other rounds.
        for line in &self.measurements {
            if let Some(why) = &line.why_not {
                let made = line.rounds.iter().flatten().count();
                writeln!(out, "`{}`: in {made} of {rounds} rounds: {why}", line.measurement)?;
            }
        }
        for line in self.measurements.iter().filter(|line| line.faulty) {
            writeln!(out, "WRONG: {}", line.measurement)?;
        }
        Ok(())
    }
}

impl Line {
    /// The median of its rounds.
    fn figure(&self, figure: Figure) -> Option<f64> {
        let values = self.rounds.iter().flatten().filter_map(|figures| figures.get(&figure).copied()).collect();
        middle(values).map(|[_, middle, _]| middle)
    }
}

impl Row {
    fn of(goal: &Goal, measurements: &[Measurement], size: &Size) -> Self {
        let source = |take: &Take| Source { measurement: take.probe.name(size), figure: take.figure };
        let (of, over) = match &goal.formula {
            Formula::Over(of, over) => (Some(source(of)), over.iter().map(source).collect()),
            Formula::Itself(of) => (Some(source(of)), Vec::new()),
            Formula::Elsewhere(_) => (None, Vec::new()),
        };
        let (at_least, at_most) = match goal.wanted {
            Wanted::AtLeast(least) => (Some(least), None),
            Wanted::AtMost(most) => (None, Some(most)),
            Wanted::Shown => (None, None),
        };
        let found = middle(values(goal, measurements));
        let (least, measured, most) = (found.map(|f| f[0]), found.map(|f| f[1]), found.map(|f| f[2]));
        let met = measured.filter(|_| goal.wanted != Wanted::Shown).map(|measured| {
            at_least.is_none_or(|least| measured >= least) && at_most.is_none_or(|most| measured <= most)
        });
        let why_not = if measured.is_some() { None } else { Some(why_not(goal, measurements)) };
        let (goal, what) = (goal.name.clone(), goal.what.clone());
        Self { goal, what, at_least, at_most, measured, least, most, met, why_not, of, over }
    }

    fn wanted(&self) -> String {
        match (self.at_least, self.at_most) {
            (Some(least), _) => format!("≥ {least}"),
            (_, Some(most)) => format!("≤ {most}"),
            (None, None) => "–".to_owned(),
        }
    }

    fn found(&self) -> String {
        let (Some(measured), Some(least), Some(most)) = (self.measured, self.least, self.most) else {
            return "not measured".to_owned();
        };
        if least == most {
            return digits(measured);
        }
        format!("{} ({} to {})", digits(measured), digits(least), digits(most))
    }
}

/// Three significant digits.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 100.0 => 0,
        tens if tens >= 10.0 => 1,
        ones if ones >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// The value of the goal in each round in which everything for it was measured.
fn values(goal: &Goal, measurements: &[Measurement]) -> Vec<f64> {
    let rounds = measurements.iter().map(|measurement| measurement.rounds.len()).max().unwrap_or(0);
    let value = |round| match &goal.formula {
        Formula::Over(of, over) => {
            let over = over.iter().map(|take| figure(take, measurements, round)).collect::<Option<Vec<f64>>>()?;
            let best = if of.figure.is_rate() { f64::max } else { f64::min };
            let divisor = over.into_iter().reduce(best).filter(|divisor| *divisor > 0.0)?;
            Some(figure(of, measurements, round)? / divisor)
        }
        Formula::Itself(of) => figure(of, measurements, round),
        Formula::Elsewhere(_) => None,
    };
    (0..rounds).filter_map(value).collect()
}

fn figure(take: &Take, measurements: &[Measurement], round: usize) -> Option<f64> {
    let measurement = measurements.iter().find(|measurement| measurement.probe == take.probe)?;
    measurement.rounds.get(round)?.as_ref()?.figures.get(&take.figure).copied()
}

fn why_not(goal: &Goal, measurements: &[Measurement]) -> String {
    if let Formula::Elsewhere(command) = goal.formula {
        return format!("`{command}` measures it");
    }
    let needed = |measurement: &&Measurement| goal.takes().iter().any(|take| take.probe == measurement.probe);
    let missing = measurements.iter().filter(needed).find_map(|made| {
        let why = match &made.why_not {
            Some(why) => why,
            None if made.is_faulty() => "a server broke a rule, so how fast it was is no matter",
            None if made.rounds.is_empty() => "the run was ended before",
            None => return None,
        };
        Some(format!("{}: {why}", made.name))
    });
    missing.unwrap_or_else(|| "the time was too short for such a figure".to_owned())
}

/// The least, the median, and the greatest value.
fn middle(mut values: Vec<f64>) -> Option<[f64; 3]> {
    values.sort_by(f64::total_cmp);
    Some([*values.first()?, median(&values)?, *values.last()?])
}

#[cfg(test)]
mod tests {
    use super::super::probe::{Probe, Reading};
    use super::*;

    const SIZE: Size = Size { seconds: 1.0, connections: 1, depth: 1, full_pool: 16, reservations: 1, networks: 1 };

    fn made(probe: &Probe, rates: &[Option<f64>]) -> Measurement {
        let reading = |rate: &Option<f64>| {
            rate.map(|rate| Reading { figures: BTreeMap::from([(Figure::PerSecond, rate)]), faulty: false })
        };
        Measurement { rounds: rates.iter().map(reading).collect(), ..Measurement::new(probe, &SIZE) }
    }

    #[test]
    fn a_ratio_is_the_median_of_those_of_its_rounds_over_the_best_of_each() {
        let take = |probe: &Probe| Take { probe: probe.clone(), figure: Figure::PerSecond };
        let (ours, other) = (Probe::Flood, Probe::HalfRate(crate::target::Backend::of(crate::target::Store::Memory)));
        let goal = |wanted| Goal {
            name: "a".to_owned(),
            what: String::new(),
            wanted,
            formula: Formula::Over(take(&ours), vec![take(&Probe::Echo), take(&other)]),
        };
        let measurements = [
            made(&ours, &[Some(10.0), Some(60.0), Some(30.0), Some(1.0)]),
            made(&Probe::Echo, &[Some(10.0), Some(10.0), Some(5.0), None]),
            made(&other, &[Some(5.0), Some(20.0), Some(15.0), Some(1.0)]),
        ];
        let row = |wanted| Row::of(&goal(wanted), &measurements, &SIZE);
        let found = row(Wanted::AtLeast(2.0));
        assert_eq!((found.least, found.measured, found.most), (Some(1.0), Some(2.0), Some(3.0)));
        assert_eq!(found.met, Some(true));
        assert_eq!(row(Wanted::AtMost(1.9)).met, Some(false));
        assert_eq!(row(Wanted::Shown).met, None);
        let two = [made(&ours, &[Some(10.0), Some(60.0)]), made(&Probe::Echo, &[Some(10.0), Some(20.0)])];
        let mut beside_echo = goal(Wanted::Shown);
        beside_echo.formula = Formula::Over(take(&ours), vec![take(&Probe::Echo)]);
        assert_eq!(Row::of(&beside_echo, &two, &SIZE).measured, Some(2.0), "of two rounds it is between them");
        let nowhere = Goal { formula: Formula::Elsewhere("x"), ..goal(Wanted::AtMost(1.0)) };
        let nowhere = Row::of(&nowhere, &measurements, &SIZE);
        assert_eq!((nowhere.met, nowhere.why_not), (None, Some("`x` measures it".to_owned())));
    }

    #[test]
    fn a_goal_without_figures_says_why_it_has_none() {
        let goal = Goal {
            name: "a".to_owned(),
            what: String::new(),
            wanted: Wanted::Shown,
            formula: Formula::Itself(Take { probe: Probe::Echo, figure: Figure::PerSecond }),
        };
        let wrong = Measurement { rounds: vec![Some(Reading::wrong())], ..made(&Probe::Echo, &[]) };
        let nothing = Measurement { rounds: vec![Some(Reading::default())], ..made(&Probe::Echo, &[]) };
        for (measurement, why) in
            [(wrong, "broke a rule"), (made(&Probe::Echo, &[]), "ended before"), (nothing, "the time was too short")]
        {
            let row = Row::of(&goal, &[measurement], &SIZE);
            assert!(row.why_not.as_ref().is_some_and(|told| told.contains(why)), "{why}: {:?}", row.why_not);
        }
    }

    #[test]
    fn a_measurement_that_failed_in_a_later_round_is_told_beside_those_that_it_has() {
        let setting =
            Setting { seconds: 1.0, rounds: 3, connections: 1, depth: 1, full_pool: 16, reservations: 1, networks: 1 };
        let whole = made(&Probe::Echo, &[Some(5.0), Some(6.0), Some(7.0)]);
        let why_not = Some("it closed a connection".to_owned());
        let once = Measurement { why_not, failed: true, ..made(&Probe::Flood, &[Some(10.0), None, None]) };
        let (name, mut text) = (once.name.clone(), Vec::new());
        Outcome::of(setting, &[], &[whole, once], &SIZE).write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let told: Vec<&str> = text.lines().filter(|line| line.contains(" of 3 rounds:")).collect();
        assert_eq!(told, [format!("`{name}`: in 1 of 3 rounds: it closed a connection")], "{text}");
    }
}
