//! Answers of jobs where another node may own the register by now: they leave when it is proved that this one still does, and
//! are not waited for for ever where the store takes nothing.
//!
//! A job waits for its commits, and for networks that are loaded again; both go on when the store does. Whoever asked is told
//! in time that nobody knows what becomes of it, and the job goes on to its end behind that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Job, Order, Outcomes, token};
use crate::actors::service::Shared;
use crate::actors::{self, Applied, Fault, NotReadyReason, Outlet, Told};
use crate::store::StoreHealth;

/// How long the store may take nothing until who waits for a job is told so: twice what a commit may take.
const TOLD_WITHIN: Duration = Duration::from_secs(4);
const LOOKS_EVERY: Duration = Duration::from_millis(250);

/// An outlet whose answers leave when it is proved that this node still owns the register: a job asks the catalog and the
/// routing table, which prove nothing, and finds little in those of a tenure that is over.
pub(super) fn outlet(shared: &Arc<Shared>, ticket: u32, order: &Order, outlet: Outlet) -> Outlet {
    let (to, mut answers) = crate::actors::outlet();
    let (shared, reads) = (Arc::clone(shared), order.dry_run || order.job.is_read());
    // Who waits for capacity or for events waits for as long as he said.
    let waits = order.wait.is_some() || matches!(order.job, Job::Events { .. });
    let reactor = shared.reactors()[0].clone();
    let unanswered = token(&shared, &order.job);
    reactor.spawn(async move {
        let _unanswered = unanswered;
        let forward = async {
            while let Some(told) = answers.recv().await {
                let told = match told {
                    Told::Job(ticket, answer) if !shared.is_proved_owner().await => {
                        Told::Job(ticket, unproved(answer, reads, shared.hindrance().as_deref()))
                    }
                    told => told,
                };
                // A closed outlet is a client that hung up.
                let _ = outlet.send(told);
            }
        };
        tokio::select! {
            biased;
            () = forward => {}
            () = nothing_is_taken(&shared), if !waits => {
                let applied = if reads { Applied::No } else { Applied::Unknown };
                let problem = format!("{}: what becomes of this is not known yet", shared.store.obstacle());
                let _ = outlet.send(Told::Job(ticket, Err(Box::new(Fault::Unavailable { applied, problem }))));
            }
        }
    });
    to
}

/// Until the store has taken nothing for a while: what lets go may be taken still where it is hindered.
async fn nothing_is_taken(shared: &Shared) {
    let (mut since, mut taken) = (None, shared.metrics.groups());
    loop {
        tokio::time::sleep(LOOKS_EVERY).await;
        let before = std::mem::replace(&mut taken, shared.metrics.groups());
        match shared.store.health() {
            StoreHealth::Ready | StoreHealth::Full => since = None,
            StoreHealth::Hindered | StoreHealth::Failed if taken != before => since = None,
            StoreHealth::Hindered | StoreHealth::Failed => {
                if since.get_or_insert_with(Instant::now).elapsed() >= TOLD_WITHIN {
                    return;
                }
            }
        }
    }
}

/// What is answered in place of what cannot be proved.
pub(super) fn unproved(answer: Outcomes, reads: bool, hindrance: Option<&str>) -> Outcomes {
    // This node may own it still: then nobody takes over, and asking again in a moment helps nobody.
    let hindrance = hindrance.map(actors::unproved);
    match answer {
        // It says itself what is known of it. A refusal is an answer like any other, and so is that a cursor leads nowhere:
        // one that the present owner gave is ahead of all that the owner before knows.
        Err(fault) if !matches!(*fault, Fault::Refused(_) | Fault::CursorLost { .. }) => Err(fault),
        Ok(_) if !reads => {
            let problem = hindrance.unwrap_or_else(|| "another node owns the register by now".to_owned());
            Err(Box::new(Fault::Unavailable { applied: Applied::Unknown, problem }))
        }
        Ok(_) | Err(_) => Err(Box::new(match hindrance {
            Some(problem) => Fault::Unavailable { applied: Applied::No, problem },
            None => Fault::NotReady { reason: NotReadyReason::Moved, retry_after_ms: 200 },
        })),
    }
}
