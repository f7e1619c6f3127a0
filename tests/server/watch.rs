//! Events as they happen: from any cursor, in order, each once; and what happens to clients that cannot keep up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::System;
use allod::actors::coordinator::{self, Job, Order};
use allod::actors::events::Filter;
use allod::actors::service;
use allod::actors::waits::{Caller, Wait};
use allod::actors::{Fault, NotReadyReason, Told, outlet};
use allod::store::memory::MemoryStore;
use serde_json::{Value, json};

use crate::ended::parts;
use crate::support::{Client, TestServer, http};

/// The next notification; answers to requests must have been read before.
pub fn notification(client: &mut Client) -> Value {
    let line = client.answer();
    assert!(line.get("method").is_some(), "{line}");
    line
}

/// The next event; bookmarks are skipped.
pub fn event(client: &mut Client) -> Value {
    loop {
        let told = notification(client);
        match told["method"].as_str() {
            Some("event") => return told["params"]["event"].clone(),
            Some("bookmark") => {}
            _ => panic!("{told}"),
        }
    }
}

pub fn watch(client: &mut Client, params: Value) -> u64 {
    client.ok("events.watch", params)["subscription"].as_u64().unwrap()
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[test]
fn who_watches_is_told_what_happens_and_who_did_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut watcher = server.client();
    assert_eq!(watch(&mut watcher, json!({"network": "lan"})), 1);
    let granted = client.ok(
        "ip.allocate",
        json!({"network": "lan", "owner": "web/0", "ttl_seconds": 60, "labels": {"a": "b"}, "reason": "a new machine"}),
    );
    let told = event(&mut watcher);
    for (member, value) in [
        ("type", json!("granted")),
        ("network", json!("lan")),
        ("network_id", granted["network_id"].clone()),
        ("address", granted["address"].clone()),
        ("prefix_length", json!(32)),
        ("scope", json!("default")),
        ("owner", json!("web/0")),
        ("slot", json!("0")),
        ("generation", granted["generation"].clone()),
        ("kind", json!("dynamic")),
        ("by", json!("anonymous")),
        ("reason", json!("a new machine")),
        ("time", granted["created_at"].clone()),
    ] {
        assert_eq!(told[member], value, "{member} of {told}");
    }
    assert!(told.get("before").is_none(), "{told}");
    for member in ["owner", "labels", "created_at", "expires_at", "generation"] {
        assert_eq!(told["after"][member], granted[member], "{member} of {told}");
    }
    client.ok("ip.bind", json!({"network": "lan", "owner": "web/0", "claimant": "vm-1"}));
    client.ok("ip.renew", json!({"network": "lan", "owner": "web/0", "ttl_seconds": null}));
    client.ok("ip.update", json!({"network": "lan", "owner": "web/0", "set": {"note": "n"}}));
    client.ok("ip.unbind", json!({"network": "lan", "owner": "web/0", "claimant": "vm-1"}));
    let transfer = json!({"network": "lan", "address": granted["address"], "owner": "web/0", "to": {"owner": "web/1"}});
    client.ok("ip.transfer", transfer);
    client.ok("network.update", json!({"network": "lan", "set": {"name": "lan2", "description": "d"}}));
    client.ok("ip.release", json!({"network": "lan2", "owner": "web/1", "reason": "done"}));
    client.ok("network.delete", json!({"network": "lan2"}));
    let events: Vec<Value> = (0..8).map(|_| event(&mut watcher)).collect();
    let expected =
        ["bound", "renewed", "updated", "unbound", "transferred", "network_changed", "released", "network_deleted"];
    assert_eq!(types(&events), expected);
    assert_eq!(events[0]["claimant"], "vm-1");
    assert!(events[1]["before"].get("expires_at").is_some() && events[1]["after"].get("expires_at").is_none());
    assert_eq!((&events[4]["before"]["owner"], &events[4]["owner"]), (&json!("web/0"), &json!("web/1")));
    assert_eq!(events[5]["after"]["name"], "lan2");
    // Events carry the name of their time.
    let names: Vec<&Value> = events.iter().map(|event| &event["network"]).collect();
    assert_eq!(names, ["lan", "lan", "lan", "lan", "lan", "lan2", "lan2", "lan2"]);
    assert!(events[6].get("after").is_none() && events[6]["before"]["owner"] == "web/1");
    assert_eq!(events[6]["reason"], "done");
}

