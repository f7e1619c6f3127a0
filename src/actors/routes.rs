//! The routing table: name or id → the actor of a network. Written by the directory, read by every connection.
//!
//! Readers take a snapshot and never queue behind the directory. The table is striped, so publishing one network copies one
//! stripe (a 256th), and creating 100 000 networks does not take quadratic time.
//!
//! Besides the address of its actor, a route carries what all users of the network share: the bound on its queue
//! ([`Permits`]), the line between its memory and what is durable ([`Lane`]), and what it published ([`Published`]).

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use actix::Addr;
use arc_swap::ArcSwap;
use xxhash_rust::xxh3::Xxh3Default;

use super::network::NetworkActor;
use super::places::{Placed, Places};
use super::published::{Deeds, Published};
use crate::core::types::{Name, NetworkId};
use crate::limits::NETWORK_QUEUE_REQUESTS_MAX;
use crate::store::ShardId;

/// Stands for the time at which something ends if nothing does.
pub const NOTHING_ENDS: u64 = u64::MAX;

const STRIPES: usize = 256;
type Hasher = BuildHasherDefault<Xxh3Default>;

/// The line between what a network's memory says and what is durable. Shared by its actor and the committer.
///
/// The committer raises `incarnation` first and settles afterwards, so an actor that sees its units settled without being
/// durable also sees that its memory is worthless.
#[derive(Debug)]
pub struct Lane {
    /// The network.
    pub id: NetworkId,
    /// Its shard.
    pub shard: ShardId,
    /// Memory of an older incarnation is worthless: whatever comes from it is refused.
    pub incarnation: AtomicU64,
    /// How many units of the network are durable or given up. Raised before anybody is told: a client that has an answer finds
    /// what the answer released free elsewhere.
    pub definite: AtomicU64,
    /// How many of them the committer is done with: their answers have left, so no answer that leaves directly overtakes one
    /// of them.
    pub settled: AtomicU64,
    /// How many of them that came before the last rise of the incarnation are durable.
    pub durable: AtomicU64,
    /// Shard time at which something of it next ends by itself, a lease, a cooldown or a probation; [`NOTHING_ENDS`] if
    /// nothing does.
    pub ends_next: AtomicU64,
    /// The store differs from the memory on which a commit was decided: the network has to be read from the store.
    belied: AtomicBool,
    /// What of it became durable.
    pub deeds: Deeds,
    /// The reactor thread of its actor; none before it has one.
    place: OnceLock<Placed>,
}

impl Lane {
    /// The lane of a network whose memory was just loaded or created.
    pub fn new(id: NetworkId, shard: ShardId) -> Self {
        Self {
            id,
            shard,
            incarnation: AtomicU64::new(0),
            definite: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            ends_next: AtomicU64::new(NOTHING_ENDS),
            belied: AtomicBool::new(false),
            deeds: Deeds::default(),
            place: OnceLock::new(),
        }
    }

    /// Notes that a commit found something else in the store than it expected.
    pub fn belie(&self) {
        self.belied.store(true, Ordering::Release);
    }

    /// Is it known that the store differs from what memory once had?
    pub fn is_belied(&self) -> bool {
        self.belied.load(Ordering::Acquire)
    }

    /// The reactor thread of its actor, if it has one.
    pub fn on(&self) -> Option<usize> {
        self.place.get().map(Placed::on)
    }

    /// The reactor thread of its actor, which is chosen now if it has none.
    pub fn place(&self, places: &Places) -> usize {
        self.place.get_or_init(|| places.take()).on()
    }
}

/// Bound on the requests that wait for one network.
#[derive(Debug, Default)]
pub struct Permits {
    taken: AtomicUsize,
}

