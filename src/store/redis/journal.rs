//! What this process sent last, in order: batches and take-overs, each with where its shards stood before and after it. From
//! this it can be replayed if Redis goes back. The journal also has the last batches of the previous owner, as this process
//! found them: if one of them was under way when that owner was cut off, the owner does not know that it was applied (see
//! `left`).
//!
//! Pure: it knows no connection. A shard's head is either found in here or not; nothing is guessed. Bounded by all the bytes
//! that it allocates: what is older than the bound cannot be healed.
//!
//! Neighbours: `commits`, `take` and `left` write it, `heal` replays it; `ways` reads it; `entries` knows which entries
//! concern a shard.

mod entries;
mod ways;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use self::entries::{Entries, Place};
use super::scripts::ScriptCall;
use super::takes::Takes;
use super::written;
use crate::store::{Digest, Epoch, Head, Seq, ShardId, Token, codec};

/// An allocation of its own takes this many bytes more.
const ALLOCATION_BYTES: usize = 16;
/// More entries than may be waiting for an answer of Redis. Only among these a call that is sent again is looked for.
const RECENT: usize = 256;
/// How many take-overs of a shard are kept if nothing else is kept.
const TAKES_OF_SHARD: usize = 8;

/// Where a shard stands. No two states of any line have the same point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Point {
    pub(super) token: Token,
    pub(super) seq: Seq,
    pub(super) digest: Digest,
}

impl Point {
    /// A point on no line.
    pub(super) const NOWHERE: Self = Self { token: Token(0), seq: Seq(0), digest: Digest(0) };

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

#[derive(Debug, Clone)]
pub(super) enum Deed {
    /// The call of a commit, byte for byte.
    Commit(Arc<ScriptCall>),
    /// The take-over of a shard, with the epoch that it began.
    Take(Epoch),
    /// A batch of one shard, as its log has it.
    Batch(Arc<LoneBatch>),
}

/// A batch without the call that it was part of.
#[derive(Debug)]
pub(super) struct LoneBatch {
    pub(super) bytes: Vec<u8>,
    pub(super) epoch: Epoch,
    pub(super) author: Author,
}

/// Whose batch this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    /// This process's. The rest of its call is put aside.
    Own,
    /// An earlier process's whose memory this one has. Redis applied the batch after that process had ended, so the memory
    /// does not have it. Nobody else has it.
    Before,
    /// Another owner's, which may not know that it was applied.
    Other,
}

impl Deed {
    /// Does it belong to another owner?
    pub(super) fn is_left(&self) -> bool {
        matches!(self, Self::Batch(batch) if batch.author == Author::Other)
    }

    /// Was it found in the log of its shard, without the rest of its call? Such a batch is only replayed if every shard can
    /// be brought to where it stood. Its owner has it as part of calls that change several shards, and those fit nowhere
    /// once one of the shards has gone on.
    pub(super) fn is_found(&self) -> bool {
        matches!(self, Self::Batch(batch) if batch.author != Author::Own)
    }

    /// The epoch in which it changes this shard.
    fn epoch_in(&self, shard: ShardId) -> Option<Epoch> {
        match self {
            Self::Take(epoch) => Some(*epoch),
            Self::Batch(batch) => Some(batch.epoch),
            Self::Commit(call) => {
                let mut decoded =
                    written::read(call)?.into_iter().filter_map(|(bytes, _)| codec::decode_batch(bytes).ok());
                decoded.find(|batch| batch.shard == shard).map(|batch| batch.epoch)
            }
        }
    }
}

#[derive(Debug, Clone)]
struct JournalEntry {
    deed: Deed,
    moves: Vec<Move>,
    /// Redis confirmed it.
    applied: bool,
    /// How many times it was sent and not refused for certain.
    open: u32,
    /// The order in which entries were last sent or replayed.
    number: u64,
    /// The redo journal has it, too, in its present state.
    kept: bool,
    /// How many bytes it takes in this journal.
    bytes: usize,
}

