//! How long a page of `events.history` takes over a long history.
//!
//! First a register is filled with many events of many networks: lanes allocate and release as in `fill`, and each address
//! is drawn from a whole 10.0.0.0/8. At the beginning, in the middle and at the end one network, `needle`, gets two events,
//! to be found among all the others. Then the server is restarted, with files that are in no cache of the machine, and
//! queried.
//!
//! Each answer is judged: the events of `needle` are known, and the answer must contain exactly these.
//!
//! Neighbours: `queries` has the queries; `driver` and `scenario` make the bulk of the events; `target` starts and ends the
//! server.

mod queries;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::fs::{Advice, fadvise};
use serde::Serialize;
use serde_json::{Value, json};

use self::queries::{Places, Query, queries};
use crate::control::Control;
use crate::driver::{self, Measured, Shape, Stop};
use crate::meter::Meter;
use crate::report::{Report as Filled, Telling, median};
use crate::scenario::{Name, Settings};
use crate::session::Prepared;
use crate::target::Server;

/// Large enough that the server forgets nothing while it is measured, however long the history is.
const KEEP: (&str, &str) = ("ALLOD_HISTORY__KEEP_BYTES", "17592186044416");
/// How long a server that was just started may take until it answers from its history.
const READ_UP_WITHIN: Duration = Duration::from_secs(600);
/// The most pages that a query is followed for.
const PAGES_MAX: usize = 200;

/// The fewest events for each network: with fewer there would be no full page before and after the middle.
const EVENTS_A_NETWORK_MIN: u64 = 300;

