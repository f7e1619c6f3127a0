//! Tricky clauses about allocation, as facts.

use serde_json::{Value, json};

use super::{Model, ModelError};

/// One network `n` with these members.
pub fn with(network: Value) -> Model {
    let mut model = Model::new();
    let mut params = network;
    params["name"] = json!("n");
    model.call(0, "network.create", &params).expect("the network is right");
    model
}

fn small() -> Model {
    with(json!({ "subnets": [{ "cidr": "10.0.0.0/29" }] }))
}

#[track_caller]
pub fn ok(model: &mut Model, now: u64, method: &str, params: Value) -> Value {
    model.call(now, method, &params).unwrap_or_else(|error| panic!("{method} {params}: {error:?}"))
}

#[track_caller]
pub fn refused(model: &mut Model, now: u64, method: &str, params: Value) -> ModelError {
    model.call(now, method, &params).expect_err("should be refused")
}

#[track_caller]
fn take(model: &mut Model, now: u64, owner: &str) -> String {
    let answer = ok(model, now, "ip.allocate", json!({ "network": "n", "owner": owner }));
    answer["address"].as_str().unwrap_or_default().to_string()
}

#[test]
fn network_and_broadcast_addresses_are_never_handed_out() {
    let mut model = small();
    let all: Vec<String> = ["a", "b", "c", "d", "e", "f"].iter().map(|owner| take(&mut model, 1, owner)).collect();
    assert_eq!((all[0].as_str(), all[5].as_str()), ("10.0.0.1", "10.0.0.6"));
    let error = refused(&mut model, 1, "ip.allocate", json!({ "network": "n", "owner": "g" }));
    assert_eq!(
        (error.kind, &error.data["held"], &error.data["reserved"]),
        ("not_enough_capacity", &json!("6"), &json!("2"))
    );
    let force = json!({ "network": "n", "owner": "g", "address": "10.0.0.7", "force": true });
    assert_eq!(refused(&mut model, 1, "ip.claim", force).kind, "reserved");
}

#[test]
fn both_addresses_of_a_31_and_a_127_are_usable() {
    for (cidr, second) in [("10.0.0.2/31", "10.0.0.3"), ("fd00::2/127", "fd00::3")] {
        let mut model = with(json!({ "subnets": [{ "cidr": cidr }] }));
        take(&mut model, 1, "a");
        assert_eq!(take(&mut model, 1, "b"), second);
    }
}

#[test]
fn repeated_allocation_returns_the_same_and_ends_later() {
    let mut model = small();
    let wish = |ttl: u64| json!({ "network": "n", "owner": "a", "ttl_seconds": ttl, "claimant": "vm1" });
    ok(&mut model, 0, "ip.allocate", wish(10));
    let again = ok(&mut model, 2000, "ip.allocate", wish(1));
    assert_eq!((&again["created"], again["expires_at"].as_str()), (&json!(false), Some("1970-01-01T00:00:10.000Z")));
    let bound = ok(&mut model, 2000, "ip.allocate", json!({ "network": "n", "owner": "a", "claimant": "vm2" }));
    assert_eq!((&bound["previous_claimant"], &bound["expires_at"]), (&json!("vm1"), &Value::Null));
}

#[test]
fn lease_ends_exactly_at_its_end() {
    let mut model = small();
    ok(&mut model, 1000, "ip.allocate", json!({ "network": "n", "owner": "a", "ttl_seconds": 5 }));
    let get = |model: &mut Model, now| ok(model, now, "ip.get", json!({ "address": "10.0.0.1" }))["state"].clone();
    assert_eq!(get(&mut model, 5999), "held");
    assert_eq!(get(&mut model, 6000), "free");
}

#[test]
fn other_uid_under_the_same_name_is_another_owner() {
    let mut model = small();
    let wish = |uid: &str| json!({ "network": "n", "owner": "a", "owner_uid": uid });
    ok(&mut model, 1, "ip.allocate", wish("u1"));
    assert_eq!(refused(&mut model, 1, "ip.allocate", wish("u2")).kind, "already_in_use");
}

