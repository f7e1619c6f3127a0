//! A disk with too little room for the log, for a snapshot, or for both: which of them gets the room, and how often it is
//! retried.

use std::path::Path;
use std::task::{Context, Waker};
use std::time::Duration;

use allod::core::types::Generation;
use allod::store::embedded::disk::Disk;
use allod::store::embedded::{EmbeddedOptions, EmbeddedStore};
use allod::store::*;

use super::crash::until;
use super::disk::SimDisk;
use super::work::*;

/// Longer than any test runs.
const NEVER: Duration = Duration::from_secs(3_600);

fn opened(options: &EmbeddedOptions) -> EmbeddedStore {
    EmbeddedStore::open(Path::new(DIR), SHARDS, options.clone()).unwrap()
}

/// Commits one batch after the other to the first shard.
struct Owner<'a> {
    store: &'a EmbeddedStore,
    head: Head,
}

impl<'a> Owner<'a> {
    fn begin(store: &'a EmbeddedStore, token: u128) -> Self {
        Self { store, head: wait(store.take(ShardId(0), Token(token))).unwrap() }
    }

    fn commit(&mut self, steps: Vec<allod::core::state::Step>) -> Result<(), CommitError> {
        let mut next = batch(&self.head, 0, steps);
        next.generation = Generation(self.head.generation.0 + 1_000);
        let committed = wait(self.store.commit([next.clone()].into()))?;
        follow(&mut self.head, &next, &committed[0]);
        Ok(())
    }

    /// Grants and releases the same address in turns, so that the state stays small, until `ended` or until refused.
    fn turn_until(&mut self, mut ended: impl FnMut() -> bool) {
        while !ended() {
            let generation = self.head.generation.0 + 1;
            if self.commit(vec![grant(7, generation, None)]).is_err() {
                return;
            }
            self.commit(vec![free(7, generation)]).unwrap();
        }
    }

    /// As [`Owner::turn_until`], until the store is full.
    fn turn_until_full(&mut self) {
        let store = self.store;
        self.turn_until(|| store.health() == StoreHealth::Full);
        until("a full disk", || store.health() == StoreHealth::Full);
    }
}

/// Is there a segment that is not in use yet?
pub fn has_spare(disk: &SimDisk) -> bool {
    let blank =
        |path: &Path| path.extension().is_some_and(|end| end == "seg") && super::crash::written(disk, path) == 0;
    disk.files().iter().any(|(path, _)| blank(path))
}

#[test]
fn a_snapshot_that_failed_is_left_alone_for_its_time_whatever_happens_to_the_log() {
    let disk = SimDisk::default();
    disk.refuse_snapshots();
    let store = opened(&EmbeddedOptions { compaction_retry: NEVER, ..options(&disk) });
    let mut owner = Owner::begin(&store, 1);
    owner.commit(vec![config_step(network(1))]).unwrap();
    owner.turn_until(|| store.figures().compaction_failures > 0);
    // Each segment that is created or begun wakes whoever waits for the log.
    let segments = disk.begun("log");
    owner.turn_until(|| disk.begun("log") > segments + 20);
    assert_eq!(disk.begun("snap"), 1);
}

#[test]
fn a_snapshot_that_frees_nothing_is_not_begun_while_the_log_lacks_the_room_for_its_next_segment() {
    let disk = SimDisk::default();
    let store = opened(&options(&disk));
    let mut owner = Owner::begin(&store, 1);
    owner.commit(vec![config_step(network(1))]).unwrap();
    // Before enough of the log is closed for a snapshot to be due.
    until("a spare segment", || has_spare(&disk));
    disk.set_capacity(Some(disk.used() + (16 << 10)));
    owner.turn_until_full();
    let segments = disk.begun("log");
    until("more tries", || disk.begun("log") > segments + 20);
    assert_eq!(disk.begun("snap"), 0);
    disk.set_capacity(None);
    until("a snapshot", || store.figures().compactions > 0);
}

#[test]
fn a_snapshot_that_lets_segments_go_is_written_although_the_disk_is_full() {
    let disk = SimDisk::default();
    let store = opened(&EmbeddedOptions { history_bytes: 0, ..options(&disk) });
    let mut owner = Owner::begin(&store, 1);
    owner.commit(vec![config_step(network(1))]).unwrap();
    until("a spare segment", || has_spare(&disk));
    // Two segments and a half.
    disk.set_capacity(Some(disk.used() + (20 << 10)));
    for snapshots in 1..4 {
        owner.turn_until(|| store.figures().compactions >= snapshots);
        until("room again", || store.health() == StoreHealth::Ready && store.figures().compactions >= snapshots);
    }
}

