//! What really happened: the lines of the register, with which everything is compared that clients were shown.
//!
//! A request takes effect, or looks, at one moment between its sending and its answer, and what it shows cannot be lost. So
//! what was shown of an address must have stood there at some place of its shard's line: not before anything that was
//! confirmed when the request was sent, and not after anything that was unconfirmed when the answer came. A list names its
//! place. The rule is exact: it excludes what was in doubt, what was stale, and what a replaced owner wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use allod::actors::shard_of;
use allod::core::address::{Address, Cidr};
use allod::core::state::{Entry, Key, State, Step};
use allod::core::types::{NetworkId, Place};
use allod::store::TransactionId;

use super::register::{Register, Written};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    pub generation: u64,
    pub scope: String,
    pub owner: String,
    pub slot: String,
    pub obsolete: bool,
    last: u128,
}

/// What is held in a network, by first address.
pub type Held = BTreeMap<u128, Holding>;

/// What a client was shown of an address.
#[derive(Debug, Clone)]
pub struct Shown {
    pub network: String,
    pub address: u128,
    pub sent_ns: u64,
    pub told_ns: u64,
    pub generation: Option<u64>,
}

/// A list that a client was given: addresses and generations.
#[derive(Debug, Clone)]
pub struct Listed {
    pub network: String,
    pub held: BTreeMap<u128, u64>,
    pub at: Place,
    pub sent_ns: u64,
    pub told_ns: u64,
}

/// A client was told that there is no room.
#[derive(Debug, Clone)]
pub struct Full {
    pub network: String,
    /// First and last address of the pool.
    pub pool: (u128, u128),
    pub sent_ns: u64,
    pub told_ns: u64,
}

/// A client that held nothing waited for one address of each of two networks.
#[derive(Debug, Clone)]
pub struct Waited {
    pub owner: String,
    pub sent_ns: u64,
    pub told_ns: u64,
    /// Whether it got them; otherwise its time was over.
    pub granted: bool,
}

/// A step with an event: the batch's number and the step's place in it, the address if it concerns one, and what is held
/// there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub at: (u64, u32),
    pub address: Option<u128>,
    pub generation: Option<u64>,
    pub confirmed_ns: u64,
}

/// Successive states, each with the time since when it is certain.
type Times<T> = Vec<(u64, T)>;

pub struct Truth<'a> {
    register: &'a Register,
    ids: BTreeMap<String, NetworkId>,
}

pub fn number(address: Address) -> u128 {
    match address {
        Address::V4(address) => u128::from(address),
        Address::V6(address) => address,
    }
}

pub fn text(address: u128) -> String {
    Ipv4Addr::from(address as u32).to_string()
}

fn put(held: &mut Held, step: &Step) -> Option<(u128, u128)> {
    let Key::Address(address) = step.key else { return None };
    let first = number(address);
    let before = held.remove(&first).map(|held| held.last);
    if let Some(State::Entry(Entry::Held(one))) = &step.state {
        let last = Cidr::new(address, one.prefix_length).map_or(first, |cidr| number(cidr.range().last()));
        let holding = Holding {
            generation: one.generation.0,
            scope: one.holder.scope.to_string(),
            owner: one.holder.owner.to_string(),
            slot: one.holder.slot.to_string(),
            obsolete: one.obsolete.is_some(),
            last,
        };
        held.insert(first, holding);
        return Some((first, before.unwrap_or(last).max(last)));
    }
    Some((first, before.unwrap_or(first)))
}

fn at(held: &Held, address: u128) -> Option<u64> {
    let (_, holding) = held.range(..=address).next_back()?;
    (holding.last >= address).then_some(holding.generation)
}

/// Was `so` true at a moment between these two?
fn was<T: Default>(times: &[(u64, T)], sent_ns: u64, told_ns: u64, so: impl Fn(&T) -> bool) -> bool {
    let first = times.partition_point(|(since_ns, _)| *since_ns <= sent_ns);
    let begin = match first.checked_sub(1) {
        Some(before) => so(&times[before].1),
        None => so(&T::default()),
    };
    begin || times[first..].iter().take_while(|(since_ns, _)| *since_ns <= told_ns).any(|(_, it)| so(it))
}

impl<'a> Truth<'a> {
    pub fn new(register: &'a Register, ids: BTreeMap<String, NetworkId>) -> Self {
        Self { register, ids }
    }

