//! What is under way and keeps others back: acts on networks and their space, in the order in which their client sent them.
//!
//! **By name.** An act keeps back what names the same network, however it names it.
//!
//! **By space.** Subnets of a realm never overlap, whichever networks have them. So an act that may give space back keeps back
//! those behind it that take space of its realm: who deletes a network and makes another one in its place need not wait for the
//! answer in between. Several that only give space back, or only take some, are under way together.
//!
//! Nothing that is kept back is under way itself, so none of them waits for what waits for it.

use std::sync::Arc;

use compact_str::CompactString;

use super::Session;
use crate::actors::coordinator::Job;
use crate::actors::routes::Route;
use crate::core::command::Configure;
use crate::core::types::Name;
use crate::server::dispatch::Errand;

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
            Errand::Act(touches, job) => {
                self.aliases(touches.clone()).iter().any(|text| touched(text)) || self.takes_what_may_come_free(job)
            }
        }
    }

    /// Does it take space of a realm where an act before it may give some back?
    fn takes_what_may_come_free(&self, job: &Job) -> bool {
        let takes_in = match job {
            Job::Create { input, .. } => Some(input.realm.clone().unwrap_or_else(Name::default_realm)),
            Job::Configure { network, change, .. } if space_of(change).takes => self.realm_of(network),
            _ => None, // No other act takes space of its realm.
        };
        takes_in.is_some() && self.unfinished.iter().any(|act| act.frees_in == takes_in)
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
