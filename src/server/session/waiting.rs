//! Requests that wait for capacity while the register gets a new owner in an orderly way: they go on waiting at the next owner, for
//! the time that they have left. Their client notices nothing.
//!
//! ```text
//! waits at the owner ──granted, refused, time over──▶ answered
//!      ▲      └──"nothing was begun, ask elsewhere"──▶ not at an owner ──time over, or this server stops──▶ answered so
//!      └──────────── somebody owns the register ────────────┘
//! ```
//!
//! That answer says that nothing was begun, so nothing is granted twice. If nobody knows what became of a request (its owner was
//! killed), the client is told so, because only the client can decide to ask again.
//!
//! The next owner is asked by the ids of the networks, whatever they are called by then, and told for how long each request
//! has waited. So the request that came first is first there, too, among those that have arrived by then.
//!
//! Review notes: does whatever ends a session, or a wait, also find the requests that are not at an owner?

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use compact_str::{CompactString, format_compact};
use tokio::time::Instant;

use super::{Pending, Session};
use crate::actors::coordinator::Job;
use crate::actors::waits::{Wait, WaitedBefore};
use crate::actors::{BeganToWait, Fault, NotReadyReason};
use crate::core::types::NetworkId;
use crate::server::dispatch::Errand;
use crate::server::faults::error_of;
use crate::server::role::Role;
use crate::wire::values::NetworkRef;

/// How often to look for the next owner, besides at each change of the role.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// A request that may wait, as it was sent.
#[derive(Debug)]
pub(super) struct Patience {
    errand: Errand,
    reason: Option<CompactString>,
    ms: u64,
    /// When it began to wait, in boot time.
    since: Option<u64>,
}

impl Patience {
    /// Keeps a request that may wait for this long.
    pub(super) fn of(errand: &Errand, reason: Option<&CompactString>, ms: u64) -> Option<Box<Self>> {
        let errand = match errand {
            Errand::One(network, command) => Errand::One(network.clone(), command.clone()),
            Errand::Act(touches, job) => Errand::act(touches.clone(), again(job)?),
            Errand::All(job) => Errand::all(again(job)?),
            Errand::Node(_) | Errand::Here(_) => return None,
        };
        Some(Box::new(Self { errand, reason: reason.cloned(), ms, since: None }))
    }

    /// Notes that the request waits, from here on for these networks and not for others that may get their names. A single network
    /// is the one of the whole request; several are those of its parts.
    fn begins(&mut self, now_ms: u64, networks: &[NetworkId]) {
        self.since.get_or_insert(now_ms);
        match &mut self.errand {
            Errand::One(network, _) => {
                if let Some(id) = networks.first() {
                    *network = NetworkRef::Id(*id);
                }
            }
            Errand::Act(_, job) | Errand::All(job) => {
                let Job::Acquire { parts, .. } = &mut **job else { return };
                let one_for_all = networks.first().filter(|_| networks.len() == 1);
                let ids = networks.iter().chain(one_for_all.into_iter().cycle());
                parts.iter_mut().zip(ids).for_each(|(part, id)| part.network = format_compact!("{id}"));
            }
            Errand::Node(_) | Errand::Here(_) => {}
        }
    }

    /// For how long it has waited, and for how long it may still wait, in milliseconds.
    fn times(&self, now_ms: u64) -> (u64, u64) {
        let waited = now_ms.saturating_sub(self.since.unwrap_or(now_ms));
        (waited, self.ms.saturating_sub(waited))
    }
}

/// A copy of a job that may wait, to be sent again; none for other jobs.
fn again(job: &Job) -> Option<Job> {
    let Job::Acquire { parts, slot_prefix } = job else { return None };
    Some(Job::Acquire { parts: parts.clone(), slot_prefix: slot_prefix.clone() })
}

/// A waiting request that is not at an owner, and the answer of the last one.
#[derive(Debug)]
struct Resume {
    pending: Pending,
    patience: Box<Patience>,
    fault: Fault,
}

/// Waiting requests that are not at an owner at present, in the order in which they began to wait.
#[derive(Debug, Default)]
pub(super) struct Resumes {
    all: VecDeque<Resume>,
    /// When to look for an owner next.
    look: Option<Instant>,
}

impl Resumes {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Makes the next look happen at once: there may be an owner.
    pub(super) fn look_now(&mut self) {
        self.look = None;
    }

    fn look_later(&mut self) {
        self.look = Some(Instant::now() + LOOKS_EVERY);
    }

    /// Adds a request after those that began to wait before it.
    fn add(&mut self, resume: Resume) {
        let before = self.all.partition_point(|other| other.patience.since <= resume.patience.since);
        self.all.insert(before, resume);
    }
}

/// Does this fault say that nothing was begun because the node no longer owns the register?
fn is_elsewhere(fault: &Fault) -> bool {
    match fault {
        Fault::StoreAway { .. } => true,
        Fault::NotReady { reason, .. } => match reason {
            NotReadyReason::Moved | NotReadyReason::Stopping | NotReadyReason::NoOwner => true,
            NotReadyReason::Loading | NotReadyReason::Restarting | NotReadyReason::Restored => false,
        },
        Fault::Refused(_)
        | Fault::Overloaded { .. }
        | Fault::Unavailable { .. }
        | Fault::Contested { .. }
        | Fault::CursorLost { .. }
        | Fault::Stopped { .. }
        | Fault::Internal { .. } => false,
    }
}

