//! Deals the listed addresses of a group to its instances. An instance that holds one of the list keeps it, and one to which
//! one is promised gets that again if possible. The others get the rest in order, each in a subnet that serves its zone. If
//! none is left for an instance, it gets an address that was dealt to another one, provided that the other can have a
//! different address (an augmenting path). So an instance is refused only if no deal has enough for all. The module also
//! tells what ties instances to zones, for a group that deals zones as well.
//!
//! Before: `server::deployments`, which has checked the lists by themselves. After: `deploy`, which treats a dealt address
//! like any named one.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use compact_str::CompactString;

use super::Network;
use super::deploy::{LetGo, holder_of};
use super::holdings::taker_of;
use super::read::read;
use super::refused::WishRefusals;
use crate::core::address::{Address, Range};
use crate::core::deployment::{Deploy, DeployWish, StaticList, Wanted};
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::Refusal;
use crate::core::state::NetworkKind;
use crate::core::types::{Scope, SlotKey};
use crate::core::zones::{ListRoom, TieReason, ZoneFacts, ZoneTie};
use crate::limits::DEAL_LOOKS_MAX;

/// The list of a group while addresses are dealt from it.
struct List<'a> {
    /// The ranges as they were given.
    ranges: &'a [Range],
    /// The same ranges, ascending and disjoint.
    sorted: Vec<Range>,
    /// The addresses that were dealt or are kept.
    given: BTreeSet<Address>,
    /// For each zone, where its next address is looked for: range and offset. What lies before is dealt, or never serves the
    /// zone.
    cursors: BTreeMap<Zone, (usize, u128)>,
    /// Members that were dealt an address, by its subnet and their own zone, in the order of dealing.
    dealt: BTreeMap<Option<usize>, BTreeMap<Zone, Vec<usize>>>,
    /// Zones for which nothing is left, whichever way it is dealt.
    dry: BTreeSet<Zone>,
}

/// The zones that subnets name, as numbers, so that comparing them is fast; and the count of looks.
#[derive(Default)]
struct Zones<'a> {
    numbers: BTreeMap<&'a CompactString, usize>,
    /// The zones that each subnet names, ascending.
    of_subnet: Vec<Vec<usize>>,
    /// How many looks at lists and at dealt addresses there have been.
    looks: u64,
}

/// Why a member is dealt nothing.
enum Undealt {
    /// No deal has an address for each.
    TooFew,
    /// The search would take too long.
    TooMany,
}

/// For each zone whose members may give up an address: the subnet of that address, and the zone for which it is given.
type Gives = BTreeMap<Zone, (Option<usize>, Zone)>;

/// Classes of zones that the same addresses serve. So there are no more of them than the configuration names, whatever
/// instances say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Zone {
    /// The instance has no zone; every subnet serves it.
    Any,
    /// A zone that no subnet names; only subnets without zones serve it.
    Unnamed,
    /// A zone that a subnet names, by its number.
    Named(usize),
}

/// The zones that subnets serve, cached: one shared list per subnet.
#[derive(Default)]
struct Served(HashMap<usize, Arc<[CompactString]>>);

impl Served {
    fn by_subnet(&mut self, network: &Network, index: usize) -> Arc<[CompactString]> {
        Arc::clone(self.0.entry(index).or_insert_with(|| Arc::from(network.subnets[index].zones.as_slice())))
    }

    /// The zones that the subnet of an address serves.
    fn by(&mut self, network: &Network, address: Address) -> Option<Arc<[CompactString]>> {
        Some(self.by_subnet(network, network.layout.subnet_of(address)?))
    }
}

impl<'a> Zones<'a> {
    /// Cost: O(zones of all subnets).
    fn of(network: &'a Network) -> Self {
        let named: BTreeSet<&CompactString> = network.subnets.iter().flat_map(|subnet| &subnet.zones).collect();
        let numbers: BTreeMap<&CompactString, usize> = named.into_iter().zip(0..).collect();
        let of_subnet = network.subnets.iter().map(|subnet| {
            let mut named: Vec<usize> = subnet.zones.iter().filter_map(|zone| numbers.get(zone)).copied().collect();
            named.sort_unstable();
            named
        });
        Self { of_subnet: of_subnet.collect(), numbers, looks: 0 }
    }

