//! The way to the actor of one network: what finds no place in its queue is refused in the same breath, and what comes to one that
//! is no more has it started again.
//!
//! Before: `server::session`, and the tasks of `coordinator`. After: `network`.

use std::sync::Arc;
use std::time::Instant;

use actix::dev::ToEnvelope;
use actix::prelude::{Actor, Handler, Message, SendError};

use super::network::{self, NetworkActor, Work};
use super::routes::Route;
use super::service::Shared;
use super::{Fault, Item, NotReadyReason, Outlet};

/// Sends requests to a network's actor, as many as find a place in its queue; the others are refused in the same breath,
/// so that every ticket is answered.
pub fn send(
    shared: &Shared,
    route: &Arc<Route>,
    by_name: bool,
    mut items: Vec<Item>,
    outlet: &Outlet,
    received: Instant,
) {
    let permits = route.permits.take(items.len());
    if permits.count < items.len() {
        let refused = items.split_off(permits.count);
        let problem = "too many requests wait for the network".to_owned();
        let fault = Fault::Overloaded { problem, retry_after_ms: 50 };
        super::answer_all(outlet, refused.iter().map(|item| item.ticket), &fault);
        if items.is_empty() {
            return;
        }
    }
    let (route, outlet) = (Arc::clone(route), outlet.clone());
    let received = Some(received);
    deliver(shared, Work { route, by_name, items: items.into(), outlet, permits, received });
}

/// Sends a network what has its place in the queue.
pub(super) fn deliver(shared: &Shared, work: Work) {
    let route = Arc::clone(&work.route);
    match route.addr.try_send(work) {
        Ok(()) => {}
        Err(SendError::Full(work)) => network::refuse(work, &full_mailbox()),
        Err(SendError::Closed(work)) => {
            // It crashed outside the wall that catches panics: the directory starts it again.
            shared.found_dead(&route);
            network::refuse(work, &no_actor(shared));
        }
    }
}

/// Sends a network's actor what needs no place in its queue.
pub(super) fn post<M>(shared: &Shared, route: &Arc<Route>, message: M) -> Result<(), Box<Fault>>
where
    M: Message<Result = ()> + Send + 'static,
    NetworkActor: Handler<M>,
    <NetworkActor as Actor>::Context: ToEnvelope<NetworkActor, M>,
{
    route.addr.try_send(message).map_err(|refused| match refused {
        SendError::Full(_) => full_mailbox(),
        SendError::Closed(_) => {
            shared.found_dead(route);
            Box::new(no_actor(shared))
        }
    })
}

fn full_mailbox() -> Box<Fault> {
    Box::new(Fault::Overloaded { problem: "the network's queue is full".to_owned(), retry_after_ms: 50 })
}

/// The actor of a network is no more: it ended with the tenure, or it died, and the directory starts it again.
fn no_actor(shared: &Shared) -> Fault {
    let moved = shared.is_over() && !shared.info.ownership_is_standing;
    let reason = if moved { NotReadyReason::Moved } else { NotReadyReason::Restarting };
    Fault::NotReady { reason, retry_after_ms: 200 }
}
