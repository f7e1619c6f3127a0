//! A damaged snapshot. As long as the log still has everything that led to it, nothing is lost, whether it is found by a
//! start or while it is served. Where the log does not reach back so far, no message offers to go on without it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use allod::core::state::Step;
use allod::store::embedded::disk::Disk;
use allod::store::embedded::{EmbeddedOptions, EmbeddedStore, look};
use allod::store::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::crash::{broken_off_at_any_step, until};
use super::damage::{killed, of_kind};
use super::disk::{Reach, SimDisk};
use super::work::*;
use crate::seed::seed;

/// Opens the register as `allod serve --give-up-snapshot` does.
fn open_without(disk: &SimDisk) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::open(Path::new(DIR), SHARDS, EmbeddedOptions { give_up_snapshot: true, ..options(disk) })
}

fn snapshot(disk: &SimDisk) -> PathBuf {
    of_kind(disk, "snap").pop().unwrap()
}

fn content(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    disk.edit(path, |content| bytes = content.clone());
    bytes
}

fn aside(disk: &SimDisk) -> Vec<PathBuf> {
    of_kind(disk, "given-up")
}

/// The start must be refused with a remedy, and the remedy must work.
#[track_caller]
fn judge(image: &SimDisk, context: &str) {
    let path = snapshot(image);
    let before = content(image, &path);
    match open(image).map(drop).unwrap_err() {
        StoreError::SnapshotDamaged(said) => {
            assert!(said.contains(path.to_str().unwrap()) && said.contains("no state is lost"), "{context}: {said}");
            assert!(said.contains("`allod serve --give-up-snapshot`") && !said.contains("backup"), "{context}: {said}");
        }
        other => panic!("{context}: {other:?}"),
    }
    check(&open_without(image).unwrap(), &killed().1, 0x9000, context);
    assert_eq!(aside(image).iter().map(|path| content(image, path)).collect::<Vec<_>>(), [before], "{context}");
    // The option is needed only once.
    check(&open(image).unwrap(), &killed().1, 0xa000, context);
}

#[test]
fn a_damaged_snapshot_costs_nothing_where_the_log_has_all_that_led_to_it() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let disk = &killed().0;
    let path = snapshot(disk);
    let length = content(disk, &path).len();
    let places: Vec<usize> = (0..64).step_by(7).chain((0..16).map(|_| rng.random_range(0..length))).collect();
    for at in places {
        let (image, bit) = (disk.after_kill(), rng.random_range(0..8));
        image.edit(&path, |bytes| bytes[at] ^= 1 << bit);
        // A bit in the register's number makes it another register's snapshot.
        if matches!(open(&image), Err(StoreError::Foreign(_))) {
            continue;
        }
        judge(&image, &format!("bit {bit} of byte {at}"));
    }
    for (what, spoil) in [
        ("cut", &(|bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2)) as &dyn Fn(&mut Vec<u8>)),
        ("empty", &|bytes| bytes.clear()),
        ("zeroed", &|bytes| bytes.fill(0)),
    ] {
        let image = disk.after_kill();
        image.edit(&path, |bytes| spoil(bytes));
        judge(&image, what);
    }
    // A bad cable may be replaced tomorrow, so this is not called damage.
    let image = disk.after_kill();
    image.rot(&path);
    match open(&image).map(drop).unwrap_err() {
        StoreError::Io { context, .. } => assert!(context.contains("--give-up-snapshot"), "{context}"),
        other => panic!("{other:?}"),
    }
    check(&open_without(&image).unwrap(), &killed().1, 0x9000, "rotten");
}

