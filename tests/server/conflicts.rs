//! What clients see of claims that a failover cut off. `tests/faults/late.rs` shows that such claims are found; here the
//! store already has some.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use allod::core::address::Address;
use allod::core::state::{Details, Entry, Event, EventKind, Key, Lease, Reservation, State, Step};
use allod::core::types::{Generation, NetworkId, Scope, ShardTime, SlotKey, WallTime};
use allod::limits::CONFLICTS_MAX;
use allod::store::late::Late;
use allod::store::{Act, Batch, Digest, Epoch, Seq, ShardId, Store, Token};
use serde_json::{Value, json};

use crate::history::history;
use crate::support::{Client, TestServer, wait_for};
use crate::watch::event;

/// What this owner was told on the line that was cut off.
pub struct Claim<'a> {
    pub address: &'a str,
    pub owner: &'a str,
    pub generation: u64,
    pub mac: Option<&'a str>,
}

impl Claim<'_> {
    fn act(&self, network: NetworkId) -> Act {
        let address: Address = self.address.parse().unwrap();
        let mac = self.mac.map(|mac| mac.parse().unwrap());
        let holder =
            SlotKey { scope: Scope::default(), owner: self.owner.parse().unwrap(), slot: "0".parse().unwrap() };
        let width = address.family().width();
        let plain = Reservation::plain(holder, Generation(self.generation), width, WallTime(1_772_356_360_000));
        let details = mac.map(|mac| Box::new(Details { mac: Some(mac), ..Details::default() }));
        let reservation = Reservation { details, ..plain };
        let state = Some(State::Entry(Entry::Held(Arc::new(reservation))));
        let event = Some(Event { kind: EventKind::Granted, before: None });
        let steps = vec![Step { key: Key::Address(address), expect: None, state, event }];
        Act { network, wall: WallTime(0), by: "anonymous".into(), reason: None, transaction: None, steps }
    }
}

