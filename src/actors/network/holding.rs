//! A network's part in what several networks decide together: it is held, asked, finished. See `coordinator::joint`.
//!
//! A waiting request over several networks (`coordinator::waiting`) has an entry in the queue of each. When its turn comes in
//! one of them, and there may be room in the others, this network decides nothing else until the request has tried:
//!
//! ```text
//! Serving ──its turn──▶ Turn ──its Hold──▶ Held ──Finish──▶ Serving
//!                        ├──Hold of one that has waited longer──▶ Held: the older goes first
//!                        ├──any other Hold──▶ told to end its holds, and to come again after the turn
//!                        └──it left, tried without coming here, or took too long──▶ Serving
//! ```
//!
//! **No deadlock.** Holds are taken in order of ids, so holders never wait for each other in a circle. A turn adds a way to
//! wait: a job that holds another network and wants this one would wait for the waiter, which may want that other network. So
//! no job does: in a turn only the waiter itself, or an older one, gets the network; all others end all their holds and begin
//! again. The oldest waiter is never sent away. The same rule applies to a job that holds other networks and comes to a
//! network that is being loaded.
//!
//! **No standstill.** A job that holds networks does not queue behind the requests of the next network: it goes before them,
//! however many there are (`defer_hold`).

use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::oneshot;

use super::messages::{DecideHeld, Finish, Hold, HoldRefused, Several, Unlist, Waiting};
use super::queue::Waiter;
use super::staging::{Staging, loading};
use super::waiting::{Asker, SeveralEntry};
use super::{Deferred, NetworkActor, Phase, is_long};
use crate::actors::committer::UnitPart;
use crate::actors::macs::ClaimedMacs;
use crate::actors::reserve::refused_by_store;
use crate::actors::waits::Arrival;
use crate::actors::{Applied, Fault};
use crate::core::command::Command;
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::{Missing, Refusal};
use crate::store::{Act, StoreHealth};

impl NetworkActor {
    pub(super) fn hold(&mut self, hold: Hold, ctx: &mut Context<Self>) {
        if !self.stands() {
            self.deferred.push_front(Deferred::Hold(hold));
            return self.reload(ctx);
        }
        // The decision under the hold must see nothing that is over, and take nothing that is due to a waiter whose turn it
        // is.
        let moment = self.moment();
        let mut unit = Staging::new(None, 1);
        self.run_due(&mut unit, moment, ctx);
        let may_go_on = self.serve_waiters_behind(&mut unit, ctx);
        self.send(unit);
        if matches!(self.phase, Phase::Turn { .. }) {
            self.hold_in_turn(hold, ctx);
            return self.after(ctx);
        }
        if !may_go_on || !matches!(self.phase, Phase::Serving) {
            self.deferred.push_front(Deferred::Hold(hold));
            if matches!(self.phase, Phase::Gone) {
                self.run_deferred(ctx);
            }
            return self.after(ctx);
        }
        self.grant(hold);
    }

    fn grant(&mut self, hold: Hold) {
        if let Some(name) = hold.named.as_ref().filter(|name| **name != self.network.config().name) {
            let refusal = Refusal::not_found(Missing::Network, name);
            return hold.refuse(Fault::Refused(refusal));
        }
        let Hold { hold, granted, .. } = hold;
        if granted.send(Ok(())).is_ok() {
            self.phase = Phase::Held { hold, steps: Vec::new(), claimed: ClaimedMacs::default() };
        }
    }

    /// Keeps a hold until the network is available. A job that holds other networks goes before the requests that wait here:
    /// otherwise those networks would stand still until all of these are decided. None of these is of the job's own
    /// connection, because a job over several networks begins only when everything sent before it is answered. Between two
    /// such holds one message has its turn, so that nobody waits forever.
    fn defer_hold(&mut self, hold: Hold) {
        let goes_before = |deferred: &Deferred| matches!(deferred, Deferred::Hold(hold) if hold.beside);
        let before = match self.deferred.iter().rposition(goes_before) {
            _ if !hold.beside => self.deferred.len(),
            Some(last) => last + 2,
            None => usize::from(matches!(self.phase, Phase::Held { .. })),
        };
        self.deferred.insert(before.min(self.deferred.len()), Deferred::Hold(hold));
    }

    /// Handles a hold that arrives during the turn of a waiter.
    pub(super) fn hold_in_turn(&mut self, hold: Hold, ctx: &mut Context<Self>) {
        let Phase::Turn { arrival, behind, .. } = &mut self.phase else {
            return self.deferred.push_back(Deferred::Hold(hold));
        };
        if hold.turn.is_none_or(|turn| turn > *arrival) {
            return behind.extend(sent_away(hold, others_first()));
        }
        // Jobs that were sent away may come again: they find the network held.
        self.phase = Phase::Serving;
        if !self.stands() {
            return self.hold(hold, ctx);
        }
        self.grant(hold);
        if matches!(self.phase, Phase::Serving) {
            // The job gave up meanwhile: what came after it goes on.
            self.go_on(ctx);
        }
    }

