//! What `/metrics` tells of space, and of what networks do.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::faulty::Fault;
use crate::support::{Client, TestServer, http};

/// All values by name and labels, as they are written.
pub fn scrape(server: &TestServer) -> BTreeMap<String, f64> {
    let text = http(server.running.http, "GET /metrics", b"").1;
    let values = text.lines().filter(|line| !line.starts_with('#'));
    values
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// Waits until the figures that were published are these.
fn shows(server: &TestServer, expected: &[(&str, f64)]) -> BTreeMap<String, f64> {
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
            client.kind("ip.allocate", json!({"network": "lan", "owner": "z", "prefix_length": 24, "family": 4})),
            "not_enough_capacity"
        );
    }
    assert_eq!(
        client.kind("ip.claim", json!({"network": "lan", "owner": "z", "address": "10.0.0.130"})),
        "already_in_use"
    );
    let labels = "family=\"4\",network=\"lan\",realm=\"blue\"";
    let of = |name: &str| format!("allod_network_addresses_{name}{{{labels}}}");
    // c, the claim, and sixteen of the block; the network, broadcast and gateway addresses, and the four reserved ones.
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
    // One in ten seconds, and 243 of 253 are left.
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
    // Subnets without pools are no room either.
    client.ok("subnet.add", json!({"network": "lan", "cidr": "10.1.0.0/16", "pools": []}));
    let of = |part: &str| format!("allod_network_{part}{{family=\"4\",network=\"lan\",realm=\"default\"}}");
    let (left, size) = (of("addresses_grantable"), of("addresses_grantable_size"));
    shows(&server, &[(&left, 16.0), (&size, 16.0)]);
    for n in 0..16 {
        server.clock.advance_ms(10_000);
        client.allocate(&format!("o{n}"));
        shows(&server, &[(&left, f64::from(15 - n)), (&size, 16.0)]);
        if n == 11 {
            // Two dozen seconds for each of four, and nothing of what is free elsewhere.
            let seconds = scrape(&server)[&of("exhausted_in_seconds")];
            assert!((30.0..60.0).contains(&seconds), "{seconds}");
        }
    }
    assert_eq!(client.kind("ip.allocate", json!({"network": "lan", "owner": "late"})), "not_enough_capacity");
    assert_eq!(scrape(&server).get(&of("exhausted_in_seconds")), None, "it is full, and not in a while");
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
    // Its own address and the last one are in the halves of it.
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

#[test]
fn a_refusal_counts_where_it_is_answered_and_neither_tries_nor_dry_runs_do() {
    let server = TestServer::new();
    let mut client = server.client();
    let lack = |network: &str| {
        let name = "allod_network_refusals_total";
        let labels = format!("{{kind=\"not_enough_capacity\",network=\"{network}\",realm=\"default\"}}");
        scrape(&server)[&format!("{name}{labels}")]
    };
    for (at, name) in ["lan", "dmz"].iter().enumerate() {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": format!("10.{at}.0.0/30")}]}));
        for owner in ["a", "b"] {
            client.ok("ip.allocate", json!({"network": name, "owner": owner}));
        }
    }
    let release = |client: &mut Client, network: &str, owner: &str| {
        client.ok("ip.release", json!({"network": network, "owner": owner}));
    };
    // One that is granted after it waited, and one that would be refused.
    let mut waiter = server.client();
    waiter.send("ip.allocate", json!({"network": "lan", "owner": "w", "wait_seconds": 60}));
    server.until_waits("lan", 1);
    let asked = json!({"network": "lan", "owner": "z", "dry_run": true});
    assert_eq!(client.kind("ip.allocate", asked), "not_enough_capacity");
    release(&mut client, "lan", "a");
    assert_eq!(waiter.answer()["result"]["address"], "10.0.0.1");
    assert_eq!(lack("lan"), 0.0);
    // The same of two networks, which tries whenever something comes free in one of them.
    let both = |owner: &str, rest: serde_json::Value| {
        let mut asked = json!({"owner": owner, "ips": [{"network": "lan"}, {"network": "dmz"}]});
        asked.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        asked
    };
    waiter.send("ip.acquire", both("several", json!({"wait_seconds": 60})));
    server.until_waits("dmz", 1);
    assert_eq!(client.kind("ip.acquire", both("z", json!({"dry_run": true}))), "not_enough_capacity");
    release(&mut client, "dmz", "a");
    release(&mut client, "lan", "b");
    assert_eq!(waiter.answer()["result"]["reservations"].as_array().unwrap().len(), 2);
    assert_eq!((lack("lan"), lack("dmz")), (0.0, 0.0));
    // What is refused in the end counts once: for one network, for several, and behind a wait.
    assert_eq!(client.kind("ip.allocate", json!({"network": "lan", "owner": "z"})), "not_enough_capacity");
    assert_eq!(lack("lan"), 1.0);
    assert_eq!(client.kind("ip.acquire", both("z", json!({}))), "not_enough_capacity");
    assert_eq!(lack("lan") + lack("dmz"), 2.0, "one answer for both networks");
    for (counted, (method, asked)) in [
        (3.0, ("ip.allocate", json!({"network": "lan", "owner": "late", "wait_seconds": 1}))),
        (4.0, ("ip.acquire", both("late", json!({"wait_seconds": 1})))),
    ] {
        waiter.send(method, asked);
        server.until_waits("lan", 1);
        server.clock.advance_ms(1_000);
        assert_eq!(waiter.answer()["error"]["data"]["kind"], "not_enough_capacity", "{method}");
        assert_eq!(lack("lan") + lack("dmz"), counted, "{method}");
    }
}

