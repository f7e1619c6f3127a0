//! What this process sent last, in order: batches and take-overs, each with where its shards stood before and after it. So
//! that it can be played again when Redis went back. And the last batches of the owner before, as this process found them: of
//! one that was under way when it was cut off that owner does not know that it was done (see `left`).
//!
//! Pure: knows no connection. A shard's head is found in here or it is not; nothing is guessed. Bounded by bytes, all that are
//! allocated: what is older than the bound cannot be healed.
//!
//! Neighbours: `commits`, `take` and `left` write it, `heal` plays it; `ways` reads it; `entries` knows what is of which shard.

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
    /// On no line.
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

/// What is played again.
#[derive(Debug, Clone)]
pub(super) enum Deed {
    /// The call of a commit, byte for byte.
    Commit(Arc<ScriptCall>),
    /// The take-over of a shard, after which this was its epoch.
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

/// Whose a batch without its call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    /// This process's: what was sent together with it is put aside.
    Own,
    /// A process's before this one, whose memory this one has: Redis did it when that had ended, so it was not kept. Nobody else
    /// has it.
    Before,
    /// Another owner's, which may not know that it was done.
    Other,
}

impl Deed {
    /// Is it another owner's?
    pub(super) fn is_left(&self) -> bool {
        matches!(self, Self::Batch(batch) if batch.author == Author::Other)
    }

    /// Was it found in the log of its shard, without what was sent together with it? Such is played where every shard can be
    /// brought to where it stood, or not at all: its owner has it in calls that change several shards, and those fit nowhere once
    /// one of the shards has gone on.
    pub(super) fn is_found(&self) -> bool {
        matches!(self, Self::Batch(batch) if batch.author != Author::Own)
    }

    /// In which epoch it changes a shard that it changes.
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
    /// Redis said that it did it.
    applied: bool,
    /// In the order in which they were sent last, or played again.
    number: u64,
    /// It is in the redo journal, too, and there as what it is here.
    kept: bool,
    /// What it takes here.
    bytes: usize,
}

impl JournalEntry {
    fn new(deed: Deed, mut moves: Vec<Move>, applied: bool) -> Self {
        moves.shrink_to_fit();
        // Queues that grew have room for as many again.
        let queued = 2 * (size_of::<Self>() + moves.len() * size_of::<Place>());
        let own = queued + moves.len() * size_of::<Move>() + ALLOCATION_BYTES;
        let bytes = own
            + match &deed {
                // The call and how often it is shared, its texts, and where they end.
                Deed::Commit(call) => call.bytes() + 2 * size_of::<usize>() + 3 * ALLOCATION_BYTES,
                Deed::Take(_) => 0,
                Deed::Batch(batch) => size_of::<LoneBatch>() + batch.bytes.capacity() + 2 * ALLOCATION_BYTES,
            };
        Self { deed, moves, applied, number: 0, kept: false, bytes }
    }

    /// What it did to shards other than these, each by itself.
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
            Some(Self { number: self.number, kept: self.kept, ..entry })
        });
        rest.collect()
    }

    /// Is it to be kept, where replicas have everything up to this one?
    fn is_due(&self, safe: u64) -> bool {
        self.number > safe && !self.kept
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
    entries: Entries,
    bytes: usize,
    bytes_max: usize,
    /// Number of the last that was sent.
    sent: u64,
    /// The last of which Redis said that it did it.
    applied: u64,
    /// Up to which as many replicas have them as are wanted.
    safe: u64,
    /// The last that was forgotten without being kept.
    dropped: u64,
    /// What is to be kept may lie anywhere, and not only among the last: something was played again.
    is_scattered: bool,
    /// Something was forgotten for want of room.
    is_trimmed: bool,
    /// Under which tokens a process before this one left something, of which shard.
    restored: HashSet<(ShardId, Token)>,
}

