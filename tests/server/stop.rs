//! The stop of a server: everything that was read is answered, and everything acknowledged is there after the next start.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use allod::config::{Config, StoreKind};
use allod::serve::{Ended, Options, Running, open_store, start};
use allod::store::StoreHealth;
use serde_json::{Value, json};

use crate::faulty::Fault;
use crate::moved::{node, secret};
use crate::redis_server::Server;
use crate::support::{Client, TestServer, line, wait_for};
use crate::watch::{event, notification};

/// Begins to stop, and waits until nobody is let in any more.
fn begin_to_stop(running: &Running) {
    running.stopper().cancel();
    wait_for("the stop", || TcpStream::connect(running.tcp).is_err());
}

#[test]
fn a_stop_answers_everything_that_was_read() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    server.store.hold();
    let mut text = String::new();
    for at in 0..100 {
        text += &line(at, "ip.allocate", &json!({"network": "lan", "owner": format!("o{at}"), "brief": true}));
    }
    client.hand_in_raw(&text);
    let TestServer { running, store, .. } = server;
    begin_to_stop(&running);
    // Sent after the stop: it is read by a connection whose thread has not yet seen that, and then answered too.
    client.raw(line(1_000, "server.ping", &json!({})));
    store.let_go();
    let answers: Vec<Value> = std::iter::from_fn(|| client.line()).collect();
    let (ping, granted): (Vec<&Value>, Vec<&Value>) = answers.iter().partition(|answer| answer["id"] == 1_000);
    assert!(ping.len() <= 1, "{answers:?}");
    assert!(granted.iter().all(|answer| answer["result"]["address"].is_string()), "{answers:?}");
    assert!(granted.iter().map(|answer| answer["id"].as_u64()).eq((0..100).map(Some)), "{answers:?}");
    assert_eq!(running.wait(), Ended::Stopped);
}

/// It was read before the stop, but after a request that was not yet answered.
#[test]
fn a_subscription_that_would_begin_after_the_stop_is_refused_and_holds_nothing_up() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    server.store.hold();
    let mut text = line(1, "ip.allocate", &json!({"network": "lan", "owner": "a"}));
    for id in 2..6 {
        text += &line(id, "events.watch", &json!({}));
    }
    client.hand_in_raw(&text);
    let TestServer { running, store, .. } = server;
    begin_to_stop(&running);
    store.let_go();
    assert!(client.answer()["result"]["address"].is_string());
    for _ in 2..6 {
        let refused = client.answer();
        let data = &refused["error"]["data"];
        assert_eq!((&data["kind"], &data["reason"]), (&json!("not_ready"), &json!("stopping")), "{refused}");
    }
    assert_eq!(client.line(), None);
    assert_eq!(running.wait(), Ended::Stopped);
}

/// A stream of server-sent events from its beginning.
fn stream(server: &TestServer) -> TcpStream {
    let mut stream = TcpStream::connect(server.running.http).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"GET /events HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    // Its head: from now on it is told of events.
    stream.read_exact(&mut [0; 15]).unwrap();
    stream
}

#[test]
fn who_watches_is_told_by_a_server_that_stops_where_to_go_on() {
    let open = crate::stores::reopened(4);
    let server = TestServer::over(open(), |_| {});
    let mut client = server.with_lan();
    let (mut watcher, mut idle, mut sse) = (server.client(), server.client(), stream(&server));
    for watcher in [&mut watcher, &mut idle] {
        watcher.ok("events.watch", json!({}));
    }
    client.allocate("a");
    let told = event(&mut watcher);
    assert_eq!(told["owner"], "a", "{told}");
    // A stream that was not told by then gets a cursor before the event.
    let mut text = String::new();
    while !text.contains("event: event\n") {
        let mut byte = [0];
        sse.read_exact(&mut byte).unwrap();
        text.push(char::from(byte[0]));
    }
    server.stop();
    let mut cursors = vec![];
    // The event is the first that the unread watcher is told.
    for (watcher, left) in [(&mut watcher, 0), (&mut idle, 1)] {
        (0..left).for_each(|_| assert_eq!(event(watcher)["owner"], "a"));
        let last = notification(watcher);
        assert_eq!(last["method"], "bookmark", "{last}");
        cursors.push(last["params"]["cursor"].as_str().unwrap().to_owned());
        assert_eq!(watcher.line(), None);
    }
    sse.read_to_string(&mut text).unwrap();
    let (before, last) = text.rsplit_once("event: bookmark\n").expect("a bookmark");
    assert!(!last.contains("event: "), "{text}");
    cursors.push(before.trim_end().rsplit_once("id: ").unwrap().1.to_owned());

    let next = TestServer::over(open(), |_| {});
    next.client().ok("ip.allocate", json!({"network": "lan", "owner": "b"}));
    for cursor in cursors {
        let mut watcher = next.client();
        watcher.ok("events.watch", json!({"since": cursor}));
        assert_eq!(event(&mut watcher)["owner"], "b");
    }
}

