//! The use cases of the documents, each as a test with its name.

use serde_json::{Value, json};

use super::{Deployment, automatic, is, named, slot, slots};
use crate::support::TestServer;

#[test]
fn a_vm_deleted_behind_our_back_gets_the_same_address_with_the_next_deploy() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0", "web/1"]));
    assert_eq!(slots(&first), [is("new", "2"), is("new", "3")]);
    shop.commit(&first);
    // Nobody is told when a machine is deleted: the instance owns its address all the same.
    shop.client.ok("ip.allocate", json!({"network": "lan", "owner": "somebody"}));
    let again = shop.apply(&automatic(&["web/0", "web/1"]));
    assert_eq!(slots(&again), [is("kept", "2"), is("kept", "3")]);
    assert_eq!(again["plan"], first["plan"], "the same wishes are the same plan");
}

#[test]
fn an_instance_stopped_hard_and_started_has_its_address_again_and_nobody_else_had_it_meanwhile() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0"]));
    shop.commit(&first);
    shop.client.ok("ip.bind", json!({"network": "lan", "address": "10.0.0.2", "scope": "shop", "claimant": "vm-1"}));
    shop.client.ok("ip.unbind", json!({"network": "lan", "address": "10.0.0.2", "scope": "shop", "claimant": "vm-1"}));
    assert_eq!(shop.client.allocate("other")["address"], "10.0.0.3");
    let started =
        shop.client.ok("ip.allocate", json!({"network": "lan", "scope": "shop", "owner": "web/0", "claimant": "vm-2"}));
    assert_eq!((&started["address"], &started["created"]), (&json!("10.0.0.2"), &json!(false)));
}

#[test]
fn an_instance_recreated_in_a_repair_has_its_address_again() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0"]));
    shop.commit(&first);
    let generation = &first["instances"][0]["networks"][0]["reservation"]["generation"];
    let repair = json!({"network": "lan", "scope": "shop", "owner": "web/0", "claimant": "vm-2"});
    assert_eq!(shop.client.ok("ip.allocate", repair)["generation"], *generation);
}

#[test]
fn what_is_scaled_down_is_let_go_with_the_commit_and_not_before() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0", "web/1", "web/2"]));
    shop.commit(&first);
    let less = shop.apply(&automatic(&["web/0"]));
    assert_eq!(super::addresses_of(&less["obsolete"]), ["10.0.0.3", "10.0.0.4"]);
    assert_eq!(shop.client.allocate("other")["address"], "10.0.0.5", "what is obsolete is held");
    let claim = json!({"network": "lan", "address": "10.0.0.3", "owner": "other", "slot": "1"});
    assert_eq!(shop.client.kind("ip.claim", claim), "already_in_use");
    assert_eq!(shop.commit(&less), ["10.0.0.3", "10.0.0.4"]);
    assert_eq!(shop.client.ok("ip.get", json!({"address": "10.0.0.3"}))["state"], "free");
    assert!(shop.commit(&less).is_empty(), "a repeat lets go nothing");
}

#[test]
fn an_address_changed_by_a_static_one_is_held_from_the_beginning_and_the_old_one_released_after() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0", "web/1"]));
    shop.commit(&first);
    let moved = shop.apply(&named(&[("web/0", "10.0.0.50"), ("web/1", "10.0.0.51")]));
    assert_eq!(slots(&moved), [is("new", "50"), is("new", "51")]);
    assert_eq!(moved["instances"][0]["networks"][0]["replaces"], "10.0.0.2");
    assert_eq!(shop.held("web/0"), (vec!["10.0.0.50".into()], vec!["10.0.0.2".into()]));
    // One instance after the other, as the machines come up.
    assert_eq!(shop.settle("deployment.commit", &moved, Some(&["web/0"])), ["10.0.0.2"]);
    assert_eq!(shop.held("web/1"), (vec!["10.0.0.51".into()], vec!["10.0.0.3".into()]));
    assert!(shop.get()["uncommitted_since"].is_string());
    assert_eq!(shop.settle("deployment.commit", &moved, Some(&["web/1"])), ["10.0.0.3"]);
    assert!(shop.get()["uncommitted_since"].is_null(), "the last instance ends the plan");
}

