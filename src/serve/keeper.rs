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
//! while it is out of service, is in `draining`.
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

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Ended;
use super::apart::Reach;
use super::cannot::CannotBegin;
use super::contention::contends_in;
use super::late;
use super::lease::{LAPSED, Lost, has_lapsed, keep_lease, let_go, renew_while_loading};
use super::meeting::{MEETS_EVERY, meet, meet_others, node};
use super::peers::Peers;
use super::warm::Warm;
use crate::actors::committer::chain;
use crate::actors::service::{self, CannotOwn, Hooks, Parts, Shared};
use crate::actors::standby::Standby;
use crate::actors::{Fatal, Fault, NotReadyReason, outlet};
use crate::limits::NODE_LEASE_MS;
use crate::peer::link::{Link, LinkState};
use crate::server::Server;
use crate::server::role::Role;
use crate::server::steward::NodeOrder;
use crate::store::chapters::Chapters;
use crate::store::{NodeCard, Store, StoreError, StoreHealth};

/// How long a node that starts looks for a way to the owner, or waits for replicas of the store.
const FIRST_WAY_MS: u64 = 3 * NODE_LEASE_MS;
const LEASE: Duration = Duration::from_millis(NODE_LEASE_MS);
/// After so long nobody remembers a node that was killed: the next one may have its name.
const FORGOTTEN_AFTER_MS: u64 = NODE_LEASE_MS + 2_000;

/// What the actors of a tenure cannot go on from. Heard while the keeper does what it was ordered, too.
type Fatals = tokio::sync::Mutex<mpsc::UnboundedReceiver<Fatal>>;

/// What a node does to own the register, and to know who does.
pub struct Keeper {
    pub(super) server: Arc<Server>,
    pub(super) store: Arc<dyn Store>,
    hooks: Hooks,
    /// The ways to other nodes; none where this one cannot ask them.
    pub(super) peers: Option<Peers>,
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
    /// The register in memory, where its owner is about to give it to this node.
    pub(super) warm: Option<Warm>,
    /// The way to a node that the store names as the owner, and that has not said yet that it is.
    unheard: Option<Arc<Link>>,
    /// Its tenure ended, and it is not known yet whether another node has the register.
    pub(super) was_fenced: bool,
    /// Boot time until which it lets other nodes go first.
    pub(super) stays_off_ms: u64,
    /// Which nodes it reaches, while it does not reach the owner or is not reached as the owner.
    pub(super) reach: Reach,
    /// It stops, and everything that was read is answered.
    has_answered_all: bool,
}

/// What an owner does beside keeping its lease.
enum Act {
    Ordered(NodeOrder),
    GivesAway(String),
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
            peers,
            chapters,
            orders,
            card,
            tenure: None,
            fatals: Rc::new(Fatals::new(fatals)),
            renewed_ms,
            ownerless_ms: None,
            warm: None,
            unheard: None,
            was_fenced: false,
            stays_off_ms: 0,
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

    /// Finds the node's first role.
    ///
    /// # Errors
    /// A sentence that says what cannot be loaded, and why.
    pub async fn begin(&mut self) -> Result<(), CannotBegin> {
        self.appear().await?;
        let found = self.first_role().await;
        if found.is_err() {
            // The next start under its name need not wait until nobody remembers this one.
            self.end().await;
        }
        found
    }

    async fn first_role(&mut self) -> Result<(), CannotBegin> {
        let (clock, begun) = (Arc::clone(&self.server.clock), self.server.clock.lease_ms());
        let is_late = || clock.lease_ms().saturating_sub(begun) > FIRST_WAY_MS;
        loop {
            if let Some(unrelated) = self.stranger() {
                return Err(unrelated.into());
            }
            let passes = match self.contend().await {
                Ok(()) => return Ok(()),
                Err(cannot @ CannotOwn::Held { .. }) => match self.stranger_to(&cannot) {
                    Some(unrelated) if !unrelated.may_pass => return Err(unrelated.into()),
                    // Its lease may be all that is left of it.
                    Some(unrelated) => Some(unrelated.into()),
                    None if matches!(&*self.server.seat.role(), Role::Follower { .. }) => None,
                    None => Some(CannotBegin::Now(match self.server.nodes.trouble() {
                        Some(why) => why.to_string(),
                        None => "the process before this one owns the register still".to_owned(),
                    })),
                },
                // Who it was is known at the next attempt.
                Err(CannotOwn::Overtaken(problem)) => Some(CannotBegin::Now(problem)),
                // Redis is there, and its replicas are not yet: one that has just come answers some seconds later.
                Err(CannotOwn::Unreachable(problem)) if self.store.health() == StoreHealth::Hindered => {
                    Some(CannotBegin::Now(problem))
                }
                Err(CannotOwn::Unreachable(problem)) => return Err(CannotBegin::Now(problem)),
                Err(CannotOwn::Damaged(problem)) => return Err(CannotBegin::AsItIs(problem)),
            };
            if let Some(cannot) = passes {
                if is_late() {
                    return Err(cannot);
                }
                tokio::time::sleep(contends_in(self.drawn())).await;
                continue;
            }
            let Role::Follower { link, .. } = &*self.server.seat.role() else { return Ok(()) };
            // Ready is a node that can answer. An owner that is not reached may be dead, and is followed by another one.
            if link.connected(contends_in(self.drawn())).await {
                return Ok(());
            }
            if is_late() {
                let state = link.state();
                return Err(CannotBegin::Now(match &*state.borrow() {
                    LinkState::Connecting(Some(problem)) => problem.clone(),
                    LinkState::Connecting(None) | LinkState::Connected(_) => {
                        "the node that owns the register is not reached".to_owned()
                    }
                }));
            }
        }
    }

