//! All entries of a network at once, as they come from a store: the same result as [`Holdings::set`] for one after the other, in
//! about half the time. Each owner is looked up once, no table grows, and the tree of addresses is built in ascending order.
//!
//! Entries are indexed as they are read. So the reader need not keep them until the last one has come, and one thread can
//! index while another reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::index::Index;
use super::linking::OwnerPlace;
use super::records::{Record, RecordId};
use super::{Holdings, covered};
use crate::core::address::{Address, Range};
use crate::core::state::Entry;
use crate::core::types::{Generation, ShardTime, SlotKey};

/// How many owners are hashed one after the other. If another thread read the entries, each lies in memory that this thread
/// has not cached; looked at together, they are fetched together.
const TOGETHER: usize = 32;

/// Why entries cannot be those of one network.
#[derive(Debug, Clone)]
pub(in crate::core::network) enum Unfit {
    /// This address is not the first of its block.
    NotFirst(Address),
    /// Two entries cover this address, or the entries do not ascend.
    Twice(Address),
    /// A slot holds two addresses.
    HoldsTwo(SlotKey, Address, Address),
}

/// What lies at the addresses of a network, as a store reads it: each entry once, ascending. All indexes are built along the
/// way.
///
/// Entries that do not fit together are kept as they came, and [`Network::load`](crate::core::network::Network::load)
/// refuses them.
#[derive(Debug, Clone, Default)]
pub struct Entries(Box<Indexing>);

#[derive(Debug, Clone, Default)]
struct Indexing {
    /// Without the trees of addresses, which are built from `v4` and `v6` at the end, and as if it had always been served.
    holdings: Holdings,
    v4: Vec<(u32, RecordId)>,
    v6: Vec<(u128, RecordId)>,
    /// The last entries, which are not in `holdings` yet.
    some: Vec<Waiting>,
    highest: Generation,
    before: Option<Range>,
    /// From where on the entries are not those of one network: the reason, and all entries from there on.
    unfit: Option<(Unfit, Vec<(Address, Entry)>)>,
}

/// An entry and, if it is held, the hash of its owner and the first record of that owner, if there was one.
#[derive(Debug, Clone)]
struct Waiting {
    address: Address,
    entry: Entry,
    owner: OwnerPlace,
}

impl Entries {
    /// No entries yet, with room for this many in the largest of the indexes.
    pub fn with_room_for(count: usize) -> Self {
        let holdings = Holdings { owners: Index::with_room_for(count), ..Holdings::default() };
        Self(Box::new(Indexing { holdings, ..Indexing::default() }))
    }

    /// Adds the next entry.
    ///
    /// Cost: O(1), except that a lease or a cooldown takes its place in an order.
    pub fn push(&mut self, address: Address, entry: Entry) {
        self.0.some.push(Waiting { address, entry, owner: (0, None) });
        if self.0.some.len() >= TOGETHER {
            self.0.take_in();
        }
    }

    /// Entries in any order; of several at one address, the last one counts.
    ///
    /// Cost: that of pushing each, and a sort.
    pub fn of_any_order(mut entries: Vec<(Address, Entry)>) -> Self {
        if !entries.is_sorted_by(|one, other| one.0 < other.0) {
            // The sort is stable, so the last one of an address stays the last.
            entries.sort_by_key(|(address, _)| *address);
            entries.reverse();
            entries.dedup_by_key(|(address, _)| *address);
            entries.reverse();
        }
        entries.into()
    }

    /// As [`Entries::of_any_order`], for entries that were pushed as they came. Costs nothing if they were in order.
    pub fn in_order(mut self) -> Self {
        self.0.take_in();
        if self.0.unfit.is_none() { self } else { Self::of_any_order(self.into_iter().collect()) }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        let Indexing { v4, v6, some, unfit, .. } = &*self.0;
        v4.len() + v6.len() + some.len() + unfit.as_ref().map_or(0, |(_, others)| others.len())
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries as they came.
    pub fn iter(&self) -> impl Iterator<Item = (Address, &Entry)> {
        let Indexing { holdings, some, unfit, .. } = &*self.0;
        let indexed = holdings.records.iter().map(|record| (record.address(), &record.entry));
        let others = unfit.iter().flat_map(|(_, others)| others).map(|(address, entry)| (*address, entry));
        indexed.chain(others).chain(some.iter().map(|waiting| (waiting.address, &waiting.entry)))
    }

    /// The holdings of a network that is served from `since` on, and the highest generation among the entries.
    ///
    /// # Errors
    /// Why they are not those of one network, and all of them.
    pub(in crate::core::network) fn settle(
        mut self,
        since: ShardTime,
    ) -> Result<(Holdings, Generation), (Unfit, Self)> {
        self.0.take_in();
        if let Some((unfit, _)) = &self.0.unfit {
            return Err((unfit.clone(), self));
        }
        Ok(self.0.settle(since))
    }

    /// As [`Entries::settle`], without the entries that do not fit those before them.
    pub(in crate::core::network) fn settle_in_part(self, since: ShardTime) -> (Holdings, Generation) {
        let mut fitting = Indexing::default();
        for (address, entry) in self {
            fitting.some.push(Waiting { address, entry, owner: (0, None) });
            fitting.take_in();
            fitting.unfit = None;
        }
        fitting.settle(since)
    }
}

impl Indexing {
    fn settle(self, since: ShardTime) -> (Holdings, Generation) {
        let Self { mut holdings, v4, v6, some: _, highest, before: _, unfit: _ } = self;
        // A tree that is built from ascending entries is filled from one side to the other.
        holdings.v4 = BTreeMap::from_iter(v4);
        holdings.v6 = BTreeMap::from_iter(v6);
        holdings.serve_from(since);
        (holdings, highest)
    }

