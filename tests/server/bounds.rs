//! Requests that are each legal never add up to more than a store can write, a queue can hold or a neighbour can bear.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use allod::actors::service::Hooks;
use allod::core::command::Command;
use allod::limits;
use allod::store::embedded::{EmbeddedOptions, EmbeddedStore};
use serde_json::{Value, json};

use crate::figures::shows;
use crate::stores;
use crate::support::{Client, TestServer, line, patient, wait_for};

/// Counts decisions for owners with this prefix.
fn counting(owner_prefix: &'static str) -> (Hooks, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let before_decide = move |command: &Command| {
        let owner = match command {
            Command::Allocate(ask) => Some(&ask.holder.owner),
            Command::Update(target, _) => target.owner.as_ref(),
            _ => None,
        };
        if owner.is_some_and(|owner| owner.as_str().starts_with(owner_prefix)) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    };
    (Hooks { before_decide: Some(Arc::new(before_decide)), ..patient() }, count)
}

/// The longest data that a reservation may have.
fn everything() -> Value {
    let text = |length: usize| "x".repeat(length);
    let labels: serde_json::Map<String, Value> = (0..limits::LABEL_ENTRIES_MAX)
        .map(|at| {
            (format!("{at:0>width$}", width = limits::LABEL_KEY_BYTES_MAX), text(limits::LABEL_VALUE_BYTES_MAX).into())
        })
        .collect();
    json!({"labels": labels, "note": text(limits::NOTE_BYTES_MAX), "owner_uid": text(limits::IDENTITY_BYTES_MAX)})
}

fn owner(at: usize) -> String {
    format!("{:x<width$}", format!("big{at:04}"), width = limits::IDENTITY_BYTES_MAX)
}

/// Sends all lines while the store is held, so that they wait for one group, and returns the answers.
fn at_once(server: &TestServer, client: &mut Client, count: &AtomicUsize, lines: &[String]) -> Vec<Value> {
    let before = count.load(Ordering::SeqCst);
    server.store.hold();
    lines.iter().for_each(|line| client.raw(line));
    wait_for("the decision of all", || count.load(Ordering::SeqCst) == before + lines.len());
    server.store.let_go();
    let answers: Vec<Value> = lines.iter().map(|_| client.answer()).collect();
    for answer in &answers {
        assert!(answer.get("result").is_some(), "{}", answer["error"]);
    }
    answers
}

