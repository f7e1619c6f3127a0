//! How plans end: for some instances and for all, on top of each other, and when something happened in between.

use allod::actors::clock::Clock;
use allod::core::types::WallTime;
use serde_json::{Value, json};

use super::{Deployment, automatic, is, named, slots};
use crate::support::TestServer;

fn fresh(ids: &[&str]) -> Value {
    ids.iter().map(|id| json!({"id": id, "fresh": true, "networks": [{"network": "lan"}]})).collect()
}

#[test]
fn a_fresh_instance_that_was_committed_alone_is_not_moved_again_by_a_repeat() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["a", "b"]));
    shop.commit(&first);
    let moved = shop.apply(&fresh(&["a", "b"]));
    assert_eq!(slots(&moved), [is("new", "4"), is("new", "5")]);
    assert_eq!(shop.settle("deployment.commit", &moved, Some(&["a"])), ["10.0.0.2"]);
    let again = shop.apply(&fresh(&["a", "b"]));
    assert_eq!((slots(&again), &again["plan"]), (vec![is("kept", "4"), is("new", "5")], &moved["plan"]));
    assert_eq!(shop.settle("deployment.revert", &moved, Some(&["b"])), ["10.0.0.5"]);
    assert_eq!((shop.held("a").0, shop.held("b").0), (vec!["10.0.0.4".into()], vec!["10.0.0.3".into()]));
}

#[test]
fn a_revert_makes_obsolete_again_what_its_plan_had_made_current() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10")]));
    shop.commit(&first);
    shop.apply(&named(&[("a", "10.0.0.50")]));
    let before = shop.get()["instances"].clone();
    let back = shop.apply(&named(&[("a", "10.0.0.10")]));
    assert_eq!(slots(&back), [is("kept", "10")]);
    assert!(shop.revert(&back).is_empty(), "it granted nothing");
    assert_eq!(shop.held("a"), (vec!["10.0.0.50".into()], vec!["10.0.0.10".into()]));
    assert_eq!(shop.get()["instances"], before, "all is as it was before that plan");
}

#[test]
fn a_revert_of_a_plan_that_took_back_what_it_had_made_obsolete_leaves_that_current() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("subnet.add", json!({"network": "lan", "cidr": "10.0.1.0/24"}));
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["a"]));
    shop.commit(&first);
    let draining = |draining: bool| json!({"network": "lan", "subnet": "10.0.0.0/24", "set": {"draining": draining}});
    shop.client.ok("subnet.modify", draining(true));
    let moved = shop.apply(&automatic(&["a"]));
    assert_eq!(shop.held("a"), (vec!["10.0.1.1".into()], vec!["10.0.0.2".into()]));
    // Before that plan ends it is wished again, and the address that it had left serves again.
    shop.client.ok("ip.release", json!({"network": "lan", "address": "10.0.1.1", "owner": "a", "scope": "shop"}));
    shop.client.ok("subnet.modify", draining(false));
    let again = shop.apply(&automatic(&["a"]));
    assert_eq!((slots(&again), &again["plan"]), (vec![is("kept", "2")], &moved["plan"]));
    assert!(shop.revert(&again).is_empty(), "what it granted is released already");
    assert_eq!(shop.held("a"), (vec!["10.0.0.2".into()], vec![]));
}

#[test]
fn after_a_revert_what_an_earlier_plan_left_is_uncommitted_still() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10")]));
    shop.commit(&first);
    shop.apply(&named(&[("a", "10.0.0.50")]));
    let since = shop.get()["uncommitted_since"].clone();
    let third = shop.apply(&named(&[("a", "10.0.0.60")]));
    assert_eq!(shop.revert(&third), ["10.0.0.60"]);
    let now = shop.get();
    assert!(since.is_string());
    assert_eq!(now["uncommitted_since"], since, "10.0.0.10 waits for a commit: {now}");
    let again = shop.apply(&named(&[("a", "10.0.0.50")]));
    assert_eq!(shop.commit(&again), ["10.0.0.10"]);
    assert!(shop.get()["uncommitted_since"].is_null());
}

