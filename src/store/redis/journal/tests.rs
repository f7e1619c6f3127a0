//! Unit tests of the journal.

use super::*;
use crate::store::redis::scripts::{LoadedScript, Shas};
use crate::store::redis::tests::shared;
use crate::store::{Batch, fence};

pub(super) fn point(token: u128, seq: u64) -> Point {
    Point { token: Token(token), seq: Seq(seq), digest: Digest(u128::from(seq) * 7) }
}

pub(super) fn step(shard: u16, token: u128, seq: u64) -> Move {
    Move { shard: ShardId(shard), before: point(token, seq - 1), after: point(token, seq) }
}

pub(super) fn call() -> Arc<ScriptCall> {
    Arc::new(ScriptCall::new(&Shas::default(), LoadedScript::Commit, &[]))
}

/// A line that token 2 took from token 1 at batch 5. Batches 6 to 8 were sent, of which Redis acknowledged 6 and 7.
fn begun() -> Journal {
    let mut journal = Journal::new(1 << 20);
    journal.took(Move { shard: ShardId(0), before: point(1, 5), after: point(2, 5) }, Epoch(2));
    for seq in 6..=8 {
        journal.sends(&call(), vec![step(0, 2, seq)]);
    }
    journal.applied(&[step(0, 2, 6)]);
    journal.applied(&[step(0, 2, 7)]);
    journal
}

/// How far each missing entry leads; none if the shard is on another line.
fn missing(journal: &Journal, head: Point) -> Option<Vec<u64>> {
    let ToReplay { missing, elsewhere, held_up } = journal.missing(&[(ShardId(0), head)], &journal.standing());
    assert!(held_up.is_empty() && (missing.is_empty() || elsewhere.is_empty()));
    elsewhere.is_empty().then(|| missing.iter().map(|missing| missing.moves[0].after.seq.0).collect())
}

#[test]
fn the_suffix_behind_the_head_is_missing_and_nothing_that_redis_did_not_acknowledge() {
    let journal = begun();
    assert_eq!(missing(&journal, point(2, 8)).unwrap(), [0u64; 0]);
    assert_eq!(missing(&journal, point(2, 7)).unwrap(), [0u64; 0]);
    assert_eq!(missing(&journal, point(2, 6)).unwrap(), [7]);
    assert_eq!(missing(&journal, point(2, 5)).unwrap(), [6, 7]);
    // The take-over itself was lost.
    assert_eq!(missing(&journal, point(1, 5)).unwrap(), [5, 6, 7]);
}

/// A batch that the previous owner left.
fn lone() -> LoneBatch {
    LoneBatch { bytes: vec![0; 9], epoch: Epoch(1), author: Author::Other }
}

#[test]
fn what_the_owner_before_left_is_not_played_in_some_shards_and_not_in_others() {
    let mut journal = left();
    journal.took(Move { shard: ShardId(1), before: point(1, 5), after: point(2, 5) }, Epoch(2));
    let missing = |other: Point| {
        let heads = [(ShardId(0), point(1, 3)), (ShardId(1), other)];
        let found = journal.missing(&heads, &journal.standing());
        found.missing.iter().map(|missing| missing.moves[0]).collect::<Vec<_>>()
    };
    let take = |shard| Move { shard: ShardId(shard), before: point(1, 5), after: point(2, 5) };
    assert_eq!(missing(point(1, 5)), [step(0, 1, 4), step(0, 1, 5), take(0), step(0, 2, 6), take(1)]);
    assert_eq!(missing(point(1, 4)), [], "it is for that owner to bring the other shard there, and with it this one");
}

/// A line like that of `begun`, with the batches that the previous owner left.
fn left() -> Journal {
    let mut journal = Journal::new(1 << 20);
    journal.left((4..=5).map(|seq| (step(0, 1, seq), lone())).collect());
    journal.took(Move { shard: ShardId(0), before: point(1, 5), after: point(2, 5) }, Epoch(2));
    journal.sends(&call(), vec![step(0, 2, 6)]);
    journal.applied(&[step(0, 2, 6)]);
    journal
}

