//! Each disk operation fails once, the process is killed, or the power goes. Everything acknowledged must be there
//! afterwards.

use std::path::Path;
use std::time::{Duration, Instant};

use allod::core::state::Step;
use allod::core::types::Generation;
use allod::store::codec::{Format, encode_batch};
use allod::store::embedded::{CannotCopy, EmbeddedOptions, EmbeddedStore, copy, copy_heard, verify};
use allod::store::moving::Copier;
use allod::store::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::disk::SimDisk;
use super::work::*;
use crate::seed::seed;

/// Waits for a state (never for a change), for a bounded time.
#[track_caller]
pub fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !reached() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Opens the register again and again, killed at one operation after the other, and looks at the disk after each kill and
/// after a loss of power. Returns how often it did not open.
pub fn broken_off_at_any_step(
    damaged: &SimDisk,
    opens: impl Fn(&SimDisk) -> Result<EmbeddedStore, StoreError>,
    rng: &mut SmallRng,
    mut look: impl FnMut(&SimDisk, &str),
) -> u32 {
    let mut broken = 0;
    for operation in 1.. {
        let disk = damaged.after_kill();
        disk.kill_at(operation);
        let opened = opens(&disk).map(drop);
        let failed = disk.failed();
        broken += u32::from(opened.is_err());
        let images = std::iter::once(disk.after_kill()).chain((0..2).map(|_| disk.after_power_loss(rng)));
        for (at, image) in images.enumerate() {
            look(&image, &format!("killed at operation {operation}, {at}"));
        }
        if !failed {
            break;
        }
    }
    broken
}

fn reopen(disk: &SimDisk, run: &Run, context: &str) {
    let store = open(disk).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    check(&store, run, 0x9000, context);
    // The store serves: the line goes on where it ended.
    let next = super::work::run(&store, 0, 0xa000);
    assert!(next.offered[0].is_empty());
}

#[test]
fn whichever_disk_operation_fails_nothing_acknowledged_is_lost() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let mut failures = 0;
    for operation in 1.. {
        let disk = SimDisk::default();
        disk.fail_at(operation);
        let store = open(&disk);
        let run = match &store {
            Ok(store) => run(store, 70, 0x100),
            Err(_) => Run { offered: Default::default(), acknowledged: [0; 2], together: Vec::new() },
        };
        let context = format!("operation {operation} failed");
        let failed = disk.failed();
        failures += u64::from(failed);
        let killed = disk.after_kill();
        reopen(&killed, &run, &format!("{context}, killed"));
        for _ in 0..3 {
            reopen(&disk.after_power_loss(&mut rng), &run, &format!("{context}, power lost"));
        }
        drop(store);
        reopen(&disk, &run, &format!("{context}, closed"));
        // The number of operations differs a little from run to run, because compactor and allocator work concurrently.
        if !failed {
            break;
        }
    }
    assert!(failures > 150, "only {failures} operations were made to fail");
}

#[test]
fn the_power_may_go_in_the_middle_of_a_flush() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let (mut torn, mut whole, mut gone) = (0, 0, 0);
    for round in 0..60 {
        let disk = SimDisk::default();
        let store = open(&disk).unwrap();
        let mut run = run(&store, rng.random_range(1..80), 0x100);
        until("a spare segment", || {
            let segments =
                disk.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "seg"));
            segments.filter(|(path, _)| written(&disk, path) == 0).count() > 0
        });
        // One more batch is under way, several sectors long. It must be there completely or not at all.
        let head = wait(store.take(ShardId(0), Token(0x100))).unwrap();
        let more = (0..25).map(|row| grant(0x0b00_0000 + row, 9_000 + u64::from(row), None)).collect();
        let next = batch(&head, 0, more);
        run.offered[0].push(next.clone());
        disk.hold_flushes(true);
        let answer = store.commit([next].into());
        until("the flush", || disk.waiting() > 0);
        for _ in 0..6 {
            let lost = disk.after_power_loss(&mut rng);
            let context = format!("round {round}");
            let store = open(&lost).unwrap_or_else(|error| panic!("{context}: {error:?}"));
            let history = wait(store.history(ShardId(0), Seq(0), usize::MAX)).unwrap();
            match (store.torn_bytes() > 0, history.len() == run.offered[0].len()) {
                (true, _) => torn += 1,
                (false, true) => whole += 1,
                (false, false) => gone += 1,
            }
            drop(store);
            reopen(&lost, &run, &context);
        }
        disk.hold_flushes(false);
        drop(answer);
        drop(store);
        reopen(&disk, &run, "the flush went on");
    }
    println!("the last group was torn {torn} times, whole {whole} times, gone {gone} times");
    assert!(torn > 50 && whole + gone > 0, "the test does not reach what it is about");
}

