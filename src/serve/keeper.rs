//! Keeps the node's role: starts the actors when it becomes the owner of the register, and ends them when it no longer is.
//!
//! A *tenure* is a period in which this node owns the register. It begins when every shard is taken and loaded. It ends with
//! the process, when the store says that somebody else took over, or when the lease was not renewed for so long that
//! somebody else may have. Actors live for one tenure; their memory is worth nothing after it.
//!
//! ```text
//!           ┌────────── another node owns it ──▶ follows it ──┐
//! contends ─┤                                                 ├─▶ contends again, about twice a second
//!           ├────────── the store cannot be reached ──▶ waits ┘
//!           └─ taken and loaded ──▶ owns ── fenced, lapsed, failed ──▶ ends its actors, contends again
//! ```
//!
//! A store that failed for good ends the process too: see [`StoreHealth::Failed`].
//!
//! A tenure that is given away in order ends differently: see `handover`. Orders to the node itself, and its conduct while
//! it is out of service, are in `draining`; its first role is in `beginning`, and what it does while another node or none
//! owns the register in `following`.
//!
//! If holding the store open is itself the proof of ownership (files of this machine), there is only one tenure: what ends
//! it ends the process.
//!
//! Several nodes do not contend in step, and a node that was replaced lets the others try first for two leases (R-13): what
//! made it late once may do so again. `company` decides whether it may be beside the others at all, `apart` whether they
//! reach it.
//!
//! Leases decide who may try (see `lease`); tokens decide who may write (R-13).
//!
//! Review notes: is the role changed before the actors end, so that nothing new reaches them?

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use compact_str::CompactString;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Ended;
use super::anew::Emptied;
use super::apart::Reach;
use super::contention::{barred, contends_in};
use super::late;
use super::lease::{LAPSED, Lost, has_lapsed, keep_lease, let_go, renew_while_loading};
use super::meeting::{MEETS_EVERY, meet_others, node};
use super::networks::make_later;
use super::peers::Peers;
use super::unspoken::Unable;
use super::warm::Warm;
use crate::actors::self_check;
use crate::actors::service::{self, CannotOwn, Hooks, Parts, RegisterMemory, Shared, Unloadable};
use crate::actors::standby::Standby;
use crate::actors::{Fatal, NotReadyReason, outlet};
use crate::core::command::NetworkInput;
use crate::limits::{NODE_LEASE_MS, NODE_LEASE_RENEWED_EVERY_MS};
use crate::peer::link::Link;
use crate::server::Server;
use crate::server::role::Role;
use crate::server::steward::NodeOrder;
use crate::store::chapters::Chapters;
use crate::store::{NodeCard, Store, StoreHealth, chain};

const LEASE: Duration = Duration::from_millis(NODE_LEASE_MS);

/// Fatal problems of the actors of a tenure. The keeper hears them also while it carries out an order.
type Fatals = tokio::sync::Mutex<mpsc::UnboundedReceiver<Fatal>>;

/// The next order; pending for ever once nobody can give one any more.
pub(super) async fn next_order(orders: &mut mpsc::Receiver<NodeOrder>) -> NodeOrder {
    match orders.recv().await {
        Some(order) => order,
        None => std::future::pending().await,
    }
}

/// Makes a node own the register, or know who does.
pub struct Keeper {
    pub(super) server: Arc<Server>,
    pub(super) store: Arc<dyn Store>,
    hooks: Hooks,
    /// How often the served state is compared with the stored one.
    pub(super) self_check: Option<Duration>,
    /// Links to other nodes; none if this node cannot ask them.
    pub(super) peers: Option<Peers>,
    /// Location of the register, for people.
    pub(super) place: String,
    /// The index of the history, shared by all tenures.
    chapters: Arc<Chapters>,
    /// Orders to this node itself.
    pub(super) orders: mpsc::Receiver<NodeOrder>,
    /// How the others know this node.
    pub(super) card: NodeCard,
    /// The actors of the present tenure, if there is one.
    pub(super) tenure: Option<Arc<Shared>>,
    fatals: Rc<Fatals>,
    /// Boot time just before the last successful renewal was sent.
    renewed_ms: Rc<Cell<u64>>,
    /// Boot time since which nobody has owned the register, as this node saw while it let others go first.
    pub(super) ownerless_ms: Option<u64>,
    /// Boot time until which it keeps the register although it is out of service, because giving it away failed.
    pub(super) keeps_until_ms: u64,
    /// The register in memory, while its owner is about to give it to this node.
    pub(super) warm: Option<Warm>,
    /// The node that is giving the register to a third one, while requests are held here for that.
    pub(super) giver: Option<CompactString>,
    /// The link to a node that the store names as the owner, but that has not yet said so itself.
    pub(super) unheard: Option<Arc<Link>>,
    /// A tenure ended, and it is not known yet whether another node has the register.
    pub(super) was_fenced: bool,
    /// The register as this node last had it as its owner, while it may be missing from the store.
    memory: Option<RegisterMemory>,
    /// Boot time until which this node lets others go first.
    pub(super) stays_off_ms: u64,
    /// Boot time until which this node does not try again to load the register, and how long it waits for that.
    pub(super) unable_until_ms: u64,
    pub(super) unable_ms: u64,
    /// Which nodes could not load the register when this one let go of it for them.
    pub(super) unable: Unable,
    /// What is left to make of the network file.
    pub(super) networks_left: VecDeque<NetworkInput>,
    /// Whether the register is being written again.
    pub(super) writes_anew: watch::Sender<bool>,
    /// Which nodes this one reaches, while it cannot reach the owner, or others cannot reach it as the owner.
    pub(super) reach: Reach,
    /// The server is stopping, and every request that was read has been answered.
    has_answered_all: bool,
}

