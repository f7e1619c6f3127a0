//! One network: its configuration, what lies at its addresses, and the only way in which either changes.
//!
//! ```text
//! decide(state, command, context) ──▶ steps + outcome, or a refusal      reads only
//! apply(step)                     ──▶ the state with that key changed    cannot fail
//! load(image)                     ──▶ the state that the store remembers
//! ```
//!
//! Life of an `ip.allocate`, step 4 of 8 (see [`crate`]). Before: `actors::network`. After: `actors::committer`. Inside:
//! `grant` and `claimable` check the request, `selection` looks up what it names, `pick` chooses, `draft` writes the steps
//! down; they query `layout` and `holdings`, which `apply` keeps in step. What can happen after a grant: `lifecycle`, and
//! `release` at its end.
//!
//! Small functions that every grant calls are `#[inline]`: files may be compiled separately, and as calls they made a grant
//! one percent more expensive (`allod-load instructions`).
//!
//! A `Network` has everything that is known of one network, and never looks at another one: the catalog checks names, and
//! overlaps between networks. There is no clock and no randomness here; both come with the [`Context`].
//!
//! Review notes: is `decide` free of effects? Does every new state change go through `apply`, so that loading sees it?

mod cells;
mod claimable;
mod compare;
mod configure;
mod counting;
mod deal;
mod deploy;
mod draft;
mod grant;
mod heal;
mod holdings;
mod layout;
mod left;
mod lifecycle;
mod limits;
mod misfit;
mod no_capacity;
mod past;
mod pick;
mod pool_set;
mod pool_space;
mod read;
mod record;
mod refused;
mod release;
mod rested;
mod selection;
mod settle;
mod sweep;
mod target;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_sequences;
mod waiting;
mod way_back;

pub use compare::{Compared, Odd};
pub use configure::{create, pool_differs_from, subnet_differs_from, subnets_taken_by};
pub use holdings::Entries;
pub use misfit::Misfit;
pub use waiting::{Opened, Reach};
pub use way_back::WayBack;

use std::sync::Arc;

use super::address::{Address, Range};
use super::command::{Command, Context, SubnetRef};
use super::outcome::Decision;
use super::refusal::{Missing, Refusal};
use super::state::{Entry, Key, NetworkConfig, NetworkKind, Policy, State, Step, SubnetConfig};
use super::types::{Generation, Mac, ShardTime, SlotKey, Version};
use holdings::Holdings;
use layout::Layout;
use past::Past;

/// A network in memory.
#[derive(Debug, Clone)]
pub struct Network {
    config: Arc<NetworkConfig>,
    /// In drawing order: by position.
    subnets: Vec<Arc<SubnetConfig>>,
    holdings: Holdings,
    layout: Layout,
    past: Past,
    /// The generation of the next grant.
    next_generation: Generation,
    /// Number of ranges freed so far; orders what is freed within one millisecond.
    freed: u64,
    gone: bool,
}

/// How many addresses [`Standing::first`] has at most.
const STANDING_SHOWN_MAX: usize = 10;
/// How many entries are searched for them.
const STANDING_LOOKED_AT_MAX: usize = 10_000;

/// How many of the addresses that stand in the way of something are listed.
const STANDING_FIRST_MAX: usize = 10;

/// Reservations that stand in the way of something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// How many.
    pub count: u64,
    /// The first of them, at most ten.
    pub first: Vec<Address>,
}

/// Memory that a network takes, in bytes, without what its entries point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Indexes over the entries.
    pub index_bytes: usize,
    /// Free space of the pools.
    pub space_bytes: usize,
    /// Entries: held, cooling, declined.
    pub entries: usize,
}

impl Network {
    /// The network that the store remembers, served from `since` on. No generation up to `floor` is given again. No lease
    /// ends before its holder has had [`crate::limits::LEASE_GRACE_SECONDS`] to renew it, or its whole length if that is
    /// shorter (R-12).
    ///
    /// # Errors
    /// What does not fit together. Such a network must not be served.
    pub fn load(
        config: Arc<NetworkConfig>,
        mut subnets: Vec<Arc<SubnetConfig>>,
        entries: impl Into<Entries>,
        floor: Generation,
        since: ShardTime,
    ) -> Result<Self, Box<Misfit>> {
        subnets.sort_by_key(|subnet| subnet.position);
        match entries.into().settle(since) {
            Ok(settled) => Ok(Self::over(config, subnets, settled, floor)),
            Err((unfit, entries)) => Err(Box::new(Misfit::new(&unfit, config, subnets, entries))),
        }
    }

