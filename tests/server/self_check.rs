//! The self-check: what is served is compared with what is stored, while everything else goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use allod::actors::service::Hooks;
use allod::store::{Head, ShardImage};
use serde_json::{Value, json};

use crate::faulty::ReadAs;
use crate::figures::scrape;
use crate::support::{Client, TestServer, http, patient, wait_for};

pub fn checking_every(every: Duration) -> TestServer {
    TestServer::hooked(Hooks { self_check_every: Some(every), ..patient() })
}

fn outcomes(server: &TestServer, outcome: &str) -> f64 {
    scrape(server)[&format!("allod_self_checks_total{{outcome=\"{outcome}\"}}")]
}

/// Waits until so many more shards were found with this outcome.
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
    assert!(refused["message"].as_str().unwrap().contains("memory and store differ"), "{refused}");
    client.ok("ip.allocate", json!({"network": "dmz", "owner": "b"}));
    let found = scrape(&server);
    let stopped = |name: &str| found[&format!("allod_network_stopped{{network=\"{name}\",realm=\"default\"}}")];
    assert_eq!((stopped("lan"), stopped("dmz")), (1.0, 0.0));
    // A stopped network is not compared any more; the others are.
    *server.store.beside_lacks.lock().unwrap() = None;
    until_found(&server, "same", 2.0);
    assert_eq!(outcomes(&server, "differs"), 1.0);
}

/// However much of it is gone: the next start would give all of that away.
#[test]
fn a_network_of_which_more_differs_than_is_looked_at_is_stopped_as_well() {
    let every = Some(Duration::from_millis(20));
    let server = TestServer::hooked(Hooks { self_check_every: every, odd_max: Some(10), ..patient() });
    let mut client = server.client();
    create(&mut client, "lan", "10.0.0.0/16");
    for owner in 0..10 {
        let ips = vec![json!({}); 256];
        client.ok("ip.acquire", json!({"network": "lan", "owner": format!("web/{owner}"), "ips": ips, "brief": true}));
    }
    until_found(&server, "same", 8.0);
    reads_as(&server, Some(Box::new(|image| image.networks.clear())));
    until_found(&server, "differs", 1.0);
    let refused = client.call("ip.allocate", json!({"network": "lan", "owner": "b"}))["error"].clone();
    assert_eq!(refused["data"]["kind"], "network_stopped");
}