    /// Handles a hold that arrives while the network is being loaded. Loading takes time, and nobody may keep other networks
    /// from deciding for so long: neither a waiter, which goes on waiting, nor a job that holds some.
    fn hold_in_loading(&mut self, hold: Hold) {
        let Phase::Loading { since, behind } = &mut self.phase else {
            return self.deferred.push_back(Deferred::Hold(hold));
        };
        let fault = || loading(self.shared.hindrance().as_deref());
        if hold.turn.is_some() || (hold.beside && is_long(&self.shared, *since)) {
            hold.refuse(fault());
        } else if hold.beside {
            behind.extend(sent_away(hold, fault()));
        } else {
            self.deferred.push_back(Deferred::Hold(hold));
        }
    }

    /// Treats holds that arrived before the loading began in the same way.
    pub(super) fn hold_deferred_in_loading(&mut self) {
        for deferred in std::mem::take(&mut self.deferred) {
            match deferred {
                Deferred::Hold(hold) => self.hold_in_loading(hold),
                Deferred::Work(work) => self.deferred.push_back(Deferred::Work(work)),
            }
        }
    }

    /// Gives a waiter over several networks its turn, if there may be room for it in all of them, or if this network refuses
    /// it for a reason that no room will change. True: nothing else is decided here until it has tried.
    pub(super) fn offer_turn(&mut self, arrival: Arrival, several: &Several, command: &Command) -> bool {
        let moment = self.moment();
        let tried = self.decide(command, moment);
        self.undecide();
        let (fits, is_refused) = match tried {
            Ok(Ok(_)) => (true, false),
            // The client has to be told of any other refusal, whether or not there is room in the other networks.
            Ok(Err(refusal)) => {
                let lacks = Fault::Refused(refusal).is_no_capacity();
                (!lacks, !lacks)
            }
            Err(()) => {
                // It is answered, and not run again: not here once the network is loaded, nor by its coordinator.
                several.state.note_crash(self.crashed());
                // That wakes its coordinator.
                drop(self.waiting.remove(arrival));
                return true;
            }
        };
        if !several.state.note_room(several.index, fits) && !is_refused {
            return false;
        }
        // Jobs that came for this network while it was held must not keep others waiting for it now. One of them may be the
        // waiter itself, which is already trying, or an older one.
        let (holds, works): (Vec<Deferred>, Vec<Deferred>) =
            self.deferred.drain(..).partition(|deferred| matches!(deferred, Deferred::Hold(_)));
        self.deferred.extend(works);
        let turn_of = |deferred: &Deferred| match deferred {
            Deferred::Hold(hold) => hold.turn.filter(|turn| *turn <= arrival),
            Deferred::Work(_) => None,
        };
        let oldest = holds.iter().filter_map(turn_of).min();
        let (mut first, mut behind) = (None, Vec::new());
        for deferred in holds {
            match deferred {
                Deferred::Hold(hold) if oldest.is_some() && hold.turn == oldest => first = Some(hold),
                Deferred::Hold(hold) => behind.extend(sent_away(hold, others_first())),
                Deferred::Work(_) => {}
            }
        }
        match first {
            // Jobs that were sent away find it held when they come again.
            Some(hold) => self.grant(hold),
            None => {
                self.phase = Phase::Turn { arrival, since: tokio::time::Instant::now(), behind };
                several.state.wake();
            }
        }
        true
    }

    /// Ends the turn of a waiter that left, could not come, or took too long.
    pub(super) fn end_turn(&mut self, ctx: &mut Context<Self>) {
        if let Phase::Turn { arrival, .. } = self.phase {
            self.phase = Phase::Serving;
            self.waiting.failed(arrival);
            self.go_on(ctx);
        }
    }

    /// Serves the waiters, then what was deferred.
    pub(super) fn go_on(&mut self, ctx: &mut Context<Self>) {
        let mut unit = Staging::new(None, 1);
        self.serve_waiters_behind(&mut unit, ctx);
        self.send(unit);
        self.after(ctx);
        self.run_deferred(ctx);
    }

    fn decide_held(&mut self, message: &DecideHeld) -> Result<(UnitPart, Outcome), Box<Fault>> {
        if !self.stands() {
            let problem = "the network is being loaded again after a commit in doubt".to_owned();
            return Err(Box::new(Fault::Unavailable { applied: Applied::No, problem }));
        }
        let item = &message.item;
        let health = self.shared.store.health();
        if health == StoreHealth::Failed {
            return Err(Box::new(refused_by_store(health, &*self.shared.store)));
        }
        let moment = self.moment();
        let transaction = Some(message.transaction);
        let Ok(decided) = self.decide_and_claim(&item.command, moment, transaction, false) else {
            return Err(self.crashed());
        };
        let (Decision { steps, mut outcome }, claims) = decided?;
        if !item.dry_run {
            // If it comes to nothing, claimants that were heard of are missed for the first time again: late, not early.
            self.hear_of_claimants(&item.command, &mut outcome, moment.now);
        }
        self.offer(&steps, transaction);
        // The answer may leave before `Finish` arrives here: a job that then goes over the whole scope must not skip this
        // network.
        self.note_scopes(&steps);
        let act = Act {
            network: self.id(),
            wall: moment.wall,
            by: item.by.clone(),
            reason: item.reason.clone(),
            transaction,
            steps: steps.clone(),
        };
        if let Phase::Held { steps: held, claimed, .. } = &mut self.phase {
            (*held, *claimed) = (steps, claims.macs);
        }
        let acts = if act.steps.is_empty() { Vec::new() } else { vec![act] };
        let part = UnitPart::new(Arc::clone(&self.lane), self.incarnation, acts);
        Ok((UnitPart { claimed: claims.room, ..part }, outcome))
    }

