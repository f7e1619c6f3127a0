//! The same batches are given to the memory store and to Redis: outcomes, states and histories must be the same.

use std::collections::BTreeMap;

use allod::store::memory::MemoryStore;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;

/// An outcome without its words. Of several mismatches each store names one.
fn outcome(result: &Result<Vec<Committed>, CommitError>) -> String {
    match result {
        Ok(committed) => format!("{committed:?}"),
        Err(CommitError::NotApplied { cause: StoreError::Gap { shard, last } }) => format!("gap {shard:?} {last:?}"),
        Err(CommitError::NotApplied { cause: StoreError::Invalid(_) }) => "invalid".to_owned(),
        Err(CommitError::Mismatch { .. }) => "mismatch".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

/// Networks and addresses are few, so that steps collide; some addresses are close together, some far apart.
fn address(random: &mut SmallRng) -> Address {
    match random.random_range(0..4) {
        0 => Address::V4(0x0a00_0000 + random.random_range(0..200)),
        1 => Address::V4(random.random_range(0..8) << 28),
        2 => Address::V6(0x2001_0db8 << 96 | random.random_range(0..200)),
        _ => Address::V6(
            0x2001_0db8 << 96 | u128::from(random.random_range(0..200u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        ),
    }
}

struct World {
    random: SmallRng,
    generation: u64,
    /// Marks as they would be after everything offered, whether it was applied or not.
    marks: BTreeMap<(NetworkId, Key), u64>,
}

impl World {
    fn steps(&mut self, network: NetworkId, may_be_wrong: bool) -> Vec<Step> {
        let wrong = may_be_wrong && self.random.random_bool(0.1);
        let mut steps = Vec::new();
        self.marks.entry((network, Key::Config)).or_insert_with(|| {
            steps.push(config_step(network));
            1
        });
        for _ in 0..self.random.random_range(0..40) {
            let key = Key::Address(address(&mut self.random));
            let mut expect = self.marks.get(&(network, key)).copied();
            if wrong && self.random.random_bool(0.1) {
                expect = self.random.random_bool(0.5).then(|| self.random.random_range(1..self.generation + 2));
            }
            self.generation += 1;
            let Key::Address(address) = key else { continue };
            let length = address.family().width();
            let state = match self.random.random_range(0..4) {
                0 | 1 => Some(State::Entry(entry(self.generation, length))),
                2 if expect.is_some() => Some(State::Entry(Entry::Declined(Arc::new(Declined {
                    prefix_length: length,
                    by: held(1).holder,
                    generation: Generation(self.generation),
                    until: ShardTime(9),
                    seen: "".into(),
                    promise: None,
                })))),
                _ if expect.is_some() => None,
                _ => Some(State::Entry(entry(self.generation, length))),
            };
            match &state {
                Some(state) => self.marks.insert((network, key), state.mark()),
                None => self.marks.remove(&(network, key)),
            };
            steps.push(Step { key, expect, state, event: None });
        }
        steps
    }
}

fn play(seed: u64, redis: &dyn Store) -> usize {
    let memory = MemoryStore::new(SHARDS);
    let stores: [&dyn Store; 2] = [&memory, redis];
    let mut world = World { random: SmallRng::seed_from_u64(seed), generation: 1_000, marks: BTreeMap::new() };
    let mut token = 0u128;
    let mut heads: Vec<Head> = Vec::new();
    let mut refused = 0;
    for shard in 0..SHARDS {
        token += 1;
        let taken = stores.map(|store| wait(store.take(ShardId(shard), Token(token))).unwrap());
        assert_eq!(taken[0], taken[1]);
        heads.push(taken[0]);
    }
    for round in 0..150 {
        let context = format!("seed {seed}, round {round}");
        // One round has wrong names, the next wrong expectations: nobody promises which of the two is named first.
        let forged = round % 2 == 0;
        let mut batches = Vec::new();
        for shard in 0..SHARDS {
            if !world.random.random_bool(0.5) {
                continue;
            }
            let marks = world.marks.clone();
            let acts = (0..world.random.random_range(0..3u128)).map(|n| {
                let id = network(u128::from(shard) * 10 + n);
                let steps = world.steps(id, !forged);
                Act { network: id, ..batch(&heads[usize::from(shard)], shard, steps).acts.remove(0) }
            });
            let acts = acts.collect();
            let mut next = Batch { acts, ..batch(&heads[usize::from(shard)], shard, vec![]) };
            next.generation = Generation(world.generation);
            match world.random.random_range(if forged { 0..40 } else { 40..41 }) {
                0 => next.seq.0 += 1,
                1 => next.token = Token(999),
                2 => next.epoch.0 += 1,
                3 => next.time = ShardTime(0),
                4 => next.seq.0 = next.seq.0.saturating_sub(1),
                _ => {
                    batches.push(next);
                    continue;
                }
            }
            world.marks = marks;
            batches.push(next);
        }
        let batches: Arc<[Batch]> = batches.into();
        let answers = stores.map(|store| wait(store.commit(Arc::clone(&batches))));
        assert_eq!(outcome(&answers[0]), outcome(&answers[1]), "{context}: {batches:#?}");
        if world.random.random_bool(0.2) {
            let again = stores.map(|store| wait(store.commit(Arc::clone(&batches))));
            assert_eq!(outcome(&again[0]), outcome(&again[1]), "{context}: again");
        }
        match &answers[0] {
            Ok(committed) => {
                for (batch, committed) in batches.iter().zip(committed) {
                    if heads[usize::from(batch.shard.0)].seq < batch.seq {
                        follow(&mut heads[usize::from(batch.shard.0)], batch, committed);
                    }
                }
            }
            Err(_) => {
                refused += 1;
                // As an owner does after a doubtful outcome: it takes the shard anew and reads what is there.
                world.marks.clear();
                for shard in 0..SHARDS {
                    token += 1;
                    let taken = stores.map(|store| wait(store.take(ShardId(shard), Token(token))).unwrap());
                    assert_eq!(taken[0], taken[1], "{context}");
                    heads[usize::from(shard)] = taken[0];
                    let images = stores.map(|store| wait(store.load(ShardId(shard), Token(token))).unwrap());
                    let [one, other] = images.map(|image| model_of(&image));
                    assert_eq!(one, other, "{context}");
                    world.marks.extend(one.iter().map(|(key, state)| (*key, state.mark())));
                }
            }
        }
    }
    for shard in 0..SHARDS {
        let histories = stores.map(|store| wait(store.history(ShardId(shard), Seq(0), usize::MAX)).unwrap());
        assert_eq!(histories[0], histories[1], "seed {seed}");
    }
    refused
}

#[test]
fn random_batches_end_alike_in_memory_and_in_redis() {
    let Some(server) = Server::start(&[]) else { return };
    let first = crate::seed::seed();
    let mut refused = 0;
    for seed in (0..12).map(|at| first.wrapping_add(at)) {
        println!("seed {seed}");
        let () = server.ask(&["FLUSHALL"]);
        refused += play(seed, &server.open().unwrap());
    }
    assert!(refused > 0, "nothing was refused");
}
