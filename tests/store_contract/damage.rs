//! Bytes and files change behind the store's back. Each change is noticed or does no harm; none changes a value.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use allod::store::embedded::disk::Disk;
use allod::store::embedded::{EmbeddedOptions, EmbeddedStore};
use allod::store::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::crash::{until, written};
use super::disk::{Reach, SimDisk};
use super::work::*;
use crate::seed::seed;

/// 200 batches of four rows, a snapshot, several segments; killed, not closed.
pub fn killed() -> &'static (SimDisk, Run) {
    static KILLED: OnceLock<(SimDisk, Run)> = OnceLock::new();
    KILLED.get_or_init(|| {
        let disk = SimDisk::default();
        let store = open(&disk).unwrap();
        let run = run(&store, 200, 0x100);
        assert_eq!(run.acknowledged[0], 200);
        until("a snapshot", || store.figures().compactions > 0);
        until("a spare", || {
            disk.files()
                .iter()
                .any(|(path, _)| path.extension().is_some_and(|end| end == "seg") && written(&disk, path) == 0)
        });
        (disk.after_kill(), run)
    })
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    intact: u32,
    refused: u32,
}

/// Opens what is left: it must be intact or refused.
fn judge(disk: &SimDisk, context: &str, tally: &mut Tally) {
    match open(disk) {
        Ok(store) => {
            check(&store, &killed().1, 0x9000, context);
            tally.intact += 1;
        }
        Err(
            StoreError::Damaged(text)
            | StoreError::HistoryDamaged(text)
            | StoreError::SnapshotDamaged(text)
            | StoreError::Foreign(text),
        ) => {
            assert!(text.contains(DIR), "{context}: the message names no file: {text}");
            tally.refused += 1;
        }
        Err(other) => panic!("{context}: {other:?}"),
    }
}

pub fn of_kind(disk: &SimDisk, kind: &str) -> Vec<PathBuf> {
    disk.files()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| path.extension().is_some_and(|end| end == kind))
        .collect()
}

fn flip(path: &Path, at: usize, bit: u8, tally: &mut Tally) {
    let image = killed().0.after_kill();
    image.edit(path, |bytes| bytes[at] ^= 1 << bit);
    judge(&image, &format!("bit {bit} of byte {at} of {}", path.display()), tally);
}

#[test]
fn one_flipped_bit_anywhere_is_noticed_or_harmless() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let disk = &killed().0;
    let mut total = Tally::default();
    for (path, length) in disk.files() {
        let mut tally = Tally::default();
        // Only the written part matters; the zeros after it get a few flips as well.
        let used = written(disk, &path).max(1);
        for _ in 0..40 {
            flip(&path, rng.random_range(0..used), rng.random_range(0..8), &mut tally);
        }
        for at in (0..used.min(64)).step_by(2) {
            flip(&path, at, rng.random_range(0..8), &mut tally);
        }
        for _ in 0..4 {
            flip(&path, rng.random_range(0..length), rng.random_range(0..8), &mut tally);
        }
        println!("{}: {tally:?}", path.display());
        total.intact += tally.intact;
        total.refused += tally.refused;
    }
    println!("{total:?}");
    assert!(total.intact + total.refused >= 200 && total.refused > 100);
}

#[test]
fn the_last_acknowledged_frame_is_not_taken_for_a_torn_tail() {
    let disk = &killed().0;
    let (segment, _) = super::crash::last_segment(disk);
    let end = written(disk, &segment);
    let mut tally = Tally::default();
    for back in 1..40 {
        flip(&segment, end - back, 3, &mut tally);
    }
    assert_eq!(tally, Tally { intact: 0, refused: 39 });
}

/// Two faults of one disk. Each place of the mark names the last frame, so the intact place is enough to miss it.
#[test]
fn the_last_acknowledged_frame_is_missed_although_a_place_of_the_mark_is_damaged_as_well() {
    let disk = &killed().0;
    let mark = Path::new(DIR).join("MARK");
    let (segment, _) = super::crash::last_segment(disk);
    let end = written(disk, &segment);
    for place in [0, 4_096] {
        let image = disk.after_kill();
        image.edit(&mark, |bytes| bytes[place + 8] ^= 1);
        check(&open(&image.after_kill()).unwrap(), &killed().1, 0x9000, "one place of the mark is enough");
        image.edit(&segment, |bytes| bytes[end - 5] ^= 1);
        assert!(matches!(open(&image), Err(StoreError::Damaged(_))), "place at {place}");
    }
}

