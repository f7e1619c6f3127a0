//! Core → JSON: what was decided, written as the protocol's nouns, straight into the output buffer.
//!
//! Reservations and grants are written by hand, because they are what a busy server answers; what they show of network
//! and subnet is written once and kept (`Renderer::parts`) as long as the configuration is the same. Everything else
//! goes through the types of `wire::nouns`, so that it cannot differ from the published schema. A test reads what is
//! written by hand back through the same types.
//!
//! Review notes: is a new member of the reservation in the order of the protocol's page? Is it left out when empty?

pub mod cursor;
mod deployments;
pub(super) mod event;
mod nouns;

use std::sync::Arc;

use serde::Serialize;

use self::nouns::{dns, l2, map_pool, network, pool, reserved, scope_list, state_word, subnet, usage};
use super::sweeping::sweep_result;
use super::text;
use crate::actors::coordinator::{Done, ListOrder, ListPlace};
use crate::actors::events::{Cursor, Happened, held, history};
use crate::core::outcome::{Grant, Lookup, NetworkView, Outcome, UsageReport, View};
use crate::core::state::{NetworkConfig, ReservationKind, SubnetConfig};
use crate::limits::ANSWER_BYTES_MAX;
use crate::wire::{Method, nouns as wire_nouns};

/// How an answer is written.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Of which method.
    pub method: Method,
    /// Little of a grant.
    pub brief: bool,
    /// Whether it was made is answered.
    pub if_absent: bool,
    /// A count in place of a list.
    pub count_only: bool,
    /// Networks with their usage.
    pub usage: bool,
}

/// What a reservation shows of its network and subnet.
#[derive(Debug)]
struct Parts {
    network: Arc<NetworkConfig>,
    subnet: Option<Arc<SubnetConfig>>,
    pool: Option<usize>,
    /// `"network":…,"network_id":…`
    head: Vec<u8>,
    /// `,"subnet":…` up to `l2`.
    middle: Vec<u8>,
}

const PARTS_KEPT: usize = 64;
/// What is kept free of an answer's bound for its envelope and last members.
const ANSWER_SLACK_BYTES: usize = 64 << 10;

/// Writes answers; keeps what it wrote of configurations last.
#[derive(Debug, Default)]
pub struct Renderer {
    kept: Vec<Option<Parts>>,
}

fn slot_of(network: &Arc<NetworkConfig>, subnet: Option<&Arc<SubnetConfig>>, pool: Option<usize>) -> usize {
    let address = Arc::as_ptr(network).addr() ^ subnet.map_or(0, |subnet| Arc::as_ptr(subnet).addr()).rotate_left(7);
    (address >> 4).wrapping_add(pool.unwrap_or(0)).wrapping_mul(0x9e37_79b9) >> 7 & (PARTS_KEPT - 1)
}

