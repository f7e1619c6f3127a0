//! Clients that allocate and release without rest, at whichever node answers, and write down what they were told.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::checker::Verdict;
use super::client::{Answer, Client};
use super::record::{Asked, Call, Holder, Record, Told};

/// Calls of one client that are under way at once, each for another holder.
const CALLS_AT_ONCE: usize = 8;
/// So long a client waits before it goes elsewhere: longer than any node needs to know what it can say.
const PATIENCE: Duration = Duration::from_secs(8);
/// Owners of one client: few, so that each comes again and again.
const OWNERS: usize = 24;

/// What the clients of a run share.
pub struct Load {
    pub record: Arc<Record>,
    pub networks: Vec<String>,
    /// Where nodes listen; a client goes to another one when its own is gone.
    nodes: Mutex<Vec<SocketAddr>>,
    pub stop: AtomicBool,
    /// Grants that were acknowledged.
    pub granted: AtomicU64,
    /// Answers that say that nobody knows what became of the request.
    pub said_unknown: AtomicU64,
    /// For so many milliseconds what was lost may still be carried out: 0 where only whoever carries it out is lost.
    pub lingers_ms: AtomicU64,
    /// Answers that say that nothing can be done just now.
    pub put_off: AtomicU64,
    /// When a grant was acknowledged last, and the longest time without one, in nanoseconds of the record.
    last_grant_ns: AtomicU64,
    longest_pause_ns: AtomicU64,
}

impl Load {
    pub fn new(networks: Vec<String>, nodes: Vec<SocketAddr>) -> Arc<Self> {
        let [granted, said_unknown, put_off, last_grant_ns, longest_pause_ns] = [const { AtomicU64::new(0) }; 5];
        let (record, nodes, stop) = (Arc::new(Record::new()), Mutex::new(nodes), AtomicBool::new(false));
        Arc::new(Self {
            record,
            networks,
            nodes,
            stop,
            granted,
            said_unknown,
            put_off,
            last_grant_ns,
            longest_pause_ns,
            lingers_ms: AtomicU64::new(0),
        })
    }

    fn note_grant(&self, now_ns: u64) {
        self.granted.fetch_add(1, Ordering::Relaxed);
        let before_ns = self.last_grant_ns.fetch_max(now_ns, Ordering::Relaxed);
        self.longest_pause_ns.fetch_max(now_ns.saturating_sub(before_ns), Ordering::Relaxed);
    }

    /// The longest time in which no grant was acknowledged, since this was asked last.
    pub fn longest_pause(&self) -> Duration {
        Duration::from_nanos(self.longest_pause_ns.swap(0, Ordering::Relaxed))
    }

    /// A node was started again, and listens elsewhere.
    pub fn moved(&self, node: usize, to: SocketAddr) {
        self.nodes.lock().unwrap()[node] = to;
    }

    /// One more node.
    pub fn also_at(&self, node: SocketAddr) {
        self.nodes.lock().unwrap().push(node);
    }

    fn node(&self, number: usize) -> SocketAddr {
        let nodes = self.nodes.lock().unwrap();
        nodes[number % nodes.len()]
    }

    /// Starts so many clients; each draws from a stream of its own.
    pub fn start(self: &Arc<Self>, clients: usize, seed: u64) -> Vec<tokio::task::JoinHandle<()>> {
        (0..clients).map(|at| tokio::spawn(run(Arc::clone(self), at, seed))).collect()
    }

