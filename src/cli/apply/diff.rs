//! Computes the differences between a file and a server, as the calls that make the server equal. Pure.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::file::Table;
use super::matching::{Group, in_order, matches};
use super::{overlaps, subnets};

/// One call, and its effect in words.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The network that it changes, by its name in the file.
    pub network: String,
    /// Method of the protocol.
    pub method: &'static str,
    /// Its params.
    pub params: Map<String, Value>,
    /// What changes, a line each: `+` is added, `~` is changed, `-` is removed.
    pub words: Vec<String>,
}

impl Step {
    /// A step with the members of `params`.
    pub fn new(network: &str, method: &'static str, params: Value, words: Vec<String>) -> Self {
        let params = if let Value::Object(params) = params { params } else { Map::new() };
        Self { network: network.to_owned(), method, params, words }
    }

    /// The params with the network's name instead of its id, for messages.
    pub fn for_people(&self) -> Value {
        let mut params = self.params.clone();
        if params.contains_key("network") {
            params.insert("network".to_owned(), json!(self.network));
        }
        Value::Object(params)
    }

    /// Whether it removes something: a network, subnet, pool, reserved range, a part of one of these, or a setting.
    pub fn takes_away(&self) -> bool {
        self.words.iter().any(|line| line.starts_with('-'))
    }
}

/// The settings of a network that may change, with their defaults. Null: none.
fn settings() -> [(&'static str, Value); 9] {
    [
        ("l2", Value::Null),
        ("policy", json!("lowest")),
        ("cooldown_seconds", json!(0)),
        ("cooldown_yields", json!(false)),
        ("static_only", json!(false)),
        ("protected", json!(false)),
        ("limits", Value::Null),
        ("tags", Value::Null),
        ("description", Value::Null),
    ]
}

/// The calls that make `networks` (of the server) equal to `tables` (of the file), one for each network that differs: first
/// removals, then changes, then additions, so that names and addresses are free when they are needed. Of the changes those
/// come first that give up a name or space which another takes.
///
/// # Errors
/// What cannot be changed, and which subnets of the file overlap, a line each.
pub fn steps(tables: &[Table], networks: &[Value], prune: bool) -> Result<Vec<Step>, String> {
    let matched = matches(tables, networks);
    let (mut removed, mut changed, mut created) = (Vec::new(), Vec::new(), Vec::new());
    let mut problems = overlaps::within(tables, &matched, networks);
    for (table, at) in tables.iter().zip(&matched) {
        match at.and_then(|at| networks.get(at)) {
            Some(network) => match changes(table, network, prune) {
                Ok(None) => {}
                Ok(Some(step)) => {
                    changed.push(Group { name: network["name"].as_str().unwrap_or_default(), there: network, step })
                }
                Err(problem) => problems.push(problem),
            },
            None => created.push(creation(table)),
        }
    }
    if prune {
        let kept: BTreeSet<usize> = matched.iter().flatten().copied().collect();
        let realms: BTreeSet<&str> =
            tables.iter().zip(&matched).map(|(table, at)| realm_of(table, *at, networks)).collect();
        let gone = networks.iter().enumerate().filter(|(at, _)| !kept.contains(at)).map(|(_, network)| network);
        for network in gone.filter(|network| network.as_object().is_some_and(|members| realms.contains(realm(members))))
        {
            let name = network["name"].as_str().unwrap_or_default();
            let params = json!({"network": network["id"], "if_version": network["version"]});
            removed.push(Step::new(name, "network.delete", params, vec!["- delete the network".to_owned()]));
        }
    }
    if problems.is_empty() {
        let names = networks.iter().filter_map(|network| network["name"].as_str());
        let names = names.chain(tables.iter().map(|table| table.name.as_str())).collect();
        let changed = in_order(overlaps::in_order_of_space(changed), &names);
        Ok(removed.into_iter().chain(changed).chain(created).collect())
    } else {
        Err(problems.join("\n  "))
    }
}

/// The server's networks whose subnets are in another order than in the file, by their current names. The order of subnets
/// is that in which they were added, and no call changes it.
pub(super) fn otherwise_ordered<'a>(tables: &[Table], networks: &'a [Value]) -> Vec<&'a str> {
    let matched = matches(tables, networks);
    let there = tables.iter().zip(&matched).filter_map(|(table, at)| Some((table, networks.get((*at)?)?)));
    let differ = there.filter(|(table, network)| !subnets::in_order(table, network));
    differ.filter_map(|(_, network)| network["name"].as_str()).collect()
}

/// Tables with `renamed_from` for which a network of the former name still exists, though the file does not contain it: the
/// name of the table, and the former name. It may be another network, or the original one beside a new one; only a person
/// knows.
pub(super) fn not_renamed<'a>(tables: &'a [Table], networks: &[Value]) -> Vec<(&'a str, &'a str)> {
    let is_there = |name: &str| networks.iter().any(|network| network["name"] == name);
    let is_in_file = |name: &str| tables.iter().any(|table| table.name == name);
    let matched = matches(tables, networks);
    let there = tables.iter().zip(&matched).filter_map(|(table, at)| Some((table, networks.get((*at)?)?)));
    let kept = there.filter(|(table, network)| network["name"] == *table.name);
    let former = kept.filter_map(|(table, _)| Some((table.name.as_str(), table.renamed_from.as_deref()?)));
    former.filter(|(_, former)| is_there(former) && !is_in_file(former)).collect()
}

