//! Compares a network in memory with what the store has, and with itself, slice by slice: the work of the self-check.
//!
//! Both sides are networks, so derived values are compared too: a wrong count in memory differs from the one that loading
//! makes. A difference is not necessarily an error, because what was decided since the store was read differs as well.
//!
//! Neighbours: `actors::self_check` reads the store and judges; `Network::check` compares everything at once, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::Network;
use super::holdings::covered;
use crate::core::address::{Address, Range};
use crate::core::state::{Entry, Key, ReservationKind, SubnetConfig};

/// Something that is wrong, unless it was decided in the meantime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Odd {
    /// The record with this key differs between memory and store.
    Record(Key),
    /// The counts of a pool or subnet are not those of its records.
    Counts(Range),
    /// An index does not lead to the record at this address, or its space counts as free, whatever the store has.
    Index(Address),
}

/// The result of one slice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compared {
    /// What is odd, in no particular order.
    pub odd: Vec<Odd>,
    /// The address after which the next slice begins; none: this was the last slice.
    pub next: Option<Address>,
}

impl Odd {
    /// Where it is, in words.
    pub fn place(self) -> String {
        match self {
            Odd::Record(Key::Config) => "the configuration".to_owned(),
            Odd::Record(Key::Deployment) => "the record of a deployment".to_owned(),
            Odd::Record(Key::Subnet(id)) => format!("subnet {id}"),
            Odd::Record(Key::Address(address)) => address.to_string(),
            Odd::Counts(range) => format!("the counts of {range}"),
            Odd::Index(address) => format!("what leads to {address}"),
        }
    }

    /// What one side has there, for whoever has to choose between the two sides. None: that side has no such network.
    pub fn in_words(self, side: Option<&Network>) -> String {
        match (self, side) {
            (Odd::Record(key), Some(network)) => network.in_words(key),
            (_, None) => "no such network".to_owned(),
            (Odd::Counts(_), Some(_)) => "another sum of what lies there".to_owned(),
            (Odd::Index(address), Some(network)) => network.in_words(Key::Address(address)),
        }
    }
}

impl Network {
    /// Compares the records after an address with what is stored, if anything is, at most `limit` of them. The first slice
    /// (without `after`) also compares configuration and subnets, and the last one the counts.
    ///
    /// Cost: O(log) for each record; for the last slice O(subnets and pools).
    pub fn compare(&self, stored: Option<&Self>, after: Option<Address>, limit: usize) -> Compared {
        let mut odd = Vec::new();
        if after.is_none() {
            self.compare_configured(stored, &mut odd);
        }
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut here = self.holdings.ascending(behind).peekable();
        let mut there = stored.into_iter().flat_map(|stored| stored.holdings.ascending(behind)).peekable();
        let mut looked_at = 0;
        let mut last = after;
        while let Some(address) = [here.peek(), there.peek()].into_iter().flatten().map(|(address, _)| *address).min() {
            if looked_at == limit {
                return Compared { odd, next: last };
            }
            let mine = here.next_if(|(at, _)| *at == address).map(|(_, entry)| entry);
            let theirs = there.next_if(|(at, _)| *at == address).map(|(_, entry)| entry);
            if mine != theirs {
                odd.push(Odd::Record(Key::Address(address)));
            }
            if mine.is_some_and(|entry| !self.leads_to(address, entry)) {
                odd.push(Odd::Index(address));
            }
            (looked_at, last) = (looked_at + 1, Some(address));
        }
        if let Some(stored) = stored {
            self.compare_counts(stored, &mut odd);
        }
        Compared { odd, next: None }
    }

    /// What is stored under a key, for whoever has to choose between two sides.
    fn in_words(&self, key: Key) -> String {
        match key {
            Key::Config => format!("version {}", self.config.version.0),
            Key::Deployment => "no deployment".to_owned(),
            Key::Subnet(id) => match self.subnets.iter().find(|subnet| subnet.id == id) {
                Some(subnet) => format!("{}, version {}", subnet.cidr, subnet.version.0),
                None => "no such subnet".to_owned(),
            },
            Key::Address(address) => match self.holdings.at(address) {
                Some(Entry::Held(held)) => {
                    let kind = if held.kind == ReservationKind::Static { "static" } else { "dynamic" };
                    let ends = held.lease.map(|lease| format!(", lease ends at {} of its shard", lease.ends.0));
                    let mac = held.details.as_ref().and_then(|details| details.mac).map(|mac| format!(", MAC {mac}"));
                    let (length, holder, generation) = (held.prefix_length, &held.holder, held.generation.0);
                    let [ends, mac] = [ends, mac].map(Option::unwrap_or_default);
                    format!("/{length} {kind}, held by {holder}, generation {generation}{ends}{mac}")
                }
                Some(Entry::Released(released)) => format!("let go by {}", released.last),
                Some(Entry::Declined(_)) => "declined".to_owned(),
                None => "nothing".to_owned(),
            },
        }
    }

    fn compare_configured(&self, stored: Option<&Self>, odd: &mut Vec<Odd>) {
        if stored.is_none_or(|stored| self.config != stored.config) {
            odd.push(Odd::Record(Key::Config));
        }
        let theirs = stored.map_or(&[][..], |stored| &stored.subnets);
        // Few networks have many subnets, and few of those differ.
        if self.subnets == theirs {
            return;
        }
        let of = |subnets: &[Arc<SubnetConfig>]| subnets.iter().map(|subnet| (subnet.id, Arc::clone(subnet))).collect();
        let (mine, theirs): (BTreeMap<_, _>, BTreeMap<_, _>) = (of(&self.subnets), of(theirs));
        let ids: BTreeSet<_> = mine.keys().chain(theirs.keys()).copied().collect();
        let differ = ids.into_iter().filter(|id| mine.get(id) != theirs.get(id));
        odd.extend(differ.map(|id| Odd::Record(Key::Subnet(id))));
    }

    fn compare_counts(&self, stored: &Self, odd: &mut Vec<Odd>) {
        let (mine, theirs) = (&self.layout, &stored.layout);
        // If pools or subnets differ, the counts say nothing, and that difference is already reported.
        if mine.pools.len() != theirs.pools.len() || mine.subnets.len() != theirs.subnets.len() {
            return;
        }
        let pools = mine.pools.iter().zip(&theirs.pools);
        let pools = pools.filter(|(mine, theirs)| {
            (mine.range, mine.counts, mine.free.free()) != (theirs.range, theirs.counts, theirs.free.free())
        });
        odd.extend(pools.map(|(mine, _)| Odd::Counts(mine.range)));
        let subnets = self.subnets.iter().zip(mine.subnets.iter().zip(&theirs.subnets));
        let subnets = subnets.filter(|(_, (mine, theirs))| mine.counts != theirs.counts);
        odd.extend(subnets.map(|(subnet, _)| Odd::Counts(subnet.cidr.range())));
    }

    /// Does a search by its holder, or for free space, agree with this record?
    fn leads_to(&self, address: Address, entry: &Entry) -> bool {
        let of_slot = |holder| self.holdings.slot(holder).map(|(found, _)| found);
        let is_found = match entry {
            Entry::Held(held) => held.obsolete.is_some() || of_slot(&held.holder) == Some(address),
            Entry::Released(_) | Entry::Declined(_) => true,
        };
        let range = covered(address, entry.prefix_length());
        is_found && self.layout.pools_over(range).all(|pool| self.layout.pools[pool].has_taken(range, entry))
    }
}
