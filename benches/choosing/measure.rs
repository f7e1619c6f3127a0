//! How long a choice takes. It has no door of its own: what is timed is the decision of an `ip.allocate`, and what all of it but
//! the choice takes is timed in turns with it, in a network in which nothing has to be chosen.
//!
//! Each decision is timed by itself, and applied outside of the timing, so that the next one meets other memory: the choice is
//! the median of some thousands less the median of the others. Between the two stands what the clock takes, too.

use std::collections::BTreeSet;
use std::time::Instant;

use allod::core::address::Address;
use allod::core::command::{Command, Wish};

use crate::world::{Plan, World, granted};

/// Decisions of one figure; fewer where they take long.
const SAMPLES: usize = 4_000;
const SAMPLES_MIN: usize = 20;
const SECONDS_MAX: f64 = 3.0;
/// Grants of the other network until it begins anew, and before: as many as it takes to be seen to be in order.
const PLAIN_GRANTS_MAX: usize = 150;
const GRANTS_IN_ORDER: usize = 64;

/// Nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// The choice alone.
    pub choice: f64,
    /// Everything else of a decision.
    pub rest: f64,
    /// The whole request: decide and apply.
    pub request: f64,
}

/// A network whose lowest free address is read off: it stands behind the one that was taken last.
struct Plain {
    fresh: World,
    world: World,
    granted: usize,
}

impl Plain {
    fn new(plan: &Plan) -> Self {
        let mut fresh = plan.load(&BTreeSet::new(), 32);
        for _ in 0..GRANTS_IN_ORDER {
            let command = fresh.allocate(&Wish::default());
            granted(fresh.ask(&command));
        }
        Self { world: fresh.clone(), fresh, granted: 0 }
    }

    fn decision(&mut self, applies: bool) -> f64 {
        if self.granted == PLAIN_GRANTS_MAX {
            (self.world, self.granted) = (self.fresh.clone(), 0);
        }
        self.granted += 1;
        let command = self.world.allocate(&Wish::default());
        one(&mut self.world, &command, applies).expect("it is not full").0
    }
}

/// Decides, and applies: how long the decision took, and all of it, and what was given. None: refused.
fn one(world: &mut World, command: &Command, applies: bool) -> Option<(f64, f64, Option<Address>)> {
    let context = world.context();
    let start = Instant::now();
    let decided = world.network.decide(command, context);
    let decision_took = start.elapsed().as_secs_f64();
    let decision = decided.ok()?;
    if !applies {
        return Some((decision_took, decision_took, None));
    }
    let start = Instant::now();
    let outcome = world.apply(decision);
    let apply_took = start.elapsed().as_secs_f64();
    Some((decision_took, decision_took + apply_took, Some(granted(Ok(outcome)))))
}

/// What becomes of an address that was chosen, outside of the timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// It stays taken; after so many, everything begins anew.
    Keep(usize),
    /// It is let go at once.
    Release,
    /// It is not taken at all.
    Leave,
}

/// The medians of some thousands of requests, made by `ask`; those of `plain` take the lowest address of its first subnet.
pub fn measured(fresh: &World, plain: &Plan, after: After, ask: impl Fn(&mut World) -> Command) -> Figure {
    let mut plain = Plain::new(plain);
    let mut world = fresh.clone();
    let (mut decisions, mut requests, mut others) = (Vec::new(), Vec::new(), Vec::new());
    let mut kept = 0;
    let begin = Instant::now();
    let is_over = |samples: usize| samples >= SAMPLES_MIN && begin.elapsed().as_secs_f64() > SECONDS_MAX;
    while decisions.len() < SAMPLES && !is_over(decisions.len()) {
        let command = ask(&mut world);
        let (decision, request, address) = one(&mut world, &command, after != After::Leave).expect("there is room");
        decisions.push(decision);
        requests.push(request);
        others.push(plain.decision(after != After::Leave));
        world.pass(1);
        kept += 1;
        match after {
            After::Release => {
                address.into_iter().for_each(|at| drop(world.ask(&World::release(at)).expect("it is held")))
            }
            After::Keep(most) if kept >= most => (world, kept) = (fresh.clone(), 0),
            After::Keep(_) | After::Leave => {}
        }
    }
    let (decision, request, rest) = (median(decisions), median(requests), median(others));
    Figure { choice: decision - rest, rest, request }
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2] * 1e9
}
