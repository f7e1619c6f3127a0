//! How shards come from one point to another by what the journal remembers.

use std::collections::HashMap;

use super::{Author, Deed, Forgotten, Journal, JournalEntry, Point, ToReplay};
use crate::store::{Epoch, ShardId, Token};

impl Journal {
    /// Of each shard, where it stands at least: after the last entry that Redis said it did.
    pub(in crate::store::redis) fn standing(&self) -> Vec<(ShardId, Point)> {
        let stands = |shard| self.entries.of_shard(shard).rfind(|(at, _)| self.entries.get(*at).applied);
        self.entries.shards().filter_map(|shard| Some((shard, stands(shard)?.1.after))).collect()
    }

    /// What is missing in Redis, where shards stand so, of what leads to where each stood at least ([`Self::standing`]).
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
            // Trimmed since: then nothing is known of it.
            let is_known = self.entries.of_shard(shard).any(|(_, one)| one.after == goal);
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
            let is_parted = entry.deed.is_found() && !elsewhere.is_empty();
            if is_parted || entry.moves.iter().any(|one| closed.contains(&one.shard)) {
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
    pub(in crate::store::redis) fn leads(&self, shard: ShardId, from: Point, to: Point) -> bool {
        self.way(shard, from, to).is_some()
    }

    /// All that is remembered of how a shard came to a point by what this process did, oldest first.
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

    /// All that this process did to a shard on the line that came to a point, as far as it is remembered, oldest first: the way
    /// there, what the owner before left, which that one may not know, and before it what this process did when it owned the shard
    /// before, whoever came in between. Also where that point is what another owner left, which a take-over of this process found.
    /// Tells whether that is all that it ever did.
    pub(in crate::store::redis) fn stretches_to(&self, shard: ShardId, to: Point) -> (Vec<Forgotten>, bool) {
        let (mut way, mut stands, mut is_found) = (Vec::new(), to, false);
        for (at, one) in self.entries.of_shard(shard).rev() {
            let JournalEntry { deed, moves, applied, .. } = self.entries.get(at);
            // Before what another owner left, too, this process did something at most when it owned the shard before.
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

    /// The point at which the way to another one begins, and its epoch: where a take-over found the shard, or what the owner
    /// before left begins. None where a change of this process comes first, because what was before it is forgotten.
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

    /// How far a shard comes from a point by what Redis did at the time.
    pub(in crate::store::redis) fn onward(&self, shard: ShardId, from: Point) -> Point {
        let applied = self.entries.of_shard(shard).filter(|(at, _)| self.entries.get(*at).applied);
        // Where it forked, the way that was taken last counts.
        let mut next: HashMap<Point, Point> = applied.map(|(_, one)| (one.before, one.after)).collect();
        let mut stands = from;
        while let Some(after) = next.remove(&stands) {
            stands = after;
        }
        stands
    }

    /// Is it a token of this process's, as far as is remembered?
    pub(in crate::store::redis) fn is_own(&self, shard: ShardId, token: Token) -> bool {
        self.entries.of_shard(shard).any(|(at, one)| one.after.token == token && !self.entries.get(at).deed.is_left())
    }

    /// Who owned a shard before, and is to be asked for what it left? None for this process, which knows what it did.
    pub(in crate::store::redis) fn author_of(&self, shard: ShardId, before: Token) -> Option<Author> {
        if self.restored.contains(&(shard, before)) {
            return Some(Author::Before);
        }
        (!self.is_own(shard, before)).then_some(Author::Other)
    }

    /// Is it remembered that this process led to this point?
    pub(in crate::store::redis) fn knows(&self, shard: ShardId, point: Point) -> bool {
        self.entries.of_shard(shard).any(|(at, one)| one.after == point && !self.entries.get(at).deed.is_left())
    }

    /// How far a shard comes on the way to a point by what is in the redo journal.
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

    /// The entries by which a shard comes from one point to another.
    fn way(&self, shard: ShardId, from: Point, to: Point) -> Option<Vec<usize>> {
        let (mut way, mut stands) = (Vec::new(), to);
        if stands == from {
            return Some(way);
        }
        // Each was sent after the one that it follows.
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
