//! What is known of all networks: their names, ids, realms and prefixes. Only the rules here see two networks.
//!
//! ```text
//! check ─▶ intend ─▶ the network's shard commits ─▶ settle     create, add, grow, rename, restore: widen first
//!                └─▶ it refuses or fails ─────────▶ abandon
//! the network's shard commits ─▶ put                           shrink, remove, close: narrow last
//!                            └─▶ remove                        the end of a network
//! ```
//!
//! So the catalog always covers at least what the networks hold: a crash leaves too much in it, never too little. An intent
//! holds its name and prefixes against everybody else until it is settled or abandoned; its network knows which of the two
//! is right. The check and the intent must be one step of the actor that owns the catalog.
//!
//! A closed network frees its name, but its space stays taken. Every search costs O(log n); a change of a network costs
//! O(its subnets · log n).
//!
//! Review notes: does everything that widens hold an intent until the network is durable? Does a new check leave out what
//! the network itself holds?

mod naming;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

pub use naming::{ListRow, Naming};

use super::address::{Cidr, Range};
use super::disjoint::Disjoint;
use super::refusal::{Missing, Refusal, Remembered};
use super::types::{Name, NetworkId, SubnetId};

/// What the catalog keeps of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Its identity.
    pub id: NetworkId,
    /// Unique over all realms as long as the network is not closed.
    pub name: Name,
    /// Never changes.
    pub realm: Name,
    /// Deleted but remembered: its name is free, its space is not.
    pub closed: bool,
    /// Closed for good: what it holds is being released.
    pub purged: bool,
    /// Its prefixes.
    pub subnets: BTreeMap<SubnetId, Cidr>,
}

impl Listing {
    /// How to refer to a closed network, which only its id identifies.
    pub fn remembered(&self) -> Option<Remembered> {
        self.closed.then_some(Remembered { id: self.id, purged: self.purged })
    }
}

/// What a network is about to take in addition to its listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// The network, which need not be listed yet.
    pub network: NetworkId,
    /// Its realm.
    pub realm: Name,
    /// A name that it takes, in a create, rename or restore.
    pub name: Option<Name>,
    /// Prefixes that it takes, in a create, add, grow, move, or update of all subnets.
    pub subnets: Vec<(SubnetId, Cidr)>,
}

/// Number of an intent, unique while it is pending. Whoever makes the intent chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IntentId(pub u64);

/// Names, realms and prefixes of all networks.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    networks: BTreeMap<NetworkId, Known>,
    intents: BTreeMap<IntentId, Intent>,
    /// Who holds a name, by listing or intent. Closed networks hold none.
    names: BTreeMap<Name, NetworkId>,
    /// Listed networks by name, including closed ones, several of which may share a name.
    by_name: BTreeSet<(Name, NetworkId)>,
    realms: BTreeMap<Name, Realm>,
    changes: naming::Changes,
}

/// What one network holds, by its listing and its intents together.
#[derive(Debug, Clone)]
struct Known {
    realm: Name,
    listing: Option<Listing>,
    intents: BTreeSet<IntentId>,
    names: BTreeSet<Name>,
    /// The widest of the listed and intended prefixes. Space that goes from one subnet to another belongs to the wider one.
    prefixes: Prefixes,
}

type Prefixes = BTreeMap<SubnetId, Vec<Cidr>>;
type SubnetOf = (NetworkId, SubnetId);

#[derive(Debug, Clone, Default)]
struct Realm {
    /// Listed networks.
    networks: usize,
    /// The owner of each prefix; there are two only while a subnet moves from one network to another.
    prefixes: Disjoint<Vec<SubnetOf>>,
}

impl Catalog {
    /// May a network with this name and these prefixes be created?
    ///
    /// # Errors
    /// `already_exists` for the name, else `overlap`.
    pub fn check_create(
        &self,
        name: &Name,
        realm: &Name,
        prefixes: impl IntoIterator<Item = Cidr>,
    ) -> Result<(), Refusal> {
        self.check_name(name, None)?;
        self.check_subnets(realm, prefixes, None)
    }

