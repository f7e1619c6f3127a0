//! Garbage collection of claimants: which ones are swept, when, and what holds a sweep back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use allod::actors::service::Hooks;
use allod::core::command::Command;
use serde_json::{Value, json};

use crate::support::{Client, TestServer, patient, wait_for};

fn with_networks(server: &TestServer, names: &[&str]) -> Client {
    let mut client = server.client();
    for (at, name) in names.iter().enumerate() {
        let subnets = json!([{"cidr": format!("10.{at}.0.0/20")}]);
        client.ok("network.create", json!({"name": name, "subnets": subnets}));
    }
    client
}

fn use_one(client: &mut Client, network: &str, owner: &str, claimant: &str) -> Value {
    client.ok("ip.allocate", json!({"network": network, "scope": "prod", "owner": owner, "claimant": claimant}))
}

/// Lets a claimant use an address that is to be released with it.
fn lend_one(client: &mut Client, network: &str, owner: &str, claimant: &str) -> Value {
    let release = json!({"network": network, "scope": "prod", "owner": owner, "claimant": claimant,
        "release_with_claimant": true});
    client.ok("ip.allocate", release)
}

fn sweep_with(client: &mut Client, more: Value) -> Value {
    let mut params = json!({"scope": "prod", "max_share": 1});
    for (name, value) in more.as_object().unwrap() {
        params[name] = value.clone();
    }
    client.ok("claimant.sweep", params)
}

fn sweep(client: &mut Client, alive: &[&str], grace_seconds: u64) -> Value {
    sweep_with(client, json!({"alive": alive, "grace_seconds": grace_seconds}))
}

/// Claimants in a list of the answer.
fn of(swept: &Value, list: &str) -> Vec<String> {
    let claimants = swept[list].as_array().unwrap().iter().map(|at| at["claimant"].as_str().unwrap().to_owned());
    claimants.collect()
}

fn claimant_of(client: &mut Client, network: &str, address: &Value) -> Value {
    let found = client.ok("ip.get", json!({"network": network, "address": address}));
    found["reservation"].get("claimant").cloned().unwrap_or(Value::Null)
}

#[test]
fn a_claimant_is_let_go_when_two_sweeps_missed_it_at_least_the_grace_apart() {
    let server = TestServer::new();
    let mut client = with_networks(&server, &["lan"]);
    let held = use_one(&mut client, "lan", "web/0", "vm-1");
    use_one(&mut client, "lan", "web/1", "vm-2");
    let first = sweep(&mut client, &["vm-2"], 60);
    assert_eq!(first["waiting"], json!([{"network": "lan", "address": held["address"], "claimant": "vm-1"}]));
    server.clock.advance_ms(59_999);
    assert_eq!(of(&sweep(&mut client, &["vm-2"], 60), "waiting"), ["vm-1"], "a sweep in between is no new beginning");
    server.clock.advance_ms(1);
    let last = sweep(&mut client, &["vm-2"], 60);
    assert_eq!(last["unbound"], json!([{"network": "lan", "address": held["address"], "claimant": "vm-1"}]));
    assert_eq!((&last["released"], &last["waiting"]), (&json!([]), &json!([])));
    assert_eq!(claimant_of(&mut client, "lan", &held["address"]), Value::Null);
    let again = client.ok("ip.allocate", json!({"network": "lan", "scope": "prod", "owner": "web/0"}));
    assert_eq!((&again["address"], &again["created"]), (&held["address"], &json!(false)), "its owner keeps it");
    assert_eq!(sweep(&mut client, &["vm-2"], 60)["unbound"], json!([]), "repeated, it finds nothing");
}

#[test]
fn the_wall_clock_ends_no_grace() {
    let server = TestServer::new();
    let mut client = with_networks(&server, &["lan"]);
    use_one(&mut client, "lan", "web/0", "vm-1");
    sweep(&mut client, &[], 60);
    server.clock.set_wall(allod::core::types::WallTime(1_900_000_000_000));
    assert_eq!(of(&sweep(&mut client, &[], 60), "waiting"), ["vm-1"]);
}

