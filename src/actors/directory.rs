//! The supervisor: owns the catalog (names, realms, prefixes of all networks), writes the routing table, starts networks
//! and starts dead ones afresh.
//!
//! A message actor: it never waits for a network or the store. Acts that need it (create, rename, delete, restore, what
//! widens a realm's space) are run by the `coordinator`, in this order: [`Lock`] the networks concerned,
//! [`Intend`] (check and intent in one step), the network's own commit, [`SettleAct`] with what is durable. What is settled is
//! also published. Widen first, narrow last: the catalog always covers at least what the networks hold.
//!
//! A check that fails only because of an intent that is still pending waits for that intent, so that of two creates of one
//! name the second is answered by what became of the first. Who waits so holds no network (`coordinator::moves`), and waits
//! for no intent that has nothing to do with it.
//!
//! An actor whose mailbox is closed crashed outside the wall that catches panics: it is started again from the store,
//! after 0, 100 ms, 1 s, then 10 s. One that was stopped stays so, and shows the memory that it showed.
//!
//! Review notes: does every lock end (see `coordinator::locked`)? Is a route published only when its network is durable?

mod messages;
mod restarts;
#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use actix::prelude::*;

pub use self::messages::{
    Abandon, AskCatalog, CatalogAnswer, CatalogCheck, CatalogQuestion, Dead, DurableNetwork, Gone, HeldLock, Intend,
    Lock, MovedSubnet, NotedIntent, Reloaded, Retire, SettleAct, Unlock,
};
use self::restarts::Restart;
use super::published::Published;
use super::routes::{Lane, Route};
use super::service::Shared;
use crate::core::address::{Cidr, Range};
use crate::core::catalog::{Catalog, IntentId, Listing};
use crate::core::network::Network;
use crate::core::refusal::Refusal;
use crate::core::state::{NetworkConfig, SubnetConfig};
use crate::core::types::{Name, NetworkId, ShardTime, SubnetId};

#[derive(Debug)]
struct Blocked {
    /// Intents that were in the way when it was refused last, and are pending still.
    behind: HashSet<IntentId>,
    ask: Intend,
}

/// The actor.
pub struct Directory {
    shared: Arc<Shared>,
    catalog: Catalog,
    next_intent: u64,
    locked: HashSet<NetworkId>,
    waiting: VecDeque<Lock>,
    blocked: Vec<Blocked>,
    restarts: HashMap<NetworkId, Restart>,
    /// Networks that are being started again. Whoever finds the dead actor says so: it is started once.
    starting: HashSet<NetworkId>,
}

/// What the catalog keeps of a network.
pub fn listing_of(config: &NetworkConfig, subnets: &[Arc<SubnetConfig>]) -> Listing {
    Listing {
        id: config.id,
        name: config.name.clone(),
        realm: config.realm.clone(),
        closed: config.closed,
        purged: config.purged,
        subnets: subnets.iter().map(|subnet| (subnet.id, subnet.cidr)).collect::<BTreeMap<SubnetId, Cidr>>(),
    }
}

impl Directory {
    /// Over the networks that were loaded.
    ///
    /// # Errors
    /// Two networks that must not stand beside each other: the store was changed by somebody else.
    pub fn new(shared: Arc<Shared>, networks: &[Network]) -> Result<Self, String> {
        let mut catalog = Catalog::default();
        for network in networks {
            let listing = listing_of(network.config(), network.subnets());
            let subnets = listing.subnets.values().copied();
            catalog
                .check_subnets(&listing.realm, subnets, None)
                .map_err(|refusal| format!("network {} cannot be listed: {refusal}", listing.id))?;
            catalog.put(listing);
        }
        Ok(Self {
            shared,
            catalog,
            next_intent: 0,
            locked: HashSet::new(),
            waiting: VecDeque::new(),
            blocked: Vec::new(),
            restarts: HashMap::new(),
            starting: HashSet::new(),
        })
    }

    fn grant_locks(&mut self) {
        // In order of asking; one that must wait keeps its networks from those behind it, so that none starves.
        let mut kept = VecDeque::new();
        let mut passed: HashSet<NetworkId> = HashSet::new();
        for lock in std::mem::take(&mut self.waiting) {
            if lock.networks.iter().any(|id| self.locked.contains(id) || passed.contains(id)) {
                passed.extend(&lock.networks);
                kept.push_back(lock);
                continue;
            }
            let Lock { networks, granted } = lock;
            self.locked.extend(&networks);
            // If nobody waits for it any more, it gives itself back.
            let _ = granted.send(HeldLock { shared: Arc::clone(&self.shared), networks });
        }
        self.waiting = kept;
    }

