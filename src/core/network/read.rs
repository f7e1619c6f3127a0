//! Reads of a network: one address, lists, counts, maps and scopes.

use std::ops::Bound;
use std::sync::Arc;

use super::Network;
use super::holdings::covered;
use crate::core::address::{Address, Family, Range};
use crate::core::command::{Context, Filter, ListSlice, MapFormat, MapPlace, PoolRef, SubnetRef};
use crate::core::outcome::{
    AddressState, Counts, Decision, Drawing, Grantable, Lookup, NetworkView, Outcome, PoolMap, PoolUsage, Slice,
    SubnetUsage, UsageReport, View,
};
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::{Entry, PoolConfig, Reservation};
use crate::core::types::{Scope, WallTime, labels_pass};
use crate::limits;

/// The most runs that a map may have, so that an answer stays bounded.
const MAP_RUNS_MAX: usize = 65_536;
/// A list of what one owner holds is sorted up to this size. For an owner that holds more, or if there are more scopes than
/// this, the list goes over the whole network, as it does if no owner is named.
pub(super) const OF_OWNER_SORTED_MAX: usize = 10 * limits::LIST_SLICE_RECORDS_MAX;

impl Network {
    /// Network and subnets, as the protocol shows them.
    pub fn show(&self) -> NetworkView {
        NetworkView { config: Arc::clone(&self.config), subnets: self.subnets.clone(), at: None }
    }

    /// A reservation with what the protocol shows of its network and subnet.
    pub(super) fn view(&self, address: Address, reservation: Arc<Reservation>, context: Context) -> View {
        let subnet = self.layout.subnet_of(address);
        let pool = self.layout.pool_of(address).map(|index| self.layout.pools[index].pool);
        let expires = reservation.lease.map(|lease| {
            let left = self.holdings.end_of(lease).0.saturating_sub(context.now.0);
            (WallTime(context.wall.0 + left), left / 1_000)
        });
        View {
            network: Arc::clone(&self.config),
            subnet: subnet.map(|index| Arc::clone(&self.subnets[index])),
            pool,
            address,
            reservation,
            expires,
        }
    }

    /// `ip.get`.
    pub(super) fn look_up(&self, address: Address, context: Context) -> Decision {
        let mut reservation = None;
        let covering = self.holdings.covering(address);
        let state = match (covering, self.layout.subnet_of(address)) {
            (Some((base, Entry::Held(held))), _) => {
                reservation = Some(self.view(base, Arc::clone(held), context));
                AddressState::Held
            }
            (_, None) => AddressState::Unknown,
            (_, Some(subnet)) if self.layout.subnets[subnet].has_unusable(Range::single(address)) => {
                AddressState::Unusable
            }
            (_, Some(subnet)) if self.is_reserved(subnet, address) => AddressState::Reserved,
            (Some((_, Entry::Declined(_))), _) => AddressState::Declined,
            (Some((_, Entry::Released(_))), _) => AddressState::Cooling,
            (None, _) => AddressState::Free,
        };
        read(Outcome::Lookup(Box::new(Lookup { network: Arc::clone(&self.config), state, reservation })))
    }

    fn is_reserved(&self, subnet: usize, address: Address) -> bool {
        let config = &self.subnets[subnet];
        config.draining
            || self.layout.pool_of(address).is_some_and(|index| self.pool_config(index).draining)
            || !config.reserved_over(Range::single(address)).is_empty()
    }

    /// The first slice of `ip.list`. If the filter names an owner, only what the owner holds is looked at, unless that is much.
    pub(super) fn list(&self, ask: &ListSlice, context: Context) -> Result<Decision, Refusal> {
        let test = Test::new(self, &ask.filter, context)?;
        let most = (ask.limit, ask.count_only);
        let slice = if let Some(mut held) = self.few_of_owner(&ask.filter) {
            held.retain(|(address, _)| ask.after.is_none_or(|after| *address > after));
            self.slice(&test, most, held.into_iter().map(|(address, held)| (address, Some(held))), context)
        } else {
            // A block may begin before the range. If a page already went past its start, it is not listed again.
            let from = match (ask.after, test.range.map(|range| self.block_at(range.first()))) {
                (Some(after), start) if start.is_none_or(|start| after >= start) => Bound::Excluded(after),
                (_, Some(start)) => Bound::Included(start),
                (_, None) => Bound::Unbounded,
            };
            let entries = self.holdings.ascending(from).map(|(address, entry)| (address, entry.held()));
            self.slice(&test, most, entries, context)
        };
        Ok(read(Outcome::Listed { slice, at: None, rest: None }))
    }

