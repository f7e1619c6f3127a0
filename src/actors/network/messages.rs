//! The messages of a network's actor.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use actix::prelude::*;
use tokio::sync::{Notify, oneshot};

use crate::actors::committer::UnitPart;
use crate::actors::routes::{PermitGuard, Route};
use crate::actors::waits::Arrival;
use crate::actors::{Fault, Item, NotReadyReason, Outlet, answer_all};
use crate::core::address::Address;
use crate::core::command::{Command, ListRest};
use crate::core::deployment::Deployment;
use crate::core::outcome::{Outcome, Slice};
use crate::core::types::{Generation, Name};
use crate::store::{NetworkImage, TransactionId};

/// Announces that the register is about to be given away: requests that wait for capacity here are told to ask the next owner.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct GiveAway;

/// All requests of one socket read for this network.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Work {
    /// How the network was found.
    pub route: Arc<Route>,
    /// The client used the network's name, which must still be its own.
    pub by_name: bool,
    /// The requests, in the order in which they were sent.
    pub items: VecDeque<Item>,
    /// Where the answers go.
    pub outlet: Outlet,
    /// Their places in the network's queue.
    pub permits: PermitGuard,
    /// When they were read; none: this is what is left of a message whose wait is over.
    pub received: Option<Instant>,
}

/// Identity of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldId(pub u128);

/// Asks to hold the network: until [`Finish`], nothing else is decided here. Answered when the hold is granted.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Hold {
    /// The identity of the hold.
    pub hold: HoldId,
    /// The name by which the network was asked for, if it was: once the network is renamed, it is not the one that is meant.
    pub named: Option<Name>,
    /// Since when the request waits, if it waits: its place in the order of all waiters.
    pub turn: Option<Arrival>,
    /// Does the job already hold other networks, which decide nothing while it waits for this one?
    pub beside: bool,
    /// Told when the hold is granted.
    pub granted: oneshot::Sender<Result<(), HoldRefused>>,
}

/// Why a hold is not granted.
#[derive(Debug)]
pub enum HoldRefused {
    /// The network is not available.
    Fault(Box<Fault>),
    /// A request that has waited longer has its turn, or the network is being loaded: end all holds, and begin again when this
    /// is over.
    Behind {
        /// Ends when it is over.
        over: oneshot::Receiver<()>,
        /// The answer if that takes too long.
        fault: Box<Fault>,
    },
}

impl Hold {
    /// Refuses the hold.
    pub(super) fn refuse(self, fault: Fault) {
        // The one who asked may have given up.
        let _ = self.granted.send(Err(HoldRefused::Fault(Box::new(fault))));
    }
}

/// The state that a request over several networks shares with its entries in their queues.
#[derive(Debug)]
pub struct Rooms {
    /// By network: may there be room for its part?
    rooms: Vec<AtomicBool>,
    /// Told when there may be room everywhere, or an entry is gone.
    woken: Notify,
    /// The answer, if its part crashed in one of the networks: it is not tried again.
    crashed: OnceLock<Box<Fault>>,
}

impl Rooms {
    /// For this many networks, none of which is known to have room.
    pub fn new(networks: usize) -> Self {
        let rooms = (0..networks).map(|_| AtomicBool::new(false)).collect();
        Self { rooms, woken: Notify::new(), crashed: OnceLock::new() }
    }

    /// Notes what was found in one network. Returns whether there may be room in all.
    pub fn note_room(&self, index: usize, is_there: bool) -> bool {
        self.rooms[index].store(is_there, Ordering::SeqCst);
        is_there && self.rooms.iter().all(|room| room.load(Ordering::SeqCst))
    }

    /// Notes that deciding its part crashed in one network.
    pub fn note_crash(&self, fault: Box<Fault>) {
        // One answer is enough if it crashed in two.
        let _ = self.crashed.set(fault);
    }

