//! The index of the history: a search by it finds what the whole history has.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::core::state::{Entry, Key, State};
use crate::store::codec::{Format, encode_batch, samples};
use crate::store::history::RecordedBatch;
use crate::store::{Batch, Digest, Seq};

const REGISTER: u128 = 7;
/// The pen while nobody has taken one.
const PEN: Pen = Pen(0);

fn recorded(batch: &Batch) -> RecordedBatch {
    let mut bytes = Vec::new();
    encode_batch(batch, Format::NEWEST, &mut bytes).unwrap();
    RecordedBatch { shard: batch.shard, seq: batch.seq, digest: None, bytes: bytes.into() }
}

fn draft(batches: &[Batch]) -> ChapterDraft {
    let mut draft = ChapterDraft::default();
    for batch in batches {
        draft.add(&recorded(batch), Digest(batch.seq.0.into())).unwrap();
    }
    draft
}

/// One batch with every field, repeated with these numbers in shard 1.
fn some(seqs: std::ops::Range<u64>) -> Vec<Batch> {
    seqs.map(|seq| Batch { shard: ShardId(1), seq: Seq(seq), ..samples::full_batch() }).collect()
}

fn open(directory: &Path) -> Chapters {
    Chapters::open(Some(directory), REGISTER)
}

fn lasts(chapters: &Chapters) -> Vec<u64> {
    chapters.all().iter().map(|chapter| chapter.range(ShardId(1)).unwrap().last.0).collect()
}

/// Checks that the index leads to every event of these batches, whatever criterion is given.
fn leads_to_all(chapters: &Chapters, batches: &[Batch]) {
    let all = chapters.all();
    let [chapter] = &all[..] else { panic!("{} chapters", all.len()) };
    has_all(chapters, chapter, batches);
}

fn has_all(chapters: &Chapters, chapter: &Chapter, batches: &[Batch]) {
    let found = |wanted: Sought<'_>| assert!(chapters.may_have(chapter, &wanted), "{wanted:?}");
    for act in batches.iter().flat_map(|batch| &batch.acts) {
        for step in &act.steps {
            let Some(event) = &step.event else { continue };
            let (networks, wall) = ([NetworkId(3), act.network], Some(act.wall));
            found(Sought { networks: Some(&networks), from: wall, to: wall, ..Sought::default() });
            let Key::Address(address) = step.key else { continue };
            let now = match &step.state {
                Some(State::Entry(Entry::Held(held))) => Some(held),
                _ => None,
            };
            for held in event.before.iter().chain(now) {
                let (owner, scope) = (Some(&held.holder.owner), Some(&held.holder.scope));
                found(Sought { address: Some(address), owner, scope, ..Sought::default() });
                // Any address of a block.
                let block = Cidr::containing(address, held.prefix_length);
                found(Sought { address: Some(block.last()), ..Sought::default() });
            }
        }
    }
}

proptest! {
    #[test]
    fn the_index_leads_to_every_event_also_when_it_is_read_again(batches in proptest::collection::vec(samples::batch(), 1..6)) {
        let directory = tempfile::tempdir().unwrap();
        let (kept, written) = (Chapters::open(None, REGISTER), open(directory.path()));
        kept.add(PEN, draft(&batches));
        written.add(PEN, draft(&batches));
        let (all, names) = (written.all(), written.names());
        leads_to_all(&kept, &batches);
        leads_to_all(&written, &batches);
        drop(written);
        let again = open(directory.path());
        prop_assert_eq!((again.all(), again.names()), (all, names));
        leads_to_all(&again, &batches);
    }
}

#[test]
fn what_is_not_in_a_chapter_is_mostly_known_not_to_be() {
    let chapters = Chapters::open(None, REGISTER);
    chapters.add(PEN, draft(&some(1..3)));
    let chapter = &chapters.all()[0];
    let owners: Vec<Owner> = (0..1_000).map(|n| Owner::new(format!("stranger-{n}").into()).unwrap()).collect();
    let wrong = owners.iter().filter(|owner| {
        let wanted = Sought { owner: Some(owner), ..Sought::default() };
        chapters.may_have(chapter, &wanted)
    });
    assert!(wrong.count() < 50);
    let before = WallTime(chapter.wall.0.0 - 1);
    assert!(!chapters.may_have(chapter, &Sought { to: Some(before), ..Sought::default() }));
    let after = WallTime(chapter.wall.1.0 + 1);
    assert!(!chapters.may_have(chapter, &Sought { from: Some(after), ..Sought::default() }));
}

