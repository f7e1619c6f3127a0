//! What one late journal says: what was granted in it, is held at its end, and is to be claimed again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use super::super::{Batch, Digest, ShardId};
use super::locked;
use crate::core::address::Address;
use crate::core::state::{Entry, Event, EventKind, Key, State, Step};
use crate::core::types::NetworkId;

/// What was acknowledged of one shard, behind the last that the register has.
#[derive(Debug)]
pub struct Late {
    /// The shard.
    pub shard: ShardId,
    /// Digest of the line that was cut off, up to the last of them: no two have the same.
    pub digest: Digest,
    /// In order.
    pub batches: Vec<Batch>,
    pub(super) answered: Mutex<AnsweredClaims>,
}

/// Claims of which it is known what became of them.
#[derive(Debug, Default)]
pub(super) struct AnsweredClaims {
    pub(super) claims: BTreeSet<(NetworkId, Address)>,
    /// How many of them are in the file.
    pub(super) kept: usize,
}

impl PartialEq for Late {
    fn eq(&self, other: &Self) -> bool {
        (self.shard, self.digest, &self.batches) == (other.shard, other.digest, &other.batches)
    }
}

impl Eq for Late {}

impl Late {
    /// One of which nothing was answered.
    pub fn new(shard: ShardId, digest: Digest, batches: Vec<Batch>) -> Self {
        Self { shard, digest, batches, answered: Mutex::default() }
    }

    /// A network has answered what became of these: it is not to be asked for them again. In memory;
    /// [`Lates::keep_answered`](super::Lates::keep_answered) makes it outlive the process.
    pub fn answered(&self, network: NetworkId, addresses: impl IntoIterator<Item = Address>) {
        let claims = addresses.into_iter().map(|address| (network, address));
        locked(&self.answered).claims.extend(claims);
    }

    /// Has the network answered what became of this one?
    pub fn is_answered(&self, network: NetworkId, address: Address) -> bool {
        locked(&self.answered).claims.contains(&(network, address))
    }

    /// What was granted in it, is held at its end, and was not answered, by network: what is to be claimed again.
    pub fn claims(&self) -> BTreeMap<NetworkId, Vec<(Address, Entry)>> {
        let mut claims: BTreeMap<NetworkId, Vec<(Address, Entry)>> = BTreeMap::new();
        let answered = locked(&self.answered);
        let open = self.reduced().0.into_iter().filter(|(place, _)| !answered.claims.contains(place));
        for ((network, address), entry) in open {
            claims.entry(network).or_default().push((address, entry));
        }
        claims
    }

    /// How many changes in it were none of these: what let go, renewed, bound or changed something that was there before, and
    /// configuration.
    pub fn others(&self) -> usize {
        self.reduced().1
    }

    fn reduced(&self) -> (BTreeMap<(NetworkId, Address), Entry>, usize) {
        let (mut held, mut others) = (BTreeMap::new(), 0);
        let acts = self.batches.iter().flat_map(|batch| &batch.acts);
        for (network, step) in acts.flat_map(|act| act.steps.iter().map(|step| (act.network, step))) {
            let Key::Address(address) = step.key else {
                others += 1;
                continue;
            };
            let place = (network, address);
            match &step.state {
                // With its subnet it came from another network. That was cut off, too: it is there still.
                Some(State::Entry(Entry::Held(_))) if is_moved(step, false) => others += 1,
                // And there it is claimed, where it was granted in it.
                None if is_moved(step, true) => others += usize::from(!held.contains_key(&place)),
                Some(State::Entry(entry @ Entry::Held(reservation))) => {
                    // Under a generation that was given in it, or on something that was.
                    if step.expect != Some(reservation.generation.0) || held.contains_key(&place) {
                        held.insert(place, entry.clone());
                    } else {
                        others += 1;
                    }
                }
                Some(_) | None if held.remove(&place).is_some() => {}
                // What was granted over something that cooled, or cools no more, is nothing by itself.
                Some(_) | None => others += usize::from(step.event.is_some()),
            }
        }
        (held, others)
    }
}

/// Does a reservation go from one network to another with its subnet? A transfer within a network tells who had it.
fn is_moved(step: &Step, leaves: bool) -> bool {
    let is_of = |event: &Event| event.kind == EventKind::Transferred && event.before.is_some() == leaves;
    step.event.as_ref().is_some_and(is_of)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::first_batch;
    use super::*;
    use crate::core::state::Reservation;
    use crate::core::types::{Generation, Scope, SlotKey, WallTime};
    use crate::store::Act;

    /// What moved with its subnet, on a line that is cut off, is where it was: nobody claims it where it came to, and what
    /// was granted before it moved is claimed where it was granted.
    #[test]
    fn a_subnet_that_moved_on_a_line_that_is_cut_off_is_claimed_nowhere_else() {
        let held = |owner: &str| {
            let holder = SlotKey { scope: Scope::default(), owner: owner.parse().unwrap(), slot: "0".parse().unwrap() };
            Arc::new(Reservation::plain(holder, Generation(77), 32, WallTime(1_772_356_360_000)))
        };
        let at = |address: &str| Key::Address(address.parse().unwrap());
        let put = |key, held: &Arc<Reservation>, kind| Step {
            key,
            expect: None,
            state: Some(State::Entry(Entry::Held(Arc::clone(held)))),
            event: Some(Event { kind, before: None }),
        };
        let leave = |key, held: &Arc<Reservation>| Step {
            key,
            expect: Some(77),
            state: None,
            event: Some(Event { kind: EventKind::Transferred, before: Some(Arc::clone(held)) }),
        };
        let (old, new) = (held("old"), held("new"));
        let (from, to) = (NetworkId(7), NetworkId(8));
        let moved = [
            (from, vec![put(at("10.0.0.2"), &new, EventKind::Granted)]),
            (from, vec![leave(at("10.0.0.1"), &old), leave(at("10.0.0.2"), &new)]),
            (
                to,
                vec![
                    put(at("10.0.0.1"), &old, EventKind::Transferred),
                    put(at("10.0.0.2"), &new, EventKind::Transferred),
                ],
            ),
        ];
        let act = |(network, steps)| Act {
            network,
            wall: WallTime(0),
            by: "anonymous".into(),
            reason: None,
            transaction: None,
            steps,
        };
        let batch = first_batch(moved.into_iter().map(act).collect());
        let late = Late::new(ShardId(3), Digest(1), vec![batch]);
        let claims: Vec<_> = late
            .claims()
            .into_iter()
            .map(|(network, claims)| (network, claims.len(), claims[0].0.to_string()))
            .collect();
        assert_eq!(claims, [(from, 1, "10.0.0.2".to_owned())]);
        assert_eq!(late.others(), 3, "the move is told of");
    }
}
