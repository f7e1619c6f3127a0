//! A whole register is written out and read again: `allod export`, `allod import`, and `allod ip list` page by page.

use serde_json::{Value, json};

use super::client::Client;
use super::server::Server;

#[test]
fn what_is_exported_is_imported_though_a_network_is_deleted_and_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    for (network, cidr) in [("lan", "10.0.0.0/24"), ("old", "10.1.0.0/24")] {
        server.allod_ok(&["network", "create", network, "--subnet", cidr]);
        server.allod_ok(&["ip", "allocate", network, "--owner", "web/0"]);
    }
    server.allod_ok(&["network", "delete", "old", "--force", "--yes"]);
    let exported = server.allod(&["export"]);
    let said = String::from_utf8_lossy(&exported.stderr);
    assert!(
        said.contains("1 network, 1 reservation\n") && said.contains("left out: 1 reservation of networks"),
        "{said}"
    );
    let file = directory.path().join("register.jsonl");
    std::fs::write(&file, &exported.stdout).unwrap();

    let other = Server::start(&directory.path().join("other"));
    other.allod_ok(&["import", &file.display().to_string()]);
    let listed: Value = serde_json::from_str(&other.allod_ok(&["ip", "list", "--format", "json"])).unwrap();
    let held: Vec<_> = listed["reservations"].as_array().unwrap().iter().map(|held| &held["network"]).collect();
    assert_eq!(held, ["lan"]);
}

/// Somebody imports an old file once more, for what may be missing. What was decided since then stands.
#[tokio::test]
async fn an_import_leaves_what_a_network_in_service_is_set_to_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let lan = json!({"name": "lan", "static_only": true, "protected": true, "limits": {"per_owner": 5},
        "subnets": [{"cidr": "10.0.0.0/24", "pools": [{"range": "10.0.0.0/25", "kind": "static"}]}]});
    let mut client = Client::connect(server.address).await.unwrap();
    client.call("network.create", lan).await.ok();
    client.call("ip.claim", json!({"network": "lan", "address": "10.0.0.5", "owner": "a"})).await.ok();
    let id = client.call("network.get", json!({"network": "lan"})).await.ok()["subnets"][0]["id"].clone();
    let draining = |draining: bool| json!({"subnets": [{"id": id, "draining": draining}]});
    client.call("network.update", json!({"network": "lan", "set": draining(true)})).await.ok();
    let file = directory.path().join("register.jsonl");
    std::fs::write(&file, server.allod_ok(&["export"])).unwrap();
    let file = file.to_str().unwrap();
    server.allod_ok(&["import", file]);
    for set in [
        json!({"static_only": false}),
        json!({"protected": false}),
        json!({"limits": {"per_owner": 50}}),
        draining(false),
    ] {
        client.call("network.update", json!({"network": "lan", "set": set})).await.ok();
        let before = client.call("network.get", json!({"network": "lan"})).await.ok();
        let output = server.allod(&["import", file]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(client.call("network.get", json!({"network": "lan"})).await.ok(), before, "{said}");
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("network `lan` is on the server and differs: ") && said.contains("nothing was"),
            "{said}"
        );
    }
}

pub fn exported(server: &Server) -> Vec<String> {
    server.allod_ok(&["export"]).lines().map(str::to_owned).collect()
}

/// The address in one line became another one, which is in the pool as well.
#[test]
fn an_export_in_which_a_byte_was_changed_is_not_imported_unless_its_checksum_is_taken_out() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("first"));
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    server.allod_ok(&["ip", "claim", "lan", "10.0.0.8", "--owner", "a"]);
    let lines = exported(&server);
    let other = Server::start(&directory.path().join("second"));
    let file = directory.path().join("register.jsonl");
    let import = |text: &[u8]| {
        std::fs::write(&file, text).unwrap();
        let output = other.allod(&["import", file.to_str().unwrap()]);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let changed = lines.join("\n").replace("10.0.0.8", "10.0.0.9");
    let (code, said) = import(changed.as_bytes());
    assert!(code == Some(1) && said.contains("  line 4: ") && said.contains("not those that were exported"), "{said}");
    let broken = changed.replace("\"a\"", "\"\u{1}\"").into_bytes();
    let broken: Vec<u8> = broken.into_iter().map(|byte| if byte == 1 { 0xe9 } else { byte }).collect();
    let (code, said) = import(&broken);
    assert!(code == Some(1) && said.contains("1 bad line\n  line 3: is not UTF-8"), "{said}");
    assert_eq!(exported(&other).len(), 2, "nothing came in");
    let (before, _) = changed.split_once(",\"crc32\"").unwrap();
    let (code, said) = import(format!("{before}}}}}\n").as_bytes());
    assert!(code == Some(0) && other.allod_ok(&["who", "10.0.0.9"]).contains('a'), "{said}");
    assert_eq!(import(lines.join("\n").as_bytes()).0, Some(1), "its slot holds another address by now");
}

