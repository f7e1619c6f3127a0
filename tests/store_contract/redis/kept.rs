//! Redis went back while every node lives: the register stays with the node that can give back what is missing, for as long
//! as that takes.

use std::time::Duration;

use allod::store::redis::RedisOptions;
use allod::store::redis::examine::examine;

use super::replicated::Replicated;
use super::*;
use crate::crash::until;

/// How far away Redis is while missing changes are played again: connections still succeed in time.
const FAR: Duration = Duration::from_millis(150);
/// How many of the batches from which it went on a node remembers.
const LEFT: u64 = 8;
/// More than that.
const PART: u64 = LEFT + 2;
/// At that distance so many changes take longer than a lease, even if several are on their way at once.
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
    // The lease of the first node ran out long ago, as far as this Redis knows.
    replicated.replicas[0].leases_ran_out_ago();
    let other = replicated.replicas[0].open().unwrap();
    replicated.front.slow_down(FAR);
    replicated.switch();
    let Replicated { begun: Begun { store, head, .. }, replicas, .. } = &replicated;
    let (mut renewed, mut refused) = (0, 0);
    // Any request makes the store play them again.
    let _asked = store.confirm(vec![(ShardId(0), head.token, head.seq, head.digest)]);
    while replicas[0].seq() < seq_before {
        match wait(other.take(ShardId(0), token(9))) {
            Err(StoreError::Held { .. }) => refused += 1,
            other => panic!("it took the register from under the one that gives back what is missing: {other:?}"),
        }
        // As an owner does: within the time after which it would give the register up.
        match wait(async { tokio::time::timeout(Duration::from_secs(4), store.renew()).await }) {
            Ok(Ok(())) => renewed += u32::from(replicas[0].seq() < seq_before),
            // It connects anew.
            Ok(Err(StoreError::Io { .. })) => {}
            other => panic!("the lease is not renewed: {other:?}"),
        }
    }
    assert!(renewed > 1 && refused > 1, "nothing was renewed, or nobody tried to take it, while it was played");
    until("it is proved", || wait(store.confirm(vec![(ShardId(0), head.token, head.seq, head.digest)])).is_ok());
    assert_eq!(store.figures().healed_batches, LOST);
    assert_eq!(replicated.begun.held().len() as u64, LOST);
}

/// Asks again if the connection was replaced since it was last used.
fn reached<T>(ask: impl Fn() -> Result<T, StoreError>) -> T {
    for _ in 0..100 {
        match ask() {
            Err(StoreError::Io { .. }) => std::thread::sleep(Duration::from_millis(20)),
            definite => return definite.unwrap(),
        }
    }
    ask().unwrap()
}

/// A node: its store and its tenure.
pub struct Node {
    pub store: RedisStore,
    head: Head,
    n: u64,
}

impl Node {
    fn of(server: &Server, directory: &std::path::Path) -> Self {
        let store =
            RedisStore::open(RedisOptions { directory: Some(directory.to_owned()), ..server.options() }).unwrap();
        Self::new(store)
    }

    pub fn new(store: RedisStore) -> Self {
        Self { store, head: Head::default(), n: 0 }
    }

    pub fn takes(&mut self, n: u128) {
        self.head = wait(self.store.take(ShardId(0), token(n))).unwrap();
        self.n = n as u64;
    }

    /// Grants addresses of its own, and has them acknowledged.
    pub fn grants(&mut self, count: u64) {
        if self.head.seq == Seq(0) {
            self.commits(vec![config_step(network(1))]);
        }
        for _ in 0..count {
            let seq = self.head.seq.0;
            self.commits(vec![put(&format!("10.0.{}.{seq}", self.n), 10 + seq, None)]);
        }
    }

    fn commits(&mut self, steps: Vec<Step>) {
        let next = batch(&self.head, 0, steps);
        let committed = reached(|| match wait(self.store.commit([next.clone()].into())) {
            Err(CommitError::NotApplied { cause } | CommitError::Unknown { cause }) => Err(cause),
            definite => Ok(definite.unwrap()),
        });
        follow(&mut self.head, &next, &committed[0]);
    }

    /// Checks that so many addresses are held; everything before them is remembered, too.
    fn holds(&self, count: u64) {
        let image = reached(|| wait(self.store.load(ShardId(0), self.head.token)));
        assert_eq!(image.head, self.head);
        assert_eq!(wait(self.store.history(ShardId(0), Seq(0), 100)).unwrap().len() as u64, self.head.seq.0);
        assert_eq!(model_of(&image).len() as u64, 1 + count);
    }
}

