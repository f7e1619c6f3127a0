//! Brings what was acknowledged on a line that a failover cut off back to its network. A dynamic network has no space of
//! its own, so it cannot tell whether another network of the realm has the address by now. The coordinator checks that here,
//! as it does when an address is recorded there for the first time (`bind`).
//!
//! Leases that were granted or renewed after their subnet moved are handled here too, if the failover cut off the move as
//! well. The space is then where it was before the move, or wherever it went since. The network that reported the lease has no
//! place for it and sees no conflict, while the network that has the space would give the address to somebody else. If no
//! network of the realm has the space, a grant is a conflict of the network that reported it.
//!
//! Before: `serve::late`, of any node. After: `core::network::heal` decides what happens to each.

use std::sync::Arc;

use super::bind::space_of;
use super::configure::is_gone;
use super::{Coordinator, Done, Outcomes, lost};
use crate::actors::Fault;
use crate::actors::directory::{CatalogCheck, CatalogQuestion};
use crate::actors::routes::Route;
use crate::core::address::Address;
use crate::core::command::{Command, Heal, LateRenewal};
use crate::core::outcome::{Healing, NetworkView, Outcome};
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::{Entry, NetworkKind};
use crate::core::types::NetworkId;

/// A late claim: an address and its entry.
type Claim = (Address, Entry);

impl Coordinator {
    /// Asks a network for these claims. If it fails on the way, earlier claims may have been answered: asked again, these
    /// stand.
    pub(super) async fn heal(&self, network: NetworkId, claims: Vec<Claim>, renewed: Vec<LateRenewal>) -> Outcomes {
        let gone = || Refusal::not_found(Missing::Network, network);
        let route = self.shared.routes.by_id(network).ok_or_else(gone)?;
        // Otherwise a subnet could move between the two questions, and its claims would be a conflict where it is no more.
        let nothing_moves = self.nothing_moves().await?;
        let Outcome::Network(view) = self.ask_item(&route, self.item(Command::Show, false)).await? else {
            return Err(lost());
        };
        let is_astray = |claim: &Claim| !has_space(&view, claim.0);
        let is_dynamic = view.config.kind == NetworkKind::Dynamic;
        // What follows waits for the lock of a dynamic network, and a move waits with such a lock until this is given up.
        let _nothing_moves = (!is_dynamic).then_some(nothing_moves);
        if !is_dynamic && !claims.iter().any(is_astray) {
            let heal = Heal { claims, renewed, elsewhere: false };
            return self.ask(&route, Command::Heal(Box::new(heal))).await.map(Done::Outcome);
        }
        if self.dry_run && claims.len() > 1 {
            // Each claim is asked for by itself: then the answers are known when another one fails, or finds no room.
            return Ok(Done::Outcome(Outcome::Healed(Healing { left: 1, ..Healing::default() })));
        }
        let mut done = Healing::default();
        for claim in claims {
            let renewal = renewal_of(&claim, &renewed);
            done += if is_dynamic {
                self.heal_dynamic(&route, &view, claim, renewal).await?
            } else if is_astray(&claim) {
                self.heal_astray(&route, &view, claim, renewal).await?
            } else {
                self.heal_one(&route, claim, renewal, false).await?
            };
        }
        Ok(Done::Outcome(Outcome::Healed(done)))
    }

    async fn heal_one(
        &self,
        route: &Arc<Route>,
        claim: Claim,
        renewal: Option<LateRenewal>,
        elsewhere: bool,
    ) -> Result<Healing, Box<Fault>> {
        let heal = Heal { claims: vec![claim], renewed: renewal.into_iter().collect(), elsewhere };
        match self.ask(route, Command::Heal(Box::new(heal))).await? {
            Outcome::Healed(one) => Ok(one),
            _ => Err(lost()),
        }
    }

    async fn heal_dynamic(
        &self,
        route: &Arc<Route>,
        view: &NetworkView,
        claim: Claim,
        renewal: Option<LateRenewal>,
    ) -> Result<Healing, Box<Fault>> {
        let mut act = self.lock(vec![route.id]).await?;
        let place = space_of(&self.shared, view, claim.0);
        let elsewhere = match act.intend(CatalogCheck::Space(None), place).await {
            Ok(()) => false,
            Err(fault) if matches!(*fault, Fault::Refused(Refusal::Overlap { .. })) => true,
            Err(fault) => return Err(fault),
        };
        self.heal_one(route, claim, renewal, elsewhere).await
    }

    /// To be called while nothing moves.
    async fn heal_astray(
        &self,
        route: &Arc<Route>,
        view: &NetworkView,
        claim: Claim,
        renewal: Option<LateRenewal>,
    ) -> Result<Healing, Box<Fault>> {
        if let Some(home) = self.home_of(view, &claim).await? {
            return self.heal_one(&home, claim, renewal, false).await;
        }
        if renewal.is_none() {
            return self.heal_one(route, claim, None, false).await;
        }
        if let (false, Some(held)) = (self.dry_run, claim.1.held()) {
            tracing::error!(
                network = %view.config.id,
                address = %claim.0,
                holder = %held.holder,
                "its lease was renewed on a line that is cut off, and no network has that space any more: whoever holds it is to \
                 ask for another address"
            );
        }
        Ok(Healing { standing: 1, ..Healing::default() })
    }

    /// The network in which the holder of a late claim is now: in whatever realm it has the address under that generation,
    /// which moves with its subnet; otherwise the network of its realm that has the space, where the address may belong to
    /// another holder by now.
    async fn home_of(&self, view: &NetworkView, (address, late): &Claim) -> Result<Option<Arc<Route>>, Box<Fault>> {
        let mut in_realm = None;
        for listing in self.listings(CatalogQuestion::Holding(None, *address)).await? {
            let is_space = listing.subnets.values().any(|cidr| cidr.range().contains(*address));
            let Some(route) = self.shared.routes.by_id(listing.id).filter(|_| is_space) else { continue };
            let lookup = match self.ask_item(&route, self.item(Command::Get(*address), false)).await {
                Ok(Outcome::Lookup(lookup)) => lookup,
                Err(fault) if !is_gone(&fault) => return Err(fault),
                Ok(_) | Err(_) => continue,
            };
            let is_his = lookup.reservation.is_some_and(|there| {
                let held = &there.reservation;
                there.address == *address
                    && held.generation == late.generation()
                    && late.held().is_some_and(|late| late.holder == held.holder)
            });
            if is_his {
                return Ok(Some(route));
            }
            if listing.realm == view.config.realm && listing.id != view.config.id {
                in_realm = Some(route);
            }
        }
        Ok(in_realm)
    }
}

fn renewal_of((address, entry): &Claim, renewed: &[LateRenewal]) -> Option<LateRenewal> {
    renewed.iter().find(|it| (it.address, it.generation) == (*address, entry.generation())).copied()
}

fn has_space(view: &NetworkView, address: Address) -> bool {
    view.subnets.iter().any(|subnet| subnet.cidr.range().contains(address))
}
