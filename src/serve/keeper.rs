//! Keeps the node's role: starts the actors when it owns the register, ends them when it does not any more.
//!
//! A *tenure* is a time in which this node owns the register: it begins with taking and loading every shard, and ends
//! with the process, when the store says that somebody else took over, or when the lease could not be renewed for so long
//! that somebody else may. Actors live for one tenure; their memory is worth nothing after it.
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
//! A tenure that is given away in order does not end so: see `handover`. What the node itself is asked, and what it does
//! while it is out of service, is in `draining`; its first role in `beginning`, and what it is while another node owns the
//! register, or none, in `following`.
//!
//! Where holding the store open is itself the proof of ownership (files of this machine), there is one tenure: what ends
//! it ends the process.
//!
//! Several nodes do not contend in step, and one that was replaced lets the others try first for two leases (R-13): what made it
//! late once may do so again. Whether it may be beside the others at all is in `company`; whether they reach it, in `apart`.
//!
//! Leases decide who may try (see `lease`); tokens decide who may write (R-13).
//!
//! Review notes: is the role changed before the actors end, so that nothing new reaches them?

use std::cell::Cell;
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
use super::peers::Peers;
use super::warm::Warm;
use crate::actors::self_check;
use crate::actors::service::{self, CannotOwn, Hooks, Parts, RegisterMemory, Shared};
use crate::actors::standby::Standby;
use crate::actors::{Fatal, NotReadyReason, outlet};
use crate::limits::{NODE_LEASE_MS, NODE_LEASE_RENEWED_EVERY_MS};
use crate::peer::link::Link;
use crate::server::Server;
use crate::server::role::Role;
use crate::server::steward::NodeOrder;
use crate::store::chapters::Chapters;
use crate::store::{NodeCard, Store, StoreHealth, chain};

const LEASE: Duration = Duration::from_millis(NODE_LEASE_MS);

/// What the actors of a tenure cannot go on from. Heard while the keeper does what it was ordered, too.
type Fatals = tokio::sync::Mutex<mpsc::UnboundedReceiver<Fatal>>;

/// What a node does to own the register, and to know who does.
pub struct Keeper {
    pub(super) server: Arc<Server>,
    pub(super) store: Arc<dyn Store>,
    hooks: Hooks,
    /// How often what is served is compared with what is stored.
    pub(super) self_check: Option<Duration>,
    /// The ways to other nodes; none where this one cannot ask them.
    pub(super) peers: Option<Peers>,
    /// Where the register is, for people.
    pub(super) place: String,
    /// The index of the history: one for all tenures.
    chapters: Arc<Chapters>,
    /// What is asked of this node itself.
    pub(super) orders: mpsc::Receiver<NodeOrder>,
    /// How the others know it.
    pub(super) card: NodeCard,
    /// The actors of the present tenure, and what they cannot go on from.
    pub(super) tenure: Option<Arc<Shared>>,
    fatals: Rc<Fatals>,
    /// Boot time just before the last renewal that succeeded was sent.
    renewed_ms: Rc<Cell<u64>>,
    /// Boot time since which nobody owns the register, as this node saw while it was out of service.
    pub(super) ownerless_ms: Option<u64>,
    /// Boot time until which it keeps the register although it is out of service: it came to nothing to give it away.
    pub(super) keeps_until_ms: u64,
    /// The register in memory, where its owner is about to give it to this node.
    pub(super) warm: Option<Warm>,
    /// Who gives the register to another node than this one, while what is asked here is held for that.
    pub(super) giver: Option<CompactString>,
    /// The way to a node that the store names as the owner, and that has not said yet that it is.
    pub(super) unheard: Option<Arc<Link>>,
    /// Its tenure ended, and it is not known yet whether another node has the register.
    pub(super) was_fenced: bool,
    /// What it had of the register when it owned it last, while that is not known to be in the store.
    memory: Option<RegisterMemory>,
    /// Boot time until which it lets other nodes go first.
    pub(super) stays_off_ms: u64,
    /// The register is written anew just now.
    pub(super) writes_anew: watch::Sender<bool>,
    /// Which nodes it reaches, while it does not reach the owner or is not reached as the owner.
    pub(super) reach: Reach,
    /// It stops, and everything that was read is answered.
    has_answered_all: bool,
}

/// Why a process does not go on as it was.
pub(super) enum Over {
    /// It cannot.
    Failed(String),
    /// The store lost everything, of which this was noticed first.
    Emptied(Emptied, String),
}

