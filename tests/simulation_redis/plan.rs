//! How a schedule goes, drawn from its seed: who takes part, which faults occur, and what is broken in negative controls.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Redis goes back again and again, and nothing else happens. Only the owner has anything to give back, and afterwards
    /// nothing may be missing or in conflict.
    GoingBack,
    /// The owner changes, in order or not, and Redis goes back past that: each owner of the register has its part to give
    /// back.
    PastTakeOvers,
    /// The owner is cut off or paused, and Redis goes back; another node goes on before the first is back.
    Parting,
    /// The owner is cut off with a batch under way, another node goes on from that batch, and Redis goes back to before it.
    UnderWay,
    /// Redis goes back, and its owner is asked to stop before it can have noticed: it must first give back what it
    /// acknowledged.
    Leaving,
    /// Redis is emptied, or comes back with nothing.
    Emptied,
    Mixed,
}

/// Something that is switched off, to show that the judge sees what happens without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing is remembered that could be given back.
    HealsNothing,
    /// Nodes forget what they have put aside.
    LateForgotten,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub weather: Weather,
    pub nodes: usize,
    pub shards: u16,
    /// How many of a thousand messages meet a fault.
    pub faults_permille: u32,
    /// For how long faults happen.
    pub lasts_ms: u64,
    pub clients: usize,
    pub flaw: Option<Flaw>,
    /// Whether known gaps are passed over (see `judge`).
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
            // Faults must not keep a stopping node from its duty. An owner that cannot renew its lease has nothing in memory
            // when Redis is emptied.
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