    /// Indexes the last entries.
    fn take_in(&mut self) {
        let mut some = std::mem::take(&mut self.some);
        for Waiting { entry, owner, .. } in &mut some {
            if let Some(held) = entry.held() {
                owner.0 = self.holdings.owner_hash(&held.holder.scope, &held.holder.owner);
            }
        }
        // The places in the table are also far apart, so they are looked at together too.
        for Waiting { entry, owner, .. } in &mut some {
            if let Some(held) = entry.held() {
                owner.1 = self.holdings.owner_first_of(owner.0, &held.holder.scope, &held.holder.owner);
            }
        }
        for Waiting { address, entry, owner } in some.drain(..) {
            match &mut self.unfit {
                None => {
                    if let Err((unfit, entry)) = self.put(address, entry, owner) {
                        self.unfit = Some((unfit, vec![(address, entry)]));
                    }
                }
                Some((_, others)) => others.push((address, entry)),
            }
        }
        self.some = some;
    }

    fn put(&mut self, address: Address, entry: Entry, (hash, mut first): OwnerPlace) -> Result<(), (Unfit, Entry)> {
        let range = covered(address, entry.prefix_length());
        if range.first() != address {
            return Err((Unfit::NotFirst(address), entry));
        }
        if self.before.is_some_and(|before| before.last() >= address) {
            return Err((Unfit::Twice(address), entry));
        }
        let holdings = &mut self.holdings;
        if let Entry::Held(held) = &entry {
            // Its owner's first record may have been added since that was looked for.
            first = first.or_else(|| holdings.owner_first_of(hash, &held.holder.scope, &held.holder.owner));
            if first.is_some()
                && held.obsolete.is_none()
                && let Some((other, _)) = holdings.slot(&held.holder)
            {
                return Err((Unfit::HoldsTwo(held.holder.clone(), other, address), entry));
            }
        }
        self.before = Some(range);
        self.highest = self.highest.max(entry.generation());
        let id = match &entry {
            // Noting something for others looks them up by name and reads the records found, so this one has to exist.
            Entry::Held(held) if held.promise().or(held.back()).is_some() => {
                let held = Arc::clone(held);
                let id = holdings.records.insert(Record::new(address, entry));
                holdings.link_held_at(id, &held, (hash, first));
                id
            }
            // Linked before the record exists, so that no reference count goes up and down to keep the reservation.
            Entry::Held(held) => {
                let id = holdings.records.next_id();
                let links = holdings.links_of((id, address.family()), held, (hash, first));
                holdings.records.insert(Record::linked(address, entry, links))
            }
            Entry::Released(_) | Entry::Declined(_) => {
                let id = holdings.records.next_id();
                holdings.link((id, address), &entry);
                holdings.records.insert(Record::new(address, entry))
            }
        };
        match address {
            Address::V4(bits) => self.v4.push((bits, id)),
            Address::V6(bits) => self.v6.push((bits, id)),
        }
        Ok(())
    }
}

impl IntoIterator for Entries {
    type Item = (Address, Entry);
    type IntoIter = Box<dyn Iterator<Item = (Address, Entry)> + Send>;

    /// The entries as they came.
    fn into_iter(self) -> Self::IntoIter {
        let Indexing { holdings, some, unfit, .. } = *self.0;
        let indexed = holdings.records.into_iter().map(|record| (record.address(), record.entry));
        let others = unfit.into_iter().flat_map(|(_, others)| others);
        Box::new(indexed.chain(others).chain(some.into_iter().map(|waiting| (waiting.address, waiting.entry))))
    }
}

impl FromIterator<(Address, Entry)> for Entries {
    fn from_iter<T: IntoIterator<Item = (Address, Entry)>>(entries: T) -> Self {
        let entries = entries.into_iter();
        let mut all = Self::with_room_for(entries.size_hint().0);
        entries.for_each(|(address, entry)| all.push(address, entry));
        all
    }
}

impl From<Vec<(Address, Entry)>> for Entries {
    fn from(entries: Vec<(Address, Entry)>) -> Self {
        entries.into_iter().collect()
    }
}
