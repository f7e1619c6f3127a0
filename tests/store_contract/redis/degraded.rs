//! Too few replicas answer, but changes are acknowledged all the same, because they are on this machine's disk
//! (`store.redis_degrade`).

use std::path::Path;
use std::time::Duration;

use allod::store::redis::RedisOptions;

use super::forks::{forked, insist, taken_back};
use super::replicated::Replicated;
use super::*;
use crate::crash::until;

/// The options of a node that may go on without its one replica.
fn degrading(options: RedisOptions, directory: &Path) -> RedisOptions {
    RedisOptions { replicas: 1, degrade: true, directory: Some(directory.to_owned()), ..options }
}

/// Ten changes that primary and replica have, and twenty that were acknowledged while the replica was cut off.
fn begun(directory: &Path, settle: impl Fn(RedisOptions) -> RedisOptions) -> Option<Replicated> {
    let mut replicated = Replicated::new(1, |options| settle(degrading(options, directory)))?;
    for n in 0..10 {
        replicated.begun.commit(vec![put(&format!("10.0.0.{n}"), 5 + n, None)]).unwrap();
    }
    assert!(!replicated.begun.store.figures().degraded);
    replicated.cut_off(0);
    for n in 0..20 {
        replicated.begun.commit(vec![put(&format!("10.0.1.{n}"), 100 + n, None)]).unwrap();
    }
    Some(replicated)
}

/// Ends the process and starts the next one with the same directory.
fn next_process(replicated: Replicated, directory: &Path) -> Replicated {
    let Replicated { begun: Begun { server, store, head }, replicas, front } = replicated;
    drop(store);
    let url = format!("redis://127.0.0.1:{}/", front.port);
    let options = degrading(RedisOptions { url, ..server.options() }, directory);
    let options = RedisOptions { replicas: replicas.len() as u32, ..options };
    // The tasks of the old one end a moment later.
    let mut opened = RedisStore::open(options.clone());
    while matches!(opened, Err(StoreError::Locked(_))) {
        std::thread::sleep(Duration::from_millis(10));
        opened = RedisStore::open(options.clone());
    }
    Replicated { begun: Begun { server, store: opened.unwrap(), head }, replicas, front }
}

/// The primary is lost together with the process; the replica that was cut off takes its place.
fn lost_both(mut replicated: Replicated, directory: &Path) -> Replicated {
    replicated.promote();
    assert_eq!(replicated.replicas[0].seq() + 20, replicated.begun.head.seq.0, "nothing was lost");
    replicated.switch();
    next_process(replicated, directory)
}

fn takes(store: &RedisStore, number: u128) -> Head {
    loop {
        match wait(store.take(ShardId(0), token(number))) {
            // The previous owner is left the time of a lease.
            Err(StoreError::Io { .. } | StoreError::Held { .. }) => std::thread::sleep(Duration::from_millis(50)),
            taken => return taken.unwrap(),
        }
    }
}

/// Commits one batch, again and again while its outcome is unknown.
fn insists(begun: &mut Begun, steps: Vec<Step>) {
    let next = batch(&begun.head, 0, steps);
    let is_definite = |answer: &Result<_, CommitError>| {
        !matches!(answer, Err(CommitError::NotApplied { cause: StoreError::Io { .. } } | CommitError::Unknown { .. }))
    };
    let committed = insist(|| wait(begun.store.commit([next.clone()].into())), is_definite).unwrap();
    follow(&mut begun.head, &next, &committed[0]);
}

/// Does what a node does every second.
fn meets_until(store: &RedisStore, what: &str, is_so: impl Fn() -> bool) {
    until(what, || {
        wait(store.meet(true)).unwrap();
        is_so()
    });
}

#[test]
fn without_its_replica_a_change_is_acknowledged_and_shown_to_be_less_safe_until_the_replica_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let Some(Replicated { mut begun, replicas, .. }) = begun(directory.path(), |options| options) else { return };
    let figures = begun.store.figures();
    assert!(figures.degraded && figures.redo_bytes > 0, "{figures:?}");
    assert_eq!((figures.replicas_wanted, figures.replicas_answering), (1, 0));
    assert_eq!(begun.store.health(), StoreHealth::Ready);
    let durability = begun.store.info().durability;
    assert!(durability.contains("degraded now: 0 of 1 answer"), "{durability}");
    replicas[0].signal("-CONT");
    let is_safe = || begun.store.figures().redo_bytes == 0;
    meets_until(&begun.store, "the replica is waited for again", is_safe);
    assert!(!begun.store.figures().degraded);
    assert_eq!(replicas[0].seq(), begun.head.seq.0, "it was emptied too early");
    begun.commit(vec![put("10.0.2.1", 200, None)]).unwrap();
    assert_eq!(replicas[0].seq(), begun.head.seq.0);
    assert_eq!(begun.store.figures().redo_bytes, 0);
}

