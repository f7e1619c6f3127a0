//! Brings what this node acknowledged, and a failover cut off, to whoever owns the register now: this node or another.
//!
//! Each late journal (see `store::late`) is asked of its networks again and again until all of them have answered. They
//! answer the same claim alike however often it comes, so an answer that was lost does no harm. What cannot be given back they
//! keep as conflicts; what concerns a network that the register has not stays put aside.
//!
//! Neighbours: `keeper` runs it beside all else; `core::network` decides.

use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::actors::{Fault, Item, NotReadyReason, coordinator, only_answer, outlet};
use crate::core::address::Address;
use crate::core::command::{Command, Heal};
use crate::core::outcome::{Healing, Outcome};
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::Entry;
use crate::core::types::NetworkId;
use crate::limits::LATE_CLAIMS_MAX;
use crate::peer::frame::NetworkRef;
use crate::server::Server;
use crate::server::role::Role;
use crate::store::Store;
use crate::store::late::Late;
use crate::telemetry::Seldom;

/// How often it is looked for what is to be brought.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// How long an answer is waited for before it is asked again.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The connection under which another node is asked: no client's.
const CONNECTION: u64 = u64::MAX;
/// How soon, and how seldom at the end, it is said again that something cannot be brought.
const SAID_EVERY: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);

/// Brings what there is, for ever.
pub(super) async fn bring(server: &Server, store: &dyn Store) -> Infallible {
    let failures = Seldom::new(SAID_EVERY);
    loop {
        for late in store.late() {
            match bring_one(server, &late).await {
                Ok(done) => dispose(server, store, &late, done),
                Err(problem) => {
                    if let Some(unsaid) = failures.turn() {
                        let (shard, batches) = (late.shard.0, late.batches.len());
                        tracing::warn!(shard, batches, problem, unsaid, "what was acknowledged is not given back yet");
                    }
                }
            }
        }
        let left: usize = store.late().iter().map(|late| late.batches.len()).sum();
        server.metrics.late_batches.set(i64::try_from(left).unwrap_or(i64::MAX));
        tokio::time::sleep(LOOKS_EVERY).await;
    }
}

fn dispose(server: &Server, store: &dyn Store, late: &Late, done: Healing) {
    let Healing { healed, standing, conflicts, left: _ } = done;
    for (what, count) in [("healed", healed), ("standing", standing), ("conflict", conflicts)] {
        server.metrics.late_claims.with_label_values(&[what]).inc_by(count);
    }
    let others = late.others();
    if conflicts > 0 {
        tracing::error!(
            shard = late.shard.0,
            healed,
            standing,
            conflicts,
            "a failover left addresses with two claims: their networks grant nothing new until `allod cluster accept`"
        );
    } else {
        tracing::warn!(shard = late.shard.0, healed, standing, "what a failover had cut off was given back");
    }
    if others > 0 {
        tracing::error!(
            shard = late.shard.0,
            others,
            "changes that let go, renewed or configured something were cut off, too, and are not repeated: whoever asked for \
             them must ask again"
        );
    }
    if let Err(error) = store.dealt_with(late) {
        tracing::error!(%error, "what was given back is put aside still, and will be brought again");
    }
}

/// Asks for all of it. What became of it, if everybody concerned has answered.
async fn bring_one(server: &Server, late: &Late) -> Result<Healing, String> {
    let mut done = Healing::default();
    let mut problem = None;
    for (network, claims) in late.claims() {
        for some in parts(claims) {
            match ask(server, network, some).await {
                Ok(Outcome::Healed(Healing { healed, standing, conflicts, left })) => {
                    done.healed += healed;
                    done.standing += standing;
                    done.conflicts += conflicts;
                    if left > 0 {
                        let more = format!("network {network} has as many conflicts as it can keep; accept some");
                        problem.get_or_insert(more);
                    }
                }
                Ok(other) => return Err(format!("network {network} answered something else: {other:?}")),
                Err(fault) => drop(problem.get_or_insert_with(|| fault.problem())),
            }
        }
    }
    problem.map_or(Ok(done), Err)
}

/// A few at a time; what carries a MAC, which may be in use in another network, alone.
fn parts(claims: Vec<(Address, Entry)>) -> Vec<Vec<(Address, Entry)>> {
    let has_mac = |entry: &Entry| match entry {
        Entry::Held(held) => held.details.as_ref().is_some_and(|details| details.mac.is_some()),
        Entry::Released(_) | Entry::Declined(_) => false,
    };
    let (alone, together): (Vec<_>, Vec<_>) = claims.into_iter().partition(|(_, entry)| has_mac(entry));
    let together = together.chunks(LATE_CLAIMS_MAX).map(<[_]>::to_vec);
    together.chain(alone.into_iter().map(|claim| vec![claim])).collect()
}

async fn ask(server: &Server, network: NetworkId, claims: Vec<(Address, Entry)>) -> Result<Outcome, Box<Fault>> {
    let nobody = || Box::new(Fault::NotReady { reason: NotReadyReason::NoOwner, retry_after_ms: 1_000 });
    let reason = format!("acknowledged by node {} before a failover", server.node);
    let item = Item {
        ticket: 0,
        command: Command::Heal(Box::new(Heal { claims })),
        by: "healing".into(),
        reason: Some(reason.into()),
        deadline: Some(Instant::now() + ANSWER_WITHIN),
        dry_run: false,
        wait: None,
    };
    let (outlet, told) = outlet();
    match &*server.seat.role() {
        Role::Owner(shared) => match shared.routes.by_id(network) {
            Some(route) => coordinator::send(shared, &route, false, vec![item], &outlet, Instant::now()),
            None => return Err(Refusal::not_found(Missing::Network, network).into()),
        },
        Role::Follower { link, .. } if link.is_connected() => {
            link.work(CONNECTION, NetworkRef::Id(network), vec![item], &outlet);
        }
        Role::Follower { .. } | Role::Between | Role::Waiting { .. } => return Err(nobody()),
    }
    drop(outlet);
    match tokio::time::timeout(ANSWER_WITHIN, only_answer(told)).await {
        Ok(Some(answer)) => answer,
        Ok(None) | Err(_) => Err(nobody()),
    }
}