/// What an owner does beside keeping its lease.
enum Act {
    Ordered(NodeOrder),
    GivesAway(String),
    /// It is out of service, and another node is in service again.
    Leaves,
}

impl Keeper {
    /// Of a node that cannot ask others.
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
            writes_anew: watch::Sender::new(false),
            reach: Reach::default(),
            has_answered_all: false,
        }
    }

    /// How this node is known to the others from now on.
    pub(super) fn introduce(&mut self, card: NodeCard) {
        self.card = NodeCard { draining: self.card.draining, ..card };
        self.server.nodes.seen(vec![node(&self.card, 0)]);
        self.store.introduce(self.card.clone());
    }

    /// Tries to own the register. The role says what came of it.
    pub(super) async fn contend(&mut self) -> Result<(), CannotOwn> {
        self.contend_with(None).await
    }

    /// Tries to own the register, with what is ready of it. The role says what came of it.
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
        // What takes longer to load than a lease lasts must not be taken away meanwhile, again and again.
        let started = tokio::select! {
            biased;
            started = starting => started,
            never = renew_while_loading(&self.server, &*self.store, &renewed_ms) => match never {},
        };
        match started {
            Ok(shared) => {
                self.fatals = Rc::new(Fatals::new(fatals));
                self.tenure = Some(Arc::clone(&shared));
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
                self.renewed_ms.set(renewed_ms.get());
                self.server.nodes.out_of_trouble();
                self.server.metrics.tenures.inc();
                self.server.metrics.owner.set(1);
                shared.serves();
                super::opened::say(&shared, &self.place);
                self_check::start(&shared, self.hooks.self_check_every.or(self.self_check));
                self.server.seat.become_role(Role::Owner(shared));
                Ok(())
            }
            Err(cannot) => {
                if matches!(cannot, CannotOwn::Unreachable(_)) && self.store.health() == StoreHealth::Hindered {
                    // Nobody held the register, and this node could not begin with it: too few replicas, most likely.
                    self.server.nodes.in_trouble(self.store.obstacle(), 2 * LEASE);
                }
                // Some of the shards may have been taken: the next attempt begins anew, whoever makes it.
                let_go(&*self.store).await;
                self.follow(&cannot);
                Err(cannot)
            }
        }
    }

    /// Does something before the node serves. What it owns is kept meanwhile, and the others go on seeing it.
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

    /// Keeps the role until the server is to stop, or cannot go on.
    pub async fn keep(&mut self, stop: &CancellationToken) -> Ended {
        let (server, store) = (Arc::clone(&self.server), Arc::clone(&self.store));
        let meeting = meet_others(&server, &*store);
        let bringing = late::bring(&server, &*store);
        tokio::pin!(meeting, bringing);
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
            };
            match ended {
                None => {}
                Some(Over::Failed(problem)) => return Ended::Failed(problem),
                // Also where the process is asked to stop meanwhile.
                Some(Over::Emptied(emptied, problem)) => return self.write_anew(emptied, problem, stop).await,
            }
        }
    }

    /// Owns the register until its tenure ends. Answers why the process cannot go on, if it cannot.
    async fn own(&mut self, shared: &Arc<Shared>) -> Option<Over> {
        let (server, store, renewed_ms) =
            (Arc::clone(&self.server), Arc::clone(&self.store), Rc::clone(&self.renewed_ms));
        // One for the whole tenure, beside what is ordered too: however many orders come, each renewal is heard.
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
                        // Nobody was told that it is out of service.
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
        if self.failed() && self.store.was_emptied() {
            self.tenure = None;
            let may = self.shares_with_nobody() || !has_lapsed(&self.server, &*self.store, &self.renewed_ms);
            return Some(Over::Emptied(Emptied::Owned { tenure: Arc::clone(shared), may }, lost.problem));
        }
        if self.store.info().ownership_is_standing || self.failed() {
            return Some(Over::Failed(lost.problem));
        }
        self.end_tenure(shared, &lost).await;
        None
    }

    /// Waits until an owner has something to do.
    async fn asked(&mut self) -> Act {
        loop {
            if let Some(successor) = self.better() {
                return Act::GivesAway(successor);
            }
            if self.may_leave() {
                return Act::Leaves;
            }
            // Often enough that what nodes say of their ways, and of their service, is seen as it changes.
            match tokio::time::timeout(MEETS_EVERY, self.orders.recv()).await {
                Ok(Some(order)) => return Act::Ordered(order),
                Ok(None) => std::future::pending().await,
                Err(_) => {}
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

    /// Looks once more, after a moment, who owns the register, before this node serves. Answers why the process cannot go on, if it
    /// cannot.
    pub(super) async fn look_again(&mut self) -> Option<Over> {
        if self.tenure.is_none() {
            return self.seek().await;
        }
        // So long that its lease is renewed each time, however soon it comes back.
        self.meanwhile(tokio::time::sleep(Duration::from_millis(2 * NODE_LEASE_RENEWED_EVERY_MS))).await;
        None
    }

    /// Does what a node does that does not own the register: tries to, or looks who does.
    pub(super) async fn seek(&mut self) -> Option<Over> {
        // An order does not put it off: who sends one after the other would keep the register from having an owner.
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
        // Whoever has it in the store need not have it in memory, too.
        if self.memory.is_some() && self.store.holder().await.is_ok() {
            self.memory = None;
        }
        let others_first = self.card.draining || self.stays_off();
        // The role says what came of it.
        let found = if others_first { self.look().await } else { self.contend().await };
        self.tell_reach();
        if !self.shares_with_nobody() {
            self.memory = None;
        }
        if self.store.was_emptied()
            && let Some(memory) = self.memory.take()
        {
            let problem = "the store was emptied while it could not be reached".to_owned();
            return Some(Over::Emptied(Emptied::Remembered(memory), problem));
        }
        match found {
            Ok(()) => self.was_fenced = false,
            Err(CannotOwn::Unreachable(problem) | CannotOwn::Damaged(problem)) if self.failed() => {
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

    /// Can no other node have owned the register since this one did? One with a secret is one of several, and another one may
    /// have come, granted and gone while this one reached neither it nor the store.
    pub(super) fn shares_with_nobody(&self) -> bool {
        self.peers.is_none() && self.server.nodes.is_alone()
    }

    /// A store that takes nothing any more takes nothing in the next tenure either: only a new process may help.
    fn failed(&self) -> bool {
        self.store.health() == StoreHealth::Failed
    }

    async fn end_tenure(&mut self, shared: &Arc<Shared>, lost: &Lost) {
        let problem = lost.problem.as_str();
        tracing::error!(problem, "this node owns the register no more");
        (self.tenure, self.was_fenced) = (None, true);
        self.server.metrics.owner.set(0);
        match &lost.store_away {
            Some(why) => self.wait_for_store(why),
            None => self.wait("another node takes over", NotReadyReason::Moved),
        }
        if lost.store_away.is_some() && self.store.info().may_be_emptied && self.shares_with_nobody() {
            // It may come back without anything, and then this is all that is known.
            match shared.recall(problem).await {
                Ok(memory) => self.memory = Some(memory),
                Err(why) => tracing::warn!(why, "what this node had in memory is not remembered"),
            }
        } else {
            shared.retire(problem);
        }
        // Where it is still this node's, nobody need wait for the end of the lease.
        let_go(&*self.store).await;
    }

    /// The server stops: waits until everything that was read is answered, at most so long, and lets the next owner begin
    /// at once. Answers that wait for their clients to take them hold nobody up. Tells whether everything was answered.
    pub async fn lay_down(&mut self, within: Duration) -> bool {
        // What waits for the node itself is told that nothing comes of it.
        self.orders.close();
        while self.orders.try_recv().is_ok() {}
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
            // Whatever is still under way is answered as what was lost.
            lost = keep_lease(&server, &*store, &self.renewed_ms), if keeps => {
                tracing::warn!(problem = lost.problem, "another node takes over before everything was answered");
                false
            }
        };
        self.has_answered_all = answered;
        if tenure.is_some() && !self.failed() {
            self.server.metrics.owner.set(0);
            self.wait("stopping", NotReadyReason::Moved);
        }
        // Without a tenure, too: the stop may have come in the midst of a take-over.
        if !self.failed() {
            let_go(&*self.store).await;
        }
        answered
    }

    /// The others learn that this node is gone; tells what became of the last commits.
    pub async fn end(&mut self) -> Ended {
        match tokio::time::timeout(LEASE, self.store.meet(false)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::debug!(error = chain(&error), "the other nodes learn of the end of this one a little later");
            }
            Err(_) => tracing::warn!("the store does not answer: the other nodes learn of the end of this one later"),
        }
        match self.fatals.lock().await.try_recv() {
            // Behind the last answer there is nothing that another node's take-over could leave in doubt.
            Ok(Fatal(problem)) if !self.has_answered_all || self.failed() => Ended::Failed(problem),
            Ok(Fatal(_)) | Err(_) => Ended::Stopped,
        }
    }
}