/// Offsets at which frames begin: a cut there looks most like a clean end.
fn borders(disk: &SimDisk, path: &Path) -> Vec<usize> {
    let mut borders = Vec::new();
    disk.edit(path, |bytes| {
        let magic = [0xf5, b'A', b'F', 0xff];
        borders = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(&magic)).collect();
    });
    borders
}

#[test]
fn a_log_cut_at_a_border_of_frames_is_refused() {
    let disk = &killed().0;
    let mut tally = Tally::default();
    let mut cuts = 0;
    for path in of_kind(disk, "seg") {
        for at in borders(disk, &path) {
            cuts += 2;
            let zeroed = disk.after_kill();
            zeroed.edit(&path, |bytes| bytes[at..].fill(0));
            judge(&zeroed, &format!("{} zeroed from {at}", path.display()), &mut tally);
            let cut = disk.after_kill();
            cut.edit(&path, |bytes| bytes.truncate(at));
            judge(&cut, &format!("{} cut at {at}", path.display()), &mut tally);
        }
    }
    assert!(cuts > 200, "{cuts}");
    assert_eq!(tally, Tally { intact: 0, refused: cuts });
}

#[test]
fn zeroed_sectors_and_cut_files_are_noticed() {
    let disk = &killed().0;
    let mut tally = Tally::default();
    for (path, length) in disk.files() {
        let used = written(disk, &path);
        for at in (0..used).step_by(1_024) {
            let zeroed = disk.after_kill();
            zeroed.edit(&path, |bytes| bytes[at..(at + 512).min(length)].fill(0));
            judge(&zeroed, &format!("sector at {at} of {} zeroed", path.display()), &mut tally);
            let cut = disk.after_kill();
            cut.edit(&path, |bytes| bytes.truncate(at));
            judge(&cut, &format!("{} cut at {at}", path.display()), &mut tally);
        }
    }
    println!("{tally:?}");
    assert!(tally.refused > 100);
}

#[test]
fn a_missing_file_is_never_an_empty_register() {
    let disk = &killed().0;
    for (path, _) in disk.files() {
        let image = disk.after_kill();
        let blank = written(disk, &path) == 0;
        image.delete(&path);
        let mut tally = Tally::default();
        judge(&image, &format!("{} missing", path.display()), &mut tally);
        // The log still has all segments and leads to the same state without a snapshot; a blank segment holds nothing.
        let replaceable = blank || path.extension().is_some_and(|end| end == "snap");
        assert_eq!(tally.refused == 0, replaceable, "{}", path.display());
    }
    // Nothing but META, and everything but META.
    let bare = disk.after_kill();
    for (path, _) in disk.files() {
        if !path.ends_with("META") {
            bare.delete(&path);
        }
    }
    assert!(matches!(open(&bare), Err(StoreError::Damaged(_))));
    let marked = disk.after_kill();
    for (path, _) in disk.files() {
        if !path.ends_with("MARK") {
            marked.delete(&path);
        }
    }
    assert!(matches!(open(&marked), Err(StoreError::Damaged(_))), "what was acknowledged is gone, so nothing is new");
    // Everything but META, and other files that lie in a register's directory.
    let beside = disk.after_kill();
    beside.delete(&Path::new(DIR).join("META"));
    Disk::create(&beside, &Path::new(DIR).join("HISTORY")).unwrap();
    assert!(matches!(open(&beside), Err(StoreError::Damaged(_))), "nobody is to begin an empty one in its place");
}

