//! What a network's actor is sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// The register is about to be given away: whoever waits for capacity here is told to ask the next owner.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct GiveAway;

/// All requests of one socket read for this network.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Work {
    /// How the network was found.
    pub route: Arc<Route>,
    /// It was named by its name, which must still be its own.
    pub by_name: bool,
    /// In the order in which they were sent.
    pub items: VecDeque<Item>,
    /// Where the answers go.
    pub outlet: Outlet,
    /// Their places in the queue.
    pub permits: PermitGuard,
    /// When they were read.
    pub received: Instant,
}

/// Identity of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldId(pub u128);

/// Asks for the network alone: until [`Finish`], nothing else is decided here. Answered when it is granted.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Hold {
    /// Whose.
    pub hold: HoldId,
    /// What it is asked for by, where that is its name: once it is called otherwise, it is not what is meant.
    pub named: Option<Name>,
    /// Since when it waits, if it does: its place in the order of all waiters.
    pub turn: Option<Arrival>,
    /// Are others held already, which decide nothing while this one is waited for?
    pub beside: bool,
    /// Told when it is granted.
    pub granted: oneshot::Sender<Result<(), HoldRefused>>,
}

/// Why a hold is not granted.
#[derive(Debug)]
pub enum HoldRefused {
    /// The network is not to be had.
    Fault(Box<Fault>),
    /// It is the turn of somebody who waits for longer, or the network is loaded: let go of everything that is held, and
    /// begin again when this ends.
    Behind {
        /// Ends when it is over.
        over: oneshot::Receiver<()>,
        /// What is answered if it takes too long.
        fault: Box<Fault>,
    },
}

impl Hold {
    /// It is not granted.
    pub(super) fn refuse(self, fault: Fault) {
        // Who asked may have given up.
        let _ = self.granted.send(Err(HoldRefused::Fault(Box::new(fault))));
    }
}

/// What a request over several networks shares with its entries in their queues.
#[derive(Debug)]
pub struct Rooms {
    /// By network: may there be room for its part?
    rooms: Vec<AtomicBool>,
    /// Told when there may be room everywhere, or an entry is no more.
    woken: Notify,
}

impl Rooms {
    /// Of so many networks, none of which is known to have any.
    pub fn new(networks: usize) -> Self {
        Self { rooms: (0..networks).map(|_| AtomicBool::new(false)).collect(), woken: Notify::new() }
    }

    /// Notes what was found in one network. Answers whether there may be room in all.
    pub fn note_room(&self, index: usize, is_there: bool) -> bool {
        self.rooms[index].store(is_there, Ordering::SeqCst);
        is_there && self.rooms.iter().all(|room| room.load(Ordering::SeqCst))
    }

    /// Something is to be looked at.
    pub fn wake(&self) {
        self.woken.notify_one();
    }

    /// Until then.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

/// One network's place in a request over several that waits.
#[derive(Debug, Clone)]
pub struct Several {
    /// Shared with the others.
    pub state: Arc<Rooms>,
    /// Which of them it is.
    pub index: usize,
}

/// What becomes of the entry of a request over several networks when its hold ends.
#[derive(Debug)]
pub enum Waiting {
    /// There is none.
    No,
    /// It waits, or goes on waiting.
    Begins {
        /// Its place in the order.
        arrival: Arrival,
        /// What it asks of this network.
        command: Command,
        /// Its place among the networks.
        several: Several,
    },
    /// It is over.
    Ended {
        /// Its place in the order.
        arrival: Arrival,
    },
}

/// Asks for the next slice of a list that is under way.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ListOn {
    /// What is left of it.
    pub rest: Arc<ListRest>,
    /// Behind this address.
    pub after: Address,
    /// How many records at most.
    pub limit: usize,
    /// Told; dropped where what the network was is not known any more: then the list begins again.
    pub told: oneshot::Sender<Result<Slice, Box<Fault>>>,
}

/// A decision under a hold: nothing is applied until [`Finish`].
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct DecideHeld {
    /// Whose.
    pub hold: HoldId,
    /// What is asked; its ticket is not used.
    pub item: Item,
    /// The transaction that it is part of.
    pub transaction: TransactionId,
    /// What would change, and what would be answered.
    pub decided: oneshot::Sender<Result<(UnitPart, Outcome), Box<Fault>>>,
}

/// Ends a hold. With `apply`, what was decided under it takes effect: its part is in the committer's mailbox already.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Finish {
    /// Whose.
    pub hold: HoldId,
    /// Take effect, or forget.
    pub apply: bool,
    /// Does it wait?
    pub waiting: Waiting,
}

/// A request over several networks waits no more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Unlist {
    /// Its place in the order.
    pub arrival: Arrival,
}

/// Whoever purges it gives up: it goes on by itself, where it is to be purged.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PurgeOn;

/// Nobody waits any more for a request of this network, or all that its owner has was let go of.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct GiveUp {
    /// Its place in the order.
    pub(super) arrival: Arrival,
}

/// Serving who waits goes on.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct ServeWaiters;

/// The tenure is over. What waits is answered: nothing of it was begun.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Retire;

/// Something may be due, or figures are to be published.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Tick;

/// The network, or the record of a deployment, as the store has it.
#[derive(Debug)]
pub struct Loaded {
    /// None: the store does not have it.
    pub image: Option<NetworkImage>,
    /// The record of a deployment, where it is the lane of one.
    pub deployment: Option<Arc<Deployment>>,
    /// Every later grant is above this.
    pub floor: Generation,
    /// What the memory is worth from now on.
    pub incarnation: u64,
}

/// Answers every request of a message alike.
pub fn refuse(mut work: Work, fault: &Fault) {
    answer_all(&work.outlet, work.items.drain(..).map(|item| item.ticket), fault);
}

impl Drop for Work {
    /// Whatever becomes of an actor, what waits for it is answered: nothing of it was begun.
    fn drop(&mut self) {
        if !self.items.is_empty() {
            let fault = Fault::NotReady { reason: NotReadyReason::Restarting, retry_after_ms: 200 };
            answer_all(&self.outlet, self.items.drain(..).map(|item| item.ticket), &fault);
        }
    }
}