#[test]
fn an_address_changes_with_the_zone_of_its_instance() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([{"cidr": "10.0.0.0/24", "zones": ["z1"]}, {"cidr": "10.0.1.0/24", "zones": ["z2"]}]);
    client.ok("network.create", json!({"name": "lan", "subnets": subnets}));
    let mut shop = Deployment::of(&mut client, "shop");
    let in_zone = |zone: &str| json!([{"id": "web/0", "zone": zone, "networks": [{"network": "lan"}]}]);
    let first = shop.apply(&in_zone("z1"));
    shop.commit(&first);
    let moved = shop.apply(&in_zone("z2"));
    assert_eq!(slot(&moved, 0, 0), ("new".into(), "10.0.1.1".into()));
    assert_eq!(shop.commit(&moved), ["10.0.0.1"]);
}

#[test]
fn an_address_changes_with_the_range_of_its_subnet_once_that_is_drained() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0"]));
    shop.commit(&first);
    shop.client.ok("subnet.add", json!({"network": "lan", "cidr": "10.0.9.0/24"}));
    let draining = json!({"network": "lan", "subnet": "10.0.0.0/24", "set": {"draining": true}});
    shop.client.ok("subnet.modify", draining);
    let moved = shop.apply(&automatic(&["web/0"]));
    assert_eq!(slot(&moved, 0, 0), ("new".into(), "10.0.9.1".into()));
    assert!(moved["plan"].as_u64() > first["plan"].as_u64(), "what a plan led to is not so any more: it is a new one");
    assert_eq!(shop.commit(&moved), ["10.0.0.2"]);
    shop.client.ok("subnet.remove", json!({"network": "lan", "subnet": "10.0.0.0/24"}));
}

#[test]
fn a_change_of_gateway_dns_dhcp_tags_or_l2_never_changes_an_address() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0"]));
    shop.commit(&first);
    let set = json!({"gateway": "10.0.0.254", "dns": {"servers": ["10.0.0.253"]}, "dhcp": true, "tags": {"a": "b"}});
    shop.client.ok("subnet.modify", json!({"network": "lan", "subnet": "10.0.0.0/24", "set": set}));
    let l2 = json!({"mode": "bridged", "link": "br0", "mac_prefix": "02:00:00"});
    let set = json!({"l2": l2, "tags": {"c": "d"}, "description": "moved to another switch"});
    shop.client.ok("network.update", json!({"network": "lan", "set": set}));
    let again = shop.apply(&automatic(&["web/0"]));
    assert_eq!((slots(&again), &again["plan"]), (vec![is("kept", "2")], &first["plan"]));
    let held = |answer: &Value| answer["instances"][0]["networks"][0]["reservation"].clone();
    assert_eq!(held(&again)["generation"], held(&first)["generation"]);
    assert_eq!((&held(&again)["gateway"], &held(&again)["l2"]), (&json!("10.0.0.254"), &l2), "as it is now");
}

#[test]
fn after_a_failed_creation_both_are_held_and_the_next_deploy_releases_the_old_one() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0"]));
    shop.commit(&first);
    // The machine cannot be created, so nobody commits.
    let failed = shop.apply(&named(&[("web/0", "10.0.0.50")]));
    assert_eq!(shop.held("web/0"), (vec!["10.0.0.50".into()], vec!["10.0.0.2".into()]));
    let next = shop.apply(&named(&[("web/0", "10.0.0.60")]));
    assert_eq!(shop.held("web/0"), (vec!["10.0.0.60".into()], vec!["10.0.0.2".into(), "10.0.0.50".into()]));
    assert_eq!(
        shop.client.kind("deployment.commit", json!({"deployment": "shop", "plan": failed["plan"]})),
        "conflict"
    );
    assert_eq!(shop.commit(&next), ["10.0.0.2", "10.0.0.50"]);
}

#[test]
fn a_renamed_network_keeps_its_addresses() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0"]));
    shop.commit(&first);
    shop.client.ok("network.update", json!({"network": "lan", "set": {"name": "wan"}}));
    let renamed = shop.apply(&json!([{"id": "web/0", "networks": [{"network": "wan"}]}]));
    assert_eq!((slots(&renamed), renamed["obsolete"].as_array().unwrap().len()), (vec![is("kept", "2")], 0));
}