/// A spare segment that somebody removed is made anew before it is used, which takes room like any other.
#[test]
fn a_spare_segment_that_is_removed_while_the_disk_is_full_leaves_a_store_that_is_full_and_not_one_that_failed() {
    let disk = SimDisk::default();
    let store = opened(&options(&disk));
    let mut owner = Owner::begin(&store, 1);
    owner.commit(vec![config_step(network(1))]).unwrap();
    owner.commit(vec![grant(9, 1, None)]).unwrap();
    until("a spare segment", || has_spare(&disk));
    let blank = |path: &Path| path.ends_with("00000002.seg") && super::crash::written(&disk, path) == 0;
    let spare = disk.files().into_iter().map(|(path, _)| path).find(|path| blank(path)).unwrap();
    disk.remove(&spare).unwrap();
    disk.set_capacity(Some(disk.used()));
    owner.turn_until_full();
    owner.commit(vec![free(9, 1)]).unwrap();
    disk.set_capacity(None);
    until("a log that is continued", || store.health() == StoreHealth::Ready);
    owner.turn_until(|| super::crash::written(&disk, &spare) > 0);
    assert!(super::crash::written(&disk, &spare) > 0, "it goes on under the same name");
}

/// Otherwise the two take the room from each other: the log can be continued, cannot, and can again.
#[test]
fn a_snapshot_under_way_gives_way_to_the_log() {
    let disk = SimDisk::default();
    let large = EmbeddedOptions { segment_bytes: 1 << 20, snapshot_log_bytes: 1 << 20, ..options(&disk) };
    let store = opened(&EmbeddedOptions { compaction_retry: NEVER, ..large });
    let mut owner = Owner::begin(&store, 1);
    owner.commit(vec![config_step(network(1))]).unwrap();
    for some in 0..10 {
        let row = |n: u32| grant(1_000 + n, u64::from(n) + 1, None);
        owner.commit((some * 500..(some + 1) * 500).map(row).collect()).unwrap();
    }
    disk.hold_files(Some("snap"));
    owner.turn_until(|| disk.begun("snap") > 0);
    until("a spare segment", || has_spare(&disk));
    // Enough for the snapshot, but too little for a segment.
    disk.set_capacity(Some(disk.used() + (1_000 << 10)));
    owner.turn_until_full();
    disk.hold_files(None);
    until("an end of the snapshot", || {
        let figures = store.figures();
        figures.compactions + figures.compaction_failures > 0
    });
    assert_eq!((store.figures().compactions, store.figures().compaction_failures), (0, 1));
    let is_snapshot = |path: &Path| path.parent().is_some_and(|dir| dir.ends_with("snap"));
    until("no snapshot in the way", || !disk.files().iter().any(|(path, _)| is_snapshot(path)));
    disk.set_capacity(None);
    until("a log that is continued", || store.health() == StoreHealth::Ready);
}

fn is_there(disk: &SimDisk, segment: u64) -> bool {
    disk.files().iter().any(|(path, _)| path.ends_with(format!("{segment:08}.seg")))
}

#[test]
fn bounds_of_history_that_are_lowered_free_a_full_disk_at_the_next_start() {
    let disk = SimDisk::default();
    let store = opened(&options(&disk));
    let mut owner = Owner::begin(&store, 1);
    owner.commit(vec![config_step(network(1))]).unwrap();
    owner.turn_until(|| store.figures().compactions > 1);
    until("a spare segment", || has_spare(&disk));
    disk.set_capacity(Some(disk.used()));
    owner.turn_until_full();
    drop(store);
    let lowered = EmbeddedOptions { history_bytes: 8 << 10, ..options(&disk) };
    let store = opened(&lowered);
    until("less history", || !is_there(&disk, 1));
    until("a spare segment", || has_spare(&disk));
    let mut owner = Owner::begin(&store, 2);
    for generation in 1..60 {
        owner.commit(vec![grant(9, 1_000_000 + generation, None)]).unwrap();
        owner.commit(vec![free(9, 1_000_000 + generation)]).unwrap();
    }
    let head = owner.head;
    drop(store);
    assert_eq!(Owner::begin(&opened(&lowered), 2).head, head);
}

