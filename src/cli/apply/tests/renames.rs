//! Names that change hands within one file: chains and cycles of `renamed_from`.

use serde_json::{Value, json};

use super::super::diff::{Step, steps};
use super::super::file::{Table, tables};
use crate::core::address::Range;

/// A network in the server's form; its id contains its number.
fn there(name: &str, number: u32, cidr: &str) -> Value {
    let range = cidr.parse::<Range>().unwrap().to_string();
    json!({
        "id": format!("00000000-0000-4000-8000-{number:012}"), "name": name, "realm": "default", "kind": "manual",
        "policy": "lowest", "cooldown_seconds": 0, "version": number,
        "subnets": [{"cidr": cidr, "dhcp": false, "draining": false, "pools": [{"range": range, "kind": "dynamic"}]}],
    })
}

/// A table, without a subnet if `cidr` is empty.
fn table(name: &str, from: &str, cidr: &str) -> Value {
    let mut table = json!({"name": name});
    if !from.is_empty() {
        table["renamed_from"] = json!(from);
    }
    if !cidr.is_empty() {
        table["subnets"] = json!([{"cidr": cidr}]);
    }
    table
}

fn read(list: &[Value]) -> Vec<Table> {
    tables(json!({"network": list})).unwrap()
}

const A: &str = "10.0.0.0/24";
const B: &str = "10.0.1.0/24";
const C: &str = "10.0.2.0/24";

/// The network's number and the new name in each step.
fn renames(steps: &[Step]) -> Vec<(u32, &str)> {
    let number = |step: &Step| step.params["network"].as_str().unwrap()[24..].parse().unwrap();
    assert!(steps.iter().all(|step| step.method == "network.update"), "{steps:?}");
    steps.iter().map(|step| (number(step), step.params["set"]["name"].as_str().unwrap())).collect()
}

#[test]
fn a_name_is_given_up_before_another_network_takes_it() {
    let before = [there("prod", 1, A), there("new", 2, B)];
    let after = [there("prod-old", 1, A), there("prod", 2, B)];
    for with_subnets in [true, false] {
        let cidr = |cidr| if with_subnets { cidr } else { "" };
        let (old, new) = (table("prod-old", "prod", cidr(A)), table("prod", "new", cidr(B)));
        for file in [[old.clone(), new.clone()], [new, old]] {
            let chain = steps(&read(&file), &before, with_subnets).unwrap();
            assert_eq!(renames(&chain), [(1, "prod-old"), (2, "prod")]);
            assert_eq!((&chain[0].params["if_version"], &chain[1].params["if_version"]), (&json!(1), &json!(2)));
            assert_eq!(steps(&read(&file), &after, with_subnets).unwrap(), [], "applied twice");
        }
    }
}

#[test]
fn a_longer_chain_frees_each_name_in_turn() {
    let before = [there("a", 1, A), there("b", 2, B), there("c", 3, C)];
    let file = [table("b", "a", A), table("c", "b", B), table("d", "c", C)];
    assert_eq!(renames(&steps(&read(&file), &before, false).unwrap()), [(3, "d"), (2, "c"), (1, "b")]);
}

#[test]
fn names_that_are_swapped_take_another_meanwhile() {
    let before = [there("a", 1, A), there("b", 2, B), there("renaming-1", 3, C)];
    let swap = [table("a", "b", B), table("b", "a", A)];
    let by_id = [json!({"name": "b", "id": before[0]["id"]}), json!({"name": "a", "id": before[1]["id"]})];
    let swapped = steps(&read(&swap), &before, false).unwrap();
    assert_eq!(renames(&swapped), [(2, "renaming-2"), (1, "b"), (2, "a")]);
    // The compared version goes with the first change of the network.
    assert_eq!((&swapped[0].params["if_version"], swapped[2].params.get("if_version")), (&json!(2), None));
    assert_eq!(renames(&steps(&read(&by_id), &before, false).unwrap()), [(1, "renaming-2"), (2, "a"), (1, "b")]);
    let after = [there("b", 1, A), there("a", 2, B)];
    assert_eq!(steps(&read(&swap), &after, false).unwrap(), []);
    let in_the_middle = [there("renaming-1", 2, B), there("b", 1, A)];
    assert_eq!(renames(&steps(&read(&swap), &in_the_middle, false).unwrap()), [(2, "a")]);
}

#[test]
fn a_former_name_that_another_network_got_since_is_let_be() {
    // `lan` was once called `old`; another `old` was made since, from this file or by someone else.
    let now = [there("lan", 1, A), there("old", 2, B)];
    assert_eq!(steps(&read(&[table("lan", "old", A)]), &now, false).unwrap(), []);
    assert_eq!(steps(&read(&[table("lan", "old", A), table("old", "", B)]), &now, true).unwrap(), []);
    // `lan` is gone: `old` is still the network that the file has under that name.
    let only_old = [there("old", 2, B)];
    let again = steps(&read(&[table("lan", "old", A), table("old", "", B)]), &only_old, false).unwrap();
    assert_eq!(again.iter().map(|step| step.method).collect::<Vec<_>>(), ["network.create"]);
}
