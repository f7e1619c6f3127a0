//! The answers of the deployment methods.

use std::collections::BTreeMap;

use super::nouns::reserved;
use super::pages::page_by_name;
use super::{Renderer, held_at, list, noun};
use crate::actors::coordinator::{DeployedAll, DeployedSlot};
use crate::core::address::{Address, Cidr};
use crate::core::deployment::{Deployment, SlotState};
use crate::core::outcome::View;
use crate::core::state::ReservedRange;
use crate::core::types::{Name, Owner};
use crate::server::text;
use crate::wire::nouns;

fn state_word(state: SlotState) -> &'static str {
    match state {
        SlotState::Kept => "kept",
        SlotState::New => "new",
        SlotState::Promised => "promised",
        SlotState::None => "none",
    }
}

/// The reserved range that a holding lies in, if the range is not for its holder.
fn in_the_reserve_of(view: &View) -> Option<&ReservedRange> {
    let held = &view.reservation;
    let at = Cidr::new(view.address, held.prefix_length)?.range();
    let lies_in = |reserved: &&ReservedRange| reserved.range.overlaps(at) && !reserved.is_for(&held.holder);
    view.subnet.as_ref()?.reserved.iter().find(lies_in)
}

impl Renderer {
    /// `deployment.plan`, `deployment.apply`.
    pub(super) fn deployed(&mut self, out: &mut Vec<u8>, all: &DeployedAll) {
        out.push(b'{');
        if let Some(plan) = all.plan {
            out.extend_from_slice(b"\"plan\":");
            text::number(out, plan);
            out.push(b',');
        }
        out.extend_from_slice(b"\"instances\":");
        list(out, &all.instances, |out, (id, slots)| {
            out.extend_from_slice(b"{\"id\":");
            text::string(out, id.as_str());
            text::key!(out, "networks");
            list(out, slots, |out, slot| self.slot(out, slot));
            out.push(b'}');
        });
        text::key!(out, "obsolete");
        list(out, &all.obsolete, |out, view| self.reservation(out, view));
        out.push(b'}');
    }

    fn slot(&mut self, out: &mut Vec<u8>, slot: &DeployedSlot) {
        out.extend_from_slice(b"{\"network\":");
        text::string(out, slot.network.as_str());
        text::key!(out, "slot");
        text::string(out, slot.slot.as_str());
        text::key!(out, "state");
        text::string(out, state_word(slot.state));
        if let Some(view) = &slot.view {
            text::key!(out, "reservation");
            self.reservation(out, view);
        }
        if let Some(address) = slot.replaces {
            text::key!(out, "replaces");
            text::address(out, address);
        }
        if let Some(range) = slot.view.as_ref().filter(|_| slot.state == SlotState::Kept).and_then(in_the_reserve_of) {
            text::key!(out, "reserved");
            noun(out, &reserved(range));
        }
        out.push(b'}');
    }

    /// `deployment.get`.
    pub(super) fn deployment(
        &mut self,
        out: &mut Vec<u8>,
        record: &Deployment,
        views: &[View],
        hindrance: Option<&str>,
    ) {
        out.extend_from_slice(b"{\"deployment\":");
        text::string(out, record.name.as_str());
        text::key!(out, "plan");
        text::number(out, record.plan);
        if let Some(since) = record.uncommitted_since {
            text::key!(out, "uncommitted_since");
            text::time(out, since);
        }
        if let Some(hindrance) = hindrance {
            text::key!(out, "hindrance");
            text::string(out, hindrance);
        }
        let mut instances: BTreeMap<&Owner, (Vec<&View>, Vec<&View>)> = BTreeMap::new();
        for view in views {
            let (held, obsolete) = instances.entry(&view.reservation.holder.owner).or_default();
            if view.reservation.obsolete.is_some() { obsolete.push(view) } else { held.push(view) }
        }
        let instances: Vec<_> = instances.into_iter().collect();
        text::key!(out, "instances");
        list(out, &instances, |out, (id, (held, obsolete))| {
            out.extend_from_slice(b"{\"id\":");
            text::string(out, id.as_str());
            text::key!(out, "reservations");
            list(out, held, |out, view| self.reservation(out, view));
            text::key!(out, "obsolete");
            list(out, obsolete, |out, view| self.reservation(out, view));
            out.push(b'}');
        });
        out.push(b'}');
    }
}

/// `deployment.commit`, `deployment.revert`.
pub(super) fn settled(out: &mut Vec<u8>, released: &[(Name, Address)]) {
    out.extend_from_slice(b"{\"released\":");
    held_at(out, released);
    out.push(b'}');
}

/// `deployment.list`.
pub(super) fn deployments(out: &mut Vec<u8>, page: &[Deployment], more: bool) {
    let entry = |out: &mut Vec<u8>, record: &Deployment| {
        let (deployment, plan, uncommitted_since) = (record.name.clone(), record.plan, record.uncommitted_since);
        noun(out, &nouns::DeploymentEntry { deployment, plan, uncommitted_since });
    };
    page_by_name(out, ("deployments", page, more), entry, |record| record.name.as_str());
}
