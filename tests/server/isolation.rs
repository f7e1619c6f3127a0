//! One network, client or bug does not disturb the others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use allod::actors::service::Hooks;
use allod::core::command::Command;
use allod::limits::NETWORK_QUEUE_REQUESTS_MAX;
use serde_json::{Value, json};

use crate::stores;
use crate::support::{Client, TestServer, line};

/// Panics at each allocation by an owner `bomb`.
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
    (Hooks { before_decide: Some(Arc::new(before_decide)), ..Hooks::default() }, count)
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
    // Methods over all networks say so too, and do not hang.
    assert_eq!(client.kind("ip.list", json!({})), "network_stopped");
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
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(before_decide)), ..Hooks::default() });
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let both = json!({"owner": "a", "ips": [{"network": "lan"}, {"network": "dmz"}]});
    assert_eq!(client.kind("ip.acquire", both.clone()), "internal");
    assert_eq!(client.ok("ip.list", json!({}))["reservations"], json!([]));
    client.ok("ip.acquire", both);
    client.allocate("b");
}

/// What those say who are answered at all, which somebody must be: on a busy machine that takes its time.
fn answers_of_some(clients: &mut [Client]) -> Vec<Value> {
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

/// Opens when dropped, so that a test which fails before does not wait for the stuck thread for ever.
#[derive(Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Drop for Gate {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

/// Two reactor threads, one of them stuck in a decision of `lan`. The clients of the other one fill `lan`'s queue to its
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
        options.hooks = Hooks { before_decide: Some(Arc::new(before_decide)), ..Hooks::default() };
        options.config.server.threads = 2;
    });
    let gate = gate; // Dropped before the server, which waits for its threads.
    let mut client = server.with_lan();
    // Which thread a network lives on is as random as its id: of sixteen some live on the free one.
    for at in 0..16 {
        let subnets = json!([{"cidr": format!("10.1.{at}.0/24")}]);
        client.ok("network.create", json!({"name": format!("n{at}"), "subnets": subnets}));
    }
    client.send("ip.allocate", json!({"network": "lan", "owner": "slow"}));
    while entered.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Half of the clients live on the stuck thread; the other half brings more than the queue holds.
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
    // Metrics are served beside the reactors, so they tell it even now.
    let waiting = server.queued("lan");
    assert!((1..=NETWORK_QUEUE_REQUESTS_MAX).contains(&waiting), "{waiting} in the queue");
    // Over Redis each answer is proved by the committer, which is on one of the two threads as well.
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
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(before_decide)), ..Hooks::default() });
    let mut client = server.with_lan();
    // Read together: the first takes 60 ms, so the second is over before it is begun, and the third is not.
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
    // Begun in time, waiting for the store only: it is not refused.
    client.send("ip.allocate", json!({"network": "lan", "owner": "d", "deadline_ms": 1_000}));
    std::thread::sleep(Duration::from_millis(1_200));
    server.store.let_go();
    assert!(client.answer().get("result").is_some());
}

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
    let hooks = Hooks { before_work: Some(Arc::new(before_work)), ..Hooks::default() };
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
    let begun = std::time::Instant::now();
    let granted = loop {
        let answer = client.call("ip.allocate", json!({"network": "lan", "owner": "a"}));
        if answer.get("result").is_some() {
            break answer["result"].clone();
        }
        assert_eq!(answer["error"]["data"]["kind"], "not_ready", "{answer}");
        assert!(begun.elapsed() < Duration::from_secs(60), "it never came back");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!((&granted["address"], &granted["created"]), (&json!("10.0.0.2"), &json!(false)));
    assert_eq!(client.allocate("bomb")["address"], "10.0.0.3");
}

/// A bomb outside the wall, once.
fn one_bomb() -> Hooks {
    let fuse = Arc::new(AtomicUsize::new(0));
    let before_work = move |command: &Command| {
        let Command::Allocate(ask) = command else { return };
        if ask.holder.owner.as_str() == "bomb" && fuse.fetch_add(1, Ordering::SeqCst) == 0 {
            panic!("as asked");
        }
    };
    Hooks { before_work: Some(Arc::new(before_work)), ..Hooks::default() }
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
    while client.call("ip.allocate", json!({"network": "lan", "owner": "a"})).get("result").is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The second load, if there is one, reads what is there now, and takes its time to hand it out.
    server.store.image_takes_ms.store(1_000, Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(500));
    client
}