/// Two nodes over a Redis that comes back in the state in which it was told to save.
fn two() -> Option<(Server, [tempfile::TempDir; 2], Node, Node)> {
    let server = Server::start(&[])?;
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [x, y] = [&directories[0], &directories[1]].map(|directory| Node::of(&server, directory.path()));
    Some((server, directories, x, y))
}

/// Two nodes: the first one had the shard and the second one has it now. Redis was told to save in the middle of what the
/// first one did.
fn handed_over() -> Option<(Server, [tempfile::TempDir; 2], Node, Node)> {
    let (server, directories, mut x, mut y) = two()?;
    x.takes(1);
    x.grants(5);
    let () = server.ask(&["SAVE"]);
    x.grants(PART);
    wait(x.store.release()).unwrap();
    y.takes(2);
    y.grants(PART);
    Some((server, directories, x, y))
}

fn goes_back(server: &mut Server) {
    let before = server.seq();
    server.kill();
    server.begin();
    assert!(server.seq() < before, "it did not go back");
}

/// As always the owner looks first: the head is older than everything it knows. Then the earlier owner gives back its part,
/// and does not take the register although Redis knows of no other owner.
#[test]
fn past_a_hand_over_each_node_gives_back_its_part_and_the_register_stays_with_its_owner() {
    let Some((mut server, _directories, x, mut y)) = handed_over() else { return };
    goes_back(&mut server);
    until("the owner goes on", || {
        let renewed = wait(y.store.renew());
        assert!(matches!(renewed, Ok(()) | Err(StoreError::Io { .. })), "the owner is put out: {renewed:?}");
        let taken = wait(x.store.take(ShardId(0), token(3)));
        assert!(taken.is_err(), "it takes what it let go: {taken:?}");
        renewed.is_ok()
    });
    y.grants(5);
    y.holds(5 + PART + PART + 5);
    for store in [&x.store, &y.store] {
        assert_eq!((store.health(), store.late().len()), (StoreHealth::Ready, 0));
        assert_eq!(store.figures().healed_batches, PART);
    }
    reached(|| wait(x.store.review()));
    assert!(x.store.late().is_empty());
}

#[test]
fn past_two_hand_overs_the_parts_are_given_back_in_turn_and_no_node_stops() {
    let Some((mut server, _directories, mut x, y)) = handed_over() else { return };
    wait(y.store.release()).unwrap();
    x.takes(3);
    x.grants(5);
    goes_back(&mut server);
    until("the owner goes on", || {
        let renewed = wait(x.store.renew());
        assert!(matches!(renewed, Ok(()) | Err(StoreError::Io { .. })), "the owner is put out: {renewed:?}");
        let taken = wait(y.store.take(ShardId(0), token(4)));
        assert!(matches!(taken, Err(StoreError::Io { .. } | StoreError::Held { .. })), "{taken:?}");
        renewed.is_ok()
    });
    x.grants(5);
    x.holds(5 + PART + PART + 10);
    for (store, healed) in [(&x.store, PART + 5), (&y.store, PART)] {
        assert_eq!((store.health(), store.late().len()), (StoreHealth::Ready, 0));
        assert_eq!(store.figures().healed_batches, healed);
    }
}

/// Redis was saved while nobody owned the register, or before anybody did.
#[test]
fn a_redis_that_went_back_to_when_nobody_owned_the_register_is_left_to_who_took_it_since() {
    for was_owned in [false, true] {
        let Some((mut server, _directories, mut x, y)) = two() else { return };
        if was_owned {
            x.takes(1);
            x.grants(5);
            wait(x.store.release()).unwrap();
        }
        let () = server.ask(&["SAVE"]);
        x.takes(2);
        x.grants(5);
        goes_back(&mut server);
        for n in 3..6 {
            let taken = wait(y.store.take(ShardId(0), token(n)));
            assert!(matches!(taken, Err(StoreError::Io { .. })), "it takes what is its owner's: {taken:?}");
        }
        reached(|| wait(x.store.renew()));
        let held = reached(|| match wait(y.store.take(ShardId(0), token(6))) {
            Err(StoreError::Held { .. }) => Ok(true),
            Err(error) => Err(error),
            Ok(_) => Ok(false),
        });
        assert!(held);
        x.holds(5 * (1 + u64::from(was_owned)));
        // After a release now, anybody may take it at once.
        wait(x.store.release()).unwrap();
        wait(y.store.take(ShardId(0), token(7))).unwrap();
    }
}

