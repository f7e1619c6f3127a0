//! A full disk on which even the reserve for releases is used up: which requests are refused, what goes on, and what is
//! said.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use allod::store::embedded::disk::{DirectoryLock, Disk, DiskFile, RealDisk};
use allod::store::embedded::{EmbeddedOptions, EmbeddedStore};
use allod::store::{Store, StoreHealth};
use serde_json::{Value, json};

use crate::faulty::Fault;
use crate::figures::scrape;
use crate::support::{Client, TestServer, http, wait_for};

/// A disk on which no file can be created once it is full.
#[derive(Debug, Clone, Default)]
struct Fills(Arc<AtomicBool>);

impl Disk for Fills {
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.create_dir(dir)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        RealDisk.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        if self.0.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { RealDisk.create(path) }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }

    fn lock(&self, dir: &Path, owner: &str) -> io::Result<Result<DirectoryLock, String>> {
        RealDisk.lock(dir, owner)
    }
}

/// A server whose disk is full, and that keeps [`SEGMENT_BYTES`] for releases.
struct Filled {
    server: TestServer,
    disk: Fills,
}

const SEGMENT_BYTES: u64 = 2 << 20;
const MOMENT: Duration = Duration::from_millis(100);

/// So many labels of some 250 bytes, which make a release long.
fn noted(labels: usize) -> Value {
    (0..labels).map(|at| (format!("{at:0100}"), json!("x".repeat(150)))).collect()
}

impl Filled {
    /// Owners `0` and so on of scope `many` each have an address of `lan` whose release takes some 8 kB; `small` has one of
    /// `other` that takes little, and `huge` one of `lan` that takes more than 12 kB.
    fn new(many: usize) -> Self {
        let (disk, directory) = (Fills::default(), tempfile::tempdir().unwrap());
        let options = EmbeddedOptions {
            segment_bytes: SEGMENT_BYTES,
            full_retry: Duration::from_millis(20),
            disk: Arc::new(disk.clone()),
            ..EmbeddedOptions::default()
        };
        let store = Arc::new(EmbeddedStore::open(directory.path(), 4, options).unwrap());
        let filled = Self { server: TestServer::over_files(store, Some(directory), |_| {}), disk };
        let mut client = filled.server.client();
        for (network, cidr) in [("lan", "10.0.0.0/21"), ("other", "10.1.0.0/24")] {
            client.ok("network.create", json!({"name": network, "subnets": [{"cidr": cidr}]}));
        }
        client.ok("ip.allocate", json!({"network": "other", "owner": "small"}));
        let note = "x".repeat(1_000);
        let labels: Value = (0..32).map(|at| (format!("{at:0110}"), json!("x".repeat(250)))).collect();
        client.ok("ip.allocate", json!({"network": "lan", "owner": "huge", "note": note, "labels": labels}));
        for at in 0..many {
            let ask = json!({"network": "lan", "scope": "many", "owner": at.to_string(), "claimant": "c",
                             "release_with_claimant": true, "labels": noted(30)});
            client.ok("ip.allocate", ask);
        }
        for at in 0.. {
            // They fill more than one segment.
            filled.disk.0.store(at >= 300, Ordering::SeqCst);
            let ask = json!({"network": "lan", "owner": "filler", "slot": at.to_string(), "labels": noted(30)});
            if client.call("ip.allocate", ask).get("error").is_some() {
                break;
            }
        }
        assert_eq!(http(filled.server.running.http, "GET /readyz", b"").0, 503);
        filled
    }

    fn left(&self) -> u64 {
        self.server.store.room().expect("it is full")
    }

    /// Releases some of what fills the disk, until no more than so much is left for releases.
    fn use_up(&self, left: u64) {
        let mut client = self.server.client();
        for at in 0.. {
            if self.left() <= left {
                break;
            }
            client
                .ok("ip.release", json!({"network": "lan", "owner": "filler", "slot": at.to_string(), "strict": true}));
        }
    }

    /// The bytes left for releases, as metrics report them.
    fn told_left(&self) -> Option<f64> {
        scrape(&self.server).get("allod_store_left_for_releases_bytes").copied()
    }

    fn make_room(&self) {
        self.disk.0.store(false, Ordering::SeqCst);
        wait_for("that it goes on", || http(self.server.running.http, "GET /readyz", b"").0 == 200);
    }

    fn loads(&self) -> u64 {
        self.server.store.loads_begun.load(Ordering::SeqCst)
    }
}

