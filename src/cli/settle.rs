//! `allod deployment commit` and `revert`: end a plan, and show what moved.
//!
//! The answer only lists what was released. What a commit hands from one instance to another, and what a revert makes
//! current again, can only be seen by comparing the deployment before and after. Before: `deployment`. The differences are
//! in `moved`.

mod moved;

use std::collections::BTreeSet;

use serde_json::Value;

use super::args::Ask;
use super::exit::Exit;
use super::failure::Failure;
use super::history::{PAGE, Pages};
use super::output::list;
use super::phrase::{self, text};
use super::preview;
use super::quote::shell;
use super::session::{Done, Session, Stop};
use crate::client::ClientError;
use crate::core::plural::counted;
use moved::Moved;

/// Makes the call and reports the result.
pub async fn run(session: &mut Session, ask: Ask) -> Done<Exit> {
    let dry_run = ask.params.get("dry_run") == Some(&Value::Bool(true));
    let reverts = ask.method == "deployment.revert";
    let before = deployment(session, &ask).await?;
    let (before, mut unseen) = (before.deployment, before.unseen);
    if reverts && !dry_run {
        let would = session.make(&ask.clone().with("dry_run", true)).await?;
        let back = comes_back(session, &ask, &before, &would).await;
        if list(&would, "released").next().is_some() {
            preview::show_released(session, &ask, &would);
        }
        show(session, "this would come back:", &back);
        session.confirm(&phrase::of(ask.method, &Value::Object(ask.params.clone())))?;
    }
    let result = session.make(&ask).await?;
    let doubted = session.doubts(ask.method, &ask.params, &result);
    session.print(ask.method, &ask.params, &result)?;
    // The call is done, even if looking up what moved fails.
    let after = if dry_run || before.is_none() { Ok(Look::default()) } else { deployment(session, &ask).await };
    let after = match after {
        Ok(after) => {
            unseen = unseen.or(after.unseen);
            after.deployment
        }
        Err(Stop::Failed(failure)) => {
            unseen = Some(failure.reason);
            None
        }
        Err(Stop::Quiet) => return Err(Stop::Quiet),
    };
    if let Some(why) = unseen.as_ref().filter(|_| !dry_run) {
        let name = shell(ask.text("deployment").unwrap_or_default());
        session.say(&format!(
            "it is done; what moved is not known, because it could not be looked up: {why}; `allod deployment get {name}` shows \
             what is \
             held now"
        ));
    }
    strangers(&ask, [&before, &after]).iter().for_each(|words| session.say(words));
    if dry_run {
        if reverts {
            let back = comes_back(session, &ask, &before, &result).await;
            show(session, "this would come back:", &back);
        }
        session.say("dry run: nothing was changed");
        return Ok(Exit::Success);
    }
    let (released, moved) = match (&before, &after) {
        (Some(before), Some(after)) => (list(&result, "released").count(), moved::between(before, after)),
        _ => (list(&result, "released").count(), Vec::new()),
    };
    show(session, "this moved:", &moved);
    if released > 0 {
        session.say(&format!("released {}", counted(released as u64, "reservation")));
    } else if let Some(words) = doubted {
        session.say(&words);
    } else if moved.is_empty() && unseen.is_none() {
        session.say(if reverts { "nothing was to be taken back" } else { "nothing was to be released" });
    }
    Ok(Exit::Success)
}

/// The result of looking at a deployment.
#[derive(Default)]
struct Look {
    /// Its state; none if it does not exist, or cannot be seen.
    deployment: Option<Value>,
    /// Why it cannot be seen.
    unseen: Option<String>,
}

/// The state of the deployment. If the server does not show it, the call itself either reports the reason or succeeds.
async fn deployment(session: &mut Session, ask: &Ask) -> Done<Look> {
    let named = ask.params.get("deployment").map(|name| ("deployment".to_owned(), name.clone()));
    match session.try_call("deployment.get", named.into_iter().collect()).await {
        Ok(deployment) => Ok(Look { deployment: Some(deployment), unseen: None }),
        Err(ClientError::Rpc(error)) if error.kind == "not_found" => Ok(Look::default()),
        Err(ClientError::Rpc(error)) => Ok(Look { deployment: None, unseen: Some(error.message) }),
        Err(error) => Err(Failure::of_call(ask, &error).into()),
    }
}

/// A line for each named instance that holds nothing before and after: another one was probably meant.
fn strangers(ask: &Ask, looks: [&Option<Value>; 2]) -> Vec<String> {
    if looks.iter().all(|look| look.is_none()) {
        return Vec::new();
    }
    let known: BTreeSet<&str> = looks
        .into_iter()
        .flatten()
        .flat_map(|look| list(look, "instances"))
        .filter_map(|one| text(one, "id"))
        .collect();
    let named = ask.params.get("instances").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let name = ask.text("deployment").unwrap_or_default();
    named
        .filter(|id| !known.contains(id))
        .map(|id| format!("deployment `{name}` has no instance `{id}` that holds anything"))
        .collect()
}

/// What a revert makes current again, and what it takes back from an earlier partial commit of the plan.
async fn comes_back(session: &mut Session, ask: &Ask, before: &Option<Value>, would: &Value) -> Vec<Moved> {
    let Some(before) = before else { return Vec::new() };
    let (mut back, handed) = moved::by_revert(ask, before, would);
    if handed.is_empty() {
        return back;
    }
    // Only the history knows who had these before.
    let members = [("scope", ask.params.get("deployment")), ("from", before.get("uncommitted_since"))];
    let params = members.into_iter().filter_map(|(member, value)| Some((member.to_owned(), value?.clone()))).collect();
    let mut pages = Pages::new(params);
    loop {
        match pages.next(session, PAGE).await {
            Ok(events) if events.is_empty() => return back,
            Ok(events) => {
                let transfers = events.iter().filter(|event| event["type"] == "transferred");
                back.extend(transfers.filter_map(|event| moved::taken_back(event, &handed)));
            }
            Err(stop) => {
                let why =
                    if let Stop::Failed(failure) = stop { format!(": {}", failure.reason) } else { String::new() };
                session.say(&format!(
                    "not everything is shown that an earlier partial commit of the plan handed over, because \
                 history does not have it{why}"
                ));
                return back;
            }
        }
    }
}

/// The most rows that are shown; the rest is counted.
const ROWS_MAX: usize = 20;

fn show(session: &Session, heading: &str, moved: &[Moved]) {
    if moved.is_empty() {
        return;
    }
    session.say(heading);
    session.show(&moved::table(moved.iter().take(ROWS_MAX)).render(Some(80)));
    let rest = moved.len().saturating_sub(ROWS_MAX);
    if rest > 0 {
        session.say(&format!("… and {rest} more"));
    }
    if moved.iter().any(|one| one.undoes) {
        session.say("so it undoes what an earlier partial commit of the plan did for those instances");
    }
}
