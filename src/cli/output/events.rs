//! Events as rows. `changed` computes what changed in a network.

mod changed;

use std::collections::HashMap;

use serde_json::Value;

use super::show::{held_address, text};
use super::table::Table;
pub use changed::Earlier;

/// Default values: columns that contain only these are left out.
const PLAIN: [(&str, &str); 6] =
    [("ADDRESS", ""), ("OWNER", ""), ("SCOPE", "default"), ("SLOT", "0"), ("DETAILS", ""), ("REASON", "")];

/// A row for each event.
pub fn table(events: &[Value]) -> Table {
    table_after(events, &mut Earlier::default())
}

/// A row for each event that follows earlier ones: the changes of a network are computed from what these said.
pub fn table_after(events: &[Value], earlier: &mut Earlier) -> Table {
    let mut table =
        Table::new(&["TIME", "EVENT", "!ADDRESS", "NETWORK", "OWNER", "SCOPE", "SLOT", "BY", "DETAILS", "REASON"]);
    let mut halves: HashMap<_, Vec<usize>> = HashMap::new();
    for (at, event) in events.iter().enumerate().filter(|(_, event)| event["type"] == "transferred") {
        halves.entry(holding(event)).or_default().push(at);
    }
    for (at, event) in events.iter().enumerate() {
        let details = match text(event, "type").as_str() {
            "network_created" | "network_changed" => earlier.changed(event),
            "transferred" => moved(at, events, &halves).unwrap_or_else(|| details(event)),
            _ => details(event),
        };
        table.row(vec![
            text(event, "time"),
            text(event, "type"),
            held_address(event),
            text(event, "network"),
            text(event, "owner"),
            // An event of a network has no scope and no slot.
            text(event, "scope"),
            text(event, "slot"),
            text(event, "by"),
            details,
            text(event, "reason"),
        ]);
    }
    table.without_plain_columns(&PLAIN)
}

/// The holding that an event is about: its address and generation.
fn holding(event: &Value) -> (String, String) {
    (event["address"].to_string(), event["generation"].to_string())
}

/// For an address that moved with its subnet: from or to which network, if the other half of the move is among these events,
/// of which `halves` are the transfers by their holding. Each network has its own time, and a subnet may move back and forth,
/// so the nearest half that fits is taken.
fn moved(at: usize, events: &[Value], halves: &HashMap<(String, String), Vec<usize>>) -> Option<String> {
    let event = &events[at];
    let is_end = |event: &Value| event.get("before").is_some() && event.get("after").is_none();
    let is_beginning = |event: &Value| event.get("before").is_none() && event.get("after").is_some();
    let (way, other_half): (_, &dyn Fn(&Value) -> bool) = match (is_end(event), is_beginning(event)) {
        (true, _) => ("to", &is_beginning),
        (_, true) => ("from", &is_end),
        _ => return None,
    };
    let fits = |other: &Value| other_half(other) && other.get("network_id") != event.get("network_id");
    let others = halves.get(&holding(event)).into_iter().flatten().map(|&other| (other, &events[other]));
    let others = others.filter(|(_, other)| fits(other));
    others
        .min_by_key(|(there, _)| there.abs_diff(at))
        .map(|(_, other)| format!("{way} network `{}`", text(other, "network")))
}

/// Further details for this type of event.
pub fn details(event: &Value) -> String {
    let state = |of: &str, member: &str| event.get(of).map(|state| text(state, member)).unwrap_or_default();
    let lease = |permanent: &str| match state("after", "expires_at") {
        until if until.is_empty() => permanent.to_owned(),
        until => format!("until {until}"),
    };
    match text(event, "type").as_str() {
        "granted" => lease(""),
        "renewed" => lease("for good"),
        // If it moved with its subnet, the network that it leaves records the end, and the other one the beginning.
        "transferred" if event.get("after").is_none() => "to another network".to_owned(),
        "transferred" if event.get("before").is_none() => "from another network".to_owned(),
        "transferred" => format!("from `{}`", state("before", "owner")),
        "bound" => format!("by `{}`", state("after", "claimant")),
        "unbound" => format!("from `{}`", state("before", "claimant")),
        "updated" => changed(event),
        _ => String::new(),
    }
}

/// The names of the members that changed.
fn changed(event: &Value) -> String {
    let members = |of: &str| event.get(of).and_then(Value::as_object);
    let (Some(before), Some(after)) = (members("before"), members("after")) else { return String::new() };
    let differs = |name: &&String| before.get(*name) != after.get(*name) && *name != "generation";
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    let names: Vec<&str> = after.keys().chain(gone).filter(differs).map(String::as_str).collect();
    names.join(", ")
}
