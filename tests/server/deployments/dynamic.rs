//! A dynamic network has no addresses of its own: the infrastructure picks them, and `ip.bind` may record them.

use serde_json::{Value, json};

use super::{Deployment, addresses_of, slots};
use crate::stores;
use crate::support::{Client, TestServer};

fn with_cloud(server: &TestServer) -> Client {
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "cloud", "kind": "dynamic"}));
    client
}

fn recorded(address: &str, owner: &str, claimant: &str) -> Value {
    json!({"network": "cloud", "address": address, "scope": "shop", "owner": owner, "claimant": claimant})
}

fn wishes(ids: &[&str]) -> Value {
    ids.iter().map(|id| json!({"id": id, "networks": [{"network": "cloud"}]})).collect()
}

fn types_of(client: &mut Client, address: &str) -> Vec<(String, String)> {
    let history = client.ok("events.history", json!({"network": "cloud", "address": address}));
    let text = |event: &Value, member: &str| event[member].as_str().unwrap_or_default().to_owned();
    let events = history["events"].as_array().unwrap();
    events.iter().map(|event| (text(event, "type"), text(event, "owner"))).collect()
}

#[test]
fn a_bind_records_what_the_infrastructure_picked_for_as_long_as_the_instance_is_wished() {
    let open = stores::reopened(4);
    let server = TestServer::over(open(), |_| {});
    let mut client = with_cloud(&server);
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&wishes(&["a", "b"]));
    assert_eq!(slots(&first), [("none".into(), String::new()), ("none".into(), String::new())]);
    shop.commit(&first);
    let bound = client.ok("ip.bind", recorded("192.0.2.7", "a", "vm-1"));
    assert_eq!(
        (&bound["address"], &bound["interface"], &bound["claimant"], &bound["kind"], &bound["subnet"]),
        (&json!("192.0.2.7"), &json!("192.0.2.7/32"), &json!("vm-1"), &json!("dynamic"), &Value::Null)
    );
    assert_eq!(client.ok("ip.bind", recorded("192.0.2.7", "a", "vm-1")), bound, "a repeat changes nothing");
    // It is shown like any other address.
    let got = client.ok("ip.get", json!({"address": "192.0.2.7"}));
    assert_eq!((&got["state"], &got["network"], &got["reservation"]), (&json!("held"), &json!("cloud"), &bound));
    assert_eq!(client.ok("ip.list", json!({"network": "cloud"}))["reservations"], json!([bound]));
    let by_claimant = json!({"address": "192.0.2.7", "scope": "shop", "claimant": "vm-1"});
    assert_eq!(client.ok("ip.unbind", by_claimant)["address"], "192.0.2.7", "found without its network");
    client.ok("ip.bind", recorded("192.0.2.7", "a", "vm-1"));
    // The same wishes keep it, even over a restart.
    drop(client);
    server.running.stop();
    let server = TestServer::over(open(), |_| {});
    let mut client = server.client();
    let mut shop = Deployment::of(&mut client, "shop");
    let again = shop.apply(&wishes(&["a", "b"]));
    assert_eq!(slots(&again), [("kept".into(), "192.0.2.7".into()), ("none".into(), String::new())]);
    assert_eq!(shop.held("a"), (vec!["192.0.2.7".into()], vec![]));
    // Another address for the same machine replaces the recorded one; another machine has to wait until it is released.
    assert_eq!(client.kind("ip.bind", recorded("192.0.2.8", "a", "vm-2")), "already_in_use");
    client.ok("ip.bind", recorded("192.0.2.8", "a", "vm-1"));
    assert_eq!(client.ok("ip.get", json!({"network": "cloud", "address": "192.0.2.7"}))["state"], "unknown");
    // What is no longer wished is released by the commit, like everything else.
    let mut shop = Deployment::of(&mut client, "shop");
    let without = shop.apply(&wishes(&["b"]));
    assert_eq!(addresses_of(&without["obsolete"]), ["192.0.2.8"]);
    let back = shop.apply(&wishes(&["a", "b"]));
    assert_eq!(slots(&back)[0], ("kept".into(), "192.0.2.8".into()), "wished again before the commit");
    let without = shop.apply(&wishes(&["b"]));
    assert_eq!(shop.commit(&without), ["192.0.2.8"]);
    assert_eq!(client.ok("ip.list", json!({"network": "cloud"}))["reservations"], json!([]));
    let told = types_of(&mut client, "192.0.2.8");
    assert_eq!(told.first().unwrap().0, "granted", "{told:?}");
    assert_eq!(told.last().unwrap(), &("released".into(), "a".into()));
}

