//! All entries of a network at once, as they come from a store: what [`Holdings::set`] makes of them one by one, in about
//! half the time. Each owner is looked for once, no table grows, and the tree of addresses is built from the order they have.

use std::collections::BTreeMap;

use super::index::Index;
use super::records::Record;
use super::{Holdings, covered};
use crate::core::address::{Address, Range};
use crate::core::state::Entry;
use crate::core::types::{Generation, ShardTime, SlotKey};

/// So many owners are hashed one after the other. Where entries were read by another thread, each lies in memory that no cache
/// of this one has; looked at together they come together.
const TOGETHER: usize = 32;

/// Why entries are not those of one network.
#[derive(Debug)]
pub(in crate::core::network) enum Unfit {
    /// This is not the first address of its block.
    NotFirst(Address),
    /// Two entries cover it, or they do not ascend.
    Twice(Address),
    /// A slot holds two addresses.
    HoldsTwo(SlotKey, Address, Address),
}

impl Holdings {
    /// These entries, which ascend, for a network that is served from `since` on; and the highest generation of them.
    ///
    /// Cost: O(1) for each of them, but for leases and what cools, each of which takes its place in an order.
    pub(in crate::core::network) fn of_entries(
        entries: Vec<(Address, Entry)>,
        since: ShardTime,
    ) -> Result<(Self, Generation), Unfit> {
        let mut holdings = Self { owners: Index::with_room_for(entries.len()), ..Self::served_since(since) };
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let mut highest = Generation::default();
        let mut before: Option<Range> = None;
        let mut entries = entries.into_iter();
        let mut some: Vec<(u64, Address, Entry)> = Vec::with_capacity(TOGETHER);
        loop {
            some.extend(entries.by_ref().take(TOGETHER).map(|(address, entry)| {
                let hash = entry.held().map_or(0, |held| holdings.owner_hash(&held.holder.scope, &held.holder.owner));
                (hash, address, entry)
            }));
            if some.is_empty() {
                break;
            }
            for (hash, address, entry) in some.drain(..) {
                let range = covered(address, entry.prefix_length());
                if range.first() != address {
                    return Err(Unfit::NotFirst(address));
                }
                if before.is_some_and(|before| before.last() >= address) {
                    return Err(Unfit::Twice(address));
                }
                before = Some(range);
                highest = highest.max(entry.generation());
                let id = holdings.records.insert(Record::new(address, entry.clone()));
                match address {
                    Address::V4(bits) => v4.push((bits, id)),
                    Address::V6(bits) => v6.push((bits, id)),
                }
                match &entry {
                    Entry::Held(held) => {
                        let first = holdings.owner_first_of(hash, &held.holder.scope, &held.holder.owner);
                        if first.is_some()
                            && held.obsolete.is_none()
                            && let Some((other, _)) = holdings.slot(&held.holder)
                        {
                            return Err(Unfit::HoldsTwo(held.holder.clone(), other, address));
                        }
                        holdings.link_held_at(id, held, (hash, first));
                    }
                    Entry::Released(_) | Entry::Declined(_) => holdings.link(id, &entry),
                }
            }
        }
        // A tree that is made of what ascends is filled from one side to the other.
        holdings.v4 = BTreeMap::from_iter(v4);
        holdings.v6 = BTreeMap::from_iter(v6);
        Ok((holdings, highest))
    }
}
