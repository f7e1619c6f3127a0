//! A network is loaded again while requests for it are under way: they keep their order, and other networks answer.

use std::time::Duration;

use serde_json::{Value, json};

use crate::faulty::Fault;
use crate::support::{Client, TestServer};

/// Far below what a request waits for a network that is loading.
const A_MOMENT: Duration = Duration::from_millis(100);

/// Two networks in order of their ids, in which requests over both hold them.
fn two(server: &TestServer) -> (String, String) {
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

/// Clients whose requests are not answered yet.
struct UnderWay {
    lost: Client,
    _others: [Client; 2],
}

/// A network that is held, and is to be loaded again when the store goes on: the commit of somebody's allocation will fail.
fn held_and_to_be_loaded(server: &TestServer, network: &str) -> UnderWay {
    let mut client = server.client();
    let elsewhere = json!({"name": "elsewhere", "realm": "other", "subnets": [{"cidr": "10.9.0.0/24"}]});
    client.ok("network.create", elsewhere);
    server.store.hold();
    server.store.next([Fault::Full]);
    let (mut lost, mut creator, mut mover) = (server.client(), server.client(), server.client());
    lost.send("ip.allocate", allocate(network, "lost"));
    assert!(lost.silent_for(A_MOMENT));
    // What moves there waits for this one, which wants the same space.
    creator.send("network.create", json!({"name": "rival", "subnets": [{"cidr": "10.9.0.0/24"}]}));
    assert!(creator.silent_for(A_MOMENT));
    mover.send("subnet.move", json!({"network": "elsewhere", "subnet": "10.9.0.0/24", "to": network}));
    assert!(mover.silent_for(A_MOMENT));
    UnderWay { lost, _others: [creator, mover] }
}

#[test]
fn requests_of_one_connection_for_one_network_stay_in_order_over_a_reload() {
    let server = TestServer::new();
    let (lan, _) = two(&server);
    let mut under_way = held_and_to_be_loaded(&server, &lan);
    let mut client = server.client();
    client.send("ip.allocate", allocate(&lan, "o"));
    assert!(client.silent_for(A_MOMENT));
    let release = client.send("ip.release", allocate(&lan, "o"));
    assert!(client.silent_for(A_MOMENT));
    assert_eq!(server.queued(&lan), 2, "it is held");
    server.store.let_go();
    assert_eq!(under_way.lost.answer()["error"]["data"]["kind"], "unavailable");
    let (one, other) = (client.answer(), client.answer());
    let (released, granted) = if one["id"] == release { (one, other) } else { (other, one) };
    assert_eq!(released["result"]["released"], json!([granted["result"]["address"]]));
    assert_eq!(client.ok("ip.list", json!({"network": lan, "owner": "o"}))["reservations"], json!([]));
}

/// From here on the network is loaded again, until the store lets loads go.
fn begin_to_load(server: &TestServer, network: &str) {
    server.store.hold_loads();
    server.store.next([Fault::Full]);
    assert_eq!(server.client().kind("ip.allocate", allocate(network, "lost")), "unavailable");
}

/// Somebody asked for a network that is loading and for this one, which answers while that one waits.
fn answers_beside(server: &TestServer, network: &str, waits: &mut Client) {
    server.client().ok("ip.get", json!({"network": network, "address": "10.0.0.9"}));
    assert!(waits.silent_for(Duration::from_millis(1)), "the other network answered only when nobody waited any more");
}

fn both(networks: [&str; 2]) -> Value {
    let ips = networks.map(|network| json!({"network": network}));
    json!({"owner": "both", "ips": ips})
}

#[test]
fn a_network_that_is_loading_holds_up_no_other_that_is_asked_for_with_it() {
    let server = TestServer::new();
    let (lan, dmz) = two(&server);
    begin_to_load(&server, &dmz);
    let mut client = server.client();
    client.send("ip.acquire", both([&lan, &dmz]));
    assert!(client.silent_for(A_MOMENT));
    answers_beside(&server, &lan, &mut client);
    // It waits as long as one for that network alone would, and is told the same.
    let data = client.answer()["error"]["data"].clone();
    assert_eq!((&data["kind"], &data["reason"]), (&json!("not_ready"), &json!("loading")), "{data}");
    assert!(data["retry_after_ms"].is_u64(), "{data}");
    server.store.let_loads_go();
}

#[test]
fn who_asks_for_a_network_that_is_loading_and_another_one_has_both_when_it_is_loaded() {
    let server = TestServer::new();
    let (lan, dmz) = two(&server);
    for networks in [[&lan, &dmz], [&dmz, &lan]] {
        begin_to_load(&server, networks[0]);
        let mut client = server.client();
        client.send("ip.acquire", both(networks.map(String::as_str)));
        assert!(client.silent_for(A_MOMENT));
        server.store.let_loads_go();
        let answer = client.answer();
        assert_eq!(answer["result"]["reservations"].as_array().map(Vec::len), Some(2), "{answer}");
    }
}

#[test]
fn who_waits_for_a_network_that_is_held_lets_go_of_the_others_when_that_is_loaded_again() {
    let server = TestServer::new();
    let (lan, dmz) = two(&server);
    let mut under_way = held_and_to_be_loaded(&server, &dmz);
    let mut client = server.client();
    client.send("ip.acquire", both([&lan, &dmz]));
    assert!(client.silent_for(A_MOMENT));
    server.store.hold_loads();
    server.store.let_go();
    assert_eq!(under_way.lost.answer()["error"]["data"]["kind"], "unavailable");
    answers_beside(&server, &lan, &mut client);
    server.store.let_loads_go();
    let answer = client.answer();
    assert_eq!(answer["result"]["reservations"].as_array().map(Vec::len), Some(2), "{answer}");
}

/// The older take-over is fenced by the later one, and both are this server's own.
#[test]
fn a_second_commit_in_doubt_while_a_network_is_loading_ends_no_server() {
    let (store, files) = crate::stores::store(1);
    let server = TestServer::over_files(store, files, |_| {});
    let (lan, dmz) = two(&server);
    begin_to_load(&server, &dmz);
    server.store.always(Fault::UnknownApplied);
    assert_eq!(server.client().kind("ip.allocate", allocate(&lan, "second")), "unavailable");
    server.store.always(Fault::None);
    // The shard is taken anew; the load of before is still to come, under the take-over of before.
    std::thread::sleep(Duration::from_millis(500));
    server.store.let_loads_go();
    server.until_granted(&dmz, "third");
    server.until_granted(&lan, "fourth");
}
