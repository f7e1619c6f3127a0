//! What a request finds that stands behind another one: what that one did, under the names that are then.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Client, TestServer, line};

const MOMENT: Duration = Duration::from_millis(150);

/// Who moves space from one network to another need not wait for the answer in between.
#[test]
fn space_that_a_request_gives_back_is_there_for_the_one_behind_it_whichever_network_asks() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = |cidr: &str| json!([{"cidr": cidr}]);
    let modify =
        |network: &str, subnet: &str, cidr: &str| json!({"network": network, "subnet": subnet, "set": {"cidr": cidr}});
    let mut steps: Vec<(&str, Value)> = Vec::new();
    for at in 0..10 {
        let (here, there) = (format!("here-{at}"), format!("there-{at}"));
        let [whole, low, high] = [".0.0/16", ".0.0/24", ".128.0/17"].map(|end| format!("10.{at}{end}"));
        let (cidrs, update) = (subnets(&high), "network.update");
        steps.extend([
            ("network.create", json!({"name": here, "subnets": subnets(&whole)})),
            ("network.create", json!({"name": there})),
            ("subnet.modify", modify(&here, &whole, &low)),
            ("subnet.add", json!({"network": there, "cidr": high})),
            ("subnet.remove", json!({"network": here, "subnet": low})),
            ("subnet.modify", modify(&there, &high, &whole)),
            (update, json!({"network": there, "set": {"subnets": []}})),
            (update, json!({"network": here, "set": {"subnets": cidrs}})),
            ("ip.allocate", json!({"network": here, "owner": "a"})),
            ("network.delete", json!({"network": here, "purge": true})),
            ("network.create", json!({"name": format!("new-{at}"), "subnets": cidrs})),
        ]);
    }
    client.raw(steps.iter().zip(0..).map(|((method, params), id)| line(id, method, params)).collect::<String>());
    for _ in &steps {
        let answer = client.answer();
        let (method, params) = &steps[answer["id"].as_u64().unwrap() as usize];
        assert!(answer["error"].is_null(), "{method} {params}: {answer}");
    }
    let call = |(method, params): (&str, Value)| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let batch = [
        call(("network.delete", json!({"network": "new-0"}))),
        call(("network.create", json!({"name": "newer", "subnets": subnets("10.0.128.0/17")}))),
    ];
    client.raw(format!("{}\n", json!(batch)));
    let answer = client.answer();
    assert!(answer.as_array().unwrap().iter().all(|member| member["error"].is_null()), "{answer}");
}

/// A network has a name until it is renamed: whoever waits for that meanwhile asks for nothing by the old one.
#[test]
fn what_stands_behind_a_rename_is_done_to_nothing_by_the_old_name() {
    let server = TestServer::new();
    let mut client = server.client();
    for (name, cidr) in [("n", "10.0.0.0/24"), ("m", "10.1.0.0/24")] {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": cidr}]}));
    }
    client.ok("ip.allocate", json!({"network": "n", "owner": "a", "slot": "old"}));
    client.ok("ip.allocate", json!({"network": "n", "owner": "gone"}));
    server.store.hold();
    client.send("network.update", json!({"network": "n", "set": {"name": "renamed"}}));
    assert!(client.waits_still(MOMENT));
    let wish = |network: &str| json!({"network": network});
    let instance = json!({"id": "w", "networks": [wish("m"), wish("n")]});
    let asks = [
        ("ip.acquire", json!({"owner": "a", "ips": [wish("n")]})),
        ("ip.acquire", json!({"owner": "a", "ips": [wish("m"), wish("n")]})),
        ("ip.acquire", json!({"owner": "a", "ips": [wish("m"), wish("n")], "dry_run": true})),
        ("ip.acquire", json!({"owner": "a", "ips": [wish("m")], "network": "n", "exact": true})),
        ("deployment.plan", json!({"deployment": "shop", "instances": [instance]})),
        ("deployment.apply", json!({"deployment": "shop", "instances": [instance]})),
        ("owner.release", json!({"owner": "gone", "network": "n"})),
        ("ip.bind", json!({"network": "n", "owner": "gone", "address": "10.0.0.2", "claimant": "vm"})),
    ];
    let mut others: Vec<Client> = asks.iter().map(|_| server.client()).collect();
    for (other, (method, ask)) in others.iter_mut().zip(&asks) {
        other.send(method, ask.clone());
        assert!(other.waits_still(Duration::from_millis(50)), "{method}");
    }
    server.store.let_go();
    assert_eq!(client.answer()["result"]["name"], "renamed");
    for (other, (method, ask)) in others.iter_mut().zip(&asks) {
        // As whoever asks once more is told.
        let (error, again) = (other.answer()["error"].clone(), client.call(method, ask.clone())["error"].clone());
        assert_eq!(error["data"]["kind"], "not_found", "{method} {ask}: {error}");
        assert_eq!(error, again, "{method} {ask}");
    }
    let listed = client.ok("ip.list", json!({}))["reservations"].clone();
    let held: Vec<&Value> = listed.as_array().unwrap().iter().map(|held| &held["owner"]).collect();
    assert_eq!(held, ["a", "gone"], "{listed}");
}

#[test]
fn a_network_that_is_only_emptied_and_gone_meanwhile_is_named_and_no_item_is() {
    let server = TestServer::new();
    let mut client = server.client();
    for (name, cidr) in [("n", "10.0.0.0/24"), ("m", "10.1.0.0/24")] {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": cidr}]}));
    }
    let mut other = server.client();
    server.store.hold();
    client.send("network.delete", json!({"network": "n"}));
    assert!(client.waits_still(MOMENT));
    other.send("ip.acquire", json!({"owner": "a", "ips": [{"network": "m"}], "network": "n", "exact": true}));
    assert!(other.waits_still(MOMENT));
    server.store.let_go();
    client.answer();
    let error = other.answer()["error"].clone();
    let said = error["message"].as_str().unwrap();
    assert!(error["data"]["kind"] == "not_found" && said.starts_with("network `n`"), "{error}");
    assert_eq!(error["data"].get("index"), None, "{error}");
}
