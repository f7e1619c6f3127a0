//! A change is acknowledged once as many replicas as wanted have it, and meanwhile nothing holds up the next one.

use allod::store::redis::RedisOptions;

use super::replicated::Replicated;
use super::*;
use crate::crash::until;

/// A store that waits for so many of its replicas.
fn waiting(replicas: usize, wanted: u32) -> Option<Replicated> {
    Replicated::new(replicas, |options| RedisOptions { replicas: wanted, ..options })
}

fn unknown<T: std::fmt::Debug>(answer: Result<T, CommitError>) -> String {
    let Err(CommitError::Unknown { cause: StoreError::Io { source, .. } }) = answer else { panic!("{answer:?}") };
    source.to_string()
}

#[test]
fn what_is_acknowledged_is_at_every_replica() {
    let Some(Replicated { mut begun, replicas, .. }) = waiting(2, 2) else { return };
    for n in 0..100 {
        begun.commit(vec![put(&format!("10.0.0.{n}"), 5, None)]).unwrap();
        for replica in &replicas {
            assert_eq!(replica.seq(), begun.head.seq.0);
        }
    }
    assert!(begun.store.info().durability.contains("2 replicas must"), "{}", begun.store.info().durability);
    let figures = begun.store.figures();
    assert_eq!((figures.replicas_wanted, figures.replicas_answering), (2, 2));
}

/// The negative control of the test above: without waiting, a stopped replica hinders nothing.
#[test]
fn where_none_is_waited_for_a_change_is_acknowledged_that_no_replica_has() {
    let Some(mut replicated) = waiting(1, 0) else { return };
    replicated.cut_off(0);
    let Replicated { begun, replicas, .. } = &mut replicated;
    begun.commit(vec![put("10.0.0.1", 5, None)]).unwrap();
    begun.server.kill();
    replicas[0].signal("-CONT");
    assert!(replicas[0].seq() < begun.head.seq.0);
}

#[test]
fn with_too_few_replicas_nothing_is_acknowledged_until_they_are_there() {
    let Some(Replicated { mut begun, replicas, .. }) = waiting(1, 1) else { return };
    replicas[0].signal("-STOP");
    let next = batch(&begun.head, 0, vec![put("10.0.0.1", 5, None)]);
    assert_eq!(unknown(wait(begun.store.commit([next.clone()].into()))), "1 replicas wanted, 0 answer");
    assert_eq!(begun.store.health(), StoreHealth::Hindered);
    assert_eq!(&*begun.store.obstacle(), "1 replicas wanted, 0 answer");
    // The change is in Redis all the same, and the same bytes find it there. Without the replica, neither an empty proof nor
    // a take-over counts.
    assert_eq!(unknown(wait(begun.store.commit([next.clone()].into()))), "1 replicas wanted, 0 answer");
    let name = (ShardId(0), begun.head.token, begun.head.seq, begun.head.digest);
    assert_eq!(unknown(wait(begun.store.confirm(vec![name]))), "1 replicas wanted, 0 answer");
    assert!(matches!(wait(begun.store.take(ShardId(1), token(2))), Err(StoreError::Io { .. })));
    replicas[0].signal("-CONT");
    let committed = wait(begun.store.commit([next.clone()].into())).unwrap();
    follow(&mut begun.head, &next, &committed[0]);
    assert_eq!(begun.store.health(), StoreHealth::Ready);
    assert_eq!(replicas[0].seq(), begun.head.seq.0);
    wait(begun.store.take(ShardId(1), token(2))).unwrap();
}

#[test]
fn the_next_batch_is_committed_while_one_waits_for_its_replica() {
    let Some(Replicated { begun, replicas, .. }) = waiting(1, 1) else { return };
    replicas[0].signal("-STOP");
    let first = batch(&begun.head, 0, vec![put("10.0.0.1", 5, None)]);
    let mut head = begun.head;
    head.seq = first.seq;
    head.time = first.time;
    head.generation = first.generation;
    let second = batch(&head, 0, vec![put("10.0.0.2", 6, None)]);
    let answers = [first.clone(), second.clone()].map(|batch| {
        let answer = begun.store.commit([batch].into());
        std::thread::spawn(|| wait(answer))
    });
    until("the second is in Redis", || begun.server.seq() == second.seq.0);
    assert!(!answers[0].is_finished(), "the second waits for the first one's replica");
    replicas[0].signal("-CONT");
    for (answer, batch) in answers.into_iter().zip([first, second]) {
        assert_eq!(answer.join().unwrap().unwrap()[0].seq, batch.seq);
    }
}

/// The connection is cut between a commit and its confirmation: nobody knows what the server behind the new connection has.
#[test]
fn a_connection_that_is_replaced_before_the_confirmation_leaves_the_outcome_unknown() {
    let Some(Replicated { mut begun, replicas, .. }) = waiting(1, 1) else { return };
    replicas[0].signal("-STOP");
    let next = batch(&begun.head, 0, vec![put("10.0.0.1", 5, None)]);
    let answer = begun.store.commit([next.clone()].into());
    until("it is in Redis", || begun.server.seq() == next.seq.0);
    let _: u64 = begun.server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    replicas[0].signal("-CONT");
    unknown(wait(answer));
    let committed = loop {
        match wait(begun.store.commit([next.clone()].into())) {
            Ok(committed) => break committed,
            Err(CommitError::Unknown { .. } | CommitError::NotApplied { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    };
    follow(&mut begun.head, &next, &committed[0]);
    assert_eq!(wait(begun.store.history(ShardId(0), Seq(1), 10)).unwrap(), [next]);
}

/// A primary that became a replica proves nothing, although it still has everything.
#[test]
fn a_primary_that_became_a_replica_proves_nothing() {
    for wanted in [0, 1] {
        let Some(Replicated { begun, replicas, .. }) = waiting(1, wanted) else { return };
        let name = (ShardId(0), begun.head.token, begun.head.seq, begun.head.digest);
        wait(begun.store.confirm(vec![name])).unwrap();
        let () = replicas[0].ask(&["REPLICAOF", "NO", "ONE"]);
        begun.server.follow(&replicas[0]);
        assert!(wait(begun.store.confirm(vec![name])).is_err(), "{wanted}");
    }
}
