//! A network's part in the self-check: it is compared with what is stored, slice by slice, and stopped where that is another
//! thing.
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

/// Records of a slice: as much work as a turn of requests.
const SLICE_RECORDS: usize = 512;

/// So much of what differs is told: nobody else has it once the server is started again.
const TOLD_MAX: usize = 10_000;

/// Asks for a slice of the comparison with what is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Compare {
    /// As the store has it, if it has it.
    pub stored: Option<Arc<Network>>,
    /// Behind this address; none: from the beginning.
    pub after: Option<Address>,
    /// Told; dropped where the memory is not to be compared: it is being loaded, stopped, or gone.
    pub told: oneshot::Sender<Seen>,
}

/// What a slice showed, and of which moment it is.
#[derive(Debug)]
pub struct Seen {
    /// What it showed.
    pub compared: Compared,
    /// Units that had been handed to the committer: what the memory has is durable when they are settled.
    pub enqueued: u64,
    /// While this is the incarnation of its lane.
    pub incarnation: u64,
}

/// Memory and store are different things: nothing is decided any more, and what is in memory is shown to who asks.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StopAsOdd {
    /// The memory that was found to be so. It may have been loaded since.
    pub incarnation: u64,
    /// Where.
    pub odd: BTreeSet<Odd>,
    /// As the store has it, if it has it.
    pub stored: Option<Arc<Network>>,
    /// Told when it is stopped; dropped where it is not, as it is held, or is not that memory any more.
    pub stopped: oneshot::Sender<()>,
}

impl Handler<Compare> for NetworkActor {
    type Result = ();
    fn handle(&mut self, Compare { stored, after, told }: Compare, ctx: &mut Context<Self>) {
        let has_memory = matches!(self.phase, Phase::Serving | Phase::Held { .. } | Phase::Turn { .. });
        // What a step left that broke off half-way is loaded again anyhow.
        if !has_memory || self.torn || !self.stands() {
            return;
        }
        match catch_unwind(AssertUnwindSafe(|| self.network.compare(stored.as_deref(), after, SLICE_RECORDS))) {
            Ok(compared) => {
                // Who asked may have given up.
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
    /// Says to the log where both differ, for whoever has to decide between them.
    fn tell_odd(&self, odd: &BTreeSet<Odd>, stored: Option<&Network>) {
        let (network, name) = (self.id(), &self.network.config().name);
        for odd in odd.iter().take(TOLD_MAX) {
            let place = odd.place();
            let [memory, stored] = [Some(&self.network), stored].map(|side| odd.in_words(side));
            tracing::error!(%network, %name, place, memory, stored, "self-check: memory and store differ");
        }
        let untold = odd.len().saturating_sub(TOLD_MAX);
        tracing::error!(%network, %name, untold, "stopped, as memory and store differ; the others go on");
    }
}
