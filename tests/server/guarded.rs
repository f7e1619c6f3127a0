//! The space of a realm is guarded whatever becomes of the acts that change whose it is: what a network durably has, no
//! other one gets, and no act waits for ever for another.

use std::time::Duration;

use serde_json::{Value, json};

use crate::reloads::two;
use crate::stores;
use crate::support::{Client, TestServer};

/// Far below the time that a commit has.
const A_MOMENT: Duration = Duration::from_millis(100);

fn rival(cidr: &str) -> Value {
    json!({"name": "rival", "subnets": [{"cidr": cidr}]})
}

/// The one waits for the space that the other takes, the other for a network, that one for somebody who wants the network of
/// the first as well.
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
        assert!(client.silent_for(A_MOMENT));
    }
    server.store.let_go();
    let [added, moved, acquired] = clients.each_mut().map(Client::answer);
    assert_eq!(added["result"]["cidr"], "10.9.0.0/24", "{added}");
    assert_eq!(moved["error"]["data"]["kind"], "overlap", "{moved}");
    assert_eq!(acquired["result"]["reservations"].as_array().map(Vec::len), Some(2), "{acquired}");
}

/// Space that nobody else wants is not waited for, whatever is under way beside it.
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
    assert!(other.silent_for(A_MOMENT));
    assert_eq!(client.kind("network.create", rival("10.0.0.0/24")), "overlap");
    assert!(other.silent_for(Duration::from_millis(1)), "it waited for an act on other space");
    server.store.let_go();
    assert_eq!(other.answer()["result"]["name"], "other");
}
