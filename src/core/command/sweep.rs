//! Garbage collection of claimants: what a sweep asks of one network. `actors::coordinator::sweep` tells the whole story.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::core::address::Address;
use crate::core::types::{Claimant, Generation, Scope};

/// A claimant that uses an address: this holding of it and no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The address, or the first of the block.
    pub address: Address,
    /// Of the holding.
    pub generation: Generation,
    /// Who uses it.
    pub claimant: Claimant,
    /// The first miss that makes it due for a sweep, where one does.
    pub miss: Option<MissNumber>,
}

/// Tells one first miss from all others of a tenure, also of the same binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissNumber(pub u64);

/// A slice of a sweep's look at what a scope holds in a network: at most [`crate::limits::LIST_SLICE_RECORDS_MAX`] records
/// are looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepLook {
    /// Of these reservations.
    pub scope: Scope,
    /// Who is alive.
    pub alive: Arc<BTreeSet<Claimant>>,
    /// These are perhaps not all of them: however many such lists miss somebody, it is missed once.
    pub doubted: bool,
    /// How long a claimant must have been missing to be due.
    pub grace_seconds: u64,
    /// Note who is missed for the first time, and forget who is alive again. Else nothing is remembered of this look.
    pub note: bool,
    /// After this address.
    pub after: Option<Address>,
}