    /// The records among these entries, which ascend, that pass the test: at most `limit` of them, or only their number.
    pub(super) fn slice<'a>(
        &self,
        test: &Test<'_>,
        (limit, count_only): (usize, bool),
        entries: impl Iterator<Item = (Address, Option<&'a Arc<Reservation>>)>,
        context: Context,
    ) -> Slice {
        let mut slice = Slice::default();
        for (looked_at, (address, held)) in entries.enumerate() {
            if test.range.is_some_and(|range| address > range.last()) {
                break;
            }
            if let Some(held) = held.filter(|held| test.passes(self, address, held)) {
                slice.count += 1;
                if !count_only {
                    slice.views.push(self.view(address, Arc::clone(held), context));
                }
            }
            if slice.views.len() >= limit || looked_at + 1 >= limits::LIST_SLICE_RECORDS_MAX {
                slice.next = Some(address);
                break;
            }
        }
        slice
    }

    /// What the owner in a filter holds, in order. None if no owner is named, or if sorting would take too long for one
    /// turn, because the owner holds too much or there are too many scopes in which it may hold something.
    pub(super) fn few_of_owner(&self, filter: &Filter) -> Option<Vec<(Address, &Arc<Reservation>)>> {
        let owner = filter.owner.as_ref()?;
        let scopes: Vec<_> = match &filter.scope {
            Some(scope) => vec![scope],
            None if self.holdings.scopes_held() > OF_OWNER_SORTED_MAX => return None,
            None => self.holdings.scope_names().collect(),
        };
        let held = scopes.into_iter().flat_map(|scope| self.holdings.of_owner(scope, owner));
        let mut few: Vec<_> = held.take(OF_OWNER_SORTED_MAX + 1).collect();
        if few.len() > OF_OWNER_SORTED_MAX {
            return None;
        }
        few.sort_unstable_by_key(|(address, _)| *address);
        Some(few)
    }

    /// First address of the block that covers an address, or the address itself.
    fn block_at(&self, address: Address) -> Address {
        self.holdings.covering(address).map_or(address, |(base, _)| base)
    }

    /// Counts of one pool.
    pub(super) fn pool_usage(&self, index: usize) -> PoolUsage {
        let space = &self.layout.pools[index];
        let config = self.pool_config(index);
        let largest = space.drawn_from().and_then(|drawn_from| drawn_from.largest_order());
        PoolUsage {
            range: space.range,
            name: config.name.clone(),
            kind: config.kind,
            counts: space.counts,
            largest_free_block: largest.map(|order| space.range.family().width() - order),
        }
    }

    /// Configuration of a pool, by its place in drawing order.
    pub(super) fn pool_config(&self, index: usize) -> &PoolConfig {
        let space = &self.layout.pools[index];
        &self.subnets[space.subnet].pools[space.pool]
    }

