//! As many instances as a request may name: every step in the life of a deployment must end within the time that a client
//! waits.

use std::io::Write;
use std::process::{Command, Stdio};

use allod::limits::INSTANCES_MAX;
use serde_json::{Value, json};

use crate::support::{TestServer, http};

/// One call over HTTP, which is meant for bodies of this size.
fn call(server: &TestServer, method: &str, params: &Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let (status, answer) = http(server.running.http, "POST /rpc", body.as_bytes());
    assert_eq!(status, 200, "{method}");
    let mut answer: Value = serde_json::from_str(&answer).unwrap();
    assert!(answer["result"].is_object(), "{method}: {}", answer["error"]);
    answer["result"].take()
}

fn wishes(of: impl Fn(usize) -> Value) -> Value {
    let instance = |at: usize| {
        let mut instance = of(at);
        instance["id"] = json!(format!("web/{at:05}"));
        instance
    };
    json!({"deployment": "shop", "instances": (0..INSTANCES_MAX).map(instance).collect::<Vec<_>>()})
}

fn states(answer: &Value, state: &str) -> usize {
    let instances = answer["instances"].as_array().unwrap().iter();
    instances
        .flat_map(|instance| instance["networks"].as_array().unwrap())
        .filter(|slot| slot["state"] == state)
        .count()
}

fn settle(server: &TestServer, method: &str, applied: &Value) -> usize {
    let done = call(server, method, &json!({"deployment": "shop", "plan": applied["plan"]}));
    done["released"].as_array().unwrap().len()
}

/// Limits, cooldown and random choice make each grant look at the others of its request.
#[test]
fn a_deployment_of_ten_thousand_instances_lives_through_all_of_its_life() {
    let server = TestServer::new();
    let network = json!({"name": "lan", "policy": "random", "cooldown_seconds": 600, "cooldown_yields": true,
        "limits": {"per_owner": 2, "per_scope": 2 * INSTANCES_MAX}, "subnets": [{"cidr": "10.0.0.0/17"}]});
    call(&server, "network.create", &network);
    let automatic = wishes(|_| json!({"networks": [{"network": "lan"}]}));
    let first = call(&server, "deployment.apply", &automatic);
    assert_eq!(states(&first, "new"), INSTANCES_MAX);
    assert_eq!(call(&server, "deployment.apply", &automatic)["plan"], first["plan"]);
    settle(&server, "deployment.commit", &first);
    let fresh =
        call(&server, "deployment.apply", &wishes(|_| json!({"fresh": true, "networks": [{"network": "lan"}]})));
    assert_eq!(fresh["obsolete"].as_array().unwrap().len(), INSTANCES_MAX);
    assert_eq!(settle(&server, "deployment.revert", &fresh), INSTANCES_MAX);
    let of = |at: usize| first["instances"][at % INSTANCES_MAX]["networks"][0]["reservation"]["address"].clone();
    let turned = wishes(|at| json!({"networks": [{"network": "lan", "address": of(at + 1)}]}));
    let turned = call(&server, "deployment.apply", &turned);
    assert_eq!(states(&turned, "promised"), INSTANCES_MAX);
    assert_eq!(settle(&server, "deployment.commit", &turned), 0);
    let ids: Vec<String> = (0..INSTANCES_MAX).map(|at| format!("web/{at:05}")).collect();
    let list: Vec<Value> = (0..INSTANCES_MAX).map(of).collect();
    let group = json!([{"name": "web", "instances": ids, "networks": [{"network": "lan", "static_ips": list}]}]);
    let dealt = call(&server, "deployment.apply", &json!({"deployment": "shop", "groups": group}));
    assert_eq!(states(&dealt, "kept"), INSTANCES_MAX);
    // Each instance is given back what it has just released, not what it released before.
    server.clock.advance_ms(1_000);
    call(&server, "deployment.delete", &json!({"deployment": "shop"}));
    let back = call(&server, "deployment.apply", &automatic);
    assert_eq!(back["instances"][7]["networks"][0]["reservation"]["address"], of(8));
    assert_eq!(call(&server, "ip.list", &json!({"scope": "shop", "count_only": true}))["count"], INSTANCES_MAX);
}

