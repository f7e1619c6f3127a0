//! How long a page of `events.history` takes over a long history.
//!
//! Fills a register with many events of many networks: lanes that allocate and release, as `fill` does, each address drawn
//! from a whole 10.0.0.0/8. At its beginning, middle and end one network, `needle`, has two events: what is looked for among
//! all the others. Then the server is started anew, with files that no cache of the machine has, and asked.
//!
//! Each answer is judged: what there is of the needle is known, and has to be told, neither more nor less.
//!
//! Neighbours: `queries` has what is asked; `driver` and `scenario` make the bulk; `target` starts and ends the server.

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
use crate::driver::{self, PATIENCE_DEFAULT, Shape, Stop};
use crate::meter::Meter;
use crate::report::{Report as Filled, Telling};
use crate::scenario::{Name, Settings};
use crate::session;
use crate::target::Server;

/// Nothing of a history of any length is forgotten while it is measured.
const KEEP: (&str, &str) = ("ALLOD_HISTORY__KEEP_BYTES", "17592186044416");
/// How long a server that was just started may take until it tells its history.
const READ_UP_WITHIN: Duration = Duration::from_secs(600);
/// Pages after which nobody turns over any more.
const PAGES_MAX: usize = 200;

/// With fewer events a network has no full page before and behind the middle.
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

/// What was measured of one query.
#[derive(Debug, Serialize)]
struct Row {
    query: String,
    /// The first page, after everything that the machine kept of the files was dropped.
    cold_ms: f64,
    /// The first page again and again: half of them took longer.
    warm_ms: f64,
    /// The slowest of all pages that were asked for.
    slowest_ms: f64,
    /// From the cold one on until the last page was there.
    whole_ms: f64,
    pages: usize,
    events: usize,
    /// What was told that is not so.
    wrong: Option<String>,
}

/// All of it. Member names are stable: scripts read `--json`.
#[derive(Debug, Serialize)]
struct Report {
    store: String,
    /// Events that this run made, and how long that took.
    filled: u64,
    fill_seconds: f64,
    /// Bytes in the directory.
    directory_bytes: u64,
    /// From the start of the server until it was ready, and until it told its history.
    ready_seconds: f64,
    told_seconds: f64,
    rows: Vec<Row>,
}

/// Fills, asks, reports. True: something that was told is not so, or it took too long.
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
        // Who was wrong is wrong, whatever failed afterwards.
        Err(error) if is_wrong => {
            eprintln!("allod-load: {error}");
            Ok(true)
        }
        outcome => outcome.map(|is_slow| is_wrong || is_slow),
    }
}

/// Fills, asks, reports; notes when the server is found to be wrong, which is told at once. True: it took too long.
fn fill_and_ask(place: &Place, arguments: &HistoryArguments, is_wrong: &mut bool) -> io::Result<bool> {
    let begun = Instant::now();
    if arguments.events > 0 {
        fill(place, arguments, is_wrong)?;
    }
    let fill_seconds = begun.elapsed().as_secs_f64();
    // The index is written behind the commits: a server that tells its history has caught up, and leaves it to the next.
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
                eprintln!("WRONG: {wrong}");
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

/// Where the register is.
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

    /// The machine drops what it keeps of the files in memory.
    fn forget_cached(&self) -> io::Result<()> {
        self.files()?.iter().try_for_each(|(path, _)| forget(path))
    }
}

fn forget(path: &Path) -> io::Result<()> {
    let file = match File::open(path) {
        Ok(file) => file,
        // It was temporary.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // Only what is on the disk can be dropped.
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(())
}

/// Makes the history; notes when the server was found to be wrong, which is told.
fn fill(place: &Place, arguments: &HistoryArguments, is_wrong: &mut bool) -> io::Result<()> {
    let (server, _) = place.start()?;
    let mut control = Control::connect(&[server.address])?;
    queries::make_needle(&mut control)?;
    let shape = Shape {
        servers: vec![server.address],
        connections: 32,
        depth: 32,
        warmup: Duration::ZERO,
        stop: Stop::Requests((arguments.events / 2).max(1)),
        rate: None,
        seed: 0,
        patience: PATIENCE_DEFAULT,
    };
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
    let prepared = session::prepare(&mut control, scenario, &networks, shape.lanes(), shape.seed, true, &|_| ())?;
    let mut audited = prepared.audited;
    audited.scenario.begin();
    for _ in 0..2 {
        queries::needle(&mut control)?;
        let measured = driver::run(&shape, &mut audited, Meter::new(None, None))?;
        eprintln!("{} events in {:.0} s", measured.answers, measured.elapsed.as_secs_f64());
        let others = audited.audit.settle();
        let filled = Filled::measured("fill", "the history", &shape, networks.len(), &measured).audited(&audited);
        if filled.is_faulty() && !*is_wrong {
            eprint!("{}", filled.text());
            *is_wrong = true;
        }
        measured.whole()?;
        if let Some(others) = others {
            return Err(io::Error::other(others));
        }
    }
    queries::needle(&mut control)
}

/// Waits until the history is told; how long that took.
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
        warm_ms: warm[warm.len() / 2],
        slowest_ms: warm[warm.len() - 1].max(slowest_ms),
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
            // Who turns no more pages says so.
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
