//! Deployments: the networks that a deployment wishes of or holds in, and its record, in one commit.
//!
//! ```text
//! lock the deployment ─▶ hold the networks, in order ─▶ each decides ─▶ one joint unit with the record ─▶ go on
//! ```
//!
//! **All or nothing.** A crash, a rollback or a lost node leaves all of it or none, because it is one group commit
//! (`joint`). **The same wishes again are the same plan**: they are decided under its number, and only where that
//! changes something and the plan has ended they become a new one.
//!
//! Review notes: is the table written only behind an acknowledged commit? Does a refusal leave by `seen_durably`?

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::configure::Act as Locked;
use super::joint::{Holds, Seen, commit, rank, seen_of};
use super::walk::Walk;
use super::{Coordinator, Done, Outcomes, lost};
use crate::actors::committer::{Part, Reload};
use crate::actors::deployments::Known;
use crate::actors::routes::Route;
use crate::actors::{Applied, Fault};
use crate::core::address::{Address, Range};
use crate::core::command::{Command, Filter};
use crate::core::deployment::{Deploy, DeployWish, Deployed, Deployment, Settle, SlotState, Stage};
use crate::core::outcome::{Outcome, View};
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::{Key, State, Step};
use crate::core::types::{Name, NetworkId, Owner, Scope, Slot, Version, WallTime};
use crate::limits::LIST_PAGE_RECORDS_MAX;
use crate::store;

/// What a deployment wishes of one network, under one of its names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployPart {
    /// As the client named it.
    pub network: CompactString,
    /// What is wished; places count over all parts.
    pub wishes: Vec<DeployWish>,
    /// Addresses that groups deal here.
    pub lists: Vec<Vec<Range>>,
}

/// `deployment.plan` and `deployment.apply`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployOrder {
    /// The deployment.
    pub name: Scope,
    /// Every instance, in the order of the request.
    pub instances: Vec<Owner>,
    /// What is wished, by network.
    pub parts: Vec<DeployPart>,
    /// Hash of all of it.
    pub wishes: u128,
    /// Carry it out, instead of telling what would happen.
    pub apply: bool,
}

/// What became of the wishes of an instance: network, slot, and the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployedSlot {
    /// The network.
    pub network: Name,
    /// The slot.
    pub slot: Slot,
    /// What became of the wish.
    pub state: SlotState,
    /// What is held or promised.
    pub view: Option<View>,
    /// What is let go for it.
    pub replaces: Option<Address>,
}

/// What `deployment.plan` and `deployment.apply` answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployedAll {
    /// Its number, of an apply.
    pub plan: Option<u64>,
    /// By instance, in the order of the request.
    pub instances: Vec<(Owner, Vec<DeployedSlot>)>,
    /// What the deployment lets go with its commit.
    pub obsolete: Vec<View>,
}

/// A deployment that nobody else acts on.
struct Seat {
    known: Known,
    _locked: Locked,
}

/// A network of a deployment, and what is wished of it.
struct Wished {
    route: Arc<Route>,
    name: Name,
    wishes: Vec<DeployWish>,
    lists: Vec<Vec<Range>>,
}

/// The networks of a plan.
struct AllWished {
    /// By id.
    networks: Vec<Wished>,
    /// The first in the request that does not exist: its place, and what is answered if nothing comes before it.
    missing: Option<(usize, Box<Fault>)>,
}

/// What networks decided about one plan.
struct Decided {
    plan: u64,
    parts: Vec<Part>,
    outcomes: Vec<(Name, Outcome)>,
}

impl Decided {
    /// Is anything granted, promised, made obsolete or current again? A note about what is not listed is no change.
    fn changed(&self) -> bool {
        self.outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Deployed { changed: true, .. }))
    }
}

impl Coordinator {
    /// Locks a deployment against other acts on it, and finds its record.
    async fn seat(&self, name: &Scope) -> Result<Seat, Box<Fault>> {
        let known = self.shared.deployments.get(name, |id| self.shared.shard_of(id));
        let locked = self.lock(vec![known.lane.id]).await?;
        // Whoever had it before us may have changed it.
        let mut known = self.shared.deployments.get(name, |id| self.shared.shard_of(id));
        if !known.stands() {
            known = self.reloaded(known.lane).await?;
            self.shared.deployments.put(name, known.clone());
        }
        Ok(Seat { known, _locked: locked })
    }

