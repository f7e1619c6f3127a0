//! Pools: ranges of a subnet from which addresses are given. They lie inside the subnet and never overlap.
//!
//! Reservations do not belong to a pool, they lie at addresses; so no change of pools takes anything from anybody. But a
//! repeated request names a pool as it was, so [`replace`] remembers former pools for as long as something that was granted
//! in them may be held.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ConfigDraft, FirstRefusal, empty_set, patch, patch_option};
use crate::core::address::{Address, Cidr, Range};
use crate::core::command::{PoolInput, PoolPatch, PoolRef, PoolRemoval, SubnetRef};
use crate::core::disjoint::Disjoint;
use crate::core::network::Network;
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::{Missing, Refusal, members};
use crate::core::state::{EventKind, PastPool, PoolConfig, PoolKind, SubnetConfig};
use crate::core::types::{Generation, Name, SubnetId};
use crate::limits;

/// `pool.add`.
pub(super) fn add(
    mut draft: ConfigDraft<'_>,
    input: &PoolInput,
    subnet: Option<&SubnetRef>,
    if_absent: bool,
) -> Result<Decision, Refusal> {
    let (range, subnet) = match (input.range, subnet) {
        (None, None) => {
            return draft
                .refused(Refusal::invalid("range", "is missing; name a range, or a `subnet` for the whole of it"));
        }
        (Some(_), Some(_)) => {
            return draft.refused(Refusal::invalid("range", "and `subnet` exclude each other; give only one of them"));
        }
        (None, Some(wanted)) => match draft.network.subnet(wanted) {
            Ok(subnet) => (subnet.cidr.range(), Arc::clone(subnet)),
            Err(refusal) => return draft.refused(refusal),
        },
        (Some(range), None) => match home_of(&draft, range) {
            Ok(subnet) => (range, subnet),
            Err(refusal) => return draft.refused(refusal),
        },
    };
    if let Some(index) = subnet.pools.iter().position(|pool| pool.range == range).filter(|_| if_absent) {
        let differs = differs_from(&subnet, &subnet.pools[index], input);
        if !differs.is_empty() {
            draft.refuse(Refusal::NameTaken {
                what: format!("pool {range} of network `{}`", draft.config.name),
                differs: members(differs),
            });
        }
        draft.verdict.end()?;
        return Ok(Decision { steps: Vec::new(), outcome: Outcome::Pool { subnet, index, created: false } });
    }
    check_overlap(&subnet.pools, None, range, &draft.config.name, &mut draft.verdict);
    let mut subnet = SubnetConfig::clone(&subnet);
    let mut pools = subnet.pools.clone();
    pools.push(pool_of(input, range, draft.network.next_generation()));
    replace(draft.network, &mut subnet, pools);
    let id = subnet.id;
    draft.put(subnet);
    draft.check_bounds("range");
    answer(draft, id, range, true)
}

/// `pool.modify`. The range may change within its subnet.
pub(super) fn modify(mut draft: ConfigDraft<'_>, wanted: &PoolRef, set: &PoolPatch) -> Result<Decision, Refusal> {
    if *set == PoolPatch::default() {
        draft.refuse(empty_set());
    }
    let found = match find(&draft.subnets, wanted) {
        Ok(found) => found,
        Err(refusal) => return draft.refused(refusal),
    };
    let [(subnet, index)] = &found[..] else {
        let problem = format!("names {} pools of network `{}`; name one by its range", found.len(), draft.config.name);
        return draft.refused(Refusal::invalid("pool", problem));
    };
    let range = set.range.unwrap_or(subnet.pools[*index].range);
    if !subnet.cidr.range().covers(range) {
        let problem =
            format!("pool {range} reaches outside subnet {}; a pool may move within its subnet only", subnet.cidr);
        draft.refuse(Refusal::OutOfRange { problem, address: None });
    }
    check_overlap(&subnet.pools, Some(*index), range, &draft.config.name, &mut draft.verdict);
    let mut subnet = SubnetConfig::clone(subnet);
    let mut pools = subnet.pools.clone();
    let pool = &mut pools[*index];
    pool.range = range;
    patch_option(&mut pool.name, &set.name);
    patch(&mut pool.kind, &set.kind, PoolKind::Dynamic);
    patch(&mut pool.draining, &set.draining, false);
    // A modification that changes nothing must not raise the version by forgetting former pools either.
    if pools != subnet.pools {
        replace(draft.network, &mut subnet, pools);
    }
    let id = subnet.id;
    draft.put(subnet);
    answer(draft, id, range, false)
}

