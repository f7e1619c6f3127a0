//! Orders the events that were read from the store. Shards have no order among each other, but a client that follows a subnet
//! which moves from one shard to another is first told that something leaves, then that it arrives, as it is from memory
//! ([`DurableGroup`](super::DurableGroup)).
//!
//! The leaving may lie beyond what was read in one piece: that of a large subnet is more than a page by itself, and a store
//! may know the order of shards only to the second. So the leaving is searched for further on, within bounds. If it is not
//! found, it is older than the cursor, or so much lies between the two that nobody waits for it.
//!
//! Before: `page` and `scan`, which read. Review notes: is the order within each shard kept?

use std::collections::{HashMap, HashSet, VecDeque};

use super::filter::Filter;
use crate::core::types::WallTime;
use crate::limits::EVENTS_PAGE_BYTES;
use crate::store::history::{Passing, RecordedBatch, Stretch};
use crate::store::{ShardId, Store, StoreError, TransactionId};

/// In how many pieces of [`EVENTS_PAGE_BYTES`] a leaving is searched for, at most.
const PIECES_MAX: usize = 32;

/// A batch, and what goes with it from one network to another, if that is wanted.
#[derive(Debug)]
pub(super) struct Ordered {
    pub(super) batch: RecordedBatch,
    pub(super) passing: Passing,
}

/// Puts what was read of several shards in order. `stretches` are those whose beginning was read: what leaves with later
/// batches of them is included too, with everything in its shard before that.
///
/// # Errors
/// As of [`Store::recorded`].
pub(super) async fn leaving_first(
    store: &dyn Store,
    filter: &Filter,
    recorded: Vec<RecordedBatch>,
    mut stretches: Vec<Stretch>,
) -> Result<Vec<Ordered>, StoreError> {
    let is_one = stretches.len() < 2;
    let mut read = Vec::with_capacity(recorded.len());
    for batch in recorded {
        let passing = if is_one { Passing::default() } else { wanted(filter, &batch)? };
        goes_on_behind(&mut stretches, &batch);
        read.push(Ordered { batch, passing });
    }
    let mut behind: Vec<Ordered> = Vec::new();
    for _ in 0..PIECES_MAX {
        let Some(until) = Needed::of(&read, &behind).lacks_until else { break };
        // What leaves is decided before what arrives: a shard whose read batches are all later does not have it.
        let is_beyond = |shard: ShardId| {
            let last = behind.iter().rev().find(|one| one.batch.shard == shard);
            last.is_some_and(|one| one.passing.walls.is_some_and(|(first, _)| first > until))
        };
        stretches.retain(|stretch| stretch.after < stretch.until && !is_beyond(stretch.shard));
        let piece = if stretches.is_empty() {
            Vec::new()
        } else {
            store.recorded(stretches.clone(), EVENTS_PAGE_BYTES).await?
        };
        if piece.is_empty() {
            break;
        }
        for batch in piece {
            let passing = wanted(filter, &batch)?;
            goes_on_behind(&mut stretches, &batch);
            behind.push(Ordered { batch, passing });
        }
    }
    let needed = Needed::of(&read, &behind);
    if needed.of_shard.is_empty() && read.iter().all(|one| one.passing.leaves.is_empty()) {
        return Ok(read);
    }
    let is_needed = |(at, one): &(usize, Ordered)| needed.of_shard.get(&one.batch.shard).is_some_and(|end| at < end);
    read.extend(behind.into_iter().enumerate().filter(is_needed).map(|(_, one)| one));
    Ok(in_order(read))
}

/// What goes with a batch to other networks. An arrival that is not wanted needs nothing before it.
fn wanted(filter: &Filter, batch: &RecordedBatch) -> Result<Passing, StoreError> {
    let mut passing = batch.passing()?;
    if !passing.arrives.is_empty() && !filter.may_want(batch)? {
        passing.arrives.clear();
    }
    Ok(passing)
}

fn goes_on_behind(stretches: &mut [Stretch], batch: &RecordedBatch) {
    if let Some(stretch) = stretches.iter_mut().find(|stretch| stretch.shard == batch.shard) {
        stretch.after = stretch.after.max(batch.seq);
    }
}

/// What must be included of what follows.
#[derive(Default)]
struct Needed {
    /// For each shard, everything before this place.
    of_shard: HashMap<ShardId, usize>,
    /// An arrival up to this time whose leaving was not found.
    lacks_until: Option<WallTime>,
}

impl Needed {
    fn of(read: &[Ordered], behind: &[Ordered]) -> Self {
        let left: HashSet<TransactionId> = read.iter().flat_map(|one| &one.passing.leaves).copied().collect();
        let leaves: HashMap<TransactionId, usize> = (behind.iter().enumerate())
            .flat_map(|(at, one)| one.passing.leaves.iter().map(move |transaction| (*transaction, at)))
            .collect();
        let arrives = |one: &Ordered| {
            let last = one.passing.walls.map_or(WallTime(0), |(_, last)| last);
            one.passing.arrives.iter().map(move |transaction| (*transaction, last)).collect::<Vec<_>>()
        };
        let mut needed = Self::default();
        let mut looked_for: Vec<(TransactionId, WallTime)> = read.iter().flat_map(arrives).collect();
        while let Some((transaction, last)) = looked_for.pop() {
            match leaves.get(&transaction) {
                _ if left.contains(&transaction) => {}
                Some(&at) => {
                    let shard = behind[at].batch.shard;
                    let end = needed.of_shard.entry(shard).or_default();
                    let more = behind.get(*end..=at).unwrap_or_default().iter();
                    // All of the shard before it is included as well, and what arrives with that.
                    looked_for.extend(more.filter(|one| one.batch.shard == shard).flat_map(arrives));
                    *end = (*end).max(at + 1);
                }
                None => needed.lacks_until = needed.lacks_until.max(Some(last)),
            }
        }
        needed
    }
}

