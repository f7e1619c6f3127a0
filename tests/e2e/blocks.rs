//! Blocks on the command line: the form that is printed is the form that the next command takes.

use crate::server::Server;

#[test]
fn what_is_printed_of_a_block_is_what_every_command_takes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    let claimed = server.allod_ok(&["ip", "claim", "lan", "10.0.0.16/28", "--owner", "pod/0"]);
    let printed = claimed.lines().find_map(|line| line.strip_prefix("address")).unwrap().trim().to_owned();
    assert_eq!(printed, "10.0.0.16/28");
    for line in [
        "ip renew lan 10.0.0.16/28 --ttl 1h",
        "ip bind lan 10.0.0.16/28 --claimant vm",
        "ip unbind lan 10.0.0.16/28 --claimant vm",
        "ip update lan 10.0.0.16/28 --note rack",
        "ip transfer lan 10.0.0.16/28 --owner pod/0 --to-owner pod/1",
        "who 10.0.0.16/28",
        "history 10.0.0.16/28",
        "ip get 10.0.0.16/28",
    ] {
        assert!(server.allod_ok(&line.split(' ').collect::<Vec<_>>()).contains("10.0.0.16"), "{line}");
    }
    let other = server.allod(&["ip", "release", "lan", "10.0.0.16/29", "--owner", "pod/1"]);
    assert!(String::from_utf8_lossy(&other.stderr).contains("what is held there is 10.0.0.16/28, by `pod/1`"));
    let released = server.allod_ok(&["ip", "release", "lan", &printed, "--owner", "pod/1"]);
    assert_eq!(released, "ADDRESS\n10.0.0.16/28\n");
    // A repeated release finds nothing there, just like a repeat by the first address.
    assert_eq!(server.allod_ok(&["ip", "release", "lan", &printed, "--owner", "pod/1"]), "");
    server.stop();
}