/// Type, owner, and the owners before and now.
fn seen(event: &Value) -> String {
    let of = |state: &str| event.get(state).map_or("-", |state| state["owner"].as_str().unwrap_or("?"));
    format!(
        "{} {} {}>{}",
        event["type"].as_str().unwrap(),
        event["address"].as_str().unwrap_or("-"),
        of("before"),
        of("after")
    )
}

#[test]
fn what_deployments_sweeps_declines_and_deletions_do_is_told_as_what_it_is() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut watcher = server.client();
    watch(&mut watcher, json!({"network": "lan"}));
    let mut told = |count: usize| -> Vec<Value> { (0..count).map(|_| event(&mut watcher)).collect() };
    let all = |events: &[Value]| events.iter().map(seen).collect::<Vec<_>>();
    let named = |wishes: &[(&str, &str)]| -> Value {
        let instance = |(id, at): &(&str, &str)| json!({"id": id, "networks": [{"network": "lan", "address": at}]});
        json!({"deployment": "shop", "reason": "deploy", "instances": wishes.iter().map(instance).collect::<Vec<_>>()})
    };
    let (one, two) = ("10.0.0.11", "10.0.0.12");
    let applied = client.ok("deployment.apply", named(&[("a", one), ("b", two)]));
    client.ok("deployment.commit", json!({"deployment": "shop", "plan": applied["plan"]}));
    let granted = told(2);
    assert_eq!(all(&granted), ["granted 10.0.0.11 ->a", "granted 10.0.0.12 ->b"]);
    assert!(granted.iter().all(|event| event["scope"] == "shop" && event["reason"] == "deploy"));

    // What a plan lets go is obsolete until the plan ends in one way or the other.
    let applied = client.ok("deployment.apply", named(&[("a", one)]));
    let obsolete = told(1).remove(0);
    assert_eq!(seen(&obsolete), "obsolete 10.0.0.12 b>b");
    let since = |event: &Value, state: &str| event[state].get("obsolete").map(|obsolete| obsolete["plan"].clone());
    assert_eq!((since(&obsolete, "before"), since(&obsolete, "after")), (None, Some(applied["plan"].clone())));
    client.ok("deployment.revert", json!({"deployment": "shop", "plan": applied["plan"], "reason": "failed"}));
    let reverted = told(1).remove(0);
    assert_eq!((seen(&reverted).as_str(), &reverted["reason"]), ("reverted 10.0.0.12 b>b", &json!("failed")));
    assert!(since(&reverted, "before").is_some() && since(&reverted, "after").is_none());

    // The plan promises the swap without any event, and the commit carries it out.
    let applied = client.ok("deployment.apply", named(&[("a", two), ("b", one)]));
    client.ok("deployment.commit", json!({"deployment": "shop", "plan": applied["plan"]}));
    assert_eq!(all(&told(2)), ["transferred 10.0.0.11 a>b", "transferred 10.0.0.12 b>a"]);

    client.ok(
        "ip.claim",
        json!({"network": "lan", "scope": "vms", "owner": "v", "address": "10.0.0.20", "claimant": "vm-1",
        "release_with_claimant": true}),
    );
    for _ in 0..2 {
        client.ok("claimant.sweep", json!({"scope": "vms", "alive": ["vm-2"], "grace_seconds": 0, "max_share": 1}));
    }
    client.ok(
        "ip.decline",
        json!({"network": "lan", "scope": "shop", "owner": "a", "address": two, "seen": "52:54:00:00:00:01"}),
    );
    assert_eq!(all(&told(3)), ["granted 10.0.0.20 ->v", "swept 10.0.0.20 v>-", "declined 10.0.0.12 a>-"]);
    let id = client.ok("network.get", json!({"network": "lan"}))["id"].clone();
    client.ok("network.delete", json!({"network": "lan", "force": true}));
    client.ok("network.restore", json!({"network": id}));
    assert_eq!(types(&told(2)), ["network_deleted", "network_restored"]);
    client.ok("network.delete", json!({"network": "lan", "purge": true, "reason": "gone"}));
    let gone = told(2);
    assert_eq!(types(&gone), ["network_deleted", "released"]);
    assert_eq!((seen(&gone[1]).as_str(), &gone[1]["reason"]), ("released 10.0.0.11 b>-", &json!("gone")));
}

