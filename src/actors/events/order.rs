//! In which order is told what was read from the store. Shards have no order among each other, but who follows a subnet that
//! moves from one to another is told first that something leaves, then that it arrives, as from memory
//! ([`DurableGroup`](super::DurableGroup)).
//!
//! What leaves may lie behind what was read at once: that of a large subnet is more than a page by itself. So it is looked for
//! there, once. Where it is not found it is older than the cursor, or so much lies between that nobody waits for it.
//!
//! Before: `page` and `scan`, which read. Review notes: is the order within each shard kept?

use std::collections::{HashMap, HashSet, VecDeque};

use super::filter::Filter;
use crate::limits::EVENTS_PAGE_BYTES;
use crate::store::history::{Passing, RecordedBatch, Stretch};
use crate::store::{ShardId, Store, StoreError, TransactionId};

/// A batch, and what goes with it from one network to another, where that is wanted.
#[derive(Debug)]
pub(super) struct Ordered {
    pub(super) batch: RecordedBatch,
    pub(super) passing: Passing,
}

/// Puts what was read of several shards in order. `stretches` are those of which it is the beginning: what leaves with batches
/// behind it comes in, too, and all of its shard before that.
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
        let is_wanted = !is_one && filter.may_want(&batch)?;
        let passing = if is_wanted { batch.passing()? } else { Passing::default() };
        read.push(Ordered { batch, passing });
    }
    let left: HashSet<TransactionId> = read.iter().flat_map(|one| &one.passing.leaves).copied().collect();
    let arrived = read.iter().flat_map(|one| &one.passing.arrives).copied();
    let mut missing: HashSet<TransactionId> = arrived.filter(|transaction| !left.contains(transaction)).collect();
    if missing.is_empty() {
        return Ok(if left.is_empty() { read } else { in_order(read) });
    }
    for stretch in &mut stretches {
        let of_shard = read.iter().filter(|one| one.batch.shard == stretch.shard).map(|one| one.batch.seq);
        stretch.after = of_shard.fold(stretch.after, Ord::max);
    }
    stretches.retain(|stretch| stretch.after < stretch.until);
    let mut behind = Vec::new();
    let mut wanted = 0;
    for batch in store.recorded(stretches, EVENTS_PAGE_BYTES).await? {
        let passing = batch.passing()?;
        for transaction in &passing.leaves {
            if missing.remove(transaction) {
                wanted = behind.len() + 1;
            }
        }
        behind.push(Ordered { batch, passing });
    }
    behind.truncate(wanted);
    read.extend(behind);
    Ok(in_order(read))
}

/// Each batch with which something arrives behind that with which it leaves.
fn in_order(read: Vec<Ordered>) -> Vec<Ordered> {
    let mut order = Order::of(&read);
    for at in 0..read.len() {
        order.up_to(at, &read);
    }
    let mut read: Vec<Option<Ordered>> = read.into_iter().map(Some).collect();
    order.told.into_iter().filter_map(|at| read[at].take()).collect()
}

/// Batches by their places in what was read.
struct Order {
    /// What is not told of each shard.
    left: HashMap<ShardId, VecDeque<usize>>,
    leaves: HashMap<TransactionId, usize>,
    /// Shards that are told up to something already.
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

    /// Tells a shard up to this batch, and before each what leaves for it. As deep as there are shards: of two that go both ways
    /// at once one is first.
    fn up_to(&mut self, last: usize, read: &[Ordered]) {
        let shard = read[last].batch.shard;
        if !self.begun.insert(shard) {
            return;
        }
        while let Some(at) = self.left.get_mut(&shard).and_then(|left| left.pop_front_if(|at| *at <= last)) {
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

    /// Batches of shards, with what leaves or arrives with each.
    fn told(read: &[(u16, u64, &[(&str, u128)])]) -> Vec<(u16, u64)> {
        let read = read.iter().map(|(shard, seq, passes)| {
            let of = |leaves: bool| {
                let of = passes.iter().filter(move |(how, _)| (*how == OUT) == leaves);
                of.map(|(_, transaction)| TransactionId(*transaction)).collect()
            };
            let batch = RecordedBatch { shard: ShardId(*shard), seq: Seq(*seq), digest: None, bytes: [].into() };
            Ordered { batch, passing: Passing { leaves: of(true), arrives: of(false) } }
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
        // On to a third one.
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
