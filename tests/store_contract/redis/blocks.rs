//! The script itself compares blocks as blocks: a /26 is one record at .0, and .17 lies in it.

use super::*;

#[track_caller]
fn refused(begun: &mut Begun, steps: Vec<Step>, there: u64) {
    let before = begun.load();
    let key = steps.last().unwrap().key;
    match begun.commit(steps) {
        Err(CommitError::Mismatch { key: at, found, .. }) => assert_eq!((at, found), (key, Some(there))),
        other => panic!("{other:?}"),
    }
    assert_eq!(begun.load(), before);
}

/// The number of blocks in use, as the head counts them.
fn blocks(begun: &Begun) -> u64 {
    begun.server.ask(&["HGET", "{allod}:0:head", "blocks"])
}

#[test]
fn a_put_inside_a_stored_block_is_refused() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    begun
        .commit(vec![put("10.0.0.64/26", 5, None), put("10.0.16.0/20", 6, None), put("10.0.0.8/30", 7, None)])
        .unwrap();
    begun.commit(vec![put("2001:db8:0:4::/62", 8, None), put("2001:db8::40/123", 9, None)]).unwrap();
    assert_eq!(blocks(&begun), 5);
    for (inside, there) in [
        ("10.0.0.65", 5),
        ("10.0.0.127", 5),
        ("10.0.0.96/28", 5),
        ("10.0.16.1", 6),
        ("10.0.31.255", 6),
        ("10.0.24.0/21", 6),
        ("10.0.0.11", 7),
        ("2001:db8:0:7:ffff:ffff:ffff:ffff", 8),
        ("2001:db8:0:5::/64", 8),
        ("2001:db8::5f", 9),
    ] {
        refused(&mut begun, vec![put("10.9.9.9", 20, None), put(inside, 21, None)], there);
    }
    let around = ["10.0.0.63", "10.0.0.128", "10.0.15.255", "10.0.32.0", "10.0.0.7", "10.0.0.12", "2001:db8::3f"];
    begun.commit(around.map(|outside| put(outside, 22, None)).into()).unwrap();
    begun.commit(vec![put("2001:db8::60", 23, None), put("2001:db8:0:8::", 23, None)]).unwrap();
    assert_eq!(blocks(&begun), 5);
}

#[test]
fn a_block_over_anything_that_is_held_is_refused() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    begun.commit(vec![put("10.0.0.17", 5, None), put("10.0.5.0/24", 6, None), put("2001:db8::1:0", 7, None)]).unwrap();
    for (block, there) in [
        ("10.0.0.0/26", 5),
        ("10.0.0.16/31", 5),
        ("10.0.0.0/22", 5),
        ("10.0.4.0/22", 6),
        ("2001:db8::/64", 7),
        ("2001:db8::1:0/112", 7),
        ("2001:db8::/32", 7),
    ] {
        if block.starts_with("2001:db8::1:0") {
            // The key is the same, so it is the block's own expectation that differs.
            refused(&mut begun, vec![put(block, 21, None)], there);
        } else {
            refused(&mut begun, vec![put("10.9.9.9", 20, None), put(block, 21, None)], there);
        }
    }
    begun.commit(vec![put("10.0.0.18/31", 8, None), put("2001:db8::/112", 9, None)]).unwrap();
}

#[test]
fn what_the_batch_itself_takes_away_is_not_in_the_way() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    begun.commit(vec![put("10.0.0.17", 5, None), put("2001:db8::17", 6, None)]).unwrap();
    begun
        .commit(vec![
            gone("10.0.0.17", 5),
            put("10.0.0.0/26", 7, None),
            gone("2001:db8::17", 6),
            put("2001:db8::/120", 8, None),
        ])
        .unwrap();
    assert_eq!(blocks(&begun), 2);
    begun
        .commit(vec![
            gone("10.0.0.0/26", 7),
            put("10.0.0.17", 9, None),
            gone("2001:db8::/120", 8),
            put("2001:db8::17", 10, None),
        ])
        .unwrap();
    assert_eq!(blocks(&begun), 0);
    // The same address as a block of another length has the same key.
    begun.commit(vec![put("10.0.0.17", 11, Some(9)), put("10.0.0.64/27", 12, None)]).unwrap();
    begun.commit(vec![put("10.0.0.64/26", 13, Some(12))]).unwrap();
    refused(&mut begun, vec![put("10.0.0.100", 14, None)], 13);
    begun.commit(vec![put("10.0.0.64", 15, Some(13))]).unwrap();
    begun.commit(vec![put("10.0.0.100", 16, None)]).unwrap();
    assert_eq!(blocks(&begun), 0);
}

