//! What a start must preserve for those who were served before: leases, time, and caution after a restore.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix::System;
use allod::actors::clock::{Clock, ManualClock};
use allod::actors::coordinator::{Done, Job};
use allod::actors::outlet;
use allod::actors::service::{self, Parts};
use allod::core::command::Filter;
use allod::core::types::{ShardTime, WallTime};
use allod::store::embedded::{self, EmbeddedStore};
use allod::store::{Seq, ShardId, Store};
use serde_json::{Value, json};

use crate::clock::RealLeases;
use crate::ended::{ask, parts};
use crate::faulty::Fault;
use crate::history::history;
use crate::stores;
use crate::support::{Client, TestServer, http, wait_for};

fn on(directory: &Path, accept_restored: bool) -> TestServer {
    let options = embedded::EmbeddedOptions { accept_restored, ..embedded::EmbeddedOptions::default() };
    TestServer::over(Arc::new(EmbeddedStore::open(directory, 4, options).unwrap()), |_| {})
}

#[test]
fn no_lease_ends_before_its_holder_could_renew_it_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), false);
    let mut client = server.with_lan();
    client.ok("ip.allocate", json!({"network": "lan", "owner": "short", "ttl_seconds": 10}));
    client.ok("ip.allocate", json!({"network": "lan", "owner": "long", "ttl_seconds": 60}));
    let (short, long) = ("10.0.0.2", "10.0.0.3");
    server.clock.advance_ms(59_000);
    // The short lease is over by now, but the server ends before anybody looks.
    drop(client);
    server.running.stop();

    let server = on(directory.path(), false);
    let mut client = server.client();
    let mut held = |address: &str| {
        let shown = client.ok("ip.get", json!({"network": "lan", "address": address}));
        shown["state"] == "held"
    };
    assert!(held(long));
    server.clock.advance_ms(20_000);
    assert!(held(long), "it had one second left, and thirty are granted");
    server.clock.advance_ms(11_000);
    assert!(!held(long));
    assert!(!held(short));
}

/// Building many networks takes a while, and what a failover cut off is given back first: meanwhile nobody can renew.
#[test]
fn no_lease_runs_between_the_take_over_and_the_moment_from_which_it_can_be_renewed() {
    let reopen = stores::reopened(2);
    let server = TestServer::over(reopen(), |_| {});
    let mut client = server.with_lan();
    client.ok("ip.allocate", json!({"network": "lan", "owner": "short", "ttl_seconds": 5}));
    drop(client);
    server.running.stop();

    System::new().block_on(async {
        let (fatal, _fatals) = outlet();
        let clock = Arc::new(ManualClock::new(WallTime(1_772_356_364_031), 8));
        let same_clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let shared = service::start(Parts { clock: same_clock, ..parts(reopen(), fatal) }).await.unwrap();
        // Longer than the actors take to see what is over.
        let looks = Duration::from_millis(700);
        let is_held = || async {
            tokio::time::sleep(looks).await;
            let filter = Box::new(Filter::default());
            let list = Job::List { network: None, realm: None, filter, after: None, limit: 10, count_only: true };
            matches!(ask(&shared, list).await, Ok(Done::Listed { count: 1, .. }))
        };
        clock.advance_ms(10_000);
        assert!(is_held().await, "nobody could renew it yet");
        shared.serves();
        clock.advance_ms(4_000);
        assert!(is_held().await, "it has a second left");
        clock.advance_ms(1_500);
        assert!(!is_held().await, "its time is over");
        shared.retire("all was seen");
    });
}

