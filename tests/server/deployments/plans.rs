//! Plans: their numbers, what they refuse, and what they leave alone.

use serde_json::{Value, json};

use super::{Deployment, automatic, is, named, slots};
use crate::support::TestServer;

#[test]
fn a_plan_tells_what_an_apply_would_do_and_changes_nothing() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let planned = shop.plan(&automatic(&["web/0", "web/1"]));
    assert_eq!(slots(&planned), [is("new", "2"), is("new", "3")]);
    assert!(planned["plan"].is_null());
    assert_eq!(shop.client.kind("deployment.get", json!({"deployment": "shop"})), "not_found");
    let dry = shop.client.ok(
        "deployment.apply",
        json!({"deployment": "shop", "instances": automatic(&["web/0", "web/1"]), "dry_run": true}),
    );
    assert_eq!(dry["instances"], planned["instances"]);
    let applied = shop.apply(&automatic(&["web/0", "web/1"]));
    assert_eq!(slots(&applied), slots(&planned));
}

#[test]
fn wishes_for_no_network_are_the_same_plan_as_often_as_they_are_applied() {
    let server = TestServer::new();
    let mut client = server.client();
    for (name, wishes) in [("none", json!([])), ("idle", json!([{"id": "a", "networks": []}]))] {
        let ask = json!({"deployment": name, "instances": wishes});
        let first = client.ok("deployment.apply", ask.clone());
        assert_eq!(client.ok("deployment.apply", ask), first, "{name}");
        let plan = json!({"deployment": name, "plan": first["plan"]});
        for _ in 0..2 {
            assert_eq!(client.ok("deployment.commit", plan.clone()), json!({"released": []}), "{name}");
        }
        assert_eq!(client.ok("deployment.delete", json!({"deployment": name}))["more"], false, "{name}");
    }
}

#[test]
fn a_plan_number_rises_also_over_a_deletion_so_that_a_dead_run_never_harms_the_next() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0"]));
    let done = shop.client.ok("deployment.delete", json!({"deployment": "shop"}));
    assert_eq!((super::addresses_of(&done["released"]), &done["more"]), (vec!["10.0.0.2".into()], &json!(false)));
    let late = json!({"deployment": "shop", "plan": first["plan"]});
    assert_eq!(shop.client.kind("deployment.commit", late.clone()), "not_found");
    let next = shop.apply(&automatic(&["web/0"]));
    assert!(next["plan"].as_u64() > first["plan"].as_u64());
    for method in ["deployment.commit", "deployment.revert"] {
        let answer = shop.client.call(method, late.clone());
        let data = &answer["error"]["data"];
        assert_eq!(
            (&data["kind"], &data["expected"], &data["actual"]),
            (&json!("conflict"), &first["plan"], &next["plan"])
        );
    }
    assert_eq!(shop.held("web/0").0, ["10.0.0.2"]);
}

#[test]
fn a_revert_lets_go_what_was_granted_and_makes_current_what_was_obsolete() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0", "web/1"]));
    shop.commit(&first);
    let generation = shop.get()["instances"][1]["reservations"][0]["generation"].clone();
    let next = shop.apply(&named(&[("web/0", "10.0.0.50"), ("db/0", "10.0.0.60")]));
    assert_eq!(shop.revert(&next), ["10.0.0.50", "10.0.0.60"]);
    let now = shop.get();
    assert_eq!(now["instances"][1]["reservations"][0]["generation"], generation);
    assert!(now["uncommitted_since"].is_null());
    assert!(shop.revert(&next).is_empty(), "a repeat is answered as done");
    assert_eq!(shop.client.kind("deployment.commit", json!({"deployment": "shop", "plan": next["plan"]})), "conflict");
    // After a revert the same wishes are a new attempt.
    let again = shop.apply(&named(&[("web/0", "10.0.0.50"), ("db/0", "10.0.0.60")]));
    assert!(again["plan"].as_u64() > next["plan"].as_u64());
    shop.commit(&again);
    assert_eq!(shop.client.kind("deployment.revert", json!({"deployment": "shop", "plan": again["plan"]})), "conflict");
}