#[test]
fn a_failover_that_the_node_does_not_outlive_loses_nothing_that_its_disk_has() {
    let directory = tempfile::tempdir().unwrap();
    let Some(replicated) = begun(directory.path(), |options| options) else { return };
    let before = replicated.begun.head;
    let mut replicated = lost_both(replicated, directory.path());
    let Begun { store, head, .. } = &mut replicated.begun;
    *head = takes(store, 9);
    assert_eq!((head.seq, head.digest), (before.seq, before.digest));
    assert_eq!(store.figures().healed_batches, 20);
    assert_eq!(replicated.begun.held().len(), 30);
    replicated.begun.commit(vec![put("10.0.2.1", 200, None)]).unwrap();
    // Nor does the next process, before a replica is there.
    let mut replicated = next_process(replicated, directory.path());
    replicated.begun.head = takes(&replicated.begun.store, 10);
    assert_eq!(replicated.begun.held().len(), 31);
}

/// The negative control: it is the file that restores the changes.
#[test]
fn the_same_failover_without_that_disk_loses_what_no_replica_had() {
    let directory = tempfile::tempdir().unwrap();
    let Some(replicated) = begun(directory.path(), |options| options) else { return };
    let before = replicated.begun.head;
    let another = tempfile::tempdir().unwrap();
    let replicated = lost_both(replicated, another.path());
    assert_eq!(takes(&replicated.begun.store, 9).seq.0 + 20, before.seq.0);
}

#[test]
fn where_somebody_else_took_the_register_what_the_disk_has_is_put_aside_once() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut replicated) = begun(directory.path(), |options| options) else { return };
    replicated.promote();
    replicated.replicas[0].lapse();
    let other = replicated.replicas[0].open().unwrap();
    let head = takes(&other, 9);
    wait(other.commit([batch(&head, 0, vec![put("10.0.1.1", 300, None)])].into())).unwrap();
    replicated.switch();
    let mut replicated = next_process(replicated, directory.path());
    for _ in 0..2 {
        let store = &replicated.begun.store;
        until("it is looked at", || wait(store.review()).is_ok());
        let late = store.late();
        assert_eq!(late.iter().map(|late| late.batches.len()).collect::<Vec<_>>(), [20]);
        assert_eq!(store.figures().healed_batches, 0, "it was played over what somebody else did");
        replicated = next_process(replicated, directory.path());
    }
    let late = replicated.begun.store.late();
    wait(replicated.begun.store.dealt_with(&late[0])).unwrap();
    let replicated = next_process(replicated, directory.path());
    let store = &replicated.begun.store;
    until("it is looked at", || wait(store.review()).is_ok());
    assert!(store.late().is_empty(), "it is brought again after it was dealt with");
}

#[test]
fn a_register_is_taken_over_while_its_replica_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let Some(replicated) = begun(directory.path(), |options| options) else { return };
    let mut replicated = next_process(replicated, directory.path());
    replicated.begun.head = takes(&replicated.begun.store, 9);
    assert_eq!(replicated.begun.held().len(), 30);
    // This change, too, is on the disk only.
    let mut replicated = lost_both(replicated, directory.path());
    let head = takes(&replicated.begun.store, 10);
    assert_eq!((head.parent, head.seq), (token(9), replicated.begun.head.seq));
    replicated.begun.head = head;
    assert_eq!(replicated.begun.held().len(), 30);
}