    /// Puts a waiter over several networks into the queue, or takes it out.
    fn list(&mut self, waiting: Waiting) {
        match waiting {
            Waiting::No => {}
            // A network that is stopped or gone has no waiters.
            Waiting::Begins { .. } if matches!(self.phase, Phase::Stopped(_) | Phase::Gone) => {}
            Waiting::Begins { arrival, command, several } => {
                if self.waiting.get(arrival).is_none() {
                    let waiter = Waiter { command, until_ms: None, of: Asker::Several(SeveralEntry(several)) };
                    self.waiting.add(&self.network, arrival, waiter);
                } else {
                    self.waiting.failed(arrival);
                }
            }
            Waiting::Ended { arrival } => drop(self.waiting.remove(arrival)),
        }
    }
}

/// Sends a hold away: the job that asked ends all its holds, and begins again when the returned sender is dropped.
fn sent_away(hold: Hold, fault: Fault) -> Option<oneshot::Sender<()>> {
    let (ends, over) = oneshot::channel();
    hold.granted.send(Err(HoldRefused::Behind { over, fault: Box::new(fault) })).is_ok().then_some(ends)
}

fn others_first() -> Fault {
    let problem = "requests that wait for one of the networks come first".to_owned();
    Fault::Overloaded { problem, retry_after_ms: 50 }
}

impl Handler<Hold> for NetworkActor {
    type Result = ();
    fn handle(&mut self, hold: Hold, ctx: &mut Context<Self>) {
        match self.phase {
            Phase::Turn { .. } => self.hold_in_turn(hold, ctx),
            Phase::Serving if self.deferred.is_empty() && !self.behind => self.hold(hold, ctx),
            Phase::Loading { .. } => self.hold_in_loading(hold),
            Phase::Serving | Phase::Held { .. } => self.defer_hold(hold),
            Phase::Stopped(why) => hold.refuse(self.fault_of_stop(why)),
            Phase::Gone if self.stands() => {
                hold.refuse(Fault::Refused(self.gone()));
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
            Phase::Held { .. }
            | Phase::Turn { .. }
            | Phase::Serving
            | Phase::Loading { .. }
            | Phase::Stopped(_)
            | Phase::Gone => {
                let problem = "the network was given up while it was held".to_owned();
                Err(Box::new(Fault::Unavailable { applied: Applied::No, problem }))
            }
        };
        // If the coordinator is gone, it ended its holds.
        let _ = message.decided.send(answer);
        if !matches!(self.phase, Phase::Held { .. }) {
            self.after(ctx);
        }
    }
}

impl Handler<Finish> for NetworkActor {
    type Result = ();
    fn handle(&mut self, finish: Finish, ctx: &mut Context<Self>) {
        let waits = match &finish.waiting {
            Waiting::Begins { arrival, .. } | Waiting::Ended { arrival } => Some(*arrival),
            Waiting::No => None,
        };
        // Before anything else is decided here, so that nothing that becomes free meanwhile is missed.
        self.list(finish.waiting);
        let (steps, claimed) = match &mut self.phase {
            Phase::Held { hold, steps, claimed } if *hold == finish.hold => {
                (std::mem::take(steps), std::mem::take(claimed))
            }
            // The waiter tried, and could not get another network before it came here.
            Phase::Turn { arrival, .. } if Some(*arrival) == waits => return self.end_turn(ctx),
            Phase::Held { .. }
            | Phase::Turn { .. }
            | Phase::Serving
            | Phase::Loading { .. }
            | Phase::Stopped(_)
            | Phase::Gone => {
                // A panic under the hold gave it up: what waited is served again once the network is loaded.
                return;
            }
        };
        self.phase = Phase::Serving;
        if finish.apply {
            // The joint unit counts for each of its networks, whether or not it changes them.
            self.enqueued += 1;
            let now = self.shared.shard_time(self.lane.shard);
            if self.apply(&steps, now, self.enqueued).is_err() {
                self.panicked(&mut Staging::new(None, 1), None);
            }
        } else {
            self.undecide();
            self.unclaim(claimed);
            self.offer(&steps, None);
        }
        self.go_on(ctx);
    }
}

impl Handler<Unlist> for NetworkActor {
    type Result = ();
    fn handle(&mut self, Unlist { arrival }: Unlist, ctx: &mut Context<Self>) {
        drop(self.waiting.remove(arrival));
        if matches!(self.phase, Phase::Turn { arrival: turn, .. } if turn == arrival) {
            self.end_turn(ctx);
        }
        self.tell_waiting();
    }
}
