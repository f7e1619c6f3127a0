//! The role of this node: whether it owns the register, and so where its clients' requests go.
//!
//! Written by `serve`, read by every session. A session keeps the role it saw until everything it sent under it is
//! answered, so requests of one connection for one network are never under way at two owners.
//!
//! Review notes: does every role end in an answer for what is sent under it?

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::actors::service::Shared;
use crate::actors::{Fault, NotReadyReason};
use crate::peer::NoCommonVersion;
use crate::peer::link::Link;

/// The role of this node.
pub enum Role {
    /// This node owns the register: requests go to its actors.
    Owner(Arc<Shared>),
    /// Another node owns the register: requests go there.
    Follower {
        /// Name of the owner.
        owner: Arc<str>,
        /// Where the owner is reached.
        address: Arc<str>,
        /// The connection to the owner.
        link: Arc<Link>,
    },
    /// The register is being handed over from one node to another. Requests are held; `serve::keeper` makes sure that this ends.
    Between,
    /// Nobody serves, as far as this node knows.
    Waiting {
        /// For probes and the log.
        why: &'static str,
        /// For clients.
        fault: Fault,
    },
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Owner(_) => f.write_str("owner"),
            Role::Follower { owner, address, .. } => write!(f, "follower of {owner} at {address}"),
            Role::Between => f.write_str("between two owners"),
            Role::Waiting { why, .. } => write!(f, "waiting: {why}"),
        }
    }
}

impl Role {
    /// The actors, if this node owns the register.
    pub fn actors(&self) -> Option<&Arc<Shared>> {
        match self {
            Role::Owner(shared) => Some(shared),
            Role::Follower { .. } | Role::Between | Role::Waiting { .. } => None,
        }
    }

    /// The other node that owns the register. One that says that it owns nothing is not named, whatever the store says: it may
    /// have let go of the register, or it took it and cannot begin. If the connection to it broke after that, it is named when
    /// the store names it again.
    pub(crate) fn owner_elsewhere(&self) -> Option<&Arc<str>> {
        match self {
            Role::Follower { owner, link, .. } => (!link.is_of_no_owner()).then_some(owner),
            Role::Owner(_) | Role::Between | Role::Waiting { .. } => None,
        }
    }

    /// Why nothing can be asked of the owner, if that is because it shares no version of the protocol with this node. Says what
    /// this node waits for.
    pub(crate) fn unspoken(&self) -> Option<String> {
        let Role::Follower { owner, link, .. } = self else { return None };
        let NoCommonVersion { theirs, ours, .. } = &*link.no_common_version().filter(|_| !link.is_connected())?;
        Some(format!(
            "node `{owner}`, which owns the register, speaks {theirs} of the protocol between nodes, this program {ours}: this \
             node takes the register over when `{owner}` lets go of it; drain or stop `{owner}`, or run a program here that \
             speaks its version"
        ))
    }

    /// Is this a role that another one will soon follow?
    pub(crate) fn is_between(&self) -> bool {
        matches!(self, Role::Between)
    }

    /// The fault that requests are answered with if nobody serves them.
    pub(crate) fn nobody(&self) -> Option<&Fault> {
        match self {
            Role::Waiting { fault, .. } => Some(fault),
            Role::Owner(_) | Role::Follower { .. } | Role::Between => None,
        }
    }
}

/// The present role, which changes. Reading it takes some nanoseconds and no lock.
#[derive(Debug)]
pub struct Seat {
    role: ArcSwap<Role>,
    changes: watch::Sender<()>,
}

impl Default for Seat {
    fn default() -> Self {
        let (why, reason) = ("loading", NotReadyReason::Loading);
        let fault = Fault::NotReady { reason, retry_after_ms: 200 };
        let role = ArcSwap::from_pointee(Role::Waiting { why, fault });
        Self { role, changes: watch::Sender::new(()) }
    }
}

/// Logs which networks this node had stopped because memory and store differ: ending the owner decides for the store.
fn tell_of_memory(shared: &Shared) {
    for stopped in shared.stopped().into_iter().filter(|stopped| stopped.why.shows_memory()) {
        tracing::error!(
            network = %stopped.network,
            "its memory differs from the store and is discarded: the next owner goes by the store"
        );
    }
}

impl Seat {
    /// The present role.
    pub fn role(&self) -> Arc<Role> {
        self.role.load_full()
    }

    /// The present role; during a hand-over, the role after it. `serve::keeper` makes sure that a hand-over ends.
    pub async fn settled(&self) -> Arc<Role> {
        let mut changes = self.changes();
        loop {
            let role = self.role();
            // An error would mean that the sender is gone, but `self` has it.
            if !role.is_between() || changes.changed().await.is_err() {
                return role;
            }
        }
    }

    /// Is this still the present role?
    pub fn is(&self, role: &Arc<Role>) -> bool {
        Arc::ptr_eq(&self.role.load(), role)
    }

    /// A receiver that is woken by each change from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Changes the role.
    pub fn become_role(&self, role: Role) {
        if let Role::Owner(shared) = &*self.role() {
            tell_of_memory(shared);
        }
        tracing::info!(role = ?role, "this node's role");
        self.become_same(Arc::new(role));
    }

    /// Sets a role that may be the present one. Nothing is logged.
    pub fn become_same(&self, role: Arc<Role>) {
        self.role.store(role);
        self.changes.send_replace(());
    }
}
