//! Requests that wait for capacity while their client talks to another node than the owner.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::nodes::Cluster;
use super::redis::Redis;

/// Lines by hand: several requests may be under way, and the connection may be reset.
struct Wire {
    stream: TcpStream,
    lines: BufReader<TcpStream>,
}

impl Wire {
    fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
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

    /// Asks until it is answered otherwise than "not now".
    fn insist(&mut self, method: &str, params: &Value) -> Value {
        let end = Instant::now() + Duration::from_secs(40);
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
    let end = Instant::now() + Duration::from_secs(20);
    let name = format!("allod_network_waiting_requests{{network=\"{network}\",realm=\"default\"}} {count}");
    while !cluster.metrics(owner).lines().any(|line| line == name) {
        assert!(Instant::now() < end, "{count} do not wait");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A network of one address, which is held by `a`; and another that has room.
fn make_full(wire: &mut Wire) {
    for (name, at) in [("one", 9), ("roomy", 8)] {
        let subnets = json!([{"cidr": format!("10.{at}.0.0/29"), "pools": [{"range": format!("10.{at}.0.2")}]}]);
        wire.insist("network.create", &json!({"name": name, "subnets": subnets}));
    }
    wire.insist("ip.allocate", &json!({"network": "one", "owner": "a"}));
}

fn waiting(owner: &str) -> Value {
    json!({"network": "one", "owner": owner, "wait_seconds": 3_600})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_another_node_waits_at_the_owner_hangs_up_there_and_holds_nobody_up() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let cluster = Cluster::start(directory.path(), &redis, 2);
    let owner = cluster.owner_but(None).await;
    let (mut there, entry) = (Wire::to(cluster.addresses()[owner]), cluster.addresses()[1 - owner]);
    make_full(&mut there);
    let (mut gone, mut waiter) = (Wire::to(entry), Wire::to(entry));
    gone.send(1, "ip.allocate", &waiting("gone"));
    until_waits(&cluster, owner, "one", 1);
    waiter.send(1, "ip.allocate", &waiting("w"));
    until_waits(&cluster, owner, "one", 2);
    // What is sent behind it, for the same network and over all, is answered meanwhile; so is what waits for several.
    waiter.send(2, "ip.get", &json!({"network": "one", "address": "10.9.0.2"}));
    assert_eq!(waiter.answer()["id"], 2);
    waiter.send(3, "network.list", &json!({}));
    assert_eq!(waiter.answer()["id"], 3);
    let ips = json!([{"network": "one"}, {"network": "roomy"}]);
    waiter.send(4, "ip.acquire", &json!({"owner": "several", "ips": ips, "wait_seconds": 3_600}));
    waiter.send(5, "network.list", &json!({}));
    assert_eq!(waiter.answer()["id"], 5);
    until_waits(&cluster, owner, "one", 3);
    gone.reset();
    until_waits(&cluster, owner, "one", 2);
    there.send(1, "ip.release", &json!({"network": "one", "owner": "a"}));
    assert_eq!(there.answer()["result"]["released"], json!(["10.9.0.2"]));
    let granted = waiter.answer();
    assert_eq!((&granted["id"], &granted["result"]["owner"]), (&json!(1), &json!("w")));
    waiter.send(6, "ip.release", &json!({"network": "one", "owner": "w"}));
    let mut both = [waiter.answer(), waiter.answer()];
    both.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(both[0]["result"]["reservations"].as_array().map(Vec::len), Some(2), "{both:?}");
    until_waits(&cluster, owner, "one", 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_told_when_its_node_stops_and_when_the_owner_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let mut cluster = Cluster::start(directory.path(), &redis, 2);
    let owner = cluster.owner_but(None).await;
    make_full(&mut Wire::to(cluster.addresses()[owner]));
    // Its own node stops: it is told at once, and is gone from the queue.
    let mut waiter = Wire::to(cluster.addresses()[1 - owner]);
    waiter.send(1, "ip.allocate", &waiting("w"));
    until_waits(&cluster, owner, "one", 1);
    let entry = cluster.restart(1 - owner);
    let told = waiter.answer();
    assert_eq!(told["error"]["data"]["kind"], "not_ready", "{told}");
    assert_eq!(told["error"]["data"]["reason"], "stopping", "{told}");
    until_waits(&cluster, owner, "one", 0);
    // The owner is killed: nobody can say, and asking again is safe.
    let mut waiter = Wire::to(entry);
    waiter.insist("ip.get", &json!({"network": "one", "address": "10.9.0.2"}));
    waiter.send(1, "ip.allocate", &waiting("w"));
    until_waits(&cluster, owner, "one", 1);
    cluster.crash(owner);
    let told = waiter.answer();
    let kind = told["error"]["data"]["kind"].as_str().unwrap_or_default();
    assert!(kind == "unavailable" || kind == "not_ready", "{told}");
    let mut other = Wire::to(entry);
    other.insist("ip.get", &json!({"network": "one", "address": "10.9.0.2"}));
    let releasing = std::thread::spawn(move || {
        // Whichever comes first: it waits and is served by this, or comes later and finds it free.
        other.insist("ip.release", &json!({"network": "one", "owner": "a"}))
    });
    assert_eq!(waiter.insist("ip.allocate", &waiting("w"))["result"]["address"], "10.9.0.2");
    assert!(releasing.join().unwrap().get("result").is_some());
}
