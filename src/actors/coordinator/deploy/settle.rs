//! How a plan ends: `deployment.commit` and `deployment.revert`, for all of its instances or for some.
//!
//! Before: the coordinator, and `record`, which holds the lock of the deployment. Each network decides what happens to its
//! holdings; all of it is one commit with the record.
//!
//! Review notes: does a refusal leave by `seen_durably`?

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Names;
use super::record::{Conclusion, DeploymentChange};
use crate::actors::Fault;
use crate::actors::committer::UnitPart;
use crate::actors::coordinator::joint::{Holds, seen_of};
use crate::actors::coordinator::{Coordinator, Done, Outcomes};
use crate::actors::routes::Route;
use crate::core::address::Address;
use crate::core::command::Command;
use crate::core::deployment::{Deployment, Settle, Stage};
use crate::core::outcome::Outcome;
use crate::core::refusal::{PlanHindrance, Refusal};
use crate::core::types::{Name, Owner, Scope, Version};

/// The end of a plan that is asked for.
struct PlanEnd<'a> {
    deployment: &'a Scope,
    plan: u64,
    /// Only these instances.
    instances: Option<&'a [Owner]>,
    revert: bool,
}

impl PlanEnd<'_> {
    fn stage(&self) -> Stage {
        if self.revert { Stage::Reverted } else { Stage::Committed }
    }

    /// Has the plan already ended in this way, for all that are meant? Then there is nothing left to do.
    ///
    /// # Errors
    /// `plan_conflict` if the plan cannot end in this way: it is not the latest, or it ended the other way.
    fn is_reached(&self, record: &Deployment) -> Result<bool, Refusal> {
        let (plan, ended) = (self.plan, self.stage());
        if record.plan != plan {
            let latest = record.plan;
            let problem = format!("plan {plan} is not its latest, which is {latest}; look with deployment.get");
            return Err(self.conflict(record, problem, None));
        }
        for instance in self.instances.into_iter().flatten() {
            if let Some(how) = record.how_settled(instance).filter(|how| *how != ended) {
                let was = if self.revert { "committed" } else { "reverted" };
                let problem = format!("was already {was} under plan {plan}; apply what you want for it");
                let refusal = Box::new(self.conflict(record, problem, Some(how)));
                return Err(Refusal::OfInstance { instance: instance.clone(), refusal });
            }
        }
        // A repeat for some instances, whatever happened to the others since.
        let settled =
            |some: &[Owner]| !some.is_empty() && some.iter().all(|one| record.how_settled(one) == Some(ended));
        if record.stage == ended || self.instances.is_some_and(settled) {
            return Ok(true);
        }
        // Everything of some instances was taken back, and the others kept what they had: a commit would have nothing to
        // release. It closes a deploy whose rest failed.
        let took_back_some = record.settled.iter().any(|settled| settled.reverted);
        let problem = match record.stage {
            Stage::Open => return Ok(false),
            Stage::Reverted if took_back_some => return Ok(true),
            Stage::Committed => {
                format!(
                    "plan {plan} is committed and can no longer be reverted; to undo it, apply what was wanted before"
                )
            }
            Stage::Reverted => format!("plan {plan} was reverted; apply the deployment again"),
        };
        Err(self.conflict(record, problem, Some(record.stage)))
    }

    fn conflict(&self, record: &Deployment, problem: String, ended: Option<Stage>) -> Refusal {
        let (deployment, actual) = (self.deployment.clone(), record.plan);
        let hindrance = ended.map(PlanHindrance::Ended);
        Refusal::PlanConflict { deployment, problem, expected: self.plan, actual, hindrance }
    }

    /// How the plan has ended once it was ended for some instances, if nothing is left of it. The last of several such ends
    /// does what one end for all would. If some were committed and some reverted, in whatever order, the plan is committed: so
    /// the commit that closes a deploy finds it committed. But if what was reverted is as an earlier plan left it, and that
    /// plan did not end, that commit has something to release.
    fn stage_by_parts(&self, after: &Deployment, decided: &DecidedEnd) -> Option<Stage> {
        match self.stage() {
            _ if decided.left > 0 => None,
            // Unknown ids take nothing back.
            Stage::Reverted if after.settled.is_empty() => None,
            Stage::Reverted if after.settled.iter().all(|settled| settled.reverted) => Some(Stage::Reverted),
            Stage::Open | Stage::Committed | Stage::Reverted => (!decided.earlier).then_some(Stage::Committed),
        }
    }

    /// The record once the networks' parts are durable.
    ///
    /// # Errors
    /// `invalid_argument` where it would have to remember too many instances.
    fn record_after(&self, record: &Deployment, decided: &DecidedEnd) -> Result<Deployment, Refusal> {
        let mut after = record.clone();
        after.settle(&decided.instances, self.revert)?;
        let ends = if self.instances.is_none() { Some(self.stage()) } else { self.stage_by_parts(&after, decided) };
        if let Some(stage) = ends {
            after.stage = stage;
            if stage == Stage::Reverted && !(self.instances.is_some() && decided.others_keep) {
                // Everything was reverted, in however many parts.
                after.settled.retain(|settled| !settled.reverted);
            }
            // What an earlier plan left, and was never committed, still waits for its commit.
            after.uncommitted_since = after.uncommitted_since.filter(|_| decided.earlier);
        }
        if after != *record {
            after.version = Version(after.version.0 + 1);
        }
        Ok(after)
    }
}

