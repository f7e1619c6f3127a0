//! What a run of the driver is given, and what it measured.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::arrivals::Rate;
use crate::meter::{Kind, Meter};

/// When a run ends.
#[derive(Debug, Clone, Copy)]
pub enum Stop {
    /// After so many answers, the warm-up not counted.
    Requests(u64),
    /// After this time, the warm-up not counted.
    After(Duration),
}

/// The shape of a run.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Connections are dealt over these in turn.
    pub servers: Vec<SocketAddr>,
    pub connections: usize,
    pub depth: usize,
    /// Time at the start that is driven and not measured.
    pub warmup: Duration,
    pub stop: Stop,
    /// Open loop: requests arrive at this rate.
    pub rate: Option<Rate>,
    /// Of the arrivals.
    pub seed: u32,
    /// Requests count as lost when nothing was sent or answered for so long.
    pub patience: Duration,
}

/// As of [`Shape::patience`], unless said otherwise.
pub const PATIENCE_DEFAULT: Duration = Duration::from_secs(30);

impl Shape {
    /// Requests that may be outstanding at once.
    pub fn lanes(&self) -> usize {
        self.connections * self.depth
    }

    /// About how long it will take, where that is set.
    pub fn expected(&self) -> Option<Duration> {
        match (self.stop, self.rate) {
            (Stop::After(time), _) => Some(time),
            (Stop::Requests(count), Some(rate)) => Duration::try_from_secs_f64(count as f64 / rate.per_second).ok(),
            (Stop::Requests(_), None) => None,
        }
    }
}

/// A request that will not be answered any more.
#[derive(Debug, Clone, Copy)]
pub struct Lost {
    pub kind: Kind,
    pub server: SocketAddr,
    pub waited: Duration,
    /// The server had its time. False: the run was cut off.
    pub is_fault: bool,
}

/// What a run measured.
pub struct Measured {
    pub meter: Meter,
    pub answers: u64,
    /// Of a closed loop that stops after a time: those of them that came when it was over, as their requests had been sent.
    pub late: u64,
    /// What the answers in time took; until the last answer, where none was late.
    pub elapsed: Duration,
    /// Requests without an answer when the run was given up.
    pub lost: u64,
    /// Why it ended before its time: a signal, or a connection that was lost.
    pub cut_off: Option<String>,
    /// Answers that nobody had asked for.
    pub unexpected: u64,
    /// Of an open loop: requests that arrived and were never sent, because the server was too far behind.
    pub never_sent: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

impl Measured {
    /// Nothing yet.
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

    /// Of a run that came to nothing.
    pub fn nothing() -> Self {
        Self::new(Meter::new(None, None))
    }

    /// Answers in a second. Those that came late are in no rate: one that waited for capacity may come long after the end.
    pub fn per_second(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { (self.answers - self.late) as f64 / seconds } else { 0.0 }
    }

    /// What was measured, if it is whole: of what is only a part of something else, half is nothing.
    ///
    /// # Errors
    /// It was cut off.
    pub fn whole(self) -> io::Result<Self> {
        match self.cut_off {
            Some(why) => Err(io::Error::other(why)),
            None => Ok(self),
        }
    }
}
