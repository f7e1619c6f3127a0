//! What the directory is told and asked.

use std::ops::Bound;
use std::sync::Arc;

use actix::prelude::*;
use tokio::sync::oneshot;

use crate::actors::routes::Route;
use crate::core::address::Address;
use crate::core::catalog::{Intent, IntentId, ListRow, Listing, Naming};
use crate::core::refusal::Refusal;
use crate::core::state::{NetworkConfig, SubnetConfig};
use crate::core::types::{Generation, Name, NetworkId, SubnetId};

/// Asks for these networks alone, among coordinated acts.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Lock {
    /// Which.
    pub networks: Vec<NetworkId>,
    /// Told when it is granted.
    pub granted: oneshot::Sender<()>,
}

/// Ends a [`Lock`], and the intent of its act where it came to nothing.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Unlock {
    /// Which.
    pub networks: Vec<NetworkId>,
    /// An intent that was not settled.
    pub abandon: Option<IntentId>,
}

/// What the catalog is to check before it notes an intent.
#[derive(Debug, Clone)]
pub enum CatalogCheck {
    /// A new network's name and prefixes.
    Create,
    /// Another name, and space: the network judges its own subnets by itself.
    Update,
    /// The name of a closed network.
    Restore,
    /// More space, for a subnet that is not compared with itself.
    Space(Option<(NetworkId, SubnetId)>),
}

/// Check and note, in one step.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Intend {
    /// What to check.
    pub check: CatalogCheck,
    /// What to note.
    pub intent: Intent,
    /// The intent's number, or why not.
    pub decided: oneshot::Sender<Result<IntentId, Refusal>>,
}

/// A network as it is durable now.
#[derive(Debug, Clone)]
pub struct DurableNetwork {
    /// Its configuration.
    pub config: Arc<NetworkConfig>,
    /// Its subnets.
    pub subnets: Vec<Arc<SubnetConfig>>,
}

/// What became of an act: lists and publishes it. Answered when it is published.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SettleAct {
    /// The intent that it ends.
    pub intent: Option<IntentId>,
    /// The network now.
    pub standing: DurableNetwork,
    /// It is new: its actor starts now, above this generation.
    pub created: Option<Generation>,
    /// Told when it is published.
    pub done: oneshot::Sender<()>,
}

/// A network is no more, durably.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Gone {
    /// Which.
    pub id: NetworkId,
}

/// A subnet is in another network, durably.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct MovedSubnet {
    /// Which.
    pub subnet: SubnetId,
    /// Whence.
    pub from: NetworkId,
    /// Whereto.
    pub to: NetworkId,
}

/// A network was loaded again: this is so now.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Reloaded {
    /// Its configuration.
    pub config: Arc<NetworkConfig>,
    /// Its subnets.
    pub subnets: Vec<Arc<SubnetConfig>>,
}

/// The tenure is over: nothing is started or published any more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Retire;

/// A network's mailbox was found closed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Dead {
    /// The route that was tried.
    pub route: Arc<Route>,
}

/// What is asked about all networks.
#[derive(Debug)]
pub enum CatalogQuestion {
    /// Networks in which an address lies, in one realm or all.
    Holding(Option<Name>, Address),
    /// Listings by name, then id: a page of a list that goes by the names of the moment at which it began.
    Page {
        /// That moment; none: now.
        since: Option<Naming>,
        /// From there on.
        from: Bound<(Name, NetworkId)>,
        /// At most so many.
        limit: usize,
    },
    /// Realms and how many networks each has.
    Realms,
}

/// Answer of a [`CatalogQuestion`].
#[derive(Debug)]
pub enum CatalogAnswer {
    /// Of `Holding`.
    Networks(Vec<Arc<Listing>>),
    /// Of `Page`, and the moment that it goes by.
    Page(Naming, Vec<ListRow>),
    /// What was renamed or moved since the moment that was asked for is not known.
    Forgotten,
    /// Of `Realms`.
    Realms(Vec<(Name, u64)>),
}

/// Asks about all networks.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AskCatalog {
    /// What.
    pub question: CatalogQuestion,
    /// The answer.
    pub told: oneshot::Sender<CatalogAnswer>,
}
