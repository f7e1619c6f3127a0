//! One actor per network: decides, applies, and hands what changed to the committer.
//!
//! Life of an `ip.allocate`, step 3 of 8 (see [`crate`]). Before: `server::session`. After: `core::network`, then
//! `committer`.
//!
//! ```text
//!            ┌──Hold──▶ Held ──Finish──┐
//! Serving ◀──┴─────────────────────────┘
//!   │  ▲  └──▶ Turn: the turn of a waiter over several networks, see `holding`
//!   │  └──────Loaded────── Loading ◀── its incarnation was given up (commit in doubt), or a panic
//!   └──3 panics in a minute, or memory differs from the store──▶ Stopped ◀──the store's data does not load── Loading
//!                       if memory differs, it still answers reads, from memory
//!
//! Serving ──the network is gone──▶ Gone
//! ```
//!
//! Owns the only `Network` of its id in memory. A message is everything that one socket read brought for this network;
//! requests in it that take long continue in a later turn, before anything that came later. Nothing is awaited between decide
//! and apply; requests that arrive while the network is held or loading wait, in order, bounded by the network's permits and
//! by [`DEFERRED_MS_MAX`].
//!
//! **The reply barrier** (invariant I-7) is stated here and kept by `committer`: an answer leaves directly only if its unit
//! changes nothing, everything that the network ever enqueued is settled, its incarnation still stands, and the store's
//! ownership is standing. Every other answer, refusals and reads included, travels with a unit that is committed after what it
//! saw.
//!
//! | file | does |
//! | --- | --- |
//! | `working` | processes requests, one after the other, and sends the results |
//! | `deciding`, `staging` | decides and applies behind a wall that catches panics; collects what one turn produces |
//! | `pace` | when the others of its thread have their turn |
//! | `waiting`, `queue` | requests that wait for capacity, and whose turn it is |
//! | `holding` | its part in what several networks decide together |
//! | `listing` | lists that take several turns |
//! | `sweeping`, `uses` | first misses of sweeps; MACs and recorded addresses, which are unique in the realm |
//! | `comparing` | its part in the self-check |
//! | `messages`, `end`, `recall` | its messages; its end; what of it is durable, if the store cannot tell |
//!
//! This file has the actor itself, and how it is loaded, woken and retired.
//!
//! Review notes: what if the actor is held, loading or stopped when a new message comes? Is `settled` read before
//! `incarnation`? What happens when the client hung up (nothing: its outlet is closed, and a waiting request is given up)?

mod comparing;
mod deciding;
mod end;
mod holding;
mod listing;
mod messages;
mod pace;
mod queue;
mod recall;
mod staging;
mod sweeping;
mod uses;
mod waiting;
mod working;

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::prelude::*;
use hashbrown::HashSet;
use tokio::sync::oneshot;

pub use self::comparing::{Compare, Seen, StopAsOdd};
use self::listing::{FORGOTTEN_MAX, LISTS_LOOKED_AT_EVERY_MS};
use self::messages::ServeWaiters;
pub use self::messages::{
    DecideHeld, Finish, GiveAway, Hold, HoldId, HoldRefused, ListOn, Loaded, PurgeOn, Retire, Rooms, Several, Tick,
    Unlist, Waiting, Work, refuse,
};
use self::pace::TURN_REQUESTS_MAX;
use self::queue::WaitQueue;
pub use self::recall::Recall;
use self::staging::{Staging, loading};
use self::sweeping::Misses;
use self::waiting::Asker;
use super::clock::{Draws, Moment};
use super::committer::Reload;
use super::directory::Gone;
use super::macs::ClaimedMacs;
use super::published::Published;
use super::routes::{Lane, NOTHING_ENDS};
use super::service::Shared;
use super::waits::Arrival;
use super::{Applied, Fault, NotReadyReason, StopReason};
use crate::core::command;
use crate::core::network::{Misfit, Network, WayBack};
use crate::core::state::Step;
use crate::core::types::{Generation, NetworkId, Scope};
use crate::limits::NETWORK_QUEUE_REQUESTS_MAX;