#[test]
fn the_largest_legal_changes_are_committed_in_groups_that_a_store_can_write() {
    const COUNT: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    // A segment takes a few groups, but never all of the requests.
    let options = EmbeddedOptions { segment_bytes: 4 * limits::BATCH_BYTES_MAX as u64, ..EmbeddedOptions::default() };
    let store = Arc::new(EmbeddedStore::open(dir.path(), 4, options).unwrap());
    let (hooks, count) = counting("big");
    let server = TestServer::over(store, |options| options.hooks = hooks);
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/16"}]}));
    server.store.measure();
    let with = |mut params: Value, more: Value| {
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let grants: Vec<String> = (0..COUNT)
        .map(|at| {
            let asked = json!({"network": "lan", "owner": owner(at), "scope": owner(0), "brief": true});
            line(at as u64, "ip.allocate", &with(asked, everything()))
        })
        .collect();
    at_once(&server, &mut client, &count, &grants);
    let updates: Vec<String> = (0..COUNT)
        .map(|at| {
            let set = json!({"note": "y".repeat(limits::NOTE_BYTES_MAX)});
            line(at as u64, "ip.update", &json!({"network": "lan", "owner": owner(at), "scope": owner(0), "set": set}))
        })
        .collect();
    at_once(&server, &mut client, &count, &updates);
    let longest = server.store.longest();
    // A group is closed before the unit with which it would exceed the bound.
    assert!(longest <= limits::BATCH_BYTES_MAX, "a group of {longest} bytes");
    assert!(longest * 3 >= limits::BATCH_BYTES_MAX, "groups are closed far too early: {longest} bytes");
    assert_eq!(client.ok("ip.list", json!({"network": "lan", "count_only": true}))["count"], json!(COUNT));
}

/// Three clients send far more than may be under way to a network whose changes do not become durable. The excess is not
/// read, let alone decided; requests for another network are answered meanwhile.
#[test]
fn a_client_far_beyond_its_bounds_is_not_read_and_other_networks_answer() {
    if stores::not_over_redis(stores::PROOF_WAITS) {
        return;
    }
    const CROWD: usize = 3;
    const EACH: usize = 4 * limits::IN_FLIGHT_REQUESTS_MAX;
    let (hooks, decided) = counting("crowd");
    let server = TestServer::hooked(hooks);
    let mut other = server.client();
    for (name, cidr) in [("a", "10.0.0.0/16"), ("b", "10.1.0.0/16")] {
        other.ok("network.create", json!({"name": name, "subnets": [{"cidr": cidr}]}));
    }
    server.store.hold();
    let writers: Vec<(Client, std::thread::JoinHandle<()>)> = (0..CROWD)
        .map(|client| {
            let ask = |at: usize| {
                let asked = json!({"network": "a", "owner": format!("crowd{client}/{at}"), "brief": true});
                line(at as u64, "ip.allocate", &asked)
            };
            let text: String = (0..EACH).map(ask).collect();
            let reader = server.client();
            let mut stream = reader.stream.try_clone().unwrap();
            // Blocks as long as the server does not read.
            let write = move || std::io::Write::write_all(&mut stream, text.as_bytes()).unwrap();
            (reader, std::thread::spawn(write))
        })
        .collect();
    let most = CROWD * limits::IN_FLIGHT_REQUESTS_MAX;
    wait_for("the decision of what may be in flight", || decided.load(Ordering::SeqCst) == most);
    // All this happens before a hanging commit is given up, on any machine.
    for at in 0..100 {
        let asked = json!({"network": "b", "address": format!("10.1.0.{}", at % 200 + 1)});
        assert_eq!(other.ok("ip.get", asked)["state"], "free");
        assert_eq!(other.kind("ip.get", json!({"network": "b", "address": "10.1.0"})), "invalid_argument");
    }
    assert!(server.queued("a") <= limits::NETWORK_QUEUE_REQUESTS_MAX);
    assert_eq!(decided.load(Ordering::SeqCst), most, "more was read than may be in flight");
    server.store.let_go();
    other.ok("ip.allocate", json!({"network": "b", "owner": "late"}));
    for (mut reader, writer) in writers {
        for _ in 0..EACH {
            assert!(reader.answer()["result"]["address"].is_string());
        }
        writer.join().unwrap();
    }
    assert_eq!(decided.load(Ordering::SeqCst), CROWD * EACH);
    assert_eq!(server.queued("a"), 0);
}

/// A server over a log whose segments take no more than some 3 000 moved reservations at once.
fn over_short_segments(dir: &std::path::Path) -> TestServer {
    let options = EmbeddedOptions { segment_bytes: 256 << 10, ..EmbeddedOptions::default() };
    TestServer::over(Arc::new(EmbeddedStore::open(dir, 4, options).unwrap()), |_| {})
}

/// Makes a thousand reservations for each of these owners.
fn fill(client: &mut Client, network: &str, owners: std::ops::Range<usize>) {
    for owner in owners {
        for part in 0..4 {
            let prefix = format!("{part}/");
            let ips = vec![json!({"network": network}); 250];
            client.ok(
                "ip.acquire",
                json!({"owner": format!("o{owner}"), "slot_prefix": prefix, "ips": ips, "brief": true}),
            );
        }
    }
}

/// A store takes one change as a whole, so a list of subnets that is longer than one commit is refused for that, and not found
/// out when the network has changed already and must be loaded again.
#[test]
fn a_list_of_subnets_that_no_commit_can_carry_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let server = over_short_segments(dir.path());
    let mut client = server.client();
    let subnets = |count: usize, note: &str| -> Vec<Value> {
        let tags = everything()["labels"].clone();
        let subnet =
            |at: usize| json!({"cidr": format!("10.0.{at}.0/24"), "name": format!("{note}{at}"), "tags": tags});
        (0..count).map(subnet).collect()
    };
    // Seventeen times 12 kB fit; twenty do not.
    client.ok("network.create", json!({"name": "lan", "subnets": subnets(17, "a")}));
    let before = client.ok("network.get", json!({"network": "lan"}));
    for dry_run in [true, false] {
        for (method, ask, field) in [
            ("network.create", json!({"name": "wide", "subnets": subnets(20, "a")}), "subnets"),
            ("network.update", json!({"network": "lan", "set": {"subnets": subnets(20, "b")}}), "set.subnets"),
        ] {
            let mut ask = ask;
            ask["dry_run"] = json!(dry_run);
            let error = client.call(method, ask)["error"].clone();
            assert_eq!((&error["data"]["kind"], &error["data"]["field"]), (&json!("invalid_argument"), &json!(field)));
            let said = error["message"].as_str().unwrap();
            assert!(said.contains("at most 230400 are allowed"), "{said}");
        }
    }
    assert_eq!(client.ok("network.get", json!({"network": "lan"})), before);
    // With less in it, the same goes through, also subnet by subnet.
    client.ok("network.update", json!({"network": "lan", "set": {"subnets": subnets(17, "b")}}));
    for at in 17..20 {
        let mut more = subnets(20, "b")[at].clone();
        more["network"] = json!("lan");
        client.ok("subnet.add", more);
    }
    // A change of nothing but the network itself takes little, however much its subnets have.
    client.ok("network.update", json!({"network": "lan", "set": {"description": "all of it"}}));
}

