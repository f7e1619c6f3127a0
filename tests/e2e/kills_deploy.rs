//! The server of a deployment is killed between apply and commit, or in the middle of either. After each start all of the
//! round is there or nothing, in all of its networks, and a client that repeats its last request goes on from there. On
//! files, and over a Redis that survives.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::kills::Ground;
use crate::redis::Redis;
use crate::seed::seed;

const KILLS: usize = 20;
const KILLS_OVER_REDIS: usize = 8;
/// Instances that come with a round and go with the next one. A network has room for two rounds of them but not for three,
/// so that a leak shows.
const INSTANCES: usize = 50;
const NETWORKS: [&str; 2] = ["one", "two"];
/// Two instances swap these addresses of network `one` in each round.
const STATIC: [&str; 2] = ["10.1.0.120", "10.1.0.121"];
const SWAPPING: [&str; 2] = ["x", "y"];

/// How far a round has come, according to its client.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    /// The previous round is committed, and this one was not asked for.
    Nothing,
    /// The round was asked for, and no answer came.
    PerhapsApplied,
    Applied {
        plan: u64,
        slots: Value,
    },
    PerhapsCommitted {
        plan: u64,
        slots: Value,
    },
}

#[derive(Debug)]
struct Run {
    round: usize,
    told: Told,
    latest: u64,
    rounds_done: usize,
}

/// The state of a round that the register is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Before,
    Applied,
    Committed,
}

/// Who holds what: instance, network and address, and whether it is obsolete. Addresses that the server chose are left out.
type Holdings = BTreeSet<(String, String, Option<String>, bool)>;

fn wishes(round: usize) -> Value {
    let automatic = |at| {
        let networks: Vec<Value> = NETWORKS.iter().map(|network| json!({"network": network})).collect();
        json!({"id": format!("r{round}/{at}"), "networks": networks})
    };
    let swapping = |at: usize| {
        let address = STATIC[(at + round) % 2];
        json!({"id": SWAPPING[at], "networks": [{"network": "one", "address": address}]})
    };
    let instances: Vec<Value> = (0..INSTANCES).map(automatic).chain((0..2).map(swapping)).collect();
    json!({"deployment": "shop", "instances": instances})
}

/// What is held in a state of a round. Before the first round that is nothing.
fn held(round: usize, state: State) -> Holdings {
    let mut held = Holdings::new();
    let mut of = |round: usize, obsolete: bool| {
        for at in 0..INSTANCES {
            held.extend(NETWORKS.map(|network| (format!("r{round}/{at}"), network.to_owned(), None, obsolete)));
        }
    };
    let first = round == 1;
    match state {
        State::Before if first => return held,
        State::Before => of(round - 1, false),
        State::Applied => {
            of(round, false);
            if !first {
                of(round - 1, true);
            }
        }
        State::Committed => of(round, false),
    }
    // The promised addresses change hands with the commit; in the first round nobody has to release them.
    let swapped = state == State::Committed || first;
    let dealt = if swapped { round } else { round - 1 };
    held.extend(
        (0..2).map(|at| (SWAPPING[at].to_owned(), "one".to_owned(), Some(STATIC[(at + dealt) % 2].to_owned()), false)),
    );
    held
}

/// What the register says is held; no address may be held twice.
async fn found(client: &mut Client) -> Holdings {
    let all = match client.call("deployment.get", json!({"deployment": "shop"})).await {
        Answer::Refused(kind, _) if kind == "not_found" => return Holdings::new(),
        answer => answer.ok(),
    };
    let (mut held, mut addresses) = (Holdings::new(), BTreeSet::new());
    for instance in all["instances"].as_array().unwrap() {
        let id = instance["id"].as_str().unwrap();
        for (member, obsolete) in [("reservations", false), ("obsolete", true)] {
            for reservation in instance[member].as_array().unwrap() {
                let text = |name: &str| reservation[name].as_str().unwrap().to_owned();
                assert!(addresses.insert((text("network"), text("address"))), "{reservation} is held twice");
                let address = SWAPPING.contains(&id).then(|| text("address"));
                assert!(
                    held.insert((id.to_owned(), text("network"), address, obsolete)),
                    "{reservation}: a second one"
                );
            }
        }
    }
    held
}

async fn audit(run: &Mutex<Run>, server: SocketAddr) {
    let mut client = Client::connect(server).await.unwrap();
    let found = found(&mut client).await;
    let run = run.lock().unwrap();
    let may = match run.told {
        Told::Nothing => [State::Before, State::Before],
        Told::PerhapsApplied => [State::Before, State::Applied],
        Told::Applied { .. } => [State::Applied, State::Applied],
        Told::PerhapsCommitted { .. } => [State::Applied, State::Committed],
    };
    let is = may.into_iter().find(|state| held(run.round, *state) == found);
    assert!(is.is_some(), "round {}, of which was told {:?}, is in none of {may:?}: {found:#?}", run.round, run.told);
}

