//! Runs of one deployment that race. Each applies one of the wishes over two networks and then commits or reverts, as often
//! as not after another run has applied meanwhile.
//!
//! Every instance wants the same of both networks, so at every moment the deployment holds the same in both. Half of an
//! apply, a commit or a revert therefore shows at the end, and in every single answer.

use std::collections::BTreeMap;

use rand::Rng;
use serde_json::{Value, json};

use super::told::{Answer, span_of};
use super::{Ask, Clients, Trade};
use crate::truth::Shown;
use crate::world::World;

/// The deployment's name, which is also the scope of what it holds.
pub const DEPLOYMENT: &str = "shop";
/// The wishes: instances to keep, and instances to make anew.
const WISHES: [(&[&str], &[&str]); 4] = [(&["a", "b"], &[]), (&["a"], &[]), (&["b"], &["a"]), (&["b", "c"], &[])];

/// What the runs were told of plans, and when.
#[derive(Default)]
pub struct Runs {
    applied: BTreeMap<u64, u64>,
    /// Plans that were committed (true) or reverted (false).
    ended: BTreeMap<u64, (bool, u64)>,
}

impl Runs {
    /// The highest plan of which any run was told.
    pub(super) fn latest(&self) -> Option<u64> {
        self.applied.keys().next_back().copied()
    }
}

/// The params of one of the wishes.
pub(super) fn wishes(variant: usize) -> Value {
    let (kept, fresh) = WISHES[variant];
    let instance = |(id, fresh): (&&str, bool)| {
        let networks = json!([{"network": "net-0"}, {"network": "net-1"}]);
        let mut instance = json!({"id": id, "networks": networks});
        if fresh {
            instance["fresh"] = json!(true);
        }
        instance
    };
    let instances = kept.iter().map(|id| (id, false)).chain(fresh.iter().map(|id| (id, true)));
    json!({"deployment": DEPLOYMENT, "instances": instances.map(instance).collect::<Vec<_>>()})
}

impl Clients {
    pub(super) fn run_asks(world: &mut World, plan: Option<u64>) -> Vec<Ask> {
        let draws = &mut world.draws;
        let ask = match (draws.random_range(0..100), plan) {
            (0..15, _) => Ask::Deployment,
            (15..60, Some(plan)) => Ask::Settle { plan, revert: false },
            (60..85, Some(plan)) => Ask::Settle { plan, revert: true },
            _ => Ask::Apply(draws.random_range(0..WISHES.len())),
        };
        vec![ask]
    }

    fn shown_of(&mut self, reservation: &Value, (sent_ns, told_ns): (u64, u64)) {
        match (span_of(reservation), reservation["network"].as_str()) {
            (Some((span, generation)), Some(network)) => {
                let (network, address) = (network.to_owned(), span.0);
                self.shown.push(Shown { network, address, sent_ns, told_ns, generation: Some(generation) });
            }
            _ => self.problem(format!("no reservation: {reservation}")),
        }
    }

    pub(super) fn told_apply(&mut self, at: usize, variant: usize, times: (u64, u64), answer: &Answer) {
        let Answer::Result(result) = answer else { return };
        let plan = result["plan"].as_u64().unwrap_or_default();
        let later = self.runs.applied.iter().find(|(other, told_ns)| **other > plan && **told_ns < times.0);
        if let Some((later, _)) = later {
            self.problem(format!("plan {plan} came after {later}: {result}"));
        }
        let told_ns = self.runs.applied.entry(plan).or_insert(times.1);
        *told_ns = times.1.min(*told_ns);
        self.all[at].trade = Trade::Run(Some(plan));
        let (kept, fresh) = WISHES[variant];
        let instances = result["instances"].as_array().cloned().unwrap_or_default();
        let slots: Vec<&Value> = instances.iter().flat_map(|one| one["networks"].as_array()).flatten().collect();
        let whole = slots.iter().all(|slot| slot["state"] == "kept" || slot["state"] == "new");
        if instances.len() != kept.len() + fresh.len() || slots.len() != 2 * instances.len() || !whole {
            self.problem(format!("half of a plan: {result}"));
        }
        for slot in slots {
            self.shown_of(&slot["reservation"], times);
        }
        for reservation in result["obsolete"].as_array().into_iter().flatten() {
            self.shown_of(reservation, times);
        }
    }

    pub(super) fn told_settle(
        &mut self,
        at: usize,
        (plan, revert): (u64, bool),
        (sent_ns, told_ns): (u64, u64),
        answer: &Answer,
    ) {
        if let Answer::Result(result) = answer {
            let later = self.runs.applied.iter().find(|(other, told_ns)| **other > plan && **told_ns < sent_ns);
            if let Some((later, _)) = later {
                self.problem(format!("plan {plan} was settled after {later} was applied: {result}"));
            }
            let other =
                self.runs.ended.get(&plan).filter(|(reverted, told_ns)| *reverted != revert && *told_ns < sent_ns);
            if other.is_some() {
                self.problem(format!("plan {plan} ended twice, at last with revert {revert}: {result}"));
            }
            self.runs.ended.entry(plan).or_insert((revert, told_ns));
        }
        // Now and then the run settles the plan once more, and late.
        if !matches!(answer, Answer::Lost) && told_ns % 4 != 0 {
            self.all[at].trade = Trade::Run(None);
        }
    }

    pub(super) fn told_deployment(&mut self, result: &Value, times: (u64, u64)) {
        for instance in result["instances"].as_array().into_iter().flatten() {
            for reservation in ["reservations", "obsolete"].iter().flat_map(|list| instance[list].as_array()).flatten()
            {
                self.shown_of(reservation, times);
            }
        }
    }
}
