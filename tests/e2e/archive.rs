//! What is written of a whole register, and read again: `allod export`, `allod import`, `allod ip list` page by page.

use serde_json::Value;

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
    // It is quoted for a shell.
    let next = next.trim_end_matches('`').trim_matches('\'');
    let [rest, said] = list(&["--after", next]);
    assert_eq!(said, "1 reservation\n");
    assert!(rest.contains("10.0.0.3") && !rest.contains("10.0.0.2 "), "{rest}");
}