/// Puts these claims into the store.
pub fn begin_to_find(server: &TestServer, network: &str, claims: &[Claim<'_>]) {
    let network =
        server.client().ok("network.get", json!({ "network": network }))["id"].as_str().unwrap().parse().unwrap();
    put_late(server, claims.iter().map(|claim| claim.act(network)).collect());
}

/// The same, and waits until they are dealt with.
pub fn find(server: &TestServer, network: &str, claims: &[Claim<'_>]) {
    begin_to_find(server, network, claims);
    wait_for("that it is dealt with", || server.store.late().is_empty());
}

fn put_late(server: &TestServer, acts: Vec<Act>) {
    put_lates(server, vec![acts]);
}

/// Puts the claims of several shards into the store at once.
fn put_lates(server: &TestServer, of_shards: Vec<Vec<Act>>) {
    let late = |(shard, acts)| {
        let (shard, digest) = (ShardId(shard), Digest(1));
        let (epoch, token, seq) = (Epoch(1), Token(7), Seq(1));
        let batch = Batch { shard, epoch, token, seq, time: ShardTime(0), generation: Generation(0), acts };
        Arc::new(Late::new(shard, digest, vec![batch]))
    };
    server.store.late.lock().unwrap().extend((0..).zip(of_shards).map(late));
}

fn claim<'a>(address: &'a str, owner: &'a str, generation: u64) -> Claim<'a> {
    Claim { address, owner, generation, mac: None }
}

fn ask(owner: &str) -> Value {
    json!({"network": "lan", "owner": owner})
}

fn reason(client: &mut Client, method: &str, params: Value) -> String {
    let answer = client.call(method, params);
    assert_eq!(answer["error"]["data"]["kind"], "not_ready", "{answer}");
    answer["error"]["data"]["reason"].as_str().unwrap().to_owned()
}

#[test]
fn what_is_free_is_held_again_and_who_watches_is_told() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("events.watch", json!({"network": "lan"}));
    find(&server, "lan", &[claim("10.0.0.2", "web", 77), claim("10.0.0.3", "db", 78)]);
    for (owner, address) in [("web", "10.0.0.2"), ("db", "10.0.0.3")] {
        let event = event(&mut client);
        assert_eq!((&event["type"], &event["owner"]), (&json!("healed"), &json!(owner)), "{event}");
        assert_eq!(event["by"], "healing");
        let again = server.client().ok("ip.allocate", ask(owner));
        assert_eq!((&again["created"], &again["address"]), (&json!(false), &json!(address)));
    }
    assert_eq!(server.client().ok("cluster.conflicts", json!({})), json!({"conflicts": []}));
    // The next owner gets another address, under a later generation.
    let next = server.client().ok("ip.allocate", ask("next"));
    assert_eq!(next["address"], "10.0.0.4");
    assert!(next["generation"].as_u64() > Some(78));
}

/// The claim's lease was renewed practically for ever; it would have ended at `ended`.
fn renewed(of: &Claim<'_>, network: NetworkId, ended: u64) -> Act {
    let mut act = of.act(network);
    let step = &mut act.steps[0];
    let Some(State::Entry(Entry::Held(held))) = &step.state else { panic!() };
    let until = |ends: u64, ttl: u64| {
        let lease = Some(Lease { ends: ShardTime(ends), ttl_seconds: ttl.try_into().unwrap() });
        Arc::new(Reservation { lease, ..Reservation::clone(held) })
    };
    let (before, after) = (until(ended, 60), until(1 << 50, 7_200));
    step.expect = Some(held.generation.0);
    step.state = Some(State::Entry(Entry::Held(after)));
    step.event = Some(Event { kind: EventKind::Renewed, before: Some(before) });
    act
}

#[test]
fn whoever_renewed_on_a_line_that_is_cut_off_has_it_for_as_long_as_he_was_told_and_history_tells_of_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let granted = client.ok("ip.allocate", json!({"network": "lan", "owner": "web", "ttl_seconds": 60}));
    let network = client.ok("network.get", json!({"network": "lan"}))["id"].as_str().unwrap().parse().unwrap();
    let act = renewed(&claim("10.0.0.2", "web", granted["generation"].as_u64().unwrap()), network, 1);
    put_late(&server, vec![act]);
    wait_for("that it is dealt with", || server.store.late().is_empty());
    let events = history(&mut client, json!({"network": "lan", "owner": "web"}));
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["by"]), (&json!("renewed"), &json!("healing")), "{events:?}");
    server.clock.advance_ms(3_600_000);
    let again = server.client().ok("ip.get", json!({"address": "10.0.0.2"}));
    assert_eq!(again["reservation"]["owner"], "web", "{again}");
}

/// On the line that was cut off, the subnet had moved to another network, which renewed the lease. On this line the subnet
/// did not move, and that network has no place for the holder.
#[test]
fn a_lease_that_was_renewed_behind_a_move_that_is_cut_off_is_longer_where_its_holder_is() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "to", "realm": "other", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    client.ok("network.create", json!({"name": "near", "subnets": [{"cidr": "10.2.0.0/24"}]}));
    let mut id =
        |name: &str| client.ok("network.get", json!({ "network": name }))["id"].as_str().unwrap().parse().unwrap();
    let (to, near): (NetworkId, NetworkId) = (id("to"), id("near"));
    let lease = |owner: &str| json!({"network": "lan", "owner": owner, "ttl_seconds": 60});
    let granted = client.ok("ip.allocate", lease("web"))["generation"].as_u64().unwrap();
    client.ok("ip.allocate", lease("db"));
    let is_dealt_with = || server.store.late().is_empty();
    put_late(&server, vec![renewed(&claim("10.0.0.2", "web", granted), to, 1)]);
    wait_for("that it is dealt with", is_dealt_with);
    // The lease has ended meanwhile, or somebody else has the address, or nobody has that space any more.
    let lost = ["10.0.0.9", "10.0.0.3", "10.7.0.1"].map(|address| renewed(&claim(address, "late", 7), near, 1));
    for act in lost {
        put_late(&server, vec![act]);
        wait_for("that it is dealt with", is_dealt_with);
        client.ok("ip.release", json!({"network": "lan", "owner": "late"}));
    }
    for name in ["to", "near"] {
        assert_eq!(client.ok("cluster.conflicts", json!({"network": name}))["conflicts"], json!([]), "{name}");
        client.ok("ip.allocate", json!({"network": name, "owner": "next"}));
    }
    let conflicts = client.ok("cluster.conflicts", json!({"network": "lan"}))["conflicts"].clone();
    assert_eq!(conflicts.as_array().map(Vec::len), Some(1), "{conflicts}");
    assert_eq!(conflicts[0]["present"]["owner"], "db", "{conflicts}");
    server.clock.advance_ms(3_600_000);
    let again = server.client().ok("ip.get", json!({"address": "10.0.0.2"}));
    assert_eq!(again["reservation"]["owner"], "web", "{again}");
}

