//! The lowest free run of a space, taken from its lower end without touching the tree.
//!
//! A pool that is filled from below takes one number after the other. In the tree each is a way down and up again; here it
//! is a step along a run that the tree knows to be free, and the tree is told once for many. What is below the run is
//! taken, so all that is free lies at `next` or above, and a question begins there.
//!
//! ```text
//!   taken          taken, the tree        free                 as the tree says
//!                  does not know it
//! ---------------[first ......... next [ next ......... last ]-----------------
//! ```
//!
//! Who takes numbers in order is noticed, and the run looked for then; short runs are not worth it.
//!
//! Owns the run; the tree is `Space`'s, which paints there what it is answered here.

use super::bits::NumberRange;

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
    /// Not above `last`.
    pub next: u128,
    pub last: u128,
}

impl Run {
    /// What the tree takes for free and is not.
    fn untold(self) -> Option<NumberRange> {
        (self.first < self.next).then(|| NumberRange { first: self.first, last: self.next - 1 })
    }
}

/// What becomes of a number that is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taking {
    /// It is taken.
    Taken,
    /// It is, and this is for the tree to be told by now.
    Tell(NumberRange),
    /// It is not the next one of a run: it is the tree's.
    NotNext,
}

/// The run, if there is one, and whether one is worth looking for.
#[derive(Debug, Clone, Default)]
pub(super) struct Front {
    run: Option<Run>,
    /// Numbers that were taken in order, the last of which is `previous`; below 0, so many more before it looks again.
    streak: i16,
    previous: u128,
}

impl Front {
    pub fn run(&self) -> Option<Run> {
        self.run
    }

    /// Where the first free number is at the earliest; where there is a run, where it is.
    pub fn floor(&self) -> u128 {
        self.run.map_or(0, |run| run.next)
    }

    /// How many numbers are taken that the tree takes for free.
    pub fn untold(&self) -> u128 {
        self.run.map_or(0, |run| run.next - run.first)
    }

    /// Takes a number, if it is the next one and not the last.
    pub fn take(&mut self, number: u128) -> Taking {
        let Some(run) = self.run.as_mut().filter(|run| run.next == number && number < run.last) else {
            return Taking::NotNext;
        };
        run.next += 1;
        match run.untold().filter(|_| run.next - run.first >= UNTOLD_MAX) {
            Some(untold) => {
                run.first = run.next;
                Taking::Tell(untold)
            }
            None => Taking::Taken,
        }
    }

    /// Gives way to a change that it has no part in: to what is vacated below it, or taken in its run. Answers what the tree is
    /// to be told before that is painted.
    pub fn give_way(&mut self, range: NumberRange, taken: bool) -> Option<NumberRange> {
        let run = self.run.as_mut()?;
        let meets = if taken { range.first <= run.last && range.last >= run.next } else { range.first < run.next };
        if !meets {
            return None;
        }
        if taken && range.first > run.next {
            run.last = range.first - 1;
            return None;
        }
        self.run.take().and_then(Run::untold)
    }

    /// Notes a number that the tree took. Is it time to look for a run behind it?
    pub fn note_taken(&mut self, number: u128) -> bool {
        if self.run.is_some() {
            return false;
        }
        let in_order = self.previous.checked_add(1) == Some(number);
        self.previous = number;
        self.streak = if in_order || self.streak < 0 { self.streak + 1 } else { 0 };
        self.streak >= STREAK
    }

    /// The lowest free run is this one, if there is any. It is worth it if it is long, and goes on where numbers are taken.
    pub fn begin(&mut self, run: Option<(u128, u128)>) {
        let goes_on = |first| self.previous.checked_add(1) == Some(first);
        self.run = run.filter(|(first, last)| last - first >= RUN_MIN && goes_on(*first)).map(|(first, last)| Run {
            first,
            next: first,
            last,
        });
        self.streak = if self.run.is_some() { 0 } else { -BACKOFF };
    }
}