fn count(client: &mut Client, network: &str) -> Value {
    client.ok("ip.list", json!({"network": network, "count_only": true}))["count"].clone()
}

#[test]
fn a_subnet_moves_as_a_whole_or_is_told_how_much_less_may_lie_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = over_short_segments(dir.path());
    let mut client = server.client();
    client.ok("network.create", json!({"name": "from", "subnets": [{"cidr": "10.0.0.0/16"}]}));
    client.ok("network.create", json!({"name": "to"}));
    fill(&mut client, "from", 0..5);
    let mut ask = json!({"network": "from", "subnet": "10.0.0.0/16", "to": "to"});
    let before = client.ok("network.get", json!({"network": "from"}));
    for dry_run in [true, false] {
        ask["dry_run"] = json!(dry_run);
        let error = client.call("subnet.move", ask.clone())["error"].clone();
        let data = &error["data"];
        assert_eq!((&data["kind"], &data["count"]), (&json!("in_use"), &json!(5_000)), "{error}");
        assert_eq!((&data["first"][9], &data["retry"]), (&json!("10.0.0.10"), &json!("later")), "{error}");
        let said = error["message"].as_str().unwrap();
        assert!(said.contains("5000 reservations") && said.contains("at most 245760 can move at once"), "{said}");
    }
    assert_eq!(client.ok("network.get", json!({"network": "from"})), before);
    client.ok("ip.allocate", json!({"network": "from", "owner": "goes on"}));
    for owner in ["o2", "o3", "o4"] {
        let released = client.ok("owner.release", json!({"owner": owner}));
        assert_eq!(released["released"].as_array().unwrap().len(), 1_000);
    }
    ask["dry_run"] = json!(false);
    client.ok("subnet.move", ask);
    assert_eq!((count(&mut client, "from"), count(&mut client, "to")), (json!(0), json!(2_001)));
}

#[test]
fn what_lets_many_go_needs_no_commit_that_holds_them_all() {
    let dir = tempfile::tempdir().unwrap();
    let server = over_short_segments(dir.path());
    let mut client = server.client();
    // Released addresses keep cooling, so the deleted network has much to forget.
    let create = |client: &mut Client, at: usize| {
        let (name, subnets) = (format!("n{at}"), json!([{"cidr": format!("10.{at}.0.0/16")}]));
        client.ok("network.create", json!({"name": name, "cooldown_seconds": 3_600, "subnets": subnets}));
        fill(client, &name, 0..6);
        name
    };
    let network = create(&mut client, 0);
    let released = client.ok("scope.release", json!({"scope": "default"}));
    assert_eq!((released["released"].as_array().unwrap().len(), &released["more"]), (6_000, &json!(false)));
    assert_eq!(count(&mut client, &network), 0);
    client.ok("subnet.remove", json!({"network": network, "subnet": "10.0.0.0/16"}));
    client.ok("network.delete", json!({"network": network}));

    let network = create(&mut client, 1);
    assert_eq!(client.kind("network.delete", json!({"network": network})), "in_use");
    let deleted = client.ok("network.delete", json!({"network": network, "purge": true}));
    assert_eq!(deleted["holding"], 0);

    let network = create(&mut client, 2);
    let deleted = client.ok("network.delete", json!({"network": network, "force": true}));
    assert_eq!(deleted["holding"], 6_000);
    client.ok("scope.release", json!({"scope": "default"}));
    // Its cooling addresses are forgotten right afterwards, in steps.
    let ask = json!({"network": deleted["id"]});
    wait_for("the end of the network", || client.call("network.get", ask.clone()).get("error").is_some());
}

