//! `network.create`, `get`, `list`, `update`, `delete`, `restore`; versions.

use allod::core::address::Address;
use serde_json::{Map, Value, json};

use super::Model;
use super::args::{Args, is_name, is_note, is_owner};
use super::errors::{Findings, ModelError, Refusal};
use super::lists::read_entries;
use super::nouns;
use super::spec::{SubnetSpec, check_dhcp, check_shape, differing, differs, if_version, read_subnet};
use super::state::{Network, Subnet};

const SETTINGS: [&str; 9] = [
    "l2",
    "policy",
    "cooldown_seconds",
    "cooldown_yields",
    "static_only",
    "protected",
    "limits",
    "tags",
    "description",
];

fn patch_settings(set: &Args, network: &mut Network) -> Refusal<()> {
    if set.raw("l2") == Some(&Value::Null) {
        network.l2 = Value::Null;
    } else if let Some(l2) = set.object("l2")? {
        let mut merged = network.l2.as_object().cloned().unwrap_or_else(Map::new);
        for member in ["mode", "link", "mac_prefix"] {
            let mut value = merged.get(member).and_then(Value::as_str).map(str::to_string);
            l2.patch_text(member, &mut value, is_note)?;
            match value {
                Some(value) => drop(merged.insert(member.into(), json!(value))),
                None => drop(merged.remove(member)),
            }
        }
        l2.end()?;
        network.l2 = Value::Object(merged);
    }
    network.policy = set.word("policy", &["lowest", "random", "oldest"])?.unwrap_or(network.policy);
    let cooldown = set.number("cooldown_seconds", 0, u64::MAX / 1_000_000)?;
    network.cooldown_ms = cooldown.map_or(network.cooldown_ms, |seconds| seconds * 1000);
    network.cooldown_yields = set.flag("cooldown_yields")?.unwrap_or(network.cooldown_yields);
    network.static_only = set.flag("static_only")?.unwrap_or(network.static_only);
    network.protected = set.flag("protected")?.unwrap_or(network.protected);
    if set.raw("limits") == Some(&Value::Null) {
        (network.per_owner, network.per_scope) = (None, None);
    } else if let Some(limits) = set.object("limits")? {
        for (member, limit) in [("per_owner", &mut network.per_owner), ("per_scope", &mut network.per_scope)] {
            match limits.raw(member) {
                None => {}
                Some(Value::Null) => *limit = None,
                Some(_) => *limit = limits.number(member, 0, u64::MAX)?,
            }
        }
        limits.end()?;
    }
    set.patch_texts("tags", &mut network.tags)?;
    set.patch_text("description", &mut network.description, is_note)
}

fn blank(name: String, realm: String, kind: &'static str) -> Network {
    Network {
        id: String::new(),
        name,
        realm,
        kind,
        l2: Value::Null,
        policy: "lowest",
        cooldown_ms: 0,
        cooldown_yields: false,
        static_only: false,
        protected: false,
        per_owner: None,
        per_scope: None,
        tags: Default::default(),
        description: None,
        subnets: Vec::new(),
        version: 1,
        closed: false,
        held: Default::default(),
        freed: Default::default(),
        declined: Default::default(),
        highest_generation: 0,
    }
}

impl Model {
    pub fn network_create(&mut self, args: &Args) -> Refusal<Value> {
        let name = args.need_text("name", is_name)?;
        let realm = args.text("realm", is_name)?.unwrap_or_else(|| "default".into());
        let kind = args.word("kind", &["manual", "dynamic", "vip"])?.unwrap_or("manual");
        if SETTINGS.iter().any(|member| args.raw(member) == Some(&Value::Null)) {
            return Err(ModelError::plain("invalid_argument"));
        }
        let mut network = blank(name, realm, kind);
        patch_settings(args, &mut network)?;
        let mut specs: Vec<SubnetSpec> = Vec::new();
        for value in args.list("subnets", 4096)?.into_iter().flatten() {
            let item = Args::of(value)?;
            specs.push(read_subnet(&item)?);
            item.end()?;
        }
        let if_absent = args.on("if_absent")?;
        if_version(args)?;
        let mut given: Vec<&str> = SETTINGS.into_iter().filter(|member| args.has(member)).collect();
        given.extend(["realm", "kind"].into_iter().filter(|member| args.has(member)));
        let subnets_given = args.has("subnets");
        args.end()?;
        network.subnets = specs.iter().map(|spec| spec.subnet.clone()).collect();

        let mut findings = Findings::default();
        let there = self.networks.iter().position(|other| !other.closed && other.name == network.name);
        self.check_new_subnets(&network, there, &mut findings);
        if let Some(there) = there {
            if if_absent {
                let mut members = differing(given, &nouns::network(&network), &nouns::network(&self.networks[there]));
                if subnets_given && !same_subnets(&specs, &self.networks[there].subnets) {
                    members.push("subnets");
                }
                if members.is_empty() {
                    findings.verdict()?;
                    let mut noun = nouns::network(&self.networks[there]);
                    noun["created"] = json!(false);
                    return Ok(noun);
                }
                findings.network_taken(differs(members).data);
            } else {
                findings.network_taken(json!({}));
            }
        }
        findings.verdict()?;
        network.id = self.new_id();
        for subnet in &mut network.subnets {
            subnet.id = self.new_id();
        }
        let mut noun = nouns::network(&network);
        self.networks.push(network);
        if if_absent {
            noun["created"] = json!(true);
        }
        Ok(noun)
    }