#[test]
fn a_watch_goes_on_from_any_cursor_and_tells_each_event_once() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut watcher = server.client();
    let begin = client.ok("network.get", json!({"network": "lan"}))["cursor"].clone();
    watch(&mut watcher, json!({"network": "lan", "since": begin}));
    let owners: Vec<String> = (0..20).map(|n| format!("web/{n}")).collect();
    owners.iter().for_each(|owner| drop(client.allocate(owner)));
    client.ok("owner.release", json!({"owner": "web/3"}));
    let all: Vec<Value> = (0..21).map(|_| event(&mut watcher)).collect();
    let told: Vec<&str> = all[..20].iter().map(|event| event["owner"].as_str().unwrap()).collect();
    assert_eq!(told, owners);
    for (at, event_before) in all.iter().enumerate() {
        let mut again = server.client();
        watch(&mut again, json!({"network": "lan", "since": event_before["cursor"]}));
        let rest: Vec<Value> = (at + 1..21).map(|_| event(&mut again)).collect();
        assert_eq!(rest, all[at + 1..], "from {at}");
        assert!(again.waits_still(Duration::from_millis(20)));
    }
}

#[test]
fn a_cursor_stands_where_its_answer_saw_the_network_also_within_one_commit() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    // All in one write: decided in one turn, and committed in one batch.
    let mut lines = String::new();
    for n in 0..40 {
        let (id, owner) = (10 * n, format!("web/{n}"));
        for (id, method, params) in [
            (id + 1, "ip.allocate", json!({"network": "lan", "owner": owner})),
            (id + 2, "ip.list", json!({"network": "lan"})),
            (id + 3, "network.get", json!({"network": "lan"})),
            (id + 4, "network.usage", json!({"network": "lan"})),
        ] {
            lines += &crate::support::line(id, method, &params);
        }
    }
    client.raw(&lines);
    let mut answers: BTreeMap<u64, Value> = BTreeMap::new();
    while answers.len() < 160 {
        let answer = client.answer();
        answers.insert(answer["id"].as_u64().unwrap(), answer["result"].clone());
    }
    for n in 0..40 {
        for (kind, shown) in [(2, n + 1), (3, n + 1), (4, n + 1)] {
            let answer = &answers[&(10 * n + kind)];
            if kind == 2 {
                assert_eq!(answer["reservations"].as_array().unwrap().len() as u64, shown);
            }
            let mut watcher = server.client();
            watch(&mut watcher, json!({"network": "lan", "since": answer["cursor"]}));
            if n < 39 {
                assert_eq!(event(&mut watcher)["owner"], format!("web/{}", n + 1), "answer {kind} of round {n}");
            } else {
                assert!(watcher.waits_still(Duration::from_millis(20)));
            }
        }
    }
}

