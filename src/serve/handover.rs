//! Hands the register from one node to the next in order: no request is refused, and nobody waits for a lease.
//!
//! ```text
//! owner       Prepare ──────▶ ready? ──▶ Hold ──▶ between owners ──▶ all is answered ──▶ lets go ──▶ follows
//! successor           gets ready          └─▶ between owners ─────────────────────────────▶ takes it, owns
//! the others                               └─▶ between owners ──────────────────────────────────────▶ follow
//! ```
//!
//! Before the owner gives anything up, the successor has said that it is ready, and every node that can be reached holds its
//! clients' requests and has nothing under way at the owner. So between two owners clients see a pause and no refusal;
//! requests that wait for capacity go on waiting at the next owner (`server::session`). If something fails before the owner
//! lets go, the owner keeps the register; after that, whoever takes it has it: the lease is over, and tokens decide who may
//! write, as always. The same holds if a node is stopped meanwhile: it serves to the end while the register is still its
//! own, and otherwise forwards what it holds.
//!
//! Neighbours: `keeper` has the roles and calls; `peers` has the links to the other nodes; `unspoken` is for nodes that cannot
//! be asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout, timeout_at};

use super::keeper::{Keeper, next_order};
use super::lease::let_go;
use super::peers::Peers;
use super::reactors::all_run;
use crate::actors::coordinator::{Done, Job, Order};
use crate::actors::nodes::{NodeJob, NodeStanding};
use crate::actors::service::{CannotOwn, Shared};
use crate::actors::standby::Standby;
use crate::actors::{Applied, Fault, NotReadyReason, Stopped, Told, outlet};
use crate::core::refusal::Refusal;
use crate::limits::{HANDOVER_HOLD_MS, HANDOVER_PREPARE_MS, HANDOVER_TOLD_MS};
use crate::peer::NO_CLIENT;
use crate::peer::link::Link;
use crate::server::Server;
use crate::server::role::Role;
use crate::server::steward::NodeOrder;
use crate::store::{Holder, NodeCard, Store, StoreError, StoreHealth, chain};

/// How often a node looks who owns the register while it is handed over.
const LOOKS_EVERY: Duration = Duration::from_millis(5);
/// How long connecting to a node that was seen may take.
const CONNECTED_WITHIN: Duration = Duration::from_millis(HANDOVER_TOLD_MS / 2);
const TOLD_WITHIN: Duration = Duration::from_millis(HANDOVER_TOLD_MS);

/// The owner of the register, if that is another node and the store says so.
async fn other_owner(store: &dyn Store, server: &Server) -> Option<Holder> {
    match store.holder().await {
        Ok(holder) => holder.filter(|holder| *holder.name != *server.node),
        Err(error) => {
            tracing::debug!(error = chain(&error), "who owns the register is not known");
            None
        }
    }
}

/// Why the register was not handed over.
pub(super) enum Unhanded {
    /// This node still owns the register, and must: nobody could take it.
    Barred(Box<Fault>),
    /// This node still owns the register.
    Kept(Box<Fault>),
    /// This node still owns the register: it shares no version of the protocol with any node that could take it, so it
    /// could only let go of it (see `unspoken`).
    Unspoken(Box<Fault>),
    /// This node let go of the register, and nobody has taken it yet.
    Orphaned(Box<Fault>),
}

pub(super) fn unavailable(applied: Applied, problem: String) -> Box<Fault> {
    Box::new(Fault::Unavailable { applied, problem })
}

/// Why a node cannot be taken out of service.
pub(super) fn guarded(problem: String) -> Box<Fault> {
    Refusal::Guarded { problem, count: 0, first: Vec::new() }.into()
}

/// Refuses if something exists in memory only, because a person has yet to decide between it and the store. The next owner
/// would go by the store, and ask nobody.
pub(super) fn is_as_stored(shared: &Shared) -> Result<(), Box<Fault>> {
    let Some(Stopped { network, why, .. }) = shared.shows_memory() else { return Ok(()) };
    Err(guarded(format!(
        "{}: another node would go by the store at once, and what is in memory would be gone",
        why.problem(&network)
    )))
}

