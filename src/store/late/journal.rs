//! What one late journal says: what was granted or renewed in it, is held at its end, and is to be claimed again. And late claims
//! of before, which were answered in it by a conflict: that is cut off with it, and whoever brought them is done with them.
//!
//! What is no claim is told, and not repeated. A release errs on the safe side: whoever let go holds it still. So does an end that
//! was made earlier, what was declined, and what became obsolete. Of who uses an address, its labels, its MAC and what is configured,
//! nobody can say whether what was decided since on the line that goes on is meant instead: whoever asked must ask again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};

use compact_str::CompactString;

use super::super::{Act, Batch, Digest, ShardId};
use super::locked;
use crate::core::address::Address;
use crate::core::state::{Conflict, Entry, Event, EventKind, Key, Reservation, State, Step};
use crate::core::types::{Generation, NetworkId, ShardTime, SlotKey};

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
    /// What they come to: asked for each second, as long as something is left of it.
    reduced: OnceLock<Reduced>,
}

/// A change that was cut off and is no claim: nobody asks for it again but whoever did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherChange {
    /// Of which network, or deployment.
    pub network: NetworkId,
    /// At which address; none: of its configuration.
    pub address: Option<Address>,
    /// What happened, as far as the history tells it.
    pub kind: Option<EventKind>,
    /// Who held the address before.
    pub holder: Option<SlotKey>,
    /// Who asked.
    pub by: CompactString,
}

/// A claim by name: in which network, of which address, under which generation. At one address there may be several: who held it
/// at the end, and those whose claim was in conflict with that.
pub type ClaimName = (NetworkId, Address, Generation);

/// A holding that came with its subnet and ended where it came to. Of two realms, addresses and generations may be the same.
type Ended = (Address, Generation, SlotKey);

/// Claims of which it is known what became of them.
#[derive(Debug, Default, Clone)]
pub(super) struct AnsweredClaims {
    pub(super) claims: BTreeSet<ClaimName>,
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
        Self { shard, digest, batches, answered: Mutex::default(), reduced: OnceLock::new() }
    }

    /// A network has answered what became of these: it is not to be asked for them again. In memory;
    /// [`Lates::keep_answered`](super::Lates::keep_answered) makes it outlive the process.
    pub fn answered(&self, network: NetworkId, claims: &[(Address, Entry)]) {
        let names = claims.iter().map(|(address, entry)| (network, *address, entry.generation()));
        locked(&self.answered).claims.extend(names);
    }

    /// Has the network answered what became of this one?
    pub fn is_answered(&self, network: NetworkId, (address, entry): &(Address, Entry)) -> bool {
        locked(&self.answered).claims.contains(&(network, *address, entry.generation()))
    }

    /// What was answered of it and is of another one that ends as it does and begins earlier. Whoever said that a renewal stands had
    /// the grant; where that is in the other, it was cut off as well since, and is asked for.
    pub(super) fn answered_in(&self, longer: &Self) -> BTreeSet<ClaimName> {
        let (here, there) = (self.renewals(), longer.renewals());
        let answered = locked(&self.answered).claims.clone().into_iter();
        answered.filter(|name| !here.contains_key(name) || there.contains_key(name)).collect()
    }

    /// What is to be claimed again, by network: what was granted or renewed in it, is held at its end, and was not answered; and
    /// behind that what was found there to be in conflict and was not decided.
    pub fn claims(&self) -> BTreeMap<NetworkId, Vec<(Address, Entry)>> {
        let mut claims: BTreeMap<NetworkId, Vec<(Address, Entry)>> = BTreeMap::new();
        let Reduced { held, renewed, contested, .. } = self.reduced();
        let answered = locked(&self.answered);
        let renewed = renewed.iter().map(|(place, (entry, _))| (place, entry));
        let held = held.iter().chain(renewed);
        let held = held.map(|(&(network, address), entry)| ((network, address, entry.generation()), entry.clone()));
        let contested = contested.iter().map(|(name, late)| (*name, Entry::Held(Arc::clone(late))));
        for ((network, address, _), entry) in held.chain(contested).filter(|(name, _)| !answered.claims.contains(name))
        {
            claims.entry(network).or_default().push((address, entry));
        }
        claims
    }

    /// Which of these are none any more, as one of the journals at hand tells: what was granted or renewed here went with its subnet to
    /// another network, and ended there. Whoever let go of it there knows that he has it no more, and whoever was granted it next has
    /// it. By network, as they are claimed.
    pub fn ended_elsewhere(&self, at_hand: &[Arc<Self>]) -> BTreeMap<NetworkId, Vec<(Address, Entry)>> {
        let went = &self.reduced().went;
        if went.is_empty() {
            return BTreeMap::new();
        }
        let mut claims = self.claims();
        for (network, claims) in &mut claims {
            claims.retain(|(address, entry)| {
                let holder = entry.held().map(|held| held.holder.clone());
                let end = holder.map(|holder| (*address, entry.generation(), holder));
                let is_told = |end: &Ended| at_hand.iter().any(|other| other.reduced().ended.contains(end));
                went.contains(&(*network, *address, entry.generation())) && end.as_ref().is_some_and(is_told)
            });
        }
        claims.retain(|_, claims| !claims.is_empty());
        claims
    }

    /// Which of these are renewals: until when each was held before.
    pub fn renewals(&self) -> BTreeMap<ClaimName, ShardTime> {
        let renewed = self.reduced().renewed.iter();
        renewed.map(|(&(network, address), (entry, ended))| ((network, address, entry.generation()), *ended)).collect()
    }

    /// The changes in it that were none of these, in order: what let go, bound or changed something that was there before, and
    /// configuration.
    pub fn others(&self) -> &[OtherChange] {
        &self.reduced().others
    }

    fn reduced(&self) -> &Reduced {
        self.reduced.get_or_init(|| {
            let mut reduced = Reduced::default();
            self.batches.iter().flat_map(|batch| &batch.acts).for_each(|act| reduced.act(act));
            reduced
        })
    }
}

