//! What configuration and entries mean for the next grant: per pool its free space, per subnet and pool its counts, and
//! which pools a request may draw from.
//!
//! All of it is derived: built from configuration and entries, and kept in step by [`Layout::entry_changed`]. A change of
//! configuration rebuilds only the pools that it touches, at a cost of the entries in them.
//!
//! ```text
//!              free     fresh    yielding        an address counts as taken in a space where an X stands;
//! held          X        X        X              reserved and unusable ones count as taken in all three
//! declined      X        X        X              fresh: for the policy oldest only
//! cooling       X        X                       yielding: for networks with cooldown_yields only
//! rested                 X                       rested: freed and past its cooldown, remembered by `oldest`
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use compact_str::CompactString;
use hashbrown::HashMap;

use super::counting::{count_address, count_entry, count_part, empty_counts};
use super::holdings::{Holdings, covered};
use super::pool_set::{PoolSet, Spans, each_gap, joined};
use super::pool_space::{PoolSpace, Remembered, taken_in};
use super::rested::{Rank, Rested};
use crate::core::address::{Address, Family, Range};
use crate::core::outcome::Counts;
use crate::core::space::Space;
use crate::core::state::{Entry, NetworkConfig, Policy, PoolConfig, SubnetConfig};
use crate::core::types::{Name, Owner, Scope, ShardTime, Slot};
use crate::limits::OLDEST_REMEMBERED_MAX;

/// Counts of one subnet.
#[derive(Debug, Clone)]
pub(super) struct SubnetSpace {
    range: Range,
    /// What counts as reserved: reserved ranges, unusable addresses, what is draining.
    counted: Spans,
    /// Network, broadcast, anycast, gateway, and what no subnet may give: granted by no flag.
    pub(super) unusable: Spans,
    pub(super) counts: Counts,
}

/// A single address kept for an owner; for one of its slots only, where one is named.
pub(super) type KeptAddress = (Option<Slot>, Address);

/// Everything derived.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    /// In drawing order.
    pub(super) pools: Vec<PoolSpace>,
    /// Parallel to the network's subnets.
    pub(super) subnets: Vec<SubnetSpace>,
    pools_by_address: Vec<(Range, usize)>,
    subnets_by_address: Vec<(Range, usize)>,
    /// Open pools with anything free.
    pub(super) room: PoolSet,
    /// Open pools.
    pub(super) open: PoolSet,
    /// When what cools longest in a pool was released, and the pool; of pools in which cooling addresses may yield.
    pub(super) cooling_longest: BTreeSet<(ShardTime, usize)>,
    /// When what `oldest` remembers longest of a pool was freed, and the pool.
    rested_longest: BTreeSet<(Rank, usize)>,
    /// How many ranges `oldest` remembers in all pools.
    remembered: usize,
    families: [PoolSet; 2],
    zones: HashMap<CompactString, PoolSet>,
    zoneless: PoolSet,
    names: HashMap<Name, PoolSet>,
    /// What `oldest` remembers of addresses that lie in no pool now, and may again.
    elsewhere: [Rested; 2],
    /// Single addresses kept for an owner, in address order.
    pub(super) kept_for: HashMap<(Scope, Owner), Vec<KeptAddress>>,
}

/// What an address lies in, of ranges that are ascending and apart. Cost: O(log).
fn index_of(ranges: &[(Range, usize)], address: Address) -> Option<usize> {
    // Most networks have one subnet, and one pool in it.
    let (range, index) = match ranges {
        [only] => only,
        _ => &ranges[ranges.partition_point(|(range, _)| range.first() <= address).checked_sub(1)?],
    };
    range.contains(address).then_some(*index)
}

fn remembered_of(family: Family, rested: &Rested) -> impl Iterator<Item = Remembered> {
    rested.iter().map(move |(rank, first, last)| (family, rank, first, last))
}

/// What no address of a subnet may ever be, whatever is asked: as numbers, ascending.
pub(super) fn unusable_spans(subnet: &SubnetConfig) -> Spans {
    let (first, last) = (subnet.cidr.base().bits(), subnet.cidr.last().bits());
    let mut spans: Spans = Vec::new();
    match subnet.cidr.family() {
        Family::V4 => {
            if subnet.cidr.length() < 31 {
                spans.extend([(first, first), (last, last)]);
            }
            spans.extend([(0, 0), (0xe000_0000, 0xefff_ffff), (0xffff_ffff, 0xffff_ffff)]);
        }
        Family::V6 => {
            if subnet.cidr.length() < 127 {
                spans.push((first, first));
            }
            // Nobody could name what is mapped from IPv4: a request that does is refused.
            let mapped = (0xffff_0000_0000, 0xffff_ffff_ffff);
            spans.extend([(0, 0), mapped, (0xff << 120, u128::MAX)]);
        }
    }
    if let Some(gateway) = subnet.gateway
        && subnet.cidr.contains(gateway)
    {
        spans.push((gateway.bits(), gateway.bits()));
    }
    let clip = |(start, end): (u128, u128)| (start <= last && end >= first).then(|| (start.max(first), end.min(last)));
    joined(spans.into_iter().filter_map(clip).collect())
}

