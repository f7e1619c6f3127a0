//! Waiting requests over several networks: they get everything or nothing, in their turn, hold nothing meanwhile, and never
//! wait for each other for ever.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::figures::{scrape, shows};
use crate::support::{Client, TestServer};

/// Networks of two addresses each; in the `full` ones both are held, by `a` and `b`.
fn networks(server: &TestServer, names: &[&str], full: &[&str]) -> Client {
    let mut client = server.client();
    for (at, name) in names.iter().enumerate() {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": format!("10.{at}.0.0/30")}]}));
    }
    for name in full {
        for owner in ["a", "b"] {
            client.ok("ip.allocate", json!({"network": name, "owner": owner}));
        }
    }
    client
}

fn acquire(owner: &str, networks: &[&str], seconds: u64) -> Value {
    let ips: Vec<Value> = networks.iter().map(|network| json!({"network": network})).collect();
    json!({"owner": owner, "ips": ips, "wait_seconds": seconds})
}

fn allocate(network: &str, owner: &str, seconds: u64) -> Value {
    json!({"network": network, "owner": owner, "wait_seconds": seconds})
}

fn release(client: &mut Client, network: &str, owner: &str) {
    let released = client.ok("ip.release", json!({"network": network, "owner": owner}));
    assert_eq!(released["released"].as_array().unwrap().len(), 1, "{network} {owner}");
}

fn addresses(answer: &Value) -> Vec<&str> {
    let reservations = answer["result"]["reservations"].as_array().unwrap_or_else(|| panic!("{answer}"));
    reservations.iter().map(|reservation| reservation["address"].as_str().unwrap()).collect()
}

fn held_by(client: &mut Client, owner: &str) -> u64 {
    client.ok("ip.list", json!({"owner": owner, "count_only": true}))["count"].as_u64().unwrap()
}

#[test]
fn a_request_that_waits_for_several_networks_counts_once_among_all_and_as_the_oldest_in_each() {
    let server = TestServer::new();
    let mut client = networks(&server, &["dmz", "lan"], &["dmz", "lan"]);
    let (mut both, mut one) = (server.client(), server.client());
    both.send("ip.acquire", acquire("w", &["dmz", "lan"], 600));
    server.until_waits("dmz", 1);
    server.until_waits("lan", 1);
    server.clock.advance_ms(5_000);
    one.send("ip.allocate", allocate("lan", "later", 600));
    server.until_waits("lan", 2);
    let of =
        |what: &str, network: &str| format!("allod_network_waiting_{what}{{network=\"{network}\",realm=\"default\"}}");
    let shown = [
        ("allod_waiting_requests", 2.0),
        (&of("requests", "dmz"), 1.0),
        (&of("oldest_seconds", "dmz"), 5.0),
        (&of("oldest_seconds", "lan"), 5.0),
    ];
    shows(&server, &shown);
    release(&mut client, "dmz", "a");
    release(&mut client, "lan", "a");
    assert_eq!(addresses(&both.answer()).len(), 2);
    shows(&server, &[("allod_waiting_requests", 1.0), (&of("oldest_seconds", "lan"), 0.0)]);
}

/// It must be told after what the networks have told others. They must not give it the turn again for that, and then wait
/// for it.
#[test]
fn a_request_over_several_that_cannot_be_any_more_is_told_so_and_holds_up_nobody() {
    let server = TestServer::new();
    let mut client = server.client();
    let named = json!({"network": "dmz", "address": "10.1.0.2"});
    let optional = json!({"network": "dmz", "address": "10.1.0.2", "optional": true});
    let any = json!({"network": "dmz"});
    let limits = |most: u64| json!({"network": "dmz", "set": {"limits": {"per_scope": most}}});
    for (case, item, method, params, kind) in [
        (
            "claimed",
            named,
            "ip.claim",
            json!({"network": "dmz", "owner": "o", "address": "10.1.0.2"}),
            "already_in_use",
        ),
        (
            "optional",
            optional,
            "ip.claim",
            json!({"network": "dmz", "owner": "o", "address": "10.1.0.2"}),
            "already_in_use",
        ),
        (
            "slot",
            json!({"network": "dmz", "address": "10.1.0.2"}),
            "ip.allocate",
            json!({"network": "dmz", "owner": "w"}),
            "already_exists",
        ),
        ("limit", any.clone(), "network.update", limits(1), "quota_exceeded"),
        ("deleted", any, "network.delete", json!({"network": "dmz", "force": true}), "in_use"),
    ] {
        client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/30"}]}));
        client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/29"}]}));
        for owner in ["a", "b"] {
            client.ok("ip.allocate", json!({"network": "lan", "owner": owner}));
        }
        client.ok("ip.claim", json!({"network": "dmz", "owner": "there", "address": "10.1.0.6"}));
        let (mut waiter, mut behind) = (server.client(), server.client());
        waiter.send("ip.acquire", json!({"owner": "w", "ips": [item, {"network": "lan"}], "wait_seconds": 3_600}));
        server.until_waits("lan", 1);
        behind.send("ip.allocate", allocate("lan", "behind", 3_600));
        server.until_waits("lan", 2);
        client.ok(method, params);
        // So that they look for it in the network that had no room, too.
        release(&mut client, "lan", "a");
        let told = waiter.answer();
        assert_eq!(told["error"]["data"]["kind"], kind, "{case}: {told}");
        assert_eq!(behind.answer()["result"]["address"], "10.0.0.1", "{case}");
        assert_eq!(scrape(&server)["allod_turns_missed_total"], 0.0, "{case}");
        for network in client.ok("network.list", json!({}))["networks"].as_array().unwrap() {
            client.ok("network.delete", json!({"network": network["id"], "purge": true}));
        }
        client.call("scope.release", json!({"scope": "default"}));
    }
}

