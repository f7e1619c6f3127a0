//! One schedule from its beginning to its judgement: nodes start, networks are made, clients and faults run, everything
//! comes to rest, nodes bring what they put aside, and what clients were told is judged.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use allod::metrics::Metrics;
use allod::store::Store;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::clients::{self, Answer, NETWORKS, call};
use super::faults;
use super::judge::{End, Judge};
use super::log;
use super::plan::{Flaw, Plan};
use super::wire;
use super::world::{Coverage, World};

/// The weather is calm while networks are made.
const MADE_WITHIN_MS: u64 = 20_000;
/// Nodes wait for those that have something to give back: a minute, plus the time until their turn comes.
const OWNED_WITHIN_MS: u64 = 150_000;
/// Longer than a lease.
const LAPSED_MS: u64 = 6_000;
/// Asking where the shards stand takes no longer.
const REVIEWED_WITHIN_MS: u64 = 4_000;
/// A node can bring what it put aside only while it owns the register, so nodes take turns.
const BROUGHT_WITHIN_MS: u64 = 60_000;
/// Longer than a lease.
const STANDS_STILL_MS: u64 = 40_000;

pub struct Outcome {
    /// Every violation, in words.
    pub problems: Vec<String>,
    pub coverage: Coverage,
    pub trace: Vec<String>,
}

pub fn run(plan: Plan, metrics: &Arc<Metrics>, traced: bool) -> Outcome {
    log::listen();
    let panics = metrics.panics.get();
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    let set = LocalSet::new();
    let world = runtime.block_on(set.run_until(go(plan, Arc::clone(metrics), traced)));
    if metrics.panics.get() > panics {
        world.problem("an actor panicked".to_owned());
    }
    let problems = world.server.borrow_mut().problems.drain(..).collect::<Vec<_>>();
    problems.into_iter().for_each(|problem| world.problem(problem));
    let outcome =
        Outcome { problems: world.problems.take(), coverage: world.coverage.take(), trace: world.take_trace() };
    // What lives in the runtime must end in it.
    let _within = runtime.enter();
    drop(set);
    outcome
}

async fn go(plan: Plan, metrics: Arc<Metrics>, traced: bool) -> Rc<World> {
    let (dial, dialled) = mpsc::unbounded_channel();
    let world = World::new(plan, metrics, traced, dial);
    let judge = Rc::new(Judge::default());
    tokio::task::spawn_local(wire::accept(Rc::clone(&world), dialled));
    tokio::task::spawn_local(listen(Rc::clone(&world)));
    (0..world.nodes.len()).for_each(|node| world.start(node));
    tokio::task::spawn_local(Rc::clone(&world).nurse());
    let made =
        tokio::time::timeout(std::time::Duration::from_millis(MADE_WITHIN_MS), clients::make_networks(&world, &judge));
    if !matches!(made.await, Ok(true)) {
        world.problem("the networks could not be made".to_owned());
        return world;
    }
    world.note(|| "-- begins --".to_owned());
    world.server.borrow_mut().is_safe();
    world.calm.set(false);
    let holders: Vec<_> = (0..world.plan.clients)
        .map(|number| tokio::task::spawn_local(clients::holder(Rc::clone(&world), Rc::clone(&judge), number)))
        .collect();
    let ends_ms = world.now_ms() + world.plan.lasts_ms;
    let _ = tokio::time::timeout(std::time::Duration::from_millis(world.plan.lasts_ms), faults::befall(&world)).await;
    world.sleep_until(ends_ms).await;
    world.calm_down();
    if !owned(&world).await {
        let stopped = world.coverage.borrow().get("store stopped itself").copied().unwrap_or_default();
        world.problem(format!(
            "at the end nobody owns the register, or somebody waits ({stopped} stores stopped themselves)"
        ));
    }
    // Clients go on for a while when all is well.
    world.sleep(1_500).await;
    world.over.set(true);
    for holder in holders {
        // A client fails only by a panic.
        if holder.await.is_err() {
            world.problem("a client crashed".to_owned());
        }
    }
    bring(&world).await;
    match end(&world).await {
        Some(end) => judge.judge(&world, &end),
        None => world.problem("nobody answers at the end".to_owned()),
    }
    for node in 0..world.nodes.len() {
        if let Some(process) = world.process(node) {
            world.tally(&process);
        }
    }
    world.hear();
    let mut owners: Vec<u64> = world.written.borrow().iter().map(|(process, _)| *process).collect();
    owners.dedup();
    let distinct: BTreeSet<u64> = owners.iter().copied().collect();
    if distinct.len() > 2 {
        world.hit("three owners wrote");
    }
    if distinct.len() < owners.len() {
        world.hit("an owner of before wrote again");
    }
    // An owner that was alone all the while, on one line, has everything and needs nobody's help.
    if distinct.len() == 1 && world.put_back_ms.get().is_none() {
        for what in ["put aside", "late claims in conflict", "store stopped itself"] {
            if world.coverage.borrow().contains_key(what) {
                world.problem(format!("{what}, although nobody else ever wrote anything"));
            }
        }
        world.hit("one owner all the while");
    }
    world
}