#[test]
fn what_is_held_in_a_network_that_is_gone_takes_the_usual_path() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    client.ok("network.create", json!({"name": "other", "subnets": [{"cidr": "10.1.0.0/24"}]}));
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0"]));
    shop.commit(&first);
    shop.client.ok("network.delete", json!({"network": "lan", "force": true}));
    let refused = shop.refused(&automatic(&["web/0"]));
    assert_eq!((&refused["data"]["kind"], &refused["data"]["instance"]), (&json!("not_found"), &json!("web/0")));
    let moved = shop.apply(&json!([{"id": "web/0", "networks": [{"network": "other"}]}]));
    assert_eq!(slot(&moved, 0, 0), ("new".into(), "10.1.0.1".into()));
    assert_eq!(shop.commit(&moved), ["10.0.0.2"]);
    let left = shop.client.ok("network.list", json!({"deleted": true}));
    assert!(left["networks"].as_array().unwrap().is_empty(), "with its last reservation it is gone: {left}");
}

#[test]
fn compilation_instances_survive_one_deploy_that_does_not_list_them_and_go_with_the_second() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let compile = json!({"network": "lan", "scope": "shop", "owner": "compile/1", "transient": true});
    shop.client.ok("ip.allocate", compile);
    let first = shop.apply(&automatic(&["web/0"]));
    assert_eq!(shop.apply(&automatic(&["web/0"])), first);
    assert_eq!(shop.held("compile/1").0, ["10.0.0.2"], "the same plan again is no second one");
    assert!(shop.commit(&first).is_empty());
    // The run that compiled died. What it left is released by the next deploy but one.
    let second = shop.apply(&automatic(&["web/0", "web/1"]));
    assert_eq!(super::addresses_of(&second["obsolete"]), ["10.0.0.2"]);
    assert_eq!(shop.commit(&second), ["10.0.0.2"]);
}

/// "Failed compilation releases its address for the next deploy": most often that one has the same wishes as the one before.
#[test]
fn what_compilations_left_goes_with_the_second_deploy_also_where_each_wishes_the_same() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let wishes = automatic(&["web/0"]);
    let first = shop.apply(&wishes);
    shop.commit(&first);
    for run in 0..3 {
        let owner = format!("compile/{run}");
        let compile = json!({"network": "lan", "scope": "shop", "owner": owner, "transient": true});
        assert_eq!(shop.client.ok("ip.allocate", compile)["address"], "10.0.0.3");
        // Its machine is never cleaned up. Lost answers are asked for again, which does not count as a deploy.
        let missed = shop.apply(&wishes);
        assert_eq!(slots(&missed), [is("kept", "2")]);
        for _ in 0..2 {
            assert_eq!(shop.apply(&wishes), missed);
        }
        assert!(shop.get()["uncommitted_since"].is_null(), "nothing is granted or obsolete");
        assert!(shop.commit(&missed).is_empty());
        assert_eq!(shop.plan(&wishes)["obsolete"][0]["address"], "10.0.0.3");
        assert_eq!(shop.held(&owner).0, ["10.0.0.3"]);
        let next = shop.apply(&wishes);
        assert!(next["plan"].as_u64() > missed["plan"].as_u64());
        assert_eq!(super::addresses_of(&next["obsolete"]), ["10.0.0.3"]);
        assert_eq!(shop.apply(&wishes), next);
        assert_eq!(shop.commit(&next), ["10.0.0.3"]);
        // No instance is missing any more, so another plan would have nothing to do.
        assert_eq!(shop.apply(&wishes)["plan"], next["plan"]);
    }
}

