//! The reply barrier and the outcomes of commits: no answer shows what is not durable, or was decided on memory that was
//! given up.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use allod::store::StoreHealth;
use serde_json::{Value, json};

use crate::faulty::Fault;
use crate::stores;
use crate::support::{Client, TestServer, http, is_between_tenures, line, wait_for};

const MOMENT: Duration = Duration::from_millis(150);

fn ask(client: &mut Client, owner: &str) -> u64 {
    client.send("ip.allocate", json!({"network": "lan", "owner": owner}))
}

fn held(client: &mut Client) -> String {
    client.ok("network.usage", json!({"network": "lan"}))["held"].as_str().unwrap().to_owned()
}

#[test]
fn no_answer_shows_what_is_not_durable() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut others: Vec<Client> = (0..6).map(|_| server.client()).collect();
    server.store.hold();
    ask(&mut client, "a");
    assert!(client.waits_still(MOMENT));
    // A read, a list, a refusal, a repeat and a dry run have all seen the pending grant.
    others[0].send("ip.get", json!({"network": "lan", "address": "10.0.0.2"}));
    others[1].send("ip.list", json!({"network": "lan"}));
    others[2].send("ip.claim", json!({"network": "lan", "owner": "b", "address": "10.0.0.2"}));
    others[3].send("ip.allocate", json!({"network": "lan", "owner": "a"}));
    others[4].send("ip.allocate", json!({"network": "lan", "owner": "c", "dry_run": true}));
    others[5].send("ip.find", json!({"address": "10.0.0.2"}));
    for other in &mut others {
        assert!(other.waits_still(MOMENT));
    }
    server.store.let_go();
    assert_eq!(client.answer()["result"]["address"], "10.0.0.2");
    assert_eq!(others[0].answer()["result"]["state"], "held");
    assert_eq!(others[1].answer()["result"]["reservations"][0]["owner"], "a");
    assert_eq!(others[2].answer()["error"]["data"]["held_by"]["owner"], "a");
    assert_eq!(others[3].answer()["result"]["created"], false);
    assert_eq!(others[4].answer()["result"]["address"], "10.0.0.3");
    assert_eq!(others[5].answer()["result"]["found"][0]["state"], "held");
}

#[test]
fn who_holds_a_mac_in_another_network_is_told_when_that_is_durable() {
    let server = TestServer::new();
    let (mut client, mut other) = (server.with_lan(), server.client());
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let with_mac = |network: &str, owner: &str| json!({"network": network, "owner": owner, "mac": "52:54:00:12:34:56"});
    server.store.hold();
    client.send("ip.allocate", with_mac("lan", "a"));
    assert!(client.waits_still(MOMENT));
    other.send("ip.allocate", with_mac("dmz", "b"));
    assert!(other.waits_still(MOMENT));
    server.store.let_go();
    assert_eq!(client.answer()["result"]["owner"], "a");
    assert_eq!(other.answer()["error"]["data"]["held_by"]["owner"], "a");
}

#[test]
fn a_network_with_nothing_pending_answers_while_another_waits_for_the_store() {
    if stores::not_over_redis(stores::PROOF_WAITS) {
        return;
    }
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    server.store.hold();
    ask(&mut client, "a");
    let mut other = server.client();
    assert_eq!(other.ok("ip.get", json!({"network": "dmz", "address": "10.1.0.1"}))["state"], "free");
    server.store.let_go();
    client.answer();
}

#[test]
fn what_was_not_applied_is_sent_again_and_nobody_notices() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    server.store.next([Fault::NotApplied, Fault::NotApplied, Fault::None]);
    assert_eq!(client.allocate("a")["address"], "10.0.0.2");
    assert_eq!(client.allocate("b")["address"], "10.0.0.3");
    assert_eq!(held(&mut client), "2");
}

