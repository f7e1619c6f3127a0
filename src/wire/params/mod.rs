//! The params of every method: one struct each, with the members of the protocol's page.
//!
//! Every method takes `deadline_ms`; methods that write also take `reason` and `dry_run`; methods that change a
//! configuration also take `if_version`; methods that grant also take the grant options. The macro `params!` adds these, so
//! a struct here shows only its own members. Conditions over two members (an address *or* an owner) are checked by the
//! server.

pub mod allocate;
pub mod claimant;
pub mod deployment;
pub mod events;
pub mod holding;
pub mod input;
pub mod network;
pub mod patch;
pub mod query;
pub mod server;
pub mod subnet;

pub use allocate::{AcquireItem, IpAcquire, IpAllocate, IpClaim};
pub use claimant::{ClaimantMark, ClaimantSweep};
pub use deployment::{
    DeploymentApply, DeploymentCommit, DeploymentDelete, DeploymentGet, DeploymentList, DeploymentPlan,
    DeploymentRevert,
};
pub use events::{EventsHistory, EventsUnwatch, EventsWatch};
pub use holding::{
    IpBind, IpDecline, IpRelease, IpRenew, IpTransfer, IpUnbind, IpUpdate, OwnerRelease, ReservationSet, ScopeRelease,
    TransferTo,
};
pub use input::{DnsInput, ForOwner, L2Input, LimitsInput, PoolInput, ReservedInput, SubnetInput};
pub use network::{
    NetworkCreate, NetworkDelete, NetworkGet, NetworkList, NetworkMap, NetworkRestore, NetworkUpdate, NetworkUsage,
    RealmList, ScopeList,
};
pub use patch::{DnsPatch, L2Patch, LimitsPatch, NetworkSet, PoolSet, SubnetEntry, SubnetSet};
pub use query::{IpFind, IpGet, IpList};
pub use server::{
    ClusterAccept, ClusterConflicts, ClusterDrain, ClusterLocate, ClusterNodes, RpcDiscover, ServerInfo, ServerPing,
    SessionSet,
};
pub use subnet::{
    PoolAdd, PoolModify, PoolRemove, ReservedAdd, ReservedRemove, SubnetAdd, SubnetModify, SubnetMove, SubnetRemove,
};

/// Defines the params of a method: `read`, `write`, `config` (a change of configuration) or `grant`.
macro_rules! params {
    (read $(#[$meta:meta])* $name:ident { $($body:tt)* }) => {
        $crate::wire::object::object!(strict $(#[$meta])* $name {
            $($body)*
            /// Refused unless begun within this many milliseconds.
            deadline_ms?: $crate::wire::values::DeadlineMs,
        });
    };
    (write $(#[$meta:meta])* $name:ident { $($body:tt)* }) => {
        $crate::wire::params::params!(read $(#[$meta])* $name {
            $($body)*
            /// Answers what would happen, and changes nothing.
            dry_run?: bool,
            /// Why, for the history.
            reason?: $crate::wire::values::Reason,
        });
    };
    (config $(#[$meta:meta])* $name:ident { $($body:tt)* }) => {
        $crate::wire::params::params!(write $(#[$meta])* $name {
            $($body)*
            /// Refused if the network's configuration has another version by now.
            if_version?: $crate::wire::values::Serial,
        });
    };
    (grant $(#[$meta:meta])* $name:ident { $($body:tt)* }) => {
        $crate::wire::params::params!(write $(#[$meta])* $name {
            $($body)*
            /// Tells two owners of one name apart.
            owner_uid?: $crate::core::types::OwnerUid,
            /// It is an error if the reservation exists already.
            must_create?: bool,
            /// If the slot holds another address, that one is released in the same commit.
            replace?: bool,
            /// Becomes obsolete only by the second apply of a deployment that does not list it; a repeat of an apply before
            /// its commit counts once. A repeat of this request does not change it.
            transient?: bool,
            /// Released by itself if it is not renewed within this time; without it the reservation is permanent.
            ttl_seconds?: $crate::wire::values::TtlSeconds,
            /// Who uses the address now.
            claimant?: $crate::core::types::Claimant,
            /// Unbinding or sweeping the claimant releases the reservation. A repeat does not change this.
            release_with_claimant?: bool,
            /// Labels; if given, they replace those of an existing reservation.
            labels?: $crate::wire::values::LabelMap,
            /// A note for people. A repeat does not change it and answers the present one: use ip.update.
            note?: $crate::wire::values::Note,
            /// Host name. A repeat does not change it and answers the present one: use ip.update.
            hostname?: $crate::wire::values::Hostname,
            /// Hardware address, or "auto" to have one made. A repeat does not change it and answers the present one: use
            /// ip.update.
            mac?: $crate::wire::values::MacChoice,
            /// How long to wait if there is no capacity. A claim never lacks capacity, and so waits for nothing.
            wait_seconds?: $crate::wire::values::WaitSeconds,
            /// Answers only address, prefix_length, generation and created.
            brief?: bool,
        });
    };
}
pub(crate) use params;
