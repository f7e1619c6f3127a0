//! The self-check: what is served is compared with what is stored while everything else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use allod::actors::service::Hooks;
use serde_json::{Value, json};

use crate::figures::scrape;
use crate::support::{Client, TestServer, patient, wait_for};

pub fn checking_every(every: Duration) -> TestServer {
    TestServer::hooked(Hooks { self_check_every: Some(every), ..patient() })
}

fn outcomes(server: &TestServer, outcome: &str) -> f64 {
    scrape(server)[&format!("allod_self_checks_total{{outcome=\"{outcome}\"}}")]
}

/// Waits until so many shards more were found to be so.
pub fn until_found(server: &TestServer, outcome: &str, more: f64) {
    let before = outcomes(server, outcome);
    wait_for("the self-check", || outcomes(server, outcome) >= before + more);
}

pub fn create(client: &mut Client, name: &str, subnet: &str) {
    client.ok("network.create", json!({"name": name, "subnets": [{"cidr": subnet}]}));
}

#[test]
fn a_network_that_has_what_the_store_has_not_is_stopped_and_the_others_go_on() {
    let server = checking_every(Duration::from_millis(20));
    let mut client = server.client();
    create(&mut client, "lan", "10.0.0.0/24");
    create(&mut client, "dmz", "10.0.1.0/24");
    let held = client.ok("ip.allocate", json!({"network": "lan", "owner": "a"}))["address"].clone();
    client.ok("ip.allocate", json!({"network": "dmz", "owner": "a"}));
    until_found(&server, "same", 8.0);
    *server.store.beside_lacks.lock().unwrap() = Some((held.as_str().unwrap().parse().unwrap(), u64::MAX));
    until_found(&server, "differs", 1.0);
    let refused = client.call("ip.allocate", json!({"network": "lan", "owner": "b"}))["error"].clone();
    assert_eq!(refused["data"]["kind"], "network_stopped");
    assert!(refused["message"].as_str().unwrap().contains("know different things"), "{refused}");
    client.ok("ip.allocate", json!({"network": "dmz", "owner": "b"}));
    let found = scrape(&server);
    let stopped = |name: &str| found[&format!("allod_network_stopped{{network=\"{name}\",realm=\"default\"}}")];
    assert_eq!((stopped("lan"), stopped("dmz")), (1.0, 0.0));
    // What is stopped is not compared any more, and the others are.
    *server.store.beside_lacks.lock().unwrap() = None;
    until_found(&server, "same", 2.0);
    assert_eq!(outcomes(&server, "differs"), 1.0);
}

#[test]
fn a_network_that_differed_once_is_not_stopped() {
    let server = checking_every(Duration::from_millis(20));
    let mut client = server.client();
    create(&mut client, "lan", "10.0.0.0/24");
    let held = client.ok("ip.allocate", json!({"network": "lan", "owner": "a"}))["address"].clone();
    *server.store.beside_lacks.lock().unwrap() = Some((held.as_str().unwrap().parse().unwrap(), 1));
    wait_for("that it is read so", || server.store.beside_lacks.lock().unwrap().is_none_or(|(_, times)| times == 0));
    until_found(&server, "same", 8.0);
    client.ok("ip.allocate", json!({"network": "lan", "owner": "b"}));
    assert_eq!(outcomes(&server, "differs"), 0.0);
}

#[test]
fn what_is_decided_while_it_is_compared_differs_from_nothing() {
    let server = checking_every(Duration::from_millis(1));
    let mut client = server.client();
    client.ok(
        "network.create",
        json!({"name": "lan", "cooldown_seconds": 1, "subnets": [{"cidr": "10.0.0.0/20"}, {"cidr": "2001:db8::/64"}]}),
    );
    let over = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..3)
        .map(|worker| {
            let (mut client, over) = (server.client(), Arc::clone(&over));
            std::thread::spawn(move || {
                for n in (0..).take_while(|_| !over.load(Ordering::SeqCst)) {
                    let owner = format!("{worker}/{}", n % 300);
                    change(&mut client, worker, n, &owner);
                }
            })
        })
        .collect();
    // A network that comes and goes beside them.
    let coming = {
        let (mut client, over) = (server.client(), Arc::clone(&over));
        std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                create(&mut client, "passing", "10.9.0.0/24");
                client.ok("ip.allocate", json!({"network": "passing", "owner": "a"}));
                client.ok("owner.release", json!({"owner": "a", "network": "passing"}));
                client.ok("network.delete", json!({"network": "passing"}));
            }
        })
    };
    until_found(&server, "same", 100.0);
    over.store(true, Ordering::SeqCst);
    busy.into_iter().chain([coming]).for_each(|worker| worker.join().unwrap());
    assert_eq!((outcomes(&server, "differs"), outcomes(&server, "unreadable")), (0.0, 0.0));
    client.ok("ip.allocate", json!({"network": "lan", "owner": "last"}));
}

fn change(client: &mut Client, worker: usize, n: usize, owner: &str) {
    let lan = |more: Value| {
        let mut params = json!({"network": "lan", "owner": owner});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    match n % 5 {
        0 | 1 => drop(client.call("ip.allocate", lan(json!({})))),
        2 => drop(client.call("ip.allocate", lan(json!({"slot": "six", "family": "ipv6", "ttl_seconds": 1})))),
        3 => drop(client.call("ip.release", lan(json!({})))),
        _ => {
            let description = format!("{worker} was here {n} times");
            drop(client.call("network.update", json!({"network": "lan", "description": description})));
        }
    }
}
