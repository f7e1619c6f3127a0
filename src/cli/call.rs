//! `allod call METHOD member=value …`: any method, even without a subcommand of its own.
//!
//! A value is read according to the method's schema: text stays text (`owner=123`), anything else is JSON. If the schema
//! does not know a member, a value that parses as JSON is JSON, and any other is text. `set.note=x` reaches one level in; a
//! member given twice is a list.

use std::collections::BTreeSet;
use std::io::Read;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::args::{Ask, Change};
use super::document;
use super::doubt;
use super::exit::Exit;
use super::failure::Failure;
use super::key::Key;
use super::output::Format;
use super::quote::shell;
use super::schema::{self, Kind};
use super::session::{Done, Session};
use crate::limits::DRAIN_WAIT_SECONDS;

/// What the help of `cluster drain` ends with.
const DRAIN_HELP: &str = "\
Another node loads the register first, which takes long where it is large.
Without --timeout the command waits two and a half minutes, all of a handover
unless several nodes fail to load it. Stop the node once it has ended with 0.
Otherwise the handover may go on: `allod cluster nodes` shows the node as
draining, and no longer as the owner, once it is out of service.";
const _: () = assert!(DRAIN_WAIT_SECONDS == 150);

/// `allod call`.
#[derive(Debug, Args)]
pub struct Call {
    /// Method, such as ip.allocate (`allod call rpc.discover` lists them)
    method: String,
    /// Members of the params, or `-` to read the params as JSON from stdin
    #[arg(value_name = "MEMBER=VALUE")]
    members: Vec<String>,
}

/// The server itself.
#[derive(Debug, Subcommand)]
pub enum ServerCommand {
    /// Version, store, durability, limits, uptime
    Info,
    /// Check that the server answers
    Ping,
}

/// The nodes that share a register.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show the nodes, and which of them owns the register
    Nodes,
    /// Show the state of each shard, as its owner reports it
    Shards,
    /// Show which node serves a network
    Locate {
        /// Name or id
        network: String,
    },
    /// Show the key and field of an address in Redis, as commands for redis-cli
    Key(Key),
    /// Take a node out of service in an orderly way, or put it back
    Drain(ClusterDrain),
    /// List addresses that two holders claim since a failover
    Conflicts {
        /// Only in this network
        network: Option<String>,
    },
    /// Decide such conflicts: the present holder keeps the address, and the network grants again
    Accept(ClusterAccept),
}

/// `cluster.accept`.
#[derive(Debug, Args, Serialize)]
pub struct ClusterAccept {
    /// Name or id of the network
    network: String,
    /// Only the conflict over this address
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    change: Change,
}

/// `cluster.drain`.
#[derive(Debug, Args, Serialize)]
#[command(after_help = DRAIN_HELP)]
pub struct ClusterDrain {
    /// Name of the node [default: the one that is asked]
    node: Option<String>,
    /// Put it back into service
    #[arg(long)]
    #[serde(skip)]
    undo: bool,
    #[command(flatten)]
    #[serde(flatten)]
    change: Change,
}

impl ClusterCommand {
    /// How many seconds it waits for the server unless it is told; none: as long as most commands. Who drains a node stops it
    /// next, so that nothing may be under way once the command has ended.
    pub fn timeout(&self) -> Option<u64> {
        matches!(self, Self::Drain(args) if !args.undo).then_some(DRAIN_WAIT_SECONDS)
    }

    /// The call for the command; a command that needs more than one call is returned.
    pub fn ask(self) -> Result<Ask, Self> {
        Ok(match self {
            Self::Key(_) | Self::Shards => return Err(self),
            Self::Nodes => Ask::new("cluster.nodes", &()),
            Self::Drain(args) if args.undo => Ask::new("cluster.drain", &args).with("drain", false),
            Self::Drain(args) => Ask::new("cluster.drain", &args),
            Self::Conflicts { network: None } => Ask::new("cluster.conflicts", &()),
            Self::Conflicts { network: Some(network) } => {
                Ask::new("cluster.conflicts", &serde_json::json!({ "network": network }))
            }
            Self::Accept(args) => Ask::new("cluster.accept", &args),
            Self::Locate { network } => Ask::new("cluster.locate", &serde_json::json!({ "network": network })),
        })
    }
}

