//! What a network's actor does with its memory: decides and applies behind a wall that catches panics, ends what is due, and
//! publishes what others need to know: figures, scopes, MACs.
//!
//! Nothing here answers or commits: the results go into the [`Staging`] of the turn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::prelude::*;
use compact_str::CompactString;
use hashbrown::HashSet;
use tokio::time::Instant;

use super::staging::{Staging, restored};
use super::{NetworkActor, PANIC_WINDOW, PANICS_MAX, Phase, ScopesLeft, Tick};
use crate::actors::{Fault, StopReason};
use crate::core::command::{self, Command};
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::Refusal;
use crate::core::state::{Entry, EventKind, Key, State, Step};
use crate::core::types::{Generation, Owner, Scope, ShardTime};
use crate::limits::EXPIRE_STEPS_MAX;

/// When to ask again if an operator has to decide.
const CONFLICTS_RETRY_AFTER_MS: u64 = 10_000;

/// Finds the first of several that were asked for together and would be granted something: its place, or its instance.
fn granted_to(command: &Command, decision: &Decision) -> (Option<usize>, Option<Owner>) {
    match (command, &decision.outcome) {
        (Command::Acquire(_), Outcome::Acquired { grants, .. }) => {
            (grants.iter().filter(|(_, grant)| grant.created).map(|(index, _)| *index).min(), None)
        }
        (Command::Deploy(ask), _) => {
            let granted = |owner: &Owner| {
                let state = |step: &Step| matches!(&step.state, Some(State::Entry(Entry::Held(held))) if held.holder.owner == *owner);
                decision.granted().any(state)
            };
            let first = ask.wishes.iter().filter(|wish| granted(&wish.owner)).min_by_key(|wish| wish.place);
            (None, first.map(|wish| wish.owner.clone()))
        }
        _ => (None, None),
    }
}

impl NetworkActor {
    /// Decides, but grants nothing while two claim an address here, nor lets space go to where it would be granted, and chooses
    /// no address in a restored register that was not accepted yet.
    pub(super) fn decide_wary(
        &self,
        command: &Command,
        moment: command::Context,
    ) -> Result<Result<Decision, Box<Fault>>, ()> {
        Ok(match self.decide(command, moment)? {
            Ok(decision) if self.shared.info.restored_from.is_some() && decision.chooses(command) => {
                Err(Box::new(restored()))
            }
            Ok(decision)
                if !self.network.config().conflicts.is_empty()
                    && (decision.grants() || self.network.lets_space_go(command, &decision)) =>
            {
                let (index, instance) = granted_to(command, &decision);
                let (network, retry_after_ms) = (self.network.config().name.clone(), CONFLICTS_RETRY_AFTER_MS);
                Err(Box::new(Fault::Contested { network, index, instance, retry_after_ms }))
            }
            Ok(decision) => Ok(decision),
            Err(refusal) => Err(refusal.into()),
        })
    }

    /// Decides behind a wall: a panic becomes an answer, not the end of the actor.
    pub(super) fn decide(&self, command: &Command, moment: command::Context) -> Result<Result<Decision, Refusal>, ()> {
        let (network, shared) = (&self.network, &self.shared);
        catch_unwind(AssertUnwindSafe(|| {
            if let Some(hook) = &shared.hooks.before_decide {
                hook(command);
            }
            let mut count = network.generations_wanted(command);
            loop {
                let generations = shared.generations.draw(count);
                if count > 0 && generations < network.next_generation() {
                    // What came from elsewhere brought higher generations.
                    shared.generations.note(Generation(network.next_generation().0.saturating_sub(1)));
                    continue;
                }
                self.drawn.set((generations, count));
                let decided = network.decide(command, command::Context { generations, ..moment });
                let given = decided.as_ref().map_or(0, |decision| network.generations_given(command, decision));
                if given <= count {
                    break decided;
                }
                // The decision also keeps promises, which nobody could know before, so it needs more generations.
                self.undecide();
                count = given;
            }
        }))
        .map_err(drop)
    }

    /// Gives the generations of the last decision back: it is not carried out.
    pub(super) fn undecide(&self) {
        let (first, count) = self.drawn.take();
        if count > 0 {
            self.shared.generations.give_back(first, count);
        }
    }

