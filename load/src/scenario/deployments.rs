//! Deployments: each lane is a deployment of several instances in two networks. An apply renews a third of its instances;
//! then it is committed, or, one time in four, reverted. Exactly which addresses this releases is known.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::exchange::{push_call, released_anywhere};
use super::{Desk, NetworkPlan, Scenario, Settings};
use crate::audit::{Grant, Span};
use crate::meter::Kind;
use crate::names::Who;
use crate::refusal::Refusal;

/// Instances of a deployment by default.
const INSTANCES_DEFAULT: usize = 6;
/// The number of networks in which each instance wants an address.
const NETWORKS: usize = 2;

/// A network and an instance in it, by number.
type Place = (usize, usize);

#[derive(Clone, Copy, PartialEq)]
enum Asked {
    Nothing,
    Apply,
    Commit,
    Revert,
}

struct Lane {
    asked: Asked,
    current: BTreeMap<Place, Span>,
    /// The grants of the latest apply, and the addresses that they made obsolete.
    new: BTreeMap<Place, Span>,
    obsolete: BTreeMap<Place, Span>,
    /// The plan that is not yet committed or reverted.
    plan: Option<u64>,
    /// The outcome of the latest commit or revert is unknown: it is sent again, as a client would do.
    in_doubt: bool,
    round: usize,
}

/// Deployments are scopes, and instances are owners.
pub struct Deployments {
    networks: Vec<NetworkPlan>,
    lanes: Vec<Lane>,
    instances: usize,
    seed: u32,
}

impl Deployments {
    pub fn new(settings: &Settings) -> Self {
        let networks = NetworkPlan::several(settings, NETWORKS, "10.0.0.0/12", "lowest");
        let lane = |_| Lane {
            asked: Asked::Nothing,
            current: BTreeMap::new(),
            new: BTreeMap::new(),
            obsolete: BTreeMap::new(),
            plan: None,
            in_doubt: false,
            round: 0,
        };
        let instances = settings.instances.unwrap_or(INSTANCES_DEFAULT);
        Self { networks, lanes: (0..settings.lanes).map(lane).collect(), instances, seed: settings.seed }
    }

    fn who(&self, lane: usize, instance: usize) -> Who {
        Who::new(lane, instance as u32, self.seed)
    }

    fn wishes(&self, number: usize) -> Value {
        let names: Vec<Value> = self.networks.iter().map(|network| json!({"network": network.name})).collect();
        let round = self.lanes[number].round;
        let wish = |at: usize| {
            let mut wish = json!({"id": self.who(number, at).name(), "networks": names});
            if round > 0 && (at + round).is_multiple_of(3) {
                wish["fresh"] = json!(true);
            }
            wish
        };
        (0..self.instances).map(wish).collect()
    }

    /// Takes the answer to an apply, for each instance and network.
    fn applied(&mut self, number: usize, desk: &mut Desk<'_>, result: &Value) {
        let mut seen = 0;
        for instance in result["instances"].as_array().map_or(&[][..], Vec::as_slice) {
            let Some(at) = (0..self.instances).find(|at| instance["id"] == self.who(number, *at).name()) else {
                continue;
            };
            let who = self.who(number, at);
            for wish in instance["networks"].as_array().map_or(&[][..], Vec::as_slice) {
                let network = self.networks.iter().position(|network| wish["network"] == network.name);
                let Some(network) = network else { continue };
                let reservation = &wish["reservation"];
                let kept = wish["state"] == "kept";
                let grant = Grant {
                    network,
                    who,
                    address: reservation["address"].as_str().unwrap_or_default().as_bytes(),
                    prefix_length: None,
                    said_length: reservation["prefix_length"].as_u64().and_then(|length| u8::try_from(length).ok()),
                    said_owner: reservation["owner"].as_str().map(str::as_bytes),
                    said_network: reservation["network"].as_str().map(str::as_bytes),
                    created: !kept,
                    generation: reservation["generation"].as_u64(),
                    ordered: false,
                    automatic: true,
                };
                let span = desk.audit.granted(number, &grant, desk.now);
                let lane = &mut self.lanes[number];
                let before = lane.current.get(&(network, at)).copied();
                match (kept, before, span) {
                    (true, Some(before), span) => desk.audit.repeated(network, who, before, span),
                    (_, before, Some(span)) => {
                        lane.new.insert((network, at), span);
                        lane.current.insert((network, at), span);
                        lane.obsolete.extend(before.map(|before| ((network, at), before)));
                    }
                    (_, _, None) => {}
                }
                seen += 1;
            }
        }
        desk.audit.complete(seen, self.instances * self.networks.len(), "an apply answered");
        self.lanes[number].plan = result["plan"].as_u64();
    }