#[test]
fn a_watch_over_all_networks_or_a_realm_or_a_scope_is_told_what_it_asked_for() {
    let server = TestServer::new();
    let mut client = server.client();
    let (mut all, mut realm, mut scope) = (server.client(), server.client(), server.client());
    watch(&mut all, json!({}));
    watch(&mut realm, json!({"realm": "other"}));
    watch(&mut scope, json!({"scope": "shop"}));
    for n in 0..6 {
        let in_realm = if n % 2 == 0 { "default" } else { "other" };
        let subnets = json!([{"cidr": format!("10.0.{n}.0/24")}]);
        client.ok("network.create", json!({"name": format!("n{n}"), "realm": in_realm, "subnets": subnets}));
        let of = if n % 3 == 0 { "shop" } else { "default" };
        client.ok("ip.allocate", json!({"network": format!("n{n}"), "owner": "a", "scope": of}));
    }
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut cursors = Vec::new();
    for _ in 0..12 {
        let told = event(&mut all);
        let (network, what) = (told["network"].as_str().unwrap(), told["type"].as_str().unwrap());
        seen.entry(network.to_owned()).or_default().push(what.to_owned());
        cursors.push(told["cursor"].clone());
    }
    assert_eq!(seen.len(), 6);
    assert!(seen.values().all(|told| told == &["network_created", "granted"]), "{seen:?}");
    let of_realm: Vec<Value> = (0..6).map(|_| event(&mut realm)["network"].clone()).collect();
    assert!(of_realm.iter().all(|name| ["n1", "n3", "n5"].contains(&name.as_str().unwrap())), "{of_realm:?}");
    let mut of_scope: Vec<Value> = (0..2).map(|_| event(&mut scope)["network"].clone()).collect();
    of_scope.sort_by_key(ToString::to_string);
    assert_eq!(of_scope, ["n0", "n3"]);
    for watcher in [&mut all, &mut realm, &mut scope] {
        assert!(watcher.waits_still(Duration::from_millis(20)));
    }
    // From any cursor in the middle, the rest of all networks follows.
    for (at, cursor) in cursors.iter().enumerate() {
        let mut again = server.client();
        watch(&mut again, json!({"since": cursor}));
        (at + 1..12).for_each(|_| drop(event(&mut again)));
        assert!(again.waits_still(Duration::from_millis(10)));
    }
    // A cursor of all networks serves for one network, but not the other way round.
    let mut one = server.client();
    watch(&mut one, json!({"network": "n5", "since": cursors[0]}));
    assert_eq!(event(&mut one)["network"], "n5");
    let of_one = client.ok("network.get", json!({"network": "n5"}))["cursor"].clone();
    let refused = client.call("events.watch", json!({"since": of_one}));
    assert_eq!(refused["error"]["data"]["kind"], "invalid_argument", "{refused}");
    assert_eq!(refused["error"]["data"]["field"], "since", "{refused}");
}

#[test]
fn unwatch_ends_one_subscription_and_nothing_of_it_comes_after_the_answer() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let (first, second) = (watch(&mut client, json!({"network": "lan"})), watch(&mut client, json!({})));
    assert_eq!((first, second), (1, 2));
    assert_eq!(client.ok("events.unwatch", json!({"subscription": first})), json!({"subscription": first}));
    assert_eq!(client.kind("events.unwatch", json!({"subscription": first})), "not_found");
    client.send("ip.allocate", json!({"network": "lan", "owner": "a"}));
    let lines = [client.answer(), client.answer()];
    let told: Vec<&Value> = lines.iter().filter(|line| line.get("method").is_some()).collect();
    assert_eq!(told.len(), 1, "{lines:?}");
    assert_eq!(told[0]["params"]["subscription"], second);
}

#[test]
fn what_cannot_be_watched_is_said_at_once() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    assert_eq!(client.kind("events.watch", json!({"network": "no"})), "not_found");
    assert_eq!(client.kind("events.watch", json!({"network": "00000000-0000-0000-0000-000000000009"})), "not_found");
    assert_eq!(client.kind("events.watch", json!({"network": "lan", "since": "x"})), "invalid_argument");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "events.watch", "params": {}}).to_string();
    let (_, answer) = http(server.running.http, "POST /rpc", body.as_bytes());
    assert!(answer.contains("GET /events"), "{answer}");
    for _ in 0..64 {
        watch(&mut client, json!({}));
    }
    assert_eq!(client.kind("events.watch", json!({})), "overloaded");
}

#[test]
fn a_client_that_ended_its_input_is_told_on_until_it_is_gone() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut watcher = server.client();
    watch(&mut watcher, json!({"network": "lan"}));
    watcher.end_input();
    client.allocate("a");
    assert_eq!(event(&mut watcher)["owner"], "a");
    let stopper = server.running.stopper();
    stopper.cancel();
    // The server's end ends the stream, after a bookmark from which to go on.
    assert_eq!(notification(&mut watcher)["method"], "bookmark");
    assert_eq!(watcher.rest(), "");
}

