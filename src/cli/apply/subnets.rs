//! Computes the changes inside a network: subnets, their pools and reserved ranges. Pure.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use super::diff::{changed, patch};
use super::file::Table;
use crate::cli::shrink::{lost, pool_words, trimmed};
use crate::core::address::Range;

/// The members of a subnet that may change, except pools and reserved ranges, with their defaults.
fn settings() -> [(&'static str, Value); 7] {
    [
        ("name", Value::Null),
        ("gateway", Value::Null),
        ("dhcp", json!(false)),
        ("dns", Value::Null),
        ("zones", Value::Null),
        ("tags", Value::Null),
        ("draining", json!(false)),
    ]
}

/// The subnets that an existing network should have, in the form of `network.update`, and the resulting changes: removals,
/// then changes, then additions. Nothing if they are equal. The file's subnets come first, in its order.
pub(super) fn changes(table: &Table, network: &Value, prune: bool) -> Result<Option<(Value, Vec<String>)>, String> {
    let there: Vec<&Value> = list(network, "subnets");
    let wanted = of_file(table);
    let matched = matches(table, &wanted, &there);
    let (mut entries, mut changes, mut additions) = (Vec::new(), Vec::new(), Vec::new());
    for (wanted, at) in wanted.iter().zip(&matched) {
        match at {
            Some(at) => {
                let (set, words) = modified(wanted, there[*at], prune)?;
                let mut entry = of_id(there[*at]);
                entry.extend(set);
                entries.push(Value::Object(entry));
                changes.extend(words);
            }
            None => {
                entries.push((*wanted).clone());
                additions.push(format!("+ subnet {}", text(wanted, "cidr")));
            }
        }
    }
    let mut words = Vec::new();
    let met: BTreeSet<usize> = matched.iter().flatten().copied().collect();
    for (_, subnet) in there.iter().enumerate().filter(|(at, _)| !met.contains(at)) {
        if prune {
            words.push(format!("- remove subnet {}", text(subnet, "cidr")));
        } else {
            // A subnet that is not listed would be removed.
            entries.push(Value::Object(of_id(subnet)));
        }
    }
    words.extend(changes.into_iter().chain(additions));
    Ok((!words.is_empty()).then_some((Value::Array(entries), words)))
}

/// Do the subnets of the file and the server come in the same order, with those that the file adds at the end?
pub(super) fn in_order(table: &Table, network: &Value) -> bool {
    let there: Vec<&Value> = list(network, "subnets");
    let wanted = of_file(table);
    // Added subnets come last.
    let places = matches(table, &wanted, &there).into_iter().map(|place| place.unwrap_or(usize::MAX));
    places.is_sorted()
}

fn of_file(table: &Table) -> Vec<&Value> {
    table.members.get("subnets").and_then(Value::as_array).into_iter().flatten().collect()
}

/// A reference to a subnet of the server by its id, which never changes.
fn of_id(there: &Value) -> Map<String, Value> {
    Map::from_iter([("id".to_owned(), there["id"].clone())])
}

fn text<'a>(of: &'a Value, member: &str) -> &'a str {
    of.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// The server's subnet for each one of the file: by id, by cidr, by name; or one that has grown or shrunk, if no other
