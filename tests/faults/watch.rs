//! Who lists and then watches knows what there is, whatever happens to nodes in between: no event is missing, and none
//! comes twice.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::load::{Load, make_networks};
use super::nodes::Cluster;
use super::redis::Redis;
use super::server::Server;

/// Longest that anybody may stand still.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);
/// Who is granted an address last of all, so that a watcher knows that it has heard everything.
const LAST: &str = "the-last";

/// What is held, by address: owner and generation.
type Held = BTreeMap<String, (String, u64)>;

/// Of one network: what is held, and the cursor behind that.
struct Picture {
    network: String,
    held: Held,
    cursor: Value,
    told: usize,
    connections: usize,
}

fn of(reservation: &Value) -> (String, (String, u64)) {
    let text = |member: &str| reservation[member].as_str().unwrap_or_else(|| panic!("{reservation}")).to_owned();
    (text("address"), (text("owner"), reservation["generation"].as_u64().unwrap()))
}

async fn list(client: &mut Client, network: &str) -> Option<(Held, Value)> {
    match client.call("ip.list", json!({"network": network, "limit": 10_000})).await {
        Answer::Result(listed) => {
            let held = listed["reservations"].as_array().unwrap().iter().map(of).collect();
            assert!(listed.get("next").is_none());
            Some((held, listed["cursor"].clone()))
        }
        _ => None,
    }
}

impl Picture {
    /// Changes what is held as an event says. It must fit what came before it.
    fn follow(&mut self, event: &Value) {
        let address = event["address"].as_str().map(str::to_owned);
        let generation = event["generation"].as_u64();
        match event["type"].as_str().unwrap() {
            "granted" => {
                let (address, now) = of(event);
                let before = self.held.insert(address, now);
                assert_eq!(
                    before, None,
                    "{}: held already, so something is missing or told twice: {event}",
                    self.network
                );
            }
            "released" => {
                let before = self.held.remove(&address.unwrap());
                assert_eq!(before.map(|held| held.1), generation, "{}: not what was held: {event}", self.network);
            }
            other => panic!("{other}: {event}"),
        }
        self.cursor = event["cursor"].clone();
        self.told += 1;
    }
}

/// Lists, then watches at whichever node answers, until the last event of all.
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
            picture = Some(Picture { network: network.clone(), held, cursor, told: 0, connections: 0 });
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

/// Somebody watches each of some networks.
pub struct Watching {
    nodes: Arc<Mutex<Vec<SocketAddr>>>,
    painters: Vec<tokio::task::JoinHandle<Picture>>,
}

impl Watching {
    pub fn start(networks: &[String], nodes: Vec<SocketAddr>) -> Self {
        let nodes = Arc::new(Mutex::new(nodes));
        let paint = |(at, network): (usize, &String)| tokio::spawn(paint(network.clone(), Arc::clone(&nodes), at));
        let painters = networks.iter().enumerate().map(paint).collect();
        Self { nodes, painters }
    }

    fn moved(&self, node: usize, to: SocketAddr) {
        self.nodes.lock().unwrap()[node] = to;
    }

    /// The load has ended: what was seen must be what there is. How many events were told, and over how many connections.
    pub async fn judge(self, server: SocketAddr) -> (usize, usize) {
        let mut client = Client::connect(server).await.unwrap();
        let (mut told, mut connections) = (0, 0);
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
        }
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
        // A watcher at one of the others is told on over its connection.
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
