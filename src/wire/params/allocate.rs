//! Params of the methods that grant: `ip.allocate`, `ip.claim`, `ip.acquire`.

use crate::core::address::{Address, Family};
use crate::core::types::{Owner, Scope, Slot};
use crate::limits;
use crate::wire::object::object;
use crate::wire::params::params;
use crate::wire::values::{BoundedList, NetworkRef, OwnerPrefix, PoolRef, PrefixLength, SubnetRef, Word};

params! { grant
    /// Params of `ip.allocate`: one address or block, picked by the network.
    IpAllocate {
        /// Network to allocate in.
        network: NetworkRef,
        /// Who gets it.
        owner: Owner,
        /// Scope of the owner; `default` if left out.
        scope?: Scope,
        /// Which of the owner's addresses in this network; `0` if left out.
        slot?: Slot,
        /// 4 or 6.
        family?: Family,
        /// Only from this subnet.
        subnet?: SubnetRef,
        /// Only from this pool.
        pool?: PoolRef,
        /// Only from subnets that serve this zone.
        zone?: Word,
        /// An aligned block of this prefix length instead of one address.
        prefix_length?: PrefixLength,
    }
}

params! { grant
    /// Params of `ip.claim`: one named address or block.
    IpClaim {
        /// Network of the address.
        network: NetworkRef,
        /// The address, or the first one of the block.
        address: Address,
        /// Who gets it.
        owner: Owner,
        /// Scope of the owner; `default` if left out.
        scope?: Scope,
        /// Which of the owner's addresses in this network; `0` if left out.
        slot?: Slot,
        /// A block of this prefix length that begins at the address.
        prefix_length?: PrefixLength,
        /// Allows an address inside a reserved range.
        force?: bool,
    }
}

params! { grant
    /// Params of `ip.acquire`: several addresses, all or none.
    IpAcquire {
        /// Who gets them.
        owner: Owner,
        /// Scope of the owner; `default` if left out.
        scope?: Scope,
        /// Network of the entries that name none.
        network?: NetworkRef,
        /// Beginning of the slots that are made from the position in `ips`.
        slot_prefix?: OwnerPrefix,
        /// The addresses that are wanted.
        ips: BoundedList<AcquireItem, 1, { limits::ACQUIRE_IPS_MAX }>,
        /// Whatever else the owner holds in `network` and in the networks of `ips` is released in the same commit.
        exact?: bool,
    }
}

object! { strict
    /// One of the addresses that `ip.acquire` asks for.
    AcquireItem {
        /// Its network.
        network?: NetworkRef,
        /// Exactly this address.
        address?: Address,
        /// Only from this pool.
        pool?: PoolRef,
        /// Only from this subnet.
        subnet?: SubnetRef,
        /// 4 or 6.
        family?: Family,
        /// Only from subnets that serve this zone.
        zone?: Word,
        /// A block of this prefix length.
        prefix_length?: PrefixLength,
        /// Slot; made from the position if left out.
        slot?: Slot,
        /// Left out of the answer if there is no capacity; then it counts towards no limit, and what its slot holds stays,
        /// even with `exact`.
        optional?: bool,
    }
}