    fn letting_go(&self, number: usize, places: &BTreeMap<Place, Span>, desk: &mut Desk<'_>) {
        for ((network, at), span) in places {
            desk.audit.letting_go(*network, self.who(number, *at), *span, desk.now);
        }
    }
}

impl Scenario for Deployments {
    fn networks(&self) -> Vec<NetworkPlan> {
        self.networks.clone()
    }

    fn request(&mut self, number: usize, desk: &mut Desk<'_>, out: &mut Vec<u8>) -> Option<Kind> {
        let deployment = format!("load-{:08x}-{number:04}", self.seed);
        let lane = &self.lanes[number];
        let reverts = lane.round % 4 == 3;
        let (asked, kind, method, params) = match lane.plan {
            None => {
                let params = json!({"deployment": deployment, "instances": self.wishes(number)});
                (Asked::Apply, Kind::Apply, "deployment.apply", params)
            }
            Some(plan) if reverts => {
                self.letting_go(number, &lane.new, desk);
                (Asked::Revert, Kind::Revert, "deployment.revert", json!({"deployment": deployment, "plan": plan}))
            }
            Some(plan) => {
                self.letting_go(number, &lane.obsolete, desk);
                (Asked::Commit, Kind::Commit, "deployment.commit", json!({"deployment": deployment, "plan": plan}))
            }
        };
        self.lanes[number].asked = asked;
        push_call(out, desk.id, method, &params);
        Some(kind)
    }

    fn answer(&mut self, number: usize, desk: &mut Desk<'_>, answer: Result<&[u8], &Refusal>) {
        let asked = std::mem::replace(&mut self.lanes[number].asked, Asked::Nothing);
        let lane = &mut self.lanes[number];
        let going = match asked {
            Asked::Commit => lane.obsolete.clone(),
            Asked::Revert => lane.new.clone(),
            Asked::Apply | Asked::Nothing => BTreeMap::new(),
        };
        match answer {
            Ok(line) => {
                if asked == Asked::Apply {
                    let said: Value = serde_json::from_slice(line).unwrap_or_default();
                    return self.applied(number, desk, &said["result"]);
                }
                let (should, said): (Vec<Span>, _) = (going.values().copied().collect(), released_anywhere(line));
                desk.audit.let_go(Who::new(number, 0, 0), &should, &said, std::mem::take(&mut lane.in_doubt));
                if asked == Asked::Revert {
                    // The new grants are gone, and the addresses that they replaced are current again.
                    let (new, obsolete) = (std::mem::take(&mut lane.new), std::mem::take(&mut lane.obsolete));
                    lane.current.retain(|place, _| !new.contains_key(place));
                    lane.current.extend(obsolete);
                }
                lane.new.clear();
                lane.obsolete.clear();
                (lane.plan, lane.round) = (None, lane.round + 1);
            }
            Err(refusal) if refusal.unknown || lane.in_doubt => {
                lane.in_doubt = asked != Asked::Apply;
                (0..self.instances).for_each(|at| {
                    let of_it = going.iter().filter(|(place, _)| place.1 == at);
                    let going: Vec<Span> = of_it.map(|(_, span)| *span).collect();
                    desk.audit.fate_unknown(None, self.who(number, at), &going);
                });
            }
            Err(_) => {
                for ((network, at), span) in going {
                    desk.audit.kept(network, self.who(number, at), span);
                }
            }
        }
    }
}
