//! What this process sent last, in order: batches and take-overs, each with where its shards stood before and after it. So
//! that it can be played again when Redis went back.
//!
//! Pure: knows no connection. A shard's head is found in here or it is not; nothing is guessed. Bounded by bytes, all that are
//! allocated: what is older than the bound cannot be healed.
//!
//! Neighbours: `commits` and `checks` write it, `heal` plays it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::scripts::ScriptCall;
use crate::store::{Digest, Epoch, Head, Seq, ShardId, Token};

/// What is allocated by itself takes so many bytes more.
const ALLOCATION_BYTES: usize = 16;
/// Entries of which Redis may not have spoken yet, and more: only among these a call is looked for that is sent again.
const RECENT: usize = 256;
/// Take-overs of one shard that are kept where nothing else is.
const TAKES_OF_SHARD: usize = 8;

/// Where a shard stands: no two states of any line have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Point {
    pub(super) token: Token,
    pub(super) seq: Seq,
    pub(super) digest: Digest,
}

impl Point {
    pub(super) fn of(head: &Head) -> Self {
        let &Head { token, seq, digest, .. } = head;
        Self { token, seq, digest }
    }
}

/// What one entry does to one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) shard: ShardId,
    pub(super) before: Point,
    pub(super) after: Point,
}

/// What is played again.
#[derive(Debug, Clone)]
pub(super) enum Deed {
    /// The call of a commit, byte for byte.
    Commit(Arc<ScriptCall>),
    /// The take-over of a shard, after which this was its epoch.
    Take(Epoch),
}

#[derive(Debug, Clone)]
struct JournalEntry {
    deed: Deed,
    moves: Vec<Move>,
    /// Redis said that it did it.
    applied: bool,
    /// What it takes here.
    bytes: usize,
}

impl JournalEntry {
    fn new(deed: Deed, mut moves: Vec<Move>, applied: bool) -> Self {
        moves.shrink_to_fit();
        // A queue that grew has room for as many again.
        let own = 2 * size_of::<Self>() + moves.len() * size_of::<Move>() + ALLOCATION_BYTES;
        let bytes = own
            + match &deed {
                // The call and how often it is shared, its texts, and where they end.
                Deed::Commit(call) => call.bytes() + 2 * size_of::<usize>() + 3 * ALLOCATION_BYTES,
                Deed::Take(_) => 0,
            };
        Self { deed, moves, applied, bytes }
    }
}

/// Something that Redis has forgotten.
#[derive(Debug, Clone)]
pub(super) struct Forgotten {
    pub(super) deed: Deed,
    pub(super) moves: Vec<Move>,
}

/// What there is to be played again, and what not.
#[derive(Debug)]
pub(super) struct ToReplay {
    /// In order.
    pub(super) missing: Vec<Forgotten>,
    /// Shards that do not stand on the way to where they stood.
    pub(super) elsewhere: Vec<ShardId>,
    /// Shards that lack something which was sent together with something of those.
    pub(super) held_up: Vec<ShardId>,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Journal {
    entries: VecDeque<JournalEntry>,
    bytes: usize,
    bytes_max: usize,
}

impl Journal {
    /// Keeps the last calls, in so many bytes; 0: none. The last take-overs are kept in any case: they take no room, and one
    /// that was lost before anything was acknowledged under it needs nothing else.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// A call is about to be sent, the first time or again. It has no spare room ([`ScriptCall::fitted`]).
    pub(super) fn sends(&mut self, call: &Arc<ScriptCall>, moves: Vec<Move>) {
        if self.bytes_max == 0 {
            return;
        }
        let recent = self.entries.len().saturating_sub(RECENT);
        if self.entries.range(recent..).any(|entry| entry.moves == moves) {
            return;
        }
        // Numbers are used again only when what had them certainly was not applied.
        let again = |one: &Move| moves.iter().any(|m| m.shard == one.shard && m.after.token == one.after.token);
        let later = |one: &Move| moves.iter().any(|m| m.shard == one.shard && m.after.seq <= one.after.seq);
        let keep = |entry: &JournalEntry| entry.applied || !entry.moves.iter().any(|one| again(one) && later(one));
        if let Some(at) = (recent..self.entries.len()).find(|&at| !keep(&self.entries[at])) {
            for entry in self.entries.split_off(at) {
                if keep(&entry) {
                    self.entries.push_back(entry);
                } else {
                    self.bytes -= entry.bytes;
                }
            }
        }
        self.push(JournalEntry::new(Deed::Commit(Arc::clone(call)), moves, false));
    }

