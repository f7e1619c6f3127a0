//! The world of one schedule: time, the register and the nodes. `plan` says how it goes; `messages` are on their way
//! between nodes and register; `faults` befall both.
//!
//! Everything that happens is an event at a millisecond; events of one moment happen in the order in which they were made.
//! Before an event happens every node that runs is driven up to its time, so a node never learns of something before it
//! could. All chance is drawn from the schedule's seed, so the same seed is the same schedule.

mod faults;
mod messages;
mod plan;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use allod::metrics::Metrics;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc;

pub use self::plan::{Cast, Flaw, Plan, Weather};
use super::clients::Clients;
use super::node::Process;
use super::register::Register;
use super::store::Out;

/// Counts what happened, so that a run can prove that it tested something.
pub type Coverage = BTreeMap<&'static str, u64>;

/// Told whether something was confirmed.
type Tell = Box<dyn FnOnce(&mut World, bool)>;

type Happening = Box<dyn FnOnce(&mut World)>;

struct Event {
    at_ms: u64,
    number: u64,
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

/// A node: its process, if it runs, and what befalls it.
pub struct Node {
    pub name: Arc<str>,
    pub process: Option<Process>,
    pub paused: bool,
    /// Nothing passes between it and the register until then.
    cut_until_ms: u64,
    /// The last batch on its way arrives then: batches keep their order.
    commits_until_ms: u64,
    /// Counts its processes.
    starts: u64,
    drift_ppm: i64,
    jump_ms: i64,
    owned: bool,
    /// When it began to own, as it believes.
    owned_since_ms: u64,
}

impl Node {
    /// It runs or sleeps, and believes that it owns the register.
    pub fn believes(&self) -> bool {
        self.owned && self.process.is_some()
    }
}

/// An answer that waits until what it shows cannot be lost.
struct Waiting {
    position: u64,
    tell: Tell,
}
/// See the module's text.
pub struct World {
    pub plan: Plan,
    pub now_ms: u64,
    pub draws: SmallRng,
    pub register: Register,
    pub nodes: Vec<Node>,
    pub clients: Clients,
    pub coverage: Coverage,
    /// The last of the clients' faults is over: everything shall come to rest.
    pub calm: bool,
    trace: Option<Vec<String>>,
    events: BinaryHeap<Reverse<Event>>,
    made: u64,
    stamps: u64,
    waiting: Vec<Waiting>,
    /// When the last lines of each connection are at its client.
    lines_until_ms: BTreeMap<u64, u64>,
    /// Writes are confirmed in order, not before this.
    confirmed_at_ms: u64,
    busy_until_ms: u64,
    lag_until_ms: u64,
    /// The store's own clock is that far off since a failover.
    skew_ms: i64,
    metrics: Arc<Metrics>,
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
                commits_until_ms: 0,
                starts: 0,
                drift_ppm: draws.random_range(-3_000..3_000),
                jump_ms: 0,
                owned: false,
                owned_since_ms: 0,
            })
            .collect();
        let clients = Clients::new(plan.cast, &mut draws);
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
            lines_until_ms: BTreeMap::new(),
            confirmed_at_ms: 0,
            busy_until_ms: 0,
            lag_until_ms: 0,
            skew_ms: 0,
            metrics,
        }
    }

    pub fn hit(&mut self, what: &'static str) {
        *self.coverage.entry(what).or_default() += 1;
    }

    /// A line of the trace, if there is one.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>7} {}", self.now_ms, line()));
        }
    }

    pub fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// A moment of the record: later ones are greater.
    pub fn stamp_ns(&mut self) -> u64 {
        self.stamps += 1;
        self.now_ms * 1_000_000 + self.stamps % 1_000_000
    }

    pub fn at(&mut self, at_ms: u64, happening: impl FnOnce(&mut World) + 'static) {
        self.made += 1;
        let at_ms = at_ms.max(self.now_ms);
        self.events.push(Reverse(Event { at_ms, number: self.made, happening: Box::new(happening) }));
    }

    pub fn after(&mut self, ms: u64, happening: impl FnOnce(&mut World) + 'static) {
        self.at(self.now_ms + ms, happening);
    }

    /// Lets everything happen up to this time, or until somebody is content.
    pub fn run(&mut self, until_ms: u64, content: impl Fn(&World) -> bool) {
        while !content(self) {
            let next = self.events.peek().map_or(u64::MAX, |event| event.0.at_ms);
            let until = next.min(until_ms);
            if self.drive_nodes(until) {
                continue; // What they said may come first.
            }
            self.now_ms = until;
            if next > until_ms {
                return;
            }
            if let Some(Reverse(event)) = self.events.pop() {
                (event.happening)(self);
            }
        }
    }

    /// Brings all nodes to this time. Tells if one said something on the way.
    fn drive_nodes(&mut self, until_ms: u64) -> bool {
        for at in 0..self.nodes.len() {
            // It may stop early, and have nothing to say.
            while self.drive_node(at, until_ms) {
                if self.collect(at) {
                    return true;
                }
            }
        }
        false
    }

    /// Drives a node on. False: there is no way to go.
    fn drive_node(&mut self, at: usize, until_ms: u64) -> bool {
        let node = &mut self.nodes[at];
        let Some(process) = node.process.as_mut().filter(|_| !node.paused) else { return false };
        let behind = process.now_ms < until_ms;
        if behind {
            process.drive(until_ms);
        }
        behind
    }

    /// Takes what a node said, and the role that it has now.
    fn collect(&mut self, at: usize) -> bool {
        let node = &mut self.nodes[at];
        let Some(process) = &node.process else { return false };
        let owns = process.owns();
        let out: Vec<(u64, Out)> =
            process.outbox.take().into_iter().map(|(moment, out)| (process.time_of(moment), out)).collect();
        let (who, told) = (process.store.who.clone(), !out.is_empty());
        if std::mem::replace(&mut node.owned, owns) != owns {
            let what = if owns { "owns the register" } else { "owns it no more" };
            self.nodes[at].owned_since_ms = self.now_ms;
            self.hit(if owns { "a node owns" } else { "a node steps down" });
            self.note(|| format!("{} {what}", who.name));
        }
        for (moment, out) in out {
            match out {
                Out::Ask(ask) => self.send(at, who.clone(), moment, ask),
                Out::Lines(connection, bytes) => {
                    // A connection keeps the order of what is sent on it.
                    let before = self.lines_until_ms.entry(connection).or_default();
                    let arrives = (moment + self.draws.random_range(1..4)).max(*before);
                    *before = arrives;
                    self.at(arrives, move |world| Clients::receive(world, connection, &bytes));
                }
            }
        }
        told
    }

    /// The node that owns the register, as it believes itself.
    pub fn owner(&self) -> Option<usize> {
        self.nodes.iter().position(|node| node.believes() && !node.paused)
    }

    /// Does another one own the register by now, that began later?
    pub fn is_stale(&self, at: usize) -> bool {
        let began = self.nodes[at].owned_since_ms;
        let later = |(other, node): (usize, &Node)| other != at && node.believes() && node.owned_since_ms > began;
        self.nodes[at].believes() && self.nodes.iter().enumerate().any(later)
    }

    /// Connects a client to a node, if it runs.
    pub fn connect(&mut self, at: usize, connection: u64) -> Option<mpsc::UnboundedSender<Vec<u8>>> {
        Some(self.nodes[at].process.as_ref()?.connect(connection))
    }
}
