//! The lock of an act on names or space, and its intent, until the catalog lists what is durable of all that the act may have
//! changed.
//!
//! ```text
//! lock ─▶ intend ─▶ begins ─▶ the commit ──done──▶ settle, as it is or as the store has it
//!            │                    ├──certainly not──▶ came_to_nothing
//!            │                    └──in doubt──▶ settle_as_stored
//!            └──refused before──▶ dropped
//! ```
//!
//! **What was begun is never abandoned unless it certainly came to nothing** (R-16). If a network durably has space that the
//! catalog does not know of, nothing guards that space: another network gets it, and the next start finds two networks with
//! one address. So from [`LockedAct::begins`] on, the lock and the intent end only after the catalog knows what the network
//! has now. If the network does not say, the coordinator reads it from the store, for as long as that takes, even if the
//! acting task crashes. The store is read when nothing of that network is under way, which may never happen if many clients
//! use it: so meanwhile the network is asked too, again and again.
//!
//! Acts that record an address in a dynamic network (`bind`, `healing`) begin nothing: the address is in
//! [`Recorded`](crate::actors::recorded::Recorded) from the decision on, and leaves it only when it is certainly not durable.
//!
//! If an act concerns two networks, each is listed by itself, first the one that the intent is for: until then the other
//! guards what it had.
//!
//! Review notes: does everything that is sent to be committed call `begins` before? Is what is not in doubt said to have come
//! to nothing?

use std::sync::Arc;
use std::time::Duration;

use compact_str::CompactString;
use tokio::sync::oneshot;

use super::configure::is_gone;
use super::{Begins, Coordinator, no_directory};
use crate::actors::committer::Reload;
use crate::actors::directory::{CatalogCheck, DurableNetwork, Gone, HeldLock, Intend, Lock, NotedIntent, SettleAct};
use crate::actors::network::Loaded;
use crate::actors::routes::Lane;
use crate::actors::service::Shared;
use crate::actors::{Applied, Fault};
use crate::core::catalog::Intent;
use crate::core::outcome::NetworkView;
use crate::core::types::{Generation, NetworkId};

/// How often a network that did not say what it has is asked again.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// The lock and the intent of one act. When it is dropped, both end, after what was begun.
pub(super) struct LockedAct {
    shared: Arc<Shared>,
    rest: Unsettled,
}

/// What is not yet settled of an act.
#[derive(Default)]
struct Unsettled {
    /// None: it is being dropped.
    lock: Option<HeldLock>,
    /// With the network that the intent is for.
    intent: Option<(NotedIntent, NetworkId)>,
    /// In the order in which they are to be settled.
    begun: Vec<Begun>,
}

/// A network that may have been changed, and whose change is not listed yet.
struct Begun {
    lane: Arc<Lane>,
    /// Was it created by this act?
    created: bool,
}

/// Is the outcome unknown?
pub(super) fn is_in_doubt(fault: &Fault) -> bool {
    matches!(fault, Fault::Unavailable { applied: Applied::Unknown, .. })
}

/// Is it known that nothing was done? After a crash it is not.
pub(super) fn is_certainly_not_done(fault: &Fault) -> bool {
    !is_in_doubt(fault) && !matches!(fault, Fault::Internal { .. })
}

impl LockedAct {
    /// Checks and notes an intent.
    pub(super) async fn intend(&mut self, check: CatalogCheck, intent: Intent) -> Result<(), Box<Fault>> {
        let (decided, answer) = oneshot::channel();
        let network = intent.network;
        // A message that cannot be sent is dropped, which ends the wait.
        let _ = self.shared.directory().try_send(Intend { check, intent, decided });
        let intent = answer.await.map_err(|_| no_directory(&self.shared))??;
        self.rest.intent = Some((intent, network));
        Ok(())
    }

    /// Notes that the network may be changed from here on: it is settled after the outcome of that, and in this order.
    pub(super) fn begins(&mut self, lane: &Arc<Lane>, created: bool) {
        self.rest.begun.push(Begun { lane: Arc::clone(lane), created });
    }

    /// Notes that what was begun was certainly not done.
    pub(super) fn came_to_nothing(&mut self) {
        self.rest.begun.clear();
    }

    /// Notes that a network is durably gone: there is nothing left to list.
    pub(super) fn gone(&mut self, id: NetworkId) {
        self.rest.begun.retain(|begun| begun.lane.id != id);
        self.shared.gone(Gone { id });
    }

    /// Lists and publishes a network as it is durable.
    pub(super) async fn settle(&mut self, standing: DurableNetwork, created: Option<Generation>) {
        self.rest.settle(&self.shared, standing, created).await;
    }

    /// Lists what was begun and is not yet settled as it is durable, by the store or by what the network says. Returns what
    /// that is.
    pub(super) async fn settle_as_stored(&mut self) -> Vec<DurableNetwork> {
        self.rest.settle_as_stored(&self.shared).await
    }
}