/// `pool.remove`. What is held stays held.
pub(super) fn remove(mut draft: ConfigDraft<'_>, removal: &PoolRemoval) -> Result<Decision, Refusal> {
    let touched = match removal {
        PoolRemoval::Range(range) => subtract(&draft.subnets, *range),
        PoolRemoval::Pool(wanted) => find(&draft.subnets, wanted).map(|found| without(&found)),
        PoolRemoval::Subnet(wanted) => draft.network.subnet(wanted).and_then(|subnet| match subnet.pools.len() {
            0 => Err(Refusal::NotFound {
                missing: Missing::Pool,
                what: format!("in subnet {}", subnet.cidr),
                hint: Some("network.get shows the existing pools".to_owned()),
            }),
            _ => Ok(vec![(Arc::clone(subnet), Vec::new())]),
        }),
    };
    let touched = match touched {
        Ok(touched) => touched,
        Err(refusal) => return draft.refused(refusal),
    };
    for (subnet, pools) in touched {
        let mut subnet = SubnetConfig::clone(&subnet);
        replace(draft.network, &mut subnet, pools);
        draft.put(subnet);
    }
    draft.check_bounds("range");
    draft.finish(EventKind::NetworkChanged)?.answer(Outcome::Done)
}

fn answer(draft: ConfigDraft<'_>, id: SubnetId, range: Range, created: bool) -> Result<Decision, Refusal> {
    let done = draft.finish(EventKind::NetworkChanged)?;
    let subnet = done.subnet(id);
    let index = subnet.pools.iter().position(|pool| pool.range == range).expect("the draft put this pool");
    done.answer(Outcome::Pool { subnet, index, created })
}

/// Members in which a pool differs from what is asked for. What is not said is not compared.
pub fn differs_from(subnet: &SubnetConfig, pool: &PoolConfig, input: &PoolInput) -> Vec<&'static str> {
    let mut differs = Vec::new();
    let mut compare = |member, equal: bool| {
        if !equal {
            differs.push(member);
        }
    };
    compare("range", pool.range == input.range.unwrap_or(subnet.cidr.range()));
    compare("name", input.name.is_none() || pool.name == input.name);
    compare("kind", input.kind.is_none_or(|kind| kind == pool.kind));
    compare("draining", input.draining.is_none_or(|draining| draining == pool.draining));
    differs
}

/// The pools of a subnet as asked for. If none are given, one spans the subnet.
pub(super) fn build(
    network: &Name,
    cidr: Cidr,
    inputs: Option<&[PoolInput]>,
    since: Generation,
    path: &str,
    verdict: &mut FirstRefusal,
) -> Vec<PoolConfig> {
    let Some(inputs) = inputs else {
        return vec![PoolConfig { range: cidr.range(), name: None, kind: PoolKind::Dynamic, draining: false, since }];
    };
    let mut placed = Disjoint::default();
    let mut pools = Vec::with_capacity(inputs.len().min(limits::POOLS_MAX));
    for (index, input) in inputs.iter().enumerate() {
        let range = input.range.unwrap_or(cidr.range());
        if !cidr.range().covers(range) {
            let problem =
                format!("{path}pools[{index}]: pool {range} reaches outside subnet {cidr}; name a range inside it");
            verdict.refuse(Refusal::OutOfRange { problem, address: None });
            continue;
        }
        if let Some((with, ())) = placed.overlapping(range).next() {
            verdict.refuse(Refusal::PoolOverlap { asked: range, with, network: network.clone() });
            continue;
        }
        placed.insert(range, ());
        pools.push(pool_of(input, range, since));
    }
    pools
}

