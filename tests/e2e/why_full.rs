//! `allod network why-full` where addresses are free and no block fits.

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
