//! Records which hardware address is used in which realm: a MAC is unique in its realm, and a realm spans networks.
//!
//! A network's actor *claims* a MAC when it decides to record it, before any other network can, and lets it *leave* with the
//! unit in which its reservation ends; until that unit is durable nobody else gets the MAC, so no crash leaves two users. A
//! decision over several networks may hand a MAC from one to another: the first network *offers* it, the second claims it,
//! under one transaction, and the claim ranks after the first network's use until the transaction is durable. If it comes to
//! nothing, the first network has the MAC again as soon as the second one is loaded again, whichever of them is loaded first.
//!
//! In memory only: every network that is loaded, or loaded again, reports what it uses. Called by `network`.
//!
//! Review notes: is every claim that came to nothing taken back? Does a network that is loaded again replace its own?

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::routes::Lane;
use crate::core::address::Address;
use crate::core::types::{Mac, Name, NetworkId};
use crate::store::TransactionId;

/// Who uses which MAC, by realm.
#[derive(Debug, Default)]
pub struct Macs {
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    by: HashMap<(Name, Mac), MacUser>,
    leaving: Departures<(Name, Mac)>,
}

#[derive(Debug, Clone)]
struct MacUser {
    network: NetworkId,
    address: Address,
    /// Another network may claim the MAC under this transaction.
    offered: Option<TransactionId>,
    leaving: Option<Leaving>,
    /// The user before, which may turn out to be the user still: it offered the MAC, and the outcome of that is not known to
    /// be durable.
    before: Option<Box<MacUser>>,
}

/// The unit with which the use of a MAC ends.
#[derive(Debug, Clone)]
pub struct Leaving {
    /// The lane of the network.
    pub lane: Arc<Lane>,
    /// The incarnation of the memory that decided it.
    pub incarnation: u64,
    /// The number of the unit among the network's units.
    pub unit: u64,
}

/// For whom a MAC is asked about or claimed.
#[derive(Debug, Clone, Copy)]
pub struct MacAsker<'a> {
    /// Its realm.
    pub realm: &'a Name,
    /// The network.
    pub network: NetworkId,
    /// The transaction, if it decides together with other networks.
    pub transaction: Option<TransactionId>,
}

/// The MACs that were claimed, to be taken back if the decision comes to nothing.
#[derive(Debug, Default)]
pub struct ClaimedMacs(Vec<(Mac, Option<MacUser>)>);

/// Departures in their order, until somebody checks whether they have left.
#[derive(Debug)]
pub(super) struct Departures<K>(VecDeque<(K, Leaving)>);

impl<K> Default for Departures<K> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K> Departures<K> {
    /// Notes that `what` leaves with this unit.
    pub(super) fn push(&mut self, what: K, leaving: &Leaving) {
        self.0.push_back((what, leaving.clone()));
    }

    /// Calls `forget` for each that has left by now; what did not become durable stays where it is, until its network is
    /// loaded again. Cost: as many as have left, amortised; one that is under way delays those after it.
    pub(super) fn left(&mut self, mut forget: impl FnMut(K, &Leaving)) {
        while self.0.front().is_some_and(|(_, leaving)| leaving.is_definite() || leaving.is_given_up())
            && let Some((what, left)) = self.0.pop_front()
        {
            if left.is_durable() {
                forget(what, &left);
            }
        }
    }
}

impl Leaving {
    pub(super) fn is_durable(&self) -> bool {
        // `definite` first: the committer raises the incarnation before it counts what was not durable.
        self.is_definite() && !self.is_given_up()
    }

    /// Is its memory worthless? Then the unit may never be settled: an actor that died had not handed it in.
    fn is_given_up(&self) -> bool {
        self.lane.incarnation.load(Ordering::Acquire) != self.incarnation
    }

    fn is_definite(&self) -> bool {
        self.lane.definite.load(Ordering::Acquire) >= self.unit
    }

    pub(super) fn is(&self, other: &Leaving) -> bool {
        Arc::ptr_eq(&self.lane, &other.lane) && (self.incarnation, self.unit) == (other.incarnation, other.unit)
    }
}