    /// May these prefixes be added to a realm? `except` is the subnet that grows or moves, so that it is not compared with
    /// itself.
    ///
    /// # Errors
    /// `overlap` with the first subnet, in address order, that is in the way of the first such prefix.
    pub fn check_subnets(
        &self,
        realm: &Name,
        adding: impl IntoIterator<Item = Cidr>,
        except: Option<(NetworkId, SubnetId)>,
    ) -> Result<(), Refusal> {
        self.check_beside(realm, adding, |owner| Some(owner) == except)
    }

    /// May the network have these prefixes, considering only other networks? Its own subnets are not checked.
    ///
    /// # Errors
    /// `overlap`, as for [`Self::check_subnets`].
    pub fn check_others(
        &self,
        realm: &Name,
        adding: impl IntoIterator<Item = Cidr>,
        own: NetworkId,
    ) -> Result<(), Refusal> {
        self.check_beside(realm, adding, |(network, _)| network == own)
    }

    fn check_beside(
        &self,
        realm: &Name,
        adding: impl IntoIterator<Item = Cidr>,
        is_itself: impl Fn(SubnetOf) -> bool,
    ) -> Result<(), Refusal> {
        let Some(space) = self.realms.get(realm) else { return Ok(()) };
        for cidr in adding {
            let other = |owners: &[SubnetOf]| owners.iter().copied().find(|owner| !is_itself(*owner));
            let found =
                space.prefixes.overlapping(cidr.range()).find_map(|(with, owners)| Some((with, other(owners)?)));
            if let Some((with, (network, _))) = found {
                return Err(Refusal::Overlap {
                    asked: cidr.range(),
                    with: with.as_cidr().expect("only prefixes are kept"),
                    network: self.name_of(network).clone(),
                    remembered: self.get(network).and_then(Listing::remembered),
                });
            }
        }
        Ok(())
    }

    /// May the network take this name?
    ///
    /// # Errors
    /// `already_exists`.
    pub fn check_rename(&self, id: NetworkId, name: &Name) -> Result<(), Refusal> {
        self.check_name(name, Some(id))
    }

    /// May a closed network come back? Its space was kept for it, but its name may be taken.
    ///
    /// # Errors
    /// `not_found` for an id that is not listed, `already_exists` for the name.
    pub fn check_restore(&self, id: NetworkId) -> Result<(), Refusal> {
        let listing = self.get(id).ok_or_else(|| Refusal::not_found(Missing::Network, id))?;
        // It can only come back under its old name.
        self.check_name(&listing.name, Some(id)).map_err(|_| Refusal::NameTakenSince { name: listing.name.clone() })
    }

