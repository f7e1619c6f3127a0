//! The space of a realm is guarded, whatever happens to the acts that change its owner: no other network gets what a
//! network durably has, and no act waits for another one for ever.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use allod::actors::service::Hooks;
use allod::core::command::{Command, Configure};
use allod::limits::NETWORK_QUEUE_REQUESTS_MAX;
use allod::store::redis::RedisStore;
use serde_json::{Value, json};

use crate::faulty::{Fault, FaultyStore};
use crate::isolation::{Gate, answers_of_some};
use crate::reloads::two;
use crate::stores;
use crate::support::{Client, TestServer, is_between_tenures, line, patient, wait_for};

/// Far less than the time that a commit has.
const A_MOMENT: Duration = Duration::from_millis(100);

/// Ends the readers, even if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Is this the decision that really adds a subnet? Each one is tried before.
fn adds(command: &Command) -> bool {
    matches!(command, Command::Configure { change, .. } if matches!(**change, Configure::SubnetAdd { .. }))
}

fn rival(cidr: &str) -> Value {
    json!({"name": "rival", "subnets": [{"cidr": cidr}]})
}

/// Checks that nobody else gets what a network durably has: neither now, nor once the register is opened again.
#[track_caller]
fn is_guarded(client: &mut Client, cidr: &str) {
    let refused = (0..200).find_map(|_| {
        let answer = client.call("network.create", rival(cidr));
        let passes = is_between_tenures(&answer);
        if passes {
            std::thread::sleep(Duration::from_millis(50));
        }
        (!passes).then_some(answer)
    });
    let refused = refused.expect("it is between tenures for ever");
    assert_eq!(refused["error"]["data"]["kind"], "overlap", "{refused}");
}

/// The move waits for the space that `subnet.add` takes. That act waits for a network, which is held by an `ip.acquire` that
/// also wants the network of the move.
#[test]
fn a_move_that_waits_for_another_act_keeps_no_network_from_who_holds_what_that_act_needs() {
    let server = TestServer::new();
    let (lower, higher) = two(&server);
    let elsewhere = json!({"name": "elsewhere", "realm": "other", "subnets": [{"cidr": "10.9.0.0/24"}]});
    server.client().ok("network.create", elsewhere);
    server.store.hold();
    let mut clients = [server.client(), server.client(), server.client()];
    for (client, (method, params)) in clients.iter_mut().zip([
        ("subnet.add", json!({"network": lower, "cidr": "10.9.0.0/24"})),
        ("subnet.move", json!({"network": "elsewhere", "subnet": "10.9.0.0/24", "to": higher})),
        ("ip.acquire", json!({"owner": "both", "ips": [{"network": lower}, {"network": higher}]})),
    ]) {
        client.send(method, params);
        assert!(client.waits_still(A_MOMENT));
    }
    server.store.let_go();
    let [added, moved, acquired] = clients.each_mut().map(Client::answer);
    assert_eq!(added["result"]["cidr"], "10.9.0.0/24", "{added}");
    assert_eq!(moved["error"]["data"]["kind"], "overlap", "{moved}");
    assert_eq!(acquired["result"]["reservations"].as_array().map(Vec::len), Some(2), "{acquired}");
}

/// A request for space that nobody else wants does not wait, whatever is under way beside it.
#[test]
fn who_is_refused_for_what_is_durable_waits_for_no_act_that_has_nothing_to_do_with_it() {
    if stores::not_over_redis(stores::PROOF_WAITS) {
        return;
    }
    let server = TestServer::new();
    let mut client = server.with_lan();
    server.store.hold();
    let mut other = server.client();
    other.send("network.create", json!({"name": "other", "subnets": [{"cidr": "10.5.0.0/24"}]}));
    assert!(other.waits_still(A_MOMENT));
    assert_eq!(client.kind("network.create", rival("10.0.0.0/24")), "overlap");
    assert!(other.waits_still(Duration::from_millis(1)), "it waited for an act on other space");
    server.store.let_go();
    assert_eq!(other.answer()["result"]["name"], "other");
}