/// An owner may hold any number of addresses, so `exact` might release any number. The request is refused before anything is
/// decided on it, and other requests in the network go on.
#[test]
fn an_exact_acquire_that_lets_go_of_too_much_is_refused_and_says_how_to_go_on() {
    let options = EmbeddedOptions { segment_bytes: 4 * limits::BATCH_BYTES_MAX as u64, ..EmbeddedOptions::default() };
    exact_is_refused(options, 600);
}

/// However much the store takes at once: all networks stand still while the request is decided.
#[test]
fn an_exact_acquire_keeps_nobody_waiting_for_as_much_as_the_store_would_take() {
    let room = EmbeddedOptions::default();
    assert!(room.segment_bytes > 4 * limits::PARTED_BYTES_MAX as u64);
    exact_is_refused(room, 800);
}

/// Even if there is little to write for each address, deciding takes as long.
#[test]
fn an_exact_acquire_of_very_many_is_refused_however_short_they_are() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/15"}]}));
    client.ok("network.create", json!({"name": "dmz", "subnets": [{"cidr": "10.2.0.0/24"}]}));
    let ips = vec![json!({"network": "lan"}); 256];
    let asks = limits::PARTED_BYTES_MAX / limits::PARTED_CHANGE_BYTES / 256 + 2;
    for at in 0..asks {
        let slots = format!("{at}-");
        client.ok("ip.acquire", json!({"owner": "o", "slot_prefix": slots, "ips": ips, "brief": true}));
    }
    for others in [json!([{"network": "lan"}]), json!([{"network": "lan"}, {"network": "dmz"}])] {
        let error = client.call("ip.acquire", json!({"owner": "o", "ips": others, "exact": true}))["error"].clone();
        assert_eq!(error["data"]["field"], "exact", "{error}");
    }
    assert_eq!(client.ok("ip.list", json!({"owner": "o", "count_only": true}))["count"], 256 * asks);
}

/// An owner of so many of the largest possible reservations asks for exactly one of them.
fn exact_is_refused(options: EmbeddedOptions, count: usize) {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::over(Arc::new(EmbeddedStore::open(dir.path(), 4, options).unwrap()), |_| ());
    let mut client = server.client();
    for (name, cidr) in [("lan", "10.0.0.0/16"), ("dmz", "10.1.0.0/16")] {
        client.ok("network.create", json!({"name": name, "subnets": [{"cidr": cidr}]}));
    }
    for slot in 0..count {
        let mut ask = json!({"network": "lan", "owner": "many", "slot": slot.to_string(), "brief": true});
        ask.as_object_mut().unwrap().extend(everything().as_object().unwrap().clone());
        client.ok("ip.allocate", ask);
    }
    let one = json!({"network": "lan", "slot": "0"});
    for ips in [json!([one]), json!([one, {"network": "dmz", "slot": "0"}])] {
        for dry_run in [false, true] {
            let error = client
                .call("ip.acquire", json!({"owner": "many", "ips": ips, "exact": true, "dry_run": dry_run}))["error"]
                .clone();
            assert_eq!(
                (&error["data"]["kind"], &error["data"]["field"]),
                (&json!("invalid_argument"), &json!("exact"))
            );
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("owner.release") && message.contains("at most"), "{error}");
        }
    }
    assert_eq!(client.ok("ip.list", json!({"owner": "many", "count_only": true}))["count"], json!(count));
    let few = json!({"owner": "few", "ips": [one], "exact": true});
    assert_eq!(client.ok("ip.acquire", few)["reservations"].as_array().unwrap().len(), 1);
}

