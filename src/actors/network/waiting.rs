//! Requests that wait for capacity of one network: how they begin to wait, get their turn, and end.
//!
//! ```text
//! decided: no capacity ──▶ waiting ──something it fits came free──▶ granted, or refused for another reason
//!                             ├──its time is over──▶ not_enough_capacity, with waited_ms
//!                             ├──everything of its owner is released──▶ not_enough_capacity, saying so
//!                             ├──nobody waits for it any more, or the server stops──▶ not_ready; nothing was begun
//!                             ├──the register is given away──▶ not_ready; its session asks the next owner
//!                             └──the tenure is over, the network stopped or gone──▶ the answer to every request then
//! ```
//!
//! **Order.** Whatever frees something is followed at once by serving the waiters, before anything else is decided here: so
//! newcomers find only what fits no waiter. Serving is bounded by turn; while it is unfinished everything else is deferred
//! (`behind`), and between two turns the other networks and connections of the thread have theirs. The answer of a served
//! waiter leaves after what freed the address: each has a unit of its own, and units are committed in order.
//!
//! This file handles the waiters; `queue` decides whose turn it is.
//!
//! Review notes: is every waiter answered in every path? Does a new path that applies steps end with serving the waiters?

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use compact_str::CompactString;
use tokio::time::Instant;

use super::messages::{GiveAway, GiveUp, ServeWaiters, Several};
use super::pace::{PERHAPS_LONG, Pace};
use super::queue::Waiter;
use super::staging::Staging;
use super::uses::Claims;
use super::{NetworkActor, Phase};
use crate::actors::reserve::refused_by_store;
use crate::actors::waits::{Arrival, WaitingPlace, WaitsFor, full};
use crate::actors::{BeganToWait, Fault, Item, NotReadyReason, Outlet, Told, answer_all};
use crate::core::command::Command;
use crate::core::network::Network;
use crate::core::outcome::Decision;
use crate::core::refusal::{NoCapacity, Refusal};
use crate::core::types::NetworkId;
use crate::limits::NETWORK_WAITING_REQUESTS_MAX;
use crate::store::StoreHealth;

/// The outcome of a decision behind the wall that catches panics.
type Decided = Result<Result<(Decision, Claims), Box<Fault>>, ()>;

/// Waiters that are decided before the other networks and connections of the thread have their turn; fewer if they take long.
const TRIES_A_TURN: usize = 64;
/// When to come again if the server stops or the network moves.
const RETRY_AFTER_MS: u64 = 200;

/// The origin of a request in the queue.
#[derive(Debug)]
pub(super) enum Asker {
    /// A client's request for this network alone.
    One(One),
    /// A waiter over several networks: the coordinator has the request.
    Several(SeveralEntry),
}

/// The entry of a waiter over several networks. If it is dropped, the coordinator checks the state itself.
#[derive(Debug)]
pub(super) struct SeveralEntry(pub(super) Several);

impl Drop for SeveralEntry {
    fn drop(&mut self) {
        self.0.state.wake();
    }
}

/// Ends a task that is no longer needed.
#[derive(Debug)]
struct TaskGuard(tokio::task::JoinHandle<()>);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A client's request.
#[derive(Debug)]
pub(super) struct One {
    ticket: u32,
    /// Where its answer goes; taken when it is answered.
    outlet: Option<Outlet>,
    by: CompactString,
    reason: Option<CompactString>,
    place: WaitingPlace,
    /// Reports when its client leaves.
    _watch: TaskGuard,
}

impl One {
    /// Answers without the store: nothing of the request was begun.
    fn tell(mut self, fault: &Fault) {
        self.end(fault);
    }

    fn end(&mut self, fault: &Fault) {
        if let Some(outlet) = self.outlet.take() {
            answer_all(&outlet, [self.ticket].into_iter(), fault);
        }
    }
}

impl Drop for One {
    /// Answers the waiter, whatever happens to the actor.
    fn drop(&mut self) {
        self.end(&Fault::NotReady { reason: NotReadyReason::Restarting, retry_after_ms: RETRY_AFTER_MS });
    }
}

