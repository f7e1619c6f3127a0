//! Granting one address: automatic or named, new, repeated or in place of another.

use allod::core::address::{Address, Cidr};
use serde_json::{Value, json};

use super::Model;
use super::args::{Args, Texts, is_mac, is_note, is_owner, is_pool, is_subnet};
use super::errors::{Findings, ModelError, Refusal};
use super::state::{Held, Key, Subnet, block, each, width};

/// What is wanted, but not for whom.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    pub address: Option<Address>,
    pub force: bool,
    pub family: Option<u8>,
    pub subnet: Option<String>,
    pub pool: Option<String>,
    pub zone: Option<String>,
    pub length: Option<u8>,
}

impl Wish {
    /// Refuses what is wrong whatever the network is.
    pub fn judge(&self) -> Refusal<()> {
        let family = self.address.map(|address| address.family().number()).or(self.family);
        let width = if family == Some(4) { 32 } else { 128 };
        let too_long = self.length.is_some_and(|length| length > width);
        let beside = |address: Address| {
            self.pool.is_some()
                || self.family.is_some_and(|family| family != address.family().number())
                || !too_long && self.length.is_some_and(|length| block(address, length).first() != address)
        };
        if too_long || self.address.is_some_and(beside) {
            return Err(ModelError::plain("invalid_argument"));
        }
        Ok(())
    }

    pub fn read(args: &Args) -> Refusal<Self> {
        let family = args.number("family", 4, 6)?;
        if family == Some(5) {
            return Err(ModelError::new("invalid_argument", json!({ "field": "family" })));
        }
        Ok(Self {
            address: None,
            force: false,
            family: family.map(|family| family as u8),
            subnet: args.text("subnet", is_subnet)?,
            pool: args.text("pool", is_pool)?,
            zone: args.text("zone", is_owner)?,
            length: args.number("prefix_length", 1, 128)?.map(|length| length as u8),
        })
    }

    pub fn admits_subnet(&self, subnet: &Subnet) -> bool {
        let family = self.family.or(self.length.is_some_and(|length| length > 32).then_some(6));
        self.subnet.as_ref().is_none_or(|reference| subnet.is_named(reference))
            && family.is_none_or(|family| family == subnet.cidr.family().number())
            && subnet.serves(self.zone.as_deref())
    }
}

#[derive(Debug, Clone, Default)]
pub struct Options {
    pub uid: Option<String>,
    pub must_create: bool,
    pub replace: bool,
    pub transient: bool,
    pub ttl_ms: Option<u64>,
    pub claimant: Option<String>,
    pub release_with_claimant: bool,
    pub labels: Option<Texts>,
    pub note: Option<String>,
    pub hostname: Option<String>,
    pub mac: Option<String>,
    pub brief: bool,
}

impl Options {
    pub fn read(args: &Args) -> Refusal<Self> {
        args.raw("wait_seconds");
        Ok(Self {
            uid: args.text("owner_uid", is_owner)?,
            must_create: args.on("must_create")?,
            replace: args.on("replace")?,
            transient: args.on("transient")?,
            ttl_ms: args.number("ttl_seconds", 1, u64::MAX / 1_000_000)?.map(|seconds| seconds * 1000),
            claimant: args.text("claimant", is_owner)?,
            release_with_claimant: args.on("release_with_claimant")?,
            labels: args.texts("labels")?,
            note: args.text("note", is_note)?,
            hostname: args.text("hostname", is_note)?,
            mac: args.text("mac", is_mac)?.map(|mac| mac.to_ascii_lowercase()),
            brief: args.on("brief")?,
        })
    }
}

#[derive(Debug, Clone)]
pub struct Granted {
    pub network: usize,
    pub address: Address,
    pub created: bool,
    pub previous_claimant: Option<String>,
    pub replaced: Option<Address>,
}

impl Model {
    /// Takes one address for the slot. What it replaces is noted in `leaving`, and released at the end of the request.
    pub fn obtain(
        &mut self,
        n: usize,
        key: &Key,
        wish: &Wish,
        options: &Options,
        hint: Option<Address>,
    ) -> Refusal<Granted> {
        let mut findings = Findings::default();
        let existing = self.slot_holder(n, key);
        self.check_wish(n, existing, wish, &mut findings);
        if let Some(first) = existing {
            let held = &self.networks[n].held[&first];
            let other_object = held.uid.is_some() && options.uid.is_some() && held.uid != options.uid;
            let matching = self.matches(n, first, wish);
            if other_object {
                findings.add(self.in_use_by(n, first));
            }
            if options.must_create || (!matching && !options.replace) {
                findings.add(ModelError::new("already_exists", json!({ "address": first.to_string() })));
            }
            if matching {
                findings.verdict()?;
                return Ok(self.repeat(n, first, wish.address.is_some(), options));
            }
        }
        if let Some(address) = wish.address {
            self.check_claim(n, address, key, existing, wish, &mut findings);
        }
        self.check_mac(n, options.mac.as_deref(), existing, &mut findings);
        self.check_limits(n, key, existing, &mut findings);
        let choices = match wish.address {
            Some(address) => vec![address],
            None if self.networks[n].closed => vec![],
            None => self.admissible(n, key, options.uid.as_deref(), wish),
        };
        if choices.is_empty() {
            findings.add(ModelError::new("not_enough_capacity", self.shortage(n, wish)));
        }
        findings.verdict()?;
        self.chose |= choices.len() > 1;
        let own_choice = if self.picks_last { choices[choices.len() - 1] } else { choices[0] };
        let first = hint.filter(|hint| choices.contains(hint)).unwrap_or(own_choice);
        let length = wish.length.unwrap_or(width(first));
        if let Some(old) = existing {
            let overlapping = block(old, self.networks[n].held[&old].length).overlaps(block(first, length));
            if overlapping { self.let_go(n, old, self.clock) } else { self.leaving.push((n, old)) }
        }
        self.insert(n, key, first, length, wish, options);
        Ok(Granted { network: n, address: first, created: true, previous_claimant: None, replaced: existing })
    }

