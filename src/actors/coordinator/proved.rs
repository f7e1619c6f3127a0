//! Answers of jobs in a register that another node may own by now: they leave only when it is proved that this node still owns
//! it, and nobody waits for them forever if the store takes nothing.
//!
//! A job waits for its commits, and for networks that are being loaded again; both continue when the store does. The client is
//! told in time that the outcome is not known, and the job runs to its end after that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Job, Order, Outcomes, token};
use crate::actors::service::Shared;
use crate::actors::{self, Applied, Fault, NotReadyReason, Outlet, Told};
use crate::store::StoreHealth;

/// How long the store may take nothing until clients that wait for a job are told so: twice what a commit may take.
const TOLD_WITHIN: Duration = Duration::from_secs(4);
const LOOKS_EVERY: Duration = Duration::from_millis(250);

/// An outlet whose answers leave when it is proved that this node still owns the register: a job asks the catalog and the
/// routing table, which prove nothing, and finds little in them once the tenure is over.
pub(super) fn outlet(shared: &Arc<Shared>, ticket: u32, order: &Order, outlet: Outlet) -> Outlet {
    let (to, mut answers) = crate::actors::outlet();
    let (shared, reads) = (Arc::clone(shared), order.dry_run || order.job.is_read());
    // A client that waits for capacity or for events waits for as long as it asked to.
    let waits = order.wait.is_some() || matches!(order.job, Job::Events { .. });
    let reactor = shared.reactors()[0].clone();
    let unanswered = token(&shared, &order.job);
    reactor.spawn(async move {
        let _unanswered = unanswered;
        let forward = async {
            while let Some(told) = answers.recv().await {
                let told = match told {
                    Told::Job(ticket, answer) if !shared.is_proved_owner().await => {
                        Told::Job(ticket, unproved(answer, reads, shared.unprovable().as_deref()))
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
                let problem = format!("{}: the outcome of this is not known yet", shared.store.obstacle());
                let _ = outlet.send(Told::Job(ticket, Err(Box::new(Fault::Unavailable { applied, problem }))));
            }
        }
    });
    to
}

/// Returns once the store has taken nothing for a while: a store that takes nothing new may still take releases.
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

/// The answer in place of one that cannot be proved.
pub(super) fn unproved(answer: Outcomes, reads: bool, hindrance: Option<&str>) -> Outcomes {
    // This node may still own the register: then nobody takes over, and asking again in a moment does not help.
    let hindrance = hindrance.map(actors::unproved);
    match answer {
        // This fault itself says what is known. A refusal is an answer like any other, and so is a lost cursor: a cursor that
        // the present owner issued is ahead of everything that the previous owner knows.
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
