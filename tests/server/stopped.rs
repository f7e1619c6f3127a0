//! A stopped network: what it still answers, and what an operator is told of it and of the others.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use allod::actors::service::Hooks;
use allod::core::command::Command as Asked;
use allod::core::network::Entries;
use allod::core::state::{Entry, Reservation};
use allod::store::{ShardImage, Store};
use serde_json::{Value, json};

use crate::faulty::{Fault, FaultyStore};
use crate::self_check::{create, until_found};
use crate::stores;
use crate::support::{Client, TestServer, http, line, patient, wait_for};

/// `lan` holds something that the store lacks, which was found; `dmz` does not. `a` holds an address in each, and deployment
/// `d` one of `lan`.
fn differing(hooks: Hooks) -> (TestServer, Client, String) {
    let server = TestServer::hooked(Hooks { self_check_every: Some(Duration::from_millis(20)), ..hooks });
    let mut client = server.client();
    create(&mut client, "dmz", "10.9.0.0/24");
    create(&mut client, "lan", "10.0.0.0/16");
    client.ok("ip.allocate", json!({"network": "dmz", "owner": "a"}));
    let held = client.ok("ip.allocate", json!({"network": "lan", "owner": "a", "ttl_seconds": 1}))["address"].clone();
    let instance = json!({"id": "i", "networks": [{"network": "lan"}]});
    client.ok("deployment.apply", json!({"deployment": "d", "instances": [instance]}));
    // More than a slice of a list.
    let many: String = (0..1_500u64)
        .map(|n| line(n + 10_000, "ip.allocate", &json!({"network": "lan", "owner": format!("many/{n}")})))
        .collect();
    client.raw(many);
    (0..1_500).for_each(|_| assert!(client.answer().get("result").is_some()));
    client.ok("ip.update", json!({"network": "lan", "owner": "a", "set": {"note": "here"}}));
    let held = held.as_str().unwrap().to_owned();
    *server.store.beside_lacks.lock().unwrap() = Some((held.parse().unwrap(), u64::MAX));
    until_found(&server, "differs", 1.0);
    (server, client, held)
}

/// `lan` panicked three times, `dmz` did not.
fn crashed() -> (TestServer, Client) {
    crashed_with(patient())
}

fn crashed_with(hooks: Hooks) -> (TestServer, Client) {
    let before_decide = |command: &Asked| assert!(!matches!(command, Asked::Claim(_)), "as asked");
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(before_decide)), ..hooks });
    let mut client = server.client();
    create(&mut client, "dmz", "10.0.1.0/24");
    create(&mut client, "lan", "10.0.0.0/24");
    create(&mut client, "san", "10.0.2.0/24");
    for network in ["dmz", "lan", "san"] {
        client.ok("ip.allocate", json!({"network": network, "owner": "a"}));
    }
    for _ in 0..3 {
        let claim = json!({"network": "lan", "address": "10.0.0.9", "owner": "b"});
        assert_eq!(client.kind("ip.claim", claim), "internal");
    }
    (server, client)
}

