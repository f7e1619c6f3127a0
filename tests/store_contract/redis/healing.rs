//! Redis went back: a failover to a replica that lacked the last changes. The owner plays again what it remembers, but only
//! on its own line; anything else that is there stops it.

use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use allod::store::redis::RedisOptions;
use allod::store::redis::examine::{WentBack, examine};

use super::replicated::Replicated;
use super::*;
use crate::crash::until;

/// A primary with one replica, a store that reaches both by one address, and ten changes that both have.
fn begun(settle: impl FnOnce(RedisOptions) -> RedisOptions) -> Option<Replicated> {
    let mut replicated = Replicated::new(1, settle)?;
    for n in 0..10 {
        replicated.begun.commit(vec![put(&format!("10.0.0.{n}"), 5 + n, None)]).unwrap();
    }
    let seq = replicated.begun.head.seq.0;
    until("the replica has it", || replicated.replicas[0].seq() == seq);
    Some(replicated)
}

/// Commits changes that no replica has.
fn lose(replicated: &mut Replicated, count: u64) {
    for n in 0..count {
        replicated.begun.commit(vec![put(&format!("10.0.1.{n}"), 100 + n, None)]).unwrap();
    }
}

/// Commits, again and again while the store is not reached or in doubt.
fn insist(begun: &mut Begun, steps: Vec<Step>) -> Result<(), CommitError> {
    let mut ended = begun.commit(steps.clone());
    for _ in 0..100 {
        match ended {
            Err(CommitError::NotApplied { cause: StoreError::Io { .. } } | CommitError::Unknown { .. }) => {
                std::thread::sleep(std::time::Duration::from_millis(20));
                ended = begun.commit(steps.clone());
            }
            definite => return definite,
        }
    }
    ended
}

#[test]
fn what_a_failover_lost_is_played_again_before_the_next_change() {
    let Some(mut replicated) = begun(|options| options) else { return };
    let second = wait(replicated.begun.store.take(ShardId(1), token(7))).unwrap();
    until("the replica has the second shard", || {
        replicated.replicas[0].ask::<String>(&["HGET", "{allod}:1:head", "epoch"]) == "1"
    });
    replicated.cut_off(0);
    lose(&mut replicated, 20);
    // A change of two shards at once.
    let both = [
        batch(&replicated.begun.head, 0, vec![put("10.0.2.1", 200, None)]),
        batch(&second, 1, vec![config_step(network(2))]),
    ];
    let committed = wait(replicated.begun.store.commit(both.clone().into())).unwrap();
    follow(&mut replicated.begun.head, &both[0], &committed[0]);
    replicated.fail_over();
    let Replicated { begun, replicas, .. } = &mut replicated;
    insist(begun, vec![put("10.0.2.2", 201, None)]).unwrap();
    assert_eq!(begun.store.figures().healed_batches, 22);
    assert_eq!(replicas[0].seq(), begun.head.seq.0);
    assert_eq!(begun.held().len(), 32);
    assert_eq!(wait(begun.store.history(ShardId(0), Seq(0), 100)).unwrap().len() as u64, begun.head.seq.0);
    assert_eq!(wait(begun.store.history(ShardId(1), Seq(0), 100)).unwrap(), [both[1].clone()]);
    assert_eq!(begun.store.health(), StoreHealth::Ready);
}

/// Also before mere reads: memory that is loaded again, and proofs of answers without a write.
#[test]
fn what_a_failover_lost_is_there_before_anything_is_loaded_or_proved() {
    for proves in [false, true] {
        let Some(mut replicated) = begun(|options| options) else { return };
        replicated.cut_off(0);
        lose(&mut replicated, 5);
        replicated.fail_over();
        let Begun { store, head, .. } = &replicated.begun;
        let asked = || {
            if proves {
                wait(store.confirm(vec![(ShardId(0), head.token, head.seq, head.digest)])).is_ok()
            } else {
                wait(store.load(ShardId(0), head.token)).is_ok_and(|image| image.head == *head)
            }
        };
        until("it answers", asked);
        assert_eq!(store.figures().healed_batches, 5);
        assert_eq!(replicated.replicas[0].seq(), head.seq.0);
    }
}

