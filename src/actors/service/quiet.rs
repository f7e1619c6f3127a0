//! Ends a tenure in order: everything that was asked is answered, and requests that wait for capacity are sent on.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Shared;
use crate::actors::committer::Drained;
use crate::actors::network::GiveAway;

/// How often to check whether a network has decided everything that was asked of it.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(1);
/// How often to check whether another request began to wait meanwhile.
const WAITERS_LOOKED_AT_EVERY: Duration = Duration::from_millis(20);

impl Shared {
    /// Waits until everything that was asked is answered. The caller makes sure that nothing more is asked. Requests that wait
    /// for capacity are told to ask elsewhere.
    pub async fn quiet(&self) {
        self.given_away.send_replace(true);
        self.jobs.close();
        loop {
            // Jobs may wait in the queue of a network.
            for route in self.routes.all().iter().filter(|route| route.published.waits() > 0) {
                // A full mailbox belongs to a busy actor, which is told again; an actor whose mailbox is closed has answered
                // everyone that waited.
                let _ = route.addr.try_send(GiveAway);
            }
            if timeout(WAITERS_LOOKED_AT_EVERY, self.jobs.wait()).await.is_ok() {
                break;
            }
        }
        for route in self.routes.all() {
            // A place in the queue is given back once what was decided is in the committer's mailbox.
            while route.permits.waiting() > 0 {
                tokio::time::sleep(LOOKED_AT_EVERY).await;
            }
        }
        self.drained().await;
    }

    /// Notes that the register is not given away after all.
    pub fn is_kept(&self) {
        self.given_away.send_replace(false);
    }

    /// Is the register about to be given away?
    pub(in crate::actors) fn gives_away(&self) -> bool {
        *self.given_away.borrow()
    }

    /// Waits until the register is about to be given away.
    pub(in crate::actors) async fn is_given_away(&self) {
        // An error means that the sender is gone, but the sender is part of `self`.
        let _ = self.given_away.subscribe().wait_for(|given_away| *given_away).await;
    }

    /// Waits until everything that was enqueued is definite.
    pub(super) async fn drained(&self) {
        for committer in self.committers.get().into_iter().flatten() {
            let (told, done) = oneshot::channel();
            if committer.try_send(Drained(told)).is_ok() {
                // An error means that a committer died, which is reported as fatal.
                let _ = done.await;
            }
        }
    }
}