/// Two requests find the dead actor's mailbox closed, as when two clients ask again: it must be started once.
#[test]
fn a_dead_actor_that_two_find_is_started_once_and_no_address_is_given_twice() {
    let (store, files) = stores::store(4);
    let server = TestServer::over_files(store, files, |options| options.hooks = one_bomb());
    let mut client = found_dead_by_two(&server);
    let b = client.allocate("b")["address"].clone();
    std::thread::sleep(Duration::from_millis(1_500));
    let c = loop {
        let answer = client.call("ip.allocate", json!({"network": "lan", "owner": "c"}));
        if let Some(granted) = answer.get("result") {
            break granted["address"].clone();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_ne!(b, c, "two holders of one address");
}

/// What is left behind by that: does the register open again?
#[test]
fn a_register_whose_dead_actor_was_found_twice_opens_again() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let options = allod::store::embedded::Options { segment_bytes: 8 << 20, ..Default::default() };
        Arc::new(allod::store::embedded::EmbeddedStore::open(directory.path(), 4, options).unwrap())
    };
    let server = TestServer::over(open(), |options| options.hooks = one_bomb());
    let mut client = found_dead_by_two(&server);
    client.allocate("b");
    std::thread::sleep(Duration::from_millis(1_500));
    client.call("ip.allocate", json!({"network": "lan", "owner": "c"}));
    drop(client);
    server.stop();
    let again = TestServer::over(open(), |_| {});
    let held = again.client().ok("ip.list", json!({"network": "lan"}));
    assert_eq!(held["reservations"].as_array().unwrap().len(), 3, "{held}");
}

/// The same without any delay: a few clients that ask again, and one that goes on granting.
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
        while begun.elapsed() < Duration::from_millis(400) {
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

/// A network dies outside its wall while it is held: what it had decided under the hold must come to nothing, because the
/// actor that is started from the store knows nothing of it.
#[test]
fn what_a_dead_actor_decided_under_a_hold_is_not_committed_behind_the_back_of_the_one_that_is_started() {
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
    let gate = gate;
    let mut client = server.client();
    let mut networks = Vec::new();
    for at in 0..16 {
        let subnets = json!([{"cidr": format!("10.1.{at}.0/24")}]);
        let made = client.ok("network.create", json!({"name": format!("n{at}"), "subnets": subnets}));
        client.ok("ip.allocate", json!({"network": format!("n{at}"), "owner": format!("probe{at}")}));
        let thread = threads.lock().unwrap()[&format!("probe{at}")].clone();
        networks.push((made["id"].as_str().unwrap().to_owned(), format!("n{at}"), thread));
    }
    networks.sort();
    let number = |thread: &str| thread.rsplit(':').next().unwrap().parse::<u64>().unwrap();
    let first = networks.iter().map(|(.., thread)| number(thread)).min().unwrap();
    // The directory and the committer are on the first thread; the one that is stuck is the other.
    let a = networks.iter().position(|(.., thread)| number(thread) == first).unwrap();
    let b = (a..networks.len()).find(|&at| number(&networks[at].2) != first).unwrap();
    let (a, b) = (networks[a].1.clone(), networks[b].1.clone());
    let mut crowd: Vec<_> = (0..8).map(|_| server.client()).collect();
    client.send("ip.acquire", json!({"owner": "joint", "ips": [{"network": a}, {"network": b}]}));
    while decided.load(Ordering::SeqCst) < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    // `a` has decided and is held, `b` decides.
    let bomb = json!({"network": a, "owner": "bomb"});
    let mut free = crowd
        .drain(..)
        .find_map(|mut one| {
            one.send("ip.allocate", bomb.clone());
            (!one.silent_for(Duration::from_secs(1))).then_some(one)
        })
        .expect("a connection on the free thread");
    assert_eq!(free.answer()["error"]["data"]["kind"], "not_ready");
    assert_eq!(free.kind("ip.allocate", json!({"network": a, "owner": "other"})), "not_ready");
    std::thread::sleep(Duration::from_millis(1_000));
    let other = free.ok("ip.allocate", json!({"network": a, "owner": "other"}))["address"].clone();
    drop(gate);
    let joint = client.answer();
    let given = &joint["result"]["ips"][0]["address"];
    let given = if given.is_null() { &joint["result"]["reservations"][0]["address"] } else { given };
    assert_ne!(*given, other, "two holders of one address");
    assert!(joint.get("error").is_some() || !given.is_null(), "{joint}");
}
