//! `allod network apply FILE`: makes the server's networks equal to a file, and `allod network dump`, its reverse.
//!
//! ```text
//! file ─read, checked whole─▶ tables ┐
//!                                    ├─ diff ─▶ steps ─ dry run of each ─ shown, asked ─▶ one call a network
//! server ─network.list─▶ networks ───┘
//! ```
//!
//! - A member that the file does not name stays as it is; so do subnets, pools and reserved ranges that it does not list.
//!   `--prune` removes them, and also networks of the same realms that are not in the file, unless `--only-named`.
//! - A network is recognised by `id`, by `renamed_from`, by name, or by the same realm and subnets: a rename keeps its
//!   reservations. Names may change hands along a chain, or in a cycle.
//! - Each network is one call and one commit, made whole or not at all: `network.create` if it is new, otherwise
//!   `network.update`, which includes the subnets. The call carries the version that was compared, so a concurrent change by
//!   someone else is never silently undone. Only in a cycle of names one network takes two calls: see `matching`.
//! - The server is asked first, with `dry_run`, whether it would refuse anything; if so, nothing is changed. A run can still
//!   stop between two networks because of a concurrent change, or because of a conflict that appears only after an earlier
//!   change; applying again continues from there.
//! - Applying twice changes nothing the second time.
//!
//! Review notes: does `diff` of the output of `dump` stay empty? Is anything removed without `--prune`?

mod check;
pub mod diff;
pub mod dump;
pub mod file;
mod matching;
pub mod overlaps;
pub mod subnets;

use std::path::Path;

use serde_json::{Map, Value, json};

use super::args::Ask;
use super::document::{self, Form};
use super::exit::Exit;
use super::failure::Failure;
use super::network::Apply;
use super::output::Format;
use super::pages;
use super::session::{Done, Session};
use super::shown;
use crate::core::plural::{counted, counted_were};
use diff::Step;

/// The most lines about differences that nobody asked for; the rest is counted.
const SHOWN_MAX: usize = 20;

/// Applies a file.
pub async fn run(session: &mut Session, args: &Apply) -> Done<Exit> {
    let asked = format!("apply {}", shown(&args.file));
    let text = document::text(&args.file, &asked)?;
    let tables = file::parse(&text, Form::of(&args.file)).map_err(|problem| refused(&asked, &problem))?;
    let networks = networks(session, None).await?;
    let mut steps = diff::steps(&tables, &networks, args.prune).map_err(|problem| refused(&asked, &problem))?;
    steps.retain(|step| !args.only_named || step.method != "network.delete");
    let is_data = session.options.style.format != Format::Table;
    for network in diff::otherwise_ordered(&tables, &networks) {
        session.say(&format!(
            "network `{network}`: its subnets stay in the order in which they were added, which is not that of the file: addresses \
             are drawn from the first that has any"
        ));
    }
    for (name, former) in diff::not_renamed(&tables, &networks) {
        session.say(&format!(
            "network `{name}`: `renamed_from = \"{former}\"` is ignored, because there are networks of both names"
        ));
    }
    if steps.is_empty() {
        if is_data {
            session.print("apply", &Map::new(), &differences(&[], &[]))?;
        }
        // Objects that `--prune` would remove are not wrong, but they are not in the file either.
        let more = if args.prune { Vec::new() } else { diff::steps(&tables, &networks, true).unwrap_or_default() };
        if more.is_empty() {
            session.say("nothing to change: the server has what the file says");
        } else {
            session.say(
                "nothing to change: the server has all that the file says, and more, which `--prune` would remove:",
            );
            show_more(session, &more);
        }
        return Ok(Exit::Success);
    }
    let refusals = check::refusals(session, &steps, &networks, args.dry_run).await?;
    show(session, &steps, &refusals);
    if is_data {
        session.print("apply", &Map::new(), &differences(&steps, &refusals))?;
    }
    let count = refusals.iter().flatten().count();
    if count > 0 {
        let problem = format!("the server refuses {count} of {}; nothing was changed", counted(steps.len(), "change"));
        let hint = "each is marked with `!` above: change the file, or what stands in the way";
        return Err(Failure::new(asked, problem, hint).into());
    }
    if args.dry_run {
        session.say("dry run: nothing was changed");
        return Ok(Exit::Differences);
    }
    // In a pipeline nobody can be asked: there only changes that remove something need `--yes`.
    let takes_away = || steps.iter().any(Step::takes_away) || (args.prune && prunes(&steps, &tables, &networks));
    if session.can_ask() || takes_away() {
        session.confirm(&asked)?;
    }
    for (done, step) in steps.iter().enumerate() {
        let mut params = step.params.clone();
        if let Some(reason) = &args.reason {
            params.insert("reason".to_owned(), json!(reason));
        }
        let failure = match session.try_call(step.method, params).await {
            Ok(answer) if session.found_made(&answer) => Failure::made_by_another(&step.for_people()),
            Ok(_) => continue,
            Err(error) => Failure::of_method(step.method, &step.for_people(), &error).of_file(),
        };
        return Err(broken_off(failure, done, steps.len(), &args.file).into());
    }
    session.say(&format!("{} made", counted(steps.len(), "change")));
    Ok(Exit::Success)
}

