//! The order of one connection's requests for one slot, through a follower, while the register goes from one owner to the
//! next: grants, releases and new grants that were sent without waiting for answers are answered as if done in that
//! order.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::client::{Answer, Client};
use super::run::{Nodes, eventually};

/// Requests that are sent at once.
const AT_ONCE: usize = 24;

/// What the answers to one connection say about its slot, in the order of the requests.
#[derive(Debug, Default)]
struct Slot {
    owner: String,
    /// The latest generation that was shown, and whether it was let go.
    latest: u64,
    is_gone: bool,
    /// The next answer need not follow from the previous ones: the outcome of a request is unknown, or a request was carried
    /// out twice because its first answer was lost.
    in_doubt: bool,
    grants: usize,
    refused: usize,
    unknown: usize,
}

impl Slot {
    fn allocate(&self) -> (String, Value) {
        ("ip.allocate".to_owned(), json!({"network": "ordered", "owner": self.owner}))
    }

    fn release(&self) -> (String, Value) {
        ("ip.release".to_owned(), json!({"network": "ordered", "owner": self.owner}))
    }

    fn granted(&mut self, result: &Value) {
        let (generation, created) = (result["generation"].as_u64().unwrap(), result["created"] == true);
        assert!(generation >= self.latest, "{generation} is told after {}: {self:?}", self.latest);
        assert!(generation > self.latest || !self.is_gone, "granted what was let go before: {result}, {self:?}");
        assert!(generation > self.latest || !created, "made twice: {result}, {self:?}");
        let follows = created == (self.is_gone || self.latest == 0);
        assert!(follows || self.in_doubt, "not in the order in which it was asked: {result}, {self:?}");
        (self.latest, self.is_gone, self.in_doubt) = (generation, false, false);
        self.grants += 1;
    }

    fn released(&mut self, result: &Value) {
        let count = result["released"].as_array().unwrap().len();
        let follows = count == usize::from(self.latest > 0 && !self.is_gone);
        assert!(follows || self.in_doubt, "not in the order in which it was asked: {result}, {self:?}");
        (self.is_gone, self.in_doubt) = (true, false);
    }

    /// Sends all requests at once and judges the answers. Under `trouble` an owner may lose requests that it has not
    /// answered yet. False: the connection broke.
    async fn turn(&mut self, client: &mut Client, trouble: &AtomicBool) -> bool {
        let calls: Vec<_> = (0..AT_ONCE).map(|at| if at % 2 == 0 { self.release() } else { self.allocate() }).collect();
        let methods: Vec<String> = calls.iter().map(|(method, _)| method.clone()).collect();
        let before = trouble.load(Ordering::SeqCst);
        let answers = client.call_all(calls).await;
        // What a killed owner carried out but did not answer is asked again of the next owner, which answers it as a repeat.
        let may_be_repeats = before || trouble.load(Ordering::SeqCst);
        for (method, answer) in methods.iter().zip(answers) {
            self.in_doubt |= may_be_repeats;
            match answer {
                Answer::Result(result) if method == "ip.allocate" => self.granted(&result),
                Answer::Result(result) => self.released(&result),
                Answer::Refused(kind, error) => {
                    assert!(may_be_repeats && ["not_ready", "unavailable"].contains(&kind.as_str()), "{error}");
                    self.refused += 1;
                    self.unknown += usize::from(error["data"]["applied"] == "unknown");
                    self.in_doubt = true;
                }
                Answer::Lost => return false,
            }
        }
        true
    }

    /// Checks by a list what the slot holds now.
    async fn is_as_told(&self, client: &mut Client) {
        let list = client.call("ip.list", json!({"network": "ordered", "owner": self.owner})).await.ok();
        let held = list["reservations"].as_array().unwrap();
        assert!(held.len() <= 1, "two at once: {list}");
        let generation = held.first().and_then(|one| one["generation"].as_u64());
        assert!(generation.is_none_or(|held| held >= self.latest), "{list}: {self:?}");
        if !self.in_doubt {
            assert_eq!(generation, (!self.is_gone).then_some(self.latest), "{self:?}");
        }
    }
}