fn message(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn a_release_that_finds_no_room_on_a_full_disk_is_refused_before_memory_has_it_and_smaller_ones_go_on() {
    let filled = Filled::new(0);
    let (mut client, mut other) = (filled.server.client(), filled.server.client());
    let new = json!({"network": "other", "owner": "new"});
    let told = client.call("ip.allocate", new.clone());
    assert!(message(&told).ends_with(": releases go on, nothing new is granted"), "{told}");
    filled.use_up(12_000);
    let huge = json!({"network": "lan", "owner": "huge"});
    let loads = filled.loads();
    for _ in 0..20 {
        let told = client.call("ip.release", huge.clone());
        assert_eq!(told["error"]["data"]["applied"], false, "{told}");
        let left = format!("of what that keeps for releases {} are left; make room there", filled.left());
        assert!(message(&told).contains(&left), "{told}");
        other.ok("ip.list", json!({"network": "lan", "owner": "huge"}));
    }
    assert_eq!(filled.loads(), loads, "nothing was to be loaded again");
    other.ok("ip.release", json!({"network": "other", "owner": "small", "strict": true}));
    // No message says that releases go on when they do not.
    let used_up = format!("keeps for releases is used up but for {} bytes", filled.left());
    let told = client.call("ip.allocate", new.clone());
    assert!(message(&told).contains(&used_up) && !message(&told).contains("go on, "), "{told}");
    let (code, ready) = http(filled.server.running.http, "GET /readyz", b"");
    assert!(code == 503 && ready.contains(&used_up), "{ready}");
    assert_eq!(filled.told_left(), Some(filled.left() as f64));
    filled.make_room();
    assert_eq!(filled.told_left(), None, "it is not full");
    client.ok("ip.release", json!({"network": "lan", "owner": "huge", "strict": true}));
    client.ok("ip.allocate", new);
}

#[test]
fn what_lets_go_in_slices_lets_go_of_as_much_as_a_full_disk_has_room_for_and_says_so() {
    const MANY: usize = 20;
    for method in ["scope.release", "claimant.sweep", "network.delete"] {
        let filled = Filled::new(MANY);
        let mut client = filled.server.client();
        let sweep = json!({"scope": "many", "alive": [], "grace_seconds": 0, "max_share": 1});
        let params = match method {
            "scope.release" => json!({"scope": "many"}),
            "claimant.sweep" => {
                // The first sweep only notes who is missing.
                client.ok("claimant.sweep", sweep.clone());
                sweep
            }
            _ => {
                client.ok("ip.release", json!({"network": "lan", "owner": "huge"}));
                json!({"network": "lan", "purge": true})
            }
        };
        let id = client.ok("network.get", json!({"network": "lan"}))["id"].clone();
        let held = |client: &mut Client| {
            client.call("ip.list", json!({"network": id, "count_only": true}))["result"]["count"].as_u64()
        };
        filled.use_up(60_000);
        let (loads, before) = (filled.loads(), held(&mut client).unwrap());
        let told = client.call(method, params.clone());
        let let_go = before - held(&mut client).unwrap();
        assert!((3..9).contains(&let_go), "{method}: {let_go} of {before}, {told}");
        // The answer says what was done and what is left.
        if method == "network.delete" {
            assert_eq!(told["result"], json!({"id": id, "holding": before - let_go}), "{told}");
        } else {
            let (released, more) = (told["result"]["released"].as_array().unwrap().len(), &told["result"]["more"]);
            assert_eq!((released as u64, more), (let_go, &json!(true)), "{told}");
        }
        // A repeat achieves nothing, and is told why.
        let again = if method == "network.delete" { json!({"network": id, "purge": true}) } else { params.clone() };
        let told = client.call(method, again);
        assert_eq!(told["error"]["data"]["applied"], false, "{told}");
        assert!(message(&told).contains("make room there"), "{told}");
        client.ok("ip.release", json!({"network": "other", "owner": "small", "strict": true}));
        assert_eq!(filled.loads(), loads, "{method}: nothing was to be loaded again");
        filled.make_room();
        if method == "network.delete" {
            // What is left goes by itself.
            wait_for("that it is gone", || held(&mut client).is_none());
        } else {
            let rest = client.ok(method, params)["released"].as_array().unwrap().len();
            assert_eq!(rest as u64, MANY as u64 - let_go, "{method}");
        }
    }
}

/// Waits until the commit of this request has begun, if it is one of the first two: on a slow machine the second would
/// otherwise go out with those after it.
fn are_under_way(server: &TestServer, commits: u64, at: usize) {
    let begun = commits + at.min(1) as u64 + 1;
    wait_for("the commits before", || server.store.commits() >= begun);
}

/// The releases were decided before anybody knew that the disk is full, and are in one commit with a grant.
#[test]
fn what_lets_go_beside_a_grant_that_a_full_store_refuses_is_done_and_costs_nobody_a_reload() {
    let server = TestServer::new();
    let mut first = server.with_lan();
    first.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    for (network, owner) in [("lan", "a"), ("lan", "b"), ("dmz", "c")] {
        first.ok("ip.allocate", json!({"network": network, "owner": owner}));
    }
    let loads = server.store.loads_begun.load(Ordering::SeqCst);
    server.store.next([Fault::None, Fault::None, Fault::Full]);
    server.store.hold();
    // Two commits are under way; everything that is asked after them goes into one commit.
    let asks = [
        ("ip.allocate", "dmz", "under way"),
        ("ip.allocate", "dmz", "behind it"),
        ("ip.release", "lan", "a"),
        ("ip.allocate", "lan", "new"),
        ("ip.release", "lan", "b"),
        ("ip.release", "dmz", "c"),
        ("ip.release", "dmz", "nobody"),
    ];
    let mut clients: Vec<Client> = asks.iter().map(|_| server.client()).collect();
    let commits = server.store.commits();
    for (at, ((method, network, owner), client)) in asks.iter().zip(&mut clients).enumerate() {
        client.send(method, json!({"network": network, "owner": owner}));
        assert!(client.waits_still(MOMENT));
        are_under_way(&server, commits, at);
    }
    server.store.let_go();
    let answers: Vec<Value> = clients.iter_mut().map(Client::answer).collect();
    let done: Vec<bool> = answers.iter().map(|answer| answer.get("result").is_some()).collect();
    // The release after the grant in the same network has seen the grant.
    assert_eq!(done, [true, true, true, false, false, true, true], "{answers:?}");
    for refused in [&answers[3], &answers[4]] {
        assert_eq!(refused["error"]["data"]["applied"], false, "{refused}");
    }
    let owners = |client: &mut Client, network: &str| -> Vec<String> {
        let list = client.ok("ip.list", json!({ "network": network }));
        let owner = |held: &Value| held["owner"].as_str().unwrap().to_owned();
        list["reservations"].as_array().unwrap().iter().map(owner).collect()
    };
    assert_eq!(owners(&mut first, "lan"), ["b"]);
    assert_eq!(owners(&mut first, "dmz"), ["under way", "behind it"]);
    assert_eq!(server.store.loads_begun.load(Ordering::SeqCst), loads + 1, "one network lost something");
}

/// As before, but what is left has room for only one of two.
#[test]
fn of_releases_that_do_not_all_fit_into_what_a_full_store_has_left_those_that_do_are_done() {
    let server = TestServer::new();
    let mut first = server.with_lan();
    first.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    first.ok("ip.allocate", json!({"network": "lan", "owner": "large", "labels": noted(30)}));
    first.ok("ip.allocate", json!({"network": "dmz", "owner": "small"}));
    first.ok("ip.allocate", json!({"network": "dmz", "owner": "other"}));
    server.store.next([Fault::None, Fault::None, Fault::Full]);
    server.store.hold();
    let asks = [
        ("ip.renew", "dmz", "other"),
        ("ip.renew", "dmz", "other"),
        ("ip.release", "lan", "large"),
        ("ip.release", "dmz", "small"),
    ];
    let mut clients: Vec<Client> = asks.iter().map(|_| server.client()).collect();
    let commits = server.store.commits();
    for (at, ((method, network, owner), client)) in asks.iter().zip(&mut clients).enumerate() {
        let mut params = json!({"network": network, "owner": owner});
        if *method == "ip.renew" {
            params["ttl_seconds"] = json!(600 + at);
        }
        client.send(method, params);
        assert!(client.waits_still(MOMENT));
        are_under_way(&server, commits, at);
    }
    *server.store.room.lock().unwrap() = Some(3_000);
    server.store.let_go();
    let answers: Vec<Value> = clients.iter_mut().map(Client::answer).collect();
    let done: Vec<bool> = answers.iter().map(|answer| answer.get("result").is_some()).collect();
    assert_eq!(done, [true, true, false, true], "{answers:?}");
    assert_eq!(answers[2]["error"]["data"]["applied"], false, "{answers:?}");
    assert!(message(&answers[2]).contains("3000 are left"), "{answers:?}");
    *server.store.room.lock().unwrap() = None;
    first.ok("ip.release", json!({"network": "lan", "owner": "large", "strict": true}));
}

/// It would go out with the releases of others, which would be refused there together with it.
#[test]
fn a_store_that_takes_nothing_new_is_sent_no_new_network_and_no_new_deployment() {
    for health in [StoreHealth::Full, StoreHealth::Hindered] {
        let server = TestServer::new();
        let mut client = server.with_lan();
        let dmz = json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]});
        let asks = [("network.create", dmz), ("deployment.apply", json!({"deployment": "shop", "instances": []}))];
        let commits = server.store.commits();
        server.store.health_is(health);
        for (method, ask) in &asks {
            let told = client.call(method, ask.clone());
            assert_eq!(told["error"]["data"]["applied"], false, "{method}: {told}");
            assert!(message(&told).contains("nothing new is granted"), "{method}: {told}");
        }
        let lan =
            json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}], "if_absent": true});
        assert_eq!(client.ok("network.create", lan)["created"], false, "what exists is not new");
        assert_eq!(server.store.commits(), commits, "the store was asked");
        server.store.health_is(StoreHealth::Ready);
        for (method, ask) in asks {
            client.ok(method, ask);
        }
    }
}

