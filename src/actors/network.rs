//! One actor per network: decides, applies, and hands what changed to the committer.
//!
//! Life of an `ip.allocate`, step 3 of 8 (see [`crate`]). Before: `server::session`. After: `core::network`, then
//! `committer`.
//!
//! ```text
//!            ┌──Hold──▶ Held ──Finish──┐
//! Serving ◀──┴─────────────────────────┘
//!   │  ▲
//!   │  └──────Loaded────── Loading ◀── its incarnation was given up (commit in doubt), or a panic
//!   └──3 panics in a minute──▶ Stopped            Serving ──network is no more──▶ Gone
//! ```
//!
//! Owns the only `Network` of its id in memory. A message is all that one socket read brought for this network. Nothing
//! is awaited between decide and apply; requests that arrive while it is held or loading wait, in order, bounded by the
//! network's permits and by [`DEFERRED_MS_MAX`].
//!
//! **The reply barrier** (invariant I-7) is stated here and kept by `committer`: an answer leaves directly only if its
//! unit changes nothing, everything that the network ever enqueued is settled, its incarnation still stands, and the
//! store's ownership is standing. Every other answer, refusals and reads included, travels with a unit behind what it saw.
//!
//! What it does with its memory is in `deciding`; what it brings together, in `draft`.
//!
//! Review notes: does a new reply path go through `send`? What if the actor is held, loading or stopped then? Is
//! `settled` read before `incarnation`? What happens when the client hung up (nothing: its outlet is closed)?

mod deciding;
mod draft;
mod end;
mod messages;
mod sweeping;
mod uses;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use actix::prelude::*;
use tokio::sync::oneshot;

use self::draft::{Draft, refused_by_store, stopped};
use self::sweeping::Misses;
pub use self::messages::{DecideHeld, Finish, Hold, HoldId, Loaded, Retire, Tick, Work, refuse};
use super::clock::Draws;
use super::committer::{Enqueue, Part, Reload, Unit};
use super::directory::Gone;
use super::macs::Claimed;
use super::routes::{Lane, Published};
use super::service::Shared;
use super::{Applied, Fault, NotReadyReason, Told};
use crate::core::command::Context as Moment;
use crate::core::network::Network;
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::Step;
use crate::core::types::{NetworkId, Scope};
use crate::limits::{NETWORK_QUEUE_REQUESTS_MAX, UNIT_BYTES_MAX, UNIT_CHANGES_MAX};
use crate::store::{Act, StoreHealth};

/// How long a request waits for a network that is loading before it is refused.
pub const DEFERRED_MS_MAX: u64 = 2_000;
/// Requests after which the other networks and connections of the thread have their turn: some 0.3 ms.
const TURN_REQUESTS_MAX: usize = 256;
/// So many panics within [`PANIC_WINDOW`] stop a network.
const PANICS_MAX: usize = 3;
const PANIC_WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum Phase {
    Serving,
    Held { hold: HoldId, steps: Vec<Step>, claimed: Claimed },
    Loading { since: tokio::time::Instant },
    Stopped,
    Gone,
}

#[derive(Debug)]
enum Deferred {
    Work(Work),
    Hold(Hold),
}

/// What a `NetworkActor` is made with.
#[derive(Debug)]
pub struct Birth {
    /// The network as it is in memory.
    pub network: Network,
    /// Its durable line.
    pub lane: Arc<Lane>,
    /// Its figures.
    pub published: Arc<Published>,
}

/// The actor.
pub struct NetworkActor {
    shared: Arc<Shared>,
    network: Network,
    lane: Arc<Lane>,
    incarnation: u64,
    /// Units handed to the committer, over all incarnations; compared with the lane's `settled`.
    enqueued: u64,
    published: Arc<Published>,
    phase: Phase,
    deferred: VecDeque<Deferred>,
    draws: Draws,
    panics: VecDeque<tokio::time::Instant>,
    /// How often it asked to be loaded again.
    loads: u64,
    /// Scopes that were published.
    scopes: HashSet<Scope>,
    /// Requests since the others of this thread had their turn.
    turn: usize,
    /// Claimants that a sweep missed.
    misses: Misses,
}