#[test]
fn a_block_that_grows_over_its_neighbour_is_refused() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    begun.commit(vec![put("10.0.0.64/27", 5, None), put("10.0.0.100", 6, None)]).unwrap();
    refused(&mut begun, vec![put("10.0.0.64/26", 7, Some(5))], 6);
}

#[test]
fn a_batch_that_puts_two_records_over_each_other_is_refused() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    for steps in [
        vec![put("10.0.0.0/26", 5, None), put("10.0.0.17", 6, None)],
        vec![put("10.0.0.32/27", 5, None), put("10.0.0.0/26", 6, None)],
        vec![put("2001:db8::/64", 5, None), put("2001:db8::1", 6, None), put("2001:db9::", 7, None)],
    ] {
        let refused = begun.commit(steps);
        assert!(matches!(refused, Err(CommitError::NotApplied { cause: StoreError::Invalid(_) })), "{refused:?}");
    }
    assert!(begun.held().is_empty());
}

#[test]
fn a_block_that_cools_still_covers_and_the_last_one_gone_leaves_no_trace() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    begun.commit(vec![put("10.0.0.0/26", 5, None)]).unwrap();
    let released = Released {
        prefix_length: 26,
        last: held(5).holder,
        owner_uid: None,
        generation: Generation(5),
        released_at: ShardTime(9),
    };
    let cools = Step { state: Some(State::Entry(Entry::Released(Arc::new(released)))), ..gone("10.0.0.0/26", 5) };
    begun.commit(vec![cools]).unwrap();
    assert_eq!(blocks(&begun), 1);
    refused(&mut begun, vec![put("10.0.0.17", 6, None)], 5);
    begun.commit(vec![gone("10.0.0.0/26", 5)]).unwrap();
    assert_eq!(blocks(&begun), 0);
    assert_eq!(begun.server.ask::<Vec<String>>(&["KEYS", "{allod}:0:k:*"]), Vec::<String>::new());
    begun.commit(vec![put("10.0.0.17", 6, None)]).unwrap();
}

/// How often a commit of one address in an existing bucket reads.
fn reads(begun: &mut Begun, address: &str, generation: u64) -> u64 {
    calls_of(begun, network(1), vec![put(address, generation, None)], &["hget", "hmget", "hgetall", "hexists"])
}

/// How often a commit calls one of these commands of Redis.
fn calls_of(begun: &mut Begun, of: NetworkId, steps: Vec<Step>, names: &[&str]) -> u64 {
    let _: () = begun.server.ask(&["CONFIG", "RESETSTAT"]);
    begun.commit_in(of, steps).unwrap();
    let told: String = begun.server.ask(&["INFO", "commandstats"]);
    let calls = |line: &str| line.split_once(":calls=")?.1.split(',').next()?.parse::<u64>().ok();
    let is_read = |line: &&str| names.iter().any(|name| line.starts_with(&format!("cmdstat_{name}:")));
    told.lines().filter(is_read).filter_map(calls).sum()
}

#[test]
fn where_there_are_no_blocks_nothing_is_read_because_of_them() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    begun.commit(vec![put("10.0.0.1", 5, None)]).unwrap();
    let without = reads(&mut begun, "10.0.0.2", 6);
    begun.commit(vec![put("10.0.5.0/28", 7, None)]).unwrap();
    let with = reads(&mut begun, "10.0.0.3", 8);
    begun.commit(vec![gone("10.0.5.0/28", 7)]).unwrap();
    assert!(with > without, "{with} reads with a block, {without} without: the test sees nothing");
    assert_eq!(reads(&mut begun, "10.0.0.4", 9), without, "after the last one is gone");
}

