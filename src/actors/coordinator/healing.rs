//! What was acknowledged on a line that a failover cut off, on its way to its network. A dynamic network has no space of
//! its own, so it cannot tell whether another network of the realm has the address by now: that is looked after here, as it is
//! when an address is written down there for the first time (`bind`).
//!
//! Before: `serve::late`, of whichever node. After: `core::network::heal` decides what becomes of each.

use super::bind::space_of;
use super::{Coordinator, Done, Outcomes, lost};
use crate::actors::Fault;
use crate::actors::directory::CatalogCheck;
use crate::core::address::Address;
use crate::core::command::{Command, Heal, LateRenewal};
use crate::core::outcome::{Healing, Outcome};
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::{Entry, NetworkKind};
use crate::core::types::NetworkId;

impl Coordinator {
    /// Asks a network for these claims. Where it fails on the way, those before may have been answered: asked again, they stand.
    pub(super) async fn heal(
        &self,
        network: NetworkId,
        claims: Vec<(Address, Entry)>,
        renewed: Vec<LateRenewal>,
    ) -> Outcomes {
        let gone = || Refusal::not_found(Missing::Network, network);
        let route = self.shared.routes.by_id(network).ok_or_else(gone)?;
        let Outcome::Network(view) = self.ask_item(&route, self.item(Command::Show, false)).await? else {
            return Err(lost());
        };
        let command = |claims, elsewhere| {
            let renewed = renewed.clone();
            Command::Heal(Box::new(Heal { claims, renewed, elsewhere }))
        };
        if view.config.kind != NetworkKind::Dynamic {
            return self.ask(&route, command(claims, false)).await.map(Done::Outcome);
        }
        if self.dry_run && claims.len() > 1 {
            // Each is asked for alone: then what was answered is known when another one fails, or finds no room.
            return Ok(Done::Outcome(Outcome::Healed(Healing { left: 1, ..Healing::default() })));
        }
        let mut done = Healing::default();
        for claim in claims {
            let mut act = self.lock(vec![route.id]).await?;
            let place = space_of(&self.shared, &view, claim.0);
            let elsewhere = match act.intend(CatalogCheck::Space(None), place).await {
                Ok(()) => false,
                Err(fault) if matches!(*fault, Fault::Refused(Refusal::Overlap { .. })) => true,
                Err(fault) => return Err(fault),
            };
            match self.ask(&route, command(vec![claim], elsewhere)).await? {
                Outcome::Healed(one) => done += one,
                _ => return Err(lost()),
            }
        }
        Ok(Done::Outcome(Outcome::Healed(done)))
    }
}