impl JournalEntry {
    fn new(deed: Deed, mut moves: Vec<Move>, applied: bool) -> Self {
        moves.shrink_to_fit();
        // A queue that grew has room for as many entries again.
        let queued = 2 * (size_of::<Self>() + moves.len() * size_of::<Place>());
        let own = queued + moves.len() * size_of::<Move>() + ALLOCATION_BYTES;
        let bytes = own
            + match &deed {
                // The call with its reference counts, its texts, and where they end.
                Deed::Commit(call) => call.bytes() + 2 * size_of::<usize>() + 3 * ALLOCATION_BYTES,
                Deed::Take(_) => 0,
                Deed::Batch(batch) => size_of::<LoneBatch>() + batch.bytes.capacity() + 2 * ALLOCATION_BYTES,
            };
        Self { deed, moves, applied, open: 1, number: 0, kept: false, bytes }
    }

    /// What it did to shards other than these, as one entry for each.
    fn without(&self, shards: &[ShardId]) -> Vec<Self> {
        let Deed::Commit(call) = &self.deed else { return Vec::new() };
        if self.moves.len() < 2 {
            return Vec::new();
        }
        let batches = written::read(call).unwrap_or_default();
        let rest = batches.into_iter().filter_map(|(bytes, _)| {
            let batch = codec::decode_batch(bytes).ok()?;
            let one = *self.moves.iter().find(|one| one.shard == batch.shard && !shards.contains(&one.shard))?;
            let lone = LoneBatch { bytes: bytes.to_vec(), epoch: batch.epoch, author: Author::Own };
            let entry = Self::new(Deed::Batch(Arc::new(lone)), vec![one], self.applied);
            Some(Self { number: self.number, kept: self.kept, open: self.open, ..entry })
        });
        rest.collect()
    }

    /// Was it certainly not applied? Another batch may get its number then.
    fn is_refused(&self) -> bool {
        !self.applied && self.open == 0
    }

    /// May it have been applied without an answer?
    fn is_doubtful(&self) -> bool {
        !self.applied && self.open > 0
    }

    /// Must it be written to disk, if replicas have everything up to `safe`?
    fn is_due(&self, safe: u64) -> bool {
        self.number > safe && !self.kept && !self.is_refused()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Forgotten {
    pub(super) deed: Deed,
    pub(super) moves: Vec<Move>,
}

/// What must be replayed, and what cannot.
#[derive(Debug)]
pub(super) struct ToReplay {
    pub(super) missing: Vec<Forgotten>,
    /// Shards whose heads are not on the remembered way to where they must at least stand.
    pub(super) elsewhere: Vec<ShardId>,
    /// Other shards with missing entries that are not replayed because of those: for example, a call changed both.
    pub(super) held_up: Vec<ShardId>,
}

#[derive(Debug)]
pub(super) struct Journal {
    entries: Entries,
    bytes: usize,
    bytes_max: usize,
    /// Number of the last entry that was sent.
    sent: u64,
    /// Number of the last entry that Redis confirmed.
    applied: u64,
    /// As many replicas as are wanted have everything up to this number.
    safe: u64,
    /// The last entry that was dropped without being on disk.
    dropped: u64,
    /// Entries that must be written to disk may lie anywhere, not only among the last ones, because something was replayed
    /// or turned out to be done.
    is_scattered: bool,
    /// Entries were dropped for lack of room.
    is_trimmed: bool,
    /// The tokens, by shard, under which an earlier process left something.
    restored: HashSet<(ShardId, Token)>,
}

/// An entry to be written to disk because too few replicas have it.
#[derive(Debug)]
pub(super) struct Unkept {
    pub(super) number: u64,
    pub(super) deed: Deed,
    pub(super) moves: Vec<Move>,
    pub(super) applied: bool,
}

impl Journal {
    /// Keeps the last calls in this many bytes; with 0, none. The last take-overs are kept in any case: they take no room,
    /// and if one is lost before anything was acknowledged under it, nothing else is needed.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            entries: Entries::default(),
            bytes: 0,
            bytes_max,
            sent: 0,
            applied: 0,
            safe: 0,
            dropped: 0,
            is_scattered: false,
            is_trimmed: false,
            restored: HashSet::new(),
        }
    }

