//! Promises to an owner that releases everything, and promises that cannot be kept.

use serde_json::{Value, json};

use super::{Deployment, addresses_of, automatic, is, named, slots};
use crate::stores;
use crate::support::{Client, TestServer};

/// a and b hold .10 and .20 in `lan`, and the same in `wan` under another prefix; a plan gives a's addresses to `new`, and
/// b's to a.
fn promising(server: &TestServer) -> (Client, Value) {
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "wan", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let wish = |id: &str, last: u8| {
        let network = |name: &str, prefix: &str| json!({"network": name, "address": format!("{prefix}.{last}")});
        json!({"id": id, "networks": [network("lan", "10.0.0"), network("wan", "10.1.0")]})
    };
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&json!([wish("a", 10), wish("b", 20)]));
    shop.commit(&first);
    let next = shop.apply(&json!([wish("new", 10), wish("a", 20)]));
    assert!(slots(&next).iter().all(|(state, _)| state == "promised"), "{next}");
    (client, next)
}

fn everything_of(client: &mut Client, owner: &str) -> Vec<String> {
    addresses_of(&client.ok("ip.list", json!({"scope": "shop", "owner": owner}))["reservations"])
}

fn release(client: &mut Client, owner: &str, network: Option<&str>) -> Vec<String> {
    let mut params = json!({"scope": "shop", "owner": owner});
    if let Some(network) = network {
        params["network"] = json!(network);
    }
    let done = client.ok("owner.release", params);
    assert_eq!(done["more"], false);
    addresses_of(&done["released"])
}

/// It holds nothing: there are only notes in every network that it will get what others hold.
#[test]
fn who_lets_go_of_everything_is_promised_nothing_any_more() {
    let server = TestServer::new();
    let (mut client, plan) = promising(&server);
    assert!(release(&mut client, "new", None).is_empty());
    let mut shop = Deployment::of(&mut client, "shop");
    shop.commit(&plan);
    assert!(everything_of(&mut client, "new").is_empty());
    assert_eq!(everything_of(&mut client, "a"), ["10.0.0.20", "10.1.0.20"]);
    for free in ["10.0.0.10", "10.1.0.10"] {
        assert_eq!(client.ok("ip.get", json!({"address": free}))["state"], "free");
    }
}

#[test]
fn who_lets_go_of_everything_in_one_network_is_promised_still_what_is_in_another() {
    let server = TestServer::new();
    let (mut client, plan) = promising(&server);
    assert!(release(&mut client, "new", Some("wan")).is_empty());
    Deployment::of(&mut client, "shop").commit(&plan);
    assert_eq!(everything_of(&mut client, "new"), ["10.0.0.10"]);
}

/// What it has is promised to `new`, which gets it at once. What b has is promised to it, but b keeps that until the commit.
#[test]
fn who_lets_go_of_what_is_promised_to_another_gets_nothing_for_it() {
    let server = TestServer::new();
    let (mut client, plan) = promising(&server);
    assert_eq!(release(&mut client, "a", None), ["10.0.0.10", "10.1.0.10"]);
    assert_eq!(everything_of(&mut client, "new"), ["10.0.0.10", "10.1.0.10"]);
    let mut shop = Deployment::of(&mut client, "shop");
    assert_eq!(shop.commit(&plan), ["10.0.0.20", "10.1.0.20"]);
    assert!(everything_of(&mut client, "a").is_empty());
}

/// Two owners swap, so each holds an address that is promised to the other.
#[test]
fn of_two_that_swap_the_one_that_lets_go_of_everything_has_nothing() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.20")]));
    shop.commit(&first);
    let swap = shop.apply(&named(&[("a", "10.0.0.20"), ("b", "10.0.0.10")]));
    assert_eq!(release(shop.client, "a", None), ["10.0.0.10"]);
    assert_eq!(shop.held("b"), (vec!["10.0.0.10".to_owned()], vec!["10.0.0.20".to_owned()]));
    assert_eq!(shop.commit(&swap), ["10.0.0.20"]);
    assert_eq!(shop.held("a"), (vec![], vec![]));
}

/// a gave its address away with its own commit, and waits for c's. The revert of the others gives nothing back to it.
#[test]
fn a_revert_gives_nothing_back_to_who_let_go_of_everything() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10"), ("c", "10.0.0.20")]));
    shop.commit(&first);
    let next = shop.apply(&named(&[("b", "10.0.0.10"), ("a", "10.0.0.20")]));
    shop.settle("deployment.commit", &next, Some(&["a"]));
    assert_eq!(shop.held("a"), (vec![], vec![]));
    assert!(release(shop.client, "a", None).is_empty());
    shop.revert(&next);
    assert_eq!(shop.held("a"), (vec![], vec![]));
    assert_eq!(shop.held("c").0, ["10.0.0.20"]);
    assert_eq!(shop.client.ok("ip.get", json!({"address": "10.0.0.10"}))["state"], "free");
}