#[test]
fn an_own_take_over_that_was_lost_is_repeated_from_exactly_that_head() {
    let Some(mut replicated) = begun(|options| options) else { return };
    replicated.cut_off(0);
    for n in 2..4 {
        replicated.begun.head = wait(replicated.begun.store.take(ShardId(0), token(n))).unwrap();
        lose(&mut replicated, 0);
        replicated.begun.commit(vec![put(&format!("10.0.1.{n}"), 100 + n as u64, None)]).unwrap();
    }
    replicated.fail_over();
    insist(&mut replicated.begun, vec![put("10.0.2.2", 201, None)]).unwrap();
    let Replicated { begun, replicas, .. } = &replicated;
    assert_eq!((begun.head.epoch, begun.head.token), (Epoch(3), token(3)));
    assert_eq!(begun.store.figures().healed_batches, 2);
    assert_eq!(replicas[0].ask::<String>(&["HGET", "{allod}:0:head", "epoch"]), "3");
    assert_eq!(begun.held().len(), 13);
}

/// Repeating a take-over needs no changes, so it does not depend on how many of them are kept.
#[test]
fn an_own_take_over_that_was_lost_is_repeated_where_no_changes_are_kept() {
    for acknowledged in [false, true] {
        let Some(mut replicated) = begun(|options| RedisOptions { heal_bytes: 0, ..options }) else { return };
        replicated.cut_off(0);
        for n in 2..4 {
            replicated.begun.head = wait(replicated.begun.store.take(ShardId(0), token(n))).unwrap();
        }
        if acknowledged {
            lose(&mut replicated, 1);
        }
        replicated.fail_over();
        let ended = insist(&mut replicated.begun, vec![put("10.0.2.2", 201, None)]);
        let Replicated { begun, replicas, .. } = &replicated;
        if acknowledged {
            // What was acknowledged under it is lost everywhere.
            assert!(matches!(ended, Err(CommitError::NotApplied { cause: StoreError::Damaged(_) })), "{ended:?}");
            continue;
        }
        ended.unwrap();
        assert_eq!((begun.head.epoch, begun.head.token), (Epoch(3), token(3)));
        assert_eq!(replicas[0].ask::<String>(&["HGET", "{allod}:0:head", "epoch"]), "3");
        assert_eq!(begun.held().len(), 11);
        assert_eq!(begun.store.health(), StoreHealth::Ready);
    }
}

