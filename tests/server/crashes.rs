//! Panics that no wall catches: in the committer, the directory, or a task of the coordinator.
//!
//! After a panic it is unknown whether the memory of the first two still agrees with the store: the process ends with a
//! message, and its supervisor starts it again. A task of the coordinator keeps no state of its own: its panic is one
//! `internal`, and everything goes on.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use allod::actors::clock::{Clock, ManualClock};
use allod::actors::service::Hooks;
use allod::core::types::WallTime;
use allod::serve::Ended;
use allod::store::embedded::{EmbeddedOptions, EmbeddedStore};
use serde_json::{Value, json};

use crate::faulty::Fault;
use crate::support::{Client, TestServer, patient};

fn files(directory: &Path) -> Arc<EmbeddedStore> {
    let options = EmbeddedOptions { segment_bytes: 8 << 20, ..Default::default() };
    Arc::new(EmbeddedStore::open(directory, 4, options).unwrap())
}

/// Checks that the process ends and says why; the next one has everything that was acknowledged, and serves.
#[track_caller]
fn ends_with(server: TestServer, directory: &Path, problem: &str, acknowledged: &Value) {
    let TestServer { running, store, .. } = server;
    match running.wait() {
        Ended::Failed(said) => assert!(said.contains(problem), "{said}"),
        ended => panic!("{ended:?}"),
    }
    drop(store);
    let again = TestServer::over(files(directory), |_| {});
    let mut client = again.client();
    let repeated = client.ok("ip.allocate", json!({"network": "lan", "owner": "a"}));
    assert_eq!((&repeated["address"], &repeated["created"]), (acknowledged, &json!(false)));
    client.ok("network.create", json!({"name": "after"}));
    assert_ne!(&client.ok("ip.allocate", json!({"network": "lan", "owner": "c"}))["address"], acknowledged);
}

/// Takes the answer to what was under way, or none if the connection was closed before.
#[track_caller]
fn nothing_is_acknowledged(mut client: Client) {
    if let Some(answer) = client.line() {
        let kind = answer["error"]["data"]["kind"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(["unavailable", "not_ready", "internal"].contains(&kind), "{answer}");
    }
}

#[test]
fn a_panic_in_the_committer_ends_the_process_and_nothing_acknowledged_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::over(files(directory.path()), |_| {});
    let mut client = server.with_lan();
    let a = client.allocate("a")["address"].clone();
    server.store.next([Fault::Panic]);
    client.send("ip.allocate", json!({"network": "lan", "owner": "b"}));
    nothing_is_acknowledged(client);
    ends_with(server, directory.path(), "the committer crashed", &a);
}

#[test]
fn a_panic_in_the_directory_ends_the_process_and_nothing_acknowledged_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let bomb = |intent: &allod::core::catalog::Intent| {
        assert!(intent.name.as_ref().is_none_or(|name| name.as_str() != "bomb"), "as asked");
    };
    let hooks = Hooks { before_intent: Some(Arc::new(bomb)), ..patient() };
    let server = TestServer::over(files(directory.path()), |options| options.hooks = hooks);
    let mut client = server.with_lan();
    let a = client.allocate("a")["address"].clone();
    client.send("network.create", json!({"name": "bomb"}));
    nothing_is_acknowledged(client);
    ends_with(server, directory.path(), "the directory", &a);
}

/// A clock that panics once, when randomness is drawn.
#[derive(Debug)]
struct Fuse {
    clock: ManualClock,
    lit: AtomicBool,
}

impl Fuse {
    fn new() -> Arc<Self> {
        let clock = ManualClock::new(WallTime(1_772_356_364_031), 7);
        Arc::new(Self { clock, lit: AtomicBool::new(false) })
    }
}

impl Clock for Fuse {
    fn boot_ms(&self) -> u64 {
        self.clock.boot_ms()
    }

    fn wall(&self) -> WallTime {
        self.clock.wall()
    }

    fn entropy(&self) -> u128 {
        assert!(!self.lit.swap(false, Ordering::SeqCst), "as asked");
        self.clock.entropy()
    }
}

#[test]
fn a_panic_in_the_coordinator_is_one_internal_error_and_leaves_neither_a_lock_nor_a_name() {
    let fuse = Fuse::new();
    let clock = Arc::clone(&fuse);
    let server = TestServer::with(|options| options.clock = clock);
    let mut client = server.with_lan();
    let new = json!({"name": "new", "subnets": [{"cidr": "10.7.0.0/24"}]});
    // Its network draws when it starts, which may come after the answer to its creation.
    client.allocate("first");
    fuse.lit.store(true, Ordering::SeqCst);
    // The task draws the id of the network.
    assert_eq!(client.kind("network.create", new.clone()), "internal");
    assert!(!fuse.lit.load(Ordering::SeqCst), "it was not the task that drew");
    client.ok("network.create", new);
    client.allocate("a");
    assert_eq!(client.ok("network.list", json!({}))["networks"].as_array().map(Vec::len), Some(2));
}

/// The network is durable, but its creator crashed before the catalog knew of it.
#[test]
fn a_panic_in_the_coordinator_behind_a_commit_leaves_its_name_and_its_space_to_the_network_that_is_durable() {
    let lit = AtomicBool::new(true);
    let bomb = move || assert!(!lit.swap(false, Ordering::SeqCst), "as asked");
    let server = TestServer::hooked(Hooks { behind_commit: Some(Arc::new(bomb)), ..patient() });
    let mut client = server.client();
    let new = |name: &str| json!({"name": name, "subnets": [{"cidr": "10.7.0.0/24"}]});
    assert_eq!(client.kind("network.create", new("new")), "internal");
    assert_eq!(client.kind("network.create", new("new")), "already_exists");
    assert_eq!(client.kind("network.create", new("rival")), "overlap");
    client.ok("ip.allocate", json!({"network": "new", "owner": "a"}));
}
