//! Deployments as tables for people: the result of each wish, and what the commit will release.

use serde_json::Value;

use super::short_range;
use super::show::{held_address, list, reserved_for, text};
use super::table::{Table, fields};

/// Columns that contain only these values are left out.
const PLAIN: [(&str, &str); 4] = [("SLOT", "0"), ("ADDRESS", ""), ("IN PLACE OF", ""), ("LIES IN", "")];

/// Columns about what instances hold or will hold.
const HEADINGS: [&str; 7] = ["STATE", "!ADDRESS", "NETWORK", "INSTANCE", "SLOT", "!IN PLACE OF", "LIES IN"];

/// `deployment.plan`, `deployment.apply`: the result of every wish, then what will be released. Only if `is_done` is there a
/// plan to commit or revert.
pub(super) fn planned(result: &Value, width: Option<usize>, is_done: bool) -> String {
    let mut table = Table::new(&HEADINGS);
    for instance in list(result, "instances") {
        for slot in list(instance, "networks") {
            table.row(vec![
                text(slot, "state"),
                slot.get("reservation").map_or_else(String::new, held_address),
                text(slot, "network"),
                text(instance, "id"),
                text(slot, "slot"),
                text(slot, "replaces"),
                slot.get("reserved").map_or_else(String::new, reserved),
            ]);
        }
    }
    for held in list(result, "obsolete") {
        table.row(holding("obsolete", &text(held, "owner"), held));
    }
    let plan = if is_done { text(result, "plan") } else { String::new() };
    below(fields(&[("plan", plan)]), drawn(table, width))
}

/// `deployment.get`.
pub(super) fn deployment(result: &Value, width: Option<usize>) -> String {
    let mut table = Table::new(&HEADINGS);
    for instance in list(result, "instances") {
        let id = text(instance, "id");
        list(instance, "reservations").for_each(|held| table.row(holding("held", &id, held)));
        list(instance, "obsolete").for_each(|held| table.row(holding("obsolete", &id, held)));
    }
    let head = fields(&[
        ("deployment", text(result, "deployment")),
        ("plan", text(result, "plan")),
        ("uncommitted since", text(result, "uncommitted_since")),
        ("hindrance", text(result, "hindrance")),
    ]);
    below(head, drawn(table, width))
}

fn below(head: String, table: String) -> String {
    let gap = if head.is_empty() || table.is_empty() { "" } else { "\n" };
    format!("{head}{gap}{table}")
}

/// `deployment.list`. The number of a plan is meant to be copied, so it is not grouped.
pub(super) fn deployments(result: &Value, width: Option<usize>) -> String {
    let mut table = Table::new(&["DEPLOYMENT", "#PLAN", "UNCOMMITTED SINCE"]);
    for deployment in list(result, "deployments") {
        table.row(vec![
            text(deployment, "deployment"),
            text(deployment, "plan"),
            text(deployment, "uncommitted_since"),
        ]);
    }
    if table.is_empty() { String::new() } else { table.render(width) }
}

/// The reserved range that contains a kept address: `fresh` moves an instance off it.
fn reserved(range: &Value) -> String {
    let what = range.get("for").map_or_else(|| "reserved".to_owned(), reserved_for);
    let note = Some(text(range, "note")).filter(|note| !note.is_empty());
    format!(
        "{}, {what}{}",
        short_range(&text(range, "range")),
        note.map_or_else(String::new, |note| format!(": {note}"))
    )
}

fn holding(state: &str, instance: &str, held: &Value) -> Vec<String> {
    let instance = instance.to_owned();
    let (network, slot) = (text(held, "network"), text(held, "slot"));
    vec![state.to_owned(), held_address(held), network, instance, slot, String::new(), String::new()]
}

fn drawn(table: Table, width: Option<usize>) -> String {
    if table.is_empty() { String::new() } else { table.without_plain_columns(&PLAIN).render(width) }
}
