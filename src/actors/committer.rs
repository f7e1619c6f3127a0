//! Makes changes durable, many at a time, and releases their answers in order.
//!
//! Life of an `ip.allocate`, step 5 of 8 (see [`crate`]). Before: `network`. After: the store, then back to
//! `server::session`.
//!
//! Networks hand in *units*: what one turn of a network changed, and the answers that must not leave before it is
//! durable. The committer gathers units into a *group*: one call of the store, with one batch for each shard concerned.
//! At most [`GROUPS_IN_FLIGHT_MAX`] groups are under way; meanwhile the next one fills. There is no timer: an idle server
//! commits at once, a busy one in large groups, because the committer lets the networks of its thread go on while they have more
//! to hand in (`Committer::gather`). If more units wait than fit into a group, they are taken fairly over networks.
//!
//! **Time.** After a restart the time of a shard continues from its last batch. So that an idle spell before a crash does not
//! lengthen every lease, the committer writes a batch without changes for each shard in which something will be due: every
//! [`TIME_MARK_SECONDS`], more often the sooner it is due (`lags_at_most_ms`), and before the server ends.
//!
//! **Proof.** If having the store open does not prove ownership, answers without a change also wait for a proof
//! a group names the shards whose networks only answer, and the store confirms their last acknowledged
//! batches under the tokens of this owner, once for all that wait.
//!
//! One committer serves all shards if the store commits them together; otherwise each shard has one.
//!
//! **Outcomes** (R-6).
//!
//! - *Applied*: answers leave in order.
//! - *Not applied*: the same batches are sent again, in order, until [`COMMIT_DEADLINE`]; then everything that depends on them is
//!   discarded. If the store has no room, only what does not fit is discarded, at once (`cut`).
//! - *Unknown*: the same bytes are sent again until the deadline; then the shards are taken again.
//! - *Fenced*: the tenure is over ([`Fatal`]).
//!
//! Discarding a network first raises the incarnation of its [`Lane`](super::routes::Lane), then fails its answers, and only then
//! settles its units; its actor is told, and loads it again through [`Reload`]. If a proof fails and the group had nothing to
//! write, nothing is in doubt: the answers are refused, and memory stands. Nothing that was decided on discarded memory ever leaves.
//! A store that has failed for good ends the process ([`Fatal`]).
//!
//! Review notes: is every unit settled exactly once? Is `incarnation` raised before `definite`, and that before `settled`? Are the
//! bytes of a group the same each time it is sent? What if the store never answers (the deadline is ours)?

mod cut;
mod doubt;
mod proof;
mod queue;
mod settling;
mod unit;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::prelude::*;
use hashbrown::HashMap;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::queue::UnitQueue;
pub use self::unit::{Drained, Enqueue, Reload, Retire, Staged, Unit, UnitPart};
use self::unit::{ShardLine, class_of, highest, line_of};
use super::clock::LOOKED_AT_EVERY;
use super::routes::NOTHING_ENDS;
use super::service::Shared;
use super::{Applied, Fatal, unproved};
use crate::core::types::NetworkId;
use crate::limits::{BATCH_BYTES_MAX, BATCH_CHANGES_MAX, TIME_MARK_SECONDS, TIME_MARK_SECONDS_MIN};
use crate::seldom::Seldom;
use crate::store::{Act, Batch, CommitError, Committed, Head, Seq, ShardId, StoreError, StoreHealth};

/// Groups handed to the store and not answered. Measured: two keep the store busy while the next fills; more only make
/// groups smaller.
pub const GROUPS_IN_FLIGHT_MAX: usize = 2;
/// So many changes are a group, even if more are about to come: what is paid for each group is little beside them.
const GATHERED_CHANGES: usize = 256;
const _: () = assert!(GATHERED_CHANGES <= BATCH_CHANGES_MAX);
/// How often the other tasks of the thread go on before a group is closed: a busy network hands in a unit each time.
const GATHERING_TURNS: u32 = 6;
/// A first unit of no more changes goes at once where nothing is under way: busy networks hand in more.
const FEW_CHANGES: usize = 4;
/// How long a commit may be tried before its memory is given up.
pub const COMMIT_DEADLINE: Duration = Duration::from_secs(2);
/// How much longer for each MiB of an act beyond [`BATCH_BYTES_MAX`], which only the move of a subnet and a list of subnets
/// are: several times what a processor of a server needs for it. A slow one must not be told each time anew that nobody knows
/// whether it was done.
const DEADLINE_FOR_A_MIB: Duration = Duration::from_millis(500);
/// However large it is, others wait for it.
const LONGEST_DEADLINE: Duration = Duration::from_secs(6);
/// How often it is looked for shards whose time must be written down.
const LOOK_AT_TIME_EVERY: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_millis(10);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(1);
/// How soon, and how seldom at the end, it is said again that the store does not do what it shall.
const SAID_EVERY: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30);

