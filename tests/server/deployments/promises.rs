//! Promises: a wish names an address that another instance lets go. Nobody else gets it, and it changes hands with the
//! commit.

use serde_json::{Value, json};

use super::{Deployment, is, named, slots};
use crate::support::{Client, TestServer};

/// `a` at .10 and `b` at .20, committed; then a plan in which they swap.
fn swapping<'a>(client: &'a mut Client) -> (Deployment<'a>, Value) {
    let mut shop = Deployment::of(client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.20")]));
    shop.commit(&first);
    let swap = shop.apply(&named(&[("a", "10.0.0.20"), ("b", "10.0.0.10")]));
    assert_eq!(slots(&swap), [is("promised", "20"), is("promised", "10")]);
    assert_eq!(swap["instances"][0]["networks"][0]["replaces"], "10.0.0.10");
    (shop, swap)
}

fn holder(client: &mut Client, address: &str) -> String {
    let found = client.ok("ip.get", json!({"address": address}));
    found["reservation"]["owner"].as_str().unwrap_or_else(|| found["state"].as_str().unwrap()).to_owned()
}

#[test]
fn two_instances_swap_static_addresses_in_one_deploy() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let (mut shop, swap) = swapping(&mut client);
    assert_eq!((shop.held("a").0, shop.held("b").0), (vec!["10.0.0.10".into()], vec!["10.0.0.20".into()]));
    assert!(shop.commit(&swap).is_empty(), "neither is free");
    assert_eq!((shop.held("a").0, shop.held("b").0), (vec!["10.0.0.20".into()], vec!["10.0.0.10".into()]));
    assert!(shop.get()["uncommitted_since"].is_null());
    let again = shop.apply(&named(&[("a", "10.0.0.20"), ("b", "10.0.0.10")]));
    assert_eq!(slots(&again), [is("kept", "20"), is("kept", "10")]);
    assert_eq!(again["plan"], swap["plan"]);
}

#[test]
fn a_swap_is_committed_one_instance_after_the_other() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let (mut shop, swap) = swapping(&mut client);
    // `a` is rebuilt: its address becomes that of `b`, which holds both until its own commit.
    shop.settle("deployment.commit", &swap, Some(&["a"]));
    assert_eq!(shop.held("b"), (vec!["10.0.0.10".into()], vec!["10.0.0.20".into()]));
    assert_eq!(shop.held("a"), (vec![], vec![]));
    shop.settle("deployment.commit", &swap, Some(&["b"]));
    assert_eq!((shop.held("a"), shop.held("b").0), ((vec!["10.0.0.20".into()], vec![]), vec!["10.0.0.10".into()]));
    assert!(shop.get()["uncommitted_since"].is_null());
}

/// A promise leaves nobody without an address: it is kept with the commit of the instance that gives, whenever that is.
#[test]
fn who_is_committed_before_the_one_that_gives_him_his_address_keeps_what_he_has_until_then() {
    for reverted in [false, true] {
        let server = TestServer::new();
        let mut client = server.with_lan();
        let mut shop = Deployment::of(&mut client, "shop");
        let first = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.20")]));
        shop.commit(&first);
        let next = shop.apply(&named(&[("a", "10.0.0.30"), ("b", "10.0.0.10")]));
        assert_eq!(slots(&next), [is("new", "30"), is("promised", "10")]);
        assert!(shop.settle("deployment.commit", &next, Some(&["b"])).is_empty());
        assert_eq!(shop.held("b"), (vec!["10.0.0.20".into()], vec![]));
        let method = if reverted { "deployment.revert" } else { "deployment.commit" };
        let released = shop.settle(method, &next, Some(&["a"]));
        let (a, b, gone) = if reverted { ("10", "20", "30") } else { ("30", "10", "20") };
        let address = |host: &str| format!("10.0.0.{host}");
        assert_eq!(released, [address(gone)]);
        assert_eq!([shop.held("a"), shop.held("b")], [a, b].map(|host| (vec![address(host)], vec![])));
        assert!(shop.get()["uncommitted_since"].is_null());
    }
}

/// A client that got no answer repeats its request, and must not take what happened to other instances for a refusal.
#[test]
fn a_repeat_for_some_instances_is_answered_as_done_whatever_became_of_the_others() {
    for [mine, others] in [["deployment.revert", "deployment.commit"], ["deployment.commit", "deployment.revert"]] {
        let server = TestServer::new();
        let mut client = server.with_lan();
        let mut shop = Deployment::of(&mut client, "shop");
        let plan = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.20")]));
        shop.settle(mine, &plan, Some(&["b"]));
        shop.settle(others, &plan, None);
        assert!(shop.settle(mine, &plan, Some(&["b"])).is_empty());
        let params = json!({"deployment": "shop", "plan": plan["plan"], "instances": ["a"]});
        assert_eq!(shop.client.kind(mine, params), "conflict");
    }
}