/// On the line that was cut off, the subnet had moved to another network, which granted an address in it. On this line the
/// subnet did not move: its network would give the address to somebody else, and the other network has no place for it.
#[test]
fn a_grant_behind_a_move_that_is_cut_off_is_claimed_where_its_space_is() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "near", "subnets": [{"cidr": "10.2.0.0/24"}]}));
    client.ok("network.create", json!({"name": "far", "realm": "other", "subnets": [{"cidr": "10.3.0.0/24"}]}));
    client.ok("ip.allocate", ask("web"));
    // One address lies in its own network's space, one is somebody else's by now, one is in no space of the realm.
    find(
        &server,
        "near",
        &[
            claim("10.2.0.9", "here", 71),
            claim("10.0.0.9", "late", 77),
            claim("10.0.0.2", "lost", 78),
            claim("10.3.0.9", "nowhere", 79),
        ],
    );
    for (address, network, owner) in
        [("10.2.0.9", "near", "here"), ("10.0.0.9", "lan", "late"), ("10.0.0.2", "lan", "web")]
    {
        let got = client.ok("ip.get", json!({"network": network, "address": address}));
        assert_eq!(got["reservation"]["owner"], owner, "{got}");
    }
    let mut conflicts = |network: &str| {
        let listed = client.ok("cluster.conflicts", json!({ "network": network }))["conflicts"].clone();
        listed.as_array().unwrap().iter().map(|it| it["late"]["owner"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(conflicts("lan"), ["lost"]);
    assert_eq!(conflicts("near"), ["nowhere"], "it is told, though nobody is in its way");
    assert_eq!(conflicts("far"), [""; 0]);
}

/// One owner was granted the address, its subnet moved, the owner released it there, and another owner was granted it. All
/// of this is cut off, and recorded in the journals of two shards; either may be brought first.
#[test]
fn who_let_go_behind_a_move_that_is_cut_off_is_not_given_back_what_the_next_one_has() {
    for is_first in [true, false] {
        let server = TestServer::new();
        let mut client = server.with_lan();
        client.ok("network.create", json!({"name": "near", "subnets": [{"cidr": "10.2.0.0/24"}]}));
        let mut id =
            |name: &str| client.ok("network.get", json!({ "network": name }))["id"].as_str().unwrap().parse().unwrap();
        let (lan, near): (NetworkId, NetworkId) = (id("lan"), id("near"));
        let (first, late) = (claim("10.0.0.9", "first", 77), claim("10.0.0.9", "late", 78));
        let changed = |network, kind, is_there: bool| {
            let mut act = first.act(network);
            let step = &mut act.steps[0];
            let Some(State::Entry(Entry::Held(held))) = step.state.clone() else { panic!() };
            if is_there {
                step.event = Some(Event { kind, before: None });
            } else {
                step.expect = Some(77);
                step.state = None;
                step.event = Some(Event { kind, before: Some(held) });
            }
            act
        };
        let of_lan = vec![first.act(lan), changed(lan, EventKind::Transferred, false)];
        let comes = changed(near, EventKind::Transferred, true);
        let of_near = vec![comes, changed(near, EventKind::Released, false), late.act(near)];
        put_lates(&server, if is_first { vec![of_lan, of_near] } else { vec![of_near, of_lan] });
        wait_for("that it is dealt with", || server.store.late().is_empty());
        let got = client.ok("ip.get", json!({"network": "lan", "address": "10.0.0.9"}));
        assert_eq!(got["reservation"]["owner"], "late", "{got}");
        assert_eq!(client.ok("cluster.conflicts", json!({})), json!({"conflicts": []}));
    }
}

/// The claim came once more, as after a lost answer, when nobody was in its way any more.
#[test]
fn a_conflict_whose_late_holder_has_the_address_by_now_is_none() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("ip.allocate", ask("web"));
    find(&server, "lan", &[claim("10.0.0.2", "late", 77)]);
    assert_eq!(reason(&mut client, "ip.allocate", ask("new")), "conflicts");
    client.ok("ip.release", ask("web"));
    find(&server, "lan", &[claim("10.0.0.2", "late", 77)]);
    let got = client.ok("ip.get", json!({"network": "lan", "address": "10.0.0.2"}));
    assert_eq!(got["reservation"]["owner"], "late", "{got}");
    assert_eq!(client.ok("cluster.conflicts", json!({})), json!({"conflicts": []}));
    assert_eq!(client.ok("ip.allocate", ask("new"))["created"], true);
}

#[test]
fn while_two_claim_an_address_its_network_grants_nothing_and_all_else_goes_on() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "other", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    client.ok("ip.allocate", ask("web"));
    client.ok("ip.allocate", ask("db"));
    find(&server, "lan", &[claim("10.0.0.2", "late", 77), claim("10.0.0.3", "later", 78)]);
    let acquire = json!({"owner": "new", "ips": [{"network": "other"}, {"network": "lan"}]});
    let apply = json!({"deployment": "d", "instances": [{"id": "i", "networks": [{"network": "lan"}]}]});
    for (method, params) in [
        ("ip.allocate", ask("new")),
        ("ip.allocate", json!({"network": "lan", "owner": "new", "wait_seconds": 600})),
        ("ip.claim", json!({"network": "lan", "owner": "new", "address": "10.0.0.9"})),
        ("ip.acquire", acquire),
        ("deployment.apply", apply),
    ] {
        assert_eq!(reason(&mut client, method, params), "conflicts", "{method}");
    }
    // Neither claimant loses the address, and everything else is served: repeats, releases, renewals, configuration, other
    // networks.
    assert_eq!(client.ok("ip.allocate", ask("web"))["created"], false);
    client.ok("ip.renew", json!({"network": "lan", "owner": "web", "ttl_seconds": 600}));
    client.ok("network.update", json!({"network": "lan", "set": {"description": "x"}}));
    assert_eq!(client.ok("ip.release", ask("db"))["released"], json!(["10.0.0.3"]));
    assert_eq!(client.ok("ip.list", json!({"network": "other", "count_only": true}))["count"], 0);
    client.ok("ip.allocate", json!({"network": "other", "owner": "new"}));
    let listed = client.ok("cluster.conflicts", json!({}));
    let conflicts = listed["conflicts"].as_array().unwrap();
    assert_eq!(conflicts.len(), 2);
    assert_eq!((&conflicts[0]["late"]["owner"], &conflicts[0]["present"]["owner"]), (&json!("late"), &json!("web")));
    // The owner that stood in the way is gone, but the conflict still waits for the operator.
    assert_eq!((&conflicts[1]["late"]["owner"], conflicts[1].get("present")), (&json!("later"), None));
    let dry = client.ok("cluster.accept", json!({"network": "lan", "dry_run": true}));
    assert_eq!(dry["accepted"].as_array().unwrap().len(), 2);
    client.ok("cluster.accept", json!({"network": "lan", "address": "10.0.0.2"}));
    assert_eq!(reason(&mut client, "ip.allocate", ask("new")), "conflicts");
    client.ok("cluster.accept", json!({"network": "lan"}));
    assert_eq!(client.ok("ip.allocate", ask("new"))["created"], true);
}

