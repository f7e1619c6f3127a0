//! What was acknowledged on a line that a failover cut off, on its way to its network. A dynamic network has no space of
//! its own, so it cannot tell whether another network of the realm has the address by now: that is looked after here, as it is
//! when an address is written down there for the first time (`bind`).
//!
//! So is what was granted or renewed behind the move of its subnet, where the move was cut off as well: the space is where it was
//! before, or wherever it is by now. The network that told of it has no place for it, and nobody there is in its way; the one that has
//! the space would give it to somebody else. Where nobody of the realm has it a grant is a conflict of the network that told of it.
//!
//! Before: `serve::late`, of whichever node. After: `core::network::heal` decides what becomes of each.

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

/// A late claim.
type Claim = (Address, Entry);

impl Coordinator {
    /// Asks a network for these claims. Where it fails on the way, those before may have been answered: asked again, they stand.
    pub(super) async fn heal(&self, network: NetworkId, claims: Vec<Claim>, renewed: Vec<LateRenewal>) -> Outcomes {
        let gone = || Refusal::not_found(Missing::Network, network);
        let route = self.shared.routes.by_id(network).ok_or_else(gone)?;
        let Outcome::Network(view) = self.ask_item(&route, self.item(Command::Show, false)).await? else {
            return Err(lost());
        };
        let is_astray = |claim: &Claim| !has_space(&view, claim.0);
        let is_dynamic = view.config.kind == NetworkKind::Dynamic;
        if !is_dynamic && !claims.iter().any(is_astray) {
            let heal = Heal { claims, renewed, elsewhere: false };
            return self.ask(&route, Command::Heal(Box::new(heal))).await.map(Done::Outcome);
        }
        if self.dry_run && claims.len() > 1 {
            // Each is asked for alone: then what was answered is known when another one fails, or finds no room.
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

    async fn heal_astray(
        &self,
        route: &Arc<Route>,
        view: &NetworkView,
        claim: Claim,
        renewal: Option<LateRenewal>,
    ) -> Result<Healing, Box<Fault>> {
        let _nothing_moves = self.nothing_moves().await?;
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

    /// Where whoever was told of it is now: in whichever realm he has the address under that generation, which goes with its
    /// subnet; else whoever in its realm has the space, where it may be somebody else's by now.
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
