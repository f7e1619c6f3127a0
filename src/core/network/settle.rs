//! `deployment.commit` and `deployment.revert`, the part that falls on one network; and what keeping a promise means.
//!
//! Nothing is looked up in a list of what a plan did: the reservations say it themselves. So either can be repeated, and
//! what was released or renewed meanwhile stays so. Nobody is left with none by a promise: who waits for an address whose
//! holder was reverted keeps its own. And no promise ends in silence, as long as anything is left that tells of it: where what was promised cannot come any more (it was
//! declined, its subnet moved, the network is deleted), a commit that covers who waits for it is refused, and so is a revert
//! that would leave with nothing who was committed already and waits for his address. Nor does a plan that is ended for one
//! instance after the other end while anything of an instance is undecided, or one misses what was declined.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use super::draft::Draft;
use super::holdings::Holding;
use super::read::read;
use super::{Network, STANDING_FIRST_MAX};
use crate::core::address::Address;
use crate::core::command::Context;
use crate::core::deployment::Settle;
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::{PlanHindrance, Refusal};
use crate::core::state::{EventKind, Obsolete, Planned, Promise, Reservation, ReservationKind};
use crate::core::types::{Owner, Slot, SlotKey};

impl Network {
    /// Commits a plan, or takes it back.
    ///
    /// # Errors
    /// `in_use` for a promise in a deleted network; `conflict` where one cannot be kept, or must be.
    pub(super) fn settle(&self, ask: &Settle, context: Context) -> Result<Decision, Refusal> {
        let mut draft = Draft::new(self, context);
        let (mut instances, mut others_keep) = (BTreeSet::new(), false);
        let all = self.concerned(ask, |held| {
            let owner = &held.holder.owner;
            if ask.names(owner) && !instances.contains(owner) {
                instances.insert(owner.clone());
            }
            others_keep |= held.obsolete.is_none() && !ask.names(owner) && !ask.was_reverted(owner);
        });
        let Settled { released, decided, earlier } =
            if ask.revert { revert(ask, &all, &mut draft)? } else { commit(ask, &all, &mut draft)? };
        let left = left_open(self, ask, &all, &decided) + draft.displaced;
        // Whoever waits for what is promised to him is meant also where he holds nothing yet.
        let takers = all.iter().filter_map(|(_, held)| Some(&held.promise()?.owner));
        let missing = self.holdings.broken(&ask.scope).map(|(_, _, promise)| &promise.owner);
        instances.extend(takers.chain(missing).filter(|owner| ask.names(owner)).cloned());
        Ok(self.and_vanish(draft, Outcome::Settled { released, left, earlier, others_keep, instances }))
    }
}

impl Network {
    /// What plans have to do with of a scope, ascending: nothing else is changed by the end of one. `meet` is told of
    /// everything that the scope holds.
    ///
    /// Cost: a look at all that the scope holds.
    fn concerned(&self, ask: &Settle, mut meet: impl FnMut(&Reservation)) -> Vec<Holding<'_>> {
        let granted = |held: &Reservation| granted_by(held, ask.plan) || ask.was_granted_earlier(held);
        let by_a_plan = |held: &Reservation| held.planned.is_some() || held.obsolete.is_some() || granted(held);
        let met = self.holdings.of_scope(&ask.scope).inspect(|(_, held)| meet(held));
        let mut all: Vec<Holding<'_>> = met.filter(|(_, held)| by_a_plan(held)).collect();
        all.sort_unstable_by_key(|(address, _)| *address);
        all
    }

    /// Why a commit would be refused.
    pub(super) fn hindered(&self, ask: &Settle) -> Decision {
        let all = self.concerned(ask, |_| {});
        let refused = keeps_promises(self, ask, &all, &stranded_of(&all)).err();
        read(Outcome::Hindered(refused.map(|refusal| refusal.to_string())))
    }
}

