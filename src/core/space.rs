//! The free space of one pool: which of its numbers are taken, and where there is room.
//!
//! It is a pure set of numbers and knows nothing else. The family does not matter, because an IPv4 address is just a small
//! number. Callers decide who holds a number and which number a policy prefers.
//!
//! The set is a radix tree over absolute numbers, with six bits per level, in which most levels are left out:
//!
//! ```text
//! 2^128 --> node of 2^24 numbers     all around a node is alike: taken, or free
//!            taken  1100..1  + 64 children: wholly taken, wholly free,
//!            mixed  0011..0  + or mixed; only mixed ones cost memory:
//!              |--> node of 2^12        a leaf: mixed children are words of 64 bits
//!              |--> lone block          one aligned block differs from the rest of the child
//!              `--> ...                 with each: free count, order of its largest free block
//! ```
//!
//! Why this shape:
//! - Wholly taken and wholly free parts are bits of a mask, so untouched and exhausted parts cost nothing, at any size, and
//!   a search never looks at them.
//! - A node knows for each child how much is free below it and how large a free block there is, so a search never goes down
//!   in vain (except once per level if it starts in the middle).
//! - Lone blocks and left-out levels make a single claim in an empty /64 cost one cell of 21 bytes instead of ten nodes.
//!   What is around a node may also be taken, so a hole in a full range is as cheap.
//! - No node is kept that can be left out, whatever the history: a part that was fragmented and is whole again costs
//!   nothing. `check` verifies that.
//!
//! Every operation follows one path, or two for a range: at most 22 levels, 3 for a /8 of IPv4, and about log64 of the
//! number of claims if they are random. No operation loops over numbers. Dense use costs 1.3 bits per number when filled in
//! order and up to 2.1 when filled at random; a random claim in a /64 costs about 50 bytes.
//!
//! `paint` changes any range, `flip` most single numbers, `front` numbers that are taken one after the other from below;
//! `query` and `count` answer questions; `node` defines what a part means; `arena` and `pack` store the parts.
//!
//! Review notes: does a new query still follow one path? Does a new change shorten every node that it may leave longer than
//! needed (`shorten`), including one that moves to a slot of another size?

mod arena;
mod bits;
mod check;
mod count;
mod flip;
mod front;
mod node;
mod pack;
mod paint;
mod query;
#[cfg(test)]
mod tests;

use std::fmt;
use std::iter;

use arena::Arena;
use bits::{Block, NumberRange};
use front::{Front, Taking};
use node::Part;

/// The free and the taken numbers of one pool. Everything outside the pool counts as taken.
#[derive(Clone)]
pub struct Space {
    pool: NumberRange,
    /// The whole space; outside the pool its numbers are taken.
    root: Part,
    arena: Arena,
    /// The lowest free run, if numbers are taken in order. Below its next number everything is taken, whatever the tree says.
    front: Front,
}

impl Space {
    /// A pool with all of `first..=last` free. O(depth), and only a few dozen bytes if the ends are aligned.
    ///
    /// # Panics
    ///
    /// If `first` is above `last`, or if the pool is all of `u128`, because its size does not fit into a `u128`.
    pub fn new(first: u128, last: u128) -> Self {
        assert!(first <= last, "pool from {first} to {last}");
        assert!((first, last) != (0, u128::MAX), "a pool of 2^128 numbers cannot be counted");
        let pool = NumberRange { first, last };
        let mut arena = Arena::new();
        let root = arena.paint(Block::ALL, Part::uniform(true, Block::ALL.bits), pool, false);
        Self { pool, root, arena, front: Front::default() }
    }

    /// First number of the pool. O(1).
    pub fn first(&self) -> u128 {
        self.pool.first
    }

    /// Last number of the pool. O(1).
    pub fn last(&self) -> u128 {
        self.pool.last
    }

    /// Marks every number of `first..=last` that is in the pool as taken. Taken numbers stay taken.
    ///
    /// O(depth), plus one step per node that becomes superfluous; see [`Space::vacate`] for memory.
    pub fn occupy(&mut self, first: u128, last: u128) {
        self.change(first, last, true);
    }

    /// Marks every number of `first..=last` that is in the pool as free. Free numbers stay free.
    ///
    /// O(depth), plus one step per node that becomes superfluous. When three eighths of the memory lie idle, what is in use
    /// is copied and the rest given back. That is O(1) per change since the last time, but it happens at once.
    pub fn vacate(&mut self, first: u128, last: u128) {
        self.change(first, last, false);
    }

    /// Is every number of `first..=last` inside the pool and free? An empty range (`first` above `last`) is not free. O(depth).
    pub fn is_free(&self, first: u128, last: u128) -> bool {
        let range = NumberRange { first, last };
        first <= last && self.pool.covers(range) && self.first_of(true, first).is_none_or(|taken| taken > last)
    }

    /// How many numbers are free. O(1).
    pub fn free(&self) -> u128 {
        self.root.free - self.front.untold()
    }

    /// How many numbers of `first..=last` are free; those outside the pool are not. O(depth).
    pub fn free_in(&self, first: u128, last: u128) -> u128 {
        let first = first.max(self.front.floor());
        if first > last {
            return 0;
        }
        let below = |number| self.arena.free_below(Block::ALL, self.root, number);
        let up_to_last = last.checked_add(1).map_or(self.root.free, below);
        up_to_last - below(first)
    }