#[test]
fn of_two_deploys_at_once_on_one_network_both_succeed_or_exactly_one_fails_for_capacity() {
    for (free, fit) in [(4, 2), (3, 1)] {
        let server = TestServer::new();
        let mut client = server.client();
        let pool = format!("10.0.0.10+{free}");
        let subnets = json!([{"cidr": "10.0.0.0/24", "pools": [{"range": pool}]}]);
        client.ok("network.create", json!({"name": "lan", "subnets": subnets}));
        let deploy = |name: &'static str| {
            let mut client = server.client();
            std::thread::spawn(move || {
                let instances = automatic(&["a", "b"]);
                client.call("deployment.apply", json!({"deployment": name, "instances": instances}))
            })
        };
        let answers = [deploy("one"), deploy("two")].map(|thread| thread.join().unwrap());
        let good: Vec<_> = answers.iter().filter(|answer| answer["result"].is_object()).collect();
        assert_eq!(good.len(), fit, "{answers:?}");
        for answer in answers.iter().filter(|answer| answer["error"].is_object()) {
            assert_eq!(answer["error"]["data"]["kind"], "not_enough_capacity");
        }
        let mut all: Vec<_> = good.iter().flat_map(|answer| slots(&answer["result"])).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2 * fit, "nothing was given twice");
        let held = client.ok("ip.list", json!({"network": "lan", "count_only": true}));
        assert_eq!(held["count"], 2 * fit, "who failed holds nothing");
    }
}

#[test]
fn an_address_freed_in_a_deploy_is_not_reused_in_the_same_deploy() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([{"cidr": "10.0.0.0/24", "pools": [{"range": "10.0.0.10+2"}]}]);
    client.ok("network.create", json!({"name": "lan", "subnets": subnets}));
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["old/0"]));
    shop.commit(&first);
    let next = shop.apply(&automatic(&["new/0"]));
    assert_eq!(slots(&next), [is("new", "11")], "10.0.0.10 is let go by this plan");
    let full = shop.refused(&automatic(&["new/0", "new/1"]));
    assert_eq!((&full["data"]["kind"], &full["data"]["instance"]), (&json!("not_enough_capacity"), &json!("new/1")));
    assert_eq!(full["data"]["obsolete"], "1", "and it says why: {full}");
}

#[test]
fn static_addresses_are_assigned_in_the_order_given_and_who_holds_one_keeps_it() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let group = |ids: &[&str], ips: &[&str]| json!([{"name": "web", "instances": ids, "networks": [{"network": "lan", "static_ips": ips}]}]);
    let first = shop.groups(&group(&["web/0", "web/1"], &["10.0.0.20", "10.0.0.10-10.0.0.11"]));
    assert_eq!(slots(&first), [is("new", "20"), is("new", "10")]);
    shop.commit(&first);
    // The list is in another order, with one more instance in front.
    let more = shop.groups(&group(&["web/2", "web/0", "web/1"], &["10.0.0.9", "10.0.0.10-10.0.0.11", "10.0.0.20"]));
    assert_eq!(slots(&more), [is("new", "9"), is("kept", "20"), is("kept", "10")]);
}

#[test]
fn an_automatic_address_becomes_static_and_automatic_again_without_changing() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    for wish in [automatic(&["web/0"]), named(&[("web/0", "10.0.0.2")]), automatic(&["web/0"])] {
        let applied = shop.apply(&wish);
        assert_eq!(slot(&applied, 0, 0).1, "10.0.0.2");
        assert!(shop.commit(&applied).is_empty());
    }
    // In a static pool an automatic wish keeps nothing.
    shop.client.ok("pool.remove", json!({"network": "lan", "range": "10.0.0.2"}));
    shop.client.ok("pool.add", json!({"network": "lan", "range": "10.0.0.2", "kind": "static"}));
    let moved = shop.apply(&automatic(&["web/0"]));
    assert_eq!(slots(&moved), [is("new", "3")]);
    assert_eq!(moved["instances"][0]["networks"][0]["replaces"], "10.0.0.2");
}

