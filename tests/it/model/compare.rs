//! The comparison of two answers to one request.
//!
//! Ignored: ids, times, cursors, messages, and the generations and versions of a dry run. Either side may omit members
//! without a value and members with their default (`false`, `0`). Ranges compare as ranges. Lists whose order the contract
//! leaves open compare as sets.

use allod::core::address::Range;
use serde_json::{Value, json};

use super::adopt::Answer;
use super::errors::ModelError;
use super::nouns::is_nothing;

const IGNORED: [&str; 10] = [
    "id",
    "network_id",
    "subnet_id",
    "created_at",
    "expires_at",
    "expires_in_seconds",
    "cursor",
    "next",
    "used_ratio",
    "usage",
];
/// Lists in results that must be present even when empty.
const ALWAYS: [(&str, &str); 12] = [
    ("ip.release", "released"),
    ("ip.acquire", "reservations"),
    ("ip.find", "found"),
    ("owner.release", "released"),
    ("scope.release", "released"),
    ("claimant.sweep", "unbound"),
    ("claimant.sweep", "released"),
    ("claimant.sweep", "waiting"),
    ("network.list", "networks"),
    ("network.map", "pools"),
    ("reserved.remove", "reserved"),
    ("scope.list", "scopes"),
];
const UNORDERED: [&str; 6] = ["released", "found", "scopes", "reserved", "realms", "zones"];

pub fn compare(method: &str, dry_run: bool, model: &Result<Value, ModelError>, server: &Answer) -> Result<(), String> {
    match (model, server) {
        (Ok(mine), Ok(theirs)) => {
            for (of, list) in ALWAYS {
                let left_out = of == method && !theirs[list].is_array();
                if left_out {
                    return Err(format!("`{list}` is missing"));
                }
            }
            if mine["next"].is_string() != theirs["next"].is_string() {
                return Err("only one of the two has a next page".into());
            }
            if method == "realm.list" {
                return same("", &names_of_realms(mine), &names_of_realms(theirs), method, dry_run);
            }
            same("", mine, theirs, method, dry_run)
        }
        (Err(mine), Err((kind, data))) => {
            if data.get("kind").is_some_and(|stated| stated != kind) {
                return Err(format!("data.kind is {}, the error is {kind}", data["kind"]));
            }
            if mine.kind != kind {
                return Err(format!("model refuses with {}, server with {kind}", mine.kind));
            }
            same_facts(&mine.data, data)
        }
        (Ok(_), Err((kind, _))) => Err(format!("model accepts, server refuses with {kind}")),
        (Err(mine), Ok(_)) => Err(format!("model refuses with {}, server accepts", mine.kind)),
    }
}

/// Keeps only the names in an answer of `realm.list`: what else an entry says is open.
fn names_of_realms(answer: &Value) -> Value {
    let realms = answer["realms"].as_array().into_iter().flatten();
    json!({ "realms": realms.map(|entry| entry["realm"].clone()).collect::<Vec<_>>() })
}

/// Checks that every fact of which the model is sure is in the server's data.
fn same_facts(mine: &Value, theirs: &Value) -> Result<(), String> {
    for (name, value) in mine.as_object().into_iter().flatten() {
        let actual = match name.as_str() {
            "with_any" => &theirs["with"],
            _ => &theirs[name],
        };
        let right = match name.as_str() {
            "with_any" => value.as_array().is_some_and(|any| any.contains(actual)),
            "field" => actual.is_string(),
            "differs" => as_set(value) == as_set(actual),
            "first" => begins_with(value, actual),
            "held_by" => {
                value.as_object().into_iter().flatten().all(|(member, value)| actual.get(member) == Some(value))
            }
            _ => value == actual,
        };
        if !right {
            return Err(format!("data.{name}: model {value}, server {actual}"));
        }
    }
    Ok(())
}

fn as_set(list: &Value) -> Vec<String> {
    let mut texts: Vec<String> = list.as_array().into_iter().flatten().map(Value::to_string).collect();
    texts.sort();
    texts
}

/// The server may give only the first few.
fn begins_with(all: &Value, some: &Value) -> bool {
    match (all.as_array(), some.as_array()) {
        (Some(all), Some(some)) => !some.is_empty() && all.starts_with(some),
        _ => false,
    }
}

fn same(path: &str, mine: &Value, theirs: &Value, method: &str, dry_run: bool) -> Result<(), String> {
    match (mine, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys()) {
                let unsure = IGNORED.contains(&name.as_str()) && !(name == "usage" && a.contains_key(name));
                let dry = dry_run && (name == "generation" || name == "version");
                let purged = method == "network.delete" && name == "holding";
                if unsure || dry || purged || (name == "created" && !method.starts_with("ip.") && !b.contains_key(name))
                {
                    continue;
                }
                let nothing = Value::Null;
                let (x, y) = (a.get(name).unwrap_or(&nothing), b.get(name).unwrap_or(&nothing));
                if is_default(x) && is_default(y) {
                    continue;
                }
                same(&format!("{path}/{name}"), x, y, method, dry_run)?;
            }
            let lease = |members: &serde_json::Map<String, Value>| members.contains_key("expires_at");
            if lease(a) != lease(b) && a.contains_key("interface") {
                return Err(format!("{path}: only one of the two is a lease"));
            }
            Ok(())
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let name = path.rsplit('/').next().unwrap_or_default();
            let (mut a, mut b) = (a.clone(), b.clone());
            if UNORDERED.contains(&name) {
                a.sort_by_key(sort_key);
                b.sort_by_key(sort_key);
            }
            let pairs = a.iter().zip(&b).enumerate();
            pairs.into_iter().try_for_each(|(index, (x, y))| same(&format!("{path}/{index}"), x, y, method, dry_run))
        }
        (Value::String(a), Value::String(_)) if path.ends_with("/mac") && a == "auto" => Ok(()),
        (Value::String(a), Value::String(b)) if a == b || same_range(path, a, b) => Ok(()),
        (a, b) if a == b => Ok(()),
        (a, b) => Err(format!("{path}: model {a}, server {b}")),
    }
}

fn is_default(value: &Value) -> bool {
    is_nothing(value) || *value == json!(false) || *value == json!(0)
}

fn same_range(path: &str, a: &str, b: &str) -> bool {
    (path.ends_with("/range") || path.ends_with("/pool")) && a.parse::<Range>().is_ok_and(|a| b.parse() == Ok(a))
}

/// The key by which members of an unordered list are matched.
fn sort_key(value: &Value) -> String {
    let range = value["range"].as_str().and_then(|text| text.parse::<Range>().ok());
    match (value, range) {
        (Value::Object(_), Some(range)) => range.to_string(),
        (Value::Object(_), None) => format!("{} {} {}", value["network"], value["address"], value["scope"]),
        _ => value.to_string(),
    }
}

/// All objects inside a value, itself included, in order.
pub fn objects(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(members) => std::iter::once(value).chain(members.values().flat_map(objects)).collect(),
        Value::Array(list) => list.iter().flat_map(objects).collect(),
        _ => Vec::new(),
    }
}