/// A deleted network grants nothing, so no promise is kept there, and the commit says so.
#[test]
fn a_promise_in_a_deleted_network_is_kept_once_that_is_restored() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let (mut shop, swap) = swapping(&mut client);
    let id = shop.client.ok("network.get", json!({"network": "lan"}))["id"].clone();
    shop.client.ok("network.delete", json!({"network": "lan", "force": true}));
    let plan = json!({"deployment": "shop", "plan": swap["plan"]});
    let data = shop.client.call("deployment.commit", plan.clone())["error"]["data"].clone();
    let expected = json!(["10.0.0.10", "10.0.0.20"]);
    assert_eq!((&data["kind"], &data["count"], &data["first"]), (&json!("in_use"), &json!(2), &expected), "{data}");
    assert!(shop.get()["uncommitted_since"].is_string());
    shop.client.ok("network.restore", json!({"network": id}));
    assert_eq!((shop.held("a").0, shop.held("b").0), (vec!["10.0.0.10".into()], vec!["10.0.0.20".into()]));
    assert!(shop.commit(&swap).is_empty());
    assert_eq!((shop.held("a").0, shop.held("b").0), (vec!["10.0.0.20".into()], vec!["10.0.0.10".into()]));
}

/// Either without what was promised there, or with what was there before.
#[test]
fn a_plan_that_promises_something_in_a_deleted_network_is_ended_otherwise() {
    for reverted in [false, true] {
        let server = TestServer::new();
        let mut client = server.with_lan();
        let (mut shop, swap) = swapping(&mut client);
        shop.client.ok("network.delete", json!({"network": "lan", "force": true}));
        if reverted {
            assert!(shop.revert(&swap).is_empty());
            assert_eq!((shop.held("a").0, shop.held("b").0), (vec!["10.0.0.10".into()], vec!["10.0.0.20".into()]));
        } else {
            let without = shop.apply(&json!([{"id": "a", "networks": []}, {"id": "b", "networks": []}]));
            assert_eq!(shop.commit(&without), ["10.0.0.10", "10.0.0.20"]);
        }
        assert!(shop.get()["uncommitted_since"].is_null());
    }
}

#[test]
fn what_was_promised_and_committed_is_not_taken_back_with_the_others() {
    let swapped = named(&[("a", "10.0.0.20"), ("b", "10.0.0.10"), ("c", "10.0.0.30")]);
    for committed in [&[&["a", "b"][..]][..], &[&["a"], &["b"]]] {
        let server = TestServer::new();
        let mut client = server.with_lan();
        let mut shop = Deployment::of(&mut client, "shop");
        let first = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.20")]));
        shop.commit(&first);
        let swap = shop.apply(&swapped);
        for instances in committed {
            assert!(shop.settle("deployment.commit", &swap, Some(instances)).is_empty());
        }
        assert_eq!(shop.revert(&swap), ["10.0.0.30"], "{committed:?}");
        assert_eq!((shop.held("a").0, shop.held("b").0), (vec!["10.0.0.20".into()], vec!["10.0.0.10".into()]));
    }
}

#[test]
fn a_promised_address_goes_to_nobody_else() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let (shop, _) = swapping(&mut client);
    for ask in [
        json!({"network": "lan", "address": "10.0.0.10", "owner": "thief"}),
        json!({"network": "lan", "address": "10.0.0.10", "owner": "thief", "force": true}),
        json!({"network": "lan", "address": "10.0.0.10", "scope": "shop", "owner": "b", "replace": true}),
    ] {
        assert_eq!(shop.client.kind("ip.claim", ask), "already_in_use");
    }
    let hand =
        json!({"network": "lan", "address": "10.0.0.10", "scope": "shop", "owner": "a", "to": {"owner": "thief"}});
    assert_eq!(shop.client.kind("ip.transfer", hand), "already_in_use");
    // If its holder releases it by itself, it goes to the other instance all the same.
    shop.client.ok("ip.release", json!({"network": "lan", "scope": "shop", "owner": "a"}));
    assert_eq!(holder(shop.client, "10.0.0.10"), "b");
}

