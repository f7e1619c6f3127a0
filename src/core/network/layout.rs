//! What configuration and entries mean for the next grant: the free space of each pool, the counts of each subnet and pool,
//! and which pools a request may draw from.
//!
//! All of this is derived: `building` makes it from configuration and entries, and `changing` keeps it in step
//! ([`Layout::entry_changed`]). A change of configuration rebuilds only the pools that it touches, at the cost of the
//! entries in them. This file has the queries.
//!
//! ```text
//!              free     fresh    yielding        an address counts as taken in a space where an X stands;
//! held          X        X        X              reserved and unusable ones count as taken in all three
//! declined      X        X        X              fresh: for the policy oldest only
//! cooling       X        X                       yielding: for networks with cooldown_yields only
//! rested                 X                       rested: freed and past its cooldown, remembered by `oldest`
//! ```

mod building;
mod changing;

use std::collections::BTreeSet;

use compact_str::CompactString;
use hashbrown::HashMap;

use super::pool_set::{PoolSet, Spans, each_gap, joined};
use super::pool_space::PoolSpace;
use super::rested::{Rank, Rested};
use crate::core::address::{Address, Family, Range};
use crate::core::outcome::Counts;
use crate::core::space::Space;
use crate::core::state::SubnetConfig;
use crate::core::types::{Name, Owner, Scope, ShardTime, Slot};
use crate::core::unusable;

/// Counts of one subnet.
#[derive(Debug, Clone)]
pub(super) struct SubnetSpace {
    range: Range,
    /// What counts as reserved: reserved ranges, unusable addresses, and whatever is draining.
    counted: Spans,
    /// Network, broadcast, anycast and gateway addresses, and those that no subnet may give: never granted, whatever the flags.
    pub(super) unusable: Spans,
    pub(super) counts: Counts,
}

/// A single address that is reserved for an owner, or for one of its slots only.
pub(super) type KeptAddress = (Option<Slot>, Address);

/// Everything that is derived.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    /// All pools, in drawing order.
    pub(super) pools: Vec<PoolSpace>,
    /// Parallel to the network's subnets.
    pub(super) subnets: Vec<SubnetSpace>,
    pools_by_address: Vec<(Range, usize)>,
    subnets_by_address: Vec<(Range, usize)>,
    /// Open pools with anything free.
    pub(super) room: PoolSet,
    /// Open pools.
    pub(super) open: PoolSet,
    /// When the longest cooling entry of a pool was released, and the pool; only for pools whose cooling addresses may yield.
    pub(super) cooling_longest: BTreeSet<(ShardTime, usize)>,
    /// When the oldest range that `oldest` remembers in a pool was freed, and the pool.
    rested_longest: BTreeSet<(Rank, usize)>,
    /// How many ranges `oldest` remembers in all pools.
    remembered: usize,
    families: [PoolSet; 2],
    zones: HashMap<CompactString, PoolSet>,
    zoneless: PoolSet,
    names: HashMap<Name, PoolSet>,
    /// What `oldest` remembers of addresses that lie in no pool at present, but may again.
    elsewhere: [Rested; 2],
    /// Single addresses that are reserved for an owner, in address order.
    pub(super) kept_for: HashMap<(Scope, Owner), Vec<KeptAddress>>,
}

/// The index of the range that contains an address, among ascending, disjoint ranges. Cost: O(log).
fn index_of(ranges: &[(Range, usize)], address: Address) -> Option<usize> {
    // Most networks have one subnet with one pool.
    let (range, index) = match ranges {
        [only] => only,
        _ => &ranges[ranges.partition_point(|(range, _)| range.first() <= address).checked_sub(1)?],
    };
    range.contains(address).then_some(*index)
}

/// The addresses of a subnet that nobody may ever get, as numbers, ascending.
pub(super) fn unusable_spans(subnet: &SubnetConfig) -> Spans {
    let (first, last) = (subnet.cidr.base().bits(), subnet.cidr.last().bits());
    let everywhere =
        unusable::everywhere(subnet.cidr.family()).map(|(range, _)| (range.first().bits(), range.last().bits()));
    let edges = unusable::edges(subnet.cidr).map(|(edge, _)| edge);
    let gateway = subnet.gateway.filter(|gateway| subnet.cidr.contains(*gateway));
    let single = edges.chain(gateway).map(|address| (address.bits(), address.bits()));
    let clip = |(start, end): (u128, u128)| (start <= last && end >= first).then(|| (start.max(first), end.min(last)));
    joined(everywhere.into_iter().chain(single).filter_map(clip).collect())
}

impl Layout {
    /// Index of the subnet in which an address lies. Cost: O(log subnets).
    pub(super) fn subnet_of(&self, address: Address) -> Option<usize> {
        index_of(&self.subnets_by_address, address)
    }

    /// All pools.
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

    /// The pools with a name.
    pub(super) fn pools_named(&self, name: &Name) -> Option<&PoolSet> {
        self.names.get(name)
    }

    /// The pools of a family.
    pub(super) fn of_family(&self, family: Family) -> &PoolSet {
        &self.families[usize::from(family == Family::V6)]
    }

    /// The pools whose subnet serves a zone. A zone that no subnet names is served only by subnets without zones.
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

    /// The pools whose subnet serves every zone that this one serves.
    pub(super) fn serving_all(&self, subnet: &SubnetConfig) -> PoolSet {
        let mut zones = subnet.zones.iter().map(|zone| self.serving(zone));
        // Without zones it serves all, and so do only those without zones.
        let first = zones.next().unwrap_or_else(|| self.zoneless.clone());
        zones.fold(first, |mut all, set| {
            all.0.iter_mut().enumerate().for_each(|(at, word)| *word &= set.0.get(at).copied().unwrap_or(0));
            all
        })
    }

    /// The pools of one subnet.
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

    /// Compares this layout, which was kept in step, with one built afresh. For tests and debug builds.
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

    /// Memory that the spaces take, in bytes.
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
    /// Does the range contain an address that is never granted, whatever the flags?
    pub(super) fn has_unusable(&self, range: Range) -> bool {
        each_gap(&self.unusable, range.first().bits(), range.last().bits(), |_, _| ()) > 0
    }
}
