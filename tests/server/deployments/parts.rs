//! Plans that are ended for one instance after the other: when they are over, and how they ended then.

use serde_json::{Value, json};

use super::ends::not_ended;
use super::{Deployment, is, named, slots};
use crate::support::{Client, TestServer};

fn is_open(shop: &mut Deployment<'_>) -> bool {
    shop.get()["uncommitted_since"].is_string()
}

/// `a` holds .5 with a lease and the plan keeps it; `b` is new.
fn kept_with_a_lease<'a>(client: &'a mut Client) -> (Deployment<'a>, Value) {
    let leased = json!({"network": "lan", "address": "10.0.0.5", "owner": "a", "scope": "shop", "ttl_seconds": 10});
    client.ok("ip.claim", leased);
    let mut shop = Deployment::of(client, "shop");
    let plan = shop.apply(&named(&[("a", "10.0.0.5"), ("b", "10.0.0.6")]));
    assert_eq!(slots(&plan), [is("kept", "5"), is("new", "6")]);
    (shop, plan)
}

/// Whether the lease ends is still to be decided.
#[test]
fn what_a_plan_keeps_is_held_for_good_also_where_its_instance_is_committed_last() {
    for method in ["deployment.commit", "deployment.revert"] {
        for closing in [Some(&["a"][..]), None] {
            let server = TestServer::new();
            let mut client = server.with_lan();
            let (mut shop, plan) = kept_with_a_lease(&mut client);
            shop.settle(method, &plan, Some(&["b"]));
            assert!(is_open(&mut shop), "{method} of the other one");
            assert!(shop.settle("deployment.commit", &plan, closing).is_empty());
            assert!(!is_open(&mut shop));
            server.clock.advance_ms(20_000);
            assert_eq!(shop.held("a").0, ["10.0.0.5"], "{method} of the other one, {closing:?}");
        }
    }
}

#[test]
fn an_id_that_is_not_there_takes_no_plan_back() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.5")]));
    shop.commit(&first);
    let next = shop.apply(&json!([
        {"id": "a", "networks": [{"network": "lan", "address": "10.0.0.5"}]},
        {"id": "without", "networks": []},
    ]));
    assert_ne!(next["plan"], first["plan"]);
    assert!(shop.settle("deployment.revert", &next, Some(&["nobody"])).is_empty());
    assert!(shop.commit(&next).is_empty());
}

/// The message advises to commit the others. Doing so must not hide that the promise was not kept.
#[test]
fn a_promise_that_was_declined_is_told_also_once_the_others_were_ended() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    for (method, is_undone) in [("deployment.commit", false), ("deployment.revert", true)] {
        let mut shop = Deployment::of(&mut client, "shop");
        let first = shop.apply(&named(&[("b", "10.0.0.6")]));
        shop.commit(&first);
        let next = shop.apply(&named(&[("a", "10.0.0.6"), ("b", "10.0.0.7")]));
        let decline = json!({"network": "lan", "address": "10.0.0.6", "scope": "shop", "owner": "b"});
        shop.client.ok("ip.decline", decline);
        shop.settle(method, &next, Some(&["b"]));
        assert!(shop.get()["hindrance"].is_string() && is_open(&mut shop), "{method}");
        let (kind, message) = not_ended(&mut shop, "deployment.commit", &next, None);
        assert_eq!(kind, "conflict");
        assert!(message.contains("instance `a` was promised 10.0.0.6"), "{message}");
        // The instance with the promise is reverted like any other.
        assert!(shop.settle("deployment.revert", &next, Some(&["a"])).is_empty());
        assert!(!is_open(&mut shop) && shop.get().get("hindrance").is_none());
        let repeat = shop.client.call("deployment.revert", json!({"deployment": "shop", "plan": next["plan"]}));
        assert_eq!(repeat["result"].is_object(), is_undone, "{repeat}");
        shop.client.ok("deployment.delete", json!({"deployment": "shop"}));
        server.clock.advance_ms(86_401_000);
    }
}

/// The newcomer let nothing go for its promise.
#[test]
fn a_revert_that_would_leave_a_newcomer_that_was_committed_with_nothing_is_refused() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("b", "10.0.0.6")]));
    shop.commit(&first);
    let next = shop.apply(&named(&[("a", "10.0.0.6"), ("b", "10.0.0.7")]));
    assert_eq!(slots(&next), [is("promised", "6"), is("new", "7")]);
    assert!(shop.settle("deployment.commit", &next, Some(&["a"])).is_empty());
    for instances in [None, Some(&["b"][..])] {
        let (kind, message) = not_ended(&mut shop, "deployment.revert", &next, instances);
        assert_eq!(kind, "conflict", "{instances:?}: {message}");
        assert!(message.contains("instance `a`") && message.contains("until it gets 10.0.0.6"), "{message}");
    }
    assert!(shop.commit(&next).is_empty());
    assert_eq!((shop.held("a").0, shop.held("b").0), (vec!["10.0.0.6".into()], vec!["10.0.0.7".into()]));
}

