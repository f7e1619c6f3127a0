//! A deployment that spans all networks: its plans, as the coordinator joins them, and what must hold after each step.
//!
//! The networks decide a plan together and all take it, or none does. What each plan found is remembered, so that a revert
//! can be compared with it, and a commit with the wishes; for some instances, for all, or one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::asks::{Dice, everything};
use super::side::held_of;
use super::world::World;
use crate::core::address::Address;
use crate::core::command::*;
use crate::core::deployment::*;
use crate::core::network::Network;
use crate::core::outcome::{Decision, Outcome};
use crate::core::state::*;
use crate::core::types::*;

const INSTANCES: [&str; 4] = ["a", "b", "c", "d"];

/// What the deployment holds, by network and address.
type Holdings = BTreeMap<(usize, Address), Arc<Reservation>>;

/// The deployment's latest plan.
struct Book {
    plan: u64,
    stage: Stage,
    /// The wishes by network.
    wishes: Vec<Vec<DeployWish>>,
    /// What the deployment held before the plan.
    before: Holdings,
    /// The promises: network, address, and the slot that gets it.
    promised: BTreeSet<(usize, Address, Owner, Slot)>,
    /// Instances that were settled on their own, and whether by a revert.
    settled: BTreeMap<Owner, bool>,
    /// Whether other commands have changed any of its holdings since.
    touched: bool,
}

/// The deployment; see the module.
#[derive(Default)]
pub(super) struct Desk {
    book: Option<Book>,
    /// The highest number of a plan so far.
    plans: u64,
    /// What the last plan left, and the kinds of the networks at that time.
    last: (Holdings, Vec<NetworkKind>),
}

fn scope() -> Scope {
    "shop".parse().unwrap()
}

impl Dice<'_> {
    /// Wishes of four instances for each network. There are few addresses, so that they wish for each other's.
    fn wishes(&mut self, networks: &[&Network]) -> Vec<Vec<DeployWish>> {
        let mut place = 0..;
        let mut listed: Vec<(Owner, bool)> = INSTANCES.iter().map(|id| (id.parse().unwrap(), false)).collect();
        listed.retain(|_| !self.once_in(5));
        listed.iter_mut().for_each(|(_, fresh)| *fresh = self.once_in(8));
        let mut wishes = Vec::new();
        for network in networks {
            let (mut of_it, mut named) = (Vec::new(), BTreeSet::new());
            for (owner, fresh) in &listed {
                let kind = self.below(7);
                if kind == 0 {
                    continue;
                }
                let (slot, address) = (if self.once_in(6) { "1" } else { "0" }, self.address(network));
                let wanted = match kind {
                    1..=3 if network.config().kind != NetworkKind::Dynamic && named.insert(address) => {
                        Wanted::Static(address)
                    }
                    _ => Wanted::Automatic(Box::default()),
                };
                of_it.push(DeployWish {
                    place: place.next().unwrap(),
                    owner: owner.clone(),
                    slot: slot.parse().unwrap(),
                    zone: None,
                    fresh: *fresh,
                    wanted,
                });
            }
            wishes.push(of_it);
        }
        wishes
    }
}

impl World {
    fn holdings(&self) -> Holdings {
        let of = |(at, side): (usize, &super::side::Side)| {
            let held = everything(&side.network).into_iter().filter_map(held_of);
            let own = held.filter(|(_, held)| held.holder.scope == scope());
            own.map(move |(address, held)| ((at, address), held)).collect::<Vec<_>>()
        };
        self.sides.iter().enumerate().flat_map(of).collect()
    }

    fn kinds(&self) -> Vec<NetworkKind> {
        self.sides.iter().map(|side| side.network.config().kind).collect()
    }

    /// What the deployment holds now; notes whether that differs from what the last plan left.
    fn look(&mut self) -> Holdings {
        (0..self.sides.len()).for_each(|at| self.expire(at));
        let now = self.holdings();
        // If nothing is held, another network may have taken the place of the one that was asked.
        let same = now == self.desk.last.0 && self.kinds() == self.desk.last.1;
        if let Some(book) = &mut self.desk.book {
            book.touched |= !same;
        }
        now
    }

