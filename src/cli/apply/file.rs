//! Network files: `[[network]]` tables that mirror the members of `network.create`, in TOML or YAML.
//!
//! Besides those members a table may have `renamed_from`, its former name, and `id`; a subnet may have `id`. The protocol's
//! own types read each table, so a file is refused for the same reasons and in the same words as a request.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::cli::document::{self, Form};
use crate::wire;

/// One network as the file describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its former name.
    pub renamed_from: Option<String>,
    /// Its id.
    pub id: Option<String>,
    /// Ids of its subnets, by position; none where the file has none.
    pub subnet_ids: Vec<Option<String>>,
    /// Members of `network.create`, with all values in canonical form.
    pub members: Map<String, Value>,
}

impl Table {
    /// The table as params of `network.create`.
    pub fn params(&self) -> Option<wire::params::NetworkCreate> {
        match wire::parse("network.create", &Value::Object(self.members.clone()).to_string()) {
            Ok(wire::Request::NetworkCreate(params)) => Some(*params),
            // The same types accepted it when it was read.
            Ok(_) | Err(_) => None,
        }
    }
}

/// Reads and checks the text of a file. All problems are reported at once.
///
/// # Errors
/// What is wrong, a line for each network.
pub fn parse(text: &str, form: Form) -> Result<Vec<Table>, String> {
    tables(document::content(text, form)?)
}

/// The program that wrote the file may have failed and left it empty, so an empty file is not taken as intended.
const NO_NETWORKS: &str =
    "it holds no networks; if that is intended, say so: `network = []` in TOML, `network: []` in YAML";

/// Checks the content of a file.
///
/// # Errors
/// What is wrong, a line for each network.
pub fn tables(content: Value) -> Result<Vec<Table>, String> {
    let content = match content {
        Value::Null => return Err(NO_NETWORKS.to_owned()),
        Value::Object(content) => content,
        _ => return Err("it must hold a list named `network`".to_owned()),
    };
    if let Some(unknown) = content.keys().find(|key| *key != "network") {
        return Err(format!("unknown member `{unknown}`; it must hold a list named `network` and nothing else"));
    }
    let list = match content.into_iter().next() {
        None => return Err(NO_NETWORKS.to_owned()),
        Some((_, Value::Array(list))) => list,
        Some(_) => {
            return Err(
                "`network` must be a list: `[[network]]` in TOML, `network:` and lines of `- name: lan` in YAML"
                    .to_owned(),
            );
        }
    };
    let (mut tables, mut problems) = (Vec::new(), Vec::new());
    for (at, table) in list.into_iter().enumerate() {
        let name = table.get("name").and_then(Value::as_str).map(|name| format!(" (`{name}`)")).unwrap_or_default();
        match read_table(table) {
            Ok(table) => tables.push(table),
            Err(problem) => problems.push(format!("network[{at}]{name}: {problem}")),
        }
    }
    problems.extend(named_twice(&tables));
    if problems.is_empty() { Ok(tables) } else { Err(problems.join("\n  ")) }
}

