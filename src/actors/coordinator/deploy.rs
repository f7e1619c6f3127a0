//! Deployments: grants what a deployment wishes, in all networks where it wishes or holds something, and writes its record, in
//! one commit.
//!
//! ```text
//! lock the deployment ─▶ hold the networks, in order ─▶ deal zones ─▶ each decides ─▶ one joint unit with the record ─▶ go on
//! ```
//!
//! **All or nothing.** A deploy is one group commit (`joint`), so a crash, a rollback or a lost node leaves all of it or none.
//! **The same wishes again are the same plan**: they are decided under its number, and become a new plan only if that changes
//! something and the plan has ended. A client ends a plan only when it has the plan's answer, so a repeat after a lost answer
//! finds the plan open. A deploy that comes after the commit is the next one: it moves wishes that are `fresh` again, and
//! misses transient ones again. A duplicate that was delayed until then does the same: it opens a plan that nobody knows of,
//! under which nothing is released before that plan, or the next, is committed.
//!
//! This file grants a plan; `settle` ends it, `record` keeps what is known of a deployment, and `length` estimates what fits
//! into an answer.
//!
//! Review notes: does a refusal leave by `seen_durably`?

mod length;
pub(in crate::actors) mod record;
mod settle;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use self::record::{Conclusion, DeploymentChange};
use super::configure::is_gone;
use super::joint::{Holds, NotHeld, rank, seen_of};
use super::walk::Walk;
use super::{Coordinator, Done, Outcomes};
use crate::actors::Fault;
use crate::actors::committer::UnitPart;
use crate::actors::routes::Route;
use crate::core::address::Address;
use crate::core::command::Command;
use crate::core::deployment::{
    Deploy, DeployWish, Deployed, Deployment, SlotState, Stage, StaticList, Wanted, uncommitted_from,
};
use crate::core::outcome::{Outcome, View};
use crate::core::refusal::{Missing, Refusal};
use crate::core::types::{Name, NetworkId, Owner, Scope, Slot, Version, WallTime};
use crate::core::zones::{self, ZoneFacts, ZoneGroup};

/// What a deployment wishes of one network, under one of its names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployPart {
    /// As the client named it.
    pub network: CompactString,
    /// The wishes; places count over all parts.
    pub wishes: Vec<DeployWish>,
    /// Addresses that groups deal out here.
    pub lists: Vec<StaticList>,
}

/// `deployment.plan` and `deployment.apply`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployOrder {
    /// The deployment.
    pub name: Scope,
    /// Every instance, in the order of the request.
    pub instances: Vec<Owner>,
    /// The wishes, by network.
    pub parts: Vec<DeployPart>,
    /// Zones that groups deal out to their instances.
    pub zones: Vec<ZoneGroup>,
    /// Hash of all wishes.
    pub wishes: u128,
    /// Carry it out, instead of reporting what would happen.
    pub apply: bool,
}

/// What became of one wish of an instance.
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
    /// The address that is released for it.
    pub replaces: Option<Address>,
}

/// The answer of `deployment.plan` and `deployment.apply`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployedAll {
    /// The number of the plan; only for an apply.
    pub plan: Option<u64>,
    /// By instance, in the order of the request.
    pub instances: Vec<(Owner, Vec<DeployedSlot>)>,
    /// What the deployment releases with its commit.
    pub obsolete: Vec<View>,
}

/// A network of a deployment, and what is wished of it.
struct Wished {
    route: Arc<Route>,
    name: Name,
    /// The name by which the network is asked for, if it is by name.
    named: Option<Name>,
    wishes: Vec<DeployWish>,
    lists: Vec<StaticList>,
    /// Does the request name it? Otherwise the deployment only holds something there.
    is_named: bool,
}

impl Wished {
    /// The question to it under a plan: its number, and how the plan stands if it is the latest one again.
    fn ask(
        &self,
        scope: &Scope,
        (plan, again): (u64, Option<Stage>),
        wishes: Vec<DeployWish>,
        listed: Arc<BTreeSet<Owner>>,
    ) -> Deploy {
        let (again, open) = (again.is_some(), again == Some(Stage::Open));
        Deploy { scope: scope.clone(), plan, again, open, wishes, lists: self.lists.clone(), listed }
    }
}

