//! What a network's actor is sent.

use std::sync::Arc;
use std::time::Instant;

use actix::prelude::*;
use tokio::sync::oneshot;

use crate::actors::committer::Part;
use crate::actors::routes::{PermitGuard, Route};
use crate::actors::{Fault, Item, NotReadyReason, Outlet, answer_all};
use crate::core::deployment::Deployment;
use crate::core::outcome::Outcome;
use crate::core::types::Generation;
use crate::store::{NetworkImage, TransactionId};

/// All requests of one socket read for this network.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Work {
    /// How the network was found.
    pub route: Arc<Route>,
    /// It was named by its name, which must still be its own.
    pub by_name: bool,
    /// In the order in which they were sent.
    pub items: Vec<Item>,
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
    /// Told when it is granted.
    pub granted: oneshot::Sender<Result<(), Box<Fault>>>,
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
    pub decided: oneshot::Sender<Result<(Part, Outcome), Box<Fault>>>,
}

/// Ends a hold. With `apply`, what was decided under it takes effect: its part is in the committer's mailbox already.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Finish {
    /// Whose.
    pub hold: HoldId,
    /// Take effect, or forget.
    pub apply: bool,
}

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