impl Layout {
    /// Builds everything; spaces of pools that did not change are taken over from `old`.
    pub(super) fn build(
        config: &NetworkConfig,
        subnets: &[Arc<SubnetConfig>],
        holdings: &Holdings,
        old: Layout,
    ) -> Self {
        let remembers = config.policy == Policy::Oldest;
        let mut remembered: Vec<Remembered> = Vec::new();
        let mut reusable: HashMap<Range, PoolSpace> = HashMap::with_capacity(old.pools.len());
        for pool in old.pools {
            if remembers {
                remembered.extend(remembered_of(pool.range.family(), &pool.rested));
            }
            reusable.insert(pool.range, pool);
        }
        if remembers {
            remembered
                .extend(Family::ALL.into_iter().zip(&old.elsewhere).flat_map(|(f, rested)| remembered_of(f, rested)));
        }
        let mut counted: HashMap<Range, SubnetSpace> =
            old.subnets.into_iter().map(|subnet| (subnet.range, subnet)).collect();
        let mut layout = Layout::default();
        for (subnet_index, subnet) in subnets.iter().enumerate() {
            let unusable = unusable_spans(subnet);
            let reserved =
                subnet.reserved.iter().map(|reserved| (reserved.range.first().bits(), reserved.range.last().bits()));
            let blocked = joined(unusable.iter().copied().chain(reserved).collect());
            layout.add_kept(subnet);
            for (pool_index, pool) in subnet.pools.iter().enumerate() {
                let place = (subnet_index, pool_index);
                let space =
                    PoolSpace::build(config, subnet, pool, place, &blocked, holdings, &mut reusable, &remembered);
                layout.add_pool(subnet, pool, space);
            }
            let old = counted.remove(&subnet.cidr.range());
            layout.add_subnet(subnet, subnet_index, (blocked, unusable), holdings, old);
        }
        for (family, rank, first, last) in remembered {
            layout.remember_elsewhere(family, rank, first, last);
        }
        layout.forget_over_bound();
        layout.pools_by_address.sort_unstable_by_key(|(range, _)| range.first());
        layout.subnets_by_address.sort_unstable_by_key(|(range, _)| range.first());
        for (pool, index) in &layout.pools_by_address {
            let rested = &mut layout.elsewhere[usize::from(pool.family() == Family::V6)];
            let (first, last) = (pool.first().bits(), pool.last().bits());
            each_gap(&layout.pools[*index].blocked, first, last, |start, end| rested.remove(start, end));
        }
        layout
    }

    /// Remembers a freed range; what of it lies in pools is for them to remember.
    fn remember_elsewhere(&mut self, family: Family, rank: Rank, first: u128, last: u128) {
        let rested = &mut self.elsewhere[usize::from(family == Family::V6)];
        rested.add(rank, first, last);
        while rested.len() > OLDEST_REMEMBERED_MAX {
            rested.forget_oldest();
        }
    }

    fn add_kept(&mut self, subnet: &SubnetConfig) {
        for reserved in &subnet.reserved {
            if let Some(owner) = &reserved.reserved_for
                && reserved.range.size() == 1
            {
                let key = (owner.scope.clone(), owner.owner.clone());
                self.kept_for.entry(key).or_default().push((owner.slot.clone(), reserved.range.first()));
            }
        }
    }

    fn add_pool(&mut self, subnet: &SubnetConfig, pool: &PoolConfig, space: PoolSpace) {
        let index = self.pools.len();
        if space.open {
            self.open.add(index);
            self.room.set(index, space.free.free() > 0);
        }
        self.cooling_longest.extend(space.cools_since().map(|since| (since, index)));
        let (since, count) = space.rests();
        self.rested_longest.extend(since.map(|since| (since, index)));
        self.remembered += count;
        self.families[usize::from(pool.range.family() == Family::V6)].add(index);
        if subnet.zones.is_empty() {
            self.zoneless.add(index);
        }
        for zone in &subnet.zones {
            self.zones.entry(zone.clone()).or_default().add(index);
        }
        if let Some(name) = &pool.name {
            self.names.entry(name.clone()).or_default().add(index);
        }
        self.pools_by_address.push((pool.range, index));
        self.pools.push(space);
    }