/// Elsewhere its space would be granted, with the address that two claim.
#[test]
fn while_two_claim_an_address_its_network_keeps_its_space_and_is_not_deleted() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("subnet.add", json!({"network": "lan", "cidr": "10.1.0.0/24"}));
    client.ok("network.create", json!({"name": "wan"}));
    client.ok("ip.allocate", ask("web"));
    find(&server, "lan", &[claim("10.0.0.2", "late", 77)]);
    client.ok("ip.release", ask("web"));
    let of = |cidr: &str| json!({"network": "lan", "subnet": cidr});
    let smaller = json!({"network": "lan", "subnet": "10.0.0.0/24", "set": {"cidr": "10.0.0.128/25", "gateway": null}});
    let others = json!({"network": "lan", "set": {"subnets": [{"cidr": "10.1.0.0/24"}]}});
    let delete = |more: &str| json!({"network": "lan", more: true});
    for (method, params) in [
        ("subnet.remove", of("10.0.0.0/24")),
        ("subnet.remove", of("10.1.0.0/24")),
        ("subnet.modify", smaller),
        ("network.update", others),
        ("subnet.move", json!({"network": "lan", "subnet": "10.0.0.0/24", "to": "wan"})),
        ("subnet.move", json!({"network": "lan", "subnet": "10.0.0.0/24", "to": "wan", "dry_run": true})),
        ("network.delete", json!({"network": "lan"})),
        ("network.delete", delete("force")),
        ("network.delete", delete("purge")),
        ("network.delete", delete("dry_run")),
    ] {
        assert_eq!(reason(&mut client, method, params.clone()), "conflicts", "{method} {params}");
    }
    // What takes nothing away goes on.
    client.ok("subnet.modify", json!({"network": "lan", "subnet": "10.1.0.0/24", "set": {"cidr": "10.1.0.0/23"}}));
    client.ok("subnet.add", json!({"network": "lan", "cidr": "10.3.0.0/24"}));
    client.ok("subnet.move", json!({"network": "lan", "subnet": "10.1.0.0/23", "to": "lan"}));
    client.ok("cluster.accept", json!({"network": "lan"}));
    client.ok("subnet.remove", of("10.0.0.0/24"));
    client.ok("network.delete", json!({"network": "lan"}));
}