/// What the connections look at, and what they report.
#[derive(Default)]
struct Flags {
    trouble: AtomicBool,
    stop: AtomicBool,
    /// How many turns of each connection were answered without a refusal.
    turns: Mutex<Vec<Arc<AtomicUsize>>>,
}

impl Flags {
    /// Waits until each connection has been served a few more times. Refusals do not count: a node that has not heard of the new
    /// owner yet refuses quickly.
    async fn get_on(&self) {
        let turns =
            || -> Vec<usize> { self.turns.lock().unwrap().iter().map(|turns| turns.load(Ordering::SeqCst)).collect() };
        let before = turns();
        let is_so = || turns().iter().zip(&before).all(|(now, before)| *now >= before + 4);
        eventually("every connection is answered", is_so).await;
    }
}

/// Starts one connection to a node, with a slot of its own. It works until it is told to stop or the connection breaks.
fn begin(mut client: Client, owner: String, flags: &Arc<Flags>) -> JoinHandle<(Slot, Option<Client>)> {
    let (flags, turns) = (Arc::clone(flags), Arc::<AtomicUsize>::default());
    flags.turns.lock().unwrap().push(Arc::clone(&turns));
    tokio::spawn(async move {
        let mut slot = Slot { owner, ..Slot::default() };
        while !flags.stop.load(Ordering::SeqCst) {
            let refused = slot.refused;
            if !slot.turn(&mut client, &flags.trouble).await {
                return (slot, None);
            }
            if slot.refused > refused {
                tokio::time::sleep(Duration::from_millis(20)).await;
            } else {
                turns.fetch_add(1, Ordering::SeqCst);
            }
        }
        (slot, Some(client))
    })
}

async fn make_network(nodes: &Nodes) {
    let subnets = json!([{"cidr": "10.77.0.0/24"}]);
    nodes.client(0).await.call("network.create", json!({"name": "ordered", "subnets": subnets})).await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connections_requests_for_a_slot_keep_their_order_through_hand_overs() {
    let Some(nodes) = Nodes::start(3, &[]) else { return };
    make_network(&nodes).await;
    let flags = Arc::<Flags>::default();
    let mut clients = Vec::new();
    for node in 0..3 {
        clients.push(begin(nodes.client(node).await, format!("of-{node}"), &flags));
    }
    let mut owner = nodes.cluster.owner_but(None).await;
    for _ in 0..3 {
        flags.get_on().await;
        nodes.client(owner).await.call("cluster.drain", json!({})).await.ok();
        let next = nodes.cluster.owner_but(Some(owner)).await;
        flags.get_on().await;
        nodes.client(owner).await.call("cluster.drain", json!({"drain": false})).await.ok();
        owner = next;
    }
    flags.stop.store(true, Ordering::SeqCst);
    for client in clients {
        let (slot, client) = client.await.unwrap();
        assert!(slot.grants > 50, "{slot:?}");
        slot.is_as_told(&mut client.expect("no connection breaks")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connections_requests_for_a_slot_keep_their_order_when_the_owner_is_killed() {
    let Some(mut nodes) = Nodes::start(3, &[]) else { return };
    make_network(&nodes).await;
    let flags = Arc::<Flags>::default();
    let killed = nodes.cluster.owner_but(None).await;
    let mut clients = Vec::new();
    for node in (0..3).filter(|&node| node != killed) {
        for number in 0..2 {
            clients.push(begin(nodes.client(node).await, format!("of-{node}-{number}"), &flags));
        }
    }
    flags.get_on().await;
    flags.trouble.store(true, Ordering::SeqCst);
    nodes.cluster.kill(killed);
    let next = nodes.cluster.owner_but(Some(killed)).await;
    flags.get_on().await;
    flags.trouble.store(false, Ordering::SeqCst);
    flags.get_on().await;
    flags.stop.store(true, Ordering::SeqCst);
    let mut met = 0;
    for client in clients {
        let (slot, client) = client.await.unwrap();
        assert!(slot.grants > 50, "{slot:?}");
        met += slot.refused;
        slot.is_as_told(&mut client.expect("no connection breaks")).await;
    }
    assert!(met > 0, "the kill met no request");
    assert_ne!(next, killed);
}
