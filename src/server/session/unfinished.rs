//! Requests under way that hold later ones back: acts on networks and their space take effect in the order in which they were sent.
//!
//! **By name.** An act holds back later requests for the same network, whether they use its name or its id.
//!
//! **By space.** Subnets of a realm never overlap, whichever networks have them. So an act that may give space back holds back
//! later acts that take space of its realm: a client that deletes a network and creates another one in its place need not wait for
//! the answer in between. Several acts that only give space back, or that only take some, run together. A closed network ends with
//! its last reservation, whatever releases that one: so releases hold back acts that take space, too.
//!
//! **By MAC.** A MAC is unique in its realm, whichever network carries it. So a request with a MAC that another network uses is
//! held back by earlier requests that may give it up there. Only the owner knows this: a node that forwards requests holds nothing
//! back for it.
//!
//! A request that is held back is not under way itself, so no two requests wait for each other.
//!
//! Releases are ordinary traffic, so nothing is noted for them here. The few requests that may have to wait for one search
//! everything under way instead. A request without a MAC only pays for finding that it has none.

use std::fmt;
use std::sync::Arc;

use compact_str::CompactString;

use super::Session;
use crate::actors::coordinator::Job;
use crate::actors::macs::MacAsker;
use crate::actors::routes::Route;
use crate::core::command::{Command, Configure, MacWish, Patch};
use crate::core::types::{Mac, Name};
use crate::server::dispatch::Errand;
use crate::wire::Method;

/// An act that is not yet answered.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) ticket: u32,
    /// The names and ids of its networks.
    touches: Vec<CompactString>,
    /// The realm in which it may give space back.
    frees_in: Option<Name>,
}

impl Session {
    /// From here on the act holds others back, until it is answered or waits for capacity.
    pub(super) fn begins(&mut self, ticket: u32, touches: Vec<CompactString>, job: &Job, dry_run: bool) {
        let frees_in = if dry_run { None } else { self.frees_in(job) };
        let touches = self.aliases(touches);
        self.unfinished.push(Unfinished { ticket, touches, frees_in });
    }

    /// Must this request wait for one that is under way?
    pub(super) fn must_wait(&self, errand: &Errand) -> bool {
        let touched = |text: &str| self.unfinished.iter().any(|act| act.touches.iter().any(|t| t == text));
        match errand {
            Errand::Here(_) | Errand::Node(_) => false,
            Errand::All(_) => self.sent > self.waiting,
            Errand::One(network, command)
                if let Some(mac) = mac_named(command)
                    && self.mac_may_come_free(network, mac) =>
            {
                true
            }
            Errand::Act(_, job) if self.takes_what_may_come_free(job) => true,
            _ if self.unfinished.is_empty() => false,
            // Only the owner knows which names and ids belong to one network.
            _ if self.role.actors().is_none() => true,
            Errand::One(network, _) => {
                let text = network.to_string();
                touched(&text)
                    || self.find(&text).is_some_and(|route| {
                        touched(&route.id.to_string()) || route.name.as_ref().is_some_and(|name| touched(name.as_str()))
                    })
            }
            Errand::Act(touches, _) => self.aliases(touches.clone()).iter().any(|text| touched(text)),
        }
    }

    /// Does the job take space of a realm in which an earlier request may give some back, or a MAC that one may give up?
    fn takes_what_may_come_free(&self, job: &Job) -> bool {
        let takes_in = match job {
            Job::Create { input, .. } => Some(input.realm.clone().unwrap_or_else(Name::default_realm)),
            Job::Configure { network, change, .. } if space_of(change).takes => self.realm_of(network),
            // An acquire over several networks waits for everything before it anyway.
            Job::Acquire { parts, .. } => {
                return parts.first().is_some_and(|part| {
                    given(part.ask.options.mac).is_some_and(|mac| self.mac_may_come_free(&part.network, mac))
                });
            }
            _ => return false, // No other act takes space of its realm or names a MAC.
        };
        // Without a realm here, only the owner knows which one it is.
        takes_in.is_some() && self.unfinished.iter().any(|act| act.frees_in == takes_in)
            || self.is_under_way(may_end_a_network)
    }