/// How long a request waits for a network that is being loaded before it is refused.
pub const DEFERRED_MS_MAX: u64 = 2_000;
/// Capacity of the actor's mailbox: twice the permits, so that control messages find room even if requests fill theirs.
pub const MAILBOX_MESSAGES: usize = NETWORK_QUEUE_REQUESTS_MAX * 2;
/// This many panics within [`PANIC_WINDOW`] stop a network.
const PANICS_MAX: usize = 3;
const PANIC_WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum Phase {
    Serving,
    Held {
        hold: HoldId,
        steps: Vec<Step>,
        claimed: ClaimedMacs,
    },
    /// A waiter over several networks has its turn. `behind`: coordinators that want to hold this network, each woken when the
    /// turn is over.
    Turn {
        arrival: Arrival,
        since: tokio::time::Instant,
        behind: Vec<oneshot::Sender<()>>,
    },
    /// `behind`: coordinators that want to hold this network, and already hold others; each is woken when loading ends.
    Loading {
        since: tokio::time::Instant,
        behind: Vec<oneshot::Sender<()>>,
    },
    Stopped(StopReason),
    Gone,
}

/// Scopes that held nothing any more when something was still under way.
#[derive(Debug)]
struct ScopesLeft {
    /// The last unit then.
    unit: u64,
    /// Without those that were granted something since.
    scopes: HashSet<Scope>,
}

/// Has it been loading for longer than any request waits for it?
fn is_long(shared: &Shared, since: tokio::time::Instant) -> bool {
    since.elapsed() > shared.deferred_max()
}

#[derive(Debug)]
enum Deferred {
    Work(Work),
    Hold(Hold),
}

/// What the timers were asked for.
#[derive(Debug, Clone, Copy)]
struct TimersAsked {
    /// Boot time.
    due: Option<u64>,
    dirty: bool,
}

impl TimersAsked {
    /// Is everything that the other asks for asked for already? The two clocks behind a time may be read on either side of a
    /// millisecond.
    fn covers(self, other: Self) -> bool {
        let same = match (self.due, other.due) {
            (Some(due), Some(other)) => due.abs_diff(other) <= 1,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        same && (self.dirty || !other.dirty)
    }
}

/// What a `NetworkActor` is created from.
#[derive(Debug)]
pub struct Birth {
    /// The network as it is in memory.
    pub network: Network,
    /// Its durable line.
    pub lane: Arc<Lane>,
    /// Its figures.
    pub published: Arc<Published>,
    /// What the store has of it, if that cannot be loaded.
    pub misfit: Option<Arc<Misfit>>,
}

/// The actor of one network.
pub struct NetworkActor {
    shared: Arc<Shared>,
    network: Network,
    lane: Arc<Lane>,
    incarnation: u64,
    /// Units handed to the committer, over all incarnations; compared with the lane's `settled`.
    enqueued: u64,
    /// The last of them that changes something.
    changed: u64,
    published: Arc<Published>,
    phase: Phase,
    deferred: VecDeque<Deferred>,
    draws: Draws,
    /// Generations that were drawn for the last decision: the first, and how many.
    drawn: Cell<(Generation, u64)>,
    panics: VecDeque<tokio::time::Instant>,
    /// How often the actor asked to have the network loaded again.
    loads: u64,
    /// Scopes that were published. Looked up for each grant.
    scopes: HashSet<Scope>,
    /// The scope of the last grant, one of `scopes`.
    scope_noted: Option<Scope>,
    scopes_left: Option<ScopesLeft>,
    /// What the timers were asked for since the last tick.
    asked: Cell<Option<TimersAsked>>,
    /// Requests, or work that takes as long, since the other networks and connections of this thread had their turn.
    turn: usize,
    /// Claimants that a sweep missed.
    misses: Misses,
    /// Requests that wait for capacity.
    waiting: WaitQueue<Asker>,
    /// Work is left over until the others of its thread had their turn: first the waiters, then what was deferred. Everything
    /// else waits until then.
    behind: bool,
    /// Look for what is due again, once the others had their turn.
    ticks_again: bool,
    /// The actor has asked whether clients that want to renew are served now, and has no answer yet.
    proves: bool,
    /// The network was purged when it was loaded: the job that released its holdings may have ended half-way, so the actor
    /// continues by itself. It also does so if the job that purges gives up.
    left_over: bool,
    /// The way back from its memory to what of it is durable, for stores that can be emptied while the process goes on.
    back: WayBack,
    /// A step broke off half-way since the network was loaded.
    torn: bool,
    /// What the store has of it, while it is stopped because that cannot be loaded.
    misfit: Option<Arc<Misfit>>,
}

impl NetworkActor {
    /// Around a network that was loaded, or made; or that an actor left which died while it was stopped, as its figures say still.
    pub fn new(shared: Arc<Shared>, birth: Birth) -> Self {
        let Birth { network, lane, published, misfit } = birth;
        let draws = Draws::new(&*shared.clock);
        let incarnation = lane.incarnation.load(Ordering::Acquire);
        let scopes = network.scope_names().into_iter().collect();
        let misses = Misses::new(Arc::clone(&shared.sweeps));
        let left_over = network.config().purged;
        let phase = published.stopped().map_or(Phase::Serving, Phase::Stopped);
        // If an actor before it died, the network was read again by now.
        published.note_loading(false);
        Self {
            shared,
            network,
            lane,
            incarnation,
            enqueued: 0,
            changed: 0,
            published,
            phase,
            deferred: VecDeque::new(),
            draws,
            drawn: Cell::default(),
            panics: VecDeque::new(),
            loads: 0,
            scopes,
            scope_noted: None,
            scopes_left: None,
            asked: Cell::default(),
            turn: 0,
            misses,
            waiting: WaitQueue::default(),
            behind: false,
            ticks_again: false,
            proves: false,
            left_over,
            back: WayBack::default(),
            torn: false,
            misfit,
        }
    }