#[test]
fn a_reverted_swap_leaves_everything_as_it_was() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let (mut shop, swap) = swapping(&mut client);
    assert!(shop.revert(&swap).is_empty());
    assert_eq!((shop.held("a"), shop.held("b").0), ((vec!["10.0.0.10".into()], vec![]), vec!["10.0.0.20".into()]));
    assert_eq!(shop.client.kind("deployment.commit", json!({"deployment": "shop", "plan": swap["plan"]})), "conflict");
    // The promise is over: what `a` releases is free.
    shop.client.ok("ip.release", json!({"network": "lan", "scope": "shop", "owner": "a"}));
    assert_eq!(holder(shop.client, "10.0.0.10"), "free");
}

#[test]
fn a_static_address_of_an_instance_that_is_gone_is_promised_and_what_the_taker_had_is_let_go() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("gone", "10.0.0.10"), ("b", "10.0.0.20")]));
    shop.commit(&first);
    let next = shop.apply(&named(&[("b", "10.0.0.10")]));
    assert_eq!(slots(&next), [is("promised", "10")]);
    assert_eq!(shop.held("gone"), (vec![], vec!["10.0.0.10".into()]));
    assert_eq!(shop.held("b"), (vec!["10.0.0.20".into()], vec![]));
    assert_eq!(shop.commit(&next), ["10.0.0.20"]);
    assert_eq!(shop.held("b"), (vec!["10.0.0.10".into()], vec![]));
}

#[test]
fn a_chain_of_promises_is_kept_from_end_to_end() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.20"), ("c", "10.0.0.30")]));
    shop.commit(&first);
    let next = shop.apply(&named(&[("a", "10.0.0.20"), ("b", "10.0.0.30"), ("c", "10.0.0.40")]));
    assert_eq!(slots(&next), [is("promised", "20"), is("promised", "30"), is("new", "40")]);
    // From the middle: `b` has nothing until `c` gives its address up, and `a` gets that of `b`.
    assert!(shop.settle("deployment.commit", &next, Some(&["b"])).is_empty());
    assert_eq!(shop.held("a"), (vec!["10.0.0.20".into()], vec!["10.0.0.10".into()]));
    assert_eq!(shop.commit(&next), ["10.0.0.10"]);
    assert_eq!(
        (shop.held("a").0, shop.held("b").0, shop.held("c").0),
        (vec!["10.0.0.20".into()], vec!["10.0.0.30".into()], vec!["10.0.0.40".into()])
    );
}

#[test]
fn an_address_that_its_holder_keeps_is_promised_to_nobody() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.20")]));
    shop.commit(&first);
    let twice = shop.refused(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.10")]));
    assert_eq!((&twice["data"]["kind"], &twice["data"]["instance"]), (&json!("already_in_use"), &json!("b")));
    let mut other = Deployment::of(&mut client, "other");
    let refused = other.refused(&named(&[("x", "10.0.0.10")]));
    assert_eq!(refused["data"]["held_by"]["scope"], "shop", "another deployment's is no promise: {refused}");
}

#[test]
fn a_plan_on_top_of_another_forgets_promises_that_are_wished_no_more() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let (mut shop, _) = swapping(&mut client);
    let back = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.20")]));
    assert_eq!(slots(&back), [is("kept", "10"), is("kept", "20")]);
    assert!(shop.commit(&back).is_empty());
    shop.client.ok("ip.release", json!({"network": "lan", "scope": "shop", "owner": "a"}));
    assert_eq!(holder(shop.client, "10.0.0.10"), "free");
}

#[test]
fn a_plan_whose_instances_were_all_committed_one_by_one_is_committed_whoever_came_first() {
    let orders = [["b", "gone", "c"], ["gone", "b", "c"], ["c", "b", "gone"]];
    for order in orders {
        let server = TestServer::new();
        let mut client = server.with_lan();
        let mut shop = Deployment::of(&mut client, "shop");
        let first = shop.apply(&named(&[("gone", "10.0.0.10")]));
        shop.commit(&first);
        let next = shop.apply(&named(&[("b", "10.0.0.10"), ("c", "10.0.0.30")]));
        for instance in order {
            let listed = shop.client.ok("deployment.list", json!({}));
            assert!(listed["deployments"][0].get("uncommitted_since").is_some(), "{order:?}: {listed}");
            shop.settle("deployment.commit", &next, Some(&[instance]));
        }
        let listed = shop.client.ok("deployment.list", json!({}));
        assert!(listed["deployments"][0].get("uncommitted_since").is_none(), "{order:?}: {listed}");
        let revert = json!({"deployment": "shop", "plan": next["plan"]});
        assert_eq!(shop.client.kind("deployment.revert", revert), "conflict", "{order:?}");
        assert_eq!(shop.held("b").0, ["10.0.0.10"]);
    }
}
