//! What is asked of this node itself, from its clients or from other nodes: handed to `serve::keeper`, which answers.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use compact_str::CompactString;
use tokio::sync::mpsc;

use crate::actors::coordinator::Done;
use crate::actors::nodes::{NodeJob, NodeStanding};
use crate::actors::{Applied, Fault, Outlet, Told};

/// Orders that wait: whoever drains a node asks once.
const ORDERS_MAX: usize = 64;

/// One order. Dropped without an answer, it says that nobody knows what became of it.
#[derive(Debug)]
pub struct NodeOrder {
    /// What is asked.
    pub job: NodeJob,
    /// Change nothing.
    pub dry_run: bool,
    /// Who asks, and why: for the log.
    pub by: CompactString,
    /// In the words of who asks.
    pub reason: Option<CompactString>,
    /// Not begun by then, it is refused.
    pub deadline: Option<Instant>,
    /// Another node asks: it is not passed on.
    pub from_node: bool,
    ticket: u32,
    outlet: Option<Outlet>,
}

impl NodeOrder {
    /// Answered under `ticket` into the outlet.
    pub fn new(job: NodeJob, dry_run: bool, (ticket, outlet): (u32, Outlet)) -> Self {
        let by = CompactString::const_new("anonymous");
        Self { job, dry_run, by, reason: None, deadline: None, from_node: false, ticket, outlet: Some(outlet) }
    }

    /// Answers it.
    pub fn answer(mut self, answer: Result<NodeStanding, Box<Fault>>) {
        self.tell(answer);
    }

    /// Where its answer goes: whoever takes it, answers.
    pub fn take_outlet(&mut self) -> Option<(u32, Outlet)> {
        self.outlet.take().map(|outlet| (self.ticket, outlet))
    }

    fn tell(&mut self, answer: Result<NodeStanding, Box<Fault>>) {
        if let Some((ticket, outlet)) = self.take_outlet() {
            // A closed outlet is a client that hung up: what was done stands.
            let _ = outlet.send(Told::Job(ticket, answer.map(Done::Node)));
        }
    }
}

impl Drop for NodeOrder {
    fn drop(&mut self) {
        let problem = "the node stopped, or lost the register, before this was done".to_owned();
        self.tell(Err(Box::new(Fault::Unavailable { applied: Applied::Unknown, problem })));
    }
}

/// Where orders are handed in and taken out.
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
    /// Hands an order on. It is answered in any case.
    pub fn ask(&self, order: NodeOrder) {
        let (order, fault) = match self.orders.try_send(order) {
            Ok(()) => return,
            Err(mpsc::error::TrySendError::Full(order)) => {
                let problem = "the node has as many orders waiting as it may".to_owned();
                (order, Fault::Overloaded { problem, retry_after_ms: 1_000 })
            }
            Err(mpsc::error::TrySendError::Closed(order)) => {
                let problem = "the node is stopping".to_owned();
                (order, Fault::Unavailable { applied: Applied::No, problem })
            }
        };
        order.answer(Err(Box::new(fault)));
    }

    /// Where orders come out. For one, and once.
    pub fn inbox(&self) -> Option<mpsc::Receiver<NodeOrder>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