#[test]
fn without_grace_it_takes_two_sweeps_all_the_same_and_sixty_seconds_are_the_default() {
    let server = TestServer::new();
    let mut client = with_networks(&server, &["lan"]);
    use_one(&mut client, "lan", "web/0", "vm-1");
    assert_eq!(of(&sweep(&mut client, &[], 0), "waiting"), ["vm-1"]);
    let by_default = json!({"alive": []});
    assert_eq!(of(&sweep_with(&mut client, by_default.clone()), "waiting"), ["vm-1"]);
    server.clock.advance_ms(60_000);
    assert_eq!(of(&sweep_with(&mut client, by_default), "unbound"), ["vm-1"]);
    use_one(&mut client, "lan", "web/0", "vm-3");
    sweep(&mut client, &[], 0);
    assert_eq!(of(&sweep(&mut client, &[], 0), "unbound"), ["vm-3"]);
}

#[test]
fn who_is_seen_alive_or_binds_again_begins_anew() {
    let server = TestServer::new();
    let mut client = with_networks(&server, &["lan"]);
    let params =
        |owner: &str| json!({"network": "lan", "scope": "prod", "owner": owner, "claimant": format!("vm-{owner}")});
    let owners = ["seen", "bind", "allocate", "acquire", "claim", "renewed", "unheard"];
    for owner in owners {
        client.ok("ip.allocate", params(owner));
    }
    let all: Vec<String> = owners.iter().map(|owner| format!("vm-{owner}")).collect();
    let first = sweep(&mut client, &[], 0);
    assert_eq!(of(&first, "waiting").len(), owners.len());
    assert_eq!(of(&sweep_with(&mut client, json!({"alive": all, "grace_seconds": 0})), "waiting"), [] as [&str; 0]);
    assert_eq!(of(&sweep(&mut client, &["vm-seen"], 0), "waiting").len(), owners.len() - 1);
    // All but the first are missed now. The calls below change nothing, since they are bound already, but they show that the
    // claimants live.
    assert_eq!(client.ok("ip.bind", params("bind"))["claimant"], "vm-bind");
    assert_eq!(client.ok("ip.allocate", params("allocate"))["created"], false);
    let acquire = json!({"network": "lan", "scope": "prod", "owner": "acquire", "claimant": "vm-acquire", "ips": [{}]});
    assert_eq!(client.ok("ip.acquire", acquire)["reservations"][0]["created"], false);
    let mut claim = params("claim");
    claim["address"] =
        client.ok("ip.list", json!({"scope": "prod", "owner": "claim"}))["reservations"][0]["address"].clone();
    assert_eq!(client.ok("ip.claim", claim)["created"], false);
    client.ok("ip.renew", json!({"network": "lan", "scope": "prod", "owner": "renewed", "ttl_seconds": null}));
    client.ok("ip.allocate", json!({"network": "lan", "scope": "prod", "owner": "unheard"}));
    let second = sweep(&mut client, &[], 0);
    assert_eq!(of(&second, "unbound"), ["vm-renewed", "vm-unheard"]);
    assert_eq!(of(&second, "waiting"), ["vm-seen", "vm-bind", "vm-allocate", "vm-acquire", "vm-claim"]);
}