    fn id(&self) -> NetworkId {
        self.lane.id
    }

    /// The answer to requests once the network was stopped. It names the network as its users do.
    fn fault_of_stop(&self, why: StopReason) -> Fault {
        Fault::Stopped { network: self.network.config().name.clone(), why, next: None }
    }

    fn moment(&mut self) -> command::Context {
        let Moment { now, since, wall } = self.shared.shard_moment(self.lane.shard);
        self.network.goes_on_from(since);
        command::Context {
            now,
            wall,
            entropy: self.draws.draw(),
            mac_elsewhere: None,
            generations: Generation::default(),
        }
    }

    /// Does the actor process requests, one after the other? If the network is stopped, only those that read.
    fn looks_at_requests(&self) -> bool {
        match self.phase {
            Phase::Serving => true,
            Phase::Stopped(why) => why.shows_memory(),
            Phase::Held { .. } | Phase::Turn { .. } | Phase::Loading { .. } | Phase::Gone => false,
        }
    }

    /// Does everything that this memory was built from still hold? If not, the memory is worthless and is loaded again.
    fn stands(&self) -> bool {
        self.lane.incarnation.load(Ordering::Acquire) == self.incarnation
    }

    /// Ends every turn: timers, loading, figures.
    fn after(&mut self, ctx: &mut Context<Self>) {
        match self.phase {
            Phase::Serving => return self.wake_when_due(ctx, true),
            Phase::Loading { .. } => self.reload(ctx),
            Phase::Stopped(why) => {
                let fault = self.fault_of_stop(why);
                // Requests to a memory that is still shown are decided one by one.
                let kept = if why.shows_memory() { self.take_deferred_work() } else { VecDeque::new() };
                self.refuse_deferred(&fault);
                self.deferred = kept;
                self.refuse_waiters(&fault);
            }
            Phase::Gone => self.refuse_waiters_as_gone(),
            Phase::Held { .. } | Phase::Turn { .. } => {}
        }
        self.tell_waiting();
        self.look_again(ctx);
    }

    /// Asks to be woken for the next lease, cooldown or probation that ends, for the next waiter whose time is over, and for
    /// the end of what is kept for lists.
    fn wake_when_due(&self, ctx: &Context<Self>, dirty: bool) {
        self.tell_waiting();
        let due = self.next_due();
        self.lane.ends_next.store(due.map_or(NOTHING_ENDS, |due| due.0), Ordering::Relaxed);
        let now = || self.shared.shard_time(self.lane.shard).0;
        let due_in_ms = due.map(|due| (due.0 + self.shared.clock.cut_off_ms()).saturating_sub(now()));
        let lists = self.network.keeps_past().then_some(LISTS_LOOKED_AT_EVERY_MS);
        let next = due_in_ms.into_iter().chain(self.wait_ends_in_ms()).chain(lists).min();
        self.wake(ctx, next, dirty);
    }