/// Why a process cannot go on as before.
pub(super) enum Over {
    /// It cannot go on at all.
    Failed(String),
    /// The store lost everything, of which `String` is the first sign.
    Emptied(Emptied, String),
}

/// What an owner does besides keeping its lease.
enum Act {
    Ordered(NodeOrder),
    GivesAway(String),
    /// This node is out of service, and another one is in service again.
    Leaves,
}

impl Keeper {
    /// For a node that cannot ask others.
    pub fn alone(server: Arc<Server>, store: Arc<dyn Store>, hooks: Hooks) -> Self {
        Self::new(server, store, hooks, None)
    }

    pub(super) fn new(server: Arc<Server>, store: Arc<dyn Store>, hooks: Hooks, peers: Option<Peers>) -> Self {
        let (_, fatals) = outlet();
        let chapters = Arc::new(Chapters::open(store.directory().as_deref(), store.info().register));
        let orders = server.steward.inbox().unwrap_or_else(|| mpsc::channel(1).1);
        let card = NodeCard { name: server.node.clone(), ..NodeCard::default() };
        let renewed_ms = Rc::default();
        Self {
            server,
            store,
            hooks,
            self_check: None,
            peers,
            place: String::new(),
            chapters,
            orders,
            card,
            tenure: None,
            fatals: Rc::new(Fatals::new(fatals)),
            renewed_ms,
            ownerless_ms: None,
            keeps_until_ms: 0,
            warm: None,
            giver: None,
            unheard: None,
            was_fenced: false,
            memory: None,
            stays_off_ms: 0,
            unable_until_ms: 0,
            unable_ms: 0,
            unable: Unable::default(),
            networks_left: VecDeque::new(),
            writes_anew: watch::Sender::new(false),
            reach: Reach::default(),
            has_answered_all: false,
        }
    }

    /// Sets how the others know this node from now on.
    pub(super) fn introduce(&mut self, card: NodeCard) {
        self.card = NodeCard { draining: self.card.draining, ..card };
        self.server.nodes.seen(vec![node(&self.card, 0)]);
        self.store.introduce(self.card.clone());
    }

    /// Tries to own the register. The role shows the result.
    pub(super) async fn contend(&mut self) -> Result<(), CannotOwn> {
        self.contend_with(None).await
    }

