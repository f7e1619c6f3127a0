//! THE match: a request of the protocol → what is asked of which actor. Nothing else happens here.
//!
//! Before: `session`, which parsed. After: `actors::coordinator::send` or `spawn`. Exhaustive: a method that is added to
//! the table of `wire::methods` does not compile until it is decided here.
//!
//! Review notes: does a new method that touches names or space of a network go through the coordinator, with the names
//! it touches in `touches`? Does one over several networks take [`Plan::All`], so that it is a barrier?

use std::time::{Duration, Instant};

use compact_str::CompactString;

use super::deployments;
use super::forms;
use super::input;
use super::render::{Shape, cursor};
use super::sweeping;
use crate::actors::coordinator::{AcquirePart, Job, ListPlace};
use crate::actors::events::Filter as Wanted;
use crate::actors::events::held::HeldPlace;
use crate::actors::nodes::NodeJob;
use crate::core::address::{Address, Range};
use crate::core::command::{
    Acquire, Allocate, Claim, Command, Configure, Decline, MapFormat, PoolInput, PoolRemoval, Release, Transfer,
};
use crate::core::types::{Name, Scope, Slot, Version};
use crate::limits::{HISTORY_PAGE_DEFAULT, LIST_PAGE_RECORDS_DEFAULT};
use crate::wire::params::deployment::InstanceIds;
use crate::wire::params::network::MapFormat as WireMap;
use crate::wire::values::{NetworkRef, Serial};
use crate::wire::{Method, Request, RpcError, params};

/// Default of `ip.decline`'s `probation_seconds`.
const PROBATION_SECONDS: u64 = 86_400;

/// What is asked of whom.
#[derive(Debug)]
pub enum Plan {
    /// One command for one network.
    One(NetworkRef, Command),
    /// A job that touches these networks and no others: later requests that name them wait for it. Boxed: it is long, and rare.
    Act(Vec<CompactString>, Box<Job>),
    /// A job over several networks: it waits for all earlier requests, and all later ones wait for it.
    All(Box<Job>),
    /// Asked of this node itself: it waits for nothing, and nothing waits for it.
    Node(NodeJob),
    /// Answered at once, without an actor.
    Here(Here),
}

impl Plan {
    pub(super) fn act(touches: Vec<CompactString>, job: Job) -> Self {
        Plan::Act(touches, Box::new(job))
    }
    pub(super) fn all(job: Job) -> Self {
        Plan::All(Box::new(job))
    }
}

/// What the server knows by itself.
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
        /// From now on so, if it is given.
        redirect: Option<bool>,
    },
    /// `events.unwatch` of a subscription.
    Unwatch(u64),
    /// `rpc.discover`.
    Discover,
}

/// A request, ready to be sent.
#[derive(Debug)]
pub struct Planned {
    /// Its method.
    pub method: Method,
    /// What is asked of whom.
    pub plan: Plan,
    /// How the answer is written.
    pub shape: Shape,
    /// Why, for the history.
    pub reason: Option<CompactString>,
    /// Not begun by then, it is refused.
    pub deadline: Option<Instant>,
    /// Change nothing.
    pub dry_run: bool,
    /// Where it finds no capacity, it may wait for so many milliseconds.
    pub wait_ms: Option<u64>,
}

fn version(if_version: Option<Serial>) -> Option<Version> {
    if_version.map(|serial| Version(serial.get()))
}

fn configure(network: NetworkRef, change: Configure, if_version: Option<Serial>) -> Plan {
    Plan::One(network, Command::Configure { change: Box::new(change), if_version: version(if_version) })
}

fn act(network: &NetworkRef, change: Configure, if_version: Option<Serial>, also: Option<&str>) -> Plan {
    let network = input::network_text(network);
    let touches = [Some(network.clone()), also.map(CompactString::from)].into_iter().flatten().collect();
    Plan::act(touches, Job::Configure { network, change, if_version: version(if_version) })
}

