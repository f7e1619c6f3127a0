//! What a deployment is refused, in which order, and in which words.

use serde_json::{Value, json};

use super::{Deployment, automatic, is, named, slots};
use crate::support::{Client, TestServer};

fn kind(error: &Value) -> &str {
    error["data"]["kind"].as_str().unwrap()
}

fn limit(client: &mut Client, limits: Value) {
    client.ok("network.update", json!({"network": "lan", "set": {"limits": limits}}));
}

#[test]
fn what_becomes_current_again_counts_against_the_limits() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    limit(&mut client, json!({"per_scope": 2}));
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["a", "b"]));
    shop.commit(&first);
    // `b` is released, and `c` takes its place within the limit.
    shop.apply(&automatic(&["a", "c"]));
    let back = shop.refused(&automatic(&["a", "b", "c"]));
    assert_eq!((kind(&back), &back["data"]["instance"]), ("quota_exceeded", &json!("b")));
    assert_eq!(slots(&shop.apply(&automatic(&["a", "b"]))), [is("kept", "2"), is("kept", "3")]);
}

#[test]
fn wishes_that_cannot_be_read_name_their_instance() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let good = json!({"id": "a", "networks": [{"network": "lan"}]});
    let of_b = |network: Value| json!([good, {"id": "b", "networks": [network]}]);
    for (instances, groups, field, instance) in [
        (of_b(json!({"network": "lan", "address": "10.0.0.300"})), json!([]), "instances[1].networks[0].address", "b"),
        (of_b(json!({"network": "lan", "adress": "10.0.0.3"})), json!([]), "instances[1].networks[0].adress", "b"),
        (of_b(json!({"slot": "1"})), json!([]), "instances[1].networks[0].network", "b"),
        (
            of_b(json!({"network": "lan", "address": "10.0.0.3", "family": "ipv4"})),
            json!([]),
            "instances[1].networks[0].family",
            "b",
        ),
        (json!([good, good]), json!([]), "instances[1].id", "a"),
        (
            json!([]),
            json!([{"name": "g", "instances": ["g/0", "g/0"], "networks": []}]),
            "groups[0].instances[1]",
            "g/0",
        ),
    ] {
        let ask = json!({"deployment": "shop", "instances": instances, "groups": groups});
        for method in ["deployment.plan", "deployment.apply"] {
            let data = client.call(method, ask.clone())["error"]["data"].take();
            assert_eq!((&data["field"], &data["instance"]), (&json!(field), &json!(instance)), "{data}");
        }
    }
    // An instance without a readable id is named by its place.
    let ask = json!({"deployment": "shop", "instances": [{"id": 7, "networks": []}]});
    let data = client.call("deployment.apply", ask)["error"]["data"].take();
    assert_eq!((&data["field"], &data["instance"]), (&json!("instances[0].id"), &Value::Null), "{data}");
}

#[test]
fn what_is_promised_counts_against_the_limits_of_who_gets_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    limit(&mut client, json!({"per_scope": 2, "per_owner": 1}));
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.20")]));
    shop.commit(&first);
    // Two slots may swap although the limit is reached; a third holder is one too many.
    let more = shop.refused(&named(&[("c", "10.0.0.10"), ("d", "10.0.0.20"), ("e", "10.0.0.30")]));
    assert_eq!(kind(&more), "quota_exceeded", "{more}");
    let swap = shop.apply(&named(&[("a", "10.0.0.20"), ("b", "10.0.0.10")]));
    assert_eq!(slots(&swap), [is("promised", "20"), is("promised", "10")]);
    shop.commit(&swap);
    let two = json!([{"id": "c", "networks": [
        {"network": "lan", "address": "10.0.0.10"}, {"network": "lan", "slot": "1", "address": "10.0.0.20"}]}]);
    assert_eq!(kind(&shop.refused(&two)), "quota_exceeded", "of one owner");
}

#[test]
fn nothing_is_promised_that_could_not_be_claimed() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("pool.add", json!({"network": "lan", "range": "10.0.0.0/24", "if_absent": true}));
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.20")]));
    shop.commit(&first);
    let swap = named(&[("a", "10.0.0.20"), ("b", "10.0.0.10")]);
    let reserved = json!({"network": "lan", "range": "10.0.0.20", "note": "the printer"});
    shop.client.ok("reserved.add", reserved.clone());
    let refused = shop.refused(&swap);
    assert_eq!((kind(&refused), &refused["data"]["instance"]), ("reserved", &json!("a")), "{refused}");
    // A deployment has no `force`, so the message must not advise it.
    let said = refused["message"].as_str().unwrap();
    assert!(!said.contains("force") && said.contains("the printer") && said.contains("reserved.remove"), "{said}");
    shop.client.ok("reserved.remove", json!({"network": "lan", "range": "10.0.0.20"}));
    shop.client.ok("network.update", json!({"network": "lan", "set": {"static_only": true}}));
    assert_eq!(kind(&shop.refused(&swap)), "wrong_kind");
    shop.client.ok("network.update", json!({"network": "lan", "set": {"static_only": false}}));
    let draining = |is: bool| json!({"network": "lan", "subnet": "10.0.0.0/24", "set": {"draining": is}});
    shop.client.ok("subnet.modify", draining(true));
    assert_eq!(kind(&shop.refused(&swap)), "reserved");
    shop.client.ok("subnet.modify", draining(false));
    assert_eq!(slots(&shop.apply(&swap)), [is("promised", "20"), is("promised", "10")]);
}

