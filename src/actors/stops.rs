//! Why a network is stopped while the others go on, and what clients are told about it.

use serde::{Deserialize, Serialize};

use crate::core::types::Name;
use crate::store::ShardId;

/// What stopped a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// It crashed too often.
    Crashes,
    /// The store's data of it cannot be loaded.
    Unloadable,
    /// The self-check found that memory and store differ.
    Differs,
}

/// A network that is stopped while the others go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// Its name, or its id if it was deleted and is remembered.
    pub network: Name,
    /// Its shard.
    pub shard: ShardId,
    /// Why.
    pub why: StopReason,
}

impl StopReason {
    /// All, in the order of their codes.
    pub(super) const ALL: [Self; 3] = [Self::Crashes, Self::Unloadable, Self::Differs];

    /// The protocol's word (`data.reason`).
    pub fn word(self) -> &'static str {
        match self {
            Self::Crashes => "crashes",
            Self::Unloadable => "unloadable",
            Self::Differs => "differs",
        }
    }

    /// Are requests that read still answered from its memory? As far as is known, that memory is what was acknowledged, and it
    /// is gone with the process: the operator who has to decide between it and the store must see it. A memory that crashes
    /// repeatedly, or was not loaded, is not to be believed.
    pub fn shows_memory(self) -> bool {
        matches!(self, Self::Differs)
    }

    /// What stops it still once it was loaded from the store, and nothing is left of what it had in memory. The log has where both
    /// differed.
    pub(super) fn without_memory(self) -> Option<Self> {
        match self {
            Self::Crashes | Self::Differs => Some(Self::Crashes),
            Self::Unloadable => None,
        }
    }

    /// The sentence about a network, without its full stop.
    pub fn problem(self, network: &Name) -> String {
        let (what, others, then) = match self {
            Self::Crashes => (
                "after it crashed repeatedly",
                "the other networks go on",
                "why, and a restart of the server loads it again",
            ),
            Self::Unloadable => (
                "because what the store has of it cannot be loaded",
                "the other networks go on",
                "what is wrong with it, which no restart mends: bring a backup back",
            ),
            Self::Differs => (
                "because its self-check found that memory and store differ about it",
                "what only reads is answered from memory, and the other networks go on",
                "where they differ; a restart of the server goes by the store",
            ),
        };
        format!("network `{network}` was stopped {what}; {others}; the server's log says {then}")
    }
}
