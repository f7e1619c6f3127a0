//! What operators, crashes, full memory and emptied servers do to a register, and what the store says.

use std::time::{Duration, Instant};

use allod::store::redis::examine::examine;
use allod::store::redis::{RedisOptions, RedisStore};

use super::*;
use crate::crash::until;

fn said(error: &StoreError) -> String {
    error.to_string()
}

#[test]
fn scripts_that_redis_forgot_are_loaded_again() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    for n in 0..3 {
        let () = begun.server.ask(&["SCRIPT", "FLUSH"]);
        begun.commit(vec![put(&format!("10.0.0.{}", n + 1), 5 + n, None)]).unwrap();
        let () = begun.server.ask(&["SCRIPT", "FLUSH"]);
        let name = (ShardId(0), begun.head.token, begun.head.seq, begun.head.digest);
        wait(begun.store.confirm(vec![name])).unwrap();
    }
    assert_eq!(begun.held().len(), 3);
}

#[test]
fn a_cut_connection_is_replaced_and_nothing_happens_twice() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    for n in 0..20u64 {
        let next = batch(&begun.head, 0, vec![put(&format!("10.0.0.{}", n + 1), 5 + n, None)]);
        let under_way = begun.store.commit([next.clone()].into());
        let _: u64 = begun.server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let mut answer = wait(under_way);
        while let Err(CommitError::Unknown { .. } | CommitError::NotApplied { .. }) = answer {
            answer = wait(begun.store.commit([next.clone()].into()));
        }
        follow(&mut begun.head, &next, &answer.unwrap()[0]);
    }
    assert_eq!(begun.held().len(), 20);
    assert_eq!(wait(begun.store.history(ShardId(0), Seq(1), 100)).unwrap().len(), 20);
}

/// Redis (`timeout`) and firewalls close connections that are idle for long.
#[test]
fn what_only_reads_is_asked_again_where_its_connection_was_closed_meanwhile() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    begun.commit(vec![put("10.0.0.1", 5, None)]).unwrap();
    let (head, shard) = (begun.head, ShardId(0));
    let closed = || {
        wait(begun.store.history(shard, Seq(0), 100)).unwrap();
        let _: u64 = begun.server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    };
    for _ in 0..5 {
        closed();
        assert_eq!(wait(begun.store.history(shard, Seq(0), 100)).unwrap().len(), 2);
        closed();
        assert_eq!(wait(begun.store.beside(shard)).unwrap().head, head);
        closed();
        assert_eq!(wait(begun.store.load(shard, head.token)).unwrap().head, head);
        closed();
        assert_eq!(wait(begun.store.follow(shard, head)).unwrap().map(|followed| followed.1), Some(head));
    }
}