/// Its claims exist nowhere else, and nobody has decided them.
#[test]
fn a_deleted_network_keeps_its_undecided_claims_and_ends_when_the_last_is_decided() {
    for cooldown in [0, 3_600] {
        let server = TestServer::new();
        let mut client = server.with_lan();
        client.ok("network.update", json!({"network": "lan", "set": {"cooldown_seconds": cooldown}}));
        for owner in ["web", "db"] {
            client.ok("ip.allocate", ask(owner));
        }
        let lan = client.ok("network.get", json!({"network": "lan"}))["id"].as_str().unwrap().to_owned();
        client.ok("network.delete", json!({"network": "lan", "force": true}));
        find(&server, &lan, &[claim("10.0.0.2", "late", 77), claim("10.0.0.9", "later", 78)]);
        for owner in ["web", "db"] {
            client.ok("ip.release", json!({"network": lan, "owner": owner}));
        }
        let wan = json!({"name": "wan", "subnets": [{"cidr": "10.0.0.0/24"}]});
        assert_eq!(reason(&mut client, "network.delete", json!({"network": lan})), "conflicts");
        for address in ["10.0.0.2", "10.0.0.9"] {
            assert_eq!(client.kind("network.create", wan.clone()), "overlap", "before {address} is decided");
            let accepted = client.ok("cluster.accept", json!({"network": lan, "address": address}))["accepted"].clone();
            assert_eq!(accepted[0]["address"], address, "{accepted}");
        }
        wait_for("its end", || client.call("network.get", json!({"network": lan})).get("error").is_some());
        client.ok("network.create", wan);
        let told = client.ok("events.history", json!({"address": "10.0.0.9"}))["events"].clone();
        assert_eq!(told.as_array().unwrap().last().unwrap()["type"], "conflict", "{told}");
    }
}

