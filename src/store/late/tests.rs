//! Unit tests of late journals.

#![allow(clippy::disallowed_methods, reason = "files are damaged here")]

use super::format::TITLE;
use super::*;
use crate::core::state::{Event, EventKind, Key, Lease, Reservation, State, Step};
use crate::core::types::{Generation, NetworkId, Scope, ShardTime, SlotKey, WallTime};
use crate::store::codec::Format;
use crate::store::{Act, Batch, Epoch, Seq, Token, fence};

fn batches(count: u64) -> Vec<Vec<u8>> {
    let batch = |seq| Batch {
        shard: ShardId(3),
        epoch: Epoch(2),
        token: Token(7),
        seq: Seq(seq),
        time: ShardTime(seq),
        generation: Generation(1),
        acts: Vec::new(),
    };
    (1..=count).map(|seq| encoded(&batch(seq))).collect()
}

fn encoded(batch: &Batch) -> Vec<u8> {
    let mut bytes = Vec::new();
    fence::encode(batch, Format::FIRST, &mut bytes).unwrap();
    bytes
}

/// One batch that grants these addresses in network 7.
pub(in crate::store) fn granted(addresses: &[&str]) -> Vec<Vec<u8>> {
    held(addresses, None)
}

/// One batch that grants these addresses, or that renews what was held until then.
fn held(addresses: &[&str], renewed: Option<u64>) -> Vec<Vec<u8>> {
    let step = |(at, address): (usize, &&str)| {
        let address: Address = address.parse().unwrap();
        let owner = format!("owner-{at}");
        let holder = SlotKey { scope: Scope::default(), owner: owner.parse().unwrap(), slot: "0".parse().unwrap() };
        let width = address.family().width();
        let held = Reservation::plain(holder, Generation(77), width, WallTime(1_772_356_360_000));
        let lease = |ends| Lease { ends: ShardTime(ends), ttl_seconds: std::num::NonZeroU64::MIN };
        let before = renewed.map(|ends| Arc::new(Reservation { lease: Some(lease(ends)), ..held.clone() }));
        let state = Some(State::Entry(Entry::Held(Arc::new(held))));
        let kind = if before.is_some() { EventKind::Renewed } else { EventKind::Granted };
        let expect = before.as_ref().map(|before| before.generation.0);
        Step { key: Key::Address(address), expect, state, event: Some(Event { kind, before }) }
    };
    let steps = addresses.iter().enumerate().map(step).collect();
    let (network, wall, by) = (NetworkId(7), WallTime(0), "anonymous".into());
    let act = Act { network, wall, by, reason: None, transaction: None, steps };
    vec![encoded(&first_batch(vec![act]))]
}

pub(super) fn first_batch(acts: Vec<Act>) -> Batch {
    Batch {
        shard: ShardId(3),
        epoch: Epoch(2),
        token: Token(7),
        seq: Seq(1),
        time: ShardTime(1),
        generation: Generation(1),
        acts,
    }
}

#[test]
fn what_is_late_is_there_after_a_restart_until_it_is_dealt_with() {
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("new");
    let lates = Lates::open(Some(&inside), 5, false).unwrap();
    let first = lates.add(ShardId(3), Digest(1), &batches(2)).unwrap();
    assert_eq!(lates.add(ShardId(3), Digest(1), &batches(2)).unwrap(), first);
    lates.add(ShardId(3), Digest(2), &batches(1)).unwrap();
    let again = Lates::open(Some(&inside), 5, false).unwrap();
    assert_eq!(again.all().len(), 2);
    let found = again.all().into_iter().find(|late| late.digest == Digest(1)).unwrap();
    assert_eq!((&found, found.batches.len()), (&first, 2));
    assert!(matches!(Lates::open(Some(&inside), 6, false), Err(StoreError::Foreign(_))), "of another register");
    again.remove(&found).unwrap();
    assert_eq!(again.all().len(), 1);
    assert_eq!(Lates::open(Some(&inside), 5, false).unwrap().all().len(), 1);
    // Without a directory, a journal lasts as long as the process.
    let nowhere = Lates::open(None, 5, false).unwrap();
    let late = nowhere.add(ShardId(3), Digest(1), &batches(2)).unwrap();
    nowhere.remove(&late).unwrap();
    assert!(nowhere.all().is_empty());
}

