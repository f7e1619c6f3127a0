//! Tricky clauses about configuration and reads, as facts.

use serde_json::json;

use super::Model;
use super::tests_grant::{ok, refused, with};

fn two() -> Model {
    let mut model = with(json!({ "subnets": [{ "cidr": "10.0.0.0/28", "name": "s" }] }));
    ok(&mut model, 0, "network.create", json!({ "name": "m" }));
    model
}

#[test]
fn name_that_is_taken_comes_before_an_overlap() {
    let mut model = two();
    let same = json!({ "network": "n", "cidr": "10.0.0.8/29", "name": "s" });
    assert_eq!(refused(&mut model, 1, "subnet.add", same).kind, "already_exists");
    let other = json!({ "network": "m", "cidr": "10.0.0.8/29", "name": "s" });
    let error = refused(&mut model, 1, "subnet.add", other);
    assert_eq!((error.kind, &error.data["with_any"][0]["network"]), ("overlap", &json!("n")));
    ok(&mut model, 1, "network.create", json!({ "name": "l", "realm": "lab", "subnets": [{ "cidr": "10.0.0.0/28" }] }));
}

#[test]
fn if_absent_compares_the_members_given() {
    let mut model = two();
    let there = json!({ "name": "n", "policy": "lowest", "subnets": [{ "cidr": "10.0.0.0/28" }], "if_absent": true });
    assert_eq!(ok(&mut model, 1, "network.create", there)["created"], false);
    let other = json!({ "name": "n", "policy": "oldest", "if_absent": true });
    assert_eq!(refused(&mut model, 1, "network.create", other).data["differs"], json!(["policy"]));
    let pool = json!({ "network": "n", "range": "10.0.0.0/28", "kind": "static", "if_absent": true });
    assert_eq!(refused(&mut model, 1, "pool.add", pool).data["differs"], json!(["kind"]));
}

#[test]
fn removing_the_middle_splits_a_pool_and_a_reserved_range() {
    let mut model = with(
        json!({ "subnets": [{ "cidr": "10.0.0.0/28", "pools": [{ "range": "10.0.0.2-10.0.0.12", "name": "p" }] }] }),
    );
    ok(&mut model, 1, "pool.remove", json!({ "network": "n", "range": "10.0.0.5+2" }));
    let pools = ok(&mut model, 1, "network.get", json!({ "network": "n" }))["subnets"][0]["pools"].clone();
    assert_eq!((&pools[0]["range"], &pools[1]["range"]), (&json!("10.0.0.2-10.0.0.4"), &json!("10.0.0.7-10.0.0.12")));
    assert_eq!((&pools[0]["name"], &pools[1]["name"]), (&json!("p"), &json!("p")));
    ok(&mut model, 1, "reserved.add", json!({ "network": "n", "range": "10.0.0.3-10.0.0.6" }));
    ok(&mut model, 1, "reserved.add", json!({ "network": "n", "range": "10.0.0.5-10.0.0.8" }));
    let left = ok(&mut model, 1, "reserved.remove", json!({ "network": "n", "range": "10.0.0.5" }))["reserved"].clone();
    assert_eq!((&left[0]["range"], &left[1]["range"]), (&json!("10.0.0.3-10.0.0.4"), &json!("10.0.0.6-10.0.0.8")));
    let nothing = json!({ "network": "n", "range": "10.0.0.1" });
    assert_eq!(refused(&mut model, 1, "reserved.remove", nothing).kind, "not_found");
}

#[test]
fn version_rises_by_one_a_change_and_not_with_grants() {
    let mut model = two();
    ok(&mut model, 1, "ip.allocate", json!({ "network": "n", "owner": "a" }));
    ok(
        &mut model,
        1,
        "subnet.modify",
        json!({ "network": "n", "subnet": "s", "set": { "dhcp": true }, "if_version": 1 }),
    );
    let stale = json!({ "network": "n", "set": { "tags": { "a": "b" } }, "if_version": 1 });
    let error = refused(&mut model, 1, "network.update", stale);
    assert_eq!((error.kind, &error.data["actual"]), ("conflict", &json!(2)));
}

