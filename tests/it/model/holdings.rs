//! Changes of an existing reservation: release, renew, bind, unbind, update, and the release of owners and scopes.

use allod::core::address::Address;
use serde_json::{Value, json};

use super::Model;
use super::args::{Args, Texts, is_mac, is_name, is_note, is_owner};
use super::errors::{Findings, ModelError, Refusal};
use super::requests::{read_key, read_scope};
use super::state::{Freed, Key, block, each};

/// A holding named by address, by owner and slot, or by both.
struct Target {
    network: Option<String>,
    address: Option<Address>,
    key: Option<Key>,
    /// If absent and there is an address, the slot is not checked.
    slot_given: bool,
    scope: Option<String>,
    if_generation: Option<u64>,
}

impl Target {
    fn read(args: &Args) -> Refusal<Self> {
        let target = Self {
            network: args.text("network", is_name)?,
            address: args.address("address")?,
            key: if args.has("owner") { Some(read_key(args)?) } else { None },
            slot_given: args.has("slot"),
            scope: args.text("scope", is_owner)?,
            if_generation: args.number("if_generation", 0, u64::MAX)?,
        };
        let nameless = target.address.is_none() && target.key.is_none();
        let stray_slot = target.key.is_none() && target.slot_given;
        let homeless = target.network.is_none() && (target.address.is_none() || target.scope.is_none());
        if nameless || stray_slot || homeless {
            return Err(ModelError::plain("invalid_argument"));
        }
        Ok(target)
    }
}

impl Model {
    pub fn ip_release(&mut self, args: &Args) -> Refusal<Value> {
        let target = Target::read(args)?;
        let (force, strict) = (args.on("force")?, args.on("strict")?);
        args.end()?;
        let unauthorised = target.key.is_none() && target.if_generation.is_none() && !force;
        if unauthorised || target.network.is_none() {
            return Err(ModelError::plain("invalid_argument"));
        }
        let n = self.network_named(target.network.as_deref().unwrap_or_default())?;
        match self.find_holding(n, &target)? {
            None if strict => Err(ModelError::plain("not_found")),
            None => Ok(json!({ "released": [] })),
            Some(first) => {
                self.let_go(n, first, self.clock);
                Ok(json!({ "released": [first.to_string()] }))
            }
        }
    }

    /// The holding that is meant, after checks of owner and generation.
    fn find_holding(&self, n: usize, target: &Target) -> Refusal<Option<Address>> {
        let network = &self.networks[n];
        let first = match (target.address, &target.key) {
            (Some(address), _) => Some(address).filter(|address| network.held.contains_key(address)),
            (None, Some(key)) => self.slot_holder(n, key),
            (None, None) => None,
        };
        let Some(first) = first else { return Ok(None) };
        let held = &network.held[&first];
        let mut findings = Findings::default();
        if let Some(key) = &target.key {
            let same = if target.slot_given { held.key == *key } else { held.key.same_owner(key) };
            findings.when(target.address.is_some() && !same, "not_owner");
        } else if let Some(scope) = &target.scope {
            findings.when(held.key.scope != *scope, "not_found");
        }
        self.check_generation(n, first, target.if_generation, &mut findings);
        findings.verdict()?;
        Ok(Some(first))
    }

    pub fn check_generation(&self, n: usize, first: Address, expected: Option<u64>, findings: &mut Findings) {
        let actual = self.networks[n].held[&first].generation;
        if let Some(expected) = expected.filter(|expected| *expected != actual) {
            findings.add(ModelError::new("conflict", json!({ "expected": expected, "actual": actual })));
        }
    }

    /// The holding that a request changes; in a closed network it is `in_use`, unless the request only unbinds.
    fn need_holding(&self, target: &Target, unbinding: bool) -> Refusal<(usize, Address)> {
        let n = match &target.network {
            Some(reference) => self.network_named(reference)?,
            None => self.network_holding(target)?,
        };
        let mut findings = Findings::default();
        let found = findings.note(self.find_holding(n, target));
        findings.when(found.is_some_and(|found| found.is_none()), "not_found");
        findings.when(self.networks[n].closed && !unbinding, "in_use");
        findings.verdict()?;
        Ok((n, found.flatten().expect("else it was refused")))
    }

    /// For an address with a scope alone: the network of realm `default` that holds the address.
    fn network_holding(&self, target: &Target) -> Refusal<usize> {
        let address = target.address.expect("checked when read");
        let holds = |network: &super::state::Network| network.realm == "default" && network.held.contains_key(&address);
        self.networks.iter().position(holds).ok_or_else(|| ModelError::plain("not_found"))
    }

    pub fn ip_renew(&mut self, args: &Args) -> Refusal<Value> {
        let target = Target::read(args)?;
        let ttl = match args.raw("ttl_seconds") {
            Some(Value::Null) => None,
            Some(_) => args.number("ttl_seconds", 1, u64::MAX / 1_000_000)?,
            None => return Err(ModelError::plain("invalid_argument")),
        };
        self.end_of_target(args, &target)?;
        let (n, first) = self.need_holding(&target, false)?;
        let end = ttl.map(|seconds| self.clock + seconds * 1000);
        self.networks[n].held.get_mut(&first).expect("held").end = end;
        Ok(self.reservation(n, first))
    }

