//! A node without sockets: the real keeper, actors, sessions and store for Redis, as one set of tasks.
//!
//! Aborting the set is a kill. Not polling it is a pause: whatever was due meanwhile is late. The tasks of the store belong
//! to the runtime and go on while the node is paused, but nothing that they send leaves the node, and nothing reaches them.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allod::actors::clock::Clock;
use allod::actors::reactor::{Reactor, Task};
use allod::actors::service::Hooks;
use allod::core::address::Address;
use allod::core::state::Entry;
use allod::core::types::NetworkId;
use allod::serve::Ended;
use allod::serve::keeper::Keeper;
use allod::server::Server;
use allod::server::role::Role;
use allod::store::redis::{RedisOptions, RedisStore};
use allod::store::{Store, StoreHealth};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, LocalSet};

use super::in_process::{self, SimClock};
use super::plan::Flaw;
use super::wire::SimWay;
use super::world::{Death, Ended as Gone, World};

/// After this time an operator sees why a node does not start, and lets it go on from what Redis has: the others had their
/// time.
const OPERATOR_AFTER_MS: u64 = 28_000;

pub struct Process {
    /// Unique among all processes of a schedule.
    pub number: u64,
    pub node: usize,
    tasks: mpsc::UnboundedSender<Task>,
    server: OnceCell<Arc<Server>>,
    store: OnceCell<Arc<RedisStore>>,
    abort: OnceCell<AbortHandle>,
    waker: RefCell<Option<Waker>>,
    owned: Cell<bool>,
    healed: Cell<u64>,
    /// What Redis had when this process looked last; set only if it ended in order.
    there: RefCell<Option<BTreeSet<(NetworkId, u64)>>>,
}

/// The set of a process's tasks, which stands still while it is paused.
struct Ward {
    world: Rc<World>,
    process: Rc<Process>,
    set: LocalSet,
}

impl Future for Ward {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        *self.process.waker.borrow_mut() = Some(context.waker().clone());
        if self.world.nodes[self.process.node].paused.get() {
            return Poll::Pending;
        }
        let over = Pin::new(&mut self.set).poll(context);
        let owns = self.process.owns();
        if self.process.owned.replace(owns) != owns {
            self.world.owns(&self.process, owns);
        }
        over
    }
}

impl Process {
    pub fn owns(&self) -> bool {
        self.server.get().is_some_and(|server| matches!(&*server.seat.role(), Role::Owner(_)))
    }

    pub fn store(&self) -> Option<&Arc<RedisStore>> {
        self.store.get()
    }

    pub fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    pub fn stop(&self) {
        if let Some(server) = self.server.get() {
            server.stop.cancel();
        }
    }

    /// Batches that it gave back since the last call.
    pub fn healed(&self) -> u64 {
        let healed = self.store.get().map_or(0, |store| store.figures().healed_batches);
        healed - self.healed.replace(healed)
    }

    /// Claims that it has put aside: network, address and generation.
    pub fn put_aside(&self) -> Vec<(NetworkId, String, u64)> {
        let lates = self.store.get().map(|store| store.late()).unwrap_or_default();
        let claims = lates.iter().flat_map(|late| late.claims());
        let of_network = |(network, claims): (NetworkId, Vec<(Address, Entry)>)| {
            let held = |(address, entry): (Address, Entry)| match entry {
                Entry::Held(held) => Some((network, address.to_string(), held.generation.0)),
                Entry::Released(_) | Entry::Declined(_) => None,
            };
            claims.into_iter().filter_map(held).collect::<Vec<_>>()
        };
        claims.flat_map(of_network).collect()
    }

    /// Connects a client, which sends its lines into the channel; dropping the sender hangs up.
    pub fn connect(&self, told: mpsc::UnboundedSender<Vec<u8>>) -> Option<mpsc::UnboundedSender<Vec<u8>>> {
        let server = Arc::clone(self.server.get()?);
        let (lines, requests) = mpsc::unbounded_channel();
        // The client may be gone.
        let serving = in_process::serve(server, requests, move |bytes| drop(told.send(bytes)));
        self.tasks.send(Box::pin(serving)).ok()?;
        Some(lines)
    }

    fn options(world: &World, node: usize) -> RedisOptions {
        let mut options = RedisOptions::new("redis://simulated", world.plan.shards);
        options.owner = format!("node-{node}");
        options.directory = Some(world.nodes[node].directory.path().to_owned());
        options.move_bytes_max = allod::limits::ACT_BYTES_MAX;
        if world.plan.flaw == Some(Flaw::HealsNothing) {
            options.heal_bytes = 0;
        }
        options
    }
}

impl World {
    pub fn start(self: &Rc<Self>, node: usize) {
        let fate = &self.nodes[node];
        fate.starts.set(fate.starts.get() + 1);
        let number = node as u64 * 1_000 + fate.starts.get();
        let (tasks, mut spawned) = mpsc::unbounded_channel::<Task>();
        let process = Rc::new(Process {
            number,
            node,
            tasks: tasks.clone(),
            server: OnceCell::new(),
            store: OnceCell::new(),
            abort: OnceCell::new(),
            waker: RefCell::default(),
            owned: Cell::default(),
            healed: Cell::default(),
            there: RefCell::default(),
        });
        self.note(|| format!("node-{node} starts as {number}"));
        let set = LocalSet::new();
        set.spawn_local(async move {
            while let Some(task) = spawned.recv().await {
                tokio::task::spawn_local(task);
            }
        });
        set.spawn_local(live(Rc::clone(self), Rc::clone(&process), tasks));
        *fate.process.borrow_mut() = Some(Rc::clone(&process));
        fate.paused.set(false);
        let ward = Ward { world: Rc::clone(self), process: Rc::clone(&process), set };
        let _ = process.abort.set(tokio::task::spawn_local(ward).abort_handle());
        self.change();
    }

