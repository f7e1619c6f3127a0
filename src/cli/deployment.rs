//! `allod deployment …`: applies the wishes of a deployment from a file, and ends its plans.
//!
//! ```text
//! file ─read, checked whole─▶ deployment.plan │ deployment.apply ─▶ table, and the command that ends the plan
//! ```
//!
//! A file holds the members of the request: `deployment`, `instances`, `groups`. The protocol's own types read it, so it is
//! refused in the same words as a request. `plan` and `apply` are here, `commit` and `revert` in `settle`; the other
//! commands are one call each, which `perform` makes.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::args::{Ask, Change, page_limit, params_of};
use super::document::{self, Form};
use super::exit::Exit;
use super::failure::Failure;
use super::output::list;
use super::output::table::wrapped;
use super::quote::shell;
use super::session::{Done, Session, Stop};
use super::settle;
use super::shown;
use crate::core::plural::counted;
use crate::wire;

/// The help text about files.
const FILE_HELP: &str = "\
A file lists everything that the deployment asks for, as TOML, YAML or JSON:

  deployment = \"shop\"

  [[instances]]
  id = \"web/0\"
  zone = \"z1\"        # may be left out
  fresh = true       # wants another address than before; may be left out
  networks = [
    { network = \"lan\", address = \"10.0.0.10\" },
    { network = \"lan\", slot = \"v6\", family = 6 },  # or pool, or subnet
  ]

  [[groups]]
  name = \"db\"
  instances = [\"db/0\", \"db/1\"]
  zones = [\"z1\", \"z2\"]
  networks = [{ network = \"lan\", static_ips = [\"10.0.0.20-10.0.0.29\"] }]";

/// Deployments: plan, apply, commit, revert what instances ask for.
#[derive(Debug, Subcommand)]
pub enum DeploymentCommand {
    /// Show what `apply` would do, and change nothing
    #[command(after_long_help = FILE_HELP)]
    Plan(Plan),
    /// Grant what a file asks for (TOML, YAML or JSON), in all networks or none
    ///
    /// Addresses that are no longer asked for stay held until the plan is committed, so that machines can be changed in
    /// between.
    #[command(after_long_help = FILE_HELP)]
    Apply(Apply),
    /// Release what a plan made obsolete, and keep its promises
    Commit(Settle),
    /// Release what a plan granted, as if it had not been applied; asks first
    Revert(Settle),
    /// Show what the instances of a deployment hold
    Get(Named),
    /// List deployments, and since when a plan waits for its commit
    List(List),
    /// Release everything that a deployment holds, and forget it; asks first
    Delete(Delete),
}

/// `deployment.plan`.
#[derive(Debug, Args)]
pub struct Plan {
    /// The file; `-` reads it from stdin
    file: PathBuf,
}

/// `deployment.apply`.
#[derive(Debug, Args)]
pub struct Apply {
    /// The file; `-` reads it from stdin
    file: PathBuf,
    #[command(flatten)]
    change: Change,
}

/// `deployment.commit`, `deployment.revert`.
#[derive(Debug, Args, Serialize)]
pub struct Settle {
    /// Name of the deployment
    #[serde(rename = "deployment")]
    name: String,
    /// The number that `apply` returned
    #[arg(long, value_name = "N")]
    plan: u64,
    /// Only this instance; may be repeated
    #[arg(long = "instance", value_name = "ID")]
    instances: Vec<String>,
    #[command(flatten)]
    #[serde(flatten)]
    change: Change,
}

/// `deployment.get`.
#[derive(Debug, Args, Serialize)]
pub struct Named {
    /// Name of the deployment
    #[serde(rename = "deployment")]
    name: String,
}

/// `deployment.list`.
#[derive(Debug, Args, Serialize)]
pub struct List {
    /// At most this many (1 to 10000); all of them by default
    #[arg(long, value_name = "COUNT", value_parser = page_limit())]
    limit: Option<u64>,
    /// Continue after this (`next` of an earlier answer)
    #[arg(long, value_name = "NEXT")]
    after: Option<String>,
}

/// `deployment.delete`.
#[derive(Debug, Args, Serialize)]
pub struct Delete {
    /// Name of the deployment
    #[serde(rename = "deployment")]
    name: String,
    #[command(flatten)]
    #[serde(flatten)]
    change: Change,
}

impl DeploymentCommand {
    /// The call for the command, or the command itself if it needs more than one.
    pub fn ask(self) -> Result<Ask, Self> {
        Ok(match self {
            Self::Plan(_) | Self::Apply(_) | Self::Commit(_) | Self::Revert(_) => return Err(self),
            Self::Get(args) => Ask::new("deployment.get", &args),
            Self::List(args) => Ask::new("deployment.list", &args),
            Self::Delete(args) => Ask::new("deployment.delete", &args).destructive(true),
        })
    }
}

/// Runs the commands that need more than one call.
pub async fn run(session: &mut Session, command: DeploymentCommand) -> Done<Exit> {
    let (method, file, change) = match command {
        DeploymentCommand::Plan(args) => ("deployment.plan", args.file, Change::default()),
        DeploymentCommand::Apply(args) => ("deployment.apply", args.file, args.change),
        DeploymentCommand::Commit(args) => return settle::run(session, Ask::new("deployment.commit", &args)).await,
        DeploymentCommand::Revert(args) => return settle::run(session, Ask::new("deployment.revert", &args)).await,
        // These are single calls.
        DeploymentCommand::Get(_) | DeploymentCommand::List(_) | DeploymentCommand::Delete(_) => {
            return Ok(Exit::Success);
        }
    };
    let asked = format!("read the deployment of {}", shown(&file));
    let text = document::text(&file, &asked)?;
    let mut params = parse(&text, Form::of(&file)).map_err(|problem| {
        let hint = "correct the file; `allod deployment apply --help` shows one that is right";
        Failure::new(asked, problem, hint)
    })?;
    params.extend(params_of(&change));
    let ask = Ask { method, params, destructive: false, contradicted: None };
    let result = session.make(&ask).await.map_err(Stop::of_file)?;
    let doubted = session.doubts(method, &ask.params, &result);
    session.print(method, &ask.params, &result)?;
    let name = ask.text("deployment").unwrap_or_default();
    let applied = method == "deployment.apply" && !change.dry_run;
    // Repeating an apply whose plan is not ended yet keeps everything as well.
    let is_left = if applied && keeps_all(&result) { left_of(session, name, &result).await } else { Left::Plan };
    session.say(&words(name, &result, applied, &is_left));
    doubted.filter(|_| applied).iter().for_each(|words| session.say(words));
    Ok(Exit::Success)
}

/// Was nothing granted, promised or made obsolete?
fn keeps_all(result: &Value) -> bool {
    let slots = list(result, "instances").flat_map(|instance| list(instance, "networks"));
    let mut states = slots.filter_map(|slot| slot.get("state").and_then(Value::as_str));
    states.all(|state| matches!(state, "kept" | "none")) && list(result, "obsolete").next().is_none()
}

/// What is left to commit or revert after an apply.
enum Left {
    /// The plan.
    Plan,
    /// Only side effects of the plan, as sentences: nothing was granted, promised or made obsolete.
    Notes(Vec<String>),
    /// Nothing.
    Nothing,
}

/// After an apply that keeps everything: is anything uncommitted? If that is unknown, the plan.
async fn left_of(session: &mut Session, name: &str, applied: &Value) -> Left {
    let Ok(found) = session.call("deployment.get", json!({"deployment": name})).await else { return Left::Plan };
    if found.get("plan").is_none() || found.get("uncommitted_since").is_some() {
        return Left::Plan;
    }
    let notes = notes_of(applied, &found);
    if notes.is_empty() { Left::Nothing } else { Left::Notes(notes) }
}

/// The effects that the commit of a plan without changes still has. If the plan had already been committed, the apply would
/// have changed these reservations: the lease of a kept one would have ended, and a transient one that is not listed would be
/// obsolete.
fn notes_of(applied: &Value, found: &Value) -> Vec<String> {
    let listed: Vec<&Value> = list(applied, "instances").map(|instance| &instance["id"]).collect();
    let missed = list(found, "instances").filter(|instance| !listed.contains(&&instance["id"]));
    let missed =
        missed.flat_map(|instance| list(instance, "reservations")).filter(|held| held["transient"] == true).count();
    let kept = list(applied, "instances").flat_map(|instance| list(instance, "networks"));
    let leased = kept.filter(|slot| slot["state"] == "kept" && slot["reservation"].get("expires_at").is_some()).count();
    let mut notes = Vec::new();
    if leased > 0 {
        notes.push(format!(
            "reservations that are kept and have a lease ({}) then have none",
            counted(leased, "reservation")
        ));
    }
    if missed > 0 {
        let missed = counted(missed, "reservation");
        notes.push(format!("what is transient and not listed ({missed}) is released by the deploy after this one"));
    }
    notes
}

/// The params in a text.
///
/// # Errors
/// What is wrong with it, in the protocol's words.
pub fn parse(text: &str, form: Form) -> Result<Map<String, Value>, String> {
    let Value::Object(members) = document::content(text, form)? else {
        return Err("it must hold `deployment`, the name, and `instances` or `groups`".to_owned());
    };
    // The params of a plan are those of an apply without the members of a single request, except this one.
    if members.contains_key("deadline_ms") {
        return Err("unknown member `deadline_ms`: it belongs to a request, not into a file".to_owned());
    }
    let wishes = ["instances", "groups"].iter().any(|member| members.contains_key(*member));
    let request = wire::parse("deployment.plan", &Value::Object(members).to_string());
    let refused = |message: &str| message.trim_start_matches("deployment.plan: ").to_owned();
    let canonical =
        request.map_err(|error| refused(&error.message))?.params_json().map_err(|error| error.to_string())?;
    if !wishes {
        // Everything that the deployment holds would become obsolete, which is too much for a forgotten member.
        let sentence = "it has neither `instances` nor `groups`; if it is to hold nothing, say so: `instances = []` in TOML, \
                        `instances: []` in YAML";
        return Err(sentence.to_owned());
    }
    match serde_json::from_str(&canonical) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) | Err(_) => Err("it cannot be written as JSON".to_owned()),
    }
}

/// A line about the results, and the commands that end the plan.
fn words(name: &str, result: &Value, applied: bool, is_left: &Left) -> String {
    let slots: Vec<&Value> = list(result, "instances").flat_map(|instance| list(instance, "networks")).collect();
    let of = |state: &str| slots.iter().filter(|slot| slot["state"] == state).count();
    let counts = ["new", "promised", "kept"].map(|state| (of(state), state));
    let obsolete = (list(result, "obsolete").count(), "obsolete");
    let counts = counts.into_iter().chain([obsolete]).filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, state)| format!("{count} {state}")).collect();
    let counts = if counts.is_empty() { "nothing is listed or held".to_owned() } else { counts.join(", ") };
    let Some(plan) = result.get("plan").and_then(Value::as_u64).filter(|_| applied) else {
        return format!("{counts}; nothing was changed");
    };
    let instances = counted(list(result, "instances").count(), "instance");
    let all_the_same = match is_left {
        Left::Nothing => {
            return format!("plan {plan} of {instances}: {counts}; nothing is left to commit or to revert");
        }
        Left::Notes(notes) => format!("; commit it all the same: {}", notes.join("; ")),
        Left::Plan => String::new(),
    };
    let ends = format!("{} --plan {plan}", shell(name));
    let lines = [
        format!("plan {plan} of {instances}: {counts}{all_the_same}"),
        format!("once they use what is theirs now: `allod deployment commit {ends}`"),
        format!("to take it back: `allod deployment revert {ends}`"),
    ];
    lines.map(|line| wrapped(&line, 78, 2)).join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_params_of_the_request_in_every_form() {
        let expected = json!({"deployment": "shop", "instances": [
            {"id": "web/0", "zone": "z1", "networks": [{"network": "lan", "address": "10.0.0.5"}]}]});
        let toml = "deployment = \"shop\"\n[[instances]]\nid = \"web/0\"\nzone = \"z1\"\n\
                    networks = [{ network = \"lan\", address = \"10.0.0.5\" }]\n";
        let yaml =
            "deployment: shop\ninstances:\n- {id: web/0, zone: z1, networks: [{network: lan, address: 10.0.0.5}]}\n";
        for (text, form) in [
            (toml.to_owned(), Form::Toml),
            (yaml.to_owned(), Form::Yaml),
            (expected.to_string(), Form::Json),
            (yaml.to_owned(), Form::Any),
        ] {
            assert_eq!(Value::Object(parse(&text, form).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn the_file_that_the_help_shows_is_right() {
        let (_, shown) = FILE_HELP.split_once("\n\n").unwrap();
        let members = parse(shown, Form::Toml).unwrap();
        assert_eq!(members.keys().collect::<Vec<_>>(), ["deployment", "instances", "groups"]);
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said_in_the_words_of_the_protocol() {
        for (text, said) in [
            ("instances: []", "`deployment` is missing"),
            ("deployment: shop", "neither `instances` nor `groups`; if it is to hold nothing, say so"),
            ("deployment: shop\ninstances: [{id: a}]", "`instances[0].networks` is missing"),
            ("deployment: shop\ninstances: [{id: a, networks: [{network: lan, adress: 10.0.0.5}]}]", "`address`"),
            ("deployment: shop\ninstances: [{id: a, networks: [{network: lan, address: 10.0.0.05}]}]", "leading zero"),
            ("deployment: shop\ndry_run: true", "`dry_run`"),
            ("deployment: shop\nreason: because", "`reason`"),
            ("deployment: shop\ndeadline_ms: 3", "`deadline_ms`"),
            ("deployment: shop\ndeployment: shop", "duplicate"),
            ("", "it must hold `deployment`"),
            ("- deployment: shop", "it must hold `deployment`"),
        ] {
            let problem = parse(text, Form::Yaml).unwrap_err();
            assert!(problem.contains(said), "{text}: {problem}");
        }
    }
}