    /// Tries to own the register, starting from what is already loaded of it. The role shows the result.
    pub(super) async fn contend_with(&mut self, standby: Option<Standby>) -> Result<(), CannotOwn> {
        let (fatal, fatals) = outlet();
        let renewed_ms = Cell::new(self.server.clock.lease_ms());
        let parts = Parts {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.server.clock),
            metrics: Arc::clone(&self.server.metrics),
            reactors: self.server.reactors.clone(),
            hooks: self.hooks.clone(),
            behind_bytes: self.server.bounds.behind_bytes,
            chapters: Arc::clone(&self.chapters),
            fatal,
            standby,
        };
        let starting = async {
            match barred(&self.server, &*self.store).await {
                Some(cannot) => Err(cannot),
                None => service::start(parts).await,
            }
        };
        // The lease is renewed meanwhile. Otherwise a register that takes longer to load than a lease lasts would be taken
        // away again and again.
        let started = tokio::select! {
            biased;
            started = starting => started,
            never = renew_while_loading(&self.server, &*self.store, &renewed_ms) => match never {},
        };
        match started {
            Ok(shared) => {
                self.fatals = Rc::new(Fatals::new(fatals));
                self.tenure = Some(Arc::clone(&shared));
                // Together with the tenure: a stop may come before this node serves, and relies on the lease, too.
                self.renewed_ms.set(renewed_ms.get());
                let renewed_ms = Rc::clone(&self.renewed_ms);
                let has_lapsed = || has_lapsed(&self.server, &*self.store, &renewed_ms);
                if !has_lapsed() {
                    tokio::select! {
                        biased;
                        () = late::bring_first(&self.server, &*self.store, &shared) => {}
                        never = renew_while_loading(&self.server, &*self.store, &renewed_ms) => match never {},
                    }
                }
                if has_lapsed() {
                    self.end_tenure(&shared, &Lost::to_others(LAPSED.to_owned())).await;
                    return Err(CannotOwn::Overtaken(LAPSED.to_owned()));
                }
                self.server.nodes.out_of_trouble();
                self.unable_ms = 0;
                self.server.metrics.tenures.inc();
                self.server.metrics.owner.set(1);
                shared.serves();
                super::opened::say(&shared, &self.place, &self.server.seat.role());
                self_check::start(&shared, self.hooks.self_check_every.or(self.self_check));
                self.server.seat.become_role(Role::Owner(shared));
                Ok(())
            }
            Err(cannot) => {
                if matches!(cannot, CannotOwn::Unreachable(_)) && self.store.health() == StoreHealth::Hindered {
                    // Nobody held the register, but this node could not begin with it: most likely there are too few
                    // replicas.
                    self.server.nodes.in_trouble(self.store.obstacle(), 2 * LEASE);
                }
                if matches!(cannot, CannotOwn::Damaged(_)) {
                    self.was_unable();
                }
                // Some of the shards may have been taken: the next attempt, by any node, begins from the start.
                let_go(&*self.store).await;
                self.follow(&cannot);
                Err(cannot)
            }
        }
    }

    /// Does something before the node serves. Its lease is renewed meanwhile, and the others continue to see it.
    pub async fn meanwhile<T>(&self, act: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = act => done,
            never = renew_while_loading(&self.server, &*self.store, &self.renewed_ms), if self.tenure.is_some() => {
                match never {}
            }
            never = meet_others(&self.server, &*self.store) => match never {},
        }
    }

    /// Keeps the role until the server is told to stop, or cannot go on.
    pub async fn keep(&mut self, stop: &CancellationToken) -> Ended {
        let (server, store) = (Arc::clone(&self.server), Arc::clone(&self.store));
        let meeting = meet_others(&server, &*store);
        let bringing = late::bring(&server, &*store);
        let making = make_later(&server, std::mem::take(&mut self.networks_left));
        tokio::pin!(meeting, bringing, making);
        loop {
            let step = async {
                match self.tenure.clone() {
                    Some(shared) => self.own(&shared).await,
                    None => self.seek().await,
                }
            };
            let ended = tokio::select! {
                biased;
                () = stop.cancelled() => return Ended::Stopped,
                ended = step => ended,
                never = &mut meeting => match never {},
                never = &mut bringing => match never {},
                never = &mut making => match never {},
            };
            match ended {
                None => {}
                Some(Over::Failed(problem)) => return Ended::Failed(problem),
                // Even if the process is told to stop meanwhile.
                Some(Over::Emptied(emptied, problem)) => return self.write_anew(emptied, problem, stop).await,
            }
        }
    }

    /// Owns the register until its tenure ends. Returns why the process cannot go on, if it cannot.
    async fn own(&mut self, shared: &Arc<Shared>) -> Option<Over> {
        let (server, store, renewed_ms) =
            (Arc::clone(&self.server), Arc::clone(&self.store), Rc::clone(&self.renewed_ms));
        // One future for the whole tenure, which runs beside the orders, too: however many come, each renewal is heard.
        let lease = keep_lease(&server, &*store, &renewed_ms);
        tokio::pin!(lease);
        let fatals = Rc::clone(&self.fatals);
        let mut fatals = fatals.lock().await;
        let lost = loop {
            tokio::select! {
                biased;
                Some(Fatal(problem)) = fatals.recv() => break Lost::to_others(problem),
                lost = &mut lease => break lost,
                act = self.asked() => {
                    let was_draining = self.card.draining;
                    let broken_off = tokio::select! {
                        biased;
                        () = self.act(act, shared) => None,
                        Some(Fatal(problem)) = fatals.recv() => Some(Lost::to_others(problem)),
                        lost = &mut lease => Some(lost),
                    };
                    if let Some(lost) = broken_off {
                        // The order was not answered, so nobody was told that this node is out of service.
                        self.card.draining = was_draining;
                        self.store.introduce(self.card.clone());
                        break lost;
                    }
                    let is_given_away = self.tenure.is_none();
                    if is_given_away {
                        return None;
                    }
                }
            }
        };
        if let Some(emptied) = self.emptied(shared) {
            self.tenure = None;
            return Some(Over::Emptied(emptied, lost.problem));
        }
        if self.store.info().ownership_is_standing || self.failed() {
            return Some(Over::Failed(lost.problem));
        }
        self.end_tenure(shared, &lost).await;
        None
    }

    /// Waits until the owner has something to do.
    async fn asked(&mut self) -> Act {
        loop {
            if let Some(successor) = self.better() {
                return Act::GivesAway(successor);
            }
            if self.may_leave() {
                return Act::Leaves;
            }
            // Often enough to notice when nodes report other links, or go in or out of service.
            if let Ok(order) = tokio::time::timeout(MEETS_EVERY, next_order(&mut self.orders)).await {
                return Act::Ordered(order);
            }
        }
    }

    async fn act(&mut self, act: Act, shared: &Arc<Shared>) {
        match act {
            Act::Ordered(order) => self.ordered(order, Some(shared)).await,
            Act::GivesAway(successor) => self.give_away(shared, &successor).await,
            Act::Leaves => self.leave(shared).await,
        }
    }

    /// Looks again, after a moment, who owns the register, before this node serves. Returns why the process cannot go on, if
    /// it cannot.
    pub(super) async fn look_again(&mut self) -> Option<Over> {
        if self.tenure.is_none() {
            return self.seek().await;
        }
        // Long enough for a renewal of the lease, however soon this is called again.
        self.meanwhile(tokio::time::sleep(Duration::from_millis(2 * NODE_LEASE_RENEWED_EVERY_MS))).await;
        None
    }

    /// One round of a node that does not own the register: tries to own it, or looks who does.
    pub(super) async fn seek(&mut self) -> Option<Over> {
        // Orders do not put the attempt off: a client that sends one after the other could keep the register without an
        // owner.
        let contends_at = Instant::now() + contends_in(self.drawn());
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(contends_at) => break,
                Some(order) = self.orders.recv() => self.ordered(order, None).await,
            }
            if self.tenure.is_some() {
                return None;
            }
        }
        if let Some(unrelated) = self.stranger() {
            return Some(Over::Failed(unrelated.problem));
        }
        // Once the store answers, the copy in memory is not needed.
        if self.memory.is_some() && self.store.holder().await.is_ok() {
            self.memory = None;
        }
        let others_first = self.card.draining || self.stays_off() || self.is_unable();
        // The role shows the result.
        let found = if others_first { self.look().await } else { self.contend().await };
        self.tell_reach();
        if let Some((remembered, problem)) = self.remembered() {
            return Some(Over::Emptied(remembered, problem));
        }
        match found {
            // The store answered, and the copy in memory is soon out of date.
            Ok(()) => (self.was_fenced, self.memory) = (false, None),
            Err(CannotOwn::Unreachable(problem) | CannotOwn::Damaged(Unloadable { problem, .. })) if self.failed() => {
                return Some(Over::Failed(problem));
            }
            Err(cannot @ CannotOwn::Held { .. }) => {
                if self.was_fenced {
                    self.stay_off();
                }
                if self.peers.is_none() {
                    let unrelated = self.stranger_to(&cannot).filter(|unrelated| !unrelated.may_pass);
                    return unrelated.map(|unrelated| Over::Failed(unrelated.problem));
                }
            }
            Err(_) => {}
        }
        None
    }

    /// Whether no other node can have owned the register since this one did. A node with a secret is one of several: another
    /// one may have come, granted and gone while this one reached neither it nor the store.
    pub(super) fn shares_with_nobody(&self) -> bool {
        self.peers.is_none() && self.server.nodes.is_alone()
    }

    /// The register of this tenure, if the store lost all of it.
    pub(super) fn emptied(&self, tenure: &Arc<Shared>) -> Option<Emptied> {
        (self.failed() && self.store.was_emptied()).then(|| Emptied::Owned {
            tenure: Arc::clone(tenure),
            may: self.shares_with_nobody() || !has_lapsed(&self.server, &*self.store, &self.renewed_ms),
        })
    }

    /// The register of the last tenure, if the store lost all of it while it could not be reached, and what happened.
    pub(super) fn remembered(&mut self) -> Option<(Emptied, String)> {
        if !self.shares_with_nobody() {
            self.memory = None;
        }
        let memory = self.memory.take_if(|_| self.store.was_emptied())?;
        Some((Emptied::Remembered(memory), "the store was emptied while it could not be reached".to_owned()))
    }

    /// Whether this node has the register of its last tenure in memory, which may be missing from the store.
    pub(super) fn remembers(&self) -> bool {
        self.memory.is_some()
    }

    /// Whether the store has failed for good. It would accept nothing in the next tenure either: only a new process may
    /// help.
    pub(super) fn failed(&self) -> bool {
        self.store.health() == StoreHealth::Failed
    }

    async fn end_tenure(&mut self, shared: &Arc<Shared>, lost: &Lost) {
        let problem = lost.problem.as_str();
        tracing::error!(problem, "this node no longer owns the register");
        (self.tenure, self.was_fenced) = (None, true);
        self.server.metrics.owner.set(0);
        match &lost.store_away {
            Some(why) => self.wait_for_store(why),
            None => self.wait("another node takes over", NotReadyReason::Moved),
        }
        if lost.store_away.is_some() && self.store.info().may_be_emptied && self.shares_with_nobody() {
            // The store may come back empty, and then this memory is all that is known.
            match shared.recall(problem).await {
                Ok(memory) => self.memory = Some(memory),
                Err(why) => tracing::warn!(why, "what this node had in memory is not remembered"),
            }
        } else {
            shared.retire(problem);
        }
        // If the lease is still this node's, nobody need wait for its end.
        let_go(&*self.store).await;
    }

    /// The server stops: waits at most `within` until everything that was read is answered, and lets the next owner begin at
    /// once. Answers that wait for slow clients delay nobody. If it turns out that the store was emptied, the register is
    /// written again first, and this returns how that ended.
    pub async fn lay_down(&mut self, within: Duration) -> Option<Ended> {
        // Clients whose orders still wait for this node are told that it stops.
        self.orders.close();
        while let Ok(order) = self.orders.try_recv() {
            order.was_not_begun();
        }
        let begun = Instant::now();
        if matches!(*self.server.seat.role(), Role::Between) {
            self.stop_between_owners(within).await;
        }
        self.server.asking.close();
        let (server, store) = (Arc::clone(&self.server), Arc::clone(&self.store));
        let tenure = self.tenure.take();
        let keeps = tenure.is_some() && !self.failed();
        let answered = async {
            server.asking.wait().await;
            if let Some(shared) = &tenure {
                shared.quiet().await;
            }
        };
        let answered = tokio::select! {
            biased;
            ended = tokio::time::timeout_at(begun + within, answered) => ended.is_ok(),
            // What is still under way is answered as lost.
            lost = keep_lease(&server, &*store, &self.renewed_ms), if keeps => {
                if !self.failed() {
                    tracing::warn!(problem = lost.problem, "another node takes over before everything was answered");
                }
                false
            }
        };
        self.has_answered_all = answered;
        if !answered {
            tracing::warn!("stopping with requests under way");
        }
        let rescued = match &tenure {
            Some(shared) => self.rescue(shared).await,
            None => self.rescue_remembered().await,
        };
        if rescued.is_some() {
            return rescued;
        }
        if tenure.is_some() && !self.failed() {
            self.server.metrics.owner.set(0);
            self.wait("stopping", NotReadyReason::Moved);
        }
        // Also without a tenure: the stop may have come in the middle of a take-over.
        if !self.failed() {
            let_go(&*self.store).await;
        }
        None
    }

    /// Tells the others that this node is gone. Returns what became of the last commits.
    pub async fn end(&mut self) -> Ended {
        match tokio::time::timeout(LEASE, self.store.meet(false)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::debug!(error = chain(&error), "the other nodes learn of the end of this one a little later");
            }
            Err(_) => tracing::warn!("the store does not answer: the other nodes learn of the end of this one later"),
        }
        match self.fatals.lock().await.try_recv() {
            // After the last answer, another node's take-over leaves nothing in doubt.
            Ok(Fatal(problem)) if !self.has_answered_all || self.failed() => Ended::Failed(problem),
            Ok(Fatal(_)) | Err(_) => Ended::Stopped,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn who_waits_for_an_order_where_nobody_can_give_one_any_more_waits_and_does_not_ask_again_and_again() {
        let (sender, mut orders) = mpsc::channel(1);
        drop(sender);
        let next = pin!(next_order(&mut orders));
        assert!(next.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}