impl Unsettled {
    async fn settle(&mut self, shared: &Shared, standing: DurableNetwork, created: Option<Generation>) {
        let (done, settled) = oneshot::channel();
        let id = standing.config.id;
        self.begun.retain(|begun| begun.lane.id != id);
        let intent = self.intent.take_if(|(_, network)| *network == id).and_then(|(intent, _)| intent.hand_over());
        if shared.directory().try_send(SettleAct { intent, standing, created, done }).is_ok() {
            // An error means that the directory died, which ends the process.
            let _ = settled.await;
        }
    }

    async fn settle_as_stored(&mut self, shared: &Arc<Shared>) -> Vec<DurableNetwork> {
        let mut stored = Vec::new();
        while let Some(Begun { lane, created }) = self.begun.first() {
            let (id, created) = (lane.id, *created);
            let read = tokio::select! {
                biased;
                stored = as_stored(shared, lane) => stored,
                said = as_said(shared, id) => Some((said, None)),
            };
            // Nobody reads it any more: the tenure is over, and the catalog with it.
            let Some((standing, floor)) = read else { break };
            match standing {
                Some(standing) => {
                    stored.push(standing.clone());
                    self.settle(shared, standing, floor.filter(|_| created)).await;
                }
                None => {
                    self.begun.remove(0);
                    if !created {
                        shared.gone(Gone { id });
                    }
                }
            }
        }
        stored
    }

    /// Ends both. If something is still begun, it may yet become durable, and what was intended stays in the way of others; but
    /// not once the tenure is over: then nothing becomes durable any more, and who waits behind it would do so for ever, and
    /// keep what is in memory from being written to a store that was emptied.
    fn end(self, shared: &Shared) {
        let Self { lock, intent, begun } = self;
        if let Some((intent, _)) = intent
            && !begun.is_empty()
            && !shared.is_over()
        {
            intent.hand_over();
        }
        // The lock last: whoever has it next finds no intent of this act.
        drop(lock);
    }
}

/// A network as it is durable; none: it is gone.
type Standing = Option<DurableNetwork>;

/// What the store has of a network, once everything of it is definite, and the generation above which it would begin. However
/// long that takes: the committer tries again.
async fn as_stored(shared: &Shared, lane: &Arc<Lane>) -> Option<(Standing, Option<Generation>)> {
    let (to, loaded) = oneshot::channel();
    shared.reload(Reload { lane: Arc::clone(lane), to });
    let Loaded { image, floor, .. } = loaded.await.ok()?;
    let standing = image.map(|image| DurableNetwork { config: image.config, subnets: image.subnets });
    Some((standing, Some(floor)))
}

/// What a network says that it has, as soon as it does. Not for a network created by this act: nobody can ask it yet.
async fn as_said(shared: &Arc<Shared>, id: NetworkId) -> Standing {
    let asker = Coordinator::of_itself(shared);
    loop {
        tokio::time::sleep(ASKED_AGAIN_AFTER).await;
        let Some(route) = shared.routes.by_id(id) else { continue };
        match asker.show(&route).await {
            Ok(NetworkView { config, subnets, .. }) => return Some(DurableNetwork { config, subnets }),
            Err(fault) if is_gone(&fault) => return None,
            Err(_) => {}
        }
    }
}

impl Drop for LockedAct {
    fn drop(&mut self) {
        let mut rest = std::mem::take(&mut self.rest);
        if rest.begun.is_empty() {
            return rest.end(&self.shared);
        }
        // The acting task crashed.
        let shared = Arc::clone(&self.shared);
        let reactor = shared.reactors()[0].clone();
        reactor.spawn(async move {
            rest.settle_as_stored(&shared).await;
            rest.end(&shared);
        });
    }
}

impl Coordinator {
    /// A coordinator that asks what an act must know when the acting task may be gone.
    pub(super) fn of_itself(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            by: CompactString::const_new("coordinator"),
            reason: None,
            dry_run: false,
            wait: None,
            begins: Begins::default(),
        }
    }

    /// Locks networks against other acts.
    pub(super) async fn lock(&self, networks: Vec<NetworkId>) -> Result<LockedAct, Box<Fault>> {
        let (granted, locked) = oneshot::channel();
        // A message that cannot be sent is dropped, which ends the wait.
        let _ = self.shared.directory().try_send(Lock { networks, granted });
        // Nothing that is not granted is given back: another may have it.
        let lock = locked.await.map_err(|_| no_directory(&self.shared))?;
        self.in_time()?;
        let rest = Unsettled { lock: Some(lock), ..Unsettled::default() };
        Ok(LockedAct { shared: Arc::clone(&self.shared), rest })
    }
}

#[cfg(test)]
mod tests;