    /// The decisions of all networks; none if one of them refuses.
    fn decide_all(&self, commands: &[Command], context: Context) -> Option<Vec<Decision>> {
        let both = self.sides.iter().zip(commands);
        both.map(|(side, command)| side.decide(command, context).ok()).collect()
    }

    fn take_all(&mut self, commands: &[Command], decisions: &[Decision], context: Context) {
        for ((side, command), decision) in self.sides.iter_mut().zip(commands).zip(decisions) {
            side.take(command, decision, context);
            if !side.network.is_gone() {
                super::deploys::check(&side.network, command, &decision.outcome);
            }
            side.again_if_gone();
        }
    }

    /// Applies new wishes, or now and then the latest ones again.
    pub(super) fn plan(&mut self, dice: &mut Dice<'_>) {
        let seen = self.look();
        let same = self.desk.book.as_ref().filter(|_| dice.once_in(5)).map(|book| book.wishes.clone());
        let networks: Vec<&Network> = self.sides.iter().map(|side| &side.network).collect();
        let wishes = same.unwrap_or_else(|| dice.wishes(&networks));
        let context = self.context();
        let listed: Arc<BTreeSet<Owner>> = Arc::new(wishes.iter().flatten().map(|wish| wish.owner.clone()).collect());
        let asks = |plan: u64, again: Option<Stage>| -> Vec<Command> {
            let ask = |wishes: &Vec<DeployWish>| Deploy {
                scope: scope(),
                plan,
                again: again.is_some(),
                open: again == Some(Stage::Open),
                wishes: wishes.clone(),
                lists: Vec::new(),
                listed: Arc::clone(&listed),
            };
            wishes.iter().map(|wishes| Command::Deploy(Box::new(ask(wishes)))).collect()
        };
        let changed = |decision: &Decision| matches!(decision.outcome, Outcome::Deployed { changed: true, .. });
        let waits = |decision: &Decision| matches!(&decision.outcome, Outcome::Deployed { changed, obsolete, .. } if *changed || !obsolete.is_empty());
        let next = self.desk.plans + 1;
        let again = self.desk.book.as_ref().filter(|book| book.wishes == wishes && book.stage != Stage::Reverted);
        let mut commands = asks(next, None);
        let mut same = None;
        let mut decided = None;
        if let Some(book) = again {
            let repeat = asks(book.plan, Some(book.stage));
            let Some(told) = self.decide_all(&repeat, context) else { return };
            if book.stage == Stage::Open || !told.iter().any(waits) {
                (commands, same, decided) = (repeat, Some(told.iter().any(changed)), Some(told));
            }
        }
        let Some(decided) = decided.or_else(|| self.decide_all(&commands, context)) else {
            assert_eq!(self.holdings(), seen, "one network refuses, and nothing happens in the others");
            return;
        };
        self.take_all(&commands, &decided, context);
        let now = self.holdings();
        check_apply(&seen, &now, &wishes, &decided);
        let mut promised = BTreeSet::new();
        for (at, (decision, wishes)) in decided.iter().zip(&wishes).enumerate() {
            let Outcome::Deployed { slots, .. } = &decision.outcome else { panic!("{:?}", decision.outcome) };
            for done in slots.iter().filter(|done| done.state == SlotState::Promised) {
                let wish = wishes.iter().find(|wish| wish.place == done.place).unwrap();
                let address = done.view.as_ref().unwrap().address;
                promised.insert((at, address, wish.owner.clone(), wish.slot.clone()));
            }
        }
        match (same, &mut self.desk.book) {
            (Some(changed), Some(book)) => {
                book.promised = promised;
                // What was reverted is wished for again.
                book.settled.retain(|_, reverted| !(*reverted && changed));
                // An instance that was already committed may wait anew, for another commit.
                book.touched |= changed && !book.settled.is_empty();
            }
            _ => {
                let (before, settled) = (seen, BTreeMap::new());
                let book = Book { plan: next, stage: Stage::Open, wishes, before, promised, settled, touched: false };
                (self.desk.plans, self.desk.book) = (next, Some(book));
            }
        }
        self.desk.last = (now, self.kinds());
    }

