//! Who carries which MAC: a MAC is unique in its realm, and a realm's networks live in different actors and shards.
//!
//! Each network knows its own MACs; this table knows the network of each. A network *asks* before it decides, so that the
//! refusal comes in its place among the others, *takes* what it decided to give, atomically, before it applies, and
//! *leaves* what it let go. What was let go is free for another network only once that is durable: until then the release
//! may turn out not to have happened.
//!
//! On one node the table is complete. It holds nothing that the records do not say: it is filled from them at start.
//!
//! Review notes: is every MAC that a decision takes put back if the decision is not carried out?

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::routes::Lane;
use crate::core::state::{Entry, Reservation, State, Step};
use crate::core::types::{Mac, Name, NetworkId};

/// Where a MAC is.
#[derive(Debug)]
struct Place {
    lane: Arc<Lane>,
    /// It was let go by this unit of that network, decided on memory of this incarnation.
    left: Option<(u64, u64)>,
}

impl Place {
    /// Was it let go, and is that durable?
    fn is_free(&self) -> bool {
        self.left.is_some_and(|(unit, incarnation)| {
            // In this order: what was given up is settled too, but its incarnation was raised before.
            self.lane.settled.load(Ordering::Acquire) >= unit
                && self.lane.incarnation.load(Ordering::Acquire) == incarnation
        })
    }
}

/// The MACs of all realms.
#[derive(Debug, Default)]
pub struct Macs(Mutex<HashMap<Name, HashMap<Mac, Place>>>);

impl Macs {
    fn realms(&self) -> MutexGuard<'_, HashMap<Name, HashMap<Mac, Place>>> {
        // Each change is a single insertion or removal: a panic leaves none half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is it carried in another network of the realm?
    pub fn is_elsewhere(&self, realm: &Name, mac: Mac, here: NetworkId) -> bool {
        let realms = self.realms();
        let place = realms.get(realm).and_then(|macs| macs.get(&mac));
        place.is_some_and(|place| place.lane.id != here && !place.is_free())
    }

    /// Takes all MACs for a network, or none. Answers those that it did not carry before.
    ///
    /// # Errors
    /// The first that is carried elsewhere.
    pub fn take(&self, realm: &Name, wanted: &[Mac], lane: &Arc<Lane>) -> Result<Vec<Mac>, Mac> {
        let mut realms = self.realms();
        let macs = realms.entry(realm.clone()).or_default();
        let elsewhere = |mac: &&Mac| macs.get(mac).is_some_and(|place| place.lane.id != lane.id && !place.is_free());
        if let Some(taken) = wanted.iter().find(elsewhere) {
            return Err(*taken);
        }
        let mut fresh = Vec::new();
        for &mac in wanted {
            let before = macs.insert(mac, Place { lane: Arc::clone(lane), left: None });
            if before.is_none_or(|place| place.lane.id != lane.id) {
                fresh.push(mac);
            }
        }
        Ok(fresh)
    }

    /// Notes what applied steps changed. `unit` is the number of the unit that makes them durable.
    pub fn follow(&self, realm: &Name, changes: &MacChanges, lane: &Arc<Lane>, (unit, incarnation): (u64, u64)) {
        let mut realms = self.realms();
        let macs = realms.entry(realm.clone()).or_default();
        for mac in &changes.lost {
            if let Some(place) = macs.get_mut(mac).filter(|place| place.lane.id == lane.id) {
                place.left = Some((unit, incarnation));
            }
        }
        for &mac in &changes.gained {
            macs.insert(mac, Place { lane: Arc::clone(lane), left: None });
        }
    }

    /// Lets go at once of what was taken for a decision that is not carried out.
    pub fn untake(&self, realm: &Name, macs: &[Mac], here: NetworkId) {
        let mut realms = self.realms();
        let Some(of_realm) = realms.get_mut(realm) else { return };
        for mac in macs {
            if of_realm.get(mac).is_some_and(|place| place.lane.id == here) {
                of_realm.remove(mac);
            }
        }
    }

