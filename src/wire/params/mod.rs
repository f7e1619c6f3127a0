//! The params of every method, one struct each, members as on the protocol's page.
//!
//! Every method takes `deadline_ms`; what changes something takes `reason` and `dry_run` too; what changes a
//! configuration takes `if_version`; what grants takes the grant options. The macro `params!` adds these, so a struct
//! here shows only what is its own. What needs two members to judge (an address *or* an owner) is judged by the server.

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
            /// Answer what would happen and change nothing.
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
            /// An existing reservation is an error.
            must_create?: bool,
            /// Where the slot holds another address, that one is released in the same commit.
            replace?: bool,
            /// Made obsolete only by the second apply of a deployment that does not list it; a repeat of an apply before its
            /// commit counts once. A repeat of this leaves it as it is.
            transient?: bool,
            /// Released by itself if not renewed in this time; without it the reservation is permanent.
            ttl_seconds?: $crate::wire::values::TtlSeconds,
            /// Who uses the address now.
            claimant?: $crate::core::types::Claimant,
            /// Unbinding or sweeping the claimant releases the reservation. A repeat leaves that as it is.
            release_with_claimant?: bool,
            /// Labels; where given, they replace those of an existing reservation.
            labels?: $crate::wire::values::LabelMap,
            /// A note for people. A repeat leaves it as it is and answers that: ip.update changes it.
            note?: $crate::wire::values::Note,
            /// Host name. A repeat leaves it as it is and answers that: ip.update changes it.
            hostname?: $crate::wire::values::Hostname,
            /// Hardware address, or "auto" to have one made. A repeat leaves it as it is and answers that: ip.update changes it.
            mac?: $crate::wire::values::MacChoice,
            /// How long to wait for capacity where there is none. A claim finds no lack of capacity, and waits for nothing.
            wait_seconds?: $crate::wire::values::WaitSeconds,
            /// Answer only address, prefix_length, generation and created.
            brief?: bool,
        });
    };
}
pub(crate) use params;
