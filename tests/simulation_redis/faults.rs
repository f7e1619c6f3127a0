//! The faults of nodes and Redis in a schedule: short stories, one after the other, chosen by its weather.

use std::rc::Rc;

use super::plan::Weather;
use super::redis::Data;
use super::world::World;

/// Within this time another owner takes over: a lease, and some more.
const TAKEN_WITHIN_MS: u64 = 9_000;

/// Plays stories without end.
pub async fn befall(world: &Rc<World>) {
    // The data of an earlier primary.
    let mut before: Option<Data> = None;
    loop {
        world.sleep(world.draw(150..2_500)).await;
        match (world.plan.weather, world.draw(0..12)) {
            (Weather::GoingBack, 0) => {
                world.server.borrow_mut().forget_scripts();
                world.hit("scripts forgotten");
            }
            (Weather::GoingBack, _) => goes_back_twice(world).await,
            (Weather::PastTakeOvers, 0..4) => hands_over(world).await,
            (Weather::PastTakeOvers, 4..10) => past_take_overs(world).await,
            (Weather::PastTakeOvers, _) => goes_back(world),
            (Weather::Parting, 0..6) => parts(world).await,
            (Weather::Parting, 6..10) => forks(world).await,
            (Weather::Parting, _) => goes_back(world),
            (Weather::UnderWay, _) => under_way(world).await,
            (Weather::Leaving, _) => leaves(world).await,
            (Weather::Emptied, 0..3) => is_emptied(world).await,
            (Weather::Emptied, _) => world.go_back(changes(world), 0),
            (Weather::Mixed, 0..2) => world.kill(victim(world), world.draw(50..6_000)),
            (Weather::Mixed, 2..4) => stands_still(world),
            (Weather::Mixed, 4) => stops(world),
            (Weather::Mixed, 5) => past_take_overs(world).await,
            (Weather::Mixed, 6) => parts(world).await,
            (Weather::Mixed, 7) => forks(world).await,
            (Weather::Mixed, 8) => {
                before = Some(world.server.borrow().copy());
                goes_back(world);
            }
            (Weather::Mixed, 9) => match before.take() {
                Some(data) => world.put_back(data, away_ms(world)),
                None => goes_back(world),
            },
            (Weather::Mixed, _) => goes_back_twice(world).await,
        }
    }
}

/// Mostly the node that owns the register.
fn victim(world: &World) -> usize {
    let any = world.draw(0..world.nodes.len() as u64) as usize;
    world.owners().first().copied().filter(|_| !world.one_in(8)).unwrap_or(any)
}

/// Mostly longer than a lease.
fn long_ms(world: &World) -> u64 {
    if world.one_in(4) { world.draw(100..5_000) } else { world.draw(5_500..14_000) }
}

fn away_ms(world: &World) -> u64 {
    if world.one_in(3) { world.draw(10..2_500) } else { 0 }
}

fn changes(world: &World) -> usize {
    let most = [1, 3, 8, 40, 120][world.draw(0..5) as usize];
    1 + world.draw(0..most) as usize
}

fn goes_back(world: &World) {
    world.go_back(changes(world), away_ms(world));
}

async fn goes_back_twice(world: &World) {
    goes_back(world);
    if world.one_in(3) {
        world.hit("double rollback");
        world.sleep(world.draw(1..60)).await;
        goes_back(world);
    }
}

/// The owner is paused or cut off, now or with its next batch under way.
fn stands_still(world: &Rc<World>) {
    let (victim, long_ms) = (victim(world), long_ms(world));
    match world.draw(0..3) {
        0 => world.pause(victim, long_ms),
        1 => world.cut(victim, long_ms),
        _ => world.cuts_next_ms.set(Some(long_ms)),
    }
}

/// Stops a node in order, if it can reach Redis.
fn stops(world: &World) {
    let victim = victim(world);
    if world.passes(victim) {
        world.stop(victim, world.draw(50..8_000));
    }
}