/// subnet of either side overlaps it.
fn matches(table: &Table, wanted: &[&Value], there: &[&Value]) -> Vec<Option<usize>> {
    let mut matched: Vec<Option<usize>> = vec![None; wanted.len()];
    let mut taken = vec![false; there.len()];
    let id = |at: usize| table.subnet_ids.get(at).and_then(Option::as_deref);
    for member in ["id", "cidr", "name"] {
        let places: HashMap<&str, usize> = there
            .iter()
            .enumerate()
            .rev()
            .filter_map(|(place, there)| Some((there.get(member)?.as_str()?, place)))
            .collect();
        for at in 0..wanted.len() {
            let says = if member == "id" { id(at) } else { wanted[at].get(member).and_then(Value::as_str) };
            let place = says.and_then(|says| places.get(says).copied());
            if let Some(place) = place.filter(|&place| matched[at].is_none() && !taken[place]) {
                taken[place] = true;
                matched[at] = Some(place);
            }
        }
    }
    let range_and_name = |of: &Value| Some((text(of, "cidr").parse::<Range>().ok()?, of.get("name").is_some()));
    let open = (0..wanted.len()).filter(|&at| matched[at].is_none() && id(at).is_none());
    let open: Vec<_> = open.filter_map(|at| Some((at, range_and_name(wanted[at])?))).collect();
    let left = (0..there.len()).filter(|&place| !taken[place]);
    let left: Vec<_> = left.filter_map(|place| Some((place, range_and_name(there[place])?))).collect();
    let overlap = |one: (Range, bool), other: (Range, bool)| one.0.overlaps(other.0) && !(one.1 && other.1);
    for &(at, of_file) in &open {
        let mut meets = left.iter().filter(|(_, of_server)| overlap(of_file, *of_server));
        if let (Some(&(place, of_server)), None) = (meets.next(), meets.next())
            && open.iter().filter(|(_, other)| overlap(*other, of_server)).count() == 1
        {
            matched[at] = Some(place);
        }
    }
    matched
}

/// The members to set in an existing subnet, and the resulting changes.
fn modified(wanted: &Value, there: &Value, prune: bool) -> Result<(Map<String, Value>, Vec<String>), String> {
    let (mut set, mut words) = (Map::new(), Vec::new());
    if wanted["cidr"] != there["cidr"] {
        let cidr = |of: &Value| text(of, "cidr").parse::<Range>();
        let smaller = cidr(wanted).is_ok_and(|after| cidr(there).is_ok_and(|before| !after.covers(before)));
        let sign = if smaller { '-' } else { '~' };
        words.push(format!("{sign} cidr: {} → {}", text(there, "cidr"), text(wanted, "cidr")));
        set.insert("cidr".to_owned(), wanted["cidr"].clone());
    }
    for (member, default) in settings() {
        if let Some(value) = patch(member, wanted.get(member), there.get(member), &default, prune) {
            words.push(changed(member, there.get(member), &value));
            set.insert(member.to_owned(), value);
        }
    }
    if let Some((pools, changes)) = pools(wanted, there, prune)? {
        words.extend(changes);
        set.insert("pools".to_owned(), pools);
    } else if set.contains_key("cidr") && wanted.get("pools").is_none() {
        // The server trims the pools that the file does not name.
        let left = list(there, "pools").into_iter().map(|pool| resized(pool, wanted, there));
        let left = left.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect::<Vec<_>>();
        words.extend(lost(there, &left, false));
    }
    if let Some((reserved, changes)) = reserved(wanted, there, prune)? {
        words.extend(changes);
        set.insert("reserved".to_owned(), reserved);
    }
    let words = words.into_iter().map(|line| format!("{} (subnet {})", line, text(there, "cidr"))).collect();
    Ok((set, words))
}

fn list<'a>(of: &'a Value, member: &str) -> Vec<&'a Value> {
    of.get(member).and_then(Value::as_array).into_iter().flatten().collect()
}

fn range(of: &Value) -> Result<Range, String> {
    text(of, "range").parse().map_err(|error: crate::core::address::Malformed| error.to_string())
}