/// The story of rule 9: another node takes over where the store went back to, and goes on past what this one had.
#[test]
fn where_somebody_else_came_in_between_nothing_is_played_and_what_is_missing_is_put_aside() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_owned();
    let Some(mut replicated) = begun(|options| RedisOptions { directory: Some(place), ..options }) else { return };
    let second = wait(replicated.begun.store.take(ShardId(1), token(7))).unwrap();
    until("the replica has the second shard", || {
        replicated.replicas[0].ask::<String>(&["HGET", "{allod}:1:head", "epoch"]) == "1"
    });
    replicated.cut_off(0);
    let common = replicated.begun.head;
    lose(&mut replicated, 4);
    // A change of two shards at once.
    let both = [
        batch(&replicated.begun.head, 0, vec![put("10.0.1.4", 104, None)]),
        batch(&second, 1, vec![config_step(network(2))]),
    ];
    wait(replicated.begun.store.commit(both.clone().into())).unwrap();
    let lost = wait(replicated.begun.store.history(ShardId(0), common.seq, 100)).unwrap();
    assert_eq!(lost.len(), 5);
    replicated.promote();
    let other = replicated.replicas[0].open().unwrap();
    replicated.replicas[0].lapse();
    let mut head = wait(other.take(ShardId(0), token(9))).unwrap();
    for n in 0..10 {
        let next = batch(&head, 0, vec![put(&format!("10.0.1.{n}"), 300 + n, None)]);
        let committed = wait(other.commit([next.clone()].into())).unwrap();
        follow(&mut head, &next, &committed[0]);
    }
    replicated.switch();
    let begun = &mut replicated.begun;
    let refused = insist(begun, vec![put("10.0.2.2", 201, None)]);
    assert!(matches!(refused, Err(CommitError::Fenced { .. })), "{refused:?}");
    assert_eq!(begun.store.figures().healed_batches, 0);
    let image = wait(other.load(ShardId(0), token(9))).unwrap();
    assert_eq!(image.head, head);
    // Once its tenure has ended it sees that its line was cut off, although nothing is further back than it was.
    wait(begun.store.release()).ok();
    wait(begun.store.review()).unwrap();
    let late = begun.store.late();
    // Nobody has taken the other shard; but a change of both at once is given back in neither.
    let found: Vec<_> = late.iter().map(|late| (late.shard, &late.batches[..])).collect();
    assert_eq!(found, [(ShardId(0), &lost[..]), (ShardId(1), &both[1..])]);
    assert_eq!((begun.store.health(), begun.store.figures().healed_batches), (StoreHealth::Ready, 0));
    // It stays until somebody has dealt with it, also in the next process.
    wait(begun.store.review()).unwrap();
    let next = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), next.path().join(file.file_name())).unwrap();
    }
    let options = RedisOptions { directory: Some(next.path().to_owned()), ..replicated.replicas[0].options() };
    let again = RedisStore::open(options.clone()).unwrap();
    // The order in which they were copied does not matter.
    assert!(again.late().len() == late.len() && late.iter().all(|late| again.late().contains(late)));
    notes_beside(&again, next.path());
    late.iter().for_each(|late| wait(again.dealt_with(late)).unwrap());
    assert!(again.late().is_empty());
    drop(again);
    assert!(RedisStore::open(options).unwrap().late().is_empty());
    // And the shard can be taken as it is.
    replicated.replicas[0].lapse();
    let store = &replicated.begun.store;
    // Once the node was connected for the time of a lease.
    until("nobody may have taken it since", || {
        !matches!(wait(store.take(ShardId(0), token(10))), Err(StoreError::Io { .. }))
    });
    let taken = wait(store.take(ShardId(0), token(10))).unwrap();
    assert_eq!((taken.seq, taken.digest), (head.seq, head.digest));
    assert_eq!(wait(replicated.begun.store.take(ShardId(1), token(11))).unwrap().seq, Seq(0));
}

/// Answers are noted on a disk that is slow, while the thread that waits for that must also keep a lease.
fn notes_beside(store: &RedisStore, directory: &Path) {
    let late = store.late().into_iter().find(|late| late.shard == ShardId(0)).unwrap();
    let (network, claims) = late.claims().pop_first().unwrap();
    late.answered(network, &claims);
    // Opening the pipe for writing blocks until somebody reads it.
    let pipe = directory.join(format!("new-DONE-0-{:032x}", late.digest.0));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (goes_on, heard) = std::sync::mpsc::channel();
    let reads = std::thread::spawn({
        let pipe = pipe.clone();
        move || {
            let went_on = heard.recv_timeout(Duration::from_secs(10));
            std::fs::read(pipe).unwrap();
            went_on
        }
    });
    let (noted, ()) = wait(async {
        let goes_on = async { goes_on.send(()).unwrap() };
        tokio::join!(store.keep_answered(&late), goes_on)
    });
    assert_eq!(reads.join().unwrap(), Ok(()), "all else on that thread waits for the disk");
    // A pipe is no file, so noting failed. It is tried again, and waited for.
    assert!(matches!(noted, Err(StoreError::Io { .. })), "{noted:?}");
    std::fs::remove_file(pipe).unwrap();
    wait(store.keep_answered(&late)).unwrap();
    assert!(directory.join(format!("DONE-0-{:032x}", late.digest.0)).exists());
}

