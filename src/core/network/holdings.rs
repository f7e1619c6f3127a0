//! What lies at the addresses of a network, found by address, slot, owner, scope and time.
//!
//! Owns the entries and every index over them; [`Holdings::set`] is the only way in (`linking`). Indexes have record
//! numbers, not copies of keys: the keys are stored once, in the records. Owners and scopes are chains through the records,
//! so letting go of everything that an owner holds costs only as much as the owner holds.
//!
//! Review notes: does a new index cost only what is live?

mod check;
mod index;
mod linking;
mod loading;
mod promised;
mod records;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap};

use self::index::Index;
pub use self::loading::Entries;
pub(super) use self::loading::Unfit;
use self::promised::Promised;
pub(super) use self::promised::taker_of;
use self::records::{NONE, Record, RecordId, Records};
use super::{STANDING_FIRST_MAX, Standing};
use crate::core::address::{Address, Cidr, Family, Range};
use crate::core::outcome::ScopeUsage;
use crate::core::state::{Entry, Lease, Released, Reservation};
use crate::core::types::{Mac, Owner, Scope, ShardTime, Slot, SlotKey};
use crate::limits::LEASE_GRACE_SECONDS;

/// A held reservation with its address.
pub(super) type Holding<'a> = (Address, &'a Arc<Reservation>);

/// What one scope holds in this network.
#[derive(Debug, Clone)]
struct ScopeChain {
    first: RecordId,
    current: u64,
    obsolete: u64,
    unbound: u64,
    addresses: u128,
}

/// Entries and their indexes.
#[derive(Debug, Clone, Default)]
pub(super) struct Holdings {
    records: Records,
    v4: BTreeMap<u32, RecordId>,
    v6: BTreeMap<u128, RecordId>,
    hasher: DefaultHashBuilder,
    /// Current reservations by slot, without those that are the first of their owner's chain. Nearly every owner has one
    /// address and is found through `owners` alone.
    slots: Index,
    /// Cooling addresses by the hash of the slot that let them go, then by time. They are ordered, because one slot may have
    /// let go any number, all under one hash, and gets back what it let go last.
    cooling_slots: BTreeSet<(u64, ShardTime, RecordId)>,
    /// The hashes in `cooling_slots`, each once. Nearly every slot that asks let nothing go, and this tells it without a
    /// search in a large tree.
    cooling_hashes: Index,
    /// First record of each owner's chain of held records.
    owners: Index,
    scopes: HashMap<Scope, ScopeChain>,
    /// The names of the scopes in order, for lists. Grants mostly find their scope in `scopes` and do not need this one.
    scopes_by_name: BTreeSet<Scope>,
    promised: Promised,
    leases: BTreeSet<(ShardTime, RecordId)>,
    cooling: BTreeSet<(ShardTime, RecordId)>,
    declined: BTreeSet<(ShardTime, RecordId)>,
    macs: HashMap<Mac, RecordId>,
    held: u64,
    /// The time since which leases can be renewed here.
    served_since: ShardTime,
}

/// Number of addresses that an entry with this prefix length covers.
pub(super) fn span(family: Family, prefix_length: u8) -> u128 {
    1u128.checked_shl(u32::from(family.width() - prefix_length)).unwrap_or(u128::MAX)
}

/// The addresses that an entry covers.
pub(super) fn covered(address: Address, prefix_length: u8) -> Range {
    Cidr::containing(address, prefix_length).range()
}

/// The half of a hash that an index does not store, put in place of a record number. It is never `NONE`, so two of its
/// values coincide.
fn lower_half(hash: u64) -> RecordId {
    (hash as RecordId).min(NONE - 1)
}

/// All entries of one hash, in the order of `cooling_slots`.
fn of_hash(hash: u64) -> std::ops::RangeInclusive<(u64, ShardTime, RecordId)> {
    (hash, ShardTime::default(), RecordId::MIN)..=(hash, ShardTime(u64::MAX), RecordId::MAX)
}