/// About how much of those that are not covered is to be decided still. `decided`: what went with the others, or stays for good.
///
/// As long as there is any the plan is not at its end: what ends by itself then (a lease) would be lost in silence, although
/// every instance was committed.
fn left_open(network: &Network, ask: &Settle, all: &[Holding<'_>], decided: &BTreeSet<Address>) -> u64 {
    let open = |held: &Reservation| {
        let taken_back = held.planned.as_ref().and_then(|planned| planned.revived).map(|(plan, _)| plan);
        // What a revert could not make current again is at its end; what it left as plans before had left it is none of this one.
        let is_undecided = || held.obsolete.is_some() || held.leaving().is_some() || ask.was_granted_earlier(held);
        !ask.was_reverted(&held.holder.owner) && is_undecided()
            || granted_by(held, ask.plan) && !ask.was_committed(&held.holder.owner)
            || taken_back == Some(ask.plan)
            || is_kept_by(held, ask.plan) && held.lease.is_some()
    };
    // What becomes obsolete by a promise that was kept is not covered: then its own commit is to come.
    let others = all.iter().filter(|(address, held)| !ask.covers(&held.holder.owner) && !decided.contains(address));
    let open = others.filter(|(_, held)| open(held)).count();
    // Who was promised what was declined holds nothing that could tell of it.
    let without = missing(network, ask).filter(|(_, owner)| !ask.covers(owner)).count();
    (open + without) as u64
}

/// Is anything about it left to be decided by earlier plans, that did not end?
fn is_of_earlier(ask: &Settle, held: &Reservation) -> bool {
    let obsolete = || held.obsolete.as_ref().is_some_and(|obsolete| ask.is_earlier_and_open(obsolete.plan));
    obsolete() || held.leaving().is_some() || ask.was_granted_earlier(held)
}

fn granted_by(held: &Reservation, plan: u64) -> bool {
    held.granted_by.map(NonZeroU64::get) == Some(plan)
}

/// What is current and waits for an address that is promised to it by nobody who lets it go. It stays, so what it was to
/// leave to others does not come to them either.
fn stranded<'a>(all: impl Iterator<Item = (Address, &'a Reservation)>) -> BTreeSet<Address> {
    let mut promised: BTreeSet<(&Owner, &Slot)> = BTreeSet::new();
    let mut waiting: BTreeMap<(&Owner, &Slot), (Address, Option<&Promise>)> = BTreeMap::new();
    for (address, held) in all {
        let leaves = held.obsolete.is_none() && held.leaving().is_some();
        if held.obsolete.is_some() || leaves {
            promised.extend(held.promise().map(|promise| (&promise.owner, &promise.slot)));
        }
        if leaves {
            waiting.insert((&held.holder.owner, &held.holder.slot), (address, held.promise()));
        }
    }
    let mut stranded = BTreeSet::new();
    let mut next: Vec<_> = waiting.keys().copied().filter(|slot| !promised.contains(slot)).collect();
    while let Some(slot) = next.pop() {
        // Who is promised something need not wait for it.
        let Some((address, promise)) = waiting.remove(&slot) else { continue };
        stranded.insert(address);
        next.extend(promise.map(|promise| (&promise.owner, &promise.slot)));
    }
    stranded
}

