//! What a change removes or replaces beyond what it names: this is shown, and asked about.

use allod::wire::ErrorKind;
use serde_json::{Value, json};

use crate::commands::{allod, lan, text};
use crate::responder::{Responder, refusal};

/// A server with a network of one subnet, which has these members; it answers every change with `after`.
fn server(subnet: Value, after: Value) -> Responder {
    let mut network = lan();
    network["subnets"][0].as_object_mut().unwrap().extend(subnet.as_object().unwrap().clone());
    Responder::start(move |method, _| match method {
        "network.get" => Ok(network.clone()),
        "ip.list" => Ok(json!({"count": 3})),
        _ => Ok(after.clone()),
    })
}

fn run(server: &Responder, line: &str) -> (Option<i32>, String) {
    let output = allod(&server.address, &line.split(' ').collect::<Vec<_>>());
    (output.status.code(), text(&output.stderr))
}

/// Checks that a command shows this, asks, and does nothing without an answer, and that it acts with `--yes`.
#[track_caller]
fn asks(server: &Responder, line: &str, shown: &str) {
    let (code, said) = run(server, line);
    assert!(code == Some(1) && said.starts_with(shown) && said.contains("`--yes`"), "{line}: {said}");
    let changes = |(method, params): &(String, Value)| {
        params["dry_run"] != true && !matches!(method.as_str(), "network.get" | "ip.list")
    };
    assert!(!server.asked().iter().any(changes), "{line}: {:?}", server.asked());
    assert_eq!(run(server, &format!("{line} --yes")).0, Some(0), "{line}");
    assert!(server.asked().iter().any(changes), "{line}");
}

fn kept(range: &str, owner: &str, note: &str) -> Value {
    json!({"range": range, "for": {"scope": "default", "owner": owner}, "note": note})
}

#[test]
fn for_whom_a_range_was_kept_and_the_notes_in_a_wider_one_are_not_replaced_unseen() {
    let before =
        json!({"reserved": [kept("10.0.0.70-10.0.0.70", "a", "printer"), kept("10.0.0.80-10.0.0.89", "c", "")]});
    let anew = json!({"reserved": [kept("10.0.0.70-10.0.0.70", "b", "printer"), kept("10.0.0.80-10.0.0.89", "c", "")]});
    let shown = "this is replaced:\n  - 10.0.0.70 is reserved for `a`, and for `b` from then on\n";
    asks(&server(before.clone(), anew), "reserved add lan 10.0.0.70 --for-owner b", shown);
    let wider = json!({"reserved": [{"range": "10.0.0.60-10.0.0.69", "note": "rack"},
        kept("10.0.0.70-10.0.0.70", "a", "rack"), {"range": "10.0.0.71-10.0.0.79", "note": "rack"}]});
    let shown = "this is replaced:\n  - the note of 10.0.0.70: printer\n";
    asks(&server(before.clone(), wider), "reserved add lan 10.0.0.60-10.0.0.79 --note rack", shown);
    // A new note for exactly this range is intended, and what stays as it was needs no question.
    let renamed = json!({"reserved": [kept("10.0.0.70-10.0.0.70", "a", "new")]});
    assert_eq!(run(&server(before.clone(), renamed), "reserved add lan 10.0.0.70 --for-owner a --note new").0, Some(0));
    let beside = server(before.clone(), before);
    assert_eq!(run(&beside, "reserved add lan 10.0.0.90").0, Some(0));
    assert_eq!(beside.methods(), ["network.get", "reserved.add"]);
}

/// An owner who was told that he has an address may still use it.
#[test]
fn late_claims_that_nobody_named_are_not_given_up_unseen() {
    let holds = |owner: &str| json!({"scope": "default", "owner": owner, "slot": "0", "address": "10.0.0.5"});
    let accepted = json!({"accepted": [
        {"network": "lan", "address": "10.0.0.5", "late": holds("web/0"), "present": holds("db/17")}]});
    let shown = "all these late claims are given up, including those that nobody has looked at; whoever was granted one may be \
     using the address:\n  - 10.0.0.5 of `web/0` (scope `default`, slot `0`); `db/17` (scope `default`, slot `0`) has it now\n";
    let all = server(json!({}), accepted.clone());
    asks(&all, "cluster accept lan", shown);
    assert!(run(&all, "cluster accept lan --yes").1.ends_with("gave up 1 late claim; what is present stays\n"));
    let one = server(json!({}), accepted);
    assert_eq!(run(&one, "cluster accept lan 10.0.0.5").0, Some(0));
    assert_eq!(one.methods(), ["cluster.accept"]);
}

