//! Changes: making a range taken or free while keeping the tree minimal.
//!
//! A change goes down only into the two slots that hold the ends of its range. What lies between them is set by masks, and
//! the nodes below are given up. On the way back, every node that can be written more briefly is.

use super::arena::Arena;
use super::bits::{Block, NumberRange, STEP, ones};
use super::flip::{part_matters, word_matters};
use super::node::{Content, Node, Part};

/// What a change did inside one node.
struct Change {
    /// Numbers that became free, modulo 2^128: taking 3 is a gain of -3.
    gained: u128,
    /// Whether the largest free block of the node may have changed.
    reorder: bool,
}

impl Arena {
    /// Makes `range`, which lies inside the slot, taken or free.
    pub fn paint(&mut self, slot: Block, part: Part, mut range: NumberRange, taken: bool) -> Part {
        if range.covers(slot.range()) {
            self.release(part.content);
            return Part::uniform(taken, slot.bits);
        }
        let (block, outside) = match part.content {
            Content::Free | Content::Taken => (slot, part.content == Content::Taken),
            Content::Lone { block, taken } => (block, !taken),
            Content::Node(id) => (self.node(id).block(), self.node(id).outside),
        };
        if block.bits < slot.bits {
            if taken == outside {
                // Nothing changes around the block.
                let Some(inside) = range.clip(block.range()) else {
                    return part;
                };
                range = inside;
            }
            if range.covers(block.range()) {
                self.release(part.content);
                return self.paint(slot, Part::uniform(outside, slot.bits), range, taken);
            }
        }
        let unchanged = match part.content {
            Content::Free => !taken,
            Content::Taken => taken,
            Content::Lone { block, taken: lone } => lone == taken && block.range().covers(range),
            Content::Node(_) => false,
        };
        if unchanged {
            return part;
        }
        let id = self.enclose(slot, part, range);
        self.paint_node(id, slot, part, range, taken)
    }

    /// A node that means the same as `part` and whose block contains all of `range`.
    fn enclose(&mut self, slot: Block, part: Part, range: NumberRange) -> u32 {
        let hull =
            |block: Block| NumberRange { first: range.first.min(block.start), last: range.last.max(block.last()) };
        match part.content {
            Content::Free | Content::Taken => {
                self.add(Node::uniform(range.node_block(), part.content == Content::Taken))
            }
            Content::Lone { block, taken } => {
                // Take a block larger than the lone one, so that the lone block is a child of the node, or lies below one.
                let parent = Block::around(block.start, block.bits + STEP);
                let id = self.add(Node::uniform(hull(parent).node_block(), !taken));
                let node = *self.node(id);
                let index = node.index(block.start);
                if node.is_leaf() {
                    let numbers = ones((block.start & 63) as u32, (block.last() & 63) as u32);
                    self.set_word(id, index, if taken { !numbers } else { numbers });
                } else if block.bits == node.shift {
                    self.set_part(id, index, Part::uniform(taken, node.shift));
                } else {
                    self.set_part(id, index, Part::simple(part.content, node.shift));
                }
                id
            }
            Content::Node(inner) => {
                let (block, outside) = (self.node(inner).block(), self.node(inner).outside);
                if block.range().covers(range) {
                    return inner;
                }
                let id = self.add(Node::uniform(hull(block).node_block(), outside));
                let node = *self.node(id);
                // In a slot of exactly its own size, nothing is around a node, so it may be possible to write it more briefly.
                let below = self.in_slot(part, slot.bits, node.shift);
                let below = self.shorten(inner, node.shift).unwrap_or(below);
                self.set_part(id, node.index(block.start), below);
                id
            }
        }
    }

    /// Paints inside the node `id`, which contains all of `range` and stands for `part` in `slot`.
    fn paint_node(&mut self, id: u32, slot: Block, part: Part, range: NumberRange, taken: bool) -> Part {
        let change = if self.node(id).is_leaf() {
            self.paint_leaf(id, part.order, range, taken)
        } else {
            self.paint_branch(id, part.order, range, taken)
        };
        let Some(change) = change else { return part };
        let node = *self.node(id);
        if let Some(shorter) = self.shorten(id, slot.bits) {
            return shorter;
        }
        let order = if node.is_in_free(slot.bits) {
            Some(slot.bits - 1)
        } else if change.reorder {
            self.order_of(&node)
        } else {
            part.order
        };
        Part { content: Content::Node(id), free: part.free.wrapping_add(change.gained), order }
    }

    /// Gives up the node if it can be written more briefly in a slot of `slot_bits` bits, and
    /// returns what replaces it.
    fn shorten(&mut self, id: u32, slot_bits: u8) -> Option<Part> {
        let node = *self.node(id);
        let content = self.simpler(&node, slot_bits)?;
        if let Content::Node(inner) = content {
            let part = self.part(&node, node.mixed.trailing_zeros());
            self.node_mut(inner).outside = node.taken != 0;
            self.remove(id);
            return Some(self.in_slot(part, node.shift, slot_bits));
        }
        self.remove(id);
        Some(Part::simple(content, slot_bits))
    }