#[test]
fn a_fresh_instance_gives_its_recorded_address_up_and_keeps_the_one_that_is_recorded_next() {
    let server = TestServer::new();
    let mut client = with_cloud(&server);
    client.ok("ip.bind", recorded("2001:db8::7", "a", "vm-1"));
    let fresh = json!([{"id": "a", "fresh": true, "networks": [{"network": "cloud"}]}]);
    let mut shop = Deployment::of(&mut client, "shop");
    let applied = shop.apply(&fresh);
    assert_eq!(
        (slots(&applied)[0].0.as_str(), addresses_of(&applied["obsolete"])),
        ("none", vec!["2001:db8::7".into()])
    );
    client.ok("ip.bind", recorded("2001:db8::8", "a", "vm-2"));
    let mut shop = Deployment::of(&mut client, "shop");
    let again = shop.apply(&fresh);
    assert_eq!((&again["plan"], slots(&again)), (&applied["plan"], vec![("kept".into(), "2001:db8::8".into())]));
    assert_eq!(shop.commit(&applied), ["2001:db8::7"]);
    assert_eq!(shop.held("a").0, ["2001:db8::8"]);
}

#[test]
fn a_recorded_address_is_kept_for_a_wish_of_its_family_and_no_pool_or_subnet_is_found() {
    let server = TestServer::new();
    let mut client = with_cloud(&server);
    client.ok("ip.bind", recorded("192.0.2.7", "a", "vm-1"));
    let wish = |member: &str, value: Value| json!([{"id": "a", "networks": [{"network": "cloud", member: value}]}]);
    let mut shop = Deployment::of(&mut client, "shop");
    assert_eq!(slots(&shop.apply(&wish("family", json!(4)))), [("kept".into(), "192.0.2.7".into())]);
    for (member, value) in [("pool", "web"), ("pool", "10.77.0.0/24"), ("subnet", "web"), ("subnet", "10.77.0.0/24")] {
        let refused = shop.refused(&wish(member, json!(value)));
        let data = &refused["data"];
        assert_eq!((&data["kind"], &data["instance"]), (&json!("not_found"), &json!("a")), "{member}: {refused}");
    }
    let six = wish("family", json!(6));
    let applied = shop.apply(&six);
    assert_eq!(slots(&applied), [("none".into(), String::new())]);
    assert_eq!(addresses_of(&applied["obsolete"]), ["192.0.2.7"]);
    // Wished again before the commit, it is kept after all.
    let back = shop.apply(&wish("family", json!(4)));
    assert_eq!(slots(&back), [("kept".into(), "192.0.2.7".into())]);
    assert_eq!(addresses_of(&back["obsolete"]), Vec::<String>::new());
    let applied = shop.apply(&six);
    client.ok("ip.bind", recorded("2001:db8::7", "a", "vm-2"));
    let mut shop = Deployment::of(&mut client, "shop");
    let again = shop.apply(&six);
    assert_eq!((&again["plan"], slots(&again)), (&applied["plan"], vec![("kept".into(), "2001:db8::7".into())]));
    assert_eq!(shop.commit(&applied), ["192.0.2.7"]);
}

#[test]
fn a_recorded_address_is_bound_again_in_whichever_slot_it_is_if_none_is_named() {
    let server = TestServer::new();
    let mut client = with_cloud(&server);
    let of = |slot: Option<&str>, address: &str, claimant: &str| {
        let mut ask = recorded(address, "a", claimant);
        ask.as_object_mut().unwrap().extend(slot.map(|slot| ("slot".to_owned(), json!(slot))));
        ask
    };
    let kept = client.ok("ip.bind", of(Some("v6"), "2001:db8::7", "vm-1"));
    assert_eq!(client.ok("ip.bind", of(None, "2001:db8::7", "vm-1")), kept, "a repeat changes nothing");
    assert_eq!(client.kind("ip.bind", of(None, "2001:db8::7", "vm-2")), "already_in_use", "bound to another");
    client.ok("ip.unbind", of(None, "2001:db8::7", "vm-1"));
    let bound = client.ok("ip.bind", of(None, "2001:db8::7", "vm-2"));
    assert_eq!(
        (&bound["slot"], &bound["claimant"], &bound["generation"]),
        (&json!("v6"), &json!("vm-2"), &kept["generation"])
    );
    // A slot that is named is meant; and what is new is recorded for slot 0.
    assert_eq!(client.kind("ip.bind", of(Some("0"), "2001:db8::7", "vm-2")), "already_in_use");
    assert_eq!(client.ok("ip.bind", of(None, "2001:db8::8", "vm-2"))["slot"], json!("0"));
    let mut other = of(None, "2001:db8::7", "vm-2");
    other["owner"] = json!("b");
    assert_eq!(client.kind("ip.bind", other), "already_in_use");
}