#[test]
fn who_asks_for_several_is_told_which_of_them_waits_for_the_operator() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "other", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    client.ok("ip.allocate", ask("web"));
    find(&server, "lan", &[claim("10.0.0.2", "late", 77)]);
    let (other, lan) = (json!({"network": "other"}), json!({"network": "lan"}));
    let instance = |id: &str, networks: &[&Value]| json!({"id": id, "networks": networks});
    let apply = |instances: &[Value]| json!({"deployment": "d", "instances": instances});
    for (method, params, index, of) in [
        ("ip.allocate", ask("new"), Value::Null, Value::Null),
        ("ip.acquire", json!({"owner": "new", "ips": [other, lan]}), json!(1), Value::Null),
        // The first item is held already, and all are in one network.
        ("ip.acquire", json!({"owner": "web", "ips": [lan, lan, lan]}), json!(1), Value::Null),
        (
            "deployment.apply",
            apply(&[instance("i", &[&other]), instance("j", &[&other, &lan]), instance("k", &[&lan])]),
            Value::Null,
            json!("j"),
        ),
    ] {
        let answer = client.call(method, params.clone());
        let data = &answer["error"]["data"];
        assert_eq!(data["reason"], "conflicts", "{method} {params}: {answer}");
        assert_eq!((&data["network"], &data["index"], &data["instance"]), (&json!("lan"), &index, &of), "{answer}");
    }
}

#[test]
fn a_mac_that_another_network_uses_meanwhile_makes_a_conflict() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "other", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let taken = "aa:00:00:00:00:01";
    client.ok("ip.allocate", json!({"network": "other", "owner": "new", "mac": taken}));
    let with = |address, owner, generation, mac| Claim { address, owner, generation, mac: Some(mac) };
    let free = "aa:00:00:00:00:02";
    find(&server, "lan", &[with("10.0.0.2", "late", 77, taken), with("10.0.0.3", "later", 78, free)]);
    assert_eq!(client.ok("ip.get", json!({"address": "10.0.0.3"}))["reservation"]["mac"], free);
    // Whoever has the MAC is named, whether one network is asked about or all, and also by what decides the conflict.
    let in_lan = json!({"network": "lan"});
    let mut told = |method: &str, params: &Value| {
        let answer = client.ok(method, params.clone());
        let list = answer.get("conflicts").or_else(|| answer.get("accepted")).and_then(Value::as_array).unwrap();
        assert_eq!(list.len(), 1, "{method} {params}: {answer}");
        let (late, present) = (&list[0]["late"], &list[0]["present"]);
        assert_eq!((&late["owner"], &late["mac"]), (&json!("late"), &json!(taken)), "{method} {params}: {answer}");
        ["network", "address", "owner"].map(|member| present[member].as_str().unwrap_or_default().to_owned())
    };
    let other = ["other", "10.1.0.1", "new"];
    assert_eq!(told("cluster.conflicts", &in_lan), other);
    assert_eq!(told("cluster.conflicts", &json!({})), other);
    assert_eq!(told("cluster.accept", &json!({"network": "lan", "dry_run": true})), other);
    assert_eq!(told("cluster.accept", &in_lan), other);
    assert_eq!(client.ok("cluster.conflicts", json!({})), json!({"conflicts": []}));
    // The history has the MAC of the claim that was given up.
    let told = client.ok("events.history", json!({"network": "lan", "address": "10.0.0.2"}));
    let of_claim = |event: &&Value| event["type"] == "conflict" && event["before"]["mac"] == taken;
    assert_eq!(told["events"].as_array().unwrap().iter().filter(of_claim).count(), 2, "{told}");
}

#[test]
fn a_mac_that_its_own_network_uses_meanwhile_makes_a_conflict_with_whoever_has_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let taken = "aa:00:00:00:00:01";
    client.ok("ip.allocate", json!({"network": "lan", "owner": "new", "mac": taken}));
    find(&server, "lan", &[Claim { address: "10.0.0.9", owner: "late", generation: 77, mac: Some(taken) }]);
    let listed = client.ok("cluster.conflicts", json!({"network": "lan"}))["conflicts"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let present = &listed[0]["present"];
    let told = (&present["network"], &present["address"], &present["owner"]);
    assert_eq!(told, (&json!("lan"), &json!("10.0.0.2"), &json!("new")), "{listed}");
    // Once nobody has the MAC any more, nothing stands in the way.
    client.ok("ip.release", ask("new"));
    let listed = client.ok("cluster.conflicts", json!({"network": "lan"}))["conflicts"].clone();
    assert_eq!((listed.as_array().unwrap().len(), listed[0].get("present")), (1, None), "{listed}");
}

