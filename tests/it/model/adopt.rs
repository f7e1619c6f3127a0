//! Adopts from the server what only the server can know: ids, generations, versions of new networks, random choices.
//! Conversely, names of such values in generated requests are replaced when the request is sent.

use std::collections::BTreeMap;

use allod::core::address::Address;
use serde_json::{Value, json};

use super::Model;
use super::compare::{compare, objects};
use super::errors::ModelError;
use super::nouns::time;

/// The server's answer: the result, or kind and data of the error.
pub type Answer = Result<Value, (String, Value)>;

impl Model {
    /// Carries out a request, following the server's answer where the server was free to choose, and compares the two. After
    /// an `Err` the model's state is worthless.
    pub fn call_with_answer(
        &mut self,
        now_ms: u64,
        method: &str,
        params: &Value,
        server: &Answer,
    ) -> Result<(), String> {
        let highest: BTreeMap<String, u64> =
            self.networks.iter().map(|n| (n.id.clone(), n.highest_generation)).collect();
        self.advance(now_ms);
        let before = self.clone();
        self.hint = server.as_ref().ok().cloned();
        let mine = self.call(now_ms, method, params);
        self.hint = None;
        let dry = params["dry_run"] == json!(true);
        let told =
            |problem: String| format!("{method} {params} at {now_ms}: {problem}\n model: {mine:?}\nserver: {server:?}");
        if self.unlucky(method, &mine, server) {
            *self = before;
            return Ok(());
        }
        let Ok(theirs) = server else {
            return compare(method, dry, &mine, server).map_err(told);
        };
        let Ok(mut expected) = mine.clone() else {
            return compare(method, dry, &mine, server).map_err(told);
        };
        if !dry {
            self.learn_ids(method, params, theirs).map_err(told)?;
            self.learn_generations(&mut expected, theirs, &highest).map_err(told)?;
        }
        self.learn_page(method, theirs);
        if method == "network.create" && theirs["created"] != json!(false) {
            expected["version"] = theirs["version"].clone();
        }
        compare(method, dry, &Ok(expected), server).map_err(told)
    }

    /// Whether a later item of an acquire still fits may depend on a free choice for an earlier one, which a refusal does
    /// not show. In that case want of capacity is accepted.
    fn unlucky(&self, method: &str, mine: &Result<Value, ModelError>, server: &Answer) -> bool {
        let refused = server.as_ref().is_err_and(|(kind, _)| kind == "not_enough_capacity");
        let could_be = mine.as_ref().map_or_else(|error| error.kind == "not_enough_capacity", |_| true);
        method == "ip.acquire" && self.chose && refused && could_be
    }

    /// The address at a path of the server's answer.
    pub fn hinted_address(&self, path: &[&str]) -> Option<Address> {
        let pointer = format!("/{}", path.join("/"));
        self.hint.as_ref()?.pointer(&pointer)?.as_str()?.parse().ok()
    }

    /// Checks that every generation granted now is higher than all earlier ones in its network, and that none is given
    /// twice.
    fn learn_generations(
        &mut self,
        expected: &mut Value,
        theirs: &Value,
        highest: &BTreeMap<String, u64>,
    ) -> Result<(), String> {
        let mut seen: Vec<(usize, u64)> = Vec::new();
        let mut nouns: Vec<&Value> = objects(theirs).into_iter().filter(|noun| noun["generation"].is_u64()).collect();
        for (n, first) in std::mem::take(&mut self.last_granted) {
            let Some(network) = self.networks.get_mut(n) else { continue };
            let Some(held) = network.held.get_mut(&first) else { continue };
            let is_it = |noun: &&Value| {
                noun["address"] == json!(first.to_string())
                    && (noun["network"].is_null() || noun["network"] == json!(network.name))
            };
            let Some(found) = nouns.iter().position(is_it) else {
                return Err(format!("no generation for {first} in the answer"));
            };
            let noun = nouns.remove(found);
            let generation = noun["generation"].as_u64().unwrap_or(0);
            let before = highest.get(&network.id).copied().unwrap_or(0);
            if generation <= before || seen.contains(&(n, generation)) {
                return Err(format!("generation {generation} of {first} does not rise above {before}"));
            }
            seen.push((n, generation));
            // Marked as learnt, so that it is not taken for the provisional generation of the same address in another realm.
            replace_generation(expected, (&network.name, first), held.generation, LEARNT | generation);
            held.generation = generation;
            if held.mac.as_deref() == Some("auto") {
                held.mac = noun["mac"].as_str().map(str::to_string);
            }
        }
        clear_marks(expected);
        for n in 0..self.networks.len() {
            let before = highest.get(&self.networks[n].id).copied().unwrap_or(0);
            let learnt = seen.iter().filter(|(of, _)| *of == n).map(|(_, generation)| *generation).max();
            if let Some(learnt) = learnt {
                self.networks[n].highest_generation = learnt.max(before);
            }
        }
        Ok(())
    }