#[test]
fn swapped_and_foreign_files_are_refused() {
    let disk = &killed().0;
    let segments = of_kind(disk, "seg");
    let used: Vec<_> = segments.iter().filter(|path| written(disk, path) > 0).collect();
    assert!(used.len() > 3);
    for pair in used.windows(2) {
        let image = disk.after_kill();
        image.swap(pair[0], pair[1]);
        let opened = open(&image);
        let is_refused = matches!(
            opened,
            Err(StoreError::Damaged(_) | StoreError::HistoryDamaged(_) | StoreError::SnapshotDamaged(_))
        );
        assert!(is_refused, "{pair:?}");
    }
    let other = SimDisk::default();
    let store = open(&other).unwrap();
    run(&store, 200, 0x100);
    until("a snapshot", || store.figures().compactions > 0);
    let other = other.after_kill();
    for path in [used[1], used[used.len() - 1], &PathBuf::from(DIR).join("META")] {
        let image = disk.after_kill();
        let mut foreign = Vec::new();
        other.edit(path, |bytes| foreign = bytes.clone());
        image.edit(path, |bytes| *bytes = foreign);
        let refused = open(&image).map(drop);
        let Err(StoreError::Foreign(_) | StoreError::Damaged(_)) = refused else {
            panic!("{}: {refused:?}", path.display())
        };
    }
}

#[test]
fn another_number_of_shards_is_refused() {
    let disk = killed().0.after_kill();
    let refused = EmbeddedStore::open(Path::new(DIR), SHARDS + 1, options(&disk)).unwrap_err();
    let StoreError::Foreign(text) = &refused else { panic!("{refused:?}") };
    assert!(text.contains("3 shards") && text.contains("says 4;"), "{text}");
}

#[test]
fn without_a_number_of_shards_a_register_has_what_it_has_and_a_new_one_four() {
    let store = EmbeddedStore::open(Path::new(DIR), None, options(&killed().0.after_kill())).unwrap();
    assert_eq!(store.info().shards, SHARDS);
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        assert_eq!(EmbeddedStore::open(dir.path(), None, Default::default()).unwrap().info().shards, 4);
    }
}

#[test]
fn a_directory_of_something_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("photo.jpg"), "x").unwrap();
    let refused = EmbeddedStore::open(dir.path(), 1, Default::default()).unwrap_err();
    assert!(matches!(&refused, StoreError::Foreign(text) if text.contains("photo.jpg")), "{refused:?}");
}

/// After a loss of power the mark may be old. Frames after an unreadable one still prove that it was durable.
#[test]
fn a_damaged_frame_is_no_torn_tail_even_if_the_mark_is_old() {
    let fresh = SimDisk::default();
    drop(open(&fresh).unwrap());
    let mark = Path::new(DIR).join("MARK");
    let mut old = Vec::new();
    fresh.edit(&mark, |bytes| old = bytes.clone());
    let disk = SimDisk::default();
    let store = open(&disk).unwrap();
    let run = run(&store, 8, 0x100);
    let aged = disk.after_kill();
    aged.edit(&mark, |bytes| *bytes = old);
    let (segment, _) = super::crash::last_segment(&aged);
    let frames = borders(&aged, &segment);
    assert!(frames.len() > 2);
    check(&open(&aged.after_kill()).unwrap(), &run, 0x9000, "an old mark");
    for &at in &frames[..frames.len() - 1] {
        let image = aged.after_kill();
        image.edit(&segment, |bytes| bytes[at + 50] ^= 1);
        assert!(matches!(open(&image), Err(StoreError::Damaged(_))), "frame at {at}");
    }
}

/// An operator who reads of damage restores a backup, and then everything granted since is granted again.
#[test]
fn what_a_disk_does_not_give_now_is_not_called_damaged() {
    let disk = SimDisk::default();
    let store = open(&disk).unwrap();
    let run = run(&store, 300, 0x100);
    until("a snapshot", || store.figures().compactions > 0);
    drop(store);
    let dir = Path::new(DIR);
    let files = disk.files().into_iter().map(|(path, _)| path).filter(|path| !path.ends_with("LOCK"));
    let folders = [dir.join("log"), dir.join("snap")];
    let mut refused = 0;
    for path in files.chain(folders) {
        for reach in [Reach::Opening, Reach::Reading] {
            disk.put_out_of_reach(Some((path.clone(), reach)));
            match open(&disk) {
                Err(StoreError::Io { .. }) => refused += 1,
                other => panic!("{} cannot be reached, {reach:?}: {:?}", path.display(), other.map(drop)),
            }
        }
    }
    assert!(refused >= 2 * 5, "META, MARK, a segment, a snapshot, folders: {refused}");
    disk.put_out_of_reach(None);
    check(&open(&disk).unwrap(), &run, 0x9000, "in reach again");
}

