//! A decision in the making: the steps so far, and what they mean for the rest of the same decision.
//!
//! A request may grant and release several addresses, and nothing is applied before all of it is decided. The draft knows
//! what it has already taken, so that two grants of one request never meet, and gives out generations. What a request frees
//! is not used again in the same request.
//!
//! `granting` has how it grants, `letting_go` how it lets go, and `mac` which MAC it gives.

mod granting;
mod letting_go;
mod mac;
mod searched;
mod sum;
mod taken;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use self::searched::Searched;
pub(super) use self::searched::{Blocks, Freed};
use self::sum::Sum;
use self::taken::Taken;
use super::Network;
use super::holdings::covered;
use crate::core::address::{Address, Cidr, Family, Range};
use crate::core::command::Context;
use crate::core::outcome::{Decision, Outcome, View};
use crate::core::refusal::HeldBy;
use crate::core::state::{Entry, Event, EventKind, Key, Lease, Reservation, State, Step};
use crate::core::types::{Mac, Owner, Scope, SlotKey};

/// The steps so far, and their consequences.
pub(super) struct Draft<'a> {
    pub(super) network: &'a Network,
    pub(super) context: Context,
    pub(super) steps: Vec<Step>,
    /// Ranges granted here.
    taken: Taken,
    /// What a plain grant does not need; nearly every request is one.
    ledger: Option<Box<Ledger>>,
    /// The request decides the network's promises anew, so those from before no longer count.
    promises_anew: bool,
    /// What was searched in vain.
    searched: RefCell<Option<Box<Searched>>>,
    next_generation: u64,
    /// If set, the next grant gets this lease instead of the one in its options.
    pub(super) carried_lease: Option<Lease>,
    /// The plan that grants.
    pub(super) granted_by: Option<NonZeroU64>,
    /// How many holdings became obsolete because a promise was kept.
    pub(super) displaced: u64,
    /// The next grant is left out if there is no room for it.
    pub(super) is_optional: bool,
    /// Another refusal of the request takes precedence over a lack of room for the next grant, so that lack need not be
    /// explained.
    pub(super) room_is_untold: bool,
    /// Everything of this scope, or of this owner in it, is released except what the request asks for; promises among those end.
    pub(super) letting_go: Option<(Scope, Option<Owner>)>,
}

/// Additional accounts of a request that lets go, grants several times, or is subject to limits.
#[derive(Default)]
struct Ledger {
    /// The result of the steps by address, once there are many.
    sum: Option<Box<Sum>>,
    /// MACs that were given in this request, or are not to be made in it.
    macs: Vec<Mac>,
    /// Reservations that were let go in this request.
    let_go: BTreeSet<Address>,
    /// By owner and by scope, the change in the number of current reservations; counted only for limits that the network has.
    owners: BTreeMap<(Scope, Owner), i64>,
    scopes: BTreeMap<Scope, i64>,
    /// Slots that now wait empty-handed for what is promised to them, because this request let go what they held.
    awaiting: BTreeSet<SlotKey>,
    /// Slots that this request names, if anything is promised. If the request lets go of an address promised to one of them,
    /// what happens to the address is decided once it is known what the slot has by then ([`Draft::settle_owed`]).
    asked: BTreeSet<SlotKey>,
    /// The addresses that wait for that decision.
    owed: Vec<Owed>,
}

/// A holding that is let go, and the event of its end.
type Owed = (Address, Arc<Reservation>, EventKind);

/// Up to this many steps of a decision are judged one by one in a build for tests: as many as generated sequences lead to.
const JUDGED_STEPS_MAX: usize = 100;

impl<'a> Draft<'a> {
    pub(super) fn new(network: &'a Network, context: Context) -> Self {
        Self {
            network,
            context,
            steps: Vec::new(),
            taken: Taken::default(),
            ledger: None,
            promises_anew: false,
            searched: RefCell::new(None),
            next_generation: network.next_generation.max(context.generations).0,
            carried_lease: None,
            granted_by: None,
            displaced: 0,
            is_optional: false,
            room_is_untold: false,
            letting_go: None,
        }
    }