/// After the commit the network cannot say what it has now, because as many requests wait for it as may. The change is
/// durable and acknowledged.
#[test]
fn space_that_was_added_to_a_network_which_is_swamped_is_guarded() {
    let (added, slow) = (Gate::default(), Gate::default());
    let (add, get) = (Arc::clone(&added.0), Arc::clone(&slow.0));
    let (adds_seen, stuck) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (seen, counted) = (Arc::clone(&adds_seen), Arc::clone(&stuck));
    let wait = |gate: &(std::sync::Mutex<bool>, std::sync::Condvar)| {
        drop(gate.1.wait_while(gate.0.lock().unwrap(), |open| !*open).unwrap());
    };
    let before_decide = move |command: &Command| match command {
        Command::Get(_) if seen.load(Ordering::SeqCst) == 2 && counted.fetch_add(1, Ordering::SeqCst) == 1 => {
            wait(&get);
        }
        _ if adds(command) && seen.fetch_add(1, Ordering::SeqCst) == 1 => {
            counted.fetch_add(1, Ordering::SeqCst);
            wait(&add);
        }
        _ => {}
    };
    let open = stores::reopened(4);
    let server = TestServer::over(open(), |options| {
        options.hooks = Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() };
        options.config.server.threads = 2;
    });
    let (added, slow) = (added, slow); // Dropped before the server, which waits for its threads.
    let until_stuck = |times: usize| {
        wait_for("that it stands still", || stuck.load(Ordering::SeqCst) >= times);
    };
    // Networks and connections are dealt to the threads in turn: the first of each is on the first thread, with the
    // committer.
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "far", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let mut crowd: Vec<_> = (0..24).map(|_| server.client()).collect();
    client.send("subnet.add", json!({"network": "far", "cidr": "10.9.0.0/24"}));
    until_stuck(1);
    let most = line(7, "ip.get", &json!({"network": "far", "address": "10.1.0.9"})).repeat(1_024);
    crowd.iter_mut().for_each(|one| one.raw(&most));
    answers_of_some(&mut crowd);
    server.store.hold();
    drop(added);
    until_stuck(2);
    // The decided request has left the queue, and another one takes its place.
    crowd.iter_mut().for_each(|one| one.raw(line(7, "ip.get", &json!({"network": "far", "address": "10.1.0.9"}))));
    wait_for("that its queue is full", || server.queued("far") >= NETWORK_QUEUE_REQUESTS_MAX);
    server.store.let_go();
    let _ = client.silent_for(Duration::from_secs(1));
    let mut other = server.client();
    other.send("network.create", rival("10.9.0.0/24"));
    let _ = other.silent_for(A_MOMENT);
    drop((slow, crowd));
    let answer = client.answer();
    assert_eq!(answer["result"]["cidr"], "10.9.0.0/24", "{answer}");
    let refused = other.answer();
    assert_eq!(refused["error"]["data"]["kind"], "overlap", "{refused}");
    client.ok("ip.claim", json!({"network": "far", "owner": "o", "address": "10.9.0.7"}));
    let found = client.ok("ip.find", json!({"address": "10.9.0.7"}));
    assert_eq!(found["found"][0]["reservation"]["owner"], "o", "{found}");
    drop((client, other));
    server.stop();
    is_guarded(&mut TestServer::over(open(), |_| {}).client(), "10.9.0.0/24");
}

/// The network is stopped after its commit, before it is asked what it has now.
#[test]
fn space_that_was_added_to_a_network_which_is_stopped_behind_the_commit_is_guarded() {
    let (count, armed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let before_decide = move |command: &Command| match command {
        Command::Allocate(ask) => assert_ne!(ask.holder.owner.as_str(), "bomb", "as asked"),
        Command::Show => assert!(!armed.swap(false, Ordering::SeqCst), "as asked"),
        _ if adds(command) && count.fetch_add(1, Ordering::SeqCst) == 1 => armed.store(true, Ordering::SeqCst),
        _ => {}
    };
    let open = stores::reopened(4);
    let hooks = Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() };
    let server = TestServer::over(open(), |options| options.hooks = hooks);
    let mut client = server.with_lan();
    for _ in 0..2 {
        assert_eq!(client.kind("ip.allocate", json!({"network": "lan", "owner": "bomb"})), "internal");
    }
    client.ok("subnet.add", json!({"network": "lan", "cidr": "10.9.0.0/24"}));
    assert_eq!(client.kind("ip.allocate", json!({"network": "lan", "owner": "a"})), "network_stopped");
    is_guarded(&mut client, "10.9.0.0/24");
    drop(client);
    server.stop();
    is_guarded(&mut TestServer::over(open(), |_| {}).client(), "10.9.0.0/24");
}

/// A server over Redis: from the moment in which a subnet is really added, nobody can prove who owns the register.
fn unproved_behind_an_added_subnet() -> TestServer {
    let (count, faulty) = (AtomicUsize::new(0), Arc::new(OnceLock::<Arc<FaultyStore>>::new()));
    let store = Arc::clone(&faulty);
    let before_decide = move |command: &Command| {
        if adds(command)
            && count.fetch_add(1, Ordering::SeqCst) == 1
            && let Some(store) = store.get()
        {
            store.unproved.store(true, Ordering::SeqCst);
        }
    };
    let hooks = Hooks { before_decide: Some(Arc::new(before_decide)), ..Hooks::default() };
    let redis = RedisStore::open(stores::redis_options(4)).unwrap();
    let server = TestServer::over(Arc::new(redis), |options| options.hooks = hooks);
    assert!(faulty.set(Arc::clone(&server.store)).is_ok());
    server
}

