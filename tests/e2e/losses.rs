//! What changes of a network take away or replace beside what they say, against the server itself.

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
