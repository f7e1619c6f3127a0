//! Leases, cooldowns and published figures: one queue of due networks per tenure and reactor thread, one timer beside it.
//!
//! Sends [`Tick`]; never changes state itself. A network registers after a turn: when something is due next, and whether
//! its figures changed. An idle network costs nothing here. Of many whose figures changed only some are woken at a time:
//! publishing costs as much as deciding a few requests, and of 10 000 networks each has a few between two ticks.
//!
//! A queue belongs to one tenure: what actors of an earlier one left behind, or of another node in the same process, can
//! not stand in the way of those that serve.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use actix::Addr;
use actix::prelude::SendError;
use hashbrown::HashMap;

use super::clock::Clock;
use super::network::{NetworkActor, Tick};
use crate::core::types::NetworkId;

/// How often the queue is looked at. Leases end within two seconds of their time; this leaves room for a commit.
const TICK: Duration = Duration::from_millis(250);
/// So many networks publish in each tick, if their figures changed, and this part of them where there are more: all within
/// two seconds.
const PUBLISHED_MIN: usize = 64;
const PUBLISHED_PART: usize = 8;

#[derive(Debug, Default)]
struct Queue {
    due: BTreeSet<(u64, NetworkId)>,
    of: HashMap<NetworkId, (u64, Addr<NetworkActor>)>,
    dirty: HashMap<NetworkId, Addr<NetworkActor>>,
    /// The dirty ones, in the order in which they became so.
    changed: VecDeque<NetworkId>,
}

/// The queue of the networks that run on one reactor thread.
#[derive(Debug)]
pub struct Timers {
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
}

impl Timers {
    /// With nothing due.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, queue: Mutex::default() }
    }

    /// One thread comes here, and whoever starts a network: it is never waited for.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is due then (boot time; none: nothing), and figures may have changed. Holds until the [`Tick`] comes. The
    /// last actor that speaks for a network is the one that is woken.
    pub fn register(&self, id: NetworkId, addr: &Addr<NetworkActor>, due: Option<u64>, dirty: bool) {
        let mut queue = self.queue();
        let present = queue.of.get(&id).map(|(at, of)| (*at, of == addr));
        if present != due.map(|due| (due, true)) {
            if let Some((at, _)) = queue.of.remove(&id) {
                queue.due.remove(&(at, id));
            }
            if let Some(at) = due {
                queue.due.insert((at, id));
                queue.of.insert(id, (at, addr.clone()));
            }
        }
        if dirty && queue.dirty.get(&id) != Some(addr) && queue.dirty.insert(id, addr.clone()).is_none() {
            queue.changed.push_back(id);
        }
    }

    fn wake(&self) {
        let woken = {
            let mut queue = self.queue();
            let now = self.clock.boot_ms();
            let publish = PUBLISHED_MIN.max(queue.changed.len().div_ceil(PUBLISHED_PART)).min(queue.changed.len());
            // In an order that a schedule's seed decides.
            let mut woken = BTreeMap::new();
            for _ in 0..publish {
                if let Some(id) = queue.changed.pop_front()
                    && let Some(addr) = queue.dirty.remove(&id)
                {
                    woken.insert(id, addr);
                }
            }
            while let Some(&(at, id)) = queue.due.first()
                && at <= now
            {
                queue.due.pop_first();
                if let Some((_, addr)) = queue.of.remove(&id) {
                    woken.insert(id, addr);
                }
            }
            woken
        };
        for (id, addr) in woken {
            if let Err(SendError::Full(_)) = addr.try_send(Tick) {
                // It does not register again before this has come. One that is closed is no more.
                self.register(id, &addr, Some(self.clock.boot_ms()), true);
            }
        }
    }
}

/// The timer of one queue. Runs until its tenure is over and forgotten; spawned once per reactor thread.
#[expect(clippy::disallowed_methods, reason = "what is missed is not caught up: the behaviour is set below")]
pub async fn run(timers: Weak<Timers>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(timers) = timers.upgrade() else { return };
        timers.wake();
    }
}
