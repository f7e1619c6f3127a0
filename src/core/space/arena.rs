//! The storage of the tree: nodes by index, and the packed cells of their children.

use super::bits::{largest_group, size};
use super::node::{Content, LONE, Link, Node, Part};
use super::pack::{Pack, grow};

/// All nodes of a tree, and the cells of their children.
#[derive(Debug, Clone)]
pub(super) struct Arena {
    nodes: Vec<Node>,
    /// Indexes of nodes that are not in use.
    unused: Vec<u32>,
    /// Mixed children of leaves: a bit per number, 1 = free.
    words: Pack<u64>,
    /// Mixed children of branches.
    links: Pack<Link>,
}

impl Arena {
    pub const fn new() -> Arena {
        Arena { nodes: Vec::new(), unused: Vec::new(), words: Pack::new(), links: Pack::new() }
    }

    pub fn node(&self, id: u32) -> &Node {
        &self.nodes[id as usize]
    }

    pub fn node_mut(&mut self, id: u32) -> &mut Node {
        &mut self.nodes[id as usize]
    }

    pub fn add(&mut self, node: Node) -> u32 {
        if let Some(id) = self.unused.pop() {
            self.nodes[id as usize] = node;
            return id;
        }
        grow(&mut self.nodes, 1);
        self.nodes.push(node);
        let id = (self.nodes.len() - 1) as u32;
        assert!(id < LONE, "2^31 nodes would be 100 GB in one pool");
        id
    }

    /// Gives up one node, without the nodes below it.
    pub fn remove(&mut self, id: u32) {
        let node = *self.node(id);
        if node.is_leaf() {
            self.words.give_up(node.run)
        } else {
            self.links.give_up(node.run)
        }
        self.unused.push(id);
    }

    /// Gives up everything in a slot. Cost: one step per node below, each of which an earlier change had made.
    pub fn release(&mut self, content: Content) {
        if let Content::Node(id) = content {
            let node = *self.node(id);
            if !node.is_leaf() {
                for rank in 0..node.mixed_count() {
                    let (link, order) = self.links.get(node.run, rank);
                    self.release(link.part(order, node.shift).content);
                }
            }
            self.remove(id);
        }
    }

    /// Free numbers of one word of a leaf, as ones.
    pub fn word(&self, leaf: &Node, index: u32) -> u64 {
        let bit = 1 << index;
        if leaf.mixed & bit != 0 {
            self.words.get(leaf.run, leaf.rank(index)).0
        } else if leaf.taken & bit != 0 {
            0
        } else {
            !0
        }
    }

    pub fn set_word(&mut self, id: u32, index: u32, word: u64) {
        let node = &mut self.nodes[id as usize];
        let uniform = if word == 0 { Some(true) } else { (word == !0).then_some(false) };
        let order = largest_group(word).unwrap_or(0);
        set_cell(&mut self.words, node, index, uniform, word, order);
    }

    pub fn part(&self, branch: &Node, index: u32) -> Part {
        let bit = 1 << index;
        if branch.mixed & bit != 0 {
            let (link, order) = self.links.get(branch.run, branch.rank(index));
            link.part(order, branch.shift)
        } else {
            Part::uniform(branch.taken & bit != 0, branch.shift)
        }
    }

    pub fn set_part(&mut self, id: u32, index: u32, part: Part) {
        let node = &mut self.nodes[id as usize];
        let (uniform, link) = match part.content {
            Content::Free => (Some(false), Link::default()),
            Content::Taken => (Some(true), Link::default()),
            Content::Lone { .. } | Content::Node(_) => (None, Link::of(part)),
        };
        set_cell(&mut self.links, node, index, uniform, link, part.order.unwrap_or(0));
    }

    pub fn content(&self, branch: &Node, index: u32) -> Content {
        let bit = 1 << index;
        if branch.mixed & bit != 0 {
            self.link(branch, branch.rank(index)).0.content()
        } else if branch.taken & bit != 0 {
            Content::Taken
        } else {
            Content::Free
        }
    }

    /// A mixed child of a branch, and its order.
    pub fn link(&self, branch: &Node, rank: usize) -> (Link, u8) {
        self.links.get(branch.run, rank)
    }

    /// Adds to the free count of the node that a link leads to, modulo 2^128, and sets its order.
    pub fn correct_link(&mut self, branch: u32, rank: usize, gained: u128, order: u8) {
        let run = self.node(branch).run;
        let (link, _) = self.links.get(run, rank);
        self.links.set(run, rank, link.gain(gained), order);
    }