#[test]
fn a_damaged_snapshot_is_refused_where_the_log_does_not_reach_what_it_had() {
    let disk = &killed().0;
    let path = snapshot(disk);
    let spoilt = || {
        let image = disk.after_kill();
        image.edit(&path, |bytes| bytes[0] ^= 1);
        image
    };
    let segments = of_kind(disk, "seg");
    let (missing, damaged, cut) = (spoilt(), spoilt(), spoilt());
    missing.delete(&segments[0]);
    damaged.edit(&segments[1], |bytes| bytes[1_000] ^= 1);
    // An old mark, and a log that ends before the group after which the snapshot is named.
    cut.delete(&Path::new(DIR).join("MARK"));
    let fresh = SimDisk::default();
    drop(open(&fresh).unwrap());
    let mark = content(&fresh, &Path::new(DIR).join("MARK"));
    cut.create(&Path::new(DIR).join("MARK")).unwrap().write_at(&mark, 0).unwrap();
    for segment in &segments[1..] {
        cut.edit(segment, |bytes| bytes.fill(0));
    }
    cut.edit(&segments[0], |bytes| bytes[2_000..].fill(0));
    for (image, why) in [(missing, "begins with 00000002.seg"), (damaged, "00000002.seg is damaged"), (cut, "group")] {
        for opened in [open(&image), open_without(&image)] {
            match opened.map(drop).unwrap_err() {
                StoreError::Damaged(said) => {
                    assert!(said.contains(path.to_str().unwrap()) && said.contains(why), "{why}: {said}");
                    assert!(said.contains("from a backup") && !said.contains("--give-up"), "{why}: {said}");
                }
                other => panic!("{why}: {other:?}"),
            }
        }
        assert!(aside(&image).is_empty());
    }
}

/// A crash came after the new snapshot and before the old one was removed.
#[test]
fn behind_an_older_snapshot_that_is_left_the_log_needs_not_begin_with_its_first_segment() {
    let disk = SimDisk::default();
    let store = open(&disk).unwrap();
    let (mut owner, mut first) = (Owner::begin(&store), None);
    owner.turn_until(|| {
        if store.figures().compactions == 1 && first.is_none() {
            let path = of_kind(&disk, "snap").pop();
            first = path.map(|path| (content(&disk, &path), path));
        }
        store.figures().compactions > 1 && of_kind(&disk, "snap").len() == 1
    });
    let head = owner.head;
    drop(store);
    let (bytes, older) = first.unwrap();
    let newest = snapshot(&disk);
    assert_ne!(newest, older);
    disk.create(&older).unwrap().write_at(&bytes, 0).unwrap();
    disk.edit(&newest, |bytes| bytes[100] ^= 1);
    disk.delete(&Path::new(DIR).join("log/00000001.seg"));
    let said = open(&disk).map(drop).unwrap_err().to_string();
    assert!(said.contains("--give-up-snapshot") && said.contains(older.to_str().unwrap()), "{said}");
    for opened in [open_without as fn(&SimDisk) -> Result<EmbeddedStore, StoreError>, open] {
        let store = opened(&disk).unwrap();
        let again = wait(store.take(ShardId(0), Token(9))).unwrap();
        assert_eq!((again.seq, again.generation), (head.seq, head.generation));
        assert_eq!(wait(store.load(ShardId(0), Token(9))).unwrap().head, again);
    }
}

#[test]
fn killed_or_without_power_at_any_step_of_giving_a_snapshot_up_it_is_started_again() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let (damaged, run) = (killed().0.after_kill(), &killed().1);
    damaged.edit_for_good(&snapshot(&damaged), |bytes| bytes[40] ^= 4);
    let broken = broken_off_at_any_step(&damaged, open_without, &mut rng, |image, context| {
        match open(&image.after_kill()).map(drop) {
            Ok(()) => {}
            Err(StoreError::SnapshotDamaged(said)) => {
                assert!(said.contains("--give-up-snapshot"), "{context}: {said}")
            }
            Err(other) => panic!("{context}: {other:?}"),
        }
        check(&open_without(image).unwrap(), run, 0x9000, context);
        check(&open(image).unwrap(), run, 0xa000, context);
    });
    assert!(broken > 5, "{broken}");
}

/// Grants and releases the same address in turns, so that the state stays small.
struct Owner<'a> {
    store: &'a EmbeddedStore,
    head: Head,
}

impl<'a> Owner<'a> {
    fn begin(store: &'a EmbeddedStore) -> Self {
        let head = wait(store.take(ShardId(0), Token(1))).unwrap();
        let mut owner = Self { store, head };
        owner.commit(vec![config_step(network(1))]);
        owner
    }