#[test]
fn an_unknown_outcome_is_settled_by_the_same_bytes_whether_they_were_applied_or_not() {
    for fault in [Fault::UnknownApplied, Fault::UnknownNotApplied] {
        let server = TestServer::new();
        let mut client = server.with_lan();
        server.store.next([fault]);
        assert_eq!(client.allocate("a")["address"], "10.0.0.2");
        assert_eq!(client.allocate("a")["created"], false);
        assert_eq!(client.allocate("b")["address"], "10.0.0.3");
    }
}

/// For each n and each fault: the n-th commit of a run fails, and the answers agree with what is stored.
#[test]
fn whichever_commit_fails_answers_and_store_agree() {
    for fault in [Fault::NotApplied, Fault::UnknownApplied, Fault::UnknownNotApplied, Fault::Fenced, Fault::Full] {
        for n in 0..6 {
            let server = TestServer::new();
            let mut client = server.with_lan();
            server.store.next(std::iter::repeat_n(Fault::None, n).chain([fault]));
            let (mut sure, mut given_up) = (Vec::new(), Vec::new());
            for at in 0..12 {
                let owner = format!("o{at}");
                let answer = client.call("ip.allocate", json!({"network": "lan", "owner": owner}));
                let data = &answer["error"]["data"];
                match answer["result"]["address"].as_str() {
                    Some(address) => sure.push((owner, address.to_owned())),
                    None if data["applied"] == false => given_up.push(owner),
                    None if fault == Fault::Fenced && stores::over_redis() && is_between_tenures(&answer) => {}
                    None => assert_eq!(data["applied"], "unknown", "{fault:?} {n}: {answer}"),
                }
            }
            let list = client.ok_soon("ip.list", json!({"network": "lan"}));
            let stored: HashMap<String, String> = list["reservations"]
                .as_array()
                .unwrap()
                .iter()
                .map(|entry| ["owner", "address"].map(|member| entry[member].as_str().unwrap().to_owned()).into())
                .collect();
            for (owner, address) in &sure {
                assert_eq!(stored.get(owner), Some(address), "{fault:?} {n}: it was acknowledged");
            }
            for owner in &given_up {
                assert_eq!(stored.get(owner), None, "{fault:?} {n}: {owner} was told that he holds nothing");
            }
        }
    }
}

/// Any commit may fail while many requests are under way, from several clients, over several networks, while the committer
/// gathers them and its queue is given up. What an owner was told last must be what is stored for it.
#[test]
fn whichever_commit_fails_beneath_many_requests_answers_and_store_agree() {
    const NETWORKS: [&str; 3] = ["lan", "dmz", "san"];
    let mut given_up = 0;
    for fault in [Fault::NotApplied, Fault::UnknownApplied, Fault::UnknownNotApplied, Fault::Fenced, Fault::Full] {
        for n in [0, 1, 3] {
            let server = TestServer::new();
            let mut first = server.with_lan();
            for (at, network) in NETWORKS.iter().enumerate().skip(1) {
                let subnets = json!([{"cidr": format!("10.{at}.0.0/24")}]);
                first.ok("network.create", json!({"name": network, "subnets": subnets}));
            }
            server.store.next(std::iter::repeat_n(Fault::None, n).chain([fault, Fault::None, fault]));
            let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
            for (number, client) in clients.iter_mut().enumerate() {
                let mut text = String::new();
                for at in 0..60 {
                    // Each owner is granted an address, and every third one releases it.
                    let owner = format!("{number}/{}", at / 2);
                    let params = json!({"network": NETWORKS[at / 2 % 3], "owner": owner});
                    let method = if at % 2 == 0 || at % 6 == 1 { "ip.allocate" } else { "ip.release" };
                    text += &format!("{}\n", line(at as u64, method, &params));
                }
                client.raw(text);
            }
            // For each owner, what its answers say: it holds this address, or nothing, or nobody knows.
            let mut told: HashMap<String, Option<Option<String>>> = HashMap::new();
            for (number, client) in clients.iter_mut().enumerate() {
                let mut answers: Vec<Value> = (0..60).map(|_| client.answer()).collect();
                answers.sort_by_key(|answer| answer["id"].as_u64());
                for (at, answer) in answers.iter().enumerate() {
                    let of_owner = told.entry(format!("{number}/{}", at / 2)).or_insert(Some(None));
                    let data = &answer["error"]["data"];
                    if let Some(address) = answer["result"]["address"].as_str() {
                        *of_owner = Some(Some(address.to_owned()));
                    } else if answer["result"]["released"].is_array() {
                        *of_owner = Some(None);
                    } else if data["kind"] == "not_found" {
                        assert_ne!(of_owner.as_ref().map(Option::is_some), Some(true), "{fault:?} {n}: {answer}");
                    } else if data["applied"] == false {
                        given_up += 1;
                    } else {
                        let lost = fault == Fault::Fenced && stores::over_redis() && is_between_tenures(answer);
                        assert!(lost || data["applied"] == "unknown", "{fault:?} {n}: {answer}");
                        *of_owner = None;
                    }
                }
            }
            let mut stored: HashMap<String, String> = HashMap::new();
            for network in NETWORKS {
                let list = first.ok_soon("ip.list", json!({"network": network}));
                for held in list["reservations"].as_array().unwrap() {
                    let [owner, address] = ["owner", "address"].map(|member| held[member].as_str().unwrap().to_owned());
                    assert_eq!(stored.insert(owner, address), None, "{held}");
                }
            }
            for (owner, holds) in told.iter().filter_map(|(owner, holds)| Some((owner, holds.as_ref()?))) {
                assert_eq!(stored.get(owner), holds.as_ref(), "{fault:?} {n}: {owner}");
            }
        }
    }
    assert!(given_up > 100, "{given_up} requests were given up: that is no load");
}

