//! A network's actor processing its requests: one after the other, what each leads to, and the only way out for the results.
//!
//! Before: `messages::Work`, everything that one socket read brought. After: `committer`, or directly the outlet if nothing
//! has to be committed first.
//!
//! Review notes: does a new reply path go through `send`? Is the rest of a message put back if a turn ends early?

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use actix::prelude::*;

use super::messages::{Work, refuse};
use super::pace::{PERHAPS_LONG, Pace, weight};
use super::staging::Staging;
use super::uses::Claims;
use super::{Deferred, NetworkActor, Phase};
use crate::actors::committer::{Enqueue, Unit, UnitPart};
use crate::actors::reserve::refused_by_store;
use crate::actors::{Fault, Item, Told, mac_holder};
use crate::core::command;
use crate::core::outcome::{Contested, Decision, Outcome};
use crate::core::refusal::{Missing, Refusal};
use crate::limits::{UNIT_BYTES_MAX, UNIT_CHANGES_MAX};
use crate::store::StoreHealth;

impl NetworkActor {
    /// Processes the requests of a message, or what is left of one. If they take long, the others of the thread have their
    /// turn ([`NetworkActor::let_others_on`] sees to that), and the rest continues after that.
    pub(super) fn work(&mut self, mut work: Work, ctx: &mut Context<Self>) {
        if let Phase::Stopped(why) = self.phase
            && !self.stands()
        {
            // Something of that memory is not durable, and the store does not have what was served.
            return refuse(work, &self.fault_of_stop(why));
        }
        if !self.stands() {
            self.deferred.push_front(Deferred::Work(work));
            return self.reload(ctx);
        }
        let there = work.items.len();
        let mut pace = Pace::new(tokio::time::Instant::now());
        if let Some(received) = work.received.take() {
            self.shared.metrics.queue_seconds.observe(received.elapsed().as_secs_f64());
        }
        let misnamed = work.by_name && work.route.name.as_ref() != Some(&self.network.config().name);
        let health = self.shared.store.health();
        let mut unit = Staging::new(Some(work.outlet.clone()), work.items.len());
        let moment = self.moment();
        self.run_due(&mut unit, moment, ctx);
        if work.items.len() > 1 && matches!(self.phase, Phase::Serving) {
            self.network.fetch_ahead(work.items.iter().map(|item| &item.command));
        }
        // Requests are taken one by one, so that the rest is answered whatever happens.
        while self.serve_waiters_behind(&mut unit, ctx)
            && let Some(item) = work.items.pop_front()
        {
            unit.begin(item.ticket);
            if matches!(self.phase, Phase::Gone) {
                unit.answer(item.ticket, Err(self.gone_for(&work).into()), false);
                continue;
            }
            if misnamed {
                let refusal = Refusal::not_found(Missing::Network, work.route.name.as_ref().map_or("", |n| n.as_str()));
                unit.answer(item.ticket, Err(refusal.into()), false);
                continue;
            }
            if let Phase::Stopped(why) = self.phase
                && !item.command.shows()
            {
                unit.answer(item.ticket, Err(Box::new(self.fault_of_stop(why))), false);
                continue;
            }
            if item.deadline.is_some_and(|deadline| deadline < Instant::now()) {
                unit.answer(item.ticket, Err(Box::new(Fault::too_late())), false);
                continue;
            }
            if health == StoreHealth::Failed {
                unit.answer(item.ticket, Err(Box::new(refused_by_store(health, &*self.shared.store))), false);
                continue;
            }
            let moment = command::Context { entropy: self.draws.draw(), ..moment };
            let Some(weight) = self.one(item, moment, &mut unit, ctx) else { break };
            if pace.is_enough_after(weight, tokio::time::Instant::now) {
                break;
            }
            if unit.changes >= UNIT_CHANGES_MAX || unit.bytes >= UNIT_BYTES_MAX {
                let next = Staging::new(Some(work.outlet.clone()), work.items.len());
                self.send(std::mem::replace(&mut unit, next));
            }
        }
        self.send(unit);
        self.turn += pace.requests(there - work.items.len());
        match self.phase {
            _ if work.items.is_empty() => {}
            // The network is loaded again, or waiters or the others of the thread come first.
            Phase::Stopped(why) if !why.shows_memory() => refuse(work, &self.fault_of_stop(why)),
            Phase::Loading { .. } | Phase::Serving | Phase::Held { .. } | Phase::Turn { .. } | Phase::Stopped(_) => {
                self.deferred.push_front(Deferred::Work(work));
            }
            Phase::Gone => self.refuse_as_gone(work, ctx),
        }
        self.after(ctx);
    }