    fn ledger(&mut self) -> &mut Ledger {
        self.ledger.get_or_insert_default()
    }

    pub(super) fn finish(self, outcome: Outcome) -> Decision {
        Decision { steps: self.steps, outcome }
    }

    /// The range granted by this draft that overlaps `range`, if there is one. Cost: O(log) of what it has granted.
    pub(super) fn taken(&self, range: Range) -> Option<Range> {
        self.taken.meets(range)
    }

    /// The end of what this draft has granted in `range` and adjacent to it, without a gap.
    pub(super) fn taken_until(&self, range: Range) -> Option<Address> {
        self.taken.until(range)
    }

    /// The ranges granted so far.
    pub(super) fn taken_so_far(&self) -> impl Iterator<Item = Range> {
        self.taken.iter()
    }

    /// The number of grants so far.
    pub(super) fn granted(&self) -> usize {
        self.taken.count()
    }

    /// Did this request let this reservation go?
    pub(super) fn has_let_go(&self, address: Address) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.let_go.contains(&address))
    }

    /// Change in the number of current reservations of this owner; counted only if the network limits it.
    pub(super) fn balance_of_owner(&self, scope: &Scope, owner: &Owner) -> i64 {
        let of = |ledger: &Ledger| ledger.owners.get(&(scope.clone(), owner.clone())).copied();
        self.ledger.as_deref().and_then(of).unwrap_or_default()
    }

    /// Change in the number of current reservations of this scope; counted only if the network limits it.
    pub(super) fn balance_of_scope(&self, scope: &Scope) -> i64 {
        self.ledger.as_ref().and_then(|ledger| ledger.scopes.get(scope)).copied().unwrap_or_default()
    }

    /// Notes that this request changes the number of reservations of a slot.
    pub(super) fn count(&mut self, holder: &SlotKey, change: i64) {
        let limits = self.network.config.limits;
        if limits.per_owner.is_some() {
            *self.ledger().owners.entry((holder.scope.clone(), holder.owner.clone())).or_default() += change;
        }
        if limits.per_scope.is_some() {
            *self.ledger().scopes.entry(holder.scope.clone()).or_default() += change;
        }
    }

    /// Notes that this request decides anew what is promised in a scope.
    pub(super) fn promises_anew(&mut self, scope: &Scope) {
        let network = self.network;
        network.holdings.awaiting(scope).for_each(|slot| self.count(slot, -1));
        self.promises_anew = true;
    }

    /// Does a promise to this slot already count within the limits?
    #[inline]
    pub(super) fn is_counted(&self, holder: &SlotKey) -> bool {
        let awaits = || self.ledger.as_ref().is_some_and(|ledger| ledger.awaiting.contains(holder));
        !self.promises_anew && (self.network.holdings.awaits(holder) || awaits())
    }

    /// Notes that a slot holds something after this request, or is promised something by it, which counts within the limits.
    pub(super) fn fills(&mut self, holder: &SlotKey) {
        if !self.is_counted(holder) {
            self.count(holder, 1);
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.awaiting.remove(holder);
        }
    }

    /// Appends a step that replaces `before` by another entry, or by none.
    pub(super) fn put(&mut self, address: Address, before: Option<&Entry>, after: Option<Entry>, event: Option<Event>) {
        // Of more, that takes a build for tests longer than all else.
        debug_assert!(
            self.steps.len() > JUDGED_STEPS_MAX || self.is_latest(address, before),
            "a step at {address} begins from what an earlier one replaced"
        );
        let expect = before.map(|entry| entry.generation().0);
        self.push(Step { key: Key::Address(address), expect, state: after.map(State::Entry), event });
    }

    /// The last step so far at this address.
    fn latest(&self, address: Address) -> Option<&Step> {
        self.steps.iter().rev().find(|step| step.key == Key::Address(address))
    }

    /// Is this what the steps so far leave at the address, as far as they change it? A step that begins from something older
    /// would undo them, and the store would take it: what changes in place keeps its generation.
    fn is_latest(&self, address: Address, entry: Option<&Entry>) -> bool {
        self.latest(address).is_none_or(|step| match &step.state {
            Some(State::Entry(latest)) => Some(latest) == entry,
            Some(_) | None => entry.is_none(),
        })
    }

    /// What is held at this address after the steps so far. Cost: O(steps).
    pub(super) fn held_now(&self, address: Address) -> Option<Arc<Reservation>> {
        let entry = match self.latest(address).map(|step| &step.state) {
            Some(Some(State::Entry(entry))) => Some(entry),
            Some(_) => None,
            None => self.network.holdings.at(address),
        };
        match entry? {
            Entry::Held(held) => Some(Arc::clone(held)),
            Entry::Released(_) | Entry::Declined(_) => None,
        }
    }

    /// Appends a step.
    fn push(&mut self, step: Step) {
        if let Some(sum) = self.ledger.as_mut().and_then(|ledger| ledger.sum.as_mut()) {
            sum.add(&step);
        }
        if self.steps.capacity() == 0 {
            // Most requests take one step, and it is kept until it is durable, so no room for more is allocated.
            self.steps = Vec::with_capacity(1);
        }
        self.steps.push(step);
    }

    /// Changes a holding in place.
    pub(super) fn change(
        &mut self,
        address: Address,
        from: &Arc<Reservation>,
        to: Reservation,
        kind: EventKind,
    ) -> Arc<Reservation> {
        let to = Arc::new(to);
        let event = Event { kind, before: Some(Arc::clone(from)) };
        self.put(address, Some(&Entry::Held(Arc::clone(from))), Some(Entry::Held(Arc::clone(&to))), Some(event));
        to
    }

    /// Changes notes in a holding that the history does not record.
    pub(super) fn note(&mut self, address: Address, from: &Arc<Reservation>, to: Reservation) -> Arc<Reservation> {
        let to = Arc::new(to);
        self.put(address, Some(&Entry::Held(Arc::clone(from))), Some(Entry::Held(Arc::clone(&to))), None);
        to
    }

    /// Makes an obsolete holding current again.
    pub(super) fn restore(&mut self, address: Address, from: &Arc<Reservation>, to: Reservation) {
        self.fills(&to.holder);
        self.change(address, from, to, EventKind::Reverted);
    }

    /// A lease that begins now.
    pub(super) fn lease(&self, ttl_seconds: u64) -> Lease {
        let ends = self.context.now.after_seconds(ttl_seconds);
        // Clients ask for at least one second.
        Lease { ends, ttl_seconds: NonZeroU64::new(ttl_seconds).unwrap_or(NonZeroU64::MIN) }
    }

    /// A reservation with everything that the protocol shows of it.
    pub(super) fn view(&self, address: Address, reservation: Arc<Reservation>) -> View {
        self.network.view(address, reservation, self.context)
    }
}

