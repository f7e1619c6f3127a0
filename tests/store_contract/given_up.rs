//! A register with damaged history, which the operator gives up. No state is ever given up with it: where state would be
//! lost, the start is refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allod::store::embedded::{EmbeddedOptions, EmbeddedStore, copy, verify};
use allod::store::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::crash::{broken_off_at_any_step, until, written};
use super::damage::{killed, of_kind};
use super::disk::SimDisk;
use super::work::*;
use crate::seed::seed;

/// Opens the register as `allod serve --give-up-history` does.
fn open_without(disk: &SimDisk) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::open(Path::new(DIR), SHARDS, EmbeddedOptions { give_up_history: true, ..options(disk) })
}

/// Checks that all state is there, and the history from some batch on without a gap. Returns the number of that batch for
/// each shard.
fn check_state(store: &dyn Store, run: &Run, tokens: u128, context: &str) -> [u64; 2] {
    let mut begins = [0; 2];
    for shard in 0..2u16 {
        let at = usize::from(shard);
        let history = wait(store.history(ShardId(shard), Seq(0), usize::MAX)).unwrap();
        let token = Token(tokens + u128::from(shard));
        let head = wait(store.take(ShardId(shard), token)).unwrap();
        let (there, offered) = (head.seq.0 as usize, &run.offered[at]);
        assert!(there >= run.acknowledged[at], "{context}: shard {shard} lost acknowledged batches");
        assert_eq!(history[..], offered[there - history.len()..there], "{context}: shard {shard}");
        let image = wait(store.load(ShardId(shard), token)).unwrap();
        assert_eq!(model_of(&image), model(&offered[..there]), "{context}: shard {shard}");
        // A reader who asks for history that was given up gets what is kept, as after history was let go.
        let behind = wait(store.history(ShardId(shard), Seq(1), usize::MAX)).unwrap();
        assert_eq!(
            behind.first().map(|batch| batch.seq.0),
            history.iter().map(|batch| batch.seq.0).find(|&seq| seq > 1)
        );
        begins[at] = (there - history.len()) as u64 + 1;
    }
    begins
}

fn aside(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths =
        disk.files().into_iter().map(|(path, _)| path).filter(|path| path.to_string_lossy().ends_with(".given-up"));
    let content = |path: PathBuf| {
        let mut bytes = Vec::new();
        disk.edit(&path, |content| bytes = content.clone());
        (path, bytes)
    };
    paths.map(content).collect()
}

/// Segments of the killed register that its snapshot covers: those whose first group is not after its last.
fn covered(disk: &SimDisk) -> Vec<PathBuf> {
    let snapshot = of_kind(disk, "snap").pop().unwrap();
    let ends = u64::from_str_radix(snapshot.file_stem().unwrap().to_str().unwrap(), 16).unwrap();
    let mut segments = of_kind(disk, "seg");
    segments.retain(|path| {
        let mut first = u64::MAX;
        disk.edit(path, |bytes| first = u64::from_be_bytes(bytes[36..44].try_into().unwrap()));
        0 < first && first <= ends
    });
    segments
}

#[derive(Debug, Default)]
struct Tally {
    intact: u32,
    given_up: u32,
    refused: u32,
}

