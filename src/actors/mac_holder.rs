//! Who holds a MAC that is refused because another network of the realm uses it. `macs` knows that network and the address,
//! and not the holder, which would cost memory for each; so that network is asked, before the refusal leaves.
//!
//! No network waits for another: a task does, which holds nothing. The refusal has left its own network by then, behind all
//! that it saw there, and the answer of the other is as durable as any. Whoever cannot be asked in time is not named.
//!
//! Called by `network` (its way out) and `coordinator` (what was decided under holds, which have ended).
//!
//! Review notes: is anything held while this waits? Does every refusal that comes here leave?

use std::sync::Arc;
use std::time::{Duration, Instant};

use compact_str::CompactString;

use super::network::DEFERRED_MS_MAX;
use super::service::Shared;
use super::{Fault, Item, Outlet, Reply, Told, coordinator, only_answer};
use crate::core::address::Address;
use crate::core::command::Command;
use crate::core::outcome::Outcome;
use crate::core::refusal::HeldBy;
use crate::core::types::{Mac, NetworkId};

/// An outlet for refusals that are to name who holds a MAC in another network.
pub(super) fn outlet(shared: &Arc<Shared>, outlet: Outlet) -> Outlet {
    let (to, mut answers) = super::outlet();
    let (shared, unanswered) = (Arc::clone(shared), shared.jobs.token());
    let reactor = shared.reactors()[0].clone();
    reactor.spawn(async move {
        let _unanswered = unanswered;
        while let Some(told) = answers.recv().await {
            let Told::Replies(replies) = told else { continue };
            // However many there are: nobody waits for longer than for a network that is loading.
            let until = patience();
            for Reply { ticket, answer } in replies {
                let answer = match answer {
                    Ok(outcome) => Ok(outcome),
                    Err(fault) => Err(named(&shared, fault, until).await),
                };
                // A closed outlet is a client that hung up.
                let _ = outlet.send(Told::Replies(vec![Reply { ticket, answer }]));
            }
        }
    });
    to
}

/// Until when a holder is asked for.
pub(super) fn patience() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_millis(DEFERRED_MS_MAX)
}

/// The fault with who holds the MAC that it speaks of, if that is another network's to tell.
pub(super) async fn named(shared: &Shared, mut fault: Box<Fault>, until: tokio::time::Instant) -> Box<Fault> {
    if let Fault::Refused(refusal) = &mut *fault
        && let Some((mac, network, address)) = refusal.unnamed_user()
        && let Ok(Some(by)) = tokio::time::timeout_at(until, holder(shared, mac, network, address)).await
    {
        refusal.name_holder(by);
    }
    fault
}

/// Who holds it there, if it is there still.
async fn holder(shared: &Shared, mac: Mac, network: NetworkId, address: Address) -> Option<HeldBy> {
    let route = shared.routes.by_id(network)?;
    let (outlet, answers) = super::outlet();
    let command = Command::Get(address);
    let by = CompactString::default();
    let item = Item { ticket: 0, command, by, reason: None, deadline: None, dry_run: false, wait: None };
    coordinator::send(shared, &route, false, vec![item], &outlet, Instant::now());
    drop(outlet);
    let Ok(Outcome::Lookup(found)) = only_answer(answers).await? else { return None };
    let held = found.reservation?.reservation;
    (held.details.as_ref()?.mac == Some(mac)).then(|| HeldBy::of(&held))
}
