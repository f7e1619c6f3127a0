//! `subnet.add`, `modify`, `move`, `remove`.

use allod::core::address::{Address, Cidr, Range};
use serde_json::{Value, json};

use super::Model;
use super::args::{Args, is_name, is_subnet};
use super::errors::{Findings, ModelError, Refusal};
use super::nouns;
use super::spec::{check_dhcp, check_shape, differs, if_version, read_dns, read_pools, read_subnet, read_zones};
use super::state::{Freed, Key, Pool, Subnet, block, each};

impl Model {
    pub fn subnet_add(&mut self, args: &Args) -> Refusal<Value> {
        let reference = args.need_text("network", is_name)?;
        let mut spec = read_subnet(args)?;
        let if_absent = args.on("if_absent")?;
        let expected = if_version(args)?;
        args.end()?;
        judge_gateway(Some(spec.subnet.cidr), spec.subnet.gateway)?;
        let n = self.network_named(&reference)?;
        let network = &self.networks[n];
        let mut findings = Findings::default();
        findings.when(network.closed, "in_use");
        findings.when(network.kind == "dynamic", "wrong_kind");
        self.check_version(n, expected, &mut findings);
        check_shape(&spec.subnet, true, &mut findings);
        let named = network.subnets.iter().position(|subnet| subnet.name.is_some() && subnet.name == spec.subnet.name);
        let there = named.or_else(|| network.subnets.iter().position(|subnet| subnet.cidr == spec.subnet.cidr));
        if let Some(there) = there.filter(|_| if_absent) {
            let found = nouns::subnet(&network.subnets[there]);
            let members = spec.differing(&network.subnets[there]);
            if !members.is_empty() {
                findings.name_taken(differs(members).data);
            }
            findings.verdict()?;
            let mut noun = found;
            noun["created"] = json!(false);
            return Ok(noun);
        }
        if named.is_some() {
            findings.name_taken(json!({}));
        }
        self.check_space(&network.realm, spec.subnet.cidr, None, &mut findings);
        let others: Vec<&Subnet> = network.subnets.iter().chain([&spec.subnet]).collect();
        check_dhcp(&others, &mut findings);
        findings.verdict()?;
        spec.subnet.id = self.new_id();
        let mut noun = nouns::subnet(&spec.subnet);
        self.networks[n].subnets.push(spec.subnet);
        if if_absent {
            noun["created"] = json!(true);
        }
        Ok(noun)
    }

    pub fn subnet_modify(&mut self, args: &Args) -> Refusal<Value> {
        let reference = args.need_text("network", is_name)?;
        let which = args.need_text("subnet", is_subnet)?;
        let set = args.set()?;
        let expected = if_version(args)?;
        args.end()?;
        let changes = Changes::read(set)?;
        changes.set.end()?;
        let (cidr, named): (_, Option<Cidr>) = (changes.cidr, which.parse().ok());
        if let (Some(before), Some(after)) = (named, cidr)
            && before.family() != after.family()
        {
            return Err(ModelError::plain("invalid_argument"));
        }
        judge_gateway(cidr.or(named), changes.gateway)?;

        let n = self.network_named(&reference)?;
        let mut findings = Findings::default();
        findings.when(self.networks[n].closed, "in_use");
        self.check_version(n, expected, &mut findings);
        let s = findings.note(self.networks[n].subnet_named(&which));
        let Some(s) = s else { return findings.verdict().map(|()| Value::Null) };
        let old = self.networks[n].subnets[s].clone();
        let new = changes.made_of(&old, &mut findings);
        if new.cidr != old.cidr {
            self.check_space(&self.networks[n].realm, new.cidr, Some((n, s)), &mut findings);
        }
        self.check_resized(n, &old, &new, false, &mut findings);
        let name = new.name != old.name;
        let taken = self.networks[n]
            .subnets
            .iter()
            .enumerate()
            .any(|(i, other)| i != s && other.name.is_some() && other.name == new.name);
        if name && taken {
            findings.name_taken(json!({}));
        }
        let others = self.networks[n].subnets.iter().enumerate().map(|(i, other)| if i == s { &new } else { other });
        check_dhcp(&others.collect::<Vec<_>>(), &mut findings);
        findings.verdict()?;
        let noun = nouns::subnet(&new);
        self.networks[n].subnets[s] = new;
        Ok(noun)
    }