/// The realm of a table: an existing network stays in its realm, even if its table does not name it.
pub(super) fn realm_of<'a>(table: &'a Table, at: Option<usize>, networks: &'a [Value]) -> &'a str {
    let there = at.and_then(|at| networks.get(at)).and_then(Value::as_object);
    realm(there.unwrap_or(&table.members))
}

/// The realm of a network, or of a table.
pub(super) fn realm(members: &Map<String, Value>) -> &str {
    members.get("realm").and_then(Value::as_str).unwrap_or("default")
}

fn creation(table: &Table) -> Step {
    let mut words = vec![format!(
        "+ create it{}",
        match realm(&table.members) {
            "default" => String::new(),
            realm => format!(" in realm `{realm}`"),
        }
    )];
    let subnets = table.members.get("subnets").and_then(Value::as_array).into_iter().flatten();
    words.extend(subnets.map(|subnet| format!("+ subnet {}", subnet["cidr"].as_str().unwrap_or_default())));
    // An earlier attempt whose answer was lost may have created it. Without such an attempt, a network that exists by then
    // was made by someone else.
    let mut params = table.members.clone();
    params.insert("if_absent".to_owned(), json!(true));
    Step::new(&table.name, "network.create", Value::Object(params), words)
}

/// The one call for an existing network, if anything differs.
fn changes(table: &Table, network: &Value, prune: bool) -> Result<Option<Step>, String> {
    for member in ["realm", "kind"] {
        if let Some(wanted) = table.members.get(member).filter(|wanted| network.get(member) != Some(wanted)) {
            return Err(format!(
                "network `{}`: its {member} is {}, not {wanted}, and never changes; give it another name to make a new one",
                table.name, network[member]
            ));
        }
    }
    let mut set = Map::new();
    let mut words = Vec::new();
    if network["name"] != *table.name {
        set.insert("name".to_owned(), json!(table.name));
        words.push(format!("~ rename it from `{}`", network["name"].as_str().unwrap_or_default()));
    }
    for (member, default) in settings() {
        if let Some(value) = patch(member, table.members.get(member), network.get(member), &default, prune) {
            words.push(changed(member, network.get(member), &value));
            set.insert(member.to_owned(), value);
        }
    }
    let differ =
        if table.members.contains_key("subnets") || prune { subnets::changes(table, network, prune)? } else { None };
    if let Some((subnets, differences)) = differ {
        set.insert("subnets".to_owned(), subnets);
        words.extend(differences);
    }
    let params = json!({"network": network["id"], "set": set, "if_version": network["version"]});
    Ok((!words.is_empty()).then(|| Step::new(&table.name, "network.update", params, words)))
}

/// The merge patch that makes `there` equal to `wanted`, or nothing if they are equal. A member that the file does not name
/// stays as it is, or, with `prune`, gets its `default` back.
pub(super) fn patch(
    member: &str,
    wanted: Option<&Value>,
    there: Option<&Value>,
    default: &Value,
    prune: bool,
) -> Option<Value> {
    let present = there.unwrap_or(default);
    // A tag may have an empty value, and exists all the same.
    let lacks = |value: &Value, there: Option<&Value>| member == "tags" || !is_nothing(value, there);
    match (wanted, present) {
        (Some(Value::Object(wanted)), present) => {
            let nothing = Map::new();
            let present = present.as_object().unwrap_or(&nothing);
            let mut inner: Map<String, Value> = wanted
                .iter()
                .filter(|(key, value)| present.get(*key) != Some(value) && lacks(value, present.get(*key)))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            if prune {
                let gone = present.keys().filter(|key| !wanted.contains_key(*key));
                inner.extend(gone.map(|key| (key.clone(), Value::Null)));
            }
            (!inner.is_empty()).then_some(Value::Object(inner))
        }
        (Some(wanted), present) => (wanted != present && !is_nothing(wanted, Some(present))).then(|| wanted.clone()),
        (None, present) => {
            (prune && present != default && !is_nothing(default, Some(present))).then(|| default.clone())
        }
    }
}

/// Whether an empty value is wanted and nothing is there: answers leave empty values out.
fn is_nothing(wanted: &Value, there: Option<&Value>) -> bool {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    empty(wanted) && there.is_none_or(empty)
}

/// A line such as ``~ policy: "lowest" → "random" ``; inner members have their own parts.
pub(super) fn changed(member: &str, there: Option<&Value>, to: &Value) -> String {
    let short = |value: &Value| match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(super::super::output::text_of).collect::<Vec<_>>().join(" "),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    };
    match to {
        Value::Object(inner) => {
            let parts = inner.iter().map(|(key, value)| {
                let before = there.and_then(|there| there.get(key)).unwrap_or(&Value::Null);
                format!("{member}.{key}: {} → {}", short(before), short(value))
            });
            format!("~ {}", parts.collect::<Vec<_>>().join(", "))
        }
        to => {
            let sign = if to.is_null() { '-' } else { '~' };
            format!("{sign} {member}: {} → {}", short(there.unwrap_or(&Value::Null)), short(to))
        }
    }
}
