//! Core → JSON: writes decisions as the protocol's nouns, straight into the output buffer.
//!
//! Reservations and grants are written by hand (`reservation`), because they are most of what a busy server answers.
//! Everything else goes through the types of `wire::nouns` (`nouns`, `event`), so that it cannot differ from the published
//! schema. A test reads what is written by hand back through the same types. Lists end before an answer would become too
//! long (`pages`).

pub mod cursor;
mod deployments;
pub(super) mod event;
mod nouns;
mod pages;
mod reservation;

use serde::Serialize;

pub(crate) use self::event::event_type;
use self::nouns::{map_pool, network, pool, reserved, state_word, subnet, usage};
use self::pages::{LISTED_BYTES_MAX, WHOLE, events_page, networks_page, scopes_page};
use self::reservation::NetworkParts;
use super::sweeping::sweep_result;
use super::text;
use crate::actors::coordinator::Done;
use crate::actors::events::{Cursor, Happened, held, history};
use crate::core::outcome::{Grant, Lookup, Outcome};
use crate::wire::{Method, nouns as wire_nouns};

/// How an answer is written.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The method that is answered.
    pub method: Method,
    /// Write only a few members of a grant.
    pub brief: bool,
    /// Say whether the object was made or existed already.
    pub if_absent: bool,
    /// Write a count instead of a list.
    pub count_only: bool,
    /// Write networks with their usage.
    pub usage: bool,
    /// An acquire may answer more than a few whole reservations, or list again and again what it would release.
    pub many: bool,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// Writes answers; keeps the texts of the configurations that it wrote last.
#[derive(Debug, Default)]
pub struct Renderer {
    kept: Vec<Option<NetworkParts>>,
}

impl Renderer {
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

    /// Do all these fit into one answer? The list of what was found has no pages.
    pub fn finds_room_for(&mut self, found: &[Lookup], address: crate::core::address::Address) -> bool {
        let (mut one, mut bytes) = (Vec::new(), 0);
        found.iter().all(|lookup| {
            one.clear();
            self.found(&mut one, address, lookup);
            bytes += one.len() + 1;
            bytes <= LISTED_BYTES_MAX
        })
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
            Outcome::Listed { slice, .. } => self.listed(out, &slice.views, slice.count, WHOLE, None, shape),
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
            Outcome::Map { pools, .. } => {
                noun(out, &wire_nouns::MapResult { pools: pools.iter().map(map_pool).collect() })
            }
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
            // Used only inside the server and never answered: the coordinator combines such parts of several networks into
            // one answer.
            Outcome::Acquired { .. }
            | Outcome::LetGo { .. }
            | Outcome::MovedOut(_)
            | Outcome::ZoneTies(_)
            | Outcome::Hindered(_)
            | Outcome::Scopes { .. }
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
            Done::Deployment(record, views, hindrance) => {
                self.deployment(out, record, views, hindrance.as_deref());
            }
            Done::Deployments { page, next } => deployments::deployments(out, page, next.is_some()),
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
            Done::Scopes { page, more } => scopes_page(out, page, *more),
            Done::Conflicts(contested) => noun(out, &nouns::conflicts(contested)),
            // Only the session's server knows which node it is; subscriptions belong to the session.
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