#[derive(Debug)]
struct Group {
    number: u64,
    batches: Arc<[Batch]>,
    /// Shards of which nothing is written, and whose owner must be proved.
    proofs: Vec<ShardId>,
    units: Vec<Unit>,
    begun: Instant,
    /// Until when it is tried.
    ends: Instant,
    sent: u64,
    /// Boot time of the last attempt.
    sent_ms: u64,
    /// Of one of its attempts nobody knows what became: it may have been applied, whatever later ones said.
    doubtful: bool,
    result: Option<Result<Vec<Committed>, CommitError>>,
}

/// What a group writes in one shard.
#[derive(Debug, Default)]
struct Written {
    /// How many acts there will be: in a vector that grows, those of a busy group would be copied again and again.
    count: usize,
    acts: Vec<Act>,
    /// Steps of the acts that are in it.
    steps: u32,
}

/// Units of a network that are not definite.
#[derive(Debug, Default, Clone, Copy)]
struct UnderWay {
    queued: usize,
    in_flight: usize,
}

/// The actor.
pub struct Committer {
    shared: Arc<Shared>,
    lines: HashMap<ShardId, ShardLine>,
    queue: UnitQueue,
    /// What is in the queue waits for no more to come.
    ripe: bool,
    networks: HashMap<NetworkId, UnderWay>,
    in_flight: VecDeque<Group>,
    next_group: u64,
    /// Counts attempts, so that an answer that comes after its deadline is known for what it is.
    attempts: u64,
    retrying: bool,
    /// The store had failed when it was looked at last, and nothing was under way.
    looked_failed: bool,
    recovering: bool,
    /// Shards whose time is written down with the next group.
    marks: BTreeSet<ShardId>,
    reloads: Vec<Reload>,
    loading: HashSet<ShardId>,
    /// Shards that could not be loaded just now: each has one retry armed, and nothing asks the store for it before that.
    resting: HashSet<ShardId>,
    drained: Vec<oneshot::Sender<()>>,
    fatal: bool,
    /// How often it is said that a commit is tried again, and that a shard cannot be taken or loaded yet.
    retries: Seldom,
    failures: Arc<Seldom>,
}

impl Committer {
    /// Over shards that were just taken.
    pub fn new(shared: Arc<Shared>, heads: &[(ShardId, Head)]) -> Self {
        let lines = heads.iter().map(|(shard, head)| (*shard, line_of(head))).collect();
        Self {
            shared,
            lines,
            queue: UnitQueue::default(),
            ripe: false,
            networks: HashMap::new(),
            in_flight: VecDeque::new(),
            next_group: 0,
            attempts: 0,
            retrying: false,
            looked_failed: false,
            recovering: false,
            marks: BTreeSet::new(),
            reloads: Vec::new(),
            loading: HashSet::new(),
            resting: HashSet::new(),
            drained: Vec::new(),
            fatal: false,
            retries: Seldom::new(SAID_EVERY),
            failures: Arc::new(Seldom::new(SAID_EVERY)),
        }
    }

