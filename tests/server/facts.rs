//! What a refusal tells besides its message, which of several refusals is given, and what is no refusal.

use serde_json::{Value, json};

use crate::support::{Client, TestServer};

fn with_two(server: &TestServer) -> Client {
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    client
}

fn refused(client: &mut Client, method: &str, params: Value) -> Value {
    client.call(method, params)["error"]["data"].take()
}

#[test]
fn what_is_wrong_with_a_wish_is_told_before_a_network_of_another_that_does_not_exist() {
    let server = TestServer::new();
    let mut client = with_two(&server);
    let nowhere = json!({"network": "nowhere"});
    let wide = json!({"network": "lan", "prefix_length": 16});
    for (ips, kind, index) in [
        (json!([nowhere, wide]), "invalid_argument", 1),
        (json!([nowhere, {"network": "dmz"}, wide]), "invalid_argument", 2),
        (json!([{"network": "lan", "address": "10.9.9.9"}, nowhere]), "not_found", 1),
        (json!([{"network": "lan", "subnet": "10.9.9.0/24"}, nowhere]), "not_found", 1),
    ] {
        let data = refused(&mut client, "ip.acquire", json!({"owner": "a", "ips": ips}));
        assert_eq!((&data["kind"], &data["index"]), (&json!(kind), &json!(index)), "{ips}");
    }
    assert_eq!(client.ok("ip.list", json!({"count_only": true}))["count"], 0);
}

#[test]
fn a_conflict_about_a_plan_that_ended_tells_how_it_ended() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let ask = json!({"deployment": "shop", "instances": [{"id": "a", "networks": [{"network": "lan"}]}]});
    for (ends, other, how) in [
        ("deployment.revert", "deployment.commit", "reverted"),
        ("deployment.commit", "deployment.revert", "committed"),
    ] {
        let plan = client.ok("deployment.apply", ask.clone())["plan"].clone();
        let end = json!({"deployment": "shop", "plan": plan});
        client.ok(ends, end.clone());
        let data = refused(&mut client, other, end);
        assert_eq!((&data["kind"], &data["reason"]), (&json!("conflict"), &json!(how)));
        assert_eq!((&data["expected"], &data["actual"]), (&plan, &plan));
        let stale = refused(&mut client, other, json!({"deployment": "shop", "plan": 1}));
        assert_eq!((&stale["actual"], stale.get("reason")), (&plan, None), "another plan is in the way");
    }
}

#[test]
fn an_address_that_is_never_handed_out_is_no_gateway() {
    let server = TestServer::new();
    let mut client = server.client();
    for (cidr, gateway) in [
        ("0.0.0.0/31", "0.0.0.0"),
        ("255.255.255.254/31", "255.255.255.255"),
        ("::/127", "::"),
        ("192.0.0.0/2", "224.0.0.1"),
        ("fe00::/7", "ff02::1"),
    ] {
        let subnets = json!([{"cidr": cidr, "gateway": gateway}]);
        let data = refused(&mut client, "network.create", json!({"name": "odd", "subnets": subnets}));
        assert_eq!(
            (&data["kind"], &data["field"]),
            (&json!("invalid_argument"), &json!("subnets[0].gateway")),
            "{cidr}"
        );
    }
    let pair = json!([{"cidr": "10.0.0.0/31", "gateway": "10.0.0.0"}]);
    client.ok("network.create", json!({"name": "pair", "subnets": pair}));
}

#[test]
fn a_transfer_that_is_repeated_after_a_lost_answer_is_answered_as_done() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let granted = client.allocate("a");
    let ask = |generation: &Value| {
        let mut ask = json!({"network": "lan", "address": granted["address"], "owner": "a", "to": {"owner": "b"}});
        ask["if_generation"] = generation.clone();
        ask
    };
    let done = client.ok("ip.transfer", ask(&granted["generation"]));
    assert_eq!(client.ok("ip.transfer", ask(&granted["generation"])), done);
    let later = json!(done["reservations"][0]["generation"].as_u64().unwrap() + 1);
    assert_eq!(client.kind("ip.transfer", ask(&later)), "conflict");
    // It was handed on since: this request must not say whose it is.
    let on = json!({"network": "lan", "address": granted["address"], "owner": "b", "to": {"owner": "c"}});
    client.ok("ip.transfer", on);
    assert_eq!(client.kind("ip.transfer", ask(&granted["generation"])), "not_owner");
}