/// Nothing that it was told is an answer, and whatever it did not take is told again where it goes on.
#[test]
fn a_client_that_watches_and_takes_nothing_does_not_hold_up_a_stop() {
    let server = TestServer::with(|options| {
        options.config.server.shutdown_seconds = 120;
        options.config.server.slow_client_seconds = 3_600;
    });
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]}));
    let (mut watcher, sse) = (server.client(), stream(&server));
    watcher.ok("events.watch", json!({}));
    // More than sockets take.
    let ips = vec![json!({"network": "lan"}); 256];
    for at in 0..16 {
        client
            .ok("ip.acquire", json!({"owner": format!("o{at}"), "ips": ips, "note": "n".repeat(1_000), "brief": true}));
    }
    std::thread::sleep(Duration::from_millis(500));
    let TestServer { running, .. } = server;
    let begun = Instant::now();
    running.stop();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    drop((watcher, sse));
}

/// Only the node that stops knows that nobody waits there any more. What was held up there reaches the owner after that.
#[test]
fn what_reaches_the_owner_after_the_stop_of_its_own_node_does_not_wait_there() {
    let Some(redis) = Server::start(&[]) else { return };
    let secret = secret();
    let owner = node(&redis, "north", secret.path());
    let mut there = owner.with_lan();
    let subnets = json!([{"cidr": "10.9.0.0/29", "pools": [{"range": "10.9.0.2"}]}]);
    there.ok("network.create", json!({"name": "full", "subnets": subnets}));
    there.ok("ip.allocate", json!({"network": "full", "owner": "a"}));
    let TestServer { running, .. } = node(&redis, "south", secret.path());
    let mut client = Client::to(std::net::TcpStream::connect(running.tcp).unwrap());
    owner.store.hold();
    let one = |network: &str| json!({"network": network, "owner": "w", "wait_seconds": 600});
    let both = json!({"owner": "w", "ips": [{"network": "lan"}, {"network": "full"}], "wait_seconds": 600});
    let asked = [
        line(1, "ip.allocate", &json!({"network": "lan", "owner": "b"})),
        line(2, "network.list", &json!({})),
        line(3, "ip.allocate", &one("lan")),
        line(4, "ip.allocate", &one("full")),
        line(5, "ip.acquire", &both),
    ];
    client.hand_in_raw(&asked.concat());
    begin_to_stop(&running);
    owner.store.let_go();
    // They concern several networks, so they come in any order.
    let mut answers: Vec<Value> = (1..6).map(|_| client.answer()).collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    for (id, answer) in (1..6).zip(&answers) {
        assert_eq!(answer["id"], id, "{answer}");
        // As if the owner itself stopped: what finds capacity is granted.
        let reason = if id < 4 { json!(null) } else { json!("stopping") };
        assert_eq!(answer["error"]["data"]["reason"], reason, "{answer}");
    }
    assert_eq!(client.line(), None);
    assert_eq!(running.wait(), Ended::Stopped);
}

