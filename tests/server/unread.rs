//! History that cannot be read: watchers are told where they stand, or that it is damaged. And what is not known yet just
//! after a start.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allod::store::StoreError;
use allod::store::embedded::{self, EmbeddedStore};
use serde_json::{Value, json};

use crate::faulty::{FaultyStore, io_error};
use crate::history::history;
use crate::support::{Client, TestServer, http, wait_for};
use crate::watch::{Stream, event, notification, watch};

/// A client, and a cursor from before a grant to `a`, so that the grant is read from the store.
fn behind(server: &TestServer) -> (Client, Value) {
    let mut client = server.with_lan();
    let begin = client.ok("network.get", json!({"network": "lan"}))["cursor"].clone();
    client.allocate("a");
    // After this the names of networks are known.
    history(&mut client, json!({}));
    (client, begin)
}

fn watches(server: &TestServer) -> String {
    let metrics = http(server.running.http, "GET /metrics", b"").1;
    metrics.lines().find_map(|line| line.strip_prefix("allod_watches ")).unwrap().to_owned()
}

#[test]
fn while_the_history_cannot_be_read_who_watches_is_told_where_he_stands_and_then_what_happened() {
    let server = TestServer::new();
    let (mut client, begin) = behind(&server);
    *server.store.past_is.lock().unwrap() = Some(io_error());
    watch(&mut client, json!({"network": "lan", "since": begin}));
    let (_, mut stream) =
        Stream::open(&server, "network=lan", &format!("Last-Event-ID: {}\r\n", begin.as_str().unwrap()));
    let (_, gone) = Stream::open(&server, "network=lan", &format!("Last-Event-ID: {}\r\n", begin.as_str().unwrap()));
    assert_eq!(watches(&server), "3");
    drop(gone);
    // Even though there is nothing to tell.
    wait_for("that a client is noticed that left", || watches(&server) == "2");
    let told = notification(&mut client);
    assert_eq!((&told["method"], &told["params"]["cursor"]), (&json!("bookmark"), &begin), "{told}");
    assert_eq!(stream.next().event, "bookmark");
    *server.store.past_is.lock().unwrap() = None;
    assert_eq!((event(&mut client)["owner"].clone(), stream.next().data["owner"].clone()), (json!("a"), json!("a")));
}

/// Both stay as they are: what is damaged, and what only a newer version reads.
fn for_good(text: &str) -> [StoreError; 2] {
    [StoreError::Damaged(text.into()), StoreError::Newer(text.into())]
}

#[test]
fn a_watch_that_comes_to_what_cannot_be_read_ends_and_says_so() {
    for_good("batch 7 of shard 2 is broken").into_iter().for_each(a_watch_ends_before);
}

fn a_watch_ends_before(unreadable: StoreError) {
    let server = TestServer::new();
    let (mut client, begin) = behind(&server);
    *server.store.past_is.lock().unwrap() = Some(unreadable);
    watch(&mut client, json!({"network": "lan", "since": begin}));
    let (_, mut stream) =
        Stream::open(&server, "network=lan", &format!("Last-Event-ID: {}\r\n", begin.as_str().unwrap()));
    let told = notification(&mut client);
    assert_eq!((&told["method"], &told["params"]["last_common"]), (&json!("cursor_lost"), &begin), "{told}");
    let problem = "what follows the cursor cannot be read: batch 7 of shard 2 is broken";
    assert_eq!(told["params"]["problem"], problem);
    let sent = stream.next();
    assert_eq!((sent.event.as_str(), &sent.data["problem"]), ("cursor_lost", &json!(problem)));
    stream.until_its_end();
    // A client that begins with a new list goes on.
    let listed = client.ok("ip.list", json!({"network": "lan"}))["cursor"].clone();
    watch(&mut client, json!({"network": "lan", "since": listed}));
    server.client().allocate("b");
    assert_eq!(event(&mut client)["owner"], "b");
}

/// A server restarted over files in which a network of realm `r` came and went; and a cursor from when that existed.
fn started_again(directory: &std::path::Path, past: StoreError) -> (TestServer, Arc<FaultyStore>, Value) {
    let open = || {
        let store = EmbeddedStore::open(directory, 2, embedded::EmbeddedOptions::default()).unwrap();
        FaultyStore::around(Arc::new(store))
    };
    let server = TestServer::over(open(), |_| {});
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "gone", "realm": "r", "subnets": [{"cidr": "10.9.0.0/24"}]}));
    let begin = client.ok("ip.list", json!({"realm": "r"}))["cursor"].clone();
    client.ok("ip.allocate", json!({"network": "gone", "owner": "a"}));
    client.ok("network.delete", json!({"network": "gone", "purge": true}));
    drop(client);
    server.stop();
    let store = open();
    *store.past_is.lock().unwrap() = Some(past);
    (TestServer::over(Arc::clone(&store) as _, |_| {}), store, begin)
}

/// The next notification other than a sign of life.
fn after_bookmarks(client: &mut Client, begin: &Value) -> Value {
    loop {
        let told = notification(client);
        if told["method"] != "bookmark" || told["params"]["cursor"] != *begin {
            return told["params"].clone();
        }
    }
}

#[test]
fn just_after_a_start_a_watch_of_a_realm_waits_until_it_is_known_which_networks_were_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let (server, store, begin) = started_again(directory.path(), io_error());
    let mut client = server.client();
    client.ok("events.watch", json!({"realm": "r", "since": begin}));
    *store.past_is.lock().unwrap() = None;
    for happened in ["granted", "network_deleted"] {
        let told = after_bookmarks(&mut client, &begin);
        assert_eq!((&told["event"]["type"], &told["event"]["network"]), (&json!(happened), &json!("gone")), "{told}");
    }
}

#[test]
fn a_history_that_could_not_be_read_before_anybody_read_it_is_said_to_be_unreadable() {
    for_good("batch 7 of shard 1 is broken").into_iter().for_each(said_before_anybody_reads);
}

fn said_before_anybody_reads(unreadable: StoreError) {
    let directory = tempfile::tempdir().unwrap();
    let (server, _store, begin) = started_again(directory.path(), unreadable);
    let mut client = server.client();
    let passes = |answer: &Value| answer["error"]["data"]["kind"] == "not_ready";
    let end = Instant::now() + Duration::from_secs(60);
    let answer = loop {
        let answer = client.call("events.history", json!({"network": "lan"}));
        if !passes(&answer) {
            break answer;
        }
        assert!(Instant::now() < end, "{answer}");
    };
    assert_eq!(answer["error"]["data"]["kind"], "unavailable", "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("batch 7 of shard 1 is broken"), "{answer}");
    // It is not known which networks were in the realm: what is told of it might be incomplete.
    client.ok("events.watch", json!({"realm": "r", "since": begin}));
    let told = after_bookmarks(&mut client, &begin);
    assert_eq!(told["last_common"], begin, "{told}");
}
