//! `ip.bind` that names an address and its owner: in a dynamic network it writes down what the infrastructure picked, if no
//! other network of the realm has that address, or space around it.

use super::{Coordinator, Done, Outcomes, lost};
use crate::actors::directory::CatalogCheck;
use crate::core::address::Range;
use crate::core::catalog::Intent;
use crate::core::command::{Command, Target, derived_id};
use crate::core::outcome::Outcome;
use crate::core::state::NetworkKind;
use crate::core::types::{Claimant, SubnetId};

impl Coordinator {
    pub(super) async fn bind(&self, network: &str, (target, claimant): (Target, Claimant)) -> Outcomes {
        let route = self.route(network)?;
        let Outcome::Network(view) = self.ask_item(&route, self.item(Command::Show, false)).await? else {
            return Err(lost());
        };
        let place = target.address.and_then(|address| Range::single(address).as_cidr());
        let command = Command::Bind(Box::new(target), claimant);
        let Some(cidr) = place.filter(|_| view.config.kind == NetworkKind::Dynamic) else {
            return self.ask(&route, command).await.map(Done::Outcome);
        };
        // Until the network has answered nobody else gets the address, or space around it.
        let mut act = self.lock(vec![route.id]).await?;
        let subnets = vec![(SubnetId(derived_id(self.shared.clock.entropy(), 0)), cidr)];
        let intent = Intent { network: route.id, realm: view.config.realm.clone(), name: None, subnets };
        act.intend(CatalogCheck::Space(None), intent).await?;
        self.ask(&route, command).await.map(Done::Outcome)
    }
}
