//! `claimant.mark` and `claimant.sweep`: garbage collection by mark and sweep.
//!
//! ```text
//! 1 look     every network that may hold something of the scope, by slices: who is missing, who is due. Notes nothing.
//! 2 brake    due > max_share × reservations? Then nothing happens: `brake`. The reservations are those of the scope over all
//!            networks, even if only one network is swept
//! 3 note     look again by the same list: note first misses, forget misses of claimants that are alive again
//! 4 act      on what was due in 1, network by network, in steps of one commit each
//! ```
//!
//! **Count and act are two moments; why that is safe.** Everything released in 4 was counted in 2, by name: each binding with
//! its generation and the number of its first miss. The network releases a binding only if at that moment it is still the one
//! that was missed by two sweeps (`network::sweeping`): if it was bound again, granted again, transferred or seen alive since,
//! it is passed over, even if 3, or another sweep, then missed it for the first time again. So between the two moments the set
//! can only shrink, and nothing is released that the brake did not weigh. What may change is the number on the other side: if
//! the scope released most of its reservations in these milliseconds, the share was smaller when it was weighed. The brake is
//! there against a wrong list of the living, and it weighed that list against a state that existed. What is due beyond the
//! bound of one call is weighed by each call as a whole: calling again does not get around the brake.
//!
//! A refused sweep changes nothing, not even first misses: that is why it looks twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use super::configure::is_gone;
use super::locked::is_certainly_not_done;
use super::walk::Walk;
use super::{Coordinator, Done, Outcomes};
use crate::actors::Fault;
use crate::actors::routes::Route;
use crate::actors::sweeps::MarkedList;
use crate::core::address::Address;
use crate::core::command::{Binding, Command, SweepLook};
use crate::core::outcome::{Outcome, UsedAddress};
use crate::core::plural::counted;
use crate::core::refusal::{Missing, Refusal};
use crate::core::types::{Claimant, Name, Scope};
use crate::limits::{BATCH_CHANGES_MAX, SWEEP_LISTED_MAX};

/// When to come again if no more can be marked.
const RETRY_AFTER_MS: u64 = 60_000;
/// The number of parts in which the whole of a scope is counted.
const SHARE_PARTS: u128 = 1_000_000_000;

/// The claimants that are alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Alive {
    /// These claimants.
    Listed(BTreeSet<Claimant>),
    /// The claimants that were marked under this name.
    Marked(CompactString),
}

/// `claimant.sweep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// The scope of the reservations.
    pub scope: Scope,
    /// The claimants that are alive.
    pub alive: Alive,
    /// Only in this network.
    pub network: Option<CompactString>,
    /// How long a claimant must have been missing.
    pub grace_seconds: u64,
    /// The share of the scope that may be released, in billionths.
    pub max_share_billionths: u32,
}

/// A claimant at an address of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimantAt {
    /// The network.
    pub network: Name,
    /// The address, or the first of the block.
    pub address: Address,
    /// Who used it.
    pub claimant: Claimant,
}

/// What happened to those who are missing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Swept {
    /// Left with their owners.
    pub unbound: Vec<ClaimantAt>,
    /// Released with their claimants.
    pub released: Vec<ClaimantAt>,
    /// Missing, but not for long enough.
    pub waiting: Vec<ClaimantAt>,
    /// More was due than one call releases, or something came in between.
    pub more: bool,
}

/// What a look found, over all networks.
#[derive(Default)]
struct Findings {
    reservations: u64,
    due: u64,
    /// By network, at most what one call releases.
    to_unbind: Vec<(Arc<Route>, Name, Binding)>,
    to_release: Vec<(Arc<Route>, Name, Binding)>,
    waiting: Vec<ClaimantAt>,
}

fn at(network: &Name, binding: Binding) -> ClaimantAt {
    ClaimantAt { network: network.clone(), address: binding.address, claimant: binding.claimant }
}

fn all_at(list: Vec<(Arc<Route>, Name, Binding)>) -> Vec<ClaimantAt> {
    list.into_iter().map(|(_, network, binding)| at(&network, binding)).collect()
}

