//! How a schedule goes, drawn from its seed: who takes part, which faults occur, and what is broken in negative controls.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::register::Rules;

/// Who takes part beside the admin and the holders.
#[derive(Debug, Clone, Copy)]
pub struct Cast {
    /// Runs of a deployment that race.
    pub runs: bool,
    pub waiters: usize,
    /// Clients that wait for an address of each of two networks at a time.
    pub waiters_for_two: usize,
    pub sweeper: bool,
    /// At most one: tokio decides by chance in which order it wakes several watchers of one node.
    pub watcher: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// A few faults of any kind.
    Mixed,
    /// Again and again the register refuses everything for longer than a commit is retried. Nothing else happens.
    Refusing,
    /// Again and again the register's clock leaps ahead, and owners renew slowly: leases are over, and others take over,
    /// before the owners know. Nothing else happens.
    Leaping,
    /// The register fails over again and again. Nothing else happens.
    Failing,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub rules: Rules,
    pub nodes: usize,
    pub shards: u16,
    pub together: bool,
    /// How many of a thousand messages meet a fault.
    pub faults_permille: u32,
    pub ends_ms: u64,
    pub weather: Weather,
    pub cast: Cast,
    /// What is broken at the edge of the nodes, in negative controls.
    pub flaw: Option<Flaw>,
}

/// A rule of the product, broken where its nodes meet the world, to show that the judge sees what happens without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// A batch that the register does not answer is taken as not applied, and its number is used again.
    Concludes,
    /// Cursors name no line: a cursor of a line that was cut off is accepted on the line that goes on.
    CursorsAreNumbers,
    /// Now and then an event is told to nobody.
    EventForgotten,
    /// Now and then a waiter is forgotten.
    WaiterForgotten,
    /// A sweep forgets one of the living.
    LivingForgotten,
    /// A commit or revert ends the latest plan, whichever it names.
    AnyPlan,
}

/// One schedule in so many keeps its drawn length, because some stories need two take-overs. The others are shorter.
const LONG_ONE_IN: u64 = 4;

impl Plan {
    /// Most schedules end after a third of their time, with as many faults: so more of them can be run.
    pub fn mostly_short(seed: u64, rules: Rules) -> Self {
        let plan = Self::of(seed, rules);
        match seed % LONG_ONE_IN {
            0 => plan,
            _ => Self { ends_ms: plan.ends_ms / 3, ..plan },
        }
    }

    pub fn of(seed: u64, rules: Rules) -> Self {
        let mut draws = SmallRng::seed_from_u64(seed);
        let shards = draws.random_range(1..=3);
        let nodes = if draws.random_bool(0.7) { 3 } else { 2 };
        let together = shards == 1 || draws.random_bool(0.6);
        Self {
            seed,
            rules,
            nodes,
            shards,
            together,
            faults_permille: [0, 10, 40, 120][draws.random_range(0..4)],
            ends_ms: draws.random_range(5_000..12_000),
            weather: Weather::Mixed,
            flaw: None,
            cast: Cast {
                // Where shards are not committed together, nothing spans networks of several shards.
                runs: draws.random_bool(0.5) && together,
                waiters: [0, 0, 1, 3][draws.random_range(0..4)],
                sweeper: draws.random_bool(0.3),
                watcher: draws.random_bool(0.6),
                waiters_for_two: if together { [0, 0, 1, 2][draws.random_range(0..4)] } else { 0 },
            },
        }
    }
}
