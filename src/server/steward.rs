//! Orders to this node itself, from its clients or from other nodes. They are handed to `serve::keeper`, which answers them.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use compact_str::CompactString;
use tokio::sync::mpsc;

use crate::actors::coordinator::Done;
use crate::actors::nodes::{NodeJob, NodeStanding};
use crate::actors::{Applied, Fault, Outlet, Told};

/// Orders that may wait: few are enough, because an operator asks once.
const ORDERS_MAX: usize = 64;

/// One order. If it is dropped without an answer, it answers that its outcome is unknown, unless nothing was to be changed.
#[derive(Debug)]
pub struct NodeOrder {
    /// What is asked.
    pub job: NodeJob,
    /// Whether nothing is to be changed.
    pub dry_run: bool,
    /// Who asks, for the log.
    pub by: CompactString,
    /// Why, in the words of whoever asks, for the log.
    pub reason: Option<CompactString>,
    /// An order that has not been begun by then is refused.
    pub deadline: Option<Instant>,
    /// Whether another node asks: then the order is not passed on.
    pub from_node: bool,
    ticket: u32,
    outlet: Option<Outlet>,
}

impl NodeOrder {
    /// An order whose answer goes to the outlet under `ticket`.
    pub fn new(job: NodeJob, dry_run: bool, (ticket, outlet): (u32, Outlet)) -> Self {
        let by = CompactString::const_new("anonymous");
        Self { job, dry_run, by, reason: None, deadline: None, from_node: false, ticket, outlet: Some(outlet) }
    }

    /// Answers the order.
    pub fn answer(mut self, answer: Result<NodeStanding, Box<Fault>>) {
        self.tell(answer);
    }

    /// Answers an order that was not begun, because the node stops.
    pub fn was_not_begun(self) {
        self.answer(Err(stopping()));
    }

    /// Takes the place that the answer goes to: whoever takes it must answer.
    pub fn take_outlet(&mut self) -> Option<(u32, Outlet)> {
        self.outlet.take().map(|outlet| (self.ticket, outlet))
    }

    fn tell(&mut self, answer: Result<NodeStanding, Box<Fault>>) {
        if let Some((ticket, outlet)) = self.take_outlet() {
            // A closed outlet means that the client hung up: what was done stands.
            let _ = outlet.send(Told::Job(ticket, answer.map(Done::Node)));
        }
    }
}

fn stopping() -> Box<Fault> {
    Box::new(Fault::Unavailable { applied: Applied::No, problem: "the node is stopping".to_owned() })
}

impl Drop for NodeOrder {
    fn drop(&mut self) {
        let problem = "the node stopped, or lost the register, before this was done".to_owned();
        let applied = if self.dry_run { Applied::No } else { Applied::Unknown };
        self.tell(Err(Box::new(Fault::Unavailable { applied, problem })));
    }
}

/// The queue of orders.
#[derive(Debug)]
pub struct Steward {
    orders: mpsc::Sender<NodeOrder>,
    inbox: Mutex<Option<mpsc::Receiver<NodeOrder>>>,
}

impl Default for Steward {
    fn default() -> Self {
        let (orders, inbox) = mpsc::channel(ORDERS_MAX);
        Self { orders, inbox: Mutex::new(Some(inbox)) }
    }
}

impl Steward {
    /// Hands in an order. It is answered in any case.
    pub fn ask(&self, order: NodeOrder) {
        let (order, fault) = match self.orders.try_send(order) {
            Ok(()) => return,
            Err(mpsc::error::TrySendError::Full(order)) => {
                let problem = "the node has as many orders waiting as it may".to_owned();
                (order, Box::new(Fault::Overloaded { problem, retry_after_ms: 1_000 }))
            }
            Err(mpsc::error::TrySendError::Closed(order)) => (order, stopping()),
        };
        order.answer(Err(fault));
    }

    /// The receiving end, for the only caller that takes it.
    pub fn inbox(&self) -> Option<mpsc::Receiver<NodeOrder>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::outlet;

    #[test]
    fn whether_an_order_that_nobody_answered_was_done_is_unknown_only_if_it_may_have_been_begun_and_changes_something()
    {
        for (dry_run, is_begun, said) in
            [(false, true, Applied::Unknown), (true, true, Applied::No), (false, false, Applied::No)]
        {
            let (out, mut told) = outlet();
            let order = NodeOrder::new(NodeJob::Drain { node: None, drain: true }, dry_run, (7, out));
            if is_begun {
                drop(order);
            } else {
                order.was_not_begun();
            }
            let Ok(Told::Job(7, Err(fault))) = told.try_recv() else { panic!("it is not answered") };
            assert!(matches!(*fault, Fault::Unavailable { applied, .. } if applied == said), "{fault:?}");
        }
    }
}
