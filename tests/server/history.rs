//! What happened: who held an address, what an owner held, when, and why it ended; also in networks that no longer exist.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use allod::actors::clock::Clock;
use allod::actors::service::Hooks;
use allod::core::command::Command;
use allod::store::embedded::{self, EmbeddedStore};
use allod::store::memory::MemoryStore;
use serde_json::{Value, json};

use crate::faulty::FaultyStore;
use crate::support::{Client, TestServer, line, patient, wait_for};
use allod::store::Store;

/// All events, page by page.
pub fn history(client: &mut Client, mut ask: Value) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        // As clients do while the index of earlier events is still being read after a start.
        let is_being_read = |answer: &Value| answer["error"]["data"]["reason"] == "loading";
        let mut page = client.ok_after("events.history", &ask, 1_200, is_being_read);
        all.append(page["events"].as_array_mut().unwrap());
        match page.get("next") {
            Some(next) => ask["after"] = next.clone(),
            None => return all,
        }
    }
}

/// The events in order, as `granted a`, `released a`, …
pub fn told(events: &[Value]) -> Vec<String> {
    let text = |event: &Value, member: &str| event[member].as_str().unwrap_or("-").to_owned();
    events.iter().map(|event| format!("{} {}", text(event, "type"), text(event, "owner"))).collect()
}

#[test]
fn what_was_seen_at_a_declined_address_is_in_the_history_with_the_reason() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let long = "x".repeat(256);
    let of = |bytes: usize| &long[..bytes];
    for (reason, seen, told) in [
        (None, "52:54:00:12:34:56", "seen: 52:54:00:12:34:56".to_owned()),
        (Some("arping"), "52:54:00:12:34:56", "arping (seen: 52:54:00:12:34:56)".to_owned()),
        (None, of(250), format!("seen: {}", of(250))),
        (None, of(251), of(251).to_owned()),
        (None, of(256), of(256).to_owned()),
        (Some("arping"), of(246), format!("a (seen: {})", of(246))),
        (Some("ärping"), of(246), format!("seen: {}", of(246))),
        (Some("arping"), of(247), format!("seen: {}", of(247))),
        (Some("arping"), of(256), of(256).to_owned()),
        (Some(long.as_str()), "02:00:00:00:00:01", format!("{} (seen: 02:00:00:00:00:01)", &long[26..])),
    ] {
        let address = client.allocate("a")["address"].clone();
        let mut decline = json!({"network": "lan", "address": address, "owner": "a", "seen": seen});
        decline.as_object_mut().unwrap().extend(reason.map(|reason| ("reason".to_owned(), json!(reason))));
        client.ok("ip.decline", decline);
        let page = client.ok("events.history", json!({"network": "lan", "address": address}));
        let declined = page["events"].as_array().unwrap().iter().find(|event| event["type"] == "declined").unwrap();
        assert_eq!(declined["reason"], json!(told), "{page}");
    }
}

#[test]
fn the_history_of_an_address_tells_every_holder_and_why_each_holding_ended() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.allocate("a");
    server.clock.advance_ms(1_000);
    client.ok("ip.transfer", json!({"network": "lan", "address": "10.0.0.2", "owner": "a", "to": {"owner": "b"}}));
    server.clock.advance_ms(1_000);
    client.ok("ip.release", json!({"network": "lan", "owner": "b", "reason": "moved away"}));
    server.clock.advance_ms(1_000);
    client.ok("ip.allocate", json!({"network": "lan", "owner": "c", "ttl_seconds": 60}));
    client.allocate("other");
    server.clock.advance_ms(120_000);
    client.ok("network.usage", json!({"network": "lan"}));
    let events = history(&mut client, json!({"address": "10.0.0.2"}));
    assert_eq!(told(&events), ["granted a", "transferred b", "released b", "granted c", "expired c"]);
    assert_eq!((&events[2]["reason"], &events[2]["by"]), (&json!("moved away"), &json!("anonymous")));
    assert_eq!(events[4]["by"], "lease");
    assert_eq!(events[1]["before"]["owner"], "a");
    // With further conditions, too.
    for (more, expected) in [
        (json!({"owner": "b"}), vec!["transferred b", "released b"]),
        (json!({"owner": "a"}), vec!["granted a", "transferred b"]),
        (json!({"network": "lan", "owner": "c"}), vec!["granted c", "expired c"]),
        (json!({"scope": "none"}), vec![]),
        (json!({"realm": "none"}), vec![]),
        (json!({"from": events[3]["time"]}), vec!["granted c", "expired c"]),
        (json!({"to": events[2]["time"]}), vec!["granted a", "transferred b", "released b"]),
    ] {
        let mut ask = json!({"address": "10.0.0.2"});
        ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(told(&history(&mut client, ask.clone())), expected, "{ask}");
    }
}

