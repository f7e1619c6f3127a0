//! A request that is sent behind another one finds what that one did, under the names that are valid then.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Client, TestServer, line};

const MOMENT: Duration = Duration::from_millis(150);

/// A client that moves space from one network to another need not wait for the answer in between.
#[test]
fn space_that_a_request_gives_back_is_there_for_the_one_behind_it_whichever_network_asks() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = |cidr: &str| json!([{"cidr": cidr}]);
    let modify =
        |network: &str, subnet: &str, cidr: &str| json!({"network": network, "subnet": subnet, "set": {"cidr": cidr}});
    let mut steps: Vec<(&str, Value)> = Vec::new();
    for at in 0..10 {
        let (here, there) = (format!("here-{at}"), format!("there-{at}"));
        let [whole, low, high] = [".0.0/16", ".0.0/24", ".128.0/17"].map(|end| format!("10.{at}{end}"));
        let (cidrs, update) = (subnets(&high), "network.update");
        steps.extend([
            ("network.create", json!({"name": here, "subnets": subnets(&whole)})),
            ("network.create", json!({"name": there})),
            ("subnet.modify", modify(&here, &whole, &low)),
            ("subnet.add", json!({"network": there, "cidr": high})),
            ("subnet.remove", json!({"network": here, "subnet": low})),
            ("subnet.modify", modify(&there, &high, &whole)),
            (update, json!({"network": there, "set": {"subnets": []}})),
            (update, json!({"network": here, "set": {"subnets": cidrs}})),
            ("ip.allocate", json!({"network": here, "owner": "a"})),
            ("network.delete", json!({"network": here, "purge": true})),
            ("network.create", json!({"name": format!("new-{at}"), "subnets": cidrs})),
        ]);
    }
    client.raw(steps.iter().zip(0..).map(|((method, params), id)| line(id, method, params)).collect::<String>());
    for _ in &steps {
        let answer = client.answer();
        let (method, params) = &steps[answer["id"].as_u64().unwrap() as usize];
        assert!(answer["error"].is_null(), "{method} {params}: {answer}");
    }
    let call = |(method, params): (&str, Value)| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let batch = [
        call(("network.delete", json!({"network": "new-0"}))),
        call(("network.create", json!({"name": "newer", "subnets": subnets("10.0.128.0/17")}))),
    ];
    client.raw(format!("{}\n", json!(batch)));
    let answer = client.answer();
    assert!(answer.as_array().unwrap().iter().all(|member| member["error"].is_null()), "{answer}");
}

/// A closed network goes with its last reservation, whatever ends that. A client that creates the network in its place need
/// not wait for the answer.
#[test]
fn space_of_a_closed_network_is_there_for_what_stands_behind_the_end_of_its_last_reservation() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([{"cidr": "10.0.0.0/16"}]);
    let held = |network: &Value| json!({"network": network, "owner": "a"});
    for (at, method) in
        ["ip.release", "ip.unbind", "owner.release", "claimant.sweep"].into_iter().cycle().take(24).enumerate()
    {
        let (old, new) = (format!("old-{at}"), format!("new-{at}"));
        let id = client.ok("network.create", json!({"name": old, "subnets": subnets}))["id"].clone();
        let (mut ask, mut grant) = (held(&id), held(&id));
        match method {
            "ip.unbind" => ask["claimant"] = json!("vm"),
            "claimant.sweep" => {
                ask = json!({"network": id, "scope": "default", "alive": [], "grace_seconds": 0, "max_share": 1});
            }
            _ => {}
        }
        (grant["claimant"], grant["release_with_claimant"]) = (json!("vm"), json!(true));
        client.ok("ip.allocate", grant);
        client.ok("network.delete", json!({"network": id, "force": true}));
        if method == "claimant.sweep" {
            client.ok(method, ask.clone());
        }
        // In a slow store the second request arrives long before the first one is durable.
        server.store.hold();
        client.raw(line(1, method, &ask) + &line(2, "network.create", &json!({"name": new, "subnets": subnets})));
        assert!(client.silent_for(MOMENT / 3), "{method}");
        server.store.let_go();
        for _ in 0..2 {
            let answer = client.answer();
            assert!(answer["error"].is_null(), "{method}: {answer}");
        }
        client.ok("network.delete", json!({"network": new}));
    }
}

