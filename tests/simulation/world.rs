//! The world of one schedule: time, the register and the nodes. `plan` says how the schedule goes, `messages` carries
//! messages between nodes and register, and `faults` does harm to both.
//!
//! Everything that happens is an event at a millisecond; events of one moment happen in the order in which they were made.
//! All nodes and the world live in one time: it stands still while anybody has something to do, and then moves on to
//! whatever is due next, an event of the world or a timer of a node. So nobody learns of anything too early or too late, and
//! a node that has nothing to do is not polled. All chance is drawn from the schedule's seed: the same seed gives the same
//! schedule.

mod faults;
mod messages;
mod plan;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use allod::metrics::Metrics;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

pub use self::plan::{Cast, Flaw, Plan, Weather};
use super::clients::Clients;
use super::node::{Mover, Process};
use super::register::Register;
use super::store::{Ask, Out};

/// Counts what happened, so that a run can prove that it tested something.
pub type Coverage = BTreeMap<&'static str, u64>;

/// Called with whether something was confirmed.
type Tell = Box<dyn FnOnce(&mut World, bool)>;

type Happening = Box<dyn FnOnce(&mut World)>;

struct Event {
    at_ms: u64,
    number: u64,
    /// The client and the turn of it to which the event belongs: it is void once that turn is over.
    turn: Option<(usize, u64)>,
    happening: Happening,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at_ms, self.number) == (other.at_ms, other.number)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ms, self.number).cmp(&(other.at_ms, other.number))
    }
}

/// A node: its process, if it runs, and the faults that affect it.
pub struct Node {
    pub name: Arc<str>,
    pub process: Option<Process>,
    pub paused: bool,
    /// Until then nothing passes between the node and the register.
    cut_until_ms: u64,
    /// Connections do not even break during the cut: the node gets no answers.
    cut_is_silent: bool,
    /// When the last batch on its way arrives; later batches arrive no earlier, because batches keep their order.
    commits_until_ms: u64,
    /// How many processes it has had.
    starts: u64,
    drift_ppm: i64,
    jump_ms: i64,
    owned: bool,
    /// When its belief to own the register last changed.
    owned_since_ms: u64,
}

impl Node {
    /// Has the node a process, awake or asleep, that believes to own the register?
    pub fn believes(&self) -> bool {
        self.owned && self.process.is_some()
    }
}

/// An answer that waits until what it shows cannot be lost.
struct Waiting {
    position: u64,
    tell: Tell,
}
pub struct World {
    pub plan: Plan,
    pub now_ms: u64,
    pub draws: SmallRng,
    pub register: Register,
    pub nodes: Vec<Node>,
    pub clients: Clients,
    pub coverage: Coverage,
    /// The clients' faults are over, and everything shall come to rest.
    pub calm: bool,
    trace: Option<Vec<String>>,
    events: BinaryHeap<Reverse<Event>>,
    made: u64,
    stamps: u64,
    waiting: Vec<Waiting>,
    /// Questions that are never answered. They are kept, since dropping one would tell its sender.
    silent: Vec<Ask>,
    /// When the last lines on each connection reach its client.
    lines_until_ms: BTreeMap<u64, u64>,
    /// The earliest time of the next confirmation: writes are confirmed in order.
    confirmed_at_ms: u64,
    busy_until_ms: u64,
    lag_until_ms: u64,
    /// How far off the store's own clock is since a failover.
    skew_ms: i64,
    metrics: Arc<Metrics>,
    mover: Arc<Mover>,
    /// Has no node done anything since the runtime's last round?
    rests: bool,
    begun: Instant,
    /// Fires at the next event.
    timer: Pin<Box<Sleep>>,
    /// The clock of everything here. The last field, because it must outlive what lives in it.
    runtime: Rc<Runtime>,
}

impl World {
    pub fn new(plan: Plan, metrics: Arc<Metrics>, traced: bool) -> Self {
        let mut draws = SmallRng::seed_from_u64(plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 1);
        let nodes = (0..plan.nodes)
            .map(|at| Node {
                name: format!("node-{at}").into(),
                process: None,
                paused: false,
                cut_until_ms: 0,
                cut_is_silent: false,
                commits_until_ms: 0,
                starts: 0,
                drift_ppm: draws.random_range(-3_000..3_000),
                jump_ms: 0,
                owned: false,
                owned_since_ms: 0,
            })
            .collect();
        let clients = Clients::new(plan.cast, &mut draws);
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        let (begun, timer) = runtime.block_on(async { (Instant::now(), Box::pin(tokio::time::sleep(Duration::ZERO))) });
        Self {
            register: Register::new(plan.shards, plan.rules),
            plan,
            now_ms: 0,
            draws,
            nodes,
            clients,
            coverage: Coverage::new(),
            calm: false,
            trace: traced.then(Vec::new),
            events: BinaryHeap::new(),
            made: 0,
            stamps: 0,
            waiting: Vec::new(),
            silent: Vec::new(),
            lines_until_ms: BTreeMap::new(),
            confirmed_at_ms: 0,
            busy_until_ms: 0,
            lag_until_ms: 0,
            skew_ms: 0,
            metrics,
            mover: Arc::default(),
            rests: false,
            begun,
            timer,
            runtime: Rc::new(runtime),
        }
    }

