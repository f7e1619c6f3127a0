//! Params of the methods that look up reservations.

use crate::core::address::{Address, Range};
use crate::core::types::{Claimant, Mac, Name, Owner, Scope};
use crate::wire::object::words;
use crate::wire::params::params;
use crate::wire::values::{
    Cursor, Hostname, LabelFilter, NetworkRef, OwnerPrefix, PageLimit, PoolRef, SubnetRef, Time,
};

params! { read
    /// Params of `ip.get`: what is known about an address.
    IpGet {
        /// The address.
        address: Address,
        /// Only in this network.
        network?: NetworkRef,
        /// Only in this realm; `default` if neither is given.
        realm?: Name,
    }
}

params! { read
    /// Params of `ip.find`: what is known about an address in any realm.
    IpFind {
        /// The address.
        address: Address,
    }
}

words! {
    /// How an owner came by an address: the network picked it, or the owner named it.
    ReservationKind {
        /// Picked by the network.
        Dynamic = "dynamic",
        /// Named by the owner.
        Static = "static",
    }
}

params! { read
    /// Params of `ip.list`: every filter that is given must hold.
    IpList {
        /// Only in this network.
        network?: NetworkRef,
        /// Only in this realm.
        realm?: Name,
        /// Only of this scope.
        scope?: Scope,
        /// Only of this owner.
        owner?: Owner,
        /// Only of owners whose name begins with this.
        owner_prefix?: OwnerPrefix,
        /// Only used by this claimant.
        claimant?: Claimant,
        /// Only used by any claimant, or only used by none.
        bound?: bool,
        /// Only with this label.
        label?: LabelFilter,
        /// Only in this subnet.
        subnet?: SubnetRef,
        /// Only in this pool.
        pool?: PoolRef,
        /// Only picked, or only named.
        kind?: ReservationKind,
        /// Only in this range.
        range?: Range,
        /// Only with this host name.
        hostname?: Hostname,
        /// Only with this MAC.
        mac?: Mac,
        /// Only obsolete, or only current reservations.
        obsolete?: bool,
        /// Only reservations whose lease ends before this time.
        expires_before?: Time,
        /// Only reservations made before this time.
        created_before?: Time,
        /// Answers only how many there are.
        count_only?: bool,
        /// Continues after the page whose `next` this is. Refused if that place is not known any more: then begin again.
        after?: Cursor,
        /// How many at most; 1 000 if left out.
        limit?: PageLimit,
    }
}