/// A MAC is unique over the networks of a realm. A client that moves one between networks need not wait for the answer in
/// between.
#[test]
fn a_mac_that_is_given_back_is_there_for_the_request_behind_it_whichever_network_asks() {
    let server = TestServer::new();
    let mut client = server.client();
    for (name, cidr) in [("one", "10.0.0.0/16"), ("two", "10.1.0.0/16"), ("three", "10.2.0.0/16")] {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": cidr}]}));
    }
    let mac = "52:54:00:12:34:56";
    let held = |network: &str| json!({"network": network, "owner": "a"});
    let with = |network: &str| json!({"network": network, "owner": "a", "mac": mac});
    let update = |network: &str, mac: Value| json!({"network": network, "owner": "a", "set": {"mac": mac}});
    client.ok("ip.allocate", with("one"));
    client.ok("ip.allocate", held("three"));
    let steps = [
        (("ip.release", held("one")), ("ip.allocate", with("two"))),
        (("ip.update", update("two", Value::Null)), ("ip.update", update("three", json!(mac)))),
        (
            ("ip.update", update("three", Value::Null)),
            ("ip.acquire", json!({"owner": "a", "mac": mac, "ips": [{"network": "one"}]})),
        ),
        (
            ("owner.release", json!({"owner": "a", "network": "one"})),
            ("ip.claim", json!({"network": "one", "owner": "b", "address": "10.0.0.9"})),
        ),
        (
            ("ip.release", held("two")),
            ("ip.claim", json!({"network": "two", "owner": "b", "address": "10.1.0.9", "mac": mac})),
        ),
        (("ip.decline", json!({"network": "two", "owner": "b", "address": "10.1.0.9"})), ("ip.allocate", with("one"))),
    ];
    for ((before, given_back), (behind, taken)) in steps {
        server.store.hold();
        client.raw(line(1, before, &given_back) + &line(2, behind, &taken));
        assert!(client.silent_for(MOMENT / 3), "{before}, {behind}");
        server.store.let_go();
        for _ in 0..2 {
            let answer = client.answer();
            assert!(answer["error"].is_null(), "{before} {given_back}, {behind} {taken}: {answer}");
        }
    }
}

/// Unrelated requests wait for nobody: all of these reach their networks before any of them is durable.
#[test]
fn requests_that_name_macs_which_nobody_uses_wait_for_no_release() {
    let server = TestServer::new();
    let mut client = server.client();
    for (name, cidr) in [("one", "10.0.0.0/16"), ("two", "10.1.0.0/16")] {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": cidr}]}));
    }
    for owner in 0..20 {
        client.ok(
            "ip.allocate",
            json!({"network": "one", "owner": format!("old-{owner}"), "mac": format!("52:54:00:00:00:{owner:02x}")}),
        );
    }
    let before = server.store.commits();
    server.store.hold();
    let asks = (0..20).flat_map(|owner| {
        let release = json!({"network": "one", "owner": format!("old-{owner}")});
        let taken =
            json!({"network": "two", "owner": format!("new-{owner}"), "mac": format!("52:54:00:00:01:{owner:02x}")});
        [("ip.release", release), ("ip.allocate", taken)]
    });
    client.raw(asks.zip(0..).map(|((method, params), id)| line(id, method, &params)).collect::<String>());
    assert!(client.waits_still(MOMENT));
    server.store.let_go();
    for _ in 0..40 {
        let answer = client.answer();
        assert!(answer["error"].is_null(), "{answer}");
    }
    let commits = server.store.commits() - before;
    assert!(commits <= 8, "{commits} commits: they waited for each other");
}