/// `allod-load history`.
#[derive(Args)]
pub struct HistoryArguments {
    /// So many events are made first, at least 300 for each network; 0: the history is there already (`--directory`,
    /// `--redis`).
    #[arg(long, default_value_t = 10_000_000, value_name = "N")]
    events: u64,
    /// Keep the data here, and leave them there. By default they are removed afterwards.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The history is in this Redis server, which is started and emptied by who measures.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Networks among which the events are divided, each in a realm of its own.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    networks: u16,
    /// Addresses that each of the 1 024 lanes holds before it lets the oldest go.
    #[arg(long, default_value_t = 64, value_name = "N")]
    hold: usize,
    /// How often each page is asked for while it is warm.
    #[arg(long, default_value_t = 20, value_name = "N")]
    repeat: usize,
    /// Fail (exit code 1) if a page took longer than this, cold or warm.
    #[arg(long, value_name = "MS")]
    at_most: Option<f64>,
    /// Ask only what has this in its name.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The measurement of one query.
#[derive(Debug, Serialize)]
struct Row {
    query: String,
    /// The first page, after all files were dropped from the machine's page cache.
    cold_ms: f64,
    /// The median of the first page when it is asked for again.
    warm_ms: f64,
    /// The slowest of all pages.
    slowest_ms: f64,
    /// From the cold page until the last page.
    whole_ms: f64,
    pages: usize,
    events: usize,
    /// What the answer told wrongly.
    wrong: Option<String>,
}

/// The whole result. Member names are stable: scripts read `--json`.
#[derive(Debug, Serialize)]
struct Report {
    store: String,
    /// Events that this run made, and how long that took.
    filled: u64,
    fill_seconds: f64,
    /// Bytes in the directory.
    directory_bytes: u64,
    /// From the start of the server until it was ready; from then until it answered from its history.
    ready_seconds: f64,
    told_seconds: f64,
    rows: Vec<Row>,
}

/// Fills, asks, reports. True: an answer was wrong, or a page took too long.
///
/// # Errors
/// A server cannot be started or asked.
pub fn run(arguments: &HistoryArguments) -> io::Result<bool> {
    let own = if arguments.directory.is_some() { None } else { Some(tempfile::tempdir()?) };
    let directory = match (&arguments.directory, &own) {
        (Some(directory), _) => directory.clone(),
        (None, Some(own)) => own.path().to_path_buf(),
        (None, None) => return Err(io::Error::other("there is no directory")),
    };
    if arguments.events == 0 && arguments.directory.is_none() && arguments.redis.is_none() {
        return Err(io::Error::other(
            "`--events 0` asks a history that is there: say where, by `--directory` or `--redis`",
        ));
    }
    let least = u64::from(arguments.networks) * EVENTS_A_NETWORK_MIN;
    if (1..least).contains(&arguments.events) {
        return Err(io::Error::other(format!(
            "`--events {}` over {} networks is too little of a history: some answers would be no full page; say at least \
             {least}, or fewer `--networks`",
            arguments.events, arguments.networks
        )));
    }
    if let Some(only) = &arguments.only {
        let names = queries::names();
        if !names.iter().any(|name| name.contains(only.as_str())) {
            let text =
                format!("--only {only}: nothing that is asked has this in its name; there are: {}", names.join("; "));
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
    }
    let place = Place { directory, redis: arguments.redis.clone() };
    let mut is_wrong = false;
    match fill_and_ask(&place, arguments, &mut is_wrong) {
        // A wrong answer remains the outcome, whatever failed afterwards.
        Err(error) if is_wrong => {
            say!("allod-load: {error}");
            Ok(true)
        }
        outcome => outcome.map(|is_slow| is_wrong || is_slow),
    }
}

/// Fills, asks, reports. Wrong answers are reported at once and set `is_wrong`. True: a page took too long.
fn fill_and_ask(place: &Place, arguments: &HistoryArguments, is_wrong: &mut bool) -> io::Result<bool> {
    let begun = Instant::now();
    if arguments.events > 0 {
        fill(place, arguments, is_wrong)?;
    }
    let fill_seconds = begun.elapsed().as_secs_f64();
    // The index is written after the commits. A server that answers from its history has caught up, so the next one finds a
    // complete index.
    let (server, _) = place.start()?;
    told(&server)?;
    drop(server);
    place.forget_cached()?;
    let (server, ready) = place.start()?;
    let told = told(&server)?;
    let mut control = Control::connect(&[server.address])?;
    let places = Places::find(&mut control)?;
    let mut rows = Vec::new();
    for query in queries(&places) {
        if arguments.only.as_ref().is_none_or(|only| query.name.contains(only.as_str())) {
            place.forget_cached()?;
            let row = measure(&mut control, &query, arguments.repeat)?;
            if let Some(wrong) = &row.wrong {
                say!("WRONG: {wrong}");
                *is_wrong = true;
            }
            rows.push(row);
        }
    }
    let report = Report {
        store: if arguments.redis.is_some() { "redis" } else { "embedded" }.to_owned(),
        filled: arguments.events,
        fill_seconds: if arguments.events > 0 { fill_seconds } else { 0.0 },
        directory_bytes: place.files()?.iter().map(|(_, bytes)| bytes).sum(),
        ready_seconds: ready.as_secs_f64(),
        told_seconds: told.as_secs_f64(),
        rows,
    };
    let slow = |row: &Row| arguments.at_most.is_some_and(|most| row.slowest_ms > most);
    let (is_slow, mut telling) = (report.rows.iter().any(slow), Telling::default());
    telling.note(report.print(arguments.json));
    telling.end(*is_wrong || is_slow)?;
    Ok(is_slow)
}

/// Where the register is kept.
struct Place {
    directory: PathBuf,
    redis: Option<String>,
}

impl Place {
    fn start(&self) -> io::Result<(Server, Duration)> {
        let begun = Instant::now();
        let flags: Vec<&str> = match &self.redis {
            Some(url) => vec!["--redis", url],
            None => vec!["--store", "embedded"],
        };
        let server = Server::start_in(&self.directory, &flags, &[KEEP])?;
        Ok((server, begun.elapsed()))
    }

    fn files(&self) -> io::Result<Vec<(PathBuf, u64)>> {
        let (mut files, mut left) = (Vec::new(), vec![self.directory.clone()]);
        while let Some(directory) = left.pop() {
            for entry in std::fs::read_dir(directory)? {
                let entry = entry?;
                let facts = entry.metadata()?;
                if facts.is_dir() {
                    left.push(entry.path());
                } else {
                    files.push((entry.path(), facts.len()));
                }
            }
        }
        Ok(files)
    }

    /// Drops the files from the page cache of the machine.
    fn forget_cached(&self) -> io::Result<()> {
        self.files()?.iter().try_for_each(|(path, _)| forget(path))
    }
}

fn forget(path: &Path) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => file,
        // The file was temporary.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // Only pages that are on the disk can be dropped.
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(())
}

/// Makes the history. If the server is found to be wrong, that is reported and sets `is_wrong`.
fn fill(place: &Place, arguments: &HistoryArguments, is_wrong: &mut bool) -> io::Result<()> {
    let (server, _) = place.start()?;
    let mut control = Control::connect(&[server.address])?;
    queries::make_needle(&mut control)?;
    let half = Stop::Requests((arguments.events / 2).max(1));
    let shape = Shape { servers: vec![server.address], ..Shape::closed(32, 32, half) };
    let settings = Settings {
        lanes: shape.lanes(),
        brief: true,
        networks: Some(usize::from(arguments.networks)),
        policy: Some("random".to_owned()),
        hold: Some(arguments.hold),
        ..Settings::default()
    };
    let scenario = Name::Fill.build(&settings);
    let networks = scenario.networks();
    let mut prepared = Prepared::new(scenario, networks.len(), &shape);
    prepared.audited.audit.nobody_else();
    let made = prepared.make(&mut control, &networks, true, &crate::advice::Advice::default(), &|_| ());
    let mut audited = prepared.audited;
    let report = |measured: &Measured| Filled::measured("fill", "the history", &shape, networks.len(), measured);
    if let Err(error) = made {
        return is_filled(&report(&Measured::nothing()).ended_by(&mut audited, error)?, is_wrong);
    }
    audited.scenario.begin();
    for _ in 0..2 {
        queries::needle(&mut control)?;
        let measured = driver::run(&shape, &mut audited, Meter::new(None, None))?;
        say!("{} events in {:.0} s", measured.answers, measured.elapsed.as_secs_f64());
        let others = audited.audit.settle();
        let mut filled = report(&measured).audited(&audited);
        filled.judge();
        filled.shared_with(others);
        is_filled(&filled, is_wrong)?;
    }
    queries::needle(&mut control)
}

/// Checks a part of the filling. The first time that the server is found to be wrong, that is reported and sets `is_wrong`.
///
/// # Errors
/// The history could not be made.
fn is_filled(report: &Filled, is_wrong: &mut bool) -> io::Result<()> {
    if report.is_faulty() && !*is_wrong {
        say!("{}", report.text().trim_end());
        *is_wrong = true;
    }
    report.not_made.clone().map_or(Ok(()), |why| Err(io::Error::other(why)))
}

/// Waits until the server answers from its history, and returns how long that took.
fn told(server: &Server) -> io::Result<Duration> {
    let (mut control, begun) = (Control::connect(&[server.address])?, Instant::now());
    while let Err(error) = control.call("events.history", &json!({"limit": 1})) {
        if begun.elapsed() > READ_UP_WITHIN || !error.to_string().contains("not_ready") {
            return Err(error);
        }
    }
    Ok(begun.elapsed())
}

fn measure(control: &mut Control, query: &Query, repeat: usize) -> io::Result<Row> {
    let mut ask = |params: &Value| {
        let begun = Instant::now();
        let answer = control.call("events.history", params)?;
        Ok::<_, io::Error>((answer, begun.elapsed().as_secs_f64() * 1e3))
    };
    let (mut params, mut told, mut pages, mut whole_ms) = (query.params.clone(), Vec::new(), 0, 0.0);
    let (mut cold_ms, mut slowest_ms) = (0.0, 0.0_f64);
    loop {
        let (mut page, ms) = ask(&params)?;
        if pages == 0 {
            cold_ms = ms;
        }
        slowest_ms = slowest_ms.max(ms);
        whole_ms += ms;
        pages += 1;
        if let Some(events) = page["events"].as_array_mut() {
            told.append(events);
        }
        match page.get("next") {
            Some(next) if pages < PAGES_MAX => params["after"] = next.clone(),
            _ => break,
        }
    }
    let mut warm = Vec::new();
    for _ in 0..repeat.max(1) {
        warm.push(ask(&query.params)?.1);
    }
    warm.sort_by(f64::total_cmp);
    Ok(Row {
        query: query.name.clone(),
        cold_ms,
        warm_ms: median(&warm).unwrap_or(0.0),
        slowest_ms: warm.last().copied().unwrap_or(0.0).max(slowest_ms),
        whole_ms,
        pages,
        events: told.len(),
        wrong: query.wrong(&told, pages < PAGES_MAX),
    })
}

impl Report {
    fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            return writeln!(out, "{}", serde_json::to_string(self)?);
        }
        writeln!(
            out,
            "{}: {} events made in {:.0} s; {:.1} MB of files; ready after {:.1} s, history told after {:.1} s",
            self.store,
            self.filled,
            self.fill_seconds,
            self.directory_bytes as f64 / 1e6,
            self.ready_seconds,
            self.told_seconds
        )?;
        writeln!(out, "| asked for | cold | warm | slowest page | to the end | pages | events |")?;
        writeln!(out, "|---|---:|---:|---:|---:|---:|---:|")?;
        for row in &self.rows {
            let Row { query, cold_ms, warm_ms, slowest_ms, whole_ms, pages, events, wrong } = row;
            // A plus sign marks a query that was not followed to its last page.
            let more = if *pages < PAGES_MAX { "" } else { "+" };
            writeln!(
                out,
                "| {query} | {cold_ms:.0} | {warm_ms:.1} | {slowest_ms:.0} | {whole_ms:.0}{more} | {pages}{more} | {events}{more} |"
            )?;
            if let Some(wrong) = wrong {
                writeln!(out, "  WRONG: {wrong}")?;
            }
        }
        Ok(())
    }
}