#[test]
fn pool_that_spans_its_subnet_grows_with_it_and_others_are_trimmed() {
    let mut model = with(json!({ "subnets": [{ "cidr": "10.0.0.0/28" }] }));
    let resize = |cidr: &str, was: &str| json!({ "network": "n", "subnet": was, "set": { "cidr": cidr } });
    let grown = ok(&mut model, 1, "subnet.modify", resize("10.0.0.0/27", "10.0.0.0/28"));
    assert_eq!(grown["pools"][0]["range"], "10.0.0.0-10.0.0.31");
    ok(&mut model, 1, "pool.remove", json!({ "network": "n", "range": "10.0.0.0+2" }));
    let shrunk = ok(&mut model, 1, "subnet.modify", resize("10.0.0.0/29", "10.0.0.0/27"));
    assert_eq!(shrunk["pools"][0]["range"], "10.0.0.2-10.0.0.7");
}

#[test]
fn shrinking_below_a_held_address_or_a_reserved_range_is_in_use() {
    let mut model = two();
    ok(&mut model, 1, "ip.claim", json!({ "network": "n", "owner": "a", "address": "10.0.0.9" }));
    let shrink = json!({ "network": "n", "subnet": "s", "set": { "cidr": "10.0.0.0/29" } });
    let error = refused(&mut model, 1, "subnet.modify", shrink.clone());
    assert_eq!((error.kind, &error.data["first"]), ("in_use", &json!(["10.0.0.9"])));
    ok(&mut model, 1, "scope.release", json!({ "scope": "default" }));
    ok(&mut model, 1, "reserved.add", json!({ "network": "n", "range": "10.0.0.7-10.0.0.8" }));
    assert_eq!(refused(&mut model, 1, "subnet.modify", shrink).kind, "in_use");
}

#[test]
fn gateway_lies_inside_and_is_usable_and_not_held() {
    let mut model = two();
    ok(&mut model, 1, "ip.claim", json!({ "network": "n", "owner": "a", "address": "10.0.0.5" }));
    let set = |gateway: &str| json!({ "network": "n", "subnet": "s", "set": { "gateway": gateway } });
    for (gateway, kind) in
        [("10.0.1.1", "out_of_range"), ("10.0.0.15", "invalid_argument"), ("10.0.0.5", "already_in_use")]
    {
        assert_eq!(refused(&mut model, 1, "subnet.modify", set(gateway)).kind, kind, "{gateway}");
    }
    let v6 = json!({ "network": "m", "cidr": "fd00::/124", "gateway": "fe80::1" });
    ok(&mut model, 1, "subnet.add", v6);
}

#[test]
fn forced_delete_keeps_the_space_guarded_until_nothing_is_held() {
    let mut model = two();
    ok(&mut model, 1, "ip.allocate", json!({ "network": "n", "owner": "a" }));
    assert_eq!(refused(&mut model, 1, "network.delete", json!({ "network": "n" })).data["count"], 1);
    let id = ok(&mut model, 1, "network.delete", json!({ "network": "n", "force": true }))["id"].clone();
    assert_eq!(refused(&mut model, 1, "network.get", json!({ "network": "n" })).kind, "not_found");
    assert_eq!(refused(&mut model, 1, "subnet.add", json!({ "network": "m", "cidr": "10.0.0.0/30" })).kind, "overlap");
    assert_eq!(refused(&mut model, 1, "ip.allocate", json!({ "network": id, "owner": "b" })).kind, "in_use");
    ok(&mut model, 1, "network.create", json!({ "name": "n", "realm": "lab" }));
    assert_eq!(refused(&mut model, 1, "network.restore", json!({ "network": id })).kind, "already_exists");
    ok(&mut model, 1, "ip.release", json!({ "network": id, "owner": "a" }));
    assert_eq!(refused(&mut model, 1, "network.restore", json!({ "network": id })).kind, "not_found");
    ok(&mut model, 1, "subnet.add", json!({ "network": "m", "cidr": "10.0.0.0/30" }));
}