impl NetworkActor {
    /// Around a network that was loaded or made.
    pub fn new(shared: Arc<Shared>, birth: Birth) -> Self {
        let Birth { network, lane, published } = birth;
        let draws = Draws::new(&*shared.clock);
        let incarnation = lane.incarnation.load(Ordering::Acquire);
        let scopes = network.scope_names().into_iter().collect();
        let misses = Misses::new(Arc::clone(&shared.sweeps));
        Self {
            shared,
            network,
            lane,
            incarnation,
            enqueued: 0,
            published,
            phase: Phase::Serving,
            deferred: VecDeque::new(),
            draws,
            panics: VecDeque::new(),
            loads: 0,
            scopes,
            turn: 0,
            misses,
        }
    }

    fn id(&self) -> NetworkId {
        self.lane.id
    }

    /// What is answered once it crashed too often. It is called as its users call it.
    fn fault_of_stop(&self) -> Fault {
        stopped(&self.network.config().name)
    }

    fn moment(&mut self) -> Moment {
        Moment {
            now: self.shared.shard_time(self.lane.shard),
            wall: self.shared.clock.wall(),
            entropy: self.draws.draw(),
            mac_elsewhere: None,
        }
    }

    /// Is everything that this memory was built from still so? If not, it is worthless and is loaded again.
    fn stands(&self) -> bool {
        self.lane.incarnation.load(Ordering::Acquire) == self.incarnation
    }

    fn work(&mut self, mut work: Work, ctx: &mut Context<Self>) {
        if !self.stands() {
            self.deferred.push_back(Deferred::Work(work));
            return self.reload(ctx);
        }
        self.published.decided.fetch_add(work.items.len() as u64, Ordering::Relaxed);
        let begun = Instant::now();
        self.shared.metrics.queue_seconds.observe((begun - work.received).as_secs_f64());
        let misnamed = work.by_name && work.route.name.as_ref() != Some(&self.network.config().name);
        let full = self.shared.store.health();
        let mut unit = Draft::new(Some(work.outlet.clone()), work.items.len());
        let moment = self.moment();
        self.run_due(&mut unit, moment, ctx);
        // Taken from the end one by one: what is left is answered whatever happens.
        work.items.reverse();
        while let Some(mut item) = work.items.pop() {
            unit.begin(item.ticket);
            if matches!(self.phase, Phase::Gone) {
                let refusal = Refusal::not_found(Missing::Network, self.id());
                unit.answer(item.ticket, Err(refusal.into()), false);
                continue;
            }
            if misnamed {
                let refusal = Refusal::not_found(Missing::Network, work.route.name.as_ref().map_or("", |n| n.as_str()));
                unit.answer(item.ticket, Err(refusal.into()), false);
                continue;
            }
            if item.deadline.is_some_and(|deadline| deadline < Instant::now()) {
                let problem = "the request's `deadline_ms` was over before it was begun".to_owned();
                unit.answer(item.ticket, Err(Box::new(Fault::Overloaded { problem, retry_after_ms: 0 })), false);
                continue;
            }
            if full != StoreHealth::Ready && (full == StoreHealth::Failed || !item.command.lets_go()) {
                unit.answer(item.ticket, Err(Box::new(refused_by_store(full, &*self.shared.store))), false);
                continue;
            }
            let moment = Moment { entropy: self.draws.draw(), ..moment };
            self.still_missed(&mut item.command);
            match self.decide_and_claim(&item.command, moment, None, item.dry_run) {
                Ok(Ok((Decision { steps, mut outcome }, _))) => {
                    if !item.dry_run || item.command.is_read() {
                        self.hear_of_claimants(&item.command, &mut outcome, moment.now);
                    }
                    let wrote = !steps.is_empty() && !item.dry_run;
                    if wrote {
                        if self.apply(&steps, moment.now, self.enqueued + 1).is_err() {
                            self.panicked(&mut unit, Some(item.ticket));
                            break;
                        }
                        unit.change(self.id(), moment, item.by, item.reason, steps);
                    }
                    unit.answer(item.ticket, Ok(outcome), wrote);
                }
                Ok(Err(fault)) => unit.answer(item.ticket, Err(fault), false),
                Err(()) => {
                    self.panicked(&mut unit, Some(item.ticket));
                    break;
                }
            }
            if unit.changes >= UNIT_CHANGES_MAX || unit.bytes >= UNIT_BYTES_MAX {
                let next = Draft::new(Some(work.outlet.clone()), work.items.len());
                self.send(std::mem::replace(&mut unit, next));
            }
        }
        work.items.reverse();
        self.send(unit);
        match self.phase {
            _ if work.items.is_empty() => {}
            Phase::Loading { .. } => self.deferred.push_front(Deferred::Work(work)),
            _ => refuse(work, &self.fault_of_stop()), // It was stopped: nothing else ends a turn early.
        }
        self.after(ctx);
    }

