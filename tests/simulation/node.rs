//! A node without sockets: the real keeper, actors and sessions, in a runtime of its own whose time the world moves.
//!
//! Dropping a [`Process`] is a kill; not driving it is a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use actix::{System, SystemRunner};
use allod::actors::clock::Clock;
use allod::actors::service::Hooks;
use allod::core::types::WallTime;
use allod::metrics::Metrics;
use allod::serve::keeper::Keeper;
use allod::server::balance::Balance;
use allod::server::cluster::Nodes;
use allod::server::role::{Role, Seat};
use allod::server::session::Session;
use allod::server::steward::Steward;
use allod::server::{Bounds, Server};
use allod::store::Store;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::register::Who;
use super::store::{Out, Outbox, SimStore};

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

/// What a process of a node is started with.
pub struct Birth {
    pub who: Who,
    pub now_ms: u64,
    pub seed: u64,
    pub drift_ppm: i64,
    pub jump_ms: i64,
    pub shards: u16,
    pub together: bool,
    /// Is what the register does not answer taken for not applied?
    pub concludes: bool,
    pub metrics: Arc<Metrics>,
}

/// A running process.
pub struct Process {
    runner: SystemRunner,
    base: Instant,
    began_ms: u64,
    /// How far it was driven.
    pub now_ms: u64,
    pub server: Arc<Server>,
    pub clock: Arc<SimClock>,
    pub store: Arc<SimStore>,
    pub outbox: Arc<Outbox>,
}

impl Process {
    pub fn start(birth: Birth) -> Self {
        let Birth { who, now_ms, seed, drift_ppm, jump_ms, shards, together, concludes, metrics } = birth;
        let runtime =
            || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let runner = System::with_tokio_rt(runtime);
        let reactor = System::current().arbiter().clone();
        let base = runner.block_on(async { Instant::now() });
        let clock = Arc::new(SimClock {
            base,
            boot_ms: 1_000_000 + now_ms,
            drift_ppm,
            wall_ms: 1_772_356_364_031 + now_ms,
            jump_ms: AtomicI64::new(jump_ms),
            seed,
            drawn: AtomicU64::new(0),
        });
        let outbox = Arc::new(Outbox::default());
        let store = Arc::new(SimStore::new(who.clone(), shards, together, concludes, Arc::clone(&outbox)));
        let bound = Duration::from_secs(60);
        let server = Arc::new(Server {
            seat: Seat::default(),
            steward: Steward::default(),
            store: "simulated",
            durability: store.info().durability,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            metrics,
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
            node: who.name.to_string(),
            started: std::time::Instant::now(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            asking: TaskTracker::new(),
            peers: TaskTracker::new(),
            nodes: Nodes::default(),
            sessions: AtomicU64::new(0),
        });
        let keeper = Keeper::alone(Arc::clone(&server), Arc::clone(&store) as Arc<dyn Store>, Hooks::default());
        runner.runtime().spawn(live(keeper, Arc::clone(&server)));
        Self { runner, base, began_ms: now_ms, now_ms, server, clock, store, outbox }
    }

    /// Lets it run until this time of the world, or until it says something.
    pub fn drive(&mut self, until_ms: u64) {
        let until = self.base + Duration::from_millis(until_ms - self.began_ms);
        let outbox = &self.outbox;
        let now = self.runner.block_on(async {
            tokio::select! {
                biased;
                () = outbox.told.notified() => {}
                () = tokio::time::sleep_until(until) => {}
            }
            Instant::now()
        });
        self.now_ms = self.time_of(now);
    }

    /// It wakes from a pause: all timers that were due meanwhile are late.
    pub fn wake(&mut self, now_ms: u64) {
        let slept = Duration::from_millis(now_ms.saturating_sub(self.now_ms));
        self.runner.block_on(tokio::time::advance(slept));
        self.now_ms = now_ms.max(self.now_ms);
    }

    /// The world's time of a moment of this node.
    pub fn time_of(&self, moment: Instant) -> u64 {
        self.began_ms + moment.duration_since(self.base).as_millis() as u64
    }

    pub fn owns(&self) -> bool {
        matches!(&*self.server.seat.role(), Role::Owner(_))
    }

    /// A client connects. What it sends goes into the channel; dropped, it hung up.
    pub fn connect(&self, connection: u64) -> mpsc::UnboundedSender<Vec<u8>> {
        let (lines, requests) = mpsc::unbounded_channel();
        let (server, outbox) = (Arc::clone(&self.server), Arc::clone(&self.outbox));
        self.runner.runtime().spawn(serve(server, connection, requests, outbox));
        lines
    }
}

/// What `serve` does around the keeper; a node that cannot start is started again.
async fn live(mut keeper: Keeper, server: Arc<Server>) {
    while keeper.begin().await.is_err() {
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    keeper.keep(&server.stop).await;
    keeper.lay_down(Duration::from_secs(2)).await;
    server.tasks.close();
    let _ = tokio::time::timeout(Duration::from_secs(2), server.tasks.wait()).await;
    keeper.end().await;
}

/// What `server::connection` does, without its socket.
async fn serve(
    server: Arc<Server>,
    connection: u64,
    mut requests: mpsc::UnboundedReceiver<Vec<u8>>,
    outbox: Arc<Outbox>,
) {
    let _under_way = server.tasks.token();
    let (stop, mut roles) = (server.stop.clone(), server.seat.changes());
    let (mut session, mut inlet) = Session::new(server, "simulated".into());
    session.allow_watches();
    let mut stopping = false;
    loop {
        if !session.out.is_empty() {
            outbox.put(Out::Lines(connection, std::mem::take(&mut session.out)));
            session.written();
        }
        if stopping && session.in_flight() == 0 {
            return;
        }
        let looks = session.looks_for_owner_at();
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
                session.role_changed();
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
