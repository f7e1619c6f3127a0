//! Redis is started in a locale in which letters come before digits: addresses still lie where they are looked for.

use std::process::Command;

use super::*;

const NETWORK: &str = "00000000-0000-0000-0000-000000000001";
/// Locales, each with an expression that is true where strings are not ordered by bytes. In Czech a letter comes before a
/// digit, in Danish `aa` comes last.
const LOCALES: [(&str, &str); 2] = [("cs_CZ", "return 'a' < '1'"), ("da_DK", "return 'ab' < 'aa'")];

/// A server in this locale, which is made for it. None where that is not possible, which is printed as a skip.
fn started_in((locale, differs): (&str, &str)) -> Option<(Begun, tempfile::TempDir)> {
    if process::is_missing() {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let name = format!("{locale}.UTF-8");
    let made = Command::new("localedef")
        .args(["--no-archive", "-i", locale, "-f", "UTF-8"])
        .arg(directory.path().join(&name))
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        process::skips::skip(&format!("there is no localedef that makes {locale} (package `locales`)"));
        return None;
    }
    let environment = vec![("LOCPATH", directory.path().display().to_string()), ("LC_ALL", name)];
    let server = Server::start_in(process::program(), &[], environment);
    assert_eq!(server.ask::<u64>(&["EVAL", differs, "0"]), 1, "{locale} orders as bytes are");
    Some((Begun::of(server), directory))
}

