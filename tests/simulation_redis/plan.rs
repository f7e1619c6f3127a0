//! How a schedule goes, drawn from its seed: who is there, what befalls them, and in negative controls what is wrong.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// What befalls nodes and Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Redis goes back, again and again, and nothing else happens: nobody but the owner has anything to give back, and nothing
    /// may be missing, or in conflict, afterwards.
    GoingBack,
    /// The owner changes, orderly or not, and Redis goes back past that: each who owned the register has its part to give back.
    PastTakeOvers,
    /// The owner is cut off, or stands still, and Redis goes back; another goes on before the first is there again.
    Parting,
    /// The owner is cut off with a batch under way, another one goes on from it, and Redis goes back to before it.
    UnderWay,
    /// Redis goes back, and its owner is asked to stop before it can have noticed: it gives back what it acknowledged first.
    Leaving,
    /// Redis is emptied, or comes back with nothing.
    Emptied,
    /// Anything.
    Mixed,
}

/// Something that is switched off, to show that the judge sees what happens without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing is remembered that could be given back.
    HealsNothing,
    /// Whoever has something put aside forgets it.
    LateForgotten,
}

/// How a schedule goes.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub weather: Weather,
    pub nodes: usize,
    pub shards: u16,
    /// How many of a thousand messages meet with a fault.
    pub faults_permille: u32,
    /// For how long faults happen.
    pub lasts_ms: u64,
    pub clients: usize,
    pub flaw: Option<Flaw>,
    /// Are the gaps that are known passed over? See `judge`.
    pub passes_known: bool,
}

impl Plan {
    pub fn of(seed: u64) -> Self {
        let mut draws = SmallRng::seed_from_u64(seed);
        let weather = match draws.random_range(0..20) {
            0..3 => Weather::GoingBack,
            3..9 => Weather::PastTakeOvers,
            9..13 => Weather::Parting,
            13 => Weather::Leaving,
            14 => Weather::UnderWay,
            15 => Weather::Emptied,
            _ => Weather::Mixed,
        };
        Self {
            seed,
            weather,
            nodes: 3,
            shards: draws.random_range(1..=3),
            // Who stops is not to be kept from what it has to do. Who cannot renew its lease does not have it in memory when Redis is emptied.
            faults_permille: match weather {
                Weather::Leaving | Weather::Emptied => 0,
                _ => [0, 5, 20, 60][draws.random_range(0..4)],
            },
            lasts_ms: draws.random_range(8_000..30_000),
            clients: draws.random_range(3..=8),
            flaw: None,
            passes_known: true,
        }
    }
}
