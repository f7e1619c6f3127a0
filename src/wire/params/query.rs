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
        /// In this network.
        network?: NetworkRef,
        /// In this realm; `default` if neither is given.
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
    /// How an address was come by: picked by the network, or named.
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
        /// In this network.
        network?: NetworkRef,
        /// In this realm.
        realm?: Name,
        /// Of this scope.
        scope?: Scope,
        /// Of this owner.
        owner?: Owner,
        /// Of owners whose name begins so.
        owner_prefix?: OwnerPrefix,
        /// Used by this claimant.
        claimant?: Claimant,
        /// Used by any claimant, or by none.
        bound?: bool,
        /// With this label.
        label?: LabelFilter,
        /// In this subnet.
        subnet?: SubnetRef,
        /// In this pool.
        pool?: PoolRef,
        /// Picked or named.
        kind?: ReservationKind,
        /// In this range.
        range?: Range,
        /// With this host name.
        hostname?: Hostname,
        /// With this MAC.
        mac?: Mac,
        /// Obsolete ones only, or current ones only.
        obsolete?: bool,
        /// Whose lease ends before.
        expires_before?: Time,
        /// Made before.
        created_before?: Time,
        /// Answer how many there are, and none of them.
        count_only?: bool,
        /// Go on after the page whose `next` this is. Refused where that cannot be told any more: then begin again.
        after?: Cursor,
        /// How many at most; 1 000 if left out.
        limit?: PageLimit,
    }
}
