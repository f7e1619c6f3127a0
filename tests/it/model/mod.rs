//! The naive model: a second reading of the wire contract, compared with the server request by request.
//!
//! It uses plain maps and linear scans, and shares nothing with the server but the parsing of addresses. What the contract
//! leaves to the server (ids, generations, the choice of policy `random`, ties) is adopted from the server's answer, after a
//! check that it was permitted: [`Model::call_with_answer`]. [`compare`] then compares the rest. For each [`Step`] a run
//! moves the clock, replaces names in the params ([`Model::resolve`]), asks the server, and hands its answer to
//! [`Model::call_with_answer`] and to [`Coverage::record`]. [`generate`] makes the requests, [`coverage`] counts what they
//! reached.

#![allow(dead_code)]

mod adopt;
mod ambiguities;
mod args;
mod assumptions;
mod choose;
mod compare;
mod coverage;
mod errors;
mod generate;
mod generate_config;
mod generate_holdings;
mod grant;
mod handing;
mod holdings;
mod lists;
mod networks;
mod nouns;
mod pools;
mod reads;
mod requests;
mod spec;
mod state;
mod subnets;
mod sweeping;
mod usage;

#[cfg(test)]
mod tests_config;
#[cfg(test)]
mod tests_generated;
#[cfg(test)]
mod tests_grant;

use std::collections::{BTreeMap, BTreeSet};

use allod::core::address::Address;
use serde_json::Value;

use self::args::Args;
use self::errors::Refusal;
use self::state::{Freed, Network};
#[allow(unused_imports)]
pub use self::{
    ambiguities::AMBIGUITIES,
    assumptions::Assumptions,
    compare::compare,
    coverage::Coverage,
    errors::ModelError,
    generate::{Dice, Step, sequence},
};

/// Methods that change nothing; all others take `dry_run` and `reason`.
const READS: [&str; 9] = [
    "ip.get",
    "ip.find",
    "ip.list",
    "network.get",
    "network.list",
    "network.usage",
    "network.map",
    "realm.list",
    "scope.list",
];

pub const METHODS: [&str; 36] = [
    "ip.allocate",
    "ip.claim",
    "ip.acquire",
    "ip.release",
    "ip.renew",
    "ip.bind",
    "ip.unbind",
    "ip.update",
    "ip.transfer",
    "ip.decline",
    "ip.get",
    "ip.find",
    "ip.list",
    "owner.release",
    "scope.release",
    "claimant.mark",
    "claimant.sweep",
    "network.create",
    "network.get",
    "network.list",
    "network.update",
    "network.delete",
    "network.restore",
    "network.usage",
    "network.map",
    "subnet.add",
    "subnet.modify",
    "subnet.move",
    "subnet.remove",
    "pool.add",
    "pool.modify",
    "pool.remove",
    "reserved.add",
    "reserved.remove",
    "realm.list",
    "scope.list",
];

#[derive(Debug, Clone, Default)]
pub struct Model {
    pub networks: Vec<Network>,
    pub assume: Assumptions,
    /// Takes the last permitted choice instead of the lowest, to test how choices are followed.
    pub picks_last: bool,
    /// The gap left between two generations, to test how generations are learnt.
    pub generation_gap: u64,
    clock: u64,
    ids: u64,
    /// The networks before the present request: refusals report figures of these.
    as_they_were: Vec<Network>,
    /// The server's answer while its request is carried out.
    hint: Option<Value>,
    /// Addresses granted by the present request.
    granted: Vec<(usize, Address)>,
    /// Addresses granted by the last request, whose generations are learnt from the server.
    last_granted: Vec<(usize, Address)>,
    /// Whether the last request had a choice that its answer would show.
    chose: bool,
    /// Addresses to release at the end of the present request.
    leaving: Vec<(usize, Address)>,
    /// Where pages of lists ended, by the server's token.
    pages: BTreeMap<String, (String, Option<Address>)>,
    last_page: Option<String>,
    /// Claimants that were marked alive, by scope and sweep.
    marks: BTreeMap<(String, String), BTreeSet<String>>,
}

impl Model {
    pub fn new() -> Self {
        Self::default()
    }

    /// Carries out one request by itself; where the server is free to choose, the lowest permitted choice is taken.
    pub fn call(&mut self, now_ms: u64, method: &str, params: &Value) -> Result<Value, ModelError> {
        self.advance(now_ms);
        self.chose = false;
        let before = self.clone();
        self.as_they_were = before.networks.clone();
        let answer = self.guarded(method, params);
        self.as_they_were.clear();
        let chose = self.chose;
        let dry = params["dry_run"] == Value::Bool(true);
        self.last_granted = std::mem::take(&mut self.granted);
        if dry || answer.is_err() {
            *self = before;
        }
        self.chose = chose;
        self.granted.clear();
        self.leaving.clear();
        self.forget_empty();
        answer
    }

