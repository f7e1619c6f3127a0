//! A decision in the making: the steps so far, and what they mean for the rest of the same decision.
//!
//! A request may grant and release several addresses; nothing is applied before all of it is decided. The draft knows
//! what it has taken already, so that two grants of one request never meet, and gives out generations. What a request
//! frees is not used again in the same request.

mod letting_go;
mod sum;
mod taken;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use self::sum::Sum;
use self::taken::Taken;
use super::Network;
use super::holdings::covered;
use super::rested::Rank;
use crate::core::address::{Address, Cidr, Family, Range};
use crate::core::command::{Context, GrantOptions, MacWish};
use crate::core::outcome::{Decision, Outcome, View};
use crate::core::refusal::{HeldBy, Refusal};
use crate::core::state::{
    Declined, Details, Entry, Event, EventKind, Key, Lease, Planned, Promise, Released, Reservation, ReservationKind,
    State, Step,
};
use crate::core::types::{Generation, Mac, Owner, OwnerUid, Scope, SlotKey, WallTime};
use crate::limits;

/// Steps that one grant may need to clear what cools in its way.
const DISPLACED_MAX: usize = limits::BATCH_CHANGES_MAX / 2;

/// Steps from which on what they come to is looked up, and not searched for among all of them.
const STEPS_SEARCHED_MAX: usize = 32;

/// Freed addresses that are looked through in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Freed {
    /// Past their cooldown.
    Rested,
    /// Cooling.
    Cooling,
}