    fn add_subnet(
        &mut self,
        subnet: &SubnetConfig,
        index: usize,
        (blocked, unusable): (Spans, Spans),
        holdings: &Holdings,
        old: Option<SubnetSpace>,
    ) {
        let range = subnet.cidr.range();
        let counted = if subnet.draining {
            vec![(range.first().bits(), range.last().bits())]
        } else {
            let draining = subnet.pools.iter().filter(|pool| pool.draining);
            joined(
                blocked
                    .into_iter()
                    .chain(draining.map(|pool| (pool.range.first().bits(), pool.range.last().bits())))
                    .collect(),
            )
        };
        let counts = match old.filter(|old| old.counted == counted) {
            Some(old) => old.counts,
            None => self.counts_of_subnet(range, &counted, index, holdings),
        };
        self.subnets.push(SubnetSpace { range, counted, unusable, counts });
        self.subnets_by_address.push((range, index));
    }

    /// What its pools have counted, which are there already, and what lies between them. Cost: O(what lies between them).
    fn counts_of_subnet(&self, range: Range, counted: &Spans, index: usize, holdings: &Holdings) -> Counts {
        let bits = |range: Range| (range.first().bits(), range.last().bits());
        let (first, last) = bits(range);
        let begin = self.pools.partition_point(|pool| pool.subnet < index);
        let mut pools: Vec<&PoolSpace> = self.pools[begin..].iter().collect();
        pools.sort_unstable_by_key(|pool| pool.range.first());
        let apart = pools.windows(2).all(|pair| pair[0].range.last() < pair[1].range.first());
        if !apart || pools.iter().any(|pool| !range.contains(pool.range.first()) || !range.contains(pool.range.last()))
        {
            // What is configured is not so; but it is not here that it is judged.
            pools.clear();
        }
        let mut counts = empty_counts(range, counted);
        for pool in &pools {
            count_part(&mut counts, &pool.counts, &pool.empty_counts());
        }
        let spans: Spans = pools.iter().map(|pool| bits(pool.range)).collect();
        each_gap(&spans, first, last, |start, end| {
            let address = |bits| Address::new(range.family(), bits);
            let Some(gap) = Range::new(address(start), address(end)) else { return };
            for (address, entry) in holdings.overlapping(gap) {
                count_entry(&mut counts, counted, gap, address, entry, true);
            }
        });
        counts
    }

    /// Index of the subnet in which an address lies. Cost: O(log subnets).
    pub(super) fn subnet_of(&self, address: Address) -> Option<usize> {
        index_of(&self.subnets_by_address, address)
    }

    /// Every pool.
    pub(super) fn all(&self) -> PoolSet {
        let mut all = PoolSet::default();
        (0..self.pools.len()).for_each(|index| all.add(index));
        all
    }

    /// Pools that share addresses with a range. Cost: O(log pools + found).
    pub(super) fn pools_over(&self, range: Range) -> impl Iterator<Item = usize> {
        let from = self.pools_by_address.partition_point(|(pool, _)| pool.last() < range.first());
        let over = self.pools_by_address[from..].iter().take_while(move |(pool, _)| pool.first() <= range.last());
        over.map(|(_, index)| *index)
    }

    /// Index of the pool, in drawing order, in which an address lies. Cost: O(log pools).
    pub(super) fn pool_of(&self, address: Address) -> Option<usize> {
        index_of(&self.pools_by_address, address)
    }

    /// The pool with exactly this range.
    pub(super) fn pool_by_range(&self, range: Range) -> Option<usize> {
        self.pool_of(range.first()).filter(|&index| self.pools[index].range == range)
    }

    /// Pools of a name.
    pub(super) fn pools_named(&self, name: &Name) -> Option<&PoolSet> {
        self.names.get(name)
    }

    /// Pools of a family.
    pub(super) fn of_family(&self, family: Family) -> &PoolSet {
        &self.families[usize::from(family == Family::V6)]
    }

    /// Pools whose subnet serves a zone. Zones that no subnet names are served by subnets without zones only.
    pub(super) fn serving(&self, zone: &str) -> PoolSet {
        let mut set = self.zoneless.clone();
        if let Some(named) = self.zones.get(zone) {
            set.0.resize(set.0.len().max(named.0.len()), 0);
            for (word, other) in set.0.iter_mut().zip(&named.0) {
                *word |= other;
            }
        }
        set
    }