fn stranded_of(all: &[Holding<'_>]) -> BTreeSet<Address> {
    stranded(all.iter().map(|(address, held)| (*address, held.as_ref())))
}

/// What came of the part of a plan that was committed or reverted.
struct Settled {
    /// What was let go for good.
    released: Vec<Address>,
    /// Of those that are not covered: what went all the same, or stays for good. Nobody need decide about it any more.
    decided: BTreeSet<Address>,
    /// Something waits still for a commit that earlier plans left, or granted.
    earlier: bool,
}

/// Can what the plan promised come to covered instances? Of what was declined it is known until its probation is over.
fn keeps_promises(
    network: &Network,
    ask: &Settle,
    all: &[Holding<'_>],
    stranded: &BTreeSet<Address>,
) -> Result<(), Refusal> {
    let covered = || all.iter().filter(|(_, held)| ask.covers(&held.holder.owner));
    // A deleted network grants nothing.
    let goes = |held: &Reservation| held.obsolete.is_some() || held.leaving().is_some();
    let gives = || covered().filter(|(_, held)| network.config.closed && goes(held) && held.promise().is_some());
    if let Some((address, held)) = gives().next() {
        let name = &network.config.name;
        let to = held.promise().map(|promise| format!(" to instance `{}`", promise.owner)).unwrap_or_default();
        let problem = format!(
            "{address} of network `{name}` is promised{to}, and `{name}` was deleted and grants nothing: network.restore brings \
             it back; or apply without it, or revert"
        );
        let (count, first) =
            (gives().count() as u64, gives().take(STANDING_FIRST_MAX).map(|(address, _)| *address).collect());
        return Err(Refusal::Guarded { problem, count, first });
    }
    let mut vain = covered().filter(|(address, _)| stranded.contains(address));
    let broken = || network.holdings.broken(&ask.scope).filter(|_| !stranded.is_empty());
    let declined: BTreeMap<SlotKey, Address> =
        broken().map(|(address, _, promise)| (promise.taker(&ask.scope), address)).collect();
    // Some wait in vain only because another one does: what that one misses is told.
    let told = vain.clone().find(|(_, held)| declined.contains_key(&held.holder)).or_else(|| vain.next());
    if let Some((address, held)) = told {
        let (holder, name) = (&held.holder, &network.config.name);
        let what = match declined.get(holder) {
            Some(at) => format!("{at} of network `{name}` in place of {address}, and {at} was declined"),
            None => format!(
                "another address of network `{name}` in place of {address}, and that one was declined, or its subnet was moved, or \
                 its holder keeps it"
            ),
        };
        let problem = format!(
            "plan {} is the latest, but a promise of it cannot come: instance `{}` was to have {what}; apply what is wished now, or \
             revert (which is refused, too, where it would leave with nothing who was committed already)",
            ask.plan, holder.owner
        );
        return Err(conflict(ask, problem));
    }
    match missing(network, ask).find(|(_, owner)| ask.covers(owner)) {
        None => Ok(()),
        Some((address, owner)) => {
            let problem = format!(
                "plan {} is the latest, but a promise of it cannot come: instance `{owner}` was to have {address} of network `{}`, \
                 which was declined, and has nothing there; apply what is wished now, commit the others (`instances`), or revert",
                ask.plan, network.config.name
            );
            Err(conflict(ask, problem))
        }
    }
}

/// What was declined although it was promised, and to which instance that has nothing in its place.
fn missing<'a>(network: &'a Network, ask: &'a Settle) -> impl Iterator<Item = (Address, &'a Owner)> {
    let broken = network.holdings.broken(&ask.scope).filter(|(_, _, promise)| {
        let taker = promise.taker(&ask.scope);
        let has_it = || network.holdings.slot(&taker).is_some() || network.holdings.is_promised(&taker);
        !ask.was_reverted(&promise.owner) && !has_it()
    });
    broken.map(|(address, _, promise)| (address, &promise.owner))
}

/// It is the latest plan, and cannot end so because of a promise.
fn conflict(ask: &Settle, problem: String) -> Refusal {
    let (deployment, plan) = (ask.scope.clone(), ask.plan);
    let hindrance = Some(PlanHindrance::Promise);
    Refusal::PlanConflict { deployment, problem, expected: plan, actual: plan, hindrance }
}

/// Lets go what covered instances leave: to whom it was promised, or for good. What they keep has no lease from here on.
fn commit(ask: &Settle, all: &[Holding<'_>], draft: &mut Draft<'_>) -> Result<Settled, Refusal> {
    let stranded = stranded_of(all);
    keeps_promises(draft.network, ask, all, &stranded)?;
    let leaving = what_leaves(draft.network, ask, all, &stranded);
    let released = let_go(ask, &leaving, draft);
    for &(address, held) in all.iter().filter(|(at, _)| !leaving.contains_key(at)) {
        if draft.has_let_go(address) {
            // It was displaced by a promise.
            continue;
        }
        let mut after = Reservation::clone(held);
        let mut planned = held.planned.as_deref().cloned().unwrap_or_default();
        if ask.covers(&held.holder.owner) {
            (planned.revived, planned.kept, planned.was_chosen) = (None, None, None);
            // Who gave it may wait still for what he gave it for: then the others are not to be taken back.
            planned.back = planned.back.filter(|_| ask.instances.is_some());
            if ask.instances.is_some() && granted_by(held, ask.plan) {
                // A revert of the others must not take it back.
                planned.settled = after.granted_by.take().map(NonZeroU64::get);
            }
            if ask.instances.is_some() && ask.was_granted_earlier(held) {
                // By the next plan nobody knows any more that this instance was committed.
                after.granted_by = None;
            }
            if is_kept_by(held, ask.plan) {
                // As one that is asked for again without a lease, an instance keeps its address for good.
                after.lease = None;
            }
        }
        after.planned = noted(planned);
        if after.lease != held.lease {
            draft.change(address, held, after, EventKind::Renewed);
        } else if after != **held {
            draft.note(address, held, after);
        }
    }
    // Of those that were taken back by themselves a commit of all lets go of that, too.
    let others = |held: &Reservation| ask.was_reverted(&held.holder.owner) && !ask.covers(&held.holder.owner);
    let earlier = all.iter().any(|(_, held)| others(held) && is_of_earlier(ask, held));
    Ok(Settled { released, decided: leaving.into_keys().collect(), earlier })
}

/// Did the plan grant it, or find it held with a lease that is to end with the commit? What came behind the apply is listed by no
/// plan, and its lease is its own. The plan wrote down what it found: times tell nothing where a clock jumped.
fn is_kept_by(held: &Reservation, plan: u64) -> bool {
    let was_kept = held.planned.as_ref().and_then(|planned| planned.kept) == Some(plan);
    (was_kept || granted_by(held, plan)) && held.obsolete.is_none() && held.leaving().is_none()
}

/// What a commit lets go, by address.
fn what_leaves<'a>(
    network: &'a Network,
    ask: &Settle,
    all: &[Holding<'a>],
    stranded: &BTreeSet<Address>,
) -> BTreeMap<Address, &'a Arc<Reservation>> {
    // What is current and promised to nobody goes when what was promised to its holder comes, and not before.
    let leaves = |(address, held): &Holding<'_>| {
        let gives = || held.leaving().is_some() && kept_promise(network, held).is_some() && !stranded.contains(address);
        ask.covers(&held.holder.owner) && (held.obsolete.is_some() || gives())
    };
    let mut leaving: BTreeMap<Address, &Arc<Reservation>> = all.iter().copied().filter(leaves).collect();
    // What a promise displaces that is kept goes too, if its holder is covered, or was by a commit before: nothing would let
    // it go any more. And that may be promised in its turn.
    let is_covered = |owner: &Owner| ask.covers(owner) || ask.was_committed(owner);
    let mut new: Vec<&Arc<Reservation>> = leaving.values().copied().collect();
    while let Some(held) = new.pop() {
        let Some(promise) = kept_promise(network, held).filter(|promise| is_covered(&promise.owner)) else { continue };
        if let Some((at, has)) = network.holdings.slot(&taker_of(held, promise))
            && leaving.insert(at, has).is_none()
        {
            new.push(has);
        }
    }
    leaving
}

