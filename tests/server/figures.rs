//! What `/metrics` says about space; for what it counts see `counted`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use allod::actors::service::Hooks;
use allod::core::command::Command;
use serde_json::json;

use crate::support::{Client, TestServer, http, line, patient};

/// All values by name and labels, as written.
pub fn scrape(server: &TestServer) -> BTreeMap<String, f64> {
    let text = http(server.running.http, "GET /metrics", b"").1;
    let values = text.lines().filter(|line| !line.starts_with('#'));
    values
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// Waits until the published figures are these.
pub fn shows(server: &TestServer, expected: &[(&str, f64)]) -> BTreeMap<String, f64> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let found = scrape(server);
        let wrong: Vec<_> = expected
            .iter()
            .filter(|(name, value)| found.get(*name) != Some(value))
            .map(|(name, value)| (name, value, found.get(*name)))
            .collect();
        if wrong.is_empty() {
            return found;
        }
        assert!(Instant::now() < end, "{wrong:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn lan(client: &mut Client) {
    let pools = json!([
        {"range": "10.0.0.0-10.0.0.127", "name": "machines"},
        {"range": "10.0.0.128-10.0.0.191", "kind": "static"},
    ]);
    let reserved = json!([{"range": "10.0.0.100-10.0.0.103"}]);
    let subnets = json!([
        {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "pools": pools, "reserved": reserved},
        {"cidr": "2001:db8::/120"},
    ]);
    client.ok("network.create", json!({"name": "lan", "realm": "blue", "cooldown_seconds": 600, "subnets": subnets}));
}

#[test]
fn every_address_counts_once_and_what_networks_do_is_counted() {
    let server = TestServer::new();
    let mut client = server.client();
    lan(&mut client);
    for owner in ["a", "b", "c"] {
        client.ok("ip.allocate", json!({"network": "lan", "owner": owner, "family": 4}));
    }
    client.ok("ip.claim", json!({"network": "lan", "owner": "s", "address": "10.0.0.130"}));
    client.ok("ip.allocate", json!({"network": "lan", "owner": "block", "prefix_length": 28, "family": 4}));
    client.ok("ip.allocate", json!({"network": "lan", "owner": "six", "family": 6}));
    client.ok("ip.release", json!({"network": "lan", "owner": "a"}));
    client.ok("ip.decline", json!({"network": "lan", "address": "10.0.0.3", "owner": "b", "seen": "somebody"}));
    for _ in 0..2 {
        assert_eq!(
            client.kind("ip.allocate", json!({"network": "lan", "owner": "z", "prefix_length": 25, "family": 4})),
            "not_enough_capacity"
        );
    }
    assert_eq!(
        client.kind("ip.claim", json!({"network": "lan", "owner": "z", "address": "10.0.0.130"})),
        "already_in_use"
    );
    let labels = "family=\"4\",network=\"lan\",realm=\"blue\"";
    let of = |name: &str| format!("allod_network_addresses_{name}{{{labels}}}");
    // Held are c, the claim, and sixteen of the block. Beside them: network, broadcast and gateway address, four reserved
    // ones.
    let expected: Vec<(String, f64)> = [
        ("size", 256.0),
        ("held", 18.0),
        ("held_static", 1.0),
        ("reserved", 7.0),
        ("cooling", 1.0),
        ("declined", 1.0),
        ("free", 229.0),
    ]
    .map(|(name, value)| (of(name), value))
    .into();
    let expected: Vec<(&str, f64)> = expected.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let found = shows(&server, &expected);
    let value = |name: &str| found.get(name).copied().unwrap_or_else(|| panic!("{name} is missing in {found:#?}"));
    let parts = ["held", "reserved", "cooling", "declined", "free"].map(|part| value(&of(part)));
    assert_eq!(parts.iter().sum::<f64>(), value(&of("size")));
    let one = "network=\"lan\",realm=\"blue\"";
    assert_eq!(value(&format!("allod_network_grants_total{{{one}}}")), 6.0);
    assert_eq!(value(&format!("allod_network_releases_total{{{one},reason=\"released\"}}")), 1.0);
    assert_eq!(value(&format!("allod_network_releases_total{{{one},reason=\"declined\"}}")), 1.0);
    assert_eq!(
        value(&format!("allod_network_releases_total{{{one},reason=\"swept\"}}")),
        0.0,
        "the first is to be a rise"
    );
    assert_eq!(value(&format!("allod_network_refusals_total{{kind=\"not_enough_capacity\",{one}}}")), 2.0);
    assert_eq!(value(&format!("allod_network_refusals_total{{kind=\"already_in_use\",{one}}}")), 1.0);
    assert!(
        !found.contains_key(&format!("allod_network_refusals_total{{kind=\"reserved\",{one}}}")),
        "it never occurred"
    );
    assert_eq!(value(&format!("allod_network_reservations{{{one}}}")), 4.0);
    let pool = "family=\"4\",kind=\"dynamic\",network=\"lan\",pool=\"10.0.0.0-10.0.0.127\",realm=\"blue\",subnet=\"10.0.0.0/24\"";
    assert_eq!(value(&format!("allod_pool_addresses_held{{{pool}}}")), 17.0);
    assert_eq!(value(&format!("allod_pool_largest_free_block_addresses{{{pool}}}")), 32.0);
    let fixed = pool.replace("dynamic", "static").replace("10.0.0.0-10.0.0.127", "10.0.0.128-10.0.0.191");
    assert_eq!(value(&format!("allod_pool_addresses_held{{{fixed}}}")), 1.0);
    assert_eq!(
        value("allod_subnet_addresses_held{family=\"6\",network=\"lan\",realm=\"blue\",subnet=\"2001:db8::/120\"}"),
        1.0
    );
    assert_eq!(value("allod_realm_addresses_held{family=\"4\",realm=\"blue\"}"), 18.0);
    assert_eq!(value("allod_realm_networks{realm=\"blue\"}"), 1.0);
}

#[test]
fn the_fullest_networks_are_shown_and_the_realms_count_all() {
    let server = TestServer::with(|options| options.config.metrics.networks_max = 2);
    let mut client = server.client();
    for (at, name) in ["full", "fuller", "empty", "large"].iter().enumerate() {
        let cidr = if *name == "large" { "10.8.0.0/16".to_owned() } else { format!("10.{at}.0.0/29") };
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": cidr}]}));
    }
    for (name, count) in [("full", 3), ("fuller", 5)] {
        for n in 0..count {
            client.ok("ip.allocate", json!({"network": name, "owner": format!("o{n}")}));
        }
    }
    let found = shows(
        &server,
        &[
            ("allod_network_addresses_held{family=\"4\",network=\"fuller\",realm=\"default\"}", 5.0),
            ("allod_network_addresses_held{family=\"4\",network=\"full\",realm=\"default\"}", 3.0),
            ("allod_realm_addresses_held{family=\"4\",realm=\"default\"}", 8.0),
            ("allod_realm_addresses_size{family=\"4\",realm=\"default\"}", 65_560.0),
            ("allod_realm_networks{realm=\"default\"}", 4.0),
            ("allod_networks", 4.0),
            ("allod_metrics_networks_dropped", 2.0),
        ],
    );
    assert!(found.keys().all(|name| !name.contains("network=\"large\"") && !name.contains("network=\"empty\"")));
}

#[test]
fn when_a_network_will_be_full_is_told_while_it_fills() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let name = "allod_network_exhausted_in_seconds{family=\"4\",network=\"lan\",realm=\"default\"}";
    assert_eq!(scrape(&server).get(name), None, "nothing was granted");
    let held = "allod_network_addresses_held{family=\"4\",network=\"lan\",realm=\"default\"}";
    for n in 0..10 {
        server.clock.advance_ms(10_000);
        client.allocate(&format!("o{n}"));
        shows(&server, &[(held, f64::from(n + 1))]);
    }
    // One in ten seconds, with 243 of 253 left.
    let seconds = scrape(&server)[name];
    assert!((2_000.0..3_000.0).contains(&seconds), "{seconds}");
    // Not for ever: it ended.
    server.clock.advance_ms(3_600_000);
    let later = scrape(&server).get(name).copied();
    assert!(later.is_none_or(|later| later > 10.0 * seconds), "{later:?}");
}

