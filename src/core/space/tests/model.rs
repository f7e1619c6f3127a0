//! Models that are obviously right.

use std::collections::BTreeMap;

/// One bool per number: the naive answer to every question.
pub(super) struct Naive {
    pub first: u128,
    pub taken: Vec<bool>,
}

impl Naive {
    pub fn last(&self) -> u128 {
        self.first + (self.taken.len() as u128 - 1)
    }

    pub fn paint(&mut self, first: u128, last: u128, taken: bool) {
        for (number, state) in (self.first..=self.last()).zip(&mut self.taken) {
            if (first..=last).contains(&number) {
                *state = taken;
            }
        }
    }

    pub fn is_free(&self, number: u128) -> bool {
        let index = number.checked_sub(self.first);
        index.is_some_and(|index| index < self.taken.len() as u128 && !self.taken[index as usize])
    }

    pub fn free_numbers(&self) -> Vec<u128> {
        (self.first..=self.last()).filter(|&number| self.is_free(number)).collect()
    }

    /// Starts of all free blocks of 2^order, ascending.
    pub fn blocks(&self, order: u8) -> Vec<u128> {
        let size = 1u128 << order;
        let starts = self.free_numbers().into_iter().filter(|number| number % size == 0);
        let fits = |start: u128| (0..size).all(|offset| self.is_free(start | offset));
        starts.filter(|&start| fits(start)).collect()
    }

    pub fn runs(&self, from: u128) -> Vec<(u128, u128, bool)> {
        let mut runs: Vec<(u128, u128, bool)> = Vec::new();
        for number in from.max(self.first)..=self.last() {
            let taken = !self.is_free(number);
            match runs.last_mut() {
                Some(run) if run.2 == taken => run.1 = number,
                _ => runs.push((number, number, taken)),
            }
        }
        runs
    }
}

/// Taken intervals, first to last, disjoint and never adjacent.
#[derive(Default)]
pub(super) struct Intervals(BTreeMap<u128, u128>);

impl Intervals {
    pub fn paint(&mut self, first: u128, last: u128, taken: bool) {
        let touching: Vec<(u128, u128)> = self.0.range(..=last).map(|(&a, &b)| (a, b)).collect();
        let (mut low, mut high) = (first, last);
        for (a, b) in touching.into_iter().filter(|&(_, b)| b >= first) {
            self.0.remove(&a);
            if taken {
                (low, high) = (low.min(a), high.max(b));
            } else {
                if a < first {
                    self.0.insert(a, first - 1);
                }
                if b > last {
                    self.0.insert(last + 1, b);
                }
            }
        }
        if taken {
            self.0.insert(low, high);
        }
    }

    pub fn runs(&self, first: u128, last: u128) -> Vec<(u128, u128, bool)> {
        let mut runs: Vec<(u128, u128, bool)> = Vec::new();
        let mut next = Some(first);
        for (&a, &b) in &self.0 {
            match runs.last_mut() {
                Some(run) if next == Some(a) && run.2 => run.1 = b,
                _ => {
                    if let Some(free) = next.filter(|&free| free < a) {
                        runs.push((free, a - 1, false));
                    }
                    runs.push((a, b, true));
                }
            }
            next = b.checked_add(1);
        }
        if let Some(free) = next.filter(|&free| free <= last) {
            runs.push((free, last, false));
        }
        runs
    }
}
