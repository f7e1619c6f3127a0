//! Computes what moved between two states of a deployment, and what a revert would move. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cli::args::Ask;
use crate::cli::output::table::Table;
use crate::cli::output::{held_address, list, text_of};
use crate::cli::phrase::text;

/// An address whose holder or state changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    address: String,
    network: String,
    what: String,
    /// Does it undo what a partial commit of the plan did?
    pub undoes: bool,
}

/// The network and first address of a reservation.
type Place = (String, String);

/// Everything that a deployment holds: the instance, whether it is obsolete, and the reservation.
fn holdings(deployment: &Value) -> BTreeMap<Place, (String, bool, &Value)> {
    let mut all = BTreeMap::new();
    for instance in list(deployment, "instances") {
        let id = instance.get("id").map(text_of).unwrap_or_default();
        for (member, is_obsolete) in [("reservations", false), ("obsolete", true)] {
            for held in list(instance, member) {
                all.insert(place(held), (id.clone(), is_obsolete, held));
            }
        }
    }
    all
}

fn place(held: &Value) -> Place {
    let member = |name: &str| held.get(name).map(text_of).unwrap_or_default();
    (member("network"), member("address"))
}

fn moved(held: &Value, what: String) -> Moved {
    Moved { address: held_address(held), network: place(held).0, what, undoes: false }
}

/// Reservations that are now held by another instance, or that became obsolete or current. Released ones are in the answer
/// anyway.
pub fn between(before: &Value, after: &Value) -> Vec<Moved> {
    let (before, after) = (holdings(before), holdings(after));
    let change = |(place, (id, is_obsolete, held)): (&Place, &(String, bool, &Value))| {
        let (had, was_obsolete, _) = before.get(place)?;
        let what = match (was_obsolete, is_obsolete) {
            _ if had != id => format!("{had} → {id}"),
            (true, false) => format!("current again for {id}"),
            (false, true) => format!("obsolete for {id}, until its own commit"),
            (true, true) | (false, false) => return None,
        };
        Some(moved(held, what))
    };
    after.iter().filter_map(change).collect()
}

/// What a revert makes current again; and, by generation, the reservations that their instances got after the plan was
/// applied: those that a partial commit handed over go back.
pub fn by_revert(ask: &Ask, before: &Value, would: &Value) -> (Vec<Moved>, BTreeMap<u64, String>) {
    let Some(since) = text(before, "uncommitted_since") else { return (Vec::new(), BTreeMap::new()) };
    let named = ask.params.get("instances").and_then(Value::as_array).filter(|named| !named.is_empty());
    let is_meant = |id: &str| named.is_none_or(|named| named.iter().any(|one| one == id));
    let goes = |held: &Value| list(would, "released").any(|gone| place(gone) == place(held));
    let (mut back, mut handed) = (Vec::new(), BTreeMap::new());
    for (id, is_obsolete, held) in holdings(before).into_values().filter(|(id, ..)| is_meant(id)) {
        let of_plan = |obsolete: &Value| obsolete.get("plan") == ask.params.get("plan");
        if is_obsolete && held.get("obsolete").is_some_and(of_plan) {
            back.push(moved(held, format!("current again for {id}")));
        } else if !is_obsolete
            && !goes(held)
            && text(held, "created_at").is_some_and(|at| at > since)
            && let Some(generation) = held.get("generation").and_then(Value::as_u64)
        {
            handed.insert(generation, id);
        }
    }
    (back, handed)
}

/// The way back of a transfer by which an instance got its reservation.
pub fn taken_back(event: &Value, handed: &BTreeMap<u64, String>) -> Option<Moved> {
    let now = handed.get(&event.get("generation").and_then(Value::as_u64)?)?;
    let had = text(event.get("before")?, "owner")?;
    Some(Moved { undoes: true, ..moved(event, format!("{now} → {had}")) })
}

/// A row for each change.
pub fn table<'a>(all: impl Iterator<Item = &'a Moved>) -> Table {
    let mut table = Table::new(&["!ADDRESS", "NETWORK", "WHAT"]);
    all.for_each(|one| table.row(vec![one.address.clone(), one.network.clone(), one.what.clone()]));
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn held(address: &str, generation: u64, at: &str) -> Value {
        json!({"network": "lan", "address": address, "prefix_length": 32, "generation": generation, "created_at": at})
    }

    fn instance(id: &str, reservations: Value, obsolete: Value) -> Value {
        json!({"id": id, "reservations": reservations, "obsolete": obsolete})
    }

    fn told(moved: &[Moved]) -> Vec<(&str, &str)> {
        moved.iter().map(|one| (one.address.as_str(), one.what.as_str())).collect()
    }

    #[test]
    fn what_another_instance_holds_now_moved_and_what_was_let_go_did_not() {
        let [a, b, c] = [held("10.0.0.1", 1, "t"), held("10.0.0.2", 2, "t"), held("10.0.0.3", 3, "t")];
        let before =
            json!({"instances": [instance("a", json!([a]), json!([b])), instance("c", json!([c]), json!([]))]});
        let after = json!({"instances": [instance("a", json!([b]), json!([])), instance("c", json!([a]), json!([c]))]});
        let moved = between(&before, &after);
        assert_eq!(
            told(&moved),
            [
                ("10.0.0.1", "a → c"),
                ("10.0.0.2", "current again for a"),
                ("10.0.0.3", "obsolete for c, until its own commit")
            ]
        );
        assert_eq!(between(&before, &json!({"instances": []})), []);
    }

    #[test]
    fn a_revert_brings_back_what_its_plan_made_obsolete_and_what_a_commit_of_a_part_handed_over() {
        let obsolete = |plan: u64| {
            let mut held = held(&format!("10.0.0.{plan}"), plan, "1");
            held["obsolete"] = json!({"since": "2", "plan": plan});
            held
        };
        let before = json!({"uncommitted_since": "2", "instances": [
            instance("a", json!([held("10.0.1.1", 11, "2"), held("10.0.1.2", 12, "3")]), json!([obsolete(7), obsolete(6)])),
            instance("b", json!([held("10.0.1.3", 13, "3")]), json!([])),
        ]});
        let would = json!({"released": [{"network": "lan", "address": "10.0.1.1"}]});
        let ask = |instances: Value| Ask::new("deployment.revert", &json!({"plan": 7, "instances": instances}));
        let (back, handed) = by_revert(&ask(json!([])), &before, &would);
        assert_eq!(told(&back), [("10.0.0.7", "current again for a")]);
        assert_eq!(handed.into_iter().collect::<Vec<_>>(), [(12, "a".to_owned()), (13, "b".to_owned())]);
        let (back, handed) = by_revert(&ask(json!(["b"])), &before, &would);
        assert!(back.is_empty());
        let event = json!({"network": "lan", "address": "10.0.1.3", "prefix_length": 32, "generation": 13,
            "before": {"owner": "z"}});
        let taken = taken_back(&event, &handed).unwrap();
        assert!(taken.undoes && taken.what == "b → z", "{taken:?}");
    }
}
