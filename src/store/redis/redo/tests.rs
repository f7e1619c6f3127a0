//! Unit tests of the redo journal.
#![allow(clippy::disallowed_methods, reason = "files are damaged here")]

use super::restored::{Moves, remaining};
use super::*;
use crate::store::redis::journal::{Forgotten, Move};
use crate::store::redis::tests::shared;
use crate::store::{Batch, Digest, Epoch, Seq, Token, codec};

fn point(token: u128, seq: u64) -> Point {
    Point { token: Token(token), seq: Seq(seq), digest: Digest(u128::from(seq) * 7) }
}

fn deeds() -> Vec<Redone> {
    let taken = Move { shard: ShardId(3), before: point(1, 5), after: point(2, 5) };
    let batch = |text: &str, seq| (text.as_bytes().to_vec(), (Digest(seq), Digest(seq + 1)));
    vec![
        Redone::Take(taken, Epoch(4)),
        Redone::Commit { applied: true, batches: vec![batch("one", 1), batch("", 2)] },
        Redone::Commit { applied: false, batches: vec![batch("three", 3)] },
        Redone::Aside(ShardId(3), None),
    ]
}

fn append(redo: &Redo, deeds: &[Redone]) -> Result<(), StoreError> {
    redo.append(&mut redo.open.try_lock().unwrap(), deeds)
}

fn empty(redo: &Redo) {
    redo.empty(&mut redo.open.try_lock().unwrap());
}

fn opened(directory: &Path) -> (Redo, Vec<Redone>) {
    let (redo, Found(found)) = Redo::open(directory, 7, true).unwrap().unwrap();
    (redo, found)
}

#[test]
fn what_was_kept_is_found_by_the_next_process_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let (redo, found) = opened(directory.path());
    assert_eq!((found.len(), redo.bytes()), (0, 0));
    append(&redo, &deeds()[..2]).unwrap();
    append(&redo, &deeds()[2..]).unwrap();
    let bytes = redo.bytes();
    drop(redo);
    let (redo, found) = opened(directory.path());
    assert_eq!((found, redo.bytes()), (deeds(), bytes));
    // New entries are appended after it.
    append(&redo, &deeds()[..1]).unwrap();
    drop(redo);
    assert_eq!(opened(directory.path()).1.len(), 5);
}

#[tokio::test]
async fn it_is_emptied_only_of_what_was_in_it_when_the_replicas_were_asked() {
    let directory = tempfile::tempdir().unwrap();
    let shared = shared(Some(opened(directory.path()).0));
    let redo = Arc::clone(shared.redo.as_ref().unwrap());
    append(&redo, &deeds()[..1]).unwrap();
    let asked = redo.bytes();
    append(&redo, &deeds()[1..]).unwrap();
    super::empty(&shared, asked).await;
    assert!(redo.bytes() > asked);
    super::empty(&shared, redo.bytes()).await;
    assert_eq!(redo.bytes(), 0);
    append(&redo, &deeds()[1..2]).unwrap();
    drop((shared, redo));
    assert_eq!(opened(directory.path()).1, deeds()[1..2]);
}

#[test]
fn a_torn_end_was_told_nobody_and_anything_else_that_cannot_be_read_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let (redo, _) = opened(directory.path());
    append(&redo, &deeds()[..2]).unwrap();
    let last = TITLE.len() + redo.bytes() as usize;
    append(&redo, &deeds()[2..]).unwrap();
    let path = redo.path.clone();
    drop(redo);
    let whole = std::fs::read(&path).unwrap();
    for end in TITLE.len()..whole.len() {
        let (found, ends) = decode(&whole[..end]).unwrap();
        let told = if end < last { 0 } else { 2 };
        assert!(found == deeds()[..told] && ends <= end as u64, "{end}");
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        match decode(&bytes) {
            Ok((found, _)) => assert!(at >= last && found == deeds()[..2], "silently less, at byte {at}"),
            Err(_) => assert!(at < last, "{at}"),
        }
    }
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let (redo, found) = opened(directory.path());
    assert_eq!(found, deeds()[..2]);
    append(&redo, &deeds()[2..]).unwrap();
    drop(redo);
    assert_eq!(std::fs::read(&path).unwrap(), whole);
}