/// Damage must be refused. If the refusal names the option to go on, all of the state is there with it; otherwise it does
/// not help.
fn judge(disk: &SimDisk, context: &str, tally: &mut Tally) {
    let run = &killed().1;
    let refused = match open(disk) {
        Ok(store) => {
            check_state(&store, run, 0x9000, context);
            tally.intact += 1;
            return;
        }
        Err(refused) => refused,
    };
    match &refused {
        StoreError::HistoryDamaged(said) => {
            assert!(said.contains(DIR) && said.contains("`allod serve --give-up-history`"), "{context}: {said}");
            tally.given_up += 1;
        }
        // Such damage does not need history to be given up: see `lost_snapshot`.
        StoreError::Damaged(said) | StoreError::SnapshotDamaged(said) | StoreError::Foreign(said) => {
            assert!(!said.contains("give-up-history"), "{context}: {said}");
            let again = open_without(disk).map(drop).unwrap_err();
            assert_eq!(again.to_string(), **said, "{context}");
            tally.refused += 1;
            return;
        }
        other => panic!("{context}: {other:?}"),
    }
    let before: Vec<Vec<u8>> = {
        let mut before = Vec::new();
        of_kind(disk, "seg").iter().for_each(|path| disk.edit(path, |bytes| before.push(bytes.clone())));
        before
    };
    let store = open_without(disk).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    let begins = check_state(&store, run, 0x9000, context);
    assert!(begins[0] > 1, "{context}: {begins:?}");
    let kept = aside(disk);
    assert_eq!(store.figures().given_up_segments, kept.len() as u64, "{context}");
    assert!(kept.values().all(|bytes| before.contains(bytes)), "{context}: what is aside is as it was");
    drop(store);
    // The option is needed only once.
    let store = open(disk).unwrap_or_else(|error| panic!("{context}, again: {error:?}"));
    assert_eq!(check_state(&store, run, 0xa000, context), begins, "{context}");
    assert_eq!((store.figures().given_up_segments, aside(disk)), (kept.len() as u64, kept), "{context}");
}

#[test]
fn a_flipped_bit_costs_history_at_most_where_a_snapshot_has_the_state_and_never_state() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let disk = &killed().0;
    let history = covered(disk);
    assert!(history.len() > 2, "{history:?}");
    let mut of_history = Tally::default();
    for (path, _) in disk.files() {
        let mut other = Tally::default();
        let tally = if history.contains(&path) { &mut of_history } else { &mut other };
        let used = written(disk, &path).max(1);
        let places: Vec<usize> =
            (0..24).map(|_| rng.random_range(0..used)).chain((0..used.min(128)).step_by(5)).collect();
        for at in places {
            let (image, bit) = (disk.after_kill(), rng.random_range(0..8));
            image.edit(&path, |bytes| bytes[at] ^= 1 << bit);
            judge(&image, &format!("bit {bit} of byte {at} of {}", path.display()), tally);
        }
        assert_eq!(other.given_up, 0, "{} is needed", path.display());
    }
    println!("{of_history:?}");
    // Every flip is noticed. The header counts too: it has a checksum.
    assert!(of_history.given_up > 100 && of_history.refused == 0, "{of_history:?}");
}

#[test]
fn a_segment_that_is_gone_cut_off_or_not_given_back_is_given_up_where_a_snapshot_covers_it() {
    let disk = &killed().0;
    let history = covered(disk);
    for path in of_kind(disk, "seg") {
        let is_history = history.contains(&path);
        for (what, spoil) in [
            ("missing", &(|image: &SimDisk| image.delete(&path)) as &dyn Fn(&SimDisk)),
            ("zeroed", &|image| image.edit(&path, |bytes| bytes.fill(0))),
            ("half zeroed", &|image| {
                image.edit(&path, |bytes| {
                    let half = bytes.len() / 2;
                    bytes[half..].fill(0)
                })
            }),
            ("cut", &|image| image.edit(&path, |bytes| bytes.truncate(bytes.len() / 2))),
        ] {
            let (image, mut tally) = (disk.after_kill(), Tally::default());
            spoil(&image);
            judge(&image, &format!("{} {what}", path.display()), &mut tally);
            assert_eq!(tally.given_up, u32::from(is_history), "{} {what}: {tally:?}", path.display());
        }
        // A bad cable may be replaced tomorrow, so this is not called damage. An operator who does not wait may go on.
        let image = disk.after_kill();
        image.rot(&path);
        let refused = open(&image).map(drop);
        match refused {
            Err(StoreError::Io { context, .. }) => {
                assert_eq!(context.contains("--give-up-history"), is_history, "{context}")
            }
            other => assert!(!is_history && other.is_ok(), "{}: {other:?}", path.display()),
        }
        if is_history {
            check_state(&open_without(&image).unwrap(), &killed().1, 0x9000, "rotten");
            check_state(&open(&image).unwrap(), &killed().1, 0xa000, "rotten, again");
        }
    }
}

