//! Clients that wait when there is no room. Each must be served, or told that its time is over. A forgotten one shows as a
//! client that still waits at the end; one that is served twice shows as a second holding.

//! Some wait for two networks at a time. They get both by one act or nothing, and hold nothing meanwhile: whatever happens
//! in between, the register's lines never show half of it (`Truth::judge_waits`).

use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::Value;

use super::{Ask, Client, Clients, Kind, Slot, Trade};
use crate::belief::Belief;
use crate::record::Holder;
use crate::truth::{Full, Waited};
use crate::world::World;

pub(super) fn new(number: usize, bases: usize, draws: &mut SmallRng) -> Client {
    let base = draws.random_range(0..bases);
    let holder = Holder { network: format!("net-{base}"), owner: format!("waiter-{number}"), slot: "0".to_owned() };
    let slots = vec![Slot::new(holder, base, Kind::Wait(draws.random_range(1..6)))];
    Client { slots, trade: Trade::Waiter, ..Client::default() }
}

/// A client that waits for an address of each of two networks.
pub(super) fn for_two(number: usize, draws: &mut SmallRng) -> Client {
    let seconds = draws.random_range(1..6);
    let slot = |base: usize| {
        let holder = Holder { network: format!("net-{base}"), owner: format!("both-{number}"), slot: "0".to_owned() };
        Slot::new(holder, base, Kind::PairWaits { other: 1 - base, seconds })
    };
    Client { slots: (0..2).map(slot).collect(), trade: Trade::Waiter, ..Client::default() }
}

impl Clients {
    pub(super) fn waiter_asks(world: &mut World, at: usize) -> Vec<Ask> {
        if world.clients.all[at].slots.len() == 2 {
            let holds = |slot: &usize| world.clients.all[at].slots[*slot].belief.may_hold();
            let held: Vec<usize> = (0..2).filter(holds).collect();
            // Mostly it releases both at a time; now and then only one, and keeps the other.
            let held = &held[..held.len().min(if world.draws.random_bool(0.8) { 2 } else { 1 })];
            return match held.is_empty() || world.draws.random_bool(0.2) {
                true => vec![Ask::Acquire([0, 1])],
                false => held.iter().map(|slot| Ask::Release(*slot)).collect(),
            };
        }
        let holds = world.clients.all[at].slots[0].belief.may_hold();
        vec![if holds && world.draws.random_bool(0.8) { Ask::Release(0) } else { Ask::Allocate(0) }]
    }

    /// The answer to a wait for two: granted, or no room in the given one.
    pub(super) fn told_wait_for_two(
        &mut self,
        at: usize,
        pair: [usize; 2],
        (sent_ns, told_ns): (u64, u64),
        refused: Option<&Value>,
    ) {
        let slots = &self.all[at].slots;
        // A request for which no client waits any more may be carried out meanwhile.
        let alone = |slot: &Slot| slot.lingering.iter().all(|lingering| lingering.over_ns <= sent_ns);
        if pair.iter().all(|slot| slots[*slot].belief.is_absent() && alone(&slots[*slot])) {
            let owner = slots[pair[0]].holder.owner.clone();
            self.waits.push(Waited { owner, sent_ns, told_ns, granted: refused.is_none() });
        }
        let Some(error) = refused else { return };
        match error["data"]["index"].as_u64().and_then(|index| pair.get(index as usize)) {
            Some(slot) => {
                let one = &mut self.all[at].slots[*slot];
                let held = one.belief.surely(told_ns);
                one.belief = Belief::default();
                if let Some(held) = held {
                    self.problem(format!("{error} to one that held {held:?} there"));
                }
                self.told_full(at, *slot, (sent_ns, told_ns), error);
            }
            None => self.problem(format!("{error} does not say of which of two")),
        }
    }

    /// An answer says that there was no room. Checks whether that is plausible, and whether the request waited as long as it
    /// had to.
    pub(super) fn told_full(&mut self, at: usize, slot: usize, (sent_ns, told_ns): (u64, u64), error: &Value) {
        let Slot { kind, base, .. } = &self.all[at].slots[slot];
        let base = &self.bases[*base];
        let waited_ms = error["data"]["waited_ms"].as_u64();
        if let Kind::Wait(seconds) | Kind::PairWaits { seconds, .. } = kind
            && waited_ms.is_none_or(|waited_ms| waited_ms < seconds * 1_000)
        {
            let problem = format!("{error} to one that waits for {seconds} s");
            return self.problem(problem);
        }
        if base.cooldown_seconds == 0 && !matches!(kind, Kind::Block(_) | Kind::Pair(_)) {
            let first = u128::from(base.first);
            let (network, pool) = (base.name.clone(), (first, first + u128::from(base.size) - 1));
            self.refusals.push(Full { network, pool, sent_ns, told_ns });
        }
    }
}
