//! The only table of methods: name, params, result, whether it reads or writes, what it spans, and a line of summary.
//!
//! Generated from it: [`Method`], [`Request`] with one variant for each method that is served, [`parse`], the types by which
//! a client calls ([`Params`]), and the schemas of `openrpc`. A new line here does not compile until the dispatch of the
//! server decides what to do with it.

use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::errors::{ErrorKind, RpcError};
use super::explain::{explain, nearest};
use super::plain::{NotPlain, Plain, ReadPlain};
use super::values::text::shortened;
use super::values::{NetworkRef, Reason};
use super::{nouns, params};

/// Does a method change something?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It only reads.
    Read,
    /// It changes something, unless asked for a dry run.
    Write,
}

/// What a method may touch. This decides its place in the order of requests of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// The network named in `network`.
    Network,
    /// The network named in `network`, or several if none is named.
    NetworkOrSeveral,
    /// Several networks, or the catalog of networks.
    Several,
    /// No network.
    Server,
}

/// The params of a method that is served, and the method's result: how a typed client calls it.
pub trait Params: Serialize + DeserializeOwned {
    /// The method.
    const METHOD: Method;
    /// The result.
    type Result: Serialize + DeserializeOwned;
}

macro_rules! network_of {
    (Network, $params:expr) => {
        Some(&$params.network)
    };
    (NetworkOrSeveral, $params:expr) => {
        $params.network.as_ref()
    };
    ($other:ident, $params:expr) => {{
        let _ = $params;
        None
    }};
}

macro_rules! written {
    (Write, $params:expr, $read:expr) => {{
        let params = $params;
        $read(params.dry_run == Some(true), params.reason.as_ref())
    }};
    (Read, $params:expr, $read:expr) => {{
        let _ = $params;
        $read(false, None)
    }};
}

macro_rules! methods {
    (
        served { $($method:ident $name:literal $access:ident $span:ident $result:ty, $summary:literal;)* }
        later { $($later:ident $later_name:literal $later_access:ident $later_span:ident $later_summary:literal;)* }
    ) => {
        /// A method of the protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Method {
            $(#[doc = $summary] $method,)*
            $(#[doc = $later_summary] $later,)*
        }

        impl Method {
            /// All methods, in the order of the protocol.
            pub const ALL: &'static [Method] = &[$(Method::$method,)* $(Method::$later,)*];
            /// The names of all methods, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($name,)* $($later_name,)*];

            /// Its name on the wire.
            pub const fn name(self) -> &'static str {
                match self { $(Method::$method => $name,)* $(Method::$later => $later_name,)* }
            }

            /// The method with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Method::$method),)*
                    $($later_name => Some(Method::$later),)*
                    _ => None,
                }
            }

            /// Does this version serve it? Otherwise it is only known by name.
            pub const fn is_served(self) -> bool {
                match self { $(Method::$method => true,)* $(Method::$later => false,)* }
            }

            /// Does it change something?
            pub const fn access(self) -> Access {
                match self { $(Method::$method => Access::$access,)* $(Method::$later => Access::$later_access,)* }
            }

            /// What it may touch.
            pub const fn span(self) -> Span {
                match self { $(Method::$method => Span::$span,)* $(Method::$later => Span::$later_span,)* }
            }

            /// One line about what it does.
            pub const fn summary(self) -> &'static str {
                match self { $(Method::$method => $summary,)* $(Method::$later => $later_summary,)* }
            }

            /// The schemas of its params and its result, if it is served.
            pub(super) fn schemas(self, generator: &mut SchemaGenerator) -> Option<(Schema, Schema)> {
                match self {
                    $(Method::$method => Some((
                        <params::$method as schemars::JsonSchema>::json_schema(generator),
                        generator.subschema_for::<$result>(),
                    )),)*
                    $(Method::$later => None,)*
                }
            }
        }

        /// A request whose params are read and checked, each value by itself. Boxed, because requests travel through queues.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Request {
            $(#[doc = $summary] $method(Box<params::$method>),)*
        }

        $(impl Params for params::$method {
            const METHOD: Method = Method::$method;
            type Result = $result;
        }

        impl From<params::$method> for Request {
            fn from(params: params::$method) -> Self {
                Request::$method(Box::new(params))
            }
        })*

        impl Request {
            /// Its method.
            pub const fn method(&self) -> Method {
                match self { $(Request::$method(_) => Method::$method,)* }
            }

            /// The network it names, if that is the only one it may touch.
            pub fn network(&self) -> Option<&NetworkRef> {
                match self { $(Request::$method(params) => network_of!($span, params),)* }
            }

            /// The number of milliseconds within which it must be begun.
            pub fn deadline_ms(&self) -> Option<u64> {
                match self { $(Request::$method(params) => params.deadline_ms.map(|deadline| deadline.get()),)* }
            }

            /// Does it ask what would happen, without a change?
            pub fn is_dry_run(&self) -> bool {
                let read = |dry_run: bool, _: Option<&Reason>| dry_run;
                match self { $(Request::$method(params) => written!($access, params, read),)* }
            }

            /// The reason for the change, for the history.
            pub fn reason(&self) -> Option<&Reason> {
                match self { $(Request::$method(params) => written!($access, params, |_, reason| reason),)* }
            }

            /// The params as JSON.
            ///
            /// # Errors
            /// None that these types can cause.
            pub fn params_json(&self) -> serde_json::Result<String> {
                match self { $(Request::$method(params) => serde_json::to_string(params),)* }
            }
        }

        /// Reads the params of a method if they are plain. For others, [`parse`] reads them or tells what is wrong with
        /// them.
        pub(super) fn read(method: &str, params: &mut Plain<'_>) -> Result<Request, NotPlain> {
            match method {
                $($name => Ok(Request::$method(ReadPlain::read_plain(params)?)),)*
                _ => Err(NotPlain),
            }
        }

        /// Reads the params of a method from their JSON text.
        ///
        /// # Errors
        /// `method_not_found`, or `invalid_argument` with `data.field`.
        pub fn parse(method: &str, params: &str) -> Result<Request, RpcError> {
            match method {
                $($name => {
                    // Its error, which may be as long as the params, is let go before they are read again.
                    if let Ok(params) = serde_json::from_str::<params::$method>(params) {
                        return Ok(Request::$method(Box::new(params)));
                    }
                    Err(explain::<params::$method>($name, params))
                },)*
                other => Err(no_method(other)),
            }
        }
    };
}

