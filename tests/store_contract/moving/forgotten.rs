//! Redis forgets how a move ended, after the moved register was served: nothing that was granted there may be lost.

use allod::store::redis::RedisStore;

use super::*;
use crate::redis::process;

/// All keys of a register, as they are now.
fn keys_of(server: &Server, prefix: &str) -> Vec<(String, Vec<u8>)> {
    let names: Vec<String> = server.ask(&["KEYS", &format!("{{{prefix}}}:*")]);
    names.into_iter().map(|name| (name.clone(), server.ask(&["DUMP", &name]))).collect()
}

/// Restores the keys and ends all connections, as when another server takes its place.
fn goes_back(server: &Server, prefix: &str, before: &[(String, Vec<u8>)]) {
    let mut restored = ::redis::pipe();
    restored.atomic();
    for (name, _) in keys_of(server, prefix) {
        restored.cmd("DEL").arg(name).ignore();
    }
    for (name, value) in before {
        restored.cmd("RESTORE").arg(name).arg(0).arg(&value[..]).ignore();
    }
    // The last write before a move ends.
    restored.cmd("HSET").arg(format!("{{{prefix}}}:register")).arg("moved").arg("unfinished the directory d").ignore();
    let () = restored.query(&mut server.connection()).unwrap();
    let _: u64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
}

/// What a register notes about its move.
fn notice(server: &Server, prefix: &str) -> Option<String> {
    server.ask(&["HGET", &format!("{{{prefix}}}:register"), "moved"])
}

/// A node that owns the moved register, and has granted an address there.
fn served_on(place: &Place) -> Box<dyn Movable> {
    let store = place.serve(3).unwrap();
    for shard in (0..3).map(ShardId) {
        let head = wait(store.take(shard, Token(0xa00 + u128::from(shard.0)))).unwrap();
        let Some(number) = (1..=12).find(|&number| shard_of(NetworkId(number), 3) == shard) else { continue };
        let address = Address::V4(0x0a00_fff0 + (number as u32) * 0x1_0000);
        let held = plain_reservation(usual_holder(3, "granted since"), Generation(head.generation.0 + 1), 32);
        let state = Some(State::Entry(Entry::Held(Arc::new(held))));
        let act = Act {
            network: NetworkId(number),
            wall: WallTime(1),
            by: "test".into(),
            reason: None,
            transaction: None,
            steps: vec![Step { key: Key::Address(address), expect: None, state, event: None }],
        };
        let (seq, generation) = (Seq(head.seq.0 + 1), Generation(head.generation.0 + 1));
        let batch =
            Batch { shard, epoch: head.epoch, token: head.token, seq, time: head.time, generation, acts: vec![act] };
        wait(store.commit([batch].into())).unwrap();
    }
    store
}

fn leave(store: &dyn Movable) {
    wait(store.release()).unwrap();
    wait(store.close());
}

/// Files that were moved to Redis and served there. Returns the files, and the place where they were served.
fn moved_and_served(server: &Rc<Server>) -> (Place, Place) {
    let (files, keys) = (Place::files(), Place::keys(server, "a"));
    fill(&files, 3);
    moved(&files, &keys, 3).unwrap();
    (files, keys)
}

#[test]
fn a_node_that_lives_says_again_that_its_register_is_finished_and_no_move_removes_it() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    let (files, keys) = moved_and_served(&server);
    let before = keys_of(&server, "a");
    let node = served_on(&keys);
    goes_back(&server, "a", &before);
    // Meanwhile no other node may take one of its shards, since perhaps not everything is there.
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while wait(node.renew()).is_err() {
        assert!(std::time::Instant::now() < end, "it heals nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(notice(&server, "a"), None);
    leave(&*node);
    let granted = served(&keys, 3).0;
    assert_eq!(granted.len(), 12 * 194 + 3, "what was granted since is there again");
    let said = moved(&files, &keys, 3).unwrap_err();
    assert!(said.contains("was moved to"), "{said}");
    assert!(served(&keys, 3).0 == granted);
}

#[test]
fn a_node_takes_nothing_of_a_register_that_went_back_to_before_it_was_finished() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    let (files, keys) = moved_and_served(&server);
    let before = keys_of(&server, "a");
    let node = keys.serve(3).unwrap();
    wait(node.meet(true)).unwrap();
    goes_back(&server, "a", &before);
    let said = loop {
        match wait(node.take(ShardId(1), Token(7))) {
            // Its connection was closed.
            Err(StoreError::Io { source, .. }) if !source.to_string().contains("unfinished") => {}
            taken => break taken,
        }
    };
    let Err(StoreError::Io { context, source }) = &said else { panic!("{said:?}") };
    assert!(context.ends_with("went back to before the move into it was finished"), "{context}");
    assert!(
        source.to_string().contains("leave that running") && source.to_string().contains("`allod migrate`"),
        "{source}"
    );
    wait(node.meet(false)).unwrap();
    wait(node.close());
    assert_eq!(moved(&files, &keys, 3).unwrap().tally, None, "it is whole, and only finished");
    served(&keys, 3);
}