/// Under `oldest`, addresses that were used before are taken in the order in which they were freed.
#[test]
fn what_was_used_before_is_given_to_ten_thousand_instances_in_the_order_in_which_it_was_freed() {
    let server = TestServer::new();
    let pools = json!([{"range": "10.0.0.0-10.0.63.255"}]);
    let subnets = json!([{"cidr": "10.0.0.0/16", "pools": pools}]);
    call(&server, "network.create", &json!({"name": "lan", "policy": "oldest", "subnets": subnets}));
    let automatic = |name: &str| {
        let mut ask = wishes(|_| json!({"networks": [{"network": "lan"}]}));
        ask["deployment"] = json!(name);
        ask
    };
    call(&server, "deployment.apply", &automatic("one"));
    call(&server, "deployment.delete", &json!({"deployment": "one"}));
    let second = call(&server, "deployment.apply", &automatic("two"));
    let mut addresses: Vec<&str> = second["instances"]
        .as_array()
        .unwrap()
        .iter()
        .map(|instance| instance["networks"][0]["reservation"]["address"].as_str().unwrap())
        .collect();
    assert_eq!(addresses[0], "10.0.39.17", "never used ones first");
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), INSTANCES_MAX);
}

/// The command line sends the file as it is, and reads the complete answer.
#[test]
fn the_command_line_applies_a_file_of_ten_thousand_instances() {
    let server = TestServer::new();
    call(&server, "network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/17"}]}));
    let file = wishes(|_| json!({"networks": [{"network": "lan"}]})).to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_allod"))
        .args(["deployment", "apply", "-"])
        .env("ALLOD_SERVER", server.running.tcp.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(file.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let table = String::from_utf8(output.stdout).unwrap();
    let (plan, rows) = table.split_once("\n\n").unwrap();
    assert!(plan.starts_with("plan ") && rows.lines().count() == INSTANCES_MAX + 1, "{plan}");
    assert!(said.contains("10000 instances: 10000 new"), "{said}");
}

/// Answers about a deployment have no pages: a request whose answer would be too long is refused before it is carried out.
#[test]
fn what_would_be_too_long_an_answer_about_a_deployment_changes_nothing() {
    let server = TestServer::new();
    call(&server, "network.create", &json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/17"}]}));
    let one = json!({"deployment": "shop", "instances": [{"id": "a", "networks": [{"network": "lan"}]}]});
    call(&server, "deployment.apply", &one);
    let labels: Value = (0..32).map(|at| (format!("{at:0>128}"), json!("x".repeat(256)))).collect();
    for at in 0..21 {
        let acquire = json!({"owner": format!("o{at}"), "scope": "shop", "network": "lan", "labels": labels, "brief": true,
            "ips": vec![json!({}); 256]});
        call(&server, "ip.acquire", &acquire);
    }
    let refused = |method: &str, params: &Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let answer: Value = serde_json::from_str(&http(server.running.http, "POST /rpc", body.as_bytes()).1).unwrap();
        assert_eq!(answer["error"]["data"]["kind"], "invalid_argument", "{method}");
        (answer["error"]["data"]["field"].clone(), answer["error"]["message"].as_str().unwrap().to_owned())
    };
    for method in ["deployment.plan", "deployment.apply"] {
        let (field, message) = refused(method, &one);
        assert_eq!(field, "instances");
        assert!(message.contains("5376 that are no longer listed: release those first"), "{message}");
    }
    let obsolete = json!({"scope": "shop", "obsolete": true, "count_only": true});
    assert_eq!(call(&server, "ip.list", &obsolete)["count"], 0);
    let (field, message) = refused("deployment.get", &json!({"deployment": "shop"}));
    assert_eq!(field, "deployment");
    assert!(message.contains("ip.list with this `scope`"), "{message}");
    for at in 0..21 {
        call(&server, "owner.release", &json!({"scope": "shop", "owner": format!("o{at}")}));
    }
    call(&server, "deployment.apply", &one);
    assert_eq!(call(&server, "deployment.get", &json!({"deployment": "shop"}))["instances"][0]["id"], "a");
}
