//! The measurements: each probe starts what it needs, drives it, and returns named figures.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde::Serialize;

use super::drive;
use crate::compare::{self, Plan, Subject};
use crate::driver::{Shape, Stop};
use crate::meter::Kind;
use crate::refusal::is_for_room;
use crate::report::Report;
use crate::scenario::{Name, Record};
use crate::target::{Backend, Flush, Store};

/// The duration and the sizes of measurements.
pub struct Size {
    pub seconds: f64,
    pub connections: usize,
    pub depth: usize,
    /// Prefix length of the pool that is filled.
    pub full_pool: u8,
    /// What counts as many reservations.
    pub reservations: u64,
    /// What counts as many networks.
    pub networks: usize,
}

impl Size {
    /// A closed loop for the time of a measurement; a session fills in its servers.
    pub fn shape(&self, connections: usize, depth: usize) -> Shape {
        Shape::closed(connections, depth, Stop::After(Duration::from_secs_f64(self.seconds)))
    }
}

/// The figures of probes. The names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Answers per second.
    PerSecond,
    /// Grants per second of addresses that the server chose, in a mix with other requests.
    AllocationsPerSecond,
    P50Ms,
    P99Ms,
    P999Ms,
    /// Processor time of Redis per answer, in microseconds.
    RedisMicros,
    /// Latencies of SET on the same Redis.
    BareP50Ms,
    BareP99Ms,
    /// p99 of a network beside a flood of another, divided by its p99 alone.
    P99Ratio,
    /// From the start of the process until it says that it is ready.
    ReadySeconds,
    /// The longest wait of a client while the register was handed over.
    PauseSeconds,
    /// Space of a reservation in Redis beyond the bytes of its record, and the parts of the hashes and of the indexes.
    BytesOver,
    HashBytesOver,
    IndexBytes,
    /// Bytes of its record.
    RecordBytes,
    /// Batches of changes that Redis keeps at the end.
    HistoryBatches,
    /// Registers that were driven at once; the rate is that of all together.
    Registers,
}

impl Figure {
    /// Is a greater value better?
    pub fn is_rate(self) -> bool {
        matches!(self, Figure::PerSecond | Figure::AllocationsPerSecond)
    }
}

/// Requests outstanding on each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The depth of the run.
    Many,
    One,
}

impl Depth {
    pub fn of(self, size: &Size) -> usize {
        match self {
            Depth::Many => size.depth,
            Depth::One => 1,
        }
    }
}

/// A scenario on a server of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    pub backend: Backend,
    pub scenario: Name,
    pub depth: Depth,
    pub networks: usize,
    /// Each connection stays in one network.
    pub keep_network: bool,
    pub record: Record,
    pub cidr: Option<String>,
    pub policy: Option<&'static str>,
    pub prefill: Option<u64>,
    pub fill_level: Option<f64>,
    pub hold: Option<usize>,
}

impl Load {
    /// Allocations in one empty /8 network.
    pub fn fill(backend: Backend) -> Self {
        Self {
            backend,
            scenario: Name::Fill,
            depth: Depth::Many,
            networks: 1,
            keep_network: false,
            record: Record::default(),
            cidr: None,
            policy: None,
            prefill: None,
            fill_level: None,
            hold: None,
        }
    }

    fn name(&self, size: &Size) -> String {
        let Self { backend, scenario, depth, networks, keep_network, .. } = self;
        let (connections, depth) = (size.connections, depth.of(size));
        let mut name = format!("{}: {} {connections} x {depth}", backend.name(), scenario.text());
        let mut add = |text: Option<String>| text.iter().for_each(|text| name.extend([", ", text]));
        add((*networks != 1).then(|| format!("{networks} networks")));
        add(keep_network.then(|| "one a connection".to_owned()));
        add(self.cidr.clone());
        add(self.policy.map(str::to_owned));
        add(self.prefill.map(|held| format!("{held} held")));
        add(self.fill_level.map(|level| format!("{} % full", level * 100.0)));
        add(self.hold.map(|hold| format!("hold {hold}")));
        name
    }
}

/// An alternative to allod, measured as in `compare`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rival {
    pub subject: Subject,
    /// Overrides the number of connections of the run.
    pub connections: Option<usize>,
    pub depth: Depth,
    pub flush: Flush,
    pub replicas: usize,
    pub fill_level: f64,
}

impl Rival {
    /// With an empty pool, over a Redis without replicas.
    pub fn of(subject: Subject, flush: Flush) -> Self {
        Self { subject, connections: None, depth: Depth::Many, flush, replicas: 0, fill_level: 0.0 }
    }

    fn plan(&self, size: &Size) -> Plan {
        // More addresses than the fastest of them hands out in the time. Kea has pools of its own.
        let addresses = match self.subject {
            Subject::Postgres => 40_000.0 * size.seconds.max(1.0),
            _ => 400_000.0 * size.seconds,
        };
        Plan {
            seconds: size.seconds,
            connections: self.connections.unwrap_or(size.connections),
            // pgbench has one outstanding transaction on each connection.
            depth: if self.subject == Subject::Postgres { 1 } else { self.depth.of(size) },
            pool: prefix_length(addresses),
            flush: self.flush,
            replicas: self.replicas,
            fill_level: self.fill_level,
        }
    }

