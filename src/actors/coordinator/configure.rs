//! Acts on names and space: create, rename, delete and restore, and whatever gives space of a realm to a subnet.
//!
//! Widen first, narrow last. An act locks its networks at the directory. What widens space is first tried at the
//! network without effect, then noted as an intent in the catalog, committed by the network, and settled with what is durable
//! after that. If the commit is in doubt, or the network does not say what it has now, the client is answered at once, and the
//! coordinator asks the store before the lock ends (see `locked`).

use std::sync::Arc;

use super::locked::{LockedAct, is_certainly_not_done, is_in_doubt};
use super::{Coordinator, Done, Outcomes, Tell, lost};
use crate::actors::clock::Moment;
use crate::actors::committer::{Enqueue, Staged, Unit, UnitPart};
use crate::actors::directory::{CatalogCheck, DurableNetwork};
use crate::actors::network::PurgeOn;
use crate::actors::routes::{Lane, Route};
use crate::actors::{Answer, Fault, Reply, only_answer};
use crate::core::catalog::Intent;
use crate::core::command::{Command, Configure, Context, NetworkInput, SubnetRef};
use crate::core::network::{self, Network};
use crate::core::outcome::{Decision, NetworkView, Outcome};
use crate::core::refusal::{Refusal, members};
use crate::core::state::SubnetConfig;
use crate::core::types::{Generation, NetworkId, ShardTime, SubnetId, Version};
use crate::limits::BATCH_CHANGES_MAX;
use crate::store::Act;

fn by_its_id(route: &Route) -> String {
    format!("and it goes by its id ({}): ask again by that for the rest", route.id)
}

/// Lets a network that is being purged release the rest by itself from now on.
#[expect(clippy::disallowed_methods, reason = "lost only with an actor that is gone, and a new one goes on by itself")]
fn goes_on_purging(route: &Route) {
    // Sent however full its mailbox is: that may be why the purge was refused.
    route.addr.do_send(PurgeOn);
}

impl Coordinator {
    /// `network.create`.
    pub(super) async fn create(&self, input: &NetworkInput, if_absent: bool, tell: &mut Tell) {
        let id = NetworkId(crate::core::command::derived_id(self.shared.clock.entropy(), 0));
        let shard = self.shared.shard_of(id);
        let Moment { now, wall, since: _ } = self.shared.shard_moment(shard);
        let context = Context {
            now,
            wall,
            entropy: self.shared.clock.entropy(),
            mac_elsewhere: None,
            generations: Generation::default(),
        };
        let decided = network::create(input, id, context).and_then(|decision| {
            self.shared.fits_one_commit("subnets", &decision.steps)?;
            Ok(decision)
        });
        let Decision { steps, outcome } = match decided {
            Ok(decision) => decision,
            Err(refusal) => return tell.tell(self.refused_by_itself(input, if_absent, refusal).await),
        };
        let Outcome::Network(view) = outcome else { return tell.tell(Err(lost())) };
        let NetworkView { config, subnets, .. } = *view.clone();
        let mut act = match self.lock(vec![id]).await {
            Ok(act) => act,
            Err(fault) => return tell.tell(Err(fault)),
        };
        let intent = Intent {
            network: id,
            realm: config.realm.clone(),
            name: Some(config.name.clone()),
            subnets: subnets.iter().map(|subnet| (subnet.id, subnet.cidr)).collect(),
        };
        if let Err(fault) = act.intend(CatalogCheck::Create, intent).await {
            let answer = match *fault {
                Fault::Refused(refusal @ Refusal::NameTaken { .. }) if if_absent => self.compare(input, refusal).await,
                fault => Err(Box::new(fault)),
            };
            return tell.tell(answer);
        }
        let created = if_absent.then_some(true);
        if self.dry_run {
            return tell.tell(Ok(Done::Network(view, created)));
        }
        // The store would refuse it together with what others release.
        if let Err(fault) = self.shared.reserve.claim_if_taken(&steps, &*self.shared.store) {
            return tell.tell(Err(fault));
        }
        // The act of another, for which it waited, may have taken long.
        if let Err(fault) = self.begin() {
            return tell.tell(Err(fault));
        }
        let lane = Arc::new(Lane::new(id, shard));
        let record =
            Act { network: id, wall, by: self.by.clone(), reason: self.reason.clone(), transaction: None, steps };
        act.begins(&lane, true);
        let committed = self.commit_alone(&lane, record).await;
        if let Some(hook) = &self.shared.hooks.behind_commit {
            hook();
        }
        let floor = self.shared.generations.floor(self.shared.clock.wall());
        match committed {
            Ok(_) => {
                act.settle(DurableNetwork { config, subnets }, Some(floor)).await;
                tell.tell(Ok(Done::Network(view, created)));
            }
            Err(fault) => {
                if !is_in_doubt(&fault) {
                    act.came_to_nothing();
                }
                tell.tell(Err(fault));
                act.settle_as_stored().await;
            }
        }
    }

