//! The part of `deployment.plan` and `deployment.apply` that concerns one network.
//!
//! ```text
//! 1 keep      what is held and still fits; also what an earlier plan made obsolete and is wished for again
//! 2 leave     the rest becomes obsolete; if the wish of its slot is only promised, it stays current and leaves later
//! 3 promise   a named address that another instance lets go is kept for the one that wishes for it
//! 4 grant     named addresses, then automatic ones: nothing that this plan lets go is free before its commit
//! ```
//!
//! All of this is decided before the first step is written down, so that a refusal changes nothing. What groups deal is
//! dealt before that (`deal`). The refusals of all wishes are collected, and the first in the protocol's order is answered.
//!
//! Review notes: can a wish end in two reservations, or a reservation be kept by two wishes? Is a repeat without steps?

use std::collections::{BTreeMap, BTreeSet, HashMap, btree_map};
use std::num::NonZeroU64;
use std::sync::Arc;

use super::Network;
use super::draft::{Draft, held_by};
use super::holdings::Holding;
use super::refused::WishRefusals;
use crate::core::address::{Address, Range};
use crate::core::command::{Context, GrantOptions, Wish};
use crate::core::deployment::{Deploy, DeployWish, Deployed, SlotState, Wanted, too_long_to_tell};
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::{Refusal, members};
use crate::core::state::{
    Entry, EventKind, NetworkKind, Obsolete, Planned, PoolKind, Promise, Reservation, ReservationKind,
};
use crate::core::types::{Generation, Owner, Scope, Slot, SlotKey};
use crate::limits::{ANSWERED_RESERVATION_BYTES, WHOLE_ANSWER_BYTES_MAX};

