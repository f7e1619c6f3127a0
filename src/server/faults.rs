//! Turns refusals and faults into errors of the protocol: kind, facts, and whether to retry. The matches are exhaustive: a new
//! refusal does not compile until it has its kind and its facts.
//!
//! The sentence is the refusal's own (`Display`); this file only fills in `error.data`.

use std::borrow::Cow;

use crate::actors::{Applied, Fault, NotReadyReason};
use crate::core::deployment::Stage;
use crate::core::outcome::PoolUsage;
use crate::core::refusal::{HeldBy, NoCapacity, PlanHindrance, Refusal};
use crate::wire::errors::{self, ErrorData, ErrorKind, OverlapWith, PoolFill, Retry, RpcError};
use crate::wire::values::Count;

/// The error that answers a fault.
pub fn error_of(fault: &Fault) -> RpcError {
    match fault {
        Fault::Refused(refusal) => refused(refusal),
        Fault::Overloaded { problem, retry_after_ms } => RpcError::new(ErrorKind::Overloaded, problem.clone())
            .with(|data| data.retry_after_ms = Some(*retry_after_ms)),
        Fault::Unavailable { applied, problem } => {
            let (message, word) = match applied {
                Applied::No => (format!("nothing was changed: {problem}"), errors::Applied::No),
                Applied::Unknown => (
                    format!(
                        "nobody can say yet whether the change was made: {problem}; look, or repeat what may be repeated"
                    ),
                    errors::Applied::Unknown,
                ),
            };
            RpcError::new(ErrorKind::Unavailable, message).with(|data| data.applied = Some(word))
        }
        Fault::StoreAway { .. } => {
            let message = format!("nothing was changed: {}; ask again in a moment", fault.problem());
            RpcError::new(ErrorKind::Unavailable, message).with(|data| data.applied = Some(errors::Applied::No))
        }
        Fault::NotReady { reason, retry_after_ms } => {
            let message = match reason {
                NotReadyReason::Restored => "this register was restored from a copy, which lacks what was granted since: no \
                     address is chosen until what is in use was claimed (ip.claim); then start the server with `allod serve \
                     --accept-restored`"
                    .to_owned(),
                NotReadyReason::Moved => {
                    "the node that owned the register lets go of it, or lost Redis, and another one takes over; ask again in a \
                     moment"
                        .to_owned()
                }
                NotReadyReason::NoOwner => {
                    "no node owns the register just now, or its owner is not reached: `/readyz` of a node says why; ask again in \
                     a moment"
                        .to_owned()
                }
                reason => format!("the network is not ready ({}); ask again in a moment", reason.word()),
            };
            RpcError::new(ErrorKind::NotReady, message).with(|data| {
                data.reason = Some(reason.word().to_owned());
                data.retry_after_ms = Some(*retry_after_ms);
            })
        }
        Fault::Contested { network, index, instance, retry_after_ms } => {
            RpcError::new(ErrorKind::NotReady, fault.problem()).with(|data| {
                data.reason = Some("conflicts".to_owned());
                data.retry_after_ms = Some(*retry_after_ms);
                data.network = Some(network.clone());
                data.index = index.map(|index| index as u64);
                data.instance.clone_from(instance);
            })
        }
        Fault::Stopped { network, why, next } => {
            RpcError::new(ErrorKind::NetworkStopped, fault.problem()).with(|data| {
                data.reason = Some(why.word().to_owned());
                data.network = Some(network.clone());
                data.next = next.as_deref().map(super::render::cursor::write);
            })
        }
        Fault::CursorLost { problem, last_common } => {
            let message =
                format!("{problem}; list what there is, and go on from the cursor of the list or from `last_common`");
            RpcError::new(ErrorKind::CursorLost, message)
                .with(|data| data.last_common = super::cursor::write(last_common).parse().ok())
        }
        Fault::Internal { id } => {
            let message = format!("a bug in the server; its log has the details under {id}");
            RpcError::new(ErrorKind::Internal, message).with(|data| data.id = Some(id.clone()))
        }
    }
}