/// A start writes too, since it cuts the torn tail off. The power may go then as well.
#[test]
fn a_start_that_is_broken_off_is_repeated() {
    let mut rng = SmallRng::seed_from_u64(seed());
    let disk = SimDisk::default();
    let store = open(&disk).unwrap();
    let run = run(&store, 100, 0x100);
    until("a snapshot", || store.figures().compactions > 0);
    let (segment, length) = last_segment(&disk);
    let image = disk.after_kill();
    // The last write left something behind the end.
    let end = written(&image, &segment);
    image.edit(&segment, |bytes| bytes[end..(end + 300).min(length)].fill(0xaa));
    for operation in 1.. {
        let image = image.after_kill();
        image.fail_at(operation);
        let opened = open(&image);
        let failed = image.failed();
        let lost = image.after_power_loss(&mut rng);
        drop(opened);
        reopen(&lost, &run, &format!("operation {operation} of the start failed, power lost"));
        reopen(&image, &run, &format!("operation {operation} of the start failed"));
        if !failed {
            assert!(operation > 3, "the start wrote nothing");
            break;
        }
    }
}

pub fn written(disk: &SimDisk, path: &Path) -> usize {
    let mut end = 0;
    disk.edit(path, |bytes| end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
    end
}

pub fn last_segment(disk: &SimDisk) -> (std::path::PathBuf, usize) {
    let segments = disk.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "seg"));
    let used: Vec<_> = segments.filter(|(path, _)| written(disk, path) > 0).collect();
    used.last().cloned().unwrap()
}

#[test]
fn a_torn_tail_is_cut_and_counted() {
    let disk = SimDisk::default();
    let store = open(&disk).unwrap();
    let run = run(&store, 5, 0x100);
    let image = disk.after_kill();
    drop(store);
    let (segment, _) = last_segment(&image);
    let end = written(&image, &segment);
    image.edit(&segment, |bytes| bytes[end..end + 100].fill(0x55));
    let store = open(&image).unwrap();
    assert_eq!(store.torn_bytes(), 100);
    check(&store, &run, 0x900, "torn");
    drop(store);
    assert_eq!(open(&image).unwrap().torn_bytes(), 0);
}

/// Waits until nothing more is done to the disk before the next commit. The last operation on the spare segment makes its name
/// durable; the name itself is seen earlier.
fn until_the_spare_segment_is_made(disk: &SimDisk) {
    let is_segment = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "seg");
    until("the spare segment", || disk.durable_files().iter().filter(|path| is_segment(path)).count() == 2);
}

#[test]
fn after_a_failed_flush_everything_is_refused() {
    let disk = SimDisk::default();
    let store = open(&disk).unwrap();
    let mut head = wait(store.take(ShardId(0), Token(1))).unwrap();
    let first = batch(&head, 0, vec![config_step(network(1))]);
    let committed = wait(store.commit([first.clone()].into())).unwrap();
    follow(&mut head, &first, &committed[0]);
    until_the_spare_segment_is_made(&disk);
    // The next operations write and flush the frame.
    disk.fail_at(disk.operations() + 2);
    let second = batch(&head, 0, vec![grant(1, 1, None)]);
    assert!(matches!(wait(store.commit([second.clone()].into())), Err(CommitError::Unknown { .. })));
    assert_eq!(store.health(), StoreHealth::Failed);
    let refused = wait(store.commit([second].into()));
    assert!(matches!(refused, Err(CommitError::NotApplied { cause: StoreError::Poisoned(_) })), "{refused:?}");
    assert!(matches!(wait(store.take(ShardId(0), Token(2))), Err(StoreError::Poisoned(_))));
}