/// What is to be kept where too few replicas have it.
#[derive(Debug)]
pub(super) struct Unkept {
    pub(super) number: u64,
    pub(super) deed: Deed,
    pub(super) moves: Vec<Move>,
    pub(super) applied: bool,
}

impl Journal {
    /// Keeps the last calls, in so many bytes; 0: none. The last take-overs are kept in any case: they take no room, and one
    /// that was lost before anything was acknowledged under it needs nothing else.
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

    /// A call is about to be sent, the first time or again. It has no spare room ([`ScriptCall::fitted`]).
    pub(super) fn sends(&mut self, call: &Arc<ScriptCall>, moves: Vec<Move>) {
        if self.bytes_max == 0 {
            return;
        }
        let recent = self.entries.len().saturating_sub(RECENT);
        if let Some(entry) = self.entries.range_mut(recent..).find(|entry| entry.moves == moves) {
            // Nobody knows whether it was done the first time, nor which of both is.
            self.sent += 1;
            entry.number = self.sent;
            return;
        }
        // Numbers are used again only when what had them certainly was not applied.
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

    /// Redis said that it did what moves its shards so.
    pub(super) fn applied(&mut self, moves: &[Move]) {
        if let Some(entry) = self.entries.iter_mut().rev().find(|entry| entry.moves == moves) {
            // Kept as what Redis may not have done, it would not be played by the next process, whoever was told of it.
            entry.kept &= entry.applied;
            entry.applied = true;
            self.applied = self.applied.max(entry.number);
        }
    }

    /// A shard's line remembers these take-overs: Redis did all that it goes through, also where nobody heard so because this
    /// process was cut off. Of which that was not known, in the order of sending: where it brought each of its shards, and the epoch
    /// in which it did.
    pub(super) fn found(&mut self, shard: ShardId, takes: &Takes) -> Vec<(ShardId, Point, Epoch)> {
        let is_there =
            |(at, one): (usize, Move)| (!self.entries.get(at).applied && takes.lead_through(one.after)).then_some(at);
        let there: Vec<usize> = self.entries.of_shard(shard).filter_map(is_there).collect();
        let mut found = Vec::new();
        for at in there {
            let entry = self.entries.get_mut(at);
            let moved = |one: &Move| Some((one.shard, one.after, entry.deed.epoch_in(one.shard)?));
            found.extend(entry.moves.iter().filter_map(moved));
            (entry.applied, entry.kept) = (true, false);
            self.applied = self.applied.max(entry.number);
        }
        found
    }

    /// Is there something of a shard of which it is not known whether Redis did it?
    pub(super) fn doubts(&self, shard: ShardId) -> bool {
        self.entries.of_shard(shard).any(|(at, _)| !self.entries.get(at).applied)
    }

    /// Redis had forgotten these, and was given them again: all of them, or perhaps not all. Whoever had them before may have
    /// forgotten them as well, so they are as if they had been sent only now. What was asked of replicas before says nothing of
    /// them.
    pub(super) fn played(&mut self, missing: &[Forgotten], all: bool) {
        let first = |moves: &[Move]| moves.first().map(|one| (one.shard, one.after));
        let again: HashSet<_> = missing.iter().filter_map(|missing| first(&missing.moves)).collect();
        // What another owner left is his to keep.
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

    /// A shard is about to be taken for taken over: this is what the owner before left there last, in order. None of what is
    /// another one's is for this process to prove, nor to keep on its disk; what a process before this one did is its own to keep,
    /// unless that had kept it.
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

    /// How many entries were looked at for one shard or another.
    #[cfg(test)]
    pub(super) fn looked(&self) -> usize {
        self.entries.looked.get()
    }

    /// Is anything kept of what is sent?
    pub(super) fn keeps(&self) -> bool {
        self.bytes_max > 0
    }

    /// A shard was taken over.
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

    /// The tenure is over: a take-over of it is not to be repeated, unless what was acknowledged under it is.
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
            if !oldest.kept {
                self.dropped = self.dropped.max(oldest.number);
            }
        }
    }