#[test]
fn a_network_is_told_full_when_nothing_can_be_granted_whatever_is_free_beside() {
    let server = TestServer::new();
    let mut client = server.client();
    let pools = json!([
        {"range": "10.0.0.16-10.0.0.31"},
        {"range": "10.0.0.64-10.0.0.127", "kind": "static"},
        {"range": "10.0.0.128-10.0.0.255", "draining": true}
    ]);
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24", "pools": pools}]}));
    // Subnets without pools do not count as room.
    client.ok("subnet.add", json!({"network": "lan", "cidr": "10.1.0.0/16", "pools": []}));
    let of = |part: &str| format!("allod_network_{part}{{family=\"4\",network=\"lan\",realm=\"default\"}}");
    let (left, size) = (of("addresses_grantable"), of("addresses_grantable_size"));
    shows(&server, &[(&left, 16.0), (&size, 16.0)]);
    for n in 0..16 {
        server.clock.advance_ms(10_000);
        client.allocate(&format!("o{n}"));
        shows(&server, &[(&left, f64::from(15 - n)), (&size, 16.0)]);
        if n == 11 {
            // About ten seconds for each of four, whatever is free elsewhere.
            let seconds = scrape(&server)[&of("exhausted_in_seconds")];
            assert!((30.0..60.0).contains(&seconds), "{seconds}");
        }
    }
    assert_eq!(client.kind("ip.allocate", json!({"network": "lan", "owner": "late"})), "not_enough_capacity");
    assert_eq!(scrape(&server).get(&of("exhausted_in_seconds")), None, "it is full, and not in a while");
}

