//! One network, client or bug does not disturb the others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use allod::actors::service::Hooks;
use allod::core::command::Command;
use allod::core::network::Entries;
use allod::core::state::{Entry, State, Step};
use allod::limits::NETWORK_QUEUE_REQUESTS_MAX;
use allod::store::ShardImage;
use serde_json::{Value, json};

use crate::figures::scrape;
use crate::self_check::{reads_as, until_found};
use crate::stores;
use crate::support::{Client, TestServer, line, patient, wait_for};

/// Panics at each allocation for an owner `bomb`.
fn bombs() -> (Hooks, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let before_decide = move |command: &Command| {
        if let Command::Allocate(ask) = command
            && ask.holder.owner.as_str() == "bomb"
        {
            counted.fetch_add(1, Ordering::SeqCst);
            panic!("as asked");
        }
    };
    (Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() }, count)
}

#[test]
fn a_panic_is_one_internal_error_and_the_network_goes_on_from_the_store() {
    let (hooks, count) = bombs();
    let server = TestServer::hooked(hooks);
    let mut client = server.with_lan();
    let text: String = ["a", "bomb", "b", "a"]
        .iter()
        .enumerate()
        .map(|(at, owner)| line(at as u64, "ip.allocate", &json!({"network": "lan", "owner": owner})))
        .collect();
    client.raw(text);
    let mut answers: Vec<_> = (0..4).map(|_| client.answer()).collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(answers[0]["result"]["address"], "10.0.0.2");
    assert_eq!(answers[1]["error"]["data"]["kind"], "internal");
    assert!(answers[1]["error"]["data"]["id"].is_string());
    assert_eq!(answers[2]["result"]["address"], "10.0.0.3");
    assert_eq!(answers[3]["result"]["created"], false);
    assert_eq!(count.load(Ordering::SeqCst), 1, "the command under the panic is not run again");
    // What memory had is not asked any more: the store is read as if it did not have `b`.
    let lacks = |image: &mut ShardImage| {
        for network in &mut image.networks {
            let mut all: Vec<_> = std::mem::take(&mut network.entries).into_iter().collect();
            all.retain(|(at, _)| at.to_string() != "10.0.0.3");
            network.entries = Entries::of_any_order(all);
        }
    };
    reads_as(&server, Some(Box::new(lacks)));
    assert_eq!(client.kind("ip.allocate", json!({"network": "lan", "owner": "bomb"})), "internal");
    let mut state = |address: &str| client.ok("ip.get", json!({"network": "lan", "address": address}))["state"].clone();
    assert_eq!((state("10.0.0.2"), state("10.0.0.3")), (json!("held"), json!("free")));
}

/// Panics once, when the second address is about to be granted to an owner `torn`: memory then has the first one.
fn tears() -> Hooks {
    let granted = AtomicUsize::new(0);
    let before_step = move |step: &Step| {
        if let Some(State::Entry(Entry::Held(held))) = &step.state
            && held.holder.owner.as_str() == "torn"
        {
            assert!(granted.fetch_add(1, Ordering::SeqCst) != 1, "as asked");
        }
    };
    Hooks { before_step: Some(Arc::new(before_step)), self_check_every: Some(Duration::from_millis(20)), ..patient() }
}

/// What `lan` has, and how much of it is in use.
fn seen(client: &mut Client) -> (Value, Value) {
    let mut usage = client.ok("network.usage", json!({"network": "lan"}));
    usage.as_object_mut().unwrap().remove("cursor");
    (usage, client.ok("ip.list", json!({"network": "lan"}))["reservations"].clone())
}

fn loaded_again(server: &TestServer) -> f64 {
    scrape(server)["allod_network_reloads_total"]
}