/// Facts about a holder, for refusals.
pub(super) fn held_by(reservation: &Reservation) -> HeldBy {
    HeldBy::of(reservation)
}

/// Steps that shrink a cooling or declined entry to these parts. The old entry is removed first, so that no two entries ever
/// overlap.
pub(super) fn cut_to(address: Address, entry: &Entry, parts: impl Iterator<Item = Cidr>) -> impl Iterator<Item = Step> {
    let mut parts = parts.peekable();
    let shrunk = parts.next_if(|first| first.base() == address).and_then(|first| entry.part(first.length()));
    let expect = Some(entry.generation().0);
    let first = Step { key: Key::Address(address), expect, state: shrunk.map(State::Entry), event: None };
    std::iter::once(first).chain(parts.map(|part| part_comes(entry, part)))
}

/// The step that puts a part of a cooling or declined entry where there is no entry.
pub(super) fn part_comes(entry: &Entry, part: Cidr) -> Step {
    let state = entry.part(part.length()).map(State::Entry);
    Step { key: Key::Address(part.base()), expect: None, state, event: None }
}

/// The aligned block of 2^order addresses that begins at `first`.
pub(super) fn block(family: Family, first: u128, order: u8) -> Range {
    Range::of_bits(family, first, first + crate::core::address::host_mask(order))
}
