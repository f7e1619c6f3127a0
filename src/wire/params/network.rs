//! Params of the methods about networks, realms and scopes.

use crate::core::types::Name;
use crate::wire::object::words;
use crate::wire::params::input::{L2Input, LimitsInput, Subnets};
use crate::wire::params::params;
use crate::wire::params::patch::NetworkSet;
use crate::wire::values::{
    CooldownSeconds, Cursor, LabelFilter, LabelMap, NetworkRef, Note, PageLimit, PoolRef, PrefixLength, SubnetRef,
};

words! {
    /// How the addresses of a network come about.
    NetworkKind {
        /// This server hands them out.
        Manual = "manual",
        /// The infrastructure picks them.
        Dynamic = "dynamic",
        /// Virtual addresses: claims, and automatic wishes if there is a dynamic pool.
        Vip = "vip",
    }
}

words! {
    /// In what order free addresses are drawn.
    Policy {
        /// The lowest.
        Lowest = "lowest",
        /// Any.
        Random = "random",
        /// The one that is free for the longest time; never-used ones first.
        Oldest = "oldest",
    }
}

words! {
    /// How `network.map` draws a pool.
    MapFormat {
        /// One character an address.
        Text = "text",
        /// Runs of equal addresses.
        Runs = "runs",
        /// Counts per cell of addresses.
        Cells = "cells",
    }
}

params! { config
    /// Params of `network.create`.
    NetworkCreate {
        /// Name, unique over all realms.
        name: Name,
        /// Realm; `default` if left out.
        realm?: Name,
        /// How its addresses come about; manual if left out.
        kind?: NetworkKind,
        /// What carries it on layer 2.
        l2?: L2Input,
        /// In what order addresses are drawn; lowest if left out.
        policy?: Policy,
        /// How long a released address is kept from other owners; 0 if left out.
        cooldown_seconds?: CooldownSeconds,
        /// Cooling addresses are handed out when nothing else is free.
        cooldown_yields?: bool,
        /// Claims only in static pools.
        static_only?: bool,
        /// May not be deleted.
        protected?: bool,
        /// How many reservations one owner or scope may hold.
        limits?: LimitsInput,
        /// Tags.
        tags?: LabelMap,
        /// For people.
        description?: Note,
        /// Its subnets.
        subnets?: Subnets,
        /// What is there already and equal is answered, not refused.
        if_absent?: bool,
    }
}

params! { read
    /// Params of `network.get`.
    NetworkGet {
        /// The network.
        network: NetworkRef,
    }
}

params! { read
    /// Params of `network.list`.
    NetworkList {
        /// In this realm.
        realm?: Name,
        /// With this tag.
        tag?: LabelFilter,
        /// Each with its usage.
        usage?: bool,
        /// Those deleted with force that are still remembered, and no others.
        deleted?: bool,
        /// Go on after the page whose `next` this is. Refused where that cannot be told any more: then begin again.
        after?: Cursor,
        /// How many at most; 1 000 if left out.
        limit?: PageLimit,
    }
}

params! { config
    /// Params of `network.update`.
    NetworkUpdate {
        /// The network.
        network: NetworkRef,
        /// What changes.
        set: NetworkSet,
    }
}

params! { config
    /// Params of `network.delete`.
    NetworkDelete {
        /// The network.
        network: NetworkRef,
        /// Closed but remembered while it holds reservations.
        force?: bool,
        /// All its reservations are released now.
        purge?: bool,
    }
}

params! { config
    /// Params of `network.restore`.
    NetworkRestore {
        /// Id of a network that was deleted with force.
        network: NetworkRef,
    }
}

params! { read
    /// Params of `network.usage`.
    NetworkUsage {
        /// The network.
        network: NetworkRef,
    }
}

params! { read
    /// Params of `network.map`.
    NetworkMap {
        /// The network.
        network: NetworkRef,
        /// Only this subnet.
        subnet?: SubnetRef,
        /// Only this pool.
        pool?: PoolRef,
        /// How to draw; text if left out.
        format?: MapFormat,
        /// Size of a cell, with format cells.
        cell_prefix_length?: PrefixLength,
    }
}

params! { read
    /// Params of `realm.list`.
    RealmList {}
}

params! { read
    /// Params of `scope.list`.
    ScopeList {
        /// Only in this network.
        network?: NetworkRef,
        /// `next` of the page before.
        after?: Cursor,
        /// How many at most; as many as fit into an answer if left out.
        limit?: PageLimit,
    }
}
