//! Leases of other programs that end while a run lasts.

use serde_json::{Value, json};

use crate::liar::Liar;
use crate::program::Server;

/// Fills a network in which somebody else has a lease with this many seconds left, which ends when the first address is
/// granted. Returns the exit code and the report.
fn beside_a_lease_that_ends(seconds: u64, cooldown: u64, listing: &str) -> (i32, Value) {
    let server = Server::start();
    // This liar is moved into a thread that never ends, so it must not own a server.
    let stranger = Liar::beside(server.address, |_, answer| vec![answer]);
    let network = json!({"name": "load-00", "realm": "load-00", "cooldown_seconds": cooldown, "policy": "lowest",
        "subnets": [{"cidr": "10.0.0.0/24"}]});
    assert!(stranger.call("network.create", &network)["result"].is_object());
    let lease = json!({"network": "load-00", "owner": "somebody/0", "ttl_seconds": 3_600});
    assert!(stranger.call("ip.allocate", &lease)["result"].is_object());
    let mut has_ended = false;
    let beside = Liar::beside(server.address, move |request, mut answer| {
        if request["method"] == "ip.list" {
            let held = answer["result"]["reservations"].as_array_mut().unwrap();
            let leases = held.iter_mut().filter(|held| held["owner"] == "somebody/0");
            leases.for_each(|lease| lease["expires_in_seconds"] = json!(seconds));
        }
        if request["method"] == "ip.allocate" && !has_ended {
            has_ended = true;
            let let_go = stranger.call("ip.release", &json!({"network": "load-00", "owner": "somebody/0"}));
            assert_eq!(let_go["result"]["released"].as_array().map(Vec::len), Some(1), "{let_go}");
        }
        vec![answer]
    });
    beside.reported_by(&["run", "fill", "--no-create", "--requests", "100", "--listing", listing])
}

#[test]
fn a_lease_of_somebody_else_that_is_over_is_no_fault() {
    // Without a cooldown its address is granted to the run, with one to nobody.
    for cooldown in [0, 3_600] {
        for listing in ["always", "never"] {
            let (code, report) = beside_a_lease_that_ends(0, cooldown, listing);
            let told = (code, &report["faults"], &report["not_made"]);
            assert_eq!(told, (0, &json!({}), &Value::Null), "{cooldown} {listing}: {report}");
            assert_eq!((&report["held"], &report["held_by_server"]), (&json!(100), &json!(100)), "{report}");
        }
    }
}

#[test]
fn a_lease_that_was_to_last_and_is_gone_is_a_fault() {
    for (cooldown, rule) in [(0, "no_address_twice"), (3_600, "listing_agrees")] {
        let (code, report) = beside_a_lease_that_ends(3_600, cooldown, "auto");
        assert_eq!((code, report["faults"][rule].is_u64()), (1, true), "{report}");
    }
}
