//! What one late journal says. It makes claims: whatever was granted or renewed in it and is held at its end is to be
//! claimed again. Earlier late claims that were answered with a conflict in this journal are claims as well: the conflict is
//! cut off with the rest, and the node that brought them has finished with them.
//!
//! Changes that are not claims are reported, and not repeated. A lost release errs on the safe side: the holder that let go
//! still holds the address. The same is true of a lease that was shortened, of a declined address, and of what became
//! obsolete without being a claim. For a claimant, labels, a MAC or configuration, nobody can say whether a later decision on the line that went
//! on should prevail: whoever asked for the change must ask again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};

use compact_str::CompactString;

use super::super::{Act, Batch, Digest, ShardId};
use super::locked;
use crate::core::address::Address;
use crate::core::state::{Conflict, Entry, Event, EventKind, Key, Reservation, State, Step};
use crate::core::types::{Generation, NetworkId, ShardTime, SlotKey};

/// What was acknowledged in one shard after the last batch that the register has.
#[derive(Debug)]
pub struct Late {
    /// The shard.
    pub shard: ShardId,
    /// Digest of the line that was cut off, up to and including the last batch. It identifies the journal.
    pub digest: Digest,
    /// The batches, in order.
    pub batches: Vec<Batch>,
    pub(super) answered: Mutex<AnsweredClaims>,
    /// What they amount to. Cached, because it is asked for every second as long as any of it is left.
    reduced: OnceLock<Reduced>,
}

/// A change that was cut off and is not a claim: only the client that asked for it can ask again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherChange {
    /// The network, or deployment.
    pub network: NetworkId,
    /// The address; none if the change concerns configuration.
    pub address: Option<Address>,
    /// What happened, as far as the history tells.
    pub kind: Option<EventKind>,
    /// Who held the address before.
    pub holder: Option<SlotKey>,
    /// Who asked.
    pub by: CompactString,
}

/// Names a claim: the network, the address, and the generation. One address may have several claims: the holder at the end
/// of the journal, and those whose claims were in conflict with that holder.
pub type ClaimName = (NetworkId, Address, Generation);

/// A holding that arrived with its subnet and ended in the new network. Two realms may have the same addresses and generations.
type Ended = (Address, Generation, SlotKey);

/// The claims whose outcome is known.
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
    /// A journal with no claim answered.
    pub fn new(shard: ShardId, digest: Digest, batches: Vec<Batch>) -> Self {
        Self { shard, digest, batches, answered: Mutex::default(), reduced: OnceLock::new() }
    }

    /// A network has answered these claims: they must not be made again. In memory only;
    /// [`Lates::keep_answered`](super::Lates::keep_answered) makes the answers outlive the process.
    pub fn answered(&self, network: NetworkId, claims: &[(Address, Entry)]) {
        let names = claims.iter().map(|(address, entry)| (network, *address, entry.generation()));
        locked(&self.answered).claims.extend(names);
    }

    /// Has the network answered this claim?
    pub fn is_answered(&self, network: NetworkId, (address, entry): &(Address, Entry)) -> bool {
        locked(&self.answered).claims.contains(&(network, *address, entry.generation()))
    }

    /// Which answers hold for a longer journal that ends in the same place and begins earlier. An answer that a renewal
    /// stands came from a line that had the grant. If the grant is in the longer journal, it was cut off since as well, and
    /// must be claimed.
    pub(super) fn answered_in(&self, longer: &Self) -> BTreeSet<ClaimName> {
        let (here, there) = (self.renewals(), longer.renewals());
        let answered = locked(&self.answered).claims.clone().into_iter();
        answered.filter(|name| !here.contains_key(name) || there.contains_key(name)).collect()
    }

    /// What is to be claimed again, by network: everything that was granted or renewed in the journal, is held at its end,
    /// and was not answered. After that, the claims that met a conflict there which nobody has decided.
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

    /// Which of these claims have lapsed, as one of the journals at hand shows: the holding that was granted or renewed here
    /// went with its subnet to another network, and ended there. The holder that let go of it knows that it is gone, and the
    /// address belongs to whoever was granted it next. By network, as the claims are made.
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

    /// Which of these claims are renewals, and until when each was held before.
    pub fn renewals(&self) -> BTreeMap<ClaimName, ShardTime> {
        let renewed = self.reduced().renewed.iter();
        renewed.map(|(&(network, address), (entry, ended))| ((network, address, entry.generation()), *ended)).collect()
    }

    /// The changes that are not claims, in order: those that let go of, bound or changed something that existed before, and
    /// those of configuration.
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