#[test]
fn a_server_that_is_gone_is_not_applied_and_one_that_comes_back_is_used() {
    let Some(mut begun) = Begun::new(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    assert!(begun.store.info().durability.starts_with("loss of power"), "{}", begun.store.info().durability);
    begun.commit(vec![put("10.0.0.1", 5, None)]).unwrap();
    begun.server.kill();
    let next = batch(&begun.head, 0, vec![put("10.0.0.2", 6, None)]);
    let answers: Vec<_> = (0..3).map(|_| wait(begun.store.commit([next.clone()].into()))).collect();
    // The first request may have gone out on the broken connection; after it there is none.
    let refused = matches!(answers[2], Err(CommitError::NotApplied { cause: StoreError::Io { .. } }));
    assert!(refused && answers[0].is_err(), "{answers:?}");
    assert_eq!(begun.store.health(), StoreHealth::Ready);
    begun.server.begin();
    let committed = wait(begun.store.commit([next.clone()].into())).unwrap();
    follow(&mut begun.head, &next, &committed[0]);
    assert_eq!(begun.held().len(), 2);
}

#[test]
fn what_was_acknowledged_is_there_after_the_server_was_killed() {
    let Some(mut server) = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    for round in 0..3 {
        let store = server.open().unwrap();
        let run = run(&store, 30, 0x100 + round * 10);
        assert_eq!(run.acknowledged[0], 30);
        wait(store.release()).unwrap();
        server.kill();
        server.begin();
        server.leases_ran_out();
        let again = server.open().unwrap();
        check(&again, &run, 0x1000 + round * 10, "after a kill");
        drop((store, again));
        let () = server.ask(&["FLUSHALL"]);
    }
}

#[test]
fn an_emptied_server_stops_the_store_and_the_next_start() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let notes = tempfile::tempdir().unwrap();
    let noted = RedisOptions { directory: Some(notes.path().into()), ..begun.server.options() };
    drop(RedisStore::open(noted.clone()).unwrap());
    let () = begun.server.ask(&["FLUSHALL"]);
    let refused = begun.commit(vec![put("10.0.0.1", 5, None)]);
    let Err(CommitError::NotApplied { cause: StoreError::Damaged(problem) }) = refused else { panic!("{refused:?}") };
    assert!(problem.contains("emptied"), "{problem}");
    assert_eq!(begun.store.health(), StoreHealth::Failed);
    assert!(wait(begun.store.take(ShardId(0), token(2))).is_err());
    // A server that remembers this register does not accept the empty one for it, unless it is told to.
    let refused = RedisStore::open(noted.clone()).unwrap_err();
    assert!(matches!(&refused, StoreError::Damaged(text) if text.contains("--accept-new-store")), "{refused:?}");
    let accepted = RedisStore::open(RedisOptions { accept_new_store: true, ..noted.clone() }).unwrap();
    let register = accepted.info().register;
    drop(accepted);
    assert_eq!(RedisStore::open(noted).unwrap().info().register, register);
}

#[test]
fn another_register_than_the_one_noted_is_refused() {
    let (Some(one), Some(other)) = (Server::start(&[]), Server::start(&[])) else { return };
    let notes = tempfile::tempdir().unwrap();
    let at = |server: &Server| RedisOptions { directory: Some(notes.path().into()), ..server.options() };
    drop(RedisStore::open(at(&one)).unwrap());
    drop(other.open().unwrap());
    let refused = RedisStore::open(at(&other)).unwrap_err();
    assert!(matches!(&refused, StoreError::Foreign(text) if text.contains("another register")), "{refused:?}");
    drop(RedisStore::open(at(&one)).unwrap());
}

/// Two servers would give back the same late journals, and overwrite each other's notes.
#[test]
fn a_directory_of_another_server_is_refused_with_what_to_do_until_that_one_has_ended() {
    let Some(server) = Server::start(&[]) else { return };
    let notes = tempfile::tempdir().unwrap();
    let noted = RedisOptions { directory: Some(notes.path().join("new")), ..server.options() };
    let store = RedisStore::open(noted.clone()).unwrap();
    let refused = RedisStore::open(noted.clone()).unwrap_err();
    let StoreError::Locked(text) = &refused else { panic!("{refused:?}") };
    let (place, process) = (notes.path().join("new").display().to_string(), format!("process {}", std::process::id()));
    for part in [&*place, &process, "`store.directory`"] {
        assert!(text.contains(part), "{text}");
    }
    wait(store.close());
    let second = RedisStore::open(noted.clone()).unwrap();
    drop(store);
    assert!(matches!(RedisStore::open(noted.clone()), Err(StoreError::Locked(_))));
    drop(second);
    drop(RedisStore::open(noted).unwrap());
}

#[test]
fn a_head_that_is_missing_is_damage() {
    let Some(server) = Server::start(&[]) else { return };
    drop(server.open().unwrap());
    let _: u64 = server.ask(&["DEL", "{allod}:1:head"]);
    let refused = server.open().unwrap_err();
    assert!(matches!(&refused, StoreError::Damaged(text) if text.contains("1 of the 3")), "{refused:?}");
    let _: u64 = server.ask(&["DEL", "{allod}:register"]);
    let refused = server.open().unwrap_err();
    assert!(matches!(&refused, StoreError::Damaged(text) if text.contains("{allod}:0:head")), "{refused:?}");
}