#[test]
fn who_waits_for_several_has_its_turn_before_those_behind_it() {
    let server = TestServer::new();
    let mut client = networks(&server, &["lan", "dmz"], &["lan"]);
    let (mut several, mut one) = (server.client(), server.client());
    several.send("ip.acquire", acquire("w", &["lan", "dmz"], 60));
    server.until_waits("lan", 1);
    one.send("ip.allocate", allocate("lan", "behind", 60));
    server.until_waits("lan", 2);
    assert_eq!(held_by(&mut client, "w"), 0, "it holds nothing");
    // The release, and newcomers of both kinds right after it.
    let released = client.send("ip.release", json!({"network": "lan", "owner": "a"}));
    let newcomer = client.send("ip.allocate", json!({"network": "lan", "owner": "newcomer"}));
    let together = client.send("ip.acquire", acquire("newcomers", &["dmz", "lan"], 0));
    assert_eq!(addresses(&several.answer()), ["10.0.0.1", "10.1.0.1"]);
    let mut answers = BTreeMap::new();
    for _ in 0..3 {
        let answer = client.answer();
        answers.insert(answer["id"].as_u64().unwrap(), answer);
    }
    assert_eq!(answers[&released]["result"]["released"], json!(["10.0.0.1"]));
    assert_eq!(answers[&newcomer]["error"]["data"]["kind"], "not_enough_capacity");
    assert_eq!(answers[&together]["error"]["data"]["kind"], "not_enough_capacity");
    assert!(one.waits_still(Duration::from_millis(50)));
    release(&mut client, "lan", "b");
    assert_eq!(one.answer()["result"]["address"], "10.0.0.2");
    server.until_waits("dmz", 0);
}

#[test]
fn what_does_not_complete_it_goes_to_who_is_behind_it() {
    let server = TestServer::new();
    let mut client = networks(&server, &["lan", "dmz"], &["lan", "dmz"]);
    let (mut several, mut one) = (server.client(), server.client());
    several.send("ip.acquire", acquire("w", &["lan", "dmz"], 60));
    server.until_waits("dmz", 1);
    one.send("ip.allocate", allocate("lan", "behind", 60));
    server.until_waits("lan", 2);
    release(&mut client, "lan", "a");
    assert_eq!(one.answer()["result"]["address"], "10.0.0.1", "there is nothing in the other network");
    release(&mut client, "dmz", "a");
    client.ok("ip.allocate", json!({"network": "dmz", "owner": "newcomer"}));
    assert!(several.waits_still(Duration::from_millis(50)));
    // First in one network, then in the other: nobody else waits for the first.
    release(&mut client, "dmz", "b");
    release(&mut client, "lan", "b");
    assert_eq!(addresses(&several.answer()), ["10.0.0.2", "10.1.0.2"]);
}

#[test]
fn of_two_that_wait_for_the_same_networks_the_first_is_served_first() {
    let server = TestServer::new();
    let mut client = networks(&server, &["a", "b", "c"], &["a", "c"]);
    let (mut first, mut second) = (server.client(), server.client());
    first.send("ip.acquire", acquire("first", &["c", "b", "a"], 60));
    server.until_waits("b", 1);
    second.send("ip.acquire", acquire("second", &["a", "b"], 60));
    server.until_waits("b", 2);
    release(&mut client, "a", "a");
    // `c` still has no room, so it is the second one's turn.
    assert_eq!(addresses(&second.answer()), ["10.0.0.1", "10.1.0.1"]);
    release(&mut client, "c", "a");
    assert!(first.waits_still(Duration::from_millis(50)));
    second.send("ip.acquire", acquire("third", &["b", "a"], 60));
    server.until_waits("b", 2);
    release(&mut client, "a", "b");
    assert_eq!(addresses(&first.answer()), ["10.2.0.1", "10.1.0.2", "10.0.0.2"]);
    client.ok("owner.release", json!({"owner": "second"}));
    assert_eq!(addresses(&second.answer()), ["10.1.0.1", "10.0.0.1"]);
}

#[test]
fn whose_time_is_over_is_told_which_of_them_is_missing_and_how_long_it_waited() {
    let server = TestServer::new();
    let mut client = networks(&server, &["lan", "dmz"], &["lan"]);
    client.send("ip.acquire", acquire("w", &["dmz", "lan"], 3));
    server.until_waits("lan", 1);
    server.clock.advance_ms(3_000);
    let error = client.answer()["error"].clone();
    let data = &error["data"];
    assert_eq!((&data["kind"], &data["index"]), (&json!("not_enough_capacity"), &json!(1)), "{error}");
    assert!(data["waited_ms"].as_u64().unwrap() >= 3_000, "{error}");
    server.until_waits("lan", 0);
    server.until_waits("dmz", 0);
    assert_eq!(held_by(&mut client, "w"), 0);
}