    fn check(&self, ask: &Intend) -> Result<(), Refusal> {
        let intent = &ask.intent;
        let prefixes = || intent.subnets.iter().map(|(_, cidr)| *cidr);
        self.check_listed(ask)?;
        // What dynamic networks have written down lies in no subnet.
        for asked in prefixes().map(Cidr::range) {
            if let Some((address, network)) = self.shared.recorded.first_in(&intent.realm, asked, intent.network)
                && let (Some(listing), Some(with)) = (self.catalog.get(network), Range::single(address).as_cidr())
            {
                let (network, remembered) = (listing.name.clone(), listing.remembered());
                return Err(Refusal::Overlap { asked, with, network, remembered });
            }
        }
        Ok(())
    }

    fn check_listed(&self, ask: &Intend) -> Result<(), Refusal> {
        let intent = &ask.intent;
        let prefixes = || intent.subnets.iter().map(|(_, cidr)| *cidr);
        match (&ask.check, &intent.name) {
            (CatalogCheck::Create, Some(name)) => self.catalog.check_create(name, &intent.realm, prefixes()),
            (CatalogCheck::Update, name) => {
                name.iter().try_for_each(|name| self.catalog.check_rename(intent.network, name))?;
                self.catalog.check_others(&intent.realm, prefixes(), intent.network)
            }
            (CatalogCheck::Restore, _) => self.catalog.check_restore(intent.network),
            (CatalogCheck::Space(except), _) => self.catalog.check_subnets(&intent.realm, prefixes(), *except),
            (CatalogCheck::Create, None) => Ok(()),
        }
    }

    fn intend(&mut self, ask: Intend) {
        match self.check(&ask) {
            Ok(()) => {
                self.next_intent += 1;
                let id = IntentId(self.next_intent);
                self.catalog.intend(id, ask.intent);
                // If nobody waits for it any more, it gives itself back.
                let _ = ask.decided.send(Ok(NotedIntent { shared: Arc::clone(&self.shared), intent: Some(id) }));
            }
            Err(refusal) => self.block(ask, refusal),
        }
    }

    /// Refuses, unless an intent is in the way that may come to nothing: what else is under way changes nothing about it.
    fn block(&mut self, ask: Intend, refusal: Refusal) {
        let behind: HashSet<IntentId> = self.catalog.in_the_way(&ask.intent).collect();
        if behind.is_empty() {
            // Who asked may be gone.
            let _ = ask.decided.send(Err(refusal));
        } else {
            self.blocked.push(Blocked { behind, ask });
        }
    }

    fn intent_ended(&mut self, id: IntentId) {
        for mut blocked in std::mem::take(&mut self.blocked) {
            let was_in_the_way = blocked.behind.remove(&id);
            if was_in_the_way && (blocked.behind.is_empty() || self.check(&blocked.ask).is_ok()) {
                // What stands in the way now may have been asked for before this one, and come to nothing as well.
                self.intend(blocked.ask);
            } else {
                self.blocked.push(blocked);
            }
        }
    }

    /// Lists it so, but not where it is gone by now.
    fn publish(&mut self, standing: &DurableNetwork) {
        let config = &standing.config;
        let Some(route) = self.shared.routes.by_id(config.id) else { return };
        self.catalog.put(listing_of(config, &standing.subnets));
        let name = (!config.closed).then(|| config.name.clone());
        if route.name != name {
            self.shared.routes.publish(Route {
                id: route.id,
                name,
                realm: route.realm.clone(),
                addr: route.addr.clone(),
                lane: Arc::clone(&route.lane),
                permits: Arc::clone(&route.permits),
                published: Arc::clone(&route.published),
            });
        }
    }

    fn remove(&mut self, id: NetworkId) {
        self.catalog.remove(id);
        self.shared.routes.withdraw(id);
    }

    fn is_current(&self, route: &Route) -> bool {
        self.shared.routes.by_id(route.id).is_some_and(|present| present.addr == route.addr)
    }

    fn answer(&self, question: &CatalogQuestion) -> CatalogAnswer {
        match question {
            CatalogQuestion::Holding(realm, address) => CatalogAnswer::Networks(
                self.catalog
                    .holding(realm.as_ref(), Range::single(*address))
                    .into_iter()
                    .chain(self.shared.recorded.holding(realm.as_ref(), *address))
                    .filter_map(|id| self.catalog.get(id))
                    .map(|listing| Arc::new(listing.clone()))
                    .collect(),
            ),
            CatalogQuestion::Page { since, from, limit } => {
                let line = self.shared.tenure as u64;
                match since.map_or_else(|| Some(self.catalog.naming(line)), |since| self.catalog.goes_on(line, since)) {
                    Some(naming) => {
                        CatalogAnswer::Page(naming, self.catalog.page(naming.changes, from.as_ref(), *limit))
                    }
                    None => CatalogAnswer::Forgotten,
                }
            }
            CatalogQuestion::Realms => {
                let mut counts: BTreeMap<Name, u64> = self.catalog.realms().map(|realm| (realm.clone(), 0)).collect();
                for listing in self.catalog.networks_after(None).filter(|listing| !listing.closed) {
                    *counts.entry(listing.realm.clone()).or_default() += 1;
                }
                CatalogAnswer::Realms(counts.into_iter().collect())
            }
        }
    }
}

