//! What the server says about itself.

use crate::core::address::Address;
use crate::core::types::{Generation, Mac, Name, NetworkId, Owner, Scope, Slot};
use crate::wire::object::{object, words};
use crate::wire::values::Time;

words! {
    /// Answer of `server.ping`.
    Pong {
        /// The only answer there is.
        Pong = "pong",
    }
}

/// The OpenRPC document.
pub type Document = serde_json::Value;

object! { open
    /// A node that shares the register.
    ClusterNode {
        /// Its name.
        name: String,
        /// Identity of its present run: another one after each start.
        id: String,
        /// Version of the server.
        version: String,
        /// Where clients reach it.
        address?: String,
        /// Whether it owns the register: the other nodes forward to it.
        owner: bool,
        /// Whether it was taken out of service.
        draining: bool,
        /// How long ago it was seen.
        seen_ms: u64,
    }
}

object! { open
    /// A shard of a register that nodes share.
    ClusterShard {
        /// Number of the shard, from 0.
        shard: u64,
        /// How often it was taken over.
        epoch: u64,
        /// Its state, in words.
        state: String,
    }
}

object! { open
    /// Answer of `cluster.nodes`.
    ClusterNodesResult {
        /// By name.
        nodes: Vec<ClusterNode>,
        /// The shards of the node that is asked, if several nodes may share the register.
        shards | empty: Vec<ClusterShard>,
    }
}

object! { open
    /// Answer of `cluster.locate`.
    ClusterLocateResult {
        /// Name of the network.
        network: Name,
        /// Its id.
        network_id: NetworkId,
        /// The shard it lives on.
        shard: u64,
        /// Name of the node that serves it.
        node: String,
        /// Where clients reach that node.
        address?: String,
        /// How often the shard was taken over.
        epoch: u64,
    }
}

object! { open
    /// A claim that was acknowledged, and then cut off by a failover.
    LateClaim {
        /// Scope of the owner.
        scope: Scope,
        /// The owner.
        owner: Owner,
        /// Its slot.
        slot: Slot,
        /// The generation that was acknowledged.
        generation: Generation,
        /// Since when.
        since: Time,
        /// The MAC that it had, which is unique in its realm; left out if it had none, or an earlier version noted it.
        mac?: Mac,
    }
}

object! { open
    /// What conflicts with it: who has the address now, what its former holder has instead, or who has its MAC.
    PresentClaim {
        /// Name of its network: another one than that of the late claim only if it has the MAC of that.
        network: Name,
        /// Id of that network.
        network_id: NetworkId,
        /// The address, or the first of a block.
        address: Address,
        /// 32 or 128 for one address.
        prefix_length: u8,
        /// Scope of the owner.
        scope: Scope,
        /// The owner.
        owner: Owner,
        /// Its slot.
        slot: Slot,
        /// Generation of this holding.
        generation: Generation,
        /// Since when.
        since: Time,
    }
}

object! { open
    /// An address with two claims after a failover.
    Conflict {
        /// Name of the network.
        network: Name,
        /// Its id.
        network_id: NetworkId,
        /// The address, or the first of a block.
        address: Address,
        /// 32 or 128 for one address.
        prefix_length: u8,
        /// Who was told that the address was theirs, and no longer has it.
        late: LateClaim,
        /// Who has it now, what its former holder has instead, or who has its MAC, in whatever network; left out if nobody
        /// has any of these.
        present?: PresentClaim,
        /// When it was found.
        found_at: Time,
    }
}

object! { open
    /// Answer of `cluster.conflicts`.
    ClusterConflictsResult {
        /// By name of the network.
        conflicts: Vec<Conflict>,
    }
}

object! { open
    /// Answer of `cluster.accept`.
    ClusterAcceptResult {
        /// The conflicts that were decided: what is present stays, and the late claims are given up.
        accepted: Vec<Conflict>,
    }
}

object! { open
    /// Answer of `cluster.drain`.
    ClusterDrainResult {
        /// Name of the node.
        node: String,
        /// Whether it is out of service: it forwards what it is asked, and owns nothing while another node can.
        draining: bool,
        /// Name of the node that owns the register now.
        owner?: String,
    }
}

object! { open
    /// Answer of `session.set`: how the connection is served from now on.
    SessionSetResult {
        /// Whether to answer `moved` instead of forwarding.
        redirect: bool,
    }
}

object! { open
    /// Answer of `server.info`.
    ServerStatus {
        /// Version of the server.
        version: String,
        /// Version of the protocol.
        protocol: u64,
        /// Name of the node.
        node: String,
        /// Kind of the store.
        store: String,
        /// What a success means: which failures the change survives.
        durability: String,
        /// Bounds of this server.
        limits: ServerLimits,
        /// Its clock.
        time: Time,
        /// How long it has been running.
        uptime_seconds: u64,
    }
}

object! { open
    /// Bounds that a client may want to know.
    ServerLimits {
        /// Longest line over TCP.
        max_line_bytes: u64,
        /// Longest body over HTTP.
        max_body_bytes: u64,
        /// Longest answer.
        max_answer_bytes: u64,
        /// Members of a batch.
        max_batch_members: u64,
        /// Requests in flight on one connection.
        max_in_flight: u64,
        /// Members of `ips` of one acquire.
        max_acquire_ips: u64,
        /// Records of one page of a list.
        max_list_records: u64,
        /// Requests of one connection that wait for capacity.
        max_waiting: u64,
        /// Requests that wait for capacity of one network.
        max_waiting_in_network: u64,
        /// Longest `wait_seconds`.
        max_wait_seconds: u64,
    }
}
