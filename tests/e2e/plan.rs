//! A hundred thousand addresses of the address plan, with a kill in the middle and one at the end.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::client::{Answer, Client};
use crate::ledger::{Grant, Key, Known, Ledger};
use crate::server::Server;

const PLAN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/address-plan.toml");
const ADDRESSES: usize = 100_000;
const CONNECTIONS: usize = 32;
const DEPTH: usize = 64;
const SCOPE: &str = "e2e";

/// What the connections share.
struct Shared {
    ledger: Mutex<Ledger>,
    /// The networks to ask; a network that is full, or whose limits are reached, is removed.
    targets: Mutex<Vec<(String, Option<u8>)>>,
    acknowledged: AtomicUsize,
    /// The connections end when this many grants are acknowledged.
    wanted: usize,
    next_owner: AtomicUsize,
}

/// Refusals by which a network of the plan says that it has no more for these owners.
const EXHAUSTED: &[&str] = &["not_enough_capacity", "quota_exceeded"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_addresses_of_the_plan_survive_two_kills() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data);
    server.allod_ok(&["network", "apply", PLAN]);
    let mut client = Client::connect(server.address).await.unwrap();
    let networks = client.networks().await;
    let planned = std::fs::read_to_string(PLAN).unwrap().matches("[[network]]").count();
    assert_eq!(networks.len(), planned);
    // Applying the plan again changes nothing: otherwise `--dry-run` would end with exit code 2.
    server.allod_ok(&["network", "apply", PLAN, "--dry-run"]);
    let realms = realms_of(&networks);
    let targets = targets_of(&networks);
    assert!(targets.len() > 200, "{} targets", targets.len());

    // The server dies while all connections are busy.
    let shared = Arc::new(Shared {
        ledger: Mutex::default(),
        targets: Mutex::new(targets),
        acknowledged: AtomicUsize::new(0),
        wanted: ADDRESSES,
        next_owner: AtomicUsize::new(0),
    });
    let busy = start(&shared, server.address);
    while shared.acknowledged.load(Ordering::Relaxed) < ADDRESSES / 2 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert!(busy.iter().any(|task| !task.is_finished()), "the connections ended before half was acknowledged");
    }
    server.kill();
    join(busy).await;
    let before = shared.acknowledged.load(Ordering::Relaxed);
    eprintln!("killed after {before} acknowledged, {} unanswered", shared.ledger.lock().unwrap().open());

    // Everything is there, and the rest can be had.
    let server = Server::start(&data);
    audit(&shared, server.address, &realms).await;
    join(start(&shared, server.address)).await;
    assert!(shared.acknowledged.load(Ordering::Relaxed) >= ADDRESSES, "the plan has run out of addresses");

    // The second kill comes when nothing is under way: the last answers must be no less durable.
    server.kill();
    let server = Server::start(&data);
    audit(&shared, server.address, &realms).await;
    repeat_all(&shared, server.address).await;
    audit(&shared, server.address, &realms).await;
    let ledger = shared.ledger.lock().unwrap();
    assert!(ledger.held().count() >= ADDRESSES, "{} held", ledger.held().count());
    server.kill();
}

fn realms_of(networks: &[Value]) -> HashMap<String, String> {
    let text = |network: &Value, member: &str| network[member].as_str().unwrap_or("default").to_owned();
    networks.iter().map(|network| (text(network, "name"), text(network, "realm"))).collect()
}

/// Every network that has subnets, for either family and for each family alone.
fn targets_of(networks: &[Value]) -> Vec<(String, Option<u8>)> {
    let has_subnets = |network: &&Value| network["subnets"].as_array().is_some_and(|subnets| !subnets.is_empty());
    let names = networks.iter().filter(has_subnets).map(|network| network["name"].as_str().unwrap().to_owned());
    names.flat_map(|name| [None, Some(4), Some(6)].map(|family| (name.clone(), family))).collect()
}