    /// A record as the store has it.
    async fn reloaded(&self, lane: Arc<crate::actors::routes::Lane>) -> Result<Known, Box<Fault>> {
        let (to, loaded) = oneshot::channel();
        self.shared.reload(Reload { lane: Arc::clone(&lane), to });
        let loaded = loaded.await.map_err(|_| lost())?;
        Ok(Known { lane, record: loaded.deployment, incarnation: loaded.incarnation })
    }

    fn missing(name: &Scope) -> Box<Fault> {
        let hint = "deployment.list shows those that there are; what a scope holds without one goes by scope.release";
        let (missing, what) = (Missing::Deployment, format!("`{name}`"));
        Refusal::NotFound { missing, what, hint: Some(hint.to_owned()) }.into()
    }

    /// The record with what changes, as a part of a joint unit.
    fn record_part(&self, known: &Known, record: Option<&Arc<Deployment>>) -> Part {
        let expect = known.record.as_ref().map(|record| record.version.0);
        let state = record.map(|record| State::Deployment(Arc::clone(record)));
        let act = store::Act {
            network: known.lane.id,
            wall: self.shared.clock.wall(),
            by: self.by.clone(),
            reason: self.reason.clone(),
            transaction: None,
            steps: vec![Step { key: Key::Deployment, expect, state, event: None }],
        };
        Part::new(Arc::clone(&known.lane), known.incarnation, vec![act])
    }

    /// Commits the networks' parts and the record, if it changes, and notes it. More than one commit holds is refused, with
    /// `fewer` for what to do.
    async fn conclude(
        &self,
        seat: &Seat,
        (holds, seen): (Holds, Seen),
        mut parts: Vec<Part>,
        (record, fewer): (Option<Arc<Deployment>>, &str),
    ) -> Result<(), Box<Fault>> {
        let known = &seat.known;
        let changed = record != known.record;
        if changed {
            parts.push(self.record_part(known, record.as_ref()));
        }
        let bytes: usize = parts.iter().map(|part| part.bytes).sum();
        let max = self.shared.info.act_bytes_max;
        if bytes > max {
            let problem = format!("change {bytes} bytes, and what becomes durable at once is at most {max}; {fewer}");
            drop(holds);
            return Err(self.seen_durably(seen, Refusal::invalid("instances", problem).into()).await);
        }
        let name = record.as_ref().or(known.record.as_ref()).map(|record| record.name.clone());
        let (Some(name), true) = (name, changed) else { return commit(&self.shared, holds, parts, None).await };
        // Its lane must be found again, whatever becomes of the commit.
        self.shared.deployments.put(&name, known.clone());
        commit(&self.shared, holds, parts, None).await?;
        match record {
            Some(record) => {
                let known = Known { record: Some(record), ..known.clone() };
                self.shared.deployments.put(&name, known);
            }
            None => self.shared.deployments.remove(&name),
        }
        Ok(())
    }

    /// Networks in which a scope holds something, with their names, deleted ones that are remembered too.
    async fn networks_of(&self, scope: &Scope) -> Result<BTreeMap<NetworkId, (Arc<Route>, Name)>, Box<Fault>> {
        let mut walk = Walk::after(self, None).holding(Some(scope), None);
        let mut found = BTreeMap::new();
        while let Some(listing) = walk.next().await? {
            if let Some(route) = self.shared.routes.by_id(listing.id) {
                found.insert(listing.id, (route, listing.name.clone()));
            }
        }
        Ok(found)
    }

    /// `deployment.plan` and `deployment.apply`.
    pub(super) async fn deploy(&self, order: DeployOrder) -> Outcomes {
        let seat = self.seat(&order.name).await?;
        let mut wished = self.wished(&order).await?;
        let routes: Vec<Arc<Route>> = wished.networks.iter().map(|network| Arc::clone(&network.route)).collect();
        self.together(&routes, "deployment")?;
        let seen = seen_of(&routes);
        let holds = match Holds::of(&self.shared, routes, None).await {
            Ok(holds) => holds,
            Err(fault) => return Err(self.seen_durably(seen, fault).await),
        };
        let before = seat.known.record.as_ref();
        let wall = self.shared.clock.wall();
        let decided = match self.decide(&holds, &order, &mut wished, (before, wall)).await {
            Ok(decided) => decided,
            Err(fault) => {
                drop(holds);
                return Err(self.seen_durably(seen, fault).await);
            }
        };
        let record = recorded(before, &order, decided.plan, decided.changed(), wall);
        let answer = answered(&order, decided.outcomes, decided.plan);
        if order.apply && !self.dry_run {
            let record = (Some(Arc::new(record)), "make several deployments of it");
            self.conclude(&seat, (holds, seen), decided.parts, record).await?;
        } else {
            drop(holds);
            self.durable(seen).await?;
        }
        Ok(Done::Deployed(Box::new(answer)))
    }

