//! Checks, while zones are dealt, that lists of static addresses have one for each instance: no instance gets a zone for
//! which one of its lists has none left, even if others give way.
//!
//! Addresses of subnets that serve the same zones are interchangeable, so the search goes over zones and kinds of subnets,
//! not over addresses. `network::deal` picks the addresses once each instance has its zone.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use crate::core::types::Owner;
use crate::limits::DEAL_LOOKS_MAX;

/// What the `static_ips` of a group have in one network, and for whom.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListRoom {
    /// How many addresses that nobody keeps lie in subnets that serve these zones; an empty list of zones serves all.
    pub subnets: Vec<(Arc<[CompactString]>, u64)>,
    /// Instances that are dealt an address and have no zone yet.
    pub seekers: Vec<Owner>,
    /// Instances that have an address, in a subnet that serves these zones, and no zone yet.
    pub keepers: Vec<(Owner, Arc<[CompactString]>)>,
    /// The zones of the instances that are dealt an address and already have a zone, or live in none.
    pub placed: Vec<Option<CompactString>>,
}

/// What is left of a list while zones are dealt.
pub(super) struct Room<'a> {
    /// Instances that take an address from it together with their zone.
    takers: BTreeSet<&'a Owner>,
    kinds: Vec<Kind<'a>>,
    /// Zones by number, in the order in which they came up.
    numbers: HashMap<Option<&'a CompactString>, usize>,
    /// For each zone, the kinds that serve it.
    serving: Vec<Vec<usize>>,
    /// Zones for which nothing is left, even if others give way. That does not change any more.
    full: BTreeSet<usize>,
    /// How many steps the search has taken. Beyond a limit everything is taken to fit, and `network::deal` says what does not.
    looks: u64,
}

/// Addresses of subnets that serve the same zones.
struct Kind<'a> {
    zones: &'a [CompactString],
    left: u64,
    /// How many instances have one of them, by zone.
    used: BTreeMap<usize, u64>,
}

impl<'a> Room<'a> {
    /// `dealt`: for each instance, the zones of which it gets one.
    pub(super) fn of(list: &'a ListRoom, dealt: &HashMap<&'a Owner, &'a [CompactString]>) -> Self {
        let mut kinds: BTreeMap<&[CompactString], u64> = BTreeMap::new();
        for (zones, count) in &list.subnets {
            let left = kinds.entry(zones).or_default();
            *left = left.saturating_add(*count);
        }
        let mut takers: BTreeSet<&Owner> = list.seekers.iter().collect();
        for (owner, zones) in &list.keepers {
            let may_stay = |zone: &CompactString| zones.is_empty() || zones.contains(zone);
            if !dealt.get(owner).is_some_and(|dealt| dealt.iter().any(may_stay)) {
                // The instance has to give up its address, wherever it is placed.
                *kinds.entry(zones).or_default() += 1;
                takers.insert(owner);
            }
        }
        let kind = |(zones, left)| Kind { zones, left, used: BTreeMap::new() };
        let kinds = kinds.into_iter().map(kind).collect();
        let (numbers, serving, full) = (HashMap::new(), Vec::new(), BTreeSet::new());
        let mut room = Self { takers, kinds, numbers, serving, full, looks: 0 };
        list.placed.iter().for_each(|zone| room.take(zone.as_ref()));
        room
    }

    pub(super) fn takers(&self) -> impl Iterator<Item = &'a Owner> {
        self.takers.iter().copied()
    }

    fn number_of(&mut self, zone: Option<&'a CompactString>) -> usize {
        let (kinds, serving) = (&self.kinds, &mut self.serving);
        *self.numbers.entry(zone).or_insert_with(|| {
            let serves = |kind: &Kind<'_>| kind.zones.is_empty() || zone.is_none_or(|zone| kind.zones.contains(zone));
            serving.push((0..kinds.len()).filter(|kind| serves(&kinds[*kind])).collect());
            serving.len() - 1
        })
    }

    /// Is there an address for another instance of this zone?
    pub(super) fn is_left_for(&mut self, zone: &'a CompactString) -> bool {
        let zone = self.number_of(Some(zone));
        if self.looks > DEAL_LOOKS_MAX {
            return true;
        }
        if self.full.contains(&zone) {
            return false;
        }
        let is_left = self.way_to(zone).is_some();
        if !is_left {
            self.full.insert(zone);
        }
        is_left
    }

    /// Gives an instance of this zone an address, if there is one.
    pub(super) fn take(&mut self, zone: Option<&'a CompactString>) {
        let zone = self.number_of(zone);
        let Some(moves) = self.way_to(zone).filter(|_| self.looks <= DEAL_LOOKS_MAX) else { return };
        for (at, Move { zone, takes, gives }) in moves.into_iter().enumerate() {
            if at == 0 {
                self.kinds[takes].left -= 1;
            }
            *self.kinds[takes].used.entry(zone).or_default() += 1;
            if let Some(used) = gives.and_then(|gives| self.kinds[gives].used.get_mut(&zone)) {
                *used -= 1;
            }
        }
    }

    /// The moves that give another instance of this zone an address: the first takes one that is left and gives up its own
    /// to the next.
    fn way_to(&mut self, zone: usize) -> Option<Vec<Move>> {
        // By zone: for which other zone it would give up which kind.
        let mut asked: BTreeMap<usize, Option<(usize, usize)>> = BTreeMap::from([(zone, None)]);
        let mut next = VecDeque::from([zone]);
        while let Some(zone) = next.pop_front() {
            for &kind in &self.serving[zone] {
                self.looks += 1;
                if self.kinds[kind].left > 0 {
                    return Some(moves(&asked, zone, kind));
                }
                for (giver, _) in self.kinds[kind].used.iter().filter(|(_, used)| **used > 0) {
                    self.looks += 1;
                    asked.entry(*giver).or_insert_with(|| {
                        next.push_back(*giver);
                        Some((zone, kind))
                    });
                }
            }
        }
        None
    }
}

/// An instance of this zone takes an address of one kind and gives up one of another.
struct Move {
    zone: usize,
    takes: usize,
    gives: Option<usize>,
}

fn moves(asked: &BTreeMap<usize, Option<(usize, usize)>>, mut zone: usize, mut takes: usize) -> Vec<Move> {
    let mut all = Vec::new();
    loop {
        let for_whom = asked.get(&zone).copied().flatten();
        all.push(Move { zone, takes, gives: for_whom.map(|(_, gives)| gives) });
        match for_whom {
            Some(asker) => (zone, takes) = asker,
            None => return all,
        }
    }
}
