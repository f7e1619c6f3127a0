//! Durable commits of groups of 1, 32, 256 and 1024 reservations, and loading a million: the embedded store beside redb.
//!
//! `cargo bench --bench store`. The directory is made under `ALLOD_BENCH_DIR`, or the system's temporary directory: give
//! one on the disk that is meant. redb keeps the same encoded batches in a table by number, with two-phase commit, which
//! is the setting that loses nothing to one changed byte.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark is no library and may sleep"
)]

#[path = "../tests/store_contract/records.rs"]
mod records;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allod::core::address::Address;
use allod::core::state::*;
use allod::core::types::*;
use allod::store::embedded::{EmbeddedOptions, EmbeddedStore};
use allod::store::*;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use records::{plain_network, plain_reservation, usual_holder};

const LOG: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("log");
const NETWORK: NetworkId = NetworkId(7);

fn directory() -> tempfile::TempDir {
    let above = std::env::var_os("ALLOD_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(above).expect("a directory for the benchmark")
}

fn wait<T>(runtime: &tokio::runtime::Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(future)
}

fn grant(number: u32) -> Step {
    let holder = usual_holder(17, &format!("{number:010}"));
    let reservation = plain_reservation(holder, Generation((1_795_262_400 << 20) + u64::from(number)), 32);
    Step {
        key: Key::Address(Address::V4(0x0a00_0000 + number)),
        expect: None,
        state: Some(State::Entry(Entry::Held(Arc::new(reservation)))),
        event: Some(Event { kind: EventKind::Granted, before: None }),
    }
}

fn config() -> Step {
    let config = plain_network(NETWORK, "lan");
    Step { key: Key::Config, expect: None, state: Some(State::Config(Arc::new(config))), event: None }
}

/// One act a request, as a committer hands them over.
fn batch(head: &Head, steps: Vec<Step>) -> Batch {
    let act = |step| Act {
        network: NETWORK,
        wall: WallTime(1_795_262_400_000),
        by: "token:bench".into(),
        reason: None,
        transaction: None,
        steps: vec![step],
    };
    Batch {
        shard: ShardId(0),
        epoch: head.epoch,
        token: head.token,
        seq: Seq(head.seq.0 + 1),
        time: head.time,
        generation: Generation(1 << 52),
        acts: steps.into_iter().map(act).collect(),
    }
}

fn open(dir: &std::path::Path, runtime: &tokio::runtime::Runtime, token: u128) -> (EmbeddedStore, Head) {
    let store = EmbeddedStore::open(dir, 1, EmbeddedOptions::default()).expect("the store opens");
    let head = wait(runtime, store.take(ShardId(0), Token(token))).expect("the shard is taken");
    (store, head)
}

fn commits(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut group = criterion.benchmark_group("durable_commit");
    group.measurement_time(Duration::from_secs(4)).warm_up_time(Duration::from_secs(1)).sample_size(30);
    for size in [1u32, 32, 256, 1024] {
        group.throughput(Throughput::Elements(size.into()));
        group.bench_function(format!("embedded/{size}"), |bencher| {
            let dir = directory();
            let (store, mut head) = open(dir.path(), &runtime, 1);
            // The keys repeat and the state is never read, so that only the log is measured, not a growing state.
            bencher.iter_batched(
                || {
                    let next = batch(&head, (0..size).map(grant).collect());
                    head.seq = next.seq;
                    next
                },
                |next| wait(&runtime, store.commit([next].into())).expect("the batch is committed"),
                BatchSize::PerIteration,
            );
        });
        group.bench_function(format!("redb_two_phase/{size}"), |bencher| {
            let dir = directory();
            let database = redb::Database::create(dir.path().join("redb")).expect("the database opens");
            let mut head = head_zero();
            bencher.iter_batched(
                || {
                    let next = batch(&head, (0..size).map(grant).collect());
                    head.seq = next.seq;
                    next
                },
                |next| {
                    let mut bytes = Vec::new();
                    codec::encode_batch(&next, codec::Format::NEWEST, &mut bytes).expect("the batch is encoded");
                    let mut transaction = database.begin_write().expect("a transaction");
                    transaction.set_two_phase_commit(true);
                    let mut log = transaction.open_table(LOG).expect("the table");
                    log.insert(next.seq.0, &bytes[..]).expect("the batch is inserted");
                    drop(log);
                    transaction.commit().expect("the batch is committed");
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn head_zero() -> Head {
    Head { epoch: Epoch(1), token: Token(1), ..Head::default() }
}

fn load(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let dir = directory();
    let (store, mut head) = open(dir.path(), &runtime, 1);
    let first = batch(&head, vec![config()]);
    head.seq = first.seq;
    wait(&runtime, store.commit([first].into())).expect("the network is committed");
    for part in 0..1_000 {
        let next = batch(&head, (part * 1_000..(part + 1) * 1_000).map(grant).collect());
        head.seq = next.seq;
        wait(&runtime, store.commit([next].into())).expect("the batch is committed");
    }
    // Long enough for the snapshot that the log's length asks for.
    std::thread::sleep(Duration::from_secs(3));
    println!("load: {:?}", store.figures());
    let mut group = criterion.benchmark_group("million_reservations");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    group.bench_function("load", |bencher| {
        bencher.iter_with_large_drop(|| {
            let image = wait(&runtime, store.load(ShardId(0), Token(1))).expect("the shard is loaded");
            assert_eq!(image.networks[0].entries.len(), 1_000_000);
            image
        });
    });
    drop(store);
    group.bench_function("open", |bencher| {
        bencher.iter(|| EmbeddedStore::open(dir.path(), 1, EmbeddedOptions::default()).expect("the store opens"));
    });
    group.finish();
}

criterion_group!(benches, commits, load);
criterion_main!(benches);
