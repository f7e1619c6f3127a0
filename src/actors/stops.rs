//! Why a network is stopped while the others go on, and what is said of it.

use serde::{Deserialize, Serialize};

use crate::core::types::Name;

/// What stopped a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// It crashed too often.
    Crashes,
    /// What the store has of it cannot be loaded.
    Unloadable,
    /// The self-check found that memory and store differ.
    Differs,
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

    /// Is what it has in memory shown to who asks? It is what was acknowledged, as far as anybody knows, and gone with the process: whoever
    /// has to decide between it and the store must see it. What crashes again and again, or was not loaded, is not to be believed.
    pub fn shows_memory(self) -> bool {
        matches!(self, Self::Differs)
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
                "as what the store has of it cannot be loaded",
                "the other networks go on",
                "what is wrong with it, and while it is so a restart is refused: bring a backup back",
            ),
            Self::Differs => (
                "as its self-check found that the server and its store know different things of it",
                "what only reads is answered from memory, and the other networks go on",
                "where they differ; a restart of the server goes by the store",
            ),
        };
        format!("network `{network}` was stopped {what}; {others}; the server's log tells {then}")
    }
}