/// The n-th of addresses that are spread over a /64; they are the same each time.
fn spread(n: u64) -> Address {
    Address::V6(0x2001_0db8 << 96 | u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Each hash of IPv6 as it is stored: its LOW and its fields.
fn hashes(begun: &Begun) -> Vec<(String, Vec<String>)> {
    let lows: Vec<String> = begun.server.ask(&["ZRANGE", &format!("{{allod}}:0:i6:{NETWORK}"), "0", "-1"]);
    let fields = |low: &String| begun.server.ask(&["HKEYS", &format!("{{allod}}:0:6:{NETWORK}:{low}")]);
    lows.iter().map(|low| (low.clone(), fields(low))).collect()
}

#[test]
fn ipv6_addresses_are_found_where_they_lie_whatever_the_locale_of_redis() {
    for locale in LOCALES {
        let Some((mut begun, _directory)) = started_in(locale) else { return };
        let mut all: Vec<Address> = (0..1_500).map(spread).collect();
        for (n, some) in (100..).zip(all.chunks(70)) {
            // Sorted, as a committer sends them.
            let mut some = some.to_vec();
            some.sort_unstable();
            begun.commit(some.iter().map(|address| put(&address.to_string(), n, None)).collect()).unwrap();
        }
        let hashes = hashes(&begun);
        for (at, (low, fields)) in hashes.iter().enumerate() {
            let next = hashes.get(at + 1).map(|(next, _)| next);
            let astray = fields.iter().find(|field| *field < low || next.is_some_and(|next| *field >= next));
            assert_eq!(astray, None, "{locale:?}: in {low}, before {next:?}");
        }
        assert!(hashes.len() > 15);
        all.sort_unstable();
        assert_eq!(begun.held(), all);
        for (n, some) in (100..).zip((0..1_500).collect::<Vec<_>>().chunks(70)) {
            for few in some.chunks(7) {
                let mut few: Vec<Address> = few.iter().map(|n| spread(*n)).collect();
                few.sort_unstable();
                begun.commit(few.iter().map(|address| gone(&address.to_string(), n)).collect()).unwrap();
            }
        }
        assert_eq!(begun.held(), []);
    }
}

#[test]
fn a_put_inside_a_block_and_a_block_over_what_is_held_are_refused_whatever_the_locale_of_redis() {
    for locale in LOCALES {
        let Some((mut begun, _directory)) = started_in(locale) else { return };
        let blocks = ["10.0.160.0/20", "10.1.9.192/26", "2001:db8:0:9c::/62", "2001:db8:0:a9::40/122"];
        begun.commit(blocks.map(|block| put(block, 5, None)).into()).unwrap();
        let single = ["10.2.170.170", "10.3.0.10", "2001:db8:1::a9", "2001:db8:2::9a"];
        begun.commit(single.map(|address| put(address, 6, None)).into()).unwrap();
        for (wrong, there) in [
            ("10.0.160.1", 5),
            ("10.0.169.9", 5),
            ("10.0.175.255", 5),
            ("10.0.170.0/24", 5),
            ("10.1.9.202", 5),
            ("2001:db8:0:9f::9", 5),
            ("2001:db8:0:9d:a::", 5),
            ("2001:db8:0:a9::7f", 5),
            ("10.2.160.0/20", 6),
            ("10.2.170.128/25", 6),
            ("10.3.0.0/26", 6),
            ("2001:db8:1::/64", 6),
            ("2001:db8:2::90/124", 6),
        ] {
            match begun.commit(vec![put(wrong, 20, None)]) {
                Err(CommitError::Mismatch { found, .. }) => assert_eq!(found, Some(there), "{locale:?}: {wrong}"),
                other => panic!("{locale:?}: {wrong} goes unseen: {other:?}"),
            }
        }
        let beside =
            ["10.0.176.0", "10.0.159.255", "10.1.9.191", "2001:db8:0:a0::", "2001:db8:0:a9::80", "10.2.176.0/20"];
        begun.commit(beside.map(|outside| put(outside, 22, None)).into()).unwrap();
    }
}

/// An earlier release put records where a string order has them. They must be known as held, and a release must find them.
#[test]
fn records_that_lie_astray_are_brought_where_they_are_looked_for_when_their_shard_is_loaded() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let mut all: Vec<Address> = (0..300).map(spread).collect();
    all.sort_unstable();
    begun.commit(all.iter().map(|address| put(&address.to_string(), 100, None)).collect()).unwrap();
    let right = hashes(&begun);
    let key = |at: usize| format!("{{allod}}:0:6:{NETWORK}:{}", right[at].0);
    // One too far down, one too far up, and one before all others.
    let mut astray = Vec::new();
    for (from, to) in [(1, 0), (0, 2), (3, 1)] {
        let field = &right[from].1[0];
        let record: Vec<u8> = begun.server.ask(&["HGET", &key(from), field]);
        let _: u64 =
            ::redis::cmd("HSET").arg(key(to)).arg(field).arg(record).query(&mut begun.server.connection()).unwrap();
        let _: u64 = begun.server.ask(&["HDEL", &key(from), field]);
        astray.push(Address::V6(u128::from_str_radix(field, 16).unwrap()));
    }
    let lost = begun.commit(vec![gone(&astray[0].to_string(), 100)]);
    assert!(matches!(&lost, Err(CommitError::Mismatch { found: None, .. })), "{lost:?}");
    assert_eq!(begun.held(), all);
    let sorted = |mut hashes: Vec<(String, Vec<String>)>| {
        hashes.iter_mut().for_each(|(_, fields)| fields.sort());
        hashes
    };
    assert_eq!(sorted(hashes(&begun)), sorted(right.clone()));
    for address in &astray {
        begun.commit(vec![gone(&address.to_string(), 100)]).unwrap();
    }
    // The same record in two hashes: nobody can tell which is right.
    let (field, record) = (&right[1].1[5], begun.server.ask::<Vec<u8>>(&["HGET", &key(1), &right[1].1[5]]));
    let _: u64 = ::redis::cmd("HSET").arg(key(0)).arg(field).arg(record).query(&mut begun.server.connection()).unwrap();
    let refused = wait(begun.store.load(ShardId(0), begun.head.token)).map(|_| ());
    assert!(matches!(&refused, Err(StoreError::Damaged(text)) if text.contains(field)), "{refused:?}");
}
