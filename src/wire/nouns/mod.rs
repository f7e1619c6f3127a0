//! The answers of methods. Members are in the order of the protocol's page; members without a value are left out.
//!
//! Lists and counts that a result names are always present. Answers are read leniently (unknown members are ignored), so
//! that an old client can talk to a new server; the published schemas are closed.

pub mod answer;
pub mod deployment;
pub mod event;
pub mod network;
pub mod reservation;
pub mod server;
pub mod usage;

pub use answer::{
    AcquireResult, ClaimantAt, DeclineResult, DeleteResult, Empty, FindResult, Found, HeldAt, ListResult, MarkResult,
    NetworkListResult, RealmEntry, RealmListResult, ReleaseAllResult, ReleaseResult, ReservedResult, ScopeEntry,
    ScopeListResult, SweepResult, TransferResult,
};
pub use deployment::{
    DeployedInstance, DeploymentEntry, DeploymentListResult, DeploymentPlanResult, DeploymentResult, DeploymentSettled,
    PlannedInstance, PlannedNetwork, WishState,
};
pub use event::{
    BookmarkNotification, CursorLostNotification, Event, EventNotification, EventState, EventType, HistoryResult,
    HoldingState, LaggedNotification, NetworkState, Subscription,
};
pub use network::{Dns, L2, Limits, Network, Pool, Reserved, Subnet};
pub use reservation::{AddressState, BriefGrant, GrantResult, Granted, Obsolete, Reservation, Unbound};
pub use server::{
    ClusterAcceptResult, ClusterConflictsResult, ClusterDrainResult, ClusterLocateResult, ClusterNode,
    ClusterNodesResult, ClusterShard, Conflict, Document, LateClaim, Pong, PresentClaim, ServerLimits, ServerStatus,
    SessionSetResult,
};
pub use usage::{CellCount, MapMark, MapPool, MapResult, MapRun, PoolUsage, SubnetUsage, Usage};
