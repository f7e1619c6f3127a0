//! The end of a network: its answers leave when its space is free. And the end of its actor, where that dies.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::prelude::*;

use super::messages::{PurgeOn, Work};
use super::staging::Staging;
use super::{NetworkActor, Phase};
use crate::actors::directory::Gone;
use crate::actors::{Outlet, Told};
use crate::core::network::Network;
use crate::core::outcome::Outcome;
use crate::core::refusal::{Missing, Refusal};
use crate::core::types::{Generation, ShardTime};

/// Entries that are freed on the thread of the actor. Freeing more would delay the connections of that thread, which have to
/// ask another node by now.
const FORGOTTEN_HERE_MAX: usize = 10_000;

impl NetworkActor {
    /// Forgets the contents of a memory that is worthless now.
    pub(super) fn forget(&mut self) {
        if self.network.entries() > FORGOTTEN_HERE_MAX
            && let Some(large) = self.take_memory()
        {
            // Where there is no thread for it, it goes with the actor.
            let _ = std::thread::Builder::new().name("forgetting".to_owned()).spawn(move || drop(large));
        }
    }

    /// What it has, of which nothing is left here.
    fn take_memory(&mut self) -> Option<Network> {
        let config = Arc::clone(self.network.config());
        let empty = Network::load(config, Vec::new(), Vec::new(), Generation(0), ShardTime(0)).ok()?;
        Some(std::mem::replace(&mut self.network, empty))
    }

    /// What whoever asks for it is told once it is no more.
    pub(super) fn gone(&self) -> Refusal {
        Refusal::network_gone(Some(&self.network.config().name), self.id())
    }

    /// The same answer for these requests: with the name under which they asked, if they used one.
    pub(super) fn gone_for(&self, work: &Work) -> Refusal {
        match work.route.name.as_ref().filter(|_| work.by_name) {
            Some(name) => Refusal::not_found(Missing::Network, name),
            None => self.gone(),
        }
    }

    /// Creates an outlet for the unit that ends the network. Its answers leave once the directory knows, so that clients that
    /// read them may ask for the space that became free.
    pub(super) fn after_the_end(&self, unit: &mut Staging) -> Option<Outlet> {
        let outlet = unit.outlet.take()?;
        let (to, mut answers) = crate::actors::outlet();
        let (shared, id) = (Arc::clone(&self.shared), self.id());
        // Travels with the others and says whether the end is durable.
        unit.answer(u32::MAX, Ok(Outcome::Done), true);
        actix::spawn(async move {
            while let Some(Told::Replies(mut replies)) = answers.recv().await {
                if replies.pop().is_some_and(|marker| marker.answer.is_ok()) {
                    shared.gone(Gone { id });
                }
                // A closed outlet is a client that hung up: nobody is left to tell.
                let _ = outlet.send(Told::Replies(replies));
            }
        });
        Some(to)
    }
}

impl Drop for NetworkActor {
    /// Of one that dies while it is stopped, and is what nobody else has: who comes after it shows that on. A request that only reads
    /// changed nothing of it, and neither does an answer that still waits for a proof.
    fn drop(&mut self) {
        let shows = matches!(self.phase, Phase::Stopped(why) if why.shows_memory());
        let is_durable = self.stands() && self.lane.settled.load(Ordering::Acquire) >= self.changed;
        if shows
            && is_durable
            && std::thread::panicking()
            && let Some(memory) = self.take_memory()
        {
            self.published.leave(memory);
        }
    }
}

impl Handler<PurgeOn> for NetworkActor {
    type Result = ();
    fn handle(&mut self, _: PurgeOn, ctx: &mut Context<Self>) {
        self.left_over = true;
        self.after(ctx);
    }
}