impl Renderer {
    fn parts(&mut self, view: &View) -> &Parts {
        if self.kept.is_empty() {
            self.kept.resize_with(PARTS_KEPT, || None);
        }
        let slot = slot_of(&view.network, view.subnet.as_ref(), view.pool);
        let same = |parts: &Parts| {
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

    /// Appends a reservation, its closing brace left out.
    fn open_reservation(&mut self, out: &mut Vec<u8>, view: &View) {
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
        text::key!(out, "created_at");
        text::time(out, held.created_at);
        if let Some((at, in_seconds)) = view.expires {
            text::key!(out, "expires_at");
            text::time(out, at);
            text::key!(out, "expires_in_seconds");
            text::number(out, in_seconds);
        }
        text::key!(out, "generation");
        text::number(out, held.generation.0);
        if let Some(obsolete) = &held.obsolete {
            text::key!(out, "obsolete");
            out.extend_from_slice(b"{\"since\":");
            text::time(out, obsolete.since);
            text::key!(out, "plan");
            text::number(out, obsolete.plan);
            out.push(b'}');
        }
    }

    fn reservation(&mut self, out: &mut Vec<u8>, view: &View) {
        self.open_reservation(out, view);
        out.push(b'}');
    }

    fn grant(&mut self, out: &mut Vec<u8>, grant: &Grant, brief: bool) {
        let view = &grant.view;
        if brief {
            out.extend_from_slice(b"{\"address\":");
            text::address(out, view.address);
            text::key!(out, "prefix_length");
            text::number(out, u64::from(view.reservation.prefix_length));
            text::key!(out, "generation");
            text::number(out, view.reservation.generation.0);
        } else {
            self.open_reservation(out, view);
        }
        text::key!(out, "created");
        text::boolean(out, grant.created);
        if !brief {
            if let Some(claimant) = &grant.previous_claimant {
                text::key!(out, "previous_claimant");
                text::string(out, claimant.as_str());
            }
            if let Some(replaced) = grant.replaced {
                text::key!(out, "replaced");
                text::address(out, replaced);
            }
        }
        out.push(b'}');
    }

    fn found(&mut self, out: &mut Vec<u8>, address: crate::core::address::Address, lookup: &Lookup) {
        out.extend_from_slice(b"{\"address\":");
        text::address(out, address);
        text::key!(out, "state");
        text::string(out, state_word(lookup.state));
        text::key!(out, "network");
        text::string(out, lookup.network.name.as_str());
        if let Some(view) = &lookup.reservation {
            text::key!(out, "reservation");
            self.reservation(out, view);
        }
        out.push(b'}');
    }

    /// Appends the result of one network's answer. `asked` is the address of `ip.get`.
    pub fn outcome(
        &mut self,
        out: &mut Vec<u8>,
        outcome: &Outcome,
        shape: Shape,
        asked: Option<crate::core::address::Address>,
    ) {
        match outcome {
            Outcome::Granted(grant) => self.grant(out, grant, shape.brief),
            Outcome::Acquired { grants, .. } => self.acquired(out, grants, None, shape),
            Outcome::Released(released) => {
                out.extend_from_slice(b"{\"released\":");
                list(out, released, |out, address| text::address(out, *address));
                out.push(b'}');
            }
            Outcome::Reservation(view) => self.reservation(out, view),
            Outcome::Unbound { view, released } => {
                self.open_reservation(out, view);
                if *released {
                    text::key!(out, "released");
                    out.extend_from_slice(b"true");
                }
                out.push(b'}');
            }
            Outcome::Transferred(views) => {
                out.extend_from_slice(b"{\"reservations\":");
                list(out, views, |out, view| self.reservation(out, view));
                out.push(b'}');
            }
            Outcome::Declined { address, granted } => {
                out.extend_from_slice(b"{\"declined\":");
                text::address(out, *address);
                if let Some(grant) = granted {
                    text::key!(out, "reservation");
                    self.reservation(out, &grant.view);
                }
                out.push(b'}');
            }
            Outcome::Lookup(lookup) => {
                let address = asked.or(lookup.reservation.as_ref().map(|view| view.address));
                match address {
                    Some(address) => self.found(out, address, lookup),
                    None => out.extend_from_slice(b"null"),
                }
            }
            Outcome::Listed { views, count, .. } => self.listed(out, views, *count, WHOLE, None, shape),
            Outcome::LetGo { released, more } => {
                out.extend_from_slice(b"{\"released\":");
                list(out, released, |out, address| text::address(out, *address));
                text::key!(out, "more");
                text::boolean(out, *more);
                out.push(b'}');
            }
            Outcome::Network(view) => {
                let mut answer = network(view, None, None);
                answer.cursor =
                    view.at.as_deref().filter(|_| shape.method == Method::NetworkGet).map(event::place_text);
                noun(out, &answer);
            }
            Outcome::Deleted { id, holding } => noun(out, &wire_nouns::DeleteResult { id: *id, holding: *holding }),
            Outcome::Usage(report) => {
                let mut answer = usage(report);
                answer.cursor = report.at.as_deref().map(event::place_text);
                noun(out, &answer);
            }
            Outcome::Map(pools) => noun(out, &wire_nouns::MapResult { pools: pools.iter().map(map_pool).collect() }),
            Outcome::Scopes(scopes) => noun(out, &scope_list(scopes)),
            Outcome::Conflicts(contested) => noun(out, &nouns::conflicts(contested)),
            Outcome::Accepted(contested) => noun(out, &nouns::accepted(contested)),
            Outcome::Subnet { subnet: config, created } => {
                let mut answer = subnet(config);
                answer.created = shape.if_absent.then_some(*created);
                noun(out, &answer);
            }
            Outcome::Pool { subnet, index, created } => match subnet.pools.get(*index) {
                Some(config) => {
                    let mut answer = pool(config);
                    answer.created = shape.if_absent.then_some(*created);
                    noun(out, &answer);
                }
                None => out.extend_from_slice(b"{}"),
            },
            Outcome::Reserved(subnets) => {
                let reserved = subnets.iter().flat_map(|subnet| subnet.reserved.iter().map(reserved)).collect();
                noun(out, &wire_nouns::ReservedResult { reserved });
            }
            Outcome::Done => out.extend_from_slice(b"{}"),
            // Inside the server only; nobody is answered with these.
            Outcome::MovedOut(_)
            | Outcome::Healed(_)
            | Outcome::Expired { .. }
            | Outcome::SweepLooked { .. }
            | Outcome::Swept { .. }
            | Outcome::Deployed { .. }
            | Outcome::Settled { .. } => {
                out.extend_from_slice(b"{}");
            }
        }
    }

    fn acquired(
        &mut self,
        out: &mut Vec<u8>,
        grants: &[(usize, Grant)],
        released: Option<&[(crate::core::types::Name, crate::core::address::Address)]>,
        shape: Shape,
    ) {
        out.extend_from_slice(b"{\"reservations\":");
        list(out, grants, |out, (_, grant)| self.grant(out, grant, shape.brief));
        if let Some(released) = released {
            text::key!(out, "released");
            held_at(out, released);
        }
        out.push(b'}');
    }

    fn listed(
        &mut self,
        out: &mut Vec<u8>,
        views: &[View],
        count: u64,
        (next, order): (Option<&ListPlace>, &ListOrder),
        at: Option<&Cursor>,
        shape: Shape,
    ) {
        if shape.count_only {
            out.extend_from_slice(b"{\"count\":");
            text::number(out, count);
            event_cursor(out, at);
            out.push(b'}');
            return;
        }
        let begin = out.len();
        out.extend_from_slice(b"{\"reservations\":[");
        let mut next = next.cloned();
        for (at, view) in views.iter().enumerate() {
            if out.len() - begin > ANSWER_BYTES_MAX - ANSWER_SLACK_BYTES {
                // The page is full before its limit: the next begins behind the last one shown.
                let last = &views[at - 1];
                next = Some(order.behind(&last.network, Some(last.address)));
                break;
            }
            if at > 0 {
                out.push(b',');
            }
            self.reservation(out, view);
        }
        out.push(b']');
        if let Some(next) = next {
            text::key!(out, "next");
            text::string(out, &cursor::write(&next));
        }
        event_cursor(out, at);
        out.push(b'}');
    }

    /// Appends the result of a job.
    pub fn done(&mut self, out: &mut Vec<u8>, done: &Done, shape: Shape, asked: Option<crate::core::address::Address>) {
        match done {
            Done::Outcome(outcome) => self.outcome(out, outcome, shape, asked),
            Done::Network(view, created) => noun(out, &network(view, None, *created)),
            Done::Acquired { grants, released } => self.acquired(out, grants, released.as_deref(), shape),
            Done::Released { released, more } => {
                out.extend_from_slice(b"{\"released\":");
                held_at(out, released);
                text::key!(out, "more");
                text::boolean(out, *more);
                out.push(b'}');
            }
            Done::Marked(marked) => noun(out, &wire_nouns::MarkResult { marked: *marked }),
            Done::Swept(swept) => noun(out, &sweep_result(swept)),
            Done::Deployed(all) => self.deployed(out, all),
            Done::Settled(released) => deployments::settled(out, released),
            Done::Deployment(record, views) => self.deployment(out, record, views),
            Done::Deployments { page, next } => deployments::deployments(out, page, next.as_ref()),
            Done::Listed { views, count, next, order, cursor } => {
                self.listed(out, views, *count, (next.as_ref(), order), Some(cursor), shape);
            }
            Done::Found(found) => match (shape.method, asked) {
                (Method::IpGet, Some(address)) => match found.first() {
                    Some(lookup) => self.found(out, address, lookup),
                    None => {
                        out.extend_from_slice(b"{\"address\":");
                        text::address(out, address);
                        out.extend_from_slice(b",\"state\":\"unknown\"}");
                    }
                },
                (_, Some(address)) => {
                    out.extend_from_slice(b"{\"found\":");
                    list(out, found, |out, lookup| self.found(out, address, lookup));
                    out.push(b'}');
                }
                (_, None) => out.extend_from_slice(b"{\"found\":[]}"),
            },
            Done::Networks { networks, next, order } => networks_page(out, networks, next.as_ref(), order),
            Done::Realms(realms) => {
                let realms = realms
                    .iter()
                    .map(|(realm, count)| wire_nouns::RealmEntry { realm: realm.clone(), networks: *count });
                noun(out, &wire_nouns::RealmListResult { realms: realms.collect() });
            }
            Done::Scopes(scopes) => noun(out, &scope_list(scopes)),
            Done::Conflicts(contested) => noun(out, &nouns::conflicts(contested)),
            // Which node it is only the session's server knows; subscriptions are the session's.
            Done::Located(_) | Done::Node(_) | Done::Watching { .. } | Done::Events(_) => out.extend_from_slice(b"{}"),
            Done::Past(past) => {
                let next = past.next.as_ref().map(super::cursor::write);
                events_page(out, history::cursors(past.runs.clone()), next, |_, at| super::cursor::write(at));
            }
            Done::HeldAt(page) => {
                let next = page.next.clone().map(cursor::write_held);
                let behind = |event: &Happened, _: &Cursor| cursor::write_held(held::place_of(event));
                events_page(out, page.events.iter().cloned(), next, behind);
            }
        }
    }
}

/// Appends the cursor from which who watches misses nothing.
fn event_cursor(out: &mut Vec<u8>, at: Option<&Cursor>) {
    if let Some(at) = at {
        text::key!(out, "cursor");
        text::string(out, &super::cursor::write(at));
    }
}

/// Appends events as far as they fit; `behind` says where a page goes on that ends with one of them.
fn events_page(
    out: &mut Vec<u8>,
    events: impl Iterator<Item = (Happened, Cursor)>,
    mut next: Option<String>,
    behind: impl Fn(&Happened, &Cursor) -> String,
) {
    let begin = out.len();
    out.extend_from_slice(b"{\"events\":[");
    let mut last: Option<String> = None;
    for (happened, at) in events {
        let before = out.len();
        if last.is_some() {
            out.push(b',');
        }
        noun(out, &event::event(&happened, &at));
        if last.is_some() && out.len() - begin > ANSWER_BYTES_MAX - ANSWER_SLACK_BYTES {
            out.truncate(before);
            next = last.take();
            break;
        }
        last = Some(behind(&happened, &at));
    }
    out.push(b']');
    if let Some(next) = next {
        text::key!(out, "next");
        text::string(out, &next);
    }
    out.push(b'}');
}

fn list<T>(out: &mut Vec<u8>, entries: &[T], mut write: impl FnMut(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (at, entry) in entries.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(out, entry);
    }
    out.push(b']');
}

fn held_at(out: &mut Vec<u8>, released: &[(crate::core::types::Name, crate::core::address::Address)]) {
    list(out, released, |out, (network, address)| {
        out.extend_from_slice(b"{\"network\":");
        text::string(out, network.as_str());
        text::key!(out, "address");
        text::address(out, *address);
        out.push(b'}');
    });
}

/// Appends a noun of `wire`.
pub(super) fn noun(out: &mut Vec<u8>, noun: &impl Serialize) {
    let begin = out.len();
    if let Err(error) = serde_json::to_writer(&mut *out, noun) {
        // None of these types can fail; should one, the answer stays valid JSON and the log says so.
        tracing::error!(%error, "an answer cannot be written");
        out.truncate(begin);
        out.extend_from_slice(b"null");
    }
}

/// Of a list that has no further page.
const WHOLE: (Option<&ListPlace>, &ListOrder) = (None, &ListOrder { naming: None, elsewhere: Vec::new() });

fn networks_page(
    out: &mut Vec<u8>,
    networks: &[(NetworkView, Option<UsageReport>)],
    next: Option<&ListPlace>,
    order: &ListOrder,
) {
    let begin = out.len();
    let mut next = next.cloned();
    out.extend_from_slice(b"{\"networks\":[");
    for (at, (view, report)) in networks.iter().enumerate() {
        let before = out.len();
        if at > 0 {
            out.push(b',');
        }
        noun(out, &network(view, report.as_ref(), None));
        if at > 0 && out.len() - begin > ANSWER_BYTES_MAX - ANSWER_SLACK_BYTES {
            out.truncate(before);
            next = Some(order.behind(&networks[at - 1].0.config, None));
            break;
        }
    }
    out.push(b']');
    if let Some(next) = next {
        text::key!(out, "next");
        text::string(out, &cursor::write(&next));
    }
    out.push(b'}');
}

fn parts_of(view: &View) -> Parts {
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
    Parts { network: Arc::clone(config), subnet: view.subnet.clone(), pool: view.pool, head, middle }
}