/// Otherwise nobody would know of it, and this node would refuse its clients although the other one serves.
#[test]
fn what_cannot_be_put_aside_for_want_of_room_is_counted_and_keeps_nobody_from_following_the_owner() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_owned();
    let Some(mut replicated) = begun(|options| RedisOptions { directory: Some(place), ..options }) else { return };
    replicated.cut_off(0);
    lose(&mut replicated, 5);
    replicated.promote();
    let other = replicated.replicas[0].open().unwrap();
    replicated.replicas[0].lapse();
    let head = wait(other.take(ShardId(0), token(9))).unwrap();
    wait(other.commit([batch(&head, 0, vec![put("10.0.1.1", 300, None)])].into())).unwrap();
    // Nothing can be renamed to that.
    let lost = replicated.begun.head.digest;
    let in_the_way = directory.path().join(format!("LATE-0-{:032x}", lost.0));
    std::fs::create_dir_all(in_the_way.join("full")).unwrap();
    replicated.switch();
    let store = &replicated.begun.store;
    until("it is reached", || !matches!(wait(store.release()), Err(StoreError::Io { .. })));
    until("it is missed", || wait(store.review()).is_err() && store.late_unwritten() == 5);
    assert!(store.late().is_empty());
    // No shard but the first is left to its last owner for a while after Redis came back, whatever else there is.
    let refused = wait(store.take(ShardId(1), token(11)));
    assert!(matches!(refused, Err(StoreError::Held { .. })), "{refused:?}");
    std::fs::remove_dir_all(&in_the_way).unwrap();
    wait(store.review()).unwrap();
    let late = store.late();
    assert_eq!((late.len(), late[0].batches.len(), store.late_unwritten()), (1, 5, 0));
}

/// The negative control: if it is not known what is missing, the store stops.
#[test]
fn where_somebody_else_came_in_between_and_not_all_is_remembered_the_store_stops() {
    for heal_bytes in [0, 2_000] {
        let directory = tempfile::tempdir().unwrap();
        let noted = |options: RedisOptions| RedisOptions { directory: Some(directory.path().to_owned()), ..options };
        let Some(mut replicated) = begun(|options| noted(RedisOptions { heal_bytes, ..options })) else { return };
        replicated.cut_off(0);
        lose(&mut replicated, 20);
        replicated.promote();
        let other = replicated.replicas[0].open().unwrap();
        replicated.replicas[0].lapse();
        let head = wait(other.take(ShardId(0), token(9))).unwrap();
        let next = batch(&head, 0, vec![put("10.0.1.1", 300, None)]);
        wait(other.commit([next].into())).unwrap();
        replicated.switch();
        let store = &replicated.begun.store;
        until("it is reached", || !matches!(wait(store.release()), Err(StoreError::Io { .. })));
        let refused = wait(store.review()).unwrap_err();
        assert!(matches!(&refused, StoreError::Damaged(text) if text.contains("went back")), "{refused:?}");
        assert!(store.late().is_empty());
        // But only once: the register has an owner, and what this node remembers must not stop another start.
        wait(store.close());
        let again = RedisStore::open(noted(replicated.replicas[0].options())).unwrap();
        until("it follows", || wait(again.review()).is_ok());
        assert_eq!(again.health(), StoreHealth::Ready);
    }
}