    fn insert(&mut self, n: usize, key: &Key, first: Address, length: u8, wish: &Wish, options: &Options) {
        let now = self.clock;
        let gap = self.generation_gap;
        let network = &mut self.networks[n];
        let pool = network.subnet_of(first).and_then(|subnet| subnet.pool_at(first));
        let granted_pool = pool.map(|pool| (pool.name.clone(), pool.range));
        network.highest_generation += 1 + gap;
        for address in each(block(first, length)) {
            network.freed.remove(&address);
            network.declined.remove(&address);
        }
        let held = Held {
            length,
            key: key.clone(),
            uid: options.uid.clone(),
            kind: if wish.address.is_some() { "static" } else { "dynamic" },
            claimant: options.claimant.clone(),
            release_with_claimant: options.release_with_claimant,
            missed: None,
            transient: options.transient,
            labels: options.labels.clone().unwrap_or_default(),
            note: options.note.clone(),
            hostname: options.hostname.clone(),
            mac: options.mac.clone(),
            created: now,
            end: options.ttl_ms.map(|ttl| now + ttl),
            generation: network.highest_generation,
            granted_pool,
        };
        network.held.insert(first, held);
        self.granted.push((n, first));
    }

    /// A request for what the slot already holds; `named`: by its address.
    fn repeat(&mut self, n: usize, first: Address, named: bool, options: &Options) -> Granted {
        let now = self.clock;
        let binds = self.assume.uid_binds_on_repeat;
        let held = self.networks[n].held.get_mut(&first).expect("the slot holds it");
        held.end = match (held.end, options.ttl_ms) {
            (Some(end), Some(ttl)) => Some(end.max(now + ttl)),
            _ => None,
        };
        if named {
            held.kind = "static";
        }
        let mut previous_claimant = None;
        if options.claimant.is_some() {
            held.missed = None;
        }
        if options.claimant.is_some() && held.claimant != options.claimant {
            previous_claimant = std::mem::replace(&mut held.claimant, options.claimant.clone());
        }
        if let Some(labels) = &options.labels {
            held.labels = labels.clone();
        }
        if binds && held.uid.is_none() {
            held.uid = options.uid.clone();
        }
        Granted { network: n, address: first, created: false, previous_claimant, replaced: None }
    }

    /// Checks the wish before any addresses are looked at.
    fn check_wish(&self, n: usize, existing: Option<Address>, wish: &Wish, findings: &mut Findings) {
        let network = &self.networks[n];
        findings.when(network.closed, "in_use");
        findings.when(network.kind == "dynamic" && wish.address.is_some(), "wrong_kind");
        if let Some(length) = wish.length {
            let family = wish.address.map_or(wish.family, |address| Some(address.family().number()));
            let family = family.or((length > 32).then_some(6));
            let widths = network.subnets.iter().filter(|s| family.is_none_or(|f| f == s.cidr.family().number()));
            let narrowest: Vec<u8> = widths.map(|subnet| subnet.cidr.length()).collect();
            let too_long = family == Some(4) && length > 32;
            let too_wide = !narrowest.is_empty() && narrowest.iter().all(|subnet| length < *subnet);
            let crooked = !too_long && wish.address.is_some_and(|address| Cidr::new(address, length).is_none());
            findings.when(too_long || too_wide || crooked, "invalid_argument");
        }
        if let Some(reference) = &wish.subnet {
            findings.note(network.subnet_named(reference));
        }
        if let Some(reference) = &wish.pool {
            let there = network.pools().any(|(_, pool)| pool.is_named(reference));
            let was_there = existing.is_some_and(|first| self.lay_in(n, first, reference));
            findings.when(!there && !was_there, "not_found");
        }
    }

    fn lay_in(&self, n: usize, first: Address, reference: &str) -> bool {
        let network = &self.networks[n];
        let now = network.subnet_of(first).and_then(|subnet| subnet.pool_at(first));
        let then = network.held[&first].granted_pool.as_ref();
        now.is_some_and(|pool| pool.is_named(reference))
            || then.is_some_and(|(name, range)| match reference.parse() {
                Ok(wanted) => *range == wanted,
                Err(_) => name.as_deref() == Some(reference),
            })
    }

