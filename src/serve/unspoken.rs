//! Nodes that share no version of the protocol between nodes pass the register on through the store (R-14).
//!
//! ```text
//! owner    drained, or asked to stop ──▶ all is answered ──▶ lets go ─────────────┐
//! others   follow it by name only: not ready, and contend ──▶ nobody owns it ──▶ one takes it, loads it, owns
//! ```
//!
//! Such nodes meet where releases are skipped in an upgrade. They cannot forward to each other, nor be asked to get ready, so
//! this is no hand-over without a refusal: clients see what they see when an owner stops in order, a moment without an owner
//! and then the load of the register. Both sides have proved that they know the secret, and that they mean the same register
//! (`peer::handshake`): otherwise a node is refused as ever (`company`).
//!
//! The node that takes it may be unable to load it, as where it is of an earlier release. It lets go then, and leaves the
//! register to others for a while (`contention`). So a drain is answered only when that node has kept the register for longer
//! than such a load lasts; otherwise the drained node is in service again, and takes the register back.
//!
//! A node that is out of service and had to take the register does not give it to such a node by itself. Nobody can ask that
//! one whether it is able to load the register, so an operator decides, who drains the node.
//!
//! Neighbours: `handover`, which does it without a refusal wherever a node can be asked; `draining`, which calls both.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::handover::{Handover, Unhanded, is_as_stored, unavailable};
use super::keeper::Keeper;
use super::lease::let_go;
use super::reactors::all_run;
use crate::actors::service::Shared;
use crate::actors::{Applied, Fault, NotReadyReason};
use crate::limits::{HANDOVER_HOLD_MS, HANDOVER_QUIET_MS, NODE_LEASE_MS};
use crate::server::role::Role;
use crate::store::Holder;

/// Whoever cannot load the register lets go of it within this time, even if it is large.
const KEEPS_FOR: Duration = Duration::from_millis(NODE_LEASE_MS);
/// How often to look whether it did.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

impl Handover<'_> {
    /// Waits until everything that this owner has begun is answered. Requests must go elsewhere by now. Returns false if that
    /// takes too long.
    pub(super) async fn quiet(&self, shared: &Shared) -> bool {
        let quiet = async {
            // A session that began to ask before it could see the new role has asked by then.
            all_run(&self.server.session_threads).await;
            shared.quiet().await;
        };
        timeout(Duration::from_millis(HANDOVER_QUIET_MS), quiet).await.is_ok()
    }

    /// Ends the tenure, and lets the next owner begin at once.
    pub(super) async fn lets_go(&self, shared: &Shared) {
        self.server.metrics.owner.set(0);
        shared.retire("the register was handed over");
        let_go(self.store).await;
    }

    /// Lets go of the register for nodes that cannot be asked to get ready. Returns which one took it, and could load it as far
    /// as this can be seen from here.
    async fn through_store(&self, shared: &Arc<Shared>) -> Result<Holder, Unhanded> {
        is_as_stored(shared).map_err(Unhanded::Barred)?;
        self.could_be_taken(shared).await.map_err(Unhanded::Barred)?;
        let role = self.server.seat.role();
        // Nothing is held here: it could not be sent on.
        let why = "a node that shares no version of the protocol between nodes with this one takes over";
        let fault = Fault::NotReady { reason: NotReadyReason::Moved, retry_after_ms: 500 };
        self.server.seat.become_role(Role::Waiting { why, fault });
        if !self.quiet(shared).await {
            shared.is_kept();
            self.server.seat.become_same(role);
            let problem = "this node could not answer its earlier requests in time, so it keeps the register";
            return Err(Unhanded::Kept(unavailable(Applied::No, problem.to_owned())));
        }
        let begun = Instant::now();
        self.lets_go(shared).await;
        let holder = self.taken(begun + Duration::from_millis(HANDOVER_HOLD_MS)).await?;
        let took_ms = begun.elapsed().as_millis() as u64;
        self.is_kept_by(&holder).await?;
        tracing::info!(successor = %holder.name, took_ms, "let go of the register, and another node took it from the store");
        Ok(holder)
    }

    /// Waits to see whether the node that took the register lets go of it again.
    async fn is_kept_by(&self, holder: &Holder) -> Result<(), Unhanded> {
        let end = Instant::now() + KEEPS_FOR;
        while Instant::now() < end {
            tokio::time::sleep(LOOKS_EVERY).await;
            // A store that does not answer tells nothing.
            if let Ok(None) = self.store.holder().await {
                let problem = format!(
                    "node `{}` took the register, and let go of it again, as a node does that cannot load it (its log says why): \
                     node `{}` is not drained, and takes it back",
                    holder.name, self.server.node
                );
                return Err(Unhanded::Orphaned(unavailable(Applied::No, problem)));
            }
        }
        Ok(())
    }
}

impl Keeper {
    /// Lets go of the register for a node with which this one shares no version of the protocol, and follows that node by
    /// name.
    pub(super) async fn pass_through_store(&mut self, shared: &Arc<Shared>) -> Result<bool, Unhanded> {
        let Some(peers) = &self.peers else { return Ok(false) };
        let handover = Handover { server: &self.server, store: &*self.store, peers };
        let passed = handover.through_store(shared).await;
        self.is_handed(passed)
    }
}