#[test]
fn groups_are_dealt_over_their_zones_and_get_static_addresses_of_the_subnet_that_serves_them() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([{"cidr": "10.0.0.0/24", "zones": ["z1"]}, {"cidr": "10.0.1.0/24", "zones": ["z2"]}]);
    client.ok("network.create", json!({"name": "lan", "subnets": subnets}));
    let networks = json!([{"network": "lan", "static_ips": ["10.0.0.10+2", "10.0.1.10+2"]}]);
    let group = json!({"name": "web", "instances": ["a", "b", "c", "d"], "zones": ["z1", "z2"], "networks": networks});
    let in_z1 = |id: &&str| json!({"id": id, "zone": "z1", "networks": []});
    let instances: Vec<Value> = ["a", "c", "d"].iter().map(in_z1).collect();
    let ask = json!({"deployment": "shop", "instances": instances, "groups": [group]});
    let refused = client.call("deployment.apply", ask.clone());
    assert_eq!(
        refused["error"]["data"]["kind"], "invalid_argument",
        "z1 has three instances and two addresses: {refused}"
    );
    let mut ask = ask;
    ask["instances"] = json!([{"id": "d", "zone": "z2", "networks": []}]);
    let applied = client.ok("deployment.apply", ask);
    let of = |id: &str| {
        let instances = applied["instances"].as_array().unwrap();
        let found = instances.iter().find(|instance| instance["id"] == id).unwrap();
        found["networks"][0]["reservation"]["address"].as_str().unwrap().to_owned()
    };
    assert_eq!(["a", "b", "c", "d"].map(of), ["10.0.0.10", "10.0.1.10", "10.0.0.11", "10.0.1.11"]);
}

#[test]
fn a_vip_is_kept_by_a_wish_without_address_and_taken_by_name() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let pools = json!([{"range": "10.9.0.10+4", "kind": "static"}]);
    let subnets = json!([{"cidr": "10.9.0.0/24", "pools": pools}]);
    client.ok("network.create", json!({"name": "vip", "kind": "vip", "subnets": subnets}));
    let wish = |vip: serde_json::Value| json!([{"id": "web/0", "networks": [{"network": "lan"}, vip]}]);
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&wish(json!({"network": "vip", "address": "10.9.0.12"})));
    shop.commit(&first);
    let kept = shop.apply(&wish(json!({"network": "vip"})));
    assert_eq!(slot(&kept, 0, 1), ("kept".into(), "10.9.0.12".into()));
    // Without a dynamic pool nothing is chosen.
    let mut other = Deployment::of(&mut client, "other");
    let refused = other.refused(&json!([{"id": "web/0", "networks": [{"network": "vip"}]}]));
    assert_eq!(refused["data"]["kind"], "not_enough_capacity");
    client.ok("pool.add", json!({"network": "vip", "range": "10.9.0.20+4"}));
    let mut other = Deployment::of(&mut client, "other");
    let picked = other.apply(&json!([{"id": "web/0", "networks": [{"network": "vip"}]}]));
    assert_eq!(slot(&picked, 0, 0), ("new".into(), "10.9.0.20".into()));
}

#[test]
fn a_vip_in_a_subnet_that_drains_is_moved_by_the_next_deploy() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([{"cidr": "10.8.0.0/24"}, {"cidr": "10.9.0.0/24"}]);
    client.ok("network.create", json!({"name": "vip", "kind": "vip", "subnets": subnets}));
    let wish = json!([{"id": "web/0", "networks": [{"network": "vip"}]}]);
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&wish);
    assert_eq!(slot(&first, 0, 0), ("new".into(), "10.8.0.1".into()));
    shop.commit(&first);
    client.ok("subnet.modify", json!({"network": "vip", "subnet": "10.8.0.0/24", "set": {"draining": true}}));
    let mut shop = Deployment::of(&mut client, "shop");
    let moved = shop.apply(&wish);
    assert_eq!(slot(&moved, 0, 0), ("new".into(), "10.9.0.1".into()));
    assert_eq!(shop.commit(&moved), ["10.8.0.1"]);
    client.ok("subnet.remove", json!({"network": "vip", "subnet": "10.8.0.0/24"}));
}

#[test]
fn a_dynamic_network_takes_automatic_wishes_only_and_carries_no_address() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ok("network.create", json!({"name": "cloud", "kind": "dynamic"}));
    let mut shop = Deployment::of(&mut client, "shop");
    let applied = shop.apply(&json!([{"id": "web/0", "networks": [{"network": "cloud"}]}]));
    assert_eq!(slot(&applied, 0, 0), ("none".into(), String::new()));
    let refused = shop.refused(&json!([{"id": "web/0", "networks": [{"network": "cloud", "address": "10.0.0.5"}]}]));
    assert_eq!(refused["data"]["kind"], "wrong_kind");
}