/// To whom this is promised, where promises are kept: a deleted network grants nothing.
fn kept_promise<'a>(network: &Network, held: &'a Reservation) -> Option<&'a Promise> {
    held.promise().filter(|_| !network.config.closed)
}

/// Lets go what leaves. What went for good.
fn let_go(ask: &Settle, leaving: &BTreeMap<Address, &Arc<Reservation>>, draft: &mut Draft<'_>) -> Vec<Address> {
    let network = draft.network;
    let current = leaving.iter().filter(|(_, held)| held.obsolete.is_none());
    let going: BTreeMap<SlotKey, Address> = current.map(|(address, held)| (held.holder.clone(), *address)).collect();
    let taker = |held: &Reservation| kept_promise(network, held).map(|promise| taker_of(held, promise));
    let takers: BTreeSet<SlotKey> = leaving.values().filter_map(|held| taker(held)).collect();
    let mut released = Vec::new();
    for (&address, &held) in leaving {
        match kept_promise(network, held) {
            Some(promise) => {
                // What was promised to its holder in its place comes with another commit, if it comes.
                let back = (held.obsolete.is_none() && held.leaving().is_some() && !takers.contains(&held.holder))
                    .then(|| of_holder(held, ask.plan));
                draft.keep_promise(address, held, promise, (ask.plan, back), &going);
            }
            None => {
                draft.release(address, held, EventKind::Released);
                released.push(address);
            }
        }
    }
    released
}

/// Who gets an address that is promised.
pub(super) fn taker_of(held: &Reservation, promise: &Promise) -> SlotKey {
    promise.taker(&held.holder.scope)
}

/// A promise to who holds an address.
fn of_holder(held: &Reservation, plan: u64) -> Promise {
    Promise { plan, owner: held.holder.owner.clone(), slot: held.holder.slot.clone() }
}

fn noted(planned: Planned) -> Option<Box<Planned>> {
    (planned != Planned::default()).then(|| Box::new(planned))
}