#[test]
fn a_plan_of_which_some_was_committed_and_some_reverted_is_committed_whichever_came_first() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let ends = [("deployment.commit", &["a"][..]), ("deployment.revert", &["b"][..])];
    for ends in [ends, [ends[1], ends[0]]] {
        let mut shop = Deployment::of(&mut client, "shop");
        let plan = shop.apply(&named(&[("a", "10.0.0.5"), ("b", "10.0.0.6")]));
        for (method, instances) in ends {
            shop.settle(method, &plan, Some(instances));
        }
        assert!(shop.commit(&plan).is_empty(), "{ends:?}: the commit that closes it has nothing to do");
        assert_eq!((shop.held("a").0.len(), shop.held("b").0.len(), is_open(&mut shop)), (1, 0, false));
        shop.client.ok("deployment.delete", json!({"deployment": "shop"}));
    }
}

/// Some machines did not come up, and all the others have had their addresses for long: whoever closes the deploy does not
/// know that.
#[test]
fn a_commit_behind_a_revert_of_the_rest_finds_those_who_only_kept_theirs_as_it_would_leave_them() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.5")]));
    shop.commit(&first);
    let plan = shop.apply(&named(&[("a", "10.0.0.5"), ("b", "10.0.0.6"), ("c", "10.0.0.7")]));
    assert_eq!(slots(&plan), [is("kept", "5"), is("new", "6"), is("new", "7")]);
    assert_eq!(shop.settle("deployment.revert", &plan, Some(&["b", "c"])), ["10.0.0.6", "10.0.0.7"]);
    assert!(!is_open(&mut shop), "nothing is left to be decided");
    for (method, instances) in [
        ("deployment.commit", None),
        ("deployment.commit", Some(&["a"][..])),
        ("deployment.revert", None),
        ("deployment.commit", None),
    ] {
        assert!(shop.settle(method, &plan, instances).is_empty(), "{method} {instances:?}");
    }
    let (kind, message) = not_ended(&mut shop, "deployment.commit", &plan, Some(&["b"]));
    assert!(kind == "conflict" && message.contains("was already reverted"), "{message}");
    let again = shop.apply(&named(&[("a", "10.0.0.5"), ("b", "10.0.0.6"), ("c", "10.0.0.7")]));
    assert_ne!(again["plan"], plan["plan"]);
    assert_eq!(slots(&again), [is("kept", "5"), is("new", "6"), is("new", "7")]);
}

#[test]
fn a_plan_of_which_all_was_reverted_cannot_be_committed_in_however_many_parts_it_was() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let parts: [&[Option<&[&str]>]; 3] =
        [&[Some(&["a"]), Some(&["b"])], &[Some(&["a"]), None], &[Some(&["a", "b"]), None]];
    for parts in parts {
        let mut shop = Deployment::of(&mut client, "shop");
        let plan = shop.apply(&named(&[("a", "10.0.0.5"), ("b", "10.0.0.6")]));
        for some in parts {
            shop.settle("deployment.revert", &plan, *some);
        }
        let (kind, message) = not_ended(&mut shop, "deployment.commit", &plan, None);
        assert!(kind == "conflict" && message.contains("was reverted; apply the deployment again"), "{message}");
        shop.client.ok("deployment.delete", json!({"deployment": "shop"}));
    }
}

#[test]
fn a_plan_of_which_the_others_were_committed_is_not_over_while_what_it_took_back_can_be_reverted() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.5")]));
    shop.commit(&first);
    shop.apply(&named(&[("b", "10.0.0.6")]));
    let back = shop.apply(&named(&[("a", "10.0.0.5"), ("b", "10.0.0.6"), ("c", "10.0.0.7")]));
    assert_eq!(slots(&back), [is("kept", "5"), is("kept", "6"), is("new", "7")]);
    shop.settle("deployment.commit", &back, Some(&["b", "c"]));
    assert!(is_open(&mut shop));
    assert!(shop.settle("deployment.revert", &back, Some(&["a"])).is_empty());
    assert_eq!(shop.held("a"), (vec![], vec!["10.0.0.5".into()]), "as the plan before left it");
}