#[test]
fn the_largest_block_is_one_that_would_be_granted() {
    let server = TestServer::new();
    let mut client = server.client();
    // Larger free space lies where nothing is granted from.
    let pools = json!([{"range": "10.0.1.0/30"}, {"range": "10.0.128.0/18", "kind": "static"}]);
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16", "pools": pools}]}));
    let yields = json!({"name": "yields", "cooldown_seconds": 600, "cooldown_yields": true,
        "subnets": [{"cidr": "10.1.0.0/24", "pools": [{"range": "10.1.0.16/28"}]}]});
    client.ok("network.create", yields);
    let block = |owner: &str, network: &str| json!({"network": network, "owner": owner, "prefix_length": 28});
    client.ok("ip.allocate", block("a", "yields"));
    client.ok("ip.release", json!({"network": "yields", "owner": "a"}));
    let name = "allod_network_largest_free_block_addresses";
    let of = |network: &str| format!("{name}{{family=\"4\",network=\"{network}\",realm=\"default\"}}");
    shows(&server, &[(&of("lan"), 4.0), (&of("yields"), 16.0)]);
    assert_eq!(client.kind("ip.allocate", block("b", "lan")), "not_enough_capacity");
    client.ok("ip.allocate", block("b", "yields"));
    shows(&server, &[(&of("lan"), 4.0), (&of("yields"), 0.0)]);
}

/// A dynamic network has no subnets in which they could be counted.
#[test]
fn what_a_dynamic_network_has_written_down_counts_as_held_there() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "cloud", "kind": "dynamic"}));
    for n in 1..4 {
        let address = format!("10.0.0.{n}");
        client.ok("ip.bind", json!({"network": "cloud", "address": address, "owner": address, "claimant": "vm"}));
    }
    client.ok("ip.release", json!({"network": "cloud", "address": "10.0.0.2", "owner": "10.0.0.2"}));
    shows(&server, &[("allod_network_reservations{network=\"cloud\",realm=\"default\"}", 2.0)]);
}

#[test]
fn a_filled_subnet_that_moves_here_is_no_growth() {
    let server = TestServer::new();
    let mut client = server.client();
    for (name, cidr) in [("lan", "10.0.0.0/24"), ("dmz", "10.1.0.0/24")] {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": cidr}]}));
    }
    for n in 0..40 {
        client.ok("ip.allocate", json!({"network": "dmz", "owner": format!("o{n}")}));
    }
    let of = |part: &str| format!("allod_network_{part}{{family=\"4\",network=\"lan\",realm=\"default\"}}");
    shows(&server, &[(&of("addresses_held"), 0.0)]);
    server.clock.advance_ms(120_000);
    client.ok("subnet.move", json!({"network": "dmz", "subnet": "10.1.0.0/24", "to": "lan"}));
    shows(&server, &[(&of("addresses_held"), 40.0)]);
    server.clock.advance_ms(10_000);
    assert_eq!(scrape(&server).get(&of("exhausted_in_seconds")), None);
}