/// The networks of a plan.
struct AllWished {
    /// By id.
    networks: Vec<Wished>,
    /// The first network in the request that does not exist: its place, and the answer if nothing comes before it.
    missing: Option<(usize, Box<Fault>)>,
}

impl AllWished {
    /// The answer if one of the networks could not be held: if it is gone or was renamed, the same as if it had never been
    /// found.
    fn not_held(self, fault: Fault, network: NetworkId) -> Box<Fault> {
        let wished = self.networks.iter().find(|wished| wished.route.id == network);
        let refused = match fault {
            Fault::Refused(refusal) => of_first_wish(wished.map_or(&[], |wished| &wished.wishes), refusal),
            fault => return Box::new(fault),
        };
        self.missing.filter(|(place, _)| *place < refused.0).unwrap_or(refused).1
    }
}

/// Attributes what a network refuses as a whole to the first wish there, if there is one. Returns that wish's place, too.
fn of_first_wish(wishes: &[DeployWish], refusal: Refusal) -> (usize, Box<Fault>) {
    match wishes.iter().min_by_key(|wish| wish.place) {
        Some(wish) => {
            let (instance, refusal) = (wish.owner.clone(), Box::new(refusal));
            (wish.place, Refusal::OfInstance { instance, refusal }.into())
        }
        None => (0, refusal.into()),
    }
}

/// The networks that a request names, with the name if it is not by id.
type Names = HashMap<NetworkId, Option<Name>>;

/// What networks decided about one plan.
struct Decided {
    plan: u64,
    parts: Vec<UnitPart>,
    outcomes: Vec<(Name, Outcome)>,
}

impl Decided {
    /// Is anything granted, promised, made obsolete or current again? A note about what is not listed is not a change.
    fn changed(&self) -> bool {
        self.outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Deployed { changed: true, .. }))
    }

    /// Is there something to commit: is anything changed, or still obsolete from an earlier plan?
    fn waits_for_commit(&self) -> bool {
        let is_obsolete =
            |outcome: &Outcome| matches!(outcome, Outcome::Deployed { obsolete, .. } if !obsolete.is_empty());
        self.changed() || self.outcomes.iter().any(|(_, outcome)| is_obsolete(outcome))
    }
}

impl Coordinator {
    /// The networks in which a scope holds something, with their names, including deleted ones that are still remembered.
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

    /// Holds networks, in order of their ids, without those that ended since they were found: these hold nothing of the
    /// deployment any more. A network that the request names must exist, under that name. Otherwise returns which one cannot
    /// be held.
    async fn hold_what_is_there(
        &self,
        mut routes: Vec<Arc<Route>>,
        names: &Names,
    ) -> Result<Holds, (Box<Fault>, NetworkId)> {
        loop {
            let called: Vec<Option<Name>> = routes.iter().map(|route| names.get(&route.id)?.clone()).collect();
            let NotHeld { fault, at, holds } = match Holds::in_turn(&self.shared, &routes, &called, None).await {
                Ok(holds) => return Ok(holds),
                Err(not_held) => not_held,
            };
            drop(holds);
            let network = routes[at].id;
            if !is_gone(&fault) || names.contains_key(&network) {
                return Err((fault, network));
            }
            // Only once that is durable: if the network came back, so would its holdings.
            match self.ask_item(&routes[at], self.item(Command::Show, false)).await {
                Err(fault) if is_gone(&fault) => drop(routes.remove(at)),
                Err(fault) => return Err((fault, network)),
                Ok(_) => {}
            }
        }
    }

