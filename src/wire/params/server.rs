//! Params of the methods about the server itself.

use crate::wire::params::params;

params! { read
    /// Params of `server.info`.
    ServerInfo {}
}

params! { read
    /// Params of `server.ping`.
    ServerPing {}
}

params! { read
    /// Params of `rpc.discover`.
    RpcDiscover {}
}
