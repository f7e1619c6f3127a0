//! Which of several errors is answered, and which member it names: what is wrong in the params alone comes before looking up
//! what they name.

use serde_json::{Value, json};

use crate::support::{Client, TestServer};

/// Kind and field of an error.
fn refused(client: &mut Client, method: &str, params: &Value) -> (String, String) {
    let answer = client.call(method, params.clone());
    let data = &answer["error"]["data"];
    let text = |member: &str| data[member].as_str().unwrap_or_default().to_owned();
    (text("kind"), text("field"))
}

fn of_nowhere(mut params: Value) -> Value {
    params["network"] = json!("nope");
    params
}

#[test]
fn what_is_wrong_in_params_alone_is_told_before_the_network_is_looked_up() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let claim = |address: &str, length: u64| json!({"owner": "a", "address": address, "prefix_length": length});
    let acquire = |ips: Value| json!({"owner": "a", "ips": ips});
    let modify = |set: Value| json!({"subnet": "10.0.0.0/24", "set": set});
    let listed = |entry: Value| json!({"set": {"subnets": [{"cidr": "10.0.0.0/24"}, entry]}});
    let id = "00000000-0000-4000-8000-000000000099";
    for (method, params, field) in [
        ("ip.allocate", json!({"owner": "a", "family": 4, "prefix_length": 33}), "prefix_length"),
        ("ip.claim", claim("10.0.0.9", 29), "prefix_length"),
        ("ip.claim", claim("10.0.0.8", 33), "prefix_length"),
        ("ip.claim", claim("fd00::", 129), "prefix_length"),
        ("ip.acquire", acquire(json!([{"slot": "x"}, {"slot": "x"}])), "ips[1].slot"),
        ("ip.acquire", acquire(json!([{"slot": "1"}, {}])), "ips[1].slot"),
        ("ip.acquire", acquire(json!([{"address": "10.0.0.5"}, {}, {"address": "10.0.0.5"}])), "ips[2].address"),
        ("ip.acquire", acquire(json!([{}, {"address": "10.0.0.5", "family": 6}])), "ips[1].family"),
        ("ip.acquire", acquire(json!([{"address": "10.0.0.5", "pool": "p"}])), "ips[0].pool"),
        ("ip.acquire", acquire(json!([{"address": "10.0.0.5", "prefix_length": 24}])), "ips[0].prefix_length"),
        ("ip.acquire", acquire(json!([{"family": 4, "prefix_length": 40}])), "ips[0].prefix_length"),
        ("subnet.add", json!({"cidr": "224.0.0.0/8"}), "cidr"),
        ("subnet.add", json!({"cidr": "0.0.0.0/0"}), "cidr"),
        ("subnet.add", json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.0"}), "gateway"),
        ("subnet.add", json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.255"}), "gateway"),
        ("subnet.add", json!({"cidr": "fd00::/64", "gateway": "fd00::"}), "gateway"),
        ("subnet.modify", modify(json!({"cidr": "224.0.0.0/8"})), "set.cidr"),
        ("subnet.modify", modify(json!({"cidr": "fd00::/64"})), "set.cidr"),
        ("subnet.modify", modify(json!({"gateway": "10.0.0.255"})), "set.gateway"),
        ("subnet.modify", modify(json!({"cidr": "10.0.0.0/23", "gateway": "10.0.1.255"})), "set.gateway"),
        ("network.update", listed(json!({})), "set.subnets[1].cidr"),
        ("network.update", listed(json!({"dhcp": true, "name": null})), "set.subnets[1].cidr"),
        ("network.update", listed(json!({"cidr": "10.0.0.0/24", "name": "b"})), "set.subnets[1]"),
        ("network.update", listed(json!({"cidr": "224.0.0.0/8"})), "set.subnets[1].cidr"),
        ("network.update", listed(json!({"cidr": "10.0.1.0/24", "gateway": "10.0.1.255"})), "set.subnets[1].gateway"),
        ("network.update", json!({"set": {"subnets": [{"id": id}, {"id": id, "name": "b"}]}}), "set.subnets[1]"),
    ] {
        let expected = ("invalid_argument".to_owned(), field.to_owned());
        assert_eq!(refused(&mut client, method, &of_nowhere(params.clone())), expected, "{method} {params}");
        let mut here = params.clone();
        here["network"] = json!("lan");
        assert_eq!(refused(&mut client, method, &here), expected, "{method} {here}");
    }
    // Whether these are right depends on the network.
    for (method, params) in [
        ("ip.allocate", json!({"owner": "a", "prefix_length": 33})),
        ("ip.claim", claim("10.0.0.8", 29)),
        ("ip.acquire", acquire(json!([{"slot": "1"}, {"slot": "0"}]))),
        ("subnet.add", json!({"cidr": "10.0.0.0/24", "gateway": "10.1.0.1"})),
        ("subnet.modify", modify(json!({"gateway": "10.1.0.1"}))),
        ("subnet.modify", json!({"subnet": "web", "set": {"gateway": "10.0.0.0"}})),
    ] {
        assert_eq!(refused(&mut client, method, &of_nowhere(params.clone())).0, "not_found", "{method} {params}");
    }
}

#[test]
fn a_time_that_ends_before_it_begins_is_no_time_of_a_history() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let ask = |from: &str, to: &str| json!({"from": from, "to": to});
    let (early, late) = ("2026-03-01T09:00:00.000Z", "2026-03-01T09:00:00.001Z");
    assert_eq!(
        refused(&mut client, "events.history", &ask(late, early)),
        ("invalid_argument".to_owned(), "to".to_owned())
    );
    for (from, to) in [(early, late), (early, early)] {
        client.ok("events.history", ask(from, to));
    }
}