impl Holdings {
    /// Moves the start of service to a later time. Returns false if `since` is no later.
    pub(super) fn serve_from(&mut self, since: ShardTime) -> bool {
        if since <= self.served_since {
            return false;
        }
        // A lease that ends after the grace keeps its own end.
        let late = (since.after_seconds(LEASE_GRACE_SECONDS), RecordId::MIN);
        let soon: Vec<(ShardTime, RecordId)> = self.leases.range(..late).copied().collect();
        self.served_since = since;
        for (ends, id) in soon {
            let lease = self.record(id).held().and_then(|held| held.lease);
            self.leases.remove(&(ends, id));
            self.leases.extend(lease.map(|lease| (self.end_of(lease), id)));
        }
        true
    }

    /// When a lease ends: never before its holder has had some time to renew it here.
    pub(super) fn end_of(&self, lease: Lease) -> ShardTime {
        lease.ends.max(self.served_since.after_seconds(lease.ttl_seconds.get().min(LEASE_GRACE_SECONDS)))
    }

    fn record(&self, id: RecordId) -> &Record {
        self.records.get(id)
    }

    fn record_mut(&mut self, id: RecordId) -> &mut Record {
        self.records.get_mut(id)
    }

    fn id_at(&self, address: Address) -> Option<RecordId> {
        match address {
            Address::V4(bits) => self.v4.get(&bits).copied(),
            Address::V6(bits) => self.v6.get(&bits).copied(),
        }
    }

    /// The entry that begins at exactly this address.
    pub(super) fn at(&self, address: Address) -> Option<&Entry> {
        self.id_at(address).map(|id| &self.record(id).entry)
    }

    /// The entry that covers this address: its own, or that of the block that it lies in.
    pub(super) fn covering(&self, address: Address) -> Option<(Address, &Entry)> {
        let id = match address {
            Address::V4(bits) => *self.v4.range(..=bits).next_back()?.1,
            Address::V6(bits) => *self.v6.range(..=bits).next_back()?.1,
        };
        let record = self.record(id);
        let base = record.address();
        covered(base, record.entry.prefix_length()).contains(address).then_some((base, &record.entry))
    }