#[test]
fn who_held_an_address_at_a_time_is_told_and_that_nobody_did() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut times = Vec::new();
    let mut pass = |server: &TestServer, client: &mut Client| {
        server.clock.advance_ms(10_000);
        times.push(client.ok("server.info", json!({}))["time"].clone());
        server.clock.advance_ms(10_000);
    };
    pass(&server, &mut client);
    client.allocate("a");
    pass(&server, &mut client);
    client.ok("ip.bind", json!({"network": "lan", "owner": "a", "claimant": "vm"}));
    pass(&server, &mut client);
    client.ok("ip.release", json!({"network": "lan", "owner": "a"}));
    pass(&server, &mut client);
    client.ok("ip.claim", json!({"network": "lan", "owner": "b", "address": "10.0.0.2"}));
    client.ok("ip.claim", json!({"network": "lan", "owner": "b", "address": "10.0.0.9", "slot": "1"}));
    pass(&server, &mut client);
    let who = |client: &mut Client, ask: Value| told(&history(client, ask));
    let at = |n: usize| json!({"address": "10.0.0.2", "at": times[n]});
    assert!(who(&mut client, at(0)).is_empty());
    assert_eq!(who(&mut client, at(1)), ["granted a"]);
    assert_eq!(who(&mut client, at(2)), ["bound a"]);
    assert!(who(&mut client, at(3)).is_empty(), "nobody");
    assert_eq!(who(&mut client, at(4)), ["granted b"]);
    assert_eq!(who(&mut client, json!({"owner": "b", "at": times[4]})), ["granted b", "granted b"]);
    assert_eq!(who(&mut client, json!({"owner": "b", "at": times[4], "limit": 1})), ["granted b", "granted b"]);
    assert_eq!(who(&mut client, json!({"owner": "a", "at": times[2]})), ["bound a"]);
    assert!(who(&mut client, json!({"owner": "a", "at": times[3]})).is_empty());
    assert_eq!(who(&mut client, json!({"network": "lan", "at": times[4]})), ["granted b", "granted b"]);
    assert_eq!(client.kind("events.history", json!({"at": times[0], "from": times[0]})), "invalid_argument");
}

