//! Kill, start, audit, again and again: whatever the moment of the kill, what was answered is true. On files, and over a
//! Redis that survives.
//!
//! The moments come from a seed (`ALLOD_SEED`), and repeat as far as the machine allows.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::ledger::{Grant, Key, Known, Ledger};
use crate::redis::Redis;
use crate::seed::seed;
use crate::server::{Server, Starting};

const KILLS: usize = 20;
const KILLS_OVER_REDIS: usize = 10;
const CONNECTIONS: usize = 8;
/// Requests of one round of a connection, each for another owner.
const DEPTH: usize = 16;
/// Owners of one connection: more than its share of the small networks, so that these run full.
const OWNERS: usize = 96;
const SCOPE: &str = "kills";

/// Networks that are small enough to run full: all policies, with and without cooldown, both families.
fn networks() -> [Value; 4] {
    [
        json!({"name": "lowest", "subnets": [{"cidr": "10.1.0.0/24", "gateway": "10.1.0.1"}]}),
        json!({"name": "random", "policy": "random", "subnets": [{"cidr": "10.2.0.0/25"}]}),
        json!({"name": "oldest", "policy": "oldest", "cooldown_seconds": 1, "cooldown_yields": true,
            "subnets": [{"cidr": "10.3.0.0/26"}, {"cidr": "10.3.1.0/25"}]}),
        json!({"name": "six", "policy": "lowest", "subnets": [{"cidr": "2001:db8::/64", "gateway": "fe80::1"}]}),
    ]
}

/// Where the register of the killed server is.
pub struct Ground {
    pub data: PathBuf,
    pub redis: Option<Redis>,
}

impl Ground {
    fn begin(&self) -> Starting {
        let data = self.data.display().to_string();
        match &self.redis {
            None => Starting::new(&self.data),
            Some(redis) => {
                let arguments = ["serve", "--redis", &redis.url(), "--node", "one", "--data", &data];
                Starting::with_arguments(&self.data, &arguments)
            }
        }
    }

    /// Waits until the server is ready, and owns the register.
    pub fn start(&self) -> Server {
        self.begin().owning()
    }

