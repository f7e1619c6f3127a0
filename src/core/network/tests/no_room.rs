//! What a refusal for want of room says: what takes the space, and when room comes.

use super::corners::decline;
use super::*;

#[test]
fn where_nothing_is_given_because_it_drains_or_is_too_small_it_is_said() {
    let drains = SubnetConfig { draining: true, ..subnet("10.0.0.0/28", 0) };
    let mut net = Net::with(|_| {}, vec![drains.clone()]);
    let refused = net.try_allocate("a").unwrap_err().to_string();
    assert!(refused.contains("has no free address (draining: it grants nothing until"), "{refused}");
    let mut net = Net::with(|_| {}, vec![drains, subnet("10.0.1.0/30", 0)]);
    net.allocate("a");
    net.allocate("b");
    let refused = net.try_allocate("c").unwrap_err().to_string();
    assert!(refused.contains("(1 of 2 pools are draining): "), "{refused}");
    let mut small = subnet("10.0.0.0/24", 0);
    small.pools[0].range = "10.0.0.64-10.0.0.127".parse().unwrap();
    let mut net = Net::with(|_| {}, vec![small]);
    let refused = net.block("a", 25).unwrap_err().to_string();
    assert!(refused.contains("(a /25 block, which no pool has room for, whatever is free): 0 of "), "{refused}");
}

#[test]
fn a_block_that_only_ipv6_has_is_compared_with_subnets_of_ipv6() {
    let mut net = Net::new(&["10.0.0.0/28", "fd00::/64"]);
    let mut wide = wish("a");
    wide.wish.prefix_length = Some(63);
    refused!(net.ask(wide.clone()), Refusal::InvalidArgument { .. });
    wide.wish.prefix_length = Some(65);
    net.ask(wide).unwrap();
}

#[test]
fn a_refusal_for_want_of_room_tells_what_the_same_request_would_take() {
    let mut net = Net::new(&["10.0.0.0/29"]);
    net.allocate("b");
    let ask = acquire(["0", "1", "2", "3", "4", "5"].map(|slot| (slot, None, false)).to_vec());
    let refused = net.run(&Command::Acquire(Box::new(ask))).unwrap_err().to_string();
    assert!(refused.contains("(besides 5 that this request also asks for): 1 of 8 held, 2 reserved"), "{refused}");
}

#[test]
fn a_refusal_counts_only_what_the_same_request_takes_where_there_is_no_room() {
    let mut net = Net::new(&["10.0.0.0/29", "2001:db8::/127"]);
    let mut ask = acquire(["0", "1", "2", "3"].map(|slot| (slot, None, false)).to_vec());
    ask.items.iter_mut().skip(1).for_each(|item| item.wish.family = Some(crate::core::address::Family::V6));
    let refused = net.run(&Command::Acquire(Box::new(ask))).unwrap_err().to_string();
    assert!(refused.contains("(IPv6, besides 2 that this request also asks for)"), "{refused}");
}

#[test]
fn a_refusal_of_a_block_tells_that_what_is_free_lies_in_pieces() {
    let mut net = Net::new(&["10.0.0.0/28"]);
    net.allocate("b");
    let refused = net.block("a", 28).unwrap_err().to_string();
    assert!(refused.contains("has no free block of that size (a /28 block): 1 of 16 held, 2 reserved"), "{refused}");
    assert!(refused.contains(", and the 13 free ones are scattered; add a pool"), "{refused}");
}

#[test]
fn room_that_comes_by_itself_is_told_of_what_was_asked_for_and_of_nothing_else() {
    let mut net = Net::new(&["10.0.0.0/30", "10.0.1.0/30", "2001:db8::/127"]);
    let mut ask = |owner: &str, cidr_of: &str, ttl: Option<u64>| {
        let mut ask = wish(owner);
        ask.wish.subnet = Some(SubnetRef::Cidr(cidr(cidr_of)));
        ask.options.ttl_seconds = ttl;
        net.ask(ask)
    };
    ask("x", "10.0.0.0/30", Some(50)).unwrap();
    ask("x2", "10.0.0.0/30", None).unwrap();
    ask("y", "10.0.1.0/30", Some(20)).unwrap();
    for owner in ["six", "six2"] {
        ask(owner, "2001:db8::/127", None).unwrap();
    }
    let mut free_at = |subnet: &str| match ask("z", subnet, None) {
        Err(Refusal::NotEnoughCapacity(why)) => why.next_free_at.map(|(_, at)| at.0),
        other => panic!("{:?}", other.is_ok()),
    };
    assert_eq!((free_at("10.0.0.0/30"), free_at("2001:db8::/127")), (Some(51_000), None));
}

/// As many ends of leases are looked at as `DUE_LOOKED_AT_MAX` says, and what ends in another subnet does not help.
#[test]
fn when_room_comes_is_told_only_if_nothing_that_was_not_looked_at_can_come_before() {
    for (elsewhere, is_told) in [(999, Some(121_000)), (1_000, None)] {
        let mut net = Net::new(&["10.0.0.0/30", "10.1.0.0/20"]);
        let ask = |net: &mut Net, owner: &str, cidr_of: &str, ttl: u64| {
            let mut ask = wish(owner);
            ask.wish.subnet = Some(SubnetRef::Cidr(cidr(cidr_of)));
            ask.options.ttl_seconds = Some(ttl);
            net.ask(ask)
        };
        for owner in 0..elsewhere {
            ask(&mut net, &format!("b{owner}"), "10.1.0.0/20", 60).unwrap();
        }
        ask(&mut net, "declines", "10.0.0.0/30", 120).unwrap();
        net.run(&decline("10.0.0.1", "declines", false)).unwrap();
        ask(&mut net, "a", "10.0.0.0/30", 120).unwrap();
        let Err(Refusal::NotEnoughCapacity(why)) = ask(&mut net, "z", "10.0.0.0/30", 1) else { panic!("it is full") };
        assert_eq!(why.next_free_at.map(|(_, at)| at.0), is_told, "beside {elsewhere}");
    }
}