    fn end_of_target(&self, args: &Args, target: &Target) -> Refusal<()> {
        args.end()?;
        if target.network.is_none() { Err(ModelError::plain("invalid_argument")) } else { Ok(()) }
    }

    pub fn ip_bind(&mut self, args: &Args) -> Refusal<Value> {
        let target = Target::read(args)?;
        let claimant = args.need_text("claimant", is_owner)?;
        args.end()?;
        let (n, first) = self.need_holding(&target, false)?;
        self.refuse_other_claimant(n, first, &claimant)?;
        let held = self.networks[n].held.get_mut(&first).expect("held");
        (held.claimant, held.missed) = (Some(claimant), None);
        Ok(self.reservation(n, first))
    }

    fn refuse_other_claimant(&self, n: usize, first: Address, claimant: &str) -> Refusal<()> {
        match &self.networks[n].held[&first].claimant {
            Some(bound) if bound != claimant => Err(self.in_use_by(n, first)),
            _ => Ok(()),
        }
    }

    pub fn ip_unbind(&mut self, args: &Args) -> Refusal<Value> {
        let target = Target::read(args)?;
        let claimant = args.need_text("claimant", is_owner)?;
        args.end()?;
        let (n, first) = self.need_holding(&target, true)?;
        self.refuse_other_claimant(n, first, &claimant)?;
        let held = self.networks[n].held.get_mut(&first).expect("held");
        if held.claimant.is_some() && held.release_with_claimant {
            let mut before = self.reservation(n, first);
            before["released"] = json!(true);
            self.let_go(n, first, self.clock);
            return Ok(before);
        }
        held.claimant = None;
        Ok(self.reservation(n, first))
    }

    pub fn ip_update(&mut self, args: &Args) -> Refusal<Value> {
        let target = Target::read(args)?;
        let set = args.set()?;
        self.end_of_target(args, &target)?;
        // First applied to nothing, since errors of form precede all others; then to the holding.
        patch(&set, &mut Patched::default())?;
        let (n, first) = self.need_holding(&target, false)?;
        let held = &self.networks[n].held[&first];
        let mut patched = Patched {
            labels: held.labels.clone(),
            texts: [held.note.clone(), held.hostname.clone(), held.mac.clone(), held.uid.clone()],
        };
        patch(&set, &mut patched)?;
        let [note, hostname, mac, uid] = patched.texts;
        let mut findings = Findings::default();
        self.check_mac(n, mac.as_deref(), Some(first), &mut findings);
        findings.verdict()?;
        let held = self.networks[n].held.get_mut(&first).expect("held");
        (held.labels, held.note, held.hostname, held.mac, held.uid) = (patched.labels, note, hostname, mac, uid);
        Ok(self.reservation(n, first))
    }

    pub fn owner_release(&mut self, args: &Args) -> Refusal<Value> {
        let (owner, scope) = (args.need_text("owner", is_owner)?, read_scope(args)?);
        let network = args.text("network", is_name)?;
        args.end()?;
        let only = network.map(|reference| self.network_named(&reference)).transpose()?;
        Ok(self.release_all(|n, key| only.is_none_or(|only| only == n) && key.owner == owner && key.scope == scope))
    }

    pub fn scope_release(&mut self, args: &Args) -> Refusal<Value> {
        let scope = args.need_text("scope", is_owner)?;
        args.end()?;
        Ok(self.release_all(|_, key| key.scope == scope))
    }

    fn release_all(&mut self, leaves: impl Fn(usize, &Key) -> bool) -> Value {
        let mut released = Vec::new();
        for n in 0..self.networks.len() {
            let held = &self.networks[n].held;
            let leaving: Vec<Address> =
                held.iter().filter(|(_, h)| leaves(n, &h.key)).map(|(first, _)| *first).collect();
            for first in leaving {
                self.let_go(n, first, self.clock);
                released.push(json!({ "network": self.networks[n].name, "address": first.to_string() }));
            }
        }
        json!({ "released": released, "more": false })
    }

    /// Ends the reservation; each of its addresses cools from `at`.
    pub fn let_go(&mut self, n: usize, first: Address, at: u64) {
        let network = &mut self.networks[n];
        let Some(held) = network.held.remove(&first) else { return };
        for address in each(block(first, held.length)) {
            let freed = Freed { at, by: Some(held.key.clone()), uid: held.uid.clone(), first, length: held.length };
            network.freed.insert(address, freed);
        }
    }
}

#[derive(Default)]
struct Patched {
    labels: Texts,
    texts: [Option<String>; 4],
}

fn patch(set: &Args, now: &mut Patched) -> Refusal<()> {
    set.patch_texts("labels", &mut now.labels)?;
    let [note, hostname, mac, uid] = &mut now.texts;
    set.patch_text("note", note, is_note)?;
    set.patch_text("hostname", hostname, is_note)?;
    set.patch_text("mac", mac, is_mac)?;
    set.patch_text("owner_uid", uid, is_owner)?;
    *mac = mac.take().map(|mac| mac.to_ascii_lowercase());
    set.end()
}