/// An operator repairs what the message names.
#[test]
fn a_file_that_cannot_be_written_is_named_be_it_the_segment_or_the_mark() {
    for (operation, name) in [(1, "log/00000001.seg"), (2, "log/00000001.seg"), (3, "MARK"), (4, "MARK")] {
        let disk = SimDisk::default();
        let store = open(&disk).unwrap();
        let mut head = wait(store.take(ShardId(0), Token(1))).unwrap();
        until_the_spare_segment_is_made(&disk);
        disk.fail_at(disk.operations() + operation);
        let first = batch(&head, 0, vec![config_step(network(1))]);
        let failed = wait(store.commit([first.clone()].into())).unwrap_err();
        let CommitError::Unknown { cause } = &failed else { panic!("{failed:?}") };
        assert!(cause.to_string().starts_with(&format!("writing {DIR}/{name}: ")), "{operation}: {cause}");
        // The two places of the mark are never torn at once: the next start uses the intact one.
        let again = open(&disk.after_kill()).unwrap();
        head = wait(again.take(ShardId(0), Token(2))).unwrap();
        assert!(operation < 3 || head.seq == Seq(1), "the frame was durable before: {head:?}");
    }
}

#[test]
fn a_full_disk_refuses_grants_and_takes_releases() {
    let disk = SimDisk::default();
    let store = open(&disk).unwrap();
    let mut head = wait(store.take(ShardId(0), Token(1))).unwrap();
    let commit = |head: &mut Head, steps: Vec<Step>| {
        let next = batch(head, 0, steps);
        wait(store.commit([next.clone()].into())).map(|committed| follow(head, &next, &committed[0]))
    };
    commit(&mut head, vec![config_step(network(1))]).unwrap();
    disk.set_capacity(Some(disk.used()));
    let mut granted = 0;
    let refused = loop {
        match commit(&mut head, vec![grant(granted, 100 + u64::from(granted), None)]) {
            Ok(()) => granted += 1,
            Err(error) => break error,
        }
        assert!(granted < 10_000, "the disk is never full");
    };
    assert!(matches!(refused, CommitError::NotApplied { cause: StoreError::Full }), "{refused:?}");
    assert_eq!(store.health(), StoreHealth::Full);
    assert_eq!(&*store.obstacle(), "the disk under the data directory is full");
    commit(&mut head, vec![free(0, 100)]).unwrap();
    // A batch that follows a refused one is not mistaken for one of a fenced owner.
    let ahead = Batch { seq: Seq(head.seq.0 + 2), ..batch(&head, 0, vec![free(1, 101)]) };
    let gap = wait(store.commit([ahead].into()));
    assert!(matches!(gap, Err(CommitError::NotApplied { cause: StoreError::Gap { .. } })), "{gap:?}");
    disk.set_capacity(None);
    until("room again", || store.health() == StoreHealth::Ready);
    commit(&mut head, vec![grant(0, 9_000, None)]).unwrap();
    drop(store);
    let store = open(&disk).unwrap();
    let history = wait(store.history(ShardId(0), Seq(0), usize::MAX)).unwrap();
    assert_eq!(history.len() as u64, head.seq.0);
}

/// An operator who is told of a full disk makes room, in vain.
#[test]
fn a_log_that_cannot_be_continued_for_another_reason_than_room_is_not_called_a_full_disk() {
    let disk = SimDisk::default();
    let store = open(&disk).unwrap();
    disk.refuse_files(Some(std::io::ErrorKind::PermissionDenied));
    run(&store, 60, 0x100);
    until("no more segments", || store.health() == StoreHealth::Full);
    let obstacle = store.obstacle();
    assert!(obstacle.contains("permission denied") && !obstacle.contains("full"), "{obstacle}");
    disk.refuse_files(None);
    until("segments again", || store.health() == StoreHealth::Ready);
}

