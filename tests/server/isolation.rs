//! One network, client or bug does not disturb the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allod::actors::service::Hooks;
use allod::core::command::Command;
use serde_json::json;

use crate::support::{TestServer, line};

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
    (Hooks { before_decide: Some(Arc::new(before_decide)) }, count)
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
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(before_decide)) });
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let both = json!({"owner": "a", "ips": [{"network": "lan"}, {"network": "dmz"}]});
    assert_eq!(client.kind("ip.acquire", both.clone()), "internal");
    assert_eq!(client.ok("ip.list", json!({}))["reservations"], json!([]));
    client.ok("ip.acquire", both);
    client.allocate("b");
}

#[test]
fn a_network_that_is_swamped_refuses_and_its_neighbours_answer() {
    let gate = Arc::new((std::sync::Mutex::new(false), std::sync::Condvar::new()));
    let held = Arc::clone(&gate);
    let before_decide = move |command: &Command| {
        if let Command::Allocate(ask) = command
            && ask.holder.owner.as_str() == "slow"
        {
            let (shut, bell) = &*held;
            drop(bell.wait_while(shut.lock().unwrap(), |shut| *shut).unwrap());
        }
    };
    let hooks = Hooks { before_decide: Some(Arc::new(before_decide)) };
    let server = TestServer::with(|options| {
        options.hooks = hooks;
        options.config.server.threads = 2;
    });
    let mut client = server.with_lan();
    // Of many networks some live on the other thread than the one that is stuck.
    for at in 0..8 {
        client
            .ok("network.create", json!({"name": format!("n{at}"), "subnets": [{"cidr": format!("10.1.{at}.0/24")}]}));
    }
    *gate.0.lock().unwrap() = true;
    let mut slow = server.client();
    slow.send("ip.allocate", json!({"network": "lan", "owner": "slow"}));
    std::thread::sleep(Duration::from_millis(50));
    *gate.0.lock().unwrap() = false;
    gate.1.notify_all();
    assert_eq!(slow.answer()["result"]["address"], "10.0.0.2");
}

#[test]
fn a_deadline_that_is_over_before_the_request_is_begun_refuses_it() {
    let first = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&first);
    let before_decide = move |command: &Command| {
        if matches!(command, Command::Allocate(_)) && seen.fetch_add(1, Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(60));
        }
    };
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(before_decide)) });
    let mut client = server.with_lan();
    client.send("ip.allocate", json!({"network": "lan", "owner": "a"}));
    let mut other = server.client();
    std::thread::sleep(Duration::from_millis(20));
    other.send("ip.allocate", json!({"network": "lan", "owner": "b", "deadline_ms": 1_000}));
    assert!(client.answer().get("result").is_some());
    assert!(other.answer().get("result").is_some());
    server.store.hold();
    // Begun in time, waiting for the store only: it is not refused.
    client.send("ip.allocate", json!({"network": "lan", "owner": "c", "deadline_ms": 20}));
    std::thread::sleep(Duration::from_millis(100));
    server.store.let_go();
    assert!(client.answer().get("result").is_some());
}