/// Whether the refusal comes from what a node is or was told to be, rather than from a failure.
fn is_guarded(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused(Refusal::Guarded { .. }))
}

/// Gives an order to another node, and waits for its answer.
pub(super) async fn ask(link: &Link, order: Order, within: Duration) -> Result<NodeStanding, Box<Fault>> {
    let reads = order.dry_run || order.job.is_read();
    let (outlet, mut told) = outlet();
    // No client has this number.
    link.job(NO_CLIENT, 0, order, &outlet);
    drop(outlet);
    match timeout(within, told.recv()).await {
        Ok(Some(Told::Job(_, Ok(Done::Node(standing))))) => Ok(standing),
        Ok(Some(Told::Job(_, Err(fault)))) => Err(fault),
        Ok(_) | Err(_) => {
            let applied = if reads { Applied::No } else { Applied::Unknown };
            Err(unavailable(applied, "the other node did not answer in time".to_owned()))
        }
    }
}

fn order(job: NodeJob) -> Order {
    Order { job: Job::Node(job), by: "node".into(), reason: None, deadline: None, dry_run: false, wait: None }
}

/// The other nodes that can be reached: first those that may own the register, then all of them; the one that was seen last
/// first.
pub(super) async fn others(server: &Server, store: &dyn Store) -> Result<(Vec<NodeCard>, Vec<NodeCard>), Box<Fault>> {
    let problem = |error: StoreError| unavailable(Applied::No, chain(&error));
    let mut seen = store.meet(true).await.map_err(problem)?;
    seen.retain(|seen| seen.card.name != server.node && !seen.card.peer_address.is_empty());
    seen.sort_by(|one, other| (one.age_ms, &one.card.name).cmp(&(other.age_ms, &other.card.name)));
    let all: Vec<NodeCard> = seen.into_iter().map(|seen| seen.card).collect();
    Ok((all.iter().filter(|card| !card.draining).cloned().collect(), all))
}

/// The owner's part of a handover.
pub(super) struct Handover<'a> {
    pub(super) server: &'a Server,
    pub(super) store: &'a dyn Store,
    pub(super) peers: &'a Peers,
}

/// Marks that another node reads the register beside this owner, until it is dropped.
struct ReadBeside<'a>(&'a dyn Store);

impl<'a> ReadBeside<'a> {
    fn begins(store: &'a dyn Store) -> Self {
        store.is_read_beside(true);
        Self(store)
    }
}

impl Drop for ReadBeside<'_> {
    fn drop(&mut self) {
        self.0.is_read_beside(false);
    }
}

