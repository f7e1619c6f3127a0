//! A MAC is unique in its realm, whichever network carries it.

use std::sync::{Arc, Barrier};

use allod::core::state::{Entry, Key, NetworkConfig, Reservation, State, Step};
use allod::core::types::Version;
use allod::store::{Act, Batch, Seq, ShardId, Store, Token};
use serde_json::{Value, json};

use crate::support::{Client, TestServer, line, wait};

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

/// Otherwise a repeat might find room for the optional address, and be answered differently.
#[test]
fn one_mac_for_several_addresses_is_refused_also_where_some_are_optional() {
    let server = TestServer::new();
    let mut client = three_networks(&server);
    let ips = json!([{"network": "one"}, {"network": "one", "optional": true}]);
    let refused = client.call("ip.acquire", json!({"owner": "a", "mac": "52:54:00:12:34:56", "ips": ips}));
    let data = &refused["error"]["data"];
    assert_eq!((&data["kind"], &data["field"]), (&json!("invalid_argument"), &json!("mac")), "{refused}");
}

/// A MAC is unique in a realm, whichever of its networks the addresses lie in; another realm has MACs of its own.
#[test]
fn one_mac_for_addresses_of_several_networks_of_a_realm_is_refused_as_for_several_of_one() {
    let server = TestServer::new();
    let mut client = three_networks(&server);
    let mac = "52:54:00:12:34:56";
    let ask = |networks: &[&str]| {
        let ips: Vec<Value> = networks.iter().map(|network| json!({"network": network})).collect();
        json!({"owner": "a", "mac": mac, "ips": ips})
    };
    for networks in [&["one", "two"][..], &["two", "other", "one"], &["one", "two", "none"]] {
        let refused = client.call("ip.acquire", ask(networks));
        let data = &refused["error"]["data"];
        assert_eq!((&data["kind"], &data["field"]), (&json!("invalid_argument"), &json!("mac")), "{refused}");
    }
    let held = client.ok("ip.acquire", ask(&["one", "other"]));
    assert_eq!(held["reservations"].as_array().unwrap().iter().filter(|held| held["mac"] == mac).count(), 2, "{held}");
    assert_eq!(client.kind("ip.acquire", ask(&["one", "none"])), "not_found");
}

