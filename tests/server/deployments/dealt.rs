//! How groups deal zones and addresses to their instances: an instance keeps what it has, whichever others are listed beside
//! it.

use serde_json::{Value, json};

use super::{Deployment, addresses_of};
use crate::support::{Client, TestServer};

/// Two zones with a subnet each, and a subnet for all zones.
fn zoned(server: &TestServer) -> Client {
    let mut client = server.client();
    let subnets = json!([
        {"cidr": "10.1.0.0/28", "zones": ["z1"]},
        {"cidr": "10.1.1.0/28", "zones": ["z2"]},
        {"cidr": "10.1.2.0/28", "pools": []},
    ]);
    client.ok("network.create", json!({"name": "z", "subnets": subnets}));
    client
}

fn group(ids: &[&str], zones: &[&str], list: Option<&[&str]>) -> Value {
    let mut network = json!({"network": "z"});
    if let Some(list) = list {
        network["static_ips"] = json!(list);
    }
    json!([{"name": "g", "instances": ids, "zones": zones, "networks": [network]}])
}

/// Instance, state and address of each wish.
fn told(answer: &Value) -> Vec<String> {
    let instances = answer["instances"].as_array().unwrap().iter();
    let slot = |one: &Value| {
        let slot = &one["networks"][0];
        let [id, state, at] = [&one["id"], &slot["state"], &slot["reservation"]["address"]].map(|text| text.as_str());
        format!("{} {} {}", id.unwrap(), state.unwrap(), at.unwrap_or("none"))
    };
    instances.map(slot).collect()
}

#[test]
fn instances_of_a_group_stay_in_their_zones_whoever_is_listed_beside_them() {
    for list in [None, Some(&["10.1.0.1", "10.1.0.2", "10.1.1.1"][..])] {
        let server = TestServer::new();
        let mut client = zoned(&server);
        let mut shop = Deployment::of(&mut client, "shop");
        let zones = &["z1", "z2"][..];
        let first = shop.groups(&group(&["i0", "i1", "i2"], zones, list));
        assert_eq!(told(&first), ["i0 new 10.1.0.1", "i1 new 10.1.1.1", "i2 new 10.1.0.2"]);
        assert_eq!(shop.groups(&group(&["i0", "i1", "i2"], zones, list)), first, "before its commit, too");
        shop.commit(&first);
        let kept = ["i0 kept 10.1.0.1", "i1 kept 10.1.1.1", "i2 kept 10.1.0.2"];
        // Instances and zones in another order.
        let turned = shop.groups(&group(&["i2", "i1", "i0"], &["z2", "z1"], list));
        assert_eq!(told(&turned), [kept[2], kept[1], kept[0]], "{list:?}");
        shop.commit(&turned);
        let fewer = shop.groups(&group(&["i1", "i2"], zones, list));
        assert_eq!(told(&fewer), kept[1..], "{list:?}");
        assert_eq!(addresses_of(&fewer["obsolete"]), ["10.1.0.1"]);
        // An instance that comes back before the commit gets what it had.
        let back = shop.groups(&group(&["i1", "i2", "i0"], zones, list));
        assert_eq!(told(&back), [kept[1], kept[2], kept[0]], "{list:?}");
        let fewer = shop.groups(&group(&["i0", "i2"], zones, list));
        assert_eq!(shop.commit(&fewer), ["10.1.1.1"]);
        let more = shop.groups(&group(&["new", "i0", "i2"], zones, list));
        assert_eq!(told(&more), ["new new 10.1.1.1", kept[0], kept[2]], "where fewest are: {list:?}");
    }
}

