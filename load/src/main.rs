//! `allod-load`: how fast a server hands out addresses, and whether it ever does so wrongly.
//!
//! Code map: a `session` creates networks and lets the `driver` (closed or open loop over epoll) send the requests of a
//! `scenario`. The `audit`, which knows who holds what, judges each answer, and the `meter` counts it. `report` presents the
//! figures as lines, JSON, or a page with plots, and `live` shows them during the run. `target` starts servers, `control`
//! makes the calls outside the measured path, `options` checks which options go together, `advice` is what runs of a command
//! advise, and `interrupt` notices Ctrl-C. `compare`, `echo`, `goals`, `history`, `instructions` and `isolation` are commands
//! of their own. How to read the figures: README.md beside this.
#![warn(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "they panic where nobody reads any more; use `say` and `Telling`"
)]

/// Writes a line to standard error. It ignores errors: a reader that has gone, or a closed terminal, must not fail the run.
macro_rules! say {
    ($($words:tt)*) => {{
        let line = format!($($words)*) + "\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    }};
}

mod advice;
mod arguments;
mod arrivals;
mod audit;
mod audited;
mod compare;
mod control;
mod driver;
mod echo;
mod goals;
mod history;
mod instructions;
mod interrupt;
mod isolation;
mod live;
mod meter;
mod names;
mod options;
mod refusal;
mod report;
mod scan;
mod scenario;
mod session;
mod target;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{CommandFactory, Parser};

use arguments::{Arguments, Command, IsolationArguments, ManArguments, ReportArguments, RunArguments, ShapeArguments};
use driver::Shape;
use isolation::Isolation;
use report::document::{Document, write_file};
use report::{Report, Telling};
use scenario::{Name, Scenario};
use session::Session;
use target::Target;

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    // `instructions` counts only those of the server, whatever build this program is.
    if cfg!(debug_assertions) && !matches!(command, Command::Instructions(_)) {
        say!("allod-load: a debug build; its figures say nothing about speed");
    }
    let outcome = interrupt::watch().and_then(|()| match command {
        Command::Run(command) => run(command.scenario, &command.arguments),
        Command::Fill(arguments) => run(Name::Fill, &arguments),
        Command::Echo(arguments) => echo(&arguments),
        Command::P99Isolation(arguments) => p99_isolation(&arguments).map(Outcome::of),
        Command::History(arguments) => history::run(&arguments).map(Outcome::of),
        Command::Instructions(arguments) => instructions::run(&arguments).map(Outcome::of),
        Command::Compare(arguments) => compare::run(&arguments).map(Outcome::of),
        Command::Goals(arguments) => goals::run(&arguments).map(Outcome::of),
        Command::Report(arguments) => page(&arguments).map(Outcome::of),
        Command::Man(arguments) => man(&arguments).map(|()| Outcome::InOrder),
    });
    let outcome = outcome.unwrap_or_else(|error| {
        say!("allod-load: {error}");
        Outcome::NotMade
    });
    match (outcome, interrupt::signal()) {
        (Outcome::InOrder, _) => ExitCode::SUCCESS,
        (Outcome::Wrong, _) => ExitCode::FAILURE,
        (Outcome::NotMade, Some(signal)) => ExitCode::from(signal.exit_code()),
        (Outcome::NotMade, None) => ExitCode::from(2),
    }
}

/// The outcome that the exit code reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    InOrder,
    /// The server broke a rule.
    Wrong,
    /// The run could not be made, or not completed.
    NotMade,
}

impl Outcome {
    fn of(faulty: bool) -> Self {
        if faulty { Outcome::Wrong } else { Outcome::InOrder }
    }
}

/// A seed from the clock: runs against one server should not use the same owners.
#[expect(clippy::disallowed_methods, reason = "not a time that anything is measured or decided by")]
fn seed_of_now() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos())
}

/// The session of a scenario at one fill level.
fn session(scenario: Name, arguments: &RunArguments, shape: Shape, level: Option<f64>) -> (Session, Box<dyn Scenario>) {
    let settings = arguments.settings(shape.lanes(), shape.seed, level);
    let built = scenario.build(&settings);
    let networks = built.networks();
    let session = Session {
        name: scenario.text(),
        label: arguments.label.clone(),
        settings: Some(options::told(&settings, &shape, networks.first().filter(|_| !arguments.no_create))),
        fill_level: level,
        attended: true,
        shape,
        stop_is_default: arguments.shape.requests.is_none() && arguments.shape.seconds.is_none(),
        create: !arguments.no_create,
        only_made: arguments.is_several(),
        // The next level begins with empty networks.
        delete: arguments.deletes(),
        kill: arguments.kill,
        listing: arguments.listing,
        live: !arguments.quiet && live::is_watched(),
        advice: arguments.advice(scenario),
    };
    (session, built)
}