/// A segment spoilt by a torn first write must be used again, since there may be no room for another one.
#[test]
fn a_segment_that_should_be_blank_is_of_use_on_a_full_disk() {
    let disk = SimDisk::default();
    let store = open(&disk).unwrap();
    let run = run(&store, 5, 0x100);
    until("a spare segment", || disk.files().iter().any(|(path, _)| path.ends_with("00000002.seg")));
    drop(store);
    let spare = Path::new(DIR).join("log/00000002.seg");
    assert_eq!(written(&disk, &spare), 0);
    disk.edit(&spare, |bytes| bytes[..700].fill(0xa5));
    disk.set_capacity(Some(disk.used()));
    let store = open(&disk).unwrap();
    assert_eq!(written(&disk, &spare), 0);
    check(&store, &run, 0x9000, "on a full disk");
    assert_eq!(store.health(), StoreHealth::Ready);
    assert!(disk.files().iter().all(|(path, _)| path.extension().is_none_or(|end| end != "tmp")), "{:?}", disk.files());
}

fn encoded_bytes(batch: &Batch) -> usize {
    let mut bytes = Vec::new();
    encode_batch(batch, Format::NEWEST, &mut bytes).unwrap();
    bytes.len()
}

#[test]
fn history_outlives_snapshots_until_retention_ends() {
    const HISTORY_BYTES: u64 = 64 << 10;
    let disk = SimDisk::default();
    // Much more than a snapshot leaves to the log.
    let bounded = EmbeddedOptions { history_bytes: HISTORY_BYTES, ..options(&disk) };
    let store = EmbeddedStore::open(Path::new(DIR), SHARDS, bounded.clone()).unwrap();
    let run = run(&store, 600, 0x100);
    until("a removed segment", || !disk.files().iter().any(|(path, _)| path.ends_with("00000001.seg")));
    drop(store);
    let store = EmbeddedStore::open(Path::new(DIR), SHARDS, bounded).unwrap();
    let history = wait(store.history(ShardId(0), Seq(0), usize::MAX)).unwrap();
    assert!(history.len() < run.offered[0].len());
    assert_eq!(history[..], run.offered[0][run.offered[0].len() - history.len()..]);
    let of_both = [history, wait(store.history(ShardId(1), Seq(0), usize::MAX)).unwrap()];
    let kept: usize = of_both.iter().flatten().map(encoded_bytes).sum();
    // All but the segment that begins before the bound; the files also have the frames around the batches.
    assert!(kept as u64 > HISTORY_BYTES * 3 / 4, "{kept} bytes of history are left");
    // State does not depend on history.
    wait(store.take(ShardId(0), Token(5))).unwrap();
    let image = wait(store.load(ShardId(0), Token(5))).unwrap();
    assert_eq!(model_of(&image), model(&run.offered[0]));
}

/// A disk does one flush after the other, so a commit waits for the longest flush beside it.
#[test]
fn no_flush_beside_the_commits_is_longer_than_a_piece() {
    const PIECE: usize = 512 << 10;
    let disk = SimDisk::default();
    // Segments are made in pieces, too, and the store rests after each. In the pieces of other tests a large one takes ten
    // seconds.
    let pieces = EmbeddedOptions { piece_bytes: PIECE as u64, ..options(&disk) };
    let large = EmbeddedOptions { segment_bytes: 16 << 20, snapshot_log_bytes: 4 << 20, ..pieces };
    let store = EmbeddedStore::open(Path::new(DIR), SHARDS, large).unwrap();
    let mut head = wait(store.take(ShardId(0), Token(1))).unwrap();
    disk.take_longest_flush();
    let mut steps = vec![config_step(network(1))];
    let mut rows = 0..;
    while store.figures().compactions < 1 || store.figures().log_bytes < 20 << 20 {
        // A commit that waits for a segment has all of it flushed at once, which this test does not measure.
        until("a spare segment", || {
            disk.files().iter().all(|(path, _)| path.extension().is_none_or(|end| end != "tmp"))
        });
        let mut next = batch(&head, 0, std::mem::take(&mut steps));
        next.generation = Generation(head.generation.0 + 500);
        let committed = wait(store.commit([next.clone()].into())).unwrap();
        follow(&mut head, &next, &committed[0]);
        let grant = |row: u32| grant(0x0a00_0000 + row, 1 + u64::from(row), None);
        steps.extend(rows.by_ref().take(500).map(grant));
    }
    let longest = disk.take_longest_flush();
    assert!((PIECE..2 * PIECE).contains(&longest), "{longest} bytes at once");
}