#[test]
fn what_moves_with_its_subnet_ends_in_one_network_and_begins_in_the_other() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "a", "subnets": [{"cidr": "10.0.0.0/24"}, {"cidr": "10.0.1.0/24"}]}));
    client.ok("network.create", json!({"name": "b"}));
    let mut times = Vec::new();
    let mut pass = |server: &TestServer, client: &mut Client| {
        server.clock.advance_ms(10_000);
        times.push(client.ok("server.info", json!({}))["time"].clone());
        server.clock.advance_ms(10_000);
    };
    client.ok("ip.claim", json!({"network": "a", "owner": "x", "address": "10.0.0.9"}));
    client.ok("ip.claim", json!({"network": "a", "owner": "stays", "address": "10.0.1.9"}));
    let mut watcher = server.client();
    watcher.ok("events.watch", json!({}));
    pass(&server, &mut client);
    client.ok("subnet.move", json!({"network": "a", "subnet": "10.0.0.0/24", "to": "b", "reason": "split"}));
    pass(&server, &mut client);
    client.ok("ip.release", json!({"network": "b", "owner": "x"}));
    pass(&server, &mut client);

    let mut at = |n: usize| {
        let held = history(&mut client, json!({"address": "10.0.0.9", "at": times[n]}));
        held.iter().map(|event| (event["network"].clone(), event["type"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(at(0), [(json!("a"), json!("granted"))]);
    assert_eq!(at(1), [(json!("b"), json!("transferred"))]);
    assert!(at(2).is_empty());
    let all = history(&mut client, json!({"network": "a", "at": times[2]}));
    assert_eq!(told(&all), ["granted stays"]);
    let events = history(&mut client, json!({"owner": "x"}));
    let mut told = told(&events);
    told.sort();
    assert_eq!(told, ["granted x", "released x", "transferred x", "transferred x"]);
    let left = events.iter().find(|event| event["type"] == "transferred" && event["network"] == "a").unwrap();
    let came = events.iter().find(|event| event["type"] == "transferred" && event["network"] == "b").unwrap();
    assert_eq!(
        (left["before"]["owner"].as_str(), left.get("after"), &left["reason"]),
        (Some("x"), None, &json!("split"))
    );
    assert_eq!((came.get("before"), came["after"]["owner"].as_str()), (None, Some("x")));
    assert_eq!(left["generation"], came["generation"], "it is the same holding");

    // A watcher hears of holdings, not only of networks.
    let mut heard: Vec<String> = (0..5)
        .map(|_| crate::watch::event(&mut watcher))
        .map(|event| format!("{} {}", event["network"].as_str().unwrap(), event["type"].as_str().unwrap()))
        .collect();
    heard.sort();
    assert_eq!(heard, ["a network_changed", "a transferred", "b network_changed", "b released", "b transferred"]);
}

#[test]
fn an_address_in_a_block_is_told_by_the_block() {
    let server = TestServer::new();
    let mut client = server.client();
    client
        .ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}, {"cidr": "2001:db8::/64"}]}));
    let block = |length: u8| json!({"network": "lan", "owner": format!("k/{length}"), "prefix_length": length});
    for length in [28, 30, 80, 127] {
        let held = client.ok("ip.allocate", block(length));
        let (base, _) = held["interface"].as_str().unwrap().split_once('/').unwrap();
        let last = match base.parse::<std::net::IpAddr>().unwrap() {
            std::net::IpAddr::V4(first) => std::net::IpAddr::V4((u32::from(first) + 3).into()),
            std::net::IpAddr::V6(first) => std::net::IpAddr::V6((u128::from(first) + 1).into()),
        };
        let events = history(&mut client, json!({"address": last.to_string()}));
        assert_eq!(told(&events), [format!("granted k/{length}")], "{last}");
        assert_eq!((&events[0]["address"], &events[0]["prefix_length"]), (&json!(base), &json!(length)));
    }
}

#[test]
fn a_network_that_is_no_more_has_a_history_by_its_id_and_by_each_of_its_names() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let id = client.ok("network.get", json!({"network": "lan"}))["id"].clone();
    client.allocate("a");
    client.ok("network.update", json!({"network": "lan", "set": {"name": "old-lan"}}));
    client.ok("ip.release", json!({"network": "old-lan", "owner": "a"}));
    client.ok("network.delete", json!({"network": "old-lan", "reason": "no longer used"}));
    // Another network with the same name is a different network.
    client.ok("network.create", json!({"name": "lan", "realm": "r", "subnets": [{"cidr": "10.9.0.0/24"}]}));
    let expected = ["network_created -", "granted a", "network_changed -", "released a", "network_deleted -"];
    for named in [id.clone(), json!("old-lan")] {
        let events = history(&mut client, json!({"network": named}));
        assert_eq!(told(&events), expected, "{named}");
        let names: Vec<&Value> = events.iter().map(|event| &event["network"]).collect();
        assert_eq!(names, ["lan", "lan", "old-lan", "old-lan", "old-lan"]);
        assert_eq!(events[4]["reason"], "no longer used");
    }
    let both = history(&mut client, json!({"network": "lan"}));
    assert_eq!(both.len(), 6);
    assert_eq!(both.iter().filter(|event| event["network_id"] == id).count(), 5);
    assert_eq!(client.kind("events.history", json!({"network": "never"})), "not_found");
    // A watcher of the network may hear of its end later.
    let mut watcher = server.client();
    let first = both.iter().find(|event| event["network_id"] == id).unwrap();
    watcher.ok("events.watch", json!({"network": id, "since": first["cursor"]}));
    assert_eq!(crate::watch::event(&mut watcher)["type"], "granted");
}