    /// The only way out for answers and changes: directly where nothing stands behind, else through the committer.
    fn send(&mut self, mut unit: Draft) {
        if unit.is_empty() {
            return;
        }
        if unit.changes > 0 && matches!(self.phase, Phase::Gone) {
            unit.outlet = self.after_the_end(&mut unit);
        }
        let nothing_pending = self.lane.settled.load(Ordering::Acquire) == self.enqueued && self.stands();
        if unit.changes == 0 && nothing_pending && self.shared.info.ownership_is_standing {
            if let Some(outlet) = &unit.outlet {
                let replies = std::mem::take(&mut unit.answers).into_iter().map(|staged| staged.reply).collect();
                // A closed outlet is a client that hung up: nobody is left to tell.
                let _ = outlet.send(Told::Replies(replies));
            }
            return;
        }
        self.enqueued += 1;
        let part = Part {
            lane: Arc::clone(&self.lane),
            incarnation: self.incarnation,
            changes: unit.changes,
            bytes: unit.bytes,
            acts: std::mem::take(&mut unit.acts),
        };
        let (outlet, answers) = (unit.outlet.take(), std::mem::take(&mut unit.answers));
        self.shared.enqueue(Enqueue(Unit::new(vec![part], outlet, answers)));
    }

    /// What every turn ends with: timers, loading, figures.
    fn after(&mut self, ctx: &mut Context<Self>) {
        match self.phase {
            Phase::Loading { .. } => self.reload(ctx),
            Phase::Stopped => self.refuse_deferred(&self.fault_of_stop()),
            Phase::Serving | Phase::Held { .. } | Phase::Gone => {}
        }
        let now = self.shared.shard_time(self.lane.shard);
        let due_in_ms = self.network.next_due().map(|due| due.0.saturating_sub(now.0));
        self.lane.awaits.store(due_in_ms.is_some(), Ordering::Relaxed);
        self.wake(ctx, due_in_ms, true);
    }

    /// Asks the committer for the network as the store has it, behind everything of it that is under way.
    fn reload(&mut self, ctx: &mut Context<Self>) {
        self.phase = Phase::Loading { since: tokio::time::Instant::now() };
        self.published.reloads.fetch_add(1, Ordering::Relaxed);
        self.shared.metrics.restarts.inc();
        let (to, loaded) = oneshot::channel();
        self.shared.reload(Reload { lane: Arc::clone(&self.lane), to });
        // Only the last one asked for counts: an earlier image may lack what was granted since.
        self.loads += 1;
        let asked = self.loads;
        ctx.spawn(loaded.into_actor(self).map(move |loaded, act, ctx| {
            if let Ok(loaded) = loaded
                && act.loads == asked
            {
                act.loaded(loaded, ctx);
            }
        }));
        self.wake(ctx, None, true);
    }