    /// Adopts the ids of what was created now. Known ids must not change.
    fn learn_ids(&mut self, method: &str, params: &Value, theirs: &Value) -> Result<(), String> {
        let nouns: Vec<&Value> = match method {
            "network.create" | "network.update" | "network.get" | "network.restore" => vec![theirs],
            "network.list" => theirs["networks"].as_array().into_iter().flatten().collect(),
            _ => vec![],
        };
        for noun in nouns {
            let (id, name) = (noun["id"].as_str().unwrap_or_default(), noun["name"].as_str().unwrap_or_default());
            let by_id = self.networks.iter().position(|network| network.id == id);
            let found =
                by_id.or_else(|| self.networks.iter().position(|network| !network.closed && network.name == name));
            let Some(n) = found else { continue };
            let network = &mut self.networks[n];
            learn_id(&mut network.id, noun)?;
            if method == "network.create" && noun["created"] != json!(false) {
                network.version = noun["version"].as_u64().unwrap_or(0);
            }
            for part in noun["subnets"].as_array().into_iter().flatten() {
                let there = network.subnets.iter_mut().find(|subnet| json!(subnet.cidr.to_string()) == part["cidr"]);
                if let Some(subnet) = there {
                    learn_id(&mut subnet.id, part)?;
                }
            }
        }
        if let "subnet.add" | "subnet.modify" | "subnet.move" = method {
            let reference = if method == "subnet.move" { &params["to"] } else { &params["network"] };
            let found = self.network_named(reference.as_str().unwrap_or_default());
            let Ok(n) = found else { return Ok(()) };
            let subnets = &mut self.networks[n].subnets;
            if let Some(subnet) = subnets.iter_mut().find(|subnet| json!(subnet.cidr.to_string()) == theirs["cidr"]) {
                learn_id(&mut subnet.id, theirs)?;
            }
        }
        Ok(())
    }

    /// `$next` is the last page of `ip.list`. Pages are in the order of network names, so a change of networks ends it.
    fn learn_page(&mut self, method: &str, theirs: &Value) {
        if method == "ip.list" {
            self.last_page = theirs["next"].as_str().map(str::to_string).or(self.last_page.take());
        } else if ["network.create", "network.update", "network.delete", "network.restore"].contains(&method) {
            self.last_page = None;
        }
    }

    /// Replaces the names of values in a generated request: `$id:n0`, `$subnet:10.0.0.0/28`, `$generation:n0:10.0.0.5`,
    /// `$version:n0`, `$next`, `$time:+5000`. An unknown one becomes a value that nothing has.
    pub fn resolve(&self, now_ms: u64, params: &Value) -> Value {
        match params {
            Value::Object(members) => {
                let resolved = members.iter().map(|(name, value)| (name.clone(), self.resolve(now_ms, value)));
                Value::Object(resolved.collect())
            }
            Value::Array(list) => list.iter().map(|value| self.resolve(now_ms, value)).collect(),
            Value::String(text) if text.starts_with('$') => self.named_value(now_ms, &text[1..]),
            other => other.clone(),
        }
    }

    fn named_value(&self, now_ms: u64, text: &str) -> Value {
        let (what, which) = text.split_once(':').unwrap_or((text, ""));
        let named = |name: &str| self.networks.iter().rev().find(|network| network.name == name);
        let closed = |name: &str| self.networks.iter().rev().find(|network| network.closed && network.name == name);
        match what {
            "id" => json!(named(which).map_or("00000000-0000-4000-8000-000000000000", |network| &network.id)),
            "closed" => json!(closed(which).map_or("00000000-0000-4000-8000-000000000000", |network| &network.id)),
            "version" => json!(named(which).map_or(1, |network| network.version)),
            "subnet" => {
                let mut subnets = self.networks.iter().flat_map(|network| &network.subnets);
                let found = subnets.find(|subnet| subnet.cidr.to_string() == which);
                json!(found.map_or("00000000-0000-4000-8000-000000000001", |subnet| &subnet.id))
            }
            "generation" => {
                let (name, address) = which.split_once(':').unwrap_or((which, ""));
                let nth = address.strip_prefix('@').map(|which| self.holding_value("held", which));
                let address = nth.as_ref().and_then(Value::as_str).unwrap_or(address).parse::<Address>();
                let held = named(name).and_then(|network| network.held.get(&address.ok()?));
                json!(held.map_or(7, |held| held.generation))
            }
            "held" | "owner" | "scope" | "slot" => self.holding_value(what, which),
            "in" | "cidr" | "pool" | "reserved" => self.place_value(what, which),
            "next" => json!(self.last_page.as_deref().unwrap_or("no-such-page")),
            "time" => json!(time(now_ms.saturating_add_signed(which.parse().unwrap_or(0)))),
            _ => json!(text),
        }
    }