    fn of_wish(&self, wish: &DeployWish) -> Zone {
        match &wish.zone {
            None => Zone::Any,
            Some(zone) => self.numbers.get(zone).map_or(Zone::Unnamed, |number| Zone::Named(*number)),
        }
    }

    /// Does a subnet serve instances of such a zone? A subnet that names no zone serves all.
    fn serves(&self, subnet: Option<usize>, zone: Zone) -> bool {
        let Some(named) = subnet.and_then(|index| self.of_subnet.get(index)) else { return true };
        match zone {
            Zone::Any => true,
            Zone::Unnamed => named.is_empty(),
            Zone::Named(number) => named.is_empty() || named.binary_search(&number).is_ok(),
        }
    }

    /// Counts one more look.
    fn look(&mut self) -> Result<(), Undealt> {
        self.looks += 1;
        if self.looks > DEAL_LOOKS_MAX { Err(Undealt::TooMany) } else { Ok(()) }
    }
}

impl<'a> List<'a> {
    fn new(ranges: &'a [Range]) -> Self {
        let mut ascending = ranges.to_vec();
        ascending.sort_unstable_by_key(|range| range.first());
        let mut sorted: Vec<Range> = Vec::with_capacity(ascending.len());
        for range in ascending {
            match sorted.last_mut().filter(|last| last.overlaps(range)) {
                Some(last) => {
                    let end = last.last().max(range.last()).bits();
                    *last = Range::of_bits(last.family(), last.first().bits(), end);
                }
                None => sorted.push(range),
            }
        }
        let (given, cursors) = (BTreeSet::new(), BTreeMap::new());
        Self { ranges, sorted, given, cursors, dealt: BTreeMap::new(), dry: BTreeSet::new() }
    }

    /// Notes that a member was dealt an address of this subnet.
    fn note(&mut self, subnet: Option<usize>, zone: Zone, member: usize) {
        self.dealt.entry(subnet).or_default().entry(zone).or_default().push(member);
    }

    /// The last member of this zone that was dealt an address of this subnet, which it now gives up.
    fn gives(&mut self, subnet: Option<usize>, zone: Zone) -> Option<usize> {
        self.dealt.get_mut(&subnet)?.get_mut(&zone)?.pop()
    }

    fn contains(&self, address: Address) -> bool {
        let at = self.sorted.partition_point(|range| range.last() < address);
        self.sorted.get(at).is_some_and(|range| range.contains(address))
    }
}

impl Network {
    /// Deals the addresses. Returns the wishes with named addresses in place of dealt ones, and whether any of them was
    /// newly chosen here rather than held before. A wish for which nothing can be dealt is refused.
    pub(super) fn deal(&self, ask: &Deploy, let_go: &LetGo<'_>, refused: &mut WishRefusals) -> (Deploy, bool) {
        let mut dealt = ask.clone();
        let mut members: Vec<Vec<&mut DeployWish>> = ask.lists.iter().map(|_| Vec::new()).collect();
        // Nothing can be dealt in a dynamic network; each wish is refused for that on its own.
        for wish in dealt.wishes.iter_mut().filter(|_| self.config.kind != NetworkKind::Dynamic) {
            if let Wanted::Dealt(list) = wish.wanted
                && let Some(members) = members.get_mut(list)
            {
                members.push(wish);
            }
        }
        let (mut zones, promised) = if ask.lists.is_empty() {
            (Zones::default(), HashMap::new())
        } else {
            (Zones::of(self), self.promised_in(&ask.scope))
        };
        let mut chose = false;
        for (of_group, members) in ask.lists.iter().zip(members) {
            let mut list = List::new(&of_group.ranges);
            let mut rest = Vec::new();
            for wish in members {
                match self.kept_of(&list, ask, wish, let_go) {
                    Some(address) => {
                        list.given.insert(address);
                        wish.wanted = Wanted::Static(address);
                    }
                    None => rest.push(wish),
                }
            }
            self.deal_promised((&mut list, &zones), ask, &mut rest, &promised);
            for member in 0..rest.len() {
                if rest[member].named().is_some() {
                    continue;
                }
                let next = self.next_for((&mut list, &mut zones), member, &mut rest);
                let wish = &mut rest[member];
                let next = next.map_err(|why| self.undealt(of_group, wish, &why));
                if let Some(address) = refused.note(wish, next) {
                    wish.wanted = Wanted::Static(address);
                }
            }
            chose |= rest.iter().any(|wish| wish.named().is_some());
        }
        (dealt, chose)
    }

