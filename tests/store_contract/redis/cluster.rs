//! A register on a Redis cluster. It lies in one slot, on one primary at a time, whatever happens to that primary and to the
//! slot.

use std::sync::atomic::{AtomicBool, Ordering};

use allod::store::redis::examine::examine;
use allod::store::redis::{RedisOptions, RedisStore};

use super::clustered::{RedisCluster, eventually};
use super::*;

const NETWORK: &str = "00000000-0000-0000-0000-000000000001";

/// A cluster, a store on it, and shard 0 with an empty network 1 in it.
struct Clustered {
    cluster: RedisCluster,
    slot: u16,
    store: RedisStore,
    head: Head,
    /// How many answers said that certainly nothing was done, before the same batch succeeded.
    not_applied: usize,
}

/// Takes shard 0, once that is possible: the first call may find that the slot is elsewhere, or that replicas are not there
/// yet.
fn taken(store: &RedisStore, token: Token) -> Head {
    let mut head = None;
    eventually("the shard is taken", || {
        head = wait(store.take(ShardId(0), token)).ok();
        head.is_some()
    });
    head.expect("it was taken")
}

impl Clustered {
    fn new(primaries: usize, replicas: usize, settle: impl FnOnce(RedisOptions) -> RedisOptions) -> Option<Self> {
        let cluster = RedisCluster::start(primaries, replicas, &["--appendonly", "yes"])?;
        let slot = cluster.slot("{allod}:register");
        let store = RedisStore::open(settle(RedisOptions::new(cluster.url(), SHARDS))).unwrap();
        let head = taken(&store, token(1));
        let mut begun = Self { cluster, slot, store, head, not_applied: 0 };
        begun.insist(vec![config_step(network(1))]);
        Some(begun)
    }

    fn owner(&self) -> usize {
        self.cluster.owner(self.slot).expect("somebody has the slot")
    }

