//! A client for everything else that happens to addresses: claimants come and go and are swept; MACs, notes and leases
//! change; addresses are transferred and declined; a deployment comes and goes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Answer, Client};

/// The scope of the chores' reservations, apart from those of the load.
const SCOPE: &str = "chores";

/// The client, which works until it is stopped.
pub struct Chores {
    stop: Arc<AtomicBool>,
    /// How many rounds were answered to their end.
    rounds: Arc<AtomicUsize>,
    works: tokio::task::JoinHandle<()>,
}

impl Chores {
    pub fn start(networks: Vec<String>, nodes: Arc<Mutex<Vec<SocketAddr>>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let rounds = Arc::<AtomicUsize>::default();
        let works = tokio::spawn(work(networks, nodes, (Arc::clone(&stop), Arc::clone(&rounds))));
        Self { stop, rounds, works }
    }

    /// Stops after this many more complete rounds, so that everything a round does has happened.
    pub async fn end_after(self, rounds: usize) {
        let goal = self.rounds.load(Ordering::Relaxed) + rounds;
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while self.rounds.load(Ordering::Relaxed) < goal {
            assert!(std::time::Instant::now() < end, "nobody does chores any more");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.stop.store(true, Ordering::Relaxed);
        self.works.await.unwrap();
    }
}

async fn work(
    networks: Vec<String>,
    nodes: Arc<Mutex<Vec<SocketAddr>>>,
    (stop, rounds): (Arc<AtomicBool>, Arc<AtomicUsize>),
) {
    let (mut client, mut round) = (None, 0_usize);
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let Some(connected) = &mut client else {
            let node = {
                let nodes = nodes.lock().unwrap();
                nodes[round % nodes.len()]
            };
            client = Client::connect(node).await.ok();
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        if of_one_round(connected, &networks[round % networks.len()], round).await {
            rounds.fetch_add(1, Ordering::Relaxed);
        } else {
            client = None;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Does one round; refusals are ignored. False: the round did not come to its end, and the next one asks another node.
async fn of_one_round(client: &mut Client, network: &str, round: usize) -> bool {
    let owner = format!("o{}", round % 5);
    let holder = json!({"network": network, "scope": SCOPE, "owner": owner});
    let with = |more: Value| {
        let mut params = holder.clone();
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    // The MAC depends on the round only, so it is asked for again while somebody still has it, or after nobody does.
    let mac = format!("02:00:00:00:00:{:02x}", round % 7);
    let claimant = format!("vm-{}", round % 3);
    // Half of the reservations leave with their claimant, so a sweep ends them. The others are transferred or declined.
    let leaves = round.is_multiple_of(2);
    let ttl = json!({"claimant": claimant, "release_with_claimant": leaves, "ttl_seconds": 3_600});
    let granted = client.call("ip.allocate", with(ttl)).await;
    let address = match &granted {
        Answer::Result(granted) => granted["address"].clone(),
        Answer::Refused(..) | Answer::Lost => return false,
    };
    let at = |more: Value| {
        let mut params = with(json!({"address": address}));
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let to = json!({"owner": format!("o{}", 5 + round % 3), "scope": SCOPE});
    let wishes = json!([{"id": format!("i{}", round % 2), "fresh": round.is_multiple_of(4), "networks": [{"network": network}]}]);
    let mut calls = vec![
        ("ip.update", with(json!({"set": {"mac": mac, "note": format!("round {round}")}}))),
        ("ip.renew", with(json!({"ttl_seconds": 7_200}))),
    ];
    if !leaves {
        calls.push(("ip.unbind", with(json!({"claimant": claimant}))));
        calls.push(("ip.bind", with(json!({"claimant": format!("vm-{}", round % 4)}))));
    }
    let sweep = json!({"scope": SCOPE, "alive": ["vm-0"], "grace_seconds": 0, "max_share": 1});
    calls.extend([("claimant.sweep", sweep.clone()), ("claimant.sweep", sweep)]);
    if round.is_multiple_of(3) {
        calls.push(("ip.decline", at(json!({"probation_seconds": 1, "again": true}))));
    } else {
        calls.push(("ip.transfer", at(json!({"to": to}))));
    }
    calls.push(("owner.release", json!({"scope": SCOPE, "owner": format!("o{}", 5 + (round + 1) % 3)})));
    calls.push(("deployment.apply", json!({"deployment": SCOPE, "instances": wishes})));
    let calls = calls.into_iter().map(|(method, params)| (method.to_owned(), params)).collect();
    let answers = client.call_all(calls).await;
    if answers.contains(&Answer::Lost) {
        return false;
    }
    let Some(Answer::Result(applied)) = answers.last() else { return false };
    let method = if round.is_multiple_of(3) { "deployment.revert" } else { "deployment.commit" };
    client.call(method, json!({"deployment": SCOPE, "plan": applied["plan"]})).await != Answer::Lost
}

/// Checks that no MAC is used twice: a MAC is unique in its realm, and all reservations are in one realm.
pub async fn check_macs(client: &mut Client) {
    let listed = client.call("ip.list", json!({"limit": 10_000})).await.ok();
    let mut macs = BTreeSet::new();
    for held in listed["reservations"].as_array().unwrap() {
        if let Some(mac) = held["mac"].as_str() {
            assert!(macs.insert(mac.to_owned()), "{mac} is used twice: {listed}");
        }
    }
}
