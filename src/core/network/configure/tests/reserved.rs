//! Reserved ranges: adding, merging, splitting, removing.

use super::*;
use crate::core::address::Address;
use crate::core::state::{ReservedFor, ReservedRange};

fn one() -> Network {
    net(&[subnet_input("10.0.0.0/24")])
}

fn removal(text: &str) -> Configure {
    Configure::ReservedRemove { range: range(text), reserved_for: None }
}

#[test]
fn what_overlaps_and_is_for_the_same_becomes_one_range_and_what_only_touches_stays_apart() {
    // The ranges added, in order, and the reserved ranges that result.
    for (added, expected) in [
        (&["10.0.0.8-10.0.0.15"][..], &["10.0.0.8-10.0.0.15"][..]),
        (&["10.0.0.8-10.0.0.15", "10.0.0.12-10.0.0.20"], &["10.0.0.8-10.0.0.20"]),
        (&["10.0.0.12-10.0.0.20", "10.0.0.8-10.0.0.15"], &["10.0.0.8-10.0.0.20"]),
        (&["10.0.0.8-10.0.0.15", "10.0.0.16-10.0.0.20"], &["10.0.0.8-10.0.0.15", "10.0.0.16-10.0.0.20"]),
        (&["10.0.0.16-10.0.0.20", "10.0.0.8-10.0.0.15"], &["10.0.0.8-10.0.0.15", "10.0.0.16-10.0.0.20"]),
        (&["10.0.0.1", "10.0.0.3", "10.0.0.5", "10.0.0.0-10.0.0.9"], &["10.0.0.0-10.0.0.9"]),
        (&["10.0.0.1-10.0.0.2", "10.0.0.5-10.0.0.6", "10.0.0.2-10.0.0.5"], &["10.0.0.1-10.0.0.6"]),
        (&["10.0.0.0-10.0.0.9", "10.0.0.3"], &["10.0.0.0-10.0.0.9"]),
        // The newer note wins if it is given, otherwise that of the lowest range that has one.
        (&["a=10.0.0.0-10.0.0.20", "b=10.0.0.5-10.0.0.9"], &["b=10.0.0.0-10.0.0.20"]),
        (&["a=10.0.0.0-10.0.0.20", "10.0.0.5-10.0.0.29"], &["a=10.0.0.0-10.0.0.29"]),
        (&["c=10.0.0.20-10.0.0.29", "a=10.0.0.0-10.0.0.9", "10.0.0.5-10.0.0.24"], &["a=10.0.0.0-10.0.0.29"]),
        (&["c=10.0.0.20-10.0.0.29", "10.0.0.0-10.0.0.9", "10.0.0.5-10.0.0.24"], &["c=10.0.0.0-10.0.0.29"]),
        (&["a=10.0.0.0-10.0.0.4", "a=10.0.0.5-10.0.0.9"], &["a=10.0.0.0-10.0.0.4", "a=10.0.0.5-10.0.0.9"]),
    ] {
        let network = added.iter().fold(one(), |network, range| changed(&network, &reserve(range)));
        assert_eq!(reserved_of(&network), expected, "{added:?}");
        let given: Vec<ReservedInput> = added.iter().map(|text| reserved_input(text)).collect();
        let at_once = net(&[SubnetInput { reserved: Some(given), ..subnet_input("10.0.0.0/24") }]);
        assert_eq!(reserved_of(&at_once), expected, "given with the subnet: {added:?}");
    }
}

