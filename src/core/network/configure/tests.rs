//! Facts about changes of configuration. Every change that a test makes is checked against [`assert_sound`].

mod network;
mod pool;
mod reserved;
mod sequences;
mod subnet;
mod subnet_move;
mod subnets;

use std::sync::Arc;

use compact_str::CompactString;

use super::create;
use crate::core::address::{Address, Cidr, Family, Range};
use crate::core::command::{
    Configure, Context, NetworkInput, NetworkPatch, Patch, PoolInput, PoolPatch, PoolRef, PoolRemoval, ReservedInput,
    SubnetInput, SubnetPatch, SubnetRef,
};
use crate::core::network::Network;
use crate::core::network::tests::subnet_input;
use crate::core::outcome::{Decision, Outcome};
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::{
    Entry, Event, EventKind, Key, NetworkConfig, Released, Reservation, State, Step, SubnetConfig,
};
use crate::core::types::{Generation, Name, NetworkId, ShardTime, SlotKey, Version, WallTime};
use crate::limits;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn range(text: &str) -> Range {
    text.parse().unwrap()
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

fn ctx(entropy: u128) -> Context {
    Context {
        now: ShardTime(1_000),
        wall: WallTime(1_700_000_000_000),
        entropy,
        mac_elsewhere: None,
        generations: Generation::default(),
    }
}

fn network_input(subnets: &[SubnetInput]) -> NetworkInput {
    NetworkInput {
        name: name("lan"),
        realm: None,
        kind: None,
        l2: None,
        policy: None,
        cooldown_seconds: None,
        cooldown_yields: None,
        static_only: None,
        protected: None,
        limits: None,
        tags: None,
        description: None,
        subnets: (!subnets.is_empty()).then(|| subnets.to_vec()),
    }
}

fn with_pools(prefix: &str, pools: &[&str]) -> SubnetInput {
    SubnetInput { pools: Some(pools.iter().map(|pool| pool_input(pool)).collect()), ..subnet_input(prefix) }
}

/// `10.0.0.0/25`, or with a name: `web=10.0.0.0/25`.
fn pool_input(text: &str) -> PoolInput {
    let (named, text) = text.split_once('=').map_or((None, text), |(named, text)| (Some(name(named)), text));
    PoolInput { range: Some(range(text)), name: named, kind: None, draining: None }
}

/// `10.0.0.0/25`, or with a note: `switches=10.0.0.0/25`.
fn reserved_input(text: &str) -> ReservedInput {
    let (note, text) = text.split_once('=').unwrap_or(("", text));
    ReservedInput { range: range(text), note: note.into(), reserved_for: None }
}

fn by_cidr(text: &str) -> SubnetRef {
    SubnetRef::Cidr(cidr(text))
}

/// A network made from its parts. Only this function knows how a network gets into memory.
fn of_parts(
    config: Arc<NetworkConfig>,
    mut subnets: Vec<Arc<SubnetConfig>>,
    entries: Vec<(Address, Entry)>,
    next_generation: Generation,
) -> Network {
    subnets.sort_by_key(|subnet| subnet.position);
    Network::of_parts(config, subnets, entries, next_generation)
}

fn all_entries(network: &Network) -> Vec<(Address, Entry)> {
    let whole = |family: Family| Range::of_bits(family, 0, family.last_bits());
    Family::ALL.into_iter().flat_map(|family| network.entries_in(whole(family))).collect()
}

/// A network with these subnets, in which generations have been given before.
fn net(subnets: &[SubnetInput]) -> Network {
    made(&network_input(subnets))
}

fn made(input: &NetworkInput) -> Network {
    let decision = create(input, NetworkId(7), ctx(7)).unwrap();
    let network = loaded(&decision.steps);
    assert_sound(&network);
    network
}

fn loaded(steps: &[Step]) -> Network {
    let mut config = None;
    let mut subnets = Vec::new();
    for step in steps {
        match &step.state {
            Some(State::Config(state)) => config = Some(Arc::clone(state)),
            Some(State::Subnet(state)) => subnets.push(Arc::clone(state)),
            Some(State::Deployment(_) | State::Entry(_)) | None => panic!("not a step of a new network: {step:?}"),
        }
    }
    of_parts(config.unwrap(), subnets, Vec::new(), Generation(100))
}

/// The network with one more entry, of the next generation.
fn put(network: &Network, at: &str, entry: impl FnOnce(Generation, u8) -> Entry) -> Network {
    let block = at.parse::<Cidr>().unwrap_or_else(|_| Cidr::containing(address(at), address(at).family().width()));
    let generation = network.next_generation();
    let mut entries = all_entries(network);
    entries.push((block.base(), entry(generation, block.length())));
    let subnets = network.subnets().to_vec();
    of_parts(Arc::clone(network.config()), subnets, entries, Generation(generation.0 + 1))
}

fn slot(owner: &str) -> SlotKey {
    SlotKey { scope: Default::default(), owner: owner.parse().unwrap(), slot: Default::default() }
}

/// The network after somebody took an address or a block.
fn held(network: &Network, at: &str, owner: &str) -> Network {
    put(network, at, |generation, prefix_length| {
        Entry::Held(Arc::new(Reservation::plain(slot(owner), generation, prefix_length, WallTime(5))))
    })
}

/// The network with a cooling address.
fn cooling(network: &Network, at: &str) -> Network {
    put(network, at, |generation, prefix_length| {
        let last = slot("gone");
        Entry::Released(Arc::new(Released {
            prefix_length,
            last,
            owner_uid: None,
            generation,
            released_at: ShardTime(1),
        }))
    })
}

/// The network after these steps; none if it has ended. Each step must expect what is there.
fn after(network: &Network, steps: &[Step]) -> Option<Network> {
    let mut config = Some(Arc::clone(network.config()));
    let mut subnets = network.subnets().to_vec();
    let mut entries = all_entries(network);
    let mut generation = network.next_generation();
    for step in steps {
        let old = match step.key {
            Key::Config => config.as_ref().map(|config| config.version.0),
            Key::Subnet(id) => subnets.iter().find(|subnet| subnet.id == id).map(|subnet| subnet.version.0),
            Key::Address(at) => entries.iter().find(|(found, _)| *found == at).map(|(_, entry)| entry.generation().0),
            Key::Deployment => panic!("a network is no deployment"),
        };
        assert_eq!(step.expect, old, "{step:?}");
        match step.key {
            Key::Config => config = None,
            Key::Subnet(id) => subnets.retain(|subnet| subnet.id != id),
            Key::Address(at) => entries.retain(|(found, _)| *found != at),
            Key::Deployment => panic!("a network is no deployment"),
        }
        match (&step.key, step.state.clone()) {
            (_, None) => {}
            (Key::Config, Some(State::Config(state))) => config = Some(state),
            (Key::Subnet(_), Some(State::Subnet(state))) => subnets.push(state),
            (Key::Address(at), Some(State::Entry(entry))) => {
                generation = generation.max(Generation(entry.generation().0 + 1));
                entries.push((*at, entry));
            }
            (key, Some(state)) => panic!("{key:?} cannot be {state:?}"),
        }
    }
    Some(of_parts(config?, subnets, entries, generation))
}

fn decide(network: &Network, change: &Configure) -> Result<Decision, Refusal> {
    network.decide_configure(change, None, ctx(u128::from(network.config().version.0) << 64))
}

/// Decides a change, applies it, and asserts what must hold for every change.
fn change(network: &Network, change: &Configure) -> Result<(Network, Outcome), Refusal> {
    let Decision { steps, outcome } = decide(network, change)?;
    let next = after(network, &steps).expect("only a delete ends a network");
    assert_step_rules(network, &steps);
    assert_sound(&next);
    Ok((next, outcome))
}

fn changed(network: &Network, wanted: &Configure) -> Network {
    change(network, wanted).unwrap_or_else(|refusal| panic!("{wanted:?}: {refusal}")).0
}

fn refusal(network: &Network, wanted: &Configure) -> Refusal {
    decide(network, wanted).expect_err("this change must be refused")
}

/// Asserts that all steps of a change carry the next version, and that only the first has the event of the network. Only
/// what is held and moves with its subnet has events of its own.
fn assert_step_rules(network: &Network, steps: &[Step]) {
    if steps.is_empty() {
        return;
    }
    assert_eq!(steps[0].key, Key::Config);
    assert!(steps[0].event.is_some());
    for step in &steps[1..] {
        let moves = |event: &Event| {
            let held = |held: &&Arc<Reservation>| step.expect == Some(held.generation.0) && step.state.is_none();
            event.kind == EventKind::Transferred
                && (event.before.as_ref().is_some_and(|before| held(&before))
                    || matches!(step.state, Some(State::Entry(Entry::Held(_)))))
        };
        assert!(step.event.as_ref().is_none_or(moves), "{step:?}");
        match &step.state {
            Some(State::Config(config)) => assert_eq!(config.version, network.next_version()),
            Some(State::Subnet(subnet)) => assert_eq!(subnet.version, network.next_version()),
            Some(State::Deployment(_) | State::Entry(_)) | None => {}
        }
    }
}

/// Asserts what holds for every configuration.
fn assert_sound(network: &Network) {
    for family in Family::ALL {
        let dhcp = network.subnets().iter().filter(|subnet| subnet.dhcp && subnet.cidr.family() == family);
        assert!(dhcp.count() <= 1, "two dhcp subnets of {family}");
    }
    for (at, subnet) in network.subnets().iter().enumerate() {
        for other in &network.subnets()[at + 1..] {
            assert!(!subnet.cidr.range().overlaps(other.cidr.range()), "{} and {}", subnet.cidr, other.cidr);
            assert!(subnet.name.is_none() || subnet.name != other.name, "two subnets {:?}", subnet.name);
            assert!(subnet.position < other.position && subnet.id != other.id);
        }
        assert_sound_inside(subnet);
    }
}

fn assert_sound_inside(subnet: &SubnetConfig) {
    let inside = subnet.cidr.range();
    for (at, pool) in subnet.pools.iter().enumerate() {
        assert!(inside.covers(pool.range), "pool {} outside {}", pool.range, subnet.cidr);
        for other in &subnet.pools[at + 1..] {
            assert!(!pool.range.overlaps(other.range), "pools {} and {}", pool.range, other.range);
        }
    }
    for pair in subnet.reserved.windows(2) {
        assert!(pair[0].range.last() < pair[1].range.first(), "reserved ranges out of order: {pair:?}");
    }
    assert!(subnet.reserved.iter().all(|reserved| inside.covers(reserved.range)));
    assert!(subnet.past_pools.len() <= limits::PAST_POOLS_MAX);
    assert!(subnet.past_pools.iter().all(|past| past.since < past.until));
}

fn pools_of(network: &Network) -> Vec<String> {
    let show = |pool: &crate::core::state::PoolConfig| match &pool.name {
        Some(name) => format!("{name}={}", pool.range),
        None => pool.range.to_string(),
    };
    network.subnets().iter().flat_map(|subnet| subnet.pools.iter().map(show)).collect()
}

fn reserved_of(network: &Network) -> Vec<String> {
    let show = |reserved: &crate::core::state::ReservedRange| match reserved.note.is_empty() {
        true => reserved.range.to_string(),
        false => format!("{}={}", reserved.note, reserved.range),
    };
    network.subnets().iter().flat_map(|subnet| subnet.reserved.iter().map(show)).collect()
}

/// Asserts that a change is refused in a certain way.
macro_rules! assert_refused {
    ($network:expr, $change:expr, $pattern:pat $(if $guard:expr)?) => {
        let wanted = $change;
        match refusal($network, &wanted) {
            $pattern $(if $guard)? => {}
            other => panic!("{wanted:?} was refused by {other:?}"),
        }
    };
}
use assert_refused;

fn add(input: SubnetInput) -> Configure {
    Configure::SubnetAdd { input: Box::new(input), if_absent: false }
}

fn add_if_absent(input: SubnetInput) -> Configure {
    Configure::SubnetAdd { input: Box::new(input), if_absent: true }
}

fn modify(subnet: &str, set: SubnetPatch) -> Configure {
    Configure::SubnetModify { subnet: by_cidr(subnet), set: Box::new(set) }
}

fn resize(subnet: &str, to: &str) -> Configure {
    modify(subnet, SubnetPatch { cidr: Some(cidr(to)), ..SubnetPatch::default() })
}

fn update(set: NetworkPatch) -> Configure {
    Configure::Update(Box::new(set))
}

fn delete(force: bool, purge: bool) -> Configure {
    Configure::Delete { force, purge }
}

fn pool_add(text: &str) -> Configure {
    Configure::PoolAdd { input: pool_input(text), subnet: None, if_absent: false }
}

fn pool_modify(pool: PoolRef, set: PoolPatch) -> Configure {
    Configure::PoolModify { pool, set: Box::new(set) }
}

fn reserve(text: &str) -> Configure {
    Configure::ReservedAdd(Box::new(reserved_input(text)))
}

/// The network after it was deleted while something was held.
fn closed(network: &Network) -> Network {
    let network = changed(network, &delete(true, false));
    assert!(network.config().closed);
    network
}
