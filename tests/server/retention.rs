//! History is kept up to a size and an age, over every store, and a client that asks for more is told so.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allod::store::Store;
use allod::store::embedded::{self, EmbeddedStore};
use allod::store::memory::MemoryStore;
use allod::store::redis::RedisStore;
use serde_json::{Value, json};

use crate::history::{history, told};
use crate::redis_server::process;
use crate::stores;
use crate::support::{Client, TestServer, line};
use crate::watch::{Stream, event, notification};

#[derive(Clone, Copy)]
struct Kept {
    bytes: u64,
    seconds: u64,
}

const LITTLE: Kept = Kept { bytes: 60_000, seconds: 1 << 30 };
const SHORT: Kept = Kept { bytes: 1 << 30, seconds: 1 };

fn files(kept: Kept) -> (Arc<dyn Store>, Option<tempfile::TempDir>) {
    let directory = tempfile::tempdir().unwrap();
    (files_in(directory.path(), kept), Some(directory))
}

fn files_in(directory: &Path, kept: Kept) -> Arc<dyn Store> {
    let options = embedded::EmbeddedOptions {
        segment_bytes: 32 << 10,
        snapshot_log_bytes: 32 << 10,
        history_bytes: kept.bytes,
        history_seconds: kept.seconds,
        history_grace: Duration::ZERO,
        ..embedded::EmbeddedOptions::default()
    };
    Arc::new(EmbeddedStore::open(directory, 1, options).unwrap())
}

fn memory(kept: Kept) -> (Arc<dyn Store>, Option<tempfile::TempDir>) {
    (Arc::new(MemoryStore::keeping_for(1, kept.bytes, kept.seconds)), None)
}

fn redis(kept: Kept) -> (Arc<dyn Store>, Option<tempfile::TempDir>) {
    let options = stores::redis_options(1);
    let options =
        allod::store::redis::RedisOptions { history_bytes: kept.bytes, history_seconds: kept.seconds, ..options };
    (Arc::new(RedisStore::open(options).unwrap()), None)
}

/// Grants and releases until history no longer reaches back to this owner.
fn until_forgotten(server: &TestServer, client: &mut Client, owner: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    let mut n = 0;
    while !history(client, json!({"owner": owner})).is_empty() {
        assert!(Instant::now() < end, "it is never forgotten");
        for _ in 0..50 {
            let (owner, slot) = ("busy", n.to_string());
            client.ok("ip.allocate", json!({"network": "lan", "owner": owner, "slot": slot, "note": "x".repeat(200)}));
            client.ok("ip.release", json!({"network": "lan", "owner": owner, "slot": slot}));
            n += 1;
        }
        // The memory store has no other clock.
        server.clock.advance_ms(1_000);
    }
}

fn what_was_granted_before_the_history_that_is_kept_is_told_all_the_same(
    (store, files): (Arc<dyn Store>, Option<tempfile::TempDir>),
) {
    let server = TestServer::over_files(store, files, |_| {});
    let mut client = server.with_lan();
    let kept = client.allocate("kept");
    client.allocate("changed");
    let first = history(&mut client, json!({"owner": "kept"})).remove(0);
    server.clock.advance_ms(10_000);
    let then = client.ok("server.info", json!({}))["time"].clone();
    server.clock.advance_ms(10_000);
    until_forgotten(&server, &mut client, "kept");
    client.ok("ip.release", json!({"network": "lan", "owner": "changed"}));
    let told_of = history(&mut client, json!({"address": kept["address"], "at": then}));
    assert_eq!(told(&told_of), ["granted kept"]);
    assert_eq!((&told_of[0]["time"], &told_of[0]["by"]), (&kept["created_at"], &json!("unknown")));
    assert_eq!(told(&history(&mut client, json!({"owner": "changed", "at": then}))), ["granted changed"]);
    assert!(history(&mut client, json!({"owner": "busy", "at": then})).is_empty());
    let both = history(&mut client, json!({"network": "lan", "at": then}));
    assert_eq!(told(&both), ["granted kept", "granted changed"]);
    // An older cursor is refused together with a usable one, never silently replaced.
    let of_lan = told_of[0]["cursor"].clone();
    for cursor in [&of_lan, &first["cursor"]] {
        let network = if *cursor == of_lan { json!("lan") } else { Value::Null };
        let ask = |since: &Value| match &network {
            Value::Null => json!({"since": since}),
            network => json!({"network": network, "since": since}),
        };
        let lost = client.call("events.watch", ask(cursor));
        assert_eq!(lost["error"]["data"]["kind"], "cursor_lost", "{lost}");
        let common = lost["error"]["data"]["last_common"].clone();
        server.client().ok("events.watch", ask(&common));
        let mut query = format!("since={}", url(cursor.as_str().unwrap()));
        if !network.is_null() {
            query += "&network=lan";
        }
        assert_eq!(Stream::open(&server, &query, "").0, 410, "over HTTP");
    }
    assert_eq!(client.kind("events.history", json!({"network": "lan", "after": of_lan})), "cursor_lost");
    // A cursor of one network says nothing about others.
    assert_eq!(client.kind("events.history", json!({"after": of_lan})), "invalid_argument");
}

