//! How a plan ends: `deployment.commit` and `deployment.revert`, for all of its instances or for some.
//!
//! Before: the coordinator, and `record`, which has the deployment locked. Each network decides what becomes of its holdings;
//! all of it is one commit with the record.
//!
//! Review notes: does a refusal leave by `seen_durably`?

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::actors::coordinator::joint::{Holds, seen_of};
use crate::actors::coordinator::{Coordinator, Done, Outcomes};
use crate::actors::routes::Route;
use crate::core::command::Command;
use crate::core::deployment::{Deployment, Settle, Stage};
use crate::core::outcome::Outcome;
use crate::core::refusal::Refusal;
use crate::core::types::{Owner, Scope, Version};

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
        // A repeat for some, whatever became of the others since.
        let settled =
            |some: &Vec<Owner>| !some.is_empty() && some.iter().all(|one| record.how_settled(one) == Some(ended));
        if record.stage == ended || instances.as_ref().is_some_and(settled) {
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
        let holds = match Holds::of(&self.shared, &routes).await {
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
}