#[test]
fn of_a_change_that_a_panic_left_half_done_nothing_is_there_and_nothing_is_answered_as_done() {
    let server = TestServer::hooked(tears());
    let mut client = server.with_lan();
    client.allocate("a");
    let before = seen(&mut client);
    let three = json!({"network": "lan", "owner": "torn", "ips": [{}, {}, {}]});
    assert_eq!(client.kind("ip.acquire", three.clone()), "internal");
    assert_eq!(seen(&mut client), before);
    assert_eq!(loaded_again(&server), 1.0);
    until_found(&server, "same", 8.0);
    let granted = client.ok("ip.acquire", three);
    let addresses: Vec<&Value> =
        granted["reservations"].as_array().unwrap().iter().map(|granted| &granted["address"]).collect();
    assert_eq!(addresses, ["10.0.0.3", "10.0.0.4", "10.0.0.5"], "{granted}");
    until_found(&server, "same", 8.0);
}

/// Both have decided, and what they decided is on its way to the store, when one of them carries it out and breaks off.
#[test]
fn an_act_over_two_networks_is_done_in_both_though_a_panic_left_one_of_them_half_changed() {
    let server = TestServer::hooked(tears());
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let ips = json!([{"network": "lan"}, {"network": "lan"}, {"network": "dmz"}]);
    let granted = client.ok("ip.acquire", json!({"owner": "torn", "ips": ips}));
    let held = client.ok("ip.list", json!({}))["reservations"].clone();
    let addresses = |of: &Value| {
        let all = of.as_array().unwrap().iter().map(|one| one["address"].as_str().unwrap().to_owned());
        all.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(addresses(&held), addresses(&granted["reservations"]), "{held}");
    assert_eq!(addresses(&held).len(), 3, "{held}");
    assert_eq!(loaded_again(&server), 1.0);
    until_found(&server, "same", 8.0);
    client.allocate("b");
}

#[test]
fn three_panics_in_a_minute_stop_that_network_and_no_other() {
    let (hooks, _) = bombs();
    let server = TestServer::hooked(hooks);
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    for _ in 0..3 {
        assert_eq!(client.kind("ip.allocate", json!({"network": "lan", "owner": "bomb"})), "internal");
    }
    assert_eq!(client.kind("ip.allocate", json!({"network": "lan", "owner": "a"})), "network_stopped");
    client.ok("ip.allocate", json!({"network": "dmz", "owner": "a"}));
    // Methods over all networks say so, too, and do not hang.
    assert_eq!(client.kind("ip.list", json!({})), "network_stopped");
    let found = crate::figures::scrape(&server);
    let stopped = |name: &str| found[&format!("allod_network_stopped{{network=\"{name}\",realm=\"default\"}}")];
    assert_eq!((stopped("lan"), stopped("dmz")), (1.0, 0.0));
}

#[test]
fn a_panic_under_a_hold_gives_up_the_joint_act_and_nothing_hangs() {
    let fuse = Arc::new(AtomicUsize::new(0));
    let burning = Arc::clone(&fuse);
    let before_decide = move |command: &Command| {
        if matches!(command, Command::Acquire(_)) && burning.fetch_add(1, Ordering::SeqCst) == 1 {
            panic!("as asked");
        }
    };
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() });
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let both = json!({"owner": "a", "ips": [{"network": "lan"}, {"network": "dmz"}]});
    assert_eq!(client.kind("ip.acquire", both.clone()), "internal");
    assert_eq!(client.ok("ip.list", json!({}))["reservations"], json!([]));
    client.ok("ip.acquire", both);
    client.allocate("b");
}

/// The answers of those clients that are answered at all. At least one must be, which takes time on a busy machine.
pub fn answers_of_some(clients: &mut [Client]) -> Vec<Value> {
    for _ in 0..3_000 {
        let said: Vec<_> = clients
            .iter_mut()
            .filter_map(|one| (!one.silent_for(Duration::from_millis(1))).then(|| one.answer()))
            .collect();
        if !said.is_empty() {
            return said;
        }
    }
    panic!("nobody was answered");
}

/// Opens when dropped, so that a test that fails earlier does not wait for the stuck thread for ever.
#[derive(Default)]
pub struct Gate(pub Arc<(Mutex<bool>, Condvar)>);