/// What is there behind all batches.
#[derive(Debug, Default)]
struct Reduced {
    held: BTreeMap<(NetworkId, Address), Entry>,
    /// What was held before and is held for longer, and until when it was held before.
    renewed: BTreeMap<(NetworkId, Address), (Entry, ShardTime)>,
    /// Claims of before, that were answered in it by a conflict.
    contested: BTreeMap<ClaimName, Arc<Reservation>>,
    /// What went with its subnet to another network.
    went: BTreeSet<ClaimName>,
    /// What came with its subnet from another network, and is there under that generation still.
    came: BTreeMap<(NetworkId, Address), Arc<Reservation>>,
    /// What came so and ended there.
    ended: BTreeSet<Ended>,
    others: Vec<OtherChange>,
}

impl Reduced {
    fn act(&mut self, act: &Act) {
        let is_told = |step: &&Step| step.event.as_ref().is_some_and(|event| event.kind == EventKind::Conflict);
        let (told, done): (Vec<&Step>, Vec<&Step>) = act.steps.iter().partition(is_told);
        for step in done {
            match (step.key, &step.state) {
                (Key::Address(address), _) => self.step(act, address, step),
                (Key::Config, Some(State::Config(config))) => {
                    self.conflicts(act.network, &told, &config.conflicts);
                    // Where it only notes them it is no change of anybody's.
                    if step.event.is_some() || told.is_empty() {
                        self.other(act, step);
                    }
                }
                (Key::Config | Key::Subnet(_) | Key::Deployment, _) => self.other(act, step),
            }
        }
    }

    /// The network has these conflicts from here on. Whose claims they are is told at their own addresses, and at those of who is
    /// in their way.
    fn conflicts(&mut self, network: NetworkId, told: &[&Step], conflicts: &[Conflict]) {
        let is_open = |address, late: &Reservation| conflicts.iter().any(|conflict| conflict.is_of(address, late));
        self.contested.retain(|(of, address, _), late| *of != network || is_open(*address, late));
        for step in told {
            if let (Key::Address(address), Some(Event { before: Some(late), .. })) = (step.key, &step.event)
                && is_open(address, late)
            {
                self.contested.insert((network, address, late.generation), Arc::clone(late));
            }
        }
    }

    fn other(&mut self, act: &Act, step: &Step) {
        let address = if let Key::Address(address) = step.key { Some(address) } else { None };
        let holder = step.event.as_ref().and_then(|event| Some(event.before.as_ref()?.holder.clone()));
        let kind = step.event.as_ref().map(|event| event.kind);
        self.others.push(OtherChange { network: act.network, address, kind, holder, by: act.by.clone() });
    }