/// A copy of a directory made file by file has the times of the copying.
#[test]
fn they_are_in_the_order_in_which_they_were_noted_whatever_times_their_files_have() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Lates::open(Some(directory.path()), 5, false).unwrap();
    let order = |lates: &Lates| lates.all().iter().map(|late| late.digest.0).collect::<Vec<_>>();
    let lates = open();
    for digest in [2, 1, 3] {
        lates.add(ShardId(3), Digest(digest), &batches(1)).unwrap();
    }
    let at = |seconds| std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    for (digest, seconds) in [(2, 30), (1, 20), (3, 10)] {
        let path = lates.path(ShardId(3), Digest(digest)).unwrap();
        File::options().write(true).open(path).unwrap().set_modified(at(seconds)).unwrap();
    }
    let again = open();
    assert_eq!((order(&lates), order(&again)), (vec![2, 1, 3], vec![2, 1, 3]));
    // What is noted after a restart comes last.
    again.remove(&again.all()[1]).unwrap();
    again.add(ShardId(3), Digest(1), &batches(1)).unwrap();
    File::options().write(true).open(again.path(ShardId(3), Digest(1)).unwrap()).unwrap().set_modified(at(5)).unwrap();
    assert_eq!(order(&open()), [2, 3, 1]);
    // One without a number was noted before there were any.
    let path = again.path(ShardId(3), Digest(1)).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap();
    std::fs::write(&path, [TITLE.as_bytes(), &bytes[end..]].concat()).unwrap();
    assert_eq!(order(&open()), [1, 2, 3]);
}

/// Its checksum is right: nothing was lost.
#[test]
fn a_batch_that_only_a_newer_version_reads_is_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let lates = Lates::open(Some(directory.path()), 5, false).unwrap();
    let late = lates.add(ShardId(3), Digest(1), &batches(1)).unwrap();
    let path = lates.path(late.shard, late.digest).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let batch = bytes.len() - batches(1)[0].len();
    bytes[batch] = Format::NEWEST.number() + 1;
    let sum = crc32fast::hash(&bytes[batch..]);
    bytes[batch - 4..batch].copy_from_slice(&sum.to_be_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let refused = Lates::open(Some(directory.path()), 5, false).unwrap_err();
    let said = refused.to_string();
    assert!(!matches!(refused, StoreError::Damaged(_)) && said.contains("newer version of allod: start"), "{said}");
    assert!(said.contains(&path.display().to_string()) && !said.contains("from a copy"), "{said}");
}

#[test]
fn a_directory_that_cannot_be_listed_is_not_taken_for_one_without_late_journals() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("data");
    assert!(Lates::open(Some(&place), 5, false).unwrap().all().is_empty(), "it is not made yet");
    std::fs::write(&place, b"").unwrap();
    assert!(matches!(Lates::open(Some(&place), 5, false), Err(StoreError::Io { .. })));
}

fn addresses(late: &Late) -> Vec<String> {
    late.claims().into_values().flatten().map(|(address, _)| address.to_string()).collect()
}