#[test]
fn a_short_request_makes_no_answer_without_bound() {
    let server = TestServer::new();
    let mut client = server.client();
    // With gaps, so that no pool merges with its neighbour.
    let pools: Vec<Value> =
        (0..300).map(|at| json!({"range": format!("10.{}.{}.0/24", at / 128, at % 128 * 2)})).collect();
    client.ok("network.create", json!({"name": "lan", "subnets": [{"cidr": "10.0.0.0/8", "pools": pools}]}));
    // Wishes: instances, each with a wish for each network.
    let instances: Vec<String> = (0..1_000).map(|at| at.to_string()).collect();
    let networks: Vec<Value> = (0..21).map(|slot| json!({"network": "lan", "slot": slot.to_string()})).collect();
    let groups = json!([{"name": "g", "instances": instances, "networks": networks}]);
    let error = client.call("deployment.plan", json!({"deployment": "d", "groups": groups}))["error"].clone();
    assert_eq!(error["data"]["field"], json!("groups[0].networks[20]"), "{error}");
    // The pools in a refusal: some of them, and the sum of all.
    let error =
        client.call("ip.allocate", json!({"network": "lan", "owner": "a", "prefix_length": 23}))["error"].clone();
    assert_eq!(error["data"]["pools"].as_array().unwrap().len(), 256);
    assert_eq!(error["data"]["size"], json!((300 * 256).to_string()));
    assert!(error["message"].as_str().unwrap().contains("only 256 of 300 pools are shown"), "{error}");
    // Maps of many pools.
    let cidrs = (0..80).map(|at| json!({"cidr": format!("11.{at}.0.0/16")}));
    client.ok("network.create", json!({"name": "wide", "subnets": cidrs.collect::<Vec<_>>()}));
    let error = client.call("network.map", json!({"network": "wide"}))["error"].clone();
    assert_eq!(
        (&error["data"]["kind"], &error["data"]["field"]),
        (&json!("invalid_argument"), &json!("pool")),
        "{error}"
    );
    let one = client.ok("network.map", json!({"network": "wide", "subnet": "11.3.0.0/16"}));
    assert_eq!(one["pools"].as_array().unwrap().len(), 1);
}

/// Sends a batch, and returns its answers, their bytes, and how many of them are `overloaded`.
fn batch_of(client: &mut Client, members: Vec<Value>) -> (Vec<Value>, usize, usize) {
    let ask = |(id, member): (usize, &Value)| {
        let mut member = member.clone();
        (member["jsonrpc"], member["id"]) = (json!("2.0"), json!(id));
        member
    };
    let asked: Vec<Value> = members.iter().enumerate().map(ask).collect();
    client.raw(format!("{}\n", json!(asked)));
    let text = client.text_line();
    let mut answers: Vec<Value> = serde_json::from_str(&text).unwrap();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    let refused = answers.iter().filter(|answer| answer["error"]["data"]["kind"] == "overloaded").count();
    (answers, text.len(), refused)
}

/// What can be asked again and again, and what only reads, is refused once the answers of its batch are long; a change is made.
#[test]
fn what_is_repeated_in_a_batch_makes_no_answer_without_bound() {
    const MEMBERS: usize = 90;
    let server = TestServer::new();
    let mut client = server.client();
    let network = format!("{:x<width$}", "lan", width = limits::NAME_CHARACTERS_MAX);
    client.ok("network.create", json!({"name": network, "subnets": [{"cidr": "10.0.0.0/16"}]}));
    let claimant = "c".repeat(limits::IDENTITY_BYTES_MAX);
    for part in 0..12 {
        let ips = vec![json!({"network": network}); 256];
        let (slots, claimant) = (format!("{part}/"), json!(claimant));
        client.ok(
            "ip.acquire",
            json!({"owner": "o", "slot_prefix": slots, "ips": ips, "brief": true, "claimant": claimant}),
        );
    }
    let exact = json!({"owner": "o", "ips": [{"network": network}], "exact": true, "brief": true, "dry_run": true});
    let sweep = json!({"scope": "default", "alive": [], "grace_seconds": 3_600});
    let changes = json!({"method": "ip.allocate", "params": {"network": network, "owner": "new"}});
    let reads = json!({"method": "ip.get", "params": {"network": network, "address": "10.0.200.1"}});
    for (method, params) in [("ip.acquire", exact), ("claimant.sweep", sweep)] {
        let mut members = vec![json!({"method": method, "params": params}); MEMBERS];
        members.extend([changes.clone(), reads.clone()]);
        let (answers, bytes, refused) = batch_of(&mut client, members);
        let longest = answers.iter().map(|answer| answer.to_string().len()).max().unwrap();
        assert!(longest > 2 * limits::BATCH_ANSWER_BYTES_MAX / MEMBERS, "{method}: the answers are short");
        assert!(bytes < limits::BATCH_ANSWER_BYTES_MAX + 2 * longest, "{method}: {bytes} bytes, {refused} refused");
        let [changed, read] = [&answers[MEMBERS], &answers[MEMBERS + 1]];
        assert!(changed.get("result").is_some(), "{method}: {changed}");
        assert_eq!(read["error"]["data"]["kind"], "overloaded", "{method}: {read}");
    }
}