/// Decides what a request asks of whom. `read` is when it was read.
///
/// # Errors
/// `invalid_argument` for members that do not go together, `method_not_found` for what comes later.
pub fn plan(request: Request, read: Instant) -> Result<Planned, RpcError> {
    let method = request.method();
    let deadline = request.deadline_ms().map(|ms| read + Duration::from_millis(ms));
    let dry_run = request.is_dry_run();
    let wait_ms = wait_ms(&request).filter(|ms| *ms > 0 && !dry_run);
    let reason = request.reason().map(|reason| CompactString::from(reason.as_str()));
    let mut shape = Shape { method, brief: false, if_absent: false, count_only: false, usage: false };
    let plan = plan_of(request, &mut shape)?;
    Ok(Planned { method, plan, shape, reason, deadline, dry_run, wait_ms })
}

/// How long a request waits for capacity. A claim names its address, and never lacks capacity: it waits for nothing.
fn wait_ms(request: &Request) -> Option<u64> {
    let seconds = match request {
        Request::IpAllocate(ask) => ask.wait_seconds,
        Request::IpAcquire(ask) => ask.wait_seconds,
        _ => None, // Only these find no capacity.
    };
    seconds.map(|seconds| seconds.get() * 1_000)
}

fn plan_of(request: Request, shape: &mut Shape) -> Result<Plan, RpcError> {
    Ok(match request {
        Request::IpAllocate(ask) => ip_allocate(ask, shape)?,
        Request::IpClaim(ask) => ip_claim(*ask, shape)?,
        Request::IpAcquire(ask) => ip_acquire(*ask, shape)?,
        Request::IpRelease(ask) => ip_release(*ask)?,
        Request::IpRenew(ask) => ip_renew(*ask)?,
        Request::IpBind(ask) => ip_bind(*ask)?,
        Request::IpUnbind(ask) => ip_unbind(*ask)?,
        Request::IpUpdate(ask) => ip_update(*ask)?,
        Request::IpTransfer(ask) => ip_transfer(*ask)?,
        Request::IpDecline(ask) => ip_decline(*ask)?,
        Request::IpGet(ask) => ip_get(*ask)?,
        Request::IpFind(ask) => Plan::all(Job::Find { realm: None, address: ask.address }),
        Request::IpList(ask) => list(*ask, shape)?,
        Request::OwnerRelease(ask) => owner_release(*ask)?,
        Request::ScopeRelease(ask) => Plan::all(Job::ReleaseScope(ask.scope)),
        Request::ClaimantMark(ask) => {
            let (scope, sweep) = (ask.scope, ask.sweep.into_inner());
            Plan::all(Job::Mark { scope, sweep, claimants: ask.claimants.into_vec() })
        }
        Request::ClaimantSweep(ask) => sweeping::claimant_sweep(*ask)?,
        Request::NetworkCreate(ask) => network_create(*ask, shape)?,
        Request::NetworkGet(ask) => Plan::One(ask.network, Command::Show),
        Request::NetworkList(ask) => network_list(*ask, shape)?,
        Request::NetworkUpdate(ask) => network_update(*ask)?,
        Request::NetworkDelete(ask) => network_delete(*ask)?,
        Request::NetworkRestore(ask) => act(&ask.network, Configure::Restore, ask.if_version, None),
        Request::NetworkUsage(ask) => Plan::One(ask.network, Command::Usage),
        Request::NetworkMap(ask) => network_map(*ask)?,
        Request::SubnetAdd(ask) => subnet_add(*ask, shape)?,
        Request::SubnetModify(ask) => subnet_modify(*ask)?,
        Request::SubnetMove(ask) => subnet_move(*ask)?,
        Request::SubnetRemove(ask) => subnet_remove(*ask)?,
        Request::PoolAdd(ask) => pool_add(*ask, shape)?,
        Request::PoolModify(ask) => pool_modify(*ask)?,
        Request::PoolRemove(ask) => pool_remove(*ask)?,
        Request::ReservedAdd(ask) => reserved_add(*ask)?,
        Request::ReservedRemove(ask) => configure(ask.network, Configure::ReservedRemove(ask.range), ask.if_version),
        Request::RealmList(_) => Plan::all(Job::Realms),
        Request::ScopeList(ask) => scope_list(*ask)?,
        Request::DeploymentPlan(ask) => {
            Plan::all(deployments::order(ask.deployment, ask.instances, ask.groups, false)?)
        }
        Request::DeploymentApply(ask) => {
            Plan::all(deployments::order(ask.deployment, ask.instances, ask.groups, true)?)
        }
        Request::DeploymentCommit(ask) => settle(ask.deployment, ask.plan, ask.instances, false),
        Request::DeploymentRevert(ask) => settle(ask.deployment, ask.plan, ask.instances, true),
        Request::DeploymentGet(ask) => Plan::all(Job::Deployment(ask.deployment)),
        Request::DeploymentList(ask) => Plan::all(deployments::list(*ask)?),
        Request::DeploymentDelete(ask) => Plan::all(Job::DeleteDeployment(ask.deployment)),
        Request::EventsWatch(ask) => Plan::all(events_watch(*ask)?),
        Request::EventsUnwatch(ask) => Plan::Here(Here::Unwatch(ask.subscription)),
        Request::EventsHistory(ask) => Plan::all(events_history(*ask)?),
        Request::ServerInfo(_) => Plan::Here(Here::Info),
        Request::ServerPing(_) => Plan::Here(Here::Ping),
        Request::ClusterNodes(_) => Plan::Here(Here::Nodes),
        Request::ClusterLocate(ask) => {
            let network = input::network_text(&ask.network);
            Plan::act(vec![network.clone()], Job::Locate(network))
        }
        Request::ClusterDrain(ask) => Plan::Node(NodeJob::Drain {
            node: ask.node.map(|node| node.into_inner()),
            drain: ask.drain.unwrap_or(true),
        }),
        Request::ClusterConflicts(ask) => match ask.network {
            Some(network) => Plan::One(network, Command::Conflicts),
            None => Plan::all(Job::Conflicts),
        },
        Request::ClusterAccept(ask) => Plan::One(ask.network, Command::Accept(ask.address)),
        Request::SessionSet(ask) => Plan::Here(Here::Set { redirect: ask.redirect }),
        Request::RpcDiscover(_) => Plan::Here(Here::Discover),
    })
}

