//! Queries. They change nothing; each follows one path down the tree, or two.

use super::arena::Arena;
use super::bits::{Block, first_at_least, group_starts, select};
use super::node::{Content, Node};

impl Arena {
    /// The lowest number of the slot at or after `from` that is taken (`taken`), or that is free.
    pub fn first_of(&self, taken: bool, slot: Block, content: Content, from: u128) -> Option<u128> {
        let from = from.max(slot.start);
        let (block, outside) = match content {
            Content::Free => return (!taken).then_some(from),
            Content::Taken => return taken.then_some(from),
            Content::Lone { block, taken } => (block, !taken),
            Content::Node(id) => (self.node(id).block(), self.node(id).outside),
        };
        let has_outside = block.bits < slot.bits && outside == taken;
        if from < block.start && has_outside {
            return Some(from);
        }
        if from <= block.last() {
            let from = from.max(block.start);
            let inside = match content {
                Content::Node(id) => self.first_in_node(taken, self.node(id), from),
                _ => (outside != taken).then_some(from),
            };
            if inside.is_some() {
                return inside;
            }
        }
        // The slot is larger than the block, so a block that ends at the very last number has nothing behind it.
        let after = if from > block.last() { from } else { block.last().checked_add(1)? };
        (has_outside && after <= slot.last()).then_some(after)
    }

    fn first_in_node(&self, taken: bool, node: &Node, from: u128) -> Option<u128> {
        let first = node.index(from);
        let uniform = if taken { node.taken } else { node.free() };
        let mut children = (uniform | node.mixed) & (!0 << first);
        // Only the child that `from` is in may turn out to have no such number; any other child has one.
        while children != 0 {
            let index = children.trailing_zeros();
            let child = node.child(index);
            let from = from.max(child.start);
            let found = if uniform & (1 << index) != 0 {
                Some(from)
            } else if node.is_leaf() {
                let word = self.word(node, index);
                let ones = if taken { !word } else { word } & (!0 << (from as u32 & 63));
                (ones != 0).then(|| child.start | u128::from(ones.trailing_zeros()))
            } else {
                match self.content(node, index) {
                    Content::Node(id) if self.node(id).block() == child => {
                        self.first_in_node(taken, self.node(id), from)
                    }
                    content => self.first_of(taken, child, content, from),
                }
            };
            if found.is_some() {
                return found;
            }
            children &= children - 1;
        }
        None
    }

    /// The lowest aligned free block of 2^order numbers in the slot that starts at or after `from`,
    /// a multiple of 2^order.
    pub fn lowest_block(&self, order: u8, slot: Block, content: Content, from: u128) -> Option<u128> {
        if order > slot.bits || from > slot.last() {
            return None;
        }
        let from = from.max(slot.start);
        let (block, outside) = match content {
            Content::Free => return Some(from),
            Content::Taken => return None,
            Content::Lone { block, taken } => (block, !taken),
            Content::Node(id) => (self.node(id).block(), self.node(id).outside),
        };
        let has_outside = block.bits < slot.bits && !outside;
        let candidate = Block { start: from, bits: order };
        let meets = candidate.contains(block.start) || block.contains(from);
        if has_outside && order < slot.bits && !meets {
            return Some(from);
        }
        if order <= block.bits && from <= block.last() {
            let from = from.max(block.start);
            let inside = match content {
                Content::Node(id) => self.lowest_block_in_node(order, self.node(id), from),
                _ => outside.then_some(from),
            };
            if inside.is_some() {
                return inside;
            }
        }
        // After the larger of the two: the block, or the candidate that contains it.
        let after = candidate.last().max(block.last()).checked_add(1)?;
        (has_outside && order < slot.bits && after <= slot.last()).then_some(after)
    }

    fn lowest_block_in_node(&self, order: u8, node: &Node, from: u128) -> Option<u128> {
        let first = node.index(from);
        let free = node.free() & (!0 << first);
        if order > node.shift {
            let groups = group_starts(node.free(), order - node.shift) & free;
            return (groups != 0).then(|| node.child(groups.trailing_zeros()).start);
        }
        // As above, only the child that `from` is in may turn out to have none.
        let mut next = first;
        while next < 64 {
            let index = self.next_of_order(order, node, next)?;
            let child = node.child(index);
            let from = from.max(child.start);
            let found = if free & (1 << index) != 0 {
                Some(from)
            } else if node.is_leaf() {
                let groups = group_starts(self.word(node, index), order) & (!0 << (from as u32 & 63));
                (groups != 0).then(|| child.start | u128::from(groups.trailing_zeros()))
            } else {
                self.lowest_block(order, child, self.content(node, index), from)
            };
            if found.is_some() {
                return found;
            }
            next = index + 1;
        }
        None
    }

    /// The first child at or after `index` with a free block of 2^order numbers, where a child has at least that many numbers.
    fn next_of_order(&self, order: u8, node: &Node, index: u32) -> Option<u32> {
        let free = node.free() & (!0 << index);
        let rank = node.rank(index);
        let mixed = first_at_least(&self.orders(node)[rank..], order)
            .map(|further| select(node.mixed, (rank + further) as u32));
        let free = (free != 0).then(|| free.trailing_zeros());
        match (mixed, free) {
            (Some(mixed), Some(free)) => Some(mixed.min(free)),
            (mixed, free) => mixed.or(free),
        }
    }
}