    /// A value of the n-th reservation of a network, counted round: `$held:n0:17`, `$owner:n0:17`.
    fn holding_value(&self, what: &str, which: &str) -> Value {
        let (name, index) = which.split_once(':').unwrap_or((which, "0"));
        let network = self.networks.iter().rev().find(|network| network.name == name && !network.held.is_empty());
        let index: usize = index.parse().unwrap_or(0);
        let found = network.and_then(|network| network.held.iter().nth(index % network.held.len()));
        match (what, found) {
            ("held", found) => json!(found.map_or("10.0.0.5".into(), |(first, _)| first.to_string())),
            ("owner", found) => json!(found.map_or("a", |(_, held)| &held.key.owner)),
            ("scope", found) => json!(found.map_or("default", |(_, held)| &held.key.scope)),
            (_, found) => json!(found.map_or("0", |(_, held)| &held.key.slot)),
        }
    }

    /// The n-th address, subnet or pool of a network, counted round.
    fn place_value(&self, what: &str, which: &str) -> Value {
        let (name, index) = which.split_once(':').unwrap_or((which, "0"));
        let index: usize = index.parse().unwrap_or(0);
        let Some(network) = self.networks.iter().rev().find(|network| network.name == name) else {
            return json!("10.0.0.5");
        };
        let places: Vec<String> = match what {
            "cidr" => network.subnets.iter().map(|subnet| subnet.cidr.to_string()).collect(),
            "pool" => network.pools().map(|(_, pool)| pool.range.to_string()).collect(),
            "reserved" => {
                network.subnets.iter().flat_map(|subnet| &subnet.reserved).map(|part| part.range.to_string()).collect()
            }
            _ => network
                .subnets
                .iter()
                .flat_map(|subnet| super::state::each(subnet.cidr.range()))
                .map(|a| a.to_string())
                .collect(),
        };
        let fallback = if what == "cidr" { "10.0.0.0/28" } else { "10.0.0.5" };
        json!(places.get(index % places.len().max(1)).map_or(fallback, String::as_str))
    }

    /// Checks facts that hold in every state; a model that breaks one is wrong itself.
    pub fn check_invariants(&self) -> Result<(), String> {
        use super::state::block;
        for network in &self.networks {
            for (first, held) in &network.held {
                let range = block(*first, held.length);
                let overlapping = self
                    .networks
                    .iter()
                    .filter(|other| other.realm == network.realm)
                    .map(|other| other.holding_in(range).len());
                if overlapping.sum::<usize>() != 1 {
                    return Err(format!("{first} of {} has two holders", network.name));
                }
                let current = network.held.values().filter(|other| other.key == held.key).count();
                let subnet =
                    network.subnet_of(*first).ok_or(format!("{first} of {} lies in no subnet", network.name))?;
                let usable = super::state::each(range).all(|address| !subnet.is_unusable(address));
                if current != 1 || !usable || range.first() != *first {
                    return Err(format!("{first} of {}: {held:?}", network.name));
                }
            }
        }
        Ok(())
    }
}

fn learn_id(id: &mut String, noun: &Value) -> Result<(), String> {
    let theirs = noun["id"].as_str().ok_or(format!("no id in {noun}"))?;
    if id.starts_with("model-") {
        *id = theirs.to_string();
    }
    if id == theirs { Ok(()) } else { Err(format!("the id changed from {id} to {theirs}")) }
}

/// Marks a generation that was just learnt.
const LEARNT: u64 = 1 << 62;

fn clear_marks(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let Some(generation) = members.get("generation").and_then(Value::as_u64).filter(|at| at & LEARNT != 0) {
                members.insert("generation".into(), json!(generation & !LEARNT));
            }
            members.values_mut().for_each(clear_marks);
        }
        Value::Array(list) => list.iter_mut().for_each(clear_marks),
        _ => {}
    }
}

/// Replaces the first matching provisional generation. Networks of two realms may have given the same address the same
/// number.
fn replace_generation(value: &mut Value, (network, first): (&str, Address), provisional: u64, learnt: u64) -> bool {
    match value {
        Value::Object(members) => {
            let here = members.get("network").is_none_or(|named| named == network);
            if here
                && members.get("address") == Some(&json!(first.to_string()))
                && members.get("generation") == Some(&json!(provisional))
            {
                members.insert("generation".into(), json!(learnt));
                return true;
            }
            members.values_mut().any(|value| replace_generation(value, (network, first), provisional, learnt))
        }
        Value::Array(list) => {
            list.iter_mut().any(|value| replace_generation(value, (network, first), provisional, learnt))
        }
        _ => false,
    }
}

/// The model's own answer in the form of a server's.
pub fn as_answer(answer: Result<Value, ModelError>) -> Answer {
    answer.map_err(|error| (error.kind.to_string(), error.data))
}
