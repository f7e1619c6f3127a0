//! `ip.get`, `ip.find`, `ip.list`, `realm.list`, `scope.list`.

use std::collections::{BTreeMap, BTreeSet};

use allod::core::address::Address;
use serde_json::{Value, json};

use super::Model;
use super::args::{Args, is_name, is_note, is_owner, is_pool, is_subnet};
use super::errors::{ModelError, Refusal};
use super::nouns::time;
use super::state::{Held, block};

struct Filter {
    network: Option<usize>,
    realm: Option<String>,
    scope: Option<String>,
    owner: Option<String>,
    owner_prefix: Option<String>,
    claimant: Option<String>,
    bound: Option<bool>,
    label: Option<String>,
    subnet: Option<String>,
    pool: Option<String>,
    kind: Option<&'static str>,
    range: Option<allod::core::address::Range>,
    hostname: Option<String>,
    mac: Option<String>,
    obsolete: Option<bool>,
    expires_before: Option<String>,
    created_before: Option<String>,
}

fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T'
}

impl Model {
    pub fn ip_get(&mut self, args: &Args) -> Refusal<Value> {
        let address = args.need_address("address")?;
        let network = args.text("network", is_name)?;
        let realm = args.text("realm", is_name)?;
        args.end()?;
        if network.is_some() && realm.is_some() {
            return Err(ModelError::plain("invalid_argument"));
        }
        if let Some(reference) = network {
            return Ok(self.seen(self.network_named(&reference)?, address));
        }
        let realm = realm.unwrap_or_else(|| "default".into());
        let covers = |n: &usize| self.networks[*n].realm == realm && self.networks[*n].subnet_of(address).is_some();
        match (0..self.networks.len()).find(covers) {
            Some(n) => Ok(self.seen(n, address)),
            None => Ok(json!({ "address": address.to_string(), "state": "unknown" })),
        }
    }

    pub fn ip_find(&mut self, args: &Args) -> Refusal<Value> {
        let address = args.need_address("address")?;
        args.end()?;
        let covering = (0..self.networks.len()).filter(|n| self.networks[*n].subnet_of(address).is_some());
        Ok(json!({ "found": covering.map(|n| self.seen(n, address)).collect::<Vec<_>>() }))
    }

    pub fn ip_list(&mut self, args: &Args) -> Refusal<Value> {
        let network = args.text("network", is_name)?;
        let mut filter = Filter {
            network: None,
            realm: args.text("realm", is_name)?,
            scope: args.text("scope", is_owner)?,
            owner: args.text("owner", is_owner)?,
            owner_prefix: args.text("owner_prefix", is_owner)?,
            claimant: args.text("claimant", is_owner)?,
            bound: args.flag("bound")?,
            label: args.text("label", |label| !label.is_empty())?,
            subnet: args.text("subnet", is_subnet)?,
            pool: args.text("pool", is_pool)?,
            kind: args.word("kind", &["dynamic", "static"])?,
            range: args.range("range")?,
            hostname: args.text("hostname", is_note)?,
            mac: args.text("mac", is_note)?,
            obsolete: args.flag("obsolete")?,
            expires_before: args.text("expires_before", is_time)?,
            created_before: args.text("created_before", is_time)?,
        };
        let count_only = args.on("count_only")?;
        let after = args.text("after", |after| !after.is_empty())?;
        let limit = args.number("limit", 1, 10_000)?.unwrap_or(1000) as usize;
        args.end()?;
        let position = match after {
            Some(token) => Some(self.pages.get(&token).cloned().ok_or_else(|| ModelError::plain("invalid_argument"))?),
            None => None,
        };
        filter.network = network.map(|reference| self.network_named(&reference)).transpose()?;
        if let (Some(n), Some(reference)) = (filter.network, &filter.subnet) {
            self.networks[n].subnet_named(reference)?;
        }
        if let (Some(n), Some(reference)) = (filter.network, &filter.pool)
            && !self.networks[n].pools().any(|(_, pool)| pool.is_named(reference))
        {
            return Err(ModelError::plain("not_found"));
        }
        let mut found: Vec<(String, Option<Address>, usize)> = Vec::new();
        for (n, network) in self.networks.iter().enumerate() {
            let fitting = network.held.iter().filter(|(first, held)| self.admits(&filter, n, **first, held));
            found.extend(fitting.map(|(first, _)| (network.name.clone(), Some(*first), n)));
        }
        found.sort();
        found.retain(|(name, first, _)| {
            position.as_ref().is_none_or(|position| (name, first) > (&position.0, &position.1))
        });
        if count_only {
            return Ok(json!({ "count": found.len() }));
        }
        let more = found.len() > limit;
        found.truncate(limit);
        if more {
            let (name, first, _) = found[limit - 1].clone();
            self.last_page = Some(self.note_page(name, first));
        }
        let reservations = found.iter().filter_map(|(_, first, n)| first.map(|first| self.reservation(*n, first)));
        let mut answer = json!({ "reservations": reservations.collect::<Vec<_>>() });
        if more {
            answer["next"] = json!(self.last_page);
        }
        Ok(answer)
    }

