//! Subscriptions that are asked for in a batch, or without an id.

use serde_json::{Value, json};

use crate::support::TestServer;
use crate::watch::{event, watch};

/// A client tells subscriptions apart by their numbers, and an answer to a batch comes when its last member is answered.
#[test]
fn a_watch_in_a_batch_says_nothing_before_its_number_is_answered() {
    let server = TestServer::new();
    let mut other = server.client();
    other.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/31"}]}));
    for owner in ["a", "b"] {
        other.ok("ip.allocate", json!({"network": "lan", "owner": owner}));
    }
    let mut client = server.client();
    let since = other.ok("network.get", json!({"network": "lan"}))["cursor"].clone();
    let asks = json!([
        {"jsonrpc": "2.0", "id": 1, "method": "events.watch", "params": {"network": "lan", "since": since}},
        {"jsonrpc": "2.0", "id": 2, "method": "ip.allocate",
            "params": {"network": "lan", "owner": "waits", "wait_seconds": 3600}},
    ]);
    client.hand_in_raw(&format!("{asks}\n"));
    // An event while the batch waits, and somebody else has been told of it.
    let mut witness = server.client();
    watch(&mut witness, json!({"network": "lan", "since": since}));
    other.ok("ip.update", json!({"network": "lan", "owner": "a", "set": {"note": "n"}}));
    assert_eq!(event(&mut witness)["type"], "updated");
    other.ok("ip.release", json!({"network": "lan", "owner": "b"}));
    let first = client.answer();
    let answers = first.as_array().unwrap_or_else(|| panic!("{first}"));
    assert_eq!(answers[0]["result"]["subscription"], 1, "{first}");
    let told: Vec<Value> = (0..3).map(|_| event(&mut client)).collect();
    let types: Vec<&Value> = told.iter().map(|event| &event["type"]).collect();
    assert_eq!(types, ["updated", "released", "granted"]);
}

/// A request without an id is carried out; what it began tells on, whether or not anything of its batch is answered.
#[test]
fn a_watch_in_a_batch_that_is_not_answered_begins_nevertheless() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let alone = json!({"jsonrpc": "2.0", "method": "events.watch", "params": {"network": "lan"}});
    client.raw(format!("{}\n", json!([alone])));
    client.send("ip.allocate", json!({"network": "lan", "owner": "a"}));
    let lines = [client.answer(), client.answer()];
    let told: Vec<&Value> = lines.iter().filter(|line| line["method"] == "event").collect();
    assert_eq!((told.len(), &told[0]["params"]["subscription"]), (1, &json!(1)), "{lines:?}");
}
