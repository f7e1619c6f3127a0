//! Limits count what a deployment holds, what it would hold, and what is promised to it.

use serde_json::{Value, json};

use super::{Deployment, automatic, is, named, slots};
use crate::support::{Client, TestServer};

fn limited(server: &TestServer, limits: Value) -> Client {
    let mut client = server.with_lan();
    client.ok("network.update", json!({"network": "lan", "set": {"limits": limits}}));
    client
}

fn allocate(owner: &str, slot: &str) -> Value {
    json!({"network": "lan", "scope": "shop", "owner": owner, "slot": slot})
}

/// `a` at .10, committed; then a plan of `b` alone, which is promised .10.
fn promised<'a>(client: &'a mut Client) -> (Deployment<'a>, Value) {
    let mut shop = Deployment::of(client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10")]));
    shop.commit(&first);
    let second = shop.apply(&named(&[("b", "10.0.0.10")]));
    assert_eq!(slots(&second), [is("promised", "10")]);
    (shop, second)
}

#[test]
fn what_is_promised_to_an_owner_counts_for_its_limit_from_the_apply_on() {
    let server = TestServer::new();
    let mut client = limited(&server, json!({"per_owner": 1}));
    let (shop, second) = promised(&mut client);
    let refused = shop.client.call("ip.allocate", allocate("b", "9"))["error"].clone();
    assert_eq!(
        (&refused["data"]["kind"], &refused["data"]["count"]),
        (&json!("quota_exceeded"), &json!(2)),
        "{refused}"
    );
    // A grant in the promised slot does not count twice: it goes when the promised address comes.
    assert_eq!(shop.client.ok("ip.allocate", allocate("b", "0"))["created"], true);
    assert_eq!(shop.client.kind("ip.allocate", allocate("b", "9")), "quota_exceeded");
    let mut shop = shop;
    shop.commit(&second);
    assert_eq!(shop.held("b").0, ["10.0.0.10"]);
    assert_eq!(shop.client.kind("ip.allocate", allocate("b", "9")), "quota_exceeded");
}

#[test]
fn a_promise_that_is_taken_back_counts_no_more() {
    let server = TestServer::new();
    let mut client = limited(&server, json!({"per_owner": 1}));
    let (mut shop, second) = promised(&mut client);
    shop.revert(&second);
    assert_eq!(shop.client.ok("ip.allocate", allocate("b", "9"))["created"], true);
}

#[test]
fn a_promise_counts_once_for_its_scope() {
    let server = TestServer::new();
    let mut client = limited(&server, json!({"per_scope": 2}));
    let (mut shop, second) = promised(&mut client);
    assert_eq!(shop.apply(&named(&[("b", "10.0.0.10")]))["plan"], second["plan"], "nor twice with a repeat");
    shop.client.ok("ip.allocate", allocate("c", "0"));
    assert_eq!(shop.client.kind("ip.allocate", allocate("d", "0")), "quota_exceeded");
    shop.commit(&second);
    assert_eq!(shop.client.kind("ip.allocate", allocate("d", "0")), "quota_exceeded");
    shop.client.ok("ip.release", allocate("b", "0"));
    assert_eq!(shop.client.ok("ip.allocate", allocate("d", "0"))["created"], true);
}

#[test]
fn a_promise_counts_where_its_subnet_moves_to() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let (shop, _) = promised(&mut client);
    let limits = json!({"per_owner": 1});
    shop.client.ok("network.create", json!({"name": "to", "subnets": [{"cidr": "10.1.0.0/24"}], "limits": limits}));
    let held = json!({"network": "to", "scope": "shop", "owner": "b", "slot": "9"});
    shop.client.ok("ip.allocate", held.clone());
    let subnet_move = json!({"network": "lan", "subnet": "10.0.0.0/24", "to": "to"});
    let refused = shop.client.call("subnet.move", subnet_move.clone())["error"].clone();
    assert_eq!(
        (&refused["data"]["kind"], &refused["data"]["count"]),
        (&json!("quota_exceeded"), &json!(2)),
        "{refused}"
    );
    shop.client.ok("ip.release", held.clone());
    shop.client.ok("subnet.move", subnet_move);
    assert_eq!(shop.client.kind("ip.allocate", held), "quota_exceeded");
}