    /// Redis said that it did what moves its shards so.
    pub(super) fn applied(&mut self, moves: &[Move]) {
        if let Some(entry) = self.entries.iter_mut().rev().find(|entry| entry.moves == moves) {
            entry.applied = true;
        }
    }

    /// A shard was taken over.
    pub(super) fn took(&mut self, taken: Move, epoch: Epoch) {
        let moves = vec![taken];
        if self.entries.iter().any(|entry| entry.moves == moves) {
            return;
        }
        let entry = JournalEntry::new(Deed::Take(epoch), moves, true);
        if self.bytes_max > 0 {
            return self.push(entry);
        }
        let is_of_shard = |entry: &JournalEntry| entry.moves.iter().any(|one| one.shard == taken.shard);
        if self.entries.iter().filter(|&entry| is_of_shard(entry)).count() == TAKES_OF_SHARD
            && let Some(oldest) = self.entries.iter().position(is_of_shard)
        {
            self.entries.remove(oldest);
        }
        self.entries.push_back(entry);
    }

    /// The tenure is over: a take-over of it is not to be repeated, unless what was acknowledged under it is.
    pub(super) fn let_go(&mut self) {
        if self.bytes_max == 0 {
            self.entries.clear();
        }
    }

    fn push(&mut self, entry: JournalEntry) {
        self.bytes += entry.bytes;
        self.entries.push_back(entry);
        while self.bytes > self.bytes_max && self.entries.len() > 1 {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes;
        }
    }

    /// Of each shard, where it stands at least: after the last entry that Redis said it did.
    pub(super) fn standing(&self) -> Vec<(ShardId, Point)> {
        let mut standing: Vec<(ShardId, Point)> = Vec::new();
        for one in self.entries.iter().filter(|entry| entry.applied).flat_map(|entry| &entry.moves) {
            match standing.iter_mut().find(|(shard, _)| *shard == one.shard) {
                Some((_, point)) => *point = one.after,
                None => standing.push((one.shard, one.after)),
            }
        }
        standing
    }

    /// What is missing in Redis, where shards stand so, of what leads to where each stood at least ([`Self::standing`]).
    pub(super) fn missing(&self, heads: &[(ShardId, Point)], standing: &[(ShardId, Point)]) -> ToReplay {
        let mut wanted = vec![false; self.entries.len()];
        let mut elsewhere = Vec::new();
        for &(shard, goal) in standing {
            let Some(&(_, head)) = heads.iter().find(|(other, _)| *other == shard) else { continue };
            if head == goal {
                continue;
            }
            // Trimmed since: then nothing is known of it.
            let is_known = self.of_shard(shard).any(|(_, one)| one.after == goal);
            // Without calls nobody remembers how it went on.
            let went_on = self.bytes_max == 0 && head.token == goal.token && head.seq >= goal.seq;
            if !is_known || went_on {
                continue;
            }
            match self.way(shard, head, goal) {
                Some(way) => way.into_iter().for_each(|at| wanted[at] = true),
                None if self.leads(shard, goal, head) => {}
                None => elsewhere.push(shard),
            }
        }
        let mut closed = elsewhere.clone();
        let mut missing = Vec::new();
        for (entry, _) in self.entries.iter().zip(wanted).filter(|(_, wanted)| *wanted) {
            if entry.moves.iter().any(|one| closed.contains(&one.shard)) {
                // Nor what follows it.
                closed.extend(entry.moves.iter().map(|one| one.shard));
            } else {
                missing.push(Forgotten { deed: entry.deed.clone(), moves: entry.moves.clone() });
            }
        }
        closed.retain(|shard| !elsewhere.contains(shard));
        ToReplay { missing, elsewhere, held_up: closed }
    }