    /// Decides under the number that the plan has. The same wishes again are the same plan, unless it ended and what it led to
    /// is not so any more: then they are a new one.
    async fn decide(
        &self,
        holds: &Holds,
        order: &DeployOrder,
        wished: &mut AllWished,
        (before, wall): (Option<&Arc<Deployment>>, WallTime),
    ) -> Result<Decided, Box<Fault>> {
        let next = self.shared.deployments.next_plan(before.map(|record| record.plan), wall.0);
        let again = before.filter(|record| record.wishes == order.wishes && record.stage != Stage::Reverted);
        let Some(record) = again else { return self.decide_plan(holds, order, wished, (next, None)).await };
        let decided = self.decide_plan(holds, order, wished, (record.plan, Some(record.stage))).await?;
        if record.stage == Stage::Open || !decided.changed() {
            return Ok(decided);
        }
        self.decide_plan(holds, order, wished, (next, None)).await
    }

    /// The networks of a plan: those of which something is wished, and those in which the deployment holds something.
    async fn wished(&self, order: &DeployOrder) -> Result<AllWished, Box<Fault>> {
        let mut held = self.networks_of(&order.name).await?;
        let mut networks: BTreeMap<NetworkId, Wished> = BTreeMap::new();
        let mut missing = None;
        for part in &order.parts {
            let Some(route) = self.shared.routes.find(&part.network) else {
                let refusal = Refusal::not_found(Missing::Network, &part.network);
                missing.get_or_insert_with(|| match part.wishes.first() {
                    Some(wish) => {
                        let (instance, refusal) = (wish.owner.clone(), Box::new(refusal));
                        (wish.place, Refusal::OfInstance { instance, refusal }.into())
                    }
                    None => (0, refusal.into()),
                });
                continue;
            };
            let name = match held.remove(&route.id) {
                Some((_, name)) => name,
                None => self.name_of(&route).await,
            };
            let network = networks.entry(route.id).or_insert_with(|| Wished {
                route,
                name,
                wishes: Vec::new(),
                lists: Vec::new(),
            });
            // Two names of one network: its lists are numbered on.
            let lists = network.lists.len();
            network.wishes.extend(part.wishes.iter().cloned().map(|wish| wish.behind(lists)));
            network.lists.extend(part.lists.iter().cloned());
        }
        for (id, (route, name)) in held {
            networks.entry(id).or_insert_with(|| Wished { route, name, wishes: Vec::new(), lists: Vec::new() });
        }
        Ok(AllWished { networks: networks.into_values().collect(), missing })
    }

    /// Lets every network decide. Of several refusals the first in the protocol's order, then of the request, is answered.
    async fn decide_plan(
        &self,
        holds: &Holds,
        order: &DeployOrder,
        wished: &mut AllWished,
        (plan, again): (u64, Option<Stage>),
    ) -> Result<Decided, Box<Fault>> {
        let listed: Arc<BTreeSet<Owner>> = Arc::new(order.instances.iter().cloned().collect());
        let transaction = self.transaction();
        let mut decided = Decided { plan, parts: Vec::new(), outcomes: Vec::new() };
        // The others may refuse what comes before that.
        let mut first = wished.missing.take().map(|(place, fault)| ((rank(&fault).0, place), fault));
        for network in &wished.networks {
            let ask = Deploy {
                scope: order.name.clone(),
                plan,
                again: again.is_some(),
                open: again == Some(Stage::Open),
                wishes: network.wishes.clone(),
                lists: network.lists.clone(),
                listed: Arc::clone(&listed),
            };
            match holds.decide(self, &network.route, Command::Deploy(Box::new(ask)), transaction).await {
                Ok((part, outcome)) => {
                    decided.parts.push(part);
                    decided.outcomes.push((network.name.clone(), outcome));
                }
                Err(fault) => {
                    let place = (rank(&fault).0, place_of(&fault, network));
                    if first.as_ref().is_none_or(|(before, _)| place < *before) {
                        first = Some((place, fault));
                    }
                }
            }
        }
        first.map_or(Ok(decided), |(_, fault)| Err(fault))
    }

