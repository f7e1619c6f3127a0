//! How a node starts: it tells the others that it is there, and finds its first role.
//!
//! A node is ready if it owns the register, or has a way to the node that does. A node that finds neither in time says why,
//! and ends. Only where it shares no version of the protocol with the owner does it begin without being ready, since nothing
//! that it waits for would come before the owner lets go (`unspoken`).

use std::sync::Arc;

use super::cannot::CannotBegin;
use super::contention::contends_in;
use super::keeper::Keeper;
use super::meeting::{MEETS_EVERY, meet};
use crate::actors::service::CannotOwn;
use crate::limits::NODE_LEASE_MS;
use crate::peer::link::LinkState;
use crate::server::role::Role;
use crate::store::{StoreError, StoreHealth, chain};

/// How long a node that starts tries to reach the owner, or waits for replicas of the store.
const FIRST_WAY_MS: u64 = 3 * NODE_LEASE_MS;
/// A node that was killed is forgotten after this time, and the next one may use its name.
const FORGOTTEN_AFTER_MS: u64 = NODE_LEASE_MS + 2_000;

impl Keeper {
    /// Finds the node's first role.
    ///
    /// # Errors
    /// A sentence that says what cannot be loaded, and why.
    pub async fn begin(&mut self) -> Result<(), CannotBegin> {
        self.appear().await?;
        let found = self.first_role().await;
        if found.is_err() {
            // Lets the next start under this name begin at once.
            self.end().await;
        }
        found
    }

    async fn first_role(&mut self) -> Result<(), CannotBegin> {
        let (clock, begun) = (Arc::clone(&self.server.clock), self.server.clock.lease_ms());
        let is_late = || clock.lease_ms().saturating_sub(begun) > FIRST_WAY_MS;
        loop {
            if let Some(unrelated) = self.stranger() {
                return Err(unrelated.into());
            }
            if let Some(unrelated) = self.outsider().await {
                return Err(unrelated.into());
            }
            let passes = match self.contend().await {
                Ok(()) => return Ok(()),
                Err(cannot @ CannotOwn::Held { .. }) => match self.stranger_to(&cannot) {
                    Some(unrelated) if !unrelated.may_pass => return Err(unrelated.into()),
                    // Its lease may be all that is left of it.
                    Some(unrelated) => Some(unrelated.into()),
                    None if matches!(&*self.server.seat.role(), Role::Follower { .. }) => None,
                    None => Some(CannotBegin::Now(match self.server.nodes.trouble() {
                        Some(why) => why.to_string(),
                        None => "the process before this one still owns the register".to_owned(),
                    })),
                },
                // The next attempt knows who it was.
                Err(CannotOwn::Overtaken(problem) | CannotOwn::NotFirst(problem)) => Some(CannotBegin::Now(problem)),
                // Redis answers, but its replicas do not yet: one that has just come answers some seconds later.
                Err(CannotOwn::Unreachable(problem)) if self.store.health() == StoreHealth::Hindered => {
                    Some(CannotBegin::Now(problem))
                }
                Err(CannotOwn::Unreachable(problem)) => return Err(CannotBegin::Now(problem)),
                Err(CannotOwn::Full(problem)) if self.store.lacks_room() => return Err(CannotBegin::NoRoom(problem)),
                Err(CannotOwn::Full(problem)) => return Err(CannotBegin::NotContinued(problem)),
                Err(CannotOwn::Damaged(problem)) => return Err(CannotBegin::AsItIs(problem)),
            };
            if let Some(cannot) = passes {
                if is_late() {
                    return Err(cannot);
                }
                tokio::time::sleep(contends_in(self.drawn())).await;
                continue;
            }
            let Role::Follower { link, .. } = &*self.server.seat.role() else { return Ok(()) };
            // A node is ready only if it can answer. An owner that cannot be reached may be dead; then another one takes
            // over.
            if link.connected(contends_in(self.drawn())).await {
                return Ok(());
            }
            if let Some(unrelated) = self.refused_by_owner() {
                return Err(unrelated.into());
            }
            if let Some(unspoken) = self.server.seat.role().unspoken() {
                tracing::warn!("this node is up and not ready: {unspoken}");
                return Ok(());
            }
            if is_late() {
                let state = link.state();
                return Err(CannotBegin::Now(match &*state.borrow() {
                    LinkState::Connecting(Some(problem)) => problem.clone(),
                    LinkState::Connecting(None) | LinkState::Connected(_) => {
                        "the node that owns the register cannot be reached".to_owned()
                    }
                }));
            }
        }
    }

    /// Tells the others that this node is here. A process of the same name that was seen a moment ago may be this node's
    /// predecessor, which crashed: in that case it is not seen again.
    async fn appear(&self) -> Result<(), CannotBegin> {
        let begun = self.server.clock.lease_ms();
        loop {
            match meet(&self.server, &*self.store).await {
                Ok(()) => return Ok(()),
                Err(error @ StoreError::Locked(_)) => {
                    if self.server.clock.lease_ms().saturating_sub(begun) > FORGOTTEN_AFTER_MS {
                        return Err(CannotBegin::NameTaken(chain(&error)));
                    }
                    tracing::warn!(error = chain(&error), "waiting: it may be the one before this, which crashed");
                }
                // Waits, because it may be known in a moment. A process that ended and was started again would start its
                // wait anew, and keep the register from the node that it waits for.
                Err(error)
                    if self.store.health() == StoreHealth::Hindered
                        && self.server.clock.lease_ms().saturating_sub(begun) <= FIRST_WAY_MS =>
                {
                    tracing::warn!(error = chain(&error), "waiting");
                }
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(MEETS_EVERY).await;
        }
    }
}