impl ServerCommand {
    /// The call for the command.
    pub fn ask(self) -> Ask {
        match self {
            Self::Info => Ask::new("server.info", &()),
            Self::Ping => Ask::new("server.ping", &()),
        }
    }
}

/// Calls the method and prints the answer.
pub async fn run(session: &mut Session, args: &Call) -> Done<Exit> {
    let params = match args.members.as_slice() {
        [only] if only == "-" => {
            let mut text = String::new();
            let unread = |error: std::io::Error| malformed(&args.method, &format!("stdin cannot be read: {error}"));
            std::io::stdin().read_to_string(&mut text).map_err(unread)?;
            // A member that is given twice is refused, as by the server; it would not see it.
            match document::json(&text) {
                Ok(Value::Object(members)) => members,
                Ok(_) => return Err(malformed(&args.method, "stdin holds no JSON object").into()),
                Err(error) => return Err(malformed(&args.method, &format!("stdin holds no JSON: {error}")).into()),
            }
        }
        members => members_of(&args.method, members).map_err(|problem| malformed(&args.method, &problem))?,
    };
    let answer = session.try_call(&args.method, params.clone()).await;
    let result = answer.map_err(|error| Failure::of_method(&args.method, &Value::Object(params.clone()), &error))?;
    let dry_run = params.get("dry_run") == Some(&Value::Bool(true));
    let is_in_doubt = session.is_after_doubt() && !dry_run;
    let doubted = if is_in_doubt { doubt::of_any(&args.method, &params, &result) } else { None };
    let is_table = session.options.style.format == Format::Table;
    let shown = (doubted.is_some() && is_table).then(|| doubt::without_created(&result));
    session.print(&args.method, &params, shown.as_ref().unwrap_or(&result))?;
    if session.options.style.format != Format::Json {
        more_of(&result, dry_run).iter().for_each(|words| session.say(words));
    }
    doubted.iter().for_each(|words| session.say(words));
    if args.method == "rpc.discover" && session.options.style.format == Format::Table {
        session.say("\nwhat each takes and answers: `allod call rpc.discover --format json`");
    }
    Ok(Exit::Success)
}

/// Says that an answer is only a part, which a table and shell variables do not show.
fn more_of(result: &Value, dry_run: bool) -> Option<String> {
    match (result.get("next").and_then(Value::as_str), result.get("more")) {
        (Some(next), _) => Some(format!("there are more: the same call with `after={}`", shell(next))),
        // A repeated dry run would show the same again.
        (None, Some(Value::Bool(true))) if dry_run => Some("there are more".to_owned()),
        (None, Some(Value::Bool(true))) => Some("there are more: make the same call again".to_owned()),
        (None, _) => None,
    }
}

fn malformed(method: &str, problem: &str) -> Failure {
    Failure::usage(
        format!("call `{method}`"),
        problem,
        "write members as `allod call ip.get address=10.0.0.5`, or pipe the params into `allod call METHOD -`",
    )
}

