//! The world of one schedule: time, the register, the nodes, what is on its way between them, and the faults.
//!
//! Everything that happens is an event at a millisecond; events of one moment happen in the order in which they were made.
//! Before an event happens every node that runs is driven up to its time, so a node never learns of something before it
//! could. All chance is drawn from the schedule's seed, so the same seed is the same schedule.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use allod::limits::NODE_LEASE_MS;
use allod::metrics::Metrics;
use allod::store::{CommitError, StoreError};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::mpsc;

use super::clients::Clients;
use super::node::{Birth, Process};
use super::register::{Register, Rules, Sealed, Who, Write};
use super::store::{Ask, Out, lost};

/// How long a renewal is on its way where the register's clock leaps. Less than a store waits for an answer.
const RENEWS_SLOWLY_MS: u64 = 1_300;

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

/// Who is there beside the admin and the holders.
#[derive(Debug, Clone, Copy)]
pub struct Cast {
    /// Runs of a deployment that race.
    pub runs: bool,
    pub waiters: usize,
    pub sweeper: bool,
    /// One at most: the order in which those who watch at one node are woken is tokio's chance.
    pub watcher: bool,
}

/// What befalls nodes and register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// A few faults of any kind.
    Mixed,
    /// The register refuses everything for longer than a commit is tried, again and again, and nothing else happens.
    Refusing,
    /// The register's clock leaps ahead, again and again: leases are over, and others take over, before their owners know, who
    /// renew slowly. Nothing else happens.
    Leaping,
    /// The register fails over, again and again, and nothing else happens.
    Failing,
}

/// How a schedule goes.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub rules: Rules,
    pub nodes: usize,
    pub shards: u16,
    pub together: bool,
    /// How many of a thousand messages meet with a fault.
    pub faults_permille: u32,
    pub ends_ms: u64,
    pub weather: Weather,
    pub cast: Cast,
    /// What is wrong at the edge of the nodes, in negative controls.
    pub flaw: Option<Flaw>,
}

/// A rule of the product that is broken where its nodes meet the world, to show that the judge sees what happens without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// What the register does not answer is taken for not applied, and its number is used again.
    Concludes,
    /// Cursors name no line: one of a line that was cut off is taken for one of the line that goes on.
    CursorsAreNumbers,
    /// An event is told to nobody, now and then.
    EventForgotten,
    /// Somebody who waits is forgotten, now and then.
    WaiterForgotten,
    /// A sweep forgets one of those who are alive.
    LivingForgotten,
    /// A commit or a revert is of whichever plan is the latest.
    AnyPlan,
}

impl Plan {
    pub fn of(seed: u64, rules: Rules) -> Self {
        let mut draws = SmallRng::seed_from_u64(seed);
        let shards = draws.random_range(1..=3);
        let nodes = if draws.random_bool(0.7) { 3 } else { 2 };
        let together = shards == 1 || draws.random_bool(0.6);
        Self {
            seed,
            rules,
            nodes,
            shards,
            together,
            faults_permille: [0, 10, 40, 120][draws.random_range(0..4)],
            ends_ms: draws.random_range(5_000..12_000),
            weather: Weather::Mixed,
            flaw: None,
            cast: Cast {
                // Where shards are not committed together, nothing spans them.
                runs: draws.random_bool(0.5) && together,
                waiters: [0, 0, 1, 3][draws.random_range(0..4)],
                sweeper: draws.random_bool(0.3),
                watcher: draws.random_bool(0.6),
            },
        }
    }
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

    // ---- between nodes and the register ----

