//! Subnets that move to another network, with holdings in them.

use std::time::Duration;

use allod::actors::committer::COMMIT_DEADLINE;
use allod::limits::BATCH_BYTES_MAX;
use serde_json::{Value, json};

use crate::history::history;
use crate::support::{Client, TestServer};

fn create(client: &mut Client, name: &str, cidr: &str, limits: Value) {
    client.ok("network.create", json!({"name": name, "subnets": [{"cidr": cidr}], "limits": limits}));
}

/// Networks `n` and `m`, created within one second: by the clock alone both would count from the same generation.
fn with_two(server: &TestServer) -> Client {
    let mut client = server.client();
    for (name, cidr) in [("n", "10.0.0.0/24"), ("m", "10.1.0.0/24")] {
        create(&mut client, name, cidr, json!({}));
    }
    client
}

#[test]
fn a_late_release_of_what_was_held_there_frees_nothing_that_came_with_a_subnet() {
    let server = TestServer::new();
    let mut client = with_two(&server);
    let late = client.ok("ip.allocate", json!({"network": "m", "owner": "a"}));
    client.ok("ip.release", json!({"network": "m", "owner": "a"}));
    let held = client.ok("ip.allocate", json!({"network": "n", "owner": "a"}));
    assert_ne!(late["generation"], held["generation"]);
    client.ok("subnet.move", json!({"network": "n", "subnet": "10.0.0.0/24", "to": "m"}));
    let stale = json!({"network": "m", "owner": "a", "if_generation": late["generation"]});
    assert_eq!(client.kind("ip.release", stale), "conflict");
    let own = json!({"network": "m", "owner": "a", "if_generation": held["generation"]});
    assert_eq!(client.ok("ip.release", own)["released"], json!(["10.0.0.1"]));
}

#[test]
fn networks_never_give_the_same_generation_whatever_is_granted_together() {
    let server = TestServer::new();
    let mut client = with_two(&server);
    let ips = |network: &str| json!([{"network": network, "slot": "0"}, {"network": network, "slot": "1"}]);
    for round in 0..3 {
        for network in ["n", "m"] {
            client.ok("ip.acquire", json!({"owner": format!("o{round}"), "ips": ips(network)}));
            client.ok("ip.allocate", json!({"network": network, "owner": format!("a{round}")}));
            let instances = json!([{"id": format!("{network}{round}"), "networks": [{"network": network}]}]);
            let deployment = format!("d{network}{round}");
            client.ok("deployment.apply", json!({"deployment": deployment, "instances": instances}));
            let again = json!({"network": network, "owner": format!("x{round}")});
            let declined = client.ok("ip.allocate", again)["address"].clone();
            let again = json!({"network": network, "owner": format!("x{round}"), "address": declined, "again": true});
            client.ok("ip.decline", again);
        }
    }
    let mut generations: Vec<u64> = ["n", "m"]
        .iter()
        .flat_map(|network| {
            client.ok("ip.list", json!({"network": network}))["reservations"].as_array().unwrap().clone()
        })
        .map(|reservation| reservation["generation"].as_u64().unwrap())
        .collect();
    assert_eq!(generations.len(), 2 * 3 * 5);
    generations.sort_unstable();
    generations.dedup();
    assert_eq!(generations.len(), 2 * 3 * 5);
}

#[test]
fn nobody_holds_more_than_may_be_by_a_move() {
    let server = TestServer::new();
    let mut client = server.client();
    for (limit, word) in [("per_owner", "owner"), ("per_scope", "scope")] {
        let (to, from) = (format!("{word}-to"), format!("{word}-from"));
        let (there, here) = if word == "owner" { (0, 1) } else { (2, 3) };
        create(&mut client, &to, &format!("10.{there}.0.0/24"), json!({limit: 2}));
        create(&mut client, &from, &format!("10.{here}.0.0/24"), json!({}));
        client.ok("ip.allocate", json!({"network": to, "owner": "o", "slot": "0"}));
        for slot in ["1", "2"] {
            client.ok("ip.allocate", json!({"network": from, "owner": "o", "slot": slot}));
        }
        let ask = json!({"network": from, "subnet": format!("10.{here}.0.0/24"), "to": to});
        let refused = client.call("subnet.move", ask.clone());
        let data = &refused["error"]["data"];
        assert_eq!((&data["kind"], &data["count"], &data["max"]), (&json!("quota_exceeded"), &json!(3), &json!(2)));
        client.ok("ip.release", json!({"network": from, "owner": "o", "slot": "2"}));
        client.ok("subnet.move", ask);
    }
}

