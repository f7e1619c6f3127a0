//! A MAC is unique in its realm, whichever of its networks carries it.

use serde_json::{Value, json};

use crate::support::{Client, TestServer, line};

fn three_networks(server: &TestServer) -> Client {
    let mut client = server.client();
    let l2 = json!({"mac_prefix": "aa:00:00"});
    for (name, realm, cidr) in
        [("one", "default", "10.0.0.0/16"), ("two", "default", "10.1.0.0/16"), ("other", "elsewhere", "10.0.0.0/16")]
    {
        let subnets = json!([{"cidr": cidr}]);
        client.ok("network.create", json!({"name": name, "realm": realm, "l2": l2, "subnets": subnets}));
    }
    client
}

fn with_mac(network: &str, owner: &str, mac: &str) -> Value {
    json!({"network": network, "owner": owner, "mac": mac})
}

/// A repeat may find room for what the request did not: then it would be another answer.
#[test]
fn one_mac_for_several_addresses_is_refused_also_where_some_are_optional() {
    let server = TestServer::new();
    let mut client = three_networks(&server);
    let ips = json!([{"network": "one"}, {"network": "one", "optional": true}]);
    let refused = client.call("ip.acquire", json!({"owner": "a", "mac": "52:54:00:12:34:56", "ips": ips}));
    let data = &refused["error"]["data"];
    assert_eq!((&data["kind"], &data["field"]), (&json!("invalid_argument"), &json!("mac")), "{refused}");
}

#[test]
fn a_mac_of_one_network_is_refused_in_another_of_its_realm_until_it_is_let_go() {
    let server = TestServer::new();
    let mut client = three_networks(&server);
    let mac = "52:54:00:12:34:56";
    client.ok("ip.allocate", with_mac("one", "a", mac));
    let refused = client.call("ip.allocate", with_mac("two", "b", mac));
    let data = &refused["error"]["data"];
    assert_eq!((&data["kind"], &data["address"]), (&json!("already_in_use"), &json!("10.0.0.1")), "{refused}");
    client.ok("ip.allocate", with_mac("other", "b", mac));
    // Without the MAC there is an address; giving it the MAC later is refused as well.
    client.ok("ip.allocate", json!({"network": "two", "owner": "b"}));
    let update = json!({"network": "two", "owner": "b", "set": {"mac": mac}});
    assert_eq!(client.kind("ip.update", update.clone()), "already_in_use");
    let acquire = json!({"owner": "c", "mac": mac, "ips": [{"network": "two"}]});
    assert_eq!(client.kind("ip.acquire", acquire), "already_in_use");

    client.ok("ip.release", json!({"network": "one", "owner": "a"}));
    client.ok("ip.update", update);
    assert_eq!(client.kind("ip.allocate", with_mac("one", "a", mac)), "already_in_use");
    client.ok("ip.update", json!({"network": "two", "owner": "b", "set": {"mac": null}}));
    client.ok("ip.allocate", with_mac("one", "a", mac));
}

#[test]
fn after_a_restart_a_mac_is_refused_in_another_network_of_its_realm_still() {
    let open = crate::stores::reopened(2);
    let mac = "52:54:00:12:34:56";
    let server = TestServer::over(open(), |_| {});
    let mut client = three_networks(&server);
    client.ok("ip.allocate", with_mac("one", "a", mac));
    drop(client);
    server.stop();
    let server = TestServer::over(open(), |_| {});
    let mut client = server.client();
    assert_eq!(client.kind("ip.allocate", with_mac("two", "b", mac)), "already_in_use");
    client.ok("ip.allocate", with_mac("other", "b", mac));
    client.ok("ip.release", json!({"network": "one", "owner": "a"}));
    client.ok("ip.allocate", with_mac("two", "b", mac));
}