#[test]
fn a_full_disk_lets_go_what_is_beyond_the_bounds_of_history_without_a_new_snapshot() {
    let disk = SimDisk::default();
    let store = opened(&EmbeddedOptions { history_bytes: 24 << 10, snapshot_log_bytes: 64 << 10, ..options(&disk) });
    let mut owner = Owner::begin(&store, 1);
    owner.commit(vec![config_step(network(1))]).unwrap();
    owner.turn_until(|| store.figures().compactions > 0);
    until("a spare segment", || has_spare(&disk));
    let oldest = (1..).find(|&segment| is_there(&disk, segment)).unwrap();
    disk.refuse_snapshots();
    disk.set_capacity(Some(disk.used()));
    until("less history", || {
        owner.turn_until(|| !is_there(&disk, oldest));
        !is_there(&disk, oldest)
    });
    until("room again", || store.health() == StoreHealth::Ready);
    let image = disk.after_kill();
    assert_eq!(Owner::begin(&opened(&options(&image)), 1).head, owner.head);
}

#[test]
fn history_frees_a_full_disk_also_while_a_snapshot_that_failed_is_left_alone() {
    let disk = SimDisk::default();
    // Nothing is let go before the disk is full.
    let bounded = EmbeddedOptions { history_bytes: 8 << 10, history_grace: NEVER, ..options(&disk) };
    let store = opened(&EmbeddedOptions { compaction_retry: NEVER, ..bounded });
    let mut owner = Owner::begin(&store, 1);
    owner.commit(vec![config_step(network(1))]).unwrap();
    owner.turn_until(|| store.figures().compactions > 0);
    disk.refuse_snapshots();
    owner.turn_until(|| store.figures().compaction_failures > 0);
    let snapshots = store.figures().compactions;
    assert!(is_there(&disk, 1), "nothing was let go yet");
    disk.set_capacity(Some(disk.used()));
    until("less history", || {
        owner.turn_until(|| !is_there(&disk, 1));
        !is_there(&disk, 1)
    });
    until("room again", || store.health() == StoreHealth::Ready);
    assert_eq!((store.figures().compactions, store.figures().compaction_failures), (snapshots, 1));
}

/// Makes a register with history; returns the bounds with which a start lets most of it go.
fn with_other_bounds(disk: &SimDisk) -> EmbeddedOptions {
    let store = opened(&options(disk));
    let mut owner = Owner::begin(&store, 1);
    owner.commit(vec![config_step(network(1))]).unwrap();
    owner.turn_until(|| store.figures().compactions > 1);
    EmbeddedOptions { history_bytes: 8 << 10, history_grace: NEVER, ..options(disk) }
}

/// A server that was started without its file of settings, say, is stopped and started as it should be.
#[test]
fn a_start_with_other_bounds_lets_nothing_go_at_first_but_on_a_full_disk() {
    let disk = SimDisk::default();
    let mistaken = with_other_bounds(&disk);
    let store = opened(&mistaken);
    let mut owner = Owner::begin(&store, 2);
    // By then the store has done what a start does first, and a snapshot may let history go.
    owner.turn_until(|| store.figures().compactions > 1);
    assert!(is_there(&disk, 1));
    drop(store);
    assert!(is_there(&disk, 1), "the next start may keep it");
    let store = opened(&mistaken);
    let mut owner = Owner::begin(&store, 3);
    until("a spare segment", || has_spare(&disk));
    disk.set_capacity(Some(disk.used()));
    until("less history", || {
        owner.turn_until(|| !is_there(&disk, 1));
        !is_there(&disk, 1)
    });
}

#[test]
fn a_start_that_cannot_continue_the_log_for_another_reason_than_room_lets_nothing_go_for_that() {
    let disk = SimDisk::default();
    let mistaken = with_other_bounds(&disk);
    let store = opened(&mistaken);
    let mut owner = Owner::begin(&store, 2);
    until("a spare segment", || has_spare(&disk));
    disk.refuse_files(Some(std::io::ErrorKind::Other));
    owner.turn_until_full();
    let segments = disk.begun("log");
    until("more tries", || disk.begun("log") > segments + 20);
    assert!(is_there(&disk, 1));
    disk.refuse_files(Some(std::io::ErrorKind::StorageFull));
    until("less history", || !is_there(&disk, 1));
}

