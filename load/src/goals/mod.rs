//! All speed goals in one run: each measurement is made once per round, in turns, and a table shows the goals and the
//! results.
//!
//! A goal is data (`table`): its name, its bound, and the figures that it divides. A measurement (`probe`) is made once per
//! round, however many goals use it, on a server of its own (`drive`). The value of a goal is the median over its rounds, so
//! that a machine that is slow for a while is slow for both sides of a ratio. `result` judges and prints.

mod bare_set;
mod drive;
mod probe;
mod result;
mod table;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use self::probe::{Measurement, Probe, Size};
use self::result::{Outcome, Setting};
use self::table::{Goal, Take, goals};
use crate::arguments::TurnsArguments;
use crate::interrupt;
use crate::report::Telling;
use crate::report::document::{check_place, write_file};

/// The prefix of the goals that fill a pool, and the share of its addresses that is left free: one in so many.
const FULL_POOL: &str = "full";
const FULL_POOL_FREE_OF: u64 = 1_000;
/// The longest measurement that is allowed, in seconds.
const SECONDS_MAX: f64 = 600.0;

/// `allod-load goals`.
#[derive(Args)]
pub struct GoalsArguments {
    /// Only goals whose names begin so; all by default.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Tell the names of the goals, and measure nothing.
    #[arg(long)]
    list: bool,
    /// Time of each measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    #[command(flatten)]
    turns: TurnsArguments,
    /// Addresses of the pool that is filled to 99.9 %, as a prefix length. The goal is meant for 8: a minute and five gigabytes
    /// a round.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u8).range(8..=20), value_name = "LENGTH")]
    full_pool: u8,
    /// Reservations that are many: what is loaded at a start, and held while others are made.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=4_000_000), value_name = "N")]
    reservations: u64,
    /// Networks that are many.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000), value_name = "N")]
    networks: u32,
    /// Fail (exit code 1) if a goal is missed.
    #[arg(long)]
    strict: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Write the same object to this file.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// Measures in turns, and prints the table. True: a server was found to be wrong, or, with `--strict`, a goal is missed.
///
/// # Errors
/// No goal has such a name, or a measurement failed although its programs are installed; the table is printed before.
pub fn run(arguments: &GoalsArguments) -> io::Result<bool> {
    let size = arguments.size()?;
    let goals = chosen(goals(&size), &arguments.only)?;
    arguments.check_full_pool(&goals)?;
    if arguments.list {
        let (mut out, mut telling) = (io::stdout().lock(), Telling::default());
        telling.note(goals.iter().try_for_each(|goal| writeln!(out, "{}: {}", goal.name, goal.what)));
        return telling.end(false).map(|()| false);
    }
    arguments.save.iter().try_for_each(|path| check_place(path))?;
    let measurements = measure(&goals, &size, arguments.turns.rounds);
    let setting = Setting {
        seconds: arguments.seconds,
        rounds: arguments.turns.rounds,
        connections: arguments.turns.connections,
        depth: arguments.turns.depth,
        full_pool: arguments.full_pool,
        reservations: arguments.reservations,
        networks: arguments.networks,
    };
    let outcome = Outcome::of(setting, &goals, &measurements, &size);
    let (is_faulty, mut telling) = (measurements.iter().any(Measurement::is_faulty), Telling::default());
    telling.note(outcome.print(arguments.json));
    if let Some(path) = &arguments.save {
        telling.note(write_file(path, &serde_json::to_string_pretty(&outcome)?));
    }
    telling.end(is_faulty)?;
    // A fault counts, whatever else could not be measured.
    if is_faulty {
        return Ok(true);
    }
    interrupt::check(0)?;
    match measurements.iter().filter(|measurement| measurement.failed).count() {
        0 => Ok(arguments.strict && outcome.has_missed()),
        failed => Err(io::Error::other(format!("{failed} measurements could not be made; the table says why"))),
    }
}

impl GoalsArguments {
    /// Checks that the free addresses of the full pool are enough for the lanes, each of which keeps one.
    fn check_full_pool(&self, goals: &[Goal]) -> io::Result<()> {
        let lanes = u64::from(self.turns.connections) * u64::from(self.turns.depth);
        let free = (1u64 << (32 - self.full_pool)) / FULL_POOL_FREE_OF;
        if free >= lanes / 2 || !goals.iter().any(|goal| goal.name.starts_with(FULL_POOL)) {
            return Ok(());
        }
        let (length, connections, depth) = (self.full_pool, self.turns.connections, self.turns.depth);
        let text = format!(
            "--full-pool {length}: {free} addresses of it are free, and {connections} connections x {depth} keep one each; take a \
             smaller number, or fewer of them"
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    fn size(&self) -> io::Result<Size> {
        if !(self.seconds > 0.0 && self.seconds <= SECONDS_MAX) {
            let text = format!("--seconds {}: it has to be above 0, and at most {SECONDS_MAX}", self.seconds);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Size {
            seconds: self.seconds,
            connections: usize::from(self.turns.connections),
            depth: usize::from(self.turns.depth),
            full_pool: self.full_pool,
            reservations: self.reservations,
            networks: self.networks as usize,
        })
    }
}

/// The goals whose names begin with one of these prefixes; each prefix must match at least one.
fn chosen(goals: Vec<Goal>, only: &[String]) -> io::Result<Vec<Goal>> {
    if let Some(unknown) = only.iter().find(|only| !goals.iter().any(|goal| goal.name.starts_with(only.as_str()))) {
        let names: Vec<&str> = goals.iter().map(|goal| goal.name.as_str()).collect();
        let text = format!("--only {unknown}: no goal's name begins so; there are {}", names.join(", "));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let is_chosen = |goal: &Goal| only.is_empty() || only.iter().any(|only| goal.name.starts_with(only.as_str()));
    Ok(goals.into_iter().filter(is_chosen).collect())
}

/// Makes each measurement that a goal uses, once per round.
fn measure(goals: &[Goal], size: &Size, rounds: u16) -> Vec<Measurement> {
    let mut probes: Vec<&Probe> = Vec::new();
    for goal in goals {
        // If one side of a ratio cannot be measured, the other is not needed; the reason is reported.
        let takes = goal.takes();
        let is_missing = |take: &&&Take| take.probe.missing().is_some();
        let missing: Vec<&Take> = takes.iter().filter(is_missing).copied().collect();
        for take in if missing.is_empty() { takes } else { missing } {
            if !probes.contains(&&take.probe) {
                probes.push(&take.probe);
            }
        }
    }
    let mut measurements: Vec<Measurement> = probes.into_iter().map(|probe| Measurement::new(probe, size)).collect();
    for round in 1..=rounds {
        for measurement in &mut measurements {
            if measurement.is_due(round) {
                say!("round {round} of {rounds}: {}", measurement.name);
            }
            measurement.make(round, size);
            if interrupt::signal().is_some() {
                return measurements;
            }
        }
    }
    measurements
}