fn allod(server: &TestServer, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_allod"))
        .args(arguments)
        .args(["--timeout", "30s"])
        .env("ALLOD_SERVER", server.running.tcp.to_string())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn what_only_reads_is_answered_from_memory_by_a_network_that_is_not_what_is_stored() {
    let (_server, mut client, held) = differing(patient());
    let lan = || json!({"network": "lan"});
    for params in [json!({"network": "lan", "address": held}), json!({"realm": "default", "address": held})] {
        let got = client.ok("ip.get", params);
        assert_eq!((&got["state"], &got["reservation"]["note"]), (&json!("held"), &json!("here")), "{got}");
    }
    assert_eq!(client.ok("ip.find", json!({"address": held}))["found"][0]["reservation"]["owner"], "a");
    assert_eq!(client.ok("ip.list", lan())["reservations"].as_array().unwrap().len(), 1_000);
    assert_eq!(
        client.ok("ip.list", json!({"network": "lan", "limit": 10_000}))["reservations"][1_501]["owner"],
        "many/1499"
    );
    assert_eq!(client.ok("ip.list", json!({"count_only": true}))["count"], 1_503);
    assert_eq!(client.ok("network.get", lan())["name"], "lan");
    assert_eq!(client.ok("network.usage", lan())["held"], "1502");
    assert_eq!(client.ok("network.list", json!({"usage": true}))["networks"][1]["usage"]["reservations"], 1_502);
    client.ok("network.map", json!({"network": "lan", "format": "runs"}));
    let scopes = client.ok("scope.list", lan())["scopes"].clone();
    assert_eq!(scopes[0]["reservations"], 1, "{scopes}");
    let instances = client.ok("deployment.get", json!({"deployment": "d"}))["instances"].clone();
    assert_eq!(instances[0]["reservations"][0]["network"], "lan", "{instances}");
    assert_eq!(client.ok("cluster.conflicts", json!({}))["conflicts"], json!([]));
    client.ok("cluster.locate", lan());
}

#[test]
fn a_network_that_is_not_what_is_stored_changes_nothing_not_even_in_part() {
    let (server, mut client, held) = differing(patient());
    let asked: [(&str, Value); 14] = [
        ("ip.allocate", json!({"network": "lan", "owner": "b"})),
        ("ip.allocate", json!({"network": "lan", "owner": "a"})),
        ("ip.claim", json!({"network": "lan", "owner": "b", "address": "10.0.200.1", "dry_run": true})),
        ("ip.acquire", json!({"owner": "b", "ips": [{"network": "dmz"}, {"network": "lan"}]})),
        ("ip.release", json!({"network": "lan", "owner": "a"})),
        ("ip.renew", json!({"network": "lan", "owner": "a", "ttl_seconds": 9})),
        ("ip.bind", json!({"network": "lan", "owner": "a", "claimant": "c"})),
        ("ip.transfer", json!({"network": "lan", "address": held, "owner": "a", "to": {"owner": "b"}})),
        ("network.update", json!({"network": "lan", "set": {"description": "x"}})),
        ("network.delete", json!({"network": "lan", "force": true})),
        ("subnet.move", json!({"network": "lan", "subnet": "10.0.0.0/16", "to": "dmz"})),
        ("claimant.sweep", json!({"scope": "default", "alive": [], "grace_seconds": 0, "max_share": 1.0})),
        ("deployment.delete", json!({"deployment": "d"})),
        ("deployment.plan", json!({"deployment": "d", "instances": [{"id": "j", "networks": [{"network": "lan"}]}]})),
    ];
    for (method, params) in asked {
        let error = client.call(method, params)["error"].clone();
        let data = &error["data"];
        let told = (&data["kind"], &data["reason"], &data["network"]);
        assert_eq!(told, (&json!("network_stopped"), &json!("differs"), &json!("lan")), "{method}: {error}");
    }
    // Nor does time: the lease of `a` is over, but nobody else gets the address. Reads are answered, even if sent together
    // with what is refused.
    std::thread::sleep(Duration::from_millis(1_100));
    server.clock.advance_ms(2_000);
    let get = line(1, "ip.get", &json!({"network": "lan", "address": held}));
    client.raw(
        get.clone()
            + &line(2, "ip.allocate", &json!({"network": "lan", "owner": "b"}))
            + &get.replace("\"id\":1", "\"id\":3"),
    );
    let mut answers: Vec<Value> = (0..3).map(|_| client.answer()).collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    assert_eq!(answers[1]["error"]["data"]["kind"], "network_stopped");
    for at in [0, 2] {
        let got = &answers[at]["result"];
        assert_eq!((&got["state"], &got["reservation"]["expires_in_seconds"]), (&json!("held"), &json!(0)), "{got}");
    }
    let dmz = client.ok("ip.list", json!({"network": "dmz"}))["reservations"].clone();
    assert_eq!(dmz.as_array().unwrap().len(), 1, "nothing of what was asked of both is there: {dmz}");
}

/// A reload would give it the state of the store, and nobody would have chosen that.
#[test]
fn a_read_that_crashes_leaves_a_network_stopped_and_the_rest_of_its_memory_readable() {
    let before_decide = |command: &Asked| assert!(!matches!(command, Asked::Usage), "as asked");
    let (_server, mut client, held) = differing(Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() });
    for _ in 0..4 {
        assert_eq!(client.kind("network.usage", json!({"network": "lan"})), "internal");
    }
    // More than one turn's requests, with a crashing one in their midst.
    let get = line(1, "ip.get", &json!({"network": "lan", "address": held}));
    client.raw(get.repeat(700) + &line(2, "network.usage", &json!({"network": "lan"})) + &get.repeat(323));
    let answers: Vec<Value> = (0..1_024).map(|_| client.answer()).collect();
    let found = answers.iter().filter(|answer| answer["result"]["state"] == "held").count();
    assert_eq!(found, 1_023);
    let refused = client.call("ip.allocate", json!({"network": "lan", "owner": "b"}));
    assert_eq!(refused["error"]["data"]["reason"], "differs", "{refused}");
}

