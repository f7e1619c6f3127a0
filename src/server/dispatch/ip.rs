//! Requests about reservations.

use super::Errand;
use crate::actors::coordinator::{AcquirePart, Job};
use crate::core::address::Address;
use crate::core::command::{Acquire, Allocate, Claim, Command, Decline, Release, Transfer};
use crate::core::types::{Generation, Name, Scope, Slot};
use crate::limits::SHORT_ANSWER_RESERVATIONS_MAX;
use crate::server::render::Shape;
use crate::server::{forms, input};
use crate::wire::values::NetworkRef;
use crate::wire::{RpcError, params};

/// Default of `ip.decline`'s `probation_seconds`.
const PROBATION_SECONDS: u64 = 86_400;

pub(super) fn allocate(mut ask: Box<params::IpAllocate>, shape: &mut Shape) -> Result<Errand, RpcError> {
    shape.brief = ask.brief.unwrap_or(false);
    let allocate = Box::new(Allocate {
        options: input::grant_options!(ask),
        holder: input::holder(ask.owner, ask.scope, ask.slot),
        wish: input::wish(ask.family, ask.subnet, ask.pool, ask.zone, ask.prefix_length),
    });
    forms::allocate(&allocate)?;
    Ok(Errand::One(ask.network, Command::Allocate(allocate)))
}

pub(super) fn claim(mut ask: params::IpClaim, shape: &mut Shape) -> Result<Errand, RpcError> {
    shape.brief = ask.brief.unwrap_or(false);
    let options = input::grant_options!(ask);
    let holder = input::holder(ask.owner, ask.scope, ask.slot);
    let prefix_length = ask.prefix_length.map(|length| length.length());
    let force = ask.force.unwrap_or(false);
    let claim = Claim { holder, address: ask.address, prefix_length, force, options };
    forms::claim(&claim)?;
    Ok(Errand::One(ask.network, Command::Claim(Box::new(claim))))
}