    /// Commits or reverts the latest plan, for all or for some instances.
    pub(super) fn end_plan(&mut self, dice: &mut Dice<'_>) {
        let seen = self.look();
        let revert = dice.once_in(2);
        let some: BTreeSet<Owner> = (0..=dice.below(2)).map(|_| dice.of_instances()).collect();
        let some = Some(some).filter(|_| !dice.once_in(3));
        let Some(mut book) = self.desk.book.take() else { return };
        let otherwise = |owner: &Owner| book.settled.get(owner).is_some_and(|reverted| *reverted != revert);
        if book.stage != Stage::Open || some.iter().flatten().any(otherwise) {
            self.desk.book = Some(book);
            return;
        }
        let alone = |how: bool| {
            let alone = book.settled.iter().filter(|(_, reverted)| **reverted == how);
            Arc::new(alone.map(|(owner, _)| number_of(owner)).collect())
        };
        let (committed, reverted) = (alone(false), alone(true));
        let (plan, instances, uncommitted_since) = (book.plan, some.clone().map(Arc::new), None);
        let ask = Settle { scope: scope(), plan, instances, committed, reverted, uncommitted_since, revert };
        let context = self.context();
        let commands = vec![Command::Settle(Box::new(ask.clone())); self.sides.len()];
        // A closed network grants nothing, and ends with the last of what it holds.
        let open = self.sides.iter().all(|side| !side.network.config().closed);
        let Some(decided) = self.decide_all(&commands, context) else {
            self.check_not_ended(&book, &seen, &ask, open);
            self.desk.book = Some(book);
            return;
        };
        self.take_all(&commands, &decided, context);
        let now = self.holdings();
        let (mut released, mut left) = (BTreeSet::new(), 0);
        for (at, decision) in decided.iter().enumerate() {
            let Outcome::Settled { released: gone, left: waits, instances, .. } = &decision.outcome else {
                panic!("{:?}", decision.outcome)
            };
            released.extend(gone.iter().map(|address| (at, *address)));
            left += waits;
            book.settled.extend(instances.iter().map(|owner| (owner.clone(), revert)));
        }
        check_released(&seen, &now, &ask, &released);
        let over = some.is_none() || left == 0 && !(revert && book.settled.is_empty());
        if over {
            let mixed = some.is_some() && book.settled.values().any(|reverted| !*reverted);
            book.stage = if revert && !mixed { Stage::Reverted } else { Stage::Committed };
        }
        if open && !book.touched {
            self.check_ended(&book, &now, &ask, over);
        }
        (self.desk.book, self.desk.last) = (Some(book), (now, self.kinds()));
    }

    /// Checks that a plan may only be refused its end because of a promise: one that cannot be kept because of what others
    /// did, or one whose revert would rob an instance that was committed.
    fn check_not_ended(&self, book: &Book, seen: &Holdings, ask: &Settle, open: bool) {
        let closed = seen.iter().any(|((at, _), held)| {
            self.sides[*at].network.config().closed && held.promise().is_some() && ask.covers(&held.holder.owner)
        });
        let robs = || {
            seen.iter().any(|((at, _), has)| {
                let back = has.planned.as_ref().and_then(|planned| planned.back.as_ref());
                let is_empty = |to: &Promise| {
                    let own = |held: &Reservation| (&held.holder.owner, &held.holder.slot) == (&to.owner, &to.slot);
                    !seen.iter().any(|((of, _), held)| of == at && own(held) && held.obsolete.is_none())
                };
                let waits = |to: &Promise| book.settled.get(&to.owner) == Some(&false) && is_empty(to);
                [back, has.promise()].into_iter().flatten().any(waits)
            })
        };
        let cannot_come = || book.touched && seen.iter().any(|(at, held)| waits_in_vain(seen, *at, held, ask));
        assert!(if ask.revert { robs() } else { !open && closed || cannot_come() }, "{ask:?} is refused");
    }

    /// Checks that each settled instance has what it wished for, or what it had before.
    fn check_ended(&self, book: &Book, now: &Holdings, ask: &Settle, over: bool) {
        let mut owners: BTreeSet<&Owner> = now.values().map(|held| &held.holder.owner).collect();
        owners.extend(book.before.values().map(|held| &held.holder.owner));
        owners.extend(book.wishes.iter().flatten().map(|wish| &wish.owner));
        let pending = book.before.values().any(|held| held.promise().is_some());
        for owner in owners {
            let by_itself = book.settled.get(owner).copied();
            match by_itself.or((over || ask.names(owner)).then_some(ask.revert)) {
                // What an earlier plan promised, and nobody committed, comes with the commit of the instance that lets it go.
                Some(true) if pending && !(ask.revert && ask.covers(owner)) => {}
                Some(true) => {
                    // A commit for all also lets go of what was obsolete before.
                    let all = ask.revert || !over;
                    let (was, is) = (of_owner(&book.before, owner, all), of_owner(now, owner, all));
                    assert_eq!(is, was, "{owner} is reverted: {ask:?}");
                }
                Some(false) => self.check_committed(book, now, owner, (ask, over)),
                None => {}
            }
        }
    }