    /// The answer if a network is refused for its own contents: that its name is taken, unless something in the request is not
    /// a value that could be meant.
    async fn refused_by_itself(&self, input: &NetworkInput, if_absent: bool, refusal: Refusal) -> Outcomes {
        let meant = !matches!(refusal, Refusal::InvalidArgument { .. });
        let named =
            self.shared.routes.find(input.name.as_str()).filter(|route| route.name.as_ref() == Some(&input.name));
        let taken = Refusal::NameTaken { what: format!("network `{}`", input.name), differs: Vec::new() };
        if !meant || named.is_none() {
            // What exists already may date from a time when it was not refused.
            let stands = if if_absent && named.is_some() { self.compare(input, taken).await.ok() } else { None };
            return stands.ok_or_else(|| refusal.into());
        }
        if !if_absent {
            return Err(taken.into());
        }
        // No network has such a contradiction; if nothing else differs, the contradiction itself is what is wrong with the
        // request.
        self.compare(input, taken).await.and(Err(refusal.into()))
    }

    /// With `if_absent`: the existing network of that name, if it is what was asked for.
    async fn compare(&self, input: &NetworkInput, refusal: Refusal) -> Outcomes {
        let Some(route) = self.shared.routes.find(input.name.as_str()) else { return Err(refusal.into()) };
        let Outcome::Network(view) = self.ask(&route, Command::Show).await? else { return Err(lost()) };
        let NetworkView { config, subnets, .. } = *view.clone();
        let present = Network::load(config, subnets, Vec::new(), Generation(0), ShardTime(0)).map_err(|misfit| {
            tracing::error!(network = %route.id, problem = misfit.to_string(), "a network that is served cannot be compared");
            lost()
        })?;
        let differs = present.differs_from(input);
        if differs.is_empty() {
            return Ok(Done::Network(view, Some(false)));
        }
        Err(Refusal::NameTaken { what: format!("network `{}`", input.name), differs: members(differs) }.into())
    }

    async fn commit_alone(&self, lane: &Arc<Lane>, record: Act) -> Answer {
        let (outlet, answers) = crate::actors::outlet();
        let part = UnitPart::new(Arc::clone(lane), 0, vec![record]);
        let staged = Staged { reply: Reply { ticket: 0, answer: Ok(Outcome::Done) }, wrote: true };
        self.shared.enqueue(Enqueue(Unit::new(vec![part], Some(outlet), vec![staged])));
        only_answer(answers).await.unwrap_or_else(|| Err(lost()))
    }

    /// Finds the network of this name and locks it. A job that waited for the lock while the network was renamed or deleted
    /// means the one that has the name now: of several jobs that rename a network by its old name the first succeeds, and the
    /// others find nothing.
    pub(super) async fn lock_named(&self, text: &str) -> Result<(Arc<Route>, LockedAct), Box<Fault>> {
        loop {
            let asked = self.route(text)?;
            let act = self.lock(vec![asked.id]).await?;
            let route = self.route(text)?;
            if route.id == asked.id {
                return Ok((route, act));
            }
        }
    }

