//! The end of a network: its answers leave when its space is free.

use std::sync::Arc;

use actix::prelude::*;

use super::NetworkActor;
use super::messages::{PurgeOn, Work};
use super::staging::Staging;
use crate::actors::directory::Gone;
use crate::actors::{Outlet, Told};
use crate::core::network::Network;
use crate::core::outcome::Outcome;
use crate::core::refusal::{Missing, Refusal};
use crate::core::types::{Generation, ShardTime};

/// Entries that are let go of on the thread of the actor. More would hold up the connections of that thread, which have
/// another node to ask by now.
const FORGOTTEN_HERE_MAX: usize = 10_000;

impl NetworkActor {
    /// What it knows is worth nothing any more.
    pub(super) fn forget(&mut self) {
        let config = Arc::clone(self.network.config());
        if self.network.entries() > FORGOTTEN_HERE_MAX
            && let Ok(empty) = Network::load(config, Vec::new(), Vec::new(), Generation(0), ShardTime(0))
        {
            let large = std::mem::replace(&mut self.network, empty);
            // Where there is no thread for it, it goes with the actor.
            let _ = std::thread::Builder::new().name("forgetting".to_owned()).spawn(move || drop(large));
        }
    }

    /// What whoever asks for it is told once it is no more.
    pub(super) fn gone(&self) -> Refusal {
        Refusal::network_gone(Some(&self.network.config().name), self.id())
    }

    /// The same as it is told to these: by the name under which they asked, if it was one.
    pub(super) fn gone_for(&self, work: &Work) -> Refusal {
        match work.route.name.as_ref().filter(|_| work.by_name) {
            Some(name) => Refusal::not_found(Missing::Network, name),
            None => self.gone(),
        }
    }

    /// An outlet for the unit that ends the network. Its answers leave once the directory was told, so that whoever reads
    /// them may ask for the space that was freed.
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

impl Handler<PurgeOn> for NetworkActor {
    type Result = ();
    fn handle(&mut self, _: PurgeOn, ctx: &mut Context<Self>) {
        self.left_over = true;
        self.after(ctx);
    }
}