fn ip_allocate(mut ask: Box<params::IpAllocate>, shape: &mut Shape) -> Result<Plan, RpcError> {
    shape.brief = ask.brief.unwrap_or(false);
    let options: input::Options = input::grant_options!(ask);
    let holder = input::holder(ask.owner, ask.scope, ask.slot);
    let wish = input::wish(ask.family, ask.subnet, ask.pool, ask.zone, ask.prefix_length);
    let allocate = Allocate { holder, wish, options };
    forms::allocate(&allocate)?;
    Ok(Plan::One(ask.network, Command::Allocate(Box::new(allocate))))
}

fn ip_claim(mut ask: params::IpClaim, shape: &mut Shape) -> Result<Plan, RpcError> {
    shape.brief = ask.brief.unwrap_or(false);
    let options = input::grant_options!(ask);
    let holder = input::holder(ask.owner, ask.scope, ask.slot);
    let prefix_length = ask.prefix_length.map(|length| length.length());
    let force = ask.force.unwrap_or(false);
    let claim = Claim { holder, address: ask.address, prefix_length, force, options };
    forms::claim(&claim)?;
    Ok(Plan::One(ask.network, Command::Claim(Box::new(claim))))
}

fn ip_acquire(ask: params::IpAcquire, shape: &mut Shape) -> Result<Plan, RpcError> {
    shape.brief = ask.brief.unwrap_or(false);
    acquire(ask)
}

fn ip_release(ask: params::IpRelease) -> Result<Plan, RpcError> {
    forms::says_which(ask.address, ask.owner.as_ref())?;
    if ask.address.is_some() && ask.owner.is_none() && ask.if_generation.is_none() && !ask.force.unwrap_or(false) {
        let problem =
            "`owner`, `if_generation` or `force` must be given with an address, so that nobody else's is released";
        return Err(RpcError::invalid("owner", problem));
    }
    let target = input::target(ask.address, ask.owner, ask.scope, ask.slot, ask.if_generation);
    let (force, strict) = (ask.force.unwrap_or(false), ask.strict.unwrap_or(false));
    Ok(Plan::One(ask.network, Command::Release(Box::new(Release { target, force, strict }))))
}

fn ip_renew(ask: params::IpRenew) -> Result<Plan, RpcError> {
    forms::says_which(ask.address, ask.owner.as_ref())?;
    let target = input::target(ask.address, ask.owner, ask.scope, ask.slot, ask.if_generation);
    let ttl = ask.ttl_seconds.0.map(|ttl| ttl.get());
    Ok(Plan::One(ask.network, Command::Renew(Box::new(target), ttl)))
}

