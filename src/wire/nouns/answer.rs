//! Results that are more than one noun: lists, releases, sweeps.

use super::network::{Network, Reserved};
use super::reservation::{AddressState, GrantResult, Reservation};
use crate::core::address::Address;
use crate::core::types::{Claimant, Name, NetworkId, Scope};
use crate::wire::object::object;
use crate::wire::values::{Count, Cursor};

object! { open
    /// Nothing more to say than that it is done.
    Empty {}
}

object! { open
    /// An address of a network.
    HeldAt {
        /// The network.
        network: Name,
        /// The address; of a block the first.
        address: Address,
    }
}

object! { open
    /// A claimant at an address of a network.
    ClaimantAt {
        /// The network.
        network: Name,
        /// The address; of a block the first.
        address: Address,
        /// Who used it.
        claimant: Claimant,
    }
}

object! { open
    /// Answer of `ip.acquire`.
    AcquireResult {
        /// In the order asked; optional ones without capacity are left out.
        reservations: Vec<GrantResult>,
        /// With `exact`: what else the owner held.
        released?: Vec<HeldAt>,
    }
}

object! { open
    /// Answer of `ip.release`.
    ReleaseResult {
        /// What was released; empty if it was not held.
        released: Vec<Address>,
    }
}

object! { open
    /// Answer of `ip.transfer`.
    TransferResult {
        /// The reservation under its new owner; with `exchange` both. Asked again, the one that came back is left out
        /// where it is not held any more as it was handed over.
        reservations: Vec<Reservation>,
    }
}

object! { open
    /// Answer of `ip.decline`.
    DeclineResult {
        /// The address that left circulation.
        declined: Address,
        /// With `again`: what was granted in its place.
        reservation?: Box<Reservation>,
    }
}

object! { open
    /// What is known about an address in one realm.
    Found {
        /// The address.
        address: Address,
        /// What it is just now.
        state: AddressState,
        /// The network it lies in.
        network?: Name,
        /// Who holds it.
        reservation?: Box<Reservation>,
    }
}

object! { open
    /// Answer of `ip.find`.
    FindResult {
        /// One entry for each network that the address lies in.
        found: Vec<Found>,
    }
}

object! { open
    /// Answer of `ip.list`: a page, or with `count_only` a count.
    ListResult {
        /// The page.
        reservations?: Vec<Reservation>,
        /// With `count_only`: how many there are.
        count?: u64,
        /// `after` of the next page; left out on the last.
        next?: Cursor,
        /// Where `events.watch` goes on from this answer: of one network it misses and repeats nothing. Over several, or from the
        /// first page of several, it misses nothing, and may repeat what changed while they were listed: compare `generation`.
        cursor?: Cursor,
    }
}

object! { open
    /// Answer of `owner.release` and `scope.release`.
    ReleaseAllResult {
        /// What was released.
        released: Vec<HeldAt>,
        /// There is more, or may be: call again. So it is also where something came in between: the next call is told what, if it
        /// stands in the way still.
        more: bool,
    }
}

object! { open
    /// Answer of `claimant.mark`.
    MarkResult {
        /// How many are marked under this name now: fewer than you named means that earlier marks are forgotten.
        marked: u64,
    }
}

object! { open
    /// Answer of `claimant.sweep`.
    SweepResult {
        /// Left with their owner.
        unbound: Vec<ClaimantAt>,
        /// Released with their claimant.
        released: Vec<ClaimantAt>,
        /// Missing, but not for long enough.
        waiting: Vec<ClaimantAt>,
        /// More is due than one call lets go of, or than this one did, where something came in between: call again. The next call is
        /// told what, if it stands in the way still. Left out where there is none.
        more?: bool,
    }
}

object! { open
    /// Answer of `network.list`.
    NetworkListResult {
        /// The page, by name.
        networks: Vec<Network>,
        /// `after` of the next page; left out on the last.
        next?: Cursor,
    }
}

object! { open
    /// Answer of `network.delete`.
    DeleteResult {
        /// Id of the network.
        id: NetworkId,
        /// How many reservations it has. With `purge` there are some only where something came in between: they go by themselves as
        /// soon as they can. Who asks once more, by the id, is told what stands in the way, if it does still.
        holding: u64,
    }
}

object! { open
    /// Answer of `reserved.add` and `reserved.remove`.
    ReservedResult {
        /// The reserved ranges of the subnet.
        reserved: Vec<Reserved>,
    }
}

object! { open
    /// A realm.
    RealmEntry {
        /// Its name.
        realm: Name,
        /// How many networks it has.
        networks: u64,
    }
}

object! { open
    /// Answer of `realm.list`.
    RealmListResult {
        /// By name.
        realms: Vec<RealmEntry>,
    }
}

object! { open
    /// What a scope holds.
    ScopeEntry {
        /// The scope.
        scope: Scope,
        /// Number of current and obsolete reservations.
        reservations: u64,
        /// Addresses in them.
        addresses: Count,
        /// Of the reservations, obsolete.
        obsolete: u64,
        /// Of the reservations, without claimant.
        unbound: u64,
    }
}

object! { open
    /// Answer of `scope.list`.
    ScopeListResult {
        /// The page, by name.
        scopes: Vec<ScopeEntry>,
        /// `after` of the next page; left out on the last.
        next?: Cursor,
    }
}