/// `invalid_argument` comes before everything that the network finds; but a repeat generates no MAC.
#[test]
fn that_no_mac_can_be_made_is_told_before_anything_else_that_stands_in_the_way() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "bare", "subnets": [{"cidr": "10.0.0.0/24"}]}));
    client.ok("ip.allocate", json!({"network": "bare", "owner": "a"}));
    let refused = |client: &mut Client, method: &str, more: Value| {
        let mut ask = json!({"network": "bare", "owner": "z", "mac": "auto"});
        ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let told = client.call(method, ask);
        assert_eq!(told["error"]["data"]["field"], "mac", "{told}");
        assert_eq!(told["error"]["data"]["kind"], "invalid_argument", "{told}");
    };
    refused(&mut client, "ip.allocate", json!({}));
    refused(&mut client, "ip.allocate", json!({"subnet": "nosuch"}));
    refused(&mut client, "ip.allocate", json!({"pool": "nosuch"}));
    refused(&mut client, "ip.allocate", json!({"owner": "a", "must_create": true}));
    refused(&mut client, "ip.claim", json!({"address": "10.9.9.9"}));
    refused(&mut client, "ip.claim", json!({"address": "10.0.0.1"}));
    refused(&mut client, "ip.claim", json!({"address": "10.0.0.0"}));
    let again = client.ok("ip.allocate", json!({"network": "bare", "owner": "a", "mac": "auto"}));
    assert_eq!((&again["created"], again.get("mac")), (&json!(false), None), "{again}");
    let again = client.ok("ip.claim", json!({"network": "bare", "owner": "a", "mac": "auto", "address": "10.0.0.1"}));
    assert_eq!(again["created"], false);
    let ips = json!([{"network": "bare", "address": "10.9.9.9"}]);
    assert_eq!(client.kind("ip.acquire", json!({"owner": "z", "mac": "auto", "ips": ips})), "invalid_argument");
    let update = |more: Value| {
        let mut ask = json!({"network": "bare", "owner": "a", "set": {"mac": "auto"}});
        ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ask
    };
    for more in [
        json!({}),
        json!({"if_generation": 77}),
        json!({"owner": "z"}),
        json!({"address": "10.0.0.1", "owner": "z"}),
        json!({"address": "10.0.0.9"}),
    ] {
        let told = client.call("ip.update", update(more));
        let data = &told["error"]["data"];
        assert_eq!((&data["kind"], &data["field"]), (&json!("invalid_argument"), &json!("set.mac")), "{told}");
    }
    // What has a MAC needs none, so only the rest can stand in the way.
    let given = json!({"network": "bare", "owner": "a", "set": {"mac": "52:54:00:12:34:56"}});
    let held = client.ok("ip.update", given);
    assert_eq!(client.ok("ip.update", update(json!({}))), held);
    assert_eq!(client.kind("ip.update", update(json!({"if_generation": 77}))), "conflict");
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
    // Without the MAC an address is granted; setting the MAC later is refused as well.
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
fn who_is_refused_a_mac_of_another_network_is_told_who_holds_it() {
    let server = TestServer::new();
    let mut client = three_networks(&server);
    let mac = "52:54:00:12:34:56";
    let mut held = with_mac("one", "a", mac);
    held["scope"] = json!("shop");
    held["claimant"] = json!("vm-7");
    let since = client.ok("ip.allocate", held)["created_at"].clone();
    client.ok("ip.allocate", json!({"network": "two", "owner": "b"}));
    client.ok("network.create", json!({"name": "own", "realm": "own", "subnets": [{"cidr": "10.8.0.0/24"}]}));
    client.ok("ip.allocate", with_mac("own", "c", mac));
    let by = json!({"scope": "shop", "owner": "a", "slot": "0", "claimant": "vm-7", "since": since});
    let ips = |networks: [&str; 2]| networks.map(|network| json!({"network": network}));
    for (method, params) in [
        ("ip.allocate", with_mac("two", "c", mac)),
        ("ip.claim", json!({"network": "two", "address": "10.1.0.9", "owner": "c", "mac": mac})),
        ("ip.update", json!({"network": "two", "owner": "b", "set": {"mac": mac}})),
        ("ip.acquire", json!({"owner": "c", "mac": mac, "ips": [{"network": "two"}]})),
        ("ip.acquire", json!({"owner": "c", "mac": mac, "ips": ips(["two", "other"])})),
        ("ip.acquire", json!({"owner": "c", "mac": mac, "ips": ips(["two", "other"]), "wait_seconds": 5})),
        ("ip.acquire", json!({"owner": "c", "mac": mac, "ips": ips(["two", "other"]), "dry_run": true})),
        ("subnet.move", json!({"network": "own", "subnet": "10.8.0.0/24", "to": "two"})),
    ] {
        let refused = client.call(method, params);
        let data = &refused["error"]["data"];
        let there = (&data["kind"], &data["network"], &data["address"], &data["held_by"]);
        assert_eq!(there, (&json!("already_in_use"), &json!("one"), &json!("10.0.0.1"), &by), "{method}: {refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("held by"), "{message}");
    }
}

/// For each refusal a network asks the other one, which has as many refusals to answer.
#[test]
fn two_networks_that_refuse_each_other_their_macs_answer_all() {
    // Holders are looked up one after the other, and nobody waits for names longer than two seconds.
    const AT_ONCE: u64 = 50;
    let server = TestServer::with(|options| options.config.server.threads = 2);
    let mut first = three_networks(&server);
    let mut second = server.client();
    let mac = |network: u64, at: u64| format!("52:54:00:{network:02x}:00:{at:02x}");
    for at in 0..AT_ONCE {
        first.ok("ip.allocate", with_mac("one", &format!("vm/{at}"), &mac(1, at)));
        first.ok("ip.allocate", with_mac("two", &format!("vm/{at}"), &mac(2, at)));
    }
    let asks = |network: &str, of: u64| -> String {
        (0..AT_ONCE).map(|at| line(at, "ip.allocate", &with_mac(network, "other", &mac(of, at)))).collect()
    };
    first.raw(asks("one", 2));
    second.raw(asks("two", 1));
    for client in [&mut first, &mut second] {
        for _ in 0..AT_ONCE {
            let answer = client.answer();
            let held_by = &answer["error"]["data"]["held_by"]["owner"];
            assert_eq!(held_by, &json!(format!("vm/{}", answer["id"])), "{answer}");
        }
    }
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

/// One client asks for the MACs from first to last, the other from last to first, again and again until they have met in
/// between, so that each got some.
#[test]
fn of_two_networks_that_want_the_same_macs_at_once_each_mac_goes_to_one() {
    let server = TestServer::with(|options| options.config.server.threads = 2);
    let mut first = three_networks(&server);
    let mut second = server.client();
    let asks = |network: &str, round: u64, order: &mut dyn Iterator<Item = u64>| -> String {
        let ask = |at: u64| {
            let mac = format!("52:54:00:{round:02x}:{:02x}:{:02x}", at / 256, at % 256);
            line(at, "ip.allocate", &with_mac(network, &format!("vm/{round}/{at}"), &mac))
        };
        order.map(ask).collect()
    };
    let has_met = (0..100).any(|round| {
        let texts = [asks("one", round, &mut (0..400)), asks("two", round, &mut (0..400).rev())];
        let together = Barrier::new(2);
        std::thread::scope(|scope| {
            for (client, text) in [&mut first, &mut second].into_iter().zip(texts) {
                let together = &together;
                scope.spawn(move || {
                    together.wait();
                    client.raw(text);
                });
            }
        });
        let given = [&mut first, &mut second].map(|client| granted(client, 400));
        let mut all: Vec<u64> = given.iter().flatten().copied().collect();
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..400), "round {round}: {given:?}");
        given.iter().all(|given| !given.is_empty())
    });
    assert!(has_met, "they never met");
}