#[test]
fn a_file_that_was_broken_off_is_good_up_to_there_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let chapters = open(directory.path());
    let path = directory.path().join(FILE);
    let ends: Vec<u64> = (0..3)
        .map(|n| {
            chapters.add(PEN, draft(&some(n * 10 + 1..n * 10 + 11)));
            path.metadata().unwrap().len()
        })
        .collect();
    assert_eq!(lasts(&chapters), [10, 20, 30]);
    drop(chapters);
    for cut in [ends[2] - 1, ends[1] + 1] {
        OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap();
        let chapters = open(directory.path());
        assert_eq!(lasts(&chapters), [10, 20]);
        assert_eq!(chapters.end(ShardId(1)).unwrap().last, Seq(20));
        chapters.add(PEN, draft(&some(21..31)));
        drop(chapters);
        assert_eq!(lasts(&open(directory.path())), [10, 20, 30]);
    }
    // Flips a bit in the second chapter.
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = (ends[0] + ends[1]) as usize / 2;
    bytes[middle] ^= 1;
    OpenOptions::new().write(true).truncate(true).open(&path).unwrap().write_all(&bytes).unwrap();
    assert_eq!(lasts(&open(directory.path())), [10]);
}

#[test]
fn the_index_of_another_register_is_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    open(directory.path()).add(PEN, draft(&some(1..3)));
    let other = Chapters::open(Some(directory.path()), REGISTER + 1);
    assert!(other.all().is_empty() && other.names().is_empty());
    other.add(PEN, draft(&some(1..2)));
    drop(other);
    assert!(open(directory.path()).all().is_empty());
}

#[test]
fn what_was_cut_off_and_what_is_too_old_does_not_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let chapters = open(directory.path());
    let batches: Vec<Vec<Batch>> = (0..6).map(|n| some(n * 10 + 1..n * 10 + 11)).collect();
    batches.iter().for_each(|batches| chapters.add(PEN, draft(batches)));
    chapters.truncate(5, |_| ShardId(1));
    assert_eq!(lasts(&chapters), [10, 20, 30, 40, 50]);
    drop(chapters);
    let chapters = open(directory.path());
    assert_eq!(lasts(&chapters), [10, 20, 30, 40, 50]);
    let length = || directory.path().join(FILE).metadata().unwrap().len();
    let before = length();
    chapters.forget(4);
    assert_eq!(lasts(&chapters), [50]);
    assert!(length() < before, "most of the file was waste");
    drop(chapters);
    let chapters = open(directory.path());
    assert_eq!(lasts(&chapters), [50]);
    leads_to_all(&chapters, &batches[4]);
}

/// A reader that goes through the history still has the chapters from before.
#[test]
fn a_chapter_that_somebody_has_leads_to_what_is_in_it_also_when_the_file_is_written_anew_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let chapters = open(directory.path());
    let batches: Vec<Vec<Batch>> = (0..6).map(|n| some(n * 10 + 1..n * 10 + 11)).collect();
    batches.iter().for_each(|batches| chapters.add(PEN, draft(batches)));
    let before = chapters.all();
    let length = || directory.path().join(FILE).metadata().unwrap().len();
    let of_all = length();
    chapters.forget(4);
    assert!(length() < of_all, "it is another file");
    // The file has other bytes now where those chapters were.
    (6..14).for_each(|n| chapters.add(PEN, draft(&some(n * 10 + 1..n * 10 + 11))));
    assert!(length() > of_all);
    before.iter().zip(&batches).for_each(|(chapter, batches)| has_all(&chapters, chapter, batches));
}

#[test]
fn where_a_byte_of_a_filter_is_another_one_than_was_written_the_chapter_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let chapters = open(directory.path());
    let batches = some(1..11);
    chapters.add(PEN, draft(&batches));
    let path = directory.path().join(FILE);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let check = |chapters: &Chapters| {
        for at in 32..whole.len() {
            file.write_all_at(&[0], at as u64).unwrap();
            leads_to_all(chapters, &batches);
            file.write_all_at(&whole[at..=at], at as u64).unwrap();
        }
    };
    check(&chapters);
    // Also in the file, and for chapters that existed before.
    drop(chapters);
    check(&open(directory.path()));
}

/// A reader of the history keeps its place by the chapters: none may be missing before others.
#[test]
fn an_index_that_cannot_be_written_anew_keeps_its_chapters_and_takes_more() {
    let directory = tempfile::tempdir().unwrap();
    let chapters = open(directory.path());
    (0..6).for_each(|n| chapters.add(PEN, draft(&some(n * 10 + 1..n * 10 + 11))));
    let in_the_way = directory.path().join(FILE).with_extension("tmp");
    std::fs::create_dir(&in_the_way).unwrap();
    chapters.truncate(5, |_| ShardId(1));
    assert_eq!(lasts(&chapters), [10, 20, 30, 40, 50]);
    std::fs::remove_dir(in_the_way).unwrap();
    // The file still has what was cut off, so nothing may be added after it there.
    chapters.add(PEN, draft(&renamed(some(51..61), 51, "other")));
    let names = chapters.names();
    assert_eq!(lasts(&chapters), [10, 20, 30, 40, 50, 60]);
    // It is still known what each of them has.
    let stranger: Owner = Owner::new("stranger".into()).unwrap();
    let wanted = Sought { owner: Some(&stranger), ..Sought::default() };
    assert!(chapters.all().iter().all(|chapter| !chapters.may_have(chapter, &wanted)));
    chapters.forget(4);
    assert_eq!((lasts(&chapters), chapters.names()), (vec![50, 60], names));
    drop(chapters);
    assert_eq!(lasts(&open(directory.path())), [10, 20, 30, 40, 50, 60]);
}