fn plan_of(result: &Value) -> u64 {
    result["plan"].as_u64().unwrap()
}

/// From instance and network to address.
fn addresses(result: &Value) -> BTreeMap<(String, String), String> {
    let instances = result["instances"].as_array().unwrap().iter();
    let slots = instances.flat_map(|instance| {
        let id = instance["id"].as_str().unwrap();
        instance["networks"].as_array().unwrap().iter().map(move |slot| (id, slot))
    });
    slots
        .map(|(id, slot)| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            ((id.to_owned(), text(&slot["network"])), text(&slot["reservation"]["address"]))
        })
        .collect()
}

/// Goes on from what the client was told last, by asking for it again, until the connection breaks.
async fn work(run: Arc<Mutex<Run>>, server: SocketAddr) {
    let Ok(mut client) = Client::connect(server).await else { return };
    loop {
        let (round, told) = {
            let mut run = run.lock().unwrap();
            let told = run.told.clone();
            if told == Told::Nothing {
                run.told = Told::PerhapsApplied;
            }
            (run.round, told)
        };
        let applied = match client.call("deployment.apply", wishes(round)).await {
            Answer::Lost => return,
            answer => answer.ok(),
        };
        let (plan, slots) = (plan_of(&applied), json!(addresses(&applied).into_values().collect::<Vec<_>>()));
        {
            let mut run = run.lock().unwrap();
            match &told {
                Told::Nothing | Told::PerhapsApplied => assert!(plan > run.latest, "{plan} was given before"),
                Told::Applied { plan: before, slots: then } | Told::PerhapsCommitted { plan: before, slots: then } => {
                    assert_eq!((plan, &slots), (*before, then), "the same wishes again");
                }
            }
            run.latest = plan;
            if !matches!(told, Told::PerhapsCommitted { .. }) {
                run.told = Told::Applied { plan, slots: slots.clone() };
            }
        }
        tokio::task::yield_now().await;
        run.lock().unwrap().told = Told::PerhapsCommitted { plan, slots };
        match client.call("deployment.commit", json!({"deployment": "shop", "plan": plan})).await {
            Answer::Lost => return,
            answer => drop(answer.ok()),
        }
        let mut run = run.lock().unwrap();
        (run.round, run.told, run.rounds_done) = (round + 1, Told::Nothing, run.rounds_done + 1);
    }
}

async fn kill_again_and_again(ground: &Ground, kills: usize) {
    let seed = seed();
    let mut random = SmallRng::seed_from_u64(seed);
    let run = Arc::new(Mutex::new(Run { round: 1, told: Told::Nothing, latest: 0, rounds_done: 0 }));
    let server = ground.start();
    let mut client = Client::connect(server.address).await.unwrap();
    for (at, network) in NETWORKS.iter().enumerate() {
        let subnets =
            json!([{"cidr": format!("10.{}.0.0/25", at + 1), "pools": [{"range": format!("10.{}.0.1+112", at + 1)}]}]);
        client.call("network.create", json!({"name": network, "subnets": subnets})).await.ok();
    }
    server.kill();
    for kill in 0..kills {
        ground.bury();
        let server = ground.start();
        audit(&run, server.address).await;
        let busy = tokio::spawn(work(Arc::clone(&run), server.address));
        tokio::time::sleep(Duration::from_millis(random.random_range(1..250))).await;
        server.kill();
        busy.await.unwrap();
        let run = run.lock().unwrap();
        eprintln!("kill {}: round {}, {} done", kill + 1, run.round, run.rounds_done);
    }
    ground.bury();
    let server = ground.start();
    audit(&run, server.address).await;
    assert!(run.lock().unwrap().rounds_done > 0, "nothing was ever committed");
    // Everything is released: what remains would be a leak.
    let mut client = Client::connect(server.address).await.unwrap();
    client.call("deployment.delete", json!({"deployment": "shop"})).await.ok();
    for network in NETWORKS {
        assert_eq!(client.call("network.usage", json!({"network": network})).await.ok()["held"], "0");
    }
    server.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn between_apply_and_commit_a_kill_leaves_all_of_a_deployment_or_nothing() {
    let directory = tempfile::tempdir().unwrap();
    kill_again_and_again(&Ground { data: directory.path().join("data"), redis: None }, KILLS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_redis_a_kill_leaves_all_of_a_deployment_or_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let ground = Ground { data: directory.path().join("data"), redis: Some(redis) };
    kill_again_and_again(&ground, KILLS_OVER_REDIS).await;
}