fn ip_bind(ask: params::IpBind) -> Result<Plan, RpcError> {
    forms::says_which(ask.address, ask.owner.as_ref())?;
    let target = input::target(ask.address, ask.owner, ask.scope.clone(), ask.slot, ask.if_generation);
    if let (Some(network), Some(_), Some(_)) = (&ask.network, &target.address, &target.owner) {
        let network = input::network_text(network);
        let target = Box::new((target, ask.claimant));
        return Ok(Plan::act(vec![network.clone()], Job::Bind { network, target }));
    }
    let command = Command::Bind(Box::new(target), ask.claimant);
    in_network_or_located(ask.network, ask.address, ask.scope, command)
}

fn ip_unbind(ask: params::IpUnbind) -> Result<Plan, RpcError> {
    forms::says_which(ask.address, ask.owner.as_ref())?;
    let target = input::target(ask.address, ask.owner, ask.scope.clone(), ask.slot, ask.if_generation);
    let command = Command::Unbind(Box::new(target), Some(ask.claimant));
    in_network_or_located(ask.network, ask.address, ask.scope, command)
}

fn ip_update(ask: params::IpUpdate) -> Result<Plan, RpcError> {
    forms::says_which(ask.address, ask.owner.as_ref())?;
    let target = input::target(ask.address, ask.owner, ask.scope, ask.slot, ask.if_generation);
    let set = input::reservation_patch(ask.set);
    forms::says_what(&set)?;
    Ok(Plan::One(ask.network, Command::Update(Box::new(target), Box::new(set))))
}

fn ip_transfer(ask: params::IpTransfer) -> Result<Plan, RpcError> {
    let transfer = Transfer {
        address: ask.address,
        from: (ask.scope.unwrap_or_default(), ask.owner, None),
        to: input::holder(ask.to.owner, ask.to.scope, ask.to.slot),
        exchange: ask.exchange.unwrap_or(false),
        if_generation: ask.if_generation.map(|serial| crate::core::types::Generation(serial.get())),
    };
    Ok(Plan::One(ask.network, Command::Transfer(Box::new(transfer))))
}

fn ip_decline(ask: params::IpDecline) -> Result<Plan, RpcError> {
    let decline = Decline {
        address: ask.address,
        from: (ask.scope.unwrap_or_default(), ask.owner, ask.slot),
        seen: ask.seen.map(|seen| seen.into_inner()).unwrap_or_default(),
        probation_seconds: ask.probation_seconds.map_or(PROBATION_SECONDS, |seconds| seconds.get()),
        again: ask.again.unwrap_or(false),
    };
    Ok(Plan::One(ask.network, Command::Decline(Box::new(decline))))
}

fn ip_get(ask: params::IpGet) -> Result<Plan, RpcError> {
    Ok(match (ask.network, ask.realm) {
        (Some(_), Some(_)) => return Err(RpcError::invalid("realm", "`realm` and `network` exclude each other")),
        (Some(network), None) => Plan::One(network, Command::Get(ask.address)),
        (None, realm) => {
            let realm = Some(realm.unwrap_or_else(crate::core::types::Name::default_realm));
            Plan::all(Job::Find { realm, address: ask.address })
        }
    })
}

fn owner_release(ask: params::OwnerRelease) -> Result<Plan, RpcError> {
    let network = ask.network.as_ref().map(input::network_text);
    let job = |network| Job::ReleaseOwner { scope: ask.scope.unwrap_or_default(), owner: ask.owner, network };
    Ok(match network {
        Some(network) => Plan::act(vec![network.clone()], job(Some(network))),
        None => Plan::all(job(None)),
    })
}

fn network_create(ask: params::NetworkCreate, shape: &mut Shape) -> Result<Plan, RpcError> {
    if ask.if_version.is_some() {
        return Err(RpcError::invalid("if_version", "`if_version` has no meaning for a network that is made now"));
    }
    let if_absent = ask.if_absent.unwrap_or(false);
    shape.if_absent = if_absent;
    let name = CompactString::from(ask.name.as_str());
    Ok(Plan::act(vec![name], Job::Create { input: Box::new(input::network(ask)), if_absent }))
}

