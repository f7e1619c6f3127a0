//! If Redis and its replicas flush each change, a change is acknowledged once it is on as many disks as are wanted.
//!
//! This needs a server with WAITAOF: see `server/process.rs`.

use super::replicated::Replicated;
use super::*;
use crate::crash::until;

const IN_MEMORY_ONLY: &str = "1 replicas wanted that have it on disk, 0 do, 1 have it in memory; set `appendonly yes` and \
                              `appendfsync always` at each";
const SWITCHED_OFF: &str =
    "the append-only file of Redis is switched off, and changes were to be on its disk; set `appendonly yes`";

/// How often the server was called with a command, by its own count.
fn calls(server: &Server, command: &str) -> u64 {
    let info: String = server.ask(&["INFO", "commandstats"]);
    let begin = format!("cmdstat_{command}:calls=");
    let count = info.lines().find_map(|line| line.strip_prefix(&begin)?.split(',').next()?.parse().ok());
    count.unwrap_or(0)
}

/// The next batch is not acknowledged, for this reason, and meanwhile nothing is granted.
fn is_refused(begun: &Begun, why: &str) {
    let next = batch(&begun.head, 0, vec![put("10.0.0.1", 5, None)]);
    let Err(CommitError::Unknown { cause: StoreError::Io { source, .. } }) = wait(begun.store.commit([next].into()))
    else {
        panic!("it is acknowledged, or refused otherwise")
    };
    assert_eq!(source.to_string(), why);
    assert_eq!((begun.store.health(), &*begun.store.obstacle()), (StoreHealth::Hindered, why));
}

/// The same batch is acknowledged after a while.
fn is_acknowledged(begun: &mut Begun) {
    let next = batch(&begun.head, 0, vec![put("10.0.0.1", 5, None)]);
    until("it is acknowledged", || wait(begun.store.commit([next.clone()].into())).is_ok());
    let committed = wait(begun.store.commit([next.clone()].into())).unwrap();
    follow(&mut begun.head, &next, &committed[0]);
    assert_eq!(begun.store.health(), StoreHealth::Ready);
}

/// Both are killed, and only the replica is started again, from its own file. Each change is acknowledged at the first call:
/// a replica that is asked only once how far it has flushed reports this change a second later, which is too late.
#[test]
fn what_is_acknowledged_is_in_the_append_only_file_of_every_replica() {
    let Some(Replicated { mut begun, mut replicas, .. }) = Replicated::on_disk(2, "always") else { return };
    let durability = begun.store.info().durability.clone();
    assert!(durability.starts_with("loss of power of Redis's machine"), "{durability}");
    assert!(durability.ends_with("a replica that has it on disk: 2 replicas must, before a change is acknowledged"));
    for n in 0..50 {
        begun.commit(vec![put(&format!("10.0.0.{n}"), 5, None)]).unwrap();
    }
    assert!(calls(&begun.server, "waitaof") >= 50);
    begun.server.kill();
    replicas.iter_mut().for_each(Server::kill);
    for replica in &mut replicas {
        replica.begin();
        assert_eq!(replica.seq(), begun.head.seq.0);
        let store = replica.open().unwrap();
        replica.lapse();
        let head = wait(store.take(ShardId(0), token(2))).unwrap();
        let image = wait(store.load(ShardId(0), head.token)).unwrap();
        let held = model_of(&image).into_keys().filter(|(_, key)| matches!(key, Key::Address(_))).count();
        assert_eq!(held, 50);
    }
}

#[test]
fn a_replica_that_has_it_in_memory_only_is_not_counted() {
    let Some(Replicated { mut begun, replicas, .. }) = Replicated::on_disk(1, "always") else { return };
    let () = replicas[0].ask(&["CONFIG", "SET", "appendonly", "no"]);
    is_refused(&begun, IN_MEMORY_ONLY);
    assert!(replicas[0].seq() > begun.head.seq.0, "it has it");
    assert_eq!(begun.store.figures().replicas_answering, 0);
    let () = replicas[0].ask(&["CONFIG", "SET", "appendonly", "yes"]);
    is_acknowledged(&mut begun);
    replicas[0].signal("-STOP");
    let next = batch(&begun.head, 0, vec![put("10.0.0.2", 5, None)]);
    assert!(matches!(wait(begun.store.commit([next].into())), Err(CommitError::Unknown { .. })));
    assert_eq!(&*begun.store.obstacle(), "1 replicas wanted, 0 answer");
    replicas[0].signal("-CONT");
}

/// What was promised at the start is kept: a change that Redis has only in memory is not acknowledged, and the reason is
/// given.
#[test]
fn an_append_only_file_that_is_switched_off_is_told_and_nothing_is_acknowledged_without_it() {
    let Some(Replicated { mut begun, replicas: _replicas, .. }) = Replicated::on_disk(1, "always") else { return };
    let () = begun.server.ask(&["CONFIG", "SET", "appendonly", "no"]);
    is_refused(&begun, SWITCHED_OFF);
    let name = (ShardId(0), begun.head.token, begun.head.seq, begun.head.digest);
    assert!(wait(begun.store.confirm(vec![name])).is_err(), "an empty proof is none either");
    let () = begun.server.ask(&["CONFIG", "SET", "appendonly", "yes"]);
    is_acknowledged(&mut begun);
}

/// A flush per second may lose a second by design, so no answer waits for it.
#[test]
fn where_redis_flushes_once_a_second_no_disk_is_waited_for() {
    let Some(Replicated { mut begun, replicas: _replicas, .. }) = Replicated::on_disk(1, "everysec") else { return };
    for n in 0..5 {
        begun.commit(vec![put(&format!("10.0.0.{n}"), 5, None)]).unwrap();
    }
    assert_eq!(calls(&begun.server, "waitaof"), 0);
    let durability = &begun.store.info().durability;
    assert!(
        durability.ends_with("a replica that has it: 1 replica must, before a change is acknowledged"),
        "{durability}"
    );
}