impl Session {
    /// Does anything wait for capacity?
    pub fn waits(&self) -> bool {
        self.waiting > 0 || !self.resumes.is_empty()
    }

    /// Is everything in flight waiting for capacity?
    pub fn only_waits(&self) -> bool {
        self.queue.is_empty() && self.sent == self.waiting && self.ordered == 0
    }

    /// The permission of a request to wait for this long, for this connection.
    pub(super) fn wait(&mut self, ms: Option<u64>) -> Option<Wait> {
        let ms = ms?;
        self.may_wait_there |= self.role.actors().is_none();
        Some(Wait::begins(ms, Arc::clone(&self.caller)))
    }

    /// Ends all waiting of this connection.
    pub(super) fn leave(&mut self) {
        self.caller.leave();
        self.leave_there();
    }

    /// Ends the waiting of requests that were sent to another node, if this connection has left. It must be said again for requests
    /// that are sent later: the other node knows of this connection only what it is told.
    pub(super) fn leave_there(&mut self) {
        if self.may_wait_there
            && self.caller.has_left()
            && let Role::Follower { link, .. } = &*self.role
        {
            link.hang_up(self.number);
            self.may_wait_there = false;
        }
    }

    /// Notes that a request waits for capacity: from now on it holds nobody up.
    pub(super) fn waits_from_now(&mut self, BeganToWait { ticket, networks }: &BeganToWait) {
        let ticket = *ticket;
        let Some(Some(pending)) = self.pending.get_mut(ticket as usize) else { return };
        if !pending.waits {
            self.room.begins_to_wait(pending);
            pending.waits = true;
            self.waiting += 1;
            let now = self.server.clock.boot_ms();
            pending.patience.iter_mut().for_each(|patience| patience.begins(now, networks));
        }
        if self.barrier == Some(ticket) {
            self.barrier = None;
        }
        self.unfinished.retain(|act| act.ticket != ticket);
    }

    /// Keeps a waiting request if it can go on waiting elsewhere, or gives it back to be answered.
    pub(super) fn goes_on_waiting(&mut self, mut pending: Pending, fault: &Fault) -> Option<Pending> {
        if !pending.waits || !is_elsewhere(fault) || self.caller.has_left() {
            return Some(pending);
        }
        match pending.patience.take() {
            Some(patience) => {
                if self.resumes.is_empty() {
                    self.resumes.look_later();
                }
                self.resumes.add(Resume { pending, patience, fault: fault.clone() });
                None
            }
            None => Some(pending),
        }
    }

    /// When to call [`Session::role_changed`] even if the role did not change.
    pub(super) fn looks_for_owner_at(&self) -> Option<Instant> {
        let looks = !self.resumes.is_empty() && !self.moved && !self.role.is_between();
        looks.then(|| self.resumes.look.unwrap_or_else(Instant::now))
    }

    /// Sends the requests that waited at the previous owner to the present one.
    pub(super) fn resume(&mut self) {
        if self.looks_for_owner_at().is_none_or(|at| at > Instant::now()) {
            return;
        }
        let now_ms = self.server.clock.boot_ms();
        let can_ask = match &*self.role {
            Role::Owner(_) => true,
            Role::Follower { link, .. } => {
                self.redirect && self.role.owner_elsewhere().is_some() || link.is_connected()
            }
            Role::Between | Role::Waiting { .. } => false,
        };
        self.resumes.look_later();
        for Resume { mut pending, patience, fault } in std::mem::take(&mut self.resumes.all) {
            let (waited_ms, ms) = patience.times(now_ms);
            if ms == 0 {
                self.finish_error(pending, &error_of(&fault));
            } else if !can_ask {
                self.resumes.all.push_back(Resume { pending, patience, fault });
            } else if self.redirect
                && let Some(owner) = self.role.owner_elsewhere()
            {
                let error = self.server.moved_to(owner);
                self.finish_error(pending, &error);
            } else if let Some(again) = Patience::of(&patience.errand, patience.reason.as_ref(), patience.ms) {
                self.may_wait_there |= self.role.actors().is_none();
                let before = WaitedBefore { ms: waited_ms, until: Instant::now() };
                let wait = Wait { ms, before, caller: Arc::clone(&self.caller) };
                let Patience { errand, reason, .. } = *again;
                pending.patience = Some(patience);
                self.send(pending, errand, (reason, None, false), Some(wait));
            }
        }
    }

    /// Answers all waiting requests and lets none begin to wait, because the server stops or the connection ends.
    pub fn stop_waiting(&mut self) {
        self.leave();
        for Resume { pending, fault, .. } in std::mem::take(&mut self.resumes.all) {
            self.finish_error(pending, &error_of(&fault));
        }
        self.hurry();
    }
}
