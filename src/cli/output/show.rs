//! Answers drawn for people, mostly by their content rather than by method, so that answers of `allod call` are drawn as
//! well.

use std::collections::BTreeSet;

use serde_json::Value;

use super::deployments;
use super::events;
use super::map::{self, grouped};
use super::table::{Table, columns, fields, wrapped};
use super::{number_of, short_range, text_of};

/// Default values: a column that contains only these is left out.
const PLAIN: [(&str, &str); 6] =
    [("SCOPE", "default"), ("OWNER", ""), ("SLOT", "0"), ("CLAIMANT", ""), ("EXPIRES", ""), ("STATE", "")];

/// Draws the answer to `method`.
pub fn render(method: &str, params: &Value, result: &Value, width: Option<usize>) -> String {
    match method {
        "network.usage" => usage(result, width),
        "network.map" => maps(result),
        "network.list" => networks(params, result, width),
        "scope.list" => scopes(result, width),
        "realm.list" => realms(result, width),
        "rpc.discover" => methods(result, width),
        "cluster.nodes" => nodes(result, width),
        "cluster.conflicts" => conflicts(list(result, "conflicts"), width),
        "cluster.accept" => conflicts(list(result, "accepted"), width),
        "deployment.plan" => deployments::planned(result, width, false),
        "deployment.apply" => deployments::planned(result, width, params.get("dry_run") != Some(&Value::Bool(true))),
        "deployment.get" => deployments::deployment(result, width),
        "deployment.list" => deployments::deployments(result, width),
        "ip.get" => lookup(result),
        "ip.find" => found(params, result),
        "ip.decline" => declined(result),
        "claimant.sweep" => swept(result, width),
        "events.history" if result.get("next").is_none() => {
            events::table(&list(result, "events").cloned().collect::<Vec<_>>()).render(width)
        }
        "ip.list" if result.get("count").is_some() => format!("{}\n", text(result, "count")),
        _ if result.get("reservations").is_some() => reservations(result, width),
        _ if result.get("address").is_some() && result.get("owner").is_some() => reservation(result),
        _ if result.get("kind").is_some() && result.get("version").is_some() => network(result, width),
        _ if result.get("cidr").is_some() => space(std::slice::from_ref(result), width),
        _ if result.get("reserved").is_some_and(Value::is_array) => space(std::slice::from_ref(result), width),
        _ if result.get("released").is_some_and(Value::is_array) => released(result, width),
        _ => anything(result),
    }
}

pub(super) fn text(of: &Value, name: &str) -> String {
    of.get(name).map(text_of).unwrap_or_default()
}

/// The entries of a list; none if there is no such list.
pub fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// Does one of the nodes in an answer of `cluster.nodes` own the register?
pub fn has_owner(nodes: &Value) -> bool {
    list(nodes, "nodes").any(|node| node["owner"] == true)
}

fn count(of: &Value, name: &str) -> String {
    of.get(name).map_or_else(String::new, |count| grouped(&text_of(count)))
}

/// `10.0.0.5`, or `10.0.0.8/29` for a block.
pub fn held_address(held: &Value) -> String {
    let address = text(held, "address");
    let single = if address.contains(':') { 128 } else { 32 };
    match held.get("prefix_length").and_then(Value::as_u64) {
        Some(length) if length != single => format!("{address}/{length}"),
        _ => address,
    }
}

/// One reservation, field by field.
fn reservation(held: &Value) -> String {
    reservation_in(held, String::new())
}

