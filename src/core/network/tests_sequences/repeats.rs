//! A granted request may be repeated blindly after a lost answer: the repeat is never refused, and changes nothing.

use super::side::Side;
use crate::core::address::Address;
use crate::core::command::*;
use crate::core::outcome::{Decision, Grant, Outcome};
use crate::core::state::EventKind;
use crate::core::types::Generation;

/// Repeats a granted request. What the request released may have made room for its optional items: then these are granted in
/// addition.
pub(super) fn check(side: &Side, command: &Command, first: &Decision, context: Context) {
    let must_create = match command {
        Command::Allocate(ask) => ask.options.must_create,
        Command::Claim(ask) => ask.options.must_create,
        Command::Acquire(ask) => ask.options.must_create || only_optional(ask),
        _ => return, // No other request for a grant can be repeated in the same words.
    };
    if must_create {
        return;
    }
    let again = side.decide(command, context).unwrap_or_else(|refusal| panic!("a repeat: {refusal}: {command:?}"));
    let (held, held_again) = (granted(&first.outcome), granted(&again.outcome));
    let let_go = first.steps.iter().any(|step| step.event.as_ref().is_some_and(|it| it.kind == EventKind::Released));
    if let_go {
        assert!(held.iter().all(|one| held_again.contains(one)), "{held:?}, then {held_again:?}: {command:?}");
    } else {
        assert_eq!(held, held_again, "{command:?}");
        assert_eq!(again.steps, [], "a repeat changes nothing: {command:?}");
    }
}

/// If such an acquire releases many addresses, its repeat may find room there for more than the limits allow.
fn only_optional(ask: &Acquire) -> bool {
    ask.items.iter().all(|item| item.optional)
}

fn granted(outcome: &Outcome) -> Vec<(Address, Generation)> {
    let of = |grant: &Grant| (grant.view.address, grant.view.reservation.generation);
    match outcome {
        Outcome::Granted(grant) => vec![of(grant)],
        Outcome::Acquired { grants, .. } => grants.iter().map(|(_, grant)| of(grant)).collect(),
        other => panic!("nothing is granted: {other:?}"),
    }
}
