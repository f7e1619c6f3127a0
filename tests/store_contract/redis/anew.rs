//! A register that Redis lost altogether is written anew by the node that has it in memory.

use allod::core::types::ShardTime;
use allod::store::moving::Begun as BegunAnew;
use allod::store::redis::{RedisOptions, RedisStore};
use allod::store::{CommitError, Head, Seq, ShardId, Store, StoreError, StoreHealth};

use super::{Begun, batch, config_step, network, put, token, wait};

/// The times at which the shards go on.
fn times(store: &RedisStore) -> Vec<ShardTime> {
    vec![ShardTime(1_000); usize::from(store.info().shards)]
}

/// Opens the register as another node.
fn open_as(begun: &Begun, name: &str) -> Result<RedisStore, StoreError> {
    RedisStore::open(RedisOptions { owner: name.to_owned(), ..begun.server.options() })
}

/// A register that was emptied under its owner, which noticed.
fn emptied() -> Option<Begun> {
    let mut begun = Begun::new(&[])?;
    begun.commit(vec![put("10.0.0.1", 5, None)]).unwrap();
    assert!(!begun.store.was_emptied());
    let () = begun.server.ask(&["FLUSHALL"]);
    assert!(begun.commit(vec![put("10.0.0.2", 6, None)]).is_err());
    assert!(begun.store.was_emptied());
    Some(begun)
}

#[test]
fn it_goes_on_behind_what_was_told_under_a_token_that_nobody_had() {
    let Some(begun) = emptied() else { return };
    let BegunAnew { store, heads } = wait(begun.store.anew(times(&begun.store))).unwrap();
    let (old, new) = (begun.head, heads[0]);
    assert_eq!((new.parent, new.seq, new.digest, new.time), (old.token, old.seq, old.digest, ShardTime(1_000)));
    assert!(new.epoch > old.epoch && new.token != old.token);
    let takes: String = begun.server.ask(&["HGET", "{allod}:0:head", "takes"]);
    assert_eq!(takes, format!("{} {:032x} {},1 {:032x} 0", new.epoch.0, old.token.0, old.seq.0, 0));
    let image = wait(store.load(ShardId(0), new.token)).unwrap();
    assert_eq!((image.head, image.networks.len()), (new, 0));
    // A batch that was under way when Redis was emptied comes late, under the number of the next batch.
    let late = batch(&Head { token: old.token, epoch: old.epoch, ..new }, 0, vec![put("10.0.0.2", 6, None)]);
    assert!(matches!(wait(store.commit([late].into())), Err(CommitError::Fenced { .. })));
    let next_one = batch(&new, 0, vec![config_step(network(1)), put("10.0.0.1", 5, None)]);
    let committed = wait(store.commit([next_one].into())).unwrap();
    assert_eq!(committed[0].seq, Seq(old.seq.0 + 1));
    let ends = heads.iter().enumerate().map(|(at, head)| {
        let (seq, digest) = if at == 0 { (committed[0].seq, committed[0].digest) } else { (head.seq, head.digest) };
        (ShardId(at as u16), head.token, seq, digest)
    });
    wait(store.post(None, ends.collect())).unwrap();
    wait(store.release()).unwrap();
    wait(store.close());

    let again = begun.server.open().unwrap();
    assert_eq!(again.info().register, begun.store.info().register, "it is the register that it was");
    let head = wait(again.take(ShardId(0), token(9))).unwrap();
    assert_eq!((head.parent, head.seq), (new.token, committed[0].seq));
    assert_eq!(wait(again.load(ShardId(0), token(9))).unwrap().networks[0].entries.len(), 1);
    // Its history begins with the last batch of before, which is no longer there, and goes on from that.
    let recorded = wait(again.history(ShardId(0), Seq(0), 100)).unwrap();
    let acts = recorded.iter().map(|batch| (batch.seq, batch.acts.len())).collect::<Vec<_>>();
    assert_eq!(acts, [(old.seq, 0), (committed[0].seq, 1)]);
}

