//! Changes of a network's configuration: every rule about one network's subnets, pools, gateways and reserved ranges.
//!
//! Before: the catalog, which alone sees two networks (names, overlaps in a realm). After: `apply`.
//!
//! Each change is a [`ConfigDraft`]: a copy of the configuration (with subnets shared until they are touched) that is
//! edited, judged, and turned into steps. What has not changed makes no step; if nothing changes, there are no steps and no
//! new version. Otherwise the version rises by one. The config step carries it, with the only event of the call, and so does
//! each subnet that changed.
//!
//! A draft notes every refusal that applies ([`FirstRefusal`]), and answers the one that the protocol puts first. Texts are
//! valid when they get here; counts (lists, the result of a merge, the bounds of a network) are checked here.
//!
//! Nothing here loops over addresses. Cost: O(subnets + pools of the subnets touched), plus the search for holders.
//!
//! Review notes: does a new rule note its refusal instead of returning it? Do pools go through `pool::replace`, so that what
//! was granted in them still matches?

mod network;
mod pool;
mod reserved;
mod subnet;
mod subnet_move;
mod subnets;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Network, STANDING_SHOWN_MAX, Standing};
use crate::core::address::{Address, Cidr, Range};
use crate::core::command::{Configure, Context, LabelsPatch, Patch};
use crate::core::outcome::{Decision, NetworkView, Outcome};
use crate::core::refusal::{HeldBy, Refusal};
use crate::core::state::{Entry, Event, EventKind, Key, NetworkConfig, Reservation, State, Step, SubnetConfig};
use crate::core::types::{Labels, SubnetId, Version};
use crate::limits;

pub use network::create;
pub use pool::differs_from as pool_differs_from;
pub use subnet::differs_from as subnet_differs_from;
pub(super) use subnet_move::STEP_BYTES_LEAST;
pub use subnets::taken_by as subnets_taken_by;

impl Network {
    /// Decides a change of configuration.
    ///
    /// # Errors
    /// The refusal that the protocol puts first, out of all that apply. The catalog checks names of networks, and overlaps
    /// with other networks.
    pub(super) fn decide_configure(
        &self,
        change: &Configure,
        if_version: Option<Version>,
        ctx: Context,
    ) -> Result<Decision, Refusal> {
        let open = || ConfigDraft::of_open(self, if_version);
        match change {
            Configure::Update(set) => network::update(open(), set, ctx),
            Configure::Delete { force, purge } => network::delete(ConfigDraft::of(self, if_version), *force, *purge),
            Configure::Restore => network::restore(ConfigDraft::of(self, if_version)),
            Configure::SubnetAdd { input, if_absent } => subnet::add(open(), input, *if_absent, ctx),
            Configure::SubnetModify { subnet, set } => subnet::modify(open(), subnet, set),
            Configure::SubnetRemove { subnet } => subnet::remove(open(), subnet),
            Configure::PoolAdd { input, subnet, if_absent } => pool::add(open(), input, subnet.as_ref(), *if_absent),
            Configure::PoolModify { pool, set } => pool::modify(open(), pool, set),
            Configure::PoolRemove(removal) => pool::remove(open(), removal),
            Configure::ReservedAdd(input) => reserved::add(open(), input),
            Configure::ReservedRemove { range, reserved_for } => {
                reserved::remove(open(), *range, reserved_for.as_ref())
            }
        }
    }

    /// The reservation that covers an address.
    fn holder_at(&self, address: Address) -> Option<(Address, Arc<Reservation>)> {
        let first = *self.standing_in(Range::single(address)).first.first()?;
        self.entries_in(Range::single(first)).into_iter().find_map(|(at, entry)| match entry {
            Entry::Held(reservation) => Some((at, reservation)),
            Entry::Released(_) | Entry::Declined(_) => None,
        })
    }
}

/// Of all refusals that apply, the one to answer: the first in the protocol's order, and of equals the first found.
#[derive(Debug, Default)]
struct FirstRefusal {
    refusal: Option<Refusal>,
}

impl FirstRefusal {
    fn refuse(&mut self, refusal: Refusal) {
        if self.refusal.as_ref().is_none_or(|first| rank(&refusal) < rank(first)) {
            self.refusal = Some(refusal);
        }
    }

    /// This refusal or the noted one, whichever comes first.
    fn first(self, refusal: Refusal) -> Refusal {
        self.refusal.filter(|noted| rank(noted) <= rank(&refusal)).unwrap_or(refusal)
    }

    /// Fails with the refusal noted so far, if there is one.
    fn standing(&self) -> Result<(), Refusal> {
        self.refusal.clone().map_or(Ok(()), Err)
    }

    fn end(self) -> Result<(), Refusal> {
        self.refusal.map_or(Ok(()), Err)
    }
}

/// [`Refusal::precedence`], except that a taken name comes before everything that ranges stand in the way of.
fn rank(refusal: &Refusal) -> u8 {
    const NAME_TAKEN: u8 = 7; // After `out_of_range`, before `overlap`.
    match refusal {
        Refusal::NameTaken { .. } => NAME_TAKEN,
        other => other.precedence() * 2,
    }
}