#[test]
fn pages_of_the_history_hold_each_event_once_and_their_cursors_can_be_watched_from() {
    let server = TestServer::new();
    let mut client = server.client();
    for n in 0..8 {
        let subnets = json!([{"cidr": format!("10.0.{n}.0/24")}]);
        client.ok("network.create", json!({"name": format!("n{n}"), "subnets": subnets}));
    }
    for n in 0..40 {
        client.ok(
            "ip.allocate",
            json!({"network": format!("n{}", n % 8), "owner": format!("o{}", n % 5), "slot": n.to_string()}),
        );
        server.clock.advance_ms(10);
    }
    let whole = history(&mut client, json!({}));
    assert_eq!(whole.len(), 48);
    assert!(whole.is_sorted_by_key(|event| event["time"].as_str().unwrap().to_owned()), "in order of time");
    for limit in [1, 3, 7] {
        let paged = history(&mut client, json!({"limit": limit}));
        let plain = |events: &[Value]| {
            events.iter().map(|event| (event["network"].clone(), event["generation"].clone())).collect::<Vec<_>>()
        };
        assert_eq!(plain(&paged), plain(&whole), "pages of {limit}");
    }
    let of_owner = history(&mut client, json!({"owner": "o3", "limit": 2}));
    assert_eq!(of_owner.len(), 8);
    let mut watcher = server.client();
    watcher.ok("events.watch", json!({"since": of_owner[4]["cursor"]}));
    let mut owners = Vec::new();
    while owners.len() < 3 {
        let event = crate::watch::event(&mut watcher);
        if event["owner"] == "o3"
            && of_owner[..5]
                .iter()
                .all(|told| told["generation"] != event["generation"] || told["network"] != event["network"])
        {
            owners.push(event["slot"].clone());
        }
    }
    // Events of different networks have no order among each other.
    let mut expected: Vec<Value> = of_owner[5..].iter().map(|event| event["slot"].clone()).collect();
    owners.sort_by_key(ToString::to_string);
    expected.sort_by_key(ToString::to_string);
    assert_eq!(owners, expected);
}

/// Sends many calls at once, and waits for all answers.
fn all_at_once(client: &mut Client, calls: &[(&str, Value)]) {
    for part in calls.chunks(500) {
        let lines: String =
            part.iter().enumerate().map(|(at, (method, params))| line(at as u64, method, params)).collect();
        client.raw(&lines);
        for _ in part {
            let answer = client.answer();
            assert!(answer.get("result").is_some(), "{answer}");
        }
    }
}

#[test]
fn with_the_index_and_without_it_the_same_is_told() {
    // Bytes of the index. In the end three chapters are closed.
    const TWO_CHAPTERS: u64 = 15_000;
    let server = TestServer::new();
    let mut client = server.client();
    for n in 0..4 {
        let subnets = json!([{"cidr": format!("10.{n}.0.0/16")}]);
        client.ok("network.create", json!({"name": format!("n{n}"), "subnets": subnets}));
    }
    let network = |n: usize| format!("n{}", n % 4);
    let grants: Vec<(&str, Value)> = (0..12_000)
        .map(|n| {
            (
                "ip.allocate",
                json!({"network": network(n), "owner": format!("o{}", n % 997), "slot": n.to_string(), "brief": true}),
            )
        })
        .collect();
    all_at_once(&mut client, &grants);
    let releases: Vec<(&str, Value)> = (0..12_000)
        .step_by(3)
        .map(|n| {
            ("ip.release", json!({"network": network(n), "owner": format!("o{}", n % 997), "slot": n.to_string()}))
        })
        .collect();
    all_at_once(&mut client, &releases);
    let asks = [
        json!({"owner": "o5"}),
        json!({"address": "10.2.1.7"}),
        json!({"network": "n1", "owner": "o996"}),
        json!({"owner": "nobody"}),
        json!({"scope": "default", "network": "n3", "limit": 5_000}),
    ];
    let first: Vec<Vec<String>> = asks.iter().map(|ask| in_order(&history(&mut client, ask.clone()))).collect();
    assert_eq!(first[0].iter().filter(|event| event.contains(" granted ")).count(), 13);
    assert_eq!(first[4].len(), 4_000);
    let mut is_told_again = || {
        for (ask, first) in asks.iter().zip(&first) {
            let again = in_order(&history(&mut client, ask.clone()));
            assert!(again == *first, "{ask}: {} events and then {}", first.len(), again.len());
        }
    };
    // Some chapters are closed by now, or will be soon. Only a store with a directory has a file that shows it.
    let index = Store::directory(&*server.store).map(|directory| directory.join("HISTORY"));
    let end = Instant::now() + Duration::from_secs(4);
    wait_for("the index", || {
        is_told_again();
        match &index {
            Some(index) => std::fs::metadata(index).unwrap().len() > TWO_CHAPTERS,
            None => Instant::now() > end,
        }
    });
    is_told_again();
}