impl Handover<'_> {
    /// Hands the register over to another node, or only to `only`. Returns the new owner and the link to it. State that
    /// exists in memory only bars a handover, unless `only` is given: then most nodes cannot reach this owner, and without
    /// the handover nobody would be served.
    pub(super) async fn run(&self, shared: &Arc<Shared>, only: Option<&str>) -> Result<(Holder, Arc<Link>), Unhanded> {
        let (mut candidates, all) = others(self.server, self.store).await.map_err(Unhanded::Barred)?;
        candidates.retain(|candidate| only.is_none_or(|only| candidate.name == only));
        let mut all_links: Vec<(NodeCard, Arc<Link>)> = Vec::with_capacity(all.len());
        for card in all {
            let link = self.peers.link(&card.peer_address);
            all_links.push((card, link));
        }
        // Getting ready may take minutes: obstacles to any take-over are looked for before that, and again after it.
        let may_go = || if only.is_none() { is_as_stored(shared) } else { Ok(()) };
        may_go().map_err(Unhanded::Barred)?;
        self.could_be_taken(shared).await.map_err(Unhanded::Barred)?;
        let _read = ReadBeside::begins(self.store);
        let (begun, links) = self.all_hold(shared, candidates, all_links, &may_go).await?;
        let role = self.server.seat.role();
        self.server.seat.become_role(Role::Between);
        if !self.quiet(shared).await {
            shared.is_kept();
            self.server.seat.become_same(role);
            self.tell(NodeJob::GoOn, &links).await;
            let problem = "this node could not answer its earlier requests in time, so it keeps the register";
            return Err(Unhanded::Kept(unavailable(Applied::No, problem.to_owned())));
        }
        self.lets_go(shared).await;
        let holder = self.taken(begun + Duration::from_millis(HANDOVER_HOLD_MS)).await?;
        let link = match links.into_iter().find(|(card, _)| card.peer_address == *holder.address) {
            Some((_, link)) => link,
            None => self.peers.link(&holder.address),
        };
        let pause_ms = begun.elapsed().as_millis() as u64;
        tracing::info!(successor = %holder.name, pause_ms, "handed the register over");
        Ok((holder, link))
    }

    /// Waits until a candidate is ready, and every node that can be reached holds its requests. Returns since when, and the
    /// links to them.
    async fn all_hold(
        &self,
        shared: &Arc<Shared>,
        candidates: Vec<NodeCard>,
        all: Vec<(NodeCard, Arc<Link>)>,
        may_go: &impl Fn() -> Result<(), Box<Fault>>,
    ) -> Result<(Instant, Vec<(NodeCard, Arc<Link>)>), Unhanded> {
        let mut candidates = candidates.into_iter();
        loop {
            let successor = self.prepare(shared, &mut candidates, &all).await?;
            may_go().map_err(Unhanded::Barred)?;
            self.could_be_taken(shared).await.map_err(Unhanded::Barred)?;
            // From here on nobody waits for a node that is not connected.
            let mut links = all.clone();
            self.reach(&mut links).await;
            let begun = Instant::now();
            match self.hold(&successor, &links).await {
                Ok(()) => return Ok((begun, links)),
                // The candidate went out of service while it got ready.
                Err(fault) if is_guarded(&fault) => {}
                Err(fault) => return Err(Unhanded::Kept(fault)),
            }
        }
    }

    /// Whether Redis would confirm a take-over now. It takes the same as a proof of this owner: an owner that cannot get a
    /// proof would let go of the register, and the next one could not begin.
    pub(super) async fn could_be_taken(&self, shared: &Shared) -> Result<(), Box<Fault>> {
        if shared.is_proved_owner().await {
            return Ok(());
        }
        let why = self.store.bars_taking().unwrap_or_else(|| "Redis does not confirm who owns the register".into());
        Err(guarded(format!(
            "{why}: no other node could take the register over, so node `{}` keeps it",
            self.server.node
        )))
    }

    /// The next candidate that gets ready. Those that this node shares no version of the protocol with cannot: what they
    /// speak is said only if no other node failed, since that one may be mended.
    async fn prepare(
        &self,
        shared: &Shared,
        candidates: &mut impl Iterator<Item = NodeCard>,
        links: &[(NodeCard, Arc<Link>)],
    ) -> Result<NodeCard, Unhanded> {
        let (mut failed, mut unspoken) = (None, None);
        for candidate in candidates {
            let Some((_, link)) = links.iter().find(|(card, _)| *card == candidate) else { continue };
            let asked = async {
                if !link.connected(CONNECTED_WITHIN).await {
                    let problem = format!(
                        "node `{}` cannot be reached (`cluster.advertise` of that node says where): {}",
                        candidate.name,
                        link.trouble()
                    );
                    return Err(unavailable(Applied::No, problem));
                }
                let job = NodeJob::Prepare { unloadable: shared.unloadable() };
                ask(link, order(job), Duration::from_millis(HANDOVER_PREPARE_MS)).await
            };
            let asked = asked.await;
            if let Some(without) = link.no_common_version().filter(|_| !link.is_connected()) {
                tracing::info!("{without}: it cannot be asked to get ready");
                unspoken = Some(guarded(format!("{without}: only `cluster drain` lets go of the register for it")));
                continue;
            }
            match asked {
                Ok(_) => return Ok(candidate),
                // It went out of service since it was seen: treated as if it had been out of service before.
                Err(fault) if is_guarded(&fault) => {
                    tracing::info!(node = candidate.name, problem = fault.problem(), "it does not get ready");
                }
                Err(fault) => {
                    tracing::warn!(node = candidate.name, problem = fault.problem(), "it does not get ready");
                    let problem = format!("node `{}` does not get ready: {}", candidate.name, fault.problem());
                    failed = Some(unavailable(Applied::No, problem));
                }
            }
        }
        Err(match (failed, unspoken) {
            (Some(failed), _) => Unhanded::Kept(failed),
            (None, Some(unspoken)) => Unhanded::Unspoken(unspoken),
            (None, None) => Unhanded::Kept(guarded(format!(
                "node `{}` is the only one that can own the register now; without it nobody would serve",
                self.server.node
            ))),
        })
    }

    /// Keeps the links that are connected.
    async fn reach(&self, links: &mut Vec<(NodeCard, Arc<Link>)>) {
        let mut reaching = JoinSet::new();
        for link in links.iter().map(|(_, link)| Arc::clone(link)) {
            reaching.spawn(async move { link.connected(CONNECTED_WITHIN).await });
        }
        reaching.join_all().await;
        links.retain(|(_, link)| link.is_connected());
    }

    /// Asks every node that can be reached to send nothing more to this one. The successor must agree; if it must not own
    /// the register, its refusal is returned.
    async fn hold(&self, successor: &NodeCard, links: &[(NodeCard, Arc<Link>)]) -> Result<(), Box<Fault>> {
        let (successor_name, owner) = (successor.name.as_str().into(), self.server.node.as_str().into());
        let told = self.tell(NodeJob::Hold { successor: successor_name, owner }, links).await;
        let why = match told.into_iter().find(|(name, _)| *name == successor.name) {
            Some((_, Ok(_))) => return Ok(()),
            Some((_, Err(fault))) => fault,
            None => unavailable(Applied::No, "it can no longer be reached".to_owned()),
        };
        self.tell(NodeJob::GoOn, links).await;
        let problem = why.problem();
        if is_guarded(&why) {
            tracing::info!(node = successor.name, problem, "it got ready, but does not take over the register");
            return Err(why);
        }
        let problem = format!(
            "node `{}` got ready, but then did not take over the register: {problem}; this node keeps it",
            successor.name
        );
        Err(unavailable(Applied::No, problem))
    }

    /// Gives an order to all of them. Returns their answers.
    async fn tell(
        &self,
        job: NodeJob,
        links: &[(NodeCard, Arc<Link>)],
    ) -> Vec<(String, Result<NodeStanding, Box<Fault>>)> {
        let mut asked = JoinSet::new();
        for (card, link) in links {
            let (name, link, job) = (card.name.clone(), Arc::clone(link), job.clone());
            asked.spawn(async move { (name, ask(&link, order(job), TOLD_WITHIN).await) });
        }
        asked.join_all().await
    }

    /// Waits until another node has taken the register, and gives back what Redis loses until then. Requests are held
    /// meanwhile, and a store that does not answer delays nobody beyond `end`.
    pub(super) async fn taken(&self, end: Instant) -> Result<Holder, Unhanded> {
        let holder = async {
            let mut may_lack = false;
            loop {
                match self.store.holder().await {
                    Ok(Some(holder)) if *holder.name != *self.server.node => return holder,
                    // The release failed, or Redis went back to before it.
                    Ok(Some(_)) => may_lack = true,
                    Ok(None) => {}
                    Err(error) => {
                        tracing::debug!(error = chain(&error), "who owns the register is not known");
                        may_lack = true;
                    }
                }
                // What Redis lost is given back before the next owner goes on without it: nobody else looks for it now.
                if may_lack {
                    may_lack = self.store.review().await.is_err();
                }
                sleep(LOOKS_EVERY).await;
            }
        };
        if let Ok(holder) = timeout_at(end.into(), holder).await {
            return Ok(holder);
        }
        let problem = "the register was released, and no other node took it in time".to_owned();
        Err(Unhanded::Orphaned(unavailable(Applied::Unknown, problem)))
    }
}