    /// Is there no room for more of what too few replicas have?
    pub(super) fn is_full(&self) -> bool {
        let is_wanted = |oldest: &JournalEntry| oldest.kept && oldest.number > self.safe;
        self.bytes > self.bytes_max && self.entries.front().is_some_and(is_wanted)
    }

    /// The last of which Redis said that it did it, if nothing that was sent before is still under way: whoever proves that
    /// replicas have what was written until now asks before.
    pub(super) fn applied_last(&self) -> u64 {
        let recent = self.entries.len().saturating_sub(RECENT);
        // A take-over, or what is played again, goes another way than batches do, and may overtake them.
        let under_way = self.entries.range(recent..).filter(|entry| !entry.applied).map(|entry| entry.number).min();
        under_way.map_or(self.applied, |first| self.applied.min(first.saturating_sub(1)))
    }

    /// As many replicas as are wanted have everything up to this one.
    pub(super) fn is_safe(&mut self, through: u64) {
        self.safe = self.safe.max(through);
    }

    /// All up to the last of which Redis said that it did it, that too few replicas may have, and that is not kept yet; none
    /// where something of it is forgotten.
    pub(super) fn unkept(&self) -> Option<Vec<Unkept>> {
        if self.dropped > self.safe {
            return None;
        }
        let end = self.applied_end();
        // One that was sent again stands where it stood the first time.
        let is_due = |entry: &JournalEntry| entry.is_due(self.safe);
        let mut begin = if self.is_scattered { 0 } else { end };
        while begin > 0 && self.entries.range(begin.saturating_sub(RECENT)..begin).any(is_due) {
            begin = begin.saturating_sub(RECENT);
        }
        Some(self.unkept_of(begin..end, is_due))
    }

    /// The same for the next process, which has nothing else: as far as it is remembered, also what replicas had. They may come back
    /// without it, as this process would find out, and give it back.
    pub(super) fn remembered(&self) -> Vec<Unkept> {
        self.unkept_of(0..self.applied_end(), |entry| !entry.kept && !entry.deed.is_left())
    }

    /// Behind the last of which Redis said that it did it.
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

    /// These are kept.
    pub(super) fn kept(&mut self, kept: &[Unkept]) {
        let mut numbers: HashMap<u64, bool> = kept.iter().map(|one| (one.number, one.applied)).collect();
        let mut others = 0;
        let within = if self.is_scattered { usize::MAX } else { RECENT };
        for entry in self.entries.iter_mut().rev() {
            if let Some(applied) = numbers.remove(&entry.number) {
                // Where Redis answered while it was written, it is written once more.
                (entry.kept, others) = (applied == entry.applied, 0);
            } else {
                others += 1;
            }
            // One that was sent again meanwhile has another number.
            if numbers.is_empty() || others > within {
                break;
            }
        }
        let is_left = |entry: &JournalEntry| entry.applied && entry.is_due(self.safe);
        self.is_scattered = self.is_scattered && self.entries.iter().any(is_left);
    }

    /// Nothing of it is in the redo journal any more: enough replicas have all that was there.
    pub(super) fn emptied(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.kept = false);
    }

    /// What a process before this one kept, in order.
    pub(super) fn restore(&mut self, deed: Deed, moves: Vec<Move>, applied: bool) {
        self.sent += 1;
        self.restored.extend(moves.iter().map(|one| (one.shard, one.after.token)));
        let entry = JournalEntry { number: self.sent, kept: true, ..JournalEntry::new(deed, moves, applied) };
        self.bytes += entry.bytes;
        self.bytes_max = self.bytes_max.max(self.bytes);
        self.applied = if applied { self.sent } else { self.applied };
        self.entries.push_back(entry);
    }

    /// Shards go on from here: what was sent and does not lead here is nothing to be played again. What was sent to other shards
    /// together with it is, where those go on with it.
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
