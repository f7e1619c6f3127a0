//! A node reads a shard beside its owner and follows it, so that it can own the shard within a moment later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use allod::store::redis::RedisOptions;

use super::replicated::Front;
use super::*;

#[test]
fn a_shard_is_read_beside_its_owner_and_followed_batch_by_batch() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    for n in 0..20 {
        begun
            .commit(vec![put(&format!("10.0.0.{n}"), 5 + n, None), put(&format!("2001:db8::{n:x}"), 5 + n, None)])
            .unwrap();
    }
    let other = begun.server.open().unwrap();
    let image = wait(other.beside(ShardId(0))).unwrap();
    assert_eq!((image.head, model_of(&image)), (begun.head, begun.load()));
    assert_eq!(wait(other.follow(ShardId(0), image.head)).unwrap(), Some((Vec::new(), begun.head)));
    // More than one piece of the log.
    let mut sent = Vec::new();
    for n in 0..150 {
        let next = batch(&begun.head, 0, vec![put(&format!("10.0.1.{n}"), 100 + n, None)]);
        let committed = wait(begun.store.commit([next.clone()].into())).unwrap();
        follow(&mut begun.head, &next, &committed[0]);
        sent.push(next);
    }
    assert_eq!(wait(other.follow(ShardId(0), image.head)).unwrap(), Some((sent, begun.head)));
    // Across a take-over: the line is the same.
    wait(begun.store.release()).unwrap();
    let taken = wait(other.take(ShardId(0), token(2))).unwrap();
    assert_eq!(wait(other.follow(ShardId(0), begun.head)).unwrap(), Some((Vec::new(), taken)));
    // A shard that was never taken, and one that does not exist.
    let never = wait(other.beside(ShardId(2))).unwrap();
    assert_eq!((never.head, never.networks.len()), (Head::default(), 0));
    assert!(matches!(wait(other.beside(ShardId(3))), Err(StoreError::Invalid(_))));
}

#[test]
fn what_does_not_continue_what_is_known_is_not_followed() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    let mut heads = vec![begun.head];
    for n in 0..10 {
        begun.commit(vec![put(&format!("10.0.0.{n}"), 5 + n, None)]).unwrap();
        heads.push(begun.head);
    }
    let follows = |from: Head| wait(begun.store.follow(ShardId(0), from)).unwrap();
    assert_eq!(follows(heads[0]).map(|(batches, _)| batches.len()), Some(10));
    for at in [3, 10] {
        assert_eq!(follows(Head { digest: Digest(7), ..heads[at] }), None, "another line, {at} batches on");
    }
    assert_eq!(follows(Head { seq: Seq(heads[10].seq.0 + 1), ..heads[10] }), None, "it went back");
    let _: u64 = begun.server.ask(&["XTRIM", "{allod}:0:log", "MINID", &format!("{}-0", heads[5].seq.0 + 1)]);
    assert_eq!(follows(heads[4]), None, "it is not kept any more");
    assert_eq!(follows(heads[5]).map(|(batches, _)| batches.len()), Some(5));
}

/// Somebody changed the key by hand. With fewer shards, nobody would miss the networks of the others.
#[test]
fn a_register_whose_own_key_says_something_else_than_when_it_was_opened_is_told_with_what_puts_it_back() {
    let Some(begun) = Begun::new(&[]) else { return };
    let reread = || wait(begun.store.reread(0));
    assert_eq!(reread().unwrap(), None);
    for (field, opened, found) in [("shards", "3", "2"), ("format", "1", "2")] {
        let _: u64 = begun.server.ask(&["HSET", "{allod}:register", field, found]);
        let told = reread().unwrap_err();
        let said = told.to_string();
        assert!(matches!(told, StoreError::Damaged(_)) && said.contains(&format!("`{field}` is {found}")), "{said}");
        let (_, back) = said.split_once(", `").unwrap();
        let words: Vec<&str> = back.trim_end_matches('`').split(' ').collect();
        assert_eq!(words, ["HSET", "{allod}:register", field, opened]);
        let _: u64 = begun.server.ask(&words);
        assert_eq!(reread().unwrap(), None);
    }
    let _: u64 = begun.server.ask(&["HDEL", "{allod}:register", "shards"]);
    let said = reread().unwrap_err().to_string();
    assert!(said.contains("`shards` is nothing"), "{said}");
}

