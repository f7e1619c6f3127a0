//! One schedule from its beginning to its judgement: nodes start, networks are made, clients and faults run, everything
//! comes to rest, and what clients were told is judged.

use std::sync::Arc;

use allod::metrics::Metrics;
use rand::Rng;

use super::checker;
use super::clients::{Clients, DEPLOYMENT};
use super::truth::Truth;
use super::world::{Coverage, Plan, Weather, World};

/// The weather is calm, so three networks are made in a moment. It takes two seconds only if something does not live in the
/// time of the world.
const MADE_WITHIN_MS: u64 = 2_000;

pub struct Outcome {
    /// Every violation, in words.
    pub problems: Vec<String>,
    pub coverage: Coverage,
    pub trace: Vec<String>,
}

pub fn run(plan: Plan, metrics: &Arc<Metrics>, traced: bool) -> Outcome {
    let panics = metrics.panics.get();
    let mut world = World::new(plan, Arc::clone(metrics), traced);
    world.calm = true;
    (0..world.nodes.len()).for_each(|at| world.start_node(at));
    world.after(50, |world| Clients::turn(world, 0));
    world.run(MADE_WITHIN_MS, |world| world.clients.all_made());
    if world.clients.all_made() {
        world.calm = false;
        world.plan.ends_ms += world.now_ms;
        Clients::begin(&mut world);
        draw_faults(&mut world);
        let ends = world.plan.ends_ms;
        world.run(ends, |_| false);
        calm_down(&mut world);
        world.run(ends + 14_000, |world| world.clients.all_ended());
        // Nodes may still carry out requests for which no client waits any more.
        let settled = world.now_ms + 3_000;
        world.run(settled, |_| false);
        if !world.clients.all_ended() {
            world.clients.problems.push("a client waits at the end".to_owned());
        }
        Clients::judge_the_end(&mut world);
        catch_up(&mut world);
        judge(&mut world);
    } else {
        world.clients.problems.push("the networks could not be made".to_owned());
    }
    for (what, times) in [
        ("lease ended", world.register.expired),
        ("block given", world.register.blocks),
        ("three owners wrote in one shard", world.register.with_three_owners() as u64),
    ] {
        *world.coverage.entry(what).or_default() += times;
    }
    let verdict = checker::check(&world.clients.calls);
    world.clients.judge_looks(&verdict.sure);
    world.clients.problems.extend(verdict.problems);
    *world.coverage.entry("sure holding").or_default() += verdict.sure_holdings as u64;
    if metrics.panics.get() > panics {
        world.clients.problems.push("an actor panicked".to_owned());
    }
    let (trace, problems) = (world.take_trace(), std::mem::take(&mut world.clients.problems));
    Outcome { problems, coverage: std::mem::take(&mut world.coverage), trace }
}

/// Runs the world until every watcher knows everything.
fn catch_up(world: &mut World) {
    for _ in 0..60 {
        let truth = Truth::new(&world.register, world.clients.networks());
        if world.clients.watched_all(&truth) {
            return;
        }
        let until = world.now_ms + 250;
        world.run(until, |_| false);
    }
}

/// Compares what clients were shown with what happened.
fn judge(world: &mut World) {
    let truth = Truth::new(&world.register, world.clients.networks());
    let mut problems = Vec::new();
    if world.plan.rules.confirmation {
        world.clients.judge_by(&truth, &mut problems);
    }
    world.clients.judge_watchers(&truth, !world.plan.rules.confirmation, &mut problems);
    if world.plan.cast.runs {
        truth.judge_alike(DEPLOYMENT, ["net-0", "net-1"], &mut problems);
    }
    truth.judge_transactions(&mut problems);
    world.clients.problems.extend(problems);
}

/// Draws all faults of nodes and register. Most of them affect the owner.
fn draw_faults(world: &mut World) {
    let (begins, ends) = (world.now_ms, world.plan.ends_ms);
    match world.plan.weather {
        Weather::Mixed => {}
        Weather::Refusing => {
            (begins + 400..ends).step_by(3_300).for_each(|at_ms| world.at(at_ms, |world| world.busy(2_300)));
            return;
        }
        Weather::Leaping => {
            (begins + 600..ends).step_by(2_600).for_each(|at_ms| world.at(at_ms, World::leap));
            return;
        }
        Weather::Failing => {
            for at_ms in (begins + 300..ends).step_by(700) {
                // Replicas lag, so there is something to lose.
                world.at(at_ms, |world| world.lag(200));
                world.at(at_ms + 190, |world| {
                    let lost = world.draws.random_range(1..5);
                    world.fail_over(lost);
                });
            }
            return;
        }
    }
    for _ in 0..world.draws.random_range(1..=6) {
        let at_ms = world.draws.random_range(begins..ends);
        let kind = world.draws.random_range(0..20);
        world.at(at_ms, move |world| {
            let any = world.draws.random_range(0..world.nodes.len());
            let victim = if world.draws.random_bool(0.8) { world.owner().unwrap_or(any) } else { any };
            // Mostly longer than a lease.
            let long = if world.draws.random_bool(0.7) { 5_000..9_000 } else { 100..4_000 };
            let long = world.draws.random_range(long);
            match kind {
                0..5 => world.pause_node(victim, long),
                5..8 => {
                    world.kill_node(victim);
                    let after = world.draws.random_range(100..5_000);
                    world.after(after, move |world| world.start_again(victim));
                }
                8 => {
                    world.stop_node(victim);
                    world.after(7_000, move |world| world.start_again(victim));
                }
                9..13 => {
                    let lost = world.draws.random_range(0..8);
                    world.fail_over(lost);
                    if world.draws.random_bool(0.5) {
                        world.hit("double rollback");
                        let soon = world.draws.random_range(1..40);
                        world.after(soon, |world| {
                            let lost = world.draws.random_range(1..8);
                            world.fail_over(lost);
                        });
                    }
                }
                13 => world.cut_node(victim, long),
                14 | 15 => {
                    let ms = world.draws.random_range(50..4_000);
                    world.busy(ms);
                }
                16 | 17 => {
                    let ms = world.draws.random_range(20..2_500);
                    world.lag(ms);
                    if world.draws.random_bool(0.6) {
                        let soon = world.draws.random_range(10..=ms);
                        world.after(soon, |world| {
                            let lost = world.draws.random_range(1..10);
                            world.fail_over(lost);
                        });
                    }
                }
                _ => {
                    let ms = world.draws.random_range(-3_600_000..3_600_000);
                    world.jump_clock(any, ms);
                }
            }
        });
    }
}

/// Ends the faults: sleeping nodes wake, dead ones start again.
fn calm_down(world: &mut World) {
    world.calm = true;
    world.note(|| "-- calm --".to_owned());
    for at in 0..world.nodes.len() {
        world.wake_early(at);
        let stops = world.nodes[at].process.as_ref().is_some_and(|process| process.server.stop.is_cancelled());
        if stops {
            world.kill_node(at);
        }
        world.start_again(at);
    }
}
