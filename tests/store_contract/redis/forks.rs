//! A failover that is undone. The earlier primary has a batch of which nobody knew, while the shard was taken anew on the
//! other server, from before that batch. If no client was told of anything that is missing now, only the tenure is over;
//! what a client was told of is put aside.

use allod::store::redis::{RedisOptions, RedisStore};

use super::replicated::{Front, Replicated};
use super::*;
use crate::crash::until;

/// Asks again and again while the store is not reached, in doubt, or lacks its replica.
pub fn insist<T: std::fmt::Debug, E: std::fmt::Debug>(
    ask: impl Fn() -> Result<T, E>,
    is_definite: impl Fn(&Result<T, E>) -> bool,
) -> Result<T, E> {
    for _ in 0..400 {
        let answer = ask();
        if is_definite(&answer) {
            return answer;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("never: {:?}", ask());
}

fn take(store: &RedisStore, shard: ShardId, with: Token) -> Result<Head, StoreError> {
    insist(|| wait(store.take(shard, with)), |answer| !matches!(answer, Err(StoreError::Io { .. })))
}

fn commit(store: &RedisStore, batch: &Batch) -> Result<Vec<Committed>, CommitError> {
    let again = |answer: &Result<_, CommitError>| {
        matches!(answer, Err(CommitError::NotApplied { cause: StoreError::Io { .. } } | CommitError::Unknown { .. }))
    };
    insist(|| wait(store.commit([batch.clone()].into())), |answer| !again(answer))
}

/// The primary has read a batch but not carried it out when the other server takes its place, where the shard is taken anew.
/// Returns the result of that, and the batch.
pub fn forked(replicated: &Replicated) -> (Result<Head, StoreError>, Batch) {
    let Replicated { begun, replicas, front } = replicated;
    let unknown = batch(&begun.head, 0, vec![put("10.0.1.1", 50, None)]);
    begun.server.signal("-STOP");
    let answer = wait(begun.store.commit([unknown.clone()].into()));
    assert!(matches!(answer, Err(CommitError::Unknown { .. })), "{answer:?}");
    let () = replicas[0].ask(&["REPLICAOF", "NO", "ONE"]);
    front.switch(&replicas[0]);
    until("it is taken anew", || {
        // Without a replica the take-over does not count if one is wanted.
        let taken = wait(begun.store.take(ShardId(0), token(2)));
        taken.is_ok()
            || replicas[0].ask::<String>(&["HGET", "{allod}:0:head", "token"]) == format!("{:032x}", token(2).0)
    });
    (wait(begun.store.take(ShardId(0), token(2))), unknown)
}

/// The earlier primary is the primary again, and has the batch.
pub fn taken_back(replicated: &Replicated) {
    let Replicated { begun, front, .. } = replicated;
    let before = begun.head.seq.0;
    begun.server.signal("-CONT");
    until("it has carried out what it had read", || begun.server.seq() == before + 1);
    front.switch(&begun.server);
}

fn begun(replicas: u32, heal_bytes: usize) -> Option<Replicated> {
    let settle = |options| RedisOptions { replicas, heal_bytes, ..options };
    let mut replicated = Replicated::new(1, settle)?;
    for n in 0..5 {
        replicated.begun.commit(vec![put(&format!("10.0.0.{n}"), 5 + n, None)]).unwrap();
    }
    let seq = replicated.begun.head.seq.0;
    until("the replica has it", || replicated.replicas[0].seq() == seq);
    Some(replicated)
}

#[test]
fn where_nobody_was_told_of_what_a_fork_left_behind_only_the_tenure_ends() {
    // With and without waiting for a replica, with and without keeping changes; in parallel, since each mostly waits.
    std::thread::scope(|all| {
        for (wanted, heal_bytes) in [(0, 64 << 20), (1, 64 << 20), (0, 0), (1, 0)] {
            all.spawn(move || only_the_tenure_ends(wanted, heal_bytes));
        }
    });
}

fn only_the_tenure_ends(wanted: u32, heal_bytes: usize) {
    let Some(replicated) = begun(wanted, heal_bytes) else { return };
    let (taken, unknown) = forked(&replicated);
    assert_eq!(taken.is_ok(), wanted == 0, "{taken:?}");
    taken_back(&replicated);
    let Replicated { begun, replicas, .. } = &replicated;
    replicas[0].follow(&begun.server);
    // Every request under the token of that tenure is refused: a change, a proof, the lease, the shard itself.
    let (epoch, token_before) = (Epoch(2), token(2));
    let next = Batch { epoch, token: token_before, ..unknown.clone() };
    let fenced = commit(&begun.store, &next);
    assert!(matches!(fenced, Err(CommitError::Fenced { current: Epoch(1), .. })), "{fenced:?}");
    let name = (ShardId(0), token_before, begun.head.seq, begun.head.digest);
    let again = |answer: &Result<_, CommitError>| {
        matches!(answer, Err(CommitError::NotApplied { .. } | CommitError::Unknown { .. }))
    };
    let fenced = insist(|| wait(begun.store.confirm(vec![name])), |answer| !again(answer));
    assert!(matches!(fenced, Err(CommitError::Fenced { .. })), "{fenced:?}");
    let reached = |answer: &Result<_, StoreError>| !matches!(answer, Err(StoreError::Io { .. }));
    let fenced = insist(|| wait(begun.store.renew()), reached);
    assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{fenced:?}");
    for again in [2, 3] {
        let fenced = take(&begun.store, ShardId(0), token(again));
        assert!(matches!(fenced, Err(StoreError::Fenced { .. })), "{again}: {fenced:?}");
    }
    // The next tenure has everything, including the batch of which nobody knew.
    wait(begun.store.release()).ok();
    let head = take(&begun.store, ShardId(0), token(4)).unwrap();
    assert_eq!((head.epoch, head.seq), (Epoch(2), unknown.seq));
    let image = wait(begun.store.load(ShardId(0), token(4))).unwrap();
    assert_eq!(image.networks[0].entries.len(), 6);
    let after = batch(&head, 0, vec![put("10.0.1.2", 60, None)]);
    commit(&begun.store, &after).unwrap();
    assert_eq!(wait(begun.store.history(ShardId(0), begun.head.seq, 9)).unwrap(), [unknown, after]);
    assert_eq!((begun.store.health(), begun.store.figures().healed_batches), (StoreHealth::Ready, 0));
}

/// A client was told something under the take-over that is gone: with a change, which is given back as a claim, or without
/// one, which then took nothing. The negative control: where changes are not kept, nobody knows what is missing.
#[test]
fn what_somebody_was_told_of_and_a_fork_left_behind_is_put_aside_and_where_it_is_forgotten_the_store_stops() {
    for (changes, heal_bytes) in [(true, 64 << 20), (false, 64 << 20), (false, 0), (true, 0)] {
        let Some(replicated) = begun(0, heal_bytes) else { return };
        let (taken, unknown) = forked(&replicated);
        let head = taken.unwrap();
        let store = &replicated.begun.store;
        let next = batch(&head, 0, vec![put("10.0.1.9", 70, None)]);
        if changes {
            commit(store, &next).unwrap();
        } else {
            let name = (ShardId(0), head.token, head.seq, head.digest);
            wait(store.confirm(vec![name])).unwrap();
        }
        taken_back(&replicated);
        let later = Batch { seq: Seq(unknown.seq.0 + u64::from(changes)), ..next.clone() };
        let refused = commit(store, &later);
        if changes && heal_bytes == 0 {
            let Err(CommitError::NotApplied { cause: StoreError::Damaged(problem) }) = refused else {
                panic!("{refused:?}")
            };
            assert!(problem.contains("went back"), "{problem}");
            assert_eq!(store.health(), StoreHealth::Failed);
            continue;
        }
        // The tenure is over; the next one begins with what is there.
        assert!(matches!(refused, Err(CommitError::Fenced { current: Epoch(1), .. })), "{refused:?}");
        wait(store.release()).ok();
        let head = take(store, ShardId(0), token(4)).unwrap();
        assert_eq!((head.epoch, head.seq), (Epoch(2), unknown.seq));
        let late: Vec<Vec<Batch>> = store.late().iter().map(|late| late.batches.clone()).collect();
        assert_eq!(late, if changes { vec![vec![next]] } else { Vec::new() });
        let image = wait(store.load(ShardId(0), token(4))).unwrap();
        assert_eq!(image.networks[0].entries.len(), 6, "the batch of which nobody knew is there");
        commit(store, &batch(&head, 0, vec![put("10.0.1.2", 60, None)])).unwrap();
        assert_eq!((store.health(), store.figures().healed_batches), (StoreHealth::Ready, 0));
    }
}

/// Changes of several shards go as one call. On the fork, one shard may lack what was acknowledged, while the other does
/// not.
#[test]
fn of_a_fork_of_two_shards_is_put_aside_what_one_lacks_and_the_other_goes_on() {
    let Some(replicated) = begun(0, 64 << 20) else { return };
    let Replicated { begun, replicas, front } = &replicated;
    let (store, other) = (&begun.store, ShardId(1));
    let mut second = wait(store.take(other, token(11))).unwrap();
    let made = batch(&second, 1, vec![config_step(network(2))]);
    let committed = wait(store.commit([made.clone()].into())).unwrap();
    follow(&mut second, &made, &committed[0]);
    until("the replica has it", || {
        replicas[0].ask::<Option<String>>(&["HGET", "{allod}:1:head", "seq"]) == Some("1".to_owned())
    });
    let unknown = batch(&begun.head, 0, vec![put("10.0.1.1", 50, None)]);
    let with_it = batch(&second, 1, vec![put("10.9.0.1", 51, None)]);
    begun.server.signal("-STOP");
    let answer = wait(store.commit([unknown.clone(), with_it].into()));
    assert!(matches!(answer, Err(CommitError::Unknown { .. })), "{answer:?}");
    let () = replicas[0].ask(&["REPLICAOF", "NO", "ONE"]);
    front.switch(&replicas[0]);
    let head = take(store, ShardId(0), token(2)).unwrap();
    take(store, other, token(12)).unwrap();
    let next = batch(&head, 0, vec![put("10.0.1.9", 70, None)]);
    commit(store, &next).unwrap();
    taken_back(&replicated);
    let later = Batch { seq: Seq(next.seq.0 + 1), ..next.clone() };
    let refused = commit(store, &later);
    assert!(matches!(refused, Err(CommitError::Fenced { current: Epoch(1), .. })), "{refused:?}");
    // Before anything else is asked: no other node has it.
    let late = || store.late().iter().map(|late| late.batches.clone()).collect::<Vec<_>>();
    assert_eq!(late(), [[next.clone()]]);
    wait(store.release()).ok();
    for (shard, with, entries) in [(ShardId(0), 4, 6), (other, 14, 1)] {
        take(store, shard, token(with)).unwrap();
        assert_eq!(wait(store.load(shard, token(with))).unwrap().networks[0].entries.len(), entries);
    }
    assert_eq!((late(), store.health()), (vec![vec![next]], StoreHealth::Ready));
}

/// The next owner waits for no lease, except at most for that of the shard that was cut off.
#[test]
fn who_lets_go_ends_the_leases_of_the_shards_that_were_not_cut_off() {
    let Some(replicated) = begun(0, 64 << 20) else { return };
    let Replicated { begun, replicas, .. } = &replicated;
    let (store, other) = (&begun.store, ShardId(1));
    wait(store.take(other, token(11))).unwrap();
    until("the replica has it", || {
        replicas[0].ask::<String>(&["HGET", "{allod}:1:head", "token"]) == format!("{:032x}", token(11).0)
    });
    forked(&replicated).0.unwrap();
    taken_back(&replicated);
    let reached = |answer: &Result<_, StoreError>| !matches!(answer, Err(StoreError::Io { .. }));
    let fenced = insist(|| wait(store.renew()), reached);
    assert!(matches!(fenced, Err(StoreError::Fenced { shard: ShardId(0), .. })), "{fenced:?}");
    wait(store.release()).unwrap();
    let next = begun.server.open().unwrap();
    wait(next.take(other, token(12))).unwrap();
}

/// While somebody looks on one server, the change is acknowledged on the other one, where the shard was taken anew.
#[test]
fn what_is_acknowledged_while_a_line_is_about_to_be_cut_off_is_not_cut_off_in_silence() {
    let Some(replicated) = begun(0, 64 << 20) else { return };
    let (taken, unknown) = forked(&replicated);
    let head = taken.unwrap();
    let Replicated { begun, replicas, front } = &replicated;
    let (store, next) = (&begun.store, batch(&head, 0, vec![put("10.0.1.9", 70, None)]));
    // So that the connection that commits reaches that server, too.
    assert!(matches!(commit(store, &unknown), Err(CommitError::Fenced { .. })));
    replicas[0].signal("-STOP");
    let under_way = store.commit([next].into());
    begun.server.signal("-CONT");
    until("it has carried out what it had read", || begun.server.seq() == unknown.seq.0);
    front.hold_up(&begun.server, 1);
    front.turn(&begun.server);
    let looks = store.load(ShardId(0), head.token);
    until("its head is looked at for the second time", || front.holds_somebody_up());
    replicas[0].signal("-CONT");
    let acknowledged = wait(under_way);
    front.lets_go();
    wait(looks).unwrap_err();
    // Either no client was told of it, or it is put aside.
    insist(|| wait(store.load(ShardId(0), head.token)), |loaded| !matches!(loaded, Err(StoreError::Io { .. })))
        .unwrap_err();
    front.switch(&begun.server);
    wait(store.release()).ok();
    take(store, ShardId(0), token(4)).unwrap();
    assert_eq!(store.late().len(), usize::from(acknowledged.is_ok()), "{acknowledged:?}");
    assert_eq!(store.health(), StoreHealth::Ready);
}

/// A batch that was sent but never arrived anywhere does not stand in the way of what was done after it.
#[test]
fn a_take_over_that_was_lost_is_repeated_past_a_batch_that_never_arrived() {
    let Some(replicated) = begun(0, 64 << 20) else { return };
    let (taken, _) = forked(&replicated);
    taken.unwrap();
    let Replicated { mut begun, replicas, front } = replicated;
    // The batch is gone for good: the next server is where the shard was taken anew, and never heard of it.
    let third = Server::start(&[]).unwrap();
    third.follow(&replicas[0]);
    let () = third.ask(&["REPLICAOF", "NO", "ONE"]);
    for (field, value) in [("epoch", "1"), ("token", &format!("{:032x}", token(1).0))] {
        let _: u64 = third.ask(&["HSET", "{allod}:0:head", field, value]);
    }
    begun.server.kill();
    front.switch(&third);
    let head = Head { epoch: Epoch(2), token: token(2), ..begun.head };
    let next = batch(&head, 0, vec![put("10.0.1.9", 70, None)]);
    commit(&begun.store, &next).unwrap();
    let there: String = third.ask(&["HGET", "{allod}:0:head", "epoch"]);
    assert_eq!((there.as_str(), third.seq()), ("2", next.seq.0));
    assert_eq!(begun.store.health(), StoreHealth::Ready);
}

/// A take-over from another owner is lost before any client was told anything under it, and the other owner goes on.
#[test]
fn where_the_owner_before_goes_on_because_a_take_over_was_lost_only_the_tenure_ends() {
    for told in [false, true] {
        let Some(replicated) = begun(0, 64 << 20) else { return };
        let Replicated { begun, replicas, front } = &replicated;
        let shard = ShardId(1);
        let way = Front::to(&begun.server);
        let before = RedisStore::open(RedisOptions {
            url: format!("redis://127.0.0.1:{}/", way.port),
            ..begun.server.options()
        })
        .unwrap();
        let first = wait(before.take(shard, token(7))).unwrap();
        let made = batch(&first, 1, vec![config_step(network(2))]);
        let committed = wait(before.commit([made.clone()].into())).unwrap();
        let mut head = first;
        follow(&mut head, &made, &committed[0]);
        until("the replica has it", || {
            replicas[0].ask::<Option<String>>(&["HGET", "{allod}:1:head", "seq"]) == Some("1".to_owned())
        });
        replicated.cut_off(0);
        begun.server.leases_ran_out();
        let taken = wait(begun.store.take(shard, token(8))).unwrap();
        assert_eq!((taken.epoch, taken.seq), (Epoch(2), head.seq));
        if told {
            wait(begun.store.confirm(vec![(shard, taken.token, taken.seq, taken.digest)])).unwrap();
        }
        begun.server.signal("-STOP");
        replicas[0].signal("-CONT");
        let () = replicas[0].ask(&["REPLICAOF", "NO", "ONE"]);
        way.switch(&replicas[0]);
        let next = batch(&head, 1, vec![put("10.9.0.1", 9, None)]);
        commit(&before, &next).unwrap();
        front.switch(&replicas[0]);
        let mine = batch(&taken, 1, vec![put("10.9.0.2", 10, None)]);
        let refused = commit(&begun.store, &mine);
        assert!(matches!(refused, Err(CommitError::Fenced { current: Epoch(1), .. })), "{refused:?}");
        wait(begun.store.release()).ok();
        replicas[0].leases_ran_out();
        let head = take(&begun.store, shard, token(9)).unwrap();
        assert_eq!((head.epoch, head.seq), (Epoch(2), next.seq));
        assert_eq!(begun.store.health(), StoreHealth::Ready);
        // An answer without a change took nothing that could be missing.
        assert!(begun.store.late().is_empty());
    }
}
