//! `ip.transfer` and `ip.decline`: an address leaves its holder, for another one or for nobody.

use allod::core::address::Address;
use serde_json::{Value, json};

use super::Model;
use super::args::{Args, is_name, is_note, is_owner};
use super::errors::{Findings, ModelError, Refusal};
use super::grant::{Options, Wish};
use super::requests::{read_key, read_scope};
use super::state::{Declined, Held, Key, block, each};

impl Model {
    pub fn ip_transfer(&mut self, args: &Args) -> Refusal<Value> {
        let network = args.need_text("network", is_name)?;
        let address = args.need_address("address")?;
        let from = Key { owner: args.need_text("owner", is_owner)?, scope: read_scope(args)?, slot: String::new() };
        let to_args = args.object("to")?.ok_or_else(|| ModelError::plain("invalid_argument"))?;
        let to = read_key(&to_args)?;
        to_args.end()?;
        let exchange = args.on("exchange")?;
        let if_generation = args.number("if_generation", 0, u64::MAX)?;
        args.end()?;
        let n = self.network_named(&network)?;
        let mut findings = Findings::default();
        findings.when(self.networks[n].closed, "in_use");
        let Some(held) = self.networks[n].held.get(&address) else {
            findings.when(true, "not_found");
            return findings.verdict().map(|()| Value::Null);
        };
        let holder = held.key.clone();
        let is_repeat = holder == to && if_generation.is_some_and(|asked| asked <= held.generation);
        if !is_repeat {
            self.check_generation(n, address, if_generation, &mut findings);
        }
        if holder == to {
            findings.verdict()?;
            let received = exchange.then(|| self.exchanged_for(n, address, &from)).flatten();
            let all = [Some(address), received];
            let all: Vec<Value> = all.into_iter().flatten().map(|at| self.reservation(n, at)).collect();
            return Ok(json!({ "reservations": all }));
        }
        findings.when(!holder.same_owner(&from), "not_owner");
        let other = self.slot_holder(n, &to);
        match other {
            Some(other) if !exchange => {
                findings.add(ModelError::new("already_exists", json!({ "address": other.to_string() })))
            }
            None if exchange => findings.when(true, "not_found"),
            _ => {}
        }
        if other.is_none() {
            self.check_transfer_limits(n, &holder, &to, &mut findings);
        }
        findings.verdict()?;
        // In an exchange each owner keeps its own uid.
        let uids = other.map(|other| [address, other].map(|at| self.networks[n].held[&at].uid.clone()));
        self.hand_over(n, address, to, self.generation_gap);
        if let Some((other, [given, received])) = other.zip(uids) {
            self.hand_over(n, other, holder, 0);
            let held = &mut self.networks[n].held;
            if !held[&address].key.same_owner(&held[&other].key) {
                held.get_mut(&address).expect("held").uid = received;
                held.get_mut(&other).expect("held").uid = given;
            }
        }
        let all = [Some(address), other];
        let reservations: Vec<Value> = all.into_iter().flatten().map(|at| self.reservation(n, at)).collect();
        Ok(json!({ "reservations": reservations }))
    }

    /// Checks the receiver's limits, if it receives more than it had.
    fn check_transfer_limits(&self, n: usize, from: &Key, to: &Key, findings: &mut Findings) {
        let network = &self.networks[n];
        let count = |of: &dyn Fn(&Key) -> bool| network.held.values().filter(|held| of(&held.key)).count() as u64;
        let owner_full = network.per_owner.is_some_and(|limit| count(&|key| key.same_owner(to)) >= limit);
        let scope_full = network.per_scope.is_some_and(|limit| count(&|key| key.scope == to.scope) >= limit);
        findings.when(owner_full && !from.same_owner(to) || scope_full && from.scope != to.scope, "quota_exceeded");
    }

    /// The address that was handed back in exchange, if its receiver still holds it.
    fn exchanged_for(&self, n: usize, address: Address, from: &Key) -> Option<Address> {
        let held = &self.networks[n].held;
        let given = &held[&address];
        let is_it =
            |of: &Held| of.key.same_owner(from) && of.generation == given.generation + 1 && of.created == given.created;
        held.iter().find(|(_, of)| is_it(of)).map(|(at, _)| *at)
    }

