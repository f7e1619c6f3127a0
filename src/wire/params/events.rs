//! Params of the methods that tell what happened.

use crate::core::address::Address;
use crate::core::types::{Name, Owner, Scope};
use crate::wire::params::params;
use crate::wire::values::{Cursor, NetworkRef, PageLimit, Time};

params! { read
    /// Params of `events.watch`: every filter that is given must hold.
    EventsWatch {
        /// Only of this network. An id may be that of a network that no longer exists, if `since` is given.
        network?: NetworkRef,
        /// Only of networks in this realm.
        realm?: Name,
        /// Only of holdings in this scope, and of nothing else.
        scope?: Scope,
        /// Only events after this cursor; without it, events from now on.
        since?: Cursor,
    }
}

params! { read
    /// Params of `events.unwatch`.
    EventsUnwatch {
        /// The number that `events.watch` answered on this connection.
        subscription: u64,
    }
}

params! { read
    /// Params of `events.history`: every filter that is given must hold.
    EventsHistory {
        /// Only of this network, which may no longer exist.
        network?: NetworkRef,
        /// Only of networks in this realm.
        realm?: Name,
        /// Only of holdings of this address, including blocks around it.
        address?: Address,
        /// Only of holdings of this owner.
        owner?: Owner,
        /// Only of holdings in this scope.
        scope?: Scope,
        /// What was held at this time: for each address the event by which it came to be held.
        at?: Time,
        /// Only events from this time on.
        from?: Time,
        /// Only events up to this time.
        to?: Time,
        /// Continues after the page whose `next` this is.
        after?: Cursor,
        /// How many at most; 100 if left out.
        limit?: PageLimit,
    }
}