/// Another node takes the register over, unless none does in time. The new owner gets some time to change something.
async fn hands_over(world: &Rc<World>) {
    let before = world.owners();
    match world.draw(0..5) {
        0 => stops(world),
        _ => stands_still(world),
    }
    world.until_within(TAKEN_WITHIN_MS, |world| world.owners() != before && !world.owners().is_empty()).await;
    world.sleep(world.draw(20..1_500)).await;
}

/// One or two hand-overs, and Redis goes back past them.
async fn past_take_overs(world: &Rc<World>) {
    for _ in 0..=world.draw(0..3) / 2 {
        hands_over(world).await;
    }
    if world.one_in(3) {
        // Perhaps with a batch under way.
        stands_still(world);
    }
    let more = if world.one_in(2) { 0 } else { changes(world) };
    if !world.go_back_past_take_over(more, away_ms(world)) {
        goes_back(world);
    }
    if world.one_in(4) {
        world.hit("double rollback");
        world.sleep(world.draw(1..4_000)).await;
        goes_back(world);
    }
}

/// Redis goes back while the owner cannot notice, and another one goes on from there.
async fn parts(world: &Rc<World>) {
    let before = world.owners();
    stands_still(world);
    if world.one_in(2) {
        world.sleep(world.draw(1..4_000)).await;
    }
    goes_back(world);
    world.until_within(TAKEN_WITHIN_MS, |world| world.owners() != before && !world.owners().is_empty()).await;
    world.sleep(world.draw(20..2_000)).await;
}

/// A failover that is undone: what was written since is gone, and what was lost is there again.
async fn forks(world: &Rc<World>) {
    let data = world.server.borrow().copy();
    if world.one_in(2) {
        stands_still(world);
    }
    goes_back(world);
    world.sleep(if world.one_in(2) { world.draw(5..600) } else { world.draw(600..9_000) }).await;
    world.put_back(data, away_ms(world));
}

/// The owner is cut off with a batch under way and another one takes over. Clients get time to ask again and be told; then
/// Redis goes back to before the batch.
async fn under_way(world: &World) {
    let owners = world.owners();
    if owners.len() != 1 {
        return;
    }
    world.under_way.set(None);
    world.cuts_next_ms.set(Some(world.draw(6_000..9_000)));
    world.until_within(TAKEN_WITHIN_MS, |world| world.owners() != owners && !world.owners().is_empty()).await;
    world.sleep(world.draw(500..5_000)).await;
    let changed = world.server.borrow().changed;
    if let Some(before) = world.under_way.take() {
        world.go_back((changed + 1 - before) as usize, 0);
        world.sleep(world.draw(500..15_000)).await;
    }
}

/// An owner is stopped after Redis went back. Only changes of this owner are lost, and another one takes over before the
/// next story.
async fn leaves(world: &World) {
    let owners = world.owners();
    let [owner] = owners[..] else { return };
    let most = world.server.borrow().since_take_over().map_or(20, |since| since - 1).min(20);
    if most > 0 {
        // Sometimes for longer than a stop waits.
        let away_ms = if world.one_in(2) { world.draw(15_000..40_000) } else { 0 };
        world.go_back(1 + world.draw(0..most as u64) as usize, away_ms);
        world.sleep(world.draw(0..900)).await;
    }
    world.stop(owner, world.draw(50..6_000));
    world.until_within(TAKEN_WITHIN_MS, |world| world.owners() != owners && !world.owners().is_empty()).await;
    world.sleep(world.draw(200..2_000)).await;
}

/// Redis is emptied. The register is in memory only at a node that owns it and knows so, and is written anew before anything
/// else happens.
async fn is_emptied(world: &World) {
    world.sleep(3_000).await;
    if !world.owners().is_empty() {
        world.flush(world.one_in(2));
        world.sleep(10_000).await;
        // The register must not become empty again, or half written, because Redis goes back.
        world.server.borrow_mut().is_safe();
    }
}
