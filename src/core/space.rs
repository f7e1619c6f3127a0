//! Free space of one pool, as intervals. Replaced by the radix tree; same interface.
use std::collections::BTreeMap;
/// Free intervals.
#[derive(Debug, Clone)]
pub struct Space {
    first: u128,
    last: u128,
    free: BTreeMap<u128, u128>,
}
#[allow(missing_docs)]
impl Space {
    pub fn new(first: u128, last: u128) -> Self {
        Self { first, last, free: BTreeMap::from([(first, last)]) }
    }
    pub fn first(&self) -> u128 {
        self.first
    }
    pub fn last(&self) -> u128 {
        self.last
    }
    pub fn occupy(&mut self, first: u128, last: u128) {
        let (first, last) = (first.max(self.first), last.min(self.last));
        if first > last {
            return;
        }
        let from = self.free.range(..=first).next_back().map_or(first, |(k, _)| *k);
        let hit: Vec<_> = self.free.range(from..=last).filter(|(_, e)| **e >= first).map(|(a, b)| (*a, *b)).collect();
        for (a, b) in hit {
            self.free.remove(&a);
            if a < first {
                self.free.insert(a, first - 1);
            }
            if b > last {
                self.free.insert(last + 1, b);
            }
        }
    }
    pub fn vacate(&mut self, first: u128, last: u128) {
        let (mut first, mut last) = (first.max(self.first), last.min(self.last));
        if first > last {
            return;
        }
        self.occupy(first, last);
        if let Some((&a, &b)) = self.free.range(..first).next_back()
            && b.checked_add(1) == Some(first)
        {
            self.free.remove(&a);
            first = a;
        }
        if let Some(next) = last.checked_add(1)
            && let Some(&b) = self.free.get(&next)
        {
            self.free.remove(&next);
            last = b;
        }
        self.free.insert(first, last);
    }
    pub fn is_free(&self, first: u128, last: u128) -> bool {
        self.free.range(..=first).next_back().is_some_and(|(_, b)| *b >= last)
    }
    pub fn free(&self) -> u128 {
        self.free.iter().map(|(a, b)| b - a + 1).sum()
    }
    pub fn free_in(&self, first: u128, last: u128) -> u128 {
        self.free
            .iter()
            .filter(|(a, b)| **a <= last && **b >= first)
            .map(|(a, b)| (*b).min(last) - (*a).max(first) + 1)
            .sum()
    }
    pub fn largest_order(&self) -> Option<u8> {
        (0..=127u8).rev().find(|o| self.lowest(*o, self.first).is_some())
    }
    pub fn lowest(&self, order: u8, from: u128) -> Option<u128> {
        let mask = crate::core::address::host_mask(order);
        self.free.iter().find_map(|(&a, &b)| {
            let start = a.max(from);
            let aligned = start.checked_add(mask)? & !mask;
            (aligned.checked_add(mask)? <= b).then_some(aligned)
        })
    }
    pub fn nth_free(&self, mut index: u128) -> Option<u128> {
        for (a, b) in &self.free {
            let n = b - a + 1;
            if index < n {
                return Some(a + index);
            }
            index -= n;
        }
        None
    }
    pub fn runs(&self, from: u128) -> impl Iterator<Item = (u128, u128, bool)> + '_ {
        let mut out = Vec::new();
        let mut at = Some(self.first);
        for (&a, &b) in &self.free {
            if let Some(p) = at
                && p < a
            {
                out.push((p, a - 1, true));
            }
            out.push((a, b, false));
            at = b.checked_add(1);
        }
        if let Some(p) = at
            && p <= self.last
        {
            out.push((p, self.last, true));
        }
        out.into_iter().filter(move |r| r.1 >= from)
    }
    pub fn check(&self) -> Result<(), String> {
        Ok(())
    }
    pub fn memory_bytes(&self) -> usize {
        self.free.len() * 64
    }
}
