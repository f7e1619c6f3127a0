//! Handles groups that the store has no room for: what fits is sent again, and only the rest is given up.
//!
//! While the store is known to be full, requests are refused before they are decided (`actors::reserve`). This file handles the
//! grants and releases that were already under way when it ran full. It goes over the units in order: a unit that takes something
//! new, or more than is left, is given up, and with it everything later of its networks. The rest is sent again under the same
//! numbers, because nothing of a refused group was written.
//!
//! Review notes: does an answer leave that saw what was given up? Does one leave before what it saw is durable? Is every unit
//! counted exactly once as queued or under way?

use std::collections::{HashMap, HashSet};

use super::unit::Unit;
use super::{Committer, Group};
use crate::actors::{Applied, reserve};
use crate::core::types::NetworkId;
use crate::store::{CommitError, StoreError, size, step_lets_go};

/// What is done with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is durable.
    Settled,
    /// It is sent again.
    Again,
    /// Memory has it and the store never will: its networks are discarded.
    GivenUp,
    /// It only has answers, which saw something that is given up.
    Refused,
}

/// Judges units in order.
struct Judge {
    /// Bytes that are left for releases.
    room: u64,
    /// Networks of which a unit was given up.
    lost: HashSet<NetworkId>,
    /// Networks of which a unit is sent again.
    again: HashSet<NetworkId>,
}

impl Judge {
    fn judge(&mut self, unit: &Unit, stood: bool, lacks_room: bool) -> Fate {
        let is_of = |networks: &HashSet<NetworkId>| unit.parts.iter().any(|part| networks.contains(&part.lane.id));
        let networks = unit.parts.iter().map(|part| part.lane.id);
        let (is_behind_lost, is_behind_again) = (is_of(&self.lost), is_of(&self.again));
        if unit.changes() == 0 {
            return match (is_behind_lost, stood && !is_behind_again) {
                (true, _) => Fate::Refused,
                (false, true) => Fate::Settled,
                (false, false) => {
                    self.again.extend(networks);
                    Fate::Again
                }
            };
        }
        // A durable unit with answers that saw a unit which is not yet durable cannot be kept.
        if is_behind_lost || (stood && is_behind_again) || (lacks_room && !self.fits(unit)) {
            self.lost.extend(networks);
            Fate::GivenUp
        } else if stood {
            Fate::Settled
        } else {
            self.again.extend(networks);
            Fate::Again
        }
    }

    fn fits(&mut self, unit: &Unit) -> bool {
        let mut steps = unit.parts.iter().flat_map(|part| &part.acts).flat_map(|act| &act.steps);
        let bytes = bytes_of(unit);
        let fits = bytes <= self.room && steps.all(step_lets_go);
        if fits {
            self.room -= bytes;
        }
        fits
    }
}

/// What a unit takes at most, where each of its parts is alone in a batch.
fn bytes_of(unit: &Unit) -> u64 {
    unit.bytes() as u64 + size::BESIDE_ACTS * unit.parts.len() as u64
}

impl Group {
    pub(super) fn stood(&self) -> bool {
        matches!(self.result, Some(Ok(_)))
    }

    fn lacks_room(&self) -> bool {
        matches!(self.result, Some(Err(CommitError::NotApplied { cause: StoreError::Full })))
    }

    /// Its units have their changes again.
    fn take_back(&mut self) {
        let of_shard = self.batches.iter().map(|batch| (batch.shard, batch.acts.iter()));
        let mut acts: HashMap<_, _> = of_shard.collect();
        for part in self.units.iter_mut().flat_map(|unit| &mut unit.parts) {
            let Some(acts) = acts.get_mut(&part.lane.shard) else { continue };
            let mut steps = 0;
            while steps < part.changes
                && let Some(act) = acts.next()
            {
                steps += act.steps.len();
                part.acts.push(act.clone());
            }
        }
    }
}

impl Committer {
    /// The store has no room for the front group, and whatever is under way has its answer. False where nothing is known of what
    /// would be taken instead: then all of it is given up.
    pub(super) fn cut(&mut self) -> bool {
        let is_definite = |group: &Group| {
            !group.doubtful && matches!(group.result, Some(Ok(_) | Err(CommitError::NotApplied { .. })))
        };
        if !self.in_flight.iter().all(is_definite) {
            return false;
        }
        let mut judge =
            Judge { room: self.shared.store.room().unwrap_or(u64::MAX), lost: HashSet::new(), again: HashSet::new() };
        let mut fates = Vec::new();
        for group in &mut self.in_flight {
            if !group.stood() {
                group.take_back();
            }
            let (stood, lacks_room) = (group.stood(), group.lacks_room());
            fates.extend(group.units.iter().map(|unit| judge.judge(unit, stood, lacks_room)));
        }
        if judge.lost.is_empty() {
            // The same would go out again.
            return false;
        }
        let groups: Vec<Group> = self.in_flight.drain(..).collect();
        for batch in groups.iter().filter(|group| !group.stood()).flat_map(|group| &*group.batches) {
            self.take_back_number(batch);
        }
        let mut units: Vec<(Unit, bool, bool)> = Vec::with_capacity(fates.len());
        for mut group in groups {
            if let Some(Ok(committed)) = &group.result {
                self.durable(&group, committed);
            }
            let (stood, sent) = (group.stood(), std::mem::take(&mut group.units));
            units.extend(sent.into_iter().map(|unit| (unit, stood, true)));
        }
        for unit in self.queue.take_all() {
            fates.push(judge.judge(&unit, false, false));
            units.push((unit, false, false));
        }
        let given_up = fates.iter().filter(|fate| **fate == Fate::GivenUp).count();
        tracing::warn!(given_up, "a commit is given up in part because there is no room for it; the rest goes on");
        // First every memory concerned is declared worthless, then anything is said.
        for ((unit, ..), _) in units.iter().zip(&fates).filter(|(_, fate)| **fate == Fate::GivenUp) {
            self.disown(unit);
        }
        for ((unit, stood, sent), fate) in units.into_iter().zip(fates) {
            self.meets(fate, unit, (stood, sent));
        }
        self.ripe = true;
        true
    }

    fn meets(&mut self, fate: Fate, mut unit: Unit, (stood, sent): (bool, bool)) {
        if fate == Fate::Again {
            if sent {
                for part in &unit.parts {
                    let standing = self.networks.entry(part.lane.id).or_default();
                    standing.in_flight -= 1;
                    standing.queued += 1;
                }
            }
            (unit.sent, unit.behind) = (false, None);
            return self.queue.push(unit);
        }
        self.leave(&unit, |standing| if sent { standing.in_flight -= 1 } else { standing.queued -= 1 });
        if fate == Fate::Settled {
            return self.settle(unit);
        }
        let store = &*self.shared.store;
        let lets_go = unit.parts.iter().flat_map(|part| &part.acts).flat_map(|act| &act.steps).all(step_lets_go);
        let bytes = bytes_of(&unit);
        let problem = match store.room() {
            Some(left) if lets_go && bytes > left => reserve::does_not_fit(store, bytes, left),
            Some(_) | None => reserve::nothing_new(store),
        };
        self.refuse(unit, if stood { Applied::Unknown } else { Applied::No }, &problem);
    }
}