    /// A message sets out for the register.
    fn send(&mut self, at: usize, who: Who, sent_ms: u64, mut ask: Ask) {
        self.note(|| format!("{} ▶ register: {} (sent at {sent_ms})", who.name, describe(&ask)));
        let latency = self.draws.random_range(1..4);
        let mut arrives = sent_ms + latency;
        let fault = if self.calm { 1_000 } else { self.draws.random_range(0..1_000) };
        let cut = self.nodes[at].cut_until_ms > sent_ms;
        let is_commit = matches!(ask, Ask::Commit { .. });
        if cut {
            self.hit("cut off from the register");
            return self.note(|| "  … cut off: it never arrives".to_owned());
        }
        let mut answered = true;
        if fault < self.plan.faults_permille {
            match self.draws.random_range(0..7) {
                0 => {
                    self.hit("request lost");
                    return self.note(|| "  … the request is lost".to_owned());
                }
                1 => {
                    self.hit("reply lost");
                    self.note(|| "  … its answer will be lost".to_owned());
                    answered = false;
                }
                2 | 3 => {
                    let late = self.draws.random_range(500..8_000);
                    self.note(|| format!("  … it is {late} ms late"));
                    self.hit("request delayed");
                    let node_at = (at, self.nodes[at].starts);
                    return self.at(arrives + late, move |world| world.arrive(who, node_at, ask, true, true));
                }
                4 => {
                    self.hit("request slow");
                    arrives += self.draws.random_range(50..1_300);
                }
                5 => {
                    if let Ask::Commit { again_ms, .. } = &mut ask {
                        let late = self.draws.random_range(0..6_000);
                        *again_ms = Some(late);
                        self.note(|| format!("  … it comes twice, {late} ms apart"));
                    }
                }
                _ => {
                    self.hit("not applied");
                    self.note(|| "  … the register refuses: not applied".to_owned());
                    return self.after_reply(ask, arrives);
                }
            }
        }
        if self.plan.weather == Weather::Leaping && matches!(ask, Ask::Renew { .. }) {
            arrives += RENEWS_SLOWLY_MS;
        }
        if is_commit {
            arrives = arrives.max(self.nodes[at].commits_until_ms + 1);
            self.nodes[at].commits_until_ms = arrives;
        }
        let node_at = (at, self.nodes[at].starts);
        self.at(arrives, move |world| world.arrive(who, node_at, ask, answered, false));
    }

    /// The register says that it did nothing.
    fn after_reply(&mut self, ask: Ask, arrives_ms: u64) {
        self.at(arrives_ms + 2, move |_| {
            let busy = || StoreError::Io {
                context: "the simulated register is busy".into(),
                source: Arc::new(std::io::Error::from(std::io::ErrorKind::ResourceBusy)),
            };
            // Whoever waited may be gone.
            match ask {
                Ask::Take { to, .. } => drop(to.send(Err(busy()))),
                Ask::Load { to, .. } => drop(to.send(Err(busy()))),
                Ask::Commit { to, .. } => drop(to.map(|to| to.send(Err(CommitError::NotApplied { cause: busy() })))),
                Ask::Check { to, .. } => drop(to.send(Err(CommitError::NotApplied { cause: busy() }))),
                Ask::Renew { to, .. } => drop(to.send(Err(busy()))),
                Ask::Read { to, .. } => drop(to.send(Err(busy()))),
                Ask::Release(_) => {}
            }
        });
    }