#[test]
fn a_machine_whose_address_moved_into_a_reserved_range_is_moved_off_where_fresh_is_asked() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0"]));
    shop.commit(&first);
    shop.client.ok("reserved.add", json!({"network": "lan", "range": "10.0.0.2-10.0.0.9"}));
    let kept = shop.apply(&automatic(&["web/0"]));
    assert_eq!(slots(&kept), [is("kept", "2")], "what is held stays");
    // A plan shows who holds addresses that are reserved for others.
    let reserved = |answer: &Value| answer["instances"][0]["networks"][0]["reserved"].clone();
    let planned = shop.plan(&automatic(&["web/0"]));
    assert_eq!(reserved(&planned), json!({"range": "10.0.0.2-10.0.0.9"}));
    assert_eq!(reserved(&kept), reserved(&planned));
    let own = json!({"scope": "shop", "owner": "web/0"});
    shop.client.ok("reserved.remove", json!({"network": "lan", "range": "10.0.0.2"}));
    shop.client.ok("reserved.add", json!({"network": "lan", "range": "10.0.0.2", "for": own}));
    assert_eq!(reserved(&shop.plan(&automatic(&["web/0"]))), Value::Null, "it is kept for itself");
    shop.client.ok("reserved.remove", json!({"network": "lan", "range": "10.0.0.2"}));
    shop.client.ok("reserved.add", json!({"network": "lan", "range": "10.0.0.2"}));
    let fresh = json!([{"id": "web/0", "fresh": true, "networks": [{"network": "lan"}]}]);
    let moved = shop.apply(&fresh);
    assert_eq!(slots(&moved), [is("new", "10")]);
    assert_eq!(shop.apply(&fresh), moved, "the same wishes again are the same plan");
    assert_eq!(shop.commit(&moved), ["10.0.0.2"]);
    assert_eq!(shop.client.ok("ip.get", json!({"address": "10.0.0.2"}))["state"], "reserved");
    assert_eq!(slots(&shop.apply(&automatic(&["web/0"]))), [is("kept", "10")]);
}

/// What was meanwhile reserved is left, and a machine that is created before the old one is deleted gets a different
/// address.
#[test]
fn fresh_moves_an_instance_with_each_deploy_and_with_none_of_the_repeats_of_one() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let first = shop.apply(&automatic(&["web/0"]));
    shop.commit(&first);
    let fresh = json!([{"id": "web/0", "fresh": true, "networks": [{"network": "lan"}]}]);
    let moved = shop.apply(&fresh);
    assert_eq!(slots(&moved), [is("new", "3")]);
    shop.client.ok("reserved.add", json!({"network": "lan", "range": "10.0.0.3"}));
    assert_eq!(shop.apply(&fresh), moved, "before its end it is a repeat");
    assert_eq!(shop.commit(&moved), ["10.0.0.2"]);
    assert_eq!(slots(&shop.plan(&fresh)), [is("new", "2")]);
    let next = shop.apply(&fresh);
    assert_eq!((slots(&next), shop.apply(&fresh)), (vec![is("new", "2")], next.clone()));
    assert!(next["plan"].as_u64() > moved["plan"].as_u64());
    assert_eq!(shop.commit(&next), ["10.0.0.3"]);
    assert_eq!(slots(&shop.apply(&fresh)), [is("new", "4")], "nothing is reserved: it is made anew once more");
}

/// The client that commits has the answer, but another copy of the request may still be under way.
#[test]
fn a_copy_of_an_apply_that_comes_behind_its_commit_lets_nothing_go_and_can_be_taken_back() {
    let server = TestServer::new();
    let mut client = server.with_lan();
    let mut shop = Deployment::of(&mut client, "shop");
    let fresh = json!([{"id": "web/0", "fresh": true, "networks": [{"network": "lan"}]}]);
    let moved = shop.apply(&fresh);
    shop.commit(&moved);
    let late = shop.apply(&fresh);
    assert_eq!(shop.held("web/0"), (vec!["10.0.0.3".into()], vec!["10.0.0.2".into()]), "both are held");
    assert!(shop.get()["uncommitted_since"].is_string(), "and it is seen");
    let repeated = json!({"deployment": "shop", "plan": moved["plan"]});
    assert_eq!(shop.client.kind("deployment.commit", repeated), "conflict");
    assert_eq!(shop.revert(&late), ["10.0.0.3"]);
    assert_eq!(shop.held("web/0"), (vec!["10.0.0.2".into()], vec![]));
}
