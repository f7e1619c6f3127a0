//! The parameters of a run of the driver, and its measurements.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::arrivals::Rate;
use crate::meter::{Kind, Meter};

/// When a run ends.
#[derive(Debug, Clone, Copy)]
pub enum Stop {
    /// After this number of answers, without the warm-up.
    Requests(u64),
    /// After this time, without the warm-up.
    After(Duration),
}

/// The parameters of a run.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Connections are distributed over these servers in turn.
    pub servers: Vec<SocketAddr>,
    pub connections: usize,
    pub depth: usize,
    /// How long the run is driven before measuring.
    pub warmup: Duration,
    pub stop: Stop,
    /// Open loop: requests arrive at this rate.
    pub rate: Option<Rate>,
    /// Seed of the arrivals.
    pub seed: u32,
    /// Requests count as lost if nothing was sent or answered for this long.
    pub patience: Duration,
}

/// The default of [`Shape::patience`].
pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(30);

impl Shape {
    /// A closed loop that is measured from its beginning; the caller fills in the servers.
    pub fn closed(connections: usize, depth: usize, stop: Stop) -> Self {
        Self {
            servers: Vec::new(),
            connections,
            depth,
            warmup: Duration::ZERO,
            stop,
            rate: None,
            seed: 0,
            patience: PATIENCE_DEFAULT,
        }
    }

    /// Requests that may be outstanding at once.
    pub fn lanes(&self) -> usize {
        self.connections * self.depth
    }

    /// The expected length of the run, if it can be told.
    pub fn expected(&self) -> Option<Duration> {
        match (self.stop, self.rate) {
            (Stop::After(time), _) => Some(time),
            (Stop::Requests(count), Some(rate)) => Duration::try_from_secs_f64(count as f64 / rate.per_second).ok(),
            (Stop::Requests(_), None) => None,
        }
    }
}

/// A request that will never be answered.
#[derive(Debug, Clone, Copy)]
pub struct Lost {
    pub kind: Kind,
    pub server: SocketAddr,
    pub waited: Duration,
    /// The server had enough time to answer. False: the run was cut off.
    pub is_fault: bool,
}

/// The measurements of a run.
pub struct Measured {
    pub meter: Meter,
    pub answers: u64,
    /// In a closed loop that stops after a time: the answers that came after its end.
    pub late: u64,
    /// The time in which the answers counted in the rate came; without late answers, until the last answer.
    pub elapsed: Duration,
    /// Requests without an answer when the run was given up.
    pub lost: u64,
    /// Why the run ended early: a signal, or a lost connection.
    pub cut_off: Option<String>,
    /// Answers to no open request.
    pub unexpected: u64,
    /// In an open loop: requests that arrived and were never sent, because the server was too far behind.
    pub never_sent: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

impl Measured {
    /// No measurements yet.
    pub fn new(meter: Meter) -> Self {
        Self {
            meter,
            answers: 0,
            late: 0,
            elapsed: Duration::ZERO,
            lost: 0,
            cut_off: None,
            unexpected: 0,
            never_sent: 0,
            bytes_sent: 0,
            bytes_received: 0,
        }
    }

    /// The measurements of a run that failed.
    pub fn nothing() -> Self {
        Self::new(Meter::new(None, None))
    }

    /// Answers per second. Late answers are excluded: a request that waited for capacity may be answered long after the end.
    pub fn per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { (self.answers - self.late) as f64 / seconds } else { 0.0 }
    }

    /// The measurements if they are complete: as part of a larger measurement, half a run is worth nothing.
    ///
    /// # Errors
    /// The run was cut off.
    pub fn whole(self) -> io::Result<Self> {
        match self.cut_off {
            Some(why) => Err(io::Error::other(why)),
            None => Ok(self),
        }
    }
}
