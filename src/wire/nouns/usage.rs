//! Usage and map of a network: counts of addresses for each network, subnet and pool, and pools drawn as maps.

use crate::core::address::{Address, Cidr, Range};
use crate::core::types::Name;
use crate::wire::object::{object, words};
use crate::wire::params::input::PoolKind;
use crate::wire::values::{Count, Cursor, PrefixLength, Share};

/// Defines a struct with the counts of usage between the members before and after them.
macro_rules! usage {
    ($(#[$meta:meta])* $name:ident { $($before:tt)* } { $($behind:tt)* }) => {
        object! { open
            $(#[$meta])*
            $name {
                $($before)*
                /// All its addresses: held, reserved, cooling, declined and free.
                size: Count,
                /// Held by owners.
                held: Count,
                /// Of the held ones, picked by the network.
                dynamic: Count,
                /// Of the held ones, named by their owner.
                r#static: Count,
                /// Of the held ones, released by a deployment that is not committed.
                obsolete: Count,
                /// Reserved, draining, or never handed out.
                reserved: Count,
                /// Released a short time ago.
                cooling: Count,
                /// Somebody else answers at them.
                declined: Count,
                /// Free to be granted.
                free: Count,
                /// Held addresses as a share of all.
                used_ratio: Share,
                /// Number of reservations; a block counts as one.
                reservations: u64,
                $($behind)*
            }
        }
    };
}

usage! {
    /// The usage of a network.
    Usage {} {
        /// The usage of each subnet.
        subnets: Vec<SubnetUsage>,
        /// Where `events.watch` continues from this answer.
        cursor?: Cursor,
    }
}

usage! {
    /// The usage of a subnet.
    SubnetUsage {
        /// The subnet.
        cidr: Cidr,
        /// Its name.
        name?: Name,
    } {
        /// The usage of each pool.
        pools: Vec<PoolUsage>,
    }
}

usage! {
    /// The usage of a pool.
    PoolUsage {
        /// The pool.
        range: Range,
        /// Its name.
        name?: Name,
        /// What its addresses are for.
        kind: PoolKind,
    } {}
}

object! { open
    /// The pools of a network, drawn as maps.
    MapResult {
        /// In the order in which addresses are picked from them.
        pools: Vec<MapPool>,
    }
}

words! {
    /// The state of an address on a map.
    MapMark {
        /// Held, reserved, cooling or declined.
        Taken = "X",
        /// Free.
        Free = ".",
    }
}

/// First and last address of a run, and their state.
pub type MapRun = (Address, Address, MapMark);
/// First address of a cell, and how many addresses in it are held, reserved and free.
pub type CellCount = (Address, Count, Count, Count);

object! { open
    /// The map of one pool. Exactly one of `map`, `runs` and `cells` is present.
    MapPool {
        /// The pool.
        range: Range,
        /// Its name.
        name?: Name,
        /// Its first address.
        first: Address,
        /// Its last address.
        last: Address,
        /// One character for each address: `X` taken, `.` free.
        map?: String,
        /// Runs of addresses in the same state.
        runs?: Vec<MapRun>,
        /// Size of a cell.
        cell_prefix_length?: PrefixLength,
        /// Cells that are not empty.
        cells?: Vec<CellCount>,
    }
}