impl Findings {
    /// Is more due than this share of the reservations?
    fn exceeds(&self, max_share_billionths: u32) -> bool {
        let share = u128::from(max_share_billionths) * u128::from(self.reservations);
        u128::from(self.due) * SHARE_PARTS > share
    }

    /// Is more due than one call releases?
    fn more(&self) -> bool {
        self.due > (self.to_unbind.len() + self.to_release.len()) as u64
    }

    fn take(&mut self, route: &Arc<Route>, network: &Name, used: Vec<UsedAddress>) {
        for UsedAddress { binding, released, missing } in used {
            if binding.miss.is_some() {
                self.due += 1;
                let list = if released { &mut self.to_release } else { &mut self.to_unbind };
                if list.len() < SWEEP_LISTED_MAX {
                    list.push((Arc::clone(route), network.clone(), binding));
                }
            } else if missing && self.waiting.len() < SWEEP_LISTED_MAX {
                self.waiting.push(at(network, binding));
            }
        }
    }
}

impl Coordinator {
    /// `claimant.mark`. A dry run notes nothing.
    pub(super) fn mark(&self, scope: &Scope, sweep: &CompactString, claimants: Vec<Claimant>) -> Outcomes {
        let (sweeps, now) = (&self.shared.sweeps, self.shared.clock.boot_ms());
        if self.dry_run {
            let marked = sweeps.marked(scope, sweep, now);
            let mut marked = marked.map(|list| BTreeSet::clone(&list.claimants)).unwrap_or_default();
            marked.extend(claimants);
            return Ok(Done::Marked(marked.len() as u64));
        }
        match sweeps.mark(scope, sweep, claimants, now) {
            Ok(marked) => Ok(Done::Marked(marked as u64)),
            Err(problem) => {
                Err(Box::new(Fault::Overloaded { problem: problem.to_string(), retry_after_ms: RETRY_AFTER_MS }))
            }
        }
    }

    /// `claimant.sweep`.
    pub(super) async fn sweep(&self, ask: Sweep) -> Outcomes {
        let only = ask.network.as_deref().map(|text| self.route(text)).transpose()?;
        let alive = match ask.alive {
            Alive::Listed(listed) => MarkedList { claimants: Arc::new(listed), doubted: false },
            Alive::Marked(sweep) => {
                let now = self.shared.clock.boot_ms();
                self.shared.sweeps.marked(&ask.scope, &sweep, now).ok_or_else(|| nobody_marked(&ask.scope, &sweep))?
            }
        };
        let (scope, grace_seconds) = (ask.scope.clone(), ask.grace_seconds);
        let look = |note| {
            let MarkedList { claimants: alive, doubted } = alive.clone();
            SweepLook { scope: scope.clone(), alive, doubted, grace_seconds, note, after: None }
        };
        let mut found = self.look(only.as_ref(), &look(false)).await?;
        if found.exceeds(ask.max_share_billionths)
            && let Some(only) = &only
        {
            // What is within the brake for one network is within it for all of them: the other networks are asked only here.
            found.reservations += self.held_beside(only, &look(false)).await?;
        }
        if found.exceeds(ask.max_share_billionths) {
            let (would_release, reservations) = (found.due, found.reservations);
            return Err(Refusal::Brake { scope: ask.scope, would_release, reservations }.into());
        }
        if self.dry_run {
            let more = found.more();
            let (unbound, released) = (all_at(found.to_unbind), all_at(found.to_release));
            return Ok(Done::Swept(Swept { unbound, released, waiting: found.waiting, more }));
        }
        self.look(only.as_ref(), &look(true)).await?;
        self.act(found).await.map(Done::Swept)
    }

    /// Looks at one network, or at each that may hold something of the scope.
    async fn look(&self, only: Option<&Arc<Route>>, look: &SweepLook) -> Result<Findings, Box<Fault>> {
        let mut found = Findings::default();
        if let Some(route) = only {
            let name = self.name_of(route).await?;
            self.look_in(route, &name, look, &mut found).await?;
            return Ok(found);
        }
        self.look_beside(None, look, &mut found).await?;
        Ok(found)
    }

    /// How many reservations the scope has in networks other than this one.
    async fn held_beside(&self, one: &Arc<Route>, look: &SweepLook) -> Result<u64, Box<Fault>> {
        let mut found = Findings::default();
        self.look_beside(Some(one), look, &mut found).await?;
        Ok(found.reservations)
    }

