//! A network is reloaded while requests for it are under way: they keep their order, and other networks answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use allod::actors::service::Hooks;
use allod::core::command::Command;
use serde_json::{Value, json};

use crate::faulty::Fault;
use crate::isolation::Gate;
use crate::support::{Client, TestServer, http, patient, wait_for};

/// Far less than a request waits for a loading network.
const A_MOMENT: Duration = Duration::from_millis(100);

/// How long requests wait for a loading network: longer than anything that the test does meanwhile, on any machine, until
/// the test ends their patience.
pub struct Patience(Arc<AtomicU64>);

impl Patience {
    pub fn of(hooks: &mut Hooks) -> Self {
        Self(Arc::clone(hooks.deferred_ms_max.insert(Arc::new(AtomicU64::new(3_600_000)))))
    }

    fn ends(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Two networks in the order of their ids, which is the order in which requests over both hold them.
pub fn two(server: &TestServer) -> (String, String) {
    let create = |at: usize| {
        let params = json!({"name": format!("n{at}"), "subnets": [{"cidr": format!("10.{at}.0.0/24")}]});
        let made = server.client().ok("network.create", params);
        (made["id"].as_str().unwrap().to_owned(), made["name"].as_str().unwrap().to_owned())
    };
    let mut networks = [create(0), create(1)];
    networks.sort();
    networks.map(|(_, name)| name).into()
}

fn allocate(network: &str, owner: &str) -> Value {
    json!({"network": network, "owner": owner})
}

/// Two networks of one thread, in the order of their ids, and a third one after them on the other thread, which stands still
/// while somebody asks it for the slot `gate`.
struct Three {
    // The first field, so that it opens before the server stops.
    gate: Gate,
    server: TestServer,
    stands_still: Arc<AtomicBool>,
    lan: String,
    dmz: String,
    far: String,
    _clients: [Client; 2],
}

impl Three {
    fn new() -> Self {
        let (gate, stands_still) = (Gate::default(), Arc::new(AtomicBool::new(false)));
        let (shut, said) = (Arc::clone(&gate.0), Arc::clone(&stands_still));
        let before_decide = move |command: &Command| {
            if let Command::Acquire(ask) = command
                && ask.items.iter().any(|item| item.slot.as_str() == "gate")
            {
                said.store(true, Ordering::SeqCst);
                drop(shut.1.wait_while(shut.0.lock().unwrap(), |open| !*open).unwrap());
            }
        };
        let server = TestServer::with(|options| {
            options.hooks = Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() };
            // No request is given up.
            Patience::of(&mut options.hooks);
            options.config.server.threads = 2;
        });
        // Networks and connections are dealt to the threads in turn: the first of each is on the first thread, the second on
        // the other.
        let mut clients = [server.client(), server.client()];
        let (mut near, mut others) = (Vec::new(), Vec::new());
        for at in 0..16 {
            let params = json!({"name": format!("n{at}"), "subnets": [{"cidr": format!("10.{at}.0.0/24")}]});
            let made = clients[0].ok("network.create", params);
            let network = (made["id"].as_str().unwrap().to_owned(), made["name"].as_str().unwrap().to_owned());
            if at % 2 == 0 { near.push(network) } else { others.push(network) }
        }
        near.sort();
        let (lan, dmz) = (near[0].clone(), near[1].clone());
        let far =
            others.into_iter().max().filter(|far| *far > dmz).expect("of eight ids one is above two of eight others");
        Self { gate, server, stands_still, lan: lan.1, dmz: dmz.1, far: far.1, _clients: clients }
    }

    /// A client on the thread that does not stand still.
    fn client(&self) -> Client {
        let client = self.server.client();
        // The next connection would be on the other thread.
        drop(self.server.client());
        client
    }
}

/// Clients whose requests are not answered yet.
struct UnderWay {
    lost: Client,
    _holder: Client,
}

/// Holds a network until the gate is opened. It will be reloaded when the store goes on, because the commit of an allocation
/// will fail.
fn held_and_to_be_loaded(three: &Three, network: &str) -> UnderWay {
    three.server.store.hold();
    three.server.store.next([Fault::Full]);
    let (mut lost, mut holder) = (three.client(), three.client());
    lost.send("ip.allocate", allocate(network, "lost"));
    assert!(lost.waits_still(A_MOMENT));
    let ips = json!([{"network": network}, {"network": three.far, "slot": "gate"}]);
    holder.send("ip.acquire", json!({"owner": "holder", "ips": ips}));
    wait_for("that it stands still", || three.stands_still.load(Ordering::SeqCst));
    UnderWay { lost, _holder: holder }
}

/// Sets the scene, and lets the store go on: the commit is refused while the thread still stands still. A server on a busy machine may
/// have moved that client to this very thread, and then the answer waits for the gate: the scene is set again.
fn reloading_while_held<T>(begin: impl Fn(&Three) -> (UnderWay, T)) -> (Three, UnderWay, T) {
    for _ in 0..20 {
        let three = Three::new();
        let (mut under_way, asked) = begin(&three);
        three.server.store.let_go();
        if !under_way.lost.silent_for(Duration::from_secs(5)) {
            assert_eq!(under_way.lost.answer()["error"]["data"]["kind"], "unavailable");
            return (three, under_way, asked);
        }
    }
    panic!("the client is always on the thread that stands still");
}

#[test]
fn requests_of_one_connection_for_one_network_stay_in_order_over_a_reload() {
    let (mut three, _under_way, (mut client, release)) = reloading_while_held(|three| {
        let under_way = held_and_to_be_loaded(three, &three.lan);
        let mut client = three.client();
        client.send("ip.allocate", allocate(&three.lan, "o"));
        assert!(client.waits_still(A_MOMENT));
        let release = client.send("ip.release", allocate(&three.lan, "o"));
        assert!(client.waits_still(A_MOMENT));
        assert_eq!(three.server.queued(&three.lan), 2, "it is held");
        (under_way, (client, release))
    });
    drop(std::mem::take(&mut three.gate));
    let (one, other) = (client.answer(), client.answer());
    let (released, granted) = if one["id"] == release { (one, other) } else { (other, one) };
    assert_eq!(released["result"]["released"], json!([granted["result"]["address"]]));
    assert_eq!(client.ok("ip.list", json!({"network": three.lan, "owner": "o"}))["reservations"], json!([]));
}

/// Makes the network reload, until the store lets loads go.
pub fn begin_to_load(server: &TestServer, network: &str) {
    server.store.hold_loads();
    server.store.next([Fault::Full]);
    assert_eq!(server.client().kind("ip.allocate", allocate(network, "lost")), "unavailable");
}

/// A client asked for a loading network and for this one, which answers others while the client waits.
fn answers_beside(server: &TestServer, network: &str, waits: &mut Client) {
    server.client().ok("ip.list", json!({"network": network}));
    assert!(waits.silent_for(Duration::from_millis(1)), "the other network answered only when nobody waited any more");
}

fn both(networks: [&str; 2]) -> Value {
    let ips = networks.map(|network| json!({"network": network}));
    json!({"owner": "both", "ips": ips})
}

#[test]
fn a_network_that_is_loading_holds_up_no_other_that_is_asked_for_with_it() {
    let mut patience = None;
    let server = TestServer::with(|options| patience = Some(Patience::of(&mut options.hooks)));
    let (lan, dmz) = two(&server);
    begin_to_load(&server, &dmz);
    let mut client = server.client();
    client.send("ip.acquire", both([&lan, &dmz]));
    assert!(client.waits_still(A_MOMENT));
    answers_beside(&server, &lan, &mut client);
    // A probe is told, and that this is no reason to ask another server.
    let (code, told) = http(server.running.http, "GET /readyz", b"");
    assert!(code == 200 && told.starts_with("ready, except for 1 network, which is being read"), "{code} {told}");
    patience.unwrap().ends();
    // It waits as long as a request for the loading network alone, and gets the same answer.
    let data = client.answer()["error"]["data"].clone();
    assert_eq!((&data["kind"], &data["reason"]), (&json!("not_ready"), &json!("loading")), "{data}");
    assert!(data["retry_after_ms"].is_u64(), "{data}");
    server.store.let_loads_go();
    wait_for("that it is ready", || http(server.running.http, "GET /readyz", b"") == (200, "ready\n".to_owned()));
}

#[test]
fn who_asks_for_a_network_that_is_loading_and_another_one_has_both_when_it_is_loaded() {
    let server = TestServer::with(|options| drop(Patience::of(&mut options.hooks)));
    let (lan, dmz) = two(&server);
    for networks in [[&lan, &dmz], [&dmz, &lan]] {
        begin_to_load(&server, networks[0]);
        let mut client = server.client();
        client.send("ip.acquire", both(networks.map(String::as_str)));
        assert!(client.waits_still(A_MOMENT));
        server.store.let_loads_go();
        let answer = client.answer();
        assert_eq!(answer["result"]["reservations"].as_array().map(Vec::len), Some(2), "{answer}");
    }
}

#[test]
fn who_waits_for_a_network_that_is_held_lets_go_of_the_others_when_that_is_loaded_again() {
    let (mut three, _under_way, mut client) = reloading_while_held(|three| {
        let under_way = held_and_to_be_loaded(three, &three.dmz);
        let mut client = three.client();
        client.send("ip.acquire", both([&three.lan, &three.dmz]));
        assert!(client.waits_still(A_MOMENT));
        three.server.store.hold_loads();
        (under_way, client)
    });
    drop(std::mem::take(&mut three.gate));
    answers_beside(&three.server, &three.lan, &mut client);
    three.server.store.let_loads_go();
    let answer = client.answer();
    assert_eq!(answer["result"]["reservations"].as_array().map(Vec::len), Some(2), "{answer}");
}

/// The older take-over is fenced by the newer one, and both are by this server.
#[test]
fn a_second_commit_in_doubt_while_a_network_is_loading_ends_no_server() {
    let (store, files) = crate::stores::store(1);
    let server = TestServer::over_files(store, files, |options| options.hooks = Hooks::default());
    let (lan, dmz) = two(&server);
    begin_to_load(&server, &dmz);
    server.store.always(Fault::UnknownApplied);
    assert_eq!(server.client().kind("ip.allocate", allocate(&lan, "second")), "unavailable");
    server.store.always(Fault::None);
    // The shard is taken anew, while the earlier load is still to come under the earlier take-over.
    std::thread::sleep(Duration::from_millis(500));
    server.store.let_loads_go();
    server.until_granted(&dmz, "third");
    server.until_granted(&lan, "fourth");
}