#[test]
fn a_dry_run_takes_no_mac() {
    let server = TestServer::new();
    let mut client = three_networks(&server);
    let mac = "52:54:00:12:34:56";
    let mut dry = with_mac("one", "a", mac);
    dry["dry_run"] = json!(true);
    client.ok("ip.allocate", dry);
    client.ok("ip.allocate", with_mac("two", "b", mac));
}

#[test]
fn a_mac_goes_along_with_the_subnet_that_moves_and_stays_where_a_move_is_refused() {
    let server = TestServer::new();
    let mut client = three_networks(&server);
    let mac = "52:54:00:12:34:56";
    client.ok("ip.allocate", with_mac("one", "a", mac));
    let to_two = |dry_run: bool| json!({"network": "one", "subnet": "10.0.0.0/16", "to": "two", "dry_run": dry_run});
    client.ok("subnet.move", to_two(true));
    assert_eq!(client.kind("ip.allocate", with_mac("two", "b", mac)), "already_in_use");
    client.ok("subnet.move", to_two(false));
    client.ok("subnet.add", json!({"network": "one", "cidr": "10.7.0.0/24"}));
    assert_eq!(client.kind("ip.allocate", with_mac("one", "b", mac)), "already_in_use");
    client.ok("ip.release", json!({"network": "two", "owner": "a"}));
    client.ok("ip.allocate", with_mac("one", "b", mac));
    client.ok("network.create", json!({"name": "own", "realm": "own", "subnets": [{"cidr": "10.8.0.0/24"}]}));
    client.ok("ip.allocate", with_mac("own", "c", mac));
    let to_two = json!({"network": "own", "subnet": "10.8.0.0/24", "to": "two"});
    assert_eq!(client.kind("subnet.move", to_two.clone()), "already_in_use");
    client.ok("ip.release", json!({"network": "one", "owner": "b"}));
    client.ok("subnet.move", to_two);
}

#[test]
fn macs_that_are_made_up_differ_over_all_networks_of_a_realm() {
    let server = TestServer::new();
    let mut client = server.client();
    let mut seen = std::collections::BTreeSet::new();
    for at in 0..4 {
        let subnets = json!([{"cidr": format!("10.{at}.0.0/22")}]);
        let l2 = json!({"mac_prefix": "aa:00:00"});
        client.ok("network.create", json!({"name": format!("n{at}"), "l2": l2, "subnets": subnets}));
        let ips = vec![json!({}); 200];
        let acquired =
            client.ok("ip.acquire", json!({"network": format!("n{at}"), "owner": "a", "ips": ips, "mac": "auto"}));
        for reservation in acquired["reservations"].as_array().unwrap() {
            assert!(seen.insert(reservation["mac"].as_str().unwrap().to_owned()), "{reservation}");
        }
    }
}

#[test]
fn of_two_networks_that_want_the_same_macs_at_once_each_mac_goes_to_one() {
    let server = TestServer::with(|options| options.config.server.threads = 2);
    let mut first = three_networks(&server);
    let mut second = server.client();
    let asks = |network: &str| -> String {
        let ask = |at: u64| {
            let mac = format!("52:54:00:00:{:02x}:{:02x}", at / 256, at % 256);
            line(at, "ip.allocate", &with_mac(network, &format!("vm/{at}"), &mac))
        };
        (0..400).map(ask).collect()
    };
    first.raw(asks("one"));
    second.raw(asks("two"));
    let mut given = [0; 400];
    for client in [&mut first, &mut second] {
        for _ in 0..400 {
            let answer = client.answer();
            let at = answer["id"].as_u64().unwrap() as usize;
            match &answer["error"]["data"]["kind"] {
                Value::Null => given[at] += 1,
                kind => assert_eq!(kind, "already_in_use", "{answer}"),
            }
        }
    }
    assert!(given.iter().all(|count| *count == 1), "{given:?}");
    let held = first.ok("ip.list", json!({"count_only": true}));
    assert_eq!(held["count"], 400);
}
