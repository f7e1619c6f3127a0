//! Sends requests to where they belong. Which requests must wait for others under way is in `unfinished`.

use std::sync::Arc;
use std::time::Instant;

use compact_str::CompactString;

use super::groups::{AskedOn, RequestGroup, To};
use super::waiting::Patience;
use super::{Pending, Queued, Session};
use crate::actors::coordinator::{self, Order};
use crate::actors::waits::Wait;
use crate::actors::{self, Fault, Item, NotReadyReason, Reply, answer_all};
use crate::core::refusal::{Missing, Refusal};
use crate::peer::frame;
use crate::server::dispatch::{Errand, ReadyRequest};
use crate::server::faults::error_of;
use crate::server::role::Role;
use crate::server::steward::NodeOrder;
use crate::wire::values::NetworkRef;

/// The reason of a request, its deadline, and whether it is a dry run.
type How = (Option<CompactString>, Option<Instant>, bool);

impl Session {
    /// Sends a request, or gives it back if it must wait.
    pub(super) fn submit(&mut self, queued: Queued) -> Option<Queued> {
        if let Some(error) = self.too_much(&queued) {
            self.tally.refused(queued.ready.method.name(), error.kind());
            self.answer_error(queued.id.as_ref(), queued.batch, &error);
            return None;
        }
        if let Errand::Here(here) = queued.ready.errand {
            self.here(here, &queued);
            return None;
        }
        let of_node = matches!(queued.ready.errand, Errand::Node(_));
        let held = self.moved || self.role.is_between() || self.barrier.is_some();
        if !of_node && (held || self.must_wait(&queued.ready.errand) || self.is_crowded(&queued)) {
            return Some(queued);
        }
        let Queued { id, batch, asked, read, bytes, ready } = queued;
        let ReadyRequest { method: _, errand, shape, reason, deadline, wait_ms } = ready;
        let wait = self.wait(wait_ms);
        let patience = wait_ms.and_then(|ms| Patience::of(&errand, reason.as_ref(), ms));
        let pending = Pending { id, batch, shape, asked, read, bytes, waits: false, of_node, patience };
        if let Errand::Node(job) = errand {
            let ticket = self.ticket(pending);
            let mut order = NodeOrder::new(job, shape.dry_run, (ticket, self.outlet.clone()));
            (order.by, order.reason, order.deadline) = (self.by.clone(), reason, deadline);
            self.server.steward.ask(order);
            return None;
        }
        if let Some(fault) = self.role.nobody() {
            self.finish_error(pending, &error_of(fault));
            return None;
        }
        if self.redirect
            && let Some(owner) = self.role.owner_elsewhere()
        {
            let error = self.server.moved_to(owner);
            self.finish_error(pending, &error);
            return None;
        }
        self.send(pending, errand, (reason, deadline, shape.dry_run), wait);
        None
    }

    /// Sends a request to its actor, coordinator or node.
    pub(super) fn send(&mut self, pending: Pending, errand: Errand, how: How, wait: Option<Wait>) {
        let (reason, deadline, dry_run) = how;
        match errand {
            Errand::Here(_) | Errand::Node(_) => {}
            Errand::One(network, command) => {
                let group = match self.group_of(network) {
                    Ok(group) => group,
                    Err(refusal) => return self.unrouted(pending, refusal),
                };
                let ticket = self.ticket(pending);
                let item = Item { ticket, command, by: self.by.clone(), reason, deadline, dry_run, wait };
                self.groups.add(group, item);
            }
            Errand::Act(touches, job) => {
                // Earlier requests for the same network must be in its queue first.
                self.flush();
                let waits = pending.waits;
                let ticket = self.ticket(pending);
                if !waits {
                    self.begins(ticket, touches, &job, dry_run);
                }
                self.spawn(ticket, Order { job: *job, by: self.by.clone(), reason, deadline, dry_run, wait });
            }
            Errand::All(job) => {
                let waits = pending.waits;
                let ticket = self.ticket(pending);
                if waits {
                    // Requests that have waited for longer are sent first, too.
                    self.flush();
                } else {
                    self.barrier = Some(ticket);
                }
                self.spawn(ticket, Order { job: *job, by: self.by.clone(), reason, deadline, dry_run, wait });
            }
        }
    }

