//! Requests that other nodes forward to this one: handed to the actors here as if they came from a client of this node.
//!
//! During a hand-over they are held here, in order: nodes that already know the next owner forward requests before it has read the
//! whole register.
//!
//! Neighbours: `peer::listener` calls this, in the order in which each node asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;

use super::Server;
use super::role::Role;
use super::steward::NodeOrder;
use crate::actors::coordinator::{self, Job, Order};
use crate::actors::service::Shared;
use crate::actors::{Fault, Item, NotReadyReason, Outlet, Reply, Told, answer_all, sending};
use crate::core::refusal::{Missing, Refusal};
use crate::peer::frame::{NetworkRef, PeerStanding};
use crate::peer::listener::{NotOwner, RemoteAsker, Serve};

/// This node, as the others see it.
#[derive(Debug)]
pub struct Forwarded {
    server: Weak<Server>,
    /// Requests that came during a hand-over. Bounded by what the other nodes may have under way here.
    held: Mutex<VecDeque<HeldBack>>,
    /// Whether this node owns the register and takes changes, for the other nodes.
    standing: watch::Sender<PeerStanding>,
}

/// How often to check whether the store takes changes. A change of the role is seen at once.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug)]
enum HeldBack {
    Work(NetworkRef, Vec<Item>, Outlet),
    Job(u32, Box<Order>, Outlet),
}

impl HeldBack {
    fn go_on(self, shared: &Arc<Shared>) {
        match self {
            HeldBack::Work(network, items, outlet) => work(shared, &network, items, &outlet),
            HeldBack::Job(ticket, order, outlet) => coordinator::spawn(shared, ticket, *order, outlet),
        }
    }

    /// Answers that nothing was begun, because nobody serves this here.
    fn refuse(self, fault: &Fault) {
        match self {
            HeldBack::Work(_, items, outlet) => answer_all(&outlet, items.iter().map(|item| item.ticket), fault),
            // A closed outlet means that the node is gone.
            HeldBack::Job(ticket, _, outlet) => drop(outlet.send(Told::Job(ticket, Err(Box::new(fault.clone()))))),
        }
    }
}

impl Forwarded {
    /// Serves by the role that this server has at each moment. Must be called on a runtime that lives as long as the server.
    pub fn of(server: &Arc<Server>) -> Arc<Self> {
        let standing = watch::Sender::new(server.standing_as_owner());
        let forwarded = Arc::new(Self { server: Arc::downgrade(server), held: Mutex::default(), standing });
        let (mut roles, present) = (server.seat.changes(), Arc::downgrade(&forwarded));
        tokio::spawn(async move {
            loop {
                // The store does not report when it begins or ceases to take changes.
                let changed = timeout(LOOKS_EVERY, roles.changed()).await;
                let Some(forwarded) = present.upgrade() else { return };
                match changed {
                    Ok(Ok(())) => forwarded.let_go(),
                    Ok(Err(_)) => return,
                    Err(_) => {}
                }
                forwarded.stands();
            }
        });
        forwarded
    }

    /// Tells the other nodes how this one stands, if that has changed.
    fn stands(&self) {
        let Some(server) = self.server.upgrade() else { return };
        let standing = server.standing_as_owner();
        self.standing.send_if_modified(|said| {
            let changed = *said != standing;
            *said = standing;
            changed
        });
    }

    fn role(&self) -> Option<Arc<Role>> {
        self.server.upgrade().map(|server| server.seat.role())
    }

    fn held(&self) -> MutexGuard<'_, VecDeque<HeldBack>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request on, after those that are held.
    fn take(&self, ask: HeldBack) -> Result<(), NotOwner> {
        let mut held = self.held();
        // The role is read under the lock: a request that is held after the last change would be held for ever.
        let role = self.role();
        match role.as_deref() {
            Some(Role::Between) => held.push_back(ask),
            // It goes when the requests before it have gone.
            Some(_) if !held.is_empty() => held.push_back(ask),
            Some(Role::Owner(shared)) => ask.go_on(shared),
            // This node knows why it no longer owns the register; otherwise the asking node would only learn that it does not.
            Some(Role::Waiting { fault: fault @ Fault::StoreAway { .. }, .. }) => ask.refuse(fault),
            Some(Role::Follower { .. } | Role::Waiting { .. }) | None => return Err(NotOwner { owner: None }),
        }
        Ok(())
    }

    /// The role has changed.
    fn let_go(&self) {
        let mut held = self.held();
        let role = self.role();
        if matches!(role.as_deref(), Some(Role::Between)) {
            return;
        }
        let elsewhere = Fault::NotReady { reason: NotReadyReason::Moved, retry_after_ms: 200 };
        for ask in held.drain(..) {
            match role.as_deref() {
                Some(Role::Owner(shared)) => ask.go_on(shared),
                Some(Role::Waiting { fault: fault @ Fault::StoreAway { .. }, .. }) => ask.refuse(fault),
                Some(Role::Follower { .. } | Role::Between | Role::Waiting { .. }) | None => ask.refuse(&elsewhere),
            }
        }
    }
}

fn work(shared: &Arc<Shared>, network: &NetworkRef, items: Vec<Item>, outlet: &Outlet) {
    let (route, by_name) = match network {
        NetworkRef::Name(name) => (shared.routes.by_name(name), true),
        // The text of an id counts as a name, as it does for a client of this node.
        NetworkRef::Id(id) => (shared.routes.find(&id.to_string()), false),
    };
    match route {
        Some(route) => sending::send(shared, &route, by_name, items, outlet, Instant::now()),
        None => {
            let refusal = match network {
                NetworkRef::Name(name) => Refusal::not_found(Missing::Network, name),
                NetworkRef::Id(id) => Refusal::not_found(Missing::Network, id),
            };
            let fault = Fault::Refused(refusal);
            let refused = |item: &Item| Reply { ticket: item.ticket, answer: Err(Box::new(fault.clone())) };
            shared.answer_proved(outlet.clone(), items.iter().map(refused).collect());
        }
    }
}

impl Serve for Forwarded {
    fn met(&self) {
        if let Some(server) = self.server.upgrade() {
            server.nodes.has_company();
        }
    }

    fn work(&self, _: &RemoteAsker, network: NetworkRef, items: Vec<Item>, outlet: &Outlet) -> Result<(), NotOwner> {
        self.take(HeldBack::Work(network, items, outlet.clone()))
    }

    fn job(&self, origin: &RemoteAsker, ticket: u32, order: Order, outlet: &Outlet) -> Result<(), NotOwner> {
        let Order { job: Job::Node(job), by, reason, deadline, dry_run, wait: _ } = order else {
            return self.take(HeldBack::Job(ticket, Box::new(order), outlet.clone()));
        };
        let server = self.server.upgrade().ok_or(NotOwner { owner: None })?;
        tracing::debug!(node = %origin.node.name, ?job, "asked by another node");
        let mut order = NodeOrder::new(job, dry_run, (ticket, outlet.clone()));
        (order.by, order.reason, order.deadline, order.from_node) = (by, reason, deadline, true);
        server.steward.ask(order);
        Ok(())
    }

    fn standing(&self) -> watch::Receiver<PeerStanding> {
        self.standing.subscribe()
    }
}