/// Collects the log regularly: otherwise it is collected only when something else happens.
async fn listen(world: Rc<World>) {
    loop {
        world.hear();
        world.sleep(200).await;
    }
}

/// Waits until a node owns the register and no node waits for another: each knows that everything it acknowledged is there,
/// or has put it aside.
async fn owned(world: &World) -> bool {
    // A node that was paused or cut off must first learn that it is no longer the owner.
    world.sleep(LAPSED_MS).await;
    let until_ms = world.now_ms() + OWNED_WITHIN_MS;
    while world.now_ms() < until_ms {
        let owners = world.owners();
        if !owners.is_empty() && know_all(world).await && world.owners() == owners {
            return true;
        }
        world.sleep(700).await;
    }
    false
}

async fn know_all(world: &World) -> bool {
    for node in 0..world.nodes.len() {
        let Some(process) = world.process(node) else { return false };
        let Some(store) = process.store().cloned() else { return false };
        drop(process);
        let reviewed = tokio::time::timeout(std::time::Duration::from_millis(REVIEWED_WITHIN_MS), store.review());
        let reviewed = reviewed.await;
        world.note(|| format!("node-{node} looks whether it has everything: {reviewed:?}"));
        if !matches!(reviewed, Ok(Ok(()))) {
            return false;
        }
    }
    true
}

fn has_late(world: &World, node: usize) -> bool {
    world.process(node).is_some_and(|one| one.store().is_some_and(|store| !store.late().is_empty()))
}

/// Lets nodes bring what they put aside. They cannot reach each other, so each must own the register for that.
async fn bring(world: &Rc<World>) {
    for _ in 0..2 * world.nodes.len() {
        let Some(node) = (0..world.nodes.len()).find(|node| has_late(world, *node)) else { return };
        if world.plan.flaw == Some(Flaw::LateForgotten) {
            forget(world, node).await;
            continue;
        }
        world.note(|| format!("-- node-{node} has something to bring --"));
        world.hit("brought at the end");
        if !world.owners().contains(&node) {
            (0..world.nodes.len()).filter(|other| *other != node).for_each(|other| world.pause(other, STANDS_STILL_MS));
        }
        let brought = |world: &World| world.owners().contains(&node) && !has_late(world, node);
        if !world.until_within(BROUGHT_WITHIN_MS, brought).await {
            world.hit("could not be brought");
        }
        for other in 0..world.nodes.len() {
            if let Some(process) = world.process(other) {
                world.wake(&process);
            }
        }
    }
}

async fn forget(world: &World, node: usize) {
    let Some(process) = world.process(node) else { return };
    let Some(store) = process.store() else { return };
    for late in store.late() {
        drop(store.dealt_with(&late).await);
    }
}

async fn end(world: &World) -> Option<End> {
    let mut end = End::default();
    for (network, ..) in NETWORKS {
        let listed = ask(world, "ip.list", &json!({"network": network})).await?;
        for one in listed["reservations"].as_array()? {
            let text = |member: &str| one[member].as_str().unwrap_or_default().to_owned();
            let generation = one["generation"].as_u64().unwrap_or_default();
            end.held.insert((network.to_owned(), text("address"), text("owner"), generation));
        }
    }
    let listed = ask(world, "cluster.conflicts", &json!({})).await?;
    for one in listed["conflicts"].as_array()? {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let generation = one["late"]["generation"].as_u64().unwrap_or_default();
        let key = (text(&one["network"]), text(&one["address"]), text(&one["late"]["owner"]), generation);
        end.conflicts.insert(key);
    }
    for node in 0..world.nodes.len() {
        end.late.extend(world.process(node).map(|process| process.put_aside()).unwrap_or_default());
    }
    Some(end)
}

/// Asks the owner of the register again and again until it answers.
async fn ask(world: &World, method: &str, params: &Value) -> Option<Value> {
    for _ in 0..120 {
        if let Some(owner) = world.owners().first() {
            match call(world, *owner, method, params.clone(), 3_000).await.0 {
                Answer::Result(result) => return Some(result),
                Answer::Refused(_, error) => {
                    world.note(|| format!("node-{owner} is asked {method} at the end: {error}"))
                }
                Answer::Lost => {}
            }
        }
        world.sleep(500).await;
    }
    None
}