#[test]
fn a_revert_of_some_instances_leaves_the_others_to_their_commit() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["a", "b"]));
    shop.commit(&first);
    let next = shop.apply(&named(&[("a", "10.0.0.50"), ("b", "10.0.0.60")]));
    assert_eq!(shop.settle("deployment.revert", &next, Some(&["a"])), ["10.0.0.50"]);
    assert_eq!(shop.held("a"), (vec!["10.0.0.2".into()], vec![]));
    assert_eq!(shop.held("b"), (vec!["10.0.0.60".into()], vec!["10.0.0.3".into()]));
    assert_eq!(shop.settle("deployment.commit", &next, Some(&["b"])), ["10.0.0.3"]);
    assert!(shop.get()["uncommitted_since"].is_null());
}

/// `a` and `b` are committed, a plan leaves `a` out, and the next one takes it back and moves `b`. Returns the wishes of
/// that plan and its answer.
fn takes_back_and_moves(shop: &mut Deployment<'_>) -> (Value, Value) {
    let first = shop.apply(&automatic(&["a", "b"]));
    shop.commit(&first);
    shop.apply(&automatic(&["b"]));
    let wishes = json!([
        {"id": "a", "networks": [{"network": "lan"}]},
        {"id": "b", "networks": [{"network": "lan", "address": "10.0.0.60"}]},
    ]);
    let next = shop.apply(&wishes);
    (wishes, next)
}

#[test]
fn what_was_reverted_of_an_instance_and_is_taken_back_by_the_same_wishes_can_be_committed() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let (wishes, next) = takes_back_and_moves(&mut shop);
    assert!(shop.settle("deployment.revert", &next, Some(&["a"])).is_empty());
    assert_eq!(shop.held("a"), (vec![], vec!["10.0.0.2".into()]), "as the plan before left it");
    let again = shop.apply(&wishes);
    assert_eq!((&again["plan"], shop.held("a").0), (&next["plan"], vec!["10.0.0.2".into()]));
    assert!(shop.settle("deployment.commit", &again, Some(&["a"])).is_empty());
    assert_eq!(shop.commit(&again), ["10.0.0.3"]);
    assert_eq!((shop.held("a").0, shop.held("b").0), (vec!["10.0.0.2".into()], vec!["10.0.0.60".into()]));
}

#[test]
fn a_plan_is_not_over_while_what_it_only_took_back_can_be_reverted() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let (_, next) = takes_back_and_moves(&mut shop);
    assert_eq!(shop.settle("deployment.revert", &next, Some(&["b"])), ["10.0.0.60"]);
    assert_eq!(shop.held("a"), (vec!["10.0.0.2".into()], vec![]));
    assert!(shop.settle("deployment.revert", &next, Some(&["a"])).is_empty());
    assert_eq!(shop.held("a"), (vec![], vec!["10.0.0.2".into()]), "as the plan before left it");
    assert!(!shop.get()["uncommitted_since"].is_null());
}

#[test]
fn what_was_committed_of_an_instance_is_not_reverted_nor_the_other_way_round() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["kept", "moved", "dropped", "back"]));
    shop.commit(&first);
    let wishes = json!([
        {"id": "kept", "networks": [{"network": "lan"}]},
        {"id": "moved", "networks": [{"network": "lan", "address": "10.0.0.50"}]},
        {"id": "back", "networks": [{"network": "lan", "address": "10.0.0.60"}]},
        {"id": "other", "networks": [{"network": "lan"}]},
    ]);
    let next = shop.apply(&wishes);
    let committed = ["kept", "moved", "dropped"];
    assert_eq!(shop.settle("deployment.commit", &next, Some(&committed)), ["10.0.0.3", "10.0.0.4"]);
    assert_eq!(shop.settle("deployment.revert", &next, Some(&["back"])), ["10.0.0.60"]);
    let ask = |instance: &str| json!({"deployment": "shop", "plan": next["plan"], "instances": [instance]});
    let refused = |shop: &mut Deployment<'_>, method: &str, instance: &str| {
        let data = shop.client.call(method, ask(instance))["error"]["data"].clone();
        assert_eq!((&data["kind"], &data["instance"]), (&json!("conflict"), &json!(instance)), "{method} {instance}");
    };
    for instance in committed {
        refused(&mut shop, "deployment.revert", instance);
        assert_eq!(shop.client.ok("deployment.commit", ask(instance)), json!({"released": []}), "{instance}");
    }
    refused(&mut shop, "deployment.commit", "back");
    assert_eq!(shop.client.ok("deployment.revert", ask("back")), json!({"released": []}));
    // Even after the end of the plan.
    assert_eq!(shop.settle("deployment.commit", &next, Some(&["other"])), Vec::<String>::new());
    refused(&mut shop, "deployment.revert", "dropped");
    assert_eq!(shop.held("back"), (vec!["10.0.0.5".into()], vec![]));
    // Once it is wished anew, it is neither committed nor reverted.
    let again = shop.apply(&json!([{"id": "back", "networks": [{"network": "lan", "address": "10.0.0.60"}]}]));
    let of_it = json!({"deployment": "shop", "plan": again["plan"], "instances": ["back"]});
    assert_eq!(
        shop.client.ok("deployment.commit", of_it)["released"],
        json!([{"network": "lan", "address": "10.0.0.5"}])
    );
}

