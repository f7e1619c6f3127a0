//! The actor of a network dies outside the wall that catches panics: its knowledge is loaded from the store again, once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use allod::actors::service::Hooks;
use allod::core::command::Command;
use serde_json::{Value, json};

use crate::isolation::Gate;
use crate::stores;
use crate::support::{Client, TestServer, http, line, patient, wait_for};

#[test]
fn an_actor_that_dies_outside_its_wall_answers_all_that_waited_and_comes_back_with_all_that_was_acknowledged() {
    let fuse = Arc::new(AtomicUsize::new(0));
    let burning = Arc::clone(&fuse);
    let before_work = move |command: &Command| {
        let Command::Allocate(ask) = command else { return };
        if ask.holder.owner.as_str() == "bomb" && burning.fetch_add(1, Ordering::SeqCst) == 0 {
            panic!("as asked");
        }
    };
    let hooks = Hooks { before_work: Some(Arc::new(before_work)), ..patient() };
    let server = TestServer::hooked(hooks);
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    client.allocate("a");
    let ask = |at: u64, owner: &str| line(at, "ip.allocate", &json!({"network": "lan", "owner": owner}));
    client.raw(ask(100, "bomb") + &ask(101, "b"));
    for _ in 0..2 {
        assert_eq!(client.answer()["error"]["data"]["kind"], "not_ready");
    }
    client.ok("ip.allocate", json!({"network": "dmz", "owner": "a"}));
    let not_ready = |answer: &Value| answer["error"]["data"]["kind"] == "not_ready";
    let granted = client.ok_after("ip.allocate", &json!({"network": "lan", "owner": "a"}), 1_200, not_ready);
    assert_eq!((&granted["address"], &granted["created"]), (&json!("10.0.0.2"), &json!(false)));
    assert_eq!(client.allocate("bomb")["address"], "10.0.0.3");
}

/// A bomb that goes off once, outside the wall.
fn one_bomb() -> Hooks {
    let fuse = Arc::new(AtomicUsize::new(0));
    let before_work = move |command: &Command| {
        let Command::Allocate(ask) = command else { return };
        if ask.holder.owner.as_str() == "bomb" && fuse.fetch_add(1, Ordering::SeqCst) == 0 {
            panic!("as asked");
        }
    };
    Hooks { before_work: Some(Arc::new(before_work)), ..patient() }
}

/// `a` holds an address; the actor dies, two requests find it dead, and it serves again.
fn found_dead_by_two(server: &TestServer) -> Client {
    let mut client = server.with_lan();
    client.allocate("a");
    server.store.hold_loads();
    assert_eq!(client.kind("ip.allocate", json!({"network": "lan", "owner": "bomb"})), "not_ready");
    let (mut one, mut other) = (server.client(), server.client());
    for finder in [&mut one, &mut other] {
        assert_eq!(finder.kind("ip.allocate", json!({"network": "lan", "owner": "x"})), "not_ready");
    }
    server.store.let_loads_go();
    wait_for("that it is served", || {
        client.call("ip.allocate", json!({"network": "lan", "owner": "a"})).get("result").is_some()
    });
    // A second load, if there is one, reads what is there now, and takes long to hand it out.
    server.store.image_takes_ms.store(1_000, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(500));
    client
}

/// Two requests find the dead actor's mailbox closed, as when two clients ask again: it must be restarted only once.
#[test]
fn a_dead_actor_that_two_find_is_started_once_and_no_address_is_given_twice() {
    let (store, files) = stores::store(4);
    let server = TestServer::over_files(store, files, |options| options.hooks = one_bomb());
    let before = server.store.loads_begun.load(Ordering::SeqCst);
    let mut client = found_dead_by_two(&server);
    let b = client.allocate("b")["address"].clone();
    std::thread::sleep(Duration::from_millis(1_500));
    let c = client.allocate("c")["address"].clone();
    assert_ne!(b, c, "two holders of one address");
    assert_eq!(server.store.loads_begun.load(Ordering::SeqCst), before + 1);
}

