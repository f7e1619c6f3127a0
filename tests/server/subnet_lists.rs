//! `network.update` with the list of subnets that a network is to have: one commit, which the catalog sees as one.

use serde_json::{Value, json};

use crate::history::history;
use crate::stores;
use crate::support::{Client, TestServer};

fn update(network: &str, set: Value) -> Value {
    json!({"network": network, "set": set})
}

/// The network without what depends on the moment.
fn get(client: &mut Client, network: &str) -> Value {
    let mut network = client.ok("network.get", json!({ "network": network }));
    network.as_object_mut().unwrap().remove("cursor");
    network
}

fn cidrs(network: &Value) -> Vec<&str> {
    network["subnets"].as_array().into_iter().flatten().filter_map(|subnet| subnet["cidr"].as_str()).collect()
}

/// Kind and field of a refusal.
fn refused(client: &mut Client, method: &str, params: Value) -> (String, String) {
    let answer = client.call(method, params);
    let text = |member: &str| answer["error"]["data"][member].as_str().unwrap_or_default().to_owned();
    (text("kind"), text("field"))
}

fn kind(client: &mut Client, method: &str, params: Value) -> String {
    refused(client, method, params).0
}

/// The events that changed the network, oldest first.
fn events(client: &mut Client, network: &str) -> Vec<String> {
    let told = history(client, json!({ "network": network }));
    told.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

fn everything() -> Value {
    json!({"name": "office", "cooldown_seconds": 60, "subnets": [
        {"cidr": "10.0.0.0/25", "name": "main", "gateway": "10.0.0.1", "dns": {"servers": ["10.0.0.2"], "search": null},
         "pools": [{"range": "10.0.0.64/26", "name": "web"}], "zones": ["z1"], "tags": {"floor": "1"},
         "reserved": [{"range": "10.0.0.70", "note": "printer", "for": {"owner": "printer/0"}}]},
        {"cidr": "10.0.0.128/25", "dhcp": true, "draining": true, "pools": [], "gateway": null, "name": null},
    ]})
}

#[test]
fn settings_subnets_pools_and_reserved_ranges_change_in_one_commit_with_one_event() {
    let server = TestServer::new();
    let mut client = server.client();
    let before =
        client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24", "name": "main"}]}));
    let after = client.ok("network.update", update("lan", everything()));
    assert_eq!(
        (&after["name"], &after["version"], &after["cooldown_seconds"]),
        (&json!("office"), &json!(2), &json!(60))
    );
    assert_eq!(cidrs(&after), ["10.0.0.0/25", "10.0.0.128/25"]);
    let (main, other) = (&after["subnets"][0], &after["subnets"][1]);
    assert_eq!(main["id"], before["subnets"][0]["id"]);
    assert_eq!(main["pools"][0]["range"], "10.0.0.64-10.0.0.127");
    assert_eq!(main["reserved"][0]["note"], "printer");
    assert_eq!((&other["dhcp"], &other["draining"], other.get("pools")), (&json!(true), &json!(true), None));
    assert_eq!(get(&mut client, "office"), after);
    assert_eq!(events(&mut client, "office"), ["network_created", "network_changed"]);
    let owner = json!({"network": "office", "owner": "printer/0"});
    assert_eq!(client.ok("ip.allocate", owner)["address"], "10.0.0.70");
    // Setting what is there already is no change.
    let again = client.ok("network.update", update("office", everything()));
    assert_eq!((&again["version"], events(&mut client, "office").len()), (&json!(2), 3));
}

#[test]
fn a_dry_run_and_a_version_that_is_past_change_nothing() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let before = get(&mut client, "lan");
    let mut params = update("lan", everything());
    params["set"]["subnets"][0]["id"] = before["subnets"][0]["id"].clone();
    params["dry_run"] = json!(true);
    let shown = client.ok("network.update", params.clone());
    assert_eq!((cidrs(&shown), &shown["name"]), (vec!["10.0.0.0/25", "10.0.0.128/25"], &json!("office")));
    assert_eq!(get(&mut client, "lan"), before);
    // Nothing stays reserved for it, either.
    client.ok("network.create", json!({"name": "office"}));
    params["dry_run"] = json!(false);
    params["if_version"] = json!(9);
    assert_eq!(kind(&mut client, "network.update", params.clone()), "already_exists", "the name comes first");
    params["set"]["name"] = json!("lan");
    assert_eq!(kind(&mut client, "network.update", params.clone()), "conflict");
    assert_eq!(get(&mut client, "lan"), before);
    params["if_version"] = before["version"].clone();
    assert_eq!(client.ok("network.update", params)["version"], 2);
}