    /// Checks what is in the way of changing one subnet, regardless of other subnets; `reserved`: its reserved ranges are
    /// given anew.
    pub fn check_resized(&self, n: usize, old: &Subnet, new: &Subnet, reserved: bool, findings: &mut Findings) {
        let network = &self.networks[n];
        check_shape(new, reserved, findings);
        if new.cidr != old.cidr {
            let spoiled = |first: &Address| {
                let range = block(*first, network.held[first].length);
                !new.cidr.range().covers(range) || each(range).any(|address| new.is_structural(address))
            };
            let held: Vec<Address> = network.holding_in(old.cidr.range()).into_iter().filter(spoiled).collect();
            let cut = new.reserved.iter().any(|reserved| !new.cidr.range().covers(reserved.range));
            if cut {
                findings.when(true, "in_use");
            } else if !held.is_empty() {
                let first: Vec<String> = held.iter().map(|first| first.to_string()).collect();
                findings.add(ModelError::new("in_use", json!({ "count": held.len(), "first": first })));
            }
        }
        if let Some((first, _)) = new.gateway.and_then(|gateway| network.covering(gateway)) {
            findings.add(self.in_use_by(n, first));
        }
    }

    pub fn subnet_move(&mut self, args: &Args) -> Refusal<Value> {
        let reference = args.need_text("network", is_name)?;
        let which = args.need_text("subnet", is_subnet)?;
        let to = args.need_text("to", is_name)?;
        let expected = if_version(args)?;
        args.end()?;
        let (n, t) = (self.network_named(&reference)?, self.network_named(&to)?);
        let s = self.networks[n].subnet_named(&which)?;
        let (from, target, subnet) = (&self.networks[n], &self.networks[t], &self.networks[n].subnets[s]);
        let mut findings = Findings::default();
        findings.when(from.closed || target.closed, "in_use");
        if n == t {
            self.check_version(n, expected, &mut findings);
            findings.verdict()?;
            return Ok(nouns::subnet(subnet));
        }
        findings.when(target.kind == "dynamic", "wrong_kind");
        self.check_version(n, expected, &mut findings);
        if target.subnets.iter().any(|other| other.name.is_some() && other.name == subnet.name) {
            findings.name_taken(json!({}));
        }
        self.check_space(&target.realm, subnet.cidr, Some((n, s)), &mut findings);
        check_dhcp(&target.subnets.iter().chain([subnet]).collect::<Vec<_>>(), &mut findings);
        let moving = from.holding_in(subnet.cidr.range());
        for first in &moving {
            let held = &from.held[first];
            findings.when(target.held.values().any(|other| other.key == held.key), "already_exists");
            if target.realm != from.realm {
                self.check_mac(t, held.mac.as_deref(), None, &mut findings);
            }
            // Holdings that move count together with those that are there.
            let count = |of: &dyn Fn(&Key) -> bool| {
                let moved = moving.iter().filter(|first| of(&from.held[*first].key)).count();
                (moved + target.held.values().filter(|held| of(&held.key)).count()) as u64
            };
            let owner = target.per_owner.is_some_and(|limit| count(&|key| key.same_owner(&held.key)) > limit);
            let scope = target.per_scope.is_some_and(|limit| count(&|key| key.scope == held.key.scope) > limit);
            findings.when(owner || scope, "quota_exceeded");
        }
        findings.verdict()?;
        let subnet = self.networks[n].subnets.remove(s);
        let inside = |address: &Address| subnet.cidr.contains(*address);
        let now = self.clock;
        let from = &self.networks[n];
        let cooling = from.freed.iter().filter(|(address, _)| inside(address) && from.is_cooling(**address, now));
        let cooling: Parts<Freed> = cooling.map(|(address, freed)| (*address, freed.clone())).collect();
        let (mut held, held_left) = split(&mut self.networks[n].held, inside);
        held.values_mut().for_each(|held| held.missed = None);
        let (declined, declined_left) = split(&mut self.networks[n].declined, inside);
        let from = &mut self.networks[n];
        (from.held, from.declined) = (held_left, declined_left);
        // What leaves was in use here until now. What had stopped cooling is remembered here only.
        let taken = held.iter().flat_map(|(first, held)| each(block(*first, held.length)));
        let left: Vec<Address> = taken.chain(declined.keys().copied()).collect();
        for address in &left {
            from.freed.insert(*address, Freed { at: now, by: None, uid: None, first: *address, length: 0 });
        }
        from.freed.iter_mut().filter(|(address, _)| inside(address)).for_each(|(_, freed)| freed.by = None);
        let highest = from.highest_generation;
        let target = &mut self.networks[t];
        target.highest_generation = target.highest_generation.max(highest);
        target.held.extend(held);
        left.iter().for_each(|address| drop(target.freed.remove(address)));
        target.freed.extend(cooling);
        target.declined.extend(declined);
        let noun = nouns::subnet(&subnet);
        target.subnets.push(subnet);
        Ok(noun)
    }

    pub fn subnet_remove(&mut self, args: &Args) -> Refusal<Value> {
        let reference = args.need_text("network", is_name)?;
        let which = args.need_text("subnet", is_subnet)?;
        let expected = if_version(args)?;
        args.end()?;
        let n = self.network_named(&reference)?;
        let mut findings = Findings::default();
        findings.when(self.networks[n].closed, "in_use");
        self.check_version(n, expected, &mut findings);
        let s = findings.note(self.networks[n].subnet_named(&which));
        let Some(s) = s else { return findings.verdict().map(|()| Value::Null) };
        self.check_removed(n, s, &mut findings);
        findings.verdict()?;
        let removed = self.networks[n].subnets.remove(s);
        self.forget_removed(n, &removed);
        Ok(json!({}))
    }

