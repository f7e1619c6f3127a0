//! Requests about networks and what is in them.

use compact_str::CompactString;

use super::{Errand, act, configure, version};
use crate::actors::coordinator::Job;
use crate::core::address::Range;
use crate::core::command::{CellSize, Command, Configure, MapFormat, PoolInput, PoolRemoval, ReservedInput};
use crate::core::types::Name;
use crate::server::render::Shape;
use crate::server::{forms, input};
use crate::wire::params::network::MapFormat as WireMap;
use crate::wire::{RpcError, params};

pub(super) fn create(ask: params::NetworkCreate, shape: &mut Shape) -> Result<Errand, RpcError> {
    if ask.if_version.is_some() {
        return Err(RpcError::invalid("if_version", "`if_version` has no meaning for a network that is being created"));
    }
    let if_absent = ask.if_absent.unwrap_or(false);
    shape.if_absent = if_absent;
    let name = CompactString::from(ask.name.as_str());
    Ok(Errand::act(vec![name], Job::Create { input: Box::new(input::network(ask)), if_absent }))
}

pub(super) fn update(ask: params::NetworkUpdate) -> Result<Errand, RpcError> {
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

pub(super) fn delete(ask: params::NetworkDelete) -> Result<Errand, RpcError> {
    let (force, purge) = (ask.force.unwrap_or(false), ask.purge.unwrap_or(false));
    Ok(act(&ask.network, Configure::Delete { force, purge }, ask.if_version, None))
}

pub(super) fn map(ask: params::NetworkMap) -> Result<Errand, RpcError> {
    let format = match (ask.format.unwrap_or(WireMap::Text), ask.cell_prefix_length) {
        (WireMap::Text, None) => MapFormat::Text,
        (WireMap::Runs, None) => MapFormat::Runs,
        (WireMap::Cells, Some(length)) => MapFormat::Cells(CellSize::Prefix(length.length())),
        (WireMap::Cells, None) => MapFormat::Cells(CellSize::Fitting),
        (WireMap::Text | WireMap::Runs, Some(_)) => {
            return Err(RpcError::invalid("cell_prefix_length", "`cell_prefix_length` goes with format `cells` only"));
        }
    };
    let (subnet, pool) = (ask.subnet.map(input::subnet_ref), ask.pool.map(input::pool_ref));
    let part = Box::new((subnet, pool));
    Ok(match format {
        MapFormat::Cells(size) => {
            let network = input::network_text(&ask.network);
            Errand::act(vec![network.clone()], Job::Map { network, part, size })
        }
        MapFormat::Text | MapFormat::Runs => Errand::One(ask.network, Command::Map { part, format, from: None }),
    })
}

pub(super) fn subnet_add(ask: params::SubnetAdd, shape: &mut Shape) -> Result<Errand, RpcError> {
    let if_absent = ask.if_absent.unwrap_or(false);
    shape.if_absent = if_absent;
    let (network, if_version) = (ask.network.clone(), ask.if_version);
    let input = Box::new(input::subnet_add(ask));
    forms::subnet(&input)?;
    Ok(act(&network, Configure::SubnetAdd { input, if_absent }, if_version, None))
}

pub(super) fn subnet_modify(ask: params::SubnetModify) -> Result<Errand, RpcError> {
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

pub(super) fn subnet_move(ask: params::SubnetMove) -> Result<Errand, RpcError> {
    let (from, to) = (input::network_text(&ask.network), input::network_text(&ask.to));
    let subnet = input::subnet_ref(ask.subnet);
    Ok(Errand::all(Job::Move { from, subnet, to, if_version: version(ask.if_version) }))
}

pub(super) fn subnet_remove(ask: params::SubnetRemove) -> Result<Errand, RpcError> {
    let subnet = input::subnet_ref(ask.subnet);
    Ok(act(&ask.network, Configure::SubnetRemove { subnet }, ask.if_version, None))
}

pub(super) fn pool_add(ask: params::PoolAdd, shape: &mut Shape) -> Result<Errand, RpcError> {
    let if_absent = ask.if_absent.unwrap_or(false);
    shape.if_absent = if_absent;
    match (ask.range, &ask.subnet) {
        (Some(_), Some(_)) => {
            return Err(RpcError::invalid("subnet", "`range` and `subnet` exclude each other; give only one of them"));
        }
        (None, None) => return Err(RpcError::invalid("range", "`range` or `subnet` must be given")),
        (Some(_), None) | (None, Some(_)) => {}
    }
    let kind = ask.kind.map(input::pool_kind);
    let pool = PoolInput { range: ask.range, name: ask.name, kind, draining: None };
    let subnet = ask.subnet.map(input::subnet_ref);
    Ok(configure(ask.network, Configure::PoolAdd { input: pool, subnet, if_absent }, ask.if_version))
}

pub(super) fn pool_modify(ask: params::PoolModify) -> Result<Errand, RpcError> {
    let set = Box::new(input::pool_patch(ask.set));
    forms::says_what(&*set)?;
    let change = Configure::PoolModify { pool: input::pool_ref(ask.pool), set };
    Ok(configure(ask.network, change, ask.if_version))
}

pub(super) fn pool_remove(ask: params::PoolRemove) -> Result<Errand, RpcError> {
    let removal = match (ask.range, ask.pool, ask.subnet) {
        (Some(range), None, None) => PoolRemoval::Range(range),
        (None, Some(pool), None) => PoolRemoval::Pool(input::pool_ref(pool)),
        (None, None, Some(subnet)) => PoolRemoval::Subnet(input::subnet_ref(subnet)),
        _ => return Err(RpcError::invalid("range", "exactly one of `range`, `pool` and `subnet` must be given")),
    };
    Ok(configure(ask.network, Configure::PoolRemove(removal), ask.if_version))
}

pub(super) fn reserved_remove(ask: params::ReservedRemove) -> Errand {
    // The note is for people, and merging may have changed it: it is taken, and not compared.
    let (range, reserved_for) = (ask.range, ask.r#for.map(input::reserved_for));
    configure(ask.network, Configure::ReservedRemove { range, reserved_for }, ask.if_version)
}

pub(super) fn reserved_add(ask: params::ReservedAdd) -> Result<Errand, RpcError> {
    let range: Range = ask.range;
    let note = ask.note.map(|note| note.into_inner()).unwrap_or_default();
    let reserved_for = ask.r#for.map(input::reserved_for);
    let input = Box::new(ReservedInput { range, note, reserved_for });
    Ok(configure(ask.network, Configure::ReservedAdd(input), ask.if_version))
}
