//! A client that lists and then watches knows what there is, whatever happens to nodes in between: no event is missing, and
//! none comes twice.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::chores::{Chores, check_macs};
use super::client::{Answer, Client};
use super::load::{Load, make_networks};
use super::nodes::{Cluster, STANDSTILL_MAX};
use super::redis::Redis;
use super::server::Server;

/// The owner who is granted an address last of all, so that a watcher knows that it has heard everything.
const LAST: &str = "the-last";

/// The types of events that occur in every run.
const MET: [&str; 11] = [
    "bound",
    "declined",
    "granted",
    "obsolete",
    "released",
    "renewed",
    "reverted",
    "swept",
    "transferred",
    "unbound",
    "updated",
];
/// A type that may occur in addition: most of the load's leases are released before they end.
const MAY: &str = "expired";
/// Members of a reservation that events contain, too, except the end of its lease, which a take-over moves.
const TOLD: [&str; 13] = [
    "prefix_length",
    "scope",
    "owner",
    "slot",
    "kind",
    "claimant",
    "release_with_claimant",
    "note",
    "hostname",
    "mac",
    "created_at",
    "generation",
    "obsolete",
];

/// What is held, by address.
type Held = BTreeMap<String, Value>;

/// A watcher's view of one network: what is held, and the cursor after that.
struct Picture {
    network: String,
    held: Held,
    cursor: Value,
    told: usize,
    /// The types of the events so far.
    types: BTreeSet<String>,
    connections: usize,
}

fn state_of(reservation: &Value) -> Value {
    let member = |name: &&str| Some(((*name).to_owned(), reservation.get(*name)?.clone()));
    Value::Object(TOLD.iter().filter_map(member).collect())
}

async fn list(client: &mut Client, network: &str) -> Option<(Held, Value)> {
    match client.call("ip.list", json!({"network": network, "limit": 10_000})).await {
        Answer::Result(listed) => {
            let of = |held: &Value| (held["address"].as_str().unwrap().to_owned(), state_of(held));
            let held = listed["reservations"].as_array().unwrap().iter().map(of).collect();
            assert!(listed.get("next").is_none());
            Some((held, listed["cursor"].clone()))
        }
        _ => None,
    }
}

impl Picture {
    /// Applies an event to what is held. The event must fit the state before it.
    fn follow(&mut self, event: &Value) {
        let kind = event["type"].as_str().unwrap();
        assert!(kind != "conflict" && kind != "healed", "{}: {event}", self.network);
        if let Some(address) = event["address"].as_str() {
            // An event has one prefix length, for the states before and after.
            let state = |member: &str| {
                let mut state = state_of(event.get(member)?);
                state["prefix_length"] = event["prefix_length"].clone();
                Some(state)
            };
            let before = self.held.remove(address);
            assert_eq!(
                before,
                state("before"),
                "{}: not what was held, so something is missing or told twice: {event}",
                self.network
            );
            if let Some(after) = state("after") {
                self.held.insert(address.to_owned(), after);
            }
        }
        self.types.insert(kind.to_owned());
        self.cursor = event["cursor"].clone();
        self.told += 1;
    }
}