impl Used {
    fn forget_left(&mut self) {
        let by = &mut self.by;
        self.leaving.left(|key, _| {
            // What was claimed since belongs to another network.
            if let Some(stays) = by.remove(&key).and_then(MacUser::unless_left) {
                by.insert(key, stays);
            }
        });
    }

    fn add(&mut self, realm: &Name, network: NetworkId, macs: impl Iterator<Item = (Mac, Address)>) {
        self.by.extend(macs.map(|(mac, address)| ((realm.clone(), mac), MacUser::of(network, address))));
    }
}

impl MacUser {
    fn of(network: NetworkId, address: Address) -> Self {
        Self { network, address, offered: None, leaving: None, before: None }
    }

    fn has_left(&self) -> bool {
        self.leaving.as_ref().is_some_and(Leaving::is_durable)
    }

    /// The user, without those that have left. A network that left a MAC had it durably, so its previous user has left as
    /// well.
    fn unless_left(self) -> Option<Self> {
        if self.has_left() {
            return None;
        }
        let before = self.before.and_then(|before| before.unless_left()).map(Box::new);
        Some(Self { before, ..self })
    }

    /// Drops the claim of this network: the MAC belongs to the user before. False: to nobody.
    fn forget(&mut self, network: NetworkId) -> bool {
        if self.before.as_mut().is_some_and(|before| !before.forget(network)) {
            self.before = None;
        }
        if self.network == network {
            let Some(before) = self.before.take().and_then(|before| before.unless_left()) else { return false };
            // The transaction of the offer is over.
            *self = Self { offered: None, ..before };
        }
        true
    }

    /// The use of the MAC by this network.
    fn of_network(&mut self, network: NetworkId) -> Option<&mut Self> {
        if self.network == network { Some(self) } else { self.before.as_mut()?.of_network(network) }
    }

    fn stands_in_the_way_of(&self, asker: MacAsker<'_>) -> bool {
        let given = asker.transaction.is_some() && self.offered == asker.transaction;
        self.network != asker.network && !given && !self.has_left()
    }
}

fn in_the_way(used: &HashMap<(Name, Mac), MacUser>, asker: MacAsker<'_>, mac: Mac) -> Option<Address> {
    let user = used.get(&(asker.realm.clone(), mac)).filter(|user| user.stands_in_the_way_of(asker));
    user.map(|user| user.address)
}

fn all_free(
    used: &HashMap<(Name, Mac), MacUser>,
    asker: MacAsker<'_>,
    wanted: &[(Mac, Address)],
) -> Result<(), (Mac, Address)> {
    let taken = |(mac, _): &(Mac, Address)| Some((*mac, in_the_way(used, asker, *mac)?));
    wanted.iter().find_map(taken).map_or(Ok(()), Err)
}

impl Macs {
    fn used(&self) -> MutexGuard<'_, Used> {
        // Every change is one call of the map, so a panic leaves it consistent. A departure that is then not listed is only
        // kept for longer.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where another network of the realm uses the MAC.
    pub fn elsewhere(&self, asker: MacAsker<'_>, mac: Mac) -> Option<Address> {
        in_the_way(&self.used().by, asker, mac)
    }

    /// The network that uses the MAC, and where.
    pub fn user(&self, realm: &Name, mac: Mac) -> Option<(NetworkId, Address)> {
        self.used().by.get(&(realm.clone(), mac)).map(|user| (user.network, user.address))
    }

    /// Claims all of these MACs or none.
    ///
    /// # Errors
    /// The first MAC that another network uses, and where.
    pub fn claim(&self, asker: MacAsker<'_>, wanted: &[(Mac, Address)]) -> Result<ClaimedMacs, (Mac, Address)> {
        let mut used = self.used();
        all_free(&used.by, asker, wanted)?;
        let mut claim = |&(mac, address): &(Mac, Address)| {
            let key = (asker.realm.clone(), mac);
            let present = used.by.get(&key).cloned();
            let before = present
                .clone()
                .and_then(MacUser::unless_left)
                .and_then(|user| if user.network == asker.network { user.before } else { Some(Box::new(user)) });
            used.by.insert(key, MacUser { before, ..MacUser::of(asker.network, address) });
            (mac, present)
        };
        Ok(ClaimedMacs(wanted.iter().map(&mut claim).collect()))
    }