    /// Does a shard come from one point to another by what was sent?
    pub(super) fn leads(&self, shard: ShardId, from: Point, to: Point) -> bool {
        self.way(shard, from, to).is_some()
    }

    /// All that is remembered of how a shard came to a point, oldest first.
    pub(super) fn way_to(&self, shard: ShardId, to: Point) -> Vec<Forgotten> {
        let (mut way, mut stands) = (Vec::new(), to);
        for (at, one) in self.of_shard(shard).rev() {
            if one.after == stands {
                let JournalEntry { deed, moves, .. } = &self.entries[at];
                way.push(Forgotten { deed: deed.clone(), moves: moves.clone() });
                stands = one.before;
            }
        }
        way.reverse();
        way
    }

    /// The point at which the way to another one begins, and its epoch: where a take-over found the shard. None where a change
    /// comes first, because what was before it is forgotten.
    pub(super) fn begins(&self, shard: ShardId, to: Point) -> Option<(Point, Epoch)> {
        let (mut first, mut stands) = (None, to);
        for (at, one) in self.of_shard(shard).rev() {
            if one.after == stands {
                (first, stands) = (Some(at), one.before);
            }
        }
        match self.entries.get(first?)?.deed {
            Deed::Take(epoch) => Some((stands, Epoch(epoch.0.checked_sub(1)?))),
            Deed::Commit(_) => None,
        }
    }

    /// How far a shard comes from a point by what Redis did at the time.
    pub(super) fn onward(&self, shard: ShardId, from: Point) -> Point {
        let applied = self.of_shard(shard).filter(|(at, _)| self.entries[*at].applied);
        // Where it forked, the way that was taken last counts.
        let mut next: HashMap<Point, Point> = applied.map(|(_, one)| (one.before, one.after)).collect();
        let mut stands = from;
        while let Some(after) = next.remove(&stands) {
            stands = after;
        }
        stands
    }

    /// Is it a token of this process's, as far as is remembered?
    pub(super) fn is_own(&self, shard: ShardId, token: Token) -> bool {
        self.of_shard(shard).any(|(_, one)| one.after.token == token)
    }

    /// A shard goes on from here: what was sent and does not lead here is nothing to be played again.
    pub(super) fn cut(&mut self, shard: ShardId, head: Point) {
        let mut stands = head;
        let mut kept = Vec::with_capacity(self.entries.len());
        for mut entry in std::mem::take(&mut self.entries).into_iter().rev() {
            match entry.moves.iter().find(|one| one.shard == shard) {
                Some(one) if one.after == stands => {
                    stands = one.before;
                    entry.applied = true;
                }
                Some(_) => {
                    self.bytes = self.bytes.saturating_sub(entry.bytes);
                    continue;
                }
                None => {}
            }
            kept.push(entry);
        }
        self.entries = kept.into_iter().rev().collect();
    }

    fn of_shard(&self, shard: ShardId) -> impl DoubleEndedIterator<Item = (usize, Move)> + '_ {
        let of_shard = move |entry: &JournalEntry| entry.moves.iter().find(|one| one.shard == shard).copied();
        self.entries.iter().enumerate().filter_map(move |(at, entry)| Some((at, of_shard(entry)?)))
    }

