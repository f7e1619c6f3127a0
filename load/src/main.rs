//! `allod-load`: how fast a server hands out addresses, and whether it ever does so wrongly.
//!
//! Code map: a `session` makes networks and lets the `driver` (closed or open loop over epoll) ask what a `scenario` says;
//! each answer is judged by the `audit`, which knows who holds what, and counted by the `meter`; `report` has the figures as
//! lines, JSON, or a page with plots, and `live` shows them while they come. `target` starts servers, `control` makes the
//! calls outside the measured path. `compare`, `echo`, `goals`, `history`, `instructions` and `isolation` are commands of
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
mod isolation;
mod live;
mod meter;
mod names;
mod refusal;
mod report;
mod scan;
mod scenario;
mod session;
mod target;

use std::io;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;

use arguments::{Arguments, Command, IsolationArguments, ReportArguments, RunArguments, ShapeArguments};
use isolation::Isolation;
use report::Report;
use report::document::{Document, write_file};
use scenario::Name;
use session::Session;
use target::Target;

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    // Of instructions only the server's are counted.
    if cfg!(debug_assertions) && !matches!(command, Command::Instructions(_)) {
        eprintln!("allod-load: a debug build; its figures say nothing about speed");
    }
    let faulty = match command {
        Command::Run(command) => run(command.scenario, &command.arguments),
        Command::Fill(arguments) => run(Name::Fill, &arguments),
        Command::Echo(arguments) => echo(&arguments),
        Command::P99Isolation(arguments) => p99_isolation(&arguments),
        Command::History(arguments) => history::run(&arguments),
        Command::Instructions(arguments) => instructions::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Goals(arguments) => goals::run(&arguments),
        Command::Report(arguments) => page(&arguments),
    };
    match faulty {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("allod-load: {error}");
            ExitCode::from(2)
        }
    }
}

/// A seed out of the clock: runs against one server should not meet each other's owners.
#[expect(clippy::disallowed_methods, reason = "not a time that anything is measured or decided by")]
fn seed_of_now() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos())
}

/// Runs a scenario once, or once at each fill level. True: the server was found to be wrong.
fn run(scenario: Name, arguments: &RunArguments) -> io::Result<bool> {
    let levels: Vec<Option<f64>> = match arguments.fill_level.as_slice() {
        [] => vec![None],
        levels => levels.iter().copied().map(Some).collect(),
    };
    if let Some(level) = levels.iter().flatten().find(|level| !(0.0..=1.0).contains(*level)) {
        let text = format!("--fill-level {level}: it is a share, from 0 to 1");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut target = Target::find(&arguments.target)?;
    let seed = arguments.seed.unwrap_or_else(seed_of_now);
    let mut reports = Vec::new();
    for (at, level) in (0u32..).zip(&levels) {
        let seed = seed.wrapping_add(at);
        let shape = arguments.shape.shape(target.servers.clone(), seed)?;
        let settings = arguments.settings(shape.lanes(), seed, *level);
        let session = Session {
            name: scenario.text(),
            label: arguments.label.clone(),
            shape,
            stop_is_default: arguments.shape.requests.is_none() && arguments.shape.seconds.is_none(),
            create: !arguments.no_create,
            // The next level begins with empty networks.
            delete: arguments.delete || levels.len() > 1,
            kill: arguments.kill,
            listing: arguments.listing,
            live: !arguments.quiet && live::is_watched(),
        };
        let report = session.run(scenario.build(&settings), &mut target)?;
        if !arguments.shape.json {
            report.print(false)?;
        }
        reports.push(report);
    }
    if arguments.shape.json {
        let text =
            if let [report] = &reports[..] { serde_json::to_string(report)? } else { serde_json::to_string(&reports)? };
        println!("{text}");
    }
    let faulty = reports.iter().any(Report::is_faulty);
    let document = Document::of(reports);
    if let Some(path) = &arguments.save {
        document.write(path)?;
    }
    if let Some(path) = &arguments.page {
        write_file(path, &report::page::page(&[document]))?;
    }
    Ok(faulty)
}

fn echo(arguments: &ShapeArguments) -> io::Result<bool> {
    let report = echo::measure(arguments.shape(Vec::new(), 0)?, arguments.brief)?;
    report.print(arguments.json)?;
    Ok(report.is_faulty())
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
    found.print(arguments.json)?;
    let too_slow = arguments.at_most.is_some_and(|limit| found.p99_ratio > limit);
    Ok(found.is_faulty() || too_slow)
}

fn page(arguments: &ReportArguments) -> io::Result<bool> {
    let documents = arguments.files.iter().map(|path| Document::read(path)).collect::<io::Result<Vec<_>>>()?;
    write_file(&arguments.output, &report::page::page(&documents))?;
    Ok(false)
}