    pub fn check_removed(&self, n: usize, s: usize, findings: &mut Findings) {
        let network = &self.networks[n];
        let held = network.holding_in(network.subnets[s].cidr.range());
        if !held.is_empty() {
            let first: Vec<String> = held.iter().map(|first| first.to_string()).collect();
            findings.add(ModelError::new("in_use", json!({ "count": held.len(), "first": first })));
        }
    }

    pub fn forget_removed(&mut self, n: usize, removed: &Subnet) {
        if self.assume.removal_forgets {
            let network = &mut self.networks[n];
            network.freed.retain(|address, _| !removed.cidr.contains(*address));
            network.declined.retain(|address, _| !removed.cidr.contains(*address));
        }
    }
}

/// The `set` of `subnet.modify`, or an entry of `network.update`.
pub struct Changes<'a> {
    pub set: Args<'a>,
    pub cidr: Option<Cidr>,
    pub name: Option<String>,
    pub gateway: Option<Address>,
    pub pools: Option<Vec<Pool>>,
    dhcp: Option<bool>,
    draining: Option<bool>,
    dns: Value,
    zones: Vec<String>,
}

impl<'a> Changes<'a> {
    pub fn read(set: Args<'a>) -> Refusal<Self> {
        let null = |member: &str| set.raw(member) == Some(&Value::Null);
        let cidr = set.cidr("cidr")?;
        let name = if null("name") { None } else { set.text("name", is_name)? };
        let gateway = if null("gateway") { None } else { set.address("gateway")? };
        let pools = read_pools(&set)?;
        let (dhcp, draining) = (set.flag("dhcp")?, set.flag("draining")?);
        let dns = if null("dns") { Value::Null } else { read_dns(&set)? };
        let zones = if null("zones") { Vec::new() } else { read_zones(&set)? };
        set.patch_texts("tags", &mut Default::default())?;
        Ok(Self { set, cidr, name, gateway, pools, dhcp, draining, dns, zones })
    }

    /// The subnet that results from them.
    pub fn made_of(&self, old: &Subnet, findings: &mut Findings) -> Subnet {
        let mut new = old.clone();
        findings.note(self.set.patch_texts("tags", &mut new.tags));
        findings.note(self.set.patch_text("name", &mut new.name, is_name));
        new.dhcp = self.dhcp.unwrap_or(new.dhcp);
        new.draining = self.draining.unwrap_or(new.draining);
        if self.set.has("gateway") {
            new.gateway = self.gateway;
        }
        if self.set.has("dns") {
            new.dns = patched_dns(&old.dns, self.dns.clone());
        }
        if self.set.has("zones") {
            new.zones = self.zones.clone();
        }
        if let Some(cidr) = self.cidr {
            findings.when(cidr.family() != old.cidr.family(), "invalid_argument");
            resize(&mut new, cidr);
        }
        new.pools = self.pools.clone().unwrap_or(new.pools);
        new
    }
}

fn split<T>(
    map: &mut std::collections::BTreeMap<Address, T>,
    inside: impl Fn(&Address) -> bool,
) -> (Parts<T>, Parts<T>) {
    std::mem::take(map).into_iter().partition(|(address, _)| inside(address))
}

type Parts<T> = std::collections::BTreeMap<Address, T>;

/// A merge patch of dns; lists are replaced.
fn patched_dns(old: &Value, patch: Value) -> Value {
    let (Some(old), Some(patch)) = (old.as_object(), patch.as_object()) else { return patch };
    let mut merged = old.clone();
    merged.extend(patch.clone());
    Value::Object(merged)
}

/// Pools that spanned the subnet still span it, others are trimmed.
fn resize(subnet: &mut Subnet, cidr: Cidr) {
    let old: Range = subnet.cidr.range();
    subnet.cidr = cidr;
    subnet.pools.retain_mut(|pool| {
        let kept = if pool.range == old { Some(cidr.range()) } else { pool.range.intersection(cidr.range()) };
        pool.range = kept.unwrap_or(pool.range);
        kept.is_some()
    });
}

/// A gateway must not be an edge of its subnet, whatever network that is in.
pub fn judge_gateway(cidr: Option<Cidr>, gateway: Option<Address>) -> Refusal<()> {
    let (Some(cidr), Some(gateway)) = (cidr, gateway) else { return Ok(()) };
    let edge = gateway == cidr.base() || cidr.family().number() == 4 && gateway == cidr.last();
    if edge && cidr.range().size() > 2 { Err(ModelError::plain("invalid_argument")) } else { Ok(()) }
}