    /// Waits until so many more grants were acknowledged.
    pub async fn more(&self, grants: u64, within: Duration) -> bool {
        let goal = self.granted.load(Ordering::Relaxed) + grants;
        let waited = async {
            while self.granted.load(Ordering::Relaxed) < goal {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(within, waited).await.is_ok()
    }

    /// Asks once more for all that somebody holds for certain, at whichever node answers: each must be told of the very
    /// same. How many were asked about.
    pub async fn ask_again(&self, verdict: &Verdict) -> usize {
        let mut held: Vec<&Holder> =
            verdict.sure.iter().filter(|sure| sure.until_ns.is_none()).map(|sure| &sure.holder).collect();
        let mut client: Option<Client> = None;
        let (asked, mut node) = (held.len(), 0);
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while !held.is_empty() {
            assert!(std::time::Instant::now() < end, "nobody tells what {} hold", held.len());
            let Some(connected) = &mut client else {
                node += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
                client = Client::connect(self.node(node)).await.ok();
                continue;
            };
            let some: Vec<&Holder> = held.iter().take(32).copied().collect();
            let sent_ns = self.record.now_ns();
            let answers = connected.call_all(some.iter().map(|holder| call_of(holder, &Asked::Grant)).collect()).await;
            let told_ns = self.record.now_ns();
            if answers.contains(&Answer::Lost) || answers.iter().any(|answer| matches!(answer, Answer::Refused(..))) {
                client = None;
            }
            for (holder, answer) in some.into_iter().zip(answers) {
                let told = told_of(&Asked::Grant, answer);
                if matches!(told, Told::Held { .. }) {
                    held.retain(|other| *other != holder);
                }
                let holder = holder.clone();
                self.record.note(Call { holder, asked: Asked::Grant, sent_ns, told_ns, told });
            }
        }
        asked
    }

    /// Asks every client to end, and waits for it.
    pub async fn end(&self, clients: Vec<tokio::task::JoinHandle<()>>) {
        self.stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.unwrap();
        }
    }
}

/// Small pools: addresses change hands all the time.
pub async fn make_networks(client: &mut Client, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    for at in 0..count {
        let name = format!("net-{at}");
        let subnet =
            json!({"cidr": format!("10.{at}.0.0/26"), "pools": [{"range": format!("10.{at}.0.2-10.{at}.0.41")}]});
        let params = json!({"name": name, "subnets": [subnet], "cooldown_seconds": 0});
        client.call("network.create", params).await.ok();
        names.push(name);
    }
    names
}

async fn run(load: Arc<Load>, number: usize, seed: u64) {
    let mut draws = SmallRng::seed_from_u64(seed ^ (number as u64) << 32);
    let mut node = number;
    let mut client: Option<Client> = None;
    // What the client believes: only which of both is worth asking depends on it.
    let mut holds = [false; OWNERS];
    while !load.stop.load(Ordering::Relaxed) {
        let Some(connected) = &mut client else {
            node += 1;
            client = Client::connect(load.node(node)).await.ok();
            if client.is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            continue;
        };
        let mut asks = Vec::new();
        let first = draws.random_range(0..OWNERS);
        for step in 0..CALLS_AT_ONCE {
            let owner = (first + step) % OWNERS;
            let network = load.networks[(number + owner) % load.networks.len()].clone();
            let holder = Holder { network, owner: format!("c{number}/o{owner}"), slot: "0".to_owned() };
            // Mostly the other way round; now and then a repeat.
            let asked = if holds[owner] != draws.random_bool(0.1) { Asked::Release } else { Asked::Grant };
            asks.push((owner, holder, asked));
        }
        let calls = asks.iter().map(|(_, holder, asked)| call_of(holder, asked)).collect();
        let sent_ns = load.record.now_ns();
        let answers = tokio::time::timeout(PATIENCE, connected.call_all(calls)).await;
        let told_ns = load.record.now_ns();
        // Nobody gives up for good what a node that sleeps has read already.
        let lingers_ns = answers.as_ref().map_or(u64::MAX, |_| load.lingers_ms.load(Ordering::Relaxed) * 1_000_000);
        let answers = answers.unwrap_or_else(|_| vec![Answer::Lost; CALLS_AT_ONCE]);
        if answers.contains(&Answer::Lost) {
            client = None;
        }
        let mut refused = false;
        for ((owner, holder, asked), answer) in asks.into_iter().zip(answers) {
            let answered = answer != Answer::Lost;
            let told = told_of(&asked, answer);
            load.said_unknown.fetch_add(u64::from(answered && told == Told::Unknown), Ordering::Relaxed);
            match &told {
                Told::Held { .. } => {
                    holds[owner] = true;
                    load.note_grant(told_ns);
                }
                Told::Released | Told::Nothing => holds[owner] = false,
                Told::Refused(kind) => {
                    holds[owner] &= kind != "not_found";
                    let put_off = kind == "unavailable" || kind == "not_ready";
                    load.put_off.fetch_add(u64::from(put_off), Ordering::Relaxed);
                    refused |= put_off;
                }
                Told::Unknown => {}
            }
            let lingers_ns = if told == Told::Unknown { lingers_ns } else { 0 };
            let told_ns = told_ns.saturating_add(lingers_ns);
            load.record.note(Call { holder, asked, sent_ns, told_ns, told });
        }
        if refused {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn call_of(holder: &Holder, asked: &Asked) -> (String, Value) {
    let params = json!({"network": holder.network, "owner": holder.owner, "slot": holder.slot});
    match asked {
        Asked::Grant => ("ip.allocate".to_owned(), params),
        Asked::Release => ("ip.release".to_owned(), params),
    }
}

fn told_of(asked: &Asked, answer: Answer) -> Told {
    match answer {
        Answer::Lost => Told::Unknown,
        Answer::Refused(kind, error) if kind == "unavailable" && error["data"]["applied"] == "unknown" => Told::Unknown,
        // The server's own fault says nothing of what became of it.
        Answer::Refused(kind, _) if kind == "internal" => Told::Unknown,
        Answer::Refused(kind, _) => Told::Refused(kind),
        Answer::Result(result) => match asked {
            Asked::Release if result["released"].as_array().is_some_and(Vec::is_empty) => Told::Nothing,
            Asked::Release => Told::Released,
            Asked::Grant => {
                let reservation = result.get("reservation").unwrap_or(&result);
                let address: std::net::IpAddr = reservation["address"].as_str().unwrap().parse().unwrap();
                let first = match address {
                    std::net::IpAddr::V4(v4) => u128::from(u32::from(v4)),
                    std::net::IpAddr::V6(v6) => u128::from(v6),
                };
                let generation = reservation["generation"].as_u64().unwrap();
                Told::Held { span: (first, first), generation, created: result["created"] == true, until_ns: None }
            }
        },
    }
}