#[test]
fn what_was_served_is_finished_with_all_that_was_granted_since_though_nobody_lives_who_knew() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    let (files, keys) = moved_and_served(&server);
    leave(&*served_on(&keys));
    let granted = served(&keys, 3).0;
    goes_back(&server, "a", &keys_of(&server, "a"));
    refused(&keys, 3, "finishes it or begins anew");
    assert_eq!(moved(&files, &keys, 3).unwrap().tally, None);
    assert!(served(&keys, 3).0 == granted);
    refused(&files, 3, "was moved to");
}

/// Its history does not reach back to the end of the copy, so nobody can say whether the copy is whole.
#[test]
fn what_was_served_and_may_not_be_whole_is_neither_removed_nor_is_its_source_opened_again() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    let (files, keys) = moved_and_served(&server);
    leave(&*served_on(&keys));
    let granted = served(&keys, 3).0;
    for shard in 0..3 {
        let _: u64 = server.ask(&["XTRIM", &format!("{{a}}:{shard}:log"), "MAXLEN", "1"]);
    }
    goes_back(&server, "a", &keys_of(&server, "a"));
    let said = moved(&files, &keys, 3).unwrap_err();
    assert!(said.contains("was served after the register was moved there"), "{said}");
    refused(&files, 3, "was moved to");
    let _: u64 = server.ask(&["HDEL", "{a}:register", "moved"]);
    assert!(served(&keys, 3).0 == granted, "nothing was changed");
}

#[test]
fn a_source_that_forgot_that_it_was_moved_does_not_remove_what_it_became() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    let (first, keys) = (Place::keys(&server, "first"), Place::keys(&server, "a"));
    fill(&first, 3);
    let before = keys_of(&server, "first");
    moved(&first, &keys, 3).unwrap();
    leave(&*served_on(&keys));
    goes_back(&server, "first", &before);
    goes_back(&server, "a", &keys_of(&server, "a"));
    let _: u64 = server.ask(&["HDEL", "{first}:register", "moved"]);
    let unfinished = format!("unfinished {}, keys `{{first}}:…`", server.url());
    let _: u64 = server.ask(&["HSET", "{a}:register", "moved", &unfinished]);
    let said = moved(&first, &keys, 3).unwrap_err();
    assert!(said.contains("was served since"), "{said}");
}

/// A log always keeps its last batches. Where they are gone nobody can say who wrote them.
#[test]
fn what_may_have_been_served_is_not_removed_to_be_filled_anew() {
    let Some(server) = Server::start(&[]).map(Rc::new) else { return };
    let (first, keys) = (Place::keys(&server, "first"), Place::keys(&server, "a"));
    fill(&first, 3);
    let before = keys_of(&server, "first");
    moved(&first, &keys, 3).unwrap();
    leave(&*served_on(&keys));
    for shard in 0..3 {
        let _: u64 = server.ask(&["DEL", &format!("{{a}}:{shard}:log")]);
    }
    goes_back(&server, "first", &before);
    let _: u64 = server.ask(&["HDEL", "{first}:register", "moved"]);
    let unfinished = format!("unfinished {}, keys `{{first}}:…`", server.url());
    let _: u64 = server.ask(&["HSET", "{a}:register", "moved", &unfinished]);
    let lies: std::collections::BTreeMap<_, _> = keys_of(&server, "a").into_iter().collect();
    let said = moved(&first, &keys, 3).unwrap_err();
    assert!(said.contains("may have been served") && said.contains("and its log has none"), "{said}");
    assert!(keys_of(&server, "a").into_iter().collect::<std::collections::BTreeMap<_, _>>() == lies);
}