/// Reads so many answers. Returns the ids of the granted ones; the MACs of the others were in use.
fn granted(client: &mut Client, answers: usize) -> Vec<u64> {
    let granted = |answer: Value| {
        let kind = &answer["error"]["data"]["kind"];
        assert!(kind.is_null() || kind == "already_in_use", "{answer}");
        kind.is_null().then(|| answer["id"].as_u64().unwrap())
    };
    (0..answers).filter_map(|_| granted(client.answer())).collect()
}

/// No interface has a group MAC (with an odd first byte) or all zeros, so recording one is a mistake.
#[test]
fn a_mac_that_no_interface_can_have_is_refused_wherever_one_is_given() {
    let server = TestServer::new();
    let mut client = three_networks(&server);
    client.ok("ip.allocate", json!({"network": "one", "owner": "held"}));
    let refused = |client: &mut Client, method: &str, params: Value, field: &str| {
        let answer = client.call(method, params);
        let data = &answer["error"]["data"];
        assert_eq!((&data["kind"], &data["field"]), (&json!("invalid_argument"), &json!(field)), "{method}: {answer}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    };
    for mac in ["01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "53-54-00-12-34-56", "00:00:00:00:00:00"] {
        let message = refused(&mut client, "ip.allocate", with_mac("one", "a", mac), "mac");
        assert!(message.contains("no interface has it"), "{message}");
        let claim = json!({"network": "one", "owner": "a", "address": "10.0.0.9", "mac": mac});
        refused(&mut client, "ip.claim", claim, "mac");
        refused(&mut client, "ip.acquire", json!({"owner": "a", "mac": mac, "ips": [{"network": "one"}]}), "mac");
        let update = json!({"network": "one", "owner": "held", "set": {"mac": mac}});
        refused(&mut client, "ip.update", update, "set.mac");
        // One that was recorded by an earlier release can still be found.
        assert_eq!(client.ok("ip.list", json!({"mac": mac}))["reservations"], json!([]));
    }
    for prefix in ["01:00:5e", "ff-ff-ff"] {
        let l2 = json!({"mac_prefix": prefix});
        let message = refused(&mut client, "network.create", json!({"name": "n", "l2": l2}), "l2.mac_prefix");
        assert!(message.contains("its first byte is odd"), "{message}");
        let update = json!({"network": "nowhere", "set": {"l2": l2}});
        refused(&mut client, "network.update", update, "set.l2.mac_prefix");
    }
    client.ok("network.update", json!({"network": "one", "set": {"l2": {"mac_prefix": "00:00:00"}}}));
    let made = client.ok("ip.allocate", with_mac("one", "a", "auto"));
    assert!(made["mac"].as_str().unwrap().starts_with("00:00:00:"), "{made}");
}

/// Rewrites a register as an earlier release may have left it, without checks of MACs: networks make MACs under `prefix`,
/// and holdings have `mac`.
fn rewrite(store: &dyn Store, prefix: &str, mac: &str) {
    for shard in (0..store.info().shards).map(ShardId) {
        let token = Token(0x7000 + u128::from(shard.0));
        let head = wait(store.take(shard, token)).unwrap();
        let mut acts = Vec::new();
        for network in wait(store.load(shard, token)).unwrap().networks {
            let mut config = NetworkConfig::clone(&network.config);
            let (id, before, wall) = (config.id, config.version.0, config.created_at);
            (config.l2.mac_prefix, config.version) = (Some(prefix.into()), Version(before + 1));
            let state = Some(State::Config(Arc::new(config)));
            let mut steps = vec![Step { key: Key::Config, expect: Some(before), state, event: None }];
            for (address, entry) in network.entries {
                let Entry::Held(held) = entry else { continue };
                let mut now = Reservation::clone(&held);
                now.details.as_mut().unwrap().mac = Some(mac.parse().unwrap());
                let state = Some(State::Entry(Entry::Held(Arc::new(now))));
                steps.push(Step { key: Key::Address(address), expect: Some(held.generation.0), state, event: None });
            }
            acts.push(Act { network: id, wall, by: "test".into(), reason: None, transaction: None, steps });
        }
        let (seq, generation) = (Seq(head.seq.0 + 1), head.generation);
        let batch = Batch { shard, epoch: head.epoch, token, seq, time: head.time, generation, acts };
        wait(store.commit([batch].into())).unwrap();
    }
    wait(store.release()).unwrap();
    wait(store.close());
}

#[test]
fn what_was_recorded_before_such_a_mac_was_refused_is_served_as_before_and_can_be_mended() {
    let open = crate::stores::reopened(2);
    let (prefix, mac) = ("01:00:5e", "01:00:5e:00:00:01");
    let server = TestServer::over(open(), |_| {});
    let mut client = server.client();
    let with =
        |prefix: &str| json!({"name": "one", "l2": {"mac_prefix": prefix}, "subnets": [{"cidr": "10.0.0.0/24"}]});
    client.ok("network.create", with("aa:00:00"));
    client.ok("ip.allocate", with_mac("one", "a", "auto"));
    drop(client);
    server.stop();
    rewrite(&*open(), prefix, mac);

    let server = TestServer::over(open(), |_| {});
    let mut client = server.client();
    let listed = client.ok("ip.list", json!({"mac": mac}));
    assert_eq!((&listed["reservations"][0]["owner"], &listed["reservations"][0]["mac"]), (&json!("a"), &json!(mac)));
    assert_eq!(client.ok("network.get", json!({"network": "one"}))["l2"]["mac_prefix"], prefix);
    // A file read at the start asks for what is there already, and other members can change without the MAC.
    let mut again = with(prefix);
    again["if_absent"] = json!(true);
    assert_eq!(client.ok("network.create", again)["created"], false);
    client.ok("network.update", json!({"network": "one", "set": {"l2": {"link": "br0"}}}));
    client.ok("ip.update", json!({"network": "one", "owner": "a", "set": {"note": "old"}}));
    let handed = json!({"network": "one", "address": "10.0.0.1", "owner": "a", "to": {"owner": "b"}});
    assert_eq!(client.ok("ip.transfer", handed)["reservations"][0]["mac"], mac);
    // No MAC is made under such a prefix any more, until it is corrected.
    let refused = client.call("ip.allocate", with_mac("one", "c", "auto"));
    let message = refused["error"]["message"].as_str().unwrap();
    assert_eq!(refused["error"]["data"]["field"], "mac", "{refused}");
    assert!(message.contains("`l2.mac_prefix`") && message.contains("network.update"), "{message}");
    client.ok("network.update", json!({"network": "one", "set": {"l2": {"mac_prefix": "aa:00:01"}}}));
    let made = client.ok("ip.update", json!({"network": "one", "owner": "b", "set": {"mac": null}}));
    assert_eq!(made.get("mac"), None);
    let made = client.ok("ip.update", json!({"network": "one", "owner": "b", "set": {"mac": "auto"}}));
    assert!(made["mac"].as_str().unwrap().starts_with("aa:00:01:"), "{made}");
}
