//! Requests to a node as a node: none of them concerns the contents of the register.
//!
//! `cluster.drain`, and what nodes say to each other while the register goes from one to the next. Answered by
//! `serve::keeper`, which knows the role of its node; no actor ever sees these requests.

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use crate::core::types::NetworkId;
pub use crate::store::Apart;

/// A request to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeJob {
    /// `cluster.drain`: take a node out of service in order, or put it back.
    Drain {
        /// Name of the node; none: the node that receives the request.
        node: Option<CompactString>,
        /// Take it out, or put it back.
        drain: bool,
    },
    /// Get ready to own the register. Answered when little is left to do.
    Prepare {
        /// The networks that the owner has stopped because they cannot be loaded: the node that is to own it need not be able to
        /// load these either.
        unloadable: Vec<NetworkId>,
    },
    /// The owner is about to give the register away: the node asks it nothing more, and holds back what clients ask. Answered
    /// when nothing is under way there.
    Hold {
        /// Name of the node that is to own it.
        successor: CompactString,
        /// Name of the node that says so: a node that follows another owner by now has nothing to hold back for this one.
        owner: CompactString,
    },
    /// The owner keeps the register after all.
    GoOn,
}

impl NodeJob {
    /// If nobody knows whether the request arrived, is it as if it had never been sent?
    pub fn is_read(&self) -> bool {
        !matches!(self, NodeJob::Drain { .. })
    }
}

/// The state of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStanding {
    /// Its name.
    pub node: CompactString,
    /// Whether it was taken out of service.
    pub draining: bool,
    /// Name of the node that owns the register, as far as it knows.
    pub owner: Option<CompactString>,
}
