//! The addresses that dynamic networks have recorded, by realm: in a realm an address belongs to one network, and these lie in
//! no subnet that the catalog could guard.
//!
//! Whoever records an address holds an intent in the catalog meanwhile, so that neither a subnet nor another network gets the
//! address in between; from then on the directory finds it here. It leaves with the unit in which its reservation ends.
//!
//! In memory only: every network that is loaded, or loaded again, reports what it has. Written by `network`, read by
//! `directory`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::macs::{Departures, Leaving};
use crate::core::address::{Address, Range};
use crate::core::types::{Name, NetworkId};

/// The network that has an address, and how the address leaves it, if it does.
type RecordedBy = (NetworkId, Option<Leaving>);

/// Does the network still have it, as far as is known?
fn stands((_, leaving): &RecordedBy) -> bool {
    !leaving.as_ref().is_some_and(Leaving::is_durable)
}

/// The addresses recorded in one realm.
#[derive(Debug, Default)]
struct RecordedRealm {
    addresses: BTreeMap<Address, RecordedBy>,
    leaving: Departures<Address>,
}

impl RecordedRealm {
    fn add(&mut self, network: NetworkId, addresses: impl Iterator<Item = Address>) {
        self.addresses.extend(addresses.map(|address| (address, (network, None))));
    }