/// If a claimant was heard of after a sweep's first look, the second look misses it for the first time again.
#[test]
fn who_is_heard_of_while_a_sweep_runs_is_not_let_go_by_it() {
    let looks = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&looks);
    let count = move |command: &Command| {
        if matches!(command, Command::SweepLook(_)) {
            counting.fetch_add(1, Ordering::SeqCst);
        }
    };
    let server = TestServer::hooked(Hooks { before_decide: Some(Arc::new(count)), ..patient() });
    let mut client = with_networks(&server, &["lan"]);
    let mut others = [server.client(), server.client()];
    let params = json!({"network": "lan", "scope": "prod", "owner": "web/0", "claimant": "vm-1"});
    for heard in ["ip.bind", "ip.allocate"] {
        let held = lend_one(&mut client, "lan", "web/0", "vm-1");
        assert_eq!(of(&sweep(&mut client, &[], 0), "waiting"), ["vm-1"], "{heard}");
        // A look is answered once what it saw is durable: here a grant to somebody else just before.
        server.store.hold();
        let [granted, swept] = &mut others;
        granted.send("ip.allocate", json!({"network": "lan", "scope": "prod", "owner": heard}));
        assert!(granted.waits_still(Duration::from_millis(100)));
        looks.store(0, Ordering::SeqCst);
        swept.send("claimant.sweep", json!({"scope": "prod", "alive": [], "grace_seconds": 0, "max_share": 1}));
        wait_for("its first look", || looks.load(Ordering::SeqCst) > 0);
        client.hand_in(heard, params.clone());
        assert_eq!(looks.load(Ordering::SeqCst), 1, "{heard}: the sweep is at its first look");
        server.store.let_go();
        let bound = client.answer()["result"].clone();
        assert_eq!(bound["generation"], held["generation"], "{heard}: {bound}");
        granted.answer();
        let swept = swept.answer()["result"].clone();
        assert_eq!((&swept["unbound"], &swept["released"]), (&json!([]), &json!([])), "{heard}");
        assert_eq!(claimant_of(&mut client, "lan", &held["address"]), "vm-1", "{heard}");
        // The second look missed it for the first time.
        assert_eq!(of(&sweep(&mut client, &[], 0), "released"), ["vm-1"], "{heard}");
    }
}

/// A claimer with the same name and another UID counts as absent; a rebuilt machine keeps its address.
#[test]
fn a_claimant_of_a_rebuilt_machine_is_not_swept_because_of_a_stale_binding() {
    let server = TestServer::new();
    let mut client = with_networks(&server, &["lan"]);
    lend_one(&mut client, "lan", "web/0", "vm-old");
    sweep(&mut client, &[], 0);
    // The machine is rebuilt, and its owner asks again for the new machine.
    let rebuilt = lend_one(&mut client, "lan", "web/0", "vm-new");
    assert_eq!((&rebuilt["created"], &rebuilt["previous_claimant"]), (&json!(false), &json!("vm-old")));
    // The list was made before the new machine existed.
    let second = sweep(&mut client, &[], 0);
    assert_eq!((of(&second, "waiting"), second["released"].clone()), (vec!["vm-new".to_owned()], json!([])));
    // Released and granted again under the same names, it is another holding.
    client.ok("ip.release", json!({"network": "lan", "scope": "prod", "owner": "web/0"}));
    lend_one(&mut client, "lan", "web/0", "vm-new");
    assert_eq!(of(&sweep(&mut client, &[], 0), "waiting"), ["vm-new"]);
    assert_eq!(of(&sweep(&mut client, &[], 0), "released"), ["vm-new"]);
}