    fn enqueue(&mut self, unit: Unit) {
        let stale = unit.parts.iter().any(|part| part.incarnation != part.lane.incarnation.load(Ordering::Acquire));
        if stale || self.fatal {
            // Of a joint unit the other networks have applied their parts by now: they are given up with it.
            let problem = match self.fatal {
                true => "this node no longer owns the network",
                false => "the network is being loaded again after a commit in doubt",
            };
            self.give_up(unit, Applied::No, problem);
            return;
        }
        if self.recovering
            && unit.changes() == 0
            && !unit.parts.iter().any(|part| self.networks.contains_key(&part.lane.id))
            && let Some(why) = self.shared.hindrance()
        {
            // It stands behind nothing that is under way, and nothing is proved until the store is taken anew.
            return self.refuse(unit, Applied::No, &unproved(&why));
        }
        let max = self.shared.info.act_bytes_max;
        if unit.bytes() > max {
            // It would take the whole group down with it. No act is meant to be so long: whoever can make one (the move of a
            // subnet, a list of subnets) refuses first.
            tracing::error!(bytes = unit.bytes(), max, "an act is longer than anything that becomes durable at once");
            let problem = format!("it changes more than fits into one commit: {max} bytes");
            self.give_up(unit, Applied::No, &problem);
            return;
        }
        if unit.changes() == 0 && self.shared.info.ownership_is_standing && !unit.answers.is_empty() {
            // Nothing to write: it leaves with the last group that holds something of its networks.
            let behind = |standing: fn(&UnderWay) -> usize| {
                unit.parts.iter().any(|part| self.networks.get(&part.lane.id).is_some_and(|s| standing(s) > 0))
            };
            if !behind(|s| s.queued) {
                if !behind(|s| s.in_flight) {
                    return self.settle(unit);
                }
                if let Some(group) = self.in_flight.back_mut() {
                    for part in &unit.parts {
                        self.networks.entry(part.lane.id).or_default().in_flight += 1;
                    }
                    group.units.push(unit);
                    return;
                }
            }
        }
        for part in &unit.parts {
            self.networks.entry(part.lane.id).or_default().queued += 1;
        }
        self.queue.push(unit);
    }

    /// Hands groups to the store while there is something to write that need not wait for more, and room in the window.
    fn pump(&mut self, ctx: &mut Context<Self>) {
        if self.recovering || self.retrying || self.fatal {
            return;
        }
        while self.in_flight.len() < GROUPS_IN_FLIGHT_MAX
            && (self.ripe && !self.queue.is_empty() || !self.marks.is_empty())
        {
            let mut units = self.queue.next_group();
            let proofs = self.proofs_of(&units);
            let batches: Arc<[Batch]> = self.batches_of(&mut units).into();
            units.iter_mut().for_each(|unit| unit.sent = true);
            for part in units.iter().flat_map(|unit| &unit.parts) {
                let standing = self.networks.entry(part.lane.id).or_default();
                standing.queued -= 1;
                standing.in_flight += 1;
            }
            self.next_group += 1;
            let changes: usize = batches.iter().flat_map(|b| &b.acts).map(|act| act.steps.len()).sum();
            if changes > 0 {
                self.shared.metrics.batch_changes.observe(changes as f64);
            }
            let number = self.next_group;
            tracing::trace!(group = number, changes, shards = batches.len(), "handed to the store");
            let begun = Instant::now();
            let before = self.in_flight.back().map_or(begun, |group| group.ends);
            let ends = before.max(begun + self.deadline_of(&units));
            let group = Group {
                number,
                batches,
                proofs,
                units,
                begun,
                ends,
                sent: 0,
                sent_ms: 0,
                doubtful: false,
                result: None,
            };
            self.in_flight.push_back(group);
            self.send(number, ctx);
        }
        self.ripe &= !self.queue.is_empty();
    }

    /// How long a group of these may be tried.
    fn deadline_of(&self, units: &[Unit]) -> Duration {
        let by_size = || deadline_of_bytes(units.iter().map(Unit::bytes).sum());
        self.shared.hooks.commit_deadline.unwrap_or_else(by_size)
    }

    /// Lets the others of this thread go on, a few times, until nothing more comes or it is enough for a group. A busy
    /// network hands in a unit a turn: each by itself would be a group, and a group costs the same whatever is in it.
    fn gather(&mut self, turns: u32, ctx: &mut Context<Self>) {
        let before = self.queue.changes();
        let turn = actix::fut::wrap_future(tokio::task::yield_now());
        ctx.spawn(turn.map(move |(), act: &mut Self, ctx| {
            if turns > 1 && (before + 1..GATHERED_CHANGES).contains(&act.queue.changes()) {
                return act.gather(turns - 1, ctx);
            }
            act.ripe = true;
            act.pump(ctx);
        }));
    }

    /// Shards that answer in these units, and in which they change nothing.
    fn proofs_of(&self, units: &[Unit]) -> Vec<ShardId> {
        if self.shared.info.ownership_is_standing {
            return Vec::new();
        }
        let answering = units.iter().filter(|unit| !unit.answers.is_empty()).flat_map(|unit| &unit.parts);
        let mut shards: BTreeSet<ShardId> = answering.map(|part| part.lane.shard).collect();
        for part in units.iter().flat_map(|unit| &unit.parts).filter(|part| !part.acts.is_empty()) {
            // Its batch is the proof.
            shards.remove(&part.lane.shard);
        }
        shards.into_iter().filter(|shard| !self.marks.contains(shard)).collect()
    }

