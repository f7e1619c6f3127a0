//! Compares allod with alternatives: on the same machine, in the same run, in turns.
//!
//! Every subject hands out single addresses as fast as it answers, from a pool of the same size. What a subject promises
//! with an answer differs, and is printed beside its figures. Subjects that are not installed are named, and not measured.

mod kea;
mod postgres;
mod redis_scripts;
mod rounds;

pub use redis_scripts::SCRIPTS;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use self::rounds::Found;
use crate::arguments::TurnsArguments;
use crate::driver::{Shape, Stop};
use crate::interrupt;
use crate::refusal::is_for_room;
use crate::report::document::{Document, check_place, write_file};
use crate::report::{Report, Telling};
use crate::scenario::{Name, Settings};
use crate::session::Session;
use crate::target::{Backend, Flush, Store, Target};

/// `allod-load compare`.
#[derive(Args)]
pub struct CompareArguments {
    /// Beside what; all by default.
    #[arg(long, value_delimiter = ',', value_name = "WHAT")]
    with: Vec<Rival>,
    /// Time of each measurement.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    turns: TurnsArguments,
    /// Addresses of the pool, as the prefix length of an IPv4 network.
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u8).range(8..=20))]
    pool: u8,
    /// When Redis flushes its file, below allod and below the scripts.
    #[arg(long, default_value = "everysec", value_name = "WHEN")]
    appendfsync: Flush,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Write the reports to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Write a page with plots to this file.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// What people would use instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Rival {
    /// Scripts in a Redis server: a bitmap, a sorted set, or a list of free addresses.
    Redis,
    /// A table in PostgreSQL, drawn from with SKIP LOCKED.
    Postgres,
    /// ISC Kea DHCPv4, asked by perfdhcp; needs root.
    Kea,
}

/// The parameters of a measurement.
pub struct Plan {
    pub seconds: f64,
    pub connections: usize,
    pub depth: usize,
    /// Prefix length of the pool.
    pub pool: u8,
    pub flush: Flush,
    /// Replicas of a Redis. allod waits for them; a script does not.
    pub replicas: usize,
    /// For Kea: how full the pool is, with scattered leases. Its pool is as large as its rates need, whatever `pool` says.
    pub fill_level: f64,
}

impl Plan {
    /// Addresses of the pool.
    fn addresses(&self) -> u64 {
        1 << (32 - u32::from(self.pool))
    }

    /// The shape for subjects that are driven over our own connections.
    fn shape(&self) -> io::Result<Shape> {
        let stop = Stop::After(Duration::try_from_secs_f64(self.seconds).map_err(io::Error::other)?);
        Ok(Shape::closed(self.connections, self.depth, stop))
    }
}

/// A subject of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    AllodEmbedded,
    AllodRedis,
    Script(redis_scripts::Script),
    Postgres,
    Kea,
}

impl Subject {
    /// All subjects that are asked for; allod comes first, because the others are compared with it.
    fn all(rivals: &[Rival]) -> Vec<Self> {
        let asks = |rival| rivals.is_empty() || rivals.contains(&rival);
        let mut subjects = vec![Subject::AllodEmbedded];
        if asks(Rival::Redis) {
            subjects.push(Subject::AllodRedis);
            subjects.extend(redis_scripts::SCRIPTS.map(Subject::Script));
        }
        subjects.extend(asks(Rival::Postgres).then_some(Subject::Postgres));
        subjects.extend(asks(Rival::Kea).then_some(Subject::Kea));
        subjects
    }

    /// The name in tables.
    pub fn name(self, plan: &Plan) -> String {
        match self {
            Subject::AllodEmbedded => "allod, embedded".to_owned(),
            Subject::AllodRedis => format!("allod, redis ({})", plan.flush.name()),
            Subject::Script(script) => format!("redis script, {} ({})", script.name(), plan.flush.name()),
            Subject::Postgres => "postgresql, skip locked".to_owned(),
            Subject::Kea => "kea dhcp4, memfile".to_owned(),
        }
    }

    /// What an answer promises.
    fn promise(self, plan: &Plan) -> &'static str {
        let redis = match plan.flush {
            Flush::Off => "nothing is kept",
            Flush::Everysec => "flushed within a second",
            Flush::Always => "flushed before the answer",
        };
        match self {
            Subject::AllodEmbedded | Subject::Postgres => "flushed before the answer",
            Subject::AllodRedis | Subject::Script(_) => redis,
            Subject::Kea => "written, not flushed; an offer and an acknowledgement each",
        }
    }

    /// Why this machine cannot measure it, if so.
    pub fn missing(self) -> Option<String> {
        match self {
            Subject::AllodEmbedded => None,
            Subject::AllodRedis | Subject::Script(_) => missing(&["redis-server"]),
            Subject::Postgres => postgres::missing(),
            Subject::Kea => kea::missing(),
        }
    }

    /// Measures the subject.
    ///
    /// # Errors
    /// It cannot be started or driven.
    pub fn measure(self, plan: &Plan) -> io::Result<Report> {
        let report = match self {
            Subject::AllodEmbedded => allod(Store::Embedded, plan),
            Subject::AllodRedis => allod(Store::Redis, plan),
            Subject::Script(script) => redis_scripts::measure(script, plan),
            Subject::Postgres => postgres::measure(plan),
            Subject::Kea => kea::measure(plan),
        };
        let name = self.name(plan);
        let mut report = report.map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
        let remark = if report.note.is_empty() { String::new() } else { format!("; {}", report.note) };
        (report.label, report.note) = (name, format!("{}{remark}", self.promise(plan)));
        report.target = String::new();
        // A subject that has run out of addresses goes on answering; these answers are not compared.
        if self != Subject::Kea {
            report.per_second *= report.held as f64 / report.answers.max(1) as f64;
        }
        Ok(report)
    }
}