/// The other node's take-over has the number of the lost one, so neither its epoch nor its progress says anything.
#[test]
fn a_server_that_stopped_starts_again_once_another_went_on_whatever_numbers_that_one_has() {
    for batches in [1, 40] {
        let directory = tempfile::tempdir().unwrap();
        let noted = |options: RedisOptions| RedisOptions { directory: Some(directory.path().to_owned()), ..options };
        let Some(mut replicated) = begun(|options| noted(RedisOptions { heal_bytes: 0, ..options })) else { return };
        replicated.cut_off(0);
        replicated.begun.head = wait(replicated.begun.store.take(ShardId(0), token(2))).unwrap();
        lose(&mut replicated, 20);
        let lost = replicated.begun.head;
        replicated.promote();
        let other = replicated.replicas[0].open().unwrap();
        replicated.replicas[0].lapse();
        let mut head = wait(other.take(ShardId(0), token(9))).unwrap();
        assert_eq!(head.epoch, lost.epoch);
        for n in 0..batches {
            let next = batch(&head, 0, vec![put(&format!("10.0.3.{n}"), 300 + n, None)]);
            let committed = wait(other.commit([next.clone()].into())).unwrap();
            follow(&mut head, &next, &committed[0]);
        }
        assert_eq!(head.seq > lost.seq, batches > 20);
        replicated.switch();
        let store = &replicated.begun.store;
        until("it is reached", || !matches!(wait(store.release()), Err(StoreError::Io { .. })));
        wait(store.review()).unwrap_err();
        assert_eq!(store.health(), StoreHealth::Failed);
        wait(store.close());
        let there = noted(replicated.replicas[0].options());
        assert_eq!(examine(&there).unwrap().behind, None);
        RedisStore::open(there).unwrap();
    }
}

/// The negative control: without healing the same failover ends the store, and what was acknowledged is not there. A
/// supervisor that restarts the server must not make it grant that once more.
#[test]
fn without_healing_a_failover_that_lost_something_stops_the_store_until_somebody_accepts_it() {
    // Nothing is kept, or less than was lost.
    for heal_bytes in [0, 2_000] {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().to_owned();
        let noted = |options: RedisOptions| RedisOptions { directory: Some(place.clone()), ..options };
        let Some(mut replicated) = begun(|options| noted(RedisOptions { heal_bytes, ..options })) else { return };
        replicated.cut_off(0);
        lose(&mut replicated, 20);
        replicated.fail_over();
        let Replicated { begun, replicas, .. } = &mut replicated;
        let refused = insist(begun, vec![put("10.0.2.2", 201, None)]);
        let Err(CommitError::NotApplied { cause: StoreError::Damaged(problem) }) = refused else {
            panic!("{refused:?}")
        };
        assert!(problem.contains("went back"), "{problem}");
        assert_eq!(begun.store.health(), StoreHealth::Failed);
        assert_eq!(begun.store.figures().healed_batches, 0);
        assert_eq!(replicas[0].seq() + 20, begun.head.seq.0);
        let there = noted(replicas[0].options());
        wait(begun.store.close());
        for _ in 0..2 {
            let refused = RedisStore::open(there.clone()).unwrap_err();
            assert!(matches!(&refused, StoreError::Damaged(text) if text.contains("--accept-rollback")), "{refused:?}");
        }
        // Accepting another register in its place does not allow to lose a part of this one.
        RedisStore::open(RedisOptions { accept_new_store: true, ..there.clone() }).unwrap_err();
        let seen = examine(&there).unwrap();
        let last = begun.head.seq.0;
        assert_eq!(seen.behind, Some(WentBack { acknowledged: last, stands_at: last - 20 }));
        let accepts = RedisStore::open(RedisOptions { accept_rollback: true, ..there.clone() }).unwrap();
        assert_eq!(examine(&there).unwrap().behind, None);
        // Accepted once: what the earlier process remembered, and left behind, stops nobody any more.
        replicas[0].lapse();
        until("it goes on from what there is", || wait(accepts.take(ShardId(0), token(8))).is_ok());
        wait(accepts.release()).unwrap();
        wait(accepts.close());
        let again = RedisStore::open(there).unwrap();
        until("and so does the next", || wait(again.take(ShardId(0), token(9))).is_ok());
    }
}