/// Everything is still in memory, but the next start refuses the segment: an operator has to know before that.
#[test]
fn a_closed_segment_that_rots_while_it_is_served_is_told_and_grants_go_on() {
    let disk = SimDisk::default();
    let large = EmbeddedOptions { snapshot_log_bytes: 48 << 10, ..options(&disk) };
    let store = EmbeddedStore::open(Path::new(DIR), SHARDS, large).unwrap();
    let mut head = wait(store.take(ShardId(0), Token(1))).unwrap();
    let mut commit = |steps| {
        let next = batch(&head, 0, steps);
        let committed = wait(store.commit([next.clone()].into())).unwrap();
        follow(&mut head, &next, &committed[0]);
        head.generation.0
    };
    let mut generation = commit(vec![config_step(network(1))]);
    let mut turns = |ended: &dyn Fn() -> bool| {
        while !ended() {
            let granted = generation;
            commit(vec![grant(7, granted, None)]);
            generation = commit(vec![free(7, granted)]);
        }
    };
    let is_there = |segment: &str| disk.files().iter().any(|(path, _)| path.ends_with(segment));
    turns(&|| is_there("00000004.seg"));
    assert_eq!((store.damage(), store.figures().compaction_failures), (None, 0));
    disk.edit(&Path::new(DIR).join("log/00000002.seg"), |bytes| bytes[1_000] ^= 1);
    // Until a snapshot is due.
    turns(&|| is_there("00000010.seg"));
    until("snapshots that fail", || store.figures().compaction_failures > 1);
    let damage = store.damage().expect("it is known by then");
    assert!(damage.contains("00000002.seg is damaged at offset"), "{damage}");
    turns(&|| is_there("00000012.seg"));
    assert_eq!(store.health(), StoreHealth::Ready);
    drop(store);
    assert!(matches!(open(&disk), Err(StoreError::Damaged(text)) if text.contains("00000002.seg is damaged")));
}

fn bytes_of(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    disk.edit(path, |bytes| all.clone_from(bytes));
    all
}

/// Rereads the whole register once.
fn reread(store: &EmbeddedStore) -> Result<(), StoreError> {
    let mut from = Some(0);
    while let Some(at) = from {
        from = wait(store.reread(at))?;
    }
    Ok(())
}

/// An open file is still read and written, but the next start does not find it.
#[test]
fn whatever_file_of_the_register_goes_beside_a_running_store_is_missed_until_it_is_back() {
    let disk = killed().0.after_kill();
    let store = open(&disk).unwrap();
    let segments: Vec<PathBuf> = of_kind(&disk, "seg").into_iter().filter(|path| written(&disk, path) > 0).collect();
    let [snapshot] = <[PathBuf; 1]>::try_from(of_kind(&disk, "snap")).unwrap();
    let fixed = ["META", "MARK"].map(|name| Path::new(DIR).join(name));
    let (history, last) = (segments[0].clone(), segments[segments.len() - 1].clone());
    let aside = Path::new(DIR).join("aside");
    for path in fixed.into_iter().chain([history, last, snapshot]) {
        let name = path.file_name().unwrap().to_string_lossy();
        reread(&store).unwrap();
        disk.rename(&path, &aside).unwrap();
        let told = reread(&store).unwrap_err();
        assert!(matches!(&told, StoreError::Damaged(told) if told.contains(&*name)), "{name}: {told}");
        let damage = store.damage().unwrap();
        assert!(damage.contains(&*name) && damage.ends_with(" is missing"), "{damage}");
        assert!(open(&disk.after_kill()).is_err() || name.ends_with("snap"), "{name}: the log alone leads to it");
        // Where a file is read as a whole, whatever has its name is read.
        if name != "META" && path != segments[0] {
            disk.create(&path).unwrap();
            let told = reread(&store).unwrap_err().to_string();
            assert!(told.contains(&*name) && told.contains("is another file"), "{told}");
        }
        disk.rename(&aside, &path).unwrap();
        reread(&store).unwrap();
        assert_eq!(store.damage(), None, "{name} is back");
    }
    assert_eq!(store.health(), StoreHealth::Ready);
}