#[test]
fn an_expired_lease_is_told_with_the_server_as_who_did_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut watcher = server.client();
    let granted = client.ok("ip.allocate", json!({"network": "lan", "owner": "a", "ttl_seconds": 40}));
    watch(&mut watcher, json!({"network": "lan"}));
    server.clock.advance_ms(41_000);
    client.ok("network.usage", json!({"network": "lan"}));
    let told = event(&mut watcher);
    assert_eq!((&told["type"], &told["by"], &told["owner"]), (&json!("expired"), &json!("lease"), &json!("a")));
    assert_eq!(told["before"]["expires_at"], granted["expires_at"], "as it was before");
}

/// What comes in its place takes over the rest of the lease.
#[test]
fn the_end_of_the_lease_of_what_comes_in_place_of_a_declined_address_is_told_as_it_was_answered() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut watcher = server.client();
    let granted = client.ok("ip.allocate", json!({"network": "lan", "owner": "a", "ttl_seconds": 600}));
    watch(&mut watcher, json!({"network": "lan"}));
    server.clock.advance_ms(300_000);
    let declined = json!({"network": "lan", "owner": "a", "address": granted["address"], "again": true});
    let answer = client.ok("ip.decline", declined);
    let told = std::iter::repeat_with(|| event(&mut watcher)).find(|told| told["type"] == "granted").unwrap();
    assert_eq!(told["address"], answer["reservation"]["address"], "{told}");
    assert_eq!(told["after"]["expires_at"], answer["reservation"]["expires_at"], "{told}");
    assert_eq!(told["after"]["expires_at"], granted["expires_at"], "{told}");
}

#[test]
fn a_client_that_takes_nothing_is_lagged_and_goes_on_from_the_cursor_it_is_given() {
    let server = TestServer::with(|options| options.config.server.max_behind_bytes = 200_000);
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]}));
    let mut watcher = server.client();
    watch(&mut watcher, json!({"network": "lan"}));
    let (_, mut stream) = Stream::open(&server, "network=lan", "");
    // More than the sockets take, and more than is kept in memory.
    let note = "n".repeat(1_000);
    let count = 8_000;
    let mut sent = 0;
    while sent < count {
        let lines: String = (sent..sent + 500)
            .map(|n| {
                let params = json!({"network": "lan", "owner": format!("web/{n}"), "note": note, "brief": true});
                crate::support::line(n, "ip.allocate", &params)
            })
            .collect();
        client.raw(&lines);
        (0..500).for_each(|_| drop(client.answer()));
        sent += 500;
    }
    let mut told = 0;
    let cursor = loop {
        let line = notification(&mut watcher);
        match line["method"].as_str() {
            Some("event") => {
                assert_eq!(line["params"]["event"]["owner"], format!("web/{told}"));
                told += 1;
            }
            Some("lagged") => break line["params"]["cursor"].clone(),
            _ => panic!("{line}"),
        }
    };
    assert!(told < count, "it lagged behind");
    assert_eq!(watcher.kind("events.unwatch", json!({"subscription": 1})), "not_found");
    watch(&mut watcher, json!({"network": "lan", "since": cursor}));
    while told < count {
        assert_eq!(event(&mut watcher)["owner"], format!("web/{told}"));
        told += 1;
    }
    // The same over HTTP: it is the last event of the stream, and its id leads on.
    let mut told = 0;
    let lagged = loop {
        let sent = stream.next();
        match sent.event.as_str() {
            "event" => {
                assert_eq!(sent.data["owner"], format!("web/{told}"));
                told += 1;
            }
            "lagged" => break sent,
            _ => panic!("{sent:?}"),
        }
    };
    assert!(told < count, "it lagged behind");
    assert_eq!(lagged.id.as_deref(), lagged.data["cursor"].as_str());
    stream.until_its_end();
    let (_, mut stream) = Stream::open(&server, "network=lan", &after(&lagged));
    while told < count {
        assert_eq!(stream.next().data["owner"], format!("web/{told}"));
        told += 1;
    }
}