#[test]
fn a_static_address_in_a_subnet_that_drains_is_not_kept() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10")]));
    shop.commit(&first);
    shop.client.ok("subnet.add", json!({"network": "lan", "cidr": "10.0.9.0/24"}));
    shop.client.ok("subnet.modify", json!({"network": "lan", "subnet": "10.0.0.0/24", "set": {"draining": true}}));
    let refused = shop.refused(&named(&[("a", "10.0.0.10")]));
    assert_eq!((kind(&refused), &refused["data"]["instance"]), ("reserved", &json!("a")), "{refused}");
    let moved = shop.apply(&named(&[("a", "10.0.9.10")]));
    assert_eq!(shop.commit(&moved), ["10.0.0.10"]);
    shop.client.ok("subnet.remove", json!({"network": "lan", "subnet": "10.0.0.0/24"}));
}

/// Like every other `already_exists`.
#[test]
fn two_wishes_for_one_slot_tell_what_is_there_and_in_what_they_differ() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    shop.apply(&named(&[("held", "10.0.0.7")]));
    let two = |id: &str, one: Value, other: Value| json!([{"id": id, "networks": [one, other]}]);
    let wish = |member: &str, value: Value| json!({"network": "lan", member: value});
    for (wishes, address, differs) in [
        (
            two("a", wish("address", json!("10.0.0.5")), wish("address", json!("10.0.0.6"))),
            "10.0.0.5",
            json!(["address"]),
        ),
        (two("held", wish("family", json!(4)), wish("slot", json!("0"))), "10.0.0.7", json!(["family"])),
        (two("held", wish("slot", json!("0")), wish("slot", json!("0"))), "10.0.0.7", Value::Null),
    ] {
        let error = shop.refused(&wishes);
        let data = &error["data"];
        assert_eq!(
            (kind(&error), &data["address"], &data["network"]),
            ("already_exists", &json!(address), &json!("lan"))
        );
        assert_eq!(data["differs"], differs, "{error}");
    }
}

#[test]
fn of_several_refusals_the_first_in_the_order_of_the_page_is_answered() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "zoned", "subnets": [{"cidr": "10.2.0.0/24", "zones": ["z1"]}]}));
    client.ok("network.create", json!({"name": "old", "subnets": [{"cidr": "10.3.0.0/24"}]}));
    client.ok("ip.allocate", json!({"network": "old", "owner": "x"}));
    let old = client.ok("network.get", json!({"network": "old"}))["id"].clone();
    client.ok("network.delete", json!({"network": "old", "force": true}));
    client.ok("network.create", json!({"name": "cloud", "kind": "dynamic"}));
    let twice = json!({"id": "a", "networks": [{"network": "lan"}, {"network": "lan"}]});
    let one = |id: &str, network: Value| json!({"id": id, "networks": [network]});
    let no_pool = one("b", json!({"network": "lan", "pool": "nowhere"}));
    let static_of = |network: &str, address: &str| one("c", json!({"network": network, "address": address}));
    let group = json!([{"name": "g", "instances": ["g/0"], "zones": ["z2"],
        "networks": [{"network": "zoned", "static_ips": ["10.2.0.5"]}]}]);
    for (instances, groups, expected) in [
        (json!([twice, no_pool]), json!([]), "not_found"),
        (json!([twice, static_of("lan", "10.9.9.9")]), json!([]), "out_of_range"),
        (json!([one("a", json!({"network": "nowhere"}))]), group.clone(), "invalid_argument"),
        (json!([no_pool]), group, "invalid_argument"),
        (json!([{"id": "a", "networks": [{"network": old, "subnet": "10.77.0.0/24"}]}]), json!([]), "not_found"),
        (json!([{"id": "a", "networks": [{"network": old, "address": "10.77.0.1"}]}]), json!([]), "out_of_range"),
        (json!([{"id": "a", "networks": [{"network": old}]}, no_pool]), json!([]), "not_found"),
        (json!([{"id": "a", "networks": [{"network": old}]}, static_of("cloud", "10.0.0.5")]), json!([]), "wrong_kind"),
    ] {
        let ask = json!({"deployment": "shop", "instances": instances, "groups": groups});
        for method in ["deployment.plan", "deployment.apply"] {
            assert_eq!(client.kind(method, ask.clone()), expected, "{ask}");
        }
    }
}