    fn check_name(&self, name: &Name, for_network: Option<NetworkId>) -> Result<(), Refusal> {
        // A network can also be named by its id, and a closed one only by that.
        let by_id = || name.as_str().parse::<NetworkId>().ok().filter(|id| self.networks.contains_key(id));
        match self.names.get(name).copied().or_else(by_id) {
            Some(holder) if Some(holder) != for_network => {
                Err(Refusal::NameTaken { what: format!("network `{name}`"), differs: Vec::new() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Records what a network is about to take, after the check allowed it.
    pub fn intend(&mut self, id: IntentId, intent: Intent) {
        let network = intent.network;
        self.known(network, &intent.realm).intents.insert(id);
        let replaced = self.intents.insert(id, intent);
        debug_assert!(replaced.is_none(), "intent {id:?} is pending already");
        self.refresh(network);
    }

    /// Ends an intent whose change is durable, and lists the network as it is now.
    pub fn settle(&mut self, id: IntentId, listing: Listing) {
        self.forget_intent(id);
        self.put(listing);
    }

    /// Ends an intent that came to nothing. Does nothing if it is not pending.
    pub fn abandon(&mut self, id: IntentId) {
        if let Some(network) = self.forget_intent(id) {
            self.refresh(network);
        }
    }

    fn forget_intent(&mut self, id: IntentId) -> Option<NetworkId> {
        let network = self.intents.remove(&id)?.network;
        self.networks.get_mut(&network)?.intents.remove(&id);
        Some(network)
    }

    /// The pending intents, lowest number first. They are to be settled or abandoned when the register is loaded, and after
    /// a time.
    pub fn intents(&self) -> impl Iterator<Item = (IntentId, &Intent)> {
        self.intents.iter().map(|(id, intent)| (*id, intent))
    }

    /// Intents of other networks that hold the name or space of this one and may yet come to nothing.
    pub fn in_the_way(&self, intent: &Intent) -> impl Iterator<Item = IntentId> {
        let overlap = |other: &Intent| {
            let mut pairs =
                other.subnets.iter().flat_map(|(_, one)| intent.subnets.iter().map(move |(_, two)| (one, two)));
            other.realm == intent.realm && pairs.any(|(one, two)| one.range().overlaps(two.range()))
        };
        let takes = move |other: &Intent| {
            let named = other.name.is_some() && other.name == intent.name;
            other.network != intent.network && (named || overlap(other))
        };
        self.intents().filter(move |(_, other)| takes(other)).map(|(id, _)| id)
    }

    /// Lists a network as it is durable. Whatever else it had becomes free, unless an intent holds it.
    pub fn put(&mut self, listing: Listing) {
        let id = listing.id;
        if let Some(before) = self.unlist(id)
            && before != listing.name
        {
            self.changes.renamed(id, before);
        }
        self.realms.entry(listing.realm.clone()).or_default().networks += 1;
        self.by_name.insert((listing.name.clone(), id));
        self.changes.listed(&listing);
        let realm = listing.realm.clone();
        self.known(id, &realm).listing = Some(listing);
        self.refresh(id);
    }

    /// Forgets a network that has ended. What its intents hold stays held.
    pub fn remove(&mut self, id: NetworkId) {
        self.unlist(id);
        self.changes.removed(id);
        self.refresh(id);
    }

    fn known(&mut self, id: NetworkId, realm: &Name) -> &mut Known {
        let known = self.networks.entry(id).or_insert_with(|| Known {
            realm: realm.clone(),
            listing: None,
            intents: BTreeSet::new(),
            names: BTreeSet::new(),
            prefixes: BTreeMap::new(),
        });
        debug_assert!(known.realm == *realm, "network {id} cannot change its realm");
        known
    }

    /// Removes the listing of a network, and returns its name if there was one.
    fn unlist(&mut self, id: NetworkId) -> Option<Name> {
        let old = self.networks.get_mut(&id).and_then(|known| known.listing.take())?;
        self.changes.unlisted(&old);
        let place = (old.name, id);
        self.by_name.remove(&place);
        if let Some(realm) = self.realms.get_mut(&old.realm) {
            realm.networks -= 1;
        }
        Some(place.0)
    }

    /// Updates the names and prefixes that a network holds to those of its listing and intents.
    fn refresh(&mut self, id: NetworkId) {
        let Some(known) = self.networks.get_mut(&id) else { return };
        let intents = || known.intents.iter().filter_map(|intent| self.intents.get(intent));
        let listing = known.listing.as_ref();
        let open_name = listing.filter(|listing| !listing.closed).map(|listing| &listing.name);
        let names: BTreeSet<Name> =
            open_name.into_iter().chain(intents().filter_map(|intent| intent.name.as_ref())).cloned().collect();
        let listed = listing.into_iter().flat_map(|listing| listing.subnets.iter().map(|(id, cidr)| (*id, *cidr)));
        let prefixes = widest(listed.chain(intents().flat_map(|intent| intent.subnets.iter().copied())));
        for name in known.names.difference(&names) {
            self.names.remove(name);
        }
        for name in names.difference(&known.names) {
            let holder = self.names.insert(name.clone(), id);
            debug_assert!(holder.is_none(), "name `{name}` is held already");
        }
        let realm = self.realms.entry(known.realm.clone()).or_default();
        for (subnet, cidr) in differing(&known.prefixes, &prefixes) {
            realm.release((id, subnet), cidr);
        }
        for (subnet, cidr) in differing(&prefixes, &known.prefixes) {
            realm.hold((id, subnet), cidr);
        }
        if realm.networks == 0 && realm.prefixes.is_empty() {
            self.realms.remove(&known.realm);
        }
        known.names = names;
        known.prefixes = prefixes;
        if known.listing.is_none() && known.intents.is_empty() {
            self.networks.remove(&id);
        }
    }

    /// The network of this id, closed or not.
    pub fn get(&self, id: NetworkId) -> Option<&Listing> {
        self.networks.get(&id).and_then(|known| known.listing.as_ref())
    }

    /// Networks, including closed ones, in order of name, then id, after the given one.
    pub fn networks_after<'a>(
        &'a self,
        after: Option<&(Name, NetworkId)>,
    ) -> impl Iterator<Item = &'a Listing> + use<'a> {
        let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
        self.by_name.range((start, Bound::Unbounded)).filter_map(|(_, id)| self.get(*id))
    }

    /// Realms in which a network is listed, in order of name.
    pub fn realms(&self) -> impl Iterator<Item = &Name> {
        self.realms.iter().filter(|(_, realm)| realm.networks > 0).map(|(name, _)| name)
    }

    /// Networks with a subnet that overlaps a range, in one realm or in all. Cost: O(log n + found) per realm.
    pub fn holding(&self, realm: Option<&Name>, range: Range) -> Vec<NetworkId> {
        let realms = self.realms.iter().filter(|(name, _)| realm.is_none_or(|realm| realm == *name));
        let owners = realms.flat_map(|(_, space)| space.prefixes.overlapping(range)).flat_map(|(_, owners)| owners);
        let found: BTreeSet<NetworkId> = owners.map(|(network, _)| *network).collect();
        found.into_iter().collect()
    }

    /// A name for a network that is in the way. The network need not be listed yet.
    fn name_of(&self, id: NetworkId) -> &Name {
        let known = self.networks.get(&id).expect("who holds a prefix is known");
        let intended = || known.intents.iter().find_map(|intent| self.intents.get(intent)?.name.as_ref());
        let listed = known.listing.as_ref().map(|listing| &listing.name);
        // Only while a removed network is being settled does it have no listing and only intents without a name.
        listed.or_else(intended).unwrap_or(&known.realm)
    }
}

impl Realm {
    fn hold(&mut self, owner: SubnetOf, cidr: Cidr) {
        match self.prefixes.get_mut(cidr.range()) {
            Some(owners) => owners.push(owner),
            None => self.prefixes.insert(cidr.range(), vec![owner]),
        }
    }

    fn release(&mut self, owner: SubnetOf, cidr: Cidr) {
        let Some(owners) = self.prefixes.get_mut(cidr.range()) else { return };
        owners.retain(|other| *other != owner);
        if owners.is_empty() {
            self.prefixes.remove(cidr.range());
        }
    }
}

/// Those prefixes of one network that none of its others covers; of equal ones, the first.
fn widest(held: impl Iterator<Item = (SubnetId, Cidr)>) -> Prefixes {
    let mut held: Vec<(SubnetId, Cidr)> = held.collect();
    // Of two prefixes that overlap, one covers the other, and sorts before it here.
    held.sort_by_key(|(_, cidr)| (cidr.base(), cidr.length()));
    let mut prefixes = Prefixes::new();
    let mut last: Option<Cidr> = None;
    for (subnet, cidr) in held {
        if last.is_none_or(|wide| !wide.range().covers(cidr.range())) {
            prefixes.entry(subnet).or_default().push(cidr);
            last = Some(cidr);
        }
    }
    prefixes
}

/// What is in one but not in the other.
fn differing<'a>(one: &'a Prefixes, other: &'a Prefixes) -> impl Iterator<Item = (SubnetId, Cidr)> + 'a {
    one.iter().flat_map(|(subnet, prefixes)| {
        let others = other.get(subnet).map_or(&[][..], Vec::as_slice);
        prefixes.iter().filter(|cidr| !others.contains(cidr)).map(|cidr| (*subnet, *cidr))
    })
}

#[cfg(test)]
mod tests;