/// The first of these programs that is not installed, in words.
pub fn missing(programs: &[&str]) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &&str| std::env::split_paths(&path).any(|directory| directory.join(program).exists());
    programs.iter().find(|program| !is_there(program)).map(|program| format!("there is no {program}"))
}

/// The medians of a subject's measurements, with allod's ratios to them.
#[derive(Debug, Serialize)]
struct Row {
    subject: String,
    promise: String,
    /// Addresses per second: the median, the least, and the greatest.
    per_second: f64,
    per_second_least: f64,
    per_second_most: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// The number of rounds behind these figures.
    rounds: usize,
    /// The rate of allod's embedded store divided by this one, over rounds in which all subjects were measured; none if
    /// there are none.
    allod_is_times: Option<f64>,
    /// The rate of allod over Redis divided by this one; none if that was not measured.
    allod_redis_is_times: Option<f64>,
    /// Over all rounds: addresses that were handed out twice, and whether any rule was broken.
    duplicates: u64,
    faulty: bool,
    /// Over all rounds: answers without an address, in total and by kind.
    refused: u64,
    refused_by_kind: BTreeMap<String, u64>,
    /// Why some rounds are not measurements; they are not in the figures.
    not_made: Vec<String>,
}

/// The whole result. Member names are stable: scripts read `--json`.
#[derive(Debug, Serialize)]
struct Comparison {
    rounds: u16,
    connections: u16,
    depth: u16,
    addresses: u64,
    rows: Vec<Row>,
    /// What was not measured, and why.
    not_measured: Vec<String>,
}

