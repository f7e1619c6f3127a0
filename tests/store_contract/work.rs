//! Batches to commit, and what a store must hold after them.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use allod::core::address::Address;
use allod::core::deployment::{Deployment, SettledInstance, Stage};
use allod::core::state::*;
use allod::core::types::*;
use allod::store::embedded::{EmbeddedOptions, EmbeddedStore};
use allod::store::*;

use super::disk::SimDisk;
use super::records::{plain_network, plain_reservation, usual_holder};

pub const DIR: &str = "/data/allod";
pub const SHARDS: u16 = 3;

pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    // Every wait is bounded: a store that forgets an answer fails the test instead of hanging it.
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), future).await.expect("no answer in 60 s") })
}

/// Small files, so that even a short test rotates, merges and removes them.
pub fn options(disk: &SimDisk) -> EmbeddedOptions {
    EmbeddedOptions {
        segment_bytes: 8 << 10,
        // So that a disk also fails between the pieces of a segment.
        piece_bytes: 3 << 10,
        snapshot_log_bytes: 16 << 10,
        pass_bytes: 4 << 10,
        history_bytes: 1 << 30,
        history_grace: Duration::ZERO,
        full_retry: Duration::from_millis(2),
        compaction_retry: Duration::from_millis(2),
        idle: Duration::from_millis(50),
        disk: Arc::new(disk.clone()),
        ..EmbeddedOptions::default()
    }
}

pub fn open(disk: &SimDisk) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::open(Path::new(DIR), SHARDS, options(disk))
}

pub fn network(number: u128) -> NetworkId {
    NetworkId(number)
}

pub fn config_step(id: NetworkId) -> Step {
    let config = plain_network(id, &format!("net-{}", id.0));
    Step { key: Key::Config, expect: None, state: Some(State::Config(Arc::new(config))), event: None }
}

pub fn held(generation: u64) -> Reservation {
    plain_reservation(usual_holder(17, &format!("{generation:010}")), Generation(generation), 32)
}

pub fn grant(address: u32, generation: u64, expect: Option<u64>) -> Step {
    Step {
        key: Key::Address(Address::V4(address)),
        expect,
        state: Some(State::Entry(Entry::Held(Arc::new(held(generation))))),
        event: Some(Event { kind: EventKind::Granted, before: None }),
    }
}

pub fn free(address: u32, generation: u64) -> Step {
    Step {
        key: Key::Address(Address::V4(address)),
        expect: Some(generation),
        state: None,
        event: Some(Event { kind: EventKind::Released, before: Some(Arc::new(held(generation))) }),
    }
}

pub fn batch(head: &Head, shard: u16, steps: Vec<Step>) -> Batch {
    let act = Act {
        network: network(u128::from(shard) + 1),
        wall: WallTime(1_795_262_400_000 + head.seq.0),
        by: "token:test".into(),
        reason: None,
        transaction: None,
        steps,
    };
    Batch {
        shard: ShardId(shard),
        epoch: head.epoch,
        token: head.token,
        seq: Seq(head.seq.0 + 1),
        time: ShardTime(head.time.0 + 10),
        generation: Generation(head.generation.0 + 10),
        acts: vec![act],
    }
}

pub fn follow(head: &mut Head, batch: &Batch, committed: &Committed) {
    head.seq = batch.seq;
    head.time = batch.time;
    head.generation = batch.generation;
    head.digest = committed.digest;
}

/// The state to which batches lead.
pub type Model = BTreeMap<(NetworkId, Key), State>;

pub fn model(batches: &[Batch]) -> Model {
    let mut model = Model::new();
    for act in batches.iter().flat_map(|batch| &batch.acts) {
        for step in &act.steps {
            match &step.state {
                Some(state) => model.insert((act.network, step.key), state.clone()),
                None => model.remove(&(act.network, step.key)),
            };
        }
    }
    model
}

pub fn model_of(image: &ShardImage) -> Model {
    let mut model = Model::new();
    for network in &image.networks {
        let id = network.config.id;
        model.insert((id, Key::Config), State::Config(network.config.clone()));
        for subnet in &network.subnets {
            model.insert((id, Key::Subnet(subnet.id)), State::Subnet(subnet.clone()));
        }
        assert!(network.entries.iter().is_sorted_by(|one, other| one.0 < other.0), "entries ascend");
        for (address, entry) in network.entries.iter() {
            model.insert((id, Key::Address(address)), State::Entry(entry.clone()));
        }
    }
    for (id, record) in &image.deployments {
        model.insert((*id, Key::Deployment), State::Deployment(record.clone()));
    }
    model
}

