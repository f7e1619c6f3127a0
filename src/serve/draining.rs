//! Orders to this node itself: to go out of service in an orderly way, or back into it; and its part when another node does.
//!
//! Out of service (`cluster.drain`), a node hands over the register if it owns it, forwards its requests, and does not own
//! the register again while another node can. It takes it only if no other node will, and gives away a register that it had
//! to take as soon as another node is in service. It is back in service when it is told so, or when it restarts.
//!
//! Neighbours: `keeper` passes orders to it; `handover` does what involves several nodes, and `unspoken` what is left where they
//! cannot talk to each other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use compact_str::CompactString;
use tokio::time::timeout;

use super::handover::{self, Handover, Unhanded, guarded};
use super::keeper::Keeper;
use super::meeting::meet;
use super::warm::Warm;
use crate::actors::coordinator::{Job, Order};
use crate::actors::nodes::{NodeJob, NodeStanding};
use crate::actors::service::{CannotOwn, Shared};
use crate::actors::{Applied, Fault, NotReadyReason};
use crate::core::refusal::{Missing, Refusal};
use crate::limits::{HANDOVER_HOLD_MS, HANDOVER_PREPARE_MS, HANDOVER_TOLD_MS, NODE_LEASE_MS, PEER_HANDSHAKE_MS};
use crate::peer::link::Link;
use crate::server::cluster::Node;
use crate::server::steward::NodeOrder;
use crate::store::{Holder, chain};

/// A node counts as present if it was seen within this time.
const SEEN_WITHIN_MS: u64 = 3_000;
/// How long an owner that is out of service keeps the register after a failed attempt to give it away.
const KEEPS_FOR_MS: u64 = 60_000;
/// How long to search for a node that was not seen yet.
const LOOKS_FOR: Duration = Duration::from_millis(HANDOVER_TOLD_MS);

fn is_in_service(node: &Node) -> bool {
    node.age_ms <= SEEN_WITHIN_MS && !node.draining
}

impl Keeper {
    /// Out of service, a node follows the owner of the register. It owns the register itself only if no other node can, or
    /// if none does although it could.
    pub(super) async fn look(&mut self) -> Result<(), CannotOwn> {
        let now_ms = self.server.clock.lease_ms();
        // A node that contends reviews this on its way.
        if let Err(error) = self.store.review().await {
            tracing::debug!(error = chain(&error), "it is not known whether all that was acknowledged is there");
        }
        let cannot = match self.store.holder().await {
            Ok(Some(holder)) if *holder.name != *self.server.node => {
                self.ownerless_ms = None;
                CannotOwn::Held { owner: holder.name, address: holder.address, left_ms: 0 }
            }
            Ok(_) => {
                let since_ms = *self.ownerless_ms.get_or_insert(now_ms);
                if self.is_unable() {
                    return Ok(());
                }
                if !self.another_can() || now_ms.saturating_sub(since_ms) > NODE_LEASE_MS {
                    return self.contend_with(None).await;
                }
                return Ok(());
            }
            Err(error) => CannotOwn::Unreachable(chain(&error)),
        };
        self.follow(&cannot);
        Err(cannot)
    }

    /// Whether this node is out of service, owns the register only because no other node could, and another one can now. It
    /// is about to be stopped or inspected: the operator who took it out of service was told that this is safe.
    pub(super) fn may_leave(&self) -> bool {
        // A node publishes the address for its clients once it is up. Of those that are up and not ready, as they cannot talk to
        // this one, none is given the register (`unspoken`); this node says so, and asks again after a while.
        let can = |node: &Node| {
            node.is_reachable_beside(&self.server.node) && !node.address.is_empty() && is_in_service(node)
        };
        self.card.draining
            && self.server.nodes.all().iter().any(can)
            && self.server.clock.lease_ms() >= self.keeps_until_ms
    }

