//! What a refusal says about the obstacle is true, and what it advises can be done.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::faulty::Fault;
use crate::support::{Client, TestServer};

/// The error of a refused request.
#[track_caller]
fn error(client: &mut Client, method: &str, params: Value) -> Value {
    let answer = client.call(method, params);
    assert!(answer["error"]["data"]["kind"].is_string(), "{answer}");
    answer["error"].clone()
}

fn message(error: &Value) -> &str {
    error["message"].as_str().unwrap()
}

/// Another network may have its name, which otherwise names nothing.
#[test]
fn an_overlap_with_a_network_that_is_remembered_names_it_by_its_id_and_says_how_its_space_comes_free() {
    let server = TestServer::new();
    let mut client = server.client();
    let lan = |name: &str| json!({"name": name, "subnets": [{"cidr": "10.8.0.0/24"}]});
    let id = client.ok("network.create", lan("gone"))["id"].clone();
    client.ok("ip.allocate", json!({"network": "gone", "owner": "w"}));
    client.ok("network.delete", json!({"network": "gone", "force": true}));
    let with = json!({"network": id, "cidr": "10.8.0.0/24"});
    for name in ["gone", "other"] {
        let refused = error(&mut client, "network.create", lan(name));
        assert_eq!(refused["data"]["with"], with, "{refused}");
        let begins = format!(
            "10.8.0.0/24 overlaps 10.8.0.0/24 of network {} (deleted; it was called `gone`), which is remembered as long as \
             anything \
             is held in it",
            id.as_str().unwrap()
        );
        assert!(message(&refused).starts_with(&begins) && message(&refused).contains("network.restore"), "{refused}");
    }
    let itself = error(&mut client, "subnet.add", json!({"network": id, "cidr": "10.8.0.0/25"}));
    assert_eq!(itself["data"]["with"], with, "{itself}");
    // An existing network with that name has nothing to do with it.
    client.ok("network.create", json!({"name": "gone", "subnets": [{"cidr": "10.9.0.0/24"}]}));
    let refused = error(&mut client, "subnet.add", json!({"network": "gone", "cidr": "10.8.0.0/25"}));
    assert_eq!(refused["data"]["with"], with, "{refused}");
    let living = error(&mut client, "network.create", json!({"name": "x", "subnets": [{"cidr": "10.9.0.0/25"}]}));
    assert_eq!(living["data"]["with"], json!({"network": "gone", "cidr": "10.9.0.0/24"}), "{living}");
    assert!(!message(&living).contains("deleted"), "{living}");
    // As advised: the id shows what is held, and once that is released the space is free.
    assert_eq!(client.ok("ip.list", json!({"network": id}))["reservations"][0]["owner"], "w");
    client.ok("ip.release", json!({"network": id, "owner": "w"}));
    client.ok("network.create", lan("other"));
}

/// A network that has only recorded its addresses guards them as well.
#[test]
fn what_a_dynamic_network_recorded_before_it_was_deleted_is_said_to_be_of_that_one() {
    let server = TestServer::new();
    let mut client = server.client();
    let id = client.ok("network.create", json!({"name": "cloud", "kind": "dynamic"}))["id"].clone();
    client.ok("ip.bind", json!({"network": "cloud", "owner": "w", "address": "172.16.0.5", "claimant": "vm"}));
    client.ok("network.delete", json!({"network": "cloud", "force": true}));
    let refused = error(&mut client, "network.create", json!({"name": "lan", "subnets": [{"cidr": "172.16.0.0/24"}]}));
    assert_eq!(refused["data"]["with"], json!({"network": id, "cidr": "172.16.0.5/32"}), "{refused}");
    assert!(message(&refused).contains("(deleted; it was called `cloud`)"), "{refused}");
}