pub(super) fn acquire(mut ask: params::IpAcquire, shape: &mut Shape) -> Result<Errand, RpcError> {
    shape.brief = ask.brief.unwrap_or(false);
    let options = input::grant_options!(ask);
    let scope = ask.scope.take().unwrap_or_default();
    let prefix = ask.slot_prefix.take().map(|prefix| prefix.into_inner()).unwrap_or_default();
    let exact = ask.exact.unwrap_or(false);
    let lists_more = !shape.brief && ask.ips.len() > SHORT_ANSWER_RESERVATIONS_MAX;
    // What would be released is listed again each time.
    shape.many = lists_more || exact && shape.dry_run;
    let mut parts: Vec<AcquirePart> = Vec::new();
    let part = |network| {
        let (scope, owner, options) = (scope.clone(), ask.owner.clone(), options.clone());
        let ask = Acquire { scope, owner, items: Vec::new(), exact, options };
        AcquirePart { network, ask, by_position: Vec::new() }
    };
    for (index, mut item) in ask.ips.into_vec().into_iter().enumerate() {
        let Some(network) = item.network.take().or_else(|| ask.network.clone()) else {
            let field = format!("ips[{index}].network");
            let message = format!("`{field}`, or `network` for all of them, must be given");
            return Err(RpcError::invalid(field, message));
        };
        let network = input::network_text(&network);
        let at = match parts.iter().position(|part| part.network == network) {
            Some(at) => at,
            None => {
                parts.push(part(network));
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
    // It is named, and nothing is wished of it: what the owner holds there is what is not wished any more.
    if let Some(network) = ask.network.as_ref().filter(|_| exact).map(input::network_text)
        && !parts.is_empty()
        && parts.iter().all(|part| part.network != network)
    {
        parts.push(part(network));
    }
    forms::acquire(&parts)?;
    if parts.len() == 1 {
        let network = parts[0].network.clone();
        return Ok(Errand::act(vec![network], Job::Acquire { parts, slot_prefix: prefix }));
    }
    Ok(Errand::all(Job::Acquire { parts, slot_prefix: prefix }))
}

pub(super) fn release(ask: params::IpRelease) -> Result<Errand, RpcError> {
    forms::says_which(ask.address, ask.owner.as_ref())?;
    if ask.address.is_some() && ask.owner.is_none() && ask.if_generation.is_none() && !ask.force.unwrap_or(false) {
        let problem =
            "`owner`, `if_generation` or `force` must be given with an address, so that nobody else's is released";
        return Err(RpcError::invalid("owner", problem));
    }
    let target = input::target(ask.address, ask.owner, ask.scope, ask.slot, ask.if_generation);
    let (force, strict) = (ask.force.unwrap_or(false), ask.strict.unwrap_or(false));
    Ok(Errand::One(ask.network, Command::Release(Box::new(Release { target, force, strict }))))
}

pub(super) fn renew(ask: params::IpRenew) -> Result<Errand, RpcError> {
    forms::says_which(ask.address, ask.owner.as_ref())?;
    let target = input::target(ask.address, ask.owner, ask.scope, ask.slot, ask.if_generation);
    let ttl = ask.ttl_seconds.0.map(|ttl| ttl.get());
    Ok(Errand::One(ask.network, Command::Renew(Box::new(target), ttl)))
}

pub(super) fn bind(ask: params::IpBind) -> Result<Errand, RpcError> {
    forms::says_which(ask.address, ask.owner.as_ref())?;
    let target = input::target(ask.address, ask.owner, ask.scope.clone(), ask.slot, ask.if_generation);
    if let (Some(network), Some(_), Some(_)) = (&ask.network, &target.address, &target.owner) {
        let network = input::network_text(network);
        let target = Box::new((target, ask.claimant));
        return Ok(Errand::act(vec![network.clone()], Job::Bind { network, target }));
    }
    let command = Command::Bind(Box::new(target), ask.claimant);
    in_network_or_located(ask.network, ask.address, ask.scope, command)
}

pub(super) fn unbind(ask: params::IpUnbind) -> Result<Errand, RpcError> {
    forms::says_which(ask.address, ask.owner.as_ref())?;
    let target = input::target(ask.address, ask.owner, ask.scope.clone(), ask.slot, ask.if_generation);
    let command = Command::Unbind(Box::new(target), Some(ask.claimant));
    in_network_or_located(ask.network, ask.address, ask.scope, command)
}

pub(super) fn update(ask: params::IpUpdate) -> Result<Errand, RpcError> {
    forms::says_which(ask.address, ask.owner.as_ref())?;
    let target = input::target(ask.address, ask.owner, ask.scope, ask.slot, ask.if_generation);
    let set = input::reservation_patch(ask.set);
    forms::says_what(&set)?;
    Ok(Errand::One(ask.network, Command::Update(Box::new(target), Box::new(set))))
}

pub(super) fn transfer(ask: params::IpTransfer) -> Result<Errand, RpcError> {
    let transfer = Transfer {
        address: ask.address,
        from: (ask.scope.unwrap_or_default(), ask.owner, None),
        to: input::holder(ask.to.owner, ask.to.scope, ask.to.slot),
        exchange: ask.exchange.unwrap_or(false),
        if_generation: ask.if_generation.map(|serial| Generation(serial.get())),
    };
    Ok(Errand::One(ask.network, Command::Transfer(Box::new(transfer))))
}

pub(super) fn decline(ask: params::IpDecline) -> Result<Errand, RpcError> {
    let decline = Decline {
        address: ask.address,
        from: (ask.scope.unwrap_or_default(), ask.owner, ask.slot),
        seen: ask.seen.map(|seen| seen.into_inner()).unwrap_or_default(),
        probation_seconds: ask.probation_seconds.map_or(PROBATION_SECONDS, |seconds| seconds.get()),
        again: ask.again.unwrap_or(false),
    };
    Ok(Errand::One(ask.network, Command::Decline(Box::new(decline))))
}

pub(super) fn get(ask: params::IpGet) -> Result<Errand, RpcError> {
    Ok(match (ask.network, ask.realm) {
        (Some(_), Some(_)) => {
            return Err(RpcError::invalid("realm", "`realm` and `network` exclude each other; name one of them"));
        }
        (Some(network), None) => Errand::One(network, Command::Get(ask.address)),
        (None, realm) => {
            let realm = Some(realm.unwrap_or_else(Name::default_realm));
            Errand::all(Job::Find { realm, address: ask.address })
        }
    })
}

pub(super) fn release_all_of(ask: params::OwnerRelease) -> Result<Errand, RpcError> {
    let network = ask.network.as_ref().map(input::network_text);
    let scope = ask.scope.unwrap_or_default();
    Ok(Errand::over(network.clone(), Job::ReleaseOwner { scope, owner: ask.owner, network }))
}

/// `ip.bind` and `ip.unbind` may leave the network out where address and scope are given.
fn in_network_or_located(
    network: Option<NetworkRef>,
    address: Option<Address>,
    scope: Option<Scope>,
    command: Command,
) -> Result<Errand, RpcError> {
    match (network, address, scope) {
        (Some(network), _, _) => Ok(Errand::One(network, command)),
        (None, Some(address), Some(scope)) => Ok(Errand::all(Job::Located { address, scope, command })),
        (None, None, _) | (None, Some(_), None) => {
            Err(RpcError::invalid("network", "`network` may be left out only where `address` and `scope` are given"))
        }
    }
}
