//! The part of `deployment.commit` and `deployment.revert` that concerns one network; and how a promise is kept.
//!
//! Nothing is looked up in a list of what a plan did, because the reservations have that themselves. So commit and revert
//! can be repeated, and what was released or renewed in the meantime stays so. A promise leaves nobody without an address:
//! an instance that waits for an address whose holder was reverted keeps its own.
//!
//! No promise ends silently as long as anything is left that shows it. If what was promised can no longer come (it was
//! declined, its subnet moved, the network is deleted), a commit that covers the waiting instance is refused. So is a revert
//! if an instance that was already committed, and waits for its address, would be left with nothing. And a plan that is ended
//! instance by instance does not end while anything is undecided about an instance, or while one misses what was declined.

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
    /// Commits or reverts a plan.
    ///
    /// # Errors
    /// `in_use` for a promise in a deleted network; `conflict` if a promise cannot be kept, or has to be.
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
        // An instance to which something is promised is affected even if it holds nothing yet.
        let takers = all.iter().filter_map(|(_, held)| Some(&held.promise()?.owner));
        let missing = self.holdings.broken(&ask.scope).map(|(_, _, promise)| &promise.owner);
        instances.extend(takers.chain(missing).filter(|owner| ask.names(owner)).cloned());
        Ok(self.and_vanish(draft, Outcome::Settled { released, left, earlier, others_keep, instances }))
    }
}

impl Network {
    /// The holdings of a scope that plans have to do with, ascending; the end of a plan changes no others. `meet` is called
    /// for everything that the scope holds.
    ///
    /// Cost: one look at everything that the scope holds.
    fn concerned(&self, ask: &Settle, mut meet: impl FnMut(&Reservation)) -> Vec<Holding<'_>> {
        let granted = |held: &Reservation| granted_by(held, ask.plan) || ask.was_granted_earlier(held);
        let by_a_plan = |held: &Reservation| held.planned.is_some() || held.obsolete.is_some() || granted(held);
        let met = self.holdings.of_scope(&ask.scope).inspect(|(_, held)| meet(held));
        let mut all: Vec<Holding<'_>> = met.filter(|(_, held)| by_a_plan(held)).collect();
        all.sort_unstable_by_key(|(address, _)| *address);
        all
    }

    /// Tells why a commit would be refused.
    pub(super) fn hindered(&self, ask: &Settle) -> Decision {
        let all = self.concerned(ask, |_| {});
        let refused = keeps_promises(self, ask, &all, &stranded_of(&all)).err();
        read(Outcome::Hindered(refused.map(|refusal| refusal.to_string())))
    }
}

/// How many holdings that the request does not cover are still to be decided. `decided`: what went with the others, or stays
/// for good.
///
/// While there are any, the plan has not ended. Otherwise what ends by itself later (a lease) would be lost silently,
/// although every instance was committed.
fn left_open(network: &Network, ask: &Settle, all: &[Holding<'_>], decided: &BTreeSet<Address>) -> u64 {
    let open = |held: &Reservation| {
        let taken_back = held.planned.as_ref().and_then(|planned| planned.revived).map(|(plan, _)| plan);
        // What a revert could not make current again is finished, and what earlier plans had left as it is does not belong
        // to this one.
        let is_undecided = || held.obsolete.is_some() || held.leaving().is_some() || ask.was_granted_earlier(held);
        !ask.was_reverted(&held.holder.owner) && is_undecided()
            || granted_by(held, ask.plan) && !ask.was_committed(&held.holder.owner)
            || taken_back == Some(ask.plan)
            || is_kept_by(held, ask.plan) && held.lease.is_some()
    };
    // What becomes obsolete because a promise was kept is not covered, so its own commit is still to come.
    let others = all.iter().filter(|(address, held)| !ask.covers(&held.holder.owner) && !decided.contains(address));
    let open = others.filter(|(_, held)| open(held)).count();
    // An instance whose promised address was declined may hold nothing that shows it.
    let without = missing(network, ask).filter(|(_, owner)| !ask.covers(owner)).count();
    (open + without) as u64
}

/// Is anything about it left to decide from earlier plans that were never ended?
fn is_of_earlier(ask: &Settle, held: &Reservation) -> bool {
    let obsolete = || held.obsolete.as_ref().is_some_and(|obsolete| ask.is_earlier_and_open(obsolete.plan));
    obsolete() || held.leaving().is_some() || ask.was_granted_earlier(held)
}

fn granted_by(held: &Reservation, plan: u64) -> bool {
    held.granted_by.map(NonZeroU64::get) == Some(plan)
}

/// Current holdings whose holder waits for a promised address that nobody will let go any more. Such a holding stays, so
/// whatever it was to leave to another slot does not get there either.
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
        // A slot to which something is promised need not be waiting for it.
        let Some((address, promise)) = waiting.remove(&slot) else { continue };
        stranded.insert(address);
        next.extend(promise.map(|promise| (&promise.owner, &promise.slot)));
    }
    stranded
}

