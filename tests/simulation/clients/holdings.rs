//! How clients take answers about what they hold.

use serde_json::Value;

use super::told::{Answer, span_of};
use super::{Clients, Kind, LEASE_SURE_PERMILLE};
use crate::belief::{Belief, Held};
use crate::record::{Asked, Told};
use crate::truth::Shown;

impl Clients {
    /// An answer shows a slot with what it holds.
    pub(super) fn shown(
        &mut self,
        at: usize,
        slot: usize,
        times: (u64, u64),
        result: &Value,
        created: bool,
        replaces: bool,
    ) {
        let Some((span, generation)) = span_of(result) else {
            return self.problem(format!("no reservation: {result}"));
        };
        let one = &mut self.all[at].slots[slot];
        let until_ns = match one.kind {
            Kind::Lease(seconds) => Some(times.0 + seconds * 1_000_000 * LEASE_SURE_PERMILLE),
            Kind::Plain | Kind::Block(_) | Kind::Pair(_) | Kind::Wait(_) | Kind::PairWaits { .. } | Kind::Used => None,
        };
        // The answer proves that the slot's user was heard of, so no sweep misses it.
        one.missed_ns = None;
        let holder = one.holder.clone();
        let (network, address, (sent_ns, told_ns)) = (holder.network.clone(), span.0, times);
        self.shown.push(Shown { network, address, sent_ns, told_ns, generation: Some(generation) });
        let held = Held { generation, span, until_ns };
        let before = one.belief.held.filter(|before| before.generation != generation);
        if replaces && created {
            one.belief.absent = true;
        }
        let wrong = one.belief.told_held(times.1, held, created);
        if let Some(before) = before {
            one.dead = Some((before.generation, before.span));
        }
        if let Some(wrong) = wrong {
            self.problem(format!("{holder:?} holds {wrong}"));
        }
        if before.is_some() && replaces && created {
            self.record(holder.clone(), Asked::Release, times, Told::Released);
        }
        let key = (holder.network.clone(), generation);
        let known = self.generations.insert(key, (holder.clone(), span));
        if known.is_some_and(|known| known != (holder.clone(), span) || created) {
            self.problem(format!("generation {generation} was given before {holder:?} got it for {span:?}"));
        }
        self.record(holder, Asked::Grant, times, Told::Held { span, generation, created, until_ns });
    }

    pub(super) fn told_grant(
        &mut self,
        at: usize,
        slot: usize,
        times: (u64, u64),
        claim: Option<(u32, bool)>,
        answer: &Answer,
    ) {
        let replace = claim.is_some_and(|(_, replace)| replace);
        let one = &mut self.all[at].slots[slot];
        let holder = one.holder.clone();
        match answer {
            Answer::Result(result) => {
                self.shown(at, slot, times, result, result["created"] == true, replace);
            }
            Answer::Lost => {
                one.belief.doubtful_grant(times.1, replace);
                if replace {
                    one.belief.doubtful_release();
                    // An answer that was given up may mean that the slot lost what it had, in favour of the new holding.
                    self.record(holder.clone(), Asked::Release, times, Told::Unknown);
                }
                self.record(holder, Asked::Grant, times, Told::Unknown);
            }
            Answer::Refused(kind, error) => {
                let sure = one.belief.surely(times.1);
                let wrong = match (kind.as_str(), sure, claim) {
                    ("not_enough_capacity", Some(held), _) => Some(format!("it held {held:?}")),
                    ("already_in_use", Some(held), Some((address, _))) if held.span.0 == u128::from(address) => {
                        Some(format!("it held {held:?} itself"))
                    }
                    ("already_exists", _, _) if !one.belief.may_hold() => Some("it held nothing".to_owned()),
                    _ => None,
                };
                if kind == "not_enough_capacity" {
                    one.belief = Belief::default();
                    if claim.is_none() {
                        self.told_full(at, slot, times, error);
                    }
                }
                if let Some(wrong) = wrong {
                    self.problem(format!("{holder:?} was refused {error}, but {wrong}"));
                }
                self.record(holder, Asked::Grant, times, Told::Refused(kind.clone()));
            }
        }
    }