/// ironcore: "a pre-created IP survives its user, a dynamic IP does not. Two lifetimes behind one call."
#[test]
fn an_address_made_for_its_claimer_goes_with_it_and_one_made_before_stays() {
    let server = TestServer::new();
    let mut client = with_networks(&server, &["public"]);
    let made_before = client.ok("ip.allocate", json!({"network": "public", "scope": "prod", "owner": "public-ip-1"}));
    let nic = json!({"address": made_before["address"], "scope": "prod", "claimant": "nic-1"});
    assert_eq!(client.ok("ip.bind", nic.clone())["claimant"], "nic-1", "found in the namespace, without a network");
    let made_for = lend_one(&mut client, "public", "nic-1", "nic-1");
    assert_ne!(made_for["address"], made_before["address"]);
    // The claimer itself gives both up.
    let unbound = client.ok("ip.unbind", nic.clone());
    assert_eq!((unbound.get("claimant"), unbound.get("released")), (None, None), "{unbound}");
    let dynamic = json!({"address": made_for["address"], "scope": "prod", "claimant": "nic-1"});
    assert_eq!(client.ok("ip.unbind", dynamic)["released"], true);
    // Or the claimer is gone, and the garbage collector does so.
    client.ok("ip.bind", nic);
    lend_one(&mut client, "public", "nic-1", "nic-1");
    sweep(&mut client, &[], 0);
    let swept = sweep(&mut client, &[], 0);
    assert_eq!((of(&swept, "unbound"), of(&swept, "released")), (vec!["nic-1".into()], vec!["nic-1".into()]));
    let left = client.ok("ip.list", json!({"scope": "prod"}))["reservations"].clone();
    assert_eq!(left.as_array().unwrap().len(), 1, "{left}");
    assert_eq!((&left[0]["address"], left[0].get("claimant")), (&made_before["address"], None));
    let free = client.ok("ip.get", json!({"network": "public", "address": made_for["address"]}));
    assert_eq!(free["state"], "free");
}

#[test]
fn a_sweep_that_would_let_go_of_too_much_does_nothing() {
    let server = TestServer::new();
    let mut client = with_networks(&server, &["lan", "dmz"]);
    for at in 0..5 {
        use_one(&mut client, "lan", &format!("web/{at}"), &format!("vm-{at}"));
        lend_one(&mut client, "dmz", &format!("web/{at}"), &format!("nic-{at}"));
    }
    // Everybody is missed at once for the first time, which does not trigger the brake.
    let ask = |alive: Value, more: Value| {
        let mut params = json!({"scope": "prod", "alive": alive, "grace_seconds": 0});
        more.as_object().unwrap().iter().for_each(|(name, value)| params[name] = value.clone());
        params
    };
    let all_but = |missing: &[&str]| -> Value {
        let all = (0..5).flat_map(|at| [format!("vm-{at}"), format!("nic-{at}")]);
        all.filter(|name| !missing.contains(&name.as_str())).map(Value::from).collect()
    };
    let three = ["vm-0", "vm-1", "nic-0"];
    assert_eq!(of(&client.ok("claimant.sweep", ask(all_but(&three), json!({}))), "waiting").len(), 3);
    // Now three of ten are due, and seven are missed for the first time.
    let refused = client.call("claimant.sweep", ask(json!([]), json!({})))["error"].clone();
    let data = &refused["data"];
    assert_eq!((&refused["code"], &data["kind"]), (&json!(-32013), &json!("brake")), "{refused}");
    assert_eq!((&data["would_release"], &data["retry"]), (&json!(3), &json!("never")));
    assert!(refused["message"].as_str().unwrap().contains("3 of the 10 reservations of scope `prod`"), "{refused}");
    let dry = client.call("claimant.sweep", ask(json!([]), json!({"dry_run": true})));
    assert_eq!(dry["error"]["data"]["kind"], "brake", "the same error");
    assert_eq!(client.ok("ip.list", json!({"scope": "prod", "bound": true, "count_only": true}))["count"], 10);
    // The refused sweep did not note the seven, either.
    let allowed = client.ok("claimant.sweep", ask(json!([]), json!({"max_share": 0.3})));
    let (unbound, released) = (of(&allowed, "unbound"), of(&allowed, "released"));
    assert_eq!((unbound, released), (vec!["vm-0".to_owned(), "vm-1".to_owned()], vec!["nic-0".to_owned()]));
    assert_eq!(of(&allowed, "waiting").len(), 7);
    // Two of nine are more than a fifth; one is not.
    let two = ["vm-2", "nic-2"];
    assert_eq!(client.kind("claimant.sweep", ask(all_but(&two), json!({}))), "brake");
    assert_eq!(of(&client.ok("claimant.sweep", ask(all_but(&["vm-2"]), json!({}))), "unbound"), ["vm-2"]);
    // Even where nothing may be released, a first miss does not trigger the brake.
    assert_eq!(of(&client.ok("claimant.sweep", ask(json!([]), json!({"max_share": 0}))), "waiting").len(), 6);
    assert_eq!(client.kind("claimant.sweep", ask(json!([]), json!({"max_share": 0}))), "brake");
}

