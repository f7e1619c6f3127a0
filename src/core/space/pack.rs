//! Storage for the children of nodes: runs of up to 64 cells, packed without gaps, in one array.
//!
//! A node keeps only its mixed children, in ascending order, so its run grows and shrinks with every insert and remove. Runs
//! come in a few capacities; a run that is given up goes to the list of its capacity. The order of each child (log2 of its
//! largest aligned free block) lies in a second array, so that a search can compare eight children at a time.

/// Capacities of runs, in cells. Small steps waste little memory where nodes have few children.
const CAPACITIES: [u8; 13] = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// Where the cells of one node are. The node knows how many of them it uses.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CellRun {
    start: u32,
    class: u8,
}

impl CellRun {
    pub fn capacity(self) -> usize {
        CAPACITIES[usize::from(self.class)].into()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Pack<T> {
    cells: Vec<T>,
    orders: Vec<u8>,
    /// Starts of unused runs by class; empty until the first run is given up.
    unused: Vec<Vec<u32>>,
    live_cells: usize,
}

impl<T: Copy + Default> Pack<T> {
    pub const fn new() -> Self {
        Self { cells: Vec::new(), orders: Vec::new(), unused: Vec::new(), live_cells: 0 }
    }

    pub fn with_capacity(cells: usize) -> Self {
        Self { cells: Vec::with_capacity(cells), orders: Vec::with_capacity(cells), ..Self::new() }
    }

    pub fn cells(&self, run: CellRun, count: usize) -> &[T] {
        &self.cells[run.start as usize..][..count]
    }

    pub fn orders(&self, run: CellRun, count: usize) -> &[u8] {
        &self.orders[run.start as usize..][..count]
    }

    pub fn get(&self, run: CellRun, rank: usize) -> (T, u8) {
        let at = run.start as usize + rank;
        (self.cells[at], self.orders[at])
    }

    pub fn set(&mut self, run: CellRun, rank: usize, cell: T, order: u8) {
        let at = run.start as usize + rank;
        self.cells[at] = cell;
        self.orders[at] = order;
    }

    /// Makes room at `rank` in a run of `count` cells. The run may move.
    pub fn insert(&mut self, run: &mut CellRun, count: usize, rank: usize, cell: T, order: u8) {
        if count == run.capacity() {
            self.relocate(run, count, run.class + 1);
        }
        let start = run.start as usize;
        self.cells.copy_within(start + rank..start + count, start + rank + 1);
        self.orders.copy_within(start + rank..start + count, start + rank + 1);
        self.set(*run, rank, cell, order);
    }

    /// Closes the gap at `rank` in a run of `count` cells. The run may move.
    pub fn remove(&mut self, run: &mut CellRun, count: usize, rank: usize) {
        let start = run.start as usize;
        self.cells.copy_within(start + rank + 1..start + count, start + rank);
        self.orders.copy_within(start + rank + 1..start + count, start + rank);
        // Two classes down, not one, so that a child that comes and goes does not move the run each time.
        let smaller = run.class.saturating_sub(2);
        if count - 1 <= CAPACITIES[usize::from(smaller)].into() {
            self.relocate(run, count - 1, smaller);
        }
    }

    /// A copy of a run of another pack, in the smallest capacity that holds it.
    pub fn adopt(&mut self, other: &Self, run: CellRun, count: usize) -> CellRun {
        let class = CAPACITIES.partition_point(|&capacity| usize::from(capacity) < count);
        let copy = self.take(class as u8);
        let start = copy.start as usize;
        self.cells[start..start + count].copy_from_slice(other.cells(run, count));
        self.orders[start..start + count].copy_from_slice(other.orders(run, count));
        copy
    }

    pub fn give_up(&mut self, run: CellRun) {
        if run.class > 0 {
            self.live_cells -= run.capacity();
            self.unused.resize_with(CAPACITIES.len(), Vec::new);
            self.unused[usize::from(run.class)].push(run.start);
        }
    }

    pub fn live_cells(&self) -> usize {
        self.live_cells
    }

    pub fn capacity(&self) -> usize {
        self.cells.capacity()
    }

    pub fn memory_bytes(&self) -> usize {
        let lists: usize = self.unused.iter().map(|list| list.capacity() * size_of::<u32>()).sum();
        let unused = self.unused.capacity() * size_of::<Vec<u32>>() + lists;
        self.cells.capacity() * size_of::<T>() + self.orders.capacity() + unused
    }

    /// Every cell belongs to a run in use or to exactly one unused run.
    pub fn check(&self) -> Result<(), String> {
        let mut unused: Vec<(u32, usize)> = Vec::new();
        for (list, &capacity) in self.unused.iter().zip(&CAPACITIES) {
            unused.extend(list.iter().map(|&start| (start, usize::from(capacity))));
        }
        unused.sort_unstable();
        if let Some(pair) = unused.windows(2).find(|pair| pair[0].0 as usize + pair[0].1 > pair[1].0 as usize) {
            return Err(format!("unused runs {pair:?} overlap"));
        }
        let unused_cells: usize = unused.iter().map(|&(_, capacity)| capacity).sum();
        if self.cells.len() != self.live_cells + unused_cells || self.cells.len() != self.orders.len() {
            let (cells, live) = (self.cells.len(), self.live_cells);
            return Err(format!("{cells} cells, but {live} live and {unused_cells} unused"));
        }
        Ok(())
    }

    fn relocate(&mut self, run: &mut CellRun, count: usize, class: u8) {
        let target = self.take(class);
        let (from, to) = (run.start as usize, target.start as usize);
        self.cells.copy_within(from..from + count, to);
        self.orders.copy_within(from..from + count, to);
        self.give_up(*run);
        *run = target;
    }

    fn take(&mut self, class: u8) -> CellRun {
        if class == 0 {
            return CellRun::default();
        }
        let capacity = usize::from(CAPACITIES[usize::from(class)]);
        self.live_cells += capacity;
        if let Some(start) = self.unused.get_mut(usize::from(class)).and_then(Vec::pop) {
            return CellRun { start, class };
        }
        let start = u32::try_from(self.cells.len()).expect("2^32 cells would be 38 GB and more in one pool");
        grow(&mut self.cells, capacity);
        self.orders.reserve_exact(self.cells.capacity() - self.orders.len());
        self.cells.resize(start as usize + capacity, T::default());
        self.orders.resize(start as usize + capacity, 0);
        CellRun { start, class }
    }
}

/// Makes room for `more`, growing by a quarter at a time: doubling could leave half of the memory idle.
pub(super) fn grow<T>(items: &mut Vec<T>, more: usize) {
    if items.capacity() - items.len() < more {
        items.reserve_exact(more.max(items.capacity() / 4));
    }
}