    /// A network was loaded: these are its MACs and no others. Answers those that another network carries already.
    pub fn loaded(&self, realm: &Name, present: impl Iterator<Item = Mac>, lane: &Arc<Lane>) -> Vec<Mac> {
        let mut realms = self.realms();
        let macs = realms.entry(realm.clone()).or_default();
        macs.retain(|_, place| place.lane.id != lane.id && !place.is_free());
        let mut twice = Vec::new();
        for mac in present {
            match macs.entry(mac) {
                Slot::Occupied(_) => twice.push(mac),
                Slot::Vacant(free) => drop(free.insert(Place { lane: Arc::clone(lane), left: None })),
            }
        }
        twice
    }
}

/// What steps do to the MACs of a network.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MacChanges {
    /// Carried now.
    pub gained: Vec<Mac>,
    /// Carried before and not any more.
    pub lost: Vec<Mac>,
}

impl MacChanges {
    /// Of all steps of one decision together: what moves from one address to another is neither gained nor lost.
    /// Allocates nothing where no MAC is concerned.
    pub fn of(steps: &[Step]) -> Self {
        let mac_of = |held: &Reservation| held.details.as_ref().and_then(|details| details.mac);
        let (mut gained, mut lost) = (Vec::new(), Vec::new());
        for step in steps {
            if let Some(mac) = step.event.as_ref().and_then(|event| event.before.as_deref()).and_then(mac_of) {
                lost.push(mac);
            }
            if let Some(State::Entry(Entry::Held(held))) = &step.state
                && let Some(mac) = mac_of(held)
            {
                gained.push(mac);
            }
        }
        lost.retain(|mac| !gained.contains(mac));
        Self { gained, lost }
    }

    /// Is no MAC concerned?
    pub fn is_empty(&self) -> bool {
        self.gained.is_empty() && self.lost.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ShardId;

    fn lane(id: u128) -> Arc<Lane> {
        Arc::new(Lane::new(NetworkId(id), ShardId(0)))
    }

    #[test]
    fn a_mac_is_free_for_another_network_once_its_release_is_durable() {
        let (macs, realm, mac) = (Macs::default(), Name::default_realm(), Mac(7));
        let (a, b) = (lane(1), lane(2));
        assert_eq!(macs.take(&realm, &[mac], &a), Ok(vec![mac]));
        assert_eq!(macs.take(&realm, &[mac], &a), Ok(vec![]));
        assert_eq!(macs.take(&realm, &[Mac(8), mac], &b), Err(mac));
        assert!(!macs.is_elsewhere(&realm, Mac(8), a.id), "nothing of a refused request is taken");
        let left = MacChanges { gained: Vec::new(), lost: vec![mac] };
        macs.follow(&realm, &left, &a, (1, 0));
        assert!(macs.is_elsewhere(&realm, mac, b.id));
        assert!(!macs.is_elsewhere(&realm, mac, a.id));
        a.settled.store(1, Ordering::Release);
        assert_eq!(macs.take(&realm, &[mac], &b), Ok(vec![mac]));
    }

    #[test]
    fn a_release_that_was_given_up_frees_nothing() {
        let (macs, realm, mac) = (Macs::default(), Name::default_realm(), Mac(7));
        let (a, b) = (lane(1), lane(2));
        macs.take(&realm, &[mac], &a).unwrap();
        macs.follow(&realm, &MacChanges { gained: Vec::new(), lost: vec![mac] }, &a, (1, 0));
        a.incarnation.store(1, Ordering::Release);
        a.settled.store(1, Ordering::Release);
        assert!(macs.is_elsewhere(&realm, mac, b.id));
        assert_eq!(macs.loaded(&realm, [mac].into_iter(), &a), []);
        assert!(macs.is_elsewhere(&realm, mac, b.id));
        assert_eq!(macs.loaded(&realm, [mac].into_iter(), &b), [mac]);
    }

    #[test]
    fn realms_do_not_see_each_other() {
        let macs = Macs::default();
        let (one, other): (Name, Name) = ("one".parse().unwrap(), "other".parse().unwrap());
        macs.take(&one, &[Mac(7)], &lane(1)).unwrap();
        macs.take(&other, &[Mac(7)], &lane(2)).unwrap();
    }
}