/// Like a node whose tenure ended while Redis stood still: nobody took the register since, or its token would have been
/// refused.
#[test]
fn who_lets_go_of_the_register_itself_may_have_it_again_at_once() {
    let Some((server, _directories, mut x, _y)) = two() else { return };
    x.takes(1);
    let _: u64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    reached(|| wait(x.store.renew()));
    wait(x.store.release()).unwrap();
    x.takes(2);
}

/// A node slept past its lease and another one took the register. Redis goes back to when the sleeper owned it. The sleeper
/// wakes first, and releases the tenure that it finds.
#[test]
fn who_woke_late_and_lets_go_of_a_tenure_of_before_does_not_take_the_register_before_its_owner_looks() {
    let Some((mut server, _directories, mut x, mut y)) = two() else { return };
    x.takes(1);
    x.grants(5);
    let () = server.ask(&["SAVE"]);
    server.leases_ran_out_ago();
    // A node that has just connected leaves the register to its owner for the time of a lease.
    until("another one takes it", || wait(y.store.take(ShardId(0), token(2))).is_ok());
    y.takes(2);
    y.grants(5);
    goes_back(&mut server);
    reached(|| wait(x.store.holder()));
    wait(x.store.release()).unwrap();
    let taken = wait(x.store.take(ShardId(0), token(3)));
    assert!(matches!(taken, Err(StoreError::Io { .. })), "it takes what is another node's: {taken:?}");
    reached(|| wait(y.store.renew()));
    y.grants(5);
    y.holds(15);
    for store in [&x.store, &y.store] {
        assert_eq!((store.health(), store.late().len()), (StoreHealth::Ready, 0));
    }
}

/// A change of two shards at once cannot be given back in either while one of them waits for the earlier owner, even though
/// nobody has changed the other one since.
#[test]
fn what_was_changed_in_two_shards_at_once_waits_for_the_one_that_another_node_gives_back_first() {
    let Some((mut server, _directories, mut x, mut y)) = two() else { return };
    x.takes(1);
    wait(x.store.take(ShardId(1), token(11))).unwrap();
    x.grants(5);
    let () = server.ask(&["SAVE"]);
    x.grants(PART);
    wait(x.store.release()).unwrap();
    y.takes(2);
    let second = wait(y.store.take(ShardId(1), token(12))).unwrap();
    let both = [batch(&y.head, 0, vec![put("10.0.9.1", 900, None)]), batch(&second, 1, vec![config_step(network(2))])];
    let committed = wait(y.store.commit(both.clone().into())).unwrap();
    follow(&mut y.head, &both[0], &committed[0]);
    y.grants(5);
    goes_back(&mut server);
    // The owner looks first, and more than once.
    for _ in 0..3 {
        let renewed = wait(y.store.renew());
        assert!(matches!(renewed, Err(StoreError::Io { .. })), "it cannot go on yet, or is put out: {renewed:?}");
    }
    until("the owner goes on", || {
        let taken = wait(x.store.take(ShardId(0), token(3)));
        assert!(taken.is_err(), "it takes what it let go: {taken:?}");
        let renewed = wait(y.store.renew());
        assert!(matches!(renewed, Ok(()) | Err(StoreError::Io { .. })), "the owner is put out: {renewed:?}");
        renewed.is_ok()
    });
    y.grants(5);
    y.holds(5 + PART + 1 + 10);
    assert_eq!(wait(y.store.history(ShardId(1), Seq(0), 9)).unwrap(), both[1..]);
    for (store, healed) in [(&x.store, PART), (&y.store, 7)] {
        assert_eq!((store.health(), store.late().len()), (StoreHealth::Ready, 0));
        assert_eq!(store.figures().healed_batches, healed);
    }
}