    /// Whether [`Macs::claim`] would, for a dry run: nobody may find a MAC in use that nobody gets.
    ///
    /// # Errors
    /// As there.
    pub fn would_claim(&self, asker: MacAsker<'_>, wanted: &[(Mac, Address)]) -> Result<(), (Mac, Address)> {
        all_free(&self.used().by, asker, wanted)
    }

    /// Takes claims back.
    pub fn unclaim(&self, realm: &Name, claimed: ClaimedMacs) {
        let mut used = self.used();
        for (mac, before) in claimed.0 {
            // A use that has ended meanwhile does not come back.
            match before.and_then(MacUser::unless_left) {
                // The transaction of the offer is over.
                Some(user) => drop(used.by.insert((realm.clone(), mac), MacUser { offered: None, ..user })),
                None => drop(used.by.remove(&(realm.clone(), mac))),
            }
        }
    }

    /// Lets another network claim these MACs under this transaction, or ends the offer.
    pub fn offer(&self, asker: MacAsker<'_>, macs: &[(Mac, Address)]) {
        let mut used = self.used();
        for (mac, address) in macs {
            let user =
                used.by.entry((asker.realm.clone(), *mac)).or_insert_with(|| MacUser::of(asker.network, *address));
            if user.network == asker.network {
                user.offered = asker.transaction;
            }
        }
    }

    /// Frees these MACs once this unit is durable.
    pub fn leave(&self, asker: MacAsker<'_>, macs: &[(Mac, Address)], leaving: &Leaving) {
        let mut used = self.used();
        used.forget_left();
        for (mac, _) in macs {
            let key = (asker.realm.clone(), *mac);
            if let Some(user) = used.by.get_mut(&key).and_then(|user| user.of_network(asker.network)) {
                user.leaving = Some(leaving.clone());
                used.leaving.push(key, leaving);
            }
        }
    }

    /// Adds what a network uses that was loaded: no other network has claimed anything of it yet.
    pub fn add(&self, realm: &Name, network: NetworkId, macs: impl Iterator<Item = (Mac, Address)>) {
        self.used().add(realm, network, macs);
    }

    /// Replaces what a network uses that was loaded again: the claims of its worthless memory are dropped, and those MACs go
    /// to the users before. Done in one step: what the network still uses is never free for another network in between.
    pub fn replace(&self, realm: &Name, network: NetworkId, macs: impl Iterator<Item = (Mac, Address)>) {
        let mut used = self.used();
        used.by.retain(|_, user| user.forget(network));
        used.add(realm, network, macs);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::store::ShardId;

    const MAC: Mac = Mac(0x0200_0000_0001);

    fn asker(realm: &Name, network: u128, transaction: Option<u128>) -> MacAsker<'_> {
        MacAsker { realm, network: NetworkId(network), transaction: transaction.map(TransactionId) }
    }

    fn wanted() -> [(Mac, Address); 1] {
        [(MAC, "10.0.0.5".parse().unwrap())]
    }

    #[test]
    fn a_mac_that_is_let_go_is_free_when_that_is_durable_and_not_before() {
        let (macs, realm) = (Macs::default(), Name::default_realm());
        let (one, other) = (asker(&realm, 1, None), asker(&realm, 2, None));
        macs.claim(one, &wanted()).unwrap();
        assert!(macs.claim(one, &wanted()).is_ok(), "its own is in nobody's way");
        assert!(macs.claim(other, &wanted()).is_err());
        let lane = Arc::new(Lane::new(NetworkId(1), ShardId(0)));
        macs.leave(one, &wanted(), &Leaving { lane: Arc::clone(&lane), incarnation: 0, unit: 1 });
        assert!(macs.claim(other, &wanted()).is_err());
        lane.definite.store(1, Ordering::Release);
        assert_eq!(macs.elsewhere(other, MAC), None);
        macs.claim(other, &wanted()).unwrap();
        assert!(macs.elsewhere(one, MAC).is_some());
        let elsewhere = "lab".parse().unwrap();
        assert!(macs.claim(asker(&elsewhere, 3, None), &wanted()).is_ok(), "another realm");
    }

