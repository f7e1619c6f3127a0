//! `allod-load`: how fast a server hands out addresses, and whether it ever does so wrongly.
//!
//! Code map: a `session` makes networks and lets the `driver` (closed or open loop over epoll) ask what a `scenario` says;
//! each answer is judged by the `audit`, which knows who holds what, and counted by the `meter`; `report` has the figures as
//! lines, JSON, or a page with plots, and `live` shows them while they come. `target` starts servers, `control` makes the
//! calls outside the measured path, `options` says which options go together, and `interrupt` notices Ctrl-C. `compare`, `echo`, `goals`, `history`, `instructions` and `isolation` are commands of
//! their own. How to read the figures: README.md beside this.

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
use scenario::Name;
use session::Session;
use target::Target;

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    // Of instructions only the server's are counted.
    if cfg!(debug_assertions) && !matches!(command, Command::Instructions(_)) {
        eprintln!("allod-load: a debug build; its figures say nothing about speed");
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
        eprintln!("allod-load: {error}");
        Outcome::NotMade
    });
    match (outcome, interrupt::signal()) {
        (Outcome::InOrder, _) => ExitCode::SUCCESS,
        (Outcome::Wrong, _) => ExitCode::FAILURE,
        (Outcome::NotMade, Some(signal)) => ExitCode::from(signal.exit_code()),
        (Outcome::NotMade, None) => ExitCode::from(2),
    }
}

/// What the exit code says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    InOrder,
    /// The server broke a rule.
    Wrong,
    /// The run could not be made, or not to its end.
    NotMade,
}

impl Outcome {
    fn of(faulty: bool) -> Self {
        if faulty { Outcome::Wrong } else { Outcome::InOrder }
    }
}

/// A seed out of the clock: runs against one server should not meet each other's owners.
#[expect(clippy::disallowed_methods, reason = "not a time that anything is measured or decided by")]
fn seed_of_now() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos())
}

/// Runs a scenario once, or once at each fill level.
fn run(scenario: Name, arguments: &RunArguments) -> io::Result<Outcome> {
    arguments.check(scenario)?;
    let levels: Vec<Option<f64>> = match arguments.fill_level.as_slice() {
        [] => vec![None],
        levels => levels.iter().copied().map(Some).collect(),
    };
    let mut target = Target::find(&arguments.target)?;
    let seed = arguments.seed.unwrap_or_else(seed_of_now);
    let (mut reports, mut is_whole, mut telling) = (Vec::new(), true, Telling::default());
    for (at, level) in (0u32..).zip(&levels) {
        let seed = seed.wrapping_add(at);
        let shape = arguments.shape.shape(target.servers.clone(), seed)?;
        let shape = Shape { patience: arguments.patience(), ..shape };
        let settings = arguments.settings(shape.lanes(), seed, *level);
        let built = scenario.build(&settings);
        let session = Session {
            name: scenario.text(),
            label: arguments.label.clone(),
            settings: Some(options::told(&settings, &shape, &built.networks())),
            fill_level: *level,
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
        };
        let report = match session.run(built, &mut target) {
            // What the levels before have shown is not lost with this one.
            Err(error) if !reports.is_empty() => {
                eprintln!("allod-load: {error}");
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
    let report = echo::measure(arguments.shape(Vec::new(), 0)?, arguments.brief)?;
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

/// `allod-load.1`, `allod-load-run.1`, ….
fn man(arguments: &ManArguments) -> io::Result<()> {
    std::fs::create_dir_all(&arguments.directory)?;
    clap_mangen::generate_to(Arguments::command(), &arguments.directory)
}
