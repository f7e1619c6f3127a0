//! What the server answers where several networks, several refusals or several spellings meet. Each of these answers was
//! wrong once; the comparison with the model found it (`tests/it/sequences.rs`).

use serde_json::{Value, json};

use crate::support::{Client, TestServer, line};

/// The error data of a refused request.
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
    assert_eq!((&data["kind"], &data["count"]), (&json!("quota_exceeded"), &json!(2)));
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
        let mut ask = json!({"network": "from", "subnet": "s", "to": to});
        let refused = &client.call("subnet.move", ask.clone())["error"];
        assert_eq!(refused["data"]["kind"], kind, "{to}");
        if kind == "invalid_argument" {
            assert_eq!(refused["data"]["field"], "to", "the member of the params that is wrong: {refused}");
            let message = refused["message"].as_str().unwrap();
            assert!(message.contains("`to` has `dhcp` set for 10.0.0.0/16 already"), "{message}");
        }
        ask["if_version"] = json!(77);
        assert_eq!(client.kind("subnet.move", ask), kind, "{to}: all of these come before a conflict");
    }
}

#[test]
fn what_is_the_id_of_another_is_no_name() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let lan = client.ok("network.get", json!({"network": "lan"}));
    client.ok("network.create", json!({"name": "other", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let set = json!({"name": lan["id"]});
    for (method, params) in [
        ("network.create", json!({"name": lan["id"], "subnets": [{"cidr": "10.2.0.0/24"}]})),
        ("network.update", json!({"network": "other", "set": set})),
        ("subnet.add", json!({"network": "lan", "cidr": "10.2.0.0/24", "name": lan["subnets"][0]["id"]})),
    ] {
        assert_eq!(client.kind(method, params), "already_exists", "{method}");
    }
    // A deleted network that is still remembered can only be named by its id.
    client.allocate("a");
    client.ok("network.delete", json!({"network": "lan", "force": true}));
    let named = json!({"name": lan["id"], "subnets": [{"cidr": "10.2.0.0/24"}]});
    assert_eq!(client.kind("network.create", named), "already_exists");
    // A network may use its own id as its name.
    let own = client.ok("network.get", json!({"network": "other"}))["id"].clone();
    assert_eq!(client.ok("network.update", json!({"network": "other", "set": {"name": own}}))["name"], own);
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

#[test]
fn of_several_items_refused_alike_in_several_networks_the_first_is_answered() {
    let server = TestServer::new();
    let mut client = two_networks(&server);
    for networks in [["lan", "dmz"], ["dmz", "lan"]] {
        let ips = networks.map(|network| json!({"network": network, "address": "192.0.2.1"}));
        let data = refused(&mut client, "ip.acquire", json!({"owner": "a", "ips": ips}));
        assert_eq!((&data["kind"], &data["index"]), (&json!("out_of_range"), &json!(0)), "{networks:?}");
    }
}

#[test]
fn a_subnet_that_a_list_names_must_exist_whatever_realm_is_named_beside_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let ask = |subnet: &str| json!({"network": "lan", "realm": "other", "subnet": subnet});
    assert_eq!(client.kind("ip.list", ask("10.9.0.0/24")), "not_found");
    assert_eq!(client.ok("ip.list", ask("10.0.0.0/24"))["reservations"], json!([]));
}

#[test]
fn an_acquire_over_several_networks_sees_no_cooldown_that_is_over() {
    let server = TestServer::new();
    let mut client = two_networks(&server);
    client.ok("network.update", json!({"network": "lan", "set": {"cooldown_seconds": 60}}));
    client.allocate("a");
    client.ok("ip.release", json!({"network": "lan", "owner": "a"}));
    server.clock.advance_ms(60_000);
    let ips = json!([{"network": "lan"}, {"network": "dmz"}]);
    let acquired = client.ok("ip.acquire", json!({"owner": "b", "ips": ips}));
    assert_eq!(acquired["reservations"][0]["address"], "10.0.0.2");
}

#[test]
fn what_is_there_already_does_not_overlap_itself_when_something_else_is_refused() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let ask = json!({"network": "lan", "cidr": "10.0.0.0/24", "if_absent": true, "if_version": 77});
    assert_eq!(client.kind("subnet.add", ask), "conflict");
    client.allocate("a");
    let id = client.ok("network.delete", json!({"network": "lan", "force": true}))["id"].clone();
    assert_eq!(client.kind("subnet.add", json!({"network": id, "cidr": "10.0.0.0/24", "if_absent": true})), "in_use");
}

#[test]
fn what_a_deleted_network_lets_go_cools_for_when_it_is_restored() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.update", json!({"network": "lan", "set": {"cooldown_seconds": 60}}));
    client.allocate("a");
    client.allocate("b");
    let id = client.ok("network.delete", json!({"network": "lan", "force": true}))["id"].clone();
    client.ok("ip.release", json!({"network": id, "owner": "a"}));
    assert_eq!(client.ok("network.usage", json!({"network": id}))["cooling"], "1");
    client.ok("network.restore", json!({"network": id}));
    assert_eq!(client.allocate("c")["address"], "10.0.0.4");
    client.ok("network.delete", json!({"network": "lan", "force": true}));
    client.ok("ip.release", json!({"network": id, "owner": "b"}));
    client.ok("ip.release", json!({"network": id, "owner": "c"}));
    assert_eq!(client.kind("network.get", json!({"network": id})), "not_found", "gone with its last reservation");
}

