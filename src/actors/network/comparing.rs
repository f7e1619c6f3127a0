//! A network's part in the self-check: it is compared with what is stored, slice by slice, and stopped if the two differ.
//!
//! Before and after: `actors::self_check`, which reads the store, and knows what was decided meanwhile.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::oneshot;

use super::pace::TURN_REQUESTS_MAX;
use super::{NetworkActor, Phase};
use crate::actors::StopReason;
use crate::core::address::Address;
use crate::core::network::{Compared, Network, Odd};
use crate::limits::DIFFERENCES_TOLD_MAX;

/// Records in a slice: as much work as a turn of requests.
const SLICE_RECORDS: usize = 512;

/// Asks for a slice of the comparison with what is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Compare {
    /// The network as the store has it, if it has it.
    pub stored: Option<Arc<Network>>,
    /// Start after this address; none: from the beginning.
    pub after: Option<Address>,
    /// Receives the result; dropped if the memory cannot be compared because the network is being loaded, stopped, or gone.
    pub told: oneshot::Sender<Seen>,
}

/// What a slice showed, and at which moment.
#[derive(Debug)]
pub struct Seen {
    /// The result of the comparison.
    pub compared: Compared,
    /// Units handed to the committer so far: what the memory has is durable once they are settled.
    pub enqueued: u64,
    /// The result holds while this is the incarnation of the lane.
    pub incarnation: u64,
}

/// Stops a network whose memory and store differ: nothing is decided any more, and memory is shown to whoever asks.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StopAsOdd {
    /// The incarnation of the memory that differs. The network may have been loaded again since.
    pub incarnation: u64,
    /// Where they differ.
    pub odd: BTreeSet<Odd>,
    /// The network as the store has it, if it has it.
    pub stored: Option<Arc<Network>>,
    /// Told when the network is stopped; dropped if it is not, because it is held or no longer has that memory.
    pub stopped: oneshot::Sender<()>,
}

impl Handler<Compare> for NetworkActor {
    type Result = ();
    fn handle(&mut self, Compare { stored, after, told }: Compare, ctx: &mut Context<Self>) {
        let has_memory = matches!(self.phase, Phase::Serving | Phase::Held { .. } | Phase::Turn { .. });
        // What a step left that broke off half-way is loaded again anyway.
        if !has_memory || self.torn || !self.stands() {
            return;
        }
        match catch_unwind(AssertUnwindSafe(|| self.network.compare(stored.as_deref(), after, SLICE_RECORDS))) {
            Ok(compared) => {
                // The one who asked may have given up.
                let _ = told.send(Seen { compared, enqueued: self.enqueued, incarnation: self.incarnation });
            }
            Err(_) => drop(self.note_panic("the self-check skips the network")),
        }
        self.turn += TURN_REQUESTS_MAX / 2;
        self.let_others_on(ctx);
    }
}

impl Handler<StopAsOdd> for NetworkActor {
    type Result = ();
    fn handle(&mut self, StopAsOdd { incarnation, odd, stored, stopped }: StopAsOdd, ctx: &mut Context<Self>) {
        if matches!(self.phase, Phase::Serving) && self.stands() && self.incarnation == incarnation {
            self.phase = Phase::Stopped(StopReason::Differs);
            self.published.note_stopped(Some(StopReason::Differs));
            self.tell_odd(&odd, stored.as_deref());
            let _ = stopped.send(());
            self.after(ctx);
            self.run_deferred(ctx);
        }
    }
}

impl NetworkActor {
    /// Logs where the two differ, for the operator who has to decide between them.
    fn tell_odd(&self, odd: &BTreeSet<Odd>, stored: Option<&Network>) {
        let (network, name) = (self.id(), &self.network.config().name);
        for odd in odd.iter().take(DIFFERENCES_TOLD_MAX) {
            let place = odd.place();
            let [memory, stored] = [Some(&self.network), stored].map(|side| odd.in_words(side));
            tracing::error!(%network, %name, place, memory, stored, "self-check: memory and store differ");
        }
        let untold = odd.len().saturating_sub(DIFFERENCES_TOLD_MAX);
        tracing::error!(%network, %name, untold, "stopped because memory and store differ; the others go on");
    }
}