    /// Asks to be woken when something is due, and soon if what it publishes changed.
    fn wake(&self, ctx: &Context<Self>, due_in_ms: Option<u64>, dirty: bool) {
        self.shared.timers_of(self.id()).register(self.id(), &ctx.address(), due_in_ms, dirty);
    }

    fn refuse_deferred(&mut self, fault: &Fault) {
        for deferred in self.deferred.drain(..) {
            match deferred {
                Deferred::Work(work) => refuse(work, fault),
                Deferred::Hold(hold) => drop(hold.granted.send(Err(Box::new(fault.clone())))),
            }
        }
    }

    fn run_deferred(&mut self, ctx: &mut Context<Self>) {
        while matches!(self.phase, Phase::Serving | Phase::Gone)
            && let Some(next) = self.deferred.pop_front()
        {
            let gone = matches!(self.phase, Phase::Gone);
            match next {
                Deferred::Work(work) if gone => self.refuse_as_gone(work, ctx),
                Deferred::Work(work) => self.work(work, ctx),
                Deferred::Hold(hold) if gone => {
                    drop(hold.granted.send(Err(Refusal::not_found(Missing::Network, self.id()).into())));
                }
                Deferred::Hold(hold) => self.hold(hold, ctx),
            }
        }
    }

    /// It is no more, as far as this memory knows. That is told as everything else is: behind what makes it durable.
    fn refuse_as_gone(&mut self, mut work: Work, ctx: &mut Context<Self>) {
        if !self.stands() {
            self.deferred.push_back(Deferred::Work(work));
            return self.reload(ctx);
        }
        let mut unit = Draft::new(Some(work.outlet.clone()), work.items.len());
        for item in work.items.drain(..) {
            unit.answer(item.ticket, Err(Refusal::not_found(Missing::Network, self.id()).into()), false);
        }
        self.send(unit);
    }

    fn hold(&mut self, hold: Hold, ctx: &mut Context<Self>) {
        if !self.stands() {
            self.deferred.push_back(Deferred::Hold(hold));
            return self.reload(ctx);
        }
        // What is decided under the hold sees nothing that is over.
        let moment = self.moment();
        let mut unit = Draft::new(None, 1);
        self.run_due(&mut unit, moment, ctx);
        self.send(unit);
        if !matches!(self.phase, Phase::Serving) {
            self.deferred.push_back(Deferred::Hold(hold));
            if matches!(self.phase, Phase::Gone) {
                self.run_deferred(ctx);
            }
            return self.after(ctx);
        }
        let Hold { hold, granted } = hold;
        if granted.send(Ok(())).is_ok() {
            self.phase = Phase::Held { hold, steps: Vec::new(), claimed: Claimed::default() };
        }
    }

    fn decide_held(&mut self, message: &DecideHeld) -> Result<(Part, Outcome), Box<Fault>> {
        if !self.stands() {
            let problem = "the network is being loaded again after a commit in doubt".to_owned();
            return Err(Box::new(Fault::Unavailable { applied: Applied::No, problem }));
        }
        let item = &message.item;
        let health = self.shared.store.health();
        if health != StoreHealth::Ready && (health == StoreHealth::Failed || !item.command.lets_go()) {
            return Err(Box::new(refused_by_store(health, &*self.shared.store)));
        }
        let moment = self.moment();
        let transaction = Some(message.transaction);
        let Ok(decided) = self.decide_and_claim(&item.command, moment, transaction, false) else {
            let mut unit = Draft::new(None, 1);
            self.panicked(&mut unit, Some(0));
            return Err(unit.answers.pop().and_then(|staged| staged.reply.answer.err()).unwrap_or_else(|| {
                Box::new(self.fault_of_stop()) // `panicked` always answers.
            }));
        };
        let (Decision { steps, mut outcome }, claims) = decided?;
        if !item.dry_run {
            // Should it come to nothing, whoever was heard of is missed for the first time again: late, not early.
            self.hear_of_claimants(&item.command, &mut outcome, moment.now);
        }
        self.offer(&steps, transaction);
        let act = Act {
            network: self.id(),
            wall: moment.wall,
            by: item.by.clone(),
            reason: item.reason.clone(),
            transaction,
            steps: steps.clone(),
        };
        if let Phase::Held { steps: held, claimed, .. } = &mut self.phase {
            (*held, *claimed) = (steps, claims);
        }
        let acts = if act.steps.is_empty() { Vec::new() } else { vec![act] };
        Ok((Part::new(Arc::clone(&self.lane), self.incarnation, acts), outcome))
    }
}