#[test]
fn beyond_its_bound_nothing_more_is_acknowledged_until_the_replica_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let settle = |options| RedisOptions { heal_bytes: 40_000, ..options };
    let Some(Replicated { mut begun, replicas, .. }) = begun(directory.path(), settle) else { return };
    let mut acknowledged = 0;
    let refused = loop {
        let next = batch(&begun.head, 0, vec![put(&format!("10.0.2.{acknowledged}"), 200 + acknowledged, None)]);
        match wait(begun.store.commit([next.clone()].into())) {
            Ok(committed) => follow(&mut begun.head, &next, &committed[0]),
            Err(CommitError::Unknown { cause: StoreError::Io { source, .. } }) => break source.to_string(),
            Err(error) => panic!("{error:?}"),
        }
        acknowledged += 1;
        assert!(acknowledged < 250, "there is no bound");
    };
    assert!(refused.contains("the redo journal is full (store.redis_heal_bytes)"), "{refused}");
    assert_eq!(begun.store.health(), StoreHealth::Hindered);
    let obstacle = begun.store.obstacle();
    assert!(obstacle.starts_with("1 replicas wanted, 0 answer, and the redo journal is full"), "{obstacle}");
    assert!(!begun.store.figures().degraded);
    replicas[0].signal("-CONT");
    meets_until(&begun.store, "it goes on", || begun.store.health() == StoreHealth::Ready);
    let next = batch(&begun.head, 0, vec![put(&format!("10.0.2.{acknowledged}"), 200 + acknowledged, None)]);
    let committed = wait(begun.store.commit([next.clone()].into())).unwrap();
    follow(&mut begun.head, &next, &committed[0]);
    assert_eq!(begun.held().len() as u64, 31 + acknowledged);
}

/// A call of two shards is refused for good, and is kept on the disk by the change of a third one. Its number in one of the
/// two is given to another batch, and the process ends.
#[test]
fn what_was_refused_is_not_taken_for_acknowledged_by_the_next_process() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut replicated) = begun(directory.path(), |options| options) else { return };
    let store = &replicated.begun.store;
    let mut others = [1, 2].map(|shard| {
        let mut head = wait(store.take(ShardId(shard), token(1))).unwrap();
        let next = batch(&head, shard, vec![config_step(network(u128::from(shard) + 1))]);
        let committed = wait(store.commit([next.clone()].into())).unwrap();
        follow(&mut head, &next, &committed[0]);
        head
    });
    let refused = [
        batch(&replicated.begun.head, 0, vec![put("10.0.2.1", 200, None)]),
        batch(&others[0], 1, vec![put("10.0.2.1", 200, Some(199))]),
    ];
    let refused = wait(store.commit(refused.into()));
    assert!(matches!(refused, Err(CommitError::Mismatch { .. })), "{refused:?}");
    let next = batch(&others[1], 2, vec![put("10.0.2.1", 200, None)]);
    let committed = wait(store.commit([next.clone()].into())).unwrap();
    follow(&mut others[1], &next, &committed[0]);
    replicated.begun.commit(vec![put("10.0.2.2", 201, None)]).unwrap();
    let mut replicated = next_process(replicated, directory.path());
    replicated.begun.head = takes(&replicated.begun.store, 9);
    assert_eq!(replicated.begun.held().len(), 31);
    let taken = wait(replicated.begun.store.take(ShardId(1), token(9))).unwrap();
    assert_eq!((taken.seq, taken.digest), (others[0].seq, others[0].digest));
    assert_eq!(replicated.begun.store.figures().healed_batches, 0);
    replicated.begun.commit(vec![put("10.0.2.3", 202, None)]).unwrap();
}

/// More was under way at once than is remembered. The replica is back before anything could be kept, and a change that waits
/// for the other one finds both.
#[test]
fn what_could_not_be_kept_once_bars_nothing_when_the_replica_is_missing_again() {
    let directory = tempfile::tempdir().unwrap();
    let settle = |options| RedisOptions { heal_bytes: 1, replicas: 2, ..degrading(options, directory.path()) };
    let Some(mut replicated) = Replicated::new(2, settle) else { return };
    let store = &replicated.begun.store;
    let mut other = wait(store.take(ShardId(1), token(1))).unwrap();
    let next = batch(&other, 1, vec![config_step(network(2))]);
    let committed = wait(store.commit([next.clone()].into())).unwrap();
    follow(&mut other, &next, &committed[0]);
    replicated.cut_off(0);
    let steps = || vec![put("10.0.1.1", 100, None)];
    let [one, two] = [batch(&replicated.begun.head, 0, steps()), batch(&other, 1, steps())];
    let unknown = wait(async { tokio::join!(store.commit([one].into()), store.commit([two].into())) });
    assert!(matches!(unknown, (Err(CommitError::Unknown { .. }), Err(CommitError::Unknown { .. }))), "{unknown:?}");
    assert!(store.obstacle().contains("is remembered no more"), "{}", store.obstacle());
    assert_eq!(store.figures().redo_bytes, 0);
    replicated.replicas[0].signal("-CONT");
    insists(&mut replicated.begun, steps());
    assert_eq!(replicated.begun.store.health(), StoreHealth::Ready);
    wait(replicated.begun.store.meet(true)).unwrap();
    replicated.cut_off(0);
    let store = &replicated.begun.store;
    meets_until(store, "it is missed", || store.figures().replicas_answering == 1);
    assert_eq!(store.health(), StoreHealth::Ready, "{}", store.obstacle());
    replicated.begun.commit(vec![put("10.0.1.2", 200, None)]).unwrap();
    assert!(replicated.begun.store.figures().degraded);
}