fn pool_of(input: &PoolInput, range: Range, since: Generation) -> PoolConfig {
    PoolConfig {
        range,
        name: input.name.clone(),
        kind: input.kind.unwrap_or(PoolKind::Dynamic),
        draining: input.draining.unwrap_or(false),
        since,
    }
}

/// The pools of a subnet that grows or shrinks: one that spans the subnet follows it, others lose what is outside.
pub(super) fn trimmed(pools: &[PoolConfig], from: Cidr, to: Cidr) -> Vec<PoolConfig> {
    pools
        .iter()
        .filter_map(|pool| {
            let range = if pool.range == from.range() { Some(to.range()) } else { pool.range.intersection(to.range()) };
            range.map(|range| PoolConfig { range, ..pool.clone() })
        })
        .collect()
}

/// Are these the same pools, regardless of their age?
pub(super) fn are_alike(pools: &[PoolConfig], others: &[PoolConfig]) -> bool {
    let said = |pool: &PoolConfig| (pool.range, pool.kind, pool.draining);
    let alike = |(pool, other): (&PoolConfig, &PoolConfig)| said(pool) == said(other) && pool.name == other.name;
    pools.len() == others.len() && pools.iter().zip(others).all(alike)
}

/// Replaces the pools of a subnet, and remembers those that change while something is held in them.
///
/// A pool stays the same one as long as its range and name do: it keeps its `since` if only kind or draining change.
pub(super) fn replace(network: &Network, subnet: &mut SubnetConfig, mut pools: Vec<PoolConfig>) {
    let now = network.next_generation();
    let mut gone: BTreeMap<Range, PoolConfig> =
        std::mem::take(&mut subnet.pools).into_iter().map(|pool| (pool.range, pool)).collect();
    for pool in &mut pools {
        let same = gone.get(&pool.range).filter(|old| old.name == pool.name).map(|old| old.since);
        pool.since = same.unwrap_or(now);
        if same.is_some() {
            gone.remove(&pool.range);
        }
    }
    subnet.pools = pools;
    // In a pool that is as young as the next grant, nothing has been granted.
    let past = gone.into_values().filter(|old| old.since < now);
    subnet.past_pools.extend(past.map(|old| PastPool {
        range: old.range,
        name: old.name,
        since: old.since,
        until: now,
    }));
    let ranges: Vec<Range> = subnet.past_pools.iter().map(|past| past.range).collect();
    let mut used = which_hold(&ranges, |range| network.first_held_in(range)).into_iter();
    subnet.past_pools.retain(|_| used.next().unwrap_or(true));
    let oldest = subnet.past_pools.len().saturating_sub(limits::PAST_POOLS_MAX);
    subnet.past_pools.drain(..oldest);
}

/// For each range, is anything in it reserved? `first_held` returns where the first reservation of a range begins. Former
/// pools overlap, and much may be cooling in them, so what was searched in vain for one is not searched again for another.
pub(super) fn which_hold(ranges: &[Range], mut first_held: impl FnMut(Range) -> Option<Address>) -> Vec<bool> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_unstable_by_key(|at| ranges[*at].first());
    let mut hold = vec![false; ranges.len()];
    // The end of what earlier searches found unreserved. The next range begins no earlier than they did, so its search
    // starts after it.
    let mut free: Option<Address> = None;
    for at in order {
        let range = ranges[at];
        let from = match free.filter(|last| *last >= range.first()) {
            Some(last) => last.next(),
            None => Some(range.first()),
        };
        let Some(rest) = from.and_then(|first| Range::new(first, range.last())) else { continue };
        let found = first_held(rest);
        hold[at] = found.is_some();
        let looked_at = found.map_or(Some(range.last()), Address::previous).filter(|last| *last >= rest.first());
        free = free.max(looked_at);
    }
    hold
}

