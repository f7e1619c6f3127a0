//! How a schedule goes, drawn from its seed: who is there, what befalls them, and in negative controls what is wrong.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::register::Rules;

/// Who is there beside the admin and the holders.
#[derive(Debug, Clone, Copy)]
pub struct Cast {
    /// Runs of a deployment that race.
    pub runs: bool,
    pub waiters: usize,
    /// Those who wait for an address of each of two networks at a time.
    pub waiters_for_two: usize,
    pub sweeper: bool,
    /// One at most: the order in which those who watch at one node are woken is tokio's chance.
    pub watcher: bool,
}

/// What befalls nodes and register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// A few faults of any kind.
    Mixed,
    /// The register refuses everything for longer than a commit is tried, again and again, and nothing else happens.
    Refusing,
    /// The register's clock leaps ahead, again and again: leases are over, and others take over, before their owners know, who
    /// renew slowly. Nothing else happens.
    Leaping,
    /// The register fails over, again and again, and nothing else happens.
    Failing,
}

/// How a schedule goes.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub rules: Rules,
    pub nodes: usize,
    pub shards: u16,
    pub together: bool,
    /// How many of a thousand messages meet with a fault.
    pub faults_permille: u32,
    pub ends_ms: u64,
    pub weather: Weather,
    pub cast: Cast,
    /// What is wrong at the edge of the nodes, in negative controls.
    pub flaw: Option<Flaw>,
}

/// A rule of the product that is broken where its nodes meet the world, to show that the judge sees what happens without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// What the register does not answer is taken for not applied, and its number is used again.
    Concludes,
    /// Cursors name no line: one of a line that was cut off is taken for one of the line that goes on.
    CursorsAreNumbers,
    /// An event is told to nobody, now and then.
    EventForgotten,
    /// Somebody who waits is forgotten, now and then.
    WaiterForgotten,
    /// A sweep forgets one of those who are alive.
    LivingForgotten,
    /// A commit or a revert is of whichever plan is the latest.
    AnyPlan,
}

/// One schedule in so many is as long as it was drawn: some stories take two take-overs.
const LONG_ONE_IN: u64 = 4;

impl Plan {
    /// Mostly a schedule that meets with as many faults in a third of the time: more of them can be run.
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
                // Where shards are not committed together, nothing spans them.
                runs: draws.random_bool(0.5) && together,
                waiters: [0, 0, 1, 3][draws.random_range(0..4)],
                sweeper: draws.random_bool(0.3),
                watcher: draws.random_bool(0.6),
                waiters_for_two: if together { [0, 0, 1, 2][draws.random_range(0..4)] } else { 0 },
            },
        }
    }
}
