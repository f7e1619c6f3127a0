//! What the server answers where several networks, several refusals or several spellings meet. Each of these was wrong
//! once, and was found by the comparison with the model (`tests/it/sequences.rs`).

use serde_json::{Value, json};

use crate::support::{Client, TestServer};

/// The error data of a request that is refused.
fn refused(client: &mut Client, method: &str, params: Value) -> Value {
    let answer = client.call(method, params);
    assert!(answer["error"]["data"].is_object(), "{method}: {answer}");
    answer["error"]["data"].clone()
}

/// A server with the networks `lan` (10.0.0.0/24, gateway) and `dmz` (10.1.0.0/24).
fn two_networks(server: &TestServer) -> Client {
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    client
}

#[test]
fn an_acquire_says_which_of_its_items_names_a_network_that_is_not_there() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let ips = json!([{"network": "lan"}, {"network": "nowhere"}]);
    let data = refused(&mut client, "ip.acquire", json!({"owner": "a", "ips": ips}));
    assert_eq!((data["kind"].as_str(), data["index"].as_u64()), (Some("not_found"), Some(1)), "{data}");
    let data = refused(&mut client, "ip.acquire", json!({"owner": "a", "network": "nowhere", "ips": [{}]}));
    assert_eq!((data["kind"].as_str(), data["index"].as_u64()), (Some("not_found"), Some(0)), "{data}");
}

#[test]
fn a_network_named_by_name_and_by_id_is_one_network_to_an_acquire() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let id = client.ok("network.get", json!({"network": "lan"}))["id"].clone();
    let ips = json!([{"network": "lan"}, {"network": id}, {"network": "lan"}]);
    let acquired = client.ok("ip.acquire", json!({"owner": "a", "slot_prefix": "s", "ips": ips}));
    let slots: Vec<&Value> =
        acquired["reservations"].as_array().unwrap().iter().map(|reservation| &reservation["slot"]).collect();
    assert_eq!(slots, ["s0", "s1", "s2"]);
}

#[test]
fn the_last_page_of_a_list_has_no_next() {
    let server = TestServer::new();
    let mut client = two_networks(&server);
    client.allocate("a");
    client.ok("ip.allocate", json!({"network": "dmz", "owner": "a"}));
    for (asked, is_last) in [
        (json!({"limit": 1}), false),
        (json!({"limit": 2}), true),
        (json!({"limit": 1, "network": "lan"}), true),
        (json!({"limit": 1, "owner": "a"}), false),
        (json!({"limit": 1, "network": "lan", "owner": "a"}), true),
    ] {
        let page = client.ok("ip.list", asked.clone());
        assert_eq!(page.get("next").is_none(), is_last, "{asked}: {page}");
    }
}

#[test]
fn what_is_wrong_in_form_comes_before_a_network_that_is_not_there() {
    let server = TestServer::new();
    let mut client = server.client();
    for (method, params, field) in [
        ("ip.release", json!({"network": "x", "address": "10.0.0.5"}), "owner"),
        ("ip.release", json!({"network": "x"}), "address"),
        ("ip.renew", json!({"network": "x", "ttl_seconds": null}), "address"),
        ("ip.bind", json!({"network": "x", "claimant": "c"}), "address"),
        ("ip.unbind", json!({"network": "x", "claimant": "c"}), "address"),
        ("ip.update", json!({"network": "x", "set": {"note": "n"}}), "address"),
        ("ip.update", json!({"network": "x", "owner": "a", "set": {}}), "set"),
        ("network.update", json!({"network": "x", "set": {}}), "set"),
        ("subnet.modify", json!({"network": "x", "subnet": "s", "set": {}}), "set"),
        ("pool.modify", json!({"network": "x", "pool": "p", "set": {}}), "set"),
    ] {
        let data = refused(&mut client, method, params.clone());
        assert_eq!(
            (data["kind"].as_str(), data["field"].as_str()),
            (Some("invalid_argument"), Some(field)),
            "{method} {params}: {data}"
        );
    }
}