    fn name(&self, size: &Size) -> String {
        let plan = self.plan(size);
        let Plan { connections, depth, .. } = plan;
        let replicas = if self.replicas > 0 { format!(", {} replica", self.replicas) } else { String::new() };
        let level = if self.fill_level > 0.0 { format!(", {} % full", self.fill_level * 100.0) } else { String::new() };
        // Kea is offered a rate, and has no lanes.
        let lanes = if self.subject == Subject::Kea { String::new() } else { format!(": {connections} x {depth}") };
        format!("{}{replicas}{level}{lanes}", self.subject.name(&plan))
    }
}

/// The size of allod's full pool in the comparison with Kea: large enough that its lanes do not change the fill level.
pub fn kea_addresses(size: &Size) -> f64 {
    260_000.0 * size.seconds.max(1.0)
}

/// The prefix length of the smallest IPv4 network with this many addresses, within sensible bounds.
pub fn prefix_length(addresses: f64) -> u8 {
    (32 - addresses.log2().ceil() as i32).clamp(8, 16) as u8
}

/// The reservations whose space in Redis is measured: typical records, and in what they differ from a pool without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stock {
    Dense,
    /// At random places of an IPv6 /64.
    Sparse,
    /// With policy `oldest`, after all addresses were exchanged once.
    Oldest,
    /// With three labels, keys of 8 bytes and values of 16.
    Labels,
    Leases,
}

impl Stock {
    fn name(self) -> &'static str {
        match self {
            Stock::Dense => "IPv4 side by side",
            Stock::Sparse => "IPv6 at random in a /64",
            Stock::Oldest => "policy oldest, all exchanged once",
            Stock::Labels => "three labels each",
            Stock::Leases => "leases",
        }
    }
}

/// A measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum Probe {
    /// A server that only parses and serialises.
    Echo,
    Load(Load),
    /// So many networks that creating them takes longer than everything else: measured in the first round only.
    ManyNetworks(Load),
    Rival(Rival),
    /// SET and then allod on one Redis, one request at a time.
    BesideSet(Flush),
    /// An open loop at half of the rate of a closed one.
    HalfRate(Backend),
    /// A network alone, and beside a flood of another.
    Flood,
    /// Fill, end, start.
    Restart(Backend),
    /// Fill, and drain the owner of two nodes.
    HandOver,
    /// The space of reservations in Redis.
    Room(Stock),
    /// This many registers, each on a primary of one Redis Cluster.
    Primaries(usize),
}

impl Probe {
    /// The name in results.
    pub fn name(&self, size: &Size) -> String {
        let Size { connections, depth, .. } = size;
        match self {
            Probe::Echo => format!("echo: {connections} x {depth}"),
            Probe::Load(load) | Probe::ManyNetworks(load) => load.name(size),
            Probe::Rival(rival) => rival.name(size),
            Probe::BesideSet(flush) => format!("SET, then allod on the same redis ({}): 1 x 1", flush.name()),
            Probe::HalfRate(backend) => {
                format!("{}: fill {connections} x {depth}, open loop at half of the rate", backend.name())
            }
            Probe::Flood => format!("allod, embedded: a network alone, and beside a flood of {connections} x {depth}"),
            Probe::Restart(backend) => format!("{}: a start with {} held", backend.name(), size.reservations),
            Probe::HandOver => format!("allod, redis (everysec), 2 nodes: a drain with {} held", size.reservations),
            Probe::Room(stock) => format!("redis: room of {} reservations, {}", size.reservations, stock.name()),
            Probe::Primaries(1) => {
                format!("allod, redis cluster (everysec), a register on its primary: fill {connections} x {depth}")
            }
            Probe::Primaries(count) => {
                format!(
                    "allod, redis cluster (everysec), {count} registers on as many primaries: fill {connections} x {depth} each"
                )
            }
        }
    }

    /// Why this machine cannot make the measurement, if so.
    pub fn missing(&self) -> Option<String> {
        let needs_redis = match self {
            Probe::Echo | Probe::Flood => false,
            Probe::Rival(rival) => return rival.subject.missing(),
            Probe::BesideSet(_) | Probe::HandOver | Probe::Room(_) | Probe::Primaries(_) => true,
            Probe::Load(Load { backend, .. })
            | Probe::ManyNetworks(Load { backend, .. })
            | Probe::HalfRate(backend)
            | Probe::Restart(backend) => backend.store == Store::Redis,
        };
        if needs_redis { compare::missing(&["redis-server"]) } else { None }
    }