/// It has no pages, and there may be any number of realms.
#[test]
fn an_address_that_is_held_in_very_many_realms_is_looked_up_in_one_of_them() {
    // Written with an escape for each byte, so that each reservation takes some 25 kB.
    let text = |length: usize| "\"".repeat(length);
    let key = |at: usize| format!("{at:\"<width$}", width = limits::LABEL_KEY_BYTES_MAX);
    let labels: serde_json::Map<String, Value> =
        (0..limits::LABEL_ENTRIES_MAX).map(|at| (key(at + 100), text(limits::LABEL_VALUE_BYTES_MAX).into())).collect();
    let server = TestServer::new();
    let mut client = server.client();
    let mut at = 0;
    let mut hold_on_to = |client: &mut Client, realms: usize| {
        for _ in 0..realms {
            let name = format!("n{at}");
            let realm = format!("r{at}");
            client.ok("network.create", json!({"name": name, "realm": realm, "subnets": [{"cidr": "10.0.0.0/24"}]}));
            let asked = json!({"network": name, "address": "10.0.0.5", "owner": "o", "brief": true, "labels": labels});
            client.ok("ip.claim", asked);
            at += 1;
        }
    };
    let find = json!({"address": "10.0.0.5"});
    hold_on_to(&mut client, 100);
    client.send("ip.find", find.clone());
    let each = client.text_line().len() / 100;
    // As many as fit are answered.
    let fit = limits::ANSWER_BYTES_MAX / each - 4;
    hold_on_to(&mut client, fit - 100);
    assert_eq!(client.ok("ip.find", find.clone())["found"].as_array().unwrap().len(), fit);
    hold_on_to(&mut client, 8);
    let error = client.call("ip.find", find)["error"].clone();
    assert_eq!(
        (&error["data"]["kind"], &error["data"]["field"]),
        (&json!("invalid_argument"), &json!("address")),
        "{error}"
    );
    let said = error["message"].as_str().unwrap();
    assert!(said.contains(&format!("{} networks", fit + 8)) && said.contains("`ip.get` with `realm`"), "{said}");
    let one = client.ok("ip.get", json!({"address": "10.0.0.5", "realm": "r7"}));
    assert_eq!((&one["network"], &one["state"]), (&json!("n7"), &json!("held")));
}

/// Ends a load, however its test ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Each job of a user may have a scope of its own, and the network of all of them something under way at any time.
#[test]
fn a_network_that_is_never_idle_forgets_the_scopes_that_have_nothing_there_any_more() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&asked);
    let before_work = move |command: &Command| {
        if matches!(command, Command::List(_)) {
            counts.fetch_add(1, Ordering::SeqCst);
        }
    };
    let server = TestServer::hooked(Hooks { before_work: Some(Arc::new(before_work)), ..patient() });
    let mut client = server.with_lan();
    for scope in ["job", "other", "next"] {
        client.ok("ip.allocate", json!({"network": "lan", "scope": scope, "owner": "a"}));
    }
    // The requests of some are under way while those of the others are answered.
    server.store.commit_takes_ms.store(50, Ordering::Relaxed);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let _ends = Ends(&is_over);
        for at in 0..4 {
            let (mut client, is_over) = (server.client(), &is_over);
            let steady = json!({"network": "lan", "owner": format!("steady/{at}")});
            threads.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    client.ok("ip.allocate", steady.clone());
                    client.ok("ip.release", steady.clone());
                }
            });
            std::thread::sleep(std::time::Duration::from_millis(25));
        }
        for scope in ["job", "other"] {
            client.ok("ip.release", json!({"network": "lan", "scope": scope, "owner": "a"}));
        }
        let is_asked = |client: &mut Client| {
            let before = asked.load(Ordering::SeqCst);
            client.ok("ip.list", json!({"scope": "job"}));
            asked.load(Ordering::SeqCst) > before
        };
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let mut forgets = false;
        while !forgets && std::time::Instant::now() < end {
            forgets = !is_asked(&mut client);
        }
        assert!(forgets, "it is asked for a scope of which it has nothing");
    });
    // What is under way may come to nothing.
    server.store.hold();
    server.client().hand_in("ip.release", json!({"network": "lan", "scope": "next", "owner": "a", "strict": true}));
    shows(&server, &[("allod_network_addresses_held{family=\"4\",network=\"lan\",realm=\"default\"}", 0.0)]);
    let before = asked.load(Ordering::SeqCst);
    client.send("ip.list", json!({"scope": "next"}));
    wait_for("that the network is asked for the other", || asked.load(Ordering::SeqCst) > before);
    server.store.let_go();
}
