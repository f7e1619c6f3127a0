//! Deployments after a restart, and when the store fails in the middle of something.

use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Deployment, automatic, is, named, slots};
use crate::faulty::Fault;
use crate::stores;
use crate::support::{Client, TestServer};

/// Long enough for an answer that does not wait.
const MOMENT: Duration = Duration::from_millis(150);

#[test]
fn a_restart_knows_plans_promises_and_what_is_obsolete() {
    let reopened = stores::reopened(4);
    let open = || TestServer::over(reopened(), |_| {});
    let server = open();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.20"), ("c", "10.0.0.30")]));
    shop.commit(&first);
    let swap = shop.apply(&named(&[("a", "10.0.0.20"), ("b", "10.0.0.10")]));
    let before = shop.get();
    drop(client);
    server.running.stop();
    let server = open();
    let mut client = server.client();
    let mut shop = Deployment::of(&mut client, "shop");
    assert_eq!(shop.get(), before);
    let again = shop.apply(&named(&[("a", "10.0.0.20"), ("b", "10.0.0.10")]));
    assert_eq!((&again["plan"], slots(&again)), (&swap["plan"], vec![is("promised", "20"), is("promised", "10")]));
    assert_eq!(shop.commit(&again), ["10.0.0.30"]);
    assert_eq!((shop.held("a").0, shop.held("b").0), (vec!["10.0.0.20".into()], vec!["10.0.0.10".into()]));
}

#[test]
fn an_apply_that_the_store_did_not_take_leaves_nothing_and_can_be_repeated() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "two", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let wishes = json!([{"id": "a", "networks": [{"network": "lan"}, {"network": "two"}]}]);
    server.store.next([Fault::Full]);
    let refused = client.call("deployment.apply", json!({"deployment": "shop", "instances": wishes}));
    assert_eq!(refused["error"]["data"]["kind"], "unavailable", "{refused}");
    assert_eq!(client.ok_soon("ip.list", json!({"scope": "shop", "count_only": true}))["count"], 0);
    assert_eq!(client.kind("deployment.get", json!({"deployment": "shop"})), "not_found");
    let mut shop = Deployment::of(&mut client, "shop");
    let applied = shop.apply(&wishes);
    assert_eq!(slots(&applied), [is("new", "2"), ("new".into(), "10.1.0.1".into())]);
    assert_eq!(shop.apply(&wishes)["plan"], applied["plan"]);
    shop.commit(&applied);
    assert_eq!(shop.client.ok("deployment.list", json!({}))["deployments"].as_array().unwrap().len(), 1);
    let next = shop.apply(&automatic(&["b"]));
    assert!(next["plan"].as_u64() > applied["plan"].as_u64());
}

/// How many loads of shards a list of deployments causes that do not exist.
fn loads_of_a_list(server: &TestServer, client: &mut Client) -> u64 {
    let before = server.store.loads_begun.load(Ordering::SeqCst);
    assert_eq!(client.ok_soon("deployment.list", json!({}))["deployments"], json!([]));
    server.store.loads_begun.load(Ordering::SeqCst) - before
}

#[test]
fn of_names_that_came_to_nothing_while_nothing_was_taken_nothing_is_remembered() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    server.store.always(Fault::Full);
    for n in 0..20 {
        let ask = json!({"deployment": format!("never-{n}"), "instances": []});
        assert_eq!(client.call("deployment.apply", ask)["error"]["data"]["applied"], false);
    }
    server.store.always(Fault::None);
    assert_eq!(loads_of_a_list(&server, &mut client), 0, "nothing is in doubt");
    // Where memory and store disagree, what the store has is read all the same.
    server.store.next([Fault::Mismatch]);
    let ask = json!({"deployment": "never", "instances": []});
    assert_eq!(client.call("deployment.apply", ask)["error"]["data"]["applied"], false);
    assert_eq!((loads_of_a_list(&server, &mut client), loads_of_a_list(&server, &mut client)), (1, 0));
}

#[test]
fn whatever_names_are_in_doubt_each_shard_is_read_for_all_of_them() {
    let server = TestServer::giving_up();
    let mut client = server.with_lan();
    server.store.always(Fault::UnknownNotApplied);
    let mut clients: Vec<Client> = (0..40).map(|_| server.client()).collect();
    // What had not been sent when a commit was given up is not in doubt: how much that is depends on how fast they come.
    let (mut round, mut unknown) = (0, 0);
    while unknown <= 8 {
        round += 1;
        assert!(round < 40, "{unknown} in doubt; more make a difference");
        for (n, client) in clients.iter_mut().enumerate() {
            client.send("deployment.apply", json!({"deployment": format!("unknown-{round}-{n}"), "instances": []}));
        }
        for client in &mut clients {
            let error = client.answer()["error"].clone();
            assert_eq!(error["data"]["kind"], "unavailable");
            unknown += usize::from(error["data"]["applied"] == "unknown");
        }
    }
    server.store.always(Fault::None);
    // The first name in doubt of a shard is read at once, the others together after it.
    let loads = loads_of_a_list(&server, &mut client);
    assert!((1..=8).contains(&loads), "{loads} loads of 4 shards");
    assert_eq!(loads_of_a_list(&server, &mut client), 0);
}

#[test]
fn no_answer_of_a_deployment_shows_what_is_not_durable() {
    if stores::not_over_redis(stores::PROOF_WAITS) {
        return;
    }
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([{"cidr": "10.0.0.0/24", "pools": [{"range": "10.0.0.10+4"}]}]);
    client.ok("network.create", json!({"name": "lan", "subnets": subnets}));
    let wishes = json!([{"id": "a", "fresh": true, "networks": [{"network": "lan"}]},
        {"id": "b", "networks": [{"network": "lan"}]}]);
    let applied = client.ok("deployment.apply", json!({"deployment": "shop", "instances": wishes}));
    client.ok("deployment.commit", json!({"deployment": "shop", "plan": applied["plan"]}));
    client.ok("ip.allocate", json!({"network": "lan", "owner": "other"}));
    let third = json!([{"id": "c", "networks": [{"network": "lan"}]}]);
    let open = client.ok("deployment.apply", json!({"deployment": "open", "instances": third}));
    server.store.hold();
    client.send("ip.release", json!({"network": "lan", "scope": "shop", "owner": "b"}));
    assert!(client.waits_still(MOMENT));
    let mut others: Vec<_> = (0..4).map(|_| server.client()).collect();
    let one = json!([wishes[1]]);
    others[0].send("deployment.plan", json!({"deployment": "shop", "instances": one}));
    others[1].send("deployment.apply", json!({"deployment": "shop", "instances": one, "dry_run": true}));
    others[2].send("deployment.revert", json!({"deployment": "open", "plan": open["plan"], "dry_run": true}));
    // What the plan led to has changed, and there is no room to do all of it again: that is refused, and the refusal waits,
    // too.
    others[3].send("deployment.apply", json!({"deployment": "shop", "instances": wishes}));
    for (at, other) in others.iter_mut().enumerate() {
        assert!(other.waits_still(MOMENT), "{at}");
    }
    server.store.let_go();
    assert_eq!(client.answer()["result"]["released"], json!(["10.0.0.11"]));
    for other in &mut others[..2] {
        let slot = other.answer()["result"]["instances"][0]["networks"][0].clone();
        assert_eq!(slot["reservation"]["address"], "10.0.0.11");
    }
    assert_eq!(others[2].answer()["result"]["released"][0]["address"], "10.0.0.13");
    assert_eq!(others[3].answer()["error"]["data"]["kind"], "not_enough_capacity");
}