    /// Pools of one subnet.
    pub(super) fn of_subnet(&self, subnet: usize) -> PoolSet {
        let mut set = PoolSet::default();
        let first = self.pools.partition_point(|pool| pool.subnet < subnet);
        for (at, _) in self.pools[first..].iter().enumerate().take_while(|(_, pool)| pool.subnet == subnet) {
            set.add(first + at);
        }
        set
    }

    /// One pool as a set.
    pub(super) fn only(&self, index: usize) -> PoolSet {
        let mut set = PoolSet::default();
        set.add(index);
        set
    }

    /// Keeps spaces and counts in step with an entry that changed. Cost: O(log) of the pools' sizes.
    pub(super) fn entry_changed(
        &mut self,
        address: Address,
        before: Option<&Entry>,
        after: Option<&Entry>,
        rest: Option<Rank>,
    ) {
        let is_single = |entry: &Entry| entry.prefix_length() == address.family().width();
        if rest.is_none() && before.into_iter().chain(after).all(is_single) {
            return self.address_changed(address, before, after);
        }
        let length = |entry: Option<&Entry>| entry.map(|entry| covered(address, entry.prefix_length()));
        let (old, new) = (length(before), length(after));
        // Another length under the same address is two changes.
        if let (Some(old), Some(new)) = (old, new)
            && old != new
        {
            self.entry_changed(address, before, None, None);
            self.entry_changed(address, None, after, None);
            return;
        }
        let Some(range) = new.or(old) else { return };
        // What cools or is declined may reach over the ends of a subnet that came, or shrank, since.
        let from = self.subnets_by_address.partition_point(|(subnet, _)| subnet.last() < range.first());
        for &(_, subnet) in
            self.subnets_by_address[from..].iter().take_while(|(subnet, _)| subnet.first() <= range.last())
        {
            let subnet = &mut self.subnets[subnet];
            if let Some(before) = before {
                count_entry(&mut subnet.counts, &subnet.counted, subnet.range, address, before, false);
            }
            if let Some(after) = after {
                count_entry(&mut subnet.counts, &subnet.counted, subnet.range, address, after, true);
            }
        }
        if let Some(rank) = rest {
            self.remember_elsewhere(range.family(), rank, range.first().bits(), range.last().bits());
        } else if taken_in(after)[0] {
            self.elsewhere[usize::from(range.family() == Family::V6)].remove(range.first().bits(), range.last().bits());
        }
        let mut at = self.pools_by_address.partition_point(|(pool, _)| pool.last() < range.first());
        while let Some(&(pool_range, index)) =
            self.pools_by_address.get(at).filter(|(pool, _)| pool.first() <= range.last())
        {
            if let Some(part) = range.intersection(pool_range) {
                self.pool_changed(index, (address, part.first().bits(), part.last().bits()), before, after, rest);
            }
            if rest.is_some() {
                // The pool remembers its own, but for what is reserved in it and may be free again.
                let rested = &mut self.elsewhere[usize::from(range.family() == Family::V6)];
                let (first, last) = (pool_range.first().bits(), pool_range.last().bits());
                each_gap(&self.pools[index].blocked, first, last, |start, end| rested.remove(start, end));
            }
            debug_assert_eq!(pool_range, self.pools[index].range);
            at += 1;
        }
        self.forget_over_bound();
    }

    /// Counts a change of one address, which is what changes most: it lies in one subnet and one pool, or in none.
    fn address_changed(&mut self, address: Address, before: Option<&Entry>, after: Option<&Entry>) {
        let bits = address.bits();
        if let Some(index) = self.subnet_of(address) {
            let SubnetSpace { counted, counts, .. } = &mut self.subnets[index];
            if let Some(before) = before {
                count_address(counts, counted, bits, before, false);
            }
            if let Some(after) = after {
                count_address(counts, counted, bits, after, true);
            }
        }
        if taken_in(after)[0] {
            self.elsewhere[usize::from(address.family() == Family::V6)].remove(bits, bits);
        }
        if let Some(index) = self.pool_of(address) {
            self.pool_changed(index, (address, bits, bits), before, after, None);
        }
        self.forget_over_bound();
    }