    fn check_new_subnets(&self, network: &Network, there: Option<usize>, findings: &mut Findings) {
        findings.when(network.kind == "dynamic" && !network.subnets.is_empty(), "wrong_kind");
        for (index, subnet) in network.subnets.iter().enumerate() {
            check_shape(subnet, true, findings);
            if there.is_none() {
                self.check_space(&network.realm, subnet.cidr, None, findings);
            }
            for earlier in &network.subnets[..index] {
                findings.when(earlier.cidr.range().overlaps(subnet.cidr.range()), "overlap");
                if earlier.name.is_some() && earlier.name == subnet.name {
                    findings.name_taken(json!({}));
                }
            }
        }
        check_dhcp(&network.subnets.iter().collect::<Vec<_>>(), findings);
    }

    pub fn network_get(&mut self, args: &Args) -> Refusal<Value> {
        let reference = args.need_text("network", is_name)?;
        args.end()?;
        Ok(nouns::network(&self.networks[self.network_named(&reference)?]))
    }

    pub fn network_list(&mut self, args: &Args) -> Refusal<Value> {
        let realm = args.text("realm", is_name)?;
        let tag = args.text("tag", |tag| !tag.is_empty())?;
        let usage = args.on("usage")?;
        let deleted = args.on("deleted")?;
        let after = args.text("after", |after| !after.is_empty())?;
        let limit = args.number("limit", 1, 10_000)?.unwrap_or(1000) as usize;
        args.end()?;
        let position = match after {
            Some(token) => Some(self.pages.get(&token).cloned().ok_or_else(|| ModelError::plain("invalid_argument"))?),
            None => None,
        };
        let tagged = |network: &Network| match tag.as_deref().map(|tag| tag.split_once('=').ok_or(tag)) {
            None => true,
            Some(Ok((key, value))) => network.tags.get(key).is_some_and(|actual| actual == value),
            Some(Err(key)) => network.tags.contains_key(key),
        };
        let shown = |network: &Network| {
            network.closed == deleted
                && tagged(network)
                && realm.as_ref().is_none_or(|realm| *realm == network.realm)
                && position.as_ref().is_none_or(|(name, _)| network.name > *name)
        };
        let mut found: Vec<usize> = (0..self.networks.len()).filter(|n| shown(&self.networks[*n])).collect();
        found.sort_by_key(|n| self.networks[*n].name.clone());
        let more = found.len() > limit;
        found.truncate(limit);
        let mut token = String::new();
        if more {
            token = self.note_page(self.networks[found[limit - 1]].name.clone(), None);
        }
        let list = found.into_iter().map(|n| {
            let mut noun = nouns::network(&self.networks[n]);
            if usage {
                noun["usage"] = self.usage(n);
            }
            noun
        });
        let mut answer = json!({ "networks": list.collect::<Vec<_>>() });
        if more {
            answer["next"] = json!(token);
        }
        Ok(answer)
    }