#[test]
fn what_the_owner_before_left_is_missing_where_redis_went_back_before_it() {
    let journal = left();
    assert_eq!(missing(&journal, point(1, 4)).unwrap(), [5, 5, 6]);
    assert_eq!(missing(&journal, point(1, 3)).unwrap(), [4, 5, 5, 6]);
    // The previous owner went on differently, or the head is further back than the journal remembers.
    let other = Point { digest: Digest(1), ..point(1, 4) };
    assert_eq!((missing(&journal, other), missing(&journal, point(1, 2))), (None, None));
    // The owner of that time may still bring the shard to the point where the journal begins.
    assert_eq!(journal.begins(ShardId(0), point(2, 6)), Some((point(1, 3), Epoch(1))));
}

/// The memory of the previous process ends at batch 3; batch 4 was under way when that process ended.
#[test]
fn what_a_process_before_had_under_way_leads_on_from_its_memory_and_is_kept_like_that() {
    let begun = |shard| {
        let mut journal = Journal::new(1 << 20);
        journal.restore(Deed::Commit(call()), vec![step(0, 1, 3), step(1, 1, 3)], true);
        for shard in shard {
            let found = LoneBatch { author: Author::Before, ..lone() };
            let known = LoneBatch { author: Author::Before, ..lone() };
            journal.left(vec![(step(shard, 1, 3), known), (step(shard, 1, 4), found)]);
            let (before, after) = (point(1, 4), point(2, 4));
            journal.took(Move { shard: ShardId(shard), before, after }, Epoch(2));
        }
        journal
    };
    let journal = begun(0..2);
    assert!(journal.knows(ShardId(0), point(1, 4)) && journal.is_own(ShardId(0), Token(1)));
    let authors = [1, 2, 9].map(|token| journal.author_of(ShardId(0), Token(token)));
    assert_eq!(authors, [Some(Author::Before), None, Some(Author::Other)]);
    assert_eq!(missing(&journal, point(1, 2)).unwrap(), [3, 4, 4]);
    let remembered: Vec<u64> = journal.remembered().iter().map(|one| one.moves[0].after.seq.0).collect();
    assert_eq!(remembered, [4; 4], "for the next process, which has the rest");
    assert_eq!(journal.unkept().unwrap().len(), 4, "also before this one ends");
    // One call changed both shards: if one of them went on differently, no part of the call is replayed.
    let other = Point { digest: Digest(1), ..point(1, 4) };
    let heads = [(ShardId(0), point(1, 3)), (ShardId(1), other)];
    let found = journal.missing(&heads, &journal.standing());
    assert!(found.missing.is_empty() && found.elsewhere == [ShardId(1)], "{found:?}");
}

#[test]
fn what_the_owner_before_left_is_no_own_deed_and_is_proved_and_kept_by_nobody_here() {
    let mut journal = left();
    let shard = ShardId(0);
    assert!(!journal.is_own(shard, Token(1)) && !journal.knows(shard, point(1, 5)));
    let way = journal.way_to(shard, point(2, 6));
    assert!(matches!(way[0].deed, Deed::Take(_)) && way.len() == 2);
    let numbers = |journal: &Journal| journal.unkept().unwrap().iter().map(|one| one.number).collect::<Vec<_>>();
    assert_eq!(numbers(&journal), [1, 2]);
    let ToReplay { missing, .. } = journal.missing(&[(shard, point(1, 3))], &journal.standing());
    journal.played(&missing, true);
    assert_eq!(numbers(&journal), [3, 4], "the take-over and the change");
}

