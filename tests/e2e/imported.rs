//! Imports that meet an obstacle: a store that is away, people who changed what is in the file, an earlier import that broke
//! off.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::archive::exported;
use super::client::Client;
use super::server::{Server, allod};

fn head() -> Value {
    json!({"format": "allod-export", "version": 1})
}

fn held(network: &str, address: &str, owner: &str, more: Value) -> Value {
    let mut held = json!({"network": network, "address": address, "owner": owner, "kind": "dynamic"});
    held.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "reservation": held })
}

fn written(directory: &Path, lines: &[Value]) -> PathBuf {
    let file = directory.join("register.jsonl");
    std::fs::write(&file, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    file
}

fn import(server: SocketAddr, file: &Path, more: &[&str]) -> Output {
    let mut import = Command::new(allod());
    import.args(["import", file.to_str().unwrap(), "--server", &server.to_string()]).args(more).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks that the second line is refused for this reason, and no other line.
#[track_caller]
fn is_bad_line(output: &Output, part: &str) {
    let said = said(output);
    let bad =
        said.contains("1 bad line\n") && said.lines().any(|line| line.starts_with("  line 2: ") && line.contains(part));
    assert!(output.status.code() == Some(1) && bad, "{said}");
}

/// Stands in front of a server, and answers one method as if the store were away.
fn away_for(server: SocketAddr, method: &'static str) -> SocketAddr {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = door.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in door.incoming().map_while(Result::ok) {
            std::thread::spawn(move || pass(client, TcpStream::connect(server).unwrap(), method));
        }
    });
    address
}

fn pass(client: TcpStream, server: TcpStream, method: &str) {
    let answers = Arc::new(Mutex::new(client.try_clone().unwrap()));
    let (to_client, from_server) = (Arc::clone(&answers), BufReader::new(server.try_clone().unwrap()));
    std::thread::spawn(move || {
        for line in from_server.lines().map_while(Result::ok) {
            if writeln!(to_client.lock().unwrap(), "{line}").is_err() {
                return;
            }
        }
    });
    let mut server = server;
    for line in BufReader::new(client).lines().map_while(Result::ok) {
        let asked: Value = serde_json::from_str(&line).unwrap();
        let passed = if asked["method"] == method && asked["params"]["dry_run"] != true {
            let data = json!({"kind": "unavailable", "retry": "later", "applied": false});
            let error = json!({"code": -32020, "message": "the store is away", "data": data});
            writeln!(answers.lock().unwrap(), "{}", json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}))
        } else {
            writeln!(server, "{line}")
        };
        if passed.is_err() {
            return;
        }
    }
}

/// If this were taken for a refused line, the network would be opened, and its addresses would go to others.
#[tokio::test]
async fn an_import_whose_server_cannot_write_breaks_off_and_leaves_the_network_reserved() {
    let directory = tempfile::tempdir().unwrap();
    let mut lines = vec![head(), json!({"network": {"name": "lan", "subnets": [{"cidr": "10.0.0.0/28"}]}})];
    lines.extend((1..=5).map(|n| held("lan", &format!("10.0.0.{n}"), &format!("o{n}"), json!({}))));
    let file = written(directory.path(), &lines);
    for method in ["ip.claim", "ip.allocate"] {
        let server = Server::start(&directory.path().join(method));
        let broken = import(away_for(server.address, method), &file, &["--timeout", "1s"]);
        let told = said(&broken);
        assert_eq!(broken.status.code(), Some(3), "{method}: {told}");
        assert!(told.contains("broke off") && told.contains("the store is away"), "{method}: {told}");
        assert!(told.contains("goes on from there"), "{method}: {told}");
        let mut client = Client::connect(server.address).await.unwrap();
        let stranger = client.call("ip.allocate", json!({"network": "lan", "owner": "stranger"})).await;
        assert!(stranger.is("not_enough_capacity"), "{method}: {stranger:?}");
        let again = import(server.address, &file, &[]);
        assert!(again.status.success(), "{method}: {}", said(&again));
        assert_eq!(exported(&server)[2..7], lines[2..].iter().map(Value::to_string).collect::<Vec<_>>(), "{method}");
    }
}

/// The settings that the network is to have are not in it yet.
#[test]
fn what_an_import_left_half_done_is_not_exported() {
    let directory = tempfile::tempdir().unwrap();
    let lan = json!({"network": {"name": "lan", "subnets": [{"cidr": "10.0.0.0/28"}]}});
    let file = written(directory.path(), &[head(), lan, held("lan", "10.0.0.1", "a", json!({}))]);
    let server = Server::start(&directory.path().join("data"));
    import(away_for(server.address, "ip.claim"), &file, &["--timeout", "1s"]);
    let export = server.allod(&["export"]);
    let told = said(&export);
    assert!(export.status.code() == Some(1) && export.stdout.is_empty(), "{told}");
    assert!(told.contains("half done (`lan`)") && told.contains("`allod import` of the same file again"), "{told}");
    import(server.address, &file, &[]);
    assert_eq!(exported(&server).len(), 4);
}

async fn with_cloud(server: &Server) -> Client {
    let mut client = Client::connect(server.address).await.unwrap();
    client.call("network.create", json!({"name": "cloud", "kind": "dynamic"})).await.ok();
    client
}