#[test]
fn what_a_plan_made_obsolete_is_current_again_where_it_is_wished_again() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10")]));
    shop.commit(&first);
    let generation = first["instances"][0]["networks"][0]["reservation"]["generation"].clone();
    shop.apply(&named(&[("a", "10.0.0.50")]));
    let back = shop.apply(&named(&[("a", "10.0.0.10")]));
    let kept = &back["instances"][0]["networks"][0];
    assert_eq!((&kept["state"], &kept["reservation"]["generation"]), (&json!("kept"), &generation));
    assert_eq!(shop.commit(&back), ["10.0.0.50"]);
}

#[test]
fn an_apply_is_all_or_nothing_over_all_its_networks() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "tiny", "subnets": [{"cidr": "10.7.0.0/30"}]}));
    let both = |id: &str| json!({"id": id, "networks": [{"network": "lan"}, {"network": "tiny"}]});
    let mut shop = Deployment::of(&mut client, "shop");
    let full = shop.refused(&json!([both("a"), both("b"), both("c")]));
    assert_eq!((&full["data"]["kind"], &full["data"]["instance"]), (&json!("not_enough_capacity"), &json!("c")));
    assert_eq!(shop.client.ok("ip.list", json!({"scope": "shop", "count_only": true}))["count"], 0);
    assert_eq!(shop.client.kind("deployment.get", json!({"deployment": "shop"})), "not_found");
    let fits = shop.apply(&json!([both("a"), both("b")]));
    let addresses: Vec<String> = slots(&fits).into_iter().map(|(_, address)| address).collect();
    assert_eq!(addresses, ["10.0.0.2", "10.7.0.1", "10.0.0.3", "10.7.0.2"]);
}

#[test]
fn the_same_wishes_in_another_order_are_the_same_plan() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "wan", "subnets": [{"cidr": "10.1.0.0/24", "zones": ["z1", "z2"]}]}));
    let (lan, wan) = (json!({"network": "lan"}), json!({"network": "wan", "slot": "x"}));
    let dealt = json!({"network": "lan", "slot": "d", "static_ips": ["10.0.0.50", "10.0.0.60-10.0.0.61"]});
    let group = |name: &str, ids: [&str; 2], networks: [&Value; 2]| json!({"name": name, "instances": ids, "zones": ["z1", "z2"], "networks": networks});
    let other = json!({"network": "wan", "slot": "y"});
    let one = json!({"deployment": "shop",
        "instances": [{"id": "a", "networks": [lan, wan]}, {"id": "b", "networks": [wan, lan]}],
        "groups": [group("g", ["c", "d"], [&dealt, &wan]), group("h", ["e", "f"], [&other, &lan])]});
    let two = json!({"deployment": "shop",
        "instances": [{"id": "b", "networks": [lan, wan]}, {"id": "a", "networks": [wan, lan]}],
        "groups": [group("h", ["e", "f"], [&lan, &other]), group("g", ["c", "d"], [&wan, &dealt])]});
    let first = client.ok("deployment.apply", one.clone());
    let again = client.ok("deployment.apply", two.clone());
    assert_eq!(again["plan"], first["plan"]);
    client.ok("deployment.commit", json!({"deployment": "shop", "plan": first["plan"]}));
    for wishes in [two.clone(), one] {
        assert_eq!(client.ok("deployment.apply", wishes)["plan"], first["plan"]);
    }
    // The order of instances decides which addresses they are dealt, so it is part of the wish.
    let mut turned = two;
    turned["groups"][1]["instances"] = json!(["d", "c"]);
    assert_ne!(client.ok("deployment.apply", turned)["plan"], first["plan"]);
}

