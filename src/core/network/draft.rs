//! A decision in the making: the steps so far, and what they mean for the rest of the same decision.
//!
//! A request may grant and release several addresses; nothing is applied before all of it is decided. The draft knows
//! what it has taken already, so that two grants of one request never meet, and gives out generations. What a request
//! frees is not used again in the same request.
//!
//! How it grants is in `granting`, how it lets go in `letting_go`, and which MAC it gives in `mac`.

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

/// Steps so far.
pub(super) struct Draft<'a> {
    pub(super) network: &'a Network,
    pub(super) context: Context,
    pub(super) steps: Vec<Step>,
    /// Ranges granted here.
    taken: Taken,
    /// What more than a plain grant has to account for; nearly every request is one.
    ledger: Option<Box<Ledger>>,
    /// Promises of the network are made anew here, or not: those of before count no more.
    promises_anew: bool,
    /// What was looked through in vain.
    searched: RefCell<Option<Box<Searched>>>,
    next_generation: u64,
    /// Lease of the next grant in place of the one that its options ask for.
    pub(super) carried_lease: Option<Lease>,
    /// The plan that grants.
    pub(super) granted_by: Option<NonZeroU64>,
    /// Holdings that became obsolete because a promise was kept.
    pub(super) displaced: u64,
    /// What is granted next may be left out where there is no room for it.
    pub(super) is_optional: bool,
    /// Something else is refused that is told before any want of room of what comes next: nobody is told of that.
    pub(super) room_is_untold: bool,
    /// Everything of the deployment, or of one of its owners, is let go, but for what is asked for: promises among that end.
    pub(super) letting_go: Option<(Scope, Option<Owner>)>,
}

/// What a request comes to that lets go, grants several times, or is limited.
#[derive(Default)]
struct Ledger {
    /// The steps by address, once there are many.
    sum: Option<Box<Sum>>,
    /// MACs that came with what was granted here.
    macs: Vec<Mac>,
    /// Reservations let go here.
    let_go: BTreeSet<Address>,
    /// Change of the number of current reservations, by owner and by scope; counted where the network limits them.
    owners: BTreeMap<(Scope, Owner), i64>,
    scopes: BTreeMap<Scope, i64>,
    /// Slots that wait with empty hands for what is promised to them, because of what was let go here.
    awaiting: BTreeSet<SlotKey>,
    /// Slots that this request names, where anything is promised. What is let go here and promised to one of them is told
    /// what becomes of it when it is known what the slot has then ([`Draft::settle_owed`]).
    asked: BTreeSet<SlotKey>,
    /// What waits for that.
    owed: Vec<Owed>,
}