/// Over Redis an answer without a change needs a proof. A proof that cannot be had puts nothing in doubt, so no network is
/// loaded again.
#[test]
fn space_that_was_added_is_guarded_though_nobody_could_prove_behind_the_commit_whose_the_register_is() {
    let server = unproved_behind_an_added_subnet();
    let mut client = server.with_lan();
    client.call("subnet.add", json!({"network": "lan", "cidr": "10.9.0.0/24"}));
    assert!(server.store.unproved.swap(false, Ordering::SeqCst), "it was not added for good");
    is_guarded(&mut client, "10.9.0.0/24");
    let network = client.ok_soon("network.get", json!({"network": "lan"}));
    assert_eq!(network["subnets"].as_array().map(Vec::len), Some(2), "{network}");
}

/// As before, while so many clients read the network that something is always under way there. They are refused, and go on.
#[test]
fn an_act_on_a_network_that_is_read_all_the_time_ends_though_nobody_could_prove_behind_its_commit_whose_the_register_is()
 {
    let server = unproved_behind_an_added_subnet();
    let mut client = server.with_lan();
    // Whenever a proof ends, others wait for the next one: somebody asks all the time, whatever is answered. Requests are so
    // rare that a connection is never full while there is no proof.
    server.store.proof_takes_ms.store(50, Ordering::SeqCst);
    let over = AtomicBool::new(false);
    let mut asks = TcpStream::connect(server.running.tcp).unwrap();
    let mut answers = asks.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| std::io::copy(&mut answers, &mut std::io::sink()));
        scope.spawn(|| {
            let ask = line(7, "ip.get", &json!({"network": "lan", "address": "10.0.0.9"}));
            while !over.load(Ordering::SeqCst) {
                asks.write_all(ask.as_bytes()).unwrap();
                std::thread::sleep(Duration::from_millis(4));
            }
            let _ = asks.shutdown(Shutdown::Both);
        });
        let ends = Ends(&over);
        std::thread::sleep(A_MOMENT);
        client.call("subnet.add", json!({"network": "lan", "cidr": "10.9.0.0/24"}));
        assert!(server.store.unproved.swap(false, Ordering::SeqCst), "it was not added for good");
        let mut other = server.client();
        other.send("subnet.add", json!({"network": "lan", "cidr": "10.8.0.0/24"}));
        assert!(!other.silent_for(Duration::from_secs(20)), "the lock never ends");
        assert_eq!(other.answer()["result"]["cidr"], "10.8.0.0/24");
        is_guarded(&mut client, "10.9.0.0/24");
        drop(ends);
    });
}

/// Nobody knows whether the subnet moved. It did, and nobody asks the network that has it now.
#[test]
fn a_subnet_that_moved_in_doubt_is_guarded_before_anybody_asks_the_network_that_has_it() {
    let server = TestServer::giving_up();
    let mut client = server.client();
    for (name, cidr) in [("n", "10.0.0.0/24"), ("m", "10.1.0.0/24")] {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": cidr}]}));
    }
    server.store.always(Fault::UnknownApplied);
    let moved = client.call("subnet.move", json!({"network": "n", "subnet": "10.0.0.0/24", "to": "m"}));
    server.store.always(Fault::None);
    assert_eq!(moved["error"]["data"]["applied"], "unknown", "{moved}");
    // The network is loaded again, and says what it has.
    let has_it = |answer: &Value| !answer["result"]["subnets"][0].is_null();
    client.ok_after("network.get", &json!({"network": "n"}), 200, has_it);
    is_guarded(&mut client, "10.0.0.0/24");
    let subnets = client.ok("network.get", json!({"network": "m"}))["subnets"].clone();
    assert_eq!(subnets.as_array().map(Vec::len), Some(2), "{subnets}");
}

/// Nobody knows whether the network was deleted. It was, and holds none of the MACs that it used.
#[test]
fn a_network_that_was_deleted_in_doubt_keeps_no_mac_from_others() {
    let server = TestServer::giving_up();
    let mut client = server.client();
    for (name, cidr) in [("n", "10.0.0.0/24"), ("m", "10.1.0.0/24")] {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": cidr}]}));
    }
    let ask = |network: &str| json!({"network": network, "owner": "a", "mac": "02:00:00:00:00:01"});
    client.ok("ip.allocate", ask("n"));
    assert_eq!(client.kind("ip.allocate", ask("m")), "already_in_use");
    server.store.always(Fault::UnknownApplied);
    let deleted = client.call("network.delete", json!({"network": "n", "purge": true}));
    server.store.always(Fault::None);
    assert_eq!(deleted["error"]["data"]["applied"], "unknown", "{deleted}");
    let refused = |answer: &Value| !answer["error"].is_null();
    client.ok_after("ip.allocate", &ask("m"), 200, refused);
}
