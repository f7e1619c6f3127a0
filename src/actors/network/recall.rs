//! What of a network is durable, from its memory: asked for when the store was emptied and can no longer tell.

use std::sync::atomic::Ordering;

use actix::prelude::*;
use tokio::sync::oneshot;

use super::{NetworkActor, Phase};
use crate::actors::StopReason;
use crate::core::state::{Key, State};

/// Asks for everything durable of the network. By then nobody decides anything in it, and its units are all settled.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Recall {
    /// Receives it; dropped if the memory is incomplete.
    pub told: oneshot::Sender<Vec<(Key, State)>>,
}

impl NetworkActor {
    /// Forgets the way back of what is durable by now.
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

    /// Everything durable. None: a step broke off half-way, or memory has not everything that the store had.
    fn durable(&self) -> Option<Vec<(Key, State)>> {
        // Nothing has changed since it was read.
        if let (Phase::Stopped(StopReason::Unloadable), Some(misfit)) = (&self.phase, &self.misfit) {
            return Some(misfit.records());
        }
        let is_whole = match self.phase {
            Phase::Serving | Phase::Gone | Phase::Loading { .. } | Phase::Turn { .. } => true,
            Phase::Stopped(StopReason::Crashes | StopReason::Differs) => true,
            // The holder does not know yet what comes of it.
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
            // The one who asked may have given up.
            let _ = recall.told.send(all);
        }
    }
}