/// Flips bits in two files, so that what is left begins after the later one.
fn twice_damaged() -> SimDisk {
    let disk = killed().0.after_kill();
    for path in &covered(&disk)[..2] {
        let frame = written(&disk, path) / 2;
        disk.edit_for_good(path, |bytes| bytes[frame] ^= 4);
    }
    disk
}

#[test]
fn what_is_given_up_is_said_with_its_files_its_batches_and_its_times() {
    let disk = twice_damaged();
    let Err(StoreError::HistoryDamaged(said)) = open(&disk).map(drop) else { panic!("it is refused") };
    let begins = check_state(&open_without(&disk.after_kill()).unwrap(), &killed().1, 0x9000, "twice");
    for of in [
        "00000001.seg is damaged at offset".to_owned(),
        format!("batches 1 to {} of shard 0, batches 1 to {} of shard 1)", begins[0] - 1, begins[1] - 1),
        "2 files up to /data/allod/log/00000002.seg.given-up".to_owned(),
        "the history from 20".to_owned(),
    ] {
        assert!(said.contains(&of), "{of}: {said}");
    }
}

#[test]
fn killed_or_without_power_at_any_step_of_giving_history_up_the_same_option_starts_it_again() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let (damaged, run) = (twice_damaged(), &killed().1);
    let begins = check_state(&open_without(&damaged.after_kill()).unwrap(), run, 0x9000, "unbroken");
    let mut between = 0;
    let broken = broken_off_at_any_step(&damaged, open_without, &mut rng, |image, context| {
        match open(&image.after_kill()).map(drop) {
            Ok(()) => between += 1,
            Err(StoreError::HistoryDamaged(said)) => {
                assert!(said.contains("--give-up-history"), "{context}: {said}")
            }
            Err(other) => panic!("{context}: {other:?}"),
        }
        let store = open_without(image).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        assert_eq!(check_state(&store, run, 0x9000, context), begins, "{context}");
        drop(store);
        assert_eq!(check_state(&open(image).unwrap(), run, 0xa000, context), begins, "{context}");
        assert_eq!(aside(image).len(), 2, "{context}");
    });
    assert!(broken > 10 && between > 0, "{broken}, {between}");
}

/// Real files are inspected, refused and given up; then a copy of what is left is whole.
#[test]
fn a_register_in_files_goes_on_without_a_damaged_segment_and_can_be_copied_again() {
    let directory = tempfile::tempdir().unwrap();
    let (dir, target) = (directory.path().join("data"), directory.path().join("copy"));
    let real = || EmbeddedOptions { disk: EmbeddedOptions::default().disk, ..options(&SimDisk::default()) };
    let store = EmbeddedStore::open(&dir, SHARDS, real()).unwrap();
    let run = run(&store, 200, 0x100);
    until("a snapshot", || store.figures().compactions > 0);
    drop(store);
    let segment = dir.join("log/00000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[1_000] ^= 1;
    std::fs::write(&segment, &bytes).unwrap();
    for refused in [
        EmbeddedStore::open(&dir, SHARDS, real()).map(drop).unwrap_err().to_string(),
        verify(&dir).unwrap_err().to_string(),
        copy(&dir, &target).unwrap_err().to_string(),
    ] {
        assert!(
            refused.contains("00000001.seg is damaged at offset") && refused.contains("--give-up-history"),
            "{refused}"
        );
    }
    let store = EmbeddedStore::open(&dir, SHARDS, EmbeddedOptions { give_up_history: true, ..real() }).unwrap();
    let begins = check_state(&store, &run, 0x9000, "given up");
    assert!(begins[0] > 1);
    drop(store);
    assert_eq!(std::fs::read(dir.join("log/00000001.seg.given-up")).unwrap(), bytes);
    assert_eq!(verify(&dir).unwrap().given_up_segments, 1);
    copy(&dir, &target).unwrap();
    let copied = EmbeddedStore::open(&target, SHARDS, real()).unwrap();
    assert_eq!(check_state(&copied, &run, 0xb000, "copied"), begins);
    assert_eq!(copied.figures().given_up_segments, 0);
}
