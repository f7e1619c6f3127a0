//! The client library with one server: lost answers and kills.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use allod::client::ClientError;
use serde_json::json;
use tokio::task::JoinSet;

use super::super::client::Client as Raw;
use super::super::server::Server;
use super::super::wire::{Way, Wire};
use super::{client, make_lan, members, requests, until_asked, until_held};

/// Calls whose answers are held back after they took effect, and are then lost.
const CALLS: usize = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_whose_answers_were_lost_are_repeated_and_give_one_address_each() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    make_lan(server.address).await;
    let wire = Wire::to(server.address);
    let client = client(&[wire.address]);
    wire.hold(Way::Back);
    let mut calls = JoinSet::new();
    for owner in 0..CALLS {
        let client = client.clone();
        let ask = members(json!({"network": "lan", "owner": format!("web/{owner}")}));
        calls.spawn(async move { client.call("ip.allocate", ask).await.unwrap() });
    }
    let held = until_held(server.address, |held| held.len() == CALLS).await;
    wire.cut();
    let granted = calls.join_all().await;
    for grant in &granted {
        assert_eq!(grant["created"], false, "it was granted by the try whose answer was lost: {grant}");
    }
    let addresses: BTreeSet<_> = granted.iter().map(|grant| grant["address"].to_string()).collect();
    assert_eq!(addresses, held.iter().map(|held| held["address"].to_string()).collect());
    assert_eq!(addresses.len(), CALLS);
    assert_eq!(until_held(server.address, |_| true).await.len(), CALLS, "no second address");
    until_asked(server.http, "ip.allocate", 2 * CALLS as u64).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_whose_answer_was_lost_is_repeated_only_by_generation() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    make_lan(server.address).await;
    let wire = Wire::to(server.address);
    let client = client(&[wire.address]);
    let take = async |owner: &str| {
        client.call("ip.allocate", members(json!({"network": "lan", "owner": owner}))).await.unwrap()
    };
    let (_plain, guarded) = (take("plain").await, take("guarded").await);
    wire.hold(Way::Back);
    let by_generation =
        json!({"network": "lan", "address": guarded["address"], "if_generation": guarded["generation"]});
    let calls = async {
        tokio::join!(
            client.call("ip.release", members(json!({"network": "lan", "owner": "plain"}))),
            client.call("ip.release", members(by_generation)),
        )
    };
    let cut = async {
        until_held(server.address, <[_]>::is_empty).await;
        until_asked(server.http, "ip.release", 2).await;
        wire.cut();
    };
    let ((plain, guarded), ()) = tokio::join!(calls, cut);
    let Err(ClientError::Unknown { method, look, .. }) = plain else { panic!("{plain:?}") };
    assert_eq!((method.as_str(), look.contains("if_generation")), ("ip.release", true));
    // The first try released it, so there was nothing left for the repeat to release.
    assert_eq!(guarded.unwrap()["released"], json!([]));
    until_asked(server.http, "ip.release", 3).await;
    client.call("server.ping", members(json!({}))).await.unwrap();
    assert_eq!(requests(server.http, "ip.release"), 3, "one of both was sent twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_repeated_takes_effect_in_its_old_order() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    make_lan(server.address).await;
    let wire = Wire::to(server.address);
    let client = client(&[wire.address]);
    let held = client.call("ip.allocate", members(json!({"network": "lan", "owner": "a"}))).await.unwrap();
    wire.hold(Way::Back);
    let mut calls = JoinSet::new();
    let note =
        |n: usize| members(json!({"network": "lan", "address": held["address"], "set": {"note": n.to_string()}}));
    for n in 0..2 * CALLS {
        // The second half is polled for the first time after the first half was lost and before it is repeated.
        if n == CALLS {
            let last = (CALLS - 1).to_string();
            until_held(server.address, |held| held[0]["note"] == *last).await;
            wire.cut();
        }
        let (client, ask) = (client.clone(), note(n));
        let (polled, first) = tokio::sync::oneshot::channel();
        calls.spawn(async move {
            let call = client.call("ip.update", ask);
            tokio::pin!(call);
            let first = std::future::poll_fn(|context| std::task::Poll::Ready(call.as_mut().poll(context))).await;
            let _ = polled.send(());
            if let std::task::Poll::Ready(answer) = first { answer.unwrap() } else { call.await.unwrap() }
        });
        first.await.unwrap();
    }
    assert_eq!(calls.join_all().await.len(), 2 * CALLS);
    let mut raw = Raw::connect(server.address).await.unwrap();
    let told = raw.call("events.history", json!({"network": "lan", "limit": 1_000})).await.ok();
    let notes: Vec<usize> = told["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| event["after"]["note"].as_str()?.parse().ok())
        .collect();
    // All of the first half took effect before its answers were lost, and again when it was repeated. So may the beginning
    // of the second half, if it left just before the cut.
    let lost = notes.len() - 2 * CALLS;
    assert!(lost >= CALLS, "{notes:?}");
    let expected: Vec<usize> = (0..lost).chain(0..2 * CALLS).collect();
    assert_eq!(notes, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_kills_every_grant_by_slot_is_answered_and_always_with_the_same_address() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut server = Server::start(&data);
    make_lan(server.address).await;
    // The address of the wire stays the same while the processes behind it come and go.
    let wire = Wire::to(server.address);
    let client = client(&[wire.address]);
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut callers = JoinSet::new();
    for caller in 0..16 {
        let (client, stop, answered) = (client.clone(), Arc::clone(&stop), Arc::clone(&answered));
        callers.spawn(async move {
            let mut told: BTreeMap<String, String> = BTreeMap::new();
            for round in 0.. {
                let owner = format!("c{caller}/o{}", round % 20);
                let ask = members(json!({"network": "lan", "owner": owner, "brief": true}));
                let grant = client.call("ip.allocate", ask).await.unwrap();
                let address = grant["address"].as_str().unwrap().to_owned();
                assert_eq!(*told.entry(owner).or_insert(address.clone()), address);
                answered.fetch_add(1, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            told
        });
    }
    // A caller whose release must not be repeated.
    let (releasing, ending) = (client.clone(), Arc::clone(&stop));
    let releaser = tokio::spawn(async move {
        while !ending.load(Ordering::Relaxed) {
            let ask = members(json!({"network": "lan", "owner": "nobody"}));
            match releasing.call("ip.release", ask).await {
                Ok(released) => assert_eq!(released["released"], json!([])),
                Err(ClientError::Unknown { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    let more = async |count: u64| {
        let goal = answered.load(Ordering::Relaxed) + count;
        let waited = async {
            while answered.load(Ordering::Relaxed) < goal {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(super::PATIENCE, waited).await.expect("the callers get on");
    };
    for _ in 0..4 {
        more(200).await;
        server.kill();
        server = Server::start(&data);
        wire.lead_to(server.address);
    }
    more(200).await;
    stop.store(true, Ordering::Relaxed);
    releaser.await.unwrap();
    let told: BTreeMap<String, String> = callers.join_all().await.into_iter().flatten().collect();
    let held = until_held(server.address, |_| true).await;
    let held: BTreeMap<String, String> = held
        .iter()
        .map(|held| (held["owner"].as_str().unwrap().to_owned(), held["address"].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(told, held, "all of it, and nothing else");
    let addresses: BTreeSet<&String> = held.values().collect();
    assert_eq!(addresses.len(), held.len(), "one address, one owner");
}