#[test]
fn what_a_deployment_and_a_move_are_refused_counts_in_the_network_that_refused() {
    let server = TestServer::new();
    let mut client = server.client();
    for (at, name) in ["lan", "dmz"].iter().enumerate() {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": format!("10.{at}.0.0/30")}]}));
    }
    let count = |kind: &str, network: &str| {
        let labels = format!("{{kind=\"{kind}\",network=\"{network}\",realm=\"default\"}}");
        scrape(&server).get(&format!("allod_network_refusals_total{labels}")).copied().unwrap_or_default()
    };
    let instances: Vec<_> = (0..3)
        .map(|n| json!({"id": format!("web/{n}"), "networks": [{"network": "lan"}, {"network": "dmz"}]}))
        .collect();
    let wishes = json!({"deployment": "shop", "instances": instances});
    assert_eq!(client.kind("deployment.plan", wishes.clone()), "not_enough_capacity");
    assert_eq!(count("not_enough_capacity", "lan") + count("not_enough_capacity", "dmz"), 0.0, "a plan asks");
    assert_eq!(client.kind("deployment.apply", wishes), "not_enough_capacity");
    assert_eq!(count("not_enough_capacity", "lan") + count("not_enough_capacity", "dmz"), 1.0);
    for (counted, dry_run) in [(0.0, true), (1.0, false)] {
        let asked =
            json!({"network": "lan", "subnet": "10.0.0.0/30", "to": "dmz", "if_version": 77, "dry_run": dry_run});
        assert_eq!(client.kind("subnet.move", asked), "conflict");
        assert_eq!((count("conflict", "lan"), count("conflict", "dmz")), (counted, 0.0));
    }
}

#[test]
fn what_a_list_of_all_networks_passes_over_counts_as_no_refusal() {
    let server = TestServer::new();
    let mut client = server.client();
    for (at, name) in ["lan", "dmz"].iter().enumerate() {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": format!("10.{at}.0.0/30")}]}));
        client.ok("ip.allocate", json!({"network": name, "owner": "a"}));
    }
    let missing = |network: &str| {
        let labels = format!("{{kind=\"not_found\",network=\"{network}\",realm=\"default\"}}");
        scrape(&server).get(&format!("allod_network_refusals_total{labels}")).copied().unwrap_or_default()
    };
    // Only one of the two has this subnet, and none this pool.
    let listed = client.ok("ip.list", json!({"subnet": "10.0.0.0/30"}));
    assert_eq!(listed["reservations"].as_array().unwrap().len(), 1);
    assert_eq!(client.ok("ip.list", json!({"pool": "nowhere", "count_only": true}))["count"], 0);
    assert_eq!((missing("lan"), missing("dmz")), (0.0, 0.0));
    assert_eq!(client.kind("ip.list", json!({"network": "dmz", "subnet": "10.0.0.0/30"})), "not_found");
    assert_eq!((missing("lan"), missing("dmz")), (0.0, 1.0), "what is told counts");
}

#[test]
fn a_grant_counts_when_it_is_durable_and_not_when_it_is_given_up() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let done = || {
        let found = scrape(&server);
        let of = |name: &str| found.get(&format!("allod_network_{name}")).copied().unwrap_or_default();
        let one = "network=\"lan\",realm=\"default\"";
        (of(&format!("grants_total{{{one}}}")), of(&format!("releases_total{{{one},reason=\"released\"}}")))
    };
    client.allocate("a");
    assert_eq!(done(), (1.0, 0.0));
    let several = json!({"owner": "b", "ips": [{"network": "lan"}, {"network": "lan"}]});
    for (method, params) in [
        ("ip.allocate", json!({"network": "lan", "owner": "b"})),
        ("ip.release", json!({"network": "lan", "owner": "a"})),
        ("ip.acquire", several.clone()),
    ] {
        server.store.next([Fault::Full]);
        assert_eq!(client.kind(method, params), "unavailable", "{method}");
        assert_eq!(done(), (1.0, 0.0), "{method}");
    }
    client.ok("ip.acquire", several);
    client.ok("owner.release", json!({"owner": "a"}));
    assert_eq!(done(), (3.0, 1.0));
}