/// There was room for it before; and a client that wants to release it must find it.
#[test]
fn what_a_failover_lost_is_played_again_although_the_memory_is_full() {
    let Some(mut replicated) = begun(|options| options) else { return };
    replicated.cut_off(0);
    for n in 0..3 {
        replicated.begun.commit(vec![put(&format!("10.0.1.{n}"), 100 + n, None)]).unwrap();
        replicated.begun.commit(vec![gone(&format!("10.0.0.{n}"), 5 + n)]).unwrap();
    }
    replicated.promote();
    let () = replicated.replicas[0].ask(&["CONFIG", "SET", "maxmemory", "1"]);
    replicated.switch();
    let Replicated { begun, replicas, .. } = &mut replicated;
    insist(begun, vec![gone("10.0.1.1", 101)]).unwrap();
    assert_eq!((begun.store.health(), begun.store.figures().healed_batches), (StoreHealth::Ready, 6));
    let refused = insist(begun, vec![put("10.0.2.2", 201, None)]);
    assert!(matches!(refused, Err(CommitError::NotApplied { cause: StoreError::Full })), "{refused:?}");
    assert_eq!(begun.store.health(), StoreHealth::Full);
    let () = replicas[0].ask(&["CONFIG", "SET", "maxmemory", "0"]);
    insist(begun, vec![put("10.0.2.2", 201, None)]).unwrap();
    assert_eq!(begun.held().len(), 10);
}

/// The replica does not grant a right, since rights are not replicated. What is refused for that is put off. If what follows
/// then does not fit, such as a take-over, that is no sign that anything is lost.
#[test]
fn what_redis_refuses_while_what_was_lost_is_played_again_is_put_off_with_all_that_follows_it() {
    let Some(mut replicated) = begun(|options| options) else { return };
    replicated.cut_off(0);
    for n in 2..4 {
        replicated.begun.commit(vec![put(&format!("10.0.1.{n}"), 100 + n as u64, None)]).unwrap();
        replicated.begun.head = wait(replicated.begun.store.take(ShardId(0), token(n))).unwrap();
    }
    replicated.promote();
    let () = replicated.replicas[0].ask(&["ACL", "SETUSER", "default", "-xadd"]);
    replicated.switch();
    let Replicated { begun, replicas, .. } = &mut replicated;
    for _ in 0..20 {
        begun.commit(vec![put("10.0.2.2", 201, None)]).unwrap_err();
        assert_eq!(begun.store.health(), StoreHealth::Ready);
    }
    let () = replicas[0].ask(&["ACL", "SETUSER", "default", "+xadd"]);
    insist(begun, vec![put("10.0.2.2", 201, None)]).unwrap();
    assert_eq!((begun.store.health(), begun.store.figures().healed_batches), (StoreHealth::Ready, 2));
    assert_eq!(begun.held().len(), 13);
}