#[test]
fn of_several_networks_the_first_member_that_is_wrong_is_named() {
    let server = TestServer::new();
    let mut client = server.client();
    let wrong = json!({"owner": "a", "ips": [
        {"network": "n", "address": "10.0.0.4"},
        {"network": "m", "address": "10.0.0.5", "family": 6},
        {"network": "n", "address": "10.0.0.4"},
    ]});
    assert_eq!(refused(&mut client, "ip.acquire", &wrong), ("invalid_argument".into(), "ips[1].family".into()));
    // One network by its name and its id: only the server that knows it can tell.
    let mut client = server.with_lan();
    let id = client.ok("network.get", json!({"network": "lan"}))["id"].clone();
    let twice = json!({"owner": "a", "ips": [{"network": "lan", "slot": "x"}, {"network": id, "slot": "x"}]});
    assert_eq!(refused(&mut client, "ip.acquire", &twice), ("invalid_argument".into(), "ips[1].slot".into()));
}

#[test]
fn a_name_that_is_taken_comes_before_all_but_what_cannot_be_meant() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let create = |more: Value| {
        let mut params = json!({"name": "lan"});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let dynamic = json!({"kind": "dynamic", "subnets": [{"cidr": "10.9.0.0/24"}]});
    let outside = json!({"subnets": [{"cidr": "10.9.0.0/24", "gateway": "10.8.0.1"}]});
    for more in [&dynamic, &outside] {
        assert_eq!(client.kind("network.create", create(more.clone())), "already_exists", "{more}");
    }
    let edge = json!({"kind": "dynamic", "subnets": [{"cidr": "10.9.0.0/24", "gateway": "10.9.0.0"}]});
    let expected = ("invalid_argument".to_owned(), "subnets[0].gateway".to_owned());
    assert_eq!(refused(&mut client, "network.create", &create(edge)), expected);
    let mut free = create(dynamic.clone());
    free["name"] = json!("free");
    assert_eq!(client.kind("network.create", free), "wrong_kind");
    let mut absent = create(dynamic);
    absent["if_absent"] = json!(true);
    let answer = client.call("network.create", absent);
    assert_eq!(answer["error"]["data"]["differs"], json!(["kind", "subnets"]), "{answer}");
}