#[test]
fn of_equal_refusals_the_first_in_the_request_is_answered_whichever_networks_they_are_of() {
    let server = TestServer::new();
    let mut client = server.client();
    for at in 0..8 {
        client
            .ok("network.create", json!({"name": format!("n{at}"), "subnets": [{"cidr": format!("10.{at}.0.0/24")}]}));
    }
    let networks: Vec<Value> =
        (0..8).map(|at| json!({"network": format!("n{at}"), "pool": format!("p{at}")})).collect();
    let refused = Deployment::of(&mut client, "shop").refused(&json!([{"id": "a", "networks": networks}]));
    assert_eq!(kind(&refused), "not_found");
    assert!(refused["message"].as_str().unwrap().contains("`p0`"), "{refused}");
}

#[test]
fn a_list_of_static_addresses_is_named_by_its_place() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let networks = json!([{"network": "lan"}, {"network": "lan", "slot": "1", "static_ips": ["10.0.0.5"]}]);
    let groups = json!([{"name": "one", "instances": [], "networks": []},
        {"name": "two", "instances": ["a", "b"], "networks": networks}]);
    let refused = client.call("deployment.apply", json!({"deployment": "shop", "groups": groups}));
    assert_eq!(refused["error"]["data"]["kind"], "invalid_argument", "{refused}");
    assert_eq!(refused["error"]["data"]["field"], "groups[1].networks[1].static_ips");
    // Too few of the addresses serve the zone.
    client.ok("network.create", json!({"name": "zoned", "subnets": [{"cidr": "10.2.0.0/24", "zones": ["z1"]}]}));
    let networks = json!([{"network": "lan"}, {"network": "zoned", "static_ips": ["10.2.0.5"]}]);
    let groups = json!([{"name": "g", "instances": ["c"], "zones": ["z2"], "networks": networks}]);
    let refused = client.call("deployment.apply", json!({"deployment": "shop", "groups": groups}));
    assert_eq!(refused["error"]["data"]["field"], "groups[0].networks[1].static_ips", "{refused}");
}

/// Whoever runs the plan regards it as over and does not look for the address. A client that meets the address is told what
/// ends it.
#[test]
fn who_is_refused_because_of_something_obsolete_is_told_so_and_what_ends_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["a", "b"]));
    shop.commit(&first);
    let without = shop.apply(&automatic(&["a"]));
    let fate = format!("obsolete since plan {} of deployment `shop`, whose commit lets it go", without["plan"]);
    let mut told = |method: &str, params: Value, kind: &str, tail: &str| {
        let error = client.call(method, params)["error"].clone();
        assert_eq!(error["data"]["kind"], kind, "{method}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.ends_with(tail), "{method}: {message}");
        error["data"].clone()
    };
    let claim = |address: &str| json!({"network": "lan", "address": address, "owner": "x"});
    let tail = format!(
        "10.0.0.3 of network `lan` is held by `b` of scope `shop`, {fate}; ask for another address, or wait for that"
    );
    let data = told("ip.claim", claim("10.0.0.3"), "already_in_use", &tail);
    assert_eq!((&data["address"], &data["held_by"]["owner"]), (&json!("10.0.0.3"), &json!("b")));
    told(
        "ip.claim",
        claim("10.0.0.2"),
        "already_in_use",
        "`a` of scope `shop`; ask for another address, or have it released",
    );
    let remove = json!({"network": "lan", "subnet": "10.0.0.0/24"});
    let tail = format!(
        "release them first: of these 10.0.0.3 is {fate}; ip.release finds an obsolete reservation by its address alone"
    );
    let data = told("subnet.remove", remove.clone(), "in_use", &tail);
    assert_eq!((&data["count"], &data["first"]), (&json!(2), &json!(["10.0.0.2", "10.0.0.3"])));
    let own = |owner: &str| json!({"network": "lan", "scope": "shop", "owner": owner, "strict": true});
    told("ip.release", own("b"), "not_found", &format!("10.0.0.3, which it held, is {fate}; name it by its address"));
    told("ip.release", own("c"), "not_found", "ip.list shows what is held");
    client.ok("ip.release", own("a"));
    let mut told =
        |method: &str, params: Value| client.call(method, params)["error"]["message"].as_str().unwrap().to_owned();
    for (method, params) in [("subnet.remove", remove), ("network.delete", json!({"network": "lan"}))] {
        let said = told(method, params);
        assert!(
            said.contains(&format!("1 reservation (10.0.0.3); release it first: it is {fate}; ip.release finds")),
            "{said}"
        );
    }
    client.ok(
        "ip.release",
        json!({"network": "lan", "scope": "shop", "owner": "b", "address": "10.0.0.3", "strict": true}),
    );
}

#[test]
fn what_a_plan_promises_is_told_with_whom_it_goes_to() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10")]));
    shop.commit(&first);
    shop.apply(&named(&[("b", "10.0.0.10")]));
    let claim = json!({"network": "lan", "address": "10.0.0.10", "owner": "x"});
    let error = client.call("ip.claim", claim)["error"].clone();
    let message = error["message"].as_str().unwrap();
    assert!(message.ends_with("whose commit gives it to instance `b`; ask for another address"), "{message}");
}
