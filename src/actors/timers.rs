//! Leases, cooldowns and published figures: one queue of due networks per reactor thread, one timer beside it.
//!
//! Sends [`Tick`]; never changes state itself. A network registers after every turn: when something is due next, and
//! whether its figures changed. An idle network costs nothing here.
//!
//! The queue is a thread-local, because a network's actor and its timer live on one reactor thread.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;

use super::clock::Clock;
use super::network::{NetworkActor, Tick};
use crate::core::types::NetworkId;

/// How often the queue is looked at. Leases end within two seconds of their time; this leaves room for a commit.
const TICK: Duration = Duration::from_millis(250);

#[derive(Default)]
struct Queue {
    clock: Option<Arc<dyn Clock>>,
    due: BTreeSet<(u64, NetworkId)>,
    of: HashMap<NetworkId, (u64, Addr<NetworkActor>)>,
    dirty: HashMap<NetworkId, Addr<NetworkActor>>,
}

thread_local! {
    static QUEUE: RefCell<Queue> = RefCell::default();
}

/// Something is due in so many milliseconds (none: nothing), and figures may have changed.
pub fn register(id: NetworkId, addr: &Addr<NetworkActor>, due_in_ms: Option<u64>, dirty: bool) {
    QUEUE.with_borrow_mut(|queue| {
        let now = queue.clock.as_ref().map_or(0, |clock| clock.boot_ms());
        let due = due_in_ms.map(|ms| now.saturating_add(ms));
        // A network that was started again has another actor, also where its next time is the same.
        let known = queue.of.get(&id);
        if known.map(|(at, _)| *at) != due || known.is_some_and(|(_, of)| of != addr) {
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
    });
}

fn wake() {
    let woken: Vec<Addr<NetworkActor>> = QUEUE.with_borrow_mut(|queue| {
        let now = queue.clock.as_ref().map_or(0, |clock| clock.boot_ms());
        let mut woken: HashMap<NetworkId, Addr<NetworkActor>> = std::mem::take(&mut queue.dirty);
        while let Some(&(at, id)) = queue.due.first()
            && at <= now
        {
            queue.due.pop_first();
            if let Some((_, addr)) = queue.of.remove(&id) {
                woken.insert(id, addr);
            }
        }
        woken.into_values().collect()
    });
    for addr in woken {
        // A full or closed mailbox: the actor runs what is due with its next message, or is no more.
        let _ = addr.try_send(Tick);
    }
}

/// The timer of this reactor thread. Runs for ever; spawned once per thread.
#[expect(clippy::disallowed_methods, reason = "what is missed is not caught up: the behaviour is set below")]
pub async fn run(clock: Arc<dyn Clock>) {
    QUEUE.with_borrow_mut(|queue| queue.clock = Some(clock));
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        wake();
    }
}