    /// Carries out a change of one network that concerns names or space.
    pub(super) async fn configure(
        &self,
        route: &Arc<Route>,
        mut act: LockedAct,
        change: Configure,
        if_version: Option<Version>,
        tell: &mut Tell,
    ) {
        let command = || Command::Configure { change: Box::new(change.clone()), if_version };
        let widens = match self.widens(route, &change).await {
            Ok(widens) => widens,
            Err(fault) => return tell.tell(Err(fault)),
        };
        if let Some((check, intent)) = widens {
            // Tried dry first: what the network itself refuses is answered first if the protocol says so.
            let dry = self.ask_item(route, self.item(command(), true)).await;
            let noted = |dry: Answer| dry.inspect_err(|fault| self.note_answer(route, fault)).map(Done::Outcome);
            match &dry {
                Ok(Outcome::Subnet { created: false, .. }) if matches!(change, Configure::SubnetAdd { .. }) => {
                    return tell.tell(dry.map(Done::Outcome));
                }
                // A taken name also comes before an overlap of the network's own subnets.
                Err(fault) if comes_before_overlap(fault) && !(intent.name.is_some() && is_overlap(fault)) => {
                    return tell.tell(noted(dry));
                }
                Err(_) if self.is_there(route, &change).await => return tell.tell(noted(dry)),
                Ok(_) | Err(_) => {}
            }
            if let Err(fault) = act.intend(check, intent).await {
                return tell.tell(Err(fault));
            }
            if dry.is_err() || self.dry_run {
                return tell.tell(noted(dry));
            }
        }
        let purge = matches!(change, Configure::Delete { purge: true, .. });
        let closes = purge || matches!(change, Configure::Delete { force: true, .. });
        let purges_on = purge && self.is_purged(route).await;
        if !self.dry_run {
            act.begins(&route.lane, false);
        }
        let mut answer = self.ask(route, command()).await;
        if self.dry_run {
            if purge && let Ok(Outcome::Deleted { holding, .. }) = &mut answer {
                // As the real one answers: nothing would be left.
                *holding = 0;
            }
            return tell.tell(answer.map(Done::Outcome));
        }
        if purge && let Ok(Outcome::Deleted { holding, .. }) = &mut answer {
            // Its name is free and it refuses grants from here on; its holdings are released in bounded steps.
            self.settle_as_is(&mut act, route, None).await;
            let held = *holding;
            let purged = self.purge(route, holding).await;
            if purged.is_err() {
                goes_on_purging(route);
            }
            match purged {
                Ok(()) => *holding = 0,
                // This call released nothing.
                Err(fault) if is_certainly_not_done(&fault) && purges_on && *holding == held => answer = Err(fault),
                // What this call released is known: the answer tells what is left. A client that asks for the rest is told
                // what is in the way.
                Err(fault) if is_certainly_not_done(&fault) => {}
                Err(fault) => {
                    let done = format!("the network was closed, {}", by_its_id(route));
                    answer = Err(Box::new(fault.after(&done)));
                }
            }
        }
        match &mut answer {
            // Whatever this does not settle is settled as it is stored, below.
            Ok(outcome) => {
                let answered = if let Outcome::Network(view) = outcome { Some(&**view) } else { None };
                self.settle_as_is(&mut act, route, answered).await;
            }
            Err(fault) if !is_in_doubt(fault) => act.came_to_nothing(),
            Err(fault) => {
                if let (Fault::Unavailable { problem, .. }, true) = (&mut **fault, closes) {
                    *problem = format!("{problem}; if it is closed by now its name is free, {}", by_its_id(route));
                }
            }
        }
        tell.tell(answer.map(Done::Outcome));
        act.settle_as_stored().await;
    }

    /// Was it closed to be purged before? If the network does not answer, that is not known, and counts as no.
    async fn is_purged(&self, route: &Arc<Route>) -> bool {
        route.name.is_none() && self.show(route).await.is_ok_and(|view| view.config.purged)
    }