/// The params from `member=value` texts.
pub fn members_of(method: &str, members: &[String]) -> Result<Map<String, Value>, String> {
    let (mut params, mut whole, mut in_parts) = (Map::new(), BTreeSet::new(), BTreeSet::new());
    for text in members {
        let Some((path, value)) = text.split_once('=') else {
            return Err(format!("`{text}` is not written as member=value"));
        };
        let kind = schema::kind_of(method, path);
        let value = read(kind, value).map_err(|problem| format!("`{path}` {problem}"))?;
        let member = path.split('.').next().unwrap_or(path);
        // `other` has the members that were given in the other way.
        let (given, other) = if member == path { (&mut whole, &in_parts) } else { (&mut in_parts, &whole) };
        if other.contains(member) {
            return Err(format!("`{member}` is given as a whole and by parts; leave one of the two out"));
        }
        given.insert(member.to_owned());
        match path.split_once('.') {
            None => put(&mut params, path, value, kind)?,
            Some((member, inner)) => match params.entry(member).or_insert_with(|| json!({})) {
                Value::Object(object) => {
                    put(object, inner, value, kind).map_err(|problem| format!("in `{member}` {problem}"))?
                }
                _ => return Err(format!("`{member}` has no parts")),
            },
        }
    }
    Ok(params)
}

fn read(kind: Option<Kind>, text: &str) -> Result<Value, String> {
    let json = serde_json::from_str::<Value>(text);
    match kind {
        // The word `null` clears a text member that may be null; the text itself is hardly ever meant.
        Some(Kind::Text { or_null: true }) if text == "null" => Ok(Value::Null),
        Some(Kind::Text { .. }) => Ok(Value::String(text.to_owned())),
        Some(Kind::List { of_text: true }) if !text.starts_with('[') => Ok(Value::String(text.to_owned())),
        Some(Kind::Number | Kind::Flag) => {
            json.map_err(|_| format!("must be a {}", if kind == Some(Kind::Flag) { "bool" } else { "number" }))
        }
        Some(Kind::List { .. } | Kind::Object) => json.map_err(|error| format!("must be JSON: {error}")),
        None => Ok(json.unwrap_or_else(|_| Value::String(text.to_owned()))),
    }
}

/// Sets a member. A second value, or a member that is a list, makes a list; a member of another known kind has only one
/// value.
fn put(members: &mut Map<String, Value>, name: &str, value: Value, kind: Option<Kind>) -> Result<(), String> {
    let is_list = matches!(kind, Some(Kind::List { .. }));
    match members.get_mut(name) {
        Some(_) if kind.is_some() && !is_list => {
            return Err(format!("`{name}` is given twice; leave one of the two out"));
        }
        Some(Value::Array(items)) => match value {
            Value::Array(more) => items.extend(more),
            value => items.push(value),
        },
        Some(single) => *single = json!([single.take(), value]),
        None if is_list && !value.is_array() => drop(members.insert(name.to_owned(), json!([value]))),
        None => drop(members.insert(name.to_owned(), value)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_become_params() {
        let texts = ["address=10.0.0.5", "set.note=a=b", "flag=true", "ips=[{}]", "x=1", "x=2"].map(String::from);
        let params = members_of("no.such_method", &texts).unwrap();
        assert_eq!(
            Value::Object(params),
            json!({"address": "10.0.0.5", "set": {"note": "a=b"}, "flag": true, "ips": [{}], "x": [1, 2]})
        );
        assert!(members_of("ip.get", &["address".to_owned()]).is_err());
    }

    #[test]
    fn a_member_is_given_once_and_as_a_whole_or_by_parts() {
        let problem = |texts: [&str; 2]| members_of("ip.allocate", &texts.map(String::from)).unwrap_err();
        let both = "`labels` is given as a whole and by parts; leave one of the two out";
        assert_eq!(problem(["labels.k=v", "labels={\"a\":\"b\"}"]), both);
        assert_eq!(problem(["labels={\"a\":\"b\"}", "labels.k=v"]), both);
        assert_eq!(problem(["owner=a", "owner=b"]), "`owner` is given twice; leave one of the two out");
        assert_eq!(problem(["labels.k=v", "labels.k=w"]), "in `labels` `k` is given twice; leave one of the two out");
        let zones = members_of("subnet.add", &["zones=a", "zones=b"].map(String::from)).unwrap();
        assert_eq!(Value::Object(zones), json!({"zones": ["a", "b"]}));
    }
}