/// The image is consistent: what is committed meanwhile is in it, or comes after it.
#[test]
fn what_is_read_while_the_owner_writes_is_whole() {
    let Some(mut begun) = Begun::new(&[]) else { return };
    for n in 0..200 {
        let steps = (0..10).map(|k| put(&format!("10.{}.{}.{}", n % 4, n, k), 5, None)).collect();
        begun.commit(steps).unwrap();
    }
    let other = begun.server.open().unwrap();
    let done = AtomicBool::new(false);
    let last = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut followed = Vec::new();
            while !done.load(Ordering::Acquire) {
                let image = wait(other.beside(ShardId(0))).unwrap();
                let (batches, head) = wait(other.follow(ShardId(0), image.head)).unwrap().expect("one line");
                let mut model = model_of(&image);
                for step in batches.iter().flat_map(|batch| &batch.acts).flat_map(|act| &act.steps) {
                    match &step.state {
                        Some(state) => drop(model.insert((network(1), step.key), state.clone())),
                        None => drop(model.remove(&(network(1), step.key))),
                    }
                }
                followed.push((head, model));
            }
            followed
        });
        let mut models = BTreeMap::from([(begun.head.seq, begun.load())]);
        for n in 0..300u64 {
            let (address, generation) = (format!("10.9.0.{}", n % 50), 1_000 + n);
            let expect = (n >= 50).then(|| generation - 50);
            let next = batch(&begun.head, 0, vec![put(&address, generation, expect)]);
            let committed = wait(begun.store.commit([next.clone()].into())).unwrap();
            let mut model = models[&begun.head.seq].clone();
            for step in &next.acts[0].steps {
                model.insert((network(1), step.key), step.state.clone().unwrap());
            }
            follow(&mut begun.head, &next, &committed[0]);
            models.insert(begun.head.seq, model);
        }
        done.store(true, Ordering::Release);
        (reading.join().unwrap(), models)
    });
    let (followed, models) = last;
    assert!(followed.len() > 1, "nothing was read meanwhile");
    for (head, model) in followed {
        assert!(models[&head.seq] == model, "torn at batch {}", head.seq.0);
    }
}

/// The owner is busy and its log is cut soon. A reader beside it is told why the read fails; for a successor that reads, the
/// log is kept.
#[test]
fn a_shard_whose_log_is_cut_while_it_is_read_beside_its_owner_is_told_to_be_so_and_is_kept_for_a_successor() {
    let Some(server) = Server::start(&[]) else { return };
    let front = Front::to(&server);
    let options = RedisOptions { history_bytes: 0, ..server.options() };
    let store = RedisStore::open(options).unwrap();
    let head = wait(store.take(ShardId(0), token(1))).unwrap();
    let mut begun = Begun { server, store, head };
    begun.commit(vec![config_step(network(1))]).unwrap();
    for n in 0..4 {
        begun
            .commit(vec![put(&format!("10.0.1.{n}"), 5 + n, None), put(&format!("2001:db8::{n:x}"), 5 + n, None)])
            .unwrap();
    }
    let far = RedisOptions { url: format!("redis://127.0.0.1:{}/", front.port), ..begun.server.options() };
    let other = RedisStore::open(far).unwrap();
    let mut n = 0;
    let end = Instant::now() + Duration::from_secs(60);
    let mut read_beside = |begun: &mut Begun| {
        front.hold_up(&begun.server, 1);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| wait(other.beside(ShardId(0))));
            while !reading.is_finished() {
                if !front.holds_somebody_up() {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                // More than what always stays in the log, between two looks at the head.
                for _ in 0..256 {
                    begun.commit(vec![put(&format!("10.2.{}.{}", n / 256, n % 256), 100 + n, None)]).unwrap();
                    n += 1;
                }
                // The reader that is held up goes on, and the next but one is held up.
                front.hold_up(&begun.server, 2);
            }
            reading.join().unwrap()
        })
    };
    for is_read in [false, true] {
        begun.store.is_read_beside(is_read);
        // On a busy machine so many commits may take longer than a reader waits for an answer: that says nothing of the log.
        let read = loop {
            match read_beside(&mut begun) {
                Err(StoreError::Io { source, .. }) if source.to_string() == "timed out" && Instant::now() < end => {}
                read => break read,
            }
        };
        match read {
            Ok(image) => assert!(is_read && model_of(&image).len() > 8),
            Err(StoreError::Io { source, .. }) => {
                assert!(!is_read && source.to_string().contains("history.keep_bytes"), "{source}");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}