#[test]
fn in_one_network_the_brake_weighs_what_the_scope_has_in_all() {
    let server = TestServer::new();
    let mut client = with_networks(&server, &["lan", "dmz"]);
    use_one(&mut client, "lan", "web/0", "vm-0");
    for at in 0..4 {
        use_one(&mut client, "dmz", &format!("web/{at}"), "elsewhere");
    }
    let another = json!({"network": "dmz", "scope": "dev", "owner": "web/9"});
    client.ok("ip.allocate", another);
    let in_lan =
        |share: f64| json!({"scope": "prod", "alive": [], "network": "lan", "grace_seconds": 0, "max_share": share});
    assert_eq!(of(&client.ok("claimant.sweep", in_lan(0.2)), "waiting"), ["vm-0"]);
    let braked = client.call("claimant.sweep", in_lan(0.19))["error"].clone();
    assert_eq!((&braked["data"]["kind"], &braked["data"]["would_release"]), (&json!("brake"), &json!(1)), "{braked}");
    assert!(braked["message"].as_str().unwrap().contains("of the 5 reservations of scope `prod`"), "{braked}");
    // One of five is a fifth, which is the default; one of one would exceed it.
    let swept = client.ok("claimant.sweep", in_lan(0.2));
    assert_eq!(
        (of(&swept, "unbound"), of(&swept, "waiting")),
        (vec!["vm-0".to_owned()], vec![]),
        "and no other network"
    );
    let everywhere = json!({"scope": "prod", "alive": [], "grace_seconds": 0});
    assert_eq!(of(&client.ok("claimant.sweep", everywhere), "waiting").len(), 4, "missed for the first time");
    assert_eq!(client.kind("claimant.sweep", json!({"scope": "prod", "alive": [], "network": "nowhere"})), "not_found");
}

#[test]
fn who_is_marked_under_the_name_of_the_sweep_is_alive() {
    let server = TestServer::new();
    let mut client = with_networks(&server, &["lan"]);
    for at in 0..4 {
        use_one(&mut client, "lan", &format!("web/{at}"), &format!("vm-{at}"));
    }
    let mark = |claimants: Value| json!({"scope": "prod", "sweep": "nightly", "claimants": claimants});
    assert_eq!(client.ok("claimant.mark", mark(json!(["vm-0", "vm-1"])))["marked"], 2);
    let mut dry = mark(json!(["vm-3"]));
    dry["dry_run"] = json!(true);
    assert_eq!(client.ok("claimant.mark", dry)["marked"], 3, "a dry run notes nobody");
    // Pipelined: a sweep that is sent after a mark sees it.
    client.send("claimant.mark", mark(json!(["vm-1", "vm-2"])));
    client.send("claimant.sweep", json!({"scope": "prod", "sweep": "nightly", "grace_seconds": 0}));
    assert_eq!(client.answer()["result"]["marked"], 3);
    assert_eq!(of(&client.answer()["result"], "waiting"), ["vm-3"]);
    let by_name = json!({"sweep": "nightly", "grace_seconds": 0});
    assert_eq!(of(&sweep_with(&mut client, by_name.clone()), "unbound"), ["vm-3"]);
    assert_eq!(client.kind("claimant.sweep", json!({"scope": "other", "sweep": "nightly"})), "not_found");
    server.clock.advance_ms(3_600_000);
    let gone = client.call("claimant.sweep", json!({"scope": "prod", "sweep": "nightly"}))["error"].clone();
    assert_eq!(gone["data"]["kind"], "not_found", "forgotten is not the same as nobody alive");
    assert!(gone["message"].as_str().unwrap().starts_with("sweep `nightly` of scope `prod` does not exist"), "{gone}");
    assert_eq!(client.ok("claimant.mark", mark(json!([])))["marked"], 0);
    assert_eq!(of(&sweep_with(&mut client, by_name), "waiting"), ["vm-0", "vm-1", "vm-2"], "said to be nobody");
}

