//! Writes reservations and grants by hand, because they are most of what a busy server answers.
//!
//! The part about network and subnet is written once and kept (`Renderer::parts`) as long as the configuration is the same.
//! Before: `render`; also `pages` and `deployments`, which show reservations.
//!
//! Review notes: is a new member of the reservation in the order of the protocol's page? Is it left out when empty?

use std::sync::Arc;

use super::nouns::{dns, l2};
use super::{Renderer, noun};
use crate::core::outcome::{Grant, View};
use crate::core::state::{NetworkConfig, ReservationKind, SubnetConfig};
use crate::core::types::Generation;
use crate::server::text;

/// The part of a reservation about its network and subnet.
#[derive(Debug)]
pub(super) struct NetworkParts {
    network: Arc<NetworkConfig>,
    subnet: Option<Arc<SubnetConfig>>,
    pool: Option<usize>,
    /// `"network":…,"network_id":…`
    head: Vec<u8>,
    /// `,"subnet":…` up to `l2`.
    middle: Vec<u8>,
}

const PARTS_KEPT: usize = 64;

fn slot_of(network: &Arc<NetworkConfig>, subnet: Option<&Arc<SubnetConfig>>, pool: Option<usize>) -> usize {
    let address = Arc::as_ptr(network).addr() ^ subnet.map_or(0, |subnet| Arc::as_ptr(subnet).addr()).rotate_left(7);
    (address >> 4).wrapping_add(pool.unwrap_or(0)).wrapping_mul(0x9e37_79b9) >> 7 & (PARTS_KEPT - 1)
}

