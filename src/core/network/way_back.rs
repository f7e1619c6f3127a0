//! The way back from what a network is to what of it is durable: what stood at each key before steps that are under way.
//!
//! A store that was emptied cannot be asked what it had. Whoever owned it has all of that in memory, and in it, too, what was
//! decided and never became durable; of that somebody may have been told that it did not happen. So what stood before is
//! kept until a step is durable.
//!
//! Before: the caller of [`Network::apply_before`] notes what that answers. After: [`Network::as_of`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::Network;
use crate::core::state::{Key, State};

/// What stood before steps that may not be durable, oldest first. Steps are numbered by the unit that makes them durable; numbers
/// rise.
#[derive(Debug, Clone, Default)]
pub struct WayBack(VecDeque<(u64, Key, Option<State>)>);

impl WayBack {
    /// A step of this unit was carried out at a key, where this stood before.
    pub fn note(&mut self, unit: u64, key: Key, before: Option<State>) {
        self.0.push_back((unit, key, before));
    }

    /// Everything up to this unit is durable: no way leads back behind it.
    ///
    /// Cost: O(1) for each step that is forgotten.
    pub fn forget(&mut self, durable: u64) {
        while self.0.front().is_some_and(|(unit, ..)| *unit <= durable) {
            self.0.pop_front();
        }
    }

    /// Nothing is under way.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Does no step lead back?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Network {
    /// Everything that is stored of it, as it was when the units up to `durable` were and none behind: its configuration, its
    /// subnets by id, and its entries by address. Empty: it was not there, or is no more.
    ///
    /// `back` must have every step behind that unit.
    ///
    /// Cost: O(n) of what it holds, and O(log) of each step that leads back.
    pub fn as_of(&self, back: &WayBack, durable: u64) -> Vec<(Key, State)> {
        // Of several steps at one key the first one found what counts.
        let mut before: BTreeMap<Key, Option<&State>> = BTreeMap::new();
        for (_, key, state) in back.0.iter().filter(|(unit, ..)| *unit > durable) {
            before.entry(*key).or_insert(state.as_ref());
        }
        let mut all = Vec::with_capacity(1 + self.subnets.len() + self.entries());
        let mut subnets: Vec<_> = self.subnets.iter().collect();
        subnets.sort_unstable_by_key(|subnet| subnet.id);
        if !self.gone {
            let config = std::iter::once((Key::Config, State::Config(Arc::clone(&self.config))));
            let subnets = subnets.into_iter().map(|subnet| (Key::Subnet(subnet.id), State::Subnet(Arc::clone(subnet))));
            let entries = self.holdings.ascending(Bound::Unbounded);
            let entries = entries.map(|(address, entry)| (Key::Address(address), State::Entry(entry.clone())));
            all.extend(config.chain(subnets).chain(entries).filter(|(key, _)| !before.contains_key(key)));
        }
        if before.values().any(Option::is_some) {
            all.extend(before.into_iter().filter_map(|(key, state)| Some((key, state?.clone()))));
            all.sort_by_key(|(key, _)| *key);
        }
        all
    }
}