#[test]
fn a_pool_is_not_cut_unasked_whichever_command_cuts_it() {
    let pools = |range: &str| json!({"pools": [{"range": range, "name": "web"}]});
    let after = |range: &str| json!({"id": lan()["subnets"][0]["id"], "range": range, "pools": pools(range)["pools"]});
    let before = || server(pools("10.0.0.0-10.0.0.255"), after("10.0.0.10-10.0.0.127"));
    let shown = "this goes out of the pool; what is held stays held, and nothing new is granted there:\n\
                 \x20 - 10.0.0.0-10.0.0.9 of pool 10.0.0.0-10.0.0.255 `web` (3 reservations)\n\
                 \x20 - 10.0.0.128-10.0.0.255 of pool 10.0.0.0-10.0.0.255 `web` (3 reservations)\n";
    asks(&before(), "pool modify lan web --range 10.0.0.10-10.0.0.127", shown);
    asks(&before(), "pool modify lan 10.0.0.0/24 --range 10.0.0.10-10.0.0.127", shown);
    // This includes the pool that spans the subnet, and shrinks with it.
    let whole = server(pools("10.0.0.0-10.0.0.255"), after("10.0.0.0-10.0.0.127"));
    let shown =
        "the subnet's pools lose what lies outside:\n  - cut pool 10.0.0.0-10.0.0.255 `web` to 10.0.0.0-10.0.0.127\n";
    asks(&whole, "subnet modify lan 10.0.0.0/24 --cidr 10.0.0.0/25", shown);
    let grown = server(pools("10.0.0.0-10.0.0.255"), after("10.0.0.0-10.0.1.255"));
    assert_eq!(run(&grown, "subnet modify lan 10.0.0.0/24 --cidr 10.0.0.0/23").0, Some(0));
    assert_eq!(run(&grown, "pool modify lan web --range 10.0.0.0-10.0.1.255").0, Some(0));
    assert_eq!(run(&grown, "pool modify lan web --name other").0, Some(0));
}

#[test]
fn a_note_stands_under_its_own_heading_and_one_address_is_no_range() {
    let before = json!({"reserved": [kept("10.0.0.70-10.0.0.70", "a", "printer")]});
    let output = allod(&server(before, json!({})).address, &["network", "get", "lan"]);
    let told = text(&output.stdout);
    assert!(told.contains("WHAT            NOTE\n"), "{told}");
    assert!(told.contains("\n10.0.0.70            reserved for a  printer\n"), "{told}");
}

/// Changes that were made, without those only tried.
fn made(server: &Responder, method: &str) -> Vec<Value> {
    let is_made = |(asked, params): &(String, Value)| asked == method && params["dry_run"] != true;
    server.asked().into_iter().filter(is_made).map(|(_, params)| params).collect()
}

/// Between what is shown and the yes there may be any time, and somebody else may have the address then.
#[test]
fn a_forced_release_takes_the_reservation_that_was_shown_and_no_later_one() {
    let server = Responder::start(|method, _| match method {
        "ip.get" => Ok(json!({"address": "10.0.0.5", "state": "held",
            "reservation": {"network": "lan", "address": "10.0.0.5", "prefix_length": 32, "owner": "a", "generation": 7}})),
        _ => Ok(json!({"released": ["10.0.0.5"]})),
    });
    assert_eq!(run(&server, "ip release lan 10.0.0.5 --force --yes").0, Some(0));
    assert_eq!(made(&server, "ip.release")[0]["if_generation"], 7);
    server.forget();
    assert_eq!(run(&server, "ip release lan 10.0.0.5 --force --if-generation 6 --yes").0, Some(0));
    assert_eq!(made(&server, "ip.release")[0]["if_generation"], 6, "what the user says comes first");
}

#[test]
fn a_deletion_takes_the_network_that_was_shown_and_none_that_has_its_name_since() {
    let mut network = lan();
    network["version"] = json!(3);
    let id = network["id"].clone();
    let server = Responder::start(move |method, _| match method {
        "network.get" => Ok(network.clone()),
        "ip.list" => Ok(json!({"count": 0, "reservations": []})),
        _ => Ok(json!({"id": network["id"], "holding": 0})),
    });
    for line in ["network delete lan", "network delete lan --force", "network delete lan --purge"] {
        server.forget();
        let (code, said) = run(&server, &format!("{line} --yes"));
        assert_eq!(code, Some(0), "{line}: {said}");
        let asked = made(&server, "network.delete");
        assert_eq!((&asked[0]["network"], &asked[0]["if_version"]), (&id, &json!(3)), "{line}");
    }
    server.forget();
    assert_eq!(run(&server, "network delete lan --if-version 2 --yes").0, Some(0));
    assert_eq!(made(&server, "network.delete")[0]["if_version"], 2, "what the user says comes first");
}

/// A node that comes back late brings more of them at any time.
#[test]
fn late_claims_that_come_after_those_shown_are_not_given_up_with_them() {
    let claim = |address: &str| {
        json!({"network": "lan", "address": address,
            "late": {"scope": "default", "owner": "web/0", "slot": "0", "address": address}})
    };
    let server = Responder::start(move |_, params| match params.get("address") {
        // It was decided meanwhile.
        Some(address) if address == "10.0.0.6" => {
            Err(refusal(ErrorKind::NotFound, "no conflict at 10.0.0.6 in network `lan`", json!({})))
        }
        Some(address) => Ok(json!({"accepted": [claim(address.as_str().unwrap())]})),
        None => Ok(json!({"accepted": [claim("10.0.0.5"), claim("10.0.0.6"), claim("10.0.0.5"), claim("10.0.0.7")]})),
    });
    let (code, said) = run(&server, "cluster accept lan --yes");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with("gave up 2 late claims; what is present stays\n"), "{said}");
    let asked: Vec<Value> =
        made(&server, "cluster.accept").into_iter().map(|params| params["address"].clone()).collect();
    assert_eq!(asked, ["10.0.0.5", "10.0.0.6", "10.0.0.7"]);
}
