//! A node that runs in the process of a test, in the time of the test's runtime: its clocks, its server without sockets,
//! what a connection does, and what a client is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use allod::actors::clock::Clock;
use allod::actors::reactor::Reactor;
use allod::core::types::WallTime;
use allod::metrics::Metrics;
use allod::server::balance::Balance;
use allod::server::cluster::Nodes;
use allod::server::role::Seat;
use allod::server::session::Session;
use allod::server::steward::Steward;
use allod::server::{Bounds, Durability, Server};
use allod::store::Store;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What a client got back for a request.
pub enum Answer {
    Result(Value),
    /// The kind of the error, and the error.
    Refused(String, Value),
    /// Nobody knows whether the request took effect.
    Lost,
}

impl Answer {
    /// Reads the answer that a node wrote. An `internal` error is a bug of the node, and is reported as a problem.
    pub fn of(written: &mut Value, problem: impl FnOnce(String)) -> Self {
        let Some(error) = written.get_mut("error").map(Value::take) else {
            return Self::Result(written["result"].take());
        };
        let kind = error["data"]["kind"].as_str().unwrap_or_default().to_owned();
        if kind == "internal" {
            problem(format!("a bug: {error}"));
        }
        let unknown = kind == "unavailable" && error["data"]["applied"] == "unknown";
        if unknown { Self::Lost } else { Self::Refused(kind, error) }
    }
}

/// A node's clocks: boot time drifts, wall time jumps.
#[derive(Debug)]
pub struct SimClock {
    base: Instant,
    /// Boot time at `base`.
    boot_ms: u64,
    drift_ppm: i64,
    wall_ms: u64,
    pub jump_ms: AtomicI64,
    seed: u64,
    drawn: AtomicU64,
}

impl SimClock {
    /// The clocks of a process that starts now, at this time of the simulated world.
    pub fn new(now_ms: u64, (drift_ppm, jump_ms): (i64, i64), seed: u64) -> Self {
        Self {
            base: Instant::now(),
            boot_ms: 1_000_000 + now_ms,
            drift_ppm,
            wall_ms: 1_772_356_364_031 + now_ms,
            jump_ms: AtomicI64::new(jump_ms),
            seed,
            drawn: AtomicU64::new(0),
        }
    }

    fn since(&self) -> u64 {
        let passed = self.base.elapsed().as_millis() as i64;
        (passed + passed * self.drift_ppm / 1_000_000) as u64
    }
}

impl Clock for SimClock {
    fn boot_ms(&self) -> u64 {
        self.boot_ms + self.since()
    }

    fn wall(&self) -> WallTime {
        let wall = (self.wall_ms + self.since()) as i64 + self.jump_ms.load(Ordering::Relaxed);
        WallTime(wall as u64)
    }

    fn entropy(&self) -> u128 {
        let mut draws = SmallRng::seed_from_u64(self.seed ^ self.drawn.fetch_add(1, Ordering::Relaxed) << 20);
        u128::from(draws.next_u64()) << 64 | u128::from(draws.next_u64())
    }
}

/// The server of a node. Its actors run where the reactor runs them.
pub fn server(
    name: &str,
    store: &Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    reactor: Reactor,
) -> Arc<Server> {
    let bound = Duration::from_secs(60);
    let info = store.info();
    Arc::new(Server {
        seat: Seat::default(),
        steward: Steward::default(),
        store: info.kind,
        durability: Durability(Box::new(move || info.durability.clone())),
        clock,
        metrics,
        session_threads: vec![reactor.clone()],
        reactors: vec![reactor],
        balance: Balance::default(),
        bounds: Bounds {
            line_bytes: 1 << 20,
            body_bytes: 1 << 20,
            connections: 64,
            behind_bytes: allod::limits::BEHIND_BYTES_MAX,
            idle: bound,
            slow_client: bound,
            partial_line: bound,
        },
        node: name.to_owned(),
        started: std::time::Instant::now(),
        stop: CancellationToken::new(),
        tasks: TaskTracker::new(),
        asking: TaskTracker::new(),
        peers: TaskTracker::new(),
        nodes: Nodes::default(),
        sessions: AtomicU64::new(0),
        fairness: Default::default(),
    })
}

/// Does what `server::connection` does, without its socket.
pub async fn serve(server: Arc<Server>, mut requests: mpsc::UnboundedReceiver<Vec<u8>>, tell: impl Fn(Vec<u8>)) {
    let _under_way = server.tasks.token();
    let (stop, mut roles) = (server.stop.clone(), server.seat.changes());
    let (mut session, mut inlet) = Session::new(server, "simulated".into());
    session.allow_watches();
    let mut stopping = false;
    loop {
        if !session.out.is_empty() {
            tell(std::mem::take(&mut session.out));
            session.written();
        }
        if stopping && session.in_flight() == 0 {
            return;
        }
        let looks = session.looks_at();
        tokio::select! {
            biased;
            Some(told) = inlet.recv() => {
                session.absorb(told);
                while let Ok(told) = inlet.try_recv() {
                    session.absorb(told);
                }
            }
            _ = roles.changed(), if session.waits_for_role() => session.role_changed(),
            () = tokio::time::sleep_until(looks.unwrap_or_else(tokio::time::Instant::now)), if looks.is_some() => {
                session.looks();
            }
            lines = requests.recv(), if !stopping => {
                let Some(lines) = lines else { return };
                session.begin(std::time::Instant::now());
                for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                    session.feed(line);
                }
                session.flush();
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                session.end_watches();
                session.stop_waiting();
            }
        }
    }
}