/// The first attempt was applied and its answer lost; later refusals say nothing about it.
#[test]
fn an_unknown_outcome_stays_unknown_when_the_store_refuses_afterwards() {
    let server = TestServer::giving_up();
    let mut client = server.with_lan();
    server.store.next([Fault::UnknownApplied]);
    server.store.always(Fault::NotApplied);
    let answer = client.call("ip.allocate", json!({"network": "lan", "owner": "a"}));
    assert_eq!(answer["error"]["data"]["applied"], "unknown", "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(!message.contains("was not applied"), "of the last attempt only: {message}");
    server.store.always(Fault::None);
    let list = client.ok("ip.list", json!({"network": "lan"}));
    assert_eq!(list["reservations"].as_array().unwrap().len(), 1, "it was applied");
}

#[test]
fn past_the_deadline_what_was_not_applied_is_refused_and_memory_goes_back() {
    let server = TestServer::giving_up();
    let mut client = server.with_lan();
    client.allocate("before");
    server.store.always(Fault::NotApplied);
    let begun = Instant::now();
    client.hand_in("ip.allocate", json!({"network": "lan", "owner": "a"}));
    let mut reader = server.client();
    reader.send("ip.get", json!({"network": "lan", "address": "10.0.0.3"}));
    let answer = client.answer();
    assert_eq!(
        (answer["error"]["data"]["kind"].as_str(), &answer["error"]["data"]["applied"]),
        (Some("unavailable"), &json!(false))
    );
    // The read saw a grant that was never made, so it must not be answered.
    assert_eq!(reader.answer()["error"]["data"]["kind"], "unavailable");
    assert!(begun.elapsed() >= Duration::from_millis(1_900), "{:?}", begun.elapsed());
    server.store.always(Fault::None);
    assert_eq!(reader.ok("ip.get", json!({"network": "lan", "address": "10.0.0.3"}))["state"], "free");
    assert_eq!(client.allocate("b")["address"], "10.0.0.3");
    assert_eq!(client.allocate("before")["created"], false);
}

#[test]
fn a_store_that_hangs_makes_writes_unknown_and_the_server_goes_on_when_it_is_back() {
    let server = TestServer::giving_up();
    let mut client = server.with_lan();
    server.store.next([Fault::Hang]);
    ask(&mut client, "a");
    let answer = client.answer();
    assert_eq!(
        (answer["error"]["data"]["kind"].as_str(), &answer["error"]["data"]["applied"]),
        (Some("unavailable"), &json!("unknown"))
    );
    assert_eq!(client.allocate("a")["created"], true);
    let text = http(server.running.http, "GET /metrics", b"").1;
    assert!(text.contains("allod_network_reloads_total 1"), "{text}");
}

#[test]
fn fenced_means_taken_anew_and_nothing_is_lost_that_was_acknowledged() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.allocate("before");
    server.store.next([Fault::Fenced]);
    ask(&mut client, "a");
    assert_eq!(client.answer()["error"]["data"]["applied"], "unknown");
    assert_eq!(client.ok_soon("ip.allocate", json!({"network": "lan", "owner": "before"}))["created"], false);
    assert_eq!(client.allocate("a")["address"], "10.0.0.3");
}