/// The infrastructure has picked another address since.
#[tokio::test]
async fn an_old_file_moves_no_slot_of_a_dynamic_network_to_the_address_that_it_had() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let mut client = with_cloud(&server).await;
    let file = written(directory.path(), &[head(), held("cloud", "192.0.2.2", "b", json!({}))]);
    let bind = json!({"network": "cloud", "address": "192.0.2.102", "owner": "b", "claimant": "vm"});
    client.call("ip.bind", bind).await.ok();
    client.call("ip.unbind", json!({"network": "cloud", "address": "192.0.2.102", "claimant": "vm"})).await.ok();
    let before = client.list_all().await;
    for more in [&["--dry-run"][..], &[]] {
        is_bad_line(&import(server.address, &file, more), "its slot holds 192.0.2.102");
        assert_eq!(client.list_all().await, before);
    }
}

/// The first of several calls alone is not yet an import.
#[tokio::test]
async fn what_an_import_wrote_down_by_half_in_a_dynamic_network_the_next_one_ends() {
    let directory = tempfile::tempdir().unwrap();
    let all = json!({"owner_uid": "u", "labels": {"k": "v"}, "note": "n", "hostname": "h", "mac": "52:54:00:00:00:01"});
    let mut used = all.clone();
    used["claimant"] = json!("vm");
    used["mac"] = json!("52:54:00:00:00:02");
    let lines = [held("cloud", "192.0.2.1", "a", all), held("cloud", "192.0.2.2", "b", used)];
    let network = json!({"network": {"name": "cloud", "kind": "dynamic"}});
    let whole = [vec![head(), network], lines.to_vec()].concat();
    for (is_there, method) in
        [true, false].into_iter().flat_map(|is_there| ["ip.update", "ip.unbind"].map(|method| (is_there, method)))
    {
        let server = Server::start(&directory.path().join(format!("{method}{is_there}")));
        let file = match is_there {
            true => {
                with_cloud(&server).await;
                written(directory.path(), &[vec![head()], lines.to_vec()].concat())
            }
            false => written(directory.path(), &whole),
        };
        let broken = import(away_for(server.address, method), &file, &["--timeout", "1s"]);
        assert_eq!(broken.status.code(), Some(3), "{}", said(&broken));
        let again = import(server.address, &file, &[]);
        assert!(again.status.success(), "{}", said(&again));
        let there: Vec<Value> =
            exported(&server)[2..4].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(there, lines, "{method}, in service: {is_there}");
        // A third import finds everything there.
        assert!(said(&import(server.address, &file, &[])).contains("2 reservations had been there already"));
    }
}

/// In such a network a line takes several calls to the server: a refusal of the last one must be known before the first.
#[tokio::test]
async fn a_mac_that_somebody_else_has_is_told_before_anything_is_written_down_in_a_dynamic_network() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let mut client = with_cloud(&server).await;
    let mac = json!({"mac": "52:54:00:00:00:01"});
    let file = written(directory.path(), &[head(), held("cloud", "192.0.2.8", "d", mac)]);
    client.call("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]})).await.ok();
    client.call("ip.allocate", json!({"network": "lan", "owner": "m", "mac": "52:54:00:00:00:01"})).await.ok();
    let before = client.list_all().await;
    for more in [&["--dry-run"][..], &[]] {
        is_bad_line(&import(server.address, &file, more), "MAC 52:54:00:00:00:01 is held by `m` at 10.0.0.1");
        assert_eq!(client.list_all().await, before);
    }
}

/// Somebody has reserved the addresses for printers since.
#[tokio::test]
async fn in_a_network_in_service_what_was_reserved_since_is_not_claimed() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let mut client = Client::connect(server.address).await.unwrap();
    client.call("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]})).await.ok();
    for owner in ["stays", "gone"] {
        client.call("ip.allocate", json!({"network": "lan", "owner": owner})).await.ok();
    }
    let lines = exported(&server);
    let file = directory.path().join("register.jsonl");
    std::fs::write(&file, lines.join("\n")).unwrap();
    client.call("ip.release", json!({"network": "lan", "owner": "gone"})).await.ok();
    client.call("reserved.add", json!({"network": "lan", "range": "10.0.0.1-10.0.0.2", "note": "printers"})).await.ok();
    let before = client.list_all().await;
    for more in [&["--dry-run"][..], &[]] {
        let output = import(server.address, &file, more);
        let told = said(&output);
        // A holder keeps its address, whatever was reserved.
        assert!(output.status.code() == Some(1) && told.contains("1 bad line\n"), "{told}");
        assert!(told.contains("  line 4: ") && told.contains("printers"), "{told}");
        assert_eq!(client.list_all().await, before);
    }
}

/// Each server has its own limit for the length of a line.
#[test]
fn a_network_of_more_than_a_line_has_by_default_is_imported_where_the_server_takes_such_lines() {
    let directory = tempfile::tempdir().unwrap();
    let reserved =
        |n: usize| json!({"range": format!("10.0.{}.{}", n / 100, 2 * (n % 100) + 2), "note": "x".repeat(100)});
    let big: Vec<Value> = (0..10_000).map(reserved).collect();
    let network = json!({"network": {"name": "big", "subnets": [{"cidr": "10.0.0.0/16", "reserved": big}]}});
    assert!(network.to_string().len() > 1 << 20);
    let file = written(directory.path(), &[head(), network, held("big", "10.0.0.1", "a", json!({}))]);
    let data = directory.path().join("data");
    let more = [("ALLOD_SERVER__MAX_LINE_BYTES".to_owned(), (8 << 20).to_string())];
    let server =
        super::server::Starting::with_environment(&data, &["serve", "--data", data.to_str().unwrap()], more.to_vec());
    let server = server.ready();
    let output = import(server.address, &file, &[]);
    assert!(output.status.success(), "{}", said(&output));
}
