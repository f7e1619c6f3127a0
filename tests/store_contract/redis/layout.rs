//! What is stored in Redis: it is readable, compact and complete, and there is nothing else.

use std::collections::BTreeSet;

use allod::store::redis::examine::examine;

use super::*;
use crate::crash::until;

const NETWORK: &str = "00000000-0000-0000-0000-000000000001";

/// The n-th of addresses that are spread over a /64; they are the same each time.
fn spread(n: u64) -> Address {
    Address::V6(0x2001_0db8 << 96 | u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn puts(addresses: impl Iterator<Item = Address>, generation: u64) -> Vec<Step> {
    addresses
        .map(|address| Step { key: Key::Address(address), ..put(&address.to_string(), generation, None) })
        .collect()
}

#[test]
fn an_operator_finds_who_holds_an_address() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let mut named = put("10.0.0.69", 5, None);
    if let Some(State::Entry(Entry::Held(held))) = &mut named.state {
        Arc::make_mut(held).holder.slot = "eth-of-storage".parse().unwrap();
    }
    begun.commit(vec![named, put("2001:db8::5", 6, None)]).unwrap();
    let record: Vec<u8> = begun.server.ask(&["HGET", &format!("{{allod}}:0:4:{NETWORK}:0a000040"), "5"]);
    let has = |record: &[u8], text: &str| record.windows(text.len()).any(|part| part == text.as_bytes());
    for text in ["tenant-00017", "node-0007/pod-0000000005", "eth-of-storage"] {
        assert!(has(&record, text), "{text}");
    }
    let field = "20010db8000000000000000000000005";
    let index = format!("{{allod}}:0:i6:{NETWORK}");
    let low: Vec<String> = begun.server.ask(&["ZREVRANGEBYLEX", &index, &format!("[{field}"), "-", "LIMIT", "0", "1"]);
    let record: Vec<u8> = begun.server.ask(&["HGET", &format!("{{allod}}:0:6:{NETWORK}:{}", low[0]), field]);
    assert!(has(&record, "node-0007/pod-0000000006"));
}

#[test]
fn ipv6_of_any_density_lies_in_hashes_of_bounded_length() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let mut generation = 100;
    // Far apart, adjacent and rising, adjacent and falling; a few at a time, and many.
    let far = (0..3_000).map(spread);
    let up = (0..700u128).map(|n| Address::V6(0x2001_0db9 << 96 | n));
    let down = (0..700u128).map(|n| Address::V6((0x2001_0db7 << 96 | 0xffff) - n));
    let all: Vec<Address> = far.chain(up).chain(down).collect();
    for some in all.chunks(230) {
        generation += 1;
        begun.commit(puts(some.iter().copied(), generation)).unwrap();
    }
    let lows: Vec<String> = begun.server.ask(&["ZRANGE", &format!("{{allod}}:0:i6:{NETWORK}"), "0", "-1"]);
    let keys: Vec<String> = begun.server.ask(&["KEYS", &format!("{{allod}}:0:6:{NETWORK}:*")]);
    let of_keys: BTreeSet<&str> = keys.iter().map(|key| key.rsplit(':').next().unwrap()).collect();
    assert_eq!(lows.iter().map(String::as_str).collect::<BTreeSet<_>>(), of_keys, "the index names every hash");
    assert!(lows.len() < all.len() / 32, "{} hashes for {} addresses", lows.len(), all.len());
    for (at, low) in lows.iter().enumerate() {
        let key = format!("{{allod}}:0:6:{NETWORK}:{low}");
        let fields: Vec<String> = begun.server.ask(&["HKEYS", &key]);
        assert!((1..=96).contains(&fields.len()), "{key}: {}", fields.len());
        assert!(fields.iter().all(|field| field >= low && lows.get(at + 1).is_none_or(|next| field < next)), "{key}");
        assert_eq!(begun.server.ask::<String>(&["OBJECT", "ENCODING", &key]), "listpack");
    }
    let sorted: BTreeSet<Address> = all.iter().copied().collect();
    assert_eq!(begun.held(), sorted.into_iter().collect::<Vec<_>>());
    // Everything is removed again.
    let model = begun.load();
    let gone: Vec<Step> = all
        .iter()
        .map(|&address| {
            let key = Key::Address(address);
            Step { key, expect: Some(model[&(network(1), key)].mark()), state: None, event: None }
        })
        .collect();
    for some in gone.chunks(333) {
        begun.commit(some.to_vec()).unwrap();
    }
    nothing_but(&begun, &["c", "head", "log", "networks"]);
}