/// A machine lives in one zone, and so do all of its networks.
#[test]
fn an_instance_has_one_zone_for_all_of_its_networks() {
    let server = TestServer::new();
    let mut client = zoned(&server);
    let subnets = json!([{"cidr": "10.2.0.0/28", "zones": ["z1"]}, {"cidr": "10.2.1.0/28", "zones": ["z2"]}]);
    client.ok("network.create", json!({"name": "y", "subnets": subnets}));
    client.ok("ip.claim", json!({"network": "z", "scope": "shop", "owner": "b", "address": "10.1.0.9"}));
    let networks = json!([{"network": "y"}, {"network": "z"}]);
    let ask = json!([{"name": "g", "instances": ["b", "a", "c"], "zones": ["z2", "z1"], "networks": networks}]);
    let mut shop = Deployment::of(&mut client, "shop");
    let applied = shop.groups(&ask);
    let of = |at: usize| {
        let slots = applied["instances"][at]["networks"].as_array().unwrap().iter();
        slots.map(|slot| slot["reservation"]["address"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!([of(0), of(1), of(2)], [["10.2.0.1", "10.1.0.9"], ["10.2.1.1", "10.1.1.1"], ["10.2.1.2", "10.1.1.2"]]);
    assert_eq!(shop.groups(&ask), applied);
}

#[test]
fn who_is_refused_a_static_address_is_refused_because_no_deal_has_one_for_each() {
    let server = TestServer::new();
    let mut client = zoned(&server);
    let mut shop = Deployment::of(&mut client, "shop");
    let zones = &["z1", "z2"][..];
    // The first address of the list serves all zones, and is the only one that serves z2.
    let wishes = group(&["i0", "i1"], zones, Some(&["10.1.2.1", "10.1.0.1"]));
    let first = shop.groups(&wishes);
    assert_eq!(told(&first), ["i0 new 10.1.0.1", "i1 new 10.1.2.1"]);
    assert_eq!(shop.groups(&wishes), first);
    shop.commit(&first);
    // An instance keeps the address that it holds, whatever that means for others.
    let refused = shop.client.call(
        "deployment.apply",
        json!({"deployment": "shop", "groups": group(&["i1", "i0", "i2"], &["z1"], Some(&["10.1.2.1", "10.1.0.1", "10.1.1.1"]))}),
    );
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("instance `i2`") && message.contains("in zone `z1`"), "{message}");
    let third = group(&["i1", "i0", "i2"], zones, Some(&["10.1.2.1", "10.1.0.1", "10.1.0.2"]));
    assert_eq!(told(&shop.groups(&third)), ["i1 kept 10.1.2.1", "i0 kept 10.1.0.1", "i2 new 10.1.0.2"]);
}

#[test]
fn what_a_group_is_dealt_as_a_promise_is_the_same_when_it_is_asked_again() {
    let server = TestServer::new();
    let mut client = zoned(&server);
    let mut shop = Deployment::of(&mut client, "shop");
    let list = &["10.1.0.1", "10.1.0.2", "10.1.0.3"][..];
    let first = shop.groups(&group(&["old", "next"], &["z1"], Some(list)));
    shop.commit(&first);
    let wishes = group(&["a", "b"], &["z1"], Some(&["10.1.0.3", "10.1.0.1", "10.1.0.2"]));
    let next = shop.groups(&wishes);
    assert_eq!(told(&next), ["a new 10.1.0.3", "b promised 10.1.0.1"]);
    let other = group(&["a", "b"], &["z1"], Some(&["10.1.0.2", "10.1.0.1", "10.1.0.3"]));
    assert_eq!(told(&shop.groups(&other)), ["a kept 10.1.0.3", "b promised 10.1.0.1"], "promised is promised");
    let again = shop.groups(&other);
    assert_eq!(told(&shop.groups(&other)), told(&again));
    assert_eq!(shop.commit(&again), ["10.1.0.2"]);
    assert_eq!((shop.held("a").0, shop.held("b").0), (vec!["10.1.0.3".into()], vec!["10.1.0.1".into()]));
}

/// The subnet is draining, or the wish no longer fits: otherwise the instance would be bound to a zone that may have no
/// other address.
#[test]
fn an_address_that_its_instance_has_to_leave_does_not_hold_it_in_its_zone() {
    type Change = fn(&mut Deployment<'_>);
    fn drain(shop: &mut Deployment<'_>) {
        let draining = json!({"network": "z", "subnet": "10.1.0.0/28", "set": {"draining": true}});
        shop.client.ok("subnet.modify", draining);
    }
    fn fill(shop: &mut Deployment<'_>) {
        for last in 2..=14 {
            let claim = json!({"network": "z", "owner": format!("o{last}"), "address": format!("10.1.0.{last}")});
            shop.client.ok("ip.claim", claim);
        }
    }
    fn nothing(_: &mut Deployment<'_>) {}
    let zones = &["z2", "z1"][..];
    let listed = |instance: Value, networks: Value| {
        json!({
            "deployment": "shop",
            "instances": [instance],
            "groups": [{"name": "g", "instances": ["i0"], "zones": zones, "networks": networks}],
        })
    };
    let of_group = |list: Option<&[&str]>| json!({"deployment": "shop", "groups": group(&["i0"], zones, list)});
    let here = json!([{"network": "z"}]);
    let in_subnet = json!({"id": "i0", "networks": [{"network": "z", "subnet": "10.1.1.0/28"}]});
    let cases: [(Change, Value, &str); 5] = [
        (drain, of_group(None), "10.1.1.1"),
        (drain, of_group(Some(&["10.1.1.5"])), "10.1.1.5"),
        (nothing, of_group(Some(&["10.1.1.5"])), "10.1.1.5"),
        (fill, listed(json!({"id": "i0", "fresh": true, "networks": []}), here), "10.1.1.1"),
        (nothing, listed(in_subnet, json!([])), "10.1.1.1"),
    ];
    for (change, wishes, address) in cases {
        let server = TestServer::new();
        let mut client = zoned(&server);
        let mut shop = Deployment::of(&mut client, "shop");
        let first = shop.groups(&group(&["i0"], &["z1"], None));
        assert_eq!(told(&first), ["i0 new 10.1.0.1"]);
        shop.commit(&first);
        change(&mut shop);
        let moved = shop.client.ok("deployment.apply", wishes.clone());
        assert_eq!(told(&moved), [format!("i0 new {address}")], "{wishes}");
        assert_eq!(shop.client.ok("deployment.apply", wishes.clone()), moved, "before its commit");
        assert_eq!(shop.commit(&moved), ["10.1.0.1"]);
        let again = shop.client.ok("deployment.apply", wishes.clone());
        if wishes["instances"][0]["fresh"] == true {
            assert_eq!(told(&again), ["i0 new 10.1.1.2"], "behind it that is another deploy");
            continue;
        }
        assert_eq!((told(&again), &again["plan"]), (vec![format!("i0 kept {address}")], &moved["plan"]), "behind it");
    }
}

#[test]
fn who_lives_in_a_zone_that_no_subnet_serves_is_not_told_to_list_more_addresses() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([{"cidr": "10.1.0.0/24", "zones": ["z1"]}, {"cidr": "10.1.1.0/24", "zones": ["z2"]}]);
    client.ok("network.create", json!({"name": "z", "subnets": subnets}));
    let mut refused = |zones: &[&str], list: &str| {
        let groups = group(&["i0", "i1"], zones, Some(&[list]));
        let error = client.call("deployment.apply", json!({"deployment": "shop", "groups": groups}))["error"].clone();
        assert_eq!(error["data"]["kind"], "invalid_argument", "{error}");
        error["message"].as_str().unwrap().to_owned()
    };
    let said = refused(&["z7"], "10.1.0.10-10.1.0.20");
    assert!(
        said.contains("has no address of network `z` in zone `z7`: none of its subnets serves that zone"),
        "{said}"
    );
    let said = refused(&["z1"], "10.1.1.10-10.1.1.20");
    let too_few = "too few addresses of network `z` in zone `z1`; list one for each instance that lives there";
    assert!(said.contains(too_few) && said.ends_with("`fresh` gives that up)"), "{said}");
}

/// As the director does it: the addresses determine how many instances live in which zone, and an instance that keeps its
/// address stays.
#[test]
fn static_addresses_that_lie_unevenly_over_zones_are_dealt_with_the_zones_that_they_serve() {
    let server = TestServer::new();
    let mut client = zoned(&server);
    let mut shop = Deployment::of(&mut client, "shop");
    let (ids, zones) = (&["i0", "i1", "i2"][..], &["z1", "z2"][..]);
    let one_and_two = &["10.1.0.1", "10.1.1.1", "10.1.1.2"][..];
    let first = shop.groups(&group(ids, zones, Some(one_and_two)));
    assert_eq!(told(&first), ["i0 new 10.1.0.1", "i1 new 10.1.1.1", "i2 new 10.1.1.2"]);
    assert_eq!(shop.groups(&group(ids, zones, Some(one_and_two))), first, "before its commit, too");
    shop.commit(&first);
    let kept = ["i0 kept 10.1.0.1", "i1 kept 10.1.1.1", "i2 kept 10.1.1.2"];
    let turned = shop.groups(&group(&["i2", "i1", "i0"], &["z2", "z1"], Some(one_and_two)));
    assert_eq!(told(&turned), [kept[2], kept[1], kept[0]]);
    // One instance goes, and a new one takes its place.
    shop.commit(&turned);
    let gone = shop.groups(&group(&["i0", "i1"], zones, Some(one_and_two)));
    assert_eq!(shop.commit(&gone), ["10.1.1.2"]);
    let next = shop.groups(&group(&["new", "i0", "i1"], zones, Some(one_and_two)));
    assert_eq!(told(&next), ["new new 10.1.1.2", kept[0], kept[1]]);
    shop.commit(&next);
    // No address in their zones is listed any more.
    let moved = shop.groups(&group(&["i0", "i1"], zones, Some(&["10.1.1.7", "10.1.1.8"])));
    assert_eq!(told(&moved), ["i0 new 10.1.1.7", "i1 new 10.1.1.8"]);
}

/// An instance with a zone of its own takes from the same list; and an instance with two networks needs an address in both.
#[test]
fn the_others_of_a_list_and_the_lists_of_other_networks_count_where_zones_are_dealt() {
    let server = TestServer::new();
    let mut client = zoned(&server);
    let subnets = json!([{"cidr": "10.2.0.0/28", "zones": ["z1"]}, {"cidr": "10.2.1.0/28", "zones": ["z2"]}]);
    client.ok("network.create", json!({"name": "y", "subnets": subnets}));
    let placed = |list: &[&str]| {
        let networks = json!([{"network": "z", "static_ips": list}]);
        json!({
            "deployment": "shop",
            "instances": [{"id": "i0", "zone": "z2", "networks": []}],
            "groups": [{"name": "g", "instances": ["i1", "i2", "i0"], "zones": ["z1", "z2"], "networks": networks}],
        })
    };
    let applied = client.ok("deployment.plan", placed(&["10.1.0.1", "10.1.0.2", "10.1.1.1"]));
    assert_eq!(told(&applied), ["i0 new 10.1.1.1", "i1 new 10.1.0.1", "i2 new 10.1.0.2"]);
    let two = json!([
        {"network": "z", "static_ips": ["10.1.0.1", "10.1.0.2", "10.1.1.1", "10.1.1.2"]},
        {"network": "y", "static_ips": ["10.2.0.1", "10.2.1.1", "10.2.1.2", "10.2.1.3"]},
    ]);
    let of_two = json!([{"name": "g", "instances": ["a", "b", "c"], "zones": ["z1", "z2"], "networks": two}]);
    let applied = client.ok("deployment.plan", json!({"deployment": "shop", "groups": of_two}));
    assert_eq!(told(&applied), ["a new 10.1.0.1", "b new 10.1.1.1", "c new 10.1.1.2"]);
}

/// A wish for an address in a draining subnet would only be refused.
#[test]
fn who_holds_an_address_of_a_list_in_a_subnet_that_drains_is_dealt_another_of_it() {
    let server = TestServer::new();
    let mut client = server.client();
    let subnets = json!([{"cidr": "10.1.0.0/28"}, {"cidr": "10.1.1.0/28"}]);
    client.ok("network.create", json!({"name": "z", "subnets": subnets}));
    let mut shop = Deployment::of(&mut client, "shop");
    let of = |ids: &[&str], list: &[&str]| group(ids, &[], Some(list));
    let list = &["10.1.0.5", "10.1.0.6", "10.1.1.5", "10.1.1.6"][..];
    let first = shop.groups(&of(&["a"], list));
    assert_eq!(told(&first), ["a new 10.1.0.5"]);
    shop.commit(&first);
    let draining = json!({"network": "z", "subnet": "10.1.0.0/28", "set": {"draining": true}});
    shop.client.ok("subnet.modify", draining);
    let moved = shop.groups(&of(&["a", "b"], list));
    assert_eq!(told(&moved), ["a new 10.1.1.5", "b new 10.1.1.6"]);
    assert_eq!(told(&shop.groups(&of(&["a", "b"], list))), told(&moved), "before its commit");
    assert_eq!(shop.commit(&moved), ["10.1.0.5"]);
    let groups = json!({"deployment": "shop", "groups": of(&["a", "b", "c"], list)});
    let error = shop.client.call("deployment.apply", groups)["error"].clone();
    let said = "static_ips` has too few addresses of network `z` outside draining subnets";
    assert!(error["message"].as_str().unwrap().contains(said), "{error}");
}
