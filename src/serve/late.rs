//! Brings what this node acknowledged, and a failover cut off, to the present owner of the register: this node or another.
//!
//! Each late journal (see `store::late`) is put to its networks until all of them have answered. Whatever got a definite
//! answer is noted, in memory and in a file, before the next part is asked for, and never asked for again: a holder who got
//! something back may let it go, and a release that was acknowledged stands. Claims that cannot be given back are kept by
//! their networks as conflicts; those for which there is no room are asked for again. Claims on a network that no longer
//! exists are given up, and an ERROR names them.
//!
//! **Known gap.** A claim is asked for once more if its answer is lost, or if the process ends between the answer and its
//! note (one write of a file). The answer is the same, unless the holder let the address go in between and it no longer
//! cools down: then it is held again. A network has nothing durable that tells a claim of which it never heard from one that
//! it gave back and that was let go: both have generations below its next one, and neither leaves a record. That would take
//! a record of journals in its configuration. Similarly, an address that was renewed on the line that was cut off, and let
//! go on the line that continues, is held again if it no longer cools down, until the end that its holder was told of.
//!
//! Neighbours: `keeper` runs this beside everything else; `core::network` decides.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::actors::coordinator::{self, Done, Job, Order};
use crate::actors::service::Shared;
use crate::actors::{Fault, NotReadyReason, Told, outlet};
use crate::core::address::Address;
use crate::core::command::LateRenewal;
use crate::core::outcome::{Healing, Outcome};
use crate::core::refusal::{Missing, Refusal};
use crate::core::state::Entry;
use crate::core::types::{NetworkId, SlotKey};
use crate::limits::LATE_CLAIMS_MAX;
use crate::peer::NO_CLIENT;
use crate::seldom::Seldom;
use crate::server::Server;
use crate::server::render::event_type;
use crate::server::role::Role;
use crate::store::Store;
use crate::store::late::Late;

/// How often the node looks for journals to bring.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// How long to wait for an answer before asking again.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// A claim that is asked for alone needs no trial.
const NOT_TRIED: Result<Outcome, Box<Fault>> =
    Ok(Outcome::Healed(Healing { healed: 0, standing: 0, conflicts: 0, left: 0 }));
/// How long a register that was taken over waits for what this node has to bring.
const FIRST_WITHIN: Duration = Duration::from_secs(5);
/// Interval between log lines about what cannot be brought: it grows from the first to the second.
const SAID_EVERY: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);

/// Brings what there is, for ever.
pub(super) async fn bring(server: &Server, store: &dyn Store) -> Infallible {
    let failures = Seldom::new(SAID_EVERY);
    loop {
        let not_yet = |late: &Late, problem| {
            if let Some(unsaid) = failures.turn() {
                let (shard, batches) = (late.shard.0, late.batches.len());
                tracing::warn!(shard, batches, problem, unsaid, "what was acknowledged is not given back yet");
            }
        };
        bring_all(server, store, None, not_yet).await;
        let left: usize = store.late().iter().map(|late| late.batches.len()).sum();
        let left = left as u64 + store.late_unwritten();
        server.metrics.late_batches.set(i64::try_from(left).unwrap_or(i64::MAX));
        tokio::time::sleep(LOOKS_EVERY).await;
    }
}

/// Brings what there is to a register that this node has just taken over, before anybody else can ask it for anything:
/// acknowledged addresses must not be granted to somebody else meanwhile. [`bring`] does what is not finished within some
/// time.
pub(super) async fn bring_first(server: &Server, store: &dyn Store, owner: &Arc<Shared>) {
    let until = Instant::now() + FIRST_WITHIN;
    let not_yet = |late: &Late, problem| {
        let (shard, batches) = (late.shard.0, late.batches.len());
        tracing::warn!(shard, batches, problem, "what was acknowledged is not given back yet, and is served meanwhile");
    };
    bring_all(server, store, Some((owner, until)), not_yet).await;
}

/// Brings each journal once, and reports those that cannot be brought with the reason.
async fn bring_all(server: &Server, store: &dyn Store, first: First<'_>, not_yet: impl Fn(&Late, String)) {
    let lates = store.late();
    let settled = settle_ended(server, store, &lates).await;
    for late in &lates {
        let brought = match &settled {
            Ok(()) => bring_and_dispose(server, store, first, late).await,
            Err(problem) => Err(problem.clone()),
        };
        if let Err(problem) = brought {
            not_yet(late, problem);
        }
    }
}