/// A restart from the store would give it the store's state, and it would give away what is free there.
#[test]
fn a_network_that_is_not_what_is_stored_stays_stopped_with_its_memory_where_its_actor_dies() {
    let before_work = |command: &Asked| assert!(!matches!(command, Asked::Usage), "as asked");
    let (server, mut client, held) = differing(Hooks { before_work: Some(Arc::new(before_work)), ..patient() });
    for _ in 0..2 {
        assert_eq!(client.kind("network.usage", json!({"network": "lan"})), "not_ready");
        let get = json!({"network": "lan", "address": held});
        wait_for("that it answers again", || client.call("ip.get", get.clone()).get("result").is_some());
        let got = client.ok("ip.get", get);
        assert_eq!((&got["state"], &got["reservation"]["note"]), (&json!("held"), &json!("here")), "{got}");
        assert_eq!(client.ok("ip.list", json!({"network": "lan", "count_only": true}))["count"], 1_502);
        let refused = client.call("ip.allocate", json!({"network": "lan", "owner": "b"}));
        assert_eq!(refused["error"]["data"]["reason"], "differs", "{refused}");
        client.ok("ip.allocate", json!({"network": "dmz", "owner": "b"}));
    }
    let (_, ready) = http(server.running.http, "GET /readyz", b"");
    assert!(ready.contains("network `lan` was stopped because its self-check"), "{ready}");
}

/// The answer to a read is nothing that the memory has and the store lacks.
#[test]
fn a_network_that_is_not_what_is_stored_keeps_its_memory_where_its_actor_dies_while_a_read_waits_for_its_proof() {
    let before_work = |command: &Asked| assert!(!matches!(command, Asked::Usage), "as asked");
    let (server, mut client, held) = differing(Hooks { before_work: Some(Arc::new(before_work)), ..patient() });
    let get = json!({"network": "lan", "address": held});
    server.store.proof_takes_ms.store(2_000, Ordering::SeqCst);
    let proofs = || server.store.proofs_begun.load(Ordering::SeqCst);
    let before = proofs();
    client.raw(line(1, "ip.get", &get));
    if !server.store.info().ownership_is_standing {
        wait_for("that it waits for its proof", || proofs() > before);
    }
    let mut other = server.client();
    assert_eq!(other.kind("network.usage", json!({"network": "lan"})), "not_ready");
    server.store.proof_takes_ms.store(0, Ordering::SeqCst);
    wait_for("that it answers again", || other.call("ip.get", get.clone()).get("result").is_some());
    let refused = other.call("ip.allocate", json!({"network": "lan", "owner": "b"}));
    assert_eq!(refused["error"]["data"]["reason"], "differs", "{refused}");
}

/// Makes what is read of networks in which anybody holds anything contradict itself: the last holder holds another address, too.
fn torn(image: &mut ShardImage) {
    for network in &mut image.networks {
        let mut entries: Vec<_> = std::mem::take(&mut network.entries).into_iter().collect();
        let again = entries.last().map(|(_, entry)| ("10.0.7.7".parse().unwrap(), entry.clone()));
        entries.extend(again);
        network.entries = Entries::of_any_order(entries);
    }
}