/// What only the primary has when the process ends is in the file as well, and stays there until a replica has it.
#[test]
fn where_nothing_is_lost_nothing_is_played_and_the_file_is_kept_for_the_replica() {
    let directory = tempfile::tempdir().unwrap();
    let Some(replicated) = begun(directory.path(), |options| options) else { return };
    let mut replicated = next_process(replicated, directory.path());
    let Replicated { begun: Begun { store, head, server }, replicas, .. } = &mut replicated;
    *head = takes(store, 9);
    assert_eq!(store.figures().healed_batches, 0);
    assert!(store.figures().redo_bytes > 0);
    wait(store.meet(true)).unwrap();
    assert!(store.figures().redo_bytes > 0, "no replica has it");
    replicas[0].signal("-CONT");
    meets_until(store, "the replica has it", || store.figures().redo_bytes == 0);
    assert_eq!(replicas[0].seq(), server.seq());
}

/// The primary restarts from an older file; its replica follows it there and is then missing. What is played again is only
/// on the primary, although a replica had it before.
#[test]
fn what_is_played_again_without_the_replica_is_on_the_disk_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut replicated) = Replicated::new(1, |options| degrading(options, directory.path())) else { return };
    for n in 0..6 {
        replicated.begun.commit(vec![put(&format!("10.0.0.{n}"), 5 + n, None)]).unwrap();
    }
    let () = replicated.begun.server.ask(&["SAVE"]);
    let saved = replicated.begun.head.seq.0;
    for n in 6..9 {
        replicated.begun.commit(vec![put(&format!("10.0.0.{n}"), 5 + n, None)]).unwrap();
    }
    assert_eq!((replicated.replicas[0].seq(), replicated.begun.store.figures().redo_bytes), (saved + 3, 0));
    // Until then nobody can reach it.
    let mut nobody = Server::start(&[]).unwrap();
    nobody.kill();
    replicated.front.switch(&nobody);
    replicated.begun.server.kill();
    replicated.begun.server.begin();
    until("the replica follows", || replicated.replicas[0].seq() == saved);
    replicated.cut_off(0);
    replicated.front.switch(&replicated.begun.server);
    insists(&mut replicated.begun, vec![put("10.0.0.9", 14, None)]);
    assert_eq!(replicated.begun.store.figures().healed_batches, 3);
    let before = replicated.begun.head;
    replicated.promote();
    assert_eq!(replicated.replicas[0].seq(), saved);
    replicated.switch();
    let mut replicated = next_process(replicated, directory.path());
    let head = takes(&replicated.begun.store, 9);
    assert_eq!((head.seq, head.digest), (before.seq, before.digest));
    replicated.begun.head = head;
    assert_eq!(replicated.begun.held().len(), 10);
}

/// Ten changes that a primary and the first of two replicas have, while both replicas are wanted.
fn without_the_second(directory: &Path) -> Option<Replicated> {
    let settle = |options| RedisOptions { replicas: 2, ..degrading(options, directory) };
    let mut replicated = Replicated::new(2, settle)?;
    replicated.cut_off(1);
    for n in 0..10 {
        insists(&mut replicated.begun, vec![put(&format!("10.0.0.{n}"), 5 + n, None)]);
    }
    let seq = replicated.begun.head.seq.0;
    until("the first replica has it", || replicated.replicas[0].seq() == seq);
    Some(replicated)
}