    /// Grants the same address anew: lease, claimant and notes stay; the object's uid does not if the owner changes.
    fn hand_over(&mut self, n: usize, first: Address, to: Key, gap: u64) {
        let now = self.clock;
        let network = &mut self.networks[n];
        network.highest_generation += 1 + gap;
        let generation = network.highest_generation;
        let pool = network.subnet_of(first).and_then(|subnet| subnet.pool_at(first));
        let granted_pool = pool.map(|pool| (pool.name.clone(), pool.range));
        let held = network.held.get_mut(&first).expect("held");
        if !held.key.same_owner(&to) {
            held.uid = None;
        }
        (held.key, held.created, held.generation, held.granted_pool) = (to, now, generation, granted_pool);
        self.granted.push((n, first));
    }

    pub fn ip_decline(&mut self, args: &Args) -> Refusal<Value> {
        let network = args.need_text("network", is_name)?;
        let address = args.need_address("address")?;
        let key = read_key(args)?;
        let slot_given = args.has("slot");
        args.text("seen", is_note)?;
        let probation = args.number("probation_seconds", 1, u64::MAX / 1_000_000)?.unwrap_or(86_400) * 1000;
        let again = args.on("again")?;
        args.end()?;
        let n = self.network_named(&network)?;
        let is_same = |other: &Key| if slot_given { *other == key } else { other.same_owner(&key) };
        let mut findings = Findings::default();
        findings.when(self.networks[n].closed, "in_use");
        let (held, declined) =
            (self.networks[n].held.get(&address).cloned(), self.networks[n].declined.get(&address).cloned());
        let declined = declined.filter(|declined| declined.first == address);
        match (&held, &declined) {
            (Some(held), _) => findings.when(!is_same(&held.key), "not_owner"),
            (None, Some(declined)) => findings.when(!is_same(&declined.by), "not_owner"),
            (None, None) => findings.when(true, "not_found"),
        }
        findings.verdict()?;
        let slot =
            held.as_ref().map(|held| held.key.clone()).or(declined.map(|declined| declined.by)).expect("one of them");
        if let Some(held) = &held {
            let until = self.clock + probation;
            let network = &mut self.networks[n];
            network.held.remove(&address);
            for part in each(block(address, held.length)) {
                network.declined.insert(part, Declined { until, first: address, by: held.key.clone() });
            }
        }
        let mut answer = json!({ "declined": address.to_string() });
        let settled = self.slot_holder(n, &slot).filter(|_| held.is_none());
        if let Some(first) = settled.filter(|_| again) {
            answer["reservation"] = self.reservation(n, first);
        } else if again {
            let (wish, options) = like(address, held.as_ref());
            let hint = self.hinted_address(&["reservation", "address"]);
            let granted = self.obtain(n, &slot, &wish, &options, hint)?;
            self.keep_lease(n, granted.address, held.as_ref().filter(|_| granted.created));
            answer["reservation"] = self.reservation(n, granted.address);
        }
        Ok(answer)
    }

    fn keep_lease(&mut self, n: usize, first: Address, like: Option<&Held>) {
        if let (Some(held), Some(like)) = (self.networks[n].held.get_mut(&first), like) {
            held.end = like.end;
        }
    }
}

/// A wish for another address like the declined one: same family, length and notes.
fn like(address: Address, held: Option<&Held>) -> (Wish, Options) {
    let length = held.map(|held| held.length).filter(|length| *length != super::state::width(address));
    let wish = Wish { family: Some(address.family().number()), length, ..Wish::default() };
    let options = held.map(|held| Options {
        uid: held.uid.clone(),
        transient: held.transient,
        claimant: held.claimant.clone(),
        release_with_claimant: held.release_with_claimant,
        labels: Some(held.labels.clone()),
        note: held.note.clone(),
        hostname: held.hostname.clone(),
        mac: held.mac.clone(),
        ..Options::default()
    });
    (wish, options.unwrap_or_default())
}