/// Turns the failure of one change into that of the run: it says how far the run came, and that applying the file again
/// continues it.
fn broken_off(failure: Failure, done: usize, of: usize, file: &Path) -> Failure {
    let reason = format!("{}; {done} of {} made before", failure.reason, counted_were(of, "change"));
    Failure { reason, ..failure }.broken_off(Some(done), file)
}

/// Whether `--prune` adds anything to these changes. Everything that it adds removes something, even where a setting gets
/// its default back.
fn prunes(steps: &[Step], tables: &[file::Table], networks: &[Value]) -> bool {
    diff::steps(tables, networks, false).map_or(true, |without| without != steps)
}

fn refused(asked: &str, problem: &str) -> Failure {
    Failure::new(asked, problem, "correct the file; `allod network dump` writes one that is right")
}

/// The changes for programs: the calls in their order, and why the server would refuse them.
fn differences(steps: &[Step], refusals: &[Option<Failure>]) -> Value {
    let change = |(step, refusal): (&Step, &Option<Failure>)| {
        let mut change =
            json!({"network": step.network, "method": step.method, "changes": step.words, "params": step.params});
        if let Some(refusal) = refusal {
            change["refused"] = json!({"reason": refusal.reason, "hint": refusal.hint});
        }
        change
    };
    json!({"differences": steps.iter().zip(refusals).map(change).collect::<Vec<_>>()})
}

/// Prints the changes, with a heading for each network, and under each change why the server would refuse it.
fn show(session: &Session, steps: &[Step], refusals: &[Option<Failure>]) {
    let mut heading = "";
    for (step, refusal) in steps.iter().zip(refusals) {
        if step.network != heading {
            heading = &step.network;
            session.say(&format!("network `{heading}`"));
        }
        for line in &step.words {
            session.say(&format!("  {line}"));
        }
        if let Some(refusal) = refusal {
            session.say(&format!("  ! refused: {}\n    hint: {}", refusal.reason, refusal.hint));
        }
    }
}

/// Prints what the server has beyond the file, line by line; networks that are not in the file are only counted.
fn show_more(session: &Session, steps: &[Step]) {
    let (whole, parts): (Vec<&Step>, Vec<&Step>) = steps.iter().partition(|step| step.method == "network.delete");
    let lines: Vec<String> = parts
        .iter()
        .flat_map(|step| step.words.iter().map(|line| format!("  network `{}`: {line}", step.network)))
        .chain((!whole.is_empty()).then(|| format!("  {} of the same realms", counted(whole.len(), "other network"))))
        .collect();
    lines.iter().take(SHOWN_MAX).for_each(|line| session.say(line));
    if lines.len() > SHOWN_MAX {
        session.say(&format!("  … and {} more", lines.len() - SHOWN_MAX));
    }
}

/// All networks of the server, or of a realm.
pub(super) async fn networks(session: &mut Session, realm: Option<&str>) -> Done<Vec<Value>> {
    networks_with(session, realm, json!({})).await
}

/// All networks of the server, or of a realm, listed with these params.
pub(super) async fn networks_with(session: &mut Session, realm: Option<&str>, params: Value) -> Done<Vec<Value>> {
    let ask = Ask::new("network.list", &params);
    let ask = realm.map_or_else(|| ask.clone(), |realm| ask.clone().with("realm", realm));
    let mut all = pages::all(session, &ask, "networks").await?;
    Ok(match all.get_mut("networks").map(Value::take) {
        Some(Value::Array(networks)) => networks,
        _ => Vec::new(),
    })
}

#[cfg(test)]
mod fuzzing;
#[cfg(test)]
mod tests;