/// Both requests are sent at once: until the restore is done, nobody knows which name it brings back.
#[test]
fn what_asks_by_name_comes_behind_a_restore_by_id_that_was_sent_before() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.allocate("a");
    let id = client.ok("network.delete", json!({"network": "lan", "force": true}))["id"].clone();
    let asks = [("network.restore", json!({"network": id})), ("ip.allocate", json!({"network": "lan", "owner": "b"}))];
    client.raw([line(1, asks[0].0, &asks[0].1), line(2, asks[1].0, &asks[1].1)].concat());
    let answers = [client.answer(), client.answer()];
    for answer in &answers {
        assert!(answer.get("result").is_some(), "{answer}");
    }
}

#[test]
fn a_list_tells_deleted_networks_apart_and_their_noun_has_no_word_for_it() {
    let server = TestServer::new();
    let mut client = two_networks(&server);
    client.allocate("a");
    let mut before = client.ok("network.get", json!({"network": "lan"}));
    let id = client.ok("network.delete", json!({"network": "lan", "force": true}))["id"].clone();
    let mut names = |ask: Value| -> Vec<Value> {
        let listed = client.ok("network.list", ask);
        listed["networks"].as_array().unwrap().iter().map(|network| network["name"].clone()).collect()
    };
    assert_eq!(names(json!({})), ["dmz"]);
    assert_eq!(names(json!({"deleted": false})), ["dmz"]);
    assert_eq!(names(json!({"deleted": true})), ["lan"]);
    before["version"] = json!(before["version"].as_u64().unwrap() + 1);
    let after = client.ok("network.get", json!({"network": id}));
    // The cursor has moved on since.
    before["cursor"] = after["cursor"].clone();
    assert_eq!(after, before);
}

#[test]
fn a_map_of_a_pool_in_another_subnet_is_empty() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("subnet.add", json!({"network": "lan", "cidr": "10.2.0.0/24", "pools": [{"range": "10.2.0.8/29"}]}));
    let ask = |pool: &str| json!({"network": "lan", "subnet": "10.0.0.0/24", "pool": pool});
    assert_eq!(client.ok("network.map", ask("10.2.0.8/29")), json!({"pools": []}));
    assert_eq!(client.kind("network.map", ask("10.2.0.16/29")), "not_found");
}