/// Drops claims of these journals whose grant or renewal went to another place with its subnet, and ended there according to
/// another journal: the holder let go, and somebody else may have been granted the address. Noted before any of them is
/// brought, because the journal that records the end may be dealt with first.
async fn settle_ended(server: &Server, store: &dyn Store, lates: &[Arc<Late>]) -> Result<(), String> {
    for late in lates {
        let mut ended = 0;
        for (network, claims) in late.ended_elsewhere(lates) {
            late.answered(network, &claims);
            ended += claims.len();
        }
        if ended > 0 {
            server.metrics.late_claims.with_label_values(&["standing"]).inc_by(ended as u64);
            let shard = late.shard.0;
            tracing::warn!(
                shard,
                ended,
                "what was acknowledged went with its subnet, and ended there: it is claimed no more"
            );
        }
    }
    for late in lates {
        keep_answered(store, late).await?;
    }
    Ok(())
}

/// Reports what became of the claims that were asked for this time.
fn tell(server: &Server, late: &Late, done: Healing) {
    let Healing { healed, standing, conflicts, left: _ } = done;
    for (what, count) in [("healed", healed), ("standing", standing), ("conflict", conflicts)] {
        server.metrics.late_claims.with_label_values(&[what]).inc_by(count);
    }
    if conflicts > 0 {
        tracing::error!(
            shard = late.shard.0,
            healed,
            standing,
            conflicts,
            "after a failover two holders claim the same addresses: their networks grant nothing new until `allod cluster accept`"
        );
    } else if healed + standing > 0 {
        tracing::warn!(shard = late.shard.0, healed, standing, "what a failover had cut off was given back");
    }
}

/// At most so many changes that are not repeated are named in the log.
const OTHERS_NAMED_MAX: usize = 100;

/// Brings a whole journal. Once every answer is on disk the journal is removed, and the changes that are not repeated are
/// logged, once.
async fn bring_and_dispose(
    server: &Server,
    store: &dyn Store,
    first: First<'_>,
    late: &Arc<Late>,
) -> Result<(), String> {
    bring_one(server, store, first, late).await?;
    let dealt_with = store.dealt_with(late).await;
    dealt_with.map_err(|error| format!("all of it was answered, but it is put aside still: {error}"))?;
    let others = late.others();
    for other in others.iter().take(OTHERS_NAMED_MAX) {
        tracing::warn!(
            network = %other.network,
            address = other.address.map(tracing::field::display),
            what = other.kind.map_or("network_changed", |kind| event_type(kind).as_str()),
            holder = other.holder.as_ref().map(tracing::field::display),
            by = %other.by,
            "cut off, and not repeated"
        );
    }
    if !others.is_empty() {
        tracing::error!(
            shard = late.shard.0,
            others = others.len(),
            "changes that released, bound or configured something were also cut off, and are not repeated: whoever asked for \
             them must ask again"
        );
    }
    Ok(())
}

/// An owner that nobody else can ask yet, and until when.
type First<'a> = Option<(&'a Arc<Shared>, Instant)>;

/// Asks for every claim that has no answer yet: the owner in `first`, or else the owner of the register. The error says why
/// something is left.
async fn bring_one(server: &Server, store: &dyn Store, first: First<'_>, late: &Arc<Late>) -> Result<(), String> {
    let mut done = Healing::default();
    // Answers that could not be noted the last time.
    let mut problem = keep_answered(store, late).await.err();
    let renewals = late.renewals();
    for (network, claims) in late.claims() {
        let ask = async |some: &[(Address, Entry)], dry_run: bool| {
            let renewal = |(address, entry): &(Address, Entry)| {
                let (address, generation) = (*address, entry.generation());
                let ended = *renewals.get(&(network, address, generation))?;
                Some(LateRenewal { address, generation, ended })
            };
            let renewed = some.iter().filter_map(renewal).collect();
            ask(server, first, Job::Heal { network, claims: some.to_vec(), renewed }, dry_run).await
        };
        let mut parts = VecDeque::from(parts(claims));
        while let Some(mut some) = parts.pop_front() {
            // Another task may have brought it since: to this owner, before it served.
            some.retain(|claim| !late.is_answered(network, claim));
            if some.is_empty() {
                continue;
            }
            if first.is_some_and(|(_, until)| until <= Instant::now()) {
                problem.get_or_insert_with(|| "it takes long".to_owned());
                break;
            }
            // A network does not say which claims found no room, so a trial finds that out before anything is changed.
            let tried = if some.len() > 1 { ask(&some, true).await } else { NOT_TRIED };
            let answer = match tried {
                Ok(Outcome::Healed(Healing { left: 0, .. })) => ask(&some, false).await,
                other => other,
            };
            match answer {
                Ok(Outcome::Healed(Healing { left, .. })) if left == some.len() as u64 => {
                    problem =
                        Some(format!("network {network} has as many conflicts as it can keep; accept some of them"));
                }
                Ok(Outcome::Healed(Healing { left: 1.., .. })) => {
                    some.into_iter().rev().for_each(|claim| parts.push_front(vec![claim]));
                }
                Ok(Outcome::Healed(Healing { healed, standing, conflicts, left: 0 })) => {
                    late.answered(network, &some);
                    problem = keep_answered(store, late).await.err().or(problem);
                    done.healed += healed;
                    done.standing += standing;
                    done.conflicts += conflicts;
                }
                Ok(other) => problem = Some(format!("network {network} answered something else: {other:?}")),
                Err(fault) if is_gone(&fault) => {
                    give_up(server, late, network, &some);
                    late.answered(network, &some);
                    problem = keep_answered(store, late).await.err().or(problem);
                }
                Err(fault) => drop(problem.get_or_insert_with(|| fault.problem())),
            }
        }
    }
    tell(server, late, done);
    match problem {
        Some(problem) if !late.claims().is_empty() => Err(problem),
        Some(_) | None => Ok(()),
    }
}