#[test]
fn what_was_answered_is_asked_by_nobody_any_more_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Lates::open(Some(directory.path()), 5, false).unwrap();
    let lates = open();
    let late = lates.add(ShardId(3), Digest(1), &granted(&["10.0.0.1", "10.0.0.2", "2001:db8::1"])).unwrap();
    assert_eq!(addresses(&late), ["10.0.0.1", "10.0.0.2", "2001:db8::1"]);
    // In another network the same address is another claim.
    let claims = late.claims().remove(&NetworkId(7)).unwrap();
    late.answered(NetworkId(8), &claims[..1]);
    late.answered(NetworkId(7), &[claims[0].clone(), claims[2].clone()]);
    assert_eq!(addresses(&late), ["10.0.0.2"]);
    assert_eq!(addresses(&open().all()[0]).len(), 3, "nobody kept it");
    lates.keep_answered(&late).unwrap();
    let again = open();
    let [late] = &again.all()[..] else { panic!("one") };
    assert_eq!(addresses(late), ["10.0.0.2"]);
    late.answered(NetworkId(7), &claims[1..2]);
    again.keep_answered(late).unwrap();
    assert!(addresses(&open().all()[0]).is_empty());
    again.remove(late).unwrap();
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].to_string_lossy().starts_with(PAST));
}

#[test]
fn what_two_note_at_once_is_all_noted() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Lates::open(Some(directory.path()), 5, false).unwrap();
    let lates = open();
    let addresses: Vec<String> = (0..40).map(|at| format!("10.0.0.{at}")).collect();
    let granted = granted(&addresses.iter().map(String::as_str).collect::<Vec<_>>());
    let late = lates.add(ShardId(3), Digest(1), &granted).unwrap();
    let claims = late.claims().remove(&NetworkId(7)).unwrap();
    let (one, other) = claims.split_at(20);
    std::thread::scope(|scope| {
        for some in [one, other] {
            let (lates, late) = (&lates, &late);
            scope.spawn(move || {
                for claim in some.chunks(1) {
                    late.answered(NetworkId(7), claim);
                    lates.keep_answered(late).unwrap();
                }
            });
        }
    });
    assert!(open().all()[0].claims().is_empty());
}

#[test]
fn what_was_answered_is_refused_with_one_changed_byte_cut_anywhere_or_of_another_journal() {
    let directory = tempfile::tempdir().unwrap();
    let lates = Lates::open(Some(directory.path()), 5, false).unwrap();
    let late = lates.add(ShardId(3), Digest(1), &granted(&["10.0.0.1"])).unwrap();
    let other = lates.add(ShardId(3), Digest(2), &granted(&["10.0.0.1"])).unwrap();
    for late in [&late, &other] {
        late.answered(NetworkId(7), &late.claims()[&NetworkId(7)]);
        lates.keep_answered(late).unwrap();
    }
    let file = |late: &Late| beside(&lates.path(late.shard, late.digest).unwrap(), ANSWERED);
    let path = file(&late);
    let whole = std::fs::read(&path).unwrap();
    let changed = |at: usize| [&whole[..at], &[whole[at] ^ 1], &whole[at + 1..]].concat();
    let damaged = (0..whole.len()).map(changed).chain((0..whole.len()).map(|length| whole[..length].to_vec()));
    for damaged in damaged.chain([std::fs::read(file(&other)).unwrap()]) {
        std::fs::write(&path, &damaged).unwrap();
        let opened = Lates::open(Some(directory.path()), 5, false);
        assert!(matches!(opened, Err(StoreError::Damaged(_))), "{}", String::from_utf8_lossy(&damaged));
    }
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(Lates::open(Some(directory.path()), 5, false).unwrap().all().len(), 2);
}

/// The answer that the renewal stands came from a line that had the grant; by then the grant is cut off as well.
#[test]
fn what_was_answered_of_a_renewal_is_no_answer_of_the_grant_where_redis_went_back_further() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Lates::open(Some(directory.path()), 5, false).unwrap();
    let lates = open();
    let (grant, renewal) = (granted(&["10.0.0.1"]), held(&["10.0.0.1"], Some(5)));
    let shorter = lates.add(ShardId(3), Digest(1), &renewal).unwrap();
    shorter.answered(NetworkId(7), &shorter.claims()[&NetworkId(7)]);
    lates.keep_answered(&shorter).unwrap();
    assert!(addresses(&shorter).is_empty());
    lates.add(ShardId(3), Digest(1), &[grant.clone(), renewal].concat()).unwrap();
    // The same if a caller still has the shorter journal.
    lates.keep_answered(&shorter).unwrap();
    for lates in [&lates, &open()] {
        assert_eq!(addresses(&lates.all()[0]), ["10.0.0.1"]);
    }
}

