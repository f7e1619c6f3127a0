//! What other nodes ask of this one: handed to the actors here as if it came from a client of this node.
//!
//! Neighbours: `peer::listener` calls, in the order in which each node asked.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::Server;
use crate::actors::coordinator::{self, Order};
use crate::actors::service::Shared;
use crate::actors::{Fault, Item, Outlet, Reply};
use crate::core::refusal::{Missing, Refusal};
use crate::peer::frame::NetworkRef;
use crate::peer::listener::{NotOwner, Origin, Serve};

/// This node, as the others see it.
#[derive(Debug)]
pub struct Forwarded(Weak<Server>);

impl Forwarded {
    /// Asks whatever this server's role is at that moment.
    pub fn of(server: &Arc<Server>) -> Self {
        Self(Arc::downgrade(server))
    }

    /// The actors, if this node owns the register.
    fn actors(&self) -> Result<Arc<Shared>, NotOwner> {
        let role = self.0.upgrade().map(|server| server.seat.role());
        role.and_then(|role| role.actors().cloned()).ok_or(NotOwner { owner: None })
    }
}

impl Serve for Forwarded {
    fn work(&self, _: &Origin, network: NetworkRef, items: Vec<Item>, outlet: &Outlet) -> Result<(), NotOwner> {
        let shared = self.actors()?;
        let (route, by_name) = match &network {
            NetworkRef::Name(name) => (shared.routes.by_name(name), true),
            // An id's text is a name all the same, as for a client of this node.
            NetworkRef::Id(id) => (shared.routes.find(&id.to_string()), false),
        };
        match route {
            Some(route) => coordinator::send(&shared, &route, by_name, items, outlet, Instant::now()),
            None => {
                let refusal = match &network {
                    NetworkRef::Name(name) => Refusal::not_found(Missing::Network, name),
                    NetworkRef::Id(id) => Refusal::not_found(Missing::Network, id),
                };
                let fault = Fault::Refused(refusal);
                let refused = |item: &Item| Reply { ticket: item.ticket, answer: Err(Box::new(fault.clone())) };
                shared.answer_proved(outlet.clone(), items.iter().map(refused).collect());
            }
        }
        Ok(())
    }

    fn job(&self, _: &Origin, ticket: u32, order: Order, outlet: &Outlet) -> Result<(), NotOwner> {
        coordinator::spawn(&self.actors()?, ticket, order, outlet.clone());
        Ok(())
    }
}