fn stranded_of(all: &[Holding<'_>]) -> BTreeSet<Address> {
    stranded(all.iter().map(|(address, held)| (*address, held.as_ref())))
}

/// The result of committing or reverting a plan here, or a part of it.
struct Settled {
    /// The addresses that were let go for good.
    released: Vec<Address>,
    /// Addresses of instances that are not covered, which went all the same or stay for good. Nothing about them is left to
    /// decide.
    decided: BTreeSet<Address>,
    /// Whether something that earlier plans left or granted still waits for a commit.
    earlier: bool,
}

/// Can covered instances get what the plan promised them? A declined address is known until its probation is over.
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
            "{address} of network `{name}` is promised{to}, but `{name}` was deleted and grants nothing; bring it back with \
             network.restore, apply without it, or revert"
        );
        let (count, first) =
            (gives().count() as u64, gives().take(STANDING_FIRST_MAX).map(|(address, _)| *address).collect());
        return Err(Refusal::Guarded { problem, count, first });
    }
    let mut vain = covered().filter(|(address, _)| stranded.contains(address));
    let broken = || network.holdings.broken(&ask.scope).filter(|_| !stranded.is_empty());
    let declined: BTreeMap<SlotKey, Address> =
        broken().map(|(address, _, promise)| (promise.taker(&ask.scope), address)).collect();
    // Some wait in vain only because another one does, so what that other one misses is reported.
    let told = vain.clone().find(|(_, held)| declined.contains_key(&held.holder)).or_else(|| vain.next());
    if let Some((address, held)) = told {
        let (holder, name) = (&held.holder, &network.config.name);
        let what = match declined.get(holder) {
            Some(at) => format!("{at} of network `{name}` in place of {address}, but {at} was declined"),
            None => format!(
                "another address of network `{name}` in place of {address}, but that one was declined, its subnet was moved, or \
                 its holder keeps it"
            ),
        };
        let problem = format!(
            "plan {} is the latest, but it cannot be committed: instance `{}` was promised {what}; apply what you want now, or \
             revert (which is also refused if it would leave an instance with nothing that was already committed)",
            ask.plan, holder.owner
        );
        return Err(conflict(ask, problem));
    }
    match missing(network, ask).find(|(_, owner)| ask.covers(owner)) {
        None => Ok(()),
        Some((address, owner)) => {
            let problem = format!(
                "plan {} is the latest, but it cannot be committed: instance `{owner}` was promised {address} of network `{}`, \
                 which was declined, and it has nothing else there; apply what you want now, commit the others (`instances`), \
                 or revert",
                ask.plan, network.config.name
            );
            Err(conflict(ask, problem))
        }
    }
}