    /// Deals promised addresses again, so that a repeated plan is the same. They are not held yet, so, like everything that
    /// is dealt here, they may be passed on to others.
    fn deal_promised(
        &self,
        (list, zones): (&mut List<'_>, &Zones<'_>),
        ask: &Deploy,
        rest: &mut [&mut DeployWish],
        promised: &HashMap<SlotKey, Address>,
    ) {
        for (member, wish) in rest.iter_mut().enumerate() {
            let Some(&address) = promised.get(&holder_of(ask, wish)) else { continue };
            if list.contains(address) && self.may_be_dealt(address, wish) && list.given.insert(address) {
                wish.wanted = Wanted::Static(address);
                list.note(self.layout.subnet_of(address), zones.of_wish(wish), member);
            }
        }
    }

    /// The refusal of a member that is dealt nothing.
    fn undealt(&self, of_group: &StaticList, wish: &DeployWish, why: &Undealt) -> Refusal {
        let name = &self.config.name;
        let zone = wish.zone.as_deref().map_or_else(String::new, |zone| format!(" in zone `{zone}`"));
        let serves = |zone: &CompactString| self.subnets.iter().any(|subnet| subnet.serves(zone));
        let problem = match why {
            Undealt::TooFew if !wish.zone.as_ref().is_none_or(serves) => format!(
                "has no address of network `{name}`{zone}: none of its subnets serves that zone; add the zone to one of them \
                 (subnet.modify), or name another zone here"
            ),
            Undealt::TooFew if of_group.ranges.iter().any(|range| self.drains_within(range)) => format!(
                "has too few addresses of network `{name}`{zone} outside draining subnets; list one for each instance"
            ),
            Undealt::TooFew if wish.zone.is_some() => format!(
                "has too few addresses of network `{name}`{zone}; list one for each instance that lives there (an instance \
                 without a zone of its own is placed by what is listed, unless an address that it keeps ties it to a zone; \
                 `fresh` gives that up)"
            ),
            Undealt::TooFew => format!("has too few addresses of network `{name}`; list one for each instance"),
            Undealt::TooMany => format!(
                "has addresses in too many zones and subnets of network `{name}` to deal them to this many instances; use fewer \
                 zones, or name an `address` for each instance"
            ),
        };
        Refusal::invalid(of_group.field(), problem)
    }

    /// The address for a member: the next one that serves its zone, or that of another member, which gets a different one
    /// instead.
    ///
    /// Cost: usually O(log), and O(addresses of the list) once for each zone. If others have to give up theirs, O(zones ×
    /// subnets) of what was dealt. All members together get no more than [`DEAL_LOOKS_MAX`] looks.
    fn next_for(
        &self,
        (list, zones): (&mut List<'_>, &mut Zones<'_>),
        member: usize,
        rest: &mut [&mut DeployWish],
    ) -> Result<Address, Undealt> {
        let zone = zones.of_wish(&*rest[member]);
        if let Some(address) = self.next_of(list, zones, zone)? {
            list.note(self.layout.subnet_of(address), zone, member);
            return Ok(address);
        }
        if list.dry.contains(&zone) {
            return Err(Undealt::TooFew);
        }
        let (mut gives, mut looked) = (Gives::new(), VecDeque::from([zone]));
        while let Some(wants) = looked.pop_front() {
            let mut found = Vec::new();
            for (subnet, dealt) in &list.dealt {
                zones.look()?;
                if !zones.serves(*subnet, wants) {
                    continue;
                }
                for (giver, members) in dealt {
                    zones.look()?;
                    if !members.is_empty() && *giver != zone && !gives.contains_key(giver) {
                        gives.insert(*giver, (*subnet, wants));
                        found.push(*giver);
                    }
                }
            }
            for giver in found {
                if let Some(address) = self.next_of(list, zones, giver)? {
                    let passed = self.pass_on(list, (member, zone), (giver, address), &gives, rest);
                    return passed.ok_or(Undealt::TooFew);
                }
                looked.push_back(giver);
            }
        }
        list.dry.extend(gives.into_keys().chain([zone]));
        Err(Undealt::TooFew)
    }

