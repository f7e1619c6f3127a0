//! `ip.bind` that names an address and its owner. In a dynamic network it records what the infrastructure picked, provided
//! that no other network of the realm has that address, or has space around it.

use super::{Coordinator, Done, Outcomes, lost};
use crate::actors::directory::CatalogCheck;
use crate::actors::service::Shared;
use crate::core::address::{Address, Range};
use crate::core::catalog::Intent;
use crate::core::command::{Command, Target, derived_id};
use crate::core::outcome::{NetworkView, Outcome};
use crate::core::state::NetworkKind;
use crate::core::types::{Claimant, SubnetId};

impl Coordinator {
    pub(super) async fn bind(&self, network: &str, (target, claimant): (Target, Claimant)) -> Outcomes {
        let route = self.route(network)?;
        let Outcome::Network(view) = self.ask_named(&route, network, self.item(Command::Show, false)).await? else {
            return Err(lost());
        };
        // With a generation the reservation exists already, and nothing is recorded.
        let written = target.address.filter(|_| target.if_generation.is_none());
        let command = Command::Bind(Box::new(target), claimant);
        let Some(address) = written.filter(|_| view.config.kind == NetworkKind::Dynamic) else {
            return self.ask(&route, command).await.map(Done::Outcome);
        };
        // Until the network has answered, nobody else gets the address or space around it.
        let mut act = self.lock(vec![route.id]).await?;
        act.intend(CatalogCheck::Space(None), space_of(&self.shared, &view, address)).await?;
        self.ask(&route, command).await.map(Done::Outcome)
    }
}

/// The intent that keeps an address for a dynamic network while the network records it.
pub(super) fn space_of(shared: &Shared, network: &NetworkView, address: Address) -> Intent {
    let id = SubnetId(derived_id(shared.clock.entropy(), 0));
    // An address is a prefix.
    let subnets = Range::single(address).as_cidr().map(|whole| (id, whole)).into_iter().collect();
    Intent { network: network.config.id, realm: network.config.realm.clone(), name: None, subnets }
}