    pub fn end(self: &Rc<Self>, process: &Rc<Process>, death: Death) {
        let fate = &self.nodes[process.node];
        if fate.process.borrow().as_ref().is_none_or(|present| present.number != process.number) {
            return;
        }
        *fate.process.borrow_mut() = None;
        fate.paused.set(false);
        self.tally(process);
        self.hit(match death {
            Death::Killed => "node killed",
            Death::Stopped => "store stopped",
            Death::WroteAnew => "register written anew",
            Death::Left => "node stopped in order",
            Death::LeftInDebt => "node stopped in debt",
        });
        self.note(|| format!("node-{} ends as {}: {death:?}", process.node, process.number));
        let there = process.there.take().unwrap_or_else(|| self.server.borrow().held());
        self.deaths.borrow_mut().insert(process.number, Gone { death, there });
        self.wires.break_of(process.number);
        if let Some(abort) = process.abort.get() {
            abort.abort();
        }
        self.change();
    }

    /// Does the directory of a node contain something that is still to be given back?
    fn is_in_debt(&self, node: usize) -> bool {
        let files = std::fs::read_dir(self.nodes[node].directory.path()).unwrap();
        let is_debt = |name: &str| name.starts_with("REDO-") || name.starts_with("LATE-");
        files.flatten().any(|file| file.file_name().to_str().is_some_and(is_debt))
    }

    pub fn tally(&self, process: &Process) {
        self.hits("batch healed", process.healed());
    }

    fn owns(&self, process: &Process, owns: bool) {
        let node = process.node;
        self.note(|| format!("node-{node} {}", if owns { "owns the register" } else { "owns it no more" }));
        self.hit(if owns { "a node owns" } else { "a node steps down" });
    }
}

/// Does what `serve` does around the keeper, and tries again if the node cannot start.
async fn live(world: Rc<World>, process: Rc<Process>, tasks: mpsc::UnboundedSender<Task>) {
    let (node, number) = (process.node, process.number);
    let way = Arc::new(SimWay { name: format!("node-{node}'s end"), node, process: number, dial: world.dial.clone() });
    let operator_at = world.now_ms() + OPERATOR_AFTER_MS;
    let store = loop {
        let way = Arc::clone(&way) as Arc<dyn allod::store::redis::RedisWay>;
        let mut options = Process::options(&world, node);
        options.accept_rollback = world.now_ms() >= operator_at;
        if options.accept_rollback {
            world.hit("started by an operator");
        }
        match RedisStore::open_over(options, way).await {
            Ok(store) => break Arc::new(store),
            Err(error) => world.note(|| format!("node-{node} cannot open its store: {error}")),
        }
        world.sleep(700).await;
    };
    let _ = process.store.set(Arc::clone(&store));
    let seed = world.plan.seed.wrapping_mul(31).wrapping_add(number << 32);
    let drift_ppm = world.draw(0..6_000) as i64 - 3_000;
    let clock = Arc::new(SimClock::new(world.now_ms(), (drift_ppm, 0), seed)) as Arc<dyn Clock>;
    let as_store = Arc::clone(&store) as Arc<dyn Store>;
    let metrics = Arc::clone(&world.metrics);
    let server = in_process::server(&format!("node-{node}"), &as_store, clock, metrics, Reactor::Queue(tasks));
    let _ = process.server.set(Arc::clone(&server));
    // A thread with a clock of its own would bring chance into the schedule.
    let hooks = Hooks { without_index: true, ..Hooks::default() };
    let mut keeper = Keeper::alone(Arc::clone(&server), as_store, hooks);
    while keeper.begin().await.is_err() {
        if store.health() == StoreHealth::Failed {
            world.end(&process, Death::Stopped);
            return std::future::pending().await;
        }
        world.sleep(700).await;
    }
    let ended = keeper.keep(&server.stop).await;
    world.note(|| format!("node-{node} ends: {ended:?}"));
    // What it finds out on its way down goes first.
    let ended = keeper.lay_down(Duration::from_secs(2)).await.unwrap_or(ended);
    server.tasks.close();
    let _ = tokio::time::timeout(Duration::from_secs(2), server.tasks.wait()).await;
    keeper.end().await;
    // The process cannot know what Redis loses after this last look.
    *process.there.borrow_mut() = Some(world.server.borrow().held());
    store.close().await;
    let death = match ended {
        Ended::Failed(_) => Death::Stopped,
        Ended::WrittenAnew(_) => Death::WroteAnew,
        Ended::Stopped if world.is_in_debt(node) => Death::LeftInDebt,
        Ended::Stopped => Death::Left,
    };
    world.end(&process, death);
    std::future::pending().await
}
