//! What `/metrics` counts for networks: grants, ends and refusals, each once and under the name of its network.

use serde_json::json;

use crate::faulty::Fault;
use crate::figures::{scrape, shows};
use crate::support::{Client, TestServer};

/// How often a network refused something with this kind; 0 if there is no row.
fn refusals(server: &TestServer, kind: &str, network: &str) -> f64 {
    let labels = format!("{{kind=\"{kind}\",network=\"{network}\",realm=\"default\"}}");
    scrape(server).get(&format!("allod_network_refusals_total{labels}")).copied().unwrap_or_default()
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
    // A request that is granted after it waited, and one that will be refused.
    let mut waiter = server.client();
    waiter.send("ip.allocate", json!({"network": "lan", "owner": "w", "wait_seconds": 60}));
    server.until_waits("lan", 1);
    let asked = json!({"network": "lan", "owner": "z", "dry_run": true});
    assert_eq!(client.kind("ip.allocate", asked), "not_enough_capacity");
    release(&mut client, "lan", "a");
    assert_eq!(waiter.answer()["result"]["address"], "10.0.0.1");
    assert_eq!(lack("lan"), 0.0);
    // A wait for two networks, which is retried whenever something becomes free in one of them.
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
    // A refusal counts once: for one network, for several, and after a wait.
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

/// A request for what the network never had must not raise an alarm: the network is not full.
#[test]
fn what_no_pool_of_a_network_is_counts_as_no_want_of_room() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([
        {"cidr": "10.0.0.0/24", "zones": ["z1"], "pools": [{"range": "10.0.0.16/30"}, {"range": "10.0.0.32/30", "name": "fixed", "kind": "static"}]},
        {"cidr": "10.0.1.0/24", "pools": []},
    ]);
    client.ok("network.create", json!({"name": "lan", "subnets": subnets}));
    let count = || (refusals(&server, "not_enough_capacity", "lan"), refusals(&server, "no_pool_fits", "lan"));
    let ask = |more: &serde_json::Value| {
        let mut ask = json!({"network": "lan", "owner": "z"});
        ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ask
    };
    let none = [
        json!({"family": 6}),
        json!({"zone": "z2"}),
        json!({"subnet": "10.0.1.0/24"}),
        json!({"pool": "fixed"}),
        json!({"prefix_length": 29}),
        json!({"family": 6, "wait_seconds": 1}),
    ];
    for (at, more) in none.iter().enumerate() {
        client.send("ip.allocate", ask(more));
        if more["wait_seconds"].is_u64() {
            server.until_waits("lan", 1);
            server.clock.advance_ms(1_000);
        }
        assert_eq!(client.answer()["error"]["data"]["kind"], "not_enough_capacity", "{more}");
        assert_eq!(count(), (0.0, 1.0 + at as f64), "{more}");
    }
    let lacks = none.len() as f64;
    let acquire = json!({"owner": "z", "ips": [{"network": "lan"}, {"network": "lan", "slot": "six", "family": 6}]});
    assert_eq!(client.kind("ip.acquire", acquire), "not_enough_capacity");
    assert_eq!(count(), (0.0, lacks + 1.0), "it lacks one of two");
    // Now it is full for what it has.
    for owner in ["a", "b", "c", "d"] {
        client.ok("ip.allocate", json!({"network": "lan", "owner": owner}));
    }
    for more in [json!({}), json!({"zone": "z1"}), json!({"family": 4}), json!({"prefix_length": 31})] {
        assert_eq!(client.kind("ip.allocate", ask(&more)), "not_enough_capacity", "{more}");
    }
    assert_eq!(count(), (4.0, lacks + 1.0));
    // A renamed network starts again at 0.
    client.ok("network.update", json!({"network": "lan", "set": {"name": "wan"}}));
    assert_eq!(refusals(&server, "no_pool_fits", "wan"), 0.0);
}

#[test]
fn what_a_deployment_and_a_move_are_refused_counts_in_the_network_that_refused() {
    let server = TestServer::new();
    let mut client = server.client();
    for (at, name) in ["lan", "dmz"].iter().enumerate() {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": format!("10.{at}.0.0/30")}]}));
    }
    let count = |kind: &str, network: &str| refusals(&server, kind, network);
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
    let missing = |network: &str| refusals(&server, "not_found", network);
    // Only one of the two has this subnet, and neither has this pool.
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

#[test]
fn what_a_revert_makes_current_again_counts_as_no_end() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut apply = |instances: &[&str], how: &str| {
        let instances: Vec<_> =
            instances.iter().map(|id| json!({"id": id, "networks": [{"network": "lan"}]})).collect();
        let applied = client.ok("deployment.apply", json!({"deployment": "shop", "instances": instances}));
        client.ok(how, json!({"deployment": "shop", "plan": applied["plan"]}));
    };
    let ended = || {
        let labels = "{network=\"lan\",realm=\"default\",reason=\"reverted\"}";
        scrape(&server).get(&format!("allod_network_releases_total{labels}")).copied().unwrap_or_default()
    };
    apply(&["web/0", "web/1"], "deployment.commit");
    apply(&[], "deployment.revert");
    assert_eq!(ended(), 0.0);
    apply(&["web/0", "web/1", "web/2"], "deployment.revert");
    assert_eq!(ended(), 1.0);
}

/// Otherwise a rise would be reported for a network that did nothing.
#[test]
fn what_a_network_did_is_counted_under_the_name_that_it_had_then() {
    let server = TestServer::new();
    let mut client = server.client();
    for (at, name) in ["full", "fresh"].iter().enumerate() {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": format!("10.{at}.0.0/30")}]}));
    }
    client.ok("ip.allocate", json!({"network": "full", "owner": "a"}));
    client.ok("ip.allocate", json!({"network": "full", "owner": "b"}));
    client.ok("ip.decline", json!({"network": "full", "address": "10.0.0.1", "owner": "a"}));
    assert_eq!(client.kind("ip.allocate", json!({"network": "full", "owner": "late"})), "not_enough_capacity");
    let counts = |network: &str| {
        let one = format!("network=\"{network}\",realm=\"default\"");
        [
            format!("allod_network_grants_total{{{one}}}"),
            format!("allod_network_releases_total{{{one},reason=\"declined\"}}"),
            format!("allod_network_refusals_total{{kind=\"not_enough_capacity\",{one}}}"),
        ]
    };
    let all = |network: &str, expected: [f64; 3]| {
        let counts = counts(network);
        let expected: Vec<_> = counts.iter().map(String::as_str).zip(expected).collect();
        shows(&server, &expected);
    };
    all("full", [2.0, 1.0, 1.0]);
    for (from, to) in [("full", "other"), ("fresh", "full"), ("other", "fresh")] {
        client.ok("network.update", json!({"network": from, "set": {"name": to}}));
    }
    all("full", [0.0; 3]);
    all("fresh", [0.0; 3]);
    assert_eq!(client.kind("ip.allocate", json!({"network": "fresh", "owner": "late"})), "not_enough_capacity");
    all("fresh", [0.0, 0.0, 1.0]);
    // Another network may have taken the name of a deleted one before that is restored.
    let id = client.ok("network.get", json!({"network": "fresh"}))["id"].clone();
    client.ok("network.delete", json!({"network": "fresh", "force": true}));
    client.ok("network.create", json!({"name": "fresh", "subnets": [{"cidr": "10.2.0.0/30"}]}));
    all("fresh", [0.0; 3]);
    client.ok("network.update", json!({"network": "fresh", "set": {"name": "other"}}));
    client.ok("network.restore", json!({"network": id}));
    all("fresh", [0.0; 3]);
}