/// A /64 is an IPv6 block, whether that is said or not, so pools of IPv4 are not mentioned.
#[test]
fn of_blocks_that_only_ipv6_has_no_pool_of_ipv4_is_said_to_be_in_pieces() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "v4", "subnets": [{"cidr": "10.0.0.0/24"}]}));
    let both = json!([{"cidr": "10.1.0.0/24"}, {"cidr": "2001:db8::/64"}]);
    client.ok("network.create", json!({"name": "both", "subnets": both}));
    client.ok("ip.claim", json!({"network": "both", "owner": "a", "address": "2001:db8::1"}));
    for (network, size) in [("v4", "0"), ("both", "18446744073709551616")] {
        let ask = json!({"network": network, "owner": "n", "prefix_length": 64});
        let refused = error(&mut client, "ip.allocate", ask);
        let (data, message) = (&refused["data"], message(&refused));
        assert_eq!((&data["kind"], &data["size"]), (&json!("not_enough_capacity"), &json!(size)), "{refused}");
        let pools = data["pools"].as_array().unwrap();
        assert!(pools.iter().all(|pool| pool["range"].as_str().unwrap().starts_with("2001:")), "{refused}");
        assert!(pools.is_empty() == (network == "v4") && message.contains("a /64 block"), "{refused}");
    }
    let none = error(&mut client, "ip.allocate", json!({"network": "v4", "owner": "n", "prefix_length": 64}));
    let why = "network `v4` has no free block of that size: a /64 block: no dynamic pool meets all of these conditions; leave \
     one out, or add a pool";
    assert_eq!(message(&none), why);
}

#[test]
fn a_block_over_a_reserved_address_is_refused_for_an_address_that_is_reserved() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.10.0.0/16"}]}));
    client.ok("reserved.add", json!({"network": "lan", "range": "10.10.4.7", "note": "printer"}));
    client.ok("reserved.add", json!({"network": "lan", "range": "10.10.8.0/22"}));
    let claim = |address: &str, length: u64| json!({"network": "lan", "owner": "x", "address": address, "prefix_length": length});
    for (ask, address, why) in [
        (
            claim("10.10.4.0", 24),
            "10.10.4.7",
            "10.10.4.7 is inside the reserved range 10.10.4.7 (printer), and in block 10.10.4.0/24",
        ),
        (
            claim("10.10.9.0", 24),
            "10.10.9.0",
            "10.10.9.0 is inside the reserved range 10.10.8.0/22, and in block 10.10.9.0/24",
        ),
        (claim("10.10.4.7", 32), "10.10.4.7", "10.10.4.7 is inside the reserved range 10.10.4.7 (printer)"),
    ] {
        let refused = error(&mut client, "ip.claim", ask);
        assert_eq!(refused["data"]["address"], address, "{refused}");
        assert_eq!(message(&refused), format!("{why}; use `force`, or remove the range with reserved.remove"));
        let state = client.ok("ip.get", json!({"network": "lan", "address": address}))["state"].clone();
        assert_eq!(state, "reserved", "{address}");
    }
}

/// Slots go by position, so a client that omits the first of two addresses asks for the second in the slot of the first.
#[test]
fn an_address_of_ones_own_in_another_slot_is_said_to_be_ones_own_and_kept_where_its_slot_is_named() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let update = |ips: Value| json!({"network": "lan", "owner": "lb", "ips": ips, "exact": true});
    client.ok("ip.acquire", update(json!([{"address": "10.0.0.10"}, {"address": "10.0.0.11"}])));
    let refused = error(&mut client, "ip.acquire", update(json!([{"address": "10.0.0.11"}])));
    let why = "ips[0]: 10.0.0.11 of network `lan` is held by `lb` itself, in slot `1`, and is asked for in slot `0`; name slot `1` \
               for it, move it with ip.transfer, or release it first";
    assert_eq!((message(&refused), &refused["data"]["kind"]), (why, &json!("already_in_use")));
    assert_eq!(refused["data"]["held_by"]["slot"], "1", "{refused}");
    // As advised.
    let done = client.ok("ip.acquire", update(json!([{"address": "10.0.0.11", "slot": "1"}])));
    assert_eq!(done["reservations"][0]["created"], false, "{done}");
    assert_eq!(done["released"], json!([{"network": "lan", "address": "10.0.0.10"}]));
    let to = json!({"owner": "lb", "slot": "0"});
    client.ok("ip.transfer", json!({"network": "lan", "address": "10.0.0.11", "owner": "lb", "to": to}));
    client.ok("ip.acquire", update(json!([{"address": "10.0.0.11"}])));
    // An address of another owner is said to be just that.
    client.ok("ip.claim", json!({"network": "lan", "address": "10.0.0.12", "owner": "lb", "scope": "other"}));
    let others = error(&mut client, "ip.claim", json!({"network": "lan", "address": "10.0.0.12", "owner": "lb"}));
    assert!(message(&others).contains("is held by `lb` of scope `other`; ask for another address"), "{others}");
}