    /// `deployment.plan` and `deployment.apply`.
    pub(super) async fn deploy(&self, order: DeployOrder) -> Outcomes {
        let seat = self.seat(&order.name).await?;
        let mut wished = self.wished(&order).await?;
        let routes: Vec<Arc<Route>> = wished.networks.iter().map(|network| Arc::clone(&network.route)).collect();
        self.together(&routes, "deployment")?;
        let seen = seen_of(&routes);
        let named = wished.networks.iter().filter(|network| network.is_named);
        let names: Names = named.map(|network| (network.route.id, network.named.clone())).collect();
        let holds = match self.hold_what_is_there(routes, &names).await {
            Ok(holds) => holds,
            Err((fault, network)) => return Err(self.seen_durably(seen, wished.not_held(*fault, network)).await),
        };
        let there: HashSet<NetworkId> = holds.routes().iter().map(|route| route.id).collect();
        wished.networks.retain(|network| there.contains(&network.route.id));
        self.begin()?;
        let before = seat.known.record.as_ref();
        let wall = self.shared.clock.wall();
        let decided = match self.decide(&holds, &order, &mut wished, (before, wall)).await {
            Ok(decided) => decided,
            Err(fault) => {
                drop(holds);
                return Err(self.seen_durably(seen, fault).await);
            }
        };
        if let Err(refusal) = length::can_be_told(decided.outcomes.iter().map(|(_, outcome)| outcome)) {
            drop(holds);
            return Err(self.seen_durably(seen, refusal.into()).await);
        }
        let record = recorded(before, &order, &decided, wall);
        let answer = answered(&order, decided.outcomes, decided.plan);
        let fewer = if answer.obsolete.is_empty() {
            "make several deployments of it"
        } else {
            "first release what is no longer listed (ip.release, owner.release), or make several deployments of it"
        };
        let ends = if order.apply && !self.dry_run { Conclusion::Commit } else { Conclusion::Look };
        let change = DeploymentChange { parts: decided.parts, record: Some(Arc::new(record)), fewer };
        self.conclude(&seat, holds, seen, change, ends).await?;
        Ok(Done::Deployed(Box::new(answer)))
    }

    /// Gives the zones of groups to their instances, according to what all networks report of these under this plan.
    async fn deal_zones(
        &self,
        holds: &Holds,
        order: &DeployOrder,
        wished: &mut AllWished,
        plan: (u64, Option<Stage>),
    ) -> Result<(), Box<Fault>> {
        let dealt_to: BTreeSet<Owner> = order.zones.iter().flat_map(|group| &group.instances).cloned().collect();
        if dealt_to.is_empty() {
            return Ok(());
        }
        let dealt_to = Arc::new(dealt_to);
        let is_dealt = |wish: &DeployWish| dealt_to.contains(&wish.owner);
        let mut facts = ZoneFacts::default();
        for network in &wished.networks {
            if !network.wishes.iter().any(is_dealt) {
                continue;
            }
            // The other wishes take something of the same lists.
            let of_it = network.wishes.iter().filter(|wish| is_dealt(wish) || matches!(wish.wanted, Wanted::Dealt(_)));
            let zone = |wish: &DeployWish| wish.zone.clone().filter(|_| !is_dealt(wish));
            let wishes = of_it.map(|wish| DeployWish { zone: zone(wish), ..wish.clone() }).collect();
            let look = Command::ZoneTies(Box::new(network.ask(&order.name, plan, wishes, Arc::clone(&dealt_to))));
            if let (_, Outcome::ZoneTies(of_it)) = holds.decide(self, &network.route, look, self.transaction()).await? {
                facts.add(of_it);
            }
        }
        let dealt = zones::deal(&order.zones, &facts);
        for wish in wished.networks.iter_mut().flat_map(|network| &mut network.wishes) {
            if let Some(zone) = dealt.get(&wish.owner) {
                wish.zone = Some(zone.clone());
            }
        }
        Ok(())
    }