/// The earlier owner is gone, and with it the changes of its own that Redis lost; a third node went on. What the owner
/// acknowledged is built on those changes, and is claimed all the same.
#[test]
fn what_was_acknowledged_on_a_base_that_is_lost_is_put_aside_where_another_node_went_on() {
    let Some((mut server, directories, x, y)) = handed_over() else { return };
    drop(x);
    goes_back(&mut server);
    let _: u64 = server.ask(&["HSET", "{allod}:0:head", "lease", "0"]);
    let third = tempfile::tempdir().unwrap();
    let mut z = Node::of(&server, third.path());
    let taken = std::cell::Cell::new(None);
    until("the third node takes it", || match wait(z.store.take(ShardId(0), token(9))) {
        Ok(head) => {
            taken.set(Some(head));
            true
        }
        Err(StoreError::Io { .. } | StoreError::Held { .. }) => false,
        Err(error) => panic!("{error:?}"),
    });
    (z.head, z.n) = (taken.into_inner().unwrap(), 9);
    z.grants(3);
    until("the owner before hears of it", || {
        wait(y.store.renew()).is_err_and(|error| matches!(error, StoreError::Fenced { .. }))
    });
    wait(y.store.release()).ok();
    until("it is put aside", || wait(y.store.review()).is_ok());
    let late = y.store.late();
    let claims: Vec<String> = late
        .iter()
        .flat_map(|late| late.claims())
        .flat_map(|(_, claims)| claims)
        .map(|(at, _)| at.to_string())
        .collect();
    let of = |prefix: &str| claims.iter().filter(|at| at.starts_with(prefix)).count() as u64;
    // And the last of the changes on which it was built, which no other node brings.
    assert_eq!((of("10.0.2."), of("10.0.1."), claims.len() as u64), (PART, LEFT, PART + LEFT), "{claims:?}");
    assert_eq!(y.store.health(), StoreHealth::Ready);
    // Only once.
    wait(y.store.review()).unwrap();
    assert_eq!(y.store.late().len(), 1);
    drop(directories);
}

/// The negative control: the store does not wait for ever for what nobody has any more.
#[test]
fn past_a_hand_over_from_a_node_that_is_gone_the_store_stops() {
    let Some((mut server, directories, mut x, mut y)) = two() else { return };
    x.takes(1);
    x.grants(5);
    let () = server.ask(&["SAVE"]);
    wait(x.store.release()).unwrap();
    y.takes(2);
    y.grants(PART);
    wait(y.store.release()).unwrap();
    drop(y);
    x.takes(3);
    x.grants(5);
    goes_back(&mut server);
    let refused = std::cell::RefCell::new(None);
    until("it stops", || {
        *refused.borrow_mut() = wait(x.store.renew()).err();
        x.store.health() == StoreHealth::Failed
    });
    let refused = refused.into_inner();
    assert!(matches!(&refused, Some(StoreError::Damaged(text)) if text.contains("went back")), "{refused:?}");
    // Its own acknowledged changes are not lost with it, nor the last ones on which they were built: they are brought to
    // whoever goes on.
    let own = |at: &Address| at.to_string().starts_with("10.0.3.");
    let late = x.store.late();
    let claims: Vec<Address> =
        late.iter().flat_map(|late| late.claims()).flat_map(|(_, claims)| claims).map(|(at, _)| at).collect();
    let own = claims.iter().filter(|at| own(at)).count() as u64;
    assert_eq!((own, claims.len() as u64), (5, 5 + LEFT), "{claims:?}");
    drop((x, late));
    let opened =
        |options| RedisStore::open(RedisOptions { directory: Some(directories[0].path().to_owned()), ..options });
    let again = opened(server.options()).unwrap_err();
    assert!(matches!(&again, StoreError::Damaged(text) if text.contains("--accept-rollback")), "{again:?}");
    let third = tempfile::tempdir().unwrap();
    let z = Node::of(&server, third.path());
    until("another node goes on", || wait(z.store.take(ShardId(0), token(9))).is_ok());
    assert_eq!(opened(server.options()).unwrap().late().len(), 1);
}

/// As above, but what is missing is put aside before the store stops. The store looks once more when it ends: nothing is
/// missing any more then, and the other shards stand where they should. That does not permit a start.
#[test]
fn the_last_look_of_a_store_that_stopped_leaves_what_forbids_the_next_start() {
    let Some((mut server, directories, mut x, mut y)) = two() else { return };
    y.takes(1);
    y.grants(5);
    let beside = wait(y.store.take(ShardId(1), token(2))).unwrap();
    wait(y.store.commit([batch(&beside, 1, vec![config_step(network(2))])].into())).unwrap();
    let () = server.ask(&["SAVE"]);
    y.grants(PART);
    wait(y.store.release()).unwrap();
    drop(y);
    x.takes(3);
    wait(x.store.take(ShardId(1), token(4))).unwrap();
    x.grants(5);
    goes_back(&mut server);
    // The node releases, as one does whose lease lapsed meanwhile.
    wait(x.store.release()).ok();
    until("it stops", || wait(x.store.take(ShardId(0), token(5))).is_err() && x.store.health() == StoreHealth::Failed);
    assert_eq!(x.store.late().len(), 1);
    wait(x.store.close());
    drop(x);
    let again =
        RedisStore::open(RedisOptions { directory: Some(directories[0].path().to_owned()), ..server.options() });
    assert!(matches!(&again, Err(StoreError::Damaged(text)) if text.contains("--accept-rollback")), "{again:?}");
}