/// One reservation, field by field, after the state of its address.
fn reservation_in(held: &Value, state: String) -> String {
    let servers: Vec<String> =
        held.get("dns").map(|dns| list(dns, "servers").map(text_of).collect()).unwrap_or_default();
    let yes = |name: &str| if held.get(name) == Some(&Value::Bool(true)) { "yes".to_owned() } else { String::new() };
    let pool = [short_range(&text(held, "pool")), text(held, "pool_name")].join(" ").trim().to_owned();
    let created = match (held.get("created"), held.get("replaced")) {
        (_, Some(replaced)) => format!("yes, in place of {}", text_of(replaced)),
        (Some(Value::Bool(false)), None) => "no, held before".to_owned(),
        _ => String::new(),
    };
    let expires = match held.get("expires_in_seconds") {
        Some(seconds) => format!("{} (in {seconds} s)", text(held, "expires_at")),
        None => text(held, "expires_at"),
    };
    let obsolete = held.get("obsolete").map_or_else(String::new, |o| format!("since {}", text(o, "since")));
    // The answer to an unbinding shows the reservation as it was.
    let released = yes("released");
    let released = if released.is_empty() { released } else { "yes, with its claimant; this is how it was".to_owned() };
    fields(&[
        ("state", state),
        ("released", released),
        ("address", held_address(held)),
        ("interface", text(held, "interface")),
        ("network", text(held, "network")),
        ("subnet", text(held, "subnet")),
        ("gateway", text(held, "gateway")),
        ("dns", servers.join(" ")),
        ("dhcp", yes("dhcp")),
        ("pool", pool),
        ("scope", text(held, "scope")),
        ("owner", text(held, "owner")),
        ("slot", text(held, "slot")),
        ("owner uid", text(held, "owner_uid")),
        ("kind", text(held, "kind")),
        ("claimant", text(held, "claimant")),
        ("claimant before", text(held, "previous_claimant")),
        ("hostname", text(held, "hostname")),
        ("mac", text(held, "mac")),
        ("labels", labels(held)),
        ("note", text(held, "note")),
        ("transient", yes("transient")),
        ("created at", text(held, "created_at")),
        ("expires", expires),
        ("obsolete", obsolete),
        ("generation", text(held, "generation")),
        ("new", created),
    ])
}

/// The labels of a reservation, as they are typed.
pub fn labels(held: &Value) -> String {
    let labels = held.get("labels").and_then(Value::as_object).into_iter().flatten();
    labels.map(|(key, value)| format!("{key}={}", text_of(value))).collect::<Vec<_>>().join(" ")
}

/// Rows of reservations, for tables and previews.
pub fn reservation_rows<'a>(held: impl Iterator<Item = &'a Value>) -> Table {
    let mut table = reservation_table();
    held.for_each(|held| add_reservation(&mut table, held));
    without_plain_columns(table)
}

/// An empty table for reservations.
pub fn reservation_table() -> Table {
    Table::new(&["!ADDRESS", "NETWORK", "SCOPE", "OWNER", "SLOT", "CLAIMANT", "EXPIRES", "STATE"])
}

/// Adds a reservation to such a table.
pub fn add_reservation(table: &mut Table, held: &Value) {
    let state = if held.get("obsolete").is_some() { "obsolete" } else { "" };
    table.row(vec![
        held_address(held),
        text(held, "network"),
        text(held, "scope"),
        text(held, "owner"),
        text(held, "slot"),
        text(held, "claimant"),
        text(held, "expires_at"),
        state.to_owned(),
    ]);
}

/// Such a table without columns that contain only defaults.
pub fn without_plain_columns(table: Table) -> Table {
    table.without_plain_columns(&PLAIN)
}

fn reservations(result: &Value, width: Option<usize>) -> String {
    let table = reservation_rows(list(result, "reservations"));
    let held = if table.is_empty() { String::new() } else { table.render(width) };
    // Other reservations of the owner that the same commit released (`ip.acquire` with `exact`).
    let mut table = Table::new(&["!RELEASED", "NETWORK"]);
    list(result, "released").for_each(|item| table.row(vec![held_address(item), text(item, "network")]));
    let gap = if held.is_empty() { "" } else { "\n" };
    if table.is_empty() { held } else { format!("{held}{gap}{}", table.render(width)) }
}

fn released(result: &Value, width: Option<usize>) -> String {
    let mut table = Table::new(&["!ADDRESS", "NETWORK"]);
    for item in list(result, "released") {
        match item {
            Value::String(address) => table.row(vec![address.clone(), String::new()]),
            item => table.row(vec![held_address(item), text(item, "network")]),
        }
    }
    if table.is_empty() { String::new() } else { table.without_plain_columns(&[("NETWORK", "")]).render(width) }
}

fn realms(result: &Value, width: Option<usize>) -> String {
    let mut table = Table::new(&["REALM", "#NETWORKS"]);
    for realm in list(result, "realms") {
        table.row(vec![text(realm, "realm"), count(realm, "networks")]);
    }
    if table.is_empty() { String::new() } else { table.render(width) }
}

