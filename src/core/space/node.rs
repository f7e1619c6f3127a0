//! What a part of the tree means: slots, their contents, and nodes.

use super::bits::{ADDRESS_BITS, Block, STEP, size};
use super::pack::CellRun;

/// Children of the topmost node that exist: only four, because 128 is not a multiple of six.
const TOP_CHILDREN: u64 = 0b1111;
const TOP_SHIFT: u8 = ADDRESS_BITS - 2;

/// What a slot holds: the whole space, or one child of a node above the leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Free,
    Taken,
    /// One aligned block is `taken`, or free; the rest of the slot is the opposite.
    Lone {
        block: Block,
        taken: bool,
    },
    /// A node. Its block may be smaller than the slot; the node knows what is around it.
    Node(u32),
}

/// A slot with its totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub content: Content,
    /// Free numbers in the slot, including those around a node.
    pub free: u128,
    /// Log2 of the largest aligned free block; none if nothing is free.
    pub order: Option<u8>,
}

impl Part {
    pub fn uniform(taken: bool, slot_bits: u8) -> Part {
        Part::simple(if taken { Content::Taken } else { Content::Free }, slot_bits)
    }

    /// Totals of a content without nodes.
    pub fn simple(content: Content, slot_bits: u8) -> Part {
        let (free, order) = match content {
            Content::Free => (size(slot_bits), Some(slot_bits)),
            Content::Taken => (0, None),
            Content::Lone { block, taken: false } => (size(block.bits), Some(block.bits)),
            // At most a quarter is taken, so at least one half is untouched.
            Content::Lone { block, taken: true } => {
                (size(slot_bits).wrapping_sub(size(block.bits)), Some(slot_bits - 1))
            }
            Content::Node(_) => unreachable!("the totals of a node are kept, not derived"),
        };
        Part { content, free, order }
    }
}

/// A mixed child of a branch, packed into 20 bytes.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, packed(4))]
pub(super) struct Link {
    /// For a node, the free numbers below it; for a lone block, its first number.
    value: u128,
    /// Index of a node; or, for a lone block, `LONE`, `LONE_TAKEN` if it is taken, and its bits.
    target: u32,
}

pub(super) const LONE: u32 = 1 << 31;
const LONE_TAKEN: u32 = 1 << 30;

impl Link {
    pub fn of(part: Part) -> Link {
        match part.content {
            Content::Node(id) => Link { value: part.free, target: id },
            Content::Lone { block, taken } => {
                let flags = LONE | if taken { LONE_TAKEN } else { 0 };
                Link { value: block.start, target: flags | u32::from(block.bits) }
            }
            Content::Free | Content::Taken => unreachable!("uniform children are bits, not links"),
        }
    }

    pub fn part(self, order: u8, slot_bits: u8) -> Part {
        match self.content() {
            content @ Content::Node(_) => Part { content, free: self.value, order: Some(order) },
            content => Part::simple(content, slot_bits),
        }
    }

    pub fn content(self) -> Content {
        self.node().map_or_else(
            || {
                let block = Block { start: self.value, bits: self.target as u8 };
                Content::Lone { block, taken: self.target & LONE_TAKEN != 0 }
            },
            Content::Node,
        )
    }

    pub fn node(self) -> Option<u32> {
        (self.target & LONE == 0).then_some(self.target)
    }

    /// Adds to the free count of the node that the link leads to, modulo 2^128.
    pub fn gain(self, gained: u128) -> Link {
        Link { value: self.value.wrapping_add(gained), ..self }
    }

    /// Free numbers in a child of fewer than 2^64 numbers.
    #[inline]
    pub fn free_small(self, slot_bits: u8) -> u64 {
        let target = self.target;
        if target & LONE == 0 {
            return self.value as u64;
        }
        let lone = 1 << (target & 63);
        if target & LONE_TAKEN == 0 { lone } else { (1 << slot_bits) - lone }
    }

    /// Free numbers in the child.
    pub fn free(self, slot_bits: u8) -> u128 {
        let target = self.target;
        if target & LONE == 0 {
            return self.value;
        }
        let lone = size(target as u8);
        if target & LONE_TAKEN == 0 { lone } else { size(slot_bits) - lone }
    }
}

/// 64 children of 2^shift numbers each. With shift 6 the children are words, and the node is a leaf; otherwise they are
/// slots, and it is a branch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub base: u128,
    /// Children that are wholly taken.
    pub taken: u64,
    /// Children that are neither wholly taken nor wholly free; these have cells in `run`.
    pub mixed: u64,
    pub run: CellRun,
    pub shift: u8,
    /// Whether the rest of the slot is taken, for a slot larger than the node.
    pub outside: bool,
}

impl Node {
    pub fn uniform(block: Block, taken: bool) -> Node {
        let shift = block.bits - STEP;
        let node = Node { base: block.start, taken: 0, mixed: 0, run: CellRun::default(), shift, outside: taken };
        Node { taken: if taken { node.existing() } else { 0 }, ..node }
    }

    pub fn block(&self) -> Block {
        Block { start: self.base, bits: self.shift + STEP }
    }

    pub fn is_leaf(&self) -> bool {
        self.shift == STEP
    }

    /// Children whose numbers exist.
    pub fn existing(&self) -> u64 {
        if self.shift == TOP_SHIFT { TOP_CHILDREN } else { !0 }
    }

    /// Children that are wholly free.
    pub fn free(&self) -> u64 {
        self.existing() & !self.taken & !self.mixed
    }

    /// The child that a number of this node is in.
    pub fn index(&self, number: u128) -> u32 {
        (number >> self.shift) as u32 & 63
    }

    pub fn child(&self, index: u32) -> Block {
        Block { start: self.base | (u128::from(index) << self.shift), bits: self.shift }
    }

    /// Whether the node is smaller than its slot, and the rest of the slot is free.
    pub fn is_in_free(&self, slot_bits: u8) -> bool {
        self.block().bits < slot_bits && !self.outside
    }

    /// Position of a child's cell in the run: the number of mixed children before it.
    pub fn rank(&self, index: u32) -> usize {
        // Counting ones takes a dozen instructions on the oldest CPUs that we support, and the upper nodes of a pool in use
        // are wholly mixed.
        if self.mixed == !0 {
            return index as usize;
        }
        (self.mixed & low_ones(index)).count_ones() as usize
    }

    pub fn mixed_count(&self) -> usize {
        self.mixed.count_ones() as usize
    }
}

/// Ones below position `index`.
pub(super) fn low_ones(index: u32) -> u64 {
    (1 << index) - 1
}
