//! What this node is to the register now: where its clients' requests go.
//!
//! Written by `serve`, read by every session. A session keeps the role it saw until everything it sent under it is
//! answered, so requests of one connection for one network are never under way at two owners (CONSISTENCY 15).
//!
//! Review notes: does every role end in an answer for what is sent under it?

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::actors::Fault;
use crate::actors::service::Shared;

/// What this node is.
pub enum Role {
    /// It owns the register: requests go to the actors here.
    Owner(Arc<Shared>),
    /// Nobody serves yet, as far as this node knows.
    Waiting {
        /// In a word or two: `loading`, `no owner`, ….
        why: &'static str,
        /// When clients should come again.
        retry_after_ms: u64,
    },
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Owner(_) => f.write_str("Owner"),
            Role::Waiting { why, .. } => write!(f, "Waiting({why})"),
        }
    }
}

impl Role {
    /// The actors, if they are here.
    pub fn actors(&self) -> Option<&Arc<Shared>> {
        match self {
            Role::Owner(shared) => Some(shared),
            Role::Waiting { .. } => None,
        }
    }

    /// What a request is answered where nobody serves it.
    pub fn fault(&self) -> Fault {
        match self {
            Role::Waiting { why, retry_after_ms } => Fault::NotReady { reason: why, retry_after_ms: *retry_after_ms },
            Role::Owner(_) => Fault::NotReady { reason: "restarting", retry_after_ms: 200 },
        }
    }
}

/// The role, as it changes. Reading it takes some nanoseconds and no lock.
#[derive(Debug)]
pub struct Seat(ArcSwap<Role>);

impl Default for Seat {
    fn default() -> Self {
        Self(ArcSwap::from_pointee(Role::Waiting { why: "loading", retry_after_ms: 200 }))
    }
}

impl Seat {
    /// What this node is now.
    pub fn role(&self) -> Arc<Role> {
        self.0.load_full()
    }

    /// Is it still this one?
    pub fn is(&self, role: &Arc<Role>) -> bool {
        Arc::ptr_eq(&self.0.load(), role)
    }

    /// From now on it is this.
    pub fn become_role(&self, role: Role) {
        tracing::info!(role = ?role, "this node's role");
        self.0.store(Arc::new(role));
    }
}