#[test]
fn filters_hold_for_the_network_in_which_a_page_begins_too() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "own", "realm": "own", "subnets": [{"cidr": "10.5.0.0/24"}]}));
    for owner in ["a", "b"] {
        client.allocate(owner);
        client.ok("ip.allocate", json!({"network": "own", "owner": owner}));
    }
    let after = client.ok("ip.list", json!({"limit": 1}))["next"].clone();
    let listed = client.ok("ip.list", json!({"after": after, "realm": "own"}));
    let networks: Vec<&Value> =
        listed["reservations"].as_array().unwrap().iter().map(|reservation| &reservation["network"]).collect();
    assert_eq!(networks, ["own", "own"]);
    let listed = client.ok("ip.list", json!({"after": after, "subnet": "10.5.0.0/24"}));
    assert_eq!(listed["reservations"].as_array().unwrap().len(), 2, "the first network has no such subnet");
}

#[test]
fn oldest_remembers_what_was_let_go_while_it_was_reserved() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([{"cidr": "10.0.0.0/24", "pools": [{"range": "10.0.0.5-10.0.0.8"}]}]);
    client.ok("network.create", json!({"name": "lan", "policy": "oldest", "subnets": subnets}));
    client.allocate("a");
    client.ok("reserved.add", json!({"network": "lan", "range": "10.0.0.5"}));
    client.ok("ip.release", json!({"network": "lan", "owner": "a"}));
    client.ok("reserved.remove", json!({"network": "lan", "range": "10.0.0.5"}));
    assert_eq!(client.allocate("b")["address"], "10.0.0.6", "never used comes before used");
}

#[test]
fn what_cools_is_not_given_back_to_another_object_of_the_same_name() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.update", json!({"network": "lan", "set": {"cooldown_seconds": 60}}));
    let mut again = |uid: Option<&str>| {
        let mut ask = json!({"network": "lan", "owner": "a"});
        if let Some(uid) = uid {
            ask["owner_uid"] = json!(uid);
        }
        let address = client.ok("ip.allocate", ask)["address"].clone();
        client.ok("ip.release", json!({"network": "lan", "owner": "a"}));
        server.clock.advance_ms(1);
        address
    };
    assert_eq!(again(Some("u1")), "10.0.0.2");
    assert_eq!(again(Some("u1")), "10.0.0.2");
    assert_eq!(again(Some("u2")), "10.0.0.3");
    assert_eq!(again(None), "10.0.0.3", "the one let go last");
}

/// The machine's clock is read in whole milliseconds. Without this, a lease granted at the end of one millisecond that ends
/// at the beginning of another would be shorter than was said.
#[test]
fn a_lease_and_a_cooldown_are_over_only_when_all_of_their_last_millisecond_is() {
    let server = TestServer::new();
    server.clock.cuts_off();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "cooldown_seconds": 60, "subnets": [{"cidr": "10.0.0.0/30"}]}));
    client.ok("ip.allocate", json!({"network": "lan", "owner": "a", "ttl_seconds": 30}));
    let mut state = |after_ms: u64| {
        server.clock.advance_ms(after_ms);
        client.ok("ip.get", json!({"network": "lan", "address": "10.0.0.1"}))["state"].clone()
    };
    assert_eq!([state(30_000), state(1)], ["held", "cooling"]);
    // The cooldown began when the lease ended, one millisecond ago.
    assert_eq!([state(59_999), state(1)], ["cooling", "free"]);
}

#[test]
fn oldest_counts_a_declined_address_as_free_since_the_end_of_its_probation() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([{"cidr": "10.0.0.0/24", "pools": [{"range": "10.0.0.5-10.0.0.6"}]}]);
    client.ok("network.create", json!({"name": "lan", "policy": "oldest", "subnets": subnets}));
    client.ok("ip.allocate", json!({"network": "lan", "owner": "leased", "ttl_seconds": 30}));
    client.allocate("declined");
    let decline = json!({"network": "lan", "owner": "declined", "address": "10.0.0.6", "probation_seconds": 20});
    client.ok("ip.decline", decline);
    // Both ends are noticed at the same time.
    server.clock.advance_ms(60_000);
    assert_eq!(client.allocate("next")["address"], "10.0.0.6");
}