    /// Notes that a call is about to be sent, for the first time or again. The call has no spare room
    /// ([`ScriptCall::fitted`]). A call that moves nothing will be refused: noted, it would be under way for ever, and nothing
    /// that was sent after it would count as safe.
    pub(super) fn sends(&mut self, call: &Arc<ScriptCall>, moves: Vec<Move>) {
        if self.bytes_max == 0 || moves.is_empty() {
            return;
        }
        let recent = self.entries.len().saturating_sub(RECENT);
        if let Some(entry) = self.entries.range_mut(recent..).find(|entry| entry.moves == moves) {
            // Nobody knows whether the first one was applied, nor which of the two an answer belongs to.
            self.sent += 1;
            entry.number = self.sent;
            entry.open += 1;
            return;
        }
        // Numbers are only used again if the entries that had them were certainly not applied.
        let again = |one: &Move| moves.iter().any(|m| m.shard == one.shard && m.after.token == one.after.token);
        let later = |one: &Move| moves.iter().any(|m| m.shard == one.shard && m.after.seq <= one.after.seq);
        let keep = |entry: &JournalEntry| entry.applied || !entry.moves.iter().any(|one| again(one) && later(one));
        if let Some(at) = (recent..self.entries.len()).find(|&at| !keep(self.entries.get(at))) {
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

    /// Redis confirmed the entry that moves its shards in this way.
    pub(super) fn applied(&mut self, moves: &[Move]) {
        if let Some(entry) = self.entries.iter_mut().rev().find(|entry| entry.moves == moves) {
            // On disk it is noted as unconfirmed. The next process would not replay it then, although a client may have been
            // told of it.
            entry.kept &= entry.applied;
            entry.applied = true;
            self.applied = self.applied.max(entry.number);
        }
    }

    /// Redis refused the entry that moves its shards in this way: this time it was certainly not applied. It stays where it
    /// is, because it may be sent again, and what follows it may have been sent already.
    pub(super) fn refused(&mut self, moves: &[Move]) {
        if let Some(entry) = self.entries.iter_mut().rev().find(|entry| entry.moves == moves) {
            entry.open = entry.open.saturating_sub(1);
        }
    }

    /// Where entries of an earlier process lead that may be on the line of a shard, which remembers these take-overs. The
    /// numbers do not tell: what that process kept may have been refused later, and another batch got its number.
    pub(super) fn unproved(&self, shard: ShardId, takes: &Takes) -> Vec<Point> {
        let is_meant = |&(at, one): &(usize, Move)| {
            self.entries.get(at).is_doubtful()
                && takes.lead_through(one.after)
                && self.is_restored(shard, one.after.token)
        };
        self.entries.of_shard(shard).filter(is_meant).map(|(_, one)| one.after).collect()
    }

    /// The line of a shard remembers these take-overs. So Redis applied every entry on that line, even if this process was
    /// cut off and never heard so. Of those of an earlier process, only the `proved` ones count (see [`Self::unproved`]).
    /// Returns, for entries not known to be applied so far, in the order of sending: where each brought its shards, and in
    /// which epoch.
    pub(super) fn found(&mut self, shard: ShardId, takes: &Takes, proved: &[Point]) -> Vec<(ShardId, Point, Epoch)> {
        let is_there = |(at, one): (usize, Move)| {
            let is_proved = !self.is_restored(shard, one.after.token) || proved.contains(&one.after);
            (self.entries.get(at).is_doubtful() && takes.lead_through(one.after) && is_proved).then_some(at)
        };
        let there: Vec<usize> = self.entries.of_shard(shard).filter_map(is_there).collect();
        let mut found = Vec::new();
        for at in there {
            let entry = self.entries.get_mut(at);
            let moved = |one: &Move| Some((one.shard, one.after, entry.deed.epoch_in(one.shard)?));
            found.extend(entry.moves.iter().filter_map(moved));
            (entry.applied, entry.kept) = (true, false);
            self.applied = self.applied.max(entry.number);
            // They may lie far from the last ones.
            self.is_scattered = true;
        }
        found
    }

    /// Does any entry of a shard have an unknown outcome?
    pub(super) fn doubts(&self, shard: ShardId) -> bool {
        self.entries.of_shard(shard).any(|(at, _)| self.entries.get(at).is_doubtful())
    }

    /// Did an earlier process have this token?
    fn is_restored(&self, shard: ShardId, token: Token) -> bool {
        self.restored.contains(&(shard, token))
    }

    /// Redis had forgotten these and was given them again: all of them, or perhaps not all. Replicas may have forgotten them
    /// as well, so they count as just sent, and earlier answers of replicas say nothing about them.
    pub(super) fn played(&mut self, missing: &[Forgotten], all: bool) {
        let first = |moves: &[Move]| moves.first().map(|one| (one.shard, one.after));
        let again: HashSet<_> = missing.iter().filter_map(|missing| first(&missing.moves)).collect();
        // What another owner left is for that owner to keep.
        let is_again =
            |entry: &JournalEntry| !entry.deed.is_left() && first(&entry.moves).is_some_and(|one| again.contains(&one));
        for entry in self.entries.iter_mut().filter(|entry| is_again(entry)) {
            self.sent += 1;
            entry.number = self.sent;
            entry.kept &= entry.applied || !all;
            entry.applied |= all;
        }
        self.is_scattered = true;
        if all {
            self.applied = self.sent;
        }
    }

    /// A shard is about to be marked as taken: adds the last batches that the previous owner left there, in order. This
    /// process need not prove another owner's batches, nor keep them on its disk. A batch of an earlier process of this node
    /// becomes this one's to keep, unless the memory of that process already has it.
    pub(super) fn left(&mut self, left: Vec<(Move, LoneBatch)>) {
        for (one, batch) in left {
            let is_others = batch.author == Author::Other;
            let entry = JournalEntry::new(Deed::Batch(Arc::new(batch)), vec![one], true);
            if is_others {
                self.bytes += entry.bytes;
                self.entries.push_back(entry);
            } else if !self.knows(one.shard, one.after) {
                self.push(entry);
                self.applied = self.sent;
            }
        }
    }

    /// How many entries were looked at for any shard.
    #[cfg(test)]
    pub(super) fn looked(&self) -> usize {
        self.entries.looked.get()
    }

    /// Is anything of what is sent kept?
    pub(super) fn keeps(&self) -> bool {
        self.bytes_max > 0
    }

    pub(super) fn took(&mut self, taken: Move, epoch: Epoch) {
        let moves = vec![taken];
        if self.entries.of_shard(taken.shard).any(|(at, _)| self.entries.get(at).moves == moves) {
            return;
        }
        let entry = JournalEntry::new(Deed::Take(epoch), moves, true);
        if self.bytes_max > 0 {
            self.push(entry);
            self.applied = self.sent;
            return;
        }
        let takes: Vec<usize> = self.entries.of_shard(taken.shard).map(|(at, _)| at).collect();
        if takes.len() == TAKES_OF_SHARD {
            self.entries.remove(takes[0]);
        }
        self.entries.push_back(entry);
    }

    /// The tenure is over. Its take-overs must not be repeated, unless what was acknowledged under them is replayed.
    pub(super) fn let_go(&mut self) {
        if self.bytes_max == 0 {
            self.entries.clear();
        }
    }

    fn push(&mut self, entry: JournalEntry) {
        self.sent += 1;
        self.bytes += entry.bytes;
        self.entries.push_back(JournalEntry { number: self.sent, ..entry });
        while self.bytes > self.bytes_max
            && self.entries.len() > 1
            && !(self.is_full() && self.bytes < 2 * self.bytes_max)
        {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes;
            self.is_trimmed = true;
            if !oldest.kept && !oldest.is_refused() {
                self.dropped = self.dropped.max(oldest.number);
            }
        }
    }

    /// Is there no room for more entries that too few replicas have?
    pub(super) fn is_full(&self) -> bool {
        let is_wanted = |oldest: &JournalEntry| oldest.kept && oldest.number > self.safe;
        self.bytes > self.bytes_max && self.entries.front().is_some_and(is_wanted)
    }

    /// The last entry that Redis confirmed, if nothing that was sent before it is still under way. To be read before
    /// replicas are asked whether they have everything written so far.
    pub(super) fn applied_last(&self) -> u64 {
        let recent = self.entries.len().saturating_sub(RECENT);
        // A take-over or a replay goes over another connection than batches, and may overtake them.
        let under_way =
            self.entries.range(recent..).filter(|entry| entry.is_doubtful()).map(|entry| entry.number).min();
        under_way.map_or(self.applied, |first| self.applied.min(first.saturating_sub(1)))
    }

    /// As many replicas as are wanted have everything up to this entry.
    pub(super) fn is_safe(&mut self, through: u64) {
        self.safe = self.safe.max(through);
    }

    /// All entries up to the last confirmed one that too few replicas may have and that are not on disk yet; none if one of
    /// them was dropped.
    pub(super) fn unkept(&self) -> Option<Vec<Unkept>> {
        if self.dropped > self.safe {
            return None;
        }
        let end = self.applied_end();
        // An entry that was sent again stays where it was the first time.
        let is_due = |entry: &JournalEntry| entry.is_due(self.safe);
        let mut begin = if self.is_scattered { 0 } else { end };
        while begin > 0 && self.entries.range(begin.saturating_sub(RECENT)..begin).any(is_due) {
            begin = begin.saturating_sub(RECENT);
        }
        Some(self.unkept_of(begin..end, is_due))
    }

    /// The same for the next process: everything that is remembered and not on disk yet, even what enough replicas have.
    /// They may come back without it. This process would notice and replay it; the next one has nothing but the file.
    pub(super) fn remembered(&self) -> Vec<Unkept> {
        self.unkept_of(0..self.applied_end(), |entry| !entry.kept && !entry.is_refused() && !entry.deed.is_left())
    }

    /// The place after the last confirmed entry.
    fn applied_end(&self) -> usize {
        self.entries.iter().rposition(|entry| entry.applied).map_or(0, |last| last + 1)
    }

    fn unkept_of(&self, places: Range<usize>, which: impl Fn(&JournalEntry) -> bool) -> Vec<Unkept> {
        let unkept = self.entries.range(places).filter(|&entry| which(entry)).map(|entry| {
            let &JournalEntry { number, applied, .. } = entry;
            Unkept { number, deed: entry.deed.clone(), moves: entry.moves.clone(), applied }
        });
        unkept.collect()
    }

    /// Notes that these are on disk.
    pub(super) fn kept(&mut self, kept: &[Unkept]) {
        let mut numbers: HashMap<u64, bool> = kept.iter().map(|one| (one.number, one.applied)).collect();
        let mut others = 0;
        let within = if self.is_scattered { usize::MAX } else { RECENT };
        for entry in self.entries.iter_mut().rev() {
            if let Some(applied) = numbers.remove(&entry.number) {
                // If Redis answered while the entry was written, it must be written once more.
                (entry.kept, others) = (applied == entry.applied, 0);
            } else {
                others += 1;
            }
            // An entry that was sent again meanwhile has another number.
            if numbers.is_empty() || others > within {
                break;
            }
        }
        let is_left = |entry: &JournalEntry| entry.applied && entry.is_due(self.safe);
        self.is_scattered = self.is_scattered && self.entries.iter().any(is_left);
    }

    /// The redo journal was emptied, because enough replicas have everything that was in it.
    pub(super) fn emptied(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.kept = false);
    }

    /// Adds what an earlier process kept, in order.
    pub(super) fn restore(&mut self, deed: Deed, moves: Vec<Move>, applied: bool) {
        self.sent += 1;
        self.restored.extend(moves.iter().map(|one| (one.shard, one.after.token)));
        let entry = JournalEntry { number: self.sent, kept: true, ..JournalEntry::new(deed, moves, applied) };
        self.bytes += entry.bytes;
        self.bytes_max = self.bytes_max.max(self.bytes);
        self.applied = if applied { self.sent } else { self.applied };
        self.entries.push_back(entry);
    }

    /// Shards go on from these points: entries that do not lead there must not be replayed. The parts of such entries that
    /// concern other shards stay, if those go on with them.
    pub(super) fn cut(&mut self, heads: &[(ShardId, Point)]) {
        let mut stands: HashMap<ShardId, Point> = heads.iter().copied().collect();
        let mut kept = Vec::with_capacity(self.entries.len());
        let mut entries = std::mem::take(&mut self.entries);
        for mut entry in std::iter::from_fn(|| entries.pop_back()) {
            let leads = |one: &Move| stands.get(&one.shard).is_none_or(|stands| one.after == *stands);
            let strays: Vec<ShardId> = entry.moves.iter().filter(|one| !leads(one)).map(|one| one.shard).collect();
            for one in entry.moves.iter().filter(|one| !strays.contains(&one.shard)) {
                if let Some(stands) = stands.get_mut(&one.shard) {
                    *stands = one.before;
                    entry.applied = true;
                }
            }
            if strays.is_empty() {
                kept.push(entry);
            } else {
                self.bytes = self.bytes.saturating_sub(entry.bytes);
                let rest = entry.without(&strays);
                self.bytes += rest.iter().map(|entry| entry.bytes).sum::<usize>();
                kept.extend(rest);
            }
        }
        self.entries = kept.into_iter().rev().collect();
    }
}

#[cfg(test)]
mod tests;