    /// Remembers where a page ended, under the server's token.
    pub fn note_page(&mut self, name: String, first: Option<Address>) -> String {
        let token = self.hint.as_ref().and_then(|answer| answer["next"].as_str()).map(str::to_string);
        let token = token.unwrap_or_else(|| format!("page-{}", self.pages.len()));
        self.pages.insert(token.clone(), (name, first));
        token
    }

    fn admits(&self, filter: &Filter, n: usize, first: Address, held: &Held) -> bool {
        let network = &self.networks[n];
        let subnet = network.subnet_of(first);
        let pool = subnet.and_then(|subnet| subnet.pool_at(first));
        let is = |wanted: &Option<String>, actual: Option<&str>| wanted.is_none() || wanted.as_deref() == actual;
        // The text is a key, or a key, `=` and its value.
        let labelled =
            |label: &String| held.labels.iter().any(|(key, value)| key == label || *label == format!("{key}={value}"));
        filter.network.is_none_or(|only| only == n)
            && is(&filter.realm, Some(&network.realm))
            && is(&filter.scope, Some(&held.key.scope))
            && is(&filter.owner, Some(&held.key.owner))
            && filter.owner_prefix.as_ref().is_none_or(|prefix| held.key.owner.starts_with(prefix))
            && is(&filter.claimant, held.claimant.as_deref())
            && filter.bound.is_none_or(|bound| bound == held.claimant.is_some())
            && filter.label.as_ref().is_none_or(labelled)
            && filter.subnet.as_ref().is_none_or(|name| subnet.is_some_and(|subnet| subnet.is_named(name)))
            && filter.pool.as_ref().is_none_or(|name| pool.is_some_and(|pool| pool.is_named(name)))
            && filter.kind.is_none_or(|kind| kind == held.kind)
            && filter.range.is_none_or(|range| range.overlaps(block(first, held.length)))
            && filter
                .hostname
                .as_ref()
                .is_none_or(|name| held.hostname.as_ref().is_some_and(|held| held.eq_ignore_ascii_case(name)))
            && filter.mac.as_ref().is_none_or(|mac| held.mac.as_deref() == Some(mac.to_ascii_lowercase().as_str()))
            && filter.obsolete.is_none_or(|obsolete| !obsolete)
            && filter.expires_before.as_ref().is_none_or(|before| held.end.is_some_and(|end| time(end) < *before))
            && filter.created_before.as_ref().is_none_or(|before| time(held.created) < *before)
    }

    pub fn realm_list(&mut self, args: &Args) -> Refusal<Value> {
        args.end()?;
        let realms: BTreeSet<&String> = self.networks.iter().map(|network| &network.realm).collect();
        let realms: Vec<Value> = realms.into_iter().map(|realm| json!({ "realm": realm })).collect();
        Ok(json!({ "realms": realms }))
    }

    pub fn scope_list(&mut self, args: &Args) -> Refusal<Value> {
        let network = args.text("network", is_name)?;
        args.end()?;
        let only = network.map(|reference| self.network_named(&reference)).transpose()?;
        let mut scopes: BTreeMap<&str, [u128; 3]> = BTreeMap::new();
        for (_, network) in self.networks.iter().enumerate().filter(|(n, _)| only.is_none_or(|only| only == *n)) {
            for (first, held) in &network.held {
                let [reservations, addresses, unbound] = scopes.entry(&held.key.scope).or_default();
                *reservations += 1;
                *addresses += block(*first, held.length).size();
                *unbound += u128::from(held.claimant.is_none());
            }
        }
        let list = scopes.iter().map(|(scope, [reservations, addresses, unbound])| {
            json!({
                "scope": scope, "reservations": *reservations as u64, "addresses": addresses.to_string(),
                "obsolete": 0, "unbound": *unbound as u64,
            })
        });
        Ok(json!({ "scopes": list.collect::<Vec<_>>() }))
    }
}
