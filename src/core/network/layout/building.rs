//! Builds the layout from configuration and entries, reusing what did not change from the former one.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{Layout, SubnetSpace, unusable_spans};
use crate::core::address::{Address, Family, Range};
use crate::core::network::counting::{count_entry, count_part, empty_counts};
use crate::core::network::holdings::Holdings;
use crate::core::network::pool_set::{Spans, each_gap, joined};
use crate::core::network::pool_space::{Memory, PoolSpace, Remembered};
use crate::core::network::rested::Rested;
use crate::core::outcome::Counts;
use crate::core::state::{NetworkConfig, Policy, PoolConfig, SubnetConfig};

fn remembered_of(family: Family, rested: &Rested) -> impl Iterator<Item = Remembered> {
    rested.iter().map(move |(rank, first, last)| (family, rank, first, last))
}

impl Layout {
    /// Builds everything; the spaces of unchanged pools are taken over from `old`.
    pub(in crate::core::network) fn build(
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
        let remembered = Memory::of(remembered);
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
        for (family, rank, first, last) in remembered.into_vec() {
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

    /// Adds up what the subnet's pools have already counted, and counts what lies between them. Cost: O(what lies between them).
    fn counts_of_subnet(&self, range: Range, counted: &Spans, index: usize, holdings: &Holdings) -> Counts {
        let bits = |range: Range| (range.first().bits(), range.last().bits());
        let (first, last) = bits(range);
        let begin = self.pools.partition_point(|pool| pool.subnet < index);
        let mut pools: Vec<&PoolSpace> = self.pools[begin..].iter().collect();
        pools.sort_unstable_by_key(|pool| pool.range.first());
        let apart = pools.windows(2).all(|pair| pair[0].range.last() < pair[1].range.first());
        if !apart || pools.iter().any(|pool| !range.contains(pool.range.first()) || !range.contains(pool.range.last()))
        {
            // No valid configuration is like this, but this is not the place to judge it.
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
}