    /// Carries out steps that become durable with this unit.
    pub(super) fn apply(&mut self, steps: &[Step], now: ShardTime, unit: u64) -> Result<(), ()> {
        // The generations drawn for them are used.
        self.drawn.take();
        self.changed = unit;
        let lost = self.mac_changes(steps).lost;
        self.forget_way_back();
        let (network, waiting, hook) = (&mut self.network, &mut self.waiting, &self.shared.hooks.before_step);
        let mut back = Some(&mut self.back).filter(|_| self.shared.info.may_be_emptied);
        let step = |(at, step): (usize, &Step)| {
            if let Some(hook) = hook {
                hook(step);
            }
            waiting.note(network, step);
            let before = network.apply_before(step, steps.get(at + 1), now);
            if let Some(back) = &mut back {
                back.note(unit, step.key, before);
            }
        };
        if catch_unwind(AssertUnwindSafe(|| steps.iter().enumerate().for_each(step))).is_err() {
            self.torn = true;
            return Err(());
        }
        self.macs_leave(&lost, unit);
        self.note_recorded(steps, unit);
        if self.network.is_gone() {
            self.phase = Phase::Gone;
        }
        self.note_scopes(steps);
        self.claimants_stepped(steps);
        Ok(())
    }

    /// Publishes scopes that hold something here for the first time.
    pub(super) fn note_scopes(&mut self, steps: &[Step]) {
        for step in steps {
            let Some(State::Entry(Entry::Held(held))) = &step.state else { continue };
            let scope = &held.holder.scope;
            // Grants of one scope tend to come together: this comparison saves a hash and two table look-ups.
            if self.scope_noted.as_ref() == Some(scope) {
                continue;
            }
            if let Some(left) = &mut self.scopes_left {
                left.scopes.remove(scope);
            }
            if !self.scopes.contains(scope) {
                self.published.note_scope(scope);
                self.scopes.insert(scope.clone());
            }
            self.scope_noted = Some(scope.clone());
        }
    }

    /// Logs promises that a declined address breaks: a declined address goes to nobody, whoever it was promised to. The one it
    /// was promised to is not the one who declines, and would learn it only from the commit: so an operator is told now.
    pub(super) fn tell_of_broken_promises(&self, steps: &[Step]) {
        for step in steps {
            let (Key::Address(address), Some(event)) = (step.key, &step.event) else { continue };
            if event.kind == EventKind::Declined
                && let Some(held) = &event.before
                && let Some(promise) = held.promise()
            {
                tracing::warn!(
                    network = %self.network.config().name,
                    %address,
                    held_by = %held.holder,
                    promised_to = %promise.owner,
                    slot = %promise.slot,
                    plan = promise.plan,
                    "an address that a plan promises to another instance was declined: that one does not get it, and \
                     deployment.get and deployment.commit say so"
                );
            }
        }
    }

    /// Forgets scopes that hold nothing any more although something is under way, as always in a network that is never idle:
    /// those that held nothing at an earlier moment up to which everything is durable by now, and that were granted nothing
    /// since. What is in doubt now can bring none of them back.
    pub(super) fn forget_scopes(&mut self) {
        let settled = self.lane.settled.load(Ordering::Acquire);
        // What is given up is settled, too, but this memory is worthless before it is.
        if !self.stands() || self.scopes_left.as_ref().is_some_and(|left| settled < left.unit) {
            return;
        }
        // A look costs as much as there are scopes, so there is none before a third of them may be gone.
        if self.scopes_left.is_none() && 2 * self.scopes.len() <= 3 * self.network.scope_count() {
            return;
        }
        let here: HashSet<Scope> = self.network.scope_names().into_iter().collect();
        if let Some(ScopesLeft { mut scopes, .. }) = self.scopes_left.take() {
            scopes.retain(|scope| !here.contains(scope));
            self.scopes.retain(|scope| !scopes.contains(scope));
            self.published.forget_scopes(&scopes);
        }
        let scopes: HashSet<Scope> = self.scopes.difference(&here).cloned().collect();
        if !scopes.is_empty() {
            self.scopes_left = Some(ScopesLeft { unit: self.enqueued, scopes });
        }
        // The next grant of any scope is to be noted.
        self.scope_noted = None;
    }

    /// Publishes which scopes hold something here, and forgets those that hold nothing any more. Only if nothing is under way:
    /// a release in doubt may turn out not to have happened.
    pub(super) fn publish_scopes(&mut self) {
        self.scopes_left = None;
        let here = self.network.scope_names();
        if here.len() != self.scopes.len() || here.iter().any(|scope| !self.scopes.contains(scope)) {
            self.scopes = here.into_iter().collect();
            self.scope_noted = None;
            self.published.set_scopes(self.scopes.iter().cloned().collect());
        }
    }