    fn batches_of(&mut self, units: &mut [Unit]) -> Vec<Batch> {
        let mut written: Vec<Option<Written>> = Vec::new();
        written.resize_with(usize::from(self.shared.info.shards), || None);
        for shard in std::mem::take(&mut self.marks) {
            written[usize::from(shard.0)].get_or_insert_default();
        }
        for part in units.iter().flat_map(|unit| &unit.parts).filter(|part| !part.acts.is_empty()) {
            written[usize::from(part.lane.shard.0)].get_or_insert_default().count += part.acts.len();
        }
        for of_shard in written.iter_mut().flatten() {
            of_shard.acts.reserve_exact(of_shard.count);
        }
        for unit in units {
            let first = unit.parts.first().and_then(|part| written[usize::from(part.lane.shard.0)].as_ref());
            unit.behind = first.map(|of_shard| of_shard.steps);
            for part in &mut unit.parts {
                if let Some(of_shard) = &mut written[usize::from(part.lane.shard.0)] {
                    of_shard.acts.append(&mut part.acts);
                    of_shard.steps += part.changes as u32;
                }
            }
        }
        let shards = (0..).map(ShardId).zip(written);
        let mut batches = Vec::new();
        for (shard, acts) in shards.filter_map(|(shard, written)| Some((shard, written?.acts))) {
            let Some(line) = self.lines.get_mut(&shard) else { continue };
            line.seq = Seq(line.seq.0 + 1);
            line.generation = line.generation.max(highest(&acts));
            self.shared.generations.note(line.generation);
            line.time = self.shared.shard_time(shard);
            batches.push(Batch {
                shard,
                epoch: line.epoch,
                token: line.token,
                seq: line.seq,
                time: line.time,
                generation: line.generation,
                acts,
            });
        }
        batches
    }

    /// Sends a group's bytes, the first time or again.
    fn send(&mut self, number: u64, ctx: &mut Context<Self>) {
        self.attempts += 1;
        let attempt = self.attempts;
        let Some(group) = self.in_flight.iter_mut().find(|group| group.number == number) else { return };
        (group.sent, group.sent_ms) = (attempt, self.shared.clock.boot_ms());
        group.result = None;
        let left = group.ends.saturating_duration_since(Instant::now()).max(RETRY_AFTER);
        let names = group.proofs.iter().filter_map(|&shard| {
            let line = self.lines.get(&shard)?;
            Some((shard, line.token, line.durable.0, line.durable.1))
        });
        let names: Vec<_> = names.collect();
        let commit = proof::send(&*self.shared.store, Arc::clone(&group.batches), names);
        let commit = tokio::time::timeout(left, commit);
        ctx.spawn(commit.into_actor(self).map(move |result, act, ctx| {
            let result = result.unwrap_or_else(|_| {
                let source = std::io::Error::from(std::io::ErrorKind::TimedOut);
                let cause =
                    StoreError::Io { context: "waiting for the store to commit".into(), source: Arc::new(source) };
                Err(CommitError::Unknown { cause })
            });
            act.answered(attempt, result, ctx);
        }));
    }

    fn answered(&mut self, attempt: u64, result: Result<Vec<Committed>, CommitError>, ctx: &mut Context<Self>) {
        let Some(group) = self.in_flight.iter_mut().find(|group| group.sent == attempt) else { return };
        group.doubtful |= matches!(result, Err(CommitError::Unknown { .. }));
        match &result {
            Ok(_) => self.shared.was_served(group.sent_ms),
            Err(error) => {
                self.shared.metrics.commit_failures.with_label_values(&[class_of(error)]).inc();
                // However soon it is reached again: whoever could not renew meanwhile has time for it from here on.
                for shard in self.lines.keys() {
                    self.shared.shard_time(*shard);
                }
            }
        }
        group.result = Some(result);
        while let Some(front) = self.in_flight.front_mut() {
            match front.result.take() {
                None => break,
                Some(Ok(committed)) => {
                    self.shared.metrics.of_group(!front.batches.is_empty(), front.begun.elapsed());
                    let lost =
                        front.batches.iter().any(|b| !committed.iter().any(|c| c.shard == b.shard && c.seq == b.seq));
                    if lost {
                        tracing::error!("the store acknowledged other batches than it was given");
                        return self.stop("the store acknowledged other batches than it was given");
                    }
                    let Some(mut group) = self.in_flight.pop_front() else { break };
                    tracing::trace!(group = group.number, units = group.units.len(), "durable");
                    self.durable(&group, &committed);
                    for unit in &group.units {
                        self.leave(unit, |standing| standing.in_flight -= 1);
                    }
                    self.settle_all(&mut group.units);
                }
                Some(Err(error)) => {
                    front.result = Some(Err(error.clone()));
                    if !self.is_without_proof(&error) {
                        self.failed(&error, ctx);
                        break;
                    }
                }
            }
        }
        self.kick_reloads(ctx);
        self.pump(ctx);
        self.tell_drained();
    }

