//! What is under way and keeps others back: acts on networks and their space, in the order in which their client sent them.
//!
//! **By name.** An act keeps back what names the same network, however it names it.
//!
//! **By space.** Subnets of a realm never overlap, whichever networks have them. So an act that may give space back keeps back
//! those behind it that take space of its realm: who deletes a network and makes another one in its place need not wait for the
//! answer in between. Several that only give space back, or only take some, are under way together. A network that is closed
//! goes with its last reservation, whatever lets go of that: so what lets go keeps back what takes space, too.
//!
//! **By MAC.** A MAC is unique in its realm, whichever of its networks carries it. So whoever names one that another network uses
//! is kept back by what may let go of it there. That is known where the networks are: a node that asks another one keeps nothing
//! back for it.
//!
//! Nothing that is kept back is under way itself, so none of them waits for what waits for it.
//!
//! What lets go is ordinary traffic, of which nothing is noted here: whoever may have to wait for it, and that is rare, looks for it
//! among all that is under way. A request that names no MAC costs no more than to see that.

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

/// An act that is not answered.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) ticket: u32,
    /// What its networks are called.
    touches: Vec<CompactString>,
    /// The realm in which it may give space back.
    frees_in: Option<Name>,
}

impl Session {
    /// From here on it keeps others back, until it is answered or waits for capacity.
    pub(super) fn begins(&mut self, ticket: u32, touches: Vec<CompactString>, job: &Job, dry_run: bool) {
        let frees_in = if dry_run { None } else { self.frees_in(job) };
        let touches = self.aliases(touches);
        self.unfinished.push(Unfinished { ticket, touches, frees_in });
    }

    /// Must it wait for something that is under way?
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
            // Another node knows which names are one network's.
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

    /// Does it take space of a realm where something before it may give some back, or a MAC that another network uses?
    fn takes_what_may_come_free(&self, job: &Job) -> bool {
        let takes_in = match job {
            Job::Create { input, .. } => Some(input.realm.clone().unwrap_or_else(Name::default_realm)),
            Job::Configure { network, change, .. } if space_of(change).takes => self.realm_of(network),
            // Of several networks it is none of one, but waits for all that is before it.
            Job::Acquire { parts, .. } => {
                return parts.first().is_some_and(|part| {
                    given(part.ask.options.mac).is_some_and(|mac| self.mac_may_come_free(&part.network, mac))
                });
            }
            _ => return false, // No other act takes space of its realm, or names a MAC.
        };
        // Another node knows which realm it is.
        takes_in.is_some() && self.unfinished.iter().any(|act| act.frees_in == takes_in)
            || self.is_under_way(may_end_a_network)
    }

    /// Does another network of the realm use it, where something before this may let go of it? As a rule none does, and nothing is
    /// looked through.
    fn mac_may_come_free(&self, network: impl fmt::Display, mac: Mac) -> bool {
        let Some(shared) = self.role.actors().filter(|_| self.sent > self.waiting) else { return false };
        let is_used_elsewhere = |route: Arc<Route>| {
            let asker = MacAsker { realm: &route.realm, network: route.id, transaction: None };
            shared.macs.elsewhere(asker, mac).is_some()
        };
        shared.routes.find(&network.to_string()).is_some_and(is_used_elsewhere) && self.is_under_way(may_let_a_mac_go)
    }

    /// Is something of these methods under way, and changes what it finds?
    fn is_under_way(&self, is_meant: fn(Method) -> bool) -> bool {
        self.pending.iter().flatten().any(|asked| !asked.shape.dry_run && is_meant(asked.shape.method))
    }

    /// The realm in which an act may give space back.
    fn frees_in(&self, job: &Job) -> Option<Name> {
        match job {
            Job::Configure { network, change, .. } if space_of(change).frees => self.realm_of(network),
            _ => None, // `subnet.move` may as well, for which all that is behind it waits.
        }
    }

    fn realm_of(&self, network: &str) -> Option<Name> {
        self.find(network).map(|route| route.realm.clone())
    }

    pub(super) fn find(&self, text: &str) -> Option<Arc<Route>> {
        self.role.actors()?.routes.find(text)
    }

    /// What a network is called: as it was named, by its name and by its id.
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

/// May it let go of the last reservation of a closed network? What goes through all networks keeps everything back.
fn may_end_a_network(method: Method) -> bool {
    matches!(method, Method::IpRelease | Method::IpUnbind | Method::OwnerRelease | Method::ClaimantSweep)
}

/// May it let go of a MAC? A grant may, by what it replaces, and is passed over: of those that name a MAC which another network
/// uses, each would wait for the one before.
fn may_let_a_mac_go(method: Method) -> bool {
    may_end_a_network(method) || matches!(method, Method::IpUpdate | Method::IpDecline | Method::NetworkDelete)
}

/// The MAC that it is to have.
#[inline]
fn mac_named(command: &Command) -> Option<Mac> {
    match command {
        Command::Allocate(ask) => given(ask.options.mac),
        Command::Claim(ask) => given(ask.options.mac),
        Command::Update(_, set) => match set.mac {
            Patch::Set(wish) => given(Some(wish)),
            Patch::Keep | Patch::Clear => None,
        },
        _ => None, // No other names one.
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