#[test]
fn generations_do_not_repeat_after_a_commit_in_doubt() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let before = client.allocate("before")["generation"].as_u64().unwrap();
    server.store.next([Fault::Fenced]);
    ask(&mut client, "a");
    client.answer();
    let again = client.ok_soon("ip.allocate", json!({"network": "lan", "owner": "a"}));
    assert!(again["generation"].as_u64().unwrap() > before + 1);
}

#[test]
fn a_full_disk_refuses_what_takes_and_lets_releases_through() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.allocate("a");
    server.store.health_is(StoreHealth::Full);
    let answer = client.call("ip.allocate", json!({"network": "lan", "owner": "b"}));
    assert_eq!(
        (answer["error"]["data"]["kind"].as_str(), &answer["error"]["data"]["applied"]),
        (Some("unavailable"), &json!(false))
    );
    assert!(answer["error"]["message"].as_str().unwrap().contains("disk"), "{answer}");
    assert_eq!(client.ok("ip.release", json!({"network": "lan", "owner": "a"}))["released"], json!(["10.0.0.2"]));
    assert_eq!(http(server.running.http, "GET /readyz", b"").0, 503);
    // If a check keeps clients away from a server that grants nothing, it keeps releases away, too.
    let asked = || http(server.running.http, "GET /readyz?answers", b"");
    assert!(asked().0 == 200 && asked().1.starts_with("no other node would do better: "), "{:?}", asked());
    server.store.health_is(StoreHealth::Ready);
    assert_eq!(asked(), (200, "ready\n".to_owned()));
    client.allocate("b");
}

/// The next start would refuse the store: an operator must know before.
#[test]
fn a_store_whose_files_are_damaged_grants_and_says_so() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    *server.store.damage.lock().unwrap() = Some("log/00000003.seg is damaged at offset 4711".into());
    client.allocate("a");
    let (code, told) = http(server.running.http, "GET /readyz", b"");
    let (first, then) = told.split_once('\n').unwrap();
    assert_eq!(
        (code, first),
        (200, "ready, but its next start will be refused: log/00000003.seg is damaged at offset 4711")
    );
    assert!(then.starts_with("`allod export > register.jsonl` now") && then.contains("--give-up-history"), "{then}");
}

#[test]
fn a_create_in_doubt_is_found_out() {
    for (fault, exists) in [(Fault::Fenced, false), (Fault::Full, false), (Fault::UnknownApplied, true)] {
        let server = TestServer::giving_up();
        let mut client = server.client();
        server.store.next([fault]);
        // Nor can the server find out afterwards what became of it.
        server.store.always(if exists { Fault::NotApplied } else { Fault::None });
        let subnets = json!([{"cidr": "10.0.0.0/24"}]);
        assert_eq!(client.kind("network.create", json!({"name": "lan", "subnets": subnets})), "unavailable");
        server.store.always(Fault::None);
        // Name and space are either both free again or both taken, from the first moment on.
        let other = json!({"name": "other", "subnets": subnets});
        if exists {
            assert_eq!(client.kind("network.create", other), "overlap");
            assert_eq!(client.kind("network.create", json!({"name": "lan"})), "already_exists");
            client.allocate("a");
        } else {
            client.ok_soon("network.list", json!({}));
            assert_eq!(client.kind("network.get", json!({"network": "lan"})), "not_found");
            client.ok("network.create", other);
            client.ok("network.create", json!({"name": "lan"}));
        }
    }
}