/// One network is deleted so that nothing is left of it; many events of others follow.
fn what_a_network_was_called_is_forgotten_with_its_history(
    (store, files): (Arc<dyn Store>, Option<tempfile::TempDir>),
) {
    let server = TestServer::over_files(store, files, |_| {});
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "gone", "subnets": [{"cidr": "10.9.0.0/24"}]}));
    client.ok("network.create", json!({"name": "deleted", "subnets": [{"cidr": "10.8.0.0/24"}]}));
    client.ok("network.delete", json!({"network": "gone", "purge": true}));
    client.ok("ip.allocate", json!({"network": "deleted", "owner": "a"}));
    client.ok("network.delete", json!({"network": "deleted", "force": true}));
    let ask = json!({"network": "gone"});
    assert_eq!(told(&history(&mut client, ask.clone())), ["network_created -", "network_deleted -"]);
    // Until its chapter is closed and history has moved on past it, and until somebody looks.
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        assert!(Instant::now() < end, "it is never forgotten");
        let ips: Vec<Value> = (0..50).map(|_| json!({"network": "lan"})).collect();
        for _ in 0..25 {
            client.ok("ip.acquire", json!({"owner": "busy", "ips": ips}));
            client.ok("owner.release", json!({"owner": "busy"}));
        }
        server.clock.advance_ms(600_000);
        let answer = client.call("events.history", ask.clone());
        if answer["error"]["data"]["kind"] == "not_found" {
            break;
        }
        assert!(answer.get("result").is_some(), "{answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
    // A deleted network that is remembered can still be asked for, and of course so can an existing one.
    for network in ["deleted", "lan"] {
        client.ok("events.history", json!({"network": network, "limit": 1}));
    }
}

#[test]
fn memory_forgets_what_a_network_was_called_with_its_history() {
    what_a_network_was_called_is_forgotten_with_its_history(memory(LITTLE));
}

#[test]
fn files_forget_what_a_network_was_called_with_its_history() {
    what_a_network_was_called_is_forgotten_with_its_history(files(LITTLE));
}

/// A node had the register, and a chapter of its index. Then another node, with an index elsewhere, went on until nothing of
/// that chapter is kept any more, nor a later change of a name.
#[test]
fn a_name_that_ended_before_the_history_that_is_kept_is_not_told_of_what_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let all = Kept { bytes: 1 << 30, seconds: 1 << 30 };
    let server = TestServer::over(files_in(directory.path(), all), |_| {});
    let mut client = server.with_lan();
    let noted = || std::fs::read(directory.path().join("HISTORY")).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while !noted().windows(3).any(|bytes| bytes == b"lan") {
        assert!(Instant::now() < end, "there is never a chapter");
        keeps_busy(&mut client, "lan");
    }
    server.stop();
    let store = || files_in(directory.path(), LITTLE);

    let server = TestServer::over(store(), |options| options.hooks.without_index = true);
    let mut client = server.client();
    client.ok("network.update", json!({"network": "lan", "set": {"name": "office"}}));
    client.ok("ip.allocate", json!({"network": "office", "owner": "behind"}));
    let end = Instant::now() + Duration::from_secs(60);
    while !history(&mut client, json!({"owner": "behind"})).is_empty() {
        assert!(Instant::now() < end, "it is never forgotten");
        keeps_busy(&mut client, "office");
    }
    client.ok("ip.allocate", json!({"network": "office", "owner": "kept"}));
    server.stop();

    for start in ["the first", "the next"] {
        let server = TestServer::over(store(), |_| {});
        let mut client = server.client();
        let found = history(&mut client, json!({"owner": "kept"}));
        assert_eq!(
            (told(&found), &found[0]["network"]),
            (vec!["granted kept".to_owned()], &json!("office")),
            "{start}"
        );
        assert_eq!(client.kind("events.history", json!({"network": "lan"})), "not_found", "{start}");
        server.stop();
    }
}