#[test]
fn several_macs_that_other_networks_use_meanwhile_make_a_conflict_each() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let macs = ["aa:00:00:00:00:01", "aa:00:00:00:00:02", "aa:00:00:00:00:03"];
    let networks = ["other", "third"];
    for (at, network) in networks.iter().enumerate() {
        client.ok("network.create", json!({"name": network, "subnets": [{"cidr": format!("10.{}.0.0/24", at + 1)}]}));
        client.ok("ip.allocate", json!({"network": network, "owner": network, "mac": macs[at]}));
    }
    let with = |address, owner, generation, mac| Claim { address, owner, generation, mac: Some(mac) };
    let claims = [
        with("10.0.0.2", "one", 77, macs[0]),
        with("10.0.0.3", "two", 78, macs[1]),
        with("10.0.0.4", "three", 79, macs[2]),
    ];
    find(&server, "lan", &claims);
    let listed = client.ok("cluster.conflicts", json!({"network": "lan"}))["conflicts"].clone();
    let told = listed.as_array().unwrap().iter().map(|one| [&one["late"]["owner"], &one["present"]["network"]]);
    assert_eq!(told.collect::<Vec<_>>(), [["one", "other"], ["two", "third"]], "{listed}");
    assert_eq!(client.ok("ip.get", json!({"address": "10.0.0.4"}))["reservation"]["owner"], "three");
}

/// A dynamic network has no space of its own, so it cannot see this by itself.
#[test]
fn what_a_dynamic_network_had_written_down_is_not_given_back_where_another_network_has_it_by_now() {
    let server = TestServer::new();
    let mut client = server.client();
    for name in ["cloud", "other"] {
        client.ok("network.create", json!({"name": name, "kind": "dynamic"}));
    }
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.9.0.0/24"}]}));
    let bind = |address: &str| json!({"network": "other", "address": address, "owner": "o", "claimant": "vm"});
    client.ok("ip.bind", bind("10.8.0.7"));
    let claims = [claim("10.9.0.5", "a", 77), claim("10.8.0.7", "b", 78), claim("10.8.0.8", "c", 79)];
    find(&server, "cloud", &claims);
    let conflicts = client.ok("cluster.conflicts", json!({"network": "cloud"}));
    let late = |at: usize| conflicts["conflicts"][at]["late"]["owner"].as_str().unwrap();
    assert_eq!((conflicts["conflicts"].as_array().unwrap().len(), late(0), late(1)), (2, "b", "a"), "{conflicts}");
    assert_eq!(client.ok("ip.get", json!({"address": "10.9.0.5"}))["network"], "lan");
    assert_eq!(client.ok("ip.get", json!({"address": "10.8.0.7"}))["reservation"]["owner"], "o");
    // What nobody has is given back, and again belongs to one network of its realm.
    assert_eq!(client.ok("ip.get", json!({"address": "10.8.0.8"}))["reservation"]["owner"], "c");
    assert_eq!(client.kind("subnet.add", json!({"network": "lan", "cidr": "10.8.0.8/32"})), "overlap");
    // Brought once more, each claim has the same outcome.
    find(&server, "cloud", &claims);
    let again = client.ok("cluster.conflicts", json!({"network": "cloud"}));
    assert_eq!(again, conflicts);
}

#[test]
fn who_waited_before_two_claimed_an_address_waits_until_an_operator_has_decided() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/30"}]}));
    client.allocate("a");
    client.allocate("b");
    let mut waiter = server.client();
    waiter.send("ip.allocate", json!({"network": "lan", "owner": "w", "wait_seconds": 3_600}));
    server.until_waits("lan", 1);
    find(&server, "lan", &[claim("10.0.0.1", "late", 77)]);
    client.ok("ip.release", ask("b"));
    server.until_waits("lan", 1);
    client.ok("cluster.accept", json!({"network": "lan"}));
    assert_eq!(waiter.answer()["result"]["address"], "10.0.0.2");
}