/// Nobody asked for a commit of the earlier plan, and no commit of it is possible any more: the next plan's commit closes
/// it.
#[test]
fn what_an_earlier_plan_granted_is_uncommitted_still_behind_a_revert_of_the_next_one() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    shop.apply(&named(&[("a", "10.0.0.10")]));
    let since = shop.get()["uncommitted_since"].clone();
    assert!(since.is_string());
    let both = named(&[("a", "10.0.0.10"), ("b", "10.0.0.20")]);
    let second = shop.apply(&both);
    assert_eq!(shop.revert(&second), ["10.0.0.20"]);
    assert_eq!(shop.get()["uncommitted_since"], since, "10.0.0.10 was neither committed nor reverted");
    // The same holds where the next plan is ended for one instance after the other: it is not over while that is undecided.
    let third = shop.apply(&both);
    assert_eq!(shop.settle("deployment.revert", &third, Some(&["b"])), ["10.0.0.20"]);
    assert_eq!(shop.get()["uncommitted_since"], since);
    assert!(shop.settle("deployment.commit", &third, Some(&["a"])).is_empty());
    assert!(shop.get()["uncommitted_since"].is_null());
    // What was committed, with a whole plan or with one instance, is committed for good, even if the clock stands still.
    let fourth = shop.apply(&both);
    assert!(shop.get()["uncommitted_since"].is_string());
    shop.revert(&fourth);
    assert!(shop.get()["uncommitted_since"].is_null());
    for committed in [Some(&["a", "b"][..]), None] {
        let both = shop.apply(&both);
        shop.settle("deployment.commit", &both, committed);
        let three = named(&[("a", "10.0.0.10"), ("b", "10.0.0.20"), ("c", "10.0.0.30")]);
        let third = shop.apply(&three);
        assert_eq!(shop.revert(&third), ["10.0.0.30"]);
        assert!(shop.get()["uncommitted_since"].is_null(), "{committed:?}");
        let delete = json!({"network": "lan", "address": "10.0.0.20", "force": true});
        shop.client.ok("ip.release", delete);
    }
}

/// `a` at .10, `b` at .20, `c` at .30, committed; then each is to get the address of the next one.
fn turning(shop: &mut Deployment<'_>) -> Value {
    let first = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.20"), ("c", "10.0.0.30")]));
    shop.commit(&first);
    let turn = shop.apply(&named(&[("a", "10.0.0.20"), ("b", "10.0.0.30"), ("c", "10.0.0.10")]));
    assert_eq!(slots(&turn), [is("promised", "20"), is("promised", "30"), is("promised", "10")]);
    turn
}

#[test]
fn who_waits_for_an_address_that_is_not_let_go_any_more_keeps_its_own() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let turn = turning(&mut shop);
    // `b` stays where it is, so `a` cannot have that address; nor can `c` have that of `a`.
    assert!(shop.settle("deployment.revert", &turn, Some(&["b"])).is_empty());
    assert!(shop.settle("deployment.commit", &turn, Some(&["a"])).is_empty());
    assert!(shop.settle("deployment.commit", &turn, Some(&["c"])).is_empty());
    for (id, address) in [("a", "10.0.0.10"), ("b", "10.0.0.20"), ("c", "10.0.0.30")] {
        assert_eq!(shop.held(id), (vec![address.into()], vec![]), "{id}");
    }
    assert!(shop.get()["uncommitted_since"].is_null());
}