    fn step(&mut self, act: &Act, address: Address, step: &Step) {
        let place = (act.network, address);
        self.follow(place, step);
        let (held, renewed) = (&mut self.held, &mut self.renewed);
        match &step.state {
            // With its subnet it came from another network. That was cut off, too: it is there still.
            Some(State::Entry(Entry::Held(_))) if is_moved(step, false) => self.other(act, step),
            // A renewal of what goes with its subnet to another network is one where it was.
            None if is_moved(step, true) && renewed.contains_key(&place) => self.other(act, step),
            // And there it is claimed, where it was granted in it.
            None if is_moved(step, true) && held.contains_key(&place) => {}
            None if is_moved(step, true) => self.other(act, step),
            Some(State::Entry(entry @ Entry::Held(reservation))) => {
                // Under a generation that was given in it, or on something that was.
                if step.expect != Some(reservation.generation.0) || held.contains_key(&place) {
                    renewed.remove(&place);
                    held.insert(place, entry.clone());
                    return;
                }
                // Whatever else is changed of it is told, as of what was not renewed.
                let lengthened = lengthened(step, reservation);
                match (renewed.get_mut(&place), lengthened) {
                    (Some((known, _)), _) => known.clone_from(entry),
                    (None, Some(ended)) => drop(renewed.insert(place, (entry.clone(), ended))),
                    (None, None) => {}
                }
                if lengthened.is_none() {
                    self.other(act, step);
                }
            }
            Some(_) | None if held.remove(&place).is_some() => {}
            // It is let go of what was held before, too.
            Some(_) | None if renewed.remove(&place).is_some() => self.other(act, step),
            // What was granted over something that cooled, or cools no more, is nothing by itself.
            Some(_) | None if step.event.is_none() => {}
            Some(_) | None => self.other(act, step),
        }
    }

    /// What goes with its subnet from one network to another is followed there.
    fn follow(&mut self, place: (NetworkId, Address), step: &Step) {
        if is_moved(step, true)
            && step.state.is_none()
            && let Some(generation) = step.expect
        {
            self.went.insert((place.0, place.1, Generation(generation)));
            self.came.remove(&place);
        }
        let held = match &step.state {
            Some(State::Entry(Entry::Held(held))) => Some(held),
            Some(_) | None => None,
        };
        if let Some(held) = held.filter(|_| is_moved(step, false)) {
            self.came.insert(place, Arc::clone(held));
        } else if let Some(came) = self.came.get(&place).cloned()
            && step.expect == Some(came.generation.0)
            && held.is_none_or(|held| held.generation != came.generation)
        {
            self.came.remove(&place);
            self.ended.insert((place.1, came.generation, came.holder.clone()));
        }
    }
}

/// Is it held for longer behind this step? Until when it was held before.
fn lengthened(step: &Step, after: &Reservation) -> Option<ShardTime> {
    let before = step.event.as_ref()?.before.as_ref()?.lease?;
    after.lease.is_none_or(|lease| lease.ends > before.ends).then_some(before.ends)
}

/// Does a reservation go from one network to another with its subnet? A transfer within a network tells who had it.
fn is_moved(step: &Step, leaves: bool) -> bool {
    let is_of = |event: &Event| event.kind == EventKind::Transferred && event.before.is_some() == leaves;
    step.event.as_ref().is_some_and(is_of)
}

#[cfg(test)]
mod tests {
    use super::super::tests::first_batch;
    use super::*;
    use crate::core::state::{Lease, NetworkConfig};
    use crate::core::types::{Scope, WallTime};
    use crate::store::codec::samples::sample_config;

    fn act((network, steps): (NetworkId, Vec<Step>)) -> Act {
        Act { network, wall: WallTime(0), by: "anonymous".into(), reason: None, transaction: None, steps }
    }

    fn held(owner: &str, generation: u64) -> Arc<Reservation> {
        let holder = SlotKey { scope: Scope::default(), owner: owner.parse().unwrap(), slot: "0".parse().unwrap() };
        Arc::new(Reservation::plain(holder, Generation(generation), 32, WallTime(1_772_356_360_000)))
    }

