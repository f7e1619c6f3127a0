//! The names of networks over time: names change, and an event reports the name of its time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use crate::core::state::{Key, NetworkConfig, State};
use crate::core::types::{Name, NetworkId, Place};
use crate::store::Batch;

/// The name and realm of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedNetwork {
    /// Its name.
    pub name: Name,
    /// Its realm, which never changes.
    pub realm: Name,
}

impl NamedNetwork {
    /// Takes them from the network's configuration.
    pub fn of(config: &NetworkConfig) -> Self {
        Self { name: config.name.clone(), realm: config.realm.clone() }
    }
}

/// For a network, from which batch and step on it had which name; ascending.
type Times = Vec<((u64, u32), Arc<NamedNetwork>)>;

/// Position after all steps of a batch.
pub const BEHIND: u32 = u32::MAX;

/// Names of all networks that are known and of which something is left: they are listed, or in the history.
#[derive(Debug, Default)]
pub struct Names(RwLock<HashMap<NetworkId, Times>>);

impl Names {
    /// Notes that from this batch on a network has this name.
    pub fn note(&self, network: NetworkId, (seq, step): (u64, u32), named: NamedNetwork) {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let times = names.entry(network).or_default();
        let at = times.partition_point(|(when, _)| *when <= (seq, step));
        let before = at.checked_sub(1).map(|before| &times[before].1);
        if before.is_none_or(|before| **before != named) {
            times.insert(at, ((seq, step), Arc::new(named)));
        }
    }

    /// Notes what a batch says of names. Cost: one look at each of its steps.
    pub fn read(&self, batch: &Batch) {
        let mut at = 0;
        for act in &batch.acts {
            for step in &act.steps {
                at += 1;
                if let (Key::Config, Some(State::Config(config))) = (step.key, &step.state) {
                    self.note(act.network, (batch.seq.0, at), NamedNetwork::of(config));
                }
            }
        }
    }

