//! Records as they are in practice: a network without special settings, and a holding.
//!
//! The benchmarks of the core and of the store include this file too.

use allod::core::state::*;
use allod::core::types::*;

/// A network with default settings.
pub fn plain_network(id: NetworkId, name: &str) -> NetworkConfig {
    NetworkConfig {
        id,
        name: name.parse().expect("a name"),
        realm: Name::default_realm(),
        kind: NetworkKind::Manual,
        l2: L2::default(),
        policy: Policy::Lowest,
        cooldown_seconds: 0,
        cooldown_yields: false,
        static_only: false,
        protected: false,
        limits: Limits::default(),
        tags: Labels::new(),
        description: "".into(),
        version: Version(1),
        created_at: WallTime(1),
        closed: false,
        purged: false,
        conflicts: Vec::new(),
    }
}

/// A dynamic reservation without further details.
pub fn plain_reservation(holder: SlotKey, generation: Generation, prefix_length: u8) -> Reservation {
    Reservation::plain(holder, generation, prefix_length, WallTime(1_795_262_400_000))
}

/// An owner as orchestrators name them: 24 bytes with a pod name of ten characters, in a scope of 12.
pub fn usual_holder(scope: u64, pod: &str) -> SlotKey {
    SlotKey {
        scope: format!("tenant-{scope:05}").parse().expect("a scope"),
        owner: format!("node-0007/pod-{pod}").parse().expect("an owner"),
        slot: Slot::default(),
    }
}