#[test]
fn a_list_without_ids_replaces_the_subnets() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "office"}));
    client.ok("network.update", update("office", everything()));
    client.ok("ip.claim", json!({"network": "office", "owner": "web/0", "address": "10.0.0.65"}));
    let before = get(&mut client, "office");
    let mut subnets = before["subnets"].clone();
    for subnet in subnets.as_array_mut().unwrap() {
        let subnet = subnet.as_object_mut().unwrap();
        subnet.remove("id").unwrap();
        // Answers omit empty lists. Omitted here, it would be a pool that spans the subnet.
        subnet.entry("pools").or_insert(json!([]));
    }
    let shown = client.ok("network.update", update("office", json!({ "subnets": subnets })));
    assert_eq!(shown["version"], before["version"], "nothing is another by that: {shown}");
    let bare = json!({"subnets": [{"cidr": "10.0.0.0/25"}, {"id": before["subnets"][1]["id"]}]});
    client.ok("network.update", update("office", bare));
    let after = get(&mut client, "office");
    assert_eq!(after["subnets"][1], before["subnets"][1], "by its id one stays as it is");
    let plain = json!({
        "id": before["subnets"][0]["id"], "cidr": "10.0.0.0/25", "dhcp": false, "draining": false,
        "pools": [{"range": "10.0.0.0-10.0.0.127", "kind": "dynamic", "draining": false}],
    });
    assert_eq!(after["subnets"][0], plain);
    assert_eq!(
        client.ok("ip.get", json!({"network": "office", "address": "10.0.0.65"}))["reservation"]["owner"],
        "web/0"
    );
}

#[test]
fn what_is_refused_in_its_last_member_leaves_everything_as_it_was() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "wan", "subnets": [{"cidr": "10.0.1.0/24"}]}));
    client.ok("ip.claim", json!({"network": "lan", "address": "10.0.0.200", "owner": "web/0"}));
    let before = get(&mut client, "lan");
    let list = |last: Value| json!({"policy": "random", "subnets": [{"cidr": "10.0.0.0/24", "name": "a"}, last]});
    let id = "00000000-0000-4000-8000-000000000099";
    for (set, expected) in [
        (list(json!({"cidr": "10.0.1.128/25"})), ("overlap", "")),
        (list(json!({"cidr": "10.0.0.128/25"})), ("overlap", "")),
        (list(json!({"cidr": "10.0.2.0/24", "name": "a"})), ("already_exists", "")),
        (list(json!({"id": id})), ("not_found", "")),
        (list(json!({"cidr": "10.0.0.0/24"})), ("invalid_argument", "set.subnets[1]")),
        (list(json!({"name": "b"})), ("invalid_argument", "set.subnets[1].cidr")),
        (list(json!({"cidr": "10.0.2.0/24", "gateway": "10.0.9.1"})), ("out_of_range", "")),
        (list(json!({"cidr": "10.0.2.0/24", "reserved": [{"range": "10.0.3.1"}]})), ("out_of_range", "")),
        (json!({"subnets": []}), ("in_use", "")),
        (json!({"subnets": [{"id": before["subnets"][0]["id"], "cidr": "10.0.0.0/25"}]}), ("in_use", "")),
        (json!({"name": "wan", "subnets": [{"cidr": "10.0.0.0/24"}, {"cidr": "10.0.1.0/25"}]}), ("already_exists", "")),
        (json!({"name": "wan", "subnets": [{"cidr": "10.0.0.0/24"}, {"cidr": "10.0.0.0/25"}]}), ("already_exists", "")),
    ] {
        let found = refused(&mut client, "network.update", update("lan", set.clone()));
        assert_eq!((found.0.as_str(), found.1.as_str()), expected, "{set}");
        assert_eq!(get(&mut client, "lan"), before, "{set}");
    }
    // Nothing of the refused request blocks anybody.
    client.ok("network.create", json!({"name": "b", "subnets": [{"cidr": "10.0.2.0/24"}]}));
}