#[test]
fn a_head_of_another_line_and_one_that_is_not_remembered_are_told() {
    let journal = begun();
    // A head of another owner; of the previous owner, who went on after the take-over was lost; one that is too far back;
    // and one with another digest.
    let other = Point { digest: Digest(1), ..point(2, 6) };
    for elsewhere in [point(9, 6), point(1, 6), point(2, 4), other] {
        assert_eq!(missing(&journal, elsewhere), None, "{elsewhere:?}");
    }
}

/// A failover that is taken back: the old primary has a batch that nobody was told of, and the take-over happened on the
/// other one.
#[test]
fn a_fork_of_the_own_line_is_told_and_what_does_not_lead_to_where_it_goes_on_is_forgotten() {
    let mut journal = begun();
    journal.applied(&[step(0, 2, 8)]);
    journal.sends(&call(), vec![step(0, 2, 9)]);
    journal.took(Move { shard: ShardId(0), before: point(2, 8), after: point(3, 8) }, Epoch(3));
    journal.sends(&call(), vec![step(0, 3, 9), step(1, 4, 1)]);
    journal.applied(&[step(0, 3, 9), step(1, 4, 1)]);
    let fork = point(2, 9);
    assert_eq!(missing(&journal, fork), None);
    // A batch that was never acknowledged is not on the way from before it.
    assert_eq!(missing(&journal, point(2, 8)).unwrap(), [8, 9]);
    assert!(journal.leads(ShardId(0), point(2, 8), fork));
    assert!(!journal.leads(ShardId(0), point(3, 8), fork));
    assert!(journal.is_own(ShardId(0), Token(3)) && !journal.is_own(ShardId(0), Token(9)));
    journal.cut(&[(ShardId(0), fork)]);
    assert_eq!(journal.standing(), [(ShardId(0), fork)]);
    assert_eq!(missing(&journal, fork).unwrap(), [0u64; 0]);
    assert_eq!(missing(&journal, point(2, 7)).unwrap(), [8, 9]);
    assert_eq!(journal.bytes, journal.entries.iter().map(|entry| entry.bytes).sum::<usize>());
}

/// A line on which another owner, token 3, came between two tenures of this process.
#[test]
fn a_head_on_an_earlier_stretch_goes_on_to_where_the_other_owner_took_it_over_and_no_further() {
    let mut journal = begun();
    journal.took(Move { shard: ShardId(0), before: point(3, 12), after: point(4, 12) }, Epoch(4));
    journal.sends(&call(), vec![step(0, 4, 13)]);
    journal.applied(&[step(0, 4, 13)]);
    assert_eq!(missing(&journal, point(2, 6)), None);
    let onward = |from| journal.onward(ShardId(0), from);
    // Redis never acknowledged batch 8.
    assert_eq!([onward(point(1, 5)), onward(point(2, 6)), onward(point(2, 7))], [point(2, 7); 3]);
    assert_eq!([onward(point(3, 10)), onward(point(3, 12))], [point(3, 10), point(4, 13)]);
    let begins = |to| journal.begins(ShardId(0), to);
    assert_eq!(begins(point(4, 13)), Some((point(3, 12), Epoch(3))));
    assert_eq!(begins(point(2, 7)), Some((point(1, 5), Epoch(1))));
    let mut forgotten = Journal::new(1_000);
    for seq in 6..=20 {
        forgotten.sends(&call(), vec![step(0, 2, seq)]);
    }
    assert_eq!(forgotten.begins(ShardId(0), point(2, 20)), None);
}

#[test]
fn a_number_that_is_used_again_replaces_what_was_not_applied() {
    let mut journal = begun();
    let other = Move { after: Point { digest: Digest(1), ..point(2, 8) }, ..step(0, 2, 8) };
    journal.sends(&call(), vec![other]);
    journal.applied(&[other]);
    assert_eq!(missing(&journal, point(2, 7)).unwrap(), [8]);
    // Sending the same batch again adds no entry.
    let entries = journal.entries.len();
    journal.sends(&call(), vec![other]);
    assert_eq!(journal.entries.len(), entries);
}