/// A line for each method; its params and answers are in the JSON of the document.
fn methods(result: &Value, width: Option<usize>) -> String {
    let named: Vec<(String, String)> =
        list(result, "methods").map(|method| (text(method, "name"), text(method, "summary"))).collect();
    let indent = named.iter().map(|(name, _)| columns(name)).max().unwrap_or(0) + 2;
    let line = |(name, summary): &(String, String)| {
        let summary = width.map_or_else(|| summary.clone(), |width| wrapped(summary, width.saturating_sub(indent), 0));
        let summary = summary.replace('\n', &format!("\n{}", " ".repeat(indent)));
        format!("{name:<indent$}{summary}\n")
    };
    named.iter().map(line).collect()
}

fn nodes(result: &Value, width: Option<usize>) -> String {
    let mut table = Table::new(&["NODE", "ROLE", "!ADDRESS", "VERSION", "#SEEN MS AGO"]);
    let is_owned = has_owner(result);
    for node in list(result, "nodes") {
        let role = match (node["owner"] == true, is_owned) {
            (true, _) => "owner",
            (false, true) => "follower",
            // Without an owner there is nobody to follow.
            (false, false) => "waiting",
        };
        let role = if node["draining"] == true { format!("{role}, draining") } else { role.to_owned() };
        let seen = count(node, "seen_ms");
        table.row(vec![text(node, "name"), role, text(node, "address"), text(node, "version"), seen]);
    }
    if table.is_empty() { String::new() } else { table.render(width) }
}

fn conflicts<'a>(conflicts: impl Iterator<Item = &'a Value>, width: Option<usize>) -> String {
    let mut table = Table::new(&["NETWORK", "!ADDRESS", "LATE CLAIM OF", "!PRESENT", "HELD BY", "FOUND AT"]);
    // A network that was deleted is named only by its id.
    let (mut ids, mut named) = (Table::new(&["NETWORK", "!ID"]), BTreeSet::new());
    // A MAC may be in use in another network.
    let place = |of: &Value, network: &str| match text(of, "network") {
        other if other.is_empty() || other == network => held_address(of),
        other => format!("{} ({other})", held_address(of)),
    };
    let holder = |of: &Value| [text(of, "scope"), text(of, "owner"), text(of, "slot")].join(" ");
    for conflict in conflicts {
        let present = conflict.get("present");
        table.row(vec![
            text(conflict, "network"),
            held_address(conflict),
            holder(&conflict["late"]),
            present.map_or_else(String::new, |present| place(present, &text(conflict, "network"))),
            present.map_or_else(String::new, holder),
            text(conflict, "found_at"),
        ]);
        let id = text(conflict, "network_id");
        if named.insert(id.clone()) {
            ids.row(vec![text(conflict, "network"), id]);
        }
    }
    if table.is_empty() { String::new() } else { format!("{}\n{}", table.render(width), ids.render(width)) }
}

fn lookup(result: &Value) -> String {
    match result.get("reservation") {
        Some(held) => reservation_in(held, text(result, "state")),
        None => fields(&[
            ("address", text(result, "address")),
            ("state", text(result, "state")),
            ("network", text(result, "network")),
        ]),
    }
}

fn declined(result: &Value) -> String {
    let given = result.get("reservation").map_or_else(String::new, |held| format!("\n{}", reservation(held)));
    format!("{}{given}", fields(&[("declined", text(result, "declined"))]))
}

fn found(params: &Value, result: &Value) -> String {
    let mut found: Vec<&Value> = list(result, "found").collect();
    found.sort_by_key(|one| text(one, "network"));
    let all: Vec<String> = found.into_iter().map(lookup).collect();
    if all.is_empty() {
        fields(&[("address", text(params, "address")), ("state", "unknown".into())])
    } else {
        all.join("\n")
    }
}

fn scopes(result: &Value, width: Option<usize>) -> String {
    let mut table = Table::new(&["SCOPE", "#RESERVATIONS", "#ADDRESSES", "#OBSOLETE", "#UNBOUND"]);
    for scope in list(result, "scopes") {
        table.row(vec![
            text(scope, "scope"),
            count(scope, "reservations"),
            count(scope, "addresses"),
            count(scope, "obsolete"),
            count(scope, "unbound"),
        ]);
    }
    if table.is_empty() { String::new() } else { table.render(width) }
}