#[test]
fn one_that_begins_earlier_is_in_place_of_what_was_noted_and_what_was_answered_of_that_stays_answered() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Lates::open(Some(directory.path()), 5, false).unwrap();
    let lates = open();
    let (first, second) = (granted(&["10.0.0.9"]), granted(&["10.0.0.1", "10.0.0.2"]));
    let shorter = lates.add(ShardId(3), Digest(1), &second).unwrap();
    let name = |late: &Late, at: usize| (NetworkId(7), late.claims()[&NetworkId(7)][at].clone());
    let (network, claim) = name(&shorter, 0);
    shorter.answered(network, &[claim]);
    lates.keep_answered(&shorter).unwrap();
    // Redis went back further before anybody dealt with it.
    let both = [first, second.clone()].concat();
    let longer = lates.add(ShardId(3), Digest(1), &both).unwrap();
    assert_eq!(addresses(&longer), ["10.0.0.2", "10.0.0.9"]);
    for lates in [&lates, &open()] {
        assert_eq!(lates.all().iter().map(|late| addresses(late)).collect::<Vec<_>>(), [["10.0.0.2", "10.0.0.9"]]);
    }
    assert_eq!(lates.add(ShardId(3), Digest(1), &second).unwrap(), longer, "it has that, too");
    // A caller that still has the shorter journal deals with a part of the longer one.
    let (network, claim) = name(&shorter, 0);
    shorter.answered(network, &[claim]);
    lates.remove(&shorter).unwrap();
    for lates in [&lates, &open()] {
        assert_eq!(lates.all().iter().map(|late| addresses(late)).collect::<Vec<_>>(), [["10.0.0.9"]]);
    }
    lates.remove(&longer).unwrap();
    assert!(open().all().is_empty());
}

#[test]
fn what_a_release_before_noted_without_generations_is_asked_by_nobody_either() {
    let directory = tempfile::tempdir().unwrap();
    let lates = Lates::open(Some(directory.path()), 5, false).unwrap();
    let late = lates.add(ShardId(3), Digest(1), &granted(&["10.0.0.1", "10.0.0.2"])).unwrap();
    late.answered(NetworkId(7), &late.claims()[&NetworkId(7)][..1]);
    lates.keep_answered(&late).unwrap();
    let path = beside(&lates.path(late.shard, late.digest).unwrap(), ANSWERED);
    let written = std::fs::read_to_string(&path).unwrap();
    let (lines, _) = written.trim_end().rsplit_once('\n').unwrap();
    let before = format!("{}\n", lines.strip_suffix(" 77").unwrap());
    std::fs::write(&path, format!("{before}{:08x}\n", crc32fast::hash(before.as_bytes()))).unwrap();
    let again = Lates::open(Some(directory.path()), 5, false).unwrap();
    assert_eq!(addresses(&again.all()[0]), ["10.0.0.2"]);
}

#[test]
fn a_file_with_one_changed_byte_or_cut_anywhere_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let lates = Lates::open(Some(directory.path()), 5, false).unwrap();
    lates.add(ShardId(3), Digest(1), &batches(2)).unwrap();
    let path = lates.path(ShardId(3), Digest(1)).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let header = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1 + 16 + 2 + 16;
    for at in (0..TITLE.len()).chain(header..whole.len()) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        std::fs::write(&path, &changed).unwrap();
        assert!(matches!(Lates::open(Some(directory.path()), 5, false), Err(StoreError::Damaged(_))), "byte {at}");
    }
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(matches!(Lates::open(Some(directory.path()), 5, false), Err(StoreError::Damaged(_))), "{length} bytes");
    }
}
