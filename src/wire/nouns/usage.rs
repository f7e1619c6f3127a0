//! Usage and map of a network: counts of addresses per network, subnet and pool, and pools drawn.

use crate::core::address::{Address, Cidr, Range};
use crate::core::types::Name;
use crate::wire::object::{object, words};
use crate::wire::params::input::PoolKind;
use crate::wire::values::{Count, Cursor, PrefixLength, Share};

/// Defines a struct with the counts of usage between members before and behind them.
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
                /// Of the held ones, let go by a deployment that is not committed.
                obsolete: Count,
                /// Reserved, draining, or never handed out.
                reserved: Count,
                /// Released a short time ago.
                cooling: Count,
                /// Somebody else answers at them.
                declined: Count,
                /// Free to be granted.
                free: Count,
                /// Held of all.
                used_ratio: Share,
                /// Number of reservations; a block is one.
                reservations: u64,
                $($behind)*
            }
        }
    };
}

usage! {
    /// How a network is used.
    Usage {} {
        /// The same of each subnet.
        subnets: Vec<SubnetUsage>,
        /// Where `events.watch` goes on from this answer.
        cursor?: Cursor,
    }
}

usage! {
    /// How a subnet is used.
    SubnetUsage {
        /// The subnet.
        cidr: Cidr,
        /// Its name.
        name?: Name,
    } {
        /// The same of each pool.
        pools: Vec<PoolUsage>,
    }
}

usage! {
    /// How a pool is used.
    PoolUsage {
        /// The pool.
        range: Range,
        /// Its name.
        name?: Name,
        /// What it is drawn for.
        kind: PoolKind,
    } {}
}

object! { open
    /// The pools of a network, drawn.
    MapResult {
        /// In the order in which they are drawn from.
        pools: Vec<MapPool>,
    }
}

words! {
    /// What an address is on a map.
    MapMark {
        /// Held, reserved, cooling or declined.
        Taken = "X",
        /// Free.
        Free = ".",
    }
}

/// First and last address of a run, and what they are.
pub type MapRun = (Address, Address, MapMark);
/// First address of a cell; held, reserved and free in it.
pub type CellCount = (Address, Count, Count, Count);

object! { open
    /// One pool, drawn. Exactly one of `map`, `runs` and `cells` is there.
    MapPool {
        /// The pool.
        range: Range,
        /// Its name.
        name?: Name,
        /// Its first address.
        first: Address,
        /// Its last address.
        last: Address,
        /// One character an address: `X` taken, `.` free.
        map?: String,
        /// Runs of equal addresses.
        runs?: Vec<MapRun>,
        /// Size of a cell.
        cell_prefix_length?: PrefixLength,
        /// Cells that are not empty.
        cells?: Vec<CellCount>,
    }
}