/// The head is behind what was acknowledged, as after a restart without its file or a failover to an old replica.
#[test]
fn a_server_that_went_back_is_noticed_and_nothing_more_is_granted() {
    let back = |begun: &Begun| {
        let digest: String = begun.server.ask(&["HGET", "{allod}:0:log-before", "digest"]);
        let _: u64 = begun.server.ask(&["HSET", "{allod}:0:head", "seq", "1", "digest", &digest]);
    };
    for way in ["commit", "take"] {
        let Some(mut begun) = Begun::new(&[]) else { return };
        let digest: String = begun.server.ask(&["HGET", "{allod}:0:head", "digest"]);
        let _: u64 = begun.server.ask(&["HSET", "{allod}:0:log-before", "digest", &digest]);
        begun.commit(vec![put("10.0.0.1", 5, None)]).unwrap();
        begun.commit(vec![put("10.0.0.2", 6, None)]).unwrap();
        back(&begun);
        let problem = if way == "commit" {
            let next = vec![put("10.0.0.3", 7, None)];
            // It is noticed, and reported once it is clear that it cannot be healed: what Redis has does not fit.
            assert!(matches!(
                begun.commit(next.clone()),
                Err(CommitError::NotApplied { cause: StoreError::Io { .. } })
            ));
            match begun.commit(next) {
                Err(CommitError::NotApplied { cause }) => said(&cause),
                other => panic!("{other:?}"),
            }
        } else {
            said(&wait(begun.store.take(ShardId(0), token(2))).unwrap_err())
        };
        assert!(problem.contains("went back") && problem.contains("up to batch 3"), "{problem}");
        assert_eq!(begun.store.health(), StoreHealth::Failed);
    }
}

#[test]
fn other_shards_another_format_and_a_bad_prefix_are_refused() {
    let Some(server) = Server::start(&[]) else { return };
    drop(server.open().unwrap());
    let refused = RedisStore::open(RedisOptions { shards: Some(4), ..server.options() }).unwrap_err();
    assert!(
        matches!(&refused, StoreError::Foreign(text) if text.contains("register of 3 shards") && text.contains("says 4")),
        "{refused:?}"
    );
    // Another prefix is another register.
    let other =
        RedisStore::open(RedisOptions { shards: Some(4), prefix: "other".to_owned(), ..server.options() }).unwrap();
    assert_ne!(other.info().register, server.open().unwrap().info().register);
    assert!(RedisStore::open(RedisOptions { prefix: "a{b}".to_owned(), ..server.options() }).is_err());
    let _: u64 = server.ask(&["HSET", "{allod}:register", "format", "2"]);
    let refused = server.open().unwrap_err();
    assert!(matches!(&refused, StoreError::Foreign(text) if text.contains("format 2")), "{refused:?}");
}

#[test]
fn a_server_that_evicts_is_refused() {
    let Some(server) = Server::start(&["--maxmemory-policy", "allkeys-lru"]) else { return };
    let refused = server.open().unwrap_err();
    assert!(matches!(&refused, StoreError::Foreign(text) if text.contains("noeviction")), "{refused:?}");
}

#[test]
fn a_server_that_is_switched_to_evicting_grants_nothing_until_it_is_switched_back() {
    let Some(begun) = Begun::new(&[]) else { return };
    let becomes = |health| until("another health", || begun.store.health() == health);
    let () = begun.server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    becomes(StoreHealth::Hindered);
    assert!(begun.store.obstacle().contains("allkeys-lru"), "{}", begun.store.obstacle());
    let () = begun.server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    becomes(StoreHealth::Ready);
}