/// A machine that starts asks for what it has had for years, also on the night when a disk is full.
#[test]
fn a_repeat_of_what_is_held_is_answered_by_a_store_that_takes_nothing_new() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let both = json!([{"network": "lan"}, {"network": "dmz"}]);
    let repeats = [
        ("ip.allocate", json!({"network": "lan", "owner": "a"})),
        ("ip.claim", json!({"network": "lan", "owner": "b", "address": "10.0.0.77"})),
        ("ip.acquire", json!({"owner": "c", "ips": both})),
        ("ip.bind", json!({"network": "lan", "owner": "a", "claimant": "vm-1"})),
        ("ip.update", json!({"network": "lan", "owner": "a", "set": {"note": "n"}})),
    ];
    for (method, ask) in &repeats {
        client.ok(method, ask.clone());
    }
    // A lease that began now: a repeat at once is the same request, a later one asks for more.
    let leased = json!({"network": "lan", "owner": "e", "ttl_seconds": 600});
    client.ok("ip.allocate", leased.clone());
    let answers = repeats.clone().map(|(method, ask)| client.ok(method, ask));
    // The time of leases goes on as long as the store takes changes.
    server.clock.advance_ms(1_000);
    client.ok("network.usage", json!({"network": "lan"}));
    let commits = server.store.commits();
    for health in [StoreHealth::Full, StoreHealth::Hindered] {
        server.store.health_is(health);
        for ((method, ask), answer) in repeats.iter().zip(&answers) {
            assert_eq!(&client.ok(method, ask.clone()), answer, "{method}");
        }
        // What would change something, wait, or be refused for another reason, is refused for this one.
        for (method, ask) in [
            ("ip.allocate", json!({"network": "lan", "owner": "new"})),
            ("ip.renew", json!({"network": "lan", "owner": "a", "ttl_seconds": 60})),
            ("ip.allocate", leased.clone()),
            ("ip.allocate", json!({"network": "lan", "owner": "d", "family": 6, "wait_seconds": 60})),
            ("ip.claim", json!({"network": "lan", "owner": "d", "address": "10.0.0.77"})),
            ("ip.acquire", json!({"owner": "d", "ips": both})),
            ("ip.update", json!({"network": "lan", "owner": "a", "set": {"note": "other"}})),
        ] {
            let told = client.call(method, ask);
            assert_eq!(told["error"]["data"]["applied"], false, "{method}: {told}");
            assert!(message(&told).contains("nothing new is granted"), "{method}: {told}");
        }
        assert_eq!(server.store.commits(), commits, "the store was asked");
    }
}