    /// Networks that have, or had, this name.
    pub fn called(&self, name: &str) -> Vec<NetworkId> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let called = |times: &Times| times.iter().any(|(_, named)| named.name.as_str() == name);
        let mut found: Vec<NetworkId> = names.iter().filter(|(_, times)| called(times)).map(|(&id, _)| id).collect();
        found.sort_unstable();
        found
    }

    /// Networks that are, or were, in a realm, ascending.
    pub fn in_realm(&self, realm: &Name) -> Vec<NetworkId> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let of_it = |times: &Times| times.iter().any(|(_, named)| named.realm == *realm);
        let mut found: Vec<NetworkId> = names.iter().filter(|(_, times)| of_it(times)).map(|(&id, _)| id).collect();
        found.sort_unstable();
        found
    }

    /// The networks that are not listed.
    pub fn unlisted(&self, is_listed: impl Fn(NetworkId) -> bool) -> Vec<NetworkId> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        names.keys().copied().filter(|&id| !is_listed(id)).collect()
    }

    /// Notes that all of the kept history was read, up to where networks were loaded and noted as they were [`BEHIND`] a
    /// batch. If the last name read differs from the loaded one, the network was renamed in history that is no longer kept: by
    /// another node, which owned the register meanwhile. Nothing that is left happened under the old name, so it is forgotten.
    /// Returns which names are known only from loading, and since when: these are to be written down, as no kept batch will
    /// tell them to the next start.
    pub fn read_up(&self) -> Vec<(NetworkId, (u64, u32), Arc<NamedNetwork>)> {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let loaded = names.iter_mut().filter_map(|(&id, times)| {
            let loaded = times.iter().position(|((_, step), _)| *step == BEHIND)?;
            if loaded.checked_sub(1).is_some_and(|before| times[before].1 == times[loaded].1) {
                return None;
            }
            times.drain(..loaded);
            let (since, named) = &mut times[0];
            // Still after all steps of the batch, and distinct from what the next start loads.
            since.1 = BEHIND - 1;
            Some((id, *since, Arc::clone(named)))
        });
        loaded.collect()
    }

    /// Notes that nothing from before a batch is kept any more, by network, and forgets earlier names. Returns which networks
    /// that changes, and from which batch on their names are known.
    pub fn forget_before(&self, first_kept: impl Fn(NetworkId) -> u64) -> HashMap<NetworkId, u64> {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let shortened = names.iter_mut().filter_map(|(&id, times)| {
            // The last name from before that batch is the one that the network had then. It may be there twice, from a batch
            // and from loading; only the first of these is written down.
            let mut gone = times.partition_point(|((seq, _), _)| *seq < first_kept(id)).saturating_sub(1);
            while gone > 0 && times[gone - 1].1 == times[gone].1 {
                gone -= 1;
            }
            times.drain(..gone);
            (gone > 0).then(|| (id, times[0].0.0))
        });
        shortened.collect()
    }

    /// Forgets networks whose names nobody can ask for any more.
    pub fn forget(&self, networks: &HashSet<NetworkId>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|id, _| !networks.contains(id));
    }

    /// Is the network known, and not forgotten?
    pub fn knows(&self, network: NetworkId) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(&network)
    }

    /// The name of a network at a place of its shard. Before its first known name, that name is returned, and for an unknown
    /// network its id.
    pub fn at(&self, network: NetworkId, place: &Place) -> Arc<NamedNetwork> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let when = (place.seq, place.steps.unwrap_or(BEHIND));
        let found = names.get(&network).and_then(|times| {
            let at = times.partition_point(|(since, _)| *since <= when);
            times.get(at.saturating_sub(1)).map(|(_, named)| Arc::clone(named))
        });
        found.unwrap_or_else(|| {
            let name = network.to_string().parse().unwrap_or_else(|_| Name::default_realm());
            Arc::new(NamedNetwork { name, realm: Name::default_realm() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> NamedNetwork {
        NamedNetwork { name: name.parse().unwrap(), realm: Name::default_realm() }
    }

    #[test]
    fn a_network_is_called_what_it_was_called_then() {
        let names = Names::default();
        let lan = NetworkId(1);
        names.note(lan, (7, 3), named("new"));
        names.note(lan, (2, 1), named("old"));
        names.note(lan, (9, 1), named("new"));
        let at = |seq, steps| names.at(lan, &Place { seq, steps, ..Place::default() }).name.to_string();
        assert_eq!([at(1, None), at(2, Some(1)), at(7, Some(2))], ["old", "old", "old"]);
        assert_eq!([at(7, Some(3)), at(7, None), at(8, None), at(10, Some(1))], ["new"; 4]);
        assert_eq!(names.at(NetworkId(5), &Place::default()).name.as_str(), NetworkId(5).to_string());
    }

    #[test]
    fn names_that_ended_before_all_that_is_kept_are_forgotten() {
        let (names, often, once) = (Names::default(), NetworkId(1), NetworkId(2));
        names.note(once, (2, 1), named("once"));
        for seq in 1..=100 {
            names.note(often, (seq, 1), named(if seq % 2 == 0 { "even" } else { "odd" }));
        }
        let forget = |first| names.forget_before(|_| first);
        assert_eq!(forget(99), HashMap::from([(often, 98)]));
        let at = |id, seq| names.at(id, &Place { seq, steps: None, ..Place::default() }).name.to_string();
        assert_eq!([at(often, 98), at(often, 99), at(often, 100), at(once, 99)], ["even", "odd", "even", "once"]);
        assert!(forget(99).is_empty());
        assert_eq!(forget(101), HashMap::from([(often, 100)]));
        assert!(names.called("odd").is_empty());
    }

    /// A name known from loading is written down nowhere; the note of the batch that gave the name is.
    #[test]
    fn a_name_that_still_lasts_is_kept_from_the_batch_on_that_gave_it() {
        let (names, lan) = (Names::default(), NetworkId(1));
        names.note(lan, (20, BEHIND), named("lan"));
        names.note(lan, (15, 1), named("lan"));
        names.note(lan, (5, 1), named("old"));
        assert_eq!(names.forget_before(|_| 30), HashMap::from([(lan, 15)]));
        names.note(lan, (40, 1), named("new"));
        assert!(names.forget_before(|_| 40).is_empty());
        assert_eq!(names.forget_before(|_| 41), HashMap::from([(lan, 40)]));
    }

    #[test]
    fn a_name_that_ended_in_what_is_kept_no_more_is_not_told_of_what_is() {
        let (names, renamed, kept, gone) = (Names::default(), NetworkId(1), NetworkId(2), NetworkId(3));
        for (network, name) in [(renamed, "now"), (kept, "kept")] {
            names.note(network, (20, BEHIND), named(name));
        }
        // As this node wrote it down, and for the last two what it read of the rest.
        names.note(renamed, (2, 1), named("once"));
        names.note(kept, (2, 2), named("before"));
        names.note(gone, (3, 1), named("gone"));
        names.note(kept, (15, 1), named("kept"));
        names.note(renamed, (25, 1), named("later"));
        let at = |id, seq| names.at(id, &Place { seq, steps: Some(0), ..Place::default() }).name.to_string();
        assert_eq!(at(renamed, 14), "once");
        let read_up = names.read_up();
        let written: Vec<_> = read_up.iter().map(|(id, since, named)| (*id, since.0, named.name.as_str())).collect();
        assert_eq!(written, [(renamed, 20, "now")]);
        // So the next start finds them, which loads the network under another name.
        let next = Names::default();
        next.note(renamed, (40, BEHIND), named("later"));
        read_up.iter().for_each(|(id, since, named)| next.note(*id, *since, NamedNetwork::clone(named)));
        next.note(renamed, (25, 1), named("later"));
        let then = |seq| next.at(renamed, &Place { seq, steps: Some(1), ..Place::default() }).name.to_string();
        assert_eq!([then(21), then(25), then(41)], ["now", "later", "later"]);
        assert!(next.read_up().is_empty());
        assert_eq!([at(renamed, 14), at(renamed, 21), at(renamed, 26)], ["now", "now", "later"]);
        assert_eq!([at(kept, 14), at(kept, 16), at(gone, 14)], ["before", "kept", "gone"]);
        assert!(names.called("once").is_empty());
    }
}