    fn commit(&mut self, steps: Vec<Step>) {
        let next = batch(&self.head, 0, steps);
        let committed = wait(self.store.commit([next.clone()].into())).unwrap();
        follow(&mut self.head, &next, &committed[0]);
    }

    fn turn_until(&mut self, mut ended: impl FnMut() -> bool) {
        while !ended() {
            let generation = self.head.generation.0;
            self.commit(vec![grant(7, generation, None)]);
            self.commit(vec![free(7, generation)]);
        }
    }
}

#[test]
fn a_snapshot_that_rots_while_it_is_served_is_made_anew_of_the_log_that_has_all_of_it() {
    let disk = SimDisk::default();
    let store = open(&disk).unwrap();
    let mut owner = Owner::begin(&store);
    // A holding that nothing changes any more.
    owner.commit(vec![grant(9, 900, None)]);
    owner.turn_until(|| store.figures().compactions > 0);
    let mut bytes = Vec::new();
    // A compaction that read the snapshot before it rotted does not miss it, so try again.
    for _ in 0..20 {
        until("nothing is under way", || disk.begun("snap") == store.figures().compactions);
        let (damaged, compactions) = (snapshot(&disk), store.figures().compactions);
        disk.edit(&damaged, |bytes| bytes[100] ^= 1);
        bytes = content(&disk, &damaged);
        owner.turn_until(|| store.figures().compactions > compactions || store.figures().compaction_failures > 0);
        if store.figures().given_up_snapshots > 0 {
            break;
        }
    }
    assert_eq!((store.damage(), store.figures().compaction_failures), (None, 0));
    assert_eq!(store.figures().given_up_snapshots, 1);
    assert_eq!(content(&disk, &aside(&disk)[0]), bytes);
    let head = owner.head;
    drop(store);
    let store = open(&disk).unwrap();
    let again = wait(store.take(ShardId(0), Token(9))).unwrap();
    assert_eq!((again.seq, again.generation), (head.seq, head.generation));
    let image = wait(store.load(ShardId(0), Token(9))).unwrap();
    let batches = wait(store.history(ShardId(0), Seq(0), usize::MAX)).unwrap();
    assert_eq!(model_of(&image), model(&batches));
}

/// Damages the present snapshot until the next one is made from the log instead.
fn made_of_the_log(disk: &SimDisk, owner: &mut Owner<'_>) {
    let figures = || owner.store.figures();
    // A compaction that read the snapshot before it rotted does not miss it, so try again.
    for _ in 0..20 {
        until("nothing is under way", || disk.begun("snap") == figures().compactions + figures().compaction_failures);
        let (damaged, tries) = (snapshot(disk), figures().compactions + figures().compaction_failures);
        disk.edit(&damaged, |bytes| bytes[100] ^= 1);
        let store = owner.store;
        let now = || store.figures().compactions + store.figures().compaction_failures;
        owner.turn_until(|| now() > tries);
        if store.figures().given_up_snapshots > 0 {
            return;
        }
    }
    panic!("none was made of it: {:?}", owner.store.figures());
}

#[test]
fn a_snapshot_that_could_not_be_written_once_keeps_none_from_being_made_of_the_log_later() {
    let disk = SimDisk::default();
    let store = open(&disk).unwrap();
    let mut owner = Owner::begin(&store);
    owner.turn_until(|| store.figures().compactions > 0);
    disk.spoil_a_snapshot();
    owner.turn_until(|| store.figures().compaction_failures > 0);
    let compactions = store.figures().compactions;
    owner.turn_until(|| store.figures().compactions > compactions);
    made_of_the_log(&disk, &mut owner);
    assert_eq!(store.figures().compaction_failures, 1);
}

#[test]
fn a_snapshot_is_made_of_a_log_that_has_more_segments_than_are_open_at_once() {
    let disk = SimDisk::default();
    let store = open(&disk).unwrap();
    let mut owner = Owner::begin(&store);
    owner.turn_until(|| of_kind(&disk, "seg").len() > 40);
    disk.take_most_open();
    made_of_the_log(&disk, &mut owner);
    let (open, segments) = (disk.take_most_open(), of_kind(&disk, "seg").len());
    assert!(open < 30, "{open} files were open at once, of {segments} segments");
}

