//! A missing key is never taken for one that never existed: a server may have evicted it, or it may be on another server
//! since the move of a slot broke off. If something were put in its place, an address would have two holders.

use allod::store::redis::RedisStore;

use super::*;

const NETWORK: &str = "00000000-0000-0000-0000-000000000001";

/// A register with IPv4 in two hashes, one of them full of other addresses; IPv6 in several hashes; blocks of both families.
fn register() -> Option<Begun> {
    let mut begun = Begun::new(&[])?;
    begun.commit((0..20).map(|n| put(&format!("10.0.0.{n}"), 5, None)).collect()).unwrap();
    begun.commit(vec![put("10.0.1.64/26", 6, None), put("2001:db8:f::/64", 7, None)]).unwrap();
    begun.commit((0..150).map(|n| put(&format!("2001:db8::{n:x}"), 8, None)).collect()).unwrap();
    Some(begun)
}

/// A change that concerns this key, and would succeed if the key had never existed.
fn change(key: &str) -> Vec<Step> {
    match key.split(':').nth(2).unwrap() {
        "log" | "networks" | "c" | "i4" | "k" => vec![put("10.0.9.9", 9, None)],
        "i6" => vec![put("2001:db9::1", 9, None)],
        "4" if key.ends_with("0a000000") => vec![put("10.0.0.7", 9, None)],
        "4" => vec![put("10.0.1.70", 9, None)],
        "6" => {
            let low = u128::from_str_radix(key.rsplit(':').next().unwrap(), 16).unwrap();
            vec![put(&Address::V6(low.max(0x2001_0db8 << 96)).to_string(), 9, None)]
        }
        other => panic!("{other}"),
    }
}

#[test]
fn nothing_is_put_where_a_key_is_gone_and_nothing_is_loaded_without_it() {
    let Some(begun) = register() else { return };
    drop(begun.store);
    let server = begun.server;
    let keys: Vec<String> = server.ask(&["KEYS", "{allod}:0:*"]);
    let mut kinds: Vec<&str> = keys.iter().filter_map(|key| key.split(':').nth(2)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, ["4", "6", "c", "head", "i4", "i6", "k", "log", "networks"]);
    assert!(keys.iter().filter(|key| key.contains(":6:")).count() > 1, "{keys:?}");
    for (n, key) in keys.iter().filter(|key| !key.ends_with(":head")).enumerate() {
        let store = server.open().unwrap();
        server.leases_ran_out();
        let head = wait(store.take(ShardId(0), token(100 + n as u128))).unwrap();
        let kept: Vec<u8> = ::redis::cmd("DUMP").arg(key).query(&mut server.connection()).unwrap();
        let _: u64 = server.ask(&["DEL", key]);
        let refused = wait(store.commit([batch(&head, 0, change(key))].into()));
        let Err(CommitError::NotApplied { cause: StoreError::Damaged(text) }) = refused else {
            panic!("{key}: {refused:?}")
        };
        assert!(text.contains(&format!("lost `{key}`")), "{key}: {text}");
        // Only commits read these two.
        if !key.ends_with(":log") && !key.contains(":k:") {
            let fresh = server.open().unwrap();
            server.leases_ran_out();
            wait(fresh.take(ShardId(0), token(500 + n as u128))).unwrap();
            let refused = wait(fresh.load(ShardId(0), token(500 + n as u128)));
            assert!(matches!(&refused, Err(StoreError::Damaged(text)) if text.contains(key)), "{key}: {refused:?}");
        }
        let () = ::redis::cmd("RESTORE").arg(key).arg(0).arg(kept).query(&mut server.connection()).unwrap();
    }
    // With everything restored it goes on as before.
    let store = server.open().unwrap();
    server.leases_ran_out();
    let head = wait(store.take(ShardId(0), token(900))).unwrap();
    wait(store.commit([batch(&head, 0, vec![put("10.0.9.9", 1 << 40, None)])].into())).unwrap();
    assert_eq!(wait(store.load(ShardId(0), token(900))).unwrap().networks[0].entries.len(), 173);
}

/// A block checks hashes in which it changes nothing.
#[test]
fn a_block_is_not_put_over_a_hash_that_is_gone_and_an_address_not_beside_one() {
    for (key, step) in [
        (format!("{{allod}}:0:4:{NETWORK}:0a000000"), put("10.0.0.0/24", 9, None)),
        (format!("{{allod}}:0:4:{NETWORK}:0a000140"), put("10.0.1.65", 9, None)),
        (format!("{{allod}}:0:6:{NETWORK}:{}", "0".repeat(32)), put("2001:db8::/64", 9, None)),
    ] {
        let Some(mut begun) = register() else { return };
        let _: u64 = begun.server.ask(&["DEL", &key]);
        let refused = begun.commit(vec![step]);
        let Err(CommitError::NotApplied { cause: StoreError::Damaged(text) }) = refused else {
            panic!("{key}: {refused:?}")
        };
        assert!(text.contains(&key), "{text}");
        assert_eq!(begun.store.health(), StoreHealth::Failed);
    }
}

/// `networks` says for each network which kinds of keys it has.
#[test]
fn what_a_network_has_is_noted_as_it_comes_and_goes() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let noted = |begun: &Begun| -> (String, String) {
        let kinds: Option<String> = begun.server.ask(&["HGET", "{allod}:0:networks", NETWORK]);
        (kinds.unwrap_or_default(), begun.server.ask(&["HGET", "{allod}:0:head", "networks"]))
    };
    let config = Step { expect: Some(1), state: None, ..config_step(network(1)) };
    for (step, kinds, networks) in [
        (put("10.0.0.1", 5, None), "c4", "1"),
        (put("2001:db8::1", 6, None), "c46", "1"),
        (put("10.0.1.64/26", 7, None), "c46k", "1"),
        (gone("10.0.0.1", 5), "c46k", "1"),
        (gone("10.0.1.64", 7), "c6", "1"),
        (config, "6", "1"),
        (gone("2001:db8::1", 6), "", "0"),
    ] {
        begun.commit(vec![step]).unwrap();
        assert_eq!(noted(&begun), (kinds.to_owned(), networks.to_owned()));
    }
    drop(RedisStore::open(begun.server.options()).unwrap());
}