impl Actor for Directory {
    type Context = Context<Self>;
}

impl Drop for Directory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.fatal(super::Fatal("the directory crashed".to_owned()));
        }
    }
}

impl Handler<Lock> for Directory {
    type Result = ();
    fn handle(&mut self, lock: Lock, _: &mut Context<Self>) {
        self.waiting.push_back(lock);
        self.grant_locks();
    }
}

impl Handler<Unlock> for Directory {
    type Result = ();
    fn handle(&mut self, unlock: Unlock, _: &mut Context<Self>) {
        for id in &unlock.networks {
            self.locked.remove(id);
        }
        self.grant_locks();
    }
}

impl Handler<Abandon> for Directory {
    type Result = ();
    fn handle(&mut self, Abandon { intent }: Abandon, _: &mut Context<Self>) {
        self.catalog.abandon(intent);
        self.intent_ended(intent);
    }
}

impl Handler<Intend> for Directory {
    type Result = ();
    fn handle(&mut self, ask: Intend, _: &mut Context<Self>) {
        if let Some(before) = &self.shared.hooks.before_intent {
            before(&ask.intent);
        }
        self.intend(ask);
    }
}

impl Handler<SettleAct> for Directory {
    type Result = ();
    fn handle(&mut self, settle: SettleAct, _: &mut Context<Self>) {
        let SettleAct { intent, standing, created, done } = settle;
        let id = standing.config.id;
        // It may have been read before it was gone, and that is told already.
        let is_there = created.is_some() || self.shared.routes.by_id(id).is_some();
        match intent {
            Some(intent) if is_there => {
                self.catalog.settle(intent, listing_of(&standing.config, &standing.subnets));
            }
            Some(intent) => self.catalog.abandon(intent),
            None => {}
        }
        match created {
            Some(floor) if self.shared.routes.by_id(id).is_none() => {
                let (config, subnets) = (Arc::clone(&standing.config), standing.subnets.clone());
                match Network::load(config, subnets, Vec::new(), floor, ShardTime(0)) {
                    Ok(network) => {
                        let lane = Arc::new(Lane::new(id, self.shared.shard_of(id)));
                        let route = self.shared.start_network(network, lane, Arc::new(Published::default()));
                        self.shared.routes.publish(route);
                        self.catalog.put(listing_of(&standing.config, &standing.subnets));
                    }
                    Err(misfit) => {
                        tracing::error!(network = %id, problem = misfit.to_string(), "a new network cannot be served")
                    }
                }
            }
            Some(_) | None => self.publish(&standing),
        }
        if let Some(intent) = intent {
            self.intent_ended(intent);
        }
        // Who asked may be gone.
        let _ = done.send(());
    }
}

impl Handler<Gone> for Directory {
    type Result = ();
    fn handle(&mut self, gone: Gone, _: &mut Context<Self>) {
        self.remove(gone.id);
    }
}

impl Handler<MovedSubnet> for Directory {
    type Result = ();
    fn handle(&mut self, MovedSubnet { subnet, from, to }: MovedSubnet, _: &mut Context<Self>) {
        self.catalog.moved(subnet, from, to);
    }
}

impl Handler<Reloaded> for Directory {
    type Result = ();
    fn handle(&mut self, reloaded: Reloaded, _: &mut Context<Self>) {
        let Reloaded { config, subnets } = reloaded;
        self.publish(&DurableNetwork { config, subnets });
    }
}

impl Handler<Dead> for Directory {
    type Result = ();
    fn handle(&mut self, dead: Dead, ctx: &mut Context<Self>) {
        if self.is_current(&dead.route) {
            self.restart(&dead.route, ctx);
        }
    }
}

impl Handler<Retire> for Directory {
    type Result = ();
    fn handle(&mut self, _: Retire, ctx: &mut Context<Self>) {
        // Here, where networks are started: none is forgotten.
        for route in self.shared.routes.all() {
            // A closed mailbox is an actor that ended before.
            let _ = route.addr.try_send(super::network::Retire);
        }
        ctx.stop();
    }
}

impl Handler<AskCatalog> for Directory {
    type Result = ();
    fn handle(&mut self, ask: AskCatalog, _: &mut Context<Self>) {
        // Who asked may be gone.
        let _ = ask.told.send(self.answer(&ask.question));
    }
}