    /// Rests after enough work: a full mailbox, or many deferred requests, would keep the thread from its other networks and
    /// connections.
    fn let_others_on(&mut self, ctx: &mut Context<Self>) {
        if self.turn >= TURN_REQUESTS_MAX {
            self.turn = 0;
            self.rest(ctx);
        }
    }

    /// Continues once the other networks and connections of the thread had their turn. If the actor only sent itself a
    /// message, it would receive it in the same poll. What arrived meanwhile is deferred first, so that holders of other
    /// networks go before it.
    fn rest(&mut self, ctx: &mut Context<Self>) {
        ctx.wait(tokio::task::yield_now().into_actor(self));
        if self.looks_at_requests() && !self.behind {
            self.behind = true;
            ctx.notify(ServeWaiters);
        }
    }

    /// Looks for what is due again, once the others had their turn.
    fn tick_again(&mut self, ctx: &mut Context<Self>) {
        if !self.ticks_again {
            self.ticks_again = true;
            ctx.wait(tokio::task::yield_now().into_actor(self));
            ctx.notify(Tick);
        }
    }

    /// Asks to be woken soon, to look again.
    fn look_again(&self, ctx: &Context<Self>) {
        self.wake(ctx, Some(0), true);
    }

    /// Asks the committer for the network as the store has it, after everything of it that is under way.
    fn reload(&mut self, ctx: &mut Context<Self>) {
        self.phase = Phase::Loading { since: tokio::time::Instant::now(), behind: Vec::new() };
        self.published.note_stopped(None);
        self.published.note_loading(true);
        self.hold_deferred_in_loading();
        self.published.reloads.fetch_add(1, Ordering::Relaxed);
        self.shared.metrics.restarts.inc();
        let (to, loaded) = oneshot::channel();
        self.shared.reload(Reload { lane: Arc::clone(&self.lane), to });
        // Only the latest request counts: an earlier image may lack what was granted since.
        self.loads += 1;
        let asked = self.loads;
        ctx.spawn(loaded.into_actor(self).map(move |loaded, act, ctx| {
            if let Ok(loaded) = loaded
                && act.loads == asked
            {
                act.loaded(loaded, ctx);
            }
        }));
        self.look_again(ctx);
    }

    /// Asks to be woken when something is due, and soon if the published figures changed.
    fn wake(&self, ctx: &Context<Self>, due_in_ms: Option<u64>, dirty: bool) {
        let asks = TimersAsked { due: due_in_ms.map(|ms| self.shared.clock.boot_ms().saturating_add(ms)), dirty };
        if !self.asked.get().is_some_and(|asked| asked.covers(asks)) {
            self.asked.set(Some(asks));
            self.shared.timers_of(&self.lane).register(self.id(), &ctx.address(), asks.due, asks.dirty);
        }
    }
}

impl Actor for NetworkActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.after(ctx);
    }
}

impl Handler<Work> for NetworkActor {
    type Result = ();
    fn handle(&mut self, work: Work, ctx: &mut Context<Self>) {
        if let (Some(hook), Some(first)) = (&self.shared.hooks.before_work, work.items.front()) {
            hook(&first.command);
        }
        match self.phase {
            _ if self.looks_at_requests() && self.deferred.is_empty() && !self.behind => {
                self.work(work, ctx);
                self.let_others_on(ctx);
            }
            Phase::Stopped(why) if !why.shows_memory() => refuse(work, &self.fault_of_stop(why)),
            Phase::Serving | Phase::Held { .. } | Phase::Turn { .. } | Phase::Loading { .. } | Phase::Stopped(_) => {
                self.deferred.push_back(Deferred::Work(work));
            }
            Phase::Gone => self.refuse_as_gone(work, ctx),
        }
    }
}

impl Handler<Retire> for NetworkActor {
    type Result = ();
    fn handle(&mut self, _: Retire, ctx: &mut Context<Self>) {
        let problem = "this node no longer owns the network; ask again".to_owned();
        self.refuse_deferred(&Fault::Unavailable { applied: Applied::No, problem });
        self.refuse_waiters(&Fault::NotReady { reason: NotReadyReason::Moved, retry_after_ms: 200 });
        self.forget();
        ctx.stop();
    }
}