fn start(shared: &Arc<Shared>, server: SocketAddr) -> Vec<tokio::task::JoinHandle<()>> {
    (0..CONNECTIONS).map(|_| tokio::spawn(allocate(Arc::clone(shared), server))).collect()
}

async fn join(tasks: Vec<tokio::task::JoinHandle<()>>) {
    for task in tasks {
        task.await.unwrap();
    }
}

/// Allocates until enough is acknowledged, nothing is left, or the connection breaks.
async fn allocate(shared: Arc<Shared>, server: SocketAddr) {
    let Ok(mut client) = Client::connect(server).await else { return };
    while shared.acknowledged.load(Ordering::Relaxed) < shared.wanted {
        let wishes = shared.next_wishes();
        if wishes.is_empty() {
            return;
        }
        let calls = wishes.iter().map(|(key, family)| ("ip.allocate".to_owned(), params(key, *family))).collect();
        let answers = client.call_all(calls).await;
        let broken = answers.contains(&Answer::Lost);
        for ((key, family), answer) in wishes.into_iter().zip(answers) {
            shared.take(key, family, answer);
        }
        if broken {
            return;
        }
    }
}

fn params((network, owner): &Key, family: Option<u8>) -> Value {
    let mut params = json!({"network": network, "scope": SCOPE, "owner": owner, "brief": true});
    if let Some(family) = family {
        params["family"] = json!(family);
    }
    params
}

impl Shared {
    /// Wishes for one round of a connection: different networks, and new owners.
    fn next_wishes(&self) -> Vec<(Key, Option<u8>)> {
        let targets = self.targets.lock().unwrap();
        let wish = |_| {
            let number = self.next_owner.fetch_add(1, Ordering::Relaxed);
            let (network, family) = targets.get(number % targets.len().max(1))?;
            let owner = format!("node-{:04}/pod-{number:06x}", number % 977);
            Some(((network.clone(), owner), *family))
        };
        (0..DEPTH).filter_map(wish).collect()
    }

    fn take(&self, key: Key, family: Option<u8>, answer: Answer) {
        match answer {
            Answer::Result(result) => {
                assert_eq!(result["created"], true, "{key:?} never asked before");
                self.ledger.lock().unwrap().know(key, Known::Held(Grant::of(&result)));
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Answer::Refused(kind, _) if EXHAUSTED.contains(&kind.as_str()) => {
                self.ledger.lock().unwrap().know(key.clone(), Known::Free);
                self.targets.lock().unwrap().retain(|target| *target != (key.0.clone(), family));
            }
            Answer::Refused(kind, error) => panic!("{key:?} was refused: {kind}: {error}"),
            Answer::Lost => self.ledger.lock().unwrap().know(key, Known::PerhapsHeld),
        }
    }
}

/// Checks that everything that was acknowledged is listed once, and nothing else.
async fn audit(shared: &Shared, server: SocketAddr, realms: &HashMap<String, String>) {
    let mut client = Client::connect(server).await.unwrap();
    let reservations = client.list_all().await;
    let mut ledger = shared.ledger.lock().unwrap();
    let open = ledger.open();
    ledger.audit(&reservations, realms);
    eprintln!("audited {} reservations; {open} requests had no answer", reservations.len());
}

/// Checks that every owner that asks again gets what it has.
async fn repeat_all(shared: &Shared, server: SocketAddr) {
    let mut client = Client::connect(server).await.unwrap();
    let held: Vec<(Key, Grant)> = {
        let ledger = shared.ledger.lock().unwrap();
        ledger.held().map(|(key, grant)| (key.clone(), grant.clone())).collect()
    };
    for part in held.chunks(DEPTH * 8) {
        let calls = part.iter().map(|(key, _)| ("ip.allocate".to_owned(), params(key, None))).collect();
        for ((key, grant), answer) in part.iter().zip(client.call_all(calls).await) {
            let result = answer.ok();
            assert_eq!(result["created"], false, "{key:?} asked again");
            assert_eq!(&Grant::of(&result), grant, "{key:?} asked again");
        }
    }
}