    /// `deployment.commit` and `deployment.revert`.
    pub(super) async fn settle_deployment(
        &self,
        name: Scope,
        plan: u64,
        instances: Option<Vec<Owner>>,
        revert: bool,
    ) -> Outcomes {
        let seat = self.seat(&name).await?;
        let Some(record) = seat.known.record.clone() else { return Err(Self::missing(&name)) };
        let ended = if revert { Stage::Reverted } else { Stage::Committed };
        let conflict = |problem: String| {
            let (deployment, actual) = (name.clone(), record.plan);
            Refusal::PlanConflict { deployment, problem, expected: plan, actual }
        };
        if record.plan != plan {
            let latest = record.plan;
            return Err(conflict(format!(
                "plan {plan} is not its latest, which is {latest}; look with deployment.get"
            ))
            .into());
        }
        for instance in instances.iter().flatten() {
            if record.how_settled(instance).is_some_and(|how| how != ended) {
                let was = if revert { "committed" } else { "reverted" };
                let refusal = conflict(format!("of plan {plan} it was {was} already; apply what is wished of it"));
                return Err(Refusal::OfInstance { instance: instance.clone(), refusal: Box::new(refusal) }.into());
            }
        }
        if record.stage == ended {
            return Ok(Done::Settled(Vec::new()));
        }
        match record.stage {
            Stage::Open => {}
            Stage::Committed => {
                let problem = format!(
                    "plan {plan} is committed, and cannot be reverted any more; apply what was wished before it"
                );
                return Err(conflict(problem).into());
            }
            Stage::Reverted => {
                return Err(conflict(format!("plan {plan} was reverted; apply the wishes again")).into());
            }
        }
        let networks = self.networks_of(&name).await?;
        let routes: Vec<Arc<Route>> = networks.values().map(|(route, _)| Arc::clone(route)).collect();
        self.together(&routes, "deployment")?;
        let seen = seen_of(&routes);
        let holds = match Holds::of(&self.shared, routes, None).await {
            Ok(holds) => holds,
            Err(fault) => return Err(self.seen_durably(seen, fault).await),
        };
        let partial = instances.is_some();
        let instances = instances.map(|instances| Arc::new(instances.into_iter().collect::<BTreeSet<Owner>>()));
        let committed = Arc::new(record.committed());
        let ask = Settle { scope: name.clone(), plan, instances, committed, revert };
        let transaction = self.transaction();
        let (mut parts, mut let_go, mut waiting, mut earlier) = (Vec::new(), Vec::new(), 0, false);
        let mut settled: BTreeSet<Owner> = BTreeSet::new();
        for (route, network) in networks.values() {
            let command = Command::Settle(Box::new(ask.clone()));
            let (part, outcome) = match holds.decide(self, route, command, transaction).await {
                Ok(decided) => decided,
                Err(fault) => {
                    drop(holds);
                    return Err(self.seen_durably(seen, fault).await);
                }
            };
            parts.push(part);
            if let Outcome::Settled { released, left, earlier: waits, instances } = outcome {
                settled.extend(instances);
                let_go.extend(released.into_iter().map(|address| (network.clone(), address)));
                waiting += left;
                earlier |= waits;
            }
        }
        // The last of many partial ones ends the plan as one for all would.
        let over = !partial || waiting == 0;
        let mut record = Deployment::clone(&record);
        record.settle(&settled, revert);
        if over {
            record.stage = ended;
            // What an earlier plan left, which was never committed, waits for its commit still.
            record.uncommitted_since = record.uncommitted_since.filter(|_| earlier);
        }
        if seat.known.record.as_deref() != Some(&record) {
            record.version = Version(record.version.0 + 1);
        }
        if self.dry_run {
            drop(holds);
            self.durable(seen).await?;
        } else {
            let record = (Some(Arc::new(record)), "name some instances at a time");
            self.conclude(&seat, (holds, seen), parts, record).await?;
        }
        let_go.sort_unstable();
        Ok(Done::Settled(let_go))
    }

    /// `deployment.get`.
    pub(super) async fn deployment(&self, name: Scope) -> Outcomes {
        let known = self.shared.deployments.get(&name, |id| self.shared.shard_of(id));
        let known = if known.stands() { known } else { self.seat(&name).await?.known };
        let Some(record) = known.record else { return Err(Self::missing(&name)) };
        let (mut held, mut after) = (Vec::new(), None);
        loop {
            let filter = Filter { scope: Some(name.clone()), ..Filter::default() };
            match self.list(None, None, filter, after, (LIST_PAGE_RECORDS_MAX, false)).await? {
                Done::Listed { views, next, .. } => {
                    held.extend(views);
                    after = next;
                }
                _ => return Err(lost()),
            }
            if after.is_none() {
                return Ok(Done::Deployment(Deployment::clone(&record), held));
            }
        }
    }