#[test]
fn replace_takes_the_new_one_before_the_old_one_goes() {
    let mut model = with(json!({ "subnets": [{ "cidr": "10.0.0.0/30" }] }));
    take(&mut model, 1, "a");
    let other = json!({ "network": "n", "owner": "a", "address": "10.0.0.2", "replace": true });
    let answer = ok(&mut model, 1, "ip.claim", other);
    assert_eq!((&answer["address"], &answer["replaced"]), (&json!("10.0.0.2"), &json!("10.0.0.1")));
    take(&mut model, 1, "b");
    let to_one = json!({ "network": "n", "owner": "a", "address": "10.0.0.1", "replace": true });
    assert_eq!(refused(&mut model, 1, "ip.claim", to_one).kind, "already_in_use");
    assert_eq!(ok(&mut model, 1, "ip.get", json!({ "address": "10.0.0.2" }))["reservation"]["owner"], "a");
}

#[test]
fn cooling_address_goes_back_to_the_slot_that_let_it_go_and_to_nobody_else() {
    let mut model = with(json!({ "cooldown_seconds": 10, "subnets": [{ "cidr": "10.0.0.0/29" }] }));
    take(&mut model, 0, "a");
    take(&mut model, 0, "b");
    ok(&mut model, 1000, "ip.release", json!({ "network": "n", "owner": "b" }));
    ok(&mut model, 1000, "ip.release", json!({ "network": "n", "owner": "a" }));
    assert_eq!(take(&mut model, 2000, "c"), "10.0.0.3");
    assert_eq!(take(&mut model, 10_999, "b"), "10.0.0.2");
    assert_eq!(take(&mut model, 11_000, "d"), "10.0.0.1");
}

#[test]
fn cooldown_yields_the_address_released_longest_ago() {
    let network = json!({ "cooldown_seconds": 99, "cooldown_yields": true, "subnets": [{ "cidr": "10.0.0.0/30" }] });
    let mut model = with(network);
    take(&mut model, 0, "a");
    take(&mut model, 0, "b");
    ok(&mut model, 1, "ip.release", json!({ "network": "n", "owner": "b" }));
    ok(&mut model, 2, "ip.release", json!({ "network": "n", "owner": "a" }));
    assert_eq!(take(&mut model, 3, "c"), "10.0.0.2");
}

#[test]
fn oldest_prefers_the_never_used_then_the_longest_free() {
    let mut model = with(
        json!({ "policy": "oldest", "subnets": [{ "cidr": "10.0.0.0/29", "pools": [{ "range": "10.0.0.1+3" }] }] }),
    );
    take(&mut model, 0, "a");
    take(&mut model, 0, "b");
    ok(&mut model, 1, "ip.release", json!({ "network": "n", "owner": "b" }));
    ok(&mut model, 2, "ip.release", json!({ "network": "n", "owner": "a" }));
    assert_eq!(
        [take(&mut model, 3, "c"), take(&mut model, 3, "d"), take(&mut model, 3, "e")],
        ["10.0.0.3", "10.0.0.2", "10.0.0.1"]
    );
}

#[test]
fn block_is_aligned_wholly_inside_one_pool_and_named_by_its_first_address() {
    let mut model =
        with(json!({ "subnets": [{ "cidr": "10.0.0.0/28", "pools": [{ "range": "10.0.0.3-10.0.0.13" }] }] }));
    let wish = json!({ "network": "n", "owner": "a", "prefix_length": 30 });
    assert_eq!(ok(&mut model, 1, "ip.allocate", wish)["address"], "10.0.0.4");
    assert_eq!(take(&mut model, 1, "b"), "10.0.0.3");
    let inside = json!({ "network": "n", "address": "10.0.0.5", "force": true });
    assert_eq!(ok(&mut model, 1, "ip.release", inside)["released"], json!([]));
    assert_eq!(ok(&mut model, 1, "ip.get", json!({ "address": "10.0.0.5" }))["reservation"]["address"], "10.0.0.4");
    let single = json!({ "network": "n", "owner": "a" });
    assert_eq!(refused(&mut model, 1, "ip.allocate", single).kind, "already_exists");
    let wide = json!({ "network": "n", "owner": "c", "prefix_length": 27 });
    assert_eq!(refused(&mut model, 1, "ip.allocate", wide).kind, "invalid_argument");
}

#[test]
fn address_reserved_for_an_owner_is_its_first_and_nobody_elses() {
    let mut model = small();
    ok(&mut model, 1, "reserved.add", json!({ "network": "n", "range": "10.0.0.5", "for": { "owner": "a" } }));
    assert_eq!(take(&mut model, 1, "b"), "10.0.0.1");
    assert_eq!(
        refused(&mut model, 1, "ip.claim", json!({ "network": "n", "owner": "b", "slot": "1", "address": "10.0.0.5" }))
            .kind,
        "reserved"
    );
    assert_eq!(take(&mut model, 1, "a"), "10.0.0.5");
}