/// What to do about a wish.
enum Course<'a> {
    /// The slot holds it.
    Keep(Holding<'a>),
    /// The slot held it until it became obsolete; with what the slot holds now.
    Revive(Holding<'a>, Option<Address>),
    /// It must be granted, in place of what the slot holds now.
    Grant(Option<Address>),
    /// Another instance holds it and lets it go; what the slot holds now stays until then.
    Await(Holding<'a>, Option<Address>),
    /// The infrastructure picks the address, and nobody has recorded which.
    Nothing,
}

impl<'a> Course<'a> {
    /// The course if the wish is for what the slot holds, or held until a plan made it obsolete. `replaces` is what it holds
    /// now.
    fn of_own(own: Holding<'a>, replaces: Option<Address>) -> Self {
        if own.1.obsolete.is_none() { Course::Keep(own) } else { Course::Revive(own, replaces) }
    }
}

/// What becomes of the deployment's holdings.
#[derive(Default)]
struct Fates {
    /// Addresses that a wish keeps, and whether the wish names the address.
    stays: BTreeMap<Address, bool>,
    /// Slots to which only a promise is made.
    awaiting: BTreeSet<(Owner, Slot)>,
    /// The addresses that are promised, and to which slot.
    promises: BTreeMap<Address, (Owner, Slot)>,
}

/// What plans made obsolete, by the slot that held it.
pub(super) struct LetGo<'a>(HashMap<&'a SlotKey, Vec<Holding<'a>>>);

impl<'a> LetGo<'a> {
    /// Collects those of a scope. Cost: O(what the scope holds) if anything of it is obsolete.
    pub(super) fn of_scope(network: &'a Network, scope: &Scope) -> Self {
        let mut by_slot: HashMap<&SlotKey, Vec<Holding<'_>>> = HashMap::new();
        let holdings = &network.holdings;
        let any = holdings.scope_held(scope) > holdings.scope_count(scope);
        let all = any.then(|| holdings.of_scope(scope)).into_iter().flatten();
        for (address, held) in all.filter(|(_, held)| held.obsolete.is_some()) {
            by_slot.entry(&held.holder).or_default().push((address, held));
        }
        Self(by_slot)
    }

    /// Those of a slot.
    pub(super) fn of(&self, holder: &SlotKey) -> impl Iterator<Item = Holding<'a>> {
        self.0.get(holder).into_iter().flatten().copied()
    }
}

impl Network {
    /// Decides what a deployment wishes of this network.
    pub(super) fn deploy(&self, ask: &Deploy, context: Context) -> Result<Decision, Refusal> {
        self.little_enough_to_tell(ask)?;
        let mut refused = WishRefusals::default();
        let let_go = &LetGo::of_scope(self, &ask.scope);
        let (ask, dealt) = self.deal(ask, let_go, &mut refused);
        let ask = &ask;
        self.wished_once(ask, &mut refused);
        let mut courses: Vec<Option<Course<'_>>> = Vec::with_capacity(ask.wishes.len());
        let mut fates = Fates::default();
        for wish in &ask.wishes {
            let course = refused.note(wish, self.course(ask, wish, let_go));
            if let Some(Course::Keep((address, _)) | Course::Revive((address, _), _)) = course {
                fates.stays.insert(address, wish.named().is_some());
            }
            courses.push(course);
        }
        // Only now is it known which instances let which addresses go.
        for (wish, course) in ask.wishes.iter().zip(&mut courses) {
            if let (Some(Course::Grant(replaces)), Wanted::Static(address)) = (&course, &wish.wanted)
                && let Some(held) = self.let_go_by_another(ask, wish, *address, &fates)
            {
                if let Some((owner, slot)) = fates.promises.get(address) {
                    let taker = SlotKey { scope: ask.scope.clone(), owner: owner.clone(), slot: slot.clone() };
                    refused.note::<()>(wish, Err(self.wished_twice(*address, &taker, held)));
                    continue;
                }
                fates.promises.insert(*address, (wish.owner.clone(), wish.slot.clone()));
                fates.awaiting.insert((wish.owner.clone(), wish.slot.clone()));
                *course = Some(Course::Await((*address, held), *replaces));
            }
        }
        let mut draft = Draft::new(self, context);
        draft.granted_by = NonZeroU64::new(ask.plan);
        draft.promises_anew(&ask.scope);
        let (obsolete, mut changed) = self.leave(ask, &fates, &mut draft);
        let mut deployed = Vec::with_capacity(courses.len());
        // Named addresses come first, because an automatic grant must not take one of them.
        let named = |wish: &DeployWish| matches!(wish.wanted, Wanted::Static(_));
        let both = ask.wishes.iter().zip(&courses);
        for (wish, course) in both.clone().filter(|(w, _)| named(w)).chain(both.filter(|(w, _)| !named(w))) {
            changed |= matches!(course, Some(Course::Grant(_)));
            let Some(course) = course else { continue };
            draft.room_is_untold = refused.before_want_of_room(wish.place);
            let done = self.carry_out(ask, wish, course, (&fates, let_go), &mut draft);
            if let Err(refusal) = &done {
                self.count_refused(&mut draft, &holder_of(ask, wish), refusal);
            }
            deployed.extend(refused.note(wish, done));
        }
        refused.end().map_err(|refusal| self.recounted(ask, &draft, refusal))?;
        // Every wish is granted or promised now, so promises that were broken before no longer matter.
        draft.forget_broken(&ask.scope, None, usize::MAX);
        let mut views = Vec::with_capacity(obsolete.len());
        for (address, held) in obsolete {
            views.push(draft.view(address, held));
        }
        Ok(draft.finish(Outcome::Deployed { slots: deployed, obsolete: views, changed, dealt }))
    }

    /// Refuses a plan that lets go of more than an answer can list, before anything is done. A mistyped deployment name can
    /// be the `default` scope, to which everything without a scope belongs.
    ///
    /// Cost: O(1) if the scope holds no more than an answer can list.
    fn little_enough_to_tell(&self, ask: &Deploy) -> Result<(), Refusal> {
        // A wish keeps at most one address, and additionally what its slot holds until it gets another.
        let least = |held: u64| held.saturating_sub(2 * ask.wishes.len() as u64) as usize;
        let bytes = |let_go: usize| let_go.saturating_mul(ANSWERED_RESERVATION_BYTES);
        let fits = |held: u64| bytes(least(held)) <= WHOLE_ANSWER_BYTES_MAX;
        if fits(self.holdings.scope_held(&ask.scope)) {
            return Ok(());
        }
        let told = |held: &Reservation| held.obsolete.is_some() || !held.transient;
        let held = self.holdings.of_scope(&ask.scope).filter(|(_, held)| told(held)).count() as u64;
        if fits(held) { Ok(()) } else { Err(too_long_to_tell(bytes(least(held)), least(held))) }
    }

    /// What to do about a wish, as far as that can be said without the other wishes.
    fn course<'a>(&'a self, ask: &Deploy, wish: &DeployWish, let_go: &LetGo<'a>) -> Result<Course<'a>, Refusal> {
        let holder = holder_of(ask, wish);
        let current = self.holdings.slot(&holder);
        let replaces = current.map(|(address, _)| address);
        match &wish.wanted {
            Wanted::Automatic(wanted) => match self.own_serving(ask, wish, wanted, let_go)? {
                Some(held) => self.is_open().map(|()| Course::of_own(held, replaces)),
                None if self.config.kind == NetworkKind::Dynamic => self.is_open().map(|()| Course::Nothing),
                None => Ok(Course::Grant(replaces)),
            },
            Wanted::Static(address) => {
                let wanted = &with_zone(&Wish::default(), wish);
                let single = |held: &Reservation| held.prefix_length == address.family().width();
                let mut own = current.into_iter().chain(let_go.of(&holder));
                if let Some(held) = own.find(|(at, held)| at == address && single(held)) {
                    self.takes_claims()?;
                    self.claim_admitted(*address, None, wanted)?;
                    self.is_open()?;
                    if !self.may_stay(*address) {
                        // It drains, so it can neither be kept nor claimed anew.
                        self.claimable_address(Range::single(*address), &holder, None, false)?;
                    }
                    return Ok(Course::of_own(held, replaces));
                }
                match self.holdings.covering(*address) {
                    // A block stays whole until the commit, even for the instance that lets it go.
                    Some((base, Entry::Held(held))) if held.holder == holder => {
                        self.claimable_here(*address, wanted)?;
                        Err(self.held_there(Range::single(*address), base, held))
                    }
                    Some(_) | None => Ok(Course::Grant(replaces)),
                }
            }
            // It could not be dealt: it was refused already, or the network is dynamic.
            Wanted::Dealt(_) => self.takes_claims().map(|()| Course::Nothing),
        }
    }

    /// What a slot keeps for an automatic wish: what it holds, or else what it held until a plan made it obsolete.
    pub(super) fn own_serving<'a>(
        &'a self,
        ask: &Deploy,
        wish: &DeployWish,
        wanted: &Wish,
        let_go: &LetGo<'a>,
    ) -> Result<Option<Holding<'a>>, Refusal> {
        let holder = holder_of(ask, wish);
        let own = |serves: &dyn Fn(&Holding<'a>) -> bool| {
            let left = || let_go.of(&holder).filter(serves).max_by_key(|(_, held)| held.generation);
            self.holdings.slot(&holder).filter(serves).or_else(left)
        };
        // A repeat must move nobody twice. But whoever has committed the plan knows what it gave, and now wishes for another
        // address.
        let repeats = ask.is_repeat();
        let wanted = &with_zone(wanted, wish);
        let selection = self.select(wanted)?;
        if self.config.kind == NetworkKind::Dynamic {
            // It has no subnets and no pools, so whatever is named is not found.
            self.require_pool(wanted, &selection, None)?;
            let of_family = |at: &Address| wanted.family.is_none_or(|family| family == at.family());
            // What is held when the same plan comes again was recorded since.
            return Ok(own(&|(address, _)| of_family(address) && (!wish.fresh || repeats)));
        }
        let by_plan = |plan: Option<u64>| repeats && plan == Some(ask.plan);
        Ok(own(&|(address, held)| {
            let settled = held.planned.as_ref().and_then(|planned| planned.settled);
            let granted_by_it = by_plan(held.granted_by.map(NonZeroU64::get)) || by_plan(settled);
            if wish.fresh && !granted_by_it {
                return false;
            }
            let any = self.config.kind == NetworkKind::Vip && *wanted == with_zone(&Wish::default(), wish);
            // In a static pool, an automatic wish may be given an address that is reserved for it, and then keeps it.
            let is_chosen = held.kind == ReservationKind::Dynamic;
            let was_reserved = || is_chosen && self.kept_for(&holder).any(|kept| kept == *address);
            let automatic = || !self.is_static(*address) || was_reserved();
            let as_wished = || automatic() && self.differences(wanted, &selection, *address, held).is_empty();
            self.may_stay(*address) && self.serves(*address, wish) && (any || as_wished())
        }))
    }

    /// Does the subnet of a holding allow that it stays?
    pub(super) fn may_stay(&self, address: Address) -> bool {
        self.layout.subnet_of(address).is_some_and(|index| !self.subnets[index].draining)
    }

    fn is_static(&self, address: Address) -> bool {
        self.layout.pool_of(address).is_some_and(|index| self.pool_config(index).kind == PoolKind::Static)
    }

    /// The holding at an address that another instance or slot of the same deployment lets go by this plan.
    fn let_go_by_another(
        &self,
        ask: &Deploy,
        wish: &DeployWish,
        address: Address,
        fates: &Fates,
    ) -> Option<&Arc<Reservation>> {
        let Some(Entry::Held(held)) = self.holdings.at(address) else { return None };
        let other = held.holder.owner != wish.owner || held.holder.slot != wish.slot;
        let whole = held.prefix_length == address.family().width();
        let goes = !fates.stays.contains_key(&address) && !self.stays_unlisted(ask, held);
        (held.holder.scope == ask.scope && other && whole && goes).then_some(held)
    }

    /// Is it a transient holding that this plan is the first not to list? Then it stays. The same wishes after the commit of
    /// that plan count as the next deploy, and with that one it goes.
    fn stays_unlisted(&self, ask: &Deploy, held: &Reservation) -> bool {
        let missed = held.planned.as_ref().and_then(|planned| planned.unlisted);
        held.transient
            && held.obsolete.is_none()
            && !ask.listed.contains(&held.holder.owner)
            && missed.is_none_or(|plan| plan > ask.plan || plan == ask.plan && !ask.is_behind_commit())
    }

    fn wished_twice(&self, address: Address, taker: &SlotKey, held: &Reservation) -> Refusal {
        Refusal::Taken {
            problem: format!(
                "{address} of network `{}` is also requested for {taker}; request it only once",
                self.config.name
            ),
            network: None,
            address: Some(address),
            held_by: Some(Box::new(held_by(held))),
            used_in: None,
        }
    }

    /// Writes down what becomes of every holding of the deployment, wished for or not. Returns those that are then obsolete,
    /// and whether this plan newly promised, let go or revived anything, or keeps something with a lease although it was
    /// already committed.
    fn leave(&self, ask: &Deploy, fates: &Fates, draft: &mut Draft<'_>) -> (Vec<(Address, Arc<Reservation>)>, bool) {
        let mut all: Vec<Holding<'_>> = self.holdings.of_scope(&ask.scope).collect();
        all.sort_unstable_by_key(|(address, _)| *address);
        let (mut obsolete, mut changed) = (Vec::new(), false);
        for (address, held) in all {
            let before = held.planned.as_deref().cloned().unwrap_or_default();
            let mut after = Reservation::clone(held);
            let mut planned = Planned { promise: self.promise(ask, fates, address, &before), ..Planned::default() };
            let kind = if let Some(is_named) = fates.stays.get(&address) {
                after = held_on(held, *is_named);
                let again = |plan: &u64| *plan == ask.plan;
                planned.settled = before.settled.filter(again);
                planned.back = before.back.filter(|back| again(&back.plan));
                planned.revived = before.revived.filter(|(plan, _)| again(plan));
                // A lease that is found only by a repeat was given behind the apply.
                let found = if ask.is_repeat() { before.kept.filter(again) } else { Some(ask.plan) };
                planned.kept = found.filter(|_| held.lease.is_some());
                let names_it = *is_named && held.kind == ReservationKind::Dynamic;
                planned.was_chosen = before.was_chosen.filter(again).or(names_it.then_some(ask.plan));
                if let Some(was) = held.obsolete.as_deref() {
                    // What this very plan had made obsolete becomes as it was before the plan.
                    planned.revived = planned.revived.or((was.plan != ask.plan).then_some((ask.plan, *was)));
                    draft.fills(&held.holder);
                }
                // The lease should end with a commit, and this plan has already had its commit.
                changed |= held.lease.is_some() && ask.is_behind_commit();
                EventKind::Updated
            } else if held.obsolete.is_some() {
                planned.unlisted = before.unlisted;
                EventKind::Obsolete
            } else if self.stays_unlisted(ask, held) {
                planned.unlisted = before.unlisted.or(Some(ask.plan));
                // A plan that has ended can miss nobody: the number noted here must distinguish a repeat from the next deploy.
                changed |= before.unlisted.is_none() && ask.is_behind_commit();
                EventKind::Obsolete
            } else if fates.awaiting.contains(&(held.holder.owner.clone(), held.holder.slot.clone())) {
                planned.leaving = before.leaving.or(Some(ask.plan));
                EventKind::Obsolete
            } else {
                after.obsolete = Some(Box::new(Obsolete { since: draft.context.wall, plan: ask.plan }));
                // A revert gives it back as it was, including that an earlier plan missed it.
                planned.unlisted = before.unlisted;
                // This frees its place within the limits.
                draft.leaves(address, held);
                EventKind::Obsolete
            };
            changed |= after.obsolete.is_some() != held.obsolete.is_some();
            changed |= planned.promise.is_some() && planned.promise != before.promise;
            changed |= planned.leaving.is_some() && before.leaving.is_none();
            after.planned = (planned != Planned::default()).then(|| Box::new(planned));
            let told = after.obsolete.is_some() != held.obsolete.is_some() || after.kind != held.kind;
            let now = if told {
                draft.change(address, held, after, kind)
            } else if after != **held {
                draft.note(address, held, after)
            } else {
                Arc::clone(held)
            };
            if now.obsolete.is_some() {
                obsolete.push((address, now));
            }
        }
        (obsolete, changed)
    }

    /// The promise of an address from now on: the earlier one if it is for the same slot.
    fn promise(&self, ask: &Deploy, fates: &Fates, address: Address, before: &Planned) -> Option<Promise> {
        let (owner, slot) = fates.promises.get(&address)?;
        let same = before.promise.as_ref().filter(|promise| promise.owner == *owner && promise.slot == *slot);
        Some(same.cloned().unwrap_or_else(|| Promise { plan: ask.plan, owner: owner.clone(), slot: slot.clone() }))
    }

    fn carry_out(
        &self,
        ask: &Deploy,
        wish: &DeployWish,
        course: &Course<'_>,
        (fates, let_go): (&Fates, &LetGo<'_>),
        draft: &mut Draft<'_>,
    ) -> Result<Deployed, Refusal> {
        let holder = holder_of(ask, wish);
        let place = wish.place;
        match course {
            Course::Nothing => Ok(Deployed { place, state: SlotState::None, view: None, replaces: None }),
            Course::Keep((address, held)) | Course::Revive((address, held), _) => {
                if matches!(course, Course::Revive(_, None)) {
                    // It was counted when it became current.
                    self.within_limits(draft, &holder, 0)?;
                }
                let new = ask.is_repeat() && held.granted_by.map(NonZeroU64::get) == Some(ask.plan);
                let view = draft.view(*address, Arc::new(held_on(held, wish.named().is_some())));
                let replaces = if new { left_by_plan(ask, &holder, fates, let_go) } else { None };
                let state = if new { SlotState::New } else { SlotState::Kept };
                Ok(Deployed { place, state, view: Some(view), replaces })
            }
            Course::Await((address, held), replaces) => {
                self.claimable_here(*address, &with_zone(&Wish::default(), wish))?;
                self.claimable_address(Range::single(*address), &holder, None, false)?;
                if replaces.is_none() {
                    self.within_limits(draft, &holder, 1)?;
                    draft.fills(&holder);
                }
                let view = draft.view(*address, Arc::new(as_promised(holder, held)));
                Ok(Deployed { place, state: SlotState::Promised, view: Some(view), replaces: *replaces })
            }
            Course::Grant(replaces) => {
                let options = GrantOptions::default();
                let granted = match &wish.wanted {
                    Wanted::Static(address) => {
                        let wanted = with_zone(&Wish::default(), wish);
                        self.claim_into(draft, &holder, *address, &wanted, None, &options)?
                    }
                    Wanted::Automatic(wanted) => {
                        self.allocate_into(draft, &holder, &with_zone(wanted, wish), &options)?
                    }
                    Wanted::Dealt(_) => return Err(Refusal::invalid("groups", "has a wish that was not dealt")),
                };
                let view = Some(granted.view);
                // If this plan already replaced an address, that one is still to be let go, whatever happened to what was
                // granted for it.
                let replaces = replaces.or_else(|| left_by_plan(ask, &holder, fates, let_go));
                Ok(Deployed { place, state: SlotState::New, view, replaces })
            }
        }
    }

    /// Adds to an exceeded limit how much all instances together would hold.
    fn recounted(&self, ask: &Deploy, draft: &Draft<'_>, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::OfInstance { instance, refusal } => {
                let refusal = Box::new(self.recount(draft, &ask.scope, &instance, *refusal));
                Refusal::OfInstance { instance, refusal }
            }
            other => other,
        }
    }

    /// Refuses a second wish for the same slot, or for the same address.
    fn wished_once(&self, ask: &Deploy, refused: &mut WishRefusals) {
        let mut slots: BTreeMap<(&Owner, &Slot), &DeployWish> = BTreeMap::new();
        let mut addresses: BTreeMap<Address, &DeployWish> = BTreeMap::new();
        for wish in &ask.wishes {
            match slots.entry((&wish.owner, &wish.slot)) {
                btree_map::Entry::Vacant(first) => drop(first.insert(wish)),
                btree_map::Entry::Occupied(first) => {
                    let (network, holder) = (self.config.name.clone(), holder_of(ask, wish));
                    let address = first.get().named().or_else(|| Some(self.holdings.slot(&holder)?.0));
                    let differs = members(differences(first.get(), wish));
                    refused.note::<()>(wish, Err(Refusal::WishedTwice { network, holder, address, differs }));
                }
            }
            if let Wanted::Static(address) = wish.wanted
                && let Some(other) = addresses.insert(address, wish)
            {
                let problem =
                    format!("{address} is also requested for instance `{}`; request it only once", other.owner);
                refused.note::<()>(
                    wish,
                    Err(Refusal::Taken {
                        problem,
                        network: None,
                        address: Some(address),
                        held_by: None,
                        used_in: None,
                    }),
                );
            }
        }
    }
}