    /// Notes the shards whose time shall be written down: something waits for it, and it is further ahead of what is durable
    /// than may be with so many milliseconds left.
    fn mark_time(&mut self, lags_at_most_ms: impl Fn(u64) -> u64) {
        for route in self.shared.routes.all() {
            let shard = route.lane.shard;
            let ends = route.lane.ends_next.load(Ordering::Relaxed);
            let Some(line) = self.lines.get(&shard).filter(|_| ends != NOTHING_ENDS) else { continue };
            let now = self.shared.shard_time(shard).0;
            if now.saturating_sub(line.time.0) > lags_at_most_ms(ends.saturating_sub(now)) {
                self.marks.insert(shard);
            }
        }
    }

    fn tell_drained(&mut self) {
        if self.in_flight.is_empty() && self.queue.is_empty() && self.marks.is_empty() {
            for waiting in self.drained.drain(..) {
                // Who waited may have given up.
                let _ = waiting.send(());
            }
        }
    }
}

/// How far the time of a shard may be ahead of what is durable, where something ends in so many milliseconds. A crash gives it
/// that once more: a part of what is left, so that a lease of a minute ends also at a server that crashes each minute.
fn lags_at_most_ms(left_ms: u64) -> u64 {
    (left_ms / 4).clamp(TIME_MARK_SECONDS_MIN * 1_000, TIME_MARK_SECONDS * 1_000)
}

/// How long a group of so many bytes may be tried.
fn deadline_of_bytes(bytes: usize) -> Duration {
    let beyond = bytes.saturating_sub(BATCH_BYTES_MAX) as f64 / f64::from(1 << 20);
    (COMMIT_DEADLINE + DEADLINE_FOR_A_MIB.mul_f64(beyond)).min(LONGEST_DEADLINE)
}

impl Drop for Committer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.fatal(Fatal("the committer crashed".to_owned()));
        }
    }
}

impl Actor for Committer {
    type Context = Context<Self>;
    fn started(&mut self, ctx: &mut Context<Self>) {
        self.shared.store.commits_from_here();
        ctx.run_interval(LOOK_AT_TIME_EVERY, |act, ctx| {
            if act.fatal {
                return;
            }
            act.mark_time(lags_at_most_ms);
            act.pump(ctx);
        });
        ctx.run_interval(LOOKED_AT_EVERY, |act, _| {
            act.notice_failure();
            for shard in act.lines.keys() {
                act.shared.shard_time(*shard);
            }
        });
    }
}

impl Handler<Enqueue> for Committer {
    type Result = ();
    fn handle(&mut self, Enqueue(unit): Enqueue, ctx: &mut Context<Self>) {
        let first = self.queue.is_empty();
        self.enqueue(unit);
        // Once for all that arrive together, not for each message.
        if first && !self.queue.is_empty() {
            let is_alone = self.in_flight.is_empty() && self.queue.changes() <= FEW_CHANGES;
            if is_alone {
                self.ripe = true;
                ctx.spawn(actix::fut::wrap_future(async {}).map(|(), act: &mut Self, ctx| act.pump(ctx)));
            } else {
                self.gather(GATHERING_TURNS, ctx);
            }
        }
    }
}

impl Handler<Reload> for Committer {
    type Result = ();
    fn handle(&mut self, reload: Reload, ctx: &mut Context<Self>) {
        self.reloads.push(reload);
        self.kick_reloads(ctx);
    }
}

impl Handler<Retire> for Committer {
    type Result = ();
    fn handle(&mut self, Retire(problem): Retire, ctx: &mut Context<Self>) {
        self.end(&problem);
        ctx.stop();
    }
}

impl Handler<Drained> for Committer {
    type Result = ();
    fn handle(&mut self, Drained(told): Drained, ctx: &mut Context<Self>) {
        self.drained.push(told);
        if !self.fatal && self.shared.store.health() != StoreHealth::Failed {
            self.mark_time(|_| 0);
            self.pump(ctx);
        }
        self.tell_drained();
    }
}
