//! What the clients were told, and whether the server still knows it.
//!
//! An owner's slot is *held* (an answer named its address and generation), *free* (never asked for, or an answer said that
//! it was released), or *open* (a request about it was sent and not answered: either of its two outcomes is right, and no
//! third).

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

/// Network and owner; the tests use one scope and one slot.
pub type Key = (String, String);

/// A grant, as it was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub address: String,
    pub generation: u64,
}

/// What is known about one owner in one network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    Held(Grant),
    Free,
    /// An allocate was not answered.
    PerhapsHeld,
    /// A release of this grant was not answered.
    PerhapsFree(Grant),
}

/// Everything that was answered.
#[derive(Debug, Default)]
pub struct Ledger {
    known: BTreeMap<Key, Known>,
    /// The highest generation that an answer named, by network and address.
    generations: HashMap<(String, String), u64>,
}

impl Grant {
    /// Reads a reservation or a brief answer.
    #[track_caller]
    pub fn of(reservation: &Value) -> Self {
        let address = reservation["address"].as_str().unwrap_or_else(|| panic!("no address: {reservation}"));
        let generation = reservation["generation"].as_u64().unwrap_or_else(|| panic!("no generation: {reservation}"));
        Self { address: address.to_owned(), generation }
    }
}

impl Ledger {
    pub fn know(&mut self, key: Key, known: Known) {
        if let Known::Held(grant) = &known {
            self.check_generation(&key, grant);
        }
        self.known.insert(key, known);
    }

    pub fn get(&self, key: &Key) -> Known {
        self.known.get(key).cloned().unwrap_or(Known::Free)
    }

    /// Owners that certainly hold an address.
    pub fn held(&self) -> impl Iterator<Item = (&Key, &Grant)> {
        self.known.iter().filter_map(|(key, known)| match known {
            Known::Held(grant) => Some((key, grant)),
            Known::Free | Known::PerhapsHeld | Known::PerhapsFree(_) => None,
        })
    }

    /// The number of owners for whom an answer is missing.
    pub fn open(&self) -> usize {
        let open = |known: &&Known| matches!(known, Known::PerhapsHeld | Known::PerhapsFree(_));
        self.known.values().filter(open).count()
    }

    /// Checks that an address never comes back with a generation that it had before.
    #[track_caller]
    fn check_generation(&mut self, key: &Key, grant: &Grant) {
        let place = (key.0.clone(), grant.address.clone());
        let same = matches!(self.known.get(key), Some(Known::Held(held) | Known::PerhapsFree(held)) if held == grant);
        let seen = self.generations.entry(place).or_insert(0);
        assert!(
            same || grant.generation > *seen,
            "{key:?} was granted {} with generation {}, after generation {seen} of the same address",
            grant.address,
            grant.generation
        );
        *seen = grant.generation.max(*seen);
    }

    /// Compares the ledger with all reservations of the server, and settles what was open by what is there now.
    ///
    /// `realms` gives the realm of each network: within a realm an address has one holder.
    #[track_caller]
    pub fn audit(&mut self, reservations: &[Value], realms: &HashMap<String, String>) {
        let (there, problems) = self.compare(reservations, realms);
        let first: Vec<_> = problems.iter().take(20).map(String::as_str).collect();
        assert!(problems.is_empty(), "{} problems, the first:\n{}", problems.len(), first.join("\n"));
        self.settle(&there);
    }

    /// What is there, and everything that is wrong with it.
    fn compare(&self, reservations: &[Value], realms: &HashMap<String, String>) -> (BTreeMap<Key, Grant>, Vec<String>) {
        let mut there: BTreeMap<Key, Grant> = BTreeMap::new();
        let mut holders: HashMap<(&str, String), Key> = HashMap::new();
        let mut problems = Vec::new();
        for reservation in reservations {
            let text = |member: &str| reservation[member].as_str().unwrap_or_default().to_owned();
            let key = (text("network"), text("owner"));
            let grant = Grant::of(reservation);
            let realm = realms.get(&key.0).map_or("default", String::as_str);
            if let Some(other) = holders.insert((realm, grant.address.clone()), key.clone()) {
                problems.push(format!("{} is held by {other:?} and by {key:?}", grant.address));
            }
            if let Some(other) = there.insert(key.clone(), grant) {
                problems.push(format!("{key:?} is listed twice, also with {}", other.address));
            }
        }
        for (key, known) in &self.known {
            let found = there.get(key);
            let right = match known {
                Known::Held(grant) => found == Some(grant),
                Known::Free => found.is_none(),
                Known::PerhapsHeld => true,
                Known::PerhapsFree(grant) => found.is_none_or(|found| found == grant),
            };
            if !right {
                problems.push(format!("{key:?} was {known:?} by what was answered, and is {found:?}"));
            }
        }
        let unasked = there.keys().filter(|key| !self.known.contains_key(*key));
        problems.extend(unasked.map(|key| format!("{key:?} holds an address and never asked")));
        (there, problems)
    }

    /// Settles what was open by what is there.
    fn settle(&mut self, there: &BTreeMap<Key, Grant>) {
        let open: Vec<Key> = self
            .known
            .iter()
            .filter(|(_, known)| matches!(known, Known::PerhapsHeld | Known::PerhapsFree(_)))
            .map(|(key, _)| key.clone())
            .collect();
        for key in open {
            let known = there.get(&key).map_or(Known::Free, |grant| Known::Held(grant.clone()));
            self.know(key, known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn key(owner: &str) -> Key {
        ("lan".to_owned(), owner.to_owned())
    }

    fn held(address: &str, generation: u64) -> Known {
        Known::Held(Grant { address: address.to_owned(), generation })
    }

    fn listed(owner: &str, address: &str, generation: u64) -> Value {
        json!({"network": "lan", "owner": owner, "address": address, "generation": generation})
    }

    fn problems(known: &[(&str, Known)], reservations: &[Value]) -> Vec<String> {
        let mut ledger = Ledger::default();
        for (owner, known) in known {
            ledger.know(key(owner), known.clone());
        }
        ledger.compare(reservations, &HashMap::new()).1
    }

    #[test]
    fn the_ledger_accepts_what_was_answered_and_both_ends_of_what_was_not() {
        let released = Known::PerhapsFree(Grant { address: "10.0.0.2".to_owned(), generation: 2 });
        let perhaps = [("a", Known::PerhapsHeld), ("b", released)];
        let none: [String; 0] = [];
        assert_eq!(problems(&perhaps, &[]), none);
        assert_eq!(problems(&perhaps, &[listed("a", "10.0.0.1", 3), listed("b", "10.0.0.2", 2)]), none);
        assert_eq!(problems(&[("a", held("10.0.0.1", 1))], &[listed("a", "10.0.0.1", 1)]), none);
    }

    #[test]
    fn the_ledger_finds_loss_resurrection_duplicates_and_strangers() {
        let one = held("10.0.0.1", 1);
        for (known, reservations) in [
            (vec![("a", one.clone())], vec![]),
            (vec![("a", one.clone())], vec![listed("a", "10.0.0.2", 1)]),
            (vec![("a", one.clone())], vec![listed("a", "10.0.0.1", 2)]),
            (vec![("a", Known::Free)], vec![listed("a", "10.0.0.1", 1)]),
            (vec![], vec![listed("a", "10.0.0.1", 1)]),
            (vec![("a", one), ("b", Known::PerhapsHeld)], vec![listed("a", "10.0.0.1", 1), listed("b", "10.0.0.1", 2)]),
        ] {
            assert_eq!(problems(&known, &reservations).len(), 1, "{known:?} {reservations:?}");
        }
    }
}