    /// Tells the others that this node is here. A process of its name that was seen a moment ago may be the one before
    /// this one, which crashed: then it is not seen again.
    async fn appear(&self) -> Result<(), CannotBegin> {
        let begun = self.server.clock.lease_ms();
        loop {
            match meet(&self.server, &*self.store).await {
                Ok(()) => return Ok(()),
                Err(error @ StoreError::Locked(_)) => {
                    if self.server.clock.lease_ms().saturating_sub(begun) > FORGOTTEN_AFTER_MS {
                        return Err(error.into());
                    }
                    tracing::warn!(error = chain(&error), "waiting: it may be the one before this, which crashed");
                }
                // In a moment it is known. A process that ended meanwhile, and was started again, would begin to wait anew, and
                // keep the register for whoever it waits for all the while.
                Err(error)
                    if self.store.health() == StoreHealth::Hindered
                        && self.server.clock.lease_ms().saturating_sub(begun) <= FIRST_WAY_MS =>
                {
                    tracing::warn!(error = chain(&error), "waiting");
                }
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(MEETS_EVERY).await;
        }
    }

    /// Tries to own the register. The role says what came of it.
    async fn contend(&mut self) -> Result<(), CannotOwn> {
        self.contend_with(None).await
    }

    /// Tries to own the register, with what is ready of it. The role says what came of it.
    pub(super) async fn contend_with(&mut self, standby: Option<Standby>) -> Result<(), CannotOwn> {
        let (fatal, fatals) = outlet();
        let renewed_ms = Cell::new(self.server.clock.lease_ms());
        let starting = service::start(Parts {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.server.clock),
            metrics: Arc::clone(&self.server.metrics),
            reactors: self.server.reactors.clone(),
            hooks: self.hooks.clone(),
            behind_bytes: self.server.bounds.behind_bytes,
            chapters: Arc::clone(&self.chapters),
            fatal,
            standby,
        });
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

    /// This node does not own the register: who does?
    pub(super) fn follow(&mut self, cannot: &CannotOwn) {
        let role = self.server.seat.role();
        if let CannotOwn::Held { address, .. } = cannot {
            if self.is_no_better_off(address) {
                return;
            }
            // The store said so.
            self.server.nodes.out_of_trouble();
        }
        let why = match (cannot, &self.peers) {
            (CannotOwn::Held { owner, address, .. }, Some(peers)) if !address.is_empty() => {
                if !matches!(&*role, Role::Follower { address: present, .. } if present == address) {
                    let (owner, address) = (Arc::clone(owner), Arc::clone(address));
                    let link = peers.link(&address);
                    self.server.seat.become_role(Role::Follower { owner, address, link });
                }
                return;
            }
            // Redis is not reached, but the owner is: it knows better.
            (CannotOwn::Overtaken(_) | CannotOwn::Unreachable(_) | CannotOwn::Damaged(_), _) if is_led(&role) => {
                return;
            }
            (CannotOwn::Held { .. }, Some(_)) => "another node owns the register, and it has no secret",
            (CannotOwn::Held { .. }, None) => "another node owns the register, and this one has no secret",
            (CannotOwn::Overtaken(_), _) => "another node took the register over while this one did",
            (CannotOwn::Unreachable(problem), _) => return self.wait_for_store(problem),
            (CannotOwn::Damaged(_), _) => "what is stored cannot be loaded",
        };
        if !matches!(&*role, Role::Waiting { why: present, .. } if *present == why) {
            tracing::warn!(?cannot, "this node does not own the register");
            self.wait(why, NotReadyReason::NoOwner);
        }
    }

    /// Too few replicas let this node begin with the register, and whoever the store names now may only be trying as this one
    /// did: two would follow each other, and each name the other one as the owner. So it is followed when it says that it is.
    fn is_no_better_off(&mut self, address: &Arc<str>) -> bool {
        let way = self.peers.as_ref().filter(|_| !address.is_empty()).map(|peers| peers.link(address));
        let owns = way.as_ref().is_some_and(|way| way.standing().is_some_and(|standing| standing.owns));
        // Kept, or it would never be heard.
        self.unheard = way.filter(|_| self.server.nodes.tried_in_vain() && !owns);
        self.unheard.is_some()
    }

    pub(super) fn wait(&self, why: &'static str, reason: NotReadyReason) {
        let fault = Fault::NotReady { reason, retry_after_ms: 500 };
        self.server.seat.become_role(Role::Waiting { why, fault });
    }

    /// Nobody serves, as far as this node knows, because it does not reach the store. Clients are told what stands in the
    /// way, also where its words change; the log has them once.
    fn wait_for_store(&self, problem: &str) {
        let why = "the store cannot be reached";
        let fault = Fault::StoreAway { problem: problem.to_owned() };
        match &*self.server.seat.role() {
            Role::Waiting { fault: present, .. } if *present == fault => {}
            Role::Waiting { why: present, .. } if *present == why => {
                self.server.seat.become_same(Arc::new(Role::Waiting { why, fault }));
            }
            _ => {
                tracing::warn!(problem, "this node does not own the register: the store cannot be reached");
                self.server.seat.become_role(Role::Waiting { why, fault });
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
            let failed = tokio::select! {
                biased;
                () = stop.cancelled() => return Ended::Stopped,
                failed = step => failed,
                never = &mut meeting => match never {},
                never = &mut bringing => match never {},
            };
            if let Some(problem) = failed {
                return Ended::Failed(problem);
            }
        }
    }

    /// Owns the register until its tenure ends. Answers why the process cannot go on, if it cannot.
    async fn own(&mut self, shared: &Arc<Shared>) -> Option<String> {
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
        if self.store.info().ownership_is_standing || self.failed() {
            return Some(lost.problem);
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
            // Often enough that what nodes say of their ways is seen as it changes.
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
        }
    }

    /// Does what a node does that does not own the register: tries to, or looks who does.
    async fn seek(&mut self) -> Option<String> {
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
            return Some(unrelated.problem);
        }
        let others_first = self.card.draining || self.stays_off();
        // The role says what came of it.
        let found = if others_first { self.look().await } else { self.contend().await };
        self.tell_reach();
        match found {
            Ok(()) => self.was_fenced = false,
            Err(CannotOwn::Unreachable(problem) | CannotOwn::Damaged(problem)) if self.failed() => {
                return Some(problem);
            }
            Err(cannot @ CannotOwn::Held { .. }) => {
                if self.was_fenced {
                    self.stay_off();
                }
                if self.peers.is_none() {
                    let unrelated = self.stranger_to(&cannot).filter(|unrelated| !unrelated.may_pass);
                    return unrelated.map(|unrelated| unrelated.problem);
                }
            }
            Err(_) => {}
        }
        None
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
        shared.retire(problem);
        // Where it is still this node's, nobody need wait for the end of the lease.
        let_go(&*self.store).await;
    }

    /// The server stops: waits until everything that was read is answered, at most so long, and lets the next owner begin
    /// at once. Answers that wait for their clients to take them hold nobody up. Tells whether everything was answered.
    pub async fn lay_down(&mut self, within: Duration) -> bool {
        // What waits for the node itself is told that nothing comes of it.
        self.orders.close();
        while self.orders.try_recv().is_ok() {}
        if matches!(*self.server.seat.role(), Role::Between) {
            // The stop came while the register was on its way: what was not given away is served to the end here.
            match &self.tenure {
                Some(shared) => self.server.seat.become_role(Role::Owner(Arc::clone(shared))),
                None => self.wait("stopping", NotReadyReason::Moved),
            }
        }
        self.server.asking.close();
        let (server, store) = (Arc::clone(&self.server), Arc::clone(&self.store));
        let tenure = self.tenure.take();
        let answered = async {
            server.asking.wait().await;
            if let Some(shared) = &tenure {
                shared.quiet().await;
            }
        };
        let answered = tokio::select! {
            biased;
            ended = tokio::time::timeout(within, answered) => ended.is_ok(),
            // Whatever is still under way is answered as what was lost.
            lost = keep_lease(&server, &*store, &self.renewed_ms), if tenure.is_some() => {
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

/// Is there a way to the node that is followed, and does that not say that it owns nothing?
fn is_led(role: &Role) -> bool {
    matches!(role, Role::Follower { link, .. } if link.is_connected() && !link.is_of_no_owner())
}