    /// The entries by which a shard comes from one point to another.
    fn way(&self, shard: ShardId, from: Point, to: Point) -> Option<Vec<usize>> {
        let (mut way, mut stands) = (Vec::new(), to);
        if stands == from {
            return Some(way);
        }
        // Each was sent after the one that it follows.
        for (at, one) in self.of_shard(shard).rev() {
            if one.after == stands {
                way.push(at);
                stands = one.before;
                if stands == from {
                    return Some(way);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::scripts::{LoadedScript, Shas};

    fn point(token: u128, seq: u64) -> Point {
        Point { token: Token(token), seq: Seq(seq), digest: Digest(u128::from(seq) * 7) }
    }

    fn step(shard: u16, token: u128, seq: u64) -> Move {
        Move { shard: ShardId(shard), before: point(token, seq - 1), after: point(token, seq) }
    }

    fn call() -> Arc<ScriptCall> {
        Arc::new(ScriptCall::new(&Shas(Default::default()), LoadedScript::Commit, &[]))
    }

    /// A line that was taken from token 1 at 5 by token 2, with batches 6 to 8 of which Redis said that it has 7.
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

    /// Of what is missing, how far each goes; none where the shard stands elsewhere.
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
        // Its own take-over was lost.
        assert_eq!(missing(&journal, point(1, 5)).unwrap(), [5, 6, 7]);
    }

    #[test]
    fn a_head_of_another_line_and_one_that_is_not_remembered_are_told() {
        let journal = begun();
        // Another owner's; the owner before, who went on after this one's take-over was lost; too far back; something else.
        let other = Point { digest: Digest(1), ..point(2, 6) };
        for elsewhere in [point(9, 6), point(1, 6), point(2, 4), other] {
            assert_eq!(missing(&journal, elsewhere), None, "{elsewhere:?}");
        }
    }

    /// A failover that is taken back: the old primary has a batch of which nobody knew, and the take-over was elsewhere.
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
        // What was never known to be applied is not on the way from before it.
        assert_eq!(missing(&journal, point(2, 8)).unwrap(), [8, 9]);
        assert!(journal.leads(ShardId(0), point(2, 8), fork));
        assert!(!journal.leads(ShardId(0), point(3, 8), fork));
        assert!(journal.is_own(ShardId(0), Token(3)) && !journal.is_own(ShardId(0), Token(9)));
        journal.cut(ShardId(0), fork);
        assert_eq!(journal.standing(), [(ShardId(0), fork)]);
        assert_eq!(missing(&journal, fork).unwrap(), [0u64; 0]);
        assert_eq!(missing(&journal, point(2, 7)).unwrap(), [8, 9]);
        assert_eq!(journal.bytes, journal.entries.iter().map(|entry| entry.bytes).sum::<usize>());
    }

    /// A line on which another owner, token 3, came between two stretches of this process.
    #[test]
    fn a_head_on_an_earlier_stretch_goes_on_to_where_the_other_owner_took_it_over_and_no_further() {
        let mut journal = begun();
        journal.took(Move { shard: ShardId(0), before: point(3, 12), after: point(4, 12) }, Epoch(4));
        journal.sends(&call(), vec![step(0, 4, 13)]);
        journal.applied(&[step(0, 4, 13)]);
        assert_eq!(missing(&journal, point(2, 6)), None);
        let onward = |from| journal.onward(ShardId(0), from);
        // Redis never said that it has the eighth.
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
        // The same once more is the same.
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
        // One of them is another owner's: what was sent for both is played nowhere, nor what follows it.
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

    /// Of the calls of single grants most is not the text of their arguments.
    #[test]
    fn all_that_is_kept_of_a_call_counts() {
        let mut call = ScriptCall::new(&Shas(Default::default()), LoadedScript::Commit, &["k".repeat(1_000)]);
        for _ in 0..1_000 {
            call.arg("").number(1_000_000);
        }
        let call = Arc::new(call.fitted());
        let mut journal = Journal::new(1 << 20);
        journal.sends(&call, vec![step(0, 2, 1), step(1, 2, 1)]);
        // Each argument has its end beside its text.
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
        let take =
            |from: u128, to: u128, seq| Move { shard: ShardId(0), before: point(from, seq), after: point(to, seq) };
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
        assert!(journal.entries.is_empty());
    }
}