#[test]
fn a_snapshot_that_rots_while_it_is_served_is_told_where_the_log_does_not_reach_back_so_far() {
    let disk = SimDisk::default();
    let bounded = EmbeddedOptions { history_bytes: 8 << 10, ..options(&disk) };
    let store = EmbeddedStore::open(Path::new(DIR), SHARDS, bounded).unwrap();
    let mut owner = Owner::begin(&store);
    owner.commit(vec![grant(9, 900, None)]);
    owner.turn_until(|| of_kind(&disk, "seg")[0] != Path::new(DIR).join("log/00000001.seg"));
    let damaged = snapshot(&disk);
    disk.edit(&damaged, |bytes| bytes[100] ^= 1);
    owner.turn_until(|| store.figures().compaction_failures > 1);
    let told = store.damage().expect("it is known by then");
    assert!(told.contains(damaged.to_str().unwrap()) && told.contains("damaged at offset"), "{told}");
    assert!(!told.contains("backup"), "what to do now is not what a start says: {told}");
    assert_eq!((store.health(), aside(&disk)), (StoreHealth::Ready, Vec::new()));
}

/// With real files.
#[test]
fn a_snapshot_that_was_given_up_is_told_to_who_looks() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("data");
    let real = || EmbeddedOptions { disk: EmbeddedOptions::default().disk, ..options(&SimDisk::default()) };
    let store = EmbeddedStore::open(&dir, SHARDS, real()).unwrap();
    let run = run(&store, 200, 0x100);
    until("a snapshot", || store.figures().compactions > 0);
    drop(store);
    let path = std::fs::read_dir(dir.join("snap")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&path, b"no snapshot").unwrap();
    assert!(matches!(look(&dir), Err(StoreError::SnapshotDamaged(_))));
    let store = EmbeddedStore::open(&dir, SHARDS, EmbeddedOptions { give_up_snapshot: true, ..real() }).unwrap();
    check(&store, &run, 0x9000, "given up");
    assert_eq!(store.figures().given_up_snapshots, 1);
    drop(store);
    assert_eq!(look(&dir).unwrap().given_up_snapshots, 1);
}

/// The steps have names of their own, and nobody would remove them before the next start.
#[test]
fn a_snapshot_that_could_not_be_made_of_the_log_leaves_no_step_of_it_behind() {
    let unopened = |disk: &SimDisk| disk.put_out_of_reach(Some((of_kind(disk, "seg")[2].clone(), Reach::Opening)));
    // Its place in the file fits, and no record does; or all of a step does, and the next step cannot be made.
    let no_room = |disk: &SimDisk| disk.set_capacity(Some(disk.used() + 150));
    for (what, hinder) in [("no room", &no_room as &dyn Fn(&SimDisk)), ("an unopened segment", &unopened)] {
        let disk = SimDisk::default();
        let once = EmbeddedOptions { compaction_retry: Duration::from_secs(3_600), ..options(&disk) };
        let store = EmbeddedStore::open(Path::new(DIR), SHARDS, once).unwrap();
        let mut owner = Owner::begin(&store);
        owner.turn_until(|| store.figures().compactions > 0);
        until("nothing is under way", || disk.begun("snap") == store.figures().compactions);
        disk.hold_files(Some("snap"));
        let begun = disk.begun("snap");
        owner.turn_until(|| disk.begun("snap") > begun);
        let damaged = snapshot(&disk);
        disk.edit(&damaged, |bytes| bytes[100] ^= 1);
        until("a spare segment", || super::room::has_spare(&disk));
        hinder(&disk);
        disk.hold_files(None);
        until("it has failed", || store.figures().compaction_failures > 0);
        assert!(disk.begun("snap") > begun + 1, "{what}: no step was begun");
        let lies = || disk.files().into_iter().map(|(path, _)| path).filter(|path| path.parent() == damaged.parent());
        until(&format!("only the damaged one is there ({what})"), || lies().eq([damaged.clone()]));
        assert_eq!(store.health(), StoreHealth::Ready);
    }
}