#[test]
fn moved_subnet_takes_its_reservations_along_or_stays() {
    let mut model = two();
    let generation = ok(&mut model, 1, "ip.allocate", json!({ "network": "n", "owner": "a" }))["generation"].clone();
    ok(&mut model, 1, "subnet.add", json!({ "network": "m", "cidr": "10.0.1.0/30" }));
    ok(&mut model, 1, "ip.allocate", json!({ "network": "m", "owner": "a" }));
    let go = json!({ "network": "n", "subnet": "s", "to": "m" });
    assert_eq!(refused(&mut model, 1, "subnet.move", go.clone()).kind, "already_exists");
    ok(&mut model, 1, "ip.release", json!({ "network": "m", "owner": "a" }));
    ok(&mut model, 1, "subnet.move", go);
    let found = ok(&mut model, 1, "ip.get", json!({ "address": "10.0.0.1" }));
    assert_eq!((&found["network"], &found["reservation"]["generation"]), (&json!("m"), &generation));
}

#[test]
fn static_only_draining_and_dynamic_networks_refuse_claims_in_their_own_way() {
    let mut model = with(json!({ "static_only": true, "subnets": [{ "cidr": "10.0.0.0/28", "pools": [
        { "range": "10.0.0.2-10.0.0.5", "kind": "static" }, { "range": "10.0.0.6-10.0.0.9", "name": "d" }] }] }));
    let claim = |address: &str| json!({ "network": "n", "owner": "a", "address": address, "force": true });
    assert_eq!(refused(&mut model, 1, "ip.claim", claim("10.0.0.7")).kind, "wrong_kind");
    ok(&mut model, 1, "subnet.modify", json!({ "network": "n", "subnet": "10.0.0.0/28", "set": { "draining": true } }));
    assert_eq!(refused(&mut model, 1, "ip.claim", claim("10.0.0.2")).kind, "reserved");
    ok(&mut model, 1, "network.create", json!({ "name": "d", "kind": "dynamic" }));
    let there = json!({ "network": "d", "owner": "a", "address": "10.0.0.2" });
    assert_eq!(refused(&mut model, 1, "ip.claim", there).kind, "wrong_kind");
}

#[test]
fn usage_counts_each_address_once_and_the_map_shows_what_is_taken() {
    let mut model =
        with(json!({ "cooldown_seconds": 9, "subnets": [{ "cidr": "10.0.0.0/29", "gateway": "10.0.0.1" }] }));
    for owner in ["a", "b", "c"] {
        ok(&mut model, 1, "ip.allocate", json!({ "network": "n", "owner": owner }));
    }
    ok(&mut model, 1, "reserved.add", json!({ "network": "n", "range": "10.0.0.0/30" }));
    ok(&mut model, 1, "ip.release", json!({ "network": "n", "owner": "b" }));
    ok(&mut model, 1, "ip.decline", json!({ "network": "n", "owner": "c", "address": "10.0.0.4" }));
    let usage = ok(&mut model, 1, "network.usage", json!({ "network": "n" }));
    let counts: Vec<&str> =
        ["size", "held", "reserved", "cooling", "declined", "free"].iter().filter_map(|m| usage[m].as_str()).collect();
    assert_eq!(counts, ["8", "1", "4", "0", "1", "2"]);
    let map = ok(&mut model, 1, "network.map", json!({ "network": "n" }));
    assert_eq!(map["pools"][0]["map"], "XXXXX..X");
    let runs = ok(&mut model, 1, "network.map", json!({ "network": "n", "format": "runs" }));
    assert_eq!(runs["pools"][0]["runs"][1], json!(["10.0.0.5", "10.0.0.6", "."]));
}

#[test]
fn pages_of_a_list_give_everything_once() {
    let mut model = two();
    for owner in ["a", "b", "c"] {
        ok(&mut model, 1, "ip.allocate", json!({ "network": "n", "owner": owner }));
    }
    let first = ok(&mut model, 1, "ip.list", json!({ "limit": 2 }));
    let last = ok(&mut model, 1, "ip.list", json!({ "limit": 2, "after": first["next"] }));
    assert_eq!(last["reservations"][0]["address"], "10.0.0.3");
    assert!(last["next"].is_null());
}