#[test]
fn instances_that_swap_hold_no_more_than_before() {
    let server = TestServer::new();
    let mut client = limited(&server, json!({"per_owner": 1, "per_scope": 2}));
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.20")]));
    shop.commit(&first);
    let swap = shop.apply(&named(&[("a", "10.0.0.20"), ("b", "10.0.0.10")]));
    assert_eq!(slots(&swap), [is("promised", "20"), is("promised", "10")]);
    let refused = shop.client.call("ip.allocate", allocate("c", "0"))["error"].clone();
    assert_eq!(
        (&refused["data"]["kind"], &refused["data"]["count"]),
        (&json!("quota_exceeded"), &json!(3)),
        "{refused}"
    );
    shop.commit(&swap);
    assert_eq!((shop.held("a").0, shop.held("b").0), (vec!["10.0.0.20".into()], vec!["10.0.0.10".into()]));
}

/// Obsolete reservations do not count, as the protocol's page says. A failed plan can be reverted all the same, and the
/// description of limits says so.
#[test]
fn a_revert_gives_back_what_was_held_also_where_others_have_used_the_limit_meanwhile() {
    let server = TestServer::new();
    let mut client = limited(&server, json!({"per_owner": 1, "per_scope": 2}));
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["a", "b"]));
    shop.commit(&first);
    let without = shop.apply(&automatic(&["a"]));
    shop.client.ok("ip.allocate", allocate("c", "0"));
    assert_eq!(shop.client.kind("ip.allocate", allocate("d", "0")), "quota_exceeded");
    shop.revert(&without);
    assert_eq!(shop.held("b").0.len(), 1, "it is held again");
    let refused = shop.client.call("ip.allocate", allocate("d", "0"))["error"].clone();
    assert_eq!((&refused["data"]["kind"], &refused["data"]["count"]), (&json!("quota_exceeded"), &json!(4)));
    shop.client.ok("ip.release", allocate("c", "0"));
    assert_eq!(shop.client.kind("ip.allocate", allocate("d", "0")), "quota_exceeded", "two are held");
    // An apply that wishes it again is bound by the limit: unlike a revert it can wish for something else.
    let without = shop.apply(&automatic(&["a"]));
    shop.client.ok("ip.allocate", allocate("c", "0"));
    let wishes = json!({"deployment": "shop", "instances": automatic(&["a", "b", "c"])});
    assert_eq!(shop.client.kind("deployment.apply", wishes), "quota_exceeded");
    shop.revert(&without);
    let document = shop.client.ok("rpc.discover", json!({})).to_string();
    assert!(document.contains("revert makes them current again even beyond a limit"));
}

#[test]
fn a_limit_that_is_exceeded_tells_what_the_whole_request_would_hold() {
    let server = TestServer::new();
    let mut client = limited(&server, json!({"per_scope": 2}));
    let mut shop = Deployment::of(&mut client, "shop");
    let refused = shop.refused(&automatic(&["a", "b", "c", "d"]));
    assert_eq!((&refused["data"]["count"], &refused["data"]["max"]), (&json!(4), &json!(2)), "{refused}");
    assert_eq!(
        refused["message"],
        "instance `c`: scope `shop` would hold 4 reservations in network `lan`, but its limit is 2; ask for fewer, release \
         some, or raise `limits.per_scope`"
    );
    shop.apply(&automatic(&["a"]));
    let ips = json!({"network": "lan", "scope": "shop", "owner": "b", "ips": [{}, {}]});
    let refused = client.call("ip.acquire", ips)["error"].clone();
    assert_eq!((&refused["data"]["count"], &refused["data"]["index"]), (&json!(3), &json!(1)), "{refused}");
}