/// Whether the network was deleted, or its creation was cut off, too. It does not come back: configuration that was cut off
/// is not repeated, and no id is given twice.
fn is_gone(fault: &Fault) -> bool {
    matches!(fault, Fault::Refused(Refusal::NotFound { missing: Missing::Network, .. }))
}

/// No network is left that could hold these claims, or have a conflict with them. No history has a place for them either, so
/// the log names each of them.
fn give_up(server: &Server, late: &Late, network: NetworkId, claims: &[(Address, Entry)]) {
    server.metrics.late_claims.with_label_values(&["gone"]).inc_by(claims.len() as u64);
    let named = claims.iter().map(|(address, entry)| match entry {
        Entry::Held(held) => {
            let SlotKey { scope, owner, slot } = &held.holder;
            format!("{address} of `{owner}` (scope `{scope}`, slot `{slot}`)")
        }
        Entry::Released(_) | Entry::Declined(_) => address.to_string(),
    });
    let claims = named.collect::<Vec<_>>().join(", ");
    tracing::error!(
        shard = late.shard.0,
        %network,
        claims,
        "what was acknowledged in a network that no longer exists is given up: whoever was granted one of these must ask for another"
    );
}

/// Notes the answers before the next part is asked for. Does not block the thread, which may also renew the lease.
async fn keep_answered(store: &dyn Store, late: &Arc<Late>) -> Result<(), String> {
    store.keep_answered(late).await.map_err(|error| format!("what was given back of it cannot be noted: {error}"))
}

/// Splits claims into small groups; a claim with a MAC, which may be in use in another network, stays alone.
fn parts(claims: Vec<(Address, Entry)>) -> Vec<Vec<(Address, Entry)>> {
    let has_mac = |entry: &Entry| match entry {
        Entry::Held(held) => held.details.as_ref().is_some_and(|details| details.mac.is_some()),
        Entry::Released(_) | Entry::Declined(_) => false,
    };
    let (alone, together): (Vec<_>, Vec<_>) = claims.into_iter().partition(|(_, entry)| has_mac(entry));
    let together = together.chunks(LATE_CLAIMS_MAX).map(<[_]>::to_vec);
    together.chain(alone.into_iter().map(|claim| vec![claim])).collect()
}

/// Asks a network to give back what it can; `dry_run` only asks what would become of it.
async fn ask(server: &Server, first: First<'_>, job: Job, dry_run: bool) -> Result<Outcome, Box<Fault>> {
    let nobody = || Box::new(Fault::NotReady { reason: NotReadyReason::NoOwner, retry_after_ms: 1_000 });
    let reason = format!("acknowledged by node {} before a failover", server.node);
    let order = Order {
        job,
        by: "healing".into(),
        reason: Some(reason.into()),
        deadline: Some(first.map_or_else(|| Instant::now() + ANSWER_WITHIN, |(_, until)| until)),
        dry_run,
        wait: None,
    };
    let (outlet, mut told) = outlet();
    let role = server.seat.role();
    let here = match &*role {
        Role::Owner(shared) => Some(shared),
        Role::Follower { .. } | Role::Between | Role::Waiting { .. } => first.map(|(owner, _)| owner),
    };
    match (here, &*role) {
        (Some(shared), _) => coordinator::spawn(shared, 0, order, outlet),
        (None, Role::Follower { link, .. }) if link.is_connected() => link.job(NO_CLIENT, 0, order, &outlet),
        (None, _) => return Err(nobody()),
    }
    match tokio::time::timeout(ANSWER_WITHIN, told.recv()).await {
        Ok(Some(Told::Job(_, Ok(Done::Outcome(outcome))))) => Ok(outcome),
        Ok(Some(Told::Job(_, Err(fault)))) => Err(fault),
        Ok(Some(_) | None) | Err(_) => Err(nobody()),
    }
}