    /// Does what the slot holds match the wish?
    fn matches(&self, n: usize, first: Address, wish: &Wish) -> bool {
        let network = &self.networks[n];
        wish.address.is_none_or(|address| address == first)
            && network.held[&first].length == wish.length.unwrap_or(width(first))
            && network.subnet_of(first).is_some_and(|subnet| wish.admits_subnet(subnet))
            && wish.pool.as_ref().is_none_or(|reference| self.lay_in(n, first, reference))
    }

    /// Checks a named address that the slot does not hold yet.
    fn check_claim(
        &self,
        n: usize,
        first: Address,
        key: &Key,
        own: Option<Address>,
        wish: &Wish,
        findings: &mut Findings,
    ) {
        let network = &self.networks[n];
        let length = wish.length.unwrap_or(width(first)).min(width(first));
        let range = block(first, length);
        let subnet = network.subnet_of(first).filter(|subnet| subnet.cidr.range().covers(range));
        let in_pool = subnet.and_then(|subnet| subnet.pools.iter().find(|pool| pool.range.covers(range)));
        let single = range.size() == 1;
        findings.when(network.static_only && in_pool.is_none_or(|pool| pool.kind != "static"), "wrong_kind");
        findings.when(subnet.is_none() || (!single && in_pool.is_none()), "out_of_range");
        let others: Vec<Address> = network.holding_in(range).into_iter().filter(|other| Some(*other) != own).collect();
        match others.as_slice() {
            [] => {}
            [other] => {
                let mut error = self.in_use_by(n, *other);
                if !single {
                    // The contract does not say whether this is the requested address or the held one.
                    error.data.as_object_mut().and_then(|data| data.remove("address"));
                }
                findings.add(error);
            }
            _ => findings.when(true, "already_in_use"),
        }
        let Some(subnet) = subnet else { return };
        if range.size() > 65_536 {
            return;
        }
        for address in each(range) {
            let kept = subnet.reserved_at(address).is_some_and(|r| !r.whose.as_ref().is_some_and(|w| w.fits(key)));
            let declined = self.assume.declined_needs_force && network.is_declined(address);
            let blocked = subnet.is_unusable(address) || subnet.is_draining(address);
            findings.when(blocked || (!wish.force && (kept || declined)), "reserved");
        }
    }

    /// Limits count current reservations, without those that this request replaces.
    pub fn check_limits(&self, n: usize, key: &Key, replaced: Option<Address>, findings: &mut Findings) {
        let network = &self.networks[n];
        let staying = |first: &Address| Some(*first) != replaced && !self.leaving.contains(&(n, *first));
        let count = |of: &dyn Fn(&Key) -> bool| {
            network.held.iter().filter(|(first, held)| staying(first) && of(&held.key)).count() as u64
        };
        let owner = count(&|other| other.same_owner(key));
        let scope = count(&|other| other.scope == key.scope);
        let over = network.per_owner.is_some_and(|limit| owner >= limit)
            || network.per_scope.is_some_and(|limit| scope >= limit);
        findings.when(over, "quota_exceeded");
    }

    /// A MAC must be unique in its realm.
    pub fn check_mac(&self, n: usize, mac: Option<&str>, own: Option<Address>, findings: &mut Findings) {
        let Some(mac) = mac.filter(|mac| *mac != "auto") else { return };
        let realm = &self.networks[n].realm;
        for (other, network) in self.networks.iter().enumerate().filter(|(_, network)| network.realm == *realm) {
            for (first, held) in &network.held {
                let same = (other, Some(*first)) == (n, own);
                findings.when(!same && held.mac.as_deref() == Some(mac), "already_in_use");
            }
        }
    }

    pub fn in_use_by(&self, n: usize, first: Address) -> ModelError {
        let mut data = json!({ "held_by": self.holder(n, first) });
        if self.networks[n].held[&first].length == width(first) {
            data["address"] = json!(first.to_string());
        }
        ModelError::new("already_in_use", data)
    }

    /// The current reservation of a slot, without what this request has already replaced.
    pub fn slot_holder(&self, n: usize, key: &Key) -> Option<Address> {
        let own = self.networks[n].held.iter().filter(|(_, held)| held.key == *key);
        own.map(|(first, _)| *first).find(|first| !self.leaving.contains(&(n, *first)))
    }

    pub fn answer_grant(&self, granted: &Granted, brief: bool) -> Value {
        let mut noun = self.reservation(granted.network, granted.address);
        if brief {
            noun = json!({
                "address": noun["address"], "prefix_length": noun["prefix_length"], "generation": noun["generation"],
            });
        }
        noun["created"] = json!(granted.created);
        if !brief {
            if let Some(claimant) = &granted.previous_claimant {
                noun["previous_claimant"] = json!(claimant);
            }
            if let Some(replaced) = granted.replaced {
                noun["replaced"] = json!(replaced.to_string());
            }
        }
        noun
    }
}