    fn forget_left(&mut self) {
        let addresses = &mut self.addresses;
        self.leaving.left(|address, left| {
            // What came back since stays.
            if addresses.get(&address).and_then(|(_, leaving)| leaving.as_ref()).is_some_and(|leaving| leaving.is(left))
            {
                addresses.remove(&address);
            }
        });
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Recorded {
    realms: Mutex<HashMap<Name, RecordedRealm>>,
}

impl Recorded {
    fn realms(&self) -> MutexGuard<'_, HashMap<Name, RecordedRealm>> {
        // Whatever a panic left behind is still true: a departure that is not listed is only kept for longer.
        self.realms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first address within a range that a network other than `except` has.
    pub fn first_in(&self, realm: &Name, range: Range, except: NetworkId) -> Option<(Address, NetworkId)> {
        let realms = self.realms();
        let mut within = realms.get(realm)?.addresses.range(range.first()..=range.last());
        within.find(|(_, of)| of.0 != except && stands(of)).map(|(address, (network, _))| (*address, *network))
    }

    /// The networks that have an address, in one realm or all. What was durably released belongs to nobody, although it is
    /// listed until the next departure.
    pub fn holding(&self, realm: Option<&Name>, address: Address) -> Vec<NetworkId> {
        let realms = self.realms();
        let asked = realms.iter().filter(|(name, _)| realm.is_none_or(|realm| realm == *name));
        let of = |all: &RecordedRealm| all.addresses.get(&address).filter(|of| stands(of)).map(|(network, _)| *network);
        let mut holding: Vec<_> = asked.filter_map(|(_, all)| of(all)).collect();
        holding.sort_unstable();
        holding
    }

    /// Notes that a network has these addresses.
    pub fn add(&self, realm: &Name, network: NetworkId, addresses: impl Iterator<Item = Address>) {
        let mut addresses = addresses.peekable();
        // Most networks have none.
        if addresses.peek().is_some() {
            self.realms().entry(realm.clone()).or_default().add(network, addresses);
        }
    }

    /// Frees these addresses once this unit is durable.
    pub fn leave(&self, realm: &Name, network: NetworkId, addresses: impl Iterator<Item = Address>, leaving: &Leaving) {
        let mut realms = self.realms();
        let Some(all) = realms.get_mut(realm) else { return };
        all.forget_left();
        for address in addresses {
            if let Some((_, left)) = all.addresses.get_mut(&address).filter(|(of, _)| *of == network) {
                *left = Some(leaving.clone());
                all.leaving.push(address, leaving);
            }
        }
    }

    /// Replaces what a network has that was loaded again. Done in one step: what it still has is never free for another
    /// network in between.
    pub fn replace(&self, realm: &Name, network: NetworkId, addresses: impl Iterator<Item = Address>) {
        let mut addresses = addresses.peekable();
        let mut realms = self.realms();
        // Most networks have none, and neither have most realms.
        if !realms.contains_key(realm) && addresses.peek().is_none() {
            return;
        }
        let all = realms.entry(realm.clone()).or_default();
        all.addresses.retain(|_, (of, _)| *of != network);
        all.add(network, addresses);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::actors::routes::Lane;
    use crate::store::ShardId;

    #[test]
    fn an_address_stands_in_the_way_until_its_release_is_durable_and_not_of_its_own_network() {
        let (recorded, realm) = (Recorded::default(), Name::default_realm());
        let at: Address = "10.0.0.5".parse().unwrap();
        let (around, beside): (Range, Range) = ("10.0.0.0/29".parse().unwrap(), "10.0.0.8/29".parse().unwrap());
        let (own, other) = (NetworkId(1), NetworkId(2));
        recorded.add(&realm, own, [at].into_iter());
        assert_eq!(recorded.first_in(&realm, around, other), Some((at, own)));
        assert_eq!(recorded.first_in(&realm, around, own), None);
        assert_eq!(recorded.first_in(&realm, beside, other), None);
        assert_eq!(recorded.first_in(&"lab".parse().unwrap(), around, other), None);
        assert_eq!((recorded.holding(None, at), recorded.holding(Some(&realm), at)), (vec![own], vec![own]));
        let lane = Arc::new(Lane::new(own, ShardId(0)));
        recorded.leave(&realm, own, [at].into_iter(), &Leaving { lane: Arc::clone(&lane), incarnation: 0, unit: 1 });
        assert!(recorded.first_in(&realm, around, other).is_some(), "it may turn out not to have left");
        assert_eq!(recorded.holding(None, at), vec![own], "so it is found, too");
        lane.definite.store(1, Ordering::Release);
        assert_eq!(recorded.first_in(&realm, around, other), None);
        assert_eq!((recorded.holding(None, at), recorded.holding(Some(&realm), at)), (vec![], vec![]));
        recorded.replace(&realm, own, [at].into_iter());
        assert!(recorded.first_in(&realm, around, other).is_some());
    }

    /// One thread asks all the time while another one loads the network again and again.
    #[test]
    fn what_a_network_has_that_is_loaded_again_is_at_no_moment_free() {
        let (recorded, realm, own) = (Recorded::default(), Name::default_realm(), NetworkId(1));
        let at: Address = "10.0.0.5".parse().unwrap();
        let around: Range = "10.0.0.0/29".parse().unwrap();
        recorded.add(&realm, own, [at].into_iter());
        let has_looked = AtomicBool::new(false);
        let mut was_free = 0;
        std::thread::scope(|scope| {
            let loads = scope.spawn(|| {
                let mut loaded = 0;
                // However late the other thread has its turn, it looks while this one loads.
                while loaded < 20_000 || !has_looked.load(Ordering::Relaxed) {
                    recorded.replace(&realm, own, [at].into_iter());
                    loaded += 1;
                }
            });
            let mut looked = 0;
            while !loads.is_finished() {
                was_free += u32::from(recorded.first_in(&realm, around, NetworkId(2)).is_none());
                looked += 1;
                has_looked.store(looked >= 100, Ordering::Relaxed);
            }
        });
        assert_eq!(was_free, 0, "a subnet of another network could be laid over it");
    }

    #[test]
    fn what_has_left_is_forgotten_with_the_next_that_leaves_and_what_came_back_is_not() {
        let (recorded, realm, own) = (Recorded::default(), Name::default_realm(), NetworkId(1));
        let all = ["10.0.0.5", "10.0.0.6", "10.0.0.7"].map(|text| text.parse::<Address>().unwrap());
        recorded.add(&realm, own, all.into_iter());
        let lane = Arc::new(Lane::new(own, ShardId(0)));
        let leaving = |unit| Leaving { lane: Arc::clone(&lane), incarnation: 0, unit };
        recorded.leave(&realm, own, all[..2].iter().copied(), &leaving(1));
        recorded.add(&realm, own, [all[0]].into_iter());
        assert_eq!(all.map(|at| recorded.holding(None, at).len()), [1, 1, 1]);
        lane.definite.store(1, Ordering::Release);
        recorded.leave(&realm, own, all[2..].iter().copied(), &leaving(2));
        assert_eq!(all.map(|at| recorded.holding(None, at).len()), [1, 0, 1]);
    }
}
