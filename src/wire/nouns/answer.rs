//! Results that are more than one noun: lists, releases, sweeps.

use super::network::{Network, Reserved};
use super::reservation::{AddressState, GrantResult, Reservation};
use crate::core::address::Address;
use crate::core::types::{Claimant, Name, NetworkId, Scope};
use crate::wire::object::object;
use crate::wire::values::{Count, Cursor};

object! { open
    /// An empty answer: it is done.
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
        /// In the order of the request; optional ones without capacity are left out.
        reservations: Vec<GrantResult>,
        /// With `exact`: what else the owner held, and was released.
        released?: Vec<HeldAt>,
    }
}

object! { open
    /// Answer of `ip.release`.
    ReleaseResult {
        /// What was released; empty if nothing was held.
        released: Vec<Address>,
    }
}

object! { open
    /// Answer of `ip.transfer`.
    TransferResult {
        /// The reservation under its new owner; with `exchange` both. When the request is repeated, the one that came back
        /// is left out if it is no longer held as it was handed over.
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
        /// Its present state.
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
        /// Where `events.watch` continues from this answer. For one network it misses and repeats nothing. Over several
        /// networks, or from the first page of several, it misses nothing, but may repeat what changed while they were
        /// listed: compare `generation`.
        cursor?: Cursor,
    }
}

object! { open
    /// Answer of `owner.release` and `scope.release`.
    ReleaseAllResult {
        /// What was released.
        released: Vec<HeldAt>,
        /// There is more, or may be: call again. Also set if something prevented the rest: if it still does, the next call
        /// fails and says what.
        more: bool,
    }
}

object! { open
    /// Answer of `claimant.mark`.
    MarkResult {
        /// How many are marked under this name now. Fewer than you named means that earlier marks were forgotten.
        marked: u64,
    }
}

object! { open
    /// Answer of `claimant.sweep`.
    SweepResult {
        /// Unbound, and left with their owner.
        unbound: Vec<ClaimantAt>,
        /// Released with their claimant.
        released: Vec<ClaimantAt>,
        /// Missing, but not yet for long enough.
        waiting: Vec<ClaimantAt>,
        /// More is due than one call releases, or something prevented the rest of this one: call again. If it still does,
        /// the next call fails and says what. Left out if nothing more is due.
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
        /// How many reservations it still has. With `purge` there are some only if something prevented their release: they
        /// are released by themselves as soon as possible. A repeated request, by the id, fails and says what prevents it,
        /// if it still does.
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
        /// Number of addresses in them.
        addresses: Count,
        /// Of the reservations, how many are obsolete.
        obsolete: u64,
        /// Of the reservations, how many have no claimant.
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