#[test]
fn a_scope_that_lets_go_of_everything_has_nothing_behind_a_commit() {
    let server = TestServer::new();
    let (mut client, plan) = promising(&server);
    let done = client.ok("scope.release", json!({"scope": "shop"}));
    assert_eq!(done["released"].as_array().unwrap().len(), 4);
    let mut shop = Deployment::of(&mut client, "shop");
    assert!(shop.commit(&plan).is_empty());
    assert_eq!(client.ok("ip.list", json!({"scope": "shop", "count_only": true}))["count"], 0);
}

/// `new` is to get .10, which `gone` lets go, but declines before the commit.
fn declined(client: &mut Client) -> (Value, Value) {
    let mut shop = Deployment::of(client, "shop");
    let first = shop.apply(&named(&[("gone", "10.0.0.10"), ("b", "10.0.0.20")]));
    shop.commit(&first);
    let wishes = named(&[("new", "10.0.0.10"), ("b", "10.0.0.20")]);
    let next = shop.apply(&wishes);
    assert_eq!(slots(&next), [is("promised", "10"), is("kept", "20")]);
    assert!(shop.get().get("hindrance").is_none());
    let decline = json!({"network": "lan", "address": "10.0.0.10", "scope": "shop", "owner": "gone"});
    client.ok("ip.decline", decline);
    (wishes, next)
}

#[test]
fn who_was_promised_what_is_declined_learns_so_at_once_and_gets_it_when_the_probation_is_over() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let (wishes, plan) = declined(&mut client);
    let mut shop = Deployment::of(&mut client, "shop");
    let hindrance = shop.get()["hindrance"].as_str().unwrap().to_owned();
    assert!(hindrance.contains("instance `new` was promised 10.0.0.10 of network `lan`"), "{hindrance}");
    let params = json!({"deployment": "shop", "plan": plan["plan"]});
    let error = shop.client.call("deployment.commit", params)["error"].clone();
    let told = (&error["data"]["kind"], &error["data"]["reason"], error["message"].as_str().unwrap());
    assert_eq!(told, (&json!("conflict"), &json!("promise"), hindrance.as_str()));
    for method in ["deployment.plan", "deployment.apply"] {
        let data = shop.client.call(method, shop.params(&wishes))["error"]["data"].clone();
        assert_eq!((&data["kind"], &data["instance"]), (&json!("reserved"), &json!("new")), "{method}");
        assert_eq!(data["address"], "10.0.0.10");
    }
    server.clock.advance_ms(86_401_000);
    assert_eq!(slots(&shop.apply(&wishes)), [is("new", "10"), is("kept", "20")]);
    assert!(shop.get().get("hindrance").is_none());
    assert!(shop.commit(&plan).is_empty());
}

/// The other instances are committed by name; or the plan is reverted; or other wishes are committed; or the promise is
/// released.
#[test]
fn a_plan_of_which_a_promise_was_declined_is_ended_otherwise() {
    let otherwise: [fn(&mut Deployment<'_>, &Value); 4] = [
        |shop, plan| drop(shop.settle("deployment.commit", plan, Some(&["b", "gone"]))),
        |shop, plan| drop(shop.revert(plan)),
        |shop, _| {
            let next = shop.apply(&automatic(&["new", "b"]));
            shop.commit(&next);
        },
        |shop, plan| {
            assert!(release(shop.client, "new", None).is_empty());
            shop.commit(plan);
        },
    ];
    for end in otherwise {
        let server = TestServer::new();
        let mut client = server.with_lan();
        let (_, plan) = declined(&mut client);
        end(&mut Deployment::of(&mut client, "shop"), &plan);
    }
}

/// Nothing else of the deployment is in that network, but it is asked all the same.
#[test]
fn a_promise_that_was_declined_is_told_where_nothing_else_is_held_also_after_a_restart() {
    let reopened = stores::reopened(4);
    let open = || TestServer::over(reopened(), |_| {});
    let server = open();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("gone", "10.0.0.10")]));
    shop.commit(&first);
    let next = shop.apply(&named(&[("new", "10.0.0.10")]));
    shop.client.ok("ip.decline", json!({"network": "lan", "address": "10.0.0.10", "scope": "shop", "owner": "gone"}));
    drop(client);
    server.running.stop();
    let server = open();
    let mut client = server.client();
    let mut shop = Deployment::of(&mut client, "shop");
    assert!(shop.get()["hindrance"].is_string());
    let params = json!({"deployment": "shop", "plan": next["plan"]});
    assert_eq!(shop.client.call("deployment.commit", params)["error"]["data"]["reason"], "promise");
}