impl Drop for Gate {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

/// Two reactor threads, one of them stuck in a decision of `lan`. Clients on the other one fill `lan`'s queue up to its
/// bound and are refused beyond it, while a neighbour on that thread answers.
#[test]
fn a_network_that_is_swamped_refuses_and_its_neighbours_answer() {
    let gate = Gate::default();
    let (held, entered) = (Arc::clone(&gate.0), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&entered);
    let before_decide = move |command: &Command| {
        if let Command::Allocate(ask) = command
            && ask.holder.owner.as_str() == "slow"
        {
            counted.fetch_add(1, Ordering::SeqCst);
            let (open, bell) = &*held;
            drop(bell.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        }
    };
    let server = TestServer::with(|options| {
        options.hooks = Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() };
        options.config.server.threads = 2;
    });
    let gate = gate; // Dropped before the server, which waits for its threads.
    let mut client = server.with_lan();
    // Networks are dealt to the threads in turn: half of these live on the free one.
    for at in 0..16 {
        let subnets = json!([{"cidr": format!("10.1.{at}.0/24")}]);
        client.ok("network.create", json!({"name": format!("n{at}"), "subnets": subnets}));
    }
    client.send("ip.allocate", json!({"network": "lan", "owner": "slow"}));
    wait_for("that it is decided", || entered.load(Ordering::SeqCst) > 0);
    // Half of the clients live on the stuck thread; the other half sends more than the queue holds.
    let most = line(7, "ip.get", &json!({"network": "lan", "address": "10.0.0.9"})).repeat(1_024);
    let mut crowd: Vec<_> = (0..24).map(|_| server.client()).collect();
    for one in &mut crowd {
        one.raw(&most);
    }
    let refused = answers_of_some(&mut crowd);
    for answer in refused {
        assert_eq!(answer["error"]["data"]["kind"], "overloaded", "{answer}");
        assert!(answer["error"]["data"]["retry_after_ms"].is_u64());
    }
    // Metrics are served beside the reactors, so they are available even now.
    let waiting = server.queued("lan");
    assert!((1..=NETWORK_QUEUE_REQUESTS_MAX).contains(&waiting), "{waiting} in the queue");
    // Over Redis each answer is proved by the committer, which is also on one of the two threads.
    if !stores::not_over_redis("the thread that is stuck may be the one that proves answers") {
        let mut others: Vec<_> = (0..32).map(|_| server.client()).collect();
        for (at, other) in others.iter_mut().enumerate() {
            other.send("ip.get", json!({"network": format!("n{}", at / 2), "address": "10.1.0.9"}));
        }
        let answers = answers_of_some(&mut others);
        assert!(answers.iter().all(|answer| answer.get("result").is_some()), "{answers:?}");
    }
    drop(gate);
    assert_eq!(client.answer()["result"]["address"], "10.0.0.2");
}

#[test]
fn a_deadline_is_for_the_beginning_and_not_for_the_store() {
    let first = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&first);
    let before_decide = move |command: &Command| {
        if matches!(command, Command::Allocate(_)) && seen.fetch_add(1, Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(60));
        }
    };
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() });
    let mut client = server.with_lan();
    // All three are read together. The first takes 60 ms, so the second one's deadline passes before it is begun; the
    // third's does not.
    let ask = |id, owner: &str, ms: u64| {
        line(id, "ip.allocate", &json!({"network": "lan", "owner": owner, "deadline_ms": ms}))
    };
    client.raw(ask(1, "a", 10_000) + &ask(2, "b", 20) + &ask(3, "c", 10_000));
    let mut answers: Vec<_> = (0..3).map(|_| client.answer()).collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(answers[0]["result"]["address"], "10.0.0.2");
    assert_eq!(answers[1]["error"]["data"]["kind"], "overloaded");
    assert_eq!(answers[2]["result"]["address"], "10.0.0.3", "what is refused changes nothing");
    server.store.hold();
    // This one is begun in time and waits only for the store: it is not refused.
    client.send("ip.allocate", json!({"network": "lan", "owner": "d", "deadline_ms": 1_000}));
    std::thread::sleep(Duration::from_millis(1_200));
    server.store.let_go();
    assert!(client.answer().get("result").is_some());
}
