//! The requests of one read, by network: one message for each network, however many requests there are for it.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::actors::Item;
use crate::actors::routes::Route;
use crate::core::types::{Name, NetworkId};
use crate::wire::values::NetworkRef;

/// The requests of one read for one network.
#[derive(Debug)]
pub(super) struct RequestGroup {
    pub(super) to: To,
    pub(super) items: Vec<Item>,
}

/// Where the requests of a group go.
#[derive(Debug)]
pub(super) enum To {
    /// To an actor of this node.
    Here { route: Arc<Route>, by_name: bool },
    /// To the node that owns the register.
    There(NetworkRef),
}

impl To {
    fn is_same_network(&self, other: &To) -> bool {
        match (self, other) {
            (To::Here { route, .. }, To::Here { route: other, .. }) => route.id == other.id,
            // A name and an id may belong to one network: then these requests must keep their order.
            (To::There(NetworkRef::Name(_)), To::There(NetworkRef::Id(_)))
            | (To::There(NetworkRef::Id(_)), To::There(NetworkRef::Name(_))) => true,
            (To::There(network), To::There(other)) => network == other,
            (To::Here { .. }, To::There(_)) | (To::There(_), To::Here { .. }) => false,
        }
    }

    fn is_named_as(&self, other: &To) -> bool {
        match (self, other) {
            (To::Here { by_name, .. }, To::Here { by_name: other, .. }) => by_name == other,
            (To::There(network), To::There(other)) => network == other,
            (To::Here { .. }, To::There(_)) | (To::There(_), To::Here { .. }) => false,
        }
    }
}

/// What a client has asked since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AskedOn {
    /// Nothing.
    #[default]
    Nothing,
    /// One network, whose actor lives on this reactor thread.
    Thread(usize),
    /// Several networks, one without a thread yet, or another node.
    Elsewhere,
}

/// The groups of one read, in the order in which their first requests came.
#[derive(Debug)]
pub(super) struct RequestGroups {
    all: Vec<RequestGroup>,
    /// The last group of each network of this node. One read may bring requests for many networks, so a request must not be
    /// compared with all earlier ones.
    last_of: HashMap<NetworkId, usize>,
    /// Number of requests in the last message: the next one is likely to have as many.
    usual: usize,
}

impl Default for RequestGroups {
    fn default() -> Self {
        Self { all: Vec::new(), last_of: HashMap::new(), usual: 1 }
    }
}

impl RequestGroups {
    /// What these groups ask.
    pub(super) fn asked_on(&self) -> AskedOn {
        match &self.all[..] {
            [] => AskedOn::Nothing,
            [RequestGroup { to: To::Here { route, .. }, .. }] => {
                route.lane.on().map_or(AskedOn::Elsewhere, AskedOn::Thread)
            }
            [RequestGroup { to: To::There(_), .. }] | [_, _, ..] => AskedOn::Elsewhere,
        }
    }

    /// The last group, if it is for a network of this node with this name and was asked by name.
    pub(super) fn last_if_named(&self, name: &Name) -> Option<usize> {
        match self.all.last()?.to {
            To::Here { ref route, by_name: true } if route.name.as_ref() == Some(name) => Some(self.all.len() - 1),
            To::Here { .. } | To::There(_) => None,
        }
    }

    /// The group that a request joins: the last one for its network, or a new one.
    pub(super) fn joined_by(&mut self, to: To) -> usize {
        let last = match &to {
            To::Here { route, .. } => self.last_of.get(&route.id).copied(),
            To::There(_) => self.all.iter().rposition(|group| group.to.is_same_network(&to)),
        };
        match last {
            Some(at) if self.all[at].to.is_named_as(&to) => at,
            // Named in two ways in one read: a new group goes after the earlier one, which keeps the order.
            Some(_) | None => {
                let at = self.all.len();
                if let To::Here { route, .. } = &to {
                    self.last_of.insert(route.id, at);
                }
                self.all.push(RequestGroup { to, items: Vec::with_capacity(self.usual) });
                at
            }
        }
    }

    /// Adds a request to the group that it joins.
    pub(super) fn add(&mut self, group: usize, item: Item) {
        self.all[group].items.push(item);
    }

    /// Takes all groups.
    pub(super) fn drain(&mut self) -> std::vec::Drain<'_, RequestGroup> {
        if let Some(last) = self.all.last() {
            self.usual = last.items.len();
        }
        self.last_of.clear();
        self.all.drain(..)
    }
}