/// What was told of each network, in the order of that network: at one and the same time, networks have no order among each
/// other.
fn in_order(events: &[Value]) -> Vec<String> {
    let mut told: Vec<(&str, String)> = events
        .iter()
        .map(|event| {
            let name = event["network"].as_str().unwrap();
            (name, format!("{name} {} {} {}", event["type"].as_str().unwrap(), event["address"], event["slot"]))
        })
        .collect();
    told.sort_by_key(|(network, _)| *network);
    told.into_iter().map(|(_, event)| event).collect()
}

/// Grants and releases some hundred addresses, more than are read at once. Returns a time in the middle of that.
fn busy(server: &TestServer, client: &mut Client) -> (Value, usize) {
    client.ok("network.create", json!({"name": "lan", "cooldown_seconds": 0, "subnets": [{"cidr": "10.0.0.0/16"}]}));
    let ask = |n: usize| json!({"network": "lan", "owner": format!("o{n}")});
    let grant = |n: usize| {
        let mut ask = ask(n);
        ask["note"] = json!("x".repeat(1_000));
        ("ip.allocate", ask)
    };
    all_at_once(client, &(0..3_000).map(grant).collect::<Vec<_>>());
    all_at_once(client, &(0..3_000).step_by(3).map(|n| ("ip.release", ask(n))).collect::<Vec<_>>());
    server.clock.advance_ms(10_000);
    let then = client.ok("server.info", json!({}))["time"].clone();
    server.clock.advance_ms(10_000);
    all_at_once(client, &(1..3_000).step_by(3).map(|n| ("ip.release", ask(n))).collect::<Vec<_>>());
    all_at_once(client, &(0..2_000).map(|n| grant(10_000 + n)).collect::<Vec<_>>());
    (then, 2_000)
}

#[test]
fn what_was_held_is_told_when_all_was_read_and_no_page_waits_for_that() {
    let store = FaultyStore::around(Arc::new(MemoryStore::new(2)));
    let server = TestServer::over(Arc::clone(&store) as _, |_| {});
    let mut client = server.client();
    let (then, held) = busy(&server, &mut client);
    let at_once = history(&mut client, json!({"network": "lan", "at": then, "limit": 10_000}));
    assert_eq!(at_once.len(), held);
    store.past_takes_ms.store(70, Ordering::Relaxed);
    let mut ask = json!({"owner": "o1", "at": then, "limit": 300});
    let first = client.ok("events.history", ask.clone());
    assert_eq!((first["events"].as_array().unwrap().len(), first["next"].is_string()), (0, true), "more is to be read");
    ask["after"] = first["next"].clone();
    assert_eq!(told(&history(&mut client, ask)), ["granted o1"]);
    let slowly = history(&mut client, json!({"network": "lan", "at": then, "limit": 300}));
    assert!(slowly == at_once);
}