impl Keeper {
    /// The owner is about to give the register to `successor`, perhaps this node: holds the requests here until somebody
    /// owns it. An order that is read so late that another node is already followed is void.
    pub(super) async fn hold(&mut self, order: NodeOrder, successor: &str, by: &str) {
        let role = self.server.seat.role();
        let Role::Follower { owner, link, .. } = &*role else {
            let reason = NotReadyReason::NoOwner;
            return order.answer(Err(Box::new(Fault::NotReady { reason, retry_after_ms: 500 })));
        };
        if **owner != *by {
            return order
                .answer(Err(guarded(format!("the register is not `{by}`'s any more: this node follows `{owner}`"))));
        }
        let is_successor = *successor == *self.server.node;
        // Kept until that node is followed, so that clients need not wait for the connection.
        let way = (!is_successor).then(|| self.way_to(successor)).flatten();
        if let Some(way) = &way {
            way.connected(CONNECTED_WITHIN).await;
        }
        let begun = Instant::now();
        self.server.seat.become_role(Role::Between);
        let (told, end) = (Instant::now() + CONNECTED_WITHIN, Instant::now() + Duration::from_millis(HANDOVER_HOLD_MS));
        let all_is_answered = async {
            // A session that began to ask before it could see the new role has sent its request by then.
            all_run(&self.server.session_threads).await;
            while link.under_way() > 0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        // If the owner cannot wait any longer, it says so.
        let _ = timeout(told.saturating_duration_since(Instant::now()), all_is_answered).await;
        order.answer(Ok(self.standing()));
        while Instant::now() < end {
            match timeout(LOOKS_EVERY, next_order(&mut self.orders)).await {
                Ok(order) if order.job == NodeJob::GoOn => {
                    order.answer(Ok(self.standing()));
                    break;
                }
                Ok(order) => {
                    let problem = "the register is being handed over from one node to another just now".to_owned();
                    order.answer(Err(Box::new(Fault::Overloaded { problem, retry_after_ms: 1_000 })));
                }
                Err(_) => {}
            }
            // A store that does not answer delays nobody beyond `end`.
            let Ok(holder) = timeout(end.saturating_duration_since(Instant::now()), self.store.holder()).await else {
                break;
            };
            match holder {
                Ok(Some(holder)) if holder.name == *owner => {}
                Ok(Some(holder)) => return self.follow_next(&holder).await,
                Ok(None) if is_successor => {
                    let released_ms = begun.elapsed().as_millis() as u64;
                    // Another node may be faster, or the store may be away: then the role says so, and this node goes on as
                    // usual.
                    let standby = match self.warm.take() {
                        Some(warm) => warm.give().await,
                        None => None,
                    };
                    let ready = standby.is_some();
                    if self.contend_before(end, standby).await.is_ok() {
                        let pause_ms = begun.elapsed().as_millis() as u64;
                        tracing::info!(ready, released_ms, pause_ms, "took the register over from its owner");
                    }
                    return;
                }
                Ok(None) => {}
                Err(error) => tracing::debug!(error = chain(&error), "who owns the register is not known"),
            }
        }
        // The role is as before. If that is out of date, it is noticed as usual.
        self.server.seat.become_same(role);
    }

    /// Takes the register over. Requests are held only until `end`: after that clients are told that the register is being
    /// loaded.
    async fn contend_before(&mut self, end: Instant, standby: Option<Standby>) -> Result<(), CannotOwn> {
        let server = Arc::clone(&self.server);
        let contending = self.contend_with(standby);
        tokio::pin!(contending);
        match timeout(end.saturating_duration_since(Instant::now()), &mut contending).await {
            Ok(found) => found,
            Err(_) => {
                let fault = Fault::NotReady { reason: NotReadyReason::Loading, retry_after_ms: 500 };
                server.seat.become_role(Role::Waiting { why: "the register is being loaded", fault });
                contending.await
            }
        }
    }

    /// Another node owns the register now. Held requests go there once the link is up.
    async fn follow_next(&mut self, holder: &Holder) {
        let way = self.peers.as_ref().map(|peers| peers.link(&holder.address));
        if let Some(way) = &way {
            way.connected(CONNECTED_WITHIN).await;
        }
        let (owner, address) = (Arc::clone(&holder.name), Arc::clone(&holder.address));
        self.follow(&CannotOwn::Held { owner, address, left_ms: 0 });
    }

    /// The server was told to stop while the register was being handed over. If this node still has the register it serves
    /// it to the end; if it gave it away its tenure is over, and held requests go to the new owner, if that is known early
    /// enough for the answers.
    pub(super) async fn stop_between_owners(&mut self, within: Duration) {
        let end = tokio::time::Instant::now() + (within - within / 4).min(Duration::from_millis(HANDOVER_HOLD_MS));
        if let Some(shared) = &self.tenure
            && !shared.is_over()
        {
            if shared.is_served() {
                return self.server.seat.become_role(Role::Owner(Arc::clone(shared)));
            }
            // What must come first has not come yet (see `late`): the next owner has to serve what is held here.
            return self.wait("stopping", NotReadyReason::Moved);
        }
        let gave_away = self.tenure.take().is_some();
        if (gave_away || self.giver.is_some()) && self.store.health() != StoreHealth::Failed {
            tracing::info!("the register is going to another node: the requests held here will be sent there");
            let following = async {
                if gave_away {
                    // The stop may have come before the store was told.
                    let_go(&*self.store).await;
                }
                self.follow_taker().await;
            };
            if tokio::time::timeout_at(end, following).await.is_err() {
                // It may be kept where it was; its owner can say best what becomes of the requests.
                tracing::warn!("no other node began to serve the register in time");
                if let Ok(Some(holder)) = timeout(CONNECTED_WITHIN, other_owner(&*self.store, &self.server)).await {
                    self.follow_next(&holder).await;
                }
            }
        }
        if matches!(*self.server.seat.role(), Role::Between) {
            self.wait("stopping", NotReadyReason::Moved);
        }
    }

    /// Follows the new owner once that one says that it owns the register: before, it would refuse requests.
    async fn follow_taker(&mut self) {
        let mut _kept = None;
        loop {
            if let Some(holder) = other_owner(&*self.store, &self.server).await.filter(|holder| !self.gives(holder)) {
                let Some(way) = self.peers.as_ref().map(|peers| peers.link(&holder.address)) else { return };
                way.connected(CONNECTED_WITHIN).await;
                if way.standing().is_some_and(|standing| standing.owns) {
                    return self.follow_next(&holder).await;
                }
                // Until that node has said so.
                _kept = Some(way);
            }
            sleep(LOOKS_EVERY).await;
        }
    }

    /// Whether the store still names the node that is about to give the register away.
    fn gives(&self, holder: &Holder) -> bool {
        self.giver.as_deref().is_some_and(|giver| *giver == *holder.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::service::{self, Hooks, Parts};
    use crate::server::session::idle_server;
    use crate::store::chapters::Chapters;
    use crate::store::memory::MemoryStore;

    /// A node that took the register a moment ago, and holds the requests that come meanwhile.
    async fn successor() -> (Keeper, Arc<Shared>) {
        let (server, store) = (idle_server(), Arc::new(MemoryStore::new(1)) as Arc<dyn Store>);
        let hooks = Hooks { without_index: true, ..Hooks::default() };
        let register = store.info().register;
        let parts = Parts {
            store: Arc::clone(&store),
            clock: Arc::clone(&server.clock),
            metrics: Arc::clone(&server.metrics),
            reactors: vec![actix::Arbiter::current().into()],
            hooks: hooks.clone(),
            behind_bytes: 1 << 20,
            chapters: Arc::new(Chapters::open(None, register)),
            fatal: outlet().0,
            standby: None,
        };
        let shared = service::start(parts).await.unwrap();
        let mut keeper = Keeper::alone(server, store, hooks);
        keeper.tenure = Some(Arc::clone(&shared));
        keeper.server.seat.become_role(Role::Between);
        (keeper, shared)
    }

    /// What it has to bring to the register comes before any request: acknowledged addresses could be granted to others.
    #[actix::test]
    async fn a_successor_that_is_told_to_stop_serves_what_it_holds_only_if_it_had_begun_to_serve() {
        for serves in [false, true] {
            let (mut keeper, shared) = successor().await;
            if serves {
                shared.serves();
            }
            keeper.stop_between_owners(Duration::from_secs(1)).await;
            let role = keeper.server.seat.role();
            assert_eq!((role.actors().is_some(), role.is_between()), (serves, false), "{role:?}");
            assert!(keeper.tenure.is_some(), "whoever stops lets go of it");
        }
    }
}