/// The last known setting counts until another one is seen.
#[test]
fn a_server_that_evicts_and_cannot_be_asked_any_more_is_not_taken_for_one_that_keeps_every_record() {
    let Some(server) = Server::start(&[]) else { return };
    let () = server.ask(&["ACL", "SETUSER", "allod", "on", ">secret", "~{allod}:*", "+@all"]);
    let url = server.url().replace("redis://", "redis://allod:secret@");
    let store = RedisStore::open(RedisOptions { url, ..server.options() }).unwrap();
    let becomes = |health| until("another health", || store.health() == health);
    let () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    becomes(StoreHealth::Hindered);
    let () = server.ask(&["ACL", "SETUSER", "allod", "-info", "-config"]);
    // One look more, since the end of the first one cannot be seen.
    let refusals = || {
        server
            .ask::<String>(&["INFO", "commandstats"])
            .lines()
            .filter_map(|line| {
                let (_, rest) = line.strip_prefix("cmdstat_info:")?.split_once("rejected_calls=")?;
                rest.split(',').next()?.parse::<u64>().ok()
            })
            .sum::<u64>()
    };
    until("it was asked twice", || refusals() >= 2);
    assert_eq!(store.health(), StoreHealth::Hindered);
    assert!(store.obstacle().contains("allkeys-lru"), "{}", store.obstacle());
    let () = server.ask(&["ACL", "SETUSER", "allod", "+config"]);
    let () = server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    becomes(StoreHealth::Ready);
}

#[test]
fn a_server_where_info_and_config_are_not_permitted_is_used() {
    let Some(server) = Server::start(&[]) else { return };
    let () = server.ask(&["ACL", "SETUSER", "allod", "on", ">secret", "~{allod}:*", "+@all", "-info", "-config"]);
    let url = server.url().replace("redis://", "redis://allod:secret@");
    let store = RedisStore::open(RedisOptions { url, ..server.options() }).unwrap();
    assert!(store.info().durability.contains("cannot be asked"), "{}", store.info().durability);
    let run = run(&store, 10, 0x100);
    check(&store, &run, 0x200, "without INFO");
}

/// The command in deploy/README.md that creates the user.
pub fn user_of_the_directions() -> Vec<&'static str> {
    let directions = include_str!("../../../deploy/README.md");
    let (_, rights) = directions.split_once("`ACL SETUSER ").expect("a user is made");
    let (rights, _) = rights.split_once('`').unwrap();
    ["ACL", "SETUSER"].into_iter().chain(rights.split_whitespace()).collect()
}

/// The rights that deploy/README.md gives are sufficient; `CONFIG SET` is one of them.
#[test]
fn the_user_of_the_directions_may_do_all_that_is_needed() {
    let Some(server) = Server::start(&["--hash-max-listpack-value", "64"]) else { return };
    let () = server.ask(&user_of_the_directions());
    let url = server.url().replace("redis://", "redis://allod:secret@");
    let store = RedisStore::open(RedisOptions { url, ..server.options() }).unwrap();
    assert!(store.info().durability.starts_with("nothing"), "{}", store.info().durability);
    let value: Vec<String> = server.ask(&["CONFIG", "GET", "hash-max-listpack-value"]);
    assert_eq!(value[1], "256");
    let run = run(&store, 10, 0x100);
    check(&store, &run, 0x200, "as the user of the directions");
}

/// A missing right shows at the start, not in the middle of a change.
#[test]
fn a_user_who_may_not_write_is_refused_at_the_start() {
    let Some(server) = Server::start(&[]) else { return };
    let () = server.ask(&["ACL", "SETUSER", "allod", "on", ">secret", "~{allod}:*", "+@all", "-xadd"]);
    let url = server.url().replace("redis://", "redis://allod:secret@");
    let refused = RedisStore::open(RedisOptions { url, ..server.options() }).unwrap_err();
    assert!(matches!(refused, StoreError::Io { .. }), "{refused:?}");
}