    /// Looks at each network that may hold something of the scope, except one.
    async fn look_beside(
        &self,
        except: Option<&Arc<Route>>,
        look: &SweepLook,
        found: &mut Findings,
    ) -> Result<(), Box<Fault>> {
        let mut walk = Walk::after(self, None).holding(Some(&look.scope), None);
        while let Some(listing) = walk.next().await? {
            let Some(route) = self.route_of(&listing) else { continue };
            if except.is_some_and(|except| except.id == route.id) {
                continue;
            }
            match self.look_in(&route, &listing.name, look, found).await {
                // Deleted while we walked: nothing is held there.
                Err(fault) if !is_gone(&fault) => return Err(fault),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    async fn look_in(
        &self,
        route: &Arc<Route>,
        name: &Name,
        look: &SweepLook,
        found: &mut Findings,
    ) -> Result<(), Box<Fault>> {
        let mut look = look.clone();
        loop {
            match self.ask(route, Command::SweepLook(Box::new(look.clone()))).await? {
                Outcome::SweepLooked { used, reservations, next } => {
                    found.reservations += reservations;
                    found.take(route, name, used);
                    match next {
                        Some(address) => look.after = Some(address),
                        None => return Ok(()),
                    }
                }
                _ => return Err(super::lost()),
            }
        }
    }

    /// Releases what was due, network by network. A failure after something was released does not undo that: if the rest was
    /// certainly not done, the answer tells what was, and that there is more. A client that sweeps again is then told what is
    /// in the way.
    async fn act(&self, mut found: Findings) -> Result<Swept, Box<Fault>> {
        let (waiting, more) = (std::mem::take(&mut found.waiting), found.more());
        let mut swept = Swept { waiting, more, ..Swept::default() };
        match self.act_on(found, &mut swept).await {
            Ok(()) => Ok(swept),
            Err(fault) if swept.unbound.is_empty() && swept.released.is_empty() => Err(fault),
            Err(fault) if is_certainly_not_done(&fault) => Ok(Swept { more: true, ..swept }),
            Err(fault) => {
                let (unbound, released) = (swept.unbound.len(), swept.released.len());
                let done = format!("{} unbound and {released} released, and they stay so", counted(unbound, "address"));
                Err(Box::new(fault.after(&done)))
            }
        }
    }

    async fn act_on(&self, found: Findings, swept: &mut Swept) -> Result<(), Box<Fault>> {
        let mut due: Vec<(Arc<Route>, Name, Binding)> = found.to_unbind;
        due.extend(found.to_release);
        // By network name, then address, in the order of the look: both lists are already in that order.
        due.sort_by(|(_, one, a), (_, other, b)| (one, a.address).cmp(&(other, b.address)));
        let (mut due, mut slice) = (&due[..], BATCH_CHANGES_MAX);
        while let Some((route, name, _)) = due.first() {
            let of_network = due.iter().take(slice).take_while(|(other, ..)| other.id == route.id);
            let bindings: Vec<Binding> = of_network.map(|(.., binding)| binding.clone()).collect();
            let asked = bindings.len();
            let answer = self.ask(route, Command::Sweep(bindings)).await;
            if asked > 1 && answer.as_ref().is_err_and(|fault| self.is_too_much(fault)) {
                slice = asked / 2;
                continue;
            }
            due = &due[asked..];
            match answer {
                Ok(Outcome::Swept { unbound, released }) => {
                    swept.unbound.extend(unbound.into_iter().map(|binding| at(name, binding)));
                    swept.released.extend(released.into_iter().map(|binding| at(name, binding)));
                }
                Ok(_) => return Err(super::lost()),
                Err(fault) if is_gone(&fault) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }
}

fn nobody_marked(scope: &Scope, sweep: &CompactString) -> Box<Fault> {
    let hint = Some(
        "mark live claimants with claimant.mark, then sweep; marks end after an hour, and when the server restarts or another node takes over"
            .to_owned(),
    );
    let what = format!("`{sweep}` of scope `{scope}`");
    Refusal::NotFound { missing: Missing::Sweep, what, hint }.into()
}