/// Fills a good part of a chapter, and of what is kept.
fn keeps_busy(client: &mut Client, network: &str) {
    let ips: Vec<Value> = (0..50).map(|_| json!({"network": network})).collect();
    for _ in 0..10 {
        client.ok("ip.acquire", json!({"owner": "busy", "ips": ips}));
        client.ok("owner.release", json!({"owner": "busy"}));
    }
}

/// A cursor as part of a query.
fn url(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// The client is the slow one. It is told what it lost when it asks to go on.
#[test]
fn a_watch_behind_all_that_is_kept_is_lagged_and_its_cursor_is_lost() {
    let (store, files) = memory(Kept { bytes: 2_000_000, ..LITTLE });
    let server = TestServer::over_files(store, files, |options| options.config.server.max_behind_bytes = 100_000);
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]}));
    let mut watcher = server.client();
    watcher.ok("events.watch", json!({"network": "lan"}));
    client.allocate("first");
    assert_eq!(event(&mut watcher)["owner"], "first", "it keeps up");
    // More than the sockets take, and more than is kept beyond that.
    let note = "n".repeat(1_000);
    for from in (0..8_000).step_by(500) {
        let ask = |n: u64| json!({"network": "lan", "owner": format!("web/{n}"), "note": note, "brief": true});
        let lines: String = (from..from + 500).map(|n| line(n, "ip.allocate", &ask(n))).collect();
        client.raw(&lines);
        (0..500).for_each(|_| drop(client.answer()));
    }
    let told = loop {
        let told = notification(&mut watcher);
        if told["method"] != "event" {
            break told;
        }
    };
    assert_eq!(told["method"], "lagged", "{told}");
    let since = json!({"network": "lan", "since": told["params"]["cursor"]});
    let refused = watcher.call("events.watch", since);
    let data = &refused["error"]["data"];
    assert_eq!(data["kind"], "cursor_lost", "{refused}");
    watcher.ok("events.watch", json!({"network": "lan", "since": data["last_common"]}));
    assert_eq!(event(&mut watcher)["type"], "granted");
}

#[test]
fn beyond_its_bytes_memory_forgets_the_oldest_and_tells_what_is_held_all_the_same() {
    what_was_granted_before_the_history_that_is_kept_is_told_all_the_same(memory(LITTLE));
}

#[test]
fn beyond_their_bytes_files_forget_the_oldest_and_tell_what_is_held_all_the_same() {
    what_was_granted_before_the_history_that_is_kept_is_told_all_the_same(files(LITTLE));
}

#[test]
fn beyond_its_bytes_redis_forgets_the_oldest_and_tells_what_is_held_all_the_same() {
    if !process::is_missing() {
        what_was_granted_before_the_history_that_is_kept_is_told_all_the_same(redis(LITTLE));
    }
}

#[test]
fn what_is_too_old_is_forgotten_by_memory_although_there_is_room() {
    what_was_granted_before_the_history_that_is_kept_is_told_all_the_same(memory(SHORT));
}

#[test]
fn what_is_too_old_is_forgotten_by_files_although_there_is_room() {
    what_was_granted_before_the_history_that_is_kept_is_told_all_the_same(files(SHORT));
}

#[test]
fn what_is_too_old_is_forgotten_by_redis_although_there_is_room() {
    if !process::is_missing() {
        what_was_granted_before_the_history_that_is_kept_is_told_all_the_same(redis(SHORT));
    }
}