    /// As a network notes and tells them: at the address of who is in the way, and at its own.
    #[test]
    fn a_conflict_that_was_found_on_a_line_that_is_cut_off_is_claimed_again_until_it_was_decided() {
        let network = NetworkId(7);
        let (present, late, other) = (held("present", 90), held("late", 77), held("late", 91));
        let at = |address: &str| Key::Address(address.parse().unwrap());
        let state = |held: &Arc<Reservation>| Some(State::Entry(Entry::Held(Arc::clone(held))));
        let granted = |key, held| {
            let event = Some(Event { kind: EventKind::Granted, before: None });
            Step { key, expect: None, state: state(held), event }
        };
        let told = |key, there: Option<&Arc<Reservation>>| {
            let event = Some(Event { kind: EventKind::Conflict, before: Some(Arc::clone(&late)) });
            let expect = there.map(|held| held.generation.0);
            Step { key, expect, state: there.and_then(state), event }
        };
        let noted = |conflicts: Vec<Conflict>, kind: Option<EventKind>| {
            let config = NetworkConfig { conflicts, ..sample_config(network) };
            let event = kind.map(|kind| Event { kind, before: None });
            Step { key: Key::Config, expect: Some(1), state: Some(State::Config(Arc::new(config))), event }
        };
        let conflict = Conflict::of("10.0.0.1".parse().unwrap(), &late, WallTime(5));
        let mut acts = vec![
            vec![granted(at("10.0.0.1"), &present), granted(at("10.0.0.2"), &other)],
            vec![
                told(at("10.0.0.2"), Some(&other)),
                told(at("10.0.0.1"), Some(&present)),
                noted(vec![conflict.clone()], None),
            ],
            // Something else of the network is changed.
            vec![noted(vec![conflict], Some(EventKind::NetworkChanged))],
        ];
        let claims_of = |acts: &[Vec<Step>]| {
            let acts = acts.iter().map(|steps| act((network, steps.clone()))).collect();
            let late = Late::new(ShardId(3), Digest(1), vec![first_batch(acts)]);
            let claims = late.claims().remove(&network).unwrap_or_default();
            late.answered(network, &claims[..1]);
            assert_eq!(late.claims()[&network], claims[1..], "what was answered is one claim, not all of its address");
            let shown = |(address, entry): &(Address, Entry)| format!("{address} {}", entry.generation().0);
            (claims.iter().map(shown).collect::<Vec<_>>(), late.others().len())
        };
        let all = ["10.0.0.1 90", "10.0.0.2 91", "10.0.0.1 77"].map(str::to_owned);
        assert_eq!(claims_of(&acts), (all.to_vec(), 1));
        acts.push(vec![told(at("10.0.0.1"), Some(&present)), noted(Vec::new(), Some(EventKind::NetworkChanged))]);
        assert_eq!(claims_of(&acts), (all[..2].to_vec(), 2), "it was given up");
    }

    /// Whoever was told that it is his for longer is told so again, whatever else is changed of it; but not whoever let go.
    #[test]
    fn what_is_held_for_longer_at_the_end_is_claimed_with_until_when_it_was_held_before() {
        let network = NetworkId(7);
        let ttl_seconds = std::num::NonZeroU64::MIN;
        let until = |ends: Option<u64>| {
            let lease = ends.map(|ends| Lease { ends: ShardTime(ends), ttl_seconds });
            Arc::new(Reservation { lease, ..Reservation::clone(&held("web", 77)) })
        };
        let change = |kind, before: Option<u64>, after: Option<u64>| Step {
            key: Key::Address("10.0.0.1".parse().unwrap()),
            expect: Some(77),
            state: Some(State::Entry(Entry::Held(until(after)))),
            event: Some(Event { kind, before: Some(until(before)) }),
        };
        let let_go = |before: Option<u64>| Step { state: None, ..change(EventKind::Released, before, None) };
        let claimed = |steps: &[Step]| {
            let acts = steps.iter().map(|step| act((network, vec![step.clone()]))).collect();
            let late = Late::new(ShardId(3), Digest(1), vec![first_batch(acts)]);
            let claims = late.claims().remove(&network).unwrap_or_default();
            let ends = claims.iter().map(|(_, entry)| entry.held().unwrap().lease.map(|lease| lease.ends.0));
            let before: Vec<u64> = late.renewals().into_values().map(|ended| ended.0).collect();
            (ends.collect::<Vec<_>>(), before, late.others().len())
        };
        let renew = |before, after| change(EventKind::Renewed, before, after);
        let (first, again) = (renew(Some(60), Some(115)), renew(Some(115), Some(170)));
        assert_eq!(claimed(std::slice::from_ref(&first)), (vec![Some(115)], vec![60], 0));
        assert_eq!(claimed(&[first.clone(), again.clone()]), (vec![Some(170)], vec![60], 0));
        assert_eq!(claimed(&[renew(Some(60), None)]), (vec![None], vec![60], 0), "for good");
        let bound = change(EventKind::Bound, Some(115), Some(115));
        assert_eq!(claimed(&[first.clone(), bound, again]), (vec![Some(170)], vec![60], 1));
        assert_eq!(claimed(&[first.clone(), let_go(Some(115))]), (vec![], vec![], 1));
        assert_eq!(claimed(&[renew(Some(60), Some(50))]), (vec![], vec![], 1), "it is his for longer there");
        assert_eq!(claimed(&[renew(None, Some(50))]), (vec![], vec![], 1));
        // Somebody else has it in the end, under a generation of his own.
        let mut given = change(EventKind::Transferred, Some(115), None);
        given.state = Some(State::Entry(Entry::Held(held("db", 78))));
        assert_eq!(claimed(&[first, given]), (vec![None], vec![], 0));
    }