/// Another process may have made a register there, or a part may be left: then Redis was not emptied.
#[test]
fn where_anything_of_a_register_is_it_is_not_begun_anew() {
    let Some(begun) = emptied() else { return };
    for (make, key) in [
        (["HSET", "{allod}:2:head", "epoch", "1"].as_slice(), "{allod}:2:head"),
        (&["XADD", "{allod}:1:log", "1-0", "a", "b"], "{allod}:1:log"),
        (&["HSET", "{allod}:register", "register", "7"], "{allod}:register"),
    ] {
        let _: redis::Value = begun.server.ask(make);
        let refused = wait(begun.store.anew(times(&begun.store))).map(|_| ());
        assert!(
            matches!(&refused, Err(StoreError::Foreign(text)) if text.contains("something of a register")),
            "{refused:?}"
        );
        let _: redis::Value = begun.server.ask(&["DEL", key]);
    }
    assert!(wait(begun.store.anew(times(&begun.store))).is_ok());
    // Begun by another node.
    let () = begun.server.ask(&["HSET", "{allod}:register", "moved", "anew other"]);
    let others = wait(begun.store.anew(times(&begun.store))).map(|_| ());
    assert!(matches!(&others, Err(StoreError::Foreign(_))), "{others:?}");
    let () =
        begun.server.ask(&["HSET", "{allod}:register", "moved", &format!("anew {}", begun.server.options().owner)]);
    let () = begun.server.ask(&["HSET", "{allod}:1:head", "parent", &format!("{:032x}", 7)]);
    let others = wait(begun.store.anew(times(&begun.store))).map(|_| ());
    assert!(matches!(&others, Err(StoreError::Foreign(_))), "of a process before this one: {others:?}");
    let kept: u64 = begun.server.ask(&["EXISTS", "{allod}:register", "{allod}:0:head", "{allod}:1:head"]);
    assert_eq!(kept, 3, "nothing of it goes");
}

/// Redis went back to where only part of it was written, or an answer was lost: the node that began it removes that part,
/// and begins once more.
#[test]
fn what_was_begun_anew_and_is_unfinished_is_begun_once_more_by_who_began_it() {
    let Some(begun) = emptied() else { return };
    let first = wait(begun.store.anew(times(&begun.store))).unwrap();
    let written = |head: &Head| {
        let address = |n: u64| put(&format!("10.0.{}.1", n), 5 + n, None);
        batch(head, 0, std::iter::once(config_step(network(1))).chain((0..100).map(address)).collect())
    };
    wait(first.store.commit([written(&first.heads[0])].into())).unwrap();
    let second = wait(begun.store.anew(times(&begun.store))).unwrap();
    assert_ne!(second.heads[0].token, first.heads[0].token);
    assert_eq!((second.heads[0].seq, second.heads[0].parent), (first.heads[0].seq, first.heads[0].parent));
    let image = wait(second.store.load(ShardId(0), second.heads[0].token)).unwrap();
    assert_eq!((image.head, image.networks.len()), (second.heads[0], 0), "nothing is left of the first");
    let late = wait(first.store.commit([written(&first.heads[0])].into()));
    assert!(late.is_err(), "{late:?}");
    // Emptied once more meanwhile.
    let () = begun.server.ask(&["FLUSHALL"]);
    assert!(wait(second.store.commit([written(&second.heads[0])].into())).is_err());
    let third = wait(begun.store.anew(times(&begun.store))).unwrap();
    wait(third.store.commit([written(&third.heads[0])].into())).unwrap();
}

/// Meanwhile the node tells clients what stands in the way, and grants nothing. It does not end, and goes on once the
/// register is whole.
#[test]
fn another_node_waits_until_it_is_whole() {
    let Some(begun) = Begun::new(&[]) else { return };
    let other = open_as(&begun, "other").unwrap();
    wait(begun.store.release()).unwrap();
    let () = begun.server.ask(&["FLUSHALL"]);
    let lost = wait(other.take(ShardId(0), token(2)));
    assert!(matches!(&lost, Err(StoreError::Io { .. })), "{lost:?}");
    assert_eq!(other.health(), StoreHealth::Hindered);
    assert!(other.obstacle().contains("emptied"), "{}", other.obstacle());
    let BegunAnew { store, heads } = wait(begun.store.anew(times(&begun.store))).unwrap();
    let unfinished = wait(other.take(ShardId(0), token(2)));
    assert!(
        matches!(&unfinished, Err(StoreError::Io { source, .. }) if source.to_string().contains("writes it anew")),
        "{unfinished:?}"
    );
    // Nor does a node that is started now serve it, whether its writer lives or not.
    let refused = open_as(&begun, "third").map(|_| ());
    assert!(
        matches!(&refused, Err(StoreError::Io { source, .. }) if source.to_string().contains("bring a copy of its data back")),
        "{refused:?}"
    );
    let ends = heads.iter().enumerate().map(|(at, head)| (ShardId(at as u16), head.token, head.seq, head.digest));
    wait(store.post(None, ends.collect())).unwrap();
    wait(store.release()).unwrap();
    let head = wait(other.take(ShardId(0), token(2))).unwrap();
    assert_eq!((head.parent, head.seq), (heads[0].token, begun.head.seq));
    assert_eq!(other.health(), StoreHealth::Ready);
}