    /// Largest `order` such that an aligned block of 2^order numbers is wholly free; none if nothing is free. O(1), or
    /// O(depth) for each order in which numbers taken in order have broken the largest block.
    pub fn largest_order(&self) -> Option<u8> {
        if self.front.untold() == 0 {
            return self.root.order;
        }
        (0..=self.root.order?).rev().find(|&order| self.lowest(order, 0).is_some())
    }

    /// Can there be an aligned block of 2^order free numbers? Only a no is certain. O(1).
    pub fn may_have(&self, order: u8) -> bool {
        self.root.order.is_some_and(|largest| largest >= order)
    }

    /// First number of the lowest wholly free block of 2^order numbers that starts at or after `from`. Blocks are aligned
    /// absolutely, not relative to the pool. Does not wrap around.
    ///
    /// O(depth); O(1) if there is no such block anywhere, and for the lowest number while numbers are taken in order.
    pub fn lowest(&self, order: u8, from: u128) -> Option<u128> {
        if !self.may_have(order) {
            return None;
        }
        let floor = self.front.floor();
        if order == 0 && from <= floor && self.front.run().is_some() {
            return Some(floor);
        }
        // Below the floor everything is taken, so no block that begins there is free.
        let from = from.max(floor);
        if order == 0 {
            return self.first_of(false, from);
        }
        // Some block of this order exists, so it is below 128.
        let from = from.checked_next_multiple_of(1 << order)?;
        self.arena.lowest_block(order, Block::ALL, self.root.content, from)
    }

    /// The free number that has `index` free numbers before it. O(depth).
    pub fn nth_free(&self, index: u128) -> Option<u128> {
        // The first numbers that the tree believes to be free are the ones that the front has taken.
        (index < self.free()).then(|| self.arena.nth_free(Block::ALL, self.root, index + self.front.untold()))
    }

    /// Maximal runs (first, last, taken) from `from` to the end of the pool, ascending; taken and free runs alternate. The
    /// first run starts at `from`, or with the pool if that is later. O(depth) per run.
    pub fn runs(&self, from: u128) -> impl Iterator<Item = (u128, u128, bool)> + '_ {
        let mut next = Some(from.max(self.pool.first));
        iter::from_fn(move || {
            let first = next.filter(|&first| first <= self.pool.last)?;
            let taken = self.first_of(false, first) != Some(first);
            let change = self.first_of(!taken, first).filter(|&change| change <= self.pool.last);
            next = change;
            Some((first, change.map_or(self.pool.last, |change| change - 1), taken))
        })
    }

    /// Bytes of heap in use, idle capacity included. O(1).
    pub fn memory_bytes(&self) -> usize {
        self.arena.memory_bytes()
    }

    /// Checks every internal invariant: counts, orders, that nothing could be written more briefly, that no memory is lost,
    /// and that nothing is free outside the pool. O(nodes).
    ///
    /// # Errors
    ///
    /// Names the first wrong part.
    pub fn check(&self) -> Result<(), String> {
        self.arena.check_all(Block::ALL, self.root)?;
        let inside = self.free_in(self.pool.first, self.pool.last);
        if inside != self.free() {
            return Err(format!("{} free, but only {inside} inside the pool", self.free()));
        }
        if let Some(run) = self.front.run() {
            let in_tree = |taken, from| self.arena.first_of(taken, Block::ALL, self.root.content, from);
            let is_free = in_tree(true, run.first).is_none_or(|taken| taken > run.last);
            if in_tree(false, 0) != Some(run.first) || !is_free || run.next < run.first || run.next > run.last {
                return Err(format!("{run:?} is not the lowest free run of its tree"));
            }
        }
        Ok(())
    }

    fn first_of(&self, taken: bool, from: u128) -> Option<u128> {
        let floor = self.front.floor();
        if taken && from < floor {
            return Some(from);
        }
        self.arena.first_of(taken, Block::ALL, self.root.content, from.max(floor))
    }

    fn change(&mut self, first: u128, last: u128, taken: bool) {
        if taken && first == last {
            match self.front.take(first) {
                Taking::Taken => return,
                Taking::Tell(untold) => return self.paint(untold, true),
                Taking::NotNext => {}
            }
        }
        if first > last {
            return;
        }
        let Some(range) = self.pool.clip(NumberRange { first, last }) else {
            return;
        };
        if taken && range.last < self.front.floor() {
            return;
        }
        if let Some(untold) = self.front.give_way(range, taken) {
            self.paint(untold, true);
        }
        self.paint(range, taken);
        if taken && range.first == range.last && self.front.note_taken(range.first) {
            let run = self.first_of(false, self.pool.first).map(|first| {
                let end = self.first_of(true, first).map_or(self.pool.last, |taken| taken - 1);
                (first, end.min(self.pool.last))
            });
            self.front.begin(run);
        }
    }

    fn paint(&mut self, range: NumberRange, taken: bool) {
        let short = if range.first == range.last { self.arena.flip(self.root, range.first, taken) } else { None };
        self.root = short.unwrap_or_else(|| self.arena.paint(Block::ALL, self.root, range, taken));
        if self.arena.is_sparse() {
            (self.arena, self.root.content) = self.arena.compact(self.root.content);
        }
    }
}

impl fmt::Debug for Space {
    /// A summary: the tree of a large pool would fill the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space")
            .field("first", &self.pool.first)
            .field("last", &self.pool.last)
            .field("free", &self.free())
            .field("largest_order", &self.largest_order())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}