/// A move was refused for what it saw under holds that are released by then: like every other answer it waits until that is
/// durable.
#[test]
fn a_refused_move_of_a_subnet_leaves_when_what_it_saw_is_durable_or_not_at_all() {
    for fault in [Fault::None, Fault::Full] {
        let server = TestServer::new();
        let mut client = server.with_lan();
        client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/24"}]}));
        client.ok("ip.allocate", json!({"network": "dmz", "owner": "a"}));
        server.store.next([fault]);
        server.store.hold();
        // From here on the slot is taken in both networks, as far as memory knows.
        ask(&mut client, "a");
        assert!(client.waits_still(MOMENT));
        let mut other = server.client();
        other.send("subnet.move", json!({"network": "lan", "subnet": "10.0.0.0/24", "to": "dmz"}));
        assert!(other.waits_still(MOMENT));
        server.store.let_go();
        let (granted, refused) = (client.answer(), other.answer());
        if fault == Fault::None {
            assert_eq!(granted["result"]["created"], true, "{granted}");
            assert_eq!(refused["error"]["data"]["kind"], "already_exists", "{refused}");
        } else {
            assert_eq!(granted["error"]["data"]["applied"], false, "{granted}");
            let data = &refused["error"]["data"];
            assert_eq!((&data["kind"], &data["applied"]), (&json!("unavailable"), &json!(false)), "{refused}");
            other.ok("subnet.move", json!({"network": "lan", "subnet": "10.0.0.0/24", "to": "dmz"}));
        }
    }
}

#[test]
fn a_dry_run_of_a_move_leaves_when_what_it_saw_is_durable_or_not_at_all() {
    for fault in [Fault::None, Fault::Full] {
        let server = TestServer::new();
        let mut client = server.with_lan();
        client.ok("network.create", json!({"name": "dmz"}));
        server.store.next([fault]);
        server.store.hold();
        // From here on the network has this pool, as far as memory knows.
        client.send("subnet.modify", json!({"network": "lan", "subnet": "10.0.0.0/24", "set": {"dhcp": true}}));
        assert!(client.waits_still(MOMENT));
        let mut other = server.client();
        other.send("subnet.move", json!({"network": "lan", "subnet": "10.0.0.0/24", "to": "dmz", "dry_run": true}));
        assert!(other.waits_still(MOMENT), "told of a change that may never be");
        server.store.let_go();
        let (changed, would_be) = (client.answer(), other.answer());
        if fault == Fault::None {
            assert_eq!(changed["result"]["dhcp"], true, "{changed}");
            assert_eq!(would_be["result"]["dhcp"], true, "{would_be}");
        } else {
            assert_eq!(changed["error"]["data"]["applied"], false, "{changed}");
            assert_eq!(would_be["error"]["data"]["kind"], "unavailable", "{would_be}");
        }
        other.ok("subnet.move", json!({"network": "lan", "subnet": "10.0.0.0/24", "to": "dmz", "dry_run": true}));
    }
}