    /// Over holdings, with the highest generation among them.
    fn over(
        config: Arc<NetworkConfig>,
        subnets: Vec<Arc<SubnetConfig>>,
        (holdings, of_entries): (Holdings, Generation),
        floor: Generation,
    ) -> Self {
        let of_subnets = subnets.iter().map(|subnet| Generation(subnet.first_generation().0.saturating_sub(1)));
        let highest = of_subnets.chain([of_entries]).fold(floor, Generation::max);
        let layout = Layout::build(&config, &subnets, &holdings, Layout::default());
        let next_generation = Generation(highest.0 + 1);
        Self { config, subnets, holdings, layout, past: Past::default(), next_generation, freed: 0, gone: false }
    }

    /// Serves the network from `since` on with the state it already has, as if it had been loaded just now.
    ///
    /// Cost: O(log) of what it holds, for each lease that would end within [`crate::limits::LEASE_GRACE_SECONDS`].
    pub fn serve_from(&mut self, floor: Generation, since: ShardTime) {
        self.next_generation = self.next_generation.max(Generation(floor.0 + 1));
        self.goes_on_from(since);
    }

    /// Continues after a time until `since` in which nobody could renew: no lease ends before its holder has had time for
    /// that (R-12). Cooldowns and probations end when they would have, and so do leases granted from now on.
    ///
    /// Cost: one comparison if `since` is nothing new; otherwise as [`Network::serve_from`].
    pub fn goes_on_from(&mut self, since: ShardTime) {
        if self.holdings.serve_from(since) {
            self.past.end_lists();
        }
    }

    /// A network as it was stored, for tests.
    #[cfg(test)]
    fn of_parts(
        config: Arc<NetworkConfig>,
        subnets: Vec<Arc<SubnetConfig>>,
        entries: impl IntoIterator<Item = (Address, Entry)>,
        next_generation: Generation,
    ) -> Self {
        let entries: std::collections::BTreeMap<Address, Entry> = entries.into_iter().collect();
        let floor = Generation(next_generation.0 - 1);
        Self::load(config, subnets, entries.into_iter().collect::<Entries>(), floor, ShardTime(0))
            .expect("test networks fit together")
    }

    /// The decision on a command. Reads only; the same state, command and context always lead to the same decision.
    ///
    /// # Errors
    /// The first [`Refusal`] in the protocol's order of precedence.
    pub fn decide(&self, command: &Command, context: Context) -> Result<Decision, Refusal> {
        self.decide_any(command, context).map_err(|refusal| refusal.taken_in(&self.config.name))
    }

    fn decide_any(&self, command: &Command, context: Context) -> Result<Decision, Refusal> {
        match command {
            Command::Allocate(ask) => self.allocate(ask, context),
            Command::Claim(ask) => self.claim(ask, context),
            Command::Acquire(ask) => self.acquire(ask, context),
            Command::Release(ask) => self.release(ask, context),
            Command::Renew(target, ttl_seconds) => self.renew(target, *ttl_seconds, context),
            Command::Bind(target, claimant) => self.bind(target, claimant, context),
            Command::Unbind(target, claimant) => self.unbind(target, claimant.as_ref(), context),
            Command::Update(target, set) => self.update(target, set, context),
            Command::Transfer(ask) => self.transfer(ask, context),
            Command::Decline(ask) => self.decline(ask, context),
            Command::Get(address) => Ok(self.look_up(*address, context)),
            Command::List(ask) => self.list(ask, context),
            Command::ReleaseOwner { scope, owner, limit } => Ok(self.release_owner(scope, owner, *limit, context)),
            Command::ReleaseScope { scope, limit } => Ok(self.release_scope(scope, *limit, context)),
            Command::SweepLook(ask) => Ok(self.sweep_look(ask)),
            Command::Sweep(bindings) => Ok(self.sweep(bindings, context)),
            Command::Purge { limit } => Ok(self.purge(*limit, context)),
            Command::Show => Ok(read::read(super::outcome::Outcome::Network(Box::new(self.show())))),
            Command::Usage => Ok(read::read(super::outcome::Outcome::Usage(Box::new(self.usage())))),
            Command::Map { part, format, from } => self.map(part.0.as_ref(), part.1.as_ref(), *format, from.as_deref()),
            Command::Scopes { after, limit } => Ok(self.scopes(after.as_ref(), *limit)),
            Command::Configure { change, if_version } => self.decide_configure(change, *if_version, context),
            Command::MoveOut { subnet, if_version, bytes_max } => {
                self.decide_move_out(subnet, *if_version, *bytes_max, context.now)
            }
            Command::MoveIn(moved) => self.decide_move_in(moved, context),
            Command::Heal(ask) => Ok(self.heal(ask, context)),
            Command::Conflicts => Ok(self.conflicts()),
            Command::Accept(address) => self.accept(*address),
            Command::Expire => Ok(self.expire(context)),
            Command::Deploy(ask) => self.deploy(ask, context),
            Command::Settle(ask) => self.settle(ask, context),
            Command::ZoneTies(ask) => Ok(self.zone_facts(ask)),
            Command::Hindered(ask) => Ok(self.hindered(ask)),
        }
    }