#[test]
fn readyz_counts_a_network_that_is_read_again_because_its_actor_died() {
    let server = TestServer::hooked(one_bomb());
    let mut client = server.with_lan();
    let ready = || http(server.running.http, "GET /readyz", b"").1;
    server.store.hold_loads();
    for owner in ["bomb", "who finds it dead"] {
        assert_eq!(client.kind("ip.allocate", json!({"network": "lan", "owner": owner})), "not_ready");
    }
    wait_for("that it is counted", || ready().starts_with("ready, except for 1 network, "));
    server.store.let_loads_go();
    wait_for("that it is served", || ready() == "ready\n");
}

/// Does the register open again after that?
#[test]
fn a_register_whose_dead_actor_was_found_twice_opens_again() {
    let open = stores::reopened(4);
    let server = TestServer::over(open(), |options| options.hooks = one_bomb());
    let mut client = found_dead_by_two(&server);
    client.allocate("b");
    std::thread::sleep(Duration::from_millis(1_500));
    client.allocate("c");
    drop(client);
    server.stop();
    let again = TestServer::over(open(), |_| {});
    let held = again.client().ok("ip.list", json!({"network": "lan"}));
    assert_eq!(held["reservations"].as_array().unwrap().len(), 3, "{held}");
}

/// An actor dies without any artificial delay: a few clients ask again, and one goes on granting.
#[test]
fn a_dead_actor_under_load_gives_no_address_twice() {
    for round in 0..20 {
        let (store, files) = stores::store(1);
        let server = TestServer::over_files(store, files, |options| options.hooks = one_bomb());
        let mut client = server.client();
        client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]}));
        let fill: String =
            (0..500).map(|at| line(at, "ip.allocate", &json!({"network": "lan", "owner": format!("f{at}")}))).collect();
        client.raw(fill);
        (0..500).for_each(|_| drop(client.answer()));
        client.call("ip.allocate", json!({"network": "lan", "owner": "bomb"}));
        let mut others: Vec<_> = (0..8).map(|_| server.client()).collect();
        for other in &mut others {
            other.send("ip.get", json!({"network": "lan", "address": "10.0.0.9"}));
        }
        let mut seen = std::collections::HashMap::new();
        let begun = std::time::Instant::now();
        let mut at = 0;
        // Until the network was served for a while, however long that takes.
        while begun.elapsed() < Duration::from_millis(400) || seen.len() < 50 {
            assert!(begun.elapsed() < Duration::from_secs(60), "round {round}: only {seen:?}");
            at += 1;
            let owner = format!("o{at}");
            let answer = client.call("ip.allocate", json!({"network": "lan", "owner": owner}));
            if let Some(granted) = answer.get("result") {
                let address = granted["address"].as_str().unwrap().to_owned();
                if let Some(before) = seen.insert(address.clone(), owner.clone()) {
                    panic!("round {round}: {address} was granted to {before} and to {owner}");
                }
            }
        }
    }
}

/// Two networks on two threads. The second decision of an `ip.acquire`, and with it the thread of the second network, stands
/// still until the gate is opened.
struct Apart {
    // The first field, so that it opens before the server stops.
    gate: Gate,
    server: TestServer,
    decided: Arc<AtomicUsize>,
    /// Held while the second decides, and able to die then; on the thread of the directory and the committer.
    first: String,
    second: String,
    /// Connections on both threads.
    crowd: Vec<Client>,
}