    /// Decides one request and carries it out. Returns its weight; none: the decision panicked, and the turn is over.
    fn one(
        &mut self,
        mut item: Item,
        moment: command::Context,
        unit: &mut Staging,
        ctx: &Context<Self>,
    ) -> Option<usize> {
        self.still_missed(&mut item.command);
        let mut weight = weight(&item.command, self.network.config());
        match self.decide_and_claim(&item.command, moment, None, item.dry_run) {
            Ok(Ok((Decision { steps, mut outcome }, Claims { room, .. }))) => {
                tracing::trace!(network = %self.id(), ticket = item.ticket, steps = steps.len(), "decided");
                if !item.dry_run || item.command.is_read() {
                    self.hear_of_claimants(&item.command, &mut outcome, moment.now);
                }
                let wrote = !steps.is_empty() && !item.dry_run;
                if wrote {
                    if self.apply(&steps, moment.now, self.enqueued + 1).is_err() {
                        self.panicked(unit, Some(item.ticket));
                        return None;
                    }
                    self.tell_of_broken_promises(&steps);
                    if let Outcome::Accepted(accepted) = &outcome {
                        self.tell_given_up(accepted, &item);
                    }
                    unit.claimed.join(room);
                    unit.change(self.id(), moment, item.by, item.reason, steps);
                } else {
                    self.lists_on(&item.command, &mut outcome, moment);
                    self.undecide();
                }
                unit.answer(item.ticket, Ok(outcome), wrote);
            }
            Ok(Err(fault)) => {
                tracing::trace!(network = %self.id(), ticket = item.ticket, kind = ?fault, "refused");
                self.undecide();
                // The refusal may list what takes the space of all pools.
                weight = PERHAPS_LONG;
                if item.wait.is_some() && !item.dry_run && fault.is_no_capacity() {
                    self.begin_to_wait(item, unit, ctx);
                } else {
                    if !item.dry_run {
                        self.published.refusals.note_answer(&fault);
                    }
                    unit.answer(item.ticket, Err(fault), false);
                }
            }
            Err(()) if matches!(self.phase, Phase::Stopped(_)) => {
                // If the network were loaded again it would be what the store has: this way the rest of its memory can still
                // be read.
                let fault = self.note_panic("the network is stopped, and stays so");
                unit.answer(item.ticket, Err(fault), false);
            }
            Err(()) => {
                self.panicked(unit, Some(item.ticket));
                return None;
            }
        }
        Some(weight)
    }

    /// Logs addresses that their holders lost by an operator's decision: whoever asks for one later finds in the log who
    /// decided, and why.
    fn tell_given_up(&self, accepted: &[Contested], item: &Item) {
        for Contested { network, conflict, .. } in accepted {
            tracing::warn!(
                %network,
                address = %conflict.address,
                scope = %conflict.holder.scope,
                owner = %conflict.holder.owner,
                slot = %conflict.holder.slot,
                generation = conflict.generation.0,
                by = %item.by,
                reason = item.reason.as_deref(),
                "a late claim is given up: an operator accepts what is present"
            );
        }
    }

    /// Sends answers and changes; there is no other way out. An answer that is to name a holder in another network goes there
    /// after everything that it saw of this one.
    pub(super) fn send(&mut self, mut unit: Staging) {
        let unnamed = std::mem::take(&mut unit.unnamed);
        let outlet = unit.outlet.clone().filter(|_| !unnamed.is_empty());
        if unit.has_unnamed_that_wrote {
            unit.outlet = unit.outlet.take().map(|outlet| mac_holder::outlet(&self.shared, outlet));
        }
        self.send_staged(unit);
        if let Some(outlet) = outlet {
            let mut behind = Staging::new(Some(mac_holder::outlet(&self.shared, outlet)), 0);
            behind.answers = unnamed;
            self.send_staged(behind);
        }
    }