#[test]
fn a_stop_is_bounded_even_if_the_store_never_answers() {
    let server = TestServer::with(|options| options.config.server.shutdown_seconds = 1);
    let mut client = server.with_lan();
    server.store.always(Fault::Hang);
    client.hand_in("ip.allocate", json!({"network": "lan", "owner": "a"}));
    let begun = Instant::now();
    server.running.stop();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn a_store_that_failed_ends_the_server_and_acknowledges_nothing() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    server.store.hold();
    for owner in ["a", "b"] {
        let before = server.store.commits();
        client.hand_in("ip.allocate", json!({"network": "lan", "owner": owner}));
        wait_for("its commit", || server.store.commits() > before);
        server.store.always(Fault::UnknownNotApplied);
    }
    server.store.health_is(StoreHealth::Failed);
    server.store.let_go();
    client.answer();
    let second = client.answer();
    assert_eq!(second["error"]["data"]["kind"], "unavailable", "{second}");
    let TestServer { running, .. } = server;
    assert!(matches!(running.wait(), Ended::Failed(_)));
}

/// A thread of the store crashes between two requests, and every later request is refused before any commit.
#[test]
fn a_store_that_fails_while_nothing_is_under_way_ends_the_server() {
    if crate::stores::not_over_redis("whoever renews the lease finds out, of the real store") {
        return;
    }
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("ip.allocate", json!({"network": "lan", "owner": "a"}));
    server.store.health_is(StoreHealth::Failed);
    let TestServer { running, .. } = server;
    assert!(matches!(running.wait(), Ended::Failed(_)));
}

/// At the end marks of time are noted after what is under way; once the store has failed nothing writes them.
#[test]
fn a_stopped_committer_keeps_no_time_marks() {
    let server = TestServer::with(|options| options.config.server.shutdown_seconds = 20);
    let mut client = server.with_lan();
    client.ok("ip.allocate", json!({"network": "lan", "owner": "leased", "ttl_seconds": 600}));
    server.store.hold();
    server.store.always(Fault::UnknownNotApplied);
    for owner in ["a", "b"] {
        let before = server.store.commits();
        client.send("ip.allocate", json!({"network": "lan", "owner": owner}));
        wait_for("its commit", || server.store.commits() > before);
    }
    // A client that resets its connection is not waited for, so the end begins while its commits are under way.
    socket2::SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    server.clock.advance_ms(1_000);
    let TestServer { running, store, .. } = server;
    let begun = Instant::now();
    begin_to_stop(&running);
    store.health_is(StoreHealth::Failed);
    store.let_go();
    assert!(matches!(running.wait(), Ended::Failed(_)));
    assert!(begun.elapsed() < Duration::from_secs(60), "waited for what nobody writes: {:?}", begun.elapsed());
}

#[test]
fn what_was_acknowledged_is_there_after_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.store.kind = StoreKind::Embedded;
    config.store.directory = dir.path().join("data");
    config.store.shards = 4;
    let mut first = None;
    for round in 0..3 {
        let store = open_store(&config).unwrap();
        let running = start(Options::new(config.clone(), store).on_free_ports()).unwrap();
        let mut client = Client::to(std::net::TcpStream::connect(running.tcp).unwrap());
        if round == 0 {
            client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]}));
            client.ok("network.create", json!({"name": "gone", "subnets": [{"cidr": "10.1.0.0/24"}]}));
            client.ok("network.delete", json!({"network": "gone"}));
        }
        let kept = client.ok("ip.allocate", json!({"network": "lan", "owner": "kept"}));
        assert_eq!(kept["created"], round == 0);
        let generation = kept["generation"].as_u64().unwrap();
        assert_eq!(*first.get_or_insert(generation), generation);
        let new = client.ok("ip.allocate", json!({"network": "lan", "owner": format!("o{round}")}));
        assert!(new["generation"].as_u64().unwrap() > generation);
        assert_eq!(client.kind("network.get", json!({"network": "gone"})), "not_found");
        assert_eq!(
            client.kind("network.create", json!({"name": "x", "subnets": [{"cidr": "10.0.0.0/25"}]})),
            "overlap"
        );
        assert_eq!(running.stop(), Ended::Stopped);
    }
}
