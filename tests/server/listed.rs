//! A list that takes several looks shows its network as it was at one moment, and gives the cursor from which changes are
//! told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Client, TestServer, line};
use crate::watch::event;

/// Needs more than four looks.
const SLOTS: usize = 4_321;

fn lan(server: &TestServer) -> Client {
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/18"}]}));
    client
}

/// Gives the slot this place, whatever it had before.
fn claim(id: usize, slot: usize, place: usize) -> String {
    let ask = json!({"network": "lan", "owner": format!("o{}", slot % 700), "slot": slot.to_string(),
                     "address": format!("10.0.{}.{}", place / 250, 1 + place % 250), "replace": true});
    line(id as u64, "ip.claim", &ask)
}

/// Sends all requests at once, and waits until they are done.
fn all_done(client: &mut Client, asks: &[String]) {
    client.raw(asks.concat());
    for _ in asks {
        let answer = client.answer();
        assert!(answer.get("result").is_some(), "{answer}");
    }
}

/// Moves one slot after the other to another address, round and round, until it is told to stop. Counts the moves.
fn move_about(server: &TestServer, stop: &Arc<AtomicBool>, count: &Arc<AtomicUsize>) -> std::thread::JoinHandle<()> {
    let (mut client, stop, count) = (server.client(), Arc::clone(stop), Arc::clone(count));
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            // A slot has one of three places, and takes the next one.
            let moved = count.load(Ordering::SeqCst);
            let asks = (moved..moved + 100).map(|n| claim(n, n % SLOTS, (n + SLOTS) % (3 * SLOTS)));
            all_done(&mut client, &asks.collect::<Vec<_>>());
            count.fetch_add(100, Ordering::SeqCst);
        }
    })
}

fn fill(client: &mut Client) {
    for begin in (0..SLOTS).step_by(200) {
        let asks = (begin..SLOTS.min(begin + 200)).map(|n| claim(n, n, n));
        all_done(client, &asks.collect::<Vec<_>>());
    }
}

/// Slot and address of each reservation.
fn shown(listed: &Value) -> Vec<(String, String)> {
    let text = |view: &Value, member: &str| view[member].as_str().unwrap().to_owned();
    let of = |view: &Value| (text(view, "slot"), text(view, "address"));
    listed["reservations"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn a_list_shows_each_slot_that_moves_meanwhile_once_and_its_cursor_repeats_nothing() {
    let server = TestServer::new();
    let mut client = lan(&server);
    fill(&mut client);
    let (stop, moved) = (Arc::new(AtomicBool::new(false)), Arc::<AtomicUsize>::default());
    let mover = move_about(&server, &stop, &moved);
    let all = json!({"network": "lan", "limit": 10_000});
    let mut lists = Vec::new();
    // Only those count during which one round of moves began and ended.
    for tries in 0.. {
        if lists.len() == 4 {
            break;
        }
        assert!(tries < 200, "too little moves while a list is made");
        let before = moved.load(Ordering::SeqCst);
        let listed = client.ok("ip.list", all.clone());
        if moved.load(Ordering::SeqCst) > before + 100 {
            lists.push(listed);
        }
        let counted = client.ok("ip.list", json!({"network": "lan", "count_only": true}));
        assert_eq!(counted["count"], json!(SLOTS));
    }
    stop.store(true, Ordering::Relaxed);
    mover.join().unwrap();
    let end: BTreeMap<String, String> =
        shown(&client.ok("ip.list", all)).into_iter().map(|(slot, at)| (at, slot)).collect();
    for listed in lists {
        let shown = shown(&listed);
        let slots: BTreeSet<&String> = shown.iter().map(|(slot, _)| slot).collect();
        assert_eq!((shown.len(), slots.len()), (SLOTS, SLOTS), "one of each");
        assert!(listed["next"].is_null());
        let mut held: BTreeMap<String, String> = shown.into_iter().map(|(slot, at)| (at, slot)).collect();
        let mut watcher = server.client();
        watcher.ok("events.watch", json!({"network": "lan", "since": listed["cursor"]}));
        while held != end {
            let told = event(&mut watcher);
            let (at, slot) = (told["address"].as_str().unwrap().to_owned(), told["slot"].as_str().unwrap().to_owned());
            match told["type"].as_str().unwrap() {
                "granted" => assert_eq!(held.insert(at, slot), None, "{told}"),
                "released" => assert_eq!(held.remove(&at), Some(slot), "{told}"),
                _ => panic!("{told}"),
            }
        }
    }
}

#[test]
fn a_list_is_whole_also_where_its_network_is_configured_meanwhile() {
    let server = TestServer::new();
    let mut client = lan(&server);
    fill(&mut client);
    let stop = Arc::new(AtomicBool::new(false));
    let (mut other, stopped) = (server.client(), Arc::clone(&stop));
    let configuring = std::thread::spawn(move || {
        let mut version = 1;
        while !stopped.load(Ordering::Relaxed) {
            let set = json!({"description": format!("the {version}th")});
            version = other.ok("network.update", json!({"network": "lan", "set": set}))["version"].as_u64().unwrap();
            std::thread::sleep(Duration::from_millis(3));
        }
        version
    });
    let mut shown_with = BTreeSet::new();
    for _ in 0..20 {
        let answer = client.call("ip.list", json!({"network": "lan", "limit": 10_000}));
        if let Some(listed) = answer.get("result") {
            assert_eq!(shown(listed).len(), SLOTS);
            shown_with.insert(listed["cursor"].to_string());
        } else {
            // The network was reconfigured during each try: the answer says so, and shows nothing.
            assert_eq!(answer["error"]["data"]["kind"], "overloaded", "{answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains("`lan` changed too much"), "{answer}");
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(configuring.join().unwrap() > 1 && !shown_with.is_empty());
}