    /// Entries from this bound on, ascending, IPv4 before IPv6.
    pub(super) fn ascending(&self, from: std::ops::Bound<Address>) -> impl Iterator<Item = (Address, &Entry)> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let v4 = match from {
            Unbounded => Some(Unbounded),
            Included(Address::V4(bits)) => Some(Included(bits)),
            Excluded(Address::V4(bits)) => Some(Excluded(bits)),
            Included(Address::V6(_)) | Excluded(Address::V6(_)) => None,
        };
        let v6 = match from {
            Included(Address::V6(bits)) => Included(bits),
            Excluded(Address::V6(bits)) => Excluded(bits),
            Unbounded | Included(Address::V4(_)) | Excluded(Address::V4(_)) => Unbounded,
        };
        let v4 = v4.into_iter().flat_map(move |from| self.v4.range((from, Unbounded)));
        let ids = v4.map(|(_, id)| *id).chain(self.v6.range((v6, Unbounded)).map(|(_, id)| *id));
        ids.map(|id| (self.record(id).address(), &self.record(id).entry))
    }

    /// Entries that cover any address of the range, ascending.
    pub(super) fn overlapping(&self, range: Range) -> impl Iterator<Item = (Address, &Entry)> {
        let first = self.covering(range.first()).map_or(range.first(), |(base, _)| base);
        self.ascending(std::ops::Bound::Included(first)).take_while(move |(address, _)| *address <= range.last())
    }

    /// Reservations in the range, as what stands in the way of a change to it.
    pub(super) fn standing_in(&self, range: Range) -> Standing {
        let mut standing = Standing::default();
        for (address, entry) in self.overlapping(range) {
            if matches!(entry, Entry::Held(_)) {
                standing.count += 1;
                if standing.first.len() < STANDING_FIRST_MAX {
                    standing.first.push(address);
                }
            }
        }
        standing
    }

    /// The current reservation of a slot.
    pub(super) fn slot(&self, key: &SlotKey) -> Option<(Address, &Arc<Reservation>)> {
        let first = self.record(self.owner_first(&key.scope, &key.owner)?);
        let of_slot =
            |record: &Record| record.held().is_some_and(|held| held.obsolete.is_none() && held.holder.slot == key.slot);
        let record = match first.links.owner_next {
            _ if of_slot(first) => first,
            NONE => return None,
            _ => {
                let is = |id: RecordId| self.record(id).held().is_some_and(|held| held.holder == *key);
                self.record(self.slots.find(self.hasher.hash_one(key), is)?)
            }
        };
        record.held().map(|reservation| (record.address(), reservation))
    }

    /// Does anything end by itself: a lease, a cooldown or a probation?
    pub(super) fn anything_ends(&self) -> bool {
        !(self.leases.is_empty() && self.cooling.is_empty() && self.declined.is_empty())
    }

    /// Does any address cool?
    pub(super) fn anything_cools(&self) -> bool {
        !self.cooling_slots.is_empty()
    }

    /// Cooling addresses that this slot let go, the latest first.
    pub(super) fn cooling_of(&self, key: &SlotKey) -> impl Iterator<Item = (Address, &Arc<Released>)> {
        let hash = self.hasher.hash_one(key);
        let of_hash = self.cools(hash).then(|| self.cooling_slots.range(of_hash(hash)));
        of_hash.into_iter().flat_map(Iterator::rev).filter_map(|&(_, _, id)| {
            let record = self.record(id);
            match &record.entry {
                Entry::Released(released) if released.last == *key => Some((record.address(), released)),
                Entry::Released(_) | Entry::Held(_) | Entry::Declined(_) => None,
            }
        })
    }

    /// Is anything cooling that a slot of this hash let go?
    fn cools(&self, hash: u64) -> bool {
        self.cooling_hashes.find(hash, |rest| rest == lower_half(hash)).is_some()
    }

    /// Prefetches the memory that has, or would have, the owners of these slots.
    pub(super) fn touch<'a>(&self, slots: impl Iterator<Item = &'a SlotKey>) {
        // Few instructions may lie between two reads that wait for memory; otherwise the processor cannot start the second
        // during the first.
        let mut hashes = [0; 32];
        let mut count = 0;
        for (hash, slot) in hashes.iter_mut().zip(slots) {
            *hash = self.owner_hash(&slot.scope, &slot.owner);
            count += 1;
        }
        std::hint::black_box(hashes[..count].iter().fold(0, |sum, hash| sum ^ self.owners.touch(*hash)));
    }

    fn owner_hash(&self, scope: &Scope, owner: &Owner) -> u64 {
        self.hasher.hash_one((scope, owner))
    }

    fn owner_first(&self, scope: &Scope, owner: &Owner) -> Option<RecordId> {
        self.owner_first_of(self.owner_hash(scope, owner), scope, owner)
    }

    fn owner_first_of(&self, hash: u64, scope: &Scope, owner: &Owner) -> Option<RecordId> {
        let belongs =
            |id: RecordId| self.record(id).held().is_some_and(|r| r.holder.owner == *owner && r.holder.scope == *scope);
        self.owners.find(hash, belongs)
    }

    /// Current reservations of an owner.
    pub(super) fn owner_count(&self, scope: &Scope, owner: &Owner) -> u64 {
        self.owner_first(scope, owner).map_or(0, |id| u64::from(self.record(id).links.owner_current))
    }

    /// Current reservations of a scope.
    pub(super) fn scope_count(&self, scope: &Scope) -> u64 {
        self.scopes.get(scope).map_or(0, |chain| chain.current)
    }

    /// Reservations of a scope, including obsolete ones.
    pub(super) fn scope_held(&self, scope: &Scope) -> u64 {
        self.scopes.get(scope).map_or(0, |chain| chain.current + chain.obsolete)
    }

    /// Everything that an owner holds, including obsolete reservations, in no particular order.
    pub(super) fn of_owner(&self, scope: &Scope, owner: &Owner) -> impl Iterator<Item = (Address, &Arc<Reservation>)> {
        self.chain(self.owner_first(scope, owner).unwrap_or(NONE), |record| record.links.owner_next)
    }

    /// Everything that a scope holds, including obsolete reservations, in no particular order.
    pub(super) fn of_scope(&self, scope: &Scope) -> impl Iterator<Item = (Address, &Arc<Reservation>)> {
        self.chain(self.scopes.get(scope).map_or(NONE, |chain| chain.first), |record| record.links.scope_next)
    }

    fn chain(
        &self,
        first: RecordId,
        next: impl Fn(&Record) -> RecordId,
    ) -> impl Iterator<Item = (Address, &Arc<Reservation>)> {
        let mut at = first;
        std::iter::from_fn(move || {
            let record = (at != NONE).then(|| self.record(at))?;
            at = next(record);
            Some((record.address(), record.held().expect("chains link held records")))
        })
    }

    /// How many scopes hold anything.
    pub(super) fn scopes_held(&self) -> usize {
        self.scopes.len()
    }

    /// Names of the scopes that hold anything.
    pub(super) fn scope_names(&self) -> impl ExactSizeIterator<Item = &Scope> {
        self.scopes.keys()
    }

    /// What each scope after this one holds, by name. Cost: O(log), plus the scopes that are asked for.
    pub(super) fn scope_usage(&self, after: Option<&Scope>) -> impl Iterator<Item = ScopeUsage> {
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let held = self.scopes_by_name.range::<Scope, _>(behind).map(|scope| (scope, self.scopes.get(scope)));
        held.filter_map(|(scope, chain)| {
            chain.map(|chain| ScopeUsage {
                scope: scope.clone(),
                reservations: chain.current + chain.obsolete,
                addresses: chain.addresses,
                obsolete: chain.obsolete,
                unbound: chain.unbound,
            })
        })
    }

    /// Which reservation has a MAC.
    pub(super) fn mac(&self, mac: Mac) -> Option<(Address, &Arc<Reservation>)> {
        let record = self.record(*self.macs.get(&mac)?);
        record.held().map(|reservation| (record.address(), reservation))
    }

    /// All MACs, each with its address.
    pub(super) fn macs(&self) -> impl Iterator<Item = (Mac, Address)> + '_ {
        self.macs.iter().map(|(mac, id)| (*mac, self.record(*id).address()))
    }

    /// Number of reservations, current and obsolete.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Number of entries of every kind.
    pub(super) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Leases by their end.
    pub(super) fn leases(&self) -> impl Iterator<Item = (ShardTime, Address)> {
        self.leases.iter().map(|&(time, id)| (time, self.record(id).address()))
    }

    /// Cooling addresses by their release.
    pub(super) fn cooling(&self) -> impl Iterator<Item = (ShardTime, Address)> {
        self.cooling.iter().map(|&(time, id)| (time, self.record(id).address()))
    }

    /// Declined addresses by the end of their probation.
    pub(super) fn declined(&self) -> impl Iterator<Item = (ShardTime, Address)> {
        self.declined.iter().map(|&(time, id)| (time, self.record(id).address()))
    }

    /// Bytes that the indexes and record table take, without what the entries point to.
    pub(super) fn index_bytes(&self) -> usize {
        let tree = |entries: usize, bytes: usize| entries * (bytes + 4) * 3 / 2;
        self.records.bytes()
            + tree(self.v4.len(), 4)
            + tree(self.v6.len(), 16)
            + self.slots.bytes()
            + tree(self.cooling_slots.len(), 20)
            + self.cooling_hashes.bytes()
            + self.owners.bytes()
            + tree(self.leases.len() + self.cooling.len() + self.declined.len(), 8)
            + self.macs.capacity() * 17
    }
}

/// The slot, or the default one for lookups that name none.
pub(super) fn slot_or_default(slot: Option<&Slot>) -> Slot {
    slot.cloned().unwrap_or_default()
}