    pub fn hit(&mut self, what: &'static str) {
        *self.coverage.entry(what).or_default() += 1;
    }

    /// Adds a line to the trace, if there is one.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>7} {}", self.now_ms, line()));
        }
    }

    pub fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// A moment for the record: a later call gets a greater one.
    pub fn stamp_ns(&mut self) -> u64 {
        self.stamps += 1;
        self.now_ms * 1_000_000 + self.stamps % 1_000_000
    }

    pub fn at(&mut self, at_ms: u64, happening: impl FnOnce(&mut World) + 'static) {
        self.at_in_turn(at_ms, None, happening);
    }

    /// The event happens only if the client is still in this turn: time must not wait for events that have become void.
    pub fn at_in_turn(&mut self, at_ms: u64, turn: Option<(usize, u64)>, happening: impl FnOnce(&mut World) + 'static) {
        self.made += 1;
        let at_ms = at_ms.max(self.now_ms);
        self.events.push(Reverse(Event { at_ms, number: self.made, turn, happening: Box::new(happening) }));
    }

    /// When the next event is due that is not void.
    fn next_ms(&mut self) -> u64 {
        while let Some(Reverse(event)) = self.events.peek() {
            if event.turn.is_none_or(|(client, turn)| self.clients.is_in_turn(client, turn)) {
                return event.at_ms;
            }
            self.events.pop();
        }
        u64::MAX
    }

    pub fn after(&mut self, ms: u64, happening: impl FnOnce(&mut World) + 'static) {
        self.at(self.now_ms + ms, happening);
    }

    /// Lets everything happen up to this time, or until `content` holds.
    pub fn run(&mut self, until_ms: u64, content: impl Fn(&World) -> bool) {
        let runtime = Rc::clone(&self.runtime);
        runtime.block_on(poll_fn(|context| self.go_on(context, until_ms, &content)));
    }

    /// Does everything that is due now; then the runtime moves time on to whatever is due next, here or in a node.
    fn go_on(&mut self, context: &mut Context<'_>, until_ms: u64, content: impl Fn(&World) -> bool) -> Poll<()> {
        self.mover.is(context.waker());
        self.now_ms = self.begun.elapsed().as_millis() as u64;
        loop {
            while self.let_nodes_go_on() {}
            if content(self) {
                return self.come_to_rest(context);
            }
            let next = self.next_ms();
            let until = next.min(until_ms);
            if until > self.now_ms {
                self.timer.as_mut().reset(self.begun + Duration::from_millis(until));
                // A node that can go on earlier wakes this task, too.
                ready!(self.timer.as_mut().poll(context));
                self.now_ms = until;
            } else if next > until_ms {
                return self.come_to_rest(context);
            } else if let Some(Reverse(event)) = self.events.pop() {
                (event.happening)(self);
            }
        }
    }

    /// Ends a run: ready once no node did anything in the runtime's last round.
    ///
    /// A task that yielded goes on in the next round. If `block_on` ends before that, tokio forgets to wake the task: in one
    /// schedule of forty thousand a network that had yielded at that moment never answered again.
    fn come_to_rest(&mut self, context: &Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.rests, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Lets all nodes do what they can do now. False if none could do anything.
    fn let_nodes_go_on(&mut self) -> bool {
        let mut some = false;
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            let process = node.process.as_mut().filter(|_| !node.paused);
            if process.is_some_and(Process::go_on) {
                (some, self.rests) = (true, false);
                self.collect(at);
            }
        }
        some
    }

    /// Collects what a node sent, and notes whether it owns the register now.
    fn collect(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(process) = &node.process else { return };
        let (owns, out) = (process.owns(), process.outbox.take());
        if std::mem::replace(&mut node.owned, owns) != owns {
            let (what, name) = (if owns { "owns the register" } else { "owns it no more" }, Arc::clone(&node.name));
            node.owned_since_ms = self.now_ms;
            self.hit(if owns { "a node owns" } else { "a node steps down" });
            self.note(|| format!("{name} {what}"));
        }
        for out in out {
            match out {
                Out::Ask(ask) => self.send(at, ask),
                Out::Lines(connection, bytes) => {
                    // A connection keeps the order of its lines.
                    let soonest = self.now_ms + self.draws.random_range(1..4);
                    let before = self.lines_until_ms.entry(connection).or_default();
                    let arrives = soonest.max(*before);
                    *before = arrives;
                    self.at(arrives, move |world| Clients::receive(world, connection, &bytes));
                }
            }
        }
    }

    /// The node that believes to own the register, and is awake.
    pub fn owner(&self) -> Option<usize> {
        self.nodes.iter().position(|node| node.believes() && !node.paused)
    }

    /// Has another node owned the register since a later time than this one?
    pub fn is_stale(&self, at: usize) -> bool {
        let began = self.nodes[at].owned_since_ms;
        let later = |(other, node): (usize, &Node)| other != at && node.believes() && node.owned_since_ms > began;
        self.nodes[at].believes() && self.nodes.iter().enumerate().any(later)
    }

    pub fn connect(&mut self, at: usize, connection: u64) -> Option<mpsc::UnboundedSender<Vec<u8>>> {
        Some(self.nodes[at].process.as_ref()?.connect(connection))
    }
}