#[test]
fn held_address_that_is_reserved_stays_held_and_does_not_come_back() {
    let mut model = with(json!({ "subnets": [{ "cidr": "10.0.0.0/30" }] }));
    take(&mut model, 1, "a");
    ok(&mut model, 1, "reserved.add", json!({ "network": "n", "range": "10.0.0.0/31" }));
    assert_eq!(ok(&mut model, 1, "ip.get", json!({ "address": "10.0.0.1" }))["state"], "held");
    ok(&mut model, 1, "ip.release", json!({ "network": "n", "owner": "a" }));
    assert_eq!(take(&mut model, 1, "b"), "10.0.0.2");
    assert_eq!(
        refused(&mut model, 1, "ip.allocate", json!({ "network": "n", "owner": "a" })).kind,
        "not_enough_capacity"
    );
}

#[test]
fn acquire_is_all_or_none_and_takes_named_addresses_first() {
    let mut model = small();
    let both = json!({ "owner": "a", "network": "n", "ips": [{}, { "address": "10.0.0.1" }] });
    let answer = ok(&mut model, 1, "ip.acquire", both);
    assert_eq!(
        (&answer["reservations"][0]["address"], &answer["reservations"][1]["slot"]),
        (&json!("10.0.0.2"), &json!("1"))
    );
    let one_taken = json!({ "owner": "b", "network": "n", "ips": [{}, { "address": "10.0.0.1" }] });
    let error = refused(&mut model, 1, "ip.acquire", one_taken);
    assert_eq!((error.kind, &error.data["index"]), ("already_in_use", &json!(1)));
    assert_eq!(ok(&mut model, 1, "ip.list", json!({ "owner": "b", "count_only": true }))["count"], 0);
    let twice = json!({ "owner": "b", "network": "n", "ips": [{ "slot": "1" }, {}] });
    assert_eq!(refused(&mut model, 1, "ip.acquire", twice).kind, "invalid_argument");
}

#[test]
fn exact_acquire_releases_what_it_does_not_name() {
    let mut model = with(json!({ "limits": { "per_owner": 2 }, "subnets": [{ "cidr": "10.0.0.0/29" }] }));
    ok(&mut model, 1, "ip.acquire", json!({ "owner": "a", "network": "n", "ips": [{}, {}] }));
    let exact = json!({ "owner": "a", "network": "n", "ips": [{ "slot": "0" }, { "slot": "9" }], "exact": true });
    let answer = ok(&mut model, 1, "ip.acquire", exact);
    assert_eq!(answer["released"], json!([{ "network": "n", "address": "10.0.0.2" }]));
    assert_eq!(
        (&answer["reservations"][0]["created"], &answer["reservations"][1]["address"]),
        (&json!(false), &json!("10.0.0.3"))
    );
}

#[test]
fn optional_wish_without_capacity_is_left_out() {
    let mut model = small();
    let wish = json!({ "owner": "a", "network": "n", "ips": [{ "family": 6, "optional": true }, {}] });
    let answer = ok(&mut model, 1, "ip.acquire", wish);
    assert_eq!(answer["reservations"].as_array().map(Vec::len), Some(1));
    assert_eq!(answer["reservations"][0]["slot"], "1");
}

#[test]
fn release_checks_owner_before_generation() {
    let mut model = small();
    let generation = ok(&mut model, 1, "ip.allocate", json!({ "network": "n", "owner": "a" }))["generation"].clone();
    let release = |owner: &str, generation: Value| {
        let mut params = json!({ "network": "n", "address": "10.0.0.1", "owner": owner });
        params["if_generation"] = generation;
        params
    };
    assert_eq!(refused(&mut model, 1, "ip.release", release("b", json!(77))).kind, "not_owner");
    assert_eq!(refused(&mut model, 1, "ip.release", release("a", json!(77))).kind, "conflict");
    assert_eq!(ok(&mut model, 1, "ip.release", release("a", generation))["released"], json!(["10.0.0.1"]));
    assert_eq!(
        refused(&mut model, 1, "ip.release", json!({ "network": "n", "owner": "a", "strict": true })).kind,
        "not_found"
    );
}