#[test]
fn a_network_that_exact_names_and_of_which_nothing_is_wished_is_emptied_in_the_same_commit() {
    let server = TestServer::new();
    let mut client = server.client();
    for (at, name) in ["a", "b", "c"].iter().enumerate() {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": format!("10.{at}.0.0/24")}]}));
        client.ok("ip.allocate", json!({"network": name, "owner": "n"}));
    }
    client.ok("ip.allocate", json!({"network": "a", "owner": "m"}));
    let ask = |exact: bool| json!({"owner": "n", "network": "a", "ips": [{"network": "b"}], "exact": exact});
    client.ok("ip.acquire", ask(false));
    let count = |client: &mut Client, owner: &str| client.ok("ip.list", json!({"owner": owner, "count_only": true}));
    assert_eq!(count(&mut client, "n")["count"], 3);
    let done = client.ok("ip.acquire", ask(true));
    assert_eq!(done["released"], json!([{"network": "a", "address": "10.0.0.1"}]), "{done}");
    assert_eq!(done["reservations"][0]["address"], "10.1.0.1", "{done}");
    assert_eq!(
        (count(&mut client, "n")["count"].clone(), count(&mut client, "m")["count"].clone()),
        (json!(2), json!(1))
    );
    // A repeat has nothing more to release, and an unknown network is not ignored.
    assert_eq!(client.ok("ip.acquire", ask(true))["released"], json!([]));
    let nowhere = json!({"owner": "n", "network": "z", "ips": [{"network": "b"}], "exact": true});
    let refused = error(&mut client, "ip.acquire", nowhere);
    assert_eq!(refused["data"]["kind"], "not_found", "{refused}");
    assert!(message(&refused).starts_with("network `z` does not exist"), "{refused}");
}

/// An address or an owner names what is held; both together are what a dynamic network records.
#[test]
fn what_is_to_be_recorded_is_asked_for_with_address_and_owner() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "cloud", "kind": "dynamic"}));
    let none = error(&mut client, "ip.allocate", json!({"network": "cloud", "owner": "w"}));
    assert!(
        message(&none).ends_with("record what it picked with ip.bind, by `address` and `owner` together"),
        "{none}"
    );
    let bind = |ask: Value| {
        let mut ask = ask;
        (ask["network"], ask["claimant"]) = (json!("cloud"), json!("vm"));
        ask
    };
    let both = json!({"address": "172.16.0.5", "owner": "w"});
    for part in [
        json!({"owner": "w"}),
        json!({"address": "172.16.0.5"}),
        json!({"address": "172.16.0.5", "owner": "w", "if_generation": 7}),
    ] {
        let refused = error(&mut client, "ip.bind", bind(part));
        let how =
            "to record what the infrastructure picked, give `address` and `owner` together, and no `if_generation`";
        assert!(refused["data"]["kind"] == "not_found" && message(&refused).contains(how), "{refused}");
    }
    assert_eq!(client.ok("ip.bind", bind(both))["claimant"], "vm");
    // Other things that do not exist need no recording.
    let unbind = error(&mut client, "ip.unbind", bind(json!({"owner": "x"})));
    assert!(message(&unbind).contains("ip.list shows what is held"), "{unbind}");
}

#[test]
fn a_network_whose_name_was_taken_since_says_what_brings_it_back_and_not_another_name() {
    let server = TestServer::new();
    let mut client = server.client();
    let id = client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]}))["id"].clone();
    client.ok("ip.allocate", json!({"network": "lan", "owner": "w"}));
    client.ok("network.delete", json!({"network": "lan", "force": true}));
    client.ok("network.create", json!({"name": "lan"}));
    let refused = error(&mut client, "network.restore", json!({"network": id}));
    assert_eq!(refused["data"]["kind"], "already_exists", "{refused}");
    assert!(message(&refused).starts_with("network `lan` already exists"), "{refused}");
    assert!(!message(&refused).contains("name another one"), "{refused}");
    assert!(message(&refused).contains("network.update, or delete it, then restore"), "{refused}");
    client.ok("network.update", json!({"network": "lan", "set": {"name": "new"}}));
    assert_eq!(client.ok("network.restore", json!({"network": id}))["name"], "lan");
}