fn network_list(ask: params::NetworkList, shape: &mut Shape) -> Result<Plan, RpcError> {
    shape.usage = ask.usage.unwrap_or(false);
    let after = ask.after.as_ref().map(|after| network_cursor(after.as_str())).transpose()?;
    Ok(Plan::all(Job::Networks {
        realm: ask.realm,
        tag: ask.tag.map(|tag| (tag.key, tag.value)),
        usage: shape.usage,
        deleted: ask.deleted.unwrap_or(false),
        after,
        limit: ask.limit.map_or(LIST_PAGE_RECORDS_DEFAULT, |limit| limit.get() as usize),
    }))
}

fn network_update(ask: params::NetworkUpdate) -> Result<Plan, RpcError> {
    let set = Box::new(input::network_patch(ask.set));
    forms::network_patch(&set)?;
    let name = set.name.clone();
    // Names and space are the catalog's.
    Ok(if name.is_some() || set.subnets.is_some() {
        act(&ask.network, Configure::Update(set), ask.if_version, name.as_ref().map(Name::as_str))
    } else {
        configure(ask.network, Configure::Update(set), ask.if_version)
    })
}

fn network_delete(ask: params::NetworkDelete) -> Result<Plan, RpcError> {
    let (force, purge) = (ask.force.unwrap_or(false), ask.purge.unwrap_or(false));
    Ok(act(&ask.network, Configure::Delete { force, purge }, ask.if_version, None))
}

fn network_map(ask: params::NetworkMap) -> Result<Plan, RpcError> {
    let format = match (ask.format.unwrap_or(WireMap::Text), ask.cell_prefix_length) {
        (WireMap::Text, None) => MapFormat::Text,
        (WireMap::Runs, None) => MapFormat::Runs,
        (WireMap::Cells, Some(length)) => MapFormat::Cells { prefix_length: length.length() },
        (WireMap::Cells, None) => {
            return Err(RpcError::invalid("cell_prefix_length", "`cell_prefix_length` is needed with format `cells`"));
        }
        (WireMap::Text | WireMap::Runs, Some(_)) => {
            return Err(RpcError::invalid("cell_prefix_length", "`cell_prefix_length` goes with format `cells` only"));
        }
    };
    let (subnet, pool) = (ask.subnet.map(input::subnet_ref), ask.pool.map(input::pool_ref));
    Ok(Plan::One(ask.network, Command::Map { part: Box::new((subnet, pool)), format }))
}

fn subnet_add(ask: params::SubnetAdd, shape: &mut Shape) -> Result<Plan, RpcError> {
    let if_absent = ask.if_absent.unwrap_or(false);
    shape.if_absent = if_absent;
    let (network, if_version) = (ask.network.clone(), ask.if_version);
    let input = Box::new(input::subnet_add(ask));
    forms::subnet(&input)?;
    Ok(act(&network, Configure::SubnetAdd { input, if_absent }, if_version, None))
}

fn subnet_modify(ask: params::SubnetModify) -> Result<Plan, RpcError> {
    let (subnet, set) = (input::subnet_ref(ask.subnet), Box::new(input::subnet_patch(ask.set)));
    forms::subnet_patch(&subnet, &set)?;
    let grows = set.cidr.is_some();
    let change = Configure::SubnetModify { subnet, set };
    Ok(if grows {
        act(&ask.network, change, ask.if_version, None)
    } else {
        configure(ask.network, change, ask.if_version)
    })
}

fn subnet_move(ask: params::SubnetMove) -> Result<Plan, RpcError> {
    let (from, to) = (input::network_text(&ask.network), input::network_text(&ask.to));
    let subnet = input::subnet_ref(ask.subnet);
    Ok(Plan::all(Job::Move { from, subnet, to, if_version: version(ask.if_version) }))
}

fn subnet_remove(ask: params::SubnetRemove) -> Result<Plan, RpcError> {
    let subnet = input::subnet_ref(ask.subnet);
    Ok(act(&ask.network, Configure::SubnetRemove { subnet }, ask.if_version, None))
}