#[test]
fn so_many_read_what_was_held_at_once_and_who_comes_next_is_told_to_ask_later() {
    let store = FaultyStore::around(Arc::new(MemoryStore::new(2)));
    let server = TestServer::over(Arc::clone(&store) as _, |_| {});
    let mut client = server.client();
    let (then, _) = busy(&server, &mut client);
    store.past_takes_ms.store(70, Ordering::Relaxed);
    let mut asks: Vec<Value> = (0..4).map(|n| json!({"at": then, "owner": format!("o{n}")})).collect();
    for ask in &mut asks {
        ask["after"] = client.ok("events.history", ask.clone())["next"].clone();
    }
    assert_eq!(client.kind("events.history", json!({"at": then, "owner": "o9"})), "overloaded");
    // A question that needs no second page needs no room.
    store.past_takes_ms.store(0, Ordering::Relaxed);
    let never = json!({"at": then, "owner": "o10005"});
    let end = Instant::now() + Duration::from_secs(60);
    while client.call("events.history", never.clone()).get("result").is_none() {
        assert!(Instant::now() < end, "it needs a moment without another's work");
    }
    store.past_takes_ms.store(70, Ordering::Relaxed);
    let told: Vec<usize> = asks.into_iter().map(|ask| history(&mut client, ask).len()).collect();
    assert_eq!(told, [0, 1, 1, 0]);
    assert!(history(&mut client, json!({"at": then, "owner": "o9"})).is_empty(), "there is room again");
}

#[test]
fn what_will_be_held_at_a_time_to_come_is_being_read_again_when_it_came() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.allocate("a");
    let now = server.clock.wall();
    server.clock.advance_ms(10_000);
    let soon = client.ok("server.info", json!({}))["time"].clone();
    server.clock.set_wall(now);
    let ask = json!({"network": "lan", "at": soon});
    assert_eq!(told(&history(&mut client, ask.clone())), ["granted a"]);
    client.allocate("b");
    assert_eq!(told(&history(&mut client, ask)), ["granted a", "granted b"]);
}

/// Removes the first chapter from the file of the index; no other chapter has its contents.
fn without_the_first_chapter(index: &std::path::Path) {
    let bytes = std::fs::read(index).unwrap();
    let mut at = 32;
    loop {
        let length = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let next = at + 8 + length;
        // Other records are names.
        if bytes[at + 8] == 1 {
            return std::fs::write(index, [&bytes[..at], &bytes[next..]].concat()).unwrap();
        }
        at = next;
    }
}

/// The index's file only makes history faster, so anything may have happened to it while the server was down.
#[test]
fn a_restart_tells_the_same_with_its_index_and_with_a_broken_one_and_without() {
    let directory = tempfile::tempdir().unwrap();
    let start = || {
        let options = embedded::EmbeddedOptions { segment_bytes: 256 << 10, ..embedded::EmbeddedOptions::default() };
        TestServer::over(Arc::new(EmbeddedStore::open(directory.path(), 2, options).unwrap()), |_| {})
    };
    let server = start();
    let mut client = server.client();
    for name in ["first", "second"] {
        let subnets = json!([{"cidr": "10.0.0.0/16"}]);
        client.ok("network.create", json!({"name": name, "realm": name, "subnets": subnets}));
    }
    client.ok("network.update", json!({"network": "first", "set": {"name": "renamed"}}));
    let network = |n: usize| if n.is_multiple_of(2) { "renamed" } else { "second" };
    let grants: Vec<(&str, Value)> = (0..10_000)
        .map(|n| {
            let owner = format!("o{}", n % 500);
            ("ip.allocate", json!({"network": network(n), "owner": owner, "slot": n.to_string(), "brief": true}))
        })
        .collect();
    all_at_once(&mut client, &grants);
    client.ok("network.delete", json!({"network": "renamed", "purge": true}));
    let index = directory.path().join("HISTORY");
    // Two chapters for the first 10 000 events, and the start of another one.
    wait_for("a chapter", || std::fs::metadata(&index).unwrap().len() >= 8_192);
    let asks = [
        json!({"network": "first", "owner": "o2"}),
        json!({"network": "renamed", "owner": "o2"}),
        json!({"owner": "o7"}),
        json!({"address": "10.0.1.77"}),
        json!({"network": "first", "limit": 700}),
    ];
    let tell = |client: &mut Client| -> Vec<Vec<String>> {
        asks.iter().map(|ask| in_order(&history(client, ask.clone()))).collect()
    };
    let told = tell(&mut client);
    assert_eq!((told[0].len(), &told[0]), (40, &told[1]));
    assert_eq!(told[2].len(), 20);
    drop(client);
    server.running.stop();

    let length = std::fs::metadata(&index).unwrap().len();
    let break_it: [&dyn Fn(); 5] = [
        &|| (),
        &|| std::fs::OpenOptions::new().write(true).open(&index).unwrap().set_len(length - 7).unwrap(),
        &|| std::fs::write(&index, vec![7; 5_000]).unwrap(),
        &|| std::fs::remove_file(&index).unwrap(),
        &|| without_the_first_chapter(&index),
    ];
    for (at, break_it) in break_it.iter().enumerate() {
        break_it();
        let server = start();
        let again = tell(&mut server.client());
        assert!(again == told, "other history after break {at}");
        server.running.stop();
    }
}

