//! The one match from a request of the protocol to what is asked of which actor. Nothing else happens here.
//!
//! Before: `session`, which parsed. After: `actors::sending` or `actors::coordinator`. Exhaustive: a method that is added to
//! the table of `wire::methods` does not compile until it is decided here.
//!
//! Review notes: does a new method that touches names or space of a network go through the coordinator, with the names
//! that it touches in `touches`? Does it give back or take space of its realm, release reservations, or name a MAC
//! (`session::unfinished`)? Does a method over several networks use [`Errand::All`], so that it is a barrier?

mod ip;
mod network;
mod pages;

use std::time::{Duration, Instant};

use compact_str::CompactString;

pub use self::pages::events_watch;
use super::deployments;
use super::input;
use super::render::Shape;
use super::sweeping;
use crate::actors::coordinator::Job;
use crate::actors::nodes::NodeJob;
use crate::core::command::{Command, Configure};
use crate::core::types::{Scope, Version};
use crate::limits::REASON_BYTES_MAX;
use crate::wire::params::deployment::InstanceIds;
use crate::wire::values::{NetworkRef, Seen, Serial};
use crate::wire::{Method, Request, RpcError};

/// What is asked of whom.
#[derive(Debug)]
pub enum Errand {
    /// One command for one network.
    One(NetworkRef, Command),
    /// A job that touches these networks and no others: later requests that name them wait for it, and so do acts that take space
    /// which it may give back. Boxed because it is large and rare.
    Act(Vec<CompactString>, Box<Job>),
    /// A job over several networks: it waits for all earlier requests, and all later ones wait for it.
    All(Box<Job>),
    /// A job of this node itself: it waits for nothing, and nothing waits for it.
    Node(NodeJob),
    /// Answered at once, without an actor.
    Here(Here),
}

impl Errand {
    /// Is it about the server and not about what it serves? Then it has no place in the order of requests. Whoever asks for a sign
    /// of life gets one however long an act takes.
    pub(super) fn concerns_no_network(&self) -> bool {
        match self {
            Errand::Node(_) | Errand::Here(Here::Ping | Here::Info | Here::Nodes | Here::Discover) => true,
            // What these change holds for what is asked behind them.
            Errand::Here(Here::Set { .. } | Here::Unwatch(_)) => false,
            Errand::One(..) | Errand::Act(..) | Errand::All(_) => false,
        }
    }
    pub(super) fn act(touches: Vec<CompactString>, job: Job) -> Self {
        Errand::Act(touches, Box::new(job))
    }
    pub(super) fn all(job: Job) -> Self {
        Errand::All(Box::new(job))
    }
    /// For one network if it is named, otherwise for all.
    pub(super) fn over(network: Option<CompactString>, job: Job) -> Self {
        match network {
            Some(network) => Errand::act(vec![network], job),
            None => Errand::all(job),
        }
    }
}

/// What the session answers without an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Here {
    /// `server.ping`.
    Ping,
    /// `server.info`.
    Info,
    /// `cluster.nodes`.
    Nodes,
    /// `session.set`.
    Set {
        /// The new setting, if it is given.
        redirect: Option<bool>,
    },
    /// `events.unwatch` of a subscription.
    Unwatch(u64),
    /// `rpc.discover`.
    Discover,
}

/// A request, ready to be sent.
#[derive(Debug)]
pub struct ReadyRequest {
    /// Its method.
    pub method: Method,
    /// What is asked of whom.
    pub errand: Errand,
    /// How the answer is written.
    pub shape: Shape,
    /// Why, for the history.
    pub reason: Option<CompactString>,
    /// A request that has not been begun by then is refused.
    pub deadline: Option<Instant>,
    /// For how many milliseconds the request may wait for capacity, if there is none.
    pub wait_ms: Option<u64>,
}

fn version(if_version: Option<Serial>) -> Option<Version> {
    if_version.map(|serial| Version(serial.get()))
}

fn configure(network: NetworkRef, change: Configure, if_version: Option<Serial>) -> Errand {
    Errand::One(network, Command::Configure { change: Box::new(change), if_version: version(if_version) })
}

