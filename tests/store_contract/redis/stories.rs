//! The stories of and R-4 (`allod::consistency`) on a real server; the fence and the expectations are the answer to
//! them.

use std::collections::HashMap;
use std::sync::Arc;

use super::*;

/// Batch 41 is still queued on the old socket when its owner gives up waiting. It may run later, but nothing else may run in
/// its name.
#[test]
fn a_batch_that_arrives_late_changes_nothing_once_the_shard_was_taken_anew() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let late = batch(&begun.head, 0, vec![put("10.0.0.7", 5, None)]);
    // The outcome is unknown, so the owner takes the shard anew before it reads, and writes another batch with that number.
    begun.head = wait(begun.store.take(ShardId(0), token(2))).unwrap();
    assert_eq!(begun.head.seq.0 + 1, late.seq.0);
    begun.commit(vec![put("10.0.0.7", 6, None)]).unwrap();
    let refused = wait(begun.store.commit([late].into()));
    assert!(matches!(refused, Err(CommitError::Fenced { current: Epoch(2), .. })), "{refused:?}");
    assert_eq!(begun.load()[&(network(1), put("10.0.0.7", 0, None).key)], State::Entry(entry(6, 32)));
}

#[test]
fn an_answer_that_does_not_come_is_unknown_and_the_same_bytes_settle_it() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let next = batch(&begun.head, 0, vec![put("10.0.0.7", 5, None)]);
    let () = begun.server.ask(&["CLIENT", "PAUSE", "2200"]);
    let batches: Arc<[Batch]> = [next.clone()].into();
    let first = wait(begun.store.commit(Arc::clone(&batches)));
    assert!(matches!(first, Err(CommitError::Unknown { .. })), "{first:?}");
    // The bytes are still queued at the server, on the connection that was given up. They run, but only once.
    let committed = loop {
        match wait(begun.store.commit(Arc::clone(&batches))) {
            Ok(committed) => break committed,
            Err(CommitError::Unknown { .. } | CommitError::NotApplied { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    };
    follow(&mut begun.head, &next, &committed[0]);
    assert_eq!(wait(begun.store.history(ShardId(0), Seq(1), 10)).unwrap(), [next]);
    assert_eq!(begun.held().len(), 1);
}

/// A failover goes back to a replica with the old epoch, so two nodes hold the same number.
#[test]
fn the_token_fences_where_the_epoch_went_back() {
    let Some(begun) = Begun::new(&[]) else { return };
    begun.server.leases_ran_out();
    let before: HashMap<String, String> = begun.server.ask(&["HGETALL", "{allod}:0:head"]);
    begun.server.lapse();
    let mut other = begun.server.open().map(|store| (wait(store.take(ShardId(0), token(2))).unwrap(), store)).unwrap();
    assert_eq!(other.0.epoch, Epoch(2));
    // The server is as it was before that take-over. A third node takes the shard and gets the same epoch.
    for (field, value) in &before {
        let _: u64 = begun.server.ask(&["HSET", "{allod}:0:head", field, value]);
    }
    begun.server.lapse();
    let third = begun.server.open().unwrap();
    let head = wait(third.take(ShardId(0), token(3))).unwrap();
    assert_eq!(head.epoch, other.0.epoch);
    let forged = batch(&other.0, 0, vec![put("10.0.0.7", 5, None)]);
    let refused = wait(other.1.commit([forged].into()));
    assert!(matches!(refused, Err(CommitError::Fenced { .. })), "{refused:?}");
    other.0 = head;
    let good = batch(&head, 0, vec![put("10.0.0.7", 6, None)]);
    wait(third.commit([good].into())).unwrap();
}

/// A paused owner wakes: before it answers without a write, it must prove that it is still the owner.
#[test]
fn an_owner_that_was_replaced_cannot_prove_that_it_is_one() {
    let Some(begun) = Begun::new(&[]) else { return };
    let name = (ShardId(0), begun.head.token, begun.head.seq, begun.head.digest);
    wait(begun.store.confirm(vec![name])).unwrap();
    begun.server.leases_ran_out();
    let other = begun.server.open().unwrap();
    begun.server.lapse();
    wait(other.take(ShardId(0), token(2))).unwrap();
    let refused = wait(begun.store.confirm(vec![name]));
    assert!(matches!(refused, Err(CommitError::Fenced { current: Epoch(2), .. })), "{refused:?}");
}

#[test]
fn a_batch_further_back_on_the_line_is_confirmed_and_another_line_is_not() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let first = begun.head;
    begun.commit(vec![put("10.0.0.7", 5, None)]).unwrap();
    let name = |seq, digest| (ShardId(0), begun.head.token, seq, digest);
    wait(begun.store.confirm(vec![name(first.seq, first.digest)])).unwrap();
    for wrong in
        [name(first.seq, begun.head.digest), name(Seq(3), begun.head.digest), name(begun.head.seq, first.digest)]
    {
        assert!(matches!(wait(begun.store.confirm(vec![wrong])), Err(CommitError::Fenced { .. })));
    }
}

/// A full pool: the release of .5 and the grant of .5 meet in one batch.
#[test]
fn a_release_and_a_grant_of_one_address_are_one_operation() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    begun.commit(vec![put("10.0.0.5", 5, None), put("10.0.0.6", 6, None), put("2001:db8::5", 7, None)]).unwrap();
    let steps = vec![
        gone("10.0.0.5", 5),
        put("10.0.0.5", 8, None),
        gone("10.0.0.5", 8),
        put("10.0.0.5", 9, None),
        // Granted and released within the batch: only that nothing was there before is compared.
        put("10.0.0.9", 10, None),
        gone("10.0.0.9", 10),
        gone("2001:db8::5", 7),
        put("2001:db8::5", 11, None),
        gone("10.0.0.6", 6),
    ];
    begun.commit(steps.clone()).unwrap();
    let marks: Vec<u64> = begun.load().values().map(State::mark).collect();
    assert_eq!(marks, [1, 9, 11]);
    // The history keeps every step.
    assert_eq!(wait(begun.store.history(ShardId(0), Seq(2), 10)).unwrap()[0].acts[0].steps, steps);
    // And an address that was only held within the batch must have been free.
    let refused = begun.commit(vec![put("10.0.0.5", 12, None), gone("10.0.0.5", 12)]);
    assert!(matches!(refused, Err(CommitError::Mismatch { expected: None, found: Some(9), .. })), "{refused:?}");
}