/// Lists, and then watches at any node that answers, until the very last event.
async fn paint(network: String, nodes: Arc<Mutex<Vec<SocketAddr>>>, first: usize) -> Picture {
    let mut picture: Option<Picture> = None;
    let mut node = first;
    loop {
        node += 1;
        let at = {
            let nodes = nodes.lock().unwrap();
            nodes[node % nodes.len()]
        };
        let Ok(mut client) = Client::connect(at).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if picture.is_none() {
            let Some((held, cursor)) = list(&mut client, &network).await else { continue };
            picture = Some(Picture {
                network: network.clone(),
                held,
                cursor,
                told: 0,
                types: BTreeSet::new(),
                connections: 0,
            });
        }
        let Some(picture_now) = &mut picture else { continue };
        let asked = json!({"network": network, "since": picture_now.cursor});
        match client.call("events.watch", asked).await {
            Answer::Result(_) => picture_now.connections += 1,
            Answer::Refused(kind, error) => {
                assert!(["not_ready", "unavailable"].contains(&kind.as_str()), "{error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
            Answer::Lost => continue,
        }
        while let Some(told) = client.told().await {
            match told["method"].as_str().unwrap() {
                "event" => {
                    let event = &told["params"]["event"];
                    picture_now.follow(event);
                    if event["owner"] == LAST {
                        return picture.unwrap();
                    }
                }
                "bookmark" => picture_now.cursor = told["params"]["cursor"].clone(),
                other => panic!("{other}: {told}"),
            }
        }
    }
}

/// Watchers, one for each of some networks.
pub struct Watching {
    nodes: Arc<Mutex<Vec<SocketAddr>>>,
    chores: Chores,
    painters: Vec<tokio::task::JoinHandle<Picture>>,
}

impl Watching {
    pub fn start(networks: &[String], nodes: Vec<SocketAddr>) -> Self {
        let nodes = Arc::new(Mutex::new(nodes));
        let paint = |(at, network): (usize, &String)| tokio::spawn(paint(network.clone(), Arc::clone(&nodes), at));
        let painters = networks.iter().enumerate().map(paint).collect();
        let chores = Chores::start(networks.to_vec(), Arc::clone(&nodes));
        Self { nodes, chores, painters }
    }

    fn moved(&self, node: usize, to: SocketAddr) {
        self.nodes.lock().unwrap()[node] = to;
    }

    /// After the load has ended: what the watchers saw must be what there is. Returns the numbers of events and of connections.
    pub async fn judge(self, server: SocketAddr) -> (usize, usize) {
        self.chores.end_after(60).await;
        let mut client = Client::connect(server).await.unwrap();
        let (mut told, mut connections, mut types) = (0, 0, BTreeSet::new());
        for (at, painter) in self.painters.into_iter().enumerate() {
            let network = format!("net-{at}");
            let ask = json!({"network": network, "owner": LAST});
            let mut granted = client.call("ip.allocate", ask.clone()).await;
            for _ in 0..400 {
                if matches!(granted, Answer::Result(_)) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
                granted = client.call("ip.allocate", ask.clone()).await;
            }
            granted.ok();
            let picture = tokio::time::timeout(STANDSTILL_MAX, painter).await.expect("the last event comes").unwrap();
            let (held, _) = list(&mut client, &network).await.unwrap();
            assert_eq!(picture.held, held, "{network}");
            told += picture.told;
            connections += picture.connections;
            types.extend(picture.types);
        }
        let met: Vec<&str> = types.iter().map(String::as_str).filter(|kind| *kind != MAY).collect();
        assert_eq!(met, MET, "each was told of, and nothing else");
        check_macs(&mut client).await;
        (told, connections)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_and_what_is_told_behind_it_are_what_there_is_while_a_node_is_killed_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut server = Server::start(&data);
    let networks = make_networks(&mut Client::connect(server.address).await.unwrap(), 4).await;
    let load = Load::new(networks.clone(), vec![server.address]);
    let clients = load.start(4, 11);
    assert!(load.more(100, STANDSTILL_MAX).await);
    let watching = Watching::start(&networks, vec![server.address]);
    for _ in 0..3 {
        assert!(load.more(300, STANDSTILL_MAX).await, "the clients get on");
        server.kill();
        server = Server::start(&data);
        load.moved(0, server.address);
        watching.moved(0, server.address);
    }
    assert!(load.more(300, STANDSTILL_MAX).await);
    load.end(clients).await;
    let (told, connections) = watching.judge(server.address).await;
    assert!(told > 1_000 && connections > 8, "{told} events over {connections} connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_at_any_node_goes_on_over_take_overs_without_gap_or_repeat() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let mut cluster = Cluster::start(directory.path(), &redis, 3);
    let networks = make_networks(&mut Client::connect(cluster.addresses()[1]).await.unwrap(), 4).await;
    let load = Load::new(networks.clone(), cluster.addresses());
    let clients = load.start(4, 12);
    assert!(load.more(100, STANDSTILL_MAX).await);
    let watching = Watching::start(&networks, cluster.addresses());
    for round in 0..3 {
        assert!(load.more(200, STANDSTILL_MAX).await, "the clients get on");
        let owner = cluster.owner_but(None).await;
        // A watcher at one of the other nodes keeps its connection.
        let address = if round == 1 { cluster.restart(owner) } else { cluster.crash(owner) };
        load.moved(owner, address);
        watching.moved(owner, address);
    }
    assert!(load.more(200, STANDSTILL_MAX).await);
    load.end(clients).await;
    let owner = cluster.owner_but(None).await;
    let (told, connections) = watching.judge(cluster.addresses()[owner]).await;
    assert!(told > 800, "{told} events over {connections} connections");
}