impl Apart {
    fn new() -> Self {
        let gate = Gate::default();
        let (held, decided) = (Arc::clone(&gate.0), Arc::new(AtomicUsize::new(0)));
        let (counted, threads) = (Arc::clone(&decided), Arc::new(Mutex::new(std::collections::HashMap::new())));
        let noted = Arc::clone(&threads);
        let before_decide = move |command: &Command| match command {
            Command::Allocate(ask) => {
                let name = std::thread::current().name().unwrap_or_default().to_owned();
                noted.lock().unwrap().insert(ask.holder.owner.as_str().to_owned(), name);
            }
            Command::Acquire(_) if counted.fetch_add(1, Ordering::SeqCst) == 1 => {
                let (open, bell) = &*held;
                drop(bell.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
            }
            _ => {}
        };
        let hooks = Hooks { before_decide: Some(Arc::new(before_decide)), ..one_bomb() };
        let server = TestServer::with(|options| {
            options.hooks = hooks;
            options.config.server.threads = 2;
        });
        let mut client = server.client();
        let mut networks = Vec::new();
        for at in 0..16 {
            let subnets = json!([{"cidr": format!("10.1.{at}.0/29")}]);
            let made = client.ok("network.create", json!({"name": format!("n{at}"), "subnets": subnets}));
            client.ok("ip.allocate", json!({"network": format!("n{at}"), "owner": format!("probe{at}")}));
            let thread = threads.lock().unwrap()[&format!("probe{at}")].clone();
            networks.push((made["id"].as_str().unwrap().to_owned(), format!("n{at}"), thread));
        }
        networks.sort();
        let number = |thread: &str| thread.rsplit(':').next().unwrap().parse::<u64>().unwrap();
        let free = networks.iter().map(|(.., thread)| number(thread)).min().unwrap();
        let first = networks.iter().position(|(.., thread)| number(thread) == free).unwrap();
        let second = (first..networks.len()).find(|&at| number(&networks[at].2) != free).unwrap();
        let (first, second) = (networks[first].1.clone(), networks[second].1.clone());
        let crowd = (0..8).map(|_| server.client()).collect();
        Self { gate, server, decided, first, second, crowd }
    }

    /// Sends the request, and waits until the first network has decided and is held, and the second is deciding.
    fn acquire(&self, client: &mut Client, more: Value) {
        let mut params = json!({"owner": "joint", "ips": [{"network": self.first}, {"network": self.second}]});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client.send("ip.acquire", params);
        wait_for("that both decide", || self.decided.load(Ordering::SeqCst) >= 2);
    }

    /// The first network dies, a request finds it dead, and it is restarted. Returns a connection on the free thread.
    fn first_dies(&mut self) -> Client {
        // Only one on the free thread is answered. One that is answered late does no harm: another one is taken.
        let mut free = self
            .crowd
            .drain(..)
            .find_map(|mut one| {
                one.send("server.ping", json!({}));
                (!one.silent_for(Duration::from_secs(1))).then_some(one)
            })
            .expect("a connection on the free thread");
        assert!(free.answer().get("result").is_some());
        assert_eq!(free.kind("ip.allocate", json!({"network": self.first, "owner": "bomb"})), "not_ready");
        assert_eq!(free.kind("ip.allocate", json!({"network": self.first, "owner": "other"})), "not_ready");
        let usage = json!({"network": self.first});
        free.ok_after("network.usage", &usage, 1_200, |answer| answer["error"]["data"]["kind"] == "not_ready");
        free
    }
}

/// A network dies outside its wall while it is held. What it had decided under the hold must come to nothing, because the
/// actor that is restarted from the store does not know of it.
#[test]
fn what_a_dead_actor_decided_under_a_hold_is_not_committed_behind_the_back_of_the_one_that_is_started() {
    let mut apart = Apart::new();
    let mut client = apart.server.client();
    apart.acquire(&mut client, json!({}));
    let mut free = apart.first_dies();
    let other = free.ok("ip.allocate", json!({"network": apart.first, "owner": "other"}))["address"].clone();
    drop(std::mem::take(&mut apart.gate));
    let joint = client.answer();
    assert_eq!(joint["error"]["data"]["applied"], false, "{joint}");
    let held = free.ok("ip.list", json!({"network": apart.first}))["reservations"].clone();
    let holders = |of: &Value| held.as_array().unwrap().iter().filter(|one| one["address"] == *of).count();
    assert_eq!(holders(&other), 1, "{held}");
    assert!(held.as_array().unwrap().iter().all(|one| one["owner"] != "joint"), "{held}");
}

/// The request over both networks is about to enter the queue of the first one, which is full, when that one dies.
#[test]
fn who_waits_for_two_networks_is_served_although_one_died_before_it_was_in_its_queue() {
    let mut apart = Apart::new();
    let mut client = apart.server.client();
    for at in 0..5 {
        client.ok("ip.allocate", json!({"network": apart.first, "owner": format!("f{at}")}));
    }
    apart.acquire(&mut client, json!({"wait_seconds": 3_600}));
    let mut free = apart.first_dies();
    drop(std::mem::take(&mut apart.gate));
    apart.server.until_waits(&apart.second, 1);
    assert!(client.silent_for(Duration::from_millis(500)), "there is no room for it");
    free.ok("ip.release", json!({"network": apart.first, "owner": "f0"}));
    assert_eq!(client.answer()["result"]["reservations"].as_array().map(Vec::len), Some(2));
}