#[test]
fn what_is_only_promised_has_no_generation_and_was_not_created() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let wish = |id: &str, address: &str| json!({"id": id, "networks": [{"network": "lan", "address": address}]});
    let ask = |instances: Value| json!({"deployment": "shop", "instances": instances});
    client.ok("deployment.apply", ask(json!([wish("a", "10.0.0.10"), wish("b", "10.0.0.20")])));
    let swap = client.ok("deployment.apply", ask(json!([wish("a", "10.0.0.20"), wish("b", "10.0.0.10")])));
    let promised = &swap["instances"][0]["networks"][0];
    assert_eq!((&promised["state"], &promised["reservation"]["owner"]), (&json!("promised"), &json!("a")));
    for member in ["generation", "created_at"] {
        assert_eq!(promised["reservation"].get(member), None, "{member}");
    }
}

#[test]
fn the_same_wishes_are_the_same_plan_whether_or_not_the_usual_is_said() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let ask = |instance: Value, group: Value| json!({"deployment": "shop", "instances": [instance], "groups": [group]});
    let group = |network: Value| json!({"name": "g", "instances": ["b"], "networks": [network]});
    let unsaid = ask(json!({"id": "a", "networks": [{"network": "lan"}]}), group(json!({"network": "lan"})));
    let said = ask(
        json!({"id": "a", "fresh": false, "networks": [{"network": "lan", "slot": "0"}]}),
        group(json!({"network": "lan", "slot": "0"})),
    );
    let plan = client.ok("deployment.apply", unsaid)["plan"].clone();
    assert_eq!(client.ok("deployment.apply", said)["plan"], plan);
    let other =
        ask(json!({"id": "a", "networks": [{"network": "lan", "slot": "1"}]}), group(json!({"network": "lan"})));
    assert_ne!(client.ok("deployment.apply", other)["plan"], plan);
}

#[test]
fn a_reserved_range_is_let_go_for_the_owner_that_is_named_and_no_other() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let of = |owner: &str| json!({"network": "lan", "range": "10.0.0.20+4", "for": {"owner": owner}});
    client.ok("reserved.add", of("a"));
    assert_eq!(client.kind("reserved.remove", of("b")), "not_found");
    client.ok("reserved.add", json!({"network": "lan", "range": "10.0.0.20+8"}));
    let left = client.ok("reserved.remove", of("a"));
    assert_eq!(left["reserved"], json!([{"range": "10.0.0.24-10.0.0.27"}]));
}

#[test]
fn who_did_not_decline_an_address_is_told_that_nobody_holds_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let ask = |owner: &str| json!({"network": "lan", "address": "10.0.0.2", "owner": owner});
    client.allocate("a");
    client.ok("ip.decline", ask("a"));
    let error = client.call("ip.decline", ask("b"))["error"].take();
    assert_eq!((&error["data"]["kind"], error["data"].get("held_by")), (&json!("not_owner"), None), "{error}");
    assert!(error["message"].as_str().unwrap().contains("declined by `a`"), "{error}");
}

#[test]
fn what_is_taken_is_told_with_its_network() {
    let server = TestServer::new();
    let mut client = with_two(&server);
    client.ok("ip.claim", json!({"network": "lan", "address": "10.0.0.64", "prefix_length": 28, "owner": "a"}));
    let inside = json!({"network": "lan", "address": "10.0.0.66", "owner": "b"});
    assert_eq!(refused(&mut client, "ip.claim", inside)["network"], "lan");
    let mac = "52:54:00:12:34:56";
    client.ok("ip.allocate", json!({"network": "lan", "owner": "m", "mac": mac}));
    let data = refused(&mut client, "ip.allocate", json!({"network": "dmz", "owner": "m", "mac": mac}));
    assert_eq!((&data["network"], &data["address"]), (&json!("lan"), &json!("10.0.0.2")), "{data}");
}

