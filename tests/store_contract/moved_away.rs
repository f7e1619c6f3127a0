//! A directory is moved away under its store. Whatever has its name then is not the store's: nothing is created or removed
//! in it.

use std::path::Path;

use allod::store::embedded::{EmbeddedOptions, EmbeddedStore};
use allod::store::*;

use super::crash::until;
use super::disk::SimDisk;
use super::work::*;

/// Small real files.
fn real() -> EmbeddedOptions {
    EmbeddedOptions { disk: EmbeddedOptions::default().disk, ..options(&SimDisk::default()) }
}

/// Grants and releases the same address in turns until the log cannot be continued.
fn turn_until_full(store: &EmbeddedStore, head: &mut Head) {
    while store.health() == StoreHealth::Ready {
        let generation = head.generation.0;
        for steps in [vec![grant(7, generation, None)], vec![free(7, generation)]] {
            let next = batch(head, 0, steps);
            let Ok(committed) = wait(store.commit([next.clone()].into())) else { break };
            follow(head, &next, &committed[0]);
        }
    }
}

fn everything_in(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        entries.flat_map(|path| if path.is_dir() { everything_in(&path) } else { vec![path] }).collect();
    found.sort();
    found
}

fn stands_still_until_it_is_moved_back(put_in_its_place: impl Fn(&Path, &Path)) {
    let directory = tempfile::tempdir().unwrap();
    let [dir, elsewhere] = ["data", "elsewhere"].map(|name| directory.path().join(name));
    let store = EmbeddedStore::open(&dir, SHARDS, real()).unwrap();
    let mut head = wait(store.take(ShardId(0), Token(1))).unwrap();
    let config = batch(&head, 0, vec![config_step(network(1))]);
    let committed = wait(store.commit([config.clone()].into())).unwrap();
    follow(&mut head, &config, &committed[0]);
    std::fs::rename(&dir, &elsewhere).unwrap();
    put_in_its_place(&dir, &elsewhere);
    let there = || if dir.exists() { everything_in(&dir) } else { Vec::new() };
    let before = there();
    turn_until_full(&store, &mut head);
    assert_eq!(store.health(), StoreHealth::Full);
    let said = store.obstacle();
    assert!(said.contains("the data directory was moved away") && said.contains("moved back"), "{said}");
    assert!(!store.lacks_room());
    assert_eq!(there(), before);
    // Nothing of the register is lost, either.
    let looked = wait(store.reread(0)).unwrap_err();
    assert!(matches!(&looked, StoreError::Io { .. }) && looked.to_string().contains("moved away"), "{looked}");
    assert_eq!(store.damage(), None);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).unwrap();
    }
    std::fs::rename(&elsewhere, &dir).unwrap();
    until("it goes on", || store.health() == StoreHealth::Ready);
    let (figures, failures) = (|| store.figures(), store.figures().compaction_failures);
    while figures().compactions == 0 && figures().compaction_failures == failures {
        let generation = head.generation.0;
        for steps in [vec![grant(7, generation, None)], vec![free(7, generation)]] {
            let next = batch(&head, 0, steps);
            let committed = wait(store.commit([next.clone()].into())).unwrap();
            follow(&mut head, &next, &committed[0]);
        }
    }
    drop(store);
    let again = EmbeddedStore::open(&dir, SHARDS, real()).unwrap();
    let last = wait(again.take(ShardId(0), Token(2))).unwrap();
    assert_eq!(last.seq, head.seq, "all that was acknowledged is there");
}

#[test]
fn a_directory_that_is_moved_away_is_written_to_where_it_is_and_nothing_is_made_where_it_was() {
    stands_still_until_it_is_moved_back(|_, _| ());
}

#[test]
fn what_is_put_where_a_directory_was_is_left_alone() {
    stands_still_until_it_is_moved_back(|dir, _| {
        std::fs::create_dir_all(dir.join("log")).unwrap();
        std::fs::create_dir_all(dir.join("snap")).unwrap();
    });
    // Even if the other directory is a register.
    stands_still_until_it_is_moved_back(|dir, _| drop(EmbeddedStore::open(dir, SHARDS, real()).unwrap()));
}
