//! The lowest free run of a space, taken from its lower end without touching the tree.
//!
//! A pool that is filled from below takes one number after the other. In the tree each is a way down and up again; here it
//! is a step along a run that the tree knows to be free, and the tree is told once for many. What is below the run is taken, so all
//! that is free lies at `next` or above, and a question begins there.
//!
//! ```text
//!   taken          taken, the tree        free                 as the tree says
//!                  does not know it
//! ---------------[first ......... next [ next ......... last ]-----------------
//! ```
//!
//! Who takes numbers in order is noticed, and the run looked for then; short runs are not worth it.

use super::bits::Range;

/// So many numbers in order, and it looks for the run.
const STREAK: i16 = 4;
/// Runs that are shorter are left to the tree.
const RUN_MIN: u128 = 16;
/// So many later it may look again where there was no run.
const BACKOFF: i16 = 64;
/// So many may the tree not know of.
const UNTOLD_MAX: u128 = 4_096;

/// A run of numbers that are free in the tree, the lowest one; those before `next` are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub first: u128,
    pub next: u128,
    pub last: u128,
}

impl Run {
    /// How many are taken that the tree takes for free.
    pub fn untold(self) -> u128 {
        self.next - self.first
    }

    /// The same, for the tree.
    pub fn to_tell(self) -> Option<Range> {
        (self.first < self.next).then(|| Range { first: self.first, last: self.next - 1 })
    }
}

/// What became of a number that is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It is.
    Taken,
    /// It is, and the tree should be told by now.
    TakenTellNow,
    /// It is not the next one of a run.
    NotNext,
}

/// The run, if there is one, and whether one is worth looking for.
#[derive(Debug, Clone, Default)]
pub(super) struct Front {
    pub run: Option<Run>,
    /// Numbers that were taken in order, the last of which is `previous`.
    streak: i16,
    previous: u128,
}

impl Front {
    /// Where the first free number is at the earliest.
    pub fn floor(&self) -> u128 {
        self.run.map_or(0, |run| run.next)
    }

    pub fn untold(&self) -> u128 {
        self.run.map_or(0, Run::untold)
    }

    /// Takes a number, if it is the next one and not the last.
    pub fn take(&mut self, number: u128) -> Step {
        match &mut self.run {
            Some(run) if run.next == number && number < run.last => {
                run.next += 1;
                if run.untold() < UNTOLD_MAX { Step::Taken } else { Step::TakenTellNow }
            }
            _ => Step::NotNext,
        }
    }

    /// The tree knows all of it.
    pub fn told(&mut self) {
        if let Some(run) = &mut self.run {
            run.first = run.next;
        }
    }

    /// Notes a number that the tree took. Is it time to look for a run behind it?
    pub fn follows(&mut self, number: u128) -> bool {
        if self.run.is_some() {
            return false;
        }
        let in_order = self.previous.checked_add(1) == Some(number);
        self.previous = number;
        self.streak = if in_order || self.streak < 0 { self.streak + 1 } else { 0 };
        self.streak >= STREAK
    }

    /// Is it the one behind the last number that was taken?
    pub fn is_next(&self, number: u128) -> bool {
        self.previous.checked_add(1) == Some(number)
    }

    /// There is a run from `first` to `last`, the lowest one, or none worth it.
    pub fn begin(&mut self, run: Option<(u128, u128)>) {
        self.run =
            run.filter(|(first, last)| last - first >= RUN_MIN).map(|(first, last)| Run { first, next: first, last });
        self.streak = if self.run.is_some() { 0 } else { -BACKOFF };
    }
}
