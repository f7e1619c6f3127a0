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
    /// How the addresses of a network are assigned.
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
    /// The order in which free addresses are picked.
    Policy {
        /// The lowest.
        Lowest = "lowest",
        /// Any.
        Random = "random",
        /// The one that has been free for the longest time; never-used ones first.
        Oldest = "oldest",
    }
}

words! {
    /// The format in which `network.map` draws a pool.
    MapFormat {
        /// One character for each address.
        Text = "text",
        /// Runs of addresses in the same state.
        Runs = "runs",
        /// Counts for each cell of addresses.
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
        /// How its addresses are assigned; manual if left out.
        kind?: NetworkKind,
        /// What carries it on layer 2.
        l2?: L2Input,
        /// The order in which addresses are picked; lowest if left out.
        policy?: Policy,
        /// How long a released address is kept from other owners; 0 if left out.
        cooldown_seconds?: CooldownSeconds,
        /// Whether cooling addresses are granted when no other is free.
        cooldown_yields?: bool,
        /// Whether claims are allowed only in static pools.
        static_only?: bool,
        /// Whether it is protected from deletion.
        protected?: bool,
        /// How many reservations one owner or scope may hold.
        limits?: LimitsInput,
        /// Tags.
        tags?: LabelMap,
        /// A description for people.
        description?: Note,
        /// Its subnets.
        subnets?: Subnets,
        /// If an equal network exists already, it is answered and not refused.
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
        /// Only in this realm.
        realm?: Name,
        /// Only with this tag.
        tag?: LabelFilter,
        /// Answers each with its usage.
        usage?: bool,
        /// Only networks that were deleted with force and are still remembered.
        deleted?: bool,
        /// Continues after the page whose `next` this is. Refused if that place is not known any more: then begin again.
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
        /// Deletes it although it holds reservations: it is closed, and remembered as long as it holds them.
        force?: bool,
        /// Releases all its reservations now.
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
        /// The format; text if left out.
        format?: MapFormat,
        /// Size of a cell, for the format cells; if left out, each pool is cut into at most 4096, and tells its size.
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
        /// The `next` of the page before.
        after?: Cursor,
        /// How many at most; if left out, as many as fit into an answer.
        limit?: PageLimit,
    }
}
