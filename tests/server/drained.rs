//! Several nodes of one register in this process; some are taken out of service.

use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use allod::actors::reactor::Reactor;
use serde_json::json;

use crate::moved::{node, node_with, secret};
use crate::redis_server::Server;
use crate::self_check::until_found;
use crate::support::{TestServer, wait_for};

/// A session that saw this node own the register may be about to ask its actors, over HTTP as well as over TCP. If the node
/// released the register before that, the request would be refused.
#[test]
fn the_register_is_given_away_when_every_session_has_seen_it() {
    let Some(redis) = Server::start(&[]) else { return };
    let secret = secret();
    let owner = node(&redis, "north", secret.path());
    owner.with_lan();
    let other = node(&redis, "south", secret.path());
    // Not the thread of the committer, which is asked last.
    is_given_away_once_this_is_free(&owner, &owner.running.reactors[1], &other);
    is_given_away_once_this_is_free(&other, &other.running.http_thread, &owner);
}

fn is_given_away_once_this_is_free(owner: &TestServer, thread: &Reactor, other: &TestServer) {
    let name = |node: &TestServer| node.client().ok("server.info", json!({}))["node"].clone();
    let (owner, next) = (name(owner), name(other));
    let mut client = other.client();
    client.ok("cluster.drain", json!({"node": next, "drain": false}));
    let (release, stuck) = sync_channel::<()>(1);
    thread.spawn_fn(move || _ = stuck.recv());
    client.send("cluster.drain", json!({"node": owner}));
    assert!(client.waits_still(Duration::from_millis(2_000)), "it is given away although a session is at work");
    drop(release);
    let drained = client.answer();
    assert_eq!(drained["result"]["owner"], next, "{drained}");
    assert_eq!(client.ok("ip.allocate", json!({"network": "lan", "owner": "web/0"}))["address"], "10.0.0.2");
}

/// A rolling upgrade goes on with the next node as soon as the previous one is ready.
#[test]
fn a_node_that_is_ready_is_drained_by_way_of_any_other() {
    let Some(redis) = Server::start(&[]) else { return };
    let secret = secret();
    let _owner = node(&redis, "north", secret.path());
    let other = node(&redis, "south", secret.path());
    for name in ["east", "west"] {
        let next = node(&redis, name, secret.path());
        let ready = crate::support::http(next.running.http, "GET /readyz", b"");
        assert_eq!(ready.0, 200, "{ready:?}");
        let drained = other.client().ok("cluster.drain", json!({"node": name, "dry_run": true}));
        assert_eq!((&drained["node"], &drained["draining"]), (&json!(name), &json!(true)), "{drained}");
    }
    let unknown = other.client().call("cluster.drain", json!({"node": "nobody"}));
    assert_eq!(unknown["error"]["data"]["kind"], "not_found", "{unknown}");
}

/// A new owner starts from the store and asks nobody.
#[test]
fn an_owner_of_which_memory_and_store_differ_is_not_drained_and_what_it_has_in_memory_is_shown_still() {
    let Some(redis) = Server::start(&[]) else { return };
    let secret = secret();
    let every = Some(Duration::from_millis(20));
    let owner = node_with(&redis, "north", secret.path(), |options| options.hooks.self_check_every = every);
    let other = node(&redis, "south", secret.path());
    let mut client = owner.with_lan();
    let held = client.ok("ip.allocate", json!({"network": "lan", "owner": "a"}))["address"].clone();
    let is_drained = |owner: &TestServer| {
        let nodes = owner.client().ok("cluster.nodes", json!({}))["nodes"].clone();
        nodes.as_array().unwrap().iter().find(|node| node["name"] == "north").unwrap()["draining"].clone()
    };
    *owner.store.beside_lacks.lock().unwrap() = Some((held.as_str().unwrap().parse().unwrap(), u64::MAX));
    until_found(&owner, "differs", 1.0);
    for params in [json!({"node": "north", "dry_run": true}), json!({"node": "north"})] {
        let refused = other.client().call("cluster.drain", params)["error"].clone();
        let said = refused["message"].as_str().unwrap();
        assert_eq!((&refused["data"]["kind"], is_drained(&owner)), (&json!("in_use"), json!(false)), "{refused}");
        assert!(said.contains("network `lan` was stopped") && said.contains("in memory would be gone"), "{said}");
    }
    let got = other.client().ok("ip.get", json!({"network": "lan", "address": held}));
    assert_eq!(got["reservation"]["owner"], "a", "{got}");
    // Another node can be taken out of service as usual.
    assert_eq!(other.client().ok("cluster.drain", json!({"node": "south", "dry_run": true}))["draining"], true);
}

/// The former owner alone has what Redis lost, and the successor would go on without that.
#[test]
fn what_redis_loses_between_two_owners_is_given_back_by_the_one_that_let_go() {
    let Some(mut redis) = Server::start(&[]) else { return };
    let secret = secret();
    let owner = node(&redis, "north", secret.path());
    let mut client = owner.with_lan();
    let other = node(&redis, "south", secret.path());
    let () = redis.ask(&["SAVE"]);
    let held = ["a", "b", "c"].map(|owner| client.ok("ip.allocate", json!({"network": "lan", "owner": owner})));
    other.store.hold_takes();
    let mut operator = other.client();
    operator.send("cluster.drain", json!({"node": "north"}));
    wait_for("that nobody owns it", || other.store.takes_wait.load(Ordering::SeqCst) > 0);
    redis.kill();
    redis.begin();
    other.store.let_takes_go();
    let mut client = other.client();
    // What is put aside in place of that is brought by nobody here.
    for held in held {
        let ask = json!({"network": "lan", "address": held["address"]});
        let got = client.ok_after("ip.get", &ask, 1_200, |answer| answer.get("error").is_some());
        assert_eq!(got["reservation"]["owner"], held["owner"], "{got}");
    }
}
