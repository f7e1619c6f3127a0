//! Generations: the numbers that distinguish a holding from any other. All networks of a node draw from one counter, because a
//! subnet that moves takes its holdings to another network, where a late release must not mistake them for what was released
//! there.
//!
//! Used by `network`, which draws for each decision, by `committer` and `service`, which note what the store has, and by
//! `coordinator`, which creates networks.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::types::{Generation, WallTime};

/// The counter: the highest generation that was drawn, or found in the store, in any network, including deleted ones.
#[derive(Debug)]
pub struct Generations(AtomicU64);

/// No generation up to this one may be given again: one is repeated only if clock and store both fail.
pub fn generation_floor(stored: Generation, wall: WallTime) -> Generation {
    Generation((stored.0 + 1).max((wall.0 / 1_000) << 20))
}

impl Generations {
    /// A counter above what the store has.
    pub fn above(stored: Generation) -> Self {
        Self(AtomicU64::new(stored.0))
    }

    /// Notes a generation that is about to become durable, or was found in the store.
    pub fn note(&self, generation: Generation) {
        self.0.fetch_max(generation.0, Ordering::Relaxed);
    }

    /// Draws `count` generations that nobody else is given, above all that were. Returns the first.
    pub fn draw(&self, count: u64) -> Generation {
        if count == 0 {
            return Generation::default();
        }
        Generation(self.0.fetch_add(count, Ordering::Relaxed) + 1)
    }

    /// Gives back generations that were not used. As a rule the next draw has them again, so that a dry run tells what will
    /// come.
    pub fn give_back(&self, first: Generation, count: u64) {
        let (last, before) = (first.0.saturating_add(count).saturating_sub(1), first.0.saturating_sub(1));
        // If somebody has drawn since, there is a gap.
        let _ = self.0.compare_exchange(last, before, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A network that is created or loaded now gives only generations above this one. The floor is over all shards: a network
    /// that is created again under its name may live in another one, and the clock may have gone back meanwhile.
    pub fn floor(&self, wall: WallTime) -> Generation {
        let floor = generation_floor(Generation(self.0.load(Ordering::Relaxed)), wall);
        self.note(floor);
        floor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_drawn_again_unless_somebody_drew_since() {
        let generations = Generations::above(Generation(10));
        assert_eq!(generations.draw(3), Generation(11));
        generations.give_back(Generation(11), 3);
        assert_eq!(generations.draw(1), Generation(11));
        assert_eq!(generations.draw(1), Generation(12));
        generations.give_back(Generation(11), 1);
        assert_eq!(generations.draw(1), Generation(13), "11 and 12 are not given twice");
        assert_eq!((generations.draw(0), generations.draw(1)), (Generation(0), Generation(14)));
    }

    #[test]
    fn a_network_begins_above_clock_and_store_and_so_do_all_others_from_then_on() {
        let generations = Generations::above(Generation(10));
        let floor = generations.floor(WallTime(2_000));
        assert_eq!(floor, Generation(2 << 20));
        assert!(generations.draw(1) > floor);
        assert!(generations.floor(WallTime(0)) > floor, "the clock went back");
    }
}
