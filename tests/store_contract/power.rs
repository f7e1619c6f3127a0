//! The process ends in the middle of something, the next one serves, and then the power goes: whatever the restart relied on
//! must still be there.

use std::path::Path;

use allod::store::embedded::{EmbeddedOptions, EmbeddedStore};
use allod::store::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::crash::until;
use super::disk::SimDisk;
use super::work::*;
use crate::seed::seed;

/// Segments and snapshots are removed soon, so directories change often.
fn bounded(disk: &SimDisk) -> EmbeddedOptions {
    EmbeddedOptions { history_bytes: 24 << 10, ..options(disk) }
}

fn open(disk: &SimDisk) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::open(Path::new(DIR), SHARDS, bounded(disk))
}

/// A process meets `trouble`, another one serves after it, and then the power goes. Returns whether the trouble happened.
fn served_again_and_lost(rng: &mut SmallRng, context: &str, trouble: impl Fn(&SimDisk)) -> bool {
    let disk = SimDisk::default();
    trouble(&disk);
    let store = open(&disk);
    if let Ok(store) = &store {
        run(store, 160, 0x100);
    }
    let came = disk.failed();
    let killed = disk.after_kill();
    // Check what this process is told, in a shard that the one before did not have.
    let again = open(&killed).unwrap_or_else(|error| panic!("{context}: {error}"));
    let mut head = wait(again.take(ShardId(2), Token(5))).unwrap();
    let mut offered = Vec::new();
    for n in 0..40 {
        let next = batch(&head, 2, rows(n, 2, &offered));
        let done = wait(again.commit([next.clone()].into())).unwrap();
        follow(&mut head, &next, &done[0]);
        offered.push(next);
    }
    for _ in 0..4 {
        let lost = killed.after_power_loss(rng);
        let store = open(&lost).unwrap_or_else(|error| panic!("{context}, served again, power lost: {error}"));
        wait(store.take(ShardId(2), Token(6))).unwrap();
        let image = wait(store.load(ShardId(2), Token(6))).unwrap();
        assert_eq!(image.head.seq, head.seq, "{context}");
        assert_eq!(model_of(&image), model(&offered), "{context}");
    }
    drop(again);
    drop(store);
    came
}

/// Tries every n-th place, so that the test takes some seconds. The first one is drawn at random: over time all are tried.
fn each(mut came: impl FnMut(&mut SmallRng, u64) -> bool, step: u64) -> u64 {
    let seed = seed();
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut count = 0;
    let mut at = 1 + seed % step;
    while came(&mut rng, at) {
        (count, at) = (count + 1, at + step);
    }
    count
}

#[test]
fn whichever_operation_failed_what_the_next_process_acknowledged_outlives_the_power() {
    let operations =
        each(|rng, at| served_again_and_lost(rng, &format!("operation {at} failed"), |disk| disk.fail_at(at)), 7);
    assert!(operations > 30, "only {operations} operations were made to fail");
}

#[test]
fn at_whichever_operation_it_was_killed_what_the_next_process_acknowledged_outlives_the_power() {
    let operations =
        each(|rng, at| served_again_and_lost(rng, &format!("killed at operation {at}"), |disk| disk.kill_at(at)), 7);
    assert!(operations > 30, "it was killed only {operations} times");
}

#[test]
fn names_that_a_killed_process_did_not_flush_outlive_the_power_once_the_next_one_serves() {
    let flushes = each(
        |rng, at| {
            let context = format!("killed before directory flush {at}");
            served_again_and_lost(rng, &context, |disk| disk.kill_at_directory(at))
        },
        1,
    );
    assert!(flushes > 10, "only {flushes} directories were flushed");
}

/// Checks that everything is there, however much of the history is left.
fn whole(disk: &SimDisk, run: &Run, context: &str) -> EmbeddedStore {
    let store = open(disk).unwrap_or_else(|error| panic!("{context}: {error}"));
    for shard in 0..2u16 {
        let head = wait(store.take(ShardId(shard), Token(7))).unwrap();
        assert_eq!(head.seq.0 as usize, run.acknowledged[usize::from(shard)], "{context}");
        let image = wait(store.load(ShardId(shard), Token(7))).unwrap();
        assert_eq!(model_of(&image), model(&run.offered[usize::from(shard)]), "{context}");
    }
    store
}

/// Lowered bounds let history go at a start and at the next one; each is broken off in turn.
#[test]
fn at_whichever_operation_letting_history_go_is_broken_off_the_register_is_whole() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let disk = SimDisk::default();
    let store = EmbeddedStore::open(Path::new(DIR), SHARDS, options(&disk)).unwrap();
    let run = run(&store, 160, 0x100);
    until("a snapshot", || store.figures().compactions > 0);
    drop(store);
    // Three within the bounds, the one in use, and a spare one.
    let has_let_go = |disk: &SimDisk| {
        disk.files().iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "seg")).count() <= 5
    };
    assert!(!has_let_go(&disk));
    for is_killed in [false, true] {
        let mut operations = 0;
        for at in 1.. {
            let context = format!("operation {at} {}", if is_killed { "was the last" } else { "failed" });
            let image = disk.after_kill();
            if is_killed {
                image.kill_at(at)
            } else {
                image.fail_at(at)
            }
            let store = open(&image);
            if store.is_ok() {
                until(&context, || image.failed() || has_let_go(&image));
            }
            for _ in 0..4 {
                drop(whole(&image.after_power_loss(&mut rng), &run, &format!("{context}, power lost")));
            }
            let killed = image.after_kill();
            let again = whole(&killed, &run, &format!("{context}, killed"));
            until(&context, || has_let_go(&killed));
            for _ in 0..4 {
                let context = format!("{context}, let go again, power lost");
                drop(whole(&killed.after_power_loss(&mut rng), &run, &context));
            }
            drop(again);
            drop(store);
            if !image.failed() {
                break;
            }
            operations += 1;
        }
        assert!(operations > 15, "only {operations} operations");
    }
}

#[test]
fn a_snapshot_that_cannot_be_read_back_is_no_reason_not_to_start() {
    let disk = SimDisk::default();
    let store = open(&disk).unwrap();
    disk.spoil_a_snapshot();
    let run = run(&store, 300, 0x100);
    until("a snapshot after the bad one", || {
        let figures = store.figures();
        figures.compactions > 0 && figures.compaction_failures > 0
    });
    let snapshots = disk.files().into_iter().filter(|(path, _)| path.parent().is_some_and(|dir| dir.ends_with("snap")));
    assert!(snapshots.count() <= 2, "what could not be read back is removed: {:?}", disk.files());
    assert_eq!(store.damage(), None, "nothing of the register is damaged");
    drop(store);
    let again = open(&disk).unwrap();
    let head = wait(again.take(ShardId(0), Token(0x9000))).unwrap();
    assert!(head.seq.0 as usize >= run.acknowledged[0]);
}

/// A flushed file is lost if the name of any directory above it is.
#[test]
fn a_register_in_directories_that_are_new_outlives_the_power_with_all_of_them() {
    let mut rng = SmallRng::seed_from_u64(seed());
    for dir in ["allod-data", "a/b/c", "/data/allod", "/a/b/c/d"].map(Path::new) {
        let disk = SimDisk::default();
        let open = |disk: &SimDisk| EmbeddedStore::open(dir, SHARDS, options(disk));
        let store = open(&disk).unwrap();
        let run = run(&store, 30, 0x100);
        for _ in 0..8 {
            let lost = open(&disk.after_power_loss(&mut rng)).unwrap();
            check(&lost, &run, 0x9000, &format!("in {}", dir.display()));
        }
    }
}