#[test]
fn an_idle_watch_is_given_a_bookmark() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = |n: u32| json!([{"cidr": format!("10.0.{n}.0/24")}]);
    client.ok("network.create", json!({"name": "lan", "subnets": subnets(0)}));
    client.ok("network.create", json!({"name": "other", "subnets": subnets(1)}));
    let mut watcher = server.client();
    let begun = Instant::now();
    watch(&mut watcher, json!({"network": "lan"}));
    let (_, mut stream) = Stream::open(&server, "network=lan", "");
    client.ok("ip.allocate", json!({"network": "other", "owner": "a"}));
    let told = notification(&mut watcher);
    assert_eq!(told["method"], "bookmark", "{told}");
    assert!(begun.elapsed() > Duration::from_secs(9), "not before its time");
    watch(&mut client, json!({"network": "lan", "since": told["params"]["cursor"]}));
    assert!(client.waits_still(Duration::from_millis(20)));
    // Over HTTP, too; a browser goes on from there.
    let sent = stream.next();
    assert_eq!((sent.event.as_str(), sent.id.as_deref()), ("bookmark", sent.data["cursor"].as_str()));
    let (_, mut again) = Stream::open(&server, "network=lan", &after(&sent));
    server.client().ok("ip.allocate", json!({"network": "lan", "owner": "b"}));
    assert_eq!((again.next().data["owner"].clone(), stream.next().data["owner"].clone()), (json!("b"), json!("b")));
    // A stopping server ends its streams, and accepts no more.
    let stopped = std::thread::spawn(move || server.stop());
    stream.until_its_end();
    again.until_its_end();
    stopped.join().unwrap();
}

/// The header that a browser sends when it reconnects.
fn after(last: &Sent) -> String {
    format!("Last-Event-ID: {}\r\n", last.id.as_ref().unwrap())
}

pub struct Stream {
    socket: std::io::BufReader<std::net::TcpStream>,
    /// Part of the body that is no complete line yet.
    body: Vec<u8>,
}

/// One event of a stream: `id`, `event` and `data`.
#[derive(Debug)]
pub struct Sent {
    pub id: Option<String>,
    pub event: String,
    pub data: Value,
}

impl Stream {
    pub fn open(server: &TestServer, query: &str, header: &str) -> (u16, Self) {
        use std::io::Write;
        let mut socket = std::net::TcpStream::connect(server.running.http).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(socket, "GET /events?{query} HTTP/1.1\r\nhost: test\r\n{header}\r\n").unwrap();
        let mut stream = Self { socket: std::io::BufReader::new(socket), body: Vec::new() };
        let status = stream.raw_line();
        while stream.raw_line() != "\r\n" {
            assert!(!status.is_empty(), "it was closed");
        }
        (status.split(' ').nth(1).unwrap().parse().unwrap(), stream)
    }

    fn raw_line(&mut self) -> String {
        use std::io::BufRead;
        let mut line = String::new();
        self.socket.read_line(&mut line).unwrap();
        line
    }

    /// The next line of the body, unwrapped from its chunks; None after the last one.
    fn line(&mut self) -> Option<String> {
        use std::io::Read;
        loop {
            if let Some(end) = self.body.iter().position(|byte| *byte == b'\n') {
                let rest = self.body.split_off(end + 1);
                return Some(String::from_utf8(std::mem::replace(&mut self.body, rest)).unwrap());
            }
            let length = usize::from_str_radix(self.raw_line().trim_end(), 16).unwrap_or(0);
            if length == 0 {
                return None;
            }
            let whole = self.body.len() + length;
            self.body.resize(whole + 2, 0);
            self.socket.read_exact(&mut self.body[whole - length..]).unwrap();
            self.body.truncate(whole);
        }
    }

    /// Reads to the end, and skips what comes before it. A stream that stays open hits the time limit of reads.
    pub fn until_its_end(&mut self) {
        while self.line().is_some() {}
    }