#[test]
fn what_moves_several_shards_is_played_once() {
    let mut journal = Journal::new(1 << 20);
    for seq in 1..=3 {
        let moves = vec![step(0, 2, seq), step(1, 3, seq)];
        journal.sends(&call(), moves.clone());
        journal.applied(&moves);
    }
    let heads = [(ShardId(0), point(2, 1)), (ShardId(1), point(3, 1))];
    assert_eq!(journal.missing(&heads, &journal.standing()).missing.len(), 2);
    // One of the shards belongs to another owner: a call that was sent for both is replayed in neither, and what follows it
    // waits.
    let heads = [(ShardId(0), point(2, 1)), (ShardId(1), point(9, 1))];
    let found = journal.missing(&heads, &journal.standing());
    assert!(found.missing.is_empty());
    assert_eq!((found.elsewhere, found.held_up.contains(&ShardId(0))), (vec![ShardId(1)], true));
}

#[test]
fn it_is_bounded_and_what_is_older_cannot_be_healed() {
    let mut journal = Journal::new(2_000);
    for seq in 1..=1_000 {
        journal.sends(&call(), vec![step(0, 2, seq)]);
        journal.applied(&[step(0, 2, seq)]);
    }
    assert!(journal.bytes <= 2_000 && journal.entries.len() > 2);
    assert_eq!(missing(&journal, point(2, 999)).unwrap(), [1_000]);
    assert_eq!(missing(&journal, point(2, 1)), None);
}

/// In the calls of single grants, the text of the arguments is the smaller part.
#[test]
fn all_that_is_kept_of_a_call_counts() {
    let mut call = ScriptCall::new(&Shas::default(), LoadedScript::Commit, &["k".repeat(1_000)]);
    for _ in 0..1_000 {
        call.arg("").number(1_000_000);
    }
    let call = Arc::new(call.fitted());
    let mut journal = Journal::new(1 << 20);
    journal.sends(&call, vec![step(0, 2, 1), step(1, 2, 1)]);
    // Each argument also takes the position of its end.
    let least = 1_000 + 7_000 + 2_000 * 2 * size_of::<usize>() + 2 * size_of::<Move>();
    assert!((least..least + 1_000).contains(&journal.bytes), "{least} {}", journal.bytes);
    let taken = Move { shard: ShardId(2), before: point(1, 5), after: point(2, 5) };
    journal.took(taken, Epoch(2));
    assert_eq!(journal.bytes, journal.entries.iter().map(|entry| entry.bytes).sum::<usize>());
    assert_eq!(call.command.get_packed_command(), call.fitted().command.get_packed_command());
}

#[test]
fn without_room_for_calls_the_take_overs_are_known_that_nothing_followed() {
    let mut journal = Journal::new(0);
    let take = |from: u128, to: u128, seq| Move { shard: ShardId(0), before: point(from, seq), after: point(to, seq) };
    journal.took(take(1, 2, 5), Epoch(2));
    journal.sends(&call(), vec![step(0, 2, 6)]);
    journal.took(take(2, 3, 6), Epoch(3));
    journal.took(take(3, 4, 6), Epoch(4));
    let missing = |head| journal.missing(&[(ShardId(0), head)], &journal.standing()).missing;
    let tokens = |head| missing(head).iter().map(|missing| missing.moves[0].after.token.0).collect::<Vec<_>>();
    assert_eq!(tokens(point(2, 6)), [3, 4]);
    assert_eq!(tokens(point(3, 6)), [4]);
    assert_eq!(tokens(point(4, 6)), [0u128; 0]);
    assert_eq!(tokens(point(4, 9)), [0u128; 0], "it went on, and nobody remembers how");
    assert_eq!(tokens(point(1, 5)), [0u128; 0], "a batch lies between");
    for token in 4..40 {
        journal.took(take(token, token + 1, 6), Epoch(token as u64));
    }
    assert_eq!(journal.entries.len(), TAKES_OF_SHARD);
    journal.let_go();
    assert_eq!(journal.entries.len(), 0);
}

