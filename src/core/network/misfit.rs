//! A network that cannot be served, because what the store has of it does not fit together: what others must know of it
//! nevertheless.
//!
//! A bug, or a hand in the store, makes such a network; the others have nothing to do with it. So it is listed, and stopped,
//! and keeps what is its own: its space, its names, and every MAC and recorded address that any of its entries has, whichever
//! of two that contradict each other is right.
//!
//! Made by [`Network::load`]. After: `actors::service::starting`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::Network;
use super::holdings::{Entries, Unfit};
use crate::core::address::Address;
use crate::core::state::{Entry, Key, NetworkConfig, NetworkKind, State, SubnetConfig};
use crate::core::types::{Generation, Mac, NetworkId, Scope, ShardTime};

/// What the store has of a network that cannot be served. Shown as the sentence that says why.
#[derive(Debug, Clone)]
pub struct Misfit {
    problem: String,
    config: Arc<NetworkConfig>,
    subnets: Vec<Arc<SubnetConfig>>,
    entries: Entries,
}

impl Misfit {
    pub(super) fn new(
        unfit: &Unfit,
        config: Arc<NetworkConfig>,
        subnets: Vec<Arc<SubnetConfig>>,
        entries: Entries,
    ) -> Self {
        let name = &config.name;
        let problem = match unfit {
            Unfit::NotFirst(address) => format!("network `{name}`: {address} is not the first address of its block"),
            Unfit::Twice(address) => format!("network `{name}`: two records cover {address}"),
            Unfit::HoldsTwo(holder, one, other) => format!("network `{name}`: {holder} holds both {one} and {other}"),
        };
        Self { problem, config, subnets, entries }
    }

    /// The network.
    pub fn id(&self) -> NetworkId {
        self.config.id
    }

    /// The network with as many of its entries as fit together, for its figures. It must not be served.
    ///
    /// Cost: as that of loading it.
    pub fn in_part(&self, floor: Generation, since: ShardTime) -> Network {
        let settled = self.entries.clone().settle_in_part(since);
        Network::over(Arc::clone(&self.config), self.subnets.clone(), settled, floor)
    }

    /// Every MAC that one of its entries has.
    pub fn macs(&self) -> impl Iterator<Item = (Mac, Address)> + '_ {
        self.entries.iter().filter_map(|(address, entry)| match entry {
            Entry::Held(held) => Some((held.details.as_ref()?.mac?, address)),
            Entry::Released(_) | Entry::Declined(_) => None,
        })
    }

    /// Every address that it has recorded, if it is dynamic.
    pub fn recorded(&self) -> impl Iterator<Item = Address> + '_ {
        let held = self.entries.iter().filter(|(_, entry)| matches!(entry, Entry::Held(_)));
        held.filter(|_| self.config.kind == NetworkKind::Dynamic).map(|(address, _)| address)
    }

    /// Every scope that holds something, or to which a promise was broken.
    pub fn scopes(&self) -> BTreeSet<Scope> {
        let scope = |(_, entry): (Address, &Entry)| match entry {
            Entry::Held(held) => Some(held.holder.scope.clone()),
            Entry::Declined(declined) => declined.promise.is_some().then(|| declined.by.scope.clone()),
            Entry::Released(_) => None,
        };
        self.entries.iter().filter_map(scope).collect()
    }

    /// All that the store had of it, for a store that was emptied since: whoever has to mend it finds it as it was.
    pub fn records(&self) -> Vec<(Key, State)> {
        let config = std::iter::once((Key::Config, State::Config(Arc::clone(&self.config))));
        let subnets = self.subnets.iter().map(|subnet| (Key::Subnet(subnet.id), State::Subnet(Arc::clone(subnet))));
        let entries = self.entries.iter();
        let entries = entries.map(|(address, entry)| (Key::Address(address), State::Entry(entry.clone())));
        let mut records: Vec<_> = config.chain(subnets).chain(entries).collect();
        records.sort_by_key(|(key, _)| *key);
        records
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}