    /// `deployment.list`.
    pub(super) async fn deployments(&self, after: Option<Scope>, limit: usize) -> Outcomes {
        for name in self.shared.deployments.doubtful() {
            drop(self.seat(&name).await?);
        }
        let (page, more) = self.shared.deployments.page(after.as_ref(), limit);
        let next = page.last().filter(|_| more).map(|last| last.name.clone());
        Ok(Done::Deployments { page: page.iter().map(|record| Deployment::clone(record)).collect(), next })
    }

    /// `deployment.delete`: in slices, as `scope.release`; the record goes last.
    pub(super) async fn delete_deployment(&self, name: Scope) -> Outcomes {
        let seat = self.seat(&name).await?;
        if seat.known.record.is_none() {
            return Err(Self::missing(&name));
        }
        let command = |limit| Command::ReleaseScope { scope: name.clone(), limit };
        let done = self.release(None, (&name, None), command).await?;
        if let Done::Released { more: false, .. } = &done
            && !self.dry_run
        {
            let holds = Holds::of(&self.shared, Vec::new(), None).await?;
            self.conclude(&seat, (holds, Vec::new()), Vec::new(), (None, "")).await.map_err(|fault| match *fault {
                // What it held was let go all the same.
                Fault::Unavailable { problem, .. } => {
                    Box::new(Fault::Unavailable { applied: Applied::Unknown, problem })
                }
                fault => Box::new(fault),
            })?;
        }
        Ok(done)
    }
}

/// Place of a refusal in the request: of the first wish of its instance there.
fn place_of(fault: &Fault, network: &Wished) -> usize {
    let (Fault::Refused(Refusal::OfInstance { instance, .. }) | Fault::Contested { instance: Some(instance), .. }) =
        fault
    else {
        return 0;
    };
    let of_it = network.wishes.iter().filter(|wish| wish.owner == *instance);
    of_it.map(|wish| wish.place).min().unwrap_or_default()
}

/// The record behind a plan.
fn recorded(
    before: Option<&Arc<Deployment>>,
    order: &DeployOrder,
    plan: u64,
    changed: bool,
    wall: WallTime,
) -> Deployment {
    let waiting = before.and_then(|record| record.uncommitted_since);
    let uncommitted_since = waiting.or(changed.then_some(wall));
    let same = before.filter(|record| record.plan == plan);
    // What was reverted of it is wished again.
    let settled = same.map_or_else(Vec::new, |record| {
        record.settled.iter().filter(|settled| !(settled.reverted && changed)).copied().collect()
    });
    match same {
        Some(record) if (&record.uncommitted_since, &record.settled) == (&uncommitted_since, &settled) => {
            Deployment::clone(record)
        }
        _ => Deployment {
            name: order.name.clone(),
            plan,
            wishes: order.wishes,
            stage: same.map_or(Stage::Open, |record| record.stage),
            uncommitted_since,
            settled,
            version: Version(before.map_or(0, |record| record.version.0) + 1),
        },
    }
}

/// The answer, in the order of the request.
fn answered(order: &DeployOrder, outcomes: Vec<(Name, Outcome)>, plan: u64) -> DeployedAll {
    let whose: BTreeMap<usize, (&Owner, &Slot)> = (order.parts.iter().flat_map(|part| &part.wishes))
        .map(|wish| (wish.place, (&wish.owner, &wish.slot)))
        .collect();
    let mut by_place: BTreeMap<usize, DeployedSlot> = BTreeMap::new();
    let mut let_go = Vec::new();
    for (network, outcome) in outcomes {
        let Outcome::Deployed { slots, obsolete, .. } = outcome else { continue };
        let_go.extend(obsolete);
        for Deployed { place, state, view, replaces } in slots {
            if let Some((_, slot)) = whose.get(&place) {
                let network = network.clone();
                by_place.insert(place, DeployedSlot { network, slot: (*slot).clone(), state, view, replaces });
            }
        }
    }
    let mut of_instance: BTreeMap<&Owner, Vec<DeployedSlot>> = BTreeMap::new();
    for (place, slot) in by_place {
        if let Some((owner, _)) = whose.get(&place) {
            of_instance.entry(owner).or_default().push(slot);
        }
    }
    let slots = |owner: &Owner| (owner.clone(), of_instance.remove(owner).unwrap_or_default());
    let instances = order.instances.iter().map(slots).collect();
    let_go.sort_by(|a, b| (&a.network.name, a.address).cmp(&(&b.network.name, b.address)));
    DeployedAll { plan: order.apply.then_some(plan), instances, obsolete: let_go }
}