    /// A member of the zone `giver` is dealt `address`, and what it had is passed on, from zone to zone, to the member that
    /// needs one.
    fn pass_on(
        &self,
        list: &mut List<'_>,
        (member, zone): (usize, Zone),
        (mut giver, mut address): (Zone, Address),
        gives: &Gives,
        rest: &mut [&mut DeployWish],
    ) -> Option<Address> {
        while giver != zone {
            let (subnet, wants) = *gives.get(&giver)?;
            let other = list.gives(subnet, giver)?;
            list.note(self.layout.subnet_of(address), giver, other);
            let had = rest[other].named()?;
            rest[other].wanted = Wanted::Static(address);
            (giver, address) = (wants, had);
        }
        list.note(self.layout.subnet_of(address), giver, member);
        Some(address)
    }

    /// What ties the instances that are dealt zones (those in `listed`), and how much room their lists have. An instance is
    /// tied by the address that it names or keeps, or that is promised to it and will be dealt again, to the zones that the
    /// address's subnet serves. An address that has to be given up ties nobody: it would only hold the instance in a zone
    /// that may have no other address.
    pub(super) fn zone_facts(&self, ask: &Deploy) -> Decision {
        let let_go = LetGo::of_scope(self, &ask.scope);
        let promised = self.promised_in(&ask.scope);
        let lists = ask.lists.iter().map(|list| (List::new(&list.ranges), ListRoom::default()));
        let mut lists: Vec<(List<'_>, ListRoom)> = lists.collect();
        let mut ties = Vec::new();
        let mut served = Served::default();
        for wish in &ask.wishes {
            let is_placed = !ask.listed.contains(&wish.owner);
            let tie = match &wish.wanted {
                Wanted::Static(address) => Some((TieReason::Named, *address)),
                // An invalid wish is refused when it is decided.
                Wanted::Automatic(wanted) => {
                    let own = self.own_serving(ask, wish, wanted, &let_go).ok().flatten();
                    own.map(|(address, _)| (TieReason::Held, address))
                }
                Wanted::Dealt(list) => lists.get_mut(*list).and_then(|(list, room)| {
                    let held = self.kept_of(list, ask, wish, &let_go);
                    match held {
                        Some(address) => {
                            list.given.insert(address);
                            let keeper = served.by(self, address).filter(|_| !is_placed);
                            room.keepers.extend(keeper.map(|zones| (wish.owner.clone(), zones)));
                        }
                        None if is_placed => room.placed.push(wish.zone.clone()),
                        None => room.seekers.push(wish.owner.clone()),
                    }
                    let dealt = |at: &Address| list.contains(*at) && !self.drains(*at);
                    let again = || promised.get(&holder_of(ask, wish)).copied().filter(dealt);
                    let held = held.map(|address| (TieReason::Held, address));
                    held.or_else(|| again().map(|address| (TieReason::Promised, address)))
                }),
            };
            let Some((reason, address)) = tie.filter(|_| !is_placed) else { continue };
            if let Some(zones) = served.by(self, address).filter(|zones| !zones.is_empty()) {
                ties.push(ZoneTie { owner: wish.owner.clone(), reason, zones });
            }
        }
        let asked = lists.into_iter().filter(|(_, room)| !room.seekers.is_empty() || !room.keepers.is_empty());
        let lists = asked.map(|(list, room)| ListRoom { subnets: self.left_of(&list, &mut served), ..room }).collect();
        read(Outcome::ZoneTies(ZoneFacts { ties, lists }))
    }

    /// How many addresses of a list nobody keeps, by the zones that their subnets serve. Draining subnets do not count,
    /// because nothing of them is dealt; neither does what lies in no subnet, because that is refused when it is claimed.
    ///
    /// Cost: O((ranges + subnets) × log subnets), and O(log) for each kept address.
    fn left_of(&self, list: &List<'_>, served: &mut Served) -> Vec<(Arc<[CompactString]>, u64)> {
        let mut left: BTreeMap<usize, u64> = BTreeMap::new();
        let mut subnets: Vec<(Range, usize)> =
            self.subnets.iter().enumerate().map(|(index, subnet)| (subnet.cidr.range(), index)).collect();
        subnets.sort_unstable_by_key(|(range, _)| range.first());
        for range in &list.sorted {
            let from = subnets.partition_point(|(subnet, _)| subnet.last() < range.first());
            for (subnet, index) in subnets[from..].iter().take_while(|(subnet, _)| subnet.first() <= range.last()) {
                let count = range.intersection(*subnet).map_or(0, Range::size);
                let of_it = left.entry(*index).or_default();
                *of_it = of_it.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
            }
        }
        for kept in &list.given {
            if let Some(of_it) = self.layout.subnet_of(*kept).and_then(|index| left.get_mut(&index)) {
                *of_it = of_it.saturating_sub(1);
            }
        }
        let dealt = left.into_iter().filter(|(index, _)| !self.subnets[*index].draining);
        dealt.map(|(index, count)| (served.by_subnet(self, index), count)).collect()
    }

    /// The addresses that are promised in a scope, and to which slot.
    fn promised_in(&self, scope: &Scope) -> HashMap<SlotKey, Address> {
        if !self.holdings.has_promises() {
            return HashMap::new();
        }
        self.holdings.of_scope(scope).filter_map(|(address, held)| Some((taker_of(held)?, address))).collect()
    }

    /// The address of a list that an instance holds, or held until a plan made it obsolete.
    fn kept_of(&self, list: &List<'_>, ask: &Deploy, wish: &DeployWish, let_go: &LetGo<'_>) -> Option<Address> {
        let holder = holder_of(ask, wish);
        let held = self.holdings.slot(&holder).into_iter().chain(let_go.of(&holder));
        held.map(|(address, _)| address).find(|address| {
            list.contains(*address) && !list.given.contains(address) && self.may_be_dealt(*address, wish)
        })
    }

    /// Does the subnet of an address allow that it is dealt to this instance? One of a draining subnet would only be refused.
    fn may_be_dealt(&self, address: Address, wish: &DeployWish) -> bool {
        !self.drains(address) && self.serves(address, wish)
    }

    /// Does a range overlap a draining subnet?
    fn drains_within(&self, range: &Range) -> bool {
        self.subnets.iter().any(|subnet| subnet.draining && subnet.cidr.range().overlaps(*range))
    }

    fn drains(&self, address: Address) -> bool {
        self.layout.subnet_of(address).is_some_and(|index| self.subnets[index].draining)
    }

    /// Does the subnet of an address serve the zone of an instance? True outside every subnet: that is refused when it is
    /// claimed.
    pub(super) fn serves(&self, address: Address, wish: &DeployWish) -> bool {
        let Some(zone) = &wish.zone else { return true };
        self.layout.subnet_of(address).is_none_or(|index| self.subnets[index].serves(zone))
    }

    /// Takes the next address of a list that serves this zone and was not dealt to anybody.
    fn next_of(&self, list: &mut List<'_>, zones: &mut Zones<'_>, zone: Zone) -> Result<Option<Address>, Undealt> {
        let cursor = list.cursors.entry(zone).or_insert((0, 0));
        while let Some(range) = list.ranges.get(cursor.0) {
            if cursor.1 >= range.size() {
                *cursor = (cursor.0 + 1, 0);
                continue;
            }
            zones.look()?;
            let address = Address::new(range.family(), range.first().bits() + cursor.1);
            let subnet = self.layout.subnet_of(address);
            if let Some(index) = subnet
                && (!zones.serves(subnet, zone) || self.subnets[index].draining)
            {
                // Nothing in the rest of this subnet can be dealt.
                let rest = self.subnets[index].cidr.last().bits() - address.bits();
                cursor.1 = cursor.1.saturating_add(rest).saturating_add(1);
                continue;
            }
            cursor.1 += 1;
            if list.given.insert(address) {
                return Ok(Some(address));
            }
        }
        Ok(None)
    }
}