    /// Checks that an instance holds what it wished for and nothing else, except for promised addresses that were not let go
    /// yet.
    fn check_committed(&self, book: &Book, now: &Holdings, owner: &Owner, (ask, over): (&Settle, bool)) {
        let all = ask.instances.is_none() && !ask.revert;
        let reverted = book.settled.values().any(|reverted| *reverted);
        for (at, wishes) in book.wishes.iter().enumerate() {
            let held: Vec<_> = now.iter().filter(|((of, _), held)| *of == at && held.holder.owner == *owner).collect();
            for ((_, address), held) in &held {
                assert!(held.obsolete.is_none(), "{address} of {owner} is obsolete behind its commit");
                let wished = wishes.iter().any(|wish| wish.owner == *owner && wish.slot == held.holder.slot);
                assert!(wished || held.transient, "{address} of {owner} is wished by nobody and stays");
            }
            for wish in wishes.iter().filter(|wish| wish.owner == *owner) {
                let has = held.iter().find(|(_, held)| held.holder.slot == wish.slot).map(|((_, address), _)| *address);
                let promise = book.promised.iter().find(|(of, _, to, slot)| (*of, to, slot) == (at, owner, &wish.slot));
                if let Some((_, address, ..)) = promise {
                    let giver = book.before.get(&(at, *address)).map(|held| &held.holder.owner);
                    let goes = all || giver.is_some_and(|giver| book.settled.get(giver) == Some(&false));
                    let comes = goes && !reverted;
                    assert!(
                        !comes || has == Some(*address),
                        "{owner} has {has:?}, and not what was promised: {wish:?}"
                    );
                    let mut had = book.before.iter().filter(|((of, _), held)| {
                        let slot = (&held.holder.owner, &held.holder.slot) == (owner, &wish.slot);
                        *of == at && slot && held.obsolete.is_none()
                    });
                    // What was promised to nobody is free since its commit; what another committed instance has stays with
                    // that one.
                    let comes_back = |(of, at): &(usize, Address)| {
                        let is_its = |(to, address, taker, _): &(usize, Address, Owner, Slot)| {
                            (to, address) == (of, at) && !book.settled.contains_key(taker)
                        };
                        book.promised.iter().any(is_its) && !now.contains_key(&(*of, *at))
                    };
                    let none = over && ask.revert && has.is_none() && had.any(|(at, _)| comes_back(at));
                    assert!(!none, "{owner} let go what it had for {address}, which a revert took: {wish:?}");
                    continue;
                }
                match &wish.wanted {
                    Wanted::Static(address) => assert_eq!(has, Some(*address), "{wish:?}"),
                    Wanted::Automatic(_) | Wanted::Dealt(_) => {
                        let carries = self.sides[at].network.config().kind != NetworkKind::Dynamic;
                        assert!(has.is_some() || !carries, "{owner} has nothing: {wish:?}");
                    }
                }
            }
        }
    }
}

impl Dice<'_> {
    fn of_instances(&mut self) -> Owner {
        INSTANCES[self.below(INSTANCES.len())].parse().unwrap()
    }
}

/// What an instance holds (all of it, or only what is current), without what its deployment intends with it and what an
/// apply changes in holdings that it keeps.
fn of_owner(holdings: &Holdings, owner: &Owner, all: bool) -> Holdings {
    let own = holdings.iter().filter(|(_, held)| held.holder.owner == *owner && (all || held.obsolete.is_none()));
    own.map(|(at, held)| {
        // A kept holding has the kind that was wished for.
        let (planned, kind) = (None, ReservationKind::Static);
        (*at, Arc::new(Reservation { planned, kind, ..Reservation::clone(held) }))
    })
    .collect()
}