/// A configuration in the making.
struct ConfigDraft<'a> {
    network: &'a Network,
    config: NetworkConfig,
    /// In drawing order.
    subnets: Vec<Arc<SubnetConfig>>,
    /// Steps that remove addresses together with what they lie in.
    leaving: Vec<Step>,
    verdict: FirstRefusal,
}

/// A draft that was judged: the steps, and the result.
struct Finished {
    steps: Vec<Step>,
    view: NetworkView,
}

impl<'a> ConfigDraft<'a> {
    /// A draft of any network.
    fn of(network: &'a Network, if_version: Option<Version>) -> Self {
        let config = network.config();
        let mut verdict = FirstRefusal::default();
        if let Some(expected) = if_version.filter(|expected| *expected != config.version) {
            verdict.refuse(Refusal::VersionConflict {
                network: config.name.clone(),
                expected: expected.0,
                actual: config.version.0,
            });
        }
        let subnets = network.subnets().to_vec();
        Self { network, config: (**config).clone(), subnets, leaving: Vec::new(), verdict }
    }

    /// A draft of a network that is not closed; a closed one is refused.
    fn of_open(network: &'a Network, if_version: Option<Version>) -> Self {
        let mut draft = Self::of(network, if_version);
        let config = network.config();
        if config.closed {
            let Standing { count, first } = network.all_standing();
            let remembered = || {
                format!(
                    "network `{}` was deleted and is only remembered while {} reservations are held; bring it back with network.restore, or release them by its id {}",
                    config.name,
                    network.reservations(),
                    config.id
                )
            };
            let problem = network.is_ending().unwrap_or_else(remembered);
            draft.verdict.refuse(Refusal::Guarded { count, first, problem });
        }
        draft
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.verdict.refuse(refusal);
    }

    /// Ends a draft that cannot go on after this refusal.
    fn refused(self, refusal: Refusal) -> Result<Decision, Refusal> {
        Err(self.verdict.first(refusal))
    }

    /// Puts a subnet in place of the one with the same id, or after the others.
    fn put(&mut self, subnet: SubnetConfig) {
        match self.subnets.iter_mut().find(|other| other.id == subnet.id) {
            Some(place) => *place = Arc::new(subnet),
            None => self.subnets.push(Arc::new(subnet)),
        }
    }

    /// Refuses what would exceed a bound of the network and is more than before.
    fn check_bounds(&mut self, field: &str) {
        let before = BoundedCounts::of(self.network.subnets());
        BoundedCounts::of(&self.subnets).check(before, field, &mut self.verdict);
    }

    /// Judges the draft and writes down the changes: the config step first, then what leaves, then the subnets.
    fn finish(self, event: EventKind) -> Result<Finished, Refusal> {
        let Self { network, mut config, subnets, leaving, verdict } = self;
        verdict.end()?;
        let version = network.next_version();
        let mut stored: BTreeMap<SubnetId, &Arc<SubnetConfig>> =
            network.subnets().iter().map(|subnet| (subnet.id, subnet)).collect();
        let mut changed = Vec::new();
        let mut now = Vec::with_capacity(subnets.len());
        for subnet in subnets {
            let old = stored.remove(&subnet.id);
            if let Some(old) = old.filter(|old| Arc::ptr_eq(old, &subnet) || **old == subnet) {
                now.push(Arc::clone(old));
                continue;
            }
            let subnet = Arc::new(SubnetConfig { version, ..Arc::unwrap_or_clone(subnet) });
            changed.push(subnet_step(subnet.id, old, Some(&subnet)));
            now.push(subnet);
        }
        let mut steps = leaving;
        steps.extend(stored.into_values().map(|gone| subnet_step(gone.id, Some(gone), None)));
        steps.extend(changed);
        if steps.is_empty() && config == **network.config() {
            return Ok(Finished {
                steps,
                view: NetworkView { config: Arc::clone(network.config()), subnets: now, at: None },
            });
        }
        config.version = version;
        let config = Arc::new(config);
        steps.insert(
            0,
            Step {
                key: Key::Config,
                expect: Some(network.config().version.0),
                state: Some(State::Config(Arc::clone(&config))),
                event: Some(Event { kind: event, before: None }),
            },
        );
        Ok(Finished { steps, view: NetworkView { config, subnets: now, at: None } })
    }
}

impl Finished {
    fn subnet(&self, id: SubnetId) -> Arc<SubnetConfig> {
        let found = self.view.subnets.iter().find(|subnet| subnet.id == id);
        Arc::clone(found.expect("the draft put this subnet"))
    }

    fn answer(self, outcome: Outcome) -> Result<Decision, Refusal> {
        Ok(Decision { steps: self.steps, outcome })
    }

    fn answer_network(self) -> Result<Decision, Refusal> {
        Ok(Decision { steps: self.steps, outcome: Outcome::Network(Box::new(self.view)) })
    }
}