    fn measure(&self, size: &Size) -> io::Result<Reading> {
        match self {
            Probe::Echo => drive::echo(size),
            Probe::Load(load) | Probe::ManyNetworks(load) => drive::load(load, size),
            Probe::Rival(rival) => Reading::of(&rival.subject.measure(&rival.plan(size))?),
            Probe::BesideSet(flush) => drive::beside_set(*flush, size),
            Probe::HalfRate(backend) => drive::half_rate(*backend, size),
            Probe::Flood => drive::flood(size),
            Probe::Restart(backend) => drive::restart(*backend, size),
            Probe::HandOver => drive::hand_over(size),
            Probe::Room(stock) => drive::room(*stock, size),
            Probe::Primaries(count) => drive::primaries(*count, size),
        }
    }
}

/// The figures of one measurement in one round.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    pub figures: BTreeMap<Figure, f64>,
    /// A server was found to be wrong.
    pub faulty: bool,
}

impl Reading {
    /// A reading without figures: if a server is wrong, its speed does not matter.
    pub fn wrong() -> Self {
        Self { figures: BTreeMap::new(), faulty: true }
    }

    /// The figures of a report. If the server was wrong and the report is not the intended measurement, the reading has no
    /// figures.
    ///
    /// # Errors
    /// The report is not the intended measurement, and the server was not wrong.
    pub fn of(report: &Report) -> io::Result<Self> {
        if report.is_faulty() {
            say!("{}", report.text().trim_end());
        }
        match why_not(report) {
            Some(_) if report.is_faulty() => return Ok(Self::wrong()),
            Some(why) => return Err(io::Error::other(why)),
            None => {}
        }
        let mut figures = BTreeMap::from([
            (Figure::PerSecond, report.per_second),
            (Figure::P50Ms, report.p50_ms),
            (Figure::P99Ms, report.p99_ms),
            (Figure::P999Ms, report.p999_ms),
        ]);
        let allocations = report.kinds.iter().find(|kind| kind.kind == Kind::Allocate.name());
        if let Some(allocations) = allocations {
            let share = allocations.answers as f64 / report.answers.max(1) as f64;
            figures.insert(Figure::AllocationsPerSecond, report.per_second * share);
        }
        figures.extend(report.redis_micros.map(|micros| (Figure::RedisMicros, micros)));
        Ok(Self { figures, faulty: report.is_faulty() })
    }
}

/// Why a report is not the intended measurement, if so.
fn why_not(report: &Report) -> Option<String> {
    let refused = |(kind, count): (&String, &u64)| match is_for_room(kind) {
        true => format!("{count} requests were refused: the pool is too small for the time"),
        false => format!("{count} requests were refused, and not for want of room: {kind}"),
    };
    report.refused.iter().next().map(refused).or_else(|| report.not_made.clone()).or_else(|| {
        let count = report.never_sent;
        (count > 0).then(|| format!("the server was behind: {count} requests arrived and were never sent"))
    })
}

/// A probe with its readings, round by round.
pub struct Measurement {
    pub probe: Probe,
    pub name: String,
    /// None for rounds in which it was not made.
    pub rounds: Vec<Option<Reading>>,
    /// Why it was not made, or not again.
    pub why_not: Option<String>,
    /// It was tried and failed.
    pub failed: bool,
}

impl Measurement {
    pub fn new(probe: &Probe, size: &Size) -> Self {
        let name = probe.name(size);
        Self { probe: probe.clone(), name, rounds: Vec::new(), why_not: probe.missing(), failed: false }
    }

    /// Is it made in this round? Rounds count from one.
    pub fn is_due(&self, round: u16) -> bool {
        self.why_not.is_none() && (round == 1 || !matches!(self.probe, Probe::ManyNetworks(_)))
    }

    /// Makes it, if it is due.
    pub fn make(&mut self, round: u16, size: &Size) {
        if !self.is_due(round) {
            self.rounds.push(None);
            return;
        }
        match self.probe.measure(size) {
            Ok(reading) => self.rounds.push(Some(reading)),
            Err(error) => {
                say!("allod-load: {}: {error}", self.name);
                (self.why_not, self.failed) = (Some(error.to_string()), true);
                self.rounds.push(None);
            }
        }
    }

    pub fn is_faulty(&self) -> bool {
        self.rounds.iter().flatten().any(|reading| reading.faulty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Measured;
    use crate::meter::Meter;

    #[test]
    fn who_is_wrong_is_wrong_also_where_there_are_no_figures() {
        let size = Size { seconds: 1.0, connections: 1, depth: 1, full_pool: 16, reservations: 1, networks: 1 };
        let report = || Report::measured("fill", "", &size.shape(1, 1), 1, &Measured::new(Meter::new(None, None)));
        let spoilt: [fn(&mut Report); 3] = [
            |report| report.refused.extend([("overloaded".to_owned(), 2)]),
            |report| report.not_made("nothing was answered"),
            |report| report.never_sent = 1,
        ];
        assert!(!Reading::of(&report()).unwrap().faulty);
        for (spoil, why) in spoilt.into_iter().zip(["overloaded", "nothing was answered", "never sent"]) {
            let mut report = report();
            spoil(&mut report);
            let error = Reading::of(&report).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            report.duplicates = 1;
            let reading = Reading::of(&report).unwrap();
            assert!(reading.faulty && reading.figures.is_empty());
        }
    }
}
