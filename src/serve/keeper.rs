//! Keeps the node's role: starts the actors when it owns the register, ends them when it does not any more.
//!
//! A *tenure* is a time in which this node owns the register: it begins with taking and loading every shard, and ends
//! with the process, or when the store says that somebody else took over. Actors live for one tenure; their memory is
//! worth nothing after it.
//!
//! Review notes: is the role changed before the actors end, so that nothing new reaches them?

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Ended;
use crate::actors::service::{self, Hooks, Parts};
use crate::actors::{Fatal, outlet};
use crate::server::Server;
use crate::server::role::Role;
use crate::store::Store;

/// What a node does to own the register, and to know who does.
pub(super) struct Keeper {
    server: Arc<Server>,
    store: Arc<dyn Store>,
    hooks: Hooks,
    fatal: mpsc::UnboundedSender<Fatal>,
    fatals: mpsc::UnboundedReceiver<Fatal>,
}

impl Keeper {
    pub(super) fn new(server: Arc<Server>, store: Arc<dyn Store>, hooks: Hooks) -> Self {
        let (fatal, fatals) = outlet();
        Self { server, store, hooks, fatal, fatals }
    }

    /// Finds the node's first role.
    ///
    /// # Errors
    /// A sentence that says what cannot be loaded, and why.
    pub(super) async fn begin(&mut self) -> Result<(), String> {
        let shared = service::start(Parts {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.server.clock),
            metrics: Arc::clone(&self.server.metrics),
            reactors: self.server.reactors.clone(),
            hooks: self.hooks.clone(),
            fatal: self.fatal.clone(),
        })
        .await?;
        self.server.seat.become_role(Role::Owner(shared));
        Ok(())
    }

    /// Keeps the role until the server is to stop, or cannot go on.
    pub(super) async fn keep(&mut self, stop: &CancellationToken) -> Ended {
        tokio::select! {
            () = stop.cancelled() => Ended::Stopped,
            Some(Fatal(problem)) = self.fatals.recv() => Ended::Failed(problem),
        }
    }

    /// What became of the last commits.
    pub(super) fn end(&mut self) -> Ended {
        match self.fatals.try_recv() {
            Ok(Fatal(problem)) => Ended::Failed(problem),
            Err(_) => Ended::Stopped,
        }
    }
}