    /// How many generations the decision on a command usually gives. It gives more if promises are kept.
    pub fn generations_wanted(&self, command: &Command) -> u64 {
        match command {
            Command::Allocate(_) | Command::Claim(_) | Command::Decline(_) => 1,
            // It records what the infrastructure picked.
            Command::Bind(..) if self.config.kind == NetworkKind::Dynamic => 1,
            Command::Transfer(_) => 2,
            Command::Acquire(ask) => ask.items.len() as u64,
            Command::Deploy(ask) => ask.wishes.len() as u64,
            _ => 0,
        }
    }

    /// How many generations a decision gives. What comes from elsewhere brings its own.
    pub fn generations_given(&self, command: &Command, decision: &Decision) -> u64 {
        if matches!(command, Command::MoveIn(_) | Command::Heal(_)) {
            return 0;
        }
        let is_new = |step: &&Step| match &step.state {
            Some(State::Entry(Entry::Held(held))) => held.generation >= self.next_generation,
            Some(_) | None => false,
        };
        decision.steps.iter().filter(is_new).count() as u64
    }

    /// Carries out one step of a decision. `now` is the shard's time, by which the policy `oldest` orders what is freed.
    ///
    /// Cost: O(log) of what the network holds; for a changed subnet, the entries in its changed pools.
    pub fn apply(&mut self, step: &Step, now: ShardTime) {
        self.apply_before(step, None, now);
    }

    /// Carries out one step of a decision, before its step `next`. If the decision changes several subnets, the layout is
    /// rebuilt only after the last of them, because in between they may overlap, as when one gives space to another. Returns
    /// the former state of the key.
    pub fn apply_before(&mut self, step: &Step, next: Option<&Step>, now: ShardTime) -> Option<State> {
        if !matches!(step.key, Key::Address(_)) {
            self.past.end_lists();
        }
        match (step.key, &step.state) {
            (Key::Address(address), state) => {
                let entry = match state {
                    Some(State::Entry(entry)) => Some(entry),
                    None => None,
                    Some(State::Config(_) | State::Subnet(_) | State::Deployment(_)) => {
                        unreachable!("an address has an entry for a state")
                    }
                };
                self.set_entry(address, entry, now).map(State::Entry)
            }
            (Key::Config, Some(State::Config(config))) => {
                let derived = |config: &NetworkConfig| (config.policy, config.cooldown_yields, config.closed);
                let rebuild = derived(&self.config) != derived(config);
                let before = std::mem::replace(&mut self.config, Arc::clone(config));
                if rebuild {
                    self.rebuild();
                }
                Some(State::Config(before))
            }
            (Key::Config, None) => {
                self.gone = true;
                Some(State::Config(Arc::clone(&self.config)))
            }
            (Key::Subnet(id), state) => {
                let at = self.subnets.iter().position(|subnet| subnet.id == id);
                let before = at.map(|at| State::Subnet(self.subnets.remove(at)));
                if let Some(State::Subnet(subnet)) = state {
                    self.next_generation = self.next_generation.max(subnet.first_generation());
                    let at = self.subnets.partition_point(|other| other.position <= subnet.position);
                    self.subnets.insert(at, Arc::clone(subnet));
                }
                if !next.is_some_and(|next| matches!(next.key, Key::Subnet(_))) {
                    self.rebuild();
                }
                before
            }
            (Key::Config, Some(State::Subnet(_) | State::Deployment(_) | State::Entry(_))) => {
                unreachable!("a network has a configuration for a state")
            }
            (Key::Deployment, _) => unreachable!("a network is no deployment"),
        }
    }