#[test]
fn a_sweep_is_told_in_exactly_one_way_who_lives() {
    let server = TestServer::new();
    let mut client = with_networks(&server, &["lan"]);
    for (params, field) in [
        (json!({"scope": "prod"}), "alive"),
        (json!({"scope": "prod", "alive": [], "sweep": "x"}), "sweep"),
        (json!({"scope": "prod", "alive": [], "max_share": 1.5}), "max_share"),
        (json!({"scope": "prod", "alive": [], "grace_seconds": -1}), "grace_seconds"),
        (json!({"alive": []}), "scope"),
    ] {
        let error = client.call("claimant.sweep", params)["error"].clone();
        assert_eq!((&error["data"]["kind"], &error["data"]["field"]), (&json!("invalid_argument"), &json!(field)));
    }
    assert_eq!(sweep(&mut client, &[], 0), json!({"unbound": [], "released": [], "waiting": []}));
}

#[test]
fn a_dry_run_tells_what_a_sweep_would_do_and_remembers_nothing() {
    let server = TestServer::new();
    let mut client = with_networks(&server, &["lan"]);
    use_one(&mut client, "lan", "web/0", "vm-0");
    lend_one(&mut client, "lan", "web/1", "vm-1");
    let dry = json!({"alive": [], "grace_seconds": 0, "dry_run": true});
    for _ in 0..2 {
        assert_eq!(of(&sweep_with(&mut client, dry.clone()), "waiting"), ["vm-0", "vm-1"]);
    }
    assert_eq!(of(&sweep(&mut client, &[], 0), "waiting"), ["vm-0", "vm-1"], "for the first time");
    let seen = json!({"alive": ["vm-0", "vm-1"], "grace_seconds": 0, "dry_run": true});
    assert_eq!(sweep_with(&mut client, seen)["waiting"], json!([]), "and does not see anybody alive");
    let would = sweep_with(&mut client, dry);
    assert_eq!((of(&would, "unbound"), of(&would, "released")), (vec!["vm-0".to_owned()], vec!["vm-1".to_owned()]));
    assert_eq!(client.ok("ip.list", json!({"scope": "prod", "bound": true, "count_only": true}))["count"], 2);
}

#[test]
fn one_call_lists_and_lets_go_of_a_thousand_of_each_and_the_brake_weighs_all() {
    let server = TestServer::new();
    let mut client = with_networks(&server, &["lan", "dmz"]);
    for (network, release) in [("lan", false), ("dmz", true)] {
        for block in 0..6 {
            let ips = vec![json!({}); 200];
            let acquire = json!({"network": network, "scope": "prod", "owner": format!("o{block}"), "ips": ips,
                "claimant": "vm", "release_with_claimant": release, "brief": true});
            client.ok("ip.acquire", acquire);
        }
    }
    assert_eq!(of(&sweep(&mut client, &[], 0), "waiting").len(), 1_000);
    let braked =
        client.call("claimant.sweep", json!({"scope": "prod", "alive": [], "grace_seconds": 0, "max_share": 0.9}));
    assert_eq!(braked["error"]["data"]["would_release"], 2_400);
    let dry = sweep_with(&mut client, json!({"alive": [], "grace_seconds": 0, "dry_run": true}));
    assert_eq!((of(&dry, "released").len(), &dry["more"]), (1_000, &json!(true)));
    let swept = sweep(&mut client, &[], 0);
    assert_eq!((of(&swept, "unbound").len(), of(&swept, "released").len()), (1_000, 1_000));
    assert_eq!(swept["more"], true);
    assert_eq!(client.ok("ip.list", json!({"scope": "prod", "bound": true, "count_only": true}))["count"], 400);
    let rest = sweep(&mut client, &[], 0);
    assert_eq!((of(&rest, "unbound").len(), of(&rest, "released").len()), (200, 200));
    assert_eq!(rest.get("more"), None);
    assert_eq!(client.ok("ip.list", json!({"scope": "prod", "count_only": true}))["count"], 1_200);
}