#[test]
fn no_address_is_taken_from_the_owner_for_whom_it_is_reserved() {
    let kept_for = |owner: &str, text: &str| {
        let kept = ReservedFor { scope: Default::default(), owner: owner.parse().unwrap(), slot: None };
        Configure::ReservedAdd(Box::new(ReservedInput { reserved_for: Some(kept), ..reserved_input(text) }))
    };
    let owners = |network: &Network| -> Vec<String> {
        let owner = |range: &ReservedRange| {
            let owner = range.reserved_for.as_ref().map_or("nobody".to_owned(), |kept| kept.owner.to_string());
            format!("{} {owner}", range.range)
        };
        network.subnets()[0].reserved.iter().map(owner).collect()
    };
    let db = changed(&one(), &kept_for("db", "10.0.0.4-10.0.0.7"));
    for (added, expected) in [
        (kept_for("web", "10.0.0.7-10.0.0.9"), &["10.0.0.4-10.0.0.7 db", "10.0.0.8-10.0.0.9 web"][..]),
        (
            kept_for("web", "10.0.0.3-10.0.0.8"),
            &["10.0.0.3-10.0.0.3 web", "10.0.0.4-10.0.0.7 db", "10.0.0.8-10.0.0.8 web"],
        ),
        (kept_for("web", "10.0.0.5"), &["10.0.0.4-10.0.0.7 db"]),
        // If exactly this range is added again, it is for its new owner.
        (kept_for("web", "10.0.0.4-10.0.0.7"), &["10.0.0.4-10.0.0.7 web"]),
        (kept_for("db", "10.0.0.6-10.0.0.9"), &["10.0.0.4-10.0.0.9 db"]),
        (kept_for("db", "10.0.0.8-10.0.0.9"), &["10.0.0.4-10.0.0.7 db", "10.0.0.8-10.0.0.9 db"]),
        // An owner is not given what nobody reserved for them.
        (reserve("10.0.0.0-10.0.0.5"), &["10.0.0.0-10.0.0.3 nobody", "10.0.0.4-10.0.0.7 db"]),
    ] {
        assert_eq!(owners(&changed(&db, &added)), expected, "{added:?}");
    }
    // The same applies to notes: another owner's note stays with what is reserved for that owner.
    let noted = changed(
        &changed(&one(), &kept_for("db", "racks=10.0.0.4-10.0.0.7")),
        &kept_for("web", "shop=10.0.0.6-10.0.0.9"),
    );
    assert_eq!(reserved_of(&noted), ["racks=10.0.0.4-10.0.0.7", "shop=10.0.0.8-10.0.0.9"]);
    assert_eq!(
        reserved_of(&changed(&noted, &reserve("moved=10.0.0.5"))),
        ["racks=10.0.0.4-10.0.0.4", "moved=10.0.0.5-10.0.0.5", "racks=10.0.0.6-10.0.0.7", "shop=10.0.0.8-10.0.0.9"]
    );
    let nobodys = changed(&one(), &reserve("10.0.0.4-10.0.0.7"));
    assert_eq!(
        owners(&changed(&nobodys, &kept_for("web", "10.0.0.5"))),
        ["10.0.0.4-10.0.0.4 nobody", "10.0.0.5-10.0.0.5 web", "10.0.0.6-10.0.0.7 nobody"]
    );
}

/// An owner is given first what is one address, and not what is a longer range.
#[test]
fn single_addresses_that_are_reserved_for_one_owner_stay_apart_when_what_is_around_them_is_reserved() {
    let kept = || ReservedFor { scope: Default::default(), owner: "db".parse().unwrap(), slot: None };
    let for_db = |text: &str| ReservedInput { reserved_for: Some(kept()), ..reserved_input(text) };
    let wide = [vec![for_db("10.0.0.5"), for_db("10.0.0.6"), reserved_input("10.0.0.4-10.0.0.7")]];
    let narrow = [vec![reserved_input("10.0.0.4-10.0.0.7"), for_db("10.0.0.5"), for_db("10.0.0.6")]];
    for inputs in wide.into_iter().chain(narrow) {
        let add = |input: &ReservedInput| Configure::ReservedAdd(Box::new(input.clone()));
        let network = inputs.iter().fold(one(), |network, input| changed(&network, &add(input)));
        let at_once = net(&[SubnetInput { reserved: Some(inputs), ..subnet_input("10.0.0.0/24") }]);
        for network in [network, at_once] {
            let expected = ["10.0.0.4-10.0.0.4", "10.0.0.5-10.0.0.5", "10.0.0.6-10.0.0.6", "10.0.0.7-10.0.0.7"];
            assert_eq!(reserved_of(&network), expected);
            let first: Vec<Address> = network.kept_for(&slot("db")).collect();
            assert_eq!(first, [address("10.0.0.5"), address("10.0.0.6")]);
        }
    }
}