/// Checks which kinds of keys shard 0 has.
#[track_caller]
fn nothing_but(begun: &Begun, kinds: &[&str]) {
    let keys: Vec<String> = begun.server.ask(&["KEYS", "{allod}:0:*"]);
    let there: BTreeSet<&str> = keys.iter().filter_map(|key| key.split(':').nth(2)).collect();
    assert_eq!(there, kinds.iter().copied().collect(), "{keys:?}");
}

#[test]
fn a_network_that_is_gone_leaves_nothing_but_its_history() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    begun.commit(vec![put("10.0.0.5", 5, None), put("10.0.0.64/26", 6, None), put("2001:db8::5", 7, None)]).unwrap();
    nothing_but(&begun, &["c", "head", "log", "networks", "4", "i4", "6", "i6", "k"]);
    let config = Step { expect: Some(1), state: None, ..config_step(network(1)) };
    begun.commit(vec![gone("10.0.0.5", 5), gone("10.0.0.64/26", 6), gone("2001:db8::5", 7), config]).unwrap();
    nothing_but(&begun, &["head", "log"]);
    assert!(begun.load().is_empty());
    let probes: Vec<String> = begun.server.ask(&["KEYS", "{allod}:probe*"]);
    assert!(probes.is_empty());
}

#[test]
fn full_buckets_of_long_records_stay_compact() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let steps: Vec<Step> = (0..64u32)
        .map(|n| {
            let mut reservation = held(u64::from(n) + 5);
            reservation.holder.owner = "o".repeat(180).parse().unwrap();
            let state = Some(State::Entry(Entry::Held(Arc::new(reservation))));
            Step { state, ..put(&format!("10.0.0.{n}"), 1, None) }
        })
        .collect();
    begun.commit(steps).unwrap();
    let key = format!("{{allod}}:0:4:{NETWORK}:0a000000");
    assert_eq!(begun.server.ask::<u64>(&["HLEN", &key]), 64);
    assert_eq!(begun.server.ask::<String>(&["OBJECT", "ENCODING", &key]), "listpack");
}

fn settings_for_long_records(server: &Server) -> [u64; 2] {
    ["hash-max-listpack-value", "hash-max-listpack-entries"]
        .map(|name| server.ask::<Vec<String>>(&["CONFIG", "GET", name])[1].parse().unwrap())
}

/// Others may have data in the same Redis.
#[test]
fn settings_for_long_records_are_raised_and_never_lowered() {
    for (found, becomes) in [([64, 512], [256, 512]), ([1_024, 64], [1_024, 192]), ([64, 64], [256, 192])] {
        let [value, entries] = found.map(|setting| setting.to_string());
        let settings = ["--hash-max-listpack-value", &value, "--hash-max-listpack-entries", &entries];
        let Some(server) = Server::start(&settings) else { return };
        drop(server.open().unwrap());
        assert_eq!(settings_for_long_records(&server), becomes, "{found:?}");
    }
}

/// CONFIG SET lasts until Redis is started again, and is for one server: the next primary has the settings of its own file.
#[test]
fn settings_for_long_records_are_raised_again_where_redis_has_those_of_its_file() {
    let mut settings = vec!["--appendonly", "yes", "--hash-max-listpack-value", "64"];
    settings.extend(["--hash-max-listpack-entries", "512"]);
    let Some(mut begun) = Begun::new(&settings) else { return };
    assert_eq!(settings_for_long_records(&begun.server), [256, 512]);
    begun.server.kill();
    begun.server.begin();
    until("the settings for long records", || settings_for_long_records(&begun.server) == [256, 512]);
}

#[test]
fn a_doctor_says_that_long_records_take_twice_the_memory_before_a_replica_has_them() {
    let Some(server) = Server::start(&["--hash-max-listpack-value", "64"]) else { return };
    let said = || {
        let findings = examine(&server.options()).unwrap().findings;
        let of_hashes = findings.into_iter().filter(|finding| finding.problem.contains("hash-max-listpack-value 256"));
        of_hashes.map(|finding| (finding.refuses, finding.problem.contains("replicas too"))).collect::<Vec<_>>()
    };
    assert_eq!(said(), [(false, true)]);
    assert_eq!(settings_for_long_records(&server)[0], 64, "a doctor changes nothing");
    drop(server.open().unwrap());
    assert_eq!(said(), []);
}

