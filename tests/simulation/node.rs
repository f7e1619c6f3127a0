//! A node without sockets: the real keeper, actors and sessions, as one set of tasks in the time that the world moves.
//!
//! Dropping a [`Process`] is a kill; not letting it go on is a pause: what was due meanwhile is late.
//!
//! Watches are no part of that set, but tasks of the runtime, on which the product spawns them. They go on while their node
//! sleeps; but what they say, or ask of the register, leaves it when it wakes.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use allod::actors::clock::Clock;
use allod::actors::reactor::Reactor;
use allod::actors::service::Hooks;
use allod::core::types::WallTime;
use allod::metrics::Metrics;
use allod::serve::keeper::Keeper;
use allod::server::balance::Balance;
use allod::server::cluster::Nodes;
use allod::server::role::{Role, Seat};
use allod::server::session::Session;
use allod::server::steward::Steward;
use allod::server::{Bounds, Durability, Server};
use allod::store::Store;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use tokio::sync::mpsc;
use tokio::task::LocalSet;
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
    pub mover: Arc<Mover>,
}

/// Something of a node can go on: noted, and whoever moves the world is woken.
pub struct Woken {
    is: AtomicBool,
    mover: Arc<Mover>,
}

/// Whoever moves the world.
#[derive(Default)]
pub struct Mover(Mutex<Option<Waker>>);

impl Mover {
    /// It is woken so from now on.
    pub fn is(&self, waker: &Waker) {
        let mut present = self.0.lock().unwrap();
        if !present.as_ref().is_some_and(|present| present.will_wake(waker)) {
            *present = Some(waker.clone());
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is.store(true, Ordering::Relaxed);
        if let Some(mover) = &*self.mover.0.lock().unwrap() {
            mover.wake_by_ref();
        }
    }
}

/// A running process.
pub struct Process {
    /// Everything that it does. Dropped, it is killed.
    tasks: LocalSet,
    woken: Arc<Woken>,
    pub server: Arc<Server>,
    pub clock: Arc<SimClock>,
    pub store: Arc<SimStore>,
    pub outbox: Arc<Outbox>,
}

impl Process {
    /// Within the runtime of the world.
    pub fn start(birth: Birth) -> Self {
        let Birth { who, now_ms, seed, drift_ppm, jump_ms, shards, together, concludes, metrics, mover } = birth;
        let tasks = LocalSet::new();
        let (reactor, mut spawned) = mpsc::unbounded_channel();
        tasks.spawn_local(async move {
            while let Some(task) = spawned.recv().await {
                tokio::task::spawn_local(task);
            }
        });
        let clock = Arc::new(SimClock {
            base: Instant::now(),
            boot_ms: 1_000_000 + now_ms,
            drift_ppm,
            wall_ms: 1_772_356_364_031 + now_ms,
            jump_ms: AtomicI64::new(jump_ms),
            seed,
            drawn: AtomicU64::new(0),
        });
        let woken = Arc::new(Woken { is: AtomicBool::new(true), mover });
        let outbox = Arc::new(Outbox::new(Arc::clone(&woken).into()));
        let store = Arc::new(SimStore::new(who.clone(), shards, together, concludes, Arc::clone(&outbox)));
        let bound = Duration::from_secs(60);
        let server = Arc::new(Server {
            seat: Seat::default(),
            steward: Steward::default(),
            store: "simulated",
            durability: Durability(Box::new({
                let durability = store.info().durability;
                move || durability.clone()
            })),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            metrics,
            reactors: vec![Reactor::Queue(reactor)],
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
            fairness: Default::default(),
        });
        // A thread with a clock of its own would bring chance into the schedule. What it would have written nobody here
        // asks for.
        let hooks = Hooks { without_index: true, ..Hooks::default() };
        let keeper = Keeper::alone(Arc::clone(&server), Arc::clone(&store) as Arc<dyn Store>, hooks);
        tasks.spawn_local(live(keeper, Arc::clone(&server)));
        Self { tasks, woken, server, clock, store, outbox }
    }

    /// Lets it do what it can do now. False: there is nothing.
    pub fn go_on(&mut self) -> bool {
        if !self.woken.is.swap(false, Ordering::Relaxed) {
            return false;
        }
        let waker = Waker::from(Arc::clone(&self.woken));
        // What is left of it wakes it again; all of it never ends.
        let _ = Pin::new(&mut self.tasks).poll(&mut Context::from_waker(&waker));
        true
    }

    pub fn owns(&self) -> bool {
        matches!(&*self.server.seat.role(), Role::Owner(_))
    }

    /// A client connects. What it sends goes into the channel; dropped, it hung up.
    pub fn connect(&self, connection: u64) -> mpsc::UnboundedSender<Vec<u8>> {
        let (lines, requests) = mpsc::unbounded_channel();
        let (server, outbox) = (Arc::clone(&self.server), Arc::clone(&self.outbox));
        self.tasks.spawn_local(serve(server, connection, requests, outbox));
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