impl Permits {
    /// Takes as many permits of `wanted` as are available. They come back when the guard is dropped.
    pub fn take(self: &Arc<Self>, wanted: usize) -> PermitGuard {
        let before = self.taken.fetch_add(wanted, Ordering::Relaxed);
        let granted = NETWORK_QUEUE_REQUESTS_MAX.saturating_sub(before).min(wanted);
        if granted < wanted {
            self.taken.fetch_sub(wanted - granted, Ordering::Relaxed);
        }
        PermitGuard { permits: Arc::clone(self), count: granted }
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// The places of some requests in a network's queue.
#[derive(Debug)]
pub struct PermitGuard {
    permits: Arc<Permits>,
    /// How many places.
    pub count: usize,
}

impl Drop for PermitGuard {
    fn drop(&mut self) {
        self.permits.taken.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// How a network is reached.
#[derive(Debug)]
pub struct Route {
    /// Its id.
    pub id: NetworkId,
    /// Its name now; none while it is closed.
    pub name: Option<Name>,
    /// Its realm.
    pub realm: Name,
    /// Its actor.
    pub addr: Addr<NetworkActor>,
    /// Its durable line.
    pub lane: Arc<Lane>,
    /// Its queue's bound.
    pub permits: Arc<Permits>,
    /// Its figures.
    pub published: Arc<Published>,
}

impl Route {
    /// What an operator knows it by: a network that was deleted and is remembered has no name any more, and goes by its id.
    pub fn called(&self) -> Option<Name> {
        self.name.clone().or_else(|| self.id.to_string().parse().ok())
    }

    /// Is this its name? A client may also use its id.
    pub fn is_called(&self, text: &str) -> bool {
        self.name.as_ref().is_some_and(|name| name.as_str() == text)
    }
}

#[derive(Debug)]
struct Striped<K> {
    stripes: Vec<ArcSwap<HashMap<K, Arc<Route>, Hasher>>>,
    hasher: Hasher,
}

impl<K: Hash + Eq + Clone> Striped<K> {
    fn new() -> Self {
        let empty = Arc::default();
        let stripe = |_| ArcSwap::new(Arc::clone(&empty));
        Self { stripes: (0..STRIPES).map(stripe).collect(), hasher: Hasher::default() }
    }

    fn stripe<Q: Hash + ?Sized>(&self, key: &Q) -> &ArcSwap<HashMap<K, Arc<Route>, Hasher>> {
        // The high bits: the low ones choose the slot inside the stripe.
        &self.stripes[(self.hasher.hash_one(key) >> 56) as usize % STRIPES]
    }

    fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Arc<Route>>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.stripe(key).load().get(key).cloned()
    }

    fn change(&self, key: &K, route: Option<Arc<Route>>) {
        let stripe = self.stripe(key);
        let mut map = HashMap::clone(&stripe.load());
        match route {
            Some(route) => map.insert(key.clone(), route),
            None => map.remove(key),
        };
        stripe.store(Arc::new(map));
    }

    fn fill(&self, entries: Vec<(K, Arc<Route>)>) {
        let mut maps: Vec<HashMap<K, Arc<Route>, Hasher>> = self.stripes.iter().map(|_| HashMap::default()).collect();
        for (key, route) in entries {
            let at = (self.hasher.hash_one(&key) >> 56) as usize % STRIPES;
            maps[at].insert(key, route);
        }
        // With few networks most stripes stay as they are: a tenure begins with this.
        for (stripe, map) in self.stripes.iter().zip(maps).filter(|(_, map)| !map.is_empty()) {
            stripe.store(Arc::new(map));
        }
    }
}

/// All routes.
#[derive(Debug)]
pub struct Routes {
    by_name: Striped<Name>,
    by_id: Striped<NetworkId>,
}

impl Default for Routes {
    fn default() -> Self {
        Self { by_name: Striped::new(), by_id: Striped::new() }
    }
}

impl Routes {
    /// The network that a client names: by name, then by id.
    pub fn find(&self, text: &str) -> Option<Arc<Route>> {
        self.by_name.get(text).or_else(|| text.parse().ok().and_then(|id: NetworkId| self.by_id(id)))
    }

    /// By name.
    pub fn by_name(&self, name: &Name) -> Option<Arc<Route>> {
        self.by_name.get(name)
    }

    /// By id.
    pub fn by_id(&self, id: NetworkId) -> Option<Arc<Route>> {
        self.by_id.get(&id)
    }

    /// Makes a network reachable, or replaces its route; if its name changed, removes the old one and counts from zero.
    /// Directory only.
    pub fn publish(&self, route: Route) -> Arc<Route> {
        let route = Arc::new(route);
        let before = self.by_id.get(&route.id);
        if before.as_ref().is_some_and(|before| before.name != route.name) {
            // First: nobody may read under the new name what was counted under the old one.
            route.lane.deeds.begin_anew();
            route.published.refusals.begin_anew();
        }
        self.by_id.change(&route.id, Some(Arc::clone(&route)));
        if let Some(name) = &route.name {
            self.by_name.change(name, Some(Arc::clone(&route)));
        }
        if let Some(old) = before.and_then(|before| before.name.clone())
            && Some(&old) != route.name.as_ref()
            && self.by_name.get(old.as_str()).is_some_and(|present| present.id == route.id)
        {
            self.by_name.change(&old, None);
        }
        route
    }

    /// Publishes all routes at once, at start. Directory only.
    pub fn fill(&self, routes: Vec<Route>) {
        let routes: Vec<Arc<Route>> = routes.into_iter().map(Arc::new).collect();
        let named = routes.iter().filter_map(|route| Some((route.name.clone()?, Arc::clone(route)))).collect();
        self.by_name.fill(named);
        self.by_id.fill(routes.into_iter().map(|route| (route.id, route)).collect());
    }

    /// Removes the route of a network. Directory only.
    pub fn withdraw(&self, id: NetworkId) {
        if let Some(route) = self.by_id.get(&id) {
            self.by_id.change(&id, None);
            if let Some(name) = &route.name
                && self.by_name.get(name.as_str()).is_some_and(|present| present.id == id)
            {
                self.by_name.change(name, None);
            }
        }
    }

    /// Every route, in no order: for `/metrics` and for methods over all networks.
    pub fn all(&self) -> Vec<Arc<Route>> {
        self.by_id.stripes.iter().flat_map(|stripe| stripe.load().values().cloned().collect::<Vec<_>>()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_bounded_and_come_back() {
        let permits = Arc::new(Permits::default());
        let most = permits.take(NETWORK_QUEUE_REQUESTS_MAX - 3);
        assert_eq!(most.count, NETWORK_QUEUE_REQUESTS_MAX - 3);
        let rest = permits.take(10);
        assert_eq!(rest.count, 3);
        assert_eq!(permits.take(1).count, 0);
        drop(most);
        drop(rest);
        assert_eq!(permits.waiting(), 0);
    }
}