    fn set_entry(&mut self, address: Address, entry: Option<&Entry>, now: ShardTime) -> Option<Entry> {
        if let Some(entry) = entry {
            self.next_generation = self.next_generation.max(Generation(entry.generation().0 + 1));
        }
        let before = self.holdings.set(address, entry);
        if before.is_none() && entry.is_none() {
            // There is no entry, before or after: such a step only tells the history something.
            return None;
        }
        self.past.note(address, before.as_ref());
        let rest = (self.config.policy == Policy::Oldest && entry.is_none()).then(|| {
            self.freed += 1;
            let freed_at = match &before {
                Some(Entry::Released(released)) => released.released_at,
                // Free since the end of its probation, even if that is noticed later.
                Some(Entry::Declined(declined)) => declined.until.min(now),
                Some(Entry::Held(_)) | None => now,
            };
            (freed_at, self.freed)
        });
        self.layout.entry_changed(address, before.as_ref(), entry, rest);
        before
    }

    fn rebuild(&mut self) {
        let old = std::mem::take(&mut self.layout);
        self.layout = Layout::build(&self.config, &self.subnets, &self.holdings, old);
    }

    /// Its configuration.
    pub fn config(&self) -> &Arc<NetworkConfig> {
        &self.config
    }

    /// Its subnets, in the order in which they are drawn from.
    pub fn subnets(&self) -> &[Arc<SubnetConfig>] {
        &self.subnets
    }