/// A target on a primary whose replicas are waited for, with its shard taken; and the last batch that ends the move.
fn to_be_finished(server: &Server) -> (RedisStore, Vec<LastOf>) {
    let opening = Opening::Target { from: Origin::of(7, "the directory d") };
    let keys = Keys { opening, replicas_that_follow: true, ..Keys::new(server.url(), 1) };
    let store = RedisStore::open(keys).unwrap();
    // A replica that has just begun to follow may be late once.
    let head = (0..20).find_map(|_| wait(store.take(ShardId(0), Token(5))).ok()).unwrap();
    (store, vec![(ShardId(0), head.token, head.seq, head.digest)])
}

#[test]
fn what_a_register_says_of_its_move_counts_when_the_replicas_that_follow_have_it() {
    let settings = ["--repl-diskless-sync-delay", "0"];
    let (Some(server), Some(replica)) = (Server::start(&settings), Server::start(&settings)) else { return };
    replica.follow(&server);
    let (store, ends) = to_be_finished(&server);
    let moved = MoveNotice::Moved { register: 7, fingerprint: 8, at_ms: 0, to: "elsewhere".to_owned() };
    for notice in [None, Some(moved)] {
        replica.signal("-STOP");
        let said = wait(store.post(notice.clone(), ends.clone())).unwrap_err();
        assert!(matches!(&said, StoreError::Io { source, .. } if source.to_string().contains("0 answer")), "{said:?}");
        replica.signal("-CONT");
        // Repeating it changes nothing, even over a connection that wrote nothing before.
        let _: u64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
        while wait(store.post(notice.clone(), ends.clone())).is_err() {}
        let said: Option<String> = replica.ask(&["HGET", "{allod}:register", "moved"]);
        assert_eq!(said, notice.map(|notice| notice.text()));
    }
    wait(store.close());
}

/// It would count as having none, and each step of the move would be on the primary alone.
#[test]
fn a_redis_that_does_not_say_how_many_replicas_follow_it_is_neither_source_nor_target_until_that_is_told() {
    let settings = ["--repl-diskless-sync-delay", "0"];
    let (Some(server), Some(replica)) = (Server::start(&settings), Server::start(&settings)) else { return };
    replica.follow(&server);
    let () = server.ask(&["ACL", "SETUSER", "allod", "on", ">secret", "~{allod}:*", "+@all", "-info"]);
    let url = server.url().replace("redis://", "redis://allod:secret@");
    let to = Opening::Target { from: Origin::of(7, "the directory d") };
    for opening in [Opening::Source, to.clone()] {
        let follows = Keys { opening, replicas_that_follow: true, ..Keys::new(url.clone(), 1) };
        let refused = RedisStore::open(follows).unwrap_err();
        let said = refused.to_string();
        assert!(matches!(refused, StoreError::Foreign(_)), "{refused:?}");
        assert!(said.contains("+info") && said.contains("`--redis-replicas COUNT`"), "{said}");
        assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0, "nothing was made");
    }
    let store = RedisStore::open(Keys { opening: to, replicas: 1, ..Keys::new(url, 1) }).unwrap();
    assert!(store.info().durability.contains("1 replica must"), "{}", store.info().durability);
    wait(store.close());
}

#[test]
fn what_a_register_says_of_its_move_is_on_a_disk_that_is_flushed_once_a_second() {
    let Some(program) = process::program_with_waitaof() else { return };
    let server = Server::start_by(program, &["--appendonly", "yes", "--appendfsync", "everysec"]);
    let (store, ends) = to_be_finished(&server);
    wait(store.post(None, ends)).unwrap();
    wait(store.close());
    let told: String = server.ask(&["INFO", "commandstats"]);
    assert!(told.contains("cmdstat_waitaof:calls=1,"), "{told}");
}
