//! No request keeps the thread from other networks for long; and a request that holds several networks does not keep one of
//! them from its other clients because the next one is busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use allod::actors::service::Hooks;
use allod::core::command::Command;
use serde_json::{Value, json};

use crate::reloads::{Patience, begin_to_load, two};
use crate::stores;
use crate::support::{Client, TestServer, line, patient};

/// How many clients wait or ask: several turns of each network and connection of the thread.
const MANY: usize = 300;
/// Fewer than one turn takes if each is quick.
const FEW: usize = 40;
/// How long each decision takes once the test makes them slow.
const EACH: Duration = Duration::from_millis(5);

/// Counts decisions of one kind, each of which can be made slow. The first one then lasts until another network was asked,
/// and the last one until the test has seen what that answered: a test that is slow itself does not find all decided.
struct Slow {
    server: TestServer,
    decided: Arc<AtomicUsize>,
    is_slow: Arc<AtomicBool>,
    has_asked: Arc<AtomicBool>,
    has_seen: Arc<AtomicBool>,
}

/// For so long a decision lasts at most: a server that lets nobody else on before the last one never answers the others.
fn until(seen: &AtomicBool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !seen.load(Ordering::SeqCst) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Slow {
    /// For so many decisions of those commands.
    fn at(count: usize, which: impl Fn(&Command) -> bool + Send + Sync + 'static) -> Self {
        let (decided, is_slow) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (has_asked, has_seen) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (counts, takes_long) = (Arc::clone(&decided), Arc::clone(&is_slow));
        let (asked, seen) = (Arc::clone(&has_asked), Arc::clone(&has_seen));
        let before_decide = move |command: &Command| {
            if takes_long.load(Ordering::SeqCst) && which(command) {
                let number = 1 + counts.fetch_add(1, Ordering::SeqCst);
                if number == 1 {
                    until(&asked);
                }
                if number == count {
                    until(&seen);
                }
                std::thread::sleep(EACH);
            }
        };
        let mut hooks = Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() };
        // No request is given up.
        Patience::of(&mut hooks);
        Self { server: TestServer::hooked(hooks), decided, is_slow, has_asked, has_seen }
    }

    /// Once the first decision is under way, asks another network on the same thread. Returns how many were made when that
    /// answered.
    fn decided_when_another_answers(&self, bystander: &mut Client, network: &str) -> usize {
        let end = Instant::now() + Duration::from_secs(60);
        while self.decided.load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < end, "nothing was decided");
            std::thread::sleep(Duration::from_millis(1));
        }
        // A read, since nothing of it has to become durable.
        bystander.send("network.usage", json!({"network": network}));
        self.has_asked.store(true, Ordering::SeqCst);
        let answer = bystander.answer();
        assert!(answer["result"].is_object(), "{answer}");
        self.decided.load(Ordering::SeqCst)
    }

    /// The last decision may come to its end.
    fn goes_on(&self) {
        self.has_seen.store(true, Ordering::SeqCst);
    }

    /// A full network with so many waiting requests, and a network that has nothing to do with it.
    fn waiting(&self, count: usize, requests: impl Fn(usize) -> (&'static str, Value)) -> (Client, Client) {
        let (mut client, mut waiters) = (self.server.client(), self.server.client());
        client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/30"}]}));
        client.ok("network.create", json!({"name": "beside", "subnets": [{"cidr": "10.9.0.0/30"}]}));
        for owner in ["a", "b"] {
            client.ok("ip.allocate", json!({"network": "lan", "owner": owner}));
        }
        let lines = (0..count).map(|at| {
            let (method, params) = requests(at);
            line(at as u64, method, &params)
        });
        waiters.raw(lines.collect::<String>());
        self.server.until_waits("lan", count);
        (client, waiters)
    }
}

#[test]
fn while_many_who_wait_have_their_turn_the_other_networks_of_the_thread_answer() {
    if stores::not_over_redis(stores::PROOF_WAITS) {
        return;
    }
    for count in [MANY, FEW] {
        let slow = Slow::at(count, |command| matches!(command, Command::Acquire(_)));
        // Each of them must be told that there is nothing to wait for any more.
        let (mut client, mut waiters) = slow.waiting(count, |at| {
            let ips = json!([{"network": "lan"}]);
            ("ip.acquire", json!({"owner": format!("o{at}"), "ips": ips, "wait_seconds": 3_600}))
        });
        slow.is_slow.store(true, Ordering::SeqCst);
        let mut bystander = slow.server.client();
        client.send("network.delete", json!({"network": "lan", "force": true}));
        let decided = slow.decided_when_another_answers(&mut bystander, "beside");
        assert!(decided < count, "all {count} had their turn before anybody else");
        slow.goes_on();
        for _ in 0..count {
            assert_eq!(waiters.answer()["error"]["data"]["kind"], "in_use");
        }
    }
}