/// Steps so far.
pub(super) struct Draft<'a> {
    pub(super) network: &'a Network,
    pub(super) context: Context,
    pub(super) steps: Vec<Step>,
    /// The same by address, once there are many.
    sum: Option<Box<Sum>>,
    /// Ranges granted here.
    taken: Taken,
    /// MACs that came with what was granted here.
    macs: Vec<Mac>,
    /// Reservations let go here.
    let_go: BTreeSet<Address>,
    /// Change of the number of current reservations, by owner and by scope; counted where the network limits them.
    owners: BTreeMap<(Scope, Owner), i64>,
    scopes: BTreeMap<Scope, i64>,
    /// Slots that wait with empty hands for what is promised to them, because of what was let go here.
    awaiting: BTreeSet<SlotKey>,
    /// Promises of the network are made anew here, or not: those of before count no more.
    promises_anew: bool,
    /// How far the freed addresses of a pool were looked through, in the order in which they were freed: up to there this
    /// request has taken them all. Without it, each of many grants would look at what the ones before it took.
    searched: RefCell<BTreeMap<(Address, Freed), (Rank, u128)>>,
    next_generation: u64,
    /// Lease of the next grant in place of the one that its options ask for.
    pub(super) carried_lease: Option<Lease>,
    /// The plan that grants.
    pub(super) granted_by: Option<NonZeroU64>,
    /// Holdings that became obsolete because a promise was kept.
    pub(super) displaced: u64,
    /// Everything of the deployment, or of one of its owners, is let go: promises among that end.
    pub(super) letting_go: Option<(Scope, Option<Owner>)>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(network: &'a Network, context: Context) -> Self {
        Self {
            network,
            context,
            steps: Vec::new(),
            sum: None,
            taken: Taken::default(),
            macs: Vec::new(),
            let_go: BTreeSet::new(),
            owners: BTreeMap::new(),
            scopes: BTreeMap::new(),
            awaiting: BTreeSet::new(),
            promises_anew: false,
            searched: RefCell::new(BTreeMap::new()),
            next_generation: network.next_generation.max(context.generations).0,
            carried_lease: None,
            granted_by: None,
            displaced: 0,
            letting_go: None,
        }
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

    /// The last place of a pool's freed addresses, by its first address, at which nothing is left for this request.
    pub(super) fn searched(&self, pool: Address, freed: Freed) -> Option<(Rank, u128)> {
        self.searched.borrow().get(&(pool, freed)).copied()
    }

    /// Nothing is left at this place, nor at those before it. That stays so: a request only takes.
    pub(super) fn nothing_left(&self, pool: Address, freed: Freed, place: (Rank, u128)) {
        self.searched.borrow_mut().insert((pool, freed), place);
    }

    /// Grants made here so far.
    pub(super) fn granted(&self) -> usize {
        self.taken.count()
    }

    /// Was this reservation let go here?
    pub(super) fn has_let_go(&self, address: Address) -> bool {
        self.let_go.contains(&address)
    }

    /// Change of the number of current reservations of this owner. Known where the network limits it.
    pub(super) fn balance_of_owner(&self, scope: &Scope, owner: &Owner) -> i64 {
        self.owners.get(&(scope.clone(), owner.clone())).copied().unwrap_or_default()
    }

    /// Change of the number of current reservations of this scope. Known where the network limits it.
    pub(super) fn balance_of_scope(&self, scope: &Scope) -> i64 {
        self.scopes.get(scope).copied().unwrap_or_default()
    }

    /// Notes that a slot holds something more, or less, once this request is done.
    pub(super) fn count(&mut self, holder: &SlotKey, change: i64) {
        let limits = self.network.config.limits;
        if limits.per_owner.is_some() {
            *self.owners.entry((holder.scope.clone(), holder.owner.clone())).or_default() += change;
        }
        if limits.per_scope.is_some() {
            *self.scopes.entry(holder.scope.clone()).or_default() += change;
        }
    }

    /// Notes that this request decides anew what is promised in a scope.
    pub(super) fn promises_anew(&mut self, scope: &Scope) {
        let network = self.network;
        network.holdings.awaiting(scope).for_each(|slot| self.count(slot, -1));
        self.promises_anew = true;
    }

    /// Does a promise to this slot count within the limits already?
    pub(super) fn is_counted(&self, holder: &SlotKey) -> bool {
        !self.promises_anew && (self.network.holdings.awaits(holder) || self.awaiting.contains(holder))
    }

    /// Notes that a slot holds something once this request is done, or by a promise of it: it counts within the limits.
    pub(super) fn fills(&mut self, holder: &SlotKey) {
        if !self.is_counted(holder) {
            self.count(holder, 1);
        }
        self.awaiting.remove(holder);
    }

    /// Appends a step that puts an entry, or none, in place of `before`.
    pub(super) fn put(&mut self, address: Address, before: Option<&Entry>, after: Option<Entry>, event: Option<Event>) {
        let expect = before.map(|entry| entry.generation().0);
        let step = Step { key: Key::Address(address), expect, state: after.map(State::Entry), event };
        if let Some(sum) = &mut self.sum {
            sum.add(&step);
        }
        if self.steps.is_empty() {
            // Most requests take one step, which is kept until it is durable: no room for more.
            self.steps.reserve_exact(1);
        }
        self.steps.push(step);
    }

    /// What covers addresses of `range` once the steps so far are done.
    fn standing(&mut self, range: Range) -> BTreeMap<Address, Entry> {
        if self.sum.is_none() && self.steps.len() > STEPS_SEARCHED_MAX {
            let mut sum = Box::new(Sum::default());
            self.steps.iter().for_each(|step| sum.add(step));
            self.sum = Some(sum);
        }
        let there = self.network.holdings.overlapping(range).take(DISPLACED_MAX + 1);
        let mut standing: BTreeMap<Address, Entry> = there.map(|(address, entry)| (address, entry.clone())).collect();
        if let Some(sum) = &self.sum {
            standing.retain(|address, _| !sum.knows(*address));
            standing.extend(sum.overlapping(range).map(|(address, entry)| (*address, entry.clone())));
            return standing;
        }
        for step in &self.steps {
            let Key::Address(address) = step.key else { continue };
            match &step.state {
                Some(State::Entry(entry)) if covered(address, entry.prefix_length()).overlaps(range) => {
                    standing.insert(address, entry.clone());
                }
                Some(_) | None => drop(standing.remove(&address)),
            }
        }
        standing
    }

    /// Clears what cools or is declined in the way of `range` and returns what the grant itself will replace. What lies
    /// beside `range` goes on as it is. None: too much is there to be cleared in one batch.
    fn displace(&mut self, range: Range) -> Option<Option<Entry>> {
        if range.size() == 1 && self.network.holdings.covering(range.first()).is_none() {
            // By far the most grants: one free address. Whatever this request let go, or cleared, was something there.
            return Some(None);
        }
        let standing = self.standing(range);
        if standing.len() > DISPLACED_MAX {
            return None;
        }
        let mut replaced = None;
        for (address, entry) in standing {
            let rest: Vec<Cidr> = covered(address, entry.prefix_length()).without(range).flat_map(cidrs_of).collect();
            if address == range.first() && rest.is_empty() {
                replaced = Some(entry);
                continue;
            }
            // The whole goes before its parts come, so that no two entries ever overlap.
            let shrinks = rest.first().is_some_and(|part| part.base() == address);
            if !shrinks {
                self.put(address, Some(&entry), None, None);
            }
            for part in rest {
                let before = (part.base() == address).then_some(&entry);
                self.put(part.base(), before, Some(part_of(&entry, part.length())), None);
            }
        }
        Some(replaced)
    }

    /// Grants `range` to a slot: clears what cools there, draws a generation.
    ///
    /// # Errors
    /// `already_in_use` if the MAC is taken, or too much cools in the way.
    pub(super) fn grant(
        &mut self,
        range: Range,
        holder: &SlotKey,
        kind: ReservationKind,
        options: &GrantOptions,
    ) -> Result<View, Refusal> {
        let mac = self.mac_for(options.mac, None)?;
        let Some(replaced) = self.displace(range) else {
            let problem =
                format!("{range} cools in more than {DISPLACED_MAX} pieces; ask again when the cooldown is over");
            return Err(Refusal::Taken { problem, address: Some(range.first()), held_by: None });
        };
        Ok(self.place(range, replaced.as_ref(), holder, kind, (options, mac)))
    }

    /// Grants `range`, in which nothing lies, to a slot.
    ///
    /// # Errors
    /// `already_in_use` if the MAC is taken.
    pub(super) fn grant_free(
        &mut self,
        range: Range,
        holder: &SlotKey,
        kind: ReservationKind,
        options: &GrantOptions,
    ) -> Result<View, Refusal> {
        debug_assert!(self.network.holdings.overlapping(range).next().is_none(), "something lies in {range}");
        let mac = self.mac_for(options.mac, None)?;
        Ok(self.place(range, None, holder, kind, (options, mac)))
    }

    /// Puts a new holding there, in place of `replaced`.
    fn place(
        &mut self,
        range: Range,
        replaced: Option<&Entry>,
        holder: &SlotKey,
        kind: ReservationKind,
        (options, mac): (&GrantOptions, Option<Mac>),
    ) -> View {
        let generation = Generation(self.next_generation);
        self.next_generation += 1;
        let length = range.as_cidr().map_or(range.family().width(), Cidr::length);
        let reservation = Arc::new(Reservation {
            prefix_length: length,
            holder: holder.clone(),
            generation,
            kind,
            created_at: self.context.wall,
            lease: self.carried_lease.take().or_else(|| options.ttl_seconds.map(|ttl| self.lease(ttl))),
            transient: options.transient,
            release_with_claimant: options.release_with_claimant,
            claimant: options.claimant.clone(),
            obsolete: None,
            granted_by: self.granted_by,
            planned: None,
            details: details_of(options, mac),
        });
        self.taken.add(range);
        self.fills(holder);
        self.macs.extend(mac);
        let event = Event { kind: EventKind::Granted, before: None };
        self.put(range.first(), replaced, Some(Entry::Held(Arc::clone(&reservation))), Some(event));
        self.view(range.first(), reservation)
    }

    /// Gives a holding to another slot as a new grant of the same address; all that it carries stays with it, but for the
    /// `owner_uid` where the owner is another one.
    pub(super) fn hand_over(&mut self, address: Address, from: &Arc<Reservation>, to: &SlotKey) -> View {
        let generation = Generation(self.next_generation);
        self.next_generation += 1;
        let same_owner = from.holder.owner == to.owner && from.holder.scope == to.scope;
        let uid_for = |uid: &Option<OwnerUid>| uid.clone().filter(|_| same_owner);
        let details = from
            .details
            .as_deref()
            .map(|details| Details { owner_uid: uid_for(&details.owner_uid), ..details.clone() });
        let reservation = Arc::new(Reservation {
            holder: to.clone(),
            generation,
            created_at: self.context.wall,
            obsolete: None,
            granted_by: None,
            planned: None,
            details: details.filter(|details| *details != Details::default()).map(Box::new),
            ..Reservation::clone(from)
        });
        let event = Event { kind: EventKind::Transferred, before: Some(Arc::clone(from)) };
        let before = Entry::Held(Arc::clone(from));
        self.put(address, Some(&before), Some(Entry::Held(Arc::clone(&reservation))), Some(event));
        self.view(address, reservation)
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

    /// Gives an address that was promised to another slot of the deployment, as a new grant: nothing of what its holder
    /// made of it goes along.
    pub(super) fn give(
        &mut self,
        address: Address,
        from: &Arc<Reservation>,
        to: SlotKey,
        granted_by: Option<NonZeroU64>,
        back: Option<Promise>,
    ) {
        let generation = Generation(self.next_generation);
        self.next_generation += 1;
        self.fills(&to);
        let reservation = Arc::new(Reservation {
            prefix_length: from.prefix_length,
            holder: to,
            generation,
            kind: ReservationKind::Static,
            created_at: self.context.wall,
            lease: None,
            transient: false,
            release_with_claimant: false,
            claimant: None,
            obsolete: None,
            granted_by,
            planned: back.map(|back| Box::new(Planned { back: Some(back), ..Planned::default() })),
            details: None,
        });
        let event = Event { kind: EventKind::Transferred, before: Some(Arc::clone(from)) };
        self.put(address, Some(&Entry::Held(Arc::clone(from))), Some(Entry::Held(reservation)), Some(event));
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

    /// The MAC that a wish leads to; `own` is the address that may carry it already.
    ///
    /// # Errors
    /// `already_in_use` if somebody else carries it; `invalid_argument` if one shall be made and there is no prefix.
    pub(super) fn mac_for(&self, wish: Option<MacWish>, own: Option<Address>) -> Result<Option<Mac>, Refusal> {
        let taken = |mac: Mac| {
            let here = self.macs.contains(&mac);
            let there = self
                .network
                .holdings
                .mac(mac)
                .filter(|(address, _)| Some(*address) != own && !self.has_let_go(*address));
            let elsewhere = self.context.mac_elsewhere.filter(|(used, _)| *used == mac);
            let anywhere = here || there.is_some() || elsewhere.is_some();
            anywhere.then_some((there, elsewhere.map(|(_, address)| address)))
        };
        match wish {
            None => Ok(None),
            Some(MacWish::Given(mac)) => match taken(mac) {
                None => Ok(Some(mac)),
                Some((holder, elsewhere)) => Err(Refusal::Taken {
                    problem: format!(
                        "MAC {mac} is used by another reservation of the realm; a MAC is unique in its realm"
                    ),
                    address: holder.map(|(address, _)| address).or(elsewhere),
                    held_by: holder.map(|(_, reservation)| Box::new(held_by(reservation))),
                }),
            },
            Some(MacWish::Auto) => {
                let prefix = self.network.config.l2.mac_prefix.as_deref().unwrap_or_default();
                let Ok(Mac(base)) = format!("{prefix}:00:00:00").parse::<Mac>() else {
                    return Err(Refusal::invalid(
                        "mac",
                        "cannot be \"auto\" in a network without `l2.mac_prefix`; set it with network.update",
                    ));
                };
                // Random draws first; a prefix so full that they all meet another MAC is searched from the last one on.
                let draw = |attempt: u64| {
                    Mac(base | (crate::core::command::derived_id(self.context.entropy, attempt) as u64 & 0xff_ffff))
                };
                let drawn = (0..64).map(draw).find(|mac| taken(*mac).is_none());
                let start = draw(0).0 & 0xff_ffff;
                let searched = || {
                    (0..1u64 << 16).map(|step| Mac(base | (start + step) & 0xff_ffff)).find(|mac| taken(*mac).is_none())
                };
                match drawn.or_else(searched) {
                    Some(mac) => Ok(Some(mac)),
                    None => Err(Refusal::Taken {
                        problem: format!("no MAC is free under the prefix {prefix}; set another `l2.mac_prefix`"),
                        address: None,
                        held_by: None,
                    }),
                }
            }
        }
    }
}

/// What a grant says of itself beyond its lease and claimant, if anything.
fn details_of(options: &GrantOptions, mac: Option<Mac>) -> Option<Box<Details>> {
    let GrantOptions { owner_uid, labels, note, hostname, .. } = options;
    if owner_uid.is_none() && labels.is_none() && note.is_none() && hostname.is_none() && mac.is_none() {
        return None;
    }
    let details = Details {
        owner_uid: owner_uid.clone(),
        labels: labels.clone().unwrap_or_default(),
        note: note.clone().unwrap_or_default(),
        hostname: hostname.clone().unwrap_or_default(),
        mac,
    };
    (details != Details::default()).then(|| Box::new(details))
}

/// A part of what cools or is declined.
fn part_of(entry: &Entry, prefix_length: u8) -> Entry {
    match entry {
        Entry::Released(released) => Entry::Released(Arc::new(Released { prefix_length, ..Released::clone(released) })),
        Entry::Declined(declined) => Entry::Declined(Arc::new(Declined { prefix_length, ..Declined::clone(declined) })),
        Entry::Held(_) => unreachable!("what is held is in the way of a grant, or was let go by a step before it"),
    }
}

/// Facts about a holder, for refusals.
pub(super) fn held_by(reservation: &Reservation) -> HeldBy {
    HeldBy {
        holder: reservation.holder.clone(),
        claimant: reservation.claimant.clone(),
        since: WallTime(reservation.created_at.0),
    }
}

/// The prefixes that a range consists of, ascending: at most two per bit of the address.
pub(super) fn cidrs_of(range: Range) -> impl Iterator<Item = Cidr> {
    let (family, last) = (range.family(), range.last().bits());
    let mut at = Some(range.first().bits());
    std::iter::from_fn(move || {
        let first = at?;
        let aligned = if first == 0 { family.width() } else { (first.trailing_zeros() as u8).min(family.width()) };
        let mut order = aligned;
        while order > 0 && first.checked_add(crate::core::address::host_mask(order)).is_none_or(|end| end > last) {
            order -= 1;
        }
        let end = first + crate::core::address::host_mask(order);
        at = end.checked_add(1).filter(|next| *next <= last);
        Cidr::new(Address::new(family, first), family.width() - order)
    })
}

/// The aligned block of a length that begins at `first`.
pub(super) fn block(family: Family, first: u128, order: u8) -> Range {
    Range::of_bits(family, first, first + crate::core::address::host_mask(order))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_into_the_fewest_prefixes() {
        let cut = |text: &str| cidrs_of(text.parse().unwrap()).map(|cidr| cidr.to_string()).collect::<Vec<_>>();
        assert_eq!(cut("10.0.0.1-10.0.0.6"), ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"]);
        assert_eq!(cut("0.0.0.0-255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(cut("255.255.255.255"), ["255.255.255.255/32"]);
        assert_eq!(cut("ffff::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), ["ffff::/16"]);
    }
}