/// The pages of one write reach the disk in any order: after a power cut a later one may be there and an earlier one not.
#[test]
fn a_write_that_lost_any_of_its_pages_is_torn_and_what_was_written_before_it_is_there() {
    const PAGE: usize = 4_096;
    let directory = tempfile::tempdir().unwrap();
    let (redo, _) = opened(directory.path());
    append(&redo, &deeds()).unwrap();
    let last = TITLE.len() + redo.bytes() as usize;
    let batch = |at: u8| (vec![at; 700], (Digest(at.into()), Digest(u128::from(at) + 1)));
    let many: Vec<Redone> = (1..=40).map(|at| Redone::Commit { applied: true, batches: vec![batch(at)] }).collect();
    append(&redo, &many).unwrap();
    let path = redo.path.clone();
    drop(redo);
    let whole = std::fs::read(&path).unwrap();
    assert_eq!(opened(directory.path()).1.len(), 4 + 40);
    let pages = last.div_ceil(PAGE)..whole.len().div_ceil(PAGE);
    assert!(pages.len() > 4, "the last write has pages of its own: {pages:?}");
    for page in pages {
        let mut bytes = whole.clone();
        bytes[page * PAGE..].iter_mut().take(PAGE).for_each(|byte| *byte = 0);
        std::fs::write(&path, &bytes).unwrap();
        let (redo, found) = opened(directory.path());
        assert_eq!(found, deeds(), "page {page}");
        // What comes after it is found in its place.
        append(&redo, &deeds()[1..2]).unwrap();
        drop(redo);
        assert_eq!(opened(directory.path()).1, deeds().into_iter().chain(deeds().drain(1..2)).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_too_much_for_one_frame_is_in_several_and_found_in_order() {
    for (full, frames) in [(1, 4), (70, 3), (usize::MAX, 1)] {
        let (all, mut bytes, mut count) = (deeds(), TITLE.as_bytes().to_vec(), 0);
        let mut left = &all[..];
        while !left.is_empty() {
            let (frame, taken) = encode(left, bytes.len() as u64, full);
            bytes.extend(frame);
            (left, count) = (&left[taken..], count + 1);
        }
        assert_eq!((decode(&bytes).unwrap(), count), ((all, bytes.len() as u64), frames), "{full}");
    }
}

/// Its checksum is right: nothing was lost.
#[test]
fn what_only_a_newer_version_reads_is_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let (redo, _) = opened(directory.path());
    append(&redo, &deeds()[3..]).unwrap();
    let path = redo.path.clone();
    drop(redo);
    let mut bytes = std::fs::read(&path).unwrap();
    let (head, content) = bytes[TITLE.len()..].split_at_mut(8 + 4 + 4);
    content[0] = b'Z';
    let sum = crc32fast::hash(&[&head[..12], content].concat());
    head[12..].copy_from_slice(&sum.to_be_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let refused = Redo::open(directory.path(), 7, true).unwrap_err();
    let unread = remaining(vec![commit(true, &[3], 2, 6), {
        let Redone::Commit { applied, mut batches } = commit(true, &[3], 2, 7) else { panic!("it is a commit") };
        batches[0].0.push(0);
        Redone::Commit { applied, batches }
    }]);
    for refused in [refused, unread.unwrap_err()] {
        let said = refused.to_string();
        assert!(!matches!(refused, StoreError::Damaged(_)), "{said}");
        assert!(said.contains("newer version of allod: start that one") && !said.contains("from a copy"), "{said}");
    }
}

#[test]
fn a_directory_of_another_process_is_refused_and_nothing_is_made_where_nothing_may_be_kept() {
    let directory = tempfile::tempdir().unwrap();
    assert!(Redo::open(directory.path(), 7, false).unwrap().is_none());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let (redo, _) = opened(directory.path());
    assert!(matches!(Redo::open(directory.path(), 7, true), Err(StoreError::Locked(_))));
    append(&redo, &deeds()[..1]).unwrap();
    drop(redo);
    // Existing entries are found even if none may be added.
    let (redo, Found(found)) = Redo::open(directory.path(), 7, false).unwrap().unwrap();
    assert!(!redo.acknowledges() && found == deeds()[..1]);
    assert!(Redo::open(directory.path(), 8, false).unwrap().is_none(), "of another register");
}

/// A disk that refuses each named operation once.
#[derive(Debug)]
struct Refusing {
    file: File,
    refuses: Arc<Mutex<Vec<&'static str>>>,
}

impl Refusing {
    /// Replaces the disk below this journal.
    fn below(redo: &Redo) -> Arc<Mutex<Vec<&'static str>>> {
        let refuses = Arc::new(Mutex::new(Vec::new()));
        let file = OpenOptions::new().read(true).write(true).open(&redo.path).unwrap();
        redo.open.try_lock().unwrap().file = Box::new(Self { file, refuses: Arc::clone(&refuses) });
        refuses
    }

    fn asks(&self, what: &'static str) -> std::io::Result<()> {
        let mut refuses = locked(&self.refuses);
        let at = refuses.iter().position(|one| *one == what);
        at.map_or(Ok(()), |at| Err(std::io::Error::other(refuses.remove(at))))
    }
}

impl Medium for Refusing {
    fn write_at(&self, bytes: &[u8], at: u64) -> std::io::Result<()> {
        self.file.write_all_at(bytes, at)?;
        self.asks("written")
    }

    fn set_len(&self, length: u64) -> std::io::Result<()> {
        self.asks("cut")?;
        self.file.set_len(length)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.asks("synced")
    }
}

#[test]
fn what_is_kept_after_the_disk_refused_something_is_found_and_what_was_refused_is_not() {
    for refused in [&["synced"][..], &["written"], &["written", "cut"], &["synced", "cut", "cut"]] {
        let directory = tempfile::tempdir().unwrap();
        let (redo, _) = opened(directory.path());
        let refuses = Refusing::below(&redo);
        append(&redo, &deeds()[..1]).unwrap();
        locked(&refuses).extend(refused);
        append(&redo, &deeds()[1..]).unwrap_err();
        assert!(redo.refuses().is_some());
        // An entry that is shorter than the refused ones.
        while append(&redo, &deeds()[3..]).is_err() {}
        assert!(locked(&refuses).is_empty() && redo.refuses().is_none());
        drop(redo);
        let found = opened(directory.path()).1;
        assert_eq!((&found[..1], &found[1..]), (&deeds()[..1], &deeds()[3..]), "{refused:?}");
    }
    for refused in ["synced", "cut"] {
        let directory = tempfile::tempdir().unwrap();
        let (redo, _) = opened(directory.path());
        let refuses = Refusing::below(&redo);
        append(&redo, &deeds()[..1]).unwrap();
        locked(&refuses).push(refused);
        empty(&redo);
        append(&redo, &deeds()[1..2]).unwrap();
        drop(redo);
        let found = opened(directory.path()).1;
        let emptied = usize::from(refused == "synced");
        assert_eq!(found, deeds()[emptied..2], "{refused}");
    }
}

fn take(shard: u16, before: Point, after: Point, epoch: u64) -> Redone {
    Redone::Take(Move { shard: ShardId(shard), before, after }, Epoch(epoch))
}

/// One call that changes these shards; each batch follows the previous one on its line.
fn commit(applied: bool, shards: &[u16], token: u128, seq: u64) -> Redone {
    let batch = |&shard: &u16| {
        let shard = ShardId(shard);
        let (generation, time) = (crate::core::types::Generation(1), crate::core::types::ShardTime(seq));
        let (token, seq) = (Token(token), Seq(seq));
        let batch = Batch { shard, epoch: Epoch(4), token, seq, time, generation, acts: Vec::new() };
        let mut bytes = Vec::new();
        crate::store::fence::encode(&batch, codec::Format::FIRST, &mut bytes).unwrap();
        (bytes, (point(0, seq.0 - 1).digest, point(0, seq.0).digest))
    };
    Redone::Commit { applied, batches: shards.iter().map(batch).collect() }
}

/// The entries that remain of those found: whether each was applied, and where it leads.
fn left(found: Vec<Redone>) -> Vec<(bool, Vec<(u16, Point)>)> {
    let leads = |(redone, moves): &(Redone, Moves)| {
        let applied = !matches!(redone, Redone::Commit { applied: false, .. });
        (applied, moves.iter().map(|(one, _)| (one.shard.0, one.after)).collect())
    };
    remaining(found).unwrap().iter().map(leads).collect()
}

#[test]
fn of_what_is_put_aside_stays_what_leads_to_the_point_that_is_named() {
    let found = |aside| {
        vec![
            take(3, point(1, 5), point(2, 5), 4),
            commit(true, &[3, 4], 2, 6),
            commit(true, &[3], 2, 7),
            commit(true, &[4], 2, 7),
            commit(true, &[3], 2, 8),
            aside,
            take(3, point(9, 12), point(3, 12), 6),
        ]
    };
    let behind = (true, vec![(3, point(3, 12))]);
    let of_other = |seq| (true, vec![(4, point(2, seq))]);
    let aside = |stays| found(Redone::Aside(ShardId(3), stays));
    assert_eq!(left(aside(None)), [of_other(6), of_other(7), behind.clone()], "as it was written before");
    let common = [(true, vec![(3, point(2, 5))]), (true, vec![(3, point(2, 6)), (4, point(2, 6))])];
    let through = |rest: &[_]| [&common[..], rest, std::slice::from_ref(&behind)].concat();
    assert_eq!(left(aside(Some(point(2, 6)))), through(&[of_other(7)]));
    assert_eq!(left(aside(Some(point(2, 7)))), through(&[(true, vec![(3, point(2, 7))]), of_other(7)]));
    // The entry is written and read back unchanged.
    let directory = tempfile::tempdir().unwrap();
    let (redo, _) = opened(directory.path());
    append(&redo, &aside(Some(point(2, 6)))).unwrap();
    drop(redo);
    assert_eq!(opened(directory.path()).1, aside(Some(point(2, 6))));
}

/// The call in the first entry was under way in two shards when it was kept, and was refused after that. Another batch got
/// its number in one of them.
#[test]
fn what_was_refused_after_it_was_kept_does_not_come_back_where_its_number_was_used_again() {
    let another = |applied, shards: &[u16], seq, digest| {
        let Redone::Commit { applied, mut batches } = commit(applied, shards, 2, seq) else { panic!("it is a commit") };
        batches[0].1.1 = Digest(digest);
        Redone::Commit { applied, batches }
    };
    let stays = |applied| (applied, vec![(3, Point { digest: Digest(1), ..point(2, 6) })]);
    let refused = || commit(false, &[3, 4], 2, 6);
    assert_eq!(left(vec![refused(), another(true, &[3], 6, 1)]), [stays(true)]);
    assert_eq!(left(vec![refused(), another(false, &[3], 6, 1)]), [stays(false)]);
    assert_eq!(left(vec![refused(), another(false, &[3], 6, 1), another(true, &[3], 6, 1)]), [stays(true)]);
    // Also where that one was put aside since.
    let aside = Redone::Aside(ShardId(3), None);
    assert_eq!(left(vec![refused(), another(true, &[3], 6, 1), aside]), []);
    // What is confirmed stays, and so does what nobody knows better of.
    let both = |applied| (applied, vec![(3, point(2, 6)), (4, point(2, 6))]);
    assert_eq!(left(vec![refused()]), [both(false)]);
    assert_eq!(left(vec![refused(), commit(true, &[3, 4], 2, 6)]), [both(true)]);
}

/// The flush of the file failed, so no client was told; but all of it may be on the disk.
#[tokio::test]
async fn what_was_put_aside_is_not_found_by_the_next_process_though_only_its_flush_failed() {
    let directory = tempfile::tempdir().unwrap();
    let shared = shared(Some(opened(directory.path()).0));
    let redo = Arc::clone(shared.redo.as_ref().unwrap());
    let refuses = Refusing::below(&redo);
    locked(&refuses).push("synced");
    append(&redo, &[commit(true, &[3], 2, 6)]).unwrap_err();
    put_aside(&shared, ShardId(3), point(2, 5)).await.unwrap();
    drop((shared, redo));
    assert_eq!(left(opened(directory.path()).1), []);
}

/// The replicas are back, so more can be kept when they vanish the next time. Nothing may be written until then that would
/// notice.
#[tokio::test]
async fn a_refusal_that_is_not_the_disks_is_over_once_replicas_have_everything_though_the_file_is_empty() {
    let directory = tempfile::tempdir().unwrap();
    let shared = shared(Some(opened(directory.path()).0));
    let redo = Arc::clone(shared.redo.as_ref().unwrap());
    assert!(!redo.awaits_replicas());
    redo.refuse("some of what is to be kept is remembered no more");
    assert!(redo.awaits_replicas());
    super::empty(&shared, 0).await;
    assert!(!redo.awaits_replicas() && redo.refuses().is_none());
    // That the disk refuses something says nothing of replicas.
    let refuses = Refusing::below(&redo);
    locked(&refuses).push("written");
    append(&redo, &deeds()[..1]).unwrap_err();
    assert!(!redo.awaits_replicas() && redo.refuses().is_some());
}

/// Redis answers for two shards in any order: an entry that was kept before its answer came is kept again afterwards.
#[test]
fn what_is_kept_twice_is_played_once_where_it_was_kept_first_and_nobody_is_taken_to_know_less_than_he_was_told() {
    let found = || {
        let first = take(3, point(1, 5), point(2, 5), 4);
        vec![first, commit(false, &[3], 2, 6), commit(true, &[3], 2, 7), commit(true, &[3], 2, 6)]
    };
    let once = [5, 6, 7].map(|seq| (true, vec![(3, point(2, seq))]));
    assert_eq!(left(found()), once);
    let register = shared(None);
    restore(&register, Found(found()), false).unwrap();
    let line = register.lines().pop().unwrap();
    assert_eq!((line.shard, line.told), (ShardId(3), point(2, 7)));
    assert_eq!(register.journal().standing(), [(ShardId(3), point(2, 7))]);
}

/// The replicas had the first batch, so it was only kept after Redis had lost it and was given it again, after the batches
/// that follow it.
#[test]
fn what_is_kept_behind_what_follows_it_stands_in_front_of_it() {
    let found = |seqs: &[u64]| seqs.iter().map(|&seq| commit(true, &[3], 2, seq)).collect::<Vec<_>>();
    for seqs in [&[6, 7, 5][..], &[7, 6, 5], &[6, 5, 7], &[7, 5, 6]] {
        assert_eq!(left(found(seqs)), [5, 6, 7].map(|seq| (true, vec![(3, point(2, seq))])), "{seqs:?}");
        let register = shared(None);
        restore(&register, Found(found(seqs)), false).unwrap();
        assert_eq!(register.lines().pop().unwrap().told, point(2, 7), "{seqs:?}");
        assert_eq!(register.journal().standing(), [(ShardId(3), point(2, 7))]);
    }
    // Putting entries aside follows that order too.
    let mut aside = found(&[6, 7, 5]);
    aside.push(Redone::Aside(ShardId(3), Some(point(2, 6))));
    assert_eq!(left(aside), [5, 6].map(|seq| (true, vec![(3, point(2, seq))])));
}

/// The process ended between the two shards of one act: the part that was put aside is not replayed, and the other part is
/// replayed alone.
#[test]
fn what_was_put_aside_in_one_of_its_shards_is_played_in_the_others_alone() {
    let found = vec![commit(true, &[2, 3], 2, 6), Redone::Aside(ShardId(2), Some(point(2, 5)))];
    let register = shared(None);
    restore(&register, Found(found), true).unwrap();
    let line = register.lines().pop().unwrap();
    assert_eq!((register.lines().len(), line.shard, line.told, line.given_up), (1, ShardId(3), point(2, 6), true));
    let heads = [(ShardId(2), point(2, 5)), (ShardId(3), point(2, 5))];
    let standing = register.journal().standing();
    let missing = register.journal().missing(&heads, &standing).missing;
    let [Forgotten { deed: Deed::Batch(batch), moves }] = &missing[..] else { panic!("{missing:?}") };
    assert_eq!((moves[0].shard, moves[0].after), (ShardId(3), point(2, 6)));
    assert_eq!(codec::decode_batch(&batch.bytes).unwrap().shard, ShardId(3));
}

/// The owner of the register keeps something sooner or later. A node that does not own it would otherwise bar itself from
/// owning it for ever.
#[tokio::test]
async fn a_disk_that_could_not_be_written_is_tried_again_though_nothing_is_to_be_kept() {
    for refused in [&["written"][..], &["synced"], &["written", "cut"], &["written", "written"], &["synced", "synced"]]
    {
        let directory = tempfile::tempdir().unwrap();
        let shared = shared(Some(opened(directory.path()).0));
        let redo = Arc::clone(shared.redo.as_ref().unwrap());
        let refuses = Refusing::below(&redo);
        append(&redo, &deeds()[..1]).unwrap();
        locked(&refuses).extend(refused);
        append(&redo, &deeds()[1..]).unwrap_err();
        for left in (0..refused.len()).rev() {
            assert!(redo.refuses().is_some(), "{refused:?}");
            try_again(&shared);
            drop(redo.open.lock().await);
            assert_eq!(locked(&refuses).len(), left.saturating_sub(1), "{refused:?}");
        }
        assert_eq!(redo.refuses(), None, "{refused:?}");
        // A refusal for another reason than the disk stays, even if the disk works.
        locked(&refuses).push("written");
        append(&redo, &deeds()[1..]).unwrap_err();
        redo.refuse("it is full");
        redo.try_out(&mut *redo.open.lock().await, 1).unwrap();
        try_again(&shared);
        drop(redo.open.lock().await);
        assert_eq!(redo.refuses().as_deref(), Some("it is full"));
        append(&redo, &deeds()[3..]).unwrap();
        drop((shared, redo));
        let found = opened(directory.path()).1;
        assert_eq!((&found[..1], &found[1..]), (&deeds()[..1], &deeds()[3..]), "{refused:?}");
    }
}

/// A disk that hangs until it is released, and then either succeeds or fails.
#[derive(Debug)]
struct Hanging(Mutex<std::sync::mpsc::Receiver<()>>, bool);

impl Medium for Hanging {
    fn write_at(&self, _: &[u8], _: u64) -> std::io::Result<()> {
        // The sender is dropped without a message to release it.
        let _ = locked(&self.0).recv();
        if self.1 { Err(std::io::Error::other("hung")) } else { Ok(()) }
    }

    fn set_len(&self, _: u64) -> std::io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_a_disk_that_hangs_is_to_keep_is_refused_within_a_second_until_it_answers() {
    let directory = tempfile::tempdir().unwrap();
    let shared = Arc::new(shared(Some(opened(directory.path()).0)));
    let redo = Arc::clone(shared.redo.as_ref().unwrap());
    let (lets_go, held) = std::sync::mpsc::sync_channel(1);
    redo.open.try_lock().unwrap().file = Box::new(Hanging(Mutex::new(held), false));
    let shard = ShardId(0);
    shared.journal().took(Move { shard, before: point(1, 5), after: point(2, 5) }, Epoch(2));
    let too_few = || StoreError::Poisoned("too few".into());
    let begun = Instant::now();
    // Further calls do not wait for the disk either, nor do they need more threads.
    keep(&shared, too_few()).await.unwrap_err();
    assert_eq!(redo.refuses().as_deref(), Some(HANGS));
    keep(&shared, too_few()).await.unwrap_err();
    put_aside(&shared, shard, point(2, 5)).await.unwrap_err();
    super::empty(&shared, 0).await;
    assert!(begun.elapsed() < 8 * DISK_WITHIN, "{:?}", begun.elapsed());
    drop(lets_go);
    while redo.refuses().is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The write that was begun is completed.
    while redo.bytes() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let bytes = redo.bytes();
    keep(&shared, too_few()).await.unwrap();
    assert_eq!((redo.bytes(), redo.refuses()), (bytes, None), "and not once more");
}

/// The trial runs beside everything else; a caller that gave up on it meanwhile must not have the last word.
#[tokio::test]
async fn a_disk_that_hangs_when_it_is_tried_again_and_refuses_then_refuses_still() {
    let directory = tempfile::tempdir().unwrap();
    let shared = Arc::new(shared(Some(opened(directory.path()).0)));
    let redo = Arc::clone(shared.redo.as_ref().unwrap());
    let refuses = Refusing::below(&redo);
    locked(&refuses).push("written");
    append(&redo, &deeds()).unwrap_err();
    let (lets_go, held) = std::sync::mpsc::sync_channel(1);
    redo.open.try_lock().unwrap().file = Box::new(Hanging(Mutex::new(held), true));
    try_again(&shared);
    // A second trial does not wait for the first.
    try_again(&shared);
    keep(&shared, StoreError::Poisoned("too few".into())).await.unwrap_err();
    assert_eq!(redo.refuses().as_deref(), Some(HANGS));
    drop(lets_go);
    drop(redo.open.lock().await);
    let why = redo.refuses().expect("it refused in the end");
    assert!(why.ends_with("cannot be written (hung)"), "{why}");
}

#[tokio::test]
async fn a_disk_that_answers_just_as_somebody_gives_up_on_it_is_not_taken_to_hang() {
    let directory = tempfile::tempdir().unwrap();
    let shared = Arc::new(shared(Some(opened(directory.path()).0)));
    let redo = Arc::clone(shared.redo.as_ref().unwrap());
    let busy = Arc::clone(&redo.open).lock_owned().await;
    keep(&shared, StoreError::Poisoned("too few".into())).await.unwrap_err();
    assert_eq!(redo.refuses().as_deref(), Some(HANGS), "somebody has the file still");
    // The task that had the file does not know that another one waited in vain.
    drop(busy);
    assert_eq!(redo.refuses(), None);
    // In the other order, the waiting task comes last.
    redo.refuse(HANGS);
    assert_eq!(redo.refuses(), None);
}

#[test]
fn what_was_kept_of_another_register_is_refused_by_name_and_given_up_only_where_somebody_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let (redo, _) = opened(directory.path());
    let others = |register, gives_up| check_others(directory.path(), register, gives_up);
    // The journal is empty.
    others(8, false).unwrap();
    let [granted] = &crate::store::late::tests::granted(&["10.0.0.1"])[..] else { panic!("it is one batch") };
    let batches = vec![(granted.clone(), (Digest(1), Digest(2)))];
    append(&redo, &[Redone::Commit { applied: true, batches }]).unwrap();
    let path = redo.path.clone();
    drop(redo);
    others(7, false).unwrap();
    let refused = others(8, false).unwrap_err();
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    assert!(
        matches!(&refused, StoreError::Foreign(text) if text.contains(&name) && text.contains("--accept-new-store")),
        "{refused}"
    );
    let lines = others::lines(&path).unwrap();
    let claims: Vec<_> = lines.iter().flat_map(|late| late.claims().into_values().flatten()).collect();
    assert_eq!(claims.len(), 1, "what is given up is named");
    others(8, true).unwrap();
    assert!(!path.exists() && directory.path().join(format!("PAST-{name}")).exists());
    others(8, false).unwrap();
}