#[test]
fn a_second_server_on_one_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let small = EmbeddedOptions { segment_bytes: 64 << 10, ..EmbeddedOptions::default() };
    let store = EmbeddedStore::open(dir.path(), 1, small.clone()).unwrap();
    let refused = EmbeddedStore::open(dir.path(), 1, small.clone()).unwrap_err();
    let StoreError::Locked(text) = &refused else { panic!("{refused:?}") };
    assert!(text.contains(&std::process::id().to_string()) && text.contains(dir.path().to_str().unwrap()), "{text}");
    assert!(matches!(verify(dir.path()), Err(StoreError::Locked(_))));
    drop(store);
    let store = EmbeddedStore::open(dir.path(), 1, small).unwrap();
    let register = store.info().register;
    drop(store);
    assert_eq!(verify(dir.path()).unwrap().register, register);
}

/// Otherwise the next copy into the same directory, night after night, would find files there.
#[test]
fn a_copy_that_its_source_fails_says_so_and_leaves_nothing() {
    let above = tempfile::tempdir().unwrap();
    let (dir, empty, new) = (above.path().join("a"), above.path().join("empty"), above.path().join("b/c"));
    std::fs::create_dir(&empty).unwrap();
    let small = EmbeddedOptions { segment_bytes: 8 << 10, ..EmbeddedOptions::default() };
    drop(run(&EmbeddedStore::open(&dir, SHARDS, small).unwrap(), 60, 0x100));
    let second = dir.join("log/00000002.seg");
    let whole = std::fs::read(&second).unwrap();
    for target in [&new, &empty] {
        let (cut, begun) = (second.clone(), target.join("log/00000001.seg"));
        let failing = move |_, _| {
            if begun.exists() {
                std::fs::File::options().write(true).open(&cut).unwrap().set_len(0).unwrap();
            }
        };
        let failed = copy_heard(&dir, target, Copier::Backup, std::sync::Arc::new(failing));
        let Err(CannotCopy::Source(StoreError::Io { context, .. })) = &failed else { panic!("{failed:?}") };
        assert!(context.contains("00000002.seg"), "{context}");
        std::fs::write(&second, &whole).unwrap();
    }
    assert!(!above.path().join("b").exists());
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
    copy(&dir, &empty).unwrap();
}

/// The copied register may have gone on, so its copy must never repeat one of its generations.
#[test]
fn a_copy_is_another_register_with_higher_generations() {
    let above = tempfile::tempdir().unwrap();
    let (dir, target) = (above.path().join("a"), above.path().join("b"));
    let small = EmbeddedOptions { segment_bytes: 8 << 10, snapshot_log_bytes: 16 << 10, ..EmbeddedOptions::default() };
    let store = EmbeddedStore::open(&dir, SHARDS, small.clone()).unwrap();
    let run = run(&store, 120, 0x100);
    until("a snapshot", || store.figures().compactions > 0);
    let register = store.info().register;
    let before = wait(store.take(ShardId(0), Token(0x100))).unwrap();
    drop(store);
    let report = copy(&dir, &target).unwrap();
    assert_eq!(report.restored_from, Some(register));
    let again = copy(&dir, &target);
    assert!(matches!(again, Err(CannotCopy::Target(StoreError::Foreign(_)))), "never over something that is there");
    let store = EmbeddedStore::open(&target, SHARDS, small.clone()).unwrap();
    assert_eq!((store.info().register, store.restored_from()), (report.register, Some(register)));
    assert_ne!(report.register, register);
    check(&store, &run, 0x9000, "copy");
    let after = wait(store.take(ShardId(0), Token(0x9999))).unwrap();
    assert!(after.generation > before.generation && after.generation.0 >= 1_700_000_000 << 20, "{after:?}");
    drop(store);
    check(&EmbeddedStore::open(&dir, SHARDS, small).unwrap(), &run, 0x9000, "source");
    assert!(verify(&above.path().join("none")).is_err() && !above.path().join("none").exists());
}