/// It has no name any more, and what is held in it is as much at stake.
#[test]
fn a_deleted_network_that_differs_is_named_by_its_id_where_it_is_asked_how_ready_the_server_is() {
    let server = checking_every(Duration::from_millis(20));
    let mut client = server.client();
    create(&mut client, "lan", "10.0.0.0/24");
    let held = client.ok("ip.allocate", json!({"network": "lan", "owner": "a"}))["address"].clone();
    let id = client.ok("network.delete", json!({"network": "lan", "force": true}))["id"].clone();
    let ready = || {
        let (status, said) = http(server.running.http, "GET /readyz", b"");
        assert_eq!(status, 200, "{said}");
        said
    };
    until_found(&server, "same", 8.0);
    assert!(!ready().contains("stopped"));
    *server.store.beside_lacks.lock().unwrap() = Some((held.as_str().unwrap().parse().unwrap(), u64::MAX));
    until_found(&server, "differs", 1.0);
    let named = format!("network `{}` was stopped", id.as_str().unwrap());
    wait_for("that it is named", || ready().contains(&named));
    // `allod cluster shards` shows the same. Only where several nodes may own it does each report its own shards.
    let shards = client.ok("cluster.nodes", json!({}))["shards"].to_string();
    let named = format!("stopped: network `{}` (`/readyz` says why)", id.as_str().unwrap());
    assert_eq!(shards.contains(&named), crate::stores::over_redis(), "{shards}");
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

pub fn reads_as(server: &TestServer, change: Option<ReadAs>) {
    *server.store.reads_as.lock().unwrap() = change;
}

fn deploy(client: &mut Client, name: &str, instances: &[&str]) -> u64 {
    let instance = |id: &&str| json!({"id": id, "networks": [{"network": "lan"}]});
    let instances: Vec<Value> = instances.iter().map(instance).collect();
    client.ok("deployment.apply", json!({"deployment": name, "instances": instances}))["plan"].as_u64().unwrap()
}

/// The networks have the holdings, and if the deployment's record were not the store's, no plan could go on.
#[test]
fn a_deployment_whose_record_is_not_what_is_stored_goes_by_the_store_and_no_network_is_stopped_for_it() {
    let server = checking_every(Duration::from_millis(20));
    let mut client = server.client();
    create(&mut client, "lan", "10.0.0.0/24");
    deploy(&mut client, "other", &["a"]);
    let first = deploy(&mut client, "d", &["a", "b"]);
    client.ok("deployment.commit", json!({"deployment": "d", "plan": first}));
    let plan = deploy(&mut client, "d", &["a"]);
    let get = |client: &mut Client| client.call("deployment.get", json!({"deployment": "d"}));
    until_found(&server, "same", 8.0);
    reads_as(&server, Some(Box::new(|image| image.deployments.retain(|(_, record)| record.name.as_str() != "d"))));
    until_found(&server, "differs", 1.0);
    assert_eq!(get(&mut client)["error"]["data"]["kind"], "not_found", "as the next start would have it");
    assert_eq!(client.ok("deployment.get", json!({"deployment": "other"}))["instances"].as_array().unwrap().len(), 1);
    assert_eq!(client.ok("ip.list", json!({"network": "lan", "scope": "d", "count_only": true}))["count"], 2);
    client.ok("ip.allocate", json!({"network": "lan", "owner": "b"}));
    // It is reported once, and differs from nothing afterwards.
    until_found(&server, "same", 8.0);
    assert_eq!(outcomes(&server, "differs"), 1.0);
    // The store has something of which nobody here knows.
    reads_as(&server, None);
    until_found(&server, "differs", 1.0);
    assert_eq!(get(&mut client)["result"]["plan"], plan);
    client.ok("deployment.commit", json!({"deployment": "d", "plan": plan}));
    assert_eq!(client.ok("ip.list", json!({"network": "lan", "scope": "d", "count_only": true}))["count"], 1);
    until_found(&server, "same", 8.0);
    let stopped = scrape(&server)["allod_network_stopped{network=\"lan\",realm=\"default\"}"];
    assert_eq!((outcomes(&server, "differs"), outcomes(&server, "unreadable"), stopped), (2.0, 0.0, 0.0));
}

#[test]
fn a_deployment_that_differed_once_goes_on_as_it_was() {
    let server = checking_every(Duration::from_millis(20));
    let mut client = server.client();
    create(&mut client, "lan", "10.0.0.0/24");
    let plan = deploy(&mut client, "d", &["a"]);
    let read = Arc::new(AtomicBool::new(false));
    let lacks = {
        let read = Arc::clone(&read);
        move |image: &mut ShardImage| {
            if !image.deployments.is_empty() && !read.swap(true, Ordering::SeqCst) {
                image.deployments.clear();
            }
        }
    };
    reads_as(&server, Some(Box::new(lacks)));
    wait_for("that it is read so", || read.load(Ordering::SeqCst));
    until_found(&server, "same", 8.0);
    assert_eq!(outcomes(&server, "differs"), 0.0);
    client.ok("deployment.commit", json!({"deployment": "d", "plan": plan}));
}

/// The next owner's time goes on from the head. If that were further ahead, leases would end too soon and their addresses be
/// given away.
#[test]
fn a_head_that_is_not_where_memory_stands_is_told_while_its_networks_go_on() {
    let server = checking_every(Duration::from_millis(20));
    let mut client = server.client();
    create(&mut client, "lan", "10.0.0.0/24");
    let unreadable = || scrape(&server)["allod_unreadable_shards"];
    let of_head: [fn(&mut Head); 3] =
        [|head| head.time.0 += 1, |head| head.generation.0 += 1, |head| head.digest.0 ^= 1];
    for change in of_head {
        until_found(&server, "same", 8.0);
        reads_as(
            &server,
            Some(Box::new(move |image| {
                if image.networks.len() == 1 {
                    change(&mut image.head);
                }
            })),
        );
        until_found(&server, "unreadable", 1.0);
        wait_for("that it is shown", || unreadable() == 1.0);
        reads_as(&server, None);
        wait_for("that it is as it was", || unreadable() == 0.0);
        client.ok("ip.allocate", json!({"network": "lan", "owner": "a"}));
    }
    assert_eq!(outcomes(&server, "differs"), 0.0);
}

/// Those who change a network while it is compared, and how many owners each of them has.
const WORKERS: usize = 3;
const OWNERS: usize = 20;

#[test]
fn what_is_decided_while_it_is_compared_differs_from_nothing() {
    let server = checking_every(Duration::from_millis(1));
    let mut client = server.client();
    client.ok(
        "network.create",
        json!({"name": "lan", "cooldown_seconds": 1, "subnets": [{"cidr": "10.0.0.0/20"}, {"cidr": "2001:db8::/64"}]}),
    );
    let over = Arc::new(AtomicBool::new(false));
    let (released, leased) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let busy: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (mut client, over) = (server.client(), Arc::clone(&over));
            let (released, leased) = (Arc::clone(&released), Arc::clone(&leased));
            std::thread::spawn(move || {
                for n in (0..).take_while(|_| !over.load(Ordering::SeqCst)) {
                    let result = change(&mut client, worker, n);
                    released.fetch_add(result["released"].as_array().map_or(0, Vec::len), Ordering::SeqCst);
                    let is_leased = !result["expires_at"].is_null() && result["created"] == true;
                    leased.fetch_add(usize::from(is_leased), Ordering::SeqCst);
                }
            })
        })
        .collect();
    // So that leases and cooldowns end all the time.
    let hurrying = {
        let (clock, over) = (Arc::clone(&server.clock), Arc::clone(&over));
        std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                clock.advance_ms(300);
                std::thread::sleep(Duration::from_millis(5));
            }
        })
    };
    // A network that is created and deleted all the time.
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
    let deploying = {
        let (mut client, over) = (server.client(), Arc::clone(&over));
        std::thread::spawn(move || {
            for n in (0..).take_while(|_| !over.load(Ordering::SeqCst)) {
                let name = format!("d{}", n % 3);
                let plan = deploy(&mut client, &name, if n % 2 == 0 { &["a"] } else { &["b", "c"] });
                match n % 4 {
                    0 => drop(client.ok("deployment.delete", json!({"deployment": name}))),
                    end => {
                        let end = if end == 1 { "deployment.revert" } else { "deployment.commit" };
                        client.ok(end, json!({"deployment": name, "plan": plan}));
                    }
                }
            }
        })
    };
    until_found(&server, "same", 30.0);
    // Nobody lets go of what is leased, so whoever is granted it once more had it until its end.
    let ended = || leased.load(Ordering::SeqCst).saturating_sub(WORKERS * OWNERS);
    wait_for("that enough ends", || released.load(Ordering::SeqCst) > 100 && ended() > 100);
    over.store(true, Ordering::SeqCst);
    busy.into_iter().chain([coming, deploying, hurrying]).for_each(|worker| worker.join().unwrap());
    assert_eq!((outcomes(&server, "differs"), outcomes(&server, "unreadable")), (0.0, 0.0));
    client.ok("ip.allocate", json!({"network": "lan", "owner": "last"}));
}

/// Each owner is granted an address and repeats that, leases another one, and lets go of the first.
fn change(client: &mut Client, worker: usize, n: usize) -> Value {
    let owner = format!("{worker}/{}", n / 5 % OWNERS);
    let lan = |more: Value| {
        let mut params = json!({"network": "lan", "owner": owner});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let description = format!("{worker} was here {n} times");
    let (method, params) = match n % 5 {
        0 | 1 => ("ip.allocate", lan(json!({}))),
        2 => ("ip.allocate", lan(json!({"slot": "six", "family": 6, "ttl_seconds": 1}))),
        3 => ("ip.release", lan(json!({}))),
        _ => ("network.update", json!({"network": "lan", "set": {"description": description}})),
    };
    client.ok(method, params)
}