#[test]
fn what_is_asked_wrongly_is_named() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let wish = |networks: Value| json!([{"id": "a", "networks": networks}]);
    let group = |ips: Value| json!([{"name": "g", "instances": ["a", "b"], "networks": [{"network": "lan", "static_ips": ips}]}]);
    for (member, value, kind, field) in [
        (
            "instances",
            wish(json!([{"network": "lan", "address": "10.0.0.5", "family": 4}])),
            "invalid_argument",
            "instances[0].networks[0].family",
        ),
        (
            "instances",
            json!([{"id": "a", "networks": []}, {"id": "a", "networks": []}]),
            "invalid_argument",
            "instances[1].id",
        ),
        (
            "groups",
            json!([{"name": "g", "instances": ["a", "a"], "networks": []}]),
            "invalid_argument",
            "groups[0].instances[1]",
        ),
        ("groups", group(json!(["10.0.0.5"])), "invalid_argument", "groups[0].networks[0].static_ips"),
        (
            "groups",
            group(json!(["10.0.0.5", "10.0.0.4-10.0.0.6"])),
            "invalid_argument",
            "groups[0].networks[0].static_ips",
        ),
        ("instances", wish(json!([{"network": "lan"}, {"network": "lan"}])), "already_exists", ""),
        ("instances", wish(json!([{"network": "nowhere"}])), "not_found", ""),
        ("instances", wish(json!([{"network": "lan", "address": "10.0.0.1"}])), "reserved", ""),
        ("instances", wish(json!([{"network": "lan", "address": "10.4.0.1"}])), "out_of_range", ""),
    ] {
        let mut ask = json!({"deployment": "shop"});
        ask[member] = value;
        for method in ["deployment.plan", "deployment.apply"] {
            let answer = client.call(method, ask.clone());
            let data = &answer["error"]["data"];
            assert_eq!(data["kind"], kind, "{ask}: {answer}");
            if !field.is_empty() {
                assert_eq!(data["field"], field, "{answer}");
            }
        }
    }
}

#[test]
fn two_slots_of_an_instance_in_one_network_are_two_reservations() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let both = json!([{"id": "a", "networks": [{"network": "lan"}, {"network": "lan", "slot": "backup", "address": "10.0.0.2"}]}]);
    let applied = shop.apply(&both);
    assert_eq!(slots(&applied), [is("new", "3"), is("new", "2")], "named addresses are taken first");
    shop.commit(&applied);
    // The two slots of one instance swap.
    let swap = json!([{"id": "a", "networks": [{"network": "lan", "address": "10.0.0.2"}, {"network": "lan", "slot": "backup", "address": "10.0.0.3"}]}]);
    let swapped = shop.apply(&swap);
    assert_eq!(slots(&swapped), [is("promised", "2"), is("promised", "3")]);
    shop.commit(&swapped);
    let held = shop.get();
    let of = |at: usize| {
        (
            held["instances"][0]["reservations"][at]["address"].clone(),
            held["instances"][0]["reservations"][at]["slot"].clone(),
        )
    };
    assert_eq!([of(0), of(1)], [(json!("10.0.0.2"), json!("0")), (json!("10.0.0.3"), json!("backup"))]);
}

#[test]
fn deployments_are_listed_by_name_page_by_page() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    for name in ["c", "a", "b"] {
        let applied = client.ok("deployment.apply", json!({"deployment": name, "instances": automatic(&["x"])}));
        if name != "b" {
            client.ok("deployment.commit", json!({"deployment": name, "plan": applied["plan"]}));
        }
    }
    let first = client.ok("deployment.list", json!({"limit": 2}));
    let rest = client.ok("deployment.list", json!({"after": first["next"]}));
    let names = |page: &Value| {
        page["deployments"].as_array().unwrap().iter().map(|d| d["deployment"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((names(&first), names(&rest)), (vec![json!("a"), json!("b")], vec![json!("c")]));
    assert!(rest["next"].is_null());
    assert!(first["deployments"][0]["uncommitted_since"].is_null());
    assert!(first["deployments"][1]["uncommitted_since"].is_string());
}

#[test]
fn limits_count_what_is_current_and_not_what_is_obsolete() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.update", json!({"network": "lan", "set": {"limits": {"per_scope": 2}}}));
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["a", "b"]));
    shop.commit(&first);
    let next = shop.apply(&automatic(&["c", "d"]));
    assert_eq!(slots(&next), [is("new", "4"), is("new", "5")]);
    assert_eq!(shop.refused(&automatic(&["c", "d", "e"]))["data"]["kind"], "quota_exceeded");
}