/// For a while the store has something of it that cannot be loaded, until somebody repairs that.
#[test]
fn a_network_that_crashed_too_often_stays_stopped_where_it_could_not_be_loaded_in_between() {
    let before_work = |command: &Asked| assert!(!matches!(command, Asked::Usage), "as asked");
    let (server, mut client) = crashed_with(Hooks { before_work: Some(Arc::new(before_work)), ..patient() });
    *server.store.reads_as.lock().unwrap() = Some(Box::new(torn));
    assert_eq!(client.kind("network.usage", json!({"network": "lan"})), "not_ready");
    let ready = || http(server.running.http, "GET /readyz", b"").1;
    client.call("network.get", json!({"network": "lan"}));
    wait_for("that it cannot be loaded", || ready().contains("cannot be loaded"));
    *server.store.reads_as.lock().unwrap() = None;
    let ask = json!({"network": "lan", "owner": "b"});
    wait_for("that it can be", || client.kind("ip.allocate", ask.clone()) != "not_ready");
    let refused = client.call("ip.allocate", ask);
    assert_eq!(refused["error"]["data"]["reason"], "crashes", "{refused}");
}

/// Makes what `torn` holds a block that does not begin where it lies: no such record is loaded.
pub fn misaligned(image: &mut ShardImage) {
    for network in &mut image.networks {
        let entries = std::mem::take(&mut network.entries).into_iter().map(|(address, entry)| match entry {
            Entry::Held(held) if held.holder.owner.as_str() == "torn" => {
                (address, Entry::Held(Arc::new(Reservation { prefix_length: 24, ..Reservation::clone(&held) })))
            }
            entry => (address, entry),
        });
        network.entries = entries.collect();
    }
}

#[test]
fn a_start_stops_a_network_that_cannot_be_loaded_and_serves_the_others() {
    let open = stores::reopened(4);
    let server = TestServer::over(open(), |_| {});
    let mut client = server.client();
    create(&mut client, "lan", "10.0.0.0/16");
    client.ok("network.create", json!({"name": "cloud", "kind": "dynamic"}));
    create(&mut client, "dmz", "10.9.0.0/24");
    let [mac, mac_torn] = ["52:54:00:12:34:56", "52:54:00:65:43:21"];
    let of_lan =
        |owner: &str, scope: &str, mac: &str| json!({"network": "lan", "owner": owner, "scope": scope, "mac": mac});
    client.ok("ip.allocate", of_lan("whole", "whole", mac));
    let held = client.ok("ip.allocate", of_lan("torn", "torn", mac_torn));
    let bound = json!({"network": "cloud", "address": "192.0.2.7", "owner": "torn", "claimant": "vm"});
    client.ok("ip.bind", bound.clone());
    server.stop();

    let read = FaultyStore::around(open());
    *read.reads_as.lock().unwrap() = Some(Box::new(misaligned));
    let server = TestServer::over(read, |_| {});
    let mut client = server.client();
    let granted = client.ok("ip.allocate", json!({"network": "dmz", "owner": "a"}));
    let ready = http(server.running.http, "GET /readyz", b"");
    assert!(ready.0 == 200 && ready.1.contains("cannot be loaded"), "{ready:?}");
    for (method, ask) in [
        ("ip.allocate", json!({"network": "lan", "owner": "b"})),
        ("ip.get", json!({"network": "lan", "address": held["address"]})),
        ("network.usage", json!({"network": "lan"})),
        ("network.delete", json!({"network": "lan", "force": true})),
        // What lists everything is refused, not short.
        ("ip.list", json!({"scope": "torn"})),
        ("ip.list", json!({"scope": "whole"})),
        ("scope.list", json!({})),
    ] {
        let refused = client.call(method, ask);
        assert_eq!(refused["error"]["data"]["reason"], "unloadable", "{method}: {refused}");
    }
    // What is in it is nobody else's.
    for mac in [mac, mac_torn] {
        assert_eq!(client.kind("ip.allocate", json!({"network": "dmz", "owner": "b", "mac": mac})), "already_in_use");
    }
    let subnet = |cidr: &str| json!({"network": "dmz", "cidr": cidr, "pools": [{"range": cidr}]});
    assert_eq!(client.kind("subnet.add", subnet("10.0.0.0/24")), "overlap");
    assert_eq!(client.kind("subnet.add", subnet("192.0.2.0/24")), "overlap");
    server.stop();

    let server = TestServer::over(open(), |_| {});
    let mut client = server.client();
    let again = client.ok("ip.allocate", of_lan("torn", "torn", mac_torn));
    assert_eq!((&again["address"], &again["created"]), (&held["address"], &json!(false)));
    let next = client.ok("ip.allocate", json!({"network": "lan", "owner": "b"}));
    assert!(next["generation"].as_u64() > granted["generation"].as_u64(), "{next}");
    client.ok("ip.bind", bound);
}