impl Actor for NetworkActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // Twice the permits: control messages find room even where requests fill theirs.
        ctx.set_mailbox_capacity(NETWORK_QUEUE_REQUESTS_MAX * 2);
        self.after(ctx);
    }
}

impl Handler<Work> for NetworkActor {
    type Result = ();
    fn handle(&mut self, work: Work, ctx: &mut Context<Self>) {
        if let (Some(hook), Some(first)) = (&self.shared.hooks.before_work, work.items.first()) {
            hook(&first.command);
        }
        match self.phase {
            Phase::Serving if self.deferred.is_empty() => {
                self.turn += work.items.len();
                self.work(work, ctx);
                if self.turn >= TURN_REQUESTS_MAX {
                    // A full mailbox would keep the thread from the other networks and connections.
                    self.turn = 0;
                    ctx.wait(tokio::task::yield_now().into_actor(self));
                }
            }
            Phase::Serving | Phase::Held { .. } | Phase::Loading { .. } => {
                self.deferred.push_back(Deferred::Work(work));
            }
            Phase::Stopped => refuse(work, &self.fault_of_stop()),
            Phase::Gone => self.refuse_as_gone(work, ctx),
        }
    }
}

impl Handler<Hold> for NetworkActor {
    type Result = ();
    fn handle(&mut self, hold: Hold, ctx: &mut Context<Self>) {
        match self.phase {
            Phase::Serving if self.deferred.is_empty() => self.hold(hold, ctx),
            Phase::Serving | Phase::Held { .. } | Phase::Loading { .. } => {
                self.deferred.push_back(Deferred::Hold(hold));
            }
            Phase::Stopped => drop(hold.granted.send(Err(Box::new(self.fault_of_stop())))),
            Phase::Gone if self.stands() => {
                let refusal = Refusal::not_found(Missing::Network, self.id());
                drop(hold.granted.send(Err(refusal.into())));
            }
            Phase::Gone => {
                self.deferred.push_back(Deferred::Hold(hold));
                self.reload(ctx);
            }
        }
    }
}

impl Handler<DecideHeld> for NetworkActor {
    type Result = ();
    fn handle(&mut self, message: DecideHeld, ctx: &mut Context<Self>) {
        let answer = match &self.phase {
            Phase::Held { hold, .. } if *hold == message.hold => self.decide_held(&message),
            Phase::Held { .. } | Phase::Serving | Phase::Loading { .. } | Phase::Stopped | Phase::Gone => {
                let problem = "the network was given up while it was held".to_owned();
                Err(Box::new(Fault::Unavailable { applied: Applied::No, problem }))
            }
        };
        // A coordinator that is gone ends its holds by itself.
        let _ = message.decided.send(answer);
        if !matches!(self.phase, Phase::Held { .. }) {
            self.after(ctx);
        }
    }
}