/// The pools that the subnet should have, and the resulting changes. Nothing if they are equal and the cidr stays: with a
/// new cidr the server would adjust the existing pools to it, which the file does not ask for. Pools of the server that
/// overlap none of the file's stay, after those, unless pruned; a pool that overlaps one of the file's is changed into it.
/// With `prune`, a subnet without `pools` gets one pool with all its addresses, as if it were created from the file.
fn pools(wanted: &Value, there: &Value, prune: bool) -> Result<Option<(Value, Vec<String>)>, String> {
    let whole = text(wanted, "cidr").parse::<Range>().map_err(|error| error.to_string())?;
    let whole = json!({"range": whole.to_string()});
    let listed = match wanted.get("pools") {
        Some(_) => list(wanted, "pools"),
        None if prune => vec![&whole],
        None => return Ok(None),
    };
    let present = list(there, "pools");
    let (mut result, mut words, mut met, mut formers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let ranges = listed.iter().map(|pool| range(pool)).collect::<Result<Vec<_>, _>>()?;
    for (pool, &wanted_range) in listed.iter().zip(&ranges) {
        let mut former = None;
        for (at, there) in present.iter().enumerate() {
            let other = range(there)?;
            if other == wanted_range || (former.is_none() && other.overlaps(wanted_range)) {
                former = Some(at);
            }
            if other.overlaps(wanted_range) {
                met.push(at);
            }
        }
        formers.extend(former);
        let becomes = pool_of(pool, former.map(|at| present[at]), prune);
        match former.map(|at| present[at]) {
            None => words.push(format!("+ pool {}", text(pool, "range"))),
            Some(former) if pool_of(former, None, true) != becomes => {
                // Is any part of the former pool in no pool of the file?
                let sign = if without(range(former)?, ranges.iter().copied()).is_empty() { '~' } else { '-' };
                words.push(format!("{sign} pool {} → {}", pool_words(former), pool_words(&becomes)));
            }
            Some(_) => {}
        }
        result.push(becomes);
    }
    // Each pool of the file is shown as the change of one former pool; any other pool that it overlaps disappears.
    let is_gone = |at: &usize| met.contains(at) && !formers.contains(at);
    let gone = (0..present.len()).filter(is_gone).map(|at| format!("- remove pool {}", pool_words(present[at])));
    words.extend(gone);
    let left_out = present.iter().enumerate().filter(|(at, _)| !met.contains(at)).map(|(_, pool)| *pool);
    let left_out: Vec<&Value> = left_out.collect();
    if prune {
        words.extend(left_out.iter().map(|pool| format!("- remove pool {}", text(pool, "range"))));
    } else {
        for pool in &left_out {
            result.extend(resized(pool, wanted, there)?);
        }
        words.extend(lost(&json!({"cidr": there["cidr"], "pools": left_out}), &result, false));
    }
    let same = result.len() == present.len()
        && result.iter().zip(&present).all(|(wanted, there)| *wanted == pool_of(there, None, true));
    let stays = wanted["cidr"] == there["cidr"];
    if !same && words.is_empty() && stays {
        words.push("~ order of the pools".to_owned());
    }
    Ok((!same || !stays).then_some((Value::Array(result), words)))
}

/// A pool that the file does not name, adjusted to the file's cidr of its subnet; none if nothing of it is left.
fn resized(pool: &Value, wanted: &Value, there: &Value) -> Result<Option<Value>, String> {
    let cidr = |of: &Value| text(of, "cidr").parse::<Range>().map_err(|error| error.to_string());
    let (before, from, to) = (range(pool)?, cidr(there)?, cidr(wanted)?);
    let after = if from == to { Some(before) } else { trimmed(before, from, to) };
    Ok(after.map(|after| {
        let mut pool = pool_of(pool, None, true);
        if after != before {
            pool["range"] = json!(after.to_string());
        }
        pool
    }))
}

/// A pool with all members that differ from the defaults; members that the file does not name come from `former`.
fn pool_of(pool: &Value, former: Option<&Value>, prune: bool) -> Value {
    let mut members = Map::new();
    for (member, plain) in
        [("range", Value::Null), ("name", Value::Null), ("kind", json!("dynamic")), ("draining", json!(false))]
    {
        let kept = former.filter(|_| !prune).and_then(|former| former.get(member));
        if let Some(value) = pool.get(member).or(kept).filter(|value| **value != plain) {
            members.insert(member.to_owned(), value.clone());
        }
    }
    Value::Object(members)
}

/// The reserved ranges that the subnet should have, and the resulting changes; nothing if they are equal. Only those parts
/// of a range are reserved that are not reserved like this yet; with `prune`, parts that no range of the file covers are
/// released. Existing ranges come first, without the released parts, then new ones: the server merges them in this order.
fn reserved(wanted: &Value, there: &Value, prune: bool) -> Result<Option<(Value, Vec<String>)>, String> {
    let (wanted, present) = (ranged(wanted)?, ranged(there)?);
    let (mut gone, mut added, mut words) = (Vec::new(), Vec::new(), Vec::new());
    for (at, &(whole, entry)) in wanted.iter().enumerate() {
        // Skip parts that the server already has like this, and parts that a later range of the file overrides.
        let said = present.iter().filter(|(range, there)| range.overlaps(whole) && says_same(entry, there, prune));
        for part in without(whole, said.chain(&wanted[at + 1..]).map(|(range, _)| *range)) {
            for &(former, there) in &present {
                let common = former.intersection(part).filter(|_| hinders(entry, there, former == part, prune));
                let Some(former) = common else { continue };
                words.push(match there.get("for").filter(|_| whom(entry) != whom(there)) {
                    Some(whom) => format!("- reserve {} no longer for `{}`", former.as_typed(), text(whom, "owner")),
                    None => format!("- forget the note of {}", former.as_typed()),
                });
                gone.push(former);
            }
            words.push(reserving(entry, part, &present));
            added.push(of_range(entry, part));
        }
    }
    if prune {
        for &(whole, _) in &present {
            for part in without(whole, wanted.iter().map(|(range, _)| *range)) {
                words.push(format!("- let {} go back into circulation", part.as_typed()));
                gone.push(part);
            }
        }
    }
    let mut result = Vec::new();
    for &(whole, there) in &present {
        result.extend(without(whole, gone.iter().copied()).into_iter().map(|part| of_range(there, part)));
    }
    result.extend(added);
    Ok((!words.is_empty()).then_some((Value::Array(result), words)))
}

/// A line which says that a range is reserved, or that its note changes if it is already reserved for the same owner.
fn reserving(entry: &Value, part: Range, present: &[(Range, &Value)]) -> String {
    let is_there = |(range, there): &&(Range, &Value)| {
        range.intersection(part) == Some(part) && (entry.get("for").is_none() || whom(entry) == whom(there))
    };
    match (present.iter().find(is_there), text(entry, "note")) {
        (Some((_, there)), note) if !note.is_empty() => {
            let former = Some(text(there, "note")).filter(|former| !former.is_empty()).unwrap_or("none");
            format!("~ note of {}: {former} → {note}", part.as_typed())
        }
        _ => format!("+ reserve {}", part.as_typed()),
    }
}

/// The reserved ranges of a subnet.
fn ranged(subnet: &Value) -> Result<Vec<(Range, &Value)>, String> {
    list(subnet, "reserved").into_iter().map(|reserved| Ok((range(reserved)?, reserved))).collect()
}

/// A reserved range with the members of `reserved`, but with these addresses.
fn of_range(reserved: &Value, range: Range) -> Value {
    let mut members = reserved.as_object().cloned().unwrap_or_default();
    members.insert("range".to_owned(), json!(range.to_string()));
    Value::Object(members)
}

/// The parts of a range that none of the others covers.
fn without(range: Range, others: impl Iterator<Item = Range>) -> Vec<Range> {
    // There may be thousands of others, of which few overlap the range.
    let others = others.filter(|other| other.overlaps(range));
    others.fold(vec![range], |parts, other| parts.into_iter().flat_map(|part| part.without(other)).collect())
}

/// Whether note and owner are the same. Without `prune`, a member that the file does not name is not compared.
fn says_same(wanted: &Value, there: &Value, prune: bool) -> bool {
    let unsaid = |member: &str| !prune && wanted.get(member).is_none();
    let note = unsaid("note") || text(wanted, "note") == text(there, "note");
    note && (unsaid("for") || whom(wanted) == whom(there))
}

/// Whether adding `wanted` would leave something that the file does not want: an owner keeps a range reserved for it unless
/// exactly this range is added, and members that are not named stay as they were.
fn hinders(wanted: &Value, there: &Value, same_range: bool, prune: bool) -> bool {
    let unwanted = |member: &str| prune && wanted.get(member).is_none() && there.get(member).is_some();
    let anothers = wanted.get("for").is_some() && there.get("for").is_some() && whom(wanted) != whom(there);
    unwanted("note") || unwanted("for") || (anothers && !same_range)
}

/// The owner for whom a range is reserved, if any.
pub fn whom(of: &Value) -> Option<(String, Option<Value>, Option<Value>)> {
    of.get("for").map(|whom| {
        let scope = whom.get("scope").and_then(Value::as_str).unwrap_or("default").to_owned();
        (scope, whom.get("owner").cloned(), whom.get("slot").cloned())
    })
}
