//! Params of the methods about subnets, pools and reserved ranges.

use crate::core::address::{Address, Cidr, Range};
use crate::core::types::Name;
use crate::wire::params::input::{DnsInput, ForOwner, PoolKind, Pools, ReservedRanges, Zones};
use crate::wire::params::params;
use crate::wire::params::patch::{PoolSet, SubnetSet};
use crate::wire::values::{LabelMap, NetworkRef, Note, PoolRef, SubnetRef};

params! { config
    /// Params of `subnet.add`: the members of a subnet.
    SubnetAdd {
        /// The network it is added to.
        network: NetworkRef,
        /// Name, unique in its network.
        name?: Name,
        /// Its addresses.
        cidr: Cidr,
        /// The gateway.
        gateway?: Address,
        /// Whether DHCP serves it.
        dhcp?: bool,
        /// DNS for its machines.
        dns?: DnsInput,
        /// Zones it serves; every zone if there are none.
        zones?: Zones,
        /// Tags.
        tags?: LabelMap,
        /// If set, nothing new is granted in it.
        draining?: bool,
        /// Its pools; one dynamic pool that spans it if left out.
        pools?: Pools,
        /// Its reserved ranges.
        reserved?: ReservedRanges,
        /// If an equal subnet exists already, it is answered and not refused.
        if_absent?: bool,
    }
}

params! { config
    /// Params of `subnet.modify`.
    SubnetModify {
        /// The network.
        network: NetworkRef,
        /// The subnet.
        subnet: SubnetRef,
        /// What changes.
        set: SubnetSet,
    }
}

params! { config
    /// Params of `subnet.move`: moves a subnet and everything in it to another network.
    SubnetMove {
        /// The network that has the subnet.
        network: NetworkRef,
        /// The subnet.
        subnet: SubnetRef,
        /// The network that gets the subnet.
        to: NetworkRef,
    }
}

params! { config
    /// Params of `subnet.remove`.
    SubnetRemove {
        /// The network.
        network: NetworkRef,
        /// The subnet.
        subnet: SubnetRef,
    }
}

params! { config
    /// Params of `pool.add`: a range, or the whole of a subnet.
    PoolAdd {
        /// The network.
        network: NetworkRef,
        /// Its addresses.
        range?: Range,
        /// The subnet that it spans.
        subnet?: SubnetRef,
        /// Name; several pools may share one.
        name?: Name,
        /// What its addresses are for; dynamic if left out.
        kind?: PoolKind,
        /// If an equal pool exists already, it is answered and not refused.
        if_absent?: bool,
    }
}

params! { config
    /// Params of `pool.modify`.
    PoolModify {
        /// The network.
        network: NetworkRef,
        /// The pool.
        pool: PoolRef,
        /// What changes.
        set: PoolSet,
    }
}

params! { config
    /// Params of `pool.remove`: a range, a pool, or all pools of a subnet.
    PoolRemove {
        /// The network.
        network: NetworkRef,
        /// These addresses, whatever pools they are in.
        range?: Range,
        /// This pool, or all pools of this name.
        pool?: PoolRef,
        /// All pools of this subnet.
        subnet?: SubnetRef,
    }
}

params! { config
    /// Params of `reserved.add`.
    ReservedAdd {
        /// The network.
        network: NetworkRef,
        /// The addresses.
        range: Range,
        /// A note for people.
        note?: Note,
        /// For whom they are kept.
        r#for?: ForOwner,
    }
}

params! { config
    /// Params of `reserved.remove`.
    ReservedRemove {
        /// The network.
        network: NetworkRef,
        /// The addresses.
        range: Range,
        /// Accepted so that the params of `reserved.add` can be given here; not compared.
        note?: Note,
        /// Only ranges that are kept for exactly this owner.
        r#for?: ForOwner,
    }
}
