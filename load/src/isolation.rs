//! Does one busy network slow another? The latency of network B alone, and beside a flood of network A.
//!
//! Two threads, so that the client's own work for the flood is not counted as the server's: the flood drives A, the
//! other asks B one request at a time. On a machine with few cores the two clients and the server share them, and
//! the ratio contains that; run `echo` beside it for the ceiling.

use std::io::{self, Write};
use std::sync::mpsc;
use std::time::Duration;

use serde::Serialize;

use crate::control::Control;
use crate::driver::{self, Measured, PATIENCE_DEFAULT, Shape, Stop};
use crate::meter::Meter;
use crate::report::Report;
use crate::scenario::{Name, Settings};
use crate::session;
use crate::target::Target;

/// Network that is flooded.
const FLOODED: &str = "load-flooded";
/// Network that is measured.
const QUIET: &str = "load-quiet";
/// The flood runs so much longer than the measurement, half of it before.
const FLOOD_MARGIN: Duration = Duration::from_secs(1);

/// What was asked.
pub struct Isolation {
    pub target: Target,
    /// The flood.
    pub connections: usize,
    pub depth: usize,
    /// Of each of the two measurements.
    pub seconds: u64,
    pub cidr: String,
    pub seed: u32,
}

/// Both measurements and the flood between them. One is none only where it failed and another showed that the server is wrong.
#[derive(Debug, Serialize)]
pub struct Found {
    pub alone: Report,
    pub beside: Option<Report>,
    pub flood: Option<Report>,
    /// p99 beside the flood, over p99 alone.
    pub p99_ratio: Option<f64>,
}

impl Isolation {
    /// Measures.
    ///
    /// # Errors
    /// The server cannot be reached or closes a connection, and broke no rule before.
    pub fn run(&self) -> io::Result<Found> {
        // The quiet client keeps one address and exchanges it, so that its pool never fills.
        let quiet = |scenario: &str, seed| {
            let shape = self.shape(1, 1, Duration::from_secs(self.seconds), Duration::from_millis(200));
            measure(scenario, &shape, QUIET, &self.cidr, seed)
        };
        let alone = quiet("B alone", self.seed)?;
        if alone.not_made.is_some() {
            // Who was wrong, and has gone: there is nothing to be compared with.
            return Ok(Found { alone, beside: None, flood: None, p99_ratio: None });
        }
        let (started, has_started) = mpsc::sync_channel(1);
        let flood_shape =
            self.shape(self.connections, self.depth, Duration::from_secs(self.seconds) + FLOOD_MARGIN, Duration::ZERO);
        let (seed, cidr) = (self.seed, self.cidr.clone());
        let flood = std::thread::spawn(move || {
            // The receiver is gone only if the measuring thread has failed, which it reports itself.
            let _ = started.send(());
            let _alive = started;
            measure("flood of A", &flood_shape, FLOODED, &cidr, seed)
        });
        let _ = has_started.recv();
        // Nobody sends a second time: this waits until the flood is at full height.
        let _ = has_started.recv_timeout(FLOOD_MARGIN / 2);
        let beside = quiet("B beside a flood of A", self.seed.wrapping_add(1));
        let flood = flood.join().unwrap_or_else(|_| Err(io::Error::other("the flood ended in a panic")));
        let mut failed = Vec::new();
        let mut made = |report: io::Result<Report>| report.map_err(|error| failed.push(error)).ok();
        let (flood, beside) = (made(flood), made(beside));
        let p99_ratio = beside.as_ref().map(|beside| beside.p99_ms / alone.p99_ms.max(f64::MIN_POSITIVE));
        let found = Found { alone, beside, flood, p99_ratio };
        if !found.is_faulty()
            && let Some(error) = failed.pop()
        {
            return Err(error);
        }
        failed.iter().for_each(|error| eprintln!("allod-load: {error}"));
        Ok(found)
    }

    fn shape(&self, connections: usize, depth: usize, time: Duration, warmup: Duration) -> Shape {
        Shape {
            servers: self.target.servers.clone(),
            connections,
            depth,
            warmup,
            stop: Stop::After(time),
            rate: None,
            seed: self.seed,
            patience: PATIENCE_DEFAULT,
        }
    }
}

/// One run of allocations and releases in one network; of one that is no measurement there is a report where a rule was broken.
fn measure(name: &str, shape: &Shape, network: &str, cidr: &str, seed: u32) -> io::Result<Report> {
    let settings = Settings {
        lanes: shape.lanes(),
        seed,
        brief: true,
        network_name: Some(network.to_owned()),
        cidr: Some(cidr.to_owned()),
        hold: Some(1),
        ..Settings::default()
    };
    let scenario = Name::Fill.build(&settings);
    let mut control = Control::connect(&shape.servers)?;
    let networks = scenario.networks();
    let prepared = session::prepare(&mut control, scenario, &networks, shape.lanes(), seed, true, &|_| ())?;
    let mut audited = prepared.audited;
    audited.scenario.begin();
    let report = |measured: &Measured| Report::measured(name, "", shape, 1, measured);
    let measured = match driver::run(shape, &mut audited, Meter::new(shape.expected(), None)) {
        Ok(measured) => measured,
        Err(error) => return report(&Measured::nothing()).ended_by(&mut audited, error),
    };
    let others = audited.audit.settle();
    let mut report = report(&measured).audited(&audited);
    report.judge();
    report.shared_with(others);
    match &report.not_made {
        Some(why) if !report.is_faulty() => Err(io::Error::other(format!("{name}: {why}"))),
        _ => Ok(report),
    }
}

impl Found {
    /// Those that were made, in the order in which they are told.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        [Some(&self.alone), self.flood.as_ref(), self.beside.as_ref()].into_iter().flatten()
    }

    /// Did any of them show that the server is wrong?
    pub fn is_faulty(&self) -> bool {
        self.reports().any(Report::is_faulty)
    }

    /// Prints it.
    ///
    /// # Errors
    /// Standard output is closed.
    pub fn print(&self, json: bool) -> io::Result<()> {
        let mut out = io::stdout();
        if json {
            return writeln!(out, "{}", serde_json::to_string(self)?);
        }
        self.reports().try_for_each(|report| report.print(false))?;
        match self.p99_ratio {
            Some(ratio) => writeln!(out, "p99 of B beside the flood is {ratio:.2} times its p99 alone"),
            None => Ok(()),
        }
    }
}