    fn line(&self, network: NetworkId) -> &'a [Written] {
        let lines = self.register.lines();
        &lines[usize::from(shard_of(network, lines.len() as u16).0)]
    }

    /// All steps of a network in order, each with its batch's number, its place in the batch, and the batch.
    fn steps(&self, network: NetworkId) -> impl Iterator<Item = ((u64, u32), &'a Step, &'a Written)> {
        self.line(network).iter().flat_map(move |written| {
            let steps = written.batch.acts.iter().flat_map(|act| act.steps.iter().map(move |step| (act.network, step)));
            let numbered = steps.zip(1..).filter(move |((of, _), _)| *of == network);
            numbered.map(move |((_, step), at)| ((written.batch.seq.0, at), step, written))
        })
    }

    /// None unless this is a place of the line; otherwise the batch that ends there, if there is one.
    fn on_line(&self, network: NetworkId, place: &Place) -> Option<Option<&'a Written>> {
        if place.seq == 0 {
            return Some(None);
        }
        let written = self.line(network).iter().find(|written| written.batch.seq.0 == place.seq)?;
        (written.digest.0 == place.digest).then_some(Some(written))
    }

    /// Is this a place of the line of the network's shard?
    pub fn has(&self, network: &str, place: &Place) -> bool {
        self.ids.get(network).is_some_and(|&id| self.on_line(id, place).is_some())
    }

    /// What is held at a place, or at the end of the line if none is given.
    pub fn held(&self, network: &str, place: Option<&Place>) -> Held {
        let mut held = Held::new();
        let Some(&id) = self.ids.get(network) else { return held };
        let end = place.map_or((u64::MAX, u32::MAX), |place| (place.seq, place.steps.unwrap_or(u32::MAX)));
        for (_, step, _) in self.steps(id).take_while(|(at, ..)| *at <= end) {
            put(&mut held, step);
        }
        held
    }

    /// Events of a network after a place.
    pub fn events(&self, network: &str, place: &Place) -> Vec<Event> {
        let Some(&id) = self.ids.get(network) else { return Vec::new() };
        let begin = (place.seq, place.steps.unwrap_or(u32::MAX));
        let behind = self.steps(id).filter(|(at, step, _)| *at > begin && step.event.is_some());
        let event = |(at, step, written): ((u64, u32), &Step, &Written)| Event {
            at,
            address: match step.key {
                Key::Address(address) => Some(number(address)),
                Key::Config | Key::Subnet(_) | Key::Deployment => None,
            },
            generation: match &step.state {
                Some(State::Entry(Entry::Held(held))) => Some(held.generation.0),
                _ => None,
            },
            confirmed_ns: written.confirmed_ns.unwrap_or(u64::MAX),
        };
        behind.map(event).collect()
    }

    pub fn judge_shown(&self, shown: &[Shown], problems: &mut Vec<String>) {
        for (name, &id) in &self.ids {
            let mut times: BTreeMap<u128, Times<Option<u64>>> = BTreeMap::new();
            let mut held = Held::new();
            for (_, step, written) in self.steps(id) {
                let Some((first, last)) = put(&mut held, step) else { continue };
                let since_ns = written.confirmed_ns.unwrap_or(u64::MAX);
                for address in first..=last.min(first + 255) {
                    times.entry(address).or_default().push((since_ns, at(&held, address)));
                }
            }
            for one in shown.iter().filter(|one| one.network == *name) {
                let none = Times::new();
                let there = times.get(&one.address).unwrap_or(&none);
                if !was(there, one.sent_ns, one.told_ns, |it| *it == one.generation) {
                    let Shown { sent_ns, told_ns, generation, .. } = one;
                    let address = text(one.address);
                    problems.push(format!(
                        "{address} in {name} was shown as {generation:?} between {sent_ns} and {told_ns}, which it was not: {there:?}"
                    ));
                }
            }
        }
    }

    /// Judges lists: each must be what was held at its place, and that place neither stale nor in doubt.
    pub fn judge_lists(&self, lists: &[Listed], problems: &mut Vec<String>) {
        for list in lists {
            let Some(&id) = self.ids.get(&list.network) else { continue };
            let Some(last) = self.on_line(id, &list.at) else {
                problems.push(format!("a list is of a line that was cut off: {list:?}"));
                continue;
            };
            if last.is_some_and(|last| last.confirmed_ns.is_none_or(|since_ns| since_ns > list.told_ns)) {
                problems.push(format!("a list shows what was in doubt still: {list:?}"));
            }
            let end = (list.at.seq, list.at.steps.unwrap_or(u32::MAX));
            let missed = self.steps(id).find(|(at, _, written)| {
                *at > end && written.confirmed_ns.is_some_and(|since_ns| since_ns < list.sent_ns)
            });
            if let Some((at, ..)) = missed {
                problems
                    .push(format!("a list does not know of {at:?}, which was there before it was asked for: {list:?}"));
            }
            let held: BTreeMap<u128, u64> = self
                .held(&list.network, Some(&list.at))
                .iter()
                .map(|(first, held)| (*first, held.generation))
                .collect();
            if held != list.held {
                problems.push(format!("a list is not what was held at its place, {held:?}: {list:?}"));
            }
        }
    }

    /// Judges refusals for want of room: there must have been a moment without any.
    pub fn judge_full(&self, refusals: &[Full], problems: &mut Vec<String>) {
        for (name, &id) in &self.ids {
            let of_it: Vec<&Full> = refusals.iter().filter(|full| full.network == *name).collect();
            let Some((first, last)) = of_it.first().map(|full| full.pool) else { continue };
            let mut held = Held::new();
            let mut taken: Times<u128> = Vec::new();
            for (_, step, written) in self.steps(id) {
                if put(&mut held, step).is_some() {
                    let inside = held.iter().map(|(from, held)| (*from.max(&first), held.last.min(last)));
                    let count = inside.filter(|(from, to)| from <= to).map(|(from, to)| to - from + 1).sum();
                    taken.push((written.confirmed_ns.unwrap_or(u64::MAX), count));
                }
            }
            for full in of_it {
                if !was(&taken, full.sent_ns, full.told_ns, |count| *count == last - first + 1) {
                    problems.push(format!("there was room in {name} all the while: {full:?}, {taken:?}"));
                }
            }
        }
    }

    /// Judges waits: a waiter holds nothing meanwhile, and gets everything by one act or nothing.
    pub fn judge_waits(&self, waits: &[Waited], problems: &mut Vec<String>) {
        let mut grants: BTreeMap<&str, Vec<(u64, Option<TransactionId>)>> = BTreeMap::new();
        for written in self.register.lines().iter().flatten() {
            for act in &written.batch.acts {
                for step in &act.steps {
                    let Some(State::Entry(Entry::Held(held))) = &step.state else { continue };
                    let confirmed_ns = written.confirmed_ns.unwrap_or(u64::MAX);
                    grants.entry(held.holder.owner.as_str()).or_default().push((confirmed_ns, act.transaction));
                }
            }
        }
        for wait in waits {
            let all = grants.get(wait.owner.as_str()).map_or(&[][..], Vec::as_slice);
            let mut got = all.iter().filter(|(at_ns, _)| (wait.sent_ns..=wait.told_ns).contains(at_ns));
            let right = match wait.granted {
                true => matches!(
                    (got.next(), got.next(), got.next()),
                    (Some((_, Some(one))), Some((_, Some(other))), None) if one == other
                ),
                false => got.next().is_none(),
            };
            if !right {
                problems.push(format!("whoever waited did not get two by one act, or nothing: {wait:?}: {all:?}"));
            }
        }
    }

    /// Judges acts over several networks: all of each act must be there, or nothing.
    pub fn judge_transactions(&self, problems: &mut Vec<String>) {
        let mut done: BTreeMap<u128, BTreeSet<NetworkId>> = BTreeMap::new();
        for act in self.register.lines().iter().flatten().flat_map(|written| &written.batch.acts) {
            if let Some(TransactionId(transaction)) = act.transaction.filter(|_| !act.steps.is_empty()) {
                done.entry(transaction).or_default().insert(act.network);
            }
        }
        for (transaction, networks) in &done {
            let meant = &self.register.meant()[transaction];
            if networks != meant {
                problems.push(format!("half of transaction {transaction:032x} is there: {networks:?} of {meant:?}"));
            }
        }
    }

    /// Instances of a deployment that want the same in two networks must have the same in both.
    pub fn judge_alike(&self, scope: &str, networks: [&str; 2], problems: &mut Vec<String>) {
        let [one, other] = networks.map(|network| {
            let mut counts: BTreeMap<(String, bool), usize> = BTreeMap::new();
            for holding in self.held(network, None).into_values().filter(|holding| holding.scope == scope) {
                *counts.entry((holding.owner, holding.obsolete)).or_default() += 1;
            }
            counts
        });
        if one != other {
            problems
                .push(format!("half of {scope} is there: {one:?} in {}, {other:?} in {}", networks[0], networks[1]));
        }
    }
}