    /// Counts over all subnets. Cost: O(subnets).
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for subnet in &self.layout.subnets {
            sum += subnet.counts;
        }
        sum.reservations = self.holdings.held();
        sum
    }

    /// What automatic grants of a family can draw from. Cost: O(pools, and what is reserved in them).
    pub fn grantable(&self, family: Family) -> Grantable {
        let mut sum = Grantable::default();
        for pool in self.layout.pools.iter().filter(|pool| pool.range.family() == family) {
            sum += pool.grantable();
        }
        sum
    }

    /// `network.usage`.
    pub fn usage(&self) -> UsageReport {
        UsageReport { counts: self.counts(), subnets: self.usage_of_subnets(true), at: None }
    }

    /// Counts of each subnet, in drawing order, and optionally of their pools. Cost: O(subnets + pools).
    pub fn usage_of_subnets(&self, with_pools: bool) -> Vec<SubnetUsage> {
        let subnets = self.subnets.iter().zip(&self.layout.subnets).map(|(subnet, space)| SubnetUsage {
            cidr: subnet.cidr,
            name: subnet.name.clone(),
            counts: space.counts,
            pools: Vec::new(),
        });
        let mut subnets: Vec<SubnetUsage> = subnets.collect();
        if with_pools {
            for (index, pool) in self.layout.pools.iter().enumerate() {
                subnets[pool.subnet].pools.push(self.pool_usage(index));
            }
        }
        subnets
    }

    /// `network.map`.
    pub(super) fn map(
        &self,
        subnet: Option<&SubnetRef>,
        pool: Option<&PoolRef>,
        format: MapFormat,
        from: Option<&MapPlace>,
    ) -> Result<Decision, Refusal> {
        let subnet = subnet.map(|wanted| self.subnet_index(wanted)).transpose()?;
        let named = |index: &usize| match pool {
            None => true,
            Some(PoolRef::Range(range)) => self.layout.pools[*index].range == *range,
            Some(PoolRef::Named(name)) => self.pool_config(*index).name.as_ref() == Some(name),
        };
        let pools: Vec<_> = (0..self.layout.pools.len()).filter(named).collect();
        if pools.is_empty()
            && let Some(pool) = pool
        {
            let what = match pool {
                PoolRef::Range(range) => range.to_string(),
                PoolRef::Named(name) => name.to_string(),
            };
            return Err(Refusal::not_found(Missing::Pool, what));
        }
        let inside = |index: &usize| subnet.is_none_or(|subnet| subnet == self.layout.pools[*index].subnet);
        let pools: Vec<_> = pools.into_iter().filter(inside).collect();
        let draw = match format {
            MapFormat::Text => Self::draw_text,
            MapFormat::Runs => Self::draw_runs,
            MapFormat::Cells(size) => return Ok(read(self.map_cells(&pools, size, from)?)),
        };
        let mut drawn = Vec::with_capacity(pools.len());
        let mut bytes = 0;
        for index in pools {
            let drawing = draw(self, index)?;
            // The map of one pool is bounded anyway.
            bytes += drawing.bytes_at_least();
            if bytes > limits::ANSWER_BYTES_MAX && !drawn.is_empty() {
                return Err(PoolMap::too_long());
            }
            let name = self.pool_config(index).name.clone();
            drawn.push(PoolMap { range: self.layout.pools[index].range, name, drawing });
        }
        Ok(read(Outcome::Map { pools: drawn, version: self.config.version, next: None }))
    }

    /// Runs of free and taken addresses of a pool. In a draining pool everything counts as taken.
    fn runs(&self, index: usize) -> Box<dyn Iterator<Item = (u128, u128, bool)> + '_> {
        let space = &self.layout.pools[index];
        let (first, last) = (space.range.first().bits(), space.range.last().bits());
        if space.draining { Box::new(std::iter::once((first, last, true))) } else { Box::new(space.free.runs(first)) }
    }

    fn draw_text(&self, index: usize) -> Result<Drawing, Refusal> {
        let range = self.layout.pools[index].range;
        if range.size() > limits::MAP_TEXT_ADDRESSES_MAX {
            let problem = format!(
                "\"text\" draws at most {} addresses, but pool {range} has {}; use \"runs\" or \"cells\"",
                limits::MAP_TEXT_ADDRESSES_MAX,
                range.size()
            );
            return Err(Refusal::invalid("format", problem));
        }
        let mut text = String::with_capacity(range.size() as usize);
        for (first, last, taken) in self.runs(index) {
            text.extend(std::iter::repeat_n(if taken { 'X' } else { '.' }, (last - first + 1) as usize));
        }
        Ok(Drawing::Text(text))
    }

    fn draw_runs(&self, index: usize) -> Result<Drawing, Refusal> {
        let range = self.layout.pools[index].range;
        let address = |bits| Address::new(range.family(), bits);
        let runs: Vec<_> = self
            .runs(index)
            .take(MAP_RUNS_MAX + 1)
            .map(|(first, last, taken)| (address(first), address(last), taken))
            .collect();
        if runs.len() > MAP_RUNS_MAX {
            let problem =
                format!("\"runs\" of pool {range} are more than {MAP_RUNS_MAX}; use \"cells\", or name one pool");
            return Err(Refusal::invalid("format", problem));
        }
        Ok(Drawing::Runs(runs))
    }

    /// A slice of `scope.list`.
    pub(super) fn scopes(&self, after: Option<&Scope>, limit: usize) -> Decision {
        let mut behind = self.holdings.scope_usage(after);
        let page = behind.by_ref().take(limit.min(limits::LIST_SLICE_RECORDS_MAX)).collect();
        let more = behind.next().is_some();
        read(Outcome::Scopes { page, more })
    }
}