    #[test]
    fn a_mac_whose_release_was_not_durable_stays_where_it_was() {
        let (macs, realm) = (Macs::default(), Name::default_realm());
        let (one, other) = (asker(&realm, 1, None), asker(&realm, 2, None));
        macs.claim(one, &wanted()).unwrap();
        let lane = Arc::new(Lane::new(NetworkId(1), ShardId(0)));
        macs.leave(one, &wanted(), &Leaving { lane: Arc::clone(&lane), incarnation: 0, unit: 1 });
        lane.incarnation.store(1, Ordering::Release);
        lane.definite.store(1, Ordering::Release);
        assert!(macs.claim(other, &wanted()).is_err());
        macs.replace(&realm, NetworkId(1), std::iter::empty());
        assert!(macs.claim(other, &wanted()).is_ok());
    }

    #[test]
    fn macs_that_have_left_are_forgotten_and_those_that_have_not_or_came_back_are_kept() {
        let (macs, realm) = (Macs::default(), Name::default_realm());
        let one = asker(&realm, 1, None);
        let lane = Arc::new(Lane::new(NetworkId(1), ShardId(0)));
        let leaving = |unit| Leaving { lane: Arc::clone(&lane), incarnation: 0, unit };
        let of = |number| [(Mac(number), "10.0.0.5".parse().unwrap())];
        let counted = || {
            let used = macs.used();
            (used.by.len(), used.leaving.0.len())
        };
        for unit in 1..=1_000 {
            macs.claim(one, &of(unit)).unwrap();
            macs.leave(one, &of(unit), &leaving(unit));
            lane.definite.store(unit, Ordering::Release);
        }
        assert_eq!(counted(), (1, 1), "the last one is forgotten with the next");
        // Claimed again since.
        macs.claim(one, &of(1_000)).unwrap();
        macs.claim(one, &of(2_000)).unwrap();
        macs.leave(one, &of(2_000), &leaving(1_001));
        macs.claim(one, &of(3_000)).unwrap();
        macs.leave(one, &of(3_000), &leaving(1_002));
        assert_eq!(counted(), (3, 2), "neither has left yet");
        // Neither became durable.
        lane.incarnation.store(1, Ordering::Release);
        lane.definite.store(1_002, Ordering::Release);
        macs.leave(one, &[], &leaving(1_003));
        assert_eq!(counted(), (3, 0));
    }

    #[test]
    fn a_mac_that_is_offered_goes_over_or_stays() {
        let (macs, realm) = (Macs::default(), Name::default_realm());
        let one = asker(&realm, 1, Some(7));
        macs.claim(one, &wanted()).unwrap();
        macs.offer(one, &wanted());
        assert!(macs.claim(asker(&realm, 2, Some(8)), &wanted()).is_err(), "offered in another transaction");
        let claimed = macs.claim(asker(&realm, 2, Some(7)), &wanted()).unwrap();
        assert!(macs.elsewhere(asker(&realm, 1, None), MAC).is_some());
        macs.unclaim(&realm, claimed);
        assert!(macs.elsewhere(asker(&realm, 1, None), MAC).is_none(), "it came to nothing");
        assert!(macs.claim(asker(&realm, 2, Some(7)), &wanted()).is_err(), "and is offered no more");
    }

    /// One thread asks all the time while another one loads the network again and again.
    #[test]
    fn what_a_network_uses_that_is_loaded_again_is_at_no_moment_free() {
        let (macs, realm) = (Macs::default(), Name::default_realm());
        macs.add(&realm, NetworkId(1), wanted().into_iter());
        let has_looked = AtomicBool::new(false);
        let mut was_free = 0;
        std::thread::scope(|scope| {
            let loads = scope.spawn(|| {
                let mut loaded = 0;
                // However late the other thread has its turn, it looks while this one loads.
                while loaded < 20_000 || !has_looked.load(Ordering::Relaxed) {
                    macs.replace(&realm, NetworkId(1), wanted().into_iter());
                    loaded += 1;
                }
            });
            let mut looked = 0;
            while !loads.is_finished() {
                was_free += u32::from(macs.elsewhere(asker(&realm, 2, None), MAC).is_none());
                looked += 1;
                has_looked.store(looked >= 100, Ordering::Relaxed);
            }
        });
        assert_eq!(was_free, 0, "another network could claim it");
    }

