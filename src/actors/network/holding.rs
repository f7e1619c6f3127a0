//! A network that takes part in what several networks decide together: held, asked, finished. See `coordinator::joint`.
//!
//! A request over several networks that waits (`coordinator::waiting`) has an entry in the queue of each. When its turn
//! comes in one of them, and there may be room in the others, this network decides nothing else until it has tried:
//!
//! ```text
//! Serving ──its turn──▶ Turn ──its Hold──▶ Held ──Finish──▶ Serving
//!                        ├──Hold of one that waits for longer──▶ Held: the older goes first
//!                        ├──any other Hold──▶ told to let go of what it holds, and to come again after the turn
//!                        └──it left, tried without coming here, or took too long──▶ Serving
//! ```
//!
//! **No deadlock.** Holds are taken in order of ids, so holders never wait for each other in a circle. A turn adds: who
//! holds another network and wants this one waits for the waiter, who may want that other one. So nobody does: in a turn
//! only the waiter itself, or an older one, gets the network; all others let go of everything and begin again. Of waiters
//! the oldest is never sent away. The same is asked of who comes to a network that is loaded, and holds others.
//!
//! **No standstill.** Who holds networks does not wait behind the requests of the next one: he goes before them, however
//! many there are (`defer_hold`).

use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::oneshot;

use super::messages::{DecideHeld, Finish, Hold, HoldRefused, Several, Unlist, Waiting};
use super::queue::Waiter;
use super::staging::{Staging, loading, refused_by_store};
use super::waiting::{Asker, SeveralEntry};
use super::{Deferred, NetworkActor, Phase, is_long};
use crate::actors::committer::UnitPart;
use crate::actors::macs::ClaimedMacs;
use crate::actors::waits::Arrival;
use crate::actors::{Applied, Fault, StopReason};
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
        // What is decided under the hold sees nothing that is over, and takes nothing that is somebody's turn.
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

    /// Keeps it until the network is to be had. Whoever holds others goes before the requests that wait here: those networks
    /// would stand still until all of that is decided. Nothing of his own connection is among it, as what concerns several networks
    /// begins when all is answered that was sent before. Between two of them one message has its turn, so that nobody waits for ever.
    fn defer_hold(&mut self, hold: Hold) {
        let goes_before = |deferred: &Deferred| matches!(deferred, Deferred::Hold(hold) if hold.beside);
        let before = match self.deferred.iter().rposition(goes_before) {
            _ if !hold.beside => self.deferred.len(),
            Some(last) => last + 2,
            None => usize::from(matches!(self.phase, Phase::Held { .. })),
        };
        self.deferred.insert(before.min(self.deferred.len()), Deferred::Hold(hold));
    }

    /// Who comes while it is somebody's turn.
    pub(super) fn hold_in_turn(&mut self, hold: Hold, ctx: &mut Context<Self>) {
        let Phase::Turn { arrival, behind, .. } = &mut self.phase else {
            return self.deferred.push_back(Deferred::Hold(hold));
        };
        if hold.turn.is_none_or(|turn| turn > *arrival) {
            return behind.extend(sent_away(hold, others_first()));
        }
        // Whoever was sent away may come again: it finds the network held.
        self.phase = Phase::Serving;
        if !self.stands() {
            return self.hold(hold, ctx);
        }
        self.grant(hold);
        if matches!(self.phase, Phase::Serving) {
            // It gave up meanwhile: what came behind it goes on.
            self.go_on(ctx);
        }
    }

    /// Who comes while it is loaded. That takes, and nobody is to keep other networks from deciding so long: neither a
    /// waiter, which goes on waiting, nor whoever holds some.
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

    /// Those who came before it was loaded as well.
    pub(super) fn hold_deferred_in_loading(&mut self) {
        for deferred in std::mem::take(&mut self.deferred) {
            match deferred {
                Deferred::Hold(hold) => self.hold_in_loading(hold),
                Deferred::Work(work) => self.deferred.push_back(Deferred::Work(work)),
            }
        }
    }

    /// It is the turn of a waiter over several networks, if there may be room for it in all of them, or if it is refused here
    /// for something that no room will change. True: nothing else is decided here until it has tried.
    pub(super) fn offer_turn(&mut self, arrival: Arrival, several: &Several, command: &Command) -> bool {
        let moment = self.moment();
        let tried = self.decide(command, moment);
        self.undecide();
        let (fits, is_refused) = match tried {
            Ok(Ok(_)) => (true, false),
            // Whatever else it is refused for, it is to be told, whether there is room in the others or not.
            Ok(Err(refusal)) => {
                let lacks = Fault::Refused(refusal).is_no_capacity();
                (!lacks, !lacks)
            }
            Err(()) => {
                self.panicked(&mut Staging::new(None, 1), None);
                return true;
            }
        };
        if !several.state.note_room(several.index, fits) && !is_refused {
            return false;
        }
        // Who came for this network while it was held must not keep others waiting for it now. One of them may be the
        // waiter itself, which tries already, or an older one.
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
            // Those that were sent away find it held when they come again.
            Some(hold) => self.grant(hold),
            None => {
                self.phase = Phase::Turn { arrival, since: tokio::time::Instant::now(), behind };
                several.state.wake();
            }
        }
        true
    }

    /// The waiter whose turn it is left, could not come, or took too long.
    pub(super) fn end_turn(&mut self, ctx: &mut Context<Self>) {
        if let Phase::Turn { arrival, .. } = self.phase {
            self.phase = Phase::Serving;
            self.waiting.failed(arrival);
            self.go_on(ctx);
        }
    }

    /// Serves who waits, then what was deferred.
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
        if health != StoreHealth::Ready && (health == StoreHealth::Failed || !item.command.lets_go()) {
            return Err(Box::new(refused_by_store(health, &*self.shared.store)));
        }
        let moment = self.moment();
        let transaction = Some(message.transaction);
        let Ok(decided) = self.decide_and_claim(&item.command, moment, transaction, false) else {
            let mut unit = Staging::new(None, 1);
            self.panicked(&mut unit, Some(0));
            return Err(unit.answers.pop().and_then(|staged| staged.reply.answer.err()).unwrap_or_else(|| {
                Box::new(self.fault_of_stop(StopReason::Crashes)) // `panicked` always answers.
            }));
        };
        let (Decision { steps, mut outcome }, claims) = decided?;
        if !item.dry_run {
            // Should it come to nothing, whoever was heard of is missed for the first time again: late, not early.
            self.hear_of_claimants(&item.command, &mut outcome, moment.now);
        }
        self.offer(&steps, transaction);
        // The answer may leave before `Finish` comes here: who asks then for all of a scope must not pass this network over.
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
            // Nobody waits here.
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

/// Whoever asks for this hold lets go of what it holds, and begins again when what is answered is dropped.
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
        let waits = match &finish.waiting {
            Waiting::Begins { arrival, .. } | Waiting::Ended { arrival } => Some(*arrival),
            Waiting::No => None,
        };
        // Before anything else is decided here, so that nothing that comes free meanwhile is missed.
        self.list(finish.waiting);
        let (steps, claimed) = match &mut self.phase {
            Phase::Held { hold, steps, claimed } if *hold == finish.hold => {
                (std::mem::take(steps), std::mem::take(claimed))
            }
            // It tried, and another network was not to be had before it came here.
            Phase::Turn { arrival, .. } if Some(*arrival) == waits => return self.end_turn(ctx),
            Phase::Held { .. }
            | Phase::Turn { .. }
            | Phase::Serving
            | Phase::Loading { .. }
            | Phase::Stopped(_)
            | Phase::Gone => {
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
