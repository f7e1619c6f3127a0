//! One event as the history reports it, made from a step.

use std::collections::HashMap;
use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::cursor::behind;
use super::filter::Filter;
use super::names::{NamedNetwork, Names};
use crate::core::address::Address;
use crate::core::state::{Entry, EventKind, Key, NetworkConfig, Reservation, State, Step, SubnetConfig};
use crate::core::types::{Name, NetworkId, Place, ShardTime, SubnetId, WallTime};
use crate::store::{Act, Batch, Digest};

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Happened {
    /// The place after the event.
    pub place: Place,
    /// The wall time, for people.
    pub wall: WallTime,
    /// The time of its shard, in which leases are counted.
    pub time: ShardTime,
    /// Its kind.
    pub kind: EventKind,
    /// The network.
    pub network: NetworkId,
    /// The name of the network at that time.
    pub name: Name,
    /// Its realm.
    pub realm: Name,
    /// What it is about.
    pub what: What,
    /// Who asked for it.
    pub by: CompactString,
    /// Why.
    pub reason: Option<CompactString>,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// A holding.
    Holding {
        /// Its address; of a block the first.
        address: Address,
        /// As it was before; none if there was none.
        before: Option<Arc<Reservation>>,
        /// As it is now; none if it ended.
        after: Option<Arc<Reservation>>,
    },
    /// The configuration of the network.
    Network {
        /// As it is now; none: the network is gone.
        config: Option<Arc<NetworkConfig>>,
        /// Subnets that came or changed.
        subnets: Vec<Arc<SubnetConfig>>,
        /// Subnets that went.
        gone: Vec<SubnetId>,
    },
}

impl What {
    /// The holding that the event is about: as it is now, or as it was.
    pub fn holding(&self) -> Option<&Arc<Reservation>> {
        match self {
            What::Holding { before, after, .. } => after.as_ref().or(before.as_ref()),
            What::Network { .. } => None,
        }
    }
}

/// Takes batches apart into events, in their order, from a place on.
#[derive(Debug)]
pub struct Teller<'a> {
    filter: &'a Filter,
    names: &'a Names,
    /// Networks whose configuration was met on the way, and in which batch: a later batch that changed the configuration again
    /// may have been passed over.
    met: HashMap<NetworkId, (u64, Arc<NamedNetwork>)>,
}

impl<'a> Teller<'a> {
    /// Reports the events that a filter wants.
    pub fn new(filter: &'a Filter, names: &'a Names) -> Self {
        Self { filter, names, met: HashMap::new() }
    }

    /// Hands on the events of a batch after a place in its shard, at most `room` of them. Moves the place to after what was
    /// looked at. False: there was no room for all.
    pub fn tell(
        &mut self,
        batch: &Batch,
        digest: Digest,
        place: &mut Place,
        mut room: usize,
        mut told: impl FnMut(Happened),
    ) -> bool {
        let end = behind(batch, digest);
        let begin = if place.seq == end.seq { place.steps.unwrap_or(u32::MAX) } else { 0 };
        let mut at = 0;
        for act in &batch.acts {
            for step in &act.steps {
                at += 1;
                self.meet(act, step, end.seq);
                let Some(event) = step.event.as_ref().filter(|_| at > begin) else { continue };
                if !self.filter.of_network(act.network) {
                    continue;
                }
                let here = Place { steps: Some(at), ..end };
                let named = self.name_of(act.network, &here);
                let what = what(act, step, event.before.as_ref());
                let happened = Happened {
                    place: here,
                    wall: act.wall,
                    time: decided_at(batch.time, act, event.kind, &what),
                    kind: event.kind,
                    network: act.network,
                    name: named.name.clone(),
                    realm: named.realm.clone(),
                    what,
                    by: act.by.clone(),
                    reason: act.reason.clone(),
                };
                if self.filter.wants(&happened) {
                    if room == 0 {
                        *place = Place { steps: Some(at - 1), ..end };
                        return false;
                    }
                    room -= 1;
                    told(happened);
                }
            }
        }
        *place = end;
        true
    }

    fn meet(&mut self, act: &Act, step: &Step, seq: u64) {
        if let (Key::Config, Some(State::Config(config))) = (step.key, &step.state) {
            self.met.insert(act.network, (seq, Arc::new(NamedNetwork::of(config))));
        }
    }

    fn name_of(&self, network: NetworkId, place: &Place) -> Arc<NamedNetwork> {
        match self.met.get(&network) {
            // Just after a start not all names are read yet.
            Some((seq, named)) if *seq == place.seq || !self.names.knows(network) => Arc::clone(named),
            Some(_) | None => self.names.at(network, place),
        }
    }
}

