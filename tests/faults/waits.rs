//! Requests that wait for capacity, while their client talks to a node that is not the owner, and across take-overs.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::nodes::Cluster;
use super::redis::Redis;

/// A connection that is driven line by line: several requests may be under way, and the connection may be reset.
struct Lines {
    stream: TcpStream,
    lines: BufReader<TcpStream>,
}

impl Lines {
    fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { lines: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    fn send(&mut self, id: u64, method: &str, params: &Value) {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Repeats a request until its answer is something other than "not now".
    fn insist(&mut self, method: &str, params: &Value) -> Value {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            self.send(7, method, params);
            let answer = self.answer();
            let kind = answer["error"]["data"]["kind"].as_str().unwrap_or_default().to_owned();
            if !["not_ready", "unavailable"].contains(&kind.as_str()) {
                return answer;
            }
            assert!(Instant::now() < end, "{method} {params}: {answer}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

fn until_waits(cluster: &Cluster, owner: usize, network: &str, count: usize) {
    let end = Instant::now() + Duration::from_secs(60);
    let name = format!("allod_network_waiting_requests{{network=\"{network}\",realm=\"default\"}} {count}");
    while !cluster.metrics(owner).lines().any(|line| line == name) {
        assert!(Instant::now() < end, "{count} do not wait");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Makes a network with one address, held by `a`, and another network that has room.
fn make_full(wire: &mut Lines) {
    for (name, at) in [("one", 9), ("roomy", 8)] {
        let subnets = json!([{"cidr": format!("10.{at}.0.0/29"), "pools": [{"range": format!("10.{at}.0.2")}]}]);
        wire.insist("network.create", &json!({"name": name, "subnets": subnets}));
    }
    wire.insist("ip.allocate", &json!({"network": "one", "owner": "a"}));
}

/// Two nodes over a Redis.
struct Two {
    cluster: Cluster,
    /// The node that owns the register at the beginning.
    first: usize,
    /// The address of that node, which is the one that tests drain.
    drained: SocketAddr,
    /// The address of the other node.
    stays: SocketAddr,
    _redis: Redis,
    _directory: tempfile::TempDir,
}

impl Two {
    /// None if there is no `redis-server`.
    async fn start() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let redis = Redis::start(directory.path(), &[])?;
        let cluster = Cluster::start(directory.path(), &redis, 2);
        let first = cluster.owner_but(None).await;
        let (drained, stays) = (cluster.address(first), cluster.address(1 - first));
        Some(Self { cluster, first, drained, stays, _redis: redis, _directory: directory })
    }

    /// A client of the owner that has made the networks.
    fn full(&self) -> Lines {
        let mut there = Lines::to(self.drained);
        make_full(&mut there);
        there
    }
}

/// Names each waiter `w` and its position.
fn named<const COUNT: usize>(waiters: [Lines; COUNT]) -> Vec<(String, Lines)> {
    waiters.into_iter().enumerate().map(|(at, wire)| (format!("w{at}"), wire)).collect()
}

fn waiting(owner: &str) -> Value {
    json!({"network": "one", "owner": owner, "wait_seconds": 3_600})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_another_node_waits_at_the_owner_hangs_up_there_and_holds_nobody_up() {
    let Some(two) = Two::start().await else { return };
    let (cluster, owner, entry) = (&two.cluster, two.first, two.stays);
    let mut there = two.full();
    let (mut gone, mut waiter) = (Lines::to(entry), Lines::to(entry));
    gone.send(1, "ip.allocate", &waiting("gone"));
    until_waits(cluster, owner, "one", 1);
    waiter.send(1, "ip.allocate", &waiting("w"));
    until_waits(cluster, owner, "one", 2);
    // Later requests, for the same network and across all, are answered meanwhile, even behind a request for several networks.
    waiter.send(2, "ip.get", &json!({"network": "one", "address": "10.9.0.2"}));
    assert_eq!(waiter.answer()["id"], 2);
    waiter.send(3, "network.list", &json!({}));
    assert_eq!(waiter.answer()["id"], 3);
    let ips = json!([{"network": "one"}, {"network": "roomy"}]);
    waiter.send(4, "ip.acquire", &json!({"owner": "several", "ips": ips, "wait_seconds": 3_600}));
    waiter.send(5, "network.list", &json!({}));
    assert_eq!(waiter.answer()["id"], 5);
    until_waits(cluster, owner, "one", 3);
    gone.reset();
    until_waits(cluster, owner, "one", 2);
    there.send(1, "ip.release", &json!({"network": "one", "owner": "a"}));
    assert_eq!(there.answer()["result"]["released"], json!(["10.9.0.2"]));
    let granted = waiter.answer();
    assert_eq!((&granted["id"], &granted["result"]["owner"]), (&json!(1), &json!("w")));
    waiter.send(6, "ip.release", &json!({"network": "one", "owner": "w"}));
    let mut both = [waiter.answer(), waiter.answer()];
    both.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(both[0]["result"]["reservations"].as_array().map(Vec::len), Some(2), "{both:?}");
    until_waits(cluster, owner, "one", 0);
}

/// A client that waits, once its node knows that it does: a request across all networks is answered only after each earlier
/// request is answered or known to wait.
fn begin_to_wait(node: SocketAddr, method: &str, params: &Value) -> Lines {
    let mut waiter = Lines::to(node);
    waiter.send(1, method, params);
    waiter.send(2, "network.list", &json!({}));
    let listed = waiter.answer();
    assert_eq!(listed["id"], 2, "{listed}");
    waiter
}

/// First the owner is drained, and its clients keep their connections; then the next owner is stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_waits_on_at_the_next_owner_for_the_time_that_is_left() {
    let Some(two) = Two::start().await else { return };
    let Two { ref cluster, first, drained, stays, .. } = two;
    let mut there = two.full();
    let (both, alone) = (json!([{"network": "one"}, {"network": "roomy"}]), json!([{"network": "one"}]));
    let several = |owner: &str, ips: &Value| json!({"owner": owner, "ips": ips, "wait_seconds": 3_600});
    let waiters = [
        begin_to_wait(stays, "ip.allocate", &waiting("w0")),
        begin_to_wait(drained, "ip.allocate", &waiting("w1")),
        begin_to_wait(stays, "ip.acquire", &several("w2", &both)),
        begin_to_wait(drained, "ip.acquire", &several("w3", &alone)),
        begin_to_wait(drained, "ip.acquire", &several("w4", &both)),
        begin_to_wait(stays, "ip.allocate", &waiting("w5")),
    ];
    let mut short = waiting("short");
    short["wait_seconds"] = json!(2);
    let mut short = begin_to_wait(stays, "ip.allocate", &short);
    let drain = there.insist("cluster.drain", &json!({}));
    assert_eq!(drain["result"]["draining"], true, "{drain}");
    assert_eq!(cluster.owner_but(Some(first)).await, 1 - first);
    let told = short.answer();
    assert_eq!(told["error"]["data"]["kind"], "not_enough_capacity", "{told}");
    let waited_ms = told["error"]["data"]["waited_ms"].as_u64().unwrap();
    assert!((2_000..40_000).contains(&waited_ms), "counted from when it began to wait: {told}");
    until_waits(cluster, 1 - first, "one", waiters.len());
    let mut waiters = named(waiters);
    let mut holder = "a".to_owned();
    for _ in 0..2 {
        holder = hand_on(&mut there, ("one", &holder), &mut waiters).0;
    }
    // The next owner stops. Its own clients that wait are told; the clients of the node that stays wait on there.
    there.insist("cluster.drain", &json!({"drain": false}));
    cluster.signal(1 - first, "-TERM");
    let (mut left, stopped): (Vec<_>, Vec<_>) =
        waiters.into_iter().partition(|(name, _)| ["w1", "w3", "w4"].contains(&name.as_str()));
    assert!(!left.is_empty() && !stopped.is_empty());
    for (name, mut wire) in stopped {
        let told = wire.answer();
        assert_eq!(told["error"]["data"]["reason"], "stopping", "{name}: {told}");
    }
    until_waits(cluster, first, "one", left.len());
    while !left.is_empty() {
        holder = hand_on(&mut there, ("one", &holder), &mut left).0;
    }
}

/// A request that had not reached its network when the register was given away waits like those that waited already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_begins_to_wait_while_the_register_is_given_away_waits_at_the_next_owner() {
    let Some(two) = Two::start().await else { return };
    drop(two.full());
    let addresses = [two.drained, two.stays];
    let mut owner = two.first;
    let at = |node: usize| addresses[usize::from(node != two.first)];
    for _ in 0..4 {
        let over = Arc::new(AtomicBool::new(false));
        let mut askers = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (over, mut client) = (Arc::clone(&over), Client::connect(at(owner)).await.unwrap());
            askers.spawn(async move {
                let ask = json!({"network": "one", "owner": "late", "wait_seconds": 1});
                let mut told = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    told.extend(client.call_all(vec![("ip.allocate".to_owned(), ask.clone()); 128]).await);
                }
                told
            });
        }
        let mut orders = Client::connect(at(owner)).await.unwrap();
        orders.call("cluster.drain", json!({})).await.ok();
        over.store(true, Ordering::Relaxed);
        for answer in askers.join_all().await.into_iter().flatten() {
            assert!(matches!(&answer, Answer::Refused(kind, _) if kind == "not_enough_capacity"), "{answer:?}");
        }
        orders.call("cluster.drain", json!({"drain": false})).await.ok();
        owner = two.cluster.owner_but(Some(owner)).await;
    }
}

/// When the owner changes, the network that was asked for has another name, and another network has the old name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_by_name_waits_on_at_the_next_owner_for_the_network_that_bore_it() {
    let Some(two) = Two::start().await else { return };
    let Two { ref cluster, first, drained, stays, .. } = two;
    let mut there = two.full();
    let several = json!([{"network": "roomy"}, {"network": "one"}]);
    let several = |owner: &str| json!({"owner": owner, "ips": several, "wait_seconds": 3_600});
    let waiters = [
        begin_to_wait(stays, "ip.allocate", &waiting("w0")),
        begin_to_wait(drained, "ip.allocate", &waiting("w1")),
        begin_to_wait(stays, "ip.acquire", &several("w2")),
        begin_to_wait(drained, "ip.acquire", &several("w3")),
    ];
    let id = there.insist("network.get", &json!({"network": "one"}))["result"]["id"].take();
    let renamed = there.insist("network.update", &json!({"network": "one", "set": {"name": "first"}}));
    assert_eq!(renamed["result"]["name"], "first", "{renamed}");
    let roomy = json!({"name": "one", "subnets": [{"cidr": "10.7.0.0/24"}]});
    assert_eq!(there.insist("network.create", &roomy)["result"]["name"], "one");
    there.insist("cluster.drain", &json!({}));
    assert_eq!(cluster.owner_but(Some(first)).await, 1 - first);
    until_waits(cluster, 1 - first, "first", waiters.len());
    let mut waiters = named(waiters);
    let mut holder = "a".to_owned();
    while !waiters.is_empty() {
        let (name, served) = hand_on(&mut there, ("first", &holder), &mut waiters);
        // For those who wait in two networks this one comes second.
        let held = if served["reservations"].is_null() { &served } else { &served["reservations"][1] };
        assert_eq!((&held["network"], &held["network_id"]), (&json!("first"), &id), "{name}: {served}");
        holder = name;
    }
    let listed = there.insist("ip.list", &json!({"network": "one", "count_only": true}));
    assert_eq!(listed["result"]["count"], 0, "nobody asked for that one");
}

/// Releases what one owner holds, and waits until one of the waiters is served in the network. Returns its name and its answer.
fn hand_on(wire: &mut Lines, (network, holder): (&str, &str), waiters: &mut Vec<(String, Lines)>) -> (String, Value) {
    wire.insist("owner.release", &json!({"owner": holder}));
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < end, "nobody is served after {holder}");
        let listed = wire.insist("ip.list", &json!({"network": network}));
        let held = listed["result"]["reservations"].as_array().unwrap();
        assert!(held.len() <= 1, "{listed}");
        let Some(name) = held.first().and_then(|held| held["owner"].as_str()) else { continue };
        let at = waiters.iter().position(|(waiter, _)| waiter == name).expect("nobody is served twice");
        let (name, mut waiter) = waiters.remove(at);
        let served = waiter.answer();
        assert_eq!((&served["id"], served.get("result").is_some()), (&json!(1), true), "{name}: {served}");
        return (name, served["result"].clone());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_told_when_its_node_stops_and_when_the_owner_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let mut cluster = Cluster::start(directory.path(), &redis, 2);
    let owner = cluster.owner_but(None).await;
    make_full(&mut Lines::to(cluster.addresses()[owner]));
    // The waiter's own node stops: the waiter is told at once, and leaves the queue.
    let mut waiter = Lines::to(cluster.addresses()[1 - owner]);
    waiter.send(1, "ip.allocate", &waiting("w"));
    until_waits(&cluster, owner, "one", 1);
    let entry = cluster.restart(1 - owner);
    let told = waiter.answer();
    assert_eq!(told["error"]["data"]["kind"], "not_ready", "{told}");
    assert_eq!(told["error"]["data"]["reason"], "stopping", "{told}");
    until_waits(&cluster, owner, "one", 0);
    // The owner is killed: the outcome is unknown, and asking again is safe.
    let mut waiter = Lines::to(entry);
    waiter.insist("ip.get", &json!({"network": "one", "address": "10.9.0.2"}));
    waiter.send(1, "ip.allocate", &waiting("w"));
    until_waits(&cluster, owner, "one", 1);
    cluster.crash(owner);
    let told = waiter.answer();
    let kind = told["error"]["data"]["kind"].as_str().unwrap_or_default();
    assert!(kind == "unavailable" || kind == "not_ready", "{told}");
    let mut other = Lines::to(entry);
    other.insist("ip.get", &json!({"network": "one", "address": "10.9.0.2"}));
    let releasing = std::thread::spawn(move || {
        // Either the waiter waits and is served by this release, or it comes later and finds the address free.
        other.insist("ip.release", &json!({"network": "one", "owner": "a"}))
    });
    assert_eq!(waiter.insist("ip.allocate", &waiting("w"))["result"]["address"], "10.9.0.2");
    assert!(releasing.join().unwrap().get("result").is_some());
}

/// Waits at one node after the other until it is served. Also returns how many attempts were in vain.
fn wait_until_served(owner: &str, nodes: &Mutex<Vec<SocketAddr>>, first: usize) -> (String, usize) {
    let end = Instant::now() + Duration::from_secs(60);
    for attempt in 0.. {
        assert!(Instant::now() < end, "{owner} is never served");
        let address = {
            let nodes = nodes.lock().unwrap();
            nodes[(first + attempt) % nodes.len()]
        };
        let Ok(stream) = TcpStream::connect(address) else {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut wire = Lines { lines: BufReader::new(stream.try_clone().unwrap()), stream };
        let ask = json!({"jsonrpc": "2.0", "id": 1, "method": "ip.allocate", "params": waiting(owner)});
        let mut line = String::new();
        let sent = wire.stream.write_all(format!("{ask}\n").as_bytes());
        if sent.is_err() || !wire.lines.read_line(&mut line).is_ok_and(|length| length > 0) {
            // The node is gone and the connection broke. A silent node would have failed the test by its time limit.
            continue;
        }
        let told: Value = serde_json::from_str(&line).unwrap();
        if let Some(address) = told["result"]["address"].as_str() {
            return (address.to_owned(), attempt);
        }
        let kind = told["error"]["data"]["kind"].as_str().unwrap_or_default();
        assert!(["not_ready", "unavailable"].contains(&kind), "{owner}: {told}");
        std::thread::sleep(Duration::from_millis(30));
    }
    unreachable!("it goes on until it is served");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_those_who_wait_is_served_once_over_crashes_and_stops_of_their_owner() {
    const WAITERS: usize = 9;
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let mut cluster = Cluster::start(directory.path(), &redis, 3);
    let mut there = Lines::to(cluster.address(0));
    let subnets = json!([{"cidr": "10.9.0.0/27", "pools": [{"range": format!("10.9.0.2-10.9.0.{}", 1 + WAITERS)}]}]);
    there.insist("network.create", &json!({"name": "one", "subnets": subnets}));
    for at in 0..WAITERS {
        there.insist("ip.allocate", &json!({"network": "one", "owner": format!("before-{at}")}));
    }
    let nodes = Arc::new(Mutex::new(cluster.addresses()));
    let start = |at: usize| {
        let nodes = Arc::clone(&nodes);
        std::thread::spawn(move || wait_until_served(&format!("waiter-{at}"), &nodes, at))
    };
    let waiters: Vec<_> = (0..WAITERS).map(start).collect();
    for round in 0..3 {
        let owner = cluster.owner_but(None).await;
        // By then some of the waiters have been served.
        until_waits(&cluster, owner, "one", WAITERS - 2 * round);
        let address = if round == 1 { cluster.restart(owner) } else { cluster.crash(owner) };
        nodes.lock().unwrap()[owner] = address;
        let owner = cluster.owner_but(None).await;
        let mut wire = Lines::to(cluster.address(owner));
        for at in 2 * round..2 * (round + 1) {
            wire.insist("ip.release", &json!({"network": "one", "owner": format!("before-{at}")}));
        }
    }
    let owner = cluster.owner_but(None).await;
    let mut wire = Lines::to(cluster.address(owner));
    for at in 6..WAITERS {
        wire.insist("ip.release", &json!({"network": "one", "owner": format!("before-{at}")}));
    }
    let served: Vec<(String, usize)> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
    let again: usize = served.iter().map(|(_, attempts)| attempts).sum();
    assert!(again >= WAITERS, "all of them waited over the first crash, and only {again} attempts were in vain");
    let listed = wire.insist("ip.list", &json!({"network": "one"}));
    let held = listed["result"]["reservations"].as_array().unwrap();
    let text = |held: &Value, member: &str| held[member].as_str().unwrap().to_owned();
    let mut found: Vec<_> = held.iter().map(|held| (text(held, "owner"), text(held, "address"))).collect();
    found.sort();
    let told = served.into_iter().enumerate().map(|(at, (address, _))| (format!("waiter-{at}"), address));
    assert_eq!(found, told.collect::<Vec<_>>(), "each holds what it was told, and nothing else is held");
    until_waits(&cluster, owner, "one", 0);
}