/// A holding that is let go, and what its end is called.
type Owed = (Address, Arc<Reservation>, EventKind);

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

    /// What of `range` this draft has granted, if anything. Cost: O(log) of what it has granted.
    pub(super) fn taken(&self, range: Range) -> Option<Range> {
        self.taken.meets(range)
    }

    /// Where what this draft has granted of `range`, and without a gap behind it, ends.
    pub(super) fn taken_until(&self, range: Range) -> Option<Address> {
        self.taken.until(range)
    }

    /// What was granted here so far.
    pub(super) fn taken_so_far(&self) -> impl Iterator<Item = Range> {
        self.taken.iter()
    }

    /// Grants made here so far.
    pub(super) fn granted(&self) -> usize {
        self.taken.count()
    }

    /// Was this reservation let go here?
    pub(super) fn has_let_go(&self, address: Address) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.let_go.contains(&address))
    }

    /// Change of the number of current reservations of this owner. Known where the network limits it.
    pub(super) fn balance_of_owner(&self, scope: &Scope, owner: &Owner) -> i64 {
        let of = |ledger: &Ledger| ledger.owners.get(&(scope.clone(), owner.clone())).copied();
        self.ledger.as_deref().and_then(of).unwrap_or_default()
    }

    /// Change of the number of current reservations of this scope. Known where the network limits it.
    pub(super) fn balance_of_scope(&self, scope: &Scope) -> i64 {
        self.ledger.as_ref().and_then(|ledger| ledger.scopes.get(scope)).copied().unwrap_or_default()
    }

    /// Notes that a slot holds something more, or less, once this request is done.
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

    /// Does a promise to this slot count within the limits already?
    #[inline]
    pub(super) fn is_counted(&self, holder: &SlotKey) -> bool {
        let awaits = || self.ledger.as_ref().is_some_and(|ledger| ledger.awaiting.contains(holder));
        !self.promises_anew && (self.network.holdings.awaits(holder) || awaits())
    }

    /// Notes that a slot holds something once this request is done, or by a promise of it: it counts within the limits.
    pub(super) fn fills(&mut self, holder: &SlotKey) {
        if !self.is_counted(holder) {
            self.count(holder, 1);
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.awaiting.remove(holder);
        }
    }

    /// Appends a step that puts an entry, or none, in place of `before`.
    pub(super) fn put(&mut self, address: Address, before: Option<&Entry>, after: Option<Entry>, event: Option<Event>) {
        let expect = before.map(|entry| entry.generation().0);
        self.push(Step { key: Key::Address(address), expect, state: after.map(State::Entry), event });
    }

    /// Appends a step.
    fn push(&mut self, step: Step) {
        if let Some(sum) = self.ledger.as_mut().and_then(|ledger| ledger.sum.as_mut()) {
            sum.add(&step);
        }
        if self.steps.capacity() == 0 {
            // Most requests take one step, which is kept until it is durable: no room for more.
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

    /// Changes what is noted of a holding: nothing that the history tells.
    pub(super) fn note(&mut self, address: Address, from: &Arc<Reservation>, to: Reservation) -> Arc<Reservation> {
        let to = Arc::new(to);
        self.put(address, Some(&Entry::Held(Arc::clone(from))), Some(Entry::Held(Arc::clone(&to))), None);
        to
    }

    /// Makes a holding current again that was obsolete.
    pub(super) fn restore(&mut self, address: Address, from: &Arc<Reservation>, to: Reservation) {
        self.fills(&to.holder);
        self.change(address, from, to, EventKind::Reverted);
    }

    /// A lease that begins now.
    pub(super) fn lease(&self, ttl_seconds: u64) -> Lease {
        let ends = self.context.now.after_seconds(ttl_seconds);
        // Clients ask for a second at least.
        Lease { ends, ttl_seconds: NonZeroU64::new(ttl_seconds).unwrap_or(NonZeroU64::MIN) }
    }

    /// A reservation as its noun shows it.
    pub(super) fn view(&self, address: Address, reservation: Arc<Reservation>) -> View {
        self.network.view(address, reservation, self.context)
    }
}

/// Facts about a holder, for refusals.
pub(super) fn held_by(reservation: &Reservation) -> HeldBy {
    HeldBy::of(reservation)
}

/// Steps that shrink an entry which cools or is declined to these parts. The old entry is removed first, so that no two entries
/// ever overlap.
pub(super) fn cut_to(address: Address, entry: &Entry, parts: impl Iterator<Item = Cidr>) -> impl Iterator<Item = Step> {
    let mut parts = parts.peekable();
    let shrunk = parts.next_if(|first| first.base() == address).and_then(|first| entry.part(first.length()));
    let expect = Some(entry.generation().0);
    let first = Step { key: Key::Address(address), expect, state: shrunk.map(State::Entry), event: None };
    std::iter::once(first).chain(parts.map(|part| part_comes(entry, part)))
}

/// The step by which a part of what cools or is declined comes where nothing is.
pub(super) fn part_comes(entry: &Entry, part: Cidr) -> Step {
    let state = entry.part(part.length()).map(State::Entry);
    Step { key: Key::Address(part.base()), expect: None, state, event: None }
}

/// The aligned block of a length that begins at `first`.
pub(super) fn block(family: Family, first: u128, order: u8) -> Range {
    Range::of_bits(family, first, first + crate::core::address::host_mask(order))
}