fn pool_add(ask: params::PoolAdd, shape: &mut Shape) -> Result<Plan, RpcError> {
    let if_absent = ask.if_absent.unwrap_or(false);
    shape.if_absent = if_absent;
    match (ask.range, &ask.subnet) {
        (Some(_), Some(_)) => return Err(RpcError::invalid("subnet", "`range` and `subnet` exclude each other")),
        (None, None) => return Err(RpcError::invalid("range", "`range` or `subnet` must be given")),
        (Some(_), None) | (None, Some(_)) => {}
    }
    let kind = ask.kind.map(input::pool_kind);
    let pool = PoolInput { range: ask.range, name: ask.name, kind, draining: None };
    let subnet = ask.subnet.map(input::subnet_ref);
    Ok(configure(ask.network, Configure::PoolAdd { input: pool, subnet, if_absent }, ask.if_version))
}

fn pool_modify(ask: params::PoolModify) -> Result<Plan, RpcError> {
    let set = Box::new(input::pool_patch(ask.set));
    forms::says_what(&*set)?;
    let change = Configure::PoolModify { pool: input::pool_ref(ask.pool), set };
    Ok(configure(ask.network, change, ask.if_version))
}

fn pool_remove(ask: params::PoolRemove) -> Result<Plan, RpcError> {
    let removal = match (ask.range, ask.pool, ask.subnet) {
        (Some(range), None, None) => PoolRemoval::Range(range),
        (None, Some(pool), None) => PoolRemoval::Pool(input::pool_ref(pool)),
        (None, None, Some(subnet)) => PoolRemoval::Subnet(input::subnet_ref(subnet)),
        _ => return Err(RpcError::invalid("range", "exactly one of `range`, `pool` and `subnet` must be given")),
    };
    Ok(configure(ask.network, Configure::PoolRemove(removal), ask.if_version))
}

fn reserved_add(ask: params::ReservedAdd) -> Result<Plan, RpcError> {
    let range: Range = ask.range;
    let note = ask.note.map(|note| note.into_inner()).unwrap_or_default();
    let reserved_for = ask.r#for.map(input::reserved_for);
    let input = Box::new(crate::core::command::ReservedInput { range, note, reserved_for });
    Ok(configure(ask.network, Configure::ReservedAdd(input), ask.if_version))
}

/// What `events.watch` asks of the owner.
///
/// # Errors
/// `invalid_argument` of a cursor that is none.
pub fn events_watch(ask: params::EventsWatch) -> Result<Job, RpcError> {
    let since = ask.since.as_ref().map(|since| event_cursor("since", since.as_str())).transpose()?;
    let network = ask.network.as_ref().map(input::network_text);
    Ok(Job::Watch { network, realm: ask.realm, scope: ask.scope, since })
}

fn events_history(ask: params::EventsHistory) -> Result<Job, RpcError> {
    let limit = ask.limit.map_or(HISTORY_PAGE_DEFAULT, |limit| limit.get() as usize);
    let network = ask.network.as_ref().map(input::network_text);
    let (realm, address, owner, scope) = (ask.realm, ask.address, ask.owner, ask.scope);
    let filter = Wanted { networks: None, realm, address, owner, scope, from: ask.from, to: ask.to, of_realm: None };
    let after = ask.after.as_ref().map(|after| after.as_str());
    match ask.at {
        Some(_) if ask.from.is_some() || ask.to.is_some() => {
            Err(RpcError::invalid("at", "`at` excludes `from` and `to`: it is one time"))
        }
        Some(at) => {
            let after = after.map(held_cursor).transpose()?;
            Ok(Job::HeldAt { network, filter, at, after, limit })
        }
        None => {
            let after = after.map(|after| event_cursor("after", after)).transpose()?;
            Ok(Job::History { network, filter, after, limit })
        }
    }
}

fn event_cursor(field: &str, text: &str) -> Result<crate::actors::events::Cursor, RpcError> {
    super::cursor::parse(text)
        .ok_or_else(|| RpcError::invalid(field, format!("`{field}` is no cursor that this server gave out")))
}

fn scope_list(ask: params::ScopeList) -> Result<Plan, RpcError> {
    Ok(match ask.network {
        Some(network) => Plan::One(network, Command::Scopes),
        None => Plan::all(Job::Scopes),
    })
}

