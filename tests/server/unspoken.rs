//! Nodes that share no version of the protocol between nodes, as where an upgrade skips releases: the register goes from one
//! to the other through Redis. A hook gives a node other versions than the product's.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use allod::peer::Versions;
use allod::serve::{Options, start};
use serde_json::{Value, json};

use crate::moved::{node, node_with, secret};
use crate::redis_server::Server;
use crate::support::{TestServer, http};

/// What only the later nodes of these tests speak.
fn later() -> Versions {
    Versions { lowest: Versions::SPOKEN.newest + 1, newest: Versions::SPOKEN.newest + 2 }
}

fn speaks_later(options: &mut Options) {
    options.hooks.peer_versions = Some((later().lowest, later().newest));
}

fn later_node(redis: &Server, name: &str, secret: &Path) -> TestServer {
    node_with(redis, name, secret, speaks_later)
}

fn readyz(node: &TestServer) -> (u16, String) {
    http(node.running.http, "GET /readyz", b"")
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The node is up, and not ready, and says what it waits for; what it is asked is refused.
fn waits_for(node: &TestServer, owner: &str, (theirs, ours): (Versions, Versions)) {
    let expected = format!(
        "node `{owner}`, which owns the register, speaks {theirs} of the protocol between nodes, this program {ours}: this node \
         takes the register over when `{owner}` lets go of it; drain or stop `{owner}`, or run a program here that speaks its \
         version"
    );
    until(&expected, || {
        let (status, said) = readyz(node);
        status == 503 && said.trim_end() == expected
    });
    let refused = node.client().call("ip.allocate", json!({"network": "lan", "owner": "nobody"}));
    assert_eq!(refused["error"]["data"]["kind"], "not_ready", "{refused}");
}

/// Holds an address for each of these owners. Checks that nobody has it yet.
fn grant(node: &TestServer, held: &mut BTreeMap<String, String>, owners: std::ops::Range<usize>) {
    let mut client = node.client();
    for owner in owners {
        let owner = format!("host/{owner}");
        let granted = client.ok("ip.allocate", json!({"network": "lan", "owner": owner}));
        let address = granted["address"].as_str().unwrap().to_owned();
        assert!(!held.values().any(|other| *other == address), "{owner} is given {address}: {held:?}");
        held.insert(owner, address);
    }
}

fn holds(node: &TestServer, held: &BTreeMap<String, String>) {
    let listed = node.client().ok("ip.list", json!({"network": "lan"}));
    let text = |held: &Value, member: &str| held[member].as_str().unwrap().to_owned();
    let listed = listed["reservations"].as_array().unwrap();
    let listed: BTreeMap<String, String> =
        listed.iter().map(|held| (text(held, "owner"), text(held, "address"))).collect();
    assert_eq!(listed, *held);
}

/// Drains a node by itself until another one has the register; returns which. On a busy machine the others may not be
/// reached in time, or may be late to take it.
fn drain(node: &TestServer) -> String {
    let end = Instant::now() + Duration::from_secs(120);
    let own = node.client().ok("server.info", json!({}))["node"].clone();
    loop {
        let drained = node.client().call("cluster.drain", json!({}));
        match drained["result"]["owner"].as_str() {
            Some(owner) if own != owner => return owner.to_owned(),
            Some(_) => {}
            None => {
                let kind = drained["error"]["data"]["kind"].as_str().unwrap();
                assert!(["unavailable", "overloaded"].contains(&kind), "{drained}");
            }
        }
        assert!(Instant::now() < end, "{drained}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_node_without_a_common_version_waits_and_takes_the_register_with_all_that_is_in_it_when_its_owner_is_drained() {
    let Some(redis) = Server::start(&[]) else { return };
    let (secret, present, later) = (secret(), Versions::SPOKEN, later());
    let mut held = BTreeMap::new();
    let old = node(&redis, "old", secret.path());
    let network = json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/28", "gateway": "10.0.0.1"}]});
    old.client().ok("network.create", network);
    grant(&old, &mut held, 0..3);
    let new = later_node(&redis, "new", secret.path());
    waits_for(&new, "old", (present, later));
    grant(&old, &mut held, 3..6);
    assert_eq!(readyz(&old).0, 200);

    assert_eq!(drain(&old), "new");
    until("it serves", || readyz(&new).0 == 200);
    holds(&new, &held);
    waits_for(&old, "new", (later, present));
    // The answer to a repeated request is the same; what is free goes to others, and there is no more of it than before.
    let again = new.client().ok("ip.allocate", json!({"network": "lan", "owner": "host/5"}));
    assert_eq!(again["address"], held["host/5"], "{again}");
    grant(&new, &mut held, 6..9);

    // And back.
    old.client().ok("cluster.drain", json!({"drain": false}));
    assert_eq!(drain(&new), "old");
    until("it serves again", || readyz(&old).0 == 200);
    waits_for(&new, "old", (present, later));
    grant(&old, &mut held, 9..13);
    holds(&old, &held);
    let full = old.client().call("ip.allocate", json!({"network": "lan", "owner": "host/13"}));
    assert!(full.get("error").is_some(), "{full}");
}

#[test]
fn a_node_without_a_common_version_takes_the_register_when_its_owner_is_stopped() {
    let Some(redis) = Server::start(&[]) else { return };
    let (secret, mut held) = (secret(), BTreeMap::new());
    let old = node(&redis, "old", secret.path());
    old.with_lan();
    let new = later_node(&redis, "new", secret.path());
    waits_for(&new, "old", (Versions::SPOKEN, later()));
    grant(&old, &mut held, 0..5);
    old.stop();
    until("it serves", || readyz(&new).0 == 200);
    holds(&new, &held);
    grant(&new, &mut held, 5..10);
    // The next node of its release follows it, and is ready.
    let next = later_node(&redis, "old", secret.path());
    assert_eq!(readyz(&next).0, 200);
    holds(&next, &held);
}

/// An owner that can ask a node to get ready hands over without a refusal.
#[test]
fn a_node_with_a_common_version_is_given_the_register_before_one_without() {
    let Some(redis) = Server::start(&[]) else { return };
    let (secret, mut held) = (secret(), BTreeMap::new());
    let old = node(&redis, "old", secret.path());
    old.with_lan();
    let new = later_node(&redis, "new", secret.path());
    let middle = node(&redis, "middle", secret.path());
    grant(&middle, &mut held, 0..3);
    assert_eq!(drain(&old), "middle");
    waits_for(&new, "middle", (Versions::SPOKEN, later()));
    for node in [&old, &middle] {
        until("it reaches the owner", || readyz(node).0 == 200);
        holds(node, &held);
    }
    // The other one is out of service.
    assert_eq!(drain(&middle), "new");
    until("it serves", || readyz(&new).0 == 200);
    holds(&new, &held);
}

/// Going back to an earlier release, for one. Nobody would serve if the drained node left the register to it.
#[test]
fn a_node_that_is_drained_takes_the_register_back_from_a_node_without_a_common_version_that_cannot_load_it() {
    let Some(redis) = Server::start(&[]) else { return };
    let (secret, mut held) = (secret(), BTreeMap::new());
    let old = node(&redis, "old", secret.path());
    old.with_lan();
    grant(&old, &mut held, 0..3);
    let new = later_node(&redis, "new", secret.path());
    waits_for(&new, "old", (Versions::SPOKEN, later()));
    new.store.is_newer.store(true, Ordering::SeqCst);
    // On a busy machine it may take the register too late.
    until("the drain is refused, as that node cannot load the register", || {
        until("it serves", || readyz(&old).0 == 200);
        let drained = old.client().call("cluster.drain", json!({}));
        if drained.get("result").is_some() {
            // It did not own the register just then, so there was nothing to let go of.
            old.client().ok("cluster.drain", json!({"drain": false}));
        }
        problem(&drained)
            == "node `new` took the register, and let go of it again, as a node does that cannot load it (its log says why): node \
                `old` is not drained, and takes it back"
    });
    until("it serves again", || readyz(&old).0 == 200);
    holds(&old, &held);
    grant(&old, &mut held, 3..5);
    let nodes = old.client().ok("cluster.nodes", json!({}));
    assert!(nodes["nodes"].as_array().unwrap().iter().all(|node| node["draining"] != true), "{nodes}");
    assert!(new.store.loads_begun.load(Ordering::SeqCst) > 0, "it never tried");
    // Nobody would have the register for as long as that node does not try again.
    let loads = || [&old, &new].map(|node| node.store.loads_begun.load(Ordering::SeqCst));
    let before = loads();
    let again = old.client().call("cluster.drain", json!({}));
    assert!(problem(&again).starts_with("node `new` could not load the register "), "{again}");
    assert_eq!(readyz(&old).0, 200);
    assert_eq!(loads(), before, "the register was let go of");
    // As it can now, it is another process that can.
    new.stop();
    let new = later_node(&redis, "new", secret.path());
    waits_for(&new, "old", (Versions::SPOKEN, later()));
    assert_eq!(drain(&old), "new");
    until("it serves", || readyz(&new).0 == 200);
    holds(&new, &held);
}

/// Why an order was refused as one that may be given again.
fn problem(answer: &Value) -> &str {
    let error = &answer["error"];
    let said = error["message"].as_str().filter(|_| error["data"]["kind"] == "unavailable");
    said.and_then(|said| said.strip_prefix("nothing was changed: ")).unwrap_or_default()
}

/// When that owner lets go is up to its operator, and whatever started the node waits until it is up.
#[test]
fn a_node_with_networks_that_must_exist_is_up_beside_an_owner_without_a_common_version_and_makes_them_when_it_can() {
    let Some(redis) = Server::start(&[]) else { return };
    let secret = secret();
    let old = node(&redis, "old", secret.path());
    let new = node_with(&redis, "new", secret.path(), |options| {
        speaks_later(options);
        let subnet = json!({"cidr": "10.0.0.0/24", "tags": null});
        let refused = json!({"name": "odd", "tags": null, "subnets": [subnet, subnet]});
        let made = json!({"name": "lan", "tags": null});
        options.networks = [refused, made].map(|input| serde_json::from_value(input).unwrap()).to_vec();
    });
    waits_for(&new, "old", (Versions::SPOKEN, later()));
    old.stop();
    until("it is made", || {
        let listed = new.client().call("network.list", json!({}));
        listed["result"]["networks"][0]["name"] == "lan"
    });
    assert_eq!(readyz(&new).0, 200);
}

/// A node is told what it must change, whatever it speaks.
#[test]
fn a_node_with_another_secret_is_refused_also_where_it_shares_no_version_with_the_owner() {
    let Some(redis) = Server::start(&[]) else { return };
    let (secret, other) = (secret(), secret());
    std::fs::write(other.path(), "a secret that no other node has").unwrap();
    let old = node(&redis, "old", secret.path());
    let mut options = options_of(&redis, "new", other.path());
    speaks_later(&mut options);
    let refused = String::from(start(options).unwrap_err());
    assert!(
        refused.contains("node `old`") && refused.contains("has a different cluster secret than node `new`"),
        "{refused}"
    );
    assert_eq!(readyz(&old).0, 200);
}

fn options_of(redis: &Server, name: &str, secret: &Path) -> Options {
    let mut options = Options::new(Default::default(), Arc::new(redis.open().unwrap())).on_free_ports();
    name.clone_into(&mut options.config.server.node);
    "127.0.0.1:0".clone_into(&mut options.config.cluster.listen);
    secret.clone_into(&mut options.config.cluster.secret_file);
    options
}
