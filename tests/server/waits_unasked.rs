//! Requests over several networks wait while one of the networks cannot be asked: the other networks go on, for everybody
//! else, and the waiters are served once it can be asked again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allod::actors::service::Hooks;
use allod::core::command::Command;
use serde_json::json;

use crate::conflicts::{Claim, find};
use crate::faulty::Fault;
use crate::support::{Client, TestServer, patient};

/// Waiters whose turns come to nothing. If the network stood still for each of them, nobody would be answered within a
/// minute.
const WAITERS: usize = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    Stopped,
    Contested,
    Loading,
}

impl Trouble {
    fn begin(self, server: &TestServer, network: &str) {
        let mut client = server.client();
        let mut ask = |owner: &str| client.call("ip.allocate", json!({"network": network, "owner": owner}));
        match self {
            Trouble::Stopped => {
                for _ in 0..3 {
                    assert_eq!(ask("bomb")["error"]["data"]["kind"], "internal");
                }
            }
            Trouble::Contested => {
                let granted = ask("web")["result"]["address"].clone();
                let late = Claim { address: granted.as_str().unwrap(), owner: "late", generation: 77, mac: None };
                find(server, network, &[late]);
                assert_eq!(ask("new")["error"]["data"]["reason"], "conflicts");
            }
            Trouble::Loading => {
                server.store.hold_loads();
                server.store.next([Fault::Full]);
                assert_eq!(ask("lost")["error"]["data"]["kind"], "unavailable");
            }
        }
    }

    fn end(self, server: &TestServer, network: &str) {
        match self {
            Trouble::Stopped => {}
            Trouble::Contested => drop(server.client().ok("cluster.accept", json!({ "network": network }))),
            Trouble::Loading => server.store.let_loads_go(),
        }
    }
}

/// Two networks in order of their ids.
fn two(client: &mut Client) -> [String; 2] {
    let mut networks = [0, 1].map(|at| {
        let params = json!({"name": format!("n{at}"), "subnets": [{"cidr": format!("10.{at}.0.0/29")}]});
        let made = client.ok("network.create", params);
        (made["id"].as_str().unwrap().to_owned(), made["name"].as_str().unwrap().to_owned())
    });
    networks.sort();
    networks.map(|(_, name)| name)
}

/// One network is full, and many wait for it and for another one, which gets into trouble. Then an address becomes free.
fn the_others_go_on(trouble: Trouble, is_full_first: bool) {
    let bombs = |command: &Command| {
        if matches!(command, Command::Allocate(ask) if ask.holder.owner.as_str() == "bomb") {
            panic!("as asked");
        }
    };
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(bombs)), ..patient() });
    let mut client = server.client();
    let [first, second] = two(&mut client);
    let (full, troubled) = if is_full_first { (first, second) } else { (second, first) };
    for at in 0..6 {
        client.ok("ip.allocate", json!({"network": full, "owner": format!("f{at}")}));
    }
    let mut waiter = server.client();
    for at in 0..WAITERS {
        let ips = json!([{ "network": full }, { "network": troubled }]);
        waiter.send("ip.acquire", json!({"owner": format!("w{at}"), "ips": ips, "wait_seconds": 3_600}));
    }
    server.until_waits(&full, WAITERS);
    server.until_waits(&troubled, WAITERS);
    trouble.begin(&server, &troubled);
    let freed = client.ok("ip.release", json!({"network": full, "owner": "f0"}))["released"][0].clone();
    // An address that completes no waiter goes to newcomers.
    let newcomer = json!({"network": full, "owner": "newcomer"});
    assert_eq!(client.ok("ip.allocate", newcomer.clone())["address"], freed, "{trouble:?}");
    trouble.end(&server, &troubled);
    client.ok("ip.release", newcomer);
    if trouble == Trouble::Stopped {
        for _ in 0..WAITERS {
            let answer = waiter.answer();
            assert_eq!(answer["error"]["data"]["kind"], "network_stopped", "{answer}");
        }
    } else {
        let answer = waiter.answer();
        assert_eq!(answer["result"]["reservations"].as_array().map(Vec::len), Some(2), "{trouble:?}: {answer}");
    }
    assert!(waiter.waits_still(Duration::from_millis(300)), "there is no room for anybody else");
    client.ok("ip.get", json!({"network": full, "address": "10.0.0.1"}));
}

#[test]
fn who_waits_for_a_network_that_is_stopped_and_another_one_is_told_and_holds_the_other_up_for_nobody() {
    the_others_go_on(Trouble::Stopped, true);
    the_others_go_on(Trouble::Stopped, false);
}

#[test]
fn who_waits_for_a_network_that_is_contested_and_another_one_holds_the_other_up_for_nobody() {
    the_others_go_on(Trouble::Contested, true);
    the_others_go_on(Trouble::Contested, false);
}

#[test]
fn who_waits_for_a_network_that_is_loading_and_another_one_holds_the_other_up_for_nobody() {
    the_others_go_on(Trouble::Loading, true);
    the_others_go_on(Trouble::Loading, false);
}

/// It would be run a second time as soon as the other network can be asked.
#[test]
fn a_crash_in_one_of_several_networks_is_told_whatever_is_in_the_way_in_another() {
    let decided = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&decided);
    let bombs = move |command: &Command| {
        if matches!(command, Command::Acquire(ask) if ask.items[0].index == 1) {
            counted.fetch_add(1, Ordering::SeqCst);
            panic!("as asked");
        }
    };
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(bombs)), ..patient() });
    let mut client = server.client();
    let [first, second] = two(&mut client);
    Trouble::Contested.begin(&server, &first);
    let ips = json!([{ "network": first }, { "network": second }]);
    let asked = json!({"owner": "w", "ips": ips, "wait_seconds": 3_600});
    assert_eq!(client.kind("ip.acquire", asked), "internal");
    assert_eq!(decided.load(Ordering::SeqCst), 1);
}

#[test]
fn whose_time_is_over_while_a_network_is_loading_is_told_what_is_so_when_it_is_loaded() {
    let server = TestServer::new();
    let mut client = server.client();
    let [first, second] = two(&mut client);
    for at in 0..6 {
        client.ok("ip.allocate", json!({"network": first, "owner": format!("f{at}")}));
    }
    let ips = json!([{ "network": first }, { "network": second }]);
    client.send("ip.acquire", json!({"owner": "w", "ips": ips, "wait_seconds": 3}));
    server.until_waits(&second, 1);
    Trouble::Loading.begin(&server, &second);
    server.clock.advance_ms(3_000);
    assert!(client.waits_still(Duration::from_millis(600)));
    Trouble::Loading.end(&server, &second);
    let data = client.answer()["error"]["data"].clone();
    assert_eq!((&data["kind"], &data["index"]), (&json!("not_enough_capacity"), &json!(0)), "{data}");
    assert!(data["waited_ms"].as_u64() >= Some(3_000), "{data}");
}