/// Makes the pools of a subnet that arrives from another network as young as `now`: what was granted there belongs to former
/// pools. A subnet without pools gets a former one all the same, because `now` goes with the subnet.
pub(super) fn carry_over(subnet: &mut SubnetConfig, now: Generation) {
    let mut past = Vec::with_capacity(subnet.pools.len().max(1));
    for pool in subnet.pools.iter_mut().filter(|pool| pool.since < now) {
        past.push(PastPool { range: pool.range, name: pool.name.clone(), since: pool.since, until: now });
        pool.since = now;
    }
    if subnet.pools.is_empty() {
        past.push(PastPool { range: subnet.cidr.range(), name: None, since: Generation(now.0 - 1), until: now });
    }
    subnet.past_pools.append(&mut past);
    let oldest = subnet.past_pools.len().saturating_sub(limits::PAST_POOLS_MAX);
    subnet.past_pools.drain(..oldest);
}

fn check_overlap(
    pools: &[PoolConfig],
    except: Option<usize>,
    range: Range,
    network: &Name,
    verdict: &mut FirstRefusal,
) {
    let others = pools.iter().enumerate().filter(|(index, _)| Some(*index) != except).map(|(_, pool)| pool.range);
    if let Some(with) = others.filter(|other| other.overlaps(range)).min() {
        verdict.refuse(Refusal::PoolOverlap { asked: range, with, network: network.clone() });
    }
}

/// The subnet that contains the whole range.
fn home_of(draft: &ConfigDraft<'_>, range: Range) -> Result<Arc<SubnetConfig>, Refusal> {
    let network = &draft.config.name;
    let problem = match draft.network.subnet_over(range) {
        Some(subnet) if subnet.cidr.range().covers(range) => return Ok(Arc::clone(subnet)),
        Some(subnet) => format!(
            "pool {range} reaches outside subnet {} of network `{network}`; a pool lies inside one subnet",
            subnet.cidr
        ),
        None => format!("pool {range} lies in no subnet of network `{network}`; add one with subnet.add first"),
    };
    Err(Refusal::OutOfRange { problem, address: None })
}

/// All pools that are named, with their subnets; at least one.
fn find(subnets: &[Arc<SubnetConfig>], wanted: &PoolRef) -> Result<Vec<(Arc<SubnetConfig>, usize)>, Refusal> {
    let is_wanted = |pool: &PoolConfig| match wanted {
        PoolRef::Range(range) => pool.range == *range,
        PoolRef::Named(name) => pool.name.as_ref() == Some(name),
    };
    let mut found = Vec::new();
    for subnet in subnets {
        let indexes = subnet.pools.iter().enumerate().filter(|(_, pool)| is_wanted(pool)).map(|(index, _)| index);
        found.extend(indexes.map(|index| (Arc::clone(subnet), index)));
    }
    match (found.is_empty(), wanted) {
        (false, _) => Ok(found),
        (true, PoolRef::Range(range)) => Err(Refusal::not_found(Missing::Pool, range)),
        (true, PoolRef::Named(name)) => Err(Refusal::not_found(Missing::Pool, name)),
    }
}

type Remaining = Vec<(Arc<SubnetConfig>, Vec<PoolConfig>)>;

/// What remains of the subnets that have the named pools.
fn without(named: &[(Arc<SubnetConfig>, usize)]) -> Remaining {
    named
        .chunk_by(|(one, _), (other, _)| one.id == other.id)
        .map(|named| {
            let subnet = &named[0].0;
            let is_named = |at: usize| named.binary_search_by_key(&at, |(_, index)| *index).is_ok();
            let rest = subnet.pools.iter().enumerate().filter(|(at, _)| !is_named(*at));
            (Arc::clone(subnet), rest.map(|(_, pool)| pool.clone()).collect())
        })
        .collect()
}

/// What remains of the subnets whose pools lose addresses. The parts of a split pool stand where the pool stood.
fn subtract(subnets: &[Arc<SubnetConfig>], range: Range) -> Result<Remaining, Refusal> {
    let touched: Remaining = subnets
        .iter()
        .filter(|subnet| subnet.pools.iter().any(|pool| pool.range.overlaps(range)))
        .map(|subnet| {
            let parts = subnet
                .pools
                .iter()
                .flat_map(|pool| pool.range.without(range).map(|part| PoolConfig { range: part, ..pool.clone() }));
            (Arc::clone(subnet), parts.collect())
        })
        .collect();
    if touched.is_empty() { Err(Refusal::not_found(Missing::Pool, range)) } else { Ok(touched) }
}
