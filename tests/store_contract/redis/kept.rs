//! Redis went back while every node lives: the register stays with whoever can give back what is missing, for as long as
//! that takes.

use std::time::Duration;

use super::replicated::{Replicated, until};
use super::*;

/// How far away Redis is while what is missing is played: not so far that nobody could connect to it in time.
const FAR: Duration = Duration::from_millis(150);
/// So many changes take longer than a lease then, also where several are on their way at once.
const LOST: u64 = 800;

#[test]
fn while_what_was_lost_is_played_again_the_lease_is_renewed_and_nobody_else_takes_the_register() {
    let Some(mut replicated) = Replicated::new(1, |options| options) else { return };
    let at = replicated.begun.head.seq.0;
    until("the replica has it", || replicated.replicas[0].seq() == at);
    replicated.cut_off(0);
    for n in 0..LOST {
        replicated.begun.commit(vec![put(&format!("10.0.{}.{}", n / 256, n % 256), 100 + n, None)]).unwrap();
    }
    let seq_before = replicated.begun.head.seq.0;
    replicated.promote();
    // Its lease ran out long ago, as far as whoever is there now knows.
    replicated.replicas[0].leases_ran_out_ago();
    let other = replicated.replicas[0].open().unwrap();
    replicated.front.slow_down(FAR);
    replicated.switch();
    let Replicated { begun: Begun { store, head, .. }, replicas, .. } = &replicated;
    let (mut renewed, mut refused) = (0, 0);
    // Who asks anything has it played.
    let _asked = store.confirm(vec![(ShardId(0), head.token, head.seq, head.digest)]);
    while replicas[0].seq() < seq_before {
        match wait(other.take(ShardId(0), token(9))) {
            Err(StoreError::Held { .. }) => refused += 1,
            other => panic!("it took the register from under the one that gives back what is missing: {other:?}"),
        }
        // As a node does that owns it: within the time after which it would give it up.
        match wait(async { tokio::time::timeout(Duration::from_secs(4), store.renew()).await }) {
            Ok(Ok(())) => renewed += u32::from(replicas[0].seq() < seq_before),
            // Connecting to it anew.
            Ok(Err(StoreError::Io { .. })) => {}
            other => panic!("the lease is not renewed: {other:?}"),
        }
    }
    assert!(renewed > 1 && refused > 1, "nothing was renewed, or nobody tried to take it, while it was played");
    until("it is proved", || wait(store.confirm(vec![(ShardId(0), head.token, head.seq, head.digest)])).is_ok());
    assert_eq!(store.figures().healed_batches, LOST);
    assert_eq!(replicated.begun.held().len() as u64, LOST);
}