    /// Does another network of the realm use this MAC while an earlier request may give it up? Usually none does, and nothing is
    /// searched.
    fn mac_may_come_free(&self, network: impl fmt::Display, mac: Mac) -> bool {
        let Some(shared) = self.role.actors().filter(|_| self.sent > self.waiting) else { return false };
        let is_used_elsewhere = |route: Arc<Route>| {
            let asker = MacAsker { realm: &route.realm, network: route.id, transaction: None };
            shared.macs.elsewhere(asker, mac).is_some()
        };
        shared.routes.find(&network.to_string()).is_some_and(is_used_elsewhere) && self.is_under_way(may_let_a_mac_go)
    }

    /// Is a request of such a method under way that is not a dry run?
    fn is_under_way(&self, is_meant: fn(Method) -> bool) -> bool {
        self.pending.iter().flatten().any(|asked| !asked.shape.dry_run && is_meant(asked.shape.method))
    }

    /// The realm in which an act may give space back.
    fn frees_in(&self, job: &Job) -> Option<Name> {
        match job {
            Job::Configure { network, change, .. } if space_of(change).frees => self.realm_of(network),
            _ => None, // `subnet.move` may, too, but everything after it waits for it anyway.
        }
    }

    fn realm_of(&self, network: &str) -> Option<Name> {
        self.find(network).map(|route| route.realm.clone())
    }

    pub(super) fn find(&self, text: &str) -> Option<Arc<Route>> {
        self.role.actors()?.routes.find(text)
    }

    /// Everything that the networks are called: as they were named, by name, and by id.
    fn aliases(&self, touches: Vec<CompactString>) -> Vec<CompactString> {
        let mut all = touches;
        for at in 0..all.len() {
            if let Some(route) = self.find(&all[at]) {
                all.push(CompactString::from(route.id.to_string()));
                all.extend(route.name.as_ref().map(|name| CompactString::from(name.as_str())));
            }
        }
        all
    }
}

/// May this method release the last reservation of a closed network? Methods over all networks hold everything back anyway.
fn may_end_a_network(method: Method) -> bool {
    matches!(method, Method::IpRelease | Method::IpUnbind | Method::OwnerRelease | Method::ClaimantSweep)
}

/// May this method give up a MAC? A grant may, by replacing a reservation, but is left out: otherwise each of several grants that
/// name a MAC of another network would wait for the one before.
fn may_let_a_mac_go(method: Method) -> bool {
    may_end_a_network(method) || matches!(method, Method::IpUpdate | Method::IpDecline | Method::NetworkDelete)
}

/// The MAC that the command asks for.
#[inline]
fn mac_named(command: &Command) -> Option<Mac> {
    match command {
        Command::Allocate(ask) => given(ask.options.mac),
        Command::Claim(ask) => given(ask.options.mac),
        Command::Update(_, set) => match set.mac {
            Patch::Set(wish) => given(Some(wish)),
            Patch::Keep | Patch::Clear => None,
        },
        _ => None, // No other command names one.
    }
}

#[inline]
fn given(wish: Option<MacWish>) -> Option<Mac> {
    match wish {
        Some(MacWish::Given(mac)) => Some(mac),
        Some(MacWish::Auto) | None => None,
    }
}

/// What a change of a network may do to the space of its realm.
struct Space {
    frees: bool,
    takes: bool,
}

fn space_of(change: &Configure) -> Space {
    let (frees, takes) = match change {
        Configure::Delete { .. } | Configure::SubnetRemove { .. } => (true, false),
        Configure::SubnetAdd { .. } | Configure::Restore => (false, true),
        Configure::Update(set) => (set.subnets.is_some(), set.subnets.is_some()),
        Configure::SubnetModify { set, .. } => (set.cidr.is_some(), set.cidr.is_some()),
        Configure::PoolAdd { .. }
        | Configure::PoolModify { .. }
        | Configure::PoolRemove(_)
        | Configure::ReservedAdd(_)
        | Configure::ReservedRemove { .. } => (false, false),
    };
    Space { frees, takes }
}