/// What was released stays released, whatever happens next, so the answer must not say that nothing was changed.
#[test]
fn an_act_over_several_networks_that_fails_midway_says_what_was_done() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/30"}]}));
    for ask in [json!({"owner": "a", "scope": "s"}), json!({"scope": "s"})] {
        let method = if ask.get("owner").is_some() { "owner.release" } else { "scope.release" };
        for network in ["lan", "dmz"] {
            client.ok("ip.allocate", json!({"network": network, "owner": "a", "scope": "s"}));
        }
        // Nothing was done, and the answer says so.
        server.store.next([Fault::Full]);
        assert_eq!(client.call(method, ask.clone())["error"]["data"]["applied"], false);
        server.store.next([Fault::None, Fault::Full]);
        // The answer says what was done, and that the client has to ask for the rest.
        let part = client.ok(method, ask.clone());
        assert_eq!((part["released"].as_array().map(Vec::len), &part["more"]), (Some(1), &json!(true)), "{part}");
        server.store.next([Fault::Full]);
        assert_eq!(client.call(method, ask.clone())["error"]["data"]["applied"], false);
        let rest = client.ok(method, ask.clone());
        assert_eq!((rest["released"].as_array().map(Vec::len), &rest["more"]), (Some(1), &json!(false)), "{rest}");
        assert_eq!(client.ok(method, ask)["released"], json!([]));
    }
    // A network that is purged is closed first.
    let id = client.ok("network.get", json!({"network": "dmz"}))["id"].clone();
    client.ok("ip.allocate", json!({"network": "dmz", "owner": "a"}));
    server.store.next([Fault::None, Fault::Full]);
    // The answer says what was done: the network is closed, and how many addresses it still holds.
    let deleted = client.ok("network.delete", json!({"network": "dmz", "purge": true}));
    assert_eq!(deleted, json!({"id": id, "holding": 1}));
    assert_eq!(client.kind("network.get", json!({"network": "dmz"})), "not_found");
    // The rest goes by itself as soon as possible, whether anybody asks again or not.
    wait_for("that it is gone", || client.call("network.get", json!({ "network": id })).get("result").is_none());
    client.ok("network.create", json!({"name": "again", "subnets": [{"cidr": "10.1.0.0/30"}]}));
}

/// The store refuses the purge before its network looks at it; it goes on all the same.
#[test]
fn a_purge_that_is_refused_unseen_goes_on_by_itself() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let id = client.ok("network.get", json!({"network": "lan"}))["id"].clone();
    client.ok("ip.allocate", json!({"network": "lan", "owner": "a"}));
    server.store.hold();
    client.send("network.delete", json!({"network": "lan", "purge": true}));
    assert!(client.waits_still(MOMENT));
    server.store.health_is(StoreHealth::Failed);
    server.store.let_go();
    let deleted = client.answer();
    assert_eq!(deleted["result"], json!({"id": id, "holding": 1}), "{deleted}");
    server.store.health_is(StoreHealth::Ready);
    let space = json!({"name": "again", "subnets": [{"cidr": "10.0.0.0/24"}]});
    client.ok_after("network.create", &space, 200, |answer| answer["error"]["data"]["kind"] == "overlap");
}

/// Nobody knows whether its last part was done, so the answer must not claim to know.
#[test]
fn a_purge_of_which_a_part_is_in_doubt_says_that_nobody_knows_and_what_was_done_before() {
    let server = TestServer::giving_up();
    let mut client = server.with_lan();
    let id = client.ok("network.get", json!({"network": "lan"}))["id"].clone();
    client.ok("ip.allocate", json!({"network": "lan", "owner": "a"}));
    server.store.next([Fault::None, Fault::Hang]);
    let error = client.call("network.delete", json!({"network": "lan", "purge": true}))["error"].clone();
    assert_eq!(error["data"]["applied"], "unknown", "{error}");
    let said = error["message"].as_str().unwrap();
    assert!(said.contains("the network was closed") && said.contains(id.as_str().unwrap()), "{error}");
}