/// On disk the batch is marked as not applied: the next process would not know that the client was told of it.
#[test]
fn what_redis_answers_while_it_is_being_kept_is_kept_once_more() {
    let mut journal = begun();
    journal.sends(&call(), vec![step(0, 2, 8)]);
    journal.sends(&call(), vec![step(1, 3, 1)]);
    journal.applied(&[step(1, 3, 1)]);
    let unkept = journal.unkept().unwrap();
    let of = |unkept: &[Unkept]| unkept.iter().map(|one| (one.moves[0].shard.0, one.applied)).collect::<Vec<_>>();
    assert!(of(&unkept).contains(&(0, false)), "{:?}", of(&unkept));
    journal.applied(&[step(0, 2, 8)]);
    journal.kept(&unkept);
    assert_eq!(of(&journal.unkept().unwrap()), [(0, true)]);
    let again = journal.unkept().unwrap();
    journal.kept(&again);
    assert!(journal.unkept().unwrap().is_empty());
}

/// The replicas have the whole line, and Redis lost the end of it.
#[test]
fn what_is_played_again_is_to_be_kept_although_replicas_had_it_and_what_was_asked_of_them_before_says_nothing() {
    let mut journal = begun();
    journal.applied(&[step(0, 2, 8)]);
    for seq in 1..=3 * RECENT as u64 {
        journal.sends(&call(), vec![step(1, 3, seq)]);
        journal.applied(&[step(1, 3, seq)]);
    }
    let asked = journal.applied_last();
    journal.is_safe(asked);
    let unkept = |journal: &Journal| {
        let unkept = journal.unkept().unwrap();
        unkept.iter().map(|one| (one.moves[0].shard.0, one.moves[0].after.seq.0)).collect::<Vec<_>>()
    };
    assert!(unkept(&journal).is_empty());
    let missing = journal.missing(&[(ShardId(0), point(2, 6))], &journal.standing()).missing;
    assert_eq!(missing.len(), 2);
    // The first replay is cut off.
    journal.played(&missing, false);
    assert!(journal.applied_last() <= asked);
    journal.played(&missing, true);
    journal.is_safe(asked);
    assert_eq!(unkept(&journal), [(0, 7), (0, 8)]);
    let kept = journal.unkept().unwrap();
    journal.kept(&kept);
    assert!(unkept(&journal).is_empty());
    // The replicas have everything again, the file is emptied, and Redis loses the end once more.
    journal.is_safe(journal.applied_last());
    journal.emptied();
    assert!(unkept(&journal).is_empty());
    journal.played(&missing, true);
    assert_eq!(unkept(&journal), [(0, 7), (0, 8)]);
}

#[test]
fn what_was_kept_is_kept_again_once_redis_did_it_and_once_it_is_sent_again_behind_a_file_that_was_emptied() {
    let unkept = |journal: &Journal| {
        let unkept = journal.unkept().unwrap();
        unkept.iter().map(|one| (one.moves[0].after.seq.0, one.applied)).collect::<Vec<_>>()
    };
    let keep = |journal: &mut Journal| {
        let kept = journal.unkept().unwrap();
        journal.kept(&kept);
    };
    // Redis did both calls, but has acknowledged only the second.
    let mut journal = Journal::new(1 << 20);
    for seq in 1..=2 {
        journal.sends(&call(), vec![step(0, 2, seq)]);
    }
    journal.applied(&[step(0, 2, 2)]);
    assert_eq!(unkept(&journal), [(1, false), (2, true)]);
    keep(&mut journal);
    assert!(unkept(&journal).is_empty());
    journal.applied(&[step(0, 2, 1)]);
    assert_eq!(unkept(&journal), [(1, true)]);
    keep(&mut journal);
    // A batch that is already in the file is not written again.
    journal.sends(&call(), vec![step(0, 2, 2)]);
    assert!(unkept(&journal).is_empty());
    journal.is_safe(2);
    journal.emptied();
    assert_eq!(unkept(&journal), [(2, true)]);
}

