//! What of a network is durable, from its memory: asked when the store cannot tell any more, as it was emptied.

use std::sync::atomic::Ordering;

use actix::prelude::*;
use tokio::sync::oneshot;

use super::{NetworkActor, Phase};
use crate::actors::StopReason;
use crate::core::state::{Key, State};

/// Asks for everything durable of the network. Nobody decides anything in it any more, and its units are all settled.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Recall {
    /// Told; dropped where the memory is not whole.
    pub told: oneshot::Sender<Vec<(Key, State)>>,
}

impl NetworkActor {
    /// What is durable by now needs no way back.
    pub(super) fn forget_way_back(&mut self) {
        if self.back.is_empty() {
            return;
        }
        // `settled` first: the committer raises the incarnation before it settles what was not durable.
        let settled = self.lane.settled.load(Ordering::Acquire);
        if self.stands() {
            self.back.forget(settled);
        }
    }

    /// None: a step broke off half-way, or what is in memory is not all that the store had.
    fn durable(&self) -> Option<Vec<(Key, State)>> {
        let is_whole = match self.phase {
            Phase::Serving | Phase::Gone | Phase::Loading { .. } | Phase::Turn { .. } => true,
            Phase::Stopped(StopReason::Crashes | StopReason::Differs) => true,
            // Whoever holds it does not know yet what becomes of it.
            Phase::Held { .. } | Phase::Stopped(StopReason::Unloadable) => false,
        };
        let settled = self.lane.settled.load(Ordering::Acquire);
        let durable = if self.stands() { settled } else { self.lane.durable.load(Ordering::Acquire) };
        (is_whole && !self.torn).then(|| self.network.as_of(&self.back, durable))
    }
}

impl Handler<Recall> for NetworkActor {
    type Result = ();
    fn handle(&mut self, recall: Recall, _: &mut Context<Self>) {
        if let Some(all) = self.durable() {
            // Who asked may have given up.
            let _ = recall.told.send(all);
        }
    }
}
