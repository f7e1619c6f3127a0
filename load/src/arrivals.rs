//! When requests arrive in an open loop: on a schedule of their own, however fast the server answers.
//!
//! Latency counts from the arrival, not from the moment at which a lane was free to send. A server that stalls for a second
//! delays every request that arrives in that second, and all these delays are counted.

use std::time::Duration;

/// How arrivals are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Spread {
    /// As many independent clients come: gaps are exponentially distributed.
    Poisson,
    /// One after the other at equal distances.
    Even,
}

/// A rate, and how its arrivals are spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    pub per_second: f64,
    pub spread: Spread,
}

/// The times at which requests arrive, counted from the beginning of a run.
#[derive(Debug, Clone)]
pub struct Arrivals {
    rate: Rate,
    next: Duration,
    chance: Chance,
}

impl Arrivals {
    /// The same rate and seed give the same arrivals.
    pub fn new(rate: Rate, seed: u32) -> Self {
        let mut arrivals = Self { rate, next: Duration::ZERO, chance: Chance::new(seed) };
        arrivals.advance();
        arrivals
    }

    /// When the next request arrives.
    pub fn next(&self) -> Duration {
        self.next
    }

    /// Moves on to the arrival after the next one.
    pub fn advance(&mut self) {
        let mean = 1.0 / self.rate.per_second;
        let gap = match self.rate.spread {
            Spread::Even => mean,
            Spread::Poisson => -mean * self.chance.fraction().ln(),
        };
        // At a rate close to zero the gap is not a valid duration: that arrival never comes.
        self.next = self.next.saturating_add(Duration::try_from_secs_f64(gap).unwrap_or(Duration::MAX));
    }
}

/// Pseudo-random numbers (splitmix64); the same seed gives the same sequence.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u32) -> Self {
        Self(u64::from(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A fraction above zero and at most one.
    pub fn fraction(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A number below `bound`, which must be above zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_keep_their_rate_however_they_are_spread() {
        for spread in [Spread::Even, Spread::Poisson] {
            let mut arrivals = Arrivals::new(Rate { per_second: 1_000.0, spread }, 1);
            let mut last = Duration::ZERO;
            for _ in 0..100_000 {
                assert!(arrivals.next() >= last);
                last = arrivals.next();
                arrivals.advance();
            }
            assert!((last.as_secs_f64() - 100.0).abs() < 2.0, "{spread:?}: {last:?}");
        }
    }

    #[test]
    fn a_rate_next_to_nothing_is_a_long_wait_and_no_panic() {
        let mut arrivals = Arrivals::new(Rate { per_second: f64::MIN_POSITIVE, spread: Spread::Even }, 1);
        arrivals.advance();
        assert_eq!(arrivals.next(), Duration::MAX);
    }
}