#[test]
fn nothing_is_taken_for_safe_that_a_take_over_overtook() {
    let mut journal = begun();
    assert_eq!(journal.applied_last(), 3);
    // Batch 8 is under way when another shard is taken.
    journal.took(Move { shard: ShardId(1), before: point(1, 5), after: point(4, 5) }, Epoch(2));
    assert_eq!(journal.applied_last(), 3);
    journal.applied(&[step(0, 2, 8)]);
    assert_eq!(journal.applied_last(), 5);
}

/// Two batches of one shard wait to be sent. The first is refused before it is sent, so the second follows nothing, and Redis
/// refuses it.
#[test]
fn what_follows_nothing_that_was_sent_keeps_nothing_after_it_from_being_safe() {
    let mut journal = begun();
    journal.applied(&[step(0, 2, 8)]);
    journal.sends(&call(), Vec::new());
    journal.sends(&call(), vec![step(0, 2, 9)]);
    journal.applied(&[step(0, 2, 9)]);
    journal.is_safe(journal.applied_last());
    assert_eq!(journal.unkept().unwrap().len(), 0, "replicas have all of it");
}

#[test]
fn what_is_in_the_redo_journal_leads_a_shard_as_far_as_this() {
    let mut journal = begun();
    let kept = journal.unkept().unwrap();
    journal.kept(&kept);
    let kept_last = |to| journal.kept_last(ShardId(0), to);
    assert_eq!([kept_last(point(2, 7)), kept_last(point(2, 6))], [Some(point(2, 7)), Some(point(2, 6))]);
    // Redis has not acknowledged the last batch; the other point is on no line.
    assert_eq!([kept_last(point(2, 8)), kept_last(point(9, 6))], [Some(point(2, 7)), None]);
    assert!(journal.knows(ShardId(0), point(2, 8)) && !journal.knows(ShardId(1), point(2, 8)));
    journal.emptied();
    assert_eq!(journal.kept_last(ShardId(0), point(2, 7)), None);
}

/// Taken from another owner, lost to one that went on, and taken again from that one.
#[test]
fn what_a_process_did_before_others_came_in_between_is_remembered_as_its_own() {
    let shard = ShardId(0);
    let mut journal = begun();
    let way = |journal: &Journal, to| {
        let (way, is_all) = journal.stretches_to(shard, to);
        (way.iter().map(|sent| sent.moves[0].after).collect::<Vec<_>>(), is_all)
    };
    let first = vec![point(2, 5), point(2, 6), point(2, 7)];
    assert_eq!(way(&journal, point(2, 7)), (first.clone(), true));
    // Another owner wrote batches 8 to 12; since this process took the shard from there, no client was told of anything.
    journal.took(Move { shard, before: point(4, 12), after: point(5, 12) }, Epoch(6));
    assert_eq!(way(&journal, point(4, 12)), (first.clone(), true));
    journal.sends(&call(), vec![step(0, 5, 13)]);
    journal.applied(&[step(0, 5, 13)]);
    let second = [point(5, 12), point(5, 13)];
    assert_eq!(way(&journal, point(5, 13)), ([&first[..], &second].concat(), true));
    // Nothing is known about how the shard came to this point.
    assert_eq!(way(&journal, point(9, 12)), (Vec::new(), false));
    // As far as the journal remembers, this process only took the shard.
    let mut journal = Journal::new(1 << 20);
    journal.took(Move { shard, before: point(1, 5), after: point(2, 5) }, Epoch(2));
    assert_eq!(way(&journal, point(1, 5)), (Vec::new(), true));
    let mut journal = Journal::new(0);
    journal.took(Move { shard, before: point(1, 5), after: point(2, 5) }, Epoch(2));
    assert_eq!(way(&journal, point(1, 5)), (Vec::new(), false));
}

