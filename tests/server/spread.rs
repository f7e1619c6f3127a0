//! The cost of a request over all networks depends on what is found, not on how many networks there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use allod::actors::service::Hooks;
use allod::core::command::Command;
use serde_json::json;

use crate::support::{Client, TestServer, http, line, patient};

const NETWORKS: usize = 300;

#[test]
fn what_an_owner_holds_in_few_of_many_networks_is_found_without_asking_the_others() {
    let decided = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&decided);
    let count = move |_: &_| {
        counting.fetch_add(1, Ordering::Relaxed);
    };
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(count)), ..patient() });
    let mut client = server.client();
    let mut text = String::new();
    for at in 0..NETWORKS {
        let subnets = json!([{"cidr": format!("10.{}.{}.0/24", at / 250, at % 250)}]);
        text += &line(at as u64, "network.create", &json!({"name": format!("net-{at:03}"), "subnets": subnets}));
        let bystander = json!({"network": format!("net-{at:03}"), "owner": "a", "scope": "others"});
        text += &line(at as u64, "ip.allocate", &bystander);
    }
    client.raw(text);
    for _ in 0..2 * NETWORKS {
        client.answer();
    }
    for network in ["net-299", "net-007", "net-100"] {
        client.ok("ip.allocate", json!({"network": network, "owner": "a", "scope": "mine"}));
        client.ok("ip.allocate", json!({"network": network, "owner": "b", "scope": "mine"}));
    }

    decided.store(0, Ordering::Relaxed);
    let listed = client.ok("ip.list", json!({"owner": "a", "scope": "mine"}));
    let networks: Vec<&str> =
        listed["reservations"].as_array().unwrap().iter().map(|held| held["network"].as_str().unwrap()).collect();
    assert_eq!(networks, ["net-007", "net-100", "net-299"]);
    let released = client.ok("owner.release", json!({"owner": "a", "scope": "mine"}));
    assert_eq!(released["released"].as_array().unwrap().len(), 3, "{released}");
    let released = client.ok("owner.release", json!({"owner": "a", "scope": "mine"}));
    assert_eq!(released["released"], json!([]));
    let released = client.ok("scope.release", json!({"scope": "mine"}));
    assert_eq!(released["released"].as_array().unwrap().len(), 3, "{released}");
    // A look and a release in each of three networks, four times, and what timers do meanwhile.
    let asked = decided.load(Ordering::Relaxed);
    assert!(asked < NETWORKS / 4, "{asked} decisions");
    let everywhere = client.ok("ip.list", json!({"owner": "a", "count_only": true}));
    assert_eq!(everywhere["count"], NETWORKS);
}

/// The answer may leave before the networks hear that their common decision is durable: here one of them is busy.
#[test]
fn what_was_just_granted_in_several_networks_is_passed_over_in_none_of_them() {
    const TOGETHER: usize = 8;
    let slow = |command: &Command| {
        if matches!(command, Command::Get(_)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let server = TestServer::with(|options| {
        options.hooks = Hooks { before_decide: Some(Arc::new(slow)), ..patient() };
        options.config.server.threads = 2;
    });
    let mut client = server.client();
    for at in 0..=TOGETHER {
        let subnets = json!([{"cidr": format!("10.{at}.0.0/24")}]);
        client.ok("network.create", json!({"name": format!("net-{at}"), "subnets": subnets}));
    }
    let ips: Vec<_> = (0..TOGETHER).map(|at| json!({"network": format!("net-{at}")})).collect();
    let (mut busy, done) = (server.client(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let beside = format!("net-{TOGETHER}");
            while !done.load(Ordering::Relaxed) {
                busy.ok("ip.get", json!({"network": beside, "address": format!("10.{TOGETHER}.0.9")}));
            }
        });
        let mut missed = Vec::new();
        for at in 0..100 {
            let of = format!("scope-{at}");
            client.ok("ip.acquire", json!({"scope": of, "owner": "o", "ips": ips}));
            let released = client.ok("scope.release", json!({"scope": of}))["released"].as_array().unwrap().len();
            missed.extend((released != TOGETHER).then_some((at, released)));
        }
        done.store(true, Ordering::Relaxed);
        assert!(missed.is_empty(), "{missed:?}");
    });
}

/// Otherwise each request of a client that asks one thing after the other, and each answer, would wake a second thread.
#[test]
fn a_quiet_connection_moves_to_the_thread_of_the_network_that_it_asks_and_stays_where_it_asks_several() {
    let server = TestServer::with(|options| options.config.server.threads = 2);
    let moved = || {
        let metrics = http(server.running.http, "GET /metrics", b"").1;
        let name = "allod_connections_moved_total{reason=\"follows\"} ";
        let count = metrics.lines().find_map(|line| line.strip_prefix(name));
        count.expect("it is counted").parse::<u64>().unwrap()
    };
    // Networks and connections are dealt to the threads in turn: the first of each is on the first thread, the second on the
    // other.
    let mut first = server.with_lan();
    first.ok("network.create", json!({"name": "far", "subnets": [{"cidr": "10.9.0.0/24"}]}));
    let (mut both, mut apart) = (server.client(), server.client());
    let ask = |client: &mut Client, network: &str| {
        let address = if network == "far" { "10.9.0.9" } else { "10.0.0.9" };
        client.ok("ip.get", json!({"network": network, "address": address}));
    };
    for network in ["lan", "far"].into_iter().cycle().take(400) {
        ask(&mut both, network);
    }
    assert_eq!(moved(), 0, "it asks networks of both threads");
    let asked = (1..=200).find(|_| {
        (0..50).for_each(|_| ask(&mut apart, "far"));
        moved() == 1
    });
    assert!(asked.is_some(), "10000 requests, and the connection is where it was");
    for (at, client) in [&mut first, &mut both, &mut apart].into_iter().enumerate() {
        client.ok("ip.allocate", json!({"network": "far", "owner": format!("o{at}")}));
    }
}