fn act(network: &NetworkRef, change: Configure, if_version: Option<Serial>, also: Option<&str>) -> Errand {
    let network = input::network_text(network);
    let touches = [Some(network.clone()), also.map(CompactString::from)].into_iter().flatten().collect();
    Errand::act(touches, Job::Configure { network, change, if_version: version(if_version) })
}

/// Decides what a request asks of whom. `read` is when it was read.
///
/// # Errors
/// `invalid_argument` for members that do not go together.
pub fn ready(request: Request, read: Instant) -> Result<ReadyRequest, RpcError> {
    let method = request.method();
    let deadline = request.deadline_ms().map(|ms| read + Duration::from_millis(ms));
    let dry_run = request.is_dry_run();
    let wait_ms = wait_ms(&request).filter(|ms| *ms > 0 && !dry_run);
    let reason = reason_of(&request);
    let mut shape =
        Shape { method, brief: false, if_absent: false, count_only: false, usage: false, many: false, dry_run };
    let errand = errand_of(request, &mut shape)?;
    Ok(ReadyRequest { method, errand, shape, reason, deadline, wait_ms })
}

/// The reason of a request, for the history. That of a decline includes what was seen at the address, for which an event has no
/// other place.
fn reason_of(request: &Request) -> Option<CompactString> {
    let reason = request.reason().map(|reason| CompactString::from(reason.as_str()));
    let Request::IpDecline(ask) = request else { return reason };
    let Some(seen) = ask.seen.as_ref().map(Seen::as_str) else { return reason };
    // There is room for one of the two: the reason is cut off, so that what was seen stays whole.
    let (beside, alone) = (format!(" (seen: {seen})"), format!("seen: {seen}"));
    let room = REASON_BYTES_MAX.saturating_sub(beside.len());
    let reason = reason.map(|reason| reason[..reason.floor_char_boundary(room)].to_owned());
    let told = match reason.filter(|reason| !reason.is_empty()) {
        Some(reason) => reason + &beside,
        None if alone.len() <= REASON_BYTES_MAX => alone,
        None => seen.to_owned(),
    };
    Some(told.into())
}

/// How long a request may wait for capacity. A claim names its address, so it never lacks capacity and never waits.
fn wait_ms(request: &Request) -> Option<u64> {
    let seconds = match request {
        Request::IpAllocate(ask) => ask.wait_seconds,
        Request::IpAcquire(ask) => ask.wait_seconds,
        _ => None, // Only these find no capacity.
    };
    seconds.map(|seconds| seconds.get() * 1_000)
}

