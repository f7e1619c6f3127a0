//! Params of the garbage collection of claimants by mark and sweep.

use crate::core::types::{Claimant, Scope};
use crate::limits;
use crate::wire::params::params;
use crate::wire::values::{BoundedList, CooldownSeconds, NetworkRef, OwnerPrefix, Share};

/// The claimants named in one call.
pub type Claimants = BoundedList<Claimant, 0, { limits::SWEEP_CLAIMANTS_MAX }>;

params! { write
    /// Params of `claimant.mark`: notes who is alive, in addition to those marked under the same name before. All marks of a
    /// name are forgotten an hour after the last one, or when another node takes over.
    ClaimantMark {
        /// Scope of the reservations.
        scope: Scope,
        /// Name of the sweep, chosen by the client.
        sweep: OwnerPrefix,
        /// Who is alive.
        claimants: Claimants,
    }
}

params! { write
    /// Params of `claimant.sweep`: unbinds what no living claimant uses. Exactly one of `alive` and `sweep` says who is
    /// alive.
    ClaimantSweep {
        /// Scope of the reservations.
        scope: Scope,
        /// Who is alive.
        alive?: Claimants,
        /// Those marked as alive under this name are alive.
        sweep?: OwnerPrefix,
        /// Only in this network.
        network?: NetworkRef,
        /// How long a claimant must have been missing; 60 if left out.
        grace_seconds?: CooldownSeconds,
        /// The greatest share of the scope's reservations, over all networks, that may be released; 0.2 if left out.
        max_share?: Share,
    }
}
