//! Asks the server, before anything is changed, which changes it would refuse: each is sent with `dry_run` first.
//!
//! The server answers for what is there now. A change may also count on an earlier one of the same run, which frees a
//! name or a range or makes a subnet larger: what is refused for such a reason is not reported, as nobody can tell
//! before the earlier one is made.

use std::collections::BTreeMap;

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
/// Where the server does not answer the question: it is not reached, or not ready.
pub(super) async fn refusals(
    session: &mut Session,
    steps: &[Step],
    networks: &[Value],
    dry_run: bool,
) -> Done<Vec<Option<Failure>>> {
    let names = names_of(networks);
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
            // Who may only look can still see what differs.
            Answer::NotAllowed if dry_run => {
                session.say("what the server would refuse is not known: the token may change nothing, not even try to");
                return Ok(vec![None; steps.len()]);
            }
            Answer::None => return Err(failure.into()),
            Answer::Refused(error) if may_pass(step, error, &steps[..at], &names) => refusals.push(None),
            Answer::Refused(_) | Answer::NotAllowed => refusals.push(Some(failure)),
        }
    }
    Ok(refusals)
}

/// What an error says about a change.
enum Answer<'a> {
    /// It would be refused.
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

/// The names that the networks have now, by id.
pub(super) fn names_of(networks: &[Value]) -> BTreeMap<&str, &str> {
    networks.iter().filter_map(|network| Some((text(network, "id")?, text(network, "name")?))).collect()
}

/// Whether an earlier step of the same run may take away what stands in the way of this one.
pub(super) fn may_pass(step: &Step, error: &RpcError, earlier: &[Step], names: &BTreeMap<&str, &str>) -> bool {
    let set = |step: &Step, member: &str| step.params.get("set").and_then(|set| set.get(member)).cloned();
    let network = |step: &Step| step.params.get("network").and_then(Value::as_str).map(str::to_owned);
    // Of a network that is there, by the name that it has now.
    let is_of = |other: &Step, name: &str| network(other).is_some_and(|id| names.get(id.as_str()) == Some(&name));
    let in_same = |other: &&Step| network(other).is_some() && network(other) == network(step);
    let of_layout = |other: &&Step| in_same(other) && other.method != "network.update";
    match ErrorKind::from_word(&error.kind) {
        Some(ErrorKind::Overlap) => {
            let with = error.data.get("with").unwrap_or(&Value::Null);
            let (of, cidr) = (text(with, "network").unwrap_or_default(), with.get("cidr"));
            earlier.iter().filter(|other| is_of(other, of)).any(|other| match other.method {
                "network.delete" => true,
                "subnet.remove" => other.params.get("subnet") == cidr,
                "subnet.modify" => other.params.get("subnet") == cidr && set(other, "cidr").is_some(),
                _ => false,
            })
        }
        Some(ErrorKind::AlreadyExists) => {
            let wanted = step.params.get("name").cloned().or_else(|| set(step, "name"));
            let wanted = wanted.as_ref().and_then(Value::as_str).unwrap_or_default();
            let of_network = matches!(step.method, "network.create" | "network.update");
            earlier.iter().any(|other| match other.method {
                "network.delete" if of_network => is_of(other, wanted),
                "network.update" if of_network => is_of(other, wanted) && set(other, "name").is_some(),
                "subnet.remove" | "subnet.modify" => !of_network && in_same(&other),
                _ => false,
            })
        }
        // A range in what becomes larger; one `dhcp` subnet in place of another; what is counted and becomes less.
        Some(ErrorKind::OutOfRange | ErrorKind::NotFound | ErrorKind::InvalidArgument) => {
            earlier.iter().any(|other| of_layout(&other))
        }
        _ => false,
    }
}
