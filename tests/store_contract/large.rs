//! A shard with more records than the reading thread assembles itself, and faults in one of them.

use std::path::Path;

use allod::core::address::Address;
use allod::core::state::*;
use allod::core::types::*;
use allod::store::embedded::{EmbeddedOptions, EmbeddedStore};
use allod::store::*;

use super::crash::until;
use super::disk::SimDisk;
use super::work::*;

/// Records of the large network.
const RECORDS: u32 = 20_000;
/// Steps of one batch.
const STEPS: u32 = 500;

fn opened(disk: &SimDisk, snapshot_log_bytes: u64) -> EmbeddedStore {
    let options = EmbeddedOptions { segment_bytes: 512 << 10, snapshot_log_bytes, ..options(disk) };
    EmbeddedStore::open(Path::new(DIR), SHARDS, options).unwrap()
}

/// Commits batches to the first shard and remembers them.
struct Writing<'a> {
    store: &'a EmbeddedStore,
    head: Head,
    sent: Vec<Batch>,
}

impl<'a> Writing<'a> {
    fn begin(store: &'a EmbeddedStore) -> Self {
        let head = wait(store.take(ShardId(0), Token(0x100))).unwrap();
        Self { store, head, sent: Vec::new() }
    }

    fn commit(&mut self, network: NetworkId, steps: Vec<Step>) {
        let mut next = batch(&self.head, 0, steps);
        next.acts[0].network = network;
        let committed = wait(self.store.commit([next.clone()].into())).unwrap();
        follow(&mut self.head, &next, &committed[0]);
        self.sent.push(next);
    }

    /// Grants the addresses in this order, with rising generations.
    fn fill(&mut self, network: NetworkId, order: impl Iterator<Item = u32>) {
        let steps: Vec<Step> = order.map(|n| grant(0x0a00_0000 + n, u64::from(n) + 1, None)).collect();
        for some in steps.chunks(STEPS as usize) {
            self.commit(network, some.to_vec());
        }
    }
}

fn load(disk: &SimDisk, snapshot_log_bytes: u64) -> (Head, Result<ShardImage, StoreError>) {
    let store = opened(disk, snapshot_log_bytes);
    let head = wait(store.take(ShardId(0), Token(0x200))).unwrap();
    let image = wait(store.load(ShardId(0), Token(0x200)));
    if let Ok(image) = &image {
        // Once more, now that nothing is prepared.
        let again = wait(store.load(ShardId(0), Token(0x200))).unwrap();
        assert_eq!((again.head, model_of(&again)), (image.head, model_of(image)));
    }
    (head, image)
}

#[test]
fn a_large_shard_is_loaded_as_it_was_written_in_whatever_order() {
    let ascending: Vec<u32> = (0..RECORDS).collect();
    let descending: Vec<u32> = (0..RECORDS).rev().collect();
    for (what, order) in [("ascending", ascending), ("descending", descending)] {
        for snapshot_log_bytes in [64 << 20, 256 << 10] {
            let disk = SimDisk::default();
            let store = opened(&disk, snapshot_log_bytes);
            let mut writing = Writing::begin(&store);
            writing.commit(network(7), vec![config_step(network(7))]);
            writing.commit(network(3), vec![config_step(network(3)), grant(0x0b00_0000, 1, None)]);
            writing.fill(network(7), order.iter().copied());
            if snapshot_log_bytes < 64 << 20 {
                until("a snapshot", || store.figures().compactions > 0);
            }
            // Some addresses are let go, some of them granted to others, and another network follows.
            let freed = (0..STEPS).map(|n| free(0x0a00_0000 + n * 7, u64::from(n) * 7 + 1)).collect();
            writing.commit(network(7), freed);
            let generation = |n: u32| u64::from(RECORDS + n);
            writing.commit(network(7), (0..90).map(|n| grant(0x0a00_0000 + n * 7, generation(n), None)).collect());
            writing.commit(network(9), vec![config_step(network(9)), grant(0x0c00_0000, 1, None)]);
            let written = model(&writing.sent);
            let disk = disk.after_kill();
            let (head, image) = load(&disk, snapshot_log_bytes);
            let image = image.unwrap();
            assert_eq!(image.head, head);
            assert!(model_of(&image) == written, "{what}, snapshot behind {snapshot_log_bytes} bytes");
        }
    }
}

/// The files that a start reads do not contain what is committed after it, such as a take-over.
#[test]
fn what_was_committed_since_the_start_is_loaded_with_what_was_read_then() {
    let disk = SimDisk::default();
    let store = opened(&disk, 64 << 20);
    let mut writing = Writing::begin(&store);
    writing.commit(network(7), vec![config_step(network(7))]);
    writing.fill(network(7), 0..RECORDS);
    let mut sent = writing.sent;
    let disk = disk.after_kill();
    let store = opened(&disk, 64 << 20);
    let mut writing = Writing::begin(&store);
    for n in 0..40 {
        // Enough to fill one segment more than the one in which the log ended.
        let renewed = (0..STEPS).map(|k| n * STEPS + k).map(|at| {
            let expect = Some(u64::from(at) + 1);
            grant(0x0a00_0000 + at, u64::from(RECORDS + at), expect)
        });
        writing.commit(network(7), renewed.collect());
    }
    sent.append(&mut writing.sent);
    let image = wait(store.load(ShardId(0), Token(0x100))).unwrap();
    assert_eq!(image.head, writing.head);
    assert!(model_of(&image) == model(&sent));
}

#[test]
fn what_is_wrong_among_many_records_is_told_wherever_it_lies() {
    for wrong in [3, 9] {
        let disk = SimDisk::default();
        let store = opened(&disk, 64 << 20);
        let mut writing = Writing::begin(&store);
        writing.commit(network(7), vec![config_step(network(7))]);
        writing.fill(network(7), 0..RECORDS);
        // Nobody created that network.
        writing.commit(network(wrong), vec![grant(0x0b00_0000, 1, None)]);
        let (_, image) = load(&disk.after_kill(), 64 << 20);
        match image {
            Err(StoreError::Damaged(text)) => assert!(text.contains("no configuration"), "{text}"),
            other => panic!("{:?}", other.map(|image| image.head)),
        }
    }
}

/// A step that does not fit the state below it: the log was put together from two.
#[test]
fn a_step_that_expects_something_else_is_damage_among_many() {
    let disk = SimDisk::default();
    let store = opened(&disk, 64 << 20);
    let mut writing = Writing::begin(&store);
    writing.commit(network(7), vec![config_step(network(7))]);
    writing.fill(network(7), 0..RECORDS);
    writing.commit(network(7), vec![grant(0x0a00_0005, 90_000, Some(77))]);
    let (_, image) = load(&disk.after_kill(), 64 << 20);
    match image {
        Err(StoreError::Damaged(text)) => assert!(text.contains("expects mark"), "{text}"),
        other => panic!("{:?}", other.map(|image| image.head)),
    }
    let address = Address::V4(0x0a00_0005);
    assert!(model(&writing.sent).contains_key(&(network(7), Key::Address(address))));
}