#[test]
fn a_network_that_is_protected_or_remembered_tells_what_is_held_in_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.update", json!({"network": "lan", "set": {"protected": true}}));
    let standing = |client: &mut Client, method: &str, params: Value| {
        let answer = client.call(method, params);
        let data = &answer["error"]["data"];
        assert_eq!(data["kind"], "in_use", "{answer}");
        (data["count"].clone(), data["first"].clone())
    };
    let delete = json!({"network": "lan", "force": true});
    assert_eq!(standing(&mut client, "network.delete", delete.clone()), (json!(0), json!([])));
    client.allocate("a");
    client.allocate("b");
    let both = (json!(2), json!(["10.0.0.2", "10.0.0.3"]));
    assert_eq!(standing(&mut client, "network.delete", delete.clone()), both);
    client.ok("network.update", json!({"network": "lan", "set": {"protected": false}}));
    let id = client.ok("network.delete", delete)["id"].clone();
    for (method, params) in [
        ("ip.allocate", json!({"network": id, "owner": "c"})),
        ("network.update", json!({"network": id, "set": {"description": "x"}})),
        ("subnet.add", json!({"network": id, "cidr": "10.9.0.0/24"})),
    ] {
        assert_eq!(standing(&mut client, method, params), both, "{method}");
    }
}

#[test]
fn a_dry_purge_answers_what_the_purge_answers() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.allocate("a");
    let purge = |network: &Value, dry: bool| json!({"network": network, "purge": true, "dry_run": dry});
    let lan = json!("lan");
    assert_eq!(client.ok("network.delete", purge(&lan, true))["holding"], 0);
    let closed = client.ok("network.delete", json!({"network": "lan", "force": true}));
    assert_eq!(closed["holding"], 1, "the dry run took nothing");
    let dry = client.ok("network.delete", purge(&closed["id"], true));
    assert_eq!(client.ok("network.delete", purge(&closed["id"], false)), dry);
    assert_eq!(dry["holding"], 0);
}

#[test]
fn what_is_obsolete_is_not_listed_as_unbound() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let apply = |instances: Value| json!({"deployment": "shop", "instances": instances});
    let two = json!([{"id": "a", "networks": [{"network": "lan"}]}, {"id": "b", "networks": [{"network": "lan"}]}]);
    client.ok("deployment.apply", apply(two));
    client.ok("deployment.apply", apply(json!([{"id": "b", "networks": [{"network": "lan"}]}])));
    for params in [json!({}), json!({"network": "lan"})] {
        let scopes = client.ok("scope.list", params)["scopes"].clone();
        let counts = ["reservations", "obsolete", "unbound"].map(|count| scopes[0][count].clone());
        assert_eq!(counts, [2, 1, 1].map(Value::from), "{scopes}");
    }
    client.ok("deployment.apply", apply(json!([])));
    assert_eq!(client.ok("scope.list", json!({}))["scopes"][0]["unbound"], 0);
}

/// Entries with these keys and this value; null removes the key.
fn entries(keys: impl Iterator<Item = String>, value: &Value) -> Value {
    Value::Object(keys.map(|key| (key, value.clone())).collect())
}

#[test]
fn labels_and_tags_are_bounded_by_what_a_patch_leads_to() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let (old, new) = (|at: usize| format!("old{at}"), |at: usize| format!("new{at}"));
    let full = entries((0..32).map(old), &json!("x"));
    // All but two entries go, as many come, and one value changes: in total more than may be there at once.
    let mut patch = entries((0..30).map(old), &Value::Null);
    let more = entries((0..30).map(new).chain([old(30)]), &json!("y"));
    patch.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut then = more.clone();
    then[old(31)] = json!("x");
    let subnet = json!("10.0.0.0/24");
    let targets = [
        ("ip.update", json!({"network": "lan", "owner": "a"}), "labels"),
        ("network.update", json!({"network": "lan"}), "tags"),
        ("subnet.modify", json!({"network": "lan", "subnet": subnet}), "tags"),
    ];
    client.ok("ip.allocate", json!({"network": "lan", "owner": "a"}));
    for (method, target, member) in targets {
        let with = |set: &Value| {
            let mut params = target.clone();
            params["set"] = json!({member: set});
            params
        };
        client.ok(method, with(&full));
        assert_eq!(client.ok(method, with(&patch))[member], then, "{method}");
        let refused = client.call(method, with(&json!({"one more": "x"})));
        let data = &refused["error"]["data"];
        assert_eq!((&data["kind"], &data["field"]), (&json!("invalid_argument"), &json!(format!("set.{member}"))));
        assert_eq!(client.kind(method, with(&entries((0..65).map(new), &Value::Null))), "invalid_argument");
    }
}
