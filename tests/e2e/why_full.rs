//! `allod network why-full` if addresses are free and no block fits.

use crate::server::Server;

#[test]
fn the_largest_block_that_fits_is_told_and_it_does_fit() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    server.allod_ok(&["network", "create", "pods", "--subnet", "10.0.0.0/22"]);
    for node in ["a", "b"] {
        server.allod_ok(&["ip", "allocate", "pods", "--owner", node, "--prefix-length", "24"]);
    }
    let third = server.allod(&["ip", "allocate", "pods", "--owner", "c", "--prefix-length", "24"]);
    assert_eq!(third.status.code(), Some(1));
    let output = server.allod(&["network", "why-full", "pods"]);
    let said = String::from_utf8(output.stderr).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("- the largest free block of pool 10.0.0.0-10.0.3.255 is 10.0.0.128/25"), "{said}");
    assert!(said.contains("one that contains the network or broadcast address of its subnet"), "{said}");
    server.allod_ok(&["ip", "claim", "pods", "10.0.0.128/25", "--owner", "c"]);
    server.stop();
}

#[test]
fn what_is_said_of_a_closed_network_is_of_it_and_not_of_another_that_has_its_name_by_now() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let create = |realm: &str| {
        let line = ["network", "create", "lan", "--realm", realm, "--subnet", "10.0.0.0/29", "--format", "json"];
        let made: serde_json::Value = serde_json::from_str(&server.allod_ok(&line)).unwrap();
        made["id"].as_str().unwrap().to_owned()
    };
    let id = create("old");
    for owner in ["a", "b"] {
        server.allod_ok(&["ip", "allocate", "lan", "--owner", owner]);
    }
    let said = |network: &str| {
        let output = server.allod(&["network", "why-full", network]);
        String::from_utf8(output.stderr).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let metrics = server.http.to_string();
    let top = || server.allod_ok(&["top", "--once", "--metrics", &metrics, "--interval", "0", "--network", &id]);
    let is_open = said(&id);
    assert!(is_open.contains("`allod subnet add lan CIDR`") && !is_open.contains("deleted"), "{is_open}");
    assert!(top().contains("\nlan ") && !top().contains("deleted"), "{}", top());

    server.allod_ok(&["network", "delete", "lan", "--force", "--yes"]);
    // First no network has its name, then another one does.
    for other in [false, true] {
        if other {
            create("new");
        }
        let told = said(&id);
        let expected = [
            "network `lan` was deleted, and is remembered for what it holds".to_owned(),
            format!("- 2 held: `allod ip list --network {id} --scope default`"),
            format!("`allod network restore {id}` brings it back; `allod ip release {id} ADDRESS"),
        ];
        assert!(expected.iter().all(|words| told.contains(words)), "{told}");
        assert!(
            !told.contains("free block") && !told.contains("more room") && !told.contains("--network lan"),
            "{told}"
        );
        let shown = top();
        assert!(!shown.contains("\nlan ") && shown.contains("10.0.0.0-10.0.0.7"), "{shown}");
        assert!(shown.contains("! network `lan` was deleted"), "{shown}");
    }
    assert!(said("lan").contains("`allod subnet add lan CIDR`"), "{}", said("lan"));
    server.stop();
}

#[test]
fn a_pool_whose_cooling_addresses_yield_is_not_called_full_while_one_of_them_is_granted() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let options = ["--subnet", "10.0.0.0/30", "--cooldown", "1h", "--cooldown-yields=true"];
    server.allod_ok(&[&["network", "create", "lan"][..], &options].concat());
    for owner in ["a", "b"] {
        server.allod_ok(&["ip", "allocate", "lan", "--owner", owner]);
    }
    let said = || String::from_utf8(server.allod(&["network", "why-full", "lan"]).stderr).unwrap();
    assert!(said().contains("full: 10.0.0.0-10.0.0.3;"), "{}", said());
    server.allod_ok(&["ip", "release", "lan", "10.0.0.1", "--owner", "a"]);
    assert!(said().contains("no pool is full;") && !said().contains("cooldown-yields"), "{}", said());
    server.allod_ok(&["ip", "allocate", "lan", "--owner", "c"]);
    server.stop();
}