#[test]
fn a_wish_names_a_family_a_pool_or_a_subnet_and_what_fits_it_is_kept() {
    let server = TestServer::new();
    let mut client = server.client();
    let pools =
        json!([{"range": "10.1.0.10-10.1.0.19", "name": "web"}, {"range": "10.1.0.20-10.1.0.29", "name": "db"}]);
    let subnets = json!([{"cidr": "10.1.0.0/24", "pools": pools}, {"cidr": "10.2.0.0/24", "name": "far"}, {"cidr": "2001:db8::/64"}]);
    client.ok("network.create", json!({"name": "net", "subnets": subnets}));
    let wishes = [
        (json!({"network": "net"}), "10.1.0.10"),
        (json!({"network": "net", "slot": "six", "family": 6}), "2001:db8::1"),
        (json!({"network": "net", "slot": "pool", "pool": "db"}), "10.1.0.20"),
        (json!({"network": "net", "slot": "range", "pool": "10.1.0.20-10.1.0.29"}), "10.1.0.21"),
        (json!({"network": "net", "slot": "subnet", "subnet": "far"}), "10.2.0.1"),
        (json!({"network": "net", "slot": "cidr", "subnet": "10.2.0.0/24"}), "10.2.0.2"),
    ];
    let networks: Vec<&Value> = wishes.iter().map(|(wish, _)| wish).collect();
    let listed = json!([{"id": "a", "networks": networks}]);
    let with = |state: &str| -> Vec<_> { wishes.iter().map(|(_, at)| (state.to_owned(), (*at).to_owned())).collect() };
    let mut shop = Deployment::of(&mut client, "shop");
    assert_eq!(slots(&shop.plan(&listed)), with("new"));
    let applied = shop.apply(&listed);
    assert_eq!(slots(&applied), with("new"));
    assert!(shop.commit(&applied).is_empty());
    assert_eq!(slots(&shop.apply(&listed)), with("kept"));
    // Only what no longer fits its wish is replaced.
    let moved = json!([{"id": "a", "networks": [
        {"network": "net"},
        {"network": "net", "slot": "six", "family": 4},
        {"network": "net", "slot": "pool", "pool": "web"},
        {"network": "net", "slot": "range", "subnet": "10.1.0.0/24"},
        {"network": "net", "slot": "subnet", "family": 4},
        {"network": "net", "slot": "cidr", "subnet": "far"},
    ]}]);
    let mut shop = Deployment::of(&mut client, "shop");
    let second = shop.apply(&moved);
    let states: Vec<_> = slots(&second);
    let expected = [
        ("kept", "10.1.0.10"),
        ("new", "10.1.0.11"),
        ("new", "10.1.0.12"),
        ("kept", "10.1.0.21"),
        ("kept", "10.2.0.1"),
        ("kept", "10.2.0.2"),
    ];
    assert_eq!(states, expected.map(|(state, at)| (state.to_owned(), at.to_owned())));
    assert_eq!(shop.commit(&second), ["10.1.0.20", "2001:db8::1"]);
}

#[test]
fn who_let_his_address_go_for_another_one_gets_it_back_when_a_revert_of_the_rest_takes_that_one_from_him() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("a", "10.0.0.10"), ("b", "10.0.0.11"), ("c", "10.0.0.12")]));
    shop.commit(&first);
    // Each instance is to get the address of the next one.
    let next = shop.apply(&named(&[("a", "10.0.0.11"), ("b", "10.0.0.12"), ("c", "10.0.0.10")]));
    assert!(shop.settle("deployment.commit", &next, Some(&["a"])).is_empty());
    assert_eq!(shop.held("a"), (vec![], vec![]), "it waits for the commit of `b`");
    assert_eq!(shop.held("c"), (vec!["10.0.0.10".into()], vec!["10.0.0.12".into()]));
    assert!(shop.settle("deployment.revert", &next, None).is_empty(), "nothing is free");
    for (id, address) in [("a", "10.0.0.10"), ("b", "10.0.0.11"), ("c", "10.0.0.12")] {
        assert_eq!(shop.held(id), (vec![address.into()], vec![]), "{id}");
    }
    assert!(shop.get()["uncommitted_since"].is_null());
    // And an instance that got its address keeps it.
    let next = shop.apply(&named(&[("a", "10.0.0.11"), ("b", "10.0.0.10"), ("c", "10.0.0.13")]));
    assert!(shop.settle("deployment.commit", &next, Some(&["a"])).is_empty());
    assert!(shop.settle("deployment.commit", &next, Some(&["b"])).is_empty());
    assert_eq!(shop.settle("deployment.revert", &next, None), ["10.0.0.13"]);
    for (id, address) in [("a", "10.0.0.11"), ("b", "10.0.0.10"), ("c", "10.0.0.12")] {
        assert_eq!(shop.held(id), (vec![address.into()], vec![]), "{id}");
    }
}