/// The record of a deployment after batch `n`: written, rewritten, and removed by every fourth batch.
pub fn record_act(n: u64, shard: u16, before: &[Batch]) -> Act {
    let id = network(0x900 + u128::from(shard));
    let now = model(before);
    let expect = now.get(&(id, Key::Deployment)).map(State::mark);
    let record = Deployment {
        name: "shop".parse().unwrap(),
        plan: n,
        wishes: u128::from(n) << 70,
        stage: [Stage::Open, Stage::Committed, Stage::Reverted][n as usize % 3],
        uncommitted_since: n.is_multiple_of(2).then_some(WallTime(n)),
        settled: (0..n % 3).map(|instance| SettledInstance { instance, reverted: n.is_multiple_of(2) }).collect(),
        version: Version(expect.unwrap_or(0) + 1),
    };
    let state = (n % 4 != 3 || expect.is_none()).then(|| State::Deployment(Arc::new(record)));
    let steps = vec![Step { key: Key::Deployment, expect, state, event: None }];
    Act { network: id, wall: WallTime(n), by: "token:test".into(), reason: None, transaction: None, steps }
}

/// Steps of batch `n` of a shard: four rows, granted and released in turns, so that both states and absences occur.
pub fn rows(n: u64, shard: u16, before: &[Batch]) -> Vec<Step> {
    if n == 0 {
        return vec![config_step(network(u128::from(shard) + 1))];
    }
    let now = model(before);
    (0..4)
        .map(|row| {
            let address = 0x0a00_0000 + ((n * 4 + row) * 7 % 97) as u32;
            let generation = n * 10 + row;
            let there = now.get(&(network(u128::from(shard) + 1), Key::Address(Address::V4(address))));
            match there.map(State::mark) {
                Some(mark) if (n + row).is_multiple_of(3) => free(address, mark),
                expect => grant(address, generation, expect),
            }
        })
        .collect()
}

/// What [`run`] offered, and what was acknowledged of it. It commits batches to shard 0, every third one together with one
/// to shard 1.
pub struct Run {
    pub offered: [Vec<Batch>; 2],
    pub acknowledged: [usize; 2],
    pub together: Vec<(Seq, Seq)>,
}

pub fn run(store: &dyn Store, rounds: u64, tokens: u128) -> Run {
    run_while(store, |n| n < rounds, tokens)
}

/// The same, as long as somebody wants another round, whose number he is told.
pub fn run_while(store: &dyn Store, goes_on: impl Fn(u64) -> bool, tokens: u128) -> Run {
    let mut run = Run { offered: Default::default(), acknowledged: [0; 2], together: Vec::new() };
    let mut heads = Vec::new();
    for shard in 0..2u16 {
        match wait(store.take(ShardId(shard), Token(tokens + u128::from(shard)))) {
            Ok(head) => heads.push(head),
            Err(_) => return run,
        }
    }
    for n in (0..).take_while(|n| goes_on(*n)) {
        let shards: &[u16] = if n % 3 == 0 { &[0, 1] } else { &[0] };
        let batches: Vec<Batch> = shards
            .iter()
            .map(|&shard| {
                let offered = &run.offered[usize::from(shard)];
                batch(&heads[usize::from(shard)], shard, rows(offered.len() as u64, shard, offered))
            })
            .collect();
        for batch in &batches {
            run.offered[usize::from(batch.shard.0)].push(batch.clone());
        }
        if let [first, second] = &batches[..] {
            run.together.push((first.seq, second.seq));
        }
        match wait(store.commit(batches.clone().into())) {
            Ok(committed) => {
                for (batch, committed) in batches.iter().zip(&committed) {
                    let shard = usize::from(batch.shard.0);
                    run.acknowledged[shard] += 1;
                    follow(&mut heads[shard], batch, committed);
                }
            }
            Err(_) => break,
        }
    }
    run
}

/// Checks that everything acknowledged is there, nothing that was not offered, and nothing by half; and that the state
/// follows from the batches.
pub fn check(store: &dyn Store, run: &Run, tokens: u128, context: &str) {
    let mut kept = [0; 2];
    for shard in 0..2u16 {
        let at = usize::from(shard);
        let history = wait(store.history(ShardId(shard), Seq(0), usize::MAX)).unwrap();
        assert!(history.len() >= run.acknowledged[at], "{context}: shard {shard} lost acknowledged batches");
        assert!(history.len() <= run.offered[at].len(), "{context}: shard {shard} has more than was offered");
        assert_eq!(history[..], run.offered[at][..history.len()], "{context}: shard {shard}");
        let token = Token(tokens + u128::from(shard));
        let head = wait(store.take(ShardId(shard), token)).unwrap();
        assert_eq!(head.seq.0 as usize, history.len(), "{context}");
        let image = wait(store.load(ShardId(shard), token)).unwrap();
        assert_eq!(image.head, head, "{context}");
        assert_eq!(model_of(&image), model(&history), "{context}: shard {shard}");
        kept[at] = history.len() as u64;
    }
    for (first, second) in &run.together {
        assert_eq!(first.0 <= kept[0], second.0 <= kept[1], "{context}: half of a joint commit");
    }
}
