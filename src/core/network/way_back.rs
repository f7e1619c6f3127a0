//! The way back from a network's present state to its durable one: the former states of keys whose changes are under way.
//!
//! A store that was emptied cannot be asked what it had. The node that owned it has all of that in memory, but mixed with
//! changes that were decided and never became durable, and somebody may have been told that these did not happen. So the
//! state before each step is kept until the step is durable.
//!
//! Before: the caller of [`Network::apply_before`] notes what that returns. After: [`Network::as_of`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::Network;
use crate::core::state::{Key, State};

/// The states before steps that may not be durable, oldest first. A step has the number of the unit that makes it durable;
/// numbers rise.
#[derive(Debug, Clone, Default)]
pub struct WayBack(VecDeque<(u64, Key, Option<State>)>);

impl WayBack {
    /// Notes the state of a key before a step of this unit.
    pub fn note(&mut self, unit: u64, key: Key, before: Option<State>) {
        self.0.push_back((unit, key, before));
    }

    /// Forgets everything up to this unit, because it is durable.
    ///
    /// Cost: O(1) for each step that is forgotten.
    pub fn forget(&mut self, durable: u64) {
        while self.0.front().is_some_and(|(unit, ..)| *unit <= durable) {
            self.0.pop_front();
        }
    }

    /// Forgets everything, because nothing is under way.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Is there no step to take back?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Network {
    /// Everything that was stored of the network when exactly the units up to `durable` were: its configuration, its subnets
    /// by id, and its entries by address. Empty if the network did not exist then.
    ///
    /// `back` must have every step after that unit.
    ///
    /// Cost: O(n) of what it holds, and O(log) for each step that is taken back.
    pub fn as_of(&self, back: &WayBack, durable: u64) -> Vec<(Key, State)> {
        // Of several steps at one key, the first one has the state that counts.
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