/// A commit of all also releases what the earlier plan left, so it has something to do, whichever instance was ended last.
#[test]
fn a_plan_of_which_some_was_reverted_to_what_an_earlier_one_left_is_not_over_before_a_commit_of_all() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let (commit, revert) = ("deployment.commit", "deployment.revert");
    let orders: [&[(&str, &[&str])]; 3] = [
        &[(revert, &["a", "b"]), (commit, &["c"])],
        &[(commit, &["c"]), (revert, &["a", "b"])],
        &[(commit, &["c"]), (revert, &["a"]), (revert, &["b"])],
    ];
    for ends in orders {
        let mut shop = Deployment::of(&mut client, "shop");
        let first = shop.apply(&named(&[("a", "10.0.0.5"), ("b", "10.0.0.6")]));
        shop.commit(&first);
        shop.apply(&named(&[("a", "10.0.0.15"), ("b", "10.0.0.16")]));
        let next = shop.apply(&named(&[("a", "10.0.0.25"), ("b", "10.0.0.26"), ("c", "10.0.0.27")]));
        for (method, instances) in ends {
            shop.settle(method, &next, Some(instances));
        }
        assert!(is_open(&mut shop), "{ends:?}");
        assert_eq!(shop.commit(&next), ["10.0.0.5", "10.0.0.6"], "{ends:?}");
        assert!(!is_open(&mut shop));
        assert_eq!((shop.held("a").0, shop.held("b").0), (vec!["10.0.0.15".into()], vec!["10.0.0.16".into()]));
        shop.client.ok("deployment.delete", json!({"deployment": "shop"}));
    }
}

/// Two instances swap and one of the addresses is declined: the message names that address, and a revert succeeds.
#[test]
fn who_is_told_that_a_promise_cannot_come_is_told_which_address_was_declined() {
    for (declined, owner, other) in [("10.0.0.6", "b", "10.0.0.5"), ("10.0.0.5", "a", "10.0.0.6")] {
        let server = TestServer::new();
        let mut client = server.with_lan();
        let mut shop = Deployment::of(&mut client, "shop");
        let first = shop.apply(&named(&[("a", "10.0.0.5"), ("b", "10.0.0.6")]));
        shop.commit(&first);
        let swap = shop.apply(&named(&[("a", "10.0.0.6"), ("b", "10.0.0.5")]));
        let decline = json!({"network": "lan", "address": declined, "scope": "shop", "owner": owner});
        shop.client.ok("ip.decline", decline);
        let (_, message) = not_ended(&mut shop, "deployment.commit", &swap, None);
        let said = format!("was promised {declined} of network `lan` in place of {other}, but {declined} was declined");
        assert!(message.contains(&said) && message.contains("or revert"), "{message}");
        shop.revert(&swap);
        assert!(!is_open(&mut shop));
    }
}

/// The request does not name the network that ends, or wishes something of another one: there is nothing to refuse.
#[test]
fn a_network_that_ends_meanwhile_of_which_nothing_is_asked_stands_in_no_ones_way() {
    let server = TestServer::new();
    let (mut client, mut other) = (server.client(), server.client());
    for round in 0..160 {
        let (name, gone, stays) = (format!("shop{round}"), format!("gone{round}"), format!("stays{round}"));
        for (network, cidr) in [(&gone, "10.0.0.0/29"), (&stays, "10.0.1.0/29")] {
            let create = json!({"name": network, "realm": name, "subnets": [{"cidr": cidr}]});
            client.ok("network.create", create);
        }
        let wish = |networks: Value| json!({"deployment": name, "instances": [{"id": "a", "networks": networks}]});
        let first = client.ok("deployment.apply", wish(json!([{"network": gone}, {"network": stays}])));
        client.ok("deployment.commit", json!({"deployment": name, "plan": first["plan"]}));
        let moves = wish(json!([{"network": stays, "address": "10.0.1.5"}]));
        let next = client.ok("deployment.apply", moves.clone());
        let id = client.ok("network.get", json!({"network": gone}))["id"].clone();
        client.ok("network.delete", json!({"network": gone, "force": true}));
        // The network's last holding: the network ends with it.
        let last = json!({"network": id, "address": "10.0.0.1", "force": true});
        let end = json!({"deployment": name, "plan": next["plan"]});
        let (method, params) = match round % 4 {
            0 => ("deployment.commit", end),
            1 => ("deployment.revert", end),
            2 => ("deployment.apply", wish(json!([{"network": stays, "address": "10.0.1.6"}]))),
            _ => ("deployment.plan", wish(json!([{"network": stays, "address": "10.0.1.6"}]))),
        };
        // Sent at the same time, in either order.
        if round % 8 < 4 {
            client.send(method, params);
            other.send("ip.release", last);
        } else {
            other.send("ip.release", last);
            client.send(method, params);
        }
        let answer = client.answer();
        // Refused if the commit came first, which releases the address as well.
        other.answer();
        assert!(answer["result"].is_object(), "{method}: {answer}");
    }
}