    /// Decides under the number that the plan has. The same wishes again are the same plan, unless that plan ended and its
    /// result has changed since, or is not what is wished now: then they are a new plan.
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
        if record.stage == Stage::Open || !decided.waits_for_commit() {
            return Ok(decided);
        }
        self.decide_plan(holds, order, wished, (next, None)).await
    }

    /// The networks of a plan: those with wishes, and those in which the deployment holds something.
    async fn wished(&self, order: &DeployOrder) -> Result<AllWished, Box<Fault>> {
        let mut held = self.networks_of(&order.name).await?;
        let mut networks: BTreeMap<NetworkId, Wished> = BTreeMap::new();
        let mut missing = None;
        for part in &order.parts {
            let Some(route) = self.shared.routes.find(&part.network) else {
                let refusal = Refusal::not_found(Missing::Network, &part.network);
                missing.get_or_insert_with(|| of_first_wish(&part.wishes, refusal));
                continue;
            };
            let name = match held.remove(&route.id) {
                Some((_, name)) => name,
                None => self.name_of(&route).await?,
            };
            let network = networks.entry(route.id).or_insert_with(|| Wished {
                route,
                name,
                named: None,
                wishes: Vec::new(),
                lists: Vec::new(),
                is_named: true,
            });
            if network.route.is_called(&part.network) {
                network.named.clone_from(&network.route.name);
            }
            // If one network has two names in the request, its lists are numbered on.
            let lists = network.lists.len();
            network.wishes.extend(part.wishes.iter().cloned().map(|wish| wish.behind(lists)));
            network.lists.extend(part.lists.iter().cloned());
        }
        for (id, (route, name)) in held {
            let (named, wishes, lists) = (None, Vec::new(), Vec::new());
            networks.entry(id).or_insert_with(|| Wished { route, name, named, wishes, lists, is_named: false });
        }
        Ok(AllWished { networks: networks.into_values().collect(), missing })
    }

    /// Lets every network decide, once each instance has its zone. If several refuse, the answer is the first refusal by the
    /// protocol's order, then by the order of the request.
    async fn decide_plan(
        &self,
        holds: &Holds,
        order: &DeployOrder,
        wished: &mut AllWished,
        plan: (u64, Option<Stage>),
    ) -> Result<Decided, Box<Fault>> {
        // What an instance keeps, and so its zone, depends on the plan.
        self.deal_zones(holds, order, wished, plan).await?;
        let listed: Arc<BTreeSet<Owner>> = Arc::new(order.instances.iter().cloned().collect());
        let transaction = self.transaction();
        let mut decided = Decided { plan: plan.0, parts: Vec::new(), outcomes: Vec::new() };
        // The other networks may refuse something that comes before that.
        let mut first = wished.missing.take().map(|(place, fault)| ((rank(&fault).0, place), fault, None));
        for network in &wished.networks {
            let ask = network.ask(&order.name, plan, network.wishes.clone(), Arc::clone(&listed));
            match holds.decide(self, &network.route, Command::Deploy(Box::new(ask)), transaction).await {
                Ok((part, outcome)) => {
                    decided.parts.push(part);
                    decided.outcomes.push((network.name.clone(), outcome));
                }
                Err(fault) => {
                    let place = (rank(&fault).0, place_of(&fault, network));
                    if first.as_ref().is_none_or(|(before, ..)| place < *before) {
                        first = Some((place, fault, Some(&network.route)));
                    }
                }
            }
        }
        let Some((_, fault, decided_by)) = first else { return Ok(decided) };
        // `deployment.plan` only asks what would happen, so its refusals are not counted.
        if let Some(route) = decided_by.filter(|_| order.apply) {
            self.note_answer(route, &fault);
        }
        Err(fault)
    }
}

/// The place of a refusal in the request: that of the first wish of its instance there.
fn place_of(fault: &Fault, network: &Wished) -> usize {
    let (Fault::Refused(Refusal::OfInstance { instance, .. }) | Fault::Contested { instance: Some(instance), .. }) =
        fault
    else {
        return 0;
    };
    let of_it = network.wishes.iter().filter(|wish| wish.owner == *instance);
    of_it.map(|wish| wish.place).min().unwrap_or_default()
}

/// The record after a plan.
fn recorded(before: Option<&Arc<Deployment>>, order: &DeployOrder, decided: &Decided, wall: WallTime) -> Deployment {
    let (plan, changed) = (decided.plan, decided.changed());
    let waiting = before.and_then(|record| record.uncommitted_since);
    let same = before.filter(|record| record.plan == plan);
    let from = if same.is_some() { wall } else { uncommitted_from(before.map(|record| record.plan), wall) };
    let uncommitted_since = waiting.or(decided.waits_for_commit().then_some(from));
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
                // The network that holds it knows its own name: it may have been renamed since it was looked up.
                let network = view.as_ref().map_or_else(|| network.clone(), |view| view.network.name.clone());
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