#[test]
fn networks_with_whom_something_is_wrong_are_shown_however_many_there_may_be() {
    let server = TestServer::with(|options| options.config.metrics.networks_max = 1);
    let mut client = server.client();
    for (at, name) in ["full", "refuses", "declines", "quiet", "quieter"].iter().enumerate() {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": format!("10.{at}.0.0/24")}]}));
    }
    for n in 0..200 {
        client.ok("ip.allocate", json!({"network": "full", "owner": format!("o{n}")}));
    }
    // The subnet's own address and its last one lie in its two halves.
    let lack = json!({"network": "refuses", "owner": "late", "prefix_length": 25});
    assert_eq!(client.kind("ip.allocate", lack), "not_enough_capacity");
    let held = client.ok("ip.allocate", json!({"network": "declines", "owner": "o"}));
    client.ok("ip.decline", json!({"network": "declines", "address": held["address"], "owner": "o"}));
    let found = shows(
        &server,
        &[
            ("allod_network_refusals_total{kind=\"not_enough_capacity\",network=\"refuses\",realm=\"default\"}", 1.0),
            ("allod_network_releases_total{network=\"declines\",realm=\"default\",reason=\"declined\"}", 1.0),
            ("allod_network_addresses_held{family=\"4\",network=\"full\",realm=\"default\"}", 200.0),
            ("allod_metrics_networks_dropped", 2.0),
        ],
    );
    assert!(found.keys().all(|name| !name.contains("network=\"quiet")));
}

#[test]
fn who_waited_for_capacity_is_not_told_as_slow() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/30"}], "cooldown_seconds": 0}));
    for owner in ["a", "b"] {
        client.ok("ip.allocate", json!({"network": "lan", "owner": owner}));
    }
    let mut waiter = server.client();
    waiter.send("ip.allocate", json!({"network": "lan", "owner": "w", "wait_seconds": 60}));
    shows(&server, &[("allod_network_waiting_requests{network=\"lan\",realm=\"default\"}", 1.0)]);
    client.ok("ip.release", json!({"network": "lan", "owner": "a"}));
    assert!(waiter.answer()["result"]["address"].is_string());
    shows(
        &server,
        &[
            ("allod_request_waited_duration_seconds_count{method=\"ip.allocate\"}", 1.0),
            ("allod_request_duration_seconds_count{method=\"ip.allocate\"}", 2.0),
            ("allod_requests_total{method=\"ip.allocate\",outcome=\"ok\"}", 3.0),
        ],
    );
}

/// What is left of a message goes on once the network is loaded again.
#[test]
fn a_message_that_is_handled_in_pieces_has_waited_once() {
    let came = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&came);
    let before_work = move |_: &Command| {
        counts.fetch_add(1, Ordering::SeqCst);
    };
    let before_decide = |command: &Command| {
        if matches!(command, Command::Allocate(ask) if ask.holder.owner.as_str() == "bomb") {
            panic!("as asked");
        }
    };
    let (before_work, before_decide) = (Some(Arc::new(before_work) as _), Some(Arc::new(before_decide) as _));
    let server = TestServer::hooked(Hooks { before_work, before_decide, ..patient() });
    let mut client = server.with_lan();
    let ask = |id: u64, owner: &str| line(id, "ip.allocate", &json!({"network": "lan", "owner": owner}));
    client.raw(ask(100, "bomb") + &ask(101, "next"));
    assert_eq!(client.answer()["error"]["data"]["kind"], "internal");
    assert_eq!(client.answer()["result"]["address"], "10.0.0.2");
    let waited = scrape(&server)["allod_queue_duration_seconds_count"];
    assert_eq!(waited, came.load(Ordering::SeqCst) as f64, "how many messages waited");
}

#[test]
fn a_deployment_that_nobody_commits_is_told_with_its_age() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    shows(&server, &[("allod_deployments_uncommitted", 0.0), ("allod_deployments_uncommitted_oldest_seconds", 0.0)]);
    let instances = json!([{"id": "web/0", "networks": [{"network": "lan"}]}]);
    let applied = client.ok("deployment.apply", json!({"deployment": "shop", "instances": instances}));
    server.clock.advance_ms(90_000);
    shows(&server, &[("allod_deployments_uncommitted", 1.0), ("allod_deployments_uncommitted_oldest_seconds", 90.0)]);
    client.ok("deployment.commit", json!({"deployment": "shop", "plan": applied["plan"]}));
    shows(&server, &[("allod_deployments_uncommitted", 0.0), ("allod_deployments_uncommitted_oldest_seconds", 0.0)]);
}