/// The kinds of refusals, in the protocol's order of precedence, which [`Refusal::precedence`] indexes.
pub(super) const KINDS: [ErrorKind; crate::core::refusal::KINDS.len()] = [
    ErrorKind::InvalidArgument,
    ErrorKind::NotFound,
    ErrorKind::WrongKind,
    ErrorKind::OutOfRange,
    ErrorKind::Overlap,
    ErrorKind::InUse,
    ErrorKind::NotOwner,
    ErrorKind::Conflict,
    ErrorKind::AlreadyInUse,
    ErrorKind::AlreadyExists,
    ErrorKind::Reserved,
    ErrorKind::QuotaExceeded,
    ErrorKind::NotEnoughCapacity,
    ErrorKind::Brake,
];

/// The kind of a refusal.
pub fn kind_of(refusal: &Refusal) -> ErrorKind {
    KINDS[usize::from(refusal.precedence())]
}

pub(super) fn refused(refusal: &Refusal) -> RpcError {
    RpcError::new(kind_of(refusal), refusal.to_string()).with(|data| facts(refusal, data))
}

fn facts(refusal: &Refusal, data: &mut ErrorData) {
    match refusal {
        Refusal::InvalidArgument { field, .. } => data.field = Some(field.clone()),
        Refusal::NotFound { .. } | Refusal::NameTakenSince { .. } => {}
        Refusal::WrongKind { address, .. } | Refusal::OutOfRange { address, .. } => {
            data.address = address.map(|address| address.to_string());
        }
        Refusal::Overlap { with, network, remembered, .. } => {
            // The name of a deleted network may belong to another one by now, so it is named by its id.
            let id = remembered.and_then(|network| network.id.to_string().parse().ok());
            let network = id.unwrap_or_else(|| network.clone());
            data.with = Some(OverlapWith { network, cidr: with.to_string() });
            if remembered.is_some_and(|network| network.purged) {
                data.retry = Retry::Later;
            }
        }
        Refusal::PoolOverlap { with, network, .. } => {
            data.with = Some(OverlapWith { network: network.clone(), cidr: with.to_string() });
        }
        Refusal::InUse { count, first, .. }
        | Refusal::TooMuchToMove { count, first, .. }
        | Refusal::Guarded { count, first, .. } => {
            data.count = Some(*count);
            data.first = Some(first.clone());
            data.retry = Retry::Later;
        }
        Refusal::NotOwner { address, held_by, .. } => {
            data.address = Some(address.to_string());
            data.held_by = Some(holder(held_by));
        }
        Refusal::DeclinedByOther { address, .. } => data.address = Some(address.to_string()),
        Refusal::GenerationConflict { address, expected, actual } => {
            data.address = Some(address.to_string());
            data.expected = Some(expected.0);
            data.actual = actual.map(|actual| actual.0);
        }
        Refusal::VersionConflict { network, expected, actual } => {
            data.network = Some(network.clone());
            data.expected = Some(*expected);
            data.actual = Some(*actual);
        }
        Refusal::AlreadyInUse { network, address, held_by } => {
            data.network = Some(network.clone());
            data.address = Some(address.to_string());
            data.held_by = Some(holder(held_by));
        }
        Refusal::Taken { network, address, held_by, .. } => {
            data.network.clone_from(network);
            data.address = address.map(|address| address.to_string());
            data.held_by = held_by.as_deref().map(holder);
        }
        Refusal::Cools { network, block, .. } => {
            data.network = Some(network.clone());
            data.address = Some(block.first().to_string());
            data.retry = Retry::Later;
        }
        Refusal::SlotTaken { network, address, differs, .. } => {
            data.network = Some(network.clone());
            data.address = Some(address.to_string());
            data.differs = members(differs);
        }
        Refusal::WishedTwice { network, address, differs, .. } => {
            data.network = Some(network.clone());
            data.address = address.map(|address| address.to_string());
            data.differs = members(differs);
        }
        Refusal::NameTaken { differs, .. } => data.differs = members(differs),
        Refusal::Reserved { address, .. } => data.address = Some(address.to_string()),
        Refusal::QuotaExceeded { network, would_hold, max, .. } => {
            data.network = Some(network.clone());
            data.count = Some(*would_hold);
            data.max = Some(*max);
        }
        Refusal::NotEnoughCapacity(why) => no_capacity(why, data),
        Refusal::PlanConflict { expected, actual, hindrance, .. } => {
            data.expected = Some(*expected);
            data.actual = Some(*actual);
            data.reason = match hindrance {
                Some(PlanHindrance::Ended(Stage::Committed)) => Some("committed".to_owned()),
                Some(PlanHindrance::Ended(Stage::Reverted)) => Some("reverted".to_owned()),
                Some(PlanHindrance::Promise) => Some("promise".to_owned()),
                Some(PlanHindrance::Ended(Stage::Open)) | None => None,
            };
        }
        Refusal::OfInstance { instance, refusal } => {
            facts(refusal, data);
            data.instance = Some(instance.clone());
        }
        Refusal::Brake { would_release, .. } => data.would_release = Some(*would_release),
        Refusal::OfItem { index, refusal } => {
            facts(refusal, data);
            data.index = Some(*index as u64);
            // A member inside the item is named by its path in the request; `mac` is a member of the request itself.
            let named = |field: &str| field.starts_with("ips[") || field == "mac";
            data.field =
                data.field.take().map(|field| if named(&field) { field } else { format!("ips[{index}].{field}") });
        }
    }
}