impl NetworkActor {
    /// Lets a request wait that found no capacity and may wait for some.
    pub(super) fn begin_to_wait(&mut self, item: Item, unit: &mut Staging, ctx: &Context<Self>) {
        let Item { ticket, command, by, reason, wait, .. } = item;
        let of = waits_for(&command, self.id());
        let (Some(wait), Some(outlet), Some(of)) = (wait, unit.outlet.clone(), of) else { return };
        if wait.caller.has_left() {
            let fault = Fault::NotReady { reason: NotReadyReason::Stopping, retry_after_ms: RETRY_AFTER_MS };
            return unit.answer(ticket, Err(Box::new(fault)), false);
        }
        // A closed outlet is a client that hung up: the network is about to be told so.
        let begins = || drop(outlet.send(Told::Waits(vec![BeganToWait { ticket, networks: vec![self.id()] }])));
        if self.shared.gives_away() {
            // The request goes on waiting at the next owner of the register.
            begins();
            return unit.answer(ticket, Err(Box::new(moved())), false);
        }
        let now = self.shared.clock.boot_ms();
        let place = if self.waiting.len() < NETWORK_WAITING_REQUESTS_MAX {
            self.shared.waits.place(&wait, now, of)
        } else {
            Err(full(&format!("{NETWORK_WAITING_REQUESTS_MAX} requests already wait for this network")))
        };
        let place = match place {
            Ok(place) => place,
            Err(fault) => return unit.answer(ticket, Err(fault), false),
        };
        let (arrival, caller, addr) = (place.arrival, Arc::clone(&wait.caller), ctx.address());
        let ended = place.end();
        let watch = actix::spawn(async move {
            tokio::select! {
                () = caller.left() => {}
                () = ended.cancelled() => {}
            }
            // A full mailbox belongs to a busy actor; an actor whose mailbox is closed has answered everyone that waited.
            while let Err(SendError::Full(_)) = addr.try_send(GiveUp { arrival }) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        begins();
        let one = One { ticket, outlet: Some(outlet), by, reason, place, _watch: TaskGuard(watch) };
        let waiter = Waiter { command, until_ms: Some(now.saturating_add(wait.ms)), of: Asker::One(one) };
        self.waiting.add(&self.network, arrival, waiter);
    }

    /// Serves the waiters if something became free: after what freed it. False: nothing else may be decided until serving
    /// continues.
    pub(super) fn serve_waiters_behind(&mut self, unit: &mut Staging, ctx: &mut Context<Self>) -> bool {
        if self.waiting.is_open() && !self.behind && matches!(self.phase, Phase::Serving) {
            let next = Staging::new(unit.outlet.clone(), 1);
            self.send(std::mem::replace(unit, next));
            self.serve_waiters(ctx);
        }
        !self.behind && (self.looks_at_requests() || matches!(self.phase, Phase::Gone))
    }

    fn serve_waiters(&mut self, ctx: &mut Context<Self>) {
        // While the store takes nothing new from newcomers it takes nothing for waiters: they go on waiting, and are tried
        // again.
        if self.shared.store.health() != StoreHealth::Ready || !self.stands() {
            return;
        }
        if self.network.config().purged {
            return self.refuse_waiters_as_gone();
        }
        let (mut tries, mut pace) = (0, Pace::new(Instant::now()));
        while matches!(self.phase, Phase::Serving)
            && let Some(arrival) = self.waiting.next(&self.network)
        {
            if tries == TRIES_A_TURN || (tries > 0 && pace.is_enough_after(PERHAPS_LONG, Instant::now)) {
                return self.rest(ctx);
            }
            tries += 1;
            self.have_turn(arrival, false);
        }
    }

    /// Gives one waiter its turn, or its last one.
    fn have_turn(&mut self, arrival: Arrival, is_last: bool) {
        let Some(waiter) = self.waiting.get(arrival) else { return };
        let (command, one) = match &waiter.of {
            Asker::One(one) => (waiter.command.clone(), one),
            Asker::Several(several) => {
                let several = several.0.clone();
                // If another network is known to have no room for it, only note that there may be some here, and decide
                // nothing: with many waiters, deciding for all of them would take long and lead to nothing. Noted first: of
                // two networks, one sees the other's note.
                if !several.state.note_room(several.index, true) && !self.waiting.is_singled_out(arrival) {
                    return self.waiting.failed(arrival);
                }
                let command = waiter.command.clone();
                if !self.offer_turn(arrival, &several, &command) {
                    self.waiting.failed(arrival);
                }
                return;
            }
        };
        let ticket = one.ticket;
        let mut unit = Staging::new(one.outlet.clone(), 1);
        let moment = self.moment();
        let mut decided = self.decide_and_claim(&command, moment, None, false);
        let is_ended = self.is_ended(arrival, &mut decided);
        match decided {
            Ok(Ok((Decision { steps, mut outcome }, _))) => {
                let Some((by, reason, _)) = self.leaves(arrival) else { return };
                // From here on the unit answers it, whatever happens.
                unit.begin(ticket);
                self.hear_of_claimants(&command, &mut outcome, moment.now);
                let wrote = !steps.is_empty();
                if wrote {
                    if self.apply(&steps, moment.now, self.enqueued + 1).is_err() {
                        self.panicked(&mut unit, Some(ticket));
                        return self.send(unit);
                    }
                    unit.change(self.id(), moment, by, reason, steps);
                } else {
                    self.undecide();
                }
                unit.answer(ticket, Ok(outcome), wrote);
            }
            // An operator has to decide about an address that two claim: a request that waited before goes on waiting.
            Ok(Err(fault))
                if (fault.is_no_capacity() || matches!(*fault, Fault::Contested { .. })) && !is_last && !is_ended =>
            {
                self.undecide();
                return self.waiting.failed(arrival);
            }
            Ok(Err(fault)) => {
                self.undecide();
                let Some((_, _, waited_ms)) = self.leaves(arrival) else { return };
                self.published.refusals.note_answer(&fault);
                let told = if is_ended { fault.after_end_of_wait(waited_ms) } else { fault.after_waiting(waited_ms) };
                unit.answer(ticket, Err(told), false);
            }
            Err(()) => {
                drop(self.leaves(arrival));
                self.panicked(&mut unit, Some(ticket));
            }
        }
        self.send(unit);
    }

    /// Was everything of its owner released while it waited? Then nothing is granted to it, whatever was decided.
    ///
    /// The scope is published first: a job that releases it either ends this wait, or finds the grant.
    fn is_ended(&mut self, arrival: Arrival, decided: &mut Decided) -> bool {
        if let Ok(Ok((decision, _))) = decided {
            self.note_scopes(&decision.steps);
        }
        let is_ended = |waiter: &Waiter<Asker>| matches!(&waiter.of, Asker::One(one) if one.place.is_ended());
        if !self.waiting.get(arrival).is_some_and(is_ended) {
            return false;
        }
        let lacked = matches!(decided, Ok(Err(fault)) if fault.is_no_capacity());
        if !lacked && decided.is_ok() {
            let none = Refusal::NotEnoughCapacity(Box::new(NoCapacity::plain(self.network.config().name.clone())));
            if let Ok(Ok((_, claimed))) = std::mem::replace(decided, Ok(Err(none.into()))) {
                self.unclaim(claimed.macs);
            }
        }
        true
    }

    /// Takes out a request whose answer is on its way. Returns who asked, why, and how long it waited.
    fn leaves(&mut self, arrival: Arrival) -> Option<(CompactString, Option<CompactString>, u64)> {
        let Asker::One(mut one) = self.waiting.remove(arrival)?.of else { return None };
        one.outlet = None;
        Some((one.by.clone(), one.reason.take(), one.place.waited_ms(self.shared.clock.boot_ms())))
    }

    /// Ends the requests whose time is over. They have a last turn, so that their answer tells how things are now. If others
    /// that came first still have to be served, these end after them.
    pub(super) fn end_waits(&mut self, ctx: &mut Context<Self>) {
        if self.behind && self.waiting.is_open() {
            return;
        }
        let health = self.shared.store.health();
        if health != StoreHealth::Ready {
            return self.end_waits_unasked(&refused_by_store(health, &*self.shared.store));
        }
        let now = self.shared.clock.boot_ms();
        let mut pace = Pace::new(Instant::now());
        for _ in 0..TRIES_A_TURN {
            if !matches!(self.phase, Phase::Serving) {
                return;
            }
            let Some(arrival) = self.waiting.over(now) else { return };
            self.have_turn(arrival, true);
            if pace.is_enough_after(PERHAPS_LONG, Instant::now) {
                break;
            }
        }
        self.tick_again(ctx);
    }

    /// Ends the requests whose time is over while the network cannot be asked: they are told so, and wait no longer than they
    /// asked to.
    pub(super) fn end_waits_unasked(&mut self, fault: &Fault) {
        let now = self.shared.clock.boot_ms();
        while let Some(arrival) = self.waiting.over(now) {
            self.give_up(arrival, fault);
        }
    }

    fn give_up(&mut self, arrival: Arrival, fault: &Fault) {
        match self.waiting.remove(arrival).map(|waiter| waiter.of) {
            Some(Asker::One(one)) => one.tell(fault),
            // Dropping the entry tells its coordinator, which checks the state itself.
            Some(Asker::Several(_)) | None => {}
        }
    }

    /// Ends all requests that wait.
    pub(super) fn refuse_waiters(&mut self, fault: &Fault) {
        for arrival in self.waiting.arrivals() {
            self.give_up(arrival, fault);
        }
    }

    /// Ends all requests that wait for a network that is gone. Like every answer, theirs leave after what makes that durable.
    pub(super) fn refuse_waiters_as_gone(&mut self) {
        for arrival in self.waiting.arrivals() {
            match self.waiting.remove(arrival).map(|waiter| waiter.of) {
                Some(Asker::One(mut one)) => {
                    let mut unit = Staging::new(one.outlet.take(), 1);
                    unit.answer(one.ticket, Err(self.gone().into()), false);
                    self.send(unit);
                }
                Some(Asker::Several(_)) | None => {}
            }
        }
    }

    /// In how many milliseconds the time of the next request is over.
    pub(super) fn wait_ends_in_ms(&self) -> Option<u64> {
        self.waiting.next_end_ms().map(|end| end.saturating_sub(self.shared.clock.boot_ms()))
    }

    /// Publishes how many requests wait, and which came first.
    pub(super) fn tell_waiting(&self) {
        self.published.note_waiting(self.waiting.len(), self.waiting.first());
    }
}

/// Finds for whom a request waits.
fn waits_for(command: &Command, network: NetworkId) -> Option<WaitsFor> {
    let slot = Network::slots_of(command).into_iter().next()?;
    Some(WaitsFor { scope: slot.scope, owner: slot.owner, networks: vec![network] })
}

/// The refusal that sends a client to the next owner.
fn moved() -> Fault {
    Fault::NotReady { reason: NotReadyReason::Moved, retry_after_ms: RETRY_AFTER_MS }
}

impl Handler<GiveAway> for NetworkActor {
    type Result = ();
    fn handle(&mut self, _: GiveAway, _: &mut Context<Self>) {
        self.refuse_waiters(&moved());
        self.tell_waiting();
    }
}

impl Handler<GiveUp> for NetworkActor {
    type Result = ();
    fn handle(&mut self, GiveUp { arrival }: GiveUp, ctx: &mut Context<Self>) {
        let is_there = |one: &One| one.place.is_ended() && !one.place.caller.has_left();
        if matches!(self.waiting.get(arrival), Some(Waiter { of: Asker::One(one), .. }) if is_there(one)) {
            // The client is told why, as soon as this network can be asked.
            self.waiting.single_out(arrival);
            return if matches!(self.phase, Phase::Serving) && !self.behind {
                self.turn += 1;
                self.go_on(ctx);
                self.let_others_on(ctx);
            };
        }
        let fault = Fault::NotReady { reason: NotReadyReason::Stopping, retry_after_ms: RETRY_AFTER_MS };
        self.give_up(arrival, &fault);
        self.tell_waiting();
    }
}

impl Handler<ServeWaiters> for NetworkActor {
    type Result = ();
    fn handle(&mut self, _: ServeWaiters, ctx: &mut Context<Self>) {
        self.behind = false;
        if self.looks_at_requests() || matches!(self.phase, Phase::Gone) {
            self.go_on(ctx);
        }
    }
}
