//! Garbage collection of claimants: what a sweep asks of one network. `actors::coordinator::sweep` describes the whole method.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::core::address::Address;
use crate::core::types::{Claimant, Generation, Scope};

/// The use of an address by a claimant, in this one holding of the address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The address, or the first of the block.
    pub address: Address,
    /// Generation of the holding.
    pub generation: Generation,
    /// Who uses it.
    pub claimant: Claimant,
    /// The first miss because of which a sweep may let go of it, if there is one.
    pub miss: Option<MissNumber>,
}

/// Tells one first miss from all others of a tenure, even from those of the same binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissNumber(pub u64);

/// A slice of a sweep's look at what a scope holds in a network: looks at no more than
/// [`crate::limits::LIST_SLICE_RECORDS_MAX`] records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepLook {
    /// The scope of the reservations.
    pub scope: Scope,
    /// The claimants that are alive.
    pub alive: Arc<BTreeSet<Claimant>>,
    /// The list of the living may be incomplete. However many such lists miss a claimant, that counts as one miss.
    pub doubted: bool,
    /// How long a claimant must have been missing before a sweep may let go of it.
    pub grace_seconds: u64,
    /// Note who is missed for the first time, and forget misses of claimants that are alive again. Otherwise the look leaves
    /// no trace.
    pub note: bool,
    /// The slice begins after this address.
    pub after: Option<Address>,
}