/// A client that still holds a reservation of the first network must not be able to touch one of the second.
#[test]
fn a_network_that_is_made_again_after_the_clock_went_back_repeats_no_generation() {
    let directory = tempfile::tempdir().unwrap();
    let mut given = 0;
    for round in 0..8 {
        let store = EmbeddedStore::open(directory.path(), 4, embedded::EmbeddedOptions::default()).unwrap();
        let server = TestServer::over(Arc::new(store), |options| {
            // Different ids in each round, so that the network lives in another shard.
            let clock = ManualClock::new(WallTime(1_772_356_364_031 - round * 86_400_000), round);
            options.clock = Arc::new(RealLeases(Arc::new(clock)));
        });
        for again in 0..2 {
            let mut client = server.with_lan();
            let generation = client.allocate("a")["generation"].as_u64().unwrap();
            assert!(generation > given, "round {round}.{again}: {generation} after {given}");
            given = generation;
            client.ok("network.delete", json!({"network": "lan", "purge": true}));
        }
        server.running.stop();
    }
}

/// The client that asked for the purge is gone, and so is the network's name: nobody would ask for the rest.
#[test]
fn a_purge_that_was_broken_off_is_finished_by_whoever_has_the_network_next() {
    let reopen = stores::reopened(2);
    let server = TestServer::over(reopen(), |options| options.config.server.shutdown_seconds = 1);
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/20"}]}));
    let ips: Vec<Value> = (0..50).map(|_| json!({"network": "lan"})).collect();
    // More than is released at once.
    for n in 0..50 {
        client.ok("ip.acquire", json!({"owner": format!("o{n}"), "ips": ips}));
    }
    let id = client.ok("network.get", json!({"network": "lan"}))["id"].clone();
    // A network that is deleted but remembered is not purged.
    let kept = client.ok("network.create", json!({"name": "kept", "subnets": [{"cidr": "10.1.0.0/24"}]}))["id"].clone();
    client.ok("ip.allocate", json!({"network": "kept", "owner": "a"}));
    client.ok("network.delete", json!({"network": "kept", "force": true}));
    // It is closed and some of its holdings are released, but not all.
    server.store.next([Fault::None, Fault::None, Fault::Hang]);
    let line =
        json!({"jsonrpc": "2.0", "id": 1, "method": "network.delete", "params": {"network": "lan", "purge": true}});
    let begun = server.store.commits();
    client.raw(format!("{line}\n"));
    wait_for("its third commit", || server.store.commits() >= begun + 3);
    server.running.stop();

    let server = TestServer::over(reopen(), |_| {});
    let mut client = server.client();
    let again = json!({"name": "again", "subnets": [{"cidr": "10.0.0.0/20"}]});
    wait_for("that its space is free", || client.call("network.create", again.clone()).get("result").is_some());
    assert_eq!(client.kind("network.get", json!({ "network": id })), "not_found");
    // On a slow machine a page ends early.
    let events = history(&mut client, json!({"network": id, "owner": "o49", "limit": 1_000}));
    let by: Vec<&Value> = events.iter().map(|event| &event["by"]).collect();
    assert!(by.contains(&&json!("purge")), "{by:?}");
    assert_eq!(client.ok("network.usage", json!({"network": kept}))["held"], "1");
}

#[test]
fn an_idle_spell_before_a_clean_stop_counts() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), false);
    let mut client = server.with_lan();
    client.ok("ip.allocate", json!({"network": "lan", "owner": "a", "ttl_seconds": 3600}));
    server.clock.advance_ms(3_000_000);
    drop(client);
    server.running.stop();
    let server = on(directory.path(), false);
    let mut client = server.client();
    let get = json!({"network": "lan", "address": "10.0.0.2"});
    server.clock.advance_ms(500_000);
    assert_eq!(client.ok("ip.get", get.clone())["state"], "held");
    server.clock.advance_ms(101_000);
    assert_eq!(client.ok("ip.get", get)["state"], "free");
}

/// The time of the last batch of the only shard, by its own clock.
fn last_time(store: &dyn Store) -> ShardTime {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let history = runtime.block_on(store.history(ShardId(0), Seq(0), 1_000)).unwrap();
    history.last().unwrap().time
}