#[test]
fn while_many_waits_end_together_the_other_networks_of_the_thread_answer() {
    if stores::not_over_redis(stores::PROOF_WAITS) {
        return;
    }
    for count in [MANY, FEW] {
        let slow = Slow::at(count, |command| matches!(command, Command::Allocate(_)));
        let ask = |at| json!({"network": "lan", "owner": format!("o{at}"), "wait_seconds": 60});
        let (_client, mut waiters) = slow.waiting(count, |at| ("ip.allocate", ask(at)));
        slow.is_slow.store(true, Ordering::SeqCst);
        let mut bystander = slow.server.client();
        slow.server.clock.advance_ms(61_000);
        let decided = slow.decided_when_another_answers(&mut bystander, "beside");
        assert!(decided < count, "all {count} ended before anybody else had a turn");
        slow.goes_on();
        for _ in 0..count {
            assert_eq!(waiters.answer()["error"]["data"]["kind"], "not_enough_capacity");
        }
    }
}

/// One message brings many requests that each take long, like requests for blocks where thousands of pools are nearly full.
#[test]
fn while_one_client_asks_at_once_for_what_takes_long_the_other_networks_of_the_thread_answer_and_its_order_stays() {
    if stores::not_over_redis(stores::PROOF_WAITS) {
        return;
    }
    let slow = Slow::at(FEW, |command| matches!(command, Command::Allocate(_)));
    let (mut client, mut bystander) = (slow.server.client(), slow.server.client());
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/20"}]}));
    client.ok("network.create", json!({"name": "beside", "subnets": [{"cidr": "10.9.0.0/30"}]}));
    slow.is_slow.store(true, Ordering::SeqCst);
    let ask = |at| json!({"network": "lan", "owner": format!("o{at}"), "prefix_length": 29});
    let lines = (0..FEW).map(|at| line(at as u64, "ip.allocate", &ask(at)));
    client.raw(lines.collect::<String>());
    let decided = slow.decided_when_another_answers(&mut bystander, "beside");
    assert!(decided < FEW, "all was decided before anybody else had a turn");
    slow.goes_on();
    let mut blocks = Vec::new();
    for at in 0..FEW {
        let answer = client.answer();
        assert_eq!(answer["id"], at, "{answer}");
        let block: std::net::Ipv4Addr = answer["result"]["address"].as_str().expect("a block").parse().unwrap();
        blocks.push(block);
    }
    assert!(blocks.is_sorted(), "the lowest goes to who asked first: {blocks:?}");
}

/// One of two networks is busy when somebody asks for both.
#[test]
fn a_network_that_is_held_with_one_that_has_much_to_do_answers_before_that_is_done() {
    const CLIENTS: usize = 10;
    if stores::not_over_redis(stores::PROOF_WAITS) {
        return;
    }
    let slow = Slow::at(MANY, |command| matches!(command, Command::Get(_)));
    let (held, busy) = two(&slow.server);
    slow.is_slow.store(true, Ordering::SeqCst);
    let (mut both, mut other) = (slow.server.client(), slow.server.client());
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| slow.server.client()).collect();
    begin_to_load(&slow.server, &busy);
    for client in &mut clients {
        let ask = |id| line(id as u64, "ip.get", &json!({"network": busy, "address": "10.9.0.1"}));
        client.raw((0..MANY / CLIENTS).map(ask).collect::<String>());
    }
    let end = Instant::now() + Duration::from_secs(20);
    while slow.server.queued(&busy) < MANY {
        assert!(
            Instant::now() < end,
            "{} are in its queue, {} decided",
            slow.server.queued(&busy),
            slow.decided.load(Ordering::SeqCst)
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    both.send("ip.acquire", json!({"owner": "o", "ips": [{"network": held}, {"network": busy}]}));
    assert!(both.waits_still(Duration::from_millis(100)));
    slow.server.store.let_loads_go();
    let decided = slow.decided_when_another_answers(&mut other, &held);
    assert!(decided < MANY, "it waited until all was done that the other network had to do");
    let granted = both.answer();
    assert_eq!(granted["result"]["reservations"].as_array().map(Vec::len), Some(2), "{granted}");
    let decided = slow.decided.load(Ordering::SeqCst);
    assert!(decided < MANY, "who holds a network waited behind all requests of the next one");
    slow.goes_on();
    for client in &mut clients {
        (0..MANY / CLIENTS).for_each(|_| drop(client.answer()));
    }
}

/// A holder of another network goes before requests, but requests go on all the same.
#[test]
fn requests_of_a_network_go_on_however_many_hold_it_with_another_one() {
    const HOLDERS: usize = 6;
    let server = TestServer::new();
    let mut client = server.client();
    let mut networks: Vec<(String, String)> = (0..=HOLDERS)
        .map(|at| {
            let params = json!({"name": format!("n{at}"), "subnets": [{"cidr": format!("10.{at}.0.0/24")}]});
            let made = client.ok("network.create", params);
            (made["id"].as_str().unwrap().to_owned(), made["name"].as_str().unwrap().to_owned())
        })
        .collect();
    networks.sort();
    // The network that is held last, together with each of the others.
    let (_, last) = networks.pop().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (_, network) in &networks {
            let (mut holder, last, done) = (server.client(), &last, &done);
            scope.spawn(move || {
                let ips = json!([{"network": network}, {"network": last}]);
                while !done.load(Ordering::SeqCst) {
                    holder.ok("ip.acquire", json!({"owner": network, "ips": ips, "dry_run": true}));
                }
            });
        }
        // Each answer comes while the holders go on: a client without an answer for long fails.
        for at in 0..100 {
            client.ok("ip.allocate", json!({"network": last, "owner": format!("o{at}")}));
        }
        done.store(true, Ordering::SeqCst);
    });
}