#[test]
fn what_is_damaged_in_a_segment_is_told_until_that_is_let_go() {
    let disk = SimDisk::default();
    let store = opened(&EmbeddedOptions { history_bytes: 8 << 10, history_grace: NEVER, ..options(&disk) });
    let mut owner = Owner::begin(&store, 1);
    owner.commit(vec![config_step(network(1))]).unwrap();
    owner.turn_until(|| store.figures().compactions > 1);
    disk.edit(&Path::new(DIR).join("log/00000001.seg"), |bytes| bytes[1_000] ^= 1);
    let read = wait(store.history(ShardId(0), Seq(0), usize::MAX));
    assert!(matches!(read, Err(StoreError::Damaged(_))), "{read:?}");
    assert!(store.damage().is_some_and(|damage| damage.contains("00000001.seg is damaged")));
    disk.set_capacity(Some(disk.used()));
    until("less history", || {
        owner.turn_until(|| !is_there(&disk, 1));
        !is_there(&disk, 1)
    });
    assert_eq!(store.damage(), None, "the next start misses nothing");
}

/// Then its state is only in the memory of the process that serves it.
#[test]
fn a_snapshot_that_the_disk_gives_back_no_more_is_told_when_the_next_one_is_made_of_it() {
    let disk = SimDisk::default();
    let store = opened(&options(&disk));
    let mut owner = Owner::begin(&store, 1);
    // It stays, so each snapshot reads something from the one before.
    owner.commit(vec![config_step(network(1))]).unwrap();
    owner.turn_until(|| store.figures().compactions > 0);
    let segments = disk.begun("log");
    let rot = || {
        let files = disk.files().into_iter().map(|(path, _)| path);
        files.filter(|path| path.parent().is_some_and(|dir| dir.ends_with("snap"))).for_each(|path| disk.rot(&path));
    };
    owner.turn_until(|| {
        rot();
        store.damage().is_some() || disk.begun("log") > segments + 50
    });
    let damage = store.damage().expect("it is known by then");
    assert!(damage.contains("/snap/") && damage.ends_with("cannot be read (Input/output error)"), "{damage}");
    // The next snapshot is made from what could be read again after all, and the damaged file goes.
    disk.is_sound_again();
    owner.turn_until(|| store.damage().is_none());
}

/// Otherwise reads would end with the process, and nothing could be let go to make it start again.
#[test]
fn a_register_on_a_full_disk_whose_reserve_is_used_up_is_started_and_read() {
    let disk = SimDisk::default();
    let store = opened(&options(&disk));
    let mut owner = Owner::begin(&store, 1);
    owner.commit(vec![config_step(network(1)), grant(9, 5, None)]).unwrap();
    until("a spare segment", || has_spare(&disk));
    assert_eq!(store.room(), None, "it has no bound while there is room");
    disk.set_capacity(Some(disk.used()));
    owner.turn_until_full();
    // Releases ask for room before they are made.
    let mut before = u64::MAX;
    while let Some(room) = store.room().filter(|room| *room > size::BESIDE_ACTS) {
        assert!(room < before, "{room} is left of {before}");
        before = room;
        // Renews what is held already.
        owner.commit(vec![grant(9, 5, Some(5))]).unwrap();
    }
    let head = owner.head;
    drop(store);
    for token in 2..8 {
        let store = opened(&options(&disk));
        for shard in (0..SHARDS).map(ShardId) {
            wait(store.take(shard, Token(token))).unwrap();
        }
        let image = wait(store.load(ShardId(0), Token(token))).unwrap();
        assert_eq!(image.head.seq, head.seq);
        until("a full disk", || store.health() == StoreHealth::Full);
    }
}

/// The segment in use has more room than a group usually takes, but less than this one needs.
#[test]
fn an_act_that_only_a_fresh_segment_has_room_for_waits_until_that_is_made() {
    const ROWS: u32 = 160_000;
    let disk = SimDisk::default();
    let mut rows = (0..).map(|n: u32| grant(n, u64::from(n) + 1, None));
    let mut act = || rows.by_ref().take(ROWS as usize).collect::<Vec<_>>();
    let (mut encoded, first) = (Vec::new(), act());
    codec::encode_batch(&batch(&Head::default(), 0, first.clone()), codec::Format::NEWEST, &mut encoded).unwrap();
    let bytes = encoded.len() as u64;
    assert!(bytes > 8 << 20, "{bytes}");
    // One act, plus more than is waited for anyway; two do not fit.
    let segment_bytes = bytes + (8 << 20) + (64 << 10);
    assert!(2 * bytes > segment_bytes, "{bytes}");
    let large = EmbeddedOptions { segment_bytes, piece_bytes: 4 << 20, snapshot_log_bytes: 1 << 30, ..options(&disk) };
    let store = opened(&large);
    let mut owner = Owner::begin(&store, 1);
    until("a spare segment", || has_spare(&disk));
    disk.hold_files(Some("log"));
    owner.commit(first).unwrap();
    // Into the spare segment; the next one is not made yet.
    owner.commit(act()).unwrap();
    let next = batch(&owner.head, 0, act());
    let mut answer = store.commit([next.clone()].into());
    let is_answered = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        answer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    });
    disk.hold_files(None);
    assert!(!is_answered, "it is refused");
    let committed = wait(answer).unwrap();
    follow(&mut owner.head, &next, &committed[0]);
}