/// Kind and message of the refusal to end a plan.
pub(super) fn not_ended(
    shop: &mut Deployment<'_>,
    method: &str,
    plan: &Value,
    instances: Option<&[&str]>,
) -> (String, String) {
    let mut params = json!({"deployment": shop.name, "plan": plan["plan"]});
    if let Some(instances) = instances {
        params["instances"] = json!(instances);
    }
    let refused = shop.client.call(method, params.clone());
    params["dry_run"] = json!(true);
    assert_eq!(shop.client.call(method, params)["error"], refused["error"], "a dry run tells the same");
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{refused}")).to_owned();
    let data = &refused["error"]["data"];
    if data["kind"] == "conflict" {
        assert_eq!(data["expected"], data["actual"], "it is the latest");
        let is_reverted = data["reason"] == "reverted" && text(&refused["error"]["message"]).contains("reverted");
        assert!(data["reason"] == "promise" || is_reverted, "{refused}");
    }
    (text(&refused["error"]["data"]["kind"]), text(&refused["error"]["message"]))
}

#[test]
fn who_waits_for_an_address_that_was_declined_keeps_its_own_and_its_commit_says_so() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let turn = turning(&mut shop);
    shop.client.ok("ip.decline", json!({"network": "lan", "address": "10.0.0.20", "scope": "shop", "owner": "b"}));
    for instances in [None, Some(&["a"][..])] {
        let (kind, message) = not_ended(&mut shop, "deployment.commit", &turn, instances);
        assert_eq!(kind, "conflict");
        assert!(message.contains("instance `a`") && message.contains("10.0.0.10"), "{message}");
    }
    assert_eq!(
        (shop.held("a"), shop.held("c")),
        ((vec!["10.0.0.10".into()], vec![]), (vec!["10.0.0.30".into()], vec![]))
    );
    assert!(shop.get()["uncommitted_since"].is_string());
    let next = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.40"), ("c", "10.0.0.30")]));
    assert!(shop.commit(&next).is_empty());
    assert!(shop.get()["uncommitted_since"].is_null());
}

#[test]
fn a_swap_whose_one_half_moved_to_another_network_is_not_committed_in_silence() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([{"cidr": "10.0.0.0/28"}, {"cidr": "10.0.1.0/28"}]);
    client.ok("network.create", json!({"name": "lan", "subnets": subnets}));
    client.ok("network.create", json!({"name": "other"}));
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.7"), ("b", "10.0.1.8")]));
    shop.commit(&first);
    let swap = shop.apply(&named(&[("a", "10.0.1.8"), ("b", "10.0.0.7")]));
    shop.client.ok("subnet.move", json!({"network": "lan", "subnet": "10.0.1.0/28", "to": "other"}));
    let (kind, message) = not_ended(&mut shop, "deployment.commit", &swap, None);
    assert_eq!(kind, "conflict");
    assert!(message.contains("10.0.0.7") || message.contains("10.0.1.8"), "whichever is looked at first: {message}");
    assert!(shop.revert(&swap).is_empty());
    assert_eq!((shop.held("a").0, shop.held("b").0), (vec!["10.0.0.7".into()], vec!["10.0.1.8".into()]));
}

/// What a committed instance let go belongs to another one, which was committed with it.
#[test]
fn a_revert_that_would_leave_who_was_committed_with_nothing_is_refused() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    for committed in [&[&["a", "c"][..]][..], &[&["a"], &["c"]]] {
        let first = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.11")]));
        shop.commit(&first);
        let wishes = json!([
            {"id": "a", "networks": [{"network": "lan", "address": "10.0.0.11"}]},
            {"id": "b", "networks": [{"network": "lan"}], "fresh": true},
            {"id": "c", "networks": [{"network": "lan", "address": "10.0.0.10"}]},
        ]);
        let next = shop.apply(&wishes);
        assert_eq!(slots(&next), [is("promised", "11"), is("new", "2"), is("promised", "10")]);
        for instances in committed {
            assert!(shop.settle("deployment.commit", &next, Some(instances)).is_empty());
        }
        for instances in [None, Some(&["b"][..])] {
            let (kind, message) = not_ended(&mut shop, "deployment.revert", &next, instances);
            assert_eq!(kind, "conflict");
            assert!(message.contains("instance `a`") && message.contains("10.0.0.11"), "{message}");
        }
        assert_eq!(shop.held("b"), (vec!["10.0.0.2".into()], vec!["10.0.0.11".into()]), "nothing was changed");
        assert!(shop.commit(&next).is_empty());
        let held = ["a", "b", "c"].map(|id| shop.held(id).0.concat());
        assert_eq!(held, ["10.0.0.11", "10.0.0.2", "10.0.0.10"]);
        shop.client.ok("deployment.delete", json!({"deployment": "shop"}));
    }
}

