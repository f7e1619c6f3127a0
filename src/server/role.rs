//! What this node is to the register now: where its clients' requests go.
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
use crate::peer::link::Link;

/// What this node is.
pub enum Role {
    /// It owns the register: requests go to the actors here.
    Owner(Arc<Shared>),
    /// Another node owns it: requests go there.
    Follower {
        /// Name of the owner.
        owner: Arc<str>,
        /// Where it is reached.
        address: Arc<str>,
        /// The way there.
        link: Arc<Link>,
    },
    /// The register goes from one node to the next just now. Requests are held: `serve::keeper` sees to it that this ends.
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
    /// The actors, if they are here.
    pub fn actors(&self) -> Option<&Arc<Shared>> {
        match self {
            Role::Owner(shared) => Some(shared),
            Role::Follower { .. } | Role::Between | Role::Waiting { .. } => None,
        }
    }

    /// Is it to be waited for another one?
    pub(super) fn is_between(&self) -> bool {
        matches!(self, Role::Between)
    }

    /// What a request is answered where nobody serves it.
    pub(crate) fn nobody(&self) -> Option<&Fault> {
        match self {
            Role::Waiting { fault, .. } => Some(fault),
            Role::Owner(_) | Role::Follower { .. } | Role::Between => None,
        }
    }
}

/// The role, as it changes. Reading it takes some nanoseconds and no lock.
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

/// Whoever ends an owner has decided for the store, knowing it or not.
fn tell_of_memory(shared: &Shared) {
    for (network, _) in shared.stopped().into_iter().filter(|(_, why)| why.shows_memory()) {
        tracing::error!(
            %network,
            "its memory is not what the store has, and is let go of: whoever owns the register next goes by the store"
        );
    }
}

impl Seat {
    /// What this node is now.
    pub fn role(&self) -> Arc<Role> {
        self.role.load_full()
    }

    /// What this node is; between two owners, once that is over: `serve::keeper` sees to it that it ends.
    pub async fn settled(&self) -> Arc<Role> {
        let mut changes = self.changes();
        loop {
            let role = self.role();
            // An error is a sender that is gone, and it is part of this.
            if !role.is_between() || changes.changed().await.is_err() {
                return role;
            }
        }
    }

    /// Is it still this one?
    pub fn is(&self, role: &Arc<Role>) -> bool {
        Arc::ptr_eq(&self.role.load(), role)
    }

    /// Tells of each change from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// From now on it is this.
    pub fn become_role(&self, role: Role) {
        if let Role::Owner(shared) = &*self.role() {
            tell_of_memory(shared);
        }
        tracing::info!(role = ?role, "this node's role");
        self.become_same(Arc::new(role));
    }

    /// From now on it is this, which it may have been before: nothing is logged.
    pub fn become_same(&self, role: Arc<Role>) {
        self.role.store(role);
        self.changes.send_replace(());
    }
}
