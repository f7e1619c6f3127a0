//! Requests that wait for capacity: whose turn it is, what ends a wait, and what a wait must not hold up.

use std::collections::{BTreeSet, HashMap};
use std::net::Shutdown;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use allod::actors::clock::ManualClock;
use allod::actors::service::Hooks;
use allod::core::command::Command;
use serde_json::{Value, json};

use crate::support::{Client, TestServer, http, line, patient};

/// A network of two addresses, both held: by `a` (10.0.0.1) and `b` (10.0.0.2).
fn full(server: &TestServer) -> Client {
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/30"}]}));
    client.allocate("a");
    client.allocate("b");
    client
}

fn waiting(owner: &str, seconds: u64) -> Value {
    json!({"network": "lan", "owner": owner, "wait_seconds": seconds})
}

fn release(client: &mut Client, owner: &str) -> Value {
    client.ok("ip.release", json!({"network": "lan", "owner": owner}))["released"].clone()
}

impl TestServer {
    /// Requests that wait for capacity in a network, as shown by `/metrics`.
    pub fn waits(&self, network: &str) -> usize {
        let metrics = http(self.running.http, "GET /metrics", b"").1;
        let name = format!("allod_network_waiting_requests{{network=\"{network}\",realm=\"default\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)).expect("it is published").parse().unwrap()
    }

    /// Repeats an allocation until it succeeds: it may be refused at first, while a network is reloaded.
    pub fn until_granted(&self, network: &str, owner: &str) {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let mut client = self.client();
        loop {
            let answer = client.call("ip.allocate", json!({"network": network, "owner": owner}));
            if answer.get("result").is_some() {
                return;
            }
            assert!(std::time::Instant::now() < end, "{network} does not come back: {answer}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    #[track_caller]
    pub fn until_waits(&self, network: &str, count: usize) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.waits(network) != count {
            assert!(Instant::now() < end, "{} wait, not {count}", self.waits(network));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn address_in(answer: &Value) -> &str {
    answer["result"]["address"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// While others ask, a client may have fewer requests under way; waits for capacity do not count.
#[test]
fn however_many_of_its_requests_wait_a_client_can_end_the_wait_while_others_ask() {
    let server = TestServer::new();
    let mut client = full(&server);
    let mut other = server.client();
    let count = allod::limits::IN_FLIGHT_BESIDE_OTHERS_MAX + 20;
    for at in 0..count {
        other.ok("server.ping", json!({}));
        client.send("ip.allocate", waiting(&format!("w{at}"), 60));
    }
    server.until_waits("lan", count);
    other.ok("server.ping", json!({}));
    client.send("ip.release", json!({"network": "lan", "owner": "a"}));
    let answers = [client.answer(), client.answer()];
    assert!(answers.iter().any(|answer| answer["result"]["address"] == "10.0.0.1"), "{answers:?}");
    assert!(answers.iter().any(|answer| answer["result"]["released"] == json!(["10.0.0.1"])), "{answers:?}");
}

/// Their grants may have long answers, so only few such requests may be under way; those that only wait do not count.
#[test]
fn however_many_acquires_of_many_addresses_wait_what_makes_room_for_them_is_done() {
    const WAITERS: usize = 3 * allod::limits::LONG_REQUESTS_MAX;
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/28"}]}));
    for at in 0..14 {
        client.ok("ip.allocate", json!({"network": "lan", "owner": "all", "slot": format!("{at}")}));
    }
    for at in 0..WAITERS {
        let ips = vec![json!({}); 5];
        client
            .send("ip.acquire", json!({"network": "lan", "owner": format!("w{at}"), "ips": ips, "wait_seconds": 600}));
    }
    server.until_waits("lan", WAITERS);
    client.send("network.get", json!({"network": "lan"}));
    assert_eq!(client.answer()["result"]["name"], "lan");
    client.send("owner.release", json!({"owner": "all"}));
    let answers = [client.answer(), client.answer(), client.answer()];
    let granted = answers.iter().filter(|answer| answer["result"]["reservations"].as_array().map(Vec::len) == Some(5));
    assert_eq!(granted.count(), 2, "{answers:?}");
    server.until_waits("lan", WAITERS - 2);
}

#[test]
fn a_freed_address_goes_to_who_waits_for_longest() {
    let server = TestServer::new();
    let mut client = full(&server);
    let (mut first, mut second) = (server.client(), server.client());
    first.send("ip.allocate", waiting("w1", 60));
    server.until_waits("lan", 1);
    second.send("ip.allocate", waiting("w2", 60));
    server.until_waits("lan", 2);
    release(&mut client, "b");
    assert_eq!(address_in(&first.answer()), "10.0.0.2");
    assert!(second.waits_still(Duration::from_millis(50)));
    release(&mut client, "a");
    assert_eq!(address_in(&second.answer()), "10.0.0.1");
    server.until_waits("lan", 0);
}

/// More becomes free at once than is given out in one turn, and at that moment a latecomer's time is over.
#[test]
fn whose_time_is_over_does_not_overtake_who_waits_for_longer() {
    const ADDRESSES: usize = 126;
    const WAITERS: usize = 200;
    const LATE: usize = 190;
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/25"}]}));
    for held in 0..ADDRESSES {
        client.ok("ip.allocate", json!({"network": "lan", "owner": format!("a{held}"), "ttl_seconds": 10}));
    }
    let owner_of: HashMap<u64, usize> = (0..WAITERS)
        .map(|at| (client.send("ip.allocate", waiting(&format!("w{at}"), if at == LATE { 10 } else { 600 })), at))
        .collect();
    server.until_waits("lan", WAITERS);
    server.clock.advance_ms(10_000);
    let mut granted = BTreeSet::new();
    for _ in 0..=ADDRESSES {
        let answer = client.answer();
        match owner_of[&answer["id"].as_u64().unwrap()] {
            LATE => assert_eq!(answer["error"]["data"]["kind"], "not_enough_capacity", "{answer}"),
            waiter => assert!(answer.get("result").is_some() && granted.insert(waiter), "{answer}"),
        }
    }
    assert!(granted.into_iter().eq(0..ADDRESSES), "who came first has all that came free");
}

#[test]
fn who_comes_behind_a_release_does_not_overtake_who_waits() {
    let server = TestServer::new();
    let mut client = full(&server);
    let mut waiter = server.client();
    waiter.send("ip.allocate", waiting("w", 60));
    server.until_waits("lan", 1);
    // One message for the network: the release, and the latecomer right after it.
    client.raw(
        line(1, "ip.release", &json!({"network": "lan", "owner": "a"}))
            + &line(2, "ip.allocate", &json!({"network": "lan", "owner": "newcomer"}))
            + &line(3, "ip.get", &json!({"network": "lan", "address": "10.0.0.1"})),
    );
    assert_eq!(client.answer()["result"]["released"], json!(["10.0.0.1"]));
    assert_eq!(client.answer()["error"]["data"]["kind"], "not_enough_capacity");
    assert_eq!(client.answer()["result"]["reservation"]["owner"], "w");
    assert_eq!(address_in(&waiter.answer()), "10.0.0.1");
}

#[test]
fn a_freed_address_goes_to_the_first_whom_it_fits_and_to_a_newcomer_if_it_fits_nobody() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([
        {"cidr": "10.0.0.0/29", "pools": [{"range": "10.0.0.1-10.0.0.2", "name": "p"}, {"range": "10.0.0.4/30", "name": "q"}]},
        {"cidr": "fd00::/126", "pools": [{"range": "fd00::1", "name": "p"}]},
    ]);
    client.ok("network.create", json!({"name": "lan", "subnets": subnets}));
    // The broadcast address of an IPv4 subnet belongs to no pool: three addresses of q, two of p, one of IPv6.
    for owner in ["p1", "p2", "q1", "q2", "q3", "six"] {
        client.allocate(owner);
    }
    let mut waiters: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let wishes =
        [json!({"pool": "q", "prefix_length": 31}), json!({"family": 6}), json!({"pool": "p", "family": 4}), json!({})];
    for (at, (waiter, wish)) in waiters.iter_mut().zip(&wishes).enumerate() {
        let mut params = waiting(&format!("w{at}"), 60);
        wish.as_object().unwrap().iter().for_each(|(name, value)| params[name] = value.clone());
        waiter.send("ip.allocate", params);
        server.until_waits("lan", at + 1);
    }
    assert_eq!(release(&mut client, "p2"), json!(["10.0.0.2"]));
    assert_eq!(address_in(&waiters[2].answer()), "10.0.0.2", "the first of those whom an address of p fits");
    assert_eq!(release(&mut client, "q1"), json!(["10.0.0.4"]));
    assert_eq!(address_in(&waiters[3].answer()), "10.0.0.4", "one address is no block");
    assert_eq!(release(&mut client, "six"), json!(["fd00::1"]));
    assert_eq!(address_in(&waiters[1].answer()), "fd00::1");
    assert_eq!(release(&mut client, "q3"), json!(["10.0.0.6"]));
    assert_eq!(client.allocate("newcomer")["address"], "10.0.0.6", "it fits nobody who waits");
    client.raw(
        line(1, "ip.release", &json!({"network": "lan", "owner": "w3"}))
            + &line(2, "ip.release", &json!({"network": "lan", "owner": "q2"})),
    );
    let block = waiters[0].answer();
    assert_eq!((address_in(&block), &block["result"]["prefix_length"]), ("10.0.0.4", &json!(31)));
}

#[test]
fn whose_time_is_over_is_told_how_things_are_and_how_long_it_waited() {
    let server = TestServer::new();
    let mut client = full(&server);
    client.send("ip.allocate", waiting("w", 5));
    server.until_waits("lan", 1);
    server.clock.advance_ms(4_999);
    assert!(client.waits_still(Duration::from_millis(600)));
    server.clock.advance_ms(1);
    let error = client.answer()["error"].clone();
    let data = &error["data"];
    assert_eq!((&data["kind"], &data["held"]), (&json!("not_enough_capacity"), &json!("2")), "{error}");
    assert!(data["waited_ms"].as_u64().unwrap() >= 5_000, "{error}");
    assert!(error["message"].as_str().unwrap().contains("of waiting none became free"), "{error}");
    let at_once = client.call("ip.allocate", waiting("w", 0));
    assert_eq!(at_once["error"]["data"].get("waited_ms"), None, "who does not ask to wait does not");
    server.until_waits("lan", 0);
}

#[test]
fn only_lack_of_capacity_is_waited_for_and_a_dry_run_for_nothing() {
    let server = TestServer::new();
    let mut client = full(&server);
    let mut dry = waiting("w", 60);
    dry["dry_run"] = json!(true);
    assert_eq!(client.kind("ip.allocate", dry), "not_enough_capacity");
    let mut claim = waiting("w", 60);
    claim["address"] = json!("10.0.0.1");
    assert_eq!(client.kind("ip.claim", claim), "already_in_use");
    assert_eq!(client.kind("ip.allocate", json!({"network": "none", "owner": "w", "wait_seconds": 60})), "not_found");
    let acquire = json!({"network": "lan", "owner": "w", "ips": [{"address": "10.0.0.1"}], "wait_seconds": 60});
    assert_eq!(client.kind("ip.acquire", acquire), "already_in_use");
    // An L2-only network may still get a pool.
    client.ok("network.create", json!({"name": "l2"}));
    client.send("ip.allocate", json!({"network": "l2", "owner": "w", "wait_seconds": 60}));
    server.until_waits("l2", 1);
    client.send("subnet.add", json!({"network": "l2", "cidr": "10.1.0.0/29"}));
    let answers = [client.answer(), client.answer()];
    assert!(answers.iter().any(|answer| answer["result"]["address"] == "10.1.0.1"), "{answers:?}");
}

#[test]
fn what_is_sent_behind_a_request_that_waits_does_not_wait_for_it() {
    let server = TestServer::new();
    let mut client = full(&server);
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/30"}]}));
    let wait = client.send("ip.allocate", waiting("w", 60));
    // Requests for the same network, for another, for all, and one that changes the space of the same network.
    client.ok("ip.get", json!({"network": "lan", "address": "10.0.0.1"}));
    client.ok("ip.allocate", json!({"network": "dmz", "owner": "x"}));
    client.ok("network.list", json!({}));
    client.ok("subnet.add", json!({"network": "lan", "cidr": "10.2.0.0/30", "pools": []}));
    let acquire = json!({"owner": "y", "ips": [{"network": "dmz"}, {"network": "lan"}], "wait_seconds": 60});
    let acquire = client.send("ip.acquire", acquire);
    client.ok("scope.list", json!({}));
    let one = json!({"network": "lan", "owner": "z", "ips": [{}], "wait_seconds": 60});
    let one = client.send("ip.acquire", one);
    client.ok("network.list", json!({}));
    server.until_waits("lan", 3);
    // Each release on the same connection ends the wait of the next one.
    for (owner, id) in [("a", wait), ("b", acquire), ("w", one)] {
        let released = client.send("ip.release", json!({"network": "lan", "owner": owner}));
        let mut answered = [client.answer()["id"].as_u64().unwrap(), client.answer()["id"].as_u64().unwrap()];
        answered.sort_unstable();
        let mut expected = [id, released];
        expected.sort_unstable();
        assert_eq!(answered, expected, "{owner}");
    }
}

#[test]
fn a_batch_is_answered_when_what_waits_in_it_is_and_what_ends_the_wait_may_be_in_it() {
    let server = TestServer::new();
    let mut client = full(&server);
    let member =
        |id: u64, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    // In another scope: `scope.release` ends the waits of its own scope.
    let allocate = json!({"network": "lan", "scope": "s", "owner": "w", "wait_seconds": 60});
    let acquire = json!({"scope": "s", "owner": "y", "ips": [{"network": "lan"}], "wait_seconds": 60});
    let batch = json!([
        member(1, "ip.allocate", allocate),
        member(2, "ip.acquire", acquire),
        member(3, "network.list", json!({})),
        member(4, "scope.release", json!({"scope": "default"})),
    ]);
    client.raw(format!("{batch}\n"));
    let answer = client.answer();
    let mut answers = answer.as_array().unwrap().clone();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(answers.len(), 4, "{answer}");
    assert_eq!(address_in(&answers[0]), "10.0.0.1");
    assert_eq!(answers[1]["result"]["reservations"][0]["address"], "10.0.0.2");
}

#[test]
fn one_slot_that_two_wait_for_is_filled_once_and_both_are_told() {
    let server = TestServer::new();
    let mut client = full(&server);
    // A client that lost its connection asks again.
    let (mut first, mut again) = (server.client(), server.client());
    first.send("ip.allocate", waiting("w", 60));
    server.until_waits("lan", 1);
    again.send("ip.allocate", waiting("w", 60));
    server.until_waits("lan", 2);
    release(&mut client, "a");
    let (first, again) = (first.answer(), again.answer());
    assert_eq!((address_in(&first), &first["result"]["created"]), ("10.0.0.1", &json!(true)));
    assert_eq!((address_in(&again), &again["result"]["created"]), ("10.0.0.1", &json!(false)));
    // Or the slot was filled in another way.
    let mut third = server.client();
    third.send("ip.allocate", waiting("x", 60));
    server.until_waits("lan", 1);
    let to = json!({"network": "lan", "address": "10.0.0.2", "owner": "b", "to": {"owner": "x"}});
    client.ok("ip.transfer", to);
    assert_eq!(address_in(&third.answer()), "10.0.0.2");
}

#[test]
fn capacity_that_comes_by_configuration_or_by_time_serves_who_waits() {
    let server = TestServer::new();
    let mut client = server.client();
    let lan = json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/28", "pools": [{"range": "10.0.0.1", "name": "p"}],
        "reserved": [{"range": "10.0.0.4"}]}]});
    client.ok("network.create", lan);
    client.allocate("first");
    let in_lan = |more: Value| {
        let mut params = json!({"network": "lan"});
        more.as_object().unwrap().iter().for_each(|(name, value)| params[name] = value.clone());
        params
    };
    let mut owners = 0;
    let mut served_by = |method: &str, params: Value, advance_ms: u64, address: &str| {
        let owner = format!("w{owners}");
        owners += 1;
        let mut waiter = server.client();
        waiter.send("ip.allocate", waiting(&owner, 3_600));
        server.until_waits("lan", 1);
        client.ok(method, params);
        if advance_ms > 0 {
            assert!(waiter.waits_still(Duration::from_millis(50)), "{method}");
            server.clock.advance_ms(advance_ms);
        }
        assert_eq!(address_in(&waiter.answer()), address, "{method}");
    };
    served_by("pool.add", in_lan(json!({"range": "10.0.0.2"})), 0, "10.0.0.2");
    served_by("pool.modify", in_lan(json!({"pool": "10.0.0.2", "set": {"range": "10.0.0.2-10.0.0.4"}})), 0, "10.0.0.3");
    served_by("reserved.remove", in_lan(json!({"range": "10.0.0.4"})), 0, "10.0.0.4");
    served_by("subnet.add", in_lan(json!({"cidr": "10.1.0.0/30", "pools": [{"range": "10.1.0.1"}]})), 0, "10.1.0.1");
    let draining = json!({"cidr": "10.2.0.0/30", "name": "d", "draining": true, "pools": [{"range": "10.2.0.1"}]});
    let mut config = server.client();
    config.ok("subnet.add", in_lan(draining));
    let set = json!({"subnet": "d", "set": {"draining": false}});
    served_by("subnet.modify", in_lan(set), 0, "10.2.0.1");
    // The end of a lease.
    let renew = in_lan(json!({"owner": "first", "ttl_seconds": 60}));
    served_by("ip.renew", renew, 61_000, "10.0.0.1");
    // The end of a cooldown, and cooling addresses that yield.
    config.ok("network.update", in_lan(json!({"set": {"cooldown_seconds": 90}})));
    served_by("ip.release", in_lan(json!({"owner": "w0"})), 90_000, "10.0.0.2");
    config.ok("ip.release", in_lan(json!({"owner": "w1"})));
    served_by("network.update", in_lan(json!({"set": {"cooldown_yields": true}})), 0, "10.0.0.3");
    served_by("ip.release", in_lan(json!({"owner": "w2"})), 0, "10.0.0.4");
    config.ok("network.update", in_lan(json!({"set": {"cooldown_yields": false, "cooldown_seconds": 0}})));
    // The end of a probation.
    let decline = in_lan(json!({"address": "10.1.0.1", "owner": "w3", "probation_seconds": 30}));
    served_by("ip.decline", decline, 30_000, "10.1.0.1");
}

#[test]
fn an_address_that_is_kept_for_an_owner_serves_that_owner_and_nobody_before_it() {
    let server = TestServer::new();
    let mut client = full(&server);
    let (mut other, mut kept) = (server.client(), server.client());
    other.send("ip.allocate", waiting("w", 60));
    server.until_waits("lan", 1);
    kept.send("ip.allocate", waiting("print/0", 60));
    server.until_waits("lan", 2);
    client.ok("reserved.add", json!({"network": "lan", "range": "10.0.0.1", "for": {"owner": "print/0"}}));
    release(&mut client, "a");
    assert_eq!(address_in(&kept.answer()), "10.0.0.1");
    release(&mut client, "b");
    assert_eq!(address_in(&other.answer()), "10.0.0.2");
}

#[test]
fn a_client_that_hangs_up_waits_no_more_and_one_that_ends_its_input_does() {
    let server = TestServer::new();
    let mut client = full(&server);
    let (mut reset, mut ended) = (server.client(), server.client());
    reset.send("ip.allocate", waiting("reset", 60));
    server.until_waits("lan", 1);
    ended.send("ip.allocate", waiting("ended", 60));
    server.until_waits("lan", 2);
    ended.end_input();
    socket2::SockRef::from(&reset.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(reset);
    server.until_waits("lan", 1);
    release(&mut client, "a");
    assert_eq!(address_in(&ended.answer()), "10.0.0.1");
    assert_eq!(ended.line(), None, "and then the connection ends");
    assert_eq!(client.ok("ip.list", json!({"owner": "reset", "count_only": true}))["count"], 0);
}

/// After the end of its input nothing is read any more, but a reset is noticed.
#[test]
fn a_client_that_ended_its_input_may_hang_up_later() {
    let server = TestServer::new();
    let mut client = full(&server);
    let mut waiter = server.client();
    waiter.send("ip.allocate", waiting("w", 3_600));
    server.until_waits("lan", 1);
    waiter.end_input();
    assert!(waiter.silent_for(Duration::from_millis(100)));
    server.until_waits("lan", 1);
    socket2::SockRef::from(&waiter.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(waiter);
    server.until_waits("lan", 0);
    release(&mut client, "a");
    assert_eq!(client.allocate("newcomer")["address"], "10.0.0.1");
}

#[test]
fn a_command_that_is_ended_while_it_waits_hangs_up() {
    let server = TestServer::new();
    let mut client = full(&server);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_allod"))
        .args(["ip", "allocate", "lan", "--owner", "w", "--wait", "1h"])
        .env("ALLOD_SERVER", server.running.tcp.to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    server.until_waits("lan", 1);
    command.kill().unwrap();
    command.wait().unwrap();
    server.until_waits("lan", 0);
    release(&mut client, "a");
    assert_eq!(client.allocate("newcomer")["address"], "10.0.0.1");
}

#[test]
fn over_http_a_request_waits_too_until_its_connection_is_closed() {
    let server = TestServer::new();
    let mut client = full(&server);
    let at = server.running.http;
    let post = move |owner: &str| {
        let body = line(1, "ip.allocate", &waiting(owner, 60));
        std::thread::spawn(move || http(at, "POST /rpc", body.as_bytes()))
    };
    let waits = post("w");
    server.until_waits("lan", 1);
    // What is sent after a body is not read before the body is answered, but the end is noticed.
    for behind in ["", "\n", "GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n"] {
        for how in [Shutdown::Both, Shutdown::Write] {
            let gone = std::net::TcpStream::connect(at).unwrap();
            let body = line(1, "ip.allocate", &waiting("gone", 60));
            let length = body.len();
            let text = format!("POST /rpc HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n{body}{behind}");
            std::io::Write::write_all(&mut &gone, text.as_bytes()).unwrap();
            server.until_waits("lan", 2);
            gone.shutdown(how).unwrap();
            server.until_waits("lan", 1);
        }
    }
    release(&mut client, "a");
    let (status, answer) = waits.join().unwrap();
    assert_eq!(status, 200);
    assert_eq!(address_in(&serde_json::from_str(&answer).unwrap()), "10.0.0.1");
}

#[test]
fn a_stop_answers_who_waits_at_once() {
    let server = TestServer::with(|options| options.config.server.shutdown_seconds = 60);
    let mut client = full(&server);
    let mut acquiring = server.client();
    client.send("ip.allocate", waiting("w", 3_600));
    server.until_waits("lan", 1);
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/30"}]}));
    let acquire = json!({"owner": "y", "ips": [{"network": "dmz"}, {"network": "lan"}], "wait_seconds": 3_600});
    acquiring.send("ip.acquire", acquire);
    server.until_waits("lan", 2);
    let at = server.running.http;
    let body = line(1, "ip.allocate", &waiting("http", 3_600));
    let over_http = std::thread::spawn(move || http(at, "POST /rpc", body.as_bytes()));
    server.until_waits("lan", 3);
    let begun = Instant::now();
    server.running.stopper().cancel();
    for client in [&mut client, &mut acquiring] {
        let error = client.answer()["error"].clone();
        assert_eq!((&error["data"]["kind"], &error["data"]["reason"]), (&json!("not_ready"), &json!("stopping")));
        assert_eq!(client.line(), None);
    }
    assert!(over_http.join().unwrap().1.contains("\"stopping\""));
    server.running.stop();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn so_many_may_wait_and_no_more() {
    let server = TestServer::new();
    let mut client = full(&server);
    let limits = client.ok("server.info", json!({}))["limits"].clone();
    let (of_connection, of_network) =
        (limits["max_waiting"].as_u64().unwrap(), limits["max_waiting_in_network"].as_u64().unwrap());
    assert_eq!((of_connection, of_network), (512, 2_048));
    let ask = |from: u64, count: u64| -> String {
        (from..from + count).map(|at| line(at, "ip.allocate", &waiting(&format!("w{at}"), 3_600))).collect()
    };
    let mut waiters: Vec<Client> = Vec::new();
    for at in 0..of_network / of_connection {
        let mut waiter = server.client();
        waiter.raw(ask(at * of_connection, of_connection));
        server.until_waits("lan", ((at + 1) * of_connection) as usize);
        waiters.push(waiter);
    }
    let refused = waiters[0].call("ip.allocate", waiting("one-more", 3_600))["error"].clone();
    assert_eq!(refused["data"]["kind"], "overloaded", "{refused}");
    let late = server.client().call("ip.allocate", waiting("late", 3_600))["error"].clone();
    assert_eq!(late["data"]["kind"], "overloaded", "{late}");
    assert!(late["message"].as_str().unwrap().contains("2048 requests already wait for this network"), "{late}");
    // It goes on with other requests.
    assert_eq!(waiters[0].ok("server.ping", json!({})), "pong");
    release(&mut client, "a");
    assert_eq!(address_in(&waiters[0].answer()), "10.0.0.1");
    server.until_waits("lan", of_network as usize - 1);
    waiters[0].send("ip.allocate", waiting("room-again", 3_600));
    server.until_waits("lan", of_network as usize);
    for waiter in waiters {
        socket2::SockRef::from(&waiter.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    server.until_waits("lan", 0);
}

#[test]
fn a_network_that_goes_or_is_closed_tells_who_waits() {
    let server = TestServer::new();
    let mut client = full(&server);
    let mut waiter = server.client();
    waiter.send("ip.allocate", waiting("w", 60));
    server.until_waits("lan", 1);
    let id = client.ok("network.delete", json!({"network": "lan", "force": true}))["id"].clone();
    assert_eq!(waiter.answer()["error"]["data"]["kind"], "in_use");
    client.ok("network.restore", json!({"network": id}));
    waiter.send("ip.allocate", json!({"network": id, "owner": "w", "wait_seconds": 60}));
    server.until_waits("lan", 1);
    client.ok("network.delete", json!({"network": "lan", "purge": true}));
    let error = waiter.answer()["error"].clone();
    assert_eq!(error["data"]["kind"], "not_found", "nothing is left to be restored");
    let named = format!("network `lan` ({}) does not exist", id.as_str().unwrap());
    assert!(error["message"].as_str().unwrap().starts_with(&named), "{error}");
    // A pool was asked for that does not exist any more.
    full(&server).ok("pool.modify", json!({"network": "lan", "pool": "10.0.0.0-10.0.0.3", "set": {"name": "p"}}));
    waiter.send("ip.allocate", json!({"network": "lan", "owner": "w", "pool": "p", "wait_seconds": 60}));
    server.until_waits("lan", 1);
    client.ok("pool.remove", json!({"network": "lan", "pool": "p"}));
    assert_eq!(waiter.answer()["error"]["data"]["kind"], "not_found");
}

#[test]
fn who_is_over_a_limit_by_then_is_told_so_and_the_next_is_served() {
    let server = TestServer::new();
    let mut client = full(&server);
    client.ok("network.update", json!({"network": "lan", "set": {"limits": {"per_owner": 1}}}));
    let (mut greedy, mut next) = (server.client(), server.client());
    for slot in ["0", "1"] {
        let mut params = waiting("greedy", 60);
        params["slot"] = json!(slot);
        greedy.send("ip.allocate", params);
        server.until_waits("lan", 1 + usize::from(slot == "1"));
    }
    next.send("ip.allocate", waiting("next", 60));
    server.until_waits("lan", 3);
    release(&mut client, "a");
    assert_eq!(address_in(&greedy.answer()), "10.0.0.1");
    release(&mut client, "b");
    assert_eq!(greedy.answer()["error"]["data"]["kind"], "quota_exceeded");
    assert_eq!(address_in(&next.answer()), "10.0.0.2");
}

#[test]
fn a_waiting_request_counts_as_in_flight_for_its_connection() {
    let server = TestServer::with(|options| options.config.server.idle_timeout_seconds = 10);
    let mut client = full(&server);
    client.send("ip.allocate", waiting("w", 3_600));
    server.until_waits("lan", 1);
    // Longer than an idle connection is kept.
    assert!(client.silent_for(Duration::from_secs(12)));
    server.until_waits("lan", 1);
    let mut other = server.client();
    release(&mut other, "a");
    assert_eq!(address_in(&client.answer()), "10.0.0.1");
}

/// The first request to the network after a cooldown is an act over several networks. It ends the cooldown, and waiters are
/// served before the act is decided.
#[test]
fn an_act_that_meets_the_end_of_a_cooldown_is_answered_behind_who_waits() {
    let clock: Arc<OnceLock<Arc<ManualClock>>> = Arc::default();
    let moved = Arc::clone(&clock);
    let before_work = move |command: &Command| {
        if matches!(command, Command::ReleaseOwner { .. }) {
            moved.get().unwrap().advance_ms(2_000);
        }
    };
    let server = TestServer::hooked(Hooks { before_work: Some(Arc::new(before_work)), ..patient() });
    clock.set(Arc::clone(&server.clock)).unwrap();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "cooldown_seconds": 2, "subnets": [{"cidr": "10.0.0.0/30"}]}));
    client.allocate("a");
    client.allocate("b");
    release(&mut client, "a");
    let mut waiter = server.client();
    waiter.send("ip.allocate", waiting("w", 60));
    server.until_waits("lan", 1);
    let released = client.ok("owner.release", json!({"owner": "b"}));
    assert_eq!(released["released"][0]["address"], "10.0.0.2", "{released}");
    assert_eq!(address_in(&waiter.answer()), "10.0.0.1");
}
