//! A change that broke off in its middle, because the server is not really Redis, or because an earlier release did not
//! check its rights before it wrote. Its batch is in the log, but the head stands before it.

use std::collections::BTreeMap;

use allod::store::redis::RedisStore;

use super::rights::lies;
use super::*;

const LOG: &str = "{allod}:0:log";
const HEAD: &str = "{allod}:0:head";

/// Restores the chosen keys.
fn goes_back(server: &Server, to: &BTreeMap<String, Vec<u8>>, is_so: impl Fn(&str) -> bool) {
    let mut connection = server.connection();
    for key in lies(server).keys().chain(to.keys()).filter(|key| is_so(key)) {
        let _: u64 = server.ask(&["DEL", key]);
        if let Some(bytes) = to.get(key) {
            let () = ::redis::cmd("RESTORE").arg(key).arg(0).arg(bytes).query(&mut connection).unwrap();
        }
    }
}

/// A register in which the last change broke off. Its batch is in the log; its writes to the keys that `is_back` chooses are
/// undone.
fn broken(before: usize, is_back: impl Fn(&str) -> bool) -> Option<Server> {
    let mut begun = Begun::new(&[])?;
    begun.commit((1..9).map(|n| put(&format!("10.0.0.{n}"), 5, None)).collect()).unwrap();
    // More than is read at once.
    for n in 0..before as u64 {
        begun.commit(vec![put(&format!("10.1.{}.{}", n / 200, n % 200), 6 + n, None)]).unwrap();
    }
    let whole = lies(&begun.server);
    begun.commit(vec![put("10.0.9.1", 900, None), gone("10.0.0.1", 5), put("2001:db8::1", 900, None)]).unwrap();
    goes_back(&begun.server, &whole, is_back);
    begun.server.leases_ran_out();
    Some(begun.server)
}

fn loaded(store: &RedisStore) -> Result<ShardImage, StoreError> {
    wait(store.take(ShardId(0), token(7))).unwrap();
    wait(store.load(ShardId(0), token(7)))
}

#[test]
fn a_change_that_broke_off_before_it_changed_anything_is_cut_off_and_the_register_goes_on() {
    for before in [0, 250] {
        let Some(server) = broken(before, |key| key != LOG) else { return };
        let mut kept: Vec<(String, Vec<Vec<u8>>)> = server.ask(&["XRANGE", LOG, "-", "+"]);
        let store = server.open().unwrap();
        let head = loaded(&store).unwrap().head;
        kept.pop();
        assert_eq!(server.ask::<Vec<(String, Vec<Vec<u8>>)>>(&["XRANGE", LOG, "-", "+"]), kept);
        let mut begun = Begun { server, store, head };
        // With the number of the batch in the log, but another content.
        begun.commit(vec![put("10.0.9.9", 7_000, None), gone("10.0.0.2", 5)]).unwrap();
        assert_eq!(begun.held().len(), 8 + before);
        assert_eq!(wait(begun.store.history(ShardId(0), head.seq, 10)).unwrap().len(), 1);
        assert!(!lies(&begun.server).keys().any(|key| key.ends_with(":spare")));
    }
}

/// Redis answers nobody, neither the leases nor the confirmations of other shards, as long as a script runs.
#[test]
fn a_log_is_copied_without_what_is_cut_off_in_parts_and_a_copy_that_broke_off_is_begun_again() {
    let Some(server) = broken(40, |key| key != LOG) else { return };
    let mut log: Vec<(String, Vec<Vec<u8>>)> = server.ask(&["XRANGE", LOG, "-", "+"]);
    let surplus = log.last().unwrap().1[1].clone();
    // Each batch becomes as long as an act over many addresses.
    let _: u64 = server.ask(&["DEL", LOG]);
    let before = log.len() - 1;
    let mut written = ::redis::pipe();
    for (at, (id, fields)) in log.iter_mut().enumerate() {
        if at < before {
            fields.extend([b"pad".to_vec(), vec![b'x'; 300 << 10]]);
        }
        written.cmd("XADD").arg(LOG).arg(&*id).arg(&*fields).ignore();
    }
    let () = written.query(&mut server.connection()).unwrap();
    let store = server.open().unwrap();
    wait(store.take(ShardId(0), token(7))).unwrap();
    let stands: Vec<String> = server.ask(&["HMGET", HEAD, "token", "seq", "digest"]);
    let script = include_str!("../../../src/store/redis/scripts/cut.lua");
    let mut call = ::redis::cmd("EVAL");
    call.arg(script).arg(3).arg(HEAD).arg(LOG).arg("{allod}:0:spare").arg(&stands).arg(&surplus).arg("-");
    let answer: Vec<String> = call.query(&mut server.connection()).unwrap();
    let [more, copied] = &answer[..] else { panic!("it copied all at once: {answer:?}") };
    assert_eq!((more.as_str(), copied), ("more", &log[15].0));
    assert_eq!(server.ask::<Vec<(String, Vec<Vec<u8>>)>>(&["XRANGE", LOG, "-", "+"]), log, "nothing is gone yet");
    wait(store.load(ShardId(0), token(7))).unwrap();
    log.pop();
    assert_eq!(server.ask::<Vec<(String, Vec<Vec<u8>>)>>(&["XRANGE", LOG, "-", "+"]), log);
    assert!(!lies(&server).keys().any(|key| key.ends_with(":spare")));
}

#[test]
fn a_change_that_broke_off_after_it_changed_something_is_neither_kept_nor_taken_back() {
    let Some(server) = broken(0, |key| key == HEAD) else { return };
    let lay = lies(&server);
    let store = server.open().unwrap();
    let refused = loaded(&store).unwrap_err();
    let StoreError::Damaged(text) = &refused else { panic!("{refused:?}") };
    assert!(text.contains(LOG) && text.contains("broke off in its middle"), "{text}");
    assert_eq!(lies(&server)[LOG], lay[LOG]);
}

/// A change never breaks off twice: the head went back, or somebody changed it by hand.
#[test]
fn a_log_that_is_further_than_one_change_ahead_is_left_alone() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let whole = lies(&begun.server);
    begun.commit(vec![put("10.0.0.1", 5, None)]).unwrap();
    begun.commit(vec![put("10.0.0.2", 6, None)]).unwrap();
    goes_back(&begun.server, &whole, |key| key != LOG);
    begun.server.leases_ran_out();
    let lay = lies(&begun.server);
    let refused = loaded(&begun.server.open().unwrap()).unwrap_err();
    assert!(
        matches!(&refused, StoreError::Damaged(text) if text.contains("not a change that broke off")),
        "{refused:?}"
    );
    assert_eq!(lies(&begun.server)[LOG], lay[LOG]);
}