fn subnet_step(id: SubnetId, old: Option<&Arc<SubnetConfig>>, new: Option<&Arc<SubnetConfig>>) -> Step {
    Step {
        key: Key::Subnet(id),
        expect: old.map(|old| old.version.0),
        state: new.map(|new| State::Subnet(Arc::clone(new))),
        event: None,
    }
}

/// The step by which an entry leaves. A held one leaves only with its subnet, for another network; for this network that is
/// its end.
fn leaving_step(address: Address, entry: &Entry) -> Step {
    let event = match entry {
        Entry::Held(held) => Some(Event { kind: EventKind::Transferred, before: Some(Arc::clone(held)) }),
        Entry::Released(_) | Entry::Declined(_) => None,
    };
    Step { key: Key::Address(address), expect: Some(entry.generation().0), state: None, event }
}

/// How many bounded things a network has.
#[derive(Debug, Clone, Copy, Default)]
struct BoundedCounts {
    subnets: usize,
    pools: usize,
    reserved: usize,
}

impl BoundedCounts {
    fn of(subnets: &[Arc<SubnetConfig>]) -> Self {
        subnets.iter().fold(Self { subnets: subnets.len(), ..Self::default() }, |sum, subnet| Self {
            pools: sum.pools + subnet.pools.len(),
            reserved: sum.reserved + subnet.reserved.len(),
            ..sum
        })
    }

    /// Refuses what exceeds a bound, unless it did so before and has not grown.
    fn check(self, before: Self, field: &str, verdict: &mut FirstRefusal) {
        for (count, was, max, noun) in [
            (self.subnets, before.subnets, limits::SUBNETS_MAX, "subnets"),
            (self.pools, before.pools, limits::POOLS_MAX, "pools"),
            (self.reserved, before.reserved, limits::RESERVED_RANGES_MAX, "reserved ranges"),
        ] {
            if count > max && count > was {
                let problem = format!("leads to {count} {noun}; a network has at most {max}");
                verdict.refuse(Refusal::invalid(field, problem));
            }
        }
    }
}

/// Changes a value as a merge patch says; `null` restores the default.
fn patch<T: Clone>(value: &mut T, set: &Patch<T>, default: T) {
    match set {
        Patch::Keep => {}
        Patch::Clear => *value = default,
        Patch::Set(new) => *value = new.clone(),
    }
}

/// Changes an optional value as a merge patch says; `null` removes it.
fn patch_option<T: Clone>(value: &mut Option<T>, set: &Patch<T>) {
    match set {
        Patch::Keep => {}
        Patch::Clear => *value = None,
        Patch::Set(new) => *value = Some(new.clone()),
    }
}

fn patch_tags(tags: &mut Labels, set: &Patch<LabelsPatch>, field: &str, verdict: &mut FirstRefusal) {
    match set {
        Patch::Keep => return,
        Patch::Clear => tags.clear(),
        Patch::Set(members) => {
            for (key, value) in members {
                match value {
                    Some(value) => drop(tags.insert(key.clone(), value.clone())),
                    None => drop(tags.remove(key)),
                }
            }
        }
    }
    check_count(field, tags.len(), limits::LABEL_ENTRIES_MAX, verdict);
}

fn check_count(field: &str, count: usize, max: usize, verdict: &mut FirstRefusal) {
    if count > max {
        verdict.refuse(Refusal::invalid(field, format!("leads to {count} entries, at most {max} are allowed")));
    }
}

/// The refusal of a `set` without members.
fn empty_set() -> Refusal {
    Refusal::invalid("set", "must not be empty; name the members that shall change")
}

fn held_by(reservation: &Reservation) -> Box<HeldBy> {
    Box::new(HeldBy {
        holder: reservation.holder.clone(),
        claimant: reservation.claimant.clone(),
        since: reservation.created_at,
    })
}

/// Adds up the reservations in several ranges, which are given in address order. A block that reaches into two of them
/// counts once.
fn standing_in_all(network: &Network, ranges: impl IntoIterator<Item = Range>) -> Standing {
    let mut sum = Standing::default();
    let mut previous: Option<Range> = None;
    for range in ranges {
        let standing = network.standing_in(range);
        let reaches_back = |(at, reservation): &(Address, Arc<Reservation>)| {
            let block = Cidr::containing(*at, reservation.prefix_length).range();
            previous.is_some_and(|previous| previous.overlaps(block))
        };
        let again = network.holder_at(range.first()).filter(reaches_back);
        sum.count += standing.count - u64::from(again.is_some());
        sum.first.extend(standing.first.into_iter().filter(|at| again.as_ref().is_none_or(|(block, _)| at != block)));
        previous = Some(range);
    }
    sum.first.truncate(STANDING_SHOWN_MAX);
    sum
}

/// Most cooling and declined addresses that go in the commit that removes what they lie in; see
/// [`limits::BATCH_CHANGES_MAX`].
const FORGOTTEN_ENTRIES_MAX: usize = limits::BATCH_CHANGES_MAX / 2;