/// A large subnet takes longer, most of all on slow processors. If the client were told each time that the outcome is
/// unknown, it would repeat the move for ever.
#[test]
fn a_large_subnet_may_take_longer_to_move_than_the_store_has_for_other_changes() {
    let server = TestServer::giving_up();
    let mut client = server.client();
    create(&mut client, "n", "10.0.0.0/22", json!({}));
    client.ok("network.create", json!({"name": "m"}));
    let labels: Value =
        (0..16).map(|n| (format!("label-{n:02}"), json!("x".repeat(256)))).collect::<serde_json::Map<_, _>>().into();
    let ips = vec![json!({"network": "n"}); 100];
    for n in 0..8 {
        client.ok("ip.acquire", json!({"owner": format!("o{n}"), "ips": ips, "labels": labels, "brief": true}));
    }
    server.store.measure();
    server.store.hold();
    client.send("subnet.move", json!({"network": "n", "subnet": "10.0.0.0/22", "to": "m"}));
    let early = (!client.silent_for(COMMIT_DEADLINE + Duration::from_millis(200))).then(|| client.answer());
    assert_eq!(early, None);
    server.store.let_go();
    let moved = client.answer();
    assert!(moved.get("result").is_some(), "{moved}");
    assert_eq!(client.ok("ip.list", json!({"network": "m", "count_only": true}))["count"], 800);
    assert!(server.store.longest() > 4 * BATCH_BYTES_MAX, "{} bytes", server.store.longest());
}

/// This holds whichever shards they are in. A client that records what it is told by address must end with the right holder.
#[test]
fn who_follows_a_realm_is_told_that_a_subnet_leaves_before_it_arrives() {
    let server = TestServer::new();
    let mut client = server.client();
    let names: Vec<String> = (0..6).map(|number| format!("net-{number}")).collect();
    for name in &names {
        client.ok("network.create", json!({"name": name}));
    }
    client.ok("subnet.add", json!({"network": "net-0", "cidr": "10.0.0.0/24"}));
    client.ok("ip.claim", json!({"network": "net-0", "address": "10.0.0.5", "owner": "a"}));
    let mut watcher = server.client();
    watcher.ok("events.watch", json!({"realm": "default"}));
    let there_and_back = names.iter().chain(names.iter().rev().skip(1)).collect::<Vec<_>>();
    for pair in there_and_back.windows(2) {
        client.ok("subnet.move", json!({"network": pair[0], "subnet": "10.0.0.0/24", "to": pair[1]}));
        let mut transferred = || loop {
            let told = crate::watch::event(&mut watcher);
            if told["type"] == "transferred" {
                return (told["network"].clone(), told.get("before").is_some(), told.get("after").is_some());
            }
        };
        let both = [transferred(), transferred()];
        assert_eq!(both, [(json!(pair[0]), true, false), (json!(pair[1]), false, true)], "{pair:?}");
    }
}