    pub fn next(&mut self) -> Sent {
        let (mut id, mut event) = (None, String::new());
        loop {
            let line = self.line().expect("the stream goes on");
            if let Some(text) = line.strip_prefix("id: ") {
                id = Some(text.trim_end().to_owned());
            } else if let Some(text) = line.strip_prefix("event: ") {
                text.trim_end().clone_into(&mut event);
            } else if let Some(text) = line.strip_prefix("data: ") {
                return Sent { id, event, data: serde_json::from_str(text).unwrap() };
            }
        }
    }
}

#[test]
fn over_http_events_are_a_stream_that_goes_on_after_the_last_id() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let begin = client.ok("network.get", json!({"network": "lan"}))["cursor"].as_str().unwrap().to_owned();
    let (status, mut stream) = Stream::open(&server, "network=lan", "");
    assert_eq!(status, 200);
    for n in 0..5 {
        client.allocate(&format!("web {n}"));
    }
    let all: Vec<Sent> = (0..5).map(|_| stream.next()).collect();
    for (n, sent) in all.iter().enumerate() {
        assert_eq!((sent.event.as_str(), &sent.data["owner"]), ("event", &json!(format!("web {n}"))));
        assert_eq!(sent.id.as_deref(), sent.data["cursor"].as_str());
    }
    // A reconnecting browser repeats its first request, and says how far it came.
    let (_, mut again) = Stream::open(&server, &format!("network=lan&since={begin}"), &after(&all[2]));
    assert_eq!(again.next().data["owner"], "web 3");
    let (_, mut since) = Stream::open(&server, &format!("scope=default&network=lan&since={begin}"), "");
    assert_eq!(since.next().data["owner"], "web 0");
    for (query, status) in
        [("network=no", 404), ("netwrk=lan", 400), ("since=x", 400), ("network=lan&network=lan", 400)]
    {
        assert_eq!(Stream::open(&server, query, "").0, status, "{query}");
    }
    let metrics = http(server.running.http, "GET /metrics", b"").1;
    assert!(metrics.contains("\nallod_watches "), "{metrics}");
}

/// Otherwise a client that reconnects before the first event would miss it: a browser continues after its last id, or from
/// now on if it has none.
#[test]
fn a_stream_says_where_it_begins_before_anything_happens() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let (_, mut stream) = Stream::open(&server, "network=lan", "");
    let id = loop {
        let line = stream.line().unwrap();
        if let Some(id) = line.strip_prefix("id: ") {
            break id.trim_end().to_owned();
        }
        assert!(!line.starts_with("event") && !line.starts_with("data"), "{line}");
    };
    drop(stream);
    client.allocate("while nobody listened");
    let (_, mut again) = Stream::open(&server, "network=lan", &format!("Last-Event-ID: {id}\r\n"));
    assert_eq!(again.next().data["owner"], "while nobody listened");
}

/// A client of another node that watches and leaves again and again would otherwise leave one waiting page behind each time.
#[test]
fn a_page_for_another_node_is_waited_for_no_longer_than_its_subscription_lasts() {
    System::new().block_on(async {
        let (fatal, _fatals) = outlet();
        let shared = service::start(parts(Arc::new(MemoryStore::new(2)), fatal)).await.unwrap();
        let (caller, (outlet, mut told)) = (Arc::<Caller>::default(), outlet());
        let job = Job::Events { filter: Filter::default(), cursor: shared.feed.end(), wait_ms: 60_000 };
        let wait = Some(Wait::begins(60_000, Arc::clone(&caller)));
        let order = Order { job, by: "watch".into(), reason: None, deadline: None, dry_run: false, wait };
        coordinator::spawn(&shared, 7, order, outlet);
        caller.leave();
        let Some(Told::Job(7, Err(fault))) = told.recv().await else { panic!("it was waited for") };
        assert!(matches!(*fault, Fault::NotReady { reason: NotReadyReason::Stopping, .. }), "{fault:?}");
        shared.retire("all was seen");
    });
}