impl Renderer {
    fn parts(&mut self, view: &View) -> &NetworkParts {
        if self.kept.is_empty() {
            self.kept.resize_with(PARTS_KEPT, || None);
        }
        let slot = slot_of(&view.network, view.subnet.as_ref(), view.pool);
        let same = |parts: &NetworkParts| {
            Arc::ptr_eq(&parts.network, &view.network)
                && parts.pool == view.pool
                && match (&parts.subnet, &view.subnet) {
                    (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                    (None, None) => true,
                    (Some(_), None) | (None, Some(_)) => false,
                }
        };
        let kept = &mut self.kept[slot];
        if !kept.as_ref().is_some_and(same) {
            *kept = Some(parts_of(view));
        }
        kept.as_ref().expect("it was put there just now")
    }

    /// Appends a reservation without its closing brace.
    pub(super) fn open_reservation(&mut self, out: &mut Vec<u8>, view: &View) {
        let held = &*view.reservation;
        let parts = self.parts(view);
        out.push(b'{');
        out.extend_from_slice(&parts.head);
        text::key!(out, "address");
        text::address(out, view.address);
        text::key!(out, "prefix_length");
        text::number(out, u64::from(held.prefix_length));
        text::key!(out, "interface");
        out.push(b'"');
        text::bare_address(out, view.address);
        out.push(b'/');
        let of_subnet = view.subnet.as_ref().map_or(held.prefix_length, |subnet| subnet.cidr.length());
        text::number(out, u64::from(of_subnet));
        out.push(b'"');
        out.extend_from_slice(&parts.middle);
        text::key!(out, "scope");
        text::string(out, held.holder.scope.as_str());
        text::key!(out, "owner");
        text::string(out, held.holder.owner.as_str());
        text::key!(out, "slot");
        text::string(out, held.holder.slot.as_str());
        let details = held.details.as_deref();
        if let Some(uid) = details.and_then(|details| details.owner_uid.as_ref()) {
            text::key!(out, "owner_uid");
            text::string(out, uid.as_str());
        }
        text::key!(out, "kind");
        text::string(
            out,
            match held.kind {
                ReservationKind::Dynamic => "dynamic",
                ReservationKind::Static => "static",
            },
        );
        if let Some(claimant) = &held.claimant {
            text::key!(out, "claimant");
            text::string(out, claimant.as_str());
        }
        text::key!(out, "release_with_claimant");
        text::boolean(out, held.release_with_claimant);
        text::key!(out, "transient");
        text::boolean(out, held.transient);
        if let Some(details) = details {
            if !details.labels.is_empty() {
                text::key!(out, "labels");
                for (at, (key, value)) in details.labels.iter().enumerate() {
                    out.push(if at == 0 { b'{' } else { b',' });
                    text::string(out, key);
                    out.push(b':');
                    text::string(out, value);
                }
                out.push(b'}');
            }
            for (name, value) in [("note", &details.note), ("hostname", &details.hostname)] {
                if !value.is_empty() {
                    text::member(out, name);
                    text::string(out, value);
                }
            }
            if let Some(mac) = details.mac {
                text::key!(out, "mac");
                text::quoted(out, mac);
            }
        }
        let is_promise = held.generation == Generation::default();
        if !is_promise {
            text::key!(out, "created_at");
            text::time(out, held.created_at);
        }
        if let Some((at, in_seconds)) = view.expires {
            text::key!(out, "expires_at");
            text::time(out, at);
            text::key!(out, "expires_in_seconds");
            text::number(out, in_seconds);
        }
        if !is_promise {
            text::key!(out, "generation");
            text::number(out, held.generation.0);
        }
        if let Some(obsolete) = &held.obsolete {
            text::key!(out, "obsolete");
            out.extend_from_slice(b"{\"since\":");
            text::time(out, obsolete.since);
            text::key!(out, "plan");
            text::number(out, obsolete.plan);
            out.push(b'}');
        }
    }

    pub(super) fn reservation(&mut self, out: &mut Vec<u8>, view: &View) {
        self.open_reservation(out, view);
        out.push(b'}');
    }

    pub(super) fn grant(&mut self, out: &mut Vec<u8>, grant: &Grant, brief: bool) {
        if brief {
            return brief_grant(out, grant);
        }
        self.open_reservation(out, &grant.view);
        text::key!(out, "created");
        text::boolean(out, grant.created);
        if let Some(claimant) = &grant.previous_claimant {
            text::key!(out, "previous_claimant");
            text::string(out, claimant.as_str());
        }
        if let Some(replaced) = grant.replaced {
            text::key!(out, "replaced");
            text::address(out, replaced);
        }
        out.push(b'}');
    }
}

/// The most frequent answer, in one piece.
fn brief_grant(out: &mut Vec<u8>, grant: &Grant) {
    let held = &grant.view.reservation;
    let mut line = text::ShortText::default();
    line.put(b"{\"address\":\"");
    line.put_address(grant.view.address);
    line.put(b"\",\"prefix_length\":");
    line.put_number(u64::from(held.prefix_length));
    line.put(b",\"generation\":");
    line.put_number(held.generation.0);
    line.put(if grant.created { b",\"created\":true}" } else { b",\"created\":false}" });
    out.extend_from_slice(line.as_bytes());
}

fn parts_of(view: &View) -> NetworkParts {
    let (mut head, mut middle) = (Vec::with_capacity(96), Vec::with_capacity(256));
    let config = &view.network;
    head.extend_from_slice(b"\"network\":");
    text::string(&mut head, config.name.as_str());
    text::key!(&mut head, "network_id");
    text::quoted(&mut head, config.id);
    if let Some(subnet) = &view.subnet {
        text::key!(&mut middle, "subnet");
        text::quoted(&mut middle, subnet.cidr);
        text::key!(&mut middle, "subnet_id");
        text::quoted(&mut middle, subnet.id);
        if let Some(pool) = view.pool.and_then(|pool| subnet.pools.get(pool)) {
            text::key!(&mut middle, "pool");
            text::quoted(&mut middle, pool.range);
            if let Some(name) = &pool.name {
                text::key!(&mut middle, "pool_name");
                text::string(&mut middle, name.as_str());
            }
        }
        if let Some(gateway) = subnet.gateway {
            text::key!(&mut middle, "gateway");
            text::address(&mut middle, gateway);
        }
        text::key!(&mut middle, "dhcp");
        text::boolean(&mut middle, subnet.dhcp);
        if let Some(dns) = dns(&subnet.dns) {
            text::key!(&mut middle, "dns");
            noun(&mut middle, &dns);
        }
    } else {
        text::key!(&mut middle, "dhcp");
        text::boolean(&mut middle, false);
    }
    if let Some(l2) = l2(&config.l2) {
        text::key!(&mut middle, "l2");
        noun(&mut middle, &l2);
    }
    NetworkParts { network: Arc::clone(config), subnet: view.subnet.clone(), pool: view.pool, head, middle }
}