/// The state after all batches.
#[derive(Debug, Default)]
struct Reduced {
    held: BTreeMap<(NetworkId, Address), Entry>,
    /// Holdings from before the journal that were extended, and until when each was held before.
    renewed: BTreeMap<(NetworkId, Address), (Entry, ShardTime)>,
    /// Earlier late claims that the journal answers with a conflict.
    contested: BTreeMap<ClaimName, Arc<Reservation>>,
    /// What left for another network with its subnet.
    went: BTreeSet<ClaimName>,
    /// What arrived from another network with its subnet, and is still there under that generation.
    came: BTreeMap<(NetworkId, Address), Arc<Reservation>>,
    /// What arrived in this way and ended there.
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
                    // A step that only notes conflicts is nobody's change.
                    if step.event.is_some() || told.is_empty() {
                        self.other(act, step);
                    }
                }
                (Key::Config, None) => {
                    self.conflicts(act.network, &told, &[]);
                    self.other(act, step);
                }
                (Key::Config | Key::Subnet(_) | Key::Deployment, _) => self.other(act, step),
            }
        }
    }

    /// From here on the network has these conflicts. Events tell whose claims they are, at the addresses of the claims and
    /// of the holders that are in their way.
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
            // It came from another network with its subnet. That move was cut off, too, so the holding is still there.
            Some(State::Entry(Entry::Held(_))) if is_moved(step, false) => self.other(act, step),
            // A renewed holding that leaves for another network with its subnet counts as renewed in the old network.
            None if is_moved(step, true) && renewed.contains_key(&place) => self.other(act, step),
            // A holding that was granted in this journal is claimed in the old network, too.
            None if is_moved(step, true) && held.contains_key(&place) => {}
            None if is_moved(step, true) => self.other(act, step),
            Some(State::Entry(entry @ Entry::Held(reservation))) => {
                // Its generation was given in this journal, or it follows a holding whose generation was.
                if step.expect != Some(reservation.generation.0) || held.contains_key(&place) {
                    renewed.remove(&place);
                    held.insert(place, entry.clone());
                    return;
                }
                // Any other change to it is reported, as for a holding that was not renewed.
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
            // A holding from before was let go as well.
            Some(_) | None if renewed.remove(&place).is_some() => self.other(act, step),
            // A step without an event, such as the end of a cooldown, is nothing by itself.
            Some(_) | None if step.event.is_none() => {}
            Some(_) | None => self.other(act, step),
        }
    }

    /// Follows what goes with its subnet from one network to another.
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

/// Does the step extend the holding? Then this is until when it was held before.
fn lengthened(step: &Step, after: &Reservation) -> Option<ShardTime> {
    let before = step.event.as_ref()?.before.as_ref()?.lease?;
    after.lease.is_none_or(|lease| lease.ends > before.ends).then_some(before.ends)
}

/// Does a reservation go from one network to another with its subnet? A transfer within a network has the previous holder in
/// its event.
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

    /// As a network notes and tells a conflict: at the address of the holder in the way, and at the address of the claim.
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
            // Something else in the configuration of the network changes.
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
        acts[3][1] = Step { key: Key::Config, expect: Some(1), state: None, event: None };
        assert_eq!(claims_of(&acts), (all[..2].to_vec(), 2), "a deleted network ended with it");
    }

    /// A holder that was told that its lease was extended must be told so again, whatever else changed; but not one that let go.
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
        // In the end another holder has it, under a generation of its own.
        let mut given = change(EventKind::Transferred, Some(115), None);
        given.state = Some(State::Entry(Entry::Held(held("db", 78))));
        assert_eq!(claimed(&[first, given]), (vec![None], vec![], 0));
    }

    /// Otherwise a holder that let go would be given the address back, and would be in conflict with whoever was granted it next.
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
        // A release in another realm, which has nothing to do with the claim; and a release of something that never arrived.
        let stays = journal(1, &[(from, &grant(&first))]);
        let elsewhere = journal(2, &[(to, &grant(&first)), (to, &let_go)]);
        assert_eq!((ended(&stays, &[&released]), ended(&granted, &[&elsewhere])), (0, 0));
        // Both networks are in one shard.
        let both = [(from, &grant(&first)), (from, &goes), (to, &comes), (to, &let_go), (to, &grant(&last))];
        let one = journal(1, &both);
        assert_eq!(ended(&one, &[&one]), 1);
    }

    /// A subnet that moved on a line which is cut off has not moved: nobody claims its holdings in the new network, and
    /// those that were granted before the move are claimed where they were granted.
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