#[test]
fn transfer_is_a_new_grant_and_exchange_swaps() {
    let mut model = small();
    take(&mut model, 1, "a");
    take(&mut model, 1, "b");
    let to_b = json!({ "network": "n", "address": "10.0.0.1", "owner": "a", "to": { "owner": "b" } });
    assert_eq!(refused(&mut model, 1, "ip.transfer", to_b.clone()).kind, "already_exists");
    let mut swap = to_b;
    swap["exchange"] = json!(true);
    let answer = ok(&mut model, 1, "ip.transfer", swap.clone());
    assert_eq!(ok(&mut model, 2, "ip.transfer", swap), answer, "a repeat");
    assert_eq!((&answer["reservations"][0]["owner"], &answer["reservations"][1]["owner"]), (&json!("b"), &json!("a")));
    assert!(answer["reservations"][0]["generation"].as_u64() > Some(2));
}

#[test]
fn declined_address_is_out_until_its_probation_is_over() {
    let mut model = with(json!({ "subnets": [{ "cidr": "10.0.0.0/30" }] }));
    take(&mut model, 0, "a");
    let decline = |again: bool| {
        let mut params = json!({ "network": "n", "address": "10.0.0.1", "owner": "a", "probation_seconds": 5 });
        params["again"] = json!(again);
        params
    };
    assert_eq!(ok(&mut model, 0, "ip.decline", decline(true))["reservation"]["address"], "10.0.0.2");
    assert_eq!(ok(&mut model, 1, "ip.decline", decline(false))["declined"], "10.0.0.1");
    let other = json!({ "network": "n", "address": "10.0.0.1", "owner": "b" });
    assert_eq!(refused(&mut model, 1, "ip.decline", other.clone()).kind, "not_owner");
    assert_eq!(
        refused(&mut model, 1, "ip.allocate", json!({ "network": "n", "owner": "b" })).kind,
        "not_enough_capacity"
    );
    assert_eq!(refused(&mut model, 5000, "ip.decline", other).kind, "not_found");
    assert_eq!(take(&mut model, 5000, "b"), "10.0.0.1");
}

#[test]
fn unbinding_what_was_made_to_go_with_its_claimant_releases_it() {
    let mut model = small();
    let wish = json!({ "network": "n", "owner": "a", "claimant": "vm", "release_with_claimant": true });
    ok(&mut model, 1, "ip.allocate", wish);
    let unbind = json!({ "address": "10.0.0.1", "scope": "default", "claimant": "vm" });
    let answer = ok(&mut model, 1, "ip.unbind", unbind.clone());
    assert_eq!((&answer["released"], &answer["claimant"]), (&json!(true), &json!("vm")));
    assert_eq!(refused(&mut model, 1, "ip.unbind", unbind).kind, "not_found");
}

#[test]
fn dry_run_answers_the_same_and_changes_nothing() {
    let mut model = small();
    let wish = json!({ "network": "n", "owner": "a", "dry_run": true });
    assert_eq!(ok(&mut model, 1, "ip.allocate", wish)["address"], "10.0.0.1");
    assert_eq!(ok(&mut model, 1, "network.usage", json!({ "network": "n" }))["held"], "0");
}

#[test]
fn zones_pools_and_families_narrow_the_choice() {
    let mut model = with(json!({ "subnets": [
        { "cidr": "10.0.0.0/29", "zones": ["z1"], "pools": [
            { "range": "10.0.0.4", "name": "p" }, { "range": "10.0.0.2", "name": "p", "kind": "static" }] },
        { "cidr": "10.0.1.0/29" },
    ] }));
    let mut wish = |members: Value| {
        let mut params = json!({ "network": "n", "owner": members.to_string() });
        params.as_object_mut().expect("an object").extend(members.as_object().expect("an object").clone());
        model.call(1, "ip.allocate", &params).map(|noun| noun["address"].clone()).map_err(|error| error.kind)
    };
    assert_eq!(wish(json!({ "zone": "z2" })), Ok(json!("10.0.1.1")));
    assert_eq!(wish(json!({ "pool": "p" })), Ok(json!("10.0.0.4")));
    assert_eq!(wish(json!({ "pool": "p", "zone": "z1" })), Err("not_enough_capacity"));
    assert_eq!(wish(json!({ "family": 6 })), Err("not_enough_capacity"));
    assert_eq!(wish(json!({ "pool": "nosuch" })), Err("not_found"));
}
