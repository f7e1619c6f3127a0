//! What changes of a network remove or replace beyond what they name, against the server itself.

use crate::server::Server;

fn said(server: &Server, line: &str) -> (Option<i32>, String) {
    let output = server.allod(&line.split(' ').collect::<Vec<_>>());
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn what_a_reserved_range_replaces_is_shown_and_asked_about() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    for line in [
        "network create lan --subnet 10.0.0.0/24",
        "reserved add lan 10.0.0.70 --for-owner a --note printer",
        "reserved add lan 10.0.0.70 --for-owner a",
    ] {
        assert_eq!(said(&server, line).0, Some(0), "{line}");
    }
    let (code, words) = said(&server, "reserved add lan 10.0.0.70 --for-owner b");
    assert!(code == Some(1) && words.contains("- 10.0.0.70 is reserved for `a`, and for `b` from then on"), "{words}");
    let (code, words) = said(&server, "reserved add lan 10.0.0.64/28 --note rack");
    assert!(code == Some(1) && words.contains("this is replaced:\n  - the note of 10.0.0.70: printer\n"), "{words}");
    assert!(server.allod_ok(&["who", "10.0.0.70"]).contains("10.0.0.70 (printer)"));
    assert_eq!(said(&server, "reserved add lan 10.0.0.64/28 --note rack --yes").0, Some(0));
    assert!(server.allod_ok(&["who", "10.0.0.70"]).contains("10.0.0.70 (rack)"));
    server.stop();
}

#[test]
fn a_pool_is_cut_only_with_a_yes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    server.allod_ok(&["ip", "claim", "lan", "10.0.0.200", "--owner", "a"]);
    let cut = "pool modify lan 10.0.0.0/24 --range 10.0.0.0/25";
    let (code, words) = said(&server, cut);
    let part = "- 10.0.0.128-10.0.0.255 of pool 10.0.0.0-10.0.0.255 (1 reservation)";
    assert!(code == Some(1) && words.contains(part), "{words}");
    assert_eq!(said(&server, &format!("{cut} --yes")).0, Some(0));
    server.allod_ok(&["ip", "release", "lan", "10.0.0.200", "--owner", "a"]);
    let shrink = "subnet modify lan 10.0.0.0/24 --cidr 10.0.0.0/26";
    let (code, words) = said(&server, shrink);
    assert!(code == Some(1) && words.contains("- cut pool 10.0.0.0-10.0.0.127 to 10.0.0.0-10.0.0.63"), "{words}");
    assert_eq!(said(&server, &format!("{shrink} --yes")).0, Some(0));
    server.stop();
}
