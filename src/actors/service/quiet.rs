//! A tenure comes to its end in order: everything that was asked is answered, and whoever waits for capacity is sent on.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Shared;
use crate::actors::committer::Drained;
use crate::actors::network::GiveAway;

/// How often it is looked whether a network has decided what was asked of it.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(1);
/// How often it is looked whether somebody began to wait meanwhile.
const WAITERS_LOOKED_AT_EVERY: Duration = Duration::from_millis(20);

impl Shared {
    /// Waits until everything that was asked is answered. Whoever calls it has seen to it that nothing more is asked. What
    /// waits for capacity is answered that it is to be asked elsewhere.
    pub async fn quiet(&self) {
        self.given_away.send_replace(true);
        self.jobs.close();
        loop {
            // Jobs may wait in the queue of a network.
            for route in self.routes.all().iter().filter(|route| route.published.waits() > 0) {
                // A full mailbox is one that is busy, and is told again; a closed one has answered whom it left behind.
                let _ = route.addr.try_send(GiveAway);
            }
            if timeout(WAITERS_LOOKED_AT_EVERY, self.jobs.wait()).await.is_ok() {
                break;
            }
        }
        for route in self.routes.all() {
            // A place in the queue is given back when what was decided is in the committer's mailbox.
            while route.permits.waiting() > 0 {
                tokio::time::sleep(LOOKED_AT_EVERY).await;
            }
        }
        self.drained().await;
    }

    /// It is not given away after all.
    pub fn is_kept(&self) {
        self.given_away.send_replace(false);
    }

    /// Is the register about to be given away?
    pub(in crate::actors) fn gives_away(&self) -> bool {
        *self.given_away.borrow()
    }

    /// Waits until the register is about to be given away.
    pub(in crate::actors) async fn is_given_away(&self) {
        // An error is a sender that is gone, and it is part of this.
        let _ = self.given_away.subscribe().wait_for(|given_away| *given_away).await;
    }

    /// Waits until everything that was enqueued is definite.
    pub(super) async fn drained(&self) {
        for committer in self.committers.get().into_iter().flatten() {
            let (told, done) = oneshot::channel();
            if committer.try_send(Drained(told)).is_ok() {
                // An error is a committer that died, and is told as fatal.
                let _ = done.await;
            }
        }
    }
}
