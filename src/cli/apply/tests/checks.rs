//! Refusals before anything is changed: because of the file alone, or by the server unless an earlier change makes room.

use serde_json::{Value, json};

use super::super::check::may_pass;
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
    // The table of an existing network need not name its realm.
    elsewhere["id"] = json!("00000000-0000-4000-8000-000000000002");
    let unsaid = tables(json!({"network": [of("a", "10.0.0.0/16"), of("b", "10.0.7.0/24")]})).unwrap();
    assert_eq!(steps(&unsaid, &[elsewhere], false).unwrap().len(), 1);
}

fn refusal(kind: &str, data: Value) -> RpcError {
    RpcError { code: 0, kind: kind.to_owned(), message: String::new(), data }
}

#[test]
fn what_an_earlier_change_of_another_network_may_make_room_for_is_not_reported() {
    let subnets = json!([{"id": "a", "cidr": "10.0.0.0/24"}, {"id": "b", "cidr": "10.0.9.0/24"}]);
    let networks = [json!({"id": "1", "name": "old", "subnets": subnets}), json!({"id": "2", "name": "lan"})];
    let step = |method, params| Step::new("any", method, params, Vec::new());
    let passes =
        |earlier: &Step, step: &Step, error: &RpcError| may_pass(step, error, std::slice::from_ref(earlier), &networks);
    let create = step("network.create", json!({"name": "old"}));
    let renamed = step("network.update", json!({"network": "3", "set": {"name": "old"}}));
    let overlap = refusal("overlap", json!({"with": {"network": "old", "cidr": "10.0.0.0/24"}}));
    let taken = refusal("already_exists", json!({}));
    let delete = step("network.delete", json!({"network": "1"}));
    let update = |network: &str, set: Value| step("network.update", json!({"network": network, "set": set}));
    let rename = |network: &str| update(network, json!({"name": "x"}));
    let list = |network: &str, subnets: Value| update(network, json!({"subnets": subnets}));
    for (earlier, error, expected) in [
        (&delete, &overlap, true),
        (&delete, &taken, true),
        (&list("1", json!([{"id": "b"}])), &overlap, true),
        (&list("1", json!([{"id": "a", "cidr": "10.0.0.0/25"}, {"id": "b"}])), &overlap, true),
        (&list("1", json!([{"id": "a", "zones": ["a"]}])), &overlap, false),
        (&list("2", json!([])), &overlap, false),
        (&rename("1"), &overlap, false),
        (&rename("1"), &taken, true),
        (&rename("2"), &taken, false),
        (&list("1", json!([])), &taken, false),
        (&delete, &refusal("wrong_kind", json!({})), false),
        (&delete, &refusal("out_of_range", json!({})), false),
        (&delete, &refusal("invalid_argument", json!({})), false),
        (&delete, &refusal("in_use", json!({"count": 1})), false),
    ] {
        assert_eq!(passes(earlier, &create, error), expected, "{earlier:?} {error:?}");
        assert_eq!(passes(earlier, &renamed, error), expected, "{earlier:?} {error:?}");
    }
}