#[test]
fn what_a_revert_could_not_make_current_again_waits_for_the_commit_of_the_apply_that_lists_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let moved = moved_and_taken_back(&mut shop);
    assert!(shop.revert(&moved).is_empty());
    let wishes = automatic(&["a", "b"]);
    let next = shop.apply(&wishes);
    assert_eq!(super::addresses_of(&next["obsolete"]), ["10.0.0.10", "10.0.0.20"]);
    let listed = shop.client.ok("deployment.list", json!({}));
    assert!(listed["deployments"][0]["uncommitted_since"].is_string(), "{listed}");
    assert_eq!(shop.apply(&wishes), next, "and is the same plan when it comes again");
    assert_eq!(shop.commit(&next), ["10.0.0.10", "10.0.0.20"]);
    assert!(shop.get()["uncommitted_since"].is_null());
    assert_eq!(shop.apply(&wishes)["plan"], next["plan"]);
}

/// The types of an address's events.
fn types_of(shop: &mut Deployment<'_>, address: &str) -> Vec<Value> {
    let told = shop.client.ok("events.history", json!({"address": address}));
    told["events"].as_array().unwrap().iter().map(|event| event["type"].clone()).collect()
}

/// As if it were asked for again without a lease: an instance keeps its address while it exists.
#[test]
fn what_a_plan_keeps_is_held_for_good_from_its_commit_on() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let leased = |owner: &str| json!({"network": "lan", "scope": "shop", "owner": owner, "ttl_seconds": 10});
    client.ok("ip.allocate", leased("a"));
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["a"]));
    assert_eq!(slots(&first), [is("kept", "2")]);
    let shown = &first["instances"][0]["networks"][0]["reservation"];
    assert!(shown["expires_at"].is_string(), "until then it is leased: {shown}");
    assert_eq!(shop.apply(&automatic(&["a"]))["plan"], first["plan"]);
    server.clock.advance_ms(1_000);
    shop.client.ok("ip.allocate", leased("later"));
    shop.commit(&first);
    let again = shop.apply(&automatic(&["a"]));
    assert!(again["instances"][0]["networks"][0]["reservation"].get("expires_at").is_none(), "{again}");
    server.clock.advance_ms(20_000);
    assert_eq!(shop.held("a").0, ["10.0.0.2"]);
    assert_eq!(types_of(&mut shop, "10.0.0.2"), ["granted", "renewed"]);
    assert!(shop.held("later").0.is_empty(), "no plan listed it: its lease is its own");
}

#[test]
fn a_lease_that_is_set_behind_an_apply_outlives_its_commit_and_one_that_was_renewed_does_not() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let slot = |owner: &str| json!({"network": "lan", "scope": "shop", "owner": owner, "ttl_seconds": 10});
    client.ok("ip.allocate", slot("leased"));
    let mut shop = Deployment::of(&mut client, "shop");
    let plan = shop.apply(&automatic(&["leased", "permanent"]));
    for owner in ["leased", "permanent"] {
        let renewed = shop.client.ok("ip.renew", slot(owner));
        assert!(renewed["expires_at"].is_string(), "{renewed}");
    }
    shop.commit(&plan);
    server.clock.advance_ms(20_000);
    assert_eq!(shop.held("leased").0, ["10.0.0.2"], "the plan decided about its lease");
    assert!(shop.held("permanent").0.is_empty(), "what was answered with an end has one");
}