/// "Inside one realm no address belongs to two networks": a network that may overlap others needs a realm of its own.
#[test]
fn a_recorded_address_belongs_to_one_network_of_its_realm() {
    let server = TestServer::new();
    let mut client = with_cloud(&server);
    client.ok("network.create", json!({"name": "other", "kind": "dynamic"}));
    client.ok("network.create", json!({"name": "apart", "kind": "dynamic", "realm": "apart"}));
    let of = |network: &str, address: &str, owner: &str| json!({"network": network, "address": address, "owner": owner, "claimant": owner});
    // lan is 10.0.0.0/24.
    let told = client.call("ip.bind", of("cloud", "10.0.0.9", "a"));
    assert_eq!(told["error"]["data"]["with"], json!({"network": "lan", "cidr": "10.0.0.0/24"}), "{told}");
    // A bind with a generation records nothing: there is no such reservation, whoever has the address.
    let there = json!({"network": "cloud", "address": "10.0.0.9", "owner": "a", "claimant": "a", "if_generation": 7});
    assert_eq!(client.kind("ip.bind", there), "not_found");
    client.ok("ip.bind", of("apart", "10.0.0.9", "a"));
    let kept = client.ok("ip.bind", of("cloud", "192.0.2.7", "a"));
    let held = client.call("ip.bind", of("cloud", "192.0.2.7", "b"));
    assert_eq!(held["error"]["data"]["kind"], "already_in_use", "{held}");
    assert_eq!(held["error"]["data"]["held_by"]["owner"], "a", "{held}");
    for (method, params) in [
        ("ip.bind", of("other", "192.0.2.7", "b")),
        ("subnet.add", json!({"network": "lan", "cidr": "192.0.2.0/24"})),
        ("network.create", json!({"name": "wide", "subnets": [{"cidr": "192.0.0.0/16"}]})),
    ] {
        let told = client.call(method, params);
        assert_eq!(told["error"]["data"]["kind"], "overlap", "{method}: {told}");
        assert_eq!(
            told["error"]["data"]["with"],
            json!({"network": "cloud", "cidr": "192.0.2.7/32"}),
            "{method}: {told}"
        );
    }
    for (address, kind) in [("224.0.0.1", "invalid_argument"), ("0.0.0.0", "invalid_argument")] {
        assert_eq!(client.kind("ip.bind", of("cloud", address, "c")), kind, "{address}");
    }
    // An address that is not recorded yet cannot be bound by itself, nor with a generation.
    let alone = json!({"network": "cloud", "address": "192.0.2.9", "claimant": "c"});
    assert_eq!(client.kind("ip.bind", alone), "not_found");
    let mut stale = of("cloud", "192.0.2.9", "c");
    stale["if_generation"] = kept["generation"].clone();
    assert_eq!(client.kind("ip.bind", stale), "not_found");
    let mut dry = of("cloud", "192.0.2.9", "c");
    dry["dry_run"] = json!(true);
    assert_eq!(client.ok("ip.bind", dry)["address"], "192.0.2.9");
    assert_eq!(client.kind("ip.allocate", json!({"network": "cloud", "owner": "a2"})), "not_enough_capacity");
    assert_eq!(client.kind("network.delete", json!({"network": "cloud"})), "in_use");
    // Once released, it is free for the others.
    client.ok("ip.release", json!({"network": "cloud", "owner": "a"}));
    client.ok("subnet.add", json!({"network": "lan", "cidr": "192.0.2.0/24"}));
    assert_eq!(client.kind("ip.bind", of("cloud", "192.0.2.7", "a")), "overlap");
}
