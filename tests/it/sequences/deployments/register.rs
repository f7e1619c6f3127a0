//! The list with which the server is compared: who holds which address under which plan, to whom it is promised, and what
//! plan, apply, commit, revert and delete make of it.

use std::collections::{BTreeMap, BTreeSet};

pub const INSTANCES: usize = 4;
pub const NETWORKS: usize = 3;
/// Addresses in the dynamic pool of each network: fewer than instances need together with what they let go.
pub const DYNAMIC: u8 = 5;
/// The first of the static addresses, for which all instances wish.
pub const STATIC: u8 = 20;

/// Network, and last byte of the address.
pub type Place = (usize, u8);

#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    pub instance: usize,
    /// The plan that let it go.
    pub obsolete: Option<u64>,
    /// The plan that granted it, until that plan is committed for this holder alone.
    granted: Option<u64>,
    /// That plan from then on.
    settled: Option<u64>,
    /// Rises with each grant.
    serial: u64,
    /// The plan that took it back, and the plan that had let it go.
    revived: Option<(u64, u64)>,
    /// The plan under which its holder leaves it as soon as the promised address comes.
    leaving: Option<u64>,
    /// The plan that promised it, and the instance that gets it.
    promise: Option<(u64, usize)>,
    /// The instance that gave it with a commit of its own, and waits for another address: a revert gives it back.
    back: Option<usize>,
}