    pub(super) fn told_release(&mut self, at: usize, slot: usize, times: (u64, u64), answer: &Answer) {
        if let (Kind::Pair(other) | Kind::PairWaits { other, .. }, Answer::Result(_) | Answer::Lost) =
            (self.all[at].slots[slot].kind, answer)
        {
            self.all[at].slots[slot].joint_doubt = false;
            self.all[at].slots[other].joint_doubt = false;
        }
        let one = &mut self.all[at].slots[slot];
        let holder = one.holder.clone();
        let told = match answer {
            Answer::Result(result) => {
                let released = result["released"].as_array().is_some_and(|released| !released.is_empty());
                one.dead = one.belief.held.map(|held| (held.generation, held.span)).or(one.dead);
                if let Some(wrong) = one.belief.told_absent(times.1, released) {
                    self.problem(format!("{holder:?} {wrong}"));
                }
                if released { Told::Released } else { Told::Nothing }
            }
            Answer::Lost => {
                one.belief.doubtful_release();
                Told::Unknown
            }
            Answer::Refused(kind, _) => Told::Refused(kind.clone()),
        };
        self.record(holder, Asked::Release, times, told);
    }

    pub(super) fn told_renewal(&mut self, at: usize, slot: usize, times: (u64, u64), answer: &Answer) {
        match answer {
            Answer::Result(result) => self.shown(at, slot, times, result, false, false),
            // At worst the lease lasts longer than believed.
            Answer::Lost => {}
            Answer::Refused(kind, error) => {
                let one = &mut self.all[at].slots[slot];
                if kind == "not_found" {
                    let holder = one.holder.clone();
                    if let Some(wrong) = one.belief.told_absent(times.1, false) {
                        self.problem(format!("{holder:?} was refused {error}: {wrong}"));
                    }
                }
            }
        }
    }

    pub(super) fn told_transfer(&mut self, at: usize, (from, to): (usize, usize), times: (u64, u64), answer: &Answer) {
        match answer {
            Answer::Result(result) => {
                let shown = &result["reservations"][0];
                let already = (self.all[at].slots[to].belief.held)
                    .is_some_and(|held| Some(held.generation) == shown["generation"].as_u64());
                let source = &mut self.all[at].slots[from];
                let holder = source.holder.clone();
                source.dead = source.belief.held.map(|held| (held.generation, held.span)).or(source.dead);
                let wrong = source.belief.told_absent(times.1, !already);
                if let Some(wrong) = wrong {
                    self.problem(format!("{holder:?} {wrong}"));
                }
                self.record(holder, Asked::Release, times, Told::Released);
                self.shown(at, to, times, shown, !already, false);
            }
            Answer::Lost => {
                let slots = &mut self.all[at].slots;
                slots[from].belief.doubtful_release();
                slots[to].belief.doubtful_grant(times.1, false);
                let (one, other) = (slots[from].holder.clone(), slots[to].holder.clone());
                self.record(one, Asked::Release, times, Told::Unknown);
                self.record(other, Asked::Grant, times, Told::Unknown);
            }
            Answer::Refused(..) => {}
        }
    }

    pub(super) fn told_acquire(&mut self, at: usize, pair: [usize; 2], times: (u64, u64), answer: &Answer) {
        let waits = matches!(self.all[at].slots[pair[0]].kind, Kind::PairWaits { .. });
        match answer {
            Answer::Result(_) if waits => self.told_wait_for_two(at, pair, times, None),
            Answer::Refused(kind, error) if waits && kind == "not_enough_capacity" => {
                self.told_wait_for_two(at, pair, times, Some(error));
            }
            _ => {}
        }
        match answer {
            Answer::Result(result) => {
                let shown = result["reservations"].as_array().cloned().unwrap_or_default();
                if shown.len() != 2 {
                    return self.problem(format!("half of an acquire: {result}"));
                }
                let created = [shown[0]["created"] == true, shown[1]["created"] == true];
                if self.all[at].slots[pair[0]].joint_doubt && created[0] != created[1] {
                    self.problem(format!("half of an acquire of unknown fate took effect: {result}"));
                }
                for (place, slot) in pair.into_iter().enumerate() {
                    self.all[at].slots[slot].joint_doubt = false;
                    self.shown(at, slot, times, &shown[place], created[place], false);
                }
            }
            Answer::Lost => {
                let slots = &mut self.all[at].slots;
                let joint = pair.iter().all(|slot| slots[*slot].belief.is_absent() || slots[*slot].joint_doubt);
                for slot in pair {
                    let slots = &mut self.all[at].slots;
                    slots[slot].joint_doubt = joint;
                    slots[slot].belief.doubtful_grant(times.1, false);
                    let holder = slots[slot].holder.clone();
                    self.record(holder, Asked::Grant, times, Told::Unknown);
                }
            }
            Answer::Refused(kind, error) => {
                let slots = &self.all[at].slots;
                if pair.iter().all(|slot| slots[*slot].belief.surely(times.1).is_some()) && kind != "invalid_argument" {
                    let holder = slots[pair[0]].holder.clone();
                    self.problem(format!("{holder:?} holds both that it acquires, and was refused {error}"));
                }
            }
        }
    }
}