#[test]
fn the_time_of_an_idle_shard_is_written_down_while_something_waits_for_it() {
    let (inner, _files) = stores::store(1);
    let server = TestServer::over(Arc::clone(&inner), |_| {});
    let mut client = server.with_lan();
    server.clock.advance_ms(3_000_000);
    client.ok("ip.allocate", json!({"network": "lan", "owner": "a", "ttl_seconds": 86_400}));
    let granted = last_time(&*inner);
    server.clock.advance_ms(3_000_000);
    wait_for("that it is written down", || last_time(&*inner) >= ShardTime(granted.0 + 3_000_000));
}

#[test]
fn a_lease_of_a_minute_is_lengthened_by_a_crash_by_a_part_of_it() {
    let (inner, _files) = stores::store(1);
    let server = TestServer::over(Arc::clone(&inner), |_| {});
    let mut client = server.with_lan();
    client.ok("ip.allocate", json!({"network": "lan", "owner": "a", "ttl_seconds": 60}));
    let granted = last_time(&*inner);
    // Long before a minute has passed, but no less than a quarter of what is left.
    server.clock.advance_ms(16_000);
    wait_for("that it is written down", || last_time(&*inner) >= ShardTime(granted.0 + 16_000));
}

/// What is in use in a dynamic network must be recorded before the register is accepted, as claims do elsewhere.
#[test]
fn a_restored_register_writes_down_what_the_infrastructure_chose() {
    let (original, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = on(original.path(), false);
    let mut client = server.client();
    client.ok("network.create", json!({"name": "cloud", "kind": "dynamic"}));
    drop(client);
    server.running.stop();
    let restored = copy.path().join("register");
    embedded::copy(original.path(), &restored).unwrap();
    let server = on(&restored, false);
    let bind = json!({"network": "cloud", "address": "192.0.2.9", "owner": "b", "claimant": "vm-9"});
    assert_eq!(server.client().ok("ip.bind", bind)["address"], "192.0.2.9");
}

#[test]
fn a_restored_register_chooses_no_address_until_it_is_accepted() {
    let (original, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = on(original.path(), false);
    let mut client = server.with_lan();
    let before = client.ok("ip.allocate", json!({"network": "lan", "owner": "a"}));
    drop(client);
    server.running.stop();
    embedded::copy(original.path(), &copy.path().join("register")).unwrap();
    let restored = copy.path().join("register");

    let server = on(&restored, false);
    let mut client = server.client();
    let refused = client.call("ip.allocate", json!({"network": "lan", "owner": "b"}));
    let data = &refused["error"]["data"];
    assert_eq!((&data["kind"], &data["reason"]), (&json!("not_ready"), &json!("restored")), "{refused}");
    assert!(data["retry_after_ms"].is_u64(), "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("--accept-restored"), "{refused}");
    // Probes and metrics agree: nothing is granted here.
    let (status, why) = http(server.running.http, "GET /readyz", b"");
    assert!(status == 503 && why.contains("--accept-restored"), "{status} {why}");
    let (_, figures) = http(server.running.http, "GET /metrics", b"");
    assert!(figures.lines().any(|line| line == "allod_store_ready 0"), "{figures}");
    // But clients that come to claim what is in use are not kept away.
    let (status, why) = http(server.running.http, "GET /readyz?answers", b"");
    assert!(
        status == 200 && why.starts_with("no other node would do better: ") && why.contains("--accept-restored"),
        "{status} {why}"
    );
    let acquire = json!({"owner": "b", "ips": [{"network": "lan"}]});
    assert_eq!(client.call("ip.acquire", acquire)["error"]["data"]["kind"], "not_ready");
    // What is in the copy is answered, and addresses that their holders name are granted.
    let again = client.ok("ip.allocate", json!({"network": "lan", "owner": "a"}));
    assert_eq!(again["address"], before["address"]);
    client.ok("ip.claim", json!({"network": "lan", "owner": "b", "address": "10.0.0.77"}));
    client.ok("ip.release", json!({"network": "lan", "owner": "a"}));
    // Deployments may name addresses, too; those from a group's list would be chosen.
    let deploy = |client: &mut Client, wishes: Value| {
        let mut ask = wishes;
        ask["deployment"] = json!("shop");
        client.call("deployment.apply", ask)
    };
    let group = |ids: &[&str]| {
        json!({"groups": [{"name": "g", "instances": ids,
        "networks": [{"network": "lan", "static_ips": ["10.0.0.50-10.0.0.59"]}]}]})
    };
    for chosen in [json!({"instances": [{"id": "x", "networks": [{"network": "lan"}]}]}), group(&["x"])] {
        assert_eq!(deploy(&mut client, chosen)["error"]["data"]["kind"], "not_ready");
    }
    let named = json!({"instances": [{"id": "x", "networks": [{"network": "lan", "address": "10.0.0.55"}]}]});
    let applied = deploy(&mut client, named)["result"]["plan"].clone();
    client.ok("deployment.commit", json!({"deployment": "shop", "plan": applied}));
    let kept = deploy(&mut client, group(&["x"]));
    assert_eq!(kept["result"]["instances"][0]["networks"][0]["state"], "kept", "{kept}");
    drop(client);
    server.running.stop();

    for accept in [true, false] {
        let server = on(&restored, accept);
        let mut client = server.client();
        let owner = format!("c-{accept}");
        let granted = client.ok("ip.allocate", json!({"network": "lan", "owner": owner}));
        assert_eq!(http(server.running.http, "GET /readyz", b"").0, 200);
        assert!(granted["generation"].as_u64() > before["generation"].as_u64());
        drop(client);
        server.running.stop();
    }
}

/// A shard notes how late it is only when it is written to, so after a restart the times of shards differ.
#[test]
fn a_subnet_that_moves_between_shards_whose_times_are_apart_takes_what_is_left_of_leases_and_cooldowns_along() {
    let directory = tempfile::tempdir().unwrap();
    let server = on(directory.path(), false);
    let mut client = server.client();
    let names: Vec<String> = (0..8).map(|at| format!("a{at}")).collect();
    for (at, name) in names.iter().map(String::as_str).chain(["late"]).enumerate() {
        let subnets = json!([{"cidr": format!("10.0.{at}.0/24")}]);
        client.ok("network.create", json!({"name": name, "cooldown_seconds": 600, "subnets": subnets}));
    }
    server.clock.advance_ms(3_000_000);
    client.ok("ip.allocate", json!({"network": "late", "owner": "z"}));
    drop(client);
    server.running.stop();

    let server = on(directory.path(), false);
    let mut client = server.client();
    // Leases may last longer just after a start; by now none is longer than it was asked for.
    server.clock.advance_ms(60_000);
    for (at, name) in names.iter().enumerate() {
        client.ok("ip.allocate", json!({"network": name, "owner": format!("held{at}"), "ttl_seconds": 600}));
        client.ok("ip.allocate", json!({"network": name, "owner": format!("gone{at}")}));
        client.ok("ip.release", json!({"network": name, "owner": format!("gone{at}")}));
        client.ok("subnet.move", json!({"network": name, "subnet": format!("10.0.{at}.0/24"), "to": "late"}));
    }
    let mut states = |last: u8| -> Vec<Value> {
        let address = |at: usize| format!("10.0.{at}.{last}");
        let mut get = |at| client.ok("ip.get", json!({"network": "late", "address": address(at)}))["state"].clone();
        (0..names.len()).map(&mut get).collect()
    };
    server.clock.advance_ms(590_000);
    assert_eq!((states(1), states(2)), (vec![json!("held"); 8], vec![json!("cooling"); 8]));
    // An address whose lease ended cools like a released one.
    server.clock.advance_ms(11_000);
    assert_eq!((states(1), states(2)), (vec![json!("cooling"); 8], vec![json!("free"); 8]));
}