#[test]
fn counts_of_reservations_are_numbers_in_errors_too() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.allocate("a");
    let data = refused(&mut client, "network.delete", json!({"network": "lan"}));
    assert_eq!((&data["count"], &data["first"]), (&json!(1), &json!(["10.0.0.2"])));
    client.ok("network.update", json!({"network": "lan", "set": {"limits": {"per_owner": 1}}}));
    let data = refused(&mut client, "ip.allocate", json!({"network": "lan", "owner": "a", "slot": "1"}));
    assert_eq!((&data["kind"], &data["count"]), (&json!("quota_exceeded"), &json!(1)));
}

#[test]
fn what_is_granted_again_after_a_decline_is_a_reservation_and_nothing_more() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.allocate("a");
    let declined =
        client.ok("ip.decline", json!({"network": "lan", "address": "10.0.0.2", "owner": "a", "again": true}));
    let reservation = &declined["reservation"];
    assert_eq!((&reservation["address"], reservation.get("created")), (&json!("10.0.0.3"), None));
}

#[test]
fn a_subnet_moved_to_the_network_that_has_it_stays_as_it_is() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let before = client.ok("network.get", json!({"network": "lan"}));
    let id = before["id"].clone();
    let moved = client.ok("subnet.move", json!({"network": "lan", "subnet": "10.0.0.0/24", "to": id}));
    assert_eq!(moved, before["subnets"][0]);
    assert_eq!(client.ok("network.get", json!({"network": "lan"})), before);
    let stale = json!({"network": "lan", "subnet": "10.0.0.0/24", "to": "lan", "if_version": 77});
    assert_eq!(client.kind("subnet.move", stale), "conflict");
}

#[test]
fn what_the_target_refuses_of_a_moved_subnet_comes_in_the_order_of_the_protocol() {
    let server = TestServer::new();
    let mut client = server.client();
    let create = |client: &mut Client, name: &str, realm: &str, subnets: Value| {
        client.ok("network.create", json!({"name": name, "realm": realm, "subnets": subnets}));
    };
    create(&mut client, "from", "default", json!([{"cidr": "10.0.0.0/24", "name": "s", "dhcp": true}]));
    create(&mut client, "plain", "own", json!([{"cidr": "10.0.0.0/16"}]));
    create(&mut client, "named", "own2", json!([{"cidr": "10.0.0.0/16", "name": "s"}]));
    create(&mut client, "dhcp", "own3", json!([{"cidr": "10.0.0.0/16", "name": "s", "dhcp": true}]));
    for (to, kind) in [("plain", "overlap"), ("named", "already_exists"), ("dhcp", "invalid_argument")] {
        assert_eq!(client.kind("subnet.move", json!({"network": "from", "subnet": "s", "to": to})), kind, "{to}");
    }
}

#[test]
fn a_network_name_that_is_taken_comes_before_subnets_that_overlap_each_other() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let twice = json!([{"cidr": "10.9.0.0/24"}, {"cidr": "10.9.0.0/25"}]);
    let ask = |name: &str, if_absent: bool| json!({"name": name, "subnets": twice, "if_absent": if_absent});
    assert_eq!(client.kind("network.create", ask("lan", false)), "already_exists");
    let data = refused(&mut client, "network.create", ask("lan", true));
    assert_eq!((&data["kind"], &data["differs"]), (&json!("already_exists"), &json!(["subnets"])));
    assert_eq!(client.kind("network.create", ask("new", false)), "overlap");
}

#[test]
fn the_space_of_a_deleted_network_is_free_once_its_last_release_is_answered() {
    let server = TestServer::new();
    let mut client = server.client();
    for round in 0..20 {
        let name = format!("net-{round}");
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": "10.0.0.0/24"}]}));
        client.ok("ip.allocate", json!({"network": name, "owner": "a"}));
        let id = client.ok("network.delete", json!({"network": name, "force": true}))["id"].clone();
        assert_eq!(client.ok("ip.release", json!({"network": id, "owner": "a"}))["released"], json!(["10.0.0.1"]));
    }
}