    fn guarded(&mut self, method: &str, params: &Value) -> Refusal<Value> {
        let args = Args::of(params)?;
        args.number("deadline_ms", 0, u64::MAX)?;
        if !READS.contains(&method) {
            args.flag("dry_run")?;
            args.text("reason", |text| text.len() <= 256)?;
        }
        let configures = !method.starts_with("ip.") && !method.starts_with("claimant.") && !READS.contains(&method);
        let before: Vec<Network> = if configures { self.networks.clone() } else { Vec::new() };
        let answer = self.dispatch(method, &args)?;
        self.raise_versions(&before, args.raw("network"));
        Ok(self.with_version(method, answer))
    }

    fn dispatch(&mut self, method: &str, args: &Args) -> Refusal<Value> {
        match method {
            "ip.allocate" => self.ip_allocate(args),
            "ip.claim" => self.ip_claim(args),
            "ip.acquire" => self.ip_acquire(args),
            "ip.release" => self.ip_release(args),
            "ip.renew" => self.ip_renew(args),
            "ip.bind" => self.ip_bind(args),
            "ip.unbind" => self.ip_unbind(args),
            "ip.update" => self.ip_update(args),
            "ip.transfer" => self.ip_transfer(args),
            "ip.decline" => self.ip_decline(args),
            "ip.get" => self.ip_get(args),
            "ip.find" => self.ip_find(args),
            "ip.list" => self.ip_list(args),
            "owner.release" => self.owner_release(args),
            "scope.release" => self.scope_release(args),
            "claimant.mark" => self.claimant_mark(args),
            "claimant.sweep" => self.claimant_sweep(args),
            "network.create" => self.network_create(args),
            "network.get" => self.network_get(args),
            "network.list" => self.network_list(args),
            "network.update" => self.network_update(args),
            "network.delete" => self.network_delete(args),
            "network.restore" => self.network_restore(args),
            "network.usage" => self.network_usage(args),
            "network.map" => self.network_map(args),
            "subnet.add" => self.subnet_add(args),
            "subnet.modify" => self.subnet_modify(args),
            "subnet.move" => self.subnet_move(args),
            "subnet.remove" => self.subnet_remove(args),
            "pool.add" => self.pool_add(args),
            "pool.modify" => self.pool_modify(args),
            "pool.remove" => self.pool_remove(args),
            "reserved.add" => self.reserved_add(args),
            "reserved.remove" => self.reserved_remove(args),
            "realm.list" => self.realm_list(args),
            "scope.list" => self.scope_list(args),
            _ => Err(ModelError::plain("method_not_found")),
        }
    }

    /// Ends leases and probations that are over. The clock never goes back.
    pub fn advance(&mut self, now_ms: u64) {
        self.clock = self.clock.max(now_ms);
        let now = self.clock;
        for n in 0..self.networks.len() {
            let ended = |end: Option<u64>| end.filter(|end| now >= *end);
            let over: Vec<(Address, u64)> = self.networks[n]
                .held
                .iter()
                .filter_map(|(first, held)| ended(held.end).map(|end| (*first, end)))
                .collect();
            for (first, end) in over {
                self.let_go(n, first, if self.assume.cools_from_lease_end { end } else { now });
            }
            let network = &mut self.networks[n];
            let declined = std::mem::take(&mut network.declined);
            let (over, left): (Vec<_>, Vec<_>) = declined.into_iter().partition(|(_, declined)| now >= declined.until);
            network.declined = left.into_iter().collect();
            for (address, declined) in over {
                let freed = Freed { at: declined.until, by: None, uid: None, first: address, length: 0 };
                network.freed.insert(address, freed);
            }
        }
        self.forget_empty();
    }

    /// Networks in which a lease or a probation is over by then.
    pub fn due(&self, now_ms: u64) -> Vec<String> {
        let over = |network: &&Network| {
            let mut leases = network.held.values().filter_map(|held| held.end);
            let mut probations = network.declined.values().map(|declined| declined.until);
            leases.any(|end| now_ms >= end) || probations.any(|end| now_ms >= end)
        };
        self.networks.iter().filter(over).map(|network| network.id.clone()).collect()
    }

    /// Forgets networks that were deleted by force and hold nothing any more.
    fn forget_empty(&mut self) {
        self.networks.retain(|network| !network.closed || !network.held.is_empty());
    }

    /// Releases what was replaced, after everything else was taken.
    fn flush_leaving(&mut self) {
        for (n, first) in std::mem::take(&mut self.leaving) {
            self.let_go(n, first, self.clock);
        }
    }

    /// Finds a network by name among the open ones, or by id.
    pub fn network_named(&self, reference: &str) -> Refusal<usize> {
        let by_name = self.networks.iter().position(|network| !network.closed && network.name == reference);
        let found = by_name.or_else(|| self.networks.iter().position(|network| network.id == reference));
        found.ok_or_else(|| ModelError::plain("not_found"))
    }

    fn new_id(&mut self) -> String {
        self.ids += 1;
        format!("model-{}", self.ids)
    }
}