#[test]
fn an_overlap_with_a_network_that_is_purged_offers_nobody_to_bring_that_back() {
    let server = TestServer::giving_up();
    let mut client = server.client();
    let lan = |name: &str| json!({"name": name, "subnets": [{"cidr": "10.8.0.0/24"}]});
    let id = client.ok("network.create", lan("gone"))["id"].clone();
    client.ok("ip.allocate", json!({"network": "gone", "owner": "w"}));
    // The network is closed, and its holdings are being released.
    server.store.next([Fault::None, Fault::Hang]);
    client.send("network.delete", json!({"network": "gone", "purge": true}));
    let mut other = server.client();
    let end = Instant::now() + Duration::from_secs(60);
    let refused = loop {
        let refused = error(&mut other, "network.create", lan("new"));
        if refused["data"]["with"]["network"] == id {
            break refused;
        }
        assert!(Instant::now() < end, "{refused}");
    };
    assert!(message(&refused).contains("(deleted for good; it was called `gone`)"), "{refused}");
    assert!(!message(&refused).contains("network.restore"), "{refused}");
    assert_eq!(refused["data"]["retry"], "later", "{refused}");
}

/// By address, a reservation in any slot is meant, of any scope if no owner is named; what is published says so.
#[test]
fn what_is_published_of_a_slot_that_is_left_out_is_what_happens() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let held = |address: &str, more: Value| {
        let mut ask = json!({"network": "lan", "address": address});
        more.as_object().unwrap().iter().for_each(|(name, value)| ask[name] = value.clone());
        ask
    };
    for address in ["10.0.0.6", "10.0.0.7"] {
        client.ok("ip.claim", held(address, json!({"scope": "D", "owner": "web", "slot": address})));
    }
    let named = json!({"scope": "D", "owner": "web"});
    for (method, more) in [
        ("ip.renew", json!({"ttl_seconds": null})),
        ("ip.bind", json!({"claimant": "vm-1"})),
        ("ip.update", json!({"set": {"note": "n"}})),
        ("ip.unbind", json!({"claimant": "vm-1"})),
    ] {
        assert_eq!(client.ok(method, held("10.0.0.6", more.clone()))["owner"], "web", "{method} by address");
        let mut by_owner = named.clone();
        more.as_object().unwrap().iter().for_each(|(name, value)| by_owner[name] = value.clone());
        client.ok(method, held("10.0.0.6", by_owner.clone()));
        by_owner["network"] = json!("lan");
        assert_eq!(client.kind(method, by_owner), "not_found", "{method} by owner means slot 0");
    }
    client.ok("ip.release", held("10.0.0.6", named.clone()));
    client.ok("ip.decline", held("10.0.0.7", named));
    let document = client.ok("rpc.discover", json!({}));
    let methods = document["methods"].as_array().unwrap();
    let says = |method: &str, member: &str| {
        let method = methods.iter().find(|found| found["name"] == method).unwrap();
        let params = method["params"].as_array().unwrap();
        let param = params.iter().find(|found| found["name"] == member).unwrap();
        let description = param["description"].as_str().or_else(|| param["schema"]["description"].as_str());
        description.unwrap_or_else(|| panic!("{param}")).to_owned()
    };
    for method in ["ip.release", "ip.renew", "ip.bind", "ip.unbind", "ip.update"] {
        let slot = "Slot of the owner; if left out, `0`, and of an address that is held any slot.";
        assert_eq!(says(method, "slot"), slot, "{method}");
        let scope =
            "Scope of the owner; if left out, `default`, and of an address without an owner that of its holder.";
        assert_eq!(says(method, "scope"), scope, "{method}");
    }
    assert_eq!(says("ip.decline", "slot"), "Slot of the owner; if left out, any slot.");
}