/// Redis comes back as it was some time ago, and the lease that it knows has run out. The owner of the register lives.
#[test]
fn a_redis_that_was_gone_is_left_to_the_owner_for_as_long_as_a_lease_lasts() {
    let Some(mut begun) = Begun::new(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let other = begun.server.open().unwrap();
    let held = |refused: Result<Head, StoreError>| matches!(refused, Err(StoreError::Held { .. }));
    assert!(held(wait(other.take(ShardId(0), token(7)))));
    let _: u64 = begun.server.ask(&["HSET", "{allod}:0:head", "lease", "1"]);
    begun.server.kill();
    begun.server.begin();
    until("the other one reaches it", || !matches!(wait(other.take(ShardId(0), token(7))), Err(StoreError::Io { .. })));
    assert!(held(wait(other.take(ShardId(0), token(7)))), "it takes what is its owner's");
    insist(&mut begun, vec![put("10.0.0.9", 9, None)]).unwrap();
}

/// If a replica is waited for there is nothing to heal: everything acknowledged is there after the failover.
#[test]
fn a_failover_to_a_replica_that_was_waited_for_loses_nothing() {
    let Some(mut replicated) = begun(|options| RedisOptions { replicas: 1, heal_bytes: 0, ..options }) else { return };
    lose(&mut replicated, 20);
    replicated.begun.server.kill();
    let () = replicated.replicas[0].ask(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(replicated.replicas[0].seq(), replicated.begun.head.seq.0);
    replicated.switch();
    let unconfirmed = replicated.begun.commit(vec![put("10.0.2.2", 201, None)]);
    assert!(unconfirmed.is_err(), "nobody is left to be waited for");
    assert_ne!(replicated.begun.store.health(), StoreHealth::Failed);
}

/// The other node went on for so long that the log no longer reaches back to where this one was cut off. Returns what this
/// one finds then.
fn trimmed(lost: u64, meanwhile: impl FnOnce(&mut Replicated, Head)) -> Option<(Replicated, Result<(), StoreError>)> {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().to_owned();
    let mut replicated = begun(|options| RedisOptions { directory: Some(place), ..options })?;
    replicated.cut_off(0);
    lose(&mut replicated, lost);
    replicated.promote();
    let options = RedisOptions { history_bytes: 1, ..replicated.replicas[0].options() };
    let other = RedisStore::open(options).unwrap();
    replicated.replicas[0].lapse();
    let mut head = wait(other.take(ShardId(0), token(9))).unwrap();
    for n in 0..400u64 {
        let next = batch(&head, 0, vec![put(&format!("10.0.{}.{}", 2 + n / 200, n % 200), 300 + n, None)]);
        let committed = wait(other.commit([next.clone()].into())).unwrap();
        follow(&mut head, &next, &committed[0]);
    }
    drop(other);
    meanwhile(&mut replicated, head);
    replicated.switch();
    let begun = &mut replicated.begun;
    let refused = insist(begun, vec![put("10.0.9.2", 901, None)]);
    assert!(matches!(refused, Err(CommitError::Fenced { .. })), "{refused:?}");
    wait(begun.store.release()).ok();
    let reviewed = wait(begun.store.review());
    Some((replicated, reviewed))
}

/// Other nodes take the shard, one after the other.
fn taken_over(replicated: &Replicated, tokens: Range<u128>) {
    for n in tokens {
        replicated.replicas[0].lapse();
        let other = replicated.replicas[0].open().unwrap();
        wait(other.take(ShardId(0), token(n))).unwrap();
    }
}

#[test]
fn what_is_missing_is_noticed_although_the_log_was_trimmed_since() {
    for tokens in [20..20, 20..23] {
        let Some((replicated, reviewed)) = trimmed(4, |it, _| taken_over(it, tokens)) else { return };
        reviewed.unwrap();
        let late = replicated.begun.store.late();
        let missing: Vec<Vec<Seq>> =
            late.iter().map(|late| late.batches.iter().map(|batch| batch.seq).collect()).collect();
        assert_eq!(
            missing,
            [(12..=15).map(Seq).collect::<Vec<_>>()],
            "four batches were acknowledged, and are nowhere"
        );
    }
}

#[test]
fn where_nothing_is_missing_nothing_is_put_aside_although_the_log_was_trimmed_since() {
    let Some((replicated, reviewed)) = trimmed(0, |it, _| taken_over(it, 20..23)) else { return };
    reviewed.unwrap();
    assert!(replicated.begun.store.late().is_empty());
}

/// What a head does not remember, because there were more take-overs or an earlier release wrote it, nobody knows. An error
/// in the log says so.
#[test]
fn what_neither_the_log_nor_the_head_remembers_is_taken_to_be_there() {
    let forget = |it: &mut Replicated| it.replicas[0].ask::<u32>(&["HDEL", "{allod}:0:head", "takes"]);
    let takes = |it: &Replicated| it.replicas[0].ask::<String>(&["HGET", "{allod}:0:head", "takes"]);
    let Some((replicated, reviewed)) = trimmed(4, |it, _| assert_eq!(forget(it), 1)) else { return };
    reviewed.unwrap();
    assert!(replicated.begun.store.late().is_empty());
    // The next take-over is noted again.
    taken_over(&replicated, 20..21);
    let head: Head = wait(replicated.replicas[0].open().unwrap().load(ShardId(0), token(20))).unwrap().head;
    assert_eq!(takes(&replicated), format!("3 {:032x} {}", token(9).0, head.seq.0));
    taken_over(&replicated, 21..41);
    assert_eq!(takes(&replicated).split(',').count(), 16);
    assert!(takes(&replicated).starts_with("23 "));
}