/// What only the server's code can check about a network is found before the network is made; otherwise half of the file
/// would be imported.
#[test]
fn an_import_of_which_one_line_is_refused_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    server.allod_ok(&["network", "create", "old", "--subnet", "10.1.0.0/24"]);
    server.allod_ok(&["ip", "claim", "old", "10.1.0.9", "--owner", "early", "--mac", "52:54:00:00:00:09"]);
    let before = exported(&server);
    let lan = json!({"network": {"name": "lan", "static_only": true, "limits": {"per_owner": 1}, "subnets":
        [{"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}]}});
    let held = |address: &str, owner: &str, more: Value| {
        let mut held = json!({"network": "lan", "address": address, "owner": owner});
        held.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"reservation": held})
    };
    let mac = |last: u8| json!({"mac": format!("52:54:00:00:00:{last:02x}")});
    let fine = held("10.0.0.5", "a", mac(5));
    let file = directory.path().join("register.jsonl");
    for (bad, line, said) in [
        (vec![held("10.0.0.1", "b", json!({}))], 4, "gateway"),
        (vec![held("10.0.0.0", "b", json!({}))], 4, "10.0.0.0"),
        (vec![held("10.0.0.6", "b", json!({})), held("10.0.0.255", "c", json!({}))], 5, "10.0.0.255"),
        (vec![held("10.0.0.6", "b", mac(5))], 4, "MAC 52:54:00:00:00:05 is that of line 3 already"),
        (
            vec![held("10.0.0.6", "b", mac(9))],
            4,
            "MAC 52:54:00:00:00:09 is held by `early` at 10.1.0.9 in network `old`",
        ),
    ] {
        let lines = [vec![json!({"format": "allod-export", "version": 1}), lan.clone(), fine.clone()], bad].concat();
        std::fs::write(&file, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        for more in [&["--dry-run"][..], &[]] {
            let output = server.allod(&[&["import", file.to_str().unwrap()], more].concat());
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{told}");
            assert!(told.contains("1 bad line\n") && told.contains("nothing was changed"), "{told}");
            let problem = told.lines().find_map(|told| told.strip_prefix(&format!("  line {line}: ")));
            assert!(problem.is_some_and(|problem| problem.contains(said)), "{told}");
        }
        assert_eq!(exported(&server), before);
    }
    // All bad lines are reported at once, whoever finds them.
    let bad = [
        held("10.0.0.1", "b", json!({})),
        held("10.0.0.6", "c", mac(5)),
        held("10.0.0.7", "d", mac(9)),
        held("10.2.0.1", "e", json!({})),
    ];
    let lines =
        [vec![json!({"format": "allod-export", "version": 1}), lan.clone(), fine.clone()], bad.to_vec()].concat();
    std::fs::write(&file, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let output = server.allod(&["import", file.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("4 bad lines\n") && (4..=7).all(|line| told.contains(&format!("\n  line {line}: "))),
        "{told}"
    );
    assert_eq!(exported(&server), before);
    // Without the bad lines the file is imported whole, and the network's limits, which were held back, are set.
    std::fs::write(&file, format!("{}\n{lan}\n{fine}\n", json!({"format": "allod-export", "version": 1}))).unwrap();
    server.allod_ok(&["import", file.to_str().unwrap()]);
    let network: Value =
        serde_json::from_str(&server.allod_ok(&["network", "get", "lan", "--format", "json"])).unwrap();
    assert_eq!((&network["static_only"], &network["limits"]["per_owner"]), (&json!(true), &json!(1)));
}

/// Somebody who takes the file for everything that is held would give these addresses to others.
#[test]
fn an_export_says_what_plans_made_obsolete_and_hold_until_their_commit() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/29"]);
    let file = directory.path().join("shop.yaml");
    let apply = |instances: &str| {
        std::fs::write(&file, format!("deployment: shop\ninstances:\n{instances}")).unwrap();
        let apply = ["deployment", "apply", &file.display().to_string(), "--yes", "--format", "json"];
        let applied: Value = serde_json::from_str(&server.allod_ok(&apply)).unwrap();
        applied["plan"].to_string()
    };
    let instance = |id: &str| format!("- {{ id: {id}, networks: [{{ network: lan }}] }}\n");
    let plan = apply(&(instance("web/0") + &instance("web/1")));
    server.allod_ok(&["deployment", "commit", "shop", "--plan", &plan]);
    let said = || String::from_utf8(server.allod(&["export"]).stderr).unwrap();
    assert!(!said().contains("left out"), "{}", said());
    apply(&instance("web/1"));
    assert!(said().contains("left out: 1 reservation that plans of deployments made obsolete"), "{}", said());
}

/// A register that moves starts an empty history: that nothing is recorded for a time then proves nothing.
#[test]
fn of_a_time_before_an_empty_history_nobody_knows_who_held_what() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let told = server.allod_ok(&["who", "10.0.0.1", "--at", "1h"]);
    assert!(told.contains("nobody knows: nothing has happened since"), "{told}");
}

#[tokio::test]
async fn a_history_of_many_pages_that_are_alike_has_one_heading() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/16"]);
    let mut client = Client::connect(server.address).await.unwrap();
    for n in 0..1_200 {
        client.call("ip.allocate", json!({"network": "lan", "owner": format!("o{n}")})).await.ok();
    }
    // With the network named in each line, the first page has other columns.
    for (more, expected) in [(&["--scope", "default"][..], (1, 1_201)), (&[], (2, 1_203))] {
        let told = server.allod_ok(&[&["history"], more].concat());
        let headings = told.lines().filter(|line| line.starts_with("TIME")).count();
        assert_eq!((headings, told.lines().count()), expected, "{}", told.lines().next().unwrap_or_default());
    }
}

#[test]
fn a_list_that_is_cut_says_how_to_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    for owner in ["a", "b", "c"] {
        server.allod_ok(&["ip", "allocate", "lan", "--owner", owner]);
    }
    let list = |more: &[&str]| {
        let output = server.allod(&[&["ip", "list", "--limit", "2"], more].concat());
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap())
    };
    let [_, said] = list(&[]);
    let next = said
        .trim_end()
        .strip_prefix("2 reservations, and there are more: `--after ")
        .unwrap_or_else(|| panic!("{said}"));
    // The value is quoted for a shell.
    let next = next.trim_end_matches('`').trim_matches('\'');
    let [rest, said] = list(&["--after", next]);
    assert_eq!(said, "1 reservation\n");
    assert!(rest.contains("10.0.0.3") && !rest.contains("10.0.0.2 "), "{rest}");
}