#[test]
fn steps_of_one_batch_that_do_not_fit_together_are_refused() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let refused = begun.commit(vec![put("10.0.0.5", 5, None), put("10.0.0.5", 6, None)]);
    assert!(matches!(refused, Err(CommitError::Mismatch { expected: None, found: Some(5), .. })), "{refused:?}");
    assert!(begun.held().is_empty());
}

#[test]
fn a_mismatch_names_what_is_there_and_writes_nothing() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    begun.commit(vec![put("10.0.0.5", 1 << 40, None), put("2001:db8::5", 6, None)]).unwrap();
    let before = begun.load();
    for (step, expected, found) in [
        (put("10.0.0.5", 9, None), None, Some(1 << 40)),
        (gone("10.0.0.5", 9), Some(9), Some(1 << 40)),
        (gone("10.0.0.6", 9), Some(9), None),
        (put("2001:db8::5", 9, None), None, Some(6)),
        (gone("2001:db8::6", 9), Some(9), None),
        (config_step(network(1)), None, Some(1)),
        // A mark that begins with the bytes of another one.
        (gone("10.0.0.5", 0), Some(0), Some(1 << 40)),
    ] {
        let key = step.key;
        // After good steps, to detect a store that writes before it has checked everything.
        match begun.commit(vec![put("10.0.0.4", 8, None), put("2001:db8::4", 8, None), step]) {
            Err(CommitError::Mismatch { shard, seq, network: id, key: at, expected: wanted, found: there }) => {
                assert_eq!((shard, seq.0, id, at), (ShardId(0), begun.head.seq.0 + 1, network(1), key));
                assert_eq!((wanted, there), (expected, found));
            }
            other => panic!("{key:?}: {other:?}"),
        }
        assert_eq!(begun.load(), before);
    }
}

#[test]
fn several_shards_are_committed_together_or_not_at_all() {
    let Some(begun) = Begun::new(&[]) else { return };
    let second = wait(begun.store.take(ShardId(1), token(2))).unwrap();
    let good = batch(&begun.head, 0, vec![put("10.0.0.5", 5, None)]);
    let bad = batch(&second, 1, vec![config_step(network(2)), put("10.0.0.5", 5, Some(4))]);
    for batches in [[good.clone(), bad.clone()], [bad, good]] {
        let refused = wait(begun.store.commit(batches.into()));
        assert!(matches!(refused, Err(CommitError::Mismatch { shard: ShardId(1), .. })), "{refused:?}");
    }
    assert!(begun.held().is_empty());
    assert!(wait(begun.store.history(ShardId(1), Seq(0), 10)).unwrap().is_empty());
}

/// After a doubtful commit an owner takes its shard anew while its lease is being renewed. The renewal belongs to the
/// tenure, not to the token that was current when it was requested.
#[test]
fn a_lease_that_is_renewed_while_its_shard_is_taken_anew_is_not_lost() {
    let Some(begun) = Begun::new(&[]) else { return };
    let again = begun.store.take(ShardId(0), token(2));
    let renewed = begun.store.renew();
    wait(again).unwrap();
    wait(renewed).unwrap();
    let again = begun.store.take(ShardId(0), token(3));
    let released = begun.store.release();
    wait(again).unwrap();
    wait(released).unwrap();
    let lease: String = begun.server.ask(&["HGET", "{allod}:0:head", "lease"]);
    assert_eq!(lease, "0");
}