    /// A message is at the register.
    fn arrive(&mut self, who: Who, from: (usize, u64), ask: Ask, answered: bool, late: bool) {
        let is_commit = matches!(ask, Ask::Commit { .. });
        let stuck_one_in = if self.plan.weather == Weather::Refusing { 100 } else { 150 };
        if self.now_ms < self.busy_until_ms && is_commit && self.draws.random_ratio(1, stuck_one_in) {
            self.hit("stuck before a busy register");
            self.note(|| format!("stuck before the busy register: {} of {}", describe(&ask), who.name));
            let until = self.busy_until_ms + self.draws.random_range(0..1_500);
            return self.at(until, move |world| world.arrive(who, from, ask, answered, true));
        }
        if self.now_ms < self.busy_until_ms {
            self.hit("not applied");
            self.note(|| format!("register is busy: {} of {}", describe(&ask), who.name));
            if answered {
                self.after_reply(ask, self.now_ms);
            }
            return;
        }
        let now = (self.now_ms as i64 + self.skew_ms).max(0) as u64;
        let back = self.draws.random_range(1..4);
        match ask {
            Ask::Take { shard, token, before, to } => {
                let taken = self.register.take(now, &who, shard, token, before);
                self.note(|| format!("register: {} takes shard {}: {taken:?}", who.name, shard.0));
                match &taken {
                    Ok(_) => self.hit("take"),
                    Err(StoreError::Held { .. }) => self.hit("take refused: held"),
                    Err(_) => self.hit("take refused: fenced"),
                }
                if taken.is_ok() && !self.calm && self.draws.random_ratio(self.plan.faults_permille / 2, 1_000) {
                    // A failover in the worst moment.
                    self.fail_over(1);
                }
                self.when_confirmed(move |world, confirmed| {
                    let answer = if confirmed { taken } else { Err(lost()) };
                    if answered {
                        world.after(back, move |_| drop(to.send(answer)));
                    }
                });
            }
            Ask::Load { shard, token, to } => {
                let loaded = self.register.load(shard, token);
                self.hit("load");
                if answered {
                    self.after(back, move |_| drop(to.send(loaded)));
                }
            }
            Ask::Commit { sealed, again_ms, to } => {
                let applied = self.arrive_commit(&who, from, &sealed, to.filter(|_| answered), late);
                // A connection carries nothing twice that was refused the first time.
                if let Some(again_ms) = again_ms.filter(|_| applied) {
                    let twin = Ask::Commit { sealed, again_ms: None, to: None };
                    self.hit("request doubled");
                    self.after(again_ms, move |world| world.arrive(who, from, twin, false, true));
                }
            }
            Ask::Check { names, to } => {
                let checked = self.register.check(&names);
                self.hit(if checked.is_ok() { "check" } else { "check fenced" });
                self.note(|| format!("register: {} checks: {checked:?}", who.name));
                if answered {
                    self.after(back, move |_| drop(to.send(checked)));
                }
            }
            Ask::Renew { shards, to } => {
                let renewed = self.register.renew(now, &shards);
                self.hit(if renewed.is_ok() { "renewed" } else { "renewal fenced" });
                self.confirm_later();
                if answered {
                    self.after(back, move |_| drop(to.send(renewed)));
                }
            }
            Ask::Release(shards) => {
                self.hit("released");
                self.register.release(&shards);
                self.confirm_later();
            }
            Ask::Read { stretches, bytes, to } => {
                let recorded = self.register.recorded(&stretches, bytes);
                self.note(|| {
                    let seqs: Vec<(u16, u64)> = recorded.iter().map(|one| (one.shard.0, one.seq.0)).collect();
                    format!("register: {} reads {stretches:?}: {seqs:?}", who.name)
                });
                self.hit("history read");
                if answered {
                    self.after(back, move |_| drop(to.send(Ok(recorded))));
                }
            }
        }
    }

    fn arrive_commit(
        &mut self,
        who: &Who,
        (at, starts): (usize, u64),
        sealed: &[Sealed],
        to: Option<tokio::sync::oneshot::Sender<Result<Vec<allod::store::Committed>, CommitError>>>,
        late: bool,
    ) -> bool {
        let joint = !self.calm && self.register.is_joint(sealed);
        let worst = joint && self.draws.random_ratio(3 * self.plan.faults_permille, 1_000);
        if worst && self.draws.random_bool(0.3) {
            self.hit("killed before a joint commit");
            self.kill_for_a_while(at);
        }
        let committed = self.register.commit(sealed);
        self.note(|| {
            let what: Vec<String> = sealed.iter().map(describe_batch).collect();
            format!("register: {} commits {}: {committed:?}", who.name, what.join(", "))
        });
        let lives = self.nodes[at].starts == starts && self.nodes[at].process.is_some();
        match &committed {
            Ok((_, true)) => self.hit("applied before"),
            Ok((_, false)) if late => self.hit("applied late"),
            Ok((_, false)) if !lives => self.hit("applied after its node was killed"),
            Ok((_, false)) => self.hit("applied"),
            Err(CommitError::Fenced { .. }) => self.hit("commit fenced"),
            Err(CommitError::Mismatch { .. }) => self.hit("mismatch"),
            Err(_) => self.hit("gap"),
        }
        if worst && matches!(committed, Ok((_, false))) {
            // Behind all that happens at this moment: a failover breaks the connection on which the answer would come.
            self.after(0, move |world| world.worst_moment(at));
        }
        let back = self.draws.random_range(1..4);
        let applied = committed.is_ok();
        let Some(to) = to else {
            self.confirm_later();
            return applied;
        };
        match committed {
            Err(error) => self.after(back, move |_| drop(to.send(Err(error)))),
            Ok((committed, _)) => self.when_confirmed(move |world, confirmed| {
                let answer = if confirmed { Ok(committed) } else { Err(CommitError::Unknown { cause: lost() }) };
                world.after(back, move |_| drop(to.send(answer)));
            }),
        }
        applied
    }

    /// A commit over several networks was applied just now, and its owner does not know yet.
    fn worst_moment(&mut self, at: usize) {
        let long = self.draws.random_range(5_000..9_000);
        match self.draws.random_range(0..5) {
            0 => {
                self.hit("killed behind a joint commit");
                self.kill_for_a_while(at);
            }
            1 | 2 => {
                self.hit("joint commit rolled back");
                self.fail_over(1);
            }
            3 => self.pause_node(at, long),
            _ => self.cut_node(at, long),
        }
    }