#[test]
fn what_is_reserved_for_an_instance_is_kept_in_a_static_pool_too() {
    let server = TestServer::new();
    let mut client = server.client();
    let reserved = json!([{"range": "10.0.0.55", "for": {"scope": "shop", "owner": "a"}}, {"range": "10.0.0.56", "for": {"scope": "shop", "owner": "b", "slot": "q"}}]);
    let pools =
        json!([{"range": "10.0.0.10+10", "name": "p"}, {"range": "10.0.0.50+10", "name": "q", "kind": "static"}]);
    let subnets = json!([{"cidr": "10.0.0.0/24", "pools": pools, "reserved": reserved}]);
    client.ok("network.create", json!({"name": "net", "subnets": subnets}));
    client.ok("ip.claim", json!({"network": "net", "scope": "shop", "owner": "c", "address": "10.0.0.57"}));
    let listed = json!([
        {"id": "a", "networks": [{"network": "net"}]},
        {"id": "b", "networks": [{"network": "net", "slot": "q", "pool": "q"}]},
        {"id": "c", "networks": [{"network": "net"}]},
    ]);
    let with = |states: [&str; 3]| -> Vec<(String, String)> {
        let addresses = ["10.0.0.55", "10.0.0.56", "10.0.0.10"];
        states.iter().zip(addresses).map(|(state, at)| ((*state).to_owned(), at.to_owned())).collect()
    };
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&listed);
    assert_eq!(slots(&first), with(["new", "new", "new"]));
    // A static pool keeps only what is reserved for an instance: c leaves it.
    assert_eq!(slots(&shop.apply(&listed)), with(["new", "new", "new"]));
    assert_eq!(shop.commit(&first), ["10.0.0.57"]);
    assert_eq!(slots(&shop.apply(&listed)), with(["kept", "kept", "kept"]));
}

#[test]
fn what_a_plan_grants_again_replaces_what_it_replaced_the_first_time() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&named(&[("web/0", "10.0.0.5")]));
    shop.commit(&first);
    let moves = named(&[("web/0", "10.0.0.6")]);
    let applied = shop.apply(&moves);
    let replaces = |answer: &Value| answer["instances"][0]["networks"][0]["replaces"].clone();
    assert_eq!((slots(&applied), replaces(&applied)), (vec![is("new", "6")], json!("10.0.0.5")));
    shop.client.ok("ip.release", json!({"network": "lan", "address": "10.0.0.6", "force": true}));
    for _ in 0..2 {
        let again = shop.apply(&moves);
        assert_eq!((slots(&again), replaces(&again)), (vec![is("new", "6")], json!("10.0.0.5")));
        assert_eq!(again["plan"], applied["plan"]);
    }
    assert_eq!(shop.commit(&applied), ["10.0.0.5"]);
}

/// The network is looked up by name before it decides; the answer must use the name that it has then.
#[test]
fn an_answer_calls_a_network_that_is_renamed_meanwhile_by_one_name() {
    let server = TestServer::new();
    let (mut client, mut other) = (server.client(), server.client());
    let mut was_found = false;
    for round in 0..150 {
        let name = format!("lan{round}");
        let subnets = json!([{"cidr": "10.0.0.0/29"}]);
        client.ok("network.create", json!({"name": name, "realm": name, "subnets": subnets}));
        let instances = json!([{"id": "a", "networks": [{"network": name}]}]);
        let rename = json!({"network": name, "set": {"name": format!("{name}x")}});
        client.send("deployment.apply", json!({"deployment": name, "instances": instances}));
        other.send("network.update", rename);
        let answer = client.answer();
        assert!(other.answer()["result"].is_object());
        let Some(result) = answer.get("result") else {
            assert_eq!(answer["error"]["data"]["kind"], "not_found", "{answer}");
            continue;
        };
        was_found = true;
        let slot = &result["instances"][0]["networks"][0];
        assert_eq!(slot["network"], slot["reservation"]["network"], "{answer}");
    }
    assert!(was_found, "it was renamed before anybody looked for it");
}
