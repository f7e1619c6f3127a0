//! What refusals say of what stands in the way is so, and what they say to do can be done.

use serde_json::{Value, json};

use crate::support::{Client, TestServer};

/// The error of a refused request.
#[track_caller]
fn error(client: &mut Client, method: &str, params: Value) -> Value {
    let answer = client.call(method, params);
    assert!(answer["error"]["data"]["kind"].is_string(), "{answer}");
    answer["error"].clone()
}

fn message(error: &Value) -> &str {
    error["message"].as_str().unwrap()
}

/// Its name may be another's, and names nothing otherwise.
#[test]
fn an_overlap_with_a_network_that_is_remembered_names_it_by_its_id_and_says_how_its_space_comes_free() {
    let server = TestServer::new();
    let mut client = server.client();
    let lan = |name: &str| json!({"name": name, "subnets": [{"cidr": "10.8.0.0/24"}]});
    let id = client.ok("network.create", lan("gone"))["id"].clone();
    client.ok("ip.allocate", json!({"network": "gone", "owner": "w"}));
    client.ok("network.delete", json!({"network": "gone", "force": true}));
    let with = json!({"network": id, "cidr": "10.8.0.0/24"});
    for name in ["gone", "other"] {
        let refused = error(&mut client, "network.create", lan(name));
        assert_eq!(refused["data"]["with"], with, "{refused}");
        let begins = format!(
            "10.8.0.0/24 overlaps 10.8.0.0/24 of network {} (deleted; it was called `gone`), which is remembered while anything \
             is held in it",
            id.as_str().unwrap()
        );
        assert!(message(&refused).starts_with(&begins) && message(&refused).contains("network.restore"), "{refused}");
    }
    let itself = error(&mut client, "subnet.add", json!({"network": id, "cidr": "10.8.0.0/25"}));
    assert_eq!(itself["data"]["with"], with, "{itself}");
    // A living one of that name has nothing to do with it.
    client.ok("network.create", json!({"name": "gone", "subnets": [{"cidr": "10.9.0.0/24"}]}));
    let refused = error(&mut client, "subnet.add", json!({"network": "gone", "cidr": "10.8.0.0/25"}));
    assert_eq!(refused["data"]["with"], with, "{refused}");
    let living = error(&mut client, "network.create", json!({"name": "x", "subnets": [{"cidr": "10.9.0.0/25"}]}));
    assert_eq!(living["data"]["with"], json!({"network": "gone", "cidr": "10.9.0.0/24"}), "{living}");
    assert!(!message(&living).contains("deleted"), "{living}");
    // As it is told: by the id it is seen what is held, and when that is let go the space is free.
    assert_eq!(client.ok("ip.list", json!({"network": id}))["reservations"][0]["owner"], "w");
    client.ok("ip.release", json!({"network": id, "owner": "w"}));
    client.ok("network.create", lan("other"));
}

/// A network that only has written its addresses down guards them as well.
#[test]
fn what_a_dynamic_network_recorded_before_it_was_deleted_is_said_to_be_of_that_one() {
    let server = TestServer::new();
    let mut client = server.client();
    let id = client.ok("network.create", json!({"name": "cloud", "kind": "dynamic"}))["id"].clone();
    client.ok("ip.bind", json!({"network": "cloud", "owner": "w", "address": "172.16.0.5", "claimant": "vm"}));
    client.ok("network.delete", json!({"network": "cloud", "force": true}));
    let refused = error(&mut client, "network.create", json!({"name": "lan", "subnets": [{"cidr": "172.16.0.0/24"}]}));
    assert_eq!(refused["data"]["with"], json!({"network": id, "cidr": "172.16.0.5/32"}), "{refused}");
    assert!(message(&refused).contains("(deleted; it was called `cloud`)"), "{refused}");
}