/// Promised addresses that were declined, and to which instance, if it has nothing in their place.
fn missing<'a>(network: &'a Network, ask: &'a Settle) -> impl Iterator<Item = (Address, &'a Owner)> {
    let broken = network.holdings.broken(&ask.scope).filter(|(_, _, promise)| {
        let taker = promise.taker(&ask.scope);
        let has_it = || network.holdings.slot(&taker).is_some() || network.holdings.is_promised(&taker);
        !ask.was_reverted(&promise.owner) && !has_it()
    });
    broken.map(|(address, _, promise)| (address, &promise.owner))
}

/// The refusal if it is the latest plan but cannot end this way because of a promise.
fn conflict(ask: &Settle, problem: String) -> Refusal {
    let (deployment, plan) = (ask.scope.clone(), ask.plan);
    let hindrance = Some(PlanHindrance::Promise);
    Refusal::PlanConflict { deployment, problem, expected: plan, actual: plan, hindrance }
}

/// Lets go of what covered instances leave: it goes to the slot to which it was promised, or for good. What they keep loses
/// its lease.
fn commit(ask: &Settle, all: &[Holding<'_>], draft: &mut Draft<'_>) -> Result<Settled, Refusal> {
    let stranded = stranded_of(all);
    keeps_promises(draft.network, ask, all, &stranded)?;
    let leaving = what_leaves(draft.network, ask, all, &stranded);
    let released = let_go(ask, &leaving, draft);
    for &(address, held) in all.iter().filter(|(at, _)| !leaving.contains_key(at)) {
        if draft.has_let_go(address) {
            // A kept promise has displaced it.
            continue;
        }
        let mut after = Reservation::clone(held);
        let mut planned = held.planned.as_deref().cloned().unwrap_or_default();
        if ask.covers(&held.holder.owner) {
            (planned.revived, planned.kept, planned.was_chosen) = (None, None, None);
            // The slot that gave it up may still wait for another address, so the note is needed for a revert of the others.
            planned.back = planned.back.filter(|_| ask.instances.is_some());
            if ask.instances.is_some() && granted_by(held, ask.plan) {
                // A revert of the others must not take it back.
                planned.settled = after.granted_by.take().map(NonZeroU64::get);
            }
            if ask.instances.is_some() && ask.was_granted_earlier(held) {
                // The next plan will not know that this instance was committed.
                after.granted_by = None;
            }
            if is_kept_by(held, ask.plan) {
                // Like a wish that is repeated without a lease, this makes the address permanent.
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
    // A commit of all also lets go of what belongs to instances that were reverted on their own.
    let others = |held: &Reservation| ask.was_reverted(&held.holder.owner) && !ask.covers(&held.holder.owner);
    let earlier = all.iter().any(|(_, held)| others(held) && is_of_earlier(ask, held));
    Ok(Settled { released, decided: leaving.into_keys().collect(), earlier })
}

/// Did the plan find it held with a lease, which the commit is to end, also if it was renewed since? What was permanent at the
/// apply, or came after it, keeps the lease that it was given later. The plan recorded what it found, because times prove nothing
/// if a clock jumped.
fn is_kept_by(held: &Reservation, plan: u64) -> bool {
    let was_kept = held.planned.as_ref().and_then(|planned| planned.kept) == Some(plan);
    was_kept && held.obsolete.is_none() && held.leaving().is_none()
}

/// What a commit lets go, by address.
fn what_leaves<'a>(
    network: &'a Network,
    ask: &Settle,
    all: &[Holding<'a>],
    stranded: &BTreeSet<Address>,
) -> BTreeMap<Address, &'a Arc<Reservation>> {
    // A current holding that is promised to nobody goes only when what is promised to its holder comes (see below).
    let leaves = |(address, held): &Holding<'_>| {
        let gives = || held.leaving().is_some() && kept_promise(network, held).is_some() && !stranded.contains(address);
        ask.covers(&held.holder.owner) && (held.obsolete.is_some() || gives())
    };
    let mut leaving: BTreeMap<Address, &Arc<Reservation>> = all.iter().copied().filter(leaves).collect();
    // What a kept promise displaces goes too, if its holder is covered, or was committed before: nothing else would ever let
    // it go. And it may itself be promised to another slot.
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

/// The slot to which this is promised, unless the network is deleted and grants nothing.
fn kept_promise<'a>(network: &Network, held: &'a Reservation) -> Option<&'a Promise> {
    held.promise().filter(|_| !network.config.closed)
}

/// Lets go of what leaves. Returns what went for good.
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
                // What was promised to its holder in return comes with another commit, if at all.
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

/// The slot that gets a promised address.
pub(super) fn taker_of(held: &Reservation, promise: &Promise) -> SlotKey {
    promise.taker(&held.holder.scope)
}

/// A promise to the present holder of an address.
fn of_holder(held: &Reservation, plan: u64) -> Promise {
    Promise { plan, owner: held.holder.owner.clone(), slot: held.holder.slot.clone() }
}

fn noted(planned: Planned) -> Option<Box<Planned>> {
    (planned != Planned::default()).then(|| Box::new(planned))
}

/// Lets go of what the plan granted to covered instances, and makes current again what it made obsolete. An instance that
/// gave up an address by its own commit, and waits for one that will not come now, gets its own back.
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

/// Refuses if an instance that was committed on its own would be left with nothing, because what was promised to it would
/// not come now: it had nothing before, or what it gave up belongs to another instance that was also committed. `given`:
/// slots that got theirs back.
fn leaves_nobody_without(
    ask: &Settle,
    all: &[Holding<'_>],
    (staying, given): (&[Staying<'_>], &BTreeSet<SlotKey>),
    draft: &Draft<'_>,
) -> Result<(), Refusal> {
    let network = draft.network;
    // Looked up only if somebody waits like that, because few plans end that way.
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
            "plan {} is the latest, but instance `{}` was committed, and has nothing in network `{}` until it gets {address}, \
             which instance `{}` still holds; commit that one, too, or, if that is refused, apply what you want now, or delete \
             the deployment",
            ask.plan, promise.owner, network.config.name, held.holder.owner
        );
        return Err(conflict(ask, problem));
    }
    Ok(())
}

/// Ends the waits for addresses that will not come any more. Returns those holdings about which nothing is left to decide.
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

/// Takes back what the plan granted. Returns what was let go for good, and the slots that got back what they had given up.
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

/// A holding that stays, and what it will be after the revert.
type Staying<'a> = (Holding<'a>, Reservation);

/// The holdings that the plan did not grant, without what the plan intended with them.
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

/// Makes current again what the plan made obsolete, one holding for each vacant slot. `given`: slots that got theirs back.
fn revive(ask: &Settle, given: &BTreeSet<SlotKey>, staying: &mut [Staying<'_>], draft: &Draft<'_>) {
    let mut restored = BTreeSet::new();
    for ((_, held), after) in staying {
        let covered = ask.covers(&held.holder.owner);
        let by_it = held.obsolete.as_ref().is_some_and(|obsolete| obsolete.plan == ask.plan);
        // An instance that has got another address on its own since then keeps that one.
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

/// Writes the changes of what stays. Returns whether something that earlier plans left or granted still waits for a commit.
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
    /// The holder lets go of a promised address: the taker gets it, and what the taker holds in that slot becomes obsolete,
    /// unless it goes too (`going`, by slot). `back`: the slot to which a revert gives the address.
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
        if let Some((at, _)) = holds.filter(|(at, _)| *at != address && !self.has_let_go(*at))
            && let Some(has) = self.held_now(at)
        {
            let mut after = Reservation::clone(&has);
            after.obsolete = Some(Box::new(Obsolete { since: self.context.wall, plan }));
            let promise = has.promise().filter(|promise| !self.ends(&has, promise)).cloned();
            after.planned = promise.map(|promise| Box::new(Planned { promise: Some(promise), ..Planned::default() }));
            self.leaves(at, &has);
            self.change(at, &has, after, EventKind::Obsolete);
            self.displaced += 1;
        }
        self.leaves(address, held);
        self.give(address, held, taker, NonZeroU64::new(plan), back);
    }
}