    /// Hands the register over to a node that is in service.
    pub(super) async fn leave(&mut self, shared: &Arc<Shared>) {
        tracing::info!("this node is out of service and another one is in service: it hands over the register");
        match self.hand_over(shared, None).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(Unhanded::Barred(fault) | Unhanded::Kept(fault) | Unhanded::Unspoken(fault)) => {
                tracing::warn!(problem = fault.problem(), "it keeps the register for now");
            }
            Err(Unhanded::Orphaned(fault)) => tracing::warn!(problem = fault.problem(), "nobody has taken it yet"),
        }
        self.keeps_until_ms = self.server.clock.lease_ms() + KEEPS_FOR_MS;
    }

    /// Whether another node is in service. An owner that was killed does not count: by the time its lease is over, it was
    /// last seen so long ago that it is known to be gone.
    fn another_can(&self) -> bool {
        self.server.nodes.all().iter().any(|node| node.name != self.server.node && is_in_service(node))
    }

    /// The link to a node that was seen.
    pub(super) fn way_to(&self, name: &str) -> Option<Arc<Link>> {
        let nodes = self.server.nodes.all();
        let node = nodes.iter().find(|node| node.name == name && !node.peer_address.is_empty())?;
        Some(self.peers.as_ref()?.link(&node.peer_address))
    }

    /// The state of this node, as it answers orders.
    pub(super) fn standing(&self) -> NodeStanding {
        NodeStanding {
            node: self.server.node.as_str().into(),
            draining: self.card.draining,
            owner: self.server.owner().map(|owner| CompactString::from(&*owner)),
        }
    }

    /// Carries out an order to this node itself. The lease is kept meanwhile; if it is lost, this future is dropped.
    pub(super) async fn ordered(&mut self, order: NodeOrder, tenure: Option<&Arc<Shared>>) {
        if order.deadline.is_some_and(|deadline| deadline < Instant::now()) {
            return order.answer(Err(Box::new(Fault::too_late())));
        }
        match order.job.clone() {
            NodeJob::Drain { node: Some(node), .. } if *node != *self.server.node => self.pass_on(order, &node).await,
            NodeJob::Drain { drain: false, .. } => {
                if !order.dry_run {
                    if self.card.draining {
                        tracing::info!(by = %order.by, reason = order.reason.as_deref(), "this node is back in service");
                    }
                    self.set_draining(false).await;
                }
                let standing = NodeStanding { draining: false, ..self.standing() };
                order.answer(Ok(standing));
            }
            NodeJob::Drain { drain: true, .. } => self.drain(order, tenure).await,
            NodeJob::Prepare { .. } | NodeJob::Hold { .. } if tenure.is_some() => {
                let problem = "this node owns the register itself".to_owned();
                order.answer(Err(guarded(problem)));
            }
            // A node that was told to go out of service may be stopped at any moment: the owner tries the next node.
            NodeJob::Prepare { .. } if self.card.draining => order.answer(Err(self.out_of_service())),
            NodeJob::Hold { successor, .. } if self.card.draining && *successor == *self.server.node => {
                order.answer(Err(self.out_of_service()));
            }
            NodeJob::Prepare { unloadable } => {
                // The earlier standby is forgotten first: there is room for only one.
                self.warm = None;
                self.warm = Some(Warm::begin(Arc::clone(&self.store), order, self.standing(), unloadable));
            }
            NodeJob::GoOn => order.answer(Ok(self.standing())),
            NodeJob::Hold { successor, owner } => {
                self.giver = (*successor != *self.server.node).then(|| owner.clone());
                self.hold(order, &successor, &owner).await;
                self.giver = None;
            }
        }
    }

    fn out_of_service(&self) -> Box<Fault> {
        guarded(format!("node `{}` is out of service", self.server.node))
    }

    /// Passes the order on to the node that it names.
    async fn pass_on(&self, mut order: NodeOrder, node: &str) {
        let is_seen = || self.server.nodes.all().iter().any(|seen| seen.name == node);
        if !is_seen() && !order.from_node {
            // It may have come since this node last looked.
            match timeout(LOOKS_FOR, meet(&self.server, &*self.store)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(error = chain(&error), "which nodes there are is not known"),
                Err(_) => tracing::debug!("the store does not say in time which nodes there are"),
            }
        }
        let fault = match self.way_to(node) {
            _ if order.from_node || !is_seen() => Refusal::not_found(Missing::Node, node).into(),
            None => guarded(format!("there is no way to node `{node}` from here without a secret; ask it directly")),
            Some(link) => {
                let (job, reason) = (Job::Node(order.job.clone()), order.reason.take());
                let asked = Order {
                    job,
                    by: order.by.clone(),
                    reason,
                    deadline: order.deadline,
                    dry_run: order.dry_run,
                    wait: None,
                };
                let within = Duration::from_millis(HANDOVER_PREPARE_MS + HANDOVER_HOLD_MS);
                let (server, store) = (Arc::clone(&self.server), Arc::clone(&self.store));
                let unreached = format!("node `{node}` cannot be reached from `{}`", self.server.node);
                actix::spawn(async move {
                    let unreached = |why: String| {
                        let problem = format!("{unreached}: {why}; ask it directly");
                        Box::new(Fault::Unavailable { applied: Applied::No, problem })
                    };
                    if !link.connected(Duration::from_millis(PEER_HANDSHAKE_MS)).await {
                        return order.answer(Err(unreached(link.trouble())));
                    }
                    let answer = handover::ask(&link, asked, within).await.map_err(|fault| match *fault {
                        // The link itself says so, and knows nothing of the register: it went down before it asked, or is
                        // stopping.
                        Fault::NotReady { .. } => {
                            unreached("it takes nothing more, or the connection ended".to_owned())
                        }
                        _ => fault,
                    });
                    // The client sees the result at this node, too.
                    meet(&server, &*store).await.unwrap_or_default();
                    order.answer(answer);
                });
                return;
            }
        };
        order.answer(Err(fault));
    }

    /// `cluster.drain` of this node.
    async fn drain(&mut self, order: NodeOrder, tenure: Option<&Arc<Shared>>) {
        let candidate = match self.may_drain(tenure).await {
            Ok(candidate) => candidate,
            Err(fault) => return order.answer(Err(fault)),
        };
        if order.dry_run {
            let owner = if tenure.is_some() { Some(candidate) } else { self.standing().owner };
            let node = self.server.node.as_str().into();
            return order.answer(Ok(NodeStanding { node, draining: true, owner }));
        }
        let was_draining = self.card.draining;
        let is_news = tenure.is_some() || !was_draining;
        if is_news {
            tracing::info!(by = %order.by, reason = order.reason.as_deref(), "this node is being taken out of service");
        }
        self.set_draining(true).await;
        if let Some(shared) = tenure {
            let mut handed = self.hand_over(shared, None).await;
            let through_store = matches!(handed, Err(Unhanded::Unspoken(_)));
            if through_store {
                handed = self.pass_through_store(shared).await;
            }
            match handed {
                Ok(_) => {}
                Err(Unhanded::Barred(fault) | Unhanded::Kept(fault) | Unhanded::Unspoken(fault)) => {
                    self.stays(was_draining, &fault).await;
                    return order.answer(Err(fault));
                }
                Err(Unhanded::Orphaned(fault)) => {
                    if through_store {
                        // Nobody could be asked whether it can own the register, and it seems that nobody can.
                        self.stays(was_draining, &fault).await;
                    }
                    return order.answer(Err(fault));
                }
            }
        }
        if is_news {
            tracing::info!("this node is out of service");
        }
        order.answer(Ok(self.standing()));
    }

    /// A drain came to nothing.
    async fn stays(&mut self, was_draining: bool, fault: &Fault) {
        tracing::warn!(problem = fault.problem(), "this node was not taken out of service");
        self.set_draining(was_draining).await;
    }

    /// Hands the register over to another node, or to `only`, and follows that node. Returns false, and keeps the register,
    /// if no link to any other node can be made.
    pub(super) async fn hand_over(&mut self, shared: &Arc<Shared>, only: Option<&str>) -> Result<bool, Unhanded> {
        let Some(peers) = &self.peers else { return Ok(false) };
        let handover = Handover { server: &self.server, store: &*self.store, peers };
        // The link stays alive until `follow` has found it: a new one would have to connect first.
        let (handed, _link) = match handover.run(shared, only).await {
            Ok((holder, link)) => (Ok(holder), Some(link)),
            Err(unhanded) => (Err(unhanded), None),
        };
        self.is_handed(handed)
    }

    /// Notes who has the register now, and follows that node.
    pub(super) fn is_handed(&mut self, handed: Result<Holder, Unhanded>) -> Result<bool, Unhanded> {
        match handed {
            Ok(holder) => {
                self.tenure = None;
                let (owner, address) = (holder.name, holder.address);
                self.follow(&CannotOwn::Held { owner, address, left_ms: 0 });
                Ok(true)
            }
            Err(unhanded) => {
                if matches!(unhanded, Unhanded::Orphaned(_)) {
                    self.tenure = None;
                    self.wait("no other node has taken the register yet", NotReadyReason::NoOwner);
                }
                Err(unhanded)
            }
        }
    }

    /// Whether another node could own the register. Returns the node that would be asked first.
    async fn may_drain(&self, tenure: Option<&Arc<Shared>>) -> Result<CompactString, Box<Fault>> {
        if self.store.info().ownership_is_standing {
            let problem = "this server does not share its register, so no other node can take it over; stop it instead: it \
             answers everything that it has read";
            return Err(guarded(problem.to_owned()));
        }
        let name = &self.server.node;
        if self.peers.is_none() {
            let problem = format!(
                "node `{name}` cannot reach other nodes: all of them need the same secret (`cluster.secret_file`)"
            );
            return Err(guarded(problem));
        }
        tenure.map_or(Ok(()), |shared| handover::is_as_stored(shared))?;
        let (candidates, _) = handover::others(&self.server, &*self.store).await?;
        match candidates.first() {
            Some(candidate) => Ok(CompactString::from(&candidate.name)),
            None if tenure.is_some() => Err(guarded(format!(
                "node `{name}` is the only one that can own the register; without it nobody would serve"
            ))),
            None => {
                Err(guarded(format!("no node in service except `{name}` could own the register when its owner ends")))
            }
        }
    }

    async fn set_draining(&mut self, draining: bool) {
        self.card.draining = draining;
        (self.ownerless_ms, self.keeps_until_ms) = (None, 0);
        if draining {
            // A standby here is not to become the owner any more.
            self.warm = None;
        }
        self.store.introduce(self.card.clone());
        // Tells the others at once.
        if let Err(error) = meet(&self.server, &*self.store).await {
            tracing::warn!(error = chain(&error), "the other nodes learn of it a little later");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::{Told, outlet};
    use crate::serve::Hooks;
    use crate::server::session::idle_server;
    use crate::store::memory::MemoryStore;

    /// The answer of a node that is out of service.
    async fn answer(job: NodeJob) -> Result<(), Fault> {
        let hooks = Hooks { without_index: true, ..Hooks::default() };
        let mut keeper = Keeper::alone(idle_server(), Arc::new(MemoryStore::new(1)), hooks);
        keeper.card.draining = true;
        let (out, mut told) = outlet();
        keeper.ordered(NodeOrder::new(job, false, (0, out)), None).await;
        match told.recv().await {
            Some(Told::Job(0, answer)) => answer.map(drop).map_err(|fault| *fault),
            told => panic!("{told:?}"),
        }
    }

    fn is_out_of_service(answer: &Result<(), Fault>) -> bool {
        matches!(answer, Err(Fault::Refused(Refusal::Guarded { problem, .. })) if problem.ends_with("is out of service"))
    }

    #[actix::test]
    async fn a_node_that_is_out_of_service_is_given_no_register() {
        let own = idle_server().node.clone();
        let hold = |successor: &str| NodeJob::Hold { successor: successor.into(), owner: "another".into() };
        for job in [NodeJob::Prepare { unloadable: Vec::new() }, hold(&own)] {
            let answer = answer(job.clone()).await;
            assert!(is_out_of_service(&answer), "{job:?}: {answer:?}");
        }
        // It holds its clients' requests while the register goes to another node.
        let answer = answer(hold("third")).await;
        assert!(matches!(answer, Err(Fault::NotReady { .. })), "it follows nobody here: {answer:?}");
    }

    #[actix::test]
    async fn an_order_that_nobody_has_read_when_its_node_stops_was_certainly_not_carried_out() {
        let (server, hooks) = (idle_server(), Hooks { without_index: true, ..Hooks::default() });
        let mut keeper = Keeper::alone(Arc::clone(&server), Arc::new(MemoryStore::new(1)), hooks);
        let (out, mut told) = outlet();
        server.steward.ask(NodeOrder::new(NodeJob::Drain { node: None, drain: true }, false, (0, out)));
        keeper.lay_down(Duration::from_secs(1)).await;
        let Some(Told::Job(0, Err(fault))) = told.recv().await else { panic!("it is not answered") };
        assert!(matches!(*fault, Fault::Unavailable { applied: Applied::No, .. }), "{fault:?}");
    }
}
