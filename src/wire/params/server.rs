//! Params of the methods about the server itself.

use crate::core::address::Address;
use crate::wire::params::params;
use crate::wire::values::{NetworkRef, NodeName};

params! { read
    /// Params of `server.info`.
    ServerInfo {}
}

params! { read
    /// Params of `server.ping`.
    ServerPing {}
}

params! { read
    /// Params of `cluster.nodes`.
    ClusterNodes {}
}

params! { read
    /// Params of `cluster.locate`.
    ClusterLocate {
        /// Name or id of the network.
        network: NetworkRef,
    }
}

params! { write
    /// Params of `cluster.drain`.
    ClusterDrain {
        /// Name of the node; if left out, the node that is asked.
        node?: NodeName,
        /// `false` takes it back into service.
        drain?: bool,
    }
}

params! { read
    /// Params of `cluster.conflicts`.
    ClusterConflicts {
        /// Only in this network.
        network?: NetworkRef,
    }
}

params! { write
    /// Params of `cluster.accept`.
    ClusterAccept {
        /// Name or id of the network.
        network: NetworkRef,
        /// Only the conflict over this address; if left out, all conflicts of the network.
        address?: Address,
    }
}

params! { read
    /// Params of `session.set`.
    SessionSet {
        /// Whether to answer `moved` instead of forwarding to the node that serves a network.
        redirect?: bool,
    }
}

params! { read
    /// Params of `rpc.discover`.
    RpcDiscover {}
}