#[test]
fn an_act_that_no_segment_has_room_for_is_refused_for_that() {
    let disk = SimDisk::default();
    let store = opened(&options(&disk));
    let mut owner = Owner::begin(&store, 1);
    let refused = owner.commit((0..200).map(|n| grant(n, u64::from(n) + 1, None)).collect()).unwrap_err();
    let CommitError::NotApplied { cause: StoreError::Invalid(text) } = &refused else { panic!("{refused:?}") };
    assert!(text.contains("longer than a log segment of 8192 bytes"), "{text}");
    owner.commit(vec![config_step(network(1))]).unwrap();
}

/// A process may have some thousand files open, and history may consist of more segments than that.
#[test]
fn history_has_no_files_open_whatever_its_length() {
    /// Marks, the snapshot and the next one, segments after it, a spare one, and what is open for a moment.
    const OPEN_MAX: usize = 14;
    let disk = SimDisk::default();
    let store = opened(&options(&disk));
    let run = run(&store, 600, 0x100);
    until("snapshots of nearly all of it", || store.figures().compactions > 3);
    let segments = || disk.files().iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "seg")).count();
    assert!(segments() > 2 * OPEN_MAX, "{}", segments());
    until("only some files open", || disk.open_files() < OPEN_MAX);
    disk.take_most_open();
    check(&store, &run, 0x100, "with all of its history");
    drop(store);
    assert_eq!(disk.open_files(), 0);
    let store = opened(&options(&disk));
    check(&store, &run, 0x900, "started again");
    let most = disk.take_most_open();
    assert!(most < OPEN_MAX, "{most} files were open");
}

/// A read of history that runs meanwhile begins with what is kept by then.
#[test]
fn history_that_is_let_go_while_it_is_read_has_no_gap() {
    let disk = SimDisk::default();
    let store = opened(&EmbeddedOptions { history_bytes: 16 << 10, ..options(&disk) });
    let mut owner = Owner::begin(&store, 1);
    owner.commit(vec![config_step(network(1))]).unwrap();
    owner.turn_until(|| store.figures().compactions > 1);
    let oldest = (1..).find(|&segment| is_there(&disk, segment)).unwrap();
    disk.hold_segments(true);
    let history = std::thread::scope(|scope| {
        let reading = scope.spawn(|| wait(store.history(ShardId(0), Seq(0), usize::MAX)));
        until("a segment that is to be read", || disk.segments_waiting() > 0);
        owner.turn_until(|| !is_there(&disk, oldest));
        disk.hold_segments(false);
        reading.join().unwrap().unwrap()
    });
    assert!(history.len() > 1 && history[0].seq > Seq(1));
    assert!(history.windows(2).all(|pair| pair[0].seq.0 + 1 == pair[1].seq.0), "there is a gap");
}

/// *A commit is in doubt while somebody walks through a year of history on a slow disk. The network has to be loaded again
/// for it, and whoever asks that network is refused after two seconds. And clients begin such walks and hang up.*
#[test]
fn what_an_owner_loads_does_not_wait_for_history_that_is_read_and_nothing_is_read_for_nobody() {
    let disk = SimDisk::default();
    let store = opened(&options(&disk));
    let mut owner = Owner::begin(&store, 1);
    owner.commit(vec![config_step(network(1))]).unwrap();
    owner.turn_until(|| store.figures().compactions > 1);
    let history = || store.history(ShardId(0), Seq(0), usize::MAX);
    let before = disk.segments_opened();
    let batches = wait(history()).unwrap().len();
    let each = disk.segments_opened() - before;
    assert!(each > 0, "there is history that a snapshot covers");
    disk.hold_segments(true);
    let reading = history();
    until("a segment that is to be read", || disk.segments_waiting() > 0);
    drop([history(), history(), history()]);
    let last = history();
    assert_eq!(wait(store.load(ShardId(0), Token(1))).unwrap().head.seq.0, batches as u64);
    disk.hold_segments(false);
    assert_eq!(wait(reading).unwrap().len(), batches);
    assert_eq!(wait(last).unwrap().len(), batches);
    // A snapshot under way may cover some more segments by now.
    assert!(disk.segments_opened() - before < 5 * each, "what nobody waits for was read");
}
