//! Params of the methods that change what is held: release, renew, bind, update, transfer, decline.

use crate::core::address::Address;
use crate::core::types::{Claimant, Owner, OwnerUid, Scope, Slot};
use crate::wire::object::object;
use crate::wire::params::params;
use crate::wire::values::{
    Hostname, LabelPatch, MacChoice, NetworkRef, Note, ProbationSeconds, RenewTtl, Seen, Serial,
};

params! { write
    /// Params of `ip.release`: by owner and slot, or by address with owner, generation or force.
    IpRelease {
        /// Network of the reservation.
        network: NetworkRef,
        /// The address held.
        address?: Address,
        /// Who holds it.
        owner?: Owner,
        /// Scope of the owner; if left out, `default`, and of an address without an owner that of its holder.
        scope?: Scope,
        /// Slot of the owner; if left out, `0`, and of an address that is held any slot.
        slot?: Slot,
        /// Refused if the address is held under another generation.
        if_generation?: Serial,
        /// Releases the address whoever holds it.
        force?: bool,
        /// It is an error if nothing is held.
        strict?: bool,
    }
}

params! { write
    /// Params of `ip.renew`: a new end of the lease, or none.
    IpRenew {
        /// Network of the reservation.
        network: NetworkRef,
        /// The address held.
        address?: Address,
        /// Who holds it.
        owner?: Owner,
        /// Scope of the owner; if left out, `default`, and of an address without an owner that of its holder.
        scope?: Scope,
        /// Slot of the owner; if left out, `0`, and of an address that is held any slot.
        slot?: Slot,
        /// Length of the lease from now on; null makes the reservation permanent.
        ttl_seconds: RenewTtl,
        /// Refused if the address is held under another generation.
        if_generation?: Serial,
    }
}

params! { write
    /// Params of `ip.bind`: who uses the address now.
    IpBind {
        /// Network of the reservation; may be left out if address and scope are given.
        network?: NetworkRef,
        /// The address held.
        address?: Address,
        /// Who holds it.
        owner?: Owner,
        /// Scope of the owner; if left out, `default`, and of an address without an owner that of its holder.
        scope?: Scope,
        /// Slot of the owner; if left out, `0`, and of an address that is held any slot.
        slot?: Slot,
        /// Who uses it.
        claimant: Claimant,
        /// Refused if the address is held under another generation.
        if_generation?: Serial,
    }
}

params! { write
    /// Params of `ip.unbind`: the claimant is gone.
    IpUnbind {
        /// Network of the reservation; may be left out if address and scope are given.
        network?: NetworkRef,
        /// The address held.
        address?: Address,
        /// Who holds it.
        owner?: Owner,
        /// Scope of the owner; if left out, `default`, and of an address without an owner that of its holder.
        scope?: Scope,
        /// Slot of the owner; if left out, `0`, and of an address that is held any slot.
        slot?: Slot,
        /// Who used it.
        claimant: Claimant,
        /// Refused if the address is held under another generation.
        if_generation?: Serial,
    }
}

params! { write
    /// Params of `ip.update`: a merge patch of what is noted about a reservation.
    IpUpdate {
        /// Network of the reservation.
        network: NetworkRef,
        /// The address held.
        address?: Address,
        /// Who holds it.
        owner?: Owner,
        /// Scope of the owner; if left out, `default`, and of an address without an owner that of its holder.
        scope?: Scope,
        /// Slot of the owner; if left out, `0`, and of an address that is held any slot.
        slot?: Slot,
        /// What changes.
        set: ReservationSet,
        /// Refused if the address is held under another generation.
        if_generation?: Serial,
    }
}

object! { strict
    /// Merge patch of a reservation.
    ReservationSet {
        /// Labels, merged key by key.
        labels | null: LabelPatch,
        /// A note for people.
        note | null: Note,
        /// Host name.
        hostname | null: Hostname,
        /// Hardware address.
        mac | null: MacChoice,
        /// Tells two owners of one name apart.
        owner_uid | null: OwnerUid,
    }
}

params! { write
    /// Params of `ip.transfer`: the address goes to another owner in one step.
    IpTransfer {
        /// Network of the reservation.
        network: NetworkRef,
        /// The address held.
        address: Address,
        /// Who holds it.
        owner: Owner,
        /// Scope of the owner; `default` if left out.
        scope?: Scope,
        /// Who gets it.
        to: TransferTo,
        /// The two swap their addresses.
        exchange?: bool,
        /// Refused if the address is held under another generation.
        if_generation?: Serial,
    }
}

object! { strict
    /// The new holder of a transferred address.
    TransferTo {
        /// The new owner.
        owner: Owner,
        /// Its scope; `default` if left out.
        scope?: Scope,
        /// Its slot; `0` if left out.
        slot?: Slot,
    }
}

params! { write
    /// Params of `ip.decline`: somebody else answers at this address.
    IpDecline {
        /// Network of the reservation.
        network: NetworkRef,
        /// The address held.
        address: Address,
        /// Who holds it.
        owner: Owner,
        /// Scope of the owner; `default` if left out.
        scope?: Scope,
        /// Slot of the owner; if left out, any slot.
        slot?: Slot,
        /// Who or what was seen at the address, for the history.
        seen?: Seen,
        /// How long the address stays out of circulation; a day if left out.
        probation_seconds?: ProbationSeconds,
        /// Grants another address in the same commit.
        again?: bool,
    }
}

params! { write
    /// Params of `owner.release`: everything that an owner holds.
    OwnerRelease {
        /// The owner.
        owner: Owner,
        /// Scope of the owner; `default` if left out.
        scope?: Scope,
        /// Only in this network.
        network?: NetworkRef,
    }
}

params! { write
    /// Params of `scope.release`: everything that a deployment or tenant holds.
    ScopeRelease {
        /// The scope.
        scope: Scope,
    }
}