impl Handler<Finish> for NetworkActor {
    type Result = ();
    fn handle(&mut self, finish: Finish, ctx: &mut Context<Self>) {
        let (steps, claimed) = match &mut self.phase {
            Phase::Held { hold, steps, claimed } if *hold == finish.hold => {
                (std::mem::take(steps), std::mem::take(claimed))
            }
            Phase::Held { .. } | Phase::Serving | Phase::Loading { .. } | Phase::Stopped | Phase::Gone => {
                // A panic under the hold gave it up: what was waiting is served again once the network is loaded.
                return;
            }
        };
        self.phase = Phase::Serving;
        if finish.apply {
            // The joint unit counts for each of its networks, whether it changes them or not.
            self.enqueued += 1;
            let now = self.shared.shard_time(self.lane.shard);
            if self.apply(&steps, now, self.enqueued).is_err() {
                self.panicked(&mut Draft::new(None, 1), None);
            }
        } else {
            self.unclaim(claimed);
            self.offer(&steps, None);
        }
        self.after(ctx);
        self.run_deferred(ctx);
    }
}

impl Handler<Retire> for NetworkActor {
    type Result = ();
    fn handle(&mut self, _: Retire, ctx: &mut Context<Self>) {
        let problem = "this node does not own the network any more; ask again".to_owned();
        self.refuse_deferred(&Fault::Unavailable { applied: Applied::No, problem });
        ctx.stop();
    }
}

impl Handler<Tick> for NetworkActor {
    type Result = ();
    fn handle(&mut self, _: Tick, ctx: &mut Context<Self>) {
        match self.phase {
            Phase::Serving => {
                if !self.stands() {
                    return self.reload(ctx);
                }
                let moment = self.moment();
                let mut unit = Draft::new(None, 1);
                self.run_due(&mut unit, moment, ctx);
                self.send(unit);
                if matches!(self.phase, Phase::Serving) {
                    self.published.publish_figures(&self.network);
                    if self.lane.settled.load(Ordering::Acquire) == self.enqueued {
                        // Only what is durable: a release in doubt may turn out not to have happened.
                        self.publish_scopes();
                    }
                    let due_in_ms = self.network.next_due().map(|due| due.0.saturating_sub(moment.now.0));
                    self.lane.awaits.store(due_in_ms.is_some(), Ordering::Relaxed);
                    self.wake(ctx, due_in_ms, false);
                } else {
                    self.after(ctx);
                }
            }
            Phase::Loading { since } => {
                if since.elapsed() > Duration::from_millis(DEFERRED_MS_MAX) {
                    self.refuse_deferred(&Fault::NotReady { reason: NotReadyReason::Loading, retry_after_ms: 500 });
                }
                self.wake(ctx, None, true);
            }
            Phase::Gone => {
                if self.lane.settled.load(Ordering::Acquire) == self.enqueued {
                    if self.stands() {
                        self.shared.gone(Gone { id: self.id() });
                    } else {
                        self.reload(ctx);
                    }
                } else {
                    self.wake(ctx, None, true);
                }
            }
            Phase::Held { .. } => self.wake(ctx, None, true),
            Phase::Stopped => {}
        }
    }
}

impl NetworkActor {
    fn loaded(&mut self, loaded: Loaded, ctx: &mut Context<Self>) {
        let Loaded { image, floor, incarnation } = loaded;
        if !matches!(self.phase, Phase::Loading { .. }) {
            return;
        }
        let Some(image) = image else {
            // It was never made durable, or its deletion was.
            (self.phase, self.incarnation) = (Phase::Gone, incarnation);
            self.run_deferred(ctx);
            self.shared.gone(Gone { id: self.id() });
            return;
        };
        let now = self.shared.shard_time(self.lane.shard);
        match Network::load(image.config, image.subnets, image.entries, floor, now) {
            Ok(network) => {
                self.network = network;
                self.misses.clear();
                self.incarnation = incarnation;
                self.phase = Phase::Serving;
                self.publish_scopes();
                self.macs_reloaded();
                self.shared.reloaded(self.network.config(), self.network.subnets());
                tracing::info!(network = %self.id(), incarnation, "loaded again from the store");
            }
            Err(problem) => {
                tracing::error!(network = %self.id(), name = %self.network.config().name, problem, "what the store has of it cannot be loaded");
                self.phase = Phase::Stopped;
            }
        }
        self.after(ctx);
        self.run_deferred(ctx);
    }
}