    fn paint_leaf(&mut self, id: u32, order: Option<u8>, range: NumberRange, taken: bool) -> Option<Change> {
        let node = *self.node(id);
        let (low, high) = (node.index(range.first), node.index(range.last));
        let mut change = Change { gained: 0, reorder: low != high };
        let mut changed = false;
        for index in low..=high {
            let from = if index == low { range.first as u32 & 63 } else { 0 };
            let to = if index == high { range.last as u32 & 63 } else { 63 };
            let numbers = ones(from, to);
            let old = self.word(self.node(id), index);
            let new = if taken { old & !numbers } else { old | numbers };
            if new != old {
                changed = true;
                self.set_word(id, index, new);
                let gained = i64::from(new.count_ones()) - i64::from(old.count_ones());
                change.gained = change.gained.wrapping_add(gained as u128);
                change.reorder |= word_matters(old, new, order);
            }
        }
        changed.then_some(change)
    }

    fn paint_branch(&mut self, id: u32, order: Option<u8>, range: NumberRange, taken: bool) -> Option<Change> {
        let node = *self.node(id);
        let (low, high) = (node.index(range.first), node.index(range.last));
        let mut change = Change { gained: 0, reorder: false };
        let mut whole = ones(low, high);
        let mut changed = false;
        for index in [low, high] {
            let child = node.child(index);
            let bit = 1 << index;
            let Some(range) = range.clip(child.range()) else {
                continue;
            };
            if whole & bit == 0 || range.covers(child.range()) {
                continue;
            }
            whole &= !bit;
            let old = self.part(self.node(id), index);
            let new = self.paint(child, old, range, taken);
            if new != old {
                changed = true;
                self.set_part(id, index, new);
                change.gained = change.gained.wrapping_add(new.free).wrapping_sub(old.free);
                change.reorder |= part_matters(old, new, order);
            }
        }
        let mut todo = whole & if taken { !node.taken } else { node.taken | node.mixed };
        change.reorder |= todo != 0;
        changed |= todo != 0;
        while todo != 0 {
            let index = todo.trailing_zeros();
            todo &= todo - 1;
            let old = self.part(self.node(id), index);
            self.release(old.content);
            let new = Part::uniform(taken, node.shift);
            self.set_part(id, index, new);
            change.gained = change.gained.wrapping_add(new.free).wrapping_sub(old.free);
        }
        changed.then_some(change)
    }

    /// What can stand for this node in a slot of `slot_bits` bits; none if the node is needed.
    ///
    /// `Node` is the node's only mixed child, which can take its place.
    pub fn simpler(&self, node: &Node, slot_bits: u8) -> Option<Content> {
        let block = node.block();
        // What remains when the node is gone must equal what is around it, if there is anything around it.
        let around = |taken: bool| block.bits >= slot_bits || node.outside == taken;
        let existing = node.existing();
        match node.mixed.count_ones() {
            0 => {
                let free = existing & !node.taken;
                let lone =
                    |children: u64, taken: bool| Content::Lone { block: node.child(children.trailing_zeros()), taken };
                match (node.taken.count_ones(), free.count_ones()) {
                    (0, _) if around(false) => Some(Content::Free),
                    (0, _) => Some(Content::Lone { block, taken: false }),
                    (_, 0) if around(true) => Some(Content::Taken),
                    (_, 0) => Some(Content::Lone { block, taken: true }),
                    (1, _) if around(false) => Some(lone(node.taken, true)),
                    (_, 1) if around(true) => Some(lone(free, false)),
                    _ => None,
                }
            }
            1 => {
                let rest = node.taken != 0;
                if !around(rest) || (rest && node.free() != 0) {
                    return None;
                }
                let index = node.mixed.trailing_zeros();
                if node.is_leaf() { self.lone_number(node, index, rest) } else { self.hoist(node, index, rest) }
            }
            _ => None,
        }
    }

    fn lone_number(&self, leaf: &Node, index: u32, rest: bool) -> Option<Content> {
        let word = self.word(leaf, index);
        let odd = if rest { word } else { !word };
        let start = leaf.child(index).start + u128::from(odd.trailing_zeros());
        (odd.count_ones() == 1).then_some(Content::Lone { block: Block { start, bits: 0 }, taken: !rest })
    }

    fn hoist(&self, branch: &Node, index: u32, rest: bool) -> Option<Content> {
        let content = self.part(branch, index).content;
        let fits = match content {
            Content::Lone { taken, .. } => taken != rest,
            Content::Node(id) => {
                let inner = self.node(id);
                inner.block().bits == branch.shift || inner.outside == rest
            }
            Content::Free | Content::Taken => unreachable!("a uniform child is not mixed"),
        };
        fits.then_some(content)
    }
}