#[test]
fn space_that_is_given_up_is_free_once_it_is_answered_and_overlaps_are_those_of_the_realm() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "lab", "realm": "lab", "subnets": [{"cidr": "10.0.1.0/24"}]}));
    client.ok("network.update", update("lan", json!({"subnets": [{"cidr": "10.0.1.0/24"}]})));
    client.ok("network.create", json!({"name": "wan", "subnets": [{"cidr": "10.0.0.0/25"}]}));
    let back = json!({"subnets": [{"cidr": "10.0.1.0/24"}, {"cidr": "10.0.0.0/24"}]});
    let answer = client.call("network.update", update("lan", back.clone()));
    assert_eq!(answer["error"]["data"]["with"], json!({"network": "wan", "cidr": "10.0.0.0/25"}), "{answer}");
    client.ok("network.delete", json!({"network": "wan"}));
    assert_eq!(cidrs(&client.ok("network.update", update("lan", back))), ["10.0.1.0/24", "10.0.0.0/24"]);
    assert_eq!(
        kind(&mut client, "network.create", json!({"name": "wan", "subnets": [{"cidr": "10.0.0.0/25"}]})),
        "overlap"
    );
}

#[test]
fn of_those_who_want_the_same_space_at_once_one_gets_it() {
    let server = TestServer::new();
    let (mut one, mut other) = (server.with_lan(), server.client());
    one.ok("network.create", json!({"name": "wan"}));
    for round in 0..20 {
        let kept = json!({"cidr": "10.0.0.0/24"});
        one.send("network.update", update("lan", json!({"subnets": [kept, {"cidr": "10.0.4.0/23"}]})));
        other.send("network.update", update("wan", json!({"subnets": [{"cidr": "10.0.5.0/24"}]})));
        let name = format!("new-{round}");
        one.send("network.create", json!({"name": name, "subnets": [{"cidr": "10.0.4.0/22"}]}));
        let answers = [one.answer(), one.answer(), other.answer()];
        let (made, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer["error"].is_null());
        assert_eq!(made.len(), 1, "{answers:?}");
        assert!(refused.iter().all(|answer| answer["error"]["data"]["kind"] == "overlap"), "{answers:?}");
        one.ok("network.update", update("lan", json!({"subnets": [kept]})));
        one.ok("network.update", update("wan", json!({"subnets": []})));
        one.call("network.delete", json!({ "network": name }));
    }
}

#[test]
fn while_subnets_exchange_space_nobody_else_gets_any_of_it() {
    let server = TestServer::new();
    let (mut one, mut other) = (server.with_lan(), server.client());
    let id = get(&mut one, "lan")["subnets"][0]["id"].clone();
    for _ in 0..20 {
        let halves = [json!({"id": id, "cidr": "10.0.0.0/25"}), json!({"cidr": "10.0.0.128/25"})];
        one.send("network.update", update("lan", json!({ "subnets": halves })));
        one.send("network.update", update("lan", json!({"subnets": [{"id": id, "cidr": "10.0.0.0/24"}]})));
        for prefix in ["10.0.0.64/26", "10.0.0.128/26", "10.0.0.192/26"] {
            let create = json!({"name": "thief", "subnets": [{"cidr": prefix}]});
            assert_eq!(kind(&mut other, "network.create", create), "overlap");
        }
        for _ in 0..2 {
            let answer = one.answer();
            assert!(answer["error"].is_null(), "{answer}");
        }
    }
}

#[test]
fn a_restart_keeps_what_was_made_in_one_commit() {
    let open = stores::reopened(4);
    let start = || TestServer::over(open(), |_| {});
    let server = start();
    let mut client = server.with_lan();
    let id = get(&mut client, "lan")["subnets"][0]["id"].clone();
    let mut set = everything();
    set["subnets"][0]["id"] = id;
    let after = client.ok("network.update", update("lan", set));
    drop(client);
    server.stop();
    let server = start();
    let mut client = server.client();
    assert_eq!(get(&mut client, "office"), after);
    assert_eq!(
        kind(&mut client, "network.create", json!({"name": "x", "subnets": [{"cidr": "10.0.0.192/26"}]})),
        "overlap"
    );
    client.ok("network.create", json!({"name": "lan"}));
}