#[test]
fn a_lease_that_is_set_behind_an_apply_outlives_its_commit_also_if_the_apply_is_repeated() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let slot = |owner: &str, ttl: u64| json!({"network": "lan", "scope": "shop", "owner": owner, "ttl_seconds": ttl});
    client.ok("ip.allocate", slot("leased", 10));
    client.ok("ip.allocate", json!({"network": "lan", "scope": "shop", "owner": "permanent"}));
    let mut shop = Deployment::of(&mut client, "shop");
    let wishes = automatic(&["leased", "permanent", "new"]);
    let plan = shop.apply(&wishes);
    for owner in ["permanent", "new"] {
        shop.client.ok("ip.renew", slot(owner, 10));
    }
    assert_eq!(shop.apply(&wishes)["plan"], plan["plan"]);
    shop.commit(&plan);
    server.clock.advance_ms(20_000);
    assert_eq!(shop.held("leased").0, ["10.0.0.2"], "the plan decided about its lease");
    for owner in ["permanent", "new"] {
        assert!(shop.held(owner).0.is_empty(), "{owner} was answered with an end");
    }
}

#[test]
fn a_lease_that_a_plan_kept_is_as_it_was_behind_its_revert() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let leased = json!({"network": "lan", "scope": "shop", "owner": "a", "ttl_seconds": 60});
    let before = client.ok("ip.allocate", leased)["expires_at"].clone();
    let mut shop = Deployment::of(&mut client, "shop");
    let wishes = automatic(&["a"]);
    let first = shop.apply(&wishes);
    assert!(shop.revert(&first).is_empty());
    assert_eq!(shop.get()["instances"][0]["reservations"][0]["expires_at"], before);
    server.clock.advance_ms(61_000);
    assert!(shop.held("a").0.is_empty(), "and it ends");
}

#[test]
fn what_is_leased_behind_the_commit_is_kept_by_another_plan() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let wishes = automatic(&["a"]);
    let first = shop.apply(&wishes);
    shop.commit(&first);
    let slot = json!({"network": "lan", "scope": "shop", "owner": "a"});
    shop.client.ok("ip.release", slot.clone());
    server.clock.advance_ms(1_000);
    let mut leased = slot;
    leased["ttl_seconds"] = json!(10);
    shop.client.ok("ip.allocate", leased);
    let next = shop.apply(&wishes);
    assert_ne!(next["plan"], first["plan"], "the commit that gives it for good is to come");
    assert_eq!(shop.apply(&wishes), next);
    assert!(shop.commit(&next).is_empty());
    assert_eq!(shop.apply(&wishes)["plan"], next["plan"]);
    server.clock.advance_ms(20_000);
    assert_eq!(shop.held("a").0.len(), 1);
}

#[test]
fn an_address_that_was_chosen_is_static_once_its_owner_names_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["a", "b"]));
    shop.commit(&first);
    let next = shop.apply(&named(&[("a", "10.0.0.2"), ("b", "10.0.0.3")]));
    let kept = &next["instances"][0]["networks"][0];
    assert_eq!((&kept["state"], &kept["reservation"]["kind"]), (&json!("kept"), &json!("static")));
    assert_eq!(shop.get()["instances"][0]["reservations"][0]["kind"], "static");
    let mine = json!({"network": "lan", "owner": "x"});
    assert_eq!(shop.client.ok("ip.allocate", mine.clone())["kind"], "dynamic");
    let claim = json!({"network": "lan", "owner": "x", "address": "10.0.0.4"});
    for _ in 0..2 {
        let claimed = shop.client.ok("ip.claim", claim.clone());
        assert_eq!((&claimed["kind"], &claimed["created"]), (&json!("static"), &json!(false)));
    }
    assert_eq!(shop.client.ok("ip.allocate", mine)["kind"], "static", "asked for again it is what it is");
}

#[test]
fn what_is_promised_looks_the_same_when_it_is_asked_again() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let turn = turning(&mut shop);
    server.clock.advance_ms(5_000);
    let again = shop.apply(&named(&[("a", "10.0.0.20"), ("b", "10.0.0.30"), ("c", "10.0.0.10")]));
    assert_eq!(again, turn);
}