#[test]
fn who_will_hold_what_is_not_told() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.allocate("a");
    let data = refused(&mut client, "events.history", json!({"address": "10.0.0.2", "at": "2100-01-01T00:00:00.000Z"}));
    assert_eq!((&data["kind"], &data["field"]), (&json!("invalid_argument"), &json!("at")));
}

/// A refusal must not advise what never helps: releasing something where no pool can give what is asked, whatever is free.
#[test]
fn where_no_pool_can_give_what_is_wished_the_refusal_says_why() {
    let server = TestServer::new();
    let mut client = server.client();
    let pools =
        json!([{"range": "10.0.0.0/25", "name": "p"}, {"range": "10.0.0.128/25", "name": "st", "kind": "static"}]);
    let lan = json!([{"cidr": "10.0.0.0/24", "zones": ["a"], "pools": pools}, {"cidr": "10.0.1.0/24", "zones": ["b"]}]);
    let only_named = json!([{"cidr": "10.1.0.0/24", "pools": [{"range": "10.1.0.0/24", "kind": "static"}]}]);
    for network in [
        json!({"name": "lan", "subnets": lan}),
        json!({"name": "named", "subnets": only_named}),
        json!({"name": "wire"}),
        json!({"name": "cloud", "kind": "dynamic"}),
    ] {
        client.ok("network.create", network);
    }
    for (wish, why) in [
        (
            json!({"network": "lan", "pool": "st"}),
            ": pool `st`: it is static, so its addresses are only given by name; ask for one with ip.claim, or name another pool",
        ),
        (
            json!({"network": "lan", "pool": "p", "subnet": "10.0.1.0/24"}),
            ": pool `p`, subnet 10.0.1.0/24: no dynamic pool meets all of these conditions; leave one out, or add a pool",
        ),
        (
            json!({"network": "lan", "family": 6}),
            ": IPv6: no dynamic pool meets all of these conditions; leave one out, or add a pool",
        ),
        (json!({"network": "named"}), ": it has no dynamic pool; add one, or ask for an address by name with ip.claim"),
        (json!({"network": "wire"}), ": it has no subnet; add one"),
        (
            json!({"network": "cloud"}),
            ": the infrastructure picks its addresses; record what it picked with ip.bind, by `address` and `owner` together",
        ),
    ] {
        let mut asked = wish.clone();
        asked["owner"] = json!("a");
        let answer = client.call("ip.allocate", asked);
        assert_eq!(answer["error"]["data"]["kind"], "not_enough_capacity", "{answer}");
        let network = wish["network"].as_str().unwrap();
        assert_eq!(answer["error"]["message"], format!("network `{network}` has no free address{why}"));
    }
}

#[test]
fn a_release_that_names_another_scope_than_the_holders_says_who_holds_it_and_lets_go_of_nothing() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let claim = json!({"network": "lan", "address": "10.0.0.10", "owner": "h", "scope": "prod"});
    let generation = client.ok("ip.claim", claim)["generation"].as_u64().unwrap();
    let release = |mut more: Value| {
        more["network"] = json!("lan");
        more["address"] = json!("10.0.0.10");
        more["scope"] = json!("staging");
        more
    };
    for how in [json!({"force": true}), json!({"if_generation": generation}), json!({"if_generation": generation - 1})]
    {
        let data = refused(&mut client, "ip.release", release(how));
        assert_eq!((&data["kind"], &data["held_by"]["scope"]), (&json!("not_owner"), &json!("prod")), "{data}");
    }
    let renew = release(json!({"ttl_seconds": 60}));
    for (method, ask) in [("ip.renew", renew), ("ip.bind", release(json!({"claimant": "vm"})))] {
        let error = client.call(method, ask)["error"].clone();
        assert_eq!(error["data"]["kind"], "not_found", "{method}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("of scope `staging`") && message.contains("it is held in scope `prod`"), "{message}");
    }
    let mut meant = release(json!({"if_generation": generation}));
    meant["scope"] = json!("prod");
    assert_eq!(client.ok("ip.release", meant)["released"], json!(["10.0.0.10"]));
}