#[test]
fn one_act_may_be_as_large_as_the_move_of_a_subnet() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let v4 = (0..30_000u32).map(|n| Address::V4(0x0a00_0000 + n));
    let v6 = (0..10_000u128).map(|n| Address::V6(0x2001_0db8 << 96 | n));
    let all: Vec<Address> = v4.chain(v6).collect();
    begun.commit(puts(all.iter().copied(), 5)).unwrap();
    assert_eq!(begun.held(), all);
    let moved: Vec<Step> =
        all.iter().map(|&address| Step { expect: Some(5), ..puts([address].into_iter(), 6).remove(0) }).collect();
    begun.commit(moved).unwrap();
    let gone: Vec<Step> = all
        .iter()
        .map(|&address| Step { key: Key::Address(address), expect: Some(6), state: None, event: None })
        .collect();
    begun.commit(gone).unwrap();
    nothing_but(&begun, &["c", "head", "log", "networks"]);
}

/// The image is read in pieces while the shard changes; it must be the state at the head that comes with it.
#[test]
fn a_shard_loaded_beside_commits_is_exact() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    for n in 0..20 {
        begun.commit(puts((n * 500..(n + 1) * 500).map(spread), 100 + n)).unwrap();
    }
    for n in 0..20u32 {
        let some = (0..500).map(|m| Address::V4(0x0a00_0000 + n * 500 + m));
        begun.commit(puts(some, 200 + u64::from(n))).unwrap();
    }
    let history = |begun: &Begun, to: Seq| {
        let mut all = wait(begun.store.history(ShardId(0), Seq(0), usize::MAX)).unwrap();
        all.truncate(to.0 as usize);
        all
    };
    let token = begun.head.token;
    let mut beside = 0;
    for round in 0..12u64 {
        let loading = begun.store.load(ShardId(0), token);
        let before = begun.head.seq;
        for n in 0..8 {
            // New addresses among existing ones, so that hashes are split; and some of them are released.
            let at = 10_000 + (round * 8 + n) * 60;
            begun.commit(puts((at..at + 60).map(spread), 1_000 + at)).unwrap();
            let released = (at..at + 20).map(|n| Step {
                key: Key::Address(spread(n)),
                expect: Some(1_000 + at),
                state: None,
                event: None,
            });
            begun.commit(released.collect()).unwrap();
        }
        let image = wait(loading).unwrap();
        beside += usize::from(image.head.seq > before);
        assert_eq!(model_of(&image), model(&history(&begun, image.head.seq)), "round {round}");
    }
    assert!(beside > 0, "no commit came beside a load");
}

#[test]
fn the_history_is_trimmed_by_bytes_and_what_is_recent_stays() {
    let Some(server) = Server::start(&[]) else { return };
    let options = allod::store::redis::RedisOptions { history_bytes: 3 * 20_000, ..server.options() };
    let store = allod::store::redis::RedisStore::open(options).unwrap();
    let head = wait(store.take(ShardId(0), token(1))).unwrap();
    let mut begun = Begun { server, store, head };
    begun.commit(vec![config_step(network(1))]).unwrap();
    for n in 0..600u32 {
        begun.commit(puts([Address::V4(0x0a00_0000 + n)].into_iter(), 5)).unwrap();
    }
    let kept: u64 = begun.server.ask(&["XLEN", "{allod}:0:log"]);
    let bytes: u64 = begun.server.ask(&["HGET", "{allod}:0:head", "log_bytes"]);
    assert!(kept < 400 && bytes < 40_000, "{kept} batches of {bytes} bytes");
    let history = wait(begun.store.history(ShardId(0), Seq(0), usize::MAX)).unwrap();
    assert_eq!(history.len() as u64, kept);
    assert_eq!(history.last().map(|batch| batch.seq), Some(begun.head.seq));
    assert!(history.is_sorted_by(|one, other| one.seq.0 + 1 == other.seq.0));
    assert_eq!(begun.held().len(), 600);
    // A repeated batch is still recognised.
    assert_eq!(wait(begun.store.commit([history[history.len() - 3].clone()].into())).unwrap().len(), 1);
}