/// Lets go what the plan granted to covered instances, and makes current again what it made obsolete. Who gave an address by a
/// commit of his own, and waits for one that does not come now, gets his back.
fn revert(ask: &Settle, all: &[Holding<'_>], draft: &mut Draft<'_>) -> Result<Settled, Refusal> {
    let is_taken_back = |held: &Reservation| ask.covers(&held.holder.owner) && granted_by(held, ask.plan);
    let (taken_back, rest): (Vec<Holding<'_>>, Vec<_>) = all.iter().partition(|(_, held)| is_taken_back(held));
    let (released, given) = take_back(ask, &taken_back, draft);
    let mut rest = without_the_plan(ask, rest, draft);
    revive(ask, &given, &mut rest, draft);
    let decided = end_vain_waits(ask, &mut rest);
    leaves_nobody_without(ask, all, (&rest, &given), draft)?;
    let earlier = write_what_stays(ask, rest, draft);
    Ok(Settled { released, decided, earlier })
}

/// Who was committed by himself and has nothing until what was promised to him comes is not left so, now that it would not come:
/// he had nothing before, or what he let go is another one's, who was committed, too. `given`: slots that got theirs back.
fn leaves_nobody_without(
    ask: &Settle,
    all: &[Holding<'_>],
    (staying, given): (&[Staying<'_>], &BTreeSet<SlotKey>),
    draft: &Draft<'_>,
) -> Result<(), Refusal> {
    let network = draft.network;
    // Looked up only where somebody waits so: few plans end like that.
    let look = || -> BTreeSet<SlotKey> {
        staying.iter().filter_map(|(_, after)| Some(taker_of(after, after.promise()?))).collect()
    };
    let mut still_promised = None;
    for (address, held) in all.iter().filter(|_| !network.config.closed) {
        let Some(promise) = held.promise().filter(|promise| ask.was_committed(&promise.owner)) else { continue };
        let taker = taker_of(held, promise);
        let has_it = network.holdings.slot(&taker).is_some() || given.contains(&taker);
        if has_it || still_promised.get_or_insert_with(look).contains(&taker) {
            continue;
        }
        let problem = format!(
            "plan {} is the latest, but instance `{}` was committed, and has nothing in network `{}` until {address} comes to it, \
             which instance `{}` lets go; commit that one, too, or, where that is refused, apply what is wished now, or delete the \
             deployment",
            ask.plan, promise.owner, network.config.name, held.holder.owner
        );
        return Err(conflict(ask, problem));
    }
    Ok(())
}

/// Who waits for what does not come any more waits no longer. Of them those about whom nobody need decide any more.
fn end_vain_waits(ask: &Settle, staying: &mut [Staying<'_>]) -> BTreeSet<Address> {
    let stranded = stranded(staying.iter().map(|((address, _), after)| (*address, after)));
    let mut decided = BTreeSet::new();
    for ((address, held), after) in staying.iter_mut().filter(|((address, _), _)| stranded.contains(address)) {
        if ask.was_committed(&held.holder.owner) {
            decided.insert(*address);
        }
        if let Some(mut planned) = after.planned.take() {
            (planned.leaving, planned.promise) = (None, None);
            after.planned = noted(*planned);
        }
    }
    decided
}

/// Takes back what the plan granted. What was let go for good, and the slots of those who got back what they had given.
fn take_back(ask: &Settle, granted: &[Holding<'_>], draft: &mut Draft<'_>) -> (Vec<Address>, BTreeSet<SlotKey>) {
    let network = draft.network;
    let (mut released, mut given) = (Vec::new(), BTreeSet::new());
    for &(address, held) in granted {
        let back = held.planned.as_ref().and_then(|planned| planned.back.as_ref());
        let back = back.filter(|back| back.plan == ask.plan && !network.config.closed).map(|back| taker_of(held, back));
        match back.filter(|giver| network.holdings.slot(giver).is_none()) {
            Some(giver) => {
                draft.leaves(address, held);
                draft.give(address, held, giver.clone(), None, None);
                given.insert(giver);
            }
            None => {
                draft.release_for_good(address, held, EventKind::Reverted);
                released.push(address);
            }
        }
    }
    (released, given)
}

/// A holding that stays, and what it is to be after the revert.
type Staying<'a> = (Holding<'a>, Reservation);

/// What the plan did not grant, without what the plan had in mind with it.
fn without_the_plan<'a>(ask: &Settle, rest: Vec<Holding<'a>>, draft: &mut Draft<'_>) -> Vec<Staying<'a>> {
    let covered = |held: &Reservation| ask.covers(&held.holder.owner);
    let mut staying = Vec::with_capacity(rest.len());
    for (address, held) in rest {
        let mut after = Reservation::clone(held);
        let mut planned = held.planned.as_deref().cloned().unwrap_or_default();
        let ends = |promise: &Promise| promise.plan == ask.plan && (covered(held) || ask.covers(&promise.owner));
        planned.promise = planned.promise.filter(|promise| !ends(promise));
        if covered(held) {
            planned.leaving = planned.leaving.filter(|plan| *plan != ask.plan);
            planned.unlisted = planned.unlisted.filter(|plan| *plan != ask.plan);
            planned.kept = planned.kept.filter(|plan| *plan != ask.plan);
            if planned.was_chosen == Some(ask.plan) {
                planned.was_chosen = None;
                after.kind = ReservationKind::Dynamic;
            }
            if let Some((plan, was)) = planned.revived
                && plan == ask.plan
            {
                planned.revived = None;
                after.obsolete = after.obsolete.or_else(|| Some(Box::new(was)));
                draft.leaves(address, held);
            }
        }
        after.planned = noted(planned);
        staying.push(((address, held), after));
    }
    staying
}

/// Makes current again what the plan made obsolete, one for each slot that is vacant. `given`: slots that got theirs back.
fn revive(ask: &Settle, given: &BTreeSet<SlotKey>, staying: &mut [Staying<'_>], draft: &Draft<'_>) {
    let mut restored = BTreeSet::new();
    for ((_, held), after) in staying {
        let covered = ask.covers(&held.holder.owner);
        let by_it = held.obsolete.as_ref().is_some_and(|obsolete| obsolete.plan == ask.plan);
        // Whoever got another one by himself meanwhile keeps that one.
        let vacant = || draft.network.holdings.slot(&held.holder).is_none_or(|(at, _)| draft.has_let_go(at));
        if covered && by_it && vacant() && !given.contains(&held.holder) && restored.insert(&held.holder) {
            after.obsolete = None;
            // It is not let go, so it is promised to nobody, whichever plan promised it.
            if let Some(mut planned) = after.planned.take() {
                planned.promise = planned.promise.filter(|_| planned.leaving.is_some());
                after.planned = noted(*planned);
            }
        }
    }
}

/// Writes what changes of what stays. Whether something waits still for a commit that earlier plans left, or granted.
fn write_what_stays(ask: &Settle, staying: Vec<Staying<'_>>, draft: &mut Draft<'_>) -> bool {
    let mut earlier = false;
    for ((address, held), after) in staying {
        earlier |= is_of_earlier(ask, &after);
        match (held.obsolete.is_some(), after.obsolete.is_some()) {
            (true, false) => draft.restore(address, held, after),
            (false, true) => drop(draft.change(address, held, after, EventKind::Obsolete)),
            _ if after.kind != held.kind => drop(draft.change(address, held, after, EventKind::Updated)),
            _ if after != **held => drop(draft.note(address, held, after)),
            _ => {}
        }
    }
    earlier
}

impl Draft<'_> {
    /// The holder lets an address go that was promised: it becomes the taker's, and what the taker holds in that slot
    /// becomes obsolete, unless it goes itself (`going`: by slot). `back`: to whom a revert gives it.
    pub(super) fn keep_promise(
        &mut self,
        address: Address,
        held: &Arc<Reservation>,
        promise: &Promise,
        (plan, back): (u64, Option<Promise>),
        going: &BTreeMap<SlotKey, Address>,
    ) {
        let taker = taker_of(held, promise);
        let holds = self.network.holdings.slot(&taker).filter(|(at, _)| going.get(&taker) != Some(at));
        if let Some((at, has)) = holds.filter(|(at, _)| *at != address && !self.has_let_go(*at)) {
            let mut after = Reservation::clone(has);
            after.obsolete = Some(Box::new(Obsolete { since: self.context.wall, plan }));
            let promise = has.promise().filter(|promise| !self.ends(has, promise)).cloned();
            after.planned = promise.map(|promise| Box::new(Planned { promise: Some(promise), ..Planned::default() }));
            self.leaves(at, has);
            self.change(at, has, after, EventKind::Obsolete);
            self.displaced += 1;
        }
        self.leaves(address, held);
        self.give(address, held, taker, NonZeroU64::new(plan), back);
    }
}