fn swept(result: &Value, width: Option<usize>) -> String {
    let mut table = Table::new(&["DONE", "!ADDRESS", "NETWORK", "CLAIMANT"]);
    for done in ["unbound", "released", "waiting"] {
        for item in list(result, done) {
            table.row(vec![done.to_owned(), text(item, "address"), text(item, "network"), text(item, "claimant")]);
        }
    }
    if table.is_empty() { String::new() } else { table.render(width) }
}

fn networks(params: &Value, result: &Value, width: Option<usize>) -> String {
    // A network that was deleted is named by its id: its name may belong to another one.
    let by_id = params.get("deleted") == Some(&Value::Bool(true));
    let mut table = Table::new(&["NAME", "REALM", "KIND", "!SUBNETS", "#HELD", "#FREE", "!ID"]);
    for network in list(result, "networks") {
        let subnets: Vec<String> = list(network, "subnets").map(|subnet| text(subnet, "cidr")).collect();
        let usage = network.get("usage").unwrap_or(&Value::Null);
        table.row(vec![
            text(network, "name"),
            text(network, "realm"),
            text(network, "kind"),
            match subnets.as_slice() {
                [first, second, _, ..] => format!("{first} {second} +{}", subnets.len() - 2),
                few => few.join(" "),
            },
            count(usage, "held"),
            count(usage, "free"),
            if by_id { text(network, "id") } else { String::new() },
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    table.without_plain_columns(&[("REALM", "default"), ("HELD", ""), ("FREE", ""), ("ID", "")]).render(width)
}

/// A network: its settings, then its subnets, pools and reserved ranges.
pub fn network(network: &Value, width: Option<usize>) -> String {
    let set = |name: &str| match network.get(name) {
        None | Some(Value::Bool(false)) => String::new(),
        Some(Value::Bool(true)) => "yes".to_owned(),
        Some(Value::Object(members)) => {
            members.iter().map(|(key, value)| format!("{key}={}", text_of(value))).collect::<Vec<_>>().join(" ")
        }
        Some(value) => text_of(value),
    };
    let names = ["name", "id", "realm", "kind", "policy", "l2", "cooldown_seconds", "cooldown_yields", "static_only"];
    let names = names.into_iter().chain(["protected", "limits", "tags", "description", "version", "created"]);
    let settings: Vec<(&str, String)> = names.map(|name| (name, set(name))).collect();
    let mut shown = fields(&settings);
    let subnets: Vec<Value> = list(network, "subnets").cloned().collect();
    if !subnets.is_empty() {
        shown.push('\n');
        shown.push_str(&space(&subnets, width));
    }
    shown
}

/// Subnets, then their pools and reserved ranges.
pub fn space(subnets: &[Value], width: Option<usize>) -> String {
    let mut table = Table::new(&["!SUBNET", "NAME", "!GATEWAY", "DHCP", "!DNS", "SEARCH", "ZONES", "STATE", "ID"]);
    let mut parts = Table::new(&["!RANGE", "WHAT", "NAME", "STATE", "NOTE"]);
    for subnet in subnets {
        let zones: Vec<String> = list(subnet, "zones").map(text_of).collect();
        let dns = subnet.get("dns").unwrap_or(&Value::Null);
        let [servers, search] = ["servers", "search"].map(|name| list(dns, name).map(text_of).collect::<Vec<_>>());
        table.row(vec![
            text(subnet, "cidr"),
            text(subnet, "name"),
            text(subnet, "gateway"),
            if subnet.get("dhcp") == Some(&Value::Bool(true)) { "yes".to_owned() } else { String::new() },
            servers.join(" "),
            search.join(" "),
            zones.join(" "),
            draining(subnet),
            String::new(),
        ]);
        for pool in list(subnet, "pools") {
            let kind = pool.get("kind").map_or_else(|| "dynamic".to_owned(), text_of);
            parts.row(vec![
                short_range(&text(pool, "range")),
                format!("{kind} pool"),
                text(pool, "name"),
                draining(pool),
                String::new(),
            ]);
        }
        for reserved in list(subnet, "reserved") {
            parts.row(vec![
                short_range(&text(reserved, "range")),
                reserved.get("for").map_or_else(|| "reserved".to_owned(), reserved_for),
                String::new(),
                String::new(),
                text(reserved, "note"),
            ]);
        }
    }
    let plain = [
        ("NAME", ""),
        ("GATEWAY", ""),
        ("DHCP", ""),
        ("DNS", ""),
        ("SEARCH", ""),
        ("ZONES", ""),
        ("STATE", ""),
        ("NOTE", ""),
        ("ID", ""),
    ];
    // The answer to a change of ranges does not contain their subnet.
    let table = Some(table).filter(|_| subnets.iter().any(|subnet| subnet.get("cidr").is_some()));
    let tables = table.into_iter().chain([parts]).filter(|table| !table.is_empty());
    let drawn: Vec<String> = tables.map(|table| table.without_plain_columns(&plain).render(width)).collect();
    drawn.join("\n")
}

/// `reserved for db/0`, with the scope if it is not the default, and the slot if it is for one only.
pub(super) fn reserved_for(whom: &Value) -> String {
    let scope = Some(text(whom, "scope")).filter(|scope| !scope.is_empty() && scope != "default");
    let parts =
        [scope.map(|scope| format!("scope {scope}")), whom.get("slot").map(|slot| format!("slot {}", text_of(slot)))];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    format!("reserved for {}{parts}", text(whom, "owner"))
}

fn draining(of: &Value) -> String {
    if of.get("draining") == Some(&Value::Bool(true)) { "draining".to_owned() } else { String::new() }
}

/// The counts of a network, its subnets and pools.
pub fn usage(result: &Value, width: Option<usize>) -> String {
    let mut table = Table::new(&["!WHAT", "#SIZE", "#HELD", "#RESERVED", "#COOLING", "#DECLINED", "#FREE", "FULL"]);
    let mut row = |what: String, of: &Value| {
        let cells = ["size", "held", "reserved", "cooling", "declined", "free"].map(|name| count(of, name));
        table.row([what].into_iter().chain(cells).chain([used(of)]).collect());
    };
    for subnet in list(result, "subnets") {
        row(text(subnet, "cidr"), subnet);
        for pool in list(subnet, "pools") {
            let name = Some(text(pool, "name")).filter(|name| !name.is_empty());
            row(format!("  {}", name.unwrap_or_else(|| short_range(&text(pool, "range")))), pool);
        }
    }
    row("total".to_owned(), result);
    table.render(width)
}

/// The share of addresses that are not free; `used_ratio` of the answer is the share of held ones.
fn used(of: &Value) -> String {
    let (Some(size), Some(free)) = (of.get("size").and_then(number_of), of.get("free").and_then(number_of)) else {
        return String::new();
    };
    if size == 0 { String::new() } else { format!("{} %", percent_taken(size, free)) }
}

/// Whole percent, rounded down: only a full range has 100.
pub fn percent_taken(size: u128, free: u128) -> u128 {
    let taken = size.saturating_sub(free);
    match taken.checked_mul(100) {
        Some(hundredfold) => hundredfold / size.max(1),
        // The count is so large that dividing first makes no visible difference.
        None => (taken / (size / 100)).min(if free == 0 { 100 } else { 99 }),
    }
}

fn maps(result: &Value) -> String {
    let drawn: Vec<String> = list(result, "pools").filter_map(map::pool).collect();
    drawn.join("\n")
}

/// Any other answer: member by member, with inner members named by their path.
fn anything(result: &Value) -> String {
    fn collect(shown: &mut Vec<(String, String)>, path: String, value: &Value) {
        let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match value {
            Value::Object(members) => {
                for (name, inner) in members {
                    collect(shown, join(name), inner);
                }
            }
            Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
                for (at, inner) in items.iter().enumerate() {
                    collect(shown, format!("{path}[{at}]"), inner);
                }
            }
            Value::Array(items) => shown.push((path, items.iter().map(text_of).collect::<Vec<_>>().join(" "))),
            scalar => shown.push((path, text_of(scalar))),
        }
    }
    match result {
        Value::Object(_) => {
            let mut shown = Vec::new();
            collect(&mut shown, String::new(), result);
            fields(&shown.iter().map(|(name, value)| (name.as_str(), value.clone())).collect::<Vec<_>>())
        }
        Value::Array(_) => format!("{result:#}\n"),
        scalar => format!("{}\n", text_of(scalar)),
    }
}