#[test]
fn a_network_that_crashed_too_often_stays_stopped_where_its_actor_dies() {
    let before_work = |command: &Asked| assert!(!matches!(command, Asked::Usage), "as asked");
    let (_server, mut client) = crashed_with(Hooks { before_work: Some(Arc::new(before_work)), ..patient() });
    assert_eq!(client.kind("network.usage", json!({"network": "lan"})), "not_ready");
    let ask = json!({"network": "lan", "owner": "b"});
    wait_for("that it answers again", || client.kind("ip.allocate", ask.clone()) != "not_ready");
    let refused = client.call("ip.allocate", ask);
    assert_eq!(refused["error"]["data"]["reason"], "crashes", "{refused}");
}

#[test]
fn an_export_has_the_memory_of_a_network_that_is_not_what_is_stored_and_says_so() {
    let (server, _, held) = differing(patient());
    let (code, file, said) = allod(&server, &["export"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(file.lines().any(|line| line.contains(&format!("\"{held}\"")) && line.contains("\"here\"")), "{said}");
    let end = file.lines().last().unwrap_or_default();
    assert!(end.starts_with("{\"end\":{\"networks\":2,\"reservations\":1503,\"crc32\":"), "{said}");
    let shown = said.lines().filter(|line| line.contains("as it is in memory")).count();
    assert!(shown == 1 && said.contains("network `lan` was stopped"), "{said}");
}

#[test]
fn an_export_leaves_out_a_network_that_crashes_and_neither_it_nor_its_file_passes_for_whole() {
    let (server, mut client) = crashed();
    let refused = client.call("network.list", json!({"limit": 1, "after": null}));
    assert_eq!(refused["error"]["data"]["kind"], "invalid_argument");
    let first = client.ok("network.list", json!({}));
    assert_eq!((first["networks"].as_array().unwrap().len(), &first["networks"][0]["name"]), (1, &json!("dmz")));
    let error = client.call("network.list", json!({"after": first["next"]}))["error"].clone();
    assert_eq!((&error["data"]["reason"], &error["data"]["network"]), (&json!("crashes"), &json!("lan")), "{error}");
    let behind = client.ok("network.list", json!({"after": error["data"]["next"]}));
    assert_eq!((&behind["networks"][0]["name"], &behind["next"]), (&json!("san"), &Value::Null), "{behind}");

    let (code, file, said) = allod(&server, &["export"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("not whole: network `lan` was stopped after it crashed") && said.contains("hint: "),
        "{said}"
    );
    assert!(!file.contains("\"lan\",\"a") && file.contains("10.0.1.1") && file.contains("10.0.2.1"), "{file}");
    let end = file.lines().last().unwrap_or_default();
    assert!(end.starts_with("{\"end\":{\"networks\":2,\"reservations\":2,\"left_out\":[\"lan\"],\"crc32\":"), "{file}");
    // An import of the export says so.
    let other = TestServer::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("register.jsonl");
    std::fs::write(&path, file).unwrap();
    let (code, _, said) = allod(&other, &["import", "--dry-run", path.to_str().unwrap()]);
    assert!(code == Some(0) && said.contains("as it was stopped when it was written: network `lan`"), "{said}");
}

/// An operator exports what is in memory, and meanwhile a client finds out that something else was changed as well.
#[test]
fn what_is_in_memory_of_a_network_that_differs_is_not_given_up_with_what_is_read_of_it() {
    let (server, mut client, held) = differing(patient());
    let commits = server.store.commits();
    server.store.next([Fault::None, Fault::Mismatch]);
    server.store.hold();
    server.store.proof_takes_ms.store(300, Ordering::SeqCst);
    let mut others: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for (at, other) in others[..2].iter_mut().enumerate() {
        other.send("ip.allocate", json!({"network": "dmz", "owner": format!("new/{at}")}));
        wait_for("that its commit is under way", || server.store.commits() > commits + at as u64);
    }
    others[2].send("ip.get", json!({"network": "lan", "address": held}));
    // Where owning the files is enough nothing is proved, and it is answered at once.
    assert!(!crate::stores::over_redis() || others[2].has_read_all());
    server.store.let_go();
    let told: Vec<Value> = others.iter_mut().map(Client::answer).collect();
    assert_eq!(told[1]["error"]["data"]["applied"], false, "{}", told[1]);
    server.store.proof_takes_ms.store(0, Ordering::SeqCst);
    let list = client.ok("ip.list", json!({"network": "lan", "count_only": true}));
    assert_eq!(list["count"], 1_502, "{list}, and the read was answered {}", told[2]);
    let (code, file, said) = allod(&server, &["export"]);
    assert!(code == Some(0) && file.contains(&format!("\"lan\",\"address\":\"{held}\"")), "{said}");
}

#[test]
fn a_probe_and_the_doctor_and_what_is_watched_name_a_network_that_is_stopped() {
    let (server, ..) = differing(patient());
    let (code, ready) = http(server.running.http, "GET /readyz", b"");
    assert_eq!(code, 200, "the others are served");
    let (problem, hint) = ready.split_once('\n').unwrap();
    assert!(problem.starts_with("ready, but network `lan` was stopped because its self-check"), "{ready}");
    assert!(hint.contains("`allod export > register.jsonl` now, and no restart"), "{ready}");
    let config = tempfile::tempdir().unwrap();
    let file = config.path().join("node.toml");
    let (tcp, web) = (server.running.tcp, server.running.http);
    std::fs::write(
        &file,
        format!("[server]\nlisten = \"{tcp}\"\nhttp_listen = \"{web}\"\n[store]\nkind = \"memory\"\n"),
    )
    .unwrap();
    let (code, said, _) = allod(&server, &["doctor", "--config", file.to_str().unwrap()]);
    let mut wrong = said.lines().filter(|line| line.starts_with("WRONG"));
    assert!(code == Some(1) && wrong.any(|line| line.contains("network `lan` was stopped")), "{said}");
    // The command knows only the server's address, not its ports. With several nodes each reports its own shards.
    let (code, said, _) = allod(&server, &["call", "cluster.nodes", "--format", "json"]);
    assert!(code == Some(0) && said.contains("stopped: network `lan`") == crate::stores::over_redis(), "{said}");
    let (code, said, _) = allod(&server, &["top", "--once", "--interval", "0s", "--metrics", &web.to_string()]);
    assert!(code == Some(0) && said.lines().any(|line| line.starts_with("stopped") && line.contains("lan")), "{said}");
    let (code, shown, said) = allod(&server, &["network", "why-full", "lan"]);
    assert!(code == Some(0) && shown.contains("1 502"), "{shown}{said}");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("nothing is granted in it, whatever is free: network `lan` was stopped"), "{said}");
    assert!(!said.contains("more room"), "{said}");
    // A client that asks for an address is not advised to restart the server.
    let (code, _, said) = allod(&server, &["ip", "allocate", "lan", "--owner", "b"]);
    assert!(
        code == Some(1) && said.contains("allod export > register.jsonl") && !said.contains("start the server again"),
        "{said}"
    );
}

/// Who watches wants to know just then what becomes of the others.
#[test]
fn a_watch_of_all_networks_begins_while_one_is_stopped() {
    let (server, mut client) = crashed();
    let mut child = Command::new(env!("CARGO_BIN_EXE_allod"))
        .args(["watch", "--count", "1"])
        .env("ALLOD_SERVER", server.running.tcp.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let heading = lines.next().transpose().unwrap();
    assert!(heading.as_deref().is_some_and(|line| line.starts_with("TIME ")), "it has not begun: {heading:?}");
    client.ok("ip.allocate", json!({"network": "san", "owner": "b"}));
    let told = lines.next().transpose().unwrap().unwrap_or_default();
    assert!(told.contains("granted") && told.contains("san"), "{told}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