#[test]
fn a_network_that_was_deleted_with_force_is_swept_too() {
    let server = TestServer::new();
    let mut client = with_networks(&server, &["lan"]);
    lend_one(&mut client, "lan", "web/0", "vm-0");
    let id = client.ok("network.delete", json!({"network": "lan", "force": true}))["id"].clone();
    sweep(&mut client, &[], 0);
    assert_eq!(of(&sweep(&mut client, &[], 0), "released"), ["vm-0"]);
    assert_eq!(client.kind("network.get", json!({"network": id})), "not_found", "gone with its last reservation");
    assert_eq!(sweep(&mut client, &[], 0)["waiting"], json!([]));
}

#[test]
fn after_a_restart_everybody_is_missed_for_the_first_time() {
    let open = crate::stores::reopened(2);
    let before = TestServer::over(open(), |_| {});
    let mut client = with_networks(&before, &["lan"]);
    use_one(&mut client, "lan", "web/0", "vm-0");
    sweep(&mut client, &[], 0);
    client.ok("claimant.mark", json!({"scope": "prod", "sweep": "x", "claimants": ["vm-9"]}));
    drop(client);
    before.stop();
    let after = TestServer::over(open(), |_| {});
    let mut client = after.client();
    assert_eq!(client.kind("claimant.sweep", json!({"scope": "prod", "sweep": "x"})), "not_found");
    assert_eq!(of(&sweep(&mut client, &[], 0), "waiting"), ["vm-0"]);
    assert_eq!(of(&sweep(&mut client, &[], 0), "unbound"), ["vm-0"]);
}

#[test]
fn sweeps_by_names_that_may_have_lost_their_first_marks_with_a_restart_let_nobody_go() {
    let open = crate::stores::reopened(2);
    let before = TestServer::over(open(), |_| {});
    let mut client = with_networks(&before, &["lan"]);
    for at in 0..3 {
        use_one(&mut client, "lan", &format!("web/{at}"), &format!("vm-{at}"));
    }
    let mark = |name: &str, claimants: Value| json!({"scope": "prod", "sweep": name, "claimants": claimants});
    let by = |name: &str| json!({"sweep": name, "grace_seconds": 0});
    for name in ["east", "west"] {
        client.ok("claimant.mark", mark(name, json!(["vm-0"])));
    }
    drop(client);
    before.stop();
    let after = TestServer::over(open(), |_| {});
    let mut client = after.client();
    // The client that marks does not notice the restart: `vm-0` lives, but its mark is lost.
    for name in ["east", "west"] {
        assert_eq!(client.ok("claimant.mark", mark(name, json!(["vm-1"])))["marked"], 1);
    }
    for name in ["east", "east", "west", "east"] {
        let swept = sweep_with(&mut client, by(name));
        assert_eq!(of(&swept, "waiting"), ["vm-0", "vm-2"], "{name}: {swept}");
    }
    let told = sweep(&mut client, &["vm-0", "vm-1"], 0);
    assert_eq!(of(&told, "unbound"), ["vm-2"], "who is missing from a list that is whole, too");
    after.clock.advance_ms(3_600_000);
    client.ok("claimant.mark", mark("later", json!(["vm-0"])));
    assert_eq!(of(&sweep_with(&mut client, by("later")), "waiting"), ["vm-1"]);
    assert_eq!(
        of(&sweep_with(&mut client, by("later")), "unbound"),
        ["vm-1"],
        "an hour later no mark is left of before"
    );
}