fn settle(deployment: Scope, plan: Serial, instances: Option<InstanceIds>, revert: bool) -> Plan {
    let instances = instances.map(InstanceIds::into_vec);
    Plan::all(Job::Settle { deployment, plan: plan.get(), instances, revert })
}

/// `ip.bind` and `ip.unbind` may leave the network out where address and scope are given.
fn in_network_or_located(
    network: Option<NetworkRef>,
    address: Option<Address>,
    scope: Option<Scope>,
    command: Command,
) -> Result<Plan, RpcError> {
    match (network, address, scope) {
        (Some(network), _, _) => Ok(Plan::One(network, command)),
        (None, Some(address), Some(scope)) => Ok(Plan::all(Job::Located { address, scope, command })),
        (None, None, _) | (None, Some(_), None) => {
            Err(RpcError::invalid("network", "`network` may be left out only where `address` and `scope` are given"))
        }
    }
}

fn acquire(mut ask: crate::wire::params::IpAcquire) -> Result<Plan, RpcError> {
    let options: input::Options = input::grant_options!(ask);
    let scope = ask.scope.take().unwrap_or_default();
    let prefix = ask.slot_prefix.take().map(|prefix| prefix.into_inner()).unwrap_or_default();
    let exact = ask.exact.unwrap_or(false);
    let mut parts: Vec<AcquirePart> = Vec::new();
    for (index, mut item) in ask.ips.into_vec().into_iter().enumerate() {
        let Some(network) = item.network.take().or_else(|| ask.network.clone()) else {
            let field = format!("ips[{index}].network");
            let message = format!("`{field}`, or `network` for all of them, must be given");
            return Err(RpcError::invalid(field, message).with(|data| data.index = Some(index as u64)));
        };
        let network = input::network_text(&network);
        let at = match parts.iter().position(|part| part.network == network) {
            Some(at) => at,
            None => {
                let (scope, owner, options) = (scope.clone(), ask.owner.clone(), options.clone());
                let ask = Acquire { scope, owner, items: Vec::new(), exact, options };
                parts.push(AcquirePart { network, ask, by_position: Vec::new() });
                parts.len() - 1
            }
        };
        let AcquirePart { ask: Acquire { items, .. }, by_position, .. } = &mut parts[at];
        let slot = match item.slot.take() {
            Some(slot) => slot,
            None => {
                by_position.push(index);
                let text = compact_str::format_compact!("{prefix}{}", items.len());
                Slot::new(text).map_err(|error| {
                    RpcError::invalid("slot_prefix", format!("`slot_prefix` makes a slot that {error}"))
                })?
            }
        };
        items.push(input::acquire_item(index, slot, item));
    }
    forms::acquire(&parts)?;
    if parts.len() == 1 {
        let network = parts[0].network.clone();
        return Ok(Plan::act(vec![network], Job::Acquire { parts, slot_prefix: prefix }));
    }
    Ok(Plan::all(Job::Acquire { parts, slot_prefix: prefix }))
}

fn list(mut ask: crate::wire::params::IpList, shape: &mut Shape) -> Result<Plan, RpcError> {
    let count_only = ask.count_only.unwrap_or(false);
    shape.count_only = count_only;
    let after = ask.after.as_ref().map(|after| list_cursor(after.as_str())).transpose()?;
    let limit = ask.limit.map_or(LIST_PAGE_RECORDS_DEFAULT, |limit| limit.get() as usize);
    let filter = input::filter(&mut ask);
    let network = ask.network.as_ref().map(input::network_text);
    let touches = network.clone();
    let job = Job::List { network, realm: ask.realm, filter: Box::new(filter), after, limit, count_only };
    Ok(match touches {
        Some(network) => Plan::act(vec![network], job),
        None => Plan::all(job),
    })
}

fn no_cursor() -> RpcError {
    RpcError::invalid("after", "`after` is no `next` of an earlier page of this list")
}

fn network_cursor(text: &str) -> Result<ListPlace, RpcError> {
    let place = list_cursor(text)?;
    if place.address.is_some() { Err(no_cursor()) } else { Ok(place) }
}

fn held_cursor(text: &str) -> Result<HeldPlace, RpcError> {
    cursor::parse_held(text).ok_or_else(no_cursor)
}

fn list_cursor(text: &str) -> Result<ListPlace, RpcError> {
    cursor::parse(text).ok_or_else(no_cursor)
}
