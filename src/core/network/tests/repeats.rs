//! Facts about repeats of what was granted: `ip.acquire` with optional items, little room and low limits.

use proptest::prelude::*;

use super::corners::run_acquire;
use super::*;

fn in_pool(name: &str) -> Wish {
    Wish { pool: Some(PoolRef::Named(name.parse().unwrap())), ..Wish::default() }
}

fn named_pool(name: &str, range: &str) -> PoolConfig {
    PoolConfig { name: Some(name.parse().unwrap()), ..pool(range, PoolKind::Dynamic) }
}

/// Pool `a` has one address, `b` two, `c` four, and `d` four IPv6 addresses.
fn narrow(change: impl FnOnce(&mut NetworkConfig)) -> Net {
    let pools = [("a", "10.0.0.1"), ("b", "10.0.0.2-10.0.0.3"), ("c", "10.0.0.4-10.0.0.7")]
        .map(|(n, range)| named_pool(n, range));
    let v6 = vec![named_pool("d", "2001:db8::4-2001:db8::7")];
    let subnets = vec![
        SubnetConfig { pools: pools.to_vec(), ..subnet("10.0.0.0/28", 0) },
        SubnetConfig { pools: v6, ..subnet("2001:db8::/124", 1) },
    ];
    Net::with(change, subnets)
}

fn of_pools(items: &[(&str, bool)]) -> Acquire {
    let mut ask = acquire(items.iter().map(|(pool, optional)| (*pool, None, *optional)).collect());
    ask.items.iter_mut().zip(items).for_each(|(item, (pool, _))| item.wish = in_pool(pool));
    ask
}

#[test]
fn what_is_optional_and_finds_no_room_counts_within_no_limit() {
    let per_owner = Limits { per_owner: Some(1), per_scope: None };
    let per_scope = Limits { per_owner: None, per_scope: Some(2) };
    for limits in [per_owner, per_scope] {
        let mut net = narrow(|config| config.limits = limits);
        net.claim("other", "10.0.0.1", |_| ()).unwrap();
        for items in [[("a", true), ("b", false)], [("b", false), ("a", true)]] {
            for exact in [false, true, false] {
                let ask = Acquire { exact, ..of_pools(&items) };
                assert_eq!(run_acquire(&mut net, ask).unwrap(), ["10.0.0.2"], "{items:?}");
            }
            assert_eq!(net.release("vm#b"), 1);
        }
    }
}

#[test]
fn what_is_optional_and_would_find_room_counts_within_the_limits() {
    let mut net = narrow(|config| config.limits.per_owner = Some(1));
    refused!(run_acquire(&mut net, of_pools(&[("a", true), ("b", false)])), Refusal::OfItem { index: 1, .. });
    refused!(run_acquire(&mut net, of_pools(&[("b", false), ("a", true)])), Refusal::OfItem { index: 1, .. });
    net.claim("vm", "10.0.0.2", |_| ()).unwrap();
    refused!(run_acquire(&mut net, of_pools(&[("a", true)])), Refusal::OfItem { index: 0, .. });
}

/// What the first request released is room for the optional item, but the limit does not allow it.
#[test]
fn an_exact_acquire_is_repeated_though_what_it_let_go_is_room_for_what_was_optional() {
    let mut net = narrow(|config| config.limits.per_owner = Some(1));
    net.claim("vm", "10.0.0.1", |_| ()).unwrap();
    let ask = Acquire { exact: true, ..of_pools(&[("a", true), ("b", false)]) };
    assert_eq!(run_acquire(&mut net, ask.clone()).unwrap(), ["10.0.0.2"]);
    assert_eq!(net.state("10.0.0.1"), AddressState::Free);
    assert_eq!(run_acquire(&mut net, ask).unwrap(), ["10.0.0.2"]);
}

/// An item: pool, slot, whether it is optional, asks for a block, or names an address.
type Item = (usize, usize, bool, bool, bool);

fn an_acquire() -> impl Strategy<Value = (Vec<Item>, bool, bool)> {
    let item = (0..4usize, 0..4usize, any::<bool>(), proptest::bool::weighted(0.2), proptest::bool::weighted(0.2));
    (proptest::collection::vec(item, 1..5), any::<bool>(), any::<bool>())
}

fn to_ask((items, exact, replace): &(Vec<Item>, bool, bool)) -> Acquire {
    let item = |(index, (pool, slot, optional, block, named)): (usize, &Item)| {
        let address = named.then(|| address(["10.0.0.1", "10.0.0.2", "10.0.0.4", "2001:db8::4"][*pool]));
        let mut wish = if *named { Wish::default() } else { in_pool(["a", "b", "c", "d"][*pool]) };
        wish.prefix_length = block.then_some([32, 31, 31, 127][*pool]);
        AcquireItem { index, slot: slot.to_string().parse().unwrap(), address, wish, optional: *optional }
    };
    let items = items.iter().enumerate().map(item).collect();
    let options = GrantOptions { replace: *replace, ..GrantOptions::default() };
    Acquire { items, exact: *exact, options, ..acquire(Vec::new()) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn an_acquire_that_is_asked_again_holds_the_same_and_changes_nothing(
        (per_owner, per_scope) in (proptest::option::of(1..5u64), proptest::option::of(1..7u64)),
        cooldown_seconds in prop_oneof![Just(0u64), Just(60)],
        others in proptest::collection::vec("10\\.0\\.0\\.[1-7]", 0..6),
        asks in proptest::collection::vec(an_acquire(), 1..5),
    ) {
        let mut net = narrow(|config| {
            config.limits = Limits { per_owner, per_scope };
            config.cooldown_seconds = cooldown_seconds;
        });
        for (number, at) in others.iter().enumerate() {
            // Where the scope's limit would allow no more, some belong to another scope.
            let whose = format!("other-{number}");
            let _ = net.claim(&whose, at, |claim| if number % 2 == 0 { claim.holder.scope = "else".parse().unwrap() });
        }
        for ask in asks.iter().map(to_ask) {
            let required = ask.items.iter().any(|item| !item.optional);
            let command = Command::Acquire(Box::new(ask));
            let Ok(Outcome::Acquired { grants, released }) = net.run(&command) else { continue };
            let first: Vec<Address> = grants.iter().map(|(_, grant)| grant.view.address).collect();
            let let_go = !released.is_empty() || grants.iter().any(|(_, grant)| grant.replaced.is_some());
            let context = net.context();
            let again = net.network.decide(&command, context);
            // If no item is required, the released addresses may be room for more than the limits allow.
            if let_go && !required && again.is_err() {
                continue;
            }
            let again = again.unwrap();
            let Outcome::Acquired { grants, .. } = again.outcome else { panic!("{:?}", again.outcome) };
            let second: Vec<Address> = grants.iter().map(|(_, grant)| grant.view.address).collect();
            if let_go {
                // There may be room for optional items now.
                prop_assert!(first.iter().all(|at| second.contains(at)), "{:?}, then {:?}", first, second);
            } else {
                prop_assert_eq!(first, second);
                prop_assert_eq!(again.steps, vec![]);
            }
        }
    }
}