/// Members in which two wishes for one slot differ.
fn differences(one: &DeployWish, other: &DeployWish) -> Vec<&'static str> {
    let picked = |wish: &DeployWish| match &wish.wanted {
        Wanted::Automatic(wanted) => Wish::clone(wanted),
        Wanted::Static(_) | Wanted::Dealt(_) => Wish::default(),
    };
    let (a, b) = (picked(one), picked(other));
    let differ = [
        ("address", one.named() != other.named()),
        ("family", a.family != b.family),
        ("subnet", a.subnet != b.subnet),
        ("pool", a.pool != b.pool),
    ];
    differ.into_iter().filter(|(_, differ)| *differ).map(|(member, _)| member).collect()
}

/// What an open plan that is repeated had made obsolete for a slot; of several, the last one.
fn left_by_plan(ask: &Deploy, holder: &SlotKey, fates: &Fates, let_go: &LetGo<'_>) -> Option<Address> {
    let left_by_it = |(at, held): &Holding<'_>| {
        let by_it = held.obsolete.as_ref().is_some_and(|obsolete| obsolete.plan == ask.plan);
        ask.is_repeat() && by_it && !fates.stays.contains_key(at)
    };
    let left = let_go.of(holder).filter(left_by_it);
    left.max_by_key(|(_, held)| held.generation).map(|(address, _)| address)
}

pub(super) fn holder_of(ask: &Deploy, wish: &DeployWish) -> SlotKey {
    SlotKey { scope: ask.scope.clone(), owner: wish.owner.clone(), slot: wish.slot.clone() }
}

fn with_zone(wanted: &Wish, wish: &DeployWish) -> Wish {
    Wish { zone: wish.zone.clone(), ..wanted.clone() }
}

/// A kept holding as it will be: if its owner names it now, it is static. It keeps its lease until the commit, because a
/// revert could not restore the lease.
fn held_on(held: &Reservation, is_named: bool) -> Reservation {
    let kind = if is_named { ReservationKind::Static } else { held.kind };
    Reservation { obsolete: None, kind, ..Reservation::clone(held) }
}

/// The reservation that a promise will lead to. It looks the same for as long as the address is held in the same way.
fn as_promised(holder: SlotKey, held: &Reservation) -> Reservation {
    let plain = Reservation::plain(holder, Generation(0), held.prefix_length, held.created_at);
    Reservation { kind: ReservationKind::Static, ..plain }
}