#[test]
fn a_plan_that_only_notes_a_compilation_instance_waits_for_no_commit() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0"]));
    shop.commit(&first);
    let compile = json!({"network": "lan", "scope": "shop", "owner": "compile/1", "transient": true});
    shop.client.ok("ip.allocate", compile);
    let missed = shop.apply(&automatic(&["web/0"]));
    assert!(missed["plan"].as_u64() > first["plan"].as_u64(), "a repeat of this one is to be told from the next");
    assert!(shop.get()["uncommitted_since"].is_null());
    // As if that plan had never existed.
    assert!(shop.revert(&missed).is_empty());
    let missed = shop.apply(&automatic(&["web/0"]));
    assert_eq!(missed["obsolete"], json!([]));
    let second = shop.apply(&automatic(&["web/0", "web/1"]));
    assert_eq!(super::addresses_of(&second["obsolete"]), ["10.0.0.3"], "the second plan that does not list it");
}

/// A plan that moves two instances; both release what it granted, and take other addresses by themselves.
fn moved_and_taken_back(shop: &mut Deployment<'_>) -> Value {
    let first = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.20")]));
    shop.commit(&first);
    let moved = shop.apply(&named(&[("a", "10.0.0.50"), ("b", "10.0.0.60")]));
    for owner in ["a", "b"] {
        let slot = json!({"network": "lan", "scope": "shop", "owner": owner});
        shop.client.ok("ip.release", slot.clone());
        shop.client.ok("ip.allocate", slot);
    }
    moved
}

/// A slot holds one address. The machine of an owner that took another one by itself may use either, so nothing is released
/// that nobody named.
#[test]
fn what_a_revert_cannot_make_current_again_stays_held_until_it_is_let_go_by_address_or_by_the_next_plan() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let moved = moved_and_taken_back(&mut shop);
    assert!(shop.revert(&moved).is_empty(), "what it granted is released already");
    assert_eq!(shop.held("a"), (vec!["10.0.0.2".into()], vec!["10.0.0.10".into()]));
    assert_eq!(shop.held("b"), (vec!["10.0.0.3".into()], vec!["10.0.0.20".into()]));
    assert_eq!(
        shop.client.kind("ip.claim", json!({"network": "lan", "address": "10.0.0.10", "owner": "thief"})),
        "already_in_use"
    );
    assert!(shop.get()["uncommitted_since"].is_null(), "the plan has ended");
    // Released by hand, by address.
    let by_hand = json!({"network": "lan", "scope": "shop", "owner": "a", "address": "10.0.0.10"});
    assert_eq!(shop.client.ok("ip.release", by_hand)["released"], json!(["10.0.0.10"]));
    // Or by a plan that wishes the present addresses.
    let next = shop.apply(&automatic(&["a", "b"]));
    assert_eq!(slots(&next), [is("kept", "2"), is("kept", "3")]);
    assert_eq!(shop.commit(&next), ["10.0.0.20"]);
    assert!(shop.get()["uncommitted_since"].is_null());
}

#[test]
fn what_a_revert_could_not_make_current_again_holds_no_later_end_up() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let moved = moved_and_taken_back(&mut shop);
    // For one instance after the other: the last one ends the plan.
    for (instance, ended) in [("a", false), ("b", true)] {
        assert!(shop.settle("deployment.revert", &moved, Some(&[instance])).is_empty());
        assert_eq!(shop.get()["uncommitted_since"].is_null(), ended, "{instance}");
    }
    // And the next plan ends with its own revert.
    server.clock.advance_ms(5_000);
    let next = shop.apply(&automatic(&["a", "b", "c"]));
    assert!(shop.get()["uncommitted_since"].is_string());
    assert_eq!(shop.revert(&next), ["10.0.0.4"]);
    let now = shop.get();
    assert!(now["uncommitted_since"].is_null(), "{now}");
    assert_eq!([shop.held("a").1, shop.held("b").1], [["10.0.0.10"], ["10.0.0.20"]]);
}