/// The process was cut off while its last batch was under way. Later it took the shard again, from another owner that had
/// continued from that batch.
#[test]
fn what_was_under_way_is_done_where_the_line_that_is_taken_later_goes_through_it() {
    let mut journal = begun();
    // The call changes two shards: if the line of one goes through it, the other has it too.
    let both = vec![step(0, 2, 9), step(1, 2, 4)];
    journal.sends(&committing(&[(0, 9), (1, 4)]), both.clone());
    let found =
        |journal: &mut Journal, shard, takes: &str| journal.found(ShardId(shard), &Takes::parse(takes).unwrap(), &[]);
    for (shard, takes) in [(1, "3 2 3"), (0, "3 3 8"), (0, "3 2 7")] {
        assert_eq!(found(&mut journal, shard, takes), []);
    }
    assert!(journal.doubts(ShardId(0)) && journal.doubts(ShardId(1)));
    assert_eq!(missing(&journal, point(2, 5)).unwrap(), [6, 7], "none of those");
    journal.cut(&[(ShardId(0), point(2, 7))]);
    journal.sends(&committing(&[(0, 8)]), vec![step(0, 2, 8)]);
    assert_eq!(found(&mut journal, 0, "4 3 9,3 2 8,2 1 5"), [(ShardId(0), point(2, 8), Epoch(4))]);
    journal.sends(&committing(&[(0, 9), (1, 4)]), both.clone());
    let of_both = both.iter().map(|one| (one.shard, one.after, Epoch(4))).collect::<Vec<_>>();
    assert_eq!(found(&mut journal, 0, "4 3 9,3 2 9,2 1 5"), of_both);
    assert!(!journal.doubts(ShardId(0)));
    assert_eq!(missing(&journal, point(2, 5)).unwrap(), [6, 7, 8, 9]);
}

/// A process before this one kept a call of two shards while it was under way. It may have been refused after that.
#[test]
fn what_was_under_way_before_counts_as_done_only_where_the_line_has_its_digest() {
    let mut journal = Journal::new(1 << 20);
    let both = vec![step(0, 2, 9), step(1, 2, 4)];
    journal.restore(Deed::Commit(committing(&[(1, 3)])), vec![step(1, 2, 3)], true);
    journal.restore(Deed::Commit(committing(&[(0, 9), (1, 4)])), both.clone(), false);
    let (shard, takes) = (ShardId(0), Takes::parse("4 3 9,3 2 9,2 1 5").unwrap());
    assert_eq!(journal.unproved(shard, &takes), [point(2, 9)]);
    // Another batch had the number.
    assert_eq!(journal.found(shard, &takes, &[Point { digest: Digest(1), ..point(2, 9) }]), []);
    assert!(journal.standing().contains(&(ShardId(1), point(2, 3))));
    assert_eq!(journal.unproved(shard, &Takes::parse("3 2 8").unwrap()), []);
    assert_eq!(journal.found(shard, &takes, &[point(2, 9)]).len(), 2);
    assert!(journal.standing().contains(&(ShardId(1), point(2, 4))));
}

/// The file says that it is not known to be done, and has much that came after it.
#[test]
fn what_turns_out_to_be_done_is_kept_as_such_however_long_ago_it_was_sent() {
    let mut journal = Journal::new(1 << 20);
    journal.restore(Deed::Commit(committing(&[(0, 9)])), vec![step(0, 2, 9)], false);
    for seq in 1..=RECENT as u64 + 1 {
        journal.restore(Deed::Commit(committing(&[(2, seq)])), vec![step(2, 2, seq)], true);
    }
    assert!(journal.unkept().unwrap().is_empty());
    let takes = Takes::parse("4 3 9,3 2 9,2 1 5").unwrap();
    assert_eq!(journal.found(ShardId(0), &takes, &[point(2, 9)]).len(), 1);
    let unkept = journal.unkept().unwrap();
    assert_eq!(unkept.iter().map(|one| (one.moves[0], one.applied)).collect::<Vec<_>>(), [(step(0, 2, 9), true)]);
    journal.kept(&unkept);
    assert!(journal.unkept().unwrap().is_empty());
}