impl Handler<Tick> for NetworkActor {
    type Result = ();
    fn handle(&mut self, _: Tick, ctx: &mut Context<Self>) {
        self.asked.set(None);
        self.ticks_again = false;
        match self.phase {
            Phase::Serving => {
                if !self.stands() {
                    return self.reload(ctx);
                }
                let moment = self.moment();
                let mut unit = Staging::new(None, 1);
                self.network.forget_past(FORGOTTEN_MAX);
                self.run_due(&mut unit, moment, ctx);
                self.serve_waiters_behind(&mut unit, ctx);
                self.send(unit);
                self.end_waits(ctx);
                if matches!(self.phase, Phase::Serving) {
                    self.published.publish_figures(&self.network, self.shared.clock.boot_ms());
                    // What is given up is settled, too, but this memory is worthless before it is.
                    if self.lane.settled.load(Ordering::Acquire) == self.enqueued && self.stands() {
                        self.publish_scopes();
                    } else {
                        self.forget_scopes();
                    }
                    if self.waiting.is_open() {
                        // What became free is not served while the store takes nothing.
                        self.tell_waiting();
                        self.look_again(ctx);
                    } else {
                        self.wake_when_due(ctx, false);
                    }
                } else {
                    self.after(ctx);
                }
            }
            Phase::Loading { since, ref mut behind } => {
                if is_long(&self.shared, since) {
                    behind.clear();
                    let fault = loading(self.shared.hindrance().as_deref());
                    self.refuse_deferred(&fault);
                    self.end_waits_unasked(&fault);
                }
                self.look_again(ctx);
            }
            Phase::Gone => {
                if self.lane.settled.load(Ordering::Acquire) == self.enqueued {
                    if self.stands() {
                        self.shared.gone(Gone { id: self.id() });
                    } else {
                        self.reload(ctx);
                    }
                } else {
                    self.look_again(ctx);
                }
            }
            Phase::Turn { arrival, since, .. } if is_long(&self.shared, since) => {
                self.shared.metrics.turns_missed.inc();
                tracing::warn!(network = %self.id(), arrival, "a request over several networks did not take its turn");
                self.end_turn(ctx);
            }
            Phase::Held { .. } | Phase::Turn { .. } => self.look_again(ctx),
            Phase::Stopped(_) => {}
        }
    }
}

impl NetworkActor {
    fn loaded(&mut self, loaded: Loaded, ctx: &mut Context<Self>) {
        let Loaded { image, deployment: _, floor, incarnation } = loaded;
        if !matches!(self.phase, Phase::Loading { .. }) {
            return;
        }
        self.published.note_loading(false);
        let Some(image) = image else {
            // Either the network never became durable, or its deletion did.
            (self.phase, self.incarnation) = (Phase::Gone, incarnation);
            self.uses_nothing();
            self.refuse_waiters_as_gone();
            self.run_deferred(ctx);
            self.shared.gone(Gone { id: self.id() });
            return;
        };
        let now = self.shared.shard_time(self.lane.shard);
        match Network::load(image.config, image.subnets, image.entries, floor, now) {
            Ok(network) => {
                self.left_over = network.config().purged;
                self.network = network;
                self.misfit = None;
                self.back.clear();
                self.torn = false;
                self.misses.clear();
                self.waiting.note_all();
                self.incarnation = incarnation;
                self.phase = Phase::Serving;
                self.publish_scopes();
                self.macs_reloaded();
                self.shared.reloaded(self.network.config(), self.network.subnets());
                tracing::info!(network = %self.id(), incarnation, "loaded again from the store");
            }
            Err(misfit) => {
                let problem = misfit.to_string();
                tracing::error!(network = %self.id(), name = %self.network.config().name, problem, "what the store has of it \
                 cannot be loaded");
                self.misfit = Some(misfit.into());
                self.phase = Phase::Stopped(StopReason::Unloadable);
                self.published.note_stopped(Some(StopReason::Unloadable));
            }
        }
        self.go_on(ctx);
    }
}
