//! What is refused before anything is changed: by the file alone, or by the server unless an earlier change makes room.

use serde_json::{Value, json};

use super::super::check::{may_pass, names_of};
use super::super::diff::{Step, steps};
use super::super::file::tables;
use crate::client::RpcError;

fn overlaps(network: &[Value], there: &[Value]) -> String {
    steps(&tables(json!({"network": network})).unwrap(), there, false).unwrap_err()
}

#[test]
fn subnets_of_one_realm_that_overlap_in_the_file_are_refused_without_a_server() {
    let of = |name: &str, cidr: &str| json!({"name": name, "subnets": [{"cidr": cidr}]});
    let problem = overlaps(&[of("a", "10.0.0.0/16"), of("b", "10.0.7.0/24")], &[]);
    assert!(problem.contains("network `b`: subnet 10.0.7.0/24 overlaps 10.0.0.0/16 of network `a`"), "{problem}");
    let within = json!({"name": "a", "subnets": [{"cidr": "10.0.0.0/24"}, {"cidr": "10.0.0.128/25"}]});
    assert!(overlaps(&[within], &[]).contains("10.0.0.128/25 overlaps its subnet 10.0.0.0/24"));
    assert!(overlaps(&[of("a", "0.0.0.0/0")], &[]).contains("network `a`: a subnet cannot be 0.0.0.0/0"));
    let mut elsewhere = of("b", "10.0.7.0/24");
    elsewhere["realm"] = json!("lab");
    let apart = tables(json!({"network": [of("a", "10.0.0.0/16"), elsewhere.clone()]})).unwrap();
    assert_eq!(steps(&apart, &[], false).unwrap().len(), 2);
    // Its table need not say in which realm a network is that is there.
    elsewhere["id"] = json!("00000000-0000-4000-8000-000000000002");
    let unsaid = tables(json!({"network": [of("a", "10.0.0.0/16"), of("b", "10.0.7.0/24")]})).unwrap();
    assert_eq!(steps(&unsaid, &[elsewhere], false).unwrap().len(), 1);
}

fn refusal(kind: &str, data: Value) -> RpcError {
    RpcError { code: 0, kind: kind.to_owned(), message: String::new(), data }
}

#[test]
fn what_an_earlier_change_may_make_room_for_is_not_reported() {
    let networks = [json!({"id": "1", "name": "old"}), json!({"id": "2", "name": "lan"})];
    let step = |method, params| Step::new("any", method, params, Vec::new());
    let passes = |earlier: &Step, step: &Step, error: &RpcError| {
        may_pass(step, error, std::slice::from_ref(earlier), &names_of(&networks))
    };
    let create = step("network.create", json!({"name": "old"}));
    let overlap = refusal("overlap", json!({"with": {"network": "old", "cidr": "10.0.0.0/24"}}));
    let taken = refusal("already_exists", json!({}));
    let delete = step("network.delete", json!({"network": "1"}));
    let remove = |network: &str, subnet: &str| step("subnet.remove", json!({"network": network, "subnet": subnet}));
    let rename = |network: &str| step("network.update", json!({"network": network, "set": {"name": "x"}}));
    let shrink =
        step("subnet.modify", json!({"network": "1", "subnet": "10.0.0.0/24", "set": {"cidr": "10.0.0.0/25"}}));
    let zones = step("subnet.modify", json!({"network": "1", "subnet": "10.0.0.0/24", "set": {"zones": ["a"]}}));
    for (earlier, error, expected) in [
        (&delete, &overlap, true),
        (&delete, &taken, true),
        (&remove("1", "10.0.0.0/24"), &overlap, true),
        (&remove("1", "10.0.9.0/24"), &overlap, false),
        (&remove("2", "10.0.0.0/24"), &overlap, false),
        (&shrink, &overlap, true),
        (&zones, &overlap, false),
        (&rename("1"), &taken, true),
        (&rename("2"), &taken, false),
        (&delete, &refusal("wrong_kind", json!({})), false),
    ] {
        assert_eq!(passes(earlier, &create, error), expected, "{earlier:?} {error:?}");
    }
    let reserve = step("reserved.add", json!({"network": "1", "range": "10.0.1.7"}));
    let outside = refusal("out_of_range", json!({}));
    assert!(passes(&shrink, &reserve, &outside) && !passes(&rename("1"), &reserve, &outside));
    let held = refusal("in_use", json!({"count": 1}));
    assert!(!passes(&remove("1", "10.0.0.0/24"), &remove("1", "10.0.1.0/24"), &held));
}
