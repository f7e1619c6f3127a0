//! The short way to change one number, by far the most frequent change and one that seldom alters the shape of the tree.

use super::arena::Arena;
use super::bits::{ADDRESS_BITS, NumberRange, STEP, group_starts};
use super::node::{Content, Part};

/// The longest path: 128 bits, six per level.
const DEPTH_MAX: usize = 22;
/// A branch with at least this many mixed children keeps two or more after any change of one child, so it cannot be written
/// more briefly.
const MIXED_ENOUGH: usize = 3;

/// A branch on the way down, and the child to which the way goes on.
#[derive(Clone, Copy, Default)]
struct Descent {
    branch: u32,
    index: u8,
    rank: u8,
}

/// What a changed node reports to the one above it.
struct Flipped {
    id: u32,
    /// Numbers that became free, modulo 2^128.
    gained: u128,
    /// Whether its order may have changed.
    reorder: bool,
}

impl Arena {
    /// Makes one number of the whole space taken or free, if that changes the shape of at most the lowest branch on the way
    /// to it and what is below that branch. None: nothing has changed, and `paint` has to do it.
    ///
    /// Goes down without looking at totals, then up again to correct what the branches know about their children.
    pub fn flip(&mut self, root: Part, number: u128, taken: bool) -> Option<Part> {
        let Content::Node(mut id) = root.content else {
            return None;
        };
        let mut path = [Descent::default(); DEPTH_MAX];
        let mut depth = 0;
        let mut slot_bits = ADDRESS_BITS;
        let leaf = loop {
            let node = self.node(id);
            // A node as large as its slot holds every number of the slot.
            if node.block().bits != slot_bits && !node.block().contains(number) {
                break None;
            }
            if node.is_leaf() {
                break Some(id);
            }
            let index = node.index(number);
            let rank = node.rank(index);
            path[depth] = Descent { branch: id, index: index as u8, rank: rank as u8 };
            depth += 1;
            slot_bits = node.shift;
            let mixed = node.mixed & (1 << index) != 0;
            match mixed.then(|| self.link(node, rank).0.node()).flatten() {
                Some(below) => id = below,
                None => break None,
            }
        };
        let flipped = leaf.and_then(|leaf| {
            let order = self.order_at(root, &path[..depth]);
            self.flip_in_leaf(leaf, slot_bits, number, taken, order)
        });
        let outcome = match flipped {
            Some(outcome) => outcome,
            None => {
                let step = path[..depth].last()?;
                depth -= 1;
                let order = self.order_at(root, &path[..depth]);
                self.flip_in_branch(*step, number, taken, order)?
            }
        };
        Some(self.correct(root, &path[..depth], outcome))
    }

    fn flip_in_leaf(
        &mut self,
        id: u32,
        slot_bits: u8,
        number: u128,
        taken: bool,
        order: Option<u8>,
    ) -> Option<Flipped> {
        let leaf = self.node(id);
        let index = leaf.index(number);
        let old = self.word(leaf, index);
        let bit = 1 << (number as u32 & 63);
        let new = if taken { old & !bit } else { old | bit };
        if new == old {
            return Some(Flipped { id, gained: 0, reorder: false });
        }
        self.set_word(id, index, new);
        if self.simpler(self.node(id), slot_bits).is_some() {
            self.set_word(id, index, old);
            return None;
        }
        let gained = if taken { u128::MAX } else { 1 };
        Some(Flipped { id, gained, reorder: word_matters(old, new, order) })
    }

    fn flip_in_branch(&mut self, step: Descent, number: u128, taken: bool, order: Option<u8>) -> Option<Flipped> {
        let (id, index) = (step.branch, step.index.into());
        let branch = self.node(id);
        if branch.mixed_count() < MIXED_ENOUGH {
            return None;
        }
        let (child, old) = (branch.child(index), self.part(branch, index));
        let new = self.paint(child, old, NumberRange { first: number, last: number }, taken);
        if new == old {
            return Some(Flipped { id, gained: 0, reorder: false });
        }
        self.set_part(id, index, new);
        let reorder = part_matters(old, new, order);
        Some(Flipped { id, gained: new.free.wrapping_sub(old.free), reorder })
    }

    /// Corrects the totals of the branches above a changed node, the lowest first, and then those
    /// of the root.
    fn correct(&mut self, root: Part, path: &[Descent], outcome: Flipped) -> Part {
        let Flipped { mut id, gained, mut reorder } = outcome;
        if gained == 0 {
            return root;
        }
        for (level, step) in path.iter().enumerate().rev() {
            let branch = self.node(step.branch);
            let (_, old) = self.link(branch, step.rank.into());
            let new = if reorder { self.order_in(id, branch.shift) } else { Some(old) };
            self.correct_link(step.branch, step.rank.into(), gained, new.unwrap_or(old));
            reorder = reorder && order_matters(Some(old), new, self.order_at(root, &path[..level]));
            id = step.branch;
        }
        let order = if reorder { self.order_in(id, ADDRESS_BITS) } else { root.order };
        Part { free: root.free.wrapping_add(gained), order, ..root }
    }

    /// The order that is known for the node at the end of a path.
    fn order_at(&self, root: Part, path: &[Descent]) -> Option<u8> {
        match path.last() {
            None => root.order,
            Some(step) => Some(self.link(self.node(step.branch), step.rank.into()).1),
        }
    }

    /// The order of a node together with what is around it in a slot of `slot_bits`.
    fn order_in(&self, id: u32, slot_bits: u8) -> Option<u8> {
        let node = self.node(id);
        if node.is_in_free(slot_bits) { Some(slot_bits - 1) } else { self.order_of(node) }
    }
}

/// Whether replacing a word can change the order of its leaf, which was `order` so far.
pub(super) fn word_matters(old: u64, new: u64, order: Option<u8>) -> bool {
    if old == !0 || new == !0 {
        return true;
    }
    match order {
        None => true,
        // Only wholly free words decide then, and neither of the two is one.
        Some(order) if order >= STEP => false,
        Some(order) => {
            let lost = group_starts(old, order) != 0 && group_starts(new, order) == 0;
            lost || group_starts(new, order + 1) != 0
        }
    }
}

/// Whether a change of one child can change the order of its node, which was `order` so far.
pub(super) fn part_matters(old: Part, new: Part, order: Option<u8>) -> bool {
    // Wholly free children may form a larger block together.
    let together = [old.content, new.content].contains(&Content::Free);
    together || order_matters(old.order, new.order, order)
}

fn order_matters(old: Option<u8>, new: Option<u8>, order: Option<u8>) -> bool {
    old != new && (old >= order || new > order)
}