#[test]
fn pages_of_a_range_that_begins_within_a_block_end_in_one_network_and_in_all() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("ip.claim", json!({"network": "lan", "owner": "block", "address": "10.0.0.4", "prefix_length": 30}));
    client.ok("ip.claim", json!({"network": "lan", "owner": "one", "address": "10.0.0.9"}));
    for network in [json!({"network": "lan"}), json!({})] {
        let (mut seen, mut after) = (Vec::new(), None);
        for _ in 0..4 {
            let mut ask = json!({"range": "10.0.0.5-10.0.0.20", "limit": 1});
            ask.as_object_mut().unwrap().extend(network.as_object().unwrap().clone());
            ask.as_object_mut().unwrap().extend(after.map(|after| ("after".to_owned(), after)));
            let page = client.ok("ip.list", ask);
            seen.extend(page["reservations"].as_array().unwrap().iter().map(|held| held["address"].clone()));
            after = page.get("next").cloned();
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, ["10.0.0.4", "10.0.0.9"]);
    }
}

#[test]
fn a_limit_comes_before_a_want_of_room_whichever_part_of_a_request_is_first() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([{"cidr": "10.0.0.0/29"}]);
    client.ok("network.create", json!({"name": "net", "limits": {"per_owner": 2}, "subnets": subnets}));
    let wishes = |six: usize| -> Vec<Value> {
        let wish = |at| if at == six { json!({"network": "net", "family": 6}) } else { json!({"network": "net"}) };
        let slot = |at: usize, mut wish: Value| {
            wish["slot"] = json!(at.to_string());
            wish
        };
        (0..3).map(|at| slot(at, wish(at))).collect()
    };
    for six in 0..3 {
        let data = refused(&mut client, "ip.acquire", json!({"owner": "a", "ips": wishes(six)}));
        assert_eq!((&data["kind"], &data["count"]), (&json!("quota_exceeded"), &json!(3)), "{six} of acquire: {data}");
        let instances = json!([{"id": "a", "networks": wishes(six)}]);
        let data = refused(&mut client, "deployment.apply", json!({"deployment": "d", "instances": instances}));
        assert_eq!((&data["kind"], &data["count"]), (&json!("quota_exceeded"), &json!(3)), "{six} of apply: {data}");
    }
    // An optional item that is left out for want of room does not count.
    let mut ips = wishes(0);
    ips[0]["optional"] = json!(true);
    client.ok("ip.acquire", json!({"owner": "a", "ips": ips}));
}

#[test]
fn a_refused_claim_names_what_was_asked_for_beside_what_is_in_its_way() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([{"cidr": "10.0.0.0/24"}, {"cidr": "255.255.255.254/31"}, {"cidr": "2001:db8::/64", "gateway": "2001:db8::2"}]);
    client.ok("network.create", json!({"name": "net", "subnets": subnets}));
    client.ok("ip.claim", json!({"network": "net", "owner": "b", "address": "10.0.0.4", "prefix_length": 30}));
    let mut said = |params: Value| {
        let error = client.call("ip.claim", params)["error"].clone();
        (error["data"]["address"].clone(), error["message"].as_str().unwrap_or_default().to_owned())
    };
    let (address, message) = said(json!({"network": "net", "owner": "a", "address": "10.0.0.5"}));
    assert_eq!(address, "10.0.0.4");
    assert!(message.starts_with("10.0.0.5 overlaps 10.0.0.4/30 of network `net`, which is held by `b`"), "{message}");
    let (_, message) = said(json!({"network": "net", "owner": "a", "address": "255.255.255.255", "force": true}));
    assert!(!message.contains("broadcast"), "{message}");
    let (_, message) = said(json!({"network": "net", "owner": "a", "address": "2001:db8::2", "prefix_length": 127}));
    assert!(message.contains("the first address of a block that contains 2001:db8::2, the gateway"), "{message}");
}

#[test]
fn one_mac_for_several_addresses_is_an_invalid_argument() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let ips = json!([{"network": "lan"}, {"network": "lan", "slot": "1"}]);
    let data = refused(&mut client, "ip.acquire", json!({"owner": "a", "mac": "02:00:00:00:00:05", "ips": ips}));
    assert_eq!((&data["kind"], &data["field"]), (&json!("invalid_argument"), &json!("mac")), "{data}");
}