/// A batch that is under way when its owner is cut off is known only to the node that goes on from it. So is everything that
/// an owner did whose process has ended since.
#[test]
fn what_an_owner_left_that_has_ended_is_given_back_by_the_one_that_went_on_from_it() {
    let Some((mut server, _directories, mut x, mut y)) = two() else { return };
    x.takes(1);
    x.grants(5);
    let () = server.ask(&["SAVE"]);
    x.grants(LEFT);
    wait(x.store.release()).unwrap();
    wait(x.store.close());
    y.takes(2);
    y.grants(5);
    goes_back(&mut server);
    until("the owner goes on", || wait(y.store.renew()).is_ok());
    y.holds(18);
    assert_eq!((y.store.health(), y.store.late().len()), (StoreHealth::Ready, 0));
}

/// One change may be longer than all that is usually under way.
#[test]
fn what_was_under_way_is_given_back_by_the_one_that_went_on_from_it_however_long_it_is() {
    let Some((mut server, _directories, mut x, mut y)) = two() else { return };
    x.takes(1);
    x.grants(5);
    let () = server.ask(&["SAVE"]);
    for long in [700 << 10, 1_500 << 10] {
        let mut next = batch(&x.head, 0, vec![put(&format!("10.1.0.{}", x.head.seq.0), x.head.seq.0, None)]);
        next.acts[0].reason = Some("x".repeat(long).into());
        let committed = wait(x.store.commit([next.clone()].into())).unwrap();
        follow(&mut x.head, &next, &committed[0]);
    }
    wait(x.store.release()).unwrap();
    wait(x.store.close());
    y.takes(2);
    y.grants(5);
    goes_back(&mut server);
    until("the owner goes on", || wait(y.store.renew()).is_ok());
    y.holds(12);
    assert_eq!((y.store.health(), y.store.late().len()), (StoreHealth::Ready, 0));
}

/// All nodes were stopped in order, so none is running that would notice. An older copy of Redis is restored, and what was
/// granted since would be granted once more.
#[test]
fn an_older_copy_that_is_brought_back_while_no_node_runs_is_refused_until_somebody_accepts_it() {
    let Some((mut server, directories, mut x, mut y)) = two() else { return };
    x.takes(1);
    x.grants(5);
    let () = server.ask(&["SAVE"]);
    x.grants(5);
    wait(x.store.release()).unwrap();
    y.takes(2);
    y.grants(3);
    wait(y.store.release()).unwrap();
    for node in [x, y] {
        wait(node.store.close());
    }
    let opened = |server: &Server, node: usize, accept_rollback: bool| {
        let directory = Some(directories[node].path().to_owned());
        RedisStore::open(RedisOptions { directory, accept_rollback, ..server.options() })
    };
    // As it was left: each node starts, in any order.
    for node in [0, 1] {
        wait(opened(&server, node, false).unwrap().close());
    }
    goes_back(&mut server);
    let refused = [0, 1].map(|node| {
        let there = RedisOptions { directory: Some(directories[node].path().to_owned()), ..server.options() };
        assert_eq!(examine(&there).unwrap().behind.unwrap().stands_at, 6);
        std::thread::spawn(move || RedisStore::open(there).unwrap_err())
    });
    for refused in refused.map(|refused| refused.join().unwrap()) {
        assert!(matches!(&refused, StoreError::Damaged(text) if text.contains("--accept-rollback")), "{refused:?}");
    }
    let mut accepts = Node { store: opened(&server, 0, true).unwrap(), head: Head::default(), n: 0 };
    until("it goes on from what there is", || wait(accepts.store.take(ShardId(0), token(4))).is_ok());
    accepts.takes(4);
    accepts.grants(1);
    wait(accepts.store.release()).unwrap();
    wait(accepts.store.close());
    opened(&server, 0, false).unwrap();
}