/// Checks that an apply lets nothing go, and grants what is wished for and nothing else.
fn check_apply(seen: &Holdings, now: &Holdings, wishes: &[Vec<DeployWish>], decided: &[Decision]) {
    for (at, was) in seen {
        let is = now.get(at).unwrap_or_else(|| panic!("{at:?} is let go by an apply"));
        assert_eq!((&is.holder, is.generation), (&was.holder, was.generation), "{at:?} changes hands by an apply");
    }
    let is_wished = |at: usize, held: &Reservation| {
        let holder = &held.holder;
        wishes[at].iter().any(|wish| (&wish.owner, &wish.slot) == (&holder.owner, &holder.slot))
    };
    for ((at, address), held) in now {
        let wished = is_wished(*at, held);
        let new = !seen.contains_key(&(*at, *address));
        assert!(!new || wished && held.obsolete.is_none(), "{address} is granted, and wished by nobody");
        let stays = held.obsolete.is_none() && !held.transient;
        assert!(!stays || wished, "{address} is current, and wished by nobody");
    }
    for (at, decision) in decided.iter().enumerate() {
        let Outcome::Deployed { slots, .. } = &decision.outcome else { panic!("{:?}", decision.outcome) };
        for done in slots.iter().filter(|done| done.state == SlotState::New) {
            let address = done.view.as_ref().expect("what is new is shown").address;
            assert!(now.contains_key(&(at, address)), "{address} is told, and not held");
        }
    }
}

/// Does a covered holding wait for an address that nobody will let go for it, or only somebody who waits in vain too?
fn waits_in_vain(seen: &Holdings, (of, _): (usize, Address), held: &Reservation, ask: &Settle) -> bool {
    let (mut waits, mut passed) = (held, BTreeSet::new());
    while waits.obsolete.is_none() && waits.leaving().is_some() && ask.covers(&held.holder.owner) {
        let is_its = |to: &Promise| (&to.owner, &to.slot) == (&waits.holder.owner, &waits.holder.slot);
        let goes = |giver: &Reservation| giver.obsolete.is_some() || giver.leaving().is_some();
        let giver =
            seen.iter().find(|((at, _), giver)| *at == of && goes(giver) && giver.promise().is_some_and(is_its));
        let Some((at, giver)) = giver else { return true };
        if !passed.insert(at) {
            // They pass the addresses on in a ring.
            return false;
        }
        waits = giver;
    }
    false
}

/// Is the owner covered by this end, or was it committed on its own before? Then what a promise displaces of it is let go.
fn was_covered(ask: &Settle, owner: &Owner) -> bool {
    ask.covers(owner) || !ask.revert && ask.was_committed(owner)
}

/// Checks that exactly what is reported as released is free, and that the plan could let it go.
fn check_released(seen: &Holdings, now: &Holdings, ask: &Settle, released: &BTreeSet<(usize, Address)>) {
    for (at, was) in seen {
        match now.get(at) {
            None => assert!(released.contains(at), "{at:?} is gone, and nobody was told: {ask:?}"),
            Some(is) if is.holder == was.holder => assert_eq!(is.generation, was.generation, "{at:?}: {ask:?}"),
            Some(is) => {
                let back = was.planned.as_ref().and_then(|planned| planned.back.as_ref());
                let promise = if ask.revert { back } else { was.promise() };
                let promise = promise.map(|promise| (&promise.owner, &promise.slot));
                assert_eq!(promise, Some((&is.holder.owner, &is.holder.slot)), "{at:?} changes hands: {ask:?}");
                assert!(was_covered(ask, &was.holder.owner), "{at:?} changes hands: {ask:?}");
            }
        }
    }
    for at in released {
        let was = &seen[at];
        assert!(!now.contains_key(at) && was_covered(ask, &was.holder.owner), "{at:?} is released: {ask:?}");
        let granted = was.granted_by.map(std::num::NonZeroU64::get) == Some(ask.plan);
        // What a kept promise displaces also goes, with the commit of its holder.
        assert!(granted || !ask.revert, "{at:?} was not granted by what is reverted: {ask:?}");
    }
    let strange = now.keys().find(|at| !seen.contains_key(*at));
    assert_eq!(strange, None, "the end of a plan grants nothing that was free");
}