/// The clock is set back an hour while a plan is under way. What the plan found is still distinguished from what came after
/// it.
#[test]
fn a_clock_that_jumps_does_not_change_what_a_commit_holds_for_good() {
    for jumps_before_the_apply in [true, false] {
        let server = TestServer::new();
        let mut client = server.with_lan();
        let leased = |owner: &str| json!({"network": "lan", "scope": "shop", "owner": owner, "ttl_seconds": 10});
        let back = || server.clock.set_wall(WallTime(server.clock.wall().0 - 3_600_000));
        client.ok("ip.allocate", leased("a"));
        if jumps_before_the_apply {
            back();
        }
        let mut shop = Deployment::of(&mut client, "shop");
        let plan = shop.apply(&automatic(&["a"]));
        if !jumps_before_the_apply {
            back();
        }
        shop.client.ok("ip.allocate", leased("later"));
        shop.commit(&plan);
        server.clock.advance_ms(20_000);
        assert_eq!(shop.held("a").0, ["10.0.0.2"], "{jumps_before_the_apply}");
        assert!(shop.held("later").0.is_empty(), "{jumps_before_the_apply}");
    }
}

/// The plan named an address that had been chosen: for good, or until its revert. An earlier plan that was not reverted
/// counts, too.
#[test]
fn a_revert_makes_chosen_again_what_its_plan_had_named() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let kind = |shop: &mut Deployment<'_>| shop.get()["instances"][0]["reservations"][0]["kind"].clone();
    let (chosen, wishes) = (automatic(&["a"]), named(&[("a", "10.0.0.2")]));
    let first = shop.apply(&chosen);
    shop.commit(&first);
    let next = shop.apply(&wishes);
    assert_eq!((kind(&mut shop), &shop.apply(&wishes)["plan"]), (json!("static"), &next["plan"]));
    shop.revert(&next);
    assert_eq!(kind(&mut shop), "dynamic");
    assert_eq!(types_of(&mut shop, "10.0.0.2"), ["granted", "updated", "updated"]);
    let next = shop.apply(&wishes);
    shop.settle("deployment.commit", &next, Some(&["a"]));
    let other = shop.apply(&named(&[("a", "10.0.0.2"), ("b", "10.0.0.9")]));
    shop.revert(&other);
    assert_eq!(kind(&mut shop), "static", "another plan named it, and was committed");
}

/// "Its space stays guarded until none is left": a client that is told that the last one is released may ask for the space.
#[test]
fn the_space_of_a_deleted_network_is_free_when_the_end_of_a_plan_that_released_its_last_holding_is_answered() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    for (at, method) in ["deployment.commit", "deployment.revert"].repeat(4).into_iter().enumerate() {
        let subnets = |network: usize| json!([{"cidr": format!("10.{}.{at}.0/24", 1 + network)}]);
        let names = [format!("one-{at}"), format!("two-{at}")];
        for (network, name) in names.iter().enumerate() {
            client.ok("network.create", json!({"name": name, "subnets": subnets(network)}));
        }
        let networks: Vec<Value> = names.iter().map(|name| json!({"network": name})).collect();
        let mut shop = Deployment::of(&mut client, "shop");
        let mut plan = shop.apply(&json!([{"id": "web/0", "networks": networks}]));
        for name in &names {
            client.ok("network.delete", json!({"network": name, "force": true}));
        }
        let mut shop = Deployment::of(&mut client, "shop");
        if method == "deployment.commit" {
            plan = shop.apply(&json!([]));
        }
        assert_eq!(shop.settle(method, &plan, None).len(), names.len());
        for (network, name) in names.iter().enumerate() {
            client.ok("network.create", json!({"name": name, "subnets": subnets(network)}));
        }
    }
}
