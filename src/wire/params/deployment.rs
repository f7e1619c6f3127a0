//! Params of the deployment methods: what instances wish, and how a plan ends.

use crate::core::address::{Address, Family, Range};
use crate::core::types::{Name, Owner, Scope, Slot};
use crate::limits;
use crate::wire::object::object;
use crate::wire::params::params;
use crate::wire::values::{BoundedList, Cursor, NetworkRef, PageLimit, PoolRef, Serial, SubnetRef, Word};

/// The instances of one request.
pub type Instances = BoundedList<InstanceWishes, 0, { limits::INSTANCES_MAX }>;
/// Ids of instances.
pub type InstanceIds = BoundedList<Owner, 0, { limits::INSTANCES_MAX }>;
/// The groups of one request.
pub type Groups = BoundedList<GroupWishes, 0, { limits::INSTANCES_MAX }>;
/// The zones over which a group is dealt.
pub type Zones = BoundedList<Word, 0, { limits::ZONES_MAX }>;

object! { strict
    /// What an instance wishes in a network: this address, or one that is picked.
    InstanceNetwork {
        /// The network.
        network: NetworkRef,
        /// For which slot; `0` if left out.
        slot?: Slot,
        /// Exactly this address.
        address?: Address,
        /// Picked in this pool.
        pool?: PoolRef,
        /// Picked in this subnet.
        subnet?: SubnetRef,
        /// Picked of this family.
        family?: Family,
    }
}

object! { strict
    /// An instance and what it wishes.
    InstanceWishes {
        /// Its id, which is the owner of what it holds.
        id: Owner,
        /// The zone it lives in.
        zone?: Word,
        /// Addresses picked for it must differ from its present ones. A repeat does not move it again before the plan is
        /// committed.
        fresh?: bool,
        /// What it wishes.
        networks: BoundedList<InstanceNetwork, 0, { limits::ACQUIRE_IPS_MAX }>,
    }
}

object! { strict
    /// What every instance of a group wishes in a network.
    GroupNetwork {
        /// The network.
        network: NetworkRef,
        /// For which slot; `0` if left out.
        slot?: Slot,
        /// Addresses dealt to the instances in this order; without them an address is picked.
        static_ips?: BoundedList<Range, 1, { limits::INSTANCES_MAX }>,
    }
}

object! { strict
    /// Instances with the same wishes.
    GroupWishes {
        /// Its name, for people.
        name: Name,
        /// Its instances; zone and `fresh` come from the entry of the instance itself.
        instances: InstanceIds,
        /// Dealt in turn to instances without a zone, as far as each zone has an address in `static_ips` for them.
        zones?: Zones,
        /// What each of them wishes.
        networks: BoundedList<GroupNetwork, 0, { limits::ACQUIRE_IPS_MAX }>,
    }
}

params! { read
    /// Params of `deployment.plan`: what an apply would do.
    DeploymentPlan {
        /// The deployment, which is the scope of what it holds.
        deployment: Scope,
        /// Its instances.
        instances?: Instances,
        /// Its groups.
        groups?: Groups,
    }
}

params! { write
    /// Params of `deployment.apply`: everything that the deployment wishes now.
    DeploymentApply {
        /// The deployment, which is the scope of what it holds.
        deployment: Scope,
        /// Its instances.
        instances?: Instances,
        /// Its groups.
        groups?: Groups,
    }
}

params! { write
    /// Params of `deployment.commit`: releases what the plan made obsolete.
    DeploymentCommit {
        /// The deployment.
        deployment: Scope,
        /// Its latest plan.
        plan: Serial,
        /// Only these instances.
        instances?: InstanceIds,
    }
}

params! { write
    /// Params of `deployment.revert`: releases what the plan granted, and makes current again what it made obsolete, even if
    /// others have used its place within `limits` meanwhile.
    DeploymentRevert {
        /// The deployment.
        deployment: Scope,
        /// Its latest plan.
        plan: Serial,
        /// Only these instances.
        instances?: InstanceIds,
    }
}

params! { read
    /// Params of `deployment.get`.
    DeploymentGet {
        /// The deployment.
        deployment: Scope,
    }
}

params! { read
    /// Params of `deployment.list`.
    DeploymentList {
        /// The `next` of the page before.
        after?: Cursor,
        /// How many at most; 1 000 if left out.
        limit?: PageLimit,
    }
}

params! { write
    /// Params of `deployment.delete`: releases everything, including obsolete reservations and promises.
    DeploymentDelete {
        /// The deployment.
        deployment: Scope,
    }
}