/// A network keeps its name until it is renamed; a request that waits for that must not use the old name.
#[test]
fn what_stands_behind_a_rename_is_done_to_nothing_by_the_old_name() {
    let server = TestServer::new();
    let mut client = server.client();
    for (name, cidr) in [("n", "10.0.0.0/24"), ("m", "10.1.0.0/24")] {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": cidr}]}));
    }
    client.ok("ip.allocate", json!({"network": "n", "owner": "a", "slot": "old"}));
    client.ok("ip.allocate", json!({"network": "n", "owner": "gone"}));
    server.store.hold();
    client.send("network.update", json!({"network": "n", "set": {"name": "renamed"}}));
    assert!(client.waits_still(MOMENT));
    let wish = |network: &str| json!({"network": network});
    let instance = json!({"id": "w", "networks": [wish("m"), wish("n")]});
    let asks = [
        ("ip.acquire", json!({"owner": "a", "ips": [wish("n")]})),
        ("ip.acquire", json!({"owner": "a", "ips": [wish("m"), wish("n")]})),
        ("ip.acquire", json!({"owner": "a", "ips": [wish("m"), wish("n")], "dry_run": true})),
        ("ip.acquire", json!({"owner": "a", "ips": [wish("m")], "network": "n", "exact": true})),
        ("deployment.plan", json!({"deployment": "shop", "instances": [instance]})),
        ("deployment.apply", json!({"deployment": "shop", "instances": [instance]})),
        ("owner.release", json!({"owner": "gone", "network": "n"})),
        ("ip.bind", json!({"network": "n", "owner": "gone", "address": "10.0.0.2", "claimant": "vm"})),
    ];
    let mut others: Vec<Client> = asks.iter().map(|_| server.client()).collect();
    for (other, (method, ask)) in others.iter_mut().zip(&asks) {
        other.send(method, ask.clone());
        assert!(other.waits_still(Duration::from_millis(50)), "{method}");
    }
    server.store.let_go();
    assert_eq!(client.answer()["result"]["name"], "renamed");
    for (other, (method, ask)) in others.iter_mut().zip(&asks) {
        // The same as a client is told that asks once more.
        let (error, again) = (other.answer()["error"].clone(), client.call(method, ask.clone())["error"].clone());
        assert_eq!(error["data"]["kind"], "not_found", "{method} {ask}: {error}");
        assert_eq!(error, again, "{method} {ask}");
    }
    let listed = client.ok("ip.list", json!({}))["reservations"].clone();
    let held: Vec<&Value> = listed.as_array().unwrap().iter().map(|held| &held["owner"]).collect();
    assert_eq!(held, ["a", "gone"], "{listed}");
}

/// A request may name one network by its name in one item and by its id in another: a rename takes only the name away.
#[test]
fn of_a_network_named_in_two_ways_the_item_is_told_that_names_it_by_the_name_that_it_lost() {
    for (method, change, told) in [
        ("network.update", json!({"network": "n", "set": {"name": "renamed"}}), [1, 2, 0]),
        ("network.delete", json!({"network": "n"}), [0, 1, 0]),
    ] {
        let server = TestServer::new();
        let mut client = server.client();
        let create = |name: &str, cidr: &str| json!({"name": name, "subnets": [{"cidr": cidr}]});
        let id = client.ok("network.create", create("n", "10.0.0.0/24"))["id"].clone();
        client.ok("network.create", create("m", "10.1.0.0/24"));
        let [n, by_id, m] = [json!("n"), id, json!("m")].map(|network| json!({"network": network}));
        let asks = [json!([by_id, n]), json!([m, by_id, n]), json!([n, by_id, m])];
        let mut others: Vec<Client> = asks.iter().map(|_| server.client()).collect();
        server.store.hold();
        client.send(method, change);
        assert!(client.waits_still(MOMENT));
        for (other, ips) in others.iter_mut().zip(&asks) {
            other.send("ip.acquire", json!({"owner": "a", "ips": ips}));
            assert!(other.silent_for(MOMENT / 3), "{ips}");
        }
        server.store.let_go();
        client.answer();
        for ((other, ips), told) in others.iter_mut().zip(&asks).zip(told) {
            let error = other.answer()["error"].clone();
            let data = &error["data"];
            assert_eq!((&data["kind"], &data["index"]), (&json!("not_found"), &json!(told)), "{ips}: {error}");
            // The same as a client is told that asks once more.
            let again = client.call("ip.acquire", json!({"owner": "a", "ips": ips}));
            assert_eq!(data["index"], again["error"]["data"]["index"], "{ips}: {error}, {again}");
        }
    }
}

#[test]
fn a_network_that_is_only_emptied_and_gone_meanwhile_is_named_and_no_item_is() {
    let server = TestServer::new();
    let mut client = server.client();
    for (name, cidr) in [("n", "10.0.0.0/24"), ("m", "10.1.0.0/24")] {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": cidr}]}));
    }
    let mut other = server.client();
    server.store.hold();
    client.send("network.delete", json!({"network": "n"}));
    assert!(client.waits_still(MOMENT));
    other.send("ip.acquire", json!({"owner": "a", "ips": [{"network": "m"}], "network": "n", "exact": true}));
    assert!(other.waits_still(MOMENT));
    server.store.let_go();
    client.answer();
    let error = other.answer()["error"].clone();
    let said = error["message"].as_str().unwrap();
    assert!(error["data"]["kind"] == "not_found" && said.starts_with("network `n`"), "{error}");
    assert_eq!(error["data"].get("index"), None, "{error}");
}
