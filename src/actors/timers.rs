//! Leases, cooldowns and published figures: one queue of due networks for each tenure and reactor thread, with one timer.
//!
//! Sends [`Tick`]; never changes state itself. After a turn a network registers when something is due next, and whether its
//! figures changed. An idle network costs nothing here. If the figures of many networks changed, only some are woken at a
//! time: publishing costs as much as deciding a few requests, and with 10 000 networks each decides only a few between two
//! ticks.
//!
//! A queue belongs to one tenure: what actors of an earlier tenure, or of another node in the same process, left behind cannot
//! get in the way of those that serve.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use actix::Addr;
use actix::prelude::SendError;
use hashbrown::HashMap;

use super::clock::Clock;
use super::network::{NetworkActor, Tick};
use crate::core::types::NetworkId;

/// How often the queue is checked. Leases end within two seconds of their time; this leaves room for a commit.
const TICK: Duration = Duration::from_millis(250);
/// How many of the networks whose figures changed publish in each tick: this many, or one in [`PUBLISHED_PART`] if that is
/// more: all within two seconds.
const PUBLISHED_MIN: usize = 64;
const PUBLISHED_PART: usize = 8;

#[derive(Debug, Default)]
struct Queue {
    due: BTreeSet<(u64, NetworkId)>,
    of: HashMap<NetworkId, (u64, Addr<NetworkActor>)>,
    dirty: HashMap<NetworkId, Addr<NetworkActor>>,
    /// The networks whose figures changed, in the order in which they did.
    changed: VecDeque<NetworkId>,
}

/// The queue of the networks that run on one reactor thread.
#[derive(Debug)]
pub struct Timers {
    clock: Arc<dyn Clock>,
    queue: Mutex<Queue>,
}

impl Timers {
    /// A queue with nothing due.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, queue: Mutex::default() }
    }

    /// Used by one thread and by whoever starts a network, so nobody waits for the lock.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers when something is due (boot time; none: nothing), and whether figures may have changed. Holds until the
    /// [`Tick`] comes. The last actor that registers for a network is the one that is woken.
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
            // In an order that depends on the seed of a schedule.
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
                // It does not register again before this message has come. An actor whose mailbox is closed is gone.
                self.register(id, &addr, Some(self.clock.boot_ms()), true);
            }
        }
    }
}

/// The timer of one queue. Runs until its tenure is over and dropped; spawned once per reactor thread.
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
