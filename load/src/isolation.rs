//! Does one busy network slow another? Measures the latency of network B alone, and beside a flood of network A.
//!
//! Two threads are used, so that the client's own work for the flood is not counted as the server's: one floods A, the other
//! asks B one request at a time. On a machine with few cores the two clients and the server share them, and the ratio
//! includes that effect; run `echo` beside it for the ceiling.

use std::io::{self, Write};
use std::sync::mpsc;
use std::time::Duration;

use serde::Serialize;

use crate::advice::Advice;
use crate::driver::{Shape, Stop};
use crate::report::Report;
use crate::scenario::{Name, Settings};
use crate::session::Session;
use crate::target::Target;

/// The network that is flooded.
const FLOODED: &str = "load-flooded";
/// The network that is measured, and its warm-up.
const QUIET: &str = "load-quiet";
const QUIET_WARMUP: Duration = Duration::from_millis(200);
/// How much longer the flood runs than the measurement, half of it before: each run inspects its network before it asks.
const FLOOD_MARGIN: Duration = Duration::from_millis(1_500);

/// The parameters of the measurement.
pub struct Isolation {
    pub target: Target,
    /// The flood.
    pub connections: usize,
    pub depth: usize,
    /// Length of each of the two measurements.
    pub seconds: u64,
    pub cidr: String,
    pub seed: u32,
}

/// Both measurements, and the flood beside the second. `beside` and `flood` are `None` only if they failed and another run
/// showed that the server is wrong.
#[derive(Debug, Serialize)]
pub struct Found {
    pub alone: Report,
    pub beside: Option<Report>,
    pub flood: Option<Report>,
    /// p99 beside the flood, divided by p99 alone.
    pub p99_ratio: Option<f64>,
}

impl Isolation {
    /// Runs both measurements.
    ///
    /// # Errors
    /// The server cannot be reached or closes a connection, and broke no rule before that.
    pub fn run(&self) -> io::Result<Found> {
        // The quiet client keeps one address and exchanges it, so that its pool never fills.
        let time = Duration::from_secs(self.seconds);
        let quiet = |name: &str, seed| {
            let closed = Shape::closed(1, 1, Stop::After(time));
            measure(name, Shape { warmup: QUIET_WARMUP, seed, ..closed }, QUIET, &self.cidr, self.target.same())
        };
        let alone = quiet("B alone", self.seed)?;
        if alone.not_made.is_some() {
            // The server was wrong and then gone: there is nothing to compare with.
            return Ok(Found { alone, beside: None, flood: None, p99_ratio: None });
        }
        let (started, has_started) = mpsc::sync_channel(1);
        let closed = Shape::closed(self.connections, self.depth, Stop::After(time + FLOOD_MARGIN));
        let (shape, cidr, target) = (Shape { seed: self.seed, ..closed }, self.cidr.clone(), self.target.same());
        let flood = std::thread::spawn(move || {
            // The receiver is gone only if the measuring thread has failed, which that thread reports itself.
            let _ = started.send(());
            let _alive = started;
            measure("flood of A", shape, FLOODED, &cidr, target)
        });
        let _ = has_started.recv();
        // No second message comes: this waits until the flood is at full height.
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
        failed.iter().for_each(|error| say!("allod-load: {error}"));
        Ok(found)
    }
}

/// One run of allocations and releases in one network. A run that is no measurement gives a report only if a rule was
/// broken.
fn measure(name: &str, shape: Shape, network: &str, cidr: &str, mut target: Target) -> io::Result<Report> {
    let settings = Settings {
        lanes: shape.lanes(),
        seed: shape.seed,
        brief: true,
        network_name: Some(network.to_owned()),
        cidr: Some(cidr.to_owned()),
        hold: Some(1),
        ..Settings::default()
    };
    // The networks cannot be chosen.
    let advice = Advice { shared: "; measure when nobody else does", ..Advice::default() };
    let session = Session { advice, ..Session::unattended(name, shape) };
    let report = session.run(Name::Fill.build(&settings), &mut target)?;
    match &report.not_made {
        Some(why) if !report.is_faulty() => Err(io::Error::other(format!("{name}: {why}"))),
        _ => Ok(report),
    }
}

impl Found {
    /// The reports that exist, in the order in which they are printed.
    pub fn reports(&self) -> impl Iterator<Item = &Report> {
        [Some(&self.alone), self.flood.as_ref(), self.beside.as_ref()].into_iter().flatten()
    }

    /// Did any report show that the server is wrong?
    pub fn is_faulty(&self) -> bool {
        self.reports().any(Report::is_faulty)
    }

    /// Prints the result.
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
