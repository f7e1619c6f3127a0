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
//! than such a load lasts; otherwise the drained node is in service again, and takes the register back. It does not let go of
//! it again for a node that was unable a moment ago.
//!
//! A node that is out of service and had to take the register does not give it to such a node by itself. Nobody can ask that
//! one whether it is able to load the register, so an operator decides, who drains the node.
//!
//! Neighbours: `handover`, which does it without a refusal wherever a node can be asked; `draining`, which calls both.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::contention::UNABLE_MS;
use super::handover::{Handover, Unhanded, is_as_stored, others, unavailable};
use super::keeper::Keeper;
use super::lease::let_go;
use super::reactors::all_run;
use crate::actors::service::Shared;
use crate::actors::{Applied, Fault, NotReadyReason};
use crate::limits::{HANDOVER_HOLD_MS, HANDOVER_QUIET_MS, NODE_LEASE_MS};
use crate::server::role::Role;
use crate::store::{Holder, NodeCard, StoreError};

/// Whoever cannot load the register lets go of it within this time, even if it is large.
const KEEPS_FOR: Duration = Duration::from_millis(NODE_LEASE_MS);
/// How often to look whether it did.
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// How long no node is given the register that could not load it. It tries again by then.
const UNABLE_FOR: Duration = Duration::from_millis(UNABLE_MS.1);

/// Processes that took the register from this node and let go of it again, and when that was seen.
#[derive(Default)]
pub(super) struct Unable(Vec<(Holder, Instant)>);

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
    async fn through_store(&self, shared: &Arc<Shared>, unable: &mut Unable) -> Result<Holder, Unhanded> {
        is_as_stored(shared).map_err(Unhanded::Barred)?;
        self.could_be_loaded(unable).await.map_err(Unhanded::Barred)?;
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
        let Ok(holder) = self.taken(begun + Duration::from_millis(HANDOVER_HOLD_MS)).await else {
            return Err(self.takes_back("the register was released, and no other node took it in time"));
        };
        let took_ms = begun.elapsed().as_millis() as u64;
        let holder = match kept(holder, async || self.store.holder().await, unable).await {
            Ok(holder) => holder,
            Err(name) => {
                return Err(self.takes_back(&format!(
                    "node `{name}` took the register, and let go of it again, as a node does that cannot load it (its log says \
                     why)"
                )));
            }
        };
        tracing::info!(successor = %holder.name, took_ms, "let go of the register, and another node took it from the store");
        Ok(holder)
    }

    /// Whether any node that could take the register was not seen to be unable to load it. Each such attempt is a moment
    /// without an owner, and a node that leaves the register to others for a while would not even begin one.
    async fn could_be_loaded(&self, unable: &mut Unable) -> Result<(), Box<Fault>> {
        unable.0.retain(|(_, at)| at.elapsed() < UNABLE_FOR);
        let (candidates, _) = others(self.server, self.store).await?;
        let was_unable = |card: &NodeCard| unable.0.iter().find(|(holder, _)| holder.process == card.process);
        let Some(all) = candidates.iter().map(was_unable).collect::<Option<Vec<_>>>() else { return Ok(()) };
        let Some((holder, at)) = all.into_iter().max_by_key(|(_, at)| *at) else { return Ok(()) };
        let problem = format!(
            "node `{}` could not load the register {} s ago (its log says why), and no other node could take it: node `{}` is not \
             drained; mend that and start that node again, or drain again in {} s",
            holder.name,
            at.elapsed().as_secs(),
            self.server.node,
            UNABLE_FOR.saturating_sub(at.elapsed()).as_secs() + 1
        );
        Err(unavailable(Applied::No, problem))
    }

    /// Nobody has the register that this node let go of.
    fn takes_back(&self, why: &str) -> Unhanded {
        let problem = format!("{why}: node `{}` is not drained, and takes it back", self.server.node);
        Unhanded::Orphaned(unavailable(Applied::No, problem))
    }
}

/// Waits to see whether the node that took the register lets go of it again. Returns who has it then; or which node let go of
/// it, if nobody has.
async fn kept(
    mut holder: Holder,
    holder_now: impl AsyncFn() -> Result<Option<Holder>, StoreError>,
    unable: &mut Unable,
) -> Result<Holder, Arc<str>> {
    let mut end = tokio::time::Instant::now() + KEEPS_FOR;
    while tokio::time::Instant::now() < end {
        tokio::time::sleep(LOOKS_EVERY).await;
        // A store that does not answer tells nothing.
        let Ok(now) = holder_now().await else { continue };
        if now.as_ref().is_some_and(|now| now.process == holder.process) {
            continue;
        }
        unable.0.push((holder.clone(), Instant::now()));
        // Another node may be quicker than this look.
        (holder, end) = (now.ok_or(holder.name)?, tokio::time::Instant::now() + KEEPS_FOR);
    }
    Ok(holder)
}

impl Keeper {
    /// Lets go of the register for a node with which this one shares no version of the protocol, and follows that node by
    /// name.
    pub(super) async fn pass_through_store(&mut self, shared: &Arc<Shared>) -> Result<bool, Unhanded> {
        let Some(peers) = &self.peers else { return Ok(false) };
        let handover = Handover { server: &self.server, store: &*self.store, peers };
        let passed = handover.through_store(shared, &mut self.unable).await;
        self.is_handed(passed)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use super::*;

    /// Who is said to have the register, and who to have been unable to load it, where the store names these processes, each
    /// from this many looks on.
    async fn found(named: &[(u32, Option<u128>)]) -> (Result<u128, Arc<str>>, Vec<u128>) {
        let holder = |process: u128| Holder { name: format!("node-{process}").into(), process, address: "".into() };
        let named: BTreeMap<u32, Option<u128>> = named.iter().copied().collect();
        let (looks, mut unable) = (Cell::new(0), Unable::default());
        let holder_now = async || {
            looks.set(looks.get() + 1);
            Ok(named.range(..=looks.get()).next_back().and_then(|(_, process)| *process).map(holder))
        };
        let kept = kept(holder(1), holder_now, &mut unable).await;
        (kept.map(|holder| holder.process), unable.0.iter().map(|(holder, _)| holder.process).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn a_register_that_another_node_takes_from_one_that_cannot_load_it_is_kept_by_whoever_has_it_long_enough() {
        let looks = (KEEPS_FOR.as_millis() / LOOKS_EVERY.as_millis()) as u32;
        assert_eq!(found(&[(1, Some(1))]).await, (Ok(1), vec![]));
        assert_eq!(found(&[(1, Some(1)), (9, None)]).await, (Err("node-1".into()), vec![1]));
        // The other node takes it between two looks.
        assert_eq!(found(&[(1, Some(1)), (9, Some(2))]).await, (Ok(2), vec![1]));
        assert_eq!(found(&[(1, Some(2)), (looks, None)]).await, (Err("node-2".into()), vec![1, 2]));
        assert_eq!(
            found(&[(1, Some(1)), (looks / 2, Some(2)), (looks + 9, None)]).await,
            (Err("node-2".into()), vec![1, 2])
        );
    }
}