#[test]
fn what_concerns_a_network_that_is_not_there_is_given_up_and_the_rest_is_given_back() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let id: NetworkId = client.ok("network.get", json!({"network": "lan"}))["id"].as_str().unwrap().parse().unwrap();
    put_late(&server, vec![claim("10.0.0.2", "web", 77).act(id), claim("10.0.0.2", "web", 77).act(NetworkId(9))]);
    let is_held = || client.ok("ip.get", json!({"address": "10.0.0.2"}))["state"] == "held";
    wait_for("that it is given back", is_held);
    wait_for("that it is given up", || server.store.late().is_empty());
}

/// Every claim was answered, but the store cannot put the journal aside and brings it again and again. What the holder has
/// released since must stay released.
#[test]
fn what_was_given_back_and_let_go_is_not_given_back_again() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    brought_for_ever(&server, &claim("10.0.0.50", "web", 77));
    client.ok("ip.release", json!({"network": "lan", "address": "10.0.0.50", "owner": "web"}));
    brought_again(&server);
    let held = client.ok("ip.list", json!({"network": "lan"}))["reservations"].clone();
    assert_eq!(held, json!([]), "the release was acknowledged");
}

/// A holder that released what was given back and got another address since has no conflict. A conflict would stop the
/// network from granting anything.
#[test]
fn who_let_go_of_what_was_given_back_may_take_something_else() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    brought_for_ever(&server, &claim("10.0.0.50", "web", 77));
    client.ok("ip.release", json!({"network": "lan", "address": "10.0.0.50", "owner": "web"}));
    assert_eq!(client.ok("ip.allocate", ask("web"))["address"], "10.0.0.2");
    brought_again(&server);
    client.ok("ip.allocate", ask("next"));
}

/// Gives the store a claim that it cannot put aside, and waits until the claim is given back for the first time.
fn brought_for_ever(server: &TestServer, claim: &Claim<'_>) {
    server.store.keeps_late.store(true, Ordering::SeqCst);
    let lan = server.client().ok("network.get", json!({"network": "lan"}))["id"].as_str().unwrap().parse().unwrap();
    put_late(server, vec![claim.act(lan)]);
    brought_again(server);
    assert_eq!(server.client().ok("ip.get", json!({"address": claim.address}))["state"], "held");
}

/// Waits until the store's claims were brought once more from now on, from first to last.
fn brought_again(server: &TestServer) {
    let brought = || server.store.brought.load(Ordering::SeqCst);
    let before = brought();
    wait_for("that it is brought again", || brought() >= before + 2);
}

/// There are more conflicts than a network keeps: those that found no room are brought again, and nothing else.
#[test]
fn what_finds_no_room_is_asked_for_again_and_what_was_answered_is_not() {
    let server = TestServer::new();
    let mut client = server.client();
    let made = client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/22"}]}));
    let lan = made["id"].as_str().unwrap().parse().unwrap();
    let mut acts = Vec::new();
    for at in 0..CONFLICTS_MAX as u64 + 4 {
        let held = client.allocate(&format!("present-{at}"));
        acts.push(claim(held["address"].as_str().unwrap(), &format!("late-{at}"), 1_000 + at).act(lan));
    }
    let last = "10.0.3.200";
    acts.push(claim(last, "web", 77).act(lan));
    put_late(&server, acts);
    let held = json!({"network": "lan", "owner": "web"});
    let is_held = || server.client().ok("ip.list", held.clone())["reservations"] != json!([]);
    wait_for("that it is given back", is_held);
    client.ok("ip.release", json!({"network": "lan", "address": last, "owner": "web"}));
    let accept = json!({"network": "lan"});
    assert_eq!(client.ok("cluster.accept", accept.clone())["accepted"].as_array().unwrap().len(), CONFLICTS_MAX);
    wait_for("that it is dealt with", || server.store.late().is_empty());
    assert_eq!(client.ok("cluster.accept", accept)["accepted"].as_array().unwrap().len(), 4);
    assert!(!is_held(), "the release was acknowledged");
}
