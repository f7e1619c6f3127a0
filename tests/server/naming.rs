//! Which names networks, subnets and pools may have, and under which name they are known while it changes.

use serde_json::json;

use crate::support::{Client, TestServer};

/// All of them find the network by that name before the first rename is durable.
#[test]
fn of_several_who_rename_a_network_by_its_old_name_at_once_the_first_one_does() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    server.store.hold();
    let mut clients: Vec<_> = (0..4).map(|_| server.client()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        client.hand_in("network.update", json!({"network": "lan", "set": {"name": format!("new-{at}")}}));
    }
    server.store.let_go();
    let answers: Vec<_> = clients.iter_mut().map(Client::answer).collect();
    let (renamed, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.get("result").is_some());
    assert_eq!(renamed.len(), 1, "{answers:?}");
    for answer in refused {
        assert_eq!(answer["error"]["data"]["kind"], "not_found", "{answer}");
    }
    let name = renamed[0]["result"]["name"].clone();
    assert_eq!(client.ok("network.get", json!({"network": name}))["subnets"][0]["cidr"], "10.0.0.0/24");
}

/// After the address comes something that is no part of a range or prefix.
#[test]
fn a_name_that_begins_with_an_address_and_is_none_names_what_it_was_given_to() {
    let server = TestServer::new();
    let mut client = server.client();
    let pools = json!([{"range": "10.0.0.0/25", "name": "10.0.0.1-web"}]);
    let subnets = json!([{"cidr": "10.0.0.0/24", "name": "10.0.0.0/24-lan", "pools": pools}]);
    client.ok("network.create", json!({"name": "10.0.0.0-lan", "subnets": subnets}));
    let ask = json!({"network": "10.0.0.0-lan", "subnet": "10.0.0.0/24-lan", "pool": "10.0.0.1-web", "owner": "a"});
    assert_eq!(client.ok("ip.allocate", ask)["pool_name"], "10.0.0.1-web");
    let set = json!({"network": "10.0.0.0-lan", "subnet": "10.0.0.0/24-lan", "set": {"gateway": "10.0.0.254"}});
    assert_eq!(client.ok("subnet.modify", set)["gateway"], "10.0.0.254");
    let found = client.ok("ip.list", json!({"network": "10.0.0.0-lan", "pool": "10.0.0.1-web"}));
    assert_eq!(found["reservations"].as_array().map(Vec::len), Some(1), "{found}");
    client.ok("pool.remove", json!({"network": "10.0.0.0-lan", "pool": "10.0.0.1-web"}));
    for text in ["10.0.0.0-10.0.0.300", "10.0.0.0-20", "10.0.0.5/24"] {
        let ask = json!({"network": "10.0.0.0-lan", "pool": text, "owner": "b"});
        assert_eq!(client.kind("ip.allocate", ask), "invalid_argument", "{text}");
    }
}
