//! What all parts of a schedule share: its time, its chance, the server of Redis, the faults of the nodes, and what
//! happened.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use allod::core::types::NetworkId;
use allod::metrics::Metrics;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::log;
use super::node::Process;
pub use super::plan::Plan;
use super::redis::Server;
use super::wire::{Dialled, Wires};

/// Counts what happened, so that a run can prove that it tested something.
pub type Coverage = BTreeMap<&'static str, u64>;

/// The time on Redis's clock when a schedule begins.
const EPOCH_MS: u64 = 1_772_356_364_031;

/// The state of a node and its faults.
pub struct Fate {
    pub process: RefCell<Option<Rc<Process>>>,
    /// Until then nothing passes between the node and Redis.
    pub cut_until_ms: Cell<u64>,
    /// Connections do not even break during the cut: the node gets no answers.
    pub cut_is_silent: Cell<bool>,
    pub paused: Cell<bool>,
    /// Until then the node is not started again.
    pub down_until_ms: Cell<u64>,
    /// How many processes the node has had.
    pub starts: Cell<u64>,
    /// The directory that its processes keep on the disk of its machine.
    pub directory: TempDir,
}

impl Fate {
    fn new() -> Self {
        Self {
            process: RefCell::default(),
            cut_until_ms: Cell::default(),
            cut_is_silent: Cell::default(),
            paused: Cell::default(),
            down_until_ms: Cell::default(),
            starts: Cell::default(),
            directory: tempfile::tempdir().unwrap(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    Killed,
    /// Its store failed.
    Stopped,
    /// It had written the register anew.
    WroteAnew,
    /// It was asked to stop.
    Left,
    /// It was asked to stop while it had something to give back, or could not know.
    LeftInDebt,
}

#[derive(Debug)]
pub struct Ended {
    pub death: Death,
    /// What Redis had then: network and generation.
    pub there: BTreeSet<(NetworkId, u64)>,
}

pub struct World {
    pub plan: Plan,
    pub metrics: Arc<Metrics>,
    begun: Instant,
    draws: RefCell<SmallRng>,
    pub server: RefCell<Server>,
    /// Which process granted what, by network and generation.
    pub writers: RefCell<BTreeMap<(NetworkId, u64), u64>>,
    /// Grants that their writer was told are in Redis.
    pub told_writer: RefCell<BTreeSet<(NetworkId, u64)>>,
    pub wires: Wires,
    pub dial: mpsc::UnboundedSender<Dialled>,
    /// Set to cut off for so long the next node that changes something: after its change is applied, and before it is told
    /// so.
    pub cuts_next_ms: Cell<Option<u64>>,
    /// The count of changes when that happened.
    pub under_way: Cell<Option<u64>>,
    /// Until then Redis cannot be reached.
    pub away_until_ms: Cell<u64>,
    /// How far the clock of Redis is off.
    pub skew_ms: Cell<i64>,
    pub nodes: Vec<Fate>,
    /// The faults are over.
    pub calm: Cell<bool>,
    /// Clients are to end.
    pub over: Cell<bool>,
    /// Which process took a shard or changed something, for the first time or again, and when.
    pub written: RefCell<Vec<(u64, u64)>>,
    pub deaths: RefCell<BTreeMap<u64, Ended>>,
    /// When an earlier primary was put back, and with it the line of whoever owned the register then.
    pub put_back_ms: Cell<Option<u64>>,
    /// When Redis went back, or was emptied.
    pub went_back_ms: RefCell<Vec<u64>>,
    pub coverage: RefCell<Coverage>,
    pub problems: RefCell<Vec<String>>,
    trace: Option<RefCell<Vec<String>>>,
    /// Notified when any of this has changed.
    pub changed: Notify,
}

impl World {
    pub fn new(plan: Plan, metrics: Arc<Metrics>, traced: bool, dial: mpsc::UnboundedSender<Dialled>) -> Rc<Self> {
        let draws = SmallRng::seed_from_u64(plan.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 1);
        let nodes = (0..plan.nodes).map(|_| Fate::new()).collect();
        Rc::new(Self {
            plan,
            metrics,
            begun: Instant::now(),
            draws: RefCell::new(draws),
            server: RefCell::default(),
            writers: RefCell::default(),
            told_writer: RefCell::default(),
            wires: Wires::default(),
            dial,
            cuts_next_ms: Cell::default(),
            under_way: Cell::default(),
            away_until_ms: Cell::default(),
            skew_ms: Cell::default(),
            nodes,
            calm: Cell::new(true),
            over: Cell::new(false),
            written: RefCell::default(),
            deaths: RefCell::default(),
            put_back_ms: Cell::default(),
            went_back_ms: RefCell::default(),
            coverage: RefCell::default(),
            problems: RefCell::default(),
            trace: traced.then(RefCell::default),
            changed: Notify::new(),
        })
    }

    pub fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    pub fn redis_ms(&self) -> u64 {
        (EPOCH_MS + self.now_ms()).saturating_add_signed(self.skew_ms.get())
    }

    pub fn draw(&self, range: std::ops::Range<u64>) -> u64 {
        self.draws.borrow_mut().random_range(range)
    }

    pub fn one_in(&self, count: u64) -> bool {
        self.draw(0..count) == 0
    }

    pub async fn sleep(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    pub async fn sleep_until(&self, at_ms: u64) {
        tokio::time::sleep_until(self.begun + Duration::from_millis(at_ms)).await;
    }

    pub async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so(self) {
                return;
            }
            changed.await;
        }
    }

    pub async fn until_within(&self, ms: u64, is_so: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..ms.div_ceil(100) {
            if is_so(self) {
                return true;
            }
            self.sleep(100).await;
        }
        is_so(self)
    }

    pub fn change(&self) {
        self.changed.notify_waiters();
    }

    pub fn hit(&self, what: &'static str) {
        self.hits(what, 1);
    }

    pub fn hits(&self, what: &'static str, times: u64) {
        *self.coverage.borrow_mut().entry(what).or_default() += times;
    }

    pub fn problem(&self, problem: String) {
        self.note(|| format!("PROBLEM {problem}"));
        self.problems.borrow_mut().push(problem);
    }

    /// Takes what was logged into counts and trace.
    pub fn hear(&self) {
        let lines = log::heard();
        if lines.is_empty() {
            return;
        }
        log::count(&lines, &mut self.coverage.borrow_mut());
        if let Some(trace) = &self.trace {
            let lines = lines.iter().map(|line| format!("{:>7}     {}", self.now_ms(), log::masked(line)));
            trace.borrow_mut().extend(lines);
        }
    }

    /// Adds a line to the trace, if there is one.
    pub fn note(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            self.hear();
            trace.borrow_mut().push(format!("{:>7} {}", self.now_ms(), log::masked(&line())));
        }
    }

    pub fn take_trace(&self) -> Vec<String> {
        self.trace.as_ref().map(RefCell::take).unwrap_or_default()
    }

    pub fn process(&self, node: usize) -> Option<Rc<Process>> {
        self.nodes[node].process.borrow().clone()
    }

    /// Nodes that believe to own the register, and are awake.
    pub fn owners(&self) -> Vec<usize> {
        let owns = |node: &usize| !self.nodes[*node].paused.get() && self.process(*node).is_some_and(|one| one.owns());
        (0..self.nodes.len()).filter(owns).collect()
    }

    pub fn is_cut(&self, node: usize) -> bool {
        self.nodes[node].cut_until_ms.get() > self.now_ms()
    }

    pub fn passes(&self, node: usize) -> bool {
        !self.nodes[node].paused.get() && !self.is_cut(node)
    }
}