/// Measures in turns and prints ratios. True: a subject handed out an address twice, in any round, even if the comparison
/// could not be completed.
///
/// # Errors
/// A subject that is installed cannot be started or driven, or a round was not a measurement; the results so far are printed
/// before.
pub fn run(arguments: &CompareArguments) -> io::Result<bool> {
    if arguments.seconds <= 0.0 {
        let text = format!("--seconds {}: it has to be above 0", arguments.seconds);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    [&arguments.save, &arguments.page].into_iter().flatten().try_for_each(|path| check_place(path))?;
    let plan = Plan {
        seconds: arguments.seconds,
        connections: usize::from(arguments.turns.connections),
        depth: usize::from(arguments.turns.depth),
        pool: arguments.pool,
        flush: arguments.appendfsync,
        replicas: 0,
        fill_level: 0.0,
    };
    let (mut subjects, mut not_measured) = (Vec::new(), Vec::new());
    for subject in Subject::all(&arguments.with) {
        match subject.missing() {
            Some(why) => not_measured.push(format!("{}: {why}", subject.name(&plan))),
            None => subjects.push((subject, Vec::new())),
        }
    }
    let failure = measure(&mut subjects, &plan, arguments.turns.rounds).err();
    // If the comparison ended in the middle of a round, that round does not have all subjects, and is in no ratio.
    let whole = subjects.iter().map(|(_, reports)| reports.len()).min().unwrap_or(0);
    let rates: Vec<(Subject, f64)> = subjects
        .iter()
        .filter_map(|(subject, reports)| Some((*subject, Found::of(reports[..whole].to_vec())?.per_second)))
        .collect();
    let found: Vec<(Subject, Found)> =
        subjects.into_iter().filter_map(|(subject, reports)| Some((subject, Found::of(reports)?))).collect();
    let comparison = Comparison {
        rounds: arguments.turns.rounds,
        connections: arguments.turns.connections,
        depth: arguments.turns.depth,
        addresses: plan.addresses(),
        rows: found.iter().map(|(subject, found)| Row::of(*subject, found, &plan, &rates)).collect(),
        not_measured,
    };
    let mut telling = Telling::default();
    telling.note(comparison.print(arguments.json));
    let is_faulty = found.iter().any(|(_, found)| found.is_faulty);
    let not_made = found.iter().find_map(|(subject, found)| Some((subject, found.not_made.first()?)));
    let not_made = not_made.map(|(subject, why)| io::Error::other(format!("{}: {why}", subject.name(&plan))));
    let document =
        Document::of(found.into_iter().flat_map(|(_, found)| [vec![found.middle], found.wrong].concat()).collect());
    if let Some(path) = &arguments.save {
        telling.note(document.write(path));
    }
    if let Some(path) = &arguments.page {
        telling.note(write_file(path, &crate::report::page::page(&[document])));
    }
    telling.end(is_faulty || failure.is_some() || not_made.is_some())?;
    match failure.or(not_made) {
        Some(failure) if is_faulty => {
            say!("allod-load: {failure}");
            Ok(true)
        }
        Some(failure) => Err(failure),
        None => Ok(is_faulty),
    }
}

/// Measures each subject once per round, until a measurement fails.
fn measure(subjects: &mut [(Subject, Vec<Report>)], plan: &Plan, rounds: u16) -> io::Result<()> {
    for round in 1..=rounds {
        for (subject, reports) in &mut *subjects {
            interrupt::check(0)?;
            say!("round {round} of {rounds}: {}", subject.name(plan));
            let report = subject.measure(plan)?;
            if report.is_faulty() {
                say!("{}", report.text().trim_end());
            }
            reports.push(report);
        }
    }
    Ok(())
}

impl Row {
    /// `rates` has the rates of all subjects, over rounds in which all were measured.
    fn of(subject: Subject, found: &Found, plan: &Plan, rates: &[(Subject, f64)]) -> Self {
        let Found { middle, per_second, p50_ms, p99_ms, rounds, least, most, .. } = found;
        let rate_of = |of| rates.iter().find(|(subject, _)| *subject == of).map(|(_, rate)| *rate);
        let times = |ours| Some(rate_of(ours)? / rate_of(subject)?.max(f64::MIN_POSITIVE));
        Self {
            subject: subject.name(plan),
            promise: middle.note.clone(),
            per_second: *per_second,
            per_second_least: *least,
            per_second_most: *most,
            p50_ms: *p50_ms,
            p99_ms: *p99_ms,
            rounds: *rounds,
            allod_is_times: times(Subject::AllodEmbedded),
            allod_redis_is_times: times(Subject::AllodRedis),
            duplicates: found.duplicates,
            faulty: found.is_faulty,
            refused: found.refused.values().sum(),
            refused_by_kind: found.refused.clone(),
            not_made: found.not_made.clone(),
        }
    }

    /// Remarks on its rounds, beside the figures.
    fn remarks(&self, rounds: u16) -> Vec<String> {
        let refused = self.refused_by_kind.iter().map(|(kind, count)| {
            if is_for_room(kind) {
                format!("ran out of addresses, {count} times: take a larger --pool, or fewer --seconds")
            } else {
                format!("refused {count} times, and not for want of room: {kind}")
            }
        });
        let not_made = self.not_made.iter().map(|why| format!("NOT MADE: {why}"));
        let wrong = if self.duplicates > 0 {
            Some(format!("WRONG: {} addresses were handed out twice", self.duplicates))
        } else {
            self.faulty.then(|| "WRONG: a rule was broken; which, is told above".to_owned())
        };
        let fewer = (self.rounds < usize::from(rounds)).then(|| format!("of {} of {rounds} rounds", self.rounds));
        fewer.into_iter().chain(refused).chain(not_made).chain(wrong).collect()
    }
}

/// allod with a store, on a server of its own.
fn allod(store: Store, plan: &Plan) -> io::Result<Report> {
    let mut target = Target::start(Backend { flush: plan.flush, replicas: plan.replicas, ..Backend::of(store) })?;
    let shape = plan.shape()?;
    let cidr = format!("10.0.0.0/{}", plan.pool);
    let settings =
        Settings { lanes: shape.lanes(), brief: true, cidr: Some(cidr), networks: Some(1), ..Settings::default() };
    Session::unattended("fill", shape).run(Name::Fill.build(&settings), &mut target)
}

impl Comparison {
    fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            return writeln!(out, "{}", serde_json::to_string(self)?);
        }
        let Self { rounds, connections, depth, addresses, .. } = self;
        writeln!(
            out,
            "single addresses of {addresses}, {connections} connections x {depth}, median of {rounds} rounds in turns"
        )?;
        writeln!(
            out,
            "| what | addresses/s | least to most | p50 ms | p99 ms | allod, embedded, is | allod, redis, is | an answer is |"
        )?;
        writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---|")?;
        for row in &self.rows {
            let Row { subject, promise, per_second, per_second_least: least, per_second_most: most, .. } = row;
            // Subjects without recorded latencies have no percentiles.
            let ms = |value: f64| if value > 0.0 { format!("{value:.2}") } else { "–".to_owned() };
            let ratio = |times: Option<f64>| times.map_or("–".to_owned(), |times| format!("{times:.2}×"));
            let (p50, p99, times) = (ms(row.p50_ms), ms(row.p99_ms), ratio(row.allod_is_times));
            let over_redis = ratio(row.allod_redis_is_times);
            write!(out, "| {subject} | {per_second:.0} | {least:.0} to {most:.0} | {p50} | {p99} ")?;
            writeln!(out, "| {times} | {over_redis} | {promise} |")?;
            row.remarks(*rounds).iter().try_for_each(|remark| writeln!(out, "  {remark}"))?;
        }
        self.not_measured.iter().try_for_each(|what| writeln!(out, "not measured: {what}"))
    }
}