    pub fn network_update(&mut self, args: &Args) -> Refusal<Value> {
        let reference = args.need_text("network", is_name)?;
        let set = args.set()?;
        let expected = if_version(args)?;
        args.end()?;
        let name = set.text("name", is_name)?;
        // First applied to nothing, since errors of form precede all others.
        patch_settings(&set, &mut blank(String::new(), String::new(), "manual"))?;
        let entries = read_entries(&set)?;
        set.end()?;
        let n = self.network_named(&reference)?;
        let mut findings = Findings::default();
        findings.when(self.networks[n].closed, "in_use");
        self.check_version(n, expected, &mut findings);
        if let Some(name) = &name {
            let taken = self
                .networks
                .iter()
                .enumerate()
                .any(|(other, network)| other != n && !network.closed && network.name == *name);
            if taken {
                findings.name_taken(json!({}));
            }
        }
        let mut updated = self.networks[n].clone();
        findings.note(patch_settings(&set, &mut updated));
        if let Some(entries) = &entries {
            updated.subnets = self.listed(n, entries, &mut findings);
        }
        findings.verdict()?;
        let stays = |gone: &Subnet| updated.subnets.iter().any(|subnet| subnet.id == gone.id);
        let removed: Vec<Subnet> = self.networks[n].subnets.iter().filter(|subnet| !stays(subnet)).cloned().collect();
        for subnet in updated.subnets.iter_mut().filter(|subnet| subnet.id.is_empty()) {
            subnet.id = self.new_id();
        }
        updated.name = name.unwrap_or(updated.name);
        let (before, now) = (&self.networks[n], self.clock);
        let cooling = |address: &Address| before.is_cooling(*address, now);
        if updated.policy == "oldest" && before.policy != "oldest" {
            updated.freed.retain(|address, _| cooling(address));
        }
        // What is free stays free even if the cooldown becomes longer.
        let rested = updated.freed.iter_mut().filter(|(address, _)| !cooling(address));
        rested.for_each(|(_, freed)| freed.by = None);
        self.networks[n] = updated;
        removed.iter().for_each(|subnet| self.forget_removed(n, subnet));
        Ok(nouns::network(&self.networks[n]))
    }

    pub fn network_delete(&mut self, args: &Args) -> Refusal<Value> {
        let reference = args.need_text("network", is_name)?;
        let (force, purge) = (args.on("force")?, args.on("purge")?);
        let expected = if_version(args)?;
        args.end()?;
        let n = self.network_named(&reference)?;
        let mut findings = Findings::default();
        self.check_version(n, expected, &mut findings);
        let network = &self.networks[n];
        let holding = network.held.len();
        findings.when(network.protected, "in_use");
        if holding > 0 && !force && !purge {
            let first: Vec<String> = network.held.keys().map(|first| first.to_string()).collect();
            findings.add(ModelError::new("in_use", json!({ "count": holding, "first": first })));
        }
        findings.verdict()?;
        let answer = json!({ "id": network.id, "holding": if purge { 0 } else { holding } });
        if purge || holding == 0 {
            self.networks.remove(n);
        } else {
            self.networks[n].closed = true;
        }
        Ok(answer)
    }

    pub fn network_restore(&mut self, args: &Args) -> Refusal<Value> {
        let id = args.need_text("network", is_owner)?;
        let expected = if_version(args)?;
        args.end()?;
        let found = self.networks.iter().position(|network| network.id == id);
        let n = found.ok_or_else(|| ModelError::plain("not_found"))?;
        let mut findings = Findings::default();
        self.check_version(n, expected, &mut findings);
        let name = &self.networks[n].name;
        if self
            .networks
            .iter()
            .enumerate()
            .any(|(other, network)| other != n && !network.closed && network.name == *name)
        {
            findings.name_taken(json!({}));
        }
        findings.verdict()?;
        self.networks[n].closed = false;
        Ok(nouns::network(&self.networks[n]))
    }

    /// Raises the version by one where the configuration has changed.
    pub fn raise_versions(&mut self, before: &[Network], named: Option<&Value>) {
        for old in before {
            let meant = named == Some(&json!(old.id)) || (named == Some(&json!(old.name)) && !old.closed);
            let always = self.assume.no_change_raises_version && meant;
            let Some(network) = self.networks.iter_mut().find(|network| network.id == old.id) else { continue };
            if always || network.closed != old.closed || nouns::network(network) != nouns::network(old) {
                network.version += 1;
            }
        }
    }

    /// Puts the version into an answer that was made before the version rose.
    pub fn with_version(&self, method: &str, mut answer: Value) -> Value {
        let changed = ["network.update", "network.restore"].contains(&method);
        let network = self.networks.iter().find(|network| answer["id"] == json!(network.id));
        if let Some(network) = network.filter(|_| changed) {
            answer["version"] = json!(network.version);
        }
        answer
    }
}

/// Are the existing subnets the requested ones, in every member given?
fn same_subnets(specs: &[SubnetSpec], there: &[Subnet]) -> bool {
    let same = |spec: &SubnetSpec| {
        let found = there.iter().find(|subnet| subnet.cidr == spec.subnet.cidr);
        found.is_some_and(|found| spec.differing(found).is_empty())
    };
    specs.len() == there.len() && specs.iter().all(same)
}