/// Its number is given to another batch, if need be after many batches of other shards.
#[test]
fn what_was_refused_each_time_it_was_sent_is_not_done_nor_under_way_nor_kept() {
    let takes = Takes::parse("4 3 9,3 2 9,2 1 5").unwrap();
    let both = vec![step(0, 2, 9), step(1, 2, 4)];
    let begun = || {
        let mut journal = begun();
        journal.applied(&[step(0, 2, 8)]);
        journal.sends(&committing(&[(0, 9), (1, 4)]), both.clone());
        journal.refused(&both);
        journal
    };
    let mut journal = begun();
    assert!(!journal.doubts(ShardId(0)) && !journal.doubts(ShardId(1)));
    for seq in 1..=RECENT as u64 {
        journal.sends(&call(), vec![step(2, 3, seq)]);
        journal.applied(&[step(2, 3, seq)]);
    }
    let is_in = |unkept: Vec<Unkept>| unkept.iter().any(|one| one.moves == both);
    assert!(!is_in(journal.unkept().unwrap()) && !is_in(journal.remembered()));
    assert_eq!(journal.applied_last(), journal.sent);
    let other = Move { after: Point { digest: Digest(1), ..point(2, 9) }, ..step(0, 2, 9) };
    journal.sends(&call(), vec![other]);
    journal.applied(&[other]);
    assert_eq!(journal.found(ShardId(0), &takes, &[]), []);
    assert!(!journal.standing().iter().any(|(shard, _)| *shard == ShardId(1)));
    // It is sent again in its place: what follows it may have been sent meanwhile.
    let mut journal = begun();
    journal.sends(&call(), vec![step(0, 2, 10)]);
    journal.sends(&committing(&[(0, 9), (1, 4)]), both.clone());
    assert!(journal.doubts(ShardId(1)) && journal.leads(ShardId(0), point(2, 8), point(2, 10)));
    // Of the first of two attempts nobody knows what became of it.
    journal.sends(&committing(&[(0, 9), (1, 4)]), both.clone());
    journal.refused(&both);
    assert_eq!(journal.found(ShardId(0), &takes, &[]).len(), 2);
}

/// A call that commits these batches of shards, with token 2 in epoch 4.
fn committing(batches: &[(u16, u64)]) -> Arc<ScriptCall> {
    let written = batches.iter().map(|&(shard, seq)| {
        let (shard, token, seq) = (ShardId(shard), Token(2), Seq(seq));
        let (generation, time) = (crate::core::types::Generation(1), crate::core::types::ShardTime(1));
        let batch = Batch { shard, epoch: Epoch(4), token, seq, time, generation, acts: Vec::new() };
        let mut bytes = Vec::new();
        fence::encode(&batch, codec::Format::FIRST, &mut bytes).unwrap();
        (bytes, (point(2, seq.0 - 1).digest, point(2, seq.0).digest))
    });
    let written: Vec<_> = written.collect();
    Arc::new(written::again(&shared(None), LoadedScript::Commit, &written).unwrap().fitted())
}

/// All replicas may come back at once without these batches.
#[test]
fn what_replicas_had_is_for_the_next_process_too_and_what_another_owner_left_is_not() {
    let mut journal = left();
    journal.is_safe(journal.applied_last());
    assert_eq!(journal.unkept().unwrap().len(), 0);
    let remembered = journal.remembered();
    let after: Vec<Point> = remembered.iter().map(|one| one.moves[0].after).collect();
    assert_eq!(after, [point(2, 5), point(2, 6)]);
    journal.kept(&remembered);
    assert_eq!(journal.remembered().len(), 0, "it is there");
}