impl Held {
    fn of(instance: usize, plan: u64, serial: u64) -> Self {
        Self {
            instance,
            obsolete: None,
            granted: Some(plan),
            settled: None,
            serial,
            revived: None,
            leaving: None,
            promise: None,
            back: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wish {
    Nothing,
    Automatic,
    Static(u8),
}

/// What one apply asks for, by instance: whether it is listed and fresh, and its wish in each network.
pub type Wishes = Vec<Option<(bool, [Wish; NETWORKS])>>;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stage {
    Open,
    Committed,
    Reverted,
}

#[derive(Debug, Clone)]
pub struct Latest {
    pub plan: u64,
    pub stage: Stage,
    pub wishes: Wishes,
    /// Instances that were ended alone: reverted (true) or committed.
    pub settled: BTreeMap<usize, bool>,
    pub uncommitted: bool,
    /// The time since when it is uncommitted, as the server says.
    pub since: u64,
}

impl Latest {
    fn uncommitted_since(&self) -> u64 {
        if self.uncommitted { self.since } else { u64::MAX }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Register {
    pub held: BTreeMap<Place, Held>,
    pub latest: Option<Latest>,
    serial: u64,
}

pub struct Applied {
    pub register: Register,
    /// Network, state and last byte of each wish.
    pub done: Vec<(usize, &'static str, u8)>,
    pub plan: u64,
    /// Whether it is the latest plan again.
    pub again: bool,
    /// Whether anything is granted, promised, let go or taken back.
    changed: bool,
}

/// State and last byte of each wish for one network, by instance.
type Done = BTreeMap<usize, (&'static str, u8)>;

/// The number under which wishes are decided; whether that is the latest plan again, and whether that is open.
#[derive(Clone, Copy)]
struct Under {
    plan: u64,
    again: bool,
    open: bool,
}

impl Register {
    pub fn current(&self, instance: usize, network: usize) -> Option<u8> {
        let own = |(place, held): &(&Place, &Held)| {
            place.0 == network && held.instance == instance && held.obsolete.is_none()
        };
        self.held.iter().find(own).map(|(place, _)| place.1)
    }

    fn within(&self, network: usize) -> impl Iterator<Item = (u8, &Held)> {
        self.held.range((network, 0)..=(network, u8::MAX)).map(|((_, last), held)| (*last, held))
    }

    /// An apply: under a number of its own, unless it repeats the latest plan.
    pub fn apply(&self, wishes: &Wishes, next: u64) -> Result<Applied, &'static str> {
        let new = Under { plan: next, again: false, open: false };
        let again = self.latest.as_ref().filter(|last| last.wishes == *wishes && last.stage != Stage::Reverted);
        let Some(latest) = again else { return self.applied(wishes, new) };
        let open = latest.stage == Stage::Open;
        let repeat = self.applied(wishes, Under { plan: latest.plan, again: true, open })?;
        if open || !repeat.changed { Ok(repeat) } else { self.applied(wishes, new) }
    }

    fn applied(&self, wishes: &Wishes, under: Under) -> Result<Applied, &'static str> {
        let mut register = self.clone();
        let mut done: BTreeMap<(usize, usize), (&'static str, u8)> = BTreeMap::new();
        let mut refused = BTreeSet::new();
        let mut changed = false;
        for network in 0..NETWORKS {
            match register.apply_in(network, wishes, under) {
                Ok((of_it, changes)) => {
                    changed |= changes;
                    done.extend(of_it.into_iter().map(|(instance, told)| ((instance, network), told)));
                }
                Err(kind) => drop(refused.insert(kind)),
            }
        }
        // In the protocol's order, which is alphabetical here.
        if let Some(kind) = refused.first() {
            return Err(kind);
        }
        let before = register.latest.take();
        let uncommitted = changed || before.as_ref().is_some_and(|before| before.uncommitted);
        let since = before.as_ref().map_or(0, |before| before.since);
        let (stage, settled) = match before.filter(|_| under.again) {
            // What was reverted of the plan is wished again.
            Some(mut before) => {
                before.settled.retain(|_, reverted| !(*reverted && changed));
                (before.stage, before.settled)
            }
            None => (Stage::Open, BTreeMap::new()),
        };
        register.latest = Some(Latest { plan: under.plan, stage, wishes: wishes.clone(), settled, uncommitted, since });
        let done = done.into_iter().map(|((_, network), (state, last))| (network, state, last)).collect();
        Ok(Applied { register, done, plan: under.plan, again: under.again, changed })
    }

    /// What the wishes for one network lead to: state and last byte by instance, and whether anything changes.
    fn apply_in(&mut self, network: usize, wishes: &Wishes, under: Under) -> Result<(Done, bool), &'static str> {
        let plan = under.plan;
        let mut done = BTreeMap::new();
        let (mut kept, mut grants) = (BTreeSet::new(), Vec::new());
        for (instance, of_it) in wishes.iter().enumerate() {
            let Some((fresh, wished)) = of_it else { continue };
            let wish = wished[network];
            let fits = |last: u8, held: &Held| match wish {
                Wish::Nothing => false,
                Wish::Automatic => {
                    // Once the plan is committed, the same wishes are new wishes.
                    let repeats = under.again && under.open;
                    let by_it = repeats && (held.granted == Some(plan) || held.settled == Some(plan));
                    last < STATIC && (!fresh || by_it)
                }
                Wish::Static(at) => last == at,
            };
            let own = self.within(network).filter(|(last, held)| held.instance == instance && fits(*last, held));
            // The current reservation, or the obsolete one that was granted last.
            let stays = own.max_by_key(|(_, held)| (held.obsolete.is_none(), held.serial));
            match stays {
                Some((last, held)) => {
                    let new = under.open && held.granted == Some(plan);
                    done.insert(instance, (if new { "new" } else { "kept" }, last));
                    kept.insert(last);
                }
                None if wish == Wish::Nothing => {}
                None => grants.push((instance, wish)),
            }
        }
        let mut promised: BTreeMap<u8, usize> = BTreeMap::new();
        let mut named = BTreeSet::new();
        for (instance, wish) in &grants {
            let Wish::Static(last) = wish else { continue };
            match self.held.get(&(network, *last)) {
                _ if !named.insert(*last) => return Err("already_in_use"),
                Some(_) if kept.contains(last) => return Err("already_in_use"),
                Some(_) => drop(promised.insert(*last, *instance)),
                None => {}
            }
        }
        let mut changed = false;
        for ((_, last), held) in self.held.range_mut((network, 0)..=(network, u8::MAX)) {
            let before = held.clone();
            held.promise = promised.get(last).map(|to| match before.promise {
                Some((by, other)) if other == *to => (by, other),
                _ => (plan, *to),
            });
            (held.settled, held.revived, held.leaving) = (None, None, None);
            if kept.contains(last) {
                held.settled = before.settled.filter(|by| *by == plan);
                let was = held.obsolete.take().filter(|was| *was != plan);
                held.revived = before.revived.filter(|(by, _)| *by == plan).or(was.map(|was| (plan, was)));
            } else if held.obsolete.is_none() && promised.values().any(|to| *to == held.instance) {
                held.leaving = before.leaving.or(Some(plan));
            } else if held.obsolete.is_none() {
                held.obsolete = Some(plan);
            }
            changed |= held.obsolete.is_some() != before.obsolete.is_some();
            changed |= held.promise.is_some() && held.promise != before.promise;
            changed |= held.leaving.is_some() && before.leaving.is_none();
        }
        grants.sort_by_key(|(_, wish)| !matches!(wish, Wish::Static(_)));
        for (instance, wish) in grants {
            let last = match wish {
                Wish::Static(last) => last,
                Wish::Automatic | Wish::Nothing => {
                    let lowest = (1..=DYNAMIC).find(|last| !self.held.contains_key(&(network, *last)));
                    lowest.ok_or("not_enough_capacity")?
                }
            };
            if promised.contains_key(&last) {
                done.insert(instance, ("promised", last));
                continue;
            }
            self.serial += 1;
            changed = true;
            assert_eq!(self.held.insert((network, last), Held::of(instance, plan, self.serial)), None);
            done.insert(instance, ("new", last));
        }
        Ok((done, changed))
    }

    /// Reservations whose holder waits for an address that nobody will give up, or only somebody who waits in vain, too.
    fn stranded(&self, network: usize) -> BTreeSet<u8> {
        let waits = |held: &Held| held.obsolete.is_none() && held.leaving.is_some();
        let mut stranded: BTreeSet<u8> = BTreeSet::new();
        loop {
            let comes = |instance: usize| {
                self.within(network).any(|(last, held)| {
                    let goes = held.obsolete.is_some() || held.leaving.is_some() && !stranded.contains(&last);
                    goes && held.promise.is_some_and(|(_, to)| to == instance)
                })
            };
            let more: BTreeSet<u8> = self
                .within(network)
                .filter(|(_, held)| waits(held) && !comes(held.instance))
                .map(|(at, _)| at)
                .collect();
            if more.is_subset(&stranded) {
                return stranded;
            }
            stranded.extend(more);
        }
    }

    /// A commit or a revert, for all or some instances: what is released, or why it is refused.
    pub fn settle(
        &mut self,
        plan: u64,
        some: Option<&BTreeSet<usize>>,
        revert: bool,
    ) -> Result<Vec<Place>, &'static str> {
        let ended = if revert { Stage::Reverted } else { Stage::Committed };
        let latest = self.latest.as_ref().ok_or("not_found")?;
        let otherwise = |one: &usize| latest.settled.get(one).is_some_and(|reverted| *reverted != revert);
        if latest.plan != plan || some.into_iter().flatten().any(otherwise) {
            return Err("conflict");
        }
        let is_repeat = |some: &BTreeSet<usize>| {
            !some.is_empty()
                && some.iter().all(|one| latest.settled.get(one).is_some_and(|reverted| *reverted == revert))
        };
        if latest.stage == ended || some.is_some_and(is_repeat) {
            return Ok(Vec::new());
        }
        if latest.stage == Stage::Reverted && latest.settled.values().any(|reverted| *reverted) {
            // Some instances were reverted, and the others kept what they had: a commit finds nothing to release.
            return Ok(Vec::new());
        }
        if latest.stage != Stage::Open {
            return Err("conflict");
        }
        // An instance that was committed by itself is not reverted with the others, and does not wait for a commit.
        let committed = |instance: &usize| latest.settled.get(instance) == Some(&false);
        let spared: BTreeSet<usize> = (0..INSTANCES).filter(committed).collect();
        let taken_back: BTreeSet<usize> = (0..INSTANCES).filter(|one| latest.settled.get(one) == Some(&true)).collect();
        // What an earlier plan left that never ended; the number tells whether it is from before.
        let since = latest.uncommitted_since();
        let earlier = |obsolete: Option<u64>| obsolete.is_some_and(|by| by != plan && by >= since);
        let in_all = |instance: &usize| !(revert && spared.contains(instance));
        let covered = |instance: usize| some.map_or_else(|| in_all(&instance), |some| some.contains(&instance));
        let known = self.held.values().flat_map(|held| [Some(held.instance), held.promise.map(|(_, to)| to)]).flatten();
        let meant: BTreeSet<usize> = known.filter(|one| some.is_some() && covered(*one)).collect();
        if revert && (0..NETWORKS).any(|network| self.robs(network, plan, (&covered, &spared))) {
            return Err("conflict");
        }
        let before = self.held.clone();
        let others = |one: &usize| some.is_some_and(|some| !some.contains(one)) && !taken_back.contains(one);
        let others_keep = before.values().any(|held| held.obsolete.is_none() && others(&held.instance));
        let mut left = 0;
        for network in 0..NETWORKS {
            if revert {
                self.revert_in(network, plan, &covered);
            } else {
                left += self.commit_in(network, plan, (&covered, &spared), some.is_some());
            }
        }
        for (place, held) in before.iter().filter(|(_, held)| !covered(held.instance)) {
            let now = self.held.get(place).filter(|now| now.instance == held.instance);
            // The wait of an instance that was committed before is over: what it was promised came, or will not come.
            let ended = now.is_none_or(|now| spared.contains(&held.instance) && now.leaving.is_none());
            let granted = held.granted == Some(plan) && !spared.contains(&held.instance);
            let is_reverted = taken_back.contains(&held.instance);
            let waits = !is_reverted && (held.obsolete.is_some() || held.leaving.is_some() && !ended) || granted;
            let revived = held.revived.is_some_and(|(by, _)| by == plan);
            let granted_earlier = earlier(held.granted) && !spared.contains(&held.instance) && !is_reverted;
            left += usize::from(waits || revived || granted_earlier);
        }
        let of_earlier = |held: &Held| {
            let granted = earlier(held.granted) && !spared.contains(&held.instance);
            earlier(held.obsolete) || held.leaving.is_some() || granted
        };
        // What was reverted is as an earlier plan left it; a commit of all releases that, too.
        let reverted_to = |held: &Held| taken_back.contains(&held.instance) && !covered(held.instance);
        let waits = if revert {
            self.held.values().any(of_earlier)
        } else {
            before.values().any(|held| reverted_to(held) && of_earlier(held))
        };
        let latest = self.latest.as_mut().ok_or("not_found")?;
        latest.settled.extend(meant.into_iter().map(|one| (one, revert)));
        // A plan that was ended in parts is committed if any part was, in whichever order. A revert of no instance at all
        // ends nothing.
        let any_committed = latest.settled.values().any(|reverted| !reverted);
        let stage = match (some, left) {
            (None, _) => Some(ended),
            (Some(_), 0) if revert && latest.settled.is_empty() => None,
            (Some(_), 0) if revert && !any_committed => Some(ended),
            (Some(_), 0) => (!waits).then_some(Stage::Committed),
            (Some(_), _) => None,
        };
        if let Some(stage) = stage {
            latest.stage = stage;
            latest.uncommitted &= revert && waits;
            if stage == Stage::Reverted && !(some.is_some() && others_keep) {
                latest.settled.retain(|_, reverted| !*reverted);
            }
        }
        Ok(before.into_keys().filter(|place| !self.held.contains_key(place)).collect())
    }

    /// Returns how many became obsolete because a promised address came.
    fn commit_in(
        &mut self,
        network: usize,
        plan: u64,
        (covered, spared): (&dyn Fn(usize) -> bool, &BTreeSet<usize>),
        partial: bool,
    ) -> usize {
        let since = self.latest.as_ref().map_or(u64::MAX, Latest::uncommitted_since);
        let was: BTreeMap<u8, Held> = self.within(network).map(|(last, held)| (last, held.clone())).collect();
        let stranded = self.stranded(network);
        let mut leaves: BTreeSet<u8> = was
            .iter()
            .filter(|(_, held)| covered(held.instance))
            .filter(|(last, held)| {
                // A current reservation that is promised to nobody stays until its replacement is there.
                held.obsolete.is_some() || held.leaving.and(held.promise).is_some() && !stranded.contains(last)
            })
            .map(|(last, _)| *last)
            .collect();
        // An instance that is covered, or was before, also leaves what a promised address replaces, and so on.
        let current = |instance: usize| self.current(instance, network);
        loop {
            let to = leaves.iter().filter_map(|last| was[last].promise).map(|(_, to)| to);
            let to = to.filter(|to| covered(*to) || spared.contains(to));
            let more: BTreeSet<u8> = to.filter_map(current).filter(|last| !leaves.contains(last)).collect();
            if more.is_empty() {
                break;
            }
            leaves.extend(more);
        }
        for (last, held) in was.iter().filter(|(last, _)| !leaves.contains(last)) {
            let now = self.held.get_mut(&(network, *last)).unwrap();
            if stranded.contains(last) {
                (now.leaving, now.promise) = (None, None);
            }
            if covered(held.instance) {
                now.revived = None;
                if partial && held.granted == Some(plan) {
                    (now.granted, now.settled) = (None, Some(plan));
                }
                if partial && held.granted.is_some_and(|by| by != plan && by >= since) {
                    now.granted = None;
                }
            }
        }
        let takers: BTreeSet<usize> = leaves.iter().filter_map(|last| was[last].promise).map(|(_, to)| to).collect();
        let mut displaced = 0;
        for last in &leaves {
            let Some((_, to)) = was[last].promise else {
                self.held.remove(&(network, *last));
                continue;
            };
            let has = was.iter().find(|(_, held)| held.instance == to && held.obsolete.is_none()).map(|(at, _)| *at);
            if let Some(has) = has.filter(|has| !leaves.contains(has)) {
                let now = self.held.get_mut(&(network, has)).unwrap();
                (now.obsolete, now.leaving, now.revived, now.settled) = (Some(plan), None, None, None);
                displaced += 1;
            }
            self.serial += 1;
            let gave = &was[last];
            let waits = gave.obsolete.is_none() && gave.leaving.is_some() && !takers.contains(&gave.instance);
            let back = waits.then_some(gave.instance);
            self.held.insert((network, *last), Held { back, ..Held::of(to, plan, self.serial) });
        }
        displaced
    }

    /// Would a revert leave an instance without any address that was committed, and waits for one that would then never
    /// come?
    fn robs(&self, network: usize, plan: u64, (covered, spared): (&dyn Fn(usize) -> bool, &BTreeSet<usize>)) -> bool {
        let mut after = self.clone();
        after.revert_in(network, plan, covered);
        let promised =
            |to: usize| after.within(network).any(|(_, held)| held.promise.is_some_and(|(_, taker)| taker == to));
        let takers = self.within(network).filter_map(|(_, held)| held.promise).map(|(_, taker)| taker);
        let mut committed = takers.filter(|taker| spared.contains(taker));
        committed.any(|taker| after.current(taker, network).is_none() && !promised(taker))
    }

    fn revert_in(&mut self, network: usize, plan: u64, covered: &dyn Fn(usize) -> bool) {
        let own = |held: &Held| covered(held.instance);
        let gives_back = |held: &Held| own(held) && held.granted == Some(plan) && held.back.is_some();
        let given: Vec<(u8, usize)> = self
            .within(network)
            .filter(|(_, held)| gives_back(held))
            .filter_map(|(last, held)| Some((last, held.back?)))
            .filter(|(_, giver)| self.current(*giver, network).is_none())
            .collect();
        self.held.retain(|(of, _), held| *of != network || !own(held) || held.granted != Some(plan));
        let mut back = Vec::new();
        for (place, held) in self.held.range_mut((network, 0)..=(network, u8::MAX)) {
            held.promise = held.promise.filter(|(by, to)| *by != plan || !(covered(held.instance) || covered(*to)));
            if !covered(held.instance) {
                continue;
            }
            held.leaving = held.leaving.filter(|by| *by != plan);
            match held.revived.filter(|(by, _)| *by == plan) {
                Some((_, was)) => (held.revived, held.obsolete) = (None, Some(was)),
                None if held.obsolete == Some(plan) => back.push((*place, held.instance)),
                None => {}
            }
        }
        for (place, instance) in back {
            assert_eq!(self.current(instance, network), None, "it has something else already");
            let held = self.held.get_mut(&place).unwrap();
            held.obsolete = None;
            // It is not let go, so it is promised to nobody, whichever plan promised it.
            held.promise = held.promise.filter(|_| held.leaving.is_some());
        }
        for (last, giver) in given {
            self.serial += 1;
            self.held.insert((network, last), Held { granted: None, ..Held::of(giver, plan, self.serial) });
        }
        for last in self.stranded(network) {
            let held = self.held.get_mut(&(network, last)).unwrap();
            (held.leaving, held.promise) = (None, None);
        }
    }

    /// Gives a plan the number that the server chose instead of the assumed one.
    pub fn renumber(&mut self, thought: u64, plan: u64) {
        let number = |of: &mut u64| *of = if *of == thought { plan } else { *of };
        for held in self.held.values_mut() {
            let plans = [&mut held.obsolete, &mut held.granted, &mut held.settled, &mut held.leaving];
            plans.into_iter().flatten().for_each(number);
            held.revived.iter_mut().for_each(|(by, _)| number(by));
            held.promise.iter_mut().for_each(|(by, _)| number(by));
        }
        self.latest.iter_mut().for_each(|latest| number(&mut latest.plan));
    }

    /// Checks that no instance holds two current reservations in a network.
    pub fn check(&self) {
        for network in 0..NETWORKS {
            for instance in 0..INSTANCES {
                let own = self.within(network).filter(|(_, held)| held.instance == instance && held.obsolete.is_none());
                assert!(own.count() <= 1, "two of {instance} in {network}");
            }
        }
    }
}