    fn spawn(&self, ticket: u32, order: Order) {
        match &*self.role {
            Role::Owner(shared) => coordinator::spawn(shared, ticket, order, self.outlet.clone()),
            Role::Follower { link, .. } => {
                self.server.metrics.clients.forwarded.inc();
                link.job(self.number, ticket, order, &self.outlet);
            }
            Role::Between | Role::Waiting { .. } => {} // Held or refused before.
        }
    }

    /// Answers a request for a network that the routing table here does not have. That alone does not prove that there is none.
    fn unrouted(&mut self, pending: Pending, refusal: Refusal) {
        let fault = Fault::Refused(refusal);
        match self.role.actors().filter(|shared| !shared.info.ownership_is_standing).map(Arc::clone) {
            None => self.finish_error(pending, &error_of(&fault)),
            Some(shared) => {
                let ticket = self.ticket(pending);
                shared.answer_proved(self.outlet.clone(), vec![Reply { ticket, answer: Err(Box::new(fault)) }]);
            }
        }
    }

    /// The group that a request for a network joins: an existing one, or a new one.
    fn group_of(&mut self, network: NetworkRef) -> Result<usize, Refusal> {
        // A pipelining client names the same network again and again: then nothing is looked up.
        if let NetworkRef::Name(name) = &network
            && let Some(last) = self.groups.last_if_named(name)
        {
            return Ok(last);
        }
        let to = self.to(network)?;
        Ok(self.groups.joined_by(to))
    }

    /// Where requests for a network go.
    fn to(&self, network: NetworkRef) -> Result<To, Refusal> {
        let Some(shared) = self.role.actors() else { return Ok(To::There(network)) };
        let routes = &shared.routes;
        let route = match &network {
            NetworkRef::Name(name) => routes.by_name(name),
            NetworkRef::Id(id) => routes.find(&id.to_string()),
        };
        let Some(route) = route else { return Err(Refusal::not_found(Missing::Network, &network)) };
        let by_name = match &network {
            NetworkRef::Name(name) => route.name.as_ref() == Some(name),
            NetworkRef::Id(_) => false,
        };
        Ok(To::Here { route, by_name })
    }

    /// Sends the requests that were read, one message for each network, and counts the answers in the metrics.
    pub fn flush(&mut self) {
        if self.has_much() {
            self.share.has_much(&self.server.fairness, self.read);
        }
        match self.groups.asked_on() {
            AskedOn::Nothing => {}
            asked_on => self.asked_on = asked_on,
        }
        for RequestGroup { to, items } in self.groups.drain() {
            tracing::trace!(session = self.number, requests = items.len(), "sent to a network");
            match (to, &*self.role) {
                (To::Here { route, by_name }, Role::Owner(shared)) => {
                    actors::sending::send(shared, &route, by_name, items, &self.outlet, self.read);
                }
                (To::There(network), Role::Follower { link, .. }) => {
                    let network = match network {
                        NetworkRef::Name(name) => frame::NetworkRef::Name(name),
                        NetworkRef::Id(id) => frame::NetworkRef::Id(id),
                    };
                    self.server.metrics.clients.forwarded.inc_by(items.len() as u64);
                    link.work(self.number, network, items, &self.outlet);
                }
                // The role does not change while anything is gathered, because that counts as sent (`sees_role`).
                (To::Here { .. } | To::There(_), role) => {
                    tracing::error!(?role, "requests were gathered for another role");
                    let fault = Fault::NotReady { reason: NotReadyReason::Moved, retry_after_ms: 100 };
                    answer_all(&self.outlet, items.iter().map(|item| item.ticket), &fault);
                }
            }
        }
        self.leave_there();
        self.tally.tell();
    }

    /// What the client has asked since the last call; the last read that brought a request counts.
    pub fn take_asked_on(&mut self) -> AskedOn {
        std::mem::take(&mut self.asked_on)
    }

    /// A number under which the request is answered. From here on it counts as sent, unless it is an order to this node itself:
    /// nothing waits for those, not even a new role.
    pub(super) fn ticket(&mut self, pending: Pending) -> u32 {
        self.room.sent(&pending);
        if pending.of_node {
            self.ordered += 1;
        } else {
            self.sent += 1;
            self.waiting += usize::from(pending.waits);
        }
        match self.free.pop() {
            Some(ticket) => {
                self.pending[ticket as usize] = Some(pending);
                ticket
            }
            None => {
                self.pending.push(Some(pending));
                (self.pending.len() - 1) as u32
            }
        }
    }
}
