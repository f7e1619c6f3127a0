//! The past as the command line tells it, after a restart and for a network that no longer exists.

use serde_json::Value;

use crate::server::Starting;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What a command prints on stdout.
fn told(server: &crate::server::Server, arguments: &[&str]) -> String {
    server.allod_ok(arguments)
}

#[test]
fn who_held_an_address_is_told_after_its_network_was_deleted_and_the_server_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Starting::new(&data).ready();
    told(&server, &["network", "create", "lan", "--subnet", "10.0.0.0/24,gateway=10.0.0.1"]);
    told(&server, &["ip", "allocate", "lan", "--owner", "web/0", "--reason", "a new machine"]);
    // More events of one address than the server tells in one answer.
    for _ in 0..60 {
        told(&server, &["ip", "renew", "lan", "--owner", "web/0", "--ttl", "1h"]);
        told(&server, &["ip", "renew", "lan", "--owner", "web/0", "--permanent"]);
    }
    let held = lines(&told(&server, &["history", "--owner", "web/0", "--format", "json"]));
    assert_eq!(held.len(), 121);
    let then = held[60]["time"].as_str().unwrap().to_owned();
    assert!(told(&server, &["who", "10.0.0.2"]).contains("granted by  anonymous"));
    told(&server, &["ip", "release", "lan", "--owner", "web/0", "--reason", "moved away", "--yes"]);
    told(&server, &["network", "delete", "lan", "--yes"]);
    server.stop();

    let server = Starting::new(&data).ready();
    let who = told(&server, &["who", "10.0.0.2", "--at", &then]);
    for fact in ["network     lan", "held by     `web/0`", "why         a new machine", "granted by  anonymous"] {
        assert!(who.contains(fact), "{fact}: {who}");
    }
    let nobody = told(&server, &["who", "10.0.0.2", "--at", "now"]);
    for fact in ["held by  nobody", "before   released at ", "in lan (`web/0`) by anonymous: moved away"] {
        assert!(nobody.contains(fact), "{fact}: {nobody}");
    }
    let all = lines(&told(&server, &["history", "--network", "lan", "--format", "json"]));
    let types: Vec<&str> = all.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((types[0], types[1], types[types.len() - 1]), ("network_created", "granted", "network_deleted"));
    assert_eq!(all.len(), 124);
    // A part of the history, and the rest from where that ended.
    let some = lines(&told(&server, &["history", "--network", "lan", "--limit", "101", "--format", "json"]));
    let last = some[100]["cursor"].as_str().unwrap();
    let rest = lines(&told(&server, &["history", "--network", "lan", "--after", last, "--format", "json"]));
    assert_eq!([some, rest].concat(), all);
    let at = lines(&told(&server, &["history", "10.0.0.2", "--at", &then, "--format", "json"]));
    assert_eq!(at.len(), 1);
    assert!(told(&server, &["history", "10.0.0.2", "--from", "1h", "--to", "now"]).lines().count() == 123);
}

#[test]
fn who_held_an_address_of_a_network_that_is_deleted_and_remembered_is_told_by_the_name_under_which_it_was_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let server = Starting::new(&directory.path().join("data")).ready();
    for line in [
        "network create old --subnet 10.0.0.0/24",
        "ip claim old 10.0.0.5 --owner web/0",
        "network update old --name new",
        "network delete new --force --yes",
        // Both of its names belong to other networks by now.
        "network create old --subnet 10.1.0.0/24",
        "network create new --subnet 10.2.0.0/24",
    ] {
        told(&server, &line.split(' ').collect::<Vec<_>>());
    }
    let who = told(&server, &["who", "10.0.0.5"]);
    assert!(who.contains("network     new (deleted, and remembered while it holds something)"), "{who}");
    let who = told(&server, &["who", "10.0.0.5", "--at", "now"]);
    assert!(who.contains("network     old (`new` by now)"), "{who}");
    server.stop();
}

#[test]
fn what_changed_of_a_network_and_where_a_moved_subnet_came_from_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let server = Starting::new(&directory.path().join("data")).ready();
    for line in [
        "network create old --subnet 10.0.0.0/24",
        "network create new",
        "network update old --policy random",
        "subnet modify old 10.0.0.0/24 --gateway 10.0.0.254",
        "ip claim old 10.0.0.5 --owner web/0",
        "subnet move old 10.0.0.0/24 new",
    ] {
        told(&server, &line.split(' ').collect::<Vec<_>>());
    }
    let old = told(&server, &["history", "--network", "old"]);
    for said in [
        "subnet 10.0.0.0/24\n",
        "policy=random\n",
        "subnet 10.0.0.0/24: gateway=10.0.0.254\n",
        "subnet 10.0.0.0/24 gone\n",
    ] {
        assert!(old.contains(said), "{said}: {old}");
    }
    let address = told(&server, &["history", "10.0.0.5", "--last", "2"]);
    assert!(address.contains("to network `new`\n") && address.contains("from network `old`\n"), "{address}");
    assert_eq!(address.lines().count(), 3, "{address}");
    server.stop();
}
