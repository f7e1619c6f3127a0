//! The messages of the directory.

use std::ops::Bound;
use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::oneshot;

use crate::actors::routes::Route;
use crate::actors::service::Shared;
use crate::core::address::Address;
use crate::core::catalog::{Intent, IntentId, ListRow, Listing, Naming};
use crate::core::refusal::Refusal;
use crate::core::state::{NetworkConfig, SubnetConfig};
use crate::core::types::{Generation, Name, NetworkId, SubnetId};

/// Asks to lock these networks against other coordinated acts.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Lock {
    /// The networks.
    pub networks: Vec<NetworkId>,
    /// Receives the lock when it is granted.
    pub granted: oneshot::Sender<HeldLock>,
}

/// Ends a [`Lock`].
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Unlock {
    /// The networks.
    pub networks: Vec<NetworkId>,
}

/// Ends an intent that came to nothing.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Abandon {
    /// The intent.
    pub intent: IntentId,
}

/// A lock that was granted. It ends when this is dropped, also if it never arrived at the act that asked for it.
#[derive(Debug)]
pub struct HeldLock {
    pub(super) shared: Arc<Shared>,
    pub(super) networks: Vec<NetworkId>,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        let networks = std::mem::take(&mut self.networks);
        if self.shared.directory().try_send(Unlock { networks }).is_err() {
            self.shared.misses_directory();
        }
    }
}

/// An intent that was noted. If this is dropped before the intent is settled, it came to nothing, also if it never arrived at
/// the act that asked for it.
#[derive(Debug)]
pub struct NotedIntent {
    pub(super) shared: Arc<Shared>,
    pub(super) intent: Option<IntentId>,
}

impl NotedIntent {
    /// The intent, which somebody else ends from here on.
    pub fn hand_over(mut self) -> Option<IntentId> {
        self.intent.take()
    }
}

impl Drop for NotedIntent {
    fn drop(&mut self) {
        if let Some(intent) = self.intent.take()
            && self.shared.directory().try_send(Abandon { intent }).is_err()
        {
            self.shared.misses_directory();
        }
    }
}

/// What the catalog is to check before it notes an intent.
#[derive(Debug, Clone)]
pub enum CatalogCheck {
    /// A new network's name and prefixes.
    Create,
    /// A new name, and space: the network itself judges its own subnets.
    Update,
    /// The name of a closed network.
    Restore,
    /// More space, for a subnet that is not compared with itself.
    Space(Option<(NetworkId, SubnetId)>),
}

/// Checks and notes an intent, in one step.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Intend {
    /// What to check.
    pub check: CatalogCheck,
    /// What to note.
    pub intent: Intent,
    /// Receives the intent, or why it was refused.
    pub decided: oneshot::Sender<Result<NotedIntent, Refusal>>,
}

/// A network as it is durable now.
#[derive(Debug, Clone)]
pub struct DurableNetwork {
    /// Its configuration.
    pub config: Arc<NetworkConfig>,
    /// Its subnets.
    pub subnets: Vec<Arc<SubnetConfig>>,
}

/// Settles an act: lists and publishes its outcome. Answered when it is published.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SettleAct {
    /// The intent that this ends.
    pub intent: Option<IntentId>,
    /// The network now.
    pub standing: DurableNetwork,
    /// Set if the network is new: its actor starts now, above this generation.
    pub created: Option<Generation>,
    /// Told when it is published.
    pub done: oneshot::Sender<()>,
}

/// Reports that a network is durably gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Gone {
    /// The network.
    pub id: NetworkId,
}

/// Reports that a subnet is durably in another network.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct MovedSubnet {
    /// The subnet.
    pub subnet: SubnetId,
    /// The network that had it.
    pub from: NetworkId,
    /// The network that has it.
    pub to: NetworkId,
}

/// Reports a network that was loaded again, as it is now.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Reloaded {
    /// Its configuration.
    pub config: Arc<NetworkConfig>,
    /// Its subnets.
    pub subnets: Vec<Arc<SubnetConfig>>,
}

/// Announces that the tenure is over: nothing is started or published any more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Retire;

/// Reports that a network's mailbox was found closed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Dead {
    /// The route that was tried.
    pub route: Arc<Route>,
}

/// A question about all networks.
#[derive(Debug)]
pub enum CatalogQuestion {
    /// Networks in which an address lies, in one realm or all.
    Holding(Option<Name>, Address),
    /// Listings by name, then id: a page of a list that uses the names of the moment at which the list began.
    Page {
        /// That moment; none: now.
        since: Option<Naming>,
        /// Start here.
        from: Bound<(Name, NetworkId)>,
        /// At most this many.
        limit: usize,
    },
    /// Realms and how many networks each has.
    Realms,
}

/// Answer of a [`CatalogQuestion`].
#[derive(Debug)]
pub enum CatalogAnswer {
    /// The answer to `Holding`.
    Networks(Vec<Arc<Listing>>),
    /// The answer to `Page`, with the moment whose names it uses.
    Page(Naming, Vec<ListRow>),
    /// It is no longer known what was renamed or moved since the moment that was asked for.
    Forgotten,
    /// The answer to `Realms`.
    Realms(Vec<(Name, u64)>),
}

/// Asks a question about all networks.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AskCatalog {
    /// The question.
    pub question: CatalogQuestion,
    /// The answer.
    pub told: oneshot::Sender<CatalogAnswer>,
}