    /// Removes what would make the next start wait for the dead node.
    pub fn bury(&self) {
        let Some(redis) = &self.redis else { return };
        redis.ask(&["DEL", "{allod}:nodes"]);
        for shard in 0..allod::limits::SHARDS_OF_NEW {
            let head = format!("{{allod}}:{shard}:head");
            redis.ask(&["HSET", &head, "lease", "0"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_true_after_each_of_twenty_kills() {
    let directory = tempfile::tempdir().unwrap();
    kill_again_and_again(&Ground { data: directory.path().join("data"), redis: None }, KILLS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_redis_what_was_answered_is_true_after_each_of_ten_kills() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let ground = Ground { data: directory.path().join("data"), redis: Some(redis) };
    kill_again_and_again(&ground, KILLS_OVER_REDIS).await;
}

async fn kill_again_and_again(ground: &Ground, kills: usize) {
    let seed = seed();
    let mut random = SmallRng::seed_from_u64(seed);
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let server = ground.start();
    let mut client = Client::connect(server.address).await.unwrap();
    for network in networks() {
        client.call("network.create", network).await.ok();
    }
    server.kill();

    for kill in 0..kills {
        ground.bury();
        if random.random_bool(0.25) {
            kill_while_starting(ground, Duration::from_millis(random.random_range(0..60))).await;
            ground.bury();
        }
        let server = ground.start();
        audit(&ledger, server.address).await;
        let busy: Vec<_> = (0..CONNECTIONS)
            .map(|number| tokio::spawn(work(Arc::clone(&ledger), server.address, number, random.random())))
            .collect();
        tokio::time::sleep(Duration::from_millis(random.random_range(5..400))).await;
        server.kill();
        for task in busy {
            task.await.unwrap();
        }
        let ledger = ledger.lock().unwrap();
        eprintln!("kill {}: {} held, {} unanswered", kill + 1, ledger.held().count(), ledger.open());
    }
    ground.bury();
    let server = ground.start();
    audit(&ledger, server.address).await;
    assert!(ledger.lock().unwrap().held().count() > 0, "nothing was ever granted");
    server.kill();
}

/// Kills a server that may still be reading its store.
async fn kill_while_starting(ground: &Ground, after: Duration) {
    let starting = ground.begin();
    tokio::time::sleep(after).await;
    starting.kill();
}

/// Allocates and releases for owners of its own until the connection breaks.
async fn work(ledger: Arc<Mutex<Ledger>>, server: SocketAddr, number: usize, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let Ok(mut client) = Client::connect(server).await else { return };
    loop {
        let first = random.random_range(0..OWNERS);
        let keys: Vec<Key> = (0..DEPTH)
            .map(|step| {
                let network = ["lowest", "random", "oldest", "six"][random.random_range(0..4)];
                (network.to_owned(), format!("c{number}/{}", (first + step) % OWNERS))
            })
            .collect();
        let asked: Vec<(Key, Known, (String, Value))> = {
            let ledger = ledger.lock().unwrap();
            keys.into_iter()
                .map(|key| {
                    let known = ledger.get(&key);
                    let call = call(&key, &known, &mut random);
                    (key, known, call)
                })
                .collect()
        };
        let answers = client.call_all(asked.iter().map(|(_, _, call)| call.clone()).collect()).await;
        let broken = answers.contains(&Answer::Lost);
        let mut ledger = ledger.lock().unwrap();
        for ((key, known, (method, _)), answer) in asked.into_iter().zip(answers) {
            let now = outcome(&key, known, &method, answer);
            ledger.know(key, now);
        }
        if broken {
            return;
        }
    }
}

/// What to ask, given what is known: mostly a change, sometimes the same again.
fn call((network, owner): &Key, known: &Known, random: &mut SmallRng) -> (String, Value) {
    let base = json!({"network": network, "scope": SCOPE, "owner": owner});
    match known {
        Known::Held(grant) if random.random_bool(0.7) => {
            let mut params = base;
            params["if_generation"] = json!(grant.generation);
            ("ip.release".to_owned(), params)
        }
        Known::Held(_) | Known::Free => ("ip.allocate".to_owned(), base),
        Known::PerhapsHeld | Known::PerhapsFree(_) => unreachable!("the audit settled what was open"),
    }
}

/// What is known after the answer.
fn outcome(key: &Key, known: Known, method: &str, answer: Answer) -> Known {
    match (method, answer, known) {
        ("ip.allocate", Answer::Result(result), before) => {
            let grant = Grant::of(&result);
            if let Known::Held(held) = &before {
                assert_eq!(&grant, held, "{key:?} asked again");
            }
            assert_eq!(result["created"], !matches!(before, Known::Held(_)), "{key:?}: {result}");
            Known::Held(grant)
        }
        ("ip.release", Answer::Result(result), Known::Held(grant)) => {
            assert_eq!(result["released"], json!([grant.address]), "{key:?}");
            Known::Free
        }
        ("ip.allocate", Answer::Refused(kind, _), Known::Free) if kind == "not_enough_capacity" => Known::Free,
        // A repeated allocate changes nothing, whether it was answered or not.
        ("ip.allocate", Answer::Lost, Known::Held(grant)) => Known::Held(grant),
        ("ip.allocate", Answer::Lost, _) => Known::PerhapsHeld,
        (_, Answer::Lost, Known::Held(grant)) => Known::PerhapsFree(grant),
        (method, answer, known) => panic!("{method} for {key:?}, which was {known:?}: {answer:?}"),
    }
}

async fn audit(ledger: &Mutex<Ledger>, server: SocketAddr) {
    let mut client = Client::connect(server).await.unwrap();
    let reservations = client.list_all().await;
    ledger.lock().unwrap().audit(&reservations, &HashMap::new());
}