/// What the networks decided about the end of a plan, all together.
#[derive(Default)]
struct DecidedEnd {
    parts: Vec<UnitPart>,
    let_go: Vec<(Name, Address)>,
    /// Instances about which something was decided.
    instances: BTreeSet<Owner>,
    /// Number of reservations that are still to be decided.
    left: u64,
    /// Something that earlier plans left, or granted, waits for a commit.
    earlier: bool,
    /// Instances other than those that are meant, or were reverted before, hold something.
    others_keep: bool,
}

impl Coordinator {
    /// `deployment.commit` and `deployment.revert`.
    pub(in crate::actors::coordinator) async fn settle_deployment(
        &self,
        name: Scope,
        plan: u64,
        instances: Option<Vec<Owner>>,
        revert: bool,
    ) -> Outcomes {
        let seat = self.seat(&name).await?;
        let Some(record) = seat.known.record.clone() else { return Err(Self::missing(&name)) };
        let end = PlanEnd { deployment: &name, plan, instances: instances.as_deref(), revert };
        if end.is_reached(&record)? {
            return Ok(Done::Settled(Vec::new()));
        }
        let networks = self.networks_of(&name).await?;
        let routes: Vec<Arc<Route>> = networks.values().map(|(route, _)| Arc::clone(route)).collect();
        self.together(&routes, "deployment")?;
        let seen = seen_of(&routes);
        let holds = match self.hold_what_is_there(routes, &Names::new()).await {
            Ok(holds) => holds,
            Err((fault, _)) => return Err(self.seen_durably(seen, fault).await),
        };
        self.begin()?;
        let there = holds.routes().iter().filter_map(|route| networks.get(&route.id));
        let decided = self.decide_end(&end, &record, there, &holds).await;
        let decided = decided.and_then(|decided| Ok((end.record_after(&record, &decided)?, decided)));
        let (record, mut decided) = match decided {
            Ok(decided) => decided,
            Err(fault) => {
                drop(holds);
                return Err(self.seen_durably(seen, fault).await);
            }
        };
        let ends = if self.dry_run { Conclusion::Look } else { Conclusion::Commit };
        let (parts, record) = (std::mem::take(&mut decided.parts), Some(Arc::new(record)));
        let change = DeploymentChange { parts, record, fewer: "name some `instances` at a time" };
        self.conclude(&seat, holds, seen, change, ends).await?;
        decided.let_go.sort_unstable();
        Ok(Done::Settled(decided.let_go))
    }

    /// Lets each network decide, under the holds, what happens to its holdings.
    async fn decide_end(
        &self,
        end: &PlanEnd<'_>,
        record: &Deployment,
        networks: impl Iterator<Item = &(Arc<Route>, Name)>,
        holds: &Holds,
    ) -> Result<DecidedEnd, Box<Fault>> {
        let ask = Settle::of(record, end.instances, end.revert);
        let transaction = self.transaction();
        let mut decided = DecidedEnd::default();
        for (route, network) in networks {
            let command = Command::Settle(Box::new(ask.clone()));
            let decision = holds.decide(self, route, command, transaction).await;
            let (part, outcome) = decision.inspect_err(|fault| self.note_answer(route, fault))?;
            decided.parts.push(part);
            if let Outcome::Settled { released, left, earlier, others_keep, instances } = outcome {
                decided.instances.extend(instances);
                decided.let_go.extend(released.into_iter().map(|address| (network.clone(), address)));
                decided.left += left;
                decided.earlier |= earlier;
                decided.others_keep |= others_keep;
            }
        }
        Ok(decided)
    }
}
