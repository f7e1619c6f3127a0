//! How shards get from one point to another, as far as the journal remembers.

use std::collections::HashMap;

use super::{Author, Deed, Forgotten, Journal, JournalEntry, Point, ToReplay};
use crate::store::{Epoch, ShardId, Token};

impl Journal {
    /// For each shard, the least that Redis must have: the point after the last entry that Redis confirmed.
    pub(in crate::store::redis) fn standing(&self) -> Vec<(ShardId, Point)> {
        let stands = |shard| self.entries.of_shard(shard).rfind(|(at, _)| self.entries.get(*at).applied);
        self.entries.shards().filter_map(|shard| Some((shard, stands(shard)?.1.after))).collect()
    }

    /// Given where the shards stand in Redis: which entries are missing there of those that lead to where each shard must at
    /// least stand ([`Self::standing`]).
    pub(in crate::store::redis) fn missing(
        &self,
        heads: &[(ShardId, Point)],
        standing: &[(ShardId, Point)],
    ) -> ToReplay {
        let mut wanted = vec![false; self.entries.len()];
        let mut elsewhere = Vec::new();
        for &(shard, goal) in standing {
            let Some(&(_, head)) = heads.iter().find(|(other, _)| *other == shard) else { continue };
            if head == goal {
                continue;
            }
            // If the goal was trimmed since, nothing is known about it.
            let is_known = self.entries.of_shard(shard).any(|(_, one)| one.after == goal);
            // If no calls are kept, nobody remembers how the shard went on.
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
            let is_parted = entry.deed.is_found() && !elsewhere.is_empty();
            if is_parted || entry.moves.iter().any(|one| closed.contains(&one.shard)) {
                // Whatever follows it is held up as well.
                closed.extend(entry.moves.iter().map(|one| one.shard));
            } else {
                missing.push(Forgotten { deed: entry.deed.clone(), moves: entry.moves.clone() });
            }
        }
        closed.retain(|shard| !elsewhere.contains(shard));
        ToReplay { missing, elsewhere, held_up: closed }
    }

    /// Do the entries lead a shard from one point to the other?
    pub(in crate::store::redis) fn leads(&self, shard: ShardId, from: Point, to: Point) -> bool {
        self.way(shard, from, to).is_some()
    }

    /// All that is remembered of how this process brought a shard to a point, oldest first.
    pub(in crate::store::redis) fn way_to(&self, shard: ShardId, to: Point) -> Vec<Forgotten> {
        let (mut way, mut stands) = (Vec::new(), to);
        for (at, one) in self.entries.of_shard(shard).rev() {
            if one.after == stands {
                let JournalEntry { deed, moves, .. } = self.entries.get(at);
                if deed.is_left() {
                    break;
                }
                way.push(Forgotten { deed: deed.clone(), moves: moves.clone() });
                stands = one.before;
            }
        }
        way.reverse();
        way
    }

    /// All that this process did to a shard on the line that leads to a point, as far as it is remembered, oldest first:
    /// what it did in earlier tenures, whoever came in between; the batches that the previous owner left, of which that
    /// owner may not know; and the way to the point. The point may also be one that another owner left and a take-over of
    /// this process found. Also returns whether this is all that the process ever did there.
    pub(in crate::store::redis) fn stretches_to(&self, shard: ShardId, to: Point) -> (Vec<Forgotten>, bool) {
        let (mut way, mut stands, mut is_found) = (Vec::new(), to, false);
        for (at, one) in self.entries.of_shard(shard).rev() {
            let JournalEntry { deed, moves, applied, .. } = self.entries.get(at);
            // Anything before a batch that another owner left can only stem from an earlier tenure of this process.
            let takes = matches!(deed, Deed::Take(_)) || deed.is_left();
            if one.after == stands || (is_found && *applied) {
                way.push(Forgotten { deed: deed.clone(), moves: moves.clone() });
                (stands, is_found) = (one.before, takes);
            } else if way.is_empty() && takes && one.before == stands {
                is_found = true;
            }
        }
        way.reverse();
        let is_all = match way.first() {
            Some(first) => matches!(first.deed, Deed::Take(_)) || first.deed.is_left(),
            None => is_found && self.bytes_max > 0 && !self.is_trimmed,
        };
        (way, is_all)
    }

    /// The point at which the way to another one begins, and its epoch: where a take-over found the shard, or where the
    /// batches that the previous owner left begin. None if the way begins with a change of this process, because what came
    /// before is forgotten.
    pub(in crate::store::redis) fn begins(&self, shard: ShardId, to: Point) -> Option<(Point, Epoch)> {
        let (mut first, mut stands) = (None, to);
        for (at, one) in self.entries.of_shard(shard).rev() {
            if one.after == stands {
                (first, stands) = (Some(at), one.before);
            }
        }
        match self.entries.get(first?).deed {
            Deed::Take(epoch) => Some((stands, Epoch(epoch.0.checked_sub(1)?))),
            Deed::Batch(ref batch) if batch.author == Author::Other => Some((stands, batch.epoch)),
            Deed::Commit(_) | Deed::Batch(_) => None,
        }
    }

    /// The point that a shard reaches from this one by entries that Redis once applied.
    pub(in crate::store::redis) fn onward(&self, shard: ShardId, from: Point) -> Point {
        let applied = self.entries.of_shard(shard).filter(|(at, _)| self.entries.get(*at).applied);
        // If the line forked, the way that was taken last counts.
        let mut next: HashMap<Point, Point> = applied.map(|(_, one)| (one.before, one.after)).collect();
        let mut stands = from;
        while let Some(after) = next.remove(&stands) {
            stands = after;
        }
        stands
    }

    /// Is this a token of this process, as far as is remembered?
    pub(in crate::store::redis) fn is_own(&self, shard: ShardId, token: Token) -> bool {
        self.entries.of_shard(shard).any(|(at, one)| one.after.token == token && !self.entries.get(at).deed.is_left())
    }

    /// Whose batches a take-over found, given the token that it ended. None if they are this process's, which it remembers.
    pub(in crate::store::redis) fn author_of(&self, shard: ShardId, before: Token) -> Option<Author> {
        if self.is_restored(shard, before) {
            return Some(Author::Before);
        }
        (!self.is_own(shard, before)).then_some(Author::Other)
    }

    /// Is it remembered that this process brought the shard to this point?
    pub(in crate::store::redis) fn knows(&self, shard: ShardId, point: Point) -> bool {
        self.entries.of_shard(shard).any(|(at, one)| one.after == point && !self.entries.get(at).deed.is_left())
    }

    /// The last point, on the way to this one, that an entry in the redo journal leads to.
    pub(in crate::store::redis) fn kept_last(&self, shard: ShardId, to: Point) -> Option<Point> {
        let mut stands = to;
        for (at, one) in self.entries.of_shard(shard).rev() {
            if one.after == stands {
                if self.entries.get(at).kept {
                    return Some(stands);
                }
                stands = one.before;
            }
        }
        None
    }

    /// The entries by which a shard gets from one point to another.
    fn way(&self, shard: ShardId, from: Point, to: Point) -> Option<Vec<usize>> {
        let (mut way, mut stands) = (Vec::new(), to);
        if stands == from {
            return Some(way);
        }
        // Each entry was sent after the one that it follows.
        for (at, one) in self.entries.of_shard(shard).rev() {
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