fn errand_of(request: Request, shape: &mut Shape) -> Result<Errand, RpcError> {
    Ok(match request {
        Request::IpAllocate(ask) => ip::allocate(ask, shape)?,
        Request::IpClaim(ask) => ip::claim(*ask, shape)?,
        Request::IpAcquire(ask) => ip::acquire(*ask, shape)?,
        Request::IpRelease(ask) => ip::release(*ask)?,
        Request::IpRenew(ask) => ip::renew(*ask)?,
        Request::IpBind(ask) => ip::bind(*ask)?,
        Request::IpUnbind(ask) => ip::unbind(*ask)?,
        Request::IpUpdate(ask) => ip::update(*ask)?,
        Request::IpTransfer(ask) => ip::transfer(*ask)?,
        Request::IpDecline(ask) => ip::decline(*ask)?,
        Request::IpGet(ask) => ip::get(*ask)?,
        Request::IpFind(ask) => Errand::all(Job::Find { realm: None, address: ask.address }),
        Request::IpList(ask) => pages::reservations(*ask, shape)?,
        Request::OwnerRelease(ask) => ip::release_all_of(*ask)?,
        Request::ScopeRelease(ask) => Errand::all(Job::ReleaseScope(ask.scope)),
        Request::ClaimantMark(ask) => {
            let (scope, sweep) = (ask.scope, ask.sweep.into_inner());
            Errand::all(Job::Mark { scope, sweep, claimants: ask.claimants.into_vec() })
        }
        Request::ClaimantSweep(ask) => sweeping::claimant_sweep(*ask)?,
        Request::NetworkCreate(ask) => network::create(*ask, shape)?,
        Request::NetworkGet(ask) => Errand::One(ask.network, Command::Show),
        Request::NetworkList(ask) => pages::networks(*ask, shape)?,
        Request::NetworkUpdate(ask) => network::update(*ask)?,
        Request::NetworkDelete(ask) => network::delete(*ask)?,
        // The network is named by its id. Its name is known only when it is back, so nothing that may name it goes ahead.
        Request::NetworkRestore(ask) => {
            let network = input::network_text(&ask.network);
            Errand::all(Job::Configure { network, change: Configure::Restore, if_version: version(ask.if_version) })
        }
        Request::NetworkUsage(ask) => Errand::One(ask.network, Command::Usage),
        Request::NetworkMap(ask) => network::map(*ask)?,
        Request::SubnetAdd(ask) => network::subnet_add(*ask, shape)?,
        Request::SubnetModify(ask) => network::subnet_modify(*ask)?,
        Request::SubnetMove(ask) => network::subnet_move(*ask)?,
        Request::SubnetRemove(ask) => network::subnet_remove(*ask)?,
        Request::PoolAdd(ask) => network::pool_add(*ask, shape)?,
        Request::PoolModify(ask) => network::pool_modify(*ask)?,
        Request::PoolRemove(ask) => network::pool_remove(*ask)?,
        Request::ReservedAdd(ask) => network::reserved_add(*ask)?,
        Request::ReservedRemove(ask) => network::reserved_remove(*ask),
        Request::RealmList(_) => Errand::all(Job::Realms),
        Request::ScopeList(ask) => pages::scopes(*ask)?,
        Request::DeploymentPlan(ask) => {
            Errand::all(deployments::order(ask.deployment, ask.instances, ask.groups, false)?)
        }
        Request::DeploymentApply(ask) => {
            Errand::all(deployments::order(ask.deployment, ask.instances, ask.groups, true)?)
        }
        Request::DeploymentCommit(ask) => settle(ask.deployment, ask.plan, ask.instances, false),
        Request::DeploymentRevert(ask) => settle(ask.deployment, ask.plan, ask.instances, true),
        Request::DeploymentGet(ask) => Errand::all(Job::Deployment(ask.deployment)),
        Request::DeploymentList(ask) => Errand::all(deployments::list(*ask)?),
        Request::DeploymentDelete(ask) => Errand::all(Job::DeleteDeployment(ask.deployment)),
        Request::EventsWatch(ask) => Errand::all(events_watch(*ask)?),
        Request::EventsUnwatch(ask) => Errand::Here(Here::Unwatch(ask.subscription)),
        Request::EventsHistory(ask) => Errand::all(pages::history(*ask)?),
        Request::ServerInfo(_) => Errand::Here(Here::Info),
        Request::ServerPing(_) => Errand::Here(Here::Ping),
        Request::ClusterNodes(_) => Errand::Here(Here::Nodes),
        Request::ClusterLocate(ask) => {
            let network = input::network_text(&ask.network);
            Errand::act(vec![network.clone()], Job::Locate(network))
        }
        Request::ClusterDrain(ask) => Errand::Node(NodeJob::Drain {
            node: ask.node.map(|node| node.into_inner()),
            drain: ask.drain.unwrap_or(true),
        }),
        Request::ClusterConflicts(ask) => match ask.network {
            Some(network) => Errand::One(network, Command::Conflicts),
            None => Errand::all(Job::Conflicts),
        },
        Request::ClusterAccept(ask) => Errand::One(ask.network, Command::Accept(ask.address)),
        Request::SessionSet(ask) => Errand::Here(Here::Set { redirect: ask.redirect }),
        Request::RpcDiscover(_) => Errand::Here(Here::Discover),
    })
}

fn settle(deployment: Scope, plan: Serial, instances: Option<InstanceIds>, revert: bool) -> Errand {
    let instances = instances.map(InstanceIds::into_vec);
    Errand::all(Job::Settle { deployment, plan: plan.get(), instances, revert })
}
