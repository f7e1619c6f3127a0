//! Finds who holds a MAC that another network of the realm uses: for a refusal because of that, and for a late claim that
//! conflicts with nothing else. `macs` knows that network and the address, but not the holder, which would cost memory for
//! each MAC; so that network is asked before the answer leaves.
//!
//! No network waits for another: a task does, and it holds nothing. By then the answer has left its own network, after
//! everything that it saw there, and the answer of the other network is as durable as any. If the other network cannot be
//! asked in time, the holder is not named.
//!
//! Called by `network` (where its answers leave) and by `coordinator` (for what was decided under holds, which have ended).
//!
//! Review notes: is anything held while this waits? Does every answer that is passed in leave?

use std::sync::Arc;
use std::time::Instant;

use compact_str::CompactString;

use super::service::Shared;
use super::{Answer, Fault, Item, Outlet, Reply, Told, only_answer, sending};
use crate::core::address::Address;
use crate::core::command::Command;
use crate::core::outcome::{Contested, Outcome, Present, View};
use crate::core::refusal::HeldBy;
use crate::core::types::{Mac, NetworkId};

/// An outlet for answers that are to name the holder of a MAC in another network.
pub(super) fn outlet(shared: &Arc<Shared>, outlet: Outlet) -> Outlet {
    let (to, mut answers) = super::outlet();
    let (shared, unanswered) = (Arc::clone(shared), shared.jobs.token());
    let reactor = shared.reactors()[0].clone();
    reactor.spawn(async move {
        let _unanswered = unanswered;
        while let Some(told) = answers.recv().await {
            let Told::Replies(replies) = told else { continue };
            let (replies, others): (Vec<Reply>, Vec<Reply>) =
                replies.into_iter().partition(|reply| is_unnamed(&reply.answer));
            if !others.is_empty() {
                // A closed outlet is a client that hung up.
                let _ = outlet.send(Told::Replies(others));
            }
            // However many answers there are: nobody waits for longer than for a network that is being loaded.
            let until = patience(&shared);
            for Reply { ticket, answer } in replies {
                let answer = match answer {
                    Ok(outcome) => Ok(with_users(&shared, outcome, until).await),
                    Err(fault) => Err(named(&shared, fault, until).await),
                };
                let _ = outlet.send(Told::Replies(vec![Reply { ticket, answer }]));
            }
        }
    });
    to
}

/// Is the answer to name the holder of a MAC in another network?
pub(super) fn is_unnamed(answer: &Answer) -> bool {
    match answer {
        Ok(outcome) => outcome.has_mac_to_look_up(),
        Err(fault) => fault.unnamed_user().is_some(),
    }
}

/// Until when to wait for the holder's name.
pub(super) fn patience(shared: &Shared) -> tokio::time::Instant {
    tokio::time::Instant::now() + shared.deferred_max()
}

/// Completes a fault with the holder of the MAC that it is about, if another network has to name the holder.
pub(super) async fn named(shared: &Shared, mut fault: Box<Fault>, until: tokio::time::Instant) -> Box<Fault> {
    if let Fault::Refused(refusal) = &mut *fault
        && let Some((mac, network, address)) = refusal.unnamed_user()
        && let Some(view) = holding(shared, mac, network, address, until).await
    {
        refusal.name_holder(HeldBy::of(&view.reservation));
    }
    fault
}

/// Completes conflicts with what has the MAC of the late claim in another network.
async fn with_users(shared: &Shared, mut outcome: Outcome, until: tokio::time::Instant) -> Outcome {
    for contested in outcome.contested_mut().into_iter().flatten() {
        if let Some(present) = user(shared, contested, until).await {
            contested.present = Some(present);
        }
    }
    outcome
}

async fn user(shared: &Shared, contested: &Contested, until: tokio::time::Instant) -> Option<Present> {
    let mac = contested.mac_to_look_up()?;
    let route = shared.routes.by_id(contested.network_id)?;
    let (network_id, address) = shared.macs.user(&route.realm, mac)?;
    let View { network, address, reservation, .. } = holding(shared, mac, network_id, address, until).await?;
    Some(Present { network: network.name.clone(), network_id, address, reservation })
}

/// What has the MAC at that address in that network, if it still has, and the network says so in time.
async fn holding(
    shared: &Shared,
    mac: Mac,
    network: NetworkId,
    address: Address,
    until: tokio::time::Instant,
) -> Option<View> {
    if tokio::time::Instant::now() >= until {
        // Nobody waits for the answer, and the question would take a place in that network's queue.
        return None;
    }
    let route = shared.routes.by_id(network)?;
    let (outlet, answers) = super::outlet();
    let command = Command::Get(address);
    let by = CompactString::default();
    let item = Item { ticket: 0, command, by, reason: None, deadline: None, dry_run: false, wait: None };
    sending::send(shared, &route, false, vec![item], &outlet, Instant::now());
    drop(outlet);
    let answer = tokio::time::timeout_at(until, only_answer(answers)).await.ok()??;
    let Ok(Outcome::Lookup(found)) = answer else { return None };
    let view = found.reservation?;
    (view.reservation.details.as_ref()?.mac == Some(mac)).then_some(view)
}