    /// Words of the mixed children of a leaf.
    pub fn words(&self, leaf: &Node) -> &[u64] {
        self.words.cells(leaf.run, leaf.mixed_count())
    }

    pub fn links(&self, branch: &Node) -> &[Link] {
        self.links.cells(branch.run, branch.mixed_count())
    }

    /// Orders of the mixed children.
    pub fn orders(&self, node: &Node) -> &[u8] {
        if node.is_leaf() {
            self.words.orders(node.run, node.mixed_count())
        } else {
            self.links.orders(node.run, node.mixed_count())
        }
    }

    /// Log2 of the largest aligned free block inside a node. Never none for a node of the tree.
    pub fn order_of(&self, node: &Node) -> Option<u8> {
        let group = largest_group(node.free()).map(|order| node.shift + order);
        group.max(self.orders(node).iter().copied().max())
    }

    /// The same part in a slot of another size: its content and what is around it stay.
    pub fn in_slot(&self, part: Part, old_bits: u8, new_bits: u8) -> Part {
        let Content::Node(id) = part.content else {
            return Part::simple(part.content, new_bits);
        };
        let node = self.node(id);
        if node.outside {
            return part;
        }
        let free = part.free.wrapping_sub(size(old_bits)).wrapping_add(size(new_bits));
        let exact = node.block().bits >= new_bits;
        let order = if exact { self.order_of(node) } else { Some(new_bits - 1) };
        Part { free, order, ..part }
    }

    /// A copy of everything below `content` in an arena without gaps.
    pub fn compact(&self, content: Content) -> (Arena, Content) {
        let mut fresh = Arena {
            nodes: Vec::with_capacity(self.live_nodes()),
            unused: Vec::new(),
            words: Pack::with_capacity(self.words.live_cells()),
            links: Pack::with_capacity(self.links.live_cells()),
        };
        let content = self.copy_into(&mut fresh, content);
        (fresh, content)
    }

    fn copy_into(&self, fresh: &mut Arena, content: Content) -> Content {
        let Content::Node(id) = content else {
            return content;
        };
        let node = self.node(id);
        let count = node.mixed_count();
        let run = if node.is_leaf() {
            fresh.words.adopt(&self.words, node.run, count)
        } else {
            fresh.links.adopt(&self.links, node.run, count)
        };
        let copy = fresh.add(Node { run, ..*node });
        if !node.is_leaf() {
            for rank in 0..count {
                let (link, order) = self.links.get(node.run, rank);
                let part = link.part(order, node.shift);
                let content = self.copy_into(fresh, part.content);
                fresh.links.set(run, rank, Link::of(Part { content, ..part }), order);
            }
        }
        Content::Node(copy)
    }

    /// Whether at least three eighths of some array lie idle, because nodes were given up or runs outgrew their places.
    pub fn is_sparse(&self) -> bool {
        let idle = |live: usize, capacity: usize| capacity > 256 && live * 8 < capacity * 5;
        idle(self.live_nodes(), self.nodes.capacity())
            || idle(self.words.live_cells(), self.words.capacity())
            || idle(self.links.live_cells(), self.links.capacity())
    }

    pub fn live_nodes(&self) -> usize {
        self.nodes.len() - self.unused.len()
    }

    pub fn live_cells(&self) -> usize {
        self.words.live_cells() + self.links.live_cells()
    }

    pub fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.unused.capacity() * size_of::<u32>()
            + self.words.memory_bytes()
            + self.links.memory_bytes()
    }

    /// Whether every cell of each array is either in use or waiting for use.
    pub fn check_storage(&self) -> Result<(), String> {
        self.words.check().and_then(|()| self.links.check())
    }
}

/// Makes a child uniform (taken or free), or mixed with this cell.
fn set_cell<T: Copy + Default>(
    pack: &mut Pack<T>,
    node: &mut Node,
    index: u32,
    uniform: Option<bool>,
    cell: T,
    order: u8,
) {
    let bit = 1 << index;
    let was_mixed = node.mixed & bit != 0;
    let (rank, count) = (node.rank(index), node.mixed_count());
    match uniform {
        None if was_mixed => pack.set(node.run, rank, cell, order),
        None => {
            pack.insert(&mut node.run, count, rank, cell, order);
            node.mixed |= bit;
            node.taken &= !bit;
        }
        Some(taken) => {
            if was_mixed {
                pack.remove(&mut node.run, count, rank);
                node.mixed &= !bit;
            }
            node.taken = if taken { node.taken | bit } else { node.taken & !bit };
        }
    }
}