#[test]
fn removing_takes_parts_splits_and_spans_several() {
    let added = ["a=10.0.0.0-10.0.0.20", "b=10.0.0.30-10.0.0.40"];
    let network = added.iter().fold(one(), |network, range| changed(&network, &reserve(range)));
    for (removed, expected) in [
        ("10.0.0.5-10.0.0.9", &["a=10.0.0.0-10.0.0.4", "a=10.0.0.10-10.0.0.20", "b=10.0.0.30-10.0.0.40"][..]),
        ("10.0.0.0-10.0.0.20", &["b=10.0.0.30-10.0.0.40"]),
        ("10.0.0.15-10.0.0.35", &["a=10.0.0.0-10.0.0.14", "b=10.0.0.36-10.0.0.40"]),
        ("0.0.0.0-255.255.255.255", &[]),
        ("10.0.0.20", &["a=10.0.0.0-10.0.0.19", "b=10.0.0.30-10.0.0.40"]),
    ] {
        let (after, outcome) = change(&network, &removal(removed)).unwrap();
        assert_eq!(reserved_of(&after), expected, "{removed}");
        let Outcome::Reserved(subnets) = outcome else { panic!() };
        assert_eq!(subnets[0].reserved, after.subnets()[0].reserved);
    }
}

#[test]
fn removing_what_is_not_reserved_is_not_found() {
    let network = changed(&one(), &reserve("10.0.0.8/29"));
    for nothing in ["10.0.0.7", "10.0.0.16-10.0.0.255", "192.0.2.0/24", "2001:db8::1"] {
        assert_refused!(&network, removal(nothing), Refusal::NotFound { missing: Missing::ReservedRange, .. });
    }
}

#[test]
fn a_range_that_lies_wholly_or_partly_in_no_subnet_is_out_of_range() {
    let network = net(&[subnet_input("10.0.2.0/24"), subnet_input("10.0.0.0/24")]);
    for (outside, first) in [
        ("192.0.2.0/24", "192.0.2.0"),
        ("10.0.0.250-10.0.1.5", "10.0.0.250"),
        ("9.255.255.255-10.0.0.5", "9.255.255.255"),
        ("10.0.0.0-10.0.2.255", "10.0.0.0"),
        ("2001:db8::1", "2001:db8::1"),
    ] {
        assert_refused!(&network, reserve(outside),
            Refusal::OutOfRange { address: Some(found), .. } if found == address(first));
    }
    let refused = SubnetInput { reserved: Some(vec![reserved_input("10.1.1.0/24")]), ..subnet_input("10.1.0.0/24") };
    assert_refused!(&network, add(refused), Refusal::OutOfRange { .. });
}

#[test]
fn the_refusal_of_a_range_that_is_larger_than_a_subnet_names_that_subnet() {
    let network = net(&[subnet_input("10.0.1.0/24")]);
    for change in [reserve("10.0.0.0/16"), pool_add("10.0.0.0/16")] {
        let refusal = refusal(&network, &change).to_string();
        assert!(refusal.contains("reaches outside subnet 10.0.1.0/24"), "{refusal}");
    }
    for change in [reserve("10.2.0.0/16"), pool_add("10.2.0.0/16")] {
        let refusal = refusal(&network, &change).to_string();
        assert!(refusal.contains("lies in no subnet"), "{refusal}");
    }
}

#[test]
fn a_range_over_adjoining_subnets_is_out_of_range() {
    let network = net(&[subnet_input("10.0.1.0/24"), subnet_input("10.0.0.0/24")]);
    assert_refused!(&network, reserve("10.0.0.250-10.0.1.5"), Refusal::OutOfRange { .. });
}

#[test]
fn held_addresses_and_pools_may_be_covered() {
    let network = held(&one(), "10.0.0.5", "web");
    let network = changed(&network, &reserve("10.0.0.0/24"));
    assert_eq!(network.reservations(), 1);
    assert_eq!(pools_of(&network), ["10.0.0.0-10.0.0.255"]);
}