/// How long before its batch was sent a lease that is renewed may have begun to have begun with the event, in ms. Decisions wait
/// a few; where they wait for longer, its end is shown as much too late.
const DECIDED_WITHIN_MS: u64 = 250;

/// The shard's time when an event was decided. A batch has the time at which it was sent, up to some milliseconds later; a lease
/// that began with the event has its own, so that its end is shown as it was answered. What is granted in place of a declined
/// address goes on with that one's lease, and a renewal that is brought back after a failover is as old as it is.
fn decided_at(sent: ShardTime, act: &Act, kind: EventKind, what: &What) -> ShardTime {
    let What::Holding { after: Some(held), .. } = what else { return sent };
    let declines = |step: &Step| step.event.as_ref().is_some_and(|event| event.kind == EventKind::Declined);
    let within = if kind == EventKind::Renewed {
        DECIDED_WITHIN_MS
    } else if kind == EventKind::Granted && !act.steps.iter().any(declines) {
        u64::MAX
    } else {
        return sent;
    };
    let began = held.lease.map(|lease| lease.began());
    began.filter(|began| *began <= sent && sent.0 - began.0 <= within).unwrap_or(sent)
}

fn what(act: &Act, step: &Step, before: Option<&Arc<Reservation>>) -> What {
    match step.key {
        Key::Address(address) => What::Holding {
            address,
            before: before.map(Arc::clone),
            after: match &step.state {
                Some(State::Entry(Entry::Held(held))) => Some(Arc::clone(held)),
                Some(State::Entry(Entry::Released(_) | Entry::Declined(_)))
                | Some(State::Config(_) | State::Subnet(_) | State::Deployment(_))
                | None => None,
            },
        },
        // The record of a deployment is not an event by itself: it never comes with one.
        Key::Config | Key::Subnet(_) | Key::Deployment => {
            let config = match &step.state {
                Some(State::Config(config)) => Some(Arc::clone(config)),
                Some(State::Subnet(_) | State::Deployment(_) | State::Entry(_)) | None => None,
            };
            let (mut subnets, mut gone) = (Vec::new(), Vec::new());
            for step in &act.steps {
                match (step.key, &step.state) {
                    (Key::Subnet(_), Some(State::Subnet(subnet))) => subnets.push(Arc::clone(subnet)),
                    (Key::Subnet(id), None) => gone.push(id),
                    (Key::Config | Key::Subnet(_) | Key::Deployment | Key::Address(_), _) => {}
                }
            }
            What::Network { config, subnets, gone }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::core::state::{Event, Lease};
    use crate::store::codec::samples;

    #[test]
    fn the_end_of_a_lease_that_began_with_an_event_is_counted_from_its_decision_and_not_from_when_it_was_sent() {
        let held = |ends: u64| {
            let lease = Lease { ends: ShardTime(ends), ttl_seconds: NonZeroU64::new(60).unwrap() };
            let after = Some(Arc::new(Reservation { lease: Some(lease), ..samples::typical() }));
            What::Holding { address: "10.0.0.5".parse().unwrap(), before: None, after }
        };
        let (sent, decided) = (ShardTime(100_003), ShardTime(100_000));
        let act = |kinds: &[EventKind]| {
            let mut act = samples::full_batch().acts.swap_remove(0);
            let step = |kind: &EventKind| Step {
                key: Key::Config,
                expect: None,
                state: None,
                event: Some(Event { kind: *kind, before: None }),
            };
            act.steps = kinds.iter().map(step).collect();
            act
        };
        let at = |kind: EventKind, ends: u64| decided_at(sent, &act(&[kind]), kind, &held(ends));
        assert_eq!(at(EventKind::Granted, 160_000), decided);
        assert_eq!(at(EventKind::Renewed, 160_000), decided);
        // It began with another event, or its end was moved.
        assert_eq!(at(EventKind::Updated, 130_000), sent);
        assert_eq!(at(EventKind::Granted, 200_000), sent);
        // The commits before it took long.
        assert_eq!(at(EventKind::Granted, 159_000), ShardTime(99_000));
        // A renewal that a failover lost, and that was brought back.
        assert_eq!(at(EventKind::Renewed, 130_000), sent);
        // The lease of the address that was declined.
        let again = act(&[EventKind::Declined, EventKind::Granted]);
        assert_eq!(decided_at(sent, &again, EventKind::Granted, &held(160_000)), sent);
    }
}