fn members(differs: &[Cow<'static, str>]) -> Option<Vec<String>> {
    (!differs.is_empty()).then(|| differs.iter().map(|member| member.to_string()).collect())
}

fn holder(held_by: &HeldBy) -> errors::HeldBy {
    errors::HeldBy {
        scope: held_by.holder.scope.clone(),
        owner: held_by.holder.owner.clone(),
        slot: held_by.holder.slot.clone(),
        claimant: held_by.claimant.clone(),
        since: held_by.since,
    }
}

fn no_capacity(why: &NoCapacity, data: &mut ErrorData) {
    data.network = Some(why.network.clone());
    data.size = Some(Count(why.size));
    data.held = Some(Count(why.held));
    data.obsolete = Some(Count(why.obsolete));
    data.reserved = Some(Count(why.reserved));
    data.cooling = Some(Count(why.cooling));
    data.declined = Some(Count(why.declined));
    data.next_free_at = why.next_free_at.map(|(wall, _)| wall);
    data.pools = Some(why.pools.iter().map(pool_fill).collect());
    data.waited_ms = why.waited_ms;
    if why.is_ended {
        // As far as is known, whoever asked is gone.
        data.retry = Retry::Never;
    }
}

fn pool_fill(pool: &PoolUsage) -> PoolFill {
    PoolFill {
        range: pool.range,
        name: pool.name.clone(),
        size: Count(pool.counts.size),
        held: Count(pool.counts.held),
        reserved: Count(pool.counts.reserved),
        cooling: Count(pool.counts.cooling),
        declined: Count(pool.counts.declined),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_always_tells_how_many_reservations_stand_in_the_way() {
        let data = refused(&Refusal::Guarded { problem: String::new(), count: 0, first: Vec::new() }).data;
        assert_eq!((data.count, data.first), (Some(0), Some(Vec::new())));
    }

    #[test]
    fn what_cools_is_worth_asking_for_again_and_what_somebody_holds_is_not() {
        let (network, block) = ("lan".parse().unwrap(), "10.0.0.0/22".parse().unwrap());
        let data = refused(&Refusal::Cools { network, block, pieces_max: 500 }).data;
        assert_eq!((data.kind, data.retry), (ErrorKind::AlreadyInUse, Retry::Later));
        assert_eq!(data.address.as_deref(), Some("10.0.0.0"));
        assert_eq!(ErrorKind::AlreadyInUse.retry(), Retry::Never);
    }

    #[test]
    fn the_core_and_the_protocol_have_the_same_kinds_in_the_same_order() {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(names, crate::core::refusal::KINDS);
    }
}