/// The network's part alone has room earlier than both.
#[test]
fn the_end_of_a_plan_for_whose_record_a_full_store_has_no_room_is_refused_before_memory_has_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let instances =
        json!([{"id": "a", "networks": [{"network": "lan"}]}, {"id": "b", "networks": [{"network": "lan"}]}]);
    let plan = client.ok("deployment.apply", json!({"deployment": "shop", "instances": instances}))["plan"].clone();
    let (commits, loads) = (server.store.commits(), server.store.loads_begun.load(Ordering::SeqCst));
    server.store.health_is(StoreHealth::Full);
    let ends = json!({"deployment": "shop", "plan": plan, "instances": ["a"]});
    let mut lacked = std::collections::BTreeSet::new();
    for room in (0..).step_by(16) {
        *server.store.room.lock().unwrap() = Some(room);
        let told = client.call("deployment.revert", ends.clone());
        if told.get("result").is_some() {
            break;
        }
        assert_eq!(told["error"]["data"]["applied"], false, "{told}");
        let takes = message(&told).split_once("this may take ").expect("it says how much it takes").1;
        lacked.insert(takes.split_once(" bytes").unwrap().0.to_owned());
        assert_eq!(server.store.commits(), commits, "the store was asked");
    }
    assert_eq!(lacked.len(), 2, "the network's part, and the record: {lacked:?}");
    assert_eq!(server.store.loads_begun.load(Ordering::SeqCst), loads, "nothing was to be loaded again");
}
