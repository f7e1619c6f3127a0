//! Waits for an owner for whom everything is released: they end, and nothing that becomes free goes to that owner any more.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Client, TestServer};

/// Networks of two addresses each, held by `a` and `b`.
fn full(server: &TestServer, names: &[&str]) -> Client {
    let mut client = server.client();
    for (at, name) in names.iter().enumerate() {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": format!("10.{at}.0.0/30")}]}));
        for owner in ["a", "b"] {
            client.ok("ip.allocate", json!({"network": name, "owner": owner}));
        }
    }
    client
}

/// A waiting request on a connection of its own.
fn waits(server: &TestServer, network: &str, scope: &str, owner: &str) -> Client {
    let mut client = server.client();
    let ask = json!({"network": network, "scope": scope, "owner": owner, "wait_seconds": 600});
    client.send("ip.allocate", ask);
    client
}

fn let_go(client: &mut Client, network: &str, owner: &str) {
    let released = client.ok("ip.release", json!({"network": network, "owner": owner}));
    assert_eq!(released["released"].as_array().map(Vec::len), Some(1), "{released}");
}

fn address(answer: &Value) -> &str {
    answer["result"]["address"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// Checks that the client is told so, and need not ask again.
#[track_caller]
fn is_told(answer: &Value) {
    let (data, message) = (&answer["error"]["data"], answer["error"]["message"].as_str().unwrap_or_default());
    assert_eq!((&data["kind"], &data["retry"]), (&json!("not_enough_capacity"), &json!("never")), "{answer}");
    assert!(data["waited_ms"].is_u64() && message.contains("everything that its owner holds was released"), "{answer}");
}

const SILENT: Duration = Duration::from_millis(100);

#[test]
fn what_waits_for_an_owner_of_whom_all_is_let_go_ends_and_the_next_one_is_served() {
    let server = TestServer::new();
    let mut client = full(&server, &["lan"]);
    let mut gone = waits(&server, "lan", "shop", "web/0");
    server.until_waits("lan", 1);
    let mut next = waits(&server, "lan", "shop", "web/1");
    server.until_waits("lan", 2);
    // A dry run ends nothing, and is told what would be released.
    client.ok("owner.release", json!({"scope": "shop", "owner": "web/0", "dry_run": true}));
    client.ok("owner.release", json!({"owner": "web/0"}));
    assert!(gone.waits_still(SILENT), "a dry run, and an owner of that name in another scope");

    let done = client.ok("owner.release", json!({"scope": "shop", "owner": "web/0"}));
    assert_eq!(done, json!({"released": [], "more": false}));
    let told = gone.answer();
    is_told(&told);
    assert_eq!((&told["error"]["data"]["size"], &told["error"]["data"]["held"]), (&json!("4"), &json!("2")), "{told}");
    assert!(next.waits_still(SILENT));
    // A wait that begins now came later, and stays.
    let mut again = waits(&server, "lan", "shop", "web/0");
    server.until_waits("lan", 2);
    let_go(&mut client, "lan", "a");
    assert_eq!(address(&next.answer()), "10.0.0.1");
    let_go(&mut client, "lan", "b");
    assert_eq!(address(&again.answer()), "10.0.0.2");
}

/// What is released is the very address for which the owner waits.
#[test]
fn what_waits_for_more_is_not_given_what_its_own_owner_lets_go() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/30"}]}));
    for slot in ["0", "1"] {
        client.ok("ip.allocate", json!({"network": "lan", "owner": "web/0", "slot": slot}));
    }
    // On one connection: requests are carried out in order, and waits hold none of them up.
    let more =
        client.send("ip.allocate", json!({"network": "lan", "owner": "web/0", "slot": "2", "wait_seconds": 600}));
    let release = client.send("owner.release", json!({"owner": "web/0"}));
    let answers = [client.answer(), client.answer()];
    let of = |id: u64| answers.iter().find(|answer| answer["id"] == id).unwrap_or_else(|| panic!("{answers:?}"));
    is_told(of(more));
    assert_eq!(of(release)["result"]["released"].as_array().map(Vec::len), Some(2), "{answers:?}");
    assert_eq!(client.ok("ip.list", json!({"count_only": true}))["count"], 0);
}

#[test]
fn what_waits_for_any_owner_of_a_scope_or_deployment_that_goes_ends_and_no_other() {
    let server = TestServer::new();
    let mut client = full(&server, &["lan"]);
    client.ok("network.create", json!({"name": "apart", "subnets": [{"cidr": "10.9.0.0/24"}]}));
    let wishes = json!([{"id": "web/0", "networks": [{"network": "apart"}]}]);
    client.ok("deployment.apply", json!({"deployment": "shop", "instances": wishes}));
    for (method, member) in [("scope.release", "scope"), ("deployment.delete", "deployment")] {
        let mut gone = [waits(&server, "lan", "shop", "web/0"), waits(&server, "lan", "shop", "compile")];
        let mut other = waits(&server, "lan", "default", "web/0");
        server.until_waits("lan", 3);
        client.ok(method, json!({member: "shop", "dry_run": true}));
        client.ok(method, json!({member: "shop"}));
        gone.iter_mut().for_each(|gone| is_told(&gone.answer()));
        let_go(&mut client, "lan", "a");
        assert_eq!(address(&other.answer()), "10.0.0.1", "{method}");
        client.ok(
            "ip.transfer",
            json!({"network": "lan", "address": "10.0.0.1", "owner": "web/0", "to": {"owner": "a"}}),
        );
    }
}

#[test]
fn in_one_network_what_an_owner_waits_for_in_others_goes_on() {
    let server = TestServer::new();
    let mut client = full(&server, &["lan", "dmz"]);
    let mut in_lan = waits(&server, "lan", "default", "web/0");
    let mut in_dmz = waits(&server, "dmz", "default", "web/0");
    server.until_waits("lan", 1);
    server.until_waits("dmz", 1);
    client.ok("owner.release", json!({"owner": "web/0", "network": "lan"}));
    is_told(&in_lan.answer());
    assert_eq!(client.kind("owner.release", json!({"owner": "web/0", "network": "wan"})), "not_found");
    let_go(&mut client, "dmz", "a");
    assert_eq!(address(&in_dmz.answer()), "10.1.0.1");
}

#[test]
fn a_request_over_several_networks_ends_as_well_and_leaves_what_there_is_to_others() {
    let server = TestServer::new();
    let mut client = full(&server, &["lan", "dmz"]);
    for network in [None, Some("dmz")] {
        let mut gone = server.client();
        let ips = json!([{"network": "lan"}, {"network": "dmz"}]);
        gone.send("ip.acquire", json!({"owner": "web/0", "ips": ips, "wait_seconds": 600}));
        server.until_waits("lan", 1);
        server.until_waits("dmz", 1);
        let mut release = json!({"owner": "web/0"});
        if let Some(network) = network {
            release["network"] = json!(network);
        }
        client.ok("owner.release", release);
        is_told(&gone.answer());
        server.until_waits("lan", 0);
        server.until_waits("dmz", 0);
    }
    for network in ["lan", "dmz"] {
        let_go(&mut client, network, "a");
    }
    assert_eq!(client.ok("ip.list", json!({"owner": "web/0", "count_only": true}))["count"], 0);
    client.ok("ip.acquire", json!({"owner": "web/1", "ips": [{"network": "lan"}, {"network": "dmz"}]}));
}