/// Puts each batch with an arrival after the batch of its leaving.
fn in_order(read: Vec<Ordered>) -> Vec<Ordered> {
    let mut order = Order::of(&read);
    for at in 0..read.len() {
        order.up_to(at, &read);
    }
    let mut read: Vec<Option<Ordered>> = read.into_iter().map(Some).collect();
    order.told.into_iter().filter_map(|at| read[at].take()).collect()
}

/// The order of batches, by their places in what was read.
struct Order {
    /// The batches of each shard that are not yet in the order.
    left: HashMap<ShardId, VecDeque<usize>>,
    leaves: HashMap<TransactionId, usize>,
    /// Shards of which something is already being put in order.
    begun: HashSet<ShardId>,
    told: Vec<usize>,
}

impl Order {
    fn of(read: &[Ordered]) -> Self {
        let mut left: HashMap<ShardId, VecDeque<usize>> = HashMap::new();
        let mut leaves = HashMap::new();
        for (at, one) in read.iter().enumerate() {
            left.entry(one.batch.shard).or_default().push_back(at);
            leaves.extend(one.passing.leaves.iter().map(|transaction| (*transaction, at)));
        }
        Self { left, leaves, begun: HashSet::new(), told: Vec::with_capacity(read.len()) }
    }

    /// Takes the next batch of a shard, up to this one.
    fn next_of(&mut self, shard: ShardId, last: usize) -> Option<usize> {
        let left = self.left.get_mut(&shard)?;
        if left.front().is_some_and(|at| *at <= last) { left.pop_front() } else { None }
    }

    /// Puts a shard in order up to this batch, and before each batch what leaves for it. Recursion is as deep as there are
    /// shards: if two shards depend on each other, one comes first.
    fn up_to(&mut self, last: usize, read: &[Ordered]) {
        let shard = read[last].batch.shard;
        if !self.begun.insert(shard) {
            return;
        }
        while let Some(at) = self.next_of(shard, last) {
            for transaction in &read[at].passing.arrives {
                if let Some(&leaves) = self.leaves.get(transaction) {
                    self.up_to(leaves, read);
                }
            }
            self.told.push(at);
        }
        self.begun.remove(&shard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Seq;

    const OUT: &str = "leaves";

    /// Shard and number of a batch, with what leaves or arrives with it.
    type Sample<'a> = (u16, u64, &'a [(&'a str, u128)]);

    fn told(read: &[Sample<'_>]) -> Vec<(u16, u64)> {
        let read = read.iter().map(|(shard, seq, passes)| {
            let of = |leaves: bool| {
                let of = passes.iter().filter(move |(how, _)| (*how == OUT) == leaves);
                of.map(|(_, transaction)| TransactionId(*transaction)).collect()
            };
            let batch = RecordedBatch { shard: ShardId(*shard), seq: Seq(*seq), digest: None, bytes: [].into() };
            Ordered { batch, passing: Passing { leaves: of(true), arrives: of(false), walls: None } }
        });
        in_order(read.collect()).iter().map(|one| (one.batch.shard.0, one.batch.seq.0)).collect()
    }

    #[test]
    fn what_leaves_comes_first_however_the_shards_lie_and_each_stays_in_order() {
        let to_the_first = [(0, 1, &[][..]), (0, 2, &[("arrives", 7)]), (1, 1, &[]), (1, 2, &[(OUT, 7)]), (1, 3, &[])];
        assert_eq!(told(&to_the_first), [(0, 1), (1, 1), (1, 2), (0, 2), (1, 3)]);
        let to_the_second = [(0, 1, &[(OUT, 7)][..]), (1, 1, &[("arrives", 7)])];
        assert_eq!(told(&to_the_second), [(0, 1), (1, 1)]);
        // There and back again.
        let both = [
            (0, 1, &[("arrives", 7)][..]),
            (0, 2, &[(OUT, 8)]),
            (1, 1, &[(OUT, 7)]),
            (1, 2, &[("arrives", 8)]),
            (1, 3, &[]),
        ];
        assert_eq!(told(&both), [(1, 1), (0, 1), (0, 2), (1, 2), (1, 3)]);
        // On to a third shard.
        let on = [(0, 1, &[("arrives", 8)][..]), (1, 1, &[("arrives", 7), (OUT, 8)]), (2, 1, &[(OUT, 7)])];
        assert_eq!(told(&on), [(2, 1), (1, 1), (0, 1)]);
    }

    #[test]
    fn what_goes_both_ways_in_one_commit_is_told_once_each() {
        let both = [(0, 1, &[(OUT, 7), ("arrives", 8)][..]), (1, 1, &[("arrives", 7), (OUT, 8)])];
        let mut told = told(&both);
        told.sort_unstable();
        assert_eq!(told, [(0, 1), (1, 1)]);
    }
}