/// Runs a scenario once, or once at each fill level.
fn run(scenario: Name, arguments: &RunArguments) -> io::Result<Outcome> {
    arguments.check(scenario)?;
    let shape = arguments.shape.shape(arguments.seed.unwrap_or_else(seed_of_now))?;
    let shape = Shape { patience: arguments.patience(), ..shape };
    let levels: Vec<Option<f64>> = match arguments.fill_level.as_slice() {
        [] => vec![None],
        levels => levels.iter().copied().map(Some).collect(),
    };
    let mut target = Target::find(&arguments.target)?;
    let (mut reports, mut is_whole, mut telling) = (Vec::new(), true, Telling::default());
    for (at, level) in (0u32..).zip(&levels) {
        let shape = Shape { seed: shape.seed.wrapping_add(at), ..shape.clone() };
        let (session, built) = session(scenario, arguments, shape, *level);
        let report = match session.run(built, &mut target) {
            // The results of the earlier levels are kept although this one failed.
            Err(error) if !reports.is_empty() => {
                say!("allod-load: {error}");
                is_whole = false;
                break;
            }
            report => report?,
        };
        if !arguments.shape.json {
            telling.note(report.print(false));
        }
        reports.push(report);
        if interrupt::signal().is_some() {
            is_whole &= reports.len() == levels.len();
            break;
        }
    }
    if arguments.shape.json {
        let one = levels.len() == 1;
        let text = match reports.first() {
            Some(report) if one => serde_json::to_string(report)?,
            _ => serde_json::to_string(&reports)?,
        };
        telling.note(writeln!(io::stdout(), "{text}"));
    }
    let is_made = is_whole && reports.iter().all(|report| report.not_made.is_none());
    let faulty = reports.iter().any(Report::is_faulty);
    let document = Document::of(reports);
    if let Some(path) = &arguments.save {
        telling.note(document.write(path));
    }
    if let Some(path) = &arguments.page {
        telling.note(write_file(path, &report::page::page(&[document])));
    }
    telling.end(faulty)?;
    Ok(if faulty || is_made { Outcome::of(faulty) } else { Outcome::NotMade })
}

fn echo(arguments: &ShapeArguments) -> io::Result<Outcome> {
    let report = echo::measure(arguments.shape(0)?, arguments.brief)?;
    let (faulty, mut telling) = (report.is_faulty(), Telling::default());
    telling.note(report.print(arguments.json));
    telling.end(faulty)?;
    Ok(if faulty || report.not_made.is_none() { Outcome::of(faulty) } else { Outcome::NotMade })
}

fn p99_isolation(arguments: &IsolationArguments) -> io::Result<bool> {
    let isolation = Isolation {
        target: Target::find(&arguments.target)?,
        connections: usize::from(arguments.connections),
        depth: usize::from(arguments.depth),
        seconds: arguments.seconds,
        cidr: arguments.cidr.clone(),
        seed: seed_of_now(),
    };
    let found = isolation.run()?;
    let too_slow = arguments.at_most.zip(found.p99_ratio).is_some_and(|(limit, ratio)| ratio > limit);
    let (failed, mut telling) = (found.is_faulty() || too_slow, Telling::default());
    telling.note(found.print(arguments.json));
    telling.end(failed)?;
    Ok(failed)
}

fn page(arguments: &ReportArguments) -> io::Result<bool> {
    let documents = arguments.files.iter().map(|path| Document::read(path)).collect::<io::Result<Vec<_>>>()?;
    write_file(&arguments.output, &report::page::page(&documents))?;
    Ok(false)
}

/// Writes `allod-load.1`, `allod-load-run.1`, ….
fn man(arguments: &ManArguments) -> io::Result<()> {
    std::fs::create_dir_all(&arguments.directory)?;
    clap_mangen::generate_to(Arguments::command(), &arguments.directory)
}
