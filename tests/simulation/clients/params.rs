//! Turns every ask into a method and its params.

use serde_json::{Value, json};

use super::{Ask, Base, Clients, EXTRA_CIDR, EXTRAS, Kind, Slot, runs, sweeper};
use crate::world::{Flaw, World};

impl Clients {
    pub(super) fn params(world: &mut World, at: usize, ask: &Ask) -> (&'static str, Value) {
        let clients = &world.clients;
        let slots = &clients.all[at].slots;
        let text = |address: u32| std::net::Ipv4Addr::from(address).to_string();
        let of = |slot: usize| {
            let Slot { holder, kind, .. } = &slots[slot];
            let mut params = json!({"network": holder.network, "owner": holder.owner, "slot": holder.slot});
            if let Kind::Block(length) = kind {
                params["prefix_length"] = json!(length);
            }
            if let Kind::Lease(seconds) = kind {
                params["ttl_seconds"] = json!(seconds);
            }
            if let Kind::Wait(seconds) = kind {
                params["wait_seconds"] = json!(seconds);
            }
            if *kind == Kind::Used {
                params["scope"] = json!(sweeper::SCOPE);
                params["claimant"] = json!(sweeper::user(slot));
                params["release_with_claimant"] = json!(true);
            }
            params
        };
        let plain = |slot: usize| {
            let Slot { holder, kind, .. } = &slots[slot];
            let mut params = json!({"network": holder.network, "owner": holder.owner, "slot": holder.slot});
            if *kind == Kind::Used {
                params["scope"] = json!(sweeper::SCOPE);
            }
            params
        };
        match ask {
            Ask::Allocate(slot) => {
                let mut params = of(*slot);
                params["brief"] = json!(true);
                ("ip.allocate", params)
            }
            Ask::Claim { slot, address, replace } => {
                let mut params = of(*slot);
                (params["address"], params["brief"]) = (json!(text(*address)), json!(true));
                if *replace {
                    params["replace"] = json!(true);
                }
                ("ip.claim", params)
            }
            Ask::Release(slot) => ("ip.release", plain(*slot)),
            Ask::ReleaseDead(slot) => {
                let (generation, span) = slots[*slot].dead.unwrap_or_default();
                let network = &slots[*slot].holder.network;
                let address = text(span.0 as u32);
                ("ip.release", json!({"network": network, "address": address, "if_generation": generation}))
            }
            Ask::Renew(slot) => ("ip.renew", of(*slot)),
            Ask::Transfer { from, to } => {
                let (holder, to) = (&slots[*from].holder, &slots[*to].holder);
                let address = slots[*from].belief.held.map_or(0, |held| held.span.0 as u32);
                let params = json!({
                    "network": holder.network, "address": text(address), "owner": holder.owner,
                    "to": {"owner": to.owner, "slot": to.slot},
                });
                ("ip.transfer", params)
            }
            Ask::Acquire(pair) => {
                let owner = &slots[pair[0]].holder.owner;
                let ips: Vec<Value> = pair
                    .iter()
                    .map(|slot| json!({"network": slots[*slot].holder.network, "slot": slots[*slot].holder.slot}))
                    .collect();
                let mut params = json!({"owner": owner, "ips": ips, "brief": true});
                if let Kind::PairWaits { seconds, .. } = slots[pair[0]].kind {
                    params["wait_seconds"] = json!(seconds);
                }
                ("ip.acquire", params)
            }
            Ask::Look { base, address } => {
                ("ip.get", json!({"network": clients.bases[*base].name, "address": text(*address)}))
            }
            Ask::List(base) => ("ip.list", json!({"network": clients.bases[*base].name})),
            Ask::Apply(variant) => ("deployment.apply", runs::wishes(*variant)),
            Ask::Settle { plan, revert } => {
                let method = if *revert { "deployment.revert" } else { "deployment.commit" };
                let flawed = world.plan.flaw == Some(Flaw::AnyPlan);
                let plan = &clients.runs.latest().filter(|_| flawed).unwrap_or(*plan);
                (method, json!({"deployment": runs::DEPLOYMENT, "plan": plan}))
            }
            Ask::Deployment => ("deployment.get", json!({"deployment": runs::DEPLOYMENT})),
            Ask::Mark { name, alive, .. } => {
                let alive: Vec<String> = alive.iter().copied().map(sweeper::user).collect();
                ("claimant.mark", json!({"scope": sweeper::SCOPE, "sweep": name, "claimants": alive}))
            }
            Ask::Sweep { dead, grace_seconds, by_mark } => {
                let forgets = usize::from(world.plan.flaw == Some(Flaw::LivingForgotten));
                ("claimant.sweep", sweeper::params(slots, (dead, forgets), *grace_seconds, by_mark.as_deref()))
            }
            Ask::Networks => ("network.list", json!({})),
            Ask::Make(base) => {
                let Base { name, first, size, policy, cooldown_seconds, .. } = &clients.bases[*base];
                let range = format!("{}-{}", text(*first), text(first + size - 1));
                let subnet = json!({"cidr": format!("{}/28", text(first & !15)), "pools": [{"range": range}]});
                let params = json!({
                    "name": name, "policy": policy, "cooldown_seconds": cooldown_seconds, "if_absent": true,
                    "subnets": [subnet],
                });
                ("network.create", params)
            }
            Ask::Create(extra) => {
                let subnets = json!([{"cidr": EXTRA_CIDR}]);
                ("network.create", json!({"name": EXTRAS[*extra], "if_absent": true, "subnets": subnets}))
            }
            Ask::Delete(extra) => ("network.delete", json!({"network": clients.extras[*extra].id})),
            Ask::Rename { extra, back } => {
                let name = EXTRAS[*extra];
                let name = if *back { name.to_owned() } else { format!("{name}-renamed") };
                ("network.update", json!({"network": clients.extras[*extra].id, "set": {"name": name}}))
            }
            Ask::AddSubnet(base) => {
                let params = json!({
                    "network": clients.bases[*base].name, "cidr": format!("10.{}.0.0/30", 100 + base),
                    "name": "extra", "if_absent": true,
                });
                ("subnet.add", params)
            }
            Ask::RemoveSubnet(base) => {
                ("subnet.remove", json!({"network": clients.bases[*base].name, "subnet": "extra"}))
            }
        }
    }
}