    /// Commits, and repeats the same batch where that is safe, as the committer does.
    #[track_caller]
    fn insist(&mut self, steps: Vec<Step>) {
        let next = batch(&self.head, 0, steps);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            match wait(self.store.commit([next.clone()].into())) {
                Ok(committed) => return follow(&mut self.head, &next, &committed[0]),
                Err(CommitError::NotApplied { cause: StoreError::Io { .. } }) => self.not_applied += 1,
                Err(CommitError::Unknown { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
            assert!(std::time::Instant::now() < end, "it never goes well again");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    /// Checks that everything committed is there, every batch once.
    fn is_whole(&self, addresses: usize) {
        let image = wait(self.store.load(ShardId(0), self.head.token)).unwrap();
        assert_eq!((image.head, image.networks[0].entries.len()), (self.head, addresses));
        let history = wait(self.store.history(ShardId(0), Seq(0), usize::MAX)).unwrap();
        assert_eq!(history.len() as u64, self.head.seq.0);
        assert_eq!(model(&history), model_of(&image));
    }

    /// Opens the store as another process, which knows nothing of earlier ones.
    fn fresh(&self) -> Result<RedisStore, StoreError> {
        RedisStore::open(RedisOptions::new(self.cluster.url(), SHARDS))
    }
}

#[test]
fn all_keys_of_a_register_lie_in_one_slot() {
    let Some(mut begun) = Clustered::new(3, 0, |options| options) else { return };
    begun.insist(vec![put("10.0.0.1", 5, None), put("2001:db8::1", 6, None), put("10.0.1.0/24", 7, None)]);
    wait(begun.store.meet(true)).unwrap();
    let counts: Vec<usize> =
        begun.cluster.members.iter().map(|member| member.ask::<Vec<String>>(&["KEYS", "*"]).len()).collect();
    let in_slot: usize =
        begun.cluster.members[begun.owner()].ask(&["CLUSTER", "COUNTKEYSINSLOT", &begun.slot.to_string()]);
    assert_eq!(counts.iter().sum::<usize>(), in_slot);
    assert!(in_slot > 10, "{counts:?}");
    assert!(begun.store.info().durability.contains("cluster"), "{}", begun.store.info().durability);
    // The URL of a single server names a member of a cluster: it is refused, with the URL that is needed.
    let alone = RedisOptions::new(begun.cluster.members[0].url(), SHARDS);
    let refused = RedisStore::open(alone).unwrap_err();
    assert!(matches!(&refused, StoreError::Foreign(text) if text.contains("redis+cluster://")), "{refused:?}");
    // A member that does not have the slot is enough to find the one that has it.
    let other = (begun.owner() + 1) % 3;
    let url = format!("redis+cluster://127.0.0.1:{}", begun.cluster.members[other].port);
    assert_eq!(RedisStore::open(RedisOptions::new(url, SHARDS)).unwrap().info().register, begun.store.info().register);
    begun.is_whole(3);
    // The user that deploy/README.md makes may ask which member has the slot, and may create a register.
    begun.cluster.members.iter().for_each(|member| member.ask(&super::trouble::user_of_the_directions()));
    let url = begun.cluster.url().replace("cluster://", "cluster://allod:secret@");
    let theirs = RedisStore::open(RedisOptions::new(url, SHARDS)).unwrap();
    assert_eq!(theirs.info().register, begun.store.info().register);
    let () = begun.cluster.members[begun.owner()].ask(&["FLUSHALL"]);
    let url = begun.cluster.url().replace("cluster://", "cluster://allod:secret@");
    assert_ne!(RedisStore::open(RedisOptions::new(url, SHARDS)).unwrap().info().register, begun.store.info().register);
}

#[test]
fn a_replica_takes_the_place_of_a_primary_that_was_killed_and_nothing_is_lost() {
    let Some(mut begun) = Clustered::new(3, 1, |options| RedisOptions { replicas: 1, heal_bytes: 0, ..options }) else {
        return;
    };
    for n in 0..40 {
        begun.insist(vec![put(&format!("10.0.0.{n}"), 5 + n, None)]);
    }
    let old = begun.owner();
    begun.cluster.members[old].kill();
    let new = begun.cluster.failed_over(begun.slot, old);
    // No replica is left to wait for: nothing is acknowledged until there is one again.
    let next = batch(&begun.head, 0, vec![put("10.0.1.0", 99, None)]);
    assert!(wait(begun.store.commit([next].into())).is_err());
    begun.cluster.members[old].begin();
    eventually("it follows", || begun.cluster.replicas_of(new) == [old]);
    for n in 0..40 {
        begun.insist(vec![put(&format!("10.0.1.{n}"), 99 + n, None)]);
    }
    begun.is_whole(80);
    assert_eq!(begun.store.figures().healed_batches, 0);
}

/// Another primary is gone with everything it has, which does not concern this register.
#[test]
fn a_primary_of_other_slots_may_be_gone() {
    let Some(mut begun) = Clustered::new(3, 0, |options| options) else { return };
    let other = (begun.owner() + 1) % 3;
    begun.cluster.members[other].kill();
    for n in 0..200 {
        begun.insist(vec![put(&format!("10.0.0.{n}"), 5 + n, None)]);
        if n % 50 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(700));
        }
    }
    begun.is_whole(200);
    let mut fresh = Err(StoreError::Invalid("not tried".into()));
    eventually("another process opens it", || {
        fresh = begun.fresh();
        fresh.is_ok()
    });
    assert_eq!(fresh.unwrap().info().register, begun.store.info().register);
}

/// While the slot is moved key by key nothing is done; afterwards everything is done where the slot then is.
#[test]
fn a_slot_that_is_moved_under_load_loses_nothing_and_nothing_is_done_twice() {
    let Some(mut begun) = Clustered::new(3, 0, |options| options) else { return };
    for n in 0..60u64 {
        begun.insist(vec![put(&format!("10.0.{n}.1"), 5 + n, None), put(&format!("2001:db8::{n:x}"), 5 + n, None)]);
    }
    let from = begun.owner();
    let to = (from + 1) % 3;
    let Clustered { cluster, slot, .. } = &begun;
    let (cluster, slot) = (RedisCluster::like(cluster), *slot);
    let (over, told) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mover = std::thread::spawn({
        let (over, told) = (Arc::clone(&over), Arc::clone(&told));
        move || {
            cluster.begin_move(slot, from, to);
            while cluster.move_keys(slot, from, to, 7) > 0 {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            // All keys have moved, but not yet the slot.
            eventually("the store says why", || told.load(Ordering::Relaxed));
            cluster.end_move(slot, from, to);
            over.store(true, Ordering::Relaxed);
        }
    });
    let mut n = 0;
    while !over.load(Ordering::Relaxed) || n < 40 {
        let next = batch(&begun.head, 0, vec![put(&format!("10.1.{}.{}", n / 250, n % 250), 500 + n, None)]);
        match wait(begun.store.commit([next.clone()].into())) {
            Ok(committed) => {
                follow(&mut begun.head, &next, &committed[0]);
                n += 1;
            }
            Err(CommitError::NotApplied { cause: StoreError::Io { .. } }) => {
                begun.not_applied += 1;
                if begun.store.health() == StoreHealth::Hindered {
                    assert!(begun.store.obstacle().contains("is being moved"), "{}", begun.store.obstacle());
                    told.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            other => panic!("{other:?}"),
        }
    }
    mover.join().unwrap();
    assert!(begun.not_applied > 0 && told.load(Ordering::Relaxed), "the move met no change");
    assert_eq!(begun.owner(), to);
    begun.is_whole(120 + n as usize);
    eventually("it is told that it is over", || begun.store.health() == StoreHealth::Ready);
    assert_eq!(begun.fresh().unwrap().info().register, begun.store.info().register);
}

/// Why the guard key is declared: the negative control of the test above, done by hand. Redis checks only the declared keys,
/// and aborts a script when it meets another key that has moved, whatever the script wrote before.
#[test]
fn without_the_guard_redis_breaks_a_script_off_between_two_writes() {
    let Some(mut begun) = Clustered::new(2, 0, |options| options) else { return };
    begun.insist(vec![put("10.0.0.1", 5, None)]);
    let from = begun.owner();
    let hash = format!("{{allod}}:0:4:{NETWORK}:0a000000");
    begun.cluster.begin_move(begun.slot, from, 1 - from);
    let port = begun.cluster.members[1 - from].port.to_string();
    let owner = &begun.cluster.members[from];
    let _: String = owner.ask(&["MIGRATE", "127.0.0.1", &port, &hash, "0", "5000"]);
    let script = format!(
        "#!lua\nredis.call('HSET', KEYS[#KEYS], 'written', ARGV[1])\nreturn redis.call('HSET', '{hash}', '1', 'x')"
    );
    let written = || owner.ask::<Option<String>>(&["HGET", "{allod}:register", "written"]);
    let refused = owner.try_ask::<u64>(&["EVAL", &script, "1", "{allod}:register", "half"]).unwrap_err();
    assert_eq!((refused.code(), written().as_deref()), (Some("ERR"), Some("half")));
    let refused =
        owner.try_ask::<u64>(&["EVAL", &script, "2", "{allod}:guard", "{allod}:register", "more"]).unwrap_err();
    assert_eq!((refused.code(), written().as_deref()), (Some("TRYAGAIN"), Some("half")));
    // The store, on the other hand, certainly does nothing, although all the keys that it declares are still here.
    let next = batch(&begun.head, 0, vec![put("10.0.0.2", 6, None)]);
    for _ in 0..3 {
        let refused = wait(begun.store.commit([next.clone()].into()));
        assert!(matches!(refused, Err(CommitError::NotApplied { cause: StoreError::Io { .. } })), "{refused:?}");
    }
    assert_eq!(owner.ask::<u64>(&["HGET", "{allod}:0:head", "seq"]), begun.head.seq.0);
}

/// A broken-off move leaves the register in two halves, and nothing says so: its owner failed over to a replica that does
/// not know of the move, as in Redis 7 (in Valkey 8 it does, and must be told), or an operator called the move off. Shards
/// that are whole may go on; in the others nothing is granted.
#[test]
fn a_half_of_a_register_is_never_taken_for_the_whole_and_goes_on_when_it_is_whole_again() {
    for fails_over in [true, false] {
        let Some(mut begun) = Clustered::new(2, 1, |options| options) else { return };
        for n in 0..30u64 {
            begun.insist(vec![put(&format!("10.0.{n}.1"), 5 + n, None), put(&format!("2001:db8::{n:x}"), 5 + n, None)]);
        }
        let from = begun.owner();
        let (slot, cluster) = (begun.slot, &begun.cluster);
        let to = cluster.owner((slot + 8_192) % 16_384).unwrap();
        cluster.begin_move(slot, from, to);
        // The order in which keys move depends on the server. The heads stay here.
        let mut hashes: Vec<String> = cluster.members[from].ask(&["KEYS", "{allod}:0:4:*"]);
        hashes.truncate(12);
        cluster.move_these(from, to, &hashes);
        let now = if fails_over {
            let replica = cluster.replicas_of(from)[0];
            eventually("the replica has heard of it", || {
                cluster.members[replica].ask::<u64>(&["DBSIZE"]) == cluster.members[from].ask::<u64>(&["DBSIZE"])
            });
            let () = cluster.members[replica].ask(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
            cluster.failed_over(slot, from)
        } else {
            from
        };
        cluster.call_off(slot, now);
        // The very script that would grant an address twice, if it were not for the key that vouches for its hash.
        assert!(!hashes.is_empty(), "no hash was moved");
        let low = u32::from_str_radix(hashes[0].rsplit(':').next().unwrap(), 16).unwrap();
        let granted = Address::V4(low + 1).to_string();
        let fresh = begun.fresh();
        let store = match &fresh {
            Ok(store) => store,
            // A head, or the register's key, is among the keys that are gone.
            Err(error) => {
                assert!(matches!(error, StoreError::Damaged(_)), "{error:?}");
                &begun.store
            }
        };
        cluster.members[now].leases_ran_out();
        let head = taken(store, token(2));
        {
            let refused = wait(store.commit([batch(&head, 0, vec![put(&granted, 999, None)])].into()));
            assert!(
                matches!(refused, Err(CommitError::NotApplied { cause: StoreError::Damaged(_) })),
                "fails over: {fails_over}: {refused:?}"
            );
            assert_eq!(store.health(), StoreHealth::Failed);
            let refused = begun.fresh().and_then(|store| {
                cluster.members[now].leases_ran_out();
                wait(store.take(ShardId(0), token(3)))?;
                wait(store.load(ShardId(0), token(3)))
            });
            assert!(matches!(refused, Err(StoreError::Damaged(_))), "fails over: {fails_over}: {refused:?}");
        }
        drop(fresh);
        cluster.fix(now);
        let store = begun.fresh().unwrap();
        let owner = cluster.owner(slot).unwrap();
        cluster.members[owner].leases_ran_out();
        begun.head = wait(store.take(ShardId(0), token(4))).unwrap();
        begun.store = store;
        begun.insist(vec![put("10.99.0.1", 1 << 40, None)]);
        begun.is_whole(61);
    }
}

/// All keys were moved, the slot is still here, and the member that has the keys is gone: what is left looks like a new
/// place.
#[test]
fn no_register_is_begun_while_another_server_has_keys_of_its_slot() {
    let Some(begun) = Clustered::new(2, 1, |options| options) else { return };
    let (from, slot, cluster) = (begun.owner(), begun.slot, &begun.cluster);
    let to = cluster.owner((slot + 8_192) % 16_384).unwrap();
    let beside = begun.fresh().unwrap();
    cluster.begin_move(slot, from, to);
    while cluster.move_keys(slot, from, to, 100) > 0 {}
    let replica = cluster.replicas_of(from)[0];
    eventually("the replica is empty", || cluster.members[replica].ask::<u64>(&["DBSIZE"]) == 0);
    let () = cluster.members[replica].ask(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    let now = cluster.failed_over(slot, from);
    cluster.call_off(slot, now);
    let refused = begun.fresh().unwrap_err();
    assert!(matches!(&refused, StoreError::Damaged(text) if text.contains("broke off")), "{refused:?}");
    assert_eq!(cluster.members[now].ask::<u64>(&["DBSIZE"]), 0);
    // A node that waits for the owner cannot know that nobody writes the register anew, so it names what else may be the
    // case.
    eventually("it says what to do", || {
        let holder = wait(beside.holder());
        holder.is_err() && beside.bars_taking().is_some_and(|why| why.contains("`redis-cli --cluster fix` ends one"))
    });
    // The node that owned the register stops as well, because its heads are gone.
    let next = batch(&begun.head, 0, vec![put("10.0.0.2", 6, None)]);
    eventually("it is seen", || {
        let refused = wait(begun.store.commit([next.clone()].into()));
        matches!(refused, Err(CommitError::NotApplied { cause: StoreError::Damaged(_) }))
    });
    cluster.fix(now);
    assert_eq!(begun.fresh().unwrap().info().register, begun.store.info().register);
}

/// All heads are here, so nothing refuses a start; the started node ends when it loads what is elsewhere.
#[test]
fn a_doctor_says_that_a_move_broke_off_and_what_ends_it_where_both_sides_were_told_that_it_was_called_off() {
    let Some(mut begun) = Clustered::new(2, 0, |options| options) else { return };
    begun.insist(vec![put("10.0.0.1", 5, None)]);
    // While its slot is moved, Redis redirects requests for missing keys to the other side.
    wait(begun.store.meet(true)).unwrap();
    let (slot, from, cluster) = (begun.slot, begun.owner(), &begun.cluster);
    let to = 1 - from;
    let examined = || examine(&RedisOptions::new(cluster.url(), SHARDS)).unwrap();
    let moving = || examined().findings.iter().any(|finding| finding.problem.contains("is being moved from"));
    assert!(examined().lost.is_none() && !moving());
    cluster.begin_move(slot, from, to);
    let hashes: Vec<String> = cluster.members[from].ask(&["KEYS", "{allod}:0:4:*"]);
    assert!(!hashes.is_empty(), "it has no hash");
    cluster.move_these(from, to, &hashes);
    assert!(moving(), "{:?}", examined().findings);
    assert!(examined().lost.is_none(), "what is moved just now is where it belongs");
    cluster.call_off(slot, from);
    cluster.call_off(slot, to);
    assert!(begun.fresh().is_ok(), "a start is refused, which says it then");
    let lost = || examined().lost.map_or_else(String::new, |lost| lost.to_string());
    let elsewhere = format!("127.0.0.1:{} has keys of slot {slot}, which is not its own", cluster.members[to].port);
    assert!(lost().contains(&elsewhere) && lost().contains("redis-cli --cluster fix"), "{}", lost());
    // As deploy/README.md says: `fix` finds nothing until the member that does not own the slot says that a move is open.
    cluster.fix(from);
    assert!(lost().contains(&elsewhere), "{}", lost());
    let opens = |at: usize, other: usize| {
        let other: String = cluster.members[other].ask(&["CLUSTER", "MYID"]);
        cluster.members[at].try_ask::<String>(&["CLUSTER", "SETSLOT", &slot.to_string(), "IMPORTING", &other])
    };
    let refused = opens(from, to).unwrap_err().to_string();
    assert!(refused.contains("already the owner of hash slot"), "{refused}");
    opens(to, from).unwrap();
    cluster.fix(from);
    eventually("it is whole", || lost().is_empty());
    begun.insist(vec![put("10.0.0.2", 6, None)]);
    begun.is_whole(2);
}

/// The client library's own words contain only a number.
#[test]
fn a_slot_that_no_server_has_is_told_of_in_words() {
    let Some(begun) = Clustered::new(2, 0, |options| options) else { return };
    for member in &begun.cluster.members {
        let () = member.ask(&["CLUSTER", "DELSLOTS", &begun.slot.to_string()]);
    }
    let mut told = String::new();
    eventually("nobody has it", || {
        let refused = begun.fresh().map(drop);
        let Err(StoreError::Io { source, .. }) = &refused else { return false };
        told = source.to_string();
        told.contains("no server of the cluster")
    });
    assert_eq!(told, format!("no server of the cluster has the register's slot, {}", begun.slot));
}

/// A primary was wiped and up again before anybody noticed: it is still the primary, and empties its replica.
#[test]
fn a_primary_that_was_wiped_stops_the_store() {
    let Some(mut begun) = Clustered::new(2, 1, |options| options) else { return };
    begun.insist(vec![put("10.0.0.1", 5, None)]);
    let owner = begun.owner();
    let () = begun.cluster.members[owner].ask(&["FLUSHALL"]);
    let next = batch(&begun.head, 0, vec![put("10.0.0.2", 6, None)]);
    let refused = wait(begun.store.commit([next].into()));
    assert!(
        matches!(&refused, Err(CommitError::NotApplied { cause: StoreError::Damaged(text) }) if text.contains("emptied")),
        "{refused:?}"
    );
    assert_eq!(begun.store.health(), StoreHealth::Failed);
}

/// It failed over, never came back, and stays in the cluster's table as a primary without slots.
#[test]
fn a_primary_that_is_gone_for_good_keeps_a_new_register_from_being_begun_but_not_a_lost_one_from_being_written_anew() {
    let Some(mut begun) = Clustered::new(3, 1, |options| options) else { return };
    begun.insist(vec![put("10.0.0.1", 5, None)]);
    let (slot, gone) = (begun.slot, begun.owner());
    let id: String = begun.cluster.members[gone].ask(&["CLUSTER", "MYID"]);
    let [replica] = begun.cluster.replicas_of(gone)[..] else { panic!("it has one") };
    let said = |at: usize, name: &str| {
        let said: String = begun.cluster.members[at].ask(&["INFO", "replication"]);
        said.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    eventually("its replica has everything", || {
        let has = said(replica, "slave_repl_offset:");
        said(replica, "master_link_status:").as_deref() == Some("up")
            && has.is_some()
            && has == said(gone, "master_repl_offset:")
    });
    begun.cluster.members[gone].kill();
    let now = begun.cluster.failed_over(slot, gone);
    begun.insist(vec![put("10.0.0.2", 6, None)]);
    let () = begun.cluster.members[now].ask(&["FLUSHALL"]);
    let next = batch(&begun.head, 0, vec![put("10.0.0.3", 7, None)]);
    eventually("its owner notices", || {
        wait(begun.store.commit([next.clone()].into())).is_err() && begun.store.was_emptied()
    });
    // It may have the register, as far as a process knows that starts now.
    let told = format!("127.0.0.1:{}, a primary in the cluster's table", begun.cluster.members[gone].port);
    let refused = begun.fresh().unwrap_err();
    assert!(
        matches!(&refused, StoreError::Io { source, .. } if source.to_string().contains(&told)
            && source.to_string().contains(&format!("`CLUSTER FORGET {id}`"))),
        "{refused:?}"
    );
    let found = examine(&RedisOptions::new(begun.cluster.url(), SHARDS)).unwrap().findings;
    assert!(found.iter().any(|finding| finding.problem.contains(&told)), "{found:?}");
    // Its owner knows better.
    let times = || vec![ShardTime(1_000); usize::from(SHARDS)];
    let mut anew = Err(StoreError::Invalid("not tried".into()));
    eventually("it is begun anew", || {
        anew = wait(begun.store.anew(times())).map(|begun| begun.heads[0].parent);
        assert!(matches!(&anew, Ok(_) | Err(StoreError::Io { .. })), "{anew:?}");
        anew.is_ok()
    });
    assert_eq!(anew.unwrap(), begun.head.token);
    // What the refusal says helps.
    let () = begun.cluster.members[now].ask(&["FLUSHALL"]);
    for (_, member) in begun.cluster.members.iter().enumerate().filter(|(at, _)| *at != gone) {
        let () = member.ask(&["CLUSTER", "FORGET", &id]);
    }
    assert_ne!(begun.fresh().unwrap().info().register, begun.store.info().register);
}