/// Primary and first replica, which have what the second one lacks, are gone.
fn only_the_second_is_left(replicated: &mut Replicated) {
    replicated.begun.server.kill();
    replicated.replicas[0].kill();
    let second = &replicated.replicas[1];
    second.signal("-CONT");
    let () = second.ask(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(second.seq(), 1);
    replicated.front.switch(second);
}

/// The disk stands in for a replica for what another owner went on from; only what that owner lacks is put aside.
#[test]
fn what_another_owner_went_on_from_stays_on_the_disk_when_the_rest_is_put_aside() {
    for in_one_process in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let Some(mut replicated) = without_the_second(directory.path()) else { return };
        let before = replicated.begun.head;
        replicated.cut_off(0);
        for n in 0..10 {
            insists(&mut replicated.begun, vec![put(&format!("10.0.1.{n}"), 100 + n, None)]);
        }
        replicated.promote();
        replicated.replicas[0].lapse();
        let other = replicated.replicas[0].open().unwrap();
        let head = takes(&other, 9);
        assert_eq!(head.seq, before.seq);
        wait(other.commit([batch(&head, 0, vec![put("10.0.1.1", 300, None)])].into())).unwrap();
        replicated.switch();
        let store = &replicated.begun.store;
        let fenced = insist(|| wait(store.release()), |ended| !matches!(ended, Err(StoreError::Io { .. })));
        assert!(matches!(fenced, Ok(()) | Err(StoreError::Fenced { .. })), "{fenced:?}");
        until("it is looked at", || wait(store.review()).is_ok());
        let late = || replicated.begun.store.late().iter().map(|late| late.batches.len()).collect::<Vec<_>>();
        assert_eq!(late(), [10]);
        drop(other);
        only_the_second_is_left(&mut replicated);
        if !in_one_process {
            replicated = next_process(replicated, directory.path());
        }
        let head = takes(&replicated.begun.store, 10);
        assert_eq!((head.seq, head.digest), (before.seq, before.digest), "in one process: {in_one_process}");
        replicated.begun.head = head;
        assert_eq!((replicated.begun.held().len(), replicated.begun.store.figures().healed_batches), (10, 10));
        assert_eq!(replicated.begun.store.late().len(), 1);
    }
}

#[test]
fn what_a_fork_is_built_on_stays_on_the_disk_when_the_tenure_ends() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut replicated) = without_the_second(directory.path()) else { return };
    let before = replicated.begun.head;
    forked(&replicated).0.unwrap();
    taken_back(&replicated);
    let store = &replicated.begun.store;
    let fenced = insist(|| wait(store.renew()), |ended| !matches!(ended, Err(StoreError::Io { .. })));
    assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    assert!(store.late().is_empty());
    only_the_second_is_left(&mut replicated);
    let mut replicated = next_process(replicated, directory.path());
    let head = takes(&replicated.begun.store, 9);
    assert_eq!((head.seq, head.digest), (before.seq, before.digest));
    replicated.begun.head = head;
    assert_eq!(replicated.begun.held().len(), 10);
}

/// That the replicas have everything says nothing about changes that the register no longer has. That holds on both lines:
/// that of the previous owner, which had them, and one of which it is not yet known whether it owns the register.
#[test]
fn the_file_is_not_emptied_before_what_the_owner_of_now_lacks_is_put_aside() {
    for lets_go in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let Some(mut replicated) = begun(directory.path(), |options| options) else { return };
        let store = &replicated.begun.store;
        if lets_go {
            wait(store.release()).unwrap();
            let second = replicated.begun.server.open().unwrap();
            takes(&second, 8);
            until("it is looked at", || wait(store.review()).is_ok());
            assert!(store.late().is_empty());
        }
        replicated.promote();
        replicated.replicas[0].lapse();
        let third = replicated.replicas[0].open().unwrap();
        let head = takes(&third, 9);
        wait(third.commit([batch(&head, 0, vec![put("10.0.1.1", 300, None)])].into())).unwrap();
        let replica = Server::start(&["--repl-diskless-sync-delay", "0"]).unwrap();
        replica.follow(&replicated.replicas[0]);
        replicated.switch();
        let store = &replicated.begun.store;
        for _ in 0..10 {
            until("it is reached", || wait(store.meet(true)).is_ok());
            assert!(store.figures().redo_bytes > 0, "let go: {lets_go}");
        }
        assert!(store.late().is_empty());
        let _fenced = wait(store.release());
        until("it is looked at", || wait(store.review()).is_ok());
        assert_eq!(store.late().iter().map(|late| late.batches.len()).collect::<Vec<_>>(), [20]);
        meets_until(store, "it is emptied", || store.figures().redo_bytes == 0);
    }
}
