//! Leases, cooldowns and published figures: one queue of due networks per tenure and reactor thread, one timer beside it.
//!
//! Sends [`Tick`]; never changes state itself. A network registers after every turn: when something is due next, and
//! whether its figures changed. An idle network costs nothing here.
//!
//! A queue belongs to one tenure: what actors of an earlier one left behind, or of another node in the same process, can
//! not stand in the way of those that serve.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use actix::Addr;

use super::clock::Clock;
use super::network::{NetworkActor, Tick};
use crate::core::types::NetworkId;

/// How often the queue is looked at. Leases end within two seconds of their time; this leaves room for a commit.
const TICK: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
struct Queue {
    due: BTreeSet<(u64, NetworkId)>,
    of: HashMap<NetworkId, (u64, Addr<NetworkActor>)>,
    dirty: BTreeMap<NetworkId, Addr<NetworkActor>>,
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

    /// Something is due in so many milliseconds (none: nothing), and figures may have changed. The last actor that speaks
    /// for a network is the one that is woken.
    pub fn register(&self, id: NetworkId, addr: &Addr<NetworkActor>, due_in_ms: Option<u64>, dirty: bool) {
        let mut queue = self.queue();
        let due = due_in_ms.map(|ms| self.clock.boot_ms().saturating_add(ms));
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
        if dirty && queue.dirty.get(&id) != Some(addr) {
            queue.dirty.insert(id, addr.clone());
        }
    }

    fn wake(&self) {
        let woken = {
            let mut queue = self.queue();
            let now = self.clock.boot_ms();
            let mut woken = std::mem::take(&mut queue.dirty);
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
        for addr in woken.into_values() {
            // A full or closed mailbox: the actor runs what is due with its next message, or is no more.
            let _ = addr.try_send(Tick);
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