/// What is written to a file without a name is lost when the process ends.
#[test]
fn a_spare_segment_that_is_removed_or_replaced_beside_a_running_store_is_made_anew_before_it_is_used() {
    for is_replaced in [false, true] {
        let disk = SimDisk::default();
        let store = open(&disk).unwrap();
        let mut head = wait(store.take(ShardId(0), Token(1))).unwrap();
        let mut commit = |steps| {
            let next = batch(&head, 0, steps);
            let committed = wait(store.commit([next.clone()].into())).unwrap();
            follow(&mut head, &next, &committed[0]);
            head
        };
        let mut last = commit(vec![config_step(network(1))]);
        let blank = || of_kind(&disk, "seg").into_iter().find(|path| written(&disk, path) == 0);
        until("a spare", || blank().is_some());
        let spare = blank().unwrap();
        disk.remove(&spare).unwrap();
        if is_replaced {
            disk.create(&spare).unwrap();
        }
        reread(&store).unwrap();
        assert_eq!(store.damage(), None, "nothing is in it");
        let is_there = || of_kind(&disk, "seg").contains(&spare) && written(&disk, &spare) > 0;
        for turn in 0.. {
            if is_there() {
                break;
            }
            assert!(turn < 1_000, "nothing is written under the name {}", spare.display());
            let granted = last.generation.0;
            commit(vec![grant(7, granted, None)]);
            last = commit(vec![free(7, granted)]);
        }
        assert_eq!(store.health(), StoreHealth::Ready);
        let again = open(&disk.after_kill()).unwrap();
        let taken = wait(again.take(ShardId(0), Token(2))).unwrap();
        assert_eq!((taken.seq, taken.digest), (last.seq, last.digest), "replaced: {is_replaced}");
    }
}