    fn kill_for_a_while(&mut self, at: usize) {
        self.kill_node(at);
        let after = self.draws.random_range(100..5_000);
        self.after(after, move |world| world.start_again(at));
    }

    /// It runs from now on, if it does not.
    pub fn start_again(&mut self, at: usize) {
        if self.nodes[at].process.is_none() {
            self.start_node(at);
        }
    }

    /// Tells when everything up to now cannot be lost any more.
    fn when_confirmed(&mut self, tell: impl FnOnce(&mut World, bool) + 'static) {
        if !self.plan.rules.confirmation {
            self.confirm_later();
            return tell(self, true);
        }
        let position = self.register.position();
        self.waiting.push(Waiting { position, tell: Box::new(tell) });
        self.confirm_later();
    }

    /// The replicas follow after a while.
    fn confirm_later(&mut self) {
        let lag = self.draws.random_range(1..6);
        let at = (self.now_ms + lag).max(self.lag_until_ms).max(self.confirmed_at_ms);
        self.confirmed_at_ms = at;
        let position = self.register.position();
        self.at(at, move |world| {
            if world.now_ms < world.lag_until_ms {
                return world.confirm_later();
            }
            let now_ns = world.stamp_ns();
            world.register.confirm(position, now_ns);
            let (told, waiting) = std::mem::take(&mut world.waiting).into_iter().partition(|w| w.position <= position);
            world.waiting = waiting;
            let told: Vec<Waiting> = told;
            told.into_iter().for_each(|waiting| (waiting.tell)(world, true));
        });
    }

    /// A replica becomes the primary; of what is not confirmed the last so many writes are lost.
    pub fn fail_over(&mut self, lost: usize) {
        let lost = lost.min(self.register.unconfirmed());
        let writes = self.register.fail_over(lost);
        self.note(|| format!("register fails over and loses {writes:?}"));
        self.hit("failover");
        for write in &writes {
            self.hit(match write {
                Write::Take => "take-over rolled back",
                Write::Commit => "commit rolled back",
                Write::Lease => "lease rolled back",
            });
        }
        // Another machine, another clock: sometimes a wrong one, by which leases are over before their owners know.
        let skew = if self.draws.random_bool(0.25) { 1_000..7_000 } else { -300..300 };
        self.skew_ms += self.draws.random_range(skew);
        // Whoever waits for a confirmation has lost the connection on which it would come.
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().for_each(|waiting| (waiting.tell)(self, false));
        self.confirm_later();
    }

    // ---- what befalls nodes ----

    pub fn start_node(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.starts += 1;
        let handle = at as u64 * 1_000 + node.starts;
        self.made += 1;
        let birth = Birth {
            who: Who { handle, name: Arc::clone(&node.name) },
            now_ms: self.now_ms,
            seed: self.plan.seed.wrapping_mul(31).wrapping_add(handle << 32),
            drift_ppm: node.drift_ppm,
            jump_ms: node.jump_ms,
            shards: self.plan.shards,
            together: self.plan.together,
            concludes: self.plan.flaw == Some(Flaw::Concludes),
            metrics: Arc::clone(&self.metrics),
        };
        (node.process, node.paused, node.owned, node.commits_until_ms) = (Some(Process::start(birth)), false, false, 0);
        let name = Arc::clone(&node.name);
        self.note(|| format!("{name} starts"));
    }

    /// All its memory is gone.
    pub fn kill_node(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.process.take().is_none() {
            return;
        }
        (node.paused, node.owned) = (false, false);
        let name = Arc::clone(&node.name);
        self.hit("node killed");
        self.note(|| format!("{name} is killed"));
        Clients::node_gone(self, at);
    }

    pub fn pause_node(&mut self, at: usize, ms: u64) {
        let node = &mut self.nodes[at];
        if node.process.is_none() || node.paused {
            return;
        }
        node.paused = true;
        let (name, starts, owned) = (Arc::clone(&node.name), node.starts, node.owned);
        self.hit(if owned { "owner paused" } else { "node paused" });
        self.note(|| format!("{name} is paused for {ms} ms"));
        self.after(ms, move |world| world.wake_node(at, starts, owned));
    }

