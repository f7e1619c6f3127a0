//! Params of the methods that tell what happened.

use crate::core::address::Address;
use crate::core::types::{Name, Owner, Scope};
use crate::wire::params::params;
use crate::wire::values::{Cursor, NetworkRef, PageLimit, Time};

params! { read
    /// Params of `events.watch`: every filter that is given must hold.
    EventsWatch {
        /// Of this network. An id may be of one that is no more, if `since` is given.
        network?: NetworkRef,
        /// Of networks in this realm.
        realm?: Name,
        /// Of holdings in this scope, and of nothing else.
        scope?: Scope,
        /// Behind this cursor; without it from now on.
        since?: Cursor,
    }
}

params! { read
    /// Params of `events.unwatch`.
    EventsUnwatch {
        /// What `events.watch` answered on this connection.
        subscription: u64,
    }
}

params! { read
    /// Params of `events.history`: every filter that is given must hold.
    EventsHistory {
        /// Of this network, also of one that is no more.
        network?: NetworkRef,
        /// Of networks in this realm.
        realm?: Name,
        /// Of holdings of this address, blocks around it included.
        address?: Address,
        /// Of holdings of this owner.
        owner?: Owner,
        /// Of holdings in this scope.
        scope?: Scope,
        /// What was held at this time: of each address the event that made it so.
        at?: Time,
        /// Not before.
        from?: Time,
        /// Not after.
        to?: Time,
        /// Go on after the page whose `next` this is.
        after?: Cursor,
        /// How many at most; 100 if left out.
        limit?: PageLimit,
    }
}