    /// Else who let go would be given the address back, and whoever was granted it behind that is in conflict with him.
    #[test]
    fn what_went_with_its_subnet_and_ended_there_is_no_claim_where_another_journal_tells_of_it() {
        let key = Key::Address("10.0.0.1".parse().unwrap());
        let (from, to, next) = (NetworkId(7), NetworkId(8), NetworkId(9));
        let (first, last) = (held("first", 77), held("last", 78));
        let step =
            |expect: Option<u64>, after: Option<&Arc<Reservation>>, kind, before: Option<&Arc<Reservation>>| Step {
                key,
                expect,
                state: after.map(|held| State::Entry(Entry::Held(Arc::clone(held)))),
                event: Some(Event { kind, before: before.cloned() }),
            };
        let grant = |held: &Arc<Reservation>| step(None, Some(held), EventKind::Granted, None);
        let (goes, comes) = (
            step(Some(77), None, EventKind::Transferred, Some(&first)),
            step(None, Some(&first), EventKind::Transferred, None),
        );
        let (renewed, let_go) = (
            step(Some(77), Some(&first), EventKind::Bound, Some(&first)),
            step(Some(77), None, EventKind::Released, Some(&first)),
        );
        let journal = |shard, acts: &[(NetworkId, &Step)]| {
            let acts = acts.iter().map(|(network, step)| act((*network, vec![(*step).clone()]))).collect();
            Arc::new(Late::new(ShardId(shard), Digest(1), vec![first_batch(acts)]))
        };
        let ended = |late: &Arc<Late>, at_hand: &[&Arc<Late>]| {
            let at_hand: Vec<Arc<Late>> = at_hand.iter().map(|&late| Arc::clone(late)).collect();
            late.ended_elsewhere(&at_hand).values().map(Vec::len).sum::<usize>()
        };
        let granted = journal(1, &[(from, &grant(&first)), (from, &goes)]);
        let kept = journal(2, &[(to, &comes), (to, &renewed)]);
        let released = journal(2, &[(to, &comes), (to, &renewed), (to, &let_go), (to, &grant(&last))]);
        let moved_on = journal(2, &[(to, &comes), (to, &goes)]);
        let released_there = journal(3, &[(next, &comes), (next, &let_go)]);
        assert_eq!(ended(&granted, &[&granted, &kept]), 0);
        assert_eq!(ended(&granted, &[&released, &granted]), 1);
        assert_eq!(ended(&released, &[&released, &granted]), 0, "whoever has it in the end claims it");
        assert_eq!((ended(&granted, &[&moved_on]), ended(&granted, &[&moved_on, &released_there])), (0, 1));
        // As one of another realm that has nothing to do with it; and a release of something that never came.
        let stays = journal(1, &[(from, &grant(&first))]);
        let elsewhere = journal(2, &[(to, &grant(&first)), (to, &let_go)]);
        assert_eq!((ended(&stays, &[&released]), ended(&granted, &[&elsewhere])), (0, 0));
        // Both networks are of one shard.
        let both = [(from, &grant(&first)), (from, &goes), (to, &comes), (to, &let_go), (to, &grant(&last))];
        let one = journal(1, &both);
        assert_eq!(ended(&one, &[&one]), 1);
    }

    /// What moved with its subnet, on a line that is cut off, is where it was: nobody claims it where it came to, and what
    /// was granted before it moved is claimed where it was granted.
    #[test]
    fn a_subnet_that_moved_on_a_line_that_is_cut_off_is_claimed_nowhere_else() {
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
        let (old, new) = (held("old", 77), held("new", 77));
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
        let batch = first_batch(moved.into_iter().map(act).collect());
        let late = Late::new(ShardId(3), Digest(1), vec![batch]);
        let claims: Vec<_> = late
            .claims()
            .into_iter()
            .map(|(network, claims)| (network, claims.len(), claims[0].0.to_string()))
            .collect();
        assert_eq!(claims, [(from, 1, "10.0.0.2".to_owned())]);
        let others: Vec<_> =
            late.others().iter().map(|other| (other.network, other.address.unwrap().to_string())).collect();
        let (one, two) = ("10.0.0.1".to_owned(), "10.0.0.2".to_owned());
        assert_eq!(others, [(from, one.clone()), (to, one), (to, two)], "the move is told of");
    }
}