    fn wake_node(&mut self, at: usize, starts: u64, owned: bool) {
        let now_ms = self.now_ms;
        let node = &mut self.nodes[at];
        if !node.paused || node.starts != starts {
            return;
        }
        node.paused = false;
        let name = Arc::clone(&node.name);
        let others = self.nodes.iter().enumerate().any(|(other, node)| other != at && node.owned);
        if owned && others {
            self.hit("owner woke after another took over");
        }
        self.note(|| format!("{name} wakes"));
        if let Some(process) = &mut self.nodes[at].process {
            process.wake(now_ms);
            self.collect(at);
        }
    }

    /// It wakes now, if it sleeps.
    pub fn wake_early(&mut self, at: usize) {
        let (starts, owned) = (self.nodes[at].starts, self.nodes[at].owned);
        self.wake_node(at, starts, owned);
    }

    /// It ends in order: answers, lets go of the register, and is gone.
    pub fn stop_node(&mut self, at: usize) {
        let node = &self.nodes[at];
        let (starts, name) = (node.starts, Arc::clone(&node.name));
        let Some(process) = &node.process else { return };
        process.server.stop.cancel();
        self.hit("node stopped in order");
        self.note(|| format!("{name} is asked to stop"));
        self.after(5_000, move |world| {
            if world.nodes[at].starts == starts && world.nodes[at].process.is_some() {
                world.nodes[at].process = None;
                world.nodes[at].owned = false;
                Clients::node_gone(world, at);
            }
        });
    }

    pub fn cut_node(&mut self, at: usize, ms: u64) {
        self.nodes[at].cut_until_ms = self.now_ms + ms;
        let name = Arc::clone(&self.nodes[at].name);
        self.note(|| format!("{name} is cut off from the register for {ms} ms"));
    }

    pub fn jump_clock(&mut self, at: usize, ms: i64) {
        self.nodes[at].jump_ms += ms;
        self.hit("wall clock jumped");
        let name = Arc::clone(&self.nodes[at].name);
        self.note(|| format!("the wall clock of {name} jumps by {ms} ms"));
        if let Some(process) = &self.nodes[at].process {
            process.clock.jump_ms.fetch_add(ms, Ordering::Relaxed);
        }
    }

    pub fn busy(&mut self, ms: u64) {
        self.hit("register busy");
        self.note(|| format!("the register refuses everything for {ms} ms"));
        self.busy_until_ms = self.now_ms + ms;
    }

    /// By its clock, all leases are over.
    pub fn leap(&mut self) {
        self.hit("register's clock leaps");
        self.note(|| "the register's clock leaps ahead".to_owned());
        self.skew_ms += NODE_LEASE_MS as i64 + 1_000;
    }

    pub fn lag(&mut self, ms: u64) {
        self.hit("replicas lag");
        self.note(|| format!("the replicas lag for {ms} ms"));
        self.lag_until_ms = self.now_ms + ms;
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

fn describe(ask: &Ask) -> String {
    match ask {
        Ask::Take { shard, before, .. } => format!("take shard {}{}", shard.0, if *before { " anew" } else { "" }),
        Ask::Load { shard, .. } => format!("load shard {}", shard.0),
        Ask::Commit { sealed, .. } => {
            format!("commit {}", sealed.iter().map(describe_batch).collect::<Vec<_>>().join(", "))
        }
        Ask::Check { names, .. } => format!("check {} shards", names.len()),
        Ask::Renew { .. } => "renew".to_owned(),
        Ask::Read { .. } => "read".to_owned(),
        Ask::Release(_) => "release".to_owned(),
    }
}

fn describe_batch(sealed: &Sealed) -> String {
    use allod::core::state::{Entry, State};
    let batch = &sealed.batch;
    let steps = batch.acts.iter().flat_map(|act| act.steps.iter().map(move |step| (act, step)));
    let steps: Vec<String> = steps
        .map(|(act, step)| {
            let what = match &step.state {
                None => "nothing".to_owned(),
                Some(State::Entry(Entry::Held(held))) => {
                    format!("{}#{}/{} g{}", held.holder.owner, held.holder.slot, held.prefix_length, held.generation.0)
                }
                Some(State::Entry(_)) => "cooling".to_owned(),
                Some(_) => "configuration".to_owned(),
            };
            format!("{:.4}:{:?}→{what}", act.network.to_string(), step.key)
        })
        .collect();
    format!("shard {} seq {} token {:04x} [{}]", batch.shard.0, batch.seq.0, batch.token.0 as u16, steps.join("; "))
}