#[test]
fn who_hangs_up_leaves_every_queue() {
    let server = TestServer::new();
    let mut client = networks(&server, &["lan", "dmz"], &["lan"]);
    let mut gone = server.client();
    gone.send("ip.acquire", acquire("gone", &["dmz", "lan"], 3_600));
    server.until_waits("lan", 1);
    server.until_waits("dmz", 1);
    socket2::SockRef::from(&gone.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(gone);
    server.until_waits("lan", 0);
    server.until_waits("dmz", 0);
    release(&mut client, "lan", "a");
    client.ok("ip.allocate", json!({"network": "lan", "owner": "newcomer"}));
    assert_eq!(held_by(&mut client, "gone"), 0);
}

#[test]
fn a_network_that_goes_ends_what_waits_for_it_and_another() {
    let server = TestServer::new();
    let mut client = networks(&server, &["lan", "dmz"], &["lan"]);
    let mut waiter = server.client();
    waiter.send("ip.acquire", acquire("w", &["lan", "dmz"], 3_600));
    server.until_waits("dmz", 1);
    client.ok("network.delete", json!({"network": "dmz"}));
    let error = waiter.answer()["error"].clone();
    assert_eq!(error["data"]["kind"], "not_found", "{error}");
    let said = error["message"].as_str().unwrap();
    assert!(said.starts_with("ips[1]: network `dmz` "), "by the name that was asked for: {said}");
    server.until_waits("lan", 0);
}

/// Dropped with its worker, even if that panics.
struct AtWork<'a>(&'a AtomicUsize);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Clients ask for one, two or three networks in any order, wait, and release again, while others come and go. Nobody waits
/// for ever, no address has two holders, and in the end everybody was served.
#[test]
fn many_that_wait_for_several_networks_are_all_served_in_the_end() {
    const NETWORKS: [&str; 4] = ["n0", "n1", "n2", "n3"];
    const WORKERS: u64 = 12;
    const ROUNDS: usize = 60;
    let seed = crate::seed::seed();
    let server = TestServer::with(|options| options.config.server.threads = 2);
    let mut client = networks(&server, &NETWORKS, &[]);
    let holders: [AtomicUsize; 4] = Default::default();
    let at_work = AtomicUsize::new(WORKERS as usize);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (mut client, holders, at_work) = (server.client(), &holders, &at_work);
            let mut rng = SmallRng::seed_from_u64(seed ^ worker);
            scope.spawn(move || {
                let (owner, _at_work) = (format!("w{worker}"), AtWork(at_work));
                for _ in 0..ROUNDS {
                    let mut wanted: Vec<usize> = (0..4).collect();
                    for at in 0..3 {
                        wanted.swap(at, rng.random_range(at..4));
                    }
                    wanted.truncate(rng.random_range(1..=3));
                    let names: Vec<&str> = wanted.iter().map(|at| NETWORKS[*at]).collect();
                    let answer = if names.len() == 1 && rng.random() {
                        client.call("ip.allocate", allocate(names[0], &owner, 3_600))
                    } else {
                        client.call("ip.acquire", acquire(&owner, &names, 3_600))
                    };
                    assert!(answer.get("result").is_some(), "{names:?}: {answer}");
                    for at in &wanted {
                        let holding = holders[*at].fetch_add(1, Ordering::SeqCst) + 1;
                        assert!(holding <= 2, "{holding} hold an address of {}", NETWORKS[*at]);
                    }
                    if rng.random() {
                        std::thread::sleep(Duration::from_micros(rng.random_range(0..2_000)));
                    }
                    for at in &wanted {
                        holders[*at].fetch_sub(1, Ordering::SeqCst);
                    }
                    if rng.random() {
                        client.ok("owner.release", json!({"owner": owner}));
                    } else {
                        for name in names {
                            client.ok("ip.release", json!({"network": name, "owner": owner}));
                        }
                    }
                }
            });
        }
        // Newcomers that do not wait, for one network and for several.
        let (mut client, at_work) = (server.client(), &at_work);
        scope.spawn(move || {
            while at_work.load(Ordering::SeqCst) > 0 {
                for params in [acquire("newcomer", &["n3", "n0"], 0), acquire("newcomer", &["n1"], 0)] {
                    let answer = client.call("ip.acquire", params);
                    let kind = &answer["error"]["data"]["kind"];
                    assert!(kind.is_null() || kind == "not_enough_capacity" || kind == "overloaded", "{answer}");
                    // A newcomer may keep an address from a worker, but not for long.
                    client.ok("owner.release", json!({"owner": "newcomer"}));
                }
            }
        });
    });
    for name in NETWORKS {
        server.until_waits(name, 0);
    }
    assert_eq!(client.ok("ip.list", json!({"count_only": true}))["count"], 0);
}