    /// Sends directly if nothing has to be committed first, otherwise through the committer.
    fn send_staged(&mut self, mut unit: Staging) {
        if unit.is_empty() {
            return;
        }
        if unit.changes > 0 && matches!(self.phase, Phase::Gone) {
            unit.outlet = self.after_the_end(&mut unit);
        }
        let nothing_pending = self.lane.settled.load(Ordering::Acquire) == self.enqueued && self.stands();
        if unit.changes == 0 && nothing_pending && self.shared.info.ownership_is_standing {
            if let Some(outlet) = &unit.outlet {
                let replies = std::mem::take(&mut unit.answers).into_iter().map(|staged| {
                    let mut reply = staged.reply;
                    if let Some(place) = reply.answer.as_mut().ok().and_then(Outcome::place) {
                        // Everything that this saw is durable, and whatever the network does next is committed after it.
                        *place = Some(Box::new(self.shared.feed.tip(self.lane.shard)));
                    }
                    reply
                });
                let replies = replies.collect();
                // A closed outlet is a client that hung up: nobody is left to tell.
                let _ = outlet.send(Told::Replies(replies));
            }
            return;
        }
        self.enqueued += 1;
        let part = UnitPart {
            lane: Arc::clone(&self.lane),
            incarnation: self.incarnation,
            changes: unit.changes,
            bytes: unit.bytes,
            acts: std::mem::take(&mut unit.acts),
            claimed: std::mem::take(&mut unit.claimed),
            tally: unit.tally,
        };
        let (outlet, answers) = (unit.outlet.take(), std::mem::take(&mut unit.answers));
        self.shared.enqueue(Enqueue(Unit::new(vec![part], outlet, answers)));
    }

    /// Takes out what was deferred, except for holds.
    pub(super) fn take_deferred_work(&mut self) -> VecDeque<Deferred> {
        let deferred = std::mem::take(&mut self.deferred).into_iter();
        let (works, holds) = deferred.partition(|deferred| matches!(deferred, Deferred::Work(_)));
        self.deferred = holds;
        works
    }

    pub(super) fn refuse_deferred(&mut self, fault: &Fault) {
        for deferred in self.deferred.drain(..) {
            match deferred {
                Deferred::Work(work) => refuse(work, fault),
                Deferred::Hold(hold) => hold.refuse(fault.clone()),
            }
        }
    }

    /// Processes what was deferred, from the front, until the others of the thread are to have their turn. What cannot be done
    /// yet goes back to the front: nothing that came later overtakes it.
    pub(super) fn run_deferred(&mut self, ctx: &mut Context<Self>) {
        while (self.looks_at_requests() || matches!(self.phase, Phase::Gone))
            && !self.behind
            && let Some(next) = self.deferred.pop_front()
        {
            let gone = matches!(self.phase, Phase::Gone);
            match next {
                Deferred::Work(work) if gone => self.refuse_as_gone(work, ctx),
                Deferred::Work(work) => {
                    self.work(work, ctx);
                    self.let_others_on(ctx);
                }
                Deferred::Hold(hold) if gone => {
                    hold.refuse(Fault::Refused(self.gone()));
                }
                Deferred::Hold(hold) => match self.phase {
                    Phase::Stopped(why) => hold.refuse(self.fault_of_stop(why)),
                    _ => self.hold(hold, ctx),
                },
            }
        }
    }

    /// Refuses requests for a network that is gone, as far as this memory knows. Like every answer, this leaves after what
    /// makes it durable.
    pub(super) fn refuse_as_gone(&mut self, mut work: Work, ctx: &mut Context<Self>) {
        if !self.stands() {
            self.deferred.push_front(Deferred::Work(work));
            return self.reload(ctx);
        }
        let mut unit = Staging::new(Some(work.outlet.clone()), work.items.len());
        let gone = self.gone_for(&work);
        for item in work.items.drain(..) {
            unit.answer(item.ticket, Err(gone.clone().into()), false);
        }
        self.send(unit);
    }
}
