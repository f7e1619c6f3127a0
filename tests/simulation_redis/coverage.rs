//! What a run of many schedules must have met, or it tested nothing.

use crate::world::Coverage;

const MUST_OCCUR: &[&str] = &[
    "a node owns",
    "a node steps down",
    "an owner of before wrote again",
    "applied after its connection ended",
    "awaited",
    "batch healed",
    "brought at the end",
    "commit refused",
    "conflict at the end",
    "cut off with a batch under way",
    "double rollback",
    "failover taken back",
    "granted",
    "granted before",
    "healed",
    "held at the end",
    "late claims in conflict",
    "lost with the process that knew",
    "no answer at all",
    "node cut off",
    "node killed",
    "node paused",
    "node stopped in order",
    "nothing arrives",
    "one owner all the while",
    "outcome unknown",
    "owner paused",
    "put aside",
    "put aside at the end",
    "redis emptied",
    "redis went back",
    "refused: full",
    "refused: unavailable",
    "register written anew",
    "released",
    "reply lost",
    "request after its connection ended",
    "request lost",
    "request slow",
    "scripts forgotten",
    "store stopped itself",
    "take-over lost",
    "take-overs played again",
    "three owners wrote",
];

/// What never happened.
pub fn missing(coverage: &Coverage) -> Vec<&'static str> {
    // A count that is there may be none.
    MUST_OCCUR.iter().copied().filter(|what| coverage.get(what).is_none_or(|times| *times == 0)).collect()
}