#[test]
fn beside_a_network_with_blocks_another_one_of_its_shard_is_not_searched_for_any() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let other = network(2);
    begun.commit_in(other, vec![config_step(other), put("10.0.0.1", 5, None)]).unwrap();
    let searches = |begun: &mut Begun, address: &str, generation| {
        let names = ["hmget", "hgetall", "hkeys", "zscore", "zrangebylex", "zrevrangebylex"];
        calls_of(begun, other, vec![put(address, generation, None)], &names)
    };
    let without = searches(&mut begun, "10.0.0.2", 6);
    begun.commit(vec![put("10.0.5.0/28", 7, None), put("10.0.16.0/20", 8, None)]).unwrap();
    assert_eq!(searches(&mut begun, "10.0.0.3", 9), without);
    // The network's own blocks are found all the same.
    begun.commit_in(other, vec![put("10.0.16.0/26", 10, None)]).unwrap();
    let inside = begun.commit_in(other, vec![put("10.0.16.9", 11, None)]);
    assert!(matches!(inside, Err(CommitError::Mismatch { found: Some(10), .. })), "{inside:?}");
    begun.commit_in(other, vec![put("10.0.17.9", 12, None)]).unwrap();
    begun.commit_in(other, vec![gone("10.0.16.0/26", 10)]).unwrap();
    begun.commit_in(other, vec![put("10.0.16.9", 13, None)]).unwrap();
    assert_eq!(blocks(&begun), 2);
}

/// So many addresses of a /8: every other one, an odd one, so that no block begins at any of them.
fn puts(first: u8, count: u32, generation: u64) -> Vec<Step> {
    let address = |at: u32| std::net::Ipv4Addr::from((u32::from(first) << 24) + 2 * at + 1).to_string();
    (0..count).map(|at| put(&address(at), generation, None)).collect()
}

/// A large subnet moves into a network with blocks of many lengths, while Redis answers nobody else.
#[test]
fn for_many_addresses_that_come_at_once_redis_is_not_asked_by_each_length_of_blocks() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let reads = |begun: &mut Begun, first| {
        calls_of(begun, network(1), puts(first, 1_000, 5), &["hmget", "hkeys", "exists", "zscore", "zrevrangebylex"])
    };
    let without = reads(&mut begun, 20);
    let lengths = 16..=27u8;
    let blocks = lengths.clone().map(|length| put(&format!("10.{length}.0.0/{length}"), u64::from(length), None));
    begun.commit(blocks.collect()).unwrap();
    let with = reads(&mut begun, 30);
    let bases: u64 = lengths.map(|length| 2_000u64.div_ceil(1 << (32 - length))).sum();
    assert!(with <= without + bases, "{with} reads for {bases} bases, {without} without blocks");
    // A block in the way is still found, whichever it is, and however many other addresses are put beside the one in it.
    for (inside, there) in [("10.16.200.1", 16), ("10.20.15.255", 20), ("10.27.0.31", 27)] {
        let mut steps = puts(40, 300, 6);
        steps.push(put(inside, 6, None));
        refused(&mut begun, steps, there);
    }
    begun.commit(vec![put("10.60.0.4/30", 60, None), put("2001:db8::/96", 61, None)]).unwrap();
    begun.commit(vec![put("2001:db8:0:1::40/122", 62, None), put("2001:db8:0:1::", 63, None)]).unwrap();
    let beside = |prefix: &str, from: u32, to: u32| {
        (from..to).map(|at| put(&format!("{prefix}{at:x}"), 6, None)).collect::<Vec<_>>()
    };
    for (mut steps, inside, there) in [
        (
            puts(60, 4, 6).into_iter().chain((8..64).map(|at| put(&format!("10.60.0.{at}"), 6, None))).collect(),
            "10.60.0.7",
            60,
        ),
        (beside("2001:db8::1:0:", 0, 200), "2001:db8::ffff:ffff", 61),
        (beside("2001:db8:0:1::", 0x80, 0x180), "2001:db8:0:1::7f", 62),
    ] {
        begun.commit(Vec::clone(&steps)).unwrap();
        begun.commit(steps.iter().map(|step| Step { expect: Some(6), state: None, ..step.clone() }).collect()).unwrap();
        steps.push(put(inside, 6, None));
        refused(&mut begun, steps, there);
    }
}
