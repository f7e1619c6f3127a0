//! The end of a schedule: what the owner lists must agree with what the clients may believe, and with what the register
//! holds.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::runs::DEPLOYMENT;
use super::told::span_of;
use super::{Clients, EXTRAS, Extra, Kind, Slot};
use crate::checker::Sure;
use crate::record::{Holder, Span};
use crate::truth::Shown;
use crate::world::World;

/// Network, owner and slot.
type Place = (String, String, String);

impl Clients {
    /// Asks the owner of the register again and again until it answers.
    fn ask_at_the_end(world: &mut World, method: &str, params: &Value) -> Option<Value> {
        for _ in 0..60 {
            if let Some(owner) = world.owner() {
                world.clients.next_connection += 1;
                let connection = world.clients.next_connection;
                let lines = world.connect(owner, connection)?;
                world.clients.audit = Some((connection, None));
                let line = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
                world.note(|| format!("at the end node-{owner} is asked {line}"));
                let _ = lines.send(line.into_bytes());
                let until = world.now_ms + 3_000;
                world.run(until, |world| world.clients.audit.as_ref().is_some_and(|(_, told)| told.is_some()));
                let told = world.clients.audit.take().and_then(|(_, told)| told);
                world.note(|| format!("at the end it is told {told:?}"));
                if let Some(result) = told.and_then(|told| told.get("result").cloned()) {
                    return Some(result);
                }
            }
            let until = world.now_ms + 500;
            world.run(until, |_| false);
        }
        None
    }

    /// Compares what the owner lists with what the clients may believe, and with what the register holds.
    pub fn judge_the_end(world: &mut World) {
        let mut listed: BTreeMap<Place, (Span, u64)> = BTreeMap::new();
        for at in 0..world.clients.bases.len() {
            let name = world.clients.bases[at].name.clone();
            let Some(result) = Self::ask_at_the_end(world, "ip.list", &json!({"network": name})) else {
                return world.clients.problem(format!("nobody answers for {name} at the end"));
            };
            for one in result["reservations"].as_array().cloned().unwrap_or_default() {
                let Some(shown) = span_of(&one) else { continue };
                if one["scope"] == DEPLOYMENT {
                    continue; // judged with the runs.
                }
                let text = |member: &str| one[member].as_str().unwrap_or_default().to_owned();
                listed.insert((name.clone(), text("owner"), text("slot")), shown);
            }
        }
        let Some(networks) = Self::ask_at_the_end(world, "network.list", &json!({})) else {
            return world.clients.problem("nobody lists networks at the end".to_owned());
        };
        let now_ns = world.stamp_ns();
        let held = world.register.held();
        let clients = &mut world.clients;
        clients.told_networks(&networks);
        clients.judge_extras(&networks);
        let mut problems = Vec::new();
        let spans: Vec<(&Place, &(Span, u64))> = listed.iter().collect();
        for (at, (one, (span, _))) in spans.iter().enumerate() {
            for (other, (also, _)) in &spans[at + 1..] {
                if span.0 <= also.1 && also.0 <= span.1 {
                    problems.push(format!("at the end {one:?} and {other:?} overlap: {span:?}, {also:?}"));
                }
            }
        }
        let key = |slot: &Slot| (slot.holder.network.clone(), slot.holder.owner.clone(), slot.holder.slot.clone());
        // Leases may end while the lists are read.
        let lasting = |place: &Place| {
            let mut slots = clients.all.iter().flat_map(|client| &client.slots);
            slots.any(|slot| key(slot) == *place && !matches!(slot.kind, Kind::Lease(_)))
        };
        let in_register: Vec<u64> = held.iter().map(|(_, _, generation, ..)| *generation).collect();
        let missing = listed.iter().find(|(_, (_, generation))| !in_register.contains(generation));
        if let Some((who, _)) = missing.filter(|(who, _)| lasting(who)) {
            problems.push(format!("at the end {who:?} is listed and not in the register"));
        }
        for client in &clients.all {
            for slot in client.slots.iter().filter(|slot| slot.joint_doubt) {
                let (Kind::Pair(other) | Kind::PairWaits { other, .. }) = slot.kind else { continue };
                if listed.contains_key(&key(slot)) != listed.contains_key(&key(&client.slots[other])) {
                    problems.push(format!("at the end half of an acquire is there: {:?}", slot.holder));
                }
            }
        }
        for slot in clients.all.iter().flat_map(|client| &client.slots) {
            let Holder { network, owner, slot: number } = &slot.holder;
            let shown = listed.remove(&(network.clone(), owner.clone(), number.clone()));
            let possible = match shown {
                None => slot.belief.may_be_absent(now_ns),
                Some((span, generation)) => {
                    let known = slot.belief.held.is_some_and(|held| (held.span, held.generation) == (span, generation));
                    known || slot.belief.any
                }
            };
            if !possible {
                problems.push(format!("at the end {:?} holds {shown:?}, after {:?}", slot.holder, slot.belief));
            }
        }
        problems.extend(listed.keys().map(|who| format!("at the end a stranger holds something: {who:?}")));
        clients.problems.extend(problems);
    }

    fn judge_extras(&mut self, networks: &Value) {
        let empty = Vec::new();
        let networks = networks["networks"].as_array().unwrap_or(&empty);
        for (at, name) in EXTRAS.iter().enumerate() {
            let Extra { belief, id, .. } = &self.extras[at];
            let renamed = format!("{name}-renamed");
            let shown = networks.iter().find(|network| network["name"] == *name || network["name"] == renamed.as_str());
            let possible = match shown {
                None => belief.absent,
                Some(shown) => belief.any || belief.held.is_some() && shown["id"].as_str() == id.as_deref(),
            };
            if !possible {
                let problem = format!("at the end network {name} is {shown:?}, after {belief:?} {id:?}");
                self.problem(problem);
            }
        }
    }

    /// What was seen at an address must agree with what somebody held there all the while.
    pub fn judge_looks(&mut self, sure: &[Sure]) {
        let mut problems = Vec::new();
        for look in &self.looks {
            let there = sure.iter().find(|sure| {
                sure.holder.network == look.network
                    && (sure.span.0..=sure.span.1).contains(&look.address)
                    && sure.from_ns < look.sent_ns
                    && sure.until_ns.is_none_or(|until| until > look.told_ns)
            });
            if let Some(there) = there.filter(|there| look.generation != Some(there.generation)) {
                let Shown { address, sent_ns, generation, .. } = look;
                problems.push(format!("{address} was shown as {generation:?} at {sent_ns} while {there:?}"));
            }
        }
        self.problems.extend(problems);
    }
}