/// A file that the store itself removes loses its name as well, often just while it is looked for.
#[test]
fn what_is_let_go_or_replaced_while_it_is_looked_for_is_not_missed() {
    let disk = SimDisk::default();
    let bounded = EmbeddedOptions { history_bytes: 24 << 10, ..options(&disk) };
    let store = EmbeddedStore::open(Path::new(DIR), SHARDS, bounded).unwrap();
    let rounds = AtomicU64::new(0);
    // However late the other thread has its turn, it reads while this one writes.
    let goes_on = |n| n < 600 || rounds.load(Ordering::Relaxed) < 3;
    let mut problem = None;
    std::thread::scope(|scope| {
        let written = scope.spawn(|| run_while(&store, goes_on, 0x100));
        while !written.is_finished() {
            // With a problem the writer must come to its end as well.
            problem = problem.take().or_else(|| reread(&store).err());
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(problem.is_none(), "{problem:?}");
    until("a snapshot", || store.figures().compactions > 1);
    assert!(!disk.files().iter().any(|(path, _)| path.ends_with("00000001.seg")), "nothing was let go");
    assert_eq!(store.damage(), None);
}

/// Nobody reads these files while the register is served, but the next start does.
#[test]
fn history_and_state_that_rot_while_they_are_served_are_found_by_whoever_reads_them_again() {
    let disk = killed().0.after_kill();
    let store = open(&disk).unwrap();
    let files = || disk.files().into_iter().map(|(path, _)| path);
    let snapshot = files().find(|path| path.extension().is_some_and(|end| end == "snap")).unwrap();
    let covered = files().filter(|path| path.extension().is_some_and(|end| end == "seg")).min().unwrap();
    reread(&store).unwrap();
    assert_eq!(store.damage(), None);
    disk.edit(&covered, |bytes| bytes[1_000] ^= 1);
    let told = reread(&store).unwrap_err().to_string();
    assert!(told.contains("is damaged at offset"), "{told}");
    let damage = store.damage().unwrap();
    assert!(damage.starts_with(&*covered.display().to_string()), "{damage}");
    disk.edit(&covered, |bytes| bytes[1_000] ^= 1);
    disk.edit(&snapshot, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    });
    let found: Vec<_> = (0..SHARDS).map(|shard| wait(store.beside(ShardId(shard)))).collect();
    assert!(found.iter().any(|image| matches!(image, Err(StoreError::Damaged(_)))), "none of them reads {snapshot:?}");
    assert!(store.damage().is_some_and(|damage| damage.contains("snap")), "{:?}", store.damage());
}

/// Headers and the files beside the records are otherwise read only by a start.
#[test]
fn whatever_a_start_reads_beside_the_records_is_missed_where_it_says_something_else() {
    let disk = killed().0.after_kill();
    let store = open(&disk).unwrap();
    let [meta, mark] = ["META", "MARK"].map(|name| Path::new(DIR).join(name));
    let other = {
        let disk = SimDisk::default();
        drop(open(&disk).unwrap());
        bytes_of(&disk, &meta)
    };
    let bytes_of = |path: &Path| bytes_of(&disk, path);
    let spoil = |bytes: &mut Vec<u8>| bytes.iter_mut().skip(8).step_by(4_096).for_each(|byte| *byte ^= 1);
    let whole = bytes_of(&mark);
    let one_place = |bytes: &mut Vec<u8>| bytes[8] ^= 1;
    for (path, edit, said) in [
        (&meta, &spoil as &dyn Fn(&mut Vec<u8>), "META does not fit its checksum"),
        (&meta, &|bytes: &mut Vec<u8>| bytes.clone_from(&other), "META is not as it was opened: it says register "),
        (&mark, &spoil, "MARK has no readable mark"),
        (&mark, &|bytes: &mut Vec<u8>| bytes[..8_192].fill(0), "MARK has no readable mark"),
    ] {
        let before = bytes_of(path);
        disk.edit(path, |bytes| edit(bytes));
        let told = reread(&store).unwrap_err().to_string();
        assert!(told.contains(said) && store.damage().as_deref() == Some(&*told), "{told}");
        assert!(!told.contains("backup"), "{told}");
        disk.edit(path, |bytes| bytes.clone_from(&before));
        reread(&store).unwrap();
        assert_eq!(store.damage(), None, "{said}");
    }
    disk.edit(&mark, one_place);
    reread(&store).unwrap();
    // Restores an old mark.
    let acknowledge = |token| wait(store.take(ShardId(0), Token(token))).unwrap();
    acknowledge(0x9000);
    disk.edit(&mark, |bytes| bytes.clone_from(&whole));
    let told = reread(&store).unwrap_err().to_string();
    assert!(told.contains("MARK names group") && told.contains("was acknowledged last"), "{told}");
    acknowledge(0x9001);
    reread(&store).unwrap();
    let written = |path: &PathBuf| written(&disk, path) > 0;
    let fronts = of_kind(&disk, "snap").into_iter().chain(of_kind(&disk, "seg")).filter(written).collect::<Vec<_>>();
    assert!(fronts.len() > 2, "{fronts:?}");
    for path in fronts {
        let disk = killed().0.after_kill();
        let store = open(&disk).unwrap();
        disk.edit(&path, |bytes| bytes[30] ^= 1);
        let told = reread(&store).unwrap_err().to_string();
        assert!(told.contains(&*path.display().to_string()) && told.contains("its header is unreadable"), "{told}");
        assert_eq!(store.damage().as_deref(), Some(&*told));
        drop(store);
        assert!(open(&disk).is_err(), "{}", path.display());
    }
}

/// The next start would fail on what the disk cannot read. A lack of descriptors, on the other hand, may be over by then.
#[test]
fn a_closed_segment_that_the_disk_gives_back_no_more_is_told_and_what_may_pass_is_not() {
    let disk = killed().0.after_kill();
    let store = open(&disk).unwrap();
    let segment = Path::new(DIR).join("log/00000001.seg");
    let is_unread = || matches!(wait(store.history(ShardId(0), Seq(0), usize::MAX)), Err(StoreError::Io { .. }));
    disk.put_out_of_reach(Some((segment.clone(), Reach::Opening)));
    assert!(is_unread());
    assert_eq!(store.damage(), None);
    disk.put_out_of_reach(None);
    disk.rot(&segment);
    assert!(is_unread());
    assert_eq!(store.damage().as_deref(), Some("/data/allod/log/00000001.seg cannot be read (Input/output error)"));
}

/// The register is served, and nobody who reads history is about to start it.
#[test]
fn whoever_reads_history_that_is_damaged_is_told_what_is_and_not_what_a_start_would_be() {
    let disk = killed().0.after_kill();
    let store = open(&disk).unwrap();
    disk.edit(&Path::new(DIR).join("log/00000001.seg"), |bytes| bytes[1_000] ^= 1);
    let told = wait(store.history(ShardId(0), Seq(0), usize::MAX)).unwrap_err().to_string();
    for told in [told, store.damage().unwrap().to_string()] {
        assert!(told.contains("00000001.seg is damaged at offset"), "{told}");
        assert!(!told.contains("backup") && !told.contains("start again"), "{told}");
    }
}

/// Offsets beside the marks of the notes that history was let go without a snapshot.
const NOTES: [u64; 2] = [2_048, 6_144];

/// The disk of a register that let some of its history go without a snapshot, as its two notes say.
fn with_less_history() -> SimDisk {
    let disk = killed().0.after_kill();
    let bounded = EmbeddedOptions { history_bytes: 8 << 10, ..options(&disk) };
    let _store = EmbeddedStore::open(Path::new(DIR), SHARDS, bounded).unwrap();
    until("less history", || !disk.files().iter().any(|(path, _)| path.ends_with("00000001.seg")));
    disk
}

/// Two notes beside the marks say what was let go without a snapshot.
#[test]
fn one_note_of_the_oldest_segment_is_enough_and_without_any_what_is_missing_is_missed() {
    let disk = with_less_history();
    let mark = Path::new(DIR).join("MARK");
    for spoilt in NOTES.map(|at| at as usize) {
        for at in spoilt..spoilt + 16 {
            let image = disk.after_kill();
            image.edit(&mark, |bytes| bytes[at] ^= 1);
            assert!(open(&image).is_ok(), "byte {at}");
        }
    }
    disk.edit(&mark, |bytes| NOTES.iter().for_each(|&at| bytes[at as usize + 5] ^= 1));
    let refused = open(&disk).unwrap_err();
    let StoreError::HistoryDamaged(text) = &refused else { panic!("{refused:?}") };
    assert!(text.contains("00000001.seg is missing"), "{text}");
}

/// If unreadable notes counted as none, the segments that were let go would be missed, and called damage.
#[test]
fn notes_of_the_oldest_segment_that_the_disk_does_not_give_now_are_not_taken_for_none() {
    let mark = Path::new(DIR).join("MARK");
    let opened = |image: SimDisk, places| {
        image.put_out_of_reach(Some((mark.clone(), Reach::ReadingAt(places))));
        open(&image)
    };
    let disk = with_less_history();
    for at in NOTES {
        assert!(opened(disk.after_kill(), [at, at]).is_ok(), "the other one is enough");
        assert!(opened(killed().0.after_kill(), [at, at]).is_ok(), "nothing was ever noted in the other one");
    }
    let refused = opened(disk.after_kill(), NOTES).map(drop).unwrap_err();
    assert!(matches!(&refused, StoreError::Io { .. }), "{refused:?}");
    let torn = disk.after_kill();
    torn.edit(&mark, |bytes| bytes[NOTES[0] as usize + 5] ^= 1);
    let refused = opened(torn, [NOTES[1]; 2]).map(drop).unwrap_err();
    assert!(matches!(&refused, StoreError::Io { .. }), "{refused:?}");
    assert!(open(&disk).is_ok());
}
