//! Asks the server, before anything is changed, which changes it would refuse: each is sent with `dry_run` first.
//!
//! The server answers for the current state, and for each network as a whole. But a change may depend on an earlier one of
//! the same run, by which another network gives up a name or space. A refusal for such a reason is not reported, because it
//! may disappear once the earlier change is made.

use serde_json::{Value, json};

use super::super::failure::Failure;
use super::super::phrase::text;
use super::super::progress::Progress;
use super::super::session::{Done, Session};
use super::diff::Step;
use crate::client::{ClientError, RpcError};
use crate::wire::ErrorKind;

/// The refusal that each step would meet, if any.
///
/// # Errors
/// The server does not answer the question: it is not reached, or not ready.
pub(super) async fn refusals(
    session: &mut Session,
    steps: &[Step],
    networks: &[Value],
    dry_run: bool,
) -> Done<Vec<Option<Failure>>> {
    let progress = Progress::towards("checking", steps.len() as u64);
    let mut refusals = Vec::with_capacity(steps.len());
    for (at, step) in steps.iter().enumerate() {
        let mut params = step.params.clone();
        params.insert("dry_run".to_owned(), json!(true));
        let answer = session.try_call(step.method, params).await;
        progress.at(at as u64 + 1);
        let Err(error) = answer else {
            refusals.push(None);
            continue;
        };
        let failure = Failure::of_method(step.method, &step.for_people(), &error);
        match judged(&error) {
            // A user who may only read can still see the differences.
            Answer::NotAllowed if dry_run => {
                session.say("what the server would refuse is not known: the token may change nothing, not even try to");
                return Ok(vec![None; steps.len()]);
            }
            Answer::None => return Err(failure.into()),
            Answer::Refused(error) if may_pass(step, error, &steps[..at], networks) => refusals.push(None),
            Answer::Refused(_) | Answer::NotAllowed => refusals.push(Some(failure)),
        }
    }
    Ok(refusals)
}

/// What an error says about a change.
enum Answer<'a> {
    /// The change would be refused.
    Refused(&'a RpcError),
    /// This client may not even ask.
    NotAllowed,
    /// Nothing: the question was not answered.
    None,
}

fn judged(error: &ClientError) -> Answer<'_> {
    let Some(error) = error.rpc() else { return Answer::None };
    match ErrorKind::from_word(&error.kind) {
        Some(ErrorKind::PermissionDenied) => Answer::NotAllowed,
        Some(
            ErrorKind::Unavailable
            | ErrorKind::Overloaded
            | ErrorKind::NotReady
            | ErrorKind::Moved
            | ErrorKind::RateLimited
            | ErrorKind::Unauthenticated
            | ErrorKind::Internal,
        )
        | None => Answer::None,
        Some(_) => Answer::Refused(error),
    }
}

/// Whether an earlier step of the same run, which changes another network, may remove the obstacle to this one.
pub(super) fn may_pass(step: &Step, error: &RpcError, earlier: &[Step], networks: &[Value]) -> bool {
    let wanted = step.params.get("name").or_else(|| step.params.get("set")?.get("name")).and_then(Value::as_str);
    // The current state of the network that an earlier step changes.
    let changed = |other: &Step| networks.iter().find(|network| network.get("id") == other.params.get("network"));
    match ErrorKind::from_word(&error.kind) {
        Some(ErrorKind::Overlap) => {
            let with = error.data.get("with").unwrap_or(&Value::Null);
            let is_of = |network: &&Value| network.get("name") == with.get("network");
            earlier
                .iter()
                .any(|other| changed(other).filter(is_of).is_some_and(|network| gives_up(other, network, with)))
        }
        Some(ErrorKind::AlreadyExists) => earlier.iter().any(|other| {
            let gone = other.method == "network.delete";
            let renamed = other.params.get("set").is_some_and(|set| set.get("name").is_some());
            (gone || renamed) && changed(other).is_some_and(|network| wanted == text(network, "name"))
        }),
        _ => false,
    }
}

/// Whether a step takes the conflicting subnet away from its network, or changes its cidr.
fn gives_up(step: &Step, network: &Value, with: &Value) -> bool {
    if step.method == "network.delete" {
        return true;
    }
    let list = |of: &Value| of.get("subnets").and_then(Value::as_array).cloned();
    let subnets = list(network).unwrap_or_default();
    let id = subnets.iter().find(|subnet| subnet.get("cidr") == with.get("cidr")).and_then(|subnet| subnet.get("id"));
    match (step.params.get("set").and_then(list), id) {
        (Some(entries), Some(id)) => {
            let stays = entries.iter().find(|entry| entry.get("id") == Some(id));
            stays.is_none_or(|entry| entry.get("cidr").is_some())
        }
        (None, _) | (_, None) => false,
    }
}