/// A script is not rolled back: what it wrote before an error stays, so the store must not say that nothing was done.
#[test]
fn an_error_inside_a_script_leaves_its_outcome_unknown_and_a_refusal_before_it_does_not() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let () = begun.server.ask(&["ACL", "SETUSER", "allod", "on", ">secret", "~{allod}:*", "+@all"]);
    wait(begun.store.release()).unwrap();
    let url = begun.server.url().replace("redis://", "redis://allod:secret@");
    begun.store = RedisStore::open(RedisOptions { url, ..begun.server.options() }).unwrap();
    begun.head = wait(begun.store.take(ShardId(0), token(2))).unwrap();
    let () = begun.server.ask(&["ACL", "SETUSER", "allod", "-evalsha"]);
    let refused = begun.commit(vec![put("10.0.0.1", 5, None)]);
    assert!(matches!(&refused, Err(CommitError::NotApplied { cause: StoreError::Io { .. } })), "{refused:?}");
    let () = begun.server.ask(&["ACL", "SETUSER", "allod", "+evalsha"]);
    begun.commit(vec![put("10.0.0.1", 5, None)]).unwrap();
    // Somebody wrote into the log, and now nothing can be appended.
    let _: String = begun.server.ask(&["XADD", "{allod}:0:log", "99-0", "x", "x"]);
    let refused = begun.commit(vec![put("10.0.9.1", 6, None)]);
    assert!(matches!(&refused, Err(CommitError::Unknown { .. })), "{refused:?}");
}

#[test]
fn with_full_memory_nothing_is_granted_and_what_lets_go_is_taken() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let names: Vec<String> = (0..200).map(|n| format!("10.0.0.{n}")).collect();
    begun.commit(names.iter().map(|name| put(name, 5, None)).collect()).unwrap();
    let _: () = begun.server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = begun.commit(vec![put("10.0.9.1", 6, None)]);
    assert!(matches!(refused, Err(CommitError::NotApplied { cause: StoreError::Full })), "{refused:?}");
    assert_eq!(begun.store.health(), StoreHealth::Full);
    begun.commit(names.iter().take(100).map(|name| gone(name, 5)).collect()).unwrap();
    assert_eq!(begun.held().len(), 100);
    // A start accepts that and goes on.
    wait(begun.store.release()).unwrap();
    let again = begun.server.open().unwrap();
    wait(again.take(ShardId(0), token(2))).unwrap();
    wait(again.load(ShardId(0), token(2))).unwrap();
    wait(again.release()).unwrap();
    let _: () = begun.server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    wait(again.release()).unwrap();
    begun.head = wait(begun.store.take(ShardId(0), token(3))).unwrap();
    begun.commit(vec![put("10.0.9.1", 6, None)]).unwrap();
    assert_eq!(begun.store.health(), StoreHealth::Ready);
}

#[test]
fn a_record_that_was_changed_by_hand_is_found_when_it_is_loaded() {
    for (key, field, value, says) in [
        ("4:NETWORK:0a000000", "1", "nonsense", "format version"),
        ("4:NETWORK:0a000000", "70", "x", "puts there"),
        ("c:NETWORK", "subnet:x", "x", "puts there"),
        ("6:NETWORK:00000000000000000000000000000000", "20010db8000000000000000000000001", "", "ends"),
    ] {
        let Some(mut begun) = Begun::new(&[]) else { return };
        begun.commit(vec![put("10.0.0.1", 5, None), put("2001:db8::1", 6, None)]).unwrap();
        let key = format!("{{allod}}:0:{}", key.replace("NETWORK", "00000000-0000-0000-0000-000000000001"));
        let _: u64 = begun.server.ask(&["HSET", &key, field, value]);
        match wait(begun.store.load(ShardId(0), token(1))) {
            Err(StoreError::Damaged(text)) if says == "puts there" => {
                assert!(text.contains(says) && text.contains(&key), "{text}");
            }
            Err(StoreError::Newer(text)) => {
                assert!(text.contains(says) && text.contains(&key), "{text}");
                assert!(text.contains("newer version of allod: start that one"), "{text}");
            }
            other => panic!("{key} {field}: {other:?}"),
        }
    }
}

#[test]
fn a_server_that_accepts_and_says_nothing_is_not_waited_for_long() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let begun = Instant::now();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    assert!(matches!(RedisStore::open(RedisOptions::new(url, 3)), Err(StoreError::Io { .. })));
    assert!(begun.elapsed() < Duration::from_secs(60));
}

