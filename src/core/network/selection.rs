//! A wish with its names looked up: which pools it admits, and whether what a slot already holds is what it asks for.
//!
//! Before: `grant`. After: `pick`, which chooses among the pools.

use std::sync::Arc;

use compact_str::CompactString;

use super::Network;
use super::pool_set::PoolSet;
use crate::core::address::{Address, Family};
use crate::core::command::{PoolRef, Wish};
use crate::core::forms;
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::{Reservation, SubnetConfig};

/// A wish with its names looked up.
#[derive(Debug, Default)]
pub(super) struct Selection {
    pub(super) family: Option<Family>,
    pub(super) subnet: Option<usize>,
    subnet_pools: Option<PoolSet>,
    /// None if no pool was asked for; an empty set if that pool does not exist any more.
    pub(super) pool: Option<PoolSet>,
    pub(super) pool_missing: bool,
    zone: Option<PoolSet>,
    pub(super) zone_name: Option<CompactString>,
    /// Only in this subnet, and in those that serve every zone which it serves.
    pub(super) like: Option<usize>,
    pub(super) prefix_length: Option<u8>,
}

impl Selection {
    /// log2 of the requested block size in a family; none if the family cannot have that size.
    pub(super) fn order(&self, family: Family) -> Option<u8> {
        match self.prefix_length {
            None => Some(0),
            Some(length) => family.width().checked_sub(length),
        }
    }

    /// All pools that the wish admits, open or not.
    pub(super) fn pools(&self, network: &Network) -> PoolSet {
        let mut pools = PoolSet::default();
        network.layout.all().intersection(self.sets_of(network)).for_each(|index| pools.add(index));
        pools
    }

    fn sets(&self) -> [Option<&PoolSet>; 4] {
        [self.subnet_pools.as_ref(), self.pool.as_ref(), self.zone.as_ref(), None]
    }

    pub(super) fn sets_of<'a>(&'a self, network: &'a Network) -> [Option<&'a PoolSet>; 4] {
        let mut sets = self.sets();
        sets[3] = self.family.map(|family| network.layout.of_family(family));
        sets
    }
}

impl Network {
    /// Looks up the names of a wish.
    ///
    /// # Errors
    /// `invalid_argument` for a prefix length that no subnet can have; `not_found` for a subnet. A missing pool is not an
    /// error yet, because a reservation that was granted in it still matches.
    pub(super) fn select(&self, wish: &Wish) -> Result<Selection, Refusal> {
        if let Some(length) = wish.prefix_length {
            self.fits_a_subnet(length, wish.family)?;
        }
        let subnet = match &wish.subnet {
            None => None,
            Some(wanted) => Some(self.subnet_index(wanted)?),
        };
        let pool = wish.pool.as_ref().map(|pool| match pool {
            PoolRef::Range(range) => self.layout.pool_by_range(*range).map(|index| self.layout.only(index)),
            PoolRef::Named(name) => self.layout.pools_named(name).cloned(),
        });
        Ok(Selection {
            family: wish.prefix_length.map_or(wish.family, |length| family_of_block(length, wish.family)),
            subnet,
            subnet_pools: subnet.map(|index| self.layout.of_subnet(index)),
            pool_missing: matches!(pool, Some(None)),
            pool: pool.map(Option::unwrap_or_default),
            zone_name: wish.zone.clone(),
            zone: wish.zone.as_deref().map(|zone| self.layout.serving(zone)),
            like: None,
            prefix_length: wish.prefix_length,
        })
    }

    /// Refuses a prefix length that no subnet of the family (of either family, if none is given) can have.
    pub(super) fn fits_a_subnet(&self, length: u8, family: Option<Family>) -> Result<(), Refusal> {
        forms::in_family(length, family)?;
        let family = family_of_block(length, family);
        let of_family = |subnet: &&Arc<SubnetConfig>| family.is_none_or(|wanted| wanted == subnet.cidr.family());
        let mut lengths = self.subnets.iter().filter(of_family).map(|subnet| subnet.cidr.length()).peekable();
        if lengths.peek().is_some() && lengths.all(|subnet| length < subnet) {
            let problem = format!("/{length} is wider than every subnet of network `{}`", self.config.name);
            return Err(Refusal::invalid("prefix_length", problem));
        }
        Ok(())
    }

    /// A requested pool must exist, or have contained what the slot holds at the time of its grant.
    pub(super) fn require_pool(
        &self,
        wish: &Wish,
        selection: &Selection,
        held: Option<(Address, &Arc<Reservation>)>,
    ) -> Result<(), Refusal> {
        let Some(pool) = wish.pool.as_ref().filter(|_| selection.pool_missing) else { return Ok(()) };
        if held.is_some_and(|(address, held)| {
            self.lay_in_when_granted(pool, self.layout.subnet_of(address), address, held)
        }) {
            return Ok(());
        }
        match pool {
            PoolRef::Range(range) => Err(Refusal::not_found(Missing::Pool, range)),
            PoolRef::Named(name) => Err(Refusal::not_found(Missing::Pool, name)),
        }
    }

    /// The members in which what a slot holds differs from what is asked for. Kind, labels and lease are not compared.
    pub(super) fn differences(
        &self,
        wish: &Wish,
        selection: &Selection,
        address: Address,
        held: &Reservation,
    ) -> Vec<&'static str> {
        let mut differs = Vec::new();
        let family = address.family();
        if wish.family.is_some_and(|wanted| wanted != family) {
            differs.push("family");
        }
        if held.prefix_length != selection.prefix_length.unwrap_or(family.width()) {
            differs.push("prefix_length");
        }
        let subnet = self.layout.subnet_of(address);
        if selection.subnet.is_some() && subnet != selection.subnet {
            differs.push("subnet");
        }
        if let Some(pool) = &wish.pool {
            let now = self
                .layout
                .pool_of(address)
                .is_some_and(|index| selection.pool.as_ref().is_some_and(|set| set.contains(index)));
            if !now && !self.lay_in_when_granted(pool, subnet, address, held) {
                differs.push("pool");
            }
        }
        if let Some(zone) = &wish.zone
            && !subnet.is_some_and(|index| self.subnets[index].serves(zone))
        {
            differs.push("zone");
        }
        differs
    }

    fn lay_in_when_granted(&self, pool: &PoolRef, subnet: Option<usize>, address: Address, held: &Reservation) -> bool {
        subnet.is_some_and(|index| {
            self.subnets[index].past_pools.iter().any(|past| {
                let same = match pool {
                    PoolRef::Range(range) => past.range == *range,
                    PoolRef::Named(name) => past.name.as_ref() == Some(name),
                };
                same && past.range.contains(address) && past.since <= held.generation && held.generation < past.until
            })
        })
    }
}

/// The family of a block: a length beyond the width of IPv4 means IPv6, even if the request does not say so.
fn family_of_block(length: u8, family: Option<Family>) -> Option<Family> {
    family.or((length > Family::V4.width()).then_some(Family::V6))
}