    /// Prefetches the memory that grants need first. Changes nothing. It pays when several commands arrive together: owners
    /// lie anywhere in memory, so one after the other, each command would wait for memory on its own.
    pub fn fetch_ahead<'a>(&self, commands: impl Iterator<Item = &'a Command>) {
        self.holdings.touch(commands.filter_map(|command| match command {
            Command::Allocate(allocate) => Some(&allocate.holder),
            Command::Claim(claim) => Some(&claim.holder),
            _ => None,
        }));
    }

    /// Was it deleted, and is nothing left of it?
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// The subnet that a client names: by prefix, by name, or else by id.
    ///
    /// # Errors
    /// `not_found`.
    pub fn subnet(&self, wanted: &SubnetRef) -> Result<&Arc<SubnetConfig>, Refusal> {
        self.subnet_index(wanted).map(|index| &self.subnets[index])
    }

    /// The subnet in which an address lies. Cost: O(log subnets).
    pub fn subnet_of(&self, address: Address) -> Option<&Arc<SubnetConfig>> {
        self.layout.subnet_of(address).map(|index| &self.subnets[index])
    }

    /// A subnet that shares addresses with a range: the one in which it begins, or ends, or one inside it.
    fn subnet_over(&self, range: Range) -> Option<&Arc<SubnetConfig>> {
        let inside = || self.subnets.iter().find(|subnet| subnet.cidr.range().overlaps(range));
        self.subnet_of(range.first()).or_else(|| self.subnet_of(range.last())).or_else(inside)
    }

    fn subnet_index(&self, wanted: &SubnetRef) -> Result<usize, Refusal> {
        let (found, text) = match wanted {
            SubnetRef::Cidr(cidr) => (self.subnets.iter().position(|subnet| subnet.cidr == *cidr), cidr.to_string()),
            SubnetRef::Named(text) => {
                let named = |subnet: &Arc<SubnetConfig>| subnet.name.as_ref().is_some_and(|name| name.as_str() == text);
                let by_id = || {
                    let id = text.parse().ok()?;
                    self.subnets.iter().position(|subnet| subnet.id == id)
                };
                (self.subnets.iter().position(named).or_else(by_id), text.to_string())
            }
        };
        found.ok_or_else(|| Refusal::not_found(Missing::Subnet, text))
    }

    /// Reservations (current and obsolete) that lie wholly or partly in the range. Cost: O(log n + found).
    pub fn standing_in(&self, range: Range) -> Standing {
        self.holdings.standing_in(range)
    }

    /// Where the first reservation of the range begins. Cost: O(log n), and one look at each other entry before it.
    pub(super) fn first_held_in(&self, range: Range) -> Option<Address> {
        let mut over = self.holdings.overlapping(range);
        over.find(|(_, entry)| matches!(entry, Entry::Held(_))).map(|(address, _)| address)
    }

    /// The MAC of the reservation that begins at this address.
    pub fn mac_at(&self, address: Address) -> Option<Mac> {
        match self.holdings.at(address)? {
            Entry::Held(reservation) => reservation.details.as_ref()?.mac,
            Entry::Released(_) | Entry::Declined(_) => None,
        }
    }

    /// The MACs in use, each with its address.
    pub fn macs(&self) -> impl Iterator<Item = (Mac, Address)> + '_ {
        self.holdings.macs()
    }

    /// All entries that cover addresses of the range: held, cooling and declined.
    pub fn entries_in(&self, range: Range) -> Vec<(Address, Entry)> {
        self.holdings.overlapping(range).map(|(address, entry)| (address, entry.clone())).collect()
    }

    /// All reservations of the network, as what stands in the way of its end.
    fn all_standing(&self) -> Standing {
        // If many cooling entries come first, none may be listed; the count is right all the same.
        let entries = self.holdings.ascending(std::ops::Bound::Unbounded).take(STANDING_LOOKED_AT_MAX);
        let held = entries.filter(|(_, entry)| matches!(entry, Entry::Held(_))).map(|(address, _)| address);
        Standing { count: self.holdings.held(), first: held.take(STANDING_SHOWN_MAX).collect() }
    }

    /// How many reservations it has, current and obsolete.
    pub fn reservations(&self) -> u64 {
        self.holdings.held()
    }

    /// How many entries it has, of every kind.
    pub fn entries(&self) -> usize {
        self.holdings.len()
    }

    /// The address of a slot's current reservation.
    pub fn slot_holder(&self, key: &SlotKey) -> Option<Address> {
        self.holdings.slot(key).map(|(address, _)| address)
    }

    /// An address that is promised to a slot. Cost: O(1) if there is none, otherwise O(everything that its scope holds).
    fn promised_to(&self, key: &SlotKey) -> Option<Address> {
        if !self.holdings.is_promised(key) {
            return None;
        }
        let mut of_scope = self.holdings.of_scope(&key.scope);
        of_scope.find(|(_, held)| holdings::taker_of(held).as_ref() == Some(key)).map(|(address, _)| address)
    }

    /// Scopes that hold anything, even if it is obsolete, or to which a promise was broken. Cost: O(their number).
    pub fn scope_names(&self) -> Vec<super::types::Scope> {
        let held = self.holdings.scope_names();
        let more = self.holdings.scopes_of_broken().filter(|scope| self.holdings.scope_held(scope) == 0);
        held.chain(more).cloned().collect()
    }

    /// How many scopes hold something, without those of which nothing is left but what was declined. Cost: O(1).
    pub fn scope_count(&self) -> usize {
        self.holdings.scope_names().len()
    }

    /// The generation that the next grant gets.
    pub fn next_generation(&self) -> Generation {
        self.next_generation
    }

    /// The version that a change decided now leads to.
    pub fn next_version(&self) -> Version {
        Version(self.config.version.0 + 1)
    }

    /// When the next lease, cooldown or probation ends; then [`Command::Expire`] is due.
    pub fn next_due(&self) -> Option<ShardTime> {
        if !self.holdings.anything_ends() {
            return None;
        }
        let is_over = self.config.closed && self.config.conflicts.is_empty() && self.holdings.held() == 0;
        if is_over && self.holdings.len() > 0 {
            // The remains of a deleted network go at once.
            return Some(ShardTime::default());
        }
        let cooldown = self.config.cooldown_seconds;
        let ends = [
            self.holdings.leases().next().map(|(ends, _)| ends),
            self.holdings.cooling().next().map(|(released_at, _)| released_at.after_seconds(cooldown)),
            self.holdings.declined().next().map(|(until, _)| until),
        ];
        ends.into_iter().flatten().min()
    }

    /// Compares every index and count with one built afresh from the entries. For tests, debug builds and offline checks,
    /// because it costs as much as loading.
    ///
    /// # Errors
    /// A sentence that names the first thing that is out of step.
    pub fn check(&self) -> Result<(), String> {
        self.holdings.check()?;
        self.layout.check(&Layout::build(&self.config, &self.subnets, &self.holdings, Layout::default()))
    }

    /// The memory that it takes.
    pub fn footprint(&self) -> Footprint {
        Footprint {
            index_bytes: self.holdings.index_bytes(),
            space_bytes: self.layout.memory_bytes(),
            entries: self.holdings.len(),
        }
    }
}