/// As when an import replaces what is in Redis while connections stand: only the data itself shows it.
#[test]
fn another_register_in_the_place_of_the_own_one_stops_the_store_whatever_it_asks_first() {
    type Ask = fn(&Begun) -> Result<(), StoreError>;
    let asks: [(&str, Ask); 6] = [
        ("take", |begun| wait(begun.store.take(ShardId(0), token(2))).map(drop)),
        ("take another", |begun| wait(begun.store.take(ShardId(1), token(3))).map(drop)),
        ("renew", |begun| wait(begun.store.renew())),
        ("meet", |begun| wait(begun.store.meet(true)).map(drop)),
        ("holder", |begun| wait(begun.store.holder()).map(drop)),
        ("confirm", |begun| {
            let head = begun.head;
            match wait(begun.store.confirm(vec![(ShardId(0), head.token, head.seq, head.digest)])) {
                Err(CommitError::NotApplied { cause }) => Err(cause),
                other => panic!("{other:?}"),
            }
        }),
    ];
    let Some(other) = Server::start(&[]) else { return };
    let stranger = other.open().unwrap();
    let mut head = wait(stranger.take(ShardId(0), token(9))).unwrap();
    for _ in 0..3 {
        let next = batch(&head, 0, vec![]);
        let committed = wait(stranger.commit([next.clone()].into())).unwrap();
        follow(&mut head, &next, &committed[0]);
    }
    wait(stranger.release()).unwrap();
    let register = format!("{:032x}", stranger.info().register);
    let there = rights::lies(&other);
    for (what, ask) in asks {
        let begun = Begun::new(&[]).unwrap();
        let mut connection = begun.server.connection();
        let mut exchange = ::redis::pipe();
        exchange.atomic().cmd("FLUSHALL");
        for (key, bytes) in &there {
            exchange.cmd("RESTORE").arg(key).arg(0).arg(&bytes[..]);
        }
        let () = exchange.query(&mut connection).unwrap();
        let refused = ask(&begun).unwrap_err();
        let named = [&register, &format!("{:032x}", begun.store.info().register)];
        let said = said(&refused);
        assert!(named.iter().all(|id| said.contains(*id)) && said.contains("another register"), "{what}: {said}");
        assert_eq!(begun.store.health(), StoreHealth::Failed, "{what}");
        assert!(wait(begun.store.take(ShardId(0), token(4))).is_err(), "{what}");
        assert_eq!(rights::lies(&begun.server), there, "{what}: it wrote there");
    }
}

/// A newer program may write what this one cannot read, or a person may have edited the entry.
#[test]
fn a_node_whose_entry_cannot_be_read_is_named_by_who_examines_redis() {
    let Some(begun) = Begun::new(&[]) else { return };
    let unread = || {
        let findings = examine(&begun.server.options()).unwrap().findings.into_iter();
        findings.map(|finding| finding.problem).filter(|problem| problem.contains("cannot read")).collect::<Vec<_>>()
    };
    assert_eq!(unread(), Vec::<String>::new());
    let seen_ms = begun.server.ask::<Vec<u64>>(&["TIME"])[0] * 1_000;
    let in_time = format!("00ff {seen_ms} what a later release says");
    let long_gone = format!("00ff {} what a later release says", seen_ms - 60_000);
    for (name, entry) in [("edited", "by hand"), ("newer", in_time.as_str()), ("gone", long_gone.as_str())] {
        let () = begun.server.ask(&["HSET", "{allod}:nodes", name, entry]);
    }
    let mut told = unread();
    told.sort();
    let [edited, newer] = &told[..] else { panic!("{told:?}") };
    assert!(edited.contains("node `edited` in `{allod}:nodes`") && newer.contains("node `newer`"), "{told:?}");
    assert!(edited.contains("`HDEL {allod}:nodes edited`"), "{edited}");
}
