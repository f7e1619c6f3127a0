//! Facts about a network that is compared with what is stored of it.

use super::*;
use crate::core::network::Odd;

/// What is odd, found in slices of `limit` records, and the number of slices.
fn odd(network: &Network, stored: &Network, limit: usize) -> (Vec<Odd>, usize) {
    let (mut odd, mut after, mut slices) = (Vec::new(), None, 0);
    loop {
        let compared = network.compare(Some(stored), after, limit);
        odd.extend(compared.odd);
        slices += 1;
        after = compared.next;
        if after.is_none() {
            odd.sort();
            return (odd, slices);
        }
    }
}

fn at(text: &str) -> Odd {
    Odd::Record(Key::Address(address(text)))
}

/// A network with every kind of entry, in both families.
fn some() -> Net {
    let change = |config: &mut NetworkConfig| config.cooldown_seconds = 600;
    let mut net = Net::with(change, vec![subnet("10.0.0.0/24", 0), subnet("2001:db8::/64", 1)]);
    for n in 0..9 {
        net.allocate(&format!("vm/{n}"));
    }
    net.block("router", 28).unwrap();
    net.claim("six", "2001:db8::77", |_| ()).unwrap();
    net.release("vm/3");
    net
}

#[test]
fn a_network_is_as_what_is_stored_of_it_however_small_the_slices() {
    let net = some();
    let stored = net.network.clone();
    for (limit, slices) in [(1, 11), (2, 6), (4, 3), (11, 1), (12, 1), (1_000, 1)] {
        assert_eq!(odd(&net.network, &stored, limit), (vec![], slices), "{limit}");
    }
}

#[test]
fn each_record_that_differs_is_told_once_and_the_counts_that_it_makes() {
    let mut net = some();
    let stored = net.network.clone();
    let given = net.allocate("new");
    net.release("six");
    net.release("vm/5");
    let counts = |text: &str| Odd::Counts(cidr(text).range());
    let mut expected = vec![at(&given), at("10.0.0.6"), at("2001:db8::77")];
    // A pool that spans its subnet, and the subnet.
    expected.extend([counts("10.0.0.0/24"); 2]);
    expected.extend([counts("2001:db8::/64"); 2]);
    expected.sort();
    for limit in [1, 3, 100] {
        assert_eq!(odd(&net.network, &stored, limit).0, expected, "{limit}");
        assert_eq!(odd(&stored, &net.network, limit).0, expected, "seen from the other side, {limit}");
    }
    let told = [&net.network, &stored].map(|network| at("10.0.0.6").in_words(Some(network)));
    assert!(
        told[0].starts_with("let go by `vm/5`") && told[1].starts_with("/32 dynamic, held by `vm/5`, generation "),
        "{told:?}"
    );
}

#[test]
fn a_configuration_and_a_subnet_that_differ_are_told_once() {
    let mut net = some();
    let stored = net.network.clone();
    Arc::make_mut(&mut net.network.config).version = Version(9);
    Arc::make_mut(&mut net.network.subnets[1]).draining = true;
    let expected = vec![Odd::Record(Key::Config), Odd::Record(Key::Subnet(SubnetId(2)))];
    assert_eq!(odd(&net.network, &stored, 2).0, expected);
    net.network.subnets.remove(1);
    assert_eq!(odd(&net.network, &stored, 2).0, expected);
}

#[test]
fn space_that_counts_as_free_under_a_record_is_told_whatever_is_stored() {
    let mut net = some();
    let held = address("10.0.0.2").bits();
    net.network.layout.pools[0].free.vacate(held, held);
    let stored = net.network.clone();
    assert_eq!(odd(&net.network, &stored, 3).0, vec![Odd::Index(address("10.0.0.2"))]);
    net.network.layout.pools[0].free.occupy(held, held);
    assert_eq!(odd(&net.network, &stored, 3).0, [Odd::Counts(cidr("10.0.0.0/24").range())]);
}

#[test]
fn of_a_network_that_is_not_stored_everything_is_told() {
    let net = some();
    let compared = net.network.compare(None, None, usize::MAX);
    // The configuration, two subnets, and each record.
    assert_eq!((compared.odd.len(), compared.next), (3 + net.network.holdings.len(), None));
    assert!(compared.odd.contains(&at("10.0.0.2")) && compared.odd.contains(&at("2001:db8::77")), "{compared:?}");
}