/// Events of others than those that are asked for are skipped unread. A rename must not be, because of the events after it.
#[test]
fn an_event_behind_a_rename_has_the_new_name_whatever_is_asked_for() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let grant = |network: &str, slot: &str| json!({"network": network, "owner": "o", "slot": slot});
    client.ok("ip.allocate", grant("lan", "0"));
    client.ok("network.update", json!({"network": "lan", "set": {"name": "renamed"}}));
    client.ok("ip.allocate", grant("renamed", "1"));
    for ask in [json!({"owner": "o"}), json!({"scope": "default", "owner": "o"}), json!({})] {
        let events = history(&mut client, ask.clone());
        let granted = events.iter().filter(|event| event["type"] == "granted");
        let names: Vec<&Value> = granted.map(|event| &event["network"]).collect();
        assert_eq!(names, ["lan", "renamed"], "{ask}");
    }
}

/// A network that no longer exists holds nothing now, and one that came again holds what it holds. No other network is
/// searched, since there may be any number of them.
#[test]
fn what_a_network_held_that_is_no_more_is_looked_for_in_no_other_one() {
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lists);
    let before_decide = move |command: &Command| {
        if matches!(command, Command::List(_)) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    };
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() });
    let mut client = server.with_lan();
    client.allocate("other");
    let create = |client: &mut Client, name: &str| {
        client.ok("network.create", json!({"name": name, "realm": name, "subnets": [{"cidr": "10.9.0.0/24"}]}));
        client.ok("ip.allocate", json!({"network": name, "owner": name}));
    };
    for name in ["gone", "again"] {
        create(&mut client, name);
        client.ok("network.delete", json!({"network": name, "purge": true}));
    }
    create(&mut client, "again");
    server.clock.advance_ms(1_000);
    let then = client.ok("server.info", json!({}))["time"].clone();
    for (name, held, listed) in
        [("gone", vec![], 0), ("again", vec!["granted again"], 1), ("lan", vec!["granted other"], 1)]
    {
        lists.store(0, Ordering::SeqCst);
        assert_eq!(told(&history(&mut client, json!({"network": name, "at": then}))), held, "{name}");
        assert_eq!(lists.load(Ordering::SeqCst), listed, "{name}");
    }
}

/// A cursor of one network says nothing about another: a client that sends it means another network, or made a mistake.
#[test]
fn the_history_of_a_network_goes_on_behind_the_cursors_behind_which_it_can_be_watched() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut refused = 0;
    for n in 0..12 {
        let name = format!("n{n}");
        let created =
            client.ok("network.create", json!({"name": name, "subnets": [{"cidr": format!("10.1.{n}.0/24")}]}));
        let cursor = client.ok("network.get", json!({"network": created["id"]}))["cursor"].clone();
        let watched = server.client().call("events.watch", json!({"network": "lan", "since": cursor}));
        let told = client.call("events.history", json!({"network": "lan", "after": cursor}));
        let field = |answer: &Value| answer["error"]["data"]["field"].as_str().map(ToOwned::to_owned);
        assert_eq!(field(&told).as_deref(), field(&watched).map(|_| "after"), "{told}");
        refused += u32::from(field(&told).is_some());
    }
    assert!((1..12).contains(&refused), "some are of other shards: {refused}");
}
