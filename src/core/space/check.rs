//! Invariants of the tree, checked by recomputing everything from the words upwards. For tests and debug builds.

use super::arena::Arena;
use super::bits::{Block, largest_group, size};
use super::node::{Content, Node, Part};

/// What one walk over the tree has seen.
#[derive(Default)]
struct Seen {
    nodes: usize,
    cells: usize,
}

impl Arena {
    /// Checks everything below `part`, which is in `slot`, and that the arena holds nothing else.
    pub fn check_all(&self, slot: Block, part: Part) -> Result<(), String> {
        let mut seen = Seen::default();
        self.check_part(slot, part, &mut seen)?;
        if (seen.nodes, seen.cells) != (self.live_nodes(), self.live_cells()) {
            let (nodes, cells) = (self.live_nodes(), self.live_cells());
            let (in_nodes, in_cells) = (seen.nodes, seen.cells);
            return Err(format!("{nodes} nodes and {cells} cells are in use, the tree has {in_nodes} and {in_cells}"));
        }
        self.check_storage()
    }

    fn check_part(&self, slot: Block, part: Part, seen: &mut Seen) -> Result<(), String> {
        let expected = match part.content {
            Content::Free | Content::Taken => Part::simple(part.content, slot.bits),
            Content::Lone { block, .. } => {
                if !slot.range().covers(block.range()) || block.bits >= slot.bits || block.bits % 6 != 0 {
                    return Err(format!("{block:?} in {slot:?}"));
                }
                Part::simple(part.content, slot.bits)
            }
            Content::Node(id) => {
                let node = self.node(id);
                let (free, order) = self.check_node(slot, node, seen)?;
                let around = node.block().bits < slot.bits && !node.outside;
                let free_around = size(slot.bits).wrapping_sub(size(node.block().bits));
                Part {
                    content: part.content,
                    free: if around { free.wrapping_add(free_around) } else { free },
                    order: if around { Some(slot.bits - 1) } else { order },
                }
            }
        };
        if part == expected { Ok(()) } else { Err(format!("{slot:?} has {part:?}, not {expected:?}")) }
    }

    /// Recomputes the free count and the order of one node.
    fn check_node(&self, slot: Block, node: &Node, seen: &mut Seen) -> Result<(u128, Option<u8>), String> {
        let block = node.block();
        if !slot.range().covers(block.range()) || block.start != Block::around(block.start, block.bits).start {
            return Err(format!("node {block:?} in {slot:?}"));
        }
        if node.taken & node.mixed != 0 || (node.taken | node.mixed) & !node.existing() != 0 {
            return Err(format!("masks of {node:?}"));
        }
        if node.run.capacity() < node.mixed_count() {
            return Err(format!("run of {node:?} is too short"));
        }
        if let Some(content) = self.simpler(node, slot.bits) {
            return Err(format!("{node:?} should be {content:?}"));
        }
        seen.nodes += 1;
        seen.cells += node.run.capacity();
        let mut free = u128::from(node.free().count_ones()).wrapping_mul(size(node.shift));
        let mut order = largest_group(node.free()).map(|order| order + node.shift);
        for (index, &stored) in (0..64).filter(|index| node.mixed & (1 << index) != 0).zip(self.orders(node)) {
            let (child_free, child_order) = if node.is_leaf() {
                let word = self.word(node, index);
                if word == 0 || word == !0 {
                    return Err(format!("uniform word {index} of {node:?}"));
                }
                (u128::from(word.count_ones()), largest_group(word))
            } else {
                let part = self.part(node, index);
                self.check_part(node.child(index), part, seen)?;
                (part.free, part.order)
            };
            if child_order != Some(stored) {
                return Err(format!("child {index} of {node:?} has order {child_order:?}, not {stored}"));
            }
            free = free.wrapping_add(child_free);
            order = order.max(child_order);
        }
        Ok((free, order))
    }
}
