//! Counting: how many free numbers lie before a number, and which free number has a given count before it. Follows one path
//! down and adds up the siblings on one side of it.

use super::arena::Arena;
use super::bits::{Block, select, size};
use super::node::{Content, Node, Part, low_ones};

/// The sum of 64 children of less than 2^58 numbers fits into a machine word.
const SMALL_BITS: u8 = 58;

impl Arena {
    /// The free number of the slot that has `index` free ones before it. The slot must have more than `index`.
    pub fn nth_free(&self, mut slot: Block, mut part: Part, mut index: u128) -> u128 {
        loop {
            let (block, outside) = match part.content {
                Content::Free => return slot.start + index,
                Content::Taken => unreachable!("a taken slot has no free number to count to"),
                Content::Lone { block, taken } => (block, !taken),
                Content::Node(id) => (self.node(id).block(), self.node(id).outside),
            };
            if block.bits < slot.bits && !outside {
                let before = block.start - slot.start;
                if index < before {
                    return slot.start + index;
                }
                index -= before;
                let inside = inside(part, slot, block, outside);
                if index >= inside {
                    return block.last() + 1 + (index - inside);
                }
            }
            let Content::Node(id) = part.content else {
                return block.start + index;
            };
            let node = self.node(id);
            if node.is_leaf() {
                let (child, rest) = self.word_with(node, index as u32);
                let word = self.word(node, child);
                return node.child(child).start + u128::from(select(word, rest));
            }
            let child = self.child_with(node, &mut index);
            (slot, part) = (node.child(child), self.part(node, child));
        }
    }

    /// How many free numbers of the slot lie below `number`, which is in the slot.
    pub fn free_below(&self, mut slot: Block, mut part: Part, number: u128) -> u128 {
        let mut count = 0;
        loop {
            let (block, outside) = match part.content {
                Content::Free => return count + (number - slot.start),
                Content::Taken => return count,
                Content::Lone { block, taken } => (block, !taken),
                Content::Node(id) => (self.node(id).block(), self.node(id).outside),
            };
            if block.bits < slot.bits && !outside {
                count += number.min(block.start) - slot.start;
            }
            if number <= block.start {
                return count;
            }
            if number > block.last() {
                let after = if outside { 0 } else { number - block.last() - 1 };
                return count + inside(part, slot, block, outside) + after;
            }
            let Content::Node(id) = part.content else {
                return count + if outside { number - block.start } else { 0 };
            };
            let node = self.node(id);
            let child = node.index(number);
            let before = low_ones(child);
            let rank = node.rank(child);
            count += u128::from((node.free() & before).count_ones()) << node.shift;
            if node.is_leaf() {
                let mixed: u32 = self.words(node)[..rank].iter().map(|word| word.count_ones()).sum();
                let word = self.word(node, child) & low_ones(number as u32 & 63);
                return count + u128::from(mixed + word.count_ones());
            }
            let links = &self.links(node)[..rank];
            count += if node.shift < SMALL_BITS {
                u128::from(links.iter().map(|link| link.free_small(node.shift)).sum::<u64>())
            } else {
                links.iter().map(|link| link.free(node.shift)).sum::<u128>()
            };
            (slot, part) = (node.child(child), self.part(node, child));
        }
    }

    /// The child of a branch that holds its free number `index`; `index` becomes relative to the child.
    fn child_with(&self, branch: &Node, index: &mut u128) -> u32 {
        let links = self.links(branch);
        if branch.free() == 0 && branch.shift < SMALL_BITS {
            let (rank, rest) = position(links, *index as u64, |link| link.free_small(branch.shift));
            *index = rest.into();
            return select(branch.mixed, rank as u32);
        }
        let mut children = branch.free() | branch.mixed;
        let mut links = links.iter();
        loop {
            let child = children.trailing_zeros();
            let mixed = branch.mixed & (1 << child) != 0;
            let link = if mixed { links.next() } else { None };
            let free = link.map_or(size(branch.shift), |link| link.free(branch.shift));
            if *index < free {
                return child;
            }
            *index -= free;
            children &= children - 1;
        }
    }

    /// The word of a leaf that holds its free number `index`, and the index within the word.
    fn word_with(&self, leaf: &Node, mut index: u32) -> (u32, u32) {
        let words = self.words(leaf);
        if leaf.free() == 0 {
            let (rank, rest) = position(words, index.into(), |word| word.count_ones().into());
            return (select(leaf.mixed, rank as u32), rest as u32);
        }
        let mut children = leaf.free() | leaf.mixed;
        let mut words = words.iter();
        loop {
            let child = children.trailing_zeros();
            let mixed = leaf.mixed & (1 << child) != 0;
            let word = if mixed { words.next() } else { None };
            let free = word.map_or(64, |word| word.count_ones());
            if index < free {
                return (child, index);
            }
            index -= free;
            children &= children - 1;
        }
    }
}

/// Which cell holds the free number `index` of a run of cells, and its index there.
///
/// Adds up eight cells at a time, without a branch for each, until the index falls into the next eight.
#[inline]
fn position<T>(cells: &[T], mut index: u64, free: impl Fn(&T) -> u64) -> (usize, u64) {
    let mut rank = 0;
    for eight in cells.as_chunks::<8>().0 {
        let mut sum = 0;
        for cell in eight {
            sum += free(cell);
        }
        if index < sum {
            break;
        }
        index -= sum;
        rank += 8;
    }
    for cell in &cells[rank..] {
        let free = free(cell);
        if index < free {
            break;
        }
        index -= free;
        rank += 1;
    }
    (rank, index)
}

/// Free numbers inside the node or lone block of `part`, without those around it in `slot`.
fn inside(part: Part, slot: Block, block: Block, outside: bool) -> u128 {
    let around = if outside { 0 } else { size(slot.bits).wrapping_sub(size(block.bits)) };
    part.free.wrapping_sub(around)
}