methods! {
    served {
        IpAllocate "ip.allocate" Write Network nouns::GrantResult,
            "Grants one address or block that the network picks.";
        IpClaim "ip.claim" Write Network nouns::GrantResult, "Grants one named address or block.";
        IpAcquire "ip.acquire" Write Several nouns::AcquireResult, "Grants several addresses, all or none.";
        IpRelease "ip.release" Write Network nouns::ReleaseResult, "Lets an address go.";
        IpRenew "ip.renew" Write Network nouns::Reservation, "Gives a reservation a new end of its lease, or none.";
        IpBind "ip.bind" Write NetworkOrSeveral nouns::Reservation, "Notes who uses an address now.";
        IpUnbind "ip.unbind" Write NetworkOrSeveral nouns::Unbound, "Notes that a claimant uses an address no more.";
        IpUpdate "ip.update" Write Network nouns::Reservation, "Changes what is noted about a reservation.";
        IpTransfer "ip.transfer" Write Network nouns::TransferResult, "Hands an address to another owner in one step.";
        IpDecline "ip.decline" Write Network nouns::DeclineResult,
            "Takes an address out of circulation at which somebody else answers. Where a plan of a deployment promises it to \
             another instance, that one keeps what it has, and the next apply is refused until it wishes for another.";
        IpGet "ip.get" Read NetworkOrSeveral nouns::Found, "Tells what is known about an address.";
        IpFind "ip.find" Read Several nouns::FindResult, "Tells what is known about an address in every realm.";
        IpList "ip.list" Read NetworkOrSeveral nouns::ListResult, "Lists or counts reservations.";
        OwnerRelease "owner.release" Write NetworkOrSeveral nouns::ReleaseAllResult,
            "Lets go everything that an owner holds, and ends what waits for it.";
        ScopeRelease "scope.release" Write Several nouns::ReleaseAllResult,
            "Lets go everything that a deployment or tenant holds, and ends what waits for it.";
        ClaimantMark "claimant.mark" Write Several nouns::MarkResult, "Notes which claimants are alive.";
        ClaimantSweep "claimant.sweep" Write NetworkOrSeveral nouns::SweepResult,
            "Unbinds or releases what no living claimant uses.";
        NetworkCreate "network.create" Write Several nouns::Network, "Makes a network.";
        NetworkGet "network.get" Read Network nouns::Network, "Answers a network.";
        NetworkList "network.list" Read Several nouns::NetworkListResult, "Lists networks.";
        NetworkUpdate "network.update" Write Several nouns::Network, "Changes a network.";
        NetworkDelete "network.delete" Write Several nouns::DeleteResult, "Deletes a network.";
        NetworkRestore "network.restore" Write Several nouns::Network,
            "Brings a network back that was deleted with force.";
        NetworkUsage "network.usage" Read Network nouns::Usage,
            "Counts the addresses of a network, its subnets and pools.";
        NetworkMap "network.map" Read Network nouns::MapResult, "Draws the pools of a network.";
        SubnetAdd "subnet.add" Write Several nouns::Subnet, "Adds a subnet to a network.";
        SubnetModify "subnet.modify" Write Several nouns::Subnet, "Changes a subnet.";
        SubnetMove "subnet.move" Write Several nouns::Subnet,
            "Moves a subnet with all that is in it to another network.";
        SubnetRemove "subnet.remove" Write Several nouns::Empty, "Removes a subnet.";
        PoolAdd "pool.add" Write Network nouns::Pool, "Adds a pool.";
        PoolModify "pool.modify" Write Network nouns::Pool, "Changes a pool.";
        PoolRemove "pool.remove" Write Network nouns::Empty, "Removes addresses from pools.";
        ReservedAdd "reserved.add" Write Network nouns::ReservedResult, "Reserves a range.";
        ReservedRemove "reserved.remove" Write Network nouns::ReservedResult, "Ends the reservation of a range.";
        RealmList "realm.list" Read Several nouns::RealmListResult, "Lists realms.";
        ScopeList "scope.list" Read NetworkOrSeveral nouns::ScopeListResult, "Lists scopes and what they hold.";
        DeploymentPlan "deployment.plan" Read Several nouns::DeploymentPlanResult, "Tells what an apply would do.";
        DeploymentApply "deployment.apply" Write Several nouns::DeploymentPlanResult,
            "Grants what a deployment wishes, and makes obsolete what it wishes no more.";
        DeploymentCommit "deployment.commit" Write Several nouns::DeploymentSettled,
            "Lets go what a plan made obsolete.";
        DeploymentRevert "deployment.revert" Write Several nouns::DeploymentSettled, "Lets go what a plan granted.";
        DeploymentGet "deployment.get" Read Several nouns::DeploymentResult, "Answers what a deployment holds.";
        DeploymentList "deployment.list" Read Several nouns::DeploymentListResult, "Lists deployments.";
        DeploymentDelete "deployment.delete" Write Several nouns::ReleaseAllResult,
            "Lets go everything that a deployment holds.";
        EventsWatch "events.watch" Read Several nouns::Subscription, "Sends events as they happen.";
        EventsUnwatch "events.unwatch" Read Server nouns::Subscription, "Ends a subscription to events.";
        EventsHistory "events.history" Read Several nouns::HistoryResult,
            "Tells who held what, when, and why it ended.";
        ServerInfo "server.info" Read Server nouns::ServerStatus, "Tells what server this is.";
        ServerPing "server.ping" Read Server nouns::Pong, "Answers.";
        ClusterNodes "cluster.nodes" Read Server nouns::ClusterNodesResult, "Lists the nodes that serve.";
        ClusterLocate "cluster.locate" Read Network nouns::ClusterLocateResult, "Tells which node serves a network.";
        ClusterDrain "cluster.drain" Write Server nouns::ClusterDrainResult,
            "Takes a node out of service in order, or back into it.";
        ClusterConflicts "cluster.conflicts" Read NetworkOrSeveral nouns::ClusterConflictsResult,
            "Lists addresses with two claims after a failover.";
        ClusterAccept "cluster.accept" Write Network nouns::ClusterAcceptResult, "Decides such conflicts.";
        SessionSet "session.set" Read Server nouns::SessionSetResult, "Sets how this connection is served.";
        RpcDiscover "rpc.discover" Read Server nouns::Document, "Answers this document.";
    }
    later {
        InventoryCompare "inventory.compare" Read Several "Compares what is held with what is there.";
        AuthLogin "auth.login" Read Server "Tells who you are and what you may do.";
    }
}

impl Method {
    /// The methods that grant addresses.
    pub const GRANTING: [Method; 3] = [Method::IpAllocate, Method::IpClaim, Method::IpAcquire];
}

fn no_method(asked: &str) -> RpcError {
    let message = match Method::from_name(asked) {
        Some(method) => format!("`{}` is not served by this version", method.name()),
        None => match nearest(asked, Method::NAMES).as_slice() {
            [] => format!("there is no method `{}`; `rpc.discover` lists all", shortened(asked)),
            near => {
                let near: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
                format!("there is no method `{}`; did you mean {}?", shortened(asked), near.join(", "))
            }
        },
    };
    RpcError::new(ErrorKind::MethodNotFound, message)
}