#[test]
fn a_tenure_that_is_over_adds_nothing_behind_the_one_that_follows() {
    let chapters = Chapters::open(None, REGISTER);
    let before = chapters.take_pen();
    chapters.add(before, draft(&some(1..11)));
    let now = chapters.take_pen();
    chapters.add(before, draft(&some(11..21)));
    chapters.add(now, draft(&some(11..16)));
    assert_eq!(lasts(&chapters), [10, 15]);
}

/// The same batches, with another name for the network from one batch on.
fn renamed(batches: Vec<Batch>, from: u64, name: &str) -> Vec<Batch> {
    let rename = |step: &mut crate::core::state::Step| {
        if let Some(State::Config(config)) = &mut step.state {
            Arc::make_mut(config).name = name.parse().unwrap();
        }
    };
    let of_batch = |mut batch: Batch| {
        if batch.seq.0 >= from {
            batch.acts.iter_mut().flat_map(|act| &mut act.steps).for_each(rename);
        }
        batch
    };
    batches.into_iter().map(of_batch).collect()
}

#[test]
fn a_name_of_a_line_that_was_cut_off_is_cut_off_with_it_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let chapters = open(directory.path());
    chapters.add(PEN, draft(&some(1..11)));
    let names = chapters.names();
    chapters.add(PEN, draft(&renamed(some(11..21), 15, "new")));
    let with_new = chapters.names();
    assert_eq!((with_new.len(), with_new[names.len()].since.0), (names.len() + 1, 15), "{with_new:?}");
    // The name of a network stays if its shard has nothing in what is cut off.
    let other = tempfile::tempdir().unwrap();
    std::fs::copy(directory.path().join(FILE), other.path().join(FILE)).unwrap();
    let elsewhere = open(other.path());
    elsewhere.truncate(1, |_| ShardId(0));
    assert_eq!(elsewhere.names(), with_new);
    chapters.truncate(1, |_| ShardId(1));
    assert_eq!((chapters.names(), lasts(&chapters)), (names.clone(), vec![10]));
    drop(chapters);
    let chapters = open(directory.path());
    assert_eq!(chapters.names(), names);
    // The line that goes on tells its own name.
    chapters.add(PEN, draft(&renamed(some(11..21), 13, "newer")));
    assert_eq!(chapters.names()[names.len()].since.0, 13);
}

#[test]
fn what_a_network_was_called_is_forgotten_with_it_and_leaves_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let chapters = open(directory.path());
    chapters.add(PEN, draft(&some(1..11)));
    let (known, stranger) = (chapters.names()[0].network, NetworkId(77));
    assert_eq!(chapters.lacking(vec![known, stranger]), [stranger]);
    chapters.forget(1);
    assert_eq!(chapters.lacking(vec![known, stranger]), [known, stranger]);
    chapters.forget_names(&[stranger].into());
    assert!(!chapters.names().is_empty());
    chapters.forget_names(&[known].into());
    assert!(chapters.names().is_empty());
    drop(chapters);
    assert!(open(directory.path()).names().is_empty());
}

#[test]
fn what_a_network_is_called_without_a_batch_that_says_so_is_in_the_file_in_place_of_what_it_was_called_before() {
    let directory = tempfile::tempdir().unwrap();
    let chapters = open(directory.path());
    chapters.add(PEN, draft(&some(1..11)));
    chapters.add(PEN, draft(&renamed(some(11..21), 15, "later")));
    let before = chapters.names();
    let later = before.last().unwrap().clone();
    let begun = NameNote { since: (12, 7), name: "now".parse().unwrap(), ..later.clone() };
    chapters.begin_names(vec![begun.clone()]);
    let of_it = |chapters: &Chapters| {
        let mut names = chapters.names();
        names.retain(|note| note.network == later.network);
        names
    };
    assert_eq!(of_it(&chapters), [begun.clone(), later.clone()]);
    let others = before.iter().filter(|note| note.network != later.network);
    assert!(others.clone().all(|note| chapters.names().contains(note)), "{before:?}");
    // Its last name is known, so it is not noted once more.
    chapters.add(PEN, draft(&renamed(some(21..31), 21, "later")));
    drop(chapters);
    assert_eq!(of_it(&open(directory.path())), [begun, later]);
}

/// Each change of a configuration tells the name again, and the notes must not grow with that.
#[test]
fn a_name_is_noted_once_for_as_long_as_it_lasts() {
    let directory = tempfile::tempdir().unwrap();
    let chapters = open(directory.path());
    let length = || directory.path().join(FILE).metadata().unwrap().len();
    let mut grown = Vec::new();
    for n in 0..3 {
        let before = length();
        chapters.add(PEN, draft(&some(n * 10 + 1..n * 10 + 11)));
        grown.push(length() - before);
    }
    let names = chapters.names();
    assert_eq!(names.len(), draft(&some(1..2)).names().len(), "{names:?}");
    assert!(grown[1] < grown[0] && grown[1] == grown[2], "{grown:?}");
    drop(chapters);
    assert_eq!(open(directory.path()).names(), names);
}