#[test]
fn who_does_not_hold_an_address_is_told_in_what_the_holder_differs_though_that_is_the_usual() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("ip.claim", json!({"network": "lan", "address": "10.0.0.10", "owner": "h"}));
    client
        .ok("ip.claim", json!({"network": "lan", "address": "10.0.0.11", "owner": "h", "scope": "prod", "slot": "9"}));
    client.ok("ip.claim", json!({"network": "lan", "address": "10.0.0.12", "owner": "d"}));
    client.ok("ip.decline", json!({"network": "lan", "address": "10.0.0.12", "owner": "d"}));
    for (method, ask, says) in [
        (
            "ip.release",
            json!({"owner": "h", "slot": "9"}),
            "10.0.0.10 is not held by `h` (slot `9`) but by `h` (slot `0`);",
        ),
        (
            "ip.release",
            json!({"owner": "h", "scope": "prod"}),
            "10.0.0.10 is not held by `h` of scope `prod` but by `h` of scope `default`;",
        ),
        ("ip.release", json!({"owner": "g"}), "10.0.0.10 is not held by `g` but by `h`;"),
        (
            "ip.release",
            json!({"owner": "g", "address": "10.0.0.11"}),
            "10.0.0.11 is not held by `g` of scope `default` but by `h` of scope `prod`;",
        ),
        (
            "ip.release",
            json!({"owner": "h", "scope": "prod", "address": "10.0.0.11", "slot": "0"}),
            "10.0.0.11 is not held by `h` of scope `prod` (slot `0`) but by `h` of scope `prod` (slot `9`);",
        ),
        (
            "ip.decline",
            json!({"owner": "d", "address": "10.0.0.12", "slot": "9"}),
            "10.0.0.12 is not held by `d` (slot `9`): it was declined by `d` (slot `0`),",
        ),
    ] {
        let mut ask = ask;
        ask["network"] = json!("lan");
        if ask.get("address").is_none() {
            ask["address"] = json!("10.0.0.10");
        }
        let error = client.call(method, ask)["error"].clone();
        assert_eq!(error["data"]["kind"], "not_owner", "{error}");
        assert!(error["message"].as_str().unwrap().starts_with(says), "{error}");
    }
}

#[test]
fn a_host_name_is_listed_however_it_is_written() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("ip.allocate", json!({"network": "lan", "owner": "a", "hostname": "Web-1.Example.org"}));
    client.ok("ip.allocate", json!({"network": "lan", "owner": "b", "hostname": "web-2.example.org"}));
    for name in ["web-1.example.org", "WEB-1.EXAMPLE.ORG", "Web-1.Example.org"] {
        let listed = client.ok("ip.list", json!({"hostname": name}));
        assert_eq!(listed["reservations"].as_array().unwrap().len(), 1, "{name}");
        assert_eq!(listed["reservations"][0]["hostname"], "Web-1.Example.org", "as it was given");
    }
}

#[test]
fn what_has_a_label_or_tag_whose_key_has_an_equals_sign_is_listed_by_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let labels = json!({"team=net": "core=1"});
    client.ok("ip.allocate", json!({"network": "lan", "owner": "a", "labels": labels}));
    client.ok("ip.allocate", json!({"network": "lan", "owner": "b", "labels": {"team": "net"}}));
    client.ok("network.create", json!({"name": "dmz", "tags": labels}));
    for (filter, count) in [("team=net", 2), ("team=net=core=1", 1), ("team=net=core", 0), ("team", 1)] {
        assert_eq!(client.ok("ip.list", json!({"label": filter, "count_only": true}))["count"], count, "{filter}");
    }
    let tagged = client.ok("network.list", json!({"tag": "team=net=core=1"}));
    assert_eq!(tagged["networks"].as_array().unwrap().len(), 1);
}