/// Checks one table.
///
/// # Errors
/// What is wrong with it.
pub fn read_table(table: Value) -> Result<Table, String> {
    let Value::Object(mut members) = table else { return Err("must be a table".to_owned()) };
    let mut own = |member: &str| match members.shift_remove(member) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{member}` must be a text")),
    };
    let (renamed_from, id) = (own("renamed_from")?, own("id")?);
    let mut subnet_ids = Vec::new();
    if let Some(Value::Array(subnets)) = members.get_mut("subnets") {
        for subnet in subnets {
            let id = subnet.as_object_mut().and_then(|subnet| subnet.shift_remove("id"));
            subnet_ids.push(id.and_then(|id| id.as_str().map(str::to_owned)));
        }
    }
    for member in OF_A_REQUEST {
        if members.contains_key(member) {
            return Err(format!("unknown member `{member}`"));
        }
    }
    let request =
        wire::parse("network.create", &Value::Object(members).to_string()).map_err(|error| of_a_file(error.message))?;
    let canonical = request.params_json().map_err(|error| error.to_string())?;
    let Ok(Value::Object(mut members)) = serde_json::from_str(&canonical) else {
        return Err("cannot be written as JSON".to_owned());
    };
    // Zones are a set, which the server shows sorted.
    for subnet in members.get_mut("subnets").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(zones) = subnet.get_mut("zones").and_then(Value::as_array_mut) {
            zones.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
            zones.dedup();
        }
    }
    let name = members.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(Table { name, renamed_from, id, subnet_ids, members })
}

/// Members of `network.create` that belong to a single request and have no place in a file.
const OF_A_REQUEST: [&str; 5] = ["if_absent", "if_version", "dry_run", "reason", "deadline_ms"];

/// Adapts a message about a request: its list of accepted members becomes that of a file.
fn of_a_file(sentence: String) -> String {
    let listed = OF_A_REQUEST.iter().map(|member| format!(", `{member}`"));
    let file = listed.fold(sentence.clone(), |sentence, member| sentence.replace(&member, ""));
    if file == sentence { file } else { file + ", `renamed_from`, `id`" }
}

fn named_twice(tables: &[Table]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let names = tables.iter().map(|table| ("name", &table.name));
    let ids = tables.iter().filter_map(|table| table.id.as_ref().map(|id| ("id", id)));
    let from = tables.iter().filter_map(|table| table.renamed_from.as_ref().map(|from| ("renamed_from", from)));
    names
        .chain(ids)
        .chain(from)
        .filter(|&entry| !seen.insert(entry))
        .map(|(what, value)| format!("{what} `{value}` appears twice"))
        .collect()
}

/// A network of the server as a table of a file; defaults are left out.
pub fn table_of(network: &Value, with_ids: bool) -> Value {
    let plain = [
        ("realm", json!("default")),
        ("kind", json!("manual")),
        ("policy", json!("lowest")),
        ("cooldown_seconds", json!(0)),
        ("cooldown_yields", json!(false)),
        ("static_only", json!(false)),
        ("protected", json!(false)),
    ];
    let answered_only = ["version", "cursor", "usage", "created", "subnets"];
    let mut table = Map::new();
    for (member, value) in network.as_object().into_iter().flatten() {
        let plain = plain.iter().any(|(name, default)| name == member && default == value);
        if !plain && !answered_only.contains(&member.as_str()) && (with_ids || member != "id") {
            table.insert(member.clone(), value.clone());
        }
    }
    let subnets = network.get("subnets").and_then(Value::as_array).into_iter().flatten();
    let subnets: Vec<Value> = subnets.map(|subnet| subnet_table(subnet, with_ids)).collect();
    if !subnets.is_empty() {
        table.insert("subnets".to_owned(), Value::Array(subnets));
    }
    Value::Object(table)
}

fn subnet_table(subnet: &Value, with_ids: bool) -> Value {
    let mut table = Map::new();
    for (member, value) in subnet.as_object().into_iter().flatten() {
        let plain = *value == json!(false) || member == "created" || (member == "id" && !with_ids);
        if plain || member == "pools" || member == "reserved" {
            continue;
        }
        table.insert(member.clone(), value.clone());
    }
    let pools = subnet.get("pools").and_then(Value::as_array).into_iter().flatten();
    let pools = pools.map(|pool| {
        let members = pool.as_object().into_iter().flatten();
        let kept = members.filter(|(member, value)| {
            !(**value == json!(false) || **value == json!("dynamic") && *member == "kind" || *member == "created")
        });
        Value::Object(kept.map(|(member, value)| (member.clone(), value.clone())).collect())
    });
    // Written even if empty: a subnet without this member would get a pool.
    table.insert("pools".to_owned(), pools.collect());
    if let Some(reserved) = subnet.get("reserved").filter(|list| list.as_array().is_some_and(|list| !list.is_empty())) {
        table.insert("reserved".to_owned(), reserved.clone());
    }
    Value::Object(table)
}
