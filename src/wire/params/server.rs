//! Params of the methods about the server itself.

use crate::wire::params::params;
use crate::wire::values::NetworkRef;

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

params! { read
    /// Params of `session.set`.
    SessionSet {
        /// Answer `moved` instead of forwarding to the node that serves a network.
        redirect?: bool,
    }
}

params! { read
    /// Params of `rpc.discover`.
    RpcDiscover {}
}
