//! A node without sockets: the real keeper, actors and sessions, as one set of tasks in the time that the world moves.
//!
//! Dropping a [`Process`] is a kill. Not polling it is a pause: whatever was due meanwhile is late.
//!
//! Watches are not in that set of tasks: the product spawns them on the runtime. They go on while their node sleeps, but
//! what they say, or ask of the register, leaves the node only when it wakes.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use allod::actors::clock::Clock;
use allod::actors::reactor::Reactor;
use allod::actors::service::Hooks;
use allod::metrics::Metrics;
use allod::serve::keeper::Keeper;
use allod::server::Server;
use allod::server::role::Role;
use allod::store::Store;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::in_process::{self, SimClock};
use super::register::Who;
use super::store::{Out, Outbox, SimStore};

/// What a node's process is started with.
pub struct Birth {
    pub who: Who,
    pub now_ms: u64,
    pub seed: u64,
    pub drift_ppm: i64,
    pub jump_ms: i64,
    pub shards: u16,
    pub together: bool,
    /// Whether it concludes that what the register does not answer was not applied.
    pub concludes: bool,
    pub metrics: Arc<Metrics>,
    pub mover: Arc<Mover>,
}

/// The waker of a node's tasks: it notes that the node can go on, and wakes the task that moves the world.
pub struct Woken {
    is: AtomicBool,
    mover: Arc<Mover>,
}

/// The waker of the task that moves the world.
#[derive(Default)]
pub struct Mover(Mutex<Option<Waker>>);

impl Mover {
    /// Sets the waker that is used from now on.
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

pub struct Process {
    /// Everything that the process does; dropping the tasks kills it.
    tasks: LocalSet,
    woken: Arc<Woken>,
    pub server: Arc<Server>,
    pub clock: Arc<SimClock>,
    pub store: Arc<SimStore>,
    pub outbox: Arc<Outbox>,
}

impl Process {
    /// Starts the process. Must be called within the runtime of the world.
    pub fn start(birth: Birth) -> Self {
        let Birth { who, now_ms, seed, drift_ppm, jump_ms, shards, together, concludes, metrics, mover } = birth;
        let tasks = LocalSet::new();
        let (reactor, mut spawned) = mpsc::unbounded_channel();
        tasks.spawn_local(async move {
            while let Some(task) = spawned.recv().await {
                tokio::task::spawn_local(task);
            }
        });
        let clock = Arc::new(SimClock::new(now_ms, (drift_ppm, jump_ms), seed));
        let woken = Arc::new(Woken { is: AtomicBool::new(true), mover });
        let outbox = Arc::new(Outbox::new(Arc::clone(&woken).into()));
        let store = Arc::new(SimStore::new(who.clone(), shards, together, concludes, Arc::clone(&outbox)));
        let as_store = Arc::clone(&store) as Arc<dyn Store>;
        let reactor = Reactor::Queue(reactor);
        let server = in_process::server(&who.name, &as_store, Arc::clone(&clock) as Arc<dyn Clock>, metrics, reactor);
        // A thread with a clock of its own would bring chance into the schedule. Nobody here asks for what it would have
        // written.
        let hooks = Hooks { without_index: true, ..Hooks::default() };
        let keeper = Keeper::alone(Arc::clone(&server), as_store, hooks);
        tasks.spawn_local(live(keeper, Arc::clone(&server)));
        Self { tasks, woken, server, clock, store, outbox }
    }

    /// Lets the process do what it can do now. False if it could do nothing.
    pub fn go_on(&mut self) -> bool {
        if !self.woken.is.swap(false, Ordering::Relaxed) {
            return false;
        }
        let waker = Waker::from(Arc::clone(&self.woken));
        // Tasks that can go on set the flag again. The set as a whole never ends.
        let _ = Pin::new(&mut self.tasks).poll(&mut Context::from_waker(&waker));
        true
    }

    pub fn owns(&self) -> bool {
        matches!(&*self.server.seat.role(), Role::Owner(_))
    }

    /// Connects a client, which sends its lines into the channel; dropping the sender hangs up.
    pub fn connect(&self, connection: u64) -> mpsc::UnboundedSender<Vec<u8>> {
        let (lines, requests) = mpsc::unbounded_channel();
        let (server, outbox) = (Arc::clone(&self.server), Arc::clone(&self.outbox));
        let tell = move |bytes| outbox.put(Out::Lines(connection, bytes));
        self.tasks.spawn_local(in_process::serve(server, requests, tell));
        lines
    }
}

/// Does what `serve` does around the keeper, and tries again if the node cannot start.
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