/// Also if more moves than is read at once.
#[test]
fn what_moves_is_told_to_leave_before_it_arrives_out_of_the_store_too() {
    let open = crate::stores::reopened(4);
    let server = TestServer::over(open(), |_| {});
    let mut client = server.client();
    let since = client.ok("ip.list", json!({}))["cursor"].clone();
    let names: Vec<String> = (0..6).map(|number| format!("net-{number}")).collect();
    for name in &names {
        client.ok("network.create", json!({"name": name}));
    }
    for cidr in ["10.0.0.0/24", "10.1.0.0/24"] {
        client.ok("subnet.add", json!({"network": "net-0", "cidr": cidr}));
    }
    client.ok("ip.claim", json!({"network": "net-0", "address": "10.0.0.5", "owner": "small"}));
    let labels: serde_json::Map<String, Value> =
        (0..32).map(|at| (format!("label-{at}"), json!("x".repeat(256)))).collect();
    let ips = vec![json!({"network": "net-0", "subnet": "10.1.0.0/24"}); 150];
    client.ok("ip.acquire", json!({"owner": "large", "ips": ips, "labels": labels, "brief": true}));
    let there_and_back: Vec<&String> = names.iter().chain(names.iter().rev().skip(1)).collect();
    for pair in there_and_back.windows(2) {
        for cidr in ["10.0.0.0/24", "10.1.0.0/24"] {
            client.ok("subnet.move", json!({"network": pair[0], "subnet": cidr, "to": pair[1]}));
        }
    }
    drop(client);
    server.running.stop();

    let expected: Vec<String> = there_and_back
        .windows(2)
        .flat_map(|pair| [format!("leaves {}", pair[0]), format!("arrives {}", pair[1])])
        .collect();
    let way_of = |address: &str, events: &[Value]| {
        let of_it = events.iter().filter(|event| event["type"] == "transferred" && event["address"] == address);
        let step = |event: &Value| {
            let how = if event.get("after").is_some() { "arrives" } else { "leaves" };
            format!("{how} {}", event["network"].as_str().unwrap())
        };
        of_it.map(step).collect::<Vec<_>>()
    };
    let server = TestServer::over(open(), |_| {});
    let mut client = server.client();
    let mut watcher = server.client();
    watcher.ok("events.watch", json!({"since": since}));
    let mut seen = Vec::new();
    while seen.iter().filter(|event: &&Value| event["type"] == "transferred").count() < 2 * 10 * 151 {
        seen.push(crate::watch::event(&mut watcher));
    }
    for address in ["10.0.0.5", "10.1.0.1", "10.1.0.150"] {
        assert_eq!(way_of(address, &seen), expected, "watched: {address}");
        let told = history(&mut client, json!({"address": address}));
        assert_eq!(way_of(address, &told), expected, "in the history: {address}");
    }
    assert_eq!(way_of("10.1.0.150", &history(&mut client, json!({}))), expected, "in the history of all");
}

/// A network has its name until it is renamed. A request that waits for that means whatever has the name afterwards.
#[test]
fn a_move_behind_a_rename_moves_nothing_by_the_old_name() {
    let server = TestServer::new();
    let mut client = with_two(&server);
    let mut others = [server.client(), server.client()];
    server.store.hold();
    client.send("network.update", json!({"network": "n", "set": {"name": "renamed"}}));
    assert!(client.waits_still(Duration::from_millis(150)));
    let moves = [("n", "10.0.0.0/24", "m"), ("m", "10.1.0.0/24", "n")];
    for (other, (from, cidr, to)) in others.iter_mut().zip(moves) {
        other.send("subnet.move", json!({"network": from, "subnet": cidr, "to": to}));
        assert!(other.waits_still(Duration::from_millis(50)));
    }
    server.store.let_go();
    assert_eq!(client.answer()["result"]["name"], "renamed");
    for other in &mut others {
        let error = other.answer()["error"].clone();
        let said = error["message"].as_str().unwrap();
        assert!(error["data"]["kind"] == "not_found" && said.starts_with("network `n` "), "{error}");
    }
    for (name, cidr) in [("renamed", "10.0.0.0/24"), ("m", "10.1.0.0/24")] {
        let subnets = client.ok("network.get", json!({"network": name}))["subnets"].clone();
        assert_eq!((subnets.as_array().unwrap().len(), &subnets[0]["cidr"]), (1, &json!(cidr)), "{name}");
    }
}