/// A decision that changes nothing.
pub(super) fn read(outcome: Outcome) -> Decision {
    Decision { steps: Vec::new(), outcome }
}

/// A filter whose names have been looked up.
pub(super) struct Test<'a> {
    filter: &'a Filter,
    /// The range to search: the intersection of the filter's range and subnet.
    range: Option<Range>,
    nowhere: bool,
    expires_before: Option<u64>,
}

impl<'a> Test<'a> {
    pub(super) fn new(network: &Network, filter: &'a Filter, context: Context) -> Result<Self, Refusal> {
        let subnet =
            filter.subnet.as_ref().map(|wanted| network.subnet(wanted)).transpose()?.map(|subnet| subnet.cidr.range());
        let (range, nowhere) = match (filter.range, subnet) {
            (Some(range), Some(subnet)) => (range.intersection(subnet), !range.overlaps(subnet)),
            (range, subnet) => (range.or(subnet), false),
        };
        match &filter.pool {
            Some(PoolRef::Range(range)) if network.layout.pool_by_range(*range).is_none() => {
                return Err(Refusal::not_found(Missing::Pool, range));
            }
            Some(PoolRef::Named(name)) if network.layout.pools_named(name).is_none() => {
                return Err(Refusal::not_found(Missing::Pool, name));
            }
            _ => {}
        }
        // Leases are measured in the shard's time, but the filter gives wall-clock time.
        let expires_before = filter
            .expires_before
            .map(|at| (i128::from(at.0) - i128::from(context.wall.0) + i128::from(context.now.0)).max(0) as u64);
        Ok(Self { filter, range, nowhere, expires_before })
    }

    fn passes(&self, network: &Network, address: Address, held: &Reservation) -> bool {
        let filter = self.filter;
        let details = held.details.as_deref();
        !self.nowhere
            && self.range.is_none_or(|range| covered(address, held.prefix_length).overlaps(range))
            && filter.scope.as_ref().is_none_or(|scope| *scope == held.holder.scope)
            && filter.owner.as_ref().is_none_or(|owner| *owner == held.holder.owner)
            && filter.owner_prefix.as_ref().is_none_or(|prefix| held.holder.owner.as_str().starts_with(prefix.as_str()))
            && filter.claimant.as_ref().is_none_or(|claimant| held.claimant.as_ref() == Some(claimant))
            && filter.bound.is_none_or(|bound| bound == held.claimant.is_some())
            && filter.kind.is_none_or(|kind| kind == held.kind)
            && filter.obsolete.is_none_or(|obsolete| obsolete == held.obsolete.is_some())
            && filter.created_before.is_none_or(|at| held.created_at < at)
            && self
                .expires_before
                .is_none_or(|at| held.lease.is_some_and(|lease| network.holdings.end_of(lease).0 < at))
            && filter.mac.is_none_or(|mac| details.is_some_and(|details| details.mac == Some(mac)))
            // Host names are compared without regard to case.
            && filter
                .hostname
                .as_ref()
                .is_none_or(|name| details.is_some_and(|details| details.hostname.eq_ignore_ascii_case(name)))
            && filter.label.as_ref().is_none_or(|(key, value)| {
                details.is_some_and(|details| labels_pass(&details.labels, key, value.as_deref()))
            })
            && filter.pool.as_ref().is_none_or(|pool| {
                network.layout.pool_of(address).is_some_and(|index| match pool {
                    PoolRef::Range(range) => network.layout.pools[index].range == *range,
                    PoolRef::Named(name) => network.pool_config(index).name.as_ref() == Some(name),
                })
            })
    }
}