    /// Counts and logs a panic. Returns the fault for the client.
    pub(super) fn note_panic(&mut self, what_comes: &str) -> Box<Fault> {
        let id = format!("{:016x}", self.draws.draw() as u64);
        self.shared.metrics.panics.inc();
        tracing::error!(network = %self.id(), name = %self.network.config().name, id = %id, "a panic while deciding; {what_comes}");
        Box::new(Fault::Internal { id })
    }

    /// Ends a turn that panicked: the command is answered `internal` and not run again; memory is loaded again.
    pub(super) fn panicked(&mut self, unit: &mut Staging, ticket: Option<u32>) {
        let fault = self.crashed();
        if let Some(ticket) = ticket {
            unit.answer(ticket, Err(fault), false);
        }
    }

    /// As before, where somebody else has to answer.
    pub(super) fn crashed(&mut self) -> Box<Fault> {
        let fault = self.note_panic("its network is loaded again");
        let now = Instant::now();
        self.panics.push_back(now);
        while self.panics.front().is_some_and(|&at| now - at > PANIC_WINDOW) {
            self.panics.pop_front();
        }
        self.phase = if self.panics.len() >= PANICS_MAX {
            tracing::error!(network = %self.id(), name = %self.network.config().name, "stopped after {PANICS_MAX} panics in a minute; the others go on");
            self.published.note_stopped(Some(StopReason::Crashes));
            Phase::Stopped(StopReason::Crashes)
        } else {
            Phase::Loading { since: now, behind: Vec::new() }
        };
        fault
    }

    /// When something ends next; what is left of a purged network is due at once.
    pub(super) fn next_due(&self) -> Option<ShardTime> {
        if self.is_left_over() { Some(ShardTime::default()) } else { self.network.next_due() }
    }

    /// Must the actor itself still release what the network holds? If late claims are all that keeps it, an operator decides.
    fn is_left_over(&self) -> bool {
        let config = self.network.config();
        self.left_over && config.purged && (config.conflicts.is_empty() || self.network.entries() > 0)
    }

    /// Up to which time things that are due may end now. An outage begins before anybody knows of it: whatever fell due in it
    /// would be decided, wait with everything else, and become durable when the outage is over, although nobody could renew
    /// meanwhile. So the end of a lease waits for a commit or a proof that began after it was due; if there was none yet, one
    /// is asked for.
    fn may_end_until(&mut self, due: ShardTime, now: ShardTime, ctx: &mut Context<Self>) -> ShardTime {
        // What began late in a millisecond also ends late in one: never early.
        let over = ShardTime(now.0.saturating_sub(self.shared.clock.cut_off_ms()));
        if due > over {
            return over;
        }
        let Some(served_ago_ms) = self.shared.served_ago_ms() else { return over };
        let served = ShardTime(now.0.saturating_sub(served_ago_ms));
        if due > served && !std::mem::replace(&mut self.proves, true) {
            let (shared, shard) = (Arc::clone(&self.shared), self.lane.shard);
            let proof = async move { shared.is_proved_owner_of(&[shard]).await };
            ctx.spawn(proof.into_actor(self).map(|is_proved, act, ctx| {
                act.proves = false;
                // If there is no proof, the timers try again.
                if is_proved {
                    ctx.notify(Tick);
                }
            }));
        }
        over.min(served)
    }

    /// Ends what is due, in one bounded step; the rest comes with the next message or tick.
    pub(super) fn run_due(&mut self, unit: &mut Staging, moment: command::Context, ctx: &mut Context<Self>) {
        let Some(due) = self.next_due() else { return };
        // A store that takes nothing new would refuse the result.
        if !matches!(self.phase, Phase::Serving) || due > moment.now || !self.shared.takes_changes() {
            return;
        }
        let (command, by, over) = match self.is_left_over() {
            true => (Command::Purge { limit: EXPIRE_STEPS_MAX }, "purge", moment.now),
            false => (Command::Expire, "lease", self.may_end_until(due, moment.now, ctx)),
        };
        if due > over {
            return;
        }
        match self.decide(&command, command::Context { now: over, ..moment }) {
            Ok(Ok(Decision { steps, outcome })) => {
                if !steps.is_empty() {
                    if self.apply(&steps, moment.now, self.enqueued + 1).is_err() {
                        return self.panicked(unit, None);
                    }
                    unit.change(self.id(), moment, CompactString::const_new(by), None, steps);
                }
                if matches!(outcome, Outcome::Expired { more: true, .. } | Outcome::LetGo { more: true, .. }) {
                    self.tick_again(ctx);
                }
            }
            Ok(Err(refusal)) => tracing::error!(network = %self.id(), %refusal, "expiry was refused"),
            Err(()) => self.panicked(unit, None),
        }
    }
}