#[test]
fn an_acquire_over_two_networks_is_all_or_nothing() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.1.0.0/30"}]}));
    let both = |owner: &str| json!({"owner": owner, "ips": [{"network": "lan"}, {"network": "dmz"}]});
    client.ok("ip.acquire", both("a"));
    client.ok("ip.acquire", both("b"));
    let answer = client.call("ip.acquire", both("c"));
    assert_eq!(
        (answer["error"]["data"]["kind"].as_str(), answer["error"]["data"]["index"].as_u64()),
        (Some("not_enough_capacity"), Some(1))
    );
    assert_eq!(held(&mut client), "2");
    server.store.next([Fault::Fenced]);
    client.ok("owner.release", json!({"owner": "zz"}));
    client.ok("owner.release", json!({"owner": "b", "network": "dmz", "dry_run": true}));
    let answer = client.call("owner.release", json!({"owner": "b"}));
    assert_eq!(answer["error"]["data"]["kind"], "unavailable", "{answer}");
    client.ok_soon("owner.release", json!({"owner": "b"}));
    assert_eq!(held(&mut client), "1");
    server.store.next([Fault::Fenced]);
    assert_eq!(client.kind("ip.acquire", both("d")), "unavailable");
    let found = client.ok_soon("ip.list", json!({"owner": "d"}));
    assert_eq!(found["reservations"], json!([]));
    client.ok("ip.acquire", both("d"));
}

#[test]
fn leases_end_by_the_shard_clock_in_a_server_that_is_asked_nothing() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("ip.allocate", json!({"network": "lan", "owner": "a", "ttl_seconds": 30}));
    server.clock.advance_ms(29_000);
    assert_eq!(held(&mut client), "1");
    let commits = server.store.commits();
    server.clock.advance_ms(2_000);
    wait_for("that somebody notices", || server.store.commits() > commits);
    assert_eq!(held(&mut client), "0");
}

#[test]
fn an_acquire_is_refused_when_what_it_saw_is_durable() {
    let server = TestServer::new();
    let mut client = server.client();
    for (name, cidr) in [("one", "10.1.0.0/32"), ("other", "10.2.0.0/24")] {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": cidr}]}));
    }
    let mut second = server.client();
    server.store.hold();
    client.send("ip.allocate", json!({"network": "one", "owner": "a"}));
    assert!(client.waits_still(MOMENT));
    second.send("ip.acquire", json!({"owner": "b", "ips": [{"network": "one"}, {"network": "other"}]}));
    assert!(second.waits_still(MOMENT), "the only address is not given to anybody yet");
    server.store.let_go();
    assert_eq!(client.answer()["result"]["address"], "10.1.0.0");
    assert_eq!(second.answer()["error"]["data"]["kind"], "not_enough_capacity");
}

#[test]
fn a_network_is_said_to_be_gone_when_that_is_durable() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut second = server.client();
    server.store.hold();
    client.send("network.delete", json!({"network": "lan"}));
    assert!(client.waits_still(MOMENT));
    let allocate = json!({"network": "lan", "owner": "a"});
    second.send("ip.allocate", allocate.clone());
    assert!(second.waits_still(MOMENT), "it may be there still");
    server.store.always(Fault::NotApplied);
    server.store.let_go();
    assert_eq!(client.answer()["result"]["holding"], 0, "the commit that was held is carried out");
    assert_eq!(second.answer()["error"]["data"]["kind"], "not_found");
    assert_eq!(second.kind("ip.allocate", allocate), "not_found");
}

/// It is the sign of life that a client waits for before it gives a connection up, and with it everything under way there.
#[test]
fn what_is_about_the_server_itself_is_answered_while_an_act_holds_up_everything_behind_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    server.store.hold();
    let purge = client.send("network.delete", json!({"network": "lan", "purge": true}));
    let anew = client.send("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/24"}]}));
    for method in ["server.ping", "server.info", "cluster.nodes", "rpc.discover"] {
        let id = client.send(method, json!({}));
        assert_eq!(client.answer()["id"], id, "{method}");
    }
    // It decides what becomes of the requests behind it, so it has a place among them.
    let set = client.send("session.set", json!({"redirect": true}));
    server.store.let_go();
    let answers = [client.answer(), client.answer(), client.answer()];
    assert!(answers.iter().all(|answer| answer.get("result").is_some()), "{answers:?}");
    let ids: Vec<u64> = answers.iter().map(|answer| answer["id"].as_u64().unwrap()).collect();
    assert_eq!(ids[0], purge, "{answers:?}");
    assert!(ids.contains(&anew) && ids.contains(&set), "{answers:?}");
}
