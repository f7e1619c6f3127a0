//! What a node is asked as a node: nothing of it concerns what the register says.
//!
//! `cluster.drain`, and what nodes say to each other while the register goes from one to the next. Answered by
//! `serve::keeper`, which knows the role of its node; no actor ever sees it.

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

pub use crate::store::Apart;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeJob {
    /// `cluster.drain`: out of service in order, or back into it.
    Drain {
        /// Name of the node; none: the one that is asked.
        node: Option<CompactString>,
        /// Out, or back.
        drain: bool,
    },
    /// Get ready to own the register. Answered when little is left to do.
    Prepare,
    /// The owner is about to give the register away: ask it nothing more, and hold what clients ask. Answered when
    /// nothing is under way there.
    Hold {
        /// Name of the node that is to own it.
        successor: CompactString,
        /// Name of the node that says so: whoever follows another one by now has nothing to hold for it.
        owner: CompactString,
    },
    /// The owner keeps it after all.
    GoOn,
}

impl NodeJob {
    /// Is it as if it had never been said, where nobody knows whether it was heard?
    pub fn is_read(&self) -> bool {
        !matches!(self, NodeJob::Drain { .. })
    }
}

/// How a node stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStanding {
    /// Its name.
    pub node: CompactString,
    /// It was taken out of service.
    pub draining: bool,
    /// Name of the node that owns the register, as far as it knows.
    pub owner: Option<CompactString>,
}