    /// The transaction is given up; the network that claimed the MAC is loaded again at once, the one that offered it later.
    #[test]
    fn a_mac_that_goes_over_in_doubt_is_nobody_elses_until_both_know_what_became_of_it() {
        let (macs, realm) = (Macs::default(), Name::default_realm());
        let (one, other, third) = (asker(&realm, 1, Some(7)), asker(&realm, 2, Some(7)), asker(&realm, 3, None));
        let lane_of = |number| Arc::new(Lane::new(NetworkId(number), ShardId(0)));
        let (lane, of_other) = (lane_of(1), lane_of(2));
        let goes_over = |unit| {
            macs.claim(one, &wanted()).unwrap();
            macs.offer(one, &wanted());
            macs.claim(other, &wanted()).unwrap();
            macs.leave(one, &wanted(), &Leaving { lane: Arc::clone(&lane), incarnation: 0, unit });
        };
        goes_over(1);
        macs.leave(other, &wanted(), &Leaving { lane: Arc::clone(&of_other), incarnation: 0, unit: 2 });
        lane.definite.store(1, Ordering::Release);
        of_other.definite.store(2, Ordering::Release);
        assert!(macs.claim(third, &wanted()).is_ok(), "durable, and let go of behind it");
        macs.replace(&realm, NetworkId(3), std::iter::empty());
        goes_over(2);
        lane.incarnation.store(1, Ordering::Release);
        lane.definite.store(2, Ordering::Release);
        macs.replace(&realm, NetworkId(2), std::iter::empty());
        assert!(macs.claim(third, &wanted()).is_err(), "whoever had it has it still");
        macs.replace(&realm, NetworkId(1), wanted().into_iter());
        assert!(macs.claim(third, &wanted()).is_err());
        macs.replace(&realm, NetworkId(1), std::iter::empty());
        assert!(macs.claim(third, &wanted()).is_ok());
    }

    /// The actor died between deciding and handing in: that unit is never settled.
    #[test]
    fn what_left_with_a_dead_actor_keeps_nothing_behind_it_from_being_forgotten() {
        let (macs, realm) = (Macs::default(), Name::default_realm());
        let (one, other) = (asker(&realm, 1, None), asker(&realm, 2, None));
        let lane_of = |number| Arc::new(Lane::new(NetworkId(number), ShardId(0)));
        let (dead, lives) = (lane_of(1), lane_of(2));
        let of = |number| [(Mac(number), "10.0.0.5".parse().unwrap())];
        macs.claim(one, &of(0)).unwrap();
        macs.leave(one, &of(0), &Leaving { lane: Arc::clone(&dead), incarnation: 0, unit: 1 });
        // The one that finds it dead starts another actor, on another lane.
        dead.incarnation.fetch_add(1, Ordering::AcqRel);
        for unit in 1..=100 {
            macs.claim(other, &of(unit)).unwrap();
            macs.leave(other, &of(unit), &Leaving { lane: Arc::clone(&lives), incarnation: 0, unit });
            lives.definite.store(unit, Ordering::Release);
        }
        let used = macs.used();
        assert_eq!((used.by.len(), used.leaving.0.len()), (2, 1), "that of the dead one is its network's still");
    }

    #[test]
    fn what_a_dry_run_finds_free_is_free_for_everybody() {
        let (macs, realm) = (Macs::default(), Name::default_realm());
        let asker = |network| MacAsker { realm: &realm, network: NetworkId(network), transaction: None };
        let wanted: [(Mac, Address); 1] = [("52:54:00:12:34:56".parse().unwrap(), "10.0.0.2".parse().unwrap())];
        macs.would_claim(asker(1), &wanted).unwrap();
        assert_eq!((macs.elsewhere(asker(2), wanted[0].0), macs.user(&realm, wanted[0].0)), (None, None));
        macs.claim(asker(2), &wanted).unwrap();
        assert_eq!(macs.would_claim(asker(1), &wanted), Err(wanted[0]));
        macs.would_claim(asker(2), &wanted).unwrap();
    }
}
