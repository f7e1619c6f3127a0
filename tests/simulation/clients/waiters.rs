//! Clients that have time: where there is no room they wait for some. Each is served, or told that its time is over; none is
//! forgotten, which shows as one that waits at the end, and none is served twice, which shows as a second holding.

use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::Value;

use super::{Ask, Client, Clients, Kind, Slot, Trade};
use crate::record::Holder;
use crate::truth::Full;
use crate::world::World;

pub(super) fn new(number: usize, bases: usize, draws: &mut SmallRng) -> Client {
    let base = draws.random_range(0..bases);
    let holder = Holder { network: format!("net-{base}"), owner: format!("waiter-{number}"), slot: "0".to_owned() };
    let slots = vec![Slot::new(holder, base, Kind::Wait(draws.random_range(1..6)))];
    Client { slots, trade: Trade::Waiter, ..Client::default() }
}

impl Clients {
    pub(super) fn waiter_asks(world: &mut World, at: usize) -> Vec<Ask> {
        let holds = world.clients.all[at].slots[0].belief.may_hold();
        vec![if holds && world.draws.random_bool(0.8) { Ask::Release(0) } else { Ask::Allocate(0) }]
    }

    /// There was no room, if it is to be believed; and it waited for as long as it was to.
    pub(super) fn told_full(&mut self, at: usize, slot: usize, (sent_ns, told_ns): (u64, u64), error: &Value) {
        let Slot { kind, base, .. } = &self.all[at].slots[slot];
        let base = &self.bases[*base];
        let waited_ms = error["data"]["waited_ms"].as_u64();
        if let Kind::Wait(seconds) = kind
            && waited_ms.is_none_or(|waited_ms| waited_ms < seconds * 1_000)
        {
            let problem = format!("{error} to one that waits for {seconds} s");
            return self.problem(problem);
        }
        if base.cooldown_seconds == 0 && matches!(kind, Kind::Plain | Kind::Lease(_) | Kind::Wait(_) | Kind::Used) {
            let first = u128::from(base.first);
            let (network, pool) = (base.name.clone(), (first, first + u128::from(base.size) - 1));
            self.refusals.push(Full { network, pool, sent_ns, told_ns });
        }
    }
}