    /// The answer, if its part crashed in one of the networks.
    pub fn crashed(&self) -> Option<Box<Fault>> {
        self.crashed.get().cloned()
    }

    /// Wakes the coordinator: there is something to look at.
    pub fn wake(&self) {
        self.woken.notify_one();
    }

    /// Waits until `wake` is called.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

/// One network's place in a request over several that waits.
#[derive(Debug, Clone)]
pub struct Several {
    /// Shared with the entries in the other networks.
    pub state: Arc<Rooms>,
    /// The index of this network among them.
    pub index: usize,
}

/// What happens to the queue entry of a request over several networks when its hold ends.
#[derive(Debug)]
pub enum Waiting {
    /// There is no entry.
    No,
    /// The request begins to wait, or goes on waiting.
    Begins {
        /// Its place in the order.
        arrival: Arrival,
        /// What the request asks of this network.
        command: Command,
        /// Its place among the networks.
        several: Several,
    },
    /// The wait is over.
    Ended {
        /// Its place in the order.
        arrival: Arrival,
    },
}

/// Asks for the next slice of a list that is under way.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ListOn {
    /// The rest of the list.
    pub rest: Arc<ListRest>,
    /// Start after this address.
    pub after: Address,
    /// How many records at most.
    pub limit: usize,
    /// Receives the slice; dropped if the earlier state of the network is no longer known: then the list begins again.
    pub told: oneshot::Sender<Result<Slice, Box<Fault>>>,
}

/// A decision under a hold: nothing is applied until [`Finish`].
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DecideHeld {
    /// The identity of the hold.
    pub hold: HoldId,
    /// The request; its ticket is not used.
    pub item: Item,
    /// The transaction that it is part of.
    pub transaction: TransactionId,
    /// Receives what would change, and what would be answered.
    pub decided: oneshot::Sender<Result<(UnitPart, Outcome), Box<Fault>>>,
}

/// Ends a hold. With `apply`, what was decided under it takes effect: its part is already in the committer's mailbox.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Finish {
    /// The identity of the hold.
    pub hold: HoldId,
    /// Whether what was decided takes effect; otherwise it is forgotten.
    pub apply: bool,
    /// What happens to its entry in the queue.
    pub waiting: Waiting,
}

/// Ends the wait of a request over several networks.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Unlist {
    /// Its place in the order.
    pub arrival: Arrival,
}

/// Tells the network that the job which purges it gives up: if it is to be purged, it continues by itself.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PurgeOn;

/// Ends the wait of a request for this network: nobody waits for it any more, or everything of its owner was released.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct GiveUp {
    /// Its place in the order.
    pub(super) arrival: Arrival,
}

/// Continues serving the waiters.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct ServeWaiters;

/// Announces that the tenure is over. Everything that waits is answered: nothing of it was begun.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Retire;

/// Wakes the network: something may be due, or figures are to be published.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Tick;

/// The network, or the record of a deployment, as the store has it.
#[derive(Debug)]
pub struct Loaded {
    /// None: the store does not have it.
    pub image: Option<NetworkImage>,
    /// The record of a deployment, if the lane is that of a deployment.
    pub deployment: Option<Arc<Deployment>>,
    /// A floor: every later grant gets a higher generation.
    pub floor: Generation,
    /// The incarnation of the memory from now on.
    pub incarnation: u64,
}

/// Answers every request of a message with the same fault.
pub fn refuse(mut work: Work, fault: &Fault) {
    answer_all(&work.outlet, work.items.drain(..).map(|item| item.ticket), fault);
}

impl Drop for Work {
    /// Answers what waits for an actor, whatever happens to it: nothing of it was begun.
    fn drop(&mut self) {
        if !self.items.is_empty() {
            let fault = Fault::NotReady { reason: NotReadyReason::Restarting, retry_after_ms: 200 };
            answer_all(&self.outlet, self.items.drain(..).map(|item| item.ticket), &fault);
        }
    }
}