    /// Releases everything that a closed network holds: `holding` reservations, and then what is left of them.
    async fn purge(&self, route: &Arc<Route>, holding: &mut u64) -> Result<(), Box<Fault>> {
        let mut limit = BATCH_CHANGES_MAX;
        loop {
            match self.ask(route, Command::Purge { limit }).await {
                Err(fault) if limit > 1 && self.is_too_much(&fault) => limit /= 2,
                Ok(Outcome::LetGo { released, more: true }) => {
                    *holding = holding.saturating_sub(released.len() as u64);
                }
                Ok(_) => return Ok(()),
                Err(fault) if is_gone(&fault) => return Ok(()),
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Lists and publishes a network as it is now. If it does not answer, the durable answer of the act (`answered`) is used:
    /// a client that was told the new name must find the network by it. False if neither is known: then the store has to be
    /// read.
    pub(super) async fn settle_as_is(
        &self,
        act: &mut LockedAct,
        route: &Arc<Route>,
        answered: Option<&NetworkView>,
    ) -> bool {
        let view = match self.show(route).await {
            Ok(view) => Some(view),
            Err(fault) if is_gone(&fault) => {
                act.gone(route.id);
                return true;
            }
            Err(_) => answered.cloned(),
        };
        let Some(NetworkView { config, subnets, .. }) = view else { return false };
        act.settle(DurableNetwork { config, subnets }, None).await;
        true
    }

    /// The space that a change takes beyond what the network has, if any. A change for which that cannot be determined takes
    /// none.
    async fn widens(
        &self,
        route: &Arc<Route>,
        change: &Configure,
    ) -> Result<Option<(CatalogCheck, Intent)>, Box<Fault>> {
        let intent = |name, subnets| Intent { network: route.id, realm: route.realm.clone(), name, subnets };
        // The network draws the id of a new subnet; until that is settled any other will do.
        let new_id = || SubnetId(self.shared.clock.entropy());
        Ok(match change {
            Configure::Update(set) => {
                let taken = match &set.subnets {
                    Some(entries) => network::subnets_taken_by(&self.show(route).await?.subnets, entries),
                    None => Vec::new(),
                };
                let subnets: Vec<_> = taken.into_iter().map(|(id, cidr)| (id.unwrap_or_else(new_id), cidr)).collect();
                let takes = set.name.is_some() || !subnets.is_empty();
                takes.then(|| (CatalogCheck::Update, intent(set.name.clone(), subnets)))
            }
            Configure::Restore => {
                let view = self.show(route).await?;
                Some((CatalogCheck::Restore, intent(Some(view.config.name.clone()), Vec::new())))
            }
            Configure::SubnetAdd { input, .. } => {
                Some((CatalogCheck::Space(None), intent(None, vec![(new_id(), input.cidr)])))
            }
            Configure::SubnetModify { subnet, set } => match set.cidr {
                Some(cidr) => find_subnet(&self.show(route).await?.subnets, subnet).map(|present| {
                    (CatalogCheck::Space(Some((route.id, present.id))), intent(None, vec![(present.id, cidr)]))
                }),
                None => None,
            },
            Configure::Delete { .. }
            | Configure::SubnetRemove { .. }
            | Configure::PoolAdd { .. }
            | Configure::PoolModify { .. }
            | Configure::PoolRemove(_)
            | Configure::ReservedAdd(_)
            | Configure::ReservedRemove { .. } => None,
        })
    }

    /// Does `if_absent` refer to a subnet that the network has? Then nothing is compared with itself.
    async fn is_there(&self, route: &Arc<Route>, change: &Configure) -> bool {
        let Configure::SubnetAdd { input, if_absent: true } = change else { return false };
        let Ok(view) = self.show(route).await else { return false };
        view.subnets.iter().any(|subnet| subnet.cidr == input.cidr || input.name.is_some() && subnet.name == input.name)
    }

    /// What a network has, durably. The caller has locked it.
    pub(super) async fn show(&self, route: &Arc<Route>) -> Result<NetworkView, Box<Fault>> {
        match self.ask_beside(route, Command::Show).await? {
            Outcome::Network(view) => Ok(*view),
            _ => Err(lost()),
        }
    }
}

pub(super) fn find_subnet<'a>(subnets: &'a [Arc<SubnetConfig>], wanted: &SubnetRef) -> Option<&'a Arc<SubnetConfig>> {
    match wanted {
        SubnetRef::Cidr(cidr) => subnets.iter().find(|subnet| subnet.cidr == *cidr),
        SubnetRef::Named(text) => subnets
            .iter()
            .find(|subnet| subnet.name.as_ref().is_some_and(|name| name.as_str() == text))
            .or_else(|| subnets.iter().find(|subnet| Some(subnet.id) == text.parse().ok())),
    }
}

/// Refusals of the network that are answered before an overlap or a taken name that the catalog finds.
pub(super) fn comes_before_overlap(fault: &Fault) -> bool {
    match fault {
        Fault::Refused(refusal @ Refusal::NameTaken { .. }) => refusal.precedence() > 0,
        Fault::Refused(refusal) => refusal.precedence() <= 4,
        Fault::Overloaded { .. }
        | Fault::Unavailable { .. }
        | Fault::StoreAway { .. }
        | Fault::NotReady { .. }
        | Fault::Contested { .. }
        | Fault::Stopped { .. }
        | Fault::CursorLost { .. }
        | Fault::Internal { .. } => true,
    }
}

fn is_overlap(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused(Refusal::Overlap { .. } | Refusal::PoolOverlap { .. }))
}

/// Does something not exist: the network (any more), or what was named in it?
pub(super) fn is_gone(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused(Refusal::NotFound { .. }))
}