    /// Keeps a pool, and the orders and sets of pools, in step with an entry of which a part lies in it.
    fn pool_changed(
        &mut self,
        index: usize,
        part: (Address, u128, u128),
        before: Option<&Entry>,
        after: Option<&Entry>,
        rest: Option<Rank>,
    ) {
        let pool = &mut self.pools[index];
        let (since, rests) = (pool.cools_since(), pool.rests());
        pool.entry_changed(part, before, after, rest);
        if pool.open {
            self.room.set(index, pool.free.free() > 0);
        }
        self.reorder(index, since);
        self.recount(index, rests);
    }

    /// Forgets what was freed longest ago, in whichever pool, as long as too much is remembered.
    fn forget_over_bound(&mut self) {
        while self.remembered > OLDEST_REMEMBERED_MAX
            && let Some(&(_, index)) = self.rested_longest.first()
        {
            let before = self.pools[index].rests();
            self.pools[index].forget_oldest();
            self.recount(index, before);
        }
    }

    /// Counts a pool by what it remembers, where that has changed.
    fn recount(&mut self, index: usize, before: (Option<Rank>, usize)) {
        let now = self.pools[index].rests();
        if now == before {
            return;
        }
        self.remembered = self.remembered - before.1 + now.1;
        before.0.map(|since| self.rested_longest.remove(&(since, index)));
        self.rested_longest.extend(now.0.map(|since| (since, index)));
    }

    /// Puts a pool in its place by what cools longest in it, where that has changed.
    fn reorder(&mut self, index: usize, before: Option<ShardTime>) {
        let now = self.pools[index].cools_since();
        if now != before {
            before.map(|before| self.cooling_longest.remove(&(before, index)));
            self.cooling_longest.extend(now.map(|now| (now, index)));
        }
    }

    /// Compares what was kept in step with what is built afresh, for tests and debug builds.
    pub(super) fn check(&self, afresh: &Layout) -> Result<(), String> {
        for (pool, fresh) in self.pools.iter().zip(&afresh.pools) {
            pool.free.check()?;
            if pool.range != fresh.range || pool.counts != fresh.counts || pool.free.free() != fresh.free.free() {
                return Err(format!("pool {}: {:?}, afresh {:?}", pool.range, pool.counts, fresh.counts));
            }
            let counts = pool.counts;
            if counts.held + counts.reserved + counts.cooling + counts.declined + counts.free != counts.size {
                return Err(format!("pool {}: {counts:?} does not add up", pool.range));
            }
            if pool.yielding.as_ref().map(Space::free) != fresh.yielding.as_ref().map(Space::free) {
                return Err(format!("pool {}: yielding space is out of step", pool.range));
            }
            if pool.cooling != fresh.cooling {
                return Err(format!("pool {}: cooling order is out of step", pool.range));
            }
        }
        for (subnet, fresh) in self.subnets.iter().zip(&afresh.subnets) {
            if subnet.counts != fresh.counts {
                return Err(format!("subnet {}: {:?}, afresh {:?}", subnet.range, subnet.counts, fresh.counts));
            }
        }
        let rests: Vec<_> = self.pools.iter().map(PoolSpace::rests).collect();
        let longest = rests.iter().enumerate().filter_map(|(index, rests)| Some((rests.0?, index))).collect();
        if self.rested_longest != longest || self.remembered != rests.iter().map(|rests| rests.1).sum::<usize>() {
            return Err("what `oldest` remembers is counted wrongly".to_owned());
        }
        if self.pools.len() != afresh.pools.len() || self.subnets.len() != afresh.subnets.len() {
            return Err("pools or subnets are missing".to_owned());
        }
        let members = |set: &PoolSet| set.intersection([None; 4]).collect::<Vec<_>>();
        if members(&self.room) != members(&afresh.room) || members(&self.open) != members(&afresh.open) {
            return Err("the sets of open pools are out of step".to_owned());
        }
        if self.cooling_longest != afresh.cooling_longest {
            return Err("the order of pools by what cools longest is out of step".to_owned());
        }
        Ok(())
    }

    /// Bytes of the spaces.
    pub(super) fn memory_bytes(&self) -> usize {
        let spaces = |pool: &PoolSpace| {
            pool.free.memory_bytes()
                + pool.fresh.as_ref().map_or(0, Space::memory_bytes)
                + pool.yielding.as_ref().map_or(0, Space::memory_bytes)
                + pool.cooling.len() * 48
        };
        self.pools.iter().map(spaces).sum()
    }
}

impl SubnetSpace {
    /// Is any address of the range never granted, by no flag?
    pub(super) fn has_unusable(&self, range: Range) -> bool {
        each_gap(&self.unusable, range.first().bits(), range.last().bits(), |_, _| ()) > 0
    }
}
